//! Attention of ONNX, of opsets 23 and 24.

use oxpipe_test_support::onnx_writer::BOOL;

use crate::harness::{Case, Value};
use crate::{Choices, same_as_ort};

#[test]
fn attention() {
    same_as_ort(90, 300, 2e-5, |numbers| {
        let (batch, kv_heads, group) = (
            numbers.between(1, 2),
            numbers.between(1, 2),
            numbers.between(1, 2),
        );
        let heads = kv_heads * group;
        let (size, v_size) = (numbers.between(1, 6), numbers.between(1, 6));
        let (queries, keys) = (numbers.between(1, 5), numbers.between(1, 5));
        let past = numbers.flag().then(|| numbers.between(0, 4));
        let total = keys + past.unwrap_or(0);
        let opset = numbers.pick(&[23, 24]);
        let three = numbers.flag();
        let mut operand = |heads: usize, rows: usize, size: usize| match three {
            true => numbers.value(&[batch, rows, heads * size], 1.5),
            false => numbers.value(&[batch, heads, rows, size], 1.5),
        };
        let (q, k, v) = (
            operand(heads, queries, size),
            operand(kv_heads, keys, size),
            operand(kv_heads, keys, v_size),
        );
        let mask = match numbers.below(3) {
            0 => None,
            which => {
                let dims = match numbers.below(3) {
                    0 => vec![queries, total],
                    1 => vec![1, heads, queries, total],
                    _ => vec![batch, 1, queries, total],
                };
                let count: usize = dims.iter().product();
                Some(match which {
                    1 => numbers.value(&dims, 2.0),
                    _ => {
                        // The first key is always seen.
                        let bits = (0..count).map(|i| u8::from(i % total == 0 || numbers.flag()));
                        Value::raw(BOOL, &dims, bits.collect())
                    }
                })
            }
        };
        // Of one query ONNX Runtime ignores is_causal, as if it were the last.
        let causal = numbers.flag() && (queries > 1 || keys == 1);
        let mut case = Case::standard("Attention", opset)
            .input(q)
            .input(k)
            .input(v)
            .input(mask)
            .input(past.map(|past| numbers.value(&[batch, kv_heads, past, size], 1.5)))
            .input(past.map(|past| numbers.value(&[batch, kv_heads, past, v_size], 1.5)))
            .int("is_causal", causal)
            .output()
            .output_if(past.is_some())
            .output_if(past.is_some());
        if three {
            case = case
                .int("q_num_heads", heads as i64)
                .int("kv_num_heads", kv_heads as i64);
        }
        if numbers.flag() {
            case = case.float("scale", 0.4);
        }
        if numbers.flag() {
            case = case.float("softcap", 0.8);
        }
        Some(case)
    });
}
