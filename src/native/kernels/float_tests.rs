//! Tests of floats, elementwise; the result is boolean:
//!
//!   IsNaN    ai.onnx 9, 13, 20
//!   IsInf    +inf where `detect_positive`, -inf where `detect_negative` (both by default)
//!            ai.onnx 10, 20
//!
//! f16, bf16, f32, f64, and the 8-bit floats, of which only float8e5m2 has infinities.

use super::Built;
use super::dispatch::with_float;
use super::elementwise::map;
use super::infer::input_dims;
use super::minifloat::{E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, Minifloat};
use super::number::{Float, Scalar};
use crate::native::element::{Bool, ElementType};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FloatTest {
    Nan,
    Infinite { positive: bool, negative: bool },
}

pub(in crate::native) fn is_nan(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(FloatTest::Nan))
}

pub(in crate::native) fn is_inf(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(FloatTest::Infinite {
        positive: node.flag_or("detect_positive", true)?,
        negative: node.flag_or("detect_negative", true)?,
    }))
}

impl Operator for FloatTest {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0);
        cx.set_output(0, Some(ElementType::Bool), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        match x.element_type() {
            ElementType::Float8E4M3FN => self.of_codes(cx, &x, &E4M3FN),
            ElementType::Float8E4M3FNUZ => self.of_codes(cx, &x, &E4M3FNUZ),
            ElementType::Float8E5M2 => self.of_codes(cx, &x, &E5M2),
            ElementType::Float8E5M2FNUZ => self.of_codes(cx, &x, &E5M2FNUZ),
            ty => with_float!(ty, T => self.run_as::<T>(cx, &x)),
        }
    }
}

impl FloatTest {
    fn holds<W: Scalar>(self, x: W) -> Bool {
        Bool::from(match self {
            FloatTest::Nan => x.is_nan(),
            FloatTest::Infinite { positive, negative } => {
                (positive && x == W::HIGHEST) || (negative && x == W::LOWEST)
            }
        })
    }

    fn run_as<T: Float>(self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let y = cx.output::<Bool>(0, x.dims())?.into_mut();
        map(x.slice::<T>()?, y, |x| self.holds(x.widen()));
        Ok(())
    }

    fn of_codes(self, cx: &mut RunContext<'_>, x: &TensorRef<'_>, format: &Minifloat) -> Result<(), OpError> {
        let y = cx.output::<Bool>(0, x.dims())?.into_mut();
        map(x.bytes()?, y, |code| self.holds(format.decode(code)));
        Ok(())
    }
}
