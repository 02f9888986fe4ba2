//! Small models that ask for more memory than there is, in every place where a model says how much is
//! taken: each is refused with an error, or computed in memory that is in proportion to it. The allocator of
//! these tests refuses what is absurdly large, so that memory which is taken without a way to refuse ends
//! the process; and an account with a limit refuses what is small enough to be had.
#![cfg(feature = "native")]

use std::sync::Arc;

use oxpipe::component::{ComponentError, ComponentErrorKind, MemoryAccount, ModelSource};
use oxpipe::native::tensor::Tensor;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::bounded_allocator::Bounded;
use oxpipe_test_support::onnx_writer::{self, BOOL, FLOAT, INT64, Message, Model, Node, STRING, UINT8};

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

fn load(model: Model) -> Result<NativeSession, ComponentError> {
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    NativeSession::load("", &source, &NativeOptions::default())
}

/// Loads a model within a limit.
fn load_within(limit: u64, model: Model) -> Result<NativeSession, ComponentError> {
    let account = MemoryAccount::new("the pipeline", "memory_bytes", limit);
    let _entered = account.enter();
    load(model)
}

/// Runs a model within a limit, and then once more: it is as good as before.
fn run_within(
    limit: u64,
    session: &mut NativeSession,
    inputs: &[(&str, &Tensor)],
) -> Result<Vec<Tensor>, ComponentError> {
    let account = MemoryAccount::new("the run", "memory_bytes", limit);
    let _entered = account.enter();
    let inputs: Vec<_> = inputs.iter().map(|(name, value)| (*name, value.view())).collect();
    let first = session.run_tensors(&inputs, &["y"]);
    let second = session.run_tensors(&inputs, &["y"]);
    assert_eq!(first.is_ok(), second.is_ok(), "{second:?}");
    second
}

const NO_LIMIT: u64 = u64::MAX;

#[track_caller]
fn assert_out_of_memory<R>(result: Result<R, ComponentError>) {
    match result.map_err(|error| error.to_string()) {
        Ok(_) => panic!("it was not refused"),
        Err(error) => assert!(error.contains("cannot allocate"), "{error}"),
    }
}

fn ints(values: &[i64]) -> Tensor {
    Tensor::from_slice(&[values.len()], values).unwrap()
}

fn texts(values: &[&str]) -> Tensor {
    let strings = values.iter().map(|&text| text.to_owned()).collect();
    Tensor::from_strings(&[values.len()], strings).unwrap()
}

/// A string constant of one element.
fn text_constant(name: &str, text: &str) -> onnx_writer::Tensor {
    let tensor = Message::new()
        .int(1, 1)
        .int(2, STRING.into())
        .bytes(6, text)
        .bytes(8, name);
    onnx_writer::Tensor::of(tensor)
}

fn model(node: Node) -> Model {
    Model::new()
        .ir_version(13)
        .opset("", 22)
        .opset("com.microsoft", 1)
        .graph(|graph| graph.untyped_output("y"))
        .node(node)
}

/// Nodes that make many strings of few: 2^24 of a mebibyte each, of which the strings themselves are more
/// than one allocation may be, and 2^14, of which only their texts are too much.
fn many_strings(count: i64) -> Vec<Model> {
    let long = "x".repeat(1 << 20);
    let constant = |name: &str| text_constant(name, &long);
    let counts = |name: &str| onnx_writer::Tensor::ints(name, &[1], &[count]);
    let zeros = |name: &str| {
        let shape = onnx_writer::Tensor::ints("shape", &[1], &[count]);
        let zero = onnx_writer::Tensor::ints("", &[1], &[0]);
        let fill = Node::new("ConstantOfShape", &["shape"], &[name]).tensor("value", zero);
        move |model: Model| model.initializer(shape).node(fill)
    };
    let expand = |to: &str| Node::new("Expand", &["x", "count"], &[to]);
    let with = |model: Model| model.initializer(constant("x")).initializer(counts("count"));
    vec![
        with(model(expand("y"))),
        with(model(Node::new("Tile", &["x", "count"], &["y"]))),
        zeros("at")(model(Node::new("Gather", &["x", "at"], &["y"])).initializer(constant("x"))),
        // A short one, so that it is folded, in front of a long one for each.
        with(model(Node::new("StringConcat", &["x", "few"], &["y"])))
            .initializer(text_constant("little", ""))
            .node(Node::new("Expand", &["little", "count"], &["few"])),
        // Half of them each.
        with(model(Node::new("Concat", &["e", "e"], &["y"]).int("axis", 0))).node(expand("e")),
        zeros("n")(model(Node::new("Cast", &["n"], &["y"]).int("to", STRING.into()))),
    ]
}

#[test]
fn strings_without_number_are_refused() {
    for (index, model) in many_strings(1 << 24).into_iter().enumerate() {
        // What can be done at load is left to the run if it is too much.
        let mut session = load(model).unwrap_or_else(|error| panic!("{index}: {error}"));
        assert_out_of_memory(run_within(NO_LIMIT, &mut session, &[]));
    }
}

#[test]
fn texts_of_strings_count_for_the_limit() {
    for (index, model) in many_strings(1 << 14).into_iter().take(5).enumerate() {
        let mut session = load_within(64 << 20, model).unwrap_or_else(|error| panic!("{index}: {error}"));
        assert_out_of_memory(run_within(64 << 20, &mut session, &[]));
    }
    // A split makes strings of 24 bytes of every byte of a text.
    let split = model(Node::new("StringSplit", &["x"], &["y", "counts"]).string("delimiter", ","));
    let mut session = load(split.input("x", STRING, "[n]")).unwrap();
    let commas = texts(&[&",".repeat(1 << 20)]);
    assert_out_of_memory(run_within(16 << 20, &mut session, &[("x", &commas)]));
    let few = run_within(16 << 20, &mut session, &[("x", &texts(&["a,b,,c"]))]).unwrap();
    assert_eq!(few[0].view().strings().unwrap(), ["a", "b", "", "c"]);
}

/// Functions of which each calls the next twice.
fn doubling(levels: usize, body: impl Fn(&str) -> Node) -> Model {
    let mut model = Model::new()
        .opset("local", 1)
        .input("x", FLOAT, "[n]")
        .output("y", FLOAT, "[n]")
        .node(Node::new("f0", &["x"], &["y"]).domain("local"));
    for level in 0..levels {
        let (name, next) = (format!("f{level}"), format!("f{}", level + 1));
        let call = |from: &str, to: &str| Node::new(&next, &[from], &[to]).domain("local");
        model = model.function(&name, &["a"], &["b"], vec![call("a", "t"), call("t", "b")]);
    }
    model.function(&format!("f{levels}"), &["a"], &["b"], vec![body("a")])
}

#[test]
fn functions_that_double_are_refused_before_they_are_made() {
    let list = vec![0i64; 1 << 16];
    type Body<'a> = (usize, &'a dyn Fn(&str) -> Node, &'a str);
    let bodies: [Body<'_>; 2] = [
        // 2^40 nodes of next to nothing.
        (40, &|a| Node::new("Neg", &[a], &["b"]), "more than 1048576 nodes"),
        // 2^16 nodes with half a mebibyte each.
        (
            16,
            &|a| Node::new("Neg", &[a], &["b"]).ints("unknown", &list),
            "268435456 bytes",
        ),
    ];
    for (levels, body, expected) in bodies {
        let error = load(doubling(levels, body)).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut session = load(doubling(3, |a| Node::new("Neg", &[a], &["b"]))).unwrap();
    let x = Tensor::from_slice(&[1], &[2f32]).unwrap();
    let y = session.run_tensors(&[("x", x.view())], &["y"]).unwrap();
    assert_eq!(y[0].view().slice::<f32>().unwrap(), [2.0]);
}

#[test]
fn ranks_have_a_limit() {
    let ones = vec![1i64; 65];
    let constant =
        |name: &str, values: &[i64]| onnx_writer::Tensor::ints(name, &[values.len() as i64], values);
    let axes: Vec<i64> = (0..65).collect();
    let shaped = |op: &str, values: &[i64]| {
        model(Node::new(op, &["x", "s"], &["y"]).name("it"))
            .input("x", FLOAT, "[1]")
            .initializer(constant("s", values))
    };
    let unknown = |op: &str, inputs: &[&str]| {
        model(Node::new(op, inputs, &["y"]).name("it"))
            .input("x", FLOAT, "[1]")
            .input("s", INT64, "[4000000000]")
    };
    let refused = [
        shaped("Reshape", &ones),
        shaped("Expand", &ones),
        shaped("Unsqueeze", &axes[..64]),
        model(Node::new("ConstantOfShape", &["s"], &["y"]).name("it")).initializer(constant("s", &ones)),
        unknown("Reshape", &["x", "s"]),
        unknown("ConstantOfShape", &["s"]),
        unknown("Expand", &["x", "s"]),
    ];
    for (index, model) in refused.into_iter().enumerate() {
        let found = match (index, load(model)) {
            (_, Err(error)) => error.to_string(),
            // What nothing is known of may be small.
            (6, Ok(_)) => continue,
            (_, Ok(_)) => panic!("{index} was not refused"),
        };
        assert!(found.contains("rank") && found.contains("limit is 64"), "{found}");
        assert!(found.contains("\"it\""), "{found}");
    }
    // In a run, too.
    for op in ["Reshape", "Expand", "Unsqueeze"] {
        let model = model(Node::new(op, &["x", "s"], &["y"]).name("it"));
        let mut session = load(model.input("x", FLOAT, "[1]").input("s", INT64, "[n]")).unwrap();
        let (x, s) = (Tensor::from_slice(&[1], &[1f32]).unwrap(), ints(&axes[..64]));
        let s = if op == "Unsqueeze" { s } else { ints(&ones) };
        let error = run_within(NO_LIMIT, &mut session, &[("x", &x), ("s", &s)])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("limit is 64") && error.contains("\"it\""),
            "{error}"
        );
    }
    let most = load(shaped("Unsqueeze", &axes[..63])).unwrap();
    drop(most);
}

/// No rows of 2^31 elements: packing takes no memory for them.
#[test]
fn weights_without_rows_take_no_room() {
    let model = model(
        Node::new("MatMulNBits", &["x", "w", "s"], &["y"])
            .domain("com.microsoft")
            .int("K", 1 << 31)
            .int("N", 0)
            .int("bits", 4)
            .int("block_size", 32),
    );
    let model = model
        .input("x", FLOAT, "[0, 2147483648]")
        .initializer(onnx_writer::Tensor::raw("w", UINT8, &[0, 1 << 26, 16], &[]))
        .initializer(onnx_writer::Tensor::floats("s", &[0], &[]));
    let (plain, limited) = (load(model.clone()), load_within(1 << 20, model));
    for loaded in [plain, limited] {
        if let Err(error) = loaded {
            assert!(
                !matches!(error.kind(), ComponentErrorKind::OutOfMemory { .. }),
                "{error}"
            );
        }
    }
}

/// What kernels make for themselves counts: tables of a length that the model gives.
#[test]
fn tables_of_kernels_count_for_the_limit() {
    const LIMIT: u64 = 4 << 20;
    let scalar = |value: i64| Tensor::from_slice(&[], &[value]).unwrap();
    let signal = Tensor::from_slice(&[1, 4, 1], &[1f32, 2.0, 3.0, 4.0]).unwrap();
    // 2^17 complex numbers of f64 are 2 MiB: the signal and its transform, which are scratch memory, and
    // the roots. The result is one more MiB.
    let dft = model(Node::new("DFT", &["x", "n"], &["y"]));
    let mut dft = load(dft.input("x", FLOAT, "[1, l, 1]").input("n", INT64, "[]")).unwrap();
    let run = |limit, session: &mut NativeSession| {
        run_within(limit, session, &[("x", &signal), ("n", &scalar(1 << 17))])
    };
    // The first result is there while the second is made.
    assert_out_of_memory(run(13 << 19, &mut dft));
    assert!(run(10 << 20, &mut dft).is_ok());
    // A table of 16 bytes for each position, of a result of one byte for each.
    let pad = model(Node::new("Pad", &["x", "p"], &["y"]).string("mode", "edge"));
    let mut pad = load(pad.input("x", UINT8, "[1]").input("p", INT64, "[2]")).unwrap();
    let x = Tensor::from_slice(&[1], &[1u8]).unwrap();
    let p = ints(&[0, 1 << 20]);
    assert_out_of_memory(run_within(LIMIT, &mut pad, &[("x", &x), ("p", &p)]));
    assert!(run_within(32 << 20, &mut pad, &[("x", &x), ("p", &p)]).is_ok());
    // What iterations leave behind, though it has no elements.
    let body = onnx_writer::Graph::new()
        .input("i", INT64, "[]")
        .input("going", BOOL, "[]")
        .output("again", BOOL, "[]")
        .output("none", FLOAT, "[0]")
        .node(Node::new("Identity", &["going"], &["again"]))
        .node(Node::new("Identity", &["e"], &["none"]));
    let kept = model(Node::new("Loop", &["n", ""], &["y"]).graph("body", body));
    let kept = kept.initializer(onnx_writer::Tensor::floats("e", &[0], &[]));
    let mut kept = load(kept.input("n", INT64, "[]")).unwrap();
    assert_out_of_memory(run_within(LIMIT, &mut kept, &[("n", &scalar(1 << 16))]));
    let few = run_within(LIMIT, &mut kept, &[("n", &scalar(3))]).unwrap();
    assert_eq!(few[0].dims(), [3, 0]);
    // Parts without elements.
    let parts = model(Node::new("SequenceLength", &["s"], &["y"]))
        .node(Node::new("SplitToSequence", &["x"], &["s"]).int("keepdims", 1));
    let mut parts = load(parts.input("x", FLOAT, "[n, 0]")).unwrap();
    let x = Tensor::from_slice::<f32>(&[1 << 20, 0], &[]).unwrap();
    assert_out_of_memory(run_within(LIMIT, &mut parts, &[("x", &x)]));
}
