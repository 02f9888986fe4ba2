//! Text in and out: the tokenizer, chat templates, and decoding token by token.
//!
//! Knows nothing of models. Everything re-exported below may be used from outside.

mod chat;
mod chat_format;
mod chat_source;
mod chat_values;
mod decode;
mod error;
mod own_stack;
mod strftime;
mod tokenizer;
mod tokenizer_file;

pub use chat::{ChatRequest, ChatTemplate};
pub use decode::DecodeStream;
pub use error::TextError;
pub use tokenizer::{SpecialTokens, Tokenizer};
