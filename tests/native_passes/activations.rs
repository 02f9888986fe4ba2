//! GELU, SiLU and SwiGLU as exporters write them.

use std::f64::consts::{FRAC_2_PI, SQRT_2};

use oxpipe::native::element::ElementType;
use oxpipe_test_support::onnx_writer::{Graph, Node};

use crate::harness::{Case, typed};
use crate::typed::{TYPES, case, constant, model, node, scalars};

const DIMS: [usize; 3] = [2, 3, 5];

fn bound(ty: ElementType) -> f64 {
    match ty {
        ElementType::Float64 => 1e-14,
        ElementType::Float16 => 1.0 / 256.0,
        ElementType::Bfloat16 => 1.0 / 32.0,
        _ => 1e-6,
    }
}

fn constants(graph: Graph, ty: ElementType) -> Graph {
    scalars(
        graph,
        ty,
        &[
            ("half", 0.5),
            ("one", 1.0),
            ("two", 2.0),
            ("three", 3.0),
            ("root2", SQRT_2),
            ("inverse_root2", 1.0 / SQRT_2),
            ("root_2_pi", FRAC_2_PI.sqrt()),
            ("cubic", 0.044715),
            ("cubic_off", 0.0447),
            ("alpha", 1.703125),
        ],
    )
}

fn nodes(graph: Graph, nodes: Vec<Node>) -> Graph {
    nodes.into_iter().fold(graph, Graph::node)
}

fn of(ty: ElementType, written: &[(&str, [&str; 2], &str)]) -> Case {
    let model = model(ty, "[2, n, 5]").graph(|graph| {
        let written = written.iter().map(|(op, inputs, output)| {
            let inputs: Vec<&str> = inputs.iter().copied().filter(|name| !name.is_empty()).collect();
            node(op, &inputs, &[output])
        });
        nodes(constants(graph, ty), written.collect())
    });
    case(ty, model, &DIMS)
}

/// As PyTorch writes nn.GELU().
const ERF: [(&str, [&str; 2], &str); 5] = [
    ("Div", ["x", "root2"], "a"),
    ("Erf", ["a", ""], "b"),
    ("Add", ["b", "one"], "c"),
    ("Mul", ["x", "c"], "d"),
    ("Mul", ["d", "half"], "y"),
];

/// As PyTorch writes nn.GELU(approximate="tanh"), and Hugging Face's gelu_new.
const TANH: [(&str, [&str; 2], &str); 8] = [
    ("Mul", ["x", "half"], "h"),
    ("Pow", ["x", "three"], "a"),
    ("Mul", ["a", "cubic"], "b"),
    ("Add", ["x", "b"], "c"),
    ("Mul", ["c", "root_2_pi"], "d"),
    ("Tanh", ["d", ""], "e"),
    ("Add", ["e", "one"], "f"),
    ("Mul", ["h", "f"], "y"),
];

fn changed<const N: usize>(
    nodes: &[(&'static str, [&'static str; 2], &'static str); N],
    at: usize,
    to: (&'static str, [&'static str; 2], &'static str),
) -> [(&'static str, [&'static str; 2], &'static str); N] {
    let mut nodes = *nodes;
    nodes[at] = to;
    nodes
}

#[test]
fn gelu_by_erf() {
    for ty in TYPES {
        let case = of(ty, &ERF);
        case.check("gelu", 1, bound(ty));
        assert_eq!((case.nodes(""), case.nodes("gelu")), (1, 5));
        // The half first, on either side; the root as a factor.
        of(
            ty,
            &[
                ("Mul", ["half", "x"], "h"),
                ("Mul", ["inverse_root2", "x"], "a"),
                ("Erf", ["a", ""], "b"),
                ("Add", ["one", "b"], "c"),
                ("Mul", ["h", "c"], "y"),
            ],
        )
        .check("gelu", 1, bound(ty));
        of(
            ty,
            &[
                ("Div", ["x", "root2"], "a"),
                ("Erf", ["a", ""], "b"),
                ("Add", ["b", "one"], "c"),
                ("Div", ["c", "two"], "d"),
                ("Mul", ["x", "d"], "y"),
            ],
        )
        .check("gelu", 1, bound(ty));
    }
}

#[test]
fn gelu_by_tanh() {
    for ty in TYPES {
        let case = of(ty, &TANH);
        case.check("gelu", 1, bound(ty));
        assert_eq!((case.nodes(""), case.nodes("gelu")), (1, 8));
        // Cubes by Mul, and the factored form.
        of(
            ty,
            &[
                ("Mul", ["x", "x"], "xx"),
                ("Mul", ["xx", "x"], "xxx"),
                ("Mul", ["cubic", "xxx"], "b"),
                ("Add", ["b", "x"], "c"),
                ("Mul", ["root_2_pi", "c"], "d"),
                ("Tanh", ["d", ""], "e"),
                ("Add", ["one", "e"], "f"),
                ("Mul", ["x", "f"], "g"),
                ("Mul", ["half", "g"], "y"),
            ],
        )
        .check("gelu", 1, bound(ty));
        of(
            ty,
            &[
                ("Mul", ["x", "half"], "h"),
                ("Mul", ["x", "root_2_pi"], "s"),
                ("Mul", ["x", "cubic"], "a"),
                ("Mul", ["a", "x"], "b"),
                ("Add", ["b", "one"], "c"),
                ("Mul", ["s", "c"], "d"),
                ("Tanh", ["d", ""], "e"),
                ("Add", ["e", "one"], "f"),
                ("Mul", ["h", "f"], "y"),
            ],
        )
        .check("gelu", 1, bound(ty));
    }
}

#[test]
fn what_is_nearly_gelu_stays() {
    let f32 = ElementType::Float32;
    of(f32, &changed(&ERF, 0, ("Div", ["x", "two"], "a"))).refuses("gelu");
    of(f32, &changed(&ERF, 0, ("Mul", ["x", "root2"], "a"))).refuses("gelu");
    of(f32, &changed(&ERF, 2, ("Add", ["b", "half"], "c"))).refuses("gelu");
    of(f32, &changed(&ERF, 4, ("Mul", ["d", "two"], "y"))).refuses("gelu");
    of(f32, &changed(&TANH, 1, ("Pow", ["x", "two"], "a"))).refuses("gelu");
    of(f32, &changed(&TANH, 2, ("Mul", ["a", "cubic_off"], "b"))).refuses("gelu");
    of(f32, &changed(&TANH, 4, ("Mul", ["c", "half"], "d"))).refuses("gelu");
    of(f32, &changed(&TANH, 3, ("Sub", ["x", "b"], "c"))).refuses("gelu");
    // A constant that would make the result larger than x.
    let large = model(f32, "[2, n, 5]").graph(|graph| {
        let graph = constants(graph, f32).initializer(constant(f32, "wide_one", &[1, 1, 1, 1], &[1.0]));
        nodes(
            graph,
            vec![
                node("Div", &["x", "root2"], &["a"]),
                node("Erf", &["a"], &["b"]),
                node("Add", &["b", "wide_one"], &["c"]),
                node("Mul", &["x", "c"], &["d"]),
                node("Mul", &["d", "half"], &["e"]),
                node("Squeeze", &["e"], &["y"]),
            ],
        )
    });
    case(f32, large, &DIMS).refuses("gelu");
    // Something else reads what is in between, or it is an output.
    for extra in ["b", "c", "d"] {
        let read = model(f32, "[2, n, 5]")
            .output("z", 1, "[2, n, 5]")
            .graph(|graph| {
                let written = ERF.iter().map(|(op, inputs, output)| {
                    let inputs: Vec<&str> = inputs.iter().copied().filter(|name| !name.is_empty()).collect();
                    node(op, &inputs, &[output])
                });
                nodes(
                    constants(graph, f32),
                    written.chain([node("Neg", &[extra], &["z"])]).collect(),
                )
            });
        let case = Case::new(read, &[("x", typed(f32, 7, &DIMS))], &["y", "z"]);
        case.refuses("gelu");
    }
}

#[test]
fn silu() {
    for ty in TYPES {
        let exact = match ty {
            ElementType::Float32 | ElementType::Float64 => 0.0,
            ty => bound(ty),
        };
        let case = of(ty, &[("Sigmoid", ["x", ""], "a"), ("Mul", ["a", "x"], "y")]);
        case.check("silu", 1, exact);
        assert_eq!((case.nodes(""), case.nodes("silu")), (1, 2));
        of(
            ty,
            &[
                ("Mul", ["x", "alpha"], "s"),
                ("Sigmoid", ["s", ""], "a"),
                ("Mul", ["x", "a"], "y"),
            ],
        )
        .check("silu", 1, exact);
    }
    let f32 = ElementType::Float32;
    of(f32, &[("Sigmoid", ["x", ""], "a"), ("Add", ["a", "x"], "y")]).refuses("silu");
    of(
        f32,
        &[
            ("Neg", ["x", ""], "m"),
            ("Sigmoid", ["m", ""], "a"),
            ("Mul", ["a", "x"], "y"),
        ],
    )
    .refuses("silu");
    of(f32, &[("Sigmoid", ["x", ""], "a"), ("Mul", ["a", "a"], "y")]).refuses("silu");
}

fn gated(ty: ElementType, value: &str) -> Case {
    let model = model(ty, "[2, n, 5]")
        .input("v", ty.code(), value)
        .graph(|graph| {
            nodes(
                graph,
                vec![
                    node("Sigmoid", &["x"], &["a"]),
                    node("Mul", &["x", "a"], &["b"]),
                    node("Mul", &["b", "v"], &["y"]),
                ],
            )
        });
    Case::new(
        model,
        &[("x", typed(ty, 7, &DIMS)), ("v", typed(ty, 8, &DIMS))],
        &["y"],
    )
}

#[test]
fn swiglu() {
    for ty in TYPES {
        let exact = match ty {
            ElementType::Float32 | ElementType::Float64 => 0.0,
            ty => bound(ty),
        };
        let case = gated(ty, "[2, n, 5]");
        case.check("swiglu", 1, exact);
        assert_eq!((case.nodes(""), case.nodes("swiglu")), (1, 2));
    }
    // Another symbol may be 1, and broadcast.
    gated(ElementType::Float32, "[2, m, 5]").refuses("swiglu");
    gated(ElementType::Float32, "[2, ?, 5]").refuses("swiglu");
}

#[test]
fn swiglu_of_two_projections_of_one_value() {
    let ty = ElementType::Float32;
    let model = |columns: i64| {
        model(ty, "[2, ?, 5]").output("z", 1, "[...]").graph(|graph| {
            let graph = graph
                .initializer(crate::typed::weights(ty, "gate", &[5, 6]))
                .initializer(crate::typed::weights(ty, "up", &[5, columns]));
            nodes(
                graph,
                vec![
                    node("MatMul", &["x", "gate"], &["g"]),
                    node("MatMul", &["x", "up"], &["u"]),
                    node("Sigmoid", &["g"], &["a"]),
                    node("Mul", &["g", "a"], &["b"]),
                    node("Mul", &["b", "u"], &["z"]),
                    node("Neg", &["x"], &["y"]),
                ],
            )
        })
    };
    let case = |columns| Case::new(model(columns), &[("x", typed(ty, 7, &DIMS))], &["z"]);
    case(6).check("swiglu", 1, 0.0);
    case(1).refuses("swiglu");
}
