//! The functions that are made of e^x, over blocks of elements:
//!
//!   exp, tanh, sigmoid = 1 / (1 + e^-x), erf, swish = x sigmoid(alpha x),
//!   gelu = x/2 (1 + erf(x / sqrt 2)), and with tanh x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//!
//! Of f32 by polynomials, in loops without branches that the compiler makes as wide as the
//! instructions are (see `simd`): exp to 2 units in the last place, tanh and erf to 3. An element
//! has the same bits wherever in a block it is. Of f64 by the mathematical library.

use super::elementwise::in_place;
use super::number::{Number, Real, Scalar};
use super::simd::{self, Kernel, Lanes};

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Curve {
    Exp,
    Tanh,
    Sigmoid,
    Erf,
    Swish { alpha: f32 },
    Gelu,
    GeluTanh,
}

/// y = curve(x) in place, of any type.
pub(super) fn each<W: Real + Number>(curve: Curve, block: &mut [W]) {
    match W::as_f32_mut(block) {
        Some(block) => simd::run(Each { curve, block }),
        None => each_by_library(curve, block),
    }
}

fn each_by_library<W: Real>(curve: Curve, block: &mut [W]) {
    let wide = |x: f64| W::from_f64(x);
    let one_more = |x: W| W::ONE.add(x);
    let sigmoid = |x: W| W::ONE.div(one_more(x.neg().exp()));
    let half = wide(0.5);
    match curve {
        Curve::Exp => in_place(block, Real::exp),
        Curve::Tanh => in_place(block, Real::tanh),
        Curve::Sigmoid => in_place(block, sigmoid),
        Curve::Erf => in_place(block, Scalar::erf),
        Curve::Swish { alpha } => {
            let alpha = wide(alpha.into());
            in_place(block, |x| x.mul(sigmoid(alpha.mul(x))));
        }
        Curve::Gelu => {
            let root_half = wide(std::f64::consts::FRAC_1_SQRT_2);
            in_place(block, |x| half.mul(x).mul(one_more(x.mul(root_half).erf())));
        }
        Curve::GeluTanh => {
            let root = wide((2.0 / std::f64::consts::PI).sqrt());
            in_place(block, |x| {
                let inner = x.add(wide(0.044715).mul(x).mul(x).mul(x));
                half.mul(x).mul(one_more(root.mul(inner).tanh()))
            });
        }
    }
}

struct Each<'a> {
    curve: Curve,
    block: &'a mut [f32],
}

impl Kernel for Each<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let Each { curve, block } = self;
        match curve {
            Curve::Exp => in_place(block, exp::<S>),
            Curve::Tanh => in_place(block, tanh::<S>),
            Curve::Sigmoid => in_place(block, sigmoid::<S>),
            Curve::Erf => in_place(block, erf::<S>),
            Curve::Swish { alpha } => in_place(block, |x| x * sigmoid::<S>(alpha * x)),
            Curve::Gelu => in_place(block, |x| {
                0.5 * x * (1.0 + erf::<S>(x * std::f32::consts::FRAC_1_SQRT_2))
            }),
            Curve::GeluTanh => in_place(block, |x| {
                const ROOT: f32 = 0.797_884_6;
                let inner = x + 0.044_715 * x * x * x;
                0.5 * x * (1.0 + tanh::<S>(ROOT * inner))
            }),
        }
    }
}

/// The polynomial of these coefficients, the highest power's first.
#[inline(always)]
fn polynomial<S: Lanes>(coefficients: &[f32], x: f32) -> f32 {
    coefficients
        .iter()
        .fold(0.0, |sum, &next| S::multiply_add_one(sum, x, next))
}

/// e^x, with its limits 0 and infinity, and NaN for NaN.
///
/// With n the whole number next to x / ln 2 and r = x - n ln 2, e^x = 2^n e^r, and e^r is
/// 1 + r + r^2 p(r), p the minimax polynomial of the Cephes library.
#[inline(always)]
pub(super) fn exp<S: Lanes>(x: f32) -> f32 {
    /// Where the result is less than half the smallest number, and where it is infinite.
    const LEAST: f32 = -104.0;
    const MOST: f32 = 89.0;
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
    // A NaN stays.
    let x = if x < LEAST { LEAST } else { x };
    let x = if x > MOST { MOST } else { x };
    let shifted = S::multiply_add_one(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = S::multiply_add_one(n, -LN_2_HIGH, x);
    let r = S::multiply_add_one(n, -LN_2_LOW, r);
    let of_r = S::multiply_add_one(polynomial::<S>(&P, r), r * r, r + 1.0);
    // 2^n may be no number of its own, but its halves are.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    of_r * power(half) * power(n.wrapping_sub(half))
}

#[inline(always)]
fn sigmoid<S: Lanes>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<S>(-x))
}

/// x + x^3 p(x^2) near 0, p of the Cephes library, else 1 - 2 / (e^2x + 1).
#[inline(always)]
fn tanh<S: Lanes>(x: f32) -> f32 {
    const P: [f32; 5] = [
        -5.704_988_7e-3,
        2.063_909e-2,
        -5.373_971_6e-2,
        1.333_144_2e-1,
        -3.333_328e-1,
    ];
    let size = x.abs();
    let square = x * x;
    let near = S::multiply_add_one(polynomial::<S>(&P, square) * square, x, x);
    let far = 1.0 - 2.0 / (exp::<S>(2.0 * size) + 1.0);
    // Also of 0, where the sum above has lost it.
    (if size < 0.625 { near } else { far }).copysign(x)
}

/// x p(x^2) up to 1, and 1 - e^-q(x - 1) from there to 4, beyond which it is 1. Both are
/// polynomials through the Chebyshev nodes of their interval.
#[inline(always)]
fn erf<S: Lanes>(x: f32) -> f32 {
    const P: [f32; 7] = [
        7.882_497_4e-5,
        -8.018_855e-4,
        5.189_312e-3,
        -2.685_432_9e-2,
        1.128_359_7e-1,
        -3.761_262_6e-1,
        std::f32::consts::FRAC_2_SQRT_PI,
    ];
    const Q: [f32; 9] = [
        -1.614_061_6e-6,
        3.267_813e-5,
        -3.188_289e-4,
        2.050_620_7e-3,
        -1.007_246_1e-2,
        4.157_149_4e-2,
        8.431_064e-1,
        2.638_967_5,
        1.849_605_6,
    ];
    let size = x.abs();
    let near = x * polynomial::<S>(&P, x * x);
    let clamped = if size > 4.0 { 4.0 } else { size };
    let far = 1.0 - exp::<S>(-polynomial::<S>(&Q, clamped - 1.0));
    if size <= 1.0 { near } else { far.copysign(x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::kernels::simd::PORTABLE_ONLY;

    type Function<'a> = &'a dyn Fn(f64) -> f64;

    /// Calls `check` with the results of a curve in each variant, over a few hundred thousand
    /// elements from -110 to 110, most of them small.
    fn in_each_variant(curve: Curve, check: impl Fn(f32, f32)) {
        let tiny = (-126..=6).map(|power| 2f32.powi(power));
        let even = (0..=200_000).map(|i| (i as f32 - 100_000.0) / 20_000.0);
        let wide = (0..=22_000).map(|i| i as f32 / 100.0 - 110.0);
        let x: Vec<f32> = tiny.flat_map(|x| [x, -x]).chain(even).chain(wide).collect();
        for portable in [true, false] {
            PORTABLE_ONLY.set(portable);
            let mut y = x.clone();
            each(curve, &mut y);
            PORTABLE_ONLY.set(false);
            x.iter().zip(y).for_each(|(&x, y)| check(x, y));
        }
    }

    /// The distance to `expected` in units of its last place.
    fn units(y: f32, expected: f64) -> f64 {
        let nearest = expected as f32;
        let unit = f64::from(f32::from_bits(nearest.abs().to_bits() + 1)) - f64::from(nearest.abs());
        (f64::from(y) - expected).abs() / unit
    }

    #[test]
    fn each_curve_is_near_that_of_the_library() {
        let erf = |x: f64| libm::erf(x);
        let library: [(Curve, f64, Function<'_>); 4] = [
            (Curve::Exp, 2.0, &f64::exp),
            (Curve::Tanh, 3.0, &f64::tanh),
            (Curve::Erf, 3.0, &erf),
            (Curve::Sigmoid, 3.0, &|x| 1.0 / (1.0 + (-x).exp())),
        ];
        for (curve, most, function) in library {
            in_each_variant(curve, |x, y| {
                let expected = function(x.into());
                let both_infinite = y == f32::INFINITY && expected > f64::from(f32::MAX);
                // Below the smallest normal number a reciprocal has lost it all.
                let vanishing = expected < 1e-37 && y.abs() < 2e-37;
                assert!(
                    both_infinite || vanishing || units(y, expected) <= most,
                    "{curve:?}({x}) = {y}, expected {expected}"
                );
            });
        }
    }

    #[test]
    fn products_with_x_are_near_those_of_the_library() {
        let library: [(Curve, Function<'_>); 3] = [
            (Curve::Swish { alpha: 1.5 }, &|x| x / (1.0 + (-1.5 * x).exp())),
            (Curve::Gelu, &|x| {
                x / 2.0 * (1.0 + libm::erf(x / std::f64::consts::SQRT_2))
            }),
            (Curve::GeluTanh, &|x| {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                x / 2.0 * (1.0 + inner.tanh())
            }),
        ];
        for (curve, function) in library {
            in_each_variant(curve, |x, y| {
                let error = (f64::from(y) - function(x.into())).abs();
                assert!(error <= 1e-6 * f64::from(x.abs()), "{curve:?}({x}) = {y}");
            });
        }
    }

    #[test]
    fn limits_and_nan() {
        let of = |curve: Curve, x: f32| {
            let mut block = [x; 11];
            each(curve, &mut block);
            assert!(block.iter().all(|y| y.to_bits() == block[0].to_bits()));
            block[0]
        };
        let ends = |curve| [of(curve, f32::NEG_INFINITY), of(curve, f32::INFINITY)];
        assert_eq!(ends(Curve::Exp), [0.0, f32::INFINITY]);
        assert_eq!(ends(Curve::Tanh), [-1.0, 1.0]);
        assert_eq!(ends(Curve::Erf), [-1.0, 1.0]);
        assert_eq!(ends(Curve::Sigmoid), [0.0, 1.0]);
        assert_eq!(of(Curve::Exp, -103.0), 1e-45);
        assert_eq!(of(Curve::Exp, 0.0), 1.0);
        assert!(of(Curve::Tanh, -0.0).is_sign_negative());
        for curve in [Curve::Exp, Curve::Tanh, Curve::Erf, Curve::Sigmoid, Curve::Gelu] {
            assert!(of(curve, f32::NAN).is_nan());
        }
    }
}
