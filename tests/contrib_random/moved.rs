//! Operators that ai.onnx has since then, under their older names, and small ones of shapes.

use oxpipe_test_support::onnx_writer::INT64;
use proptest::prelude::*;

use crate::harness::{Case, Float, Numbers, Value, check_all};

fn shape() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..5, 1..4)
}

#[test]
fn shapes() {
    let cases = (shape(), 0usize..6, any::<[bool; 2]>(), any::<u64>());
    check_all(50, 200, cases, |(dims, which, [a, b], seed)| {
        let mut numbers = Numbers::new(seed);
        let rank = dims.len();
        let case = match which {
            0 => {
                let dims = [&dims[..], &[3, 4]].concat();
                let k = numbers.below(7) as i64 - 3;
                Case::new("Trilu")
                    .input(numbers.value(&dims, 1.0))
                    .input(a.then(|| Value::i64s(&[], &[k])))
                    .int("upper", b)
                    .output()
            }
            1 => {
                let axis = numbers.below(2 * rank + 2) as i32 - rank as i32 - 1;
                Case::new("ExpandDims")
                    .input(numbers.value(&dims, 1.0))
                    .input(Value::i32s(&[], &[axis]).constant())
                    .output()
            }
            2 => {
                let depth = 1 + numbers.below(rank);
                let rows = 1 + numbers.below(4);
                let indices: Vec<i64> = (0..rows)
                    .flat_map(|_| {
                        dims[..depth]
                            .iter()
                            .map(|&d| numbers.below(d) as i64)
                            .collect::<Vec<_>>()
                    })
                    .collect();
                Case::new("GatherND")
                    .input(numbers.value(&dims, 1.0))
                    .input(Value::i64s(&[rows, depth], &indices))
                    .output()
            }
            3 => {
                let mode = ["constant", "edge", "reflect"][numbers.below(3)];
                let most = |d: usize| if mode == "reflect" { d } else { 4 };
                let pads: Vec<i64> = dims
                    .iter()
                    .chain(&dims)
                    .map(|&d| numbers.below(most(d)) as i64)
                    .collect();
                let pad_dims = if a { vec![1, 2 * rank] } else { vec![2 * rank] };
                Case::new("Pad")
                    .string("mode", mode)
                    .input(numbers.value(&dims, 1.0))
                    .input(Value::i64s(&pad_dims, &pads))
                    .input(b.then(|| Value::floats(&[1], vec![0.5])))
                    .output()
            }
            4 => {
                let values = (0..17).map(|_| numbers.below(6) as f32).collect();
                Case::new("Unique")
                    .input(Value::floats(&[17], values))
                    .output()
                    .output_of(INT64)
                    .output_of(INT64)
            }
            _ => {
                let (start, step) = (numbers.below(9) as f32 - 4.0, [0.5f32, -1.5][usize::from(b)]);
                let limit = if a || step > 0.0 { start + 4.2 } else { start - 7.0 };
                let step = if a { 1.0 } else { step };
                Case::new("Range")
                    .input(Value::floats(&[], vec![start]))
                    .input(Value::floats(&[], vec![limit]))
                    .input((!a).then(|| Value::floats(&[], vec![step])))
                    .output()
            }
        };
        case.check(Float::F32)
    });
}

#[test]
fn grid_sample() {
    let modes = prop::sample::select(vec!["bilinear", "nearest", "bicubic"]);
    let paddings = prop::sample::select(vec!["zeros", "border", "reflection"]);
    let cases = (
        modes,
        paddings,
        any::<bool>(),
        (2usize..6, 2usize..6),
        any::<u64>(),
    );
    check_all(51, 80, cases, |(mode, padding, align, (h, w), seed)| {
        let mut numbers = Numbers::new(seed);
        Case::new("GridSample")
            .string("mode", mode)
            .string("padding_mode", padding)
            .int("align_corners", align)
            .input(numbers.value(&[2, 3, h, w], 1.0))
            .input(numbers.value(&[2, 4, 3, 2], 1.3))
            .output()
            .check(Float::F32)
    });
}

#[test]
fn inverse() {
    let cases = (prop::collection::vec(1usize..3, 0..3), 1usize..7, any::<u64>());
    check_all(52, 60, cases, |(batch, n, seed)| {
        let mut numbers = Numbers::new(seed);
        let count = batch.iter().product::<usize>() * n * n;
        // Far from those that have none.
        let diagonal = |i: usize| {
            if (i % (n * n)).is_multiple_of(n + 1) {
                4.0
            } else {
                0.0
            }
        };
        let values = numbers.floats(count, 1.0);
        let values = values.iter().enumerate().map(|(i, x)| x + diagonal(i)).collect();
        Case::new("Inverse")
            .input(Value::floats(&[&batch[..], &[n, n]].concat(), values))
            .output()
            .check(Float::F16)
    });
}
