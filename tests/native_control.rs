//! Control flow of the native runtime: what graphs inside nodes see of those around them,
//! and what loops do with their values. Results are known in closed form.
#![cfg(feature = "native")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use oxpipe::component::{
    CancelToken, ComponentError, ComponentErrorKind, ComponentSession, ComponentTensor, DataType, Input,
    ModelSource, Output, RunControl, TensorView,
};
use oxpipe::native::tensor::Tensor as Value;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{BOOL, FLOAT, Graph, INT64, Model, Node, Tensor};

fn try_load(model: Model) -> Result<NativeSession, ComponentError> {
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    NativeSession::load("part", &source, &NativeOptions::default())
}

fn load(model: Model) -> NativeSession {
    try_load(model).unwrap()
}

fn floats(dims: &[usize], values: &[f32]) -> Value {
    Value::from_slice(dims, values).unwrap()
}

fn run(session: &mut NativeSession, inputs: &[(&str, &Value)], outputs: &[&str]) -> Vec<Value> {
    let inputs: Vec<_> = inputs.iter().map(|(name, value)| (*name, value.view())).collect();
    session.run_tensors(&inputs, outputs).unwrap()
}

fn assert_floats(value: &Value, dims: &[usize], expected: &[f32]) {
    assert_eq!(value.dims(), dims);
    assert_eq!(value.view().slice::<f32>().unwrap(), expected);
}

fn add(a: &str, b: &str, sum: &str) -> Node {
    Node::new("Add", &[a, b], &[sum])
}

fn identity(from: &str, to: &str) -> Node {
    Node::new("Identity", &[from], &[to])
}

fn bool_tensor(name: &str, value: bool) -> Tensor {
    Tensor::raw(name, BOOL, &[], &[value.into()])
}

/// `y` is `x` plus `times` times `step`, as a Loop whose body captures `step`.
fn adding_loop() -> Model {
    let body = Graph::new()
        .input("i", INT64, "[]")
        .input("going", BOOL, "[]")
        .input("sum", FLOAT, "[n]")
        .output("going_out", BOOL, "[]")
        .output("sum_out", FLOAT, "[n]")
        .output("scanned", FLOAT, "[n]")
        .node(identity("going", "going_out"))
        .node(add("sum", "step", "sum_out"))
        .node(identity("sum_out", "scanned"));
    Model::new()
        .input("x", FLOAT, "[n]")
        .input("step", FLOAT, "[n]")
        .input("times", INT64, "[]")
        .output("y", FLOAT, "[n]")
        .output("all", FLOAT, "[times, n]")
        .node(Node::new("Loop", &["times", "", "x"], &["y", "all"]).graph("body", body))
}

#[test]
fn a_loop_carries_and_stacks() {
    let mut session = load(adding_loop());
    let (x, step) = (floats(&[2], &[1.0, 2.0]), floats(&[2], &[0.5, 10.0]));
    for times in [3i64, 1, 3] {
        let count = Value::from_slice(&[], &[times]).unwrap();
        let inputs = [("x", &x), ("step", &step), ("times", &count)];
        let found = run(&mut session, &inputs, &["y", "all"]);
        let times = times as usize;
        let after = |n: usize| [1.0 + 0.5 * n as f32, 2.0 + 10.0 * n as f32];
        assert_floats(&found[0], &[2], &after(times));
        let all: Vec<f32> = (1..=times).flat_map(after).collect();
        assert_floats(&found[1], &[times, 2], &all);
        // An output that nobody asks for need not be computed.
        assert_floats(&run(&mut session, &inputs, &["y"])[0], &[2], &after(times));
    }
}

#[test]
fn a_loop_of_no_iterations_gives_what_it_was_given() {
    let mut session = load(adding_loop());
    let x = floats(&[2], &[1.0, 2.0]);
    for times in [0i64, -4] {
        let count = Value::from_slice(&[], &[times]).unwrap();
        let found = run(
            &mut session,
            &[("x", &x), ("step", &x), ("times", &count)],
            &["y", "all"],
        );
        assert_floats(&found[0], &[2], &[1.0, 2.0]);
        assert_eq!(found[1].dims()[0], 0);
        assert_eq!(found[1].dims().len(), 2);
    }
}

#[test]
fn carried_values_may_change_their_shape() {
    // Doubles its value by Concat until it has eight elements.
    let body = Graph::new()
        .input("i", INT64, "[]")
        .input("going", BOOL, "[]")
        .input("v", FLOAT, "[1]")
        .output("going_out", BOOL, "[]")
        .output("twice", FLOAT, "[...]")
        .node(Node::new("Concat", &["v", "v"], &["twice"]).int("axis", 0))
        .node(Node::new("Size", &["twice"], &["size"]))
        .node(Node::new("Less", &["size", "limit"], &["going_out"]));
    let model = Model::new()
        .input("x", FLOAT, "[1]")
        .output("y", FLOAT, "[...]")
        .initializer(Tensor::ints("limit", &[], &[8]))
        .initializer(bool_tensor("yes", true))
        .node(Node::new("Loop", &["", "yes", "x"], &["y"]).graph("body", body));
    let mut session = load(model);
    for _ in 0..2 {
        let found = run(&mut session, &[("x", &floats(&[1], &[3.0]))], &["y"]);
        assert_floats(&found[0], &[8], &[3.0; 8]);
    }
}

#[test]
fn graphs_see_the_values_of_all_graphs_around_them() {
    // In each iteration: sum + (i is even ? outer + inner : x), where `outer` is of the model,
    // `inner` of the loop's body, and `x` is a name that the body gives to something else.
    let even = Graph::new()
        .output("even_out", FLOAT, "[]")
        .node(add("outer", "inner", "even_out"));
    let odd = Graph::new().output("x", FLOAT, "[]");
    let body = Graph::new()
        .input("i", INT64, "[]")
        .input("going", BOOL, "[]")
        .input("sum", FLOAT, "[]")
        .output("going", BOOL, "[]")
        .output("sum_out", FLOAT, "[]")
        .initializer(Tensor::floats("x", &[], &[1000.0]))
        .node(add("sum", "outer", "inner"))
        .node(Node::new("Mod", &["i", "two"], &["rest"]))
        .node(Node::new("Equal", &["rest", "zero"], &["is_even"]))
        .node(
            Node::new("If", &["is_even"], &["more"])
                .graph("then_branch", even)
                .graph("else_branch", odd),
        )
        .node(add("sum", "more", "sum_out"));
    let model = Model::new()
        .input("x", FLOAT, "[]")
        .output("y", FLOAT, "[]")
        .initializer(Tensor::ints("zero", &[], &[0]))
        .initializer(Tensor::ints("two", &[], &[2]))
        .initializer(Tensor::ints("three", &[], &[3]))
        // After its reader, and read by nothing but graphs inside.
        .node(Node::new("Loop", &["three", "", "x"], &["y"]).graph("body", body))
        .node(add("x", "x", "outer"));
    let mut session = load(model);
    let found = run(&mut session, &[("x", &floats(&[], &[1.0]))], &["y"]);
    // outer = 2. i=0: 1 + (2 + (1 + 2)) = 6; i=1: 1006; i=2: 1006 + (2 + (1006 + 2)) = 2016.
    assert_floats(&found[0], &[], &[2016.0]);
}

#[test]
fn functions_may_hold_graphs_that_read_their_values() {
    // F(a) = a > 0 ? a + t : t, t = a + a. The caller has values of the same names.
    let function = vec![
        add("a", "a", "t"),
        Node::new("Greater", &["a", "zero"], &["c"]),
        Node::new("If", &["c"], &["b"])
            .graph(
                "then_branch",
                Graph::new().output("t2", FLOAT, "[]").node(add("a", "t", "t2")),
            )
            .graph("else_branch", Graph::new().output("t", FLOAT, "[]")),
    ];
    let zero = Node::new("Constant", &[], &["zero"]).tensor("value", Tensor::floats("", &[], &[0.0]));
    let function = std::iter::once(zero).chain(function).collect();
    let model = Model::new()
        .opset("local", 1)
        .input("t", FLOAT, "[]")
        .output("y", FLOAT, "[]")
        .function("F", &["a"], &["b"], function)
        .node(Node::new("F", &["t"], &["t2"]).domain("local"))
        .node(Node::new("F", &["t2"], &["y"]).domain("local"));
    let mut session = load(model);
    for (t, y) in [(1.0, 9.0), (-1.0, -4.0)] {
        assert_floats(
            &run(&mut session, &[("t", &floats(&[], &[t]))], &["y"])[0],
            &[],
            &[y],
        );
    }
}

#[test]
fn scan_in_a_batch_stops_at_each_length() {
    let body = Graph::new()
        .input("sum", FLOAT, "[2]")
        .input("next", FLOAT, "[2]")
        .output("sum_out", FLOAT, "[2]")
        .output("element", FLOAT, "[2]")
        .node(add("sum", "next", "sum_out"))
        .node(identity("sum_out", "element"));
    let model = Model::new()
        .opset("", 8)
        .input("lengths", INT64, "[2]")
        .input("start", FLOAT, "[2, 2]")
        .input("x", FLOAT, "[2, 3, 2]")
        .output("last", FLOAT, "[2, 2]")
        .output("sums", FLOAT, "[2, 3, 2]")
        .node(
            Node::new("Scan", &["lengths", "start", "x"], &["last", "sums"])
                .int("num_scan_inputs", 1)
                .graph("body", body),
        );
    let mut session = load(model);
    let lengths = Value::from_slice(&[2], &[3i64, 1]).unwrap();
    let start = floats(&[2, 2], &[0.0, 0.0, 100.0, 100.0]);
    let x: Vec<f32> = (1..=12).map(|x| x as f32).collect();
    let inputs = [
        ("lengths", &lengths),
        ("start", &start),
        ("x", &floats(&[2, 3, 2], &x)),
    ];
    let found = run(&mut session, &inputs, &["last", "sums"]);
    assert_floats(&found[0], &[2, 2], &[9.0, 12.0, 107.0, 108.0]);
    let sums = [1.0, 2.0, 4.0, 6.0, 9.0, 12.0, 107.0, 108.0, 0.0, 0.0, 0.0, 0.0];
    assert_floats(&found[1], &[2, 3, 2], &sums);
}

/// Members of a batch of which none has anything to be scanned.
#[test]
fn a_scan_of_many_empty_sequences_can_be_ended() {
    const BATCH: i64 = 1 << 20;
    let body = Graph::new()
        .input("sum", FLOAT, "[0]")
        .input("next", FLOAT, "[1]")
        .output("sum", FLOAT, "[0]")
        .output("element", FLOAT, "[1]")
        .node(identity("next", "element"));
    let model = Model::new()
        .opset("", 8)
        .input("start", FLOAT, "[b, 0]")
        .input("x", FLOAT, "[b, 0, 1]")
        .output("last", FLOAT, "[b, 0]")
        .node(
            Node::new("Scan", &["", "start", "x"], &["last"])
                .int("num_scan_inputs", 1)
                .graph("body", body),
        );
    let mut session = load(model);
    let empty = |dims: &[i64]| ComponentTensor::from_raw(DataType::Float32, dims, &[]).unwrap();
    let (start, x) = (empty(&[BATCH, 0]), empty(&[BATCH, 0, 1]));
    let inputs = [("start", start.view()), ("x", x.view())].map(|(name, value)| Input { name, value });
    let control = RunControl {
        deadline: Some(Instant::now() + Duration::from_millis(20)),
        ..RunControl::default()
    };
    let error = session
        .execute(&inputs, &mut [Output::alloc("last")], &control)
        .unwrap_err();
    let is_late = matches!(error.kind(), ComponentErrorKind::DeadlineExceeded);
    assert!(is_late, "{error:?}");
}

#[test]
fn scan_along_any_axis_in_any_direction() {
    // Running sums of the columns from the right, stacked as columns from the right.
    let body = Graph::new()
        .input("sum", FLOAT, "[2]")
        .input("next", FLOAT, "[2]")
        .output("sum_out", FLOAT, "[2]")
        .output("sum_out", FLOAT, "[2]")
        .node(add("sum", "next", "sum_out"));
    let model = Model::new()
        .input("x", FLOAT, "[2, n]")
        .output("last", FLOAT, "[2]")
        .output("sums", FLOAT, "[2, n]")
        .initializer(Tensor::floats("zeros", &[2], &[0.0, 0.0]))
        .node(
            Node::new("Scan", &["zeros", "x"], &["last", "sums"])
                .int("num_scan_inputs", 1)
                .ints("scan_input_axes", &[1])
                .ints("scan_input_directions", &[1])
                .ints("scan_output_axes", &[-1])
                .ints("scan_output_directions", &[1])
                .graph("body", body),
        );
    let mut session = load(model);
    let x = floats(&[2, 3], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    let found = run(&mut session, &[("x", &x)], &["last", "sums"]);
    assert_floats(&found[0], &[2], &[6.0, 60.0]);
    assert_floats(&found[1], &[2, 3], &[6.0, 5.0, 3.0, 60.0, 50.0, 30.0]);
    let found = run(&mut session, &[("x", &floats(&[2, 0], &[]))], &["last", "sums"]);
    assert_floats(&found[0], &[2], &[0.0, 0.0]);
    assert_floats(&found[1], &[2, 0], &[]);
}

#[test]
fn an_endless_loop_can_be_cancelled() {
    let body = Graph::new()
        .input("i", INT64, "[]")
        .input("going", BOOL, "[]")
        .output("going", BOOL, "[]");
    let carried = body.input("v", FLOAT, "[]").output("v", FLOAT, "[]");
    let model = Model::new()
        .input("x", FLOAT, "[]")
        .output("y", FLOAT, "[]")
        .initializer(bool_tensor("yes", true))
        .node(Node::new("Loop", &["", "yes", "x"], &["y"]).graph("body", carried));
    let mut session = load(model);
    let bytes = 1.0f32.to_le_bytes();
    let aligned = oxpipe::component::AlignedBytes::try_from_slice(&bytes).unwrap();
    let value = TensorView::new(DataType::Float32, &[], &aligned).unwrap();
    let mut run = |control: &RunControl| {
        let inputs = [Input { name: "x", value }];
        let mut outputs = [Output::alloc("y")];
        session.execute(&inputs, &mut outputs, control)
    };
    let deadline = RunControl {
        deadline: Some(Instant::now() + Duration::from_millis(30)),
        ..RunControl::default()
    };
    let error = run(&deadline).unwrap_err();
    assert!(
        matches!(error.kind(), ComponentErrorKind::DeadlineExceeded),
        "{error:?}"
    );
    let token = CancelToken::default();
    let control = RunControl {
        cancel: Some(token.clone()),
        ..RunControl::default()
    };
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        token.request();
    });
    let error = run(&control).unwrap_err();
    canceller.join().unwrap();
    assert!(matches!(error.kind(), ComponentErrorKind::Cancelled), "{error:?}");
}

/// Endless loops: whose body is empty, whose inner loop is endless or of no iterations, and whose body
/// has branches.
fn endless() -> Vec<(&'static str, Model)> {
    let same = || {
        Graph::new()
            .input("i", INT64, "[]")
            .input("going", BOOL, "[]")
            .output("going", BOOL, "[]")
            .input("v", FLOAT, "[]")
    };
    let around = |body: Graph| {
        Model::new()
            .input("x", FLOAT, "[]")
            .output("y", FLOAT, "[]")
            .initializer(bool_tensor("yes", true))
            .initializer(Tensor::ints("none", &[], &[0]))
            .node(Node::new("Loop", &["", "yes", "x"], &["y"]).graph("body", body))
    };
    let inner = |count: &'static str| {
        let body = Graph::new()
            .input("j", INT64, "[]")
            .input("on", BOOL, "[]")
            .output("on", BOOL, "[]")
            .input("u", FLOAT, "[]")
            .output("u", FLOAT, "[]");
        let node = Node::new("Loop", &[count, "yes", "v"], &["w"]).graph("body", body);
        around(same().node(node).output("w", FLOAT, "[]"))
    };
    let branch = || Graph::new().output("v", FLOAT, "[]");
    let chosen = Node::new("If", &["going"], &["w"])
        .graph("then_branch", branch())
        .graph("else_branch", branch());
    vec![
        ("empty", around(same().output("v", FLOAT, "[]"))),
        ("inner", inner("")),
        ("none", inner("none")),
        ("branches", around(same().node(chosen).output("w", FLOAT, "[]"))),
    ]
}

#[test]
fn loops_in_loops_end_when_they_are_asked_to() {
    for (name, model) in endless() {
        let mut session = load(model);
        let bytes = 1.0f32.to_le_bytes();
        let aligned = oxpipe::component::AlignedBytes::try_from_slice(&bytes).unwrap();
        let value = TensorView::new(DataType::Float32, &[], &aligned).unwrap();
        let mut run = |control: &RunControl| {
            let inputs = [Input { name: "x", value }];
            let mut outputs = [Output::alloc("y")];
            session.execute(&inputs, &mut outputs, control).unwrap_err()
        };
        for _ in 0..2 {
            let error = run(&RunControl {
                deadline: Some(Instant::now() + Duration::from_millis(20)),
                ..RunControl::default()
            });
            let is_late = matches!(error.kind(), ComponentErrorKind::DeadlineExceeded);
            assert!(is_late, "{name}: {error:?}");
            let token = CancelToken::default();
            let control = RunControl {
                cancel: Some(token.clone()),
                ..RunControl::default()
            };
            let error = std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(20));
                    token.request();
                });
                run(&control)
            });
            let is_cancelled = matches!(error.kind(), ComponentErrorKind::Cancelled);
            assert!(is_cancelled, "{name}: {error:?}");
        }
    }
}

/// On one thread, where nothing is cut for others. Each of these takes several times as long as it is
/// given.
#[test]
fn one_operator_ends_in_the_middle() {
    let conv = Node::new("Conv", &["x", "w"], &["y"]).int("group", 64);
    let pool = Node::new("AveragePool", &["x"], &["y"]).ints("kernel_shape", &[9, 9]);
    let resize = Node::new("Resize", &["x", "", "scales"], &["y"]).string("mode", "cubic");
    let ones = |n: i64| vec![1.0; usize::try_from(n).unwrap()];
    let inputs = |dims: &str| Model::new().input("x", FLOAT, dims).output("y", FLOAT, "[...]");
    let image = [1, 64, 256, 256];
    for (name, dims, model) in [
        (
            "Conv",
            &image[..],
            inputs("[1, 64, 256, 256]")
                .initializer(Tensor::floats("w", &[64, 1, 11, 11], &ones(64 * 121)))
                .node(conv),
        ),
        ("AveragePool", &image, inputs("[1, 64, 256, 256]").node(pool)),
        (
            "Resize",
            &image,
            inputs("[1, 64, 256, 256]")
                .initializer(Tensor::floats("scales", &[4], &[1.0, 1.0, 3.0, 3.0]))
                .node(resize),
        ),
        (
            "CumSum",
            &[1 << 24],
            inputs("[16777216]")
                .initializer(Tensor::raw("axis", INT64, &[], &0i64.to_le_bytes()))
                .node(Node::new("CumSum", &["x", "axis"], &["y"])),
        ),
        (
            "LSTM",
            &[3000, 1, 128],
            inputs("[3000, 1, 128]")
                .initializer(Tensor::floats("w", &[1, 1024, 128], &ones(1024 * 128)))
                .initializer(Tensor::floats("r", &[1, 1024, 256], &ones(1024 * 256)))
                .node(Node::new("LSTM", &["x", "w", "r"], &["y"]).int("hidden_size", 256)),
        ),
    ] {
        let mut session = load(model);
        let bytes = 0.5f32.to_le_bytes().repeat(dims.iter().product::<i64>() as usize);
        let x = ComponentTensor::from_raw(DataType::Float32, dims, &bytes).unwrap();
        let control = RunControl {
            deadline: Some(Instant::now() + Duration::from_millis(15)),
            ..RunControl::default()
        };
        let inputs = [Input {
            name: "x",
            value: x.view(),
        }];
        let error = session.execute(&inputs, &mut [Output::alloc("y")], &control);
        let ended = error.map_err(|error| matches!(error.kind(), ComponentErrorKind::DeadlineExceeded));
        assert_eq!(ended, Err(true), "{name}");
    }
}

/// Ifs in Ifs; the innermost adds one to `x`.
fn nested(depth: usize) -> Model {
    let mut graph = Graph::new()
        .output("inner0", FLOAT, "[]")
        .node(add("x", "one", "inner0"));
    for level in 1..=depth {
        let (result, inner) = (format!("inner{level}"), format!("result{level}"));
        let other = Graph::new().output("x", FLOAT, "[]");
        graph = Graph::new().output(&result, FLOAT, "[]").node(
            Node::new("If", &["c"], &[&result])
                .name(&inner)
                .graph("then_branch", graph)
                .graph("else_branch", other),
        );
    }
    Model::new()
        .input("c", BOOL, "[]")
        .input("x", FLOAT, "[]")
        .output("y", FLOAT, "[]")
        .initializer(Tensor::floats("one", &[], &[1.0]))
        .node(
            Node::new("If", &["c"], &["y"])
                .graph("then_branch", graph.clone())
                .graph("else_branch", graph),
        )
}

#[test]
fn nesting_is_bounded() {
    // On a stack as small as a thread's usual one.
    let small = std::thread::Builder::new().stack_size(2 << 20);
    let test = || {
        let mut session = load(nested(28));
        let yes = Value::from_slice(&[], &[oxpipe::native::element::Bool::from(true)]).unwrap();
        let found = run(&mut session, &[("c", &yes), ("x", &floats(&[], &[1.0]))], &["y"]);
        assert_floats(&found[0], &[], &[2.0]);
        for depth in [40, 1000] {
            let error = try_load(nested(depth)).expect_err("this is too deep");
            assert!(
                matches!(error.kind(), ComponentErrorKind::InvalidModel { .. }),
                "{error:?}"
            );
        }
        // Functions in graphs of functions: F calls itself inside an If.
        let call = || Node::new("F", &["c", "x"], &["r"]).domain("local");
        let branch = || Graph::new().output("r", FLOAT, "[]").node(call());
        let body = Node::new("If", &["c"], &["b"])
            .graph("then_branch", branch())
            .graph("else_branch", Graph::new().output("x", FLOAT, "[]"));
        let model = Model::new()
            .opset("local", 1)
            .input("c", BOOL, "[]")
            .input("x", FLOAT, "[]")
            .output("r", FLOAT, "[]")
            .function("F", &["c", "x"], &["b"], vec![body])
            .node(call());
        let error = try_load(model).expect_err("this never ends");
        assert!(
            matches!(error.kind(), ComponentErrorKind::InvalidModel { .. }),
            "{error:?}"
        );
    };
    small.spawn(test).unwrap().join().unwrap();
}

#[test]
fn wrong_bodies_are_refused() {
    let branch = |name: &str, ty: i32| Graph::new().output(name, ty, "[...]");
    let body = |outputs: usize| {
        let body = Graph::new().input("i", INT64, "[]").input("going", BOOL, "[]");
        (0..outputs).fold(body, |body, _| body.output("going", BOOL, "[]"))
    };
    let node = |op: &str, inputs: &[&str]| Node::new(op, inputs, &["y"]);
    let cases = [
        (
            node("If", &["c"])
                .graph("then_branch", branch("x", FLOAT))
                .graph("else_branch", branch("n", INT64)),
            "output 0 is tensor(float) by one branch and tensor(int64) by the other",
        ),
        (
            node("If", &["c"]).graph("then_branch", branch("x", FLOAT)),
            "\"else_branch\": is missing",
        ),
        (
            node("If", &["x"])
                .graph("then_branch", branch("x", FLOAT))
                .graph("else_branch", branch("x", FLOAT)),
            "the condition is float",
        ),
        (
            node("If", &["c"])
                .graph("then_branch", branch("z", FLOAT))
                .graph("else_branch", branch("x", FLOAT)),
            "reads \"z\", which nothing defines",
        ),
        (
            node("Loop", &["n", ""]).graph("body", body(1)),
            "\"body\": has 2 inputs and 1 outputs",
        ),
        (
            node("Loop", &["n", "", "x"]).graph("body", body(2)),
            "\"body\": has 2 inputs",
        ),
        (node("Scan", &["x"]).graph("body", body(1)), "num_scan_inputs"),
        (
            node("Add", &["x", "x"]).graph("body", body(1)),
            "is none of this operator's",
        ),
    ];
    for (node, message) in cases {
        let model = Model::new()
            .input("x", FLOAT, "[...]")
            .input("n", INT64, "[]")
            .input("c", BOOL, "[]")
            .graph(|graph| graph.untyped_output("y"))
            .node(node);
        let error = try_load(model).expect_err(message).to_string();
        assert!(error.contains(message), "\"{message}\" is not in: {error}");
    }
}

#[test]
fn what_is_missing_is_listed_inside_graphs_too() {
    let missing = |op: &str| {
        Graph::new()
            .output("r", FLOAT, "[...]")
            .node(Node::new(op, &["x"], &["r"]).name(op))
    };
    let model = Model::new()
        .input("x", FLOAT, "[...]")
        .input("c", BOOL, "[]")
        .output("y", FLOAT, "[...]")
        .output("z", FLOAT, "[...]")
        .node(
            Node::new("If", &["c"], &["y"])
                .graph("then_branch", missing("Frobnicate"))
                .graph("else_branch", missing("Defenestrate")),
        )
        .node(
            Node::new("Unheard", &["y"], &["z"])
                .name("last")
                .graph("body", missing("Inside")),
        );
    let error = try_load(model).err().unwrap();
    let ComponentErrorKind::MissingOperators { missing } = error.kind() else {
        panic!("{error:?}");
    };
    assert_eq!(
        missing[..],
        [
            "ai.onnx.Frobnicate version 17 (float), node \"Frobnicate\"",
            "ai.onnx.Defenestrate version 17 (float), node \"Defenestrate\"",
            "ai.onnx.Inside version 17 (float), node \"Inside\"",
            "ai.onnx.Unheard version 17 (float), node \"last\"",
        ]
    );
}
