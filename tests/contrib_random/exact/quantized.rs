//! Quantised weights, dequantised: (q - zero point) scale, of a block along an axis.

use oxpipe_test_support::onnx_writer::{FLOAT8E4M3FN, FLOAT8E5M2, UINT8};

use super::Array;
use crate::harness::{Case, Value};
use crate::quantized_weights::{FLOAT4E2M1, FLOAT8E4M3FNUZ, FLOAT8E5M2FNUZ, INT4, UINT4, element};

/// A float of `exponent` bits and `mantissa` bits, below a sign.
fn small_float(bits: u8, exponent: u32, mantissa: u32, bias: i32) -> f64 {
    let fraction = f64::from(u32::from(bits) & ((1 << mantissa) - 1)) / f64::from(1 << mantissa);
    let power = (u32::from(bits) >> mantissa & ((1 << exponent) - 1)) as i32;
    let size = match power {
        0 => fraction * 2f64.powi(1 - bias),
        _ => (1.0 + fraction) * 2f64.powi(power - bias),
    };
    match bits >> (exponent + mantissa) & 1 {
        0 => size,
        _ => -size,
    }
}

/// An element of raw data.
fn decode(data_type: i32, bytes: &[u8], bits: usize, at: usize) -> f64 {
    let q = element(bytes, bits, at);
    match data_type {
        UINT8 | UINT4 => q.into(),
        INT4 => f64::from((q << 4) as i8 >> 4),
        FLOAT8E4M3FN => small_float(q, 4, 3, 7),
        FLOAT8E4M3FNUZ => small_float(q, 4, 3, 8),
        FLOAT8E5M2 => small_float(q, 5, 2, 15),
        FLOAT8E5M2FNUZ => small_float(q, 5, 2, 16),
        FLOAT4E2M1 => small_float(q, 2, 1, 1),
        other => panic!("data of type {other}"),
    }
}

/// The table in full, in which elements that are not stored are dims of the last axis.
fn table(case: &Case, data: &Value, scales: &Array, zero_points: Option<&Value>) -> Array {
    let (data_type, bytes) = data.raw_data();
    let bits = case.int_of("bits", 4) as usize;
    let block_size = case.int_of("block_size", 128) as usize;
    let rank = data.dims.len();
    let axis = case.int_of("quantize_axis", 1);
    let axis = if axis < 0 { axis + rank as i64 } else { axis } as usize;
    let mut dims = data.dims.clone();
    let per_byte = if data_type == UINT8 { 8 / bits } else { 1 };
    dims[rank - 1] *= per_byte;
    let bits_of_points = |points: &Value| {
        // Packed along the last axis, which ends with whole bytes in uint8.
        let mut dims = points.dims.clone();
        dims[rank - 1] *= per_byte;
        dims
    };
    let flat = |dims: &[usize], i: &[usize]| i.iter().zip(dims).fold(0, |at, (i, dim)| at * dim + i);
    let mut at = 0;
    Array::of(&dims, |i| {
        let mut block = i.to_vec();
        block[axis] /= block_size;
        let point = match zero_points {
            Some(points) => {
                let at = flat(&bits_of_points(points), &block);
                decode(data_type, points.raw_data().1, bits, at)
            }
            None if data_type == UINT8 => f64::from(1 << (bits - 1)),
            None => 0.0,
        };
        let q = decode(data_type, bytes, bits, at);
        at += 1;
        (q - point) * scales.at(&block)
    })
}

pub fn gather(case: &Case) -> Vec<Array> {
    let data = case.value(0).unwrap();
    let scales = case.array(2).unwrap();
    let table = table(case, data, &scales, case.value(3));
    let indices = case.array(1).unwrap();
    let axis = case.int_of("gather_axis", 0) as usize;
    let rank = indices.dims.len();
    let dims = [&table.dims[..axis], &indices.dims, &table.dims[axis + 1..]].concat();
    let size = table.dims[axis] as f64;
    vec![Array::of(&dims, |i| {
        let index = indices.at(&i[axis..axis + rank]);
        let index = if index < 0.0 { index + size } else { index };
        match (0.0..size).contains(&index) {
            true => table.at(&[&i[..axis], &[index as usize], &i[axis + rank..]].concat()),
            // Out of range.
            false => 0.0,
        }
    })]
}

#[test]
fn small_floats_have_their_values() {
    assert_eq!(small_float(0x7e, 4, 3, 7), 448.0);
    assert_eq!(small_float(0x01, 4, 3, 7), 2f64.powi(-9));
    assert_eq!(small_float(0xfb, 5, 2, 15), -57344.0);
    assert_eq!(small_float(0x7, 2, 1, 1), 6.0);
    assert_eq!(small_float(0xb, 2, 1, 1), -1.5);
}
