use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use super::onnx::StringStringEntryProto;
use super::tensor_proto::TensorProtoError;
use crate::component::{
    ComponentErrorKind, LocationError, MappedFile, ModelSource, SharedBytes, locate, map_regular, read_whole,
};
use crate::native::ending;

/// Bytes of the caller as an owner for [`Bytes`].
pub(super) struct Shared(pub(super) SharedBytes);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// A mapped file as an owner for [`Bytes`].
struct Mapped(Arc<MappedFile>);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// The files that a model is mapped from.
#[derive(Clone)]
pub(super) struct MappedFiles {
    how: ModelFiles,
    files: Vec<(PathBuf, Arc<MappedFile>)>,
}

/// How a model's files get into memory. As an option: `map` or `read`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelFiles {
    /// They are mapped, and processes share them. Every call looks whether they are still what they
    /// were, but what is changed while a call runs it cannot see.
    #[default]
    Map,
    /// They are read when the model is loaded, and may change afterwards.
    Read,
}

/// The value of an option that says nothing that [`ModelFiles`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownModelFiles;

impl FromStr for ModelFiles {
    type Err = UnknownModelFiles;

    fn from_str(value: &str) -> Result<Self, UnknownModelFiles> {
        match value {
            "map" => Ok(ModelFiles::Map),
            "read" => Ok(ModelFiles::Read),
            _ => Err(UnknownModelFiles),
        }
    }
}

impl MappedFiles {
    pub(super) fn new(how: ModelFiles) -> Self {
        MappedFiles {
            how,
            files: Vec::new(),
        }
    }

    /// An error if one of them has been changed since it was mapped.
    pub(super) fn check_unchanged(&self) -> Result<(), ComponentErrorKind> {
        for (path, file) in &self.files {
            file.check_unchanged().map_err(|source| ComponentErrorKind::Io {
                path: path.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// Maps a model file.
    pub(super) fn map_model(&mut self, path: &Path) -> Result<Bytes, ComponentErrorKind> {
        self.map(path).map_err(|source| ComponentErrorKind::Io {
            path: path.to_owned(),
            source,
        })
    }

    fn map(&mut self, path: &Path) -> io::Result<Bytes> {
        let file = Arc::new(match self.how {
            ModelFiles::Map => map_regular(path)?,
            ModelFiles::Read => read_whole(path, ending::look)?,
        });
        self.files.push((path.to_owned(), file.clone()));
        Ok(Bytes::from_owner(Mapped(file)))
    }

    /// Lets the system take back the memory of bytes that will hardly be read again, if they
    /// lie in one of the files.
    pub(super) fn give_back(&self, bytes: &[u8]) {
        let mut files = self.files.iter();
        if let Some((_, file)) = files.find(|(_, file)| file.contains(bytes)) {
            file.give_back(bytes);
        }
    }
}

/// The external data of a model, each file mapped once.
#[derive(Clone)]
pub(super) struct ExternalFiles {
    place: Place,
    /// By location, of files and of memory.
    found: HashMap<String, Bytes>,
}

#[derive(Clone)]
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
            found: HashMap::new(),
        }
    }

    /// The bytes from `offset` to the end of the file, and the declared `length`, of a
    /// tensor's `external_data`.
    pub(super) fn find(
        &mut self,
        files: &mut MappedFiles,
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
        let file = self.file(files, location)?;
        if offset > file.len() {
            return Err(TensorProtoError::Invalid(format!(
                "external data starts at byte {offset} of \"{location}\", which has {} bytes",
                file.len()
            )));
        }
        Ok((file.slice(offset..), length))
    }

    fn file(&mut self, mapped: &mut MappedFiles, location: &str) -> Result<Bytes, TensorProtoError> {
        if let Some(bytes) = self.found.get(location) {
            return Ok(bytes.clone());
        }
        let bytes = match &self.place {
            Place::Folder { folder, root } => {
                let path = inside(folder, root, location)?;
                mapped
                    .map(&path)
                    .map_err(|source| TensorProtoError::Io { path, source })?
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
        self.found.insert(location.to_owned(), bytes.clone());
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
