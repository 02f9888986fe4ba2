use std::sync::Arc;

use super::{TextError, Tokenizer};

/// Decodes one token at a time into whole UTF-8 pieces.
///
/// The pieces and what [`flush`](Self::flush) gives at the end, put together, are the text
/// of decoding all ids at once. (A decoder that changes text it has already given, by
/// removing a space before a comma two tokens back, say, cannot be streamed exactly; none
/// of the byte-level or SentencePiece ones does.)
///
/// A token's text depends on its neighbours: a leading space is dropped at the start of a
/// text only, several byte tokens make one character. So each token is decoded together
/// with those of the piece before it, and what is new in the result is given out once it
/// does not end inside a character. SentencePiece's byte tokens (`<0xE4>`) are given out when
/// a run of them ends: one that is out of place makes the whole run U+FFFD.
#[derive(Clone, Debug)]
pub struct DecodeStream {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    /// The ids of the last piece, then those not given out yet.
    window: Vec<u32>,
    /// How many ids of the window are of the last piece.
    given: usize,
    /// The last piece's ids decoded by themselves.
    given_text: String,
}

impl DecodeStream {
    pub(super) fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Self {
        DecodeStream {
            tokenizer,
            skip_special,
            window: Vec::new(),
            given: 0,
            given_text: String::new(),
        }
    }

    /// The text that has become certain with this token; empty while a character is
    /// incomplete.
    pub fn push(&mut self, id: i32) -> Result<String, TextError> {
        let id = self.tokenizer.known_id(id)?;
        self.change(|next| {
            next.window.push(id);
            next.take_new(false)
        })
    }

    /// What is left, incomplete characters as U+FFFD; the stream then starts anew.
    pub fn flush(&mut self) -> Result<String, TextError> {
        self.change(|next| {
            let rest = next.take_new(true)?;
            *next = DecodeStream::new(next.tokenizer.clone(), next.skip_special);
            Ok(rest)
        })
    }

    /// Changes the stream if `step` succeeds, else not at all.
    fn change(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<String, TextError>,
    ) -> Result<String, TextError> {
        let mut next = self.clone();
        let piece = step(&mut next)?;
        *self = next;
        Ok(piece)
    }

    fn take_new(&mut self, everything: bool) -> Result<String, TextError> {
        if self.in_byte_run() && !everything {
            return Ok(String::new());
        }
        let text = self.tokenizer.decode_known(&self.window, self.skip_special)?;
        let Some(new) = text.strip_prefix(self.given_text.as_str()) else {
            return Ok(String::new());
        };
        let incomplete = new.ends_with(char::REPLACEMENT_CHARACTER);
        if new.is_empty() || (incomplete && !everything) {
            return Ok(String::new());
        }
        let piece = self.window.split_off(self.given);
        self.given_text = self.tokenizer.decode_known(&piece, self.skip_special)?;
        self.given = piece.len();
        self.window = piece;
        Ok(new.to_owned())
    }

    /// Whether the last token that makes text is a byte token, so that the next one may be
    /// of the same run.
    fn in_byte_run(&self) -> bool {
        self.window
            .iter()
            .rev()
            .find(|&&id| !(self.skip_special && self.tokenizer.skips(id)))
            .is_some_and(|&id| self.tokenizer.is_byte_token(id))
    }
}
