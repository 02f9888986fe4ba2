use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

impl fmt::Debug for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelSource::File { path, .. } => path.fmt(f),
            ModelSource::Memory { label, .. } => write!(f, "{label} (in memory)"),
        }
    }
}
