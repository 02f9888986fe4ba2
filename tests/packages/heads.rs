//! A package's own head that guesses tokens, of graphs, on every mix of backends. The target's hidden
//! state is the sum of its tokens' embeddings, and the head adds that of the next token to it: what it
//! guesses is what the target chooses.

use oxpipe::pipeline::{Pipeline, PipelineOptions, Run, RunSettings, Speculation};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};

use super::mixes::{TestPackage, backends, files, open_files, spec, steps, written};

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

/// Caches by their inputs and outputs.
type Caches = [(&'static str, &'static str)];
const ONE: &Caches = &[("past", "present")];

/// present = past and `rows` behind it, `logits` of `of`.
fn with_cache(model: Model, caches: &Caches, rows: &str, of: &str) -> Model {
    let weights = numbers(WIDTH * VOCABULARY, 2);
    let mut model = model
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .initializer(Tensor::floats("to_logits", &[WIDTH, VOCABULARY], &weights))
        .node(Node::new("Unsqueeze", &[rows, "axis_1"], &["new"]));
    for &(past, present) in caches {
        model = model
            .input(past, FLOAT, "[batch, 1, past, 4]")
            .node(Node::new("Concat", &[past, "new"], &[present]).int("axis", 2))
            .output(present, FLOAT, "[batch, 1, total, 4]");
    }
    model
        .node(Node::new("MatMul", &[of, "to_logits"], &["logits"]))
        .output("logits", FLOAT, "[batch, s, 31]")
}

fn target(caches: &Caches) -> Vec<u8> {
    let model = Model::new()
        .input("ids", INT64, "[batch, s]")
        .initializer(embeddings())
        .initializer(Tensor::ints("axis", &[], &[2]))
        .initializer(Tensor::ints("sequence", &[1], &[2]))
        .initializer(Tensor::ints("second", &[1], &[1]))
        .initializer(Tensor::ints("end", &[1], &[i64::MAX]))
        .node(Node::new("Gather", &["table", "ids"], &["rows"]).int("axis", 0));
    with_cache(model, caches, "rows", "hidden")
        .node(Node::new("CumSum", &[caches[0].1, "axis"], &["sums"]))
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
fn head(caches: &Caches, reads_ids: bool) -> Vec<u8> {
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
    with_cache(model, caches, "embeds", "next")
        .output("next", FLOAT, "[batch, s, 4]")
        .encode()
}

/// A head whose row is right behind the row before it alone: its cache has what the hidden states of the
/// next position must be.
fn chained_head() -> Vec<u8> {
    let model = Model::new()
        .input("ids", INT64, "[batch, s]")
        .input("hidden_states", FLOAT, "[batch, s, 4]")
        .initializer(embeddings())
        .initializer(Tensor::ints("zero", &[1], &[0]))
        .initializer(Tensor::ints("one", &[1], &[1]))
        .initializer(Tensor::ints("minus_one", &[1], &[-1]))
        .initializer(Tensor::floats("much", &[], &[64.0]))
        .node(Node::new("Gather", &["table", "ids"], &["embeds"]).int("axis", 0))
        .node(Node::new("Add", &["hidden_states", "embeds"], &["next"]))
        .node(Node::new(
            "Slice",
            &["hidden_states", "zero", "one", "one"],
            &["begin"],
        ))
        .node(Node::new("Squeeze", &["past", "axis_1"], &["rows"]))
        .node(Node::new("Concat", &["begin", "rows", "next"], &["all"]).int("axis", 1))
        .node(Node::new("Shape", &["ids"], &["shape"]))
        .node(Node::new("Gather", &["shape", "one"], &["count"]).int("axis", 0))
        .node(Node::new("Sub", &["minus_one", "count"], &["first"]))
        .node(Node::new(
            "Slice",
            &["all", "first", "minus_one", "one"],
            &["before"],
        ))
        .node(Node::new("Sub", &["hidden_states", "before"], &["apart"]))
        .node(Node::new("Mul", &["apart", "much"], &["wrong"]))
        .node(Node::new("Add", &["next", "wrong"], &["guessed"]));
    with_cache(model, ONE, "next", "guessed")
        .output("next", FLOAT, "[batch, s, 4]")
        .encode()
}

const IO: &str = "logits_output: logits, kv_inputs: [past], kv_outputs: [present]";

/// One graph with a head in another.
fn of_files(head: Vec<u8>) -> TestPackage {
    let metadata = format!(
        "model:\n  io: {{token_input: ids, {IO}}}\nspeculator_config:\n  method: mtp\n  tokens_per_step: 3
  model: head.onnx\n  target_hidden_output: hidden\n  io: {{token_input: ids, hidden_output: next, {IO}}}\n"
    );
    TestPackage::new(&metadata, vec![("model", target(ONE)), ("head", head)])
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
        ("head", head(ONE, false)),
        ("model", target(ONE)),
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
    for (package, head, most) in [
        (of_files(head(ONE, true)), "speculator", 3),
        (of_components(), "head", 4),
    ] {
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

/// The run begins anew with another prompt, the first positions of which another run has computed: what
/// the head had of the old one is not taken for them.
#[test]
fn rows_of_another_text_are_not_taken_for_those_of_a_prefix() {
    let options = PipelineOptions {
        prefix_cache_bytes: 1 << 20,
        ..PipelineOptions::default()
    };
    let pipeline = of_files(chained_head()).open(&options).unwrap();
    let mut first = start(&pipeline, Speculation::Head);
    let expected = steps(&mut first, 13);
    let whole = first.stats();
    assert!(whole.accepted_tokens > 6, "{whole:?}");
    let counts = |run: &mut Run| {
        let before = run.stats();
        assert_eq!(steps(run, 13), expected);
        let stats = run.stats();
        assert!(stats.reused_tokens > before.reused_tokens);
        (
            stats.proposed_tokens - before.proposed_tokens,
            stats.accepted_tokens - before.accepted_tokens,
        )
    };
    let of_fresh = counts(&mut start(&pipeline, Speculation::Head));
    for other in [&[5, 1, 2, 8, 4, 20, 7][..], &[5, 1], &[3, 14, 15, 2, 2]] {
        let mut run = start(&pipeline, Speculation::Head);
        run.rewind(0).unwrap();
        run.append_tokens(other).unwrap();
        steps(&mut run, 10);
        run.rewind(0).unwrap();
        run.append_tokens(&PROMPT).unwrap();
        assert_eq!(counts(&mut run), of_fresh, "{other:?}");
    }
}

/// What opening would take has the head, and so has what is open.
#[test]
fn a_head_is_a_component_and_has_a_cache() {
    for (package, name, beside) in [
        (of_files(head(ONE, true)), "speculator", 1),
        (of_components(), "head", 2),
    ] {
        let pipeline = package.open(&PipelineOptions::default()).unwrap();
        let names: Vec<&str> = pipeline
            .components()
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(names.len(), beside + 1);
        assert_eq!(names[beside], name);
        assert!(
            pipeline
                .component(name)
                .unwrap()
                .io
                .input("hidden_states")
                .is_some()
        );
        // [1, 1, rows, 4] of float each, the decoder's and the head's.
        assert_eq!(pipeline.kv_bytes_per_token(), Some(32));
        let estimate = package.estimate();
        assert_eq!(estimate.kv_bytes_per_token, Some(32));
        assert_eq!(estimate.components.len(), beside + 1);
        let sum: u64 = estimate.components.iter().map(|one| one.weight_bytes).sum();
        assert_eq!(
            (estimate.components[beside].name.as_str(), estimate.weight_bytes),
            (name, sum)
        );
    }
}

const KEYED: &Caches = &[
    ("past_key_values.0.key", "present.0.key"),
    ("past_key_values.0.value", "present.0.value"),
];

/// A `genai_config.json` with a head, as our own format has it.
#[test]
fn a_head_of_a_genai_config_is_written_as_metadata() {
    let config = r#"{"model": {"context_length": 100, "vocab_size": 31, "type": "of-our-own",
        "decoder": {"filename": "model.onnx", "num_hidden_layers": 1, "head_size": 4, "num_key_value_heads": 1,
            "inputs": {"input_ids": "ids", "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value"},
            "outputs": {"logits": "logits", "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value"}},
        "mtp": {"filename": "head.onnx", "main_hidden_states": "hidden",
            "inputs": {"input_ids": "ids"}, "outputs": {"hidden_states": "next"}}}}"#;
    let package = |head: Vec<u8>| {
        files([
            ("genai_config.json", config.as_bytes().to_vec()),
            ("model.onnx", target(KEYED)),
            ("head.onnx", head),
        ])
    };
    let of_genai = package(head(KEYED, true));
    let (of_metadata, text) = written(&of_genai);
    let [before, after] = [of_genai, of_metadata].map(|files| {
        let pipeline = open_files(&files);
        let mut run = start(&pipeline, Speculation::Head);
        (spec(&pipeline), steps(&mut run, 20), run.stats().accepted_tokens)
    });
    assert_eq!(before.0["head"]["component"], "mtp");
    assert!(before.2 > 10);
    assert_eq!(before, after, "{text}");
    // One that its graph contradicts has no place there.
    let (of_metadata, text) = written(&package(head(ONE, true)));
    assert!(text.contains("# Left out: the head"), "{text}");
    assert!(spec(&open_files(&of_metadata))["head"].is_null());
}
