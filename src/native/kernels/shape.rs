//! The shape of a tensor as a tensor:
//!
//!   Shape    [d(start), ..., d(end - 1)] as int64, both clamped to [0, rank]
//!            ai.onnx 1, 13, 15 (start and end), 19, 21, 23, 24, 25
//!   Size     the number of elements as an int64 scalar     ai.onnx 1, 13, 19, 21, 23, 24, 25
//!   Dim      d(axis) as a scalar or, if `rank` is 1, a tensor [1], of int32 or int64 as `to` says;
//!            what passes make, no operator of models

use super::Built;
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, Tensor};

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

#[derive(Debug)]
struct Dim {
    axis: usize,
    /// Whether the result is int32.
    short: bool,
    /// [] or [1]
    dims: Dims,
}

pub(in crate::native) fn dim(node: &NodeInfo<'_>) -> Built {
    let axis = super::required_attribute("axis", node.int("axis")?)?;
    let to = node.int_or("to", ElementType::Int64.code().into())?;
    let short = match i32::try_from(to).ok().and_then(ElementType::from_code) {
        Some(ElementType::Int32) => true,
        Some(ElementType::Int64) => false,
        _ => {
            return Err(super::wrong_attribute(
                "to",
                format!("is {to}, expected int32 or int64"),
            ));
        }
    };
    Ok(Box::new(Dim {
        axis: usize::try_from(axis)
            .map_err(|_| super::wrong_attribute("axis", format!("is {axis}, which is negative")))?,
        short,
        dims: match node.flag_or("rank", false)? {
            true => Dims::from_slice(&[1]),
            false => Dims::new(),
        },
    }))
}

impl Operator for Dim {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = cx.required(0)?.dims.as_ref();
        match dims.and_then(|dims| dims.get(self.axis)?.fixed()) {
            Some(size) if self.short => {
                cx.set_value(0, Tensor::from_slice(&self.dims, &[size as i32])?);
            }
            Some(size) => cx.set_value(0, Tensor::from_slice(&self.dims, &[size as i64])?),
            None => {
                let ty = match self.short {
                    true => ElementType::Int32,
                    false => ElementType::Int64,
                };
                let dims = self.dims.iter().map(|&dim| SymDim::Fixed(dim));
                cx.set_output(0, Some(ty), Some(dims.collect()));
            }
        }
        Ok(())
    }

    fn reads_only_dims(&self) -> bool {
        true
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let Some(&size) = x.dims().get(self.axis) else {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: x.dims().into(),
                expected: format!("a dim {}", self.axis),
            });
        };
        match self.short {
            true => cx.output::<i32>(0, &self.dims)?.copy_from(&[size as i32]),
            false => cx.output::<i64>(0, &self.dims)?.copy_from(&[size as i64]),
        }
    }
}
