using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Threading;
using Oxpipe;

/// <summary>Opening packages, and what they say of themselves.</summary>
static class PipelineTests
{
    private static string package;
    private static string backend;

    internal static void Run(string folder, string backendName)
    {
        package = folder;
        backend = backendName;
        using (var options = new PipelineOptions { ["backend"] = backend })
        {
            Infos(options);
            Memory(options);
            Progress(options);
            Logging(options);
            Errors(options);
        }
    }

    private static void Infos(PipelineOptions options)
    {
        using (Pipeline pipeline = Pipeline.Open(package, options))
        {
            PipelineInfo info = pipeline.Info;
            Check.Equal(info.Format, "inference_metadata");
            Check.Equal(Path.GetFileName(info.MetadataFile), "inference_metadata.yaml");
            Check.Equal(info.Strategy, "autoregressive");
            Check.Equal(info.Decoder, "decoder");
            Check.Same(info.EosTokenIds, new[] { 7 });
            Check.Equal(info.ContextLength, 64);
            // One head of eight float32.
            Check.Equal(info.KvBytesPerToken, 32);
            Check.That(info.HasTokenizer && info.HasChatTemplate);

            IReadOnlyList<ComponentInfo> components = pipeline.Components;
            Check.Same(
                components.Select(component => component.Name),
                new[] { "vision_encoder", "embedding", "decoder", "summary", "probe" });
            Check.Same(
                components.Select(component => component.Phase),
                new[] { Phase.PromptOnly, Phase.EveryStep, Phase.EveryStep, Phase.FinalOnly, Phase.OnDemand });
            ComponentInfo decoder = components[2];
            Check.Equal(decoder.File, "decoder.onnx");
            Check.Equal(decoder.ComponentType, "decoder");
            Check.Equal(decoder.WhenPresent, "");
            Check.Equal(decoder.Backend, backend == "ort" ? Backend.Ort : Backend.Native);
            Check.That(decoder.Reason.Length > 0);
            Check.Same(pipeline.InputsOf(decoder).Select(port => port.Name), new[] { "inputs_embeds", "past" });
            Check.Same(pipeline.OutputsOf(decoder).Select(port => port.Name), new[] { "logits", "present" });
            Check.That(pipeline.Describe().StartsWith("{") && pipeline.Describe().Contains("vision_encoder"));
        }
        MemoryEstimate estimate = Pipeline.Estimate(package, options);
        Check.That(estimate.WeightBytes > 0 && estimate.Json.Contains("\"weight_bytes\""), estimate.Json);
    }

    private static void Memory(PipelineOptions options)
    {
        var files = Directory.GetFiles(package).ToDictionary(
            path => Path.GetFileName(path), path => new ReadOnlyMemory<byte>(File.ReadAllBytes(path)));
        using (Pipeline pipeline = Pipeline.OpenMemory(files, options))
        {
            Check.Equal(pipeline.Components.Count, 5);
        }
        files.Remove("decoder.onnx");
        Check.Fails(Status.InvalidPackage, "decoder.onnx", () => Pipeline.OpenMemory(files, options));
    }

    private static void Progress(PipelineOptions options)
    {
        var told = new List<string>();
        Func<LoadProgress, bool> listen = progress =>
        {
            GC.Collect();
            told.Add(progress.Done + "/" + progress.Total + " " + progress.Component);
            return true;
        };
        Pipeline.Open(package, options, null, listen).Dispose();
        Check.Equal(told.Count, 6);
        Check.That(told[0].StartsWith("0/5 ") && told[5] == "5/5 ", string.Join(", ", told));
        var files = Directory.GetFiles(package).ToDictionary(
            path => Path.GetFileName(path), path => new ReadOnlyMemory<byte>(File.ReadAllBytes(path)));
        told.Clear();
        Pipeline.OpenMemory(files, options, null, listen).Dispose();
        Check.Equal(told.Count, 6);

        Check.Fails(Status.Cancelled, "", () => Pipeline.Open(package, options, null, progress => progress.Done < 2));
        var thrown = new InvalidTimeZoneException("by the callback");
        var caught = Check.Throws<InvalidTimeZoneException>(
            () => Pipeline.Open(package, options, null, progress => throw thrown));
        Check.That(ReferenceEquals(caught, thrown));
        using (var source = new CancellationTokenSource())
        {
            Check.Throws<OperationCanceledException>(() => Pipeline.Open(
                package, options, null,
                progress =>
                {
                    source.Cancel();
                    return true;
                },
                source.Token));
        }
    }

    // The package's metadata has a field that no reader knows, which is one warning.
    private static void Logging(PipelineOptions options)
    {
        var lines = new List<string>();
        using (var runtimeOptions = new RuntimeOptions { ["threads"] = "2" })
        using (var runtime = new Runtime(runtimeOptions, (level, line) =>
        {
            GC.Collect();
            lock (lines)
            {
                lines.Add(level + " " + line);
            }
        }))
        {
            Pipeline pipeline = Pipeline.Open(package, options, runtime);
            // The pipeline keeps what it needs of the runtime.
            runtime.Dispose();
            pipeline.Dispose();
            Check.That(
                lines.Any(line => line.StartsWith("Warning ") && line.Contains("author_notes")), string.Join("\n", lines));
            Check.That(runtime.LogException == null);
        }

        var thrown = new InvalidTimeZoneException("by the logger");
        using (var runtime = new Runtime(null, (level, line) => throw thrown))
        {
            Pipeline.Open(package, options, runtime).Dispose();
            Check.That(ReferenceEquals(runtime.LogException, thrown));
        }
        using (var wrong = new RunOptions())
        {
            Check.Equal(wrong.GetType().Name, "RunOptions");
        }
        Check.Fails(Status.InvalidOption, "threads", () => new RuntimeOptions { ["threads"] = "0" });
    }

    private static void Errors(PipelineOptions options)
    {
        Check.Fails(Status.Io, "no-such-folder", () => Pipeline.Open(Path.Combine(package, "no-such-folder"), options));
        using (var wrong = new PipelineOptions { ["backend.nobody"] = "auto" })
        {
            OxpipeException failure = Check.Fails(
                Status.UnknownComponent, "nobody", () => Pipeline.Open(package, wrong));
            Check.Equal(failure.Component, "nobody");
        }
        Check.Fails(Status.UnknownOption, "bakend", () => options.Set("bakend", "native"));
    }
}
