//! A run ends when it is cancelled or its deadline passes, and the session goes on.

use std::thread;
use std::time::{Duration, Instant};

use oxpipe::component::{CancelToken, ComponentSession, DataType, Input, RunControl};
use oxpipe_test_support::onnx_writer::{BOOL, FLOAT, Graph, INT64, Model, Node, Tensor};

use super::harness::*;
use crate::assert_kind;

/// Adds 1 to `x` as often as `n` says, one node after the other.
fn counting_loop() -> Box<dyn ComponentSession> {
    let body = Graph::new()
        .input("i", INT64, "[]")
        .input("go_in", BOOL, "[]")
        .input("v_in", FLOAT, "[1]")
        .output("go_out", BOOL, "[]")
        .output("v_out", FLOAT, "[1]")
        .node(Node::new("Identity", &["go_in"], &["go_out"]))
        .node(Node::new("Add", &["v_in", "one"], &["v_out"]));
    load(
        Model::new()
            .input("n", INT64, "[]")
            .input("x", FLOAT, "[1]")
            .output("y", FLOAT, "[1]")
            .initializer(Tensor::floats("one", &[1], &[1.0]))
            .node(Node::new("Loop", &["n", "", "x"], &["y"]).graph("body", body)),
    )
}

/// Far more than any test waits for.
const FOR_EVER: i64 = i64::MAX;

fn inputs<'a>(n: &'a [u8], x: &'a [u8]) -> [Input<'a>; 2] {
    [
        input("n", DataType::Int64, &[], n),
        input("x", DataType::Float32, &[1], x),
    ]
}

fn assert_still_works(session: &mut Box<dyn ComponentSession>, control: &RunControl) {
    let (n, x) = (ints(&[5]), floats(&[0.5]));
    let ran = try_run(session, &inputs(&n, &x), &[room("y", 4)], control).unwrap();
    assert_eq!(ran.got[0].floats(), [5.5]);
}

#[test]
fn cancelled_from_another_thread() {
    let mut session = counting_loop();
    let (n, x) = (ints(&[FOR_EVER]), floats(&[0.0]));
    let token = CancelToken::new();
    let control = RunControl {
        cancel: Some(token.clone()),
        deadline: None,
    };
    for delay in [0, 5, 50] {
        let error = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(delay));
                token.request();
            });
            try_run(&mut session, &inputs(&n, &x), &[room("y", 4)], &control).unwrap_err()
        });
        assert_kind!(error, Kind::Cancelled);
        assert_eq!(error.component, "part");
        // Still requested: the next run does not begin.
        let again = try_run(&mut session, &inputs(&n, &x), &[alloc("y")], &control).unwrap_err();
        assert_kind!(again, Kind::Cancelled);
        token.reset();
        assert_still_works(&mut session, &control);
    }
    assert_still_works(&mut session, &RunControl::default());
}

#[test]
fn the_deadline_ends_a_run_soon_after_it_passes() {
    let mut session = counting_loop();
    let (n, x) = (ints(&[FOR_EVER]), floats(&[0.0]));
    for milliseconds in [30, 60, 20] {
        let start = Instant::now();
        let deadline = start + Duration::from_millis(milliseconds);
        let control = RunControl {
            cancel: None,
            deadline: Some(deadline),
        };
        let error = try_run(&mut session, &inputs(&n, &x), &[alloc("y")], &control).unwrap_err();
        assert_kind!(error, Kind::DeadlineExceeded);
        assert!(Instant::now() >= deadline);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        // One that has passed already.
        let error = try_run(&mut session, &inputs(&n, &x), &[alloc("y")], &control).unwrap_err();
        assert_kind!(error, Kind::DeadlineExceeded);
        assert_still_works(&mut session, &RunControl::default());
    }
}

#[test]
fn runs_within_their_deadline_are_not_disturbed_by_earlier_ones() {
    let mut session = counting_loop();
    let soon = RunControl {
        cancel: None,
        deadline: Some(Instant::now() + Duration::from_millis(300)),
    };
    // In time, unless the machine is busy with something else.
    let one = ints(&[1]);
    if let Err(error) = try_run(&mut session, &inputs(&one, &floats(&[0.0])), &[alloc("y")], &soon) {
        assert_kind!(error, Kind::DeadlineExceeded);
        assert!(Instant::now() >= soon.deadline.unwrap());
    }
    // The thread that waits still has that deadline before it when this one begins.
    let later = RunControl {
        cancel: None,
        deadline: Some(Instant::now() + Duration::from_secs(60)),
    };
    while Instant::now() < soon.deadline.unwrap() + Duration::from_millis(50) {
        assert_still_works(&mut session, &later);
    }
}

#[test]
fn a_cancel_wins_over_a_deadline_that_is_far() {
    let mut session = counting_loop();
    let (n, x) = (ints(&[FOR_EVER]), floats(&[0.0]));
    let token = CancelToken::new();
    let control = RunControl {
        cancel: Some(token.clone()),
        deadline: Some(Instant::now() + Duration::from_secs(3600)),
    };
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            token.request();
        });
        try_run(&mut session, &inputs(&n, &x), &[alloc("y")], &control).unwrap_err()
    });
    assert_kind!(error, Kind::Cancelled);
    // Dropping the session ends its deadline thread, an hour early.
    let start = Instant::now();
    drop(session);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn one_token_ends_the_runs_of_several_sessions() {
    let token = CancelToken::new();
    thread::scope(|scope| {
        let runs: Vec<_> = (0..3)
            .map(|_| {
                let control = RunControl {
                    cancel: Some(token.clone()),
                    deadline: None,
                };
                scope.spawn(move || {
                    let mut session = counting_loop();
                    let (n, x) = (ints(&[FOR_EVER]), floats(&[0.0]));
                    try_run(&mut session, &inputs(&n, &x), &[alloc("y")], &control).unwrap_err()
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(100));
        token.request();
        for run in runs {
            assert_kind!(run.join().unwrap(), Kind::Cancelled);
        }
    });
}
