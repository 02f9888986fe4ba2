use std::path::Path;

use thiserror::Error;

use crate::component::{ComponentError, ComponentErrorKind, display_shape, listed, shown};
use crate::generation::SampleError;
use crate::media::MediaError;
use crate::package::{PackageError, PackageErrorKind};
use crate::text::TextError;

/// Anything that opening or running a pipeline can fail with.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PipelineError {
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error(transparent)]
    Component(#[from] ComponentError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Text(#[from] TextError),
}

/// A call that does not fit the pipeline or the state of the run. The run is as it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RequestError {
    #[error("there is no component \"{}\"; the components are {}", shown(.found), listed(.known))]
    UnknownComponent { found: String, known: Vec<String> },
    #[error("{variable} names \"{}\", which is no component; the components are {}", shown(.found), listed(.known))]
    UnknownVariableComponent {
        variable: &'static str,
        found: String,
        known: Vec<String>,
    },
    #[error("component \"{component}\" has no port \"{}\"; it has {}", shown(.port), listed(.known))]
    UnknownPort {
        component: String,
        port: String,
        known: Vec<String>,
    },
    #[error("\"{}\" is no address of a value; write component.port, such as {example}", shown(.found))]
    BadAddress { found: String, example: String },
    /// The port exists, but its value does not come from the request.
    #[error("input \"{port}\" of component \"{component}\" is not yours to set: it is fed by {fed_by}")]
    NotSettable {
        component: String,
        port: String,
        fed_by: String,
    },
    #[error(
        "input \"{port}\" of component \"{component}\" is missing; set it before the first step ({expected})"
    )]
    MissingInput {
        component: String,
        port: String,
        expected: String,
    },
    #[error("{component}.{port} has no value yet; {advice}")]
    NoValue {
        component: String,
        port: String,
        advice: &'static str,
    },
    #[error("the run has no tokens; append some before the first step")]
    NoTokens,
    /// Of texts that a package is to read, without a run.
    #[error("text {index} has no tokens; leave it out, or give one that the tokenizer makes tokens of")]
    EmptyText { index: usize },
    #[error(
        "text {index} has {tokens} tokens, and the package takes {limit}; shorten it, or set the pipeline's option \
         \"long_texts\" to \"truncate\" where the package says how many tokens it reads"
    )]
    LongText {
        index: usize,
        tokens: usize,
        limit: usize,
    },
    #[error("token id {id} is outside of the vocabulary of {size} tokens")]
    TokenOutOfRange { id: i32, size: usize },
    #[error("the run is finished ({reason}); append tokens or rewind to go on")]
    Finished { reason: &'static str },
    #[error("cannot rewind to {to} tokens; the run has {have}")]
    RewindBeyond { to: usize, have: usize },
    #[error(
        "{have} tokens and {more} more are above the {limit} that the model takes; append fewer, or rewind first"
    )]
    ContextFull { have: usize, more: usize, limit: usize },
    #[error("the run has {limit} tokens, as many as the model takes; rewind to make room for another")]
    SequenceFull { limit: u64 },
    #[error(
        "the run has {length} tokens, and its max_length is {limit}; rewind to make room for another, or make a run \
         with a larger one"
    )]
    LengthReached { length: u64, limit: u64 },
    #[error("token {id} does not fit the constraint here; choose one that does, or set no constraint")]
    AgainstConstraint { id: i32 },
    #[error("the tokens that the package chooses have no text to constrain: it has no tokenizer for them")]
    NoTextToConstrain,
    #[error("the package has no tokenizer; append token ids")]
    NoTokenizer,
    #[error("component \"{component}\" does not run {asked}; its phase is {phase}")]
    WrongPhase {
        component: String,
        asked: &'static str,
        phase: &'static str,
    },
    /// What the package's strategy has no place for.
    #[error("{what} needs an autoregressive package; this one is {strategy}")]
    NoTokenLoop {
        what: &'static str,
        strategy: &'static str,
    },
    /// Of an iterative package.
    #[error("the loop has taken no step yet; step first")]
    NoSteps,
    /// Of a package with a pre-embedder, whose decoder reads the prompt as a whole and first.
    #[error("the prompt cannot go on behind frames that were made of it; rewind to it, or to 0 for another")]
    PromptEnded,
    #[error("no logits yet; step, or compute them with forward")]
    NoLogits,
    #[error("component \"{component}\": logits hold NaN at index {index}; no token can be chosen from them")]
    NanLogits { component: String, index: usize },
    #[error("component \"{component}\": {error}")]
    NoChoice { component: String, error: SampleError },
    #[error("component \"{component}\": the logits are empty; expected a row for each position")]
    EmptyLogits { component: String },
    /// A cache or state that did not come back as the package says.
    #[error(
        "component \"{component}\": output \"{port}\" has shape {}, expected {}: the package says that it is its \
         past with the new positions appended",
        display_shape(.found), display_shape(.expected)
    )]
    CarriedShape {
        component: String,
        port: String,
        found: Vec<i64>,
        expected: Vec<i64>,
    },
    /// Of a cache whose size the graph fixes.
    #[error(
        "component \"{component}\": output \"{port}\" is a buffer of {capacity} positions, and {needed} are needed; \
         rewind, or feed fewer tokens"
    )]
    CacheFull {
        component: String,
        port: String,
        needed: usize,
        capacity: usize,
    },
    /// Of a package that nests one decoder in another.
    #[error(
        "component \"{component}\": output \"{port}\" has shape {}, expected at least one row, of {width} numbers as \
         the rows that its reader has had of the frame",
        display_shape(.found)
    )]
    FrameRows {
        component: String,
        port: String,
        found: Vec<i64>,
        width: i64,
    },
    /// Of a denoiser with a scheduler.
    #[error(
        "component \"{component}\": output \"{port}\" has shape {}, expected {}, the shape of the state that the \
         scheduler makes another of",
        display_shape(.found), display_shape(.expected)
    )]
    LoopShape {
        component: String,
        port: String,
        found: Vec<i64>,
        expected: Vec<i64>,
    },
    /// Of a denoiser that makes tokens.
    #[error(
        "component \"{component}\": output \"{port}\" has shape {}, expected a row of logits for each of the tokens \
         {}",
        display_shape(.found), display_shape(.tokens)
    )]
    LogitsShape {
        component: String,
        port: String,
        found: Vec<i64>,
        tokens: Vec<i64>,
    },
    /// Bytes that are no saved run, or none of this pipeline.
    #[error("cannot {what} the state: {problem}")]
    SavedState { what: &'static str, problem: String },
    #[error("{what}: {message}")]
    InvalidSetting { what: &'static str, message: String },
    #[error(
        "the package does not say how {kind} become tensors ({section}); set the components' input tensors yourself"
    )]
    NoPreprocessing {
        kind: &'static str,
        section: &'static str,
    },
    #[error(transparent)]
    Media(MediaError),
    #[error(
        "{waiting} images have no placeholder (token {placeholder}) in the prompt; append text that has one for each"
    )]
    WaitingImages { waiting: usize, placeholder: i32 },
    #[error(
        "tokens {start} to {end} are of an image that was taken back, and other images were added since; rewind to \
         {start} tokens or less and append the prompt of the new ones"
    )]
    EarlierImages { start: usize, end: usize },
}

/// The kinds of failure that a caller may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument or a setting is wrong.
    InvalidArgument,
    UnknownComponent,
    UnknownPort,
    /// A tensor's dtype, rank, dim or length is wrong.
    BadTensor,
    /// A dtype that does not cross the interface.
    UnsupportedDtype,
    MissingInput,
    /// The call does not fit what the run has done so far.
    InvalidState,
    /// The metadata or a file of the package is wrong.
    BadPackage,
    /// The model is not ONNX, or broken.
    BadModel,
    /// Understood, but not done by this version or build.
    Unsupported,
    /// A backend cannot be had.
    BackendUnavailable,
    /// A backend or an operator failed.
    RunFailed,
    /// A file or folder could not be read.
    Io,
    Tokenizer,
    Template,
    /// A grammar that an answer was to follow.
    Constraint,
    /// What a model wrote as a call of a tool and is none.
    ToolCall,
    /// An image or a sound cannot be decoded, or not be preprocessed as the package says.
    BadMedia,
    OutOfMemory,
    Cancelled,
    DeadlineExceeded,
}

impl PipelineError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            PipelineError::Package(error) => package_kind(error.kind()),
            PipelineError::Component(error) => component_kind(error.kind()),
            PipelineError::Request(error) => request_kind(error),
            PipelineError::Text(error) => text_kind(error),
        }
    }

    /// The component that the error is about, if it is about one.
    pub fn component(&self) -> Option<&str> {
        use RequestError as R;
        match self {
            PipelineError::Package(error) => error.component(),
            PipelineError::Component(error) => Some(error.component.as_str()).filter(|name| !name.is_empty()),
            PipelineError::Request(R::UnknownComponent { found, .. }) => Some(found),
            PipelineError::Request(
                R::UnknownPort { component, .. }
                | R::NotSettable { component, .. }
                | R::MissingInput { component, .. }
                | R::NoValue { component, .. }
                | R::WrongPhase { component, .. }
                | R::NanLogits { component, .. }
                | R::NoChoice { component, .. }
                | R::EmptyLogits { component }
                | R::CarriedShape { component, .. }
                | R::FrameRows { component, .. }
                | R::CacheFull { component, .. }
                | R::LoopShape { component, .. }
                | R::LogitsShape { component, .. },
            ) => Some(component),
            PipelineError::Request(_) | PipelineError::Text(_) => None,
        }
    }

    /// The port that the error is about, if it is about one.
    pub fn port(&self) -> Option<&str> {
        use RequestError as R;
        match self {
            PipelineError::Package(error) => error.port(),
            PipelineError::Component(error) => error.port(),
            PipelineError::Request(
                R::UnknownPort { port, .. }
                | R::NotSettable { port, .. }
                | R::MissingInput { port, .. }
                | R::NoValue { port, .. }
                | R::CarriedShape { port, .. }
                | R::FrameRows { port, .. }
                | R::CacheFull { port, .. }
                | R::LoopShape { port, .. }
                | R::LogitsShape { port, .. },
            ) => Some(port),
            PipelineError::Request(_) | PipelineError::Text(_) => None,
        }
    }

    /// The node that the error is about, if it is about one.
    pub fn node(&self) -> Option<&str> {
        match self {
            PipelineError::Component(error) => error.node(),
            _ => None,
        }
    }

    /// The file that the error is about, if it is about one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            PipelineError::Package(error) => Some(&error.location().file),
            PipelineError::Component(error) => error.file(),
            PipelineError::Text(TextError::Io { path, .. }) => Some(path),
            PipelineError::Text(
                TextError::BadTokenizer { file, .. } | TextError::BadTemplate { file, .. },
            ) => Some(Path::new(file)),
            PipelineError::Request(_) | PipelineError::Text(_) => None,
        }
    }
}

impl From<ComponentErrorKind> for PipelineError {
    fn from(kind: ComponentErrorKind) -> Self {
        PipelineError::Component(kind.into())
    }
}

fn package_kind(kind: &PackageErrorKind) -> ErrorKind {
    match kind {
        PackageErrorKind::Io { .. } => ErrorKind::Io,
        PackageErrorKind::Unsupported { .. } | PackageErrorKind::UnknownCapability { .. } => {
            ErrorKind::Unsupported
        }
        _ => ErrorKind::BadPackage,
    }
}

fn component_kind(kind: &ComponentErrorKind) -> ErrorKind {
    use ComponentErrorKind as K;
    match kind {
        K::UnknownInput { .. } | K::UnknownOutput { .. } => ErrorKind::UnknownPort,
        K::MissingInput { .. } => ErrorKind::MissingInput,
        K::DuplicateInput { .. } | K::DuplicateOutput { .. } | K::NoSuchCache { .. } => {
            ErrorKind::InvalidArgument
        }
        K::UnsupportedPortType { .. } => ErrorKind::UnsupportedDtype,
        K::WrongDtype { .. } | K::WrongRank { .. } | K::WrongDim { .. } | K::BadTensor { .. } => {
            ErrorKind::BadTensor
        }
        K::InvalidModel { .. } | K::InvalidNode { .. } => ErrorKind::BadModel,
        K::MissingOperators { .. } => ErrorKind::Unsupported,
        K::Io { .. } => ErrorKind::Io,
        K::BackendUnavailable { .. } => ErrorKind::BackendUnavailable,
        K::Cancelled => ErrorKind::Cancelled,
        K::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        K::OutOfMemory { .. } | K::OverMemoryLimit { .. } => ErrorKind::OutOfMemory,
        _ => ErrorKind::RunFailed,
    }
}

fn request_kind(error: &RequestError) -> ErrorKind {
    use RequestError as R;
    match error {
        R::UnknownComponent { .. } | R::UnknownVariableComponent { .. } => ErrorKind::UnknownComponent,
        R::UnknownPort { .. } => ErrorKind::UnknownPort,
        R::MissingInput { .. } => ErrorKind::MissingInput,
        R::BadAddress { .. }
        | R::TokenOutOfRange { .. }
        | R::AgainstConstraint { .. }
        | R::RewindBeyond { .. }
        | R::ContextFull { .. }
        | R::LongText { .. }
        | R::NotSettable { .. }
        | R::SavedState { .. }
        | R::InvalidSetting { .. } => ErrorKind::InvalidArgument,
        R::NoValue { .. }
        | R::NoTokens
        | R::EmptyText { .. }
        | R::Finished { .. }
        | R::SequenceFull { .. }
        | R::LengthReached { .. }
        | R::CacheFull { .. }
        | R::WrongPhase { .. }
        | R::NoTokenLoop { .. }
        | R::NoLogits
        | R::NoSteps
        | R::WaitingImages { .. }
        | R::EarlierImages { .. }
        | R::PromptEnded => ErrorKind::InvalidState,
        R::NoTokenizer | R::NoTextToConstrain | R::NoPreprocessing { .. } => ErrorKind::Unsupported,
        R::Media(_) => ErrorKind::BadMedia,
        R::NoChoice { error, .. } => match error {
            SampleError::TokenOutOfRange { .. } => ErrorKind::InvalidArgument,
            SampleError::Stopped { .. } => ErrorKind::Cancelled,
            _ => ErrorKind::RunFailed,
        },
        R::NanLogits { .. }
        | R::EmptyLogits { .. }
        | R::CarriedShape { .. }
        | R::FrameRows { .. }
        | R::LoopShape { .. }
        | R::LogitsShape { .. } => ErrorKind::RunFailed,
    }
}

fn text_kind(error: &TextError) -> ErrorKind {
    match error {
        TextError::Io { .. } => ErrorKind::Io,
        TextError::BadTemplate { .. } | TextError::Render { .. } => ErrorKind::Template,
        TextError::BadArgument { .. } => ErrorKind::InvalidArgument,
        TextError::ToolCall { .. } => ErrorKind::ToolCall,
        TextError::BadConstraint { .. } | TextError::Constraint { .. } => ErrorKind::Constraint,
        _ => ErrorKind::Tokenizer,
    }
}
