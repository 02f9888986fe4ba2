//! The loops of elementwise operators: y[i] = f(x[i]), and f(a[i], b[i]) with broadcasting; for
//! numbers [`map_wide`] and [`zip_wide`], a block at a time in the wide type and on several threads.

use super::number::{Number, Scalar};
use super::strided::{Strided, at, broadcast_strides};
use crate::native::element::Element;
use crate::native::ending::{self, PIECE};
use crate::native::operator::OpError;
use crate::native::output::OutSlice;
use crate::native::tensor::TensorRef;
use crate::native::workers::Workers;

/// y[i] = f(x[i]); both have the same length.
pub(super) fn map<X: Copy, Y>(x: &[X], y: &mut [Y], f: impl Fn(X) -> Y) {
    debug_assert_eq!(x.len(), y.len());
    for (x, y) in x.chunks(PIECE).zip(y.chunks_mut(PIECE)) {
        ending::count(y.len());
        for (y, &x) in y.iter_mut().zip(x) {
            *y = f(x);
        }
    }
}

/// y = x; both have the same length.
pub(super) fn copy<T: Copy>(x: &[T], y: &mut [T]) {
    debug_assert_eq!(x.len(), y.len());
    for (x, y) in x.chunks(PIECE).zip(y.chunks_mut(PIECE)) {
        ending::count(y.len());
        y.copy_from_slice(x);
    }
}

/// Elements that are computed at a time where they must be converted, or brought together: their
/// conversions stay in the nearest cache.
const BLOCK: usize = 512;

/// y = f(x) in the wide type, on several threads where an element is worth `work` simple
/// operations. `f` changes a block of elements in place.
// Not generic over f, so that all but the loop in f is compiled once for each type.
pub(super) fn map_wide<T: Number>(
    workers: &Workers,
    work: usize,
    x: &[T],
    y: OutSlice<'_, T>,
    f: &(dyn Fn(&mut [T::Wide]) + Sync),
) {
    let chunk = y.chunk(workers, work);
    y.split(workers, chunk, |first, y| {
        let mut room = [T::Wide::ZERO; BLOCK];
        for (x, y) in x[first..].chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
            let x = &x[..y.len()];
            match T::as_wide_mut(y) {
                Some(y) => {
                    T::widen_all(x, y);
                    f(y);
                }
                None => {
                    let room = &mut room[..x.len()];
                    T::widen_all(x, room);
                    f(room);
                    T::narrow_all(room, y);
                }
            }
        }
    });
}

/// x = f(x) for each of a block, for [`map_wide`].
#[inline(always)]
pub(super) fn in_place<W: Copy>(block: &mut [W], f: impl Fn(W) -> W) {
    for x in block {
        *x = f(*x);
    }
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

/// Writes f(a, b) for each of a block.
type Pairs<'a, W> = dyn Fn(&[W], &[W], &mut [W]) + Sync + 'a;

/// y = f(a, b) in the wide type, on several threads where an element is worth `work` simple
/// operations, each operand repeated along its unit dims to `dims`, the shape of y. `f` gets as many
/// elements of each.
// Not generic over f, as above.
pub(super) fn zip_wide<T: Number>(
    workers: &Workers,
    work: usize,
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    dims: &[usize],
    y: OutSlice<'_, T>,
    f: &Pairs<'_, T::Wide>,
) {
    let (a_strides, b_strides) = (broadcast_strides(a.dims, dims), broadcast_strides(b.dims, dims));
    let walk = Strided::new(dims, [&a_strides, &b_strides], [0, 0]);
    zip_along(workers, work, [a.data, b.data], &walk, y, f);
}

/// As [`zip_wide`], the operands' elements being where `walk` goes.
pub(super) fn zip_along<T: Number>(
    workers: &Workers,
    work: usize,
    [a, b]: [&[T]; 2],
    walk: &Strided<2>,
    y: OutSlice<'_, T>,
    f: &Pairs<'_, T::Wide>,
) {
    let chunk = y.chunk(workers, work);
    y.split(workers, chunk, |first, y| {
        let positions = first..first + y.len();
        let mut rest = y;
        let mut next = |len: usize| {
            let (run, after) = std::mem::take(&mut rest).split_at_mut(len);
            rest = after;
            run
        };
        if (walk.run == 1 || walk.run_strides == [1, 1])
            && let (Some(a), Some(b)) = (T::as_wide(a), T::as_wide(b))
        {
            walk.for_each_run_in(positions, &mut |[a_start, b_start], len| {
                let (a, b) = (&a[a_start..][..len], &b[b_start..][..len]);
                let blocks = a.chunks(BLOCK).zip(b.chunks(BLOCK));
                for ((a, b), y) in blocks.zip(next(len).chunks_mut(BLOCK)) {
                    if let Some(y) = T::as_wide_mut(y) {
                        f(a, b, y);
                    }
                }
            });
            return;
        }
        let [a_stride, b_stride] = walk.run_strides;
        let (mut a_room, mut b_room) = ([T::Wide::ZERO; BLOCK], [T::Wide::ZERO; BLOCK]);
        let mut y_room = [T::Wide::ZERO; BLOCK];
        walk.for_each_run_in(positions, &mut |[a_start, b_start], len| {
            for (i, y) in next(len).chunks_mut(BLOCK).enumerate() {
                let len = y.len();
                let a = block(
                    &a[at(a_start, a_stride, i * BLOCK)..],
                    a_stride,
                    &mut a_room[..len],
                );
                let b = block(
                    &b[at(b_start, b_stride, i * BLOCK)..],
                    b_stride,
                    &mut b_room[..len],
                );
                match T::as_wide_mut(y) {
                    Some(y) => f(a, b, y),
                    None => {
                        let room = &mut y_room[..len];
                        f(a, b, room);
                        T::narrow_all(room, y);
                    }
                }
            }
        });
    });
}

/// Every `stride`th element in the wide type, as many as there is room for.
fn block<'a, T: Number>(data: &'a [T], stride: isize, room: &'a mut [T::Wide]) -> &'a [T::Wide] {
    match (stride, T::as_wide(data)) {
        (1, Some(wide)) => return &wide[..room.len()],
        (1, None) => T::widen_all(data, room),
        (0, _) => room.fill(data[0].widen()),
        _ => {
            for (i, wide) in room.iter_mut().enumerate() {
                *wide = data[at(0, stride, i)].widen();
            }
        }
    }
    room
}

/// `y[i]` = f(`a[i]`, `b[i]`), for [`zip_wide`].
#[inline(always)]
pub(super) fn pairs<W: Copy>(a: &[W], b: &[W], y: &mut [W], f: impl Fn(W, W) -> W) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = f(a, b);
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
    let [a_stride, b_stride] = walk.run_strides;
    walk.for_each_run(&mut |[a_start, b_start]| {
        let Some(y) = rows.next() else { return };
        for (piece, y) in y.chunks_mut(PIECE).enumerate() {
            ending::count(y.len());
            let a_start = at(a_start, a_stride, piece * PIECE);
            let b_start = at(b_start, b_stride, piece * PIECE);
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
                _ => {
                    for (i, y) in y.iter_mut().enumerate() {
                        *y = f(a.data[at(a_start, a_stride, i)], b.data[at(b_start, b_stride, i)]);
                    }
                }
            }
        }
    });
}
