//! ConvTranspose: the gradient of a convolution, X [N, C, D1, ...], W [C, M/group, k1, ...].
//!
//!   y[n, m, q] = b[m] + sum over c, positions p and taps with q = p stride + tap dilation - begin
//!                of w[c, m, tap] x[n, c, p]
//!   output = (input - 1) stride + (kernel - 1) dilation + 1 + output_padding - begin - end
//!
//! `output_shape` (or `auto_pad` SAME_*: input stride) fixes the output instead, and the pads
//! follow from it; the odd one goes to the end with SAME_UPPER, else to the beginning.
//! ai.onnx 1, 11, 22. float16 and bfloat16 are summed in f32 and rounded once.

use super::Built;
use super::col2im::add_columns;
use super::conv::{group, per_channel};
use super::dispatch::with_float;
use super::gemm::gemm;
use super::infer::{input_dims, input_type};
use super::number::{Float, Scalar};
use super::window::{AutoPad, Axes, Axis, WindowAttributes, outputs, split_dims};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

#[derive(Debug)]
struct ConvTranspose {
    group: usize,
    window: WindowAttributes,
    output_padding: Vec<i64>,
    output_shape: Option<Vec<i64>>,
}

pub(in crate::native) fn conv_transpose(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(ConvTranspose {
        group: group(node, "group")?,
        window: WindowAttributes::read(node, true, true)?,
        output_padding: node.ints("output_padding")?.unwrap_or_default().to_vec(),
        output_shape: node.ints("output_shape")?.map(Into::into),
    }))
}

impl ConvTranspose {
    /// The windows over Y; `output` of an axis is X's size and `input` Y's.
    fn axes(&self, spatial: &[usize], kernel: &[usize]) -> Result<Axes, OpError> {
        let rank = spatial.len();
        // The last of them: the shape may be given with batch and channels.
        let shape = match self.output_shape.as_deref() {
            None | Some([]) => None,
            Some(shape) => Some(
                shape
                    .len()
                    .checked_sub(rank)
                    .map(|from| &shape[from..])
                    .ok_or_else(|| OpError::Attribute {
                        name: "output_shape".into(),
                        message: format!("is {shape:?}, expected {rank} values"),
                    })?,
            ),
        };
        if !self.output_padding.is_empty() && self.output_padding.len() != rank {
            return Err(OpError::Attribute {
                name: "output_padding".into(),
                message: format!("is {:?}, expected {rank} values", self.output_padding),
            });
        }
        let mut axes = self.window.axes(rank, Some(kernel))?;
        for (i, (axis, &size)) in axes.iter_mut().zip(spatial).enumerate() {
            let adjust = self.output_padding.get(i).copied().unwrap_or(0);
            let given = shape.and_then(|shape| shape.get(i)).copied();
            self.fit(axis, size, adjust, given)?;
        }
        Ok(axes)
    }

    fn fit(&self, axis: &mut Axis, size: usize, adjust: i64, given: Option<i64>) -> Result<(), OpError> {
        let (wide_size, stride) = (size as i128, axis.stride as i128);
        let natural = (wide_size - 1) * stride + i128::from(axis.extent) + i128::from(adjust);
        if natural.unsigned_abs() >= 1 << 62 {
            return Err(OpError::Message(format!(
                "the windows of a dim of {size} reach to {natural}, which is more than is supported"
            )));
        }
        let given = match (given, self.window.auto_pad) {
            (Some(given), _) => Some(i128::from(given)),
            (None, AutoPad::SameUpper | AutoPad::SameLower) => Some(wide_size * stride),
            (None, AutoPad::NotSet | AutoPad::Valid) => None,
        };
        let output = match given {
            Some(output) => {
                let total = (natural - output).max(0);
                let half = total / 2;
                let (begin, end) = match self.window.auto_pad {
                    AutoPad::SameUpper => (half, total - half),
                    _ => (total - half, half),
                };
                (axis.begin, axis.end) = (begin as i64, end as i64);
                output
            }
            None => {
                if self.window.auto_pad == AutoPad::Valid {
                    (axis.begin, axis.end) = (0, 0);
                }
                natural - i128::from(axis.begin) - i128::from(axis.end)
            }
        };
        let output = if size == 0 && given.is_none() { 0 } else { output };
        axis.output = size;
        axis.input = usize::try_from(output)
            .ok()
            .filter(|&output| output < 1 << 40)
            .ok_or_else(|| OpError::Message(format!("the output would have a dim of {output}")))?;
        Ok(())
    }
}

impl Operator for ConvTranspose {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.required(1)?;
        let dims = match (input_dims(cx, 0), input_dims(cx, 1)) {
            (Some(x), Some(w)) => {
                let (batch, _, spatial) = split_dims(&x)?;
                let (_, group_channels, kernel) = split_dims(&w)?;
                let channels = group_channels.fixed().and_then(|m| m.checked_mul(self.group));
                let mut dims = SymDims::from_slice(&[batch, channels.map_or(SymDim::Unknown, SymDim::Fixed)]);
                let fixed = |dims: &[SymDim]| dims.iter().map(|dim| dim.fixed()).collect::<Option<Dims>>();
                match (fixed(spatial), fixed(kernel)) {
                    (Some(spatial), Some(kernel)) => {
                        let axes = self.axes(&spatial, &kernel)?;
                        dims.extend(axes.iter().map(|axis| SymDim::Fixed(axis.input)));
                    }
                    _ => dims.extend(spatial.iter().map(|_| SymDim::Unknown)),
                }
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

/// Elements of the matrix of a block of positions, about.
const BLOCK: usize = 64 << 10;

impl ConvTranspose {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let w = cx.required(1)?;
        super::same_type(x, &w, 1)?;
        let (batch, channels, spatial) = split_dims(x.dims())?;
        let (w_channels, out_channels, kernel) = split_dims(w.dims())?;
        if spatial.len() != kernel.len() || channels != w_channels || channels % self.group != 0 {
            return Err(OpError::Message(format!(
                "X {x:?}, W {w:?} and group {} do not fit each other",
                self.group
            )));
        }
        let axes = self.axes(spatial, kernel)?;
        let y_spatial: Dims = axes.iter().map(|axis| axis.input).collect();
        let mut dims = Dims::from_slice(&[batch, element_count(&[out_channels, self.group])?]);
        dims.extend_from_slice(&y_spatial);
        let bias = per_channel::<T>(cx, 2, dims[1])?;
        let (positions, taps, y_size) = (
            element_count(&outputs(&axes))?,
            element_count(kernel)?,
            element_count(&y_spatial)?,
        );
        let group_channels = channels / self.group;
        let rows = element_count(&[out_channels, taps])?;
        let block = (BLOCK / rows.max(1)).clamp(16, 1024).min(positions.max(1));
        // W of a group transposed, X of a block, their product, and the sums of Y's channels.
        let lens = [
            element_count(&[rows, group_channels])?,
            element_count(&[group_channels, block])?,
            element_count(&[rows, block])?,
            element_count(&[out_channels, y_size])?,
        ];
        let total = lens.iter().fold(0usize, |sum, &len| sum.saturating_add(len));
        let scratch = cx.scratch::<T::Wide>(total)?;
        let (weights, rest) = scratch.split_at_mut(lens[0]);
        let (columns, rest) = rest.split_at_mut(lens[1]);
        let (products, sums) = rest.split_at_mut(lens[2]);
        let (x, w) = (x.slice::<T>()?, w.slice::<T>()?);
        let y = cx.output::<T>(0, &dims)?.into_mut();
        if y.is_empty() {
            return Ok(());
        }
        for group in 0..self.group {
            let w = &w[group * group_channels * rows..][..group_channels * rows];
            for (row, weights) in weights.chunks_exact_mut(group_channels.max(1)).enumerate() {
                ending::count(weights.len());
                for (c, weight) in weights.iter_mut().enumerate() {
                    *weight = w[c * rows + row].widen();
                }
            }
            for image in 0..batch {
                ending::count(sums.len());
                let x_at = (image * channels + group * group_channels) * positions;
                sums.fill(Scalar::ZERO);
                for first in (0..positions).step_by(block) {
                    ending::look();
                    let width = block.min(positions - first);
                    for (c, column) in columns.chunks_exact_mut(width).take(group_channels).enumerate() {
                        let x = &x[x_at + c * positions + first..][..width];
                        column.iter_mut().zip(x).for_each(|(to, x)| *to = x.widen());
                    }
                    let products = &mut products[..rows * width];
                    let columns = &columns[..group_channels * width];
                    gemm(
                        cx.workers(),
                        (rows, group_channels, width),
                        weights,
                        columns,
                        products,
                    );
                    add_columns(&axes, first, width, products, sums);
                }
                for (m, sums) in sums.chunks_exact(y_size).enumerate() {
                    let channel = group * out_channels + m;
                    let bias = bias.and_then(|bias| bias.get(channel)).map(|bias| bias.widen());
                    let y = &mut y[(image * dims[1] + channel) * y_size..][..y_size];
                    for (y, &sum) in y.iter_mut().zip(sums) {
                        *y = T::narrow(bias.map_or(sum, |bias| sum.add(bias)));
                    }
                }
            }
        }
        Ok(())
    }
}
