//! Normalisation of channels of X [N, C, D1, ...]:
//!
//!   BatchNormalization        y = (x - mean[c]) / sqrt(var[c] + epsilon) scale[c] + b[c]
//!   InstanceNormalization     the same with mean and variance of each image's channel
//!   GroupNormalization        the same with those of `num_groups` equal groups of channels
//!   LRN                       y = x / (bias + alpha / size * sum of x^2 over `size` channels)^beta
//!
//! BatchNormalization (ai.onnx 7, 9, 14, 15) takes mean and variance as inputs, or when training
//! (`training_mode`, before 14 by having more outputs) those of all images; outputs 1 and 2
//! are then input momentum + batch (1 - momentum), and outputs 3 and 4 of 7 and 9 the batch's.
//! Version 7 with `spatial` 0 has statistics for each element of an image.
//! InstanceNormalization 6, 22; GroupNormalization 18 (a scale per group), 21 (per channel); LRN
//! 1, 13. Variances are of the population. float16 and bfloat16 are computed in f32.

use super::Built;
use super::conv::per_channel;
use super::dispatch::with_float;
use super::infer::{input_dims, input_type, like_first_input};
use super::number::{Float, Real, Scalar};
use super::sums::sum_of;
use super::window::split_dims;
use crate::native::element::ElementType;
use crate::native::ending::{self, counted};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{TensorRef, element_count};

#[derive(Debug)]
struct BatchNorm {
    epsilon: f32,
    momentum: f32,
    training: bool,
    /// Statistics are per channel, not per element of an image.
    spatial: bool,
}

pub(in crate::native) fn batch_normalization(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(BatchNorm {
        epsilon: node.float_or("epsilon", 1e-5)?,
        momentum: node.float_or("momentum", 0.9)?,
        training: match node.since {
            14.. => node.flag_or("training_mode", false)?,
            ..7 => !node.flag_or("is_test", false)?,
            _ => (1..5).any(|output| node.has_output(output)),
        },
        spatial: node.since > 7 || node.flag_or("spatial", true)?,
    }))
}

/// The elements of a tensor of floats in another type.
fn read_as<W: Scalar>(tensor: &TensorRef<'_>, to: &mut [W]) -> Result<(), OpError> {
    with_float!(tensor.element_type(), T => {
        for (to, &x) in to.iter_mut().zip(tensor.slice::<T>()?) {
            *to = W::from_f64(super::number::Number::widen(x).to_f64());
        }
        Ok(())
    })
}

impl Operator for BatchNorm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)?;
        let statistics = input_dims(cx, 3);
        let ty = input_type(cx, 3);
        for index in 1..5 {
            cx.set_output(index, ty, statistics.clone());
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl BatchNorm {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        // A tensor of rank 1 is a batch of images of one element.
        let dims = x.dims();
        let (batch, channels, image) = match *dims {
            [] => return Err(OpError::Message("input 0 is a scalar, expected a batch".into())),
            [batch] => (batch, 1, 1),
            [batch, channels, ref spatial @ ..] => match self.spatial {
                true => (batch, channels, element_count(spatial)?),
                false => (batch, element_count(&dims[1..])?, 1),
            },
        };
        let scratch = cx.scratch::<T::Wide>(channels.saturating_mul(6))?;
        let mut parts = scratch.chunks_exact_mut(channels.max(1));
        let mut next = || parts.next().unwrap_or_default();
        let (scale, bias, mean, var) = (next(), next(), next(), next());
        let (batch_mean, batch_var) = (next(), next());
        for (index, part) in [(1, &mut *scale), (2, bias), (3, mean), (4, var)] {
            let tensor = cx.required(index)?;
            if tensor.len() != channels {
                return Err(OpError::WrongDims {
                    what: format!("input {index}"),
                    found: tensor.dims().into(),
                    expected: format!("{channels} elements"),
                });
            }
            read_as(&tensor, part)?;
        }
        let x = x.slice::<T>()?;
        let group = |n: usize, c: usize| &x[(n * channels + c) * image..][..image];
        if self.training {
            let count = T::Wide::from_f64(batch as f64 * image as f64);
            for (c, (mean, var)) in batch_mean.iter_mut().zip(batch_var.iter_mut()).enumerate() {
                let all = || counted((0..batch).flat_map(|n| group(n, c))).map(|x| x.widen());
                *mean = all().fold(T::Wide::ZERO, Scalar::add).div(count);
                let squares = all().map(|x| x.sub(*mean).mul(x.sub(*mean)));
                *var = squares.fold(T::Wide::ZERO, Scalar::add).div(count);
            }
        }
        let (used_mean, used_var) = match self.training {
            true => (&*batch_mean, &*batch_var),
            false => (&*mean, &*var),
        };
        if cx.output_used(0) {
            let y = cx.output::<T>(0, dims)?;
            let epsilon = T::Wide::from_f64(self.epsilon.into());
            let several = y.chunk(cx.workers(), 1).next_multiple_of(image.max(1));
            y.split(cx.workers(), several, |start, y| {
                for (at, y) in y.chunks_exact_mut(image.max(1)).enumerate() {
                    ending::look();
                    let at = start / image.max(1) + at;
                    let c = at % channels;
                    let (mean, bias) = (used_mean[c], bias[c]);
                    let factor = scale[c].div(used_var[c].add(epsilon).sqrt());
                    for (y, x) in counted(y).zip(group(at / channels, c)) {
                        *y = T::narrow(x.widen().sub(mean).mul(factor).add(bias));
                    }
                }
            });
        }
        let statistics = cx.required(3)?;
        let momentum = f64::from(self.momentum);
        for (index, running, of_batch) in [
            (1, Some(&*mean), &*batch_mean),
            (2, Some(&*var), &*batch_var),
            (3, None, &*batch_mean),
            (4, None, &*batch_var),
        ] {
            if !cx.output_used(index) {
                continue;
            }
            if !self.training {
                return Err(OpError::Message(format!(
                    "output {index} is only there in training mode"
                )));
            }
            with_float!(statistics.element_type(), U => {
                let value = |c: usize| {
                    let of_batch = of_batch[c].to_f64();
                    running.map_or(of_batch, |running| running[c].to_f64() * momentum + of_batch * (1.0 - momentum))
                };
                cx.output::<U>(index, statistics.dims())?.fill_with(|c| from_f64::<U>(value(c)));
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn from_f64<T: Float>(value: f64) -> T {
    T::narrow(Scalar::from_f64(value))
}

/// InstanceNormalization (groups of one channel) and GroupNormalization.
#[derive(Debug)]
struct GroupNorm {
    epsilon: f32,
    /// `None`: every channel is a group.
    groups: Option<usize>,
    /// Scale and bias are given for each group, not for each channel.
    scale_of_group: bool,
}

pub(in crate::native) fn instance_normalization(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GroupNorm {
        epsilon: node.float_or("epsilon", 1e-5)?,
        groups: None,
        scale_of_group: false,
    }))
}

pub(in crate::native) fn group_normalization(node: &NodeInfo<'_>) -> Built {
    if node.since >= 21 {
        // The statistics' type: f32 or wider here whatever it says.
        node.int_or("stash_type", 1)?;
    }
    Ok(Box::new(GroupNorm {
        epsilon: node.float_or("epsilon", 1e-5)?,
        groups: Some(super::conv::group(node, "num_groups")?),
        scale_of_group: node.since < 21,
    }))
}

impl Operator for GroupNorm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl GroupNorm {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let (_, channels, spatial) = split_dims(x.dims())?;
        let groups = self.groups.unwrap_or(channels);
        if groups == 0 || channels % groups != 0 {
            return if x.is_empty() {
                cx.output::<T>(0, x.dims())?.copy_from(&[])
            } else {
                Err(OpError::Message(format!(
                    "{channels} channels are not {groups} equal groups"
                )))
            };
        }
        let image = element_count(spatial)?;
        let per_group = channels / groups;
        let parameters = if self.scale_of_group { groups } else { channels };
        let parameter = |index: usize| -> Result<_, OpError> {
            per_channel::<T>(cx, index, parameters)?.ok_or(OpError::MissingInput { index })
        };
        let (scale, bias) = (parameter(1)?, parameter(2)?);
        let of_parameter = |channel: usize| {
            if self.scale_of_group {
                channel / per_group
            } else {
                channel
            }
        };
        let dims = x.dims();
        let x = x.slice::<T>()?;
        let y = cx.output::<T>(0, dims)?;
        let size = (per_group * image).max(1);
        let count = T::Wide::from_f64(size as f64);
        let epsilon = T::Wide::from_f64(self.epsilon.into());
        let several = y.chunk(cx.workers(), 2).next_multiple_of(size);
        y.split(cx.workers(), several, |start, y| {
            for (at, y) in y.chunks_exact_mut(size).enumerate() {
                ending::look();
                let at = start / size + at;
                let x = &x[at * size..][..size];
                let mean = sum_of(x, |x| x.widen()).div(count);
                let squares = sum_of(x, |x| x.widen().sub(mean).mul(x.widen().sub(mean)));
                let inverse = T::Wide::ONE.div(squares.div(count).add(epsilon).sqrt());
                let first = at % groups * per_group;
                for (c, (x, y)) in x.chunks_exact(image).zip(y.chunks_exact_mut(image)).enumerate() {
                    let parameter = of_parameter(first + c);
                    let (scale, bias) = (scale[parameter].widen(), bias[parameter].widen());
                    let factor = inverse.mul(scale);
                    for (y, x) in counted(y).zip(x) {
                        *y = T::narrow(x.widen().sub(mean).mul(factor).add(bias));
                    }
                }
            }
        });
        Ok(())
    }
}

#[derive(Debug)]
struct Lrn {
    alpha: f32,
    beta: f32,
    bias: f32,
    size: usize,
}

pub(in crate::native) fn lrn(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Lrn {
        alpha: node.float_or("alpha", 1e-4)?,
        beta: node.float_or("beta", 0.75)?,
        bias: node.float_or("bias", 1.0)?,
        size: super::conv::group(node, "size")?,
    }))
}

impl Operator for Lrn {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl Lrn {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let (_, channels, spatial) = split_dims(x.dims())?;
        let image = element_count(spatial)?.max(1);
        let dims = x.dims();
        let x = x.slice::<T>()?;
        let before = (self.size - 1) / 2;
        let after = self.size - 1 - before;
        let factor = f64::from(self.alpha) / self.size as f64;
        cx.output::<T>(0, dims)?.fill_with(|at| {
            let (start, channel) = (at - at / image % channels * image, at / image % channels);
            let window = channel.saturating_sub(before)..channel.saturating_add(after + 1).min(channels);
            ending::count(window.len());
            let squares = window.map(|c| {
                let x = x[start + c * image].widen();
                x.mul(x)
            });
            let sum = squares.fold(T::Wide::ZERO, Scalar::add).to_f64();
            let scale = (f64::from(self.bias) + factor * sum).powf(self.beta.into());
            from_f64(x[at].widen().to_f64() / scale)
        });
        Ok(())
    }
}
