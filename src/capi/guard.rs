//! The panic boundary: no panic leaves an exported function, none is printed (see
//! [`panics`](crate::panics)), and handles stay usable: a serial one that was in use is put
//! right when it is next entered (see [`Serial`](super::handle::Serial)).

use crate::panics::contain;
use crate::reserve;

use super::error::{self, oxp_error};
use super::failure::{Failure, Result};
use super::handle::{self, Object};
use super::status::{OXP_ERR_INTERNAL, OXP_ERR_OUT_OF_MEMORY, OXP_OK};

pub(super) use crate::panics::outside;

/// Runs the body of an exported function and turns what comes out of it into a status and,
/// if the caller wants one, an error object.
///
/// # Safety
/// `err` is NULL or points to a writable pointer.
pub(super) unsafe fn guard(
    function: &str,
    err: *mut *mut oxp_error,
    body: impl FnOnce() -> Result<()>,
) -> i32 {
    if !err.is_null() {
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { err.write_unaligned(std::ptr::null_mut()) };
    }
    let (enough, _call) = reserve::begin_call();
    let body = || match enough {
        true => body(),
        false => Err(Failure::new(
            OXP_ERR_OUT_OF_MEMORY,
            format!(
                "{} bytes of the library's reserve are in use, for want of others; free runs, pipelines or \
                 errors, or let the rest of the program free memory",
                reserve::used()
            ),
        )),
    };
    let failure = match quietly(body) {
        Ok(()) => return OXP_OK,
        Err(failure) => failure,
    };
    let code = failure.code();
    if !err.is_null() {
        // Making the object allocates; should even that panic, the code still arrives.
        let object = quietly(|| Ok(error::create(function, failure))).unwrap_or(std::ptr::null_mut());
        // SAFETY: as above.
        unsafe { err.write_unaligned(object) };
    }
    code
}

/// Frees a handle; what is no live handle of the type is left alone.
pub(super) fn guard_free<T: Object>(handle: *mut T::Opaque) {
    // A destructor that panics has nobody to tell; the object is gone either way.
    let _ = quietly(|| {
        drop(handle::remove::<T>(handle));
        Ok(())
    });
}

/// Runs the body of an exported function that has no status: `fallback` stands for a panic.
pub(super) fn guard_value<R>(fallback: R, body: impl FnOnce() -> R) -> R {
    quietly(|| Ok(body())).unwrap_or(fallback)
}

fn quietly<R>(body: impl FnOnce() -> Result<R>) -> Result<R> {
    // What a panic may leave half done is behind a `Serial`, which knows of it, or in a
    // session, which starts every run from nothing; every lock is released on unwinding.
    contain(body).unwrap_or_else(|panic| {
        Err(Failure::new(
            OXP_ERR_INTERNAL,
            format!(
                "internal error {panic}; please report it. The call did nothing, and its handles can go on \
                 being used"
            ),
        ))
    })
}
