//! Softmax: y = e^(x - max) / sum e^(x - max), and LogSoftmax: y = x - max - ln(sum e^(x - max)).
//!
//! Along `axis` (the last one by default) from version 13 on. Before that X is seen as a matrix,
//! [d0 * ... * d(axis-1), d(axis) * ...], with axis 1 by default, and each row is one sum.
//! ai.onnx 1, 11, 13: floats. f16 and bf16 are computed in f32 and rounded once.

use super::Built;
use super::dims::axis;
use super::dispatch::with_float;
use super::infer::like_first_input;
use super::number::{Float, Real, Scalar};
use crate::native::element::ElementType;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
pub(super) struct Softmax {
    axis: i64,
    /// All dims from the axis on are one sum.
    flatten: bool,
    log: bool,
}

fn build(node: &NodeInfo<'_>, log: bool) -> Built {
    let flatten = node.since < 13;
    Ok(Box::new(Softmax {
        axis: node.int_or("axis", if flatten { 1 } else { -1 })?,
        flatten,
        log,
    }))
}

/// Softmax along an axis, or with `flatten` along it and all after it.
pub(super) fn softmax_of(axis: i64, flatten: bool) -> Softmax {
    Softmax {
        axis,
        flatten,
        log: false,
    }
}

pub(in crate::native) fn softmax(node: &NodeInfo<'_>) -> Built {
    build(node, false)
}

pub(in crate::native) fn log_softmax(node: &NodeInfo<'_>) -> Built {
    build(node, true)
}

impl Operator for Softmax {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl Softmax {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let dims = x.dims();
        // A scalar is a sum of one; version 11 and before allow axis = rank, a sum of one too.
        let (len, inner) = match (self.flatten, dims) {
            (_, []) => (1, 1),
            (true, _) if self.axis == dims.len() as i64 => (1, 1),
            (true, _) => (dims[axis(self.axis, dims.len())?..].iter().product(), 1),
            (false, _) => {
                let axis = axis(self.axis, dims.len())?;
                (dims[axis], dims[axis + 1..].iter().product())
            }
        };
        let y = cx.output::<T>(0, dims)?.into_mut();
        let x = x.slice::<T>()?;
        let block: usize = len * inner;
        if x.is_empty() {
            return Ok(());
        }
        let blocks = |x: &[T], y: &mut [T]| {
            for (x, y) in x.chunks_exact(block).zip(y.chunks_exact_mut(block)) {
                for i in 0..inner {
                    let column = || x[i..].iter().step_by(inner).map(|x| x.widen());
                    let max = column().fold(T::Wide::LOWEST, Scalar::max);
                    let sum = column().fold(T::Wide::ZERO, |sum, x| sum.add(x.sub(max).exp()));
                    let log_sum = sum.ln();
                    for (y, x) in y[i..].iter_mut().step_by(inner).zip(column()) {
                        *y = T::narrow(match self.log {
                            true => x.sub(max).sub(log_sum),
                            false => x.sub(max).exp().div(sum),
                        });
                    }
                }
            }
        };
        // An exponential or two an element.
        let workers = cx.workers();
        let several = workers
            .chunk(x.len() / block, block.saturating_mul(16))
            .saturating_mul(block);
        workers.split_mut(y, several, |part, y| blocks(&x[part * several..][..y.len()], y));
        Ok(())
    }
}
