//! The results of a native component are the same bytes on any number of threads.
#![cfg(feature = "native")]

use std::sync::Arc;

use oxpipe::component::ModelSource;
use oxpipe::native::tensor::Tensor;
use oxpipe::native::workers::Workers;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node};

/// Numbers whose sums are rounded.
fn noise(dims: &[usize], seed: u64) -> Tensor {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..dims.iter().product()).map(|_| next()).collect();
    Tensor::from_slice(dims, &values).unwrap()
}

/// The bytes of the outputs on 1 thread, held to those on 2, 3 and 4.
fn check(model: Model, inputs: &[(&str, Tensor)], outputs: &[&str]) {
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    let inputs: Vec<_> = inputs
        .iter()
        .map(|(name, tensor)| (*name, tensor.view()))
        .collect();
    let run = |threads: usize| -> Vec<Vec<u8>> {
        let workers = Workers::new(threads);
        let mut session = NativeSession::load(
            "",
            &source,
            &NativeOptions {
                workers,
                ..NativeOptions::default()
            },
        )
        .unwrap();
        let results = session.run_tensors(&inputs, outputs).unwrap();
        let bytes = results
            .iter()
            .map(|tensor| tensor.view().bytes().unwrap().to_vec());
        bytes.collect()
    };
    let alone = run(1);
    for threads in [2, 3, 4] {
        for ((alone, several), name) in alone.iter().zip(run(threads)).zip(outputs) {
            assert!(*alone == several, "{name} on {threads} threads");
        }
    }
}

#[test]
fn products_of_matrices() {
    for rows in [1, 3, 7, 210] {
        let mut model = Model::new().opset("", 21);
        for name in ["a", "b", "bt", "c", "heads", "keys"] {
            model = model.input(name, FLOAT, "[...]");
        }
        let mut outputs = vec!["y32", "gemm", "scores"];
        model = model
            .node(Node::new("MatMul", &["a", "b"], &["y32"]))
            .node(Node::new("Gemm", &["a", "bt", "c"], &["gemm"]).int("transB", 1))
            .node(Node::new("MatMul", &["heads", "keys"], &["scores"]));
        for (to, name) in [(10, "y16"), (16, "ybf16"), (11, "y64")] {
            let (a, b) = (format!("a{to}"), format!("b{to}"));
            model = model
                .node(Node::new("Cast", &["a"], &[&a]).int("to", to))
                .node(Node::new("Cast", &["b"], &[&b]).int("to", to))
                .node(Node::new("MatMul", &[&a, &b], &[name]));
            outputs.push(name);
        }
        let model = outputs.iter().fold(model, |model, name| {
            model.graph(|graph| graph.untyped_output(name))
        });
        let inputs = [
            ("a", noise(&[rows, 301], 1)),
            ("b", noise(&[301, 1100], 2)),
            ("bt", noise(&[1100, 301], 3)),
            ("c", noise(&[1100], 4)),
            ("heads", noise(&[2, 9, rows, 64], 5)),
            ("keys", noise(&[2, 1, 64, 130], 6)),
        ];
        check(model, &inputs, &outputs);
    }
}

#[test]
fn attention_and_convolution() {
    for queries in [1, 40] {
        let mut model = Model::new().opset("", 23);
        for name in ["q", "k", "v", "q4", "x", "w"] {
            model = model.input(name, FLOAT, "[...]");
        }
        let model = model
            .node(
                Node::new("Attention", &["q", "k", "v"], &["joined"])
                    .int("q_num_heads", 8)
                    .int("kv_num_heads", 2),
            )
            .node(Node::new("Attention", &["q4", "q4", "q4"], &["split"]).int("is_causal", 1))
            .node(Node::new("Conv", &["x", "w"], &["conv"]));
        let outputs = ["joined", "split", "conv"];
        let model = outputs.iter().fold(model, |model, name| {
            model.graph(|graph| graph.untyped_output(name))
        });
        let inputs = [
            ("q", noise(&[2, queries, 8 * 64], 1)),
            ("k", noise(&[2, 300, 2 * 64], 2)),
            ("v", noise(&[2, 300, 2 * 64], 3)),
            ("q4", noise(&[2, 6, 5 * queries, 64], 4)),
            ("x", noise(&[2, 16, 20, queries + 30], 5)),
            ("w", noise(&[24, 16, 3, 3], 6)),
        ];
        check(model, &inputs, &outputs);
    }
}

#[test]
fn elements_and_rows() {
    let mut model = Model::new().opset("", 21);
    for name in ["x", "same", "row", "column", "one"] {
        model = model.input(name, FLOAT, "[...]");
    }
    let mut outputs = vec!["softmax", "softmax0", "exp", "neg"];
    model = model
        .node(Node::new("Softmax", &["x"], &["softmax"]))
        .node(Node::new("Softmax", &["x"], &["softmax0"]).int("axis", 0))
        .node(Node::new("Exp", &["x"], &["exp"]))
        .node(Node::new("Neg", &["x"], &["neg"]));
    for (other, left, right) in [
        ("same", "same_left", "same_right"),
        ("row", "row_left", "row_right"),
        ("column", "column_left", "column_right"),
        ("one", "one_left", "one_right"),
    ] {
        model = model
            .node(Node::new("Sub", &[other, "x"], &[left]))
            .node(Node::new("Div", &["x", other], &[right]));
        outputs.extend([left, right]);
    }
    let model = outputs.iter().fold(model, |model, name| {
        model.graph(|graph| graph.untyped_output(name))
    });
    let inputs = [
        ("x", noise(&[2, 301, 211], 1)),
        ("same", noise(&[2, 301, 211], 2)),
        ("row", noise(&[1, 211], 3)),
        ("column", noise(&[301, 1], 4)),
        ("one", noise(&[1, 1, 1], 5)),
    ];
    check(model, &inputs, &outputs);
}
