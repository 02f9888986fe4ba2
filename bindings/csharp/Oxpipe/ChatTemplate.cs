using System;

namespace Oxpipe
{
    /// <summary>A Hugging Face chat template (Jinja). Any thread, any number of calls at once.</summary>
    public sealed unsafe class ChatTemplate : IDisposable
    {
        private readonly ChatTemplateHandle handle = new ChatTemplateHandle();

        internal ChatTemplate(Pipeline pipeline)
        {
            using (var lease = new Lease(pipeline.Handle))
            {
                oxp_chat_template* made;
                oxp_error* error;
                int status = NativeMethods.oxp_chat_template_open_pipeline((oxp_pipeline*)lease.Pointer, &made, &error);
                Calls.Check(status, error);
                handle.Own(made);
            }
        }

        /// <summary>Parses a template. The tokenizer, which may be null, gives the special tokens that it may write.</summary>
        public ChatTemplate(string source, Tokenizer tokenizer = null)
        {
            using (var lease = new Lease(tokenizer?.Handle))
            using (var text = new Utf8Text(source ?? throw new ArgumentNullException(nameof(source))))
            {
                oxp_chat_template* made;
                oxp_error* error;
                int status = NativeMethods.oxp_chat_template_create(
                    text.Bytes, text.Length, (oxp_tokenizer*)lease.Pointer, &made, &error);
                Calls.Check(status, error);
                handle.Own(made);
            }
        }

        /// <summary>
        /// The prompt of a conversation. Everything is JSON: the messages an array of {"role",
        /// "content"}, the tools, which may be null, an array, extra, which may be null, an object
        /// of more template variables. Append the prompt without addSpecial.
        /// </summary>
        public string Render(string messages, bool addGenerationPrompt = true, string tools = null, string extra = null)
        {
            using (var lease = new Lease(handle))
            using (var messagesText = new Utf8Text(messages ?? throw new ArgumentNullException(nameof(messages))))
            using (var toolsText = new Utf8Text(tools))
            using (var extraText = new Utf8Text(extra))
            {
                var template = (oxp_chat_template*)lease.Pointer;
                byte* messagesBytes = messagesText.Bytes;
                ulong messagesLength = messagesText.Length;
                byte* toolsBytes = toolsText.Bytes;
                ulong toolsLength = toolsText.Length;
                byte* extraBytes = extraText.Bytes;
                ulong extraLength = extraText.Length;
                return Calls.CopyText((byte* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                    NativeMethods.oxp_chat_template_render_copy(
                        template, messagesBytes, messagesLength, toolsBytes, toolsLength, extraBytes, extraLength,
                        addGenerationPrompt ? 1 : 0, buffer, capacity, needed, error));
            }
        }

        /// <summary>
        /// The calls of tools in an answer, as JSON (see oxp_tool_calls_parse_copy in oxpipe.h). The
        /// format is the template's, unless one is named. While the text is not finished, its end may
        /// be part of a call. With the tools that the prompt was rendered with, as JSON, arguments in
        /// plain text have the types of their schemas.
        /// </summary>
        public string ParseToolCalls(string text, bool finished = true, string format = null, string tools = null)
        {
            using (var lease = new Lease(handle))
            using (var utf8 = new Utf8Text(text ?? throw new ArgumentNullException(nameof(text))))
            using (var formatText = new Utf8Text(format))
            using (var toolsText = new Utf8Text(tools))
            {
                var template = (oxp_chat_template*)lease.Pointer;
                byte* bytes = utf8.Bytes;
                ulong length = utf8.Length;
                byte* formatBytes = formatText.Bytes;
                ulong formatLength = formatText.Length;
                byte* toolsBytes = toolsText.Bytes;
                ulong toolsLength = toolsText.Length;
                int whole = finished ? 1 : 0;
                return Calls.CopyText((byte* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                    tools == null
                        ? NativeMethods.oxp_tool_calls_parse_copy(
                            template, formatBytes, formatLength, bytes, length, whole, buffer, capacity, needed, error)
                        : NativeMethods.oxp_tool_calls_parse_with_tools_copy(
                            template, formatBytes, formatLength, toolsBytes, toolsLength, bytes, length, whole, buffer,
                            capacity, needed, error));
            }
        }

        public void Dispose()
        {
            handle.Dispose();
        }
    }
}
