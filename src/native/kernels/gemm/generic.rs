//! Types that no loop over lanes serves: f64 and integers.
//!
//! With few rows B's rows are streamed in their order, eight at a time, into a block of column
//! sums that stays in the first-level cache. With more rows, a panel of B eight columns wide is
//! copied to the stack and a tile of four rows by eight columns is summed in registers. A sum is
//! that of k in ascending order.

use super::super::number::{Number, Scalar};
use super::Write;

/// Up to this many rows, B is streamed.
const FEW_ROWS: usize = 4;
/// Columns of Y whose sums are kept while B is streamed: 4 KiB of f32 per row.
const STREAM_COLUMNS: usize = 1024;
/// Rows of B that are added to the sums in one pass over them.
const STREAM_DEPTH: usize = 8;

/// Columns of a panel of B, and of a register tile.
const TILE_COLUMNS: usize = 8;
/// Rows of a register tile.
const TILE_ROWS: usize = 4;
/// Rows of Y that share a copied panel.
const BLOCK_ROWS: usize = 64;
/// Depth of a panel: with f32, 8 KiB.
const BLOCK_DEPTH: usize = 256;

/// Gives the sums of every row and column to `write`, each once.
pub(super) fn multiply<T: Number>(
    (m, k, n): (usize, usize, usize),
    a: &[T],
    b: &[T],
    write: Write<'_, T::Wide>,
) {
    if m <= FEW_ROWS {
        stream((m, k, n), a, b, write);
    } else {
        blocked((m, k, n), a, b, write);
    }
}

fn stream<T: Number>((m, k, n): (usize, usize, usize), a: &[T], b: &[T], write: Write<'_, T::Wide>) {
    let mut sums = [[T::Wide::ZERO; STREAM_COLUMNS]; FEW_ROWS];
    for column in (0..n).step_by(STREAM_COLUMNS) {
        let width = STREAM_COLUMNS.min(n - column);
        for row in sums.iter_mut().take(m) {
            row[..width].fill(T::Wide::ZERO);
        }
        let b_row = |depth: usize| &b[depth * n + column..][..width];
        let whole = k - k % STREAM_DEPTH;
        for depth in (0..whole).step_by(STREAM_DEPTH) {
            let rows: [&[T]; STREAM_DEPTH] = std::array::from_fn(|i| b_row(depth + i));
            for (row, sums) in sums.iter_mut().enumerate().take(m) {
                let x: [T::Wide; STREAM_DEPTH] = std::array::from_fn(|i| a[row * k + depth + i].widen());
                add_rows(&mut sums[..width], x, rows);
            }
        }
        for depth in whole..k {
            for (row, sums) in sums.iter_mut().enumerate().take(m) {
                add_rows(&mut sums[..width], [a[row * k + depth].widen()], [b_row(depth)]);
            }
        }
        for (row, sums) in sums.iter().enumerate().take(m) {
            write(row, column, &sums[..width]);
        }
    }
}

/// sums[j] += x[0] * rows[0][j], then x[1] * rows[1][j], and so on.
#[inline(always)]
fn add_rows<T: Number, const D: usize>(sums: &mut [T::Wide], x: [T::Wide; D], rows: [&[T]; D]) {
    let width = sums.len();
    let rows: [&[T]; D] = rows.map(|row| &row[..width]);
    for j in 0..width {
        let mut sum = sums[j];
        for i in 0..D {
            sum = Scalar::multiply_add(x[i], rows[i][j].widen(), sum);
        }
        sums[j] = sum;
    }
}

fn blocked<T: Number>((m, k, n): (usize, usize, usize), a: &[T], b: &[T], write: Write<'_, T::Wide>) {
    let mut panel = [[T::Wide::ZERO; TILE_COLUMNS]; BLOCK_DEPTH];
    let mut sums = [[T::Wide::ZERO; TILE_COLUMNS]; BLOCK_ROWS];
    for column in (0..n).step_by(TILE_COLUMNS) {
        let width = TILE_COLUMNS.min(n - column);
        for first_row in (0..m).step_by(BLOCK_ROWS) {
            let height = BLOCK_ROWS.min(m - first_row);
            sums.fill([T::Wide::ZERO; TILE_COLUMNS]);
            for first_depth in (0..k).step_by(BLOCK_DEPTH) {
                let depth = BLOCK_DEPTH.min(k - first_depth);
                for (i, packed) in panel.iter_mut().enumerate().take(depth) {
                    let row = &b[(first_depth + i) * n + column..][..width];
                    for (packed, &value) in packed.iter_mut().zip(row) {
                        *packed = value.widen();
                    }
                }
                let a_row = |row: usize| &a[(first_row + row) * k + first_depth..][..depth];
                let whole = height - height % TILE_ROWS;
                for row in (0..whole).step_by(TILE_ROWS) {
                    let rows: [&[T]; TILE_ROWS] = std::array::from_fn(|i| a_row(row + i));
                    add_tile(&mut sums[row..row + TILE_ROWS], rows, &panel[..depth]);
                }
                for row in whole..height {
                    add_tile(&mut sums[row..row + 1], [a_row(row)], &panel[..depth]);
                }
            }
            for (row, sums) in sums.iter().enumerate().take(height) {
                write(first_row + row, column, &sums[..width]);
            }
        }
    }
}

/// sums[r] += sum over d of rows[r][d] * panel[d].
#[inline(always)]
fn add_tile<T: Number, const R: usize>(
    sums: &mut [[T::Wide; TILE_COLUMNS]],
    rows: [&[T]; R],
    panel: &[[T::Wide; TILE_COLUMNS]],
) {
    let mut tile: [[T::Wide; TILE_COLUMNS]; R] = std::array::from_fn(|r| sums[r]);
    let rows: [&[T]; R] = rows.map(|row| &row[..panel.len()]);
    for (d, b) in panel.iter().enumerate() {
        for r in 0..R {
            let x = rows[r][d].widen();
            for (sum, &b) in tile[r].iter_mut().zip(b) {
                *sum = Scalar::multiply_add(x, b, *sum);
            }
        }
    }
    sums.copy_from_slice(&tile);
}
