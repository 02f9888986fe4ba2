//! Elementwise functions of any number of operands, broadcast together:
//!
//!   Max, Min     any number; NaN if any operand is      ai.onnx 6, 8, 12, 13
//!   Sum, Mean    floats                                 ai.onnx 6, 8, 13
//!
//! The operands are folded from the first to the last. f16 and bf16 sums are rounded after each
//! operand.

use super::Built;
use super::dispatch::{with_float, with_integer, with_number};
use super::elementwise::{Operand, operand, zip};
use super::infer::{broadcast_inputs, input_type};
use super::number::{Float, Number, Scalar};
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::Dims;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Max,
    Min,
    Sum,
    Mean,
}

#[derive(Debug)]
struct Variadic(Function);

macro_rules! builders {
    ($($name:ident = $function:ident;)+) => { $(
        pub(in crate::native) fn $name(_: &NodeInfo<'_>) -> Built {
            Ok(Box::new(Variadic(Function::$function)))
        }
    )+ };
}

builders! {
    max = Max;
    min = Min;
    sum = Sum;
    mean = Mean;
}

impl Operator for Variadic {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        broadcast_inputs(cx, 0..cx.input_count(), input_type(cx, 0))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let first = cx.required(0)?;
        let mut dims: Dims = first.dims().into();
        for i in 1..cx.input_count() {
            let x = cx.required(i)?;
            super::same_type(&first, &x, i)?;
            dims = super::broadcast(&dims, x.dims())?;
        }
        match self.0 {
            Function::Max => {
                with_number!(first.element_type(), T => fold::<T>(cx, &dims, Scalar::max, |x| x))
            }
            Function::Min => {
                with_number!(first.element_type(), T => fold::<T>(cx, &dims, Scalar::min, |x| x))
            }
            Function::Sum => with_float!(first.element_type(), T => fold::<T>(cx, &dims, Scalar::add, |x| x)),
            Function::Mean => with_float!(first.element_type(), T => mean_of::<T>(cx, &dims)),
        }
    }
}

fn mean_of<T: Float>(cx: &mut RunContext<'_>, dims: &[usize]) -> Result<(), OpError> {
    let count = T::Wide::from_f64(cx.input_count() as f64);
    fold::<T>(cx, dims, Scalar::add, move |sum| sum.div(count))
}

/// y = last(x0 step x1 step x2 ...)
fn fold<T: Number>(
    cx: &mut RunContext<'_>,
    dims: &[usize],
    step: impl Fn(T::Wide, T::Wide) -> T::Wide,
    last: impl Fn(T::Wide) -> T::Wide,
) -> Result<(), OpError> {
    let first = operand::<T>(&cx.required(0)?)?;
    let count = cx.input_count();
    let y = cx.output::<T>(0, dims)?.into_mut();
    // The first operand alone, repeated to the result's shape.
    let repeat = Operand {
        data: first.data,
        dims: first.dims,
    };
    zip(first, repeat, dims, y, |x, _| x);
    for i in 1..count {
        let x = operand::<T>(&cx.required(i)?)?;
        accumulate(x, dims, y, |y, x| T::narrow(step(y.widen(), x.widen())));
    }
    for y in counted(y) {
        *y = T::narrow(last(y.widen()));
    }
    Ok(())
}

/// y[i] = f(y[i], x[i]), x repeated along its unit dims.
fn accumulate<T: Copy>(x: Operand<'_, T>, dims: &[usize], y: &mut [T], f: impl Fn(T, T) -> T) {
    let strides = super::strided::broadcast_strides(x.dims, dims);
    let mut y = y.iter_mut();
    super::strided::Strided::new(dims, [&strides], [0]).for_each(&mut |[at]| {
        if let Some(y) = y.next() {
            *y = f(*y, x.data[at]);
        }
    });
}
