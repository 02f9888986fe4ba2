//! What choosing a token takes, beside one pass over the logits.

use std::hint::black_box;

use criterion::Criterion;
use oxpipe::generation::{Sampler, SamplingOptions, TokenMask};

const VOCABULARY: usize = 152_064;

/// Tokens before the chosen one.
const HISTORY: usize = 1000;

const CHAINS: [(&str, &[(&str, &str)]); 6] = [
    ("greedy", &[]),
    ("draw", &[("do_sample", "true")]),
    ("top_k-50", &[("top_k", "50")]),
    ("top_p-0.9", &[("top_p", "0.9")]),
    ("min_p-0.05", &[("min_p", "0.05")]),
    (
        "chain",
        &[
            ("repetition_penalty", "1.1"),
            ("frequency_penalty", "0.2"),
            ("presence_penalty", "0.1"),
            ("temperature", "0.8"),
            ("top_k", "50"),
            ("top_p", "0.9"),
            ("min_p", "0.05"),
        ],
    ),
];

fn sampler(chain: &[(&str, &str)]) -> Sampler {
    let mut options = SamplingOptions::default();
    for (name, value) in chain {
        options.set(name, value).expect("a good value");
    }
    let options = options.over(&SamplingOptions::default()).expect("good options");
    Sampler::new(&options, 1, &[2])
}

pub fn all(criterion: &mut Criterion) {
    let logits = logits();
    let history: Vec<i32> = (0..HISTORY).map(|place| (place * place % 700) as i32).collect();
    let mut group = criterion.benchmark_group("sampling");
    group.bench_function("floor", |bencher| bencher.iter(|| largest(black_box(&logits))));
    for (name, chain) in CHAINS {
        let mut sampler = sampler(chain);
        group.bench_function(name, |bencher| {
            bencher.iter(|| sampler.pick(black_box(&logits), &history, 200, None));
        });
    }
    let mut chain_without_top_k = sampler(&[
        ("repetition_penalty", "1.1"),
        ("frequency_penalty", "0.2"),
        ("presence_penalty", "0.1"),
        ("temperature", "0.8"),
        ("top_p", "0.9"),
        ("min_p", "0.05"),
    ]);
    group.bench_function("chain-without-top_k", |bencher| {
        bencher.iter(|| chain_without_top_k.pick(black_box(&logits), &history, 200, None));
    });
    let mut mask = TokenMask::none(VOCABULARY);
    for token in (0..VOCABULARY).filter(|token| token * 7 % 11 < 4) {
        mask.allow(token);
    }
    let mut masked = sampler(&[]);
    group.bench_function("mask", |bencher| {
        bencher.iter(|| masked.pick(black_box(&logits), &history, 200, Some(&mask)));
    });
    // With the logarithm of its probability, which every event has.
    let mut plain = sampler(&[]);
    group.bench_function("greedy-with-logprob", |bencher| {
        bencher.iter(|| plain.choose(black_box(&logits), &history, 200, None));
    });
}

/// As a model's: about normal, of deviation 3, with few far above.
fn logits() -> Vec<f32> {
    let mut state = 1u64;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..VOCABULARY)
        .map(|_| {
            let sum: f32 = (0..12).map(|_| uniform()).sum();
            (sum - 6.0) * 3.0
        })
        .collect()
}

/// The largest, in a loop that the compiler can make wide.
fn largest(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 32];
    for logits in logits.chunks_exact(32) {
        for (lane, &logit) in lanes.iter_mut().zip(logits) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}
