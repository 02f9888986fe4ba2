//! What moves elements: Slice, Pad, Tile, Expand, Where, Transpose, Concat, Split.

use oxpipe_test_support::onnx_writer::BOOL;

use crate::harness::{Case, Numbers, Value};
use crate::{Choices, same_as_ort};

/// Dims that broadcast to these.
fn part(numbers: &mut Numbers, dims: &[usize]) -> Vec<usize> {
    let first = numbers.below(dims.len() + 1);
    dims[first..]
        .iter()
        .map(|&dim| if numbers.flag() { dim } else { 1 })
        .collect()
}

#[test]
fn slice() {
    same_as_ort(40, 150, 0.0, |numbers| {
        let rank = numbers.between(1, 4);
        let dims = numbers.dims(rank, 1, 6);
        let axes = numbers.axes(rank);
        if axes.is_empty() {
            return None;
        }
        let n = axes.len();
        let steps: Vec<i64> = (0..n).map(|_| numbers.pick(&[1, 1, 2, 3, -1, -2])).collect();
        let steps = numbers.flag().then_some(steps);
        let mut ends = numbers.ints(n, -8, 8);
        if numbers.flag() {
            // The end in the direction of the step. (The other one ONNX Runtime takes for it, too.)
            let backward = steps.as_ref().is_some_and(|steps| steps[0] < 0);
            ends[0] = if backward { i64::MIN } else { i64::MAX };
        }
        let case = Case::standard("Slice", numbers.pick(&[10, 11, 13]))
            .input(numbers.value(&dims, 1.0))
            .input(Value::i64s(&[n], &numbers.ints(n, -8, 8)))
            .input(Value::i64s(&[n], &ends))
            .input(Value::i64s(&[n], &axes))
            .input(steps.map(|steps| Value::i64s(&[n], &steps)));
        Some(case.output())
    });
}

#[test]
fn pad() {
    same_as_ort(41, 150, 0.0, |numbers| {
        let rank = numbers.between(1, 4);
        let dims = numbers.dims(rank, 2, 5);
        let mode = numbers.pick(&["constant", "edge", "reflect", "wrap"]);
        let all: Vec<i64> = (0..rank as i64).collect();
        let axes = match numbers.flag() {
            true => Some(numbers.axes(rank)).filter(|axes| !axes.is_empty()),
            false => None,
        };
        let padded = axes.clone().unwrap_or(all);
        let n = padded.len();
        // A reflection has no more than the other elements of an axis; negative ones crop.
        let pads: Vec<i64> = (0..2 * n)
            .map(|i| {
                let size = dims[padded[i % n].rem_euclid(rank as i64) as usize] as i64;
                let least = if mode == "constant" && i < n { -1 } else { 0 };
                numbers.ints(1, least, size - 1)[0]
            })
            .collect();
        let opset = match (mode, &axes) {
            ("wrap", _) => 19,
            (_, Some(_)) => 18,
            _ => numbers.pick(&[11, 13]),
        };
        let value = (mode == "constant" && numbers.flag()).then(|| Value::floats(&[], vec![0.5]));
        let case = Case::standard("Pad", opset)
            .input(numbers.value(&dims, 1.0))
            .input(Value::i64s(&[2 * n], &pads))
            .input(value)
            .input(axes.map(|axes| Value::i64s(&[n], &axes)))
            .string("mode", mode);
        Some(case.output())
    });
}

#[test]
fn tile_expand_and_where() {
    same_as_ort(42, 120, 0.0, |numbers| {
        let rank = numbers.between(1, 4);
        let dims = numbers.dims(rank, 1, 4);
        let from = part(numbers, &dims);
        let shape: Vec<i64> = part(numbers, &dims).iter().map(|&dim| dim as i64).collect();
        let repeats = numbers.ints(rank, 0, 3);
        Some(match numbers.below(3) {
            0 => Case::standard("Tile", 13)
                .input(numbers.value(&dims, 1.0))
                .input(Value::i64s(&[rank], &repeats))
                .output(),
            1 => Case::standard("Expand", 13)
                .input(numbers.value(&from, 1.0))
                .input(Value::i64s(&[shape.len()], &shape))
                .output(),
            _ => {
                let bits = (0..from.iter().product()).map(|_| numbers.below(2) as u8);
                let bits = Value::raw(BOOL, &from, bits.collect());
                let (a, b) = (part(numbers, &dims), part(numbers, &dims));
                Case::standard("Where", 16)
                    .input(bits)
                    .input(numbers.value(&a, 1.0))
                    .input(numbers.value(&b, 1.0))
                    .output()
            }
        })
    });
}

#[test]
fn transpose_concat_and_split() {
    same_as_ort(43, 120, 0.0, |numbers| {
        let rank = numbers.between(1, 5);
        let dims = numbers.dims(rank, 1, 4);
        let axis = numbers.axis(rank);
        let at = axis.rem_euclid(rank as i64) as usize;
        Some(match numbers.below(3) {
            0 => {
                let mut perm: Vec<i64> = Vec::new();
                for axis in 0..rank as i64 {
                    perm.insert(numbers.below(perm.len() + 1), axis);
                }
                Case::standard("Transpose", 21)
                    .input(numbers.value(&dims, 1.0))
                    .ints("perm", &perm)
                    .output()
            }
            1 => {
                let mut case = Case::standard("Concat", 13).int("axis", axis);
                for _ in 0..numbers.between(1, 4) {
                    let mut dims = dims.clone();
                    dims[at] = numbers.between(0, 4);
                    case = case.input(numbers.value(&dims, 1.0));
                }
                case.output()
            }
            _ => {
                let parts = numbers.between(1, 3);
                let sizes = numbers.dims(parts, 0, 3);
                let mut dims = dims;
                dims[at] = sizes.iter().sum();
                let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
                let case = Case::standard("Split", 13)
                    .input(numbers.value(&dims, 1.0))
                    .input(Value::i64s(&[parts], &sizes))
                    .int("axis", axis);
                (0..parts).fold(case, |case, _| case.output())
            }
        })
    });
}
