//! Error objects.

use std::ffi::c_char;

use super::failure::Failure;
use super::guard::{guard_free, guard_value};
use super::handle::{self, Object, Tag};
use super::memory::Text;
use super::status::{OXP_ERR_INVALID_HANDLE, oxp_status};

/// Why a call failed: the code, a message for a person, and which component, port, node
/// and file it is about. Made by the call that failed, owned by its caller. Shared: any
/// thread, any number at once.
pub struct oxp_error {
    _private: [u8; 0],
}

pub(super) struct ErrorObject {
    code: i32,
    message: Text,
    component: Text,
    port: Text,
    node: Text,
    file: Text,
}

impl Object for ErrorObject {
    type Opaque = oxp_error;
    const TAG: Tag = Tag::Error;
}

/// The error of a call of this function.
pub(super) fn create(function: &str, failure: Failure) -> *mut oxp_error {
    let details = failure.into_details();
    handle::create(ErrorObject {
        code: details.code,
        message: Text::new(&format!("{function}: {}", details.message)),
        component: Text::new(&details.component),
        port: Text::new(&details.port),
        node: Text::new(&details.node),
        file: Text::new(&details.file),
    })
}

/// The status code that the call returned; OXP_ERR_INVALID_HANDLE if `error` is no error.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_error_get_code(error: *const oxp_error) -> oxp_status {
    guard_value(OXP_ERR_INVALID_HANDLE, || {
        handle::get::<ErrorObject>(error, "error").map_or(OXP_ERR_INVALID_HANDLE, |error| error.code)
    })
}

/// The function that failed, what went wrong, what was found, what was expected and what to do:
/// UTF-8 text that ends with a NUL, borrowed until the error is freed. `len`, which may be NULL, gets its length
/// in bytes without the NUL. "" (never NULL) if `error` is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_error_get_message(error: *const oxp_error, len: *mut u64) -> *const c_char {
    // SAFETY: the caller's promise (see mod.rs) for `len`.
    unsafe { part(error, len, |error| &error.message) }
}

/// The component that the error is about; "" if it is about none. As
/// oxp_error_get_message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_error_get_component(error: *const oxp_error, len: *mut u64) -> *const c_char {
    // SAFETY: the caller's promise (see mod.rs) for `len`.
    unsafe { part(error, len, |error| &error.component) }
}

/// The port (input or output) that the error is about; "" if it is about none. As
/// oxp_error_get_message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_error_get_port(error: *const oxp_error, len: *mut u64) -> *const c_char {
    // SAFETY: the caller's promise (see mod.rs) for `len`.
    unsafe { part(error, len, |error| &error.port) }
}

/// The node of the graph that the error is about; "" if it is about none. As
/// oxp_error_get_message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_error_get_node(error: *const oxp_error, len: *mut u64) -> *const c_char {
    // SAFETY: the caller's promise (see mod.rs) for `len`.
    unsafe { part(error, len, |error| &error.node) }
}

/// The file that the error is about; "" if it is about none. As oxp_error_get_message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_error_get_file(error: *const oxp_error, len: *mut u64) -> *const c_char {
    // SAFETY: the caller's promise (see mod.rs) for `len`.
    unsafe { part(error, len, |error| &error.file) }
}

/// Frees an error. NULL and what is no live error are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_error_free(error: *mut oxp_error) {
    guard_free::<ErrorObject>(error);
}

/// # Safety
/// `len` is NULL or writable.
unsafe fn part(
    error: *const oxp_error,
    len: *mut u64,
    choose: impl FnOnce(&ErrorObject) -> &Text,
) -> *const c_char {
    let (pointer, length) = guard_value((c"".as_ptr(), 0), || {
        handle::get::<ErrorObject>(error, "error").map_or((c"".as_ptr(), 0), |error| {
            // Points into the object, which the table keeps until the error is freed.
            let text = choose(&error);
            (text.as_ptr(), text.len())
        })
    });
    if !len.is_null() {
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { len.write_unaligned(length) };
    }
    pointer
}
