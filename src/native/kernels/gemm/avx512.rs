//! Tiles of up to twelve rows by two panels of B in vectors of sixteen, for CPUs that have AVX-512.
//!
//! The copies of A and B are those that the narrower loops read, and a sum is the same one: k in
//! ascending order, each product added without being rounded. Twenty-four sums hide the latency of
//! two multiply-adds a cycle, and take fourteen loads, where those of six rows and sixteen columns
//! in narrow vectors take eight for twelve.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers, of several arrays at once"
)]

use std::arch::x86_64::*;

use super::float::{Lines, TILE_COLUMNS, TILE_ROWS};

pub(super) fn is_there() -> bool {
    #[cfg(test)]
    if NARROW_ONLY.get() || super::super::simd::PORTABLE_ONLY.get() {
        return false;
    }
    is_x86_feature_detected!("avx512f")
}

#[cfg(test)]
thread_local! {
    /// Whether tests on this thread want vectors of eight.
    pub(super) static NARROW_ONLY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Some rows of A and some panels of B, copied.
pub(super) struct Block<'a> {
    /// One tile, [depth][rows]; or two of [`TILE_ROWS`], one behind the other.
    pub a: &'a [f32],
    pub rows: usize,
    /// One panel, [depth][[`TILE_COLUMNS`]], or two, one behind the other.
    pub b: &'a [f32],
    pub depth: usize,
    /// What lines that are asked for are counted from.
    pub from: *const i8,
}

impl Block<'_> {
    /// Adds the products to the sums of the rows, [`TILE_COLUMNS`] for each, which are 0 if they are
    /// the `first`; those of the second panel begin `beside` elements after those of the first. Asks for
    /// `lines` on the way, one after the other: there is room for few at a time on their way from
    /// memory.
    ///
    /// # Safety
    /// [`is_there`].
    pub unsafe fn add(&self, sums: &mut [f32], beside: usize, first: bool, lines: Lines) {
        let panel = self.depth * TILE_COLUMNS;
        let panels = if self.b.len() > panel { 2 } else { 1 };
        assert!(self.a.len() >= self.depth * self.rows && self.b.len() >= panels * panel);
        assert!(sums.len() >= (panels - 1) * beside + self.rows * TILE_COLUMNS);
        const { assert!(TILE_ROWS == 6 && TILE_COLUMNS == 16) };
        macro_rules! by_rows {
            ($panels:literal) => {
                match self.rows {
                    0 => {}
                    1 => self.add_tiles::<1, 1, $panels>(sums, beside, first, lines),
                    2 => self.add_tiles::<1, 2, $panels>(sums, beside, first, lines),
                    3 => self.add_tiles::<1, 3, $panels>(sums, beside, first, lines),
                    4 => self.add_tiles::<1, 4, $panels>(sums, beside, first, lines),
                    5 => self.add_tiles::<1, 5, $panels>(sums, beside, first, lines),
                    6 => self.add_tiles::<1, 6, $panels>(sums, beside, first, lines),
                    rows => {
                        assert!(rows == 2 * TILE_ROWS);
                        self.add_tiles::<2, 6, $panels>(sums, beside, first, lines);
                    }
                }
            };
        }
        // SAFETY: the caller's word on the CPU; lengths as just checked.
        unsafe {
            match panels {
                1 => by_rows!(1),
                _ => by_rows!(2),
            }
        }
    }

    /// # Safety
    /// The CPU has AVX-512; T tiles of R rows, and P panels, have the lengths of [`Self::add`].
    #[target_feature(enable = "avx512f")]
    unsafe fn add_tiles<const T: usize, const R: usize, const P: usize>(
        &self,
        sums: &mut [f32],
        beside: usize,
        first: bool,
        mut lines: Lines,
    ) {
        let (a, b, sums) = (self.a.as_ptr(), self.b.as_ptr(), sums.as_mut_ptr());
        let at = |t: usize, r: usize, p: usize| p * beside + (t * R + r) * TILE_COLUMNS;
        let each = (self.depth / lines.len().max(1)).max(1);
        let mut tile = [[[_mm512_setzero_ps(); P]; R]; T];
        // SAFETY: the caller's word: each panel has `depth` times sixteen elements, each tile `depth`
        // times R, and there are sixteen sums for each row and panel.
        unsafe {
            if !first {
                for t in 0..T {
                    for r in 0..R {
                        for p in 0..P {
                            tile[t][r][p] = _mm512_loadu_ps(sums.add(at(t, r, p)));
                        }
                    }
                }
            }
            let mut depths = 0..0;
            while depths.end < self.depth {
                depths.start = depths.end;
                depths.end = match lines.next() {
                    Some(line) => {
                        _mm_prefetch::<_MM_HINT_T1>(self.from.wrapping_add(line));
                        self.depth.min(depths.start + each)
                    }
                    None => self.depth,
                };
                for d in depths.clone() {
                    let mut columns = [_mm512_setzero_ps(); P];
                    for p in 0..P {
                        columns[p] = _mm512_loadu_ps(b.add((p * self.depth + d) * TILE_COLUMNS));
                    }
                    for t in 0..T {
                        for r in 0..R {
                            let x = _mm512_set1_ps(*a.add((t * self.depth + d) * R + r));
                            for p in 0..P {
                                tile[t][r][p] = _mm512_fmadd_ps(x, columns[p], tile[t][r][p]);
                            }
                        }
                    }
                }
            }
            for line in lines {
                _mm_prefetch::<_MM_HINT_T1>(self.from.wrapping_add(line));
            }
            for t in 0..T {
                for r in 0..R {
                    for p in 0..P {
                        _mm512_storeu_ps(sums.add(at(t, r, p)), tile[t][r][p]);
                    }
                }
            }
        }
    }
}
