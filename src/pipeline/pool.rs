use std::ops::Range;
use std::time::Duration;

use parking_lot::Mutex;

use crate::component::{
    ComponentError, ComponentErrorKind, ComponentSession, DataType, Input, Output, OutputResult, Port,
    RunControl, Shape, TensorError, TensorView, byte_len,
};
use crate::package::{AbsentDim, ComponentSpec, InputSource, InputSpec, OutputDim, OutputRole, PipelineSpec};

use super::convert::{convert_floats, write_integers, write_ones};
use super::value::{Slot, Value};
use super::{PipelineError, RequestError};

/// A session that runs share; one run at a time uses it.
pub(super) type SharedSession = Mutex<Box<dyn ComponentSession>>;

/// Every value of a run: request inputs, outputs, caches, and what the loop itself feeds.
#[derive(Default)]
pub(super) struct Pool {
    components: Vec<ComponentValues>,
    /// Chosen tokens, int64 `[1, n]`.
    pub output_ids: Value,
    scratch: Scratch,
}

#[derive(Default)]
struct ComponentValues {
    /// One for each output.
    outputs: Vec<Slot>,
    /// One for each input: the host's value.
    requests: Vec<Value>,
    /// One for each input: what the loop makes for it (ids, a mask, positions, a converted
    /// or an absent value).
    made: Vec<Value>,
}

/// Lists that a call to a session needs, kept for the next call.
#[derive(Default)]
struct Scratch {
    inputs: Vec<Input<'static>>,
    outputs: Vec<Output<'static>>,
    results: Vec<OutputResult>,
    /// Output indices that are asked for.
    asked: Vec<usize>,
    writing: Vec<Value>,
    promised: Vec<Option<Shape>>,
}

/// The tokens that a component runs over.
#[derive(Clone, Copy)]
pub(super) struct Span<'t> {
    pub ids: &'t [i32],
    /// Positions before the span, those in the caches included.
    pub past: usize,
}

impl Pool {
    pub fn new(spec: &PipelineSpec) -> Result<Self, PipelineError> {
        let values = |count: usize| std::iter::repeat_with(Value::default).take(count).collect();
        let mut pool = Pool {
            components: spec
                .components
                .iter()
                .map(|component| ComponentValues {
                    outputs: std::iter::repeat_with(Slot::default)
                        .take(component.outputs.len())
                        .collect(),
                    requests: values(component.inputs.len()),
                    made: values(component.inputs.len()),
                })
                .collect(),
            ..Pool::default()
        };
        pool.reset_caches(spec)?;
        Ok(pool)
    }

    /// Empties every KV cache and zeros every recurrent state.
    pub fn reset_caches(&mut self, spec: &PipelineSpec) -> Result<(), PipelineError> {
        for (component, values) in spec.components.iter().zip(&mut self.components) {
            for ((output, slot), port) in component
                .outputs
                .iter()
                .zip(&mut values.outputs)
                .zip(&component.io.outputs)
            {
                let shape = match &output.role {
                    OutputRole::Plain => continue,
                    OutputRole::Present { empty, .. } => empty,
                    OutputRole::State { shape } => shape,
                };
                let Some(dtype) = output.dtype else { continue };
                slot.front
                    .write_zeros(dtype, shape)
                    .map_err(|error| at_port(component, port, error))?;
            }
        }
        Ok(())
    }

    /// Makes every KV cache `len` positions long, if it is longer.
    pub fn truncate_caches(&mut self, spec: &PipelineSpec, len: usize) -> Result<(), PipelineError> {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        // First what can fail, then what cannot.
        for (component, port, slot, _) in self.caches(spec) {
            slot.front
                .own()
                .map_err(|error| at_port(component, port, error))?;
        }
        for (_, _, slot, axis) in self.caches(spec) {
            slot.front.truncate(axis, len);
        }
        Ok(())
    }

    fn caches<'p>(
        &'p mut self,
        spec: &'p PipelineSpec,
    ) -> impl Iterator<Item = (&'p ComponentSpec, &'p Port, &'p mut Slot, usize)> {
        spec.components
            .iter()
            .zip(&mut self.components)
            .flat_map(|(component, values)| {
                component
                    .outputs
                    .iter()
                    .zip(&component.io.outputs)
                    .zip(&mut values.outputs)
                    .filter_map(move |((output, port), slot)| match output.role {
                        OutputRole::Present { axis, .. } => Some((component, port, slot, axis)),
                        _ => None,
                    })
            })
    }

    /// Bytes that the KV caches hold, in use or reserved.
    pub fn cache_bytes(&self, spec: &PipelineSpec) -> u64 {
        let mut bytes = 0;
        for (component, values) in spec.components.iter().zip(&self.components) {
            for (output, slot) in component.outputs.iter().zip(&values.outputs) {
                if matches!(output.role, OutputRole::Present { .. }) {
                    bytes += slot.front.held_bytes() + slot.back.held_bytes();
                }
            }
        }
        bytes
    }

    /// What steps wrote becomes what there is.
    pub fn commit(&mut self) {
        self.slots().for_each(Slot::commit);
    }

    /// Forgets what an unfinished step wrote.
    pub fn roll_back(&mut self) {
        self.slots().for_each(Slot::roll_back);
    }

    fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.components.iter_mut().flat_map(|values| &mut values.outputs)
    }

    /// An output as a component of the step under way sees it.
    pub fn output(&self, component: usize, output: usize) -> Option<TensorView<'_>> {
        self.components.get(component)?.outputs.get(output)?.current()
    }

    pub fn request(&self, component: usize, input: usize) -> Option<TensorView<'_>> {
        self.components.get(component)?.requests.get(input)?.view()
    }

    pub fn request_mut(&mut self, component: usize, input: usize) -> Option<&mut Value> {
        self.components.get_mut(component)?.requests.get_mut(input)
    }

    /// Makes the outputs of a component unknown, as they were before it first ran.
    pub fn forget_outputs(&mut self, component: usize) {
        if let Some(values) = self.components.get_mut(component) {
            for slot in &mut values.outputs {
                slot.front.clear();
                slot.roll_back();
            }
        }
    }

    /// The value that stands at an input. `None`: nothing, the graph has a default.
    fn input(&self, component: usize, input: usize, spec: &InputSpec) -> Option<TensorView<'_>> {
        let values = self.components.get(component)?;
        let made = || values.made.get(input)?.view();
        match spec.source {
            InputSource::Tokens | InputSource::AttentionMask | InputSource::Positions { .. } => made(),
            InputSource::OutputIds => self.output_ids.view(),
            InputSource::Edge(from) => {
                let value = self
                    .output(from.component, from.output)
                    .filter(|value| value.dtype() == spec.dtype);
                value.or_else(made)
            }
            InputSource::Past { output } | InputSource::State { output } => {
                values.outputs.get(output)?.front.view()
            }
            InputSource::Request { .. } => values.requests.get(input)?.view().or_else(made),
        }
    }

    /// Makes what the loop itself feeds to a component: ids, mask, positions, conversions,
    /// zeros for what is absent.
    fn make_inputs(
        &mut self,
        index: usize,
        component: &ComponentSpec,
        span: Span<'_>,
    ) -> Result<(), PipelineError> {
        for (input, spec) in component.inputs.iter().enumerate() {
            let taken = self
                .components
                .get_mut(index)
                .and_then(|values| values.made.get_mut(input))
                .map(std::mem::take);
            let Some(mut made) = taken else { continue };
            let outcome = self.make_input(component, index, input, spec, span, &mut made);
            if let Some(slot) = self
                .components
                .get_mut(index)
                .and_then(|values| values.made.get_mut(input))
            {
                *slot = made;
            }
            if let (Err(error), Some(port)) = (outcome, component.io.inputs.get(input)) {
                return Err(at_port(component, port, error));
            }
        }
        Ok(())
    }

    fn make_input(
        &self,
        component: &ComponentSpec,
        index: usize,
        input: usize,
        spec: &InputSpec,
        span: Span<'_>,
        made: &mut Value,
    ) -> Result<(), TensorError> {
        let count = span.ids.len();
        let len = count as i64;
        let past = span.past as i64;
        match spec.source {
            InputSource::Tokens => {
                let bytes = made.write(spec.dtype, &[1, len])?;
                write_integers(spec.dtype, bytes, span.ids.iter().map(|&id| i64::from(id)));
            }
            InputSource::AttentionMask => {
                write_ones(spec.dtype, made.write(spec.dtype, &[1, past + len])?);
            }
            InputSource::Positions { rank } => {
                let shape: &[i64] = match rank {
                    1 => &[len],
                    3 => &[3, 1, len],
                    _ => &[1, len],
                };
                let bytes = made.write(spec.dtype, shape)?;
                // On three axes the same positions, one axis after the other.
                write_integers(spec.dtype, bytes, (past..past + len).cycle().take(3 * count));
            }
            InputSource::Edge(from) => match self.output(from.component, from.output) {
                Some(value) if value.dtype() != spec.dtype => {
                    let bytes = made.write(spec.dtype, value.shape())?;
                    if !convert_floats(value, spec.dtype, bytes) {
                        made.clear();
                    }
                }
                Some(_) => made.clear(),
                None => self.make_absent(component, index, spec, made)?,
            },
            InputSource::Request { .. } if self.request(index, input).is_none() => {
                self.make_absent(component, index, spec, made)?;
            }
            _ => made.clear(),
        }
        Ok(())
    }

    fn make_absent(
        &self,
        component: &ComponentSpec,
        index: usize,
        spec: &InputSpec,
        made: &mut Value,
    ) -> Result<(), TensorError> {
        let Some(absent) = &spec.absent else {
            made.clear();
            return Ok(());
        };
        let mut shape = Shape::new();
        for dim in &absent.dims {
            let size = match *dim {
                AbsentDim::Fixed(size) => Some(size),
                AbsentDim::SameAs { input, axis } => component
                    .inputs
                    .get(input)
                    .and_then(|spec| self.input(index, input, spec))
                    .and_then(|value| value.shape().get(axis).copied()),
            };
            // A dim that nobody gives a size is one of an input that is empty too.
            shape.push(size.unwrap_or(0));
        }
        made.write_zeros(spec.dtype, &shape)
    }

    /// Runs a component over a span. Its outputs are then in the slots' `back`, for the
    /// caller to commit or roll back.
    pub fn execute(
        &mut self,
        spec: &PipelineSpec,
        sessions: &[SharedSession],
        index: usize,
        span: Span<'_>,
        control: &RunControl,
    ) -> Result<(), PipelineError> {
        let (Some(component), Some(session)) = (spec.components.get(index), sessions.get(index)) else {
            return Ok(());
        };
        self.make_inputs(index, component, span)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = self
            .take_rooms(index, component, span, spec, &mut scratch)
            .and_then(|()| self.call(index, component, session, control, &mut scratch));
        let outcome = outcome.and_then(|()| check_carried(component, &scratch));
        let kept = self.keep_results(index, component, outcome.is_ok(), &mut scratch);
        self.scratch = scratch;
        outcome.and(kept)
    }

    /// Takes the asked outputs' values out of the pool, so that they can be written while
    /// inputs are read, with room for those whose shape is known.
    fn take_rooms(
        &mut self,
        index: usize,
        component: &ComponentSpec,
        span: Span<'_>,
        spec: &PipelineSpec,
        scratch: &mut Scratch,
    ) -> Result<(), PipelineError> {
        scratch.asked.clear();
        scratch.writing.clear();
        scratch.promised.clear();
        for (output, output_spec) in component.outputs.iter().enumerate() {
            let Some(dtype) = output_spec.dtype else { continue };
            let shape = self.promised_shape(index, component, output, span);
            let Some(slot) = self
                .components
                .get_mut(index)
                .and_then(|values| values.outputs.get_mut(output))
            else {
                continue;
            };
            let mut value = std::mem::take(&mut slot.back);
            let reserved = match &shape {
                None => Ok(()),
                Some(shape) => reserve(&mut value, dtype, shape, &output_spec.role, spec.context_length),
            };
            scratch.asked.push(output);
            scratch.writing.push(value);
            scratch.promised.push(shape);
            if let (Err(error), Some(port)) = (reserved, component.io.outputs.get(output)) {
                return Err(at_port(component, port, error));
            }
        }
        Ok(())
    }

    /// The shape that an output will have, where that is certain.
    ///
    /// A cache grows by the span and a state keeps its shape: that is what the package
    /// says, and it is checked. Any other output is trusted only when the graph's dim names
    /// give its shape and it had this very shape the last time.
    fn promised_shape(
        &self,
        index: usize,
        component: &ComponentSpec,
        output: usize,
        span: Span<'_>,
    ) -> Option<Shape> {
        let spec = component.outputs.get(output)?;
        let last = self.components.get(index)?.outputs.get(output)?.front.view()?;
        match &spec.role {
            OutputRole::Present { axis, .. } => {
                let mut shape = Shape::from_slice(last.shape());
                *shape.get_mut(*axis)? += span.ids.len() as i64;
                Some(shape)
            }
            OutputRole::State { shape } => Some(shape.clone()),
            OutputRole::Plain => {
                let shape: Option<Shape> = spec
                    .dims
                    .as_ref()?
                    .iter()
                    .map(|dim| match *dim {
                        OutputDim::Fixed(size) => Some(size),
                        OutputDim::SameAs { input, axis } => {
                            let spec = component.inputs.get(input)?;
                            self.input(index, input, spec)?.shape().get(axis).copied()
                        }
                    })
                    .collect();
                shape.filter(|shape| shape.as_slice() == last.shape())
            }
        }
    }

    fn call(
        &self,
        index: usize,
        component: &ComponentSpec,
        session: &SharedSession,
        control: &RunControl,
        scratch: &mut Scratch,
    ) -> Result<(), PipelineError> {
        let mut inputs = recycle(std::mem::take(&mut scratch.inputs));
        for (input, (spec, port)) in component.inputs.iter().zip(&component.io.inputs).enumerate() {
            if let Some(value) = self.input(index, input, spec) {
                inputs.push(Input {
                    name: &port.name,
                    value,
                });
            }
        }
        let mut outputs = recycle(std::mem::take(&mut scratch.outputs));
        for ((&output, value), promised) in scratch
            .asked
            .iter()
            .zip(&mut scratch.writing)
            .zip(&scratch.promised)
        {
            let Some(port) = component.io.outputs.get(output) else {
                continue;
            };
            outputs.push(match promised {
                None => Output::alloc(&port.name),
                Some(shape) => Output {
                    known_shape: Some(shape),
                    ..Output::into_room(&port.name, value.room())
                },
            });
        }
        let outcome = lock(session, control)
            .and_then(|mut session| session.run(&inputs, &mut outputs, control))
            .map_err(|mut error| {
                // A session that a host made may not know what the package calls it.
                error.component = component.name.clone();
                PipelineError::Component(error)
            });
        scratch.results.clear();
        scratch.results.extend(
            outputs
                .iter_mut()
                .map(|output| std::mem::replace(&mut output.result, OutputResult::Pending)),
        );
        scratch.inputs = recycle(inputs);
        scratch.outputs = recycle(outputs);
        outcome
    }

    /// Puts the outputs' values back, written or not.
    fn keep_results(
        &mut self,
        index: usize,
        component: &ComponentSpec,
        good: bool,
        scratch: &mut Scratch,
    ) -> Result<(), PipelineError> {
        let mut outcome = Ok(());
        let mut results = scratch.results.drain(..);
        for (output, mut value) in scratch.asked.drain(..).zip(scratch.writing.drain(..)) {
            let result = results.next().unwrap_or(OutputResult::Pending);
            let slot = self
                .components
                .get_mut(index)
                .and_then(|values| values.outputs.get_mut(output));
            let Some(slot) = slot else { continue };
            if good {
                if let (Err(error), Some(port)) =
                    (value.take_result(result), component.io.outputs.get(output))
                {
                    outcome = Err(at_port(component, port, error));
                }
                slot.written = true;
            } else {
                value.clear();
            }
            slot.back = value;
        }
        outcome
    }
}

/// Room for an output of this shape; a cache gets twice what it needs when it grows.
fn reserve(
    value: &mut Value,
    dtype: DataType,
    shape: &[i64],
    role: &OutputRole,
    context_length: Option<u64>,
) -> Result<(), TensorError> {
    const FEWEST_ROWS: u64 = 64;
    let bytes = byte_len(dtype, shape)?;
    let OutputRole::Present { axis, .. } = role else {
        return value.reserve(bytes, bytes);
    };
    let rows = shape
        .get(*axis)
        .and_then(|&rows| u64::try_from(rows).ok())
        .unwrap_or(0);
    let mut spare_rows = rows.next_power_of_two().max(FEWEST_ROWS);
    if let Some(limit) = context_length {
        spare_rows = spare_rows.min(limit).max(rows);
    }
    let mut spare_shape = Shape::from_slice(shape);
    if let (Some(dim), Ok(spare)) = (spare_shape.get_mut(*axis), i64::try_from(spare_rows)) {
        *dim = spare;
    }
    value.reserve(bytes, byte_len(dtype, &spare_shape).unwrap_or(bytes))
}

/// Caches and states have the shape that they must have.
fn check_carried(component: &ComponentSpec, scratch: &Scratch) -> Result<(), PipelineError> {
    for ((&output, promised), result) in scratch.asked.iter().zip(&scratch.promised).zip(&scratch.results) {
        let carried = component
            .outputs
            .get(output)
            .is_some_and(|spec| spec.role != OutputRole::Plain);
        let (true, Some(expected), Some((_, found))) = (carried, promised, result.dtype_and_shape()) else {
            continue;
        };
        if expected.as_slice() != found {
            return Err(RequestError::CarriedShape {
                component: component.name.clone(),
                port: component
                    .io
                    .outputs
                    .get(output)
                    .map_or(String::new(), |port| port.name.clone()),
                found: found.to_vec(),
                expected: expected.to_vec(),
            }
            .into());
        }
    }
    Ok(())
}

/// Waits for the session, no longer than `control` allows.
fn lock<'s>(
    session: &'s SharedSession,
    control: &RunControl,
) -> Result<parking_lot::MutexGuard<'s, Box<dyn ComponentSession>>, ComponentError> {
    const PATIENCE: Duration = Duration::from_millis(5);
    if !control.is_bounded() {
        return Ok(session.lock());
    }
    loop {
        if let Some(guard) = session.try_lock_for(PATIENCE) {
            return Ok(guard);
        }
        check_control(control)?;
    }
}

/// An error when the call should end now.
pub(super) fn check_control(control: &RunControl) -> Result<(), ComponentErrorKind> {
    if !control.should_stop() {
        return Ok(());
    }
    let cancelled = control
        .cancel
        .as_ref()
        .is_some_and(|cancel| cancel.is_requested());
    Err(if cancelled {
        ComponentErrorKind::Cancelled
    } else {
        ComponentErrorKind::DeadlineExceeded
    })
}

/// The same list, emptied, for borrows of another life. Collecting a vector's own items
/// into one of the same layout uses its memory again.
fn recycle<'to, T: Recycle<'to>>(mut list: Vec<T>) -> Vec<T::Other> {
    list.clear();
    list.into_iter().filter_map(|_| None).collect()
}

/// A type that differs from another only in a lifetime.
trait Recycle<'to> {
    type Other;
}

impl<'to> Recycle<'to> for Input<'_> {
    type Other = Input<'to>;
}

impl<'to> Recycle<'to> for Output<'_> {
    type Other = Output<'to>;
}

fn at_port(component: &ComponentSpec, port: &Port, error: TensorError) -> PipelineError {
    let kind = match error {
        TensorError::OutOfMemory { bytes } => ComponentErrorKind::OutOfMemory {
            bytes,
            what: format!("\"{}\"", port.name),
        },
        source => ComponentErrorKind::BadTensor {
            port: port.name.clone(),
            source,
        },
    };
    ComponentError::new(component.name.as_str(), kind).into()
}

/// The ids of `tokens` in `range`, none if that is out of bounds.
pub(super) fn ids(tokens: &[i32], range: Range<usize>) -> &[i32] {
    tokens.get(range).unwrap_or_default()
}
