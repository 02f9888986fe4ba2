use std::sync::Arc;

use crate::text::{DecodeStream, TextError, Tokenizer};

use super::Usage;

/// The tokens of a run, which of them were chosen, and the text that the chosen ones of
/// this turn have become.
pub(super) struct Transcript {
    tokens: Vec<i32>,
    chosen: Vec<bool>,
    /// How many were chosen, in all and since the host last appended some.
    generated: u64,
    in_turn: u64,
    text: Option<Text>,
}

struct Text {
    tokenizer: Arc<Tokenizer>,
    stream: DecodeStream,
    /// The stream as it was before the last token, which the host may replace.
    before: DecodeStream,
}

impl Text {
    /// What a chosen token adds to the text of a stream, and the stream after it.
    fn with(&self, stream: &DecodeStream, id: i32, last: bool) -> Result<(String, DecodeStream), TextError> {
        let mut stream = stream.clone();
        let mut piece = String::new();
        // A model may have more ids than the tokenizer has tokens: those have no text.
        if self.tokenizer.id_to_token(id).is_some() {
            piece = stream.push(id)?;
        }
        if last {
            piece.push_str(&stream.flush()?);
        }
        Ok((piece, stream))
    }
}

impl Transcript {
    pub fn new(tokenizer: Option<&Arc<Tokenizer>>) -> Self {
        Transcript {
            tokens: Vec::new(),
            chosen: Vec::new(),
            generated: 0,
            in_turn: 0,
            text: tokenizer.map(|tokenizer| Text {
                tokenizer: tokenizer.clone(),
                stream: tokenizer.decode_stream(true),
                before: tokenizer.decode_stream(true),
            }),
        }
    }

    pub fn tokens(&self) -> &[i32] {
        &self.tokens
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: (self.tokens.len() as u64).saturating_sub(self.generated),
            generated_tokens: self.generated,
        }
    }

    /// Tokens chosen since the host last appended some.
    pub fn chosen_in_turn(&self) -> u64 {
        self.in_turn
    }

    /// Tokens before the first chosen one.
    pub fn prompt_len(&self) -> usize {
        let first = self.chosen.iter().position(|&chosen| chosen);
        first.unwrap_or(self.chosen.len())
    }

    pub fn prompt(&self) -> &[i32] {
        self.tokens.get(..self.prompt_len()).unwrap_or_default()
    }

    /// The ids of the chosen tokens.
    pub fn chosen(&self) -> impl Iterator<Item = i32> {
        self.tokens
            .iter()
            .zip(&self.chosen)
            .filter(|(_, chosen)| **chosen)
            .map(|(id, _)| *id)
    }

    /// Appends tokens of the host; a new turn begins.
    pub fn append(&mut self, ids: &[i32]) {
        self.tokens.extend_from_slice(ids);
        self.chosen.resize(self.tokens.len(), false);
        self.in_turn = 0;
        self.restart_text();
    }

    /// Appends a chosen token and gives the text that has become certain; with `last`, all
    /// that was held back.
    pub fn choose(&mut self, id: i32, last: bool) -> Result<String, TextError> {
        let mut piece = String::new();
        if let Some(text) = &mut self.text {
            let (next, stream) = text.with(&text.stream, id, last)?;
            piece = next;
            text.before = std::mem::replace(&mut text.stream, stream);
        }
        self.tokens.push(id);
        self.chosen.push(true);
        self.generated += 1;
        self.in_turn += 1;
        Ok(piece)
    }

    /// Puts another token in the place of the last, which was chosen; its text as of
    /// [`choose`](Self::choose).
    pub fn choose_instead(&mut self, id: i32, last: bool) -> Result<String, TextError> {
        let mut piece = String::new();
        if let Some(text) = &mut self.text {
            (piece, text.stream) = text.with(&text.before, id, last)?;
        }
        if let Some(token) = self.tokens.last_mut() {
            *token = id;
        }
        Ok(piece)
    }

    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.chosen.truncate(len);
        self.count();
        self.restart_text();
    }

    fn count(&mut self) {
        let chosen = |chosen: &&bool| **chosen;
        self.generated = self.chosen.iter().filter(chosen).count() as u64;
        self.in_turn = self.chosen.iter().rev().take_while(chosen).count() as u64;
    }

    fn restart_text(&mut self) {
        if let Some(text) = &mut self.text {
            text.stream = text.tokenizer.decode_stream(true);
            text.before = text.stream.clone();
        }
    }
}
