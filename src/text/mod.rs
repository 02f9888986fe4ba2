//! Text in and out: the tokenizer, chat templates, and decoding token by token.
//!
//! Knows nothing of models. Everything re-exported below may be used from outside.

mod chat;
mod chat_format;
mod chat_methods;
mod chat_print;
mod chat_source;
mod chat_values;
mod constraint;
mod decode;
mod error;
mod guide;
mod own_stack;
mod python_call;
mod stop_strings;
mod strftime;
mod token_bytes;
mod tokenizer;
mod tokenizer_file;
mod tool_calls;
mod tool_parameters;

pub use chat::{ChatRequest, ChatTemplate};
pub use constraint::Constraint;
pub use decode::{DecodeStream, Span};
pub use error::TextError;
pub use guide::{ConstraintKind, DEFAULT_JSON_WHITESPACE, Guide};
pub use stop_strings::{Given, StopStrings};
pub use tokenizer::{SpecialTokens, Tokenizer};
pub use tool_calls::{ToolCall, ToolCallFormat, ToolCalls};
pub use tool_parameters::ToolSchemas;
