//! SwiGLU (ai.onnx 28): y = a / (1 + e^(-alpha a)) b, the gate A and the value B of one shape.
//! Floats; float16 and bfloat16 are computed in f32 and rounded once.

use super::Built;
use super::dispatch::with_float;
use super::infer::like_first_input;
use super::number::{Number, Scalar};
use super::unary::sigmoid_of;
use crate::native::element::ElementType;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};

#[derive(Debug)]
struct SwiGlu {
    alpha: f32,
}

pub(in crate::native) fn swiglu(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(SwiGlu {
        alpha: node.float_or("alpha", 1.0)?,
    }))
}

impl Operator for SwiGlu {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (gate, value) = (cx.required(0)?, cx.required(1)?);
        super::same_type(&gate, &value, 1)?;
        if gate.dims() != value.dims() {
            return Err(OpError::WrongDims {
                what: "input 1".into(),
                found: value.dims().into(),
                expected: format!("{:?}, those of input 0", gate.dims()),
            });
        }
        with_float!(gate.element_type(), T => {
            let alpha = Scalar::from_f64(self.alpha.into());
            let mut y = cx.output::<T>(0, gate.dims())?;
            y.extend(gate.slice::<T>()?.iter().zip(value.slice::<T>()?).map(|(a, b)| {
                let a = a.widen();
                T::narrow(a.mul(sigmoid_of(a.mul(alpha))).mul(b.widen()))
            }))
        })
    }
}
