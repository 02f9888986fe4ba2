use std::sync::Arc;

use crate::text::{DecodeStream, StopStrings, TextError, Tokenizer};

use super::Usage;

/// The tokens of a run, which of them were chosen, and the text that the chosen ones of
/// this turn have become.
#[derive(Clone)]
pub(super) struct Transcript {
    tokens: Vec<i32>,
    chosen: Vec<bool>,
    /// How many were chosen, in all and since the host last appended some.
    generated: u64,
    in_turn: u64,
    text: Option<Text>,
}

#[derive(Clone)]
struct Text {
    tokenizer: Arc<Tokenizer>,
    /// As a turn begins.
    fresh: Streamed,
    now: Streamed,
    /// As it was before the last token, which the host may replace.
    before: Streamed,
}

/// How far a turn's text is.
#[derive(Clone)]
struct Streamed {
    decoder: DecodeStream,
    stops: StopStrings,
    /// Bytes that were given out.
    given: u64,
}

/// What a chosen token has made of the text.
#[derive(Default)]
pub(super) struct Piece {
    /// Text that has become certain.
    pub text: String,
    /// Bytes of the turn's text before it.
    pub offset: u64,
    /// The stop string that ends the text: its place in the list.
    pub stop: Option<usize>,
}

impl Streamed {
    /// Adds a chosen token; with `last`, nothing is held back. If it fails it may not be used
    /// again.
    fn push(&mut self, tokenizer: &Tokenizer, id: i32, last: bool) -> Result<Piece, TextError> {
        let mut piece = String::new();
        // A model may have more ids than the tokenizer has tokens: those have no text.
        if tokenizer.id_to_token(id).is_some() {
            piece = self.decoder.push(id)?;
        }
        if last {
            piece.push_str(&self.decoder.flush()?);
        }
        let given = self.stops.push(&piece, last);
        let offset = self.given;
        self.given += given.text.len() as u64;
        Ok(Piece {
            text: given.text,
            offset,
            stop: given.stop,
        })
    }
}

impl Transcript {
    /// `tokenizer` is `None` where the tokens are no text.
    pub fn new(tokenizer: Option<&Arc<Tokenizer>>, skip_special: bool, stops: &StopStrings) -> Self {
        Transcript {
            tokens: Vec::new(),
            chosen: Vec::new(),
            generated: 0,
            in_turn: 0,
            text: tokenizer.map(|tokenizer| {
                let fresh = Streamed {
                    decoder: tokenizer.decode_stream(skip_special),
                    stops: stops.clone(),
                    given: 0,
                };
                Text {
                    tokenizer: tokenizer.clone(),
                    now: fresh.clone(),
                    before: fresh.clone(),
                    fresh,
                }
            }),
        }
    }

    /// What all else follows from: tokens, and which were chosen.
    pub fn parts(&mut self) -> (&mut Vec<i32>, &mut Vec<bool>) {
        (&mut self.tokens, &mut self.chosen)
    }

    /// Counts tokens that were set as parts, or says why they are none.
    pub fn recount(&mut self) -> Result<usize, String> {
        let (count, flags) = (self.tokens.len(), self.chosen.len());
        if count != flags {
            return Err(format!(
                "{count} tokens and {flags} marks of those that were chosen"
            ));
        }
        self.count();
        Ok(count)
    }

    /// Brings the text of tokens that were set as parts to where it was; `finished` if what was held
    /// back was given out.
    pub fn replay(&mut self, finished: bool) -> Result<(), TextError> {
        let start = self.tokens.len() - self.turn().len();
        let Some(text) = &mut self.text else { return Ok(()) };
        let turn = self.tokens.get(start..).unwrap_or_default();
        for (index, &id) in turn.iter().enumerate() {
            let mut next = text.now.clone();
            next.push(&text.tokenizer, id, finished && index + 1 == turn.len())?;
            text.before = std::mem::replace(&mut text.now, next);
        }
        Ok(())
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

    /// How many tokens were chosen since the host last appended some.
    pub fn chosen_in_turn(&self) -> u64 {
        self.in_turn
    }

    /// The tokens that were chosen since the host last appended some.
    pub fn turn(&self) -> &[i32] {
        let chosen = usize::try_from(self.in_turn).unwrap_or(usize::MAX);
        let start = self.tokens.len().saturating_sub(chosen);
        self.tokens.get(start..).unwrap_or_default()
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
    pub fn choose(&mut self, id: i32, last: bool) -> Result<Piece, TextError> {
        let mut piece = Piece::default();
        if let Some(text) = &mut self.text {
            let mut next = text.now.clone();
            piece = next.push(&text.tokenizer, id, last)?;
            text.before = std::mem::replace(&mut text.now, next);
        }
        self.tokens.push(id);
        self.chosen.push(true);
        self.generated += 1;
        self.in_turn += 1;
        Ok(piece)
    }

    /// Puts another token in the place of the last, which was chosen; its text as of
    /// [`choose`](Self::choose).
    pub fn choose_instead(&mut self, id: i32, last: bool) -> Result<Piece, TextError> {
        let mut piece = Piece::default();
        if let Some(text) = &mut self.text {
            let mut next = text.before.clone();
            piece = next.push(&text.tokenizer, id, last)?;
            text.now = next;
        }
        if let Some(token) = self.tokens.last_mut() {
            *token = id;
        }
        Ok(piece)
    }

    /// Text of the tokens that were chosen in this turn which no piece has had yet.
    pub fn pending(&self) -> Result<String, TextError> {
        let Some(text) = &self.text else {
            return Ok(String::new());
        };
        let Streamed {
            mut decoder,
            mut stops,
            ..
        } = text.now.clone();
        Ok(stops.push(&decoder.flush()?, true).text)
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

    /// The text is as it was when the turn's last token was chosen.
    fn restart_text(&mut self) {
        let Some(text) = &mut self.text else {
            return;
        };
        text.now = text.fresh.clone();
        let chosen = usize::try_from(self.in_turn).unwrap_or(usize::MAX);
        let start = self.tokens.len().saturating_sub(chosen);
        for &id in self.tokens.get(start..).unwrap_or_default() {
            let mut next = text.now.clone();
            // It has not failed before.
            if next.push(&text.tokenizer, id, false).is_ok() {
                text.now = next;
            }
        }
        text.before = text.now.clone();
    }
}
