//! QuantizeLinear and DequantizeLinear, Cast.

use oxpipe_test_support::onnx_writer::{
    BFLOAT16, BOOL, FLOAT, FLOAT8E4M3FN, FLOAT8E5M2, FLOAT16, INT8, INT16, INT32, INT64, UINT8, UINT16,
};

use crate::harness::{Case, Value};
use crate::{Choices, same_as_ort};

/// Scales of a tensor, an axis or blocks, and the attributes that say so.
#[test]
fn quantize_and_dequantize() {
    same_as_ort(80, 250, 1e-6, |numbers| {
        let rank = numbers.between(1, 4);
        let mut dims = numbers.dims(rank, 1, 4);
        let axis = numbers.axis(rank);
        let at = axis.rem_euclid(rank as i64) as usize;
        let mut scale_dims = Vec::new();
        let mut block_size = 0;
        match numbers.below(3) {
            0 => {}
            1 => scale_dims = vec![dims[at]],
            _ => {
                block_size = numbers.between(1, 3);
                scale_dims = dims.clone();
                dims[at] *= block_size;
            }
        }
        let data_type = numbers.pick(&[UINT8, INT8, UINT16, INT16]);
        let bytes = if [UINT16, INT16].contains(&data_type) {
            2
        } else {
            1
        };
        let scale_count: usize = scale_dims.iter().product();
        let scales: Vec<f32> = numbers
            .floats(scale_count, 0.02)
            .iter()
            .map(|x| x.abs() + 0.01)
            .collect();
        let points = Value::raw(data_type, &scale_dims, numbers.bytes(scale_count * bytes));
        let points = numbers.flag().then_some(points);
        let dequantize = numbers.flag() || points.is_none() && data_type != UINT8;
        let (op_type, x) = match dequantize {
            true => {
                let count: usize = dims.iter().product();
                (
                    "DequantizeLinear",
                    Value::raw(data_type, &dims, numbers.bytes(count * bytes)),
                )
            }
            // Beyond what fits, too.
            false => ("QuantizeLinear", numbers.value(&dims, 6.0)),
        };
        let mut case = Case::standard(op_type, 21)
            .input(x)
            .input(Value::floats(&scale_dims, scales))
            .input(points)
            .int("axis", axis);
        if block_size > 0 {
            case = case.int("block_size", block_size as i64);
        }
        Some(if dequantize {
            case.output()
        } else {
            case.output_of(data_type)
        })
    });
}

#[test]
fn cast() {
    let types = [
        BOOL,
        INT8,
        UINT8,
        INT16,
        UINT16,
        INT32,
        INT64,
        FLOAT16,
        BFLOAT16,
        FLOAT,
        FLOAT8E4M3FN,
        FLOAT8E5M2,
    ];
    same_as_ort(81, 250, 0.0, |numbers| {
        let (from, to) = (numbers.pick(&types), numbers.pick(&types));
        let count = 24;
        let is_float8 = |data_type: i32| [FLOAT8E4M3FN, FLOAT8E5M2].contains(&data_type);
        if is_float8(from) && is_float8(to) {
            return None;
        }
        let saturate = numbers.flag();
        let mut integers = |least: i64, most: i64| numbers.ints(count, least, most);
        let x = match from {
            BOOL => Value::raw(BOOL, &[count], integers(0, 1).iter().map(|&x| x as u8).collect()),
            INT8 => Value::raw(
                INT8,
                &[count],
                integers(-128, 127).iter().map(|&x| x as u8).collect(),
            ),
            UINT8 => Value::raw(
                UINT8,
                &[count],
                integers(0, 255).iter().map(|&x| x as u8).collect(),
            ),
            // No NaN of any sign: what a NaN becomes is not said.
            FLOAT8E4M3FN => Value::raw(
                from,
                &[count],
                integers(0, 126).iter().map(|&x| x as u8).collect(),
            ),
            FLOAT8E5M2 => Value::raw(
                from,
                &[count],
                integers(0, 120).iter().map(|&x| x as u8).collect(),
            ),
            INT16 | UINT16 => {
                let values = integers(0, 65535);
                Value::raw(
                    from,
                    &[count],
                    values.iter().flat_map(|&x| (x as u16).to_le_bytes()).collect(),
                )
            }
            INT32 => Value::i32s(
                &[count],
                &integers(-70000, 70000)
                    .iter()
                    .map(|&x| x as i32)
                    .collect::<Vec<_>>(),
            ),
            INT64 => Value::i64s(&[count], &integers(-70000, 70000)),
            _ => {
                // A float that does not fit an integer becomes anything.
                let most = match to {
                    INT8 | UINT8 => 120.0,
                    UINT16 | INT16 => 30000.0,
                    _ => 60000.0,
                };
                let least = if [UINT8, UINT16].contains(&to) { 0.0 } else { -most };
                let unit = numbers.floats(count, 1.0);
                let values: Vec<f32> = unit
                    .iter()
                    .map(|x| least + (x + 1.0) / 2.0 * (most - least))
                    .collect();
                Value::raw(
                    from,
                    &[count],
                    values
                        .iter()
                        .flat_map(|&x| match from {
                            FLOAT16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
                            BFLOAT16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
                            _ => x.to_le_bytes().to_vec(),
                        })
                        .collect(),
                )
            }
        };
        let case = Case::standard("Cast", 19)
            .input(x)
            .int("to", i64::from(to))
            .output_of(to);
        Some(match is_float8(to) {
            true => case.int("saturate", saturate),
            false => case,
        })
    });
}
