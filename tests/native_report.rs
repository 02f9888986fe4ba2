//! What a model is made of, and what a run of it would take.
#![cfg(feature = "native")]

use std::sync::Arc;

use oxpipe::component::ModelSource;
use oxpipe::native::{NativeOptions, NativeSession, OperatorUse, RunEstimate, report};
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node, Tensor};

fn memory(model: Model) -> ModelSource {
    ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    }
}

fn operator(domain: &str, op_type: &str, count: usize, native: Result<i64, String>) -> OperatorUse {
    OperatorUse {
        domain: domain.into(),
        op_type: op_type.into(),
        version: if domain.is_empty() { 17 } else { 1 },
        count,
        native,
    }
}

#[test]
fn operators_are_listed_with_those_that_are_missing() {
    let model = Model::new()
        .opset("", 17)
        .input("x", FLOAT, "[n, 4]")
        .output("y", FLOAT, "[n, 4]")
        .initializer(Tensor::floats("one", &[], &[1.0]))
        .node(Node::new("Add", &["x", "one"], &["a"]))
        .node(Node::new("Add", &["a", "one"], &["b"]))
        .node(Node::new("Swirl", &["b"], &["y"]).domain("com.example"));
    let report = report(&memory(model)).unwrap();
    assert_eq!(report.io.inputs.len(), 1);
    assert_eq!(report.io.outputs[0].name, "y");
    assert_eq!(
        report.operators,
        [
            operator("", "Add", 2, Ok(14)),
            operator("com.example", "Swirl", 1, Err("no such operator".into())),
        ]
    );
}

#[test]
fn a_run_is_estimated_from_shapes() {
    // [5, 4] x [4, 3] + [3], then a Relu; a second branch that follows from shapes alone.
    let model = Model::new()
        .opset("", 17)
        .input("x", FLOAT, "[n, 4]")
        .output("y", FLOAT, "[n, 3]")
        .initializer(Tensor::floats("w", &[4, 3], &[0.5; 12]))
        .initializer(Tensor::floats("b", &[3], &[0.5; 3]))
        .node(Node::new("MatMul", &["x", "w"], &["product"]))
        .node(Node::new("Add", &["product", "b"], &["sum"]))
        .node(Node::new("Shape", &["sum"], &["shape"]))
        .node(Node::new("Reshape", &["sum", "shape"], &["same"]))
        .node(Node::new("Relu", &["same"], &["y"]));
    let model = memory(model);
    let without = NativeOptions {
        disabled_passes: "all".parse().unwrap(),
        ..NativeOptions::default()
    };
    let mut session = NativeSession::load("test", &model, &without).unwrap();
    let as_written = RunEstimate {
        nodes: 4,
        with_graphs: 0,
        weight_bytes: 12 * 4 + 3 * 4,
        // Two results of 5 x 3 floats at a time.
        peak_bytes: 2 * 5 * 3 * 4,
        unknown: 0,
        multiply_adds: 5 * 4 * 3,
    };
    assert_eq!(session.estimate(&[("x", &[5, 4])]).unwrap(), as_written);
    // All of it as one FusedGemm, with one result.
    let mut session = NativeSession::load("test", &model, &NativeOptions::default()).unwrap();
    let fused = RunEstimate {
        nodes: 1,
        peak_bytes: 5 * 3 * 4,
        ..as_written
    };
    assert_eq!(session.estimate(&[("x", &[5, 4])]).unwrap(), fused);
    let error = session.estimate(&[("z", &[1])]).unwrap_err();
    assert!(error.to_string().contains("there is no input \"z\""), "{error}");
}
