//! Products with many rows of floats: the codes of a panel become floats once for all of them.

use std::ops::Range;

use super::layout::{COLUMNS, Format, PackedWeights};
use super::{Activations, Panel, Tile};

/// Elements along K that are made floats at a time: 16 KiB of a panel.
const DENSE_DEPTH: usize = 256;
/// Rows that share them.
const DENSE_ROWS: usize = 96;
/// Weights, rows of A with their stride, and sums.
type AddTile = fn(&[[f32; COLUMNS]], &[f32], usize, &mut [[f32; COLUMNS]]);

/// What it takes from a set of instructions.
pub(super) struct Dense {
    /// (code - point) * scale for the elements from one on, of a panel that a tile [fits](Tile::fits).
    pub unpack: fn(Format, &Panel<'_>, usize, &mut [[f32; COLUMNS]]),
    /// Rows that are multiplied together: what there are registers for.
    pub tile_rows: usize,
    /// Adds the products of up to so many rows, which are so far apart, with such weights.
    pub tile: AddTile,
}

impl Dense {
    /// As [`multiply`](super::multiply).
    pub fn multiply(
        &self,
        weights: &PackedWeights,
        a: &Activations<'_>,
        codes: &[f32],
        panels: Range<usize>,
        emit: &mut dyn FnMut(usize, usize, &[f32]),
    ) {
        for panel in panels {
            let column = panel * COLUMNS;
            let width = COLUMNS.min(weights.n - column);
            let view = weights.view(panel);
            for row in (0..a.rows).step_by(DENSE_ROWS) {
                let mut sums = [[0.0; COLUMNS]; DENSE_ROWS];
                let sums = &mut sums[..DENSE_ROWS.min(a.rows - row)];
                self.add(weights.format, &view, &Tile::new(a, codes, row), sums);
                for (i, sums) in sums.iter().enumerate() {
                    emit(row + i, column, &sums[..width]);
                }
            }
        }
    }

    /// Adds the products of up to [`DENSE_ROWS`] rows with a panel.
    fn add(&self, format: Format, panel: &Panel<'_>, a: &Tile<'_, f32>, sums: &mut [[f32; COLUMNS]]) {
        assert!(a.fits(panel, sums.len(), format));
        let mut weights = [[0.0f32; COLUMNS]; DENSE_DEPTH];
        for first in (0..a.depth).step_by(DENSE_DEPTH) {
            let weights = &mut weights[..DENSE_DEPTH.min(a.depth - first)];
            (self.unpack)(format, panel, first, weights);
            for (tile, sums) in sums.chunks_mut(self.tile_rows).enumerate() {
                let rows = &a.codes[tile * self.tile_rows * a.stride + first..];
                (self.tile)(weights, rows, a.stride, sums);
            }
        }
    }
}
