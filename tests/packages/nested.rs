//! Frames of codes. The inner decoder's code of group g is S + g + 1, where S is the hidden state
//! that begins the frame; the outer decoder's token is S + 2. S is the outer decoder's last
//! position where it reads tokens, and the sum of what it reads of the frame before elsewhere.

use oxpipe::component::RunControl;
use oxpipe::generation::FinishReason;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT32, INT64, Model, Node, Tensor};

use serde_json::{Value, json};

use super::mixes::{TestPackage, floats, integers};

const VOCABULARY: i64 = 300;

/// logits = -(v - `of`)^2, for `of` [1, S, 1].
fn logits(model: Model, of: &str) -> Model {
    let ids: Vec<f32> = (0..VOCABULARY).map(|id| id as f32).collect();
    model
        .initializer(Tensor::floats("vocabulary", &[1, 1, VOCABULARY], &ids))
        .node(Node::new("Sub", &["vocabulary", of], &["off"]))
        .node(Node::new("Mul", &["off", "off"], &["square"]))
        .node(Node::new("Neg", &["square"], &["logits"]))
        .output("logits", FLOAT, "[batch, s, 300]")
}

/// present = past and a one for each row; count = its rows. `of` is [1, S, 1].
fn counted(model: Model, of: &str) -> Model {
    model
        .input("past", FLOAT, "[1, 1, past, 1]")
        .output("present", FLOAT, "[1, 1, total, 1]")
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .initializer(Tensor::floats("zero", &[], &[0.0]))
        .initializer(Tensor::floats("one", &[], &[1.0]))
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .node(Node::new("Mul", &[of, "zero"], &["zeros"]))
        .node(Node::new("Add", &["zeros", "one"], &["ones"]))
        .node(Node::new("Unsqueeze", &["ones", "axis_1"], &["new"]))
        .node(Node::new("Concat", &["past", "new"], &["present"]).int("axis", 2))
        .node(Node::new("ReduceSum", &["present"], &["count"]).int("keepdims", 0))
}

/// code = S + rows in the cache, this one's among them; its embedding is S again.
fn code_predictor() -> Vec<u8> {
    let model = Model::new()
        .input("embeds", FLOAT, "[batch, s, 2]")
        .output("code_embeds", FLOAT, "[batch, s, 2]")
        .node(Node::new("Identity", &["embeds"], &["code_embeds"]))
        .node(Node::new("ReduceMean", &["embeds"], &["mean"]).ints("axes", &[2]));
    let model = counted(model, "mean").node(Node::new("Add", &["mean", "count"], &["code"]));
    logits(model, "code").encode()
}

/// The same without a cache: the rows are those that it reads.
fn code_predictor_without_cache() -> Vec<u8> {
    let model = Model::new()
        .input("embeds", FLOAT, "[batch, s, 2]")
        .output("code_embeds", FLOAT, "[batch, s, 2]")
        .initializer(Tensor::floats("zero", &[], &[0.0]))
        .initializer(Tensor::floats("one", &[], &[1.0]))
        .node(Node::new("Identity", &["embeds"], &["code_embeds"]))
        .node(Node::new("ReduceMean", &["embeds"], &["mean"]).ints("axes", &[2]))
        .node(Node::new("Mul", &["mean", "zero"], &["zeros"]))
        .node(Node::new("Add", &["zeros", "one"], &["ones"]))
        .node(Node::new("ReduceSum", &["ones"], &["count"]).int("keepdims", 0))
        .node(Node::new("Add", &["mean", "count"], &["code"]));
    logits(model, "code").encode()
}

/// S = position + 1000 * (last position + 1 - rows in the cache), of which the second part is 0.
fn token_talker() -> Vec<u8> {
    let model = Model::new()
        .input("ids", INT64, "[batch, s]")
        .input("positions", INT64, "[batch, s]")
        .output("hidden", FLOAT, "[batch, s, 2]")
        .initializer(Tensor::ints("axis_2", &[1], &[2]))
        .node(Node::new("Cast", &["positions"], &["place"]).int("to", FLOAT.into()))
        .node(Node::new("Unsqueeze", &["place", "axis_2"], &["state"]));
    talk(model, "state", "place").encode()
}

fn talk(model: Model, state: &str, place: &str) -> Model {
    let model = counted(model, state)
        .initializer(Tensor::floats("thousand", &[], &[1000.0]))
        .initializer(Tensor::floats("both", &[2], &[1.0, 1.0]))
        .node(Node::new("ReduceMax", &[place], &["last"]).int("keepdims", 0))
        .node(Node::new("Add", &["last", "one"], &["rows"]))
        .node(Node::new("Sub", &["rows", "count"], &["missing"]))
        .node(Node::new("Mul", &["missing", "thousand"], &["wrong"]))
        .node(Node::new("Add", &[state, "wrong"], &["s"]))
        .node(Node::new("Mul", &["s", "both"], &["hidden"]))
        .node(Node::new("Add", &["s", "two"], &["token"]));
    logits(model, "token")
}

/// S = the mean of what it reads.
fn embedded_talker() -> Vec<u8> {
    let model = Model::new()
        .input("embeds", FLOAT, "[batch, s, 2]")
        .input("positions", INT64, "[batch, s]")
        .output("hidden", FLOAT, "[batch, s, 2]")
        .node(Node::new("Cast", &["positions"], &["place"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceMean", &["embeds"], &["state"]).ints("axes", &[2]));
    talk(model, "state", "place").encode()
}

/// embeds = the sum of the codes, and the text.
fn step_embedder() -> Vec<u8> {
    Model::new()
        .input("codes", INT32, "[batch, 3]")
        .input("text", FLOAT, "[batch, 1, 2]")
        .output("embeds", FLOAT, "[batch, 1, 2]")
        .initializer(Tensor::ints("axis_1", &[1], &[1]))
        .initializer(Tensor::ints("axis_2", &[1], &[2]))
        .node(Node::new("Cast", &["codes"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceSum", &["floats", "axis_1"], &["sum"]).int("keepdims", 1))
        .node(Node::new("Unsqueeze", &["sum", "axis_2"], &["row"]))
        .node(Node::new("Add", &["row", "text"], &["embeds"]))
        .encode()
}

/// Two rows of the sum of the prompt's ids, and texts of 1 and 2.
fn prefill_embedder() -> Vec<u8> {
    Model::new()
        .input("ids", INT64, "[batch, n]")
        .output("prefill", FLOAT, "[1, 2, 2]")
        .output("trailing", FLOAT, "[1, 2, 2]")
        .initializer(Tensor::floats("ones", &[1, 2, 2], &[1.0; 4]))
        .initializer(Tensor::floats("texts", &[1, 2, 2], &[1.0, 1.0, 2.0, 2.0]))
        .node(Node::new("Cast", &["ids"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceSum", &["floats"], &["sum"]).int("keepdims", 0))
        .node(Node::new("Mul", &["ones", "sum"], &["prefill"]))
        .node(Node::new("Identity", &["texts"], &["trailing"]))
        .encode()
}

/// audio = twice the codes.
fn vocoder() -> Vec<u8> {
    Model::new()
        .input("codes", INT64, "[1, frames, groups]")
        .output("audio", FLOAT, "[1, frames, groups]")
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .node(Node::new("Cast", &["codes"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("Mul", &["floats", "two"], &["audio"]))
        .encode()
}

const TOKENS: &str = "
tokens: {eos_token_id: [5, 99]}
pipeline:
  models:
    talker:
      filename: talker.onnx
      type: decoder
      io:
        token_input: ids
        position_ids_input: positions
        logits_output: logits
        kv_inputs: [past]
        kv_outputs: [present]
    predictor:
      filename: predictor.onnx
      type: decoder
      io: {inputs_embeds_input: embeds, logits_output: logits, kv_inputs: [past], kv_outputs: [present]}
    vocoder: {filename: vocoder.onnx, type: vocoder}
  dataflow:
    - {from: talker.hidden, to: predictor.embeds}
    - {from: talker.output_codes, to: vocoder.codes}
  strategy:
    kind: composite
    stages:
      - name: codes
        strategy:
          kind: nested_autoregressive
          outer: talker
          inner: predictor
          inner_embedding_output: code_embeds
          num_code_groups: 3
          max_tokens: 4
      - name: sound
        strategy: {kind: single_pass, model: vocoder}
";

fn with_tokens() -> TestPackage {
    with_predictor(TOKENS, code_predictor())
}

fn with_predictor(metadata: &str, predictor: Vec<u8>) -> TestPackage {
    let models = vec![
        ("talker", token_talker()),
        ("predictor", predictor),
        ("vocoder", vocoder()),
    ];
    TestPackage::new(metadata, models)
}

fn with_embeddings(prefill: bool) -> TestPackage {
    with_embeddings_up_to(prefill, None)
}

fn with_embeddings_up_to(prefill: bool, limit: Option<usize>) -> TestPackage {
    let limited = |metadata: String| match limit {
        Some(limit) => format!("model: {{max_sequence_length: {limit}}}\n{metadata}"),
        None => metadata,
    };
    with_embeddings_as(prefill, limited, embedded_talker())
}

fn with_embeddings_as(prefill: bool, change: impl Fn(String) -> String, talker: Vec<u8>) -> TestPackage {
    let mut metadata = TOKENS
        .replace("[5, 99]", "[999]")
        .replace("        token_input: ids\n", "        inputs_embeds_input: embeds\n")
        .replace(
            "  dataflow:\n",
            "    embedder: {filename: embedder.onnx, type: embedding}\n  dataflow:\n    - {from: embedder.embeds, to: \
             talker.embeds}\n",
        )
        .replace(
            "          num_code_groups: 3\n",
            "          num_code_groups: 3\n          pre_embedder: {component: embedder, frame_codes_input: codes, \
             text_embed_input: text}\n",
        );
    let mut models = vec![
        ("talker", talker),
        ("predictor", code_predictor()),
        ("vocoder", vocoder()),
        ("embedder", step_embedder()),
    ];
    if prefill {
        metadata = metadata
            .replace(
                "  dataflow:\n",
                "    prefill: {filename: prefill.onnx, type: embedding}\n  dataflow:\n",
            )
            .replace(
                "          num_code_groups: 3\n",
                "          num_code_groups: 3\n          prefill_embedder: {component: prefill, prompt_input: ids, \
                 prefill_output: prefill, trailing_output: trailing}\n",
            )
            // Whose word for it is another: the loop runs it.
            .replace(
                "  strategy:\n    kind: composite\n",
                "  phases: {embedder: {run_on: on_demand}}\n  strategy:\n    kind: composite\n",
            );
        models.push(("prefill", prefill_embedder()));
    }
    TestPackage::new(&change(metadata), models)
}

/// Limits are of what the outer decoder reads: rows, of which the prompt's one token becomes two.
#[test]
fn limits_count_the_rows_of_a_prefill() {
    let limited = |limit: usize| with_embeddings_up_to(true, Some(limit));
    limited(5).for_each_mix(|pipeline| {
        let mut run = run(pipeline, &[1]);
        check(&mut run, &[1, 11, 42], FinishReason::ContextFull);
        // Of a longer prompt there are two rows too.
        let mut run = self::run(pipeline, &[0, 0, 0, 0, 0, 0, 1]);
        check(&mut run, &[1, 11, 42], FinishReason::ContextFull);
    });
    limited(2).for_each_mix(|pipeline| {
        let mut run = run(pipeline, &[1]);
        for _ in 0..2 {
            let error = run.step(&RunControl::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
        }
    });
}

/// One frame at a time is all that it reads, and it would have forgotten those before.
#[test]
fn an_outer_decoder_behind_a_pre_embedder_keeps_a_cache() {
    let package = with_embeddings_as(
        false,
        |metadata| metadata.replace("        kv_inputs: [past]\n        kv_outputs: [present]\n", ""),
        embedded_talker_without_cache(),
    );
    let error = package.open(&PipelineOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadPackage, "{error}");
    assert!(
        error.to_string().contains("the outer decoder keeps nothing"),
        "{error}"
    );
}

/// Where the ports say how wide rows are, rows of another width are an error of the package.
#[test]
fn rows_are_as_wide_as_their_readers() {
    let refused = |package: &TestPackage, message: &str| {
        let error = package.open(&PipelineOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadPackage, "{error}");
        assert!(error.to_string().contains(message), "{message}: {error}");
    };
    let predictor = Model::new()
        .input("embeds", FLOAT, "[batch, s, 2]")
        .output("code_embeds", FLOAT, "[batch, s, 3]")
        .initializer(Tensor::floats("three", &[1, 1, 3], &[1.0; 3]))
        .node(Node::new("ReduceMean", &["embeds"], &["mean"]).ints("axes", &[2]))
        .node(Node::new("Mul", &["mean", "three"], &["code_embeds"]));
    let predictor = counted(predictor, "mean").node(Node::new("Add", &["mean", "count"], &["code"]));
    let package = with_predictor(TOKENS, logits(predictor, "code").encode());
    refused(&package, "rows of 2, as its reader \"predictor.embeds\" has them");

    let prefill = Model::new()
        .input("ids", INT64, "[batch, n]")
        .output("prefill", FLOAT, "[1, 2, 3]")
        .output("trailing", FLOAT, "[1, 2, 2]")
        .initializer(Tensor::floats("rows", &[1, 2, 3], &[1.0; 6]))
        .initializer(Tensor::floats("texts", &[1, 2, 2], &[1.0; 4]))
        .node(Node::new("Cast", &["ids"], &["floats"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceSum", &["floats"], &["sum"]).int("keepdims", 0))
        .node(Node::new("Mul", &["rows", "sum"], &["prefill"]))
        .node(Node::new("Identity", &["texts"], &["trailing"]));
    let package = with_embeddings(true).with_model("prefill", prefill.encode());
    refused(&package, "rows of 2, as its reader \"talker.embeds\" has them");
}

/// S = the mean of what it reads.
fn embedded_talker_without_cache() -> Vec<u8> {
    let model = Model::new()
        .input("embeds", FLOAT, "[batch, s, 2]")
        .input("positions", INT64, "[batch, s]")
        .output("hidden", FLOAT, "[batch, s, 2]")
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .node(Node::new("ReduceMean", &["embeds"], &["state"]).ints("axes", &[2]))
        .node(Node::new("Identity", &["embeds"], &["hidden"]))
        .node(Node::new("Add", &["state", "two"], &["token"]));
    logits(model, "token").encode()
}

/// The first states of each kind of package, by its prompt.
const OF_TOKENS: ([i32; 2], [i64; 4]) = ([7, 7], [1, 2, 3, 4]);
/// Of zeros first, then of S + 2 (the token), S + 2 and S + 3.
const OF_FRAMES: ([i32; 1], [i64; 4]) = ([1], [0, 7, 28, 91]);
/// 1 + 2, then 3 S + 7 and the texts 1 and 2, then none.
const OF_PREFILL: ([i32; 2], [i64; 4]) = ([1, 2], [3, 17, 60, 187]);

#[test]
#[ignore = "writes what tests/check_with_onnxruntime.py reads"]
fn fixtures_for_onnxruntime() {
    let cases = |prompt: &[i32], states: &[i64]| -> Value {
        let frames: Vec<_> = states.iter().map(|&s| codes(s)).collect();
        let tokens: Vec<_> = states.iter().map(|&s| s + 2).collect();
        let audio: Vec<_> = frames.iter().flatten().map(|&code| 2 * code).collect();
        json!([{"prompt": prompt, "tokens": tokens, "codes": frames, "values": {"vocoder.audio": audio}}])
    };
    with_tokens().write("nested", &cases(&OF_TOKENS.0, &OF_TOKENS.1));
    with_embeddings(false).write("nested-pre-embedder", &cases(&OF_FRAMES.0, &OF_FRAMES.1));
    with_embeddings(true).write("nested-prefill-embedder", &cases(&OF_PREFILL.0, &OF_PREFILL.1));
}

fn run(pipeline: &Pipeline, prompt: &[i32]) -> Run {
    let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(prompt).unwrap();
    run
}

fn codes(s: i64) -> Vec<i64> {
    (1..=3).map(|group| s + group).collect()
}

/// Takes frames until the run is finished, and checks them, and what they have come to.
fn check(run: &mut Run, states: &[i64], finish: FinishReason) {
    let control = RunControl::default();
    for (place, &s) in states.iter().enumerate() {
        let event = run.step(&control).unwrap();
        assert_eq!(event.token.map(i64::from), Some(s + 2));
        assert_eq!(event.codes, codes(s), "frame {place}");
        assert_eq!(event.text, "");
        assert_eq!(event.finish, (place + 1 == states.len()).then_some(finish));
    }
    let all: Vec<i64> = states.iter().flat_map(|&s| codes(s)).collect();
    let published = run.get_tensor("talker.output_codes").unwrap();
    assert_eq!(published.shape(), [1, states.len() as i64, 3]);
    assert_eq!(integers(published), all);
    run.finish(&control).unwrap();
    let audio: Vec<f32> = all.iter().map(|&code| 2.0 * code as f32).collect();
    assert_eq!(floats(run.get_tensor("vocoder.audio").unwrap()), audio);
    let tokens: Vec<i64> = states.iter().map(|&s| s + 2).collect();
    assert_eq!(integers(run.get_tensor("talker.output_ids").unwrap()), tokens);
    assert_eq!(run.finished(), Some(finish));
}

#[test]
fn an_outer_decoder_that_reads_tokens() {
    with_tokens().for_each_mix(|pipeline| {
        let info = pipeline.package().nested.clone().unwrap();
        assert_eq!((info.inner.as_str(), info.num_code_groups), ("predictor", 3));
        assert_eq!(info.pre_embedder, None);
        let forever = RunSettings {
            stop_on_eos: false,
            ..RunSettings::default()
        };
        let mut one = Run::new(pipeline, &forever).unwrap();
        one.append_tokens(&OF_TOKENS.0).unwrap();
        check(&mut one, &OF_TOKENS.1, FinishReason::MaxTokens);
        // The outer decoder once a frame, the inner one for each code, and the vocoder.
        assert_eq!(one.stats().component_runs, 4 * (1 + 3) + 1);
        for chunk_size in [1, 2] {
            let chunked = RunSettings {
                chunk_size: Some(chunk_size),
                ..forever.clone()
            };
            let mut run = Run::new(pipeline, &chunked).unwrap();
            run.append_tokens(&[7, 7, 7, 7, 7]).unwrap();
            check(&mut run, &[4, 5, 6, 7], FinishReason::MaxTokens);
        }
        // Another turn goes on behind the frames that there are.
        one.append_tokens(&[3]).unwrap();
        let event = one.step(&RunControl::default()).unwrap();
        assert_eq!(event.codes, codes(6));
        assert_eq!(one.get_tensor("talker.output_codes").unwrap().shape(), [1, 5, 3]);
    });
}

#[test]
fn a_token_that_ends_the_speech_has_no_codes() {
    with_tokens().for_each_mix(|pipeline| {
        // Tokens 3, 4 and then 5, which ends it.
        let mut run = run(pipeline, &[7, 7]);
        let control = RunControl::default();
        run.step(&control).unwrap();
        run.step(&control).unwrap();
        let event = run.step(&control).unwrap();
        assert_eq!(event.finish, Some(FinishReason::EndOfText { index: 0 }));
        assert!(event.codes.is_empty());
        let published = run.get_tensor("talker.output_codes").unwrap();
        assert_eq!(integers(published), [codes(1), codes(2)].concat());
        // The host may think otherwise of it.
        let event = run.force_token(6).unwrap();
        assert_eq!((event.finish, &event.codes), (None, &codes(3)));
        assert_eq!(run.get_tensor("talker.output_codes").unwrap().shape(), [1, 3, 3]);
    });
}

#[test]
fn frames_are_undone_and_made_again() {
    with_tokens().for_each_mix(|pipeline| {
        let mut run = run(pipeline, &[7]);
        let control = RunControl::default();
        let frames: Vec<_> = (0..3).map(|_| run.step(&control).unwrap().codes).collect();
        assert_eq!(frames, [codes(0), codes(1), codes(2)]);
        for len in [3, 2, 1] {
            run.rewind(len).unwrap();
            match len {
                1 => assert!(run.get_tensor("talker.output_codes").is_err()),
                _ => {
                    let kept = integers(run.get_tensor("talker.output_codes").unwrap());
                    assert_eq!(kept, frames[..len - 1].concat());
                }
            }
            let again: Vec<_> = (len..4).map(|_| run.step(&control).unwrap().codes).collect();
            assert_eq!(again, frames[len - 1..], "after a rewind to {len}");
        }
        run.rewind(0).unwrap();
        assert_eq!(run.step(&control).unwrap_err().kind(), ErrorKind::InvalidState);
        // The host chooses: the codes are those of the state that the token is chosen from.
        run.append_tokens(&[7, 7]).unwrap();
        run.forward(&control).unwrap();
        assert_eq!(run.finish(&control).unwrap_err().kind(), ErrorKind::InvalidState);
        assert_eq!(run.force_token(1).unwrap().codes, codes(1));
        assert_eq!(run.step(&control).unwrap().codes, codes(2));
    });
}

#[test]
fn an_inner_decoder_without_a_cache_reads_all_of_the_frame() {
    let metadata = TOKENS.replace(
        "logits_output: logits, kv_inputs: [past], kv_outputs: [present]}",
        "logits_output: logits}",
    );
    let package = with_predictor(&metadata, code_predictor_without_cache());
    package.for_each_mix(|pipeline| {
        let mut run = run(pipeline, &[7, 7]);
        let control = RunControl::default();
        assert_eq!(run.step(&control).unwrap().codes, codes(1));
        assert_eq!(run.step(&control).unwrap().codes, codes(2));
    });
}

/// S = the last position of all that it reads.
fn token_talker_without_cache() -> Vec<u8> {
    let model = Model::new()
        .input("ids", INT64, "[batch, s]")
        .input("positions", INT64, "[batch, s]")
        .output("hidden", FLOAT, "[batch, s, 2]")
        .initializer(Tensor::ints("axis_2", &[1], &[2]))
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .initializer(Tensor::floats("both", &[2], &[1.0, 1.0]))
        .node(Node::new("Cast", &["positions"], &["place"]).int("to", FLOAT.into()))
        .node(Node::new("Unsqueeze", &["place", "axis_2"], &["state"]))
        .node(Node::new("Mul", &["state", "both"], &["hidden"]))
        .node(Node::new("Add", &["state", "two"], &["token"]));
    logits(model, "token").encode()
}

#[test]
fn an_outer_decoder_without_a_cache_reads_all_of_its_tokens() {
    let metadata = TOKENS.replace("        kv_inputs: [past]\n        kv_outputs: [present]\n", "");
    let models = vec![
        ("talker", token_talker_without_cache()),
        ("predictor", code_predictor()),
        ("vocoder", vocoder()),
    ];
    TestPackage::new(&metadata, models).for_each_mix(|pipeline| {
        let forever = RunSettings {
            stop_on_eos: false,
            ..RunSettings::default()
        };
        let mut run = Run::new(pipeline, &forever).unwrap();
        run.append_tokens(&[7, 7]).unwrap();
        check(&mut run, &[1, 2, 3, 4], FinishReason::MaxTokens);
        run.rewind(3).unwrap();
        assert_eq!(run.step(&RunControl::default()).unwrap().codes, codes(2));
    });
}

#[test]
fn a_pre_embedder_reads_the_frame_before() {
    with_embeddings(false).for_each_mix(|pipeline| {
        let mut run = run(pipeline, &OF_FRAMES.0);
        check(&mut run, &OF_FRAMES.1, FinishReason::MaxTokens);
        let error = run.append_tokens(&[1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidState);
        run.rewind(3).unwrap();
        let control = RunControl::default();
        assert_eq!(run.step(&control).unwrap().codes, codes(28));
        // Another token is another frame.
        run.force_token(31).unwrap();
        assert_eq!(run.step(&control).unwrap().codes, codes(92));
    });
}

#[test]
fn a_prefill_embedder_reads_the_prompt() {
    with_embeddings(true).for_each_mix(|pipeline| {
        let info = pipeline.package().nested.clone().unwrap();
        assert_eq!(info.pre_embedder.as_deref(), Some("embedder"));
        assert_eq!(info.prefill_embedder.as_deref(), Some("prefill"));
        let (prompt, states) = OF_PREFILL;
        let mut one = run(pipeline, &prompt);
        check(&mut one, &states, FinishReason::MaxTokens);
        // The prefill embedder once, the other embedder for each frame but the first.
        assert_eq!(one.stats().component_runs, 4 * (1 + 3) + 1 + 3 + 1);
        let control = RunControl::default();
        for len in [5, 4, 3] {
            one.rewind(len).unwrap();
            let again: Vec<_> = (len..6).map(|_| one.step(&control).unwrap().codes).collect();
            let expected: Vec<_> = states[len - 2..].iter().map(|&s| codes(s)).collect();
            assert_eq!(again, expected, "after a rewind to {len}");
        }
        // Into the prompt: it is another then.
        one.rewind(1).unwrap();
        assert_eq!(one.step(&control).unwrap().codes, codes(1));
        // A prompt in parts is one prompt, also when the first part has run.
        let mut parts = run(pipeline, &[1]);
        parts.forward(&control).unwrap();
        parts.append_tokens(&[2]).unwrap();
        check(&mut parts, &states, FinishReason::MaxTokens);
        let chunked = RunSettings {
            chunk_size: Some(1),
            ..RunSettings::default()
        };
        let error = Run::new(pipeline, &chunked).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}
