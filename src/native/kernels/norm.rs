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
use super::number::{Float, Floats, Number, Real, Scalar, wide_room, widened};
use super::strided::{Strided, at, broadcast_dims, broadcast_strides};
use super::sums::sum_of;
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
        Kind::Standard => sum_of(x, |x| x).div(n),
        Kind::Rms => W::ZERO,
    };
    let variance = sum_of(x, |x| x.sub(mean).mul(x.sub(mean))).div(n);
    let inverse = W::ONE.div(variance.add(W::from_f64(epsilon.into())).sqrt());
    (mean, inverse)
}

/// x = (x - mean) * inverse * scale + bias, of as many each; without a bias if there is none.
fn scale_and_shift<W: Real>(x: &mut [W], (mean, inverse): (W, W), scale: &[W], bias: Option<&[W]>) {
    match bias {
        Some(bias) => {
            for ((x, &scale), &bias) in x.iter_mut().zip(scale).zip(bias) {
                *x = x.sub(mean).mul(inverse).mul(scale).add(bias);
            }
        }
        None => {
            for (x, &scale) in x.iter_mut().zip(scale) {
                *x = x.sub(mean).mul(inverse).mul(scale);
            }
        }
    }
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
                T::widen_all(&elements[first..], wide);
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

/// Elements of `W` as elements of `U`, whose wide type is mostly the same.
fn narrow_all<W: Real + Number, U: Float>(wide: &[W], y: &mut [U]) {
    let mut room = [U::Wide::ZERO; 256];
    for (wide, y) in wide.chunks(room.len()).zip(y.chunks_mut(room.len())) {
        let room = &mut room[..wide.len()];
        match (W::as_floats(wide), U::Wide::as_f32_mut(room)) {
            (Some(Floats::F32(wide)), Some(room)) => room.copy_from_slice(wide),
            _ => map(wide, room, |x| Scalar::from_f64(x.to_f64())),
        }
        U::narrow_all(room, y);
    }
}

/// Reads elements of X from the given position on.
type Load<'a, W> = dyn Fn(usize, &mut [W]) + Sync + 'a;

/// A scale or bias in wide type, which broadcasts to X.
struct Parameter<'a, W> {
    data: &'a [W],
    /// The walk over X, where its elements are not those of each group in turn.
    walk: Option<Strided<1>>,
}

impl<'a, W: Real> Parameter<'a, W> {
    /// Of `tensor`, whose elements in wide type are `data`; it is input `index`.
    fn new(
        tensor: &TensorRef<'_>,
        data: &'a [W],
        dims: &[usize],
        axis: usize,
        index: usize,
    ) -> Result<Self, OpError> {
        if broadcast_dims(tensor.dims(), dims).as_deref() != Some(dims) {
            return Err(OpError::WrongDims {
                what: format!("input {index}"),
                found: tensor.dims().into(),
                expected: format!("dims that broadcast to {dims:?}"),
            });
        }
        fn without_ones(dims: &[usize]) -> &[usize] {
            &dims[dims.iter().take_while(|&&dim| dim == 1).count()..]
        }
        let of_each_group = without_ones(tensor.dims()) == without_ones(&dims[axis..]);
        let walk = match of_each_group {
            true => None,
            false => Some(Strided::new(dims, [&broadcast_strides(tensor.dims(), dims)], [0])),
        };
        Ok(Parameter { data, walk })
    }

    /// The elements for the group of X that starts at `first`, perhaps copied to `room`.
    fn of_group<'r>(&'r self, first: usize, room: &'r mut [W]) -> &'r [W] {
        let Some(walk) = &self.walk else {
            return self.data;
        };
        let mut room_left = room.iter_mut();
        walk.for_each_run_in(first..first + room_left.len(), &mut |[start], len| {
            for (i, to) in room_left.by_ref().take(len).enumerate() {
                *to = self.data[at(start, walk.run_strides[0], i)];
            }
        });
        room
    }
}

impl Norm {
    /// Computes in `W`; X, scale and Y may have other types, and are converted row by row.
    fn run_in<W: Real + Number>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        load: &Load<'_, W>,
    ) -> Result<(), OpError> {
        let dims = x.dims();
        let axis = axis(self.axis, dims.len())?;
        // Without elements there may be any number of groups, of any size.
        let (group, groups) = match x.len() {
            0 => (0, 0),
            len => {
                let group = dims[axis..].iter().product::<usize>();
                (group, len / group)
            }
        };
        let workers = cx.workers();
        let scale = cx.required(1)?;
        let bias = cx.input(2).filter(|_| self.kind == Kind::Standard);
        let bias_len = bias.map_or(0, |bias| bias.len());
        // X, scale and bias of a group, for each thread.
        let rooms = group.saturating_mul(3).saturating_mul(workers.threads());
        let lens = [scale.len(), bias_len, 2 * groups];
        let scratch = cx.scratch::<W>(lens.iter().fold(rooms, |sum, &len| sum.saturating_add(len)))?;
        let (wide_scale, rest) = scratch.split_at_mut(scale.len());
        let (wide_bias, rest) = rest.split_at_mut(bias_len);
        let (statistics, rooms) = rest.split_at_mut(2 * groups);
        widen_all(&scale, wide_scale)?;
        let wide_scale = Parameter::new(&scale, wide_scale, dims, axis, 1)?;
        let wide_bias = match &bias {
            Some(bias) => {
                super::same_type(&scale, bias, 2)?;
                widen_all(bias, wide_bias)?;
                Some(Parameter::new(bias, wide_bias, dims, axis, 2)?)
            }
            None => None,
        };
        let normalise = |first: usize, room: &mut [W]| {
            let (x, rest) = room.split_at_mut(group);
            let (scale_room, bias_room) = rest.split_at_mut(group);
            load(first, x);
            let statistics = self::statistics(x, self.kind, self.epsilon);
            let bias = wide_bias.as_ref().map(|bias| bias.of_group(first, bias_room));
            scale_and_shift(x, statistics, wide_scale.of_group(first, scale_room), bias);
            statistics
        };
        with_float!(scale.element_type(), U => {
            let y = match cx.output_used(0) {
                true => cx.output::<U>(0, dims)?.into_mut(),
                false => &mut [],
            };
            let several = workers.chunk(groups, group.saturating_mul(2));
            let nothing: (&mut [W], usize) = (&mut [], 1);
            let (y, statistics) = ((y, several.saturating_mul(group)), (&mut *statistics, several.saturating_mul(2)));
            workers.split_mut_3_with(y, statistics, nothing, rooms, |part, (y, statistics, _), room| {
                for (i, to) in statistics.chunks_exact_mut(2).enumerate() {
                    let (mean, inverse) = normalise((part * several + i) * group, room);
                    to.copy_from_slice(&[mean, inverse]);
                    if let Some(y) = y.get_mut(i * group..(i + 1) * group) {
                        narrow_all(&room[..group], y);
                    }
                }
            });
            Ok(())
        })?;
        let mut dims: Dims = dims.into();
        dims[axis..].fill(1);
        let (mean_at, inverse_at) = match self.kind {
            Kind::Standard => (Some(1), 2),
            Kind::Rms => (None, 1),
        };
        if let Some(index) = mean_at {
            write_statistics(cx, index, self.stash, &dims, statistics, 0)?;
        }
        write_statistics(cx, inverse_at, self.stash, &dims, statistics, 1)
    }
}

/// A statistic of every group, if the output is used: the mean (`which` 0) or the inverse (1).
fn write_statistics<W: Real>(
    cx: &mut RunContext<'_>,
    index: usize,
    ty: ElementType,
    dims: &[usize],
    statistics: &[W],
    which: usize,
) -> Result<(), OpError> {
    if !cx.output_used(index) {
        return Ok(());
    }
    with_float!(ty, T => {
        // Groups of no elements have no statistics: NaN.
        let value = |i: usize| statistics.get(2 * i + which).map_or(f64::NAN, |value| value.to_f64());
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
        let fits = skip.dims().last() == Some(&hidden) && dims.ends_with(&skip.dims()[leading_ones..]);
        if skip.rank() > dims.len() || !fits {
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
        let workers = cx.workers();
        let parameters = [Some(gamma), beta, bias].into_iter().flatten();
        let parameter_room = parameters.map(wide_room::<T>).sum::<usize>();
        // The sum and the skip of a row, for each thread.
        let rooms = hidden.saturating_mul(2).saturating_mul(workers.threads());
        let scratch = cx.scratch::<T::Wide>((parameter_room + 2 * rows).saturating_add(rooms))?;
        let (statistics_to, rest) = scratch.split_at_mut(2 * rows);
        let (gamma, rest) = widened::<T>(gamma, rest);
        let (beta, rest) = widened_option(beta, rest);
        let (bias, rooms) = widened_option(bias, rest);
        let mut output = |index: usize| match cx.output_used(index) {
            true => Ok::<&mut [T], OpError>(cx.output::<T>(index, dims)?.into_mut()),
            false => Ok::<&mut [T], OpError>(&mut []),
        };
        let (y, sums) = (output(0)?, output(3)?);
        let several = workers.chunk(rows, hidden.saturating_mul(2));
        let elements = several.saturating_mul(hidden);
        let outputs = ((y, elements), (sums, elements));
        let statistics_of = (&mut *statistics_to, several.saturating_mul(2));
        workers.split_mut_3_with(
            outputs.0,
            outputs.1,
            statistics_of,
            rooms,
            |part, (y, sums, to), room| {
                let (sum, skip_room) = room.split_at_mut(hidden);
                for (i, to) in to.chunks_exact_mut(2).enumerate() {
                    let first = (part * several + i) * hidden;
                    let own = i * hidden..(i + 1) * hidden;
                    T::widen_all(&x[first..], sum);
                    let skip = &skip[first % skip.len()..][..hidden];
                    let (skip, _) = widened::<T>(skip, skip_room);
                    sum.iter_mut().zip(skip).for_each(|(sum, &x)| *sum = sum.add(x));
                    for (sum, &x) in sum.iter_mut().zip(bias.unwrap_or_default()) {
                        *sum = sum.add(x);
                    }
                    if let Some(sums) = sums.get_mut(own.clone()) {
                        T::narrow_all(sum, sums);
                    }
                    let found = statistics(sum, self.kind, self.epsilon);
                    to.copy_from_slice(&[found.0, found.1]);
                    if let Some(y) = y.get_mut(own) {
                        scale_and_shift(sum, found, gamma, beta);
                        T::narrow_all(sum, y);
                    }
                }
            },
        );
        let mut dims: Dims = dims.into();
        if let Some(last) = dims.last_mut() {
            *last = 1;
        }
        write_statistics(cx, 1, ElementType::Float32, &dims, statistics_to, 0)?;
        write_statistics(cx, 2, ElementType::Float32, &dims, statistics_to, 1)
    }
}

/// [`widened`], of elements that may not be there.
fn widened_option<'a, T: Float>(
    elements: Option<&'a [T]>,
    room: &'a mut [T::Wide],
) -> (Option<&'a [T::Wide]>, &'a mut [T::Wide]) {
    match elements {
        Some(elements) => {
            let (wide, rest) = widened(elements, room);
            (Some(wide), rest)
        }
        None => (None, room),
    }
}
