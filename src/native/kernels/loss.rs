//! Losses over X [N, C, d1, ...], targets [N, d1, ...] of classes and weights [C] (1 without them):
//!
//!   NegativeLogLikelihoodLoss   loss = -weight[t] x[n, t, d]
//!   SoftmaxCrossEntropyLoss     the same of x = log softmax of X over the classes, output 1
//!
//! `reduction`: none, sum, or mean, the sum divided by that of the weights used. Targets that are
//! `ignore_index` count for nothing. ai.onnx 12, 13 (the first also 22). Sums in f64.

use super::Built;
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::number::{Float, Scalar};
use super::window::split_dims;
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduction {
    None,
    Sum,
    Mean,
}

#[derive(Debug)]
struct Loss {
    softmax: bool,
    reduction: Reduction,
    ignore: Option<i64>,
}

fn build(node: &NodeInfo<'_>, softmax: bool) -> Built {
    let reduction = match node.string_or("reduction", "mean")? {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        other => {
            return Err(OpError::Attribute {
                name: "reduction".into(),
                message: format!("is \"{other}\", expected none, sum or mean"),
            });
        }
    };
    Ok(Box::new(Loss {
        softmax,
        reduction,
        ignore: node.int("ignore_index")?,
    }))
}

pub(in crate::native) fn negative_log_likelihood_loss(node: &NodeInfo<'_>) -> Built {
    build(node, false)
}

pub(in crate::native) fn softmax_cross_entropy_loss(node: &NodeInfo<'_>) -> Built {
    build(node, true)
}

impl Operator for Loss {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = input_type(cx, 0);
        let dims = match self.reduction {
            Reduction::None => input_dims(cx, 1),
            _ => Some(SymDims::new()),
        };
        cx.set_output(0, ty, dims);
        cx.set_output(1, ty, input_dims(cx, 0));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl Loss {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let (batch, classes, spatial) = split_dims(x.dims())?;
        let mut dims = Dims::from_slice(&[batch]);
        dims.extend_from_slice(spatial);
        let targets = cx.required(1)?;
        if targets.dims() != dims.as_slice() {
            return Err(OpError::WrongDims {
                what: "input 1".into(),
                found: targets.dims().into(),
                expected: format!("{dims:?}"),
            });
        }
        let targets = targets.to_ints()?;
        let weights = super::conv::per_channel::<T>(cx, 2, classes)?;
        let image = element_count(spatial)?;
        let x_dims = x.dims();
        let x = x.slice::<T>()?;
        let log_probabilities = cx.scratch::<f64>(if self.softmax { x.len() } else { 0 })?;
        if self.softmax && !x.is_empty() {
            for column in 0..batch * image {
                let first = column / image * classes * image + column % image;
                let values = || counted(0..classes).map(|c| x[first + c * image].widen().to_f64());
                let max = values().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = values().map(|x| (x - max).exp()).sum();
                for (c, x) in values().enumerate() {
                    log_probabilities[first + c * image] = x - max - sum.ln();
                }
            }
        }
        let log_probabilities = &*log_probabilities;
        let value = |at: usize| match log_probabilities.get(at) {
            Some(&value) => value,
            None => x[at].widen().to_f64(),
        };
        // Weight and loss of a target.
        let loss = |at: usize| -> Result<(f64, f64), OpError> {
            let target = targets[at];
            if self.ignore == Some(target) {
                return Ok((0.0, 0.0));
            }
            let class = usize::try_from(target)
                .ok()
                .filter(|&class| class < classes)
                .ok_or_else(|| OpError::Message(format!("target {target} is none of {classes} classes")))?;
            let weight = weights.map_or(1.0, |weights| weights[class].widen().to_f64());
            let (n, d) = (at / image, at % image);
            Ok((weight, -weight * value((n * classes + class) * image + d)))
        };
        let narrow = |value: f64| T::narrow(Scalar::from_f64(value));
        if cx.output_used(0) {
            match self.reduction {
                Reduction::None => {
                    let mut y = cx.output::<T>(0, &dims)?;
                    for at in counted(0..targets.len()) {
                        y.extend([narrow(loss(at)?.1)])?;
                    }
                }
                reduction => {
                    let (mut weight, mut sum) = (0.0, 0.0);
                    for at in counted(0..targets.len()) {
                        let (of_target, loss) = loss(at)?;
                        weight += of_target;
                        sum += loss;
                    }
                    let result = if reduction == Reduction::Mean {
                        sum / weight
                    } else {
                        sum
                    };
                    cx.output::<T>(0, &[])?.copy_from(&[narrow(result)])?;
                }
            }
        }
        if self.softmax && cx.output_used(1) {
            cx.output::<T>(1, x_dims)?.fill_with(|at| narrow(value(at)));
        }
        Ok(())
    }
}
