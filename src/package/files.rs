use std::path::{Component, Path, PathBuf};

use crate::component::{ModelSource, SharedBytes};

use super::{Location, PackageError, PackageErrorKind, PackageSource};

/// The files of a package, wherever they are. Every path that goes in is relative to the
/// package and is refused when it would leave it.
#[derive(Debug)]
pub(crate) struct PackageFiles {
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// The folder as it was given, for messages, and with its links resolved.
    Directory {
        given: PathBuf,
        real: PathBuf,
    },
    Memory(PackageSource),
}

/// A file that was looked up.
pub(super) struct FoundFile {
    /// What messages call it.
    pub label: PathBuf,
    pub bytes: SharedBytes,
}

impl PackageFiles {
    pub fn open(source: &PackageSource) -> Result<Self, PackageError> {
        let place = match source {
            PackageSource::Files(_) => Place::Memory(source.clone()),
            PackageSource::Directory(given) => {
                let io_error = |source| {
                    let location = Location {
                        file: given.clone(),
                        ..Location::default()
                    };
                    PackageError::new(location, PackageErrorKind::Io { source })
                };
                let real = given.canonicalize().map_err(io_error)?;
                if !real.is_dir() {
                    return Err(io_error(std::io::ErrorKind::NotADirectory.into()));
                }
                Place::Directory {
                    given: given.clone(),
                    real,
                }
            }
        };
        Ok(PackageFiles { place })
    }

    /// The folder, as messages name it; nothing for a package in memory.
    pub fn label(&self) -> PathBuf {
        match &self.place {
            Place::Directory { given, .. } => given.clone(),
            Place::Memory(_) => PathBuf::from("package in memory"),
        }
    }

    /// Reads a file that may be absent, given by a name that we chose.
    pub fn read_optional(&self, name: &str) -> Result<Option<FoundFile>, PackageError> {
        match &self.place {
            Place::Memory(_) => Ok(self.in_memory(name).map(|bytes| FoundFile {
                label: PathBuf::from(name),
                bytes: bytes.clone(),
            })),
            Place::Directory { given, .. } => {
                let path = given.join(name);
                match std::fs::read(&path) {
                    Ok(bytes) => Ok(Some(FoundFile {
                        label: path,
                        bytes: std::sync::Arc::new(bytes),
                    })),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    Err(source) => {
                        let location = Location {
                            file: path,
                            ..Location::default()
                        };
                        Err(PackageError::new(location, PackageErrorKind::Io { source }))
                    }
                }
            }
        }
    }

    /// Checks a path that the package's metadata names at `location`.
    pub fn check(&self, path: &str, location: &Location) -> Result<(), PackageError> {
        self.resolve(path, location).map(|_| ())
    }

    /// Reads a file that the package's metadata names at `location`.
    pub fn read(&self, path: &str, location: &Location) -> Result<FoundFile, PackageError> {
        let relative = self.resolve(path, location)?;
        self.read_optional(&relative)?
            .ok_or_else(|| missing(path, location))
    }

    /// A model that the package's metadata names at `location`.
    pub fn model(&self, path: &str, location: &Location) -> Result<ModelSource, PackageError> {
        let relative = self.resolve(path, location)?;
        match &self.place {
            Place::Directory { given, .. } => Ok(ModelSource::File {
                path: given.join(&relative),
                root: given.clone(),
            }),
            Place::Memory(PackageSource::Files(files)) => {
                let model = self.in_memory(&relative).ok_or_else(|| missing(path, location))?;
                // A model names its external data relative to its own folder.
                let folder = match relative.rsplit_once('/') {
                    Some((folder, _)) => format!("{folder}/"),
                    None => String::new(),
                };
                let external = files
                    .iter()
                    .filter_map(|(name, bytes)| {
                        let name = plain(name).ok()?;
                        let name = name.strip_prefix(&folder)?.to_owned();
                        Some((name, bytes.clone()))
                    })
                    .collect();
                Ok(ModelSource::Memory {
                    label: relative,
                    model: model.clone(),
                    external,
                })
            }
            Place::Memory(_) => Err(missing(path, location)),
        }
    }

    fn in_memory(&self, relative: &str) -> Option<&SharedBytes> {
        let Place::Memory(PackageSource::Files(files)) = &self.place else {
            return None;
        };
        files
            .iter()
            .find(|(name, _)| plain(name).is_ok_and(|name| name == relative))
            .map(|(_, bytes)| bytes)
    }

    /// The path with `.` removed, if it stays inside the package and the file is there.
    fn resolve(&self, path: &str, location: &Location) -> Result<String, PackageError> {
        let refuse = |why: &str| {
            PackageError::new(
                location.clone(),
                PackageErrorKind::BadPath {
                    path: path.to_owned(),
                    why: why.to_owned(),
                },
            )
        };
        let relative = plain(path).map_err(refuse)?;
        match &self.place {
            Place::Memory(_) => match self.in_memory(&relative) {
                Some(_) => Ok(relative),
                None => Err(missing(path, location)),
            },
            Place::Directory { real, .. } => match real.join(&relative).canonicalize() {
                Ok(target) if !target.starts_with(real) => Err(refuse("is a link out of the package")),
                Ok(target) if target.is_dir() => Err(refuse("is a folder, not a file")),
                Ok(_) => Ok(relative),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(missing(path, location)),
                Err(source) => Err(PackageError::new(
                    location.clone(),
                    PackageErrorKind::Io { source },
                )),
            },
        }
    }
}

fn missing(path: &str, location: &Location) -> PackageError {
    PackageError::new(
        location.clone(),
        PackageErrorKind::MissingFile {
            path: path.to_owned(),
        },
    )
}

/// A relative path with forward slashes and without `.`, or why it is none.
fn plain(path: &str) -> Result<String, &'static str> {
    if path.is_empty() {
        return Err("is empty");
    }
    if path.contains('\0') || path.contains('\\') {
        return Err("holds a character that no path in a package may have");
    }
    let mut parts = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str().ok_or("is not UTF-8")?),
            Component::CurDir => {}
            Component::ParentDir => return Err("goes up with \"..\""),
            Component::RootDir | Component::Prefix(_) => return Err("is absolute"),
        }
    }
    if parts.is_empty() {
        return Err("names no file");
    }
    Ok(parts.join("/"))
}
