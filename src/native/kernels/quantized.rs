//! The element types of quantised tensors, and how scales and zero points go along with them.

use super::dims::{Lanes, axis};
use super::minifloat::{E2M1, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ};
use crate::native::element::{Element, F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, I2, I4, U2, U4};
use crate::native::operator::OpError;
use crate::native::tensor::TensorRef;

/// An element type that values are quantised to.
pub(super) trait Quantized: Element {
    /// Whether zero points shift it, and values are rounded to whole numbers.
    const INTEGER: bool;

    /// Exact.
    fn to_f64(self) -> f64;

    /// The nearest element, ties to even. Integers saturate; so do floats when `saturate`, and
    /// else become infinite or NaN, if the type has it.
    fn nearest(value: f64, saturate: bool) -> Self;
}

macro_rules! integers {
    ($($t:ident)+) => { $(
        impl Quantized for $t {
            const INTEGER: bool = true;

            fn to_f64(self) -> f64 {
                self.into()
            }

            fn nearest(value: f64, _saturate: bool) -> Self {
                // Conversions of floats saturate.
                value.round_ties_even() as $t
            }
        }
    )+ };
}

integers! { i8 i16 i32 u8 u16 }

macro_rules! narrow_integers {
    ($($t:ident($rust:ident) $low:literal $high:literal;)+) => { $(
        impl Quantized for $t {
            const INTEGER: bool = true;

            fn to_f64(self) -> f64 {
                self.0.into()
            }

            fn nearest(value: f64, _saturate: bool) -> Self {
                $t(value.round_ties_even().clamp($low, $high) as $rust)
            }
        }
    )+ };
}

narrow_integers! {
    U4(u8) 0.0 15.0;
    I4(i8) -8.0 7.0;
    U2(u8) 0.0 3.0;
    I2(i8) -2.0 1.0;
}

macro_rules! minifloats {
    ($($t:ident $format:ident;)+) => { $(
        impl Quantized for $t {
            const INTEGER: bool = false;

            fn to_f64(self) -> f64 {
                $format.decode(self.0).into()
            }

            fn nearest(value: f64, saturate: bool) -> Self {
                $t($format.encode(value, saturate))
            }
        }
    )+ };
}

minifloats! {
    F8E4M3FN E4M3FN;
    F8E4M3FNUZ E4M3FNUZ;
    F8E5M2 E5M2;
    F8E5M2FNUZ E5M2FNUZ;
    F4E2M1 E2M1;
}

/// Binds a type name, as the macros of `dispatch` do.
macro_rules! with_quantized {
    ($ty:expr, $T:ident => $body:expr) => {
        with_quantized!(@each $ty, $T, $body;
            Int8 i8, Int16 i16, Int32 i32, Uint8 u8, Uint16 u16,
            Uint4 $crate::native::element::U4, Int4 $crate::native::element::I4,
            Uint2 $crate::native::element::U2, Int2 $crate::native::element::I2,
            Float8E4M3FN $crate::native::element::F8E4M3FN,
            Float8E4M3FNUZ $crate::native::element::F8E4M3FNUZ,
            Float8E5M2 $crate::native::element::F8E5M2,
            Float8E5M2FNUZ $crate::native::element::F8E5M2FNUZ,
            Float4E2M1 $crate::native::element::F4E2M1)
    };
    (@each $ty:expr, $T:ident, $body:expr; $($variant:ident $rust:ty),+) => {
        match $ty {
            $($crate::native::element::ElementType::$variant => {
                type $T = $rust;
                $body
            })+
            other => Err($crate::native::kernels::unsupported(other, "a type to quantise to")),
        }
    };
}

pub(super) use with_quantized;

/// Which scale, and which zero point, an element has.
pub(super) struct Granularity {
    lanes: Lanes,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// One for the tensor.
    Tensor,
    /// One for each position on an axis.
    Axis,
    /// One for each block of so many positions on an axis, and each position on the others.
    Block { size: usize, count: usize },
}

impl Granularity {
    /// For elements of `dims` and scales of `scale`'s. A scale for each block needs a block size.
    pub fn new(dims: &[usize], scale: &TensorRef<'_>, at: i64, block: usize) -> Result<Self, OpError> {
        if scale.len() == 1 && scale.rank() <= 1 {
            let kind = Kind::Tensor;
            let lanes = Lanes::along(dims, 0);
            return Ok(Granularity { lanes, kind });
        }
        let axis = axis(at, dims.len())?;
        let lanes = Lanes::along(dims, axis);
        let mut blocked = dims.iter().copied().enumerate().map(|(i, dim)| match i == axis {
            true => dim.div_ceil(block.max(1)),
            false => dim,
        });
        let kind = if block > 0 && scale.dims().iter().copied().eq(blocked.by_ref()) {
            Kind::Block {
                size: block,
                count: lanes.len.div_ceil(block),
            }
        } else if block == 0 && scale.dims() == [lanes.len] {
            Kind::Axis
        } else {
            return Err(OpError::WrongDims {
                what: "the scale".into(),
                found: scale.dims().into(),
                expected: format!(
                    "one element, one for each of the {} positions on axis {axis}, or one for each \
                     block of {block} of them and each position on the other axes of {dims:?}",
                    lanes.len
                ),
            });
        };
        Ok(Granularity { lanes, kind })
    }

    /// The position of the scale of an element.
    pub fn of(&self, element: usize) -> usize {
        let Lanes { len, inner, .. } = self.lanes;
        match self.kind {
            Kind::Tensor => 0,
            Kind::Axis => element / inner % len,
            Kind::Block { size, count } => {
                let (row, column) = (element / inner, element % inner);
                (row / len * count + row % len / size) * inner + column
            }
        }
    }
}
