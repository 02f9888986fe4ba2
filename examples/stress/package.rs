//! A language model of random weights, large enough that its products are shared among threads.
//! What it says depends on all tokens before, by way of its KV cache.

use std::sync::Arc;

use oxpipe::component::{RunControl, SharedBytes};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineError, PipelineOptions};
use oxpipe::runtime::{BackendChoice, Runtime, RuntimeSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};

use super::Random;

pub const VOCABULARY: usize = 512;
const HIDDEN: usize = 256;
const INNER: usize = 1024;

const METADATA: &str = "
schema_version: v1
model:
  max_sequence_length: 256
tokens:
  eos_token_id: [0]
pipeline:
  models:
    decoder:
      filename: decoder.onnx
      type: decoder
      io: {token_input: input_ids, logits_output: logits, kv_inputs: [past], kv_outputs: [present]}
  strategy: {kind: autoregressive, decoder: decoder}
";

/// logits = tanh((e + the mean of all e so far) A) B, where e is the token's row of a table.
fn decoder() -> Vec<u8> {
    let mut random = Random(7);
    let mut weights = |name: &str, rows: usize, columns: usize, scale: f32| {
        let weight = |_| ((random.draw() >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale;
        let values: Vec<f32> = (0..rows * columns).map(weight).collect();
        Tensor::floats(name, &[rows as i64, columns as i64], &values)
    };
    Model::new()
        .input("input_ids", INT64, "[1, s]")
        .input("past", FLOAT, "[1, 1, p, 256]")
        .output("logits", FLOAT, "[1, s, 512]")
        .output("present", FLOAT, "[1, 1, t, 256]")
        .initializer(weights("table", VOCABULARY, HIDDEN, 1.0))
        .initializer(weights("a", HIDDEN, INNER, 0.1))
        .initializer(weights("b", INNER, VOCABULARY, 0.5))
        .initializer(Tensor::ints("head", &[1], &[1]))
        .initializer(Tensor::floats("four", &[], &[4.0]))
        .node(Node::new("Gather", &["table", "input_ids"], &["e"]))
        .node(Node::new("Unsqueeze", &["e", "head"], &["new"]))
        .node(Node::new("Concat", &["past", "new"], &["present"]).int("axis", 2))
        .node(
            Node::new("ReduceMean", &["present"], &["mean_4d"])
                .ints("axes", &[2])
                .int("keepdims", 1),
        )
        .node(Node::new("Squeeze", &["mean_4d", "head"], &["mean"]))
        .node(Node::new("Mul", &["mean", "four"], &["context"]))
        .node(Node::new("Add", &["e", "context"], &["x"]))
        .node(Node::new("MatMul", &["x", "a"], &["y"]))
        .node(Node::new("Tanh", &["y"], &["z"]))
        .node(Node::new("MatMul", &["z", "b"], &["logits"]))
        .encode()
}

pub fn files() -> PackageSource {
    let metadata: SharedBytes = Arc::new(METADATA.as_bytes().to_vec());
    let decoder: SharedBytes = Arc::new(decoder());
    PackageSource::Files(vec![
        ("inference_metadata.yaml".to_owned(), metadata),
        ("decoder.onnx".to_owned(), decoder),
    ])
}

pub fn runtime(threads: usize) -> Runtime {
    Runtime::new(RuntimeSettings {
        threads: Some(threads),
        ..RuntimeSettings::default()
    })
}

pub fn open(runtime: &Runtime, files: &PackageSource) -> Result<Pipeline, PipelineError> {
    let options = PipelineOptions {
        backend: Some(BackendChoice::Native),
        prefix_cache_bytes: 1 << 20,
        ..PipelineOptions::default()
    };
    Pipeline::open(runtime, files, &options, None, &RunControl::default())
}
