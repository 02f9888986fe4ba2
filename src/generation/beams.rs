//! Beam search: the several most probable sequences, found by keeping the best beginnings of them.
//!
//! As Hugging Face transformers' `BeamSearchScorer` has it: in each step every beam's tokens are
//! candidates, scored by the sum of the logarithms of their probabilities, processed but not made to
//! sum to one again. The best of them that are no end tokens are the next beams; one that is an end
//! token and among the best as many as there are beams makes a finished sequence, with the score
//!
//! ```text
//! sum of log p / length ^ length_penalty        the length being that of the answer, with its end
//! ```
//!
//! and as many finished ones are kept as there are beams. Equally good candidates are taken in the
//! order of beams, then of token ids.

use super::{EarlyStopping, OptionError, SamplingOptions};

/// How beams are searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Beams {
    /// At least 2.
    pub count: usize,
    /// How many sequences are given.
    pub returned: usize,
    pub length_penalty: f64,
    pub early_stopping: EarlyStopping,
}

impl Beams {
    /// By these options; `None` where one sequence is made token by token.
    pub fn new(options: &SamplingOptions) -> Result<Option<Self>, OptionError> {
        let contradiction = |name, message: String| Err(OptionError::Contradiction { name, message });
        let count = options.num_beams.unwrap_or(1);
        let returned = options.num_return_sequences.unwrap_or(1);
        if returned > count {
            return contradiction(
                "num_return_sequences",
                format!(
                    "is {returned}, more than \"num_beams\", which is {count}; a search gives one for each beam"
                ),
            );
        }
        if count == 1 {
            return Ok(None);
        }
        if options.do_sample == Some(true) {
            let message =
                "is for a search, which draws no tokens; set \"do_sample\" to false, or \"num_beams\" to 1";
            return contradiction("num_beams", message.to_owned());
        }
        if options.num_beam_groups.unwrap_or(1) > 1 || options.diversity_penalty.unwrap_or(0.0) > 0.0 {
            let message = "is for groups of beams, which this version does not search; set \"num_beam_groups\" to 1 \
                           and \"diversity_penalty\" to 0";
            return contradiction("num_beam_groups", message.to_owned());
        }
        if options.logprobs.is_some() {
            let message = "is about tokens chosen one by one; a search of \"num_beams\" above 1 gives scores of \
                           sequences instead";
            return contradiction("logprobs", message.to_owned());
        }
        let small = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Ok(Some(Beams {
            count: small(count),
            returned: small(returned),
            length_penalty: options.length_penalty.unwrap_or(1.0),
            early_stopping: options.early_stopping.unwrap_or_default(),
        }))
    }
}

/// A token that a beam may go on with, and the sum of the logarithms up to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BeamStep {
    pub beam: usize,
    pub token: i32,
    pub score: f64,
}

/// A sequence that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamSequence {
    /// The answer, its end token included if it has one.
    pub tokens: Vec<i32>,
    /// The sum of the logarithms of the tokens' probabilities, divided by length ^ length_penalty.
    pub score: f64,
}

/// A search under way.
pub(crate) struct BeamSearch {
    beams: Beams,
    /// The most tokens that an answer has; `None` where nothing but end tokens ends one.
    most: Option<usize>,
    finished: Vec<BeamSequence>,
    done: bool,
}

impl BeamSearch {
    pub fn new(beams: Beams, most: Option<usize>) -> Self {
        BeamSearch {
            beams,
            most,
            finished: Vec::new(),
            done: false,
        }
    }

    /// How many candidates a step needs: enough that beams are left if all end tokens are among them.
    pub fn candidates(&self, end_tokens: usize) -> usize {
        self.beams.count.saturating_mul((1 + end_tokens).max(2))
    }

    /// Whether a finished sequence is among those that are kept.
    pub fn keeps(&self, tokens: &[i32]) -> bool {
        self.finished.iter().any(|sequence| sequence.tokens == tokens)
    }

    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Takes the best candidates of a step, and gives the next beams. `length` is that of the answer
    /// with the candidates' tokens, `answer` that of a beam before them.
    pub fn advance<'a>(
        &mut self,
        candidates: &mut Vec<BeamStep>,
        length: usize,
        end_tokens: &[i32],
        answer: impl Fn(usize) -> &'a [i32],
    ) -> Vec<BeamStep> {
        candidates.sort_by(|a, b| {
            let order = b.score.total_cmp(&a.score);
            order.then(a.beam.cmp(&b.beam)).then(a.token.cmp(&b.token))
        });
        candidates.truncate(self.candidates(end_tokens.len()));
        let mut next = Vec::new();
        for (rank, step) in candidates.iter().enumerate() {
            if end_tokens.contains(&step.token) {
                if rank < self.beams.count {
                    let mut tokens = answer(step.beam).to_vec();
                    tokens.push(step.token);
                    self.finish_one(tokens, step.score);
                }
            } else {
                next.push(*step);
            }
            if next.len() == self.beams.count {
                break;
            }
        }
        let best = candidates.first().map_or(f64::NEG_INFINITY, |best| best.score);
        self.done = self.done || next.is_empty() || self.no_better(best, length);
        next
    }

    /// Keeps a finished sequence, if it is good enough.
    fn finish_one(&mut self, tokens: Vec<i32>, sum: f64) {
        let score = self.score(sum, tokens.len());
        // Behind those that are as good.
        let place = self.finished.partition_point(|other| other.score >= score);
        self.finished.insert(place, BeamSequence { tokens, score });
        self.finished.truncate(self.beams.count);
    }

    fn score(&self, sum: f64, length: usize) -> f64 {
        sum / libm::pow(length.max(1) as f64, self.beams.length_penalty)
    }

    /// Whether there is nothing better to be found: `best` is the sum of the best candidate.
    fn no_better(&self, best: f64, length: usize) -> bool {
        let Some(worst) = self.finished.get(self.beams.count - 1) else {
            return false;
        };
        let length = match self.beams.early_stopping {
            EarlyStopping::Yes => return true,
            // The longest one has the best score where length is rewarded.
            EarlyStopping::Never if self.beams.length_penalty > 0.0 => self.most.unwrap_or(length),
            EarlyStopping::Never | EarlyStopping::No => length,
        };
        worst.score >= self.score(best, length)
    }

    /// The sequences that were found, the best first; the beams count for those that are not finished,
    /// unless the search is done.
    pub fn sequences(mut self, beams: impl Iterator<Item = (Vec<i32>, f64)>) -> Vec<BeamSequence> {
        if !self.done {
            for (tokens, sum) in beams {
                self.finish_one(tokens, sum);
            }
        }
        self.finished.truncate(self.beams.returned);
        self.finished
    }
}
