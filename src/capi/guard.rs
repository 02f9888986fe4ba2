//! The panic boundary: no panic leaves an exported function, none is printed, and handles
//! stay usable: a serial one that was in use is put right when it is next entered (see
//! [`Serial`](super::handle::Serial)).
//!
//! A panic hook is the only place where printing can be stopped, and it belongs to a copy
//! of the standard library, not to a process: the shared library has its own copy, so a
//! host written in Rust keeps its hook. Where the copy is shared after all (a Rust program
//! that links this crate), the hook that was there before is called for every panic that
//! does not happen inside one of our exported functions. It is set once, at the first call.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

use super::error::{self, oxp_error};
use super::failure::{Failure, Result};
use super::handle::{self, Object};
use super::status::{OXP_ERR_INTERNAL, OXP_OK};

/// Runs the body of an exported function and turns what comes out of it into a status and,
/// if the caller wants one, an error object.
///
/// # Safety
/// `err` is NULL or points to a writable pointer.
pub(super) unsafe fn guard(err: *mut *mut oxp_error, body: impl FnOnce() -> Result<()>) -> i32 {
    if !err.is_null() {
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { err.write_unaligned(std::ptr::null_mut()) };
    }
    let failure = match quietly(body) {
        Ok(()) => return OXP_OK,
        Err(failure) => failure,
    };
    let code = failure.code();
    if !err.is_null() {
        // Making the object allocates; should even that panic, the code still arrives.
        let object = quietly(|| Ok(error::create(failure))).unwrap_or(std::ptr::null_mut());
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
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !note_panic(info) {
                previous(info);
            }
        }));
    });
    // Unwind safety: what a panic may leave half done is behind a `Serial`, which knows of it,
    // or in a session, which starts every run from nothing; every lock is released on
    // unwinding.
    let result = {
        let _inside = Depth::enter(1);
        catch_unwind(AssertUnwindSafe(body))
    };
    result.unwrap_or_else(|payload| {
        let place = PLACE.take();
        let message = payload_text(&*payload);
        // Dropping a payload may itself panic; only plain text is known not to.
        std::mem::forget(payload);
        Err(Failure::new(
            OXP_ERR_INTERNAL,
            format!(
                "internal error at {place}: {message}; please report it. The call did nothing, and its \
                 handles can go on being used"
            ),
        ))
    })
}

thread_local! {
    /// How many exported functions this thread is in; 0 while it is in a host's callback.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Where the last panic on this thread was raised.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Restores the depth when it goes out of scope.
struct Depth(u32);

impl Depth {
    fn enter(step: u32) -> Self {
        let before = DEPTH.get();
        DEPTH.set(if step == 0 { 0 } else { before + step });
        Depth(before)
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.set(self.0);
    }
}

/// Runs a host's callback: a panic of the host's own is the host's to print.
pub(super) fn outside<R>(callback: impl FnOnce() -> R) -> R {
    let _outside = Depth::enter(0);
    callback()
}

/// Whether the panic is one of ours; its place is kept for the message then.
fn note_panic(info: &PanicHookInfo<'_>) -> bool {
    if DEPTH.try_with(Cell::get).unwrap_or(0) == 0 {
        return false;
    }
    let place = info.location().map_or_else(String::new, ToString::to_string);
    // The thread may be past its thread-locals; then the message goes without a place.
    let _ = PLACE.try_with(|slot| slot.replace(place));
    true
}

fn payload_text(payload: &(dyn Any + Send)) -> String {
    match payload.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => payload.downcast_ref::<String>().cloned().unwrap_or_default(),
    }
}
