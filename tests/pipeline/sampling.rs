//! How a run chooses tokens: by the package's defaults and by its own settings.

use std::ops::ControlFlow;
use std::sync::Arc;

use oxpipe::component::{ComponentSession, RunControl, SharedBytes};
use oxpipe::generation::{FinishReason, SampleError, SamplingOptions};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineError, RequestError, Run, RunSettings};
use oxpipe::text::ConstraintKind;

use super::fake::{DECODER_METADATA, continuation, decoder, files, language_model, open_source, runtime};
use super::speculation::WORDS;

const PROMPT: [i32; 5] = [3, 1, 4, 1, 5];

fn sampling(options: &[(&str, &str)]) -> SamplingOptions {
    let mut sampling = SamplingOptions::default();
    for (name, value) in options {
        sampling.set(name, value).unwrap();
    }
    sampling
}

fn settings(options: &[(&str, &str)], seed: u64) -> RunSettings {
    RunSettings {
        max_tokens: Some(24),
        seed: Some(seed),
        sampling: sampling(options),
        ..RunSettings::default()
    }
}

fn begin(pipeline: &Pipeline, options: &[(&str, &str)], seed: u64) -> Run {
    let mut run = Run::new(pipeline, &settings(options, seed)).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    run
}

fn generate(run: &mut Run) -> Vec<i32> {
    let mut tokens = Vec::new();
    run.generate(&RunControl::default(), &mut |_, event| {
        tokens.extend(event.token);
        ControlFlow::Continue(())
    })
    .unwrap();
    tokens
}

fn answer(pipeline: &Pipeline, options: &[(&str, &str)], seed: u64) -> Vec<i32> {
    generate(&mut begin(pipeline, options, seed))
}

#[test]
fn a_package_says_whether_tokens_are_drawn_and_the_caller_wins() {
    let greedy = continuation(&PROMPT, 24, 0);
    let (plain, _) = language_model("");
    assert_eq!(answer(&plain, &[], 1), greedy);
    let hot = [("temperature", "100")];
    let drawn = answer(&plain, &hot, 1);
    assert_ne!(drawn, greedy);
    assert_eq!(answer(&plain, &hot, 1), drawn);
    assert_ne!(answer(&plain, &hot, 2), drawn);
    let (sampled, _) = language_model("generation: {do_sample: true, temperature: 100}\n");
    assert_eq!(answer(&sampled, &[], 1), drawn);
    assert_eq!(answer(&sampled, &[("do_sample", "false")], 1), greedy);
    assert_eq!(answer(&sampled, &[("top_k", "1")], 1), greedy);
    // A search that draws is not done, and one of the package's gives way to the caller.
    let (searched, _) = language_model(
        "generation: {do_sample: true, temperature: 100, num_beams: 4, num_return_sequences: 2}\n",
    );
    assert_eq!(answer(&searched, &[], 1), drawn);
    let (searching, _) = language_model("generation: {num_beams: 4}\n");
    assert_eq!(answer(&searching, &hot, 1), drawn);
    assert_eq!(answer(&searching, &[("num_beams", "1")], 1), greedy);
    let mut run = Run::new(
        &searching,
        &RunSettings {
            stop_tokens: vec![vec![greedy[3]]],
            ..settings(&[], 0)
        },
    )
    .unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let stop = greedy.iter().position(|&token| token == greedy[3]).unwrap();
    assert_eq!(generate(&mut run), greedy[..=stop]);
    let (seeded, _) = language_model("generation: {do_sample: true, temperature: 100, seed: 1}\n");
    let mut run = Run::new(
        &seeded,
        &RunSettings {
            seed: None,
            ..settings(&[], 0)
        },
    )
    .unwrap();
    run.append_tokens(&PROMPT).unwrap();
    assert_eq!(generate(&mut run), drawn);
}

#[test]
fn a_forced_token_has_no_logprobs() {
    let (pipeline, _) = language_model("");
    let mut run = begin(&pipeline, &[("logprobs", "2")], 1);
    let control = RunControl::default();
    let event = run.step(&control).unwrap();
    assert_eq!(run.logprobs().unwrap().raw, event.logprob);
    run.force_token(2).unwrap();
    assert_eq!(run.logprobs(), None);
    run.step(&control).unwrap();
    assert!(run.logprobs().is_some());
}

#[test]
fn a_package_rules_tokens_out() {
    let (plain, _) = language_model("");
    let first = answer(&plain, &[], 0)[0];
    for generation in [
        format!("suppress_tokens: [{first}]"),
        format!("begin_suppress_tokens: [{first}]"),
        format!("bad_words_ids: [[{first}]]"),
    ] {
        let (package, _) = language_model(&format!("generation: {{{generation}}}\n"));
        assert_ne!(answer(&package, &[], 0)[0], first, "{generation}");
    }
    // Others say what they say for the answer as a whole.
    let no_repeat = answer(&plain, &[("no_repeat_ngram_size", "2")], 0);
    let all = [&PROMPT[..], &no_repeat].concat();
    let pairs: Vec<_> = all.windows(2).collect();
    for (at, pair) in pairs.iter().enumerate().skip(PROMPT.len()) {
        assert!(!pairs[..at].contains(pair), "{pair:?} twice");
    }
}

#[test]
fn what_is_drawn_depends_on_the_place_alone() {
    let (pipeline, _) = language_model("");
    let hot = [("temperature", "50"), ("top_p", "0.95")];
    let whole = answer(&pipeline, &hot, 9);
    for keep in [5, 6, 11, 20] {
        let mut run = begin(&pipeline, &hot, 9);
        generate(&mut run);
        run.rewind(keep).unwrap();
        assert_eq!(generate(&mut run), whole[keep - 5..], "after a rewind to {keep}");
    }
    // In chunks, and token by token with a failure in between.
    let chunked = RunSettings {
        chunk_size: Some(2),
        ..settings(&hot, 9)
    };
    let mut run = Run::new(&pipeline, &chunked).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    assert_eq!(generate(&mut run), whole);
}

fn steps(run: &mut Run, count: usize) -> Vec<i32> {
    let mut step = || run.step(&RunControl::default()).unwrap().token.unwrap();
    (0..count).map(|_| step()).collect()
}

/// A run that was elsewhere chooses what one chooses that has only been where it is.
#[test]
fn what_mirostat_remembers_goes_with_the_tokens() {
    let (pipeline, _) = language_model("");
    for version in ["1", "2"] {
        let options = [
            ("mirostat", version),
            ("mirostat_tau", "2"),
            ("mirostat_eta", "1"),
            ("temperature", "1.5"),
        ];
        let begin = |seed| begin(&pipeline, &options, seed);
        for seed in 0..20 {
            // Rewound, and another turn appended.
            let mut fresh = begin(seed);
            steps(&mut fresh, 3);
            fresh.append_tokens(&[2, 7, 2]).unwrap();
            let mut elsewhere = begin(seed);
            steps(&mut elsewhere, 9);
            elsewhere.rewind(PROMPT.len() + 3).unwrap();
            elsewhere.append_tokens(&[2, 7, 2]).unwrap();
            assert_eq!(steps(&mut elsewhere, 8), steps(&mut fresh, 8), "{version} {seed}");
            // A token in the place of the one that was chosen.
            let mut fresh = begin(seed);
            steps(&mut fresh, 4);
            fresh.forward(&RunControl::default()).unwrap();
            fresh.force_token(6).unwrap();
            let mut elsewhere = begin(seed);
            steps(&mut elsewhere, 5);
            elsewhere.force_token(6).unwrap();
            assert_eq!(elsewhere.tokens(), fresh.tokens());
            let mut fork = elsewhere.fork().unwrap();
            let expected = steps(&mut fresh, 8);
            assert_eq!(steps(&mut elsewhere, 8), expected, "{version} {seed}");
            assert_eq!(steps(&mut fork, 8), expected, "{version} {seed}");
        }
    }
}

/// A fork with another seed is as a run of that seed which was brought to where it is.
#[test]
fn a_fork_can_draw_from_another_seed() {
    let (pipeline, _) = language_model("");
    let hot = [
        ("temperature", "3"),
        ("xtc_probability", "0.5"),
        ("xtc_threshold", "0.1"),
    ];
    let mut parent = begin(&pipeline, &hot, 1);
    let before = steps(&mut parent, 6);
    let mut same = parent.fork().unwrap();
    let mut answers = Vec::new();
    for seed in 0..4 {
        let mut by_seed = begin(&pipeline, &hot, seed);
        for &token in &before {
            by_seed.forward(&RunControl::default()).unwrap();
            by_seed.force_token(token).unwrap();
        }
        let expected = steps(&mut by_seed, 12);
        let mut fork = parent.fork().unwrap();
        fork.set_seed(seed).unwrap();
        let bytes = fork.save().unwrap();
        assert_eq!(steps(&mut fork, 12), expected, "{seed}");
        let mut loaded = Run::load(&pipeline, &settings(&hot, seed), &bytes).unwrap();
        assert_eq!(steps(&mut loaded, 12), expected, "{seed}");
        answers.push(expected);
    }
    let expected = steps(&mut parent, 12);
    assert_eq!(steps(&mut same, 12), expected);
    assert_eq!(answers[1], expected);
    answers.sort();
    answers.dedup();
    assert_eq!(answers.len(), 4);
}

#[test]
fn probabilities_are_of_the_last_token_or_of_none() {
    let (pipeline, _) = language_model("");
    let mut run = begin(&pipeline, &[("logprobs", "2")], 1);
    steps(&mut run, 3);
    let third = run.logprobs().cloned().unwrap();
    run.rewind(run.tokens().len() - 1).unwrap();
    assert_eq!(run.logprobs(), None);
    steps(&mut run, 1);
    assert_eq!(run.logprobs(), Some(&third));
    run.append_tokens(&[3]).unwrap();
    assert_eq!(run.logprobs(), None);
}

#[test]
fn a_second_turn_begins_an_answer() {
    let (pipeline, _) = language_model("");
    let first = answer(&pipeline, &[], 0)[0];
    let word = first.to_string();
    let options = [("begin_suppress_tokens", word.as_str())];
    let mut run = begin(&pipeline, &options, 0);
    generate(&mut run);
    let tokens = run.tokens().to_vec();
    // A prompt after which that token would come first.
    run.append_tokens(&[0]).unwrap();
    let next = continuation(&[&tokens[..], &[0]].concat(), 1, 0)[0];
    let found = generate(&mut run)[0];
    assert_eq!(found == next, next != first);
}

#[test]
fn settings_that_contradict_each_other() {
    let (pipeline, _) = language_model("");
    let refused = |options: &[(&str, &str)]| {
        let error = Run::new(&pipeline, &settings(options, 0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    };
    let error = refused(&[("do_sample", "false"), ("top_p", "0.5")]);
    assert!(error.contains("top_p") && error.contains("do_sample"), "{error}");
    let error = refused(&[("mirostat_tau", "3")]);
    assert!(error.contains("does nothing without \"mirostat\""), "{error}");
    let outside = RunSettings {
        sampling: SamplingOptions {
            temperature: Some(-1.0),
            ..SamplingOptions::default()
        },
        ..RunSettings::default()
    };
    let error = Run::new(&pipeline, &outside).unwrap_err().to_string();
    assert!(
        error.contains("temperature") && error.contains("from 0 to 100"),
        "{error}"
    );
}

#[test]
fn no_token_left_is_an_error_and_the_run_goes_on() {
    let (pipeline, _) = language_model("");
    let all = (0..8)
        .map(|token| format!("{token}:-inf"))
        .collect::<Vec<_>>()
        .join(",");
    let mut run = begin(&pipeline, &[("logit_bias", &all)], 0);
    let error = run.step(&RunControl::default()).unwrap_err();
    let nothing_left = matches!(
        &error,
        PipelineError::Request(RequestError::NoChoice {
            error: SampleError::NothingLeft,
            ..
        })
    );
    assert!(nothing_left, "{error}");
    assert_eq!(run.tokens(), PROMPT);
    run.force_token(4).unwrap();
    assert_eq!(run.tokens().last(), Some(&4));
    let far = begin(&pipeline, &[("suppress_tokens", "8")], 0).step(&RunControl::default());
    let error = far.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("suppress_tokens"), "{error}");
}

/// What a package says and nobody does is a warning, unless it is the value that does nothing.
/// What a package alone asks for and this version does not do is left out; a caller hears of it.
#[test]
fn groups_of_beams_of_a_package_are_searched_as_one() {
    let (plain, _) = language_model("generation: {num_beams: 4}\n");
    let (grouped, _) =
        language_model("generation: {num_beams: 4, num_beam_groups: 2, diversity_penalty: 1.0}\n");
    assert_eq!(answer(&grouped, &[], 1), answer(&plain, &[], 1));
    for option in [("num_beam_groups", "2"), ("diversity_penalty", "1")] {
        let error = Run::new(&plain, &settings(&[option], 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("groups of beams"), "{error}");
    }
}

/// Half a character is there for who asks, and in the event of the token that completes it.
#[test]
fn text_that_no_event_has_given_can_be_asked_for() {
    let tokenizer = r#"{
        "version": "1.0", "added_tokens": [],
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "merges": [],
                  "vocab": {"\u00c3": 0, "\u00a9": 1, "a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "f": 7}}
    }"#;
    let metadata = format!("{DECODER_METADATA}  tokenizer: tokenizer.json\n");
    let source = files(&[
        ("inference_metadata.yaml", &metadata),
        ("tokenizer.json", tokenizer),
    ]);
    let pipeline = open_source(&source, vec![("model", decoder())]).unwrap();
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let mut text = String::new();
    for (token, pending) in [
        (2, ""),
        (0, "\u{fffd}"),
        (1, ""),
        (0, "\u{fffd}"),
        (3, ""),
        (0, "\u{fffd}"),
    ] {
        run.forward(&RunControl::default()).unwrap();
        let event = run.force_token(token).unwrap();
        assert_eq!(event.text_offset, text.len() as u64);
        text.push_str(&event.text);
        assert_eq!(run.pending_text().unwrap(), pending, "{text}");
    }
    assert_eq!(text, "a\u{e9}\u{fffd}b");
    let whole = pipeline.tokenizer().unwrap();
    let whole = whole.decode(&run.tokens()[PROMPT.len()..], true).unwrap();
    assert_eq!(text + &run.pending_text().unwrap(), whole);
}

/// Whatever a package rules out besides, an answer that follows a grammar ends.
#[test]
fn an_answer_by_a_grammar_ends_whatever_is_ruled_out() {
    for generation in [
        "min_new_tokens: 20",
        "min_length: 20",
        "no_repeat_ngram_size: 1",
        "bad_words_ids: [[1], [2], [7]]",
        "suppress_tokens: [1, 2, 7]",
        "suppress_tokens: [1, 2], min_new_tokens: 20",
    ] {
        let metadata = format!(
            "{DECODER_METADATA}  tokenizer: tokenizer.json\ntokens: {{eos_token_id: [7]}}\ngeneration: {{{generation}}}\n"
        );
        let source = files(&[("inference_metadata.yaml", &metadata), ("tokenizer.json", WORDS)]);
        let pipeline = open_source(&source, vec![("model", decoder())]).unwrap();
        for options in [&[][..], &[("do_sample", "true")]] {
            let mut run = Run::new(&pipeline, &settings(options, 3)).unwrap();
            run.append_tokens(&[1, 2, 7, 1]).unwrap();
            let grammar = (ConstraintKind::Regex, " (one|two) (one|two)");
            run.set_constraint(Some(grammar)).unwrap();
            let tokens = generate(&mut run);
            assert!(
                matches!(tokens[..], [1 | 2, 1 | 2, 7]),
                "{generation}: {tokens:?}"
            );
            assert_eq!(run.finished(), Some(FinishReason::EndOfText { index: 0 }));
        }
    }
}

/// What a package or a caller rules out does not keep JSON from its end.
#[test]
fn json_ends_whatever_is_ruled_out() {
    let tokenizer = r#"{
        "version": "1.0",
        "added_tokens": [{"id": 7, "content": "</s>", "special": true, "single_word": false,
                          "lstrip": false, "rstrip": false, "normalized": false}],
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "merges": [],
                  "vocab": {"{": 0, "}": 1, "\"": 2, "a": 3, ":": 4, "1": 5, "2": 6, "</s>": 7}}
    }"#;
    let schema = r#"{"type": "object", "additionalProperties": false, "required": ["a"],
                     "properties": {"a": {"enum": [1, 2, 11, 12, 22, "a", "aa1", {"a": "a"}]}}}"#;
    let ways: [&[(&str, &str)]; 7] = [
        &[("min_new_tokens", "60")],
        &[("min_length", "90")],
        &[("no_repeat_ngram_size", "1")],
        &[("bad_words", "5,6,2,0,1")],
        &[("suppress_tokens", "1,2,5,6,7")],
        &[("logit_bias", "0:-inf,1:-inf,2:-inf,5:-inf,6:-inf,7:-inf")],
        &[("begin_suppress_tokens", "0"), ("suppress_tokens", "7")],
    ];
    for options in ways {
        for by_package in [false, true] {
            for drawn in ["false", "true"] {
                let mut metadata = format!("{DECODER_METADATA}  tokenizer: tokenizer.json\n");
                metadata.push_str("tokens: {eos_token_id: [7]}\n");
                if by_package {
                    metadata.push_str("generation: {suppress_tokens: [1, 7], min_new_tokens: 60}\n");
                }
                let source = files(&[
                    ("inference_metadata.yaml", &metadata),
                    ("tokenizer.json", tokenizer),
                ]);
                let pipeline = open_source(&source, vec![("model", decoder())]).unwrap();
                let options = [options, &[("do_sample", drawn)]].concat();
                let mut run = Run::new(&pipeline, &settings(&options, 3)).unwrap();
                run.append_tokens(&PROMPT).unwrap();
                run.set_constraint(Some((ConstraintKind::JsonSchema, schema)))
                    .unwrap();
                let mut text = String::new();
                let reason = run.generate(&RunControl::default(), &mut |_, event| {
                    text.push_str(&event.text);
                    ControlFlow::Continue(())
                });
                let reason = reason.unwrap_or_else(|error| panic!("{options:?}: {error}"));
                assert_eq!(reason, Some(FinishReason::EndOfText { index: 0 }), "{options:?}");
                let value: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert!(value.get("a").is_some(), "{text}");
            }
        }
    }
}

#[test]
fn what_is_not_done_is_a_warning() {
    let yaml = format!(
        "{DECODER_METADATA}generation: {{penalty_alpha: 0.6, forced_bos_token_id: 3, sequence_bias: [], \
         encoder_repetition_penalty: 1, epsilon_cutoff: 0, num_beam_groups: 2}}\n"
    );
    let file: SharedBytes = Arc::new(yaml.into_bytes());
    let source = PackageSource::Files(vec![("inference_metadata.yaml".into(), file)]);
    let (runtime, log) = runtime();
    let sessions: Vec<(String, Box<dyn ComponentSession>)> = vec![("model".into(), Box::new(decoder()))];
    Pipeline::with_sessions(&runtime, &source, sessions).unwrap();
    let warned: Vec<String> = log.lock().unwrap().iter().map(|(_, line)| line.clone()).collect();
    let about = |name: &str| warned.iter().filter(|line| line.contains(name)).count();
    assert_eq!(
        (
            about("generation.penalty_alpha"),
            about("generation.forced_bos_token_id")
        ),
        (1, 1)
    );
    assert_eq!(about("generation.num_beam_groups"), 1);
    assert_eq!(
        warned
            .iter()
            .filter(|line| line.contains("not done by this version"))
            .count(),
        2
    );
}
