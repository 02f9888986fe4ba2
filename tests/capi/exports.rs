//! What the library exports: the functions of the header, and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{compiler, header};

/// Names that the library defines for others.
fn exported(library: &Path) -> Vec<String> {
    let said = compiler::run(
        Command::new("nm").args(["-D", "--defined-only"]).arg(library),
        "listing symbols",
    );
    let mut names: Vec<String> = said
        .lines()
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// The library as it ships: built like a user would, beside what this test was built into.
#[cfg(all(feature = "native", feature = "ort"))]
fn release_library() -> PathBuf {
    let folder = compiler::library();
    let target = folder.ancestors().nth(3).expect("the target folder");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--lib", "--locked"])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target);
    compiler::run(&mut cargo, "building the release library");
    target
        .join("release")
        .join(folder.file_name().expect("the library's name"))
}

#[cfg(target_os = "linux")]
#[test]
fn are_the_functions_of_the_header() {
    let functions = header::functions();
    assert!(
        functions.len() > 60,
        "the header declares {} functions",
        functions.len()
    );
    assert_eq!(exported(&compiler::library()), functions);
}

#[cfg(all(target_os = "linux", feature = "native", feature = "ort"))]
#[test]
fn of_the_release_library_are_the_functions_of_the_header() {
    let library = release_library();
    assert_eq!(exported(&library), header::functions());

    let said = compiler::run(
        Command::new("readelf").arg("-d").arg(&library),
        "reading the dynamic section",
    );
    assert!(said.contains("Library soname: [liboxpipe.so.0]"), "{said}");
    assert!(said.contains("NODELETE"), "{said}");

    // The hooks of these tests are in the library that they run, and not in the other.
    let holds_hook = |library: &Path| {
        let bytes = std::fs::read(library).expect("the library can be read");
        let hook = b"a panic that a test asked for";
        bytes.windows(hook.len()).any(|window| window == hook)
    };
    assert!(holds_hook(&compiler::library()));
    assert!(!holds_hook(&library));
}

/// Each function is called by a program that was written by hand, beside the generated ones.
#[test]
fn are_all_called_by_the_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("capi_tests");
    let mut sources = String::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("capi_tests is there")
        .map(|entry| entry.expect("a file of capi_tests").path())
        .collect();
    files.sort();
    for file in files {
        let is_program = file.extension().is_some_and(|extension| extension == "c");
        if is_program {
            sources +=
                &header::without_comments(&std::fs::read_to_string(file).expect("a program can be read"));
        }
    }
    let uncalled: Vec<String> = header::functions()
        .into_iter()
        .filter(|function| !sources.contains(&format!("{function}(")))
        .collect();
    assert!(uncalled.is_empty(), "no program in capi_tests calls {uncalled:?}");
}
