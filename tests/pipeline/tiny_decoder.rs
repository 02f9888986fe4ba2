//! A package whose next token is the sum of all tokens modulo the vocabulary, with a KV cache that
//! holds them: small enough to be opened thousands of times.

use std::path::Path;

use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};

const VOCABULARY: i64 = 8;

const METADATA: &str = "
model:
  io:
    token_input: input_ids
    logits_output: logits
    kv_inputs: [past]
    kv_outputs: [present]
";

fn decoder() -> Vec<u8> {
    let choices: Vec<f32> = (0..VOCABULARY).map(|id| id as f32).collect();
    Model::new()
        .input("input_ids", INT64, "[1, sequence]")
        .input("past", FLOAT, "[1, 1, past_sequence, 1]")
        .output("present", FLOAT, "[1, 1, total_sequence, 1]")
        .output("logits", FLOAT, "[1, 1, 8]")
        .initializer(Tensor::ints("rows", &[4], &[1, 1, -1, 1]))
        .initializer(Tensor::ints("all", &[4], &[0, 1, 2, 3]))
        .initializer(Tensor::floats("size", &[], &[VOCABULARY as f32]))
        .initializer(Tensor::floats("choices", &[1, 1, VOCABULARY], &choices))
        .node(Node::new("Cast", &["input_ids"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("Reshape", &["numbers", "rows"], &["new"]))
        .node(Node::new("Concat", &["past", "new"], &["present"]).int("axis", 2))
        .node(Node::new("ReduceSum", &["present", "all"], &["sum"]).int("keepdims", 0))
        .node(Node::new("Mod", &["sum", "size"], &["next"]).int("fmod", 1))
        .node(Node::new("Sub", &["next", "choices"], &["away"]))
        .node(Node::new("Abs", &["away"], &["distance"]))
        .node(Node::new("Neg", &["distance"], &["logits"]))
        .encode()
}

/// Writes the package into a folder.
pub fn write(folder: &Path) {
    std::fs::write(folder.join("inference_metadata.yaml"), METADATA).unwrap();
    std::fs::write(folder.join("model.onnx"), decoder()).unwrap();
}
