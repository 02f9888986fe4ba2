//! What runs because the host asks for it, after the steps or beside them.

use crate::component::{DataType, RunControl};
use crate::package::{Phase, TokenLoop};

use super::convert::write_integers;
use super::request;
use super::run::{OUTPUT_IDS, Run};
use super::{PipelineError, RequestError};

impl Run {
    /// Runs the final_only components; their outputs are then in the pool. In an iterative
    /// package they may run after any step, over what that has made.
    pub fn finish(&mut self, control: &RunControl) -> Result<(), PipelineError> {
        let _traced = self.traced("finish");
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        if let Some(token_loop) = self.token_loop()
            && !self.has_logits
        {
            self.run_answer(token_loop, control)?;
        }
        let no_frame = spec.nested.is_some() && !self.frames.any();
        if no_frame || (spec.own_loop().is_some() && self.next_step.is_none()) {
            return Err(RequestError::NoSteps.into());
        }
        self.run_asked(control, |index| {
            spec.components
                .get(index)
                .is_some_and(|component| component.phase == Phase::FinalOnly)
        })
    }

    /// Feeds an answer that no pass was made for yet: the tokens of a search, or those that a constraint left
    /// no choice about. As behind a step, all of it but the last token.
    fn run_answer(&mut self, token_loop: TokenLoop, control: &RunControl) -> Result<(), PipelineError> {
        let is_frames = self.pipeline.shared().spec.nested.is_some();
        if is_frames || self.transcript.chosen_in_turn() == 0 {
            return Err(RequestError::NoLogits.into());
        }
        self.feed_up_to(self.transcript.len() - 1, token_loop, control)?;
        self.logits_are_used = self.has_logits;
        Ok(())
    }

    /// Runs one on_demand component.
    pub fn run_component(&mut self, name: &str, control: &RunControl) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        let asked = spec
            .components
            .iter()
            .position(|component| component.name == name)
            .and_then(|index| Some((index, spec.components.get(index)?)));
        let (asked, component) = asked.ok_or_else(|| request::unknown_component(spec, name))?;
        if component.phase != Phase::OnDemand {
            return Err(RequestError::WrongPhase {
                component: name.to_owned(),
                asked: Phase::OnDemand.name(),
                phase: component.phase.name(),
            }
            .into());
        }
        self.run_asked(control, |index| index == asked)
    }

    fn run_asked(
        &mut self,
        control: &RunControl,
        asked: impl Fn(usize) -> bool,
    ) -> Result<(), PipelineError> {
        let pipeline = self.pipeline.clone();
        let spec = &pipeline.shared().spec;
        // What they read of the prompt may have changed since the last step.
        let feeding = request::feeding(spec, &asked);
        let stale: Vec<bool> = feeding
            .iter()
            .zip(&self.activity.fresh)
            .zip(&spec.components)
            .map(|((feeds, fresh), component)| *feeds && !fresh && component.phase == Phase::PromptOnly)
            .collect();
        let is_stale = |index: usize| stale.get(index) == Some(&true);
        let checked = self
            .activity
            .check(spec, &self.pool, |index, _| asked(index) || is_stale(index));
        self.activity.checked = false;
        checked?;
        self.forget_inactive();
        let prompt = self.run_stale(&[Phase::PromptOnly], is_stale, control);
        self.settle(prompt)?;
        self.publish_output_ids()?;
        for &index in spec.order.iter().filter(|&&index| asked(index)) {
            if self.activity.active.get(index) == Some(&true) {
                let outcome = self.run_over_all(index, control);
                if outcome.is_err() {
                    return self.settle(outcome);
                }
            }
        }
        self.settle(Ok(()))
    }

    fn publish_output_ids(&mut self) -> Result<(), PipelineError> {
        let ids: Vec<i64> = self.transcript.chosen().map(i64::from).collect();
        let shape = [1, ids.len() as i64];
        let bytes = self
            .pool
            .output_ids
            .write(DataType::Int64, &shape)
            .map_err(|source| crate::component::ComponentErrorKind::BadTensor {
                port: OUTPUT_IDS.to_owned(),
                source,
            })?;
        write_integers(DataType::Int64, bytes, ids.into_iter());
        Ok(())
    }
}
