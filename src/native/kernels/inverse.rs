//! Inverse: Y of X [..., n, n], X Y = I for each matrix.
//!
//! com.microsoft 1: float16, float, double (and bfloat16), by Gauss and Jordan's elimination with the
//! largest pivot of a column, in f64; one rounding. A matrix without an inverse has one of infinities
//! and NaNs.

use super::Built;
use super::dispatch::with_float;
use super::infer::like_first_input;
use super::number::{Float, Scalar};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{TensorRef, element_count};

#[derive(Debug)]
struct Inverse;

pub(in crate::native) fn inverse(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Inverse))
}

impl Operator for Inverse {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => invert_all::<T>(cx, &x))
    }
}

fn invert_all<T: Float>(cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
    let &[.., rows, n] = x.dims() else {
        return Err(square(x));
    };
    if rows != n {
        return Err(square(x));
    }
    let width = n.saturating_mul(2);
    let work = cx.scratch::<f64>(element_count(&[n, width])?)?;
    let y = cx.output::<T>(0, x.dims())?.into_mut();
    if y.is_empty() {
        return Ok(());
    }
    for (x, y) in x.slice::<T>()?.chunks_exact(n * n).zip(y.chunks_exact_mut(n * n)) {
        // X, and I beside it.
        for (i, row) in work.chunks_exact_mut(width).enumerate() {
            let (left, right) = row.split_at_mut(n);
            for (to, x) in left.iter_mut().zip(&x[i * n..]) {
                *to = x.widen().to_f64();
            }
            right.fill(0.0);
            right[i] = 1.0;
        }
        eliminate(work, n);
        for (row, y) in work.chunks_exact(width).zip(y.chunks_exact_mut(n)) {
            for (y, &value) in y.iter_mut().zip(&row[n..]) {
                *y = T::narrow(T::Wide::from_f64(value));
            }
        }
    }
    Ok(())
}

fn square(x: &TensorRef<'_>) -> OpError {
    OpError::WrongDims {
        what: "input 0".into(),
        found: x.dims().into(),
        expected: "square matrices".into(),
    }
}

/// Turns the left half of `rows` [n, 2 n] into I.
fn eliminate(rows: &mut [f64], n: usize) {
    let width = 2 * n;
    for column in 0..n {
        let size = |row: usize| rows[row * width + column].abs();
        let pivot = (column..n).fold(
            column,
            |best, row| if size(row) > size(best) { row } else { best },
        );
        if pivot != column {
            let (above, below) = rows.split_at_mut(pivot * width);
            above[column * width..][..width].swap_with_slice(&mut below[..width]);
        }
        let (above, rest) = rows.split_at_mut(column * width);
        let (pivot_row, below) = rest.split_at_mut(width);
        let pivot = pivot_row[column];
        pivot_row.iter_mut().for_each(|x| *x /= pivot);
        for row in above.chunks_exact_mut(width).chain(below.chunks_exact_mut(width)) {
            ending::count(width);
            let factor = row[column];
            if factor != 0.0 {
                for (x, p) in row.iter_mut().zip(pivot_row.iter()) {
                    *x -= factor * p;
                }
            }
        }
    }
}
