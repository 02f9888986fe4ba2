//! Passes that remove what does nothing. All are exact.

use std::sync::Arc;

use oxpipe::component::{ComponentErrorKind, ModelSource};
use oxpipe::native::element::{ElementType, F8E4M3FN};
use oxpipe::native::tensor::Tensor as Value;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::cpu_time::cpu_time;
use oxpipe_test_support::onnx_writer::{BOOL, FLOAT, FLOAT16, Graph, INT64, Model, Node, Tensor};

use crate::harness::{Case, floats, typed};

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> Node {
    Node::new(op, inputs, outputs)
}

/// From `x` [2, 3, n] to `y`.
fn model(dims: &str) -> Model {
    Model::new()
        .input("x", FLOAT, "[2, 3, n]")
        .output("y", FLOAT, dims)
}

fn case(model: Model) -> Case {
    Case::new(model, &[("x", floats(1, &[2, 3, 4]))], &["y"])
}

#[test]
fn identities_go() {
    let chain = model("[2, 3, n]")
        .node(node("Identity", &["x"], &["a"]))
        .node(node("Identity", &["a"], &["b"]))
        .node(node("Neg", &["b"], &["c"]))
        .node(node("Identity", &["c"], &["y"]));
    let case = case(chain);
    case.check("identity", 3, 0.0);
    assert_eq!((case.nodes(""), case.nodes("identity")), (1, 4));
}

#[test]
fn an_identity_that_names_an_output_stays() {
    // Of an input, of another output, and of a constant.
    let names = model("[2, 3, n]")
        .output("a", FLOAT, "[2, 3, n]")
        .output("b", FLOAT, "[2, 3, n]")
        .output("c", FLOAT, "[1]")
        .initializer(Tensor::floats("one", &[1], &[1.0]))
        .node(node("Identity", &["x"], &["a"]))
        .node(node("Neg", &["x"], &["b"]))
        .node(node("Identity", &["b"], &["y"]))
        .node(node("Identity", &["one"], &["c"]));
    let case = Case::new(names, &[("x", floats(1, &[2, 3, 4]))], &["y", "a", "b", "c"]);
    case.refuses("identity");
}

#[test]
fn a_value_that_becomes_the_output_keeps_its_other_readers() {
    let shared = model("[2, 3, n]")
        .output("z", FLOAT, "[2, 3, n]")
        .node(node("Neg", &["x"], &["a"]))
        .node(node("Abs", &["a"], &["z"]))
        .node(node("Identity", &["a"], &["y"]));
    Case::new(shared, &[("x", floats(1, &[2, 3, 4]))], &["z", "y"]).check("identity", 1, 0.0);
}

#[test]
fn bodies_are_passed_too_and_what_they_capture_stays() {
    let body = Graph::new()
        .input("i", INT64, "[]")
        .input("going", BOOL, "[]")
        .input("sum", FLOAT, "[2, 3, n]")
        .output("going_out", BOOL, "[]")
        .output("sum_out", FLOAT, "[2, 3, n]")
        .node(node("Identity", &["going"], &["going_out"]))
        .node(node("Identity", &["step"], &["own_step"]))
        .node(node("Add", &["sum", "own_step"], &["sum_out"]));
    let model = model("[2, 3, n]")
        .initializer(Tensor::ints("times", &[], &[3]))
        .node(node("Abs", &["x"], &["abs"]))
        .node(node("Identity", &["abs"], &["step"]))
        .node(node("Loop", &["times", "", "x"], &["y"]).graph("body", body));
    // The body's own_step and the model's step; going_out is an output of the body.
    case(model).check("identity", 2, 0.0);
}

#[test]
fn casts_that_change_nothing_go() {
    let casts = model("[2, 3, n]")
        .node(node("Cast", &["x"], &["a"]).int("to", FLOAT.into()))
        .node(node("Cast", &["a"], &["wide"]).int("to", 11))
        .node(node("Cast", &["wide"], &["b"]).int("to", FLOAT.into()))
        .node(node("Neg", &["b"], &["y"]));
    let casts = case(casts);
    casts.check("cast", 2, 0.0);
    assert_eq!((casts.nodes(""), casts.nodes("cast")), (1, 4));
    // Through a narrower type, and one that is wide but not a superset.
    for narrow in [FLOAT16, 16, 6, 7] {
        let casts = model("[2, 3, n]")
            .node(node("Cast", &["x"], &["a"]).int("to", narrow.into()))
            .node(node("Cast", &["a"], &["b"]).int("to", FLOAT.into()))
            .node(node("Neg", &["b"], &["y"]));
        case(casts).refuses("cast");
    }
    // f16 does not hold bf16, f32 not every int32; f64 does.
    for (from, through, found) in [
        (16, FLOAT16, 0),
        (FLOAT16, 16, 0),
        (FLOAT16, FLOAT, 1),
        (6, FLOAT, 0),
        (6, 11, 1),
    ] {
        let casts = Model::new()
            .input("x", from, "[8]")
            .output("y", from, "[8]")
            .node(node("Cast", &["x"], &["a"]).int("to", through.into()))
            .node(node("Cast", &["a"], &["b"]).int("to", from.into()))
            .node(node("Neg", &["b"], &["y"]));
        let x = match from {
            6 => {
                Value::from_slice(&[8], &[0, 1, -1, i32::MAX, i32::MIN, 16_777_217, -16_777_217, 7]).unwrap()
            }
            16 => typed(ElementType::Bfloat16, 3, &[8]),
            _ => typed(ElementType::Float16, 3, &[8]),
        };
        Case::new(casts, &[("x", x)], &["y"]).check("cast", found, 0.0);
    }
}

#[test]
fn what_gives_a_cast_its_type_is_not_computed_for_that() {
    for (to, saturate) in [(FLOAT16, 1), (17, 0), (17, 1), (7, 1)] {
        let casts = Model::new()
            .opset("", 19)
            .input("x", FLOAT, "[8]")
            .input("like", to, "[2]")
            .output("y", to, "[8]")
            .node(node("Identity", &["like"], &["same"]))
            .node(node("Reshape", &["same", "shape"], &["column"]))
            .initializer(Tensor::ints("shape", &[2], &[2, 1]))
            .node(node("CastLike", &["x", "column"], &["y"]).int("saturate", saturate));
        let like = match to {
            FLOAT16 => typed(ElementType::Float16, 2, &[2]),
            7 => Value::from_slice(&[2], &[1i64, 2]).unwrap(),
            _ => Value::from_slice(&[2], &[F8E4M3FN(1); 2]).unwrap(),
        };
        let x = [0.3f32, -1.0, 500.0, -1e6, 70000.0, 0.0, 1e-9, 17.5];
        let x = Value::from_slice(&[8], &x).unwrap();
        let case = Case::new(casts, &[("x", x), ("like", like)], &["y"]);
        case.check("cast", 1, 0.0);
        assert_eq!((case.nodes(""), case.nodes("cast")), (1, 2));
    }
}

#[test]
fn a_cast_whose_inner_value_is_an_output_keeps_that() {
    let casts = model("[2, 3, n]")
        .output("wide", 11, "[2, 3, n]")
        .node(node("Cast", &["x"], &["wide"]).int("to", 11))
        .node(node("Cast", &["wide"], &["b"]).int("to", FLOAT.into()))
        .node(node("Neg", &["b"], &["y"]));
    Case::new(casts, &[("x", floats(1, &[2, 3, 4]))], &["y", "wide"]).check("cast", 1, 0.0);
}

#[test]
fn what_does_nothing_goes() {
    let ints = |name: &str, values: &[i64]| Tensor::ints(name, &[values.len() as i64], values);
    let nothing = model("[2, 3, n]")
        .initializer(ints("same", &[2, 3, -1]))
        .initializer(ints("keep", &[0, 0, -1]))
        .initializer(ints("ones", &[1, 1, 1]))
        .initializer(ints("zeros", &[0, 0, 0, 0, 0, 0]))
        .initializer(ints("from", &[0]))
        .initializer(ints("to", &[9]))
        .initializer(ints("axis", &[1]))
        .initializer(ints("step", &[1]))
        .node(node("Reshape", &["x", "same"], &["a"]))
        .node(node("Reshape", &["a", "keep"], &["b"]))
        .node(node("Expand", &["b", "axis"], &["c"]))
        .node(node("Pad", &["c", "zeros"], &["e"]))
        .node(node("Slice", &["e", "from", "to", "axis", "step"], &["f"]))
        .node(node("Transpose", &["f"], &["g"]).ints("perm", &[0, 1, 2]))
        .node(node("Concat", &["g"], &["h"]).int("axis", 0))
        .node(node("Dropout", &["h"], &["i"]))
        .node(node("Tile", &["i", "ones"], &["j"]))
        .node(node("Neg", &["j"], &["y"]));
    let nothing = case(nothing);
    assert!(nothing.fired("no_op") >= 8, "{}", nothing.fired("no_op"));
    nothing.check("no_op", nothing.fired("no_op"), 0.0);
}

#[test]
fn what_does_something_stays() {
    let ints = |name: &str, values: &[i64]| Tensor::ints(name, &[values.len() as i64], values);
    let base = |dims: &str| {
        model(dims)
            .initializer(ints("swapped", &[3, 2, -1]))
            .initializer(ints("shifted", &[0, 1, 0, 0, -1, 0]))
            .initializer(ints("last", &[-1]))
            .initializer(ints("first", &[-9]))
            .initializer(ints("axis", &[1]))
            .initializer(ints("twos", &[1, 2, 1]))
            .initializer(ints("wide", &[5, 1, 1, 1]))
            .initializer(Tensor::floats("half", &[], &[0.5]))
            .initializer(Tensor::raw("yes", BOOL, &[], &[1]))
    };
    let last = |model: Model| case(model.node(node("Neg", &["a"], &["y"]))).refuses("no_op");
    last(base("[3, 2, n]").node(node("Reshape", &["x", "swapped"], &["a"])));
    last(base("[2, 3, n]").node(node("Pad", &["x", "shifted"], &["a"])));
    // Backwards: the same dims, another order.
    last(base("[2, 3, n]").node(node("Slice", &["x", "last", "first", "axis", "last"], &["a"])));
    last(base("[2, 6, n]").node(node("Tile", &["x", "twos"], &["a"])));
    last(base("[5, 2, 3, n]").node(node("Expand", &["x", "wide"], &["a"])));
    last(base("[2, n, 3]").node(node("Transpose", &["x"], &["a"]).ints("perm", &[0, 2, 1])));
    let masked = base("[2, 3, n]")
        .output("mask", BOOL, "[2, 3, n]")
        .node(node("Dropout", &["x"], &["a", "mask"]))
        .node(node("Neg", &["a"], &["y"]));
    Case::new(masked, &[("x", floats(1, &[2, 3, 4]))], &["y", "mask"]).refuses("no_op");
}

#[test]
fn transposes_are_joined() {
    let join = |p: &[i64], q: &[i64], dims: &str| {
        case(
            model(dims)
                .node(node("Transpose", &["x"], &["a"]).ints("perm", p))
                .node(node("Transpose", &["a"], &["b"]).ints("perm", q))
                .node(node("Neg", &["b"], &["y"])),
        )
    };
    let back = join(&[2, 0, 1], &[1, 2, 0], "[2, 3, n]");
    back.check("transpose", 1, 0.0);
    assert_eq!(back.nodes(""), 1);
    let other = join(&[2, 0, 1], &[2, 0, 1], "[3, n, 2]");
    other.check("transpose", 1, 0.0);
    assert_eq!((other.nodes(""), other.nodes("transpose")), (2, 3));
    // Three in a row, the first of which something else reads.
    let three = model("[n, 3, 2]")
        .output("z", FLOAT, "[n, 2, 3]")
        .node(node("Transpose", &["x"], &["z"]).ints("perm", &[2, 0, 1]))
        .node(node("Transpose", &["z"], &["b"]).ints("perm", &[2, 0, 1]))
        .node(node("Transpose", &["b"], &["c"]).ints("perm", &[1, 0, 2]))
        .node(node("Neg", &["c"], &["y"]));
    Case::new(three, &[("x", floats(1, &[2, 3, 4]))], &["y", "z"]).check("transpose", 2, 0.0);
}

fn product(perm: &[i64], op: &str, right: bool) -> Model {
    let operands = if right { ["w", "t"] } else { ["t", "w"] };
    Model::new()
        .opset("com.microsoft", 1)
        .input("x", FLOAT, "[2, 3, n]")
        .input("w", FLOAT, "[e, a, b]")
        .output("y", FLOAT, "[f, c, d]")
        .node(node("Transpose", &["x"], &["t"]).ints("perm", perm))
        .node(node(op, &operands, &["y"]))
}

fn product_case(model: Model, w: &[usize]) -> Case {
    Case::new(
        model,
        &[("x", floats(1, &[2, 3, 4])), ("w", floats(2, w))],
        &["y"],
    )
}

#[test]
fn transposes_go_into_products() {
    for right in [false, true] {
        let w = if right { [2, 5, 4] } else { [2, 3, 5] };
        let case = product_case(product(&[0, 2, 1], "MatMul", right), &w);
        case.check("transpose_matmul", 1, 0.0);
        assert_eq!((case.nodes(""), case.nodes("transpose_matmul")), (1, 2));
    }
    // Another order of axes.
    product_case(product(&[1, 2, 0], "MatMul", false), &[1, 2, 5]).refuses("transpose_matmul");
    // Something else reads the transpose.
    let shared = product(&[0, 2, 1], "MatMul", false).output("t", FLOAT, "[2, n, 3]");
    Case::new(
        shared,
        &[("x", floats(1, &[2, 3, 4])), ("w", floats(2, &[2, 3, 5]))],
        &["y", "t"],
    )
    .refuses("transpose_matmul");
    // A product of whole numbers, which FusedMatMul does not have.
    let whole = Model::new()
        .input("x", INT64, "[3, n]")
        .input("w", INT64, "[3, n]")
        .output("y", INT64, "[n, n]")
        .node(node("Transpose", &["x"], &["t"]))
        .node(node("MatMul", &["t", "w"], &["y"]));
    let x = Value::from_slice(&[3, 2], &[1i64, 2, 3, 4, 5, 6]).unwrap();
    Case::new(whole, &[("x", x.clone()), ("w", x)], &["y"]).refuses("transpose_matmul");
}

#[test]
fn rows_of_a_transpose_are_columns_of_the_matrix() {
    let gather = |axis: i64, dims: &str| {
        Model::new()
            .input("x", FLOAT, "[3, n]")
            .input("i", INT64, dims)
            .graph(|graph| graph.untyped_output("y"))
            .node(node("Transpose", &["x"], &["t"]))
            .node(node("Gather", &["t", "i"], &["y"]).int("axis", axis))
    };
    let case = |model: Model, dims: &[usize]| {
        let count = dims.iter().product();
        let indices: Vec<i64> = [3, 0, -1, 2, 1, 3].into_iter().take(count).collect();
        let indices = Value::from_slice(dims, &indices).unwrap();
        Case::new(model, &[("x", floats(1, &[3, 4])), ("i", indices)], &["y"])
    };
    for (names, dims) in [
        ("[]", &[][..]),
        ("[k]", &[5]),
        ("[2, k]", &[2, 3]),
        ("[k, 0]", &[1, 0]),
    ] {
        case(gather(0, names), dims).check("transpose_gather", 1, 0.0);
        case(gather(-2, names), dims).check("transpose_gather", 1, 0.0);
    }
    let columns = Model::new()
        .input("x", FLOAT, "[5, n]")
        .input("i", INT64, "[k]")
        .graph(|graph| graph.untyped_output("y"))
        .node(node("Transpose", &["x"], &["t"]))
        .node(node("Gather", &["t", "i"], &["y"]).int("axis", 1));
    let inputs = [
        ("x", floats(1, &[5, 4])),
        ("i", Value::from_slice(&[2], &[3i64, 0]).unwrap()),
    ];
    Case::new(columns, &inputs, &["y"]).refuses("transpose_gather");
    // Something else reads the transpose.
    let shared = gather(0, "[k]")
        .graph(|graph| graph.untyped_output("z"))
        .node(node("Neg", &["t"], &["z"]));
    case(shared, &[2]).refuses("transpose_gather");
}

/// A table of embeddings that is the weight of the last product too, in the two ways in which
/// exporters write it: as the table, and as the weight.
#[test]
fn a_shared_weight_is_not_copied_to_transpose_it() {
    let tied = |hidden: usize, words: usize, as_weight: bool| {
        let dims = if as_weight {
            [hidden, words]
        } else {
            [words, hidden]
        };
        let weight = floats(1, &dims);
        let weight = weight.view().slice::<f32>().unwrap();
        let names = if as_weight { ["t", "w"] } else { ["w", "t"] };
        let model = Model::new()
            .input("i", INT64, "[1, n]")
            .graph(|graph| graph.untyped_output("y"))
            .initializer(Tensor::floats("w", &dims.map(|dim| dim as i64), weight))
            .node(node("Transpose", &["w"], &["t"]).ints("perm", &[1, 0]))
            .node(node("Gather", &[names[0], "i"], &["e"]))
            .node(node("MatMul", &["e", names[1]], &["y"]));
        let indices = Value::from_slice(&[1, 3], &[7i64, 0, words as i64 - 1]).unwrap();
        Case::new(model, &[("i", indices)], &["y"])
    };
    // A product with a transposed matrix has its own order of sums.
    let passes = [(true, "transpose_gather", 0.0), (false, "transpose_matmul", 1e-6)];
    for (as_weight, pass, bound) in passes {
        let case = tied(256, 1100, as_weight);
        case.check(pass, 1, bound);
        // Where the pass is not done the transpose is folded after all.
        assert_eq!(case.nodes(pass), 2, "{pass}");
        assert_eq!(case.nodes(""), if as_weight { 3 } else { 2 }, "{pass}");
        // A small one is folded at once.
        assert_eq!(tied(16, 20, as_weight).fired(pass), 0, "{pass}");
    }
}

#[test]
fn transposes_go_into_gemm() {
    for trans in [0, 1] {
        let gemm = Model::new()
            .input("x", FLOAT, "[3, n]")
            .input("w", FLOAT, "[a, b]")
            .input("c", FLOAT, "[1]")
            .output("y", FLOAT, "[d, e]")
            .node(node("Transpose", &["x"], &["t"]))
            .node(
                node("Gemm", &["t", "w", "c"], &["y"])
                    .int("transA", trans)
                    .float("alpha", 0.5)
                    .float("beta", 2.0),
            );
        let w: [usize; 2] = if trans == 1 { [4, 5] } else { [3, 5] };
        let inputs = [
            ("x", floats(1, &[3, 4])),
            ("w", floats(2, &w)),
            ("c", floats(3, &[1])),
        ];
        Case::new(gemm, &inputs, &["y"]).check("transpose_matmul", 1, 0.0);
    }
}

/// `y` is x + x or -x, as a condition that is known says.
fn branches(condition: bool, untaken: Graph) -> Model {
    let taken = Graph::new()
        .output("sum", FLOAT, "[2, 3, n]")
        .output("again", FLOAT, "[2, 3, n]")
        .output("outer", FLOAT, "[2, 3, n]")
        .initializer(Tensor::floats("two", &[], &[2.0]))
        .node(node("Mul", &["abs", "two"], &["sum"]))
        .node(node("Identity", &["sum"], &["again"]))
        .node(node("Identity", &["abs"], &["outer"]));
    let (then, otherwise) = if condition {
        (taken, untaken)
    } else {
        (untaken, taken)
    };
    model("[2, 3, n]")
        .initializer(Tensor::raw("condition", BOOL, &[], &[condition.into()]))
        .node(node("Abs", &["x"], &["abs"]))
        .node(
            node("If", &["condition"], &["a", "b", "c"])
                .graph("then_branch", then)
                .graph("else_branch", otherwise),
        )
        .node(node("Sum", &["a", "b", "c"], &["y"]))
}

#[test]
fn an_if_whose_condition_is_known_is_its_branch() {
    for condition in [true, false] {
        let untaken = Graph::new()
            .output("p", FLOAT, "[2, 3, n]")
            .output("q", FLOAT, "[2, 3, n]")
            .output("r", FLOAT, "[2, 3, n]")
            .node(node("Neg", &["x"], &["p"]))
            .node(node("Neg", &["x"], &["q"]))
            .node(node("Neg", &["x"], &["r"]));
        let case = case(branches(condition, untaken));
        case.check("constant_if", 1, 0.0);
        assert_eq!(case.nodes(""), 3);
        let mut session = case.load("");
        assert_eq!(session.estimate(&[("x", &[2, 3, 4])]).unwrap().with_graphs, 0);
    }
}

#[test]
fn the_branch_not_taken_may_lack_operators() {
    let untaken = Graph::new()
        .output("p", FLOAT, "[2, 3, n]")
        .output("q", FLOAT, "[2, 3, n]")
        .output("r", FLOAT, "[2, 3, n]")
        .node(node("Frobnicate", &["x"], &["p", "q", "r"]));
    let model = branches(true, untaken).encode();
    let load = |disabled: &str| {
        let source = ModelSource::Memory {
            label: "test".into(),
            model: Arc::new(model.clone()),
            external: Vec::new(),
        };
        let options = NativeOptions {
            disabled_passes: disabled.parse().unwrap(),
            ..NativeOptions::default()
        };
        NativeSession::load("", &source, &options).map(|session| session.passes())
    };
    assert!(load("").is_ok());
    let error = load("constant_if").unwrap_err();
    assert!(
        matches!(error.kind(), ComponentErrorKind::MissingOperators { .. }),
        "{error}"
    );
}

#[test]
fn folding_and_dead_nodes_can_be_left_out() {
    let sums = model("[2, 3, n]")
        .initializer(Tensor::floats("two", &[1], &[2.0]))
        .node(node("Mul", &["two", "two"], &["four"]))
        .node(node("Neg", &["x"], &["dead"]))
        .node(node("Mul", &["x", "four"], &["y"]));
    let sums = case(sums);
    sums.check("constant_folding", 1, 0.0);
    sums.check("dead_nodes", 1, 0.0);
}

/// Chains and fans of a hundred thousand nodes load in a moment, whatever a pass does to them.
#[test]
fn passes_are_linear_in_the_graph() {
    const NODES: usize = 50_000;
    let mut chain = model("[2, 3, n]");
    let mut fan = model("[2, 3, n]").output("z", FLOAT, "[2, 3, n]");
    let mut last = "x".to_owned();
    for index in 0..NODES {
        let name = format!("v{index}");
        chain = chain.node(node("Identity", &[&last], &[&name]));
        last = name;
        if index > 0 {
            let (inner, outer) = (format!("i{index}"), format!("o{index}"));
            fan = fan.node(node("Identity", &["x"], &[&inner]));
            fan = fan.node(node("Cast", &[&inner], &[&outer]).int("to", FLOAT.into()));
        }
    }
    chain = chain.node(node("Neg", &[&last], &["y"]));
    fan = fan
        .node(node("Neg", &["x"], &["y"]))
        .node(node("Sum", &["o1", "o2"], &["z"]));
    let chain = case(chain);
    let fan = Case::new(fan, &[("x", floats(1, &[2, 3, 4]))], &["y", "z"]);
    for case in [&chain, &fan] {
        let started = cpu_time();
        case.load("");
        case.load("dead_nodes");
        let with = cpu_time() - started;
        let started = cpu_time();
        case.load("all");
        case.load("all");
        let without = cpu_time() - started;
        assert!(
            with < 2 * without + std::time::Duration::from_secs(2),
            "{with:?}, {without:?}"
        );
    }
    assert_eq!(chain.nodes(""), 1);
}

/// What would fail if it were computed at load may be in a body that no run enters.
#[test]
fn constants_of_bodies_that_never_run_are_no_reason_to_refuse_a_model() {
    let otherwise = || {
        Graph::new()
            .output("o2", INT64, "[r]")
            .node(node("Shape", &["x"], &["o2"]))
    };
    let branches = [
        Graph::new()
            .output("o1", INT64, "[r]")
            .initializer(Tensor::ints("i", &[1], &[3]))
            .node(node("Shape", &["x"], &["s"]))
            .node(node("Gather", &["s", "i"], &["o1"])),
        Graph::new()
            .output("o1", INT64, "[r]")
            .initializer(Tensor::ints("a", &[2], &[1, 2]))
            .initializer(Tensor::ints("b", &[2], &[0, 0]))
            .node(node("Div", &["a", "b"], &["o1"])),
        Graph::new()
            .output("o1", INT64, "[r]")
            .initializer(Tensor::ints("i", &[1], &[5]))
            .node(node("Shape", &["x"], &["s"]))
            .node(node("Reshape", &["s", "i"], &["o1"])),
    ];
    for branch in branches {
        let model = Model::new()
            .opset("", 21)
            .input("x", FLOAT, "[2, 3]")
            .input("c", BOOL, "[]")
            .output("y", INT64, "[r]")
            .node(
                node("If", &["c"], &["y"])
                    .graph("then_branch", branch)
                    .graph("else_branch", otherwise()),
            );
        let flag = |taken: bool| Value::from_raw(ElementType::Bool, &[], &[taken.into()]).unwrap();
        let case = Case::new(model, &[], &["y"]);
        for disabled in ["", "constant_folding", "all"] {
            let mut session = case.load(disabled);
            let mut run = |taken: bool| {
                let (x, c) = (floats(1, &[2, 3]), flag(taken));
                session.run_tensors(&[("x", x.view()), ("c", c.view())], &["y"])
            };
            let y = run(false).unwrap();
            assert_eq!(y[0].view().slice::<i64>().unwrap(), [2, 3]);
            let error = run(true).unwrap_err().to_string();
            assert!(error.contains("node \"o1\""), "{disabled}: {error}");
        }
    }
}
