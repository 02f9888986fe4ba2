using System;
using System.Collections.Generic;
using System.Linq;
using Oxpipe;

/// <summary>Images, sounds and the loop of an iterative package.</summary>
static class MediaTests
{
    internal static void Run(string media, string iterative, string backend)
    {
        using (var options = new PipelineOptions { ["backend"] = backend })
        {
            Media(media, options);
            Loop(iterative, options);
        }
    }

    // Each token is followed by itself plus the image's mean, a quarter of its bytes, plus eight
    // times the loudest sample, modulo 8. Token 6 stands for an image.
    private static void Media(string package, PipelineOptions options)
    {
        using (Pipeline pipeline = Pipeline.Open(package, options))
        using (Run run = pipeline.CreateRun())
        {
            byte[] pixels = Enumerable.Repeat((byte)12, 2 * 2 * 3).ToArray();
            run.AddImageRgb(pixels, 2, 2);
            run.AppendTokens(new[] { 6, 1 });
            Check.Equal(run.Step().Token, 4);
            run.ClearImages();
            run.Rewind(0);
            run.AppendTokens(new[] { 1 });
            run.SetAudioSamples(new[] { 0.25f, 0.25f, 0.25f, 0.25f }, 1, 8000);
            Check.Equal(run.Step().Token, 3);
            run.ClearAudio();
            run.Rewind(1);
            Check.Equal(run.Step().Token, 1);

            // A file of each: 2 by 2 grey pixels, and four samples of a quarter.
            run.Rewind(0);
            run.AddImage(Bitmap(2, 2, 12));
            run.SetAudio(Wave(8000, 8192, 8192, 8192, 8192));
            run.AppendTokens(new[] { 6, 1 });
            Check.Equal(run.Step().Token, 6);

            Check.Fails(Status.InvalidMedia, "", () => run.AddImage(new byte[] { 1, 2, 3 }));
            Check.Fails(Status.InvalidMedia, "", () => run.SetAudio(new byte[] { 1, 2, 3 }));
            Check.Fails(Status.InvalidMedia, "", () => run.AddImageRgb(pixels, 3, 2));
            Check.Throws<OverflowException>(() => run.AddImageRgb(pixels, -1, 2));
        }
    }

    /// <summary>A BMP file of 24 bits a pixel, all of one grey.</summary>
    private static byte[] Bitmap(int width, int height, byte grey)
    {
        int size = (3 * width + 3) / 4 * 4 * height;
        var bytes = new List<byte> { (byte)'B', (byte)'M' };
        foreach (int word in new[] { 54 + size, 0, 54, 40, width, height, 1 | 24 << 16, 0, size, 0, 0, 0, 0 })
        {
            bytes.AddRange(BitConverter.GetBytes(word));
        }
        bytes.AddRange(Enumerable.Repeat(grey, size));
        return bytes.ToArray();
    }

    /// <summary>A WAV file of 16-bit samples of one channel.</summary>
    private static byte[] Wave(int rate, params short[] samples)
    {
        var bytes = new List<byte>();
        Action<string> text = word => bytes.AddRange(word.Select(c => (byte)c));
        Action<int> four = number => bytes.AddRange(BitConverter.GetBytes(number));
        Action<int> two = number => bytes.AddRange(BitConverter.GetBytes((short)number));
        text("RIFF");
        four(36 + 2 * samples.Length);
        text("WAVEfmt ");
        four(16);
        two(1);
        two(1);
        four(rate);
        four(2 * rate);
        two(2);
        two(16);
        text("data");
        four(2 * samples.Length);
        foreach (short sample in samples)
        {
            two(sample);
        }
        return bytes.ToArray();
    }

    // sample = (sample + cond) / 2, three times.
    private static void Loop(string package, PipelineOptions options)
    {
        using (Pipeline pipeline = Pipeline.Open(package, options))
        using (Run run = pipeline.CreateRun())
        {
            run.SetInput("denoiser.cond", new float[] { 8, 16, 24, 32 }, 1, 4);
            run.SetInput("denoiser.sample", new float[4], 1, 4);
            run.SetInput("denoiser.total", new float[1]);
            var latents = new List<float>();
            FinishReason reason = run.Generate(step =>
            {
                GC.Collect();
                Check.Equal(step.LatentCount, 2);
                latents.Add(step.Latent(0).As<float>().ToArray()[0]);
                bool refused = false;
                try
                {
                    step.Latent(2);
                }
                catch (ArgumentOutOfRangeException)
                {
                    refused = true;
                }
                Check.That(refused && step.ToEvent().LoopStepCount == 3 && step.ToEvent().LoopStep == latents.Count);
                return true;
            });
            Check.Equal(reason, FinishReason.Completed);
            Check.Same(latents, new float[] { 4, 6, 7 });
            run.Finish();
            Check.Same(run.ToArray<float>("vae.image"), new float[] { 15, 29, 43, 57 });
        }
    }
}
