//! Elementwise arithmetic of two operands with multidirectional broadcasting:
//!
//!   C = A + B, A - B, A * B, A / B, mod(A, B), A ^ B
//!
//! C has the shape that A and B broadcast to. Add, Sub, Mul, Div: ai.onnx 6, 7, 13, 14; Mod: 10,
//! 13; Pow: 1, 7, 12, 13, 15; those before 7 as in `legacy_broadcast`. Integers wrap around and their division truncates towards zero;
//! dividing an integer by zero, which the specification leaves open, is an error. f16 and
//! bf16 are computed in f32 and rounded once.

use super::dispatch::{with_float, with_integer, with_number};
use super::elementwise::{Operand, map, operand, pairs, zip, zip_wide};
use super::infer::{broadcast_inputs, input_type, like_first_input};
use super::legacy_broadcast::LegacyBroadcast;
use super::number::{Number, Scalar};
use super::{Built, broadcast, pair, same_type};
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::{Fact, InferContext};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Add,
    Sub,
    Mul,
    Div,
    /// The remainder that has the sign of the divisor.
    FloorMod,
    /// The remainder that has the sign of the dividend, as C's `fmod`.
    TruncatedMod,
}

#[derive(Debug)]
struct Arithmetic {
    function: Function,
    legacy: Option<LegacyBroadcast>,
}

fn build(node: &NodeInfo<'_>, function: Function) -> Built {
    Ok(Box::new(Arithmetic {
        function,
        legacy: LegacyBroadcast::new(node)?,
    }))
}

pub(in crate::native) fn add(node: &NodeInfo<'_>) -> Built {
    build(node, Function::Add)
}

pub(in crate::native) fn sub(node: &NodeInfo<'_>) -> Built {
    build(node, Function::Sub)
}

pub(in crate::native) fn mul(node: &NodeInfo<'_>) -> Built {
    build(node, Function::Mul)
}

pub(in crate::native) fn div(node: &NodeInfo<'_>) -> Built {
    build(node, Function::Div)
}

pub(in crate::native) fn modulo(node: &NodeInfo<'_>) -> Built {
    let function = match node.int_or("fmod", 0)? {
        0 => Function::FloorMod,
        _ => Function::TruncatedMod,
    };
    build(node, function)
}

impl Operator for Arithmetic {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        match self.legacy {
            None => broadcast_inputs(cx, 0..2, input_type(cx, 0)),
            Some(_) => like_first_input(cx),
        }
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let Some(legacy) = &self.legacy else {
            let (a, b, dims) = pair(cx)?;
            return with_number!(a.element_type(), T => self.run_as::<T>(cx, &a, &b, &dims));
        };
        let (a, b) = (cx.required(0)?, cx.required(1)?);
        same_type(&a, &b, 1)?;
        let dims = legacy.dims(a.dims(), b.dims())?;
        let b = b.reshaped(&dims)?;
        with_number!(a.element_type(), T => self.run_as::<T>(cx, &a, &b, a.dims()))
    }

    fn is_row_wise(&self, others: &[Option<&Fact>]) -> bool {
        let mut others = others.iter().flatten();
        self.legacy.is_none() && others.all(|fact| fact.dims.as_ref().is_some_and(|dims| dims.len() <= 1))
    }
}

impl Arithmetic {
    fn run_as<T: Number>(
        &self,
        cx: &mut RunContext<'_>,
        a: &TensorRef<'_>,
        b: &TensorRef<'_>,
        dims: &[usize],
    ) -> Result<(), OpError> {
        let (x, y) = (operand::<T>(a)?, operand::<T>(b)?);
        let zero = T::Wide::ZERO;
        let divides = !matches!(self.function, Function::Add | Function::Sub | Function::Mul);
        if divides
            && T::Wide::INTEGER
            && !dims.contains(&0)
            && let Some(at) = counted(y.data).position(|y| y.widen() == zero)
        {
            return Err(OpError::Message(format!(
                "integer division by zero: element {at} of input 1 is 0"
            )));
        }
        let to = cx.output::<T>(0, dims)?;
        zip_wide(
            cx.workers(),
            1,
            x,
            y,
            dims,
            to,
            &self.function.loop_of::<T::Wide>(),
        );
        Ok(())
    }
}

/// The loop of [`zip_wide`].
type Loop<W> = fn(&[W], &[W], &mut [W]);

impl Function {
    fn loop_of<W: Scalar>(self) -> Loop<W> {
        match self {
            Function::Add => |a, b, y| pairs(a, b, y, W::add),
            Function::Sub => |a, b, y| pairs(a, b, y, W::sub),
            Function::Mul => |a, b, y| pairs(a, b, y, W::mul),
            Function::Div => |a, b, y| pairs(a, b, y, W::div),
            Function::TruncatedMod => |a, b, y| pairs(a, b, y, W::rem),
            Function::FloorMod => |a, b, y| pairs(a, b, y, floor_mod),
        }
    }
}

fn floor_mod<W: Scalar>(a: W, b: W) -> W {
    let rest = a.rem(b);
    let signs_differ = (rest < W::ZERO) != (b < W::ZERO);
    match rest != W::ZERO && signs_differ {
        true => rest.add(b),
        false => rest,
    }
}

/// The base's type is the result's; the exponent may have any other.
#[derive(Debug)]
struct Pow {
    legacy: Option<LegacyBroadcast>,
}

pub(in crate::native) fn pow(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Pow {
        legacy: LegacyBroadcast::new(node)?,
    }))
}

impl Operator for Pow {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        match self.legacy {
            None => broadcast_inputs(cx, 0..2, input_type(cx, 0)),
            Some(_) => like_first_input(cx),
        }
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b) = (cx.required(0)?, cx.required(1)?);
        // Exponents of any type become f64 first: one loop per type of base, not per pair.
        let exponents = cx.scratch::<f64>(b.len())?;
        with_number!(b.element_type(), E => {
            map(b.slice::<E>()?, exponents, |e| e.widen().to_f64());
            Ok(())
        })?;
        let legacy = self.legacy.as_ref().map(|legacy| legacy.dims(a.dims(), b.dims()));
        let legacy = legacy.transpose()?;
        let exponents = Operand {
            data: &*exponents,
            dims: legacy.as_deref().unwrap_or(b.dims()),
        };
        match a.element_type() {
            ElementType::Int32 => powers::<i32>(cx, &a, exponents, integer_power),
            ElementType::Int64 => powers::<i64>(cx, &a, exponents, integer_power),
            ty => with_float!(ty, T => powers::<T>(cx, &a, exponents, |x, e| x.powf(Scalar::from_f64(e)))),
        }
    }
}

fn powers<T: Number>(
    cx: &mut RunContext<'_>,
    a: &TensorRef<'_>,
    exponents: Operand<'_, f64>,
    power: impl Fn(T::Wide, f64) -> T::Wide,
) -> Result<(), OpError> {
    let dims = broadcast(a.dims(), exponents.dims)?;
    let to = cx.output::<T>(0, &dims)?.into_mut();
    zip(operand::<T>(a)?, exponents, &dims, to, |a, e| {
        T::narrow(power(a.widen(), e))
    });
    Ok(())
}

/// Exact (and wrapping) for a natural exponent, else through f64.
fn integer_power<T: Scalar>(base: T, exponent: f64) -> T {
    if exponent < 0.0 || exponent.fract() != 0.0 {
        return T::from_f64(base.to_f64().powf(exponent));
    }
    let (mut result, mut square, mut bits) = (T::ONE, base, exponent as u64);
    while bits > 0 {
        if bits & 1 == 1 {
            result = result.mul(square);
        }
        square = square.mul(square);
        bits >>= 1;
    }
    result
}
