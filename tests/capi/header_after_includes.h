
#if UINTPTR_MAX != UINT64_MAX
#error "oxpipe is for 64-bit systems"
#endif

/** As the length of a string: up to its NUL. */
#define OXP_NUL_TERMINATED UINT64_MAX

/** In oxp_tensor_out.byte_len after oxp_session_output_bound: only a run can tell. */
#define OXP_UNKNOWN_SIZE UINT64_MAX
