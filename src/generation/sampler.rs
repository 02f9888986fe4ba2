//! From a row of logits to a token.
//!
//! In this order: the host's hook on the logits; the mask of a constraint; `min_length` and
//! `min_new_tokens`; the penalties of repetition, frequency and presence; DRY;
//! `no_repeat_ngram_size`; `logit_bias`, `bad_words` and `suppress_tokens`. Then, greedy, the
//! largest, among equals the one with the lowest id; or, to sample, `temperature`, `top_k`,
//! `top_p`, `min_p`, `typical_p`, `top_a`, XTC and mirostat, and one of the tokens that are left,
//! drawn by their probabilities: the first, in the order of ids, up to which the sum of these is
//! above a number from the [random stream](super::uniform) of the place.
//!
//! Where what rules tokens out (`min_length`, `min_new_tokens`, a bias of -inf, `no_repeat_ngram_size`,
//! `bad_words`, `suppress_tokens`) leaves none of those that a constraint's mask allows, the mask wins: for
//! that token nothing is ruled out but by it, so that an answer that has to be JSON always ends.
//!
//! A NaN among the logits is an error. One of +inf has all of the probability, shared with others
//! of +inf; one of -inf has none, and if all have -inf no token can be chosen.

use std::ops::ControlFlow;

use thiserror::Error;

use super::distribution::{Draw, Left, Memory, Surprise, draw, spread};
use super::exponential::Weigher;
use super::logprobs::{explain, top};
use super::plan::Plan;
use super::processors::{RuledOut, Tally};
use super::select::{Extent, copy};
use super::{
    Choice, Logprobs, Purpose, SamplerState, SamplingOptions, TokenMask, greedy, log_probability, uniform,
};

/// Why no token was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SampleError {
    #[error("there are no logits")]
    Empty,
    #[error("logits hold NaN at index {index}")]
    Nan { index: usize },
    #[error("no token is left to choose from: each is ruled out")]
    NothingLeft,
    /// Of a token in an option, or of the host's choice.
    #[error("{what} has the token {token}, but the logits are of {size} tokens")]
    TokenOutOfRange {
        what: &'static str,
        token: i32,
        size: usize,
    },
    /// The host's hook or sampler said so.
    #[error("the host's {what} ended the call")]
    Stopped { what: &'static str },
}

/// A host's own processor, before all others: it may change the logits, and gets the tokens so far.
pub type LogitsHook = Box<dyn FnMut(&mut [f32], &[i32]) -> ControlFlow<()> + Send>;

/// A host's own choice: it gets the logarithms of the probabilities after all processors and
/// samplers, -inf for tokens that are ruled out, and the tokens so far, and gives a token.
pub type HostSampler = Box<dyn FnMut(&[f32], &[i32]) -> ControlFlow<(), i32> + Send>;

/// Chooses the tokens of one sequence.
pub struct Sampler {
    plan: Plan,
    seed: u64,
    end_tokens: Vec<i32>,
    state: SamplerState,
    hook: Option<LogitsHook>,
    host: Option<HostSampler>,
    /// The logits' size that the options' tokens are known to fit.
    checked_size: Option<usize>,
    /// The logits after the processors, where there are any.
    scores: Vec<f32>,
    /// The logarithms of probabilities, for the host's sampler.
    spread: Vec<f32>,
    tally: Tally,
    ruled_out: RuledOut,
    memory: Memory,
    logprobs: Option<Logprobs>,
}

impl Sampler {
    /// By these options, a caller's [over](SamplingOptions::over) a package's. `end_tokens` are those
    /// that `min_length` keeps off.
    pub fn new(options: &SamplingOptions, seed: u64, end_tokens: &[i32]) -> Self {
        Sampler {
            plan: Plan::new(options),
            seed,
            end_tokens: end_tokens.to_vec(),
            state: SamplerState::default(),
            hook: None,
            host: None,
            checked_size: None,
            scores: Vec::new(),
            spread: Vec::new(),
            tally: Tally::default(),
            ruled_out: RuledOut::default(),
            memory: Memory::default(),
            logprobs: None,
        }
    }

    /// Another sampler that goes on as this one does, without the host's hook and sampler, which
    /// stay here.
    pub fn fork(&self) -> Sampler {
        Sampler {
            plan: self.plan.clone(),
            seed: self.seed,
            end_tokens: self.end_tokens.clone(),
            state: self.state.clone(),
            hook: None,
            host: None,
            checked_size: self.checked_size,
            scores: Vec::new(),
            spread: Vec::new(),
            tally: Tally::default(),
            ruled_out: RuledOut::default(),
            memory: Memory::default(),
            logprobs: self.logprobs.clone(),
        }
    }

    /// Draws from another seed's numbers from now on.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    pub fn state(&self) -> &SamplerState {
        &self.state
    }

    pub fn set_state(&mut self, state: SamplerState) {
        self.state = state;
    }

    pub fn set_logits_hook(&mut self, hook: Option<LogitsHook>) {
        self.hook = hook;
    }

    pub fn set_host_sampler(&mut self, host: Option<HostSampler>) {
        self.host = host;
    }

    /// What the last token was chosen by, if the option `logprobs` is given.
    pub fn logprobs(&self) -> Option<&Logprobs> {
        self.logprobs.as_ref()
    }

    /// The sequence has other tokens from this place on, or none, that were not chosen here.
    pub(crate) fn forget_from(&mut self, place: usize) {
        self.state.truncate(place as u64);
        self.logprobs = None;
    }

    /// Whether the most probable token of the logits as they are is chosen.
    pub fn is_plain(&self) -> bool {
        !self.plan.processes()
            && self.plan.draw.is_none()
            && self.plan.logprobs.is_none()
            && self.hook.is_none()
            && self.host.is_none()
    }

    /// Whether tokens are drawn.
    pub fn draws(&self) -> bool {
        self.plan.draw.is_some()
    }

    /// The next token of `history`, which is the prompt, of `prompt_len` tokens, and the answer so
    /// far; its logprob is that under softmax of the logits as they are.
    ///
    /// After an error everything is as before.
    pub fn choose(
        &mut self,
        logits: &[f32],
        history: &[i32],
        prompt_len: usize,
        allowed: Option<&TokenMask>,
    ) -> Result<Choice, SampleError> {
        if self.is_plain() && allowed.is_none() {
            return greedy(logits);
        }
        let index = self.pick(logits, history, prompt_len, allowed)?;
        let logit = logits.get(index).copied().unwrap_or(f32::NEG_INFINITY);
        let logprob = match &self.logprobs {
            Some(logprobs) => logprobs.raw,
            None => log_probability(logits, logit),
        };
        Ok(Choice { index, logprob })
    }

    /// The same without the logarithm of its probability, which takes longer than all else if few
    /// options are given.
    pub fn pick(
        &mut self,
        logits: &[f32],
        history: &[i32],
        prompt_len: usize,
        allowed: Option<&TokenMask>,
    ) -> Result<usize, SampleError> {
        let place = history.len() as u64;
        let edited = self.process(logits, history, prompt_len, allowed)?;
        let mirostat = self.plan.draw.and_then(|draw| draw.mirostat);
        let draws = self.plan.draw.is_some();
        let chosen = if draws || self.host.is_some() || self.plan.logprobs.is_some() {
            let (left, before) = self.distribution_of(logits, edited, place)?;
            let scores = scores(logits, &self.scores, edited);
            let memory = &self.memory;
            let chosen = match (&mut self.host, draws) {
                (Some(host), _) => {
                    spread(scores, memory, left, &mut self.spread);
                    ask_host(host, &self.spread, history)?
                }
                (None, true) => {
                    let number = uniform(self.seed, place, Purpose::Token);
                    draw(scores, memory, left, number).ok_or(SampleError::NothingLeft)?
                }
                (None, false) => largest(scores, memory).ok_or(SampleError::NothingLeft)?,
            };
            if let (Some(before), Some(mirostat)) = (&before, mirostat) {
                self.state
                    .set(place, before.after(mirostat, chosen, &self.memory));
            }
            if let Some(count) = self.plan.logprobs {
                let logprobs = explain(logits, scores, &self.memory, left, chosen, count);
                self.logprobs = Some(logprobs);
            }
            chosen
        } else {
            let scores = scores(logits, &self.scores, edited);
            largest(scores, &self.memory).ok_or(SampleError::NothingLeft)?
        };
        Ok(chosen)
    }

    /// Whether a host's own sampler is set.
    pub(crate) fn has_host(&self) -> bool {
        self.host.is_some()
    }

    /// The tokens of the largest scores that the processors make of the logarithms of the
    /// probabilities, for a beam search: `visit` gets each with its score, and none where all are
    /// ruled out.
    pub(crate) fn best(
        &mut self,
        logits: &[f32],
        history: &[i32],
        prompt_len: usize,
        count: usize,
        mut visit: impl FnMut(i32, f32),
    ) -> Result<(), SampleError> {
        let extent = self.memory.maxima.take(logits);
        refuse_nan(logits, extent)?;
        let largest = extent.largest;
        let mut logprobs = std::mem::take(&mut self.spread);
        logprobs.clear();
        if largest.is_finite() {
            let total = Weigher::new(largest, 1.0).total(logits);
            let log_total = f64::from(largest) + libm::log(total);
            let all = logits.iter().map(|&logit| (f64::from(logit) - log_total) as f32);
            logprobs.extend(all);
        } else {
            // Those that are as large as the largest share all of it.
            let sharing = logits.iter().filter(|&&logit| logit == largest).count();
            let share = 0.0 - (sharing as f32).ln();
            let all = logits.iter().map(|&logit| match logit == largest {
                true => share,
                false => f32::NEG_INFINITY,
            });
            logprobs.extend(all);
        }
        let edited = self.process(&logprobs, history, prompt_len, None);
        let found = edited.map(|edited| {
            let scores = scores(&logprobs, &self.scores, edited);
            top(&mut self.memory.maxima, scores, count)
        });
        self.spread = logprobs;
        for (token, score) in found? {
            visit(i32::try_from(token).unwrap_or(i32::MAX), score);
        }
        Ok(())
    }

    /// Makes the scores that a token is chosen from, and takes the largest of each block of them.
    /// Gives whether they are in memory; otherwise they are the logits themselves.
    fn process(
        &mut self,
        logits: &[f32],
        history: &[i32],
        prompt_len: usize,
        allowed: Option<&TokenMask>,
    ) -> Result<bool, SampleError> {
        if logits.is_empty() {
            return Err(SampleError::Empty);
        }
        if self.checked_size != Some(logits.len()) {
            self.plan.check_tokens(logits.len())?;
            self.checked_size = Some(logits.len());
        }
        let memory = &mut self.memory;
        let edits = self.plan.processes() || self.hook.is_some() || allowed.is_some();
        if !edits {
            let extent = memory.maxima.take(logits);
            refuse_nan(logits, extent)?;
            return Ok(false);
        }
        let scores = &mut self.scores;
        if self.hook.is_none()
            && let Some(allowed) = allowed
        {
            let extent = memory.maxima.take_allowed(logits, allowed.words(), scores);
            refuse_nan(logits, extent)?;
            if !self.plan.processes() {
                return Ok(true);
            }
        } else if copy(logits, scores) {
            refuse_nan(
                logits,
                Extent {
                    largest: 0.0,
                    any_nan: true,
                },
            )?;
        }
        if let Some(hook) = &mut self.hook {
            if hook(scores, history).is_break() {
                return Err(SampleError::Stopped { what: "logits hook" });
            }
            let extent = memory.maxima.take(scores);
            refuse_nan(scores, extent)?;
            if let Some(allowed) = allowed {
                allowed.apply(scores);
            }
        }
        let (ends, ruled_out) = (&self.end_tokens, &mut self.ruled_out);
        self.plan
            .apply(scores, history, prompt_len, ends, &mut self.tally, ruled_out);
        let mut extent = memory.maxima.take(scores);
        let none_left = extent.largest == f32::NEG_INFINITY && !extent.any_nan;
        if allowed.is_some() && none_left && ruled_out.restore(scores) {
            extent = memory.maxima.take(scores);
        }
        refuse_nan(scores, extent)?;
        Ok(true)
    }

    /// Applies the samplers to processed scores, or none of them if the most probable token is to be
    /// taken. With mirostat, also what it needs to know of what was there before it.
    fn distribution_of(
        &mut self,
        logits: &[f32],
        edited: bool,
        place: u64,
    ) -> Result<(Left, Option<Surprise>), SampleError> {
        let scores = scores(logits, &self.scores, edited);
        let neutral = Draw {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            top_a: 0.0,
            xtc_threshold: 0.0,
            xtc_probability: 0.0,
            mirostat: None,
        };
        let draw = self.plan.draw.unwrap_or(neutral);
        let mu = draw
            .mirostat
            .map(|mirostat| self.state.before(place).unwrap_or(2.0 * mirostat.tau));
        let xtc =
            draw.xtc_probability > 0.0 && uniform(self.seed, place, Purpose::Xtc) < draw.xtc_probability;
        draw.apply(scores, &mut self.memory, xtc, mu)
    }
}

/// The scores that a token is chosen from.
fn scores<'s>(logits: &'s [f32], processed: &'s [f32], edited: bool) -> &'s [f32] {
    match edited {
        true => processed,
        false => logits,
    }
}

/// The place of the largest score, if there is one above -inf.
fn largest(scores: &[f32], memory: &Memory) -> Option<usize> {
    let largest = memory.maxima.largest();
    (largest > f32::NEG_INFINITY)
        .then(|| memory.maxima.first(scores, largest))
        .flatten()
}

fn refuse_nan(scores: &[f32], extent: Extent) -> Result<(), SampleError> {
    match extent.any_nan {
        false => Ok(()),
        true => {
            let index = scores.iter().position(|score| score.is_nan()).unwrap_or(0);
            Err(SampleError::Nan { index })
        }
    }
}

fn ask_host(host: &mut HostSampler, logprobs: &[f32], history: &[i32]) -> Result<usize, SampleError> {
    let ControlFlow::Continue(token) = host(logprobs, history) else {
        return Err(SampleError::Stopped { what: "sampler" });
    };
    let place = usize::try_from(token)
        .ok()
        .filter(|&place| place < logprobs.len());
    place.ok_or(SampleError::TokenOutOfRange {
        what: "the host's sampler",
        token,
        size: logprobs.len(),
    })
}
