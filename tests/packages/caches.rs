//! Caches of every kind of update. Each decoder here chooses the sum of all tokens so far, which
//! is right only if its cache holds every one of them: so that each token is twice the one before.

use oxpipe::component::{Backend, RunControl, copied_bytes, written_cache_bytes};
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT32, INT64, Model, Node, Tensor};
use serde_json::json;

use super::mixes::{TestPackage, floats, steps};

const VOCABULARY: i64 = 1000;
const SIZE: i64 = 8;

/// logits = -(v - `of`)^2, for `of` [1, S, 1].
fn logits(model: Model, of: &str) -> Model {
    let ids: Vec<f32> = (0..VOCABULARY).map(|id| id as f32).collect();
    model
        .initializer(Tensor::floats("vocabulary", &[1, 1, VOCABULARY], &ids))
        .node(Node::new("Sub", &["vocabulary", of], &["off"]))
        .node(Node::new("Mul", &["off", "off"], &["square"]))
        .node(Node::new("Neg", &["square"], &["logits"]))
        .output("logits", FLOAT, "[batch, s, 1000]")
}

/// value = the ids as [1, S, 8], zeros = nothing of them.
fn embedded(model: Model) -> Model {
    model
        .input("ids", INT64, "[batch, s]")
        .initializer(Tensor::ints("axis_2", &[1], &[2]))
        .initializer(Tensor::floats("row", &[SIZE], &[1.0; SIZE as usize]))
        .initializer(Tensor::floats("nothing", &[], &[0.0]))
        .node(Node::new("Cast", &["ids"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("Unsqueeze", &["floats", "axis_2"], &["column"]))
        .node(Node::new("Mul", &["column", "row"], &["value"]))
        .node(Node::new("Mul", &["value", "nothing"], &["zeros"]))
}

/// As onnxruntime-genai's builder has it: lengths out of the attention mask, and past and present
/// of any length. Attention to all positions alike is their mean.
fn group_query_attention() -> Vec<u8> {
    group_query_attention_model().encode()
}

fn group_query_attention_model() -> Model {
    mean_attention(&[], |node, _| node)
}

/// The same over the last three positions, and a sink that counts as two more of nothing: a sum of
/// three tokens, over five.
fn windowed_attention() -> Vec<u8> {
    let more = ["", "", "", "", "sink"];
    let model = mean_attention(&more, |node, positions| {
        *positions = "weights";
        node.int("local_window_size", 3)
    });
    model
        .initializer(Tensor::floats("sink", &[1], &[std::f32::consts::LN_2]))
        .encode()
}

/// Attention with `more` inputs, changed by `change`, which may also name what its mean is multiplied by:
/// the positions, or `weights`, that are in a window of three and a sink.
fn mean_attention(more: &[&str], change: impl Fn(Node, &mut &str) -> Node) -> Model {
    let inputs = [
        "zeros",
        "zeros",
        "value",
        "past_k",
        "past_v",
        "seqlens_k",
        "total_length",
    ];
    let inputs = [&inputs, more].concat();
    let attention = Node::new("GroupQueryAttention", &inputs, &["mean", "k", "v"])
        .domain("com.microsoft")
        .int("num_heads", 1)
        .int("kv_num_heads", 1);
    let mut times = "positions";
    let attention = change(attention, &mut times);
    let model = Model::new()
        .opset("com.microsoft", 1)
        .input("mask", INT64, "[batch, total]")
        .input("past_k", FLOAT, "[batch, 1, past, 8]")
        .input("past_v", FLOAT, "[batch, 1, past, 8]")
        .output("k", FLOAT, "[batch, 1, total, 8]")
        .output("v", FLOAT, "[batch, 1, total, 8]");
    let model = embedded(model)
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .initializer(Tensor::ints("one", &[], &[1]))
        .node(Node::new("ReduceSum", &["mask", "axis_1"], &["count"]).int("keepdims", 0))
        .node(Node::new("Sub", &["count", "one"], &["last"]))
        .node(Node::new("Cast", &["last"], &["seqlens_k"]).int("to", INT32.into()))
        .node(Node::new("Shape", &["mask"], &["shape"]))
        .node(Node::new("Gather", &["shape", "one"], &["length"]).int("axis", 0))
        .node(Node::new("Cast", &["length"], &["total_length"]).int("to", INT32.into()))
        .node(attention)
        .node(Node::new("Cast", &["length"], &["positions"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceMean", &["mean"], &["one_mean"]).ints("axes", &[2]))
        .initializer(Tensor::floats("three", &[], &[3.0]))
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .node(Node::new("Min", &["positions", "three"], &["seen"]))
        .node(Node::new("Add", &["seen", "two"], &["weights"]))
        .node(Node::new("Mul", &["one_mean", times], &["sum"]));
    logits(model, "sum")
}

const SHARED: &str = "
model:
  max_sequence_length: 200
  io:
    token_input: ids
    attention_mask_input: mask
    logits_output: logits
    kv_inputs: [past_k, past_v]
    kv_outputs: [k, v]
    kv_update: shared_buffer
";

/// TensorScatter into buffers of 64 positions, and Attention over as many of them as are filled.
fn static_cache() -> Vec<u8> {
    let model = Model::new()
        .ir_version(11)
        .opset("", 24)
        .input("write_at", INT64, "[batch]")
        .input("filled", INT64, "[batch]")
        .input("keys", FLOAT, "[1, 1, 64, 8]")
        .input("values", FLOAT, "[1, 1, 64, 8]")
        .output("new_keys", FLOAT, "[1, 1, 64, 8]")
        .output("new_values", FLOAT, "[1, 1, 64, 8]");
    let scatter = |past: &str, new: &str, present: &str| {
        Node::new("TensorScatter", &[past, new, "write_at"], &[present]).int("axis", 2)
    };
    let model = embedded(model)
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .node(Node::new("Unsqueeze", &["value", "axis_1"], &["new_value"]))
        .node(Node::new("Unsqueeze", &["zeros", "axis_1"], &["new_key"]))
        .node(scatter("keys", "new_key", "new_keys"))
        .node(scatter("values", "new_value", "new_values"))
        .node(
            Node::new(
                "Attention",
                &["new_key", "new_keys", "new_values", "", "", "", "filled"],
                &["heads"],
            )
            .int("is_causal", 1),
        )
        .node(Node::new("Squeeze", &["heads", "axis_1"], &["mean"]))
        .node(Node::new("ReduceMean", &["mean", "axis_2"], &["one_mean"]))
        .node(Node::new("Cast", &["filled"], &["positions"]).int("to", FLOAT.into()))
        .node(Node::new("Mul", &["one_mean", "positions"], &["sum"]));
    logits(model, "sum").encode()
}

const STATIC: &str = "
required_capabilities: [static_cache]
model:
  io:
    token_input: ids
    logits_output: logits
    static_cache:
      write_indices_input: write_at
      kv_sequence_length_input: filled
      key_cache_inputs: [keys]
      value_cache_inputs: [values]
      key_cache_outputs: [new_keys]
      value_cache_outputs: [new_values]
";

/// A buffer [1, 16, 1, 1] of 16 positions, written at the positions, of which those up to the last
/// one are added up.
fn scattered() -> Vec<u8> {
    let places: Vec<f32> = (0..16u8).map(f32::from).collect();
    let model = Model::new()
        .input("ids", INT64, "[batch, s]")
        .input("positions", INT32, "[batch, s]")
        .input("past", FLOAT, "[1, 16, 1, 1]")
        .output("present", FLOAT, "[1, 16, 1, 1]")
        .initializer(Tensor::ints("axis_2", &[1], &[2]))
        .initializer(Tensor::ints("behind", &[2], &[2, 3]))
        .initializer(Tensor::floats("places", &[1, 16, 1, 1], &places))
        .initializer(Tensor::floats("nothing", &[], &[0.0]))
        .node(Node::new("Cast", &["ids"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("Unsqueeze", &["floats", "behind"], &["new"]))
        .node(Node::new("Unsqueeze", &["positions", "behind"], &["at"]))
        .node(Node::new("ScatterElements", &["past", "at", "new"], &["present"]).int("axis", 1))
        .node(Node::new("Cast", &["positions"], &["float_positions"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceMax", &["float_positions"], &["last"]).int("keepdims", 0))
        .node(Node::new("LessOrEqual", &["places", "last"], &["is_filled"]))
        .node(Node::new(
            "Where",
            &["is_filled", "present", "nothing"],
            &["filled"],
        ))
        .node(Node::new("ReduceSum", &["filled"], &["all"]).int("keepdims", 0))
        .node(Node::new("Unsqueeze", &["floats", "axis_2"], &["column"]))
        .node(Node::new("Mul", &["column", "nothing"], &["zeros"]))
        .node(Node::new("Add", &["zeros", "all"], &["sum"]));
    logits(model, "sum").encode()
}

const SCATTERED: &str = "
model:
  io:
    token_input: ids
    position_ids_input: positions
    logits_output: logits
    kv_inputs: [past]
    kv_outputs: [present]
    kv_update: shared_buffer
    kv_layout: LAYOUT
";

/// The same buffer, of which the sum is made of what was in it and of what is new: something that
/// must have read the past before the present takes its place.
fn scattered_behind_a_reader() -> Vec<u8> {
    let model = Model::new()
        .input("ids", INT64, "[batch, s]")
        .input("positions", INT32, "[batch, s]")
        .input("past", FLOAT, "[1, 16, 1, 1]")
        .output("present", FLOAT, "[1, 16, 1, 1]")
        .initializer(Tensor::ints("axis_2", &[1], &[2]))
        .initializer(Tensor::ints("behind", &[2], &[2, 3]))
        .initializer(Tensor::floats("nothing", &[], &[0.0]))
        .node(Node::new("Cast", &["ids"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("Unsqueeze", &["floats", "behind"], &["new"]))
        .node(Node::new("Unsqueeze", &["positions", "behind"], &["at"]))
        .node(Node::new("ScatterElements", &["past", "at", "new"], &["present"]).int("axis", 1))
        .node(Node::new("ReduceMax", &["present"], &["unused"]).int("keepdims", 0))
        // So that this comes after the scattering, in any order that respects the edges.
        .node(Node::new("Mul", &["unused", "nothing"], &["after"]))
        .node(Node::new("Add", &["past", "after"], &["past_after"]))
        .node(Node::new("ReduceSum", &["past_after"], &["all_old"]).int("keepdims", 0))
        .node(Node::new("ReduceSum", &["floats"], &["all_new"]).int("keepdims", 0))
        .node(Node::new("Add", &["all_old", "all_new"], &["both"]))
        .node(Node::new("Unsqueeze", &["floats", "axis_2"], &["column"]))
        .node(Node::new("Mul", &["column", "nothing"], &["zeros"]))
        .node(Node::new("Add", &["zeros", "both"], &["sum"]));
    logits(model, "sum").encode()
}

/// A buffer that the graph makes by another operator than one that overwrites: what was in it,
/// one place further on, with the new token in the first place.
fn shifted() -> Vec<u8> {
    let model = Model::new()
        .input("ids", INT64, "[batch, s]")
        .input("past", FLOAT, "[1, 16, 1, 1]")
        .output("present", FLOAT, "[1, 16, 1, 1]")
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .initializer(Tensor::ints("axis_2", &[1], &[2]))
        .initializer(Tensor::ints("zero", &[1], &[0]))
        .initializer(Tensor::ints("sixteen", &[1], &[16]))
        .initializer(Tensor::ints("column_of", &[4], &[1, -1, 1, 1]))
        .initializer(Tensor::floats("nothing", &[], &[0.0]))
        .node(Node::new("Cast", &["ids"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("Reshape", &["floats", "column_of"], &["new"]))
        .node(Node::new("Concat", &["new", "past"], &["longer"]).int("axis", 1))
        .node(Node::new(
            "Slice",
            &["longer", "zero", "sixteen", "axis_1"],
            &["present"],
        ))
        .node(Node::new("ReduceSum", &["present"], &["all"]).int("keepdims", 0))
        .node(Node::new("Unsqueeze", &["floats", "axis_2"], &["column"]))
        .node(Node::new("Mul", &["column", "nothing"], &["zeros"]))
        .node(Node::new("Add", &["zeros", "all"], &["sum"]));
    logits(model, "sum").encode()
}

const SHIFTED: &str = "
model:
  io:
    token_input: ids
    logits_output: logits
    kv_inputs: [past]
    kv_outputs: [present]
    kv_update: shared_buffer
    kv_layout: seq_major_bsnh
";

/// Where the present may not take the past's place while a step is under way.
#[test]
fn a_past_that_something_else_reads_is_not_overwritten() {
    let reader = TestPackage::new(
        &SCATTERED.replace("LAYOUT", "seq_major_bsnh"),
        vec![("model", scattered_behind_a_reader())],
    );
    let shifted = TestPackage::new(SHIFTED, vec![("model", shifted())]);
    for (name, package) in [("reader", reader), ("shifted", shifted)] {
        package.for_each_mix(|pipeline| {
            for chunk_size in [None, Some(1), Some(2)] {
                let settings = RunSettings {
                    chunk_size,
                    ..RunSettings::default()
                };
                let mut run = start(pipeline, &settings, &[1, 0, 2]);
                assert_eq!(steps(&mut run, 8), [3, 6, 12, 24, 48, 96, 192, 384], "{name}");
            }
        });
    }
}

/// A buffer [1, 16, 1, 1] that the graph reads all of, times ones and zeros by position. Token 900
/// is a NaN.
fn masked_by_zeros() -> Vec<u8> {
    let places: Vec<f32> = (0..16u8).map(f32::from).collect();
    let model = Model::new()
        .input("ids", INT64, "[batch, s]")
        .input("positions", INT32, "[batch, s]")
        .input("past", FLOAT, "[1, 16, 1, 1]")
        .output("present", FLOAT, "[1, 16, 1, 1]")
        .initializer(Tensor::ints("axis_2", &[1], &[2]))
        .initializer(Tensor::ints("behind", &[2], &[2, 3]))
        .initializer(Tensor::ints("bad", &[], &[900]))
        .initializer(Tensor::floats("nan", &[], &[f32::NAN]))
        .initializer(Tensor::floats("places", &[1, 16, 1, 1], &places))
        .initializer(Tensor::floats("nothing", &[], &[0.0]))
        .node(Node::new("Cast", &["ids"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("Equal", &["ids", "bad"], &["is_bad"]))
        .node(Node::new("Where", &["is_bad", "nan", "numbers"], &["floats"]))
        .node(Node::new("Unsqueeze", &["floats", "behind"], &["new"]))
        .node(Node::new("Unsqueeze", &["positions", "behind"], &["at"]))
        .node(Node::new("ScatterElements", &["past", "at", "new"], &["present"]).int("axis", 1))
        .node(Node::new("Cast", &["positions"], &["float_positions"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceMax", &["float_positions"], &["last"]).int("keepdims", 0))
        .node(Node::new("LessOrEqual", &["places", "last"], &["is_filled"]))
        .node(Node::new("Cast", &["is_filled"], &["ones_and_zeros"]).int("to", FLOAT.into()))
        .node(Node::new("Mul", &["present", "ones_and_zeros"], &["filled"]))
        .node(Node::new("ReduceSum", &["filled"], &["all"]).int("keepdims", 0))
        .node(Node::new("Unsqueeze", &["floats", "axis_2"], &["column"]))
        .node(Node::new("Mul", &["column", "nothing"], &["zeros"]))
        .node(Node::new("Add", &["zeros", "all"], &["sum"]));
    logits(model, "sum").encode()
}

/// What a rewind leaves behind the tokens in a buffer is masked by the graph, and a NaN would get
/// through: it must not be there.
#[test]
fn rows_behind_a_rewind_do_not_poison_what_comes_after() {
    let metadata = SCATTERED.replace("LAYOUT", "seq_major_bsnh");
    TestPackage::new(&metadata, vec![("model", masked_by_zeros())]).for_each_mix(|pipeline| {
        let mut run = start(pipeline, &RunSettings::default(), &[1, 2, 900, 900]);
        for len in [2, 1, 0] {
            let error = run.step(&RunControl::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RunFailed, "{error}");
            run.rewind(len).unwrap();
            run.append_tokens(&[1, 2][len..]).unwrap();
            assert_eq!(steps(&mut run, 2), [3, 6], "after a rewind to {len}");
            run.append_tokens(&[900, 900]).unwrap();
        }
    });
}

/// A graph that gives its past unchanged too: the values are the past's, whatever the step and the
/// growth of the buffer do to the memory that it lay in.
#[test]
fn a_past_that_is_an_output_too_is_not_overwritten() {
    let model = group_query_attention_model()
        .output("past_v", FLOAT, "[batch, 1, past, 8]")
        .encode();
    let package = TestPackage::new(SHARED, vec![("model", model)]);
    package.for_each_mix(|pipeline| {
        let mut run = start(pipeline, &RunSettings::default(), &[1, 0, 2]);
        let mut held = 0;
        for step in 0..70 {
            let fed = run.tokens().len();
            steps(&mut run, 1);
            let past = floats(run.get_tensor("model.past_v").unwrap());
            let rows: Vec<f32> = past.chunks(SIZE as usize).map(|row| row[0]).collect();
            let mut expected: Vec<f32> = run.tokens()[..held].iter().map(|&id| id as f32).collect();
            expected.resize(rows.len(), 0.0);
            assert_eq!(rows, expected, "step {step}");
            held = fed;
        }
    });
}

pub fn packages() -> Vec<(&'static str, TestPackage)> {
    let scattered_package = |layout| {
        let metadata = SCATTERED.replace("LAYOUT", layout);
        TestPackage::new(&metadata, vec![("model", scattered())])
    };
    vec![
        (
            "shared",
            TestPackage::new(SHARED, vec![("model", group_query_attention())]),
        ),
        (
            "static",
            TestPackage::new(STATIC, vec![("model", static_cache())]),
        ),
        ("scattered", scattered_package("seq_major_bsnh")),
        // Of graphs that are told the lengths, caches are buffers whatever the package says.
        (
            "append",
            TestPackage::new(
                &SHARED.replace("shared_buffer", "append"),
                vec![("model", group_query_attention())],
            ),
        ),
        // Batch, heads, sequence, head size.
        ("strides", scattered_package("{strides: [16, 1, 1, 1]}")),
    ]
}

pub const PROMPT: [i32; 3] = [1, 0, 2];
pub const SUMS: [i32; 8] = [3, 6, 12, 24, 48, 96, 192, 384];

#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    for (name, package) in packages() {
        package.write(
            &format!("cache-{name}"),
            &json!([{"prompt": PROMPT, "tokens": SUMS}]),
        );
    }
    for update in ["shared_buffer", "append"] {
        let cases = json!([
            {"prompt": WINDOW_PROMPT, "tokens": WINDOW_SUMS},
            {"prompt": [9], "tokens": WINDOW_SUMS_OF_NINE},
        ]);
        windowed_package(update).write(&format!("cache-window-{update}"), &cases);
    }
}

fn start(pipeline: &Pipeline, settings: &RunSettings, prompt: &[i32]) -> Run {
    let mut run = Run::new(pipeline, settings).unwrap();
    run.append_tokens(prompt).unwrap();
    run
}

#[test]
fn every_kind_of_update_keeps_every_token() {
    for (name, package) in packages() {
        package.for_each_mix(|pipeline| {
            for chunk_size in [None, Some(1), Some(2)] {
                let settings = RunSettings {
                    chunk_size,
                    ..RunSettings::default()
                };
                let mut run = start(pipeline, &settings, &PROMPT);
                assert_eq!(steps(&mut run, 8), SUMS, "{name}");
                for len in [9, 5, 1] {
                    run.rewind(len).unwrap();
                    run.append_tokens(&[4]).unwrap();
                    let sum = run.tokens().iter().sum::<i32>();
                    assert_eq!(
                        steps(&mut run, 2),
                        [sum, 2 * sum],
                        "{name} after a rewind to {len}"
                    );
                    run.rewind(0).unwrap();
                    run.append_tokens(&PROMPT).unwrap();
                    assert_eq!(steps(&mut run, 7), SUMS[..7], "{name}");
                }
            }
        });
    }
}

fn windowed_package(update: &str) -> TestPackage {
    let metadata = SHARED.replace("shared_buffer", update);
    TestPackage::new(&metadata, vec![("model", windowed_attention())])
}

/// Each is the sum of the three before.
const WINDOW_PROMPT: [i32; 4] = [7, 1, 0, 2];
const WINDOW_SUMS: [i32; 8] = [3, 5, 10, 18, 33, 61, 112, 206];
const WINDOW_SUMS_OF_NINE: [i32; 4] = [9, 18, 36, 63];

#[test]
fn a_window_with_a_sink_slides_with_every_kind_of_feeding() {
    for update in ["shared_buffer", "append"] {
        windowed_package(update).for_each_mix(|pipeline| {
            for chunk_size in [None, Some(1), Some(2)] {
                let settings = RunSettings {
                    chunk_size,
                    ..RunSettings::default()
                };
                let mut run = start(pipeline, &settings, &WINDOW_PROMPT);
                assert_eq!(steps(&mut run, 8), WINDOW_SUMS, "{update}");
                run.rewind(6).unwrap();
                run.append_tokens(&[4]).unwrap();
                assert_eq!(steps(&mut run, 3), [12, 21, 37], "{update} after a rewind");
                run.rewind(0).unwrap();
                run.append_tokens(&[9]).unwrap();
                assert_eq!(steps(&mut run, 4), WINDOW_SUMS_OF_NINE, "{update} from the start");
            }
        });
    }
}

#[test]
fn a_buffer_is_shown_as_far_as_it_is_filled() {
    for (name, package) in packages() {
        let (address, axis) = match name {
            "shared" | "append" => ("model.v", 2),
            "static" => ("model.new_values", 2),
            _ => ("model.present", 1),
        };
        package.for_each_mix(|pipeline| {
            let mut run = start(pipeline, &RunSettings::default(), &[1, 2]);
            assert!(run.get_tensor(address).unwrap().bytes().is_empty());
            steps(&mut run, 2);
            let view = run.get_tensor(address).unwrap();
            assert_eq!(view.shape()[axis], 3, "{name}");
            let width = floats(view).len() / 3;
            let rows: Vec<f32> = floats(view).chunks(width).map(|row| row[0]).collect();
            assert_eq!(rows, [1.0, 2.0, 3.0], "{name}");
        });
    }
}

#[test]
fn a_full_buffer_ends_the_text_and_takes_no_more() {
    let (_, package) = packages().swap_remove(2);
    package.for_each_mix(|pipeline| {
        assert_eq!(pipeline.package().context_length, Some(16));
        let mut run = start(pipeline, &RunSettings::default(), &[0; 14]);
        steps(&mut run, 2);
        assert!(run.finished().is_some());
        let error = run.append_tokens(&[0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}

/// Bytes that a step copies at the seam and writes to caches.
fn bytes_of_steps(pipeline: &Pipeline, prompt: usize, count: usize) -> Vec<u64> {
    let mut run = start(pipeline, &RunSettings::default(), &vec![0; prompt]);
    let control = RunControl::default();
    let counted = || copied_bytes().zip(written_cache_bytes()).map(|(a, b)| a + b);
    run.step(&control).unwrap();
    let mut each = Vec::new();
    for _ in 0..count {
        let before = counted();
        run.step(&control).unwrap();
        each.extend(counted().zip(before).map(|(after, before)| after - before));
    }
    each
}

#[test]
fn a_step_writes_as_many_bytes_however_long_the_context_is() {
    if copied_bytes().is_none() {
        eprintln!("NOT CHECKED: this build does not count copies");
        return;
    }
    for (name, package) in packages().into_iter().take(2) {
        package.for_each_mix(|pipeline| {
            let native = pipeline.component("model").unwrap().backend == Backend::Native;
            // Keys and values of one position, which ONNX Runtime writes without our counting.
            let row = if native { 2 * 8 * 4 } else { 0 };
            for prompt in [4, 40] {
                assert_eq!(
                    bytes_of_steps(pipeline, prompt, 5),
                    [row; 5],
                    "{name} after {prompt} tokens"
                );
            }
        });
    }
}

/// Memory grows with the tokens where the graph does not fix it, and is one buffer either way.
#[test]
fn a_shared_buffer_is_one() {
    for (name, package) in packages() {
        package.for_each_mix(|pipeline| {
            let mut run = start(pipeline, &RunSettings::default(), &[1]);
            steps(&mut run, 1);
            let native = pipeline.component("model").unwrap().backend == Backend::Native;
            let expected = match name {
                "shared" | "append" => 2 * 64 * 8 * 4,
                "static" => 2 * 64 * 8 * 4,
                // Two that take turns.
                _ if native => 2 * 16 * 4,
                _ => 16 * 4,
            };
            let held = run.stats().kv_bytes;
            assert!((expected..expected + 512).contains(&held), "{name}: {held}");
        });
    }
}

#[test]
fn what_a_buffer_must_be() {
    let refused = |metadata: &str, model: Vec<u8>, message: &str| {
        let package = TestPackage::new(metadata, vec![("model", model)]);
        let error = package.open(&PipelineOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadPackage, "{error}");
        assert!(error.to_string().contains(message), "{message}: {error}");
    };
    refused(
        &SHARED.replace("shared_buffer", "append"),
        group_query_attention_of_64(),
        "without a fixed size (kv_update: append)",
    );
    for (field, message) in [
        (
            "      write_indices_input: write_at\n",
            "write_indices_input: is missing",
        ),
        (
            "      kv_sequence_length_input: filled\n",
            "kv_sequence_length_input: is missing",
        ),
        (
            "      value_cache_outputs: [new_values]\n",
            "value_cache_outputs: is missing",
        ),
    ] {
        refused(&STATIC.replace(field, ""), static_cache(), message);
    }
    refused(
        &STATIC.replace("[new_values]", "[]"),
        static_cache(),
        "key_cache_inputs has 1 names and value_cache_outputs has 0",
    );
    refused(
        &STATIC.replace("input: filled", "input: values"),
        static_cache(),
        "a number of tokens: int32 or int64, one element",
    );
    refused(
        &STATIC.replace(
            "    logits_output",
            "    kv_inputs: [keys]\n    kv_outputs: [new_keys]\n    logits_output",
        ),
        static_cache(),
        "the caches are kv_inputs too",
    );
    let strides = |strides: &str| SCATTERED.replace("LAYOUT", &format!("{{strides: {strides}}}"));
    refused(&strides("[16, 1, 1]"), scattered(), "a cache has 4 strides");
    refused(
        &strides("[16, 1, 2, 1]"),
        scattered(),
        "a dense tensor of its dims has others",
    );
    refused(&strides("[16, 0, 1, 1]"), scattered(), "an integer from 1");
}

fn group_query_attention_of_64() -> Vec<u8> {
    Model::new()
        .input("ids", INT64, "[batch, s]")
        .input("mask", INT64, "[batch, total]")
        .input("past_k", FLOAT, "[batch, 1, 64, 8]")
        .input("past_v", FLOAT, "[batch, 1, 64, 8]")
        .output("k", FLOAT, "[batch, 1, 64, 8]")
        .output("v", FLOAT, "[batch, 1, 64, 8]")
        .output("logits", FLOAT, "[batch, s, 8]")
        .node(Node::new("Identity", &["past_k"], &["k"]))
        .node(Node::new("Identity", &["past_v"], &["v"]))
        .initializer(Tensor::floats("none", &[1, 1, 8], &[0.0; 8]))
        .node(Node::new("Identity", &["none"], &["logits"]))
        .encode()
}
