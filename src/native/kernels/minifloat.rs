//! The 8-bit and 4-bit floats: decoding to f32 (exact) and rounding from f64.
//!
//! A code is sign, exponent, mantissa. With exponent field e > 0 the magnitude is
//! (2^m + mantissa) * 2^(e - 1 + min_exponent - m), with e = 0 it is
//! mantissa * 2^(min_exponent - m). Formats and special codes: ONNX "Float stored in 8
//! bits" and "4 bit floating point", and the table in the specification of Cast.

/// What a format does beyond its finite numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Infinities and NaNs as in IEEE 754: the highest exponent field.
    Ieee,
    /// No infinity; NaN is all ones after the sign.
    Fn,
    /// No infinity and no -0; NaN is the code of -0.
    Fnuz,
    /// Finite numbers only.
    None,
}

/// A signed format narrow enough for a byte.
pub(super) struct Minifloat {
    mantissa_bits: u32,
    min_exponent: i32,
    max: f64,
    max_code: u8,
    sign: u8,
    special: Special,
}

pub(super) const E4M3FN: Minifloat = Minifloat {
    mantissa_bits: 3,
    min_exponent: -6,
    max: 448.0,
    max_code: 0x7e,
    sign: 0x80,
    special: Special::Fn,
};

pub(super) const E4M3FNUZ: Minifloat = Minifloat {
    mantissa_bits: 3,
    min_exponent: -7,
    max: 240.0,
    max_code: 0x7f,
    sign: 0x80,
    special: Special::Fnuz,
};

pub(super) const E5M2: Minifloat = Minifloat {
    mantissa_bits: 2,
    min_exponent: -14,
    max: 57344.0,
    max_code: 0x7b,
    sign: 0x80,
    special: Special::Ieee,
};

pub(super) const E5M2FNUZ: Minifloat = Minifloat {
    mantissa_bits: 2,
    min_exponent: -15,
    max: 57344.0,
    max_code: 0x7f,
    sign: 0x80,
    special: Special::Fnuz,
};

pub(super) const E2M1: Minifloat = Minifloat {
    mantissa_bits: 1,
    min_exponent: 0,
    max: 6.0,
    max_code: 0x7,
    sign: 0x8,
    special: Special::None,
};

/// 2^exponent for the exponents of an f64.
fn exp2i(exponent: i32) -> f64 {
    if exponent >= -1022 {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    } else {
        f64::from_bits(1u64 << (exponent + 1074).max(0))
    }
}

/// floor(log2 x) for a positive finite x.
fn floor_log2(x: f64) -> i32 {
    let field = (x.to_bits() >> 52) as i32 & 0x7ff;
    if field == 0 {
        63 - x.to_bits().leading_zeros() as i32 - 1074
    } else {
        field - 1023
    }
}

impl Minifloat {
    pub fn decode(&self, code: u8) -> f32 {
        let magnitude = code & (self.sign - 1);
        let negative = code & self.sign != 0;
        match self.special {
            Special::Fnuz if negative && magnitude == 0 => return f32::NAN,
            Special::Fn if magnitude > self.max_code => return f32::NAN,
            Special::Ieee if magnitude > self.max_code + 1 => return f32::NAN,
            Special::Ieee if magnitude == self.max_code + 1 => {
                return if negative {
                    f32::NEG_INFINITY
                } else {
                    f32::INFINITY
                };
            }
            _ => {}
        }
        let field = i32::from(magnitude >> self.mantissa_bits);
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let (digits, exponent) = match field {
            0 => (mantissa, self.min_exponent),
            _ => (mantissa | 1 << self.mantissa_bits, field - 1 + self.min_exponent),
        };
        let value = f64::from(digits) * exp2i(exponent - self.mantissa_bits as i32);
        (if negative { -value } else { value }) as f32
    }

    /// The nearest number, ties to even. Beyond the largest finite one: that one when
    /// `saturate`, else the format's infinity, else its NaN.
    pub fn encode(&self, x: f64, saturate: bool) -> u8 {
        let sign = if x.is_sign_negative() { self.sign } else { 0 };
        if x.is_nan() {
            return match self.special {
                Special::Ieee => sign | (self.max_code + 3),
                Special::Fn => sign | (self.max_code + 1),
                Special::Fnuz => self.sign,
                // No NaN to give; -0 is what the ml_dtypes package, and so ONNX's tests, make of it.
                Special::None => self.sign,
            };
        }
        let magnitude = x.abs();
        let exponent = match magnitude {
            0.0 => self.min_exponent,
            m if m.is_infinite() => 1023,
            m => floor_log2(m).max(self.min_exponent),
        };
        let quantum = exp2i(exponent - self.mantissa_bits as i32);
        let digits = (magnitude / quantum).round_ties_even();
        if digits * quantum > self.max {
            return match self.special {
                _ if saturate => sign | self.max_code,
                Special::None => sign | self.max_code,
                Special::Ieee => sign | (self.max_code + 1),
                Special::Fn => sign | (self.max_code + 1),
                Special::Fnuz => self.sign,
            };
        }
        // For a normal number `digits` carries the implicit leading one, which adds 1 to the
        // exponent field; a carry out of the mantissa does the same once more.
        let code = (((exponent - self.min_exponent) as u32) << self.mantissa_bits) + digits as u32;
        match (self.special, code as u8) {
            (Special::Fnuz, 0) => 0,
            (_, code) => sign | code,
        }
    }
}

/// How Cast rounds to float8e8m0 (attribute `round_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum E8M0Rounding {
    Up,
    Down,
    Nearest,
}

/// 2^(code - 127); code 255 is NaN.
pub(super) fn decode_e8m0(code: u8) -> f32 {
    match code {
        255 => f32::NAN,
        _ => exp2i(i32::from(code) - 127) as f32,
    }
}

/// The power of two for |x| (the format has no sign; ONNX leaves negative x open). Out of
/// range, zero and infinity: the nearest end when `saturate`, else NaN.
pub(super) fn encode_e8m0(x: f64, saturate: bool, rounding: E8M0Rounding) -> u8 {
    const NAN: u8 = 255;
    const MAX: u8 = 254;
    let magnitude = x.abs();
    if magnitude.is_nan() {
        return NAN;
    }
    if magnitude == 0.0 || magnitude.is_infinite() {
        return match (saturate, magnitude == 0.0) {
            (false, _) => NAN,
            (true, true) => 0,
            (true, false) => MAX,
        };
    }
    let exponent = floor_log2(magnitude);
    let fraction = magnitude / exp2i(exponent);
    let up = match rounding {
        E8M0Rounding::Up => fraction > 1.0,
        E8M0Rounding::Down => false,
        E8M0Rounding::Nearest => fraction >= 1.5,
    };
    match exponent + i32::from(up) + 127 {
        code @ 0..=254 => code as u8,
        _ if !saturate => NAN,
        code if code < 0 => 0,
        _ => MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [&Minifloat; 5] = [&E4M3FN, &E4M3FNUZ, &E5M2, &E5M2FNUZ, &E2M1];

    #[test]
    fn every_code_survives_a_round_trip() {
        for format in FORMATS {
            for code in 0..=(format.sign | (format.sign - 1)) {
                let value = format.decode(code);
                let back = format.encode(value.into(), false);
                assert!(
                    back == code || value.is_nan(),
                    "code {code:#x} came back as {back:#x}"
                );
                assert_eq!(value.is_nan(), format.decode(back).is_nan());
            }
        }
        for code in 0..=255 {
            assert_eq!(
                encode_e8m0(decode_e8m0(code).into(), false, E8M0Rounding::Nearest),
                code
            );
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_code_with_ties_to_even() {
        for format in FORMATS {
            for code in 0..format.max_code {
                let (low, high) = (f64::from(format.decode(code)), f64::from(format.decode(code + 1)));
                let middle = (low + high) / 2.0;
                let even = if code % 2 == 0 { code } else { code + 1 };
                assert_eq!(format.encode(middle, true), even);
                assert_eq!(format.encode(middle * (1.0 - 1e-12), true), code);
                assert_eq!(format.encode(middle * (1.0 + 1e-12), true), code + 1);
            }
        }
    }

    #[test]
    fn published_values() {
        // ONNX, "Float stored in 8 bits": the extremes of each format.
        assert_eq!(E4M3FN.decode(0x7e), 448.0);
        assert_eq!(E4M3FN.decode(0x01), 0.001953125);
        assert_eq!(E4M3FNUZ.decode(0x7f), 240.0);
        assert_eq!(E5M2.decode(0x7b), 57344.0);
        assert_eq!(E5M2.decode(0xfc), f32::NEG_INFINITY);
        assert_eq!(E5M2FNUZ.decode(0x7f), 57344.0);
        assert_eq!(E2M1.decode(0xf), -6.0);
        assert!(E4M3FNUZ.decode(0x80).is_nan());
        assert_eq!(encode_e8m0(1.1, true, E8M0Rounding::Up), 128);
        assert_eq!(encode_e8m0(1.1, true, E8M0Rounding::Down), 127);
        assert_eq!(encode_e8m0(1.5, true, E8M0Rounding::Nearest), 128);
        assert_eq!(encode_e8m0(0.0, false, E8M0Rounding::Nearest), 255);
        assert_eq!(encode_e8m0(f64::INFINITY, true, E8M0Rounding::Up), 254);
    }
}
