//! The softmax of attention's scores: e^(s - largest) over their sum, with a sink's score counted if
//! there is one. f32 goes eight lanes at a time (`simd`); the sum has an order that the number of
//! scores fixes.

use crate::native::kernels::elementwise::in_place;
use crate::native::kernels::exponential::exp;
use crate::native::kernels::number::{Number, Real, Scalar};
use crate::native::kernels::simd::{self, Kernel, Lanes};

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
    use super::super::tests::{both_variants, floats};
    use super::*;

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
