//! Folds of many elements in an order that depends on their number alone, and that wide
//! instructions can keep: element i goes to lane i % 16, and the lanes are joined in pairs.

use super::number::Scalar;
use crate::native::ending::{self, PIECE};

const LANES: usize = 16;

/// The fold of `x`: `step` from `start`, which changes nothing, in each lane, then `join`.
#[inline(always)]
pub(super) fn fold<X: Copy, A: Copy>(
    x: &[X],
    start: A,
    step: impl Fn(A, X) -> A,
    join: impl Fn(A, A) -> A,
) -> A {
    let mut lanes = [start; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for piece in chunks.chunks(PIECE / LANES) {
        // A short row is its caller's to count.
        if piece.len() == PIECE / LANES {
            ending::count(PIECE);
        }
        for chunk in piece {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane = step(*lane, x);
            }
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, x);
    }
    let mut width = LANES / 2;
    while width > 0 {
        let (low, high) = lanes.split_at_mut(width);
        for (low, &mut high) in low.iter_mut().zip(high) {
            *low = join(*low, high);
        }
        width /= 2;
    }
    lanes[0]
}

/// The sum of f(x).
#[inline(always)]
pub(super) fn sum_of<X: Copy, W: Scalar>(x: &[X], f: impl Fn(X) -> W) -> W {
    fold(x, W::ZERO, |sum, x| sum.add(f(x)), W::add)
}

/// The largest element; NaN if there is one.
#[inline(always)]
pub(super) fn max_of<W: Scalar>(x: &[W]) -> W {
    fold(x, W::LOWEST, Scalar::max, Scalar::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_taken_once() {
        for len in 0..100u64 {
            let x: Vec<u64> = (1..=len).collect();
            assert_eq!(sum_of(&x, |x| x), len * (len + 1) / 2);
            assert_eq!(max_of(&x), len);
        }
    }

    #[test]
    fn a_nan_is_the_largest() {
        for at in 0..40 {
            let mut x = [1.0; 40];
            x[at] = f64::NAN;
            assert!(max_of(&x).is_nan());
        }
    }
}
