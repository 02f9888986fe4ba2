//! Choosing a token allocates nothing, whatever it goes through, once what is kept has its size. A
//! test binary of its own, because it counts every allocation.

use std::ops::ControlFlow;

use oxpipe::generation::{Sampler, SamplingOptions, TokenMask};
use oxpipe_test_support::counting_allocator::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const VOCABULARY: usize = 152_064;
const HISTORY: usize = 500;

#[test]
fn choosing_a_token_allocates_nothing() {
    let penalties = [
        ("min_length", "100"),
        ("repetition_penalty", "1.1"),
        ("frequency_penalty", "0.2"),
        ("presence_penalty", "0.1"),
        ("dry_multiplier", "0.8"),
        ("no_repeat_ngram_size", "3"),
        ("logit_bias", "5:1,7:-inf"),
        ("bad_words", "1 2,3"),
    ];
    let seven = [
        ("repetition_penalty", "1.1"),
        ("frequency_penalty", "0.2"),
        ("presence_penalty", "0.1"),
        ("temperature", "0.8"),
        ("top_k", "50"),
        ("top_p", "0.9"),
        ("min_p", "0.05"),
    ];
    let chains: [&[(&str, &str)]; 11] = [
        &[],
        &penalties,
        &seven,
        &[("do_sample", "true")],
        &[("top_k", "50")],
        &[("top_p", "0.9")],
        &[("min_p", "0.05")],
        &[("top_k", "200"), ("typical_p", "0.9"), ("top_a", "0.1")],
        &[("top_p", "0.9"), ("xtc_probability", "0.5")],
        &[("top_k", "100"), ("mirostat", "1")],
        &[("top_k", "100"), ("mirostat", "2")],
    ];
    for chain in chains {
        for (hooked, masked) in [(false, false), (true, true)] {
            let mut options = SamplingOptions::default();
            for (name, value) in chain {
                options.set(name, value).unwrap();
            }
            let options = options.over(&SamplingOptions::default()).unwrap();
            let mut sampler = Sampler::new(&options, 1, &[2]);
            if hooked {
                sampler.set_logits_hook(Some(Box::new(|logits, _| {
                    logits[9] += 1.0;
                    ControlFlow::Continue(())
                })));
                sampler.set_host_sampler(Some(Box::new(|_, _| ControlFlow::Continue(4))));
            }
            let mut mask = TokenMask::all(VOCABULARY);
            mask.forbid(11);
            let mask = masked.then_some(&mask);
            let history: Vec<i32> = (0..HISTORY as i32).map(|place| place * place % 97).collect();
            for step in 0..12 {
                let logits = logits(step);
                let history = &history[..HISTORY - 12 + step];
                let before = counting_allocator::allocations();
                sampler.choose(&logits, history, 20, mask).unwrap();
                let allocations = counting_allocator::allocations() - before;
                // The first ones make room.
                assert!(step < 4 || allocations == 0, "{chain:?} at step {step}");
            }
        }
    }
}

/// The same numbers in another order at each step.
fn logits(step: usize) -> Vec<f32> {
    let one = |token: usize| ((token + step * 131) as u32).wrapping_mul(0x9E37_79B9) >> 8;
    let all = (0..VOCABULARY).map(|token| one(token) as f32 / 1_000_000.0);
    all.map(|uniform| uniform * uniform / 12.0).collect()
}
