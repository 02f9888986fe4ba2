using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Oxpipe;

/// <summary>Runs as asynchronous sequences, and how they are cancelled.</summary>
static class StreamTests
{
    internal static async Task Run(string package, string slow, string backend)
    {
        using (var options = new PipelineOptions { ["backend"] = backend })
        using (Pipeline pipeline = Pipeline.Open(package, options))
        using (Pipeline slowPipeline = Pipeline.Open(slow, options))
        {
            await Steps(pipeline);
            await LeftEarly(pipeline);
            await Cancelled(pipeline);
            await CancelledInsideAStep(slowPipeline);
        }
    }

    private static async Task Steps(Pipeline pipeline)
    {
        using (Run run = RunTests.Start(pipeline))
        {
            var tokens = new List<int>();
            FinishReason reason = FinishReason.None;
            await foreach (StepEvent step in run.GenerateAsync())
            {
                GC.Collect();
                // Between steps the run is free for other calls.
                Check.Equal(run.GetTokens().Last(), step.Token);
                tokens.Add(step.Token);
                reason = step.FinishReason;
            }
            Check.Same(tokens, new[] { 4, 5, 6, 7 });
            Check.Equal(reason, FinishReason.EndOfText);
        }
        string whole;
        using (Tokenizer tokenizer = pipeline.OpenTokenizer())
        {
            whole = tokenizer.Decode(new[] { 4, 5, 6, 7 });
        }
        using (Run run = RunTests.Start(pipeline))
        {
            var pieces = new List<string>();
            await foreach (string piece in run.GenerateTextAsync())
            {
                pieces.Add(piece);
            }
            Check.Equal(string.Concat(pieces), whole);
            Check.That(pieces.All(piece => piece.Length > 0));
        }
        using (Run run = RunTests.Start(pipeline))
        {
            run.Rewind(0);
            await Throws<OxpipeException>(async () => await run.GenerateAsync().GetAsyncEnumerator().MoveNextAsync());
        }
    }

    /// <summary>Each step is made when it is asked for.</summary>
    private static async Task LeftEarly(Pipeline pipeline)
    {
        using (Run run = RunTests.Start(pipeline))
        {
            await foreach (StepEvent step in run.GenerateAsync())
            {
                if (step.Token == 5)
                {
                    break;
                }
            }
            Check.Same(run.GetTokens(), new[] { 3, 4, 5 });
            // And goes on where it was left.
            await foreach (StepEvent step in run.GenerateAsync())
            {
                Check.That(step.Token > 5);
            }
            Check.Same(run.GetTokens(), new[] { 3, 4, 5, 6, 7 });
        }
    }

    private static async Task Cancelled(Pipeline pipeline)
    {
        foreach (bool byArgument in new[] { true, false })
        {
            using (Run run = RunTests.Start(pipeline))
            using (var source = new CancellationTokenSource())
            using (var other = new CancellationTokenSource())
            {
                CancellationToken argument = byArgument ? source.Token : other.Token;
                CancellationToken extension = byArgument ? other.Token : source.Token;
                await Throws<OperationCanceledException>(async () =>
                {
                    await foreach (StepEvent step in run.GenerateAsync(argument).WithCancellation(extension))
                    {
                        source.Cancel();
                    }
                });
                Check.Same(run.GetTokens(), new[] { 3, 4 });
                Check.Equal(run.Generate(), FinishReason.EndOfText);
            }
        }
        using (Run run = RunTests.Start(pipeline))
        {
            var requested = new CancellationToken(true);
            await Throws<OperationCanceledException>(
                async () => await run.GenerateAsync(requested).GetAsyncEnumerator().MoveNextAsync());
            Check.Same(run.GetTokens(), new[] { 3 });
        }
    }

    // The component squares a matrix 400 times: about a minute for this size if nothing stops it.
    private static async Task CancelledInsideAStep(Pipeline pipeline)
    {
        const int size = 1024;
        using (Run run = pipeline.CreateRun())
        using (var source = new CancellationTokenSource())
        {
            run.SetInput("slow.x", new float[size * size], size, size);
            source.CancelAfter(100);
            await Throws<OperationCanceledException>(async () =>
            {
                await foreach (StepEvent step in run.GenerateAsync(source.Token))
                {
                    Check.That(false, "a step came through");
                }
            });
            Check.Throws<OperationCanceledException>(() => run.Step(source.Token));
            run.SetInput("slow.x", new float[] { 1 }, 1, 1);
            Check.Equal(run.Step().FinishReason, FinishReason.Completed);
            Check.Same(run.ToArray<float>("slow.y"), new float[] { 1 });
        }
    }

    private static async Task Throws<TException>(Func<Task> call) where TException : Exception
    {
        try
        {
            await call();
            Check.That(false, "threw nothing");
        }
        catch (TException)
        {
        }
    }
}
