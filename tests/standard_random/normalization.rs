//! Softmax and the norms.

use crate::harness::Case;
use crate::{Choices, same_as_ort};

#[test]
fn softmax() {
    same_as_ort(60, 120, 2e-5, |numbers| {
        let rank = numbers.between(1, 4);
        let dims = numbers.dims(rank, 1, 6);
        let op_type = numbers.pick(&["Softmax", "LogSoftmax", "Hardmax"]);
        let opset = numbers.pick(&[7, 11, 13]);
        let axis = numbers.axis(rank);
        let axis = if opset < 11 {
            axis.rem_euclid(rank as i64)
        } else {
            axis
        };
        let case = Case::standard(op_type, opset)
            .input(numbers.value(&dims, 3.0))
            .int("axis", axis);
        Some(case.output())
    });
}

#[test]
fn norms() {
    same_as_ort(61, 200, 5e-5, |numbers| {
        let rank = numbers.between(3, 5);
        let mut dims = numbers.dims(rank, 1, 4);
        let groups = numbers.between(1, 3);
        dims[1] = groups * numbers.between(1, 3);
        let channels = dims[1];
        let (axis, statistics) = (numbers.axis(rank), numbers.flag());
        let inner = &dims[axis.rem_euclid(rank as i64) as usize..].to_vec();
        let mut value = |dims: &[usize]| numbers.value(dims, 1.0);
        let x = value(&dims);
        let (scale, bias) = (value(&[channels]), value(&[channels]));
        let (inner_scale, inner_bias) = (value(inner), value(inner));
        let (mean, mut variance) = (value(&[channels]), value(&[channels]));
        variance.map(|x| x.abs() + 0.5);
        Some(match numbers.below(8) {
            0 => Case::standard("LayerNormalization", 17)
                .input(x)
                .input(inner_scale)
                .input(numbers.flag().then_some(inner_bias))
                .int("axis", axis)
                .float("epsilon", 1e-3)
                .output()
                // ONNX Runtime 1.31 ends the process where only one of them is left out.
                .output_if(statistics)
                .output_if(statistics),
            1 => Case::standard("RMSNormalization", 23)
                .input(x)
                .input(inner_scale)
                .int("axis", axis)
                .output(),
            2 => Case::standard("GroupNormalization", 21)
                .input(x)
                .input(scale)
                .input(bias)
                .int("num_groups", groups as i64)
                .output(),
            3 => Case::standard("InstanceNormalization", 7)
                .input(x)
                .input(scale)
                .input(bias)
                .output(),
            4 => Case::standard("BatchNormalization", numbers.pick(&[9, 14, 15]))
                .input(x)
                .input(scale)
                .input(bias)
                .input(mean)
                .input(variance)
                .output(),
            5 => Case::standard("LpNormalization", 7)
                .input(x)
                .int("axis", axis)
                .int("p", numbers.between(1, 2) as i64)
                .output(),
            6 => Case::standard("LRN", 13)
                .input(numbers.value(&[1, channels, 3, 2], 1.0))
                .int("size", numbers.pick(&[1i64, 3, 5]))
                .output(),
            _ => Case::standard("MeanVarianceNormalization", 13)
                .input(numbers.value(&[3, channels, 3, 2], 1.0))
                .output(),
        })
    });
}
