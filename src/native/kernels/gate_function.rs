//! The activation functions of recurrent networks and of fused operators, with their alpha and
//! beta.
//!
//!   Relu             max(0, x)                  Softsign         x / (1 + |x|)
//!   Tanh             tanh x                     Softplus         ln(1 + e^x)
//!   Sigmoid          1 / (1 + e^-x)             Elu              x >= 0 ? x : alpha (e^x - 1)
//!   Affine           alpha x + beta             LeakyRelu        x >= 0 ? x : alpha x
//!   ScaledTanh       alpha tanh(beta x)         ThresholdedRelu  x >= alpha ? x : 0
//!   HardSigmoid      min(max(alpha x + beta, 0), 1)
//!   Clip             min(max(x, alpha), beta), in fused operators only

use super::number::{Real, Scalar};
use super::unary::{sigmoid_of, softplus_of};
use crate::native::node::NodeInfo;
use crate::native::operator::OpError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Relu,
    Tanh,
    Sigmoid,
    Affine,
    LeakyRelu,
    ThresholdedRelu,
    ScaledTanh,
    HardSigmoid,
    Elu,
    Softsign,
    Softplus,
    Clip,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Activation {
    function: Function,
    alpha: f32,
    beta: f32,
}

/// Name, function, and the defaults of alpha and beta where the function has them.
type Definition = (&'static str, Function, Option<f32>, Option<f32>);

const DEFINITIONS: [Definition; 11] = [
    ("Relu", Function::Relu, None, None),
    ("Tanh", Function::Tanh, None, None),
    ("Sigmoid", Function::Sigmoid, None, None),
    ("Affine", Function::Affine, Some(1.0), Some(0.0)),
    ("LeakyRelu", Function::LeakyRelu, Some(0.01), None),
    ("ThresholdedRelu", Function::ThresholdedRelu, Some(1.0), None),
    ("ScaledTanh", Function::ScaledTanh, Some(1.0), Some(1.0)),
    ("HardSigmoid", Function::HardSigmoid, Some(0.2), Some(0.5)),
    ("Elu", Function::Elu, Some(1.0), None),
    ("Softsign", Function::Softsign, None, None),
    ("Softplus", Function::Softplus, None, None),
];

/// The attributes `activations`, `activation_alpha` and `activation_beta`, or `default`, which
/// has as many entries. Alphas and betas are handed out in order to the functions that have
/// them.
pub(super) fn read(node: &NodeInfo<'_>, default: &[&str]) -> Result<Vec<Activation>, OpError> {
    let given = node.strings("activations")?;
    let names = given.as_deref().unwrap_or(default);
    if names.len() != default.len() {
        return Err(OpError::Attribute {
            name: "activations".into(),
            message: format!("is {names:?}, expected {} functions", default.len()),
        });
    }
    let mut alphas = node.floats("activation_alpha")?.unwrap_or_default().iter();
    let mut betas = node.floats("activation_beta")?.unwrap_or_default().iter();
    names
        .iter()
        .map(|name| {
            let (_, function, alpha, beta) = DEFINITIONS
                .iter()
                .find(|(known, ..)| known.eq_ignore_ascii_case(name))
                .ok_or_else(|| OpError::Attribute {
                    name: "activations".into(),
                    message: format!("has \"{name}\", which is no activation function"),
                })?;
            let value = |default: &Option<f32>, given: &mut std::slice::Iter<'_, f32>| match default {
                Some(default) => given.next().copied().unwrap_or(*default),
                None => 0.0,
            };
            Ok(Activation {
                function: *function,
                alpha: value(alpha, &mut alphas),
                beta: value(beta, &mut betas),
            })
        })
        .collect()
}

/// The function of a fused operator, whose alpha and beta are named for it alone.
pub(super) fn fused(name: &str, alpha: Option<f32>, beta: Option<f32>) -> Result<Activation, OpError> {
    const CLIP: Definition = ("Clip", Function::Clip, Some(f32::MIN), Some(f32::MAX));
    let definition = DEFINITIONS
        .iter()
        .chain([&CLIP])
        .find(|(known, ..)| *known == name);
    let &(_, function, default_alpha, default_beta) =
        definition.ok_or_else(|| OpError::Unsupported(format!("the fused activation \"{name}\"")))?;
    Ok(Activation {
        function,
        alpha: alpha.or(default_alpha).unwrap_or(0.0),
        beta: beta.or(default_beta).unwrap_or(0.0),
    })
}

impl Activation {
    pub fn apply<W: Real>(self, x: W) -> W {
        let (alpha, beta) = (W::from_f64(self.alpha.into()), W::from_f64(self.beta.into()));
        match self.function {
            Function::Relu => Scalar::max(x, W::ZERO),
            Function::Tanh => x.tanh(),
            Function::Sigmoid => sigmoid_of(x),
            Function::Affine => alpha.mul(x).add(beta),
            Function::LeakyRelu if x < W::ZERO => alpha.mul(x),
            Function::ThresholdedRelu if x < alpha => W::ZERO,
            Function::Elu if x < W::ZERO => alpha.mul(x.exp().sub(W::ONE)),
            Function::LeakyRelu | Function::ThresholdedRelu | Function::Elu => x,
            Function::ScaledTanh => alpha.mul(beta.mul(x).tanh()),
            Function::HardSigmoid => Scalar::max(Scalar::min(alpha.mul(x).add(beta), W::ONE), W::ZERO),
            Function::Softsign => x.div(W::ONE.add(Scalar::abs(x))),
            Function::Softplus => softplus_of(x),
            Function::Clip => Scalar::min(Scalar::max(x, alpha), beta),
        }
    }
}
