/* Generated from src/capi/ by cbindgen; do not edit. `OXP_UPDATE_HEADER=1 cargo test --test
 * capi` writes it anew, `cargo test --test capi` checks it. */

/*
 * oxpipe: generative ONNX models of several components, each on the library's own runtime
 * ("native") or on ONNX Runtime ("ort"). This header is the manual; the rules below hold
 * for every function.
 *
 * BEGIN with oxp_pipeline_open, which loads a package, oxp_run_create, oxp_run_append_text and
 * oxp_run_generate; or with oxp_session_open and oxp_session_run for one graph alone. docs/ has
 * guides and whole programs.
 *
 * NAMES. oxp_<type>_<verb>. _create and _open make an object, _free frees it, _get_
 * borrows, _copy fills a buffer of the caller's. Parameters come in the order handle,
 * inputs, outputs, callback and its user_data, cancel, and `oxp_error **err` last.
 *
 * ERRORS. Most functions return an oxp_status: OXP_OK (0) or a negative OXP_ERR_ code.
 * `err` may be NULL; if not, it is set to NULL on success and to an object on failure,
 * which the caller frees with oxp_error_free: code, message, component, port, node, file.
 * Nothing is kept per thread. After a failure there is nothing to free but the error:
 * handles that a function would have made are NULL. Handles stay usable after every error,
 * also after OXP_ERR_INTERNAL, which is a defect of the library. The codes under "Errors:"
 * are those that a function gives beside OXP_ERR_INTERNAL and, for `cancel`,
 * OXP_ERR_INVALID_HANDLE.
 *
 * HANDLES. oxp_session * and its like are no addresses: compare and pass them, nothing
 * else. NULL, a freed handle, and one of another type give OXP_ERR_INVALID_HANDLE. Each
 * object is freed by its own _free, which returns nothing and ignores NULL. Objects keep
 * alive what they need: a pipeline may be freed before its runs. Any order is right.
 *
 * THREADS. Every type says whether it is *shared* (any calls, any threads, at once) or
 * *serial* (one call at a time, on any thread). A call that overlaps another on a serial
 * handle fails with OXP_ERR_BUSY, and so does one from inside of a callback of that call.
 * What a _get_ function borrows is for the caller to keep apart from calls that end it.
 *
 * STRINGS IN are UTF-8, a pointer and a length in bytes; OXP_NUL_TERMINATED as the length
 * means up to the NUL. Paths are UTF-8 too. Arrays may be NULL if their count is 0; any
 * other pointer must not be NULL unless its function says so.
 *
 * STRINGS OUT, and other answers that are cheap to make, are copied: `buffer`, its
 * `capacity`, and `needed`, which is always set to the length (of text: without its NUL,
 * which is added if it fits). Too small a buffer gives OXP_ERR_BUFFER_TOO_SMALL and is left
 * untouched. NULL with capacity 0 asks for the length and succeeds. Borrowed text ends with
 * a NUL and is freed by nobody.
 *
 * TENSORS are dense, row-major, little-endian. Rank 0 is a scalar. byte_len must be exactly
 * the product of the dims times the size of an element. Bytes are never interpreted or
 * converted here. Inputs are borrowed for the call. Data need not be aligned, at the price
 * of a copy. Memory for outputs may be uninitialised, and must not overlap anything else
 * that the call reads or writes.
 *
 *   code  type      bytes   code  type      bytes   code  type          bytes
 *   1     float32   4       6     int32     4       13    uint64        8
 *   2     uint8     1       7     int64     8       16    bfloat16      2
 *   3     int8      1       9     bool      1       17    float8e4m3fn  1
 *   4     uint16    2       10    float16   2       19    float8e5m2    1
 *   5     int16     2       12    uint32    4
 *
 * WORK IS NOT DONE TWICE. A model's outputs are not asked for with a first call and fetched
 * with a second: oxp_session_output_bound tells sizes without running, oxp_session_run
 * writes into the caller's memory, oxp_session_run_alloc into the library's.
 *
 * OPTIONS are keys and values, both strings, set on an oxp_options of the right kind. An
 * unknown key and a bad value are errors that list what is known; none is ignored.
 *
 * CALLBACKS return 0 to go on; anything else ends the call with OXP_ERR_CANCELLED. They are
 * called on the calling thread and must not throw or jump out. No lock is held meanwhile.
 * Only the log callback outlives its call: it comes with a function that frees its data.
 *
 * LONG CALLS take an oxp_cancel, which may be NULL; options limit their time.
 *
 * GROWTH. Functions and constants are only added. A struct that the library fills starts
 * with struct_size, set by the caller to what it was compiled with: a shorter one than the
 * library's gets the part that it has room for, a longer one must be zero in the rest. The
 * tensor structs, and those that come in arrays, never change. Check oxp_abi_version at
 * start-up, and, from other languages, oxp_struct_size. include/oxpipe.abi lists every
 * symbol, layout and constant; a test compares it with the last release.
 *
 * DEPRECATION. What is to go says "Deprecated since VERSION: ..." with what to use in its
 * place, and works on unchanged. Before 1.0 it is left out at the earliest in the second
 * minor version after; from 1.0 on it stays as long as the soname (liboxpipe.so.N) does.
 *
 * THE PROCESS. The library prints nothing, installs no signal or exit handler, opens no
 * connection. It stays loaded after dlclose. ONNX Runtime is loaded when first needed and
 * never unloaded.
 *
 * EXIT. The process may end with handles open: nothing is waited for, and nothing is left
 * behind but memory. It may end, by exit or a return from main, while another thread is
 * inside a call that runs. It must not while one is inside a call that opens or frees what
 * runs on ONNX Runtime: that library's own destructors then take away what the call uses.
 * Let such calls return first (oxp_cancel_request), or end with _exit.
 *
 * FORK. The threads of a process are not in its child, and ONNX Runtime needs its own: a
 * child must not use or free what the parent made with the backend "ort" (such a call hangs
 * or crashes inside ONNX Runtime), nor open anything on it if the parent has loaded it.
 * Sessions, pipelines and runs on "native" may be used in the child if no other thread was
 * inside of a call at the fork; what the parent has run before works on the calling thread
 * alone there. Open after the fork, or end the child with exec or _exit.
 *
 * FILES. Models and their external data are mapped, not read, and stay mapped until the last
 * object that needs them is freed. Put a new version beside such a file and rename it over the
 * old one; what is open goes on with the old one. Do not write into it or cut it off: calls on
 * native components look first, and fail with OXP_ERR_IO from then on, but where a file is cut
 * off while a call reads it, the system ends the process with SIGBUS. With the option
 * "native.model_files" = "read" nothing depends on the files any more once they are open. ONNX
 * Runtime reads a model when it is opened, and maps its external data. A path must name a regular file; a pipe, a device or a
 * folder in its place is an error. Files of a package are refused when a link leads out of
 * the package's folder.
 */
