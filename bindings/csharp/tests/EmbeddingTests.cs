using System;
using System.IO;
using Oxpipe;

/// <summary>Vectors and classes of texts.</summary>
static class EmbeddingTests
{
    internal static void Run(string packages, string backend)
    {
        string[] texts = { "three five", "one" };
        using (var options = new PipelineOptions { ["backend"] = backend })
        using (Pipeline embedder = Pipeline.Open(Path.Combine(packages, "embedder"), options))
        using (Pipeline classifier = Pipeline.Open(Path.Combine(packages, "classifier"), options))
        {
            using (Outputs outputs = embedder.Embed(texts))
            {
                float[] vectors = outputs.ToArray<float>("embeddings");
                Check.Same(outputs.ShapeOf("embeddings"), new long[] { 2, 2 });
                Check.That(Math.Abs(vectors[0] - 4 / Math.Sqrt(17)) < 1e-6);
                Check.That(Math.Abs(vectors[2] - 1 / Math.Sqrt(2)) < 1e-6);
            }
            using (Outputs outputs = classifier.Classify(texts))
            {
                float[] scores = outputs.ToArray<float>("scores");
                Check.That(Math.Abs(scores[2] - 1 / (1 + Math.Exp(-1))) < 1e-6);
            }
            Check.Equal(classifier.Labels.Count, 2);
            Check.Equal(classifier.Labels[1], "NEGATIVE");
            Check.Equal(embedder.Labels.Count, 0);
            Check.Fails(Status.InvalidArgument, "are classes", () => embedder.Classify(texts));
        }
    }
}
