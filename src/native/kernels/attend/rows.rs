//! The inner loops of attention: a block of queries over rows of keys or of values.
//!
//! f32 queries over f32, f16 and bf16 rows go eight lanes at a time (`simd`). All queries of a
//! block go over a few rows before the next are read, so that each is fetched from memory once
//! and in the order it lies there; with several queries rows that come later are asked for in
//! advance, as the CPU does not look so far. Products have two queries and four rows in registers,
//! sums eight vectors of up to four queries. Every sum has an order that its own row and query fix,
//! whatever they are blocked with.
//!
//! Floor: a key or value row is read once for each block of queries, 2 · width operations for
//! each query and row. In decoding the rows' bytes are the cost.

use crate::native::kernels::number::{Floats, Number, Scalar};
use crate::native::kernels::simd::{self, Kernel, Lanes, Stored};

/// `count` rows of `width` elements, `step` apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
    pub data: &'a [T],
    pub step: usize,
    pub width: usize,
    pub count: usize,
}

/// How far in advance rows are asked for, in bytes.
const AHEAD: usize = 4096;

/// Bytes that are fetched from memory at once.
const LINE: usize = 64;

impl<'a, T> Rows<'a, T> {
    /// Rows that are [`AHEAD`].
    #[inline(always)]
    fn ahead(&self) -> usize {
        AHEAD.div_ceil((self.width * size_of::<T>()).max(1))
    }

    /// Asks for `count` rows from one on, which need not be there.
    #[inline(always)]
    fn prefetch<S: Lanes>(&self, first: usize, count: usize) {
        for row in first..first + count {
            for at in (0..self.width).step_by(LINE / size_of::<T>()) {
                S::prefetch(self.data, row.wrapping_mul(self.step).wrapping_add(at));
            }
        }
    }

    #[inline(always)]
    fn row(&self, index: usize) -> &'a [T] {
        &self.data[index * self.step..][..self.width]
    }

    /// Rows from one on.
    #[inline(always)]
    fn several<const N: usize>(&self, first: usize) -> [&'a [T]; N] {
        let mut rows: [&[T]; N] = [&[]; N];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = self.row(first + i);
        }
        rows
    }

    /// So many rows from one on, or as many as there are.
    #[inline(always)]
    fn part(&self, first: usize, count: usize) -> Rows<'a, T> {
        Rows {
            data: &self.data[first * self.step..],
            count: count.min(self.count - first),
            ..*self
        }
    }

    fn with_data<U>(self, data: &'a [U]) -> Rows<'a, U> {
        let Rows {
            step, width, count, ..
        } = self;
        Rows {
            data,
            step,
            width,
            count,
        }
    }
}

/// scores[q * stride + j] = sum over d of queries[q][d] * rows[j][d], for queries of the rows'
/// width, one after the other.
pub(super) fn products<T: Number>(
    queries: &[T::Wide],
    rows: Rows<'_, T>,
    scores: &mut [T::Wide],
    stride: usize,
) {
    if rows.count == 0 {
        return;
    }
    if let (Some(Floats::F32(queries)), Some(data), Some(scores)) = (
        T::Wide::as_floats(queries),
        T::as_floats(rows.data),
        T::Wide::as_f32_mut(scores),
    ) {
        return match data {
            Floats::F32(data) => simd::run(Products(queries, rows.with_data(data), scores, stride)),
            Floats::F16(data) => simd::run(Products(queries, rows.with_data(data), scores, stride)),
            Floats::Bf16(data) => simd::run(Products(queries, rows.with_data(data), scores, stride)),
        };
    }
    for (index, query) in queries.chunks_exact(rows.width.max(1)).enumerate() {
        for (j, score) in scores[index * stride..][..rows.count].iter_mut().enumerate() {
            *score = dot(query, rows.row(j));
        }
    }
    if rows.width == 0 {
        scores.fill(T::Wide::ZERO);
    }
}

struct Products<'a, T>(&'a [f32], Rows<'a, T>, &'a mut [f32], usize);

impl<T: Stored> Kernel for Products<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let Products(queries, rows, scores, stride) = self;
        if rows.width == 0 {
            scores.fill(0.0);
            return;
        }
        let ahead = rows.ahead();
        let pairs = queries.len() / (2 * rows.width);
        // What the CPU itself fetches in advance is enough for few queries.
        let each = if pairs < 2 { 0 } else { KEYS.div_ceil(pairs) };
        let whole = rows.count - rows.count % KEYS;
        for first in (0..whole).step_by(KEYS) {
            let keys @ [a, b, c, d, e, f, g, h] = rows.several::<KEYS>(first);
            let mut fetched = 0;
            let mut at = first;
            let mut pairs = queries.chunks_exact(2 * rows.width);
            for pair in pairs.by_ref() {
                let several = each.min(KEYS - fetched);
                rows.prefetch::<S>(first + ahead + fetched, several);
                fetched += several;
                let pair = rows_of(pair, rows.width);
                let scores = &mut scores[at..];
                put::<2, 4>(tile::<S, T, 2, 4>(pair, [a, b, c, d]), scores, stride);
                put::<2, 4>(tile::<S, T, 2, 4>(pair, [e, f, g, h]), &mut scores[4..], stride);
                at += 2 * stride;
            }
            let last = pairs.remainder();
            if !last.is_empty() {
                put::<1, 8>(tile::<S, T, 1, 8>([last], keys), &mut scores[at..], stride);
            }
        }
        for first in whole..rows.count {
            let key = rows.several(first);
            for (q, query) in queries.chunks_exact(rows.width).enumerate() {
                let scores = &mut scores[q * stride + first..];
                put::<1, 1>(tile::<S, T, 1, 1>([query], key), scores, stride);
            }
        }
    }
}

/// Keys that all queries are multiplied with before the next are read.
const KEYS: usize = 8;

// Arrays are filled in loops: the closures of `array::from_fn` and `map` are not always inlined to
// where the features are.

/// The first rows of several that follow one another.
#[inline(always)]
fn rows_of<T, const N: usize>(elements: &[T], width: usize) -> [&[T]; N] {
    let mut rows: [&[T]; N] = [&[]; N];
    for (row, elements) in rows.iter_mut().zip(elements.chunks_exact(width)) {
        *row = elements;
    }
    rows
}

/// The first chunks of each row.
#[inline(always)]
fn in_eights<T, const N: usize>(rows: [&[T]; N], chunks: usize) -> [&[[T; 8]]; N] {
    let mut all: [&[[T; 8]]; N] = [&[]; N];
    for (all, row) in all.iter_mut().zip(rows) {
        *all = &row.as_chunks().0[..chunks];
    }
    all
}

#[inline(always)]
fn load_of_each<S: Lanes, T: Stored, const N: usize>(rows: &[&[[T; 8]]; N], chunk: usize) -> [S::V; N] {
    let mut loaded = [S::splat(0.0); N];
    for (loaded, row) in loaded.iter_mut().zip(rows) {
        *loaded = T::load::<S>(&row[chunk]);
    }
    loaded
}

/// Writes the products of Q queries and R rows.
#[inline(always)]
fn put<const Q: usize, const R: usize>(products: [f32; 8], scores: &mut [f32], stride: usize) {
    for (q, products) in products.chunks_exact(R).take(Q).enumerate() {
        scores[q * stride..][..R].copy_from_slice(products);
    }
}

/// The products of Q queries and R rows, those of a query one after the other; Q * R is at most 8.
#[inline(always)]
fn tile<S: Lanes, T: Stored, const Q: usize, const R: usize>(
    queries: [&[f32]; Q],
    rows: [&[T]; R],
) -> [f32; 8] {
    let width = rows[0].len();
    let chunks = width / 8;
    let query_chunks = in_eights(queries, chunks);
    let row_chunks = in_eights(rows, chunks);
    let mut sums = [S::splat(0.0); 8];
    for chunk in 0..chunks {
        let x = load_of_each::<S, f32, Q>(&query_chunks, chunk);
        for (r, row) in row_chunks.iter().enumerate() {
            let k = T::load::<S>(&row[chunk]);
            for q in 0..Q {
                sums[q * R + r] = S::multiply_add(x[q], k, sums[q * R + r]);
            }
        }
    }
    let mut products = [0.0; 8];
    S::store(S::sums(sums), &mut products);
    for d in chunks * 8..width {
        for q in 0..Q {
            for r in 0..R {
                let sum = &mut products[q * R + r];
                *sum = S::multiply_add_one(queries[q][d], rows[r][d].widen(), *sum);
            }
        }
    }
    products
}

/// sums[q * width + d] += sum over j, in its order, of weights[q * stride + j] * rows[j][d].
pub(super) fn add_weighted<W: Number<Wide = W> + Scalar, V: Number>(
    weights: &[W],
    stride: usize,
    rows: Rows<'_, V>,
    sums: &mut [W],
) {
    if rows.count == 0 || rows.width == 0 {
        return;
    }
    if let (Some(Floats::F32(weights)), Some(data), Some(sums)) = (
        W::as_floats(weights),
        V::as_floats(rows.data),
        W::as_f32_mut(sums),
    ) {
        return match data {
            Floats::F32(data) => simd::run(AddWeighted(weights, stride, rows.with_data(data), sums)),
            Floats::F16(data) => simd::run(AddWeighted(weights, stride, rows.with_data(data), sums)),
            Floats::Bf16(data) => simd::run(AddWeighted(weights, stride, rows.with_data(data), sums)),
        };
    }
    for (q, sums) in sums.chunks_exact_mut(rows.width).enumerate() {
        for (j, &weight) in weights[q * stride..][..rows.count].iter().enumerate() {
            for (sum, &v) in sums.iter_mut().zip(rows.row(j)) {
                *sum = Scalar::multiply_add(weight, W::from_f64(v.widen().to_f64()), *sum);
            }
        }
    }
}

struct AddWeighted<'a, V>(&'a [f32], usize, Rows<'a, V>, &'a mut [f32]);

impl<V: Stored> Kernel for AddWeighted<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let AddWeighted(weights, stride, rows, sums) = self;
        let fours = sums.len() / (4 * rows.width);
        // What the CPU itself fetches in advance is enough for few queries.
        let each = if fours == 0 { 0 } else { VALUES.div_ceil(fours) };
        for first in (0..rows.count).step_by(VALUES) {
            let part = rows.part(first, VALUES);
            let mut weights = &weights[first..];
            let mut several = sums.chunks_exact_mut(4 * rows.width);
            for (four, sums) in several.by_ref().enumerate() {
                rows.prefetch::<S>(first + VALUES + four * each, each);
                add_part::<S, V, 4, 2>(weights, stride, part, sums);
                weights = weights.get(4 * stride..).unwrap_or_default();
            }
            let mut pairs = several.into_remainder().chunks_exact_mut(2 * rows.width);
            for sums in pairs.by_ref() {
                add_part::<S, V, 2, 4>(weights, stride, part, sums);
                weights = weights.get(2 * stride..).unwrap_or_default();
            }
            let last = pairs.into_remainder();
            if !last.is_empty() {
                add_part::<S, V, 1, 8>(weights, stride, part, last);
            }
        }
    }
}

/// Rows that are added for some queries before the next are read: 8 KiB of f32 at a width of 64, which
/// stay in the first-level cache.
const VALUES: usize = 32;

/// All rows for Q queries, C times eight elements of each at a time.
#[inline(always)]
fn add_part<S: Lanes, V: Stored, const Q: usize, const C: usize>(
    weights: &[f32],
    stride: usize,
    rows: Rows<'_, V>,
    sums: &mut [f32],
) {
    let mut of_queries: [&[f32]; Q] = [&[]; Q];
    for q in 0..Q {
        of_queries[q] = &weights[q * stride..][..rows.count];
    }
    let chunks = rows.width / 8;
    let mut chunk = 0;
    while chunk + C <= chunks {
        add_chunks::<S, V, Q, C>(of_queries, rows, sums, chunk);
        chunk += C;
    }
    while chunk + 2 <= chunks {
        add_chunks::<S, V, Q, 2>(of_queries, rows, sums, chunk);
        chunk += 2;
    }
    if chunk < chunks {
        add_chunks::<S, V, Q, 1>(of_queries, rows, sums, chunk);
    }
    if chunks * 8 == rows.width {
        return;
    }
    for (q, weights) in of_queries.iter().enumerate() {
        let sums = &mut sums[q * rows.width..][..rows.width];
        for (j, &weight) in weights.iter().enumerate() {
            for (sum, v) in sums.iter_mut().zip(rows.row(j)).skip(chunks * 8) {
                *sum = S::multiply_add_one(weight, v.widen(), *sum);
            }
        }
    }
}

/// The elements of C chunks from one on.
#[inline(always)]
fn add_chunks<S: Lanes, V: Stored, const Q: usize, const C: usize>(
    weights: [&[f32]; Q],
    rows: Rows<'_, V>,
    sums: &mut [f32],
    chunk: usize,
) {
    let mut lanes = [[S::splat(0.0); C]; Q];
    for q in 0..Q {
        let sums = sums[q * rows.width + chunk * 8..].as_chunks().0;
        for c in 0..C {
            lanes[q][c] = S::load(&sums[c]);
        }
    }
    let from = rows.data[chunk * 8..].chunks(rows.step);
    for (j, row) in from.take(rows.count).enumerate() {
        let row = &row.as_chunks().0[..C];
        for c in 0..C {
            let v = V::load::<S>(&row[c]);
            for q in 0..Q {
                lanes[q][c] = S::multiply_add(S::splat(weights[q][j]), v, lanes[q][c]);
            }
        }
    }
    for q in 0..Q {
        let sums = sums[q * rows.width + chunk * 8..].as_chunks_mut().0;
        for c in 0..C {
            S::store(lanes[q][c], &mut sums[c]);
        }
    }
}

/// The sum of x[d] * k[d], in sixteen interleaved partial sums that are added in order.
pub(in crate::native::kernels) fn dot<T: Number>(x: &[T::Wide], k: &[T]) -> T::Wide {
    const LANES: usize = 16;
    let mut lanes = [T::Wide::ZERO; LANES];
    let (x_chunks, k_chunks) = (x.chunks_exact(LANES), k.chunks_exact(LANES));
    let (x_rest, k_rest) = (x_chunks.remainder(), k_chunks.remainder());
    for (x, k) in x_chunks.zip(k_chunks) {
        for ((lane, &x), &k) in lanes.iter_mut().zip(x).zip(k) {
            *lane = Scalar::multiply_add(x, k.widen(), *lane);
        }
    }
    let sum = lanes.into_iter().fold(T::Wide::ZERO, Scalar::add);
    x_rest
        .iter()
        .zip(k_rest)
        .fold(sum, |sum, (&x, &k)| Scalar::multiply_add(x, k.widen(), sum))
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::super::tests::{both_variants, floats};
    use super::*;
    fn check_loops<T: Number<Wide = f32>>() {
        for (queries, count, width) in [
            (0, 3, 5),
            (1, 0, 4),
            (1, 1, 1),
            (2, 4, 24),
            (3, 5, 64),
            (7, 6, 64),
            (9, 7, 21),
            (4, 2, 0),
            (8, 33, 40),
            (7, 130, 16),
        ] {
            let (step, stride) = (width + 3, count + 2);
            let data: Vec<T> = floats(count * step + width, 1)
                .into_iter()
                .map(T::narrow)
                .collect();
            let rows = Rows {
                data: &data,
                step,
                width,
                count,
            };
            let x = floats(queries * width, 2);
            let mut scores = vec![0.0; queries * stride];
            products::<T>(&x, rows, &mut scores, stride);
            let weights = scores.clone();
            let mut sums = floats(queries * width, 3);
            let before = sums.clone();
            add_weighted(&weights, stride, rows, &mut sums);
            let at = |j: usize, d: usize| f64::from(data[j * step + d].widen());
            for q in 0..queries {
                for j in 0..count {
                    let terms = (0..width).map(|d| f64::from(x[q * width + d]) * at(j, d));
                    let expected: f64 = terms.sum();
                    assert!(
                        (f64::from(scores[q * stride + j]) - expected).abs() < 1e-5 * (width as f64 + 1.0)
                    );
                }
                for d in 0..width {
                    let terms = (0..count).map(|j| f64::from(weights[q * stride + j]) * at(j, d));
                    let expected = f64::from(before[q * width + d]) + terms.sum::<f64>();
                    assert!((f64::from(sums[q * width + d]) - expected).abs() < 1e-4);
                }
                // A query alone has the same bits.
                let mut alone = vec![0.0; count];
                products::<T>(&x[q * width..][..width], rows, &mut alone, count);
                assert_eq!(alone, &scores[q * stride..][..count]);
                let mut sum = before[q * width..][..width].to_vec();
                add_weighted(&weights[q * stride..][..count], count, rows, &mut sum);
                assert_eq!(sum, &sums[q * width..][..width]);
            }
        }
    }

    #[test]
    fn blocks_of_queries_are_as_each_alone_and_as_f64() {
        both_variants(|| {
            check_loops::<f32>();
            check_loops::<f16>();
            check_loops::<bf16>();
        });
    }
}
