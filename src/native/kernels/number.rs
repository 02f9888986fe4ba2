//! What the numeric kernels are generic over.
//!
//! A [`Number`] is how an element is stored, its [`Wide`](Number::Wide) type is what it is
//! computed in: f32 for f16 and bf16, so that a result is rounded once, at the end; itself
//! for everything else. Integers wrap around, as in ONNX's reference implementation.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::half_precision;
use crate::native::element::Element;

/// An element type with arithmetic.
pub(super) trait Number: Element {
    type Wide: Scalar + Number<Wide = Self::Wide>;
    /// Where a result need not be a whole number (means, roots, logarithms): the wide type,
    /// or f64 for integers.
    type Real: Real;

    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    /// The elements as they are, where the wide type is the element type.
    fn as_wide(elements: &[Self]) -> Option<&[Self::Wide]>;
    fn as_wide_mut(elements: &mut [Self]) -> Option<&mut [Self::Wide]>;

    /// `wide[i]` = `elements[i]`, for as many as there are of both.
    fn widen_all(elements: &[Self], wide: &mut [Self::Wide]);

    /// `elements[i]` = `wide[i]`, rounded, for as many as there are of both.
    fn narrow_all(wide: &[Self::Wide], elements: &mut [Self]);

    /// The elements, where the wide type is f32.
    fn as_floats(_elements: &[Self]) -> Option<Floats<'_>> {
        None
    }

    /// Wide elements, where the wide type is f32.
    fn wide_floats(_wide: &[f32]) -> Option<&[Self::Wide]> {
        None
    }

    /// The elements to be written, where the type is f32 itself.
    fn as_f32_mut(_elements: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

/// Elements that are computed in f32.
#[derive(Clone, Copy, Debug)]
pub(super) enum Floats<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
}

/// Elements in their wide type: as they are, or converted to the front of `room`, which has
/// [`wide_room`] elements for them. Also what is left of `room`.
pub(super) fn widened<'a, T: Number>(
    elements: &'a [T],
    room: &'a mut [T::Wide],
) -> (&'a [T::Wide], &'a mut [T::Wide]) {
    match T::as_wide(elements) {
        Some(wide) => (wide, room),
        None => {
            let (wide, rest) = room.split_at_mut(elements.len());
            T::widen_all(elements, wide);
            (wide, rest)
        }
    }
}

/// The elements of room that [`widened`] needs.
pub(super) fn wide_room<T: Number>(elements: &[T]) -> usize {
    match T::as_wide(elements) {
        Some(_) => 0,
        None => elements.len(),
    }
}

/// Arithmetic of a type that kernels compute in.
pub(super) trait Scalar: Element + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    /// The identities of max and min: the infinities, or the ends of an integer's range.
    const LOWEST: Self;
    const HIGHEST: Self;
    /// Whether dividing by zero has no answer.
    const INTEGER: bool;

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// The quotient, truncated for integers. An integer divided by zero gives zero; kernels
    /// refuse that before they come here.
    fn div(self, other: Self) -> Self;
    /// The remainder with the sign of `self`; zero for an integer divided by zero.
    fn rem(self, other: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn erf(self) -> Self;
    fn to_f64(self) -> f64;
    /// The nearest value; integers truncate towards zero and saturate.
    fn from_f64(value: f64) -> Self;

    /// `a * b + sum`, rounded after each step like the scalar loop would: a fused
    /// multiply-add exists only on some CPUs, and results must not depend on that.
    #[inline(always)]
    fn multiply_add(a: Self, b: Self, sum: Self) -> Self {
        sum.add(a.mul(b))
    }

    /// The larger one; NaN if either is.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        if self > other || self.is_nan() {
            self
        } else {
            other
        }
    }

    /// The smaller one; NaN if either is.
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        if self < other || self.is_nan() {
            self
        } else {
            other
        }
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        self.partial_cmp(&self).is_none()
    }
}

/// Functions of the floating-point types that kernels compute in.
pub(super) trait Real: Scalar {
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    /// ln(1 + x), exact also for small x.
    fn ln_1p(self) -> Self;
    fn sqrt(self) -> Self;
    fn tanh(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn round_ties_even(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn tan(self) -> Self;
    fn asin(self) -> Self;
    fn acos(self) -> Self;
    fn atan(self) -> Self;
    fn sinh(self) -> Self;
    fn cosh(self) -> Self;
    fn asinh(self) -> Self;
    fn acosh(self) -> Self;
    fn atanh(self) -> Self;
    /// e^x - 1, exact also for small x.
    fn exp_m1(self) -> Self;
}

/// A floating-point element type.
pub(super) trait Float: Number<Wide: Real> {}

impl Float for f32 {}
impl Float for f64 {}
impl Float for f16 {}
impl Float for bf16 {}

/// Functions that the type has under the same name.
macro_rules! inherent {
    ($t:ident: $($name:ident)+) => { $(
        #[inline(always)]
        fn $name(self) -> Self {
            $t::$name(self)
        }
    )+ };
}

macro_rules! real {
    ($t:ident, $erf:path, $asinh:path, $acosh:path $(, $floats:ident)?) => {
        impl Number for $t {
            type Wide = $t;
            type Real = $t;

            #[inline(always)]
            fn widen(self) -> $t {
                self
            }

            #[inline(always)]
            fn narrow(wide: $t) -> $t {
                wide
            }

            #[inline(always)]
            fn as_wide(elements: &[$t]) -> Option<&[$t]> {
                Some(elements)
            }

            #[inline(always)]
            fn as_wide_mut(elements: &mut [$t]) -> Option<&mut [$t]> {
                Some(elements)
            }

            #[inline(always)]
            fn widen_all(elements: &[$t], wide: &mut [$t]) {
                let len = elements.len().min(wide.len());
                wide[..len].copy_from_slice(&elements[..len]);
            }

            #[inline(always)]
            fn narrow_all(wide: &[$t], elements: &mut [$t]) {
                Self::widen_all(wide, elements);
            }

            $(
                #[inline(always)]
                fn as_floats(elements: &[$t]) -> Option<Floats<'_>> {
                    Some(Floats::$floats(elements))
                }

                #[inline(always)]
                fn wide_floats(wide: &[f32]) -> Option<&[f32]> {
                    Some(wide)
                }

                #[inline(always)]
                fn as_f32_mut(elements: &mut [$t]) -> Option<&mut [f32]> {
                    Some(elements)
                }
            )?
        }

        impl Scalar for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = $t::NEG_INFINITY;
            const HIGHEST: Self = $t::INFINITY;
            const INTEGER: bool = false;

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self - other
            }

            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn div(self, other: Self) -> Self {
                self / other
            }

            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                self % other
            }

            #[inline(always)]
            fn neg(self) -> Self {
                -self
            }

            #[inline(always)]
            fn abs(self) -> Self {
                $t::abs(self)
            }

            #[inline(always)]
            fn erf(self) -> Self {
                $erf(self)
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $t
            }
        }

        impl Real for $t {
            inherent! { $t: exp ln ln_1p sqrt tanh floor ceil round_ties_even sin cos tan }
            inherent! { $t: asin acos atan sinh cosh atanh exp_m1 }

            // Those of the standard library double their argument, which overflows.
            #[inline(always)]
            fn asinh(self) -> Self {
                $asinh(self)
            }

            #[inline(always)]
            fn acosh(self) -> Self {
                $acosh(self)
            }
        }
    };
}

real!(f32, libm::erff, libm::asinhf, libm::acoshf, F32);
real!(f64, libm::erf, libm::asinh, libm::acosh);

macro_rules! half_float {
    ($t:ident $floats:ident, $widen:path, $narrow:path, $narrow_all:path) => {
        impl Number for $t {
            type Wide = f32;
            type Real = f32;

            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }

            #[inline(always)]
            fn narrow(wide: f32) -> $t {
                $narrow(wide)
            }

            #[inline(always)]
            fn as_wide(_: &[$t]) -> Option<&[f32]> {
                None
            }

            #[inline(always)]
            fn as_wide_mut(_: &mut [$t]) -> Option<&mut [f32]> {
                None
            }

            fn widen_all(elements: &[$t], wide: &mut [f32]) {
                let len = elements.len().min(wide.len());
                elements[..len].convert_to_f32_slice(&mut wide[..len]);
            }

            fn narrow_all(wide: &[f32], elements: &mut [$t]) {
                $narrow_all(wide, elements);
            }

            #[inline(always)]
            fn as_floats(elements: &[$t]) -> Option<Floats<'_>> {
                Some(Floats::$floats(elements))
            }

            #[inline(always)]
            fn wide_floats(wide: &[f32]) -> Option<&[f32]> {
                Some(wide)
            }
        }
    };
}

half_float!(f16 F16, half_precision::to_f32, half_precision::from_f32, half_precision::to_f16);
half_float!(bf16 Bf16, bf16::to_f32, bf16::from_f32, half_precision::to_bf16);

macro_rules! integer {
    ($($t:ident $abs:expr;)+) => { $(
        impl Number for $t {
            type Wide = $t;
            type Real = f64;

            #[inline(always)]
            fn widen(self) -> $t {
                self
            }

            #[inline(always)]
            fn narrow(wide: $t) -> $t {
                wide
            }

            #[inline(always)]
            fn as_wide(elements: &[$t]) -> Option<&[$t]> {
                Some(elements)
            }

            #[inline(always)]
            fn as_wide_mut(elements: &mut [$t]) -> Option<&mut [$t]> {
                Some(elements)
            }

            #[inline(always)]
            fn widen_all(elements: &[$t], wide: &mut [$t]) {
                let len = elements.len().min(wide.len());
                wide[..len].copy_from_slice(&elements[..len]);
            }

            #[inline(always)]
            fn narrow_all(wide: &[$t], elements: &mut [$t]) {
                Self::widen_all(wide, elements);
            }
        }

        impl Scalar for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = $t::MIN;
            const HIGHEST: Self = $t::MAX;
            const INTEGER: bool = true;

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }

            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_rem(other) }
            }

            #[inline(always)]
            fn neg(self) -> Self {
                self.wrapping_neg()
            }

            #[inline(always)]
            fn abs(self) -> Self {
                let abs: fn($t) -> $t = $abs;
                abs(self)
            }

            #[inline(always)]
            fn erf(self) -> Self {
                libm::erf(self as f64) as $t
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $t
            }
        }
    )+ };
}

integer! {
    i8 i8::wrapping_abs;
    i16 i16::wrapping_abs;
    i32 i32::wrapping_abs;
    i64 i64::wrapping_abs;
    u8 |x| x;
    u16 |x| x;
    u32 |x| x;
    u64 |x| x;
}
