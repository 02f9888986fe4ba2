//! SwiGLU (ai.onnx 28): y = a / (1 + e^(-alpha a)) b, the gate A and the value B of one shape.
//! Floats; float16 and bfloat16 are computed in f32 and rounded once.

use super::Built;
use super::dispatch::with_float;
use super::elementwise::{operand, zip_wide};
use super::exponential::{Curve, each};
use super::infer::like_first_input;
use super::number::Scalar;
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
        let curve = Curve::Swish { alpha: self.alpha };
        with_float!(gate.element_type(), T => {
            let (gate, value) = (operand::<T>(&gate)?, operand::<T>(&value)?);
            let (dims, y) = (gate.dims, cx.output::<T>(0, gate.dims)?);
            zip_wide(cx.workers(), 8, gate, value, dims, y, &|gate, value, y| {
                y.copy_from_slice(gate);
                each(curve, y);
                y.iter_mut().zip(value).for_each(|(y, value)| *y = y.mul(*value));
            });
            Ok(())
        })
    }
}
