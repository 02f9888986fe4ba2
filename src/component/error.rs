use std::fmt::{self, Display};
use std::path::PathBuf;

use thiserror::Error;

use super::DataType;
use super::shown::{quoted, shown};
use super::tensor::{Shape, TensorError, display_shape};

/// A failure at the seam or behind it: what went wrong, and in which component.
#[derive(Debug)]
pub struct ComponentError {
    /// The component's name; empty for a session that is not part of a pipeline.
    pub component: String,
    /// Boxed: an error is rare, a result is not.
    kind: Box<ComponentErrorKind>,
}

impl ComponentError {
    pub fn new(component: impl Into<String>, kind: ComponentErrorKind) -> Self {
        ComponentError {
            component: component.into(),
            kind: Box::new(kind),
        }
    }

    pub fn kind(&self) -> &ComponentErrorKind {
        &self.kind
    }

    /// The port that the error is about, if it is about one.
    pub fn port(&self) -> Option<&str> {
        self.kind.port()
    }

    /// The node that the error is about, if it is about one.
    pub fn node(&self) -> Option<&str> {
        match &*self.kind {
            ComponentErrorKind::Node { node, .. } | ComponentErrorKind::InvalidNode { node, .. } => {
                Some(node)
            }
            _ => None,
        }
    }

    /// The file that the error is about, if it is about one.
    pub fn file(&self) -> Option<&std::path::Path> {
        match &*self.kind {
            ComponentErrorKind::Io { path, .. } => Some(path),
            ComponentErrorKind::InvalidModel { path, .. } | ComponentErrorKind::InvalidNode { path, .. } => {
                path.as_deref()
            }
            _ => None,
        }
    }
}

impl Display for ComponentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.component.is_empty() {
            write!(f, "component \"{}\": ", self.component)?;
        }
        self.kind.fmt(f)
    }
}

impl std::error::Error for ComponentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

impl From<ComponentErrorKind> for ComponentError {
    fn from(kind: ComponentErrorKind) -> Self {
        ComponentError::new("", kind)
    }
}

/// What went wrong, with the data that a message or a handler needs.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ComponentErrorKind {
    #[error("there is no input \"{}\"; the inputs are {}", shown(.port), quoted(.known))]
    UnknownInput { port: String, known: Vec<String> },
    #[error("there is no output \"{}\"; the outputs are {}", shown(.port), quoted(.known))]
    UnknownOutput { port: String, known: Vec<String> },
    #[error("input \"{port}\" is missing; it expects {expected}")]
    MissingInput { port: String, expected: String },
    #[error("input \"{port}\" was given twice; give each input once")]
    DuplicateInput { port: String },
    #[error("output \"{port}\" was asked for twice; ask for each output once")]
    DuplicateOutput { port: String },
    #[error("output \"{present}\" is not input \"{past}\" with rows added where it lies")]
    NoSuchCache { past: String, present: String },
    #[error("port \"{port}\" is {found}, a type that does not cross this interface")]
    UnsupportedPortType { port: String, found: String },
    #[error(
        "input \"{port}\" is {found}, expected {expected}; convert it first, types are never converted here"
    )]
    WrongDtype {
        port: String,
        found: DataType,
        expected: DataType,
    },
    #[error("input \"{port}\" has shape {} of rank {}, expected {expected} of rank {expected_rank}", display_shape(.found), .found.len())]
    WrongRank {
        port: String,
        found: Shape,
        expected: String,
        expected_rank: usize,
    },
    #[error("input \"{port}\" has shape {}, expected {expected}: dim {axis} must be {expected_dim}", display_shape(.found))]
    WrongDim {
        port: String,
        found: Shape,
        expected: String,
        axis: usize,
        expected_dim: i64,
    },
    #[error("port \"{port}\": {source}")]
    BadTensor { port: String, source: TensorError },
    /// An operator failed, or shapes that only an operator sees do not fit.
    #[error("node \"{node}\" ({op}): {message}")]
    Node {
        node: String,
        op: String,
        message: String,
    },
    #[error("{}: {message}", path_or_memory(.path))]
    InvalidModel { path: Option<PathBuf>, message: String },
    /// A node that cannot be right, whatever the inputs are; found when the model is loaded.
    #[error("{}: node \"{node}\" ({op}): {message}", path_or_memory(.path))]
    InvalidNode {
        path: Option<PathBuf>,
        node: String,
        op: String,
        message: String,
    },
    /// Every operator that the native runtime lacks, one line each.
    #[error("the native runtime lacks {} operator(s) of this model: {}", .missing.len(), .missing.join("; "))]
    MissingOperators { missing: Vec<String> },
    #[error("cannot read {}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The backend cannot be had: not built in, no library, too old.
    #[error("{message}")]
    BackendUnavailable { message: String },
    /// The backend's own error, with what we know of it.
    #[error("{backend}: {message}")]
    Backend { backend: &'static str, message: String },
    #[error("the call was cancelled")]
    Cancelled,
    #[error("the deadline passed")]
    DeadlineExceeded,
    #[error("cannot allocate {bytes} bytes for {what}")]
    OutOfMemory { bytes: u64, what: String },
    /// More than an option allows; nothing was allocated.
    #[error(
        "{what} needs {bytes} bytes, and {of} has {used} already of the {limit} that option \"{option}\" \
         allows; raise it, or ask for less: smaller inputs, a shorter context, a smaller model"
    )]
    OverMemoryLimit {
        bytes: u64,
        what: String,
        of: &'static str,
        used: u64,
        limit: u64,
        option: &'static str,
    },
}

impl ComponentErrorKind {
    fn port(&self) -> Option<&str> {
        use ComponentErrorKind as K;
        match self {
            K::UnknownInput { port, .. }
            | K::UnknownOutput { port, .. }
            | K::MissingInput { port, .. }
            | K::DuplicateInput { port }
            | K::DuplicateOutput { port }
            | K::UnsupportedPortType { port, .. }
            | K::WrongDtype { port, .. }
            | K::WrongRank { port, .. }
            | K::WrongDim { port, .. }
            | K::NoSuchCache { present: port, .. }
            | K::BadTensor { port, .. } => Some(port),
            _ => None,
        }
    }
}

fn path_or_memory(path: &Option<PathBuf>) -> impl fmt::Display + '_ {
    fmt::from_fn(move |f| match path {
        Some(path) => path.display().fmt(f),
        None => f.write_str("model in memory"),
    })
}
