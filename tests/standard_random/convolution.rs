//! Conv, ConvTranspose and the poolings, of one to three dims.

use oxpipe_test_support::onnx_writer::{INT8, INT64, UINT8};

use crate::harness::{Case, Numbers, Value};
use crate::{Choices, same_as_ort};

fn i64s(values: &[usize]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}

/// kernel_shape, strides and dilations, and pads smaller than the kernel or auto_pad.
struct Window {
    size: Vec<usize>,
    kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    pads: Vec<usize>,
    auto_pad: &'static str,
}

impl Window {
    fn new(numbers: &mut Numbers, rank: usize) -> Window {
        let kernel = numbers.dims(rank, 1, 3);
        let dilations = numbers.dims(rank, 1, 2);
        let auto_pad = numbers.pick(&["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]);
        let pads = (0..2 * rank)
            .map(|i| numbers.below(kernel[i % rank]) * usize::from(auto_pad == "NOTSET"))
            .collect();
        Window {
            size: numbers.dims(rank, 5, 8),
            strides: numbers.dims(rank, 1, 3),
            kernel,
            dilations,
            pads,
            auto_pad,
        }
    }

    fn attributes(&self, case: Case) -> Case {
        let case = case
            .ints("kernel_shape", &i64s(&self.kernel))
            .ints("strides", &i64s(&self.strides));
        match self.auto_pad {
            "NOTSET" => case.ints("pads", &i64s(&self.pads)),
            auto_pad => case.string("auto_pad", auto_pad),
        }
    }

    fn dilated(&self, case: Case) -> Case {
        case.ints("dilations", &i64s(&self.dilations))
    }

    /// Whether windows leave something out between them: ONNX Runtime's automatic pads of pools are
    /// then below zero.
    fn skips(&self) -> bool {
        self.kernel
            .iter()
            .zip(&self.strides)
            .any(|(kernel, stride)| kernel < stride)
    }

    fn has_dilations(&self) -> bool {
        self.dilations.iter().any(|&dilation| dilation > 1)
    }
}

#[test]
fn conv() {
    same_as_ort(1, 200, 2e-5, |numbers| {
        let rank = numbers.between(1, 3);
        let window = Window::new(numbers, rank);
        let group = numbers.between(1, 3);
        let (channels, outputs) = (group * numbers.between(1, 3), group * numbers.between(1, 3));
        let batch = numbers.between(1, 2);
        let x = numbers.value(&[&[batch, channels], &window.size[..]].concat(), 1.0);
        let w = numbers.value(&[&[outputs, channels / group], &window.kernel[..]].concat(), 1.0);
        let bias = numbers.flag().then(|| numbers.value(&[outputs], 1.0));
        let opset = numbers.pick(&[9, 11, 22]);
        let case = Case::standard("Conv", opset)
            .input(x)
            .input(w)
            .input(bias)
            .int("group", group as i64);
        if window.auto_pad.starts_with("SAME") && window.has_dilations() {
            // ONNX Runtime refuses these, or not, by rank.
            return None;
        }
        Some(window.dilated(window.attributes(case)).output())
    });
}

#[test]
fn conv_integer() {
    same_as_ort(2, 60, 0.0, |numbers| {
        let rank = 2;
        let window = Window::new(numbers, rank);
        let group = numbers.between(1, 2);
        let (channels, outputs) = (group * numbers.between(1, 2), group * numbers.between(1, 3));
        let x_dims = [&[1, channels], &window.size[..]].concat();
        let w_dims = [&[outputs, channels / group], &window.kernel[..]].concat();
        let mut bytes = |data_type: i32, dims: &[usize]| {
            Value::raw(data_type, dims, numbers.bytes(dims.iter().product()))
        };
        let case = Case::standard("ConvInteger", 10)
            .input(bytes(UINT8, &x_dims))
            .input(bytes(UINT8, &w_dims).constant())
            .input(bytes(UINT8, &[]).constant())
            .input(bytes(UINT8, &[]).constant())
            .int("group", group as i64);
        if window.auto_pad != "NOTSET" {
            return None;
        }
        Some(window.dilated(window.attributes(case)).output_of(6))
    });
}

#[test]
fn conv_transpose() {
    same_as_ort(3, 200, 2e-5, |numbers| {
        let rank = numbers.between(1, 3);
        let window = Window::new(numbers, rank);
        let group = numbers.between(1, 2);
        let (channels, outputs) = (group * numbers.between(1, 2), numbers.between(1, 3));
        let x = numbers.value(&[&[1, channels], &window.size[..]].concat(), 1.0);
        let w = numbers.value(&[&[channels, outputs], &window.kernel[..]].concat(), 1.0);
        let bias = numbers.flag().then(|| numbers.value(&[outputs * group], 1.0));
        let opset = numbers.pick(&[9, 11, 22]);
        let case = Case::standard("ConvTranspose", opset)
            .input(x)
            .input(w)
            .input(bias)
            .int("group", group as i64);
        let mut case = window.dilated(window.attributes(case)).output();
        if numbers.flag() {
            let padding: Vec<i64> = (0..rank)
                .map(|i| numbers.below(window.strides[i].max(window.dilations[i])) as i64)
                .collect();
            case = case.ints("output_padding", &padding);
        }
        if window.auto_pad.starts_with("SAME") {
            // The output is as long as the input times the stride; ONNX Runtime says so only without
            // an output padding, and is longer where the kernel is shorter than the stride.
            return None;
        }
        Some(case)
    });
}

#[test]
fn pools() {
    same_as_ort(4, 300, 2e-5, |numbers| {
        let rank = numbers.between(1, 3);
        let window = Window::new(numbers, rank);
        let op_type = numbers.pick(&["AveragePool", "MaxPool", "LpPool"]);
        let dims = [&[numbers.between(1, 2), numbers.between(1, 3)], &window.size[..]].concat();
        let x = numbers.value(&dims, 1.0);
        let opset = match op_type {
            "AveragePool" => numbers.pick(&[7, 10, 11, 19, 22]),
            "MaxPool" => numbers.pick(&[8, 10, 11, 12, 22]),
            _ => numbers.pick(&[7, 11, 18, 22]),
        };
        let mut case = window
            .attributes(Case::standard(op_type, opset).input(x))
            .output();
        let dilates = match op_type {
            "AveragePool" => opset >= 19,
            "MaxPool" => opset >= 10,
            _ => opset >= 18,
        };
        if dilates && !window.auto_pad.starts_with("SAME") {
            case = window.dilated(case);
        }
        let ceil = numbers.flag() && opset >= if op_type == "LpPool" { 18 } else { 10 };
        if ceil && window.auto_pad == "VALID" {
            // As long as without ceil_mode, says the definition.
            return None;
        }
        if window.auto_pad.starts_with("SAME") && window.skips() {
            return None;
        }
        if ceil {
            case = case.int("ceil_mode", 1);
        }
        match op_type {
            "AveragePool" => case = case.int("count_include_pad", numbers.flag()),
            "MaxPool" => {
                if numbers.flag() {
                    case = case.output_of(INT64);
                    if numbers.flag() {
                        case = case.int("storage_order", 1);
                    }
                }
            }
            _ => case = case.int("p", numbers.between(1, 3) as i64),
        }
        Some(case)
    });
}

#[test]
fn max_pool_of_bytes() {
    same_as_ort(5, 40, 0.0, |numbers| {
        let window = Window::new(numbers, 2);
        let dims = [&[1, 2], &window.size[..]].concat();
        if window.auto_pad.starts_with("SAME") && window.skips() {
            return None;
        }
        let data_type = numbers.pick(&[INT8, UINT8]);
        let x = Value::raw(data_type, &dims, numbers.bytes(dims.iter().product()));
        Some(
            window
                .attributes(Case::standard("MaxPool", 12).input(x))
                .output_of(data_type),
        )
    });
}

#[test]
fn global_pools() {
    same_as_ort(6, 40, 2e-5, |numbers| {
        let rank = numbers.between(3, 5);
        let dims = numbers.dims(rank, 1, 4);
        let op_type = numbers.pick(&["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"]);
        let case = Case::standard(op_type, 21)
            .input(numbers.value(&dims, 1.0))
            .output();
        Some(case)
    });
}
