//! Sessions: one graph, loaded.

use std::collections::HashSet;
use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::component::{
    Backend, Charge, ComponentError, ComponentSession, EnteredAccount, MemoryAccount, ModelSource, RunControl,
};
use crate::package::ModelOutline;
use crate::runtime::{ComponentOptions, OrtSettings, Runtime};

use super::cancel::{self, Limit, oxp_cancel};
use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::files::{self, oxp_file};
use super::guard::{guard, guard_free};
use super::handle::{self, Object, Tag};
use super::memory::{Text, TextOut};
use super::options::{self, SessionOptions, TestHook, oxp_options};
use super::ports::{Ports, element, oxp_port_info};
use super::runtime::{self, OXP_BACKEND_NATIVE, OXP_BACKEND_ORT, oxp_runtime};
use super::status::oxp_status;
use super::strings::{Out, text};
use super::structs::{InfoOut, info_struct};

/// One ONNX graph, loaded and ready to run. Shared: any thread, any number of calls at
/// once; runs take turns. Between runs it keeps nothing that a caller could observe.
pub struct oxp_session {
    _private: [u8; 0],
}

/// What a session has done.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_session_stats {
    /// Set by the caller: sizeof(oxp_session_stats).
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Times that the graph was run, by whatever call.
    pub runs: u64,
}

info_struct!(oxp_session_stats, 16);

pub(super) struct SessionObject {
    component: Mutex<Box<dyn ComponentSession>>,
    pub inputs: Ports,
    pub outputs: Ports,
    metadata: Vec<(Text, Text)>,
    backend: u32,
    reason: Text,
    pub run_timeout: Option<Duration>,
    pub runs: AtomicU64,
    pub test_hook: TestHook,
    /// What its memory counts for, if that is limited.
    account: Option<MemoryAccount>,
    /// The files, in what the session may take.
    _files: Option<Charge>,
    /// Kept alive: its logger may be called by the backend.
    _runtime: Runtime,
}

impl Object for SessionObject {
    type Opaque = oxp_session;
    const TAG: Tag = Tag::Session;
}

impl SessionObject {
    fn open(
        runtime: Runtime,
        source: &ModelSource,
        options: SessionOptions,
        control: &RunControl,
    ) -> Result<Self> {
        cancel::check(control)?;
        let component_options = ComponentOptions {
            backend: options.backend,
            threads: options.threads,
            #[cfg(feature = "native")]
            disabled_passes: options.disabled_passes,
            #[cfg(feature = "native")]
            packed_cache: options.packed_cache,
            #[cfg(feature = "native")]
            kv_cache_dtype: options.kv_cache_dtype,
            #[cfg(feature = "native")]
            model_files: options.model_files,
            ort: OrtSettings::default(),
            control: control.clone(),
        };
        let limit = options.memory_bytes;
        let account = limit.map(|limit| MemoryAccount::new("the session", "memory_bytes", limit));
        let files = account.as_ref();
        let files =
            files.map(|account| ModelOutline::charge(account, &mut HashSet::new(), &options.name, source));
        let files = files.transpose()?;
        let opened = {
            let _entered = EnteredAccount::of(account.as_ref());
            let opened = runtime.open_component(&options.name, source, &component_options);
            opened.map_err(|error| MemoryAccount::explain_of(account.as_ref(), error))?
        };
        cancel::check(control)?;
        let io = opened.session.io();
        Ok(SessionObject {
            inputs: Ports::inputs(io),
            outputs: Ports::outputs(io),
            metadata: opened
                .session
                .metadata()
                .iter()
                .map(|(key, value)| (Text::new(key), Text::new(value)))
                .collect(),
            backend: backend_code(opened.backend),
            reason: Text::new(&opened.reason),
            component: Mutex::new(opened.session),
            run_timeout: options.run_timeout,
            runs: AtomicU64::new(0),
            test_hook: options.test_hook,
            account,
            _files: files,
            _runtime: runtime,
        })
    }

    /// The failure of a run, which "run_timeout_ms" may end.
    pub fn late(&self, failure: impl Into<Failure>) -> Failure {
        let limit = Limit {
            key: "run_timeout_ms",
            time: self.run_timeout,
        };
        limit.name(failure)
    }

    /// Charges what this thread makes to the session, until the guard is dropped.
    pub fn enter(&self) -> EnteredAccount {
        EnteredAccount::of(self.account.as_ref())
    }

    /// The failure of a run: late, or for want of memory, with the option that says so.
    pub fn failed(&self, error: ComponentError) -> Failure {
        self.late(MemoryAccount::explain_of(self.account.as_ref(), error))
    }

    /// Waits for this call's turn, but not longer than `control` allows.
    pub fn turn(&self, control: &RunControl) -> Result<MutexGuard<'_, Box<dyn ComponentSession>>> {
        cancel::check(control).map_err(|failure| self.late(failure))?;
        if !control.is_bounded() {
            return Ok(self.component.lock());
        }
        loop {
            if let Some(turn) = self.component.try_lock_for(Duration::from_millis(2)) {
                return Ok(turn);
            }
            cancel::check(control).map_err(|failure| self.late(failure))?;
        }
    }
}

/// The limit of a call that opens.
pub(super) fn load_limit(time: Option<Duration>) -> Limit {
    Limit {
        key: "load_timeout_ms",
        time,
    }
}

/// The OXP_BACKEND_ code.
pub(super) fn backend_code(backend: Backend) -> u32 {
    match backend {
        Backend::Native => OXP_BACKEND_NATIVE,
        Backend::Ort => OXP_BACKEND_ORT,
    }
}

/// Opens the ONNX model in the file at `path` (UTF-8); external data lies beside it. Free
/// the session with oxp_session_free. `runtime` may be NULL. `options`, which may be NULL,
/// are of kind OXP_OPTIONS_SESSION. `cancel`, which may be NULL, and "load_timeout_ms" are
/// looked at while the native runtime reads files and packs weights, else before and after.
///
/// Errors: OXP_ERR_IO (no such file, a folder, not readable), OXP_ERR_INVALID_MODEL,
/// OXP_ERR_MISSING_OPERATOR, OXP_ERR_BACKEND_UNAVAILABLE, OXP_ERR_CANCELLED,
/// OXP_ERR_DEADLINE_EXCEEDED, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_INVALID_ARGUMENT and OXP_ERR_BUSY (`options`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_open(
    runtime: *const oxp_runtime,
    path: *const c_char,
    path_len: u64,
    options: *const oxp_options,
    session: *mut *mut oxp_session,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_open", err, || {
            let out = Out::new(session, std::ptr::null_mut(), "session")?;
            let source = ModelSource::file(PathBuf::from(text(path, path_len, "path")?));
            let options = options::session(options)?;
            let control = cancel::control(cancel, options.load_timeout)?;
            let limit = load_limit(options.load_timeout);
            let session = SessionObject::open(runtime::or_default(runtime)?, &source, options, &control)
                .map_err(|failure| limit.name(failure))?;
            out.set(handle::create(session));
            Ok(())
        })
    }
}

/// Opens an ONNX model of `model_len` bytes in memory. `external` holds the files that the
/// model's tensors name as external data. All bytes are copied. As oxp_session_open
/// otherwise.
///
/// Errors: as oxp_session_open, and OXP_ERR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_open_memory(
    runtime: *const oxp_runtime,
    model: *const c_void,
    model_len: u64,
    external: *const oxp_file,
    external_count: u64,
    options: *const oxp_options,
    session: *mut *mut oxp_session,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_open_memory", err, || {
            let out = Out::new(session, std::ptr::null_mut(), "session")?;
            if model.is_null() {
                return Err(Failure::null("model"));
            }
            let options = options::session(options)?;
            #[cfg(feature = "native")]
            options::refuse_beside(&options.packed_cache)?;
            let control = cancel::control(cancel, options.load_timeout)?;
            let limit = load_limit(options.load_timeout);
            let source = ModelSource::Memory {
                label: "model".into(),
                model: files::read_one(model, model_len, "model")?,
                external: files::read(external, external_count, "external")?,
            };
            let session = SessionObject::open(runtime::or_default(runtime)?, &source, options, &control)
                .map_err(|failure| limit.name(failure))?;
            out.set(handle::create(session));
            Ok(())
        })
    }
}

/// Frees a session; outputs that it gave live on, a run that is under way on another
/// thread ends as usual. NULL and what is no live session are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_session_free(session: *mut oxp_session) {
    guard_free::<SessionObject>(session);
}

/// How many inputs the graph has.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_get_input_count(
    session: *const oxp_session,
    count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_get_input_count", err, || {
            let out = Out::new(count, 0, "count")?;
            out.set(handle::get::<SessionObject>(session, "session")?.inputs.len());
            Ok(())
        })
    }
}

/// How many outputs the graph has.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_get_output_count(
    session: *const oxp_session,
    count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_get_output_count", err, || {
            let out = Out::new(count, 0, "count")?;
            out.set(handle::get::<SessionObject>(session, "session")?.outputs.len());
            Ok(())
        })
    }
}

/// The input at `index`, counted from 0 in the graph's order. What `info` points to is
/// borrowed until the session is freed.
///
/// Errors: OXP_ERR_OUT_OF_RANGE, OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_HANDLE,
/// OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_get_input(
    session: *const oxp_session,
    index: u64,
    info: *mut oxp_port_info,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_get_input", err, || {
            let session = handle::get::<SessionObject>(session, "session")?;
            session.inputs.describe(index, &InfoOut::new(info, "info")?)
        })
    }
}

/// The output at `index`, counted from 0 in the graph's order. As oxp_session_get_input.
///
/// Errors: as oxp_session_get_input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_get_output(
    session: *const oxp_session,
    index: u64,
    info: *mut oxp_port_info,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_get_output", err, || {
            let session = handle::get::<SessionObject>(session, "session")?;
            session.outputs.describe(index, &InfoOut::new(info, "info")?)
        })
    }
}

/// How many entries of metadata the model has: its metadata_props, then producer and so on.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_get_metadata_count(
    session: *const oxp_session,
    count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_get_metadata_count", err, || {
            let out = Out::new(count, 0, "count")?;
            out.set(handle::get::<SessionObject>(session, "session")?.metadata.len() as u64);
            Ok(())
        })
    }
}

/// The entry of metadata at `index`: `key` and `value` get text that ends with a NUL,
/// borrowed until the session is freed; `key_len` and `value_len`, which may be NULL, get
/// the lengths in bytes without the NUL.
///
/// Errors: OXP_ERR_OUT_OF_RANGE, OXP_ERR_INVALID_HANDLE,
/// OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_get_metadata(
    session: *const oxp_session,
    index: u64,
    key: *mut *const c_char,
    key_len: *mut u64,
    value: *mut *const c_char,
    value_len: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_get_metadata", err, || {
            let key = TextOut::new(key, key_len, "key")?;
            let value = TextOut::new(value, value_len, "value")?;
            let session = handle::get::<SessionObject>(session, "session")?;
            let entry = element(&session.metadata, index, "entries of metadata")?;
            key.set(&entry.0);
            value.set(&entry.1);
            Ok(())
        })
    }
}

/// Who runs the graph, an OXP_BACKEND_ code, and why, in words: `reason` gets text that
/// ends with a NUL, borrowed until the session is freed, `reason_len`, which may be NULL,
/// its length in bytes without the NUL.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_get_backend(
    session: *const oxp_session,
    backend: *mut u32,
    reason: *mut *const c_char,
    reason_len: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_get_backend", err, || {
            let backend = Out::new(backend, 0, "backend")?;
            let reason = TextOut::new(reason, reason_len, "reason")?;
            let session = handle::get::<SessionObject>(session, "session")?;
            backend.set(session.backend);
            reason.set(&session.reason);
            Ok(())
        })
    }
}

/// What the session has done so far.
///
/// Errors: OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_HANDLE,
/// OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_get_stats(
    session: *const oxp_session,
    stats: *mut oxp_session_stats,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_get_stats", err, || {
            let session = handle::get::<SessionObject>(session, "session")?;
            InfoOut::new(stats, "stats")?.set(oxp_session_stats {
                struct_size: 0,
                reserved: 0,
                runs: session.runs.load(Ordering::Relaxed),
            });
            Ok(())
        })
    }
}
