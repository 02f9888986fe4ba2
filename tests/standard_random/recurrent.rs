//! RNN, GRU and LSTM.

use crate::harness::{Case, Value};
use crate::{Choices, same_as_ort};

#[test]
fn recurrent() {
    same_as_ort(20, 250, 2e-5, |numbers| {
        let op_type = numbers.pick(&["RNN", "GRU", "LSTM"]);
        let (gates, functions) = match op_type {
            "RNN" => (1, 1),
            "GRU" => (3, 2),
            _ => (4, 3),
        };
        let direction = numbers.pick(&["forward", "reverse", "bidirectional"]);
        let d = if direction == "bidirectional" { 2 } else { 1 };
        let (steps, batch) = (numbers.between(1, 5), numbers.between(1, 3));
        let (width, hidden) = (numbers.between(1, 4), numbers.between(1, 5));
        let mut case = Case::standard(op_type, numbers.pick(&[7, 14, 21]))
            .input(numbers.value(&[steps, batch, width], 1.0))
            .input(numbers.value(&[d, gates * hidden, width], 1.0).constant())
            .input(numbers.value(&[d, gates * hidden, hidden], 1.0).constant())
            .input(
                numbers
                    .flag()
                    .then(|| numbers.value(&[d, 2 * gates * hidden], 1.0).constant()),
            )
            .input(numbers.flag().then(|| {
                let lengths: Vec<i32> = (0..batch).map(|_| numbers.between(1, steps) as i32).collect();
                Value::i32s(&[batch], &lengths)
            }))
            .input(numbers.flag().then(|| numbers.value(&[d, batch, hidden], 1.0)));
        if op_type == "LSTM" {
            case = case
                .input(numbers.flag().then(|| numbers.value(&[d, batch, hidden], 1.0)))
                .input(
                    numbers
                        .flag()
                        .then(|| numbers.value(&[d, 3 * hidden], 1.0).constant()),
                );
        }
        case = case
            .string("direction", direction)
            .int("hidden_size", hidden as i64);
        if numbers.flag() {
            case = case.float("clip", 0.5);
        }
        if op_type == "GRU" {
            case = case.int("linear_before_reset", numbers.flag());
        }
        if numbers.flag() {
            let names: Vec<&str> = (0..d * functions)
                .map(|_| numbers.pick(&["Tanh", "Sigmoid", "Relu", "Softsign", "Softplus"]))
                .collect();
            case = case.strings("activations", &names);
        }
        case = case.output().output();
        Some(if op_type == "LSTM" { case.output() } else { case })
    });
}
