//! Dropout(X, ratio, training_mode): X as it is, and a mask of all ones; in training mode y = x / (1 -
//! ratio) where the mask is true, which it is with probability 1 - ratio, else 0.
//!
//! Training mode is an input (false without it) from version 12 on, and does not exist before.
//! The mask is optional: booleans, before version 10 of X's type. Any float, 8-bit ones without
//! training. Random numbers are those of `random`. ai.onnx 7, 10, 12, 13, 22.

use super::Built;
use super::dims::not_one_element;
use super::dispatch::with_float;
use super::infer::{input_dims, input_type};
use super::number::{Float, Number, Scalar};
use super::random::Source;
use crate::native::element::{Bool, ElementType};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct Dropout {
    /// The mask has the type of X.
    typed_mask: bool,
    /// Random numbers, where there is a training mode.
    source: Option<Source>,
}

pub(in crate::native) fn dropout(node: &NodeInfo<'_>) -> Built {
    let source = match node.since {
        12.. => Some(Source::new(node, node.int("seed")?.map(|seed| seed as u64))),
        _ => {
            // What training would use.
            node.float("ratio")?;
            None
        }
    };
    Ok(Box::new(Dropout {
        typed_mask: node.since < 10,
        source,
    }))
}

impl Operator for Dropout {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (ty, dims) = (input_type(cx, 0), input_dims(cx, 0));
        let mask = if self.typed_mask {
            ty
        } else {
            Some(ElementType::Bool)
        };
        cx.set_output(0, ty, dims.clone());
        cx.set_output(1, mask, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let training = match cx.input(2) {
            Some(mode) => match mode.slice::<Bool>()? {
                &[mode] => mode.get(),
                _ => return Err(not_one_element(&mode, 2)),
            },
            None => false,
        };
        if let (Some(source), true) = (&self.source, training) {
            let ratio = match cx.input(1) {
                Some(ratio) => with_float!(ratio.element_type(), T => match ratio.slice::<T>()? {
                    &[only] => Ok(only.widen().to_f64()),
                    _ => Err(not_one_element(&ratio, 1)),
                })?,
                None => 0.5,
            };
            return with_float!(x.element_type(), T => drop_some::<T>(cx, &x, ratio, source));
        }
        if cx.output_used(0) {
            cx.output_same_as_input(0, 0, x.dims())?;
        }
        match (cx.output_used(1), self.typed_mask) {
            (false, _) => {}
            (true, false) => cx.output::<Bool>(1, x.dims())?.fill_with(|_| true.into()),
            (true, true) => with_float!(x.element_type(), T => {
                cx.output::<T>(1, x.dims())?.fill_with(|_| ones());
                Ok(())
            })?,
        }
        Ok(())
    }

    fn is_deterministic(&self) -> bool {
        self.source.as_ref().is_none_or(Source::is_seeded)
    }
}

fn ones<T: Float>() -> T {
    T::narrow(T::Wide::ONE)
}

fn drop_some<T: Float>(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    ratio: f64,
    source: &Source,
) -> Result<(), OpError> {
    let stream = source.stream();
    let keeps = |i: usize| stream.uniform(i) >= ratio;
    let rest = T::Wide::from_f64(1.0 - ratio);
    let (dims, x) = (x.dims(), x.slice::<T>()?);
    if cx.output_used(0) {
        cx.output::<T>(0, dims)?.fill_with(|i| match keeps(i) {
            true => T::narrow(x[i].widen().div(rest)),
            false => T::narrow(T::Wide::ZERO),
        });
    }
    if cx.output_used(1) {
        cx.output::<Bool>(1, dims)?.fill_with(|i| keeps(i).into());
    }
    Ok(())
}
