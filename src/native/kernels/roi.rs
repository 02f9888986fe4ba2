//! Pools over regions of interest of X [N, C, H, W], each divided into bins:
//!
//!   RoiAlign     rois [R, 4] of (x1, y1, x2, y2), batch_indices [R] -> [R, C, output_height, output_width]
//!                samples of X, linearly interpolated, at the centres of a grid of sampling_ratio^2
//!                points in each bin (as many as the bin has pixels, for 0): their mean, or with
//!                mode max the largest of the weighted elements
//!   MaxRoiPool   rois [R, 5] of (image, x1, y1, x2, y2) -> [R, C, pooled_shape...]
//!                the largest element of each bin, of whole pixels; 0 of an empty one
//!
//! Coordinates times `spatial_scale` are those of X; half_pixel subtracts 1/2. A sample further than
//! a pixel outside X is 0. ai.onnx: RoiAlign 10 (output_half_pixel), 16, 22; MaxRoiPool 1, 22.
//! float16 and bfloat16 are computed in f32.

use super::Built;
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::number::{Float, Scalar};
use crate::native::element::ElementType;
use crate::native::ending::{self, counted};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;
use crate::native::working::Working;

#[derive(Debug)]
struct RoiAlign {
    max: bool,
    half_pixel: bool,
    /// Height and width.
    output: [usize; 2],
    /// 0: by the size of the bin.
    sampling: usize,
    scale: f32,
}

pub(in crate::native) fn roi_align(node: &NodeInfo<'_>) -> Built {
    let max = match node.string_or("mode", "avg")? {
        "avg" => false,
        "max" => true,
        other => {
            return Err(OpError::Attribute {
                name: "mode".into(),
                message: format!("is \"{other}\", expected avg or max"),
            });
        }
    };
    let coordinates = match node.since {
        16.. => node.string_or("coordinate_transformation_mode", "half_pixel")?,
        _ => "output_half_pixel",
    };
    let half_pixel = match coordinates {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => {
            return Err(OpError::Attribute {
                name: "coordinate_transformation_mode".into(),
                message: format!("is \"{other}\", expected half_pixel or output_half_pixel"),
            });
        }
    };
    let sampling = node.int_or("sampling_ratio", 0)?;
    Ok(Box::new(RoiAlign {
        max,
        half_pixel,
        output: [
            super::conv::group(node, "output_height")?,
            super::conv::group(node, "output_width")?,
        ],
        sampling: usize::try_from(sampling).map_err(|_| OpError::Attribute {
            name: "sampling_ratio".into(),
            message: format!("is {sampling}, expected 0 or more"),
        })?,
        scale: node.float_or("spatial_scale", 1.0)?,
    }))
}

/// Y is [rois, channels, height, width].
fn infer(cx: &mut InferContext<'_>, output: [usize; 2]) {
    let channels = input_dims(cx, 0).and_then(|dims| dims.get(1).copied());
    let rois = input_dims(cx, 1).and_then(|dims| dims.first().copied());
    let dims = SymDims::from_slice(&[
        rois.unwrap_or(SymDim::Unknown),
        channels.unwrap_or(SymDim::Unknown),
        SymDim::Fixed(output[0]),
        SymDim::Fixed(output[1]),
    ]);
    cx.set_output(0, input_type(cx, 0), Some(dims));
}

/// N, C, H, W, and the regions, of which each has `columns` values.
fn sizes(x: &TensorRef<'_>, rois: &TensorRef<'_>, columns: usize) -> Result<([usize; 4], usize), OpError> {
    super::same_type(x, rois, 1)?;
    match (x.dims(), rois.dims()) {
        (&[n, c, h, w], &[count, found]) if found == columns => Ok(([n, c, h, w], count)),
        _ => Err(OpError::Message(format!(
            "X is {x:?} and rois are {rois:?}, expected [N, C, H, W] and [R, {columns}]"
        ))),
    }
}

fn image(index: f64, batch: usize) -> Result<usize, OpError> {
    let at = index as usize;
    match at as f64 == index && at < batch {
        true => Ok(at),
        false => Err(OpError::Message(format!(
            "a region is of image {index}, there are {batch}"
        ))),
    }
}

impl Operator for RoiAlign {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.required(2)?;
        infer(cx, self.output);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

/// Four elements of a channel and their weights.
type Sample<W> = [(usize, W); 4];

/// The most samples of a bin; more are those of a region of absurd size.
const MOST_SAMPLES: f64 = 1e6;

impl RoiAlign {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let (rois, indices) = (cx.required(1)?, cx.required(2)?);
        let ([batch, channels, height, width], count) = sizes(x, &rois, 4)?;
        let indices = indices.to_ints()?;
        if indices.len() != count {
            return Err(OpError::Message(format!(
                "{} batch indices for {count} regions",
                indices.len()
            )));
        }
        let (x, rois) = (x.slice::<T>()?, rois.slice::<T>()?);
        let [rows, columns] = self.output;
        let y = cx.output::<T>(0, &[count, channels, rows, columns])?.into_mut();
        if y.is_empty() {
            return Ok(());
        }
        let area = height * width;
        let mut samples = Working::with_room(0)?;
        for (roi, (sides, &index)) in rois.chunks_exact(4).zip(&indices).enumerate() {
            let image = image(index as f64, batch)?;
            let shift = if self.half_pixel { 0.5 } else { 0.0 };
            let scale = T::Wide::from_f64(self.scale.into());
            let side = |i: usize| sides[i].widen().mul(scale).sub(T::Wide::from_f64(shift)).to_f64();
            let start = [side(1), side(0)];
            let mut extent = [side(3) - start[0], side(2) - start[1]];
            if !self.half_pixel {
                extent = extent.map(|extent| extent.max(1.0));
            }
            let bin = [extent[0] / rows as f64, extent[1] / columns as f64];
            let grid = bin.map(|bin| match self.sampling {
                0 => bin.ceil().clamp(0.0, f64::MAX),
                sampling => sampling as f64,
            });
            if grid[0] * grid[1] > MOST_SAMPLES {
                return Err(OpError::Message(format!(
                    "a bin of region {roi} has {} by {} samples",
                    grid[0], grid[1]
                )));
            }
            for row in 0..rows {
                for column in 0..columns {
                    samples.clear();
                    for iy in 0..grid[0] as usize {
                        let at = start[0] + (row as f64 + (iy as f64 + 0.5) / grid[0]) * bin[0];
                        for ix in counted(0..grid[1] as usize) {
                            let along = start[1] + (column as f64 + (ix as f64 + 0.5) / grid[1]) * bin[1];
                            samples.add(interpolation::<T::Wide>(at, along, height, width))?;
                        }
                    }
                    for channel in 0..channels {
                        ending::count(samples.len());
                        let x = &x[(image * channels + channel) * area..][..area];
                        y[((roi * channels + channel) * rows + row) * columns + column] =
                            self.pool(x, &samples);
                    }
                }
            }
        }
        Ok(())
    }

    fn pool<T: Float>(&self, x: &[T], samples: &[Option<Sample<T::Wide>>]) -> T {
        let weighted = |sample: &Sample<T::Wide>| {
            sample.map(|(at, weight)| x.get(at).map_or(T::Wide::ZERO, |x| x.widen().mul(weight)))
        };
        let (mut sum, mut largest) = (T::Wide::ZERO, None);
        for sample in samples {
            let parts = sample.as_ref().map_or([T::Wide::ZERO; 4], weighted);
            sum = parts.into_iter().fold(sum, Scalar::add);
            let of_sample = parts.into_iter().fold(parts[0], Scalar::max);
            largest = Some(largest.map_or(of_sample, |largest| Scalar::max(largest, of_sample)));
        }
        T::narrow(match self.max {
            true => largest.unwrap_or(T::Wide::ZERO),
            false => sum.div(T::Wide::from_f64(samples.len().max(1) as f64)),
        })
    }
}

/// The elements around a point and their weights; `None` further than a pixel outside.
fn interpolation<W: Scalar>(y: f64, x: f64, height: usize, width: usize) -> Option<Sample<W>> {
    let along = |at: f64, size: usize| {
        if !(-1.0..=size as f64).contains(&at) {
            return None;
        }
        let last = size.checked_sub(1)?;
        let at = at.max(0.0);
        let low = (at as usize).min(last);
        let high = (low + 1).min(last);
        let part = if low == last { 0.0 } else { at - low as f64 };
        Some(([low, high], [1.0 - part, part]))
    };
    let ((rows, of_row), (columns, of_column)) = (along(y, height)?, along(x, width)?);
    let corner = |i: usize, j: usize| {
        (
            rows[i] * width + columns[j],
            W::from_f64(of_row[i] * of_column[j]),
        )
    };
    Some([corner(0, 0), corner(0, 1), corner(1, 0), corner(1, 1)])
}

#[derive(Debug)]
struct MaxRoiPool {
    output: [usize; 2],
    scale: f32,
}

pub(in crate::native) fn max_roi_pool(node: &NodeInfo<'_>) -> Built {
    let shape = node.ints("pooled_shape")?.unwrap_or_default();
    let size = |i: usize| {
        shape
            .get(i)
            .and_then(|&size| usize::try_from(size).ok())
            .filter(|&size| size > 0)
    };
    let output = match (shape.len(), size(0), size(1)) {
        (2, Some(height), Some(width)) => [height, width],
        _ => {
            return Err(OpError::Attribute {
                name: "pooled_shape".into(),
                message: format!("is {shape:?}, expected two positive values"),
            });
        }
    };
    Ok(Box::new(MaxRoiPool {
        output,
        scale: node.float_or("spatial_scale", 1.0)?,
    }))
}

impl Operator for MaxRoiPool {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        infer(cx, self.output);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl MaxRoiPool {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let rois = cx.required(1)?;
        let ([batch, channels, height, width], count) = sizes(x, &rois, 5)?;
        let (x, rois) = (x.slice::<T>()?, rois.slice::<T>()?);
        let [rows, columns] = self.output;
        let y = cx.output::<T>(0, &[count, channels, rows, columns])?.into_mut();
        let area = height * width;
        for (roi, values) in rois.chunks_exact(5).enumerate() {
            let image = image(values[0].widen().to_f64(), batch)?;
            let side = |i: usize| (values[i].widen().to_f64() * f64::from(self.scale)).round();
            // Pixels of a bin along an axis.
            let bins = |bin: usize, bins: usize, first: f64, last: f64, size: usize| {
                let extent = (last - first + 1.0).max(1.0) / bins as f64;
                let pixel = |at: f64| (at + first).clamp(0.0, size as f64) as usize;
                pixel((bin as f64 * extent).floor())..pixel(((bin + 1) as f64 * extent).ceil())
            };
            for channel in 0..channels {
                let x = &x[(image * channels + channel) * area..][..area];
                let y = &mut y[(roi * channels + channel) * rows * columns..][..rows * columns];
                for (at, y) in y.iter_mut().enumerate() {
                    let lines = bins(at / columns, rows, side(2), side(4), height);
                    let along = bins(at % columns, columns, side(1), side(3), width);
                    ending::count(1);
                    let elements = lines.flat_map(|line| {
                        ending::count(along.len().max(1));
                        x[line * width..].get(along.clone()).unwrap_or_default()
                    });
                    let largest = elements.map(|x| x.widen()).reduce(Scalar::max);
                    *y = T::narrow(largest.unwrap_or(T::Wide::ZERO));
                }
            }
        }
        Ok(())
    }
}
