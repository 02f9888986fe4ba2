//! How fast one run of a language model decodes, and how fast several do that step together.
//!
//!     cargo run --release --example batch -- FOLDER [RUNS]
//!
//! FOLDER is a package with a tokenizer; RUNS is 8 if it is left out. Each run has a prompt of its own.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use oxpipe::component::RunControl;
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineError, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::{Runtime, RuntimeSettings};

/// Steps that are timed, after some that are not.
const STEPS: usize = 48;
const BEFORE: usize = 4;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), runs) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: batch FOLDER [RUNS]");
        return ExitCode::from(2);
    };
    let Ok(runs) = runs.as_deref().unwrap_or("8").parse() else {
        eprintln!("batch: RUNS is a number");
        return ExitCode::from(2);
    };
    match measure(folder.into(), runs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("batch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(folder: PathBuf, count: usize) -> Result<(), PipelineError> {
    let pipeline = Pipeline::open(
        &Runtime::new(RuntimeSettings::default()),
        &PackageSource::Directory(folder),
        &PipelineOptions::default(),
        None,
        &RunControl::default(),
    )?;
    let one = rate(&pipeline, 1)?;
    println!("1 run: {one:.1} tokens a second");
    let all = rate(&pipeline, count)?;
    println!(
        "{count} runs: {all:.1} tokens a second together, {:.2} times as many",
        all / one
    );
    Ok(())
}

fn rate(pipeline: &Pipeline, count: usize) -> Result<f64, PipelineError> {
    let settings = RunSettings {
        stop_on_eos: false,
        ..RunSettings::default()
    };
    let control = RunControl::default();
    let mut runs = Vec::new();
    for index in 0..count {
        let mut run = Run::new(pipeline, &settings)?;
        run.append_text(&format!("Here are {} facts about the sea:", index + 3), true)?;
        runs.push(run);
    }
    let mut step = || -> Result<(), PipelineError> {
        let mut members: Vec<&mut Run> = runs.iter_mut().collect();
        let outcomes = Run::step_together(&mut members, &control);
        outcomes.into_iter().try_for_each(|outcome| outcome.map(|_| ()))
    };
    for _ in 0..BEFORE {
        step()?;
    }
    let started = Instant::now();
    for _ in 0..STEPS {
        step()?;
    }
    Ok((count * STEPS) as f64 / started.elapsed().as_secs_f64())
}
