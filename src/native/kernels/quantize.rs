//! Between floats and quantised types:
//!
//!   QuantizeLinear(X, scale, zero)     y = saturate(round(x / scale) + zero), ties to even; to a float
//!                                      type without the rounding   ai.onnx 10, 13, 19, 21, 23 to 25, 28
//!   DequantizeLinear(X, scale, zero)   y = (x - zero) scale        ai.onnx 10, 13, 19, 21, 23 to 25, 28
//!   DynamicQuantizeLinear(X)           Y of uint8, with the scale and the zero point that take
//!                                      [min(0, min x), max(0, max x)] to 0..=255     ai.onnx 11
//!
//! Scale and zero point (0 without it) have one element, one for each position on `axis`, or,
//! with a `block_size`, one for each block of that many positions on it.
//!
//! Version 28 is taken but for its 6-bit floats, which the runtime does not have.
//!
//! Quantised types: integers of 2 to 16 bits (and int32 as X), the 8-bit floats, float4e2m1: the zero
//! point's, else `output_dtype`, else uint8. Scales: f32, f16, bf16, int32, float8e8m0.
//! x / scale is computed in `precision`, by default the scale's type where that is a float that ONNX
//! computes with, else f32. (x - zero) is exact, times scale in f32, rounded once to `output_dtype`,
//! by default the scale's type.

use super::Built;
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::minifloat::decode_e8m0;
use super::number::{Float, Number, Scalar};
use super::quantized::{Granularity, Quantized, with_quantized};
use crate::native::element::{Element, ElementType, F8E8M0};
use crate::native::ending::{self, counted};
use crate::native::infer::{InferContext, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};

/// Where scales are, and what they are for: the attributes that both directions have.
#[derive(Debug)]
struct Layout {
    axis: i64,
    /// 0 for none.
    block: usize,
    /// `output_dtype`.
    ty: Option<ElementType>,
}

fn layout(node: &NodeInfo<'_>, output_since: i64) -> Result<Layout, OpError> {
    let block = match node.since {
        21.. => node.int_or("block_size", 0)?,
        _ => 0,
    };
    Ok(Layout {
        axis: match node.since {
            13.. => node.int_or("axis", 1)?,
            _ => 1,
        },
        block: usize::try_from(block).map_err(|_| OpError::Attribute {
            name: "block_size".into(),
            message: format!("is {block}, which is negative"),
        })?,
        ty: match node.since >= output_since {
            true => node.element_type("output_dtype")?,
            false => None,
        },
    })
}

fn contrib_layout(node: &NodeInfo<'_>) -> Result<Layout, OpError> {
    Ok(Layout {
        axis: node.int_or("axis", 1)?,
        block: 0,
        ty: None,
    })
}

/// Scales and zero points, as f64 (exact for all types that they have).
struct Parameters<'a> {
    scales: &'a [f64],
    zeros: &'a [f64],
    granularity: Granularity,
}

impl Layout {
    /// The scales of input 1 and the zero points of input 2.
    fn parameters<'a>(&self, cx: &mut RunContext<'a>, dims: &[usize]) -> Result<Parameters<'a>, OpError> {
        let scale = cx.required(1)?;
        let granularity = Granularity::new(dims, &scale, self.axis, self.block)?;
        let count = scale.len();
        let room = cx.scratch::<f64>(count.saturating_mul(2))?;
        let (scales, zeros) = room.split_at_mut(count);
        match scale.element_type() {
            ElementType::Float8E8M0 => {
                let codes = scale.slice::<F8E8M0>()?.iter();
                fill(scales, codes.map(|code| decode_e8m0(code.0).into()));
            }
            ElementType::Int32 => fill(scales, scale.slice::<i32>()?.iter().map(|&x| x.into())),
            ty => with_float!(ty, T => {
                fill(scales, scale.slice::<T>()?.iter().map(|x| x.widen().to_f64()));
                Ok(())
            })?,
        }
        zeros.fill(0.0);
        if let Some(zero) = cx.input(2) {
            if zero.len() != count {
                return Err(OpError::WrongDims {
                    what: "input 2".into(),
                    found: zero.dims().into(),
                    expected: format!("those of the scale, {:?}", scale.dims()),
                });
            }
            with_quantized!(zero.element_type(), T => {
                fill(zeros, zero.slice::<T>()?.iter().map(|x| Quantized::to_f64(*x)));
                Ok(())
            })?;
        }
        Ok(Parameters {
            scales,
            zeros,
            granularity,
        })
    }
}

fn fill(to: &mut [f64], values: impl Iterator<Item = f64>) {
    for (to, value) in to.iter_mut().zip(values) {
        *to = value;
    }
}

/// Gives the elements from a position on, as f64.
type Read<'r> = &'r dyn Fn(usize, &mut [f64]);

/// Elements that are read at a time, so that there is not a loop for each pair of types.
const CHUNK: usize = 256;

/// y[i] = f(x[i], scale of i, zero point of i)
fn apply<Y: Element>(
    read: Read<'_>,
    parameters: &Parameters<'_>,
    y: &mut [Y],
    f: impl Fn(f64, f64, f64) -> Y,
) {
    let mut values = [0.0; CHUNK];
    for (chunk, y) in y.chunks_mut(CHUNK).enumerate() {
        let values = &mut values[..y.len()];
        ending::count(values.len());
        read(chunk * CHUNK, values);
        for (i, (y, &x)) in y.iter_mut().zip(values.iter()).enumerate() {
            let at = parameters.granularity.of(chunk * CHUNK + i);
            *y = f(x, parameters.scales[at], parameters.zeros[at]);
        }
    }
}

#[derive(Debug)]
struct QuantizeLinear {
    layout: Layout,
    saturate: bool,
    precision: Option<ElementType>,
}

pub(in crate::native) fn quantize_linear(node: &NodeInfo<'_>) -> Built {
    let precision = match node.since {
        23.. => node.element_type("precision")?,
        _ => None,
    };
    Ok(Box::new(QuantizeLinear {
        layout: layout(node, 21)?,
        saturate: node.since < 19 || node.flag_or("saturate", true)?,
        precision,
    }))
}

/// That of com.microsoft 1: without blocks, and with fewer types.
pub(in crate::native) fn contrib_quantize_linear(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(QuantizeLinear {
        layout: contrib_layout(node)?,
        saturate: true,
        precision: None,
    }))
}

/// The quotient in a type that ONNX computes with.
fn divide(precision: ElementType) -> Result<fn(f64, f64) -> f64, OpError> {
    fn in_type<T: Float>(x: f64, scale: f64) -> f64 {
        let [x, scale] = [x, scale].map(|value| T::narrow(T::Wide::from_f64(value)).widen());
        T::narrow(x.div(scale)).widen().to_f64()
    }
    with_float!(precision, T => Ok(in_type::<T> as fn(f64, f64) -> f64))
}

impl Operator for QuantizeLinear {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = match cx.input(2) {
            Some(zero) => zero.ty,
            None => Some(self.layout.ty.unwrap_or(ElementType::Uint8)),
        };
        let dims = input_dims(cx, 0);
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, scale) = (cx.required(0)?, cx.required(1)?);
        let zero = cx.input(2).map(|zero| zero.element_type());
        if let (Some(found), Some(expected)) = (zero, self.layout.ty)
            && found != expected
        {
            return Err(OpError::WrongType {
                what: "input 2".into(),
                found,
                expected: format!("{expected}, which output_dtype says"),
            });
        }
        let to = zero.or(self.layout.ty).unwrap_or(ElementType::Uint8);
        let precision = self.precision.unwrap_or(match scale.element_type() {
            ty @ (ElementType::Float16 | ElementType::Bfloat16 | ElementType::Float64) => ty,
            _ => ElementType::Float32,
        });
        let divide = divide(precision)?;
        let parameters = self.layout.parameters(cx, x.dims())?;
        let mut write = |read: Read<'_>| {
            with_quantized!(to, Q => {
                let y = cx.output::<Q>(0, x.dims())?.into_mut();
                apply(read, &parameters, y, |x, scale, zero| {
                    quantize(divide(x, scale), zero, self.saturate)
                });
                Ok(())
            })
        };
        match x.element_type() {
            ElementType::Int32 => {
                let x = x.slice::<i32>()?;
                write(&|first, to| fill(to, x[first..].iter().map(|&x| x.into())))
            }
            ty => with_float!(ty, T => {
                let x = x.slice::<T>()?;
                write(&|first, to| fill(to, x[first..].iter().map(|x| x.widen().to_f64())))
            }),
        }
    }
}

/// The element for a value in units of the scale.
pub(super) fn quantize<Q: Quantized>(value: f64, zero: f64, saturate: bool) -> Q {
    // Rounding comes before the zero point: an odd one would turn ties around.
    let value = if Q::INTEGER {
        value.round_ties_even()
    } else {
        value
    };
    Q::nearest(value + zero, saturate)
}

#[derive(Debug)]
struct DequantizeLinear(Layout);

pub(in crate::native) fn dequantize_linear(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(DequantizeLinear(layout(node, 23)?)))
}

/// That of com.microsoft 1.
pub(in crate::native) fn contrib_dequantize_linear(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(DequantizeLinear(contrib_layout(node)?)))
}

impl DequantizeLinear {
    fn result_type(&self, scale: ElementType) -> ElementType {
        self.0.ty.unwrap_or(match scale {
            ElementType::Float8E8M0 => ElementType::Float32,
            scale => scale,
        })
    }
}

impl Operator for DequantizeLinear {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = self
            .0
            .ty
            .or(input_type(cx, 1).map(|scale| self.result_type(scale)));
        let dims = input_dims(cx, 0);
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, scale) = (cx.required(0)?, cx.required(1)?);
        if let Some(zero) = cx.input(2) {
            super::same_type(&x, &zero, 2)?;
        }
        let parameters = self.0.parameters(cx, x.dims())?;
        with_quantized!(x.element_type(), Q => {
            let x = (x.dims(), x.slice::<Q>()?);
            let read = |first: usize, to: &mut [f64]| {
                fill(to, x.1[first..].iter().map(|x| Quantized::to_f64(*x)));
            };
            with_float!(self.result_type(scale.element_type()), T => {
                let y = cx.output::<T>(0, x.0)?.into_mut();
                apply(&read, &parameters, y, dequantize::<T>);
                Ok(())
            })
        })
    }
}

fn dequantize<T: Float>(x: f64, scale: f64, zero: f64) -> T {
    let shifted = (x - zero) as f32;
    T::narrow(T::Wide::from_f64((shifted * scale as f32).into()))
}

#[derive(Debug)]
pub(super) struct DynamicQuantizeLinear;

pub(in crate::native) fn dynamic_quantize_linear(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(DynamicQuantizeLinear))
}

impl Operator for DynamicQuantizeLinear {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0);
        cx.set_output(0, Some(ElementType::Uint8), dims);
        cx.set_output(1, Some(ElementType::Float32), Some(SymDims::new()));
        cx.set_output(2, Some(ElementType::Uint8), Some(SymDims::new()));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let (dims, x) = (x.dims(), x.slice::<f32>()?);
        let low = counted(x).copied().fold(0.0, f32::min);
        let high = counted(x).copied().fold(0.0, f32::max);
        // Where everything is 0 any scale is right; this one divides.
        let scale = if high == low { 1.0 } else { (high - low) / 255.0 };
        let zero = (-low / scale).clamp(0.0, 255.0).round_ties_even();
        if cx.output_used(0) {
            cx.output::<u8>(0, dims)?
                .fill_with(|i| quantize((x[i] / scale).into(), zero.into(), true));
        }
        if cx.output_used(1) {
            cx.output::<f32>(1, &[])?.fill_with(|_| scale);
        }
        if cx.output_used(2) {
            cx.output::<u8>(2, &[])?.fill_with(|_| zero as u8);
        }
        Ok(())
    }
}
