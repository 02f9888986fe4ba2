// How alike texts are: the cosine between the first and each of the others.
//
//     Embeddings PACKAGE TEXT TEXT... [--backend native|ort|auto]
//
// The package is one encoder (strategy single_pass): input_ids and, if it has them, attention_mask and
// token_type_ids go in, int64 [1, tokens]; its first output, float32 [1, tokens, size], is one vector
// for each token. Their mean is the text's.
using System;
using System.Globalization;
using System.Linq;
using Oxpipe;

static class Embeddings
{
    /// <summary>The text's vector, of length 1.</summary>
    private static double[] Embed(Pipeline pipeline, Tokenizer tokenizer, string text)
    {
        long[] ids = tokenizer.Encode(text, addSpecial: true).Select(id => (long)id).ToArray();
        ComponentInfo encoder = pipeline.Components[0];
        using Run run = pipeline.CreateRun();
        foreach (PortInfo port in pipeline.InputsOf(encoder))
        {
            long[] row = port.Name == "input_ids"
                ? ids
                : Enumerable.Repeat(port.Name == "attention_mask" ? 1L : 0L, ids.Length).ToArray();
            run.SetInput(encoder.Name + "." + port.Name, row, 1, row.Length);
        }
        run.Step();

        string address = encoder.Name + "." + pipeline.OutputsOf(encoder)[0].Name;
        double[] mean = run.UseTensor(address, output =>
        {
            if (output.Shape.Length != 3)
            {
                throw new ArgumentException("not float32 [1, tokens, size]");
            }
            ReadOnlySpan<float> vectors = output.As<float>();
            var sum = new double[output.Shape[2]];
            for (int at = 0; at < vectors.Length; at++)
            {
                sum[at % sum.Length] += vectors[at];
            }
            return sum;
        });
        double length = Math.Sqrt(mean.Sum(value => value * value));
        return mean.Select(value => value / length).ToArray();
    }

    private static int Main(string[] arguments)
    {
        const string usage = "Embeddings PACKAGE TEXT TEXT... [--backend native|ort|auto]";
        return Example.Start(arguments, 3, usage, given =>
        {
            using Pipeline pipeline = given.OpenPackage();
            using Tokenizer tokenizer = pipeline.OpenTokenizer();
            double[] first = Embed(pipeline, tokenizer, given.Words[1]);
            foreach (string text in given.Words.Skip(2))
            {
                double cosine = first.Zip(Embed(pipeline, tokenizer, text), (left, right) => left * right).Sum();
                Console.WriteLine(cosine.ToString("F4", CultureInfo.InvariantCulture) + " " + text);
            }
        });
    }
}
