//! Reductions over a set of axes:
//!
//!   ReduceSum        sum x               ReduceL1           sum |x|
//!   ReduceMean       sum x / n           ReduceL2           sqrt(sum x^2)
//!   ReduceProd       product of x        ReduceSumSquare    sum x^2
//!   ReduceMax, Min   max x, min x        ReduceLogSum       ln(sum x)
//!                                        ReduceLogSumExp    ln(sum e^x)
//!
//! The reduced dims become 1 (`keepdims`) or vanish. Axes are an attribute up to version 13
//! (ReduceSum: 11) and an optional input from 18 (ReduceSum: 13) on; none means all of them,
//! or none at all with `noop_with_empty_axes`. ai.onnx 1, 11, 12, 13, 18, 20.
//!
//! Elements are taken in row-major order, one after the other, whatever the shape, so a
//! result does not depend on how the work is shared out. Means, roots and logarithms of
//! integers are taken in f64 and truncated. Over no elements: the neutral element, and for
//! a mean of floats NaN. A NaN makes any result NaN.

use super::Built;
use super::dims::{Integers, axis_flags};
use super::dispatch::{with_integer, with_number};
use super::infer::{input_dims, input_type};
use super::number::{Number, Real, Scalar};
use super::strided::{Strided, Strides, at, dense_strides};
use crate::native::element::{Bool, ElementType};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, element_count};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Sum,
    Mean,
    Prod,
    Max,
    Min,
    L1,
    L2,
    SumSquare,
    LogSum,
    LogSumExp,
}

#[derive(Debug)]
struct Reduce {
    function: Function,
    keep_dims: bool,
    /// No axes means: reduce nothing.
    noop: bool,
    /// The attribute; `None` also where axes are an input.
    axes: Option<Vec<i64>>,
}

fn build(node: &NodeInfo<'_>, function: Function) -> Built {
    let axes_are_an_input = node.since >= if function == Function::Sum { 13 } else { 18 };
    Ok(Box::new(Reduce {
        function,
        keep_dims: node.flag_or("keepdims", true)?,
        noop: axes_are_an_input && node.flag_or("noop_with_empty_axes", false)?,
        axes: if axes_are_an_input {
            None
        } else {
            node.ints("axes")?.map(Into::into)
        },
    }))
}

macro_rules! builders {
    ($($name:ident = $function:ident;)+) => { $(
        pub(in crate::native) fn $name(node: &NodeInfo<'_>) -> Built {
            build(node, Function::$function)
        }
    )+ };
}

builders! {
    sum = Sum;
    mean = Mean;
    prod = Prod;
    max = Max;
    min = Min;
    l1 = L1;
    l2 = L2;
    sum_square = SumSquare;
    log_sum = LogSum;
    log_sum_exp = LogSumExp;
}

impl Reduce {
    /// Which dims are reduced, from the attribute or the values of input 1.
    fn reduced(&self, axes: &[i64], rank: usize) -> Result<smallvec::SmallVec<[bool; 8]>, OpError> {
        if axes.is_empty() {
            return Ok(smallvec::SmallVec::from_elem(!self.noop, rank));
        }
        axis_flags(axes, rank)
    }

    fn result_dims<D: Copy>(&self, dims: &[D], reduced: &[bool], one: D) -> smallvec::SmallVec<[D; 6]> {
        let mut result = smallvec::SmallVec::new();
        for (dim, &reduced) in dims.iter().zip(reduced) {
            match (reduced, self.keep_dims) {
                (false, _) => result.push(*dim),
                (true, true) => result.push(one),
                (true, false) => {}
            }
        }
        result
    }
}

impl Operator for Reduce {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0);
        let axes = match (&self.axes, cx.input(1)) {
            (Some(axes), _) => Some(axes.as_slice().into()),
            (None, None) => Some(Integers::new()),
            (None, Some(_)) => cx.known_ints(1)?,
        };
        let result = match (dims, axes) {
            (Some(dims), Some(axes)) => {
                let reduced = self.reduced(&axes, dims.len())?;
                Some(self.result_dims(&dims, &reduced, SymDim::Fixed(1)))
            }
            (Some(dims), None) if self.keep_dims => Some(SymDims::from_elem(SymDim::Unknown, dims.len())),
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), result);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let axes: Integers = match (&self.axes, cx.input(1)) {
            (Some(axes), _) => axes.as_slice().into(),
            (None, None) => Default::default(),
            (None, Some(axes)) => axes.to_ints()?,
        };
        let reduced = self.reduced(&axes, x.dims().len())?;
        let dims = self.result_dims(x.dims(), &reduced, 1);
        let loops = Loops::new(x.dims(), &reduced)?;
        if x.element_type() == ElementType::Bool {
            let output = cx.output::<Bool>(0, &dims)?;
            return self.reduce_bool(&loops, x.slice::<Bool>()?, output.into_mut());
        }
        with_number!(x.element_type(), T => {
            let output = cx.output::<T>(0, &dims)?;
            self.reduce::<T>(&loops, x.slice::<T>()?, output.into_mut());
            Ok(())
        })
    }
}

/// The walk over results and, from each, the walk over what it is made of.
struct Loops {
    kept: Strided<1>,
    reduced: Strided<1>,
    /// Elements that one result is made of.
    count: usize,
}

impl Loops {
    fn new(dims: &[usize], reduced: &[bool]) -> Result<Self, OpError> {
        let strides = dense_strides(dims);
        let pick = |which: bool| {
            let mut picked = (Dims::new(), Strides::new());
            for ((&dim, &stride), _) in dims
                .iter()
                .zip(&strides)
                .zip(reduced)
                .filter(|(_, r)| **r == which)
            {
                picked.0.push(dim);
                picked.1.push(stride);
            }
            picked
        };
        let (kept, reduced) = (pick(false), pick(true));
        Ok(Loops {
            kept: Strided::new(&kept.0, [&kept.1], [0]),
            reduced: Strided::new(&reduced.0, [&reduced.1], [0]),
            count: element_count(&reduced.0)?,
        })
    }

    /// y = result(fold), the fold over the elements that each y is made of.
    fn fold<X: Copy, A: Copy, Y>(
        &self,
        x: &[X],
        y: &mut [Y],
        start: impl Fn(usize) -> A,
        step: impl Fn(A, X) -> A,
        result: impl Fn(A) -> Y,
    ) {
        let mut y = y.iter_mut();
        self.kept.for_each_run(&mut |[first]| {
            for i in 0..self.kept.run {
                let base = at(first, self.kept.run_strides[0], i);
                let Some(y) = y.next() else { return };
                let fold = self.fold_one(x, base, start(base), &step);
                *y = result(fold);
            }
        });
    }

    fn fold_one<X: Copy, A: Copy>(&self, x: &[X], base: usize, start: A, step: &impl Fn(A, X) -> A) -> A {
        let mut fold = start;
        self.reduced
            .for_each_run(&mut |[offset]| match self.reduced.run_strides {
                [1] => {
                    for &x in &x[base + offset..][..self.reduced.run] {
                        fold = step(fold, x);
                    }
                }
                [stride] => {
                    for i in 0..self.reduced.run {
                        fold = step(fold, x[at(base + offset, stride, i)]);
                    }
                }
            });
        fold
    }
}

impl Reduce {
    fn reduce<T: Number>(&self, loops: &Loops, x: &[T], y: &mut [T]) {
        let (zero, one) = (T::Wide::ZERO, T::Wide::ONE);
        let real = |x: T| real_of::<T>(x);
        let from_real = |value: T::Real| T::narrow(T::Wide::from_f64(value.to_f64()));
        let nothing = T::Real::ZERO;
        match self.function {
            Function::Sum => loops.fold(x, y, |_| zero, |sum, x| sum.add(x.widen()), T::narrow),
            Function::Prod => loops.fold(x, y, |_| one, |product, x| product.mul(x.widen()), T::narrow),
            Function::Max => {
                loops.fold(
                    x,
                    y,
                    |_| T::Wide::LOWEST,
                    |max, x| Scalar::max(max, x.widen()),
                    T::narrow,
                );
            }
            Function::Min => {
                loops.fold(
                    x,
                    y,
                    |_| T::Wide::HIGHEST,
                    |min, x| Scalar::min(min, x.widen()),
                    T::narrow,
                );
            }
            Function::L1 => {
                loops.fold(
                    x,
                    y,
                    |_| zero,
                    |sum, x| sum.add(Scalar::abs(x.widen())),
                    T::narrow,
                );
            }
            Function::SumSquare => {
                loops.fold(
                    x,
                    y,
                    |_| zero,
                    |sum, x| sum.add(x.widen().mul(x.widen())),
                    T::narrow,
                );
            }
            Function::Mean => {
                let n = T::Real::from_f64(loops.count as f64);
                loops.fold(
                    x,
                    y,
                    |_| nothing,
                    |sum, x| sum.add(real(x)),
                    |sum| from_real(sum.div(n)),
                );
            }
            Function::L2 => loops.fold(
                x,
                y,
                |_| nothing,
                |sum, x| sum.add(real(x).mul(real(x))),
                |sum| from_real(Real::sqrt(sum)),
            ),
            Function::LogSum => {
                loops.fold(
                    x,
                    y,
                    |_| nothing,
                    |sum, x| sum.add(real(x)),
                    |sum| from_real(Real::ln(sum)),
                );
            }
            Function::LogSumExp => loops.fold(
                x,
                y,
                // The largest element is taken out, so that e^x cannot overflow: the sum
                // starts as (max, 0).
                |base| {
                    let max = loops.fold_one(x, base, T::Real::LOWEST, &|max, x| Scalar::max(max, real(x)));
                    let finite = Scalar::abs(max) < T::Real::HIGHEST;
                    (if finite { max } else { nothing }, nothing)
                },
                |(max, sum), x| (max, sum.add(Real::exp(real(x).sub(max)))),
                |(max, sum)| from_real(Real::ln(sum).add(max)),
            ),
        }
    }

    /// False is less than true.
    fn reduce_bool(&self, loops: &Loops, x: &[Bool], y: &mut [Bool]) -> Result<(), OpError> {
        match self.function {
            Function::Max => loops.fold(x, y, |_| false, |max, x| max | x.get(), Bool::from),
            Function::Min => loops.fold(x, y, |_| true, |min, x| min & x.get(), Bool::from),
            _ => return Err(super::unsupported(ElementType::Bool, "a number")),
        }
        Ok(())
    }
}

fn real_of<T: Number>(x: T) -> T::Real {
    T::Real::from_f64(x.widen().to_f64())
}
