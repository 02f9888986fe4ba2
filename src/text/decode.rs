use std::sync::Arc;

use super::{TextError, Tokenizer};

/// Decodes one token at a time into whole UTF-8 pieces.
///
/// The pieces, and what [`flush`](Self::flush) gives at the end, put together are exactly
/// the text of decoding all ids at once.
#[derive(Clone, Debug)]
pub struct DecodeStream {
    tokenizer: Arc<Tokenizer>,
}

impl DecodeStream {
    /// The text that has become certain with this token; empty while a character is
    /// incomplete.
    pub fn push(&mut self, id: i32) -> Result<String, TextError> {
        let _ = (id, &self.tokenizer);
        todo!()
    }

    /// What is left, incomplete characters as U+FFFD; the stream then starts anew.
    pub fn flush(&mut self) -> Result<String, TextError> {
        todo!()
    }
}
