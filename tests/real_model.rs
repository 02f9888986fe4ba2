//! A real language model (SmolLM2-135M-Instruct, cut into an embedding and a decoder) gives
//! the tokens that ONNX Runtime's own Python package gives, whichever backend runs which
//! component, and its decode step moves no bytes at the seam.
//!
//! The expected ids were made with onnxruntime 1.31.1 from Python on the same files. The
//! tightest margin between the first two candidates is 0.08 logit.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use oxpipe::component::RunControl;
use oxpipe::generation::FinishReason;
use oxpipe::package::PackageSource;
#[cfg(feature = "native")]
use oxpipe::pipeline::Speculation;
use oxpipe::pipeline::{Pipeline, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::{BackendChoice, Runtime, RuntimeSettings};
use oxpipe::text::{ChatRequest, ConstraintKind};

const MESSAGES: &str = r#"[{"role": "user", "content": "What is the capital of France?"}]"#;
const PROMPT: [i32; 37] = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182,
    2, 198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
];
const ANSWER: [i32; 8] = [504, 3575, 282, 4649, 314, 7042, 30, 2];
const ANSWER_TEXT: &str = "The capital of France is Paris.";

/// The second turn, after the answer's end token: it only makes sense to a model that still
/// has the first turn in its KV.
const NEXT_TURN: &str = "\n<|im_start|>user\nAnd of Italy?<|im_end|>\n<|im_start|>assistant\n";
const NEXT_ANSWER: [i32; 8] = [504, 3575, 282, 7158, 314, 7268, 30, 2];
const NEXT_ANSWER_TEXT: &str = "The capital of Italy is Rome.";

const NATIVE: BackendChoice = BackendChoice::Native;
const ORT: BackendChoice = BackendChoice::Ort;

/// (embedding, decoder), as far as they are built in.
fn assignments() -> Vec<(BackendChoice, BackendChoice)> {
    let built_in = [
        #[cfg(feature = "native")]
        NATIVE,
        #[cfg(feature = "ort")]
        ORT,
    ];
    [(NATIVE, NATIVE), (ORT, ORT), (NATIVE, ORT), (ORT, NATIVE)]
        .into_iter()
        .filter(|(embedding, decoder)| built_in.contains(embedding) && built_in.contains(decoder))
        .collect()
}

fn fetched(path: &str, script: &str) -> PathBuf {
    let full = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    assert!(
        full.exists(),
        "{} is missing; run {script} to make it",
        full.display()
    );
    full
}

fn open(assignment: (BackendChoice, BackendChoice)) -> Pipeline {
    open_with(assignment, 0)
}

fn open_with((embedding, decoder): (BackendChoice, BackendChoice), prefix_cache_bytes: u64) -> Pipeline {
    let model = fetched(
        "models/smollm2-135m-instruct/inference_metadata.yaml",
        "scripts/fetch-model.sh",
    );
    let mut settings = RuntimeSettings::default();
    if cfg!(feature = "ort") {
        settings.ort_library_path = Some(fetched(
            "third_party/onnxruntime/libonnxruntime.so",
            "scripts/fetch-onnxruntime.sh",
        ));
    }
    let options = PipelineOptions {
        component_backends: vec![("embedding".into(), embedding), ("decoder".into(), decoder)],
        prefix_cache_bytes,
        ..Default::default()
    };
    let folder = model.parent().unwrap().to_owned();
    let pipeline = Pipeline::open(
        &Runtime::new(settings),
        &PackageSource::Directory(folder),
        &options,
        None,
        &RunControl::default(),
    )
    .unwrap_or_else(|error| panic!("embedding on {embedding}, decoder on {decoder}: {error}"));
    for (name, asked) in [("embedding", embedding), ("decoder", decoder)] {
        let runs_on = pipeline.component(name).unwrap().backend;
        assert_eq!(runs_on.to_string(), asked.name(), "{name}");
    }
    pipeline
}

/// Generates to the end: what the events said, and how it ended.
fn answer(run: &mut Run) -> (Vec<i32>, String, Option<FinishReason>) {
    let (mut tokens, mut text) = (Vec::new(), String::new());
    let finish = run
        .generate(&RunControl::default(), &mut |_, event| {
            tokens.extend(event.token);
            text.push_str(&event.text);
            ControlFlow::Continue(())
        })
        .unwrap();
    (tokens, text, finish)
}

#[test]
fn chat_template_and_tokenizer_give_the_published_prompt() {
    let pipeline = open(assignments()[0]);
    let prompt = pipeline
        .chat_template()
        .expect("the package has a chat template")
        .render(&ChatRequest {
            messages: MESSAGES,
            add_generation_prompt: true,
            ..Default::default()
        })
        .unwrap();
    let tokenizer = pipeline.tokenizer().expect("the package has a tokenizer");
    assert_eq!(tokenizer.encode(&prompt, false).unwrap(), PROMPT);
    assert_eq!(tokenizer.decode(&ANSWER, true).unwrap(), ANSWER_TEXT);

    // Digits stand alone, and every byte comes back.
    let hard = "12,345.67 x's été 日本\n\n  \tend";
    let ids = tokenizer.encode(hard, false).unwrap();
    assert_eq!(ids[..9], [33, 34, 28, 35, 36, 37, 30, 38, 39]);
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), hard);
}

#[test]
fn two_turns_are_the_same_on_every_assignment_of_backends() {
    for assignment in assignments() {
        let started = Instant::now();
        let pipeline = open(assignment);
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(&PROMPT).unwrap();
        let (tokens, text, finish) = answer(&mut run);
        assert_eq!(tokens, ANSWER, "{assignment:?}");
        assert_eq!(text, ANSWER_TEXT, "{assignment:?}");
        assert_eq!(
            finish,
            Some(FinishReason::EndOfText { index: 0 }),
            "{assignment:?}"
        );

        run.append_text(NEXT_TURN, false).unwrap();
        let (tokens, text, _) = answer(&mut run);
        assert_eq!(tokens, NEXT_ANSWER, "{assignment:?}");
        assert_eq!(text, NEXT_ANSWER_TEXT, "{assignment:?}");
        println!("{assignment:?}: {:.1} s", started.elapsed().as_secs_f32());
    }
}

/// A schema whose every part is bounded, so that each answer ends.
const SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "population": {"type": "integer", "minimum": 0, "maximum": 99999999},
        "climate": {"enum": ["hot", "mild", "cold"]},
        "rivers": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 2}
    },
    "required": ["name", "population", "climate", "rivers"],
    "additionalProperties": false
}"#;

/// What [`SCHEMA`] says, straight from JSON Schema's definitions.
fn assert_valid(text: &str) {
    let value: serde_json::Value =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let object = value.as_object().unwrap();
    let string = |value: &serde_json::Value, most: usize| {
        value.as_str().is_some_and(|text| text.chars().count() <= most)
    };
    assert_eq!(object.len(), 4, "{text}");
    assert!(string(&object["name"], 16), "{text}");
    assert!(
        (0..=99_999_999).contains(&object["population"].as_i64().unwrap()),
        "{text}"
    );
    assert!(
        ["hot", "mild", "cold"].contains(&object["climate"].as_str().unwrap()),
        "{text}"
    );
    let rivers = object["rivers"].as_array().unwrap();
    assert!(
        rivers.len() <= 2 && rivers.iter().all(|river| string(river, 12)),
        "{text}"
    );
}

/// The most probable answer, and as many drawn ones, which follow the schema.
fn follow_the_schema(seeds: u64) {
    let pipeline = open(assignments()[0]);
    let mut forced = 0;
    for seed in 0..=seeds {
        let mut settings = RunSettings {
            max_tokens: Some(150),
            json_whitespace: 2,
            ..RunSettings::default()
        };
        if seed > 0 {
            settings.seed = Some(seed);
            settings.sampling.set("temperature", "1.5").unwrap();
        }
        let mut run = Run::new(&pipeline, &settings).unwrap();
        let messages = r#"[{"role": "user", "content": "Describe a city as JSON."}]"#;
        let prompt = pipeline.chat_template().unwrap().render(&ChatRequest {
            messages,
            add_generation_prompt: true,
            ..Default::default()
        });
        run.append_text(&prompt.unwrap(), false).unwrap();
        run.set_constraint(Some((ConstraintKind::JsonSchema, SCHEMA)))
            .unwrap();
        let (mut text, mut tokens) = (String::new(), 0);
        let finish = run.generate(&RunControl::default(), &mut |_, event| {
            assert_eq!(event.text_offset, text.len() as u64);
            text.push_str(&event.text);
            forced += u64::from(event.forced);
            tokens += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(
            finish.unwrap(),
            Some(FinishReason::EndOfText { index: 0 }),
            "{text}"
        );
        assert_valid(&text);
        assert_eq!(run.stats().generated_tokens, tokens);
    }
    // The keys are no choice of the model.
    assert!(forced > 0);
}

#[test]
fn answers_follow_a_json_schema() {
    follow_the_schema(3);
}

#[test]
#[ignore = "takes minutes; cargo test --release --test real_model -- --ignored"]
fn two_hundred_drawn_answers_follow_a_json_schema() {
    follow_the_schema(200);
}

#[cfg(debug_assertions)] // release builds do not count
#[test]
fn a_decode_step_copies_nothing_at_the_seam() {
    use oxpipe::component::copied_bytes;

    for assignment in assignments() {
        let pipeline = open(assignment);
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(&PROMPT).unwrap();
        // The prompt's own step, and one that may still grow buffers.
        for _ in 0..2 {
            run.step(&RunControl::default()).unwrap();
        }
        for _ in 0..4 {
            let before = copied_bytes().expect("debug builds count");
            let event = run.step(&RunControl::default()).unwrap();
            assert!(event.finish.is_none());
            assert_eq!(
                copied_bytes().expect("debug builds count") - before,
                0,
                "{assignment:?}"
            );
        }
        assert_eq!(run.tokens()[PROMPT.len()..], ANSWER[..6], "{assignment:?}");
    }
}

/// Logits of the last position, to the last bit.
fn bits(run: &Run) -> Vec<u32> {
    run.logits()
        .unwrap()
        .iter()
        .map(|logit| logit.to_bits())
        .collect()
}

fn chat(pipeline: &Pipeline, question: &str) -> Run {
    let prompt = format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n");
    let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
    run.append_text(&prompt, false).unwrap();
    run
}

fn step(run: &mut Run) -> (i32, String) {
    let event = run.step(&RunControl::default()).unwrap();
    (event.token.unwrap(), event.text)
}

#[test]
fn forks_loaded_and_rewound_runs_go_on_by_the_same_tokens() {
    for assignment in assignments() {
        let pipeline = open(assignment);
        let question = "Write three emoji and a French proverb.";
        let mut run = chat(&pipeline, question);
        let prompt = run.tokens().len();
        let alone: Vec<(i32, String)> = (0..24).map(|_| step(&mut run)).collect();
        let last = bits(&run);
        let mut run = chat(&pipeline, question);
        for taken in [0, 1, 7, 16] {
            while run.tokens().len() < prompt + taken {
                step(&mut run);
            }
            let mut fork = run.fork().unwrap();
            let state = run.save().unwrap();
            let mut loaded = Run::load(&pipeline, &RunSettings::default(), &state).unwrap();
            for expected in &alone[taken..] {
                assert_eq!(step(&mut fork), *expected, "{assignment:?} forked after {taken}");
                assert_eq!(
                    step(&mut loaded),
                    *expected,
                    "{assignment:?} loaded after {taken}"
                );
            }
            assert!(bits(&fork) == last && bits(&loaded) == last, "{assignment:?}");
            // Back to where it was taken; the text begins anew there.
            fork.rewind(prompt + taken).unwrap();
            let again: Vec<i32> = (taken..24).map(|_| step(&mut fork).0).collect();
            let expected: Vec<i32> = alone[taken..].iter().map(|(token, _)| *token).collect();
            assert_eq!(again, expected, "{assignment:?} rewound to {taken}");
        }
    }
}

#[test]
fn runs_of_a_batch_have_the_logits_that_each_has_alone() {
    let questions = [
        "What is the capital of France?",
        "Name a colour.",
        "Count to five, in words, slowly.",
        "Who wrote Hamlet?",
        "What is two plus two?",
        "Say hello in Italian.",
        "Name a large river in Asia and one in Africa.",
        "Is water wet?",
    ];
    for assignment in assignments() {
        let pipeline = open(assignment);
        let alone: Vec<Vec<(i32, Vec<u32>)>> = questions
            .iter()
            .map(|question| {
                let mut run = chat(&pipeline, question);
                let mut steps = Vec::new();
                while steps.len() < 8 && run.finished().is_none() {
                    steps.push((step(&mut run).0, bits(&run)));
                }
                steps
            })
            .collect();
        // The nth joins in the nth step.
        let mut runs: Vec<Run> = questions
            .iter()
            .map(|question| chat(&pipeline, question))
            .collect();
        for round in 0..14 {
            let mut taking_part = Vec::new();
            let mut members = Vec::new();
            for (index, run) in runs.iter_mut().enumerate() {
                if (index..index + 8).contains(&round) && run.finished().is_none() {
                    taking_part.push(index);
                    members.push(run);
                }
            }
            let outcomes = Run::step_together(&mut members, &RunControl::default());
            for (&index, outcome) in taking_part.iter().zip(outcomes) {
                let (token, logits) = &alone[index][round - index];
                assert_eq!(outcome.unwrap().token, Some(*token), "{assignment:?} {index}");
                assert!(
                    bits(&runs[index]) == *logits,
                    "{assignment:?}: run {index} in step {round}"
                );
            }
        }
    }
}

#[cfg(feature = "native")]
#[test]
fn guesses_change_no_token() {
    let pipeline = open((NATIVE, NATIVE));
    let question = "Repeat this list three times: red, green, blue, red, green, blue.";
    let mut plain = chat(&pipeline, question);
    let expected: Vec<(i32, String)> = (0..40).map(|_| step(&mut plain)).collect();
    let settings = RunSettings {
        speculation: Speculation::PromptLookup,
        ..RunSettings::default()
    };
    let prompt = plain.tokens()[..plain.tokens().len() - 40].to_vec();
    let looked_up = || {
        let mut run = Run::new(&pipeline, &settings).unwrap();
        run.append_tokens(&prompt).unwrap();
        run
    };
    let mut drafted = chat(&pipeline, question);
    drafted.set_draft(&pipeline).unwrap();
    for mut run in [looked_up(), drafted] {
        let found: Vec<(i32, String)> = (0..40).map(|_| step(&mut run)).collect();
        assert_eq!(found, expected);
        assert!(bits(&run) == bits(&plain));
        let stats = run.stats();
        assert!(stats.accepted_tokens > 0 && stats.passes < 40, "{stats:?}");
    }
}

#[test]
fn a_prompt_that_begins_as_another_runs_only_what_is_new() {
    for assignment in assignments() {
        let plain = open(assignment);
        let pipeline = open_with(assignment, 64 << 20);
        let system = "<|im_start|>system\nYou answer in one short sentence.<|im_end|>\n<|im_start|>user\n";
        let questions = ["What is the capital of France?", "Who wrote Hamlet?"];
        for (index, question) in questions.into_iter().enumerate() {
            let prompt = format!("{system}{question}<|im_end|>\n<|im_start|>assistant\n");
            let mut answers = Vec::new();
            for pipeline in [&plain, &pipeline] {
                let mut run = Run::new(pipeline, &RunSettings::default()).unwrap();
                run.append_text(&prompt, false).unwrap();
                answers.push(answer(&mut run));
                let reused = run.stats().reused_tokens;
                let expected = index == 1 && answers.len() == 2;
                assert_eq!(reused > 10, expected, "{assignment:?}: {reused} tokens");
            }
            assert_eq!(answers[0], answers[1], "{assignment:?}");
        }
    }
}
