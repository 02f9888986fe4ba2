//! Values that come from attributes and shapes:
//!
//!   Constant           the value of its one attribute: `value` (a tensor), `value_int`, `value_ints`,
//!                      `value_float`, `value_floats`, `value_string`, `value_strings`
//!                      ai.onnx 1, 9, 11, 12, 13, 19, 21, 23, 24, 25
//!   ConstantOfShape    the one element of `value` (f32 zero without it) at every position of the
//!                      shape that the input holds            ai.onnx 9, 20, 21, 23, 24, 25
//!   Range              start + i * delta for i in 0 .. max(ceil((limit - start) / delta), 0)
//!                      ai.onnx 11, 27
//!
//! Every element type, but for Range: floats, int16, int32, int64.

use super::Built;
use super::dims::dims_from;
use super::dispatch::with_float;
use super::infer::input_type;
use super::moves::string_room;
use super::number::{Number, Scalar};
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::strings::Strings;
use crate::native::tensor::{Tensor, TensorRef, check_rank, element_count};

#[derive(Debug)]
struct Constant {
    value: Tensor,
}

pub(in crate::native) fn constant(node: &NodeInfo<'_>) -> Built {
    let owned = |strings: Vec<&str>| strings.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let mut values = Vec::new();
    if let Some(value) = node.tensor("value")? {
        values.push(value.clone());
    }
    if let Some(value) = node.int("value_int")? {
        values.push(Tensor::from_slice(&[], &[value])?);
    }
    if let Some(value) = node.ints("value_ints")? {
        values.push(Tensor::from_slice(&[value.len()], value)?);
    }
    if let Some(value) = node.float("value_float")? {
        values.push(Tensor::from_slice(&[], &[value])?);
    }
    if let Some(value) = node.floats("value_floats")? {
        values.push(Tensor::from_slice(&[value.len()], value)?);
    }
    if let Some(value) = node.string("value_string")? {
        values.push(Tensor::from_strings(&[], vec![value.to_owned()])?);
    }
    if let Some(value) = node.strings("value_strings")? {
        values.push(Tensor::from_strings(&[value.len()], owned(value))?);
    }
    if node.attribute("sparse_value").is_some() {
        return Err(OpError::Unsupported("attribute sparse_value of Constant".into()));
    }
    match <[Tensor; 1]>::try_from(values) {
        Ok([value]) => Ok(Box::new(Constant { value })),
        Err(values) => Err(OpError::Message(format!(
            "a Constant has one value attribute, this one has {}",
            values.len()
        ))),
    }
}

impl Operator for Constant {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.set_value(0, self.value.clone());
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let value = self.value.view();
        match value.element_type() {
            ElementType::String => {
                let strings = Strings::copied(value.strings()?.iter())?;
                cx.output_strings(0, value.dims(), strings)
            }
            ty => cx.output_bytes(0, ty, value.dims())?.copy_from(value.bytes()?),
        }
    }
}

#[derive(Debug)]
struct ConstantOfShape {
    /// One element.
    value: Tensor,
}

pub(in crate::native) fn constant_of_shape(node: &NodeInfo<'_>) -> Built {
    let value = match node.tensor("value")? {
        Some(value) if value.view().len() == 1 => value.clone(),
        None => Tensor::from_slice(&[1], &[0f32])?,
        Some(value) => {
            return Err(OpError::Attribute {
                name: "value".into(),
                message: format!("has dims {:?}, expected one element", value.dims()),
            });
        }
    };
    Ok(Box::new(ConstantOfShape { value }))
}

impl Operator for ConstantOfShape {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims: Option<SymDims> = match (cx.known_ints(0)?, cx.required(0)?.dims.as_deref()) {
            (Some(shape), _) => Some(dims_from(&shape)?.into_iter().map(SymDim::Fixed).collect()),
            (None, Some(&[SymDim::Fixed(rank)])) => {
                check_rank(rank)?;
                Some(SymDims::from_elem(SymDim::Unknown, rank))
            }
            _ => None,
        };
        cx.set_output(0, Some(self.value.element_type()), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let shape = cx.required(0)?;
        check_rank(shape.len())?;
        let dims = dims_from(&shape.to_ints()?)?;
        let value = self.value.view();
        if let ElementType::String = value.element_type() {
            let mut strings = string_room(&dims)?;
            let text = value.strings()?.first().cloned().unwrap_or_default();
            strings.extend(counted(std::iter::repeat_n(&text, element_count(&dims)?)))?;
            return cx.output_strings(0, &dims, strings);
        }
        let element = value.bytes()?;
        let output = cx.output_bytes(0, value.element_type(), &dims)?;
        if element.iter().all(|&byte| byte == 0) {
            output.zeroed();
            return Ok(());
        }
        for to in counted(output.into_mut().chunks_exact_mut(element.len())) {
            to.copy_from_slice(element);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Range {
    /// Whether the step may be left out, and is then 1.
    steps_by_one: bool,
}

pub(in crate::native) fn range(node: &NodeInfo<'_>) -> Built {
    if node.since >= 27 {
        // The precision of f16 and bf16 ranges: f32 whatever it says, which is the default.
        node.int("stash_type")?;
    }
    Ok(Box::new(Range { steps_by_one: false }))
}

pub(in crate::native) fn contrib_range(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Range { steps_by_one: true }))
}

impl Operator for Range {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.set_output(0, input_type(cx, 0), Some(SymDims::from_elem(SymDim::Unknown, 1)));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (start, limit) = (cx.required(0)?, cx.required(1)?);
        super::same_type(&start, &limit, 1)?;
        let delta = match self.steps_by_one {
            true => cx.input(2),
            false => Some(cx.required(2)?),
        };
        if let Some(delta) = &delta {
            super::same_type(&start, delta, 2)?;
        }
        let inputs = [Some(start), Some(limit), delta];
        match start.element_type() {
            ElementType::Int16 => range_of::<i16>(cx, inputs),
            ElementType::Int32 => range_of::<i32>(cx, inputs),
            ElementType::Int64 => range_of::<i64>(cx, inputs),
            ty => with_float!(ty, T => range_of::<T>(cx, inputs)),
        }
    }
}

fn range_of<T: Number>(cx: &mut RunContext<'_>, inputs: [Option<TensorRef<'_>>; 3]) -> Result<(), OpError> {
    let mut values = [T::Wide::ONE; 3];
    for (i, (value, input)) in values.iter_mut().zip(&inputs).enumerate() {
        let Some(input) = input else { continue };
        let &[only] = input.slice::<T>()? else {
            return Err(OpError::WrongDims {
                what: format!("input {i}"),
                found: input.dims().into(),
                expected: "one element".into(),
            });
        };
        *value = only.widen();
    }
    let [start, limit, delta] = values;
    let count = ((limit.to_f64() - start.to_f64()) / delta.to_f64()).ceil();
    if delta == T::Wide::ZERO || count.is_nan() {
        return Err(OpError::Message(format!(
            "no range from {start:?} to {limit:?} in steps of {delta:?}"
        )));
    }
    // A saturating conversion; what cannot be allocated is refused by the context.
    let count = count.max(0.0) as usize;
    cx.output::<T>(0, &[count])?
        .fill_with(|i| T::narrow(start.add(T::Wide::from_f64(i as f64).mul(delta))));
    Ok(())
}
