//! Optimum's pairs of graphs, one for the pass that begins a sequence and one for those after it,
//! where the second keeps its cache in an attention operator: what the first has made begins a
//! cache that then grows where it lies.

use oxpipe::pipeline::{Pipeline, Run, RunSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
use serde_json::json;

use super::fake::{VOCABULARY, continuation};
use super::tiny::{self, Files, for_each_mix, steps};

const CONFIG: &str = r#"{
  "architectures": ["LlamaForCausalLM"],
  "max_position_embeddings": 256,
  "eos_token_id": 6
}"#;

/// rows = place * id of each token, eight times, as [1, S, 8]; zeros = nothing of them. `places`
/// are [1, S].
fn rows(model: Model) -> Model {
    model
        .initializer(Tensor::ints("axis_2", &[1], &[2]))
        .initializer(Tensor::floats("eight", &[8], &[1.0; 8]))
        .initializer(Tensor::floats("nothing", &[], &[0.0]))
        .node(Node::new("Cast", &["input_ids"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("Mul", &["floats", "places"], &["products"]))
        .node(Node::new("Unsqueeze", &["products", "axis_2"], &["column"]))
        .node(Node::new("Mul", &["column", "eight"], &["rows"]))
        .node(Node::new("Mul", &["rows", "nothing"], &["zeros"]))
}

/// places = those behind `past` tokens, a tensor [1], counted from 1.
fn places(model: Model, past: &str) -> Model {
    model
        .initializer(Tensor::ints("axis_0", &[1], &[0]))
        .initializer(Tensor::ints("one", &[1], &[1]))
        .initializer(Tensor::ints("scalar", &[0], &[]))
        .initializer(Tensor::ints("step", &[], &[1]))
        .node(Node::new("Shape", &["input_ids"], &["ids_shape"]))
        .node(Node::new("Gather", &["ids_shape", "one"], &["count"]))
        .node(Node::new("Add", &[past, "one"], &["from"]))
        .node(Node::new("Add", &["from", "count"], &["to"]))
        .node(Node::new("Reshape", &["from", "scalar"], &["first"]))
        .node(Node::new("Reshape", &["to", "scalar"], &["behind"]))
        .node(Node::new("Range", &["first", "behind", "step"], &["range"]))
        .node(Node::new("Cast", &["range"], &["float_range"]).int("to", FLOAT.into()))
        .node(Node::new("Unsqueeze", &["float_range", "axis_0"], &["places"]))
}

/// Logits that are largest at `sum`, [1, S], modulo the vocabulary.
fn logits(model: Model, sequence: &str) -> Vec<u8> {
    let ids: Vec<f32> = (0..VOCABULARY).map(|id| id as f32).collect();
    model
        .initializer(Tensor::floats("vocabulary", &[VOCABULARY], &ids))
        .initializer(Tensor::floats("size", &[], &[VOCABULARY as f32]))
        .node(Node::new("Round", &["sum"], &["whole"]))
        .node(Node::new("Mod", &["whole", "size"], &["next"]).int("fmod", 1))
        .node(Node::new("Unsqueeze", &["next", "axis_2"], &["next_column"]))
        .node(Node::new("Sub", &["next_column", "vocabulary"], &["away"]))
        .node(Node::new("Abs", &["away"], &["distance"]))
        .node(Node::new("Neg", &["distance"], &["logits"]))
        .output("logits", FLOAT, &format!("[batch, {sequence}, {VOCABULARY}]"))
        .encode()
}

fn first() -> Vec<u8> {
    let model = Model::new()
        .input("input_ids", INT64, "[batch, sequence]")
        .output("present.0.key", FLOAT, "[batch, 1, sequence, 8]")
        .output("present.0.value", FLOAT, "[batch, 1, sequence, 8]")
        .initializer(Tensor::ints("nobody", &[1], &[0]))
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .initializer(Tensor::ints("scalar_1", &[], &[1]));
    let model = rows(places(model, "nobody"))
        .node(Node::new("Unsqueeze", &["zeros", "axis_1"], &["present.0.key"]))
        .node(Node::new("Unsqueeze", &["rows", "axis_1"], &["present.0.value"]))
        .node(Node::new("CumSum", &["products", "scalar_1"], &["sum"]));
    logits(model, "sequence")
}

/// Attention to all positions alike is their mean.
fn later(sequence: &str) -> Vec<u8> {
    let model = Model::new()
        .opset("com.microsoft", 1)
        .input("input_ids", INT64, &format!("[batch, {sequence}]"))
        .input("past_key_values.0.key", FLOAT, "[batch, 1, past, 8]")
        .input("past_key_values.0.value", FLOAT, "[batch, 1, past, 8]")
        .output("present.0.key", FLOAT, "[batch, 1, total, 8]")
        .output("present.0.value", FLOAT, "[batch, 1, total, 8]")
        .initializer(Tensor::ints("third", &[1], &[2]))
        .node(Node::new("Shape", &["past_key_values.0.key"], &["past_shape"]))
        .node(Node::new("Gather", &["past_shape", "third"], &["past_count"]));
    let model = rows(places(model, "past_count"))
        .node(
            Node::new(
                "MultiHeadAttention",
                &[
                    "zeros",
                    "zeros",
                    "rows",
                    "",
                    "",
                    "",
                    "past_key_values.0.key",
                    "past_key_values.0.value",
                ],
                &["mean", "present.0.key", "present.0.value"],
            )
            .domain("com.microsoft")
            .int("num_heads", 1)
            .int("unidirectional", 1),
        )
        .node(
            Node::new("ReduceMean", &["mean"], &["one_mean"])
                .ints("axes", &[2])
                .int("keepdims", 0),
        )
        .node(Node::new("Mul", &["one_mean", "places"], &["sum"]));
    logits(model, sequence)
}

fn files(sequence: &str) -> Files {
    vec![
        ("config.json".to_owned(), CONFIG.as_bytes().to_vec()),
        ("decoder_model.onnx".to_owned(), first()),
        ("decoder_with_past_model.onnx".to_owned(), later(sequence)),
    ]
}

fn start(pipeline: &Pipeline, chunk_size: Option<usize>, prompt: &[i32]) -> Run {
    let settings = RunSettings {
        chunk_size,
        stop_on_eos: false,
        ..RunSettings::default()
    };
    let mut run = Run::new(pipeline, &settings).unwrap();
    run.append_tokens(prompt).unwrap();
    run
}

#[test]
fn the_first_pass_begins_a_cache_that_grows_in_place() {
    for sequence in ["1", "sequence"] {
        for_each_mix(&files(sequence), &["decoder_first", "decoder"], |pipeline| {
            for chunk_size in [None, Some(2)] {
                let mut run = start(pipeline, chunk_size, &[3, 5, 2]);
                // Beyond the memory that the cache begins with.
                let expected = continuation(&[3, 5, 2], 80, 0);
                assert_eq!(steps(&mut run, 80), expected, "{sequence} {chunk_size:?}");
                // Another turn, and back to where there is something in the cache, and nothing.
                run.append_tokens(&[4, 1, 7]).unwrap();
                let tokens = run.tokens().to_vec();
                assert_eq!(steps(&mut run, 3), continuation(&tokens, 3, 0));
                for len in [40, 2, 1] {
                    run.rewind(len).unwrap();
                    let tokens = run.tokens().to_vec();
                    assert_eq!(steps(&mut run, 5), continuation(&tokens, 5, 0), "after {len}");
                }
            }
        });
    }
}

#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    let tokens = continuation(&[3, 5, 2], 80, 0);
    let cases = json!([{"prompt": [3, 5, 2], "tokens": tokens}]);
    tiny::write("hugging-face-split-attention", &files("1"), &cases);
}
