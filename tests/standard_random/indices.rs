//! Gather and scatter, in their forms.

use crate::harness::{Case, Numbers, Value};
use crate::{Choices, same_as_ort};

fn count(dims: &[usize]) -> usize {
    dims.iter().product()
}

/// Indices along an axis of this size, from its end too.
fn indices(numbers: &mut Numbers, dims: &[usize], size: usize) -> Value {
    let size = size as i64;
    let values = numbers.ints(count(dims), -size, size - 1);
    match numbers.flag() {
        true => Value::i64s(dims, &values),
        false => Value::i32s(
            dims,
            &values.iter().map(|&value| value as i32).collect::<Vec<_>>(),
        ),
    }
}

#[test]
fn gather() {
    same_as_ort(30, 100, 0.0, |numbers| {
        let rank = numbers.between(1, 4);
        let dims = numbers.dims(rank, 1, 4);
        let axis = numbers.axis(rank);
        let size = dims[axis.rem_euclid(rank as i64) as usize];
        let op_type = numbers.pick(&["Gather", "GatherElements"]);
        let index_dims = match op_type {
            "Gather" => {
                let rank = numbers.between(0, 2);
                numbers.dims(rank, 0, 3)
            }
            _ => (0..rank)
                .map(|i| match i as i64 == axis.rem_euclid(rank as i64) {
                    true => numbers.between(0, 5),
                    false => numbers.between(1, dims[i]),
                })
                .collect(),
        };
        let indices = indices(numbers, &index_dims, size);
        let case = Case::standard(op_type, numbers.pick(&[11, 13])).input(numbers.value(&dims, 1.0));
        Some(case.input(indices).int("axis", axis).output())
    });
}

#[test]
fn gather_nd() {
    same_as_ort(31, 80, 0.0, |numbers| {
        let rank = numbers.between(1, 4);
        let dims = numbers.dims(rank, 1, 4);
        let batch = numbers.below(rank);
        let depth = numbers.between(1, rank - batch);
        let more_rank = numbers.between(0, 2);
        let more = numbers.dims(more_rank, 1, 3);
        let outer = [&dims[..batch], &more].concat();
        let mut values = Vec::new();
        for _ in 0..count(&outer) {
            for &dim in &dims[batch..batch + depth] {
                values.extend(numbers.ints(1, -(dim as i64), dim as i64 - 1));
            }
        }
        let case = Case::standard("GatherND", numbers.pick(&[12, 13])).input(numbers.value(&dims, 1.0));
        let indices = Value::i64s(&[&outer[..], &[depth]].concat(), &values);
        Some(case.input(indices).int("batch_dims", batch as i64).output())
    });
}

const REDUCTIONS: [&str; 5] = ["none", "add", "mul", "min", "max"];

#[test]
fn scatter_elements() {
    same_as_ort(32, 120, 2e-5, |numbers| {
        let rank = numbers.between(1, 3);
        let dims = numbers.dims(rank, 1, 4);
        let axis = numbers.axis(rank);
        let at = axis.rem_euclid(rank as i64) as usize;
        let reduction = numbers.pick(&REDUCTIONS);
        // Without a reduction, no element twice: at most one row of indices.
        let index_dims: Vec<usize> = (0..rank)
            .map(|i| match (i == at, reduction) {
                (true, "none") => 1,
                (true, _) => numbers.between(1, 5),
                _ => numbers.between(1, dims[i]),
            })
            .collect();
        let indices = indices(numbers, &index_dims, dims[at]);
        let mut case = Case::standard("ScatterElements", if reduction == "none" { 13 } else { 18 })
            .input(numbers.value(&dims, 1.0))
            .input(indices)
            .input(numbers.value(&index_dims, 1.0))
            .int("axis", axis)
            .output();
        if reduction != "none" {
            case = case.string("reduction", reduction);
        }
        Some(case)
    });
}

#[test]
fn scatter_nd() {
    same_as_ort(33, 100, 2e-5, |numbers| {
        let rank = numbers.between(1, 4);
        let dims = numbers.dims(rank, 1, 4);
        let depth = numbers.between(1, rank);
        let reduction = numbers.pick(&REDUCTIONS);
        let rows = if reduction == "none" {
            1
        } else {
            numbers.between(1, 4)
        };
        let mut values = Vec::new();
        for _ in 0..rows {
            for &dim in &dims[..depth] {
                values.extend(numbers.ints(1, -(dim as i64), dim as i64 - 1));
            }
        }
        let update_dims = [&[rows], &dims[depth..]].concat();
        let mut case = Case::standard("ScatterND", if reduction == "none" { 13 } else { 18 })
            .input(numbers.value(&dims, 1.0))
            .input(Value::i64s(&[rows, depth], &values))
            .input(numbers.value(&update_dims, 1.0))
            .output();
        if reduction != "none" {
            case = case.string("reduction", reduction);
        }
        Some(case)
    });
}
