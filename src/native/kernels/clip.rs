//! Clip: y = min(max(x, low), high), elementwise; a bound that is not given does not bind.
//!
//! The bounds are attributes of version 6, and optional inputs of one element from version 11
//! on. Where low is above high, the result is high. ai.onnx 6, 11, 12, 13: any number.

use super::Built;
use super::dims::not_one_element;
use super::dispatch::{with_integer, with_number};
use super::elementwise::map;
use super::infer::like_first_input;
use super::number::{Number, Scalar};
use crate::native::element::ElementType;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct Clip {
    /// Low and high, where they are attributes.
    attributes: [Option<f32>; 2],
}

pub(in crate::native) fn clip(node: &NodeInfo<'_>) -> Built {
    let attributes = match node.since {
        11.. => [None, None],
        _ => [node.float("min")?, node.float("max")?],
    };
    Ok(Box::new(Clip { attributes }))
}

impl Operator for Clip {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_number!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl Clip {
    fn run_as<T: Number>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let low = self.bound::<T>(cx, x, 1)?.unwrap_or(T::Wide::LOWEST);
        let high = self.bound::<T>(cx, x, 2)?.unwrap_or(T::Wide::HIGHEST);
        let y = cx.output::<T>(0, x.dims())?.into_mut();
        map(x.slice::<T>()?, y, |x| {
            T::narrow(Scalar::min(Scalar::max(x.widen(), low), high))
        });
        Ok(())
    }

    /// The bound that input 1 or 2, or the attribute in its place, gives.
    fn bound<T: Number>(
        &self,
        cx: &RunContext<'_>,
        x: &TensorRef<'_>,
        input: usize,
    ) -> Result<Option<T::Wide>, OpError> {
        let Some(bound) = cx.input(input) else {
            let attribute = self.attributes.get(input - 1).copied().flatten();
            return Ok(attribute.map(|bound| T::Wide::from_f64(bound.into())));
        };
        super::same_type(x, &bound, input)?;
        match bound.slice::<T>()? {
            &[only] => Ok(Some(only.widen())),
            _ => Err(not_one_element(&bound, input)),
        }
    }
}
