//! Gelu in its forms, and the functions after fused operators.

use super::{Array, sigmoid};
use crate::harness::Case;

/// The error function, by its series: all terms are positive, so that nothing cancels.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term != 0.0 && term.abs() > sum.abs() * 1e-17 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

pub fn gelu_tanh(x: f64) -> f64 {
    // 1 + tanh z is 2 sigmoid(2z), without the cancellation.
    x * sigmoid(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3)))
}

pub fn gelu(case: &Case) -> Vec<Array> {
    let x = case.array(0).unwrap();
    let bias = case.array(1);
    let x = match bias {
        Some(bias) => Array::of(&x.dims, |i| x.at(i) + bias.broadcast_at(i)),
        None => x,
    };
    let alpha = case.float_of("alpha", 1.702);
    vec![x.map(|x| match case.op_type {
        "FastGelu" => gelu_tanh(x),
        "QuickGelu" => x * sigmoid(alpha * x),
        _ => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
    })]
}

/// The function that a fused operator ends with, with its alpha and beta.
pub fn activation(name: String, alpha: f64, beta: f64) -> impl Fn(f64) -> f64 {
    move |x| match name.as_str() {
        "" => x,
        "Relu" => x.max(0.0),
        "Tanh" => x.tanh(),
        "Sigmoid" => sigmoid(x),
        "LeakyRelu" if x < 0.0 => alpha * x,
        "LeakyRelu" => x,
        "HardSigmoid" => (alpha * x + beta).clamp(0.0, 1.0),
        "Clip" => x.clamp(alpha, beta),
        other => panic!("no {other}"),
    }
}
