//! The readers of packages. An input is the name of a base package, and files in the place of its
//! own or beside them, as [`sections`](crate::sections). What opens is run.

use std::sync::LazyLock;

use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::{BackendChoice, Runtime};

use crate::input::{control, runtime};
use crate::sections;

/// Base packages by format; one of another name is the first.
pub const OWN: &[&str] = &[
    "phases",
    "chat",
    "media",
    "iterative",
    "guided",
    "picture",
    "words",
    "image",
];
pub const GENAI: &[&str] = &["genai"];
pub const HUGGING_FACE: &[&str] = &["hugging_face", "embedder", "classifier"];

static RUNTIME: LazyLock<Runtime> = LazyLock::new(runtime);

pub fn run(data: &[u8], bases: &[&str]) {
    let (first, changes) = sections::split(data);
    let name = std::str::from_utf8(first).unwrap_or_default().trim();
    let name = bases.iter().find(|base| **base == name).unwrap_or(&bases[0]);
    let source = PackageSource::Files(crate::bases::of(name).with(&changes));
    let options = PipelineOptions {
        backend: Some(BackendChoice::Native),
        ..PipelineOptions::default()
    };
    let _ = Pipeline::to_metadata(&source, None);
    let _ = Pipeline::estimate(&RUNTIME, &source, None);
    if let Ok(pipeline) = Pipeline::open(&RUNTIME, &source, &options, None, &control()) {
        let _ = pipeline.describe().to_string();
        exercise(&pipeline);
    }
}

/// A few steps of what a run of it can do.
fn exercise(pipeline: &Pipeline) {
    let settings = RunSettings {
        max_tokens: Some(4),
        ..RunSettings::default()
    };
    let control = control();
    let Ok(mut run) = Run::new(pipeline, &settings) else {
        return;
    };
    if run.append_text("three one", true).is_err() {
        let _ = run.append_tokens(&[3, 1]);
    }
    for _ in 0..3 {
        let _ = run.step(&control);
    }
    let saved = run.save();
    let _ = run.rewind(1);
    let _ = run.step(&control);
    if let Ok(mut fork) = run.fork() {
        let _ = fork.append_tokens(&[2]);
        let _ = fork.step(&control);
    }
    if let Ok(saved) = saved {
        let _ = Run::load(pipeline, &settings, &saved).map(|mut run| run.step(&control));
    }
    let _ = run.finish(&control);
}
