//! A real language model (SmolLM2-135M-Instruct) as a package of onnxruntime-genai gives the
//! tokens that onnxruntime-genai gives: ten prompts of 64 greedy tokens, of which ONNX Runtime runs
//! the first two.
//!
//! genai_model/tokens.json is what onnxruntime-genai 0.18.0 answered, by genai_model/record.py,
//! on the package that these tests open as on the one that its own model builder makes of the
//! same weights (genai_model/build.py). The tightest margin between the first two candidates is
//! 0.005 logit.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use oxpipe::component::RunControl;
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::{BackendChoice, Runtime, RuntimeSettings};
use oxpipe::text::ChatRequest;
use serde_json::{Value, json};

struct Record {
    message: String,
    prompt: Vec<i32>,
    tokens: Vec<i32>,
}

fn records() -> Vec<Record> {
    let records: Vec<Value> = serde_json::from_str(include_str!("genai_model/tokens.json")).unwrap();
    let ids = |value: &Value| serde_json::from_value(value.clone()).unwrap();
    let record = |value: &Value| Record {
        message: value["message"].as_str().unwrap().to_owned(),
        prompt: ids(&value["prompt"]),
        tokens: ids(&value["tokens"]),
    };
    records.iter().map(record).collect()
}

fn fetched(path: &str, script: &str) -> PathBuf {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    assert!(
        full.exists(),
        "{} is missing; run {script} to make it",
        full.display()
    );
    full
}

fn open(backend: BackendChoice) -> Pipeline {
    let config = fetched(
        "models/smollm2-135m-instruct-genai/genai_config.json",
        "scripts/fetch-model.sh",
    );
    let mut settings = RuntimeSettings::default();
    if backend == BackendChoice::Ort {
        settings.ort_library_path = Some(fetched(
            "third_party/onnxruntime/libonnxruntime.so",
            "scripts/fetch-onnxruntime.sh",
        ));
    }
    let options = PipelineOptions {
        backend: Some(backend),
        ..PipelineOptions::default()
    };
    let folder = config.parent().unwrap().to_owned();
    Pipeline::open(
        &Runtime::new(settings),
        &PackageSource::Directory(folder),
        &options,
        None,
        &RunControl::default(),
    )
    .unwrap()
}

/// The first `count` prompts, each in a run of its own.
fn answers_are_those_of_onnxruntime_genai(backend: BackendChoice, count: usize) {
    let started = Instant::now();
    let pipeline = open(backend);
    let tokenizer = pipeline.tokenizer().expect("the package has a tokenizer");
    let template = pipeline.chat_template().expect("the package has a chat template");
    for record in &records()[..count] {
        let messages = json!([{"role": "user", "content": record.message}]).to_string();
        let request = ChatRequest {
            messages: &messages,
            add_generation_prompt: true,
            ..ChatRequest::default()
        };
        let prompt = template.render(&request).unwrap();
        assert_eq!(tokenizer.encode(&prompt, false).unwrap(), record.prompt);

        let settings = RunSettings {
            max_tokens: Some(record.tokens.len() as u64),
            ..RunSettings::default()
        };
        let mut run = Run::new(&pipeline, &settings).unwrap();
        run.append_tokens(&record.prompt).unwrap();
        run.generate(&RunControl::default(), &mut |_, _| ControlFlow::Continue(()))
            .unwrap();
        let answer = &run.tokens()[record.prompt.len()..];
        assert_eq!(answer, record.tokens, "{}", record.message);
    }
    println!("{}: {:.1} s", backend.name(), started.elapsed().as_secs_f32());
}

#[cfg(feature = "native")]
#[test]
fn ten_answers_of_the_native_runtime() {
    answers_are_those_of_onnxruntime_genai(BackendChoice::Native, 10);
}

/// Fewer, for the sake of time: what runs the graph here is what recorded the answers.
#[cfg(feature = "ort")]
#[test]
fn two_answers_of_onnx_runtime() {
    answers_are_those_of_onnxruntime_genai(BackendChoice::Ort, 2);
}
