//! Gated linear units: y = f(a) b for the gate A and the value B, of one shape.
//!
//!   SwiGLU            f(a) = a / (1 + e^(-alpha a))                                ai.onnx 28
//!   GatedLinearUnit   f by the attribute `activation`: swish (with `alpha`), gelu or gelu_tanh, see
//!                     `exponential`. What passes make, no operator of models. With one input X
//!                     [..., 2n], the gate is the first half of each row and the value the second,
//!                     with `value_first` the other way round, and Y is [..., n].
//!
//! Floats; float16 and bfloat16 are computed in f32 and rounded once.

use super::Built;
use super::dispatch::with_float;
use super::elementwise::{operand, zip_along, zip_wide};
use super::exponential::{Curve, each};
use super::infer::{input_type, like_first_input};
use super::number::{Float, Number, Real};
use super::strided::Strided;
use crate::native::element::ElementType;
use crate::native::infer::{Fact, InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

/// Simple operations that an element is worth.
const WORK: usize = 8;

#[derive(Debug)]
struct GatedLinearUnit {
    activation: Curve,
    /// The one input has both, half of each row.
    halves: bool,
    value_first: bool,
}

pub(in crate::native) fn swiglu(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GatedLinearUnit {
        activation: Curve::Swish {
            alpha: node.float_or("alpha", 1.0)?,
        },
        halves: false,
        value_first: false,
    }))
}

pub(in crate::native) fn gated_linear_unit(node: &NodeInfo<'_>) -> Built {
    let activation = match super::required_attribute("activation", node.string("activation")?)? {
        "swish" => Curve::Swish {
            alpha: node.float_or("alpha", 1.0)?,
        },
        "gelu" => Curve::Gelu,
        "gelu_tanh" => Curve::GeluTanh,
        other => {
            let message = format!("is \"{other}\", expected \"swish\", \"gelu\" or \"gelu_tanh\"");
            return Err(super::wrong_attribute("activation", message));
        }
    };
    Ok(Box::new(GatedLinearUnit {
        activation,
        halves: !node.has_input(1),
        value_first: node.flag_or("value_first", false)?,
    }))
}

impl Operator for GatedLinearUnit {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        if !self.halves {
            return like_first_input(cx);
        }
        let mut dims = cx.required(0)?.dims.clone();
        if let Some(last) = dims.as_mut().and_then(|dims| dims.last_mut()) {
            *last = match *last {
                SymDim::Fixed(both) => SymDim::Fixed(both / 2),
                _ => SymDim::Unknown,
            };
        }
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => match self.halves {
            true => self.of_halves::<T>(cx, &x),
            false => self.of_two::<T>(cx, &x),
        })
    }

    fn is_row_wise(&self, _others: &[Option<&Fact>]) -> bool {
        self.halves
    }
}

impl GatedLinearUnit {
    fn of_two<T: Float>(&self, cx: &mut RunContext<'_>, gate: &TensorRef<'_>) -> Result<(), OpError> {
        let value = cx.required(1)?;
        super::same_type(gate, &value, 1)?;
        if gate.dims() != value.dims() {
            return Err(OpError::WrongDims {
                what: "input 1".into(),
                found: value.dims().into(),
                expected: format!("{:?}, those of input 0", gate.dims()),
            });
        }
        let (gate, value) = (operand::<T>(gate)?, operand::<T>(&value)?);
        let (dims, y) = (gate.dims, cx.output::<T>(0, gate.dims)?);
        zip_wide(cx.workers(), WORK, gate, value, dims, y, &|gate, value, y| {
            self.gated(gate, value, y);
        });
        Ok(())
    }

    fn of_halves<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let (rows, half) = match x.dims() {
            [rows @ .., both] if both.is_multiple_of(2) => (rows, both / 2),
            dims => {
                return Err(OpError::WrongDims {
                    what: "input 0".into(),
                    found: dims.into(),
                    expected: "an even last dim".into(),
                });
            }
        };
        let mut dims: Dims = rows.into();
        dims.push(half);
        let y = cx.output::<T>(0, &dims)?;
        let elements = x.slice::<T>()?;
        let base = match self.value_first {
            true => [half, 0],
            false => [0, half],
        };
        // No elements, no rows to count.
        let rows = elements.len().checked_div(2 * half).unwrap_or(0);
        let strides: &[isize] = &[2 * half as isize, 1];
        let walk = Strided::new(&[rows, half], [strides, strides], base);
        zip_along(cx.workers(), WORK, [elements; 2], &walk, y, &|gate, value, y| {
            self.gated(gate, value, y);
        });
        Ok(())
    }

    /// Of a block of elements.
    fn gated<W: Real + Number>(&self, gate: &[W], value: &[W], y: &mut [W]) {
        y.copy_from_slice(gate);
        each(self.activation, y);
        y.iter_mut().zip(value).for_each(|(y, value)| *y = y.mul(*value));
    }
}
