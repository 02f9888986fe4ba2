//! Activations, elementwise. Parameters are attributes, with their defaults in parentheses.
//!
//!   Elu               x, or alpha (e^x - 1) where x < 0        alpha (1)          ai.onnx 6, 22
//!   Celu              x, or alpha (e^(x/alpha) - 1) where x < 0  alpha (1)        ai.onnx 12, 28
//!   Selu              gamma x, or gamma alpha (e^x - 1) where x <= 0
//!                     alpha (1.67326...), gamma (1.05070...)                      ai.onnx 6, 22
//!   LeakyRelu         x, or alpha x where x < 0                alpha (0.01)       ai.onnx 6, 16
//!   PRelu(X, slope)   x, or slope x where x < 0; slope broadcasts to X; also integers of 32 and
//!                     64 bits                                                     ai.onnx 7, 9, 16
//!   ThresholdedRelu   x, or 0 where x <= alpha                 alpha (1)          ai.onnx 10, 22
//!   HardSigmoid       max(0, min(1, alpha x + beta))           alpha (0.2), beta (0.5)
//!                                                                                 ai.onnx 6, 22
//!   HardSwish         x max(0, min(1, x / 6 + 0.5))                               ai.onnx 14, 22
//!   Swish             x sigmoid(alpha x)                       alpha (1)          ai.onnx 24
//!   Mish              x tanh(ln(1 + e^x))                                         ai.onnx 18, 22
//!   Softsign          x / (1 + |x|)                                               ai.onnx 1, 22
//!   Shrink            x + bias where x < -lambd, x - bias where x > lambd, else 0
//!                     lambd (0.5), bias (0); any number                           ai.onnx 9
//!
//! f16 and bf16 are computed in f32 and rounded once.

use super::Built;
use super::dispatch::{with_float, with_integer, with_number};
use super::elementwise::{in_place, map, map_wide, operand, pairs, zip_wide};
use super::exponential::{Curve, each};
use super::infer::like_first_input;
use super::number::{Float, Number, Real, Scalar};
use super::unary::softplus_of;
use crate::native::element::ElementType;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Activation {
    Elu { alpha: f32 },
    Celu { alpha: f32 },
    Selu { alpha: f32, gamma: f32 },
    LeakyRelu { alpha: f32 },
    ThresholdedRelu { alpha: f32 },
    HardSigmoid { alpha: f32, beta: f32 },
    HardSwish,
    Swish { alpha: f32 },
    Mish,
    Softsign,
}

pub(in crate::native) fn elu(node: &NodeInfo<'_>) -> Built {
    let alpha = node.float_or("alpha", 1.0)?;
    Ok(Box::new(Activation::Elu { alpha }))
}

pub(in crate::native) fn celu(node: &NodeInfo<'_>) -> Built {
    let alpha = node.float_or("alpha", 1.0)?;
    Ok(Box::new(Activation::Celu { alpha }))
}

pub(in crate::native) fn selu(node: &NodeInfo<'_>) -> Built {
    // The specification's numbers, with the digits that an f32 keeps.
    let alpha = node.float_or("alpha", 1.673_263_2)?;
    let gamma = node.float_or("gamma", 1.050_701)?;
    Ok(Box::new(Activation::Selu { alpha, gamma }))
}

pub(in crate::native) fn leaky_relu(node: &NodeInfo<'_>) -> Built {
    let alpha = node.float_or("alpha", 0.01)?;
    Ok(Box::new(Activation::LeakyRelu { alpha }))
}

pub(in crate::native) fn thresholded_relu(node: &NodeInfo<'_>) -> Built {
    let alpha = node.float_or("alpha", 1.0)?;
    Ok(Box::new(Activation::ThresholdedRelu { alpha }))
}

pub(in crate::native) fn hard_sigmoid(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Activation::HardSigmoid {
        alpha: node.float_or("alpha", 0.2)?,
        beta: node.float_or("beta", 0.5)?,
    }))
}

pub(in crate::native) fn hard_swish(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Activation::HardSwish))
}

pub(in crate::native) fn swish(node: &NodeInfo<'_>) -> Built {
    let alpha = node.float_or("alpha", 1.0)?;
    Ok(Box::new(Activation::Swish { alpha }))
}

pub(in crate::native) fn mish(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Activation::Mish))
}

pub(in crate::native) fn softsign(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Activation::Softsign))
}

/// max(0, min(1, alpha x + beta))
fn hard_sigmoid_of<W: Real>(x: W, alpha: W, beta: W) -> W {
    Scalar::min(Scalar::max(alpha.mul(x).add(beta), W::ZERO), W::ONE)
}

impl Operator for Activation {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl Activation {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let y = cx.output::<T>(0, x.dims())?;
        let activation = *self;
        let x = x.slice::<T>()?;
        map_wide(cx.workers(), 8, x, y, &|block| activation.apply(block));
        Ok(())
    }

    fn apply<W: Real + Number>(self, block: &mut [W]) {
        let wide = |parameter: f32| W::from_f64(parameter.into());
        let zero = W::ZERO;
        match self {
            Activation::Elu { alpha } => {
                let alpha = wide(alpha);
                in_place(block, |x| if x < zero { alpha.mul(x.exp_m1()) } else { x });
            }
            Activation::Celu { alpha } => {
                let alpha = wide(alpha);
                in_place(block, |x| match x < zero {
                    true => alpha.mul(x.div(alpha).exp_m1()),
                    false => x,
                });
            }
            Activation::Selu { alpha, gamma } => {
                let (alpha, gamma) = (wide(alpha), wide(gamma));
                in_place(block, |x| match x <= zero {
                    true => gamma.mul(alpha.mul(x.exp_m1())),
                    false => gamma.mul(x),
                });
            }
            Activation::LeakyRelu { alpha } => {
                let alpha = wide(alpha);
                in_place(block, |x| if x < zero { alpha.mul(x) } else { x });
            }
            Activation::ThresholdedRelu { alpha } => {
                let alpha = wide(alpha);
                in_place(block, |x| if x <= alpha { zero } else { x });
            }
            Activation::HardSigmoid { alpha, beta } => {
                let (alpha, beta) = (wide(alpha), wide(beta));
                in_place(block, |x| hard_sigmoid_of(x, alpha, beta));
            }
            Activation::HardSwish => {
                // In the type of the elements: a sixth is not the f32 nearest to it.
                let sixth = W::ONE.div(W::from_f64(6.0));
                let half = W::from_f64(0.5);
                in_place(block, |x| x.mul(hard_sigmoid_of(x, sixth, half)));
            }
            Activation::Swish { alpha } => each(Curve::Swish { alpha }, block),
            Activation::Mish => in_place(block, |x| x.mul(softplus_of(x).tanh())),
            Activation::Softsign => in_place(block, |x| x.div(W::ONE.add(Scalar::abs(x)))),
        }
    }
}

#[derive(Debug)]
struct PRelu {
    /// Before opset 7, a slope of more than one element is one for each channel.
    per_channel: bool,
}

pub(in crate::native) fn p_relu(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(PRelu {
        per_channel: node.since < 7,
    }))
}

impl Operator for PRelu {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, slope) = (cx.required(0)?, cx.required(1)?);
        super::same_type(&x, &slope, 1)?;
        let channels: Dims = slope
            .dims()
            .iter()
            .copied()
            .chain(std::iter::repeat_n(1, x.rank().saturating_sub(2)))
            .collect();
        let slope = match self.per_channel && slope.rank() == 1 && slope.len() > 1 {
            true => slope.reshaped(&channels)?,
            false => slope,
        };
        let dims = super::broadcast(x.dims(), slope.dims())?;
        if dims.as_slice() != x.dims() {
            return Err(OpError::Message(format!(
                "slope {:?} does not broadcast to {:?}",
                slope.dims(),
                x.dims()
            )));
        }
        with_number!(x.element_type(), T => {
            let (a, b) = (operand::<T>(&x)?, operand::<T>(&slope)?);
            let y = cx.output::<T>(0, &dims)?;
            zip_wide(cx.workers(), 1, a, b, &dims, y, &|x, slope, y| pairs(x, slope, y, leak));
            Ok(())
        })
    }
}

fn leak<W: Scalar>(x: W, slope: W) -> W {
    if x < W::ZERO { x.mul(slope) } else { x }
}

#[derive(Debug)]
struct Shrink {
    lambd: f64,
    bias: f64,
}

pub(in crate::native) fn shrink(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Shrink {
        lambd: node.float_or("lambd", 0.5)?.into(),
        bias: node.float_or("bias", 0.0)?.into(),
    }))
}

impl Operator for Shrink {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_number!(x.element_type(), T => {
            let y = cx.output::<T>(0, x.dims())?.into_mut();
            map(x.slice::<T>()?, y, |x| self.of(x));
            Ok(())
        })
    }
}

impl Shrink {
    /// In f64, so that a threshold between two integers means what it says.
    fn of<T: Number>(&self, x: T) -> T {
        let wide = x.widen().to_f64();
        let shifted = match wide {
            x if x < -self.lambd => x + self.bias,
            x if x > self.lambd => x - self.bias,
            _ => 0.0,
        };
        // An integer beyond 2^53 that is not moved keeps its digits.
        if shifted == wide {
            x
        } else {
            T::narrow(T::Wide::from_f64(shifted))
        }
    }
}
