//! The one place that calls a component.

use std::mem::{replace, take};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::component::{
    Call, ComponentError, ComponentErrorKind, ComponentSession, DataType, Input, Output, OutputResult, Port,
    RunControl, Shape, TensorError, byte_len,
};
use crate::package::{ComponentSpec, FirstPass, OutputDim, OutputRole, PipelineSpec};

use super::cache::{Cache, Lent};
use super::pool::{Pool, Span, Values, at_port};
use super::value::Value;
use super::{PipelineError, RequestError};

/// A session that runs share; one run at a time uses it.
pub(super) type SharedSession = Arc<Mutex<Box<dyn ComponentSession>>>;

/// Lists that a call to a session needs, kept for the next call.
#[derive(Default)]
pub(super) struct Scratch {
    inputs: Vec<Input<'static>>,
    outputs: Vec<Output<'static>>,
    results: Vec<OutputResult>,
    /// Output indices that are asked for.
    asked: Vec<usize>,
    writing: Vec<Value>,
    promised: Vec<Option<Shape>>,
}

impl Pool {
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
        let _entered = self.enter();
        let outcome = self.execute_charged(spec, sessions, index, span, control);
        outcome.map_err(|error| self.explained(error))
    }

    fn execute_charged(
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
        self.reserve_caches(index, component, span, spec)?;
        self.make_inputs(index, component, span)?;
        let mut scratch = take(&mut self.scratch);
        let rooms = self.take_rooms(index, component, span, spec, &mut scratch);
        let (values, caches) = self.parts(index);
        let outcome =
            rooms.and_then(|()| values.call(index, component, session, span, control, caches, &mut scratch));
        let outcome = outcome.and_then(|()| check_carried(component, &scratch));
        let kept = self.keep_results(index, component, span, outcome.is_ok(), &mut scratch);
        self.scratch = scratch;
        outcome.and(kept)
    }

    /// What is read and the caches of a component, which are written meanwhile.
    fn parts(&mut self, index: usize) -> (Values<'_>, &mut [Option<Cache>]) {
        let Pool {
            components,
            caches,
            output_ids,
            output_codes,
            feeds,
            states,
            ..
        } = self;
        let values = Values {
            components,
            output_ids,
            output_codes,
            feeds,
            states,
        };
        let caches = caches.get_mut(index).map(Vec::as_mut_slice).unwrap_or_default();
        (values, caches)
    }

    /// Makes sure that the caches which are kept in place have memory for the span.
    fn reserve_caches(
        &mut self,
        index: usize,
        component: &ComponentSpec,
        span: Span<'_>,
        spec: &PipelineSpec,
    ) -> Result<(), PipelineError> {
        let caches = self
            .caches
            .get_mut(index)
            .map(Vec::as_mut_slice)
            .unwrap_or_default();
        for (cache, port) in caches.iter_mut().zip(&component.io.outputs) {
            let Some(cache) = cache else { continue };
            let rows = cache.rows().saturating_add(span.len);
            if let Some(capacity) = cache.most_rows().filter(|&capacity| capacity < rows) {
                return Err(RequestError::CacheFull {
                    component: component.name.clone(),
                    port: port.name.clone(),
                    needed: rows,
                    capacity,
                }
                .into());
            }
            cache
                .reserve(rows, spare_rows(rows, spec.context_length))
                .map_err(|error| at_port(component, port, error))?;
        }
        Ok(())
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
            let shape = match span.last_row == Some(output) {
                true => None,
                false => self.promised_shape(index, component, output, span),
            };
            let Some(slot) = self
                .components
                .get_mut(index)
                .and_then(|values| values.outputs.get_mut(output))
            else {
                continue;
            };
            let mut value = take(&mut slot.back);
            let reserved = match (&shape, self.cache(index, output)) {
                (None, _) | (_, Some(_)) => Ok(()),
                (Some(shape), None) => {
                    reserve(&mut value, dtype, shape, &output_spec.role, spec.context_length)
                }
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
        if let Some(cache) = self.cache(index, output) {
            return Some(cache.next_shape(span.len));
        }
        let last = self.components.get(index)?.outputs.get(output)?.front.view()?;
        match &spec.role {
            OutputRole::Present { axis, .. } => {
                let mut shape = Shape::from_slice(last.shape());
                *shape.get_mut(*axis)? += span.len as i64;
                Some(shape)
            }
            OutputRole::State { shape } => Some(shape.clone()),
            OutputRole::Held => None,
            OutputRole::Plain => {
                let shape: Option<Shape> = spec
                    .dims
                    .as_ref()?
                    .iter()
                    .map(|dim| match *dim {
                        OutputDim::Fixed(size) => Some(size),
                        OutputDim::SameAs { input, axis } => {
                            let spec = component.inputs.get(input)?;
                            self.input_shape(index, input, spec)?.get(axis).copied()
                        }
                    })
                    .collect();
                shape.filter(|shape| shape.as_slice() == last.shape())
            }
        }
    }

    /// Begins the decoder's caches with what the component of the first pass has made of a span.
    pub fn begin_caches(
        &mut self,
        spec: &PipelineSpec,
        first: &FirstPass,
        decoder: usize,
        len: usize,
    ) -> Result<(), PipelineError> {
        let (Some(component), Some(reader)) =
            (spec.components.get(first.component), spec.components.get(decoder))
        else {
            return Ok(());
        };
        for &(from, to) in &first.caches {
            let (Some(port), Some(role)) = (component.io.outputs.get(from), reader.outputs.get(to)) else {
                continue;
            };
            let OutputRole::Present { axis, empty, .. } = &role.role else {
                continue;
            };
            let Some(made) = self.output(first.component, from) else {
                continue;
            };
            let mut expected = empty.clone();
            if let Some(rows) = expected.get_mut(*axis) {
                *rows = len as i64;
            }
            if made.shape() != expected.as_slice() {
                return Err(RequestError::CarriedShape {
                    component: component.name.clone(),
                    port: port.name.clone(),
                    found: made.shape().to_vec(),
                    expected: expected.to_vec(),
                }
                .into());
            }
            let tensor = made
                .to_tensor()
                .map_err(|error| at_port(component, port, error))?;
            let spare = spare_rows(len, spec.context_length);
            let taken = match self.cache_mut(decoder, to) {
                Some(cache) => cache.begin(tensor.view(), spare),
                None => match self
                    .components
                    .get_mut(decoder)
                    .and_then(|values| values.outputs.get_mut(to))
                {
                    Some(slot) => {
                        slot.written = true;
                        slot.back.take_result(OutputResult::Owned(tensor))
                    }
                    None => Ok(()),
                },
            };
            taken.map_err(|error| at_port(component, port, error))?;
        }
        Ok(())
    }

    /// Puts the outputs' values back, written or not.
    fn keep_results(
        &mut self,
        index: usize,
        component: &ComponentSpec,
        span: Span<'_>,
        good: bool,
        scratch: &mut Scratch,
    ) -> Result<(), PipelineError> {
        let mut outcome = Ok(());
        let mut results = scratch.results.drain(..);
        for (output, mut value) in scratch.asked.drain(..).zip(scratch.writing.drain(..)) {
            let result = results.next().unwrap_or(OutputResult::Pending);
            if let Some(cache) = self.cache_mut(index, output) {
                let taken = match good {
                    true => cache.take_result(result, span.len),
                    false => Ok(()),
                };
                if let (Err(error), Some(port)) = (taken, component.io.outputs.get(output)) {
                    outcome = Err(at_port(component, port, error));
                }
                continue;
            }
            let slot = self
                .components
                .get_mut(index)
                .and_then(|values| values.outputs.get_mut(output));
            let Some(slot) = slot else { continue };
            if good {
                let taken = value
                    .take_result(result)
                    .and_then(|()| match span.last_row == Some(output) {
                        true => value.keep_last_row(),
                        false => Ok(()),
                    });
                if let (Err(error), Some(port)) = (taken, component.io.outputs.get(output)) {
                    outcome = Err(at_port(component, port, error));
                }
                slot.written = true;
                // What the first pass made stays.
                let held = component
                    .outputs
                    .get(output)
                    .is_some_and(|spec| spec.role == OutputRole::Held);
                if held && span.past > 0 {
                    value.clear();
                    slot.written = false;
                }
            } else {
                value.clear();
            }
            slot.back = value;
        }
        outcome
    }
}

impl Values<'_> {
    #[expect(clippy::too_many_arguments, reason = "the parts of one call")]
    fn call(
        self,
        index: usize,
        component: &ComponentSpec,
        session: &SharedSession,
        span: Span<'_>,
        control: &RunControl,
        caches: &mut [Option<Cache>],
        scratch: &mut Scratch,
    ) -> Result<(), PipelineError> {
        let mut inputs = recycle(take(&mut scratch.inputs));
        let mut outputs = recycle(take(&mut scratch.outputs));
        let Scratch {
            asked,
            writing,
            promised,
            ..
        } = scratch;
        let gathered = self.gather(
            index,
            component,
            span,
            caches,
            (asked, writing, promised),
            (&mut inputs, &mut outputs),
        );
        let outcome = gathered.and_then(|()| {
            lock(session, control)
                .and_then(|mut session| session.run(&inputs, &mut outputs, control))
                .map_err(|error| in_component(component, error))
        });
        scratch.results.clear();
        scratch.results.extend(
            outputs
                .iter_mut()
                .map(|output| replace(&mut output.result, OutputResult::Pending)),
        );
        scratch.inputs = recycle(inputs);
        scratch.outputs = recycle(outputs);
        outcome
    }

    /// Lists what a call gives and asks for.
    fn gather<'c>(
        self,
        index: usize,
        component: &'c ComponentSpec,
        span: Span<'_>,
        caches: &'c mut [Option<Cache>],
        (asked, writing, promised): (&[usize], &'c mut [Value], &'c [Option<Shape>]),
        (inputs, outputs): (&mut Vec<Input<'c>>, &mut Vec<Output<'c>>),
    ) -> Result<(), PipelineError>
    where
        Self: 'c,
    {
        for (input, (spec, port)) in component.inputs.iter().zip(&component.io.inputs).enumerate() {
            if let Some(value) = self.input(index, input, spec) {
                inputs.push(Input {
                    name: &port.name,
                    value,
                });
            }
        }
        let mut caches = caches.iter_mut().enumerate();
        for ((&output, value), promised) in asked.iter().zip(writing).zip(promised) {
            let Some(port) = component.io.outputs.get(output) else {
                continue;
            };
            // Both are in the order of the outputs.
            let cache = caches.find(|(index, _)| *index == output);
            if let (Some((_, Some(cache))), Some(past)) = (cache, past_of(component, output)) {
                let lent = cache.lend(&past.name);
                outputs.push(match lent.map_err(|error| at_port(component, port, error))? {
                    Lent::Room(room) => Output {
                        cache: Some(room),
                        known_shape: promised.as_deref(),
                        ..Output::alloc(&port.name)
                    },
                    Lent::InTurn {
                        past: value,
                        shape,
                        room,
                    } => {
                        let name = &past.name;
                        inputs.push(Input { name, value });
                        Output {
                            known_shape: Some(shape),
                            ..Output::into_room(&port.name, room)
                        }
                    }
                });
                continue;
            }
            outputs.push(match promised {
                None => Output {
                    last_row: span.last_row == Some(output),
                    ..Output::alloc(&port.name)
                },
                Some(shape) => Output {
                    known_shape: Some(shape),
                    ..Output::into_room(&port.name, value.room())
                },
            });
        }
        Ok(())
    }
}

/// Runs a component for several pools, each over a span of its own: together where its session can,
/// with the results that each would have alone. As [`Pool::execute`].
pub(super) fn execute_together(
    spec: &PipelineSpec,
    sessions: &[SharedSession],
    index: usize,
    members: &mut [(&mut Pool, Span<'_>)],
    control: &RunControl,
) -> Vec<Result<(), PipelineError>> {
    let (Some(component), Some(session)) = (spec.components.get(index), sessions.get(index)) else {
        return members.iter().map(|_| Ok(())).collect();
    };
    let mut scratches: Vec<Scratch> = Vec::with_capacity(members.len());
    let mut outcomes = Vec::with_capacity(members.len());
    for (pool, span) in members.iter_mut() {
        let _entered = pool.enter();
        let mut scratch = take(&mut pool.scratch);
        scratch.asked.clear();
        scratch.writing.clear();
        let ready = pool
            .reserve_caches(index, component, *span, spec)
            .and_then(|()| pool.make_inputs(index, component, *span))
            .and_then(|()| pool.take_rooms(index, component, *span, spec, &mut scratch));
        outcomes.push(ready.map_err(|error| pool.explained(error)));
        scratches.push(scratch);
    }
    call_together(
        index,
        component,
        session,
        members,
        &mut scratches,
        &mut outcomes,
        control,
    );
    let finished = members.iter_mut().zip(scratches).zip(outcomes);
    finished
        .map(|(((pool, span), mut scratch), outcome)| {
            let _entered = pool.enter();
            let outcome = outcome.and_then(|()| check_carried(component, &scratch));
            let kept = pool.keep_results(index, component, *span, outcome.is_ok(), &mut scratch);
            pool.scratch = scratch;
            outcome.and(kept.map_err(|error| pool.explained(error)))
        })
        .collect()
}

/// The call itself, of those members that nothing has gone wrong with yet.
fn call_together(
    index: usize,
    component: &ComponentSpec,
    session: &SharedSession,
    members: &mut [(&mut Pool, Span<'_>)],
    scratches: &mut [Scratch],
    outcomes: &mut [Result<(), PipelineError>],
    control: &RunControl,
) {
    let mut lists = Vec::with_capacity(members.len());
    let mut taking_part = Vec::with_capacity(members.len());
    let mut results = Vec::with_capacity(members.len());
    let all = members.iter_mut().zip(scratches).zip(outcomes);
    for (((pool, span), scratch), outcome) in all {
        let Scratch {
            asked,
            writing,
            promised,
            results: own,
            ..
        } = scratch;
        own.clear();
        if outcome.is_err() {
            continue;
        }
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        let (values, caches) = pool.parts(index);
        let to = (&mut inputs, &mut outputs);
        match values.gather(index, component, *span, caches, (asked, writing, promised), to) {
            Ok(()) => {
                lists.push((inputs, outputs));
                taking_part.push(outcome);
                results.push(own);
            }
            Err(error) => *outcome = Err(error),
        }
    }
    let mut calls: Vec<Call<'_, '_>> = lists
        .iter_mut()
        .map(|(inputs, outputs)| Call { inputs, outputs })
        .collect();
    let ran = match lock(session, control) {
        Ok(mut session) => session.run_together(&mut calls, control),
        Err(error) => {
            let stopped = |_| check_control(control).map_err(|kind| ComponentError::new("", kind));
            let mut failed: Vec<_> = (1..calls.len()).map(stopped).collect();
            failed.push(Err(error));
            failed
        }
    };
    drop(calls);
    for (((_, mut outputs), own), (outcome, ran)) in lists
        .into_iter()
        .zip(results)
        .zip(taking_part.into_iter().zip(ran))
    {
        *outcome = ran.map_err(|error| in_component(component, error));
        own.extend(
            outputs
                .iter_mut()
                .map(|output| replace(&mut output.result, OutputResult::Pending)),
        );
    }
}

fn in_component(component: &ComponentSpec, mut error: ComponentError) -> PipelineError {
    // A session that a host made may not know what the package calls it.
    error.component = component.name.clone();
    PipelineError::Component(error)
}

/// The input that a cache is read from, if it is made longer in place.
fn past_of(component: &ComponentSpec, output: usize) -> Option<&Port> {
    match component.outputs.get(output)?.role {
        OutputRole::Present { in_place, .. } => component.io.inputs.get(in_place?),
        _ => None,
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
    let bytes = byte_len(dtype, shape)?;
    let OutputRole::Present { axis, .. } = role else {
        return value.reserve(bytes, bytes);
    };
    let mut spare_shape = Shape::from_slice(shape);
    let spare = spare_rows(rows_of(shape, role), context_length);
    if let (Some(dim), Ok(spare)) = (spare_shape.get_mut(*axis), i64::try_from(spare)) {
        *dim = spare;
    }
    value.reserve(bytes, byte_len(dtype, &spare_shape).unwrap_or(bytes))
}

/// Rows of a cache of this shape.
fn rows_of(shape: &[i64], role: &OutputRole) -> usize {
    let OutputRole::Present { axis, .. } = role else {
        return 0;
    };
    let rows = shape.get(*axis).copied().unwrap_or(0);
    usize::try_from(rows).unwrap_or(0)
}

/// Rows to make room for when a cache needs `rows`: up to twice as many and those of the steps
/// that come next, and no more than a sequence can have.
pub(super) fn spare_rows(rows: usize, context_length: Option<u64>) -> usize {
    const FEWEST: usize = 64;
    /// A prompt just below a power of two is not copied by the first steps after it.
    const SOON: usize = 32;
    let needed = rows.saturating_add(SOON);
    let spare = needed.checked_next_power_of_two().unwrap_or(rows).max(FEWEST);
    match context_length.and_then(|limit| usize::try_from(limit).ok()) {
        Some(limit) => spare.min(limit).max(rows),
        None => spare,
    }
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
pub(super) fn lock<'s>(
    session: &'s SharedSession,
    control: &RunControl,
) -> Result<MutexGuard<'s, Box<dyn ComponentSession>>, ComponentError> {
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
    control.stop_reason().map_or(Ok(()), Err)
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
