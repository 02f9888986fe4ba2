//! Integers as bits, elementwise with multidirectional broadcasting:
//!
//!   BitwiseAnd, BitwiseOr, BitwiseXor    a & b, a | b, a ^ b     ai.onnx 18
//!   BitwiseNot                           !x                      ai.onnx 18
//!   BitShift                             a << b or a >> b, by `direction`; shifted by its width or
//!                                        more an element is 0 (-1 if it is negative and goes
//!                                        right)                  ai.onnx 11, 28
//!   BitCast                              the bits of x as elements of `to`, a type of the same
//!                                        width: any but strings  ai.onnx 26

use super::Built;
use super::dispatch::with_integer;
use super::elementwise::{copy, map, operand, zip};
use super::infer::{broadcast_inputs, input_dims, input_type, like_first_input};
use super::pair;
use crate::native::element::{Element, ElementType};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};

/// The operations on the bits of an integer.
trait Bits: Element {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
    /// By any number of places; a negative number of them is more than the width.
    fn left(self, places: Self) -> Self;
    fn right(self, places: Self) -> Self;
}

macro_rules! bits {
    ($($t:ident)+) => { $(
        impl Bits for $t {
            fn and(self, other: Self) -> Self {
                self & other
            }

            fn or(self, other: Self) -> Self {
                self | other
            }

            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            fn not(self) -> Self {
                !self
            }

            fn left(self, places: Self) -> Self {
                let places = u32::try_from(places).ok();
                places.and_then(|places| self.checked_shl(places)).unwrap_or(0)
            }

            fn right(self, places: Self) -> Self {
                let places = u32::try_from(places).ok().filter(|&places| places < $t::BITS);
                // What one shift cannot do is done in two.
                places.map_or((self >> ($t::BITS - 1)) >> 1, |places| self >> places)
            }
        }
    )+ };
}

bits! { i8 i16 i32 i64 u8 u16 u32 u64 }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bitwise {
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

pub(in crate::native) fn and(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Bitwise::And))
}

pub(in crate::native) fn or(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Bitwise::Or))
}

pub(in crate::native) fn xor(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Bitwise::Xor))
}

pub(in crate::native) fn shift(node: &NodeInfo<'_>) -> Built {
    match node.string_or("direction", "")? {
        "LEFT" => Ok(Box::new(Bitwise::ShiftLeft)),
        "RIGHT" => Ok(Box::new(Bitwise::ShiftRight)),
        other => Err(OpError::Attribute {
            name: "direction".into(),
            message: format!("is \"{other}\", expected \"LEFT\" or \"RIGHT\""),
        }),
    }
}

impl Operator for Bitwise {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        broadcast_inputs(cx, 0..2, input_type(cx, 0))
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (a, b, dims) = pair(cx)?;
        with_integer!(a.element_type(), T => {
            let (x, y) = (operand::<T>(&a)?, operand::<T>(&b)?);
            let to = cx.output::<T>(0, &dims)?.into_mut();
            match self {
                Bitwise::And => zip(x, y, &dims, to, Bits::and),
                Bitwise::Or => zip(x, y, &dims, to, Bits::or),
                Bitwise::Xor => zip(x, y, &dims, to, Bits::xor),
                Bitwise::ShiftLeft => zip(x, y, &dims, to, Bits::left),
                Bitwise::ShiftRight => zip(x, y, &dims, to, Bits::right),
            }
            Ok(())
        })
    }
}

#[derive(Debug)]
struct Not;

pub(in crate::native) fn not(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Not))
}

impl Operator for Not {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_integer!(x.element_type(), T => {
            let y = cx.output::<T>(0, x.dims())?.into_mut();
            map(x.slice::<T>()?, y, Bits::not);
            Ok(())
        })
    }
}

#[derive(Debug)]
struct BitCast {
    to: ElementType,
}

pub(in crate::native) fn bit_cast(node: &NodeInfo<'_>) -> Built {
    let to = node.element_type("to")?.ok_or_else(|| OpError::Attribute {
        name: "to".into(),
        message: "is missing".into(),
    })?;
    Ok(Box::new(BitCast { to }))
}

impl Operator for BitCast {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0);
        cx.set_output(0, Some(self.to), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let from = x.element_type();
        if from == self.to {
            return cx.output_same_as_input(0, 0, x.dims());
        }
        let Some(bits) = from
            .stored_bits()
            .filter(|_| from.stored_bits() == self.to.stored_bits())
        else {
            return Err(OpError::Message(format!(
                "{from} and {} are not of the same width",
                self.to
            )));
        };
        let bytes = x.bytes()?;
        let y = cx.output_bytes(0, self.to, x.dims())?.into_mut();
        // Elements narrower than a byte are held as bytes of their value: signed ones with
        // the sign in all upper bits, the others with zeros there.
        let unused = 8u32.saturating_sub(bits as u32);
        match self.to {
            ElementType::Int4 | ElementType::Int2 => {
                map(bytes, y, |byte: u8| ((byte << unused) as i8 >> unused) as u8);
            }
            _ if unused > 0 => map(bytes, y, |byte: u8| byte << unused >> unused),
            _ => copy(bytes, y),
        }
        Ok(())
    }
}
