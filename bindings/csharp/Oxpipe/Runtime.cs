using System;
using System.Threading;

namespace Oxpipe
{
    /// <summary>
    /// Threads, the ONNX Runtime library and the logger that sessions and pipelines share. Any
    /// thread, any number of calls at once. Where a call takes a runtime, null means a new one
    /// with defaults.
    /// </summary>
    public sealed unsafe class Runtime : IDisposable
    {
        private static readonly NativeMethods.oxp_runtime_create_log_delegate LogThunk = OnLog;
        private static readonly NativeMethods.oxp_runtime_create_free_user_data_delegate FreeThunk = OnFree;

        internal readonly RuntimeHandle Handle = new RuntimeHandle();
        private readonly Logger logger;

        /// <summary>
        /// Makes a runtime. The logger is called on any thread, at once from several, until nothing
        /// is left that was made with the runtime.
        /// </summary>
        public Runtime(RuntimeOptions options = null, Action<LogLevel, string> log = null)
        {
            using (var optionsLease = new Lease(options?.Handle))
            {
                oxp_runtime* runtime;
                oxp_error* error;
                int status;
                if (log == null)
                {
                    status = NativeMethods.oxp_runtime_create(
                        (oxp_options*)optionsLease.Pointer, &runtime, null, null, null, &error);
                }
                else
                {
                    logger = new Logger(log);
                    // The library frees it through FreeThunk, also when this call fails.
                    var callback = new Callback<Logger>(logger);
                    status = NativeMethods.oxp_runtime_create(
                        (oxp_options*)optionsLease.Pointer, &runtime, LogThunk, (void*)callback.UserData, FreeThunk, &error);
                }
                Calls.Check(status, error);
                Handle.Own(runtime);
            }
        }

        /// <summary>
        /// The first exception that the logger has thrown, null if there is none. A log line stops no
        /// call, and may come from a thread that has no managed caller, so it is kept here.
        /// </summary>
        public Exception LogException => logger?.FirstException;

        public void Dispose()
        {
            Handle.Dispose();
        }

        private static void OnLog(void* userData, uint level, byte* message, ulong length)
        {
            Logger logger = Callback<Logger>.From((IntPtr)userData).Function;
            try
            {
                logger.Log((LogLevel)level, Calls.Text(message, length));
            }
            catch (Exception exception)
            {
                Interlocked.CompareExchange(ref logger.FirstException, exception, null);
            }
        }

        private static void OnFree(void* userData)
        {
            Callback<Logger>.From((IntPtr)userData).Dispose();
        }

        private sealed class Logger
        {
            internal readonly Action<LogLevel, string> Log;
            internal Exception FirstException;

            internal Logger(Action<LogLevel, string> log)
            {
                Log = log;
            }
        }
    }
}
