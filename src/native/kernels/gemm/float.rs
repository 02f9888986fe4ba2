//! f32, f16 and bf16: sums in f32, in loops over [`Lanes`].
//!
//! Few rows: see [`few_rows`](super::few_rows). More rows: tiles of six rows by sixteen columns in
//! registers (the floor is 2 M N K over the rate of multiply-adds), whose operands are copied so
//! that they are read in order: A once, by blocks of [`BLOCK_DEPTH`] columns in tiles of six rows;
//! of B, in each part, four panels of sixteen columns at a time, while those that come next are
//! fetched from memory. A sum is that of k in ascending order. Measured at 128x896x4864 on one of
//! two cores of a busy Zen 3, of 94 Gflop/s: 65 in f32, 69 in f16, 74 in bf16; 100 to 110 together.

use std::cell::RefCell;
use std::ops::Range;

use super::super::simd::{Kernel, Lanes, Stored, run};
use super::{Matrix, Write, few_rows, reuse};
use crate::native::workers::{MIN_PART, Workers};

/// Up to this many rows, B is used where it lies.
const FEW_ROWS: usize = 4;
const TILE_ROWS: usize = 6;
const TILE_COLUMNS: usize = 16;
/// Panels of B that are copied together: 256 bytes of f32 of each row.
const PANELS: usize = 4;
const BLOCK_DEPTH: usize = 256;
/// Rows and columns of a part, at most.
const BLOCK_ROWS: usize = 32 * TILE_ROWS;
const BLOCK_COLUMNS: usize = 512;

/// f32 of a cache line, in which a row of a panel is to lie: a load across two takes twice as long.
const LINE: usize = 16;

/// Elements of A that are copied at a time, if that is enough rows. Little in tests, so that they
/// have several groups.
const A_ROOM: usize = if cfg!(test) { 1 << 12 } else { 2 << 20 };
const B_ROOM: usize = PANELS * TILE_COLUMNS * BLOCK_DEPTH;
const SUMS_ROOM: usize = BLOCK_ROWS * BLOCK_COLUMNS;

thread_local! {
    /// The copied rows of A, of a thread that asks for products.
    static ROWS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    /// Working memory of a part: 450 KB for each thread that ever multiplied matrices.
    static ROOM: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// A product, cut into parts of Y.
struct Product<'a, A, B> {
    sizes: (usize, usize, usize),
    a: Matrix<'a, A>,
    b: Matrix<'a, B>,
    write: Write<'a, f32>,
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
        (false, _) => tiles(workers, &Product { sizes, a, b, write }),
    }
}

fn tiles<A: Stored, B: Stored>(workers: &Workers, product: &Product<'_, A, B>) {
    let (m, k, _) = product.sizes;
    let several = (A_ROOM / k.max(1)).max(8 * TILE_ROWS);
    let groups = m.div_ceil(several);
    let several = m.div_ceil(groups).next_multiple_of(TILE_ROWS);
    ROWS.with_borrow_mut(|room| {
        for first in (0..m).step_by(several) {
            let rows = first..m.min(first + several);
            let room = reuse(room, rows.len() * k);
            let block = BLOCK_DEPTH * rows.len();
            workers.split_mut(room, block, |index, to| {
                let first_depth = index * BLOCK_DEPTH;
                run(CopyA {
                    product,
                    rows: rows.clone(),
                    depths: first_depth..k.min(first_depth + BLOCK_DEPTH),
                    to,
                });
            });
            multiply_rows(workers, product, rows, room);
        }
    });
}

/// The product of some rows, which are copied to `a`: by blocks of depths, and each of them as
/// [`CopyA`] makes it.
fn multiply_rows<A: Stored, B: Stored>(
    workers: &Workers,
    product: &Product<'_, A, B>,
    group: Range<usize>,
    a: &[f32],
) {
    let (_, k, n) = product.sizes;
    let m = group.len();
    // In simple operations: thirty-two multiply-adds take the time of one.
    let per_column = k.saturating_mul(m).div_ceil(32).max(1);
    let least = MIN_PART.div_ceil(per_column).max(4 * TILE_COLUMNS);
    let row_parts = m.div_ceil(BLOCK_ROWS).max(1);
    let height = m.div_ceil(row_parts).next_multiple_of(TILE_ROWS);
    let width = n.div_ceil(workers.threads().div_ceil(row_parts));
    let width = width
        .clamp(least.min(BLOCK_COLUMNS), BLOCK_COLUMNS)
        .next_multiple_of(TILE_COLUMNS);
    let column_parts = n.div_ceil(width);
    let part = |index: usize| {
        let (row, column) = (index / column_parts * height, index % column_parts * width);
        ROOM.with_borrow_mut(|room| {
            let room = reuse(room, B_ROOM + SUMS_ROOM + LINE);
            let to_line = room.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
            run(Tiled {
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

/// A part: those columns of Y, and those rows of the group.
struct Tiled<'p, 'a, A, B> {
    product: &'p Product<'a, A, B>,
    group: Range<usize>,
    a: &'p [f32],
    rows: Range<usize>,
    columns: Range<usize>,
    room: &'p mut [f32],
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
        let sizes @ (_, k, n) = product.sizes;
        let b = product.b;
        let (b_room, sums) = room.split_at_mut(B_ROOM);
        // A tile of Y is contiguous, [6][16]; the tiles of a panel follow one another.
        let panel_sums = rows.len().div_ceil(TILE_ROWS) * TILE_ROWS * TILE_COLUMNS;
        let panels = columns.len().div_ceil(TILE_COLUMNS);
        sums[..panels * panel_sums].fill(0.0);
        for first_depth in (0..k).step_by(BLOCK_DEPTH) {
            let depths = first_depth..k.min(first_depth + BLOCK_DEPTH);
            let depth = depths.len();
            let a = &a[first_depth * group.len() + rows.start * depth..][..rows.len() * depth];
            let mut of_panels = sums.chunks_exact_mut(panel_sums);
            for first in columns.clone().step_by(PANELS * TILE_COLUMNS) {
                let several = first..columns.end.min(first + PANELS * TILE_COLUMNS);
                copy_b::<S, B>(b, sizes, depths.clone(), several.clone(), b_room);
                let b_panels = b_room.chunks_exact(depth * TILE_COLUMNS);
                let count = several.len().div_ceil(TILE_COLUMNS);
                // The panels that come next are fetched meanwhile.
                let (next_depth, next_column) = match several.end < columns.end {
                    true => (first_depth, several.end),
                    false => (depths.end, columns.start),
                };
                for (panel, (b_panel, sums)) in b_panels.take(count).zip(&mut of_panels).enumerate() {
                    let column = next_column + panel * TILE_COLUMNS;
                    let ahead = |d: usize| match b.transposed {
                        true => (column + d / 16) * k + next_depth + d % 16 * 16,
                        false => (next_depth + d) * n + column,
                    };
                    add_tiles::<S>(rows.len(), depth, a, b_panel, sums, |d| {
                        S::prefetch(b.elements, ahead(d));
                    });
                }
            }
        }
        for (first, sums) in columns
            .clone()
            .step_by(TILE_COLUMNS)
            .zip(sums.chunks_exact(panel_sums))
        {
            let width = TILE_COLUMNS.min(columns.end - first);
            for (row, sums) in rows.clone().zip(sums.chunks_exact(TILE_COLUMNS)) {
                (product.write)(group.start + row, first, &sums[..width]);
            }
        }
    }
}

/// Rows of A by tiles, each [depth][rows of the tile].
struct CopyA<'p, 'a, A, B> {
    product: &'p Product<'a, A, B>,
    rows: Range<usize>,
    depths: Range<usize>,
    to: &'p mut [f32],
}

impl<A: Stored, B: Stored> Kernel for CopyA<'_, '_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        copy_a::<S, A>(
            self.product.a,
            self.product.sizes,
            self.rows,
            self.depths,
            self.to,
        );
    }
}

#[inline(always)]
fn copy_a<S: Lanes, A: Stored>(
    a: Matrix<'_, A>,
    (m, k, _): (usize, usize, usize),
    rows: Range<usize>,
    depths: Range<usize>,
    to: &mut [f32],
) {
    let depth = depths.len();
    let mut rest = to;
    for first in rows.clone().step_by(TILE_ROWS) {
        let height = TILE_ROWS.min(rows.end - first);
        let (tile, after) = rest.split_at_mut(height * depth);
        rest = after;
        if a.transposed {
            for (d, to) in depths.clone().zip(tile.chunks_exact_mut(height)) {
                for (to, x) in to.iter_mut().zip(&a.elements[d * m + first..][..height]) {
                    *to = x.widen();
                }
            }
        } else {
            copy_rows::<S, A>(a.elements, k, first, depths.clone(), height, tile);
        }
    }
}

/// The rows of one tile, not transposed: eight depths of each row at a time.
#[inline(always)]
fn copy_rows<S: Lanes, A: Stored>(
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
            S::store(A::load::<S>(chunk), &mut wide);
            for (to, x) in to[row..].iter_mut().step_by(height).zip(wide) {
                *to = x;
            }
        }
        let after = tile.get_mut(rest + row..).unwrap_or_default();
        for (to, x) in after.iter_mut().step_by(height).zip(tail) {
            *to = x.widen();
        }
    }
}

/// The columns of B by panels: [depth][16], zeros behind the last column.
#[inline(always)]
fn copy_b<S: Lanes, B: Stored>(
    b: Matrix<'_, B>,
    (_, k, n): (usize, usize, usize),
    depths: Range<usize>,
    columns: Range<usize>,
    to: &mut [f32],
) {
    let panel_size = depths.len() * TILE_COLUMNS;
    if b.transposed {
        for (first, panel) in columns
            .clone()
            .step_by(TILE_COLUMNS)
            .zip(to.chunks_exact_mut(panel_size))
        {
            let width = TILE_COLUMNS.min(columns.end - first);
            if width < TILE_COLUMNS {
                panel.fill(0.0);
            }
            let row = |c: usize| &b.elements[(first + c) * k + depths.start..][..depths.len()];
            let panel = panel.as_chunks_mut::<TILE_COLUMNS>().0;
            let mut c = 0;
            // Four columns at a time, so that a cache line of the panel is not visited sixteen times.
            while c + 4 <= width {
                let rows: [&[B]; 4] = std::array::from_fn(|i| row(c + i));
                for (d, to) in panel.iter_mut().enumerate() {
                    for i in 0..4 {
                        to[c + i] = rows[i][d].widen();
                    }
                }
                c += 4;
            }
            for c in c..width {
                for (to, x) in panel.iter_mut().zip(row(c)) {
                    to[c] = x.widen();
                }
            }
        }
        return;
    }
    for (i, depth) in depths.enumerate() {
        let row = &b.elements[depth * n + columns.start..][..columns.len()];
        let (whole, rest) = row.as_chunks::<TILE_COLUMNS>();
        let mut at = i * TILE_COLUMNS;
        for x in whole {
            if let Some(to) = to[at..].first_chunk_mut::<TILE_COLUMNS>() {
                let ((low, high), (to_low, to_high)) = (halves(x), halves_mut(to));
                S::store(B::load::<S>(low), to_low);
                S::store(B::load::<S>(high), to_high);
            }
            at += panel_size;
        }
        if !rest.is_empty() {
            let to = &mut to[at..][..TILE_COLUMNS];
            to.fill(0.0);
            for (to, x) in to.iter_mut().zip(rest) {
                *to = x.widen();
            }
        }
    }
}

/// Adds the products of all tiles of rows with one panel of B to the panel's sums. `fetch` is
/// called once for each depth, between the operations of the first tile.
#[inline(always)]
fn add_tiles<S: Lanes>(
    rows: usize,
    depth: usize,
    a: &[f32],
    b: &[f32],
    sums: &mut [f32],
    fetch: impl Fn(usize),
) {
    let whole = rows / TILE_ROWS;
    let (tiles, rest) = a.split_at(whole * TILE_ROWS * depth);
    let mut sums = sums.chunks_exact_mut(TILE_ROWS * TILE_COLUMNS);
    let mut tiles = tiles.chunks_exact(TILE_ROWS * depth).zip(&mut sums);
    if let Some((tile, sums)) = tiles.next() {
        add_tile::<S, TILE_ROWS>(tile, b, sums, fetch);
    }
    for (tile, sums) in tiles {
        add_tile::<S, TILE_ROWS>(tile, b, sums, |_| {});
    }
    let Some(sums) = sums.next() else { return };
    match rows % TILE_ROWS {
        1 => add_tile::<S, 1>(rest, b, sums, |_| {}),
        2 => add_tile::<S, 2>(rest, b, sums, |_| {}),
        3 => add_tile::<S, 3>(rest, b, sums, |_| {}),
        4 => add_tile::<S, 4>(rest, b, sums, |_| {}),
        5 => add_tile::<S, 5>(rest, b, sums, |_| {}),
        _ => {}
    }
}

/// sums[r][c] += sum over d of a[d][r] * b[d][c], in the order of d.
#[inline(always)]
fn add_tile<S: Lanes, const R: usize>(a: &[f32], b: &[f32], sums: &mut [f32], fetch: impl Fn(usize)) {
    let sums = sums.as_chunks_mut::<8>().0;
    let mut tile = [[S::splat(0.0); 2]; R];
    for r in 0..R {
        tile[r] = [S::load(&sums[2 * r]), S::load(&sums[2 * r + 1])];
    }
    let depths = a.as_chunks::<R>().0.iter().zip(b.as_chunks::<TILE_COLUMNS>().0);
    for (d, (a, b)) in depths.enumerate() {
        fetch(d);
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
