// Chooses tokens by a rule of its own: of the K likeliest, one at random. The library gives the logits
// and takes the token.
//
//     Sampler PACKAGE TEXT [--temperature T] [--top-k K] [--seed N] [--max-tokens N]
//             [--backend [COMPONENT=]native|ort|auto]...
using System;
using System.Globalization;
using System.Linq;
using Oxpipe;

sealed class Sampler
{
    private readonly double temperature;
    private readonly int most;
    private ulong random;

    private Sampler(double temperature, int most, ulong seed)
    {
        this.temperature = temperature;
        this.most = most;
        random = seed;
    }

    private int Choose(ReadOnlySpan<float> logits)
    {
        // The likeliest tokens, likeliest first; of equals the first.
        float[] all = logits.ToArray();
        int[] tokens = Enumerable.Range(0, all.Length).OrderByDescending(token => all[token]).Take(most).ToArray();
        double[] weights = tokens.Select(token => Math.Exp((all[token] - all[tokens[0]]) / temperature)).ToArray();
        double left = Draw() * weights.Sum();
        for (int at = 0; at < tokens.Length; at++)
        {
            left -= weights[at];
            if (left < 0)
            {
                return tokens[at];
            }
        }
        return tokens[0];
    }

    /// <summary>
    /// The next of a row of random numbers from 0 to 1, without 1 (Steele, Lea and Flood's SplitMix64).
    /// </summary>
    private double Draw()
    {
        ulong z = random = unchecked(random + 0x9e3779b97f4a7c15);
        z = unchecked((z ^ (z >> 30)) * 0xbf58476d1ce4e5b9);
        z = unchecked((z ^ (z >> 27)) * 0x94d049bb133111eb);
        return ((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
    }

    private static int Main(string[] arguments)
    {
        const string usage = "Sampler PACKAGE TEXT [--temperature T] [--top-k K] [--seed N] [--max-tokens N] " +
            "[--backend [COMPONENT=]native|ort|auto]...";
        return Example.Start(arguments, 2, usage, given =>
        {
            var sampler = new Sampler(
                double.Parse(given.Option("--temperature", "1"), CultureInfo.InvariantCulture),
                int.Parse(given.Option("--top-k", "40")),
                ulong.Parse(given.Option("--seed", "0")));
            using var options = new RunOptions { ["max_tokens"] = given.Option("--max-tokens", "100") };
            using Pipeline pipeline = given.OpenPackage();
            using Run run = pipeline.CreateRun(options);
            run.AppendText(given.Words[1], addSpecial: true);
            StepEvent step;
            do
            {
                run.Forward();
                // The logits are read where they lie, and gone when the reader returns.
                step = run.ForceToken(run.UseLogits(sampler.Choose));
                Console.Write(step.Text);
            }
            while (step.FinishReason == FinishReason.None);
            Console.WriteLine();
        });
    }
}
