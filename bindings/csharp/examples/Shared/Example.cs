// What the example programs share: the command line, a bar while something goes on, and failures that
// are told.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using Oxpipe;

sealed class Example : IDisposable
{
    private readonly PipelineOptions backends = new PipelineOptions();
    private readonly List<KeyValuePair<string, string>> options = new List<KeyValuePair<string, string>>();

    private Example(string[] arguments)
    {
        var words = new List<string>();
        for (int at = 0; at < arguments.Length; at++)
        {
            if (!arguments[at].StartsWith("--"))
            {
                words.Add(arguments[at]);
                continue;
            }
            if (at + 1 == arguments.Length)
            {
                throw new ArgumentException("nothing comes after " + arguments[at]);
            }
            string name = arguments[at];
            string value = arguments[++at];
            if (name == "--backend")
            {
                string[] parts = value.Split('=');
                backends[parts.Length == 1 ? "backend" : "backend." + parts[0]] = parts[parts.Length - 1];
            }
            else
            {
                options.Add(new KeyValuePair<string, string>(name, value));
            }
        }
        Words = words;
    }

    /// <summary>The arguments that are no options.</summary>
    public IReadOnlyList<string> Words { get; }

    /// <summary>The options other than --backend, in their order.</summary>
    public IReadOnlyList<KeyValuePair<string, string>> Options => options;

    /// <summary>The last value of an option.</summary>
    public string Option(string name, string otherwise)
    {
        return options.Where(option => option.Key == name).Select(option => option.Value).LastOrDefault() ?? otherwise;
    }

    /// <summary>The package that is the first argument, with a bar while it is loaded.</summary>
    public Pipeline OpenPackage()
    {
        return Pipeline.Open(Words[0], backends, progress: loading =>
        {
            ShowProgress(loading.Component, loading.Done, loading.Total);
            return true;
        });
    }

    /// <summary>A bar on standard error, if somebody looks at it; gone at the end.</summary>
    public static void ShowProgress(string what, int done, int total)
    {
        if (Console.IsErrorRedirected)
        {
            return;
        }
        Console.Error.Write("\r\u001b[K");
        if (done < total)
        {
            string bar = new string('#', 20 * done / total).PadRight(20);
            Console.Error.Write("[" + bar + "] " + done + "/" + total + " " + what);
        }
    }

    /// <summary>Calls the program with its arguments, at least <c>words</c> without options, and says why it fails.</summary>
    public static int Start(string[] arguments, int words, string usage, Action<Example> program)
    {
        try
        {
            using (var given = new Example(arguments))
            {
                if (given.Words.Count < words)
                {
                    throw new ArgumentException("usage: " + usage);
                }
                program(given);
                return 0;
            }
        }
        catch (OxpipeException failure)
        {
            Console.Error.WriteLine(failure.Status + ": " + failure.Message);
        }
        catch (Exception failure) when (failure is ArgumentException || failure is IOException || failure is FormatException)
        {
            Console.Error.WriteLine(failure.Message);
        }
        return 1;
    }

    public void Dispose()
    {
        backends.Dispose();
    }
}
