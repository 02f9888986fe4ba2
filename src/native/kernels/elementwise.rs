//! The loops of elementwise operators: y[i] = f(x[i]), and f(a[i], b[i]) with broadcasting.

use super::strided::{Strided, at, broadcast_strides};
use crate::native::element::Element;
use crate::native::operator::OpError;
use crate::native::tensor::TensorRef;
use crate::native::workers::Workers;

/// y[i] = f(x[i]); both have the same length.
pub(super) fn map<X: Copy, Y>(x: &[X], y: &mut [Y], f: impl Fn(X) -> Y) {
    debug_assert_eq!(x.len(), y.len());
    for (y, &x) in y.iter_mut().zip(x) {
        *y = f(x);
    }
}

/// [`map`] on several threads, where an element is worth `work` simple operations.
pub(super) fn map_on<X: Copy + Sync, Y: Send>(
    workers: &Workers,
    work: usize,
    x: &[X],
    y: &mut [Y],
    f: impl Fn(X) -> Y + Sync,
) {
    let chunk = workers.chunk(y.len(), work);
    workers.split_mut(y, chunk, |part, y| map(&x[part * chunk..][..y.len()], y, &f));
}

/// An operand: elements and the dims they have.
pub(super) struct Operand<'a, T> {
    pub data: &'a [T],
    pub dims: &'a [usize],
}

/// A tensor as an operand.
pub(super) fn operand<'a, T: Element>(tensor: &TensorRef<'a>) -> Result<Operand<'a, T>, OpError> {
    Ok(Operand {
        data: tensor.slice::<T>()?,
        dims: tensor.dims(),
    })
}

/// How an operand repeats over a shape that it broadcasts to: the number of its elements when it
/// is repeated as a whole.
fn period<T>(operand: &Operand<'_, T>, dims: &[usize]) -> Option<usize> {
    let ones = operand.dims.iter().take_while(|&&dim| dim == 1).count();
    dims.ends_with(&operand.dims[ones..])
        .then_some(operand.data.len())
}

/// [`zip`] on several threads, where both operands are repeated as a whole, if at all.
pub(super) fn zip_on<A: Copy + Sync, B: Copy + Sync, Y: Send>(
    workers: &Workers,
    a: Operand<'_, A>,
    b: Operand<'_, B>,
    dims: &[usize],
    y: &mut [Y],
    f: impl Fn(A, B) -> Y + Sync,
) {
    let chunk = workers.chunk(y.len(), 1);
    let (Some(a_period), Some(b_period), true) = (period(&a, dims), period(&b, dims), chunk < y.len()) else {
        return zip(a, b, dims, y, f);
    };
    let long = a_period.max(b_period);
    if long != y.len() {
        return zip(a, b, dims, y, f);
    }
    // A part is whole periods of the operand that repeats, if one does.
    let short = match a_period == b_period {
        true => 1,
        false => a_period.min(b_period),
    };
    let chunk = chunk.div_ceil(short).saturating_mul(short);
    workers.split_mut(y, chunk, |part, y| {
        let dims = [y.len() / short, short];
        let rows = part * chunk..part * chunk + y.len();
        let a = part_of(&a, a_period == long, &rows, &dims);
        let b = part_of(&b, b_period == long, &rows, &dims);
        zip(a, b, &dims, y, &f);
    });
}

/// What an operand has for a part: its own elements if it is `whole`, else those of every part.
fn part_of<'a, T>(
    operand: &Operand<'a, T>,
    whole: bool,
    rows: &std::ops::Range<usize>,
    dims: &'a [usize; 2],
) -> Operand<'a, T> {
    match whole {
        true => Operand {
            data: &operand.data[rows.clone()],
            dims,
        },
        false => Operand {
            data: operand.data,
            dims: &dims[1..],
        },
    }
}

/// y[i] = f(a[i], b[i]), each operand repeated along its unit dims to `dims`, the shape of y.
pub(super) fn zip<A: Copy, B: Copy, Y>(
    a: Operand<'_, A>,
    b: Operand<'_, B>,
    dims: &[usize],
    y: &mut [Y],
    f: impl Fn(A, B) -> Y,
) {
    let (a_strides, b_strides) = (broadcast_strides(a.dims, dims), broadcast_strides(b.dims, dims));
    let walk = Strided::new(dims, [&a_strides, &b_strides], [0, 0]);
    let mut rows = y.chunks_mut(walk.run.max(1));
    walk.for_each_run(&mut |[a_start, b_start]| {
        let Some(y) = rows.next() else { return };
        match walk.run_strides {
            [1, 1] => {
                let (a, b) = (&a.data[a_start..][..y.len()], &b.data[b_start..][..y.len()]);
                for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                    *y = f(a, b);
                }
            }
            [1, 0] => {
                let b = b.data[b_start];
                for (y, &a) in y.iter_mut().zip(&a.data[a_start..]) {
                    *y = f(a, b);
                }
            }
            [0, 1] => {
                let a = a.data[a_start];
                for (y, &b) in y.iter_mut().zip(&b.data[b_start..]) {
                    *y = f(a, b);
                }
            }
            [a_stride, b_stride] => {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = f(a.data[at(a_start, a_stride, i)], b.data[at(b_start, b_stride, i)]);
                }
            }
        }
    });
}
