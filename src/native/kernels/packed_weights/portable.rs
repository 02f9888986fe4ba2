//! The product in plain Rust: the definition of what the other variants compute, but for rounding.

use super::layout::{COLUMNS, Format};
use super::{Panel, PanelPoints, Tile};

/// An element of A, and the type in which products of a run are summed.
pub(super) trait Code: Copy {
    type Sum: Copy + Default;

    fn multiply_add(self, code: i32, sum: Self::Sum) -> Self::Sum;
    fn to_f32(sum: Self::Sum) -> f32;
}

impl Code for f32 {
    type Sum = f32;

    #[inline(always)]
    fn multiply_add(self, code: i32, sum: f32) -> f32 {
        sum + self * code as f32
    }

    #[inline(always)]
    fn to_f32(sum: f32) -> f32 {
        sum
    }
}

macro_rules! integer_codes {
    ($($t:ident)+) => { $(
        impl Code for $t {
            type Sum = i32;

            #[inline(always)]
            fn multiply_add(self, code: i32, sum: i32) -> i32 {
                sum.wrapping_add(i32::from(self).wrapping_mul(code))
            }

            #[inline(always)]
            fn to_f32(sum: i32) -> f32 {
                sum as f32
            }
        }
    )+ };
}

integer_codes! { i8 i16 }

pub(super) fn tile<T: Code>(format: Format, panel: &Panel<'_>, a: &Tile<'_, T>, sums: &mut [[f32; COLUMNS]]) {
    // Codes of fewer bits that are multiplied by bytes are unsigned.
    let is_float = a.scales.is_empty();
    match format {
        Format::Crumbs if is_float => tile_as::<T, 4, 2, true>(panel, a, sums),
        Format::Crumbs => tile_as::<T, 4, 2, false>(panel, a, sums),
        Format::Nibbles if is_float => tile_as::<T, 4, 4, true>(panel, a, sums),
        Format::Nibbles => tile_as::<T, 4, 4, false>(panel, a, sums),
        Format::Quads => tile_as::<T, 4, 8, true>(panel, a, sums),
        Format::Pairs => tile_as::<T, 2, 8, true>(panel, a, sums),
        Format::Bytes => tile_as::<T, 1, 8, true>(panel, a, sums),
    }
}

fn tile_as<T: Code, const LANE: usize, const BITS: usize, const SIGNED: bool>(
    panel: &Panel<'_>,
    a: &Tile<'_, T>,
    sums: &mut [[f32; COLUMNS]],
) {
    let run_bytes = a.run * COLUMNS * BITS / 8;
    for (r, sums) in sums.iter_mut().enumerate() {
        for (run, codes) in panel.codes.chunks_exact(run_bytes.max(1)).enumerate() {
            let x = &a.codes[r * a.stride + run * a.run..][..a.run];
            let mut inner = [T::Sum::default(); COLUMNS];
            let steps = x.chunks_exact(LANE * 8 / BITS);
            for (x, codes) in steps.zip(codes.chunks_exact(LANE * COLUMNS)) {
                for (part, x) in x.chunks_exact(LANE).enumerate() {
                    for (column, inner) in inner.iter_mut().enumerate() {
                        let lane = &codes[column * LANE..][..LANE];
                        for (&byte, &x) in lane.iter().zip(x) {
                            let top = byte << (8 - BITS * (part + 1));
                            let code = match SIGNED {
                                true => i32::from(top as i8) >> (8 - BITS),
                                false => i32::from(top) >> (8 - BITS),
                            };
                            *inner = x.multiply_add(code, *inner);
                        }
                    }
                }
            }
            let block = run * a.run / panel.block_len;
            let a_scale = a.scales.get(r * a.beside + run).copied().unwrap_or(1.0);
            let a_sum = a.sums.get(r * a.beside + run).copied().unwrap_or(0.0);
            for (column, (sum, inner)) in sums.iter_mut().zip(inner).enumerate() {
                let at = block * COLUMNS + column;
                let point = match panel.points {
                    PanelPoints::All(point) => point,
                    PanelPoints::Whole(points) => f32::from(points[at]),
                    PanelPoints::Float(points) => points[at],
                };
                *sum += (T::to_f32(inner) - point * a_sum) * (panel.scales[at] * a_scale);
            }
        }
    }
}

/// Words times words; see `multiply_words`.
pub(super) fn exact(codes: &[u8], (a, stride): (&[i16], usize), sums: &mut [[i32; COLUMNS]]) {
    for (sums, row) in sums.iter_mut().zip(a.chunks(stride.max(1))) {
        for (x, codes) in row.chunks_exact(2).zip(codes.chunks_exact(2 * COLUMNS)) {
            for (sum, codes) in sums.iter_mut().zip(codes.chunks_exact(2)) {
                for (&x, &code) in x.iter().zip(codes) {
                    *sum = x.multiply_add(i32::from(code as i8), *sum);
                }
            }
        }
    }
}
