//! Whether a result is what a case expects, by the tolerance of ONNX's own test runner:
//! |found - expected| <= 1e-7 + 1e-3 |expected| for floats (2^-6 |expected| for bfloat16), NaN
//! where NaN is expected, and equality for everything else.

use half::{bf16, f16};
use oxpipe::native::element::{
    Bool, Complex64, Complex128, ElementType, F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0,
};
use oxpipe::native::tensor::TensorRef;
use oxpipe::native::value::ValueRef;

const ABSOLUTE: f64 = 1e-7;
const RELATIVE: f64 = 1e-3;
/// Two units in the last place.
const RELATIVE_OF_BFLOAT16: f64 = 1.0 / 64.0;

pub fn compare(found: ValueRef<'_>, expected: ValueRef<'_>) -> Result<(), String> {
    match (found, expected) {
        (ValueRef::Tensor(found), ValueRef::Tensor(expected)) => compare_tensors(found, expected),
        (ValueRef::Sequence(found), ValueRef::Sequence(expected))
            if found.element_type() == expected.element_type()
                && found.tensors().len() == expected.tensors().len() =>
        {
            let pairs = found.tensors().iter().zip(expected.tensors());
            for (at, (found, expected)) in pairs.enumerate() {
                compare_tensors(found.view(), expected.view())
                    .map_err(|error| format!("tensor {at}: {error}"))?;
            }
            Ok(())
        }
        (ValueRef::Optional(None), ValueRef::Optional(None)) => Ok(()),
        (ValueRef::Optional(Some(found)), ValueRef::Optional(Some(expected))) => {
            compare(found.view(), expected.view())
        }
        _ => Err(format!("is {found:?}, expected {expected:?}")),
    }
}

fn compare_tensors(found: TensorRef<'_>, expected: TensorRef<'_>) -> Result<(), String> {
    if found.element_type() != expected.element_type() || found.dims() != expected.dims() {
        return Err(format!("is {found:?}, expected {expected:?}"));
    }
    if expected.element_type() == ElementType::String {
        let (found, expected) = (found.strings().unwrap(), expected.strings().unwrap());
        return match found.iter().zip(expected).position(|(a, b)| a != b) {
            Some(at) => Err(format!(
                "element {at} is {:?}, expected {:?}",
                found[at], expected[at]
            )),
            None => Ok(()),
        };
    }
    let expected_type = expected.element_type();
    if let (Some(found), Some(expected)) = (floats(found), floats(expected)) {
        let relative = match expected_type {
            ElementType::Bfloat16 => RELATIVE_OF_BFLOAT16,
            _ => RELATIVE,
        };
        let differ = found
            .iter()
            .zip(&expected)
            .position(|(&a, &b)| !close(a, b, relative));
        return match differ {
            Some(at) => Err(format!(
                "element {at} is {}, expected {} ({} of {} elements differ)",
                found[at],
                expected[at],
                found
                    .iter()
                    .zip(&expected)
                    .filter(|&(&a, &b)| !close(a, b, relative))
                    .count(),
                expected.len()
            )),
            None => Ok(()),
        };
    }
    let (found_bytes, expected_bytes) = (bytes(found), bytes(expected));
    match found_bytes.iter().zip(&expected_bytes).position(|(a, b)| a != b) {
        Some(at) => {
            let size = expected.element_type().size().unwrap();
            let element = at / size;
            Err(format!(
                "element {element} is {:?}, expected {:?} (little-endian bytes)",
                &found_bytes[element * size..][..size],
                &expected_bytes[element * size..][..size]
            ))
        }
        None => Ok(()),
    }
}

fn close(found: f64, expected: f64, relative: f64) -> bool {
    if expected.is_nan() || found.is_nan() {
        return expected.is_nan() && found.is_nan();
    }
    found == expected || (found - expected).abs() <= ABSOLUTE + relative * expected.abs()
}

/// The elements of a tensor of integers, as bytes; any true is 1.
fn bytes(tensor: TensorRef<'_>) -> Vec<u8> {
    match tensor.slice::<Bool>() {
        Ok(bools) => bools.iter().map(|value| value.get().into()).collect(),
        Err(_) => tensor.bytes().unwrap().to_vec(),
    }
}

/// The elements of a tensor of floats, the parts of complex numbers one after the other.
fn floats(tensor: TensorRef<'_>) -> Option<Vec<f64>> {
    use ElementType as E;
    let floats = match tensor.element_type() {
        E::Float32 => tensor.slice::<f32>().unwrap().iter().map(|&x| x.into()).collect(),
        E::Float64 => tensor.slice::<f64>().unwrap().to_vec(),
        E::Float16 => tensor.slice::<f16>().unwrap().iter().map(|&x| x.into()).collect(),
        E::Bfloat16 => tensor
            .slice::<bf16>()
            .unwrap()
            .iter()
            .map(|&x| x.into())
            .collect(),
        E::Complex64 => {
            let values = tensor.slice::<Complex64>().unwrap().iter();
            values.flat_map(|x| [x.re.into(), x.im.into()]).collect()
        }
        E::Complex128 => {
            let values = tensor.slice::<Complex128>().unwrap().iter();
            values.flat_map(|x| [x.re, x.im]).collect()
        }
        E::Float8E4M3FN => codes::<F8E4M3FN>(tensor, |x| minifloat(x.0, 4, 7, Some(0x7f))),
        E::Float8E4M3FNUZ => codes::<F8E4M3FNUZ>(tensor, |x| minifloat(x.0, 4, 8, None)),
        E::Float8E5M2 => codes::<F8E5M2>(tensor, |x| ieee_e5m2(x.0)),
        E::Float8E5M2FNUZ => codes::<F8E5M2FNUZ>(tensor, |x| minifloat(x.0, 5, 16, None)),
        E::Float4E2M1 => codes::<F4E2M1>(tensor, |x| {
            let sign = if x.0 & 8 == 0 { 1.0 } else { -1.0 };
            sign * [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(x.0 & 7)]
        }),
        E::Float8E8M0 => codes::<F8E8M0>(tensor, |x| match x.0 {
            255 => f64::NAN,
            code => (f64::from(code) - 127.0).exp2(),
        }),
        _ => return None,
    };
    Some(floats)
}

fn codes<T: oxpipe::native::element::Element>(tensor: TensorRef<'_>, decode: impl Fn(T) -> f64) -> Vec<f64> {
    tensor
        .slice::<T>()
        .unwrap()
        .iter()
        .map(|&code| decode(code))
        .collect()
}

/// E5M2 is the upper byte of an IEEE half.
fn ieee_e5m2(code: u8) -> f64 {
    f16::from_bits(u16::from(code) << 8).into()
}

/// A code without infinities; NaN is `nan` whatever the sign, or else the code of -0.
fn minifloat(code: u8, exponent_bits: u32, bias: i32, nan: Option<u8>) -> f64 {
    let magnitude = code & 0x7f;
    let is_nan = match nan {
        Some(nan) => magnitude == nan,
        None => code == 0x80,
    };
    if is_nan {
        return f64::NAN;
    }
    let mantissa_bits = 7 - exponent_bits;
    let exponent = i32::from(magnitude >> mantissa_bits);
    let fraction = f64::from(magnitude & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    let value = match exponent {
        0 => fraction * f64::from(1 - bias).exp2(),
        _ => (1.0 + fraction) * f64::from(exponent - bias).exp2(),
    };
    if code & 0x80 == 0 { value } else { -value }
}
