//! Where outputs are written, and what is known of their shapes.

use oxpipe::component::{AlignedBytes, ComponentSession, DataType, Shape};
use oxpipe_test_support::onnx_writer::{BOOL, FLOAT, Graph, INT64, Model, Node, Tensor};

use super::harness::*;
use crate::assert_kind;

const F32: DataType = DataType::Float32;

/// `x` of `[n]` to outputs that the library might be tempted to share with each other or
/// with the input.
fn sharing() -> Box<dyn ComponentSession> {
    load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .output("relu", FLOAT, "[n]")
            .output("relu_again", FLOAT, "[n]")
            .output("reshaped", FLOAT, "[1, n]")
            .output("x_again", FLOAT, "[n]")
            .node(Node::new("Relu", &["x"], &["relu"]))
            .node(Node::new("Identity", &["relu"], &["relu_again"]))
            .node(Node::new("Reshape", &["relu", "shape"], &["reshaped"]))
            .node(Node::new("Identity", &["x"], &["x_again"]))
            .initializer(Tensor::ints("shape", &[2], &[1, -1])),
    )
}

#[test]
fn outputs_of_reshape_and_identity_are_written_into_the_room() {
    let mut session = sharing();
    let x = floats(&[1.0, -2.0, 3.0]);
    let relu = [1.0, 0.0, 3.0];
    let expected: [(&str, &[f32]); 4] = [
        ("relu", &relu),
        ("relu_again", &relu),
        ("reshaped", &relu),
        ("x_again", &[1.0, -2.0, 3.0]),
    ];
    let inputs = [input("x", F32, &[3], &x)];
    // All at once, and each alone: the library plans memory differently.
    let all = expected.map(|(name, _)| room(name, 12));
    let ran = run(&mut session, &inputs, &all);
    for (got, (name, values)) in ran.got.iter().zip(expected) {
        assert!(got.in_room, "{name}");
        assert_eq!(got.floats(), values, "{name}");
    }
    assert_nothing_copied(&ran);
    for (name, values) in expected {
        let ran = run(&mut session, &inputs, &[room(name, 12)]);
        assert!(ran.got[0].in_room);
        assert_eq!(ran.got[0].floats(), values, "{name}");
        assert_nothing_copied(&ran);
    }
    // Without room, in another order, and mixed.
    let asks = [
        alloc("reshaped"),
        room("relu", 12),
        alloc("x_again"),
        alloc("relu_again"),
    ];
    let ran = run(&mut session, &inputs, &asks);
    assert_eq!(ran.got[0].shape, [1, 3]);
    let in_room: Vec<bool> = ran.got.iter().map(|got| got.in_room).collect();
    assert_eq!(in_room, [false, true, false, false]);
    assert_eq!(ran.got[3].floats(), relu);
    assert_nothing_copied(&ran);
}

#[test]
fn an_output_that_is_an_input_or_a_weight() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .output("x", FLOAT, "[n]")
            .output("w", FLOAT, "[2]")
            .output("y", FLOAT, "[n]")
            .node(Node::new("Neg", &["x"], &["y"]))
            .initializer(Tensor::floats("w", &[2], &[7.0, 8.0])),
    );
    let x = floats(&[1.0, -2.0, 3.0]);
    let inputs = [input("x", F32, &[3], &x)];
    for asks in [
        [alloc("x"), alloc("w"), alloc("y")],
        [room("x", 12), room("w", 8), room("y", 12)],
    ] {
        let ran = run(&mut session, &inputs, &asks);
        assert_eq!(ran.got[0].floats(), [1.0, -2.0, 3.0]);
        assert_eq!(ran.got[1].floats(), [7.0, 8.0]);
        assert_eq!(ran.got[2].floats(), [-1.0, 2.0, -3.0]);
        assert!(
            ran.got
                .iter()
                .zip(asks)
                .all(|(got, ask)| got.in_room == ask.room.is_some())
        );
    }
    // What was handed out is no view of the caller's input.
    let mut outputs = [oxpipe::component::Output::alloc("x")];
    let mut x = AlignedBytes::try_from_slice(&x).unwrap();
    session
        .run(&[input("x", F32, &[3], &x)], &mut outputs, &Default::default())
        .unwrap();
    x.fill(0);
    let oxpipe::component::OutputResult::Owned(tensor) = &outputs[0].result else {
        panic!("{:?}", outputs[0].result)
    };
    assert_eq!(tensor.bytes(), &floats(&[1.0, -2.0, 3.0])[..]);
}

#[test]
fn outputs_of_branches_and_constants_are_written_into_the_room() {
    let branch = |op: &str| {
        Graph::new()
            .output("out", FLOAT, "[n]")
            .node(Node::new(op, &["x"], &["out"]))
    };
    let mut session = load(
        Model::new()
            .input("c", BOOL, "[]")
            .input("x", FLOAT, "[n]")
            .output("y", FLOAT, "[n]")
            .output("k", FLOAT, "[2]")
            .node(
                Node::new("If", &["c"], &["y"])
                    .graph("then_branch", branch("Neg"))
                    .graph("else_branch", branch("Identity")),
            )
            .node(Node::new("Constant", &[], &["k"]).tensor("value", Tensor::floats("", &[2], &[5.0, 6.0]))),
    );
    let x = floats(&[1.0, -2.0]);
    for (condition, expected) in [(1, [-1.0, 2.0]), (0, [1.0, -2.0])] {
        let condition = [condition];
        let inputs = [
            input("x", F32, &[2], &x),
            input("c", DataType::Bool, &[], &condition),
        ];
        let ran = run(&mut session, &inputs, &[room("y", 8), room("k", 8)]);
        assert_eq!(ran.got[0].floats(), expected);
        assert_eq!(ran.got[1].floats(), [5.0, 6.0]);
        assert!(ran.got.iter().all(|got| got.in_room));
    }
}

#[test]
fn room_that_is_too_small_is_left_alone() {
    let mut session = sharing();
    let x = floats(&[1.0, -2.0, 3.0]);
    let ran = run(
        &mut session,
        &[input("x", F32, &[3], &x)],
        &[room("relu", 11), known("x_again", 0, &[3])],
    );
    assert_eq!(ran.got[0].floats(), [1.0, 0.0, 3.0]);
    assert!(ran.got.iter().all(|got| !got.in_room));
    assert_nothing_copied(&ran);
}

/// `past` and `x` concatenated, as a KV cache grows, with dims named as exporters do.
fn growing(output_dims: &str) -> Box<dyn ComponentSession> {
    load(
        Model::new()
            .input("past", FLOAT, "[batch, past_len, 2]")
            .input("x", FLOAT, "[batch, len, 2]")
            .output("present", FLOAT, output_dims)
            .node(Node::new("Concat", &["past", "x"], &["present"]).int("axis", 1)),
    )
}

#[test]
fn a_sum_of_named_dims_is_known_before_the_run() {
    for dims in ["[batch, past_len + len, 2]", "[batch, len+past_len, ?]"] {
        let mut session = growing(dims);
        let past = floats(&[1.0, 2.0, 3.0, 4.0]);
        let x = floats(&[5.0, 6.0]);
        let bound = session
            .output_bound(&[("past", F32, &[1, 2, 2]), ("x", F32, &[1, 1, 2])], &["present"])
            .unwrap();
        assert_eq!(bound, [Some((F32, Shape::from_slice(&[1, 3, 2])))], "{dims}");
        let inputs = [
            input("past", F32, &[1, 2, 2], &past),
            input("x", F32, &[1, 1, 2], &x),
        ];
        let ran = run(&mut session, &inputs, &[room("present", 24)]);
        assert_eq!(ran.got[0].floats(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert!(ran.got[0].in_room);
        assert_nothing_copied(&ran);
        // Without any past: a tensor of no elements.
        let inputs = [
            input("past", F32, &[1, 0, 2], &[]),
            input("x", F32, &[1, 1, 2], &x),
        ];
        let ran = run(&mut session, &inputs, &[room("present", 24)]);
        assert_eq!(ran.got[0].floats(), [5.0, 6.0]);
        assert_nothing_copied(&ran);
    }
}

#[test]
fn an_unnamed_dim_needs_a_promise_or_a_copy() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .output("y", FLOAT, "[?]")
            .node(Node::new("NonZero", &["x"], &["at"]))
            .node(Node::new("Transpose", &["at"], &["rows"]))
            .node(Node::new("GatherND", &["x", "rows"], &["y"])),
    );
    let x = floats(&[0.0, 2.0, 0.0, 3.0]);
    let bound = session.output_bound(&[("x", F32, &[4])], &["y"]).unwrap();
    assert_eq!(bound, [None]);
    let inputs = [input("x", F32, &[4], &x)];
    let copied = run(&mut session, &inputs, &[room("y", 16)]);
    assert_eq!(copied.got[0].floats(), [2.0, 3.0]);
    assert!(copied.got[0].in_room);
    if cfg!(debug_assertions) {
        assert_eq!(copied.copied, 8);
    }
    let promised = run(&mut session, &inputs, &[known("y", 16, &[2])]);
    assert_eq!(promised.got[0].floats(), [2.0, 3.0]);
    assert_nothing_copied(&promised);
}

#[test]
fn names_that_do_not_hold_are_noticed_and_not_trusted_again() {
    // Says that the length stays, which is wrong as soon as there is a past.
    let mut session = growing("[batch, len, 2]");
    let (past, x) = (floats(&[1.0, 2.0]), floats(&[5.0, 6.0]));
    let shapes: [(&str, DataType, &[i64]); 2] = [("past", F32, &[1, 1, 2]), ("x", F32, &[1, 1, 2])];
    assert!(session.output_bound(&shapes, &["present"]).unwrap()[0].is_some());
    let inputs = [
        input("past", F32, &[1, 1, 2], &past),
        input("x", F32, &[1, 1, 2], &x),
    ];
    for _ in 0..2 {
        let ran = run(&mut session, &inputs, &[room("present", 64)]);
        assert_eq!(ran.got[0].shape, [1, 2, 2]);
        assert_eq!(ran.got[0].floats(), [1.0, 2.0, 5.0, 6.0]);
        assert!(ran.got[0].in_room);
    }
    assert_eq!(session.output_bound(&shapes, &["present"]).unwrap(), [None]);
    // A promise is still taken at its word.
    let ran = run(&mut session, &inputs, &[known("present", 16, &[1, 2, 2])]);
    assert_nothing_copied(&ran);
}

#[test]
fn a_promise_that_is_wrong_is_an_error_that_names_both_shapes() {
    let mut session = growing("[batch, past_len + len, 2]");
    let (past, x) = (floats(&[1.0, 2.0]), floats(&[5.0, 6.0]));
    let inputs = [
        input("past", F32, &[1, 1, 2], &past),
        input("x", F32, &[1, 1, 2], &x),
    ];
    for bytes in [64, 2] {
        let error = run_error(&mut session, &inputs, &[known("present", bytes, &[1, 3, 2])]);
        assert_kind!(error, Kind::Backend { .. });
        let message = error.to_string();
        for part in ["\"part\"", "\"present\"", "[1, 3, 2]", "[1, 2, 2]"] {
            assert!(message.contains(part), "{message}");
        }
    }
    let error = run_error(&mut session, &inputs, &[known("present", 64, &[1, -2, 2])]);
    assert_kind!(error, Kind::BadTensor { port, .. } if port == "present");
    assert_eq!(
        run(&mut session, &inputs, &[known("present", 16, &[1, 2, 2])]).copied,
        0
    );
}

#[test]
fn wrong_requests_are_refused_before_the_library_sees_them() {
    let mut session = growing("[batch, past_len + len, 2]");
    let bytes = floats(&[1.0, 2.0]);
    let good = [
        input("past", F32, &[1, 1, 2], &bytes),
        input("x", F32, &[1, 1, 2], &bytes),
    ];
    let error = |inputs: &[_], asks: &[_], session: &mut _| run_error(session, inputs, asks);
    let present = [alloc("present")];
    assert_kind!(
        error(&good[..1], &present, &mut session),
        Kind::MissingInput { port, .. } if port == "x"
    );
    assert_kind!(
        error(&[good[0], good[0], good[1]], &present, &mut session),
        Kind::DuplicateInput { port } if port == "past"
    );
    assert_kind!(
        error(
            &[good[0], good[1], input("z", F32, &[1, 1, 2], &bytes)],
            &present,
            &mut session
        ),
        Kind::UnknownInput { port, known } if port == "z" && known == &["past", "x"]
    );
    assert_kind!(
        error(
            &[good[0], input("x", DataType::Int64, &[1, 1, 1], &bytes)],
            &present,
            &mut session
        ),
        Kind::WrongDtype { port, .. } if port == "x"
    );
    assert_kind!(
        error(&[good[0], input("x", F32, &[1, 2], &bytes)], &present, &mut session),
        Kind::WrongRank { port, .. } if port == "x"
    );
    assert_kind!(
        error(&[good[0], input("x", F32, &[1, 2, 1], &bytes)], &present, &mut session),
        Kind::WrongDim { port, axis: 2, expected_dim: 2, .. } if port == "x"
    );
    assert_kind!(
        error(&good, &[alloc("past")], &mut session),
        Kind::UnknownOutput { port, .. } if port == "past"
    );
    assert_kind!(
        error(&good, &[alloc("present"), alloc("present")], &mut session),
        Kind::DuplicateOutput { port } if port == "present"
    );
    // Names that only the graph sees to be different.
    let two = floats(&[1.0, 2.0, 3.0, 4.0]);
    let error = error(
        &[good[0], input("x", F32, &[2, 1, 2], &two)],
        &present,
        &mut session,
    );
    assert_kind!(error, Kind::Node { op, .. } if op == "Concat");
    assert_eq!(
        run(&mut session, &good, &present).got[0].floats(),
        [1.0, 2.0, 1.0, 2.0]
    );
    assert!(run(&mut session, &good, &[]).got.is_empty());
}

#[test]
fn a_failing_node_is_named_and_the_session_goes_on() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .input("at", INT64, "[m]")
            .output("y", FLOAT, "[m]")
            .node(Node::new("Gather", &["x", "at"], &["y"]).name("/layer.0/Gather")),
    );
    let x = floats(&[1.0, 2.0]);
    let (good, bad) = (ints(&[1]), ints(&[9]));
    let error = run_error(
        &mut session,
        &[
            input("x", F32, &[2], &x),
            input("at", DataType::Int64, &[1], &bad),
        ],
        &[room("y", 4)],
    );
    assert_kind!(
        error,
        Kind::Node { node, op, message } if node == "/layer.0/Gather" && op == "Gather" && message.contains('9')
    );
    let ran = run(
        &mut session,
        &[
            input("x", F32, &[2], &x),
            input("at", DataType::Int64, &[1], &good),
        ],
        &[room("y", 4)],
    );
    assert_eq!(ran.got[0].floats(), [2.0]);
}

#[test]
fn memory_that_is_not_to_be_had_is_an_error_with_its_size() {
    let mut session = load(
        Model::new()
            .input("shape", INT64, "[rank]")
            .output("y", FLOAT, "[...]")
            .node(Node::new("ConstantOfShape", &["shape"], &["y"])),
    );
    // 2^60 bytes.
    let shape = ints(&[1 << 29, 1 << 29]);
    let inputs = [input("shape", DataType::Int64, &[2], &shape)];
    let error = run_error(&mut session, &inputs, &[alloc("y")]);
    assert_kind!(error, Kind::OutOfMemory { bytes, .. } if *bytes >= 1 << 60);
    let shape = ints(&[1, 3]);
    let inputs = [input("shape", DataType::Int64, &[2], &shape)];
    assert_eq!(
        run(&mut session, &inputs, &[alloc("y")]).got[0].floats(),
        [0.0; 3]
    );
}
