using System;
using System.Collections.Generic;
using System.Runtime.ExceptionServices;
using System.Runtime.InteropServices;
using System.Threading;

namespace Oxpipe
{
    /// <summary>Reads the logits for as long as they last, which is until this returns.</summary>
    public delegate TResult LogitsReader<out TResult>(ReadOnlySpan<float> logits);

    /// <summary>
    /// A host's own processor of logits, before all others: it may change them. False ends the call
    /// that chooses a token with Status.Cancelled. Calls on the run fail with Status.Busy.
    /// </summary>
    public delegate bool LogitsHook(Span<float> logits, ReadOnlySpan<int> tokens);

    /// <summary>
    /// A host's own choice of a token: gets the logarithms of the probabilities after all processors
    /// and samplers, negative infinity for tokens that are ruled out. Null ends the call that chooses
    /// with Status.Cancelled. Calls on the run fail with Status.Busy.
    /// </summary>
    public delegate int? HostSampler(ReadOnlySpan<float> logprobs, ReadOnlySpan<int> tokens);

    /// <summary>
    /// One request to a pipeline: its tokens, inputs, values and KV cache. One call at a time, on
    /// any thread: a call that overlaps another, or comes from a callback of one, fails with
    /// Status.Busy. A call that fails leaves the run as it was.
    /// </summary>
    public sealed unsafe class Run : IDisposable
    {
        private static readonly NativeMethods.oxp_run_generate_on_event_delegate EventThunk = OnEvent;

        private static readonly NativeMethods.oxp_run_set_logits_hook_hook_delegate HookThunk = OnLogits;
        private static readonly NativeMethods.oxp_run_set_logits_hook_free_user_data_delegate FreeHookThunk = OnFree<Hosted<LogitsHook>>;
        private static readonly NativeMethods.oxp_run_set_sampler_sampler_delegate SamplerThunk = OnSample;
        private static readonly NativeMethods.oxp_run_set_sampler_free_user_data_delegate FreeSamplerThunk = OnFree<Hosted<HostSampler>>;

        /// <summary>What the run's hook or sampler has thrown in the call that is under way.</summary>
        private sealed class Thrown
        {
            internal ExceptionDispatchInfo ByHost;
        }

        /// <summary>A host's function, and where what it throws goes. The run is left to be collected.</summary>
        private sealed class Hosted<TFunction>
        {
            internal readonly TFunction Function;
            internal readonly Thrown Thrown;

            internal Hosted(TFunction function, Thrown thrown)
            {
                Function = function;
                Thrown = thrown;
            }
        }

        private readonly Thrown thrown = new Thrown();
        private readonly RunHandle handle = new RunHandle();
        private int busy;

        internal Run(Pipeline pipeline, RunOptions options)
        {
            Pipeline = pipeline;
            using (var pipelineLease = new Lease(pipeline.Handle))
            using (var optionsLease = new Lease(options?.Handle))
            {
                oxp_run* made;
                oxp_error* error;
                int status = NativeMethods.oxp_run_create(
                    (oxp_pipeline*)pipelineLease.Pointer, (oxp_options*)optionsLease.Pointer, &made, &error);
                Calls.Check(status, error);
                handle.Own(made);
            }
        }

        private Run(Pipeline pipeline, oxp_run* made)
        {
            Pipeline = pipeline;
            handle.Own(made);
        }

        internal static Run Load(Pipeline pipeline, ReadOnlySpan<byte> state, RunOptions options)
        {
            using (var pipelineLease = new Lease(pipeline.Handle))
            using (var optionsLease = new Lease(options?.Handle))
            fixed (byte* bytes = &MemoryMarshal.GetReference(state))
            {
                oxp_run* made;
                oxp_error* error;
                int status = NativeMethods.oxp_run_load(
                    (oxp_pipeline*)pipelineLease.Pointer, (oxp_options*)optionsLease.Pointer, bytes,
                    (ulong)state.Length, &made, &error);
                Calls.Check(status, error);
                return new Run(pipeline, made);
            }
        }

        internal RunHandle Handle => handle;

        /// <summary>What it is a run of. It may be disposed of before the run.</summary>
        public Pipeline Pipeline { get; }

        /// <summary>Appends prompt tokens. After a finished answer this starts the next turn.</summary>
        public void AppendTokens(ReadOnlySpan<int> tokens)
        {
            using (var call = new Call(this))
            fixed (int* ids = &MemoryMarshal.GetReference(tokens))
            {
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_append_tokens(call.Run, ids, (ulong)tokens.Length, &error), error);
            }
        }

        /// <summary>
        /// Encodes and appends text; gives how many tokens it became. With addSpecial the tokenizer
        /// adds its own special tokens, which a rendered chat template has already.
        /// </summary>
        public int AppendText(string text, bool addSpecial = false)
        {
            using (var utf8 = new Utf8Text(text ?? throw new ArgumentNullException(nameof(text))))
            {
                return AppendUtf8(new ReadOnlySpan<byte>(utf8.Bytes, checked((int)utf8.Length)), addSpecial);
            }
        }

        /// <summary>As AppendText, of text that is UTF-8 already.</summary>
        public int AppendUtf8(ReadOnlySpan<byte> text, bool addSpecial = false)
        {
            using (var call = new Call(this))
            fixed (byte* bytes = &MemoryMarshal.GetReference(text))
            {
                byte nothing;
                ulong count;
                oxp_error* error;
                int status = NativeMethods.oxp_run_append_text(
                    call.Run, text.IsEmpty ? &nothing : bytes, (ulong)text.Length, addSpecial ? 1 : 0, &count, &error);
                Calls.Check(status, error);
                return checked((int)count);
            }
        }

        /// <summary>Sets an input that the request brings, "vision_encoder.pixel_values". It is copied at once.</summary>
        public void SetInput<T>(string address, ReadOnlySpan<T> data, params long[] shape) where T : struct
        {
            fixed (byte* bytes = &MemoryMarshal.GetReference(MemoryMarshal.AsBytes(data)))
            fixed (long* dims = shape)
            {
                var tensor = new oxp_tensor_in
                {
                    struct_size = (uint)sizeof(oxp_tensor_in),
                    dtype = (uint)DataTypes.Of<T>(),
                    data = bytes,
                    byte_len = (ulong)MemoryMarshal.AsBytes(data).Length,
                    shape = dims,
                    rank = (uint)shape.Length,
                };
                SetInput(address, &tensor);
            }
        }

        /// <summary>As above, from an array.</summary>
        public void SetInput<T>(string address, T[] data, params long[] shape) where T : struct
        {
            SetInput(address, new ReadOnlySpan<T>(data), shape);
        }

        public void SetInput(string address, Tensor tensor)
        {
            using (var pins = new Pins())
            {
                oxp_tensor_in view = pins.Input(tensor);
                SetInput(address, &view);
            }
        }

        private void SetInput(string address, oxp_tensor_in* tensor)
        {
            using (var call = new Call(this))
            using (var text = new Utf8Text(address ?? throw new ArgumentNullException(nameof(address))))
            {
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_set_input(call.Run, text.Bytes, text.Length, tensor, &error), error);
            }
        }

        /// <summary>Takes an input back.</summary>
        public void ClearInput(string address)
        {
            using (var call = new Call(this))
            using (var text = new Utf8Text(address ?? throw new ArgumentNullException(nameof(address))))
            {
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_clear_input(call.Run, text.Bytes, text.Length, &error), error);
            }
        }

        /// <summary>Feeds what has not run yet, chooses a token and appends it.</summary>
        public StepEvent Step(CancellationToken cancellationToken = default(CancellationToken))
        {
            using (var cancel = new CancelScope(cancellationToken))
            {
                return Step(cancel, cancellationToken);
            }
        }

        internal StepEvent Step(CancelScope cancel, CancellationToken cancellationToken)
        {
            using (var call = new Call(this))
            {
                var step = new oxp_event { struct_size = (uint)sizeof(oxp_event) };
                oxp_error* error;
                thrown.ByHost = null;
                int status = NativeMethods.oxp_run_step(call.Run, &step, cancel.Pointer, &error);
                RethrowHost(error);
                Calls.Check(status, error, cancellationToken);
                return new StepEvent(&step);
            }
        }

        /// <summary>
        /// Steps until the run is finished; the callback, which may be null, is told each step on
        /// this thread. If it returns false the call ends after that step and gives
        /// FinishReason.None, unless the run was finished by it. What it throws is thrown here.
        /// </summary>
        public FinishReason Generate(
            StepCallback onStep = null, CancellationToken cancellationToken = default(CancellationToken))
        {
            using (var cancel = new CancelScope(cancellationToken))
            using (var call = new Call(this))
            using (var callback = new Callback<StepCallback>(onStep))
            {
                uint reason;
                oxp_error* error;
                thrown.ByHost = null;
                int status = NativeMethods.oxp_run_generate(
                    call.Run, &reason, onStep == null ? null : EventThunk, (void*)callback.UserData, cancel.Pointer, &error);
                RethrowHost(error);
                try
                {
                    if (callback.HasStopped && status == NativeMethods.OXP_ERR_CANCELLED)
                    {
                        NativeMethods.oxp_error_free(error);
                        return StatsOf(call.Run).FinishReason;
                    }
                    Calls.Check(status, error, cancellationToken);
                }
                finally
                {
                    // What the callback has thrown comes before what the library made of that.
                    callback.Rethrow();
                }
                return (FinishReason)reason;
            }
        }

        /// <summary>
        /// The steps until the run is finished, each made when it is asked for, on the thread pool:
        /// <c>await foreach (StepEvent step in run.GenerateAsync(token))</c>. Steps that were made
        /// have happened, also if the loop is left. A requested token ends the step under way with
        /// OperationCanceledException; the run is then as before that step.
        /// </summary>
        public IAsyncEnumerable<StepEvent> GenerateAsync(
            CancellationToken cancellationToken = default(CancellationToken))
        {
            return new StepStream<StepEvent>(this, step => step, cancellationToken);
        }

        /// <summary>As GenerateAsync, the pieces of text, each at least a character long.</summary>
        public IAsyncEnumerable<string> GenerateTextAsync(
            CancellationToken cancellationToken = default(CancellationToken))
        {
            return new StepStream<string>(this, step => step.Text.Length > 0 ? step.Text : null, cancellationToken);
        }

        /// <summary>Feeds what has not run yet and stops before a token is chosen: see UseLogits and ForceToken.</summary>
        public void Forward(CancellationToken cancellationToken = default(CancellationToken))
        {
            using (var cancel = new CancelScope(cancellationToken))
            using (var call = new Call(this))
            {
                oxp_error* error;
                int status = NativeMethods.oxp_run_forward(call.Run, cancel.Pointer, &error);
                Calls.Check(status, error, cancellationToken);
            }
        }

        /// <summary>
        /// Makes a token the choice from the current logits: after Forward it is appended, after
        /// Step it takes the place of the token that the step chose.
        /// </summary>
        public StepEvent ForceToken(int token)
        {
            using (var call = new Call(this))
            {
                var step = new oxp_event { struct_size = (uint)sizeof(oxp_event) };
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_force_token(call.Run, token, &step, &error), error);
                return new StepEvent(&step);
            }
        }

        /// <summary>
        /// Sets the host's own processor of logits, for each choice of a token from now on; null takes
        /// it away. What it throws is thrown by the call that chooses.
        /// </summary>
        public void SetLogitsHook(LogitsHook hook)
        {
            using (var call = new Call(this))
            {
                oxp_error* error;
                int status;
                if (hook == null)
                {
                    status = NativeMethods.oxp_run_set_logits_hook(call.Run, null, null, null, &error);
                }
                else
                {
                    // The library frees it through FreeHookThunk, also when this call fails.
                    var callback = new Callback<Hosted<LogitsHook>>(new Hosted<LogitsHook>(hook, thrown));
                    status = NativeMethods.oxp_run_set_logits_hook(
                        call.Run, HookThunk, (void*)callback.UserData, FreeHookThunk, &error);
                }
                Calls.Check(status, error);
            }
        }

        /// <summary>
        /// Sets the host's own choice of tokens from now on; null takes it away. What it throws is
        /// thrown by the call that chooses.
        /// </summary>
        public void SetSampler(HostSampler sampler)
        {
            using (var call = new Call(this))
            {
                oxp_error* error;
                int status;
                if (sampler == null)
                {
                    status = NativeMethods.oxp_run_set_sampler(call.Run, null, null, null, &error);
                }
                else
                {
                    // The library frees it through FreeSamplerThunk, also when this call fails.
                    var callback = new Callback<Hosted<HostSampler>>(new Hosted<HostSampler>(sampler, thrown));
                    status = NativeMethods.oxp_run_set_sampler(
                        call.Run, SamplerThunk, (void*)callback.UserData, FreeSamplerThunk, &error);
                }
                Calls.Check(status, error);
            }
        }

        /// <summary>
        /// What the last token was chosen by, in a run with the option "logprobs": by the model's logits,
        /// or, processed, after all processors and samplers.
        /// </summary>
        public TokenLogprobs GetLogprobs(bool processed = false)
        {
            using (var call = new Call(this))
            {
                float chosen;
                oxp_token_logprob* top;
                ulong count;
                oxp_error* error;
                uint distribution = processed ? NativeMethods.OXP_LOGPROBS_PROCESSED : NativeMethods.OXP_LOGPROBS_RAW;
                int status = NativeMethods.oxp_run_get_logprobs(call.Run, distribution, &chosen, &top, &count, &error);
                Calls.Check(status, error);
                var all = new TokenLogprob[checked((int)count)];
                for (int at = 0; at < all.Length; at++)
                {
                    all[at] = new TokenLogprob(top[at].token, top[at].logprob);
                }
                return new TokenLogprobs(chosen, all);
            }
        }

        /// <summary>The answers that the last beam search found, the best first, which is the run's; with their scores.</summary>
        public IReadOnlyList<BeamSequence> GetSequences()
        {
            using (var call = new Call(this))
            {
                oxp_run* run = call.Run;
                ulong count;
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_get_sequence_count(run, &count, &error), error);
                var all = new BeamSequence[checked((int)count)];
                for (int at = 0; at < all.Length; at++)
                {
                    ulong index = (ulong)at;
                    double score = 0;
                    int[] tokens = Calls.Ids((int* buffer, ulong capacity, ulong* needed, oxp_error** failure) =>
                    {
                        double found;
                        int status = NativeMethods.oxp_run_sequence_copy(
                            run, index, buffer, capacity, needed, &found, failure);
                        score = found;
                        return status;
                    });
                    all[at] = new BeamSequence(tokens, score);
                }
                return all;
            }
        }

        /// <summary>
        /// Makes what is chosen from now on follow a grammar; None lets the model go its own way
        /// again. The text does not count for None and Json.
        /// </summary>
        public void SetConstraint(ConstraintKind kind, string text = null)
        {
            using (var call = new Call(this))
            using (var utf8 = new Utf8Text(text))
            {
                oxp_error* error;
                int status = NativeMethods.oxp_run_set_constraint(
                    call.Run, (uint)kind, utf8.Bytes, utf8.Length, &error);
                Calls.Check(status, error);
            }
        }

        /// <summary>Keeps the first tokens and forgets the others. 0 starts over; inputs stay set.</summary>
        public void Rewind(long length)
        {
            if (length < 0)
            {
                throw new ArgumentOutOfRangeException(nameof(length), length, "a length is not negative");
            }
            using (var call = new Call(this))
            {
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_rewind(call.Run, (ulong)length, &error), error);
            }
        }

        /// <summary>
        /// Text of the answer that no event has given yet (see oxp_run_pending_text_copy in oxpipe.h), for an
        /// answer that ends here by a deadline, a cancel or a callback.
        /// </summary>
        public string PendingText()
        {
            using (var call = new Call(this))
            {
                oxp_run* run = call.Run;
                return Calls.CopyText((byte* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                    NativeMethods.oxp_run_pending_text_copy(run, buffer, capacity, needed, error));
            }
        }

        /// <summary>Draws tokens from the numbers of another seed from now on.</summary>
        public void SetSeed(ulong seed)
        {
            using (var call = new Call(this))
            {
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_set_seed(call.Run, seed, &error), error);
            }
        }

        /// <summary>
        /// A run that goes on from where this one is, with its tokens, inputs, values and options. Both
        /// then go their own ways.
        /// </summary>
        public Run Fork()
        {
            using (var call = new Call(this))
            {
                oxp_run* made;
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_fork(call.Run, &made, &error), error);
                return new Run(Pipeline, made);
            }
        }

        /// <summary>Has a smaller model of the same vocabulary guess what this run chooses.</summary>
        public void SetDraft(Pipeline draft)
        {
            using (var call = new Call(this))
            using (var lease = new Lease(draft.Handle))
            {
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_set_draft(call.Run, (oxp_pipeline*)lease.Pointer, &error), error);
            }
        }

        /// <summary>All that the run is, as bytes, for Pipeline.LoadRun.</summary>
        public byte[] Save()
        {
            using (var call = new Call(this))
            {
                ulong needed;
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_save_copy(call.Run, null, 0, &needed, &error), error);
                var bytes = new byte[checked((int)needed)];
                fixed (byte* to = bytes)
                {
                    int status = NativeMethods.oxp_run_save_copy(call.Run, to, (ulong)bytes.Length, &needed, &error);
                    Calls.Check(status, error);
                }
                return bytes;
            }
        }

        /// <summary>Runs the final_only components; their outputs are then values of the run.</summary>
        public void Finish(CancellationToken cancellationToken = default(CancellationToken))
        {
            using (var cancel = new CancelScope(cancellationToken))
            using (var call = new Call(this))
            {
                oxp_error* error;
                int status = NativeMethods.oxp_run_finish(call.Run, cancel.Pointer, &error);
                Calls.Check(status, error, cancellationToken);
            }
        }

        /// <summary>Runs one on_demand component; its outputs are then values of the run.</summary>
        public void Execute(string component, CancellationToken cancellationToken = default(CancellationToken))
        {
            using (var cancel = new CancelScope(cancellationToken))
            using (var call = new Call(this))
            using (var text = new Utf8Text(component ?? throw new ArgumentNullException(nameof(component))))
            {
                oxp_error* error;
                int status = NativeMethods.oxp_run_execute(call.Run, text.Bytes, text.Length, cancel.Pointer, &error);
                Calls.Check(status, error, cancellationToken);
            }
        }

        /// <summary>
        /// Reads a value of the run, "component.port", where it lies. Calls on the run from inside
        /// of the reader fail with Status.Busy.
        /// </summary>
        public TResult UseTensor<TResult>(string address, TensorReader<TResult> reader)
        {
            using (var call = new Call(this))
            using (var text = new Utf8Text(address ?? throw new ArgumentNullException(nameof(address))))
            {
                oxp_tensor_in tensor;
                oxp_error* error;
                int status = NativeMethods.oxp_run_get_tensor(call.Run, text.Bytes, text.Length, &tensor, &error);
                Calls.Check(status, error);
                return reader(new TensorView(&tensor));
            }
        }

        /// <summary>A copy of the elements of a value of the run.</summary>
        public T[] ToArray<T>(string address) where T : struct
        {
            return UseTensor(address, tensor => tensor.As<T>().ToArray());
        }

        /// <summary>
        /// Copies a value of the run into the caller's memory. If it is too small, the call fails
        /// with Status.BufferTooSmall and the buffer says what it needs.
        /// </summary>
        public void CopyTensor(string address, OutputBuffer buffer)
        {
            using (var call = new Call(this))
            using (var text = new Utf8Text(address ?? throw new ArgumentNullException(nameof(address))))
            using (var pins = new Pins())
            {
                oxp_tensor_out tensor = pins.Output(buffer ?? throw new ArgumentNullException(nameof(buffer)));
                oxp_error* error;
                int status = NativeMethods.oxp_run_copy_tensor(call.Run, text.Bytes, text.Length, &tensor, &error);
                if (status == NativeMethods.OXP_OK || status == NativeMethods.OXP_ERR_BUFFER_TOO_SMALL)
                {
                    buffer.Learn((DataType)tensor.dtype, tensor.byte_len, Pins.Dims(tensor));
                }
                Calls.Check(status, error);
            }
        }

        /// <summary>
        /// Reads the logits of the last position that ran, one for each token of the vocabulary.
        /// Calls on the run from inside of the reader fail with Status.Busy.
        /// </summary>
        public TResult UseLogits<TResult>(LogitsReader<TResult> reader)
        {
            using (var call = new Call(this))
            {
                float* logits;
                ulong count;
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_get_logits(call.Run, &logits, &count, &error), error);
                return reader(new ReadOnlySpan<float>(logits, checked((int)count)));
            }
        }

        /// <summary>All token ids of the run, appended and chosen.</summary>
        public int[] GetTokens()
        {
            using (var call = new Call(this))
            {
                oxp_run* run = call.Run;
                return Calls.Ids((int* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                    NativeMethods.oxp_run_tokens_copy(run, buffer, capacity, needed, error));
            }
        }

        /// <summary>What the run has done so far, and whether it is finished.</summary>
        public RunStats Stats
        {
            get
            {
                using (var call = new Call(this))
                {
                    return StatsOf(call.Run);
                }
            }
        }

        private static RunStats StatsOf(oxp_run* run)
        {
            var stats = new oxp_run_stats { struct_size = (uint)sizeof(oxp_run_stats) };
            oxp_error* error;
            Calls.Check(NativeMethods.oxp_run_get_stats(run, &stats, &error), error);
            return new RunStats(stats);
        }

        /// <summary>
        /// Adds an image, a JPEG, PNG, WebP or BMP file. Images come in the order of their
        /// placeholders in the prompt, and before it.
        /// </summary>
        public void AddImage(ReadOnlySpan<byte> file, CancellationToken cancellationToken = default(CancellationToken))
        {
            using (var cancel = new CancelScope(cancellationToken))
            using (var call = new Call(this))
            fixed (byte* bytes = &MemoryMarshal.GetReference(file))
            {
                oxp_error* error;
                int status = NativeMethods.oxp_run_add_image(
                    call.Run, bytes, (ulong)file.Length, cancel.Pointer, &error);
                Calls.Check(status, error, cancellationToken);
            }
        }

        /// <summary>Adds a decoded image: a byte each for red, green and blue, row by row from the top.</summary>
        public void AddImageRgb(
            ReadOnlySpan<byte> pixels, int width, int height, CancellationToken cancellationToken = default(CancellationToken))
        {
            using (var cancel = new CancelScope(cancellationToken))
            using (var call = new Call(this))
            fixed (byte* bytes = &MemoryMarshal.GetReference(pixels))
            {
                oxp_error* error;
                int status = NativeMethods.oxp_run_add_image_rgb(
                    call.Run, bytes, (ulong)pixels.Length, checked((ulong)width), checked((ulong)height), cancel.Pointer,
                    &error);
                Calls.Check(status, error, cancellationToken);
            }
        }

        /// <summary>Takes all images back; their tokens stay.</summary>
        public void ClearImages()
        {
            using (var call = new Call(this))
            {
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_clear_images(call.Run, &error), error);
            }
        }

        /// <summary>Gives the run a sound, a WAV, FLAC or MP3 file.</summary>
        public void SetAudio(ReadOnlySpan<byte> file, CancellationToken cancellationToken = default(CancellationToken))
        {
            using (var cancel = new CancelScope(cancellationToken))
            using (var call = new Call(this))
            fixed (byte* bytes = &MemoryMarshal.GetReference(file))
            {
                oxp_error* error;
                int status = NativeMethods.oxp_run_set_audio(
                    call.Run, bytes, (ulong)file.Length, cancel.Pointer, &error);
                Calls.Check(status, error, cancellationToken);
            }
        }

        /// <summary>Gives the run decoded sound, about -1 to 1: the first sample of each channel, the second of each...</summary>
        public void SetAudioSamples(
            ReadOnlySpan<float> samples,
            int channels,
            int sampleRate,
            CancellationToken cancellationToken = default(CancellationToken))
        {
            using (var cancel = new CancelScope(cancellationToken))
            using (var call = new Call(this))
            fixed (float* first = &MemoryMarshal.GetReference(samples))
            {
                oxp_error* error;
                int status = NativeMethods.oxp_run_set_audio_samples(
                    call.Run, first, (ulong)samples.Length, checked((uint)channels), checked((uint)sampleRate), cancel.Pointer,
                    &error);
                Calls.Check(status, error, cancellationToken);
            }
        }

        /// <summary>Takes the sound back.</summary>
        public void ClearAudio()
        {
            using (var call = new Call(this))
            {
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_run_clear_audio(call.Run, &error), error);
            }
        }

        public void Dispose()
        {
            handle.Dispose();
        }

        private static int OnEvent(void* userData, oxp_event* step)
        {
            Callback<StepCallback> callback = Callback<StepCallback>.From((IntPtr)userData);
            try
            {
                if (callback.Function(new StepView(step)))
                {
                    return 0;
                }
                callback.HasStopped = true;
            }
            catch (Exception exception)
            {
                callback.Keep(exception);
            }
            return 1;
        }

        private static int OnLogits(void* userData, float* logits, ulong count, int* tokens, ulong tokenCount)
        {
            Hosted<LogitsHook> hosted = Callback<Hosted<LogitsHook>>.From((IntPtr)userData).Function;
            try
            {
                var before = new ReadOnlySpan<int>(tokens, checked((int)tokenCount));
                return hosted.Function(new Span<float>(logits, checked((int)count)), before) ? 0 : 1;
            }
            catch (Exception exception)
            {
                hosted.Thrown.ByHost = ExceptionDispatchInfo.Capture(exception);
                return 1;
            }
        }

        private static int OnSample(
            void* userData, float* logprobs, ulong count, int* tokens, ulong tokenCount, int* token)
        {
            Hosted<HostSampler> hosted = Callback<Hosted<HostSampler>>.From((IntPtr)userData).Function;
            try
            {
                var before = new ReadOnlySpan<int>(tokens, checked((int)tokenCount));
                int? chosen = hosted.Function(new ReadOnlySpan<float>(logprobs, checked((int)count)), before);
                *token = chosen ?? -1;
                return chosen.HasValue ? 0 : 1;
            }
            catch (Exception exception)
            {
                hosted.Thrown.ByHost = ExceptionDispatchInfo.Capture(exception);
                return 1;
            }
        }

        private static void OnFree<TFunction>(void* userData) where TFunction : class
        {
            Callback<TFunction>.From((IntPtr)userData).Dispose();
        }

        /// <summary>Throws what a host's hook or sampler has thrown, which comes before what was made of it.</summary>
        private void RethrowHost(oxp_error* error)
        {
            ExceptionDispatchInfo byHost = thrown.ByHost;
            if (byHost != null)
            {
                thrown.ByHost = null;
                NativeMethods.oxp_error_free(error);
                byHost.Throw();
            }
        }

        /// <summary>What the run's hook or sampler has thrown in a step of a batch; null for nothing.</summary>
        internal Exception TakeThrown()
        {
            Exception byHost = thrown.ByHost?.SourceException;
            thrown.ByHost = null;
            return byHost;
        }

        /// <summary>
        /// One call on the run. The library refuses calls that overlap too, but not those that end
        /// what a reader still looks at; this does.
        /// </summary>
        private readonly struct Call : IDisposable
        {
            private readonly Run run;
            private readonly Lease lease;

            internal Call(Run run)
            {
                if (Interlocked.CompareExchange(ref run.busy, 1, 0) != 0)
                {
                    throw new OxpipeException(
                        Status.Busy,
                        "another call is using this run: another thread, or the caller of this callback; a run takes one " +
                        "call at a time, so wait for that call or make another run");
                }
                this.run = run;
                try
                {
                    lease = new Lease(run.handle);
                }
                catch
                {
                    Volatile.Write(ref run.busy, 0);
                    throw;
                }
            }

            internal oxp_run* Run => (oxp_run*)lease.Pointer;

            public void Dispose()
            {
                Volatile.Write(ref run.busy, 0);
                lease.Dispose();
            }
        }
    }
}
