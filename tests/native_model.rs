//! Models as the native runtime reads and runs them: what a file may and may not hold, and
//! how values get in and out. Operators have their own tests.
#![cfg(feature = "native")]

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxpipe::component::{
    CancelToken, ComponentError, ComponentErrorKind, ComponentSession, DataType, Input, ModelSource, Output,
    OutputResult, PortType, RunControl, TensorView, copied_bytes,
};
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{self as onnx, FLOAT, INT64, Message, Model, Node, Tensor};

fn in_memory(model: Vec<u8>) -> ModelSource {
    ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model),
        external: Vec::new(),
    }
}

fn load(source: &ModelSource) -> Result<NativeSession, ComponentError> {
    NativeSession::load("part", source, &NativeOptions::default())
}

fn load_model(model: Model) -> NativeSession {
    load(&in_memory(model.encode())).unwrap()
}

fn bytes<T: Copy, const N: usize>(values: &[T], to_bytes: fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| to_bytes(value)).collect()
}

fn floats(values: &[f32]) -> Vec<u8> {
    bytes(values, f32::to_le_bytes)
}

/// Runs for one output, allocated by the backend.
fn run_one(session: &mut NativeSession, inputs: &[Input<'_>], output: &str) -> (DataType, Vec<i64>, Vec<u8>) {
    let mut outputs = [Output::alloc(output)];
    let session: &mut dyn ComponentSession = session;
    session.run(inputs, &mut outputs, &RunControl::default()).unwrap();
    match &outputs[0].result {
        OutputResult::Owned(tensor) => (tensor.dtype(), tensor.shape().to_vec(), tensor.bytes().to_vec()),
        other => panic!("expected an owned tensor, found {other:?}"),
    }
}

#[test]
fn a_value_passes_through() {
    let mut session = load_model(
        Model::new()
            .input("x", FLOAT, "[batch, 2]")
            .output("y", FLOAT, "[batch, 2]")
            .node(Node::new("Identity", &["x"], &["hidden"]))
            .node(Node::new("Identity", &["hidden"], &["y"])),
    );
    let data = floats(&[1.0, -2.0, 3.0, 4.5]);
    let x = Input {
        name: "x",
        value: TensorView::new(DataType::Float32, &[2, 2], &data).unwrap(),
    };
    assert_eq!(
        run_one(&mut session, &[x], "y"),
        (DataType::Float32, vec![2, 2], data.clone())
    );
}
