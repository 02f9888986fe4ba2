use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::path::Path;
use std::ptr::{self, NonNull};

use ort::sys;
use parking_lot::Mutex;

use super::api::{Api, Failure};
use super::process::Entry;
use super::search::{self, Found, OrtSearch};
use crate::component::{ComponentError, ComponentErrorKind};

/// The ONNX Runtime of this process, once one was found. A library cannot be changed or
/// unloaded, and it has one environment, so all this is for the life of the process.
static LOADED: Mutex<Option<&'static Loaded>> = Mutex::new(None);

struct Loaded {
    api: Api,
    entry: Entry,
    version: String,
    path: std::path::PathBuf,
    environment: NonNull<sys::OrtEnv>,
    /// Describes plain CPU memory, for values over the caller's bytes.
    cpu: NonNull<sys::OrtMemoryInfo>,
}

// SAFETY: the environment and the memory description are never changed or released, and the
// library says that any thread may use them.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// A loaded ONNX Runtime; clones are the same one. Never unloaded.
#[derive(Clone, Copy)]
pub struct OrtLibrary(&'static Loaded);

impl OrtLibrary {
    /// The ONNX Runtime of this process: the one loaded earlier, by whoever, or else the one
    /// that `search` finds.
    ///
    /// # Errors
    /// [`BackendUnavailable`](ComponentErrorKind::BackendUnavailable) with every place tried
    /// and the reason, or when `search` names another library than the one in use. A later
    /// call may succeed.
    pub fn load(search: &OrtSearch) -> Result<Self, ComponentError> {
        let mut loaded = LOADED.lock();
        if let Some(loaded) = *loaded {
            if let Some((path, source)) = search.given()
                && !search::is_same(path, loaded.entry)?
            {
                return Err(search::conflict(path, source, &loaded.path).into());
            }
            return Ok(OrtLibrary(loaded));
        }
        let found = search.find()?;
        let path = found.path.clone();
        let made = start(found).map_err(|failure| ComponentErrorKind::BackendUnavailable {
            message: format!(
                "ONNX Runtime at {} does not start: {}",
                path.display(),
                failure.message
            ),
        })?;
        let made: &'static Loaded = Box::leak(Box::new(made));
        *loaded = Some(made);
        Ok(OrtLibrary(made))
    }

    /// The library's file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What the library says it is, such as `1.31.1`.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    pub(super) fn api(self) -> Api {
        self.0.api
    }

    pub(super) fn environment(self) -> *const sys::OrtEnv {
        self.0.environment.as_ptr()
    }

    pub(super) fn cpu_memory(self) -> *const sys::OrtMemoryInfo {
        self.0.cpu.as_ptr()
    }

    /// `AddExternalInitializersFromFilesInMemory`, which came with API version 18, one above
    /// our floor.
    pub(super) fn add_external_initializers(self) -> Option<AddExternalInitializers> {
        // Asking an old library for a new version makes it write to stderr.
        if search::minor_version(&self.0.version)? < 18 {
            return None;
        }
        // SAFETY: see `probe` in search.rs for the two calls. The API tables only ever grow
        // at the end, so the table of version 18 goes on after the last function of version
        // 17 (SessionOptionsAppendExecutionProvider_OpenVINO_V2), and this function is the
        // fourth of the new ones (onnxruntime_c_api.h). The bindings declare it only with
        // the feature that would make 1.18 the floor.
        unsafe {
            let api = ((*(self.0.entry)()).GetApi)(18);
            if api.is_null() {
                return None;
            }
            let last = std::mem::offset_of!(sys::OrtApi, SessionOptionsAppendExecutionProvider_OpenVINO_V2);
            let function = api
                .byte_add(last)
                .cast::<Option<AddExternalInitializers>>()
                .add(4);
            function.read()
        }
    }
}

pub(super) type AddExternalInitializers = unsafe extern "system" fn(
    options: *mut sys::OrtSessionOptions,
    file_names: *const *const c_char,
    buffers: *const *mut c_char,
    lengths: *const usize,
    count: usize,
) -> sys::OrtStatusPtr;

impl fmt::Debug for OrtLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrtLibrary")
            .field("path", &self.0.path)
            .field("version", &self.0.version)
            .finish()
    }
}

/// Hands the library to the `ort` crate and makes the environment.
fn start(found: Found) -> Result<Loaded, Failure> {
    const NAME: &CStr = c"oxpipe";
    // A Rust host that uses the same crate may have given it a library before; ours is the
    // same one then, since a process has one.
    ort::set_api(found.api.clone());
    let api = Api(ort::api());
    // SAFETY: the place written to and the string are ours; the logging function lives for ever and
    // takes no data. Nothing but fatal errors is even formatted: what goes wrong comes back as the
    // status of a call. Without a logging function those would go to stderr.
    let environment = api.make(api.0.ReleaseEnv, |api, place| unsafe {
        (api.CreateEnvWithCustomLogger)(
            drop_log_line,
            ptr::null_mut(),
            sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_FATAL,
            NAME.as_ptr(),
            place,
        )
    })?;
    // SAFETY: the environment lives. Sends nothing on Linux; on Windows a build of Microsoft's would.
    unsafe { api.check((api.0.DisableTelemetryEvents)(environment.as_ptr()))? };
    // SAFETY: the place written to is ours.
    let cpu = api.make(api.0.ReleaseMemoryInfo, |api, place| unsafe {
        (api.CreateCpuMemoryInfo)(
            sys::OrtAllocatorType::OrtDeviceAllocator,
            sys::OrtMemType::OrtMemTypeDefault,
            place,
        )
    })?;
    Ok(Loaded {
        api,
        entry: found.entry,
        version: found.version,
        path: found.path,
        environment: environment.keep(),
        cpu: cpu.keep(),
    })
}

unsafe extern "system" fn drop_log_line(
    _param: *mut c_void,
    _severity: sys::OrtLoggingLevel,
    _category: *const c_char,
    _id: *const c_char,
    _location: *const c_char,
    _message: *const c_char,
) {
}
