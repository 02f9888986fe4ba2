//! Cancel objects, and how a call's end is bounded.

use std::time::{Duration, Instant};

use crate::component::{CancelToken, ComponentError, RunControl};

use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::guard::{guard, guard_free};
use super::handle::{self, Object, Tag};
use super::status::{OXP_ERR_DEADLINE_EXCEEDED, oxp_status};
use super::strings::Out;

/// Asks a long call, on whatever thread, to end early with OXP_ERR_CANCELLED. One object
/// may be given to any number of calls. Shared: any thread, any number at once.
pub struct oxp_cancel {
    _private: [u8; 0],
}

pub(super) struct Cancel(CancelToken);

impl Object for Cancel {
    type Opaque = oxp_cancel;
    const TAG: Tag = Tag::Cancel;
}

/// Makes a cancel object that is not requested; free it with oxp_cancel_free.
///
/// Errors: OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_cancel_create(
    cancel: *mut *mut oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_cancel_create", err, || {
            let out = Out::new(cancel, std::ptr::null_mut(), "cancel")?;
            out.set(handle::create(Cancel(CancelToken::new())));
            Ok(())
        })
    }
}

/// Asks the calls that were given `cancel` to end. It stays requested until
/// oxp_cancel_reset: later calls end at once.
///
/// Errors: OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_cancel_request(cancel: *mut oxp_cancel, err: *mut *mut oxp_error) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_cancel_request", err, || {
            handle::get::<Cancel>(cancel, "cancel")?.0.request();
            Ok(())
        })
    }
}

/// Makes `cancel` as new.
///
/// Errors: OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_cancel_reset(cancel: *mut oxp_cancel, err: *mut *mut oxp_error) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_cancel_reset", err, || {
            handle::get::<Cancel>(cancel, "cancel")?.0.reset();
            Ok(())
        })
    }
}

/// Sets `requested` to 1 if `cancel` is requested, else to 0.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_cancel_is_requested(
    cancel: *const oxp_cancel,
    requested: *mut i32,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_cancel_is_requested", err, || {
            let out = Out::new(requested, 0, "requested")?;
            out.set(handle::get::<Cancel>(cancel, "cancel")?.0.is_requested().into());
            Ok(())
        })
    }
}

/// Frees a cancel object; calls that were given it go on as they are. NULL and what is no
/// live cancel object are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_cancel_free(cancel: *mut oxp_cancel) {
    guard_free::<Cancel>(cancel);
}

/// What may end a call: a cancel object, which may be NULL, and a time that may be limited.
pub(super) fn control(cancel: *const oxp_cancel, timeout: Option<Duration>) -> Result<RunControl> {
    Ok(RunControl {
        cancel: handle::get_optional::<Cancel>(cancel, "cancel")?.map(|cancel| cancel.0.clone()),
        // A time so long that no clock holds it is no limit.
        deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
    })
}

/// A time limit and the option that set it.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub key: &'static str,
    pub time: Option<Duration>,
}

impl Limit {
    /// The failure of a call under this limit: one that is late says which limit it was.
    pub fn name(self, failure: impl Into<Failure>) -> Failure {
        let failure = failure.into();
        match self.time {
            Some(time) if failure.code() == OXP_ERR_DEADLINE_EXCEEDED => {
                let key = self.key;
                failure.with_advice(&format!(
                    "option {key} is {}; raise it or do less",
                    time.as_millis()
                ))
            }
            _ => failure,
        }
    }
}

/// An error if the call should end now: for work that cannot be interrupted, asked before
/// and after it.
pub(super) fn check(control: &RunControl) -> Result<()> {
    match control.stop_reason() {
        Some(reason) => Err(ComponentError::from(reason).into()),
        None => Ok(()),
    }
}
