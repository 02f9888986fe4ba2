// One component on ONNX Runtime, another on the native runtime: says which runs where and why, and goes
// on with a text.
//
//     Backends PACKAGE TEXT [--backend COMPONENT=native|ort]... [--backend native|ort|auto]
using System;
using Oxpipe;

static class Backends
{
    private static int Main(string[] arguments)
    {
        const string usage = "Backends PACKAGE TEXT [--backend COMPONENT=native|ort]... [--backend native|ort|auto]";
        return Example.Start(arguments, 2, usage, given =>
        {
            using Pipeline pipeline = given.OpenPackage();
            foreach (ComponentInfo component in pipeline.Components)
            {
                string backend = component.Backend == Backend.Ort ? "ONNX Runtime" : "native";
                Console.WriteLine(component.Name + " on " + backend + ": " + component.Reason);
            }
            using Run run = pipeline.CreateRun();
            run.AppendText(given.Words[1], addSpecial: true);
            run.Generate(step =>
            {
                Console.Write(step.Text);
                return true;
            });
            Console.WriteLine();
        });
    }
}
