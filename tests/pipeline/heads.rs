//! A package's own head guesses tokens. It changes none of them, whatever it guesses and whatever a host
//! does between steps, and saves passes where it is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oxpipe::component::{CancelToken, ComponentErrorKind, ComponentSession, RunControl};
use oxpipe::generation::SamplingOptions;
use oxpipe::pipeline::{ErrorKind, Pipeline, Run, RunSettings, Speculation};

use super::fake::{
    Call, DECODER_OUTPUTS, Fake, Outputs, VOCABULARY, continuation, decoder_body, files, float_tensor, io,
    metadata, open, open_source, runtime,
};
use super::speculation::{settings, steps, tried};

const TARGET_INPUTS: [&str; 2] = ["input_ids:int64[batch,sequence]", "past:float32[batch,2,past,1]"];
const HIDDEN: &str = "hidden_states:float32[batch,sequence,2]";

/// The fake language model, which also gives its hidden states: of each position the sum of place times
/// id that the next token is made of, and the number of tokens.
fn target() -> Fake {
    let outputs = [&DECODER_OUTPUTS[..], &[HIDDEN]].concat();
    Fake::new(io(&TARGET_INPUTS, &outputs), target_body())
}

fn target_body() -> impl FnMut(&Call) -> Result<Outputs, ComponentErrorKind> {
    let mut body = decoder_body(|_| 0);
    move |call| {
        let mut made = body(call)?;
        let (_, present) = &made[1];
        let total = usize::try_from(present.shape()[2]).unwrap();
        let weighted = super::fake::floats(present.view());
        let len = call.ints("input_ids").len();
        let rows = (total - len..total)
            .flat_map(|place| [weighted[..=place].iter().sum(), place as f32 + 1.0])
            .collect::<Vec<f32>>();
        made.push(("hidden_states", float_tensor(&[1, len as i64, 2], &rows)));
        Ok(made)
    }
}

/// What a head is off by in its guess behind so many tokens.
type Off = fn(usize) -> i64;

/// A head that goes on from the hidden states that it is given, the target's or its own, and whose cache
/// must hold the row of each position before. Rows that it is asked for are counted. The target's hidden
/// states come so many times, side by side.
fn head_body(
    off: Off,
    rows: Arc<AtomicUsize>,
    times: usize,
) -> impl FnMut(&Call) -> Result<Outputs, ComponentErrorKind> {
    move |call| {
        let ids = call.ints("input_ids");
        let beside = call.floats("hidden_states");
        assert_eq!(beside.len(), 2 * times * ids.len());
        let mut hidden: Vec<f32> = beside
            .chunks(2 * times)
            .flat_map(|row| row[2 * (times - 1)..].to_vec())
            .collect();
        if call.get("recurrent").is_some() {
            let own = call.floats("recurrent");
            assert!(hidden.iter().all(|&one| one == 0.0) || own.iter().all(|&one| one == 0.0));
            hidden.iter_mut().zip(own).for_each(|(one, own)| *one += own);
        }
        rows.fetch_add(ids.len(), Ordering::Relaxed);
        assert_eq!(hidden.len(), 2 * ids.len());
        let mut present = call.floats("past");
        assert_eq!(
            call.tensor("mask").shape(),
            [1, (present.len() + ids.len()) as i64]
        );
        let (mut logits, mut own) = (Vec::new(), Vec::new());
        for (id, row) in ids.iter().zip(hidden.chunks_exact(2)) {
            if let Some(last) = present.last() {
                assert_eq!(row[1], last + 1.0, "a row is missing");
            }
            present.push(row[1]);
            let count = row[1] as i64 + 1;
            let sum = row[0] as i64 + count * id;
            let guess = (sum + off(usize::try_from(count).unwrap())).rem_euclid(VOCABULARY);
            logits.extend((0..VOCABULARY).map(|id| if id == guess { 1.0 } else { 0.0 }));
            own.extend([sum as f32, count as f32]);
        }
        let len = ids.len() as i64;
        let total = present.len() as i64;
        Ok(vec![
            ("logits", float_tensor(&[1, len, VOCABULARY], &logits)),
            ("own", float_tensor(&[1, len, 2], &own)),
            ("present", float_tensor(&[1, 1, total, 1], &present)),
        ])
    }
}

const HEAD_INPUTS: [&str; 5] = [
    "input_ids:int64[batch,sequence]",
    "hidden_states:float32[batch,sequence,2]",
    "mask:int64[batch,total]",
    "past:float32[batch,1,past,1]",
    "recurrent:float32[batch,sequence,2]",
];
const HEAD_OUTPUTS: [&str; 3] = [
    "logits:float32[batch,sequence,8]",
    "own:float32[batch,sequence,2]",
    "present:float32[batch,1,total,1]",
];

fn head(off: Off, rows: &Arc<AtomicUsize>, is_recurrent: bool) -> Fake {
    let inputs = &HEAD_INPUTS[..HEAD_INPUTS.len() - usize::from(!is_recurrent)];
    Fake::new(io(inputs, &HEAD_OUTPUTS), head_body(off, Arc::clone(rows), 1))
}

const TARGET: &str = "
    model:
      filename: model.onnx
      type: decoder
      io: {token_input: input_ids, logits_output: logits, kv_inputs: [past], kv_outputs: [present]}
";
const HEAD: &str = "
    mtp:
      filename: mtp.onnx
      type: draft
      io:
        token_input: input_ids
        attention_mask_input: mask
        logits_output: logits
        hidden_output: own
        kv_inputs: [past]
        kv_outputs: [present]
";

fn package(section: &str) -> String {
    format!("pipeline:\n  models:{TARGET}{HEAD}speculative:\n  component: mtp\n{section}\n")
}

const MTP: &str = "  proposal_type: mtp";
const EAGLE: &str = "  proposal_type: eagle3\n  hidden_input: hidden_states\n  recurrent_input: recurrent
  target_hidden_output: [hidden_states]";

fn with_head(section: &str, off: Off) -> (Pipeline, Arc<AtomicUsize>) {
    let rows = Arc::new(AtomicUsize::new(0));
    let head = head(off, &rows, section.contains("recurrent_input"));
    let pipeline = open(&package(section), vec![("model", target()), ("mtp", head)]).unwrap();
    (pipeline, rows)
}

const NEVER: Off = |_| 0;
const AT_THIRDS: Off = |count| i64::from(count % 3 == 0);
const ALWAYS: Off = |_| 1;

#[test]
fn a_head_changes_no_token() {
    for section in [MTP, EAGLE] {
        for off in [NEVER, AT_THIRDS, ALWAYS] {
            for prompt in [vec![2, 7, 1, 6], vec![1, 1, 2, 4, 1, 1], vec![5]] {
                let (pipeline, _) = with_head(section, off);
                let plain = tried(&pipeline, &RunSettings::default(), None, &prompt);
                for most in [1, 3, 7] {
                    let guessed = tried(&pipeline, &settings(Speculation::Head, most), None, &prompt);
                    assert!(off(3) == 1 || guessed < plain, "{guessed} and {plain} passes");
                }
            }
        }
    }
}

#[test]
fn a_head_that_is_right_saves_passes() {
    for section in [MTP, EAGLE] {
        let (pipeline, rows) = with_head(section, NEVER);
        for (chunk_size, prompt) in [(None, vec![2, 7, 1, 6]), (Some(3), vec![3; 699])] {
            rows.store(0, Ordering::Relaxed);
            let settings = RunSettings {
                chunk_size,
                speculation: Speculation::Head,
                ..RunSettings::default()
            };
            let mut run = Run::new(&pipeline, &settings).unwrap();
            run.append_tokens(&prompt).unwrap();
            assert_eq!(steps(&mut run, 16), continuation(&prompt, 16, 0));
            // The prompt gives the first token, and each pass behind it five.
            let chunks = chunk_size.map_or(1, |size| prompt.len().div_ceil(size));
            let stats = run.stats();
            assert_eq!(stats.passes, chunks as u64 + 3);
            assert_eq!((stats.proposed_tokens, stats.accepted_tokens), (12, 12));
            // Each position once with the target's rows, and three times three of its own.
            assert_eq!(rows.load(Ordering::Relaxed), prompt.len() + 10 + 9);
        }
    }
}

/// EAGLE-3: several of the target's layers side by side, so that its rows are wider than the head's own.
/// The graph need not say how wide they are.
#[test]
fn rows_of_the_target_may_be_wider_than_the_heads_own() {
    let section = EAGLE.replace("[hidden_states]", "[hidden_states, more]");
    for width in ["4", "w"] {
        let rows = Arc::new(AtomicUsize::new(0));
        let hidden = format!("hidden_states:float32[batch,sequence,{width}]");
        let mut inputs = HEAD_INPUTS;
        inputs[1] = &hidden;
        let head = Fake::new(io(&inputs, &HEAD_OUTPUTS), head_body(NEVER, rows, 2));
        let outputs = [&DECODER_OUTPUTS[..], &[HIDDEN, "more:float32[batch,sequence,2]"]].concat();
        let mut body = target_body();
        let target = Fake::new(io(&TARGET_INPUTS, &outputs), move |call| {
            let mut made = body(call)?;
            let (_, hidden) = &made[2];
            let more = float_tensor(hidden.shape(), &super::fake::floats(hidden.view()));
            made.push(("more", more));
            Ok(made)
        });
        let pipeline = open(&package(&section), vec![("model", target), ("mtp", head)]).unwrap();
        let mut run = Run::new(&pipeline, &settings(Speculation::Head, 3)).unwrap();
        run.append_tokens(&[2, 7, 1, 6]).unwrap();
        assert_eq!(steps(&mut run, 16), continuation(&[2, 7, 1, 6], 16, 0));
        let stats = run.stats();
        assert!(stats.proposed_tokens >= 9, "{width}: {stats:?}");
        // But for those that the last pass did not get to use.
        assert!(
            stats.proposed_tokens - stats.accepted_tokens <= 3,
            "{width}: {stats:?}"
        );
    }
}

#[test]
fn drawn_tokens_are_those_of_the_run_without_guesses() {
    let sampling = SamplingOptions {
        do_sample: Some(true),
        temperature: Some(2.0),
        ..SamplingOptions::default()
    };
    let (pipeline, _) = with_head(MTP, AT_THIRDS);
    for seed in 0..20 {
        let draw = |speculation| {
            let settings = RunSettings {
                speculation,
                seed: Some(seed),
                sampling: sampling.clone(),
                ..RunSettings::default()
            };
            let mut run = Run::new(&pipeline, &settings).unwrap();
            run.append_tokens(&[2, 7, 1, 6]).unwrap();
            steps(&mut run, 24)
        };
        assert_eq!(draw(Speculation::Head), draw(Speculation::Off), "seed {seed}");
    }
}

/// Of copies, saved states and rewinds, with what mirostat remembers of each place.
#[test]
fn drawn_tokens_go_on_from_any_place() {
    for section in [MTP, EAGLE] {
        let (pipeline, _) = with_head(section, AT_THIRDS);
        for version in ["1", "2"] {
            let mut sampling = SamplingOptions::default();
            for (name, value) in [
                ("mirostat", version),
                ("mirostat_tau", "2"),
                ("mirostat_eta", "1"),
            ] {
                sampling.set(name, value).unwrap();
            }
            let settings = |speculation| RunSettings {
                seed: Some(5),
                sampling: sampling.clone(),
                stop_on_eos: false,
                ..settings(speculation, 3)
            };
            let begin = |speculation| {
                let mut run = Run::new(&pipeline, &settings(speculation)).unwrap();
                run.append_tokens(&[2, 7, 1, 6]).unwrap();
                run
            };
            let whole = steps(&mut begin(Speculation::Off), 16);
            let mut run = begin(Speculation::Head);
            let mut long = begin(Speculation::Head);
            assert_eq!(steps(&mut long, 16), whole);
            for taken in 0..12 {
                let rest = &whole[taken..];
                let mut fork = run.fork().unwrap();
                let bytes = run.save().unwrap();
                let mut loaded = Run::load(&pipeline, &settings(Speculation::Head), &bytes).unwrap();
                assert_eq!(steps(&mut fork, rest.len()), rest, "a fork at {taken}");
                assert_eq!(steps(&mut loaded, rest.len()), rest, "a saved run at {taken}");
                for run in [&mut long, &mut fork, &mut loaded] {
                    run.rewind(4 + taken).unwrap();
                    assert_eq!(steps(run, rest.len()), rest, "behind a rewind to {taken}");
                }
                steps(&mut run, 1);
            }
        }
    }
}

#[test]
fn the_package_says_how_many_and_the_host_may_say_otherwise() {
    let (pipeline, _) = with_head(&format!("{MTP}\n  num_speculative_tokens: 2"), NEVER);
    let passes = |speculation_tokens| {
        let settings = RunSettings {
            speculation: Speculation::Head,
            speculation_tokens,
            ..RunSettings::default()
        };
        let mut run = Run::new(&pipeline, &settings).unwrap();
        run.append_tokens(&[2, 7, 1, 6]).unwrap();
        assert_eq!(steps(&mut run, 13), continuation(&[2, 7, 1, 6], 13, 0));
        run.stats().passes
    };
    assert_eq!((passes(None), passes(Some(5)), passes(Some(1))), (5, 3, 7));
    assert_eq!(pipeline.describe()["head"]["component"], "mtp");
}

/// A head that gives what no head may, from its second call on.
fn bad_head(of: &'static str) -> Fake {
    let rows = Arc::new(AtomicUsize::new(0));
    let mut body = head_body(NEVER, Arc::clone(&rows), 1);
    let mut calls = 0;
    let fake = Fake::new(io(&HEAD_INPUTS[..4], &HEAD_OUTPUTS), move |call| {
        let mut made = body(call)?;
        calls += 1;
        let total = made[2].1.shape()[2];
        if calls > 1 {
            match of {
                "nan" => made[0].1 = float_tensor(&[1, 1, 8], &[f32::NAN; 8]),
                "wide" => {
                    let logits: Vec<f32> = (0..900).map(|id| id as f32).collect();
                    made[0].1 = float_tensor(&[1, 1, 900], &logits);
                }
                "none" => made[0].1 = float_tensor(&[1, 0, 8], &[]),
                "hidden" => made[1].1 = float_tensor(&[3, 1], &[0.0; 3]),
                "cache" => {
                    made[2].1 = float_tensor(&[1, 1, total + 1, 1], &vec![0.0; total as usize + 1]);
                }
                _ => {
                    return Err(ComponentErrorKind::InvalidModel {
                        path: None,
                        message: "it is broken".to_owned(),
                    });
                }
            }
        }
        Ok(made)
    });
    fake.breaking_promises()
}

#[test]
fn a_head_that_breaks_ends_guesses_and_nothing_else() {
    for of in ["nan", "wide", "none", "hidden", "cache", "fails"] {
        let sessions = vec![("model", target()), ("mtp", bad_head(of))];
        let pipeline = open(&package(MTP), sessions).unwrap();
        tried(&pipeline, &settings(Speculation::Head, 3), None, &[2, 7, 1, 6]);
    }
}

#[test]
fn a_cancelled_guess_leaves_the_run_usable() {
    let rows = Arc::new(AtomicUsize::new(0));
    let head = head(NEVER, &rows, false);
    let watch = head.watch();
    let pipeline = open(&package(MTP), vec![("model", target()), ("mtp", head)]).unwrap();
    let mut run = Run::new(&pipeline, &settings(Speculation::Head, 3)).unwrap();
    run.append_tokens(&[2, 7, 1, 6]).unwrap();
    assert_eq!(steps(&mut run, 1), continuation(&[2, 7, 1, 6], 1, 0));
    watch.fail_next(ComponentErrorKind::Cancelled);
    let control = RunControl::default();
    assert_eq!(run.step(&control).unwrap_err().kind(), ErrorKind::Cancelled);
    let cancel = CancelToken::default();
    cancel.request();
    let cancelled = RunControl {
        cancel: Some(cancel),
        ..RunControl::default()
    };
    assert_eq!(run.step(&cancelled).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(steps(&mut run, 9), continuation(&[2, 7, 1, 6], 10, 0)[1..]);
    assert!(run.stats().accepted_tokens > 4);
}

/// The message of a package that is not opened.
fn refusal(yaml: &str) -> String {
    let rows = Arc::new(AtomicUsize::new(0));
    let sessions = vec![("model", target()), ("mtp", head(NEVER, &rows, false))];
    open(yaml, sessions).unwrap_err().to_string()
}

#[test]
fn a_section_that_is_wrong_is_an_error_that_says_where() {
    let cases = [
        (
            package("  proposal_type: mtp\n  num_speculative_tokens: 0"),
            "num_speculative_tokens",
        ),
        (
            package("  proposal_type: mtp\n  model: other.onnx"),
            "say it once",
        ),
        (
            package(MTP).replace("component: mtp", "component: nobody"),
            "nobody",
        ),
        (
            package(MTP).replace("component: mtp", "component: model"),
            "no input \"hidden_states\"",
        ),
    ];
    for (yaml, part) in cases {
        let message = refusal(&yaml);
        assert!(message.contains(part), "{part}: {message}\n{yaml}");
    }
}

/// Opens with a warning that contains `part`, runs without guesses, and refuses runs that ask for them.
fn check_unused(yaml: &str, sessions: Vec<(&str, Fake)>, part: &str) {
    let (runtime, log) = runtime();
    let sessions = sessions
        .into_iter()
        .map(|(name, fake)| -> (String, Box<dyn ComponentSession>) { (name.to_owned(), Box::new(fake)) });
    let pipeline = Pipeline::with_sessions(&runtime, &metadata(yaml), sessions.collect()).unwrap();
    let warned = log.lock().unwrap().iter().any(|(_, line)| line.contains(part));
    assert!(warned, "{yaml}: {:?}", log.lock().unwrap());
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&[2, 7]).unwrap();
    assert_eq!(steps(&mut run, 3), continuation(&[2, 7], 3, 0));
    let error = Run::new(&pipeline, &settings(Speculation::Head, 3)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains(part), "{error}");
    assert!(pipeline.describe()["head"].is_null());
    assert_eq!(pipeline.components().len(), 1);
}

#[test]
fn a_head_that_its_graph_contradicts_is_not_used() {
    let cases = [
        (package("  proposal_type: mtp\n  hidden_input: nobody"), "nobody"),
        (
            package("  proposal_type: mtp\n  target_hidden_output: nobody"),
            "nobody",
        ),
        (
            package("  proposal_type: mtp\n  target_hidden_output: logits"),
            "[1, sequence, 8]",
        ),
        (
            package("  proposal_type: mtp\n  target_hidden_output: [hidden_states, hidden_states]"),
            "[1, sequence, 4]",
        ),
        (
            package(MTP).replace("hidden_output: own", "hidden_output: logits"),
            "[1, sequence, 2]",
        ),
        (
            package(MTP).replace("        attention_mask_input: mask\n", ""),
            "mask",
        ),
    ];
    for (yaml, part) in cases {
        let rows = Arc::new(AtomicUsize::new(0));
        check_unused(
            &yaml,
            vec![("model", target()), ("mtp", head(NEVER, &rows, false))],
            part,
        );
    }
    // A vocabulary of its own.
    let outputs = [
        "logits:float32[batch,sequence,5]",
        HEAD_OUTPUTS[1],
        HEAD_OUTPUTS[2],
    ];
    let other = Fake::new(io(&HEAD_INPUTS[..4], &outputs), |_| unreachable!());
    check_unused(
        &package(MTP),
        vec![("model", target()), ("mtp", other)],
        "of 5 tokens",
    );
}

#[test]
fn a_head_of_another_layout_is_a_warning_and_an_error_of_runs_that_ask_for_it() {
    let cases = [
        ("  proposal_type: dflash", "eagle, eagle3 and mtp"),
        ("  tokens_per_step: 3", "no proposal_type"),
        ("  proposal_type: eagle3", "hidden_input"),
        (
            "  proposal_type: mtp\n  lm_head: {source: target_initializer, name: w}",
            "lm_head",
        ),
        ("  proposal_type: mtp\n  shared_kv: []", "shared_kv"),
    ];
    for (section, part) in cases {
        let yaml = format!("{}speculative:\n{section}\n", super::fake::DECODER_METADATA);
        check_unused(&yaml, vec![("model", super::fake::decoder())], part);
    }
    let (pipeline, _) = super::fake::language_model("");
    let error = Run::new(&pipeline, &settings(Speculation::Head, 3)).unwrap_err();
    assert!(error.to_string().contains("no head"), "{error}");
}

#[test]
fn the_head_of_a_genai_config() {
    let config = r#"{"model": {"context_length": 100, "vocab_size": 8, "type": "qwen3_5",
        "decoder": {"filename": "model.onnx", "num_hidden_layers": 1, "head_size": 1, "num_key_value_heads": 2,
            "inputs": {"input_ids": "input_ids", "past_key_names": "past.%d.key", "past_value_names": "past.%d.value"},
            "outputs": {"logits": "logits", "hidden_states": "hidden_states",
                "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}},
        "mtp": {"filename": "mtp.onnx", "num_hidden_layers": 1, "num_key_value_heads": 1, "head_size": 1,
            "main_hidden_states": "hidden_states",
            "inputs": {"input_ids": "input_ids", "hidden_states": "hidden_states", "attention_mask": "mask",
                "position_ids": "position_ids", "past_key_names": "past.%d.key", "past_value_names": "past.%d.value"},
            "outputs": {"logits": "logits", "hidden_states": "own", "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value"}}}}"#;
    let rows = Arc::new(AtomicUsize::new(0));
    let caches = |ports: &[&'static str], heads: usize| -> Vec<String> {
        let name = |port: &str| port.split(':').next().unwrap().to_owned();
        let (cache, others): (Vec<&str>, Vec<&str>) = ports
            .iter()
            .partition(|port| ["past", "present"].contains(&name(port).as_str()));
        let mut all: Vec<String> = others.into_iter().map(str::to_owned).collect();
        for kind in ["key", "value"] {
            let port = name(cache[0]);
            all.push(format!("{port}.0.{kind}:float32[batch,{heads},{port}_length,1]"));
        }
        all
    };
    let keyed = |inputs: &[&'static str], outputs: &[&'static str], heads: usize, mut fake: Fake| {
        let (inputs, outputs) = (caches(inputs, heads), caches(outputs, heads));
        let names = |ports: &[String]| ports.iter().map(String::as_str).collect::<Vec<_>>().join(";");
        let (inputs, outputs) = (names(&inputs), names(&outputs));
        let io = io(
            &inputs.split(';').collect::<Vec<_>>(),
            &outputs.split(';').collect::<Vec<_>>(),
        );
        Fake::new(io, move |call| {
            let mut made = fake.call(&call.renamed("past.0.key", "past"))?;
            let place = made.iter().position(|(name, _)| *name == "present").unwrap();
            let (_, present) = made.remove(place);
            made.push(("present.0.value", present.view().to_tensor().unwrap()));
            made.push(("present.0.key", present));
            Ok(made)
        })
    };
    let head = keyed(&HEAD_INPUTS[..4], &HEAD_OUTPUTS, 1, head(NEVER, &rows, false));
    let outputs = [&DECODER_OUTPUTS[..], &[HIDDEN]].concat();
    let target = keyed(&TARGET_INPUTS, &outputs, 2, target());
    let source = files(&[("genai_config.json", config)]);
    let pipeline = open_source(&source, vec![("decoder", target), ("mtp", head)]).unwrap();
    let mut run = Run::new(&pipeline, &settings(Speculation::Head, 4)).unwrap();
    run.append_tokens(&[2, 7, 1, 6]).unwrap();
    assert_eq!(steps(&mut run, 16), continuation(&[2, 7, 1, 6], 16, 0));
    assert_eq!(run.stats().passes, 4);
}
