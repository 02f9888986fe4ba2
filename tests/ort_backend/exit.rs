//! The process may end with anything open: it ends cleanly and nothing is printed.

use std::env;
use std::process::{Command, Output};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use oxpipe::component::{ComponentSession, DataType, RunControl};
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node};

use super::harness::*;

/// Set in a child process, which plays the part of a host that ends.
const CHILD: &str = "OXP_TEST_ORT_EXIT_CHILD";

/// Runs the named test of this program in a process of its own.
fn child(test: &str) -> Output {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap()
}

fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

#[track_caller]
fn assert_clean(output: &Output, said: &str) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{stdout}\n{stderr}");
    assert!(stdout.contains(said), "{stdout}");
    assert_eq!(stderr, "");
}

fn negate() -> Box<dyn ComponentSession> {
    load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .output("y", FLOAT, "[n]")
            .node(Node::new("Neg", &["x"], &["y"])),
    )
}

fn run_once(session: &mut Box<dyn ComponentSession>) -> Result<Vec<f32>, String> {
    let x = floats(&[1.0, -2.0]);
    let inputs = [input("x", DataType::Float32, &[2], &x)];
    let control = RunControl {
        cancel: None,
        deadline: Some(Instant::now() + Duration::from_secs(60)),
    };
    try_run(session, &inputs, &[alloc("y")], &control)
        .map(|ran| ran.got[0].floats())
        .map_err(|error| error.to_string())
}

static OPEN: Mutex<Option<Box<dyn ComponentSession>>> = Mutex::new(None);

#[test]
fn exit_with_a_session_open() {
    if is_child() {
        let mut session = negate();
        assert_eq!(run_once(&mut session).unwrap(), [-1.0, 2.0]);
        *OPEN.lock().unwrap() = Some(session);
        println!("ran");
        std::process::exit(7);
    }
    assert_clean(&child("exit::exit_with_a_session_open"), "ran");
}

/// Registered before the library was loaded, so that it runs after the library's own
/// destructors.
extern "C" fn run_at_exit() {
    let mut open = OPEN.lock().unwrap();
    let Some(session) = &mut *open else { return };
    match run_once(session) {
        Ok(values) => println!("at exit: {values:?}"),
        Err(message) => println!("at exit: {message}"),
    }
    *open = None;
    println!("freed");
}

#[test]
fn a_run_inside_exit_gives_a_value_or_an_error() {
    if is_child() {
        // SAFETY: a function that does not unwind (a panic in it aborts, and fails the test).
        assert_eq!(unsafe { libc::atexit(run_at_exit) }, 0);
        let mut session = negate();
        assert_eq!(run_once(&mut session).unwrap(), [-1.0, 2.0]);
        *OPEN.lock().unwrap() = Some(session);
        std::process::exit(7);
    }
    let output = child("exit::a_run_inside_exit_gives_a_value_or_an_error");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert_clean(&output, "freed");
}

#[test]
fn exit_while_another_thread_runs() {
    if is_child() {
        let (runs, ran) = mpsc::channel();
        std::thread::spawn(move || {
            let mut session = negate();
            loop {
                let _ = run_once(&mut session);
                let _ = runs.send(());
            }
        });
        ran.recv().unwrap();
        println!("leaving");
        std::process::exit(7);
    }
    assert_clean(&child("exit::exit_while_another_thread_runs"), "leaving");
}
