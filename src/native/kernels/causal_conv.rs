//! CausalConvWithState (ai.onnx 27): a convolution of each channel with its own kernel over the
//! current and the k - 1 positions before it, which come from the state at the beginning.
//!
//!   past = [past_state, input]   y[t] = act(bias + sum over j of weight[j] past[t + j])
//!   input [B, C, L]   weight [C, 1, k]   bias [C]   past_state, present_state [B, C, k - 1]
//!
//! present_state is the end of `past`; without past_state, zeros come before the input.
//! act is `none` or `silu` (or its alias `swish`), x / (1 + e^-x). float16 and bfloat16 in f32.

use super::Built;
use super::conv::per_channel;
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::number::{Float, Scalar};
use super::unary::sigmoid_of;
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct CausalConv {
    silu: bool,
}

pub(in crate::native) fn causal_conv_with_state(node: &NodeInfo<'_>) -> Built {
    let silu = match node.string_or("activation", "none")? {
        "none" => false,
        "silu" | "swish" => true,
        other => {
            return Err(OpError::Attribute {
                name: "activation".into(),
                message: format!("is \"{other}\", expected none, silu or swish"),
            });
        }
    };
    Ok(Box::new(CausalConv { silu }))
}

impl Operator for CausalConv {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (ty, x) = (input_type(cx, 0), input_dims(cx, 0));
        let state = match (x.as_deref(), input_dims(cx, 1).as_deref()) {
            (Some(&[batch, channels, _]), Some(&[_, _, kernel])) => {
                let size = kernel.fixed().and_then(|kernel| kernel.checked_sub(1));
                let size = size.map_or(SymDim::Unknown, SymDim::Fixed);
                Some(SymDims::from_slice(&[batch, channels, size]))
            }
            _ => None,
        };
        cx.set_output(0, ty, x);
        cx.set_output(1, ty, state);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl CausalConv {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let weight = cx.required(1)?;
        let (&[batch, channels, len], &[w_channels, 1, kernel]) = (x.dims(), weight.dims()) else {
            return Err(OpError::Message(format!(
                "the input is {x:?} and the weight {weight:?}, expected [B, C, L] and [C, 1, k]"
            )));
        };
        let Some(size) = kernel.checked_sub(1).filter(|_| channels == w_channels) else {
            return Err(OpError::Message(format!(
                "the weight {weight:?} does not fit the input {x:?}"
            )));
        };
        let bias = per_channel::<T>(cx, 2, channels)?;
        let state_dims = [batch, channels, size];
        let past = match cx.input(3) {
            Some(past) if past.dims() == state_dims => Some(past.slice::<T>()?),
            Some(past) => {
                return Err(OpError::WrongDims {
                    what: "input 3".into(),
                    found: past.dims().into(),
                    expected: format!("{state_dims:?}"),
                });
            }
            None => None,
        };
        let dims = x.dims();
        let (x, weight) = (x.slice::<T>()?, weight.slice::<T>()?);
        // Position `at` of past state and input, of a channel of an image.
        let element = |row: usize, at: usize| match (at.checked_sub(size), past) {
            (Some(at), _) => x[row * len + at].widen(),
            (None, Some(past)) => past[row * size + at].widen(),
            (None, None) => T::Wide::ZERO,
        };
        if cx.output_used(0) {
            cx.output::<T>(0, dims)?.fill_with(|at| {
                let (row, position) = (at / len, at % len);
                let weight = &weight[row % channels * kernel..][..kernel];
                let products = weight.iter().enumerate();
                let sum = products.fold(T::Wide::ZERO, |sum, (j, w)| {
                    Scalar::multiply_add(w.widen(), element(row, position + j), sum)
                });
                let sum = bias.map_or(sum, |bias| sum.add(bias[row % channels].widen()));
                T::narrow(if self.silu { sum.mul(sigmoid_of(sum)) } else { sum })
            });
        }
        if cx.output_used(1) {
            let present = cx.output::<T>(1, &state_dims)?;
            present.fill_with(|at| T::narrow(element(at / size, len + at % size)));
        }
        Ok(())
    }
}
