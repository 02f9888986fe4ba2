//! What is done to the logits before tokens are drawn, or the most probable one is taken: each
//! function one processor, by its published definition, over one row of scores.
//!
//! What is computed is computed in float64 and rounded to float32, in which logits are. Only tokens
//! of the history are touched. A token id that is no place among the scores is none.

/// A whole number for each token, 0 but for the tokens that are touched.
#[derive(Default)]
pub(super) struct Tally {
    values: Vec<u32>,
    touched: Vec<u32>,
}

impl Tally {
    /// For so many tokens, all 0.
    pub fn resize(&mut self, tokens: usize) {
        self.values.resize(tokens, 0);
    }

    fn raise(&mut self, token: i32, to: impl FnOnce(u32) -> u32) {
        let place = usize::try_from(token).ok();
        if let Some(value) = place.and_then(|place| self.values.get_mut(place)) {
            if *value == 0 {
                self.touched.push(token as u32);
            }
            *value = to(*value).max(1);
        }
    }

    /// Visits the score of each token that was touched, once, and makes all 0 again.
    fn drain(&mut self, scores: &mut [f32], mut visit: impl FnMut(&mut f32, u32)) {
        for token in self.touched.drain(..) {
            if let Some(value) = self.values.get_mut(token as usize) {
                let value = std::mem::take(value);
                if let Some(score) = scores.get_mut(token as usize) {
                    visit(score, value);
                }
            }
        }
    }
}

fn score(scores: &mut [f32], token: i32) -> Option<&mut f32> {
    usize::try_from(token)
        .ok()
        .and_then(|place| scores.get_mut(place))
}

/// Tokens that were ruled out, and their scores before that.
#[derive(Default)]
pub(super) struct RuledOut {
    before: Vec<(i32, f32)>,
}

impl RuledOut {
    /// Nothing is ruled out yet.
    pub fn clear(&mut self) {
        self.before.clear();
    }

    fn add(&mut self, scores: &mut [f32], token: i32) {
        if let Some(score) = score(scores, token)
            && *score != f32::NEG_INFINITY
        {
            self.before.push((token, *score));
            *score = f32::NEG_INFINITY;
        }
    }

    /// Lets all of them be chosen again; says whether there are any.
    pub fn restore(&mut self, scores: &mut [f32]) -> bool {
        let any = !self.before.is_empty();
        for (token, before) in self.before.drain(..) {
            if let Some(score) = score(scores, token) {
                *score = before;
            }
        }
        any
    }
}

/// Rules tokens out.
///
/// transformers: `SuppressTokensLogitsProcessor`; of end tokens `MinLengthLogitsProcessor` and
/// `MinNewTokensLengthLogitsProcessor`, of the first token
/// `SuppressTokensAtBeginLogitsProcessor`.
pub(super) fn forbid(scores: &mut [f32], tokens: &[i32], ruled_out: &mut RuledOut) {
    for &token in tokens {
        ruled_out.add(scores, token);
    }
}

/// Makes what has been said less probable: x / penalty where x is positive, x · penalty where it is
/// not, once for each token of the prompt and the answer.
///
/// Keskar et al., "CTRL" (arXiv:1909.05858), 4.1, as transformers'
/// `RepetitionPenaltyLogitsProcessor` has it, which multiplies negative logits.
pub(super) fn repetition(scores: &mut [f32], history: &[i32], penalty: f64, tally: &mut Tally) {
    for &token in history {
        tally.raise(token, |_| 1);
    }
    tally.drain(scores, |score, _| {
        let x = f64::from(*score);
        *score = if x < 0.0 { x * penalty } else { x / penalty } as f32;
    });
}

/// x - frequency · (times the token is in the answer) - presence · (whether it is), of the answer
/// alone, not of the prompt.
///
/// OpenAI's API reference, "frequency and presence penalties".
pub(super) fn frequency_and_presence(
    scores: &mut [f32],
    answer: &[i32],
    frequency: f64,
    presence: f64,
    tally: &mut Tally,
) {
    for &token in answer {
        tally.raise(token, |count| count.saturating_add(1));
    }
    tally.drain(scores, |score, count| {
        // Rounded once for each of the two, which are processors of their own.
        let x = (f64::from(*score) - frequency * f64::from(count)) as f32;
        *score = (f64::from(x) - presence) as f32;
    });
}

/// How DRY penalises.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dry {
    pub multiplier: f64,
    pub base: f64,
    pub allowed_length: u64,
    /// 0 is all.
    pub range: u64,
    pub breakers: Vec<i32>,
}

impl Dry {
    /// The longest repetition that is looked for.
    const LONGEST: u32 = 50;

    /// "Don't repeat yourself": x - multiplier · base^(n - allowed length) for a token that would
    /// go on with a repetition of n tokens, n being the longest one that it goes on with and at
    /// least the allowed length. Breakers end a repetition, and none is looked for behind one.
    ///
    /// p-e-w, text-generation-webui pull request 5677, from which it is to have the longest
    /// repetition of 50 too; llama.cpp bounds the exponent instead.
    pub fn apply(&self, scores: &mut [f32], history: &[i32], tally: &mut Tally) {
        let range = usize::try_from(self.range).unwrap_or(usize::MAX);
        let skipped = match range {
            0 => 0,
            range => history.len().saturating_sub(range),
        };
        let history = history.get(skipped..).unwrap_or_default();
        let Some((&last, before)) = history.split_last() else {
            return;
        };
        let breaks = |token: i32| self.breakers.contains(&token);
        if breaks(last) {
            return;
        }
        for (at, _) in before.iter().enumerate().filter(|(_, token)| **token == last) {
            let Some(&next) = history.get(at + 1).filter(|next| !breaks(**next)) else {
                continue;
            };
            // The one at the end matches; those before it may.
            let here = before.get(..at).unwrap_or_default().iter().rev();
            let matches = here.zip(before.iter().rev());
            let matches = matches.take_while(|(a, b)| a == b && !breaks(**a));
            let length = 1 + matches.take(Self::LONGEST as usize - 1).count() as u32;
            tally.raise(next, |longest| longest.max(length));
        }
        tally.drain(scores, |score, length| {
            if let Some(more) = u64::from(length).checked_sub(self.allowed_length) {
                let penalty = self.multiplier * libm::pow(self.base, more as f64);
                *score = (f64::from(*score) - penalty) as f32;
            }
        });
    }
}

/// Rules out every token that would complete a sequence of `size` tokens that the prompt and answer
/// have already.
///
/// Paulus et al., "A Deep Reinforced Model for Abstractive Summarization" (arXiv:1705.04304);
/// transformers: `NoRepeatNGramLogitsProcessor`.
pub(super) fn no_repeat_ngram(scores: &mut [f32], history: &[i32], size: usize, ruled_out: &mut RuledOut) {
    let Some(stem) = size
        .checked_sub(1)
        .and_then(|stem| history.len().checked_sub(stem))
        .and_then(|start| history.get(start..))
    else {
        return;
    };
    for ngram in history.windows(size) {
        if let Some((&last, start)) = ngram.split_last()
            && start == stem
        {
            ruled_out.add(scores, last);
        }
    }
}

/// x + bias for each token that has one.
///
/// OpenAI's API reference, `logit_bias`; transformers: `SequenceBiasLogitsProcessor` for sequences
/// of one token.
pub(super) fn bias(scores: &mut [f32], biases: &[(i32, f32)]) {
    for &(token, bias) in biases {
        // One of -inf rules out, also where the logit is infinite.
        if bias != f32::NEG_INFINITY
            && let Some(score) = score(scores, token)
        {
            *score += bias;
        }
    }
}

/// Rules out the last token of a word whose other tokens the history ends with.
///
/// transformers: `NoBadWordsLogitsProcessor`, which however lets a word pass that is an end token.
pub(super) fn bad_words(scores: &mut [f32], history: &[i32], words: &[Vec<i32>], ruled_out: &mut RuledOut) {
    for word in words {
        if let Some((&last, start)) = word.split_last()
            && history.ends_with(start)
        {
            ruled_out.add(scores, last);
        }
    }
}
