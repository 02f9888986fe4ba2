using System;
using System.IO;
using Oxpipe;

/// <summary>Tokenizers, decode streams and chat templates.</summary>
static class TextTests
{
    internal static void Run(string package, string backend)
    {
        using (var options = new PipelineOptions { ["backend"] = backend })
        using (Pipeline pipeline = Pipeline.Open(package, options))
        {
            Tokenizer tokenizer = pipeline.OpenTokenizer();
            ChatTemplate template = pipeline.OpenChatTemplate();
            // They live on.
            pipeline.Dispose();
            Tokens(tokenizer);
            Templates(template, tokenizer);
            template.Dispose();
            tokenizer.Dispose();
            Check.Throws<ObjectDisposedException>(() => tokenizer.Encode("one"));
        }
        byte[] json = File.ReadAllBytes(Path.Combine(package, "tokenizer.json"));
        using (Tokenizer tokenizer = Tokenizer.OpenMemory(json))
        {
            Check.Same(tokenizer.Encode("three four"), new[] { 3, 4 });
        }
        using (Tokenizer tokenizer = Tokenizer.OpenMemory(json, File.ReadAllBytes(Path.Combine(package, "tokenizer_config.json"))))
        {
            Check.Equal(tokenizer.Special(TokenRole.EndOfSequence).Id, 7);
        }
        Check.Fails(Status.Io, "nowhere.json", () => Tokenizer.Open(Path.Combine(package, "nowhere.json")));
        Streams(package);
    }

    private static void Tokens(Tokenizer tokenizer)
    {
        Check.Equal(tokenizer.VocabularySize, 8);
        Check.Same(tokenizer.Encode("three four</s> five"), new[] { 3, 4, 7, 5 });
        Check.Same(tokenizer.Encode("", true), new int[0]);
        // Longer than what a first call has room for, in UTF-8 of two bytes a character.
        Check.Same(tokenizer.Encode(new string('\u00E9', 5000)), new[] { 6 });
        Check.Equal(tokenizer.Decode(new[] { 3, 7, 4 }), "three four");
        Check.Equal(tokenizer.Decode(new[] { 3, 7, 4 }, false), "three </s> four");
        Check.Equal(tokenizer.Decode(new int[0]), "");
        var many = new int[400];
        Check.Equal(tokenizer.Decode(many).Length, 400 * "zero ".Length - 1);
        Check.Fails(Status.Tokenizer, "8", () => tokenizer.Decode(new[] { 8 }));
        Check.Equal(tokenizer.Special(TokenRole.EndOfSequence).Text, "</s>");
        Check.That(tokenizer.Special(TokenRole.BeginOfSequence) == null);
        Check.Equal(tokenizer.TokenText(5), "five");
        Check.Fails(Status.OutOfRange, "id 8", () => tokenizer.TokenText(8));
        Check.Equal(tokenizer.FindToken("five"), 5);
        Check.Equal(tokenizer.FindToken("six"), null);
        Check.That(tokenizer.IsSpecial(7) && !tokenizer.IsSpecial(5));
    }

    private static void Templates(ChatTemplate template, Tokenizer tokenizer)
    {
        const string hello = "[{\"role\": \"user\", \"content\": \"hell\u00F6 \U0001F600\"}]";
        Check.Equal(template.Render(hello), "user:hell\u00F6 \U0001F600;assistant:");
        Check.Equal(
            template.Render(hello, false, "[{}, {}]", "{\"suffix\": \"!\"}"), "user:hell\u00F6 \U0001F600;[2]!");
        Check.Fails(Status.ChatTemplate, "no bad words", () => template.Render(hello.Replace("hell\u00F6 \U0001F600", "bad")));
        Check.Fails(Status.InvalidArgument, "messages", () => template.Render("nothing"));
        using (var own = new ChatTemplate("{{ eos_token }}{{ messages[0].content }}", tokenizer))
        {
            Check.Equal(own.Render(hello), "</s>hell\u00F6 \U0001F600");
        }
        using (var own = new ChatTemplate("{{ messages | length }}"))
        {
            Check.Equal(own.Render(hello), "1");
        }
        Check.Fails(Status.ChatTemplate, "", () => new ChatTemplate("{% if"));
        const string call = "Yes.<tool_call>{\"name\": \"f\"}</tool_call>";
        Check.Equal(
            template.ParseToolCalls(call),
            "{\"format\":\"hermes\",\"content\":\"Yes.\",\"tool_calls\":[{\"type\":\"function\",\"function\":"
            + "{\"name\":\"f\",\"arguments\":{}}}],\"complete\":true}");
        Check.Equal(
            template.ParseToolCalls("Yes.<tool", false, "hermes"),
            "{\"format\":\"hermes\",\"content\":\"Yes.\",\"tool_calls\":[],\"complete\":false}");
        Check.Equal(
            template.ParseToolCalls(
                "<tool_call>f<arg_key>a</arg_key><arg_value>7</arg_value></tool_call>", true, "glm",
                "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\"}}}}]"),
            "{\"format\":\"glm\",\"content\":\"\",\"tool_calls\":[{\"type\":\"function\",\"function\":"
            + "{\"name\":\"f\",\"arguments\":{\"a\":\"7\"}}}],\"complete\":true}");
        Check.Fails(Status.InvalidArgument, "hermes, llama3", () => template.ParseToolCalls(call, true, "gpt"));
        Check.Fails(
            Status.ToolCall, "at byte 11", () => template.ParseToolCalls("<tool_call>7</tool_call>"));
    }

    // 0 and 1 are the two bytes of one character, 3 stands for a NUL.
    private static void Streams(string package)
    {
        Tokenizer tokenizer = Tokenizer.Open(Path.Combine(package, "bytes_tokenizer.json"));
        using (DecodeStream stream = tokenizer.CreateDecodeStream(false))
        {
            // The stream keeps what it needs.
            tokenizer.Dispose();
            Check.Equal(stream.Push(2), "a");
            Check.Equal(stream.Push(0), "");
            Check.Equal(stream.Push(1), "\u00E9");
            Check.Equal(stream.LastSpan(), (1L, 1L, 2L));
            Check.Equal(stream.Flush(), "");
            stream.Push(0);
            Check.Fails(Status.Tokenizer, "99", () => stream.Push(99));
            Check.Equal(stream.Flush(), "\uFFFD");
            Check.Equal(stream.Push(3), "\0");
        }
    }
}
