// Writes down what is said in a recording.
//
//     Transcribe PACKAGE SOUND [--prompt TEXT] [--backend [COMPONENT=]native|ort|auto]...
//
// SOUND is a WAV, FLAC or MP3 file. The prompt says what to do; the default is Whisper's for English.
using System;
using System.IO;
using Oxpipe;

static class Transcribe
{
    private static int Main(string[] arguments)
    {
        const string usage = "Transcribe PACKAGE SOUND [--prompt TEXT] [--backend [COMPONENT=]native|ort|auto]...";
        return Example.Start(arguments, 2, usage, given =>
        {
            using Pipeline pipeline = given.OpenPackage();
            using Run run = pipeline.CreateRun();
            run.SetAudio(File.ReadAllBytes(given.Words[1]));
            run.AppendText(given.Option("--prompt", "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"));
            run.Generate(step =>
            {
                Console.Write(step.Text);
                return true;
            });
            Console.WriteLine();
        });
    }
}
