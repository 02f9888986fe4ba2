//! Features of a row, as classical models want them.
//!
//!   Binarizer(x)                 1 where x > threshold (0), else 0, also for NaN; float, double,
//!                                int32, int64                                    ai.onnx.ml 1
//!   ArrayFeatureExtractor(x, i)  x[..., i] along the last axis, any element type; i of any shape
//!                                counts as a list. A vector x gives [1, n]       ai.onnx.ml 1
//!   FeatureVectorizer(x...)      [n, C] and [C] side by side as floats, each cut or filled with
//!                                zeros to its `inputdimensions`                  ai.onnx.ml 1
//!   OneHotEncoder(x)             ones and zeros in a last dim of as many as there are categories, 1 at
//!                                that of x; of floats, that of the whole number  ai.onnx.ml 1

use std::collections::HashMap;

use super::dims::Integers;
use super::infer::{input_dims, input_type, like_first_input};
use super::model_input::{Features, rows};
use super::moves::gather_starts;
use super::{Built, required_attribute, wrong_attribute};
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

#[derive(Debug)]
struct FeatureVectorizer {
    widths: Vec<usize>,
}

pub(in crate::native) fn feature_vectorizer(node: &NodeInfo<'_>) -> Built {
    let given = required_attribute("inputdimensions", node.ints("inputdimensions")?)?;
    let widths = given
        .iter()
        .map(|&width| usize::try_from(width))
        .collect::<Result<Vec<_>, _>>();
    match widths {
        Ok(widths) if widths.len() == node.input_count() => Ok(Box::new(FeatureVectorizer { widths })),
        _ => Err(wrong_attribute(
            "inputdimensions",
            format!(
                "is {given:?}, expected a size for each of {} inputs",
                node.input_count()
            ),
        )),
    }
}

impl FeatureVectorizer {
    fn width(&self) -> Result<usize, OpError> {
        let sum = self
            .widths
            .iter()
            .try_fold(0usize, |sum, &width| sum.checked_add(width));
        sum.ok_or_else(|| OpError::TooLarge {
            dims: self.widths.iter().copied().collect(),
        })
    }
}

impl Operator for FeatureVectorizer {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let rows = match input_dims(cx, 0).as_deref() {
            Some(&[rows, _]) => rows,
            Some(&[_]) => SymDim::Fixed(1),
            _ => SymDim::Unknown,
        };
        let dims = [rows, SymDim::Fixed(self.width()?)];
        cx.set_output(0, Some(ElementType::Float32), Some(SymDims::from_iter(dims)));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let mut inputs = Vec::with_capacity(self.widths.len());
        let mut count = None;
        for (index, &width) in self.widths.iter().enumerate() {
            let x = cx.required(index)?;
            let (n, features) = rows(&x)?;
            if *count.get_or_insert(n) != n {
                return Err(OpError::Message(format!(
                    "input {index} has {n} rows, unlike those before it"
                )));
            }
            inputs.push((Features::new(&x)?, features, width));
        }
        let count = count.unwrap_or(0);
        let mut y = cx.output::<f32>(0, &[count, self.width()?])?;
        if y.is_empty() {
            return Ok(());
        }
        for row in 0..count {
            for &(x, features, width) in &inputs {
                let used = features.min(width);
                y.extend((0..used).map(|i| x.at(row * features + i) as f32))?;
                y.extend(std::iter::repeat_n(0.0, width - used))?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct OneHotEncoder {
    categories: Categories,
    count: usize,
    /// What is none of the categories is all zeros, instead of an error.
    zeros: bool,
}

#[derive(Debug)]
enum Categories {
    Ints(HashMap<i64, usize>),
    Strings(HashMap<String, usize>),
}

pub(in crate::native) fn one_hot_encoder(node: &NodeInfo<'_>) -> Built {
    let (strings, ints) = (node.strings("cats_strings")?, node.ints("cats_int64s")?);
    let (categories, count) = match (strings, ints) {
        (Some(strings), None) => {
            let count = strings.len();
            let positions = strings.into_iter().map(str::to_owned).zip(0..);
            (Categories::Strings(positions.collect()), count)
        }
        (None, Some(ints)) => (
            Categories::Ints(ints.iter().copied().zip(0..).collect()),
            ints.len(),
        ),
        _ => {
            return Err(OpError::Message(
                "one of the attributes cats_strings and cats_int64s is expected, and only one".into(),
            ));
        }
    };
    Ok(Box::new(OneHotEncoder {
        categories,
        count,
        zeros: node.flag_or("zeros", true)?,
    }))
}

impl Operator for OneHotEncoder {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0).map(|mut dims| {
            dims.push(SymDim::Fixed(self.count));
            dims
        });
        cx.set_output(0, Some(ElementType::Float32), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let dims: Dims = x.dims().iter().copied().chain([self.count]).collect();
        let numbers = match x.element_type() {
            ElementType::String | ElementType::Int64 => None,
            _ => Some(Features::new(&x)?),
        };
        let position = |i: usize| -> Result<Option<usize>, OpError> {
            let found = match (&self.categories, &numbers) {
                (Categories::Ints(positions), Some(numbers)) => positions.get(&(numbers.at(i) as i64)),
                (Categories::Ints(positions), None) => positions.get(x.slice::<i64>()?.get(i).unwrap_or(&0)),
                (Categories::Strings(positions), _) => {
                    x.strings()?.get(i).and_then(|text| positions.get(text.as_str()))
                }
            };
            match found {
                None if !self.zeros => {
                    Err(OpError::Message(format!("element {i} is none of the categories")))
                }
                found => Ok(found.copied()),
            }
        };
        let mut y = cx.output::<f32>(0, &dims)?;
        for i in 0..x.len() {
            let position = position(i)?;
            y.extend((0..self.count).map(|at| f32::from(position == Some(at))))?;
        }
        Ok(())
    }
}
