//! The parts of a product in tiles of up to twelve rows by two panels of B, in vectors of sixteen, for
//! CPUs that have AVX-512.
//!
//! Twenty-four sums hide the latency of two multiply-adds a cycle, and take fourteen loads, where
//! those of six rows and sixteen columns in narrow vectors take eight for twelve. The first tile of
//! rows reads B where it lies, and leaves the copy that the others read; what comes next is fetched
//! from memory meanwhile, a line at a time, as there is room for few on their way. A sum is that of the
//! narrow loops: k in ascending order, each product added without being rounded.
//!
//! Measured in a model of 0.5 G parameters with 512 rows, on two cores of a Zen 4: the tiles take 0.75
//! of the time, at the rate of multiply-adds. Of pairs of bf16 they take 0.6 of the time of f32 there,
//! where a multiply-add of pairs takes no longer than one of f32.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers, of several arrays at once"
)]

use std::arch::x86_64::*;
use std::sync::LazyLock;

use super::float::{B_ROOM, BLOCK_DEPTH, LINE_BYTES, PANELS, Panels, TILE_COLUMNS, TILE_ROWS, Tiled, Tiles};
use super::unit::Unit;

/// Panels that are multiplied together.
const TOGETHER: usize = 2;

pub(super) fn is_there() -> bool {
    #[cfg(test)]
    if NARROW_ONLY.get() || super::super::simd::PORTABLE_ONLY.get() {
        return false;
    }
    is_x86_feature_detected!("avx512f")
}

/// Whether products of pairs of bf16 are there, and fast. Intel's CPUs take twice as long for them as
/// for the multiply-adds of f32 that they replace; AMD's take the same time for twice the products.
pub(super) fn has_pairs() -> bool {
    static IS_AMD: LazyLock<bool> = LazyLock::new(|| {
        let vendor = __cpuid(0);
        let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        name.as_flattened() == b"AuthenticAMD"
    });
    is_there() && is_x86_feature_detected!("avx512bf16") && *IS_AMD
}

#[cfg(test)]
thread_local! {
    /// Whether tests on this thread want vectors of eight.
    pub(super) static NARROW_ONLY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Gives the sums of a part away.
///
/// # Safety
/// [`is_there`], and for pairs [`has_pairs`].
pub(super) unsafe fn multiply<A: Unit, B: Unit>(part: Tiled<'_, '_, A, B>) {
    let Tiled {
        product,
        group,
        a,
        rows,
        columns,
        room,
    } = part;
    let (_, k, _) = product.sizes;
    let (copy, sums) = room.split_at_mut(B_ROOM);
    // [panel][row][16]
    let panel_sums = rows.len() * TILE_COLUMNS;
    let sums = &mut sums[..columns.len().div_ceil(TILE_COLUMNS) * panel_sums];
    // What is asked for at a time: rows of memory long enough for it to be fast.
    let wide = PANELS * TILE_COLUMNS;
    let across = columns.len().div_ceil(wide);
    let panels_at = |index: usize| {
        let depth = index / across * BLOCK_DEPTH;
        let column = columns.start + index % across * wide;
        Panels {
            b: product.b,
            sizes: product.sizes,
            depths: depth..k.min(depth + BLOCK_DEPTH),
            columns: column..columns.end.min(column + wide),
        }
    };
    let tiles = Tiles(rows.len());
    let count = k.div_ceil(BLOCK_DEPTH) * across;
    if count == 0 {
        sums.fill(0.0);
    } else {
        let mut lines = Lines::new(&panels_at(0));
        while lines.left > 0 {
            lines.ask();
        }
    }
    for index in 0..count {
        let now = panels_at(index);
        let depth = now.depths.len();
        let a = &a[now.depths.start * group.len() + rows.start * depth..][..rows.len() * depth];
        let mut lines = match index + 1 < count {
            true => Lines::new(&panels_at(index + 1)),
            false => Lines::default(),
        };
        let pairs = now.columns.len().div_ceil(TOGETHER * TILE_COLUMNS);
        let each = lines.left.div_ceil(pairs * tiles.count().div_ceil(2));
        for first in now.columns.clone().step_by(TOGETHER * TILE_COLUMNS) {
            let pair = Panels {
                columns: first..now.columns.end.min(first + TOGETHER * TILE_COLUMNS),
                ..now.clone()
            };
            let count = pair.columns.len().div_ceil(TILE_COLUMNS);
            let copy = &mut copy[..count * depth * TILE_COLUMNS];
            let sums = &mut sums[(first - columns.start) / TILE_COLUMNS * panel_sums..][..count * panel_sums];
            let is_first = now.depths.start == 0;
            let mut fresh = Fresh::of(&pair);
            if fresh.is_none() {
                pair.copy_all(copy);
            }
            let mut tile = 0;
            while tile < tiles.count() {
                let mut rows = tiles.rows(tile);
                tile += 1;
                // Two tiles, if both are of full height.
                if rows.len() == TILE_ROWS && tile < tiles.count() && tiles.rows(tile).len() == TILE_ROWS {
                    rows.end = tiles.rows(tile).end;
                    tile += 1;
                }
                let block = Block {
                    a: &a[rows.start * depth..rows.end * depth],
                    rows: rows.len(),
                    depth,
                    panels: count,
                };
                let pass = Pass {
                    copy,
                    sums: &mut sums[rows.start * TILE_COLUMNS..],
                    beside: panel_sums,
                    first: is_first,
                    lines: &mut lines,
                    each,
                };
                // SAFETY: the caller's word.
                unsafe {
                    match fresh.take() {
                        Some(fresh) => block.add::<B>(fresh, pass),
                        None => block.add::<B>(Copied, pass),
                    }
                }
            }
        }
    }
    // What there was of B is not needed any more.
    product.write_rows(group.start + rows.start, rows.len(), columns, sums, copy);
}

/// Cache lines of rows of equal length.
#[derive(Default)]
struct Lines {
    row: usize,
    stride: usize,
    /// Of a row.
    each: usize,
    line: usize,
    left: usize,
}

impl Lines {
    /// Those of B from which panels are copied; there may be some behind its end.
    fn new<B: Unit>(panels: &Panels<'_, B>) -> Self {
        let (_, k, n) = panels.sizes;
        let (depths, columns) = (&panels.depths, &panels.columns);
        let size = size_of::<B>();
        // In bytes, but for the rows.
        let (first, stride, rows, len) = match panels.b.transposed {
            true => (
                (columns.start * k + depths.start) * size,
                k * size,
                columns.len(),
                depths.len() * size,
            ),
            false => {
                let stride = n * (size / B::DEPTHS);
                let first = columns.start * (size / B::DEPTHS);
                let len = columns.len() * (size / B::DEPTHS);
                (
                    depths.start * n * size + first,
                    stride,
                    depths.len() * B::DEPTHS,
                    len,
                )
            }
        };
        let each = len.div_ceil(LINE_BYTES);
        Lines {
            row: panels.b.elements.as_ptr().addr().wrapping_add(first),
            stride,
            each,
            line: 0,
            left: rows * each,
        }
    }

    /// Asks for the next one, if there is one.
    #[inline(always)]
    fn ask(&mut self) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        if self.line == self.each {
            (self.line, self.row) = (0, self.row.wrapping_add(self.stride));
        }
        let at = std::ptr::without_provenance(self.row.wrapping_add(self.line * LINE_BYTES));
        self.line += 1;
        // SAFETY: a prefetch of any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at) }
    }
}

/// Where columns of B are read.
trait Columns: Copy {
    /// Sixteen elements of a row of a panel, of which `copy` is.
    ///
    /// # Safety
    /// The panel and its copy have such a row, and the CPU has AVX-512.
    unsafe fn load(self, panel: usize, depth: usize, copy: *mut f32) -> __m512;
}

#[derive(Clone, Copy)]
struct Copied;

impl Columns for Copied {
    #[inline(always)]
    unsafe fn load(self, _: usize, _: usize, copy: *mut f32) -> __m512 {
        // SAFETY: the caller's word.
        unsafe { _mm512_loadu_ps(copy) }
    }
}

/// Where they lie in B, by its rows. They are copied on the way.
struct Fresh<B> {
    rows: *const B,
    /// Of the matrix.
    columns: usize,
    first: usize,
}

impl<B> Clone for Fresh<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Fresh<B> {}

impl<B: Unit> Fresh<B> {
    /// If it is two whole panels.
    fn of(panels: &Panels<'_, B>) -> Option<Self> {
        let (_, _, n) = panels.sizes;
        if panels.b.transposed || panels.columns.len() != TOGETHER * TILE_COLUMNS {
            return None;
        }
        let rows = panels.depths.start * n..panels.depths.end * n;
        Some(Fresh {
            rows: panels.b.elements.get(rows)?.as_ptr(),
            columns: n,
            first: panels.columns.start,
        })
    }
}

impl<B: Unit> Columns for Fresh<B> {
    #[inline(always)]
    unsafe fn load(self, panel: usize, depth: usize, copy: *mut f32) -> __m512 {
        // SAFETY: the caller's word.
        unsafe {
            let row = self.rows.add(depth * self.columns);
            let columns = B::wide_words(row, self.columns, self.first + panel * TILE_COLUMNS);
            _mm512_storeu_ps(copy, columns);
            columns
        }
    }
}

/// Some rows of A, copied, and some panels of B.
struct Block<'a> {
    /// One tile, [depth][rows]; or two of [`TILE_ROWS`], one behind the other.
    a: &'a [f32],
    rows: usize,
    depth: usize,
    panels: usize,
}

/// Where the products of a block go.
struct Pass<'a> {
    /// Of the columns, [panel][depth][16].
    copy: &'a mut [f32],
    /// Of the rows, [`TILE_COLUMNS`] for each; taken for 0 if they are the `first`.
    sums: &'a mut [f32],
    /// The sums of the second panel begin so many elements after those of the first.
    beside: usize,
    first: bool,
    /// Asked for `each` at a time on the way.
    lines: &'a mut Lines,
    each: usize,
}

impl Block<'_> {
    /// Adds the products to the sums.
    ///
    /// # Safety
    /// [`is_there`], and the columns have as many panels and rows.
    unsafe fn add<U: Unit>(&self, columns: impl Columns, pass: Pass<'_>) {
        assert!(
            self.a.len() == self.depth * self.rows
                && pass.copy.len() == self.panels * self.depth * TILE_COLUMNS
        );
        assert!(pass.sums.len() >= (self.panels - 1) * pass.beside + self.rows * TILE_COLUMNS);
        const { assert!(TILE_ROWS == 6 && TILE_COLUMNS == 16) };
        macro_rules! by_rows {
            ($panels:literal) => {
                match self.rows {
                    0 => {}
                    1 => self.add_tiles::<U, 1, 1, $panels>(columns, pass),
                    2 => self.add_tiles::<U, 1, 2, $panels>(columns, pass),
                    3 => self.add_tiles::<U, 1, 3, $panels>(columns, pass),
                    4 => self.add_tiles::<U, 1, 4, $panels>(columns, pass),
                    5 => self.add_tiles::<U, 1, 5, $panels>(columns, pass),
                    6 => self.add_tiles::<U, 1, 6, $panels>(columns, pass),
                    rows => {
                        assert!(rows == 2 * TILE_ROWS);
                        self.add_tiles::<U, 2, 6, $panels>(columns, pass);
                    }
                }
            };
        }
        // SAFETY: the caller's word; lengths as just checked.
        unsafe {
            match self.panels {
                1 => by_rows!(1),
                panels => {
                    assert!(panels == TOGETHER);
                    by_rows!(2);
                }
            }
        }
    }

    /// # Safety
    /// As [`Self::add`]; T tiles of R rows, and P panels, have its lengths.
    #[inline(always)]
    unsafe fn add_tiles<U: Unit, const T: usize, const R: usize, const P: usize>(
        &self,
        columns: impl Columns,
        pass: Pass<'_>,
    ) {
        // SAFETY: the caller's word.
        unsafe {
            match U::DEPTHS {
                1 => self.add_elements::<U, T, R, P>(columns, pass),
                _ => self.add_pairs::<U, T, R, P>(columns, pass),
            }
        }
    }

    /// # Safety
    /// As [`Self::add_tiles`].
    #[target_feature(enable = "avx512f")]
    unsafe fn add_elements<U: Unit, const T: usize, const R: usize, const P: usize>(
        &self,
        columns: impl Columns,
        pass: Pass<'_>,
    ) {
        // SAFETY: the caller's word.
        unsafe { self.add_words::<U, T, R, P>(columns, pass) }
    }

    /// # Safety
    /// As [`Self::add_tiles`], and [`has_pairs`].
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn add_pairs<U: Unit, const T: usize, const R: usize, const P: usize>(
        &self,
        columns: impl Columns,
        pass: Pass<'_>,
    ) {
        // SAFETY: the caller's word.
        unsafe { self.add_words::<U, T, R, P>(columns, pass) }
    }

    /// Compiled for each set of features that it is called with.
    ///
    /// # Safety
    /// As [`Self::add_tiles`].
    #[inline(always)]
    unsafe fn add_words<U: Unit, const T: usize, const R: usize, const P: usize>(
        &self,
        columns: impl Columns,
        pass: Pass<'_>,
    ) {
        let Pass {
            copy,
            sums,
            beside,
            first,
            lines,
            each,
        } = pass;
        let copy = copy.as_mut_ptr();
        let (a, sums) = (self.a.as_ptr(), sums.as_mut_ptr());
        let at = |t: usize, r: usize, p: usize| p * beside + (t * R + r) * TILE_COLUMNS;
        let (between, at_once) = ((self.depth / each.max(1)).max(1), each.div_ceil(self.depth));
        // SAFETY: the caller's word: each panel has `depth` times sixteen elements, each tile `depth`
        // times R, and there are sixteen sums for each row and panel.
        unsafe {
            let mut tile = [[[_mm512_setzero_ps(); P]; R]; T];
            if !first {
                for t in 0..T {
                    for r in 0..R {
                        for p in 0..P {
                            tile[t][r][p] = _mm512_loadu_ps(sums.add(at(t, r, p)));
                        }
                    }
                }
            }
            for start in (0..self.depth).step_by(between) {
                for _ in 0..at_once {
                    lines.ask();
                }
                for d in start..self.depth.min(start + between) {
                    let mut words = [_mm512_setzero_ps(); P];
                    for p in 0..P {
                        words[p] = columns.load(p, d, copy.add((p * self.depth + d) * TILE_COLUMNS));
                    }
                    for t in 0..T {
                        for r in 0..R {
                            let x = _mm512_set1_ps(*a.add((t * self.depth + d) * R + r));
                            for p in 0..P {
                                tile[t][r][p] = U::multiply_add(x, words[p], tile[t][r][p]);
                            }
                        }
                    }
                }
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
