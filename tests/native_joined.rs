//! Calls that are made together have the results that each has alone, bit by bit: products whose
//! weights are read once for all of them, and caches of different lengths, which each call has for
//! itself.
#![cfg(feature = "native")]

use std::sync::Arc;

use oxpipe::component::{
    AlignedBytes, CacheRoom, Call, ComponentSession, DataType, Input, ModelSource, Output, OutputResult, RunControl,
    TensorView,
};
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node, Tensor};

fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn open(model: Model) -> Box<dyn ComponentSession> {
    let source = ModelSource::Memory {
        label: "joined".to_owned(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    Box::new(NativeSession::load("joined", &source, &NativeOptions::default()).unwrap())
}

const UINT8: i32 = 2;
const K: i64 = 128;
const N: i64 = 640;

/// x W + r, and what becomes of it; W dense, or of 4 bits in blocks of 32.
fn product(bits: bool, accuracy: i64) -> Model {
    let model = Model::new()
        .opset("com.microsoft", 1)
        .input("x", FLOAT, "[1, s, 128]")
        .input("r", FLOAT, "[1, s, 640]")
        .output("y", FLOAT, "[1, s, 640]")
        .output("z", FLOAT, "[1, s, 640]");
    let model = match bits {
        false => model
            .initializer(Tensor::floats("w", &[K, N], &noise((K * N) as usize, 3)))
            .node(Node::new("MatMul", &["x", "w"], &["product"])),
        true => {
            let codes: Vec<u8> = noise((N * K / 2) as usize, 4)
                .into_iter()
                .map(|x| ((x + 1.0) * 127.0) as u8)
                .collect();
            let product = Node::new("MatMulNBits", &["x", "w", "scales"], &["product"])
                .domain("com.microsoft")
                .int("K", K)
                .int("N", N)
                .int("bits", 4)
                .int("block_size", 32)
                .int("accuracy_level", accuracy);
            model
                .initializer(Tensor::raw("w", UINT8, &[N, K / 32, 16], &codes))
                .initializer(Tensor::floats("scales", &[N * K / 32], &noise((N * K / 32) as usize, 5)))
                .node(product)
        }
    };
    model
        .node(Node::new("Add", &["product", "r"], &["y"]))
        .node(Node::new("Sigmoid", &["y"], &["z"]))
}

#[test]
fn products_are_those_of_each_call_alone() {
    for model in [product(false, 0), product(true, 0), product(true, 4)] {
        let mut session = open(model);
        assert!(session.joins_calls());
        for count in [2, 3, 8] {
            let values: Vec<[Vec<u8>; 2]> = (0..count)
                .map(|call| {
                    let x = bytes(&noise(K as usize, 10 + call));
                    [x, bytes(&noise(N as usize, 50 + call))]
                })
                .collect();
            let inputs: Vec<[Input<'_>; 2]> = values
                .iter()
                .map(|[x, r]| {
                    let x = TensorView::new(DataType::Float32, &[1, 1, K], x).unwrap();
                    let r = TensorView::new(DataType::Float32, &[1, 1, N], r).unwrap();
                    [Input { name: "x", value: x }, Input { name: "r", value: r }]
                })
                .collect();
            let outputs = || [Output::alloc("y"), Output::alloc("z")];
            let mut alone: Vec<[Output<'_>; 2]> = inputs.iter().map(|_| outputs()).collect();
            for (inputs, outputs) in inputs.iter().zip(&mut alone) {
                session.run(inputs, outputs, &RunControl::default()).unwrap();
            }
            let mut together: Vec<[Output<'_>; 2]> = inputs.iter().map(|_| outputs()).collect();
            let mut calls: Vec<Call<'_, '_>> = inputs
                .iter()
                .zip(&mut together)
                .map(|(inputs, outputs)| Call { inputs, outputs })
                .collect();
            // By what runs them together itself: nothing falls back to one after the other.
            let joined = session.execute_together(&mut calls, &RunControl::default());
            joined.expect("they are run together").unwrap();
            for (alone, together) in alone.iter().flatten().zip(together.iter().flatten()) {
                let (OutputResult::Owned(alone), OutputResult::Owned(together)) = (&alone.result, &together.result)
                else {
                    panic!("an output was not made");
                };
                assert_eq!(alone.shape(), together.shape());
                assert!(alone.bytes() == together.bytes(), "{} of {count}", "a call");
            }
        }
    }
}

/// A cache of two numbers a row, and the mean of its rows times a matrix.
fn decoder() -> Model {
    Model::new()
        .opset("", 17)
        .input("x", FLOAT, "[1, 1, s, 2]")
        .input("past", FLOAT, "[1, 1, p, 2]")
        .output("present", FLOAT, "[1, 1, t, 2]")
        .output("y", FLOAT, "[1, s, 2]")
        .initializer(Tensor::floats("w", &[2, 2], &noise(4, 6)))
        .initializer(Tensor::ints("row", &[3], &[1, 1, 2]))
        .node(Node::new("Concat", &["past", "x"], &["present"]).int("axis", 2))
        .node(Node::new("ReduceMean", &["present"], &["mean"]).ints("axes", &[2]))
        .node(Node::new("Reshape", &["mean", "row"], &["rows"]))
        .node(Node::new("MatMul", &["rows", "w"], &["y"]))
}

#[test]
fn each_call_has_its_own_cache() {
    let lengths = [5usize, 2, 0, 7];
    let step = |session: &mut Box<dyn ComponentSession>, together: bool| -> Vec<(Vec<u8>, Vec<u8>)> {
        let memory = |_| AlignedBytes::try_from_slice(&bytes(&noise(2 * 16, 8))).unwrap();
        let mut memories: Vec<AlignedBytes> = lengths.iter().map(memory).collect();
        let shapes: Vec<[i64; 4]> = lengths.iter().map(|&len| [1, 1, len as i64, 2]).collect();
        let xs: Vec<Vec<u8>> = (0..4).map(|call| bytes(&noise(2, 20 + call))).collect();
        let inputs: Vec<[Input<'_>; 1]> = xs
            .iter()
            .map(|x| {
                let value = TensorView::new(DataType::Float32, &[1, 1, 1, 2], x).unwrap();
                [Input { name: "x", value }]
            })
            .collect();
        let mut outputs: Vec<[Output<'_>; 2]> = memories
            .iter_mut()
            .zip(&shapes)
            .map(|(room, shape)| {
                let cache = CacheRoom::new("past", DataType::Float32, shape, 2, 16, room).unwrap();
                let present = Output {
                    cache: Some(cache),
                    ..Output::alloc("present")
                };
                [present, Output::alloc("y")]
            })
            .collect();
        match together {
            true => {
                let calls = inputs.iter().zip(&mut outputs);
                let mut calls: Vec<Call<'_, '_>> = calls
                    .map(|(inputs, outputs)| Call { inputs, outputs })
                    .collect();
                for outcome in session.run_together(&mut calls, &RunControl::default()) {
                    outcome.unwrap();
                }
            }
            false => {
                for (inputs, outputs) in inputs.iter().zip(&mut outputs) {
                    session.run(inputs, outputs, &RunControl::default()).unwrap();
                }
            }
        }
        let ys: Vec<Vec<u8>> = outputs
            .iter()
            .map(|[present, y]| {
                assert!(matches!(present.result, OutputResult::InCache { .. }));
                match &y.result {
                    OutputResult::Owned(y) => y.bytes().to_vec(),
                    other => panic!("y is {other:?}"),
                }
            })
            .collect();
        drop(outputs);
        ys.into_iter().zip(memories.iter().map(|memory| memory.to_vec())).collect()
    };
    let mut session = open(decoder());
    assert_eq!(session.in_place_caches().len(), 1);
    assert!(step(&mut session, true) == step(&mut session, false));
}

#[test]
fn a_call_that_is_wrong_does_not_spoil_the_others() {
    let mut session = open(product(false, 0));
    let x = bytes(&noise(K as usize, 1));
    let r = bytes(&noise(N as usize, 2));
    let value = |shape: &'static [i64], bytes| TensorView::new(DataType::Float32, shape, bytes).unwrap();
    let good = [
        Input {
            name: "x",
            value: value(&[1, 1, K], &x),
        },
        Input {
            name: "r",
            value: value(&[1, 1, N], &r),
        },
    ];
    let bad = &good[..1];
    let mut outputs = [[Output::alloc("y")], [Output::alloc("y")], [Output::alloc("y")]];
    let given: [&[Input<'_>]; 3] = [&good, bad, &good];
    let mut calls: Vec<Call<'_, '_>> = given
        .into_iter()
        .zip(&mut outputs)
        .map(|(inputs, outputs)| Call { inputs, outputs })
        .collect();
    let outcomes = session.run_together(&mut calls, &RunControl::default());
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
    assert!(outcomes[1].as_ref().unwrap_err().to_string().contains("\"r\""));
}
