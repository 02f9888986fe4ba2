use std::fmt;
use std::path::PathBuf;

use crate::component::SharedBytes;

/// Where a package is read from.
#[derive(Clone)]
pub enum PackageSource {
    /// A folder on disk.
    Directory(PathBuf),
    /// Files by their path in the package (`decoder.onnx`, `onnx/model.onnx_data`); nothing
    /// is read from disk.
    Files(Vec<(String, SharedBytes)>),
}

impl fmt::Debug for PackageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackageSource::Directory(path) => path.fmt(f),
            PackageSource::Files(files) => f
                .debug_list()
                .entries(files.iter().map(|(name, _)| name))
                .finish(),
        }
    }
}
