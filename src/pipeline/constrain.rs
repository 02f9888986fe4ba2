//! A run whose answers follow a grammar.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::generation::TokenMask;
use crate::text::{Constraint, ConstraintKind, Guide, TextError};

use super::run::Run;
use super::{Pipeline, PipelineError, RequestError};

/// The constraint of a run, which each of its answers follows from the beginning. A copy goes its
/// own way.
#[derive(Clone)]
pub(super) struct Constrained {
    constraint: Constraint,
    /// What it was made of.
    kind: ConstraintKind,
    text: Arc<str>,
    /// Where the answer begins, in tokens of the run.
    start: usize,
    /// Tokens that must come next, if that is known.
    forced: Option<VecDeque<i32>>,
    /// Whether end tokens finish the run, so that one can say that the answer is complete.
    has_end: bool,
    /// Room for what may come next.
    mask: TokenMask,
}

impl Constrained {
    /// What it was made of, and where the answer begins.
    pub fn source(&self) -> (ConstraintKind, &str, usize) {
        (self.kind, &self.text, self.start)
    }

    /// The token that must come next, whatever the model says.
    fn next_forced(&mut self) -> Result<Option<i32>, TextError> {
        if self.forced.is_none() {
            self.forced = Some(self.constraint.forced()?.into());
        }
        Ok(self.forced.as_ref().and_then(|forced| forced.front().copied()))
    }

    /// Which of so many tokens may come next.
    pub fn mask(&mut self, size: usize) -> Result<&TokenMask, TextError> {
        let words = self.constraint.mask()?;
        if self.mask.len() != size {
            self.mask = TokenMask::none(size);
        }
        self.mask.set_words(&words);
        if !self.has_end {
            // One that ends nothing is no part of the answer.
            for id in self.constraint.ends() {
                self.mask.forbid(usize::try_from(*id).unwrap_or(usize::MAX));
            }
        }
        Ok(&self.mask)
    }

    /// Goes on by a token that was chosen as the run's token at `place`, in whose place another
    /// may have been before. Says whether the answer is complete without an end token.
    fn take(&mut self, id: i32, place: usize) -> Result<bool, PipelineError> {
        self.rewind(place);
        let is_end = self.constraint.ends().contains(&id);
        if (is_end && !self.has_end) || !self.constraint.allows(id)? {
            return Err(RequestError::AgainstConstraint { id }.into());
        }
        let next = self.forced.take().filter(|forced| forced.front() == Some(&id));
        if !is_end {
            self.constraint.take(id)?;
        }
        self.forced = next
            .map(|mut rest| {
                rest.pop_front();
                rest
            })
            .filter(|rest| !rest.is_empty());
        Ok(!self.has_end && self.constraint.is_complete())
    }

    /// As it was when the run had `len` tokens. Before the answer it begins there.
    pub fn rewind(&mut self, len: usize) {
        let answer = len.saturating_sub(self.start);
        if answer < self.constraint.len() || len < self.start {
            self.constraint.rewind(answer);
            self.forced = None;
        }
        self.start = self.start.min(len);
    }

    /// An answer begins behind `len` tokens.
    pub fn restart(&mut self, len: usize) {
        self.constraint.rewind(0);
        self.forced = None;
        self.start = len;
    }
}

impl Run {
    /// Makes what is chosen from now on follow a grammar from its beginning, and each answer after
    /// another append too; `None` lets the model go its own way again. `text` is ignored for
    /// [`ConstraintKind::Json`]. May be called at any time, in the middle of an answer too.
    pub fn set_constraint(
        &mut self,
        constraint: Option<(ConstraintKind, &str)>,
    ) -> Result<(), PipelineError> {
        let Some((kind, text)) = constraint else {
            self.constrained = None;
            return Ok(());
        };
        self.need_token_loop("set_constraint")?;
        let guide = self.pipeline.guide()?;
        let constraint = guide.compile(kind, text, self.settings.json_whitespace)?;
        self.constrained = Some(Constrained {
            has_end: self.settings.stop_on_eos && !guide.end_tokens().is_empty(),
            constraint,
            kind,
            text: text.into(),
            start: self.transcript.len(),
            forced: None,
            mask: TokenMask::default(),
        });
        Ok(())
    }

    /// Makes answers follow a grammar which the tokens from `start` on have followed.
    pub(super) fn follow_again(
        &mut self,
        kind: ConstraintKind,
        text: &str,
        start: usize,
    ) -> Result<(), PipelineError> {
        self.set_constraint(Some((kind, text)))?;
        let tokens = self.transcript.tokens();
        if let Some(constrained) = &mut self.constrained {
            constrained.start = start.min(tokens.len());
            for (place, &id) in tokens.iter().enumerate().skip(start) {
                constrained.take(id, place)?;
            }
        }
        Ok(())
    }

    /// Where the constrained answer begins.
    pub(super) fn constrained_from(&self) -> usize {
        self.constrained
            .as_ref()
            .map_or(0, |constrained| constrained.start)
    }

    /// The constraint as it was before a choice at `place` that failed, which was to be in the
    /// place of `last`, when the answer began at `start`.
    pub(super) fn constrain_again(&mut self, last: Option<i32>, place: usize, start: usize) {
        if let Some(constrained) = &mut self.constrained {
            if place < start {
                // The last token was before the answer.
                return constrained.restart(start);
            }
            constrained.rewind(place);
            // It fit before.
            let _ = last.map(|last| constrained.take(last, place));
        }
    }

    /// A token that the constraint leaves no choice about.
    pub(super) fn forced_token(&mut self) -> Result<Option<i32>, PipelineError> {
        match &mut self.constrained {
            Some(constrained) if self.transcript.len() > 0 => Ok(constrained.next_forced()?),
            _ => Ok(None),
        }
    }

    /// Has the constraint go on by a token that becomes the run's at `place`. Says whether the
    /// answer is complete by that, with no end token to come.
    pub(super) fn follow_constraint(&mut self, id: i32, place: usize) -> Result<bool, PipelineError> {
        match &mut self.constrained {
            Some(constrained) => constrained.take(id, place),
            None => Ok(false),
        }
    }
}

impl Pipeline {
    /// The vocabulary for constraints, made when the first run asks for it.
    fn guide(&self) -> Result<Arc<Guide>, PipelineError> {
        let shared = self.shared();
        let tokenizer = match &shared.tokenizer {
            Some(tokenizer) if shared.spec.nested.is_none() => tokenizer,
            _ => return Err(RequestError::NoTextToConstrain.into()),
        };
        let mut guide = shared.guide.lock();
        if let Some(guide) = &*guide {
            return Ok(guide.clone());
        }
        let made = Guide::new(tokenizer, &shared.spec.eos_token_ids)?;
        Ok(guide.insert(made).clone())
    }
}
