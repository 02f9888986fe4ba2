//! A failed call on its way to C: the status code and what the error object will say.
//! The one place where the errors of the modules below become status codes.

use std::path::Path;

use crate::component::{ComponentError, ComponentErrorKind, TensorError};
use crate::pipeline::{ErrorKind, PipelineError};
use crate::text::TextError;

use super::status::*;

pub(super) type Result<T> = std::result::Result<T, Failure>;

/// Boxed inside: a failure is rare, a result is not.
#[derive(Debug)]
pub(super) struct Failure(Box<Details>);

#[derive(Debug, Default)]
pub(super) struct Details {
    pub code: i32,
    pub message: String,
    pub component: String,
    pub port: String,
    pub node: String,
    pub file: String,
}

impl Failure {
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Failure(Box::new(Details {
            code,
            message: message.into(),
            ..Details::default()
        }))
    }

    pub fn null(what: &str) -> Self {
        Failure::new(
            OXP_ERR_NULL_POINTER,
            format!("{what} is NULL; pass a valid pointer"),
        )
    }

    pub fn argument(message: impl Into<String>) -> Self {
        Failure::new(OXP_ERR_INVALID_ARGUMENT, message)
    }

    /// Says which component a failure is about, if it does not say yet.
    pub fn at_component(mut self, component: &str) -> Self {
        if self.0.component.is_empty() {
            component.clone_into(&mut self.0.component);
        }
        self
    }

    /// Says which port a failure is about, if it does not say yet.
    pub fn at_port(mut self, port: &str) -> Self {
        if self.0.port.is_empty() {
            port.clone_into(&mut self.0.port);
        }
        self
    }

    /// Says which file a failure is about.
    pub fn at_file(mut self, file: &str) -> Self {
        file.clone_into(&mut self.0.file);
        self
    }

    pub fn with_advice(mut self, advice: &str) -> Self {
        self.0.message.push_str("; ");
        self.0.message.push_str(advice);
        self
    }

    pub fn code(&self) -> i32 {
        self.0.code
    }

    pub fn into_details(self) -> Details {
        *self.0
    }

    /// A wrong tensor, told apart by what is wrong with it.
    pub fn tensor(what: &str, error: &TensorError) -> Self {
        Failure::new(tensor_code(error), format!("{what}: {error}"))
    }
}

fn tensor_code(error: &TensorError) -> i32 {
    match error {
        TensorError::OutOfMemory { .. } => OXP_ERR_OUT_OF_MEMORY,
        TensorError::RankTooHigh { .. }
        | TensorError::NegativeDim { .. }
        | TensorError::Overflow { .. }
        | TensorError::ByteLength { .. }
        | TensorError::CacheRoom { .. } => OXP_ERR_INVALID_TENSOR,
    }
}

impl From<ComponentError> for Failure {
    fn from(error: ComponentError) -> Self {
        PipelineError::Component(error).into()
    }
}

impl From<TextError> for Failure {
    fn from(error: TextError) -> Self {
        PipelineError::Text(error).into()
    }
}

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Self {
        let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
        Failure(Box::new(Details {
            code: pipeline_code(&error),
            message: error.to_string(),
            component: text(error.component()),
            port: text(error.port()),
            node: text(error.node()),
            file: error
                .file()
                .map(Path::to_string_lossy)
                .unwrap_or_default()
                .into_owned(),
        }))
    }
}

fn pipeline_code(error: &PipelineError) -> i32 {
    // A component's error says more than the kinds that pipelines tell apart.
    if let PipelineError::Component(error) = error {
        use ComponentErrorKind as K;
        match error.kind() {
            K::WrongDtype { .. } => return OXP_ERR_DTYPE_MISMATCH,
            K::WrongRank { .. } | K::WrongDim { .. } => return OXP_ERR_SHAPE_MISMATCH,
            K::BadTensor { source, .. } => return tensor_code(source),
            K::MissingOperators { .. } => return OXP_ERR_MISSING_OPERATOR,
            _ => {}
        }
    }
    match error.kind() {
        ErrorKind::InvalidArgument => OXP_ERR_INVALID_ARGUMENT,
        ErrorKind::UnknownComponent => OXP_ERR_UNKNOWN_COMPONENT,
        ErrorKind::UnknownPort => OXP_ERR_UNKNOWN_PORT,
        ErrorKind::BadTensor => OXP_ERR_INVALID_TENSOR,
        ErrorKind::UnsupportedDtype => OXP_ERR_UNSUPPORTED_DTYPE,
        ErrorKind::MissingInput => OXP_ERR_MISSING_INPUT,
        ErrorKind::InvalidState => OXP_ERR_INVALID_STATE,
        ErrorKind::BadPackage => OXP_ERR_INVALID_PACKAGE,
        ErrorKind::BadModel => OXP_ERR_INVALID_MODEL,
        ErrorKind::Unsupported => OXP_ERR_UNSUPPORTED,
        ErrorKind::BackendUnavailable => OXP_ERR_BACKEND_UNAVAILABLE,
        ErrorKind::RunFailed => OXP_ERR_RUN_FAILED,
        ErrorKind::Io => OXP_ERR_IO,
        ErrorKind::Tokenizer => OXP_ERR_TOKENIZER,
        ErrorKind::Template => OXP_ERR_CHAT_TEMPLATE,
        ErrorKind::Constraint => OXP_ERR_CONSTRAINT,
        ErrorKind::ToolCall => OXP_ERR_TOOL_CALL,
        ErrorKind::BadMedia => OXP_ERR_INVALID_MEDIA,
        ErrorKind::OutOfMemory => OXP_ERR_OUT_OF_MEMORY,
        ErrorKind::Cancelled => OXP_ERR_CANCELLED,
        ErrorKind::DeadlineExceeded => OXP_ERR_DEADLINE_EXCEEDED,
    }
}
