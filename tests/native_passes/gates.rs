//! Products of one projection with an activation of another, and both as halves of one value.

use oxpipe::native::element::ElementType;
use oxpipe_test_support::onnx_writer::{Model, Node, Tensor};

use crate::harness::{Case, typed};
use crate::typed::{TYPES, model, node};

const F32: ElementType = ElementType::Float32;

/// Of a pass that rounds once where the nodes round twice.
fn once(ty: ElementType) -> f64 {
    match ty {
        ElementType::Float16 => 1.0 / 512.0,
        ElementType::Bfloat16 => 1.0 / 64.0,
        _ => 0.0,
    }
}

fn gelu(approximate: &str, from: &str, to: &str) -> Node {
    node("Gelu", &[from], &[to]).string("approximate", approximate)
}

/// Gelu of x times v, of these dims.
fn geglu(ty: ElementType, gelu: Node, dims: &str) -> Case {
    let model = model(ty, "[2, n, 5]")
        .opset("", 20)
        .input("v", ty.code(), dims)
        .node(gelu)
        .node(node("Mul", &["v", "g"], &["y"]));
    let dims = [2, 3, 5];
    Case::new(
        model,
        &[("x", typed(ty, 7, &dims)), ("v", typed(ty, 8, &dims))],
        &["y"],
    )
}

#[test]
fn gelu_times_another_value() {
    for ty in TYPES {
        let contrib = || node("Gelu", &["x"], &["g"]).domain("com.microsoft");
        for gelu in [gelu("none", "x", "g"), gelu("tanh", "x", "g"), contrib()] {
            let case = geglu(ty, gelu, "[2, n, 5]");
            case.check("geglu", 1, once(ty));
            assert_eq!((case.nodes(""), case.nodes("geglu")), (1, 2));
        }
    }
    // Another symbol may be 1, and broadcast.
    geglu(F32, gelu("none", "x", "g"), "[2, m, 5]").refuses("geglu");
    let read = geglu_that("g", "x");
    read.refuses("geglu");
    let squared = geglu_that("x", "g");
    squared.refuses("geglu");
}

/// Gelu of x times something, once where something else reads it too, once times itself.
fn geglu_that(by: &str, with: &str) -> Case {
    let model = model(F32, "[2, n, 5]")
        .opset("", 20)
        .output("z", F32.code(), "[2, n, 5]")
        .node(gelu("none", "x", "g"))
        .node(node("Mul", &["g", with], &["y"]))
        .node(node("Neg", &[by], &["z"]));
    Case::new(model, &[("x", typed(F32, 7, &[2, 3, 5]))], &["y", "z"])
}

/// A value [..., 2 n] and what reads its halves.
struct Halves {
    ty: ElementType,
    dims: Vec<usize>,
    axis: i64,
    value_first: bool,
    /// Gelu, or the activation of SwiGLU.
    gelu: Option<&'static str>,
    alpha: f32,
    sizes: Option<[i64; 2]>,
}

impl Halves {
    fn new(ty: ElementType) -> Self {
        Halves {
            ty,
            dims: vec![2, 3, 14],
            axis: -1,
            value_first: false,
            gelu: None,
            alpha: 1.0,
            sizes: None,
        }
    }

    fn case(&self) -> Case {
        let ty = self.ty;
        // What is computed from the input, so that its halves are no views of that.
        let dims = format!("{:?}", self.dims);
        let mut model = Model::new()
            .opset("", 28)
            .input("x", ty.code(), &dims)
            .output("y", ty.code(), "[...]")
            .node(node("Neg", &["x"], &["both"]));
        let [gate, value] = match self.value_first {
            true => ["b", "a"],
            false => ["a", "b"],
        };
        model = match self.sizes {
            Some(sizes) => model
                .initializer(Tensor::ints("sizes", &[2], &sizes))
                .node(node("Split", &["both", "sizes"], &["a", "b"]).int("axis", self.axis)),
            None => model.node(
                node("Split", &["both"], &["a", "b"])
                    .int("axis", self.axis)
                    .int("num_outputs", 2),
            ),
        };
        model = match self.gelu {
            Some(approximate) => {
                model
                    .node(gelu(approximate, gate, "g"))
                    .node(node("Mul", &["g", value], &["y"]))
            }
            None => model.node(node("SwiGLU", &[gate, value], &["y"]).float("alpha", self.alpha)),
        };
        Case::new(model, &[("x", typed(ty, 7, &self.dims))], &["y"])
    }
}

#[test]
fn halves_are_read_where_they_are() {
    for ty in TYPES {
        for gelu in [None, Some("none"), Some("tanh")] {
            // Lengths of a half that are no blocks, more than one, and one row; no row, nothing.
            for dims in [
                &[2, 3, 14][..],
                &[14],
                &[1, 1, 256],
                &[3, 2],
                &[5, 2600],
                &[70, 1024],
                &[0, 14],
                &[3, 0],
            ] {
                for value_first in [false, true] {
                    let case = Halves {
                        dims: dims.into(),
                        value_first,
                        gelu,
                        alpha: 1.5,
                        ..Halves::new(ty)
                    }
                    .case();
                    let bound = if gelu.is_some() { once(ty) } else { 0.0 };
                    case.check("gated_halves", 1, bound);
                    assert_eq!((case.nodes(""), case.nodes("gated_halves")), (2, 3));
                }
            }
        }
    }
    let sizes = |sizes| Halves {
        sizes: Some(sizes),
        ..Halves::new(F32)
    };
    sizes([7, 7]).case().check("gated_halves", 1, 0.0);
    let axis = Halves {
        axis: 2,
        ..Halves::new(F32)
    };
    axis.case().check("gated_halves", 1, 0.0);
    let rows = Halves {
        axis: 0,
        ..Halves::new(F32)
    };
    rows.case().refuses("gated_halves");
}

#[test]
fn halves_that_something_else_reads_stay() {
    let split = |outputs: &[&str], reads: &[&str]| {
        let model = Model::new()
            .opset("", 28)
            .input("x", F32.code(), "[3, 12]")
            .output("y", F32.code(), "[...]")
            .output("z", F32.code(), "[...]")
            .node(node("Neg", &["x"], &["both"]))
            .node(
                node("Split", &["both"], outputs)
                    .int("axis", -1)
                    .int("num_outputs", outputs.len() as i64),
            )
            .node(node("SwiGLU", reads, &["y"]))
            .node(node("Neg", &[outputs[outputs.len() - 1]], &["z"]));
        Case::new(model, &[("x", typed(F32, 7, &[3, 12]))], &["y", "z"])
    };
    split(&["a", "b"], &["a", "b"]).refuses("gated_halves");
    split(&["a", "b"], &["a", "a"]).refuses("gated_halves");
    split(&["a", "b", "c"], &["a", "b"]).refuses("gated_halves");
}

#[test]
fn halves_of_any_number_of_threads_are_the_same_bits() {
    for ty in TYPES {
        let case = Halves {
            dims: vec![37, 3000],
            ..Halves::new(ty)
        }
        .case();
        case.same_on_threads(&[1, 2, 4]);
    }
}
