//! Tokens are drawn as often as the distribution says, and by the seed and the place alone.

use oxpipe::generation::{Purpose, uniform};

use super::definitions::{expected, softmax};
use super::logits::{logits, sampler};

const DRAWS: usize = 100_000;

/// Pearson's statistic has a normal cube root (Wilson and Hilferty, 1931): whether it is beyond what
/// one case in 10,000 has.
fn check_counts(counts: &[usize], p: &[f64], what: &str) {
    let mut statistic = 0.0;
    let mut bins = 0.0;
    for (token, (&count, &p)) in counts.iter().zip(p).enumerate() {
        let expected = p * DRAWS as f64;
        if p == 0.0 {
            assert_eq!(count, 0, "{what}: token {token}");
        } else {
            statistic += (count as f64 - expected).powi(2) / expected;
            bins += 1.0;
        }
    }
    let freedom: f64 = bins - 1.0;
    if freedom > 0.0 {
        let spread = 2.0 / (9.0 * freedom);
        let normal = ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
        assert!(
            normal < 3.72,
            "{what}: chi-square {statistic} of {freedom} degrees of freedom"
        );
    }
}

/// Logits of few tokens, none of which is drawn too seldom to be counted.
fn few_logits() -> Vec<f32> {
    logits(12, 8, "plain").iter().map(|logit| logit / 6.0).collect()
}

fn check(options: &[(&str, &str)], p: &[f64]) {
    let logits = few_logits();
    let mut counts = vec![0; logits.len()];
    // Mirostat's memory would make each draw depend on those before.
    let remembers = options.iter().any(|(name, _)| *name == "mirostat");
    let history = vec![0; DRAWS];
    let mut same = sampler(options, 42);
    for place in 0..DRAWS {
        let index = match remembers {
            false => same.pick(&logits, &history[..place], place, None),
            true => sampler(options, place as u64).pick(&logits, &[], 0, None),
        };
        counts[index.unwrap()] += 1;
    }
    check_counts(&counts, p, &format!("{options:?}"));
}

fn check_chain(options: &[(&str, &str)]) {
    check(options, &expected(options, &few_logits()));
}

#[test]
fn each_sampler_alone() {
    check_chain(&[("do_sample", "true")]);
    check_chain(&[("temperature", "0.6")]);
    check_chain(&[("temperature", "2")]);
    check_chain(&[("top_k", "4")]);
    check_chain(&[("top_p", "0.8")]);
    check_chain(&[("min_p", "0.2")]);
    check_chain(&[("typical_p", "0.7")]);
    check_chain(&[("top_a", "0.5")]);
}

#[test]
fn samplers_one_after_the_other() {
    check_chain(&[("temperature", "1.4"), ("top_k", "6")]);
    check_chain(&[("temperature", "1.4"), ("top_p", "0.85")]);
    check_chain(&[("temperature", "1.4"), ("min_p", "0.15")]);
    check_chain(&[("top_k", "8"), ("top_p", "0.8")]);
    check_chain(&[("top_p", "0.9"), ("min_p", "0.1")]);
    check_chain(&[("min_p", "0.05"), ("typical_p", "0.8")]);
    check_chain(&[("typical_p", "0.9"), ("top_a", "0.3")]);
    check_chain(&[
        ("temperature", "1.4"),
        ("top_k", "9"),
        ("top_p", "0.95"),
        ("min_p", "0.05"),
    ]);
}

#[test]
fn xtc_and_mirostat() {
    let xtc = [("xtc_threshold", "0.1"), ("xtc_probability", "1")];
    check_chain(&xtc);
    check_chain(&[("temperature", "1.5"), ("top_k", "9"), xtc[0], xtc[1]]);
    check_chain(&[("mirostat", "1"), ("mirostat_tau", "1.4")]);
    check_chain(&[("mirostat", "2"), ("mirostat_tau", "1.4")]);
    check_chain(&[
        ("temperature", "1.5"),
        ("min_p", "0.1"),
        ("mirostat", "2"),
        ("mirostat_tau", "1.2"),
    ]);
    // XTC acts on some tokens: its own number is not the one that the token is drawn by.
    let with = expected(&xtc, &few_logits());
    let without = expected(&[], &few_logits());
    let mixed: Vec<f64> = with
        .iter()
        .zip(&without)
        .map(|(a, b)| 0.3 * a + 0.7 * b)
        .collect();
    check(&[("xtc_threshold", "0.1"), ("xtc_probability", "0.3")], &mixed);
}

#[test]
fn penalties_before_drawing() {
    let logits = few_logits();
    let history = [3, 4, 4, 7];
    let scores: Vec<f64> = logits
        .iter()
        .enumerate()
        .map(|(token, &logit)| match token {
            4 => f64::from(logit) - 2.0 * 0.4 - 0.3,
            7 => f64::from(logit) - 0.4 - 0.3,
            _ => f64::from(logit),
        })
        .collect();
    let options = [
        ("frequency_penalty", "0.4"),
        ("presence_penalty", "0.3"),
        ("do_sample", "true"),
    ];
    let mut counts = vec![0; logits.len()];
    for seed in 0..DRAWS {
        counts[sampler(&options, seed as u64)
            .pick(&logits, &history, 1, None)
            .unwrap()] += 1;
    }
    check_counts(&counts, &softmax(&scores), "penalties");
}

/// The whole of a large vocabulary, in 100 bins.
#[test]
fn a_large_vocabulary() {
    const SIZE: usize = 20_000;
    let logits: Vec<f32> = logits(SIZE, 8, "plain").iter().map(|logit| logit / 6.0).collect();
    let p = expected(&[], &logits);
    let (mut counts, mut bins) = (vec![0.0; 100], vec![0.0; 100]);
    for (token, p) in p.iter().enumerate() {
        bins[token * 100 / SIZE] += p;
    }
    let mut sampler = sampler(&[("do_sample", "true")], 1);
    let history = [0; 2000];
    for place in 0..2000 {
        let index = sampler.pick(&logits, &history[..place], 0, None).unwrap();
        counts[index * 100 / SIZE] += 1.0;
    }
    let terms = counts
        .iter()
        .zip(&bins)
        .map(|(count, p)| (count - p * 2000.0).powi(2) / (p * 2000.0));
    let statistic: f64 = terms.sum();
    assert!(
        statistic < 160.0,
        "chi-square {statistic} of 99 degrees of freedom"
    );
}

/// The token is the first at which the probabilities add up to more than the number of its place.
#[test]
fn the_seed_and_the_place_say_which_token() {
    let logits = few_logits();
    let history = [0; 64];
    let p = softmax(&logits.iter().map(|&logit| f64::from(logit)).collect::<Vec<_>>());
    for seed in [0, 7, u64::MAX] {
        let mut sampler = sampler(&[("do_sample", "true")], seed);
        for place in (0..64).rev() {
            let number = uniform(seed, place as u64, Purpose::Token);
            let mut sum = 0.0;
            let expected = p.iter().position(|p| {
                sum += p;
                sum > number
            });
            let index = sampler.pick(&logits, &history[..place], 0, None).unwrap();
            assert_eq!(Some(index), expected);
        }
    }
}
