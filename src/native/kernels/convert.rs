//! Conversion of one number, for Cast.
//!
//! Sources widen to one of four types without loss (f16, bf16 and the minifloats to f32,
//! integers to i64 or u64); each destination says how it takes those four.

use half::{bf16, f16};

use super::number::Number;

/// A lossless intermediate of Cast, with ONNX's rule for each kind of destination.
pub(super) trait Wide: Copy + Default {
    fn to_f64(self) -> f64;
    fn to_f32(self) -> f32;
    fn to_f16(self) -> f16;
    fn to_bf16(self) -> bf16;
    /// Truncated towards zero; out of range, which ONNX leaves open: the nearest end for 64
    /// and 32 bits, and the low bits of that for narrower types (as the suite's 4-bit and
    /// 2-bit cases have it).
    fn to_i64(self) -> i64;
    fn to_i32(self) -> i32;
    fn to_u64(self) -> u64;
    fn to_u32(self) -> u32;
    fn is_zero(self) -> bool;
    fn to_text(self) -> String;

    /// [`to_f16`](Self::to_f16) of as many as there are of both.
    fn to_f16_all(wide: &[Self], to: &mut [f16]) {
        for (to, &wide) in to.iter_mut().zip(wide) {
            *to = wide.to_f16();
        }
    }

    /// [`to_bf16`](Self::to_bf16) of as many as there are of both.
    fn to_bf16_all(wide: &[Self], to: &mut [bf16]) {
        for (to, &wide) in to.iter_mut().zip(wide) {
            *to = wide.to_bf16();
        }
    }
}

/// Plain decimal notation, the shortest that reads back as the same value.
macro_rules! float_text {
    ($value:expr) => {
        match $value {
            value if value.is_nan() => "NaN".to_owned(),
            value if value.is_infinite() && value > 0.0 => "INF".to_owned(),
            value if value.is_infinite() => "-INF".to_owned(),
            value => value.to_string(),
        }
    };
}

macro_rules! wide_float {
    ($t:ident $({ $($faster:tt)* })?) => {
        impl Wide for $t {
            $($($faster)*)?

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }

            #[inline(always)]
            fn to_f16(self) -> f16 {
                wide_float!(@half f16 $t self)
            }

            #[inline(always)]
            fn to_bf16(self) -> bf16 {
                wide_float!(@half bf16 $t self)
            }

            #[inline(always)]
            fn to_i64(self) -> i64 {
                self as i64
            }

            #[inline(always)]
            fn to_i32(self) -> i32 {
                self as i32
            }

            #[inline(always)]
            fn to_u64(self) -> u64 {
                if self < 0.0 { self as i64 as u64 } else { self as u64 }
            }

            #[inline(always)]
            fn to_u32(self) -> u32 {
                if self < 0.0 { self as i64 as u32 } else { self as u32 }
            }

            #[inline(always)]
            fn is_zero(self) -> bool {
                self == 0.0
            }

            fn to_text(self) -> String {
                float_text!(self)
            }
        }
    };
    (@half $half:ident f32 $value:expr) => {
        $half::from_f32($value)
    };
    (@half $half:ident f64 $value:expr) => {
        $half::from_f64($value)
    };
}

wide_float!(f32 {
    fn to_f16_all(wide: &[f32], to: &mut [f16]) {
        f16::narrow_all(wide, to);
    }

    fn to_bf16_all(wide: &[f32], to: &mut [bf16]) {
        bf16::narrow_all(wide, to);
    }
});
wide_float!(f64);

macro_rules! wide_integer {
    ($t:ident) => {
        impl Wide for $t {
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }

            #[inline(always)]
            fn to_f16(self) -> f16 {
                f16::from_f64(self as f64)
            }

            #[inline(always)]
            fn to_bf16(self) -> bf16 {
                bf16::from_f64(self as f64)
            }

            #[inline(always)]
            fn to_i64(self) -> i64 {
                self as i64
            }

            #[inline(always)]
            fn to_i32(self) -> i32 {
                self as i32
            }

            #[inline(always)]
            fn to_u64(self) -> u64 {
                self as u64
            }

            #[inline(always)]
            fn to_u32(self) -> u32 {
                self as u32
            }

            #[inline(always)]
            fn is_zero(self) -> bool {
                self == 0
            }

            fn to_text(self) -> String {
                self.to_string()
            }
        }
    };
}

wide_integer!(i64);
wide_integer!(u64);

/// A number written as ONNX's Cast reads it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Parsed {
    Integer(i64),
    Unsigned(u64),
    Float(f64),
}

impl Parsed {
    pub fn to_f64(self) -> f64 {
        match self {
            Parsed::Integer(value) => value.to_f64(),
            Parsed::Unsigned(value) => value.to_f64(),
            Parsed::Float(value) => value,
        }
    }

    pub fn to_i64(self) -> i64 {
        match self {
            Parsed::Integer(value) => value,
            Parsed::Unsigned(value) => value.to_i64(),
            Parsed::Float(value) => value.to_i64(),
        }
    }

    pub fn to_u64(self) -> u64 {
        match self {
            Parsed::Integer(value) => value.to_u64(),
            Parsed::Unsigned(value) => value,
            Parsed::Float(value) => value.to_u64(),
        }
    }
}

/// Decimal or scientific notation, or `INF`, `+INF`, `-INF`, `NaN` in any case.
pub(super) fn parse(text: &str) -> Option<Parsed> {
    let text = text.trim();
    if let Ok(value) = text.parse() {
        return Some(Parsed::Integer(value));
    }
    if let Ok(value) = text.parse() {
        return Some(Parsed::Unsigned(value));
    }
    text.parse().ok().map(Parsed::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_the_specification_reserves() {
        assert_eq!(parse("1e-5"), Some(Parsed::Float(1e-5)));
        assert_eq!(parse("+inf"), Some(Parsed::Float(f64::INFINITY)));
        assert_eq!(parse("-INF"), Some(Parsed::Float(f64::NEG_INFINITY)));
        assert!(matches!(parse("nan"), Some(Parsed::Float(value)) if value.is_nan()));
        assert_eq!(parse("18446744073709551615"), Some(Parsed::Unsigned(u64::MAX)));
        assert_eq!(parse("Hello World!"), None);
        assert_eq!(314.15926_f64.to_text(), "314.15926");
        assert_eq!(f32::NEG_INFINITY.to_text(), "-INF");
        assert_eq!(0.1_f32.to_text(), "0.1");
    }

    #[test]
    fn integers_keep_their_low_bits() {
        // The specification's example: 200 (int16) to int8 is -56.
        assert_eq!(200_i64.to_i32() as i8, -56);
        assert_eq!((-1.0_f32).to_u64(), u64::MAX);
        assert_eq!(9.0_f32.to_i32() & 15, 9);
    }
}
