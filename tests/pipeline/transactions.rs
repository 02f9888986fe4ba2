//! A call that fails leaves the run as it was, and usable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use oxpipe::component::{CancelToken, ComponentErrorKind, DataType, RunControl, TensorView};
use oxpipe::pipeline::{ErrorKind, Run, RunSettings};

use super::fake::{continuation, floats, language_model};

const PROMPT: [i32; 4] = [2, 7, 1, 6];

fn failure() -> ComponentErrorKind {
    ComponentErrorKind::Node {
        node: "layers.0/attn".into(),
        op: "MatMul".into(),
        message: "made to fail".into(),
    }
}

#[test]
fn a_step_that_fails_can_be_taken_again() {
    let expected = continuation(&PROMPT, 6, 0);
    for failing in 0..6 {
        let (pipeline, watch) = language_model("");
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(&PROMPT).unwrap();
        let control = RunControl::default();
        for (step, &token) in expected.iter().enumerate() {
            if step == failing {
                let tokens = run.tokens().to_vec();
                let logits = run.logits().map(<[f32]>::to_vec).ok();
                let present = run.get_tensor("model.present").unwrap().to_tensor().unwrap();
                watch.fail_next(failure());
                let error = run.step(&control).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::RunFailed);
                assert_eq!(error.component(), Some("model"));
                assert_eq!(error.node(), Some("layers.0/attn"));
                assert_eq!(run.tokens(), tokens);
                assert_eq!(run.logits().map(<[f32]>::to_vec).ok(), logits);
                let after = run.get_tensor("model.present").unwrap();
                assert_eq!((after.shape(), after.bytes()), (present.shape(), present.bytes()));
            }
            assert_eq!(
                run.step(&control).unwrap().token,
                Some(token),
                "failing at {failing}"
            );
        }
    }
}

#[test]
fn a_step_that_panics_can_be_rolled_back_and_taken_again() {
    let expected = continuation(&PROMPT, 6, 0);
    for panicking in 0..6 {
        let (pipeline, watch) = language_model("");
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(&PROMPT).unwrap();
        let control = RunControl::default();
        for (step, &token) in expected.iter().enumerate() {
            if step == panicking {
                let tokens = run.tokens().to_vec();
                let present = run.get_tensor("model.present").unwrap().to_tensor().unwrap();
                watch.panic_next();
                catch_unwind(AssertUnwindSafe(|| run.step(&control))).unwrap_err();
                run.roll_back();
                assert_eq!(run.tokens(), tokens);
                let after = run.get_tensor("model.present").unwrap();
                assert_eq!((after.shape(), after.bytes()), (present.shape(), present.bytes()));
            }
            assert_eq!(
                run.step(&control).unwrap().token,
                Some(token),
                "panicking at {panicking}"
            );
        }
    }
}

#[test]
fn a_chunk_that_fails_does_not_spoil_those_before_it() {
    let (pipeline, watch) = language_model("");
    let settings = RunSettings {
        chunk_size: Some(1),
        ..RunSettings::default()
    };
    let mut run = Run::new(&pipeline, &settings).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    watch.with(|watched| {
        watched.fail_at = Some(2);
        watched.fail_with = Some(failure());
    });
    run.step(&RunControl::default()).unwrap_err();
    assert_eq!(run.tokens(), PROMPT);
    let event = run.step(&RunControl::default()).unwrap();
    assert_eq!(event.token, Some(continuation(&PROMPT, 1, 0)[0]));
    assert_eq!(watch.runs(), 3 + 2);
}

#[test]
fn a_cancelled_or_late_call_leaves_the_run_usable() {
    let (pipeline, watch) = language_model("");
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    let cancel = CancelToken::new();
    let control = RunControl {
        cancel: Some(cancel.clone()),
        ..RunControl::default()
    };
    cancel.request();
    assert_eq!(run.step(&control).unwrap_err().kind(), ErrorKind::Cancelled);
    let late = RunControl {
        deadline: Some(Instant::now() - Duration::from_millis(1)),
        ..RunControl::default()
    };
    assert_eq!(run.step(&late).unwrap_err().kind(), ErrorKind::DeadlineExceeded);
    assert_eq!(watch.runs(), 0);
    cancel.reset();
    assert_eq!(
        run.step(&control).unwrap().token,
        Some(continuation(&PROMPT, 1, 0)[0])
    );
}

#[test]
fn an_append_happens_whole_or_not() {
    let (pipeline, _) = language_model("");
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    let error = run.append_tokens(&[1, 8, 2]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "token id 8 is outside of the vocabulary of 8 tokens"
    );
    assert!(run.append_tokens(&[1, -1]).is_err());
    assert!(run.tokens().is_empty());
    let error = run.append_text("no tokenizer", false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    run.append_tokens(&[]).unwrap();
    assert_eq!(
        run.step(&RunControl::default()).unwrap_err().kind(),
        ErrorKind::InvalidState
    );
}

#[test]
fn wrong_addresses_and_values_are_refused_at_once() {
    let (pipeline, _) = language_model("");
    let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
    let bytes = 7i64.to_le_bytes();
    let ids = TensorView::new(DataType::Int64, &[1, 1], &bytes).unwrap();
    let mut refused = |address: &str| {
        let error = run.set_input(address, ids).unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, message) = refused("model.input_ids");
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert_eq!(
        message,
        "input \"input_ids\" of component \"model\" is not yours to set: it is fed by the run's tokens"
    );
    assert_eq!(refused("model.nothing").0, ErrorKind::UnknownPort);
    assert_eq!(refused("nobody.input_ids").0, ErrorKind::UnknownComponent);
    let (kind, message) = refused("input_ids");
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert!(message.contains("component.port"), "{message}");
    let error = run.get_tensor("model.logits").unwrap_err();
    assert_eq!(error.to_string(), "model.logits has no value yet; step first");
    assert_eq!(
        run.get_tensor("model.nothing").unwrap_err().port(),
        Some("nothing")
    );
    run.append_tokens(&PROMPT).unwrap();
    run.step(&RunControl::default()).unwrap();
    let last = run.get_tensor("model.logits").unwrap();
    assert_eq!(last.shape(), [1, 1, 8]);
    let last = floats(last);
    assert_eq!(run.logits().unwrap(), last);
    let all = RunSettings {
        all_logits: true,
        ..RunSettings::default()
    };
    let mut run = Run::new(&pipeline, &all).unwrap();
    run.append_tokens(&PROMPT).unwrap();
    run.step(&RunControl::default()).unwrap();
    let rows = run.get_tensor("model.logits").unwrap();
    assert_eq!(rows.shape(), [1, 4, 8]);
    assert_eq!(floats(rows)[3 * 8..], last);
    assert_eq!(run.logits().unwrap(), last);
    let bad = RunSettings {
        max_tokens: Some(0),
        ..RunSettings::default()
    };
    assert_eq!(
        Run::new(&pipeline, &bad).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}
