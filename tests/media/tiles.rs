//! Tiles and patches whose number depends on the image, as transformers chooses them.

use oxpipe::component::DataType;
use oxpipe::media::image::{
    Content, Filter, ImageOp, ImageOutput, ImageProgram, ImageTransform, ProcessorPorts, Thumbnail, Tiling,
    TilingMode,
};
use oxpipe::media::{PortLayout, Work};
use serde_json::Value;

use super::images::{check, floats, integers, layout, pattern};

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

#[test]
fn grids_of_tiles_are_those_of_transformers() {
    let document: Value = serde_json::from_str(include_str!("tiles.json")).unwrap();
    let size = number(&document["tile"]);
    let mut refused = 0;
    for case in document["cases"].as_array().unwrap() {
        let mode = match case["mode"].as_str().unwrap() {
            "anyres" => TilingMode::Anyres,
            _ => TilingMode::DynamicHd {
                mask_patch: number(&document["patch"]),
                canvas: 255,
            },
        };
        let tiling = Tiling {
            size,
            most: number(&case["most"]),
            mode,
            thumbnail: Thumbnail::None,
            thumbnail_filter: Filter::Nearest,
            filter: Filter::Nearest,
        };
        let transforms = [ImageOp::Decode, ImageOp::Tile(tiling)].map(|op| ImageTransform {
            op,
            inputs: None,
            outputs: None,
        });
        let output = ImageOutput {
            source: None,
            name: "m.mask".to_owned(),
            content: Content::ValidityMask,
            dtype: DataType::Int64,
            pad_value: None,
        };
        let program = ImageProgram::new(transforms.to_vec(), vec![output]).unwrap();
        let image = pattern(number(&case["size"][0]), number(&case["size"][1]), 1);
        let prepared = program.prepare(&image, &Work::default());
        if case.get("error").is_some() {
            assert!(prepared.is_err(), "{case}");
            refused += 1;
            continue;
        }
        let prepared = prepared.unwrap_or_else(|error| panic!("{case}: {error}"));
        let grid = (number(&case["grid"][0]), number(&case["grid"][1]));
        assert_eq!(prepared.summary.tiles, Some(grid), "{case}");
        if let Some(valid) = case.get("valid") {
            let tensors = program.combine(&[&prepared], &[PortLayout::default()], &Work::default());
            let sum: f64 = integers(&tensors.unwrap()[0].bytes).iter().sum();
            assert_eq!(sum, number(valid) as f64, "{case}");
        }
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn patches_of_gemma_4_are_those_of_transformers() {
    let document: Value = serde_json::from_str(include_str!("patches.json")).unwrap();
    let ports = ProcessorPorts {
        pixels: ("vision.pixel_values".to_owned(), DataType::Float32),
        grid: None,
        coordinates: Some(("vision.image_position_ids".to_owned(), DataType::Int64)),
        mask: None,
    };
    let program = ImageProgram::from_preprocessor_config(&document["config"], &ports).unwrap();
    for case in document["cases"].as_array().unwrap() {
        let (width, height) = (number(&case["size"][0]), number(&case["size"][1]));
        let work = Work::default();
        let prepared = program.prepare(&pattern(width, height, width), &work);
        if case.get("error").is_some() {
            assert!(prepared.is_err(), "{case}");
            continue;
        }
        let prepared = prepared.unwrap_or_else(|error| panic!("{width} x {height}: {error}"));
        let [frames, rows, columns] = prepared.summary.merged().unwrap();
        assert_eq!(frames * rows * columns, number(&case["tokens"]));
        let layouts = ["pixel_values", "image_position_ids"].map(|name| layout(&case[name]));
        let tensors = program.combine(&[&prepared], &layouts, &work).unwrap();
        let label = format!("{width} x {height}");
        check(
            &case["pixel_values"],
            &tensors[0].shape,
            &floats(&tensors[0].bytes),
            &label,
        );
        check(
            &case["image_position_ids"],
            &tensors[1].shape,
            &integers(&tensors[1].bytes),
            &label,
        );
    }
}

#[test]
fn pipelines_of_extensions_give_what_these_give() {
    let cases: Value = serde_json::from_str(include_str!("extensions.json")).unwrap();
    for case in cases.as_array().unwrap() {
        let outputs = case["outputs"].as_array().unwrap();
        let has_grid = outputs[0].get("image_grid_thw").is_some();
        let ports = ProcessorPorts {
            pixels: ("vision.pixel_values".to_owned(), DataType::Float32),
            grid: has_grid.then(|| ("vision.image_grid_thw".to_owned(), DataType::Int64)),
            coordinates: None,
            mask: None,
        };
        let program = ImageProgram::from_extensions_config(&case["config"], &ports).unwrap();
        for output in outputs {
            let (width, height) = (number(&output["size"][0]), number(&output["size"][1]));
            let work = Work::default();
            let prepared = program.prepare(&pattern(width, height, width), &work).unwrap();
            let layouts = [layout(&output["pixel_values"]), PortLayout::default()];
            let tensors = program.combine(&[&prepared], &layouts, &work).unwrap();
            let label = format!("{width} x {height}");
            check(
                &output["pixel_values"],
                &tensors[0].shape,
                &floats(&tensors[0].bytes),
                &label,
            );
            if has_grid {
                check(
                    &output["image_grid_thw"],
                    &tensors[1].shape,
                    &integers(&tensors[1].bytes),
                    &label,
                );
            }
        }
    }
}
