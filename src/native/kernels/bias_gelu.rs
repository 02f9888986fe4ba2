//! BiasGelu and FastGelu: y = gelu(x + bias), the bias [last dim] or, in FastGelu, left out.
//!
//!   BiasGelu   x/2 (1 + erf(x / sqrt 2))
//!   FastGelu   x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//!
//! com.microsoft 1: floats. f16 and bf16 are computed in f32 and rounded once.

use super::Built;
use super::dispatch::with_float;
use super::group_query_attention::wrong_dims;
use super::infer::like_first_input;
use super::number::{Float, Scalar};
use super::unary::{gelu_of, gelu_tanh_of};
use crate::native::element::ElementType;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct BiasGelu {
    tanh: bool,
}

pub(in crate::native) fn bias_gelu(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(BiasGelu { tanh: false }))
}

pub(in crate::native) fn fast_gelu(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(BiasGelu { tanh: true }))
}

impl Operator for BiasGelu {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl BiasGelu {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let width = x.dims().last().copied().unwrap_or(1);
        let bias = match cx.input(1) {
            Some(bias) if bias.dims() == [width] => Some(bias.slice::<T>()?),
            Some(bias) => {
                return Err(wrong_dims(
                    1,
                    &bias,
                    format!("[{width}], the last dim of input 0"),
                ));
            }
            None if self.tanh => None,
            None => return Err(OpError::MissingInput { index: 1 }),
        };
        let gelu = |x: T::Wide| if self.tanh { gelu_tanh_of(x) } else { gelu_of(x) };
        let output = cx.output::<T>(0, x.dims())?;
        let x = x.slice::<T>()?;
        output.fill_with(|i| {
            let x = x[i].widen();
            T::narrow(gelu(bias.map_or(x, |bias| x.add(bias[i % width].widen()))))
        });
        Ok(())
    }
}
