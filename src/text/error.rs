use std::path::PathBuf;

use thiserror::Error;

/// A failure of the tokenizer or of a chat template.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TextError {
    #[error("cannot read {}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// Not a tokenizer.json, or one that the `tokenizers` crate cannot build.
    #[error("{file}: not a usable tokenizer: {message}")]
    BadTokenizer { file: String, message: String },
    #[error("encoding failed: {message}")]
    Encode { message: String },
    #[error("decoding failed: {message}")]
    Decode { message: String },
    /// An id outside of the vocabulary.
    #[error("token id {id} is not in the vocabulary of {size} tokens")]
    UnknownToken { id: i32, size: usize },
    /// The template does not parse.
    #[error("{file}: chat template: {message}")]
    BadTemplate { file: String, message: String },
    /// The template called `raise_exception`, or failed while it was filled in.
    #[error("chat template: {message}")]
    Render { message: String },
    /// A grammar that cannot be used, or a vocabulary that none can be used with.
    #[error("constraint: {message}")]
    BadConstraint { message: String },
    /// A grammar that could not be followed: beyond the bounds of its library, mostly.
    #[error("the constraint cannot be followed: {message}; set another, or none")]
    Constraint { message: String },
    /// What a model wrote as a call and is none.
    #[error("{format} tool call at byte {at} of the text: {message}")]
    ToolCall {
        format: &'static str,
        at: usize,
        message: String,
    },
    /// Messages, tools or extra variables that are not the JSON that was asked for.
    #[error("{what}: {message}")]
    BadArgument { what: &'static str, message: String },
}
