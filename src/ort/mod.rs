//! ONNX Runtime as a backend: finding the library, and sessions on it.

use std::path::PathBuf;

use crate::component::{ComponentError, ComponentErrorKind, ModelSource};

/// Where to look for the library, in this order: the option, the environment's path
/// (read by whoever made this), beside liboxpipe, the system's name.
#[derive(Clone, Debug, Default)]
pub struct OrtSearch {
    pub option: Option<PathBuf>,
    pub environment: Option<PathBuf>,
}

/// A loaded ONNX Runtime; clones are the same one. Never unloaded.
#[derive(Clone, Debug)]
pub struct OrtLibrary {}

impl OrtLibrary {
    pub fn load(search: &OrtSearch) -> Result<Self, ComponentError> {
        let _ = search;
        Err(ComponentErrorKind::BackendUnavailable {
            message: "not there yet".into(),
        }
        .into())
    }
}

#[derive(Clone, Debug, Default)]
pub struct OrtOptions {
    /// Intra-op threads; 0 lets ONNX Runtime choose.
    pub threads: usize,
}

#[derive(Debug)]
pub struct OrtSession {}

impl OrtSession {
    pub fn load(
        library: &OrtLibrary,
        name: &str,
        source: &ModelSource,
        options: &OrtOptions,
    ) -> Result<Self, ComponentError> {
        let _ = (library, source, options);
        Err(ComponentError::new(
            name,
            ComponentErrorKind::BackendUnavailable {
                message: "not there yet".into(),
            },
        ))
    }
}
