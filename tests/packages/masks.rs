//! Masked diffusion by the graph of what tests/pipeline/masked_diffusion.py evaluates, whose
//! expected tokens stand beside it.

use oxpipe::component::{ComponentTensor, DataType, RunControl};
use oxpipe::pipeline::{Run, RunSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
use serde_json::{Value, json};

use super::mixes::{TestPackage, integers};

const METADATA: &str = "
pipeline:
  models:
    denoiser: {filename: denoiser.onnx, type: denoiser}
  dataflow:
    - {from: denoiser.logits, to: denoiser.ids}
  strategy: STRATEGY
";

/// For a place and a token (both from 0), total being the sum of place (from 1) times id, and
/// before the id of the place before, of the first place the last:
///
/// ```text
/// logits = ((7 place + 13 token + 5 total + token² (before + 3)) mod 97) / 8
/// ```
fn model() -> Vec<u8> {
    let scaled = |factor: i64| -> Vec<i64> { (0..12).map(|token| factor * token).collect() };
    let squares: Vec<i64> = (0..12).map(|token| token * token).collect();
    Model::new()
        .input("ids", INT64, "[batch, n]")
        .output("logits", FLOAT, "[batch, n, 12]")
        .initializer(Tensor::ints("tokens_13", &[12], &scaled(13)))
        .initializer(Tensor::ints("squares", &[12], &squares))
        .initializer(Tensor::ints("zero", &[], &[0]))
        .initializer(Tensor::ints("one", &[], &[1]))
        .initializer(Tensor::ints("three", &[], &[3]))
        .initializer(Tensor::ints("five", &[], &[5]))
        .initializer(Tensor::ints("seven", &[], &[7]))
        .initializer(Tensor::ints("modulus", &[], &[97]))
        .initializer(Tensor::floats("eighth", &[], &[0.125]))
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .initializer(Tensor::ints("axis_2", &[1], &[2]))
        .initializer(Tensor::ints("first", &[1], &[0]))
        .initializer(Tensor::ints("last", &[1], &[-1]))
        .initializer(Tensor::ints("end", &[1], &[i64::MAX]))
        .node(Node::new("Shape", &["ids"], &["shape"]))
        .node(Node::new("Gather", &["shape", "one"], &["length"]))
        .node(Node::new("Range", &["zero", "length", "one"], &["places"]))
        .node(Node::new("Add", &["places", "one"], &["counted"]))
        .node(Node::new("Mul", &["ids", "counted"], &["products"]))
        .node(Node::new("ReduceSum", &["products", "axis_1"], &["total"]).int("keepdims", 1))
        .node(Node::new("Mul", &["total", "five"], &["total_5"]))
        .node(Node::new("Mul", &["places", "seven"], &["places_7"]))
        .node(Node::new("Add", &["total_5", "places_7"], &["of_place"]))
        .node(Node::new("Unsqueeze", &["of_place", "axis_2"], &["of_places"]))
        .node(Node::new(
            "Slice",
            &["ids", "last", "end", "axis_1"],
            &["last_id"],
        ))
        .node(Node::new(
            "Slice",
            &["ids", "first", "last", "axis_1"],
            &["other_ids"],
        ))
        .node(Node::new("Concat", &["last_id", "other_ids"], &["before"]).int("axis", 1))
        .node(Node::new("Add", &["before", "three"], &["before_3"]))
        .node(Node::new(
            "Unsqueeze",
            &["before_3", "axis_2"],
            &["before_column"],
        ))
        .node(Node::new("Mul", &["before_column", "squares"], &["of_before"]))
        .node(Node::new("Add", &["of_places", "tokens_13"], &["of_both"]))
        .node(Node::new("Add", &["of_both", "of_before"], &["whole"]))
        .node(Node::new("Mod", &["whole", "modulus"], &["rest"]))
        .node(Node::new("Cast", &["rest"], &["rest_numbers"]).int("to", FLOAT.into()))
        .node(Node::new("Mul", &["rest_numbers", "eighth"], &["logits"]))
        .encode()
}

fn document() -> Value {
    serde_json::from_str(include_str!("../pipeline/masked_diffusion.json")).unwrap()
}

/// The `strategy` of a package that does what a case of the document says.
fn strategy(document: &Value, case: &Value) -> Value {
    let mut scheduler = json!({
        "kind": "masked_diffusion",
        "mask_token_id": document["mask"],
        "temperature": case["temperature"],
        "remasking": case["remasking"],
    });
    if !case["block_length"].is_null() {
        scheduler["block_length"] = case["block_length"].clone();
    }
    json!({
        "kind": "iterative",
        "denoiser": "denoiser",
        "num_steps": case["steps"],
        "guidance_scale": case["guidance_scale"],
        "scheduler_config": scheduler,
    })
}

fn package(strategy: &Value) -> TestPackage {
    let metadata = METADATA.replace("STRATEGY", &strategy.to_string());
    TestPackage::new(&metadata, vec![("denoiser", model())])
}

fn numbers(value: &Value) -> Vec<i64> {
    let list = value.as_array().unwrap().iter();
    list.map(|id| id.as_i64().unwrap()).collect()
}

/// A folder for what each case says, since all of it is the package's.
#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    let document = document();
    for (at, case) in document["cases"].as_array().unwrap().iter().enumerate() {
        let ids = numbers(&case["ids"]);
        let cases = json!([{
            "inputs": {"denoiser.ids": {"shape": [1, ids.len()], "values": ids}},
            "seed": document["seed"],
            "states": case["after"],
        }]);
        let package = package(&strategy(&document, case));
        package.write(&format!("masks-{at:02}"), &cases);
    }
}

#[test]
fn tokens_are_those_of_the_published_algorithm() {
    let document = document();
    for case in document["cases"].as_array().unwrap() {
        package(&strategy(&document, case)).for_each_mix(|pipeline| {
            let settings = RunSettings {
                seed: document["seed"].as_u64(),
                ..RunSettings::default()
            };
            let mut run = Run::new(pipeline, &settings).unwrap();
            let ids = numbers(&case["ids"]);
            let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            let tensor = ComponentTensor::from_raw(DataType::Int64, &[1, ids.len() as i64], &bytes).unwrap();
            run.set_input("denoiser.ids", tensor.view()).unwrap();
            for (step, after) in case["after"].as_array().unwrap().iter().enumerate() {
                run.step(&RunControl::default()).unwrap();
                let found = integers(run.get_tensor("denoiser.ids").unwrap());
                assert_eq!(found, numbers(after), "step {step} of {case}");
            }
            assert!(run.finished().is_some());
        });
    }
}
