//! Convolution of X [N, C, D1, ...] with W [M, C/group, k1, ...] (see `window` for positions):
//!
//!   Conv          y = b[m] + sum w x                                          ai.onnx 1, 11, 22
//!   FusedConv     y = act(b[m] + sum w x + z), z and act optional              com.microsoft 1
//!   ConvInteger   y = sum (w - w_zero_point) (x - x_zero_point), int32        ai.onnx 10
//!   QLinearConv   y = saturate(round((b[m] + sum ...) x_scale w_scale / y_scale)
//!                 + y_zero_point), ties to even                               ai.onnx 10
//!
//! Scale and zero point of W are scalars or one a channel. Elements outside X are zero, in the
//! quantised operators the zero point. Any number of spatial dims, none included.
//! float16 and bfloat16 are summed in f32, bias included, and rounded once.

use super::Built;
use super::convolve::Convolution;
use super::dispatch::with_float;
use super::gate_function::{self, Activation};
use super::infer::{input_dims, input_type};
use super::number::{Float, Scalar, wide_room, widened};
use super::window::{WindowAttributes, outputs, split_dims};
use crate::native::element::{Element, ElementType};
use crate::native::infer::{InferContext, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Float,
    Integer,
    Quantised,
}

impl Kind {
    /// Which input the weights are.
    fn weights(self) -> usize {
        match self {
            Kind::Float | Kind::Integer => 1,
            Kind::Quantised => 3,
        }
    }
}

#[derive(Debug)]
struct Conv {
    kind: Kind,
    group: usize,
    window: WindowAttributes,
    activation: Option<Activation>,
}

/// The attribute `group`, which is positive.
pub(super) fn group(node: &NodeInfo<'_>, name: &str) -> Result<usize, OpError> {
    let group = node.int_or(name, 1)?;
    usize::try_from(group)
        .ok()
        .filter(|&group| group > 0)
        .ok_or_else(|| OpError::Attribute {
            name: name.into(),
            message: format!("is {group}, expected a positive value"),
        })
}

fn build(node: &NodeInfo<'_>, kind: Kind, activation: Option<Activation>) -> Built {
    Ok(Box::new(Conv {
        kind,
        activation,
        group: group(node, "group")?,
        window: WindowAttributes::read(node, true, true)?,
    }))
}

pub(in crate::native) fn conv(node: &NodeInfo<'_>) -> Built {
    build(node, Kind::Float, None)
}

pub(in crate::native) fn fused_conv(node: &NodeInfo<'_>) -> Built {
    let params = node.floats("activation_params")?.unwrap_or_default();
    let activation = match node.string_or("activation", "")? {
        "" => None,
        name => {
            let param = |index: usize| params.get(index).copied();
            Some(gate_function::fused(name, param(0), param(1))?)
        }
    };
    build(node, Kind::Float, activation)
}

pub(in crate::native) fn conv_integer(node: &NodeInfo<'_>) -> Built {
    build(node, Kind::Integer, None)
}

pub(in crate::native) fn q_linear_conv(node: &NodeInfo<'_>) -> Built {
    build(node, Kind::Quantised, None)
}

impl Operator for Conv {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let weights = self.kind.weights();
        cx.required(weights)?;
        let ty = match self.kind {
            Kind::Float => input_type(cx, 0),
            Kind::Integer => Some(ElementType::Int32),
            Kind::Quantised => input_type(cx, 7),
        };
        let dims = match (input_dims(cx, 0), input_dims(cx, weights)) {
            (Some(x), Some(w)) => {
                let (batch, _, spatial) = split_dims(&x)?;
                let (out_channels, _, kernel) = split_dims(&w)?;
                if spatial.len() != kernel.len() {
                    return Err(OpError::Message(format!("X has dims {x:?}, W has {w:?}")));
                }
                let mut dims = SymDims::from_slice(&[batch, out_channels]);
                dims.extend(self.window.infer(spatial, Some(kernel), false)?);
                Some(dims)
            }
            _ => None,
        };
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, w) = (cx.required(0)?, cx.required(self.kind.weights())?);
        let (batch, _, spatial) = split_dims(x.dims())?;
        let (out_channels, _, kernel) = split_dims(w.dims())?;
        if spatial.len() != kernel.len() {
            return Err(OpError::Message(format!("X is {x:?}, W is {w:?}")));
        }
        let axes = self.window.over(spatial, Some(kernel), false)?;
        let mut dims = Dims::from_slice(&[batch, out_channels]);
        dims.extend(outputs(&axes));
        let shape = Convolution::new(x.dims(), w.dims(), self.group, axes)?;
        match self.kind {
            Kind::Float => {
                with_float!(x.element_type(), T => run_float::<T>(cx, &x, &w, &shape, &dims, self.activation))
            }
            Kind::Integer => run_integer(cx, &x, &w, &shape, &dims),
            Kind::Quantised => run_quantised(cx, &x, &w, &shape, &dims),
        }
    }
}

/// An input of one element per output channel, if it is there.
pub(super) fn per_channel<'a, T: Element>(
    cx: &RunContext<'a>,
    index: usize,
    channels: usize,
) -> Result<Option<&'a [T]>, OpError> {
    match cx.input(index) {
        None => Ok(None),
        Some(tensor) if tensor.dims() == [channels] => tensor.slice::<T>().map(Some),
        Some(tensor) => Err(OpError::WrongDims {
            what: format!("input {index}"),
            found: tensor.dims().into(),
            expected: format!("[{channels}], an element per channel"),
        }),
    }
}

fn run_float<T: Float>(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    w: &TensorRef<'_>,
    shape: &Convolution,
    dims: &[usize],
    activation: Option<Activation>,
) -> Result<(), OpError> {
    super::same_type(x, w, 1)?;
    let bias = per_channel::<T>(cx, 2, shape.out_channels)?;
    // Only FusedConv has it.
    let addend = match cx.input(3) {
        Some(addend) if addend.dims() == dims => Some(addend.slice::<T>()?),
        Some(addend) => {
            return Err(OpError::WrongDims {
                what: "input 3".into(),
                found: addend.dims().into(),
                expected: format!("those of the output, {dims:?}"),
            });
        }
        None => None,
    };
    let (x, w) = (x.slice::<T>()?, w.slice::<T>()?);
    let scratch = cx.scratch::<T::Wide>(shape.scratch()?.saturating_add(wide_room(w)))?;
    let (w, scratch) = widened(w, scratch);
    let y = cx.output::<T>(0, dims)?.into_mut();
    shape.sums(cx.workers(), x, T::widen, w, scratch, |channel, at, sums| {
        let bias = bias.and_then(|bias| bias.get(channel)).map(|bias| bias.widen());
        if activation.is_some() || addend.is_some() {
            for (i, (y, &sum)) in y[at..].iter_mut().zip(sums).enumerate() {
                let sum = bias.map_or(sum, |bias| sum.add(bias));
                let sum = addend.map_or(sum, |addend| sum.add(addend[at + i].widen()));
                *y = T::narrow(activation.map_or(sum, |activation| activation.apply(sum)));
            }
            return;
        }
        let y = y[at..].iter_mut().zip(sums);
        match bias {
            Some(bias) => y.for_each(|(y, &sum)| *y = T::narrow(sum.add(bias))),
            None => y.for_each(|(y, &sum)| *y = T::narrow(sum)),
        }
    });
    Ok(())
}

/// 8-bit elements of either sign.
fn each_byte(tensor: &TensorRef<'_>, mut visit: impl FnMut(usize, i32)) -> Result<(), OpError> {
    match tensor.element_type() {
        ElementType::Uint8 => tensor
            .slice::<u8>()?
            .iter()
            .enumerate()
            .for_each(|(i, &x)| visit(i, x.into())),
        _ => tensor
            .slice::<i8>()?
            .iter()
            .enumerate()
            .for_each(|(i, &x)| visit(i, x.into())),
    }
    Ok(())
}

/// An element: the only one, or that of a channel.
fn of_channel<T: Copy>(values: &[T], channel: usize) -> Option<T> {
    match values {
        &[value] => Some(value),
        values => values.get(channel).copied(),
    }
}

/// Scales or zero points: one, or one a channel.
fn check_per_channel(tensor: &TensorRef<'_>, index: usize, channels: usize) -> Result<(), OpError> {
    let one = tensor.len() == 1 && tensor.rank() <= 1;
    if one || tensor.dims() == [channels] {
        return Ok(());
    }
    Err(OpError::WrongDims {
        what: format!("input {index}"),
        found: tensor.dims().into(),
        expected: format!("one element, or [{channels}]"),
    })
}

/// The sums of x and w without their zero points.
fn integer_sums(
    cx: &mut RunContext<'_>,
    (x, x_zero): (&TensorRef<'_>, Option<TensorRef<'_>>),
    (w, w_zero): (&TensorRef<'_>, Option<TensorRef<'_>>),
    shape: &Convolution,
    store: &mut dyn FnMut(usize, usize, &[i32]),
) -> Result<(), OpError> {
    let mut x_zero_point = 0;
    if let Some(zero) = x_zero {
        super::same_type(x, &zero, 2)?;
        check_per_channel(&zero, 2, 1)?;
        each_byte(&zero, |_, value| x_zero_point = value)?;
    }
    let scratch = cx.scratch::<i32>(shape.scratch()?.saturating_add(w.len()))?;
    let (wide, scratch) = scratch.split_at_mut(w.len());
    each_byte(w, |i, value| wide[i] = value)?;
    if let Some(zero) = w_zero {
        super::same_type(w, &zero, 3)?;
        check_per_channel(&zero, 3, shape.out_channels)?;
        let per_channel = wide.len() / shape.out_channels.max(1);
        let single = zero.len() == 1;
        each_byte(&zero, |i, value| {
            let of_channel = match single {
                true => &mut *wide,
                false => wide
                    .get_mut(i * per_channel..(i + 1) * per_channel)
                    .unwrap_or_default(),
            };
            of_channel.iter_mut().for_each(|w| *w -= value);
        })?;
    }
    match x.element_type() {
        ElementType::Uint8 => {
            let load = |x: u8| i32::from(x) - x_zero_point;
            shape.sums(cx.workers(), x.slice::<u8>()?, load, wide, scratch, store);
        }
        _ => {
            let load = |x: i8| i32::from(x) - x_zero_point;
            shape.sums(cx.workers(), x.slice::<i8>()?, load, wide, scratch, store);
        }
    }
    Ok(())
}

fn run_integer(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    w: &TensorRef<'_>,
    shape: &Convolution,
    dims: &[usize],
) -> Result<(), OpError> {
    let y = cx.output::<i32>(0, dims)?.into_mut();
    let (x_zero, w_zero) = (cx.input(2), cx.input(3));
    integer_sums(cx, (x, x_zero), (w, w_zero), shape, &mut |_, at, sums| {
        y[at..][..sums.len()].copy_from_slice(sums);
    })
}

fn run_quantised(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    w: &TensorRef<'_>,
    shape: &Convolution,
    dims: &[usize],
) -> Result<(), OpError> {
    let scale = |index: usize, channels: usize| -> Result<&[f32], OpError> {
        let tensor = cx.required(index)?;
        check_per_channel(&tensor, index, channels)?;
        tensor.slice::<f32>()
    };
    let (x_scale, w_scale, y_scale) = (scale(1, 1)?, scale(4, shape.out_channels)?, scale(6, 1)?);
    let bias = per_channel::<i32>(cx, 8, shape.out_channels)?;
    let (x_zero, w_zero, y_zero) = (cx.required(2)?, cx.required(5)?, cx.required(7)?);
    check_per_channel(&y_zero, 7, 1)?;
    let mut zero_point = 0;
    each_byte(&y_zero, |_, value| zero_point = value)?;
    let requantised = |channel: usize, sum: i32| -> i32 {
        let factor = of_channel(x_scale, 0).unwrap_or(1.0) * of_channel(w_scale, channel).unwrap_or(1.0)
            / of_channel(y_scale, 0).unwrap_or(1.0);
        let bias = bias.and_then(|bias| bias.get(channel)).copied().unwrap_or(0);
        let scaled = sum.wrapping_add(bias) as f32 * factor;
        (scaled.round_ties_even() as i32).saturating_add(zero_point)
    };
    let inputs = ((x, Some(x_zero)), (w, Some(w_zero)));
    match y_zero.element_type() {
        ElementType::Uint8 => {
            let y = cx.output::<u8>(0, dims)?.into_mut();
            integer_sums(cx, inputs.0, inputs.1, shape, &mut |channel, at, sums| {
                for (y, &sum) in y[at..].iter_mut().zip(sums) {
                    *y = requantised(channel, sum).clamp(0, 255) as u8;
                }
            })
        }
        _ => {
            let y = cx.output::<i8>(0, dims)?.into_mut();
            integer_sums(cx, inputs.0, inputs.1, shape, &mut |channel, at, sums| {
                for (y, &sum) in y[at..].iter_mut().zip(sums) {
                    *y = requantised(channel, sum).clamp(-128, 127) as i8;
                }
            })
        }
    }
}
