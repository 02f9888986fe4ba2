using System;
using System.Runtime.InteropServices;

namespace Oxpipe
{
    /// <summary>A special token.</summary>
    public sealed class SpecialToken
    {
        internal SpecialToken(int id, string text)
        {
            Id = id;
            Text = text;
        }

        public int Id { get; }

        public string Text { get; }
    }

    /// <summary>A Hugging Face tokenizer. Any thread, any number of calls at once.</summary>
    public sealed unsafe class Tokenizer : IDisposable
    {
        internal readonly TokenizerHandle Handle = new TokenizerHandle();

        private Tokenizer()
        {
        }

        internal Tokenizer(Pipeline pipeline)
        {
            using (var lease = new Lease(pipeline.Handle))
            {
                oxp_tokenizer* made;
                oxp_error* error;
                int status = NativeMethods.oxp_tokenizer_open_pipeline((oxp_pipeline*)lease.Pointer, &made, &error);
                Calls.Check(status, error);
                Handle.Own(made);
            }
        }

        /// <summary>Opens a tokenizer.json, and tokenizer_config.json beside it if that is there.</summary>
        public static Tokenizer Open(string path)
        {
            var tokenizer = new Tokenizer();
            using (var text = new Utf8Text(path ?? throw new ArgumentNullException(nameof(path))))
            {
                oxp_tokenizer* made;
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_tokenizer_open(text.Bytes, text.Length, &made, &error), error);
                tokenizer.Handle.Own(made);
            }
            return tokenizer;
        }

        /// <summary>As Open, from the bytes of the two files, of which the second may be missing.</summary>
        public static Tokenizer OpenMemory(ReadOnlySpan<byte> json, ReadOnlySpan<byte> config = default(ReadOnlySpan<byte>))
        {
            var tokenizer = new Tokenizer();
            fixed (byte* jsonBytes = &MemoryMarshal.GetReference(json))
            fixed (byte* configBytes = &MemoryMarshal.GetReference(config))
            {
                oxp_tokenizer* made;
                oxp_error* error;
                int status = NativeMethods.oxp_tokenizer_open_memory(
                    jsonBytes, (ulong)json.Length, configBytes, (ulong)config.Length, &made, &error);
                Calls.Check(status, error);
                tokenizer.Handle.Own(made);
            }
            return tokenizer;
        }

        /// <summary>How many tokens have an id, added ones included.</summary>
        public int VocabularySize
        {
            get
            {
                using (var lease = new Lease(Handle))
                {
                    ulong size;
                    oxp_error* error;
                    int status = NativeMethods.oxp_tokenizer_get_vocab_size(
                        (oxp_tokenizer*)lease.Pointer, &size, &error);
                    Calls.Check(status, error);
                    return checked((int)size);
                }
            }
        }

        /// <summary>Token ids of text. With addSpecial the tokenizer adds its own special tokens.</summary>
        public int[] Encode(string text, bool addSpecial = false)
        {
            using (var lease = new Lease(Handle))
            using (var utf8 = new Utf8Text(text ?? throw new ArgumentNullException(nameof(text))))
            {
                var tokenizer = (oxp_tokenizer*)lease.Pointer;
                byte* bytes = utf8.Bytes;
                ulong length = utf8.Length;
                return Calls.Ids((int* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                    NativeMethods.oxp_tokenizer_encode_copy(
                        tokenizer, bytes, length, addSpecial ? 1 : 0, buffer, capacity, needed, error));
            }
        }

        /// <summary>Text of token ids. With skipSpecial special tokens are left out.</summary>
        public string Decode(ReadOnlySpan<int> ids, bool skipSpecial = true)
        {
            using (var lease = new Lease(Handle))
            fixed (int* pinned = &MemoryMarshal.GetReference(ids))
            {
                var tokenizer = (oxp_tokenizer*)lease.Pointer;
                int* first = pinned;
                var count = (ulong)ids.Length;
                return Calls.CopyText((byte* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                    NativeMethods.oxp_tokenizer_decode_copy(
                        tokenizer, first, count, skipSpecial ? 1 : 0, buffer, capacity, needed, error));
            }
        }

        /// <summary>The token with a role, null if there is none.</summary>
        public SpecialToken Special(TokenRole role)
        {
            using (var lease = new Lease(Handle))
            {
                int id;
                byte* text;
                ulong length;
                oxp_error* error;
                int status = NativeMethods.oxp_tokenizer_get_special(
                    (oxp_tokenizer*)lease.Pointer, (uint)role, &id, &text, &length, &error);
                Calls.Check(status, error);
                return id < 0 ? null : new SpecialToken(id, Calls.Text(text, length));
            }
        }

        /// <summary>A token as the vocabulary writes it.</summary>
        public string TokenText(int id)
        {
            using (var lease = new Lease(Handle))
            {
                var tokenizer = (oxp_tokenizer*)lease.Pointer;
                return Calls.CopyText((byte* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                    NativeMethods.oxp_tokenizer_token_copy(tokenizer, id, buffer, capacity, needed, error));
            }
        }

        /// <summary>The id of a token as the vocabulary writes it, null if there is none.</summary>
        public int? FindToken(string token)
        {
            using (var lease = new Lease(Handle))
            using (var text = new Utf8Text(token ?? throw new ArgumentNullException(nameof(token))))
            {
                int id;
                oxp_error* error;
                int status = NativeMethods.oxp_tokenizer_find_token(
                    (oxp_tokenizer*)lease.Pointer, text.Bytes, text.Length, &id, &error);
                Calls.Check(status, error);
                return id < 0 ? (int?)null : id;
            }
        }

        /// <summary>Whether decoding with skipSpecial leaves the token out.</summary>
        public bool IsSpecial(int id)
        {
            using (var lease = new Lease(Handle))
            {
                int special;
                oxp_error* error;
                int status = NativeMethods.oxp_tokenizer_is_special((oxp_tokenizer*)lease.Pointer, id, &special, &error);
                Calls.Check(status, error);
                return special != 0;
            }
        }

        /// <summary>Makes a decoder of one token at a time.</summary>
        public DecodeStream CreateDecodeStream(bool skipSpecial = true)
        {
            return new DecodeStream(this, skipSpecial);
        }

        public void Dispose()
        {
            Handle.Dispose();
        }
    }

    /// <summary>
    /// Decodes one token at a time into whole characters. The pieces, and what Flush gives, put
    /// together are the text of all tokens decoded at once. Calls on other threads wait.
    /// </summary>
    public sealed unsafe class DecodeStream : IDisposable
    {
        private readonly DecodeStreamHandle handle = new DecodeStreamHandle();
        /// <summary>The library lends a piece until the next call: none comes before it is read.</summary>
        private readonly object gate = new object();

        internal DecodeStream(Tokenizer tokenizer, bool skipSpecial)
        {
            using (var lease = new Lease(tokenizer.Handle))
            {
                oxp_decode_stream* made;
                oxp_error* error;
                int status = NativeMethods.oxp_decode_stream_create(
                    (oxp_tokenizer*)lease.Pointer, skipSpecial ? 1 : 0, &made, &error);
                Calls.Check(status, error);
                handle.Own(made);
            }
        }

        /// <summary>Adds a token; gives the text that has become certain with it, "" while a character is incomplete.</summary>
        public string Push(int id)
        {
            lock (gate)
            {
                using (var lease = new Lease(handle))
                {
                    byte* text;
                    ulong length;
                    oxp_error* error;
                    int status = NativeMethods.oxp_decode_stream_push(
                        (oxp_decode_stream*)lease.Pointer, id, &text, &length, &error);
                    Calls.Check(status, error);
                    return Calls.Text(text, length);
                }
            }
        }

        /// <summary>
        /// Which part of the whole text the last call gave, and of which tokens: the bytes of UTF-8 before
        /// it, how many tokens were pushed before the first of those whose text it is, how many these are.
        /// </summary>
        public (long Offset, long First, long Count) LastSpan()
        {
            lock (gate)
            {
                using (var lease = new Lease(handle))
                {
                    ulong offset;
                    ulong first;
                    ulong count;
                    oxp_error* error;
                    int status = NativeMethods.oxp_decode_stream_get_span(
                        (oxp_decode_stream*)lease.Pointer, &offset, &first, &count, &error);
                    Calls.Check(status, error);
                    return (checked((long)offset), checked((long)first), checked((long)count));
                }
            }
        }

        /// <summary>Ends the text: what was held back, incomplete characters as U+FFFD. The stream is then as new.</summary>
        public string Flush()
        {
            lock (gate)
            {
                using (var lease = new Lease(handle))
                {
                    byte* text;
                    ulong length;
                    oxp_error* error;
                    int status = NativeMethods.oxp_decode_stream_flush(
                        (oxp_decode_stream*)lease.Pointer, &text, &length, &error);
                    Calls.Check(status, error);
                    return Calls.Text(text, length);
                }
            }
        }

        public void Dispose()
        {
            handle.Dispose();
        }
    }
}
