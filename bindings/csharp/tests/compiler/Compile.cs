// The C# compiler as a command: csc's arguments, run by Roslyn's own assemblies. It stands in
// for the compiler of an SDK where only packages of assemblies can be had; see
// scripts/fetch-dotnet.sh.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Microsoft.CodeAnalysis;
using Microsoft.CodeAnalysis.CSharp;
using Microsoft.CodeAnalysis.Emit;
using Microsoft.CodeAnalysis.Text;

static class Compile
{
    static int Main(string[] words)
    {
        string here = Directory.GetCurrentDirectory();
        CSharpCommandLineArguments arguments = CSharpCommandLineParser.Default.Parse(words, here, null, null);
        if (!Report(arguments.Errors))
        {
            return 1;
        }
        IEnumerable<SyntaxTree> sources = arguments.SourceFiles.Select(file => Parse(file.Path, arguments.ParseOptions));
        IEnumerable<MetadataReference> references = arguments.MetadataReferences.Select(
            reference => (MetadataReference)MetadataReference.CreateFromFile(reference.Reference));
        CSharpCompilation compilation = CSharpCompilation.Create(
            Path.GetFileNameWithoutExtension(arguments.OutputFileName), sources, references, arguments.CompilationOptions);
        EmitResult result = compilation.Emit(Path.Combine(arguments.OutputDirectory, arguments.OutputFileName));
        return Report(result.Diagnostics) && result.Success ? 0 : 1;
    }

    static SyntaxTree Parse(string path, ParseOptions options)
    {
        using (FileStream stream = File.OpenRead(path))
        {
            SourceText text = SourceText.From(stream, null, SourceHashAlgorithm.Sha256, false, false);
            return CSharpSyntaxTree.ParseText(text, (CSharpParseOptions)options, path);
        }
    }

    // Prints warnings and errors; whether there was no error.
    static bool Report(IEnumerable<Diagnostic> diagnostics)
    {
        bool good = true;
        foreach (Diagnostic diagnostic in diagnostics)
        {
            if (diagnostic.IsSuppressed || diagnostic.Severity < DiagnosticSeverity.Warning)
            {
                continue;
            }
            Console.Error.WriteLine(diagnostic);
            good = good && diagnostic.Severity != DiagnosticSeverity.Error;
        }
        return good;
    }
}
