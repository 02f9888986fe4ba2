using System.Collections.Generic;

namespace Oxpipe
{
    /// <summary>A token id, and the natural logarithm of its probability.</summary>
    public readonly struct TokenLogprob
    {
        internal TokenLogprob(int token, float logprob)
        {
            Token = token;
            Logprob = logprob;
        }

        public int Token { get; }

        public float Logprob { get; }
    }

    /// <summary>An answer that a beam search found.</summary>
    public sealed class BeamSequence
    {
        internal BeamSequence(IReadOnlyList<int> tokens, double score)
        {
            Tokens = tokens;
            Score = score;
        }

        public IReadOnlyList<int> Tokens { get; }

        /// <summary>The sum of the logarithms of the probabilities, divided by length ^ length_penalty.</summary>
        public double Score { get; }
    }

    /// <summary>What a token was chosen by.</summary>
    public sealed class TokenLogprobs
    {
        internal TokenLogprobs(float chosen, IReadOnlyList<TokenLogprob> top)
        {
            Chosen = chosen;
            Top = top;
        }

        /// <summary>The natural logarithm of the chosen token's probability.</summary>
        public float Chosen { get; }

        /// <summary>The most probable tokens, descending, among equals the lowest id first.</summary>
        public IReadOnlyList<TokenLogprob> Top { get; }
    }
}
