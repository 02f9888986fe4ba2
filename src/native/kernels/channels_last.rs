//! Operators on images whose channels come last: X [N, D1, ..., C] and Y likewise, of operators that
//! are defined for [N, C, D1, ...].
//!
//!   NhwcConv         Conv; W as there, [M, C / group, k1, ...]
//!   NhwcFusedConv    FusedConv, Z also with its channels last
//!   NhwcMaxPool      MaxPool, also of int8 and uint8
//!   QLinearConv, QLinearAveragePool, QLinearGlobalAveragePool, GroupNorm with `channels_last` 1
//!
//! com.microsoft 1. The images are transposed, and back.

use smallvec::SmallVec;

use super::moves::gather_runs;
use super::rearrange::Transpose;
use super::strided::{Strided, Strides, dense_strides};
use super::{Built, conv, inner, pool};
use crate::native::infer::{Fact, InferContext};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, Tensor, TensorRef};

#[derive(Debug)]
struct ChannelsLast {
    inner: Box<dyn Operator>,
    /// Which inputs are images.
    images: &'static [usize],
}

/// An operator on images, which with `last` have their channels last.
pub(super) fn channels_last(last: bool, inner: Box<dyn Operator>, images: &'static [usize]) -> Built {
    Ok(match last {
        true => Box::new(ChannelsLast { inner, images }),
        false => inner,
    })
}

pub(in crate::native) fn nhwc_conv(node: &NodeInfo<'_>) -> Built {
    channels_last(true, conv::conv(node)?, &[0])
}

pub(in crate::native) fn nhwc_fused_conv(node: &NodeInfo<'_>) -> Built {
    channels_last(true, conv::fused_conv(node)?, &[0, 3])
}

pub(in crate::native) fn nhwc_max_pool(node: &NodeInfo<'_>) -> Built {
    channels_last(true, pool::max_pool(&node.as_of(12))?, &[0])
}

pub(in crate::native) fn contrib_q_linear_conv(node: &NodeInfo<'_>) -> Built {
    let last = node.flag_or("channels_last", false)?;
    channels_last(last, conv::q_linear_conv(node)?, &[0])
}

fn rank_two<D: std::fmt::Debug>(dims: &[D]) -> Result<(), OpError> {
    match dims.len() {
        2.. => Ok(()),
        _ => Err(OpError::Message(format!(
            "images of dims {dims:?} have no batch and channels"
        ))),
    }
}

impl Operator for ChannelsLast {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let mut moved: SmallVec<[(usize, Fact); 2]> = SmallVec::new();
        for &image in self.images {
            let Some(fact) = cx.input(image) else { continue };
            let mut fact = Fact {
                value: None,
                ..fact.clone()
            };
            if let Some(dims) = &mut fact.dims {
                rank_two(dims)?;
                dims[1..].rotate_right(1);
            }
            moved.push((image, fact));
        }
        let mut inputs: SmallVec<[Option<&Fact>; 9]> = (0..cx.input_count()).map(|i| cx.input(i)).collect();
        for (image, fact) in &moved {
            inputs[*image] = Some(fact);
        }
        for (index, mut output) in inner::infer(&*self.inner, &inputs, 1)?.into_iter().enumerate() {
            if let Some(dims) = output.dims.as_mut().filter(|dims| dims.len() > 1) {
                dims[1..].rotate_left(1);
            }
            cx.set_fact(index, output);
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let mut moved: SmallVec<[(usize, Tensor); 2]> = SmallVec::new();
        for &image in self.images {
            let Some(x) = cx.input(image) else { continue };
            rank_two(x.dims())?;
            let mut perm: Vec<i64> = (0..x.rank() as i64).collect();
            perm[1..].rotate_right(1);
            moved.push((image, inner::run(cx, &Transpose::by(perm), &[Some(x)])?));
        }
        let mut inputs: SmallVec<[Option<TensorRef<'_>>; 9]> =
            (0..cx.input_count()).map(|i| cx.input(i)).collect();
        for (image, tensor) in &moved {
            inputs[*image] = Some(tensor.view());
        }
        let y = inner::run(cx, &*self.inner, &inputs)?;
        drop(inputs);
        let view = y.view();
        let mut dims: Dims = view.dims().into();
        let mut strides: Strides = dense_strides(&dims);
        rank_two(&dims)?;
        dims[1..].rotate_left(1);
        strides[1..].rotate_left(1);
        gather_runs(cx, &view, &dims, &Strided::new(&dims, [&strides], [0]))?;
        inner::recycle(cx, moved.into_iter().map(|(_, tensor)| tensor).chain([y]));
        Ok(())
    }
}
