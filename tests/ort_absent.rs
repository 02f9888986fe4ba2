//! No usable ONNX Runtime: what is tried, what is said, how soon. No test here loads the
//! real library, and none may: the process must stay without one.
#![cfg(feature = "ort")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use oxpipe::component::{ComponentError, ComponentErrorKind};
use oxpipe::ort::{OrtLibrary, OrtSearch};
use oxpipe_test_support::cpu_time::cpu_time;
use tempfile::TempDir;

fn by_option(path: impl Into<PathBuf>) -> OrtSearch {
    OrtSearch {
        option: Some(path.into()),
        environment: None,
    }
}

/// The message of a load that must fail for want of a library.
fn message(search: &OrtSearch) -> String {
    let start = cpu_time();
    let error: ComponentError = OrtLibrary::load(search).expect_err("no library should have been usable");
    let spent = cpu_time() - start;
    assert!(spent < Duration::from_millis(500), "{spent:?}");
    assert!(
        matches!(error.kind(), ComponentErrorKind::BackendUnavailable { .. }),
        "{:?}",
        error.kind()
    );
    error.to_string()
}

#[track_caller]
fn assert_names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "\"{part}\" should be in: {message}");
    }
}

/// A shared library of this C source.
fn compile(folder: &TempDir, source: &str) -> PathBuf {
    let c_file = folder.path().join("library.c");
    let library = folder.path().join("libonnxruntime.so");
    fs::write(&c_file, source).unwrap();
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &c_file])
        .status()
        .expect("a C compiler, cc, is needed");
    assert!(status.success());
    library
}

/// A library that says it is `version` and has no API that is asked of it.
fn library_without_api(version: &str) -> String {
    format!(
        r#"
        struct Base {{ const void *(*get_api)(unsigned); const char *(*get_version)(void); }};
        static const void *get_api(unsigned version) {{ (void)version; return 0; }}
        static const char *get_version(void) {{ return "{version}"; }}
        static const struct Base base = {{ get_api, get_version }};
        const struct Base *OrtGetApiBase(void) {{ return &base; }}
        "#
    )
}

#[test]
fn nothing_anywhere_lists_every_place_and_what_to_do() {
    let message = message(&OrtSearch::default());
    let beside = std::env::current_exe().unwrap();
    assert_names(
        &message,
        &[
            beside.parent().unwrap().to_str().unwrap(),
            "beside liboxpipe",
            "libonnxruntime",
            "the system's search path",
            "ort_library",
            "ORT_DYLIB_PATH",
            "scripts/fetch-onnxruntime.sh",
            "1.17 or newer",
        ],
    );
}

#[test]
fn a_path_that_is_not_there_is_an_error_whoever_gave_it() {
    let path = "/nowhere/libonnxruntime.so";
    let option = message(&by_option(path));
    assert_names(&option, &[path, "option ort_library", "No such file"]);
    // What comes after a given path is not tried.
    assert!(!option.contains("system's search path"), "{option}");
    let environment = message(&OrtSearch {
        option: None,
        environment: Some(path.into()),
    });
    assert_names(&environment, &[path, "(ORT_DYLIB_PATH)", "No such file"]);
    assert_names(&message(&by_option("")), &["the path is empty"]);
    assert_names(
        &message(&by_option("libno-such-name.so")),
        &["libno-such-name.so", "cannot open shared object file"],
    );
}

#[test]
fn the_option_comes_before_the_environment() {
    let message = message(&OrtSearch {
        option: Some("/nowhere/of-option.so".into()),
        environment: Some("/nowhere/of-environment.so".into()),
    });
    assert_names(&message, &["/nowhere/of-option.so"]);
    assert!(!message.contains("of-environment"), "{message}");
}

#[test]
fn an_environment_set_to_nothing_counts_as_unset() {
    let message = message(&OrtSearch {
        option: None,
        environment: Some(PathBuf::new()),
    });
    assert_names(&message, &["beside liboxpipe"]);
}

#[test]
fn a_text_file_is_not_a_library() {
    let folder = TempDir::new().unwrap();
    for text in ["", "this is no library\n"] {
        let path = folder.path().join("libonnxruntime.so");
        fs::write(&path, text).unwrap();
        let message = message(&by_option(&path));
        assert_names(&message, &[path.to_str().unwrap(), "file too short"]);
    }
    let path = folder.path().join("long.so");
    fs::write(&path, "no library ".repeat(1000)).unwrap();
    assert_names(&message(&by_option(&path)), &["long.so", "invalid ELF header"]);
}

#[test]
fn a_folder_without_the_library_says_so() {
    let folder = TempDir::new().unwrap();
    fs::write(
        folder.path().join("libonnxruntime_providers_shared.so"),
        "not this one",
    )
    .unwrap();
    let message = message(&by_option(folder.path()));
    assert_names(
        &message,
        &[folder.path().to_str().unwrap(), "holds no libonnxruntime.so"],
    );
}

#[test]
fn another_library_is_told_from_onnx_runtime() {
    let folder = TempDir::new().unwrap();
    let path = compile(&folder, "int answer(void) { return 42; }");
    assert_names(&message(&by_option(&path)), &["has no function OrtGetApiBase"]);
    // A folder stands for the library in it.
    assert_names(
        &message(&by_option(folder.path())),
        &[
            path.file_name().unwrap().to_str().unwrap(),
            "has no function OrtGetApiBase",
        ],
    );
}

#[test]
fn a_library_that_is_too_old_says_its_version_and_the_one_needed() {
    let folder = TempDir::new().unwrap();
    let path = compile(&folder, &library_without_api("1.10.0"));
    assert_names(
        &message(&by_option(&path)),
        &["ONNX Runtime 1.10.0 is too old", "1.17 or newer"],
    );
    // And one that does not say so, but has no such API.
    for version in ["dev", "1.99.0", "2.0.0"] {
        let folder = TempDir::new().unwrap();
        let path = compile(&folder, &library_without_api(version));
        let message = message(&by_option(&path));
        let words = format!("ONNX Runtime {version} does not offer API version 17");
        assert_names(&message, &[&words]);
        assert!(!message.contains("too old"), "{message}");
    }
}

/// The loader maps what the headers speak of, and ends the process at what is not there.
#[test]
fn a_truncated_library_is_refused_before_it_is_opened() {
    let folder = TempDir::new().unwrap();
    let path = compile(&folder, &library_without_api("1.31.1"));
    let whole = fs::read(&path).unwrap();
    for length in [whole.len() - 1, whole.len() / 2, 100, 20] {
        fs::write(&path, &whole[..length]).unwrap();
        let words = format!("truncated: it has {length} bytes, and its headers speak of ");
        assert_names(&message(&by_option(&path)), &[&words]);
        assert_names(&message(&by_option(folder.path())), &[&words]);
    }
}

#[test]
fn a_library_that_is_no_file_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("libonnxruntime.so");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert_names(
        &message(&by_option(&path)),
        &["it is a pipe, expected a regular file"],
    );
    assert_names(&message(&by_option("/dev/zero")), &["it is a device"]);
}

#[test]
fn one_that_gives_nothing_at_all_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = compile(&folder, "void *OrtGetApiBase(void) { return 0; }");
    assert_names(&message(&by_option(&path)), &["OrtGetApiBase gives nothing"]);
}

#[test]
fn a_relative_path_is_relative_to_the_current_folder() {
    // Cargo runs tests in the package's folder.
    let path = Path::new("tests/ort_absent.rs");
    assert!(path.exists());
    let message = message(&by_option(path));
    assert_names(&message, &["tests/ort_absent.rs", "invalid ELF header"]);
}
