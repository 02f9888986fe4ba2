//! f32, f16 and bf16: sums in f32, in loops over [`Lanes`].
//!
//! Few rows: see [`few_rows`](super::few_rows). More rows: tiles of six rows by sixteen columns in
//! registers (the floor is 2 M N K over the rate of multiply-adds), whose operands are copied so
//! that they are read in order: A once, by blocks of [`BLOCK_DEPTH`] columns in tiles of six rows;
//! of B, in each part, four panels of sixteen columns at a time, while those that come next are
//! fetched from memory ([`avx512`](super::avx512) has wider tiles, and tiles of pairs of bf16). A sum is
//! that of k in ascending order. Measured at 128x896x4864 on one of two cores of a busy Zen 3, of 94
//! Gflop/s: 65 in f32, 69 in f16, 74 in bf16; 100 to 110 together.

use std::cell::RefCell;
use std::ops::Range;

use half::bf16;

use super::super::simd::{Kernel, Lanes, Stored, run};
#[cfg(target_arch = "x86_64")]
use super::avx512;
#[cfg(target_arch = "x86_64")]
use super::unit::Pair;
use super::unit::Unit;
use super::{Matrix, Write, few_rows, reuse};
use crate::native::workers::{MIN_PART, Workers};

/// Up to this many rows, B is used where it lies, and a row's sums are what they are of that row alone:
/// runs that are joined for a product get the results that each has by itself.
const FEW_ROWS: usize = crate::native::operator::TOGETHER;
pub(super) const TILE_ROWS: usize = 6;
pub(super) const TILE_COLUMNS: usize = 16;
/// Panels of B that are copied together: 256 bytes of f32 of each row.
pub(super) const PANELS: usize = 4;
pub(super) const BLOCK_DEPTH: usize = 256;
/// Rows and columns of a part, at most.
const BLOCK_ROWS: usize = 32 * TILE_ROWS;
const BLOCK_COLUMNS: usize = 512;

/// Bytes of a cache line.
pub(super) const LINE_BYTES: usize = 64;
/// f32 of a cache line, in which a row of a panel is to lie: a load across two takes twice as long.
const LINE: usize = LINE_BYTES / size_of::<f32>();

/// Elements of A that are copied at a time, if that is enough rows. Little in tests, so that they
/// have several groups.
const A_ROOM: usize = if cfg!(test) { 1 << 12 } else { 2 << 20 };
pub(super) const B_ROOM: usize = PANELS * TILE_COLUMNS * BLOCK_DEPTH;
const SUMS_ROOM: usize = BLOCK_ROWS * BLOCK_COLUMNS;

thread_local! {
    /// The copied rows of A, of a thread that asks for products.
    static ROWS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    /// Working memory of a part: 450 KB for each thread that ever multiplied matrices.
    static ROOM: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// A product, cut into parts of Y.
pub(super) struct Product<'a, A, B> {
    pub sizes: (usize, usize, usize),
    pub a: Matrix<'a, A>,
    pub b: Matrix<'a, B>,
    pub write: Write<'a, f32>,
}

/// Gives the sums of every row and column to `write`, each once.
pub(super) fn multiply<A: Stored, B: Stored>(
    workers: &Workers,
    sizes: (usize, usize, usize),
    a: Matrix<'_, A>,
    b: Matrix<'_, B>,
    write: Write<'_, f32>,
) {
    let (m, k, n) = sizes;
    debug_assert!(a.elements.len() == m * k && b.elements.len() == k * n);
    if m == 0 || n == 0 {
        return;
    }
    match (m <= FEW_ROWS && !a.transposed, b.transposed) {
        (true, false) => few_rows::stream(workers, sizes, a.elements, b.elements, write),
        (true, true) => few_rows::dot(workers, sizes, a.elements, b.elements, write),
        (false, _) => tiles(workers, &Product { sizes, a, b, write }, multiply_part),
    }
}

/// As [`multiply`], of pairs of elements where the CPU has products of them that are faster. The
/// products are exact in both, but a sum may be rounded in other places.
pub(super) fn multiply_bf16(
    workers: &Workers,
    sizes: (usize, usize, usize),
    a: Matrix<'_, bf16>,
    b: Matrix<'_, bf16>,
    write: Write<'_, f32>,
) {
    #[cfg(target_arch = "x86_64")]
    {
        let (m, k, n) = sizes;
        let pairs = m > FEW_ROWS && n > 0 && k % Pair::DEPTHS == 0 && !a.transposed;
        if pairs && avx512::has_pairs() {
            let product = Product {
                sizes: (m, k / Pair::DEPTHS, n),
                a: Matrix {
                    elements: Pair::of(a.elements),
                    transposed: false,
                },
                b: Matrix {
                    elements: Pair::of(b.elements),
                    transposed: b.transposed,
                },
                write,
            };
            return tiles(workers, &product, |part| {
                // SAFETY: as just asked.
                unsafe { avx512::multiply(part) }
            });
        }
    }
    multiply(workers, sizes, a, b, write);
}

/// The sums of a part in the best loops that this CPU has.
fn multiply_part<A: Stored, B: Stored>(part: Tiled<'_, '_, A, B>) {
    #[cfg(target_arch = "x86_64")]
    if avx512::is_there() {
        // SAFETY: as just asked.
        return unsafe { avx512::multiply(part) };
    }
    run(part);
}

/// A product of units, whose depth is counted in units. `multiply_part` gives the sums of a part
/// away.
pub(super) fn tiles<A: Unit, B: Unit>(
    workers: &Workers,
    product: &Product<'_, A, B>,
    multiply_part: impl Fn(Tiled<'_, '_, A, B>) + Copy + Sync,
) {
    let (m, k, _) = product.sizes;
    let several = (A_ROOM / k.max(1)).max(8 * TILE_ROWS);
    let groups = m.div_ceil(several);
    let several = m.div_ceil(groups).next_multiple_of(TILE_ROWS);
    ROWS.with_borrow_mut(|room| {
        for first in (0..m).step_by(several) {
            let rows = first..m.min(first + several);
            let parts = rows.len().div_ceil(BLOCK_ROWS);
            let height = rows.len().div_ceil(parts).next_multiple_of(TILE_ROWS);
            let room = reuse(room, rows.len() * k);
            let block = BLOCK_DEPTH * rows.len();
            workers.split_mut(room, block, |index, to| {
                let first_depth = index * BLOCK_DEPTH;
                run(CopyA {
                    product,
                    rows: rows.clone(),
                    height,
                    depths: first_depth..k.min(first_depth + BLOCK_DEPTH),
                    to,
                });
            });
            multiply_rows(workers, product, rows, height, room, multiply_part);
        }
    });
}

/// The product of some rows, which are copied to `a`: by blocks of depths, and each of them as
/// [`CopyA`] makes it. `height` is that of a part.
fn multiply_rows<A: Unit, B: Unit>(
    workers: &Workers,
    product: &Product<'_, A, B>,
    group: Range<usize>,
    height: usize,
    a: &[f32],
    multiply_part: impl Fn(Tiled<'_, '_, A, B>) + Sync,
) {
    let (_, k, n) = product.sizes;
    let m = group.len();
    // In simple operations: thirty-two multiply-adds take the time of one.
    let per_column = k.saturating_mul(m).div_ceil(32).max(1);
    let least = MIN_PART.div_ceil(per_column).max(4 * TILE_COLUMNS);
    let row_parts = m.div_ceil(height);
    let width = n.div_ceil(workers.threads().div_ceil(row_parts));
    let width = width
        .clamp(least.min(BLOCK_COLUMNS), BLOCK_COLUMNS)
        .next_multiple_of(TILE_COLUMNS);
    let column_parts = n.div_ceil(width);
    let part = |index: usize| {
        let (row, column) = (index / column_parts * height, index % column_parts * width);
        ROOM.with_borrow_mut(|room| {
            let room = reuse(room, 2 * B_ROOM + SUMS_ROOM + LINE);
            let to_line = room.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
            multiply_part(Tiled {
                product,
                group: group.clone(),
                a,
                rows: row..m.min(row + height),
                columns: column..n.min(column + width),
                room: &mut room[to_line..],
            });
        });
    };
    match row_parts * column_parts {
        1 => part(0),
        parts => workers.for_each(parts, part),
    }
}

/// The rows of a part, cut into tiles: those of [`TILE_ROWS`] rows, and what is left, which
/// together with one of them makes two of about the same height, as few rows keep the CPU waiting
/// for the sums.
#[derive(Clone, Copy)]
pub(super) struct Tiles(pub usize);

impl Tiles {
    pub fn count(self) -> usize {
        self.0.div_ceil(TILE_ROWS)
    }

    /// Rows of the last tile.
    fn last(self) -> usize {
        match self.0 % TILE_ROWS {
            0 => TILE_ROWS,
            rest if rest <= TILE_ROWS / 2 && self.0 > TILE_ROWS => (TILE_ROWS + rest) / 2,
            rest => rest,
        }
    }

    pub fn rows(self, index: usize) -> Range<usize> {
        let start = index * TILE_ROWS;
        let last = self.0 - self.last();
        match self.count() - index {
            1 => last..self.0,
            2 => start..last,
            _ => start..start + TILE_ROWS,
        }
    }
}

/// A part: those columns of Y, and those rows of the group.
pub(super) struct Tiled<'p, 'a, A, B> {
    pub product: &'p Product<'a, A, B>,
    pub group: Range<usize>,
    /// As [`CopyA`] has made it.
    pub a: &'p [f32],
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    /// For two times [`B_ROOM`], and the sums, from a cache line on.
    pub room: &'p mut [f32],
}

impl<A: Stored, B: Stored> Kernel for Tiled<'_, '_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let Tiled {
            product,
            group,
            a,
            rows,
            columns,
            room,
        } = self;
        let (_, k, _) = product.sizes;
        let (b_room, sums) = room.split_at_mut(2 * B_ROOM);
        let (mut current, mut next) = b_room.split_at_mut(B_ROOM);
        // [panel][row][16]
        let panel_sums = rows.len() * TILE_COLUMNS;
        let sums = &mut sums[..columns.len().div_ceil(TILE_COLUMNS) * panel_sums];
        let wide = PANELS * TILE_COLUMNS;
        let across = columns.len().div_ceil(wide);
        let panels_at = |index: usize| {
            let (depth, column) = (
                index / across * BLOCK_DEPTH,
                columns.start + index % across * wide,
            );
            Panels {
                b: product.b,
                sizes: product.sizes,
                depths: depth..k.min(depth + BLOCK_DEPTH),
                columns: column..columns.end.min(column + wide),
            }
        };
        let tiles = Tiles(rows.len());
        let count = k.div_ceil(BLOCK_DEPTH) * across;
        match count {
            0 => sums.fill(0.0),
            _ => panels_at(0).copy::<S>(0..panels_at(0).steps(), current),
        }
        for index in 0..count {
            let now = panels_at(index);
            let depth = now.depths.len();
            let a = &a[now.depths.start * group.len() + rows.start * depth..][..rows.len() * depth];
            let several = now.columns.len().div_ceil(TILE_COLUMNS);
            // Those that come next are copied meanwhile, each piece a tile after it was asked for.
            let following = (index + 1 < count).then(|| panels_at(index + 1));
            let each = following.as_ref().map_or(0, Panels::steps);
            let each = each.div_ceil(several * tiles.count());
            let mut fetched = 0;
            let mut copied = 0;
            let of_panels = sums.chunks_exact_mut(panel_sums).skip(index % across * PANELS);
            for (b, sums) in current
                .chunks_exact(depth * TILE_COLUMNS)
                .take(several)
                .zip(of_panels)
            {
                for tile in 0..tiles.count() {
                    if let Some(following) = &following {
                        let steps = fetched..following.steps().min(fetched + each);
                        following.copy::<S>(copied..fetched, next);
                        copied = fetched;
                        fetched = steps.end;
                        following.fetch::<S>(steps);
                    }
                    let rows = tiles.rows(tile);
                    let sums = &mut sums[rows.start * TILE_COLUMNS..rows.end * TILE_COLUMNS];
                    let a = &a[rows.start * depth..rows.end * depth];
                    add_rows::<S>(a, b, sums, now.depths.start == 0);
                }
            }
            if let Some(following) = following {
                following.copy::<S>(copied..following.steps(), next);
            }
            std::mem::swap(&mut current, &mut next);
        }
        // What there was of B is not needed any more.
        product.write_rows(group.start + rows.start, rows.len(), columns, sums, current);
    }
}

impl<A, B> Product<'_, A, B> {
    /// Gives away `sums`, [panel][row][16], of `height` rows from one on. `room` has a row.
    pub fn write_rows(
        &self,
        first: usize,
        height: usize,
        columns: Range<usize>,
        sums: &[f32],
        room: &mut [f32],
    ) {
        let whole_row = &mut room[..columns.len().next_multiple_of(TILE_COLUMNS)];
        for row in 0..height {
            let of_panels = sums.chunks_exact(height * TILE_COLUMNS);
            for (to, sums) in whole_row.chunks_exact_mut(TILE_COLUMNS).zip(of_panels) {
                to.copy_from_slice(&sums[row * TILE_COLUMNS..][..TILE_COLUMNS]);
            }
            (self.write)(first + row, columns.start, &whole_row[..columns.len()]);
        }
    }
}

/// Rows of A by the tiles of each part, each [depth][rows of the tile].
struct CopyA<'p, 'a, A, B> {
    product: &'p Product<'a, A, B>,
    rows: Range<usize>,
    /// Rows of a part.
    height: usize,
    depths: Range<usize>,
    to: &'p mut [f32],
}

impl<A: Unit, B: Unit> Kernel for CopyA<'_, '_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let CopyA {
            product,
            rows,
            height,
            depths,
            to,
        } = self;
        let mut rest = to;
        for first in rows.clone().step_by(height) {
            let tiles = Tiles(height.min(rows.end - first));
            for rows in (0..tiles.count()).map(|tile| tiles.rows(tile)) {
                let (tile, after) = rest.split_at_mut(rows.len() * depths.len());
                rest = after;
                copy_tile::<S, A>(
                    product.a,
                    product.sizes,
                    first + rows.start,
                    rows.len(),
                    depths.clone(),
                    tile,
                );
            }
        }
    }
}

#[inline(always)]
fn copy_tile<S: Lanes, A: Unit>(
    a: Matrix<'_, A>,
    (m, k, _): (usize, usize, usize),
    first: usize,
    height: usize,
    depths: Range<usize>,
    tile: &mut [f32],
) {
    if !a.transposed {
        return copy_rows::<S, A>(a.elements, k, first, depths, height, tile);
    }
    for (d, to) in depths.zip(tile.chunks_exact_mut(height)) {
        for (to, x) in to.iter_mut().zip(&a.elements[d * m + first..][..height]) {
            *to = x.word();
        }
    }
}

/// The rows of one tile, not transposed: eight depths of each row at a time.
#[inline(always)]
fn copy_rows<S: Lanes, A: Unit>(
    a: &[A],
    k: usize,
    first: usize,
    depths: Range<usize>,
    height: usize,
    tile: &mut [f32],
) {
    let whole = depths.len() / 8;
    let rest = whole * 8 * height;
    for row in 0..height {
        let source = &a[(first + row) * k + depths.start..][..depths.len()];
        let (chunks, tail) = source.as_chunks::<8>();
        for (chunk, to) in chunks.iter().zip(tile.chunks_exact_mut(8 * height)) {
            let mut wide = [0.0; 8];
            S::store(A::words::<S>(chunk), &mut wide);
            for (to, x) in to[row..].iter_mut().step_by(height).zip(wide) {
                *to = x;
            }
        }
        let after = tile.get_mut(rest + row..).unwrap_or_default();
        for (to, x) in after.iter_mut().step_by(height).zip(tail) {
            *to = x.word();
        }
    }
}

/// Some panels of B, at most [`PANELS`], and at most [`BLOCK_DEPTH`] rows of them. They are copied as
/// [panel][depth][16], zeros behind the last column, in steps: a row of all panels, or where B
/// lies by its columns four columns, so that a cache line is not written sixteen times.
#[derive(Clone)]
pub(super) struct Panels<'a, B> {
    pub b: Matrix<'a, B>,
    pub sizes: (usize, usize, usize),
    pub depths: Range<usize>,
    pub columns: Range<usize>,
}

/// Columns of a step, where B lies by them.
const STEP: usize = 4;

impl<B: Unit> Panels<'_, B> {
    /// Copies them whole.
    pub fn copy_all(&self, to: &mut [f32]) {
        run(CopyAll(self, to));
    }

    fn steps(&self) -> usize {
        match self.b.transposed {
            true => self.columns.len().div_ceil(STEP),
            false => self.depths.len(),
        }
    }

    /// Asks for what steps read.
    #[inline(always)]
    fn fetch<S: Lanes>(&self, steps: Range<usize>) {
        let (_, k, n) = self.sizes;
        let line = LINE_BYTES / size_of::<B>();
        for step in steps {
            if self.b.transposed {
                for column in 0..STEP {
                    let first = (self.columns.start + step * STEP + column) * k + self.depths.start;
                    for at in (0..self.depths.len()).step_by(line) {
                        S::prefetch(self.b.elements, first + at);
                    }
                }
            } else {
                let first = (self.depths.start + step) * n + self.columns.start;
                for at in (0..self.columns.len()).step_by(line) {
                    S::prefetch(self.b.elements, first + at);
                }
            }
        }
    }

    #[inline(always)]
    fn copy<S: Lanes>(&self, steps: Range<usize>, to: &mut [f32]) {
        for step in steps {
            match self.b.transposed {
                true => self.copy_columns(step * STEP, to),
                false => self.copy_row::<S>(step, to),
            }
        }
    }

    /// A row of all panels.
    #[inline(always)]
    fn copy_row<S: Lanes>(&self, row: usize, to: &mut [f32]) {
        let (_, _, n) = self.sizes;
        let from = &self.b.elements[(self.depths.start + row) * n..][..n];
        let panels = to.chunks_exact_mut(self.depths.len() * TILE_COLUMNS);
        for (first, panel) in self.columns.clone().step_by(TILE_COLUMNS).zip(panels) {
            let to = &mut panel.as_chunks_mut::<TILE_COLUMNS>().0[row];
            if self.columns.end - first >= TILE_COLUMNS {
                let (low, high) = halves_mut(to);
                S::store(B::words_in_row::<S>(from, first), low);
                S::store(B::words_in_row::<S>(from, first + 8), high);
            } else {
                to.fill(0.0);
                for (to, column) in to.iter_mut().zip(first..self.columns.end) {
                    *to = B::in_row(from, column);
                }
            }
        }
    }

    /// [`STEP`] columns from one on, or as many as there are.
    #[inline(always)]
    fn copy_columns(&self, first: usize, to: &mut [f32]) {
        let (_, k, _) = self.sizes;
        let depth = self.depths.len();
        let (panel, at) = (first / TILE_COLUMNS, first % TILE_COLUMNS);
        let panel = to[panel * depth * TILE_COLUMNS..][..depth * TILE_COLUMNS]
            .as_chunks_mut::<TILE_COLUMNS>()
            .0;
        let column =
            |c: usize| &self.b.elements[(self.columns.start + first + c) * k + self.depths.start..][..depth];
        let count = (self.columns.len() - first).min(STEP);
        if count == STEP {
            let columns: [&[B]; STEP] = std::array::from_fn(column);
            for (d, to) in panel.iter_mut().enumerate() {
                for c in 0..STEP {
                    to[at + c] = columns[c][d].word();
                }
            }
        } else {
            for c in 0..count {
                for (to, x) in panel.iter_mut().zip(column(c)) {
                    to[at + c] = x.word();
                }
            }
        }
        if first + count == self.columns.len() {
            for to in panel {
                to[at + count..].fill(0.0);
            }
        }
    }
}

struct CopyAll<'p, 'a, B>(&'p Panels<'a, B>, &'p mut [f32]);

impl<B: Unit> Kernel for CopyAll<'_, '_, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        self.0.copy::<S>(0..self.0.steps(), self.1);
    }
}

/// Adds the products of a tile of at most [`TILE_ROWS`] rows with a panel of B to its sums, which
/// are 0 if it is the `first` panel.
#[inline(always)]
fn add_rows<S: Lanes>(a: &[f32], b: &[f32], sums: &mut [f32], first: bool) {
    match sums.len() / TILE_COLUMNS {
        1 => add_tile::<S, 1>(a, b, sums, first),
        2 => add_tile::<S, 2>(a, b, sums, first),
        3 => add_tile::<S, 3>(a, b, sums, first),
        4 => add_tile::<S, 4>(a, b, sums, first),
        5 => add_tile::<S, 5>(a, b, sums, first),
        _ => add_tile::<S, TILE_ROWS>(a, b, sums, first),
    }
}

/// sums[r][c] += sum over d of a[d][r] * b[d][c], in the order of d.
#[inline(always)]
fn add_tile<S: Lanes, const R: usize>(a: &[f32], b: &[f32], sums: &mut [f32], first: bool) {
    let sums = sums.as_chunks_mut::<8>().0;
    let mut tile = [[S::splat(0.0); 2]; R];
    if !first {
        for r in 0..R {
            tile[r] = [S::load(&sums[2 * r]), S::load(&sums[2 * r + 1])];
        }
    }
    for (a, b) in a.as_chunks::<R>().0.iter().zip(b.as_chunks::<TILE_COLUMNS>().0) {
        let (low, high) = halves(b);
        let (low, high) = (S::load(low), S::load(high));
        for r in 0..R {
            let x = S::splat(a[r]);
            tile[r] = [
                S::multiply_add(x, low, tile[r][0]),
                S::multiply_add(x, high, tile[r][1]),
            ];
        }
    }
    for r in 0..R {
        S::store(tile[r][0], &mut sums[2 * r]);
        S::store(tile[r][1], &mut sums[2 * r + 1]);
    }
}

/// Both halves of sixteen elements.
#[inline(always)]
pub(super) fn halves<T>(x: &[T; 16]) -> (&[T; 8], &[T; 8]) {
    let (low, high) = x.as_chunks::<8>().0.split_at(1);
    (&low[0], &high[0])
}

#[inline(always)]
pub(super) fn halves_mut<T>(x: &mut [T; 16]) -> (&mut [T; 8], &mut [T; 8]) {
    let (low, high) = x.as_chunks_mut::<8>().0.split_at_mut(1);
    (&mut low[0], &mut high[0])
}
