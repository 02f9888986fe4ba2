use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use memmap2::Mmap;

use super::onnx::StringStringEntryProto;
use super::tensor_proto::TensorProtoError;
use crate::component::{ComponentErrorKind, ModelSource, SharedBytes};

/// Bytes of the caller as an owner for [`Bytes`].
pub(super) struct Shared(pub(super) SharedBytes);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// Maps a file, which may be empty.
fn map(path: &Path) -> io::Result<Bytes> {
    // Asked before the file is opened: opening a pipe would wait for its other end.
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "is a directory, expected a file",
        ));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "is not a regular file",
        ));
    }
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    let file = File::open(path)?;
    // SAFETY: the mapping is read-only and private to this process's view, and is only
    // handed out as shared slices that keep it alive. What Rust cannot see is another
    // process that writes to or truncates the file meanwhile: the host must not let that
    // happen to the models it runs, as the package documentation says; every runtime that
    // maps its weights relies on the same.
    let mapping = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(mapping))
}

/// Maps a model file.
pub(super) fn map_model(path: &Path) -> Result<Bytes, ComponentErrorKind> {
    map(path).map_err(|source| ComponentErrorKind::Io {
        path: path.to_owned(),
        source,
    })
}

/// The external data of a model, each file mapped once.
pub(super) struct ExternalFiles {
    place: Place,
    mapped: HashMap<String, Bytes>,
}

enum Place {
    Folder { folder: PathBuf, root: PathBuf },
    Memory { files: Vec<(String, SharedBytes)> },
}

impl ExternalFiles {
    pub(super) fn new(source: &ModelSource) -> Self {
        let place = match source {
            ModelSource::File { path, root } => Place::Folder {
                folder: or_here(path.parent().unwrap_or(Path::new(""))),
                root: or_here(root),
            },
            ModelSource::Memory { external, .. } => Place::Memory {
                files: external.clone(),
            },
        };
        ExternalFiles {
            place,
            mapped: HashMap::new(),
        }
    }

    /// The bytes from `offset` to the end of the file, and the declared `length`, of a
    /// tensor's `external_data`.
    pub(super) fn find(
        &mut self,
        entries: &[StringStringEntryProto],
    ) -> Result<(Bytes, Option<usize>), TensorProtoError> {
        let get = |key: &str| {
            let entry = entries.iter().find(|entry| entry.key == key)?;
            Some(entry.value.as_str())
        };
        let number = |key: &str| match get(key) {
            None => Ok(None),
            Some(text) => text.trim().parse::<usize>().map(Some).map_err(|_| {
                TensorProtoError::Invalid(format!(
                    "external data has {key} \"{text}\", expected a number that is not negative"
                ))
            }),
        };
        let location = get("location")
            .filter(|location| !location.is_empty())
            .ok_or_else(|| TensorProtoError::Invalid("external data has no location".into()))?;
        let offset = number("offset")?.unwrap_or(0);
        let length = number("length")?;
        let file = self.file(location)?;
        if offset > file.len() {
            return Err(TensorProtoError::Invalid(format!(
                "external data starts at byte {offset} of \"{location}\", which has {} bytes",
                file.len()
            )));
        }
        Ok((file.slice(offset..), length))
    }

    fn file(&mut self, location: &str) -> Result<Bytes, TensorProtoError> {
        if let Some(bytes) = self.mapped.get(location) {
            return Ok(bytes.clone());
        }
        let bytes = match &self.place {
            Place::Folder { folder, root } => {
                let path = inside(folder, root, location)?;
                map(&path).map_err(|source| TensorProtoError::Io { path, source })?
            }
            Place::Memory { files } => {
                let (_, bytes) = files.iter().find(|(name, _)| name == location).ok_or_else(|| {
                    TensorProtoError::Invalid(format!(
                        "external data \"{location}\" was not given with the model in memory"
                    ))
                })?;
                Bytes::from_owner(Shared(bytes.clone()))
            }
        };
        self.mapped.insert(location.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

/// The empty path means the current folder, but not to the functions that resolve it.
fn or_here(path: &Path) -> PathBuf {
    match path.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => path.to_owned(),
    }
}

/// The resolved path of external data, which must stay inside `root`.
fn inside(folder: &Path, root: &Path, location: &str) -> Result<PathBuf, TensorProtoError> {
    let escapes = || {
        TensorProtoError::Invalid(format!(
            "external data \"{location}\" lies outside {}, where it must stay",
            root.display()
        ))
    };
    let resolve = |path: &Path| {
        path.canonicalize().map_err(|source| TensorProtoError::Io {
            path: path.to_owned(),
            source,
        })
    };
    let location = Path::new(location);
    let plain = |component: Component<'_>| {
        matches!(
            component,
            Component::Normal(_) | Component::CurDir | Component::ParentDir
        )
    };
    if !location.components().all(plain) {
        return Err(escapes());
    }
    let root = resolve(root)?;
    let folder = resolve(folder)?;
    // First by name alone, so that a path that leads out is refused as such even when
    // nothing is there (and nothing out there is touched).
    let mut named = folder.clone();
    for component in location.components() {
        match component {
            Component::ParentDir => {
                named.pop();
            }
            Component::Normal(name) => named.push(name),
            _ => {}
        }
        if !named.starts_with(&root) {
            return Err(escapes());
        }
    }
    // Then for real: a link may lead anywhere.
    let real = resolve(&folder.join(location))?;
    match real.starts_with(&root) {
        true => Ok(real),
        false => Err(escapes()),
    }
}
