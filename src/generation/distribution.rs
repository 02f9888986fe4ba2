//! Which tokens can be drawn after all samplers, and the draw.
//!
//! Samplers cut down a list of candidates, but where nothing cuts the vocabulary down there is no list:
//! a token is drawn from the sums of blocks of it. The first sampler that does cut makes the list
//! without sorting the vocabulary.

use super::SampleError;
use super::exponential::{BLOCK, block_sums, exp_or_zero, weights};
use super::select::Maxima;
use super::truncation::{self, Candidate, Candidates, Scratch};

/// How a token is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub temperature: f64,
    pub top_k: usize,
    pub top_p: f64,
    pub min_p: f64,
    pub typical_p: f64,
    pub top_a: f64,
    pub xtc_threshold: f64,
    pub xtc_probability: f64,
    pub mirostat: Option<Mirostat>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Mirostat {
    pub version: u64,
    pub tau: f64,
    pub eta: f64,
}

/// Kept from token to token, so that none is allocated.
#[derive(Default)]
pub(super) struct Memory {
    pub maxima: Maxima,
    /// The weights of all tokens, and the sums of blocks and bins of them.
    pub weights: Vec<f64>,
    pub sums: Vec<f64>,
    pub bins: Vec<f64>,
    pub candidates: Candidates,
    pub border: Candidates,
    pub scratch: Scratch,
}

/// What a token is chosen from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Left {
    /// All tokens, by their scores, with the sum of their weights.
    All { largest: f32, scale: f64, total: f64 },
    /// The candidates.
    Some,
}

/// exp((score - largest) / T).
pub(super) fn weight(score: f32, largest: f32, scale: f64) -> f64 {
    exp_or_zero((f64::from(score) - f64::from(largest)) * scale)
}

/// (score - largest) / T. Of the two zeros it is the positive one, so that they are equal in any order.
fn log_weight(score: f32, largest: f64, scale: f64) -> f64 {
    (f64::from(score) - largest) * scale + 0.0
}

fn candidate(token: usize, score: f32, largest: f32, scale: f64) -> Candidate {
    let log_weight = log_weight(score, f64::from(largest), scale);
    Candidate {
        token: token as u32,
        log_weight,
        weight: exp_or_zero(log_weight),
    }
}

impl Draw {
    /// Finds what is left of scores whose blocks' largest are known. `mu` is mirostat's.
    pub fn apply(
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
        // One that is not infinite, whatever the temperature.
        let scale = 1.0 / self.temperature.max(1e-200);
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
pub(super) struct Surprise {
    mu: f64,
    total: f64,
}

impl Surprise {
    /// μ after a token: μ - η (S - τ), S = -log₂ p of the token before the truncation, as in the
    /// paper; llama.cpp takes p after it.
    pub fn after(&self, mirostat: Mirostat, chosen: usize, memory: &Memory) -> f64 {
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
            log_weight: log_weight(score, largest, scale),
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
pub(super) fn draw(scores: &[f32], memory: &Memory, left: Left, number: f64) -> Option<usize> {
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
pub(super) fn spread(scores: &[f32], memory: &Memory, left: Left, logs: &mut Vec<f32>) {
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
