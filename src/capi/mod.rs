//! The C ABI: every `extern "C"` function, and nothing that computes anything.
//!
//! What lives here: handles and their table (`handle`), the panic boundary (`guard`),
//! status codes and error objects (`status`, `failure`, `error`), how pointers from C are
//! read and written (`strings`, `tensor`, `structs`), and one file for each type of the
//! header. The header `include/oxpipe.h` is generated from these files; its opening
//! comment states the rules that each function relies on.
//!
//! Nothing here is public to Rust: whoever writes Rust uses the modules below.
//!
//! How an exported function is built: one `unsafe` block around one [`guard::guard`] call,
//! inside of which pointers are only touched through the `unsafe fn` helpers. The block's
//! obligation is always the same, so it is stated once, here, as THE CALLER'S PROMISE, and
//! the functions refer to it:
//!
//! * a pointer that is not NULL points to as many bytes as the header says, readable, and
//!   writable where the header says so, for the duration of the call;
//! * no other thread writes what the call reads, or touches what the call writes, meanwhile.
//!
//! Everything else about the arguments is checked: NULL, handles, UTF-8, sizes, dtypes,
//! shapes, overlaps. No alignment is relied on.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("oxpipe's C ABI has fixed 64-bit layouts; build it for a 64-bit target");
#[cfg(target_endian = "big")]
compile_error!("oxpipe's tensors are little-endian; build it for a little-endian target");
#[cfg(panic = "abort")]
compile_error!(
    "oxpipe turns panics into OXP_ERR_INTERNAL at the C boundary; build it with panic = \"unwind\""
);

mod batch;
mod cancel;
mod chat;
mod decode_stream;
mod dtype;
mod error;
mod failure;
mod files;
mod guard;
mod handle;
mod lists;
mod memory;
mod options;
mod outputs;
mod overlap;
mod pipeline;
mod ports;
mod run;
mod run_constraint;
mod run_media;
mod run_states;
mod run_values;
mod runtime;
mod sampling;
mod session;
mod session_run;
mod status;
mod strings;
mod structs;
mod tensor;
mod texts;
#[cfg(all(test, feature = "native"))]
mod threads;
mod tokenizer;
mod version;
