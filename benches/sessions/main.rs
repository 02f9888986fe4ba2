//! The time of taking and giving back the memory of a run's KV caches, beside that of copying as many
//! bytes:
//!
//!     cargo bench --bench sessions
//!
//! The model is SmolLM2 (scripts/fetch-model.sh) after 512 tokens: 30 layers, 3 heads of 64 keys and
//! values, in f32. A fork shares what it was made from; a run that is loaded takes memory for all of it.
//! `memcpy` is the floor of `save`, and of `load_and_release` but for the system's pages, which are taken
//! and given back there; `fork_and_release` has no bytes to move.

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oxpipe::component::RunControl;
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::{Runtime, RuntimeSettings};

const TOKENS: usize = 512;

fn smollm2() -> Pipeline {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/smollm2-135m-instruct");
    let runtime = Runtime::new(RuntimeSettings {
        threads: Some(2),
        ..RuntimeSettings::default()
    });
    Pipeline::open(
        &runtime,
        &PackageSource::Directory(folder),
        &PipelineOptions::default(),
        None,
        &RunControl::default(),
    )
    .expect("SmolLM2; run scripts/fetch-model.sh")
}

fn caches(criterion: &mut Criterion) {
    let pipeline = smollm2();
    let mut run = Run::new(&pipeline, &RunSettings::default()).expect("a run");
    let prompt: Vec<i32> = (0..TOKENS as i32).map(|at| at * 7919 % 40_000 + 100).collect();
    run.append_tokens(&prompt).expect("tokens");
    run.step(&RunControl::default()).expect("a step");
    let state = run.save().expect("a state");

    let mut group = criterion.benchmark_group("kv");
    group.bench_function("fork_and_release", |bencher| {
        bencher.iter(|| run.fork().expect("a fork"))
    });
    group.throughput(Throughput::Bytes(state.len() as u64));
    group.bench_function("save", |bencher| bencher.iter(|| run.save().expect("a state")));
    group.bench_function("load_and_release", |bencher| {
        bencher.iter(|| Run::load(&pipeline, &RunSettings::default(), black_box(&state)).expect("a run"))
    });
    let mut copy = vec![0u8; state.len()];
    group.bench_function("memcpy", |bencher| {
        bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(&state)))
    });
    group.finish();
}

fn short() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(400))
        .measurement_time(Duration::from_millis(1200))
        .sample_size(20)
        .nresamples(10_000)
        .without_plots()
}

criterion_group! {
    name = sessions;
    config = short();
    targets = caches,
}
criterion_main!(sessions);
