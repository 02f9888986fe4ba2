//! Identity: y = x, any type and shape. ai.onnx 1 to 25.

use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};

#[derive(Debug)]
struct Identity;

pub(in crate::native) fn identity(_node: &NodeInfo<'_>) -> Result<Box<dyn Operator>, OpError> {
    Ok(Box::new(Identity))
}

impl Operator for Identity {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        cx.set_output(0, x.ty, x.dims.clone());
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let dims = cx.required(0)?.dims();
        cx.output_same_as_input(0, 0, dims)
    }
}
