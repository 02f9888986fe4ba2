use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// Bytes that stay unchanged for as long as anybody holds them.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Where the ONNX model of a component comes from.
#[derive(Clone)]
pub enum ModelSource {
    /// A file. External data lies in files relative to its folder and stays inside `root`,
    /// the model's own folder or a package's that holds it.
    File { path: PathBuf, root: PathBuf },
    /// Model bytes, and external data by the location that the model names.
    Memory {
        /// What messages call it.
        label: String,
        model: SharedBytes,
        external: Vec<(String, SharedBytes)>,
    },
}

impl ModelSource {
    /// A file whose external data stays in the file's own folder.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let root = path.parent().unwrap_or(Path::new("")).to_owned();
        ModelSource::File { path, root }
    }

    /// The path, when there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            ModelSource::File { path, .. } => Some(path),
            ModelSource::Memory { .. } => None,
        }
    }
}

/// Why a location that a model names cannot be used.
#[derive(Debug)]
pub enum LocationError {
    /// It leads out of the folder that holds everything, by its name or through a link.
    Outside,
    Io {
        path: PathBuf,
        source: io::Error,
    },
}

/// The file that a model in `folder` means by `location`: with links resolved, existing, and
/// inside `root`.
pub fn locate(folder: &Path, root: &Path, location: &str) -> Result<PathBuf, LocationError> {
    let resolve = |path: &Path| {
        // The empty path means the current folder, but not to `canonicalize`.
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        path.canonicalize().map_err(|source| LocationError::Io {
            path: path.to_owned(),
            source,
        })
    };
    let root = resolve(root)?;
    let folder = resolve(folder)?;
    // By name first, so that nothing outside is touched.
    let mut named = folder.clone();
    for part in Path::new(location).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => named.push(name),
            Component::ParentDir if named.pop() => {}
            _ => return Err(LocationError::Outside),
        }
        if !named.starts_with(&root) {
            return Err(LocationError::Outside);
        }
    }
    let real = resolve(&folder.join(location))?;
    match real.starts_with(&root) {
        true => Ok(real),
        false => Err(LocationError::Outside),
    }
}

impl fmt::Debug for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelSource::File { path, .. } => path.fmt(f),
            ModelSource::Memory { label, .. } => write!(f, "{label} (in memory)"),
        }
    }
}
