//! What graph optimisers make of an Add and its neighbours:
//!
//!   BiasAdd(X, bias, skip)      X + bias + skip, bias [C] for X [N, S, C]
//!   BiasSplitGelu(X, bias)      gelu(r) l, (l, r) the halves of X + bias along the last dim; with erf
//!   BiasSoftmax(data, bias)     softmax(data + bias) over all dims from `axis` (1) on; bias broadcasts.
//!                               Which dims it lacks is seen from its own: `is_inner_broadcast` says no more
//!   GemmFastGelu(X, W, bias)    FastGelu(X W, bias)
//!
//! com.microsoft 1: float, float16, bfloat16, double. f16 and bf16 are computed in f32 and rounded
//! once, but after the product in GemmFastGelu.

use super::dispatch::with_float;
use super::group_query_attention::wrong_dims;
use super::infer::{input_dims, input_type, like_first_input};
use super::number::{Float, Number, Scalar};
use super::softmax::softmax_of;
use super::strided::{Strided, broadcast_dims, broadcast_strides};
use super::unary::gelu_of;
use super::{Built, bias_gelu, inner, matmul};
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, Tensor, TensorRef, as_bytes};

#[derive(Debug)]
struct BiasAdd;

pub(in crate::native) fn bias_add(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(BiasAdd))
}

/// The bias of the last dim of X, which is `index`.
fn row_bias<'a, T: Number>(cx: &RunContext<'a>, x: &TensorRef<'_>, index: usize) -> Result<&'a [T], OpError> {
    let bias = cx.required(index)?;
    match x.dims().last() {
        Some(width) if bias.dims() == [*width] => bias.slice::<T>(),
        _ => Err(wrong_dims(index, &bias, format!("the last of {:?}", x.dims()))),
    }
}

impl Operator for BiasAdd {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, skip) = (cx.required(0)?, cx.required(2)?);
        super::same_type(&x, &skip, 2)?;
        if skip.dims() != x.dims() {
            return Err(wrong_dims(2, &skip, format!("{:?}, as input 0", x.dims())));
        }
        with_float!(x.element_type(), T => {
            let bias = row_bias::<T>(cx, &x, 1)?;
            let y = cx.output::<T>(0, x.dims())?;
            let (x, skip) = (x.slice::<T>()?, skip.slice::<T>()?);
            y.fill_with(|i| T::narrow(x[i].widen().add(bias[i % bias.len()].widen()).add(skip[i].widen())));
            Ok(())
        })
    }
}

#[derive(Debug)]
struct BiasSplitGelu;

pub(in crate::native) fn bias_split_gelu(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(BiasSplitGelu))
}

impl Operator for BiasSplitGelu {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let mut dims = input_dims(cx, 0);
        if let Some(last) = dims.as_mut().and_then(|dims| dims.last_mut()) {
            *last = match *last {
                SymDim::Fixed(width) => SymDim::Fixed(width / 2),
                _ => SymDim::Unknown,
            };
        }
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => split_gelu::<T>(cx, &x))
    }
}

fn split_gelu<T: Float>(cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
    let bias = row_bias::<T>(cx, x, 1)?;
    let mut dims: Dims = x.dims().into();
    let half = match dims.last_mut() {
        Some(last) if last.is_multiple_of(2) => {
            *last /= 2;
            *last
        }
        _ => return Err(wrong_dims(0, x, "an even last dim")),
    };
    let x = x.slice::<T>()?;
    cx.output::<T>(0, &dims)?.fill_with(|i| {
        let (row, column) = (i / half, i % half);
        let sum = |at: usize| x[row * 2 * half + at].widen().add(bias[at].widen());
        T::narrow(sum(column).mul(gelu_of(sum(half + column))))
    });
    Ok(())
}

#[derive(Debug)]
struct BiasSoftmax {
    axis: i64,
}

pub(in crate::native) fn bias_softmax(node: &NodeInfo<'_>) -> Built {
    node.int("is_inner_broadcast")?;
    Ok(Box::new(BiasSoftmax {
        axis: node.int_or("axis", 1)?,
    }))
}

impl Operator for BiasSoftmax {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, bias) = (cx.required(0)?, cx.required(1)?);
        super::same_type(&x, &bias, 1)?;
        if broadcast_dims(bias.dims(), x.dims()).as_deref() != Some(x.dims()) {
            return Err(wrong_dims(
                1,
                &bias,
                format!("dims that broadcast to {:?}", x.dims()),
            ));
        }
        let softmax = softmax_of(self.axis, true);
        with_float!(x.element_type(), T => {
            // In the wide type, so that the sum is not rounded before the softmax.
            let sum = wide_sum::<T>(cx, &x, &bias)?;
            let y = inner::run(cx, &softmax, &[Some(sum.view())])?;
            let wide = y.view().slice::<<T as Number>::Wide>()?;
            cx.output::<T>(0, x.dims())?.fill_with(|i| T::narrow(wide[i]));
            inner::recycle(cx, [sum, y]);
            Ok(())
        })
    }
}

fn wide_sum<T: Float>(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    bias: &TensorRef<'_>,
) -> Result<Tensor, OpError> {
    let strides = broadcast_strides(bias.dims(), x.dims());
    let walk = Strided::new(x.dims(), [&strides], [0]);
    let (elements, bias) = (x.slice::<T>()?, bias.slice::<T>()?);
    let ty = <T::Wide as crate::native::element::Element>::TYPE;
    cx.pool.tensor(ty, x.dims(), |bytes| {
        let mut to = bytes.chunks_exact_mut(size_of::<T::Wide>()).zip(elements);
        walk.for_each(&mut |[at]| {
            if let Some((to, x)) = to.next() {
                to.copy_from_slice(as_bytes(&[x.widen().add(bias[at].widen())]));
            }
        });
    })
}

#[derive(Debug)]
struct GemmFastGelu {
    product: Box<dyn Operator>,
    gelu: Box<dyn Operator>,
}

pub(in crate::native) fn gemm_fast_gelu(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GemmFastGelu {
        product: matmul::matmul(node)?,
        gelu: bias_gelu::fast_gelu(node)?,
    }))
}

impl Operator for GemmFastGelu {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        self.product.infer(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let product = inner::run(cx, &*self.product, &[cx.input(0), cx.input(1)])?;
        inner::run_last(cx, &*self.gelu, &[Some(product.view()), cx.input(2)], |_| true)?;
        inner::recycle(cx, [product]);
        Ok(())
    }
}
