using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using Oxpipe;

/// <summary>
/// Runs of the package of tests/capi/models.rs: each token is followed by the next, 7 ends the
/// text, a large pixel at place k makes k + 1 the next token.
/// </summary>
static class RunTests
{
    private static Pipeline pipeline;

    internal static void Run(string package, string backend)
    {
        using (var options = new PipelineOptions { ["backend"] = backend })
        using (pipeline = Pipeline.Open(package, options))
        {
            Steps();
            Callbacks();
            HostDriven();
            Values();
            Errors();
            Overlap();
            HostsChoice();
            Beams();
            Forks();
            Batches();
        }
    }

    private static void Batches()
    {
        using (Batch batch = pipeline.CreateBatch())
        using (Run one = Start(pipeline))
        using (Run two = Start(pipeline))
        {
            batch.Add(one);
            batch.Add(two);
            Check.Equal(batch.Step().Count, 2);
            batch.Remove(one);
            Check.Equal(batch.Count, 1);
            Check.Equal(batch.Step()[0].Run, two);
            batch.Add(one);
            while (batch.Count > 0)
            {
                foreach (BatchStep step in batch.Step())
                {
                    Check.That(step.Error == null && step.Event.Token >= 5);
                }
            }
            Check.Same(one.GetTokens(), new[] { 3, 4, 5, 6, 7 });
            Check.Same(two.GetTokens(), new[] { 3, 4, 5, 6, 7 });
            Check.Fails(Status.InvalidState, "not in the batch", () => batch.Remove(one));
        }
        using (Batch batch = pipeline.CreateBatch())
        using (Run one = Start(pipeline))
        using (Run two = Start(pipeline))
        {
            batch.Add(one);
            batch.Add(two);
            one.SetLogitsHook((logits, tokens) => throw new InvalidOperationException("mine"));
            IReadOnlyList<BatchStep> steps = batch.Step();
            Check.Equal(steps.Count, 2);
            Check.Equal(steps[0].Error.Status, Status.Cancelled);
            Check.That(steps[0].Error.InnerException is InvalidOperationException);
            Check.That(steps[1].Error == null);
            // It comes out of no other call, and the run stays.
            Check.Equal(two.Step().Token, 5);
            Check.Equal(batch.Count, 2);
            one.SetLogitsHook(null);
            steps = batch.Step();
            Check.Equal(steps.Count, 2);
            Check.Equal(steps[0].Event.Token, 4);
        }
        CancelledBatches();
    }

    /// <summary>A token that is requested before a step, and one that a run requests in it.</summary>
    private static void CancelledBatches()
    {
        using (Batch batch = pipeline.CreateBatch())
        using (Run one = Start(pipeline))
        using (Run two = Start(pipeline))
        using (var source = new CancellationTokenSource())
        {
            batch.Add(one);
            batch.Add(two);
            Check.Throws<OperationCanceledException>(() => batch.Step(new CancellationToken(true)));
            Check.Same(one.GetTokens(), new[] { 3 });
            Check.Equal(batch.Count, 2);
            one.SetLogitsHook((logits, tokens) =>
            {
                source.Cancel();
                return true;
            });
            IReadOnlyList<BatchStep> steps = batch.Step(source.Token);
            Check.Equal(steps.Count, 2);
            Check.That(steps[0].Error == null);
            Check.Equal(steps[0].Event.Token, 4);
            Check.Equal(steps[1].Error.Status, Status.Cancelled);
            Check.Same(two.GetTokens(), new[] { 3 });
            // The run stays, and goes on as if nothing had been.
            Check.Equal(batch.Count, 2);
            one.SetLogitsHook(null);
            steps = batch.Step(CancellationToken.None);
            Check.Equal(steps[0].Event.Token, 5);
            Check.Equal(steps[1].Event.Token, 4);
        }
    }

    private static void Forks()
    {
        using (Run run = Start(pipeline))
        {
            run.Step();
            byte[] state;
            using (Run fork = run.Fork())
            {
                state = run.Save();
                run.Rewind(1);
                Check.Equal(fork.Step().Token, 5);
            }
            using (Run loaded = pipeline.LoadRun(state))
            {
                Check.Same(loaded.GetTokens(), new[] { 3, 4 });
                Check.Equal(loaded.Step().Token, 5);
                Check.Equal(loaded.Stats.ReusedTokens, 0);
            }
            Check.Equal(run.Step().Token, 4);
            state[40] ^= 1;
            Check.Fails(Status.InvalidArgument, "check differs", () => pipeline.LoadRun(state));
        }
    }

    /// <summary>A hook and a sampler that nothing but the run keeps.</summary>
    private static void HostsChoice()
    {
        using (Run run = Start(pipeline))
        {
            WeakReference kept = SetHook(run);
            GC.Collect();
            GC.WaitForPendingFinalizers();
            Check.That(kept.IsAlive);
            Check.Equal(run.Step().Token, 2);
            run.SetLogitsHook((logits, tokens) => false);
            Check.Fails(Status.Cancelled, "logits hook", () => run.Step());
            run.SetLogitsHook((logits, tokens) => throw new InvalidOperationException("mine"));
            Check.Throws<InvalidOperationException>(() => run.Step());
            Check.Throws<InvalidOperationException>(() => run.Generate());
            run.SetLogitsHook(null);
            Check.Equal(run.Step().Token, 3);
            run.SetSampler((logprobs, tokens) => logprobs.Length == 8 && tokens.ToArray()[0] == 3 ? 6 : (int?)null);
            Check.Equal(run.Step().Token, 6);
            run.SetSampler((logprobs, tokens) => null);
            Check.Fails(Status.Cancelled, "sampler", () => run.Step());
            Check.Fails(Status.InvalidState, "logprobs", () => run.GetLogprobs());
        }
        using (var options = new RunOptions { ["logprobs"] = "2", ["top_k"] = "1" })
        using (Run run = pipeline.CreateRun(options))
        {
            run.SetInput("vision_encoder.pixel_values", new float[8], 1, 8);
            run.AppendTokens(new[] { 3 });
            StepEvent step = run.Step();
            TokenLogprobs raw = run.GetLogprobs();
            Check.That(raw.Chosen == step.LogProbability && raw.Top.Count == 2 && raw.Top[0].Token == 4);
            TokenLogprobs processed = run.GetLogprobs(processed: true);
            Check.That(processed.Chosen == 0 && processed.Top.Count == 1);
        }
    }

    private static void Beams()
    {
        using (var options = new RunOptions { ["num_beams"] = "3", ["num_return_sequences"] = "2", ["max_tokens"] = "3" })
        using (Run run = pipeline.CreateRun(options))
        {
            run.SetInput("vision_encoder.pixel_values", new float[8], 1, 8);
            run.AppendTokens(new[] { 3 });
            Check.Equal(run.GetSequences().Count, 0);
            Check.Equal(run.Generate(), FinishReason.MaxTokens);
            IReadOnlyList<BeamSequence> sequences = run.GetSequences();
            Check.Equal(sequences.Count, 2);
            Check.Same(sequences[0].Tokens.ToArray(), new[] { 4, 5, 6 });
            Check.That(sequences[0].Score > sequences[1].Score);
        }
    }

    private static WeakReference SetHook(Run run)
    {
        var weights = new float[] { 5 };
        LogitsHook hook = (logits, tokens) =>
        {
            logits[2] = weights[0];
            return true;
        };
        run.SetLogitsHook(hook);
        return new WeakReference(weights);
    }

    /// <summary>A run with an image and the prompt [3].</summary>
    internal static Run Start(Pipeline of, string maxTokens = "10")
    {
        using (var options = new RunOptions { ["max_tokens"] = maxTokens })
        {
            Run run = of.CreateRun(options);
            run.SetInput("vision_encoder.pixel_values", new float[8], 1, 8);
            run.AppendTokens(new[] { 3 });
            return run;
        }
    }

    private static void Steps()
    {
        using (Run run = Start(pipeline))
        {
            StepEvent step = run.Step();
            Check.Equal(step.Token, 4);
            Check.Equal(step.Text, "four");
            Check.Equal(step.FinishReason, FinishReason.None);
            Check.Equal(step.FinishIndex, -1);
            Check.That(step.PromptTokens == 1 && step.GeneratedTokens == 1);
            // Softmax over seven zeros and a one.
            Check.That(Math.Abs(step.LogProbability - (1 - Math.Log(7 + Math.E))) < 1e-5);
            Check.That(step.Total >= step.Decoder && step.LoopStep == 0 && step.LoopStepCount == 0);
            Check.Equal(step.Codes.Length, 0);
            Check.Equal(run.Step().Token, 5);
            Check.Equal(run.Generate(), FinishReason.EndOfText);
            Check.Same(run.GetTokens(), new[] { 3, 4, 5, 6, 7 });
            RunStats stats = run.Stats;
            Check.Equal(stats.FinishReason, FinishReason.EndOfText);
            Check.That(stats.PromptTokens == 1 && stats.GeneratedTokens == 4 && stats.KvBytes >= 128);
            // One image, four steps of two components.
            Check.Equal(stats.ComponentRuns, 9);
            Check.That(stats.Prefill + stats.Decode > TimeSpan.Zero);
            Check.Fails(Status.InvalidState, "finished", () => run.Step());

            // An answer that follows a grammar: a space before each word of a text that goes on.
            run.Rewind(1);
            run.SetConstraint(ConstraintKind.Regex, " one( two)?");
            Check.Equal(run.Step().Token, 1);
            step = run.Step();
            Check.That(step.Token == 2 && step.TextOffset == 3 && !step.IsForced);
            Check.Equal(run.Generate(), FinishReason.EndOfText);
            Check.Fails(Status.Constraint, "regular expression", () => run.SetConstraint(ConstraintKind.Regex, "("));
            run.SetConstraint(ConstraintKind.None);
            run.Rewind(1);
            Check.Equal(run.Step().Token, 4);

            Check.Equal(run.PendingText(), "");
            run.SetSeed(7);
            run.Rewind(2);
            Check.Same(run.GetTokens(), new[] { 3, 4 });
            Check.Equal(run.Step().Token, 5);
            Check.Throws<ArgumentOutOfRangeException>(() => run.Rewind(-1));
            // The next turn, as text.
            run.Rewind(0);
            Check.Equal(run.AppendText("two three"), 2);
            Check.Equal(run.AppendUtf8(System.Text.Encoding.UTF8.GetBytes("four")), 1);
            Check.Equal(run.AppendText(""), 0);
            Check.Equal(run.Step().Text, "five");
            Check.That(ReferenceEquals(run.Pipeline, pipeline));
        }
    }

    private static void Callbacks()
    {
        using (Run run = Start(pipeline))
        {
            var text = new List<string>();
            var tokens = new List<int>();
            FinishReason reason = run.Generate(step =>
            {
                GC.Collect();
                text.Add(step.Text);
                tokens.Add(step.Token);
                Check.That(step.Text == System.Text.Encoding.UTF8.GetString(step.Utf8Text.ToArray()));
                Check.Equal(step.ToEvent().Token, step.Token);
                Check.Equal(step.LatentCount, 0);
                return true;
            });
            Check.Equal(reason, FinishReason.EndOfText);
            Check.Same(tokens, new[] { 4, 5, 6, 7 });
            Check.That(string.Concat(text).StartsWith("four five"), string.Concat(text));
        }
        using (Run run = Start(pipeline))
        {
            // Stops after the second step, which has happened.
            int count = 0;
            Check.Equal(run.Generate(step => ++count < 2), FinishReason.None);
            Check.Same(run.GetTokens(), new[] { 3, 4, 5 });
            Check.Equal(run.Generate(step => step.FinishReason == FinishReason.None), FinishReason.EndOfText);
        }
        using (Run run = Start(pipeline))
        {
            var thrown = new InvalidTimeZoneException("by the callback");
            var caught = Check.Throws<InvalidTimeZoneException>(() => run.Generate(step =>
            {
                GC.Collect();
                throw thrown;
            }));
            Check.That(ReferenceEquals(caught, thrown) && caught.StackTrace.Contains("Callbacks"), caught.StackTrace);
            Check.Same(run.GetTokens(), new[] { 3, 4 });
            // Calls from a callback of a call.
            run.Generate(step =>
            {
                Check.Fails(Status.Busy, "callback", () => run.GetTokens());
                return true;
            });
            Check.Same(run.GetTokens(), new[] { 3, 4, 5, 6, 7 });
        }
        using (Run run = Start(pipeline))
        using (var source = new CancellationTokenSource())
        {
            // A token that is requested in the middle.
            Check.Throws<OperationCanceledException>(() => run.Generate(
                step =>
                {
                    source.Cancel();
                    return true;
                },
                source.Token));
            Check.Same(run.GetTokens(), new[] { 3, 4 });
        }
    }

    private static int Argmax(ReadOnlySpan<float> span)
    {
        // Mono's own assemblies declare the span's indexer in a way that Roslyn does not take.
        float[] logits = span.ToArray();
        int best = 0;
        for (int token = 1; token < logits.Length; token++)
        {
            best = logits[token] > logits[best] ? token : best;
        }
        return best;
    }

    private static void HostDriven()
    {
        using (Run run = Start(pipeline))
        {
            StepEvent step;
            do
            {
                run.Forward();
                step = run.ForceToken(run.UseLogits(Argmax));
            }
            while (step.FinishReason == FinishReason.None);
            Check.Same(run.GetTokens(), new[] { 3, 4, 5, 6, 7 });
        }
        using (Run run = Start(pipeline))
        {
            run.Step();
            Check.Equal(run.ForceToken(0).Token, 0);
            Check.Equal(run.Step().Token, 1);
            Check.Equal(run.UseLogits(logits => logits.Length), 8);
        }
    }

    private static void Values()
    {
        using (Run run = Start(pipeline))
        {
            // Twice the pixel is larger than the one of the token.
            run.SetInput("vision_encoder.pixel_values", Tensor.Create(new float[] { 0, 5, 0, 0, 0, 0, 0, 0 }, 1, 8));
            Check.Equal(run.Step().Token, 2);
            Check.Same(run.ToArray<float>("vision_encoder.features"), new float[] { 0, 10, 0, 0, 0, 0, 0, 0 });
            Check.Equal(run.UseTensor("decoder.logits", logits => logits.ElementCount), 8);
            run.Finish();
            // Twice the ids that were chosen.
            Check.Same(run.ToArray<float>("summary.doubled"), new float[] { 4 });

            run.SetInput("probe.value", new float[] { 1.5f, 2 }, 2);
            run.Execute("probe");
            var room = new float[2];
            var buffer = OutputBuffer.Create(room);
            run.CopyTensor("probe.doubled", buffer);
            Check.Same(room, new float[] { 3, 4 });
            Check.Same(buffer.Shape.ToArray(), new long[] { 2 });
            var small = OutputBuffer.Create(new float[1]);
            Check.Fails(Status.BufferTooSmall, "8", () => run.CopyTensor("probe.doubled", small));
            Check.Equal(small.ByteLength, 8);
            // A view lasts as long as its reader: what would end it is refused.
            run.UseTensor("probe.doubled", view =>
            {
                Check.Fails(Status.Busy, "one", () => run.Execute("probe"));
                return view.Bytes.Length;
            });
            run.ClearInput("probe.value");
            Check.Fails(Status.MissingInput, "value", () => run.Execute("probe"));
        }
    }

    private static void Errors()
    {
        using (Run run = pipeline.CreateRun())
        {
            run.AppendTokens(new[] { 3 });
            OxpipeException failure = Check.Fails(Status.MissingInput, "pixel_values", () => run.Step());
            Check.Equal(failure.Component, "vision_encoder");
            Check.Equal(failure.Port, "pixel_values");
            Check.Fails(Status.InvalidArgument, "99", () => run.AppendTokens(new[] { 99 }));
            Check.Same(run.GetTokens(), new[] { 3 });
            failure = Check.Fails(
                Status.UnknownPort, "pixels", () => run.SetInput("vision_encoder.pixels", new float[8], 1, 8));
            Check.Equal(failure.Component, "vision_encoder");
            Check.Equal(failure.Port, "pixels");
            Check.Fails(Status.UnknownComponent, "nobody", () => run.ToArray<float>("nobody.x"));
            failure = Check.Fails(
                Status.DataTypeMismatch, "int32", () => run.SetInput("vision_encoder.pixel_values", new int[8], 1, 8));
            Check.Equal(failure.Component + "." + failure.Port, "vision_encoder.pixel_values");
            Check.Fails(
                Status.ShapeMismatch, "[1, 8]", () => run.SetInput("vision_encoder.pixel_values", new float[4], 1, 4));
            Check.Fails(Status.InvalidState, "final", () => run.Execute("summary"));
            run.SetInput("vision_encoder.pixel_values", new float[8], 1, 8);
            Check.Equal(run.Step().Token, 4);
            run.Dispose();
            Check.Throws<ObjectDisposedException>(() => run.Step());
            // Disposed of, not busy.
            Check.Throws<ObjectDisposedException>(() => run.Step());
        }
        Check.Fails(Status.InvalidOption, "max_tokens", () => new RunOptions { ["max_tokens"] = "none" });
    }

    /// <summary>Two threads on one run: one call at a time gets through, the others are refused.</summary>
    private static void Overlap()
    {
        using (Run run = Start(pipeline))
        using (var inside = new ManualResetEvent(false))
        using (var over = new ManualResetEvent(false))
        {
            var thread = new Thread(() => run.Generate(step =>
            {
                inside.Set();
                over.WaitOne();
                return true;
            }));
            thread.Start();
            inside.WaitOne();
            Check.Fails(Status.Busy, "another call", () => run.Step());
            // Disposed of while it is in use: it ends when the call does.
            run.Dispose();
            over.Set();
            thread.Join();
            Check.Throws<ObjectDisposedException>(() => run.GetTokens());
        }
    }
}
