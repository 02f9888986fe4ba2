//! Guesses change no token, whatever a host does between steps, and save passes where they are right.

use std::panic::{AssertUnwindSafe, catch_unwind};

use oxpipe::component::RunControl;
use oxpipe::generation::SamplingOptions;
use oxpipe::pipeline::{Pipeline, Run, RunSettings, Speculation};
use oxpipe::text::ConstraintKind;

use super::fake::{DECODER_METADATA, continuation, decoder, files, language_model, next_token, open_source};

pub fn steps(run: &mut Run, count: usize) -> Vec<i32> {
    let control = RunControl::default();
    let step = |_| run.step(&control).unwrap().token.unwrap();
    (0..count).map(step).collect()
}

pub fn settings(speculation: Speculation, speculation_tokens: usize) -> RunSettings {
    RunSettings {
        speculation,
        speculation_tokens: Some(speculation_tokens),
        ..RunSettings::default()
    }
}

/// A run that is stepped, forked, corrected, rewound, saved and loaded; each of its tokens is known.
pub fn tried(pipeline: &Pipeline, settings: &RunSettings, draft: Option<&Pipeline>, prompt: &[i32]) -> u64 {
    let mut run = Run::new(pipeline, settings).unwrap();
    if let Some(draft) = draft {
        run.set_draft(draft).unwrap();
    }
    run.append_tokens(prompt).unwrap();
    assert_eq!(steps(&mut run, 8), continuation(prompt, 8, 0));
    let mut fork = run.fork().unwrap();
    // Another token than the run has chosen.
    let other = (next_token(&run.tokens()[..prompt.len() + 7], 0) + 1) % 8;
    run.force_token(other).unwrap();
    let now = run.tokens().to_vec();
    assert_eq!(steps(&mut run, 3), continuation(&now, 3, 0));
    run.rewind(prompt.len() + 2).unwrap();
    let now = run.tokens().to_vec();
    assert_eq!(steps(&mut run, 6), continuation(&now, 6, 0));
    run.append_tokens(&[3, 1]).unwrap();
    let now = run.tokens().to_vec();
    assert_eq!(steps(&mut run, 4), continuation(&now, 4, 0));
    assert_eq!(steps(&mut fork, 4), continuation(prompt, 12, 0)[8..]);
    let bytes = fork.save().unwrap();
    let mut loaded = Run::load(pipeline, settings, &bytes).unwrap();
    assert_eq!(steps(&mut loaded, 3), continuation(prompt, 15, 0)[12..]);
    // The batch's own steps are without guesses.
    let control = RunControl::default();
    for expected in &continuation(prompt, 15, 0)[12..] {
        let outcomes = Run::step_together(&mut [&mut fork], &control);
        assert_eq!(outcomes[0].as_ref().unwrap().token, Some(*expected));
    }
    let stats = run.stats();
    assert!(stats.accepted_tokens <= stats.proposed_tokens);
    stats.passes
}

#[test]
fn speculation_changes_no_token() {
    for prompt in [vec![2, 7, 1, 6], vec![1, 1, 2, 4, 1, 1], vec![0, 0, 0], vec![5]] {
        let (pipeline, _) = language_model("");
        let plain = tried(&pipeline, &RunSettings::default(), None, &prompt);
        for most in [1, 3, 7] {
            tried(
                &pipeline,
                &settings(Speculation::PromptLookup, most),
                None,
                &prompt,
            );
            // The model itself never guesses wrong.
            let (draft, _) = language_model("");
            let drafted = tried(
                &pipeline,
                &settings(Speculation::Off, most),
                Some(&draft),
                &prompt,
            );
            assert!(drafted < plain, "{drafted} and {plain} passes");
        }
    }
}

#[test]
fn what_repeats_takes_few_passes() {
    // Zeros are followed by zeros.
    let (pipeline, watch) = language_model("");
    let mut run = Run::new(&pipeline, &settings(Speculation::PromptLookup, 4)).unwrap();
    run.append_tokens(&[0, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(steps(&mut run, 16), [0; 16]);
    let stats = run.stats();
    assert!(watch.runs() <= 5, "{} runs", watch.runs());
    assert_eq!(stats.passes, watch.runs() as u64);
    assert!(stats.accepted_tokens >= 11 && stats.proposed_tokens >= stats.accepted_tokens);
}

#[test]
fn the_caches_of_a_draft_are_the_runs() {
    let (pipeline, _) = language_model("");
    let (draft, _) = language_model("");
    let prompt = [1, 2, 3, 4, 5, 6, 7, 0].repeat(40);
    let settings = settings(Speculation::Draft, 4);
    let kv_bytes = |settings: &RunSettings, draft: Option<&Pipeline>| {
        let mut run = start(&pipeline, settings, draft, &prompt);
        let tokens = steps(&mut run, 8);
        assert_eq!(tokens, continuation(&prompt, 8, 0));
        (run.stats().kv_bytes, run.stats().proposed_tokens)
    };
    let alone = RunSettings {
        speculation: Speculation::Off,
        ..settings.clone()
    };
    let (own, _) = kv_bytes(&alone, None);
    let (both, proposed) = kv_bytes(&settings, Some(&draft));
    assert!(proposed > 0);
    assert_eq!(both, 2 * own);
}

#[test]
fn there_is_no_guess_beyond_the_context() {
    let (pipeline, _) = language_model("  max_sequence_length: 9\n");
    let (draft, _) = language_model("");
    let mut run = Run::new(&pipeline, &settings(Speculation::Off, 7)).unwrap();
    run.set_draft(&draft).unwrap();
    run.append_tokens(&[2, 7, 1, 6]).unwrap();
    assert_eq!(steps(&mut run, 5), continuation(&[2, 7, 1, 6], 5, 0));
    assert!(run.finished().is_some());
}

#[test]
fn a_pass_with_guesses_that_panics_leaves_nothing() {
    let (pipeline, watch) = language_model("");
    let mut run = Run::new(&pipeline, &settings(Speculation::PromptLookup, 4)).unwrap();
    run.append_tokens(&[0; 6]).unwrap();
    assert_eq!(steps(&mut run, 1), [0]);
    watch.panic_next();
    catch_unwind(AssertUnwindSafe(|| run.step(&RunControl::default()))).unwrap_err();
    run.roll_back();
    // Other tokens, of which there is no guess.
    run.rewind(3).unwrap();
    run.append_tokens(&[2, 7, 1]).unwrap();
    assert_eq!(steps(&mut run, 4), continuation(&[0, 0, 0, 2, 7, 1], 4, 0));
}

/// Draws that the model's own choice, of a probability of 1/2, and others come out of.
fn drawn(seed: u64, speculation: Speculation) -> RunSettings {
    let mut sampling = SamplingOptions::default();
    sampling.set("do_sample", "true").unwrap();
    RunSettings {
        seed: Some(seed),
        sampling,
        stop_on_eos: false,
        ..settings(speculation, 4)
    }
}

/// A run of these settings, with the model itself as a draft of what is most probable.
fn start(pipeline: &Pipeline, settings: &RunSettings, draft: Option<&Pipeline>, prompt: &[i32]) -> Run {
    let mut run = Run::new(pipeline, settings).unwrap();
    if let Some(draft) = draft {
        run.set_draft(draft).unwrap();
    }
    run.append_tokens(prompt).unwrap();
    run
}

#[test]
fn drawn_tokens_are_those_without_guesses() {
    let (pipeline, _) = language_model("");
    let (draft, _) = language_model("");
    for (speculation, draft) in [
        (Speculation::PromptLookup, None),
        (Speculation::Off, Some(&draft)),
    ] {
        let (mut proposed, mut accepted) = (0, 0);
        for seed in 0..40 {
            let prompt = [0, 0, 0, 0, seed as i32 % 8];
            let plain = steps(
                &mut start(&pipeline, &drawn(seed, Speculation::Off), None, &prompt),
                24,
            );
            let mut run = start(&pipeline, &drawn(seed, speculation), draft, &prompt);
            assert_eq!(steps(&mut run, 24), plain, "{seed}");
            proposed += run.stats().proposed_tokens;
            accepted += run.stats().accepted_tokens;
        }
        // Some guesses were right and some were wrong.
        assert!(
            40 < accepted && accepted + 40 < proposed,
            "{accepted} of {proposed}"
        );
    }
}

/// Of three tokens the second and the third have guesses before them. They are as often the model's
/// own choice, and one of the seven others, as these are probable.
#[test]
fn drawn_with_guesses_by_the_distribution() {
    const RUNS: u64 = 3000;
    let (pipeline, _) = language_model("");
    let (draft, _) = language_model("");
    let own = 2f64.exp() / (2f64.exp() + 7.0);
    for (speculation, draft) in [
        (Speculation::PromptLookup, None),
        (Speculation::Off, Some(&draft)),
    ] {
        let mut counts = [0.0; 32];
        for seed in 0..RUNS {
            let mut run = start(&pipeline, &drawn(seed, speculation), draft, &[0; 5]);
            let mut bin = 0;
            for place in 0..3 {
                let expected = next_token(run.tokens(), 0);
                let off = (steps(&mut run, 1)[0] - expected).rem_euclid(8) as usize;
                bin = match place {
                    2 => bin * 8 + off,
                    _ => bin * 2 + usize::from(off > 0),
                };
            }
            counts[bin] += 1.0;
        }
        let mut statistic = 0.0;
        for (bin, count) in counts.iter().enumerate() {
            let hit = |is_other: bool| if is_other { 1.0 - own } else { own };
            let last = if bin % 8 > 0 { (1.0 - own) / 7.0 } else { own };
            let expected = RUNS as f64 * hit(bin / 16 > 0) * hit(bin / 8 % 2 > 0) * last;
            statistic += (count - expected).powi(2) / expected;
        }
        // 31 degrees of freedom, p = 0.0001.
        assert!(statistic < 69.3, "{speculation:?}: {statistic}");
    }
}

/// Each token of the model is a word.
pub const WORDS: &str = r#"{
  "version": "1.0",
  "added_tokens": [
    {"id": 6, "content": "<unk>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
    {"id": 7, "content": "</s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}
  ],
  "pre_tokenizer": {"type": "Whitespace"},
  "model": {
    "type": "WordLevel",
    "vocab": {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "<unk>": 6, "</s>": 7},
    "unk_token": "<unk>"
  }
}"#;

/// What a grammar forces is taken without a choice, and guesses know nothing of it.
#[test]
fn forced_tokens_are_taken_beside_guesses() {
    let metadata = format!("{DECODER_METADATA}  tokenizer: tokenizer.json\ntokens: {{eos_token_id: [7]}}\n");
    let source = files(&[("inference_metadata.yaml", &metadata), ("tokenizer.json", WORDS)]);
    let words = || open_source(&source, vec![("model", decoder())]).unwrap();
    let (pipeline, draft) = (words(), words());
    let grammar = "( zero one two( zero)?){3} (three four five|five four three)";
    for prompt in [&[0, 1, 2, 0, 1, 2][..], &[3, 4, 5, 3, 4, 5, 0, 1], &[5]] {
        for is_drawn in [false, true] {
            let answer = |speculation, draft: Option<&Pipeline>| {
                let settings = match is_drawn {
                    true => drawn(5, speculation),
                    false => settings(speculation, 4),
                };
                let settings = RunSettings {
                    stop_on_eos: true,
                    ..settings
                };
                let mut run = start(&pipeline, &settings, draft, prompt);
                run.set_constraint(Some((ConstraintKind::Regex, grammar)))
                    .unwrap();
                let mut tokens = Vec::new();
                for _ in 0..30 {
                    let event = run.step(&RunControl::default()).unwrap();
                    tokens.extend(event.token);
                    if event.finish.is_some() {
                        break;
                    }
                }
                (tokens, run.stats().proposed_tokens)
            };
            let (plain, _) = answer(Speculation::Off, None);
            assert!(plain.len() > 12 && plain.starts_with(&[0, 1, 2]), "{plain:?}");
            assert_eq!(answer(Speculation::PromptLookup, None).0, plain);
            assert_eq!(answer(Speculation::Off, Some(&draft)).0, plain);
        }
    }
}
