//! Recurrent states of fixed sizes, which what the graph puts out takes the place of. The next
//! token is the sum of place times id of all tokens and of the third last one, modulo 8: right only
//! if both states have gone from step to step.

use oxpipe::pipeline::{Run, RunSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
use serde_json::json;

use super::mixes::{TestPackage, steps};

const METADATA: &str = "
model:
  io:
    token_input: ids
    logits_output: logits
    state_pairs:
      - {input: total, output: new_total, init: zeros, update: replace}
      - {input: recent, output: new_recent, init: zeros, update: replace}
";

/// total = [the sum of place times id, how many tokens]; recent = the last three tokens.
fn model() -> Vec<u8> {
    let choices: Vec<f32> = (0..8u8).map(f32::from).collect();
    Model::new()
        .input("ids", INT64, "[batch, s]")
        .input("total", FLOAT, "[batch, 2]")
        .input("recent", FLOAT, "[batch, 3]")
        .output("logits", FLOAT, "[batch, 1, 8]")
        .output("new_total", FLOAT, "[batch, 2]")
        .output("new_recent", FLOAT, "[batch, 3]")
        .initializer(Tensor::floats("choices", &[1, 1, 8], &choices))
        .initializer(Tensor::floats("nothing", &[], &[0.0]))
        .initializer(Tensor::floats("one", &[], &[1.0]))
        .initializer(Tensor::floats("eight", &[], &[8.0]))
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .initializer(Tensor::ints("scalar_1", &[], &[1]))
        .initializer(Tensor::ints("third_last", &[1], &[-3]))
        .initializer(Tensor::ints("behind_it", &[1], &[-2]))
        .initializer(Tensor::ints("end", &[1], &[i64::MAX]))
        .node(Node::new("Cast", &["ids"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("Mul", &["numbers", "nothing"], &["zeros"]))
        .node(Node::new("Add", &["zeros", "one"], &["ones"]))
        .node(Node::new("CumSum", &["ones", "scalar_1"], &["counted"]))
        .node(Node::new("Split", &["total"], &["sum_before", "count_before"]).int("axis", 1))
        .node(Node::new("Add", &["counted", "count_before"], &["places"]))
        .node(Node::new("Mul", &["numbers", "places"], &["products"]))
        .node(Node::new("ReduceSum", &["products", "axis_1"], &["added"]).int("keepdims", 1))
        .node(Node::new("Add", &["sum_before", "added"], &["sum"]))
        .node(Node::new("ReduceSum", &["ones", "axis_1"], &["length"]).int("keepdims", 1))
        .node(Node::new("Add", &["count_before", "length"], &["count"]))
        .node(Node::new("Concat", &["sum", "count"], &["new_total"]).int("axis", 1))
        .node(Node::new("Concat", &["recent", "numbers"], &["all"]).int("axis", 1))
        .node(Node::new(
            "Slice",
            &["all", "third_last", "end", "axis_1"],
            &["new_recent"],
        ))
        .node(Node::new(
            "Slice",
            &["all", "third_last", "behind_it", "axis_1"],
            &["oldest"],
        ))
        .node(Node::new("Add", &["sum", "oldest"], &["whole"]))
        .node(Node::new("Mod", &["whole", "eight"], &["next"]).int("fmod", 1))
        .node(Node::new("Sub", &["next", "choices"], &["away"]))
        .node(Node::new("Abs", &["away"], &["distance"]))
        .node(Node::new("Neg", &["distance"], &["logits"]))
        .encode()
}

pub fn package() -> TestPackage {
    TestPackage::new(METADATA, vec![("model", model())])
}

pub fn continuation(tokens: &[i32], count: usize) -> Vec<i32> {
    let mut tokens = tokens.to_vec();
    let start = tokens.len();
    for _ in 0..count {
        let sum: i32 = tokens.iter().zip(1..).map(|(id, place)| place * id).sum();
        let oldest = tokens.iter().rev().nth(2).copied().unwrap_or_default();
        tokens.push((sum + oldest).rem_euclid(8));
    }
    tokens.split_off(start)
}

pub const PROMPT: [i32; 3] = [5, 2, 3];
const TOKENS: [i32; 5] = [7, 0, 1, 3, 1];

#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    let cases = json!([
        {"prompt": PROMPT, "tokens": TOKENS},
        {"prompt": [6], "tokens": continuation(&[6], 12)},
    ]);
    package().write("states", &cases);
}

#[test]
fn states_go_from_step_to_step() {
    assert_eq!(continuation(&PROMPT, 5), TOKENS);
    package().for_each_mix(|pipeline| {
        for chunk_size in [None, Some(1), Some(2)] {
            let settings = RunSettings {
                chunk_size,
                ..RunSettings::default()
            };
            let mut run = Run::new(pipeline, &settings).unwrap();
            run.append_tokens(&PROMPT).unwrap();
            assert_eq!(steps(&mut run, 5), TOKENS);
            run.append_tokens(&[4, 6]).unwrap();
            let before = run.tokens().to_vec();
            assert_eq!(steps(&mut run, 3), continuation(&before, 3));
            // States do not go back: they begin anew.
            for len in [6, 2] {
                run.rewind(len).unwrap();
                let before = run.tokens().to_vec();
                assert_eq!(
                    steps(&mut run, 4),
                    continuation(&before, 4),
                    "after a rewind to {len}"
                );
            }
            let mut run = Run::new(pipeline, &settings).unwrap();
            run.append_tokens(&[6]).unwrap();
            assert_eq!(steps(&mut run, 12), continuation(&[6], 12));
        }
    });
}
