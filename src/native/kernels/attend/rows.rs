//! The inner loops of attention: a block of queries over rows of keys or of values.
//!
//! f32 queries over f32, f16 and bf16 rows go eight lanes at a time (`simd`). All queries of a
//! block go over a few rows before the next are read, so that each is fetched from memory once
//! and in the order it lies there, and rows that come later are asked for in advance. Products
//! have four queries and two rows in registers, sums the values of four rows. Every sum has an
//! order that its own row and query fix, whatever they are blocked with.
//!
//! Floor: a key or value row is read once for each block of queries, 2 · width operations for
//! each query and row. In decoding the rows' bytes are the cost.

use crate::native::kernels::elementwise::in_place;
use crate::native::kernels::exponential::exp;
use crate::native::kernels::number::{Floats, Number, Real, Scalar};
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
        match queries.len() / rows.width {
            0 => {}
            1 => products_of::<S, T, 1, 4>(queries, rows, scores, stride),
            2 => products_of::<S, T, 2, 4>(queries, rows, scores, stride),
            _ => products_of::<S, T, 4, 2>(queries, rows, scores, stride),
        }
    }
}

/// All products, of Q queries and R rows at a time; Q * R is at most 8.
#[inline(always)]
fn products_of<S: Lanes, T: Stored, const Q: usize, const R: usize>(
    queries: &[f32],
    rows: Rows<'_, T>,
    scores: &mut [f32],
    stride: usize,
) {
    let ahead = rows.ahead();
    let whole = rows.count - rows.count % R;
    for j in (0..whole).step_by(R) {
        rows.prefetch::<S>(j + ahead, R);
        products_with::<S, T, Q, R>(queries, rows.several(j), &mut scores[j..], stride);
    }
    for j in whole..rows.count {
        products_with::<S, T, Q, 1>(queries, rows.several(j), &mut scores[j..], stride);
    }
}

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

/// The products of all queries and R rows.
#[inline(always)]
fn products_with<S: Lanes, T: Stored, const Q: usize, const R: usize>(
    queries: &[f32],
    rows: [&[T]; R],
    scores: &mut [f32],
    stride: usize,
) {
    let width = rows[0].len();
    let mut of_q = queries.chunks_exact(Q * width);
    let mut first = 0;
    for queries in of_q.by_ref() {
        tile::<S, T, Q, R>(
            rows_of(queries, width),
            rows,
            &mut scores[first * stride..],
            stride,
        );
        first += Q;
    }
    let (rest, scores) = (
        of_q.remainder(),
        scores.get_mut(first * stride..).unwrap_or_default(),
    );
    match rest.len() / width {
        3 => tile::<S, T, 3, R>(rows_of(rest, width), rows, scores, stride),
        2 => tile::<S, T, 2, R>(rows_of(rest, width), rows, scores, stride),
        1 => tile::<S, T, 1, R>(rows_of(rest, width), rows, scores, stride),
        _ => {}
    }
}

/// scores[q * stride + r] for each query and row.
#[inline(always)]
fn tile<S: Lanes, T: Stored, const Q: usize, const R: usize>(
    queries: [&[f32]; Q],
    rows: [&[T]; R],
    scores: &mut [f32],
    stride: usize,
) {
    let chunks = queries[0].len() / 8;
    let query_chunks = in_eights(queries, chunks);
    let row_chunks = in_eights(rows, chunks);
    let mut sums = [S::splat(0.0); 8];
    for chunk in 0..chunks {
        let k = load_of_each::<S, T, R>(&row_chunks, chunk);
        for (query, sums) in query_chunks.iter().zip(sums.chunks_exact_mut(R)) {
            let x = S::load(&query[chunk]);
            for (sum, &k) in sums.iter_mut().zip(&k) {
                *sum = S::multiply_add(x, k, *sum);
            }
        }
    }
    let mut products = [0.0; 8];
    S::store(S::sums(sums), &mut products);
    for (q, products) in products.chunks_exact_mut(R).take(Q).enumerate() {
        let done = chunks * 8;
        if done < queries[q].len() {
            for (sum, row) in products.iter_mut().zip(rows) {
                let rest = queries[q][done..].iter().zip(&row[done..]);
                *sum = rest.fold(*sum, |sum, (&x, k)| S::multiply_add_one(x, k.widen(), sum));
            }
        }
        scores[q * stride..][..R].copy_from_slice(products);
    }
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
        let ahead = rows.ahead();
        // A block is of eight queries at most.
        for (block, sums) in sums.chunks_mut(8 * rows.width).enumerate() {
            let weights = &weights[8 * block * stride..];
            let whole = rows.count - rows.count % 4;
            for j in (0..whole).step_by(4) {
                rows.prefetch::<S>(j + ahead, 4);
                add_rows::<S, V, 4>(&weights[j..], stride, rows.several(j), sums);
            }
            for j in whole..rows.count {
                add_rows::<S, V, 1>(&weights[j..], stride, rows.several(j), sums);
            }
        }
    }
}

/// R rows for eight queries at most.
#[inline(always)]
fn add_rows<S: Lanes, V: Stored, const R: usize>(
    weights: &[f32],
    stride: usize,
    rows: [&[V]; R],
    sums: &mut [f32],
) {
    let width = rows[0].len();
    let mut of_queries = [[0.0; R]; 8];
    let count = sums.len() / width;
    let of_queries = &mut of_queries[..count];
    for (q, of_query) in of_queries.iter_mut().enumerate() {
        of_query.copy_from_slice(&weights[q * stride..][..R]);
    }
    let chunks = width / 8;
    let row_chunks = in_eights(rows, chunks);
    for chunk in 0..chunks {
        let v = load_of_each::<S, V, R>(&row_chunks, chunk);
        for (sums, weights) in sums.chunks_exact_mut(width).zip(&*of_queries) {
            let Some(sums) = sums.as_chunks_mut().0.get_mut(chunk) else {
                continue;
            };
            let sum = weights.iter().zip(&v).fold(S::load(sums), |sum, (&weight, &v)| {
                S::multiply_add(S::splat(weight), v, sum)
            });
            S::store(sum, sums);
        }
    }
    for d in chunks * 8..width {
        for (sums, weights) in sums.chunks_exact_mut(width).zip(&*of_queries) {
            sums[d] = weights.iter().zip(&rows).fold(sums[d], |sum, (&weight, row)| {
                S::multiply_add_one(weight, row[d].widen(), sum)
            });
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

/// Softmax in place, with the sink's share left out. All zeros if no score is above -inf.
/// `double` computes it in f64.
pub(super) fn softmax<W: Number<Wide = W> + Real>(scores: &mut [W], sink: Option<W>, double: bool) {
    if double {
        let Exponentials { sum, .. } = exponentials_in::<W, f64>(scores, sink);
        return divide_in::<W, f64>(scores, sum);
    }
    let Exponentials { sum, .. } = exponentials(scores, sink);
    divide_in::<W, W>(scores, sum);
}

/// The largest of some scores, and the sum of e^(score - largest).
#[derive(Clone, Copy, Debug)]
pub(super) struct Exponentials<W> {
    pub largest: W,
    pub sum: W,
}

impl<W: Scalar> Exponentials<W> {
    /// Of scores that have been divided by their sum.
    pub const DIVIDED: Self = Exponentials {
        largest: W::ZERO,
        sum: W::ONE,
    };
}

/// e^(score - largest) in place, the sink counted; all zeros, and so their sum, if no score is
/// above -inf.
pub(super) fn exponentials<W: Number<Wide = W> + Real>(scores: &mut [W], sink: Option<W>) -> Exponentials<W> {
    let sink_float = sink.map(|sink| sink.to_f64() as f32);
    match W::as_f32_mut(scores) {
        Some(scores) => {
            let Exponentials { largest, sum } = simd::run(ExponentialsOf(scores, sink_float));
            Exponentials {
                largest: W::from_f64(largest.into()),
                sum: W::from_f64(sum.into()),
            }
        }
        None => exponentials_in::<W, W>(scores, sink),
    }
}

fn exponentials_in<W: Real, P: Real>(scores: &mut [W], sink: Option<W>) -> Exponentials<P> {
    let lowest = sink.unwrap_or(W::LOWEST);
    let max = scores.iter().fold(lowest, |max, &score| max.max(score));
    let largest = P::from_f64(max.to_f64());
    if max == W::LOWEST {
        scores.fill(W::ZERO);
        return Exponentials {
            largest,
            sum: P::ZERO,
        };
    }
    let exp_of = |score: W| P::from_f64(score.to_f64()).sub(largest).exp();
    let mut sum = sink.map_or(P::ZERO, exp_of);
    for score in scores.iter_mut() {
        let exp = exp_of(*score);
        *score = W::from_f64(exp.to_f64());
        sum = sum.add(exp);
    }
    Exponentials { largest, sum }
}

fn divide_in<W: Real, P: Real>(scores: &mut [W], sum: P) {
    if sum != P::ZERO {
        for score in scores {
            *score = W::from_f64(P::from_f64(score.to_f64()).div(sum).to_f64());
        }
    }
}

struct ExponentialsOf<'a>(&'a mut [f32], Option<f32>);

impl Kernel for ExponentialsOf<'_> {
    type Output = Exponentials<f32>;

    #[inline(always)]
    fn run<S: Lanes>(self) -> Exponentials<f32> {
        let ExponentialsOf(scores, sink) = self;
        let (chunks, rest) = scores.as_chunks::<8>();
        // A NaN is passed over here, and makes the sum NaN below.
        let larger = |a: f32, b: f32| if b > a { b } else { a };
        let mut lanes = [f32::NEG_INFINITY; 8];
        for chunk in chunks {
            for (lane, &score) in lanes.iter_mut().zip(chunk) {
                *lane = larger(*lane, score);
            }
        }
        let largest = lanes
            .iter()
            .chain(rest)
            .fold(f32::NEG_INFINITY, |a, &b| larger(a, b));
        let largest = larger(largest, sink.unwrap_or(f32::NEG_INFINITY));
        if largest == f32::NEG_INFINITY {
            let nan = |score: &f32| score.is_nan();
            let sum = match chunks.iter().flatten().chain(rest).any(nan) {
                true => f32::NAN,
                false => 0.0,
            };
            scores.fill(sum);
            return Exponentials { largest, sum };
        }
        in_place(scores, |score| exp::<S>(score - largest));
        let (chunks, rest) = scores.as_chunks::<8>();
        let mut last = [0.0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let one = S::splat(1.0);
        let add = |sum, chunk| S::multiply_add(S::load(chunk), one, sum);
        let mut sums = [0.0; 8];
        S::store(chunks.iter().chain([&last]).fold(S::splat(0.0), add), &mut sums);
        let sink = sink.map_or(0.0, |sink| exp::<S>(sink - largest));
        Exponentials {
            largest,
            sum: sink + sum_of(sums),
        }
    }
}

#[inline(always)]
fn sum_of(lanes: [f32; 8]) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::super::tests::floats;
    use super::*;
    use crate::native::kernels::simd::PORTABLE_ONLY;

    fn both_variants(check: impl Fn()) {
        for portable in [false, true] {
            PORTABLE_ONLY.set(portable);
            check();
        }
        PORTABLE_ONLY.set(false);
    }

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

    #[test]
    fn softmax_is_that_of_f64() {
        both_variants(|| {
            for len in [1, 7, 8, 9, 40] {
                for sink in [None, Some(0.5)] {
                    let scores: Vec<f32> = floats(len, 4).into_iter().map(|x| x * 40.0).collect();
                    let mut found = scores.clone();
                    softmax(&mut found, sink, false);
                    let sum: f64 = scores.iter().chain(&sink).map(|&x| f64::from(x).exp()).sum();
                    let max = scores
                        .iter()
                        .chain(&sink)
                        .fold(f32::MIN, |a, &b| if b > a { b } else { a });
                    for (&found, &score) in found.iter().zip(&scores) {
                        let expected = f64::from(score).exp() / sum;
                        // Half a unit of score - max is a relative error of e to its power.
                        let bound = f64::from(f32::EPSILON) * (4.0 + f64::from(max - score));
                        let error = (f64::from(found) - expected).abs();
                        assert!(error <= bound * expected + 1e-38, "{found} {expected}");
                    }
                }
            }
        });
    }

    #[test]
    fn softmax_of_what_is_not_finite() {
        both_variants(|| {
            let hidden = f32::NEG_INFINITY;
            let mut scores = [hidden; 9];
            softmax(&mut scores, None, false);
            assert_eq!(scores, [0.0; 9]);
            let mut scores = [1.0, hidden, hidden];
            softmax(&mut scores, None, false);
            assert_eq!(scores, [1.0, 0.0, 0.0]);
            let mut scores = [0.0, f32::NAN, hidden, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0];
            softmax(&mut scores, None, false);
            assert!(scores.iter().all(|score| score.is_nan()));
        });
    }
}
