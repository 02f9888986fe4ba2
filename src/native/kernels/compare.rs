//! Elementwise tests and choices with multidirectional broadcasting:
//!
//!   Equal                          any type but the narrow floats and complex   ai.onnx 7, 11, 13, 19
//!   Less, Greater                  any number                                   ai.onnx 7, 9, 13
//!   LessOrEqual, GreaterOrEqual    any number                                   ai.onnx 12, 16
//!   And, Or, Xor                   booleans                                     ai.onnx 7
//!   Where(C, X, Y)                 x[i] where c[i] holds, else y[i], any type   ai.onnx 9, 16
//!
//! The result has the shape that the operands broadcast to. A NaN equals nothing and is
//! neither less nor greater than anything.

use super::dispatch::{with_integer, with_number};
use super::elementwise::{Operand, operand, zip};
use super::infer::{broadcast_inputs, input_type};
use super::moves::string_room;
use super::strided::{Strided, at, broadcast_strides};
use super::{Built, broadcast, pair};
use crate::native::element::{Bool, ElementType};
use crate::native::ending::{counted, pieces};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug)]
struct Ordered(Order);

#[derive(Debug)]
struct Equal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logic {
    And,
    Or,
    Xor,
}

#[derive(Debug)]
struct Logical(Logic);

#[derive(Debug)]
struct Where;

macro_rules! builders {
    ($($name:ident = $operator:expr;)+) => { $(
        pub(in crate::native) fn $name(_: &NodeInfo<'_>) -> Built {
            Ok(Box::new($operator))
        }
    )+ };
}

builders! {
    equal = Equal;
    less = Ordered(Order::Less);
    less_or_equal = Ordered(Order::LessOrEqual);
    greater = Ordered(Order::Greater);
    greater_or_equal = Ordered(Order::GreaterOrEqual);
    and = Logical(Logic::And);
    or = Logical(Logic::Or);
    xor = Logical(Logic::Xor);
    where_ = Where;
}

impl Operator for Equal {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        broadcast_inputs(cx, 0..2, Some(ElementType::Bool))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b, dims) = pair(cx)?;
        match a.element_type() {
            ElementType::String => {
                // The loop copies its operands, so it runs over references.
                let (x, y): (Vec<&str>, Vec<&str>) = (
                    counted(a.strings()?).map(String::as_str).collect(),
                    counted(b.strings()?).map(String::as_str).collect(),
                );
                let x = Operand {
                    data: &x,
                    dims: a.dims(),
                };
                let y = Operand {
                    data: &y,
                    dims: b.dims(),
                };
                let to = cx.output::<Bool>(0, &dims)?.into_mut();
                zip(x, y, &dims, to, |x, y| Bool::from(x == y));
                Ok(())
            }
            ElementType::Bool => {
                let (x, y) = (operand::<Bool>(&a)?, operand::<Bool>(&b)?);
                let output = cx.output::<Bool>(0, &dims)?;
                zip(x, y, &dims, output.into_mut(), |x, y| Bool::from(x == y));
                Ok(())
            }
            ty => with_number!(ty, T => {
                let (x, y) = (operand::<T>(&a)?, operand::<T>(&b)?);
                let to = cx.output::<Bool>(0, &dims)?.into_mut();
                zip(x, y, &dims, to, |x, y| Bool::from(x == y));
                Ok(())
            }),
        }
    }
}

impl Operator for Ordered {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        broadcast_inputs(cx, 0..2, Some(ElementType::Bool))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b, dims) = pair(cx)?;
        with_number!(a.element_type(), T => {
            let (x, y) = (operand::<T>(&a)?, operand::<T>(&b)?);
            let to = cx.output::<Bool>(0, &dims)?.into_mut();
            match self.0 {
                Order::Less => zip(x, y, &dims, to, |x, y| Bool::from(x < y)),
                Order::LessOrEqual => zip(x, y, &dims, to, |x, y| Bool::from(x <= y)),
                Order::Greater => zip(x, y, &dims, to, |x, y| Bool::from(x > y)),
                Order::GreaterOrEqual => zip(x, y, &dims, to, |x, y| Bool::from(x >= y)),
            }
            Ok(())
        })
    }
}

impl Operator for Logical {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        broadcast_inputs(cx, 0..2, Some(ElementType::Bool))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b, dims) = pair(cx)?;
        let (x, y) = (operand::<Bool>(&a)?, operand::<Bool>(&b)?);
        let output = cx.output::<Bool>(0, &dims)?;
        let to = output.into_mut();
        match self.0 {
            Logic::And => zip(x, y, &dims, to, |x: Bool, y: Bool| Bool::from(x.get() & y.get())),
            Logic::Or => zip(x, y, &dims, to, |x: Bool, y: Bool| Bool::from(x.get() | y.get())),
            Logic::Xor => zip(x, y, &dims, to, |x: Bool, y: Bool| Bool::from(x.get() ^ y.get())),
        }
        Ok(())
    }
}

impl Operator for Where {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        broadcast_inputs(cx, 0..3, input_type(cx, 1).or(input_type(cx, 2)))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (c, x, y) = (cx.required(0)?, cx.required(1)?, cx.required(2)?);
        super::same_type(&x, &y, 2)?;
        let dims = broadcast(&broadcast(c.dims(), x.dims())?, y.dims())?;
        let condition = c.slice::<Bool>()?;
        let strides = [&c, &x, &y].map(|operand| broadcast_strides(operand.dims(), &dims));
        let walk = Strided::new(&dims, [&strides[0], &strides[1], &strides[2]], [0, 0, 0]);
        let [c_stride, x_stride, y_stride] = walk.run_strides;
        if x.element_type() == ElementType::String {
            let (x, y) = (x.strings()?, y.strings()?);
            let mut chosen = string_room(&dims)?;
            let mut result = Ok(());
            walk.for_each_run(&mut |[c_start, x_start, y_start]| {
                if result.is_ok() {
                    result = chosen.extend(counted(0..walk.run).map(|i| {
                        match condition[at(c_start, c_stride, i)].get() {
                            true => &x[at(x_start, x_stride, i)],
                            false => &y[at(y_start, y_stride, i)],
                        }
                    }));
                }
            });
            result?;
            return cx.output_strings(0, &dims, chosen);
        }
        let (x_bytes, y_bytes) = (x.bytes()?, y.bytes()?);
        let size = x.element_type().size().unwrap_or(1);
        let output = cx.output_bytes(0, x.element_type(), &dims)?;
        let mut to = output.into_mut().chunks_exact_mut(size);
        walk.for_each_run(&mut |[c_start, x_start, y_start]| {
            for (i, to) in pieces(walk.run).flatten().zip(to.by_ref()) {
                let from = match condition[at(c_start, c_stride, i)].get() {
                    true => &x_bytes[at(x_start, x_stride, i) * size..],
                    false => &y_bytes[at(y_start, y_stride, i) * size..],
                };
                to.copy_from_slice(&from[..size]);
            }
        });
        Ok(())
    }
}
