//! Beam search over a run: each beam is a fork of it.

use std::ops::ControlFlow;

use crate::component::RunControl;
use crate::generation::{
    BeamSearch, BeamSequence, BeamStep, Beams, FinishReason, SampleError, log_probability,
};

use super::run::Run;
use super::step::no_choice;
use super::{Event, PipelineError, RequestError, Timings};

/// A beginning of an answer.
struct Beam {
    run: Run,
    answer: Vec<i32>,
    /// Of each token under softmax of its logits.
    logprobs: Vec<f32>,
    score: f64,
}

impl Run {
    /// The sequences that the last beam search found, the best first, which is the run's answer. None
    /// before one.
    pub fn sequences(&self) -> &[BeamSequence] {
        &self.sequences
    }

    /// Searches, makes the best sequence the answer, and tells its tokens one by one.
    pub(super) fn generate_beams(
        &mut self,
        beams: Beams,
        control: &RunControl,
        on_event: &mut dyn FnMut(&Run, &Event) -> ControlFlow<()>,
    ) -> Result<Option<FinishReason>, PipelineError> {
        let (sequences, logprobs) = self.search(beams, control)?;
        let best = sequences.first().cloned();
        self.sequences = sequences;
        let Some(best) = best else {
            return Ok(self.finished);
        };
        for (token, logprob) in best.tokens.into_iter().zip(logprobs) {
            let event = self.accept(token, logprob, Timings::default())?;
            // The next is behind this one, not in its place.
            self.has_logits = false;
            self.logits_are_used = false;
            let go_on = on_event(self, &event);
            if event.finish.is_some() {
                return Ok(event.finish);
            }
            if go_on.is_break() {
                return Ok(None);
            }
        }
        Ok(self.finished)
    }

    /// The sequences, and the logarithms of the best one's probabilities, token by token.
    fn search(
        &mut self,
        beams: Beams,
        control: &RunControl,
    ) -> Result<(Vec<BeamSequence>, Vec<f32>), PipelineError> {
        if self.sampler.has_host() {
            return Err(RequestError::InvalidSetting {
                what: "num_beams",
                message:
                    "beams are searched without the host's sampler; take that away, or set num_beams to 1"
                        .to_owned(),
            }
            .into());
        }
        if self.constrained.is_some() {
            return Err(RequestError::InvalidSetting {
                what: "num_beams",
                message: "beams are searched without a constraint; take that away, or set num_beams to 1"
                    .to_owned(),
            }
            .into());
        }
        self.forward(control)?;
        let most = self.room();
        let end_tokens = self.stop.end_tokens.clone();
        let mut search = BeamSearch::new(beams, most);
        // All of the search counts for the run.
        let mut first = self.fork_for(self.pool.account())?;
        first.shares = false;
        let mut running = vec![Beam {
            run: first,
            answer: Vec::new(),
            logprobs: Vec::new(),
            score: 0.0,
        }];
        // Answers that have ended, with their probabilities.
        let mut ended: Vec<(Vec<i32>, Vec<f32>)> = Vec::new();
        for length in 1.. {
            let count = search.candidates(end_tokens.len());
            let mut candidates = Vec::new();
            for (at, beam) in running.iter().enumerate() {
                let score = beam.score;
                self.continuations(&beam.run, count, |token, logprob| {
                    candidates.push(BeamStep {
                        beam: at,
                        token,
                        score: score + f64::from(logprob),
                    });
                })?;
            }
            if candidates.is_empty() && !search.has_finished() {
                return Err(self.no_continuation(SampleError::NothingLeft));
            }
            let next = search.advance(&mut candidates, length, &end_tokens, |beam| {
                running.get(beam).map_or(&[], |beam| beam.answer.as_slice())
            });
            let best = candidates.iter().take(beams.count);
            for step in best.filter(|step| end_tokens.contains(&step.token)) {
                if let Some(beam) = running.get(step.beam) {
                    ended.push(beam.with(step.token));
                }
            }
            ended.retain(|(answer, _)| search.keeps(answer));
            if search.is_done() {
                break;
            }
            running = go_on(running, &next)?;
            if most.is_some_and(|most| length >= most) {
                break;
            }
            for beam in &mut running {
                beam.run.forward(control)?;
            }
        }
        let unfinished = running.iter().map(|beam| (beam.answer.clone(), beam.score));
        let sequences = search.sequences(unfinished);
        ended.extend(running.into_iter().map(|beam| (beam.answer, beam.logprobs)));
        let is_best = |answer: &[i32]| sequences.first().is_some_and(|best| best.tokens == answer);
        let best = ended.into_iter().find(|(answer, _)| is_best(answer));
        let logprobs = best.map_or_else(Vec::new, |(_, logprobs)| logprobs);
        Ok((sequences, logprobs))
    }

    /// How many tokens may still be chosen.
    fn room(&self) -> Option<usize> {
        let length = self.sequence_len() as u64;
        let in_turn = self.transcript.chosen_in_turn();
        let rest = [
            self.stop.max_tokens.map(|most| most.saturating_sub(in_turn)),
            self.stop.max_length.map(|most| most.saturating_sub(length)),
            self.stop.context_length.map(|most| most.saturating_sub(length)),
        ];
        let least = rest.into_iter().flatten().min()?;
        // One is chosen before a limit is looked at.
        usize::try_from(least.max(1)).ok()
    }

    /// The best tokens of a beam by their processed probabilities. The sampler is the run's own, with
    /// the host's hook.
    fn continuations(
        &mut self,
        beam: &Run,
        count: usize,
        visit: impl FnMut(i32, f32),
    ) -> Result<(), PipelineError> {
        let tokens = beam.transcript.tokens();
        let in_turn = usize::try_from(beam.transcript.chosen_in_turn()).unwrap_or(tokens.len());
        let prompt_len = tokens.len().saturating_sub(in_turn);
        let found = self.sampler.best(&beam.logits, tokens, prompt_len, count, visit);
        found.map_err(|error| self.no_continuation(error))
    }

    fn no_continuation(&self, error: SampleError) -> PipelineError {
        let spec = &self.pipeline.shared().spec;
        let decoder = self
            .token_loop()
            .and_then(|token_loop| spec.components.get(token_loop.decoder));
        let decoder = decoder.map_or(String::new(), |decoder| decoder.name.clone());
        no_choice(decoder, error).into()
    }

    fn raw_logprob(&self, token: i32) -> f32 {
        let logit = usize::try_from(token).ok().and_then(|at| self.logits.get(at));
        logit.map_or(f32::NEG_INFINITY, |&logit| log_probability(&self.logits, logit))
    }
}

impl Beam {
    /// The answer with one more token, and the probabilities.
    fn with(&self, token: i32) -> (Vec<i32>, Vec<f32>) {
        let (mut answer, mut logprobs) = (self.answer.clone(), self.logprobs.clone());
        answer.push(token);
        logprobs.push(self.run.raw_logprob(token));
        (answer, logprobs)
    }
}

/// The next beams: forks of those that they go on from, the last of each being that one itself.
fn go_on(running: Vec<Beam>, next: &[BeamStep]) -> Result<Vec<Beam>, PipelineError> {
    let mut parents: Vec<Option<Beam>> = running.into_iter().map(Some).collect();
    let mut made = Vec::with_capacity(next.len());
    for (at, step) in next.iter().enumerate() {
        let again = next.iter().skip(at + 1).any(|later| later.beam == step.beam);
        let Some(parent) = parents.get_mut(step.beam) else {
            continue;
        };
        let Some(from) = parent else { continue };
        let (answer, logprobs) = from.with(step.token);
        let run = match again {
            true => Some(from.run.fork_for(from.run.pool.account())?),
            false => parent.take().map(|parent| parent.run),
        };
        if let Some(mut run) = run {
            run.take(step.token)?;
            made.push(Beam {
                run,
                answer,
                logprobs,
                score: step.score,
            });
        }
    }
    Ok(made)
}
