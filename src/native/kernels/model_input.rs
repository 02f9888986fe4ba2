//! What classical models read: rows of numbers, and the labels that they give.

use super::infer::{input_dims, input_type};
use super::moves::string_room;
use super::{unsupported, wrong_attribute};
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, RunContext};
use crate::native::tensor::TensorRef;

/// Elements of float, double, int64 or int32.
#[derive(Clone, Copy)]
pub(super) enum Features<'a> {
    Float(&'a [f32]),
    Double(&'a [f64]),
    Int64(&'a [i64]),
    Int32(&'a [i32]),
}

impl<'a> Features<'a> {
    pub fn new(x: &TensorRef<'a>) -> Result<Self, OpError> {
        Ok(match x.element_type() {
            ElementType::Float32 => Features::Float(x.slice()?),
            ElementType::Float64 => Features::Double(x.slice()?),
            ElementType::Int64 => Features::Int64(x.slice()?),
            ElementType::Int32 => Features::Int32(x.slice()?),
            other => return Err(unsupported(other, "float, double, int64 or int32")),
        })
    }

    /// An element; 0 beyond the last one.
    pub fn at(&self, index: usize) -> f64 {
        match self {
            Features::Float(values) => values.get(index).map(|&value| value.into()),
            Features::Double(values) => values.get(index).copied(),
            Features::Int64(values) => values.get(index).map(|&value| value as f64),
            Features::Int32(values) => values.get(index).map(|&value| value.into()),
        }
        .unwrap_or_default()
    }
}

/// Rows and their length, of [n, features] or of a single row [features].
pub(super) fn rows(x: &TensorRef<'_>) -> Result<(usize, usize), OpError> {
    match *x.dims() {
        [features] => Ok((1, features)),
        [rows, features] => Ok((rows, features)),
        _ => Err(OpError::WrongDims {
            what: "input 0".into(),
            found: x.dims().into(),
            expected: "[n, features] or [features]".into(),
        }),
    }
}

/// Output `index` is `ty` of [n, `last`], or [n].
pub(super) fn infer_rows(cx: &mut InferContext<'_>, index: usize, ty: ElementType, last: Option<usize>) {
    let rows = match input_dims(cx, 0).as_deref() {
        Some(&[rows, _]) => rows,
        Some(&[_]) => SymDim::Fixed(1),
        _ => SymDim::Unknown,
    };
    let dims = [rows].into_iter().chain(last.map(SymDim::Fixed));
    cx.set_output(index, Some(ty), Some(SymDims::from_iter(dims)));
}

/// Output 0 is float of the shape of the input.
pub(super) fn infer_float(cx: &mut InferContext<'_>) -> Result<(), OpError> {
    if let Some(ty) = input_type(cx, 0) {
        check_type(ty)?;
    }
    let dims = input_dims(cx, 0);
    cx.set_output(0, Some(ElementType::Float32), dims);
    Ok(())
}

pub(super) fn check_type(ty: ElementType) -> Result<(), OpError> {
    use ElementType::{Float32, Float64, Int32, Int64};
    match ty {
        Float32 | Float64 | Int64 | Int32 => Ok(()),
        other => Err(unsupported(other, "float, double, int64 or int32")),
    }
}

/// What a classifier calls its classes.
#[derive(Debug)]
pub(super) enum Labels {
    Ints(Vec<i64>),
    Strings(Vec<String>),
}

impl Labels {
    pub fn new(node: &NodeInfo<'_>, ints: &'static str) -> Result<Self, OpError> {
        let strings = node
            .strings("classlabels_strings")?
            .filter(|labels| !labels.is_empty());
        let labels = node.ints(ints)?.filter(|labels| !labels.is_empty());
        match (strings, labels) {
            (Some(labels), None) => Ok(Labels::Strings(labels.into_iter().map(str::to_owned).collect())),
            (None, Some(labels)) => Ok(Labels::Ints(labels.into())),
            (None, None) => Err(wrong_attribute(ints, "is missing, and so is classlabels_strings")),
            (Some(_), Some(_)) => Err(wrong_attribute(ints, "is given, and so is classlabels_strings")),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Labels::Ints(labels) => labels.len(),
            Labels::Strings(labels) => labels.len(),
        }
    }

    pub fn element_type(&self) -> ElementType {
        match self {
            Labels::Ints(_) => ElementType::Int64,
            Labels::Strings(_) => ElementType::String,
        }
    }

    /// Gives output 0: for each row the label of its class.
    pub fn write(&self, cx: &mut RunContext<'_>, classes: &[usize]) -> Result<(), OpError> {
        if !cx.output_used(0) {
            return Ok(());
        }
        let dims = [classes.len()];
        match self {
            Labels::Ints(labels) => {
                let labels = classes
                    .iter()
                    .map(|&class| labels.get(class).copied().unwrap_or_default());
                cx.output::<i64>(0, &dims)?.extend(labels)
            }
            Labels::Strings(labels) => {
                let mut texts = string_room(&dims)?;
                for &class in classes {
                    texts.push(labels.get(class).map_or("", String::as_str))?;
                }
                cx.output_strings(0, &dims, texts)
            }
        }
    }
}

/// The position of the largest score, the first of equal ones.
pub(super) fn top_class(scores: &[f64]) -> usize {
    let better = |best: usize, (at, &score): (usize, &f64)| match scores.get(best) {
        Some(&largest) if score > largest => at,
        _ => best,
    };
    scores.iter().enumerate().fold(0, better)
}
