//! DeformConv (ai.onnx 19, 22): a convolution whose taps are moved by offsets and weighed by a mask.
//!
//!   y[n, m, p] = b[m] + sum over c, taps of
//!                w[m, c, tap] mask[n, og, tap, p] x[n, c] at (position(p, tap) + offset[n, og, tap, :, p])
//!
//!   X [N, C, D1, ...]   W [M, C/group, k1, ...]   offset [N, offset_group taps r, O1, ...]
//!   mask [N, offset_group taps, O1, ...], ones without it
//!
//! og is the offset group of c. Between elements X is interpolated linearly, and zero outside.
//! float16 and bfloat16 are computed in f32 and rounded once.

use super::Built;
use super::conv::{group, per_channel};
use super::convolve::{Block, Convolution};
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::number::{Float, Scalar, wide_room, widened};
use super::window::{WindowAttributes, outputs, split_dims};
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

#[derive(Debug)]
struct DeformConv {
    group: usize,
    offset_group: usize,
    window: WindowAttributes,
}

pub(in crate::native) fn deform_conv(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(DeformConv {
        group: group(node, "group")?,
        offset_group: group(node, "offset_group")?,
        window: WindowAttributes::read(node, true, false)?,
    }))
}

/// The most spatial dims: a sample is made of 2^dims elements.
const MOST_AXES: usize = 8;

impl Operator for DeformConv {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.required(1)?;
        cx.required(2)?;
        let dims = match (input_dims(cx, 0), input_dims(cx, 1)) {
            (Some(x), Some(w)) => {
                let (batch, _, spatial) = split_dims(&x)?;
                let (out_channels, _, kernel) = split_dims(&w)?;
                let mut dims = SymDims::from_slice(&[batch, out_channels]);
                dims.extend(self.window.infer(spatial, Some(kernel), false)?);
                Some(dims)
            }
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl DeformConv {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let (w, offset) = (cx.required(1)?, cx.required(2)?);
        super::same_type(x, &w, 1)?;
        let (batch, channels, spatial) = split_dims(x.dims())?;
        let (out_channels, _, kernel) = split_dims(w.dims())?;
        let rank = spatial.len();
        if kernel.len() != rank || rank == 0 || rank > MOST_AXES || channels % self.offset_group != 0 {
            return Err(OpError::Message(format!(
                "X {x:?}, W {w:?} and offset_group {} do not fit each other",
                self.offset_group
            )));
        }
        let axes = self.window.over(spatial, Some(kernel), false)?;
        let sizes = outputs(&axes);
        let shape = Convolution::new(x.dims(), w.dims(), self.group, axes)?;
        let check = |tensor: &TensorRef<'_>, index: usize, rows: usize| {
            let fits = split_dims(tensor.dims())
                .is_ok_and(|(n, found, outputs)| n == batch && found == rows && outputs == sizes.as_slice());
            match fits {
                true => Ok(()),
                false => Err(OpError::WrongDims {
                    what: format!("input {index}"),
                    found: tensor.dims().into(),
                    expected: format!("[{batch}, {rows}], and then {sizes:?}"),
                }),
            }
        };
        let moved = element_count(&[self.offset_group, shape.taps])?;
        check(&offset, 2, element_count(&[moved, rank])?)?;
        let mask = cx.input(4);
        if let Some(mask) = &mask {
            check(mask, 4, moved)?;
        }
        let bias = per_channel::<T>(cx, 3, out_channels)?;
        let samples = Samples {
            shape: &shape,
            x: x.slice::<T>()?,
            offset: offset.slice::<T>()?,
            mask: mask.map(|mask| mask.slice::<T>()).transpose()?,
            offset_group: self.offset_group,
            sizes: &sizes,
        };
        let w = w.slice::<T>()?;
        let scratch = cx.scratch::<T::Wide>(shape.scratch()?.saturating_add(wide_room(w)))?;
        let (w, scratch) = widened(w, scratch);
        let mut dims = Dims::from_slice(&[batch, out_channels]);
        dims.extend_from_slice(&sizes);
        let y = cx.output::<T>(0, &dims)?.into_mut();
        shape.sums_of(
            cx.workers(),
            |block, columns| samples.columns(block, columns),
            w,
            scratch,
            |channel, at, sums| {
                let bias = bias.and_then(|bias| bias.get(channel)).map(|bias| bias.widen());
                for (y, &sum) in y[at..].iter_mut().zip(sums) {
                    *y = T::narrow(bias.map_or(sum, |bias| sum.add(bias)));
                }
            },
        );
        Ok(())
    }
}

struct Samples<'a, T> {
    shape: &'a Convolution,
    x: &'a [T],
    offset: &'a [T],
    mask: Option<&'a [T]>,
    offset_group: usize,
    /// Output sizes.
    sizes: &'a [usize],
}

impl<T: Float> Samples<'_, T> {
    fn columns(&self, block: Block, columns: &mut [T::Wide]) {
        let shape = self.shape;
        let channels = shape.channels / shape.group;
        let per_offset = (shape.channels / self.offset_group).max(1);
        for (row, columns) in columns.chunks_exact_mut(block.width).enumerate() {
            let channel = block.group * channels + row / shape.taps;
            let tap = row % shape.taps;
            let x = &self.x[(block.image * shape.channels + channel) * shape.input..][..shape.input];
            let moved = (block.image * self.offset_group + channel / per_offset) * shape.taps + tap;
            for (i, to) in columns.iter_mut().enumerate() {
                let position = block.first + i;
                let sample = self.sample(x, moved, tap, position);
                *to = match self.mask {
                    Some(mask) => sample.mul(mask[moved * shape.positions + position].widen()),
                    None => sample,
                };
            }
        }
    }

    /// X of a channel where the offset moves the tap of a position to.
    fn sample(&self, x: &[T], moved: usize, mut tap: usize, position: usize) -> T::Wide {
        let axes = &self.shape.axes;
        let mut rest = position;
        let mut at = [0.0; MOST_AXES];
        for (i, (axis, &size)) in axes.iter().zip(self.sizes).enumerate().rev() {
            let offset = self.offset[(moved * axes.len() + i) * self.shape.positions + position];
            at[i] = axis.position(rest % size, tap % axis.kernel) as f64 + offset.widen().to_f64();
            rest /= size;
            tap /= axis.kernel;
        }
        let mut sum = T::Wide::ZERO;
        for corner in 0..1usize << axes.len() {
            let (mut index, mut weight) = (Some(0), 1.0);
            for (i, (axis, &at)) in axes.iter().zip(&at).enumerate() {
                let (floor, above) = (at.floor(), corner >> i & 1 == 1);
                let whole = if above { floor + 1.0 } else { floor };
                weight *= if above { at - floor } else { 1.0 - (at - floor) };
                let inside = (0.0..axis.input as f64).contains(&whole);
                index = index
                    .filter(|_| inside)
                    .map(|index| index * axis.input + whole as usize);
            }
            if let Some(x) = index.and_then(|index| x.get(index)) {
                sum = Scalar::multiply_add(x.widen(), T::Wide::from_f64(weight), sum);
            }
        }
        sum
    }
}
