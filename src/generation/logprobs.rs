//! The probabilities that a token was chosen by, and the most probable others.

use super::distribution::{Left, Memory};
use super::log_probability;
use super::select::Maxima;
use super::truncation::{self, Candidate};

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

/// The probabilities of a chosen token and of the most probable ones.
pub(super) fn explain(
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
    let largest = maxima.largest();
    let largest_raw = log_probability(logits, largest);
    // The same number is taken off each.
    let shift = match logit(chosen).is_finite() && raw.is_finite() {
        true => f64::from(logit(chosen)) - f64::from(raw),
        false => f64::from(largest) - f64::from(largest_raw),
    };
    let raw_of = |logit: f32| match (largest.is_finite(), logit == largest) {
        (true, _) => (f64::from(logit) - shift) as f32,
        // Those that are as large as the largest share all of it.
        (false, true) => largest_raw,
        (false, false) => f32::NEG_INFINITY,
    };
    let raw_top = top(&mut maxima, logits, count);
    let raw_top = raw_top
        .into_iter()
        .map(|(token, logit)| named(token, raw_of(logit)))
        .collect();
    let (processed, processed_top) = match left {
        Left::Above(above) => {
            maxima.take(scores);
            let top = top(&mut maxima, scores, count).into_iter();
            let kept = top.filter(|&(token, score)| above.cut.keeps(token, score));
            let own = scores.get(chosen).copied().unwrap_or(f32::NEG_INFINITY);
            (
                above.logprob(chosen, own),
                kept.map(|(token, score)| named(token, above.logprob(token, score)))
                    .collect(),
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
pub(super) fn top(maxima: &mut Maxima, scores: &[f32], count: usize) -> Vec<(usize, f32)> {
    if count == 0 {
        return Vec::new();
    }
    let least = maxima.kth_largest(scores, count);
    let mut top = Vec::new();
    maxima.each_at_least(scores, least, |token, score| top.push((token, score)));
    // Of the two zeros neither is larger.
    top.sort_by(|a, b| (b.1 + 0.0).total_cmp(&(a.1 + 0.0)));
    top.truncate(count);
    top
}
