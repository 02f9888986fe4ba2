use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::onnx::StringStringEntryProto;
use super::tensor_proto::TensorProtoError;
use crate::component::{ComponentErrorKind, LocationError, ModelSource, SharedBytes, locate, map_regular};

/// Bytes of the caller as an owner for [`Bytes`].
pub(super) struct Shared(pub(super) SharedBytes);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// Maps a model file.
pub(super) fn map_model(path: &Path) -> Result<Bytes, ComponentErrorKind> {
    map(path).map_err(|source| ComponentErrorKind::Io {
        path: path.to_owned(),
        source,
    })
}

fn map(path: &Path) -> io::Result<Bytes> {
    Ok(Bytes::from_owner(map_regular(path)?))
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
                folder: path.parent().unwrap_or(Path::new("")).to_owned(),
                root: root.clone(),
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

/// The resolved path of external data, which must stay inside `root`.
fn inside(folder: &Path, root: &Path, location: &str) -> Result<PathBuf, TensorProtoError> {
    locate(folder, root, location).map_err(|error| match error {
        LocationError::Outside => TensorProtoError::Invalid(format!(
            "external data \"{location}\" lies outside {}, where it must stay",
            root.display()
        )),
        LocationError::Io { path, source } => TensorProtoError::Io { path, source },
    })
}
