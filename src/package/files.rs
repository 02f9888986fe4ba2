use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::component::{LocationError, ModelSource, SharedBytes, check_size, locate, read_regular};

use super::{Location, PackageError, PackageErrorKind, PackageSource};

/// The files of a package, wherever they are. Every path that goes in is relative to the
/// package and is refused when it would leave it.
#[derive(Debug)]
pub(crate) struct PackageFiles {
    place: Place,
}

enum Place {
    Directory(PathBuf),
    /// By their path without `.`.
    Memory(HashMap<String, SharedBytes>),
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Directory(path) => path.fmt(f),
            Place::Memory(files) => f.debug_list().entries(files.keys()).finish(),
        }
    }
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
            PackageSource::Directory(given) => {
                let metadata = match given.as_os_str().is_empty() {
                    true => Err(io::Error::new(io::ErrorKind::NotFound, "the path is empty")),
                    false => given.metadata(),
                };
                let metadata = metadata.map_err(|source| io_error(given, source))?;
                if !metadata.is_dir() {
                    let source = io::Error::new(
                        io::ErrorKind::NotADirectory,
                        "it is a file, expected the package's folder",
                    );
                    return Err(io_error(given, source));
                }
                Place::Directory(given.clone())
            }
            PackageSource::Files(files) => Place::Memory(by_name(files)?),
        };
        Ok(PackageFiles { place })
    }

    /// The folder, as messages name it; nothing for a package in memory.
    pub fn label(&self) -> PathBuf {
        match &self.place {
            Place::Directory(given) => given.clone(),
            Place::Memory(_) => PathBuf::from("package in memory"),
        }
    }

    /// Reads a file that may be absent, given by a name that we chose.
    pub fn read_optional(&self, name: &str, limit: u64) -> Result<Option<FoundFile>, PackageError> {
        match &self.place {
            Place::Memory(files) => {
                let Some(bytes) = files.get(name) else {
                    return Ok(None);
                };
                let label = PathBuf::from(name);
                check_size((**bytes).as_ref().len() as u64, limit)
                    .map_err(|source| io_error(&label, source))?;
                Ok(Some(FoundFile {
                    label,
                    bytes: bytes.clone(),
                }))
            }
            Place::Directory(given) => {
                let label = given.join(name);
                // A link to nothing is there, and broken.
                match label.symlink_metadata() {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                    _ => {}
                }
                let real = locate(given, given, name).map_err(|error| match error {
                    LocationError::Outside => PackageError::new(at_file(&label), link_out(name)),
                    LocationError::Io { source, .. } => io_error(&label, source),
                })?;
                let bytes = read_regular(&real, limit).map_err(|source| io_error(&label, source))?;
                Ok(Some(FoundFile {
                    label,
                    bytes: std::sync::Arc::new(bytes),
                }))
            }
        }
    }

    /// The graphs beside the metadata and in `onnx/`, sorted.
    pub fn graphs(&self) -> Result<Vec<String>, PackageError> {
        let mut names = Vec::new();
        match &self.place {
            Place::Memory(files) => {
                let near = |name: &&String| name.strip_prefix("onnx/").is_none_or(|rest| !rest.contains('/'));
                let in_root = |name: &&String| name.starts_with("onnx/") || !name.contains('/');
                names.extend(files.keys().filter(near).filter(in_root).cloned());
            }
            Place::Directory(given) => {
                for folder in ["", "onnx/"] {
                    let path = given.join(folder);
                    let entries = match std::fs::read_dir(&path) {
                        Err(error) if !folder.is_empty() && error.kind() == io::ErrorKind::NotFound => {
                            continue;
                        }
                        entries => entries.map_err(|source| io_error(&path, source))?,
                    };
                    for entry in entries {
                        let entry = entry.map_err(|source| io_error(&path, source))?;
                        if let Some(name) = entry.file_name().to_str() {
                            names.push(format!("{folder}{name}"));
                        }
                    }
                }
            }
        }
        names.retain(|name| name.ends_with(".onnx"));
        names.sort();
        Ok(names)
    }

    /// Checks a path that the package's metadata names at `location`.
    pub fn check(&self, path: &str, location: &Location) -> Result<(), PackageError> {
        self.resolve(path, location).map(|_| ())
    }

    /// Reads a file that the package's metadata names at `location`.
    pub fn read(&self, path: &str, limit: u64, location: &Location) -> Result<FoundFile, PackageError> {
        let relative = self.resolve(path, location)?;
        self.read_optional(&relative, limit)?
            .ok_or_else(|| missing(path, location))
    }

    /// A model that the package's metadata names at `location`.
    pub fn model(&self, path: &str, location: &Location) -> Result<ModelSource, PackageError> {
        let relative = self.resolve(path, location)?;
        match &self.place {
            Place::Directory(given) => Ok(ModelSource::File {
                path: given.join(&relative),
                root: given.clone(),
            }),
            Place::Memory(files) => {
                let model = files.get(&relative).ok_or_else(|| missing(path, location))?;
                // A model names its external data relative to its own folder.
                let folder = match relative.rsplit_once('/') {
                    Some((folder, _)) => format!("{folder}/"),
                    None => String::new(),
                };
                let external = files
                    .iter()
                    .filter_map(|(name, bytes)| {
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
        }
    }

    /// The path with `.` removed, if it stays inside the package and the file is there.
    fn resolve(&self, path: &str, location: &Location) -> Result<String, PackageError> {
        let refuse = |why: &str| PackageError::new(location.clone(), bad_path(path, why));
        let relative = plain(path).map_err(refuse)?;
        match &self.place {
            Place::Memory(files) => match files.contains_key(&relative) {
                true => Ok(relative),
                false => Err(missing(path, location)),
            },
            Place::Directory(given) => match locate(given, given, &relative) {
                Ok(target) => match target.metadata() {
                    Ok(metadata) if metadata.is_file() => Ok(relative),
                    Ok(metadata) if metadata.is_dir() => Err(refuse("is a folder, not a file")),
                    Ok(_) => Err(refuse("is no regular file")),
                    Err(source) => Err(PackageError::new(
                        location.clone(),
                        PackageErrorKind::Io { source },
                    )),
                },
                Err(LocationError::Outside) => Err(PackageError::new(location.clone(), link_out(path))),
                Err(LocationError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    Err(missing(path, location))
                }
                Err(LocationError::Io { source, .. }) => Err(PackageError::new(
                    location.clone(),
                    PackageErrorKind::Io { source },
                )),
            },
        }
    }
}

/// Files of a package in memory by their plain name, each once.
fn by_name(files: &[(String, SharedBytes)]) -> Result<HashMap<String, SharedBytes>, PackageError> {
    let mut named = HashMap::with_capacity(files.len());
    for (name, bytes) in files {
        let at = Location {
            file: PathBuf::from("package in memory"),
            ..Location::default()
        };
        let plain = match plain(name) {
            Ok(plain) => plain,
            Err(why) => return Err(PackageError::new(at, bad_path(name, why))),
        };
        if named.insert(plain, bytes.clone()).is_some() {
            let kind = bad_path(name, "names a file that was given already");
            return Err(PackageError::new(at, kind));
        }
    }
    Ok(named)
}

fn at_file(file: &Path) -> Location {
    Location {
        file: file.to_owned(),
        ..Location::default()
    }
}

fn io_error(file: &Path, source: io::Error) -> PackageError {
    PackageError::new(at_file(file), PackageErrorKind::Io { source })
}

fn bad_path(path: &str, why: &str) -> PackageErrorKind {
    PackageErrorKind::BadPath {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

fn link_out(path: &str) -> PackageErrorKind {
    bad_path(path, "is a link out of the package")
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
