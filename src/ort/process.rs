//! Shared libraries of this process: opening one, and finding those that are there already.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::elf;

/// The one function that ONNX Runtime exports by name.
const ENTRY: &CStr = c"OrtGetApiBase";

/// `OrtGetApiBase` of some library. The address tells libraries apart.
pub(super) type Entry = unsafe extern "C" fn() -> *const ort::sys::OrtApiBase;

/// An open library; closed again when this goes, unless it is kept.
pub(super) struct Opened(Library);

impl Opened {
    /// Opens by path or, for a name without a slash, as the system searches.
    pub fn open(path: &Path) -> Result<Self, String> {
        Self::open_with(path, RTLD_NOW | RTLD_LOCAL)
    }

    /// Only if this process has it open already.
    pub fn reopen(path: &Path) -> Option<Self> {
        Self::open_with(path, RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD).ok()
    }

    fn open_with(path: &Path, flags: i32) -> Result<Self, String> {
        // Without a slash the loader knows where it is, and we do not.
        if path.as_os_str().as_bytes().contains(&b'/') {
            elf::check(path)?;
        }
        // SAFETY: runs the library's initialisers, if it is not open yet: that is what
        // whoever names a library asks for.
        unsafe { Library::open(Some(path), flags) }
            .map(Opened)
            .map_err(|error| reason(&error))
    }

    /// `OrtGetApiBase`, if this library has it (and not one that it depends on).
    pub fn entry(&self) -> Option<Entry> {
        // SAFETY: the symbol is called only as what ONNX Runtime's C API declares it to be.
        let symbol = unsafe { self.0.get::<Entry>(ENTRY.to_bytes_with_nul()) }.ok()?;
        Some(*symbol)
    }

    /// Never closes it.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

/// The dynamic loader's own words, which are what a user can search for.
fn reason(error: &libloading::Error) -> String {
    match error {
        libloading::Error::DlOpen { source } => source.to_string(),
        other => other.to_string(),
    }
}

/// The file that an address of a loaded library belongs to.
fn file_of(address: *const c_void) -> Option<PathBuf> {
    // SAFETY: all-zero is a valid `Dl_info` (null pointers), and `dladdr` only reads the
    // loader's tables, whatever the address.
    let info = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(info.to_bytes())))
}

/// The file that `OrtGetApiBase` comes from.
pub(super) fn entry_file(entry: Entry) -> Option<PathBuf> {
    file_of(entry as *const c_void)
}

/// The folder of the library or program that this code is in.
pub(super) fn own_folder() -> Option<PathBuf> {
    let file = file_of(own_folder as *const c_void)?;
    // A program's own name may be relative to a folder that it has left.
    let file = if file.is_absolute() {
        file
    } else {
        std::env::current_exe().ok()?
    };
    file.parent().map(Path::to_owned)
}

/// `OrtGetApiBase` of each library that is in the process and exports it.
pub(super) fn loaded_entries() -> Vec<Entry> {
    // SAFETY: looks a name up in the loader's tables.
    let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, ENTRY.as_ptr()) };
    let mut entries: Vec<Entry> = Vec::new();
    if !global.is_null() {
        // SAFETY: see `Opened::entry`.
        entries.push(unsafe { std::mem::transmute::<*mut c_void, Entry>(global) });
    }
    for file in loaded_files() {
        let path = Path::new(std::ffi::OsStr::from_bytes(file.to_bytes()));
        let Some(entry) = Opened::reopen(path).and_then(|library| library.entry()) else {
            continue;
        };
        if !entries.iter().any(|known| std::ptr::fn_addr_eq(*known, entry)) {
            entries.push(entry);
        }
    }
    entries
}

/// Files in the process whose name suggests ONNX Runtime. Libraries opened with RTLD_LOCAL
/// are found only so.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn loaded_files() -> Vec<CString> {
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> i32 {
        // SAFETY: `dl_iterate_phdr` passes a live entry and the pointer that it was given;
        // a name is NULL or a string that lives during the visit.
        let (found, name) = unsafe {
            let name = (*info).dlpi_name;
            if name.is_null() {
                return 0;
            }
            (&mut *found.cast::<Vec<CString>>(), CStr::from_ptr(name))
        };
        let file_name = name.to_bytes().rsplit(|&byte| byte == b'/').next();
        let pattern = b"onnxruntime";
        if file_name.is_some_and(|name| name.windows(pattern.len()).any(|window| window == pattern)) {
            found.push(name.to_owned());
        }
        0
    }
    let mut found: Vec<CString> = Vec::new();
    // SAFETY: `visit` gets `found` back as the `Vec` that it is, for the call only. It must
    // not unwind, and only allocates.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    found
}

/// Other systems have no such list in libc: what is looked up by name must do.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn loaded_files() -> Vec<CString> {
    super::search::SYSTEM_NAMES
        .iter()
        .filter_map(|name| CString::new(*name).ok())
        .collect()
}
