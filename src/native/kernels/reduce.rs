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
//! Elements are taken in an order that follows from the shape, so a result does not depend on
//! how the work is shared out: row-major, but a run that lies side by side as in `sums`. Means, roots and logarithms of
//! integers are taken in f64 and truncated. Over no elements: the neutral element, and for
//! a mean of floats NaN. A NaN makes any result NaN.

use super::Built;
use super::dims::{Integers, axis_flags};
use super::dispatch::{with_integer, with_number};
use super::infer::{input_dims, input_type};
use super::number::{Number, Real, Scalar};
use super::strided::{Strided, Strides, at, dense_strides};
use super::sums;
use crate::native::element::{Bool, Element, ElementType};
use crate::native::ending::pieces;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::output::OutSlice;
use crate::native::tensor::{Dims, element_count};
use crate::native::workers::Workers;

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
            return self.reduce_bool(cx.workers(), &loops, x.slice::<Bool>()?, output);
        }
        with_number!(x.element_type(), T => {
            let output = cx.output::<T>(0, &dims)?;
            self.reduce::<T>(cx.workers(), &loops, x.slice::<T>()?, output);
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

    /// y = result(fold), the fold over the elements that each y is made of: of a run that lies side
    /// by side as `sums` has it, else one after the other.
    fn fold<X: Copy + Sync, A: Copy + Sync, Y: Element>(
        &self,
        workers: &Workers,
        x: &[X],
        y: OutSlice<'_, Y>,
        (start, step, join): (A, impl Fn(A, X) -> A + Sync, impl Fn(A, A) -> A + Sync),
        result: impl Fn(A) -> Y + Sync,
    ) {
        let chunk = y.chunk(workers, self.count);
        y.split(workers, chunk, |first, y| {
            let mut rest = y;
            let positions = first..first + rest.len();
            self.kept.for_each_run_in(positions, &mut |[first], len| {
                let (y, after) = std::mem::take(&mut rest).split_at_mut(len);
                rest = after;
                if self.kept.run_strides == [1] && self.reduced.run_strides != [1] {
                    // Neighbours are made of neighbours: a row of x at a time.
                    let mut folds = [start; NEIGHBOURS];
                    for (i, y) in y.chunks_mut(NEIGHBOURS).enumerate() {
                        let (folds, base) = (&mut folds[..y.len()], first + i * NEIGHBOURS);
                        folds.fill(start);
                        self.reduced.for_each(&mut |[offset]| {
                            for (fold, &x) in folds.iter_mut().zip(&x[base + offset..]) {
                                *fold = step(*fold, x);
                            }
                        });
                        y.iter_mut().zip(&*folds).for_each(|(y, &fold)| *y = result(fold));
                    }
                    return;
                }
                for (i, y) in y.iter_mut().enumerate() {
                    let base = at(first, self.kept.run_strides[0], i);
                    *y = result(self.fold_one(x, base, start, &step, &join));
                }
            });
        });
    }

    fn fold_one<X: Copy, A: Copy>(
        &self,
        x: &[X],
        base: usize,
        start: A,
        step: &impl Fn(A, X) -> A,
        join: &impl Fn(A, A) -> A,
    ) -> A {
        let mut all = start;
        self.reduced
            .for_each_run(&mut |[offset]| match self.reduced.run_strides {
                [1] => {
                    let run = &x[base + offset..][..self.reduced.run];
                    all = join(all, sums::fold(run, start, step, join));
                }
                [stride] => {
                    for i in pieces(self.reduced.run).flatten() {
                        all = step(all, x[at(base + offset, stride, i)]);
                    }
                }
            });
        all
    }
}

/// Results that are made at the same time where they lie side by side.
const NEIGHBOURS: usize = 128;

impl Reduce {
    fn reduce<T: Number>(&self, workers: &Workers, loops: &Loops, x: &[T], y: OutSlice<'_, T>) {
        let (zero, one) = (T::Wide::ZERO, T::Wide::ONE);
        let (wide, real) = (|x: T| x.widen(), |x: T| real_of::<T>(x));
        let nothing = T::Real::ZERO;
        let n = T::Real::from_f64(loops.count as f64);
        let from_real = |value: T::Real| T::narrow(T::Wide::from_f64(value.to_f64()));
        match self.function {
            Function::Sum => loops.fold(workers, x, y, adding(zero, wide), T::narrow),
            Function::L1 => {
                loops.fold(workers, x, y, adding(zero, |x| Scalar::abs(wide(x))), T::narrow);
            }
            Function::SumSquare => {
                loops.fold(workers, x, y, adding(zero, |x| wide(x).mul(wide(x))), T::narrow);
            }
            Function::Prod => {
                let product = (one, |product: T::Wide, x: T| product.mul(x.widen()), Scalar::mul);
                loops.fold(workers, x, y, product, T::narrow);
            }
            Function::Max => {
                let max = (
                    T::Wide::LOWEST,
                    |max, x: T| Scalar::max(max, x.widen()),
                    Scalar::max,
                );
                loops.fold(workers, x, y, max, T::narrow);
            }
            Function::Min => {
                let min = (
                    T::Wide::HIGHEST,
                    |min, x: T| Scalar::min(min, x.widen()),
                    Scalar::min,
                );
                loops.fold(workers, x, y, min, T::narrow);
            }
            Function::Mean => {
                loops.fold(workers, x, y, adding(nothing, real), |sum| from_real(sum.div(n)));
            }
            Function::L2 => {
                let squares = adding(nothing, |x| real(x).mul(real(x)));
                loops.fold(workers, x, y, squares, |sum| from_real(Real::sqrt(sum)));
            }
            Function::LogSum => {
                loops.fold(workers, x, y, adding(nothing, real), |sum| {
                    from_real(Real::ln(sum))
                });
            }
            Function::LogSumExp => fold_log_sum_exp(workers, loops, x, y),
        }
    }

    /// False is less than true.
    fn reduce_bool(
        &self,
        workers: &Workers,
        loops: &Loops,
        x: &[Bool],
        y: OutSlice<'_, Bool>,
    ) -> Result<(), OpError> {
        let or = |a: bool, b: bool| a | b;
        let and = |a: bool, b: bool| a & b;
        match self.function {
            Function::Max => {
                loops.fold(
                    workers,
                    x,
                    y,
                    (false, |max, x: Bool| max | x.get(), or),
                    Bool::from,
                );
            }
            Function::Min => {
                loops.fold(
                    workers,
                    x,
                    y,
                    (true, |min, x: Bool| min & x.get(), and),
                    Bool::from,
                );
            }
            _ => return Err(super::unsupported(ElementType::Bool, "a number")),
        }
        Ok(())
    }
}

/// The fold that is the sum of f(x).
fn adding<X, W: Scalar>(
    zero: W,
    f: impl Fn(X) -> W + Sync,
) -> (W, impl Fn(W, X) -> W + Sync, impl Fn(W, W) -> W + Sync) {
    (zero, move |sum: W, x: X| sum.add(f(x)), W::add)
}

/// The largest element is taken out, so that e^x cannot overflow.
fn fold_log_sum_exp<T: Number>(workers: &Workers, loops: &Loops, x: &[T], y: OutSlice<'_, T>) {
    let nothing = T::Real::ZERO;
    let chunk = y.chunk(workers, loops.count.saturating_mul(8));
    y.split(workers, chunk, |first, y| {
        let positions = first..first + y.len();
        let mut y = y.iter_mut();
        loops.kept.for_each_run_in(positions, &mut |[first], len| {
            for (i, y) in y.by_ref().take(len).enumerate() {
                let base = at(first, loops.kept.run_strides[0], i);
                let larger = |max, x| Scalar::max(max, real_of::<T>(x));
                let max = loops.fold_one(x, base, T::Real::LOWEST, &larger, &Scalar::max);
                let finite = Scalar::abs(max) < T::Real::HIGHEST;
                let max = if finite { max } else { nothing };
                let term = |sum: T::Real, x| sum.add(Real::exp(real_of::<T>(x).sub(max)));
                let sum = loops.fold_one(x, base, nothing, &term, &Scalar::add);
                *y = T::narrow(T::Wide::from_f64(Real::ln(sum).add(max).to_f64()));
            }
        });
    });
}

fn real_of<T: Number>(x: T) -> T::Real {
    T::Real::from_f64(x.widen().to_f64())
}
