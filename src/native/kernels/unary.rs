//! Elementwise functions of one operand, y = f(x); Y has the shape of X.
//!
//!   Neg, Abs                    any number; integers wrap (-MIN is MIN)   ai.onnx 6, 13
//!   Sign                        any number                                ai.onnx 9, 13
//!   Reciprocal, Sqrt, Exp, Log, Tanh, Floor, Ceil                         ai.onnx 6, 13
//!   Sin, Cos, Tan, Asin, Acos, Atan                                       ai.onnx 7, 22
//!   Sinh, Cosh, Asinh, Acosh, Atanh                                       ai.onnx 9, 22
//!   Erf                         any number                                ai.onnx 9, 13
//!   Relu                        max(x, 0), any number                     ai.onnx 6, 13, 14
//!   Sigmoid                     1 / (1 + e^-x)                            ai.onnx 6, 13
//!   Softplus                    ln(1 + e^x)                               ai.onnx 1, 22
//!   Round                       ties to even                              ai.onnx 11, 22
//!   Gelu                        x/2 (1 + erf(x / sqrt 2)), or with tanh:
//!                               x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))  ai.onnx 20
//!   com.microsoft Gelu          the form with erf                         com.microsoft 1
//!   com.microsoft QuickGelu     x sigmoid(alpha x)                        com.microsoft 1
//!   Not                         of booleans                               ai.onnx 1
//!
//! f16 and bf16 are computed in f32 and rounded once.

use std::cmp::Ordering;

use super::Built;
use super::dispatch::{with_float, with_integer, with_number};
use super::elementwise::{in_place, map, map_wide};
use super::exponential::{Curve, each};
use super::infer::like_first_input;
use super::number::{Float, Number, Real, Scalar};
use crate::native::element::{Bool, ElementType};
use crate::native::infer::{Fact, InferContext};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

/// Functions that exist for floats only.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FloatFunction {
    OfExponential(Curve),
    Reciprocal,
    Sqrt,
    Log,
    Floor,
    Ceil,
    Round,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
    Softplus,
}

#[derive(Debug)]
struct OfFloat(FloatFunction);

/// Functions that exist for every number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberFunction {
    Neg,
    Abs,
    Sign,
    Relu,
    Erf,
}

#[derive(Debug)]
struct OfNumber(NumberFunction);

macro_rules! builders {
    ($kind:ident: $($name:ident = $function:expr;)+) => { $(
        pub(in crate::native) fn $name(_: &NodeInfo<'_>) -> Built {
            Ok(Box::new($kind($function)))
        }
    )+ };
}

builders! { OfFloat:
    reciprocal = FloatFunction::Reciprocal;
    sqrt = FloatFunction::Sqrt;
    exp = FloatFunction::OfExponential(Curve::Exp);
    log = FloatFunction::Log;
    tanh = FloatFunction::OfExponential(Curve::Tanh);
    floor = FloatFunction::Floor;
    ceil = FloatFunction::Ceil;
    round = FloatFunction::Round;
    sin = FloatFunction::Sin;
    cos = FloatFunction::Cos;
    tan = FloatFunction::Tan;
    asin = FloatFunction::Asin;
    acos = FloatFunction::Acos;
    atan = FloatFunction::Atan;
    sinh = FloatFunction::Sinh;
    cosh = FloatFunction::Cosh;
    asinh = FloatFunction::Asinh;
    acosh = FloatFunction::Acosh;
    atanh = FloatFunction::Atanh;
    sigmoid = FloatFunction::OfExponential(Curve::Sigmoid);
    softplus = FloatFunction::Softplus;
    contrib_gelu = FloatFunction::OfExponential(Curve::Gelu);
}

builders! { OfNumber:
    neg = NumberFunction::Neg;
    abs = NumberFunction::Abs;
    sign = NumberFunction::Sign;
    relu = NumberFunction::Relu;
    erf = NumberFunction::Erf;
}

pub(in crate::native) fn gelu(node: &NodeInfo<'_>) -> Built {
    let curve = match node.string_or("approximate", "none")? {
        "none" => Curve::Gelu,
        "tanh" => Curve::GeluTanh,
        other => {
            return Err(OpError::Attribute {
                name: "approximate".into(),
                message: format!("is \"{other}\", expected \"none\" or \"tanh\""),
            });
        }
    };
    Ok(Box::new(OfFloat(FloatFunction::OfExponential(curve))))
}

pub(in crate::native) fn quick_gelu(node: &NodeInfo<'_>) -> Built {
    let alpha = node.float_or("alpha", 1.702)?;
    Ok(Box::new(OfFloat(FloatFunction::OfExponential(Curve::Swish {
        alpha,
    }))))
}

/// x/2 (1 + erf(x / sqrt 2))
pub(super) fn gelu_of<W: Real>(x: W) -> W {
    let root_half = W::from_f64(std::f64::consts::FRAC_1_SQRT_2);
    W::from_f64(0.5).mul(x).mul(W::ONE.add(x.mul(root_half).erf()))
}

/// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
pub(super) fn gelu_tanh_of<W: Real>(x: W) -> W {
    let root = W::from_f64((2.0 / std::f64::consts::PI).sqrt());
    let inner = x.add(W::from_f64(0.044715).mul(x).mul(x).mul(x));
    W::from_f64(0.5).mul(x).mul(W::ONE.add(root.mul(inner).tanh()))
}

pub(super) fn sigmoid_of<W: Real>(x: W) -> W {
    W::ONE.div(W::ONE.add(x.neg().exp()))
}

/// ln(1 + e^x), written so that e^x cannot overflow and, where it is small, is not lost beside 1.
pub(super) fn softplus_of<W: Real>(x: W) -> W {
    x.max(W::ZERO).add(x.abs().neg().exp().ln_1p())
}

impl Operator for OfFloat {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }

    fn is_row_wise(&self, _others: &[Option<&Fact>]) -> bool {
        true
    }
}

impl OfFloat {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let y = cx.output::<T>(0, x.dims())?;
        let f: Loop<T::Wide> = match self.0 {
            FloatFunction::OfExponential(curve) => {
                map_wide(cx.workers(), 8, x.slice::<T>()?, y, &|block| each(curve, block));
                return Ok(());
            }
            FloatFunction::Reciprocal => |block| in_place(block, |x| T::Wide::ONE.div(x)),
            FloatFunction::Sqrt => |block| in_place(block, Real::sqrt),
            FloatFunction::Log => |block| in_place(block, Real::ln),
            FloatFunction::Floor => |block| in_place(block, Real::floor),
            FloatFunction::Ceil => |block| in_place(block, Real::ceil),
            FloatFunction::Round => |block| in_place(block, Real::round_ties_even),
            FloatFunction::Sin => |block| in_place(block, Real::sin),
            FloatFunction::Cos => |block| in_place(block, Real::cos),
            FloatFunction::Tan => |block| in_place(block, Real::tan),
            FloatFunction::Asin => |block| in_place(block, Real::asin),
            FloatFunction::Acos => |block| in_place(block, Real::acos),
            FloatFunction::Atan => |block| in_place(block, Real::atan),
            FloatFunction::Sinh => |block| in_place(block, Real::sinh),
            FloatFunction::Cosh => |block| in_place(block, Real::cosh),
            FloatFunction::Asinh => |block| in_place(block, Real::asinh),
            FloatFunction::Acosh => |block| in_place(block, Real::acosh),
            FloatFunction::Atanh => |block| in_place(block, Real::atanh),
            FloatFunction::Softplus => |block| in_place(block, softplus_of),
        };
        map_wide(cx.workers(), 8, x.slice::<T>()?, y, &f);
        Ok(())
    }
}

/// The loop of [`map_wide`].
type Loop<W> = fn(&mut [W]);

impl Operator for OfNumber {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_number!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }

    fn is_row_wise(&self, _others: &[Option<&Fact>]) -> bool {
        true
    }
}

impl OfNumber {
    fn run_as<T: Number>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let y = cx.output::<T>(0, x.dims())?;
        let (work, f): (usize, Loop<T::Wide>) = match self.0 {
            NumberFunction::Neg => (1, |block| in_place(block, Scalar::neg)),
            NumberFunction::Abs => (1, |block| in_place(block, Scalar::abs)),
            NumberFunction::Relu => (1, |block| in_place(block, |x| Scalar::max(x, T::Wide::ZERO))),
            NumberFunction::Sign => (1, |block| in_place(block, sign_of)),
            NumberFunction::Erf => (8, |block| match T::Wide::as_f32_mut(block) {
                Some(block) => each(Curve::Erf, block),
                None => in_place(block, Scalar::erf),
            }),
        };
        map_wide(cx.workers(), work, x.slice::<T>()?, y, &f);
        Ok(())
    }
}

fn sign_of<W: Scalar>(x: W) -> W {
    match x.partial_cmp(&W::ZERO) {
        Some(Ordering::Greater) => W::ONE,
        Some(Ordering::Less) => W::ONE.neg(),
        _ => x,
    }
}

#[derive(Debug)]
struct Not;

pub(in crate::native) fn not(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Not))
}

impl Operator for Not {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let output = cx.output::<Bool>(0, x.dims())?;
        map(x.slice::<Bool>()?, output.into_mut(), |x| {
            Bool(u8::from(x.0 == 0))
        });
        Ok(())
    }
}
