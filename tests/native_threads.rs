//! The results of a native component are the same bytes on any number of threads.
#![cfg(feature = "native")]

use std::sync::Arc;

use oxpipe::component::ModelSource;
use oxpipe::native::tensor::Tensor;
use oxpipe::native::workers::Workers;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{self, FLOAT, Model, Node};

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
fn check(model: Model, inputs: &[(&str, Tensor)], outputs: &[&str]) -> Vec<Vec<u8>> {
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
    alone
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

/// Keys in several spans, by few queries and by many.
#[test]
fn attention_over_long_caches() {
    for queries in [1, 5, 70] {
        let mut model = Model::new().opset("", 23);
        for name in ["q", "k", "v"] {
            model = model.input(name, FLOAT, "[...]");
        }
        let outputs = ["y", "y16"];
        for to in ["q16", "k16", "v16"] {
            model = model.node(Node::new("Cast", &[&to[..1]], &[to]).int("to", 10));
        }
        for (output, [q, k, v]) in outputs.iter().zip([["q", "k", "v"], ["q16", "k16", "v16"]]) {
            model = model.node(Node::new("Attention", &[q, k, v], &[output])).output(
                output,
                if *output == "y" { FLOAT } else { 10 },
                "[...]",
            );
        }
        let inputs = [
            ("q", noise(&[1, 6, queries, 40], 1)),
            ("k", noise(&[1, 2, 1300, 40], 2)),
            ("v", noise(&[1, 2, 1300, 24], 3)),
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

/// Nodes with one output each, of the name that is given with them.
fn with_nodes(model: Model, nodes: Vec<(Node, &'static str)>) -> (Model, Vec<&'static str>) {
    let mut outputs = Vec::new();
    let mut model = model;
    for (node, output) in nodes {
        model = model.node(node).graph(|graph| graph.untyped_output(output));
        outputs.push(output);
    }
    (model, outputs)
}

#[test]
fn functions_of_elements() {
    let mut model = Model::new().opset("", 28);
    for name in ["x", "same"] {
        model = model.input(name, FLOAT, "[...]");
    }
    let mut nodes = Vec::new();
    for op_type in [
        "Exp",
        "Tanh",
        "Sigmoid",
        "Erf",
        "Gelu",
        "Swish",
        "Elu",
        "HardSwish",
        "Mish",
        "Sqrt",
        "Relu",
        "Abs",
    ] {
        nodes.push((Node::new(op_type, &["x"], &[op_type]), op_type));
    }
    nodes.push((Node::new("SwiGLU", &["x", "same"], &["swiglu"]), "swiglu"));
    for (to, name, sum, back) in [
        (10, "f16", "f16_sum", "f16_back"),
        (16, "bf16", "bf16_sum", "bf16_back"),
    ] {
        nodes.push((Node::new("Cast", &["x"], &[name]).int("to", to), name));
        nodes.push((Node::new("Add", &[name, name], &[sum]), sum));
        nodes.push((Node::new("Cast", &[sum], &[back]).int("to", 1), back));
    }
    let (model, outputs) = with_nodes(model, nodes);
    let inputs = [
        ("x", noise(&[2, 301, 211], 1)),
        ("same", noise(&[2, 301, 211], 2)),
    ];
    check(model, &inputs, &outputs);
}

#[test]
fn normalisations() {
    let mut model = Model::new().opset("", 23).opset("com.microsoft", 1);
    for name in ["x", "skip", "scale", "bias", "column", "channels", "image"] {
        model = model.input(name, FLOAT, "[...]");
    }
    let contrib = |op_type: &str, inputs: &[&str], outputs: &[&str]| {
        Node::new(op_type, inputs, outputs).domain("com.microsoft")
    };
    let nodes = vec![
        (
            Node::new(
                "LayerNormalization",
                &["x", "scale", "bias"],
                &["layer", "mean", "inverse"],
            ),
            "layer",
        ),
        (
            Node::new("LayerNormalization", &["x", "column"], &["layer_by_row"]),
            "layer_by_row",
        ),
        (Node::new("RMSNormalization", &["x", "scale"], &["rms"]), "rms"),
        (
            contrib(
                "SkipLayerNormalization",
                &["x", "skip", "scale", "bias"],
                &["skip_layer", "", "", "sum"],
            ),
            "skip_layer",
        ),
        (
            contrib(
                "SkipSimplifiedLayerNormalization",
                &["x", "x", "scale"],
                &["skip_rms"],
            ),
            "skip_rms",
        ),
        (
            Node::new(
                "InstanceNormalization",
                &["image", "channels", "channels"],
                &["instance"],
            ),
            "instance",
        ),
        (
            Node::new(
                "GroupNormalization",
                &["image", "channels", "channels"],
                &["group"],
            )
            .int("num_groups", 3),
            "group",
        ),
    ];
    let (model, mut outputs) = with_nodes(model, nodes);
    let model = ["mean", "inverse", "sum"].iter().fold(model, |model, name| {
        model.graph(|graph| graph.untyped_output(name))
    });
    outputs.extend(["mean", "inverse", "sum"]);
    let inputs = [
        ("x", noise(&[2, 301, 211], 1)),
        ("skip", noise(&[1, 301, 211], 2)),
        ("scale", noise(&[211], 3)),
        ("bias", noise(&[211], 4)),
        ("column", noise(&[301, 1], 5)),
        ("channels", noise(&[12], 6)),
        ("image", noise(&[2, 12, 61, 67], 7)),
    ];
    check(model, &inputs, &outputs);
}

#[test]
fn reductions() {
    let mut model = Model::new().opset("", 21).input("x", FLOAT, "[...]");
    for (name, axes) in [
        ("first", &[0][..]),
        ("middle", &[1]),
        ("last", &[2]),
        ("outer", &[0, 2]),
        ("all", &[0, 1, 2]),
    ] {
        model = model.initializer(onnx_writer::Tensor::ints(name, &[axes.len() as i64], axes));
    }
    let mut nodes = Vec::new();
    for (axes, outputs) in [
        ("first", ["sum0", "mean0", "max0", "exp0"]),
        ("middle", ["sum1", "mean1", "max1", "exp1"]),
        ("last", ["sum2", "mean2", "max2", "exp2"]),
        ("outer", ["sum3", "mean3", "max3", "exp3"]),
        ("all", ["sum4", "mean4", "max4", "exp4"]),
    ] {
        let functions = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp"];
        for (op_type, output) in functions.into_iter().zip(outputs) {
            nodes.push((Node::new(op_type, &["x", axes], &[output]), output));
        }
    }
    let (model, outputs) = with_nodes(model, nodes);
    check(model, &[("x", noise(&[70, 301, 11], 1))], &outputs);
}

#[test]
fn moves_of_elements() {
    let mut model = Model::new().opset("", 23).input("x", FLOAT, "[...]");
    let ids: Vec<i64> = (0..602).rev().collect();
    for tensor in [
        onnx_writer::Tensor::ints(
            "rows",
            &[600],
            &ids[..600].iter().map(|id| id % 301).collect::<Vec<_>>(),
        ),
        onnx_writer::Tensor::ints("shape", &[4], &[3, 2, 301, 212]),
        onnx_writer::Tensor::ints("starts", &[2], &[300, 3]),
        onnx_writer::Tensor::ints("ends", &[2], &[0, 200]),
        onnx_writer::Tensor::ints("axes", &[2], &[1, 2]),
        onnx_writer::Tensor::ints("steps", &[2], &[-1, 2]),
        onnx_writer::Tensor::ints("ids", &[2, 301], &ids),
    ] {
        model = model.initializer(tensor);
    }
    model = model.input("cos", FLOAT, "[...]").input("sin", FLOAT, "[...]");
    let nodes = vec![
        (Node::new("Transpose", &["x"], &["reversed"]), "reversed"),
        (
            Node::new("Transpose", &["x"], &["swapped"]).ints("perm", &[1, 0, 2]),
            "swapped",
        ),
        (Node::new("Expand", &["x", "shape"], &["expanded"]), "expanded"),
        (
            Node::new("Slice", &["x", "starts", "ends", "axes", "steps"], &["slice"]),
            "slice",
        ),
        (
            Node::new("Gather", &["x", "rows"], &["gathered"]).int("axis", 1),
            "gathered",
        ),
        (
            Node::new("Concat", &["x", "x", "x"], &["joined"]).int("axis", 2),
            "joined",
        ),
        (
            Node::new("RotaryEmbedding", &["x", "cos", "sin", "ids"], &["rotated"]).int("num_heads", 2),
            "rotated",
        ),
        (
            Node::new("Split", &["x"], &["left", "right"])
                .int("axis", 2)
                .int("num_outputs", 2),
            "left",
        ),
    ];
    let (model, mut outputs) = with_nodes(model, nodes);
    let model = model.graph(|graph| graph.untyped_output("right"));
    outputs.push("right");
    let inputs = [
        ("x", noise(&[2, 301, 212], 1)),
        ("cos", noise(&[602, 53], 2)),
        ("sin", noise(&[602, 53], 3)),
    ];
    check(model, &inputs, &outputs);
}

/// Cut or not, these are sums of whole numbers and moves: there is one right answer.
#[test]
fn long_rows_have_the_right_values() {
    let (rows, columns) = (90, 1500);
    let x: Vec<f32> = (0..rows * columns).map(|i| (i * 7919 % 251) as f32).collect();
    let row: Vec<f32> = (0..columns).map(|i| (i % 97) as f32).collect();
    let column: Vec<f32> = (0..rows).map(|i| (i % 13) as f32).collect();
    let at = |r: usize, c: usize| x[r * columns + c];
    let each = |f: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
        (0..rows * columns).map(|i| f(i / columns, i % columns)).collect()
    };
    let expected = [
        ("x-row", each(&|r, c| at(r, c) - row[c])),
        ("column-x", each(&|r, c| column[r] - at(r, c))),
        ("halves", each(&|r, c| at(r, c) + row[c])),
        (
            "turned",
            (0..rows * columns).map(|i| at(i % rows, i / rows)).collect(),
        ),
        (
            "over-rows",
            (0..columns).map(|c| (0..rows).map(|r| at(r, c)).sum()).collect(),
        ),
        (
            "over-columns",
            (0..rows).map(|r| (0..columns).map(|c| at(r, c)).sum()).collect(),
        ),
    ];
    let mut model = Model::new().opset("", 21);
    for name in ["x", "row", "column"] {
        model = model.input(name, FLOAT, "[...]");
    }
    for (name, axis) in [("zero", 0), ("one", 1)] {
        model = model.initializer(onnx_writer::Tensor::ints(name, &[1], &[axis]));
    }
    let nodes = vec![
        (Node::new("Sub", &["x", "row"], &["x-row"]), "x-row"),
        (Node::new("Sub", &["column", "x"], &["column-x"]), "column-x"),
        (Node::new("Cast", &["sum16"], &["halves"]).int("to", 1), "halves"),
        (Node::new("Transpose", &["x"], &["turned"]), "turned"),
        (
            Node::new("ReduceSum", &["x", "zero"], &["over-rows"]),
            "over-rows",
        ),
        (
            Node::new("ReduceSum", &["x", "one"], &["over-columns"]),
            "over-columns",
        ),
    ];
    let model = model
        .node(Node::new("Cast", &["x"], &["x16"]).int("to", 10))
        .node(Node::new("Cast", &["row"], &["row16"]).int("to", 10))
        .node(Node::new("Add", &["x16", "row16"], &["sum16"]));
    let (model, outputs) = with_nodes(model, nodes);
    let inputs = [
        ("x", Tensor::from_slice(&[rows, columns], &x).unwrap()),
        ("row", Tensor::from_slice(&[columns], &row).unwrap()),
        ("column", Tensor::from_slice(&[rows, 1], &column).unwrap()),
    ];
    for ((name, expected), found) in expected.iter().zip(check(model, &inputs, &outputs)) {
        let found = found
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        assert!(found.eq(expected.iter().copied()), "{name}");
    }
}
