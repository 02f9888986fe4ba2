//! CausalConvWithState (ai.onnx 27): a convolution of each channel with its own kernel over the
//! current and the k - 1 positions before it, which come from the state at the beginning.
//!
//!   past = [past_state, input]   y[t] = act(bias + sum over j of weight[j] past[t + j])
//!   input [B, C, L]   weight [C, 1, k]   bias [C]   past_state, present_state [B, C, k - 1]
//!
//! present_state is the end of `past`; without past_state, zeros come before the input.
//! act is `none` or `silu` (or its alias `swish`), x / (1 + e^-x). float16 and bfloat16 in f32.
//!
//! com.microsoft 1 is the same, and more: with `dilation` d, y[t] takes past[t + j d], and a state is
//! (k - 1) d long; with `channels_last`, input, output and states have their channels, which may be
//! several dims, behind the positions. With `state_window` W > 0 the states are [W, ...]: those after
//! each of the last W positions, the last one last (the one that is read), and zeros where there are
//! not as many positions. Kernels of two or three dims (`ndim`) are not done.

use super::Built;
use super::conv::{group, per_channel};
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::linear_attention::state_window;
use super::number::{Float, Scalar};
use super::unary::sigmoid_of;
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

#[derive(Debug)]
struct CausalConv {
    silu: bool,
    dilation: usize,
    channels_last: bool,
    /// 0 for states without an axis of positions.
    window: usize,
}

pub(in crate::native) fn causal_conv_with_state(node: &NodeInfo<'_>) -> Built {
    build(node, 1, false, 0)
}

pub(in crate::native) fn contrib_causal_conv_with_state(node: &NodeInfo<'_>) -> Built {
    let ndim = node.int_or("ndim", 1)?;
    if ndim != 1 {
        return Err(OpError::Unsupported(format!("causal convolution of {ndim} dims")));
    }
    let channels_last = node.flag_or("channels_last", false)?;
    let window = state_window(node)?;
    build(node, group(node, "dilation")?, channels_last, window)
}

fn build(node: &NodeInfo<'_>, dilation: usize, channels_last: bool, window: usize) -> Built {
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
    Ok(Box::new(CausalConv {
        silu,
        dilation,
        channels_last,
        window,
    }))
}

impl Operator for CausalConv {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (ty, x) = (input_type(cx, 0), input_dims(cx, 0));
        let size = match input_dims(cx, 1).as_deref() {
            Some(&[_, _, SymDim::Fixed(kernel)]) => {
                let size = kernel
                    .checked_sub(1)
                    .and_then(|size| size.checked_mul(self.dilation));
                size.map_or(SymDim::Unknown, SymDim::Fixed)
            }
            _ => SymDim::Unknown,
        };
        let at = if self.channels_last { 1 } else { 2 };
        let state = x.clone().filter(|dims| dims.len() > at).map(|mut dims| {
            dims[at] = size;
            let window = (self.window > 0).then_some(SymDim::Fixed(self.window));
            SymDims::from_iter(window.into_iter().chain(dims))
        });
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
        let rank = x.rank();
        let (&[w_channels, 1, kernel], true) = (
            weight.dims(),
            if self.channels_last { rank >= 3 } else { rank == 3 },
        ) else {
            return Err(OpError::Message(format!(
                "the input is {x:?} and the weight {weight:?}, expected [B, C, L] and [C, 1, k]"
            )));
        };
        let dims = x.dims();
        let (len, channels) = match self.channels_last {
            true => (dims[1], element_count(&dims[2..])?),
            false => (dims[2], dims[1]),
        };
        let size = kernel
            .checked_sub(1)
            .and_then(|size| size.checked_mul(self.dilation));
        let Some(size) = size.filter(|_| channels == w_channels) else {
            return Err(OpError::Message(format!(
                "the weight {weight:?} does not fit the input {x:?}"
            )));
        };
        let bias = per_channel::<T>(cx, 2, channels)?;
        let mut one: Dims = dims.into();
        one[if self.channels_last { 1 } else { 2 }] = size;
        let window = (self.window > 0).then_some(self.window);
        let state_dims: Dims = window.into_iter().chain(one.iter().copied()).collect();
        let state_size = element_count(&one)?;
        let slots = self.window.max(1);
        let past = match cx.input(3) {
            // The last of them.
            Some(past) if past.dims() == &state_dims[..] => {
                Some(&past.slice::<T>()?[(slots - 1) * state_size..])
            }
            Some(past) => {
                return Err(OpError::WrongDims {
                    what: "input 3".into(),
                    found: past.dims().into(),
                    expected: format!("{state_dims:?}"),
                });
            }
            None => None,
        };
        let (x, weight) = (x.slice::<T>()?, weight.slice::<T>()?);
        // Of [B, C, positions], or [B, positions, C].
        let offset = |b: usize, c: usize, at: usize, positions: usize| match self.channels_last {
            true => (b * positions + at) * channels + c,
            false => (b * channels + c) * positions + at,
        };
        let split = |at: usize, positions: usize| {
            let (b, rest) = (at / (channels * positions), at % (channels * positions));
            match self.channels_last {
                true => (b, rest % channels, rest / channels),
                false => (b, rest / positions, rest % positions),
            }
        };
        // Position `at` of past state and input, of a channel of an image.
        let element = |b: usize, c: usize, at: usize| match (at.checked_sub(size), past) {
            (Some(at), _) => x[offset(b, c, at, len)].widen(),
            (None, Some(past)) => past[offset(b, c, at, size)].widen(),
            (None, None) => T::Wide::ZERO,
        };
        if cx.output_used(0) {
            cx.output::<T>(0, dims)?.fill_with(|at| {
                ending::count(kernel);
                let (b, c, position) = split(at, len);
                let products = weight[c * kernel..][..kernel].iter().enumerate();
                let sum = products.fold(T::Wide::ZERO, |sum, (j, w)| {
                    Scalar::multiply_add(w.widen(), element(b, c, position + j * self.dilation), sum)
                });
                let sum = bias.map_or(sum, |bias| sum.add(bias[c].widen()));
                T::narrow(if self.silu { sum.mul(sigmoid_of(sum)) } else { sum })
            });
        }
        if cx.output_used(1) {
            cx.output::<T>(1, &state_dims)?.fill_with(|at| {
                let (slot, (b, c, position)) = (at / state_size, split(at % state_size, size));
                // After position len - slots + slot, or nothing where that is before the input.
                match (len + slot + 1).checked_sub(slots) {
                    Some(end @ 1..) => T::narrow(element(b, c, end + position)),
                    Some(0) if slots == 1 => T::narrow(element(b, c, position)),
                    _ => T::narrow(T::Wide::ZERO),
                }
            });
        }
        Ok(())
    }
}
