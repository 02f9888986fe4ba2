//! Operators on tensors of int8 and uint8 by way of f32:
//!
//!   y = saturate(round(f(x', ...) / y_scale) + y_zero_point), ties to even,
//!   x' = (x - x_zero_point) x_scale
//!
//!   QLinearAdd, QLinearMul       of two tensors that broadcast
//!   QLinearWhere                 x' where a condition holds, else the other; all three broadcast
//!   QLinearSigmoid               1 / (1 + e^-x')
//!   QLinearLeakyRelu             x', or alpha x' where x' < 0
//!   QLinearSoftmax               of the version `opset` of ai.onnx
//!   QLinearConcat                along `axis`
//!   QLinearAveragePool, QLinearGlobalAveragePool      also of images whose channels come last
//!   QLinearReduceMean            over `axes`
//!
//! com.microsoft 1. Scales are f32 of one element; zero points of one element, 0 when left out, and
//! the one of Y is of Y's type, which without it is X's. f is the operator of ai.onnx.

use smallvec::SmallVec;

use super::channels_last::channels_last;
use super::dims::not_one_element;
use super::quantize::quantize;
use super::quantized::{Quantized, with_quantized};
use super::{Built, activation, arithmetic, compare, inner, join, pool, reduce, softmax, unary};
use crate::native::element::ElementType;
use crate::native::infer::{Fact, InferContext};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Tensor, TensorRef};

/// An input of the operator in the middle.
#[derive(Clone, Copy, Debug)]
enum Operand {
    AsItIs(usize),
    /// Its scale and its zero point are the inputs after it.
    Quantized(usize),
}

#[derive(Debug)]
struct ThroughFloats {
    function: Box<dyn Operator>,
    operands: SmallVec<[Operand; 3]>,
    /// The input that is the scale of Y; the zero point follows.
    y_scale: usize,
}

fn build(
    function: Box<dyn Operator>,
    operands: impl IntoIterator<Item = Operand>,
    y_scale: usize,
) -> ThroughFloats {
    ThroughFloats {
        function,
        operands: operands.into_iter().collect(),
        y_scale,
    }
}

/// The version of ai.onnx whose operators are the ones in the middle.
const VERSION: i64 = 14;

fn of_one(function: Box<dyn Operator>) -> ThroughFloats {
    build(function, [Operand::Quantized(0)], 3)
}

fn of_two(function: Box<dyn Operator>) -> ThroughFloats {
    build(function, [Operand::Quantized(0), Operand::Quantized(3)], 6)
}

pub(in crate::native) fn add(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(of_two(arithmetic::add(&node.as_of(VERSION))?)))
}

pub(in crate::native) fn mul(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(of_two(arithmetic::mul(&node.as_of(VERSION))?)))
}

pub(in crate::native) fn where_(node: &NodeInfo<'_>) -> Built {
    let operands = [Operand::AsItIs(0), Operand::Quantized(1), Operand::Quantized(4)];
    Ok(Box::new(build(compare::where_(&node.as_of(9))?, operands, 7)))
}

pub(in crate::native) fn sigmoid(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(of_one(unary::sigmoid(&node.as_of(13))?)))
}

pub(in crate::native) fn leaky_relu(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(of_one(activation::leaky_relu(&node.as_of(6))?)))
}

pub(in crate::native) fn softmax(node: &NodeInfo<'_>) -> Built {
    let opset = super::required_attribute("opset", node.int("opset")?)?;
    // Before 13 the default is 1 in ai.onnx, but not here.
    let softmax = softmax::softmax_of(node.int_or("axis", -1)?, opset < 13);
    Ok(Box::new(of_one(Box::new(softmax))))
}

pub(in crate::native) fn concat(node: &NodeInfo<'_>) -> Built {
    let operands = (2..node.input_count()).step_by(3).map(Operand::Quantized);
    Ok(Box::new(build(join::concat(&node.as_of(13))?, operands, 0)))
}

pub(in crate::native) fn average_pool(node: &NodeInfo<'_>) -> Built {
    let last = node.flag_or("channels_last", false)?;
    let pool = of_one(pool::average_pool(&node.as_of(11))?);
    channels_last(last, Box::new(pool), &[0])
}

pub(in crate::native) fn global_average_pool(node: &NodeInfo<'_>) -> Built {
    let last = node.flag_or("channels_last", false)?;
    let pool = of_one(pool::global_average_pool(&node.as_of(1))?);
    channels_last(last, Box::new(pool), &[0])
}

pub(in crate::native) fn reduce_mean(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(of_one(reduce::mean(&node.as_of(13))?)))
}

/// Binds a type name to the Rust type of 8-bit integers.
macro_rules! with_byte {
    ($ty:expr, $Q:ident => $body:expr) => {
        match $ty {
            ElementType::Int8 | ElementType::Uint8 => with_quantized!($ty, $Q => $body),
            other => Err(super::unsupported(other, "int8 or uint8")),
        }
    };
}

/// The scale at an input.
pub(super) fn one_scale(cx: &RunContext<'_>, index: usize) -> Result<f32, OpError> {
    let scale = cx.required(index)?;
    match scale.slice::<f32>()? {
        &[scale] => Ok(scale),
        _ => Err(not_one_element(&scale, index)),
    }
}

/// The zero point at an input, which is of this type and may be left out.
pub(super) fn one_zero(cx: &RunContext<'_>, index: usize, ty: ElementType) -> Result<f64, OpError> {
    let Some(zero) = cx.input(index) else {
        return Ok(0.0);
    };
    with_byte!(ty, Q => match zero.slice::<Q>()? {
        &[zero] => Ok(Quantized::to_f64(zero)),
        _ => Err(not_one_element(&zero, index)),
    })
}

/// The elements of an input in f32; its scale and its zero point are the inputs after it.
pub(super) fn dequantized(cx: &mut RunContext<'_>, index: usize) -> Result<Tensor, OpError> {
    let x = cx.required(index)?;
    let scale = one_scale(cx, index + 1)?;
    let zero = one_zero(cx, index + 2, x.element_type())?;
    with_byte!(x.element_type(), Q => {
        let values = x.slice::<Q>()?.iter().map(|x| (Quantized::to_f64(*x) - zero) as f32 * scale);
        inner::floats(cx, x.dims(), values)
    })
}

impl Operator for ThroughFloats {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let mut facts: SmallVec<[Fact; 3]> = SmallVec::new();
        let mut ty = cx.input(self.y_scale + 1).and_then(|zero| zero.ty);
        for &operand in &self.operands {
            facts.push(match operand {
                Operand::AsItIs(index) => cx.required(index)?.clone(),
                Operand::Quantized(index) => {
                    let fact = cx.required(index)?;
                    ty = ty.or(fact.ty);
                    Fact {
                        ty: Some(ElementType::Float32),
                        value: None,
                        ..fact.clone()
                    }
                }
            });
        }
        let facts: SmallVec<[Option<&Fact>; 3]> = facts.iter().map(Some).collect();
        let output = inner::infer(&*self.function, &facts, 1)?.into_iter().next();
        cx.set_output(0, ty, output.and_then(|output| output.dims));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let mut ty = cx.input(self.y_scale + 1).map(|zero| zero.element_type());
        let mut floats: SmallVec<[Option<Tensor>; 3]> = SmallVec::new();
        for &operand in &self.operands {
            floats.push(match operand {
                Operand::AsItIs(_) => None,
                Operand::Quantized(index) => {
                    ty = ty.or(cx.input(index).map(|x| x.element_type()));
                    Some(dequantized(cx, index)?)
                }
            });
        }
        let inputs: SmallVec<[Option<TensorRef<'_>>; 3]> = self
            .operands
            .iter()
            .zip(&floats)
            .map(|(operand, floats)| match (operand, floats) {
                (_, Some(floats)) => Some(floats.view()),
                (Operand::AsItIs(index) | Operand::Quantized(index), None) => cx.input(*index),
            })
            .collect();
        let y = inner::run(cx, &*self.function, &inputs)?;
        drop(inputs);
        let ty = ty.unwrap_or(ElementType::Uint8);
        let (scale, zero) = (one_scale(cx, self.y_scale)?, one_zero(cx, self.y_scale + 1, ty)?);
        with_byte!(ty, Q => {
            let values = y.view().slice::<f32>()?;
            let to = cx.output::<Q>(0, y.dims())?;
            to.fill_with(|i| quantize((values[i] / scale).into(), zero, true));
            Ok(())
        })?;
        inner::recycle(cx, floats.into_iter().flatten().chain([y]));
        Ok(())
    }
}
