//! Col2Im (ai.onnx 18): blocks put back into an image, overlapping elements added up.
//!
//!   X [N, C taps, blocks]   image_shape [r]   block_shape [r]   Y [N, C, image...]
//!   y[n, c, q] = sum over taps and blocks p with q = p stride + tap dilation - begin of x[n, c tap, p]
//!
//! Numeric types; integers wrap, float16 and bfloat16 are added in f32. `add_columns` is also the
//! second half of ConvTranspose.

use super::Built;
use super::dims::dims_from;
use super::dispatch::{with_integer, with_number};
use super::infer::{input_dims, input_type};
use super::number::{Number, Scalar};
use super::window::{Axis, WindowAttributes, advance, outputs};
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

#[derive(Debug)]
struct Col2Im {
    window: WindowAttributes,
}

pub(in crate::native) fn col2im(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Col2Im {
        window: WindowAttributes::read(node, true, false)?,
    }))
}

impl Operator for Col2Im {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (image, block) = (cx.known_ints(1)?, cx.known_ints(2)?);
        let taps = match block {
            Some(block) => Some(element_count(&dims_from(&block)?)?),
            None => None,
        };
        let dims = match (input_dims(cx, 0).as_deref(), image) {
            (Some(&[batch, rows, _]), Some(image)) => {
                let channels = rows
                    .fixed()
                    .zip(taps)
                    .and_then(|(rows, taps)| rows.checked_div(taps));
                let mut dims = SymDims::from_slice(&[batch, channels.map_or(SymDim::Unknown, SymDim::Fixed)]);
                dims.extend(dims_from(&image)?.into_iter().map(SymDim::Fixed));
                Some(dims)
            }
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_number!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl Col2Im {
    fn run_as<T: Number>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let image = dims_from(&cx.required(1)?.to_ints()?)?;
        let block = dims_from(&cx.required(2)?.to_ints()?)?;
        let wrong = || {
            OpError::Message(format!(
                "X is {x:?}, which are no blocks of {block:?} of an image of {image:?}"
            ))
        };
        if image.len() != block.len() || block.contains(&0) {
            return Err(wrong());
        }
        let axes = self.window.over(&image, Some(&block), false)?;
        let (taps, positions, size) = (
            element_count(&block)?,
            element_count(&outputs(&axes))?,
            element_count(&image)?,
        );
        let (batch, channels) = match *x.dims() {
            [batch, rows, blocks] if rows % taps == 0 && blocks == positions => (batch, rows / taps),
            _ => return Err(wrong()),
        };
        let mut dims = Dims::from_slice(&[batch, channels]);
        dims.extend_from_slice(&image);
        let columns_len = element_count(&[taps, positions])?;
        let scratch = cx.scratch::<T::Wide>(columns_len.saturating_add(size))?;
        let (columns, sums) = scratch.split_at_mut(columns_len);
        let x = x.slice::<T>()?;
        let y = cx.output::<T>(0, &dims)?.into_mut();
        for (channel, y) in y.chunks_exact_mut(size.max(1)).enumerate() {
            for (to, x) in counted(columns.iter_mut()).zip(&x[channel * columns_len..]) {
                *to = x.widen();
            }
            sums.fill(Scalar::ZERO);
            if positions > 0 {
                add_columns(&axes, 0, positions, columns, sums);
            }
            for (y, &sum) in y.iter_mut().zip(sums.iter()) {
                *y = T::narrow(sum);
            }
        }
        Ok(())
    }
}

/// Adds each element [c, tap, p] of `columns`, p counting from `first` over `width` positions, to
/// the element of channel c of `sums` that the tap of p is on. The axes' `input` are the
/// sizes of `sums`, their `output` the positions.
pub(super) fn add_columns<W: Scalar>(
    axes: &[Axis],
    first: usize,
    width: usize,
    columns: &[W],
    sums: &mut [W],
) {
    let split = |mut index: usize, size: fn(&Axis) -> usize| -> Dims {
        let mut at: Dims = Dims::from_elem(0, axes.len());
        for (at, axis) in at.iter_mut().zip(axes).rev() {
            *at = index % size(axis);
            index /= size(axis);
        }
        at
    };
    let start = split(first, |axis| axis.output);
    let taps = axes.iter().map(|axis| axis.kernel).product::<usize>();
    let size = axes.iter().map(|axis| axis.input).product::<usize>();
    for (row, columns) in columns.chunks_exact(width).enumerate() {
        let tap_at = split(row % taps, |axis| axis.kernel);
        let sums = &mut sums[row / taps * size..][..size];
        let mut position = start.clone();
        for &column in counted(columns) {
            let mut at = Some(0);
            for (axis, (&p, &tap)) in axes.iter().zip(position.iter().zip(&tap_at)) {
                let on_axis = usize::try_from(axis.position(p, tap))
                    .ok()
                    .filter(|&q| q < axis.input);
                at = at.zip(on_axis).map(|(at, q)| at * axis.input + q);
            }
            if let Some(sum) = at.and_then(|at| sums.get_mut(at)) {
                *sum = sum.add(column);
            }
            advance(&mut position, axes.iter().map(|axis| axis.output));
        }
    }
}
