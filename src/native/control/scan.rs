//! Scan(state..., scanned...): runs `body` on (state..., the next piece of each scanned
//! input...), which gives (state..., elements...), for each piece along the scanned axes.
//! Outputs are the last states, then the elements of all iterations, stacked.
//!
//! From version 9 on axes and directions are attributes. In version 8 axis 0 is a batch and
//! axis 1 is scanned, each member of the batch by itself and for as long as input 0,
//! `sequence_lens`, says; what is beyond is zero here.
//! ai.onnx 8, 9, 11, 16, 19, 21, 23 to 25.

use smallvec::SmallVec;

use super::stack::{empty_stack, stack};
use super::{
    Built, Control, ControlContext, ControlEntry, ControlError, is_used, output_fact, take, without_dims,
    wrong_body,
};
use crate::native::graph::Body;
use crate::native::infer::{Fact, InferContext, SymDim, SymDims};
use crate::native::kernels::dims::axis;
use crate::native::kernels::join::{cut, join};
use crate::native::node::NodeInfo;
use crate::native::operator::OpError;
use crate::native::output::Pool;
use crate::native::strings::Strings;
use crate::native::tensor::{Dims, Tensor, TensorRef};
use crate::native::value::{Value, ValueRef};
use crate::native::working::Working;

pub(in crate::native) static SCAN: ControlEntry = ControlEntry {
    bodies: &["body"],
    formals,
    build,
};

#[derive(Debug)]
struct Scan {
    body: [Body; 1],
    states: usize,
    inputs: Vec<Direction>,
    outputs: Vec<Direction>,
    /// Version 8.
    is_batched: bool,
}

/// How one input is scanned, or one output put together.
#[derive(Clone, Copy, Debug)]
struct Direction {
    axis: i64,
    is_reverse: bool,
}

/// The inputs of the node before the states: `sequence_lens` of version 8.
fn before_states(node: &NodeInfo<'_>) -> usize {
    usize::from(node.since < 9)
}

fn formals(node: &NodeInfo<'_>, inputs: &[Option<&Fact>]) -> Vec<Fact> {
    let inputs = inputs.iter().skip(before_states(node));
    inputs.map(|fact| without_dims(*fact)).collect()
}

fn build(node: &NodeInfo<'_>, bodies: Vec<Body>) -> Built {
    let body: [Body; 1] = bodies
        .try_into()
        .map_err(|_| OpError::Message("it has not one body".into()))?;
    let is_batched = node.since < 9;
    let count = node.input_count().saturating_sub(before_states(node));
    let scanned = node
        .int("num_scan_inputs")?
        .and_then(|count| usize::try_from(count).ok());
    let states = scanned.and_then(|scanned| count.checked_sub(scanned));
    let (Some(scanned), Some(states)) = (scanned.filter(|&scanned| scanned > 0), states) else {
        return Err(OpError::Attribute {
            name: "num_scan_inputs".into(),
            message: format!("is {scanned:?}, the node has {count} inputs to choose from"),
        });
    };
    let results = body[0].graph.outputs.len();
    if body[0].formals != count || results < states || node.output_count() > results {
        return Err(wrong_body(
            "body",
            format!(
                "has {} inputs and {results} outputs, expected {count} and at least {}",
                body[0].formals,
                node.output_count().max(states)
            ),
        ));
    }
    let directions = |axes: &str, reversed: &str, count: usize| -> Result<Vec<Direction>, OpError> {
        let list = |name: &str, default: i64| -> Result<Vec<i64>, OpError> {
            match node.ints(name)? {
                None => Ok(vec![default; count]),
                Some(given) if given.len() == count => Ok(given.to_vec()),
                Some(given) => Err(OpError::Attribute {
                    name: name.into(),
                    message: format!("has {} values, expected {count}", given.len()),
                }),
            }
        };
        let axes = match is_batched {
            // Of one member of the batch.
            true => vec![0; count],
            false => list(axes, 0)?,
        };
        let reversed = list(reversed, 0)?;
        let directions = axes.into_iter().zip(reversed).map(|(axis, reversed)| Direction {
            axis,
            is_reverse: reversed != 0,
        });
        Ok(directions.collect())
    };
    let (inputs, outputs) = match is_batched {
        true => {
            let forward = Direction {
                axis: 0,
                is_reverse: false,
            };
            (
                directions("", "directions", scanned)?,
                vec![forward; results - states],
            )
        }
        false => (
            directions("scan_input_axes", "scan_input_directions", scanned)?,
            directions("scan_output_axes", "scan_output_directions", results - states)?,
        ),
    };
    Ok(Box::new(Scan {
        body,
        states,
        inputs,
        outputs,
        is_batched,
    }))
}

impl Control for Scan {
    fn bodies(&self) -> &[Body] {
        &self.body
    }

    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let [body] = &self.body;
        for index in 0..self.states {
            let given = without_dims(cx.input(index + usize::from(self.is_batched)));
            cx.set_output(index, given.ty.or(output_fact(body, index).ty), None);
        }
        for (index, direction) in self.outputs.iter().enumerate() {
            let index = self.states + index;
            let element = output_fact(body, index);
            let dims = match element.dims {
                Some(dims) if !self.is_batched => {
                    let at = axis(direction.axis, dims.len() + 1)?;
                    let mut dims: SymDims = dims;
                    dims.insert(at, SymDim::Unknown);
                    Some(dims)
                }
                _ => None,
            };
            cx.set_output(index, element.ty, dims);
        }
        Ok(())
    }

    fn run(&self, cx: &mut ControlContext<'_>) -> Result<(), ControlError> {
        match self.is_batched {
            true => self.run_batch(cx),
            false => {
                let given = tensors(cx, 0..self.states + self.inputs.len())?;
                let (states, scanned) = given.split_at(self.states);
                let states = states
                    .iter()
                    .map(|state| state.to_tensor())
                    .collect::<Result<_, _>>()?;
                let outputs = self.run_sequence(cx, states, scanned, None)?;
                for (index, output) in outputs.into_iter().enumerate() {
                    cx.set_output(index, output.map(Value::Tensor));
                }
                Ok(())
            }
        }
    }
}

impl Scan {
    /// Scans one set of sequences, as far as `length` if it is given.
    fn run_sequence(
        &self,
        cx: &mut ControlContext<'_>,
        mut states: Vec<Tensor>,
        scanned: &[TensorRef<'_>],
        length: Option<usize>,
    ) -> Result<Vec<Option<Tensor>>, ControlError> {
        let [body] = &self.body;
        let mut axes: SmallVec<[usize; 4]> = SmallVec::new();
        let mut lengths: SmallVec<[usize; 4]> = SmallVec::new();
        for (direction, input) in self.inputs.iter().zip(scanned) {
            let axis = axis(direction.axis, input.rank())?;
            axes.push(axis);
            lengths.push(input.dims()[axis]);
        }
        let whole = lengths.first().copied().unwrap_or_default();
        if lengths.iter().any(|&length| length != whole) {
            return Err(OpError::Message(format!("the scanned inputs are of lengths {lengths:?}")).into());
        }
        let length = length.unwrap_or(whole).min(whole);
        let mut elements: SmallVec<[Working<Tensor>; 2]> = SmallVec::new();
        for _ in &self.outputs {
            elements.push(Working::with_room(0)?);
        }
        let used = cx.used;
        let asked = |output: usize| output < self.states || is_used(used, output);
        for iteration in 0..length {
            cx.check()?;
            let mut pieces: SmallVec<[Tensor; 4]> = SmallVec::new();
            for ((direction, input), &axis) in self.inputs.iter().zip(scanned).zip(&axes) {
                let at = match direction.is_reverse {
                    true => length - 1 - iteration,
                    false => iteration,
                };
                pieces.push(piece(&mut cx.workspace.pool, *input, axis, at)?);
            }
            let mut results = {
                let inputs: SmallVec<[ValueRef<'_>; 8]> = states
                    .iter()
                    .chain(&pieces)
                    .map(|tensor| ValueRef::Tensor(tensor.view()))
                    .collect();
                cx.run_body(0, body, &inputs, asked)?
            };
            for piece in pieces {
                cx.workspace.recycle_tensor(piece);
            }
            for (index, state) in states.iter_mut().enumerate() {
                let before = std::mem::replace(state, tensor(take(&mut results, index)?)?);
                cx.workspace.recycle_tensor(before);
            }
            for (index, elements) in elements.iter_mut().enumerate() {
                if cx.is_used(self.states + index) {
                    elements.add(tensor(take(&mut results, self.states + index)?)?)?;
                }
            }
        }
        let mut outputs: Vec<Option<Tensor>> = states.into_iter().map(Some).collect();
        for (index, (mut elements, direction)) in elements.into_iter().zip(&self.outputs).enumerate() {
            let output = self.states + index;
            if !cx.is_used(output) {
                outputs.push(None);
                continue;
            }
            if direction.is_reverse {
                elements.reverse();
            }
            outputs.push(Some(match elements.first() {
                None => empty_stack(&output_fact(body, output), body, output, direction.axis)?,
                Some(first) => {
                    let axis = axis(direction.axis, first.dims().len() + 1)?;
                    stack(cx.workspace, elements, axis)?
                }
            }));
        }
        Ok(outputs)
    }

    /// Scans each member of a batch.
    fn run_batch(&self, cx: &mut ControlContext<'_>) -> Result<(), ControlError> {
        let lengths = match cx.value(0).and_then(ValueRef::tensor) {
            Some(lengths) => Some(lengths.to_ints()?),
            None => None,
        };
        let given = tensors(cx, 1..1 + self.states + self.inputs.len())?;
        let batch = given
            .first()
            .and_then(|input| input.dims().first().copied())
            .unwrap_or(0);
        let mut members: Vec<Vec<Option<Tensor>>> = Vec::new();
        let whole = given
            .last()
            .and_then(|input| input.dims().get(1).copied())
            .unwrap_or(0);
        for member in 0..batch {
            // There may be nothing to scan of any of them.
            cx.check()?;
            let mut own = Vec::with_capacity(given.len());
            for input in &given {
                if input.dims().first() != Some(&batch) {
                    return Err(
                        OpError::Message(format!("an input is {input:?}, the batch has {batch}")).into(),
                    );
                }
                own.push(piece(&mut cx.workspace.pool, *input, 0, member)?);
            }
            let length = match &lengths {
                None => None,
                Some(lengths) => {
                    let length = lengths
                        .get(member)
                        .and_then(|&length| usize::try_from(length).ok());
                    let length = length.filter(|&length| length <= whole);
                    let wrong = || OpError::Message(format!("sequence_lens is {lengths:?}"));
                    Some(length.ok_or_else(wrong)?)
                }
            };
            let scanned = own.split_off(self.states.min(own.len()));
            let scanned: Vec<TensorRef<'_>> = scanned.iter().map(Tensor::view).collect();
            let outputs = self.run_sequence(cx, own, &scanned, length)?;
            reserve_one(&mut members)?;
            members.push(outputs);
        }
        for index in 0..self.states + self.outputs.len() {
            if !cx.is_used(index) {
                continue;
            }
            let mut own = Vec::with_capacity(members.len());
            for tensor in members
                .iter_mut()
                .filter_map(|outputs| outputs.get_mut(index)?.take())
            {
                own.push(match index < self.states {
                    true => tensor,
                    false => padded(&mut cx.workspace.pool, tensor, whole)?,
                });
            }
            let stacked = match own.is_empty() {
                true => empty_stack(&output_fact(&self.body[0], index), &self.body[0], index, 0)?,
                false => stack(cx.workspace, Working::of(own)?, 0)?,
            };
            cx.set_output(index, Some(stacked.into()));
        }
        Ok(())
    }
}

/// Room for one more, or an error.
fn reserve_one<T>(list: &mut Vec<T>) -> Result<(), OpError> {
    list.try_reserve(1).map_err(|_| OpError::OutOfMemory {
        bytes: list.len().saturating_mul(size_of::<T>()),
    })
}

/// Inputs that must be there and be tensors.
fn tensors<'a>(
    cx: &ControlContext<'a>,
    range: std::ops::Range<usize>,
) -> Result<Vec<TensorRef<'a>>, OpError> {
    range
        .map(|index| {
            let value = cx.required(index)?;
            let expected = || OpError::Message(format!("input {index} is {value:?}, expected a tensor"));
            value.tensor().ok_or_else(expected)
        })
        .collect()
}

fn tensor(value: Value) -> Result<Tensor, OpError> {
    match value {
        Value::Tensor(tensor) => Ok(tensor),
        other => Err(OpError::Message(format!(
            "the body gave {other:?}, expected a tensor"
        ))),
    }
}

/// The piece at one position of an axis, which it does not have any more.
fn piece(pool: &mut Pool, x: TensorRef<'_>, axis: usize, at: usize) -> Result<Tensor, OpError> {
    let part = cut(pool, x, axis, at..at + 1)?;
    let mut dims: Dims = x.dims().into();
    dims.remove(axis);
    part.with_dims(&dims)
}

/// The tensor with zeros after its first axis up to `length`.
fn padded(pool: &mut Pool, tensor: Tensor, length: usize) -> Result<Tensor, OpError> {
    let mut dims: Dims = tensor.dims().into();
    let found = dims.first().copied().unwrap_or(length);
    let (Some(missing), Some(first)) = (length.checked_sub(found), dims.first_mut()) else {
        return Ok(tensor);
    };
    if missing == 0 {
        return Ok(tensor);
    }
    *first = missing;
    let zeros = match tensor.element_type().size() {
        Some(_) => pool.tensor(tensor.element_type(), &dims, |bytes| bytes.fill(0))?,
        None => {
            let count = crate::native::tensor::element_count(&dims)?;
            let mut strings = Strings::with_room(count)?;
            (0..count).try_for_each(|_| strings.push(""))?;
            Tensor::of_strings(&dims, strings)?
        }
    };
    join(pool, &[tensor.view(), zeros.view()], 0)
}
