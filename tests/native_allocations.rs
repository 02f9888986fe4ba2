//! A repeated step of the native runtime allocates nothing: buffers, plans and lists are
//! kept from the runs before. A test binary of its own, because it counts every allocation.
#![cfg(feature = "native")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::Arc;

use oxpipe::component::{
    AlignedBytes, ComponentSession, DataType, Input, ModelSource, Output, OutputResult, RunControl,
    TensorView,
};
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node, Tensor};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One attention layer as exporters write it: shapes computed from shapes, KV by Concat.
fn layer() -> Model {
    let width = 8;
    let weight = |name: &str, seed: usize| {
        let values: Vec<f32> = (0..width * width)
            .map(|index| ((index * 7 + seed) % 11) as f32 / 11.0 - 0.4)
            .collect();
        Tensor::floats(name, &[width as i64, width as i64], &values)
    };
    Model::new()
        .input("x", FLOAT, "[1, sequence, 8]")
        .input("past_k", FLOAT, "[1, 2, past, 4]")
        .input("past_v", FLOAT, "[1, 2, past, 4]")
        .output("y", FLOAT, "[1, sequence, 8]")
        .output("k", FLOAT, "[1, 2, total, 4]")
        .output("v", FLOAT, "[1, 2, total, 4]")
        .initializer(weight("wq", 1))
        .initializer(weight("wk", 2))
        .initializer(weight("wv", 3))
        .initializer(weight("wo", 4))
        .initializer(Tensor::floats("scale", &[], &[0.5]))
        .initializer(Tensor::ints("one", &[1], &[1]))
        .initializer(Tensor::ints("heads", &[2], &[2, 4]))
        .initializer(Tensor::ints("flat", &[3], &[0, 0, -1]))
        .node(Node::new("Shape", &["x"], &["x_shape"]).int("end", 2))
        .node(Node::new("Concat", &["x_shape", "heads"], &["split"]).int("axis", 0))
        .node(Node::new("MatMul", &["x", "wq"], &["q0"]))
        .node(Node::new("MatMul", &["x", "wk"], &["k0"]))
        .node(Node::new("MatMul", &["x", "wv"], &["v0"]))
        .node(Node::new("Reshape", &["q0", "split"], &["q1"]))
        .node(Node::new("Reshape", &["k0", "split"], &["k1"]))
        .node(Node::new("Reshape", &["v0", "split"], &["v1"]))
        .node(Node::new("Transpose", &["q1"], &["q2"]).ints("perm", &[0, 2, 1, 3]))
        .node(Node::new("Transpose", &["k1"], &["k2"]).ints("perm", &[0, 2, 1, 3]))
        .node(Node::new("Transpose", &["v1"], &["v2"]).ints("perm", &[0, 2, 1, 3]))
        .node(Node::new("Concat", &["past_k", "k2"], &["k"]).int("axis", 2))
        .node(Node::new("Concat", &["past_v", "v2"], &["v"]).int("axis", 2))
        .node(Node::new("Transpose", &["k"], &["kt"]).ints("perm", &[0, 1, 3, 2]))
        .node(Node::new("MatMul", &["q2", "kt"], &["scores"]))
        .node(Node::new("Mul", &["scores", "scale"], &["scaled"]))
        .node(Node::new("Softmax", &["scaled"], &["weights"]).int("axis", -1))
        .node(Node::new("MatMul", &["weights", "v"], &["mixed"]))
        .node(Node::new("Transpose", &["mixed"], &["mixed_t"]).ints("perm", &[0, 2, 1, 3]))
        .node(Node::new("Reshape", &["mixed_t", "flat"], &["joined"]))
        .node(Node::new("MatMul", &["joined", "wo"], &["projected"]))
        .node(Node::new("Add", &["projected", "x"], &["y"]))
}

fn ramp(len: usize) -> AlignedBytes {
    let values: Vec<u8> = (0..len)
        .flat_map(|index| ((index % 13) as f32 / 13.0 - 0.5).to_le_bytes())
        .collect();
    AlignedBytes::try_from_slice(&values).unwrap()
}

#[test]
fn a_repeated_step_allocates_nothing() {
    let source = ModelSource::Memory {
        label: "layer".into(),
        model: Arc::new(layer().encode()),
        external: Vec::new(),
    };
    let mut session = NativeSession::load("layer", &source, &NativeOptions::default()).unwrap();
    let session: &mut dyn ComponentSession = &mut session;
    let (x, past_k, past_v) = (ramp(8), ramp(2 * 5 * 4), ramp(2 * 5 * 4));
    let input = |name, shape, bytes| Input {
        name,
        value: TensorView::new(DataType::Float32, shape, bytes).unwrap(),
    };
    let inputs = [
        input("x", &[1, 1, 8][..], &*x),
        input("past_k", &[1, 2, 5, 4], &past_k),
        input("past_v", &[1, 2, 5, 4], &past_v),
    ];
    let mut rooms = [8, 2 * 6 * 4, 2 * 6 * 4].map(|len| vec![MaybeUninit::new(0f32); len]);
    let mut results: Vec<Vec<f32>> = Vec::new();
    for run in 0..10 {
        let mut outputs: [Output<'_>; 3] = {
            let mut rooms = rooms.iter_mut();
            ["y", "k", "v"].map(|name| {
                let room = rooms.next().unwrap();
                let len = room.len() * 4;
                // SAFETY: the same memory; `MaybeUninit` makes no claim about content.
                let bytes = unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), len) };
                Output::into_room(name, bytes)
            })
        };
        let before = ALLOCATIONS.with(Cell::get);
        session
            .run(&inputs, &mut outputs, &RunControl::default())
            .unwrap();
        let allocations = ALLOCATIONS.with(Cell::get) - before;
        assert!(
            outputs
                .iter()
                .all(|output| matches!(output.result, OutputResult::InRoom { .. }))
        );
        // The first runs make the plan and the buffers; which value gets which buffer settles
        // within a few.
        if run >= 4 {
            assert_eq!(allocations, 0, "in run {run}");
        }
        // SAFETY: initialised above, and the session stores only initialised bytes.
        let values = rooms
            .each_ref()
            .map(|room| room.iter().map(|value| unsafe { value.assume_init() }));
        results.push(values.into_iter().flatten().collect());
    }
    // The same bits every time, and the new keys after the past ones.
    assert!(results.iter().all(|result| *result == results[0]));
    let k = &results[0][8..][..2 * 6 * 4];
    let past: Vec<f32> = past_k
        .chunks(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!((&k[..20], &k[24..44]), (&past[..20], &past[20..]));
}
