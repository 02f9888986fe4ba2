//! SimplifiedLayerNormalization and the norms of a sum.

use proptest::prelude::*;

use crate::harness::{Case, Float, Numbers, check_all};

#[test]
fn norms_with_and_without_a_skip() {
    let norm = (
        prop::sample::select(vec![
            "SimplifiedLayerNormalization",
            "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization",
        ]),
        // Enough that no row is of nearly equal elements, whose difference is all error.
        (1usize..4, 1usize..6, 8usize..70),
        any::<[bool; 5]>(),
        prop::sample::select(vec![Float::F16, Float::Bf16]),
        any::<u64>(),
    );
    check_all(25, 150, norm, |(op_type, (b, s, hidden), flags, half, seed)| {
        let [beta, bias, repeated, sum, epsilon] = flags;
        let mut numbers = Numbers::new(seed);
        let x = numbers.value(&[b, s, hidden], 2.0);
        let gamma = numbers.value(&[hidden], 1.0);
        let mut case = match op_type {
            // ONNX Runtime has it in ONNX's own domain.
            "SimplifiedLayerNormalization" => Case::standard(op_type, 21).int("axis", -1),
            _ => Case::new(op_type),
        };
        case = case.input(x);
        if op_type == "SimplifiedLayerNormalization" {
            case = case.input(gamma).output();
        } else {
            let skip = numbers.value(&[if repeated { 1 } else { b }, s, hidden], 1.0);
            case = case.input(skip).input(gamma);
            if op_type == "SkipLayerNormalization" {
                case = case.input(beta.then(|| numbers.value(&[hidden], 1.0)));
            }
            case = case
                .input(bias.then(|| numbers.value(&[hidden], 1.0)))
                .output()
                .output_if(false)
                .output_if(false)
                .output_if(sum);
        }
        if epsilon {
            case = case.float("epsilon", 1e-2);
        }
        case.check(half)
    });
}
