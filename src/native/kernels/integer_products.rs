//! Products of matrices of int8 and uint8 with a float result, or one quantised anew. The sums are
//! MatMulInteger's, (A - a_zero) (B - b_zero) in int32:
//!
//!   MatMulIntegerToFloat    Y = a_scale b_scale sum + bias
//!     A, B, a_scale, b_scale, a_zero, b_zero, bias; shaped as MatMul's. To f32 or float16, which is
//!     the scales' type
//!   DynamicQuantizeMatMul   the same for A of f32, quantised to uint8 as DynamicQuantizeLinear does
//!     A, B, b_scale, b_zero, bias
//!   QGemm                   y = alpha a_scale b_scale (sum + C), of A and B or their transposes; with a
//!                           y_scale saturate(round(y / y_scale) + y_zero), else f32
//!     A, a_scale, a_zero, B, b_scale, b_zero, C (int32, broadcasts to [M, N]), y_scale, y_zero
//!
//! com.microsoft 1. Scales and zero points of A have one element; those of B one, or one for each
//! column (of each matrix of a stack). Zero points may be left out, and so may bias and C.

use super::Built;
use super::dims::not_one_element;
use super::inner;
use super::matmul::product_facts;
use super::number::Float;
use super::quantize::{DynamicQuantizeLinear, quantize};
use super::quantized::with_quantized;
use super::quantized_matmul::MatMulInteger;
use super::rearrange::Transpose;
use super::strided::{Strided, broadcast_dims, broadcast_strides};
use super::through_floats::{one_scale, one_zero};
use crate::native::element::ElementType;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Tensor, TensorRef};

fn check_broadcast(tensor: &TensorRef<'_>, index: usize, dims: &[usize]) -> Result<(), OpError> {
    if broadcast_dims(tensor.dims(), dims).as_deref() == Some(dims) {
        return Ok(());
    }
    Err(OpError::WrongDims {
        what: format!("input {index}"),
        found: tensor.dims().into(),
        expected: format!("dims that broadcast to {dims:?}"),
    })
}

/// What comes after the sums: their scales and what is added.
struct Finish<'a> {
    a_scale: f32,
    b_scale: (usize, TensorRef<'a>),
    bias: Option<(usize, TensorRef<'a>)>,
}

impl Finish<'_> {
    fn write<T: Float<Wide = f32>>(&self, cx: &mut RunContext<'_>, sums: &Tensor) -> Result<(), OpError> {
        let dims = sums.dims();
        let (index, b_scale) = self.b_scale;
        check_broadcast(&b_scale, index, dims)?;
        let b_strides = broadcast_strides(b_scale.dims(), dims);
        let b_scale = b_scale.slice::<T>()?;
        let (bias, bias_strides) = match self.bias {
            Some((index, bias)) => {
                check_broadcast(&bias, index, dims)?;
                (Some(bias.slice::<T>()?), broadcast_strides(bias.dims(), dims))
            }
            None => (None, broadcast_strides(&[], dims)),
        };
        let y = cx.output::<T>(0, dims)?.into_mut();
        let mut elements = y.iter_mut().zip(sums.view().slice::<i32>()?);
        Strided::new(dims, [&b_strides, &bias_strides], [0, 0]).for_each(&mut |[scale_at, bias_at]| {
            if let Some((y, &sum)) = elements.next() {
                let product = sum as f32 * (self.a_scale * b_scale[scale_at].widen());
                *y = T::narrow(bias.map_or(product, |bias| product + bias[bias_at].widen()));
            }
        });
        Ok(())
    }
}

fn infer_product(cx: &mut InferContext<'_>, ty: Option<ElementType>) -> Result<(), OpError> {
    let dims = match (&cx.required(0)?.dims, &cx.required(1)?.dims) {
        (Some(a), Some(b)) => Some(product_facts(a, b)?),
        _ => None,
    };
    cx.set_output(0, ty, dims);
    Ok(())
}

#[derive(Debug)]
struct MatMulIntegerToFloat;

pub(in crate::native) fn matmul_integer_to_float(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(MatMulIntegerToFloat))
}

impl Operator for MatMulIntegerToFloat {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ty = cx.input(2).and_then(|scale| scale.ty);
        infer_product(cx, ty)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a_scale, b_scale) = (cx.required(2)?, cx.required(3)?);
        super::same_type(&a_scale, &b_scale, 3)?;
        let inputs = [cx.input(0), cx.input(1), cx.input(4), cx.input(5)];
        if let Some(zero) = inputs[2].filter(|zero| zero.len() != 1) {
            return Err(not_one_element(&zero, 4));
        }
        let sums = inner::run(cx, &MatMulInteger::default(), &inputs)?;
        match a_scale.element_type() {
            ElementType::Float32 => finish_as::<f32>(cx, &sums, a_scale),
            ElementType::Float16 => finish_as::<half::f16>(cx, &sums, a_scale),
            other => Err(super::unsupported(other, "float32 or float16")),
        }?;
        inner::recycle(cx, [sums]);
        Ok(())
    }
}

fn finish_as<T: Float<Wide = f32>>(
    cx: &mut RunContext<'_>,
    sums: &Tensor,
    a_scale: TensorRef<'_>,
) -> Result<(), OpError> {
    let &[scale] = a_scale.slice::<T>()? else {
        return Err(not_one_element(&a_scale, 2));
    };
    let finish = Finish {
        a_scale: scale.widen(),
        b_scale: (3, cx.required(3)?),
        bias: cx.input(6).map(|bias| (6, bias)),
    };
    finish.write::<T>(cx, sums)
}

#[derive(Debug)]
struct DynamicQuantizeMatMul;

pub(in crate::native) fn dynamic_quantize_matmul(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(DynamicQuantizeMatMul))
}

impl Operator for DynamicQuantizeMatMul {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        infer_product(cx, Some(ElementType::Float32))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let a = cx.required(0)?;
        let [q, scale, zero] = inner::run_for(cx, &DynamicQuantizeLinear, &[Some(a)])?;
        let inputs = [Some(q.view()), cx.input(1), Some(zero.view()), cx.input(3)];
        let sums = inner::run(cx, &MatMulInteger::default(), &inputs)?;
        let finish = Finish {
            a_scale: scale.view().slice::<f32>()?.first().copied().unwrap_or(1.0),
            b_scale: (2, cx.required(2)?),
            bias: cx.input(4).map(|bias| (4, bias)),
        };
        finish.write::<f32>(cx, &sums)?;
        inner::recycle(cx, [q, scale, zero, sums]);
        Ok(())
    }
}

#[derive(Debug)]
struct QGemm {
    alpha: f32,
    transpose: [bool; 2],
}

pub(in crate::native) fn q_gemm(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(QGemm {
        alpha: node.float_or("alpha", 1.0)?,
        transpose: [node.flag_or("transA", false)?, node.flag_or("transB", false)?],
    }))
}

const GEMM_A: usize = 0;
const GEMM_B: usize = 3;
const GEMM_C: usize = 6;
const GEMM_Y_SCALE: usize = 7;

fn rank_two<D: std::fmt::Debug>(dims: &[D], index: usize) -> Result<&[D; 2], OpError> {
    dims.try_into()
        .map_err(|_| OpError::Message(format!("input {index} has dims {dims:?}, expected rank 2")))
}

impl Operator for QGemm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let sizes = |index: usize, transpose: bool| match &cx.required(index)?.dims {
            Some(dims) => {
                let &[rows, columns] = rank_two(dims, index)?;
                Ok(Some(if transpose {
                    [columns, rows]
                } else {
                    [rows, columns]
                }))
            }
            None => Ok::<_, OpError>(None),
        };
        let (a, b) = (
            sizes(GEMM_A, self.transpose[0])?,
            sizes(GEMM_B, self.transpose[1])?,
        );
        let dims = match (a, b) {
            (Some(a), Some(b)) => Some(product_facts(&a, &b)?),
            _ => None,
        };
        let ty = match (cx.input(GEMM_Y_SCALE), cx.input(GEMM_Y_SCALE + 1)) {
            (None, _) => Some(ElementType::Float32),
            (Some(_), Some(zero)) => zero.ty,
            (Some(_), None) => cx.input(GEMM_A).and_then(|a| a.ty),
        };
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let mut operands = [cx.required(GEMM_A)?, cx.required(GEMM_B)?];
        let mut turned: [Option<Tensor>; 2] = [None, None];
        for (i, turned) in turned.iter_mut().enumerate() {
            rank_two(operands[i].dims(), i * GEMM_B)?;
            if self.transpose[i] {
                *turned = Some(inner::run(cx, &Transpose::by(vec![1, 0]), &[Some(operands[i])])?);
            }
        }
        for (operand, turned) in operands.iter_mut().zip(&turned) {
            if let Some(turned) = turned {
                *operand = turned.view();
            }
        }
        let a_zero = cx.input(GEMM_A + 2);
        if let Some(zero) = a_zero.filter(|zero| zero.len() != 1) {
            return Err(not_one_element(&zero, GEMM_A + 2));
        }
        let inputs = [Some(operands[0]), Some(operands[1]), a_zero, cx.input(GEMM_B + 2)];
        let sums = inner::run(cx, &MatMulInteger::default(), &inputs)?;
        let dims = sums.dims();
        let b_scale = cx.required(GEMM_B + 1)?;
        check_broadcast(&b_scale, GEMM_B + 1, dims)?;
        let b_strides = broadcast_strides(b_scale.dims(), dims);
        let (b_scale, a_scale) = (b_scale.slice::<f32>()?, one_scale(cx, GEMM_A + 1)?);
        let (c, c_strides) = match cx.input(GEMM_C) {
            Some(c) => {
                check_broadcast(&c, GEMM_C, dims)?;
                (Some(c.slice::<i32>()?), broadcast_strides(c.dims(), dims))
            }
            None => (None, broadcast_strides(&[], dims)),
        };
        let walk = Strided::new(dims, [&b_strides, &c_strides], [0, 0]);
        let mut sum = sums.view().slice::<i32>()?.iter();
        let mut each = |write: &mut dyn FnMut(f32)| {
            walk.for_each(&mut |[scale_at, c_at]| {
                let c = c.map_or(0, |c| c[c_at]);
                let sum = sum.next().map_or(0, |sum| sum.wrapping_add(c));
                write(sum as f32 * (self.alpha * a_scale * b_scale[scale_at]));
            });
        };
        if cx.input(GEMM_Y_SCALE).is_none() {
            let mut y = cx.output::<f32>(0, dims)?.into_mut().iter_mut();
            each(&mut |value| {
                if let Some(y) = y.next() {
                    *y = value;
                }
            });
        } else {
            let ty = cx.input(GEMM_Y_SCALE + 1).unwrap_or(operands[0]).element_type();
            let (scale, zero) = (one_scale(cx, GEMM_Y_SCALE)?, one_zero(cx, GEMM_Y_SCALE + 1, ty)?);
            match ty {
                ElementType::Int8 | ElementType::Uint8 => with_quantized!(ty, Q => {
                    let mut y = cx.output::<Q>(0, dims)?.into_mut().iter_mut();
                    each(&mut |value| {
                        if let Some(y) = y.next() {
                            *y = quantize::<Q>((value / scale).into(), zero, true);
                        }
                    });
                    Ok(())
                }),
                other => Err(super::unsupported(other, "int8 or uint8")),
            }?;
        }
        inner::recycle(cx, turned.into_iter().flatten().chain([sums]));
        Ok(())
    }
}
