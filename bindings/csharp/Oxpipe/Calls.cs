using System;
using System.Buffers;
using System.Runtime.ExceptionServices;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;

namespace Oxpipe
{
    /// <summary>What every call needs: errors as exceptions, and text and ids that are copied out.</summary>
    internal static unsafe class Calls
    {
        /// <summary>Refuses what is no UTF-16, rather than putting U+FFFD in its place.</summary>
        internal static readonly Encoding Utf8 = new UTF8Encoding(false, true);

        internal delegate int CopyBytes(byte* buffer, ulong capacity, ulong* needed, oxp_error** error);

        internal delegate int CopyIds(int* buffer, ulong capacity, ulong* needed, oxp_error** error);

        internal static void Check(int status, oxp_error* error)
        {
            if (status != NativeMethods.OXP_OK)
            {
                throw Failure(status, error);
            }
        }

        /// <summary>As Check; what was cancelled by this token is an OperationCanceledException.</summary>
        internal static void Check(int status, oxp_error* error, CancellationToken token)
        {
            if (status == NativeMethods.OXP_OK)
            {
                return;
            }
            OxpipeException failure = Failure(status, error);
            if (failure.Status == Status.Cancelled && token.IsCancellationRequested)
            {
                throw new OperationCanceledException(failure.Message, failure, token);
            }
            throw failure;
        }

        /// <summary>The exception that an error object is, which is freed.</summary>
        private static OxpipeException Failure(int status, oxp_error* error)
        {
            try
            {
                if (error == null)
                {
                    return new OxpipeException((Status)status, Text(NativeMethods.oxp_status_name(status)));
                }
                return Described(error);
            }
            finally
            {
                NativeMethods.oxp_error_free(error);
            }
        }

        /// <summary>The exception that an error object is, which stays.</summary>
        internal static OxpipeException Described(oxp_error* error)
        {
            ulong length;
            byte* text = NativeMethods.oxp_error_get_message(error, &length);
            string message = Text(text, length);
            text = NativeMethods.oxp_error_get_component(error, &length);
            string component = Text(text, length);
            text = NativeMethods.oxp_error_get_port(error, &length);
            string port = Text(text, length);
            text = NativeMethods.oxp_error_get_node(error, &length);
            string node = Text(text, length);
            text = NativeMethods.oxp_error_get_file(error, &length);
            string file = Text(text, length);
            var code = (Status)NativeMethods.oxp_error_get_code(error);
            return new OxpipeException(code, message, component, port, node, file);
        }

        internal static string Text(byte* text, ulong length)
        {
            return length == 0 ? "" : Encoding.UTF8.GetString(text, checked((int)length));
        }

        /// <summary>Text that ends with a NUL.</summary>
        internal static string Text(byte* text)
        {
            ulong length = 0;
            while (text[length] != 0)
            {
                length++;
            }
            return Text(text, length);
        }

        /// <summary>Text by the rule of strings out: decoded where the library has written it.</summary>
        internal static string CopyText(CopyBytes call)
        {
            byte[] room = ArrayPool<byte>.Shared.Rent(512);
            try
            {
                while (true)
                {
                    ulong needed;
                    oxp_error* error;
                    fixed (byte* buffer = room)
                    {
                        int status = call(buffer, (ulong)room.Length, &needed, &error);
                        if (status != NativeMethods.OXP_ERR_BUFFER_TOO_SMALL)
                        {
                            Check(status, error);
                            return Text(buffer, needed);
                        }
                    }
                    NativeMethods.oxp_error_free(error);
                    ArrayPool<byte>.Shared.Return(room);
                    room = ArrayPool<byte>.Shared.Rent(checked((int)needed + 1));
                }
            }
            finally
            {
                ArrayPool<byte>.Shared.Return(room);
            }
        }

        internal static int[] Ids(CopyIds call)
        {
            ulong needed;
            oxp_error* error;
            Check(call(null, 0, &needed, &error), error);
            while (true)
            {
                var ids = new int[checked((int)needed)];
                int status;
                fixed (int* buffer = ids)
                {
                    status = call(buffer, (ulong)ids.Length, &needed, &error);
                }
                if (status != NativeMethods.OXP_ERR_BUFFER_TOO_SMALL)
                {
                    Check(status, error);
                    Array.Resize(ref ids, checked((int)needed));
                    return ids;
                }
                // Somebody has appended meanwhile.
                NativeMethods.oxp_error_free(error);
            }
        }
    }

    /// <summary>A string as UTF-8 for one call, encoded to where the library reads it. Of null it is NULL.</summary>
    internal readonly unsafe struct Utf8Text : IDisposable
    {
        internal readonly byte* Bytes;
        internal readonly ulong Length;

        internal Utf8Text(string text)
        {
            Bytes = null;
            Length = 0;
            if (text != null)
            {
                int length = Calls.Utf8.GetByteCount(text);
                Bytes = (byte*)Marshal.AllocHGlobal(length + 1);
                fixed (char* characters = text)
                {
                    Length = (ulong)Calls.Utf8.GetBytes(characters, text.Length, Bytes, length);
                }
            }
        }

        public void Dispose()
        {
            Marshal.FreeHGlobal((IntPtr)Bytes);
        }
    }

    /// <summary>
    /// A CancellationToken as an oxp_cancel, for one call or a row of them; NULL for one that is
    /// never requested. Throws at once for one that is.
    /// </summary>
    internal readonly unsafe struct CancelScope : IDisposable
    {
        private static readonly Action<object> Request = RequestCancel;

        private readonly CancelHandle handle;
        private readonly CancellationTokenRegistration registration;

        internal CancelScope(CancellationToken token)
        {
            token.ThrowIfCancellationRequested();
            handle = null;
            registration = default(CancellationTokenRegistration);
            if (token.CanBeCanceled)
            {
                handle = new CancelHandle();
                oxp_cancel* cancel;
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_cancel_create(&cancel, &error), error);
                handle.Own(cancel);
                registration = token.Register(Request, handle);
            }
        }

        internal oxp_cancel* Pointer => handle == null ? null : (oxp_cancel*)handle.DangerousGetHandle();

        private static void RequestCancel(object state)
        {
            using (var lease = new Lease((CancelHandle)state))
            {
                oxp_error* error;
                Calls.Check(NativeMethods.oxp_cancel_request((oxp_cancel*)lease.Pointer, &error), error);
            }
        }

        public void Dispose()
        {
            // Waits for a request that is under way.
            registration.Dispose();
            handle?.Dispose();
        }
    }

    /// <summary>
    /// A managed callback for the time of one native call. What it throws is kept here, the call
    /// is asked to end, and the exception goes on from the managed caller: nothing unwinds
    /// through native code.
    /// </summary>
    internal sealed class Callback<TFunction> : IDisposable where TFunction : class
    {
        private readonly GCHandle self;
        private ExceptionDispatchInfo thrown;

        internal Callback(TFunction function)
        {
            Function = function;
            self = GCHandle.Alloc(this);
        }

        internal TFunction Function { get; }

        /// <summary>The callback asked the call to end.</summary>
        internal bool HasStopped { get; set; }

        internal IntPtr UserData => GCHandle.ToIntPtr(self);

        internal static Callback<TFunction> From(IntPtr userData)
        {
            return (Callback<TFunction>)GCHandle.FromIntPtr(userData).Target;
        }

        internal void Keep(Exception exception)
        {
            thrown = ExceptionDispatchInfo.Capture(exception);
        }

        /// <summary>Throws what the callback has thrown.</summary>
        internal void Rethrow()
        {
            thrown?.Throw();
        }

        public void Dispose()
        {
            self.Free();
        }
    }
}
