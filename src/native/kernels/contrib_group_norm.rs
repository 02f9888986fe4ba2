//! GroupNorm and SkipGroupNorm: each of `groups` groups of neighbouring channels of an image takes
//! mean 0 and variance 1, then gamma and beta of its channels, then with `activation` 1 z sigmoid(z).
//!
//!   X      [N, D1, ..., C], or with channels_last 0 [N, C, D1, ...]
//!   skip   of X's dims, [N, 1, ..., C] or [N, C]; bias [C]. SkipGroupNorm is of S = X + skip + bias,
//!          which is its second output
//!
//! com.microsoft 1: float, float16 (bfloat16, double), gamma and beta perhaps of another of them. In
//! the wide type; one rounding of Y and one of S, of which Y does not know.

use super::Built;
use super::conv::group;
use super::dispatch::with_float;
use super::group_query_attention::wrong_dims;
use super::infer::{input_dims, input_type};
use super::number::{Float, Real, Scalar};
use super::unary::sigmoid_of;
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct GroupNorm {
    groups: usize,
    epsilon: f32,
    silu: bool,
    channels_last: bool,
    skip: bool,
}

fn build(node: &NodeInfo<'_>, skip: bool) -> Built {
    let activation = super::required_attribute("activation", node.int("activation")?)?;
    super::required_attribute("groups", node.int("groups")?)?;
    Ok(Box::new(GroupNorm {
        groups: group(node, "groups")?,
        epsilon: node.float_or("epsilon", 1e-5)?,
        silu: match activation {
            0 => false,
            1 => true,
            other => {
                let message = format!("is {other}, expected 0 (none) or 1 (SiLU)");
                return Err(super::wrong_attribute("activation", message));
            }
        },
        channels_last: node.flag_or("channels_last", true)?,
        skip,
    }))
}

pub(in crate::native) fn group_norm(node: &NodeInfo<'_>) -> Built {
    build(node, false)
}

pub(in crate::native) fn skip_group_norm(node: &NodeInfo<'_>) -> Built {
    build(node, true)
}

impl Operator for GroupNorm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (ty, dims) = (input_type(cx, 0), input_dims(cx, 0));
        cx.set_output(0, ty, dims.clone());
        cx.set_output(1, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, gamma) = (cx.required(0)?, cx.required(1)?);
        with_float!(gamma.element_type(), M => {
            with_float!(x.element_type(), T => self.run_as::<T, M>(cx, &x))
        })
    }
}

impl GroupNorm {
    fn run_as<T: Float, M: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let dims = x.dims();
        let (batch, channels, last) = match (dims, self.channels_last) {
            (&[batch, .., channels], true) => (batch, channels, true),
            (&[batch, channels, ..], false) => (batch, channels, false),
            _ => return Err(wrong_dims(0, x, "a batch and channels")),
        };
        if !channels.is_multiple_of(self.groups) {
            return Err(OpError::Message(format!(
                "{channels} channels are not {} equal groups",
                self.groups
            )));
        }
        let of_channels = |index: usize| {
            let tensor = cx.required(index)?;
            match tensor.dims() == [channels] {
                true => Ok(tensor),
                false => Err(wrong_dims(index, &tensor, format!("[{channels}]"))),
            }
        };
        let (gamma, beta) = (of_channels(1)?.slice::<M>()?, of_channels(2)?.slice::<M>()?);
        let skip = match self.skip {
            true => Some(cx.required(3)?),
            false => None,
        };
        let (skip, one_for_image) = match skip {
            None => (None, false),
            Some(skip) if skip.dims() == dims => (Some(skip.slice::<T>()?), false),
            Some(skip) if Some(skip.len()) == batch.checked_mul(channels) => (Some(skip.slice::<T>()?), true),
            Some(skip) => {
                let expected = format!("{dims:?}, or {channels} channels for each of {batch} images");
                return Err(wrong_dims(3, &skip, expected));
            }
        };
        let bias = match self.skip && cx.input(4).is_some() {
            true => Some(of_channels(4)?.slice::<T>()?),
            false => None,
        };
        let sums = cx.scratch::<T::Wide>(x.len())?;
        let x = x.slice::<T>()?;
        let image = x.len().checked_div(batch * channels).unwrap_or(0);
        // The image and the channel of an element.
        let place = |i: usize| match last {
            true => (i / (image * channels), i % channels),
            false => (i / (image * channels), i / image % channels),
        };
        for (i, (sum, x)) in counted(sums.iter_mut()).zip(x).enumerate() {
            let (n, c) = place(i);
            let skip = skip.map(|skip| skip[if one_for_image { n * channels + c } else { i }].widen());
            let sum_of = |a: T::Wide, b: Option<T::Wide>| b.map_or(a, |b| a.add(b));
            *sum = sum_of(sum_of(x.widen(), skip), bias.map(|bias| bias[c].widen()));
        }
        if cx.output_used(1) {
            let shown = cx.output::<T>(1, dims)?;
            shown.fill_with(|i| T::narrow(sums[i]));
        }
        if !cx.output_used(0) {
            return Ok(());
        }
        let y = cx.output::<T>(0, dims)?.into_mut();
        if y.is_empty() {
            return Ok(());
        }
        let per_group = channels / self.groups;
        let at = |n: usize, c: usize, s: usize| match last {
            true => (n * image + s) * channels + c,
            false => (n * channels + c) * image + s,
        };
        let count = T::Wide::from_f64((per_group * image) as f64);
        let epsilon = T::Wide::from_f64(self.epsilon.into());
        for n in 0..batch {
            for g in 0..self.groups {
                let own = || {
                    let of_group = g * per_group..(g + 1) * per_group;
                    counted(of_group.flat_map(|c| (0..image).map(move |s| (c, s))))
                };
                let add = |sum: T::Wide, x: T::Wide| sum.add(x);
                let mean = own()
                    .map(|(c, s)| sums[at(n, c, s)])
                    .fold(T::Wide::ZERO, add)
                    .div(count);
                let squares = own().map(|(c, s)| {
                    let off = sums[at(n, c, s)].sub(mean);
                    off.mul(off)
                });
                let variance = squares.fold(T::Wide::ZERO, add).div(count);
                let inverse = T::Wide::ONE.div(variance.add(epsilon).sqrt());
                for (c, s) in own() {
                    let wide = |x: M| T::Wide::from_f64(x.widen().to_f64());
                    let normal = sums[at(n, c, s)].sub(mean).mul(inverse);
                    let z = normal.mul(wide(gamma[c])).add(wide(beta[c]));
                    y[at(n, c, s)] = T::narrow(if self.silu { z.mul(sigmoid_of(z)) } else { z });
                }
            }
        }
        Ok(())
    }
}
