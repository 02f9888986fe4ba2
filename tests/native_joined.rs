//! Calls that are made together have the results that each has alone, bit by bit: products whose
//! weights are read once for all of them, and caches of different lengths, which each call has for
//! itself.
#![cfg(feature = "native")]

use std::sync::Arc;

use oxpipe::component::{
    AlignedBytes, CacheRoom, Call, ComponentSession, DataType, Input, ModelSource, Output, OutputResult,
    RunControl, TensorView,
};
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{FLOAT, INT32, Model, Node, Tensor};

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
                .initializer(Tensor::floats(
                    "scales",
                    &[N * K / 32],
                    &noise((N * K / 32) as usize, 5),
                ))
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
                let (OutputResult::Owned(alone), OutputResult::Owned(together)) =
                    (&alone.result, &together.result)
                else {
                    panic!("an output was not made");
                };
                assert_eq!(alone.shape(), together.shape());
                assert!(alone.bytes() == together.bytes(), "{} of {count}", "a call");
            }
        }
    }
}

#[test]
fn weights_with_a_batch_of_their_own_are_each_runs_own() {
    // The rows of one run are not together in [3, runs, 4]; [1, runs] has no row of each.
    for (dims, made, rank) in [(&[3, 8, 4][..], "[3, s, 4]", 3), (&[8], "[1, s]", 2)] {
        let len = dims.iter().product::<i64>() as usize;
        let model = Model::new()
            .input("x", FLOAT, "[1, s, 8]")
            .output("y", FLOAT, made)
            .initializer(Tensor::floats("w", dims, &noise(len, 7)))
            .node(Node::new("MatMul", &["x", "w"], &["y"]));
        let mut session = open(model);
        let values = [bytes(&noise(8, 1)), bytes(&noise(8, 2))];
        let inputs = values.each_ref().map(|x| {
            let value = TensorView::new(DataType::Float32, &[1, 1, 8], x).unwrap();
            [Input { name: "x", value }]
        });
        let mut alone = inputs.each_ref().map(|_| [Output::alloc("y")]);
        for (inputs, outputs) in inputs.iter().zip(&mut alone) {
            session.run(inputs, outputs, &RunControl::default()).unwrap();
        }
        let mut together = inputs.each_ref().map(|_| [Output::alloc("y")]);
        let pairs = inputs.iter().zip(&mut together);
        let mut calls: Vec<Call<'_, '_>> = pairs.map(|(inputs, outputs)| Call { inputs, outputs }).collect();
        let outcomes = session.run_together(&mut calls, &RunControl::default());
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        for (alone, together) in alone.iter().flatten().zip(together.iter().flatten()) {
            let (OutputResult::Owned(alone), OutputResult::Owned(together)) =
                (&alone.result, &together.result)
            else {
                panic!("an output was not made");
            };
            assert_eq!((alone.shape(), alone.shape().len()), (together.shape(), rank));
            assert!(alone.bytes() == together.bytes());
        }
    }
}

/// Attention to a cache, and a product of what it gives.
fn decoder() -> Model {
    let inputs = ["x", "x", "x", "past_k", "past_v", "seqlens_k", "total_length"];
    let attention = Node::new("GroupQueryAttention", &inputs, &["seen", "k", "v"])
        .domain("com.microsoft")
        .int("num_heads", 1)
        .int("kv_num_heads", 1);
    Model::new()
        .opset("com.microsoft", 1)
        .input("x", FLOAT, "[1, s, 8]")
        .input("past_k", FLOAT, "[1, 1, past, 8]")
        .input("past_v", FLOAT, "[1, 1, past, 8]")
        .input("seqlens_k", INT32, "[1]")
        .input("total_length", INT32, "[]")
        .output("k", FLOAT, "[1, 1, total, 8]")
        .output("v", FLOAT, "[1, 1, total, 8]")
        .output("y", FLOAT, "[1, s, 8]")
        .initializer(Tensor::floats("w", &[8, 8], &noise(64, 6)))
        .node(attention)
        .node(Node::new("MatMul", &["seen", "w"], &["y"]))
}

const ROWS: usize = 16;

/// A step of each call: its outputs, and its caches behind it.
fn steps(session: &mut dyn ComponentSession, lengths: &[usize], together: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let memory = |seed: usize| AlignedBytes::try_from_slice(&bytes(&noise(8 * ROWS, seed as u64))).unwrap();
    let mut memories: Vec<[AlignedBytes; 2]> = lengths
        .iter()
        .map(|&len| [memory(len + 1), memory(len + 50)])
        .collect();
    let shapes: Vec<[i64; 4]> = lengths.iter().map(|&len| [1, 1, len as i64, 8]).collect();
    let values: Vec<[Vec<u8>; 3]> = lengths
        .iter()
        .map(|&len| {
            let number = |number: usize| (number as i32).to_le_bytes().to_vec();
            [bytes(&noise(8, 100 + len as u64)), number(len), number(len + 1)]
        })
        .collect();
    let inputs: Vec<[Input<'_>; 3]> = values
        .iter()
        .map(|[x, last, total]| {
            let view = |name, dtype, shape, bytes| Input {
                name,
                value: TensorView::new(dtype, shape, bytes).unwrap(),
            };
            [
                view("x", DataType::Float32, &[1, 1, 8], x),
                view("seqlens_k", DataType::Int32, &[1], last),
                view("total_length", DataType::Int32, &[], total),
            ]
        })
        .collect();
    let mut outputs: Vec<[Output<'_>; 3]> = memories
        .iter_mut()
        .zip(&shapes)
        .map(|([keys, values], shape)| {
            let present = |name, past, memory| Output {
                cache: Some(CacheRoom::new(past, DataType::Float32, shape, 2, ROWS, memory).unwrap()),
                ..Output::alloc(name)
            };
            [
                present("k", "past_k", keys),
                present("v", "past_v", values),
                Output::alloc("y"),
            ]
        })
        .collect();
    let pairs = inputs.iter().zip(&mut outputs);
    match together {
        true => {
            let mut calls: Vec<Call<'_, '_>> =
                pairs.map(|(inputs, outputs)| Call { inputs, outputs }).collect();
            let joined = session.execute_together(&mut calls, &RunControl::default());
            joined.expect("they are run together").unwrap();
        }
        false => pairs.for_each(|(inputs, outputs)| {
            session.run(inputs, outputs, &RunControl::default()).unwrap();
        }),
    }
    let ys: Vec<Vec<u8>> = outputs
        .iter()
        .map(|[k, v, y]| {
            assert!(matches!(k.result, OutputResult::InCache { .. }));
            assert!(matches!(v.result, OutputResult::InCache { .. }));
            match &y.result {
                OutputResult::Owned(y) => y.bytes().to_vec(),
                other => panic!("y is {other:?}"),
            }
        })
        .collect();
    drop(outputs);
    let caches = memories.iter().map(|[keys, values]| [&keys[..], values].concat());
    ys.into_iter().zip(caches).collect()
}

#[test]
fn each_call_has_its_own_cache() {
    for lengths in [&[5, 2, 0, 7][..], &[9, 8], &[1, 2, 3, 4, 5, 6, 7, 8]] {
        let mut session = open(decoder());
        assert_eq!(session.in_place_caches().len(), 2);
        let together = steps(&mut *session, lengths, true);
        assert!(together == steps(&mut *session, lengths, false), "{lengths:?}");
    }
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
