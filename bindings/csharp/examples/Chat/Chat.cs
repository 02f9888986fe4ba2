// Talks with a language model: text in, text out while it is made. Ctrl-C ends an answer, and the
// conversation goes on.
//
//     Chat PACKAGE [option...] ["What is the capital of France?"]
//
//     --backend native|ort|auto           for every component
//     --backend COMPONENT=native|ort|auto for one
//     --max-tokens N                      the most tokens of an answer
//     --ids FILE                          writes the token ids of the last answer there
//
// Without a question it reads one from each line of standard input, until that ends.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Oxpipe;

sealed class Chat : IDisposable
{
    private const string Usage =
        "usage: Chat PACKAGE [--backend [COMPONENT=]native|ort|auto]... [--max-tokens N] [--ids FILE] [QUESTION]";

    private readonly Tokenizer tokenizer;
    private readonly ChatTemplate template;
    private readonly Run run;
    private readonly string idsPath;
    private readonly List<Dictionary<string, string>> messages = new List<Dictionary<string, string>>();
    private CancellationTokenSource answering;

    private Chat(Pipeline pipeline, RunOptions options, string idsPath)
    {
        tokenizer = pipeline.OpenTokenizer();
        template = pipeline.OpenChatTemplate();
        run = pipeline.CreateRun(options);
        this.idsPath = idsPath;
        Console.CancelKeyPress += (sender, press) =>
        {
            CancellationTokenSource current = answering;
            if (current != null)
            {
                current.Cancel();
                press.Cancel = true; // The process goes on.
            }
        };
    }

    private async Task Ask(string question)
    {
        Say("user", question);
        int[] prompt = tokenizer.Encode(template.Render(JsonSerializer.Serialize(messages)));
        Feed(prompt);

        var answer = new StringBuilder();
        using (var source = new CancellationTokenSource())
        {
            answering = source;
            try
            {
                await foreach (string piece in run.GenerateTextAsync(source.Token))
                {
                    Console.Write(piece);
                    Console.Out.Flush();
                    answer.Append(piece);
                }
                Console.WriteLine();
            }
            catch (OperationCanceledException)
            {
                // What was made of the answer is part of the conversation.
                Console.WriteLine(" [stopped]");
            }
            finally
            {
                answering = null;
            }
        }
        Say("assistant", answer.ToString());
        if (idsPath != null)
        {
            File.WriteAllText(idsPath, string.Join(" ", run.GetTokens().Skip(prompt.Length)) + "\n");
        }
    }

    private void Say(string role, string content)
    {
        messages.Add(new Dictionary<string, string> { ["role"] = role, ["content"] = content });
    }

    /// <summary>
    /// Makes the prompt the tokens of the run, and keeps the work that was done for their common
    /// start: an old conversation is not computed again.
    /// </summary>
    private void Feed(int[] prompt)
    {
        int[] old = run.GetTokens();
        int common = old.Zip(prompt, (left, right) => left == right).TakeWhile(same => same).Count();
        if (common < old.Length)
        {
            run.Rewind(common);
        }
        run.AppendTokens(prompt.AsSpan(common));
    }

    public void Dispose()
    {
        run.Dispose();
        template.Dispose();
        tokenizer.Dispose();
    }

    private static async Task<int> Main(string[] arguments)
    {
        if (arguments.Length == 0 || arguments[0].StartsWith("--"))
        {
            Console.Error.WriteLine(Usage);
            return 1;
        }
        try
        {
            string question = null;
            string idsPath = null;
            using var pipelineOptions = new PipelineOptions();
            using var runOptions = new RunOptions();
            for (int at = 1; at < arguments.Length; at++)
            {
                switch (arguments[at])
                {
                    case "--backend" when at + 1 < arguments.Length:
                        string[] words = arguments[++at].Split('=');
                        pipelineOptions[words.Length == 1 ? "backend" : "backend." + words[0]] = words[^1];
                        break;
                    case "--max-tokens" when at + 1 < arguments.Length:
                        runOptions["max_tokens"] = arguments[++at];
                        break;
                    case "--ids" when at + 1 < arguments.Length:
                        idsPath = arguments[++at];
                        break;
                    case string option when option.StartsWith("--") || option.Length == 0:
                        Console.Error.WriteLine(Usage);
                        return 1;
                    default:
                        question = arguments[at];
                        break;
                }
            }

            using Pipeline pipeline = Pipeline.Open(arguments[0], pipelineOptions, progress: loading =>
            {
                Example.ShowProgress(loading.Component, loading.Done, loading.Total);
                return true;
            });
            using var chat = new Chat(pipeline, runOptions, idsPath);
            if (question != null)
            {
                await chat.Ask(question);
                return 0;
            }
            Console.Error.Write("> ");
            for (string line = Console.ReadLine(); line != null; line = Console.ReadLine())
            {
                if (line.Length > 0)
                {
                    await chat.Ask(line);
                }
                Console.Error.Write("> ");
            }
            return 0;
        }
        catch (OxpipeException failure)
        {
            Console.Error.WriteLine(failure.Status + ": " + failure.Message);
            return 1;
        }
    }
}
