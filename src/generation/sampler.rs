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
//! A NaN among the logits is an error. One of +inf has all of the probability, shared with others
//! of +inf; one of -inf has none, and if all have -inf no token can be chosen.

use std::ops::ControlFlow;

use thiserror::Error;

use super::exponential::{BLOCK, block_sums, exp_or_zero, weights};
use super::processors::{self, Dry, Tally};
use super::select::{Extent, Maxima, copy};
use super::truncation::{self, Candidate, Candidates, Scratch};
use super::{Choice, NanLogit, Purpose, SamplingOptions, TokenMask, greedy, log_probability, uniform};

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

impl From<NanLogit> for SampleError {
    fn from(nan: NanLogit) -> Self {
        SampleError::Nan { index: nan.index }
    }
}

/// A host's own processor, before all others: it may change the logits, and gets the tokens so far.
pub type LogitsHook = Box<dyn FnMut(&mut [f32], &[i32]) -> ControlFlow<()> + Send>;

/// A host's own choice: it gets the logarithms of the probabilities after all processors and
/// samplers, -inf for tokens that are ruled out, and the tokens so far, and gives a token.
pub type HostSampler = Box<dyn FnMut(&[f32], &[i32]) -> ControlFlow<(), i32> + Send>;

/// What a sampler remembers from token to token: mirostat's μ after each place of the sequence.
///
/// A sequence that is rewound or forked goes on with what was so at its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplerState {
    /// Places, ascending, and μ after the token there.
    mu: Vec<(u64, f64)>,
}

impl SamplerState {
    const ENTRY: usize = 16;

    /// μ for the token at this place.
    fn before(&self, place: u64) -> Option<f64> {
        let earlier = self.mu.partition_point(|&(at, _)| at < place);
        earlier
            .checked_sub(1)
            .and_then(|at| self.mu.get(at))
            .map(|&(_, mu)| mu)
    }

    /// Sets μ after the token at this place, and forgets later ones.
    fn set(&mut self, place: u64, mu: f64) {
        self.mu.truncate(self.mu.partition_point(|&(at, _)| at < place));
        self.mu.push((place, mu));
    }

    /// The state as bytes: for each place its number as a u64 and μ as a float64, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let entries = self.mu.iter();
        entries
            .flat_map(|(place, mu)| [place.to_le_bytes(), mu.to_le_bytes()])
            .flatten()
            .collect()
    }

    /// The state that these bytes are of; `None` if they are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (entries, []) = bytes.as_chunks::<{ Self::ENTRY }>() else {
            return None;
        };
        let read = |entry: &[u8; Self::ENTRY]| {
            let (place, mu) = entry.split_first_chunk::<8>()?;
            Some((
                u64::from_le_bytes(*place),
                f64::from_le_bytes(mu.try_into().ok()?),
            ))
        };
        let mu = entries.iter().map(read).collect::<Option<Vec<_>>>()?;
        let ascending = mu.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let finite = mu.iter().all(|(_, mu)| mu.is_finite());
        (ascending && finite).then_some(SamplerState { mu })
    }
}

/// A token and the logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    pub token: u32,
    pub logprob: f32,
}

/// The probabilities that a token was chosen by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logprobs {
    /// Of the chosen token under softmax of the logits as the model gave them.
    pub raw: f32,
    /// Of the chosen token after all processors and samplers, greedy ones leaving the logits of
    /// which it is the largest.
    pub processed: f32,
    /// The most probable tokens by the one, descending; among equals the lowest id first.
    pub raw_top: Vec<TokenLogprob>,
    /// And by the other: fewer if fewer are left.
    pub processed_top: Vec<TokenLogprob>,
}

/// What is done with logits, with every option said.
#[derive(Clone, Debug)]
struct Plan {
    /// `None` takes the most probable token.
    draw: Option<Draw>,
    min_length: usize,
    min_new_tokens: usize,
    repetition: f64,
    frequency: f64,
    presence: f64,
    dry: Option<Dry>,
    no_repeat_ngram: usize,
    biases: Vec<(i32, f32)>,
    bad_words: Vec<Vec<i32>>,
    suppressed: Vec<i32>,
    suppressed_first: Vec<i32>,
    logprobs: Option<usize>,
}

/// How a token is drawn.
#[derive(Clone, Copy, Debug)]
struct Draw {
    temperature: f64,
    top_k: usize,
    top_p: f64,
    min_p: f64,
    typical_p: f64,
    top_a: f64,
    xtc_threshold: f64,
    xtc_probability: f64,
    mirostat: Option<Mirostat>,
}

#[derive(Clone, Copy, Debug)]
struct Mirostat {
    version: u64,
    tau: f64,
    eta: f64,
}

fn size(count: Option<u64>) -> usize {
    count.map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX))
}

impl Plan {
    fn new(options: &SamplingOptions) -> Self {
        let multiplier = options.dry_multiplier.unwrap_or(0.0);
        let dry = Dry {
            multiplier,
            base: options.dry_base.unwrap_or(1.75),
            allowed_length: options.dry_allowed_length.unwrap_or(2),
            range: options.dry_range.unwrap_or(0),
            breakers: options.dry_breakers.clone().unwrap_or_default(),
        };
        let mirostat = Mirostat {
            version: options.mirostat.unwrap_or(0),
            tau: options.mirostat_tau.unwrap_or(5.0),
            eta: options.mirostat_eta.unwrap_or(0.1),
        };
        let draw = Draw {
            temperature: options.temperature.unwrap_or(1.0),
            top_k: size(options.top_k),
            top_p: options.top_p.unwrap_or(1.0),
            min_p: options.min_p.unwrap_or(0.0),
            typical_p: options.typical_p.unwrap_or(1.0),
            top_a: options.top_a.unwrap_or(0.0),
            xtc_threshold: options.xtc_threshold.unwrap_or(0.1),
            xtc_probability: options.xtc_probability.unwrap_or(0.0),
            mirostat: Some(mirostat).filter(|mirostat| mirostat.version > 0),
        };
        Plan {
            draw: Some(draw).filter(|draw| options.do_sample == Some(true) && draw.temperature > 0.0),
            min_length: size(options.min_length),
            min_new_tokens: size(options.min_new_tokens),
            repetition: options.repetition_penalty.unwrap_or(1.0),
            frequency: options.frequency_penalty.unwrap_or(0.0),
            presence: options.presence_penalty.unwrap_or(0.0),
            dry: Some(dry).filter(|_| multiplier > 0.0),
            no_repeat_ngram: size(options.no_repeat_ngram_size),
            biases: options.logit_bias.clone().unwrap_or_default(),
            bad_words: options.bad_words.clone().unwrap_or_default(),
            suppressed: options.suppress_tokens.clone().unwrap_or_default(),
            suppressed_first: options.begin_suppress_tokens.clone().unwrap_or_default(),
            logprobs: options.logprobs.map(|_| size(options.logprobs)),
        }
    }

    /// Whether logits are changed before one is chosen, apart from by a mask.
    fn processes(&self) -> bool {
        self.min_length > 0
            || self.min_new_tokens > 0
            || self.repetition != 1.0
            || self.frequency != 0.0
            || self.presence != 0.0
            || self.dry.is_some()
            || self.no_repeat_ngram > 0
            || !self.biases.is_empty()
            || !self.bad_words.is_empty()
            || !self.suppressed.is_empty()
            || !self.suppressed_first.is_empty()
    }

    /// An error if an option has a token that the logits have not.
    fn check_tokens(&self, size: usize) -> Result<(), SampleError> {
        let breakers = self.dry.iter().flat_map(|dry| &dry.breakers);
        let named = |what, token: &i32| (what, *token);
        let all = (self.biases.iter().map(|(token, _)| named("logit_bias", token)))
            .chain(
                self.bad_words
                    .iter()
                    .flatten()
                    .map(|token| named("bad_words", token)),
            )
            .chain(
                self.suppressed
                    .iter()
                    .map(|token| named("suppress_tokens", token)),
            )
            .chain(
                self.suppressed_first
                    .iter()
                    .map(|token| named("begin_suppress_tokens", token)),
            )
            .chain(breakers.map(|token| named("dry_breakers", token)));
        for (what, token) in all {
            if !usize::try_from(token).is_ok_and(|place| place < size) {
                return Err(SampleError::TokenOutOfRange { what, token, size });
            }
        }
        Ok(())
    }
}

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
    memory: Memory,
    logprobs: Option<Logprobs>,
}

/// Kept from token to token, so that none is allocated.
#[derive(Default)]
struct Memory {
    tally: Tally,
    maxima: Maxima,
    /// The weights of all tokens, and the sums of blocks and bins of them.
    weights: Vec<f64>,
    sums: Vec<f64>,
    bins: Vec<f64>,
    candidates: Candidates,
    border: Candidates,
    scratch: Scratch,
}

/// What a token is chosen from.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// All tokens, by their scores, with the sum of their weights.
    All { largest: f32, scale: f64, total: f64 },
    /// The candidates.
    Some,
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
            memory: Memory::default(),
            logprobs: self.logprobs.clone(),
        }
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
            // Also where all have -inf, of which this takes the first.
            return greedy(logits)?.ok_or(SampleError::Empty);
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

    /// The tokens that could be chosen, in the order of their ids, with their probabilities: what
    /// [`choose`](Self::choose) draws from, or, greedy, the one that it takes. XTC's decision is
    /// that of the place.
    pub fn distribution(
        &mut self,
        logits: &[f32],
        history: &[i32],
        prompt_len: usize,
        allowed: Option<&TokenMask>,
        probabilities: &mut Vec<(u32, f64)>,
    ) -> Result<(), SampleError> {
        probabilities.clear();
        let edited = self.process(logits, history, prompt_len, allowed)?;
        if self.plan.draw.is_none() {
            let scores = scores(logits, &self.scores, edited);
            let token = largest(scores, &self.memory).ok_or(SampleError::NothingLeft)?;
            probabilities.push((token as u32, 1.0));
            return Ok(());
        }
        let (left, _) = self.distribution_of(logits, edited, history.len() as u64)?;
        let scores = scores(logits, &self.scores, edited);
        match left {
            Left::All {
                largest,
                scale,
                total,
            } => {
                let weights = scores.iter().map(|&score| weight(score, largest, scale));
                let all = weights.enumerate().filter(|(_, weight)| *weight > 0.0);
                probabilities.extend(all.map(|(token, weight)| (token as u32, weight / total)));
            }
            Left::Some => {
                let candidates = &self.memory.candidates;
                let total = truncation::total(candidates);
                let all = candidates.iter();
                probabilities.extend(all.map(|one| (one.token, one.weight / total)));
            }
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
        if copy(logits, scores) {
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
        }
        if let Some(allowed) = allowed {
            allowed.apply(scores);
        }
        self.plan
            .apply(scores, history, prompt_len, &self.end_tokens, &mut memory.tally);
        memory.maxima.take(scores);
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

impl Plan {
    /// Applies all processors but the host's and the mask.
    fn apply(
        &self,
        scores: &mut [f32],
        history: &[i32],
        prompt_len: usize,
        end_tokens: &[i32],
        tally: &mut Tally,
    ) {
        tally.resize(scores.len());
        let answer = history.get(prompt_len..).unwrap_or_default();
        if history.len() < self.min_length || answer.len() < self.min_new_tokens {
            processors::forbid(scores, end_tokens);
        }
        if self.repetition != 1.0 {
            processors::repetition(scores, history, self.repetition, tally);
        }
        if self.frequency != 0.0 || self.presence != 0.0 {
            processors::frequency_and_presence(scores, answer, self.frequency, self.presence, tally);
        }
        if let Some(dry) = &self.dry {
            dry.apply(scores, history, tally);
        }
        if self.no_repeat_ngram > 0 {
            processors::no_repeat_ngram(scores, history, self.no_repeat_ngram);
        }
        processors::bias(scores, &self.biases);
        processors::bad_words(scores, history, &self.bad_words);
        processors::forbid(scores, &self.suppressed);
        if answer.is_empty() {
            processors::forbid(scores, &self.suppressed_first);
        }
    }
}

/// exp((score - largest) / T).
fn weight(score: f32, largest: f32, scale: f64) -> f64 {
    exp_or_zero((f64::from(score) - f64::from(largest)) * scale)
}

fn candidate(token: usize, score: f32, largest: f32, scale: f64) -> Candidate {
    let log_weight = (f64::from(score) - f64::from(largest)) * scale;
    Candidate {
        token: token as u32,
        log_weight,
        weight: exp_or_zero(log_weight),
    }
}

impl Draw {
    /// Finds what is left of scores whose blocks' largest are known. `mu` is mirostat's.
    fn apply(
        &self,
        scores: &[f32],
        memory: &mut Memory,
        xtc: bool,
        mu: Option<f64>,
    ) -> Result<(Left, Option<Surprise>), SampleError> {
        let largest = memory.maxima.largest();
        if largest == f32::NEG_INFINITY {
            return Err(SampleError::NothingLeft);
        }
        let scale = 1.0 / self.temperature;
        let vocabulary = scores.len();
        let (mut top_p, min_p) = (self.top_p < 1.0, self.min_p > 0.0);
        if largest == f32::INFINITY {
            memory.candidates.clear();
            memory.maxima.each_at_least(scores, largest, |token, _| {
                memory.candidates.push(candidate(token, 0.0, 0.0, scale));
            });
        } else if (1..vocabulary).contains(&self.top_k) {
            let least = memory.maxima.kth_largest(scores, self.top_k);
            gather(&memory.maxima, scores, least, scale, &mut memory.candidates);
        } else if top_p {
            weights(scores, largest, scale, &mut memory.sums, &mut memory.weights);
            top_p_of_all(scores, self.top_p, scale, memory);
            top_p = false;
        } else if min_p {
            // A weight that is at least a share, and not much less than the border by rounding:
            // the exact comparison is among those.
            let least = f64::from(largest) + libm::log(self.min_p) * self.temperature;
            gather(
                &memory.maxima,
                scores,
                below(least),
                scale,
                &mut memory.candidates,
            );
        } else if self.typical_p < 1.0 || self.top_a > 0.0 || xtc || mu.is_some() {
            gather(
                &memory.maxima,
                scores,
                f32::NEG_INFINITY,
                scale,
                &mut memory.candidates,
            );
        } else {
            block_sums(scores, largest, scale, &mut memory.sums);
            let total = memory.sums.iter().sum();
            return Ok((
                Left::All {
                    largest,
                    scale,
                    total,
                },
                None,
            ));
        }
        let candidates = &mut memory.candidates;
        if top_p {
            memory.scratch.top_p(candidates, self.top_p);
        }
        if min_p {
            truncation::min_p(candidates, self.min_p);
        }
        if self.typical_p < 1.0 {
            memory.scratch.typical(candidates, self.typical_p);
        }
        if self.top_a > 0.0 {
            truncation::top_a(candidates, self.top_a);
        }
        if xtc {
            truncation::xtc(candidates, self.xtc_threshold);
        }
        let mut surprise = None;
        if let (Some(mirostat), Some(mu)) = (self.mirostat, mu) {
            surprise = Some(Surprise {
                mu,
                total: truncation::total(candidates),
            });
            match mirostat.version {
                1 => memory.scratch.mirostat_1(candidates, mu, vocabulary),
                _ => truncation::mirostat_2(candidates, mu),
            }
        }
        Ok((Left::Some, surprise))
    }
}

/// What mirostat measures a chosen token against: the distribution before its own truncation.
struct Surprise {
    mu: f64,
    total: f64,
}

impl Surprise {
    /// μ after a token: μ - η (S - τ), S = -log₂ p of the token before the truncation, as in the
    /// paper; llama.cpp takes p after it.
    fn after(&self, mirostat: Mirostat, chosen: usize, memory: &Memory) -> f64 {
        let mut candidates = memory.candidates.iter();
        let Some(chosen) = candidates.find(|one| one.token as usize == chosen) else {
            // A host's own choice of what was ruled out.
            return self.mu;
        };
        let surprise = (libm::log(self.total) - chosen.log_weight) / std::f64::consts::LN_2;
        self.mu - mirostat.eta * (surprise - mirostat.tau)
    }
}

/// Takes all scores of at least `least` for candidates.
fn gather(maxima: &Maxima, scores: &[f32], least: f32, scale: f64, candidates: &mut Candidates) {
    let largest = maxima.largest();
    candidates.clear();
    maxima.each_at_least(scores, least, |token, score| {
        candidates.push(candidate(token, score, largest, scale));
    });
}

/// A float32 that is no larger, even if it was rounded.
fn below(value: f64) -> f32 {
    (value as f32).next_down().next_down()
}

/// [`Scratch::top_p`] of all scores, whose weights and sums of these are known. They are not sorted:
/// scores fall into bins by their size, and only those of the bin in which the mass is reached are.
fn top_p_of_all(scores: &[f32], mass: f64, scale: f64, memory: &mut Memory) {
    const BINS: usize = 1024;
    let total: f64 = memory.sums.iter().sum();
    let needed = mass * total;
    let largest = f64::from(memory.maxima.largest());
    // Tokens of less than half of the rest's even share are less than the rest together.
    let share = (1.0 - mass) / (2.0 * scores.len() as f64);
    let span = -libm::log(share * total);
    let width = span.max(1.0) / BINS as f64;
    let per_bin = scale / width;
    let bin = |score: f32| ((largest - f64::from(score)) * per_bin) as usize;
    let least = below(largest - span / scale);
    memory.bins.clear();
    memory.bins.resize(BINS + 1, 0.0);
    memory.maxima.each_at_least(scores, least, |token, score| {
        let bin = bin(score).min(BINS);
        if let (Some(bin), Some(weight)) = (memory.bins.get_mut(bin), memory.weights.get(token)) {
            *bin += weight;
        }
    });
    let mut sum = 0.0;
    let crossing = memory.bins.iter().position(|bin| {
        let reached = sum + bin >= needed;
        sum += if reached { 0.0 } else { *bin };
        reached
    });
    let crossing = crossing.unwrap_or(BINS);
    let least = below(largest - (crossing + 1) as f64 * width / scale);
    let (candidates, border) = (&mut memory.candidates, &mut memory.border);
    candidates.clear();
    border.clear();
    memory.maxima.each_at_least(scores, least, |token, score| {
        let candidate = Candidate {
            token: token as u32,
            log_weight: (f64::from(score) - largest) * scale,
            weight: memory.weights.get(token).copied().unwrap_or(0.0),
        };
        let bin = bin(score).min(BINS);
        if bin <= crossing {
            candidates.push(candidate);
        }
        if bin == crossing {
            border.push(candidate);
        }
    });
    truncation::descend(border);
    let kept = truncation::nucleus(border, needed - sum).unwrap_or(border.len());
    if let Some(last) = kept.checked_sub(1).and_then(|last| border.get(last)) {
        candidates.retain(|one| {
            one.log_weight > last.log_weight || (one.log_weight == last.log_weight && one.token <= last.token)
        });
    }
}

/// The token up to which probabilities sum up to more than `number`.
fn draw(scores: &[f32], memory: &Memory, left: Left, number: f64) -> Option<usize> {
    match left {
        Left::All {
            largest,
            scale,
            total,
        } => {
            let goal = number * total;
            let mut sum = 0.0;
            let mut last = None;
            for (block, &own) in memory.sums.iter().enumerate() {
                if own > 0.0 {
                    last = Some((block, sum));
                    if sum + own > goal {
                        break;
                    }
                }
                sum += own;
            }
            let (block, mut sum) = last?;
            let mut chosen = None;
            let start = block * BLOCK;
            for (at, &score) in scores.get(start..)?.iter().take(BLOCK).enumerate() {
                let weight = weight(score, largest, scale);
                if weight > 0.0 {
                    chosen = Some(start + at);
                    sum += weight;
                    if sum > goal {
                        break;
                    }
                }
            }
            chosen
        }
        Left::Some => {
            let goal = number * truncation::total(&memory.candidates);
            let mut sum = 0.0;
            let mut chosen = None;
            for candidate in memory.candidates.iter().filter(|one| one.weight > 0.0) {
                chosen = Some(candidate.token as usize);
                sum += candidate.weight;
                if sum > goal {
                    break;
                }
            }
            chosen
        }
    }
}

/// The logarithm of the probability of each token.
fn spread(scores: &[f32], memory: &Memory, left: Left, logs: &mut Vec<f32>) {
    logs.clear();
    match left {
        Left::All {
            largest,
            scale,
            total,
        } => {
            let log_total = libm::log(total);
            let log = |&score: &f32| (f64::from(score) - f64::from(largest)) * scale - log_total;
            logs.extend(scores.iter().map(|score| log(score) as f32));
        }
        Left::Some => {
            let log_total = libm::log(truncation::total(&memory.candidates));
            logs.resize(scores.len(), f32::NEG_INFINITY);
            for one in &memory.candidates {
                if let Some(log) = logs.get_mut(one.token as usize) {
                    *log = (one.log_weight - log_total) as f32;
                }
            }
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

/// The probabilities of a chosen token and of the most probable ones.
fn explain(
    logits: &[f32],
    scores: &[f32],
    memory: &Memory,
    left: Left,
    chosen: usize,
    count: usize,
) -> Logprobs {
    let logit = |token: usize| logits.get(token).copied().unwrap_or(f32::NEG_INFINITY);
    let raw = log_probability(logits, logit(chosen));
    let named = |token: usize, logprob: f32| TokenLogprob {
        token: token as u32,
        logprob,
    };
    let mut maxima = Maxima::default();
    maxima.take(logits);
    // The same number is taken off each.
    let shift = match logit(chosen).is_finite() && raw.is_finite() {
        true => Some(f64::from(logit(chosen)) - f64::from(raw)),
        false => None,
    };
    let raw_of = |logit: f32| match shift {
        Some(shift) => (f64::from(logit) - shift) as f32,
        None => log_probability(logits, logit),
    };
    let raw_top = top(&mut maxima, logits, count);
    let raw_top = raw_top
        .into_iter()
        .map(|(token, logit)| named(token, raw_of(logit)))
        .collect();
    let (processed, processed_top) = match left {
        Left::All {
            largest,
            scale,
            total,
        } => {
            let log_total = libm::log(total);
            let log = |score: f32| ((f64::from(score) - f64::from(largest)) * scale - log_total) as f32;
            maxima.take(scores);
            let top = top(&mut maxima, scores, count).into_iter();
            let own = scores.get(chosen).copied().unwrap_or(f32::NEG_INFINITY);
            (
                log(own),
                top.map(|(token, score)| named(token, log(score))).collect(),
            )
        }
        Left::Some => {
            let log_total = libm::log(truncation::total(&memory.candidates));
            let log = |one: &Candidate| (one.log_weight - log_total) as f32;
            let mut order = memory.candidates.clone();
            truncation::descend(&mut order);
            let own = order.iter().find(|one| one.token as usize == chosen);
            let top = order.iter().take(count);
            let top = top.map(|one| named(one.token as usize, log(one))).collect();
            (own.map_or(f32::NEG_INFINITY, log), top)
        }
    };
    Logprobs {
        raw,
        processed,
        raw_top,
        processed_top,
    }
}

/// The places of the largest scores, descending, among equals the first ones first.
fn top(maxima: &mut Maxima, scores: &[f32], count: usize) -> Vec<(usize, f32)> {
    if count == 0 {
        return Vec::new();
    }
    let least = maxima.kth_largest(scores, count);
    let mut top = Vec::new();
    maxima.each_at_least(scores, least, |token, score| top.push((token, score)));
    top.sort_by(|a, b| b.1.total_cmp(&a.1));
    top.truncate(count);
    top
}
