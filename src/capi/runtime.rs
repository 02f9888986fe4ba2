//! Runtimes: what sessions and pipelines share.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::Arc;

use crate::component::Trace;
use crate::runtime::{LogLevel, Logger, Runtime};

use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::guard::{guard, guard_free, outside};
use super::handle::{self, Object, Tag};
use super::memory::{UserData, oxp_free_fn};
use super::options::{self, RuntimeOptions, oxp_options};
use super::status::{OXP_ERR_IO, oxp_status};
use super::strings::Out;

/// Log levels.
pub const OXP_LOG_DEBUG: u32 = 1;
pub const OXP_LOG_INFO: u32 = 2;
pub const OXP_LOG_WARNING: u32 = 3;
pub const OXP_LOG_ERROR: u32 = 4;

/// Who runs a graph.
pub const OXP_BACKEND_NATIVE: u32 = 1;
pub const OXP_BACKEND_ORT: u32 = 2;

/// Receives log lines: an OXP_LOG_ level and UTF-8 text of `message_len` bytes that ends
/// with a NUL, borrowed until it returns. Called on any thread, at once from several. It
/// returns nothing, since a log line stops no call.
pub type oxp_log_fn = Option<
    unsafe extern "C" fn(user_data: *mut c_void, level: u32, message: *const c_char, message_len: u64),
>;

/// Threads, the ONNX Runtime library and the logger that sessions and pipelines share;
/// those keep what they need of it. Environment variables are read when it is made, and
/// not again. Shared: any thread, any number of calls at once.
///
/// Where a function takes a runtime, NULL means a new one with defaults.
pub struct oxp_runtime {
    _private: [u8; 0],
}

pub(super) struct RuntimeObject(pub Runtime);

impl Object for RuntimeObject {
    type Opaque = oxp_runtime;
    const TAG: Tag = Tag::Runtime;
}

/// Makes a runtime; free it with oxp_runtime_free. `options`, which may be NULL, are of
/// kind OXP_OPTIONS_RUNTIME. `log` may be NULL; `free_user_data`, which may be NULL too, is
/// called once with `user_data` when nothing can log any more, or when this call fails.
///
/// Errors: OXP_ERR_NULL_POINTER (`runtime`), OXP_ERR_IO (the file of "trace" cannot be made),
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY and OXP_ERR_INVALID_ARGUMENT (`options`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_runtime_create(
    options: *const oxp_options,
    runtime: *mut *mut oxp_runtime,
    log: oxp_log_fn,
    user_data: *mut c_void,
    free_user_data: oxp_free_fn,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_runtime_create", err, || {
            // First of all, so that it is freed whatever fails.
            let user_data = UserData::new(user_data, free_user_data);
            let out = Out::new(runtime, std::ptr::null_mut(), "runtime")?;
            let RuntimeOptions { mut settings, trace } = options::runtime(options)?;
            settings.logger = Some(logger(log, user_data)).filter(|_| log.is_some());
            let begun = trace.map(|path| begin_trace(&path, settings.logger.clone()));
            settings.trace = begun.transpose()?;
            out.set(handle::create(RuntimeObject(Runtime::new(settings))));
            Ok(())
        })
    }
}

/// Sets `built_in` to 1 if this build of the library holds the OXP_BACKEND_ `backend`
/// (a Cargo feature), else to 0. ONNX Runtime itself is looked for only when it is needed.
/// Any thread.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (`backend`), OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_backend_is_built_in(
    backend: u32,
    built_in: *mut i32,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_backend_is_built_in", err, || {
            let out = Out::new(built_in, 0, "built_in")?;
            let answer = match backend {
                OXP_BACKEND_NATIVE => cfg!(feature = "native"),
                OXP_BACKEND_ORT => cfg!(feature = "ort"),
                other => {
                    return Err(super::failure::Failure::argument(format!(
                        "there is no backend {other}; they are OXP_BACKEND_NATIVE (1) and OXP_BACKEND_ORT (2)"
                    )));
                }
            };
            out.set(answer.into());
            Ok(())
        })
    }
}

/// Frees a runtime; sessions and pipelines made with it live on. NULL and what is no live
/// runtime are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_runtime_free(runtime: *mut oxp_runtime) {
    guard_free::<RuntimeObject>(runtime);
}

/// The runtime of a handle; NULL means a new one with defaults.
pub(super) fn or_default(runtime: *const oxp_runtime) -> Result<Runtime> {
    let given = handle::get_optional::<RuntimeObject>(runtime, "runtime")?;
    Ok(given.map_or_else(Runtime::default, |runtime| runtime.0.clone()))
}

fn begin_trace(path: &Path, logger: Option<Logger>) -> Result<Trace> {
    let shown = path.display().to_string();
    let failed = {
        let shown = shown.clone();
        move |error: &std::io::Error| {
            if let Some(logger) = &logger {
                let message = format!("{shown}: {error}; nothing more is written into this trace");
                logger(LogLevel::Warning, &message);
            }
        }
    };
    Trace::create(path, failed).map_err(|error| {
        let message = format!(
            "option \"trace\": {shown}: {error}; give the path of a file in a folder that can be written to"
        );
        Failure::new(OXP_ERR_IO, message).at_file(&shown)
    })
}

fn logger(log: oxp_log_fn, user_data: UserData) -> Logger {
    Arc::new(move |level, message: &str| {
        let Some(log) = log else { return };
        let level = match level {
            LogLevel::Debug => OXP_LOG_DEBUG,
            LogLevel::Info => OXP_LOG_INFO,
            LogLevel::Warning => OXP_LOG_WARNING,
            LogLevel::Error => OXP_LOG_ERROR,
        };
        let text = super::memory::Text::new(message);
        // SAFETY: the host gave the function and its data for calls from any thread; the
        // text lives until the call returns.
        outside(|| unsafe { log(user_data.pointer(), level, text.as_ptr(), text.len()) });
    })
}
