//! What is done with logits, with every option said, and the processors that are before all drawing.

use super::distribution::{Draw, Mirostat};
use super::processors::{self, Dry, RuledOut, Tally};
use super::{SampleError, SamplingOptions};

/// What is done with logits, with every option said.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// `None` takes the most probable token.
    pub draw: Option<Draw>,
    pub min_length: usize,
    pub min_new_tokens: usize,
    pub repetition: f64,
    pub frequency: f64,
    pub presence: f64,
    pub dry: Option<Dry>,
    pub no_repeat_ngram: usize,
    pub biases: Vec<(i32, f32)>,
    pub bad_words: Vec<Vec<i32>>,
    pub suppressed: Vec<i32>,
    pub suppressed_first: Vec<i32>,
    pub logprobs: Option<usize>,
}

fn size(count: Option<u64>) -> usize {
    count.map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX))
}

impl Plan {
    pub fn new(options: &SamplingOptions) -> Self {
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
    pub fn processes(&self) -> bool {
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
    pub fn check_tokens(&self, size: usize) -> Result<(), SampleError> {
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

impl Plan {
    /// Applies all processors but the host's and the mask: those that change scores first, which what is ruled
    /// out has no part in, so that it can be as if nothing were.
    pub fn apply(
        &self,
        scores: &mut [f32],
        history: &[i32],
        prompt_len: usize,
        end_tokens: &[i32],
        tally: &mut Tally,
        ruled_out: &mut RuledOut,
    ) {
        tally.resize(scores.len());
        ruled_out.clear();
        let answer = history.get(prompt_len..).unwrap_or_default();
        if self.repetition != 1.0 {
            processors::repetition(scores, history, self.repetition, tally);
        }
        if self.frequency != 0.0 || self.presence != 0.0 {
            processors::frequency_and_presence(scores, answer, self.frequency, self.presence, tally);
        }
        if let Some(dry) = &self.dry {
            dry.apply(scores, history, tally);
        }
        processors::bias(scores, &self.biases);
        let ruled = self.biases.iter().filter(|(_, bias)| *bias == f32::NEG_INFINITY);
        for (token, _) in ruled {
            processors::forbid(scores, &[*token], ruled_out);
        }
        if history.len() < self.min_length || answer.len() < self.min_new_tokens {
            processors::forbid(scores, end_tokens, ruled_out);
        }
        if self.no_repeat_ngram > 0 {
            processors::no_repeat_ngram(scores, history, self.no_repeat_ngram, ruled_out);
        }
        processors::bad_words(scores, history, &self.bad_words, ruled_out);
        processors::forbid(scores, &self.suppressed, ruled_out);
        if answer.is_empty() {
            processors::forbid(scores, &self.suppressed_first, ruled_out);
        }
    }
}
