//! Each way in which a package can be wrong, with the file, the line and the key where it is.

use std::ops::ControlFlow;
use std::path::Path;

use oxpipe::component::{ComponentSession, RunControl};
use oxpipe::package::{PackageErrorKind, PackageSource};
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineError, PipelineOptions};
use oxpipe::runtime::{BackendChoice, LogLevel};
use oxpipe_test_support::cpu_time::cpu_time;

use super::fake::{DECODER_OUTPUTS, Fake, files, metadata, runtime};

const GOOD: &str = "\
schema_version: v1
pipeline:
  models:
    encoder:
      filename: encoder.onnx
      type: encoder
    decoder:
      filename: decoder.onnx
      type: decoder
      io:
        sequence_source: token_ids
        token_input: input_ids
        logits_output: logits
        kv_inputs: [past]
        kv_outputs: [present]
  dataflow:
    - from: encoder.features
      to: decoder.features
      dtype: fp32
      device_transfer: false
  strategy:
    kind: autoregressive
    decoder: decoder
    max_tokens: 4
  phases:
    encoder:
      run_on: prompt_only
";

fn sessions() -> Vec<(String, Box<dyn ComponentSession>)> {
    let encoder = Fake::ports(
        &["x:float32[1,n]"],
        &["features:float32[1,n]", "labels:string[1]"],
    );
    let inputs = [
        "input_ids:int64[1,s]",
        "features:float32[1,n]",
        "past:float32[1,2,p,1]",
    ];
    let decoder = Fake::ports(&inputs, &DECODER_OUTPUTS);
    vec![
        (
            "encoder".to_owned(),
            Box::new(encoder) as Box<dyn ComponentSession>,
        ),
        ("decoder".to_owned(), Box::new(decoder)),
    ]
}

fn open_with(
    source: &PackageSource,
    sessions: Vec<(String, Box<dyn ComponentSession>)>,
) -> Result<Pipeline, PipelineError> {
    Pipeline::with_sessions(&runtime().0, source, sessions)
}

/// The error of a package that must not open.
#[track_caller]
fn error_of(yaml: &str) -> PipelineError {
    open_with(&metadata(yaml), sessions()).unwrap_err()
}

/// `GOOD` with one replacement does not open, and the message starts with the place.
#[track_caller]
fn refused(from: &str, to: &str, line: u64, key: &str, message: &str) -> PipelineError {
    assert!(GOOD.contains(from), "{from}");
    let error = error_of(&GOOD.replacen(from, to, 1));
    let PipelineError::Package(package) = &error else {
        panic!("another kind of error: {error}");
    };
    let location = package.location();
    assert_eq!(location.file, Path::new("inference_metadata.yaml"), "{error}");
    assert_eq!(
        (location.line, location.key.as_str()),
        (Some(line), key),
        "{error}"
    );
    assert!(package.kind().to_string().contains(message), "{error}");
    assert!(
        error.to_string().starts_with("inference_metadata.yaml:"),
        "{error}"
    );
    error
}

#[test]
fn the_good_one_opens() {
    let pipeline = open_with(&metadata(GOOD), sessions()).unwrap();
    assert_eq!(
        pipeline.package().metadata_file,
        Path::new("inference_metadata.yaml")
    );
    assert_eq!(pipeline.package().decoder.as_deref(), Some("decoder"));
    // Two heads of one float32.
    assert_eq!(pipeline.kv_bytes_per_token(), Some(8));
    let description = pipeline.describe();
    assert_eq!(description["components"][1]["inputs"][2]["dims"][2], "p");
    assert_eq!(description["components"][0]["outputs"][1]["dtype"], "string");
}

#[test]
fn names_of_components() {
    let unknown = "there is no component \"encodr\"; the components are \"encoder\", \"decoder\"";
    refused(
        "from: encoder.",
        "from: encodr.",
        17,
        "pipeline.dataflow[0].from",
        unknown,
    );
    refused(
        "to: decoder.",
        "to: encodr.",
        18,
        "pipeline.dataflow[0].to",
        unknown,
    );
    refused(
        "decoder: decoder",
        "decoder: encodr",
        23,
        "pipeline.strategy.decoder",
        unknown,
    );
    refused(
        "phases:\n    encoder:",
        "phases:\n    encodr:",
        27,
        "pipeline.phases.encodr",
        unknown,
    );
    refused(
        "encoder:\n      filename",
        "en.coder:\n      filename",
        5,
        "pipeline.models.en.coder",
        "dot",
    );
    refused(
        "encoder.features",
        "features",
        17,
        "pipeline.dataflow[0].from",
        "component.port",
    );
}

#[test]
fn names_of_ports() {
    let error = refused(
        "from: encoder.features",
        "from: encoder.feature",
        17,
        "pipeline.dataflow[0].from",
        "component \"encoder\" has no output \"feature\"; it has \"features\", \"labels\"",
    );
    assert_eq!(error.kind(), ErrorKind::BadPackage);
    assert_eq!(
        (error.component(), error.port()),
        (Some("encoder"), Some("feature"))
    );
    assert_eq!(error.file(), Some(Path::new("inference_metadata.yaml")));
    let io = "pipeline.models.decoder.io";
    refused(
        "to: decoder.features",
        "to: decoder.x",
        18,
        "pipeline.dataflow[0].to",
        "no input \"x\"",
    );
    refused(
        "token_input: input_ids",
        "token_input: ids",
        12,
        &format!("{io}.token_input"),
        "no input \"ids\"",
    );
    refused(
        "logits_output: logits",
        "logits_output: x",
        13,
        &format!("{io}.logits_output"),
        "no output \"x\"",
    );
    refused(
        "[past]",
        "[pest]",
        14,
        &format!("{io}.kv_inputs[0]"),
        "no input \"pest\"",
    );
    refused(
        "[present]",
        "[pressent]",
        15,
        &format!("{io}.kv_outputs[0]"),
        "no output \"pressent\"",
    );
    let two = "kv_inputs has 1 names and kv_outputs has 2";
    refused("[present]", "[present, logits]", 11, io, two);
}

#[test]
fn parts_that_ports_cannot_play() {
    let io = "pipeline.models.decoder.io";
    refused(
        "token_input: input_ids",
        "token_input: features",
        12,
        &format!("{io}.token_input"),
        "token ids",
    );
    refused(
        "logits_output: logits",
        "logits_output: present",
        13,
        &format!("{io}.logits_output"),
        "rank 2 or 3",
    );
    let error = refused(
        "[present]",
        "[logits]",
        8,
        "pipeline.models.decoder",
        "as its past \"past\"",
    );
    assert_eq!(error.port(), Some("logits"));
    let message = "a type that does not cross between components";
    refused(
        "from: encoder.features",
        "from: encoder.labels",
        17,
        "pipeline.dataflow[0].from",
        message,
    );
    let converted = "gives float32 and the input takes int64; only float32, float16 and bfloat16";
    let to_ids = GOOD.replace("decoder.features", "decoder.input_ids");
    let error = error_of(&to_ids);
    assert!(error.to_string().contains(converted), "{error}");
    refused(
        "dtype: fp32",
        "dtype: fp16",
        19,
        "pipeline.dataflow[0].dtype",
        "the edge says float16",
    );
}

#[test]
fn edges_that_cannot_be() {
    let second = "  dataflow:\n    - {from: encoder.features, to: decoder.features}\n";
    let error = refused(
        "  dataflow:\n",
        second,
        19,
        "pipeline.dataflow[1].to",
        "one edge per destination",
    );
    assert!(
        error
            .to_string()
            .contains("inference_metadata.yaml:17: pipeline.dataflow[0].to"),
        "{error}"
    );
    let back = "  dataflow:\n    - {from: decoder.logits, to: encoder.x}\n";
    let circle = "circle: encoder -> decoder -> encoder";
    refused("  dataflow:\n", back, 19, "pipeline.dataflow[1].to", circle);
    let own = "  dataflow:\n    - {from: encoder.features, to: encoder.x}\n";
    refused(
        "  dataflow:\n",
        own,
        17,
        "pipeline.dataflow[0].to",
        "circle: encoder -> encoder",
    );
    let earlier = "\"encoder\" is final_only and feeds \"decoder\", which is every_step and runs before it";
    refused(
        "run_on: prompt_only",
        "run_on: final_only",
        18,
        "pipeline.dataflow[0].to",
        earlier,
    );
    let cache = "  dataflow:\n    - {from: encoder.features, to: decoder.past}\n";
    let twice = "\"past\" of component \"decoder\" has a source already";
    refused("  dataflow:\n", cache, 17, "pipeline.dataflow[0].to", twice);
}

#[test]
fn values_that_a_field_does_not_take() {
    refused(
        "v1",
        "v2",
        1,
        "schema_version",
        "unknown value \"v2\"; it is one of \"v1\"",
    );
    let kinds = "it is one of \"autoregressive\", \"single_pass\", \"composite\"";
    refused(
        "kind: autoregressive",
        "kind: autoregresive",
        22,
        "pipeline.strategy.kind",
        kinds,
    );
    let phases = "it is one of \"prompt_only\", \"every_step\", \"always\", \"final_only\", \"on_demand\"";
    refused(
        "run_on: prompt_only",
        "run_on: never",
        27,
        "pipeline.phases.encoder.run_on",
        phases,
    );
    refused(
        "dtype: fp32",
        "dtype: fp33",
        19,
        "pipeline.dataflow[0].dtype",
        "unknown value \"fp33\"",
    );
    refused(
        "transfer: false",
        "transfer: 3",
        20,
        "pipeline.dataflow[0].device_transfer",
        "true or false",
    );
    refused(
        "max_tokens: 4",
        "max_tokens: 0",
        24,
        "pipeline.strategy.max_tokens",
        "at least 1",
    );
    refused(
        "max_tokens: 4",
        "max_tokens: many",
        24,
        "pipeline.strategy.max_tokens",
        "the text \"many\"",
    );
    let source = "pipeline.models.decoder.io.sequence_source";
    refused(
        "source: token_ids",
        "source: ids",
        11,
        source,
        "\"token_ids\", \"inputs_embeds\"",
    );
    refused(
        "type: encoder",
        "type: [a]",
        6,
        "pipeline.models.encoder.type",
        "is a list, expected a text",
    );
    refused(
        "filename: encoder.onnx",
        "file: e",
        5,
        "pipeline.models.encoder.filename",
        "is missing",
    );
    let capability = "v1\nrequired_capabilities: [composite, time_travel]";
    let error = refused(
        "v1",
        capability,
        2,
        "required_capabilities[1]",
        "\"time_travel\" is not one of",
    );
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn numbers_are_shown_as_they_are_written() {
    let key = "pipeline.strategy.max_tokens";
    for written in ["1e3", "1.5", "-4", "020"] {
        let error = refused(
            "max_tokens: 4",
            &format!("max_tokens: {written}"),
            24,
            key,
            "at least 1",
        );
        assert!(error.to_string().contains(written), "{error}");
    }
    let json = r#"{"pipeline": {"models": {"m": {"filename": "m.onnx"}}, "strategy": {"max_tokens": 1e3}}}"#;
    let error = open_with(&files(&[("inference_metadata.json", json)]), Vec::new()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("is the number 1e3, expected an integer"),
        "{error}"
    );
}

#[test]
fn sections_and_settings_of_a_wrong_kind() {
    let with = |more: &str, key: &str, message: &str| {
        let to = format!("run_on: prompt_only\n{more}");
        refused("run_on: prompt_only\n", &to, 28, key, message);
    };
    with(
        "  vision: 3\n",
        "pipeline.vision",
        "is the number 3, expected a mapping",
    );
    with(
        "  audio: [a]\n",
        "pipeline.audio",
        "is a list, expected a mapping",
    );
    with(
        "  vision: {image_token_id: x}\n",
        "pipeline.vision.image_token_id",
        "expected an integer",
    );
    with(
        "  positions: {rank: -1}\n",
        "pipeline.positions.rank",
        "at least 1",
    );
    with(
        "  positions: {axes: 3}\n",
        "pipeline.positions.axes",
        "expected a list",
    );
    with(
        "generation: {top_k: 1.5}\n",
        "generation.top_k",
        "the number 1.5, expected an integer",
    );
    with(
        "generation: {logit_bias: {5: 1.0e+39}}\n",
        "generation.logit_bias.5",
        "expected a number from -10000 to 10000",
    );
    with(
        "generation: {num_beams: -1}\n",
        "generation.num_beams",
        "expected an integer from 1 to 64",
    );
}

#[test]
fn ports_that_sections_name_are_there() {
    let error = refused(
        "run_on: prompt_only\n",
        "run_on: prompt_only\n  positions: {input: nope}\n",
        28,
        "pipeline.positions.input",
        "has no input \"nope\"",
    );
    assert_eq!(error.port(), Some("nope"));
    let io = "pipeline.models.decoder.io";
    refused(
        "kv_outputs: [present]",
        "kv_outputs: [present]\n        cross_kv_outputs: [nope]",
        16,
        &format!("{io}.cross_kv_outputs[0]"),
        "has no output \"nope\"",
    );
    refused(
        "source: token_ids",
        "source: inputs_embeds",
        11,
        &format!("{io}.sequence_source"),
        "comes as inputs_embeds, but io binds \"input_ids\"",
    );
}

#[test]
fn strategies_that_do_not_fit() {
    refused(
        "run_on: prompt_only\n",
        "run_on: prompt_only\n    decoder: {when_present: image}\n",
        28,
        "pipeline.phases.decoder.when_present",
        "is the decoder, which runs in every step",
    );
    let stages =
        "kind: composite\n    stages:\n      - {name: a, strategy: {kind: single_pass, model: nope}}";
    refused(
        "kind: autoregressive\n    decoder: decoder\n    max_tokens: 4",
        stages,
        24,
        "pipeline.strategy.stages[0].strategy.model",
        "there is no component \"nope\"",
    );
    refused(
        "run_on: prompt_only\n",
        "run_on: prompt_only\nstrategy: {kind: autoregressive}\n",
        28,
        "strategy",
        "too; say it once",
    );
    // Beside the pipeline it counts as well as in it.
    let start = GOOD.find("  strategy:").unwrap();
    let end = GOOD.find("  phases:").unwrap();
    let outside = format!(
        "{}{}strategy: {{kind: autoregressive, decoder: nope}}\n",
        &GOOD[..start],
        &GOOD[end..]
    );
    let error = error_of(&outside);
    assert!(
        error
            .to_string()
            .contains(": strategy.decoder: there is no component"),
        "{error}"
    );
}

#[test]
fn embeddings_are_made_in_every_step() {
    let yaml = "\
pipeline:
  models:
    embedding: {filename: e.onnx, io: {token_input: ids}}
    decoder: {filename: d.onnx, type: decoder, io: {inputs_embeds_input: embeds, logits_output: logits}}
  dataflow: [{from: embedding.embeds, to: decoder.embeds}]
";
    let open = |yaml: &str| {
        let sessions: Vec<(String, Box<dyn ComponentSession>)> = vec![
            (
                "embedding".to_owned(),
                Box::new(Fake::ports(&["ids:int64[1,s]"], &["embeds:float32[1,s,4]"])),
            ),
            (
                "decoder".to_owned(),
                Box::new(Fake::ports(
                    &["embeds:float32[1,s,4]"],
                    &["logits:float32[1,s,5]"],
                )),
            ),
        ];
        open_with(&metadata(yaml), sessions)
    };
    open(yaml).unwrap();
    let error = open(&format!(
        "{yaml}  phases: {{embedding: {{run_on: prompt_only}}}}\n"
    ))
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "inference_metadata.yaml:6: pipeline.phases.embedding.run_on: component \"embedding\" is prompt_only and \
         makes the embeddings of the tokens that the decoder reads in every step; it must be every_step"
    );
}

#[test]
fn an_end_token_outside_of_the_vocabulary_is_a_warning() {
    let (runtime, log) = runtime();
    let yaml = format!("{GOOD}tokens: {{eos_token_id: [1, 99999]}}\n");
    Pipeline::with_sessions(&runtime, &metadata(&yaml), sessions()).unwrap();
    let log = log.lock().unwrap();
    let warnings: Vec<&str> = log
        .iter()
        .filter(|(level, _)| *level == LogLevel::Warning)
        .map(|(_, line)| line.as_str())
        .collect();
    assert!(
        matches!(warnings.as_slice(), [line] if line.starts_with("inference_metadata.yaml:28: tokens.eos_token_id[1]: token id 99999 is outside")),
        "{warnings:?}"
    );
}

#[test]
fn thousands_of_components_and_edges_are_read_soon() {
    use std::fmt::Write;
    let mut yaml = "pipeline:\n  models:\n".to_owned();
    const COUNT: usize = 4_000;
    for index in 0..COUNT {
        writeln!(yaml, "    c{index}: {{filename: m.onnx}}").unwrap();
    }
    yaml.push_str("  dataflow:\n");
    for index in 1..COUNT {
        writeln!(yaml, "    - {{from: c{index}.y, to: c{}.x}}", index - 1).unwrap();
        writeln!(yaml, "    - {{from: c{index}.y, to: c{}.z{index}}}", index - 1).unwrap();
    }
    let start = cpu_time();
    // Nothing to choose tokens: found after the order.
    let error = error_of(&yaml).to_string();
    assert!(error.contains("does not name its decoder"), "{error}");
    assert!(error.len() < 10_000, "{}", error.len());
    writeln!(yaml, "    - {{from: c0.y, to: c{}.x}}", COUNT - 1).unwrap();
    let error = error_of(&yaml).to_string();
    assert!(error.contains("in a circle: "), "{error}");
    let spent = cpu_time() - start;
    assert!(spent.as_secs() < 20, "{spent:?}");
}

#[test]
fn messages_are_bounded_whatever_the_values() {
    let long = "x".repeat(100_000);
    for yaml in [
        GOOD.replace("kind: autoregressive", &format!("kind: {long}")),
        GOOD.replace("filename: encoder.onnx", &format!("filename: [{long}]")),
        GOOD.replace("encoder.features", &format!("{long}.features")),
        GOOD.replace("encoder.features", &format!("encoder.{long}")),
        GOOD.replace("encoder.features", &long),
        GOOD.replace("max_tokens: 4", &format!("max_tokens: {long}")),
        GOOD.replace(
            "    encoder:\n      filename",
            &format!("    {long}.y:\n      filename"),
        ),
        format!("{GOOD}{long}: [\n"),
        format!("\"{long}\": 1\n\"{long}\": 2\n"),
    ] {
        let message = error_of(&yaml).to_string();
        assert!(
            message.len() < 2_000,
            "{} bytes: {}",
            message.len(),
            &message[..500]
        );
    }
}

#[test]
fn what_is_understood_and_not_done() {
    let io = "pipeline.models.decoder.io";
    let with_io = |line: &str| format!("      io:\n        {line}\n");
    let error = refused(
        "      io:\n",
        &with_io("kv_ownership: shared"),
        11,
        &format!("{io}.kv_ownership"),
        "kv_ownership: shared",
    );
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let grid = "phases:\n    {}\n  positions: {generation: linear, continuation: from_grid}\n  x:\n";
    refused(
        "phases:\n",
        grid,
        27,
        "pipeline.positions.continuation",
        "there is no grid to go on from",
    );
    let text_format = "pipeline.models.encoder.filename";
    refused(
        "encoder.onnx",
        "encoder.onnx.textproto",
        5,
        text_format,
        "protobuf text format",
    );
}

#[test]
fn ports_that_are_never_guessed() {
    // Without bindings: two integer inputs could be the tokens.
    let bare = "pipeline:\n  models:\n    decoder: {filename: d.onnx, type: decoder}\n";
    let open_one = |inputs: &[&str], outputs: &[&str], yaml: &str| {
        let fake: Box<dyn ComponentSession> = Box::new(Fake::ports(inputs, outputs));
        open_with(&metadata(yaml), vec![("decoder".to_owned(), fake)])
    };
    let ids = "input_ids:int64[b,s]";
    let error = open_one(
        &[ids, "attention_mask:int64[b,t]"],
        &["logits:float32[b,s,8]"],
        bare,
    )
    .unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("inference_metadata.yaml:3: pipeline.models.decoder: "),
        "{message}"
    );
    assert!(
        message.contains(
            "token_input; candidates are \"input_ids (int64 [b, s])\", \"attention_mask (int64 [b, t])\""
        ),
        "{message}"
    );
    let bound = bare.replace("type: decoder", "type: decoder, io: {token_input: input_ids}");
    let mask_unbound = open_one(
        &[ids, "attention_mask:int64[b,t]"],
        &["logits:float32[b,s,8]"],
        &bound,
    );
    let message = mask_unbound.unwrap_err().to_string();
    assert!(
        message.contains("attention_mask_input or position_ids_input"),
        "{message}"
    );
    let error = open_one(&[ids], &["a:float32[b,s,8]", "b:float32[b,s,8]"], bare).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("logits_output; candidates are \"a (float32"),
        "{error}"
    );
    // One key and one value look alike; a single cache does not.
    let (key, value) = ("k:float32[1,2,p,4]", "v:float32[1,2,p,4]");
    let outputs = [
        "logits:float32[b,s,8]",
        "nk:float32[1,2,t,4]",
        "nv:float32[1,2,t,4]",
    ];
    let error = open_one(&[ids, key, value], &outputs, bare).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("kv_inputs; candidates are \"k (float32"),
        "{error}"
    );
    let pipeline = open_one(&[ids, key], &outputs[..2], bare).unwrap();
    assert_eq!(pipeline.kv_bytes_per_token(), Some(2 * 4 * 4));
    // A cache of a size that the package does not say.
    let kv = "io: {kv_inputs: [k], kv_outputs: [nk]}";
    let declared = bare.replace("type: decoder", &format!("type: decoder, {kv}"));
    for (past, expected) in [
        ("k:float32[1,2,16,4]", "a sequence dim without a fixed size"),
        ("k:float32[1,h,p,4]", "fixed heads and head size"),
        ("k:float32[2,2,p,4]", "a batch of 1"),
        ("k:float32[1,p,4]", "a cache of rank 4"),
        ("k:float16[1,2,p,4]", "is float32 [1, 2, t, 4], expected float16"),
    ] {
        let error = open_one(&[ids, past], &outputs[..2], &declared).unwrap_err();
        assert!(error.to_string().contains(expected), "{past}: {error}");
    }
    let embeds = bare.replace("type: decoder", "type: decoder, io: {inputs_embeds_input: e}");
    let error = open_one(&["e:float32[1,s,4]"], &["logits:float32[b,s,8]"], &embeds).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("\"e\" of component \"decoder\" is fed by nothing"),
        "{error}"
    );
}

#[test]
fn text_that_is_no_yaml_or_json() {
    let syntax = |source: &PackageSource| {
        let PipelineError::Package(error) = open_with(source, sessions()).unwrap_err() else {
            panic!("another kind of error");
        };
        assert!(matches!(error.kind(), PackageErrorKind::Syntax { .. }), "{error}");
        error.location().line
    };
    assert_eq!(syntax(&metadata("a: 1\nb: [1, 2\nc: 3\n")), Some(3));
    assert_eq!(syntax(&metadata("a: 1\na: 2\n")), Some(2), "a key twice");
    assert_eq!(
        syntax(&files(&[("inference_metadata.json", "{\n  \"a\": 1,\n}")])),
        Some(3)
    );
    assert_eq!(syntax(&files(&[("inference_metadata.json", "a: 1")])), Some(1));
    assert_eq!(
        syntax(&files(&[("inference_metadata.json", "{\"a\": 1,\n\"a\": 2}")])),
        Some(2),
        "a name twice"
    );
    let binary = PackageSource::Files(vec![(
        "inference_metadata.yaml".to_owned(),
        std::sync::Arc::new(b"a: 1\nb: \xff\xfe\n".to_vec()),
    )]);
    assert_eq!(syntax(&binary), Some(2));
    // Each line ten times the one before: a few hundred bytes, ten billion nodes.
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let previous = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
    }
    assert!(syntax(&metadata(&bomb)).is_some());
    for empty in ["", "- a\n- b\n", "just text"] {
        let error = error_of(empty);
        assert_eq!(error.kind(), ErrorKind::BadPackage, "{error}");
    }
}

/// Words for whoever wrote the file, not for whoever calls a parser.
#[test]
fn the_parsers_own_words_stay_inside() {
    for (yaml, message) in [
        ("a: 1\n---\nb: 2\n", "a second document starts"),
        ("a: 1\na: 2\n", "\"a\" comes twice in one mapping; give it once"),
        ("a: {~: 1}\n", "a key is empty, expected a text"),
        ("a: .nan\n", "is no finite number"),
        ("a: [1, 2\n", "bracket '['"),
        (
            &format!("{}{}", "[".repeat(100), "]".repeat(100)),
            "it is too large",
        ),
        (
            &format!("a: [{}]", "1,".repeat(300_000)),
            "it is too large: at most 250000 values",
        ),
    ] {
        let error = error_of(yaml).to_string();
        assert!(error.contains(message), "{error}");
        for leaked in [
            "from_str",
            "olicy",
            "Option",
            "budget",
            "line 2 column",
            " at line ",
        ] {
            assert!(!error.contains(leaked), "{error}");
        }
    }
}

#[test]
fn json_has_lines_too() {
    let json = r#"{
  "pipeline": {
    "models": { "model": { "filename": "m.onnx" } },
    "strategy": { "kind": "nonsense" }
  }
}"#;
    let error = open_with(&files(&[("inference_metadata.json", json)]), Vec::new()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("inference_metadata.json:4: pipeline.strategy.kind: "),
        "{message}"
    );
}

#[test]
fn an_unknown_field_is_one_warning() {
    let yaml = GOOD
        .replace("    max_tokens: 4\n", "    max_tokens: 4\n    speed: fast\n")
        .replace("schema_version: v1\n", "schema_version: v1\nauthor: somebody\n");
    let (runtime, log) = runtime();
    Pipeline::with_sessions(&runtime, &metadata(&yaml), sessions()).unwrap();
    let log = log.lock().unwrap();
    let warnings: Vec<&str> = log
        .iter()
        .filter(|(level, _)| *level == LogLevel::Warning)
        .map(|(_, line)| line.as_str())
        .collect();
    assert_eq!(
        warnings,
        [
            "inference_metadata.yaml:26: pipeline.strategy.speed: unknown field, ignored",
            "inference_metadata.yaml:2: author: unknown field, ignored",
        ]
    );
}

#[test]
fn metadata_files_are_looked_for_in_order() {
    let taken = |names: &[&str]| {
        let contents: Vec<(&str, &str)> = names
            .iter()
            .map(|&name| {
                (
                    name,
                    if name.ends_with(".json") {
                        "{\"schema_version\": \"v1\"}"
                    } else {
                        "schema_version: v1"
                    },
                )
            })
            .collect();
        let fake: Box<dyn ComponentSession> = Box::new(Fake::ports(&["i:int64[1,s]"], &["l:float32[1,s,2]"]));
        let pipeline = open_with(&files(&contents), vec![("model".to_owned(), fake)])?;
        Ok::<_, PipelineError>(pipeline.package().metadata_file.display().to_string())
    };
    let (yaml, yml, json) = (
        "inference_metadata.yaml",
        "inference_metadata.yml",
        "inference_metadata.json",
    );
    assert_eq!(taken(&[json, yml, yaml]).unwrap(), yaml);
    assert_eq!(taken(&["genai_config.json", json, yml]).unwrap(), yml);
    assert_eq!(taken(&[json]).unwrap(), json);
    let error = taken(&["genai_config.json", "config.json"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadPackage);
    assert_eq!(error.file(), Some(Path::new("genai_config.json")));
    let message = taken(&["readme.txt"]).unwrap_err().to_string();
    for name in [yaml, yml, json, "genai_config.json", "config.json"] {
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn sessions_must_match_the_components() {
    let mut too_many = sessions();
    too_many.push(("nobody".to_owned(), Box::new(Fake::ports(&[], &[]))));
    let error = open_with(&metadata(GOOD), too_many).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownComponent);
    let mut too_few = sessions();
    too_few.pop();
    let error = open_with(&metadata(GOOD), too_few).unwrap_err();
    assert!(
        error.to_string().contains("none for component \"decoder\""),
        "{error}"
    );
}

mod on_disk {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("package");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("inference_metadata.yaml"), GOOD).unwrap();
        std::fs::write(inside.join("encoder.onnx"), "").unwrap();
        std::fs::write(inside.join("decoder.onnx"), "").unwrap();
        std::fs::write(folder.path().join("outside.onnx"), "").unwrap();
        folder
    }

    fn open_folder(path: &Path, options: &PipelineOptions) -> PipelineError {
        let source = PackageSource::Directory(path.to_owned());
        Pipeline::open(&runtime().0, &source, options, None, &RunControl::default()).unwrap_err()
    }

    #[test]
    fn files_that_are_missing_or_outside() {
        let folder = folder();
        let package = folder.path().join("package");
        let with_file = |name: &str| {
            let yaml = GOOD.replace("encoder.onnx", name);
            std::fs::write(package.join("inference_metadata.yaml"), yaml).unwrap();
            let error = open_folder(&package, &PipelineOptions::default());
            let place = format!(
                "{}:5: pipeline.models.encoder.filename: ",
                package.join("inference_metadata.yaml").display()
            );
            let message = error.to_string();
            assert!(message.starts_with(&place), "{message}");
            message[place.len()..].to_owned()
        };
        assert_eq!(
            with_file("gone.onnx"),
            "there is no file \"gone.onnx\" in the package"
        );
        let stays = "paths in a package are relative and stay inside it";
        assert_eq!(
            with_file("../outside.onnx"),
            format!("path \"../outside.onnx\" goes up with \"..\"; {stays}")
        );
        assert!(with_file("sub/../../outside.onnx").contains("goes up"));
        let absolute = folder.path().join("outside.onnx");
        assert!(with_file(absolute.to_str().unwrap()).contains("is absolute"));
        assert!(with_file("\"\"").contains("is empty"));
        assert!(with_file("\"a\\\\b.onnx\"").contains("no path in a package may have"));
        std::fs::create_dir(package.join("sub")).unwrap();
        assert!(with_file("sub").contains("is a folder"));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&absolute, package.join("link.onnx")).unwrap();
            assert_eq!(
                with_file("link.onnx"),
                format!("path \"link.onnx\" is a link out of the package; {stays}")
            );
            std::os::unix::fs::symlink(folder.path(), package.join("up")).unwrap();
            assert!(with_file("up/outside.onnx").contains("is a link out"));
        }
    }

    /// Files that the metadata does not name are the package's too.
    #[test]
    fn files_that_are_found_by_their_name_stay_inside_and_are_files() {
        use std::os::unix::fs::symlink;
        let folder = folder();
        let package = folder.path().join("package");
        let outside = folder.path().join("outside.onnx");
        let open = || open_with(&PackageSource::Directory(package.clone()), sessions());
        for name in [
            "tokenizer.json",
            "chat_template.jinja",
            "chat_template.json",
            "tokenizer_config.json",
        ] {
            let file = package.join(name);
            symlink(&outside, &file).unwrap();
            let message = open().unwrap_err().to_string();
            assert!(
                message.contains(&format!("{}: path", file.display())),
                "{message}"
            );
            assert!(message.contains("is a link out of the package"), "{message}");
            std::fs::remove_file(&file).unwrap();

            symlink("nothing", &file).unwrap();
            assert_eq!(open().unwrap_err().kind(), ErrorKind::Io, "{name}");
            std::fs::remove_file(&file).unwrap();

            let made = std::process::Command::new("mkfifo").arg(&file).status();
            assert!(made.unwrap().success());
            let message = open().unwrap_err().to_string();
            assert!(
                message.contains("it is a pipe, expected a regular file"),
                "{message}"
            );
            std::fs::remove_file(&file).unwrap();

            let long = std::fs::File::create(&file).unwrap();
            long.set_len(300 << 20).unwrap();
            let message = open().unwrap_err().to_string();
            assert!(
                message.contains("has 314572800 bytes, expected at most"),
                "{message}"
            );
            std::fs::remove_file(&file).unwrap();
        }
        open().unwrap();
        let metadata = package.join("inference_metadata.yaml");
        std::fs::remove_file(&metadata).unwrap();
        symlink("/dev/zero", &metadata).unwrap();
        let message = open().unwrap_err().to_string();
        assert!(message.contains("is a link out of the package"), "{message}");
    }

    #[test]
    fn models_that_are_no_files() {
        let folder = folder();
        let package = folder.path().join("package");
        let decoder = package.join("decoder.onnx");
        std::fs::remove_file(&decoder).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&decoder).status();
        assert!(made.unwrap().success());
        let message = open_folder(&package, &PipelineOptions::default()).to_string();
        assert!(message.contains("is no regular file"), "{message}");
        let source = PackageSource::Directory(package.clone());
        let error = Pipeline::estimate(&runtime().0, &source, None).unwrap_err();
        assert!(error.to_string().contains("is no regular file"), "{error}");
    }

    #[test]
    fn names_of_files_in_memory() {
        let with_file = |name: &str| {
            let PackageSource::Files(mut files) = metadata(GOOD) else {
                panic!("in memory");
            };
            files.push((name.to_owned(), std::sync::Arc::new(Vec::new())));
            open_with(&PackageSource::Files(files), sessions())
        };
        with_file("./sub//x").unwrap();
        for (name, why) in [
            ("../x", "goes up"),
            ("/abs", "is absolute"),
            ("", "is empty"),
            ("a\0b", "no path in a package may have"),
            ("a\\b", "no path in a package may have"),
            ("./inference_metadata.yaml", "was given already"),
        ] {
            let error = with_file(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadPackage);
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn folders_that_are_none() {
        let folder = folder();
        let options = PipelineOptions::default();
        assert_eq!(
            open_folder(&folder.path().join("gone"), &options).kind(),
            ErrorKind::Io
        );
        assert_eq!(
            open_folder(&folder.path().join("outside.onnx"), &options).kind(),
            ErrorKind::Io
        );
        let error = open_folder(folder.path(), &options);
        assert_eq!(error.kind(), ErrorKind::BadPackage);
        assert!(
            error.to_string().contains("looked for inference_metadata.yaml"),
            "{error}"
        );
        let error = open_folder(Path::new(""), &options);
        assert_eq!(error.to_string(), "cannot read: the path is empty");
        // A folder in the place of the metadata is not "no metadata".
        let odd = folder.path().join("odd");
        std::fs::create_dir_all(odd.join("inference_metadata.yaml")).unwrap();
        assert_eq!(open_folder(&odd, &options).kind(), ErrorKind::Io);
    }

    #[test]
    fn options_that_name_nobody_and_callers_that_stop() {
        let folder = folder();
        let package = folder.path().join("package");
        let options = PipelineOptions {
            component_backends: vec![("encodr".to_owned(), BackendChoice::Native)],
            ..PipelineOptions::default()
        };
        let error = open_folder(&package, &options);
        assert_eq!(
            error.to_string(),
            "there is no component \"encodr\"; the components are encoder, decoder"
        );
        let mut seen = Vec::new();
        let source = PackageSource::Directory(package);
        let error = Pipeline::open(
            &runtime().0,
            &source,
            &PipelineOptions::default(),
            Some(&mut |progress| {
                seen.push((
                    progress.done,
                    progress.total,
                    progress.component.map(str::to_owned),
                ));
                ControlFlow::Break(())
            }),
            &RunControl::default(),
        )
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(seen, [(0, 2, Some("encoder".to_owned()))]);
    }
}
