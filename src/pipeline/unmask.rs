//! A step of a loop that makes tokens of masks.

use crate::component::{RunControl, TensorView};
use crate::generation::{Draws, MaskedDiffusion};
use crate::package::{ComponentSpec, Iteration, LoopState};

use super::convert::{read_integers, row_at, write_integers};
use super::denoise::stream;
use super::execute::check_control;
use super::loop_steps::Steps;
use super::pool::{Pool, at_port};
use super::value::Value;
use super::{PipelineError, RequestError};

/// A step, for all states of tokens.
#[derive(Clone, Copy)]
pub(super) struct Unmasking<'s> {
    pub masked: &'s MaskedDiffusion,
    /// Counted from the first that runs, as are all of them.
    pub step: usize,
    pub steps: usize,
    pub draw: u32,
    pub seed: u64,
    pub control: &'s RunControl,
}

/// For each sequence (along the last axis) the positions that are the mask.
pub(super) fn masked_positions(ids: TensorView<'_>, masked: &MaskedDiffusion) -> Vec<Vec<usize>> {
    let mut values = Vec::new();
    read_integers(ids, &mut values);
    let length = ids.shape().last().copied().unwrap_or(1);
    let length = usize::try_from(length).unwrap_or(0).max(1);
    let mask = i64::from(masked.mask_token_id);
    let positions = |ids: &[i64]| {
        let places = ids.iter().enumerate().filter(|(_, id)| **id == mask);
        places.map(|(place, _)| place).collect()
    };
    values.chunks(length).map(positions).collect()
}

/// That there is a step for each block.
pub(super) fn check_blocks(
    masked: &MaskedDiffusion,
    positions: &[Vec<usize>],
    steps: &Steps,
) -> Result<(), RequestError> {
    let count = steps.timesteps.len().saturating_sub(steps.start);
    let most = positions.iter().map(Vec::len).max().unwrap_or(0);
    let blocks = masked.blocks(most);
    if blocks <= count {
        return Ok(());
    }
    Err(RequestError::InvalidSetting {
        what: "num_steps",
        message: format!(
            "{count} steps are fewer than the {blocks} blocks that {most} masked tokens are made in; give one for each \
             block"
        ),
    })
}

impl Pool {
    /// Unmasks tokens of each state that is tokens; other states are carried.
    pub(super) fn unmask_states(
        &mut self,
        component: &ComponentSpec,
        iteration: &Iteration,
        moment: Unmasking<'_>,
    ) -> Result<(), PipelineError> {
        for (index, state) in iteration.numbered().filter(|(_, state)| state.tokens) {
            let mut next = self.states.take_spare(index);
            let made = self.unmask_state(component, iteration, (index, state), moment, &mut next);
            self.states.put(index, next, made.is_ok());
            made?;
        }
        self.carry_states(component, iteration, |state| !state.tokens)
    }

    fn unmask_state(
        &self,
        component: &ComponentSpec,
        iteration: &Iteration,
        (index, state): (usize, &LoopState),
        moment: Unmasking<'_>,
        next: &mut Value,
    ) -> Result<(), PipelineError> {
        let (Some(port), Some(current), Some(logits)) = (
            component.io.outputs.get(state.output),
            self.states.current(index),
            self.output(iteration.denoiser, state.output),
        ) else {
            return Ok(());
        };
        let rows = logits.shape().split_last();
        if rows.is_none_or(|(width, rows)| *width == 0 || rows != current.shape()) {
            return Err(RequestError::LogitsShape {
                component: component.name.clone(),
                port: port.name.clone(),
                found: logits.shape().to_vec(),
                tokens: current.shape().to_vec(),
            }
            .into());
        }
        let mut ids = Vec::new();
        read_integers(current, &mut ids);
        let length = current.shape().last().copied().unwrap_or(1);
        let length = usize::try_from(length).unwrap_or(0).max(1);
        let sequences = ids.chunks_mut(length).zip(self.states.masked(index));
        for (sequence, (ids, masked)) in sequences.enumerate() {
            self.unmask(
                component,
                logits,
                (sequence * length, ids),
                masked,
                (index, moment),
            )?;
        }
        let bytes = next
            .write(current.dtype(), current.shape())
            .map_err(|error| at_port(component, port, error))?;
        write_integers(current.dtype(), bytes, ids.into_iter());
        Ok(())
    }

    /// Unmasks tokens of one sequence, whose first row of logits is `first`.
    fn unmask(
        &self,
        component: &ComponentSpec,
        logits: TensorView<'_>,
        (first, ids): (usize, &mut [i64]),
        masked: &[usize],
        (state, moment): (usize, Unmasking<'_>),
    ) -> Result<(), PipelineError> {
        let plan = moment.masked;
        let turn = plan.turn(masked, moment.step, moment.steps);
        let mask = i64::from(plan.mask_token_id);
        let draws = Draws {
            seed: moment.seed,
            stream: stream(state),
            draw: moment.draw,
        };
        let mut row = Vec::new();
        let mut choices = Vec::new();
        for &position in turn.positions {
            // As much work as there are tokens to choose from.
            check_control(moment.control)?;
            let at = first + position;
            if ids.get(position) != Some(&mask) || row_at(logits, at, &mut row).is_none() {
                continue;
            }
            if let Some(nan) = row.iter().position(|logit| logit.is_nan()) {
                return Err(RequestError::NanLogits {
                    component: component.name.clone(),
                    index: at.saturating_mul(row.len()).saturating_add(nan),
                }
                .into());
            }
            let uniforms = draws.of_tokens(at, row.len());
            if let Some(choice) = plan.choose(&row, uniforms, draws.of_position(at)) {
                choices.push((position, choice));
            }
        }
        // A stable sort: among equals the first position stays first.
        choices.sort_by(|(_, a), (_, b)| b.confidence.total_cmp(&a.confidence));
        for (position, choice) in choices.into_iter().take(turn.count) {
            if let (Some(id), Ok(token)) = (ids.get_mut(position), i64::try_from(choice.token)) {
                *id = token;
            }
        }
        Ok(())
    }
}
