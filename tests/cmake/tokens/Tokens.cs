// Prints the tokens that a package makes of token 2.
using System;
using Oxpipe;

static class Tokens
{
    private static int Main(string[] arguments)
    {
        try
        {
            using (Pipeline pipeline = Pipeline.Open(arguments[0]))
            using (Run run = pipeline.CreateRun())
            {
                run.AppendTokens(new[] { 2 });
                StepEvent step;
                do
                {
                    step = run.Step();
                    Console.Write(step.Token + "\n");
                }
                while (step.FinishReason == FinishReason.None);
            }
            return 0;
        }
        catch (OxpipeException failure)
        {
            Console.Error.WriteLine(failure.Message);
            return 1;
        }
    }
}
