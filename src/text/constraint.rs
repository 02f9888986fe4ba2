use std::fmt;
use std::sync::Arc;

use llguidance::Matcher;

use super::TextError;
use super::guide::{Guide, guarded_text};

/// How far an answer has followed a grammar, and what may come next.
///
/// Serial, as the run that it is of.
pub struct Constraint {
    guide: Arc<Guide>,
    /// As the answer begins.
    fresh: Matcher,
    now: Matcher,
    /// The answer so far.
    taken: Vec<i32>,
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint")
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl Clone for Constraint {
    /// A copy that goes its own way, on another thread too.
    fn clone(&self) -> Self {
        Constraint {
            guide: self.guide.clone(),
            fresh: self.fresh.deep_clone(),
            now: self.now.deep_clone(),
            taken: self.taken.clone(),
        }
    }
}

impl Constraint {
    pub(super) fn new(guide: Arc<Guide>, matcher: Matcher) -> Self {
        Constraint {
            guide,
            now: matcher.clone(),
            fresh: matcher,
            taken: Vec::new(),
        }
    }

    /// Tokens of the answer so far.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// The tokens that end an answer, as far as the vocabulary has them.
    pub fn ends(&self) -> &[i32] {
        self.guide.end_tokens()
    }

    /// The tokens that may come next, a bit for each id, the low bit of a word first; ids beyond
    /// the words may not. An end token may where the grammar may end.
    pub fn mask(&mut self) -> Result<Vec<u32>, TextError> {
        let mut words = Vec::from(self.call(|now| now.compute_mask_or_eos())?);
        self.guide.allow_twins(&mut words);
        Ok(words)
    }

    /// The tokens that must come next, whatever the model says; often none.
    pub fn forced(&mut self) -> Result<Vec<i32>, TextError> {
        if self.is_complete() {
            return Ok(Vec::new());
        }
        let forced = self.call(|now| Ok::<_, std::fmt::Error>(now.compute_ff_tokens()))?;
        Ok(forced
            .into_iter()
            .filter_map(|id| i32::try_from(id).ok())
            .collect())
    }

    /// Whether a token may come next.
    pub fn allows(&mut self, id: i32) -> Result<bool, TextError> {
        let Some(token) = self.guide.in_trie(id) else {
            return Ok(false);
        };
        if self.guide.end_tokens().contains(&id) {
            return Ok(self.is_complete() || self.call(|now| now.is_accepting())?);
        }
        if self.is_complete() {
            return Ok(false);
        }
        let valid = self.call(|now| now.validate_tokens(&[token]))?;
        Ok(valid == 1)
    }

    /// Goes on by a token that may come next and ends nothing. If it fails, nothing has changed.
    pub fn take(&mut self, id: i32) -> Result<(), TextError> {
        let token = self.guide.in_trie(id).unwrap_or(u32::MAX);
        let done = self.call(|now| now.consume_token(token));
        match done {
            Ok(()) => self.taken.push(id),
            // The library's state is lost then.
            Err(_) => self.replay(),
        }
        done
    }

    /// Whether nothing may follow but an end token.
    pub fn is_complete(&self) -> bool {
        !self.now.is_error() && self.now.is_stopped()
    }

    /// As it was after so many tokens of the answer.
    pub fn rewind(&mut self, len: usize) {
        let back = self.taken.len().saturating_sub(len);
        if back == 0 {
            return;
        }
        self.taken.truncate(len);
        if len == 0 {
            self.now = self.fresh.clone();
        } else if self.call(|now| now.rollback(back)).is_err() {
            self.replay();
        }
    }

    fn replay(&mut self) {
        self.now = self.fresh.clone();
        let tokens: Vec<u32> = self
            .taken
            .iter()
            .filter_map(|&id| self.guide.in_trie(id))
            .collect();
        // It has gone this way before; should it fail, the next question says so.
        let _ = self.call(|now| now.consume_tokens(&tokens));
    }

    fn call<R, E: fmt::Display>(
        &mut self,
        body: impl FnOnce(&mut Matcher) -> Result<R, E>,
    ) -> Result<R, TextError> {
        let now = &mut self.now;
        guarded_text(|| body(now)).map_err(|message| TextError::Constraint { message })
    }
}
