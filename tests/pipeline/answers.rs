//! Answers chosen in every way are what they are in a run that nobody disturbs: in batches that runs join
//! and leave at any step, from copies and saved states of any length, behind rewinds, and after calls that
//! were cancelled or late.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use oxpipe::component::{CancelToken, ComponentErrorKind, RunControl};
use oxpipe::generation::{FinishReason, SamplingOptions};
use oxpipe::pipeline::{ErrorKind, Event, Pipeline, Run, RunSettings, Speculation};
use oxpipe::text::ConstraintKind;

use super::fake::{
    DECODER_METADATA, DECODER_OUTPUTS, Fake, Watch, continuation, decoder, decoder_body, files, io,
    open_source,
};

/// Half characters, letters that begin stop strings, and an end token.
const TOKENS: &str = r#"{
    "version": "1.0",
    "added_tokens": [{"id": 7, "content": "</s>", "special": true, "single_word": false,
                      "lstrip": false, "rstrip": false, "normalized": false}],
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "merges": [],
              "vocab": {"\u00c3": 0, "\u00a9": 1, "a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "</s>": 7}}
}"#;

fn open_with(decoder: Fake) -> Pipeline {
    let metadata = format!("{DECODER_METADATA}  tokenizer: tokenizer.json\ntokens: {{eos_token_id: [7]}}\n");
    let source = files(&[("inference_metadata.yaml", &metadata), ("tokenizer.json", TOKENS)]);
    open_source(&source, vec![("model", decoder)]).unwrap()
}

fn open() -> (Pipeline, Watch) {
    let decoder = decoder();
    let watch = decoder.watch();
    (open_with(decoder), watch)
}

/// One way of choosing tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    options: &'static [(&'static str, &'static str)],
    stops: &'static [&'static str],
    grammar: Option<&'static str>,
    speculation: Speculation,
    has_draft: bool,
    has_hook: bool,
    has_sampler: bool,
}

const DRAWN: &[(&str, &str)] = &[("do_sample", "true"), ("temperature", "1.5")];

fn kinds() -> Vec<Kind> {
    let of = |options| Kind {
        options,
        ..Kind::default()
    };
    let mirostat = of(&[("mirostat", "2"), ("mirostat_tau", "2"), ("mirostat_eta", "1")]);
    let held = Kind {
        stops: &["cdcd", "abab", "\u{e9}\u{e9}\u{e9}"],
        ..of(DRAWN)
    };
    let grammar = "(ab|cd|e)(a|\u{e9}|dd){2,9}(bad|cab)";
    let constrained = Kind {
        grammar: Some(grammar),
        ..of(DRAWN)
    };
    vec![
        of(&[]),
        of(DRAWN),
        of(&[
            ("do_sample", "true"),
            ("repetition_penalty", "1.5"),
            ("frequency_penalty", "0.5"),
            ("presence_penalty", "0.3"),
            ("dry_multiplier", "1"),
            ("no_repeat_ngram_size", "3"),
            ("min_new_tokens", "6"),
        ]),
        of(&[("mirostat", "1"), ("mirostat_tau", "2"), ("mirostat_eta", "1")]),
        mirostat,
        constrained,
        Kind {
            speculation: Speculation::PromptLookup,
            ..constrained
        },
        held,
        Kind {
            speculation: Speculation::PromptLookup,
            ..mirostat
        },
        Kind {
            has_draft: true,
            ..held
        },
        Kind {
            has_draft: true,
            ..mirostat
        },
        Kind {
            has_hook: true,
            ..of(DRAWN)
        },
        Kind {
            has_sampler: true,
            ..of(&[("top_k", "4"), ("logprobs", "2")])
        },
    ]
}

/// What is left of an event without what depends on the clock.
type Told = (Option<i32>, String, u64, bool, u32, Option<FinishReason>, u64);

fn told(event: &Event) -> Told {
    (
        event.token,
        event.text.clone(),
        event.text_offset,
        event.forced,
        event.logprob.to_bits(),
        event.finish,
        event.usage.generated_tokens,
    )
}

impl Kind {
    fn settings(&self, seed: u64) -> RunSettings {
        let mut sampling = SamplingOptions::default();
        for (name, value) in self.options {
            sampling.set(name, value).unwrap();
        }
        RunSettings {
            max_tokens: Some(24),
            seed: Some(seed),
            sampling,
            stop_strings: self.stops.iter().map(|stop| (*stop).to_owned()).collect(),
            speculation: self.speculation,
            ..RunSettings::default()
        }
    }

    /// What a run has beside its state.
    fn equip(&self, run: &mut Run, draft: &Pipeline) {
        if self.has_draft {
            run.set_draft(draft).unwrap();
        }
        if self.has_hook {
            run.set_logits_hook(Some(Box::new(|logits, tokens| {
                logits[tokens.len() % 7] += 3.0;
                ControlFlow::Continue(())
            })));
        }
        if self.has_sampler {
            // One of those that are left, by how many tokens there are.
            run.set_host_sampler(Some(Box::new(|logprobs, tokens| {
                let left = (0..7).filter(|&token| logprobs[token] > f32::NEG_INFINITY);
                let left: Vec<usize> = left.collect();
                ControlFlow::Continue(left[tokens.len() % left.len()] as i32)
            })));
        }
    }

    fn begin(&self, pipeline: &Pipeline, draft: &Pipeline, seed: u64) -> Run {
        let mut run = Run::new(pipeline, &self.settings(seed)).unwrap();
        self.equip(&mut run, draft);
        if let Some(grammar) = self.grammar {
            run.set_constraint(Some((ConstraintKind::Regex, grammar)))
                .unwrap();
        }
        run.append_tokens(&prompt(seed)).unwrap();
        run
    }
}

fn prompt(seed: u64) -> Vec<i32> {
    vec![2, 3, 2, 3, 1 + seed as i32 % 5]
}

/// The rest of the answer.
fn answer(run: &mut Run) -> Vec<Told> {
    let mut all = Vec::new();
    while run.finished().is_none() {
        all.push(told(&run.step(&RunControl::default()).unwrap()));
    }
    all
}

/// A number from 0 to 4 that looks random.
fn scattered(number: usize) -> usize {
    (number.wrapping_mul(2_654_435_761) >> 7) % 5
}

#[test]
fn of_a_batch_are_those_of_each_run_alone() {
    let (pipeline, watch) = open();
    let (draft, _) = open();
    let kinds = kinds();
    for seed in 0..6u64 {
        let begin = |kind: &Kind| kind.begin(&pipeline, &draft, seed);
        let alone: Vec<Vec<Told>> = kinds.iter().map(|kind| answer(&mut begin(kind))).collect();
        // The text of some is held back.
        let any = |what: fn(&Told) -> bool| alone.iter().flatten().any(what);
        assert!(any(|(_, text, ..)| text.is_empty()) && any(|(_, text, ..)| text.len() > 2));
        let mut runs: Vec<Run> = kinds.iter().map(begin).collect();
        let mut found = vec![Vec::new(); runs.len()];
        let mut failures = 0;
        for round in 0.. {
            if runs.iter().all(|run| run.finished().is_some()) {
                break;
            }
            let (mut members, mut places) = (Vec::new(), Vec::new());
            for (index, run) in runs.iter_mut().enumerate() {
                match scattered(index + 31 * round + 977 * seed as usize) {
                    _ if run.finished().is_some() => {}
                    // By itself in between.
                    0 => found[index].push(told(&run.step(&RunControl::default()).unwrap())),
                    1 => {}
                    _ => {
                        members.push(run);
                        places.push(index);
                    }
                }
            }
            if round % 3 == 1 && members.len() > 1 {
                watch.fail_next(match round % 2 {
                    0 => ComponentErrorKind::Cancelled,
                    _ => ComponentErrorKind::DeadlineExceeded,
                });
            }
            // The time of some of them is over.
            let all = RunControl::default();
            let own = |&index: &usize| (scattered(index + 7 * round) == 0).then_some(Duration::ZERO);
            let each: Vec<Option<Duration>> = places.iter().map(own).collect();
            let outcomes = Run::step_each_together(&mut members, &each, &all);
            watch.with(|watched| watched.fail_at = None);
            for (index, outcome) in places.into_iter().zip(outcomes) {
                match outcome {
                    Ok(event) => found[index].push(told(&event)),
                    Err(error) => {
                        let kinds = [ErrorKind::Cancelled, ErrorKind::DeadlineExceeded];
                        assert!(kinds.contains(&error.kind()), "{error}");
                        failures += 1;
                    }
                }
            }
        }
        for ((kind, found), alone) in kinds.iter().zip(&found).zip(&alone) {
            assert_eq!(found, alone, "{kind:?}, seed {seed}");
        }
        assert!(failures > 0);
    }
}

#[test]
fn of_copies_and_behind_rewinds_go_on_as_the_run_does() {
    let (pipeline, _) = open();
    let (draft, _) = open();
    for (number, kind) in kinds().into_iter().enumerate() {
        let seed = number as u64;
        let whole = answer(&mut kind.begin(&pipeline, &draft, seed));
        let mut run = kind.begin(&pipeline, &draft, seed);
        let mut long = kind.begin(&pipeline, &draft, seed);
        answer(&mut long);
        for taken in 0..whole.len() {
            let rest = &whole[taken..];
            let mut fork = run.fork().unwrap();
            // The host's hook and sampler stay with the run.
            kind.equip(&mut fork, &draft);
            let bytes = run.save().unwrap();
            let mut loaded = Run::load(&pipeline, &kind.settings(seed), &bytes).unwrap();
            kind.equip(&mut loaded, &draft);
            let pending = run.pending_text().unwrap();
            assert_eq!(fork.pending_text().unwrap(), pending);
            assert_eq!(loaded.pending_text().unwrap(), pending);
            assert_eq!(answer(&mut fork), rest, "a fork at {taken} of {kind:?}");
            assert_eq!(answer(&mut loaded), rest, "a saved run at {taken} of {kind:?}");
            for (name, run) in [
                ("the run", &mut long),
                ("a fork", &mut fork),
                ("a loaded run", &mut loaded),
            ] {
                run.rewind(prompt(seed).len() + taken).unwrap();
                assert_eq!(run.pending_text().unwrap(), pending);
                assert_eq!(answer(run), rest, "{name} behind a rewind to {taken} of {kind:?}");
            }
            assert_eq!(told(&run.step(&RunControl::default()).unwrap()), rest[0]);
        }
    }
}

#[test]
fn after_calls_that_were_stopped_are_as_without_them() {
    let (pipeline, watch) = open();
    let decoder = decoder();
    let draft_watch = decoder.watch();
    let draft = open_with(decoder);
    let cancel = CancelToken::default();
    cancel.request();
    let stopped = [
        RunControl {
            cancel: Some(cancel),
            ..RunControl::default()
        },
        RunControl {
            deadline: Some(Instant::now()),
            ..RunControl::default()
        },
    ];
    for (number, kind) in kinds().into_iter().enumerate() {
        let seed = number as u64;
        let whole = answer(&mut kind.begin(&pipeline, &draft, seed));
        let mut run = kind.begin(&pipeline, &draft, seed);
        let (mut found, mut failures) = (Vec::new(), 0);
        while run.finished().is_none() {
            // Before it begins, inside of a pass of the model, and inside of one of the draft.
            let mut outcomes: Vec<_> = stopped.iter().map(|control| run.step(control)).collect();
            for watch in [&watch, &draft_watch] {
                for reason in [
                    ComponentErrorKind::Cancelled,
                    ComponentErrorKind::DeadlineExceeded,
                ] {
                    if run.finished().is_none() {
                        watch.fail_next(reason);
                        outcomes.push(run.step(&RunControl::default()));
                        watch.with(|watched| watched.fail_at = None);
                    }
                }
            }
            if run.finished().is_none() {
                outcomes.push(run.step(&RunControl::default()));
            }
            for outcome in outcomes {
                match outcome {
                    Ok(event) => found.push(told(&event)),
                    Err(error) => {
                        let kinds = [ErrorKind::Cancelled, ErrorKind::DeadlineExceeded];
                        assert!(kinds.contains(&error.kind()), "{error}");
                        failures += 1;
                    }
                }
            }
        }
        assert_eq!(found, whole, "{kind:?}");
        assert!(failures > 2, "{failures}");
    }
}

/// A prompt that takes longer than another run's limit takes nothing of it.
#[test]
fn of_a_batch_wait_for_others_beyond_their_own_limit() {
    const PROMPT: Duration = Duration::from_millis(2500);
    let inputs = [
        "input_ids:int64[batch,sequence]",
        "attention_mask:int64[batch,total]",
        "position_ids:int32[batch,sequence]",
        "past:float32[batch,2,past,1]",
    ];
    let mut body = decoder_body(|_| 0);
    let slow = Fake::new(io(&inputs, &DECODER_OUTPUTS), move |call| {
        if call.ints("input_ids").len() > 2 {
            std::thread::sleep(PROMPT);
        }
        body(call)
    });
    let pipeline = open_with(slow);
    let begin = |prompt: &[i32]| {
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(prompt).unwrap();
        run
    };
    let mut long = begin(&[1, 2, 3]);
    let mut others = [begin(&[4]), begin(&[5, 1])];
    // With a token to feed, and with a prompt.
    others[0].step(&RunControl::default()).unwrap();
    let expected = [continuation(&[4], 2, 0)[1], continuation(&[5, 1], 1, 0)[0]];
    let [first, second] = &mut others;
    let limits = [None, Some(PROMPT * 4 / 5), Some(PROMPT * 4 / 5)];
    let all = RunControl::default();
    let outcomes = Run::step_each_together(&mut [&mut long, first, second], &limits, &all);
    let tokens: Vec<i32> = outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap().token.unwrap())
        .collect();
    assert_eq!(tokens[1..], expected);
}
