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
use super::elementwise::{map, map_on};
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
    Reciprocal,
    Sqrt,
    Exp,
    Log,
    Tanh,
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
    Sigmoid,
    Softplus,
    Gelu,
    GeluTanh,
    QuickGelu { alpha: f32 },
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
    exp = FloatFunction::Exp;
    log = FloatFunction::Log;
    tanh = FloatFunction::Tanh;
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
    sigmoid = FloatFunction::Sigmoid;
    softplus = FloatFunction::Softplus;
    contrib_gelu = FloatFunction::Gelu;
}

builders! { OfNumber:
    neg = NumberFunction::Neg;
    abs = NumberFunction::Abs;
    sign = NumberFunction::Sign;
    relu = NumberFunction::Relu;
    erf = NumberFunction::Erf;
}

pub(in crate::native) fn gelu(node: &NodeInfo<'_>) -> Built {
    match node.string_or("approximate", "none")? {
        "none" => Ok(Box::new(OfFloat(FloatFunction::Gelu))),
        "tanh" => Ok(Box::new(OfFloat(FloatFunction::GeluTanh))),
        other => Err(OpError::Attribute {
            name: "approximate".into(),
            message: format!("is \"{other}\", expected \"none\" or \"tanh\""),
        }),
    }
}

pub(in crate::native) fn quick_gelu(node: &NodeInfo<'_>) -> Built {
    let alpha = node.float_or("alpha", 1.702)?;
    Ok(Box::new(OfFloat(FloatFunction::QuickGelu { alpha })))
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

/// ln(1 + e^x), written so that e^x cannot overflow.
pub(super) fn softplus_of<W: Real>(x: W) -> W {
    x.max(W::ZERO).add(W::ONE.add(x.abs().neg().exp()).ln())
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
        use FloatFunction as F;
        let y = cx.output::<T>(0, x.dims())?.into_mut();
        let x = x.slice::<T>()?;
        let workers = cx.workers();
        match self.0 {
            F::Reciprocal => map_on(workers, 8, x, y, |x| T::narrow(T::Wide::ONE.div(x.widen()))),
            F::Sqrt => map_on(workers, 8, x, y, |x| T::narrow(x.widen().sqrt())),
            F::Exp => map_on(workers, 8, x, y, |x| T::narrow(x.widen().exp())),
            F::Log => map_on(workers, 8, x, y, |x| T::narrow(x.widen().ln())),
            F::Tanh => map_on(workers, 8, x, y, |x| T::narrow(x.widen().tanh())),
            F::Floor => map_on(workers, 8, x, y, |x| T::narrow(x.widen().floor())),
            F::Ceil => map_on(workers, 8, x, y, |x| T::narrow(x.widen().ceil())),
            F::Round => map_on(workers, 8, x, y, |x| T::narrow(x.widen().round_ties_even())),
            F::Sin => map_on(workers, 8, x, y, |x| T::narrow(x.widen().sin())),
            F::Cos => map_on(workers, 8, x, y, |x| T::narrow(x.widen().cos())),
            F::Tan => map_on(workers, 8, x, y, |x| T::narrow(x.widen().tan())),
            F::Asin => map_on(workers, 8, x, y, |x| T::narrow(x.widen().asin())),
            F::Acos => map_on(workers, 8, x, y, |x| T::narrow(x.widen().acos())),
            F::Atan => map_on(workers, 8, x, y, |x| T::narrow(x.widen().atan())),
            F::Sinh => map_on(workers, 8, x, y, |x| T::narrow(x.widen().sinh())),
            F::Cosh => map_on(workers, 8, x, y, |x| T::narrow(x.widen().cosh())),
            F::Asinh => map_on(workers, 8, x, y, |x| T::narrow(x.widen().asinh())),
            F::Acosh => map_on(workers, 8, x, y, |x| T::narrow(x.widen().acosh())),
            F::Atanh => map_on(workers, 8, x, y, |x| T::narrow(x.widen().atanh())),
            F::Sigmoid => map_on(workers, 8, x, y, |x| T::narrow(sigmoid_of(x.widen()))),
            F::Softplus => map_on(workers, 8, x, y, |x| T::narrow(softplus_of(x.widen()))),
            F::Gelu => map_on(workers, 8, x, y, |x| T::narrow(gelu_of(x.widen()))),
            F::GeluTanh => map_on(workers, 8, x, y, |x| T::narrow(gelu_tanh_of(x.widen()))),
            F::QuickGelu { alpha } => {
                let alpha = T::Wide::from_f64(alpha.into());
                map_on(workers, 8, x, y, |x| {
                    let x = x.widen();
                    T::narrow(x.mul(sigmoid_of(x.mul(alpha))))
                });
            }
        }
        Ok(())
    }
}

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
        let y = cx.output::<T>(0, x.dims())?.into_mut();
        let x = x.slice::<T>()?;
        let workers = cx.workers();
        let (zero, one) = (T::Wide::ZERO, T::Wide::ONE);
        match self.0 {
            NumberFunction::Neg => map_on(workers, 1, x, y, |x| T::narrow(x.widen().neg())),
            NumberFunction::Abs => map_on(workers, 1, x, y, |x| T::narrow(x.widen().abs())),
            NumberFunction::Relu => map_on(workers, 1, x, y, |x| T::narrow(x.widen().max(zero))),
            NumberFunction::Erf => map_on(workers, 1, x, y, |x| T::narrow(x.widen().erf())),
            NumberFunction::Sign => map_on(workers, 1, x, y, |x| {
                let x = x.widen();
                T::narrow(match x.partial_cmp(&zero) {
                    Some(Ordering::Greater) => one,
                    Some(Ordering::Less) => one.neg(),
                    _ => x,
                })
            }),
        }
        Ok(())
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
