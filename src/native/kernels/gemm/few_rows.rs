//! Few rows of A, so that B is read once and where it lies: decode, whose floor is the bytes of B
//! over the memory's bandwidth.
//!
//! B by its rows, and small enough that it may well lie in a cache: the sums of some columns stay in
//! registers.
//!
//! B by its rows otherwise: they are streamed, eight at a time, into sums that stay in the first-level
//! cache. A part is a strip of columns, as wide as those sums allow, by a range of k: memory
//! gives its rate to long runs only, so rows are not cut more than the cache wants, and what is
//! left to share out is cut along k. The sums of the ranges are added in their order at the end.
//! Strips are fixed by the shapes, ranges by k and n alone: a row is the same whatever rows it is
//! multiplied with. Measured at 1x4096x4096 on two cores of a busy Zen 3:
//! 17 GB/s of f32, 14 of f16 and of bf16; with narrow strips that are not cut along k, 13, 12, 11.
//!
//! B by its columns: four of them at a time are multiplied with the rows of A, each sum in
//! sixteen interleaved lanes.

use std::cell::RefCell;
use std::ops::Range;

use super::super::simd::{Kernel, Lanes, Stored, run};
use super::float::{halves, halves_mut};
use super::{Write, reuse};
#[cfg(target_arch = "x86_64")]
use super::{avx512, avx512_few_rows};
use crate::native::workers::{MIN_PART, Workers};

/// Rows of B that are added to the sums in one pass over them.
const DEPTH: usize = 8;
/// The same of 16-bit elements in vectors of eight, for which there are too few registers to hold the
/// elements of eight rows of A beside what is converted.
const NARROW_DEPTH: usize = 4;
/// Sums that are kept while B is streamed, at most: 16 KiB.
const SUMS: usize = 4096;
/// B of no more bytes is not streamed: a quarter of a second-level cache. Less in tests, so that
/// they have both.
const SMALL: usize = if cfg!(test) { 12 << 10 } else { 128 << 10 };
/// Parts that B is cut into, if it is large enough.
const PARTS: usize = 16;
/// Multiply-adds of elements from memory that take the time of one simple operation.
const PER_OPERATION: usize = 16;

thread_local! {
    /// The sums of all parts.
    static ROOM: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// How B, by its rows, is cut.
struct Cut {
    strips: usize,
    /// Columns of a strip; the last may have fewer.
    width: usize,
    ranges: usize,
    /// Rows of B of a range; the last may have fewer.
    depth: usize,
}

impl Cut {
    fn new((m, k, n): (usize, usize, usize)) -> Self {
        let (strips, width) = strips(n, SUMS);
        let least = MIN_PART.saturating_mul(PER_OPERATION).div_ceil(width);
        let depth = k
            .div_ceil(PARTS.div_ceil(strips))
            .max(least)
            .next_multiple_of(DEPTH);
        let (strips, width) = self::strips(n, SUMS / m);
        Cut {
            strips,
            width,
            ranges: k.div_ceil(depth).max(1),
            depth,
        }
    }
}

/// How many strips `n` columns are cut into, and how wide they are, if that is at most about `most`.
fn strips(n: usize, most: usize) -> (usize, usize) {
    let strips = n.div_ceil(most);
    let width = n.div_ceil(strips).next_multiple_of(16).min(n);
    (n.div_ceil(width), width)
}

/// B by its rows. None of the sizes but `k` is 0, and `m` is small.
pub(super) fn stream<A: Stored, B: Stored>(
    workers: &Workers,
    sizes @ (m, k, n): (usize, usize, usize),
    a: &[A],
    b: &[B],
    write: Write<'_, f32>,
) {
    if size_of_val(b) <= SMALL {
        return run(Small { sizes, a, b, write });
    }
    let cut = Cut::new(sizes);
    let columns = |strip: usize| strip * cut.width..n.min((strip + 1) * cut.width);
    let part = |index: usize, sums: &mut [f32]| {
        let (strip, range) = (index / cut.ranges, index % cut.ranges);
        run(Stream {
            sizes,
            a,
            b,
            columns: columns(strip),
            depths: range * cut.depth..k.min((range + 1) * cut.depth),
            sums,
        });
    };
    let each = m * cut.width;
    ROOM.with_borrow_mut(|room| {
        let room = reuse(room, each * cut.ranges * cut.strips);
        workers.split_mut(room, each, part);
        for (strip, sums) in room.chunks_exact_mut(each * cut.ranges).enumerate() {
            let (sums, others) = sums.split_at_mut(each);
            for other in others.chunks_exact(each) {
                for (sum, x) in sums.iter_mut().zip(other) {
                    *sum += x;
                }
            }
            let columns = columns(strip);
            for (row, sums) in sums.chunks_exact(columns.len()).take(m).enumerate() {
                write(row, columns.start, sums);
            }
        }
    });
}

/// The whole product, for small B. Each sum is made in the same order as by [`Stream`].
struct Small<'p, A, B> {
    sizes: (usize, usize, usize),
    a: &'p [A],
    b: &'p [B],
    write: Write<'p, f32>,
}

impl<A: Stored, B: Stored> Kernel for Small<'_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let (m, k, n) = self.sizes;
        for row in 0..m {
            let a = &self.a[row * k..][..k];
            let mut first = 0;
            while first + 64 <= n {
                (self.write)(
                    row,
                    first,
                    columns_of::<S, A, B, 8>(a, self.b, n, first).as_flattened(),
                );
                first += 64;
            }
            while first + 8 <= n {
                (self.write)(
                    row,
                    first,
                    columns_of::<S, A, B, 1>(a, self.b, n, first).as_flattened(),
                );
                first += 8;
            }
            for column in first..n {
                let b = self.b.get(column..).unwrap_or_default().iter().step_by(n);
                let sum = a
                    .iter()
                    .zip(b)
                    .fold(0.0, |sum, (x, b)| S::multiply_add_one(x.widen(), b.widen(), sum));
                (self.write)(row, column, &[sum]);
            }
        }
    }
}

/// The products of a row with C times eight columns of B, whose rows have `n` elements.
#[inline(always)]
fn columns_of<S: Lanes, A: Stored, B: Stored, const C: usize>(
    a: &[A],
    b: &[B],
    n: usize,
    first: usize,
) -> [[f32; 8]; C] {
    let mut lanes = [S::splat(0.0); C];
    for (x, b) in a.iter().zip(b.chunks_exact(n)) {
        let x = S::splat(x.widen());
        let b = &b[first..][..C * 8];
        for (lanes, b) in lanes.iter_mut().zip(b.as_chunks().0) {
            *lanes = S::multiply_add(x, B::load::<S>(b), *lanes);
        }
    }
    let mut sums = [[0.0; 8]; C];
    for (lanes, sums) in lanes.iter().zip(&mut sums) {
        S::store(*lanes, sums);
    }
    sums
}

/// A part: sums[row][column] over those depths, rows as long as there are columns.
struct Stream<'p, A, B> {
    sizes: (usize, usize, usize),
    a: &'p [A],
    b: &'p [B],
    columns: Range<usize>,
    depths: Range<usize>,
    sums: &'p mut [f32],
}

impl<A: Stored, B: Stored> Kernel for Stream<'_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let Stream {
            sizes: (m, k, n),
            a,
            b,
            columns,
            depths,
            sums,
        } = self;
        let width = columns.len();
        let sums = &mut sums[..m * width];
        sums.fill(0.0);
        let part = Pass {
            sizes: (m, k, n),
            a,
            b,
            columns,
        };
        let whole = depths.end - depths.len() % DEPTH;
        if size_of::<B>() == 4 || is_wide() {
            for depth in (depths.start..whole).step_by(DEPTH) {
                part.add::<S, DEPTH>(depth, sums);
            }
        } else {
            for depth in (depths.start..whole).step_by(NARROW_DEPTH) {
                part.add::<S, NARROW_DEPTH>(depth, sums);
            }
        }
        for depth in whole..depths.end {
            part.add::<S, 1>(depth, sums);
        }
    }
}

/// Some columns of a product.
struct Pass<'p, A, B> {
    sizes: (usize, usize, usize),
    a: &'p [A],
    b: &'p [B],
    columns: Range<usize>,
}

impl<A: Stored, B: Stored> Pass<'_, A, B> {
    /// Adds the products of D rows of B to the sums.
    #[inline(always)]
    fn add<S: Lanes, const D: usize>(&self, depth: usize, sums: &mut [f32]) {
        let (_, k, n) = self.sizes;
        let width = self.columns.len();
        let rows: [&[B]; D] =
            std::array::from_fn(|i| &self.b[(depth + i) * n + self.columns.start..][..width]);
        for (row, sums) in sums.chunks_exact_mut(width).enumerate() {
            let x: [f32; D] = std::array::from_fn(|i| self.a[row * k + depth + i].widen());
            // The rows that come next, for the first row only.
            let ahead = if row == 0 && D > 1 { D * n } else { 0 };
            add_rows::<S, B, D>(sums, x, rows, ahead);
        }
    }
}

#[inline(always)]
fn is_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return avx512::is_there();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// sums[j] += x[0] * rows[0][j], then x[1] * rows[1][j], and so on. What lies `ahead` elements
/// behind is asked for, if that is not 0.
#[inline(always)]
fn add_rows<S: Lanes, B: Stored, const D: usize>(
    sums: &mut [f32],
    x: [f32; D],
    rows: [&[B]; D],
    ahead: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if avx512::is_there() {
        // SAFETY: as just asked.
        let left = unsafe { avx512_few_rows::add_rows(sums, &x, &rows, ahead) };
        let at = sums.len() - left;
        add_rest::<S, B, D>(&mut sums[at..], x, rows.map(|row| &row[at..]));
        return;
    }
    let wide = x.map(S::splat);
    let (blocks, rest) = sums.as_chunks_mut::<16>();
    let at = blocks.len() * 16;
    // All of one length, which the compiler sees.
    let whole: [&[[B; 16]]; D] = rows.map(|row| &row.as_chunks().0[..blocks.len()]);
    for (j, block) in blocks.iter_mut().enumerate() {
        let (low, high) = halves_mut(block);
        let mut sum = [S::load(low), S::load(high)];
        for i in 0..D {
            if ahead > 0 && (size_of::<B>() == 4 || j % 2 == 0) {
                S::prefetch(rows[i], j * 16 + ahead);
            }
            let (b_low, b_high) = halves(&whole[i][j]);
            sum = [
                S::multiply_add(wide[i], B::load::<S>(b_low), sum[0]),
                S::multiply_add(wide[i], B::load::<S>(b_high), sum[1]),
            ];
        }
        S::store(sum[0], low);
        S::store(sum[1], high);
    }
    add_rest::<S, B, D>(rest, x, rows.map(|row| &row[at..]));
}

/// The same one by one.
#[inline(always)]
fn add_rest<S: Lanes, B: Stored, const D: usize>(sums: &mut [f32], x: [f32; D], rows: [&[B]; D]) {
    for (j, sum) in sums.iter_mut().enumerate() {
        for i in 0..D {
            *sum = S::multiply_add_one(x[i], rows[i][j].widen(), *sum);
        }
    }
}

/// B by its columns, which lie one behind the other. None of the sizes but `k` is 0.
pub(super) fn dot<A: Stored, B: Stored>(
    workers: &Workers,
    sizes @ (m, k, n): (usize, usize, usize),
    a: &[A],
    b: &[B],
    write: Write<'_, f32>,
) {
    let chunk = workers.chunk(n, k.saturating_mul(m).div_ceil(PER_OPERATION));
    workers.for_each(n.div_ceil(chunk), |part| {
        run(Dot {
            sizes,
            a,
            b,
            columns: part * chunk..n.min((part + 1) * chunk),
            write,
        });
    });
}

struct Dot<'p, A, B> {
    sizes: (usize, usize, usize),
    a: &'p [A],
    b: &'p [B],
    columns: Range<usize>,
    write: Write<'p, f32>,
}

impl<A: Stored, B: Stored> Kernel for Dot<'_, A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let (m, k, _) = self.sizes;
        let column = |column: usize| &self.b[column * k..][..k];
        let mut at = self.columns.start;
        while at < self.columns.end {
            let several = at + 4 <= self.columns.end;
            for row in 0..m {
                let x = &self.a[row * k..][..k];
                if several {
                    let sums = dots::<S, A, B, 4>(x, std::array::from_fn(|i| column(at + i)));
                    (self.write)(row, at, &sums);
                } else {
                    (self.write)(row, at, &dots::<S, A, B, 1>(x, [column(at)]));
                }
            }
            at += if several { 4 } else { 1 };
        }
    }
}

/// The dot products of x with each of `rows`.
#[inline(always)]
fn dots<S: Lanes, A: Stored, B: Stored, const R: usize>(x: &[A], rows: [&[B]; R]) -> [f32; R] {
    let (chunks, rest) = x.as_chunks::<16>();
    let at = chunks.len() * 16;
    let mut sums = lanes::<S, A, B, R>(x, rows).map(|lanes| lanes.iter().sum());
    for r in 0..R {
        for (x, b) in rest.iter().zip(&rows[r][at..]) {
            sums[r] = S::multiply_add_one(x.widen(), b.widen(), sums[r]);
        }
    }
    sums
}

/// The same in sixteen lanes each, but for the elements behind the last sixteen.
#[inline(always)]
fn lanes<S: Lanes, A: Stored, B: Stored, const R: usize>(x: &[A], rows: [&[B]; R]) -> [[f32; 16]; R] {
    // Of a row, asked for before it is read: a kilobyte.
    let ahead = 1024 / size_of::<B>();
    #[cfg(target_arch = "x86_64")]
    if avx512::is_there() {
        // SAFETY: as just asked.
        return unsafe { avx512_few_rows::dots(x, &rows, ahead) };
    }
    let mut lanes = [[S::splat(0.0); 2]; R];
    let chunks = x.as_chunks::<16>().0;
    let whole: [&[[B; 16]]; R] = rows.map(|row| &row.as_chunks().0[..chunks.len()]);
    for (j, chunk) in chunks.iter().enumerate() {
        let (low, high) = halves(chunk);
        let (low, high) = (A::load::<S>(low), A::load::<S>(high));
        for r in 0..R {
            if size_of::<B>() == 4 || j % 2 == 0 {
                S::prefetch(rows[r], j * 16 + ahead);
            }
            let (b_low, b_high) = halves(&whole[r][j]);
            lanes[r][0] = S::multiply_add(low, B::load::<S>(b_low), lanes[r][0]);
            lanes[r][1] = S::multiply_add(high, B::load::<S>(b_high), lanes[r][1]);
        }
    }
    lanes.map(|[low, high]| {
        let mut all = [0.0; 16];
        let (to_low, to_high) = halves_mut(&mut all);
        S::store(low, to_low);
        S::store(high, to_high);
        all
    })
}
