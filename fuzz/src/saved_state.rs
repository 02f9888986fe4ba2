//! Saved states. The first byte says which package and whether the header, the check and the package's
//! fingerprint are put right, without which nearly every input ends there; the rest is what stands
//! behind the header. What loads is run.

use std::sync::LazyLock;

use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::BackendChoice;
use twox_hash::XxHash3_128;

use crate::bases;
use crate::input::{control, runtime};

/// Packages whose states have something of everything.
pub const PACKAGES: [&str; 5] = ["phases", "genai", "media", "iterative", "picture"];
/// Magic, version, zero, length, check; see src/pipeline/saved/mod.rs.
pub const HEADER: usize = 40;
const AS_IT_IS: u8 = 0x80;

static PIPELINES: LazyLock<Vec<(Pipeline, Vec<u8>)>> = LazyLock::new(|| {
    let open = |name: &&str| {
        let source = PackageSource::Files(bases::of(name).with(&[]));
        let options = PipelineOptions {
            backend: Some(BackendChoice::Native),
            ..PipelineOptions::default()
        };
        let pipeline = Pipeline::open(&runtime(), &source, &options, None, &Default::default())
            .expect("the package opens");
        let identity = identity(&state_of(&pipeline, 0)).to_vec();
        (pipeline, identity)
    };
    PACKAGES.iter().map(open).collect()
});

fn settings() -> RunSettings {
    RunSettings {
        max_tokens: Some(6),
        ..RunSettings::default()
    }
}

/// Name and fingerprint: what a body begins with.
fn identity(state: &[u8]) -> &[u8] {
    let body = &state[HEADER..];
    let name = u64::from_le_bytes(body[..8].try_into().expect("it is that long")) as usize;
    &body[..8 + name + 16]
}

/// A run after so many steps, saved.
fn state_of(pipeline: &Pipeline, steps: usize) -> Vec<u8> {
    let mut run = Run::new(pipeline, &settings()).expect("a run can be made");
    if steps > 0 {
        let _ = run.append_tokens(&[3, 1]);
    }
    for _ in 0..steps {
        let _ = run.step(&Default::default());
    }
    run.save().expect("it can be saved")
}

/// Inputs to begin with: states of all packages.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (index, (pipeline, _)) in PIPELINES.iter().enumerate() {
        for steps in [0, 1, 3] {
            let state = state_of(pipeline, steps);
            seeds.push([&[index as u8], &state[HEADER..]].concat());
            seeds.push([&[index as u8 | AS_IT_IS], &state[..]].concat());
        }
    }
    seeds
}

pub fn run(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    let (pipeline, identity) = &PIPELINES[usize::from(kind & !AS_IT_IS) % PIPELINES.len()];
    let sealed;
    let state = if kind & AS_IT_IS == 0 {
        sealed = seal(rest, identity);
        sealed.as_slice()
    } else {
        rest
    };
    let Ok(mut run) = Run::load(pipeline, &settings(), state) else {
        return;
    };
    let control = control();
    for _ in 0..3 {
        let _ = run.step(&control);
    }
    if let Ok(mut fork) = run.fork() {
        let _ = fork.append_tokens(&[2]);
        let _ = fork.step(&control);
    }
    let length = run.tokens().len();
    let _ = run.rewind(length / 2);
    let _ = run.append_tokens(&[4]);
    let _ = run.step(&control);
    let _ = run.finish(&control);
    let again = run.save().expect("a run that is there can be saved");
    Run::load(pipeline, &settings(), &again).expect("what was saved can be loaded");
}

fn seal(rest: &[u8], identity: &[u8]) -> Vec<u8> {
    let mut body = rest.to_vec();
    let known = identity.len().min(body.len());
    body[..known].copy_from_slice(&identity[..known]);
    let mut state = b"OXPSTATE".to_vec();
    state.extend(1u32.to_le_bytes());
    state.extend(0u32.to_le_bytes());
    state.extend((body.len() as u64).to_le_bytes());
    state.extend(XxHash3_128::oneshot(&body).to_le_bytes());
    state.extend(body);
    state
}
