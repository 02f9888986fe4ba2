//! From a [`ModelSource`] to ONNX Runtime's session, with the files checked by us first: which
//! files a model may name differs between versions of the library, and a model in memory
//! would have its external data looked for in the current folder.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ort::sys;

use super::api::{Failure, Owned};
use super::declared::{self, Declared, ExternalTensor};
use super::library::OrtLibrary;
use super::session::load_error;
use crate::component::{ComponentErrorKind, LocationError, ModelSource, SharedBytes, locate, map_regular};

/// External data by location, which the library does not find or take by itself.
pub(super) type Handed = Vec<(String, SharedBytes)>;

/// Reads what the model declares.
pub(super) fn read(source: &ModelSource) -> Result<Declared, ComponentErrorKind> {
    match source {
        ModelSource::File { path, .. } => read_bytes(source, (*map(path)?).as_ref()),
        ModelSource::Memory { model, .. } => read_bytes(source, (**model).as_ref()),
    }
}

/// Checks that external data is where it may be, and long enough.
pub(super) fn check_external(
    source: &ModelSource,
    tensors: &[ExternalTensor],
) -> Result<Handed, ComponentErrorKind> {
    match source {
        ModelSource::File { path, root } => check_external_files(path, root, tensors),
        ModelSource::Memory { external, .. } => {
            check_external_bytes(source, external, tensors)?;
            Ok(external.clone())
        }
    }
}

pub(super) fn create_session(
    library: OrtLibrary,
    source: &ModelSource,
    external: &Handed,
    options: &Owned<sys::OrtSessionOptions>,
) -> Result<Owned<sys::OrtSession>, ComponentErrorKind> {
    let api = library.api();
    let release = api.0.ReleaseSession;
    let failed = |failure| load_error(source, failure);
    add_external(library, options, external, failed)?;
    let session = match source {
        ModelSource::File { path, .. } => {
            let path = CString::new(path.as_os_str().as_bytes())
                .map_err(|_| io_error(path, io::ErrorKind::InvalidInput))?;
            // SAFETY: the library's environment, the path and the options live for the call.
            api.make(release, |api, place| unsafe {
                (api.CreateSession)(library.environment(), path.as_ptr(), options.as_ptr(), place)
            })
        }
        ModelSource::Memory { model, .. } => {
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
    session.map_err(failed)
}

/// Hands the library external data by location. It copies what the model uses.
fn add_external(
    library: OrtLibrary,
    options: &Owned<sys::OrtSessionOptions>,
    external: &Handed,
    failed: impl Fn(Failure) -> ComponentErrorKind,
) -> Result<(), ComponentErrorKind> {
    if external.is_empty() {
        return Ok(());
    }
    let add = library
        .add_external_initializers()
        .ok_or_else(|| too_old_for_external(library.version(), library.path()))?;
    let locations = external
        .iter()
        .map(|(location, _)| CString::new(location.as_str()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| failed(Failure::new("the location of external data holds a NUL")))?;
    let names: Vec<*const c_char> = locations.iter().map(|name| name.as_ptr()).collect();
    let bytes = || external.iter().map(|(_, bytes)| (**bytes).as_ref());
    // The signature has no const, but nothing is written.
    let buffers: Vec<*mut c_char> = bytes().map(|bytes| bytes.as_ptr().cast_mut().cast()).collect();
    let lengths: Vec<usize> = bytes().map(<[u8]>::len).collect();
    // SAFETY: three arrays of `count` elements that live for the call; the bytes live until
    // the session is made, since our caller lends `external` until then.
    let status = unsafe {
        add(
            options.as_ptr(),
            names.as_ptr(),
            buffers.as_ptr(),
            lengths.as_ptr(),
            external.len(),
        )
    };
    library.api().check(status).map_err(failed)
}

/// The model is right, and this library cannot take it.
fn too_old_for_external(version: &str, path: &Path) -> ComponentErrorKind {
    ComponentErrorKind::BackendUnavailable {
        message: format!(
            "ONNX Runtime {version} ({}) takes external data only from files in the model's folder; \
             1.18 or newer is needed for data in memory or elsewhere in the package",
            path.display()
        ),
    }
}

fn map(path: &Path) -> Result<SharedBytes, ComponentErrorKind> {
    match map_regular(path) {
        Ok(file) => Ok(Arc::new(file)),
        Err(source) => Err(ComponentErrorKind::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

fn io_error(path: &Path, kind: io::ErrorKind) -> ComponentErrorKind {
    ComponentErrorKind::Io {
        path: path.to_owned(),
        source: kind.into(),
    }
}

fn read_bytes(source: &ModelSource, model: &[u8]) -> Result<Declared, ComponentErrorKind> {
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

/// Checks that external data lies in `root`, is there and long enough. Gives the files that
/// are not in the model's own folder, where the library would refuse to go.
fn check_external_files(
    path: &Path,
    root: &Path,
    tensors: &[ExternalTensor],
) -> Result<Handed, ComponentErrorKind> {
    let bad = |message| ComponentErrorKind::InvalidModel {
        path: Some(path.to_owned()),
        message,
    };
    let mut lengths = BTreeMap::new();
    let mut handed = Handed::new();
    for tensor in tensors {
        let length = match lengths.get(&tensor.location) {
            Some(&length) => length,
            None => {
                let file = locate(folder_of(path), root, &tensor.location).map_err(|error| match error {
                    LocationError::Io { path, source } => ComponentErrorKind::Io { path, source },
                    LocationError::Outside => bad(format!(
                        "tensor \"{}\" names external data \"{}\", which lies outside {}",
                        tensor.tensor,
                        tensor.location,
                        root.display()
                    )),
                })?;
                let bytes = map(&file)?;
                let length = (*bytes).as_ref().len() as u64;
                if !is_in(&file, folder_of(path))? {
                    handed.push((tensor.location.clone(), bytes));
                }
                lengths.insert(&tensor.location, length);
                length
            }
        };
        check_range(tensor, length).map_err(bad)?;
    }
    Ok(handed)
}

/// The folder of a model file; the empty path means the current one.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Whether a file with links resolved lies in a folder.
fn is_in(file: &Path, folder: &Path) -> Result<bool, ComponentErrorKind> {
    let real = folder.canonicalize().map_err(|source| ComponentErrorKind::Io {
        path: folder.to_owned(),
        source,
    })?;
    Ok(file.starts_with(real))
}

fn check_range(tensor: &ExternalTensor, available: u64) -> Result<(), String> {
    let ExternalTensor {
        tensor,
        location,
        offset,
        length,
        fault,
    } = tensor;
    if let Some(fault) = fault {
        return Err(format!("external data of tensor \"{tensor}\" {fault}"));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_too_old_for_the_data_is_not_the_models_fault() {
        let error = too_old_for_external("1.17.3", Path::new("/lib/libonnxruntime.so"));
        let ComponentErrorKind::BackendUnavailable { message } = error else {
            panic!("another kind: {error}");
        };
        assert!(
            message.contains("ONNX Runtime 1.17.3") && message.contains("1.18 or newer"),
            "{message}"
        );
    }
}
