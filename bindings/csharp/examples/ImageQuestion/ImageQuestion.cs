// Asks about an image, and prints the answer while it is made.
//
//     ImageQuestion PACKAGE IMAGE "What is this?" [--backend [COMPONENT=]native|ort|auto]...
//
// IMAGE is a JPEG, PNG, WebP or BMP file. The package says how it is preprocessed.
using System;
using System.IO;
using System.Text.Json;
using Oxpipe;

static class ImageQuestion
{
    private static int Main(string[] arguments)
    {
        const string usage = "ImageQuestion PACKAGE IMAGE QUESTION [--backend [COMPONENT=]native|ort|auto]...";
        return Example.Start(arguments, 3, usage, given =>
        {
            using Pipeline pipeline = given.OpenPackage();
            using ChatTemplate template = pipeline.OpenChatTemplate();
            using Run run = pipeline.CreateRun();
            // The image comes before the text: a placeholder in it becomes the image's tokens.
            run.AddImage(File.ReadAllBytes(given.Words[1]));
            // The template writes the placeholder where the message has the image.
            string question = JsonSerializer.Serialize(given.Words[2]);
            run.AppendText(template.Render(
                "[{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, {\"type\": \"text\", \"text\": " + question + "}]}]"));
            run.Generate(step =>
            {
                Console.Write(step.Text);
                return true;
            });
            Console.WriteLine();
        });
    }
}
