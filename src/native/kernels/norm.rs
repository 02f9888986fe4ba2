//! Normalisation over the dims from `axis` on (n elements, one group):
//!
//!   LayerNormalization       y = (x - mean) / sqrt(var + epsilon) * scale + bias     ai.onnx 17
//!   RMSNormalization         y = x / sqrt(mean of x^2 + epsilon) * scale             ai.onnx 23
//!   SimplifiedLayerNormalization    RMSNormalization, as ONNX Runtime has it in ONNX's own domain;
//!                            output 1 is 1 / sqrt(...)
//!   SkipLayerNormalization, SkipSimplifiedLayerNormalization (com.microsoft 1)
//!                            the same of x = input + skip + bias over the last dim; outputs 1 and 2
//!                            are the mean and 1 / sqrt(...), output 3 is the sum itself
//!
//! mean = sum x / n, var = sum (x - mean)^2 / n. Scale and bias broadcast to X; skip is [hidden]'s
//! rows or fewer of them, repeated. f16 and bf16 are computed in f32, f64 in f64 (whatever
//! `stash_type` says), and each output is rounded once.

use super::Built;
use super::dims::axis;
use super::dispatch::with_float;
use super::elementwise::map;
use super::infer::input_type;
use super::number::{Float, Number, Real, Scalar};
use super::strided::{Strided, Strides, broadcast_dims, broadcast_strides};
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

/// What is subtracted and divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Mean and standard deviation.
    Standard,
    /// Nothing, and the root of the mean square.
    Rms,
}

/// The mean that is subtracted, and 1 / sqrt(... + epsilon).
pub(super) fn statistics<W: Real>(x: &[W], kind: Kind, epsilon: f32) -> (W, W) {
    let n = W::from_f64(x.len() as f64);
    let mean = match kind {
        Kind::Standard => sum(x.iter().copied()).div(n),
        Kind::Rms => W::ZERO,
    };
    let variance = sum(x.iter().map(|&x| x.sub(mean).mul(x.sub(mean)))).div(n);
    let inverse = W::ONE.div(variance.add(W::from_f64(epsilon.into())).sqrt());
    (mean, inverse)
}

fn sum<W: Scalar>(x: impl Iterator<Item = W>) -> W {
    x.fold(W::ZERO, Scalar::add)
}

/// LayerNormalization, RMSNormalization and SimplifiedLayerNormalization.
#[derive(Debug)]
struct Norm {
    kind: Kind,
    axis: i64,
    epsilon: f32,
    /// The type of the statistics outputs.
    stash: ElementType,
}

fn norm(node: &NodeInfo<'_>, kind: Kind) -> Built {
    let stash = match node.int_or("stash_type", 1)? {
        1 => ElementType::Float32,
        11 => ElementType::Float64,
        10 => ElementType::Float16,
        16 => ElementType::Bfloat16,
        other => {
            return Err(OpError::Attribute {
                name: "stash_type".into(),
                message: format!("is {other}, expected a floating-point type"),
            });
        }
    };
    Ok(Box::new(Norm {
        kind,
        axis: node.int_or("axis", -1)?,
        epsilon: node.float_or("epsilon", 1e-5)?,
        stash,
    }))
}

pub(in crate::native) fn layer_normalization(node: &NodeInfo<'_>) -> Built {
    norm(node, Kind::Standard)
}

pub(in crate::native) fn rms_normalization(node: &NodeInfo<'_>) -> Built {
    norm(node, Kind::Rms)
}

impl Operator for Norm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let y_ty = match self.kind {
            Kind::Standard => x.ty,
            Kind::Rms => input_type(cx, 1),
        };
        cx.set_output(0, y_ty, x.dims.clone());
        let statistics = match &x.dims {
            Some(dims) => {
                let axis = axis(self.axis, dims.len())?;
                let mut dims = dims.clone();
                dims[axis..].fill(SymDim::Fixed(1));
                Some(dims)
            }
            None => None,
        };
        cx.set_output(1, Some(self.stash), statistics.clone());
        cx.set_output(2, Some(self.stash), statistics);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        if matches!(self.kind, Kind::Standard) {
            super::same_type(&x, &cx.required(1)?, 1)?;
        }
        with_float!(x.element_type(), T => {
            let elements = x.slice::<T>()?;
            self.run_in::<<T as Number>::Wide>(cx, &x, &|first, wide| {
                for (wide, &x) in wide.iter_mut().zip(&elements[first..]) {
                    *wide = x.widen();
                }
            })
        })
    }
}

/// Elements of a tensor of floats in type `W`.
fn widen_all<W: Real>(tensor: &TensorRef<'_>, wide: &mut [W]) -> Result<(), OpError> {
    with_float!(tensor.element_type(), T => {
        map(tensor.slice::<T>()?, wide, |x| W::from_f64(x.widen().to_f64()));
        Ok(())
    })
}

/// Strides of a scale or bias, which broadcasts to X.
fn broadcasting(tensor: &TensorRef<'_>, dims: &[usize], index: usize) -> Result<Strides, OpError> {
    if broadcast_dims(tensor.dims(), dims).as_deref() == Some(dims) {
        return Ok(broadcast_strides(tensor.dims(), dims));
    }
    Err(OpError::WrongDims {
        what: format!("input {index}"),
        found: tensor.dims().into(),
        expected: format!("dims that broadcast to {dims:?}"),
    })
}

/// Reads elements of X from the given position on.
type Load<'a, W> = dyn Fn(usize, &mut [W]) + 'a;
/// Writes elements of Y from the given position on.
type Store<'a, W> = dyn FnMut(usize, &[W]) + 'a;

/// Scale and bias in wide type, and how they repeat over X.
struct Affine<'a, W> {
    scale: &'a [W],
    scale_strides: Strides,
    /// Empty without a bias.
    bias: &'a [W],
    bias_strides: Strides,
}

impl Norm {
    /// Computes in `W`; X, scale and Y may have other types, and are converted row by row.
    fn run_in<W: Real>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        load: &Load<'_, W>,
    ) -> Result<(), OpError> {
        let dims = x.dims();
        let axis = axis(self.axis, dims.len())?;
        let group = dims[axis..].iter().product::<usize>();
        let groups = if x.is_empty() { 0 } else { x.len() / group };
        let scale = cx.required(1)?;
        let bias = cx.input(2).filter(|_| self.kind == Kind::Standard);
        let bias_len = bias.map_or(0, |bias| bias.len());
        let scratch = cx.scratch::<W>(group + 2 * groups + scale.len() + bias_len)?;
        let (wide, rest) = scratch.split_at_mut(group);
        let (means, rest) = rest.split_at_mut(groups);
        let (inverses, rest) = rest.split_at_mut(groups);
        let (wide_scale, wide_bias) = rest.split_at_mut(scale.len());
        widen_all(&scale, wide_scale)?;
        let scale_strides = broadcasting(&scale, dims, 1)?;
        let bias_strides = match &bias {
            Some(bias) => {
                super::same_type(&scale, bias, 2)?;
                widen_all(bias, wide_bias)?;
                broadcasting(bias, dims, 2)?
            }
            None => scale_strides.clone(),
        };
        let affine = Affine {
            scale: wide_scale,
            scale_strides,
            bias: wide_bias,
            bias_strides,
        };
        let statistics = (&mut *means, &mut *inverses);
        with_float!(scale.element_type(), U => {
            let y = match cx.output_used(0) {
                true => cx.output::<U>(0, dims)?.into_mut(),
                false => &mut [],
            };
            let mut store = |first: usize, wide: &[W]| {
                if let Some(y) = y.get_mut(first..) {
                    for (y, wide) in y.iter_mut().zip(wide) {
                        *y = U::narrow(Scalar::from_f64(wide.to_f64()));
                    }
                }
            };
            self.normalise(dims, axis, load, &affine, wide, statistics, &mut store);
            Ok(())
        })?;
        let mut dims: Dims = dims.into();
        dims[axis..].fill(1);
        let (mean_at, inverse_at) = match self.kind {
            Kind::Standard => (Some(1), 2),
            Kind::Rms => (None, 1),
        };
        if let Some(index) = mean_at {
            write_statistics(cx, index, self.stash, &dims, means)?;
        }
        write_statistics(cx, inverse_at, self.stash, &dims, inverses)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "borrows of one scratch buffer, and where they come from"
    )]
    fn normalise<W: Real>(
        &self,
        dims: &[usize],
        axis: usize,
        load: &Load<'_, W>,
        affine: &Affine<'_, W>,
        wide: &mut [W],
        (means, inverses): (&mut [W], &mut [W]),
        store: &mut Store<'_, W>,
    ) {
        let strides = [&affine.scale_strides, &affine.bias_strides];
        // Scale and bias are addressed by group, then within the group.
        let outer = Strided::new(&dims[..axis], strides.map(|strides| &strides[..axis]), [0, 0]);
        let mut row = 0;
        outer.for_each(&mut |base| {
            let (Some(mean_to), Some(inverse_to)) = (means.get_mut(row), inverses.get_mut(row)) else {
                return;
            };
            let first = row * wide.len();
            row += 1;
            load(first, wide);
            let (mean, inverse) = statistics(wide, self.kind, self.epsilon);
            (*mean_to, *inverse_to) = (mean, inverse);
            let inner = Strided::new(&dims[axis..], strides.map(|strides| &strides[axis..]), base);
            let mut values = wide.iter_mut();
            inner.for_each(&mut |[scale_at, bias_at]| {
                if let Some(x) = values.next() {
                    let scaled = x.sub(mean).mul(inverse).mul(affine.scale[scale_at]);
                    *x = match affine.bias.get(bias_at) {
                        Some(&bias) => scaled.add(bias),
                        None => scaled,
                    };
                }
            });
            store(first, wide);
        });
    }
}

/// One group's elements in wide type, then the mean and the inverse deviation of every group.
fn split_scratch<W>(scratch: &mut [W], group: usize, groups: usize) -> (&mut [W], &mut [W], &mut [W]) {
    let (wide, rest) = scratch.split_at_mut(group);
    let (means, inverses) = rest.split_at_mut(groups);
    (wide, means, inverses)
}

/// A statistic of every group, if the output is used.
fn write_statistics<W: Real>(
    cx: &mut RunContext<'_>,
    index: usize,
    ty: ElementType,
    dims: &[usize],
    values: &[W],
) -> Result<(), OpError> {
    if !cx.output_used(index) {
        return Ok(());
    }
    with_float!(ty, T => {
        // Groups of no elements have no statistics: NaN.
        let value = |i: usize| values.get(i).map_or(f64::NAN, |value| value.to_f64());
        cx.output::<T>(index, dims)?
            .fill_with(|i| T::narrow(Scalar::from_f64(value(i))));
        Ok(())
    })
}

/// SkipLayerNormalization and SkipSimplifiedLayerNormalization.
#[derive(Debug)]
struct SkipNorm {
    kind: Kind,
    epsilon: f32,
}

fn skip_norm(node: &NodeInfo<'_>, kind: Kind) -> Built {
    Ok(Box::new(SkipNorm {
        kind,
        epsilon: node.float_or("epsilon", 1e-12)?,
    }))
}

pub(in crate::native) fn skip_layer_normalization(node: &NodeInfo<'_>) -> Built {
    skip_norm(node, Kind::Standard)
}

pub(in crate::native) fn skip_simplified_layer_normalization(node: &NodeInfo<'_>) -> Built {
    skip_norm(node, Kind::Rms)
}

impl Operator for SkipNorm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let mut statistics = x.dims.clone();
        if let Some(last) = statistics.as_mut().and_then(|dims| dims.last_mut()) {
            *last = SymDim::Fixed(1);
        }
        cx.set_output(0, x.ty, x.dims.clone());
        cx.set_output(1, Some(ElementType::Float32), statistics.clone());
        cx.set_output(2, Some(ElementType::Float32), statistics);
        cx.set_output(3, x.ty, x.dims.clone());
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl SkipNorm {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let dims = x.dims();
        let Some((&hidden, batch)) = dims.split_last() else {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: dims.into(),
                expected: "rank 1 or more".into(),
            });
        };
        let per_channel = |index: usize| -> Result<Option<&[T]>, OpError> {
            match cx.input(index) {
                None => Ok(None),
                Some(tensor) if tensor.dims() == [hidden] => Ok(Some(tensor.slice::<T>()?)),
                Some(tensor) => Err(OpError::WrongDims {
                    what: format!("input {index}"),
                    found: tensor.dims().into(),
                    expected: format!("[{hidden}], the last dim of input 0"),
                }),
            }
        };
        let skip = cx.required(1)?;
        let leading_ones = skip.dims().iter().take_while(|&&dim| dim == 1).count();
        if skip.rank() > dims.len() || !dims.ends_with(&skip.dims()[leading_ones..]) {
            return Err(OpError::WrongDims {
                what: "input 1".into(),
                found: skip.dims().into(),
                expected: format!("the dims {dims:?} of input 0, or the last of them"),
            });
        }
        let skip = skip.slice::<T>()?;
        let gamma = per_channel(2)?.ok_or(OpError::MissingInput { index: 2 })?;
        let (beta, bias) = match self.kind {
            Kind::Standard => (per_channel(3)?, per_channel(4)?),
            Kind::Rms => (None, per_channel(3)?),
        };
        let x = x.slice::<T>()?;
        let rows = if x.is_empty() {
            0
        } else {
            batch.iter().product::<usize>()
        };
        let (wide, means, inverses) = split_scratch(cx.scratch::<T::Wide>(hidden + 2 * rows)?, hidden, rows);
        let mut output = |index: usize| match cx.output_used(index) {
            true => Ok::<_, OpError>(Some(cx.output::<T>(index, dims)?.into_mut())),
            false => Ok(None),
        };
        let (mut y, mut sums) = (output(0)?, output(3)?);
        for row in 0..rows {
            let at = row * hidden;
            // A skip of one element has no rows of its own: it is [1], like the hidden size.
            let skip = skip[at % skip.len()..].iter().take(hidden);
            for (i, (wide, (x, skip))) in wide.iter_mut().zip(x[at..].iter().zip(skip)).enumerate() {
                let sum = x.widen().add(skip.widen());
                *wide = match bias {
                    Some(bias) => sum.add(bias[i].widen()),
                    None => sum,
                };
            }
            if let Some(sums) = &mut sums {
                for (to, &sum) in sums[at..][..hidden].iter_mut().zip(wide.iter()) {
                    *to = T::narrow(sum);
                }
            }
            let (mean, inverse) = statistics(wide, self.kind, self.epsilon);
            (means[row], inverses[row]) = (mean, inverse);
            if let Some(y) = &mut y {
                for (i, (y, &x)) in y[at..][..hidden].iter_mut().zip(wide.iter()).enumerate() {
                    let scaled = x.sub(mean).mul(inverse).mul(gamma[i].widen());
                    *y = T::narrow(match beta {
                        Some(beta) => scaled.add(beta[i].widen()),
                        None => scaled,
                    });
                }
            }
        }
        let mut dims: Dims = dims.into();
        if let Some(last) = dims.last_mut() {
            *last = 1;
        }
        write_statistics(cx, 1, ElementType::Float32, &dims, means)?;
        write_statistics(cx, 2, ElementType::Float32, &dims, inverses)
    }
}
