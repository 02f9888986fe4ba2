using System;

namespace Oxpipe
{
    /// <summary>An input or output as its graph declares it.</summary>
    public sealed unsafe class PortInfo
    {
        internal PortInfo(oxp_port_info info)
        {
            Name = Calls.Text(info.name, info.name_len);
            DataType = (DataType)info.dtype;
            TypeName = Calls.Text(info.type_name, info.type_name_len);
            IsOptional = (info.flags & NativeMethods.OXP_PORT_OPTIONAL) != 0;
            HasRank = (info.flags & NativeMethods.OXP_PORT_RANK_UNKNOWN) == 0;
            Dims = new ReadOnlySpan<long>(info.dims, (int)info.rank).ToArray();
            DimNames = new string[info.rank];
            for (int axis = 0; axis < DimNames.Length; axis++)
            {
                DimNames[axis] = Calls.Text(info.dim_names[axis]);
            }
        }

        public string Name { get; }

        /// <summary>DataType.Other for a type that does not cross the interface; see TypeName.</summary>
        public DataType DataType { get; }

        /// <summary>"float32", or ONNX's notation, "tensor(string)".</summary>
        public string TypeName { get; }

        /// <summary>-1 where the size is not fixed.</summary>
        public long[] Dims { get; }

        /// <summary>Names of dims that are not fixed, "" where there is none.</summary>
        public string[] DimNames { get; }

        /// <summary>False if the graph declares no rank; Dims is then empty and says nothing.</summary>
        public bool HasRank { get; }

        /// <summary>The input has a default and may be left out.</summary>
        public bool IsOptional { get; }
    }

    /// <summary>A component of a pipeline.</summary>
    public sealed unsafe class ComponentInfo
    {
        internal ComponentInfo(oxp_component_info info)
        {
            Name = Calls.Text(info.name, info.name_len);
            ComponentType = Calls.Text(info.component_type, info.component_type_len);
            File = Calls.Text(info.file, info.file_len);
            Backend = (Backend)info.backend;
            Reason = Calls.Text(info.reason, info.reason_len);
            WhenPresent = Calls.Text(info.when_present, info.when_present_len);
            Phase = (Phase)info.phase;
            InputCount = checked((int)info.input_count);
            OutputCount = checked((int)info.output_count);
        }

        public string Name { get; }

        /// <summary>The package's word for what it is, "decoder"; may be "".</summary>
        public string ComponentType { get; }

        /// <summary>Its model, relative to the package.</summary>
        public string File { get; }

        public Backend Backend { get; }

        /// <summary>Why that backend runs it.</summary>
        public string Reason { get; }

        /// <summary>The modality without which it does not run, "image"; "" if there is none.</summary>
        public string WhenPresent { get; }

        public Phase Phase { get; }

        public int InputCount { get; }

        public int OutputCount { get; }
    }

    /// <summary>What a package is.</summary>
    public sealed unsafe class PipelineInfo
    {
        internal PipelineInfo(oxp_pipeline_info info)
        {
            Format = Calls.Text(info.format, info.format_len);
            MetadataFile = Calls.Text(info.metadata_file, info.metadata_file_len);
            Strategy = Calls.Text(info.strategy, info.strategy_len);
            Decoder = Calls.Text(info.decoder, info.decoder_len);
            EosTokenIds = new ReadOnlySpan<int>(info.eos_token_ids, checked((int)info.eos_token_id_count)).ToArray();
            ContextLength = checked((long)info.context_length);
            KvBytesPerToken = checked((long)info.kv_bytes_per_token);
            ComponentCount = checked((int)info.component_count);
            HasTokenizer = (info.flags & NativeMethods.OXP_PIPELINE_HAS_TOKENIZER) != 0;
            HasChatTemplate = (info.flags & NativeMethods.OXP_PIPELINE_HAS_CHAT_TEMPLATE) != 0;
        }

        /// <summary>"inference_metadata", "genai_config" or "huggingface".</summary>
        public string Format { get; }

        public string MetadataFile { get; }

        /// <summary>"autoregressive", "single_pass", "composite" and so on.</summary>
        public string Strategy { get; }

        /// <summary>The component that chooses tokens; "" if there is no token loop.</summary>
        public string Decoder { get; }

        /// <summary>Any of these token ids ends the text.</summary>
        public int[] EosTokenIds { get; }

        /// <summary>The most tokens that a sequence may have; 0 if the package does not say.</summary>
        public long ContextLength { get; }

        /// <summary>Bytes of KV cache that one token takes, with that of the package's own head that guesses; 0 if the
        /// graphs do not tell.</summary>
        public long KvBytesPerToken { get; }

        public int ComponentCount { get; }

        public bool HasTokenizer { get; }

        public bool HasChatTemplate { get; }
    }

    /// <summary>How far loading is.</summary>
    public sealed unsafe class LoadProgress
    {
        internal LoadProgress(oxp_load_progress* progress)
        {
            Done = checked((int)progress->done);
            Total = checked((int)progress->total);
            Component = Calls.Text(progress->component, progress->component_len);
        }

        /// <summary>Components that are loaded.</summary>
        public int Done { get; }

        public int Total { get; }

        /// <summary>The component that comes next; "" at the end.</summary>
        public string Component { get; }
    }

    /// <summary>What opening a package would take.</summary>
    public sealed class MemoryEstimate
    {
        internal MemoryEstimate(ulong weightBytes, string json)
        {
            WeightBytes = checked((long)weightBytes);
            Json = json;
        }

        /// <summary>Bytes of all weights.</summary>
        public long WeightBytes { get; }

        /// <summary>{"weight_bytes": N, "components": [{"name", "file", "weight_bytes"}, ...]}</summary>
        public string Json { get; }
    }

    /// <summary>What a run has done.</summary>
    public sealed class RunStats
    {
        internal RunStats(oxp_run_stats stats)
        {
            FinishReason = (FinishReason)stats.finish_reason;
            PromptTokens = checked((long)stats.prompt_tokens);
            GeneratedTokens = checked((long)stats.generated_tokens);
            ComponentRuns = checked((long)stats.component_runs);
            Prefill = Times.FromNanoseconds(stats.prefill_ns);
            Decode = Times.FromNanoseconds(stats.decode_ns);
            KvBytes = checked((long)stats.kv_bytes);
            ReusedTokens = checked((long)stats.reused_tokens);
            ProposedTokens = checked((long)stats.proposed_tokens);
            AcceptedTokens = checked((long)stats.accepted_tokens);
            Passes = checked((long)stats.passes);
        }

        public FinishReason FinishReason { get; }

        /// <summary>Tokens that the host appended.</summary>
        public long PromptTokens { get; }

        /// <summary>Tokens that were chosen.</summary>
        public long GeneratedTokens { get; }

        /// <summary>Times that a component was run, all together.</summary>
        public long ComponentRuns { get; }

        /// <summary>Time in steps that fed more than one token.</summary>
        public TimeSpan Prefill { get; }

        /// <summary>Time in steps that fed one token.</summary>
        public TimeSpan Decode { get; }

        /// <summary>Bytes that the KV buffers take, in use or reserved.</summary>
        public long KvBytes { get; }

        /// <summary>Tokens that did not run because another run of the pipeline had begun with them.</summary>
        public long ReusedTokens { get; }

        /// <summary>Tokens that speculation has proposed.</summary>
        public long ProposedTokens { get; }

        /// <summary>Those of them that the run chose.</summary>
        public long AcceptedTokens { get; }

        /// <summary>Passes of the decoder.</summary>
        public long Passes { get; }
    }

    internal static class Times
    {
        internal static TimeSpan FromNanoseconds(ulong nanoseconds)
        {
            // A tick is 100 ns.
            return new TimeSpan((long)(nanoseconds / 100));
        }
    }
}
