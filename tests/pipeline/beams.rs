//! Beam search: with a model that is a formula beside Hugging Face transformers (beams.py), with graphs
//! on each backend beside a search that keeps no caches.

use std::ops::ControlFlow;

use oxpipe::component::RunControl;
use oxpipe::generation::{FinishReason, SamplingOptions};
use oxpipe::pipeline::{Pipeline, PipelineOptions, Run, RunSettings};
use serde_json::Value;

use super::fake::{Fake, float_tensor, io, open};
use super::genai::{DECODER, decoder_files};
use super::tiny;

const VOCABULARY: usize = 12;

fn mixed(mut word: u32) -> u32 {
    word ^= word >> 16;
    word = word.wrapping_mul(0x85EB_CA6B);
    word ^= word >> 13;
    word = word.wrapping_mul(0xC2B2_AE35);
    word ^ word >> 16
}

fn logit(total: u32, token: usize) -> f32 {
    let word = mixed(total.wrapping_mul(131).wrapping_add(token as u32));
    let ends = if matches!(token, 7 | 2) { 1.5 } else { 0.0 };
    (f64::from(word >> 8) * (5.0 / 16_777_216.0) - 2.5 + ends) as f32
}

/// The formula as a decoder whose cache holds place times id of each token.
fn model(ends: &str) -> Pipeline {
    let decoder = Fake::new(
        io(
            &["input_ids:int64[1,sequence]", "past:float32[1,1,past,1]"],
            &["logits:float32[1,sequence,12]", "present:float32[1,1,total,1]"],
        ),
        |call| {
            let ids = call.ints("input_ids");
            let mut present = call.floats("past");
            let mut logits = Vec::new();
            for id in &ids {
                present.push((present.len() as i64 + 1) as f32 * *id as f32);
                let total: f32 = present.iter().sum();
                logits.extend((0..VOCABULARY).map(|token| logit(total as u32, token)));
            }
            let (sequence, total) = (ids.len() as i64, present.len() as i64);
            Ok(vec![
                ("logits", float_tensor(&[1, sequence, VOCABULARY as i64], &logits)),
                ("present", float_tensor(&[1, 1, total, 1], &present)),
            ])
        },
    );
    let metadata = format!(
        "
model:
  io:
    token_input: input_ids
    logits_output: logits
    kv_inputs: [past]
    kv_outputs: [present]
tokens: {{eos_token_id: {ends}}}
"
    );
    open(&metadata, vec![("model", decoder)]).unwrap()
}

fn settings(options: &[(&str, &str)], max_tokens: u64) -> RunSettings {
    let mut sampling = SamplingOptions::default();
    for (name, value) in options {
        sampling.set(name, value).unwrap();
    }
    RunSettings {
        max_tokens: Some(max_tokens),
        sampling,
        ..RunSettings::default()
    }
}

fn ids(value: &Value) -> Vec<i32> {
    let ids = value.as_array().unwrap().iter();
    ids.map(|id| id.as_i64().unwrap() as i32).collect()
}

/// Whatever token ends a sequence, transformers writes the first of those that do.
fn with_one_end(tokens: &[i32], ends: &[i32]) -> Vec<i32> {
    let mut tokens = tokens.to_vec();
    if let (Some(last), Some(first)) = (tokens.last_mut(), ends.first())
        && ends.contains(last)
    {
        *last = *first;
    }
    tokens
}

#[test]
fn sequences_are_those_of_transformers() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("beams.json")).unwrap();
    for case in &cases {
        let pipeline = model(&case["ends"].to_string());
        let options = case["options"].as_object().unwrap().iter();
        let options: Vec<(&str, &str)> = options
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
            .collect();
        let mut run = Run::new(&pipeline, &settings(&options, 9)).unwrap();
        let prompt = ids(&case["prompt"]);
        run.append_tokens(&prompt).unwrap();
        let ends = ids(&case["ends"]);
        let mut told = Vec::new();
        let finish = run.generate(&RunControl::default(), &mut |_, event| {
            told.extend(event.token);
            ControlFlow::Continue(())
        });
        let expected = case["sequences"].as_array().unwrap();
        let found = run.sequences();
        assert_eq!(found.len(), expected.len(), "{case}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(with_one_end(&found.tokens, &ends), ids(&expected[0]), "{case}");
            let score = expected[1].as_f64().unwrap();
            assert!(
                (found.score - score).abs() < 1e-5 * score.abs().max(1.0),
                "{case}"
            );
        }
        // The best is the answer.
        assert_eq!(told, found[0].tokens);
        assert_eq!(run.tokens(), [&prompt[..], &told].concat());
        let end = ends.iter().position(|end| told.last() == Some(end));
        let expected = end.map_or(FinishReason::MaxTokens, |index| FinishReason::EndOfText { index });
        assert_eq!(finish.unwrap(), Some(expected));
    }
}

#[test]
fn a_run_goes_on_behind_a_search() {
    let pipeline = model("[7]");
    let mut run = Run::new(&pipeline, &settings(&[("num_beams", "4")], 6)).unwrap();
    run.append_tokens(&[3, 1, 4]).unwrap();
    run.generate(&RunControl::default(), &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    let first = run.tokens().to_vec();
    assert!(run.logits().is_err());
    let bytes = run.save().unwrap();
    let loaded = Run::load(&pipeline, &settings(&[("num_beams", "4")], 6), &bytes).unwrap();
    assert_eq!(loaded.tokens(), first);
    run.append_tokens(&[9]).unwrap();
    run.generate(&RunControl::default(), &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    let mut fresh = Run::new(&pipeline, &settings(&[("num_beams", "4")], 6)).unwrap();
    fresh.append_tokens(&[&first[..], &[9]].concat()).unwrap();
    fresh
        .generate(&RunControl::default(), &mut |_, _| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(run.tokens(), fresh.tokens());
    assert_eq!(run.sequences(), fresh.sequences());
    // Back before the answer, and again; and an event that ends the call.
    run.rewind(3).unwrap();
    run.append_tokens(&[]).unwrap();
    let mut told = 0;
    let finish = run.generate(&RunControl::default(), &mut |_, _| {
        told += 1;
        match told {
            2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    assert_eq!(finish.unwrap(), None);
    assert_eq!(run.tokens(), &first[..5]);
}

#[test]
fn what_does_not_go_with_beams() {
    let pipeline = model("[7]");
    for (options, fragment) in [
        (
            &[("num_beams", "2"), ("do_sample", "true")][..],
            "draws no tokens",
        ),
        (
            &[("num_beams", "2"), ("num_return_sequences", "3")],
            "more than \"num_beams\"",
        ),
        (&[("num_return_sequences", "3")], "num_beams"),
        (&[("length_penalty", "3")], "num_beams"),
        (&[("num_beams", "4"), ("num_beam_groups", "2")], "groups of beams"),
        (
            &[("num_beams", "4"), ("diversity_penalty", "0.5")],
            "groups of beams",
        ),
        (&[("num_beams", "4"), ("logprobs", "1")], "logprobs"),
    ] {
        let error = Run::new(&pipeline, &settings(options, 3))
            .unwrap_err()
            .to_string();
        assert!(error.contains(fragment), "{error}");
    }
    let stopped = RunSettings {
        stop_tokens: vec![vec![4]],
        ..settings(&[("num_beams", "2")], 3)
    };
    let error = Run::new(&pipeline, &stopped).unwrap_err().to_string();
    assert!(
        error.contains("stop_tokens") && error.contains("num_beams to 1"),
        "{error}"
    );
    let mut run = Run::new(&pipeline, &settings(&[("num_beams", "2")], 3)).unwrap();
    run.append_tokens(&[3]).unwrap();
    let error = run.step(&RunControl::default()).unwrap_err().to_string();
    assert!(error.contains("num_beams 1"), "{error}");
    run.set_host_sampler(Some(Box::new(|_, _| ControlFlow::Continue(1))));
    let error = run
        .generate(&RunControl::default(), &mut |_, _| ControlFlow::Continue(()))
        .unwrap_err();
    assert!(error.to_string().contains("host's sampler"), "{error}");
    assert_eq!(run.tokens(), [3]);
}

/// A beam that nothing can follow ends, and the others go on.
#[test]
fn a_search_ends_only_when_every_beam_does() {
    let pipeline = model("[7]");
    for dead in [1, 2] {
        let mut run = Run::new(&pipeline, &settings(&[("num_beams", "2")], 4)).unwrap();
        run.append_tokens(&[3]).unwrap();
        let mut seen = 0;
        run.set_logits_hook(Some(Box::new(move |logits, tokens| {
            logits[7] = f32::NEG_INFINITY;
            seen += i32::from(tokens.len() == 2);
            if tokens.len() == 2 && seen <= dead {
                logits.fill(f32::NEG_INFINITY);
            }
            ControlFlow::Continue(())
        })));
        let finish = run.generate(&RunControl::default(), &mut |_, _| ControlFlow::Continue(()));
        match dead {
            1 => {
                assert_eq!(finish.unwrap(), Some(FinishReason::MaxTokens));
                assert_eq!(run.sequences()[0].tokens.len(), 4);
            }
            _ => {
                let error = finish.unwrap_err().to_string();
                assert!(error.contains("no token is left"), "{error}");
                assert_eq!(run.tokens(), [3]);
            }
        }
    }
}

/// A search whose beams are runs made anew for each step, so that no cache is carried on. All sums are
/// exact, being those of a few float32 in float64.
fn without_caches(pipeline: &Pipeline, prompt: &[i32], beams: usize, length: usize) -> Vec<(Vec<i32>, f64)> {
    let mut running = vec![(Vec::new(), 0.0)];
    for _ in 0..length {
        let mut candidates: Vec<(Vec<i32>, f64)> = Vec::new();
        for (answer, score) in &running {
            let mut run = tiny::start(pipeline);
            run.append_tokens(&[prompt, answer].concat()).unwrap();
            run.forward(&RunControl::default()).unwrap();
            let logits = run.logits().unwrap();
            let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
            for (token, &logit) in logits.iter().enumerate() {
                let mut longer = answer.clone();
                longer.push(token as i32);
                let logprob = (f64::from(logit) - sum.ln()) as f32;
                candidates.push((longer, score + f64::from(logprob)));
            }
        }
        candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
        candidates.truncate(beams);
        running = candidates;
    }
    running
}

#[test]
fn each_beam_has_its_own_caches_on_each_backend() {
    for backend in tiny::backends() {
        let options = PipelineOptions {
            backend: Some(backend),
            ..PipelineOptions::default()
        };
        let pipeline = tiny::open_with(&decoder_files(DECODER), &options).unwrap();
        for (prompt, beams) in [(&[3, 5, 2][..], 4), (&[1], 5), (&[7, 7, 4, 0, 6], 2)] {
            let count = beams.to_string();
            let given = [
                ("num_beams", count.as_str()),
                ("num_return_sequences", count.as_str()),
                ("length_penalty", "0"),
            ];
            let settings = RunSettings {
                stop_on_eos: false,
                ..settings(&given, 7)
            };
            let mut run = Run::new(&pipeline, &settings).unwrap();
            run.append_tokens(prompt).unwrap();
            run.generate(&RunControl::default(), &mut |_, _| ControlFlow::Continue(()))
                .unwrap();
            let expected = without_caches(&pipeline, prompt, beams, 7);
            assert_eq!(run.sequences().len(), beams);
            for (found, (tokens, score)) in run.sequences().iter().zip(&expected) {
                assert!((found.score - score).abs() < 1e-5);
                // Of equally good ones another may come first: a logarithm is rounded once more.
                if expected
                    .iter()
                    .filter(|other| (other.1 - score).abs() < 1e-5)
                    .count()
                    == 1
                {
                    assert_eq!(found.tokens, *tokens, "{} {prompt:?}", backend.name());
                }
            }
        }
    }
}
