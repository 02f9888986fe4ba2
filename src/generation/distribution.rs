//! Which tokens can be drawn after all samplers, and the draw.
//!
//! Samplers cut down a list of candidates. Where there would be many of them there is no list: of the
//! whole vocabulary, and of what top_p and min_p leave of it, which is all above some score, a token
//! is drawn from the sums of blocks. Nothing sorts the vocabulary.

use super::SampleError;
use super::exponential::{BLOCK, Weigher, exp_or_zero};
use super::nucleus::{Nucleus, nucleus_of_all};
use super::select::{Cut, Maxima};
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
    /// The sums of blocks of the weights that are left.
    pub sums: Vec<f64>,
    pub nucleus: Nucleus,
    pub candidates: Candidates,
    pub scratch: Scratch,
}

/// What a token is chosen from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Left {
    /// All tokens above a border.
    Above(Above),
    /// The candidates.
    Some,
}

/// All tokens above a border, with the sum of their weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Above {
    pub cut: Cut,
    pub total: f64,
    largest: f32,
    scale: f64,
}

impl Above {
    /// 0 for a token below the border.
    pub fn weight(&self, token: usize, score: f32) -> f64 {
        match self.cut.keeps(token, score) {
            true => f64::from(Weigher::new(self.largest, self.scale).weight(score)),
            false => 0.0,
        }
    }

    /// The logarithm of the probability.
    pub fn logprob(&self, token: usize, score: f32) -> f32 {
        match self.cut.keeps(token, score) {
            true => (log_weight(score, f64::from(self.largest), self.scale) - libm::log(self.total)) as f32,
            false => f32::NEG_INFINITY,
        }
    }
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
        // One that is neither infinite nor 0 in f32, whatever the temperature.
        let scale = 1.0 / self.temperature.clamp(1e-38, 1e38);
        let vocabulary = scores.len();
        let (mut top_p, mut min_p) = (self.top_p < 1.0, self.min_p > 0.0);
        if largest == f32::INFINITY {
            memory.candidates.clear();
            memory.maxima.each_at_least(scores, largest, |token, _| {
                memory.candidates.push(candidate(token, 0.0, 0.0, scale));
            });
        } else if (1..vocabulary).contains(&self.top_k) {
            let least = memory.maxima.kth_largest(scores, self.top_k);
            gather(memory, scores, Cut::at(least), scale);
        } else {
            let mut cut = Cut::NONE;
            if top_p {
                let weigher = Weigher::new(largest, scale);
                cut = nucleus_of_all(scores, self.top_p, weigher, &memory.maxima, &mut memory.nucleus);
                top_p = false;
            }
            if min_p {
                cut = cut.or_above(least_of_share(self.min_p, largest, scale));
                min_p = false;
            }
            if self.typical_p < 1.0 || self.top_a > 0.0 || xtc || mu.is_some() {
                gather(memory, scores, cut, scale);
            } else {
                let weigher = Weigher::new(largest, scale);
                match cut == Cut::NONE {
                    true => weigher.block_sums(scores, &mut memory.sums),
                    false => memory.maxima.sums_above(scores, cut, weigher, &mut memory.sums),
                }
                let above = Above {
                    cut,
                    total: memory.sums.iter().sum(),
                    largest,
                    scale,
                };
                return Ok((Left::Above(above), None));
            }
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

/// Takes all scores above a border for candidates.
fn gather(memory: &mut Memory, scores: &[f32], cut: Cut, scale: f64) {
    let largest = memory.maxima.largest();
    let candidates = &mut memory.candidates;
    candidates.clear();
    memory.maxima.each_at_least(scores, cut.least, |token, score| {
        if cut.keeps(token, score) {
            candidates.push(candidate(token, score, largest, scale));
        }
    });
}

/// The least score that weighs at least a share of what the largest does.
fn least_of_share(share: f64, largest: f32, scale: f64) -> f32 {
    let about = f64::from(largest) + libm::log(share) / scale;
    // Some steps below, for what was rounded; from there on by the definition. Near 0 scores are finer
    // than their distances from the largest, which are what is weighed.
    let fine = (f64::from(largest).abs() * f64::EPSILON / 4.0) as f32;
    let mut least = (about as f32).next_down().next_down();
    while least < largest && candidate(0, least, largest, scale).weight < share {
        least = least.next_up().max(least + fine);
    }
    least
}

/// The token up to which probabilities sum up to more than `number`.
pub(super) fn draw(scores: &[f32], memory: &Memory, left: Left, number: f64) -> Option<usize> {
    match left {
        Left::Above(above) => {
            let goal = number * above.total;
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
                let weight = above.weight(start + at, score);
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
        Left::Above(above) => {
            let all = scores.iter().enumerate();
            logs.extend(all.map(|(token, &score)| above.logprob(token, score)));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where the border is next to 0, whose neighbours are far nearer than what is weighed tells
    /// apart.
    #[test]
    fn a_share_has_a_border_wherever_it_is() {
        for largest in [1.5f32, 0.75, 3.0, 40.0, 1e-3, -2.0] {
            for near in [-1i64, 0, 1] {
                let exact = (-f64::from(largest)).exp().min(0.9);
                let share = f64::from_bits(exact.to_bits().checked_add_signed(near).unwrap());
                let least = least_of_share(share, largest, 1.0);
                assert!(
                    candidate(0, least, largest, 1.0).weight >= share,
                    "{largest} {share}"
                );
                let border = f64::from(largest) + share.ln();
                let step = f64::from(f32::EPSILON) * border.abs() + f64::EPSILON * f64::from(largest.abs());
                assert!(
                    (f64::from(least) - border).abs() <= 2.0 * step,
                    "{largest} {share} {least}"
                );
            }
        }
    }
}
