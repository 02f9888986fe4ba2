//! Reductions, ArgMax and ArgMin, TopK and CumSum.

use oxpipe_test_support::onnx_writer::INT64;

use crate::harness::{Case, Value};
use crate::{Choices, same_as_ort};

#[test]
fn reductions() {
    same_as_ort(50, 250, 2e-5, |numbers| {
        let op_type = numbers.pick(&[
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
            "ReduceSumSquare",
        ]);
        let rank = numbers.between(1, 4);
        let dims = numbers.dims(rank, 1, 5);
        let mut values = numbers.floats(dims.iter().product(), 1.5);
        if op_type == "ReduceLogSum" {
            values.iter_mut().for_each(|x| *x = x.abs() + 0.1);
        }
        let axes = numbers.axes(rank);
        let opset = numbers.pick(&[11, 13, 18]);
        let mut case = Case::standard(op_type, opset).input(Value::floats(&dims, values));
        let as_input = opset >= 18 || opset == 13 && op_type == "ReduceSum";
        if as_input {
            if !axes.is_empty() || numbers.flag() {
                case = case.input(Value::i64s(&[axes.len()], &axes));
            }
            case = case.int("noop_with_empty_axes", numbers.flag());
        } else if !axes.is_empty() {
            case = case.ints("axes", &axes);
        }
        Some(case.int("keepdims", numbers.flag()).output())
    });
}

#[test]
fn arg_max_and_arg_min() {
    same_as_ort(51, 100, 0.0, |numbers| {
        let rank = numbers.between(1, 4);
        let dims = numbers.dims(rank, 1, 5);
        // Few values, so that some are equal.
        let values = (0..dims.iter().product())
            .map(|_| numbers.below(3) as f32)
            .collect();
        let case = Case::standard(numbers.pick(&["ArgMax", "ArgMin"]), numbers.pick(&[12, 13]))
            .input(Value::floats(&dims, values))
            .int("axis", numbers.axis(rank))
            .int("keepdims", numbers.flag())
            .int("select_last_index", numbers.flag());
        Some(case.output_of(INT64))
    });
}

#[test]
fn top_k() {
    same_as_ort(52, 100, 0.0, |numbers| {
        let rank = numbers.between(1, 3);
        let dims = numbers.dims(rank, 1, 9);
        let axis = numbers.axis(rank);
        let size = dims[axis.rem_euclid(rank as i64) as usize];
        let values = (0..dims.iter().product())
            .map(|_| numbers.below(6) as f32)
            .collect();
        let case = Case::standard("TopK", 11)
            .input(Value::floats(&dims, values))
            .input(Value::i64s(&[1], &[numbers.between(0, size) as i64]))
            .int("axis", axis)
            .int("largest", numbers.flag());
        Some(case.output().output_of(INT64))
    });
}

#[test]
fn cum_sum() {
    same_as_ort(53, 80, 2e-5, |numbers| {
        let rank = numbers.between(1, 4);
        let dims = numbers.dims(rank, 1, 5);
        let axis = Value::i64s(&[], &[numbers.axis(rank)]);
        let case = Case::standard("CumSum", numbers.pick(&[11, 14]))
            .input(numbers.value(&dims, 1.0))
            .input(axis)
            .int("exclusive", numbers.flag())
            .int("reverse", numbers.flag());
        Some(case.output())
    });
}
