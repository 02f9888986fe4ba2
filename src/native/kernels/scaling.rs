//! Numbers of a row, made alike, as classical models want them.                      ai.onnx.ml 1
//!
//!   Scaler       (x - offset) * scale, each of one element or one for each feature
//!   Normalizer   x / max x, x / sum of |x|, or x / sqrt(sum of x^2) over a row, by `norm`; a row of
//!                which that is 0 stays
//!   Imputer      x, or the imputed value (one, or one for each feature) where it is the replaced
//!                one, which may be NaN
//!
//! Inputs are float, double, int64 or int32. The Imputer's result is of the same type, that of the
//! others float. Computed in f64 and rounded once.

use super::infer::like_first_input;
use super::model_input::{Features, infer_float, rows};
use super::{Built, required_attribute, unsupported, wrong_attribute};
use crate::native::element::{Element, ElementType};
use crate::native::ending::counted;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct Scaler {
    offset: Vec<f32>,
    scale: Vec<f32>,
}

pub(in crate::native) fn scaler(node: &NodeInfo<'_>) -> Built {
    let offset = node.floats("offset")?.unwrap_or_default();
    let scale = node.floats("scale")?.unwrap_or_default();
    Ok(Box::new(Scaler {
        offset: if offset.is_empty() {
            vec![0.0]
        } else {
            offset.into()
        },
        scale: if scale.is_empty() { vec![1.0] } else { scale.into() },
    }))
}

/// One value for all features, or one for each of them.
fn check_features(name: &str, found: usize, features: usize) -> Result<(), OpError> {
    match found == 1 || found == features {
        true => Ok(()),
        false => Err(wrong_attribute(
            name,
            format!("has {found} elements, expected 1 or {features}, one for each feature"),
        )),
    }
}

/// The one of a feature.
fn of<T: Copy>(values: &[T], feature: usize) -> Option<T> {
    values.get(if values.len() == 1 { 0 } else { feature }).copied()
}

impl Operator for Scaler {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        infer_float(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        // Of one value each, the features are all elements.
        let width = match (self.offset.len(), self.scale.len()) {
            (1, 1) => 1,
            _ => rows(&x)?.1,
        };
        check_features("offset", self.offset.len(), width)?;
        check_features("scale", self.scale.len(), width)?;
        let values = Features::new(&x)?;
        cx.output::<f32>(0, x.dims())?.fill_with(|i| {
            let feature = i % width.max(1);
            let offset = of(&self.offset, feature).unwrap_or_default();
            let scale = of(&self.scale, feature).unwrap_or_default();
            ((values.at(i) - f64::from(offset)) * f64::from(scale)) as f32
        });
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Normalizer {
    Max,
    L1,
    L2,
}

pub(in crate::native) fn normalizer(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(match node.string_or("norm", "MAX")? {
        "MAX" => Normalizer::Max,
        "L1" => Normalizer::L1,
        "L2" => Normalizer::L2,
        other => {
            return Err(wrong_attribute(
                "norm",
                format!("is \"{other}\", expected MAX, L1 or L2"),
            ));
        }
    }))
}

impl Operator for Normalizer {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        infer_float(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let (rows, features) = rows(&x)?;
        let values = Features::new(&x)?;
        let mut y = cx.output::<f32>(0, x.dims())?;
        for row in 0..rows {
            let row = || counted((row * features..).take(features)).map(|i| values.at(i));
            let divisor = match self {
                Normalizer::Max => row().fold(f64::NEG_INFINITY, f64::max),
                Normalizer::L1 => row().map(f64::abs).sum(),
                Normalizer::L2 => row().map(|x| x * x).sum::<f64>().sqrt(),
            };
            let divisor = if divisor == 0.0 { 1.0 } else { divisor };
            y.extend(row().map(|x| (x / divisor) as f32))?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Imputer {
    floats: Vec<f32>,
    ints: Vec<i64>,
    replaced_float: f32,
    replaced_int: i64,
}

pub(in crate::native) fn imputer(node: &NodeInfo<'_>) -> Built {
    let floats = node.floats("imputed_value_floats")?.unwrap_or_default();
    let ints = node.ints("imputed_value_int64s")?.unwrap_or_default();
    Ok(Box::new(Imputer {
        floats: floats.into(),
        ints: ints.into(),
        replaced_float: node.float_or("replaced_value_float", 0.0)?,
        replaced_int: node.int_or("replaced_value_int64", 0)?,
    }))
}

impl Operator for Imputer {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let replaced = self.replaced_float;
        let is_replaced = |x: f64| x == f64::from(replaced) || x.is_nan() && replaced.is_nan();
        match x.element_type() {
            ElementType::Float32 => impute(
                cx,
                &x,
                &self.floats,
                |x: f32| is_replaced(x.into()),
                |value| value,
            ),
            ElementType::Float64 => impute(cx, &x, &self.floats, is_replaced, f64::from),
            ElementType::Int64 => impute(cx, &x, &self.ints, |x: i64| x == self.replaced_int, |value| value),
            ElementType::Int32 => {
                let narrow = |value: i64| value.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                impute(
                    cx,
                    &x,
                    &self.ints,
                    |x: i32| i64::from(x) == self.replaced_int,
                    narrow,
                )
            }
            other => Err(unsupported(other, "float, double, int64 or int32")),
        }
    }
}

fn impute<T: Element, V: Copy>(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    imputed: &[V],
    is_replaced: impl Fn(T) -> bool,
    convert: impl Fn(V) -> T,
) -> Result<(), OpError> {
    let width = x.dims().last().copied().unwrap_or(1);
    let first = required_attribute("imputed_value_floats or imputed_value_int64s", imputed.first())?;
    check_features(
        "imputed_value_floats or imputed_value_int64s",
        imputed.len(),
        width,
    )?;
    let elements = x.slice::<T>()?.iter().enumerate();
    cx.output::<T>(0, x.dims())?
        .extend(elements.map(|(i, &x)| match is_replaced(x) {
            true => convert(of(imputed, i % width.max(1)).unwrap_or(*first)),
            false => x,
        }))
}
