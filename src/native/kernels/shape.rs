//! The shape of a tensor as a tensor:
//!
//!   Shape    [d(start), ..., d(end - 1)] as int64, both clamped to [0, rank]
//!            ai.onnx 1, 13, 15 (start and end), 19, 21, 23, 24, 25
//!   Size     the number of elements as an int64 scalar     ai.onnx 1, 13, 19, 21, 23, 24, 25

use super::Built;
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::Tensor;

#[derive(Debug)]
struct Shape {
    start: i64,
    /// `None` is the rank.
    end: Option<i64>,
}

pub(in crate::native) fn shape(node: &NodeInfo<'_>) -> Built {
    let sliced = node.since >= 15;
    Ok(Box::new(Shape {
        start: if sliced { node.int_or("start", 0)? } else { 0 },
        end: if sliced { node.int("end")? } else { None },
    }))
}

impl Shape {
    fn slice<'d, D>(&self, dims: &'d [D]) -> &'d [D] {
        let rank = dims.len() as i64;
        let clamp = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
        dims.get(clamp(self.start)..clamp(self.end.unwrap_or(rank)))
            .unwrap_or(&[])
    }
}

impl Operator for Shape {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let dims = x.dims.as_ref().map(|dims| self.slice(dims));
        let rank = dims.map_or(SymDim::Unknown, |dims| SymDim::Fixed(dims.len()));
        let sizes: Option<Vec<i64>> = dims.and_then(|dims| {
            let sizes = dims.iter().map(|dim| dim.fixed());
            sizes.map(|size| size.map(|size| size as i64)).collect()
        });
        match sizes {
            Some(sizes) => cx.set_value(0, Tensor::from_slice(&[sizes.len()], &sizes)?),
            None => cx.set_output(0, Some(ElementType::Int64), Some(SymDims::from_iter([rank]))),
        }
        Ok(())
    }

    fn reads_only_dims(&self) -> bool {
        true
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let sizes = self.slice(cx.required(0)?.dims());
        cx.output::<i64>(0, &[sizes.len()])?
            .fill_with(|i| sizes[i] as i64);
        Ok(())
    }
}

#[derive(Debug)]
struct Size;

pub(in crate::native) fn size(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Size))
}

impl Operator for Size {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        match cx.required(0)?.fixed_dims() {
            Some(dims) => {
                let count = crate::native::tensor::element_count(&dims)?;
                cx.set_value(0, Tensor::from_slice(&[], &[count as i64])?);
            }
            None => cx.set_output(0, Some(ElementType::Int64), Some(SymDims::new())),
        }
        Ok(())
    }

    fn reads_only_dims(&self) -> bool {
        true
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let count = cx.required(0)?.len() as i64;
        cx.output::<i64>(0, &[])?.copy_from(&[count])
    }
}
