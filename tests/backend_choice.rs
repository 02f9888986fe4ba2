//! Who runs a component, when `auto` decides or when what was asked for cannot be had.

use oxpipe::component::{ComponentErrorKind, ModelSource};
use oxpipe::runtime::{BackendChoice, ComponentOptions, Environment, Runtime, RuntimeSettings};
use oxpipe_test_support::onnx_writer::{Model, Node};

const FLOAT: i32 = 1;

/// One node of this operator from `x` to `y`.
fn model(operator: &str) -> ModelSource {
    let bytes = Model::new()
        .opset("", 17)
        .input("x", FLOAT, "[n]")
        .output("y", FLOAT, "[n]")
        .node(Node::new(operator, &["x"], &["y"]).name("the_node"))
        .encode();
    ModelSource::Memory {
        label: format!("{operator}.onnx"),
        model: std::sync::Arc::new(bytes),
        external: Vec::new(),
    }
}

/// A runtime whose ONNX Runtime is a file that is none.
fn without_library(folder: &tempfile::TempDir) -> Runtime {
    let library = folder.path().join("libonnxruntime.so");
    std::fs::write(&library, "not a library").unwrap();
    let settings = RuntimeSettings {
        ort_library_path: Some(library),
        ..RuntimeSettings::default()
    };
    Runtime::with_environment(settings, Environment::default())
}

fn options(backend: BackendChoice) -> ComponentOptions {
    ComponentOptions {
        backend,
        threads: Some(1),
        ..ComponentOptions::default()
    }
}

#[test]
#[cfg(feature = "native")]
fn auto_is_native_when_native_has_every_operator() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = without_library(&folder);
    let opened = runtime
        .open_component("m", &model("Abs"), &options(BackendChoice::Auto))
        .unwrap();
    assert_eq!(opened.backend, oxpipe::component::Backend::Native);
    assert_eq!(
        opened.reason,
        "auto: the native runtime has every operator of the graph"
    );
}

#[test]
#[cfg(feature = "native")]
fn auto_that_cannot_names_the_operators_and_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = without_library(&folder);
    let open = |choice| {
        runtime
            .open_component("m", &model("NoSuchOperator"), &options(choice))
            .unwrap_err()
    };
    for attempt in 0..2 {
        let error = open(BackendChoice::Auto);
        assert!(
            matches!(error.kind(), ComponentErrorKind::BackendUnavailable { .. }),
            "{error}"
        );
        let message = error.to_string();
        for part in ["component \"m\"", "NoSuchOperator", "the_node", "ONNX Runtime"] {
            assert!(message.contains(part), "attempt {attempt}: {message}");
        }
    }
    let error = open(BackendChoice::Native);
    assert!(matches!(error.kind(), ComponentErrorKind::MissingOperators { missing } if missing.len() == 1));
}

#[test]
#[cfg(feature = "ort")]
fn a_library_that_is_none_is_an_error_and_native_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = without_library(&folder);
    let error = runtime
        .open_component("m", &model("Abs"), &options(BackendChoice::Ort))
        .unwrap_err();
    assert!(
        matches!(error.kind(), ComponentErrorKind::BackendUnavailable { .. }),
        "{error}"
    );
    assert_eq!(error.component, "m");
    let path = folder.path().join("libonnxruntime.so");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    #[cfg(feature = "native")]
    runtime
        .open_component("m", &model("Abs"), &options(BackendChoice::Native))
        .unwrap();
}

#[test]
#[cfg(feature = "native")]
fn a_model_that_is_none_is_the_same_error_for_auto() {
    let folder = tempfile::tempdir().unwrap();
    let gone = ModelSource::file(folder.path().join("gone.onnx"));
    let runtime = Runtime::with_environment(RuntimeSettings::default(), Environment::default());
    for choice in [BackendChoice::Auto, BackendChoice::Native] {
        let error = runtime.open_component("m", &gone, &options(choice)).unwrap_err();
        assert!(matches!(error.kind(), ComponentErrorKind::Io { .. }), "{error}");
    }
}

#[test]
#[cfg(not(feature = "ort"))]
fn a_backend_that_is_not_built_in_names_its_feature() {
    let runtime = Runtime::default();
    let error = runtime
        .open_component("m", &model("Abs"), &options(BackendChoice::Ort))
        .unwrap_err();
    assert!(error.to_string().contains("Cargo feature \"ort\""), "{error}");
}

#[test]
#[cfg(not(feature = "native"))]
fn a_backend_that_is_not_built_in_names_its_feature() {
    let runtime = Runtime::default();
    let error = runtime
        .open_component("m", &model("Abs"), &options(BackendChoice::Native))
        .unwrap_err();
    assert!(error.to_string().contains("Cargo feature \"native\""), "{error}");
}
