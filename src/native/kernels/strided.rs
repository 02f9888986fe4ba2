//! Walking N operands of different strides over one shape.
//!
//! Broadcasting, transposing, slicing, expanding and reducing are all "for each position of
//! a shape, an offset into each operand". [`Strided`] turns that into as few and as long
//! inner runs as the strides allow, so that a kernel's loop over a run is a plain slice loop
//! in the common cases (stride 1 or 0).

use std::ops::Range;

use smallvec::SmallVec;

use crate::native::ending::{Looks, pieces};
use crate::native::tensor::Dims;

/// Strides of one operand in elements, one per dim; negative ones walk backwards.
pub(super) type Strides = SmallVec<[isize; 6]>;

/// Row-major strides of a dense tensor.
pub(super) fn dense_strides(dims: &[usize]) -> Strides {
    let mut strides: Strides = SmallVec::from_elem(0, dims.len());
    let mut step = 1usize;
    for (stride, &dim) in strides.iter_mut().zip(dims).rev() {
        *stride = step as isize;
        // A tensor with a zero dim has no elements to reach, so a wrapped step is never used.
        step = step.wrapping_mul(dim);
    }
    strides
}

/// Strides that repeat a dense tensor of `dims` over `to`, which it must broadcast to
/// (see [`broadcast_dims`]): 0 along the dims that are repeated.
pub(super) fn broadcast_strides(dims: &[usize], to: &[usize]) -> Strides {
    let mut strides: Strides = SmallVec::from_elem(0, to.len());
    let mut step = 1usize;
    for (stride, &dim) in strides.iter_mut().rev().zip(dims.iter().rev()) {
        if dim != 1 {
            *stride = step as isize;
        }
        // As in `dense_strides`.
        step = step.wrapping_mul(dim);
    }
    strides
}

/// The offset of a position, counted in row-major order, into an operand of these strides.
pub(super) fn offset_of(position: usize, dims: &[usize], strides: &[isize]) -> usize {
    let (mut rest, mut offset) = (position, 0);
    for (&dim, &stride) in dims.iter().zip(strides).rev() {
        offset += (rest % dim.max(1)) as isize * stride;
        rest /= dim.max(1);
    }
    offset as usize
}

/// The shape that two shapes broadcast to by ONNX's multidirectional rule, if they do.
pub(super) fn broadcast_dims(a: &[usize], b: &[usize]) -> Option<Dims> {
    // Nothing is repeated, as mostly.
    if a == b || b.is_empty() {
        return Some(a.into());
    }
    let rank = a.len().max(b.len());
    let dim = |dims: &[usize], axis: usize| match (axis + dims.len()).checked_sub(rank) {
        Some(at) => dims.get(at).copied().unwrap_or(1),
        None => 1,
    };
    (0..rank)
        .map(|axis| match (dim(a, axis), dim(b, axis)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// The walk: outer loops over `offsets`, each reaching a run of `run` positions along which
/// operand `i` advances by `run_strides[i]`.
pub(super) struct Strided<const N: usize> {
    outer: SmallVec<[(usize, [isize; N]); 6]>,
    pub run: usize,
    pub run_strides: [isize; N],
    base: [isize; N],
}

impl<const N: usize> Strided<N> {
    /// The walk over `dims` in row-major order. Each operand's strides have one entry per
    /// dim; `base` is where its first element lies.
    pub fn new(dims: &[usize], strides: [&[isize]; N], base: [usize; N]) -> Self {
        // Unit dims vanish; a dim joins its inner neighbour when every operand steps over
        // the neighbour's whole length.
        let mut loops: SmallVec<[(usize, [isize; N]); 6]> = SmallVec::new();
        for (axis, &dim) in dims.iter().enumerate().filter(|&(_, &dim)| dim != 1) {
            let step: [isize; N] = std::array::from_fn(|i| strides[i].get(axis).copied().unwrap_or(0));
            match loops.last_mut() {
                Some((outer_dim, outer_step))
                    if (0..N).all(|i| outer_step[i] == step[i].wrapping_mul(dim as isize)) =>
                {
                    *outer_dim = outer_dim.wrapping_mul(dim);
                    *outer_step = step;
                }
                _ => loops.push((dim, step)),
            }
        }
        let (run, run_strides) = loops.pop().unwrap_or((1, [0; N]));
        let empty = dims.contains(&0);
        Strided {
            outer: loops,
            run: if empty { 0 } else { run },
            run_strides,
            base: base.map(|start| start as isize),
        }
    }

    /// Calls `visit` with every operand's offset at the start of each run, in order, and
    /// [counts](crate::native::ending) them, if there are several. Never called when the shape has no
    /// elements.
    // Not generic over the closure, so that the loops are compiled once, not once a kernel.
    pub fn for_each_run(&self, visit: &mut dyn FnMut([usize; N])) {
        if self.run == 0 {
            return;
        }
        let mut offsets = self.base;
        // A run is its visitor's to count: it may be all there is.
        if self.outer.is_empty() {
            return visit(offsets.map(|offset| offset as usize));
        }
        let mut counters: SmallVec<[usize; 6]> = SmallVec::from_elem(0, self.outer.len());
        let mut looks = Looks::default();
        loop {
            looks.count(self.run);
            visit(offsets.map(|offset| offset as usize));
            if !self.advance(&mut counters, &mut offsets) {
                return;
            }
        }
    }

    /// Calls `visit` with what lies in a range of the positions: every operand's offset at the
    /// start of each run, or where in it the range starts, and the positions from there on that
    /// are in both.
    pub fn for_each_run_in(&self, range: Range<usize>, visit: &mut dyn FnMut([usize; N], usize)) {
        if self.run == 0 || range.is_empty() {
            return;
        }
        let mut offsets = self.base;
        let mut counters: SmallVec<[usize; 6]> = SmallVec::from_elem(0, self.outer.len());
        let mut runs = range.start / self.run;
        for (counter, (dim, step)) in counters.iter_mut().zip(&self.outer).rev() {
            *counter = runs % dim;
            runs /= dim;
            for (offset, step) in offsets.iter_mut().zip(step) {
                *offset += step * *counter as isize;
            }
        }
        let (mut skipped, mut left) = (range.start % self.run, range.len());
        loop {
            let len = (self.run - skipped).min(left);
            visit(
                std::array::from_fn(|i| at(offsets[i] as usize, self.run_strides[i], skipped)),
                len,
            );
            (skipped, left) = (0, left - len);
            if left == 0 || !self.advance(&mut counters, &mut offsets) {
                return;
            }
        }
    }

    /// Goes on to the next run, if there is one.
    #[inline]
    fn advance(&self, counters: &mut [usize], offsets: &mut [isize; N]) -> bool {
        for (counter, (dim, step)) in counters.iter_mut().zip(&self.outer).rev() {
            *counter += 1;
            for (offset, step) in offsets.iter_mut().zip(step) {
                *offset += step;
            }
            if *counter < *dim {
                return true;
            }
            *counter = 0;
            for (offset, step) in offsets.iter_mut().zip(step) {
                *offset -= step * *dim as isize;
            }
        }
        false
    }

    /// Calls `visit` with every operand's offset at each position, in order.
    pub fn for_each(&self, visit: &mut dyn FnMut([usize; N])) {
        self.for_each_run(&mut |starts| {
            for i in pieces(self.run).flatten() {
                visit(std::array::from_fn(|n| at(starts[n], self.run_strides[n], i)));
            }
        });
    }
}

/// The element `position` steps into a run that starts at `start`.
#[inline(always)]
pub(super) fn at(start: usize, stride: isize, position: usize) -> usize {
    (start as isize + stride * position as isize) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk<const N: usize>(walk: &Strided<N>) -> Vec<[usize; N]> {
        let mut all = Vec::new();
        walk.for_each(&mut |offsets| all.push(offsets));
        all
    }

    #[test]
    fn a_dense_tensor_is_one_run() {
        let dims = [2, 1, 3, 4];
        let plan = Strided::new(&dims, [&dense_strides(&dims)], [0]);
        assert_eq!((plan.run, plan.run_strides), (24, [1]));
        assert_eq!(walk(&plan), (0..24).map(|i| [i]).collect::<Vec<_>>());
    }

    #[test]
    fn a_range_is_visited_as_in_the_whole_walk() {
        let dims = [2, 3, 2, 5];
        let strides = [[100, 10, 0, 2], [1, 7, 30, -1]];
        let plan = Strided::new(&dims, [&strides[0], &strides[1]], [3, 1000]);
        let all = walk(&plan);
        for first in 0..=all.len() {
            for end in first..=all.len() {
                let mut visited = Vec::new();
                plan.for_each_run_in(first..end, &mut |starts, len| {
                    visited.extend((0..len).map(|i| [0, 1].map(|n| at(starts[n], plan.run_strides[n], i))));
                });
                assert_eq!(visited, all[first..end]);
            }
        }
    }

    #[test]
    fn a_position_has_the_offset_that_the_walk_gives_it() {
        let dims = [2, 3, 4];
        let strides = [1, 0, -5];
        let plan = Strided::new(&dims, [&strides], [40]);
        for (position, [offset]) in walk(&plan).into_iter().enumerate() {
            assert_eq!(offset_of(position, &dims, &strides).wrapping_add(40), offset);
        }
    }

    #[test]
    fn a_row_and_a_column_broadcast() {
        let to = broadcast_dims(&[2, 1], &[3]).expect("they broadcast");
        assert_eq!(to.as_slice(), [2, 3]);
        let (a, b) = (broadcast_strides(&[2, 1], &to), broadcast_strides(&[3], &to));
        let plan = Strided::new(&to, [&a, &b], [0, 0]);
        assert_eq!(walk(&plan), [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
    }

    #[test]
    fn empty_and_rank_zero_shapes() {
        assert_eq!(
            walk(&Strided::new(&[2, 0, 3], [&[0, 3, 1]], [0])),
            Vec::<[usize; 1]>::new()
        );
        assert_eq!(walk(&Strided::new(&[], [&[]], [7])), [[7]]);
        assert_eq!(broadcast_dims(&[0], &[1]).as_deref(), Some(&[0][..]));
        assert_eq!(broadcast_dims(&[0], &[2]), None);
    }

    #[test]
    fn negative_strides_walk_backwards() {
        let plan = Strided::new(&[2, 2], [&[-3, -1]], [5]);
        assert_eq!(walk(&plan), [[5], [4], [2], [1]]);
    }
}
