//! LinearRegressor and LinearClassifier: x W' + intercepts, then `post_transform`.   ai.onnx.ml 1
//!
//!   x [n, features] or [features], of float, double, int64 or int32
//!   coefficients [targets or classes, features]
//!
//! The regressor's y is [n, targets]. The classifier's labels are those of the largest scores; with
//! two labels and one row of coefficients, s is the score of the second class, which is chosen above
//! 0, and scores are (1 - s, s), with LOGISTIC that of (-s, s), as in ONNX Runtime.

use super::model_input::{Features, Labels, check_type, infer_rows, rows, top_class};
use super::post_transform::{Transform, logistic};
use super::tree_ensemble::check_count;
use super::{Built, required_attribute, wrong_attribute};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::working::Working;

#[derive(Debug)]
struct LinearModel {
    coefficients: Vec<f32>,
    /// One for each row of coefficients, or none.
    intercepts: Vec<f32>,
    rows: usize,
    transform: Transform,
    labels: Option<Labels>,
}

pub(in crate::native) fn linear_regressor(node: &NodeInfo<'_>) -> Built {
    let given = node.int_or("targets", 1)?;
    let targets = usize::try_from(given).ok().filter(|&targets| targets > 0);
    let targets =
        targets.ok_or_else(|| wrong_attribute("targets", format!("is {given}, expected at least 1")))?;
    build(node, targets, None)
}

pub(in crate::native) fn linear_classifier(node: &NodeInfo<'_>) -> Built {
    // It does not say how scores are computed.
    node.int("multi_class")?;
    let labels = Labels::new(node, "classlabels_ints")?;
    let classes = match (labels.len(), node.floats("intercepts")?) {
        (2, Some([_])) => 1,
        (classes, _) => classes,
    };
    build(node, classes, Some(labels))
}

fn build(node: &NodeInfo<'_>, rows: usize, labels: Option<Labels>) -> Built {
    let coefficients = required_attribute("coefficients", node.floats("coefficients")?)?;
    let intercepts = node.floats("intercepts")?.unwrap_or_default();
    if !intercepts.is_empty() {
        check_count("intercepts", intercepts.len(), rows)?;
    }
    if !coefficients.len().is_multiple_of(rows) {
        return Err(wrong_attribute(
            "coefficients",
            format!("has {} elements, which are not {rows} rows", coefficients.len()),
        ));
    }
    let transform = Transform::named(node)?;
    if labels.as_ref().is_some_and(|labels| labels.len() > rows) && transform == Transform::Probit {
        return Err(OpError::Unsupported("PROBIT of a single score".into()));
    }
    Ok(Box::new(LinearModel {
        coefficients: coefficients.into(),
        intercepts: intercepts.into(),
        rows,
        transform,
        labels,
    }))
}

impl LinearModel {
    fn scores(&self) -> usize {
        self.labels.as_ref().map_or(self.rows, Labels::len)
    }

    /// The class of a row, whose products become scores: of the first `self.rows`.
    fn finish(&self, scores: &mut [f64]) -> usize {
        if let (1, [first, second]) = (self.rows, &mut *scores) {
            let score = *first;
            (*first, *second) = match self.transform {
                Transform::Logistic => (logistic(-score), logistic(score)),
                _ => (1.0 - score, score),
            };
            return usize::from(score > 0.0);
        }
        let class = top_class(scores);
        // Of one target, the others are what it is.
        if scores.len() > 1 || matches!(self.transform, Transform::Logistic | Transform::Probit) {
            self.transform.apply(scores);
        }
        class
    }
}

impl Operator for LinearModel {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        if let Some(ty) = cx.input(0).and_then(|fact| fact.ty) {
            check_type(ty)?;
        }
        let scores = Some(self.scores());
        match &self.labels {
            None => infer_rows(cx, 0, ElementType::Float32, scores),
            Some(labels) => {
                infer_rows(cx, 0, labels.element_type(), None);
                infer_rows(cx, 1, ElementType::Float32, scores);
            }
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let (rows, features) = rows(&x)?;
        let width = self.coefficients.len() / self.rows;
        if features != width {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: x.dims().into(),
                expected: format!("{width} features, one for each coefficient"),
            });
        }
        let x = Features::new(&x)?;
        let scores = cx.scratch::<f64>(self.scores())?;
        let at = if self.labels.is_some() { 1 } else { 0 };
        let mut y = match cx.output_used(at) {
            true => Some(cx.output::<f32>(at, &[rows, self.scores()])?),
            false => None,
        };
        let mut chosen = Working::with_room(rows)?;
        for row in 0..rows {
            for (target, score) in scores.iter_mut().take(self.rows).enumerate() {
                ending::count(width);
                let coefficients = self.coefficients.iter().skip(target * width).take(width);
                let products = coefficients
                    .enumerate()
                    .map(|(i, &c)| f64::from(c) * x.at(row * features + i));
                let intercept = self.intercepts.get(target).copied().unwrap_or_default();
                *score = products.sum::<f64>() + f64::from(intercept);
            }
            chosen.push(self.finish(scores));
            if let Some(y) = &mut y {
                y.extend(scores.iter().map(|&score| score as f32))?;
            }
        }
        match &self.labels {
            Some(labels) => labels.write(cx, &chosen),
            None => Ok(()),
        }
    }
}
