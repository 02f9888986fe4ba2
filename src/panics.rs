//! Panics that must not go further: caught, not printed, and turned into a value.
//!
//! A panic hook is the only place where printing can be stopped, and it belongs to a copy
//! of the standard library, not to a process: the shared library has its own copy, so a
//! host written in Rust keeps its hook. Where the copy is shared after all (a Rust program
//! that links this crate), the hook that was there before is called for every panic that
//! does not happen inside of [`contain`]. It is set once, at the first call.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

/// A panic that was caught.
#[derive(Debug)]
pub(crate) struct Panic {
    /// File, line and column; empty if they are not known.
    place: String,
    message: String,
}

impl Panic {
    /// Goes on with a panic that was caught on another thread.
    #[cfg(feature = "native")]
    pub(crate) fn resume(self) -> ! {
        if DEPTH.get() == 0 {
            // Nobody has printed it yet.
            panic!("{self}");
        }
        PLACE.set(self.place);
        std::panic::resume_unwind(Box::new(self.message))
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}", self.place, self.message)
    }
}

/// Runs `body`; a panic in it is an error. What `body` may leave half done must be dropped
/// or put right by whoever calls.
pub(crate) fn contain<R>(body: impl FnOnce() -> R) -> Result<R, Panic> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !note(info) {
                previous(info);
            }
        }));
    });
    let result = {
        let _inside = Depth::enter(1);
        catch_unwind(AssertUnwindSafe(body))
    };
    result.map_err(|payload| Panic {
        place: PLACE.take(),
        message: payload_text(payload),
    })
}

/// Runs a host's callback: a panic of the host's own is the host's to print.
pub(crate) fn outside<R>(callback: impl FnOnce() -> R) -> R {
    let _outside = Depth::enter(0);
    callback()
}

thread_local! {
    /// How many times this thread is inside of [`contain`]; 0 while it is in a host's callback.
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

/// Whether the panic will be caught here; its place is kept for the message then.
fn note(info: &PanicHookInfo<'_>) -> bool {
    if DEPTH.try_with(Cell::get).unwrap_or(0) == 0 {
        return false;
    }
    let place = info.location().map_or_else(String::new, ToString::to_string);
    // The thread may be past its thread-locals; then the message goes without a place.
    let _ = PLACE.try_with(|slot| slot.replace(place));
    true
}

fn payload_text(payload: Box<dyn Any + Send>) -> String {
    let payload = match payload.downcast::<&'static str>() {
        Ok(text) => return (*text).to_owned(),
        Err(payload) => payload,
    };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => {
            // Dropping it may itself panic; only plain text is known not to.
            std::mem::forget(payload);
            String::new()
        }
    }
}
