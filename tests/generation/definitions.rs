//! Processors and samplers beside straight evaluations of their definitions in float64.

use std::ops::ControlFlow;

use oxpipe::generation::{SampleError, SamplerState, TokenMask};

use super::logits::{END, history, log_probabilities, logits, sampler};

/// Probabilities of scores; of +inf, all.
pub fn softmax(scores: &[f64]) -> Vec<f64> {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = match most == f64::INFINITY {
        true => scores.iter().map(|&x| f64::from(u8::from(x == most))).collect(),
        false => scores.iter().map(|x| (x - most).exp()).collect(),
    };
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// Token ids, the most probable first, among equals the lowest first.
fn order(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    order
}

/// Leaves those tokens whose place in a list is below a number.
fn keep_first(scores: &mut [f64], order: &[usize], count: usize) {
    for &token in order.iter().skip(count) {
        scores[token] = f64::NEG_INFINITY;
    }
}

fn keep_if(scores: &mut [f64], keep: impl Fn(usize) -> bool) {
    for (token, score) in scores.iter_mut().enumerate() {
        if !keep(token) {
            *score = f64::NEG_INFINITY;
        }
    }
}

/// How many of a list it takes for their probabilities to reach a mass.
fn count_to(order: &[usize], p: &[f64], mass: f64) -> usize {
    let mut sum = 0.0;
    for (at, &token) in order.iter().enumerate() {
        sum += p[token];
        if sum >= mass {
            return at + 1;
        }
    }
    order.len()
}

/// One step of the chain, by its option.
pub fn apply(scores: &mut [f64], (name, value): (&str, f64), others: &[(&str, &str)]) {
    let other = |wanted: &str, default: f64| {
        let found = others.iter().find(|(name, _)| *name == wanted);
        found.map_or(default, |(_, value)| value.parse().unwrap())
    };
    let p = softmax(scores);
    let most = p.iter().copied().fold(0.0, f64::max);
    match name {
        "temperature" => scores.iter_mut().for_each(|score| *score /= value),
        "top_k" => {
            let order = order(scores);
            let least = scores[order[(value as usize).min(order.len()) - 1]];
            for score in scores.iter_mut().filter(|score| **score < least) {
                *score = f64::NEG_INFINITY;
            }
        }
        "top_p" => {
            let order = order(scores);
            keep_first(scores, &order, count_to(&order, &p, value));
        }
        "min_p" => keep_if(scores, |token| p[token] >= value * most),
        "typical_p" => {
            let surprise = |token: usize| -p[token].ln();
            let terms = (0..p.len()).filter(|&token| p[token] > 0.0);
            let entropy: f64 = terms.map(|token| p[token] * surprise(token)).sum();
            let distance: Vec<f64> = (0..p.len())
                .map(|token| (surprise(token) - entropy).abs())
                .collect();
            let mut order: Vec<usize> = (0..p.len()).collect();
            order.sort_by(|&a, &b| distance[a].total_cmp(&distance[b]));
            let farthest = distance[order[count_to(&order, &p, value) - 1]];
            // Equal probabilities are equally far, however that is rounded.
            keep_if(scores, |token| distance[token] <= farthest + 1e-12);
        }
        "top_a" => keep_if(scores, |token| p[token] >= value * most * most),
        "xtc_threshold" => {
            let mut top: Vec<usize> = (0..p.len()).filter(|&token| p[token] >= value).collect();
            top.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
            top.pop();
            keep_if(scores, |token| !top.contains(&token));
        }
        "mirostat" => {
            let mu = 2.0 * other("mirostat_tau", 5.0);
            let order: Vec<usize> = order(scores)
                .into_iter()
                .filter(|&token| p[token] > 0.0)
                .collect();
            let count = match value {
                1.0 => mirostat_1(&order, &p, mu),
                _ => order
                    .iter()
                    .filter(|&&token| -p[token].log2() <= mu)
                    .count()
                    .max(1),
            };
            let kept: Vec<usize> = order.into_iter().take(count).collect();
            keep_if(scores, |token| kept.contains(&token));
        }
        other => panic!("{other} has no definition here"),
    }
}

/// Algorithm 1 of the paper: the exponent of Zipf's law by least squares, and k by it.
fn mirostat_1(order: &[usize], p: &[f64], mu: f64) -> usize {
    let pairs = order.windows(2).take(99).enumerate();
    let terms: Vec<(f64, f64)> = pairs
        .map(|(at, pair)| {
            let i = at as f64 + 1.0;
            (((i + 1.0) / i).ln(), (p[pair[0]] / p[pair[1]]).ln())
        })
        .collect();
    let s = terms.iter().map(|(t, b)| t * b).sum::<f64>() / terms.iter().map(|(t, _)| t * t).sum::<f64>();
    let epsilon = s - 1.0;
    let k = (epsilon * mu.exp2() / (1.0 - (p.len() as f64).powf(-epsilon))).powf(1.0 / s);
    (k.floor() as usize).clamp(1, order.len())
}

/// The probabilities that options make of logits, in the order in which they are listed.
pub fn expected(options: &[(&str, &str)], logits: &[f32]) -> Vec<f64> {
    let mut scores: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
    for (name, value) in options {
        if !matches!(
            *name,
            "xtc_probability" | "mirostat_tau" | "mirostat_eta" | "do_sample"
        ) {
            apply(&mut scores, (name, value.parse().unwrap()), options);
        }
    }
    softmax(&scores)
}

fn assert_same(found: &[f32], expected: &[f64], what: &str) {
    for (token, (&found, &p)) in found.iter().zip(expected).enumerate() {
        if p == 0.0 {
            assert_eq!(found, f32::NEG_INFINITY, "{what}: token {token}");
        } else {
            let close = (f64::from(found) - p.ln()).abs() < 1e-5;
            assert!(close, "{what}: token {token}: {found} for {}", p.ln());
        }
    }
}

const SIZES: [usize; 3] = [10, 1000, 152_064];

const CHAINS: [&[(&str, &str)]; 20] = [
    &[("temperature", "0.7")],
    &[("top_k", "4")],
    &[("top_k", "100")],
    &[("top_p", "0.3")],
    &[("top_p", "0.95")],
    &[("top_p", "0")],
    &[("min_p", "0.1")],
    &[("min_p", "1")],
    &[("typical_p", "0.5")],
    &[("top_a", "0.2")],
    &[("top_a", "0.9")],
    &[("xtc_threshold", "0.05"), ("xtc_probability", "1")],
    &[("xtc_threshold", "0.001"), ("xtc_probability", "1")],
    &[("mirostat", "1"), ("mirostat_tau", "2")],
    &[("mirostat", "2"), ("mirostat_tau", "2")],
    &[("mirostat", "2"), ("mirostat_tau", "0")],
    &[
        ("temperature", "1.5"),
        ("top_k", "30"),
        ("top_p", "0.9"),
        ("min_p", "0.02"),
    ],
    &[
        ("temperature", "1.3"),
        ("top_p", "0.9"),
        ("typical_p", "0.8"),
        ("top_a", "0.1"),
    ],
    &[
        ("temperature", "0.8"),
        ("min_p", "0.05"),
        ("xtc_threshold", "0.1"),
        ("xtc_probability", "1"),
    ],
    &[
        ("temperature", "2"),
        ("top_k", "60"),
        ("mirostat", "1"),
        ("mirostat_tau", "3"),
    ],
];

#[test]
fn samplers_leave_what_their_definitions_say() {
    for size in SIZES {
        let kinds = match size {
            // Enough to see that places are right, since sorting so many takes its time.
            152_064 => &["plain"][..],
            _ => &["plain", "ties", "infinities"],
        };
        for &kind in kinds {
            let logits = logits(size, 77, kind);
            for chain in CHAINS {
                let what = format!("{chain:?} of {size} {kind}");
                // Of equal logits a sum in another order crosses a mass at another place; and the
                // estimate of an exponent of 0 is anything.
                let by_sums = chain
                    .iter()
                    .any(|(name, _)| matches!(*name, "typical_p" | "mirostat"));
                if kind == "ties" && by_sums {
                    continue;
                }
                let found = log_probabilities(chain, &logits, &[], 0, None).unwrap();
                assert_same(&found, &expected(chain, &logits), &what);
            }
        }
    }
}

#[test]
fn penalties_and_dry_by_hand() {
    for size in SIZES {
        let logits = logits(size, 5, "plain");
        let history = history(size, 3);
        let prompt_len = history.len() / 3;
        let answer = &history[prompt_len..];
        let plain: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
        let times = |token: usize| answer.iter().filter(|&&other| other as usize == token).count() as f64;
        let with = |change: &dyn Fn(usize) -> f64| {
            let scores: Vec<f64> = plain
                .iter()
                .enumerate()
                .map(|(token, x)| x - change(token))
                .collect();
            softmax(&scores)
        };
        let check = |options: &[(&str, &str)], expected: Vec<f64>| {
            let found = log_probabilities(options, &logits, &history, prompt_len, None).unwrap();
            assert_same(&found, &expected, &format!("{options:?} of {size}"));
        };
        check(&[("frequency_penalty", "0.6")], with(&|token| 0.6 * times(token)));
        check(
            &[("presence_penalty", "-0.9")],
            with(&|token| -0.9 * f64::from(u8::from(times(token) > 0.0))),
        );
        check(
            &[("frequency_penalty", "0.25"), ("presence_penalty", "1.5")],
            with(&|token| 0.25 * times(token) + 1.5 * f64::from(u8::from(times(token) > 0.0))),
        );
        for (allowed, range, breaker) in [(1, 0, None), (2, 0, None), (2, 20, None), (2, 0, history.get(4))] {
            let seen = match range {
                0 => &history[..],
                range => &history[history.len().saturating_sub(range)..],
            };
            let dry = |token: usize| {
                let n = longest_repetition(seen, token as i32, breaker.copied());
                match n >= allowed {
                    true => 0.8 * 1.75f64.powi((n - allowed) as i32),
                    false => 0.0,
                }
            };
            let expected = {
                // Only tokens of the history can go on with it.
                let mut scores = plain.clone();
                for &token in history.iter().collect::<std::collections::BTreeSet<_>>() {
                    scores[token as usize] -= dry(token as usize);
                }
                softmax(&scores)
            };
            let (allowed, range) = (allowed.to_string(), range.to_string());
            let breaker = breaker.map(i32::to_string).unwrap_or_default();
            let options = [
                ("dry_multiplier", "0.8"),
                ("dry_allowed_length", &allowed),
                ("dry_range", &range),
                ("dry_breakers", &breaker),
            ];
            check(&options, expected);
        }
    }
}

/// The longest end of the history that a token has followed before, up to 50, without breakers.
fn longest_repetition(history: &[i32], token: i32, breaker: Option<i32>) -> usize {
    if Some(token) == breaker {
        return 0;
    }
    let longest = history.len().min(50);
    let ends = |n: &usize| {
        let end = &history[history.len() - n..];
        let breaks = end.iter().any(|other| Some(*other) == breaker);
        !breaks
            && history
                .windows(n + 1)
                .any(|window| window[..*n] == *end && window[*n] == token)
    };
    (1..=longest).rev().find(ends).unwrap_or(0)
}

#[test]
fn a_mask_and_everything_before_the_samplers_combine() {
    for size in SIZES {
        let logits = logits(size, 9, "plain");
        let mut mask = TokenMask::none(size);
        for token in (0..size).step_by(3) {
            mask.allow(token);
        }
        let mut scores: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
        keep_if(&mut scores, |token| token % 3 == 0);
        let found = log_probabilities(&[], &logits, &[], 0, Some(&mask)).unwrap();
        assert_same(&found, &softmax(&scores), "mask");
        scores[3] += 4.5;
        scores[6] = f64::NEG_INFINITY;
        apply(&mut scores, ("top_p", 0.7), &[]);
        let options = [("logit_bias", "3:4.5,6:-inf,1:20"), ("top_p", "0.7")];
        let found = log_probabilities(&options, &logits, &[], 0, Some(&mask)).unwrap();
        assert_same(&found, &softmax(&scores), "mask, bias and top_p");
        let nothing = TokenMask::none(size);
        for options in [
            &[][..],
            &[("top_k", "5")],
            &[("top_p", "0.5")],
            &[("min_p", "0.5")],
        ] {
            let error = sampler(options, 0).choose(&logits, &[], 0, Some(&nothing));
            assert_eq!(error, Err(SampleError::NothingLeft));
        }
    }
}

/// What a mask leaves can be chosen, whatever else rules it out; what rules nothing out still counts.
#[test]
fn a_mask_wins_where_nothing_would_be_left() {
    let mut logits = vec![0.0; 10];
    (logits[3], logits[4], logits[9]) = (2.0, 3.0, 5.0);
    let history = [1, 3, 2, 4, 1];
    let only = |tokens: &[usize]| {
        let mut mask = TokenMask::none(10);
        tokens.iter().for_each(|&token| mask.allow(token));
        mask
    };
    let rules: [(&str, &str, &[usize]); 6] = [
        ("min_length", "100", &[END as usize]),
        ("min_new_tokens", "100", &[END as usize]),
        ("no_repeat_ngram_size", "1", &[3, 4]),
        ("bad_words", "4 1 3,1 4", &[3, 4]),
        ("suppress_tokens", "3,4", &[3, 4]),
        ("logit_bias", "3:-inf,4:-inf", &[3, 4]),
    ];
    for (name, value, ruled) in rules {
        // The largest of all that are left, taken or drawn.
        for chosen in [("do_sample", "false"), ("top_k", "1")] {
            let mut sampler = sampler(&[(name, value), chosen, ("frequency_penalty", "50")], 3);
            let mut choose = |mask: &TokenMask| {
                let choice = sampler.choose(&logits, &history, 1, Some(mask));
                choice.unwrap().index
            };
            // 4 is in the answer as often as 3, and larger.
            assert_eq!(Some(&choose(&only(ruled))), ruled.last(), "{name} {chosen:?}");
            // As long as another token is left nothing that is ruled out is chosen.
            let mut more = ruled.to_vec();
            more.push(5);
            assert_eq!(choose(&only(&more)), 5, "{name} {chosen:?}");
        }
    }
    // The mask itself never gives way, and nor does the model.
    let mut sampler = sampler(&[("suppress_tokens", "3")], 3);
    let none = sampler.choose(&logits, &history, 1, Some(&only(&[])));
    assert_eq!(none, Err(SampleError::NothingLeft));
    logits[3] = f32::NEG_INFINITY;
    let none = sampler.choose(&logits, &history, 1, Some(&only(&[3])));
    assert_eq!(none, Err(SampleError::NothingLeft));
}

#[test]
fn greedy_takes_the_first_of_the_largest_after_the_processors() {
    let logits = logits(1000, 1, "ties");
    let history = history(1000, 4);
    let first_largest = |scores: &[f32]| {
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter().position(|&score| score == most).unwrap()
    };
    let plain = sampler(&[], 0).choose(&logits, &history, 0, None).unwrap();
    assert_eq!(plain.index, first_largest(&logits));
    let bias = format!("{}:-inf", plain.index);
    let mut scores = logits.clone();
    scores[plain.index] = f32::NEG_INFINITY;
    let next = sampler(&[("logit_bias", &bias)], 0)
        .choose(&logits, &history, 0, None)
        .unwrap();
    assert_eq!(next.index, first_largest(&scores));
    // Its probability is that of the model's own logits.
    let p = softmax(&logits.iter().map(|&logit| f64::from(logit)).collect::<Vec<_>>());
    assert!((f64::from(next.logprob) - p[next.index].ln()).abs() < 1e-5);
    let cold = sampler(&[("temperature", "0"), ("logit_bias", &bias)], 0).choose(&logits, &history, 0, None);
    assert_eq!(cold.unwrap().index, next.index);
}

#[test]
fn nan_is_an_error_that_names_it() {
    let chains: [&[(&str, &str)]; 9] = [
        &[],
        &[("do_sample", "true")],
        &[("top_k", "3")],
        &[("top_p", "0.5")],
        &[("min_p", "0.5")],
        &[("mirostat", "2")],
        &[("typical_p", "0.5")],
        &[("suppress_tokens", "700")],
        &[("repetition_penalty", "1.5"), ("top_k", "10")],
    ];
    for chain in chains {
        for at in [0, 63, 64, 700, 999] {
            let mut logits = logits(1000, 2, "plain");
            logits[at] = f32::NAN;
            let mut sampler = sampler(chain, 0);
            let error = sampler.choose(&logits, &[1, 700], 1, None).unwrap_err();
            assert_eq!(error, SampleError::Nan { index: at }, "{chain:?}");
            // Also where the token is ruled out.
            let mut mask = TokenMask::all(1000);
            mask.forbid(at);
            let error = sampler.choose(&logits, &[1, 700], 1, Some(&mask)).unwrap_err();
            assert_eq!(error, SampleError::Nan { index: at }, "{chain:?}");
        }
    }
    assert_eq!(
        sampler(&[("top_k", "3")], 0).choose(&[], &[], 0, None),
        Err(SampleError::Empty)
    );
}

/// No processor makes a number that is none, however large its penalty; a host may.
#[test]
fn nan_that_a_host_makes_is_an_error_and_processors_make_none() {
    let mut history = vec![5; 60];
    let mask = TokenMask::all(1000);
    for more in [&[][..], &[("do_sample", "true")], &[("top_p", "0.5")]] {
        let mut chain = vec![
            ("dry_multiplier", "100"),
            ("dry_base", "10"),
            ("dry_allowed_length", "1"),
            ("repetition_penalty", "100"),
            ("frequency_penalty", "100"),
            ("presence_penalty", "-100"),
            ("logit_bias", "5:-100,6:100,7:-inf"),
        ];
        chain.extend(more);
        for (infinite, chosen) in [
            (f32::INFINITY, 5),
            (f32::NEG_INFINITY, 9),
            (f32::MIN, 9),
            (f32::MAX, 9),
        ] {
            let mut logits = vec![f32::NEG_INFINITY; 1000];
            logits[5] = infinite;
            logits[7] = f32::INFINITY;
            logits[9] = 1.0;
            for mask in [None, Some(&mask)] {
                let choice = sampler(&chain, 0).choose(&logits, &history, 1, mask);
                assert_eq!(choice.unwrap().index, chosen, "{chain:?} {infinite}");
            }
        }
    }
    history.truncate(2);
    for place in [0, 999] {
        // Also of a token that is ruled out behind the hook.
        let mut sampler = sampler(&[("suppress_tokens", "0,999")], 0);
        sampler.set_logits_hook(Some(Box::new(move |logits, _| {
            logits[place] = f32::NAN;
            ControlFlow::Continue(())
        })));
        let mut without = TokenMask::all(1000);
        without.forbid(place);
        for mask in [None, Some(&without)] {
            let error = sampler
                .choose(&logits(1000, 2, "plain"), &history, 1, mask)
                .unwrap_err();
            assert_eq!(error, SampleError::Nan { index: place });
        }
    }
}

#[test]
fn infinite_logits_share_all_of_the_probability() {
    let mut logits = logits(1000, 2, "infinities");
    logits[5] = f32::INFINITY;
    logits[700] = f32::INFINITY;
    for chain in CHAINS {
        let found = log_probabilities(chain, &logits, &[], 0, None).unwrap();
        let kept: Vec<usize> = (0..1000).filter(|&token| found[token].is_finite()).collect();
        let one = chain.iter().any(|(name, value)| {
            let (name, value): (&str, f64) = (name, value.parse().unwrap());
            // Half of the probability is enough, too much, or more surprising than is allowed; and
            // equal ones have an exponent of 0, of which the first mirostat makes a k below 1.
            (name == "top_p" && value <= 0.5)
                || name == "xtc_threshold"
                || (name == "mirostat_tau" && value == 0.0)
                || (name == "mirostat" && value == 1.0)
        });
        match one {
            true => assert_eq!(kept.len(), 1, "{chain:?}"),
            false => assert_eq!(kept, [5, 700], "{chain:?}"),
        }
    }
    let none = vec![f32::NEG_INFINITY; 100];
    for chain in CHAINS.into_iter().chain([&[][..]]) {
        let error = sampler(chain, 0).choose(&none, &[], 0, None);
        assert_eq!(error, Err(SampleError::NothingLeft), "{chain:?}");
    }
}

#[test]
fn tokens_of_options_are_tokens_of_the_logits() {
    let logits = logits(10, 0, "plain");
    for (name, value) in [
        ("logit_bias", "10:1"),
        ("bad_words", "1 10"),
        ("suppress_tokens", "10"),
        ("begin_suppress_tokens", "10"),
    ] {
        let error = sampler(&[(name, value)], 0)
            .choose(&logits, &[], 0, None)
            .unwrap_err();
        let expected = SampleError::TokenOutOfRange {
            what: name,
            token: 10,
            size: 10,
        };
        assert_eq!(error, expected);
    }
}

#[test]
fn ends_of_what_numbers_can_be() {
    let pick = |options: &[(&str, &str)], logits: &[f32]| sampler(options, 1).pick(logits, &[3], 0, None);
    // A token that cannot be drawn is none of XTC's choices.
    let xtc = [("xtc_threshold", "0"), ("xtc_probability", "1")];
    assert_eq!(pick(&xtc, &[0.0, -1.0, -1000.0]), Ok(1));
    for others in [
        &[][..],
        &[("top_p", "0.9")],
        &[("min_p", "0.1")],
        &[("typical_p", "0.9")],
    ] {
        let mut options = others.to_vec();
        options.push(("temperature", "1e-309"));
        assert_eq!(pick(&options, &[1.0, 2.0, -3.0]), Ok(1), "{others:?}");
        assert_eq!(pick(&options, &[1.0, f32::INFINITY, -3.0]), Ok(1), "{others:?}");
    }
    // Of equals the lowest id is kept, the two zeros being equal.
    for logits in [[-0.0, 0.0], [0.0, -0.0]] {
        for chain in [&[("top_p", "0.4")][..], &[("top_k", "2"), ("top_p", "0.4")]] {
            let logprobs = log_probabilities(chain, &logits, &[], 0, None).unwrap();
            assert_eq!(logprobs, [0.0, f32::NEG_INFINITY], "{chain:?}");
        }
        let mut sampler = sampler(&[("logprobs", "2")], 1);
        sampler.choose(&logits, &[], 0, None).unwrap();
        assert_eq!(sampler.logprobs().unwrap().raw_top[0].token, 0);
    }
    // Infinite logits share all of the probability.
    let mut sampler = sampler(&[("logprobs", "3")], 1);
    let infinite = [0.0, f32::INFINITY, 5.0, f32::INFINITY];
    sampler.choose(&infinite, &[], 0, None).unwrap();
    let top = &sampler.logprobs().unwrap().raw_top;
    let top: Vec<(u32, f32)> = top.iter().map(|one| (one.token, one.logprob)).collect();
    let half = -std::f32::consts::LN_2;
    assert_eq!(top, [(1, half), (3, half), (2, f32::NEG_INFINITY)]);
}

/// μ moves towards the wished surprise, token by token, and goes with the place in the sequence.
#[test]
fn mirostat_remembers_by_place() {
    for version in ["1", "2"] {
        let options = [
            ("mirostat", version),
            ("mirostat_tau", "3"),
            ("mirostat_eta", "0.2"),
        ];
        let mut sampler = sampler(&options, 11);
        let mut tokens = Vec::new();
        let mut mu = 6.0;
        let mut states = vec![sampler.state().clone()];
        for place in 0..12 {
            let logits = logits(1000, place, "plain");
            let chosen = sampler.choose(&logits, &tokens, 0, None).unwrap().index;
            let p = softmax(&logits.iter().map(|&logit| f64::from(logit)).collect::<Vec<_>>());
            mu -= 0.2 * (-p[chosen].log2() - 3.0);
            tokens.push(chosen as i32);
            states.push(sampler.state().clone());
            let bytes = sampler.state().to_bytes();
            let last = f64::from_le_bytes(*bytes.last_chunk().unwrap());
            assert!((last - mu).abs() < 1e-9, "{last} {mu}");
            assert_eq!(SamplerState::from_bytes(&bytes).as_ref(), Some(sampler.state()));
        }
        // Back at place 5 everything is as it was there.
        for place in 5..12 {
            let logits = logits(1000, place as u32, "plain");
            let chosen = sampler.choose(&logits, &tokens[..place], 0, None).unwrap().index;
            assert_eq!(chosen as i32, tokens[place]);
            assert_eq!(sampler.state(), &states[place + 1]);
        }
        let mut fork = sampler.fork();
        fork.set_state(states[3].clone());
        let chosen = fork
            .choose(&logits(1000, 3, "plain"), &tokens[..3], 0, None)
            .unwrap()
            .index;
        assert_eq!(chosen as i32, tokens[3]);
    }
    assert_eq!(SamplerState::from_bytes(&[0; 15]), None);
    assert_eq!(SamplerState::from_bytes(&[0; 32]), None);
}

/// The probabilities that are told are those of the definitions.
#[test]
fn logprobs_are_of_both_distributions() {
    let logits = logits(1000, 6, "ties");
    let plain: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
    let (raw, raw_order) = (softmax(&plain), order(&plain));
    for chain in [
        &[][..],
        &[("temperature", "0.5")],
        &[("top_k", "7")],
        &[("suppress_tokens", "1,2")],
    ] {
        let mut given = chain.to_vec();
        given.push(("logprobs", "5"));
        let mut sampler = sampler(&given, 3);
        let choice = sampler.choose(&logits, &[], 0, None).unwrap();
        let logprobs = sampler.logprobs().unwrap().clone();
        assert_eq!(choice.logprob, logprobs.raw);
        let mut scores = plain.clone();
        match chain {
            [("suppress_tokens", _)] => [1, 2]
                .into_iter()
                .for_each(|token| scores[token] = f64::NEG_INFINITY),
            chain => {
                for (name, value) in chain {
                    apply(&mut scores, (name, value.parse().unwrap()), chain);
                }
            }
        }
        let processed = softmax(&scores);
        let close = |found: f32, expected: f64| (f64::from(found) - expected.ln()).abs() < 1e-5;
        assert!(close(logprobs.raw, raw[choice.index]));
        assert!(close(logprobs.processed, processed[choice.index]));
        for (top, order, p) in [
            (&logprobs.raw_top, &raw_order, &raw),
            (&logprobs.processed_top, &order(&scores), &processed),
        ] {
            assert_eq!(top.len(), 5);
            for (found, &expected) in top.iter().zip(order) {
                assert_eq!(found.token as usize, expected, "{chain:?}");
                assert!(close(found.logprob, p[expected]), "{chain:?}");
            }
        }
    }
}
