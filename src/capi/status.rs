//! Status codes: stable for ever, grouped in tens.

use std::ffi::c_char;

/// What most functions return: OXP_OK, or one of the negative OXP_ERR_ codes.
pub type oxp_status = i32;

/// It worked.
pub const OXP_OK: i32 = 0;

/// A defect of the library: a panic was caught. As after any other error, the call did
/// nothing and its handles stay usable. Please report the message.
pub const OXP_ERR_INTERNAL: i32 = -1;
/// Memory could not be had.
pub const OXP_ERR_OUT_OF_MEMORY: i32 = -2;
/// A cancel object was requested, or a callback returned something other than 0.
pub const OXP_ERR_CANCELLED: i32 = -3;
/// The time that an option allows has passed.
pub const OXP_ERR_DEADLINE_EXCEEDED: i32 = -4;
/// Understood, but this version or build does not do it.
pub const OXP_ERR_UNSUPPORTED: i32 = -5;

/// An argument has a value that it cannot have; the message names it.
pub const OXP_ERR_INVALID_ARGUMENT: i32 = -10;
/// A pointer is NULL that must not be.
pub const OXP_ERR_NULL_POINTER: i32 = -11;
/// A string is not UTF-8.
pub const OXP_ERR_INVALID_UTF8: i32 = -12;
/// A buffer is too small; the needed sizes have been set and the buffer of a string is
/// untouched.
pub const OXP_ERR_BUFFER_TOO_SMALL: i32 = -13;
/// An option key that these options do not know; the message lists those they know.
pub const OXP_ERR_UNKNOWN_OPTION: i32 = -14;
/// A value that the option cannot have; the message lists what it can have.
pub const OXP_ERR_INVALID_OPTION: i32 = -15;
/// The struct_size of a struct is not one that this library knows.
pub const OXP_ERR_STRUCT_SIZE: i32 = -16;
/// An index is not below the count.
pub const OXP_ERR_OUT_OF_RANGE: i32 = -17;

/// NULL, a freed handle, a handle of another type, or no handle at all.
pub const OXP_ERR_INVALID_HANDLE: i32 = -20;
/// Another call is using this serial handle: another thread, or a callback's caller.
pub const OXP_ERR_BUSY: i32 = -21;
/// The call does not fit what was done with the handle so far.
pub const OXP_ERR_INVALID_STATE: i32 = -23;

/// A tensor's rank, dims, byte_len, data or flags are wrong in themselves.
pub const OXP_ERR_INVALID_TENSOR: i32 = -30;
/// A dtype that does not cross this interface; it is never converted.
pub const OXP_ERR_UNSUPPORTED_DTYPE: i32 = -31;
/// A tensor's dtype is not the one that the port declares.
pub const OXP_ERR_DTYPE_MISMATCH: i32 = -32;
/// A tensor's rank or a static dim is not what the port declares.
pub const OXP_ERR_SHAPE_MISMATCH: i32 = -33;
/// Memory that the call writes overlaps memory that it reads or writes elsewhere.
pub const OXP_ERR_OVERLAP: i32 = -34;

/// The pipeline has no component of that name; the message lists those it has.
pub const OXP_ERR_UNKNOWN_COMPONENT: i32 = -40;
/// There is no port of that name; the message lists those there are.
pub const OXP_ERR_UNKNOWN_PORT: i32 = -41;
/// An input that is needed was not given.
pub const OXP_ERR_MISSING_INPUT: i32 = -42;

/// A file or folder could not be read.
pub const OXP_ERR_IO: i32 = -50;
/// A model is not ONNX, or is damaged.
pub const OXP_ERR_INVALID_MODEL: i32 = -51;
/// A package's metadata is wrong; the message names file, line and key.
pub const OXP_ERR_INVALID_PACKAGE: i32 = -52;
/// The native runtime lacks operators of the model; the message lists them.
pub const OXP_ERR_MISSING_OPERATOR: i32 = -53;

/// A backend cannot be had: not built in, library not found, too old.
pub const OXP_ERR_BACKEND_UNAVAILABLE: i32 = -60;
/// A backend or an operator failed while it ran.
pub const OXP_ERR_RUN_FAILED: i32 = -61;

/// The tokenizer's files are wrong, or it cannot encode or decode this.
pub const OXP_ERR_TOKENIZER: i32 = -70;
/// A chat template does not parse, or failed while it was filled in.
pub const OXP_ERR_CHAT_TEMPLATE: i32 = -71;
/// The grammar of a constraint is wrong or beyond its bounds, or cannot be followed.
pub const OXP_ERR_CONSTRAINT: i32 = -72;
/// What a text has as a call of a tool is none.
pub const OXP_ERR_TOOL_CALL: i32 = -73;

/// An image or a sound cannot be decoded, or not be preprocessed as the package says.
pub const OXP_ERR_INVALID_MEDIA: i32 = -80;

/// The name of a status code, "OXP_ERR_BUSY"; "unknown status" for a number that is none.
/// A static string, never to be freed. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_status_name(status: i32) -> *const c_char {
    let name = match status {
        OXP_OK => c"OXP_OK",
        OXP_ERR_INTERNAL => c"OXP_ERR_INTERNAL",
        OXP_ERR_OUT_OF_MEMORY => c"OXP_ERR_OUT_OF_MEMORY",
        OXP_ERR_CANCELLED => c"OXP_ERR_CANCELLED",
        OXP_ERR_DEADLINE_EXCEEDED => c"OXP_ERR_DEADLINE_EXCEEDED",
        OXP_ERR_UNSUPPORTED => c"OXP_ERR_UNSUPPORTED",
        OXP_ERR_INVALID_ARGUMENT => c"OXP_ERR_INVALID_ARGUMENT",
        OXP_ERR_NULL_POINTER => c"OXP_ERR_NULL_POINTER",
        OXP_ERR_INVALID_UTF8 => c"OXP_ERR_INVALID_UTF8",
        OXP_ERR_BUFFER_TOO_SMALL => c"OXP_ERR_BUFFER_TOO_SMALL",
        OXP_ERR_UNKNOWN_OPTION => c"OXP_ERR_UNKNOWN_OPTION",
        OXP_ERR_INVALID_OPTION => c"OXP_ERR_INVALID_OPTION",
        OXP_ERR_STRUCT_SIZE => c"OXP_ERR_STRUCT_SIZE",
        OXP_ERR_OUT_OF_RANGE => c"OXP_ERR_OUT_OF_RANGE",
        OXP_ERR_INVALID_HANDLE => c"OXP_ERR_INVALID_HANDLE",
        OXP_ERR_BUSY => c"OXP_ERR_BUSY",
        OXP_ERR_INVALID_STATE => c"OXP_ERR_INVALID_STATE",
        OXP_ERR_INVALID_TENSOR => c"OXP_ERR_INVALID_TENSOR",
        OXP_ERR_UNSUPPORTED_DTYPE => c"OXP_ERR_UNSUPPORTED_DTYPE",
        OXP_ERR_DTYPE_MISMATCH => c"OXP_ERR_DTYPE_MISMATCH",
        OXP_ERR_SHAPE_MISMATCH => c"OXP_ERR_SHAPE_MISMATCH",
        OXP_ERR_OVERLAP => c"OXP_ERR_OVERLAP",
        OXP_ERR_UNKNOWN_COMPONENT => c"OXP_ERR_UNKNOWN_COMPONENT",
        OXP_ERR_UNKNOWN_PORT => c"OXP_ERR_UNKNOWN_PORT",
        OXP_ERR_MISSING_INPUT => c"OXP_ERR_MISSING_INPUT",
        OXP_ERR_IO => c"OXP_ERR_IO",
        OXP_ERR_INVALID_MODEL => c"OXP_ERR_INVALID_MODEL",
        OXP_ERR_INVALID_PACKAGE => c"OXP_ERR_INVALID_PACKAGE",
        OXP_ERR_MISSING_OPERATOR => c"OXP_ERR_MISSING_OPERATOR",
        OXP_ERR_BACKEND_UNAVAILABLE => c"OXP_ERR_BACKEND_UNAVAILABLE",
        OXP_ERR_RUN_FAILED => c"OXP_ERR_RUN_FAILED",
        OXP_ERR_TOKENIZER => c"OXP_ERR_TOKENIZER",
        OXP_ERR_CHAT_TEMPLATE => c"OXP_ERR_CHAT_TEMPLATE",
        OXP_ERR_CONSTRAINT => c"OXP_ERR_CONSTRAINT",
        OXP_ERR_TOOL_CALL => c"OXP_ERR_TOOL_CALL",
        OXP_ERR_INVALID_MEDIA => c"OXP_ERR_INVALID_MEDIA",
        _ => c"unknown status",
    };
    name.as_ptr()
}
