// The loop over tokens in the host's hands: logits come out, a token goes in. Here it draws from
// the softmax of the logits at a temperature; 0 takes the likeliest.
//
//     HostLoop PACKAGE TEXT [--backend native|ort|auto] [--max-tokens N] [--temperature T] [--seed N]
using System;
using System.Collections.Generic;
using System.Globalization;
using Oxpipe;

static class HostLoop
{
    private const string Usage =
        "usage: HostLoop PACKAGE TEXT [--backend native|ort|auto] [--max-tokens N] [--temperature T] [--seed N]";

    private static int Choose(ReadOnlySpan<float> logits, double temperature, Random random)
    {
        int best = 0;
        for (int token = 1; token < logits.Length; token++)
        {
            if (logits[token] > logits[best])
            {
                best = token;
            }
        }
        if (temperature == 0)
        {
            return best;
        }
        // exp of a difference to the largest does not overflow.
        double total = 0;
        foreach (float logit in logits)
        {
            total += Math.Exp((logit - logits[best]) / temperature);
        }
        double left = random.NextDouble() * total;
        for (int token = 0; token < logits.Length; token++)
        {
            left -= Math.Exp((logits[token] - logits[best]) / temperature);
            if (left < 0)
            {
                return token;
            }
        }
        return best;
    }

    private static int Main(string[] arguments)
    {
        var settings = new Dictionary<string, string>
        {
            ["--backend"] = "auto",
            ["--max-tokens"] = "100",
            ["--temperature"] = "0",
            ["--seed"] = "0",
        };
        for (int at = 2; at < arguments.Length; at += 2)
        {
            if (!settings.ContainsKey(arguments[at]) || at + 1 == arguments.Length)
            {
                Console.Error.WriteLine(Usage);
                return 1;
            }
            settings[arguments[at]] = arguments[at + 1];
        }
        if (arguments.Length < 2)
        {
            Console.Error.WriteLine(Usage);
            return 1;
        }
        double temperature = double.Parse(settings["--temperature"], CultureInfo.InvariantCulture);
        var random = new Random(int.Parse(settings["--seed"]));

        try
        {
            using var pipelineOptions = new PipelineOptions { ["backend"] = settings["--backend"] };
            using var runOptions = new RunOptions { ["max_tokens"] = settings["--max-tokens"] };
            using Pipeline pipeline = Pipeline.Open(arguments[0], pipelineOptions);
            using Run run = pipeline.CreateRun(runOptions);
            run.AppendText(arguments[1], addSpecial: true);
            StepEvent step;
            do
            {
                run.Forward();
                // The logits are read where they lie, and gone when the reader returns.
                int token = run.UseLogits(logits => Choose(logits, temperature, random));
                step = run.ForceToken(token);
                Console.Write(step.Text);
            }
            while (step.FinishReason == FinishReason.None);
            Console.WriteLine();
            Console.WriteLine(step.FinishReason + " after " + step.GeneratedTokens + " tokens");
            return 0;
        }
        catch (OxpipeException failure)
        {
            Console.Error.WriteLine(failure.Status + ": " + failure.Message);
            return 1;
        }
    }
}
