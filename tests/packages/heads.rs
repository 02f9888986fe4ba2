//! A package's own head that guesses tokens, of graphs, on every mix of backends. The target's hidden
//! state is the sum of its tokens' embeddings, and the head adds that of the next token to it: what it
//! guesses is what the target chooses.

use oxpipe::pipeline::{Pipeline, PipelineOptions, Run, RunSettings, Speculation};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};

use super::mixes::{TestPackage, backends, steps};

const VOCABULARY: i64 = 31;
const WIDTH: i64 = 4;
const PROMPT: [i32; 5] = [3, 14, 15, 9, 26];

/// Small whole numbers, sums of which are exact: as good as random, and the same each time.
fn numbers(count: i64, seed: i64) -> Vec<f32> {
    let number = |place: i64| ((place * 7919 + seed * 104_729) % 23 - 11) as f32;
    (0..count).map(number).collect()
}

fn embeddings() -> Tensor {
    Tensor::floats("table", &[VOCABULARY, WIDTH], &numbers(VOCABULARY * WIDTH, 1))
}

/// present = past and `rows` behind it, `logits` of `of`.
fn with_cache(model: Model, rows: &str, of: &str) -> Model {
    let weights = numbers(WIDTH * VOCABULARY, 2);
    model
        .input("past", FLOAT, "[batch, 1, past, 4]")
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .initializer(Tensor::floats("to_logits", &[WIDTH, VOCABULARY], &weights))
        .node(Node::new("Unsqueeze", &[rows, "axis_1"], &["new"]))
        .node(Node::new("Concat", &["past", "new"], &["present"]).int("axis", 2))
        .output("present", FLOAT, "[batch, 1, total, 4]")
        .node(Node::new("MatMul", &[of, "to_logits"], &["logits"]))
        .output("logits", FLOAT, "[batch, s, 31]")
}

fn target() -> Vec<u8> {
    let model = Model::new()
        .input("ids", INT64, "[batch, s]")
        .initializer(embeddings())
        .initializer(Tensor::ints("axis", &[], &[2]))
        .initializer(Tensor::ints("sequence", &[1], &[2]))
        .initializer(Tensor::ints("second", &[1], &[1]))
        .initializer(Tensor::ints("end", &[1], &[i64::MAX]))
        .node(Node::new("Gather", &["table", "ids"], &["rows"]).int("axis", 0));
    with_cache(model, "rows", "hidden")
        .node(Node::new("CumSum", &["present", "axis"], &["sums"]))
        .node(Node::new("Shape", &["ids"], &["shape"]))
        .node(Node::new("Gather", &["shape", "second"], &["count"]).int("axis", 0))
        .node(Node::new("Neg", &["count"], &["first"]))
        .node(Node::new(
            "Slice",
            &["sums", "first", "end", "sequence"],
            &["last"],
        ))
        .node(Node::new("Squeeze", &["last", "axis_1"], &["hidden"]))
        .output("hidden", FLOAT, "[batch, s, 4]")
        .encode()
}

/// Reads token ids, or embeddings of them.
fn head(reads_ids: bool) -> Vec<u8> {
    let model = match reads_ids {
        true => Model::new()
            .input("ids", INT64, "[batch, s]")
            .initializer(embeddings())
            .node(Node::new("Gather", &["table", "ids"], &["embeds"]).int("axis", 0)),
        false => Model::new().input("embeds", FLOAT, "[batch, s, 4]"),
    };
    let model = model
        .input("hidden_states", FLOAT, "[batch, s, 4]")
        .node(Node::new("Add", &["hidden_states", "embeds"], &["next"]));
    with_cache(model, "embeds", "next")
        .output("next", FLOAT, "[batch, s, 4]")
        .encode()
}

const IO: &str = "logits_output: logits, kv_inputs: [past], kv_outputs: [present]";

/// One graph with a head in another.
fn of_files() -> TestPackage {
    let metadata = format!(
        "model:\n  io: {{token_input: ids, {IO}}}\nspeculator_config:\n  method: mtp\n  tokens_per_step: 3
  model: head.onnx\n  target_hidden_output: hidden\n  io: {{token_input: ids, hidden_output: next, {IO}}}\n"
    );
    TestPackage::new(&metadata, vec![("model", target()), ("head", head(true))])
}

/// A head that reads what the package's own component makes of token ids.
fn of_components() -> TestPackage {
    let embedder = Model::new()
        .input("ids", INT64, "[batch, s]")
        .initializer(embeddings())
        .node(Node::new("Gather", &["table", "ids"], &["embeds"]).int("axis", 0))
        .output("embeds", FLOAT, "[batch, s, 4]");
    let metadata = format!(
        "pipeline:
  models:
    embed: {{filename: embed.onnx, type: embedding, io: {{token_input: ids}}}}
    head: {{filename: head.onnx, type: draft, io: {{inputs_embeds_input: embeds, hidden_output: next, {IO}}}}}
    model: {{filename: model.onnx, type: decoder, io: {{token_input: ids, {IO}}}}}
  dataflow:
    - {{from: embed.embeds, to: head.embeds}}
  phases:
    embed: {{run_on: on_demand}}
speculative: {{proposal_type: eagle, component: head, hidden_input: hidden_states, target_hidden_output: hidden}}
"
    );
    let models = vec![
        ("embed", embedder.encode()),
        ("head", head(false)),
        ("model", target()),
    ];
    TestPackage::new(&metadata, models)
}

fn start(pipeline: &Pipeline, speculation: Speculation) -> Run {
    let settings = RunSettings {
        speculation,
        ..RunSettings::default()
    };
    let mut run = Run::new(pipeline, &settings).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    run
}

#[test]
fn a_head_on_each_backend_guesses_what_is_chosen() {
    for (package, head, most) in [(of_files(), "speculator", 3), (of_components(), "head", 4)] {
        for target in backends() {
            for of_head in backends() {
                let options = PipelineOptions {
                    backend: Some(target),
                    component_backends: vec![(head.to_owned(), of_head)],
                    prefix_cache_bytes: 1 << 20,
                    ..PipelineOptions::default()
                };
                let pipeline = package.open(&options).unwrap();
                assert_eq!(pipeline.describe()["head"]["backend"], of_head.name());
                let mut run = start(&pipeline, Speculation::Head);
                let expected = steps(&mut run, 30);
                drop(run);
                // Without guesses, and with a prefix whose hidden states are not known.
                for speculation in [Speculation::Off, Speculation::Head] {
                    let mut run = start(&pipeline, speculation);
                    assert_eq!(steps(&mut run, 30), expected);
                    let stats = run.stats();
                    assert!(stats.reused_tokens > 0);
                    assert_eq!(stats.proposed_tokens > 0, speculation == Speculation::Head);
                }
                let fresh = PipelineOptions {
                    prefix_cache_bytes: 0,
                    ..options
                };
                let pipeline = package.open(&fresh).unwrap();
                let mut run = start(&pipeline, Speculation::Head);
                assert_eq!(steps(&mut run, 13), expected[..13]);
                let stats = run.stats();
                // Of the last pass, not all may have been looked at yet.
                assert!(stats.proposed_tokens - stats.accepted_tokens <= most);
                assert_eq!(stats.passes, 1 + 12_u64.div_ceil(most + 1));

                let mut fork = run.fork().unwrap();
                let bytes = run.save().unwrap();
                assert_eq!(steps(&mut fork, 17), expected[13..]);
                assert!(fork.stats().accepted_tokens > stats.accepted_tokens + 6);
                let settings = RunSettings {
                    speculation: Speculation::Head,
                    ..RunSettings::default()
                };
                let mut loaded = Run::load(&pipeline, &settings, &bytes).unwrap();
                assert_eq!(steps(&mut loaded, 17), expected[13..]);
                run.rewind(PROMPT.len() + 4).unwrap();
                assert_eq!(steps(&mut run, 9), expected[4..13]);
            }
        }
    }
}
