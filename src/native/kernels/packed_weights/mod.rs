//! Y = A W^T for weights of 2 to 8 bits that were packed once.
//!
//!   y[m, n] = sum over blocks b of scale[n, b] * (sum over i in b of a[m, i] * (code[n, i] - point[n, b]))
//!
//! In integers a[m, i] is q[m, i] * scale[m, run], see `activations`, and the inner sum is exact.
//! Sums run over the blocks in their order, one column beside the other, so that a result does not
//! depend on how columns are shared out to threads.
//!
//! Floors, on one core of a Zen 3 (AVX2, 2.9 GHz; two multiplications of 32 bytes a cycle) that reads
//! 9 to 12.5 GB/s from memory and is shared, so that only figures of one minute compare:
//!
//!   A few rows: every byte of the weights is read once. 4 bits with blocks of 32 take 20 bytes a
//!   block. In integers 10.3 to 11.4 GB/s, 0.85 of the read rate and more; from the third-level cache
//!   33 GB/s with 4 bits and 45 with 8, so that it is memory that bounds. In floats 7 (9 from cache):
//!   three instructions make 8 codes floats.
//!   Many rows: 32 products take `vpmaddubsw`, `vpaddw` and a share of what ends a run (5.5
//!   instructions for 256 products), at four a cycle 125 G products/s; 75 to 82 are reached (ONNX
//!   Runtime: 29 to 33 in the same minutes). With 8 bits 32 products take `vpsignb`, `vpmaddubsw`,
//!   `vpmaddwd` and `vpaddd`. In floats the multiply-adds alone allow 46; 36 to 40 reached (35 to 40).
//!
//! With VNNI 64 products are one instruction. On one core of a Zen 4, which starts one of 64 bytes
//! a cycle, about 225 G products/s; in the products of a model of 0.5 G parameters with 128 rows
//! 130 are reached with 4 bits, of which what ends a run (three instructions for eight and a row)
//! takes a quarter.

mod activations;
mod array;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dense;
mod lanes;
mod layout;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;
mod pack;
mod portable;
mod prepare;
mod product;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use self::activations::{Activations, Codes, Records, Rows};
use self::dense::Dense;
pub use self::layout::{Arithmetic, COLUMNS, Format, LAYOUT_VERSION, PackedWeights, Points};
pub use self::pack::{Source, SourceCodes, SourcePoints};
pub use self::prepare::prepare;
pub use self::product::product;

/// An allocation that failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutOfMemory {
    pub bytes: usize,
}

/// Rows of Y that share a pass over a panel, at most.
const MOST_TILE_ROWS: usize = 8;

/// From this many rows on it pays to make floats of a panel first.
const DENSE_FROM: usize = 12;
/// Panels that are multiplied with one tile of A before the next tile stay in the second-level
/// cache.
const GROUP_BYTES: usize = 128 << 10;

/// A panel of the weights.
#[derive(Clone, Copy, Debug)]
struct Panel<'a> {
    codes: &'a [u8],
    /// [blocks, COLUMNS], and so are points.
    scales: &'a [f32],
    points: PanelPoints<'a>,
    block_len: usize,
}

#[derive(Clone, Copy, Debug)]
enum PanelPoints<'a> {
    All(f32),
    Whole(&'a [i8]),
    Float(&'a [f32]),
}

impl PackedWeights {
    fn view(&self, panel: usize) -> Panel<'_> {
        let len = self.blocks * COLUMNS;
        let at = panel * len;
        Panel {
            codes: self.panel(panel),
            scales: &self.scales[at..][..len],
            points: match &self.points {
                Points::All(point) => PanelPoints::All(*point),
                Points::Whole(points) => PanelPoints::Whole(&points[at..][..len]),
                Points::Float(points) => PanelPoints::Float(&points[at..][..len]),
            },
            block_len: self.block_len,
        }
    }
}

/// Rows of A, from the first of a tile on; see [`Activations`].
#[derive(Clone, Copy, Debug)]
struct Tile<'a, T> {
    codes: &'a [T],
    stride: usize,
    scales: &'a [f32],
    sums: &'a [f32],
    beside: usize,
    depth: usize,
    run: usize,
}

impl<'a, T> Tile<'a, T> {
    fn new(a: &Activations<'a>, codes: &'a [T], row: usize) -> Self {
        Tile {
            codes: codes.get(row * a.stride..).unwrap_or_default(),
            stride: a.stride,
            scales: a.scales.get(row * a.beside..).unwrap_or_default(),
            sums: a.sums.get(row * a.beside..).unwrap_or_default(),
            beside: a.beside,
            depth: a.depth,
            run: a.run,
        }
    }

    /// Whether there is a sum for each run of `rows`.
    fn has_sums(&self, rows: usize) -> bool {
        let runs = self.depth / self.run.max(1);
        self.sums.len() >= rows.saturating_sub(1) * self.beside + runs
    }

    /// Whether the slices have what a product of `rows` of them with a panel reads.
    fn fits(&self, panel: &Panel<'_>, rows: usize, format: Format) -> bool {
        let blocks = panel.scales.len() / COLUMNS;
        let before = rows.saturating_sub(1);
        let has_sums = self.has_sums(rows);
        let points = match panel.points {
            PanelPoints::All(0.0) => true,
            PanelPoints::All(_) => has_sums,
            PanelPoints::Whole(points) => has_sums && points.len() == panel.scales.len(),
            PanelPoints::Float(points) => has_sums && points.len() == panel.scales.len(),
        };
        points
            && self.depth == blocks * panel.block_len
            && panel.block_len.is_multiple_of(self.run.max(1))
            && self.run.is_multiple_of(16)
            && self.codes.len() >= before * self.stride + self.depth
            && panel.codes.len() == self.depth / format.step() * format.step_bytes()
    }

    /// The same for products of integers.
    fn fits_with_scales(&self, panel: &Panel<'_>, rows: usize, format: Format) -> bool {
        let runs = self.depth / self.run.max(1);
        let scales = rows.saturating_sub(1) * self.beside + runs;
        self.fits(panel, rows, format) && self.scales.len() >= scales
    }
}

/// Which instructions are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    #[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "used by tests alone"))]
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// With VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    Neon,
    /// With the dot products of bytes that ARMv8.2 has.
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    NeonDot,
}

impl Instructions {
    /// The best that this CPU has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return match avx512::is_there() {
                true => Instructions::Avx512,
                false => Instructions::Avx2,
            };
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        return match std::arch::is_aarch64_feature_detected!("dotprod") {
            true => Instructions::NeonDot,
            false => Instructions::Neon,
        };
        #[cfg(not(all(target_arch = "aarch64", target_feature = "neon")))]
        Instructions::Portable
    }

    /// Rows of Y that share a pass over a panel: what there are registers for.
    fn tile_rows(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => const { at_most(avx512::TILE_ROWS) },
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => const { at_most(avx2::TILE_ROWS) },
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            Instructions::Neon | Instructions::NeonDot => const { at_most(neon::TILE_ROWS) },
            Instructions::Portable => 4,
        }
    }
}

/// A number of rows for which there is room.
const fn at_most(rows: usize) -> usize {
    assert!(rows <= MOST_TILE_ROWS);
    rows
}

/// Computes the columns of some panels: `emit` gets a row, its first column of a panel, and the
/// values from there on, as many as Y has.
pub fn multiply(
    instructions: Instructions,
    weights: &PackedWeights,
    a: &Activations<'_>,
    panels: Range<usize>,
    emit: &mut dyn FnMut(usize, usize, &[f32]),
) {
    if let (Some(dense), Codes::Floats(codes)) = (dense(instructions), a.codes)
        && a.rows >= DENSE_FROM
    {
        return dense.multiply(weights, a, codes, panels, emit);
    }
    let tiles = a.rows.div_ceil(instructions.tile_rows()).max(1);
    let height = a.rows.div_ceil(tiles).max(1);
    let group = (GROUP_BYTES / weights.panel_bytes().max(1)).max(1);
    for first in panels.clone().step_by(group) {
        let group = first..(first + group).min(panels.end);
        for row in (0..a.rows).step_by(height) {
            let height = height.min(a.rows - row);
            for panel in group.clone() {
                let mut sums = [[0.0; COLUMNS]; MOST_TILE_ROWS];
                let view = weights.view(panel);
                multiply_tile(instructions, weights.format, &view, a, row, &mut sums[..height]);
                let column = panel * COLUMNS;
                let width = COLUMNS.min(weights.n - column);
                for (i, sums) in sums.iter().enumerate().take(height) {
                    emit(row + i, column, &sums[..width]);
                }
            }
        }
    }
}

/// Exact sums, which wrap, of words times the codes of [`Source::of_words`]: `a` is
/// rows of `depth` that are `stride` apart, zeros where the depth is more than K.
pub fn multiply_words(
    instructions: Instructions,
    weights: &PackedWeights,
    (a, rows, stride): (&[i16], usize, usize),
    panels: Range<usize>,
    emit: &mut dyn FnMut(usize, usize, &[i32]),
) {
    debug_assert!(weights.format == Format::Pairs);
    let group = (GROUP_BYTES / weights.panel_bytes().max(1)).max(1);
    let tile_rows = instructions.tile_rows();
    for first in panels.clone().step_by(group) {
        let group = first..(first + group).min(panels.end);
        for row in (0..rows).step_by(tile_rows) {
            let height = tile_rows.min(rows - row);
            let a = &a[row * stride..];
            for panel in group.clone() {
                let mut sums = [[0; COLUMNS]; MOST_TILE_ROWS];
                let codes = weights.panel(panel);
                match instructions {
                    Instructions::Portable => portable::exact(codes, (a, stride), &mut sums[..height]),
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx2 => avx2::exact(codes, (a, stride), &mut sums[..height]),
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx512 => avx512::exact(codes, (a, stride), &mut sums[..height]),
                    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
                    Instructions::Neon | Instructions::NeonDot => {
                        neon::exact(codes, (a, stride), &mut sums[..height]);
                    }
                }
                let column = panel * COLUMNS;
                let width = COLUMNS.min(weights.n - column);
                for (i, sums) in sums.iter().enumerate().take(height) {
                    emit(row + i, column, &sums[..width]);
                }
            }
        }
    }
}

fn dense(instructions: Instructions) -> Option<&'static Dense> {
    match instructions {
        Instructions::Portable => None,
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => Some(&avx2::DENSE),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => Some(&avx512::DENSE),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Instructions::Neon | Instructions::NeonDot => Some(&neon::DENSE),
    }
}

fn multiply_tile(
    instructions: Instructions,
    format: Format,
    panel: &Panel<'_>,
    a: &Activations<'_>,
    row: usize,
    sums: &mut [[f32; COLUMNS]],
) {
    match (instructions, a.codes) {
        (Instructions::Portable, Codes::Floats(codes)) => {
            portable::tile(format, panel, &Tile::new(a, codes, row), sums);
        }
        (Instructions::Portable, Codes::Bytes(codes)) => {
            portable::tile(format, panel, &Tile::new(a, codes, row), sums);
        }
        #[cfg(target_arch = "x86_64")]
        (Instructions::Avx2, Codes::Floats(codes)) => {
            avx2::floats(format, panel, &Tile::new(a, codes, row), sums);
        }
        #[cfg(target_arch = "x86_64")]
        (Instructions::Avx2, Codes::Bytes(codes)) => {
            avx2::bytes(format, panel, &Tile::new(a, codes, row), sums);
        }
        #[cfg(target_arch = "x86_64")]
        (Instructions::Avx512, Codes::Floats(codes)) => {
            avx512::floats(format, panel, &Tile::new(a, codes, row), sums);
        }
        #[cfg(target_arch = "x86_64")]
        (Instructions::Avx512, Codes::Bytes(codes)) => {
            avx512::bytes(format, panel, &Tile::new(a, codes, row), sums);
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        (Instructions::Neon | Instructions::NeonDot, Codes::Floats(codes)) => {
            neon::floats(format, panel, &Tile::new(a, codes, row), sums);
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        (Instructions::Neon, Codes::Bytes(codes)) => {
            neon::bytes(format, panel, &Tile::new(a, codes, row), sums);
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        (Instructions::NeonDot, Codes::Bytes(codes)) => {
            neon::bytes_dot(format, panel, &Tile::new(a, codes, row), sums);
        }
    }
}
