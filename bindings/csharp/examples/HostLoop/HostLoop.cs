// The loop over tokens in the host's hands: logits out, token in. It says of each token by how far it
// is ahead of the next, and never takes one that is to be avoided.
//
//     HostLoop PACKAGE TEXT [--avoid TOKEN] [--max-tokens N] [--backend [COMPONENT=]native|ort|auto]...
using System;
using System.Globalization;
using Oxpipe;

static class HostLoop
{
    /// <summary>The largest logit that is not that of <c>avoid</c>.</summary>
    private static int BestBut(ReadOnlySpan<float> logits, int avoid)
    {
        int best = avoid == 0 ? 1 : 0;
        for (int token = best; token < logits.Length; token++)
        {
            if (token != avoid && logits[token] > logits[best])
            {
                best = token;
            }
        }
        return best;
    }

    private static int Main(string[] arguments)
    {
        const string usage =
            "HostLoop PACKAGE TEXT [--avoid TOKEN] [--max-tokens N] [--backend [COMPONENT=]native|ort|auto]...";
        return Example.Start(arguments, 2, usage, given =>
        {
            int avoid = int.Parse(given.Option("--avoid", "-1"));
            using var options = new RunOptions { ["max_tokens"] = given.Option("--max-tokens", "100") };
            using Pipeline pipeline = given.OpenPackage();
            using Run run = pipeline.CreateRun(options);
            run.AppendText(given.Words[1], addSpecial: true);
            StepEvent step;
            do
            {
                run.Forward();
                // The logits are read where they lie, and gone when the reader returns.
                int token = run.UseLogits(logits =>
                {
                    int best = BestBut(logits, avoid);
                    int second = BestBut(logits, best);
                    string ahead = (logits[best] - logits[second]).ToString("F1", CultureInfo.InvariantCulture);
                    Console.Write(best + " (" + ahead + " ahead of " + second + ")");
                    return best;
                });
                step = run.ForceToken(token);
                Console.WriteLine(" \"" + step.Text + "\"");
            }
            while (step.FinishReason == FinishReason.None);
            bool ended = step.FinishReason == FinishReason.EndOfText;
            Console.WriteLine(
                step.GeneratedTokens + " tokens, " + (ended ? "the text has ended" : "as many as were asked for"));
        });
    }
}
