//! The fuzz targets of fuzz/ as ordinary tests: on their committed corpora, on what inputs are made from,
//! and on changes of these from a fixed seed. Coverage does not lead here, and no sanitizer looks on, so this
//! finds what is near; `scripts/fuzz.sh` is what goes far. `OXP_FUZZ_ROUNDS` says how many changed inputs
//! each target gets at least, `OXP_FUZZ_SECONDS` for how long it gets more; `OXP_FUZZ_KEEP` names a folder
//! where each input is written before it is run, so that one that ends the process is there:
//! `scripts/fuzz.sh check TARGET FILE` runs it with more to see.
#![cfg(feature = "native")]

#[path = "../fuzz/src/bases.rs"]
mod bases;
#[path = "../fuzz/src/calls/mod.rs"]
mod calls;
#[path = "capi/example_packages.rs"]
#[allow(dead_code)]
mod example_packages;
#[path = "../fuzz/src/graph.rs"]
mod graph;
#[path = "../fuzz/src/input.rs"]
mod input;
#[path = "../fuzz/src/media.rs"]
mod media;
#[path = "capi/models.rs"]
#[allow(dead_code)]
mod models;
#[path = "../fuzz/src/package.rs"]
mod package;
#[path = "../fuzz/src/saved_state.rs"]
mod saved_state;
#[path = "../fuzz/src/sections.rs"]
mod sections;
#[path = "../fuzz/src/seeds.rs"]
mod seeds;
#[path = "../fuzz/src/text.rs"]
mod text;

use std::path::Path;
use std::time::{Duration, Instant};

use oxpipe_test_support::bounded_allocator::Bounded;

/// Memory that is taken without a way to refuse ends the process.
#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Some bytes changed, a piece of another input in the place of one, a piece twice, or an end.
fn changed(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = inputs[random.below(inputs.len())].clone();
    for _ in 0..1 + random.below(4) {
        let at = random.below(input.len());
        match random.below(7) {
            0 | 1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = random.next() as u8;
                }
            }
            2 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
            3 => {
                let other = &inputs[random.below(inputs.len())];
                let from = random.below(other.len());
                let piece = &other[from..(from + random.below(64)).min(other.len())];
                let end = (at + random.below(64)).min(input.len());
                input.splice(at.min(end)..end, piece.iter().copied());
            }
            4 => {
                let end = (at + random.below(32)).min(input.len());
                let piece = input[at.min(end)..end].to_vec();
                input.splice(at.min(end)..at.min(end), piece);
            }
            5 => input.truncate(at),
            _ => {
                let more = (0..random.below(32)).map(|_| random.next() as u8);
                input.extend(more.collect::<Vec<_>>());
            }
        }
    }
    input
}

fn check(target: &str, rounds: usize, run: impl Fn(&[u8])) {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text: String| text.parse().expect("a number"))
    };
    let least = number("OXP_FUZZ_ROUNDS").map_or(rounds, |rounds| rounds as usize);
    let duration = Duration::from_secs(number("OXP_FUZZ_SECONDS").unwrap_or(0));
    let mut inputs = seeds::of(target);
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    if corpus.is_dir() {
        let entries = std::fs::read_dir(corpus)
            .expect("the corpus can be read")
            .flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        inputs.extend(
            paths
                .iter()
                .map(|path| std::fs::read(path).expect("the file can be read")),
        );
    }
    assert!(!inputs.is_empty());
    for input in &inputs {
        run(input);
    }
    let mut random = Random(42);
    let trace = std::env::var_os("OXP_FUZZ_KEEP");
    let mut slowest = Duration::ZERO;
    let mut rounds = 0;
    let started = Instant::now();
    while rounds < least || started.elapsed() < duration {
        rounds += 1;
        let input = changed(&inputs, &mut random);
        if let Some(folder) = &trace {
            std::fs::write(Path::new(folder).join(target), &input).expect("the folder can be written");
        }
        let start = Instant::now();
        run(&input);
        slowest = slowest.max(start.elapsed());
    }
    println!(
        "{target}: {} inputs and {rounds} changed ones, the slowest {slowest:?}",
        inputs.len()
    );
}

#[test]
fn calls() {
    check("calls", 2000, calls::run);
}

#[test]
fn graphs() {
    check("graph", 4000, graph::run);
}

#[test]
fn saved_states() {
    check("saved_state", 2000, saved_state::run);
}

#[test]
fn packages() {
    check("package_own", 1000, |data| package::run(data, package::OWN));
}

#[test]
fn genai_packages() {
    check("package_genai", 1000, |data| package::run(data, package::GENAI));
}

#[test]
fn hugging_face_packages() {
    check("package_hugging_face", 1000, |data| {
        package::run(data, package::HUGGING_FACE)
    });
}

#[test]
fn texts() {
    check("text", 1000, text::run);
}

#[test]
fn images() {
    check("image", 4000, media::image);
}

#[test]
fn sounds() {
    check("audio", 4000, media::audio);
}

#[test]
fn calls_are_made_of_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("include/oxpipe.h")).expect("the header can be read");
    let path = root.join("fuzz/src/calls/functions.rs");
    let table = calls::table::table(&header);
    if std::env::var_os("OXP_UPDATE_HEADER").is_some() {
        std::fs::write(&path, &table).expect("the table can be written");
    }
    let found = std::fs::read_to_string(&path).expect("the table can be read");
    assert!(
        found == table,
        "run OXP_UPDATE_HEADER=1 cargo test --test fuzz_corpus"
    );
}
