//! Encoders of what a request may leave out. The next token is the sum of all tokens, of twice the
//! pixels of an image and of three times the samples of a sound and the largest of them, modulo 11.

use oxpipe::component::{ComponentTensor, DataType, RunControl};
use oxpipe::pipeline::{Pipeline, Run, RunSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
use serde_json::{Value, json};

use super::mixes::{TestPackage, floats, steps};

const METADATA: &str = "
pipeline:
  models:
    vision: {filename: vision.onnx, type: vision_encoder}
    hearing: {filename: hearing.onnx, type: audio_encoder}
    decoder:
      filename: decoder.onnx
      type: decoder
      io:
        token_input: ids
        logits_output: logits
        kv_inputs: [past]
        kv_outputs: [present]
        optional_inputs:
          features: {presence: image, absent: {kind: zeros, shape: [1, 0]}}
          sound: {presence: audio, absent: {kind: zeros, shape: [1, 2]}}
          bias: {presence: hints, absent: {kind: zeros, shape: [1, s]}}
  dataflow:
    - {from: vision.features, to: decoder.features}
    - {from: hearing.sound, to: decoder.sound}
  phases:
    vision: {run_on: prompt_only, when_present: image}
    hearing: {run_on: prompt_only, when_present: audio}
";

/// features = twice the pixels.
fn vision() -> Vec<u8> {
    Model::new()
        .input("pixels", FLOAT, "[1, n]")
        .output("features", FLOAT, "[1, n]")
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .node(Node::new("Mul", &["pixels", "two"], &["features"]))
        .encode()
}

/// sound = [three times the sum of the samples, three times the largest].
fn hearing() -> Vec<u8> {
    Model::new()
        .input("samples", FLOAT, "[1, n]")
        .output("sound", FLOAT, "[1, 2]")
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .initializer(Tensor::floats("three", &[], &[3.0]))
        .node(Node::new("ReduceSum", &["samples", "axis_1"], &["sum"]).int("keepdims", 1))
        .node(Node::new("ReduceMax", &["samples"], &["largest"]).ints("axes", &[1]))
        .node(Node::new("Concat", &["sum", "largest"], &["both"]).int("axis", 1))
        .node(Node::new("Mul", &["both", "three"], &["sound"]))
        .encode()
}

/// The cache holds the ids. A bias of another length than the ids fails in MatMul.
fn decoder() -> Vec<u8> {
    let choices: Vec<f32> = (0..11u8).map(f32::from).collect();
    Model::new()
        .input("ids", INT64, "[1, s]")
        .input("features", FLOAT, "[1, n]")
        .input("sound", FLOAT, "[1, 2]")
        .input("bias", FLOAT, "[1, s]")
        .input("past", FLOAT, "[1, 1, past, 1]")
        .output("present", FLOAT, "[1, 1, total, 1]")
        .output("logits", FLOAT, "[1, 1, 11]")
        .initializer(Tensor::floats("choices", &[1, 1, 11], &choices))
        .initializer(Tensor::floats("eleven", &[], &[11.0]))
        .initializer(Tensor::ints("rows", &[4], &[1, 1, -1, 1]))
        .node(Node::new("Cast", &["ids"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("Reshape", &["numbers", "rows"], &["new"]))
        .node(Node::new("Concat", &["past", "new"], &["present"]).int("axis", 2))
        .node(Node::new("ReduceSum", &["present"], &["of_tokens"]).int("keepdims", 0))
        .node(Node::new("ReduceSum", &["features"], &["of_image"]).int("keepdims", 0))
        .node(Node::new("ReduceSum", &["sound"], &["of_sound"]).int("keepdims", 0))
        .node(Node::new("Transpose", &["bias"], &["bias_column"]).ints("perm", &[1, 0]))
        .node(Node::new("MatMul", &["numbers", "bias_column"], &["of_bias"]))
        .node(Node::new(
            "Sum",
            &["of_tokens", "of_image", "of_sound", "of_bias"],
            &["sum"],
        ))
        .node(Node::new("Mod", &["sum", "eleven"], &["next"]).int("fmod", 1))
        .node(Node::new("Sub", &["next", "choices"], &["away"]))
        .node(Node::new("Abs", &["away"], &["distance"]))
        .node(Node::new("Neg", &["distance"], &["logits"]))
        .encode()
}

fn package() -> TestPackage {
    let models = vec![
        ("vision", vision()),
        ("hearing", hearing()),
        ("decoder", decoder()),
    ];
    TestPackage::new(METADATA, models)
}

const PROMPT: [i32; 3] = [5, 2, 3];
const IMAGE: [f32; 2] = [1.0, 4.0];
const SOUND: [f32; 3] = [1.0, 2.0, 0.0];

/// Tokens behind others, of which an image and a sound say 10 and 15.
fn continuation(tokens: &[i32], count: usize, with: (bool, bool)) -> Vec<i32> {
    let mut tokens = tokens.to_vec();
    let start = tokens.len();
    let more = 10 * i32::from(with.0) + 15 * i32::from(with.1);
    for _ in 0..count {
        tokens.push((tokens.iter().sum::<i32>() + more) % 11);
    }
    tokens.split_off(start)
}

const REQUESTS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    let case = |with: (bool, bool)| -> Value {
        let mut inputs = json!({});
        if with.0 {
            inputs["vision.pixels"] = json!({"shape": [1, 2], "values": IMAGE});
        }
        if with.1 {
            inputs["hearing.samples"] = json!({"shape": [1, 3], "values": SOUND});
        }
        json!({"prompt": PROMPT, "tokens": continuation(&PROMPT, 4, with), "inputs": inputs})
    };
    package().write("modalities", &json!(REQUESTS.map(case)));
}

fn set(run: &mut Run, address: &str, values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let shape = [1, values.len() as i64];
    let tensor = ComponentTensor::from_raw(DataType::Float32, &shape, &bytes).unwrap();
    run.set_input(address, tensor.view()).unwrap();
}

fn start(pipeline: &Pipeline, settings: &RunSettings, with: (bool, bool)) -> Run {
    let mut run = Run::new(pipeline, settings).unwrap();
    if with.0 {
        set(&mut run, "vision.pixels", &IMAGE);
    }
    if with.1 {
        set(&mut run, "hearing.samples", &SOUND);
    }
    run.append_tokens(&PROMPT).unwrap();
    run
}

#[test]
fn what_a_request_leaves_out_is_zeros() {
    package().for_each_mix(|pipeline| {
        for with in REQUESTS {
            for chunk_size in [None, Some(2)] {
                let settings = RunSettings {
                    chunk_size,
                    ..RunSettings::default()
                };
                let mut run = start(pipeline, &settings, with);
                assert_eq!(steps(&mut run, 4), continuation(&PROMPT, 4, with), "{with:?}");
                let ran = u64::from(with.0) + u64::from(with.1);
                let passes = if chunk_size.is_some() { 5 } else { 4 };
                assert_eq!(run.stats().component_runs, ran + passes);
                assert_eq!(run.get_tensor("vision.features").is_ok(), with.0);
            }
        }
    });
}

/// All tokens are read anew with it.
#[test]
fn an_image_may_come_later_and_go() {
    package().for_each_mix(|pipeline| {
        let mut run = start(pipeline, &RunSettings::default(), (false, true));
        steps(&mut run, 2);
        for with_image in [true, false] {
            match with_image {
                true => set(&mut run, "vision.pixels", &IMAGE),
                false => run.clear_input("vision.pixels").unwrap(),
            }
            let tokens = run.tokens().to_vec();
            let with = (with_image, true);
            assert_eq!(steps(&mut run, 2), continuation(&tokens, 2, with), "{with_image}");
        }
        run.finish(&RunControl::default()).unwrap();
        assert_eq!(floats(run.get_tensor("hearing.sound").unwrap()), [9.0, 6.0]);
    });
}
