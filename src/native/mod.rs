//! The embedded runtime: a graph executor for one ONNX model on CPU.

pub mod element;
pub mod infer;
mod kernels;
pub mod node;
pub mod operator;
pub mod output;
pub mod registry;
pub mod tensor;

use crate::component::{ComponentError, ComponentErrorKind, ModelSource};

/// Settings of a native session.
#[derive(Clone, Debug)]
pub struct NativeOptions {
    /// Threads that a run may use, the caller's included; results do not depend on it.
    pub threads: usize,
}

impl Default for NativeOptions {
    fn default() -> Self {
        NativeOptions { threads: 1 }
    }
}

/// A graph loaded into the native runtime.
#[derive(Debug)]
pub struct NativeSession {
    name: String,
}

impl NativeSession {
    /// Reads a model and prepares it. Fails with
    /// [`MissingOperators`](ComponentErrorKind::MissingOperators), naming all of them, when
    /// the runtime lacks some.
    pub fn load(name: &str, source: &ModelSource, options: &NativeOptions) -> Result<Self, ComponentError> {
        let _ = (source, options);
        Err(ComponentError::new(
            name,
            ComponentErrorKind::BackendUnavailable {
                message: "not there yet".into(),
            },
        ))
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}
