use std::sync::Arc;

use super::{TextError, Tokenizer};

/// Up to this many tokens are decoded again with each that follows; more than 64 without
/// text are a broken character of a model that has lost its way.
const PATIENCE: usize = 64;

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
///
/// Tokens that give no text for long are not decoded again with each that follows, but
/// whenever their number has grown by a 64th: n tokens take time in proportion to n, and text
/// may be given out that much later.
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
    /// The window is decoded once it has this many ids.
    try_at: usize,
    /// Ids that were pushed, and which of them is the first whose text may not be given out yet.
    pushed: u64,
    waiting: u64,
    /// What the last call gave.
    span: Span,
    /// Bytes given out before it and by it.
    bytes: u64,
}

/// Which part of a text a call of a [`DecodeStream`] gave, and of which ids it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Bytes of the text before.
    pub offset: u64,
    /// The first of the ids whose text it is: how many were pushed before it.
    pub first: u64,
    /// How many ids it is the text of, special ones between them included; 0 if there is no text.
    pub count: u64,
}

impl DecodeStream {
    pub(super) fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Self {
        DecodeStream {
            tokenizer,
            skip_special,
            window: Vec::new(),
            given: 0,
            given_text: String::new(),
            try_at: 0,
            pushed: 0,
            waiting: 0,
            span: Span::default(),
            bytes: 0,
        }
    }

    /// The text that has become certain with this token; empty while a character is
    /// incomplete.
    pub fn push(&mut self, id: i32) -> Result<String, TextError> {
        let piece = self.decode_with(id)?;
        self.pushed += 1;
        self.note(&piece);
        Ok(piece)
    }

    /// Where the text of the last call is in the whole, and of which ids it is.
    pub fn span(&self) -> Span {
        self.span
    }

    fn note(&mut self, piece: &str) {
        let nothing_waits = self.window.len() == self.given;
        self.span = Span {
            offset: self.bytes,
            first: self.waiting,
            count: if piece.is_empty() {
                0
            } else {
                self.pushed - self.waiting
            },
        };
        self.bytes += piece.len() as u64;
        if nothing_waits || !piece.is_empty() {
            self.waiting = self.pushed;
        }
    }

    fn decode_with(&mut self, id: i32) -> Result<String, TextError> {
        let id = self.tokenizer.known_id(id)?;
        if self.skip_special && self.tokenizer.skips(id) {
            return Ok(String::new());
        }
        self.window.push(id);
        if self.tokenizer.is_byte_token(id) || self.window.len() < self.try_at {
            return Ok(String::new());
        }
        let piece = self.take_new(false);
        if piece.is_err() {
            self.window.pop();
        }
        piece
    }

    /// What is left, incomplete characters as U+FFFD; the stream then starts anew.
    pub fn flush(&mut self) -> Result<String, TextError> {
        let rest = self.take_new(true)?;
        self.note(&rest);
        *self = DecodeStream {
            span: self.span,
            ..DecodeStream::new(self.tokenizer.clone(), self.skip_special)
        };
        Ok(rest)
    }

    /// Changes nothing if it fails.
    fn take_new(&mut self, everything: bool) -> Result<String, TextError> {
        let text = self.tokenizer.decode_known(&self.window, self.skip_special)?;
        let new = text.strip_prefix(self.given_text.as_str()).unwrap_or_default();
        let incomplete = new.ends_with(char::REPLACEMENT_CHARACTER);
        if new.is_empty() || (incomplete && !everything) {
            let held_back = self.window.len() - self.given;
            self.try_at = self.window.len() + 1 + held_back / PATIENCE;
            return Ok(String::new());
        }
        let piece = self.window.get(self.given..).unwrap_or_default();
        self.given_text = self.tokenizer.decode_known(piece, self.skip_special)?;
        self.window.drain(..self.given);
        self.given = self.window.len();
        self.try_at = 0;
        Ok(new.to_owned())
    }
}
