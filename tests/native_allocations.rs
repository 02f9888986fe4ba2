//! A repeated step of the native runtime, and of the loop around it, allocates nothing: buffers,
//! plans and lists are kept from the runs before. A test binary of its own, because it counts every
//! allocation.
#![cfg(feature = "native")]

use std::mem::MaybeUninit;
use std::sync::Arc;

use oxpipe::component::{
    AlignedBytes, ComponentSession, DataType, Input, ModelSource, Output, OutputResult, RunControl,
    SharedBytes, TensorView,
};
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, Run, RunSettings};
use oxpipe::runtime::{Environment, Runtime, RuntimeSettings};
use oxpipe_test_support::counting_allocator::{self, Counting};
use oxpipe_test_support::onnx_writer::{FLOAT, INT32, INT64, Model, Node, Tensor};

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

fn load(model: Model) -> NativeSession {
    let source = ModelSource::Memory {
        label: "layer".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    NativeSession::load("layer", &source, &NativeOptions::default()).unwrap()
}

/// A decoder of one layer, with the nodes of a model builder.
fn decoder() -> Model {
    const WIDTH: i64 = 8;
    const CONTRIB: &str = "com.microsoft";
    let weight = |name: &str, dims: &[i64]| {
        let count = dims.iter().product::<i64>();
        let value = |index: i64| (((index * 7 + name.len() as i64) % 11) - 5) as f32 / 11.0;
        Tensor::floats(name, dims, &(0..count).map(value).collect::<Vec<f32>>())
    };
    let norm = |inputs: &[&str], outputs: &[&str]| {
        Node::new("SkipSimplifiedLayerNormalization", inputs, outputs).domain(CONTRIB)
    };
    Model::new()
        .opset("", 21)
        .opset(CONTRIB, 1)
        .input("input_ids", INT64, "[1, sequence]")
        .input("attention_mask", INT64, "[1, total]")
        .input("past_k", FLOAT, "[1, 1, past, 4]")
        .input("past_v", FLOAT, "[1, 1, past, 4]")
        .output("logits", FLOAT, "[1, sequence, 16]")
        .output("k", FLOAT, "[1, 1, total, 4]")
        .output("v", FLOAT, "[1, 1, total, 4]")
        .initializer(weight("table", &[16, WIDTH]))
        .initializer(weight("norm", &[WIDTH]))
        .initializer(weight("qkv", &[WIDTH, 16]))
        .initializer(weight("qkv_bias", &[16]))
        .initializer(weight("wo", &[WIDTH, WIDTH]))
        .initializer(weight("gate", &[WIDTH, 12]))
        .initializer(weight("up", &[WIDTH, 12]))
        .initializer(weight("down", &[12, WIDTH]))
        .initializer(weight("head", &[WIDTH, 16]))
        .initializer(weight("cos", &[512, 2]))
        .initializer(weight("sin", &[512, 2]))
        .initializer(Tensor::ints("one", &[1], &[1]))
        .initializer(Tensor::ints("second", &[], &[1]))
        .node(Node::new("ReduceSum", &["attention_mask", "one"], &["sum"]).int("keepdims", 0))
        .node(Node::new("Sub", &["sum", "one"], &["last"]))
        .node(Node::new("Cast", &["last"], &["lengths"]).int("to", INT32.into()))
        .node(Node::new("Shape", &["attention_mask"], &["shape"]))
        .node(Node::new("Gather", &["shape", "second"], &["all"]))
        .node(Node::new("Cast", &["all"], &["total"]).int("to", INT32.into()))
        .node(Node::new("Gather", &["table", "input_ids"], &["x"]))
        .node(Node::new(
            "SimplifiedLayerNormalization",
            &["x", "norm"],
            &["x_normal"],
        ))
        .node(Node::new("MatMul", &["x_normal", "qkv"], &["projected"]))
        .node(Node::new("Add", &["projected", "qkv_bias"], &["biased"]))
        .node(
            Node::new(
                "GroupQueryAttention",
                &[
                    "biased", "", "", "past_k", "past_v", "lengths", "total", "cos", "sin",
                ],
                &["mixed", "k", "v"],
            )
            .domain(CONTRIB)
            .int("num_heads", 2)
            .int("kv_num_heads", 1)
            .int("do_rotary", 1),
        )
        .node(Node::new("MatMul", &["mixed", "wo"], &["o"]))
        .node(norm(&["x", "o", "norm"], &["y_normal", "", "", "y"]))
        .node(Node::new("MatMul", &["y_normal", "gate"], &["gated"]))
        .node(Node::new("MatMul", &["y_normal", "up"], &["upper"]))
        .node(Node::new("Sigmoid", &["gated"], &["open"]))
        .node(Node::new("Mul", &["gated", "open"], &["silu"]))
        .node(Node::new("Mul", &["silu", "upper"], &["inner"]))
        .node(Node::new("MatMul", &["inner", "down"], &["outer"]))
        .node(norm(&["y", "outer", "norm"], &["normal"]))
        .node(Node::new("MatMul", &["normal", "head"], &["logits"]))
}

fn ramp(len: usize) -> AlignedBytes {
    let values: Vec<u8> = (0..len)
        .flat_map(|index| ((index % 13) as f32 / 13.0 - 0.5).to_le_bytes())
        .collect();
    AlignedBytes::try_from_slice(&values).unwrap()
}

/// A step over one token, and how many allocations it made.
struct Step {
    session: NativeSession,
    x: AlignedBytes,
    past_k: AlignedBytes,
    past_v: AlignedBytes,
    rooms: [Vec<MaybeUninit<f32>>; 3],
}

impl Step {
    fn new(longest_past: usize) -> Self {
        let total = longest_past + 1;
        Step {
            session: load(layer()),
            x: ramp(8),
            past_k: ramp(2 * longest_past * 4),
            past_v: ramp(2 * longest_past * 4),
            rooms: [8, 2 * total * 4, 2 * total * 4].map(|len| vec![MaybeUninit::new(0f32); len]),
        }
    }

    /// The past is the first elements of `past_k` and `past_v`.
    fn run(&mut self, past: usize) -> (usize, Vec<f32>) {
        let session: &mut dyn ComponentSession = &mut self.session;
        let past_shape = [1, 2, past as i64, 4];
        let input = |name, shape, bytes| Input {
            name,
            value: TensorView::new(DataType::Float32, shape, bytes).unwrap(),
        };
        let past_bytes = 2 * past * 4 * 4;
        let inputs = [
            input("x", &[1, 1, 8], &*self.x),
            input("past_k", &past_shape, &self.past_k[..past_bytes]),
            input("past_v", &past_shape, &self.past_v[..past_bytes]),
        ];
        let lens = [8, 2 * (past + 1) * 4, 2 * (past + 1) * 4];
        let mut outputs: [Output<'_>; 3] = {
            let mut rooms = self.rooms.iter_mut().zip(lens);
            ["y", "k", "v"].map(|name| {
                let (room, len) = rooms.next().unwrap();
                // SAFETY: the same memory, or its beginning; `MaybeUninit` makes no claim about
                // content.
                let bytes = unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), len * 4) };
                Output::into_room(name, bytes)
            })
        };
        let before = counting_allocator::allocations();
        session
            .run(&inputs, &mut outputs, &RunControl::default())
            .unwrap();
        let allocations = counting_allocator::allocations() - before;
        assert!(
            outputs
                .iter()
                .all(|output| matches!(output.result, OutputResult::InRoom { .. }))
        );
        // SAFETY: initialised when made, and the session stores only initialised bytes.
        let values = self
            .rooms
            .iter()
            .zip(lens)
            .flat_map(|(room, len)| room[..len].iter().map(|value| unsafe { value.assume_init() }));
        (allocations, values.collect())
    }
}

#[test]
fn a_repeated_step_allocates_nothing() {
    let mut step = Step::new(5);
    let mut results: Vec<Vec<f32>> = Vec::new();
    for run in 0..10 {
        let (allocations, result) = step.run(5);
        // The first runs make the plan and the buffers; which value gets which buffer settles
        // within a few.
        if run >= 4 {
            assert_eq!(allocations, 0, "in run {run}");
        }
        results.push(result);
    }
    // The same bits every time, and the new keys after the past ones.
    assert!(results.iter().all(|result| *result == results[0]));
    let k = &results[0][8..][..2 * 6 * 4];
    let past: Vec<f32> = step
        .past_k
        .chunks(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!((&k[..20], &k[24..44]), (&past[..20], &past[20..]));
}

#[test]
fn a_step_whose_past_grows_makes_no_plan_and_allocates_where_a_buffer_outgrows_its_slack() {
    const LENGTHS: std::ops::Range<usize> = 64..192;
    let mut step = Step::new(LENGTHS.end);
    let mut results = Vec::new();
    let mut allocating = 0;
    for past in LENGTHS {
        let (allocations, result) = step.run(past);
        allocating += usize::from(allocations > 0);
        results.push(result);
    }
    // Keys transposed, scores, scaled scores and weights grow; buffers have an eighth of slack.
    assert!(
        allocating < LENGTHS.len() / 3,
        "{allocating} of {} steps",
        LENGTHS.len()
    );
    // Again from the shortest: all that is needed is there.
    for (past, result) in LENGTHS.zip(results) {
        let (allocations, again) = step.run(past);
        assert_eq!(allocations, 0, "after {past} positions");
        // The plan that serves all lengths gives the bits of the one that is made for this one.
        assert!(again == result);
        if past % 16 == 0 {
            let mut alone = Step::new(LENGTHS.end);
            assert!(alone.run(past).1 == result, "after {past} positions");
        }
    }
}

#[test]
fn a_step_of_a_pipeline_allocates_only_where_what_it_keeps_grows() {
    let metadata: SharedBytes = Arc::new(
        b"
model:
  io:
    token_input: input_ids
    attention_mask_input: attention_mask
    logits_output: logits
    kv_inputs: [past_k, past_v]
    kv_outputs: [k, v]
"
        .to_vec(),
    );
    let source = PackageSource::Files(vec![("inference_metadata.yaml".into(), metadata)]);
    let runtime = Runtime::with_environment(RuntimeSettings::default(), Environment::default());
    let session: Box<dyn ComponentSession> = Box::new(load(decoder()));
    let pipeline = Pipeline::with_sessions(&runtime, &source, vec![("model".into(), session)]).unwrap();
    // The steps that allocate.
    let generate = || -> Vec<usize> {
        let mut run = Run::new(&pipeline, &RunSettings::default()).unwrap();
        run.append_tokens(&[3, 1, 4, 1, 5]).unwrap();
        let allocates = |_: &usize| {
            let before = counting_allocator::allocations();
            let event = run.step(&RunControl::default()).unwrap();
            let allocations = counting_allocator::allocations() - before;
            assert!(event.finish.is_none());
            allocations > 0
        };
        (0..400).filter(allocates).collect()
    };
    // Plans, and working memory that grows with the context, by an eighth each time.
    let first = generate();
    assert!(first.len() < 100, "{first:?}");
    // The session has all it needs; what is the run's own doubles: the cache, the mask, the tokens.
    let second = generate();
    assert!(second.len() < 25, "{second:?}");
}
