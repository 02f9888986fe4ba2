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

#ifndef OXPIPE_H
#define OXPIPE_H

#include <stddef.h>
#include <stdint.h>

#if UINTPTR_MAX != UINT64_MAX
#error "oxpipe is for 64-bit systems"
#endif

/** As the length of a string: up to its NUL. */
#define OXP_NUL_TERMINATED UINT64_MAX

/** In oxp_tensor_out.byte_len after oxp_session_output_bound: only a run can tell. */
#define OXP_UNKNOWN_SIZE UINT64_MAX

/**
 * The version of this interface, raised when functions are added. Wrappers ask for at
 * least the version that they were written for.
 */
#define OXP_ABI_VERSION 1

/** Ids of structs for oxp_struct_size. */
#define OXP_STRUCT_TENSOR_IN 1
#define OXP_STRUCT_TENSOR_OUT 2
#define OXP_STRUCT_NAMED_IN 3
#define OXP_STRUCT_NAMED_OUT 4
#define OXP_STRUCT_FILE 5
#define OXP_STRUCT_PORT_INFO 6
#define OXP_STRUCT_SESSION_STATS 7
#define OXP_STRUCT_COMPONENT_INFO 8
#define OXP_STRUCT_PIPELINE_INFO 9
#define OXP_STRUCT_LOAD_PROGRESS 10
#define OXP_STRUCT_EVENT 11
#define OXP_STRUCT_RUN_STATS 12

/** It worked. */
#define OXP_OK 0

/**
 * A defect of the library: a panic was caught. As after any other error, the call did
 * nothing and its handles stay usable. Please report the message.
 */
#define OXP_ERR_INTERNAL -1

/** Memory could not be had. */
#define OXP_ERR_OUT_OF_MEMORY -2

/** A cancel object was requested, or a callback returned something other than 0. */
#define OXP_ERR_CANCELLED -3

/** The time that an option allows has passed. */
#define OXP_ERR_DEADLINE_EXCEEDED -4

/** Understood, but this version or build does not do it. */
#define OXP_ERR_UNSUPPORTED -5

/** An argument has a value that it cannot have; the message names it. */
#define OXP_ERR_INVALID_ARGUMENT -10

/** A pointer is NULL that must not be. */
#define OXP_ERR_NULL_POINTER -11

/** A string is not UTF-8. */
#define OXP_ERR_INVALID_UTF8 -12

/**
 * A buffer is too small; the needed sizes have been set and the buffer of a string is
 * untouched.
 */
#define OXP_ERR_BUFFER_TOO_SMALL -13

/** An option key that these options do not know; the message lists those they know. */
#define OXP_ERR_UNKNOWN_OPTION -14

/** A value that the option cannot have; the message lists what it can have. */
#define OXP_ERR_INVALID_OPTION -15

/** The struct_size of a struct is not one that this library knows. */
#define OXP_ERR_STRUCT_SIZE -16

/** An index is not below the count. */
#define OXP_ERR_OUT_OF_RANGE -17

/** NULL, a freed handle, a handle of another type, or no handle at all. */
#define OXP_ERR_INVALID_HANDLE -20

/** Another call is using this serial handle: another thread, or a callback's caller. */
#define OXP_ERR_BUSY -21

/** The call does not fit what was done with the handle so far. */
#define OXP_ERR_INVALID_STATE -23

/** A tensor's rank, dims, byte_len, data or flags are wrong in themselves. */
#define OXP_ERR_INVALID_TENSOR -30

/** A dtype that does not cross this interface; it is never converted. */
#define OXP_ERR_UNSUPPORTED_DTYPE -31

/** A tensor's dtype is not the one that the port declares. */
#define OXP_ERR_DTYPE_MISMATCH -32

/** A tensor's rank or a static dim is not what the port declares. */
#define OXP_ERR_SHAPE_MISMATCH -33

/** Memory that the call writes overlaps memory that it reads or writes elsewhere. */
#define OXP_ERR_OVERLAP -34

/** The pipeline has no component of that name; the message lists those it has. */
#define OXP_ERR_UNKNOWN_COMPONENT -40

/** There is no port of that name; the message lists those there are. */
#define OXP_ERR_UNKNOWN_PORT -41

/** An input that is needed was not given. */
#define OXP_ERR_MISSING_INPUT -42

/** A file or folder could not be read. */
#define OXP_ERR_IO -50

/** A model is not ONNX, or is damaged. */
#define OXP_ERR_INVALID_MODEL -51

/** A package's metadata is wrong; the message names file, line and key. */
#define OXP_ERR_INVALID_PACKAGE -52

/** The native runtime lacks operators of the model; the message lists them. */
#define OXP_ERR_MISSING_OPERATOR -53

/** A backend cannot be had: not built in, library not found, too old. */
#define OXP_ERR_BACKEND_UNAVAILABLE -60

/** A backend or an operator failed while it ran. */
#define OXP_ERR_RUN_FAILED -61

/** The tokenizer's files are wrong, or it cannot encode or decode this. */
#define OXP_ERR_TOKENIZER -70

/** A chat template does not parse, or failed while it was filled in. */
#define OXP_ERR_CHAT_TEMPLATE -71

/** The grammar of a constraint is wrong or beyond its bounds, or cannot be followed. */
#define OXP_ERR_CONSTRAINT -72

/** What a text has as a call of a tool is none. */
#define OXP_ERR_TOOL_CALL -73

/** An image or a sound cannot be decoded, or not be preprocessed as the package says. */
#define OXP_ERR_INVALID_MEDIA -80

/** Types of elements, with ONNX's numbers (TensorProto.DataType). */
#define OXP_DTYPE_FLOAT32 1
#define OXP_DTYPE_UINT8 2
#define OXP_DTYPE_INT8 3
#define OXP_DTYPE_UINT16 4
#define OXP_DTYPE_INT16 5
#define OXP_DTYPE_INT32 6
#define OXP_DTYPE_INT64 7

/** One byte an element. */
#define OXP_DTYPE_BOOL 9
#define OXP_DTYPE_FLOAT16 10
#define OXP_DTYPE_UINT32 12
#define OXP_DTYPE_UINT64 13
#define OXP_DTYPE_BFLOAT16 16
#define OXP_DTYPE_FLOAT8E4M3FN 17
#define OXP_DTYPE_FLOAT8E5M2 19

/**
 * Options for oxp_runtime_create:
 *   "threads"       the most threads that a component may use, 1 to 1024; default: one a
 *                   core. Native components share them: one that runs while another does
 *                   has the calling thread alone
 *   "ort_library"   path of ONNX Runtime's shared library; default: ORT_DYLIB_PATH, then
 *                   beside liboxpipe, then the system's search path
 *   "trace"         path of a file, made anew, that tells what ran when: calls on runs,
 *                   components with their bytes and threads, and of native ones each
 *                   operator, as Chrome's trace events (open it at ui.perfetto.dev). It is
 *                   closed when nothing uses the runtime any more; one that was not, because
 *                   the process ended before, can be read all the same, without the operators
 *                   of a component that was running. What cannot be written is a warning to
 *                   the logger.
 *                   Default: none
 */
#define OXP_OPTIONS_RUNTIME 1

/**
 * Options for oxp_session_open and oxp_session_open_memory:
 *   "backend"         "auto", "native" or "ort"; default "auto"
 *   "threads"         1 to 1024; default: the runtime's
 *   "name"            what messages call the graph; default: nothing
 *   "load_timeout_ms" milliseconds after which opening fails
 *   "run_timeout_ms"  milliseconds after which each run fails
 *   "native.disable_passes"
 *                     graph passes that the native runtime leaves out: names with commas
 *                     between them, or "all"; default: none. README.md lists them
 *   "native.packed_cache"
 *                     where the native runtime keeps the weights that it packs when it
 *                     loads a model, so that the next start takes them as they are: "off"
 *                     (the default), "beside" (in MODEL.oxpacked, beside the file MODEL;
 *                     an error for what is opened from memory), or the path of a folder,
 *                     with a slash in it. Files that do not fit are written anew; one that
 *                     cannot be written is a warning to the logger
 *   "native.kv_cache_dtype"
 *                     how the native runtime keeps the KV cache: "model" (the default), or
 *                     "int8": float caches [batch, heads, rows, size] of GroupQueryAttention
 *                     become int8 [batch, heads, rows, size + 4], a row its codes and then
 *                     a float32 scale, max |x| / 127; about a quarter of float32's bytes.
 *                     Inputs and outputs are then of that type; other caches stay
 *   "native.model_files"
 *                     "map" (the default): the native runtime uses model files where they lie, and
 *                     a call fails with OXP_ERR_IO once one was written to or cut off; or "read":
 *                     they are read when the model is opened, and may change afterwards
 *   "memory_bytes"    bytes of memory that the session may take, 1 to 2^64 - 1: the sizes of the
 *                     model's files, mapped or not, what the native runtime makes of them (packed
 *                     weights, constants), and in a run what native operators compute on the way and
 *                     outputs in memory of the library, until these are freed. What would go beyond
 *                     fails with OXP_ERR_OUT_OF_MEMORY before the memory is taken. Default: no limit.
 *                     What ONNX Runtime allocates on its own does not count, nor copies of inputs
 *                     that are not aligned
 */
#define OXP_OPTIONS_SESSION 2

/**
 * Options for oxp_pipeline_open and oxp_pipeline_open_memory:
 *   "backend"         for components without an option of their own: "auto", "native" or
 *                     "ort"; default: OXP_NATIVE_STEP_COMPONENTS, then "auto"
 *   "backend.NAME"    for the component NAME
 *   "threads"         1 to 1024; default: the runtime's
 *   "variant"         which graphs of a Hugging Face folder to take: the end of their names,
 *                     "fp16", "q4", "q4f16", "quantized", "int8", "uint8", "bnb4", or "fp32"
 *                     for those without; default: these, or the only ones that there are.
 *                     An error for packages of other formats
 *   "load_timeout_ms" milliseconds after which opening fails
 *   "native.disable_passes"
 *                     as for sessions, for every component
 *   "native.packed_cache"
 *                     as for sessions, for every component
 *   "native.kv_cache_dtype"
 *                     as for sessions, for every component
 *   "native.model_files"
 *                     as for sessions, for every component
 *   "prefix_cache_bytes"
 *                     bytes that may be kept of the KV that runs have computed, 0 to 2^64 - 1: a
 *                     run whose tokens begin as those of another did, with the same inputs, takes
 *                     it instead of running them. The least recently used goes first. Default 0:
 *                     nothing is kept
 *   "memory_bytes"    bytes of memory that the models may take, 1 to 2^64 - 1: the sizes of their
 *                     files, mapped or not, with external data (a file of several components once,
 *                     where it is mapped), and of what the native runtime makes of them (packed
 *                     weights, constants). Opening that would go beyond fails with
 *                     OXP_ERR_OUT_OF_MEMORY before the memory is taken. Default: no limit. What ONNX
 *                     Runtime allocates on its own does not count
 *   "long_texts"      what oxp_pipeline_embed and oxp_pipeline_classify do with a text of more tokens
 *                     than the package reads of one (max_seq_length, the truncation of
 *                     tokenizer.json): "truncate", the default, reads the first of them; "refuse" is
 *                     an error
 */
#define OXP_OPTIONS_PIPELINE 3

/**
 * Options for oxp_run_create:
 *   "max_tokens"      tokens to choose after each append; default: the package's limit. In a
 *                     package of frames of codes, frames
 *   "stop_on_eos"     "true" or "false": whether an end token finishes; default "true"
 *   "chunk_size"      the most prompt tokens that one pass feeds; default: all
 *   "logits"          "last" or "all": the positions of which a pass over several tokens
 *                     keeps the logits, for oxp_run_get_tensor; default "last", the only
 *                     ones that choosing a token needs
 *   "num_steps"       steps of an iterative package's loop, 1 to 100000; default: the
 *                     package's. Not where the package lists the timesteps of its own. Where a
 *                     package has several loops, this and the options below are about the
 *                     last, but "seed" about all
 *   "start_step"      the first step of the loop that runs, 0 to num_steps - 1; default: the
 *                     package's. The loop's input is then what the steps before would have
 *                     made of it, unless "add_noise" makes it so
 *   "add_noise"       "true" or "false": whether what is set at the loop's input is clean, an
 *                     image to be made into another, and gets as much noise as the first step
 *                     that runs begins with; default "false". For packages with a scheduler
 *                     that takes noise back
 *   "guidance_scale"  how far an iterative package's guidance goes, 0 to 1000; 1 is none;
 *                     default: the package's
 *   "seed"            what tokens are drawn from, or the noise of an iterative package with a
 *                     scheduler, 0 to 2^64 - 1; default: the package's, or 0. The same seed
 *                     gives the same tokens and noise, on every system and with any number of
 *                     threads
 *   "timeout_ms"      milliseconds after which a step, generate, forward, finish or
 *                     execute call fails
 *   "max_length"      tokens of prompt and answers together, 1 or more; default: the package's
 *                     limit, if neither it nor "max_tokens" says how many to choose
 *   "stop_strings"    a JSON array of at most 64 strings of 1 to 1024 bytes. A turn is finished
 *                     once its text has come to one of them, wherever tokens begin and end: the
 *                     one that is complete first, of several that end with the same byte the
 *                     longest. Text that may become one is held back until that is certain
 *   "keep_stop_string"
 *                     "true" or "false": whether the stop string is part of the events' text;
 *                     default "false". What the last token says behind it never is
 *   "stop_tokens"     a JSON array of at most 64 arrays of 1 to 64 token ids. A turn is finished
 *                     once its chosen tokens end with one of them, the first such in the list
 *   "skip_special_tokens"
 *                     "true" or "false": whether the text of events is without that of special
 *                     tokens; default "true". Some models write tool calls with special tokens
 *   "json_whitespace" white-space characters that a constraint allows in a row between the parts
 *                     of JSON, 0 to 1000; default 32. Without a bound some models go on with
 *                     white space for ever
 *   "speculation"     "off" (the default), or who guesses tokens, which are fed behind the last one
 *                     and kept as far as they are what the run chooses. The tokens are the same, in
 *                     fewer passes where guesses are right. "prompt_lookup": what followed the last
 *                     tokens when they were there before. "head": the package's own head, an error
 *                     for packages without one. See also oxp_run_set_draft. An error for packages
 *                     whose caches do not go back
 *   "speculation_tokens"
 *                     the most tokens that are guessed for a pass, 1 to 7; default: what the package
 *                     says of its head, where that guesses, else 4
 *   "memory_bytes"    bytes of memory that the run may take, 1 to 2^64 - 1: KV caches, inputs that
 *                     were set, outputs, and what native components compute on the way. A call that
 *                     would go beyond fails with OXP_ERR_OUT_OF_MEMORY before the memory is taken, and
 *                     the run stays as it was. A fork has a limit of its own, and what it shares counts
 *                     for the run that made it. Not counted: what ONNX Runtime allocates on its own,
 *                     tokens and logits on their way, and in oxp_batch_step what joined passes compute
 *                     on the way. Default: no limit
 *   "media_bytes"     bytes of memory that decoding and preprocessing one image or sound may take, 1
 *                     to 4294967296 (4 GiB), the default
 *
 * How tokens are chosen is said by the options below, in packages that choose tokens; what is not
 * set is as the package says, and neutral where it says nothing. Logits go through, in this order:
 * the hook of oxp_run_set_logits_hook, then
 *   "min_length"      no end token before prompt and answer have so many tokens; default 0
 *   "min_new_tokens"  no end token before the answer has so many tokens; default 0
 *   "repetition_penalty"
 *                     0.01 to 100, default 1: once for each token of prompt and answer, x / p
 *                     where the logit x is positive, else x p
 *   "frequency_penalty"
 *                     -100 to 100, default 0: less p times as often as the token is in the
 *                     answer
 *   "presence_penalty"
 *                     -100 to 100, default 0: less p if the token is in the answer
 *   "dry_multiplier"  0 to 100, default 0: a token that would go on with a repetition of n
 *                     tokens, at least "dry_allowed_length" (1 to 50, default 2), less
 *                     multiplier * "dry_base" (1 to 10, default 1.75) ^ (n - allowed length);
 *                     "dry_range": of the last so many tokens, 0 for all, the default;
 *                     "dry_breakers": token ids with commas that end a repetition; default none
 *   "no_repeat_ngram_size"
 *                     0 to 1000, default 0: no sequence of so many tokens twice
 *   "logit_bias"      "id:value,id:value": added to the logits, -10000 to 10000 or -inf
 *   "bad_words"       "5 6,7": sequences of token ids that are never completed
 *   "suppress_tokens" "5,6": token ids that are never chosen
 *   "begin_suppress_tokens"
 *                     the same, as the first of an answer
 * (where what rules tokens out leaves none that a constraint allows, the constraint wins for that
 * token, so that its answers always end) and then the largest is taken, of equals the one with the lowest id. With
 *   "do_sample"       "true" a token is drawn instead. Default: the package's, but "true" if an
 *                     option below is set, which with "false" is an error
 * logits then go through
 *   "temperature"     0 to 100, default 1; 0 takes the largest
 *   "top_k"           0 to 2^32 - 1, default 0, all: the k largest, and what equals the last
 *   "top_p"           0 to 1, default 1: the most probable that together reach it, with the one
 *                     that crosses it
 *   "min_p"           0 to 1, default 0: those of at least p times the largest probability
 *   "typical_p"       0 to 1, default 1: those nearest to the expected surprise that reach it
 *   "top_a"           0 to 1, default 0: those of at least a times the largest probability's
 *                     square
 *   "xtc_probability" 0 to 1, default 0: how often all tokens of at least "xtc_threshold" (0 to
 *                     1, default 0.1) but the least probable of them are left out
 *   "mirostat"        1 or 2, default 0, none; with "mirostat_tau", 0 to 100, default 5, and
 *                     "mirostat_eta", 0 to 1, default 0.1
 * and one is drawn: the first, by ids, at which the probabilities add up to more than a number from
 * 0 to 1 that depends on "seed" and on how many tokens there are before it, and on nothing else
 * (Philox4x32-10; src/generation/random.rs has the counter).
 *   "num_beams"       1 to 64, default 1. Above, oxp_run_generate searches for the most probable
 *                     sequences, greedily, with so many beams; oxp_run_step does not step then.
 *                     "num_return_sequences" (1 to num_beams, default 1) are kept, for
 *                     oxp_run_sequence_copy; a finished one's sum of log p is divided by its
 *                     length ^ "length_penalty" (-100 to 100, default 1); "early_stopping" is
 *                     "true" (as soon as there are as many as beams), "false" (when the best
 *                     beam is no better, the default) or "never" (when none can be better).
 *                     Not together with a constraint, a host's sampler, "logprobs",
 *                     "speculation", "stop_strings" or "stop_tokens": a package's own
 *                     num_beams gives way to the last four, and to drawn tokens.
 *                     "num_beam_groups" 1 and "diversity_penalty" 0 alone: no groups
 *   "logprobs"        0 to 1000: how many of the most probable tokens oxp_run_get_logprobs
 *                     gives for each step; default: none, and not the chosen one's
 */
#define OXP_OPTIONS_RUN 4

/** Log levels. */
#define OXP_LOG_DEBUG 1
#define OXP_LOG_INFO 2
#define OXP_LOG_WARNING 3
#define OXP_LOG_ERROR 4

/** Who runs a graph. */
#define OXP_BACKEND_NATIVE 1
#define OXP_BACKEND_ORT 2

/** In oxp_port_info.flags: the input has a default and may be left out. */
#define OXP_PORT_OPTIONAL 1

/** In oxp_port_info.flags: the graph declares no rank; `rank` is 0 and says nothing. */
#define OXP_PORT_RANK_UNKNOWN 2

/**
 * When a component runs: once for a prompt, at every step, when the final outputs are
 * asked for, or only when the host asks for it.
 */
#define OXP_PHASE_PROMPT_ONLY 1
#define OXP_PHASE_EVERY_STEP 2
#define OXP_PHASE_FINAL_ONLY 3
#define OXP_PHASE_ON_DEMAND 4

/** In oxp_pipeline_info.flags: the package has a tokenizer. */
#define OXP_PIPELINE_HAS_TOKENIZER 1

/** In oxp_pipeline_info.flags: the package has a chat template. */
#define OXP_PIPELINE_HAS_CHAT_TEMPLATE 2

/**
 * Why a run is finished: not yet; an end token was chosen; as many tokens were chosen as
 * were allowed; the sequence is as long as the model takes; a package without a token
 * loop has run, an iterative one all of its steps; the text has come to a stop string; the
 * last tokens are a sequence of "stop_tokens"; the sequence is as long as "max_length" allows;
 * the constraint is complete, and the package has no end token to say so.
 */
#define OXP_FINISH_NONE 0
#define OXP_FINISH_END_OF_TEXT 1
#define OXP_FINISH_MAX_TOKENS 2
#define OXP_FINISH_CONTEXT_FULL 3
#define OXP_FINISH_COMPLETED 4
#define OXP_FINISH_STOP_STRING 5
#define OXP_FINISH_STOP_TOKENS 6
#define OXP_FINISH_MAX_LENGTH 7
#define OXP_FINISH_CONSTRAINT 8

/**
 * What ended oxp_run_generate before the run was finished: a cancel object or the callback; the
 * time that "timeout_ms" allows. The run has the steps that came before, and can go on.
 */
#define OXP_FINISH_CANCELLED 9
#define OXP_FINISH_DEADLINE 10

/** A flag of oxp_event. */
#define OXP_EVENT_FORCED 1

/**
 * What an answer is made to follow: nothing; a JSON object; a JSON Schema (drafts 4 to 2020-12, as
 * far as llguidance reads them); a regular expression (the syntax of Rust's regex crate), which
 * matches the answer as a whole; a context-free grammar in Lark's notation, with llguidance's
 * additions, whose rule `start` is the answer.
 */
#define OXP_CONSTRAINT_NONE 0
#define OXP_CONSTRAINT_JSON 1
#define OXP_CONSTRAINT_JSON_SCHEMA 2
#define OXP_CONSTRAINT_REGEX 3
#define OXP_CONSTRAINT_LARK 4

/**
 * Which probabilities: those of the model's logits under softmax, or those that a token is drawn by,
 * after all processors and samplers (greedy, after all processors).
 */
#define OXP_LOGPROBS_RAW 0
#define OXP_LOGPROBS_PROCESSED 1

/** Roles of special tokens: begin of sequence, end of sequence, padding, unknown, separator. */
#define OXP_TOKEN_BOS 1
#define OXP_TOKEN_EOS 2
#define OXP_TOKEN_PAD 3
#define OXP_TOKEN_UNK 4
#define OXP_TOKEN_SEP 5

/**
 * Runs of one pipeline that are stepped together, so that weights are read once for all of them.
 * Each run has the tokens that it has alone, whoever else is in the batch. Runs join and leave
 * at any time. Shared: any thread, any calls at once, but one oxp_batch_step at a time.
 */
typedef struct oxp_batch oxp_batch;

/**
 * Asks a long call, on whatever thread, to end early with OXP_ERR_CANCELLED. One object
 * may be given to any number of calls. Shared: any thread, any number at once.
 */
typedef struct oxp_cancel oxp_cancel;

/** A Hugging Face chat template (Jinja). Shared: any thread, any number of calls at once. */
typedef struct oxp_chat_template oxp_chat_template;

/**
 * Decodes one token at a time into whole UTF-8 pieces. The pieces, and what a flush gives
 * at the end, put together are the text of all tokens decoded at once. Serial: one call at
 * a time, any thread.
 */
typedef struct oxp_decode_stream oxp_decode_stream;

/**
 * Why a call failed: the code, a message for a person, and which component, port, node
 * and file it is about. Made by the call that failed, owned by its caller. Shared: any
 * thread, any number at once.
 */
typedef struct oxp_error oxp_error;

/**
 * Settings for one kind of object, by key. May be used for any number of objects and
 * freed at once after. Serial: one call at a time, any thread.
 */
typedef struct oxp_options oxp_options;

/** The outputs of one run, by name. Shared: any thread, any number of calls at once. */
typedef struct oxp_outputs oxp_outputs;

/**
 * A package of ONNX graphs, loaded, each on a backend. Shared: any thread, any number of
 * calls at once. Runs of it keep what they need of it.
 */
typedef struct oxp_pipeline oxp_pipeline;

/**
 * One request to a pipeline: its tokens, inputs, values and KV cache. Serial: one call at a
 * time, any thread; a call that overlaps another, or that comes from a callback of one,
 * fails with OXP_ERR_BUSY. A call that fails leaves the run as it was, and usable.
 */
typedef struct oxp_run oxp_run;

/**
 * Threads, the ONNX Runtime library and the logger that sessions and pipelines share;
 * those keep what they need of it. Environment variables are read when it is made, and
 * not again. Shared: any thread, any number of calls at once.
 *
 * Where a function takes a runtime, NULL means a new one with defaults.
 */
typedef struct oxp_runtime oxp_runtime;

/**
 * One ONNX graph, loaded and ready to run. Shared: any thread, any number of calls at
 * once; runs take turns. Between runs it keeps nothing that a caller could observe.
 */
typedef struct oxp_session oxp_session;

/** A Hugging Face tokenizer. Shared: any thread, any number of calls at once. */
typedef struct oxp_tokenizer oxp_tokenizer;

/** What most functions return: OXP_OK, or one of the negative OXP_ERR_ codes. */
typedef int32_t oxp_status;

/**
 * Receives log lines: an OXP_LOG_ level and UTF-8 text of `message_len` bytes that ends
 * with a NUL, borrowed until it returns. Called on any thread, at once from several. It
 * returns nothing, since a log line stops no call.
 */
typedef void (*oxp_log_fn)(void *user_data,
                           uint32_t level,
                           const char *message,
                           uint64_t message_len);

/**
 * Frees what a host gave with a callback that the library keeps: called exactly once, when
 * the library lets go of it, also when the call that should have kept it fails. NULL if
 * there is nothing to free.
 */
typedef void (*oxp_free_fn)(void *user_data);

/**
 * A file in memory, for functions that take an array of them. Frozen: its layout never
 * changes. The bytes are copied during the call.
 */
typedef struct oxp_file {
  /** Its path in the package or beside the model, with `/` between parts. */
  const char *name;
  /** In bytes, or OXP_NUL_TERMINATED. */
  uint64_t name_len;
  const void *data;
  /** Bytes at `data`. */
  uint64_t byte_len;
} oxp_file;

/**
 * An input or output as its graph declares it. All pointers are borrowed until the session
 * or pipeline is freed.
 */
typedef struct oxp_port_info {
  /** Set by the caller: sizeof(oxp_port_info). */
  uint32_t struct_size;
  /** An OXP_DTYPE_ code; 0 if the type does not cross this interface (see `type_name`). */
  uint32_t dtype;
  /** Ends with a NUL. */
  const char *name;
  /** In bytes, without the NUL. */
  uint64_t name_len;
  /** "float32", or what the type is in ONNX's notation, "tensor(string)". Ends with a NUL. */
  const char *type_name;
  /** In bytes, without the NUL. */
  uint64_t type_name_len;
  /** `rank` dims, -1 where the size is not fixed. */
  const int64_t *dims;
  /**
   * `rank` strings that end with a NUL: the names of dims that are not fixed, "" where
   * there is none.
   */
  const char *const *dim_names;
  uint32_t rank;
  /** OXP_PORT_ bits. */
  uint32_t flags;
} oxp_port_info;

/** What a session has done. */
typedef struct oxp_session_stats {
  /** Set by the caller: sizeof(oxp_session_stats). */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** Times that the graph was run, by whatever call. */
  uint64_t runs;
} oxp_session_stats;

/**
 * A tensor to read, 40 bytes: dense, row-major, little-endian elements. As an argument it
 * is borrowed for the call and never kept. As an answer it points into memory of the
 * library, for as long as the function says, and may be handed on as an argument.
 */
typedef struct oxp_tensor_in {
  /** sizeof(oxp_tensor_in); OXP_TENSOR_IN_INIT sets it. */
  uint32_t struct_size;
  /** An OXP_DTYPE_ code. */
  uint32_t dtype;
  /**
   * The first element; may be NULL if there are none. Need not be aligned (at the price
   * of a copy).
   */
  const void *data;
  /** Exactly the product of the dims times the size of an element. */
  uint64_t byte_len;
  /** `rank` dims, none negative; may be NULL if rank is 0. */
  const int64_t *shape;
  /** 0 (a scalar) to 64. */
  uint32_t rank;
  /** 0. */
  uint32_t flags;
} oxp_tensor_in;

/** A named tensor to read, for functions that take an array of them. Frozen. */
typedef struct oxp_named_in {
  const char *name;
  /** In bytes, or OXP_NUL_TERMINATED. */
  uint64_t name_len;
  oxp_tensor_in tensor;
} oxp_named_in;

/** Room of the caller's for a tensor, 48 bytes. The memory may be uninitialised. */
typedef struct oxp_tensor_out {
  /** Set by the caller: sizeof(oxp_tensor_out); OXP_TENSOR_OUT_INIT sets it. */
  uint32_t struct_size;
  /** Set by the library: an OXP_DTYPE_ code. */
  uint32_t dtype;
  /** Where the elements go; NULL if capacity is 0. */
  void *data;
  /** Bytes at `data`. */
  uint64_t capacity;
  /** Set by the library: bytes that the tensor has, written or needed. */
  uint64_t byte_len;
  /** Where the dims go; NULL if shape_capacity is 0. */
  int64_t *shape;
  /** Dims that fit at `shape`. */
  uint32_t shape_capacity;
  /** Set by the library: dims that the tensor has, written or needed. */
  uint32_t rank;
} oxp_tensor_out;

/** Room for a named tensor, for functions that take an array of them. Frozen. */
typedef struct oxp_named_out {
  const char *name;
  /** In bytes, or OXP_NUL_TERMINATED. */
  uint64_t name_len;
  oxp_tensor_out tensor;
} oxp_named_out;

/** How far loading is. */
typedef struct oxp_load_progress {
  /** sizeof(oxp_load_progress) in the library. */
  uint32_t struct_size;
  /** 0. */
  uint32_t reserved;
  /** Components that are loaded. */
  uint64_t done;
  uint64_t total;
  /**
   * The component that comes next, text that ends with a NUL, borrowed until the callback
   * returns; "" at the end.
   */
  const char *component;
  uint64_t component_len;
} oxp_load_progress;

/**
 * Told before each component is loaded, and once at the end, on the calling thread.
 * Returns 0 to go on; anything else ends opening with OXP_ERR_CANCELLED.
 */
typedef int32_t (*oxp_progress_fn)(void *user_data, const oxp_load_progress *progress);

/**
 * What a package is. All pointers are borrowed until the pipeline is freed; text ends with
 * a NUL, lengths are in bytes without it.
 */
typedef struct oxp_pipeline_info {
  /** Set by the caller: sizeof(oxp_pipeline_info). */
  uint32_t struct_size;
  /** OXP_PIPELINE_ bits. */
  uint32_t flags;
  /** "inference_metadata", "genai_config" or "huggingface": what oxp_pipeline_open found. */
  const char *format;
  uint64_t format_len;
  /** The metadata file that was taken. */
  const char *metadata_file;
  uint64_t metadata_file_len;
  /** "autoregressive", "nested_autoregressive", "iterative", "single_pass" or "composite". */
  const char *strategy;
  uint64_t strategy_len;
  /** The component that chooses tokens; "" if there is no token loop. */
  const char *decoder;
  uint64_t decoder_len;
  /** Any of these token ids ends the text. */
  const int32_t *eos_token_ids;
  uint64_t eos_token_id_count;
  /** The most tokens that a sequence may have; 0 if the package does not say. */
  uint64_t context_length;
  /**
   * Bytes of KV cache that one token takes, with that of the package's own head that guesses; 0 if
   * the graphs do not tell.
   */
  uint64_t kv_bytes_per_token;
  uint64_t component_count;
} oxp_pipeline_info;

/**
 * A component of a pipeline. All pointers are borrowed until the pipeline is freed; text
 * ends with a NUL, lengths are in bytes without it.
 */
typedef struct oxp_component_info {
  /** Set by the caller: sizeof(oxp_component_info). */
  uint32_t struct_size;
  /** An OXP_BACKEND_ code: who runs it. */
  uint32_t backend;
  const char *name;
  uint64_t name_len;
  /** The package's word for what it is, "decoder", "vision_encoder"; may be "". */
  const char *component_type;
  uint64_t component_type_len;
  /** Its model, relative to the package. */
  const char *file;
  uint64_t file_len;
  /** Why that backend runs it. */
  const char *reason;
  uint64_t reason_len;
  /** The modality without which it does not run, "image"; "" if there is none. */
  const char *when_present;
  uint64_t when_present_len;
  uint64_t input_count;
  uint64_t output_count;
  /** An OXP_PHASE_ code. */
  uint32_t phase;
  /** 0. */
  uint32_t reserved;
} oxp_component_info;

/** What a step did. */
typedef struct oxp_event {
  /** Set by the caller: sizeof(oxp_event); OXP_EVENT_INIT sets it. */
  uint32_t struct_size;
  /** The chosen token id; -1 if the package has no token loop. */
  int32_t token;
  /** An OXP_FINISH_ code; OXP_FINISH_NONE while there is more to come. */
  uint32_t finish_reason;
  /**
   * With OXP_FINISH_END_OF_TEXT, the token's place in the package's list of end tokens; with
   * OXP_FINISH_STOP_STRING and OXP_FINISH_STOP_TOKENS, the place in the option's list; else -1.
   */
  int32_t finish_index;
  /**
   * UTF-8 text that has become certain with this token, often ""; ends with a NUL. A
   * token may stand for a NUL, so `text_len` says where the text ends.
   * Borrowed until the next call on the run; in a callback, until that returns.
   */
  const char *text;
  /** In bytes, without the NUL. */
  uint64_t text_len;
  /**
   * Natural logarithm of the token's probability under softmax of the logits; 0 without
   * a token.
   */
  float logprob;
  /** OXP_EVENT_FORCED if a constraint left no choice, so that the model was not asked; else 0. */
  uint32_t flags;
  /** Tokens that the host has appended to the run so far. */
  uint64_t prompt_tokens;
  /** Tokens that were chosen in the run so far. */
  uint64_t generated_tokens;
  /** Nanoseconds of this step in components that run once for a prompt. */
  uint64_t prompt_components_ns;
  /** Nanoseconds of this step in every_step components other than the decoder or denoiser. */
  uint64_t step_components_ns;
  /** Nanoseconds of this step in the decoder, or in the denoiser of an iterative package. */
  uint64_t decoder_ns;
  /** Nanoseconds of the whole step. */
  uint64_t total_ns;
  /**
   * In an iterative package, the steps of its loop up to and with this one, those that
   * "start_step" leaves out included; else 0.
   */
  uint32_t loop_step;
  /** The steps of the loop in all; else 0. */
  uint32_t loop_step_count;
  /**
   * What goes from step to step of an iterative package (its "latents"), as this step has
   * made it: `latent_count` tensors, one for each edge of the denoiser to itself, in the
   * order of the package. Borrowed until the next call on the run that changes it; in a
   * callback, until that returns. NULL if there are none.
   */
  const oxp_tensor_in *latents;
  uint64_t latent_count;
  /**
   * The codes of this frame, in a package whose steps are frames of codes (strategy
   * nested_autoregressive): `code_count` of them. NULL and 0 for others, and for the frame
   * whose token ends the speech. Those of all frames are the value "OUTER.output_codes" of the
   * run. Borrowed until the next call on the run; in a callback, until that returns.
   */
  const int64_t *codes;
  uint64_t code_count;
  /**
   * Where `text` begins in the text of the turn, in bytes: the texts of a turn's events follow
   * each other without a gap.
   */
  uint64_t text_offset;
} oxp_event;

/**
 * Told each step of oxp_run_generate, on the calling thread. Returns 0 to go on; anything
 * else ends the call with OXP_ERR_CANCELLED. The step that it was told about has happened.
 * `event` is borrowed until it returns. Calls on the run itself fail with OXP_ERR_BUSY.
 */
typedef int32_t (*oxp_event_fn)(void *user_data, const oxp_event *event);

/**
 * Told what a step of a batch did with one of its runs, on the calling thread. `run` is the handle
 * that was added. `event` is what the step did, or NULL where it failed, for which `error` says why
 * (else NULL); both are borrowed until this returns. Returns 0 to go on; anything else ends the call
 * with OXP_ERR_CANCELLED when all runs have been told of. Calls on the run itself fail with
 * OXP_ERR_BUSY; to add and to remove is fine.
 */
typedef int32_t (*oxp_batch_fn)(void *user_data,
                                oxp_run *run,
                                const oxp_event *event,
                                const oxp_error *error);

/** What a run has done. */
typedef struct oxp_run_stats {
  /** Set by the caller: sizeof(oxp_run_stats). */
  uint32_t struct_size;
  /** An OXP_FINISH_ code: why the run is finished, if it is. */
  uint32_t finish_reason;
  /** Tokens that the host appended. */
  uint64_t prompt_tokens;
  /** Tokens that were chosen. */
  uint64_t generated_tokens;
  /** Times that a component was run, all together. */
  uint64_t component_runs;
  /** Nanoseconds in steps that fed more than one token. */
  uint64_t prefill_ns;
  /** Nanoseconds in steps that fed one token. */
  uint64_t decode_ns;
  /** Bytes that the KV buffers take, in use or reserved, those that forks share included. */
  uint64_t kv_bytes;
  /**
   * Tokens that did not run because another run of the pipeline had begun with them; see
   * "prefix_cache_bytes".
   */
  uint64_t reused_tokens;
  /**
   * Tokens that speculation has proposed, and those of them that the run chose, so that they
   * needed no pass of their own.
   */
  uint64_t proposed_tokens;
  uint64_t accepted_tokens;
  /** Passes of the decoder. */
  uint64_t passes;
} oxp_run_stats;

/**
 * A host's own processor of logits: it may change the `count` logits, one for each token of the
 * vocabulary, before all processors of the library. `tokens` are the run's so far, `token_count` of
 * them. All are borrowed until it returns. Called on the thread of the call that chooses a token.
 * Returns 0 to go on; anything else ends that call with OXP_ERR_CANCELLED, and the run is as it was
 * before the choice. Calls on the run itself fail with OXP_ERR_BUSY.
 */
typedef int32_t (*oxp_logits_fn)(void *user_data,
                                 float *logits,
                                 uint64_t count,
                                 const int32_t *tokens,
                                 uint64_t token_count);

/**
 * A host's own choice of a token, in the place of the library's: `logprobs` are the natural logarithms
 * of the `count` tokens' probabilities after all processors and samplers, -inf for those that are
 * ruled out; `token` gets the token's id. Otherwise as oxp_logits_fn.
 */
typedef int32_t (*oxp_sampler_fn)(void *user_data,
                                  const float *logprobs,
                                  uint64_t count,
                                  const int32_t *tokens,
                                  uint64_t token_count,
                                  int32_t *token);

/** A token id, and the natural logarithm of its probability. */
typedef struct oxp_token_logprob {
  int32_t token;
  float logprob;
} oxp_token_logprob;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/** The OXP_ABI_VERSION that the library was built with. Any thread. */
uint32_t oxp_abi_version(void);

/**
 * The library's version, "0.1.0", into `buffer` of `capacity` bytes; `needed` gets its
 * length without the NUL. Any thread.
 *
 * Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER (`needed`).
 */
oxp_status oxp_version_copy(char *buffer,
                            uint64_t capacity,
                            uint64_t *needed,
                            oxp_error **err);

/**
 * The size in bytes that the library has for the struct with this OXP_STRUCT_ id; 0 for a
 * number that is none. Any thread.
 */
uint32_t oxp_struct_size(uint32_t id);

/**
 * The name of a status code, "OXP_ERR_BUSY"; "unknown status" for a number that is none.
 * A static string, never to be freed. Any thread.
 */
const char *oxp_status_name(int32_t status);

/** The status code that the call returned; OXP_ERR_INVALID_HANDLE if `error` is no error. */
oxp_status oxp_error_get_code(const oxp_error *error);

/**
 * The function that failed, what went wrong, what was found, what was expected and what to do:
 * UTF-8 text that ends with a NUL, borrowed until the error is freed. `len`, which may be NULL, gets its length
 * in bytes without the NUL. "" (never NULL) if `error` is no error.
 */
const char *oxp_error_get_message(const oxp_error *error,
                                  uint64_t *len);

/**
 * The component that the error is about; "" if it is about none. As
 * oxp_error_get_message.
 */
const char *oxp_error_get_component(const oxp_error *error, uint64_t *len);

/**
 * The port (input or output) that the error is about; "" if it is about none. As
 * oxp_error_get_message.
 */
const char *oxp_error_get_port(const oxp_error *error, uint64_t *len);

/**
 * The node of the graph that the error is about; "" if it is about none. As
 * oxp_error_get_message.
 */
const char *oxp_error_get_node(const oxp_error *error, uint64_t *len);

/** The file that the error is about; "" if it is about none. As oxp_error_get_message. */
const char *oxp_error_get_file(const oxp_error *error, uint64_t *len);

/** Frees an error. NULL and what is no live error are ignored. */
void oxp_error_free(oxp_error *error);

/**
 * Bytes of one element of the type with this OXP_DTYPE_ code; 0 for a number that is none.
 * Any thread.
 */
uint64_t oxp_dtype_size(uint32_t dtype);

/**
 * ONNX's name of the type with this OXP_DTYPE_ code in lower case, "float32"; "" for a
 * number that is none. A static string, never to be freed. Any thread.
 */
const char *oxp_dtype_name(uint32_t dtype);

/**
 * Makes a cancel object that is not requested; free it with oxp_cancel_free.
 *
 * Errors: OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_cancel_create(oxp_cancel **cancel, oxp_error **err);

/**
 * Asks the calls that were given `cancel` to end. It stays requested until
 * oxp_cancel_reset: later calls end at once.
 *
 * Errors: OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_cancel_request(oxp_cancel *cancel, oxp_error **err);

/**
 * Makes `cancel` as new.
 *
 * Errors: OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_cancel_reset(oxp_cancel *cancel, oxp_error **err);

/**
 * Sets `requested` to 1 if `cancel` is requested, else to 0.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_cancel_is_requested(const oxp_cancel *cancel,
                                   int32_t *requested,
                                   oxp_error **err);

/**
 * Frees a cancel object; calls that were given it go on as they are. NULL and what is no
 * live cancel object are ignored.
 */
void oxp_cancel_free(oxp_cancel *cancel);

/**
 * Makes options of one kind, an OXP_OPTIONS_ code, all at their defaults; free them with
 * oxp_options_free.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (`kind`), OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_options_create(uint32_t kind, oxp_options **options, oxp_error **err);

/**
 * Sets one option; the last value of a key counts. The value is checked at once, except
 * that only opening a pipeline knows whether it has the component of "backend.NAME".
 *
 * Errors: OXP_ERR_UNKNOWN_OPTION and OXP_ERR_INVALID_OPTION, whose messages list what is
 * known, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8.
 */
oxp_status oxp_options_set(oxp_options *options,
                           const char *key,
                           uint64_t key_len,
                           const char *value,
                           uint64_t value_len,
                           oxp_error **err);

/**
 * Frees options; what was made with them stays. NULL and what is no live options object
 * are ignored.
 */
void oxp_options_free(oxp_options *options);

/**
 * Makes a runtime; free it with oxp_runtime_free. `options`, which may be NULL, are of
 * kind OXP_OPTIONS_RUNTIME. `log` may be NULL; `free_user_data`, which may be NULL too, is
 * called once with `user_data` when nothing can log any more, or when this call fails.
 *
 * Errors: OXP_ERR_NULL_POINTER (`runtime`), OXP_ERR_IO (the file of "trace" cannot be made),
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY and OXP_ERR_INVALID_ARGUMENT (`options`).
 */
oxp_status oxp_runtime_create(const oxp_options *options,
                              oxp_runtime **runtime,
                              oxp_log_fn log,
                              void *user_data,
                              oxp_free_fn free_user_data,
                              oxp_error **err);

/**
 * Sets `built_in` to 1 if this build of the library holds the OXP_BACKEND_ `backend`
 * (a Cargo feature), else to 0. ONNX Runtime itself is looked for only when it is needed.
 * Any thread.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (`backend`), OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_backend_is_built_in(uint32_t backend, int32_t *built_in, oxp_error **err);

/**
 * Frees a runtime; sessions and pipelines made with it live on. NULL and what is no live
 * runtime are ignored.
 */
void oxp_runtime_free(oxp_runtime *runtime);

/**
 * Opens the ONNX model in the file at `path` (UTF-8); external data lies beside it. Free
 * the session with oxp_session_free. `runtime` may be NULL. `options`, which may be NULL,
 * are of kind OXP_OPTIONS_SESSION. `cancel`, which may be NULL, and "load_timeout_ms" are
 * looked at while the native runtime reads files and packs weights, else before and after.
 *
 * Errors: OXP_ERR_IO (no such file, a folder, not readable), OXP_ERR_INVALID_MODEL,
 * OXP_ERR_MISSING_OPERATOR, OXP_ERR_BACKEND_UNAVAILABLE, OXP_ERR_CANCELLED,
 * OXP_ERR_DEADLINE_EXCEEDED, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_INVALID_ARGUMENT and OXP_ERR_BUSY (`options`).
 */
oxp_status oxp_session_open(const oxp_runtime *runtime,
                            const char *path,
                            uint64_t path_len,
                            const oxp_options *options,
                            oxp_session **session,
                            const oxp_cancel *cancel,
                            oxp_error **err);

/**
 * Opens an ONNX model of `model_len` bytes in memory. `external` holds the files that the
 * model's tensors name as external data. All bytes are copied. As oxp_session_open
 * otherwise.
 *
 * Errors: as oxp_session_open, and OXP_ERR_OUT_OF_MEMORY.
 */
oxp_status oxp_session_open_memory(const oxp_runtime *runtime,
                                   const void *model,
                                   uint64_t model_len,
                                   const oxp_file *external,
                                   uint64_t external_count,
                                   const oxp_options *options,
                                   oxp_session **session,
                                   const oxp_cancel *cancel,
                                   oxp_error **err);

/**
 * Frees a session; outputs that it gave live on, a run that is under way on another
 * thread ends as usual. NULL and what is no live session are ignored.
 */
void oxp_session_free(oxp_session *session);

/**
 * How many inputs the graph has.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_session_get_input_count(const oxp_session *session,
                                       uint64_t *count,
                                       oxp_error **err);

/**
 * How many outputs the graph has.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_session_get_output_count(const oxp_session *session,
                                        uint64_t *count,
                                        oxp_error **err);

/**
 * The input at `index`, counted from 0 in the graph's order. What `info` points to is
 * borrowed until the session is freed.
 *
 * Errors: OXP_ERR_OUT_OF_RANGE, OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_HANDLE,
 * OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_session_get_input(const oxp_session *session,
                                 uint64_t index,
                                 oxp_port_info *info,
                                 oxp_error **err);

/**
 * The output at `index`, counted from 0 in the graph's order. As oxp_session_get_input.
 *
 * Errors: as oxp_session_get_input.
 */
oxp_status oxp_session_get_output(const oxp_session *session,
                                  uint64_t index,
                                  oxp_port_info *info,
                                  oxp_error **err);

/**
 * How many entries of metadata the model has: its metadata_props, then producer and so on.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_session_get_metadata_count(const oxp_session *session,
                                          uint64_t *count,
                                          oxp_error **err);

/**
 * The entry of metadata at `index`: `key` and `value` get text that ends with a NUL,
 * borrowed until the session is freed; `key_len` and `value_len`, which may be NULL, get
 * the lengths in bytes without the NUL.
 *
 * Errors: OXP_ERR_OUT_OF_RANGE, OXP_ERR_INVALID_HANDLE,
 * OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_session_get_metadata(const oxp_session *session,
                                    uint64_t index,
                                    const char **key,
                                    uint64_t *key_len,
                                    const char **value,
                                    uint64_t *value_len,
                                    oxp_error **err);

/**
 * Who runs the graph, an OXP_BACKEND_ code, and why, in words: `reason` gets text that
 * ends with a NUL, borrowed until the session is freed, `reason_len`, which may be NULL,
 * its length in bytes without the NUL.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_session_get_backend(const oxp_session *session,
                                   uint32_t *backend,
                                   const char **reason,
                                   uint64_t *reason_len,
                                   oxp_error **err);

/**
 * What the session has done so far.
 *
 * Errors: OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_HANDLE,
 * OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_session_get_stats(const oxp_session *session,
                                 oxp_session_stats *stats,
                                 oxp_error **err);

/**
 * How large the outputs will be for inputs of these dtypes and shapes, without running.
 *
 * Of each input the name, dtype and shape are read, the data is not (it may be NULL). Of
 * each output `tensor.dtype`, `byte_len`, `rank` and, if it fits, `shape` are set;
 * `byte_len` is OXP_UNKNOWN_SIZE and `rank` 0 where only a run can tell. `data` is not
 * touched.
 *
 * Errors: those of the inputs and outputs of oxp_session_run. The shape of an output that
 * does not fit is not an error: `rank` says how many dims it has.
 */
oxp_status oxp_session_output_bound(oxp_session *session,
                                    const oxp_named_in *inputs,
                                    uint64_t input_count,
                                    oxp_named_out *outputs,
                                    uint64_t output_count,
                                    oxp_error **err);

/**
 * Runs the graph on named inputs, in any order, for any subset of its outputs, into the
 * caller's memory.
 *
 * Inputs are read where they lie, unless they are unaligned. An output is written where it
 * shall be, by the kernel itself where the backend can. On success each output's dtype,
 * byte_len, rank and shape are set. If any output's room or shape room is too small, the
 * call fails with OXP_ERR_BUFFER_TOO_SMALL and *every* output's dtype, byte_len and rank
 * are what it needs; where shapes tell that beforehand, nothing was run. After an error the
 * bytes of the outputs are unspecified. `cancel` may be NULL; "run_timeout_ms" counts from
 * the start of the call.
 *
 * Inputs and outputs must not overlap in memory, nor outputs one another.
 *
 * Errors: OXP_ERR_BUFFER_TOO_SMALL; OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_TENSOR,
 * OXP_ERR_UNSUPPORTED_DTYPE for a descriptor; OXP_ERR_UNKNOWN_PORT, OXP_ERR_MISSING_INPUT,
 * OXP_ERR_INVALID_ARGUMENT (a port given twice), OXP_ERR_DTYPE_MISMATCH,
 * OXP_ERR_SHAPE_MISMATCH for what the graph declares; OXP_ERR_OVERLAP;
 * OXP_ERR_RUN_FAILED; OXP_ERR_OUT_OF_MEMORY; OXP_ERR_CANCELLED,
 * OXP_ERR_DEADLINE_EXCEEDED; OXP_ERR_NULL_POINTER; OXP_ERR_INVALID_UTF8;
 * OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_session_run(oxp_session *session,
                           const oxp_named_in *inputs,
                           uint64_t input_count,
                           oxp_named_out *outputs,
                           uint64_t output_count,
                           const oxp_cancel *cancel,
                           oxp_error **err);

/**
 * Runs the graph as oxp_session_run does, into memory of the library: `result` gets an
 * object that holds the outputs; free it with oxp_outputs_free.
 *
 * `output_names` holds `output_count` strings, `output_name_lens` their lengths in bytes;
 * it may be NULL if all of them end with a NUL. NULL names with a count of 0 ask for every
 * output, in the graph's order.
 *
 * Errors: as oxp_session_run, without OXP_ERR_BUFFER_TOO_SMALL and OXP_ERR_OVERLAP.
 */
oxp_status oxp_session_run_alloc(oxp_session *session,
                                 const oxp_named_in *inputs,
                                 uint64_t input_count,
                                 const char *const *output_names,
                                 const uint64_t *output_name_lens,
                                 uint64_t output_count,
                                 oxp_outputs **result,
                                 const oxp_cancel *cancel,
                                 oxp_error **err);

/**
 * How many outputs there are.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_outputs_get_count(const oxp_outputs *outputs,
                                 uint64_t *count,
                                 oxp_error **err);

/**
 * The output at `index`, in the order in which they were asked for. `name` gets text that
 * ends with a NUL, `name_len`, which may be NULL, its length in bytes; `tensor`, whose
 * content before the call does not matter, a view. All is borrowed until the outputs are
 * freed.
 *
 * Errors: OXP_ERR_OUT_OF_RANGE, OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_outputs_get_at(const oxp_outputs *outputs,
                              uint64_t index,
                              const char **name,
                              uint64_t *name_len,
                              oxp_tensor_in *tensor,
                              oxp_error **err);

/**
 * The output of that name; `tensor`, whose content before the call does not matter, gets a
 * view that is borrowed until the outputs are freed.
 *
 * Errors: OXP_ERR_UNKNOWN_PORT, OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_UTF8.
 */
oxp_status oxp_outputs_get(const oxp_outputs *outputs,
                           const char *name,
                           uint64_t name_len,
                           oxp_tensor_in *tensor,
                           oxp_error **err);

/**
 * Frees outputs, and what was borrowed from them. NULL and what are no live outputs are
 * ignored.
 */
void oxp_outputs_free(oxp_outputs *outputs);

/**
 * Opens the package in the folder at `path` (UTF-8) and loads its components. The first of
 * these files says what the package is: inference_metadata.yaml, .yml or .json;
 * genai_config.json, onnxruntime-genai's; config.json beside .onnx files, or with them in
 * onnx/, a Hugging Face export. A file that is there and wrong is an error, not passed over.
 * Free the pipeline with oxp_pipeline_free. `runtime` may be NULL. `options`, which may be NULL, are
 * of kind OXP_OPTIONS_PIPELINE. `progress` may be NULL; it is called on this thread, with
 * `user_data`, only during this call. `cancel` may be NULL.
 *
 * Errors: OXP_ERR_IO, OXP_ERR_INVALID_PACKAGE, OXP_ERR_INVALID_MODEL,
 * OXP_ERR_UNKNOWN_COMPONENT (an option or variable names one that the package lacks),
 * OXP_ERR_MISSING_OPERATOR, OXP_ERR_BACKEND_UNAVAILABLE, OXP_ERR_UNSUPPORTED,
 * OXP_ERR_TOKENIZER, OXP_ERR_CHAT_TEMPLATE, OXP_ERR_CANCELLED,
 * OXP_ERR_DEADLINE_EXCEEDED, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_INVALID_ARGUMENT and OXP_ERR_BUSY (`options`).
 */
oxp_status oxp_pipeline_open(const oxp_runtime *runtime,
                             const char *path,
                             uint64_t path_len,
                             const oxp_options *options,
                             oxp_pipeline **pipeline,
                             oxp_progress_fn progress,
                             void *user_data,
                             const oxp_cancel *cancel,
                             oxp_error **err);

/**
 * Opens a package of `file_count` files in memory, of any format; nothing is read from disk. The bytes
 * are copied. Names are relative: "..", an absolute path and a backslash are refused as
 * OXP_ERR_INVALID_PACKAGE, and so are two names of one file. As oxp_pipeline_open otherwise.
 *
 * Errors: as oxp_pipeline_open, OXP_ERR_OUT_OF_MEMORY, and OXP_ERR_INVALID_ARGUMENT for a
 * file given twice.
 */
oxp_status oxp_pipeline_open_memory(const oxp_runtime *runtime,
                                    const oxp_file *files,
                                    uint64_t file_count,
                                    const oxp_options *options,
                                    oxp_pipeline **pipeline,
                                    oxp_progress_fn progress,
                                    void *user_data,
                                    const oxp_cancel *cancel,
                                    oxp_error **err);

/**
 * What opening the package in the folder at `path` with `options`, which may be NULL, would take, from
 * file sizes, without loading it. Of the options "variant" counts. `weight_bytes`, which may be NULL,
 * gets the bytes of all weights; `buffer` gets JSON, {"weight_bytes": N, "components": [{"name", "file", "weight_bytes"}, ...]}, by
 * the rule of strings out. `runtime` may be NULL.
 *
 * Errors: OXP_ERR_IO, OXP_ERR_INVALID_PACKAGE, OXP_ERR_UNSUPPORTED,
 * OXP_ERR_INVALID_ARGUMENT (options of another kind), OXP_ERR_BUFFER_TOO_SMALL,
 * OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY (the options).
 */
oxp_status oxp_pipeline_estimate_copy(const oxp_runtime *runtime,
                                      const char *path,
                                      uint64_t path_len,
                                      const oxp_options *options,
                                      uint64_t *weight_bytes,
                                      char *buffer,
                                      uint64_t capacity,
                                      uint64_t *needed,
                                      oxp_error **err);

/**
 * Frees a pipeline; its runs, tokenizers and chat templates live on. NULL and what is no
 * live pipeline are ignored.
 */
void oxp_pipeline_free(oxp_pipeline *pipeline);

/**
 * What the package is.
 *
 * Errors: OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_pipeline_get_info(const oxp_pipeline *pipeline,
                                 oxp_pipeline_info *info,
                                 oxp_error **err);

/**
 * The component at `index`, counted from 0 in the package's order. The package's own head that guesses
 * tokens, if it is used, is the last.
 *
 * Errors: OXP_ERR_OUT_OF_RANGE, OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_HANDLE,
 * OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_pipeline_get_component(const oxp_pipeline *pipeline,
                                      uint64_t index,
                                      oxp_component_info *info,
                                      oxp_error **err);

/**
 * The input at `index` of the component with that name. What `info` points to is borrowed
 * until the pipeline is freed.
 *
 * Errors: OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_OUT_OF_RANGE, OXP_ERR_STRUCT_SIZE,
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8.
 */
oxp_status oxp_pipeline_get_input(const oxp_pipeline *pipeline,
                                  const char *component,
                                  uint64_t component_len,
                                  uint64_t index,
                                  oxp_port_info *info,
                                  oxp_error **err);

/**
 * The output at `index` of the component with that name. As oxp_pipeline_get_input.
 *
 * Errors: as oxp_pipeline_get_input.
 */
oxp_status oxp_pipeline_get_output(const oxp_pipeline *pipeline,
                                   const char *component,
                                   uint64_t component_len,
                                   uint64_t index,
                                   oxp_port_info *info,
                                   oxp_error **err);

/**
 * Everything that is known about the pipeline (package, components, ports and where their
 * values come from, phases, backends and reasons, defaults of generation) as JSON, by the rule of strings out.
 *
 * Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_pipeline_describe_copy(const oxp_pipeline *pipeline,
                                      char *buffer,
                                      uint64_t capacity,
                                      uint64_t *needed,
                                      oxp_error **err);

/**
 * Makes a run of a pipeline, without tokens or inputs; free it with oxp_run_free.
 * `options`, which may be NULL, are of kind OXP_OPTIONS_RUN.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_ARGUMENT and
 * OXP_ERR_BUSY (`options`), OXP_ERR_OUT_OF_MEMORY.
 */
oxp_status oxp_run_create(oxp_pipeline *pipeline,
                          const oxp_options *options,
                          oxp_run **run,
                          oxp_error **err);

/** Frees a run. NULL and what is no live run are ignored. */
void oxp_run_free(oxp_run *run);

/**
 * Appends `count` prompt tokens. After a finished answer this starts the next turn. Placeholders of
 * images become the tokens of these; see oxp_run_add_image.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (an id outside of the vocabulary, more tokens than the
 * model takes, in a run with images a placeholder without one), OXP_ERR_INVALID_STATE (nothing
 * reads tokens, or there are tokens of images that were taken back), OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_append_tokens(oxp_run *run,
                                 const int32_t *tokens,
                                 uint64_t count,
                                 oxp_error **err);

/**
 * Encodes and appends text. With `add_special` 1 the tokenizer adds its own special tokens
 * (a rendered chat template has them already), with 0 it does not. `token_count`, which
 * may be NULL, gets how many tokens it became.
 *
 * Errors: OXP_ERR_UNSUPPORTED (no tokenizer), OXP_ERR_TOKENIZER, OXP_ERR_INVALID_UTF8, and
 * as oxp_run_append_tokens.
 */
oxp_status oxp_run_append_text(oxp_run *run,
                               const char *text,
                               uint64_t text_len,
                               int32_t add_special,
                               uint64_t *token_count,
                               oxp_error **err);

/**
 * Feeds what has not run yet, chooses a token and appends it; `event` says what happened.
 * An iterative package takes one step of its loop instead, and finishes with
 * OXP_FINISH_COMPLETED after the last; a package without a loop runs once and finishes so. In a
 * package of strategy nested_autoregressive a step is a frame: the outer decoder's token and the
 * codes that the inner one makes.
 * `cancel` may be NULL.
 *
 * Errors: OXP_ERR_INVALID_STATE (finished, no tokens, or an image without a place among them),
 * OXP_ERR_MISSING_INPUT, OXP_ERR_INVALID_ARGUMENT, OXP_ERR_RUN_FAILED, OXP_ERR_CONSTRAINT (it cannot
 * be followed), OXP_ERR_OUT_OF_MEMORY, OXP_ERR_CANCELLED, OXP_ERR_DEADLINE_EXCEEDED, OXP_ERR_STRUCT_SIZE, OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_step(oxp_run *run,
                        oxp_event *event,
                        const oxp_cancel *cancel,
                        oxp_error **err);

/**
 * Steps until the run is finished. `finish_reason`, which may be NULL, gets an OXP_FINISH_
 * code; when the call fails, OXP_FINISH_CANCELLED or OXP_FINISH_DEADLINE if that ended it, else
 * OXP_FINISH_NONE. `on_event`, which may be NULL, is told each step. `cancel` may be NULL; "timeout_ms"
 * counts over the whole call. With the option "num_beams" above 1 it searches as many beams
 * instead, and then tells the tokens of the best answer; see oxp_run_sequence_copy.
 *
 * Errors: as oxp_run_step. Steps before the failing one have happened.
 */
oxp_status oxp_run_generate(oxp_run *run,
                            uint32_t *finish_reason,
                            oxp_event_fn on_event,
                            void *user_data,
                            const oxp_cancel *cancel,
                            oxp_error **err);

/**
 * Feeds what has not run yet and stops before a token is chosen: look at oxp_run_get_logits
 * and call oxp_run_force_token. `cancel` may be NULL.
 *
 * Errors: as oxp_run_step.
 */
oxp_status oxp_run_forward(oxp_run *run,
                           const oxp_cancel *cancel,
                           oxp_error **err);

/**
 * Makes `token` the choice from the current logits: after oxp_run_forward it is appended,
 * after a step it takes the place of the token that the step chose. `event` says what
 * happened.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (outside of the vocabulary, or not what the constraint allows),
 * OXP_ERR_INVALID_STATE (no logits), OXP_ERR_CONSTRAINT, OXP_ERR_STRUCT_SIZE, OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_force_token(oxp_run *run,
                               int32_t token,
                               oxp_event *event,
                               oxp_error **err);

/**
 * Keeps the first `length` tokens and forgets the others. 0 starts over; inputs stay set.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (more than there are), OXP_ERR_INVALID_STATE (nothing
 * reads tokens), OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_rewind(oxp_run *run, uint64_t length, oxp_error **err);

/**
 * Text of the answer that no event has given yet, by the rule of strings out: a stop string may have begun
 * in it, or a character is incomplete, for which U+FFFD stands. It stays held back, and a later event has
 * it if the answer goes on; ask for it where the answer ends here: behind OXP_ERR_CANCELLED,
 * OXP_ERR_DEADLINE_EXCEEDED or a callback that ended the call. Empty once the run is finished, whose last
 * event had it, and in packages whose tokens are no text.
 *
 * Errors: OXP_ERR_TOKENIZER, OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE,
 * OXP_ERR_BUSY.
 */
oxp_status oxp_run_pending_text_copy(oxp_run *run,
                                     char *buffer,
                                     uint64_t capacity,
                                     uint64_t *needed,
                                     oxp_error **err);

/**
 * Runs the final_only components; their outputs are then values of the run. In an iterative
 * package they may run after any step, over what that has made. `cancel` may be NULL.
 *
 * Errors: as oxp_run_step.
 */
oxp_status oxp_run_finish(oxp_run *run,
                          const oxp_cancel *cancel,
                          oxp_error **err);

/**
 * Runs one on_demand component; its outputs are then values of the run. `cancel` may be
 * NULL.
 *
 * Errors: OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_INVALID_STATE (another phase),
 * OXP_ERR_INVALID_UTF8, and as oxp_run_step.
 */
oxp_status oxp_run_execute(oxp_run *run,
                           const char *component,
                           uint64_t component_len,
                           const oxp_cancel *cancel,
                           oxp_error **err);

/**
 * Makes the tokens that are chosen from now on follow a grammar from its beginning, an
 * OXP_CONSTRAINT_ kind with its text; OXP_CONSTRAINT_NONE lets the model go its own way again.
 * May be called at any time, in the middle of an answer too. `text` may be NULL for
 * OXP_CONSTRAINT_NONE and OXP_CONSTRAINT_JSON.
 *
 * After another append the answer follows the grammar from the beginning again; a rewind takes the
 * grammar back too. Special and added tokens are never part of the answer, unless a Lark grammar
 * names them (`<|name|>`). An end token is allowed where the grammar may end, and is all that is
 * allowed where it must; in a run without one ("stop_on_eos" "false", or a package that has none)
 * OXP_FINISH_CONSTRAINT finishes it there. Where the grammar leaves one way to go on, its tokens
 * are chosen without the model, a step each (OXP_EVENT_FORCED), and fed together with the next that
 * asks it.
 *
 * The text is at most 1 MiB, and what the grammar may cost is bounded. A call takes some
 * milliseconds, and the first of a pipeline some tenths of a second more.
 *
 * Errors: OXP_ERR_CONSTRAINT (the grammar is wrong; the message says where), OXP_ERR_INVALID_STATE
 * (the package chooses no tokens), OXP_ERR_UNSUPPORTED (they have no text),
 * OXP_ERR_INVALID_ARGUMENT (`kind`), OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_set_constraint(oxp_run *run,
                                  uint32_t kind,
                                  const char *text,
                                  uint64_t text_len,
                                  oxp_error **err);

/**
 * Makes a run that goes on from where `run` is, with its tokens, inputs, values, constraint and options; free
 * it with oxp_run_free. Both then go their own ways, each by the tokens that it would have had
 * alone: drawn ones too, unless one of them is given another seed (oxp_run_set_seed). It takes next to no time and memory: KV, states, inputs and outputs are shared until one
 * of the runs writes to them. The hook and the sampler of a host (oxp_run_set_logits_hook) stay with
 * `run` alone. The first step of whichever run steps first copies its KV; the other
 * keeps what there was.
 *
 * Errors: OXP_ERR_OUT_OF_MEMORY, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_fork(oxp_run *run,
                        oxp_run **fork,
                        oxp_error **err);

/**
 * Draws tokens from the numbers of another seed from now on, as a run made with the option "seed" does:
 * forks of one run give answers of their own that way. To load a saved state of the run, the options say
 * the new seed.
 *
 * Errors: OXP_ERR_UNSUPPORTED (the package chooses no tokens), OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_set_seed(oxp_run *run,
                            uint64_t seed,
                            oxp_error **err);

/**
 * Has the model of another pipeline guess what this run chooses: a smaller one of the same
 * vocabulary. Its guesses, "speculation_tokens" a pass, are fed behind the run's last token, and kept
 * as far as they are what the run chooses: its tokens are the same, greedy or drawn, in fewer passes.
 * The run keeps the pipeline alive. A loaded run has no draft until it is set again. A KV cache that
 * is looked at between steps may have rows of guesses behind those of the tokens.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (another vocabulary, no token loop, caches that do not go back),
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_set_draft(oxp_run *run,
                             oxp_pipeline *pipeline,
                             oxp_error **err);

/**
 * All that the run is, as bytes: tokens, KV, states, inputs, outputs, its constraint and what its
 * sampler remembers, into
 * `buffer` of `capacity` bytes; `needed` gets their number. Too small a buffer is left untouched;
 * NULL with capacity 0 asks. oxp_run_load makes a run of them. They are checked, but not
 * encrypted, and hold what the conversation was about.
 *
 * Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_save_copy(oxp_run *run,
                             void *buffer,
                             uint64_t capacity,
                             uint64_t *needed,
                             oxp_error **err);

/**
 * Makes a run of what oxp_run_save_copy gave, `state_size` bytes at
 * `state`; free it with oxp_run_free.
 * It goes on by the tokens that the run would have had. The pipeline is of the same package, with
 * caches of the same types; which backends run its components makes no difference. `options`, which
 * may be NULL, are of kind OXP_OPTIONS_RUN and the same as those of the run, but for "max_tokens" and
 * "timeout_ms". Images that were added are there as the inputs that they became; to add another
 * one, clear them and rewind before them.
 *
 * The bytes may come from anywhere: what is cut off, damaged, or of another version, package or
 * setting is an error that says so.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (`state`), OXP_ERR_OUT_OF_MEMORY, and as oxp_run_create.
 */
oxp_status oxp_run_load(oxp_pipeline *pipeline,
                        const oxp_options *options,
                        const void *state,
                        uint64_t state_size,
                        oxp_run **run,
                        oxp_error **err);

/**
 * Makes a batch of runs of a pipeline, without any yet; free it with oxp_batch_free.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_batch_create(oxp_pipeline *pipeline,
                            oxp_batch **batch,
                            oxp_error **err);

/** Frees a batch; its runs stay. NULL and what is no live batch are ignored. */
void oxp_batch_free(oxp_batch *batch);

/**
 * Adds a run of the batch's pipeline: the next step takes it along. It stays the caller's, who may
 * use it between steps as any other; a batch that holds it keeps it alive. From any thread, also while
 * a step is under way.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (a run of another pipeline), OXP_ERR_INVALID_STATE (it is in the
 * batch), OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY (another call uses the run).
 */
oxp_status oxp_batch_add(oxp_batch *batch,
                         oxp_run *run,
                         oxp_error **err);

/**
 * Takes a run out of the batch, also one that was freed. A step that is under way goes on with it,
 * but is its last. From any thread.
 *
 * Errors: OXP_ERR_INVALID_STATE (it is not in the batch), OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_batch_remove(oxp_batch *batch, oxp_run *run, oxp_error **err);

/**
 * How many runs are in the batch.
 *
 * Errors: OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_batch_get_count(oxp_batch *batch, uint64_t *count, oxp_error **err);

/**
 * Takes a step (oxp_run_step) of every run in the batch, and tells of each; `on_step` may be NULL. A
 * run that finishes or fails leaves the batch; the others are not touched by that. One that was
 * cancelled, by "cancel" or by what its hook or sampler returned, stays, and so does one whose own
 * "timeout_ms" is over, which counts without what it waits for others: its prompt ends there and goes
 * on with the next step, while a pass that it takes with others does not end for one of them. Runs that
 * another call is using are left out of this step and stay. `stepped`, which may be NULL, gets how many
 * runs took a step; none in an empty batch. `cancel` may be NULL, and ends the step for all runs, as
 * each is. Steps of a batch are without guesses ("speculation"): one pass has a token of each run.
 *
 * Runs that have one token to feed take the step together. A prompt, which is many, is its run's
 * alone: the others wait for it ("chunk_size" keeps what they wait for short, with a step a chunk
 * no more than with oxp_run_step).
 *
 * Errors: OXP_ERR_BUSY (another step is under way), OXP_ERR_CANCELLED, OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_batch_step(oxp_batch *batch,
                          uint64_t *stepped,
                          oxp_batch_fn on_step,
                          void *user_data,
                          const oxp_cancel *cancel,
                          oxp_error **err);

/**
 * Sets an input that the request brings, "vision_encoder.pixel_values"; it is checked
 * against the port and copied at once. Another value than before makes the components that
 * depend on it run again. An input that the denoiser of an iterative package loops to is
 * what the loop starts from; with a scheduler that may be left to noise, where the port
 * declares its shape. "denoiser.PORT.uncond" sets what stands at the input PORT where
 * guidance leaves the conditioning out (a negative prompt); if it is not set, zeros do for
 * the conditioning. In a package whose positions are a processor's coordinates
 * (pipeline.positions, generation processor_coordinates) the decoder's input for them takes
 * those of the first tokens, "[1, n]" or on three axes "[3, 1, n]"; the others go on from them.
 * With continuation from_grid it may be left to the images that oxp_run_add_image adds.
 *
 * Errors: OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_UNKNOWN_PORT, OXP_ERR_INVALID_ARGUMENT (no
 * "component.port", or an input that the pipeline feeds itself), OXP_ERR_STRUCT_SIZE,
 * OXP_ERR_INVALID_TENSOR, OXP_ERR_UNSUPPORTED_DTYPE, OXP_ERR_DTYPE_MISMATCH,
 * OXP_ERR_SHAPE_MISMATCH, OXP_ERR_OUT_OF_MEMORY, OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_set_input(oxp_run *run,
                             const char *address,
                             uint64_t address_len,
                             const oxp_tensor_in *tensor,
                             oxp_error **err);

/**
 * Takes an input back that oxp_run_set_input has set.
 *
 * Errors: OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_UNKNOWN_PORT, OXP_ERR_INVALID_ARGUMENT,
 * OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_clear_input(oxp_run *run,
                               const char *address,
                               uint64_t address_len,
                               oxp_error **err);

/**
 * A value of the run, "component.port": an output as it was last computed, or an input
 * that was set; at an input that the denoiser of an iterative package loops to, what the
 * last step has made for it. `tensor`, whose content before the call does not matter, gets a view
 * without a copy, borrowed until the next call on the run that changes it, or until the
 * run is freed.
 *
 * Errors: OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_UNKNOWN_PORT, OXP_ERR_INVALID_ARGUMENT (no
 * "component.port"), OXP_ERR_INVALID_STATE (no value yet), OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_get_tensor(oxp_run *run,
                              const char *address,
                              uint64_t address_len,
                              oxp_tensor_in *tensor,
                              oxp_error **err);

/**
 * Copies a value of the run, "component.port", into the caller's memory.
 *
 * Errors: OXP_ERR_BUFFER_TOO_SMALL (dtype, byte_len and rank are what the value needs),
 * OXP_ERR_OVERLAP (data and shape), OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_TENSOR, and as
 * oxp_run_get_tensor.
 */
oxp_status oxp_run_copy_tensor(oxp_run *run,
                               const char *address,
                               uint64_t address_len,
                               oxp_tensor_out *tensor,
                               oxp_error **err);

/**
 * The logits of the last position that ran, float32, one for each token of the vocabulary:
 * what the last step chose from. `logits` is borrowed until the next call on the run that
 * changes it, or until the run is freed; `count` gets their number.
 *
 * Errors: OXP_ERR_INVALID_STATE (nothing ran yet, or no token loop), OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_get_logits(oxp_run *run,
                              const float **logits,
                              uint64_t *count,
                              oxp_error **err);

/**
 * All token ids of the run, appended and chosen, into `buffer` of `capacity` ids; `needed`
 * gets their number. Too small a buffer is left untouched; NULL with capacity 0 asks.
 *
 * Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE,
 * OXP_ERR_BUSY.
 */
oxp_status oxp_run_tokens_copy(oxp_run *run,
                               int32_t *buffer,
                               uint64_t capacity,
                               uint64_t *needed,
                               oxp_error **err);

/**
 * What the run has done so far, and whether it is finished.
 *
 * Errors: OXP_ERR_STRUCT_SIZE, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE,
 * OXP_ERR_BUSY.
 */
oxp_status oxp_run_get_stats(oxp_run *run,
                             oxp_run_stats *stats,
                             oxp_error **err);

/**
 * Sets the host's processor of logits, which acts on each choice of a token from now on; NULL takes
 * the one away that there is. `free_user_data`, which may be NULL, is called once with `user_data`
 * when another is set, when the run is freed, or when this call fails.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_set_logits_hook(oxp_run *run,
                                   oxp_logits_fn hook,
                                   void *user_data,
                                   oxp_free_fn free_user_data,
                                   oxp_error **err);

/**
 * Sets the host's sampler, which makes each choice of a token from now on; NULL takes the one away
 * that there is. `free_user_data` as in oxp_run_set_logits_hook. A token that it gives outside of the
 * vocabulary is OXP_ERR_INVALID_ARGUMENT of the call that chooses.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_set_sampler(oxp_run *run,
                               oxp_sampler_fn sampler,
                               void *user_data,
                               oxp_free_fn free_user_data,
                               oxp_error **err);

/**
 * The probabilities of the last token that was chosen, of an OXP_LOGPROBS_ kind, in a run with the
 * option "logprobs". `logprob`, which may be NULL, gets the chosen token's. `top` gets as many of the
 * most probable tokens as the option says, or as are left, descending, among equals the lowest id
 * first; `count` gets their number. Borrowed until the next call on the run that changes it, or until
 * the run is freed.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (`distribution`), OXP_ERR_INVALID_STATE (the option is not set, or the
 * last token is none that the run has just chosen: it was appended, forced, or uncovered by a rewind), OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_get_logprobs(oxp_run *run,
                                uint32_t distribution,
                                float *logprob,
                                const oxp_token_logprob **top,
                                uint64_t *count,
                                oxp_error **err);

/**
 * How many sequences the last beam search of the run found: of "num_beams" above 1, which
 * oxp_run_generate searches. 0 before one.
 *
 * Errors: OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_get_sequence_count(oxp_run *run, uint64_t *count, oxp_error **err);

/**
 * One of the sequences that the last beam search of the run found, the best being number 0, which is
 * the run's answer: the ids of the answer, an end token included, into `buffer` of `capacity` ids;
 * `needed` gets their number. Too small a buffer is left untouched; NULL with capacity 0 asks.
 * `score`, which may be NULL, gets the sum of the logarithms of its tokens' probabilities, divided by
 * its length to the power of "length_penalty".
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (`index`), OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_sequence_copy(oxp_run *run,
                                 uint64_t index,
                                 int32_t *buffer,
                                 uint64_t capacity,
                                 uint64_t *needed,
                                 double *score,
                                 oxp_error **err);

/**
 * Adds an image to those of the run: a JPEG, PNG, WebP or BMP file of `data_len` bytes at
 * `data`, which are read during the call and may go behind it. It is decoded to red, green and
 * blue of 8 bits and turned as its Exif or XMP notes say; transparency and colour profiles are
 * left out, and of an animation the first picture is taken.
 *
 * What the package makes of all images of the run together (preprocessing.image, or a
 * preprocessor_config.json) is set at the inputs of components that it names, as
 * oxp_run_set_input would; oxp_pipeline_describe_copy says under "images" which these are, to what
 * size images are brought and which tokens they come to, and oxp_run_get_tensor shows the
 * values. As with other inputs, components that depend on them run again.
 *
 * Images stay with the run until oxp_run_clear_images. They come in the order of their
 * placeholders in the prompt, and before it: where the package says what stands for an image
 * (pipeline.vision, or image_token_id and the number of tokens in a config.json), each placeholder
 * in text and tokens that are appended behind this call becomes the tokens of the next image. Once
 * the run has an image, a placeholder without one is an error of the call that appends it, and an
 * image without a placeholder is one of the next step; without any image placeholders stay as they
 * are, and are tokens as others.
 *
 * An image has at most 2^26 pixels and 65,535 on a side, and what a package makes of the images
 * takes at most 4 GiB; more is refused before it is made. `cancel`, which may be NULL, and
 * "timeout_ms" of the run end the call within some dozen milliseconds. Large JPEG and WebP files
 * are decoded on a thread of their own, which may go on for a second behind such an end. A call
 * that fails or is ended leaves the run and its images as they were. One thread may
 * use a run at a time; `cancel` may be requested from any.
 *
 * Errors: OXP_ERR_UNSUPPORTED (the package does not say what becomes of images; set the tensors
 * with oxp_run_set_input), OXP_ERR_INVALID_MEDIA (no such file, damaged, too large, or not to be
 * preprocessed with the images before), OXP_ERR_SHAPE_MISMATCH (an input does not take what the
 * package makes), OXP_ERR_OUT_OF_MEMORY, OXP_ERR_CANCELLED, OXP_ERR_DEADLINE_EXCEEDED,
 * OXP_ERR_NULL_POINTER (`run`, or `data` with a length), OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_add_image(oxp_run *run,
                             const void *data,
                             uint64_t data_len,
                             const oxp_cancel *cancel,
                             oxp_error **err);

/**
 * As oxp_run_add_image, of an image that is decoded: `height` rows from the top of `width` pixels
 * each, uint8 [height, width, 3] without gaps, red, green and blue from 0 to 255. `pixels_len` is
 * its bytes, width * height * 3; they are copied during the call and may go behind it.
 *
 * Errors: OXP_ERR_INVALID_MEDIA (also `pixels_len` other than width * height * 3, or a side of
 * 0), and as oxp_run_add_image.
 */
oxp_status oxp_run_add_image_rgb(oxp_run *run,
                                 const void *pixels,
                                 uint64_t pixels_len,
                                 uint64_t width,
                                 uint64_t height,
                                 const oxp_cancel *cancel,
                                 oxp_error **err);

/**
 * Takes all images of the run back, and the values that they have set. Their tokens stay, and the
 * run may go on with these and without images. For other images, go back before the tokens with
 * oxp_run_rewind and append a prompt with placeholders again: as long as tokens of images that were
 * taken back are there, appending and running with others is OXP_ERR_INVALID_STATE. Without
 * images nothing happens.
 *
 * Errors: OXP_ERR_UNSUPPORTED (the package does not say what becomes of images),
 * OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_clear_images(oxp_run *run, oxp_error **err);

/**
 * Gives the run a sound, in the place of the one that it has: a WAV (PCM of 8 to 32 bits, floats of
 * 32 or 64), FLAC or MP3 file of `data_len` bytes at `data`, which are read during the call and
 * may go behind it. Up to 255 channels are mixed down to one, their mean, and the package
 * resamples to its own rate. Of an MP3 that is cut off it is the sound of the whole frames.
 *
 * What the package makes of it (preprocessing.audio, a preprocessor_config.json or an
 * audio_processor_config.json) is set at the inputs of components that it names, as
 * oxp_run_set_input would; oxp_pipeline_describe_copy says under "audio" which these are and what
 * rate in Hz the model takes. It stays until another sound or oxp_run_clear_audio. What is longer
 * than the model takes is cut or refused, as the package says.
 *
 * A sound has at most 2^28 samples of each channel and a rate from 1 to 1,000,000 Hz. `cancel`, memory, threads and
 * failures are as with oxp_run_add_image.
 *
 * Errors: OXP_ERR_UNSUPPORTED (the package does not say what becomes of sound),
 * OXP_ERR_INVALID_MEDIA (no such file, damaged, too long, or not to be preprocessed), and the
 * others of oxp_run_add_image.
 */
oxp_status oxp_run_set_audio(oxp_run *run,
                             const void *data,
                             uint64_t data_len,
                             const oxp_cancel *cancel,
                             oxp_error **err);

/**
 * As oxp_run_set_audio, of a sound that is decoded: `sample_count` floats at `samples`, float32
 * [sample_count / channels, channels], about -1 to 1: the first sample of each channel, the second of
 * each, and so on. `sample_count` counts those of all channels, from 1 to 255 `channels`;
 * `sample_rate` is how many each has in a second, in Hz. They are copied during the call and may
 * go behind it.
 *
 * Errors: OXP_ERR_INVALID_MEDIA (also 0 channels, a rate of 0, or a `sample_count` that is no
 * multiple of the channels), and as oxp_run_set_audio.
 */
oxp_status oxp_run_set_audio_samples(oxp_run *run,
                                     const float *samples,
                                     uint64_t sample_count,
                                     uint32_t channels,
                                     uint32_t sample_rate,
                                     const oxp_cancel *cancel,
                                     oxp_error **err);

/**
 * Takes the sound of the run back, and the values that it has set; tokens stay. Without a sound
 * nothing happens.
 *
 * Errors: OXP_ERR_UNSUPPORTED (the package does not say what becomes of sound),
 * OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_run_clear_audio(oxp_run *run, oxp_error **err);

/**
 * Opens a `tokenizer.json` at `path` (UTF-8), and `tokenizer_config.json` beside it for the
 * roles of special tokens, if that is there. Free it with oxp_tokenizer_free.
 *
 * Errors: OXP_ERR_IO, OXP_ERR_TOKENIZER, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8.
 */
oxp_status oxp_tokenizer_open(const char *path,
                              uint64_t path_len,
                              oxp_tokenizer **tokenizer,
                              oxp_error **err);

/**
 * As oxp_tokenizer_open, from the bytes of `tokenizer.json` and of `tokenizer_config.json`;
 * `config` may be NULL if there is none. They are not kept.
 *
 * Errors: OXP_ERR_TOKENIZER, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_tokenizer_open_memory(const void *json,
                                     uint64_t json_len,
                                     const void *config,
                                     uint64_t config_len,
                                     oxp_tokenizer **tokenizer,
                                     oxp_error **err);

/**
 * The tokenizer of a pipeline's package, as a handle of its own: free it with
 * oxp_tokenizer_free, before or after the pipeline.
 *
 * Errors: OXP_ERR_UNSUPPORTED (the package has none), OXP_ERR_INVALID_HANDLE,
 * OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_tokenizer_open_pipeline(const oxp_pipeline *pipeline,
                                       oxp_tokenizer **tokenizer,
                                       oxp_error **err);

/**
 * Frees a tokenizer; its decode streams live on. NULL and what is no live tokenizer are
 * ignored.
 */
void oxp_tokenizer_free(oxp_tokenizer *tokenizer);

/**
 * Token ids of UTF-8 text, into `ids` of `capacity` ids; `needed` gets their number. Too
 * small a buffer is left untouched; NULL with capacity 0 asks. With `add_special` 1 the
 * tokenizer adds its own special tokens, with 0 it does not.
 *
 * Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_TOKENIZER, OXP_ERR_INVALID_ARGUMENT,
 * OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_tokenizer_encode_copy(const oxp_tokenizer *tokenizer,
                                     const char *text,
                                     uint64_t text_len,
                                     int32_t add_special,
                                     int32_t *ids,
                                     uint64_t capacity,
                                     uint64_t *needed,
                                     oxp_error **err);

/**
 * Text of `count` token ids, by the rule of strings out. With `skip_special` 1 special
 * tokens are left out.
 *
 * Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_TOKENIZER (an id outside of the vocabulary),
 * OXP_ERR_INVALID_ARGUMENT, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_tokenizer_decode_copy(const oxp_tokenizer *tokenizer,
                                     const int32_t *ids,
                                     uint64_t count,
                                     int32_t skip_special,
                                     char *buffer,
                                     uint64_t capacity,
                                     uint64_t *needed,
                                     oxp_error **err);

/**
 * How many tokens have an id, added ones included.
 *
 * Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_tokenizer_get_vocab_size(const oxp_tokenizer *tokenizer,
                                        uint64_t *size,
                                        oxp_error **err);

/**
 * The token with a role, an OXP_TOKEN_ code: `id` gets its id, or -1 if there is none;
 * `text`, which may be NULL, its text that ends with a NUL, borrowed until the tokenizer is
 * freed, "" if there is none; `text_len`, which may be NULL, the length in bytes.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (`role`), OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_tokenizer_get_special(const oxp_tokenizer *tokenizer,
                                     uint32_t role,
                                     int32_t *id,
                                     const char **text,
                                     uint64_t *text_len,
                                     oxp_error **err);

/**
 * The text of one token as the vocabulary writes it, by the rule of strings out.
 *
 * Errors: OXP_ERR_OUT_OF_RANGE (no such id), OXP_ERR_BUFFER_TOO_SMALL,
 * OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_tokenizer_token_copy(const oxp_tokenizer *tokenizer,
                                    int32_t id,
                                    char *buffer,
                                    uint64_t capacity,
                                    uint64_t *needed,
                                    oxp_error **err);

/**
 * The id of a token as the vocabulary writes it: `id` gets it, or -1 if there is none.
 *
 * Errors: OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_tokenizer_find_token(const oxp_tokenizer *tokenizer,
                                    const char *token,
                                    uint64_t token_len,
                                    int32_t *id,
                                    oxp_error **err);

/**
 * Sets `special` to 1 if decoding with `skip_special` leaves the token out, else to 0.
 *
 * Errors: OXP_ERR_OUT_OF_RANGE (no such id), OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_tokenizer_is_special(const oxp_tokenizer *tokenizer,
                                    int32_t id,
                                    int32_t *special,
                                    oxp_error **err);

/**
 * Makes a decode stream of a tokenizer; free it with oxp_decode_stream_free. With
 * `skip_special` 1 special tokens give no text.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT, OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_decode_stream_create(const oxp_tokenizer *tokenizer,
                                    int32_t skip_special,
                                    oxp_decode_stream **stream,
                                    oxp_error **err);

/**
 * Adds a token: `text` gets the text that has become certain with it, ending with a NUL,
 * "" while a character is incomplete, borrowed until the next call on the stream;
 * `text_len`, which may be NULL, its length in bytes. A token may stand for a NUL, so the
 * length says where the text ends.
 *
 * Errors: OXP_ERR_TOKENIZER (an id outside of the vocabulary), OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_decode_stream_push(oxp_decode_stream *stream,
                                  int32_t id,
                                  const char **text,
                                  uint64_t *text_len,
                                  oxp_error **err);

/**
 * Ends the text: `text` gets what was held back, incomplete characters as U+FFFD. The
 * stream is then as new. As oxp_decode_stream_push.
 *
 * Errors: OXP_ERR_TOKENIZER, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_decode_stream_flush(oxp_decode_stream *stream,
                                   const char **text,
                                   uint64_t *text_len,
                                   oxp_error **err);

/**
 * Of which part of the whole text the last answer is, and of which tokens: `offset` gets the bytes
 * of text before it, `first` how many tokens were pushed before the first of those whose text it
 * is, `count` how many these are, special ones between them included, 0 if the answer was "". Of
 * several tokens that make one character, or of a run of SentencePiece's byte tokens, no one has a
 * part of the text to itself. After a flush it is about what that gave;
 * then the text and the tokens count from 0.
 *
 * Errors: OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
 */
oxp_status oxp_decode_stream_get_span(oxp_decode_stream *stream,
                                      uint64_t *offset,
                                      uint64_t *first,
                                      uint64_t *count,
                                      oxp_error **err);

/** Frees a decode stream. NULL and what is no live stream are ignored. */
void oxp_decode_stream_free(oxp_decode_stream *stream);

/**
 * Parses a template. `tokenizer`, which may be NULL, gives the special tokens that the
 * template may write (bos_token, eos_token, ...). Free it with oxp_chat_template_free.
 *
 * What a template can do is bounded, so that one from anywhere may be used: 128 KiB of
 * source, 4096 operators, names and values in a tag and 1000 elif; when it is rendered,
 * 4,000,000 steps, 200 lists or dicts inside of each other, 200,000 values or 64 MiB of
 * text in one, and 16 MiB of prompt. Beyond that it is an error.
 *
 * Errors: OXP_ERR_CHAT_TEMPLATE, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
 * OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_chat_template_create(const char *source,
                                    uint64_t source_len,
                                    const oxp_tokenizer *tokenizer,
                                    oxp_chat_template **chat_template,
                                    oxp_error **err);

/**
 * The chat template of a pipeline's package, as a handle of its own: free it with
 * oxp_chat_template_free, before or after the pipeline.
 *
 * Errors: OXP_ERR_UNSUPPORTED (the package has none), OXP_ERR_INVALID_HANDLE,
 * OXP_ERR_NULL_POINTER.
 */
oxp_status oxp_chat_template_open_pipeline(const oxp_pipeline *pipeline,
                                           oxp_chat_template **chat_template,
                                           oxp_error **err);

/** Frees a chat template. NULL and what is no live chat template are ignored. */
void oxp_chat_template_free(oxp_chat_template *chat_template);

/**
 * The prompt of a conversation, by the rule of strings out. All arguments are JSON text:
 * `messages` an array of {"role": ..., "content": ...}; `tools`, which may be NULL, an
 * array; `extra`, which may be NULL, an object of further template variables, which win
 * over the others. With `add_generation_prompt` 1 the text ends with the opening of the
 * assistant's answer. Append it with `add_special` 0: the special tokens are in it.
 *
 * Errors: OXP_ERR_CHAT_TEMPLATE (the template raised an error or went beyond its bounds),
 * OXP_ERR_INVALID_ARGUMENT (not such JSON), OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_chat_template_render_copy(const oxp_chat_template *chat_template,
                                         const char *messages,
                                         uint64_t messages_len,
                                         const char *tools,
                                         uint64_t tools_len,
                                         const char *extra,
                                         uint64_t extra_len,
                                         int32_t add_generation_prompt,
                                         char *buffer,
                                         uint64_t capacity,
                                         uint64_t *needed,
                                         oxp_error **err);

/**
 * The calls of tools in an answer, as JSON, by the rule of strings out:
 * {"format": "hermes", "content": text outside of calls, "tool_calls": [{"type": "function",
 * "function": {"name": "f", "arguments": {...}}}], "complete": true}. A call has an "id" if the
 * model gave one. An object of "role" "assistant" with the content and the calls is a message for
 * oxp_chat_template_render_copy.
 *
 * `format`, which may be NULL, is how the model writes calls: "hermes" (Hermes, Qwen), "llama3",
 * "pythonic" (Llama 3.2 and 4), "mistral", "deepseek", "function_tag" (Functionary 3.1),
 * "functionary" (3.2), "glm" (4.5 and later). Without it `chat_template`, which may be NULL, shows it, and without that
 * the text does, or there are no calls: "format" is then null. Some models write calls with
 * special tokens: make runs with "skip_special_tokens" "false" for them.
 *
 * Qwen3-Coder and GLM write arguments as plain text. What is JSON is taken for that, so that a string
 * "007" is the number 7: oxp_tool_calls_parse_with_tools_copy knows the types.
 *
 * With `finished` 0 the text may go on: while it ends inside of a call, "complete" is false and
 * that call is not there yet, nor is an end that may begin one in the content.
 *
 * Errors: OXP_ERR_TOOL_CALL (what begins as a call is none), OXP_ERR_INVALID_ARGUMENT (`format`,
 * `finished`), OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
 * OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_tool_calls_parse_copy(const oxp_chat_template *chat_template,
                                     const char *format,
                                     uint64_t format_len,
                                     const char *text,
                                     uint64_t text_len,
                                     int32_t finished,
                                     char *buffer,
                                     uint64_t capacity,
                                     uint64_t *needed,
                                     oxp_error **err);

/**
 * As oxp_tool_calls_parse_copy, of a conversation with `tools`: the JSON array that
 * oxp_chat_template_render_copy took. Arguments that the model wrote as plain text have the types of
 * their tools' schemas (type, enum, const, anyOf, oneOf, allOf, $ref); where a schema allows a string
 * and another type that the text is in JSON, it is the other one. Other arguments are as written.
 *
 * Errors: as oxp_tool_calls_parse_copy, and OXP_ERR_INVALID_ARGUMENT for `tools` that are no array of
 * tools with names.
 */
oxp_status oxp_tool_calls_parse_with_tools_copy(const oxp_chat_template *chat_template,
                                                const char *format,
                                                uint64_t format_len,
                                                const char *tools,
                                                uint64_t tools_len,
                                                const char *text,
                                                uint64_t text_len,
                                                int32_t finished,
                                                char *buffer,
                                                uint64_t capacity,
                                                uint64_t *needed,
                                                oxp_error **err);

/**
 * The vector of each text, for a package that says how its outputs become one: a
 * sentence-transformers folder, or the section "embedding" of inference_metadata. `texts` are
 * `count` strings, `text_lens` their lengths in bytes; NULL for text_lens means that all end with a
 * NUL. `outputs` gets one output, "embeddings", float32 [count, width]; free it with
 * oxp_outputs_free. Texts are run together, padded, where the graph takes a mask and any number of
 * them, with the results of each alone. Of a text with more tokens than the package says that are
 * read (max_seq_length of a sentence-transformers folder or of the section, else the truncation of
 * tokenizer.json) the first are read, special tokens included; see the option "long_texts" of
 * pipelines. `cancel` may be NULL.
 *
 * Errors: OXP_ERR_INVALID_ARGUMENT (the package does not say how; it says no such number, and a text
 * has more tokens than the model takes), OXP_ERR_INVALID_STATE (a text without tokens), OXP_ERR_UNSUPPORTED (no tokenizer),
 * OXP_ERR_TOKENIZER, OXP_ERR_RUN_FAILED, OXP_ERR_OUT_OF_MEMORY, OXP_ERR_CANCELLED,
 * OXP_ERR_INVALID_UTF8, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_pipeline_embed(const oxp_pipeline *pipeline,
                              const char *const *texts,
                              const uint64_t *text_lens,
                              uint64_t count,
                              oxp_outputs **outputs,
                              const oxp_cancel *cancel,
                              oxp_error **err);

/**
 * The score of each class for each text, for a classifier. As oxp_pipeline_embed; the output is
 * "scores", float32 [count, classes], the classes in the order of oxp_pipeline_label_copy. The
 * scores are probabilities by softmax, or one for each class by sigmoid, or plain numbers, as
 * problem_type says.
 *
 * Errors: as oxp_pipeline_embed.
 */
oxp_status oxp_pipeline_classify(const oxp_pipeline *pipeline,
                                 const char *const *texts,
                                 const uint64_t *text_lens,
                                 uint64_t count,
                                 oxp_outputs **outputs,
                                 const oxp_cancel *cancel,
                                 oxp_error **err);

/**
 * How many classes have names; 0 where the package names none.
 *
 * Errors: OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_pipeline_get_label_count(const oxp_pipeline *pipeline,
                                        uint64_t *count,
                                        oxp_error **err);

/**
 * The name of the class at `index`, by the rule of strings out.
 *
 * Errors: OXP_ERR_OUT_OF_RANGE, OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER,
 * OXP_ERR_INVALID_HANDLE.
 */
oxp_status oxp_pipeline_label_copy(const oxp_pipeline *pipeline,
                                   uint64_t index,
                                   char *buffer,
                                   uint64_t capacity,
                                   uint64_t *needed,
                                   oxp_error **err);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* OXPIPE_H */

/*
 * Initialisers: `oxp_tensor_in x = OXP_TENSOR_IN_INIT;`, then set what you need.
 */

#define OXP_TENSOR_IN_INIT \
  { (uint32_t)sizeof(oxp_tensor_in), 0, NULL, 0, NULL, 0, 0 }

#define OXP_TENSOR_OUT_INIT \
  { (uint32_t)sizeof(oxp_tensor_out), 0, NULL, 0, 0, NULL, 0, 0 }

#define OXP_NAMED_IN_INIT \
  { NULL, 0, OXP_TENSOR_IN_INIT }

#define OXP_NAMED_OUT_INIT \
  { NULL, 0, OXP_TENSOR_OUT_INIT }

#define OXP_FILE_INIT \
  { NULL, 0, NULL, 0 }

#define OXP_PORT_INFO_INIT \
  { (uint32_t)sizeof(oxp_port_info), 0, NULL, 0, NULL, 0, NULL, NULL, 0, 0 }

#define OXP_SESSION_STATS_INIT \
  { (uint32_t)sizeof(oxp_session_stats), 0, 0 }

#define OXP_COMPONENT_INFO_INIT \
  { (uint32_t)sizeof(oxp_component_info), 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, 0, 0, 0, 0 }

#define OXP_PIPELINE_INFO_INIT \
  { (uint32_t)sizeof(oxp_pipeline_info), 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, 0, 0, 0 }

#define OXP_EVENT_INIT \
  { (uint32_t)sizeof(oxp_event), 0, 0, 0, NULL, 0, 0.0f, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, NULL, 0, 0 }

#define OXP_RUN_STATS_INIT \
  { (uint32_t)sizeof(oxp_run_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* The layouts are part of the ABI: a compiler that lays them out otherwise stops here. */
#if defined(__cplusplus) && __cplusplus >= 201103L
#define OXP_LAYOUT_(type, size) static_assert(sizeof(type) == (size), "layout of " #type)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define OXP_LAYOUT_(type, size) _Static_assert(sizeof(type) == (size), "layout of " #type)
#endif
#ifdef OXP_LAYOUT_
OXP_LAYOUT_(oxp_tensor_in, 40);
OXP_LAYOUT_(oxp_tensor_out, 48);
OXP_LAYOUT_(oxp_named_in, 56);
OXP_LAYOUT_(oxp_named_out, 64);
OXP_LAYOUT_(oxp_file, 32);
OXP_LAYOUT_(oxp_port_info, 64);
OXP_LAYOUT_(oxp_session_stats, 16);
OXP_LAYOUT_(oxp_component_info, 112);
OXP_LAYOUT_(oxp_pipeline_info, 112);
OXP_LAYOUT_(oxp_load_progress, 40);
OXP_LAYOUT_(oxp_event, 136);
OXP_LAYOUT_(oxp_run_stats, 88);
#undef OXP_LAYOUT_
#endif
