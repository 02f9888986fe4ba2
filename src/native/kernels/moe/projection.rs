//! One projection of the experts of MoE: rows of weights as they are given, or packed.

use crate::native::ending;
use crate::native::kernels::attend::dot;
use crate::native::kernels::block_quantized::{BlockQuantized, unpack};
use crate::native::kernels::columns::Columns;
use crate::native::kernels::number::{Float, Scalar};
use crate::native::kernels::packed_weights::{COLUMNS, PackedWeights, Records, Rows as PackedRows, product};
use crate::native::tensor::{as_bytes_mut, as_elements_mut};
use crate::native::workers::Workers;

pub(super) enum Rows<'a, T> {
    Plain(&'a [T]),
    Quantized {
        blocks: BlockQuantized<'a, T>,
        /// Zero points packed over the rows of each expert, and the bytes of an expert.
        row_points: Option<(&'a [u8], usize)>,
    },
    /// The rows of each expert filled up to whole panels.
    Packed(&'a PackedWeights),
}

/// The weights of one projection of every expert.
pub(super) struct Projection<'a, T> {
    pub experts: usize,
    pub rows: usize,
    pub depth: usize,
    pub weights: Rows<'a, T>,
    pub bias: Option<&'a [T]>,
}

impl<T: Float> Projection<'_, T> {
    /// Elements of working memory for so many tokens.
    pub fn room(&self, tokens: usize) -> usize {
        match &self.weights {
            // Of f32, which are no larger.
            Rows::Packed(packed) => tokens.saturating_mul(Records::new(packed, false).room()),
            Rows::Plain(_) | Rows::Quantized { .. } => self.depth,
        }
    }

    /// to[i, row] = W[expert][row] x[i] + b[expert][row] for the tokens in `x`, rows of `depth`.
    pub fn apply<'x>(
        &self,
        workers: &Workers,
        expert: usize,
        (x, tokens): (&(dyn Fn(usize) -> &'x [T::Wide] + Sync), usize),
        room: &mut [T::Wide],
        to: &mut [T::Wide],
    ) {
        if let Rows::Packed(packed) = self.weights {
            return self.apply_packed(workers, packed, expert, (x, tokens), room, to);
        }
        let weights = &mut room[..self.depth];
        for row in 0..self.rows {
            let at = expert * self.rows + row;
            match &self.weights {
                Rows::Plain(all) => {
                    for (to, x) in weights.iter_mut().zip(&all[at * self.depth..]) {
                        *to = x.widen();
                    }
                }
                Rows::Packed(_) => {}
                Rows::Quantized { blocks, row_points } => {
                    blocks.dequantize_row(at, weights);
                    if let Some((points, bytes)) = row_points {
                        let point = unpack(&points[expert * bytes..], blocks.bits, row);
                        // The row was read as if its zero point were 0.
                        let shift = T::Wide::from_f64(f64::from(point)).mul(blocks.scales[at].widen());
                        weights.iter_mut().for_each(|w| *w = w.sub(shift));
                    }
                }
            }
            let bias = self.bias.map_or(T::Wide::ZERO, |bias| bias[at].widen());
            ending::count(self.depth);
            for i in 0..tokens {
                ending::count(self.depth);
                to[i * self.rows + row] = dot(weights, x(i)).add(bias);
            }
        }
    }

    fn apply_packed<'x>(
        &self,
        workers: &Workers,
        packed: &PackedWeights,
        expert: usize,
        (x, tokens): (&(dyn Fn(usize) -> &'x [T::Wide] + Sync), usize),
        room: &mut [T::Wide],
        to: &mut [T::Wide],
    ) {
        let records = Records::new(packed, false);
        let convert = |token: usize, to: &mut [f32]| {
            for (to, x) in to.iter_mut().zip(x(token)) {
                *to = x.to_f64() as f32;
            }
        };
        let room = as_elements_mut::<f32>(as_bytes_mut(room)).unwrap_or_default();
        let room = &mut room[..tokens * records.room()];
        let panels = self.rows.div_ceil(COLUMNS);
        let first = expert * panels;
        let to = Columns::new(&mut to[..tokens * self.rows], self.rows);
        let given = (PackedRows::Converted(&convert), tokens);
        product(
            workers,
            &records,
            given,
            first..first + panels,
            room,
            &|token, column, sums| {
                let row = column - first * COLUMNS;
                let sums = &sums[..sums.len().min(self.rows - row)];
                let value = |row: usize, sum: f32| {
                    let bias = self
                        .bias
                        .map_or(T::Wide::ZERO, |bias| bias[expert * self.rows + row].widen());
                    T::Wide::from_f64(sum.into()).add(bias)
                };
                // SAFETY: `product` gives each panel to one thread.
                unsafe { to.write(token, row, sums, value) };
            },
        );
    }
}
