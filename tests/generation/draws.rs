//! Tokens are drawn as often as the distribution says, and by the seed and the place alone.

use oxpipe::generation::{Purpose, SamplerState, TokenMask, uniform};

use super::definitions::{expected, softmax};
use super::logits::{END, logits, sampler};

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

/// What is behind the prompt of one token.
const HISTORY: [i32; 6] = [3, 4, 4, 7, 3, 4];

/// The same with a history, which is that of every draw.
fn check_behind(options: &[(&str, &str)], mask: Option<&TokenMask>, p: &[f64]) {
    let logits = few_logits();
    let mut counts = vec![0; logits.len()];
    let mut sampler = sampler(options, 0);
    for seed in 0..DRAWS {
        sampler.set_seed(seed as u64);
        sampler.set_state(SamplerState::default());
        counts[sampler.pick(&logits, &HISTORY, 1, mask).unwrap()] += 1;
    }
    check_counts(&counts, p, &format!("{options:?}"));
}

/// Logits that a processor's definition gives, of the token and its logit.
fn processed(definition: impl Fn(usize, f64) -> f64) -> Vec<f64> {
    let logits = few_logits().into_iter().enumerate();
    logits
        .map(|(token, logit)| definition(token, f64::from(logit)))
        .collect()
}

#[test]
fn processors_before_drawing() {
    let drawn = ("do_sample", "true");
    let ruled = |tokens: &'static [usize]| {
        move |token, x| {
            if tokens.contains(&token) {
                f64::NEG_INFINITY
            } else {
                x
            }
        }
    };
    let said = |token| matches!(token, 3 | 4 | 7);
    let repetition = |token, x: f64| match said(token) {
        true if x < 0.0 => x * 1.5,
        true => x / 1.5,
        false => x,
    };
    // Of the answer: 4 three times, 3 and 7 once.
    let penalties = |token, x| match token {
        4 => x - 3.0 * 0.4 - 0.3,
        3 | 7 => x - 0.4 - 0.3,
        _ => x,
    };
    // 4 would go on with "3 4", 7 with "4".
    let dry = |token, x| match token {
        4 => x - 0.8 * 1.75,
        7 => x - 0.8,
        _ => x,
    };
    let bias = |token, x| match token {
        1 => x + 1.5,
        2 => x - 2.0,
        5 => f64::NEG_INFINITY,
        _ => x,
    };
    check_behind(
        &[("repetition_penalty", "1.5"), drawn],
        None,
        &softmax(&processed(repetition)),
    );
    let options = [("frequency_penalty", "0.4"), ("presence_penalty", "0.3"), drawn];
    check_behind(&options, None, &softmax(&processed(penalties)));
    let options = [("dry_multiplier", "0.8"), ("dry_allowed_length", "1"), drawn];
    check_behind(&options, None, &softmax(&processed(dry)));
    // "4 4" and "4 7" were there.
    check_behind(
        &[("no_repeat_ngram_size", "2"), drawn],
        None,
        &softmax(&processed(ruled(&[4, 7]))),
    );
    check_behind(
        &[("logit_bias", "1:1.5,2:-2,5:-inf"), drawn],
        None,
        &softmax(&processed(bias)),
    );
    check_behind(
        &[("bad_words", "4 1,8,3 4 0,7 4 6"), drawn],
        None,
        &softmax(&processed(ruled(&[0, 1, 8]))),
    );
    check_behind(
        &[("suppress_tokens", "9,10"), drawn],
        None,
        &softmax(&processed(ruled(&[9, 10]))),
    );
    check_behind(
        &[("min_new_tokens", "6"), drawn],
        None,
        &softmax(&processed(ruled(&[END as usize]))),
    );
}

#[test]
fn under_a_mask_and_behind_processors() {
    let mut mask = TokenMask::all(12);
    for token in [1, 6, 11] {
        mask.forbid(token);
    }
    let masked = |x: Vec<f64>| {
        let all = x.into_iter().enumerate();
        let left = all.map(|(token, x)| if mask.allows(token) { x } else { f64::NEG_INFINITY });
        left.map(|x| x as f32).collect::<Vec<f32>>()
    };
    let plain = masked(processed(|_, x| x));
    for options in [
        &[("do_sample", "true")][..],
        &[("temperature", "1.4"), ("top_k", "5")],
        &[("top_p", "0.8")],
        &[("min_p", "0.2"), ("typical_p", "0.9")],
        &[("top_p", "0.9"), ("mirostat", "2"), ("mirostat_tau", "1.2")],
        &[("top_p", "0.9"), ("mirostat", "1"), ("mirostat_tau", "1.4")],
    ] {
        check_behind(options, Some(&mask), &expected(options, &plain));
    }
    // All of it: said tokens less, one of them more.
    let scores = masked(processed(|token, x| {
        let x = match token {
            3 | 4 | 7 if x < 0.0 => x * 1.2,
            3 | 4 | 7 => x / 1.2,
            _ => x,
        };
        match token {
            4 => x - 3.0 * 0.1 + 1.0,
            3 | 7 => x - 0.1,
            _ => x,
        }
    }));
    let samplers = [
        ("temperature", "1.5"),
        ("top_k", "8"),
        ("top_p", "0.95"),
        ("min_p", "0.02"),
    ];
    let processors = [
        ("repetition_penalty", "1.2"),
        ("frequency_penalty", "0.1"),
        ("logit_bias", "4:1"),
    ];
    let options: Vec<_> = processors.into_iter().chain(samplers).collect();
    check_behind(&options, Some(&mask), &expected(&samplers, &scores));
}

/// The whole of a large vocabulary, in 40 bins. (A draw of so many takes its time without optimisation.)
#[test]
fn a_large_vocabulary() {
    const SIZE: usize = 152_064;
    const BINS: usize = 40;
    const FEW: usize = 800;
    let logits: Vec<f32> = logits(SIZE, 8, "plain").iter().map(|logit| logit / 6.0).collect();
    let p = expected(&[], &logits);
    let (mut counts, mut bins) = ([0.0; BINS], [0.0; BINS]);
    for (token, p) in p.iter().enumerate() {
        bins[token * BINS / SIZE] += p * FEW as f64;
    }
    let mut sampler = sampler(&[("do_sample", "true")], 1);
    let history = [0; FEW];
    for place in 0..FEW {
        let index = sampler.pick(&logits, &history[..place], 0, None).unwrap();
        counts[index * BINS / SIZE] += 1.0;
    }
    let all = counts.iter().zip(&bins);
    let statistic: f64 = all
        .map(|(count, expected)| (count - expected).powi(2) / expected)
        .sum();
    // 39 degrees of freedom, p = 0.0002.
    assert!(statistic < 78.0, "chi-square {statistic}");
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
