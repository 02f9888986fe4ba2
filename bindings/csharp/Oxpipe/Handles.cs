using System;
using System.Runtime.InteropServices;

namespace Oxpipe
{
    /// <summary>
    /// An object of the library. The library itself keeps alive what an object needs (a run its
    /// pipeline, a pipeline its runtime), so handles may be released in any order, also by the
    /// garbage collector, which has none.
    /// </summary>
    internal abstract unsafe class OxpipeHandle : SafeHandle
    {
        protected OxpipeHandle() : base(IntPtr.Zero, true)
        {
            OxpipeLibrary.Check();
        }

        public override bool IsInvalid => handle == IntPtr.Zero;

        /// <summary>Takes what a call has made. The handle exists before the call: no failure comes between.</summary>
        internal void Own(void* made)
        {
            SetHandle((IntPtr)made);
        }
    }

    internal sealed unsafe class CancelHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_cancel_free((oxp_cancel*)handle);
            return true;
        }
    }

    internal sealed unsafe class OptionsHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_options_free((oxp_options*)handle);
            return true;
        }
    }

    internal sealed unsafe class RuntimeHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_runtime_free((oxp_runtime*)handle);
            return true;
        }
    }

    internal sealed unsafe class SessionHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_session_free((oxp_session*)handle);
            return true;
        }
    }

    internal sealed unsafe class OutputsHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_outputs_free((oxp_outputs*)handle);
            return true;
        }
    }

    internal sealed unsafe class PipelineHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_pipeline_free((oxp_pipeline*)handle);
            return true;
        }
    }

    internal sealed unsafe class RunHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_run_free((oxp_run*)handle);
            return true;
        }
    }

    internal sealed unsafe class BatchHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_batch_free((oxp_batch*)handle);
            return true;
        }
    }

    internal sealed unsafe class TokenizerHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_tokenizer_free((oxp_tokenizer*)handle);
            return true;
        }
    }

    internal sealed unsafe class DecodeStreamHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_decode_stream_free((oxp_decode_stream*)handle);
            return true;
        }
    }

    internal sealed unsafe class ChatTemplateHandle : OxpipeHandle
    {
        protected override bool ReleaseHandle()
        {
            NativeMethods.oxp_chat_template_free((oxp_chat_template*)handle);
            return true;
        }
    }

    /// <summary>
    /// Holds a handle for a call, and for what the call has lent: neither Dispose on another
    /// thread nor the garbage collector releases it meanwhile. Of null it is NULL.
    /// </summary>
    internal readonly unsafe struct Lease : IDisposable
    {
        private readonly OxpipeHandle handle;

        internal Lease(OxpipeHandle handle)
        {
            this.handle = handle;
            if (handle != null)
            {
                bool held = false;
                // Throws ObjectDisposedException after Dispose.
                handle.DangerousAddRef(ref held);
            }
        }

        internal void* Pointer => handle == null ? null : (void*)handle.DangerousGetHandle();

        public void Dispose()
        {
            handle?.DangerousRelease();
        }
    }
}
