//! Values in and out of the native runtime: where inputs are read and outputs written.
#![cfg(feature = "native")]

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxpipe::component::{
    AlignedBytes, CancelToken, ComponentError, ComponentErrorKind, ComponentSession, DataType, Input,
    ModelSource, Output, OutputResult, RunControl, TensorView, byte_len, copied_bytes,
};
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};

fn load(model: Model) -> Box<dyn ComponentSession> {
    load_with(model, &NativeOptions::default())
}

fn load_with(model: Model, options: &NativeOptions) -> Box<dyn ComponentSession> {
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    Box::new(NativeSession::load("part", &source, options).unwrap())
}

fn load_file(model: Model, options: &NativeOptions) -> Box<dyn ComponentSession> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), model.encode()).unwrap();
    let source = ModelSource::file(file.path());
    // The file goes when this returns: a session does not look for it again.
    Box::new(NativeSession::load("part", &source, options).unwrap())
}

fn run(
    session: &mut dyn ComponentSession,
    inputs: &[Input<'_>],
) -> Result<(Vec<i64>, Vec<u8>), ComponentError> {
    let mut outputs = [Output::alloc("y")];
    session.run(inputs, &mut outputs, &RunControl::default())?;
    match &outputs[0].result {
        OutputResult::Owned(tensor) => Ok((tensor.shape().to_vec(), tensor.bytes().to_vec())),
        other => panic!("expected an owned tensor, found {other:?}"),
    }
}

fn identity(from: &str, to: &str) -> Node {
    Node::new("Identity", &[from], &[to])
}

fn input<'a>(name: &'a str, dtype: DataType, shape: &'a [i64], bytes: &'a [u8]) -> Input<'a> {
    let value = TensorView::new(dtype, shape, bytes).unwrap();
    Input { name, value }
}

fn le_floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn aligned(bytes: &[u8]) -> AlignedBytes {
    AlignedBytes::try_from_slice(bytes).unwrap()
}

fn owned<'o>(output: &'o Output<'_>) -> &'o [u8] {
    match &output.result {
        OutputResult::Owned(tensor) => tensor.bytes(),
        other => panic!("expected an owned tensor, found {other:?}"),
    }
}

fn room(bytes: usize) -> Vec<MaybeUninit<u64>> {
    vec![MaybeUninit::uninit(); bytes.div_ceil(8)]
}

fn as_bytes(room: &mut [MaybeUninit<u64>]) -> &mut [MaybeUninit<u8>] {
    let len = room.len() * 8;
    // SAFETY: the same memory; `MaybeUninit` makes no claim about content.
    unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), len) }
}

/// # Panics
/// If the output did not go to the room; else the bytes that it says are there.
fn filled<'r>(result: &OutputResult, room: &'r [MaybeUninit<u64>]) -> &'r [u8] {
    let OutputResult::InRoom { dtype, shape } = result else {
        panic!("expected the room to be filled, found {result:?}");
    };
    let len = byte_len(*dtype, shape).unwrap();
    assert!(len <= room.len() * 8);
    // SAFETY: the session says that it has written these bytes.
    unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), len) }
}

#[test]
fn every_type_and_rank_passes_through_bit_for_bit() {
    let shapes: [&[i64]; 9] = [
        &[],
        &[3],
        &[2, 3],
        &[1, 2, 3],
        &[2, 1, 3, 1],
        &[1, 2, 1, 3, 2],
        &[0],
        &[2, 0, 3],
        &[0, 0, 0, 0, 0],
    ];
    for dtype in DataType::ALL {
        for shape in shapes {
            let dims = format!("{shape:?}");
            let mut session = load(
                Model::new()
                    .input("x", dtype.code() as i32, &dims)
                    .output("y", dtype.code() as i32, &dims)
                    .output("z", dtype.code() as i32, &dims)
                    .node(identity("x", "hidden"))
                    .node(identity("hidden", "y"))
                    .node(identity("hidden", "z")),
            );
            // Every byte value: NaNs, booleans that are neither 0 nor 1.
            let len = byte_len(dtype, shape).unwrap();
            let bytes: Vec<u8> = (0..len + 1).map(|index| (index * 37 + 255) as u8).collect();
            let exact = aligned(&bytes[1..]);
            let off_by_one = aligned(&bytes);
            for source in [&exact[..], &off_by_one[1..]] {
                let before = copied_bytes();
                let mut memory = room(len + 16);
                let mut outputs = [Output::into_room("y", as_bytes(&mut memory)), Output::alloc("z")];
                session
                    .run(
                        &[input("x", dtype, shape, source)],
                        &mut outputs,
                        &RunControl::default(),
                    )
                    .unwrap();
                let [y, z] = outputs;
                assert_eq!(owned(&z), &bytes[1..], "{dtype} {shape:?}");
                assert_eq!(filled(&y.result, &memory), &bytes[1..], "{dtype} {shape:?}");
                let unaligned = dtype.size() > 1 && std::ptr::eq(source, &off_by_one[1..]);
                let expected = if unaligned { len as u64 } else { 0 };
                assert_eq!(
                    copied_bytes().zip(before).map(|(now, before)| now - before),
                    copied_bytes().map(|_| expected)
                );
            }
        }
    }
}

#[test]
fn only_what_is_asked_for() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .input("unused", INT64, "[m]")
            .output("y", FLOAT, "[n]")
            .output("w", FLOAT, "[2]")
            .output("x_again", FLOAT, "[n]")
            .initializer(Tensor::floats("w", &[2], &[0.5, 0.25]))
            .node(identity("x", "y"))
            .node(identity("x", "x_again")),
    );
    let data = aligned(&le_floats(&[1.0, 2.0, 3.0]));
    let ids = aligned(&[0; 8]);
    let inputs = [
        input("unused", DataType::Int64, &[1], &ids),
        input("x", DataType::Float32, &[3], &data),
    ];
    session.run(&inputs, &mut [], &RunControl::default()).unwrap();
    for order in [["w", "x_again", "y"], ["y", "w", "x_again"]] {
        let mut outputs = order.map(Output::alloc);
        session
            .run(&inputs, &mut outputs, &RunControl::default())
            .unwrap();
        for output in &outputs {
            let expected = match output.name {
                "w" => le_floats(&[0.5, 0.25]),
                _ => le_floats(&[1.0, 2.0, 3.0]),
            };
            assert_eq!(owned(output), expected, "{}", output.name);
        }
    }
}

/// An input that is an output, an initializer that is one, and two outputs of one value.
#[test]
fn outputs_that_no_kernel_writes() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .output("x", FLOAT, "[n]")
            .output("w", FLOAT, "[2]")
            .output("a", FLOAT, "[n]")
            .output("b", FLOAT, "[n]")
            .initializer(Tensor::floats("w", &[2], &[0.5, 0.25]))
            .node(identity("x", "a"))
            .node(identity("a", "b")),
    );
    let data = aligned(&le_floats(&[1.0, 2.0]));
    let x = [input("x", DataType::Float32, &[2], &data)];
    let names = ["x", "w", "a", "b"];
    let mut rooms = names.map(|_| room(8));
    let before = copied_bytes();
    let mut outputs: Vec<_> = names
        .iter()
        .zip(&mut rooms)
        .map(|(name, memory)| Output::into_room(name, as_bytes(memory)))
        .collect();
    session.run(&x, &mut outputs, &RunControl::default()).unwrap();
    let results: Vec<_> = outputs.into_iter().map(|output| output.result).collect();
    for ((name, result), memory) in names.iter().zip(&results).zip(&rooms) {
        let expected = match *name {
            "w" => le_floats(&[0.5, 0.25]),
            _ => le_floats(&[1.0, 2.0]),
        };
        assert_eq!(filled(result, memory), expected, "{name}");
    }
    assert_eq!(copied_bytes(), before);
}

#[test]
fn room_that_does_not_fit_is_left_alone() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .output("y", FLOAT, "[n]")
            .node(identity("x", "y")),
    );
    let data = aligned(&le_floats(&[1.0, 2.0, 3.0]));
    let x = [input("x", DataType::Float32, &[3], &data)];
    for (len, offset) in [(0, 0), (8, 0), (16, 1), (16, 2)] {
        let mut memory = room(len + 8);
        let bytes = &mut as_bytes(&mut memory)[offset..offset + len];
        bytes.fill(MaybeUninit::new(0xaa));
        let mut outputs = [Output::into_room("y", bytes)];
        session.run(&x, &mut outputs, &RunControl::default()).unwrap();
        assert_eq!(owned(&outputs[0]), &data[..]);
    }
    for len in [12, 100] {
        let mut memory = room(len);
        let mut outputs = [Output::into_room("y", as_bytes(&mut memory))];
        session.run(&x, &mut outputs, &RunControl::default()).unwrap();
        let [y] = outputs;
        assert_eq!(filled(&y.result, &memory), &data[..]);
    }
}

#[test]
fn an_input_with_a_default_may_be_left_out() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .input("w", FLOAT, "[m]")
            .initializer(Tensor::floats("w", &[2], &[0.5, 0.25]))
            .output("y", FLOAT, "[m]")
            .node(identity("w", "y")),
    );
    let data = aligned(&le_floats(&[1.0]));
    let x = input("x", DataType::Float32, &[1], &data);
    let w = input("w", DataType::Float32, &[1], &data);
    let default = le_floats(&[0.5, 0.25]);
    let runs: [(&[Input<'_>], &[u8]); 3] = [(&[x], &default), (&[x, w], &data), (&[x], &default)];
    for (inputs, expected) in runs {
        let mut outputs = [Output::alloc("y")];
        session.run(inputs, &mut outputs, &RunControl::default()).unwrap();
        assert_eq!(owned(&outputs[0]), expected);
    }
}

#[test]
fn bounds_before_a_run() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[batch, 2]")
            .output("y", FLOAT, "[batch, 2]")
            .node(identity("x", "y")),
    );
    let bound = session
        .output_bound(&[("x", DataType::Float32, &[7, 2])], &["y"])
        .unwrap();
    let (dtype, shape) = bound[0].as_ref().unwrap();
    assert_eq!((*dtype, &shape[..]), (DataType::Float32, &[7, 2][..]));
    let wrong = session.output_bound(&[("x", DataType::Float32, &[7, 3])], &["y"]);
    let error = wrong.unwrap_err();
    assert!(
        matches!(error.kind(), ComponentErrorKind::WrongDim { axis: 1, .. }),
        "{error:?}"
    );
}

#[test]
fn wrong_requests_leave_the_session_usable() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[batch, 2]")
            .output("y", FLOAT, "[batch, 2]")
            .node(identity("x", "y")),
    );
    let data = aligned(&le_floats(&[1.0, 2.0]));
    let x = input("x", DataType::Float32, &[1, 2], &data);
    let mut fails = |inputs: &[Input<'_>], output: &str| {
        let mut outputs = [Output::alloc(output)];
        let error = session
            .run(inputs, &mut outputs, &RunControl::default())
            .unwrap_err();
        assert_eq!(error.component, "part");
        let mut outputs = [Output::alloc("y")];
        session.run(&[x], &mut outputs, &RunControl::default()).unwrap();
        assert_eq!(owned(&outputs[0]), &data[..]);
        error
    };
    let wrong_dtype = input("x", DataType::Int32, &[1, 2], &data);
    let wrong_rank = input("x", DataType::Float32, &[2], &data);
    let unknown = input("z", DataType::Float32, &[2], &data);
    use ComponentErrorKind as K;
    assert!(matches!(fails(&[], "y").kind(), K::MissingInput { .. }));
    assert!(matches!(fails(&[x, x], "y").kind(), K::DuplicateInput { .. }));
    assert!(matches!(fails(&[x, unknown], "y").kind(), K::UnknownInput { .. }));
    assert!(matches!(fails(&[wrong_dtype], "y").kind(), K::WrongDtype { .. }));
    assert!(matches!(fails(&[wrong_rank], "y").kind(), K::WrongRank { .. }));
    assert!(matches!(fails(&[x], "z").kind(), K::UnknownOutput { .. }));
}

/// Sigmoid(b) enlarged to the shape of a. The names say that it is as large already.
fn enlarged() -> Model {
    Model::new()
        .input("a", FLOAT, "[p, d]")
        .input("b", FLOAT, "[p, d]")
        .output("y", FLOAT, "[p, d]")
        .node(Node::new("Shape", &["a"], &["s"]))
        .node(Node::new("Sigmoid", &["b"], &["t"]))
        .node(Node::new("Expand", &["t", "s"], &["y"]))
}

#[test]
fn dims_of_one_name_may_have_different_sizes() {
    let mut session = load_file(enlarged(), &NativeOptions::default());
    let data = le_floats(&[0.0; 5]);
    let floats = |name, shape| {
        input(
            name,
            DataType::Float32,
            shape,
            &data[..byte_len(DataType::Float32, shape).unwrap()],
        )
    };
    let half = |count| le_floats(&vec![0.5; count]);
    for _ in 0..2 {
        let outputs = run(&mut *session, &[floats("a", &[1, 5]), floats("b", &[1, 1])]).unwrap();
        assert_eq!(outputs, (vec![1, 5], half(5)));
        let outputs = run(&mut *session, &[floats("a", &[1, 3]), floats("b", &[1, 3])]).unwrap();
        assert_eq!(outputs, (vec![1, 3], half(3)));
        let shapes: [(&str, &[i64]); 2] = [("a", &[1, 4]), ("b", &[1, 1])];
        let shapes = session.output_shapes(&shapes, &["y"]).unwrap();
        assert_eq!(shapes[0].as_deref(), Some(&[1, 4][..]));
    }
}

/// Also the dims of one input.
#[test]
fn a_name_that_is_twice_in_an_input_may_mean_two_sizes() {
    for name in ["n", "?"] {
        let dims = format!("[{name}, {name}]");
        let model = Model::new()
            .input("x", FLOAT, &dims)
            .output("y", FLOAT, "[a, b]")
            .node(Node::new("Shape", &["x"], &["s"]))
            .node(Node::new("Transpose", &["x"], &["t"]))
            .node(Node::new("Reshape", &["t", "s"], &["y"]));
        let mut session = load_file(model, &NativeOptions::default());
        let data = le_floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let x = input("x", DataType::Float32, &[2, 3], &data);
        let (shape, bytes) = run(&mut *session, &[x]).unwrap();
        assert_eq!(shape, [2, 3]);
        assert_eq!(bytes, le_floats(&[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
    }
}

/// A model in memory is not kept for it.
#[test]
fn a_model_from_memory_whose_names_mean_two_sizes_is_refused() {
    let mut session = load(enlarged());
    let data = le_floats(&[0.0; 5]);
    let five = |name| input(name, DataType::Float32, &[1, 5], &data);
    let one = input("b", DataType::Float32, &[1, 1], &data[..4]);
    for _ in 0..2 {
        let error = run(&mut *session, &[five("a"), one]).unwrap_err().to_string();
        for words in [
            "dim 1 of input \"a\"",
            "dim 1 of input \"b\"",
            "one name, \"d\"",
            "5 and 1",
            "native.disable_passes",
        ] {
            assert!(error.contains(words), "{words} is not in: {error}");
        }
        run(&mut *session, &[five("a"), five("b")]).unwrap();
    }
    let options = NativeOptions {
        disabled_passes: "all".parse().unwrap(),
        ..NativeOptions::default()
    };
    let mut session = load_with(enlarged(), &options);
    let (shape, _) = run(&mut *session, &[five("a"), one]).unwrap();
    assert_eq!(shape, [1, 5]);
}

/// The dims that 0 copies do not count for -1, whether passes see their size or not.
#[test]
fn reshape_infers_beside_a_dim_of_zero() {
    let model = Model::new()
        .input("x", FLOAT, "[n, 2]")
        .output("y", FLOAT, "[a, b]")
        .node(Node::new("Reshape", &["x", "s"], &["y"]))
        .initializer(Tensor::ints("s", &[2], &[0, -1]));
    for disabled in ["", "all"] {
        let options = NativeOptions {
            disabled_passes: disabled.parse().unwrap(),
            ..NativeOptions::default()
        };
        let mut session = load_with(model.clone(), &options);
        let x = input("x", DataType::Float32, &[0, 2], &[]);
        assert_eq!(run(&mut *session, &[x]).unwrap().0, [0, 2]);
    }
}

#[test]
fn a_run_ends_when_asked_to() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .output("y", FLOAT, "[n]")
            .node(identity("x", "y")),
    );
    let data = aligned(&le_floats(&[1.0]));
    let x = [input("x", DataType::Float32, &[1], &data)];
    let token = CancelToken::new();
    let control = RunControl {
        cancel: Some(token.clone()),
        deadline: Some(Instant::now() + Duration::from_secs(3600)),
    };
    let mut run = |control: &RunControl| {
        let mut outputs = [Output::alloc("y")];
        session
            .run(&x, &mut outputs, control)
            .map(|()| owned(&outputs[0]).to_vec())
    };
    assert_eq!(run(&control).unwrap(), &data[..]);
    token.request();
    assert!(matches!(
        run(&control).unwrap_err().kind(),
        ComponentErrorKind::Cancelled
    ));
    token.reset();
    assert_eq!(run(&control).unwrap(), &data[..]);
    let late = RunControl {
        cancel: Some(token),
        deadline: Some(Instant::now()),
    };
    assert!(matches!(
        run(&late).unwrap_err().kind(),
        ComponentErrorKind::DeadlineExceeded
    ));
    assert_eq!(run(&control).unwrap(), &data[..]);
}

/// More shapes than plans are kept for, again and again.
#[test]
fn shapes_may_change_from_run_to_run() {
    let mut session = load(
        Model::new()
            .input("x", FLOAT, "[n]")
            .output("y", FLOAT, "[n]")
            .node(identity("x", "hidden"))
            .node(identity("hidden", "y")),
    );
    for round in 0..3 {
        for size in [1usize, 9, 0, 5, 2, 300, 7, 1, 300] {
            let values: Vec<f32> = (0..size).map(|index| (index * 10 + round) as f32).collect();
            let data = aligned(&le_floats(&values));
            let mut outputs = [Output::alloc("y")];
            session
                .run(
                    &[input("x", DataType::Float32, &[size as i64], &data)],
                    &mut outputs,
                    &RunControl::default(),
                )
                .unwrap();
            assert_eq!(owned(&outputs[0]), &data[..]);
        }
    }
}

/// A graph whose output "y" is a chain of nodes on "x" [2, 3, 4], and what a run gives for it
/// whole and with only the last row asked for, with the outputs asked for beside it.
fn rows_of(model: Model, beside: &[&str]) -> [(Vec<i64>, Vec<u8>); 2] {
    let mut session = load(model);
    let values: Vec<f32> = (0..24).map(|i| (i as f32 - 11.0) / 8.0).collect();
    let bytes = le_floats(&values);
    let bytes = aligned(&bytes);
    [false, true].map(|last_row| {
        let mut outputs: Vec<Output<'_>> = [&["y"], beside]
            .concat()
            .into_iter()
            .map(|name| Output {
                last_row: last_row && name == "y",
                ..Output::alloc(name)
            })
            .collect();
        let inputs = [input("x", DataType::Float32, &[2, 3, 4], &bytes)];
        session
            .run(&inputs, &mut outputs, &RunControl::default())
            .unwrap();
        let (_, shape) = outputs[0].result.dtype_and_shape().unwrap();
        (shape.to_vec(), owned(&outputs[0]).to_vec())
    })
}

fn tall_model(nodes: &[Node]) -> Model {
    let weights: Vec<f32> = (0..20).map(|i| (i % 7) as f32 - 3.0).collect();
    let bias = [0.5, -0.25, 1.0, 2.0, -3.0];
    let model = Model::new()
        .input("x", FLOAT, "[a,b,4]")
        .initializer(Tensor::floats("w", &[4, 5], &weights))
        .initializer(Tensor::floats("bias", &[5], &bias))
        .initializer(Tensor::floats("rows", &[3, 5], &[1.0; 15]));
    nodes.iter().cloned().fold(model, Model::node)
}

#[test]
fn only_the_last_row_is_computed_where_nothing_else_needs_the_others() {
    let product = Node::new("MatMul", &["x", "w"], &["p"]);
    let add = Node::new("Add", &["p", "bias"], &["q"]);
    let tanh = Node::new("Tanh", &["q"], &["y"]);
    let model = tall_model(&[product, add, tanh]).output("y", FLOAT, "[a,b,5]");
    let [(whole_shape, whole), (shape, row)] = rows_of(model, &[]);
    assert_eq!(whole_shape, [2, 3, 5]);
    assert_eq!(shape, [1, 1, 5]);
    assert_eq!(row, whole[whole.len() - 5 * 4..]);
}

#[test]
fn all_rows_are_computed_where_something_needs_them() {
    let product = Node::new("MatMul", &["x", "w"], &["p"]);
    let whole = |nodes: &[Node]| tall_model(nodes).output("y", FLOAT, "[a,b,c]");
    // A constant that has rows of its own cannot be cut along.
    let rows = whole(&[product.clone(), Node::new("Add", &["p", "rows"], &["y"])]);
    // A matrix that is no constant.
    let turned = Node::new("Transpose", &["x"], &["t"]).ints("perm", &[0, 2, 1]);
    let computed = whole(&[turned, Node::new("MatMul", &["x", "t"], &["y"])]);
    // The same value under two names.
    let twice = whole(&[product.clone(), identity("p", "y"), identity("p", "z")]);
    let twice = twice.output("z", FLOAT, "[a,b,c]");
    for (model, beside) in [(rows, &[][..]), (computed, &[]), (twice, &["z"])] {
        let [whole, last] = rows_of(model, beside);
        assert_eq!(last.0[..2], [2, 3]);
        assert_eq!(last, whole);
    }
    // What is an output of its own is whole; what follows from it need not be.
    let shown = whole(&[product, Node::new("Tanh", &["p"], &["y"])]).output("p", FLOAT, "[a,b,5]");
    let [whole, last] = rows_of(shown, &["p"]);
    assert_eq!(last.0, [1, 1, 5]);
    assert_eq!(last.1, whole.1[whole.1.len() - 5 * 4..]);
}

/// The error of a model of this node, which is of `com.microsoft` version 1 or ONNX's own 21.
fn refused(node: Node) -> ComponentError {
    let model = ["a", "b"]
        .into_iter()
        .fold(Model::new(), |model, name| model.input(name, FLOAT, "[...]"))
        .opset("", 21)
        .opset("com.microsoft", 1)
        .graph(|graph| graph.untyped_output("y"))
        .node(node);
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    match NativeSession::load("part", &source, &NativeOptions::default()) {
        Ok(_) => panic!("a node that makes no sense is loaded"),
        Err(error) => error,
    }
}

#[test]
fn nodes_with_too_many_or_too_few_inputs_or_outputs_are_refused_at_load() {
    let many = ["a"; 9];
    for (node, expected) in [
        (
            Node::new("Neg", &["a"], &["y", "z", "w"]),
            "(Neg): has 3 outputs, expected 1",
        ),
        (Node::new("Neg", &[], &["y"]), "(Neg): has 0 inputs, expected 1"),
        (Node::new("Neg", &[""], &["y"]), "(Neg): input 0 is missing"),
        (
            Node::new("Clip", &many, &["y"]),
            "(Clip): has 9 inputs, expected 1 to 3",
        ),
        (
            Node::new("Concat", &[], &["y"]),
            "(Concat): has 0 inputs, expected at least 1",
        ),
        (
            Node::new("TopK", &["a", "b"], &["y"]),
            "(TopK): has 1 output, expected 2",
        ),
        (
            Node::new("SkipLayerNormalization", &["a", "", "b"], &["y"]).domain("com.microsoft"),
            "(SkipLayerNormalization): input 1 is missing",
        ),
        (
            Node::new("QuickGelu", &["a", "b"], &["y"]).domain("com.microsoft"),
            "(QuickGelu): has 2 inputs, expected 1",
        ),
    ] {
        let error = refused(node);
        let text = error.to_string();
        assert!(
            matches!(error.kind(), ComponentErrorKind::InvalidNode { .. }),
            "{text}"
        );
        assert!(text.contains("node \"y\"") && text.contains(expected), "{text}");
    }
}

#[test]
fn inputs_and_outputs_left_out_at_the_end_do_not_count() {
    for node in [
        Node::new("Clip", &["x", "", "", "", ""], &["y"]),
        Node::new("Clip", &["x"], &["y", "", ""]),
    ] {
        load(
            Model::new()
                .opset("", 21)
                .input("x", FLOAT, "[...]")
                .output("y", FLOAT, "[...]")
                .node(node),
        );
    }
}
