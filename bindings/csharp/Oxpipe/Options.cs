using System;

namespace Oxpipe
{
    /// <summary>
    /// Settings by key: <c>new RunOptions { ["max_tokens"] = "100" }</c>. oxpipe.h lists the keys
    /// of each kind. A value is checked when it is set. May be used for any number of objects.
    /// </summary>
    public abstract unsafe class Options : IDisposable
    {
        internal readonly OptionsHandle Handle = new OptionsHandle();

        private protected Options(uint kind)
        {
            oxp_options* options;
            oxp_error* error;
            Calls.Check(NativeMethods.oxp_options_create(kind, &options, &error), error);
            Handle.Own(options);
        }

        public string this[string key]
        {
            set { Set(key, value); }
        }

        /// <summary>Sets one option; the last value of a key counts.</summary>
        public void Set(string key, string value)
        {
            using (var lease = new Lease(Handle))
            using (var keyText = new Utf8Text(key ?? throw new ArgumentNullException(nameof(key))))
            using (var valueText = new Utf8Text(value ?? throw new ArgumentNullException(nameof(value))))
            {
                oxp_error* error;
                int status = NativeMethods.oxp_options_set(
                    (oxp_options*)lease.Pointer, keyText.Bytes, keyText.Length, valueText.Bytes, valueText.Length, &error);
                Calls.Check(status, error);
            }
        }

        public void Dispose()
        {
            Handle.Dispose();
        }
    }

    public sealed class RuntimeOptions : Options
    {
        public RuntimeOptions() : base(NativeMethods.OXP_OPTIONS_RUNTIME)
        {
        }
    }

    public sealed class SessionOptions : Options
    {
        public SessionOptions() : base(NativeMethods.OXP_OPTIONS_SESSION)
        {
        }
    }

    public sealed class PipelineOptions : Options
    {
        public PipelineOptions() : base(NativeMethods.OXP_OPTIONS_PIPELINE)
        {
        }
    }

    public sealed class RunOptions : Options
    {
        public RunOptions() : base(NativeMethods.OXP_OPTIONS_RUN)
        {
        }
    }
}
