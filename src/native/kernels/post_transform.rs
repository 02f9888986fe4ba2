//! What classical models do to the scores of a row at the end.
//!
//!   none       as they are                 softmax       e^score / sum of all e^score
//!   logistic   1 / (1 + e^-score)          softmax_zero  softmax over scores that are not 0
//!   probit     where the normal distribution reaches the score

use super::number::Scalar;
use super::wrong_attribute;
use crate::native::node::NodeInfo;
use crate::native::operator::OpError;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Transform {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
    Probit,
}

impl Transform {
    /// The attribute `post_transform`, a name.
    pub fn named(node: &NodeInfo<'_>) -> Result<Self, OpError> {
        Ok(match node.string_or("post_transform", "NONE")? {
            "NONE" => Transform::None,
            "SOFTMAX" => Transform::Softmax,
            "LOGISTIC" => Transform::Logistic,
            "SOFTMAX_ZERO" => Transform::SoftmaxZero,
            "PROBIT" => Transform::Probit,
            other => {
                return Err(wrong_attribute(
                    "post_transform",
                    format!("is \"{other}\", expected NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT"),
                ));
            }
        })
    }

    pub fn apply(self, scores: &mut [f64]) {
        match self {
            Transform::None => {}
            Transform::Softmax => softmax(scores, |_| true),
            Transform::SoftmaxZero => softmax(scores, |score| score != 0.0),
            Transform::Logistic => scores.iter_mut().for_each(|score| *score = logistic(*score)),
            Transform::Probit => scores.iter_mut().for_each(|score| *score = probit(*score)),
        }
    }
}

/// Over the scores that count; the others stay.
fn softmax(scores: &mut [f64], counts: impl Fn(f64) -> bool) {
    let counted = || scores.iter().copied().filter(|&score| counts(score));
    let largest = counted().fold(f64::NEG_INFINITY, Scalar::max);
    let total: f64 = counted().map(|score| (score - largest).exp()).sum();
    for score in scores.iter_mut().filter(|score| counts(**score)) {
        *score = (*score - largest).exp() / total;
    }
}

/// The z that a normal variable is at most with probability p: NaN outside [0, 1].
///
/// Solves erfc(-z / sqrt 2) / 2 = p for the lower half by Halley's method, from a start
/// (Winitzki's formula for the inverse of erf) that is right to two or three digits; each step
/// triples them.
fn probit(p: f64) -> f64 {
    let lower = p.min(1.0 - p);
    let z = match lower {
        p if p > 0.0 => {
            const A: f64 = 0.147;
            let log = (4.0 * p * (1.0 - p)).ln();
            let half = 2.0 / (std::f64::consts::PI * A) + log / 2.0;
            let mut z = -(2.0 * ((half * half - log / A).sqrt() - half)).max(0.0).sqrt();
            for _ in 0..4 {
                let error = 0.5 * libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2) - p;
                // e^(z^2 / 2) in two factors: it alone may be more than an f64 holds.
                let root = (z * z / 4.0).exp();
                let step = error * root * (2.0 * std::f64::consts::PI).sqrt() * root;
                z -= step / (1.0 + z * step / 2.0);
            }
            z
        }
        0.0 => f64::NEG_INFINITY,
        _ => f64::NAN,
    };
    if p > 0.5 { -z } else { z }
}

pub(super) fn logistic(score: f64) -> f64 {
    1.0 / (1.0 + (-score).exp())
}

#[cfg(test)]
mod tests {
    use super::probit;

    #[test]
    fn probit_inverts_the_normal_distribution() {
        // Tabulated quantiles.
        for (p, z) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.841_344_746_068_542_9, 1.0),
            (0.001, -3.090_232_306_167_813_5),
            (1e-10, -6.361_340_902_404_056),
        ] {
            assert!((probit(p) - z).abs() < 1e-12, "{p}: {}", probit(p));
        }
        assert_eq!(probit(0.0), f64::NEG_INFINITY);
        assert_eq!(probit(1.0), f64::INFINITY);
        assert!(probit(1.5).is_nan() && probit(-0.5).is_nan() && probit(f64::NAN).is_nan());
    }
}
