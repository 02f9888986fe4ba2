//! Sequences of tensors of one element type, each tensor of its own dims:
//!
//!   SequenceConstruct(x...)                 all inputs                        ai.onnx 11
//!   SequenceEmpty()                         none, of type `dtype`             ai.onnx 11
//!   SequenceInsert(s, x, position)          at -n..=n, at the end by default  ai.onnx 11
//!   SequenceErase(s, position)              the last by default               ai.onnx 11
//!   SequenceAt(s, position)                                                   ai.onnx 11
//!   SequenceLength(s)                       an int64 scalar                   ai.onnx 11
//!   SplitToSequence(x, split)               parts along `axis`: of the size that a scalar
//!                                           says (the last may be smaller), or of the sizes
//!                                           in a list; without `split` of size 1, without
//!                                           the axis if not `keepdims`        ai.onnx 11, 24
//!   ConcatFromSequence(s)                   joined along `axis`, or along a new one
//!                                                                             ai.onnx 11
//!
//! Every element type. Negative positions count from the end. A sequence shares the tensors
//! that it is made of; none is copied.

use super::Built;
use super::dims::{axis, dims_from};
use super::infer::input_type;
use super::join::{cut, join};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, Kind, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, Tensor, TensorRef};
use crate::native::value::{Sequence, Value, ValueRef};
use crate::native::working::Working;

/// An input that must be a sequence.
fn sequence<'a>(cx: &RunContext<'a>, index: usize) -> Result<&'a Sequence, OpError> {
    match cx.value(index).ok_or(OpError::MissingInput { index })? {
        ValueRef::Sequence(sequence) => Ok(sequence),
        other => Err(OpError::Message(format!(
            "input {index} is {other:?}, expected a sequence"
        ))),
    }
}

/// The element type of an input that must be a sequence, as far as that is known.
fn element_of(cx: &InferContext<'_>, index: usize) -> Result<Option<ElementType>, OpError> {
    let fact = cx.required(index)?;
    match fact.kind {
        None | Some(Kind::Sequence) => Ok(fact.ty),
        Some(kind) => Err(OpError::Message(format!(
            "input {index} is {}, expected a sequence",
            kind.with_element(fact.ty.map_or("?", ElementType::name))
        ))),
    }
}

/// A position, checked against the number of positions there are.
fn position(cx: &RunContext<'_>, index: usize, len: usize, count: usize) -> Result<Option<usize>, OpError> {
    let Some(given) = cx.input(index) else {
        return Ok(None);
    };
    let given = match given.to_ints()?.as_slice() {
        &[position] => position,
        other => {
            return Err(OpError::Message(format!(
                "the position is {other:?}, expected one"
            )));
        }
    };
    let from_start = match given {
        0.. => usize::try_from(given).ok(),
        _ => usize::try_from(given.unsigned_abs())
            .ok()
            .and_then(|back| len.checked_sub(back)),
    };
    match from_start.filter(|&at| at < count) {
        Some(at) => Ok(Some(at)),
        None => Err(OpError::Message(format!(
            "position {given} is outside a sequence of {len}"
        ))),
    }
}

#[derive(Debug)]
struct Construct;

pub(in crate::native) fn construct(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Construct))
}

impl Operator for Construct {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.set_kind(0, Some(Kind::Sequence), cx.required(0)?.ty);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let ty = cx.required(0)?.element_type();
        let mut tensors = Working::with_room(cx.input_count())?;
        for i in 0..cx.input_count() {
            tensors.push(cx.required(i)?.to_tensor()?);
        }
        cx.output_value(0, Sequence::new(ty, tensors)?.into())
    }
}

#[derive(Debug)]
struct Empty(ElementType);

pub(in crate::native) fn empty(node: &NodeInfo<'_>) -> Built {
    let ty = match node.int("dtype")? {
        None => Some(ElementType::Float32),
        Some(code) => i32::try_from(code).ok().and_then(ElementType::from_code),
    };
    let ty = ty.ok_or_else(|| OpError::Attribute {
        name: "dtype".into(),
        message: "is none of ONNX's types".into(),
    })?;
    Ok(Box::new(Empty(ty)))
}

impl Operator for Empty {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.set_kind(0, Some(Kind::Sequence), Some(self.0));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        cx.output_value(0, Sequence::new(self.0, Working::with_room(0)?)?.into())
    }
}

#[derive(Debug)]
struct Insert;

pub(in crate::native) fn insert(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Insert))
}

impl Operator for Insert {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = element_of(cx, 0)?.or(cx.required(1)?.ty);
        cx.set_kind(0, Some(Kind::Sequence), ty);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let before = sequence(cx, 0)?;
        let len = before.tensors().len();
        let at = position(cx, 2, len, len + 1)?.unwrap_or(len);
        let mut tensors = Working::with_room(len + 1)?;
        tensors.extend_from_slice(before.tensors());
        tensors.insert(at, cx.required(1)?.to_tensor()?);
        cx.output_value(0, Sequence::new(before.element_type(), tensors)?.into())
    }

    fn takes_values(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Erase;

pub(in crate::native) fn erase(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Erase))
}

impl Operator for Erase {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = element_of(cx, 0)?;
        cx.set_kind(0, Some(Kind::Sequence), ty);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let before = sequence(cx, 0)?;
        let len = before.tensors().len();
        let at = position(cx, 1, len, len)?.or(len.checked_sub(1));
        let at = at.ok_or_else(|| OpError::Message("the sequence is empty".into()))?;
        let mut tensors = Working::with_room(len)?;
        tensors.extend_from_slice(before.tensors());
        tensors.remove(at);
        cx.output_value(0, Sequence::new(before.element_type(), tensors)?.into())
    }

    fn takes_values(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct At;

pub(in crate::native) fn at(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(At))
}

impl Operator for At {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = element_of(cx, 0)?;
        cx.set_output(0, ty, None);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let tensors = sequence(cx, 0)?.tensors();
        let at = position(cx, 1, tensors.len(), tensors.len())?.ok_or(OpError::MissingInput { index: 1 })?;
        let tensor = tensors.get(at).ok_or(OpError::MissingInput { index: 0 })?;
        cx.output_value(0, tensor.clone().into())
    }

    fn takes_values(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Length;

pub(in crate::native) fn length(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Length))
}

impl Operator for Length {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        element_of(cx, 0)?;
        cx.set_output(0, Some(ElementType::Int64), Some(SymDims::new()));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let len = sequence(cx, 0)?.tensors().len();
        cx.output::<i64>(0, &[])?.copy_from(&[len as i64])
    }

    fn takes_values(&self) -> bool {
        true
    }
}

/// Elements that a part costs as many as, though it has none.
const COST: usize = 16;

#[derive(Debug)]
struct Split {
    axis: i64,
    keep_dims: bool,
}

pub(in crate::native) fn split(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Split {
        axis: node.int_or("axis", 0)?,
        keep_dims: node.flag_or("keepdims", true)?,
    }))
}

impl Split {
    /// The sizes of the parts of a dim of `size`.
    fn sizes(size: usize, given: Option<TensorRef<'_>>) -> Result<Working<usize>, OpError> {
        let equal = |part: usize| {
            let mut sizes = Working::with_room(size.div_ceil(part))?;
            sizes.extend((0..size.div_ceil(part)).map(|i| part.min(size - i * part)));
            Ok(sizes)
        };
        let Some(given) = given else { return equal(1) };
        let sizes = dims_from(&given.to_ints()?)?;
        match (given.rank(), sizes.as_slice()) {
            (0, &[part]) if part > 0 => equal(part),
            (0, _) => Err(OpError::Message(format!(
                "cannot split into parts of size {sizes:?}"
            ))),
            (_, sizes) => {
                let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
                match total == Some(size) {
                    true => {
                        let mut list = Working::with_room(sizes.len())?;
                        list.extend_from_slice(sizes);
                        Ok(list)
                    }
                    false => Err(OpError::Message(format!(
                        "sizes {sizes:?} do not split a dim of {size}"
                    ))),
                }
            }
        }
    }
}

impl Operator for Split {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        if let Some(rank) = cx.required(0)?.rank() {
            axis(self.axis, rank)?;
        }
        cx.set_kind(0, Some(Kind::Sequence), input_type(cx, 0));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let axis = axis(self.axis, x.rank())?;
        let given = cx.input(1);
        let sizes = Self::sizes(x.dims()[axis], given)?;
        let mut parts = Working::with_room(sizes.len())?;
        let mut start = 0;
        for &size in sizes.iter() {
            ending::count(COST);
            let mut part = cut(cx.pool, x, axis, start..start + size)?;
            start += size;
            if given.is_none() && !self.keep_dims {
                let mut dims: Dims = part.dims().into();
                dims.remove(axis);
                part = part.with_dims(&dims)?;
            }
            parts.push(part);
        }
        cx.output_value(0, Sequence::new(x.element_type(), parts)?.into())
    }
}

#[derive(Debug)]
struct Concat {
    axis: i64,
    new_axis: bool,
}

pub(in crate::native) fn concat(node: &NodeInfo<'_>) -> Built {
    let axis = node.int("axis")?.ok_or_else(|| OpError::Attribute {
        name: "axis".into(),
        message: "is missing".into(),
    })?;
    Ok(Box::new(Concat {
        axis,
        new_axis: node.flag_or("new_axis", false)?,
    }))
}

impl Operator for Concat {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = element_of(cx, 0)?;
        cx.set_output(0, ty, None);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let tensors = sequence(cx, 0)?.tensors();
        let Some(first) = tensors.first() else {
            return Err(OpError::Message("the sequence is empty".into()));
        };
        let rank = first.dims().len() + usize::from(self.new_axis);
        let axis = axis(self.axis, rank)?;
        let mut widened = Working::with_room(if self.new_axis { tensors.len() } else { 0 })?;
        for tensor in tensors.iter().filter(|_| self.new_axis) {
            let mut dims: Dims = tensor.dims().into();
            dims.insert(axis.min(dims.len()), 1);
            widened.push(tensor.with_dims(&dims)?);
        }
        let tensors = if self.new_axis { &widened[..] } else { tensors };
        let mut parts: Working<TensorRef<'_>> = Working::with_room(tensors.len())?;
        parts.extend(tensors.iter().map(Tensor::view));
        let joined = join(cx.pool, &parts, axis)?;
        cx.output_value(0, Value::Tensor(joined))
    }

    fn takes_values(&self) -> bool {
        true
    }
}
