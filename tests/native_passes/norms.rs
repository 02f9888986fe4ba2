//! LayerNorm and RMSNorm as exporters write them, batch norms after convolutions, biases.

use oxpipe::native::element::ElementType;
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node, Tensor};

use crate::harness::{Case, floats, typed};
use crate::typed::{TYPES, case, constant, model, node, scalars, weights};

const DIMS: [usize; 3] = [2, 3, 8];

fn bound(ty: ElementType) -> f64 {
    match ty {
        ElementType::Float64 => 1e-13,
        ElementType::Float16 => 1.0 / 128.0,
        ElementType::Bfloat16 => 1.0 / 16.0,
        _ => 1e-5,
    }
}

/// What f64 models can have as an attribute of f32 too.
const EPSILON: f64 = 1.0 / 65536.0;

fn base(ty: ElementType, opset: i64) -> Model {
    let base = model(ty, "[2, n, 8]").opset("", opset).graph(|graph| {
        let graph = scalars(
            graph,
            ty,
            &[("two", 2.0), ("three", 3.0), ("one", 1.0), ("epsilon", EPSILON)],
        );
        graph
            .initializer(weights(ty, "scale", &[8]))
            .initializer(weights(ty, "bias", &[8]))
    });
    match opset {
        18.. => base
            .initializer(Tensor::ints("last", &[1], &[-1]))
            .initializer(Tensor::ints("middle", &[1], &[1])),
        _ => base,
    }
}

fn mean(opset: i64, axis: i64, from: &str, to: &str) -> Node {
    match opset {
        18.. => {
            let axes = if axis == 1 { "middle" } else { "last" };
            node("ReduceMean", &[from, axes], &[to])
        }
        _ => node("ReduceMean", &[from], &[to]).ints("axes", &[axis]),
    }
}

fn rms(ty: ElementType, opset: i64, divides: bool) -> Model {
    let model = base(ty, opset)
        .node(node("Pow", &["x", "two"], &["a"]))
        .node(mean(opset, -1, "a", "b"))
        .node(node("Add", &["b", "epsilon"], &["c"]))
        .node(node("Sqrt", &["c"], &["d"]));
    let model = match divides {
        true => model.node(node("Div", &["x", "d"], &["e"])),
        false => model
            .node(node("Div", &["one", "d"], &["r"]))
            .node(node("Mul", &["x", "r"], &["e"])),
    };
    model.node(node("Mul", &["scale", "e"], &["y"]))
}

#[test]
fn rms_norms() {
    for ty in TYPES {
        for (opset, divides) in [(17, true), (18, false), (23, false)] {
            let case = case(ty, rms(ty, opset, divides), &DIMS);
            case.check("rms_norm", 1, bound(ty));
            assert_eq!(case.nodes(""), 1);
        }
    }
    let squares = base(ElementType::Float32, 17)
        .node(node("Mul", &["x", "x"], &["a"]))
        .node(mean(17, 2, "a", "b"))
        .node(node("Add", &["epsilon", "b"], &["c"]))
        .node(node("Sqrt", &["c"], &["d"]))
        .node(node("Reciprocal", &["d"], &["r"]))
        .node(node("Mul", &["r", "x"], &["e"]))
        .node(node("Mul", &["e", "scale"], &["y"]));
    case(ElementType::Float32, squares, &DIMS).check("rms_norm", 1, 1e-5);
}

/// Hugging Face: to f32, normalise, back, scale.
fn rms_of_16_bits(ty: ElementType, scaled_before: bool) -> Model {
    let code = ty.code();
    let mut model = model(ty, "[2, n, 8]").graph(|graph| {
        let graph = scalars(
            graph,
            ElementType::Float32,
            &[("two", 2.0), ("epsilon", 1e-6), ("one", 1.0)],
        );
        graph.initializer(weights(
            if scaled_before { ElementType::Float32 } else { ty },
            "scale",
            &[8],
        ))
    });
    model = model
        .node(node("Cast", &["x"], &["w"]).int("to", FLOAT.into()))
        .node(node("Pow", &["w", "two"], &["a"]))
        .node(mean(17, -1, "a", "b"))
        .node(node("Add", &["b", "epsilon"], &["c"]))
        .node(node("Sqrt", &["c"], &["d"]))
        .node(node("Div", &["one", "d"], &["r"]))
        .node(node("Mul", &["w", "r"], &["e"]));
    match scaled_before {
        false => model
            .node(node("Cast", &["e"], &["f"]).int("to", code.into()))
            .node(node("Mul", &["scale", "f"], &["y"])),
        true => model
            .node(node("Mul", &["scale", "e"], &["f"]))
            .node(node("Cast", &["f"], &["y"]).int("to", code.into())),
    }
}

#[test]
fn rms_norms_of_16_bit_models() {
    for ty in [ElementType::Float16, ElementType::Bfloat16] {
        let after = case(ty, rms_of_16_bits(ty, false), &DIMS);
        after.check("rms_norm", 1, bound(ty));
        assert_eq!(after.nodes(""), 1);
        // Scaled in f32: the casts stay.
        let before = case(ty, rms_of_16_bits(ty, true), &DIMS);
        before.check("rms_norm", 1, bound(ty));
        assert_eq!(before.nodes(""), 3);
    }
}

#[test]
fn what_is_nearly_rms_norm_stays() {
    let f32 = ElementType::Float32;
    let written = |square: Node, mean: Node, sum: Node, root: Node, quotient: Node, scaled: Node| {
        let nodes = [square, mean, sum, root, quotient, scaled];
        case(f32, nodes.into_iter().fold(base(f32, 17), Model::node), &DIMS)
    };
    let square = || node("Pow", &["x", "two"], &["a"]);
    let average = || mean(17, -1, "a", "b");
    let sum = || node("Add", &["b", "epsilon"], &["c"]);
    let root = || node("Sqrt", &["c"], &["d"]);
    let quotient = || node("Div", &["x", "d"], &["e"]);
    let scaled = || node("Mul", &["e", "scale"], &["y"]);
    written(square(), average(), sum(), root(), quotient(), scaled()).check("rms_norm", 1, 1e-5);
    let refused = [
        written(
            node("Pow", &["x", "one"], &["a"]),
            average(),
            node("Add", &["b", "three"], &["c"]),
            root(),
            quotient(),
            scaled(),
        ),
        written(
            square(),
            mean(17, 1, "a", "b"),
            sum(),
            root(),
            quotient(),
            scaled(),
        ),
        written(
            square(),
            node("ReduceSum", &["a"], &["b"]).int("keepdims", 1),
            sum(),
            root(),
            quotient(),
            scaled(),
        ),
        written(
            square(),
            average(),
            node("Add", &["b", "bias"], &["c"]),
            root(),
            quotient(),
            scaled(),
        ),
        written(
            square(),
            average(),
            sum(),
            root(),
            node("Div", &["d", "x"], &["e"]),
            scaled(),
        ),
        written(
            square(),
            average(),
            sum(),
            root(),
            node("Mul", &["x", "d"], &["e"]),
            scaled(),
        ),
        written(
            square(),
            average(),
            sum(),
            root(),
            node("Div", &["bias", "d"], &["e"]),
            node("Add", &["e", "x"], &["y"]),
        ),
        written(
            square(),
            average(),
            sum(),
            root(),
            quotient(),
            node("Mul", &["e", "x"], &["y"]),
        ),
        written(
            square(),
            average(),
            sum(),
            root(),
            quotient(),
            node("Add", &["e", "scale"], &["y"]),
        ),
        written(
            square(),
            node("ReduceMean", &["a"], &["b"]).ints("axes", &[1, 2]),
            sum(),
            root(),
            quotient(),
            scaled(),
        ),
    ];
    for case in &refused {
        case.refuses("rms_norm");
    }
    for output in ["a", "b", "c", "d", "e"] {
        let read = rms(f32, 17, true)
            .output("z", 1, "[a, b, c]")
            .node(node("Neg", &[output], &["z"]));
        Case::new(read, &[("x", typed(f32, 7, &DIMS))], &["y", "z"]).refuses("rms_norm");
    }
    // A scale of another shape, and a last dim that is not known.
    let wide = base(f32, 17).initializer(weights(f32, "wide", &[2, 1, 8]));
    let wide = [
        square(),
        average(),
        sum(),
        root(),
        quotient(),
        node("Mul", &["e", "wide"], &["y"]),
    ]
    .into_iter()
    .fold(wide, Model::node);
    case(f32, wide, &DIMS).refuses("rms_norm");
    // An epsilon that an attribute cannot hold.
    let f64 = ElementType::Float64;
    let exact = base(f64, 17).initializer(constant(f64, "tenth", &[], &[0.1]));
    let exact = [
        square(),
        average(),
        node("Add", &["b", "tenth"], &["c"]),
        root(),
        quotient(),
        scaled(),
    ]
    .into_iter()
    .fold(exact, Model::node);
    case(f64, exact, &DIMS).refuses("rms_norm");
}

fn layer_norm(ty: ElementType, opset: i64, twice: bool, with_bias: bool) -> Model {
    let model = base(ty, opset)
        .node(mean(opset, -1, "x", "m"))
        .node(node("Sub", &["x", "m"], &["d"]))
        .node(node("Sub", &["x", "m"], &["d2"]))
        .node(node("Pow", &[if twice { "d2" } else { "d" }, "two"], &["a"]))
        .node(mean(opset, -1, "a", "v"))
        .node(node("Add", &["v", "epsilon"], &["s"]))
        .node(node("Sqrt", &["s"], &["r"]))
        .node(node("Div", &["d", "r"], &["n"]));
    match with_bias {
        true => model
            .node(node("Mul", &["n", "scale"], &["t"]))
            .node(node("Add", &["t", "bias"], &["y"])),
        false => model.node(node("Mul", &["n", "scale"], &["y"])),
    }
}

#[test]
fn layer_norms() {
    for ty in TYPES {
        for (opset, twice) in [(17, false), (18, true)] {
            let case = case(ty, layer_norm(ty, opset, twice, true), &DIMS);
            // Once for the norm, once for its bias.
            case.check("layer_norm", 2, bound(ty));
            assert_eq!(case.nodes(""), 1);
        }
        case(ty, layer_norm(ty, 17, false, false), &DIMS).check("layer_norm", 1, bound(ty));
    }
}

#[test]
fn what_is_nearly_layer_norm_stays() {
    let f32 = ElementType::Float32;
    // The mean of something else, and over another axis.
    for average in [mean(17, -1, "scale", "m"), mean(17, 1, "x", "m")] {
        let model = base(f32, 17)
            .node(average)
            .node(node("Sub", &["x", "m"], &["d"]))
            .node(node("Pow", &["d", "two"], &["a"]))
            .node(mean(17, -1, "a", "v"))
            .node(node("Add", &["v", "epsilon"], &["s"]))
            .node(node("Sqrt", &["s"], &["r"]))
            .node(node("Div", &["d", "r"], &["n"]))
            .node(node("Mul", &["n", "scale"], &["y"]));
        let case = case(f32, model, &DIMS);
        case.refuses("layer_norm");
    }
    let swapped = base(f32, 17)
        .node(mean(17, -1, "x", "m"))
        .node(node("Sub", &["m", "x"], &["d"]))
        .node(node("Pow", &["d", "two"], &["a"]))
        .node(mean(17, -1, "a", "v"))
        .node(node("Add", &["v", "epsilon"], &["s"]))
        .node(node("Sqrt", &["s"], &["r"]))
        .node(node("Div", &["d", "r"], &["n"]))
        .node(node("Mul", &["n", "scale"], &["y"]));
    case(f32, swapped, &DIMS).refuses("layer_norm");
}

fn skip(skip_dims: &str, is_rms: bool) -> Case {
    let f32 = ElementType::Float32;
    let norm = match is_rms {
        true => node("SimplifiedLayerNormalization", &["sum", "scale"], &["y"]),
        false => node("LayerNormalization", &["sum", "scale", "bias"], &["y"]),
    };
    let model = base(f32, 17)
        .input("residual", FLOAT, skip_dims)
        .output("z", FLOAT, "[2, n, 8]")
        .node(node("Add", &["residual", "x"], &["sum"]))
        .node(norm.float("epsilon", 1e-3))
        .node(node("Neg", &["sum"], &["z"]));
    Case::new(
        model,
        &[("x", typed(f32, 7, &DIMS)), ("residual", typed(f32, 9, &DIMS))],
        &["y", "z"],
    )
}

#[test]
fn skip_norms() {
    for is_rms in [false, true] {
        let case = skip("[2, n, 8]", is_rms);
        case.check("skip_norm", 1, 1e-6);
        assert_eq!((case.nodes(""), case.nodes("skip_norm")), (2, 3));
        skip("[2, m, 8]", is_rms).refuses("skip_norm");
    }
}

fn convolution(ty: ElementType, with_bias: bool, read_twice: bool) -> Case {
    let mut conv = vec!["x", "w"];
    conv.extend(with_bias.then_some("c"));
    let model = Model::new()
        .input("x", ty.code(), "[b, 4, 6, 6]")
        .output("y", ty.code(), "[b, 4, h, k]")
        .output("z", ty.code(), "[b, 4, h, k]")
        .graph(|graph| {
            ["c", "s", "t", "m", "v"]
                .into_iter()
                .fold(graph, |graph, name| graph.initializer(weights(ty, name, &[4])))
                .initializer(weights(ty, "w", &[4, 2, 3, 3]))
        })
        .node(
            node("Conv", &conv, &["a"])
                .ints("pads", &[1, 0, 1, 0])
                .ints("strides", &[2, 1])
                .int("group", 2),
        )
        .node(node("BatchNormalization", &["a", "s", "t", "m", "v"], &["y"]).float("epsilon", 0.01))
        .node(node("Neg", &[if read_twice { "a" } else { "y" }], &["z"]));
    Case::new(model, &[("x", typed(ty, 7, &[2, 4, 6, 6]))], &["y", "z"])
}

#[test]
fn batch_norms_go_into_convolutions() {
    for ty in TYPES {
        for with_bias in [false, true] {
            let bound = if ty == ElementType::Bfloat16 {
                1.0 / 16.0
            } else {
                bound(ty)
            };
            let case = convolution(ty, with_bias, false);
            case.check("conv_bn", 1, bound);
            assert_eq!((case.nodes(""), case.nodes("conv_bn")), (2, 3));
        }
        convolution(ty, true, true).refuses("conv_bn");
    }
    // Weights that a caller gives.
    let given = Model::new()
        .input("x", FLOAT, "[b, 1, 6]")
        .input("w", FLOAT, "[1, 1, 3]")
        .output("y", FLOAT, "[b, 1, k]")
        .initializer(Tensor::floats("s", &[1], &[2.0]))
        .node(node("Conv", &["x", "w"], &["a"]))
        .node(node("BatchNormalization", &["a", "s", "s", "s", "s"], &["y"]));
    Case::new(
        given,
        &[("x", floats(1, &[2, 1, 6])), ("w", floats(2, &[1, 1, 3]))],
        &["y"],
    )
    .refuses("conv_bn");
}

fn biased(dims: &[i64], rank: usize, read_twice: bool) -> Case {
    let ty = ElementType::Float32;
    let shape = if rank == 2 { "[n, 5]" } else { "[2, n, 5]" };
    let model = Model::new()
        .input("x", FLOAT, shape)
        .output("y", FLOAT, "[...]")
        .output("z", FLOAT, "[...]")
        .initializer(weights(ty, "w", &[5, 3]))
        .initializer(weights(ty, "c", dims))
        .node(node("MatMul", &["x", "w"], &["a"]))
        .node(node("Add", &["c", "a"], &["y"]))
        .node(node("Neg", &[if read_twice { "a" } else { "y" }], &["z"]));
    let given = [2, 4, 5];
    Case::new(model, &[("x", floats(3, &given[3 - rank..]))], &["y", "z"])
}

#[test]
fn biases_go_into_products() {
    for dims in [&[3][..], &[1, 3], &[1], &[]] {
        let case = biased(dims, 2, false);
        case.check("matmul_bias", 1, 1e-6);
        assert_eq!((case.nodes(""), case.nodes("matmul_bias")), (2, 3));
        biased(dims, 2, true).refuses("matmul_bias");
    }
    let higher = biased(&[3], 3, false);
    higher.check("matmul_bias", 1, 0.0);
    assert_eq!((higher.nodes(""), higher.nodes("matmul_bias")), (2, 3));
    biased(&[3], 3, true).refuses("matmul_bias");
    biased(&[1], 3, false).refuses("matmul_bias");
    biased(&[1, 3], 3, false).refuses("matmul_bias");
    // A sum that is larger than the product.
    biased(&[2, 1, 3], 2, false).refuses("matmul_bias");
    biased(&[4, 1], 2, false).refuses("matmul_bias");
}

#[test]
fn biases_go_into_quantised_products() {
    let ty = ElementType::Float32;
    let model = |dims: &[i64]| {
        Model::new()
            .opset("com.microsoft", 1)
            .input("x", FLOAT, "[2, n, 16]")
            .output("y", FLOAT, "[2, n, 3]")
            .initializer(Tensor::raw(
                "q",
                2,
                &[3, 1, 8],
                &(0..24).map(|i| i * 11).collect::<Vec<u8>>(),
            ))
            .initializer(weights(ty, "s", &[3, 1]))
            .initializer(weights(ty, "c", dims))
            .node(
                node("MatMulNBits", &["x", "q", "s"], &["a"])
                    .domain("com.microsoft")
                    .int("K", 16)
                    .int("N", 3)
                    .int("bits", 4)
                    .int("block_size", 16),
            )
            .node(node("Add", &["a", "c"], &["y"]))
    };
    let case = |dims: &[i64]| Case::new(model(dims), &[("x", floats(3, &[2, 2, 16]))], &["y"]);
    case(&[3]).check("matmul_bias", 1, 1e-6);
    case(&[1]).refuses("matmul_bias");
}

#[test]
fn activations_go_into_products_and_convolutions() {
    for function in ["Relu", "Sigmoid", "Tanh", "LeakyRelu"] {
        let last = |alpha: bool| {
            let node = node(function, &["a"], &["y"]);
            if alpha { node.float("alpha", 0.25) } else { node }
        };
        for alpha in [false, function == "LeakyRelu"] {
            let gemm = Model::new()
                .input("x", FLOAT, "[n, 5]")
                .output("y", FLOAT, "[n, 3]")
                .initializer(weights(ElementType::Float32, "w", &[3, 5]))
                .node(
                    node("Gemm", &["x", "w"], &["a"])
                        .int("transB", 1)
                        .float("alpha", -0.5),
                )
                .node(last(alpha));
            let case = Case::new(gemm, &[("x", floats(3, &[4, 5]))], &["y"]);
            case.check("fused_activation", 1, 1e-6);
            assert_eq!(case.nodes(""), 1);
            let conv = Model::new()
                .input("x", FLOAT, "[n, 1, 5]")
                .output("y", FLOAT, "[n, 1, 3]")
                .initializer(weights(ElementType::Float32, "w", &[1, 1, 3]))
                .node(node("Conv", &["x", "w"], &["a"]))
                .node(last(alpha));
            Case::new(conv, &[("x", floats(3, &[4, 1, 5]))], &["y"]).check("fused_activation", 1, 1e-6);
        }
    }
    let read = Model::new()
        .input("x", FLOAT, "[n, 5]")
        .output("y", FLOAT, "[n, 3]")
        .output("a", FLOAT, "[n, 3]")
        .initializer(weights(ElementType::Float32, "w", &[5, 3]))
        .node(node("Gemm", &["x", "w"], &["a"]))
        .node(node("Relu", &["a"], &["y"]));
    Case::new(read, &[("x", floats(3, &[4, 5]))], &["y", "a"]).refuses("fused_activation");
}
