//! Softmax: y = e^(x - max) / sum e^(x - max), and LogSoftmax: y = x - max - ln(sum e^(x - max)).
//!
//! Along `axis` (the last one by default) from version 13 on. Before that X is seen as a matrix,
//! [d0 * ... * d(axis-1), d(axis) * ...], with axis 1 by default, and each row is one sum.
//! ai.onnx 1, 11, 13: floats. f16 and bf16 are computed in f32 and rounded once.

use super::Built;
use super::dims::axis;
use super::dispatch::with_float;
use super::elementwise::in_place;
use super::exponential::{Curve, each};
use super::infer::like_first_input;
use super::number::{Float, Number, Real};
use super::sums::{max_of, sum_of};
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
        if x.is_empty() {
            return Ok(());
        }
        let workers = cx.workers();
        let needs_no_room = inner == 1 && T::as_wide(x).is_some();
        let room = if needs_no_room { 0 } else { len };
        let rooms = cx.scratch::<T::Wide>(room.saturating_mul(workers.threads()))?;
        let block: usize = len * inner;
        // An exponential an element, four passes.
        let several = workers
            .chunk(x.len() / block, block.saturating_mul(4))
            .saturating_mul(block);
        let log = self.log;
        workers.split_mut_with(y, several, rooms, |part, y, room| {
            let blocks = x[part * several..].chunks_exact(block);
            for (x, y) in blocks.zip(y.chunks_exact_mut(block)) {
                if inner > 1 {
                    for i in 0..inner {
                        let column = x[i..].iter().step_by(inner);
                        room.iter_mut().zip(column).for_each(|(to, x)| *to = x.widen());
                        of_row(room, log);
                        let column = y[i..].iter_mut().step_by(inner);
                        column.zip(&*room).for_each(|(y, &wide)| *y = T::narrow(wide));
                    }
                    continue;
                }
                match T::as_wide_mut(y) {
                    Some(y) => {
                        T::widen_all(x, y);
                        of_row(y, log);
                    }
                    None => {
                        T::widen_all(x, room);
                        of_row(room, log);
                        T::narrow_all(room, y);
                    }
                }
            }
        });
        Ok(())
    }
}

/// Softmax or LogSoftmax of one sum, in place.
fn of_row<W: Real + Number>(row: &mut [W], log: bool) {
    let max = max_of(row);
    if !log {
        in_place(row, |x| x.sub(max));
        each(Curve::Exp, row);
        let sum = sum_of(row, |x| x);
        in_place(row, |x| x.div(sum));
        return;
    }
    let mut sum = W::ZERO;
    let mut room = [W::ZERO; 256];
    for x in row.chunks(room.len()) {
        let room = &mut room[..x.len()];
        room.iter_mut().zip(x).for_each(|(to, x)| *to = x.sub(max));
        each(Curve::Exp, room);
        sum = sum.add(sum_of(room, |x| x));
    }
    let log_sum = sum.ln();
    in_place(row, |x| x.sub(max).sub(log_sum));
}
