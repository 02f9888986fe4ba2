//! unload.c: the library as a plug-in that is closed, or whose process ends, with handles
//! still open; alone, with ONNX Runtime, and without one anywhere.

use std::process::Command;

use crate::compiler::{self, C};
use crate::programs::{self, Program};

const ENDINGS: [&str; 3] = ["close", "exit", "_exit"];

fn program() -> Program {
    programs::build_unlinked("unload", C)
}

fn arguments(command: &mut Command, backend: &str, ending: &str) {
    command
        .arg(compiler::library())
        .arg(programs::model_folder())
        .args([backend, ending]);
    if backend == "ort" {
        command.env("ORT_DYLIB_PATH", programs::onnx_runtime());
    }
}

fn ends_clean(command: &mut Command, backend: &str, ending: &str) {
    arguments(command, backend, ending);
    let said = compiler::run(command, &format!("{backend}, {ending}"));
    assert!(
        said.ends_with(" 0 failures\n") && said.lines().count() == 1,
        "{backend}, {ending}: {said}"
    );
}

#[test]
fn with_handles_open() {
    let program = program();
    for backend in programs::backends() {
        for ending in ENDINGS {
            ends_clean(&mut program.command(), backend, ending);
        }
    }
}

/// Under valgrind; a machine without it fails this test instead of leaving it out
/// (scripts/install-tools.sh valgrind).
#[cfg(target_os = "linux")]
#[test]
fn with_handles_open_under_valgrind() {
    let program = program();
    for backend in programs::backends() {
        for ending in ["close", "exit"] {
            ends_clean(&mut program.under_valgrind(), backend, ending);
        }
    }
}

/// No ONNX Runtime anywhere: the error lists where it was looked for, and native works.
#[cfg(all(feature = "native", feature = "ort"))]
#[test]
fn without_onnx_runtime() {
    let program = program();
    let mut command = program.command();
    arguments(&mut command, "native", "absent");
    let said = compiler::run(&mut command, "no ONNX Runtime");
    assert!(said.ends_with(" 0 failures\n"), "{said}");
    let message = said.lines().next().unwrap_or_default();
    assert!(message.contains("libonnxruntime"), "{message}");

    // A path that is no library, from the environment, is named.
    let mut command = program.command();
    arguments(&mut command, "native", "absent");
    command.env("ORT_DYLIB_PATH", "/no/such/libonnxruntime.so");
    let said = compiler::run(&mut command, "a wrong path to ONNX Runtime");
    assert!(
        said.contains("/no/such/libonnxruntime.so") && said.ends_with(" 0 failures\n"),
        "{said}"
    );
}

/// A build without ONNX Runtime says which Cargo feature is missing.
#[cfg(not(feature = "ort"))]
#[test]
fn without_the_feature() {
    let mut command = program().command();
    arguments(&mut command, "native", "absent");
    let said = compiler::run(&mut command, "not built in");
    assert!(
        said.contains("Cargo feature \"ort\"") && said.ends_with(" 0 failures\n"),
        "{said}"
    );
}
