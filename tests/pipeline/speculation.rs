//! Guesses change no token, whatever a host does between steps, and save passes where they are right.

use std::panic::{AssertUnwindSafe, catch_unwind};

use oxpipe::component::RunControl;
use oxpipe::pipeline::{Pipeline, Run, RunSettings, Speculation};

use super::fake::{continuation, language_model, next_token};

fn steps(run: &mut Run, count: usize) -> Vec<i32> {
    let control = RunControl::default();
    let step = |_| run.step(&control).unwrap().token.unwrap();
    (0..count).map(step).collect()
}

fn settings(speculation: Speculation, speculation_tokens: usize) -> RunSettings {
    RunSettings {
        speculation,
        speculation_tokens,
        ..RunSettings::default()
    }
}

/// A run that is stepped, forked, corrected, rewound, saved and loaded; each of its tokens is known.
fn tried(pipeline: &Pipeline, settings: &RunSettings, draft: Option<&Pipeline>, prompt: &[i32]) -> u64 {
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
