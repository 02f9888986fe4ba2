//! What is added to a product of matrices while it is written:
//!
//!   y[m, n] = sum[m, n] + bias[n] + residual[m, n]
//!
//! in the wide type, in this order, rounded once; bias and residual may be left out.

use super::number::{Number, Scalar};
use crate::native::operator::{OpError, RunContext};

/// Sums that are added to at a time where they are no elements of Y.
const BLOCK: usize = 64;

#[derive(Clone, Copy)]
pub(super) struct Epilogue<'a, T> {
    bias: Option<&'a [T]>,
    residual: Option<&'a [T]>,
    /// Elements of a row of Y, and so of the bias.
    n: usize,
}

impl<'a, T: Number> Epilogue<'a, T> {
    /// Of a product of these dims with rows of `n`, by the inputs at these indices.
    pub fn new(
        cx: &RunContext<'a>,
        (dims, n): (&[usize], usize),
        bias: usize,
        residual: usize,
    ) -> Result<Self, OpError> {
        let slice = |index: usize, fits: bool, expected: &dyn Fn() -> String| {
            let Some(tensor) = cx.input(index) else {
                return Ok(None);
            };
            match fits {
                true => tensor.slice::<T>().map(Some),
                false => Err(OpError::WrongDims {
                    what: format!("input {index}"),
                    found: tensor.dims().into(),
                    expected: expected(),
                }),
            }
        };
        // Exporters differ in the rank of a bias.
        let of_row = cx.input(bias).is_none_or(|bias| bias.len() == n);
        let of_all = cx.input(residual).is_none_or(|residual| residual.dims() == dims);
        Ok(Epilogue {
            bias: slice(bias, of_row, &|| format!("{n} elements in all"))?,
            residual: slice(residual, of_all, &|| format!("{dims:?}, those of the product"))?,
            n,
        })
    }

    pub fn none() -> Self {
        Epilogue {
            bias: None,
            residual: None,
            n: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bias.is_none() && self.residual.is_none()
    }

    /// Makes elements of Y of the sums of a row from a column on.
    #[inline]
    pub fn finish(&self, row: usize, column: usize, sums: &[T::Wide], y: &mut [T]) {
        if self.is_empty() {
            return T::narrow_all(sums, y);
        }
        let bias = self.bias.map(|bias| &bias[column..][..sums.len()]);
        let residual = self
            .residual
            .map(|residual| &residual[row * self.n + column..][..sums.len()]);
        if let Some(wide) = T::as_wide_mut(y) {
            wide.copy_from_slice(sums);
            add(wide, bias);
            add(wide, residual);
            return;
        }
        let mut room = [T::Wide::ZERO; BLOCK];
        for (at, (sums, y)) in sums.chunks(BLOCK).zip(y.chunks_mut(BLOCK)).enumerate() {
            let room = &mut room[..sums.len()];
            room.copy_from_slice(sums);
            let of_block = |all: Option<&'a [T]>| all.map(|all| &all[at * BLOCK..][..sums.len()]);
            add(room, of_block(bias));
            add(room, of_block(residual));
            T::narrow_all(room, y);
        }
    }
}

fn add<T: Number>(sums: &mut [T::Wide], others: Option<&[T]>) {
    let Some(others) = others else { return };
    if let Some(others) = T::as_wide(others) {
        return add_wide(sums, others);
    }
    let mut room = [T::Wide::ZERO; BLOCK];
    for (sums, others) in sums.chunks_mut(BLOCK).zip(others.chunks(BLOCK)) {
        let room = &mut room[..others.len()];
        T::widen_all(others, room);
        add_wide(sums, room);
    }
}

fn add_wide<W: Scalar>(sums: &mut [W], others: &[W]) {
    for (sum, &other) in sums.iter_mut().zip(others) {
        *sum = sum.add(other);
    }
}
