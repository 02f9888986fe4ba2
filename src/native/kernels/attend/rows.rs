//! The inner loops of attention: a block of queries over rows of keys or of values.
//!
//! f32 queries over f32, f16 and bf16 rows go eight lanes at a time (`simd`), four queries and
//! two rows (or sixteen columns) in registers, and the last one to three queries in a loop of
//! their own. All queries of a block go over some rows before the next rows are read, so that
//! each is fetched from memory once. Every sum has an order that its own row and query fix,
//! whatever they are blocked with.
//!
//! Floor: a key or value row is read once for each block of queries, 2 · width operations for
//! each query and row. With one query (decode) the rows' bytes are the cost.

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

/// Rows that all queries of a block go over before the next are read: 16 KiB of f32 at a width
/// of 64.
const RESIDENT: usize = 64;

impl<'a, T> Rows<'a, T> {
    /// The rows in parts of [`RESIDENT`], each with the index of its first.
    #[inline(always)]
    fn parts(self) -> impl Iterator<Item = (usize, Self)> {
        let Rows {
            data,
            step,
            width,
            count,
        } = self;
        (0..count).step_by(RESIDENT).map(move |first| {
            let part = Rows {
                data: &data[first * step..],
                step,
                width,
                count: RESIDENT.min(count - first),
            };
            (first, part)
        })
    }

    #[inline(always)]
    fn row(&self, index: usize) -> &'a [T] {
        &self.data[index * self.step..][..self.width]
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
        let count = queries.len() / rows.width;
        let whole = count - count % 4;
        for (at, rows) in rows.parts() {
            let scores = &mut scores[at..];
            for first in (0..whole).step_by(4) {
                products_of::<S, T, 4>(first, queries, rows, scores, stride);
            }
            match count - whole {
                3 => products_of::<S, T, 3>(whole, queries, rows, scores, stride),
                2 => products_of::<S, T, 2>(whole, queries, rows, scores, stride),
                1 => products_of::<S, T, 1>(whole, queries, rows, scores, stride),
                _ => {}
            }
        }
    }
}

#[inline(always)]
fn products_of<S: Lanes, T: Stored, const Q: usize>(
    first: usize,
    queries: &[f32],
    rows: Rows<'_, T>,
    scores: &mut [f32],
    stride: usize,
) {
    let queries: [&[f32]; Q] = std::array::from_fn(|q| &queries[(first + q) * rows.width..][..rows.width]);
    let whole = rows.count - rows.count % 2;
    for j in (0..whole).step_by(2) {
        let sums = tile::<S, T, Q, 2>(queries, [rows.row(j), rows.row(j + 1)]);
        for (q, sums) in sums.iter().enumerate() {
            scores[(first + q) * stride + j..][..2].copy_from_slice(sums);
        }
    }
    for j in whole..rows.count {
        let sums = tile::<S, T, Q, 1>(queries, [rows.row(j)]);
        for (q, [sum]) in sums.into_iter().enumerate() {
            scores[(first + q) * stride + j] = sum;
        }
    }
}

/// All products of Q queries and R rows.
#[inline(always)]
fn tile<S: Lanes, T: Stored, const Q: usize, const R: usize>(
    queries: [&[f32]; Q],
    rows: [&[T]; R],
) -> [[f32; R]; Q] {
    let chunks = queries[0].len() / 8;
    let query_chunks: [&[[f32; 8]]; Q] = std::array::from_fn(|q| &queries[q].as_chunks().0[..chunks]);
    let row_chunks: [&[[T; 8]]; R] = std::array::from_fn(|r| &rows[r].as_chunks().0[..chunks]);
    let mut sums = [[S::splat(0.0); R]; Q];
    for chunk in 0..chunks {
        let k: [S::V; R] = std::array::from_fn(|r| T::load::<S>(&row_chunks[r][chunk]));
        for (query, sums) in query_chunks.iter().zip(&mut sums) {
            let x = S::load(&query[chunk]);
            for (sum, &k) in sums.iter_mut().zip(&k) {
                *sum = S::multiply_add(x, k, *sum);
            }
        }
    }
    std::array::from_fn(|q| {
        std::array::from_fn(|r| {
            let mut lanes = [0.0; 8];
            S::store(sums[q][r], &mut lanes);
            let rest = queries[q].iter().zip(rows[r]).skip(chunks * 8);
            rest.fold(sum_of(lanes), |sum, (&x, k)| {
                S::multiply_add_one(x, k.widen(), sum)
            })
        })
    })
}

#[inline(always)]
fn sum_of(lanes: [f32; 8]) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
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
        let count = sums.len() / rows.width;
        let whole = count - count % 4;
        for (at, rows) in rows.parts() {
            let weights = &weights[at..];
            for first in (0..whole).step_by(4) {
                add_weighted_to::<S, V, 4>(first, weights, stride, rows, sums);
            }
            match count - whole {
                3 => add_weighted_to::<S, V, 3>(whole, weights, stride, rows, sums),
                2 => add_weighted_to::<S, V, 2>(whole, weights, stride, rows, sums),
                1 => add_weighted_to::<S, V, 1>(whole, weights, stride, rows, sums),
                _ => {}
            }
        }
    }
}

#[inline(always)]
fn add_weighted_to<S: Lanes, V: Stored, const Q: usize>(
    first: usize,
    weights: &[f32],
    stride: usize,
    rows: Rows<'_, V>,
    sums: &mut [f32],
) {
    let weights: [&[f32]; Q] = std::array::from_fn(|q| &weights[(first + q) * stride..][..rows.count]);
    let sums = &mut sums[first * rows.width..][..Q * rows.width];
    let chunks = rows.width / 8;
    let pairs = chunks - chunks % 2;
    for chunk in (0..pairs).step_by(2) {
        add_columns::<S, V, Q, 2>(chunk, weights, rows, sums);
    }
    for chunk in pairs..chunks {
        add_columns::<S, V, Q, 1>(chunk, weights, rows, sums);
    }
    for d in chunks * 8..rows.width {
        for (q, weights) in weights.iter().enumerate() {
            let sum = &mut sums[q * rows.width + d];
            for (j, &weight) in weights.iter().enumerate() {
                *sum = S::multiply_add_one(weight, rows.row(j)[d].widen(), *sum);
            }
        }
    }
}

/// C chunks of eight columns, from one on, for Q queries.
#[inline(always)]
fn add_columns<S: Lanes, V: Stored, const Q: usize, const C: usize>(
    chunk: usize,
    weights: [&[f32]; Q],
    rows: Rows<'_, V>,
    sums: &mut [f32],
) {
    let mut lanes = [[S::splat(0.0); C]; Q];
    for (q, lanes) in lanes.iter_mut().enumerate() {
        let sums = &sums[q * rows.width + chunk * 8..][..C * 8];
        for (lanes, sums) in lanes.iter_mut().zip(sums.as_chunks().0) {
            *lanes = S::load(sums);
        }
    }
    for j in 0..rows.count {
        let row = &rows.row(j)[chunk * 8..][..C * 8];
        let chunks = &row.as_chunks::<8>().0[..C];
        let v: [S::V; C] = std::array::from_fn(|c| V::load::<S>(&chunks[c]));
        for (weights, lanes) in weights.iter().zip(&mut lanes) {
            let weight = S::splat(weights[j]);
            for (lanes, &v) in lanes.iter_mut().zip(&v) {
                *lanes = S::multiply_add(weight, v, *lanes);
            }
        }
    }
    for (q, lanes) in lanes.iter().enumerate() {
        let sums = &mut sums[q * rows.width + chunk * 8..][..C * 8];
        for (&lanes, sums) in lanes.iter().zip(sums.as_chunks_mut().0) {
            S::store(lanes, sums);
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
        return softmax_in::<W, f64>(scores, sink);
    }
    let sink_float = sink.map(|sink| sink.to_f64() as f32);
    match W::as_f32_mut(scores) {
        Some(scores) => simd::run(Softmax(scores, sink_float)),
        None => softmax_in::<W, W>(scores, sink),
    }
}

fn softmax_in<W: Real, P: Real>(scores: &mut [W], sink: Option<W>) {
    let lowest = sink.unwrap_or(W::LOWEST);
    let max = scores.iter().fold(lowest, |max, &score| max.max(score));
    if max == W::LOWEST {
        scores.fill(W::ZERO);
        return;
    }
    let max = P::from_f64(max.to_f64());
    let exp_of = |score: W| P::from_f64(score.to_f64()).sub(max).exp();
    let mut sum = sink.map_or(P::ZERO, exp_of);
    for score in scores.iter_mut() {
        let exp = exp_of(*score);
        *score = W::from_f64(exp.to_f64());
        sum = sum.add(exp);
    }
    for score in scores {
        *score = W::from_f64(P::from_f64(score.to_f64()).div(sum).to_f64());
    }
}

struct Softmax<'a>(&'a mut [f32], Option<f32>);

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let Softmax(scores, sink) = self;
        let (chunks, rest) = scores.as_chunks_mut::<8>();
        // A NaN is passed over here, and makes the sum NaN below.
        let larger = |a: f32, b: f32| if b > a { b } else { a };
        let mut lanes = [f32::NEG_INFINITY; 8];
        for chunk in &*chunks {
            for (lane, &score) in lanes.iter_mut().zip(chunk) {
                *lane = larger(*lane, score);
            }
        }
        let max = lanes
            .iter()
            .chain(&*rest)
            .fold(f32::NEG_INFINITY, |a, &b| larger(a, b));
        let max = larger(max, sink.unwrap_or(f32::NEG_INFINITY));
        if max == f32::NEG_INFINITY {
            let nan = |score: &f32| score.is_nan();
            let value = match chunks.iter().flatten().chain(&*rest).any(nan) {
                true => f32::NAN,
                false => 0.0,
            };
            scores.fill(value);
            return;
        }
        let mut last = [f32::NEG_INFINITY; 8];
        last[..rest.len()].copy_from_slice(rest);
        let mut sums = [0.0; 8];
        for chunk in chunks.iter_mut().chain([&mut last]) {
            *chunk = exp::<S>(chunk.map(|score| score - max));
            for (sum, &exp) in sums.iter_mut().zip(&*chunk) {
                *sum += exp;
            }
        }
        let sink = sink.map_or(0.0, |sink| exp::<S>([sink - max; 8])[0]);
        let sum = sink + sum_of(sums);
        for chunk in chunks {
            *chunk = chunk.map(|exp| exp / sum);
        }
        for (score, exp) in rest.iter_mut().zip(last) {
            *score = exp / sum;
        }
    }
}

/// e^x for x up to 0, to two units in the last place; zero below 2^-126, NaN for NaN.
///
/// With n the whole number next to x / ln 2 and r = x - n ln 2, e^x = 2^n e^r, and e^r is
/// 1 + r + r^2 p(r), p the minimax polynomial of the Cephes library.
#[inline(always)]
fn exp<S: Lanes>(x: [f32; 8]) -> [f32; 8] {
    const LEAST: f32 = -87.33;
    /// Adding it leaves a whole number in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    const P: [f32; 6] = [
        1.987_569_1e-4,
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        5e-1,
    ];
    let clamped = S::load(&x.map(|x| if x > LEAST { x } else { LEAST }));
    let splat = S::splat;
    let mut shifted = [0.0; 8];
    S::store(
        S::multiply_add(clamped, splat(std::f32::consts::LOG2_E), splat(ROUND)),
        &mut shifted,
    );
    let n = S::load(&shifted.map(|shifted| shifted - ROUND));
    let r = S::multiply_add(n, splat(-LN_2_HIGH), clamped);
    let r = S::multiply_add(n, splat(-LN_2_LOW), r);
    let mut p = splat(P[0]);
    for &next in &P[1..] {
        p = S::multiply_add(p, r, splat(next));
    }
    let mut of_r = [0.0; 8];
    let zero = splat(0.0);
    let square = S::multiply_add(r, r, zero);
    let one_more = S::multiply_add(r, splat(1.0), splat(1.0));
    S::store(S::multiply_add(p, square, one_more), &mut of_r);
    std::array::from_fn(|i| {
        let power = f32::from_bits((shifted[i].to_bits() << 23).wrapping_add(127 << 23));
        let value = if x[i] > LEAST { of_r[i] * power } else { 0.0 };
        if x[i].is_nan() { x[i] } else { value }
    })
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::native::kernels::simd::PORTABLE_ONLY;

    /// Numbers between -1 and 1, the same every time.
    fn floats(len: usize, seed: u32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as f32 / u32::MAX as f32 * 2.0 - 1.0
        };
        (0..len).map(|_| next()).collect()
    }

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
