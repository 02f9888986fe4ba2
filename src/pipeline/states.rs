use crate::component::{DataType, Shape, TensorError, TensorView, check_value};
use crate::package::{Iteration, LoopState, PipelineSpec};

use super::convert::{read_floats, read_integers, write_floats, write_integers};
use super::saved::wire::{self, Wire};
use super::value::{Slot, Value};

/// What goes from step to step of denoisers, and what the step under way feeds one beside.
#[derive(Default)]
pub(super) struct States {
    /// Those of all loops, one loop's after the other's.
    list: Vec<State>,
    pub timestep: f64,
    /// For each input of each denoiser, what stands in for it where guidance leaves the
    /// conditioning out: the host's value, or zeros.
    without: Vec<Without>,
    zeros: Value,
    /// The denoiser that the pass under way runs without its conditioning.
    pub leaving_out: Option<usize>,
}

struct Without {
    denoiser: usize,
    /// One for each input.
    values: Vec<Value>,
    /// The input that zeros stand in for.
    zeroed: Option<usize>,
}

/// A step reads the state and writes another value, which then takes its place; a call may
/// take many steps before it is done.
#[derive(Default)]
struct State {
    slot: Slot,
    spare: Value,
    /// Whether it starts as noise if the host does not set it.
    starts_as_noise: bool,
    /// The state as the model reads it, where that is not as it is.
    scaled: Value,
    /// The clean sample that the last step saw in it, float32.
    clean: Slot,
    spare_clean: Value,
    /// Of tokens: for each sequence the positions that were the mask before the first step.
    masked: Vec<Vec<usize>>,
    /// Of tokens: the state as the model reads it where guidance leaves out what the loop began with.
    unprompted: Value,
}

impl States {
    pub fn new(spec: &PipelineSpec) -> Self {
        let without = spec.iterations.iter().map(|iteration| {
            let component = spec.components.get(iteration.denoiser);
            let inputs = component.map_or(0, |component| component.inputs.len());
            Without {
                denoiser: iteration.denoiser,
                values: std::iter::repeat_with(Value::default).take(inputs).collect(),
                zeroed: iteration.guidance.and_then(|guidance| guidance.input),
            }
        });
        let count = spec
            .iterations
            .iter()
            .map(|iteration| iteration.states.len())
            .sum();
        States {
            list: std::iter::repeat_with(State::default).take(count).collect(),
            without: without.collect(),
            ..States::default()
        }
    }

    /// The same states, between steps.
    pub fn fork(&mut self) -> States {
        let fork = |state: &mut State| State {
            slot: state.slot.fork(),
            spare: Value::default(),
            starts_as_noise: state.starts_as_noise,
            scaled: state.scaled.fork(),
            clean: state.clean.fork(),
            spare_clean: Value::default(),
            masked: state.masked.clone(),
            unprompted: state.unprompted.fork(),
        };
        let without = |without: &mut Without| Without {
            denoiser: without.denoiser,
            values: without.values.iter_mut().map(Value::fork).collect(),
            zeroed: without.zeroed,
        };
        States {
            list: self.list.iter_mut().map(fork).collect(),
            timestep: self.timestep,
            without: self.without.iter_mut().map(without).collect(),
            zeros: self.zeros.fork(),
            leaving_out: None,
        }
    }

    /// Counts, writes or reads them.
    pub fn saved(&mut self, spec: &PipelineSpec, wire: &mut Wire<'_>) -> wire::Result<()> {
        let States {
            list,
            timestep,
            without,
            zeros,
            leaving_out: _,
        } = self;
        let any = |_, _: &[i64]| Ok(());
        wire.same_count("states of loops", list.len())?;
        for (index, state) in list.iter_mut().enumerate() {
            let port = spec.loop_state(index).and_then(|(iteration, state)| {
                let component = spec.components.get(iteration.denoiser)?;
                component.io.inputs.get(state.input)
            });
            let check = |dtype, shape: &[i64]| match port {
                Some(port) => check_value(port, dtype, shape).map_err(|kind| wire::Problem(kind.to_string())),
                None => Ok(()),
            };
            wire.value(&mut state.slot.front, check)?;
            wire.value(&mut state.scaled, check)?;
            wire.value(&mut state.clean.front, any)?;
            wire.value(&mut state.unprompted, check)?;
            let sequences = wire.count(state.masked.len(), 8)?;
            if wire.reads() {
                state.masked.clear();
            }
            state.masked.resize(sequences, Vec::new());
            state
                .masked
                .iter_mut()
                .try_for_each(|masked| wire.usizes(masked))?;
        }
        wire.f64(timestep)?;
        for without in without {
            let component = spec.components.get(without.denoiser);
            let ports = component.map_or(&[][..], |component| &component.io.inputs);
            for (value, port) in without.values.iter_mut().zip(ports) {
                wire.value(value, |dtype, shape| {
                    check_value(port, dtype, shape).map_err(|kind| wire::Problem(kind.to_string()))
                })?;
            }
        }
        wire.value(zeros, any)
    }

    /// Says whether the states of a loop start as noise where the host does not set them.
    pub fn start_as_noise(&mut self, iteration: &Iteration, noise: bool) {
        for (index, _) in iteration.numbered() {
            if let Some(state) = self.list.get_mut(index) {
                state.starts_as_noise = noise;
            }
        }
    }

    /// A state as the last step has made it; `None` before the first.
    pub fn current(&self, index: usize) -> Option<TensorView<'_>> {
        self.list.get(index)?.slot.current()
    }

    /// A state as the denoiser reads it.
    pub fn fed(&self, index: usize) -> Option<TensorView<'_>> {
        let state = self.list.get(index)?;
        let unprompted = state.unprompted.view().filter(|_| self.leaving_out.is_some());
        unprompted
            .or_else(|| state.scaled.view())
            .or_else(|| state.slot.current())
    }

    /// The clean sample that the last step saw in a state.
    pub fn clean(&self, index: usize) -> Option<TensorView<'_>> {
        self.list.get(index)?.clean.current()
    }

    /// For each sequence of a state of tokens, the positions that the loop has to make.
    pub fn masked(&self, index: usize) -> &[Vec<usize>] {
        self.list.get(index).map_or(&[], |state| &state.masked)
    }

    pub fn set_masked(&mut self, index: usize, masked: Vec<Vec<usize>>) {
        if let Some(state) = self.list.get_mut(index) {
            state.masked = masked;
        }
    }

    /// What stands at an input of a component in a pass that leaves the conditioning out; `None`
    /// for what stands there in every pass.
    pub fn instead(&self, component: usize, input: usize) -> Option<TensorView<'_>> {
        if self.leaving_out != Some(component) {
            return None;
        }
        let mut all = self.without.iter();
        let zeroed = all.find(|without| without.denoiser == component)?.zeroed;
        let zeros = || self.zeros.view().filter(|_| zeroed == Some(input));
        self.without(component, input).or_else(zeros)
    }

    /// The host's value for an input of a denoiser in passes that leave the conditioning out.
    pub fn without(&self, denoiser: usize, input: usize) -> Option<TensorView<'_>> {
        let mut all = self.without.iter();
        all.find(|without| without.denoiser == denoiser)?
            .values
            .get(input)?
            .view()
    }

    pub fn without_mut(&mut self, denoiser: usize, input: usize) -> Option<&mut Value> {
        let mut all = self.without.iter_mut();
        all.find(|without| without.denoiser == denoiser)?
            .values
            .get_mut(input)
    }

    /// Makes the zeros that stand in for the conditioning, as large as it is.
    pub fn write_zeros(&mut self, dtype: DataType, shape: &[i64]) -> Result<(), TensorError> {
        self.zeros.write_zeros(dtype, shape)
    }

    /// Makes what the denoiser reads of a state, which is the state times `factor`.
    pub fn scale(&mut self, index: usize, factor: f64, scratch: &mut Vec<f32>) -> Result<(), TensorError> {
        let Some(state) = self.list.get_mut(index) else {
            return Ok(());
        };
        let current = state.slot.current().filter(|_| factor != 1.0);
        let Some(current) = current else {
            state.scaled.clear();
            return Ok(());
        };
        read_floats(current, scratch)?;
        let bytes = state.scaled.write(current.dtype(), current.shape())?;
        let values = scratch.iter().map(|&value| (f64::from(value) * factor) as f32);
        write_floats(current.dtype(), bytes, values);
        Ok(())
    }

    /// Makes what the denoiser reads of a state of tokens in passes that leave out its conditioning:
    /// the mask in the place of each token that the loop began with.
    pub fn leave_out_prompt(&mut self, index: usize, mask: i64) -> Result<(), TensorError> {
        let Some(state) = self.list.get_mut(index) else {
            return Ok(());
        };
        let Some(current) = state.slot.current() else {
            return Ok(());
        };
        let mut ids = Vec::new();
        read_integers(current, &mut ids);
        let length = current.shape().last().copied().unwrap_or(1);
        let length = usize::try_from(length).unwrap_or(0).max(1);
        for (ids, made) in ids.chunks_mut(length).zip(&state.masked) {
            let mut made = made.iter().copied().peekable();
            for (place, id) in ids.iter_mut().enumerate() {
                if made.next_if_eq(&place).is_none() {
                    *id = mask;
                }
            }
        }
        let (dtype, shape) = (current.dtype(), Shape::from_slice(current.shape()));
        write_integers(dtype, state.unprompted.write(dtype, &shape)?, ids.into_iter());
        Ok(())
    }

    /// Memory for the next value of a state; [`put`](Self::put) takes it back.
    pub fn take_spare(&mut self, index: usize) -> Value {
        self.list
            .get_mut(index)
            .map(|state| std::mem::take(&mut state.spare))
            .unwrap_or_default()
    }

    /// Makes `next` the state if it is `good`; else it is only memory.
    pub fn put(&mut self, index: usize, next: Value, good: bool) {
        if let Some(state) = self.list.get_mut(index) {
            put(&mut state.slot, &mut state.spare, next, good);
        }
    }

    /// Memory for the clean sample that a step sees; [`put_clean`](Self::put_clean) takes it.
    pub fn take_spare_clean(&mut self, index: usize) -> Value {
        self.list
            .get_mut(index)
            .map(|state| std::mem::take(&mut state.spare_clean))
            .unwrap_or_default()
    }

    pub fn put_clean(&mut self, index: usize, next: Value, good: bool) {
        if let Some(state) = self.list.get_mut(index) {
            put(&mut state.clean, &mut state.spare_clean, next, good);
        }
    }

    /// Forgets every state of a loop: it begins anew.
    pub fn forget(&mut self, iteration: &Iteration) {
        for (index, _) in iteration.numbered() {
            if let Some(state) = self.list.get_mut(index) {
                state.slot.front.clear();
                state.slot.roll_back();
            }
        }
    }

    /// Whether the loop can start without the host's value for a state.
    pub fn can_start(&self, index: usize, state: Option<&LoopState>) -> bool {
        let noise = self.list.get(index).is_some_and(|state| state.starts_as_noise);
        noise && state.is_some_and(|state| state.shape.is_some())
    }

    pub fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.list
            .iter_mut()
            .flat_map(|state| [&mut state.slot, &mut state.clean])
    }
}

fn put(slot: &mut Slot, spare: &mut Value, next: Value, good: bool) {
    if good {
        *spare = std::mem::replace(&mut slot.back, next);
        slot.written = true;
    } else {
        *spare = next;
    }
}
