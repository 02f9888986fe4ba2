using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using Oxpipe;

/// <summary>Objects that nobody disposes of, in any order, from many threads.</summary>
static class LifetimeTests
{
    private const int Threads = 16;

    internal static void Run(string models, string package, string backend, int runs)
    {
        ParentsFirst(models, package, backend);
        using (var options = new PipelineOptions { ["backend"] = backend })
        {
            Pipeline pipeline = Pipeline.Open(package, options);
            Dropped(pipeline, runs);
        }
    }

    private static void Collect()
    {
        GC.Collect();
        GC.WaitForPendingFinalizers();
    }

    /// <summary>A run without anything else of its kind in reach.</summary>
    [MethodImpl(MethodImplOptions.NoInlining)]
    private static Run Orphan(string package, string backend)
    {
        using (var options = new PipelineOptions { ["backend"] = backend })
        {
            var runtime = new Runtime(null, (level, line) => GC.KeepAlive(line));
            Pipeline pipeline = Pipeline.Open(package, options, runtime);
            Run run = RunTests.Start(pipeline);
            pipeline.Dispose();
            runtime.Dispose();
            return run;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static Outputs OrphanOutputs(string models, string backend)
    {
        using (var options = new SessionOptions { ["backend"] = backend })
        {
            Session session = Session.Open(Path.Combine(models, "affine.onnx"), options);
            return session.Run(
                new Dictionary<string, Tensor> { ["x"] = Tensor.Create(new float[] { 1, 2, 3, 4 }, 1, 4) });
        }
    }

    private static void ParentsFirst(string models, string package, string backend)
    {
        Run run = Orphan(package, backend);
        Outputs outputs = OrphanOutputs(models, backend);
        Collect();
        Check.Equal(run.Step().Token, 4);
        Check.Same(outputs.ToArray<float>("y"), new float[] { 3, 5, 7, 9 });
        run.Dispose();
        run.Dispose();
    }

    /// <summary>
    /// Makes many runs, uses and drops them; a collection is forced in every callback. What grows
    /// at first (pools, compiled code, the C library's heaps, which the finalizer's thread gives back
    /// to in an order of its own) has grown after some rounds. The first one keeps all its runs to its
    /// end: more than a round's cannot wait for the finalizer later, however busy the machine is.
    /// </summary>
    private static void Dropped(Pipeline pipeline, int runs)
    {
        const int rounds = 10;
        const int first = 4;
        Use(pipeline, runs / rounds, new ConcurrentBag<Run>());
        for (int round = 1; round < first; round++)
        {
            Use(pipeline, runs / rounds, null);
        }
        Collect();
        long before = ResidentBytes();
        for (int round = first; round < rounds; round++)
        {
            Use(pipeline, runs / rounds, null);
        }
        long after = ResidentBytes();
        // A run of this package keeps about 22 KiB: all of 2400 would be 50 MiB. What the runtimes'
        // own heaps and threads take goes up and down by 10 on a busy machine, without a trend.
        const long most = 16 << 20;
        Check.That(after - before < most, "resident: " + before + " bytes before, " + after + " after");
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    private static void Use(Pipeline pipeline, int runs, ConcurrentBag<Run> kept)
    {
        int left = runs;
        int wrong = 0;
        var threads = Enumerable.Range(0, Threads).Select(_ => new Thread(() =>
        {
            while (Interlocked.Decrement(ref left) >= 0)
            {
                Run run = RunTests.Start(pipeline, "2");
                kept?.Add(run);
                int last = 0;
                run.Generate(step =>
                {
                    GC.Collect();
                    last = step.Token;
                    return true;
                });
                if (last != 5)
                {
                    Interlocked.Increment(ref wrong);
                }
            }
        })).ToArray();
        foreach (Thread thread in threads)
        {
            thread.Start();
        }
        foreach (Thread thread in threads)
        {
            thread.Join();
        }
        Collect();
        Check.Equal(wrong, 0);
    }

    private static long ResidentBytes()
    {
        string line = File.ReadLines("/proc/self/status").First(text => text.StartsWith("VmRSS:"));
        return long.Parse(line.Split(new[] { ' ', '\t' }, StringSplitOptions.RemoveEmptyEntries)[1]) * 1024;
    }
}
