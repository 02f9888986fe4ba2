using System;

namespace Oxpipe
{
    /// <summary>The native library that is loaded.</summary>
    public static unsafe class OxpipeLibrary
    {
        private static volatile bool isChecked;

        /// <summary>Its version, "0.1.0".</summary>
        public static string Version => Calls.CopyText(
            (byte* buffer, ulong capacity, ulong* needed, oxp_error** error) =>
                NativeMethods.oxp_version_copy(buffer, capacity, needed, error));

        /// <summary>The version of its interface.</summary>
        public static int AbiVersion => checked((int)NativeMethods.oxp_abi_version());

        /// <summary>Whether it was built with a backend. ONNX Runtime itself is looked for only when needed.</summary>
        public static bool HasBackend(Backend backend)
        {
            int builtIn;
            oxp_error* error;
            Calls.Check(NativeMethods.oxp_backend_is_built_in((uint)backend, &builtIn, &error), error);
            return builtIn != 0;
        }

        /// <summary>Throws unless the library has the interface that these declarations were generated from.</summary>
        internal static void Check()
        {
            if (isChecked)
            {
                return;
            }
            uint version = NativeMethods.oxp_abi_version();
            if (version < NativeMethods.OXP_ABI_VERSION)
            {
                throw new NotSupportedException(
                    "the oxpipe library that was loaded has interface version " + version + ", this assembly needs " +
                    NativeMethods.OXP_ABI_VERSION + " or later; put the library beside it that it came with");
            }
            CheckSize(NativeMethods.OXP_STRUCT_TENSOR_IN, sizeof(oxp_tensor_in), "oxp_tensor_in");
            CheckSize(NativeMethods.OXP_STRUCT_TENSOR_OUT, sizeof(oxp_tensor_out), "oxp_tensor_out");
            CheckSize(NativeMethods.OXP_STRUCT_NAMED_IN, sizeof(oxp_named_in), "oxp_named_in");
            CheckSize(NativeMethods.OXP_STRUCT_NAMED_OUT, sizeof(oxp_named_out), "oxp_named_out");
            CheckSize(NativeMethods.OXP_STRUCT_FILE, sizeof(oxp_file), "oxp_file");
            CheckGrowing(NativeMethods.OXP_STRUCT_PORT_INFO, sizeof(oxp_port_info), "oxp_port_info");
            CheckGrowing(NativeMethods.OXP_STRUCT_SESSION_STATS, sizeof(oxp_session_stats), "oxp_session_stats");
            CheckGrowing(NativeMethods.OXP_STRUCT_COMPONENT_INFO, sizeof(oxp_component_info), "oxp_component_info");
            CheckGrowing(NativeMethods.OXP_STRUCT_PIPELINE_INFO, sizeof(oxp_pipeline_info), "oxp_pipeline_info");
            CheckGrowing(NativeMethods.OXP_STRUCT_LOAD_PROGRESS, sizeof(oxp_load_progress), "oxp_load_progress");
            CheckGrowing(NativeMethods.OXP_STRUCT_EVENT, sizeof(oxp_event), "oxp_event");
            CheckGrowing(NativeMethods.OXP_STRUCT_RUN_STATS, sizeof(oxp_run_stats), "oxp_run_stats");
            isChecked = true;
        }

        private static void CheckSize(uint id, int ours, string name)
        {
            uint theirs = NativeMethods.oxp_struct_size(id);
            if (theirs != ours)
            {
                throw Mismatch(name, ours, theirs);
            }
        }

        /// <summary>Structs that the library fills may have become longer.</summary>
        private static void CheckGrowing(uint id, int ours, string name)
        {
            uint theirs = NativeMethods.oxp_struct_size(id);
            if (theirs < ours)
            {
                throw Mismatch(name, ours, theirs);
            }
        }

        private static Exception Mismatch(string name, int ours, uint theirs)
        {
            return new NotSupportedException(
                "the oxpipe library that was loaded has " + theirs + " bytes for " + name + ", this assembly " + ours +
                "; put the library beside it that it came with");
        }
    }
}
