//! Features of a row, as classical models want them.
//!
//!   Binarizer(x)                 1 where x > threshold (0), else 0, also for NaN; float, double,
//!                                int32, int64                                    ai.onnx.ml 1
//!   ArrayFeatureExtractor(x, i)  x[..., i] along the last axis, any element type; i of any shape
//!                                counts as a list. A vector x gives [1, n]       ai.onnx.ml 1

use super::Built;
use super::dims::Integers;
use super::infer::{input_dims, input_type, like_first_input};
use super::moves::gather_starts;
use crate::native::element::{Element, ElementType};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

#[derive(Debug)]
struct Binarizer {
    threshold: f32,
}

pub(in crate::native) fn binarizer(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Binarizer {
        threshold: node.float_or("threshold", 0.0)?,
    }))
}

impl Operator for Binarizer {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let threshold = self.threshold;
        // What is above is above the next integer below, too: no integer is rounded to compare.
        let below = match threshold.is_nan() {
            true => i128::MAX,
            false => threshold.floor() as i128,
        };
        match x.element_type() {
            ElementType::Float32 => binarize(cx, &x, |x| f32::from(x > threshold)),
            ElementType::Float64 => binarize(cx, &x, |x| f64::from(x > f64::from(threshold))),
            ElementType::Int32 => binarize(cx, &x, |x: i32| i32::from(i128::from(x) > below)),
            ElementType::Int64 => binarize(cx, &x, |x: i64| i64::from(i128::from(x) > below)),
            other => Err(super::unsupported(other, "float, double, int32 or int64")),
        }
    }
}

fn binarize<T: Element>(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    of: impl Fn(T) -> T,
) -> Result<(), OpError> {
    let elements = x.slice::<T>()?.iter().copied();
    cx.output::<T>(0, x.dims())?.extend(elements.map(of))
}

#[derive(Debug)]
struct ArrayFeatureExtractor;

pub(in crate::native) fn array_feature_extractor(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(ArrayFeatureExtractor))
}

impl Operator for ArrayFeatureExtractor {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (x, indices) = (input_dims(cx, 0), input_dims(cx, 1));
        let count = |dims: SymDims| {
            let known: Option<Dims> = dims.iter().map(|dim| dim.fixed()).collect();
            let count = known.and_then(|dims| element_count(&dims).ok());
            count.map_or(SymDim::Unknown, SymDim::Fixed)
        };
        let dims = x.map(|mut dims| {
            match dims.len() {
                0 | 1 => dims = SymDims::from_iter([SymDim::Fixed(1)]),
                rank => dims.truncate(rank - 1),
            }
            dims.push(indices.map_or(SymDim::Unknown, count));
            dims
        });
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, indices) = (cx.required(0)?, cx.required(1)?);
        let Some((&size, before)) = x.dims().split_last() else {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: Dims::new(),
                expected: "one dim or more".into(),
            });
        };
        let indices: Integers = indices.to_ints()?;
        let out = |&&index: &&i64| usize::try_from(index).map_or(true, |index| index >= size);
        if let Some(index) = indices.iter().find(out) {
            return Err(OpError::Message(format!(
                "index {index} is out of range for the last axis of shape {:?}",
                x.dims()
            )));
        }
        let mut dims: Dims = before.into();
        if dims.is_empty() {
            dims.push(1);
        }
        dims.push(indices.len());
        // An empty result has nothing to visit, however many times.
        let rows: usize = match dims.contains(&0) {
            true => 0,
            false => before.iter().product(),
        };
        let starts = (0..rows).flat_map(|row| indices.iter().map(move |&at| row * size + at as usize));
        gather_starts(cx, 0, &x, &dims, 1, starts)
    }
}
