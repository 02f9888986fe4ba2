//! Which inputs an output may overwrite: those that one node reads, which is made for it.

use oxpipe::component::{CacheRoom, ComponentErrorKind, ComponentSession, DataType, Output};
use oxpipe_test_support::onnx_writer::{BOOL, FLOAT, Graph, INT32, INT64, Model, Node};

use super::harness::*;

/// past [1, 4, 2], of which rows at `at` become those of `new`: present.
fn scattering(node: Node) -> Model {
    Model::new()
        .input("past", FLOAT, "[1, 4, 2]")
        .input("at", INT64, "[1, n, 2]")
        .input("new", FLOAT, "[1, n, 2]")
        .output("present", FLOAT, "[1, 4, 2]")
        .node(node.int("axis", 1))
}

fn scatter() -> Node {
    Node::new("ScatterElements", &["past", "at", "new"], &["present"])
}

fn pair(session: &dyn ComponentSession) -> (usize, usize) {
    let io = session.io();
    let past = io.inputs.iter().position(|port| port.name == "past");
    let present = io.outputs.iter().position(|port| port.name == "present");
    (past.unwrap(), present.unwrap())
}

fn overwrites(model: Model) -> bool {
    let session = load(model);
    let (past, present) = pair(session.as_ref());
    session.overwrites(past, present)
}

#[test]
fn only_where_nothing_else_reads_the_past() {
    assert!(overwrites(scattering(scatter())));
    // The dims stay what they are.
    let looking = scattering(scatter())
        .output("shape", INT64, "[3]")
        .node(Node::new("Shape", &["past"], &["shape"]));
    assert!(overwrites(looking));
    let readers: [(&str, Model); 5] = [
        (
            "another node",
            scattering(scatter())
                .output("sum", FLOAT, "[1, 1, 1]")
                .node(Node::new("ReduceSum", &["past"], &["sum"])),
        ),
        (
            "an output",
            scattering(scatter()).output("past", FLOAT, "[1, 4, 2]"),
        ),
        (
            "the same node again",
            Model::new()
                .input("past", FLOAT, "[1, 4, 2]")
                .input("at", INT64, "[1, 4, 2]")
                .output("present", FLOAT, "[1, 4, 2]")
                .node(Node::new("ScatterElements", &["past", "at", "past"], &["present"]).int("axis", 1)),
        ),
        ("a graph inside", {
            let branch = |op: &str| {
                Graph::new()
                    .output("out", FLOAT, "[1, 4, 2]")
                    .node(Node::new(op, &["past"], &["out"]))
            };
            scattering(scatter())
                .input("c", BOOL, "[]")
                .output("chosen", FLOAT, "[1, 4, 2]")
                .node(
                    Node::new("If", &["c"], &["chosen"])
                        .graph("then_branch", branch("Neg"))
                        .graph("else_branch", branch("Abs")),
                )
        }),
        ("a graph inside gives it", {
            let branch = |name: &str| {
                Graph::new()
                    .output("out", FLOAT, "[1, 4, 2]")
                    .node(Node::new("Identity", &[name], &["out"]))
            };
            scattering(scatter())
                .input("c", BOOL, "[]")
                .output("chosen", FLOAT, "[1, 4, 2]")
                .node(
                    Node::new("If", &["c"], &["chosen"])
                        .graph("then_branch", branch("past"))
                        .graph("else_branch", branch("present")),
                )
        }),
    ];
    for (reader, model) in readers {
        assert!(!overwrites(model), "{reader}");
    }
}

#[test]
fn only_by_a_node_that_is_made_for_it() {
    let others: [(&str, Model); 4] = [
        (
            "another operator",
            Model::new()
                .input("past", FLOAT, "[1, 4, 2]")
                .output("present", FLOAT, "[1, 4, 2]")
                .node(Node::new("Neg", &["past"], &["present"])),
        ),
        (
            "what is written, not what is written into",
            Model::new()
                .input("past", FLOAT, "[1, 4, 2]")
                .input("at", INT64, "[1, 4, 2]")
                .input("into", FLOAT, "[1, 4, 2]")
                .output("present", FLOAT, "[1, 4, 2]")
                .node(Node::new("ScatterElements", &["into", "at", "past"], &["present"]).int("axis", 1)),
        ),
        (
            "by way of another node",
            Model::new()
                .input("past", FLOAT, "[1, 4, 2]")
                .input("at", INT64, "[1, n, 2]")
                .input("new", FLOAT, "[1, n, 2]")
                .output("present", FLOAT, "[1, 4, 2]")
                .node(Node::new("Neg", &["past"], &["negative"]))
                .node(Node::new("ScatterElements", &["negative", "at", "new"], &["present"]).int("axis", 1)),
        ),
        (
            "the model's own function",
            Model::new()
                .opset("local", 1)
                .function(
                    "GroupQueryAttention",
                    &["a", "b", "c", "past"],
                    &["d", "present"],
                    vec![
                        Node::new("Neg", &["past"], &["present"]),
                        Node::new("Abs", &["a"], &["d"]),
                    ],
                )
                .input("x", FLOAT, "[1, 4, 2]")
                .input("past", FLOAT, "[1, 4, 2]")
                .output("present", FLOAT, "[1, 4, 2]")
                .node(
                    Node::new("GroupQueryAttention", &["x", "x", "x", "past"], &["d", "present"])
                        .domain("local"),
                ),
        ),
    ];
    for (what, model) in others {
        assert!(!overwrites(model), "{what}");
    }
}

/// Keys and values of one head of 8, told how many of them there are.
fn attention(more: impl FnOnce(Model) -> Model) -> Model {
    let model = Model::new()
        .opset("com.microsoft", 1)
        .input("x", FLOAT, "[1, s, 8]")
        .input("seqlens", INT32, "[1]")
        .input("total", INT32, "[]")
        .input("past", FLOAT, "[1, 1, p, 8]")
        .input("past_v", FLOAT, "[1, 1, p, 8]")
        .output("y", FLOAT, "[1, s, 8]")
        .output("present", FLOAT, "[1, 1, t, 8]")
        .output("present_v", FLOAT, "[1, 1, t, 8]");
    more(model).node(
        Node::new(
            "GroupQueryAttention",
            &["x", "x", "x", "past", "past_v", "seqlens", "total"],
            &["y", "present", "present_v"],
        )
        .domain("com.microsoft")
        .int("num_heads", 1)
        .int("kv_num_heads", 1),
    )
}

#[test]
fn a_cache_is_a_buffer_where_the_node_is_told_its_length() {
    let takes = |model: Model| {
        let session = load(model);
        let (past, present) = pair(session.as_ref());
        (
            session.overwrites(past, present),
            session.takes_buffer(past, present),
        )
    };
    assert_eq!(takes(attention(|model| model)), (true, true));
    // Something looks at how long the present is.
    let looking = |model: Model| {
        model
            .output("length", INT64, "[4]")
            .node(Node::new("Shape", &["present"], &["length"]))
    };
    assert_eq!(takes(attention(looking)), (true, false));
    let reading = |model: Model| {
        model
            .output("length", INT64, "[4]")
            .node(Node::new("Shape", &["past"], &["length"]))
    };
    assert_eq!(takes(attention(reading)), (true, false));
    // A scattering is told nothing.
    assert_eq!(takes(scattering(scatter())), (true, false));
}

/// Memory that is lent for a pair which may not have it is refused before anything runs.
#[test]
fn a_buffer_for_another_pair_is_refused() {
    let mut session = load(scattering(scatter()).output("past", FLOAT, "[1, 4, 2]"));
    let mut memory = [0u8; 32];
    let room = CacheRoom::whole("past", DataType::Float32, &[1, 4, 2], &mut memory).unwrap();
    let mut outputs = [Output::alloc("present")];
    outputs[0].cache = Some(room);
    let (at, new) = (ints(&[0, 0]), floats(&[1.0, 2.0]));
    let inputs = [
        input("at", DataType::Int64, &[1, 1, 2], &at),
        input("new", DataType::Float32, &[1, 1, 2], &new),
    ];
    let error = session
        .run(&inputs, &mut outputs, &Default::default())
        .unwrap_err();
    assert!(
        matches!(error.kind(), ComponentErrorKind::NoSuchCache { .. }),
        "{error}"
    );
}
