using System;
using System.Collections.Generic;
using System.Threading;

namespace Oxpipe
{
    /// <summary>
    /// A package of ONNX graphs, loaded, each on a backend. Any thread, any number of calls at
    /// once. Runs, tokenizers and chat templates of it live on after Dispose.
    /// </summary>
    public sealed unsafe class Pipeline : IDisposable
    {
        private static readonly NativeMethods.oxp_pipeline_open_progress_delegate FolderThunk = OnProgress;
        private static readonly NativeMethods.oxp_pipeline_open_memory_progress_delegate MemoryThunk = OnProgress;

        internal readonly PipelineHandle Handle = new PipelineHandle();

        private delegate int GetPort(
            oxp_pipeline* pipeline, byte* component, ulong length, ulong index, oxp_port_info* info, oxp_error** error);

        private Pipeline()
        {
        }

        /// <summary>
        /// Opens the package in a folder and loads its components. The callback is told before each
        /// is loaded, and at the end, on this thread; false ends opening with Status.Cancelled.
        /// </summary>
        public static Pipeline Open(
            string path,
            PipelineOptions options = null,
            Runtime runtime = null,
            Func<LoadProgress, bool> progress = null,
            CancellationToken cancellationToken = default(CancellationToken))
        {
            var pipeline = new Pipeline();
            using (var cancel = new CancelScope(cancellationToken))
            using (var runtimeLease = new Lease(runtime?.Handle))
            using (var optionsLease = new Lease(options?.Handle))
            using (var text = new Utf8Text(path ?? throw new ArgumentNullException(nameof(path))))
            using (var callback = new Callback<Func<LoadProgress, bool>>(progress))
            {
                oxp_pipeline* made;
                oxp_error* error;
                int status = NativeMethods.oxp_pipeline_open(
                    (oxp_runtime*)runtimeLease.Pointer, text.Bytes, text.Length, (oxp_options*)optionsLease.Pointer, &made,
                    progress == null ? null : FolderThunk, (void*)callback.UserData, cancel.Pointer, &error);
                pipeline.Opened(status, error, made, callback, cancellationToken);
            }
            return pipeline;
        }

        /// <summary>Opens a package of files in memory, which are copied. As Open otherwise.</summary>
        public static Pipeline OpenMemory(
            IReadOnlyCollection<KeyValuePair<string, ReadOnlyMemory<byte>>> files,
            PipelineOptions options = null,
            Runtime runtime = null,
            Func<LoadProgress, bool> progress = null,
            CancellationToken cancellationToken = default(CancellationToken))
        {
            if (files == null)
            {
                throw new ArgumentNullException(nameof(files));
            }
            var pipeline = new Pipeline();
            using (var cancel = new CancelScope(cancellationToken))
            using (var runtimeLease = new Lease(runtime?.Handle))
            using (var optionsLease = new Lease(options?.Handle))
            using (var pins = new Pins())
            using (var callback = new Callback<Func<LoadProgress, bool>>(progress))
            {
                oxp_pipeline* made;
                oxp_error* error;
                int status = NativeMethods.oxp_pipeline_open_memory(
                    (oxp_runtime*)runtimeLease.Pointer, Files.Pin(pins, files), (ulong)files.Count,
                    (oxp_options*)optionsLease.Pointer, &made, progress == null ? null : MemoryThunk,
                    (void*)callback.UserData, cancel.Pointer, &error);
                pipeline.Opened(status, error, made, callback, cancellationToken);
            }
            return pipeline;
        }

        private void Opened(
            int status,
            oxp_error* error,
            oxp_pipeline* made,
            Callback<Func<LoadProgress, bool>> callback,
            CancellationToken cancellationToken)
        {
            try
            {
                Calls.Check(status, error, cancellationToken);
                Handle.Own(made);
            }
            finally
            {
                // What the callback has thrown comes before what the library made of that.
                callback.Rethrow();
            }
        }

        /// <summary>What opening a package would take, from file sizes. Of the options "variant" counts.</summary>
        public static MemoryEstimate Estimate(string path, PipelineOptions options = null, Runtime runtime = null)
        {
            using (var runtimeLease = new Lease(runtime?.Handle))
            using (var optionsLease = new Lease(options?.Handle))
            using (var text = new Utf8Text(path ?? throw new ArgumentNullException(nameof(path))))
            {
                // Lambdas must not capture a using variable's address, but may its copy.
                var runtimePointer = (oxp_runtime*)runtimeLease.Pointer;
                var optionsPointer = (oxp_options*)optionsLease.Pointer;
                byte* bytes = text.Bytes;
                ulong length = text.Length;
                ulong weightBytes = 0;
                string json = Calls.CopyText((byte* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                {
                    ulong total = 0;
                    int status = NativeMethods.oxp_pipeline_estimate_copy(
                        runtimePointer, bytes, length, optionsPointer, &total, buffer, capacity, needed, error);
                    weightBytes = total;
                    return status;
                });
                return new MemoryEstimate(weightBytes, json);
            }
        }

        /// <summary>What the package is.</summary>
        public PipelineInfo Info
        {
            get
            {
                using (var lease = new Lease(Handle))
                {
                    var info = new oxp_pipeline_info { struct_size = (uint)sizeof(oxp_pipeline_info) };
                    oxp_error* error;
                    Calls.Check(NativeMethods.oxp_pipeline_get_info((oxp_pipeline*)lease.Pointer, &info, &error), error);
                    return new PipelineInfo(info);
                }
            }
        }

        /// <summary>The components, in the package's order.</summary>
        public IReadOnlyList<ComponentInfo> Components
        {
            get
            {
                using (var lease = new Lease(Handle))
                {
                    var components = new ComponentInfo[Info.ComponentCount];
                    for (int index = 0; index < components.Length; index++)
                    {
                        var info = new oxp_component_info { struct_size = (uint)sizeof(oxp_component_info) };
                        oxp_error* error;
                        int status = NativeMethods.oxp_pipeline_get_component(
                            (oxp_pipeline*)lease.Pointer, (ulong)index, &info, &error);
                        Calls.Check(status, error);
                        components[index] = new ComponentInfo(info);
                    }
                    return components;
                }
            }
        }

        /// <summary>The inputs of a component.</summary>
        public IReadOnlyList<PortInfo> InputsOf(ComponentInfo component)
        {
            return Ports(component.Name, component.InputCount, NativeMethods.oxp_pipeline_get_input);
        }

        /// <summary>The outputs of a component.</summary>
        public IReadOnlyList<PortInfo> OutputsOf(ComponentInfo component)
        {
            return Ports(component.Name, component.OutputCount, NativeMethods.oxp_pipeline_get_output);
        }

        private IReadOnlyList<PortInfo> Ports(string component, int count, GetPort get)
        {
            using (var lease = new Lease(Handle))
            using (var name = new Utf8Text(component))
            {
                var ports = new PortInfo[count];
                for (int index = 0; index < count; index++)
                {
                    var info = new oxp_port_info { struct_size = (uint)sizeof(oxp_port_info) };
                    oxp_error* error;
                    int status = get(
                        (oxp_pipeline*)lease.Pointer, name.Bytes, name.Length, (ulong)index, &info, &error);
                    Calls.Check(status, error);
                    ports[index] = new PortInfo(info);
                }
                return ports;
            }
        }

        /// <summary>Everything that is known about the pipeline, as JSON.</summary>
        public string Describe()
        {
            using (var lease = new Lease(Handle))
            {
                var pipeline = (oxp_pipeline*)lease.Pointer;
                return Calls.CopyText((byte* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                    NativeMethods.oxp_pipeline_describe_copy(pipeline, buffer, capacity, needed, error));
            }
        }

        /// <summary>"embeddings": the vector of each text, float [count, width].</summary>
        public Outputs Embed(
            IReadOnlyList<string> texts, CancellationToken cancellationToken = default(CancellationToken))
        {
            return Read(texts, false, cancellationToken);
        }

        /// <summary>"scores": those of each class for each text, float [count, classes].</summary>
        public Outputs Classify(
            IReadOnlyList<string> texts, CancellationToken cancellationToken = default(CancellationToken))
        {
            return Read(texts, true, cancellationToken);
        }

        /// <summary>The names of the classes; none where the package has none.</summary>
        public IReadOnlyList<string> Labels
        {
            get
            {
                using (var lease = new Lease(Handle))
                {
                    var pipeline = (oxp_pipeline*)lease.Pointer;
                    ulong count;
                    oxp_error* failure;
                    Calls.Check(NativeMethods.oxp_pipeline_get_label_count(pipeline, &count, &failure), failure);
                    var labels = new string[checked((int)count)];
                    for (int index = 0; index < labels.Length; index++)
                    {
                        ulong at = (ulong)index;
                        labels[index] =
                            Calls.CopyText((byte* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                                NativeMethods.oxp_pipeline_label_copy(pipeline, at, buffer, capacity, needed, error));
                    }
                    return labels;
                }
            }
        }

        private Outputs Read(IReadOnlyList<string> texts, bool classes, CancellationToken cancellationToken)
        {
            var outputs = new Outputs();
            using (var cancel = new CancelScope(cancellationToken))
            using (var lease = new Lease(Handle))
            using (var pins = new Pins())
            {
                var pipeline = (oxp_pipeline*)lease.Pointer;
                int count = texts.Count;
                var starts = (byte**)pins.Block((long)(count + 1) * sizeof(byte*));
                var lengths = (ulong*)pins.Block((long)(count + 1) * sizeof(ulong));
                for (int index = 0; index < count; index++)
                {
                    ulong length;
                    starts[index] = pins.Text(texts[index], out length);
                    lengths[index] = length;
                }
                oxp_outputs* made;
                oxp_error* error;
                int status = classes
                    ? NativeMethods.oxp_pipeline_classify(
                        pipeline, starts, lengths, (ulong)count, &made, cancel.Pointer, &error)
                    : NativeMethods.oxp_pipeline_embed(
                        pipeline, starts, lengths, (ulong)count, &made, cancel.Pointer, &error);
                Calls.Check(status, error, cancellationToken);
                outputs.Handle.Own(made);
            }
            return outputs;
        }

        /// <summary>Makes a run, without tokens or inputs.</summary>
        public Run CreateRun(RunOptions options = null)
        {
            return new Run(this, options);
        }

        /// <summary>
        /// A run of what Run.Save gave, of the same package and with the same options but for "max_tokens".
        /// </summary>
        public Run LoadRun(ReadOnlySpan<byte> state, RunOptions options = null)
        {
            return Run.Load(this, state, options);
        }

        /// <summary>A batch of runs of this pipeline, without any yet.</summary>
        public Batch CreateBatch()
        {
            return new Batch(this);
        }

        /// <summary>The package's tokenizer.</summary>
        public Tokenizer OpenTokenizer()
        {
            return new Tokenizer(this);
        }

        /// <summary>The package's chat template.</summary>
        public ChatTemplate OpenChatTemplate()
        {
            return new ChatTemplate(this);
        }

        public void Dispose()
        {
            Handle.Dispose();
        }

        private static int OnProgress(void* userData, oxp_load_progress* progress)
        {
            Callback<Func<LoadProgress, bool>> callback = Callback<Func<LoadProgress, bool>>.From((IntPtr)userData);
            try
            {
                return callback.Function(new LoadProgress(progress)) ? 0 : 1;
            }
            catch (Exception exception)
            {
                callback.Keep(exception);
                return 1;
            }
        }
    }
}
