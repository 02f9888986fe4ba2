//! Resize: X sampled at the positions of another shape (`resize_axis` says where and how).
//!
//!   Resize      ai.onnx 10 (scales), 11, 13 (scales or sizes, roi), 18, 19 (axes, antialias,
//!               keep_aspect_ratio_policy)
//!   Upsample    ai.onnx 7 (scales is an attribute), 9, 10: Resize 10
//!
//! A dim becomes floor(dim scale), with tf_crop_and_resize of the part in the region of interest, or
//! what `sizes` says; with not_larger or not_smaller the least or the largest scale of all axes
//! counts, and dims are rounded half up.
//!
//! nearest takes any element type. linear and cubic go axis by axis, in f32 for float16 and
//! bfloat16 and in f64 for integers, whose results are truncated, and with antialias rounded, as
//! ONNX Runtime does.

use smallvec::SmallVec;

use super::Built;
use super::dims::axis;
use super::dispatch::{with_integer, with_number};
use super::infer::{input_dims, input_type};
use super::moves::Sources;
use super::number::{Number, Scalar};
use super::resize_axis::{Axis, Coordinates, Mode, Rule};
use crate::native::element::ElementType;
use crate::native::ending::{self, counted};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, Tensor, TensorRef, element_count};
use crate::native::working::Working;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AspectRatio {
    Stretch,
    NotLarger,
    NotSmaller,
}

/// Which inputs say what.
#[derive(Debug)]
struct Inputs {
    roi: Option<usize>,
    scales: usize,
    sizes: Option<usize>,
}

#[derive(Debug)]
struct Resize {
    rule: Rule,
    extrapolation: f32,
    axes: Option<Vec<i64>>,
    aspect_ratio: AspectRatio,
    /// `None`: the scales are these.
    inputs: Result<Inputs, Vec<f32>>,
}

pub(in crate::native) fn resize(node: &NodeInfo<'_>) -> Built {
    if node.since < 11 {
        return simple(node, Ok(1));
    }
    let new = node.since >= 18;
    let policy = if new {
        node.string_or("keep_aspect_ratio_policy", "stretch")?
    } else {
        "stretch"
    };
    let aspect_ratio = match policy {
        "stretch" => AspectRatio::Stretch,
        "not_larger" => AspectRatio::NotLarger,
        "not_smaller" => AspectRatio::NotSmaller,
        other => {
            return Err(OpError::Attribute {
                name: "keep_aspect_ratio_policy".into(),
                message: format!("is \"{other}\", expected stretch, not_larger or not_smaller"),
            });
        }
    };
    Ok(Box::new(Resize {
        rule: Rule::read(node)?,
        extrapolation: node.float_or("extrapolation_value", 0.0)?,
        axes: if new {
            node.ints("axes")?.map(Into::into)
        } else {
            None
        },
        aspect_ratio,
        inputs: Ok(Inputs {
            roi: Some(1),
            scales: 2,
            sizes: Some(3),
        }),
    }))
}

pub(in crate::native) fn upsample(node: &NodeInfo<'_>) -> Built {
    if node.since >= 9 {
        return simple(node, Ok(1));
    }
    let scales = node.floats("scales")?.ok_or_else(|| OpError::Attribute {
        name: "scales".into(),
        message: "is missing".into(),
    })?;
    simple(node, Err(scales.to_vec()))
}

fn simple(node: &NodeInfo<'_>, scales: Result<usize, Vec<f32>>) -> Built {
    Ok(Box::new(Resize {
        rule: Rule::read_simple(node)?,
        extrapolation: 0.0,
        axes: None,
        aspect_ratio: AspectRatio::Stretch,
        inputs: scales.map(|scales| Inputs {
            roi: None,
            scales,
            sizes: None,
        }),
    }))
}

/// What the inputs say, for the axes that are resized.
struct Target {
    scales: Vec<f32>,
    sizes: Vec<i64>,
    roi: Vec<f32>,
}

fn floats(tensor: TensorRef<'_>) -> Result<Vec<f32>, OpError> {
    match tensor.element_type() {
        ElementType::Float32 => Ok(tensor.slice::<f32>()?.to_vec()),
        ElementType::Float64 => Ok(tensor.slice::<f64>()?.iter().map(|&x| x as f32).collect()),
        _ => Ok(tensor.slice::<half::f16>()?.iter().map(|x| x.to_f32()).collect()),
    }
}

impl Resize {
    fn target<'t>(&self, input: impl Fn(usize) -> Option<TensorRef<'t>>) -> Result<Target, OpError> {
        let inputs = match &self.inputs {
            Ok(inputs) => inputs,
            Err(scales) => {
                return Ok(Target {
                    scales: scales.clone(),
                    sizes: Vec::new(),
                    roi: Vec::new(),
                });
            }
        };
        let read = |index: Option<usize>| match index.and_then(&input) {
            Some(tensor) => floats(tensor),
            None => Ok(Vec::new()),
        };
        Ok(Target {
            scales: read(Some(inputs.scales))?,
            sizes: match inputs.sizes.and_then(&input) {
                Some(sizes) => sizes.to_ints()?.to_vec(),
                None => Vec::new(),
            },
            roi: match self.rule.coordinates {
                Coordinates::TfCropAndResize => read(inputs.roi)?,
                _ => Vec::new(),
            },
        })
    }

    /// All axes of X, those not named as they are.
    fn axes(&self, dims: &[usize], target: &Target) -> Result<SmallVec<[Axis; 4]>, OpError> {
        let rank = dims.len();
        let named: SmallVec<[usize; 6]> = match &self.axes {
            Some(axes) => axes.iter().map(|&at| axis(at, rank)).collect::<Result<_, _>>()?,
            None => (0..rank).collect(),
        };
        let count = named.len();
        let (scales, sizes, roi) = (&target.scales, &target.sizes, &target.roi);
        let fits = match (scales.len(), sizes.len()) {
            (0, sizes) => sizes == count,
            (scales, 0) => scales == count,
            _ => false,
        };
        if !fits || !(roi.is_empty() || roi.len() == 2 * count) {
            return Err(OpError::Message(format!(
                "{} scales, {} sizes and a roi of {} values for {count} axes: expected scales or sizes",
                scales.len(),
                sizes.len(),
                roi.len()
            )));
        }
        let mut axes: SmallVec<[Axis; 4]> = dims
            .iter()
            .map(|&dim| Axis {
                input: dim,
                output: dim,
                scale: 1.0,
                roi: (0.0, 1.0),
            })
            .collect();
        // One scale for all axes, where the aspect ratio is kept.
        let ratios = named
            .iter()
            .zip(sizes)
            .map(|(&at, &size)| size as f32 / dims[at] as f32);
        let common = match self.aspect_ratio {
            AspectRatio::Stretch => None,
            AspectRatio::NotLarger => ratios.reduce(f32::min),
            AspectRatio::NotSmaller => ratios.reduce(f32::max),
        };
        for (i, &at) in named.iter().enumerate() {
            let axis = &mut axes[at];
            if let (Some(&begin), Some(&end)) = (roi.get(i), roi.get(i + count)) {
                axis.roi = (begin, end);
            }
            let size = match (scales.get(i), sizes.get(i), common) {
                (Some(&scale), _, _) => {
                    axis.scale = scale;
                    let part = axis.roi.1 - axis.roi.0;
                    f64::from((axis.input as f32 * part * scale).floor())
                }
                (None, _, Some(scale)) => {
                    axis.scale = scale;
                    (f64::from(scale) * axis.input as f64 + 0.5).floor()
                }
                (None, size, None) => {
                    let size = size.copied().unwrap_or(0);
                    axis.scale = size as f32 / axis.input as f32;
                    size as f64
                }
            };
            let valid = (0.0..1e15).contains(&size) && (axis.scale > 0.0 || size == 0.0 || axis.input == 0);
            if !valid || (axis.input == 0 && size > 0.0) {
                return Err(OpError::Message(format!(
                    "cannot resize a dim of {} to {size} (scale {})",
                    axis.input, axis.scale
                )));
            }
            axis.output = size as usize;
        }
        Ok(axes)
    }
}

impl Operator for Resize {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0);
        let known = |index: usize| match cx.input(index) {
            // Left out is known, too.
            None => true,
            Some(fact) => fact.value().is_some() || fact.fixed_dims().is_some_and(|dims| dims.contains(&0)),
        };
        let all_known = match &self.inputs {
            Ok(inputs) => {
                let roi = inputs
                    .roi
                    .filter(|_| self.rule.coordinates == Coordinates::TfCropAndResize);
                [Some(inputs.scales), inputs.sizes, roi]
                    .into_iter()
                    .flatten()
                    .all(known)
            }
            Err(_) => true,
        };
        let result = match dims {
            Some(dims) if all_known => {
                let target = self.target(|index| cx.input(index).and_then(|fact| fact.value()))?;
                // A dim that is not known counts as 1 here, and its result is not known either.
                let sizes: Dims = dims.iter().map(|dim| dim.fixed().unwrap_or(1)).collect();
                let axes = self.axes(&sizes, &target)?;
                let common = self.aspect_ratio != AspectRatio::Stretch && !target.sizes.is_empty();
                let some_unknown = dims.iter().any(|dim| dim.fixed().is_none());
                let result = dims.iter().zip(&axes).map(|(dim, axis)| match dim {
                    SymDim::Fixed(_) if !(common && some_unknown) => SymDim::Fixed(axis.output),
                    SymDim::Fixed(_) => SymDim::Unknown,
                    _ if target.scales.is_empty() && !common => SymDim::Fixed(axis.output),
                    same if axis.is_identity(&self.rule) => *same,
                    _ => SymDim::Unknown,
                });
                let untouched = |at: usize| match &self.axes {
                    Some(axes) => !axes.iter().any(|&a| axis(a, dims.len()).is_ok_and(|a| a == at)),
                    None => false,
                };
                let kept = result
                    .enumerate()
                    .map(|(at, to)| if untouched(at) { dims[at] } else { to });
                Some(kept.collect())
            }
            Some(dims) => Some(SymDims::from_elem(SymDim::Unknown, dims.len())),
            None => None,
        };
        cx.set_output(0, input_type(cx, 0), result);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let target = self.target(|index| cx.input(index))?;
        let axes = self.axes(x.dims(), &target)?;
        let dims: Dims = axes.iter().map(|axis| axis.output).collect();
        if let Mode::Nearest(nearest) = self.rule.mode {
            let sources = Sources::new(x.dims(), &dims, |at, output| {
                let axis = &axes[at];
                let inside = !axis.is_outside(&self.rule, output);
                inside.then(|| axis.nearest(&self.rule, nearest, output))
            })?;
            return sources.copy(cx, &x, &dims, &self.extrapolated(&x)?);
        }
        with_number!(x.element_type(), T => self.interpolate::<T>(cx, &x, &axes, &dims))
    }
}

/// The taps of every position of an axis, one after the other.
struct AxisTaps<W> {
    taps: Working<(usize, W)>,
    ends: Working<usize>,
}

impl Resize {
    /// The extrapolation value as an element of X's type.
    fn extrapolated(&self, x: &TensorRef<'_>) -> Result<Tensor, OpError> {
        match (x.element_type(), self.extrapolation == 0.0) {
            (ElementType::String, _) => Tensor::from_strings(&[], vec![String::new()]),
            (ty, true) => Tensor::from_raw(ty, &[], &vec![0; ty.size().unwrap_or(1)]),
            (ty, false) => with_number!(ty, T => {
                Tensor::from_slice(&[], &[T::narrow(Scalar::from_f64(self.extrapolation.into()))])
            }),
        }
    }

    fn interpolate<T: Number>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        axes: &[Axis],
        dims: &[usize],
    ) -> Result<(), OpError> {
        // The largest tensor on the way from X to Y.
        let mut shape: Dims = x.dims().into();
        let mut largest = x.len();
        for (at, axis) in axes.iter().enumerate() {
            shape[at] = axis.output;
            largest = largest.max(element_count(&shape)?);
        }
        let scratch = cx.scratch::<T::Real>(largest.saturating_mul(2))?;
        let (mut from, mut to) = scratch.split_at_mut(largest);
        for (from, x) in counted(from.iter_mut()).zip(x.slice::<T>()?) {
            *from = Scalar::from_f64(x.widen().to_f64());
        }
        let y = cx.output::<T>(0, dims)?.into_mut();
        if y.is_empty() {
            return Ok(());
        }
        let mut shape: Dims = x.dims().into();
        for (at, axis) in axes.iter().enumerate() {
            if axis.is_identity(&self.rule) {
                continue;
            }
            let inner = shape[at + 1..].iter().product::<usize>();
            let outer = shape[..at].iter().product::<usize>();
            let taps = self.taps::<T::Real>(axis)?;
            for outer in 0..outer {
                ending::look();
                let from = &from[outer * axis.input * inner..][..axis.input * inner];
                let to = &mut to[outer * axis.output * inner..][..axis.output * inner];
                apply(&taps, from, to, inner);
            }
            shape[at] = axis.output;
            std::mem::swap(&mut from, &mut to);
        }
        for (y, from) in counted(y.iter_mut()).zip(from.iter()) {
            let value = from.to_f64();
            *y = T::narrow(Scalar::from_f64(match T::Wide::INTEGER {
                false => value,
                true if self.rule.antialias => value.round(),
                true => whole(value),
            }));
        }
        self.extrapolate(axes, dims, y);
        Ok(())
    }

    fn taps<W: Scalar>(&self, axis: &Axis) -> Result<AxisTaps<W>, OpError> {
        let (mut taps, mut of_one) = (Working::with_room(0)?, Working::with_room(0)?);
        let mut ends = Working::with_room(axis.output)?;
        for output in 0..axis.output {
            ending::count(of_one.len().max(1));
            of_one.clear();
            axis.taps(&self.rule, output, &mut of_one)?;
            for &(at, weight) in of_one.iter() {
                taps.add((at, W::from_f64(weight)))?;
            }
            ends.push(taps.len());
        }
        Ok(AxisTaps { taps, ends })
    }

    /// Overwrites what lies outside X along any axis.
    fn extrapolate<T: Number>(&self, axes: &[Axis], dims: &[usize], y: &mut [T]) {
        let value = T::narrow(Scalar::from_f64(self.extrapolation.into()));
        for (at, axis) in axes.iter().enumerate() {
            let inner = dims[at + 1..].iter().product::<usize>();
            for (row, y) in y.chunks_exact_mut(inner).enumerate() {
                ending::count(inner);
                if axis.is_outside(&self.rule, row % axis.output) {
                    y.fill(value);
                }
            }
        }
    }
}

/// Truncated, but a whole number that the coordinates' rounding has moved stays itself.
fn whole(value: f64) -> f64 {
    const ROUNDING: f64 = 1e-4;
    let nearest = value.round();
    match (value - nearest).abs() < ROUNDING {
        true => nearest,
        false => value.trunc(),
    }
}

/// Rows of `inner` elements: each of `to` is the weighted sum of some of `from`.
fn apply<W: Scalar>(axis: &AxisTaps<W>, from: &[W], to: &mut [W], inner: usize) {
    let mut start = 0;
    for (to, &end) in to.chunks_exact_mut(inner).zip(axis.ends.iter()) {
        to.fill(W::ZERO);
        for &(at, weight) in &axis.taps[start..end] {
            ending::count(inner);
            for (to, &from) in to.iter_mut().zip(&from[at * inner..][..inner]) {
                *to = W::multiply_add(from, weight, *to);
            }
        }
        start = end;
    }
}
