//! From a [`ModelSource`] to ONNX Runtime's session, with the files checked by us first: which
//! files a model may name differs between versions of the library, and a model in memory
//! would have its external data looked for in the current folder.

use std::collections::BTreeSet;
use std::ffi::{CString, c_char};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use memmap2::Mmap;
use ort::sys;

use super::api::{Failure, Owned};
use super::declared::{self, Declared, ExternalTensor};
use super::library::OrtLibrary;
use super::session::load_error;
use crate::component::{ComponentErrorKind, ModelSource, SharedBytes};

/// Reads what the model declares, and checks that its external data is there.
pub(super) fn check(source: &ModelSource) -> Result<Declared, ComponentErrorKind> {
    match source {
        ModelSource::File { path, root } => {
            let file = map(path)?;
            let declared = read(source, &file)?;
            check_external_files(path, root, &declared.external)?;
            Ok(declared)
        }
        ModelSource::Memory { model, external, .. } => {
            let declared = read(source, (**model).as_ref())?;
            check_external_bytes(source, external, &declared.external)?;
            Ok(declared)
        }
    }
}

pub(super) fn create_session(
    library: OrtLibrary,
    source: &ModelSource,
    options: &Owned<sys::OrtSessionOptions>,
) -> Result<Owned<sys::OrtSession>, ComponentErrorKind> {
    let api = library.api();
    let release = api.0.ReleaseSession;
    let session = match source {
        ModelSource::File { path, .. } => {
            let path = CString::new(path.as_os_str().as_bytes())
                .map_err(|_| io_error(path, io::ErrorKind::InvalidInput))?;
            // SAFETY: the library's environment, the path and the options live for the call.
            api.make(release, |api, place| unsafe {
                (api.CreateSession)(library.environment(), path.as_ptr(), options.as_ptr(), place)
            })
        }
        ModelSource::Memory { model, external, .. } => {
            add_external(library, options, external).map_err(|failure| load_error(source, failure))?;
            let model = (**model).as_ref();
            // SAFETY: as above; the library keeps no pointer to the bytes, which it parses.
            api.make(release, |api, place| unsafe {
                (api.CreateSessionFromArray)(
                    library.environment(),
                    model.as_ptr().cast(),
                    model.len(),
                    options.as_ptr(),
                    place,
                )
            })
        }
    };
    session.map_err(|failure| load_error(source, failure))
}

/// Hands the library external data by location. It copies what the model uses.
fn add_external(
    library: OrtLibrary,
    options: &Owned<sys::OrtSessionOptions>,
    external: &[(String, SharedBytes)],
) -> Result<(), Failure> {
    if external.is_empty() {
        return Ok(());
    }
    let add = library.add_external_initializers().ok_or_else(|| {
        Failure::new(format!(
            "version {} cannot take external data from memory; 1.18 or newer can",
            library.version()
        ))
    })?;
    let names = external
        .iter()
        .map(|(location, _)| CString::new(location.as_str()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Failure::new("the location of external data holds a NUL"))?;
    let names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let bytes = || external.iter().map(|(_, bytes)| (**bytes).as_ref());
    // The signature has no const, but nothing is written.
    let buffers: Vec<*mut c_char> = bytes().map(|bytes| bytes.as_ptr().cast_mut().cast()).collect();
    let lengths: Vec<usize> = bytes().map(<[u8]>::len).collect();
    // SAFETY: three arrays of `count` elements that live for the call; the bytes live until
    // the session is made, since the source is borrowed until then.
    let status = unsafe {
        add(
            options.as_ptr(),
            names.as_ptr(),
            buffers.as_ptr(),
            lengths.as_ptr(),
            external.len(),
        )
    };
    library.api().check(status)
}

fn map(path: &Path) -> Result<Mmap, ComponentErrorKind> {
    let failed = |source| ComponentErrorKind::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(io_error(path, io::ErrorKind::IsADirectory));
    }
    // SAFETY: as for every mapped file, it is on whoever changes a model file while it is
    // being loaded.
    unsafe { Mmap::map(&file) }.map_err(failed)
}

fn io_error(path: &Path, kind: io::ErrorKind) -> ComponentErrorKind {
    ComponentErrorKind::Io {
        path: path.to_owned(),
        source: kind.into(),
    }
}

fn read(source: &ModelSource, model: &[u8]) -> Result<Declared, ComponentErrorKind> {
    let invalid = |message: &str| invalid(source, message.to_owned());
    if model.is_empty() {
        return Err(invalid("is empty, expected an ONNX model"));
    }
    let declared = declared::read_model(model)
        .map_err(|_| invalid("is not an ONNX model, or only the beginning of one (not valid protobuf)"))?;
    if !declared.has_graph {
        return Err(invalid("is not an ONNX model: it has no graph"));
    }
    Ok(declared)
}

fn invalid(source: &ModelSource, message: String) -> ComponentErrorKind {
    ComponentErrorKind::InvalidModel {
        path: source.path().map(ToOwned::to_owned),
        message,
    }
}

fn check_external_bytes(
    source: &ModelSource,
    given: &[(String, SharedBytes)],
    external: &[ExternalTensor],
) -> Result<(), ComponentErrorKind> {
    for tensor in external {
        let found = given.iter().find(|(location, _)| *location == tensor.location);
        let Some((_, bytes)) = found else {
            let message = format!(
                "tensor \"{}\" names external data \"{}\", which was not given",
                tensor.tensor, tensor.location
            );
            return Err(invalid(source, message));
        };
        check_range(tensor, (**bytes).as_ref().len() as u64).map_err(|message| invalid(source, message))?;
    }
    Ok(())
}

/// Checks that external data lies in `root` (or beside the model file itself, where that is
/// a link to somewhere else, as in a download cache), that it is there and long enough.
fn check_external_files(
    path: &Path,
    root: &Path,
    external: &[ExternalTensor],
) -> Result<(), ComponentErrorKind> {
    if external.is_empty() {
        return Ok(());
    }
    let bad = |message| ComponentErrorKind::InvalidModel {
        path: Some(path.to_owned()),
        message,
    };
    let folder = or_current(path.parent());
    let allowed = [canonical(or_current(Some(root)))?, {
        let file = canonical(path)?;
        file.parent().map_or(file.clone(), Path::to_owned)
    }];
    let mut checked = BTreeSet::new();
    for tensor in external {
        let location = Path::new(&tensor.location);
        let outside = || {
            bad(format!(
                "tensor \"{}\" names external data \"{}\", which is not inside {}",
                tensor.tensor,
                tensor.location,
                root.display()
            ))
        };
        if tensor.location.is_empty() || !stays_inside(location) {
            return Err(outside());
        }
        let file = folder.join(location);
        let file_error = |source| ComponentErrorKind::Io {
            path: file.clone(),
            source,
        };
        let metadata = std::fs::metadata(&file).map_err(file_error)?;
        if checked.insert(location) {
            let real = canonical(&file)?;
            if !allowed.iter().any(|folder| real.starts_with(folder)) {
                return Err(outside());
            }
        }
        check_range(tensor, metadata.len()).map_err(bad)?;
    }
    Ok(())
}

/// Whether a location goes nowhere but down: relative and without `..`.
fn stays_inside(location: &Path) -> bool {
    location
        .components()
        .all(|component| matches!(component, Component::Normal(_) | Component::CurDir))
}

fn check_range(tensor: &ExternalTensor, available: u64) -> Result<(), String> {
    let ExternalTensor {
        tensor,
        location,
        offset,
        length,
    } = tensor;
    let end = offset.checked_add(length.unwrap_or(0));
    if end.is_some_and(|end| end <= available) {
        return Ok(());
    }
    Err(format!(
        "tensor \"{tensor}\" lies at byte {offset} of external data \"{location}\" with length {}, \
         which has only {available} bytes",
        length.map_or("unknown".into(), |length| length.to_string())
    ))
}

fn or_current(folder: Option<&Path>) -> &Path {
    match folder {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn canonical(path: &Path) -> Result<PathBuf, ComponentErrorKind> {
    path.canonicalize().map_err(|source| ComponentErrorKind::Io {
        path: path.to_owned(),
        source,
    })
}
