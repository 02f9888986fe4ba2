//! The trace of a runtime: a file of Chrome's trace events that says what ran when.
#![cfg(feature = "native")]

use std::fs;
use std::path::Path;

use oxpipe::component::{RunControl, Trace};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::{BackendChoice, Runtime, RuntimeSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
use oxpipe_test_support::onnxruntime;
use serde_json::Value;

/// An embedding and a decoder; each token is followed by the next.
fn write_package(folder: &Path) {
    let identity: Vec<f32> = (0..64).map(|at| f32::from(at % 9 == 0)).collect();
    let next: Vec<f32> = (0..64).map(|at| f32::from((at / 8 + 1) % 8 == at % 8)).collect();
    let embedding = Model::new()
        .input("input_ids", INT64, "[1, s]")
        .output("inputs_embeds", FLOAT, "[1, s, 8]")
        .initializer(Tensor::floats("table", &[8, 8], &identity))
        .node(Node::new("Gather", &["table", "input_ids"], &["inputs_embeds"]));
    let decoder = Model::new()
        .input("inputs_embeds", FLOAT, "[1, s, 8]")
        .output("logits", FLOAT, "[1, s, 8]")
        .initializer(Tensor::floats("next", &[8, 8], &next))
        .node(Node::new("MatMul", &["inputs_embeds", "next"], &["logits"]));
    let metadata = "\
pipeline:
  models:
    embedding: {filename: embedding.onnx, type: embedding, io: {token_input: input_ids}}
    \"the \\\"decoder\\\"\":
      filename: decoder.onnx
      type: decoder
      io: {sequence_source: inputs_embeds, inputs_embeds_input: inputs_embeds, logits_output: logits}
  dataflow:
    - {from: embedding.inputs_embeds, to: 'the \"decoder\".inputs_embeds'}
  strategy: {kind: autoregressive, decoder: 'the \"decoder\"'}
";
    fs::write(folder.join("embedding.onnx"), embedding.encode()).unwrap();
    fs::write(folder.join("decoder.onnx"), decoder.encode()).unwrap();
    fs::write(folder.join("inference_metadata.yaml"), metadata).unwrap();
}

/// The same with a KV cache, of which the tokens do not depend: its runs can step together.
fn write_cached_package(folder: &Path) {
    write_package(folder);
    let next: Vec<f32> = (0..64).map(|at| f32::from((at / 8 + 1) % 8 == at % 8)).collect();
    let decoder = Model::new()
        .input("inputs_embeds", FLOAT, "[1, s, 8]")
        .input("past", FLOAT, "[1, 1, p, 8]")
        .output("logits", FLOAT, "[1, s, 8]")
        .output("present", FLOAT, "[1, 1, t, 8]")
        .initializer(Tensor::floats("next", &[8, 8], &next))
        .initializer(Tensor::ints("head", &[1], &[1]))
        .node(Node::new("MatMul", &["inputs_embeds", "next"], &["logits"]))
        .node(Node::new("Unsqueeze", &["inputs_embeds", "head"], &["new"]))
        .node(Node::new("Concat", &["past", "new"], &["present"]).int("axis", 2));
    fs::write(folder.join("decoder.onnx"), decoder.encode()).unwrap();
    let metadata = folder.join("inference_metadata.yaml");
    let text = fs::read_to_string(&metadata).unwrap();
    let cached = text.replace(
        "logits_output: logits}",
        "logits_output: logits, kv_inputs: [past], kv_outputs: [present]}",
    );
    fs::write(metadata, cached).unwrap();
}

const DECODER: &str = "the \"decoder\"";

/// A run of the package whose runtime writes into the file.
fn traced_run(folder: &Path, file: &Path, decoder: BackendChoice) -> Run {
    let trace = Trace::create(file, |error| panic!("{error}")).unwrap();
    let settings = RuntimeSettings {
        threads: Some(1),
        trace: Some(trace),
        ort_library_path: cfg!(feature = "ort").then(onnxruntime::library_path),
        ..RuntimeSettings::default()
    };
    let runtime = Runtime::new(settings);
    let options = PipelineOptions {
        backend: Some(BackendChoice::Native),
        component_backends: vec![(DECODER.to_owned(), decoder)],
        ..PipelineOptions::default()
    };
    let source = PackageSource::Directory(folder.to_owned());
    let pipeline = Pipeline::open(&runtime, &source, &options, None, &RunControl::default()).unwrap();
    Run::new(&pipeline, &RunSettings::default()).unwrap()
}

fn events(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn named<'a>(events: &'a [Value], category: &str, name: &str) -> Vec<&'a Value> {
    let is_it = |event: &&Value| event["cat"] == category && event["name"] == name;
    events.iter().filter(is_it).collect()
}

/// Begin and end in microseconds.
fn time(event: &Value) -> (f64, f64) {
    let begin = event["ts"].as_f64().unwrap();
    (begin, begin + event["dur"].as_f64().unwrap())
}

#[test]
fn tells_calls_components_and_operators_with_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    write_package(folder.path());
    let mut run = traced_run(folder.path(), &file, BackendChoice::Native);
    run.append_tokens(&[2, 3, 4]).unwrap();
    for expected in [5, 6] {
        assert_eq!(run.step(&RunControl::default()).unwrap().token, Some(expected));
    }

    // What has ended is in the file, which lacks its end as it would if the process ended here.
    let unfinished = fs::read_to_string(&file).unwrap();
    assert_eq!(named(&events(&format!("{unfinished}]")), "call", "step").len(), 2);
    drop(run);
    let events = events(&fs::read_to_string(&file).unwrap());
    assert!(
        events.iter().all(|event| event["pid"] == 1 && event["tid"] == 1),
        "{events:?}"
    );
    for name in ["embedding", DECODER] {
        let loaded = named(&events, "load", name);
        assert_eq!(loaded.len(), 1, "{events:?}");
        assert_eq!(loaded[0]["args"]["backend"], "native");
    }
    let steps = named(&events, "call", "step");
    // Three tokens, then all four, since there is no cache; the logits are those of the last.
    for (component, operator, bytes) in [
        ("embedding", "Gather", [(24, 96), (32, 128)]),
        (DECODER, "MatMul", [(96, 32), (128, 32)]),
    ] {
        let runs = named(&events, "component", component);
        let operators = named(&events, "operator", operator);
        assert_eq!(
            (steps.len(), runs.len(), operators.len()),
            (2, 2, 2),
            "{events:?}"
        );
        for (at, (input_bytes, output_bytes)) in bytes.into_iter().enumerate() {
            let arguments = &runs[at]["args"];
            assert_eq!(arguments["backend"], "native");
            assert_eq!(arguments["threads"], 1);
            assert_eq!(arguments["calls"], 1);
            assert_eq!(arguments["input_bytes"], input_bytes, "{component} {at}");
            assert_eq!(arguments["output_bytes"], output_bytes, "{component} {at}");
            assert_eq!(
                operators[at]["args"]["output_bytes"], output_bytes,
                "{operator} {at}"
            );
            let (step, run, operator) = (time(steps[at]), time(runs[at]), time(operators[at]));
            for (outer, inner) in [(step, run), (run, operator)] {
                assert!(
                    outer.0 <= inner.0 && inner.1 <= outer.1 + 0.01,
                    "{outer:?} {inner:?}"
                );
            }
        }
    }
}

/// Runs that step together do so with a trace, too: each component's calls are counted, however they
/// were joined.
#[test]
fn tells_calls_that_run_together() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    write_cached_package(folder.path());
    let mut first = traced_run(folder.path(), &file, BackendChoice::Native);
    let mut second = Run::new(first.pipeline(), &RunSettings::default()).unwrap();
    first.append_tokens(&[2]).unwrap();
    second.append_tokens(&[4]).unwrap();
    let stepped = Run::step_together(&mut [&mut first, &mut second], &RunControl::default());
    let tokens: Vec<Option<i32>> = stepped.into_iter().map(|event| event.unwrap().token).collect();
    assert_eq!(tokens, [Some(3), Some(5)]);
    // Behind the prompts, which each run feeds by itself, the two are multiplied in one.
    for outcome in Run::step_together(&mut [&mut first, &mut second], &RunControl::default()) {
        outcome.unwrap();
    }
    drop((first, second));
    let events = events(&fs::read_to_string(&file).unwrap());
    for component in ["embedding", DECODER] {
        let calls = named(&events, "component", component);
        let calls: u64 = calls.iter().filter_map(|run| run["args"]["calls"].as_u64()).sum();
        assert_eq!(calls, 4, "{component}: {events:?}");
    }
    let products = named(&events, "operator", "MatMul");
    let bytes: Vec<_> = products
        .iter()
        .map(|product| product["args"]["output_bytes"].clone())
        .collect();
    let alone = bytes[0].as_u64().unwrap();
    assert_eq!(bytes, [alone, alone, 2 * alone], "{events:?}");
}

#[cfg(feature = "ort")]
#[test]
fn tells_components_on_onnx_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    write_package(folder.path());
    let mut run = traced_run(folder.path(), &file, BackendChoice::Ort);
    run.append_tokens(&[2]).unwrap();
    run.step(&RunControl::default()).unwrap();
    drop(run);
    let events = events(&fs::read_to_string(&file).unwrap());
    let runs = named(&events, "component", DECODER);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["args"]["backend"], "ort");
    assert!(named(&events, "operator", "MatMul").is_empty());
    assert_eq!(named(&events, "operator", "Gather").len(), 1);
}

/// Threads have numbers and names, and the lines of several do not mix.
#[test]
fn tells_threads_apart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let trace = Trace::create(&file, |error| panic!("{error}")).unwrap();
    std::thread::scope(|scope| {
        for name in ["first\n", "\"second\""] {
            let builder = std::thread::Builder::new().name(name.into());
            let trace = trace.clone();
            let work = move || (0..1000).for_each(|_| drop(trace.span("call", "work")));
            builder.spawn_scoped(scope, work).unwrap();
        }
    });
    drop(trace);
    let events = events(&fs::read_to_string(&file).unwrap());
    let threads: Vec<&Value> = events.iter().filter(|event| event["ph"] == "M").collect();
    assert_eq!(threads.len(), 2);
    let mut names: Vec<&str> = threads
        .iter()
        .filter_map(|thread| thread["args"]["name"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["\"second\"", "first\n"]);
    for thread in threads {
        let own = |event: &&Value| event["ph"] == "X" && event["tid"] == thread["tid"];
        assert_eq!(events.iter().filter(own).count(), 1000);
    }
}

#[test]
fn an_empty_trace_is_an_empty_list() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    drop(Trace::create(&file, |error| panic!("{error}")).unwrap());
    assert_eq!(events(&fs::read_to_string(&file).unwrap()), [Value::Null; 0]);
    assert!(Trace::create(&folder.path().join("no/such/folder.json"), |_| ()).is_err());
}

/// What cannot be written to is refused when the trace begins.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_refused() {
    let error = Trace::create(Path::new("/dev/full"), |_| ()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}
