//! Values of the dims of a product that are added to it, and biases before them.

use oxpipe::native::element::ElementType;
use oxpipe_test_support::onnx_writer::{Model, Node, Tensor};

use crate::harness::{Case, numbers, typed};
use crate::typed::{TYPES, constant, node, weights};

const PASS: &str = "matmul_residual";
const F32: ElementType = ElementType::Float32;

/// Where the nodes round their sums, the pass rounds once.
fn once(ty: ElementType, times: f64) -> f64 {
    match ty {
        ElementType::Float16 => times / 512.0,
        ElementType::Bfloat16 => times / 64.0,
        _ => 0.0,
    }
}

#[derive(Clone, Copy)]
enum Weights {
    Floats,
    /// Bits and accuracy_level.
    Blocks(usize, i64),
}

struct Residual {
    ty: ElementType,
    weights: Weights,
    /// Of x, whose rows have 64 elements.
    rows: Vec<usize>,
    declared: &'static str,
    columns: usize,
    biased: bool,
    /// The dims of what is added, and how they are declared.
    residual: Option<(Vec<usize>, &'static str)>,
    read_twice: bool,
}

impl Residual {
    fn new(ty: ElementType, weights: Weights) -> Self {
        Residual {
            ty,
            weights,
            rows: vec![2, 3],
            declared: "[2, n, 64]",
            columns: 20,
            biased: false,
            residual: None,
            read_twice: false,
        }
    }

    fn product(&self, model: Model) -> Model {
        let (ty, columns) = (self.ty, self.columns);
        match self.weights {
            Weights::Floats => {
                let values = numbers(3, 64 * columns).into_iter().map(f64::from);
                model
                    .initializer(constant(
                        ty,
                        "w",
                        &[64, columns as i64],
                        &values.collect::<Vec<_>>(),
                    ))
                    .node(node("MatMul", &["x", "w"], &["p"]))
            }
            Weights::Blocks(bits, level) => {
                let bytes: Vec<u8> = (0..columns * 2 * 4 * bits)
                    .map(|i| (i * 89 + i / 7) as u8)
                    .collect();
                let dims = [columns as i64, 2, 4 * bits as i64];
                model
                    .initializer(Tensor::raw("w", 2, &dims, &bytes))
                    .initializer(weights(ty, "s", &[columns as i64, 2]))
                    .node(
                        node("MatMulNBits", &["x", "w", "s"], &["p"])
                            .domain("com.microsoft")
                            .int("K", 64)
                            .int("N", columns as i64)
                            .int("bits", bits as i64)
                            .int("block_size", 32)
                            .int("accuracy_level", level),
                    )
            }
        }
    }

    fn case(&self) -> Case {
        let ty = self.ty;
        let mut dims = self.rows.clone();
        dims.push(self.columns);
        let declared = self.declared.replace("64", &self.columns.to_string());
        let (dims, declared) = match &self.residual {
            Some((dims, declared)) => (dims.clone(), (*declared).to_owned()),
            None => (dims, declared),
        };
        let mut model = Model::new()
            .opset("com.microsoft", 1)
            .input("x", ty.code(), self.declared)
            .input("r", ty.code(), &declared)
            .output("y", ty.code(), "[...]")
            .output("z", ty.code(), "[...]");
        model = self.product(model);
        let mut sum = "p";
        if self.biased {
            model = model
                .initializer(weights(ty, "c", &[self.columns as i64]))
                .node(node("Add", &["p", "c"], &["b"]));
            sum = "b";
        }
        let read = if self.read_twice { sum } else { "y" };
        let model = model
            .node(node("Add", &["r", sum], &["y"]))
            .node(node("Neg", &[read], &["z"]));
        let mut given = self.rows.clone();
        given.push(64);
        let inputs = [("x", typed(ty, 7, &given)), ("r", typed(ty, 8, &dims))];
        Case::new(model, &inputs, &["y", "z"])
    }
}

#[test]
fn residuals_of_products() {
    for ty in TYPES {
        // Few rows and many, none, and a rank of two.
        for rows in [&[2, 1][..], &[2, 3], &[2, 40], &[2, 0]] {
            for biased in [false, true] {
                let case = Residual {
                    rows: rows.into(),
                    biased,
                    ..Residual::new(ty, Weights::Floats)
                }
                .case();
                case.check(PASS, 1, once(ty, if biased { 2.0 } else { 1.0 }));
                assert_eq!((case.nodes(""), case.nodes(PASS)), (2, 3));
                case.same_on_threads(&[1, 2, 4]);
            }
        }
        let two = Residual {
            rows: vec![3],
            declared: "[n, 64]",
            ..Residual::new(ty, Weights::Floats)
        };
        two.case().check(PASS, 1, once(ty, 1.0));
    }
    // Columns that are shared out.
    let wide = Residual {
        columns: 3000,
        rows: vec![2, 9],
        biased: true,
        ..Residual::new(F32, Weights::Floats)
    };
    wide.case().check(PASS, 1, 0.0);
    wide.case().same_on_threads(&[1, 2, 4]);
}

#[test]
fn residuals_of_quantised_products() {
    for ty in [
        F32,
        ElementType::Float16,
        ElementType::Bfloat16,
        ElementType::Float64,
    ] {
        for bits in [2, 4, 8] {
            for level in [0, 4] {
                for rows in [1, 3, 30] {
                    let case = Residual {
                        rows: vec![2, rows],
                        biased: rows != 3,
                        ..Residual::new(ty, Weights::Blocks(bits, level))
                    }
                    .case();
                    case.check(PASS, 1, once(ty, if rows != 3 { 2.0 } else { 1.0 }));
                    assert_eq!(case.nodes(""), 2);
                    case.same_on_threads(&[1, 2, 4]);
                }
            }
        }
    }
}

#[test]
fn what_is_nearly_a_residual_stays() {
    for weights in [Weights::Floats, Weights::Blocks(4, 0)] {
        let new = || Residual::new(F32, weights);
        let read = Residual {
            read_twice: true,
            ..new()
        };
        read.case().refuses(PASS);
        // Dims that broadcast, or may.
        for (dims, declared) in [
            (vec![2, 3, 20], "[2, m, 20]"),
            (vec![2, 3, 20], "[2, ?, 20]"),
            (vec![2, 1, 20], "[2, 1, 20]"),
            (vec![1, 1], "[1, 1]"),
            (vec![2, 2, 3, 20], "[2, 2, n, 20]"),
        ] {
            let other = Residual {
                residual: Some((dims, declared)),
                ..new()
            };
            other.case().refuses(PASS);
        }
    }
    // A product of several matrices.
    let batched = Model::new()
        .input("x", F32.code(), "[2, n, 6]")
        .input("r", F32.code(), "[2, n, 4]")
        .output("y", F32.code(), "[...]")
        .initializer(weights(F32, "w", &[2, 6, 4]))
        .node(node("MatMul", &["x", "w"], &["p"]))
        .node(node("Add", &["p", "r"], &["y"]));
    let inputs = [("x", typed(F32, 7, &[2, 3, 6])), ("r", typed(F32, 8, &[2, 3, 4]))];
    Case::new(batched, &inputs, &["y"]).refuses(PASS);
}

/// Of two products of one value the first in the sum takes the other, whichever comes first.
#[test]
fn a_product_may_be_the_residual_of_another() {
    let model = |first: Node, second: Node| {
        Model::new()
            .input("x", F32.code(), "[2, n, 6]")
            .output("y", F32.code(), "[...]")
            .initializer(weights(F32, "v", &[6, 4]))
            .initializer(weights(F32, "w", &[6, 4]))
            .node(first)
            .node(second)
            .node(node("Add", &["p", "q"], &["y"]))
    };
    let (p, q) = (
        || node("MatMul", &["x", "v"], &["p"]),
        || node("MatMul", &["x", "w"], &["q"]),
    );
    for model in [model(p(), q()), model(q(), p())] {
        let case = Case::new(model, &[("x", typed(F32, 7, &[2, 3, 6]))], &["y"]);
        case.check(PASS, 1, 0.0);
        assert_eq!(case.nodes(""), 2);
    }
}
