using System;

namespace Oxpipe
{
    /// <summary>What a step did.</summary>
    public sealed unsafe class StepEvent
    {
        internal StepEvent(oxp_event* step)
        {
            Token = step->token;
            Text = Calls.Text(step->text, step->text_len);
            LogProbability = step->logprob;
            FinishReason = (FinishReason)step->finish_reason;
            FinishIndex = step->finish_index;
            TextOffset = checked((long)step->text_offset);
            IsForced = (step->flags & NativeMethods.OXP_EVENT_FORCED) != 0;
            PromptTokens = checked((long)step->prompt_tokens);
            GeneratedTokens = checked((long)step->generated_tokens);
            PromptComponents = Times.FromNanoseconds(step->prompt_components_ns);
            StepComponents = Times.FromNanoseconds(step->step_components_ns);
            Decoder = Times.FromNanoseconds(step->decoder_ns);
            Total = Times.FromNanoseconds(step->total_ns);
            LoopStep = checked((int)step->loop_step);
            LoopStepCount = checked((int)step->loop_step_count);
            Codes = new ReadOnlySpan<long>(step->codes, checked((int)step->code_count)).ToArray();
        }

        /// <summary>The chosen token id; -1 if the package has no token loop.</summary>
        public int Token { get; }

        /// <summary>Text that has become certain with this token, often "".</summary>
        public string Text { get; }

        /// <summary>Natural logarithm of the token's probability under softmax of the logits.</summary>
        public float LogProbability { get; }

        /// <summary>FinishReason.None while there is more to come.</summary>
        public FinishReason FinishReason { get; }

        /// <summary>
        /// At the end of the text the token's place in the list of end tokens, at a stop string or stop
        /// tokens the place in the option's list; else -1.
        /// </summary>
        public int FinishIndex { get; }

        /// <summary>Where Text begins in the text of the turn, in bytes of UTF-8.</summary>
        public long TextOffset { get; }

        /// <summary>Whether a constraint left no choice, so that the model was not asked.</summary>
        public bool IsForced { get; }

        public long PromptTokens { get; }

        public long GeneratedTokens { get; }

        /// <summary>Time in components that run once for a prompt.</summary>
        public TimeSpan PromptComponents { get; }

        /// <summary>Time in components of every step other than the decoder or denoiser.</summary>
        public TimeSpan StepComponents { get; }

        /// <summary>Time in the decoder or denoiser.</summary>
        public TimeSpan Decoder { get; }

        /// <summary>Time of the whole step.</summary>
        public TimeSpan Total { get; }

        /// <summary>In an iterative package, the steps of its loop so far; else 0.</summary>
        public int LoopStep { get; }

        public int LoopStepCount { get; }

        /// <summary>The codes of this frame, in a package whose steps are frames of codes; else empty.</summary>
        public long[] Codes { get; }
    }

    /// <summary>Told each step; true goes on, false ends the call after the step.</summary>
    public delegate bool StepCallback(StepView step);

    /// <summary>A step as the library tells of it, without a copy. It cannot leave the callback that was given it.</summary>
    public readonly unsafe ref struct StepView
    {
        private readonly oxp_event* step;

        internal StepView(oxp_event* step)
        {
            this.step = step;
        }

        public int Token => step->token;

        public FinishReason FinishReason => (FinishReason)step->finish_reason;

        /// <summary>Text that has become certain with this token, as UTF-8.</summary>
        public ReadOnlySpan<byte> Utf8Text => new ReadOnlySpan<byte>(step->text, checked((int)step->text_len));

        public string Text => Calls.Text(step->text, step->text_len);

        /// <summary>How many latents an iterative package's step has made.</summary>
        public int LatentCount => checked((int)step->latent_count);

        /// <summary>What goes from step to step of an iterative package, as this step has made it.</summary>
        public TensorView Latent(int index)
        {
            if (index < 0 || index >= LatentCount)
            {
                throw new ArgumentOutOfRangeException(nameof(index), index, "there are " + LatentCount + " latents");
            }
            return new TensorView(&step->latents[index]);
        }

        /// <summary>All of it but the latents, to keep.</summary>
        public StepEvent ToEvent()
        {
            return new StepEvent(step);
        }
    }
}
