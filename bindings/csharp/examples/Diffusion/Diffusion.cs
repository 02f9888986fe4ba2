// Makes a picture of words: takes the noise out of a picture of noise, step by step.
//
//     Diffusion PACKAGE PROMPT OUT.ppm [--set KEY=VALUE]... [--backend [COMPONENT=]native|ort|auto]...
//
// The keys are options of a run: num_steps, guidance_scale, seed, ... The prompt's tokens go to the
// first input of the component "text_encoder"; the picture is the first output of the component that
// runs at the end, float32 [1, 3, height, width] from -1 to 1.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using Oxpipe;

static class Diffusion
{
    /// <summary>Gives the text encoder the prompt's tokens, padded to as many as it takes.</summary>
    private static void SetPrompt(Run run, Pipeline pipeline, string prompt)
    {
        using Tokenizer tokenizer = pipeline.OpenTokenizer();
        ComponentInfo encoder = pipeline.Components.Single(component => component.Name == "text_encoder");
        PortInfo port = pipeline.InputsOf(encoder)[0];
        List<int> ids = tokenizer.Encode(prompt, addSpecial: true).ToList();
        int room = port.Dims.Length == 2 && port.Dims[1] > 0 ? (int)port.Dims[1] : ids.Count;
        if (ids.Count > room)
        {
            throw new ArgumentException("too long: " + prompt);
        }
        int pad = tokenizer.Special(TokenRole.Padding)?.Id ?? 0;
        ids.AddRange(Enumerable.Repeat(pad, room - ids.Count));
        string address = "text_encoder." + port.Name;
        if (port.DataType == DataType.Int64)
        {
            run.SetInput(address, ids.Select(id => (long)id).ToArray(), 1, room);
        }
        else
        {
            run.SetInput(address, ids.ToArray(), 1, room);
        }
    }

    /// <summary>A PPM file: a line of text, then red, green and blue of each pixel.</summary>
    private static void WritePicture(string path, ReadOnlySpan<float> values, long width, long height)
    {
        int pixels = values.Length / 3;
        var bytes = new byte[values.Length];
        for (int at = 0; at < bytes.Length; at++)
        {
            float level = (values[at % 3 * pixels + at / 3] + 1) * 127.5f + 0.5f;
            bytes[at] = (byte)Math.Max(0, Math.Min(255, level));
        }
        using FileStream file = File.Create(path);
        file.Write(Encoding.ASCII.GetBytes("P6\n" + width + " " + height + "\n255\n"));
        file.Write(bytes);
    }

    private static int Main(string[] arguments)
    {
        const string usage =
            "Diffusion PACKAGE PROMPT OUT.ppm [--set KEY=VALUE]... [--backend [COMPONENT=]native|ort|auto]...";
        return Example.Start(arguments, 3, usage, given =>
        {
            using var options = new RunOptions();
            foreach (KeyValuePair<string, string> option in given.Options)
            {
                string[] parts = option.Value.Split('=', 2);
                if (option.Key != "--set" || parts.Length != 2)
                {
                    throw new ArgumentException("not --set KEY=VALUE: " + option.Key + " " + option.Value);
                }
                options[parts[0]] = parts[1];
            }
            using Pipeline pipeline = given.OpenPackage();
            using Run run = pipeline.CreateRun(options);
            SetPrompt(run, pipeline, given.Words[1]);

            StepEvent step;
            do
            {
                step = run.Step();
                Example.ShowProgress("steps", step.LoopStep, step.LoopStepCount);
            }
            while (step.FinishReason == FinishReason.None);
            run.Finish();

            // "vae_decoder.sample": the first output of the component that runs at the end.
            ComponentInfo last = pipeline.Components.First(component => component.Phase == Phase.FinalOnly);
            string address = last.Name + "." + pipeline.OutputsOf(last)[0].Name;
            string size = run.UseTensor(address, picture =>
            {
                if (picture.Shape.Length != 4 || picture.Shape[0] != 1 || picture.Shape[1] != 3)
                {
                    throw new ArgumentException("not a picture of float32 [1, 3, height, width]");
                }
                WritePicture(given.Words[2], picture.As<float>(), picture.Shape[3], picture.Shape[2]);
                return picture.Shape[3] + " x " + picture.Shape[2];
            });
            Console.WriteLine(address + " after " + step.LoopStep + " steps: " + size);
        });
    }
}
