//! Runs that go on from others: forks, saved states, prefixes that were computed before. Whatever a
//! run goes on from, its tokens are those of one that did all by itself.

use std::ops::ControlFlow;
use std::time::Duration;

use oxpipe::component::RunControl;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineOptions, Run, RunSettings, Speculation};
use oxpipe::runtime::BackendChoice;
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
use twox_hash::XxHash3_128;

use super::caches::{PROMPT, SUMS};
use super::mixes::{TestPackage, backends, steps};
use super::{caches, states};

fn start(pipeline: &Pipeline, prompt: &[i32]) -> Run {
    let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(prompt).unwrap();
    run
}

/// Packages, a prompt, and the tokens that follow it.
fn packages() -> Vec<(String, TestPackage, Vec<i32>, Vec<i32>)> {
    let mut packages = Vec::new();
    for (name, package) in caches::packages() {
        packages.push((name.to_owned(), package, PROMPT.to_vec(), SUMS.to_vec()));
    }
    let (prompt, tokens) = (states::PROMPT, states::continuation(&states::PROMPT, 8));
    packages.push(("states".to_owned(), states::package(), prompt.to_vec(), tokens));
    packages
}

#[test]
fn forks_and_saved_runs_go_on_as_the_run_does() {
    for (name, package, prompt, tokens) in packages() {
        package.for_each_mix(|pipeline| {
            for taken in 0..5 {
                let mut run = start(pipeline, &prompt);
                assert_eq!(steps(&mut run, taken), tokens[..taken]);
                let mut fork = run.fork().unwrap();
                let bytes = run.save().unwrap();
                let mut loaded = Run::load(pipeline, &RunSettings::default(), &bytes).unwrap();
                assert_eq!(loaded.save().unwrap(), bytes, "{name} after {taken}");
                let mut second = fork.fork().unwrap();
                for &token in &tokens[taken..7] {
                    for (who, run) in [("fork", &mut fork), ("loaded", &mut loaded), ("run", &mut run)] {
                        assert_eq!(steps(run, 1), [token], "{name}: {who} after {taken}");
                    }
                }
                assert_eq!(steps(&mut second, 7 - taken), tokens[taken..7], "{name}");
                assert_eq!(run.stats().generated_tokens, loaded.stats().generated_tokens);
            }
        });
    }
}

#[test]
fn what_one_run_does_its_fork_does_not_see() {
    for (name, package, prompt, tokens) in packages() {
        package.for_each_mix(|pipeline| {
            let mut run = start(pipeline, &prompt);
            steps(&mut run, 3);
            let mut fork = run.fork().unwrap();
            // Back, on by other tokens, and over the rows that both had.
            fork.rewind(2).unwrap();
            fork.append_tokens(&[4, 1, 6]).unwrap();
            let mut alone = start(pipeline, &[&prompt[..2], &[4, 1, 6]].concat());
            assert_eq!(steps(&mut fork, 2), steps(&mut alone, 2), "{name}");
            assert_eq!(steps(&mut run, 4), tokens[3..7], "{name}");
            drop(run);
            assert_eq!(steps(&mut fork, 1), steps(&mut alone, 1), "{name}");
        });
    }
}

#[test]
fn a_state_goes_on_on_another_backend() {
    for (name, package, prompt, tokens) in packages() {
        let pipelines: Vec<Pipeline> = backends()
            .into_iter()
            .map(|backend| {
                let options = PipelineOptions {
                    backend: Some(backend),
                    ..PipelineOptions::default()
                };
                package.open(&options).unwrap()
            })
            .collect();
        for from in &pipelines {
            for to in &pipelines {
                let mut run = start(from, &prompt);
                steps(&mut run, 3);
                let bytes = run.save().unwrap();
                let mut loaded = Run::load(to, &RunSettings::default(), &bytes).unwrap();
                assert_eq!(steps(&mut loaded, 4), tokens[3..7], "{name}");
            }
        }
    }
}

fn refusal(pipeline: &Pipeline, settings: &RunSettings, bytes: &[u8]) -> String {
    let error = Run::load(pipeline, settings, bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    error.to_string()
}

#[test]
fn a_state_of_another_package_or_other_settings_is_refused() {
    let options = PipelineOptions {
        backend: Some(backends()[0]),
        ..PipelineOptions::default()
    };
    let all = packages();
    let (_, package, prompt, _) = &all[0];
    let pipeline = package.open(&options).unwrap();
    let mut run = start(&pipeline, prompt);
    steps(&mut run, 2);
    let bytes = run.save().unwrap();

    let other = states::package().open(&options).unwrap();
    let message = refusal(&other, &RunSettings::default(), &bytes);
    assert!(
        message.contains("it is of the autoregressive package of model ["),
        "{message}"
    );
    assert!(
        message.contains("and this is the autoregressive package of model ["),
        "{message}"
    );

    let settings = RunSettings {
        chunk_size: Some(2),
        ..RunSettings::default()
    };
    let message = refusal(&pipeline, &settings, &bytes);
    assert!(
        message.contains("chunk_size = (default)") && message.contains("chunk_size = 2"),
        "{message}"
    );
    let settings = RunSettings {
        max_tokens: Some(3),
        ..RunSettings::default()
    };
    let mut loaded = Run::load(&pipeline, &settings, &bytes).unwrap();
    let event = loaded.step(&RunControl::default()).unwrap();
    assert!(event.finish.is_some());
}

/// Makes the header fit what was done to the bytes behind it.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let check = XxHash3_128::oneshot(&bytes[40..]).to_le_bytes();
    let len = (bytes.len() as u64 - 40).to_le_bytes();
    bytes[16..24].copy_from_slice(&len);
    bytes[24..40].copy_from_slice(&check);
    bytes
}

#[test]
fn bytes_that_are_no_state_are_refused() {
    let options = PipelineOptions {
        backend: Some(backends()[0]),
        ..PipelineOptions::default()
    };
    for (name, package, prompt, _) in [packages().swap_remove(0), packages().pop().unwrap()] {
        let pipeline = package.open(&options).unwrap();
        let settings = RunSettings::default();
        let mut run = start(&pipeline, &prompt);
        steps(&mut run, 2);
        let bytes = run.save().unwrap();
        // Every place of what comes first, and some of the values behind it.
        let places = || (0..bytes.len()).filter(|&at| at < 600 || at % 61 == 0);
        for len in places() {
            refusal(&pipeline, &settings, &bytes[..len]);
            if len >= 40 {
                // Cut off by somebody who knows how to write the header.
                let message = refusal(&pipeline, &settings, &sealed(bytes[..len].to_vec()));
                assert!(message.contains("cannot load the state"), "{message}");
            }
        }
        refusal(&pipeline, &settings, &[&bytes[..], &[0]].concat());
        refusal(&pipeline, &settings, &sealed([&bytes[..], &[0]].concat()));
        let mut newer = bytes.clone();
        newer[8] = 9;
        assert!(refusal(&pipeline, &settings, &newer).contains("version 9"));
        for at in places() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            refusal(&pipeline, &settings, &damaged);
            // Written on purpose: an error, or a run that is good for something. Numbers may be at their ends.
            let byte = |value: u8| vec![value];
            let number = |value: u64| value.to_le_bytes().to_vec();
            let (most, half) = (number(u64::MAX), number(u64::MAX / 2));
            for value in [byte(0), byte(0xff), byte(damaged[at]), most, half] {
                let mut written = bytes.clone();
                let end = (at + value.len()).min(written.len());
                written[at..end].copy_from_slice(&value[..end - at]);
                if at < 40 {
                    continue;
                }
                if let Ok(mut run) = Run::load(&pipeline, &settings, &sealed(written)) {
                    for _ in 0..2 {
                        let _ = run.step(&RunControl::default());
                    }
                    let _ = run.rewind(1);
                    let _ = run.step(&RunControl::default());
                }
            }
        }
        assert!(!name.is_empty());
    }
}

/// A decoder whose cache holds each id, and the sum of all that a component has read of the prompt.
fn of_prompt(more_metadata: &str) -> TestPackage {
    let metadata = format!(
        "
pipeline:
  models:
    reader: {{filename: reader.onnx, type: encoder, io: {{token_input: prompt}}}}
    decoder:
      filename: decoder.onnx
      type: decoder
      io: {{token_input: ids, logits_output: logits, kv_inputs: [past], kv_outputs: [present]}}
  dataflow:
    - {{from: reader.read, to: decoder.read}}
  phases:
    reader: {{run_on: prompt_only}}
{more_metadata}"
    );
    let reader = Model::new()
        .input("prompt", INT64, "[1, n]")
        .output("read", FLOAT, "[]")
        .node(Node::new("Cast", &["prompt"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceSum", &["numbers"], &["read"]).int("keepdims", 0));
    let choices: Vec<f32> = (0..11u8).map(f32::from).collect();
    let decoder = Model::new()
        .input("ids", INT64, "[1, s]")
        .input("read", FLOAT, "[]")
        .input("past", FLOAT, "[1, 1, past, 1]")
        .output("present", FLOAT, "[1, 1, total, 1]")
        .output("logits", FLOAT, "[1, 1, 11]")
        .initializer(Tensor::floats("choices", &[1, 1, 11], &choices))
        .initializer(Tensor::floats("eleven", &[], &[11.0]))
        .initializer(Tensor::ints("rows", &[4], &[1, 1, -1, 1]))
        .node(Node::new("Cast", &["ids"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("Add", &["numbers", "read"], &["both"]))
        .node(Node::new("Reshape", &["both", "rows"], &["new"]))
        .node(Node::new("Concat", &["past", "new"], &["present"]).int("axis", 2))
        .node(Node::new("ReduceSum", &["present"], &["sum"]).int("keepdims", 0))
        .node(Node::new("Mod", &["sum", "eleven"], &["next"]).int("fmod", 1))
        .node(Node::new("Sub", &["next", "choices"], &["away"]))
        .node(Node::new("Abs", &["away"], &["distance"]))
        .node(Node::new("Neg", &["distance"], &["logits"]));
    let models = vec![("reader", reader.encode()), ("decoder", decoder.encode())];
    TestPackage::new(&metadata, models)
}

/// The bytes with `to` for the first `from` in them.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut found = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(from));
    let at = found.next().unwrap();
    sealed([&bytes[..at], to, &bytes[at + from.len()..]].concat())
}

#[test]
fn states_that_do_not_fit_together_are_refused() {
    let options = PipelineOptions {
        backend: Some(backends()[0]),
        ..PipelineOptions::default()
    };
    let pipeline = of_prompt("").open(&options).unwrap();
    let mut run = start(&pipeline, &[5, 2, 3]);
    steps(&mut run, 2);
    let bytes = run.save().unwrap();
    // A logit more than there are tokens.
    let list = |logits: &[f32]| {
        let values = logits.iter().flat_map(|logit| logit.to_le_bytes());
        let count = (logits.len() as u64).to_le_bytes();
        count.into_iter().chain(values).collect::<Vec<u8>>()
    };
    let logits = run.logits().unwrap().to_vec();
    let longer = replaced(&bytes, &list(&logits), &list(&[&logits[..], &[9.0]].concat()));
    let message = refusal(&pipeline, &RunSettings::default(), &longer);
    assert!(message.contains("12 logits"), "{message}");
    // A cache without rows, of tokens that have run.
    let cache = |values: &[u8]| {
        let dims = [1u64, 1, values.len() as u64 / 4, 1];
        let head: Vec<u8> = [1u32, 4].into_iter().flat_map(u32::to_le_bytes).collect();
        let dims: Vec<u8> = dims.into_iter().flat_map(u64::to_le_bytes).collect();
        [&[1], &head[..], &dims, values].concat()
    };
    let present = run.get_tensor("decoder.present").unwrap().bytes().to_vec();
    let empty = replaced(&bytes, &cache(&present), &cache(&[]));
    let message = refusal(&pipeline, &RunSettings::default(), &empty);
    assert!(message.contains("has 0 rows, and 4 have run"), "{message}");
    // The same graphs, and another end.
    let other = of_prompt("tokens: {eos_token_id: [7]}\n").open(&options).unwrap();
    let message = refusal(&other, &RunSettings::default(), &bytes);
    assert!(message.contains("open that package"), "{message}");
}

#[test]
fn what_is_made_of_the_whole_prompt_is_no_prefix() {
    let package = of_prompt("");
    let alone = package.open(&PipelineOptions::default()).unwrap();
    for backend in backends() {
        let pipeline = with_prefixes(&package, backend, 1 << 20);
        for prompt in [[5, 2, 3], [5, 2, 4]] {
            let mut run = start(&pipeline, &prompt);
            assert_eq!(steps(&mut run, 4), steps(&mut start(&alone, &prompt), 4));
        }
    }
}

#[test]
fn loaded_states_are_nobody_elses_prefix() {
    for (name, package, prompt, tokens) in packages() {
        let pipeline = with_prefixes(&package, backends()[0], 1 << 20);
        let own = package.open(&PipelineOptions::default()).unwrap();
        let mut saved = start(&own, &prompt);
        steps(&mut saved, 2);
        let bytes = saved.save().unwrap();
        let mut loaded = Run::load(&pipeline, &RunSettings::default(), &bytes).unwrap();
        assert_eq!(steps(&mut loaded, 2), tokens[2..4], "{name}");
        drop(loaded.fork().unwrap());
        drop(loaded);
        let mut run = start(&pipeline, &[&prompt[..], &tokens[..4]].concat());
        assert_eq!(steps(&mut run, 2), tokens[4..6], "{name}");
        assert_eq!(run.stats().reused_tokens, 0, "{name}");
        // Nor has one who looks at the logits of all positions a prefix of others.
        let settings = RunSettings {
            all_logits: true,
            ..RunSettings::default()
        };
        let mut all = Run::new(&pipeline, &settings).unwrap();
        all.append_tokens(run.tokens()).unwrap();
        steps(&mut all, 1);
        assert_eq!(all.stats().reused_tokens, 0, "{name}");
    }
}

fn with_prefixes(package: &TestPackage, backend: BackendChoice, bytes: u64) -> Pipeline {
    let options = PipelineOptions {
        backend: Some(backend),
        prefix_cache_bytes: bytes,
        ..PipelineOptions::default()
    };
    package.open(&options).unwrap()
}

#[test]
fn runs_that_begin_alike_compute_that_once() {
    for (name, package, prompt, tokens) in packages() {
        let recurrent = name == "states";
        for backend in backends() {
            let pipeline = with_prefixes(&package, backend, 1 << 20);
            let mut first = start(&pipeline, &prompt);
            assert_eq!(steps(&mut first, 4), tokens[..4]);
            assert_eq!(first.stats().reused_tokens, 0, "{name}");
            // The same prompt, while the first run is still there: all but its last token.
            let mut second = start(&pipeline, &prompt);
            assert_eq!(steps(&mut second, 4), tokens[..4], "{name}");
            let reused = if recurrent { 0 } else { prompt.len() as u64 - 1 };
            assert_eq!(second.stats().reused_tokens, reused, "{name}");
            // What the first run came to, and something behind it.
            let all = first.tokens().to_vec();
            drop(first);
            let mut third = start(&pipeline, &[&all[..], &[3, 1]].concat());
            let off = Run::new(
                &package.open(&PipelineOptions::default()).unwrap(),
                &RunSettings::default(),
            );
            let mut alone = off.unwrap();
            alone.append_tokens(&[&all[..], &[3, 1]].concat()).unwrap();
            assert_eq!(steps(&mut third, 3), steps(&mut alone, 3), "{name}");
            assert_eq!(third.stats().reused_tokens, all.len() as u64 - 1, "{name}");
            // Another beginning.
            let mut fourth = start(&pipeline, &[5, 5]);
            steps(&mut fourth, 1);
            assert_eq!(fourth.stats().reused_tokens, 0, "{name}");
        }
    }
}

#[test]
fn prefixes_stay_within_their_bytes() {
    let mut packages = packages().into_iter();
    let (_, package, ..) = packages.find(|(name, ..)| name == "append").unwrap();
    for backend in backends() {
        // A token takes 64 bytes of keys and values, and 4 more.
        let pipeline = with_prefixes(&package, backend, 1000);
        let tokens = |first: i32| -> Vec<i32> { (0..6).map(|n| first + n).collect() };
        for first in [1, 2, 3] {
            let mut run = start(&pipeline, &tokens(first));
            steps(&mut run, 1);
            assert_eq!(run.stats().reused_tokens, 0);
        }
        // The least recently used is gone, the others are there.
        for (first, reused) in [(3, 5), (2, 5), (1, 0)] {
            let mut run = start(&pipeline, &tokens(first));
            steps(&mut run, 1);
            assert_eq!(run.stats().reused_tokens, reused, "{backend:?}: {first}");
        }
        let none = with_prefixes(&package, backend, 0);
        for _ in 0..2 {
            let mut run = start(&none, &tokens(1));
            steps(&mut run, 1);
            assert_eq!(run.stats().reused_tokens, 0);
        }
    }
}

/// Beams go on from prefixes of others, and what they try is nobody's prefix.
#[test]
fn beams_are_searched_beside_prefixes() {
    let mut packages = packages().into_iter();
    let (_, package, ..) = packages.find(|(name, ..)| name == "append").unwrap();
    let search = |pipeline: &Pipeline, prompt: &[i32]| {
        let mut settings = RunSettings {
            max_tokens: Some(5),
            ..RunSettings::default()
        };
        settings.sampling.set("num_beams", "4").unwrap();
        settings.sampling.set("num_return_sequences", "4").unwrap();
        let mut run = Run::new(pipeline, &settings).unwrap();
        run.append_tokens(prompt).unwrap();
        run.generate(&RunControl::default(), &mut |_, _| ControlFlow::Continue(()))
            .unwrap();
        let sequences: Vec<Vec<i32>> = run.sequences().iter().map(|one| one.tokens.clone()).collect();
        (sequences, run.stats().reused_tokens)
    };
    for backend in backends() {
        let alone = with_prefixes(&package, backend, 0);
        let pipeline = with_prefixes(&package, backend, 1000);
        let mut other = start(&pipeline, &[9, 8, 7, 6]);
        steps(&mut other, 1);
        drop(other);
        let prompt = [1, 2, 3, 4, 5];
        let (expected, _) = search(&alone, &prompt);
        assert_eq!(expected.len(), 4);
        assert_eq!(search(&pipeline, &prompt), (expected.clone(), 0));
        // The prompt was kept, once; there was no need to drop what was there before for it.
        assert_eq!(search(&pipeline, &prompt), (expected.clone(), 4));
        let mut again = start(&pipeline, &[9, 8, 7, 6]);
        steps(&mut again, 1);
        assert_eq!(again.stats().reused_tokens, 3);
        // Of what was tried, nothing.
        let tried = expected.last().unwrap();
        let mut run = start(&pipeline, &[&prompt[..], tried].concat());
        steps(&mut run, 1);
        assert!(run.stats().reused_tokens <= 5);
    }
}

#[test]
fn runs_that_step_together_have_their_own_tokens() {
    for (name, package, prompt, _) in packages() {
        package.for_each_mix(|pipeline| {
            let prompts = [prompt.clone(), vec![2, 1, 0, 3], vec![1], vec![3, 0]];
            let alone: Vec<Vec<i32>> = prompts
                .iter()
                .map(|prompt| steps(&mut start(pipeline, prompt), 6))
                .collect();
            let mut runs: Vec<Run> = prompts.iter().map(|prompt| start(pipeline, prompt)).collect();
            let mut tokens = vec![Vec::new(); runs.len()];
            for round in 0..9 {
                let mut taking_part = Vec::new();
                let mut members = Vec::new();
                // The nth joins in the nth step, and leaves after six.
                for (index, run) in runs.iter_mut().enumerate() {
                    if (index..index + 6).contains(&round) {
                        taking_part.push(index);
                        members.push(run);
                    }
                }
                let outcomes = Run::step_together(&mut members, &RunControl::default());
                for (&index, outcome) in taking_part.iter().zip(outcomes) {
                    tokens[index].extend(outcome.unwrap().token);
                }
            }
            assert_eq!(tokens, alone, "{name}");
            // A run that is finished says so, and the others step.
            let settings = RunSettings {
                max_tokens: Some(1),
                ..RunSettings::default()
            };
            let mut short = Run::new(pipeline, &settings).unwrap();
            short.append_tokens(&prompts[0]).unwrap();
            steps(&mut short, 1);
            let mut other = start(pipeline, &prompts[1]);
            let outcomes = Run::step_together(&mut [&mut short, &mut other], &RunControl::default());
            assert_eq!(outcomes[0].as_ref().unwrap_err().kind(), ErrorKind::InvalidState);
            assert_eq!(outcomes[1].as_ref().unwrap().token, Some(alone[1][0]));
        });
    }
}

/// A run that is late loses its step and nothing else, and the others step on.
#[test]
fn a_deadline_of_one_run_of_several_is_its_own() {
    let all = RunControl::default();
    for (name, package, prompt, _) in packages() {
        package.for_each_mix(|pipeline| {
            let prompts = [prompt.clone(), vec![2, 1, 0, 3], vec![1]];
            let alone = prompts
                .each_ref()
                .map(|prompt| steps(&mut start(pipeline, prompt), 6));
            let mut runs = prompts.each_ref().map(|prompt| start(pipeline, prompt));
            let mut tokens = [const { Vec::new() }; 3];
            // With its prompt and with a token to feed.
            for round in 0..12 {
                let is_late = |run: usize| (round + run).is_multiple_of(3);
                let limits: Vec<Option<Duration>> =
                    (0..3).map(|run| is_late(run).then_some(Duration::ZERO)).collect();
                let mut members: Vec<&mut Run> = runs.iter_mut().collect();
                let outcomes = Run::step_each_together(&mut members, &limits, &all);
                for (run, outcome) in outcomes.into_iter().enumerate() {
                    match is_late(run) {
                        true => {
                            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::DeadlineExceeded, "{name}")
                        }
                        false => tokens[run].extend(outcome.unwrap().token),
                    }
                }
            }
            for (tokens, alone) in tokens.iter().zip(&alone) {
                assert_eq!(tokens[..6], alone[..], "{name}");
            }
        });
    }
}

#[test]
fn speculation_needs_caches_that_go_back() {
    let pipeline = states::package().open(&PipelineOptions::default()).unwrap();
    let settings = RunSettings {
        speculation: Speculation::PromptLookup,
        ..RunSettings::default()
    };
    let error = Run::new(&pipeline, &settings).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("recurrent state"), "{error}");
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    assert!(
        run.set_draft(&pipeline)
            .unwrap_err()
            .to_string()
            .contains("recurrent state")
    );

    let (_, package, ..) = packages().swap_remove(0);
    let pipeline = package.open(&PipelineOptions::default()).unwrap();
    let settings = RunSettings {
        speculation: Speculation::PromptLookup,
        speculation_tokens: Some(9),
        ..RunSettings::default()
    };
    let error = Run::new(&pipeline, &settings).unwrap_err().to_string();
    assert!(error.contains("1 to 7"), "{error}");
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    let small = states::package().open(&PipelineOptions::default()).unwrap();
    let error = run.set_draft(&small).unwrap_err().to_string();
    assert!(error.contains("8 tokens") && error.contains("1000"), "{error}");
}
