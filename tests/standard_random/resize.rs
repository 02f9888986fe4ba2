//! Resize, in every mode that ONNX Runtime has.

use crate::harness::{Case, Value};
use crate::{Choices, same_as_ort};

#[test]
fn resize() {
    same_as_ort(10, 400, 2e-5, |numbers| {
        let mode = numbers.pick(&["nearest", "nearest", "linear", "cubic"]);
        let antialias = mode != "nearest" && numbers.below(3) == 0;
        let mut dims = vec![1, numbers.between(1, 2)];
        let resized = numbers.between(
            if mode == "cubic" { 2 } else { 1 },
            if mode == "cubic" { 2 } else { 3 },
        );
        dims.extend(numbers.dims(resized, 2, 7));
        let rank = dims.len();
        let opset = numbers.pick(&[18, 19]);
        let coordinates = numbers.pick(&[
            "half_pixel",
            "half_pixel",
            "half_pixel_symmetric",
            "pytorch_half_pixel",
            "align_corners",
            "asymmetric",
            "tf_crop_and_resize",
        ]);
        // From 19 on.
        let coordinates = match coordinates {
            "half_pixel_symmetric" if opset < 19 => "half_pixel",
            other => other,
        };
        let with_axes = numbers.flag();
        let axes: Vec<i64> = (2..rank as i64).collect();
        if antialias && coordinates == "pytorch_half_pixel" {
            // Of an axis of one element ONNX Runtime has its own idea of where it is.
            return None;
        }
        // Of every axis, or of the last ones.
        let per_axis = |values: &[f64], one: f64| -> Vec<f64> {
            let first = if with_axes { 0 } else { 2 };
            [&vec![one; first][..], values].concat()
        };
        let mut case = Case::standard("Resize", opset).input(numbers.value(&dims, 1.0));
        let crop = coordinates == "tf_crop_and_resize";
        case = case.input(crop.then(|| {
            let starts: Vec<f64> = (0..resized).map(|_| numbers.below(5) as f64 / 10.0).collect();
            let ends: Vec<f64> = starts
                .iter()
                .map(|_| 0.6 + numbers.below(7) as f64 / 10.0)
                .collect();
            let roi = [per_axis(&starts, 0.0), per_axis(&ends, 1.0)].concat();
            let roi: Vec<f32> = roi.iter().map(|&x| x as f32).collect();
            Value::floats(&[roi.len()], roi).constant()
        }));
        // Sizes, or scales of which the product with the size is exact. The definition multiplies it
        // with the part that is cropped, too; ONNX Runtime does not.
        if crop || numbers.flag() {
            let sizes: Vec<f64> = (0..resized).map(|_| numbers.between(1, 12) as f64).collect();
            let mut sizes = per_axis(&sizes, 1.0);
            if !with_axes {
                sizes[1] = dims[1] as f64;
            }
            let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
            let mut resized_dims = sizes.iter().rev().zip(dims.iter().rev()).take(resized);
            if crop && resized_dims.any(|(&to, &from)| to == from as i64) {
                // ONNX Runtime crops no axis that keeps its size.
                return None;
            }
            case = case
                .input(None)
                .input(Value::i64s(&[sizes.len()], &sizes).constant());
            if with_axes && !crop && numbers.flag() {
                let policy = numbers.pick(&["not_larger", "not_smaller"]);
                case = case.string("keep_aspect_ratio_policy", policy);
            }
        } else {
            let scales: Vec<f64> = (0..resized)
                .map(|_| numbers.pick(&[0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 4.0]))
                .collect();
            let scales: Vec<f32> = per_axis(&scales, 1.0).iter().map(|&x| x as f32).collect();
            case = case.input(Value::floats(&[scales.len()], scales).constant());
        }
        case = case
            .string("mode", mode)
            .string("coordinate_transformation_mode", coordinates);
        if with_axes {
            case = case.ints("axes", &axes);
        }
        if mode == "nearest" {
            let nearest = numbers.pick(&["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]);
            case = case.string("nearest_mode", nearest);
        }
        if mode == "cubic" {
            case = case
                .float("cubic_coeff_a", numbers.pick(&[-0.75, -0.5]))
                .int("exclude_outside", numbers.flag());
        }
        if antialias {
            case = case.int("antialias", 1);
        }
        if crop {
            case = case.float("extrapolation_value", 0.25);
        }
        Some(case.output())
    });
}
