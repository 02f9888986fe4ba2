//! Where ONNX Runtime is looked for, and what is said when it is not there.

use std::ffi::CStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use ort::sys::OrtApi;

use super::process::{self, Entry, Opened};
use crate::component::ComponentErrorKind;

/// Where to look for the library, in this order: the option, the environment's path
/// (read by whoever made this), beside liboxpipe, the system's name. A path may name the
/// library or the folder that holds it; where one is given, nothing after it is tried.
#[derive(Clone, Debug, Default)]
pub struct OrtSearch {
    pub option: Option<PathBuf>,
    pub environment: Option<PathBuf>,
}

/// The names under which the system may know the library.
#[cfg(not(target_vendor = "apple"))]
pub(super) const SYSTEM_NAMES: [&str; 2] = ["libonnxruntime.so.1", "libonnxruntime.so"];
#[cfg(target_vendor = "apple")]
pub(super) const SYSTEM_NAMES: [&str; 2] = ["libonnxruntime.1.dylib", "libonnxruntime.dylib"];

/// A library that can be used.
pub(super) struct Found {
    pub api: &'static OrtApi,
    pub entry: Entry,
    pub version: String,
    /// What messages call it.
    pub path: PathBuf,
}

/// A place, and why it will not do.
struct Attempt {
    place: String,
    reason: String,
}

impl OrtSearch {
    /// The path that somebody gave, and how they gave it.
    pub(super) fn given(&self) -> Option<(&Path, &'static str)> {
        let option = self.option.as_deref().map(|path| (path, "option ort_library"));
        let environment = || {
            let path = self.environment.as_deref()?;
            (!path.as_os_str().is_empty()).then_some((path, "ORT_DYLIB_PATH"))
        };
        option.or_else(environment)
    }

    /// Finds and opens a library that can be used. It stays open.
    pub(super) fn find(&self) -> Result<Found, ComponentErrorKind> {
        let mut attempts = Vec::new();
        let loaded = find_loaded(&mut attempts);
        if let Some((path, source)) = self.given() {
            let opened = open_given(path).map_err(|reason| {
                let place = format!("{} ({source})", path.display());
                unavailable(&[Attempt { place, reason }])
            })?;
            return match loaded {
                Some(loaded) if !std::ptr::fn_addr_eq(loaded.entry, opened.entry) => {
                    Err(conflict(path, source, &loaded.path))
                }
                _ => Ok(opened),
            };
        }
        if let Some(loaded) = loaded {
            return Ok(loaded);
        }
        let beside = process::own_folder().ok_or_else(|| ("?".into(), "its folder is unknown".to_owned()));
        match beside.and_then(|folder| open_given(&folder).map_err(|reason| (folder, reason))) {
            Ok(found) => return Ok(found),
            Err((folder, reason)) => attempts.push(Attempt {
                place: format!("{} (beside liboxpipe)", folder.display()),
                reason,
            }),
        }
        for name in SYSTEM_NAMES {
            match open(Path::new(name)) {
                Ok(found) => return Ok(found),
                Err(reason) => attempts.push(Attempt {
                    place: format!("{name} (the system's search path)"),
                    reason,
                }),
            }
        }
        Err(unavailable(&attempts))
    }
}

/// Another library than the one in use was asked for.
pub(super) fn conflict(asked: &Path, source: &str, used: &Path) -> ComponentErrorKind {
    ComponentErrorKind::BackendUnavailable {
        message: format!(
            "{} ({source}) is not the ONNX Runtime that this process uses already, {}; \
             a process can use only one: name that one, or none",
            asked.display(),
            used.display()
        ),
    }
}

fn unavailable(attempts: &[Attempt]) -> ComponentErrorKind {
    let mut message = String::from("ONNX Runtime cannot be loaded; tried ");
    for (index, Attempt { place, reason }) in attempts.iter().enumerate() {
        let separator = if index == 0 { "" } else { "; " };
        // Writing to a String does not fail.
        let _ = write!(message, "{separator}{place}: {reason}");
    }
    let _ = write!(
        message,
        ". Name the library (ONNX Runtime 1.{} or newer) or its folder with the runtime option ort_library \
         or the environment variable ORT_DYLIB_PATH; scripts/fetch-onnxruntime.sh fetches one",
        ort::MINOR_VERSION
    );
    ComponentErrorKind::BackendUnavailable { message }
}

/// A usable library that the process has loaded, by whoever.
fn find_loaded(attempts: &mut Vec<Attempt>) -> Option<Found> {
    for entry in process::loaded_entries() {
        let path = process::entry_file(entry).unwrap_or_else(|| "the program itself".into());
        match probe(entry, path.clone()) {
            Ok(found) => return Some(found),
            Err(reason) => attempts.push(Attempt {
                place: format!("{} (loaded already)", path.display()),
                reason,
            }),
        }
    }
    None
}

/// Whether a given path is the library with this entry, which is open already.
pub(super) fn is_same(path: &Path, entry: Entry) -> Result<bool, ComponentErrorKind> {
    let candidates = candidates(path).map_err(|reason| {
        let place = path.display().to_string();
        unavailable(&[Attempt { place, reason }])
    })?;
    Ok(candidates
        .iter()
        .filter_map(|candidate| Opened::reopen(candidate)?.entry())
        .any(|found| std::ptr::fn_addr_eq(found, entry)))
}

/// Opens the first library that a path stands for and that can be used.
fn open_given(path: &Path) -> Result<Found, String> {
    let mut reasons = Vec::new();
    for candidate in candidates(path)? {
        match open(&candidate) {
            Ok(found) => return Ok(found),
            Err(reason) if candidate == path => reasons.push(reason),
            Err(reason) => reasons.push(format!("{}: {reason}", candidate.display())),
        }
    }
    Err(reasons.join("; "))
}

/// The files that a path may stand for: itself, or those in a folder; at least one.
fn candidates(path: &Path) -> Result<Vec<PathBuf>, String> {
    if path.as_os_str().is_empty() {
        return Err("the path is empty".into());
    }
    let is_bare_name = path.components().count() == 1;
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        // `libonnxruntime.so.1` alone: as the system searches.
        Err(_) if is_bare_name => return Ok(vec![path.to_owned()]),
        Err(error) => return Err(error.to_string()),
    };
    // Without a slash the system would search for it.
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Ok(vec![path]);
    }
    let entries = std::fs::read_dir(&path).map_err(|error| error.to_string())?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| is_library_name(file))
        .collect();
    // The plain name first, then the longest, which is the file itself.
    found.sort_by_key(|file| {
        let length = file.as_os_str().len();
        (
            !file.ends_with(SYSTEM_NAMES[1]),
            std::cmp::Reverse(length),
            file.clone(),
        )
    });
    if found.is_empty() {
        return Err(format!("holds no {}", SYSTEM_NAMES[1]));
    }
    Ok(found)
}

/// `libonnxruntime.so`, `libonnxruntime.so.1.31.1`, `libonnxruntime.1.31.1.dylib`; none of the
/// provider libraries beside it.
fn is_library_name(file: &Path) -> bool {
    let name = file
        .file_name()
        .map_or_else(Default::default, |name| name.to_string_lossy());
    let is_version = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    name.strip_prefix("libonnxruntime")
        .is_some_and(|rest| match rest.strip_suffix(".dylib") {
            Some(version) => is_version(version),
            None => rest.strip_prefix(".so").is_some_and(is_version),
        })
}

fn open(path: &Path) -> Result<Found, String> {
    let library = Opened::open(path)?;
    let entry = library
        .entry()
        .ok_or("it has no function OrtGetApiBase, so it is not ONNX Runtime")?;
    let path = process::entry_file(entry).unwrap_or_else(|| path.to_owned());
    let found = probe(entry, path)?;
    library.keep();
    Ok(found)
}

/// Asks a library for the version of the API that we call.
fn probe(entry: Entry, path: PathBuf) -> Result<Found, String> {
    // SAFETY: `entry` is the symbol OrtGetApiBase of an open library, called as its C header
    // declares it; the table that it gives is a constant of the library.
    let (base, version) = unsafe {
        let base = entry().as_ref().ok_or("OrtGetApiBase gives nothing")?;
        let version = (base.GetVersionString)();
        let version = match version.is_null() {
            true => "of unknown version".into(),
            false => CStr::from_ptr(version).to_string_lossy().into_owned(),
        };
        (base, version)
    };
    // Asking an old library for a new version makes it write to stderr: ask only one that
    // may have it.
    let api = match minor_version(&version) {
        Some(minor) if minor < ort::MINOR_VERSION => None,
        // SAFETY: as above; the API table is a constant too, and `Found` is only used while
        // the library is open.
        _ => unsafe { (base.GetApi)(ort::MINOR_VERSION).as_ref() },
    };
    let api = api.ok_or_else(|| {
        let needed = ort::MINOR_VERSION;
        match minor_version(&version) {
            Some(minor) if minor < needed => format!(
                "ONNX Runtime {version} is too old: it does not have API version {needed}; 1.{needed} or newer is needed"
            ),
            // Newer libraries have had all API versions until now.
            _ => format!(
                "ONNX Runtime {version} does not offer API version {needed}, which is called here; take one of \
                 version 1.{needed} or newer that does"
            ),
        }
    })?;
    Ok(Found {
        api,
        entry,
        version,
        path,
    })
}

/// 31 of `1.31.1`, which is also the newest API version that such a library has.
pub(super) fn minor_version(version: &str) -> Option<u32> {
    version.strip_prefix("1.")?.split('.').next()?.parse().ok()
}
