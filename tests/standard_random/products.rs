//! MatMul, Gemm and Einsum.

use crate::harness::Case;
use crate::{Choices, same_as_ort};

#[test]
fn matmul() {
    same_as_ort(70, 120, 2e-5, |numbers| {
        let batch_rank = numbers.between(0, 3);
        let batch = numbers.dims(batch_rank, 1, 3);
        let (m, k, n) = (
            numbers.between(1, 6),
            numbers.between(1, 9),
            numbers.between(1, 6),
        );
        // Of products of no terms ONNX Runtime does not broadcast the batch dims.
        let mut operand = |last: [usize; 2], one: usize| {
            if numbers.below(5) == 0 {
                return numbers.value(&[one], 1.0);
            }
            let first = numbers.below(batch.len() + 1);
            let mut dims: Vec<usize> = batch[first..]
                .iter()
                .map(|&dim| if numbers.flag() { dim } else { 1 })
                .collect();
            dims.extend(last);
            numbers.value(&dims, 1.0)
        };
        let (a, b) = (operand([m, k], k), operand([k, n], k));
        Some(Case::standard("MatMul", 13).input(a).input(b).output())
    });
}

#[test]
fn gemm() {
    same_as_ort(71, 100, 2e-5, |numbers| {
        let (m, k, n) = (
            numbers.between(1, 6),
            numbers.between(1, 9),
            numbers.between(1, 6),
        );
        let (a, b) = (numbers.flag(), numbers.flag());
        let c_dims = numbers.pick(&[vec![m, n], vec![n], vec![m, 1], vec![1, n], vec![1], vec![]]);
        let case = Case::standard("Gemm", numbers.pick(&[11, 13]))
            .input(numbers.value(&if a { [k, m] } else { [m, k] }, 1.0))
            .input(numbers.value(&if b { [n, k] } else { [k, n] }, 1.0))
            .input(numbers.flag().then(|| numbers.value(&c_dims, 1.0)))
            .int("transA", a)
            .int("transB", b)
            .float("alpha", 0.75)
            .float("beta", 1.5);
        Some(case.output())
    });
}

#[test]
fn einsum() {
    same_as_ort(72, 120, 2e-5, |numbers| {
        // The size of each letter is fixed in a case; every operand has some letters, the
        // result some of all of them.
        let sizes = numbers.dims(5, 1, 3);
        let letters = ['a', 'b', 'c', 'd', 'e'];
        let term = |numbers: &mut crate::harness::Numbers, of: &[usize], repeat: bool| {
            let mut term: Vec<usize> = Vec::new();
            for &letter in of {
                if numbers.flag() {
                    term.insert(numbers.below(term.len() + 1), letter);
                }
            }
            if repeat && numbers.below(6) == 0 && !term.is_empty() {
                term.push(term[0]);
            }
            term
        };
        let operands: Vec<Vec<usize>> = (0..numbers.between(1, 3))
            .map(|_| term(numbers, &[0, 1, 2, 3, 4], true))
            .collect();
        if operands.iter().any(Vec::is_empty) {
            // ONNX Runtime has no scalars here.
            return None;
        }
        let mut used: Vec<usize> = operands.concat();
        used.sort_unstable();
        used.dedup();
        let result = term(numbers, &used, false);
        let text = |term: &[usize]| term.iter().map(|&letter| letters[letter]).collect::<String>();
        let left: Vec<String> = operands.iter().map(|term| text(term)).collect();
        let mut equation = left.join(",");
        if numbers.flag() {
            equation = format!("{equation}->{}", text(&result));
        }
        let case = operands.iter().fold(Case::standard("Einsum", 12), |case, term| {
            let dims: Vec<usize> = term.iter().map(|&letter| sizes[letter]).collect();
            case.input(numbers.value(&dims, 1.0))
        });
        Some(case.string("equation", &equation).output())
    });
}
