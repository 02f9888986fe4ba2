//! Attention as exporters write it.

use oxpipe::native::element::ElementType;
use oxpipe_test_support::onnx_writer::{Model, Node, Tensor};

use crate::harness::{Case, typed};
use crate::typed::{TYPES, constant, node};

fn bound(ty: ElementType) -> f64 {
    match ty {
        ElementType::Float64 => 1e-13,
        ElementType::Float16 => 1.0 / 128.0,
        ElementType::Bfloat16 => 1.0 / 16.0,
        _ => 1e-5,
    }
}

/// What varies from exporter to exporter, and what does not fit.
#[derive(Clone)]
struct Written {
    ty: ElementType,
    opset: i64,
    /// Of k, which is [b, 2, t, 4], or [b, t, 2, 4] if this says so.
    key: &'static str,
    key_perm: &'static [i64],
    scale: Option<(&'static str, f64)>,
    mask: Option<(&'static str, [usize; 4])>,
    softmax_axis: i64,
    value: &'static str,
    /// Something that another node reads as well.
    read: &'static str,
}

const PLAIN: Written = Written {
    ty: ElementType::Float32,
    opset: 17,
    key: "[b, 2, t, 4]",
    key_perm: &[0, 1, 3, 2],
    scale: Some(("Div", 2.0)),
    mask: None,
    softmax_axis: -1,
    value: "[b, 2, t, 6]",
    read: "y",
};

impl Written {
    fn case(&self) -> Case {
        let code = self.ty.code();
        let mut model = Model::new()
            .opset("", self.opset)
            .input("q", code, "[b, 2, s, 4]")
            .input("k", code, self.key)
            .input("v", code, self.value)
            .output("y", code, "[b, 2, s, 6]")
            .output("z", code, "[...]")
            .node(node("Transpose", &["k"], &["kt"]).ints("perm", self.key_perm))
            .node(node("MatMul", &["q", "kt"], &["product"]));
        let mut scores = "product";
        if let Some((op, scale)) = self.scale {
            model = model
                .initializer(constant(self.ty, "scale", &[], &[scale]))
                .node(node(op, &[scores, "scale"], &["scores"]));
            scores = "scores";
        }
        let key: [usize; 4] = if self.key == "[b, t, 2, 4]" {
            [3, 5, 2, 4]
        } else {
            [3, 2, 5, 4]
        };
        let mut inputs = vec![
            ("q", typed(self.ty, 1, &[3, 2, 5, 4])),
            ("k", typed(self.ty, 2, &key)),
            ("v", typed(self.ty, 3, &[3, 2, 5, 6])),
        ];
        if let Some((dims, given)) = self.mask {
            let given = &given[4 - dims.split(',').count()..];
            model = model
                .input("mask", code, dims)
                .node(node("Add", &[scores, "mask"], &["masked"]));
            inputs.push(("mask", typed(self.ty, 4, given)));
            scores = "masked";
        }
        let model = model
            .node(node("Softmax", &[scores], &["weights"]).int("axis", self.softmax_axis))
            .node(node("MatMul", &["weights", "v"], &["y"]))
            .node(Node::new("Neg", &[self.read], &["z"]));
        Case::new(model, &inputs, &["y", "z"])
    }
}

#[test]
fn attention() {
    for ty in TYPES {
        let bound = bound(ty);
        let plain = Written { ty, ..PLAIN };
        let case = plain.case();
        case.check("attention", 1, bound);
        assert_eq!((case.nodes(""), case.nodes("attention,transpose_matmul")), (2, 6));
        let variants = [
            Written {
                scale: None,
                ..plain.clone()
            },
            Written {
                scale: Some(("Mul", 0.375)),
                opset: 11,
                softmax_axis: 3,
                ..plain.clone()
            },
            Written {
                key: "[b, t, 2, 4]",
                key_perm: &[0, 2, 3, 1],
                ..plain.clone()
            },
            Written {
                mask: Some(("[b, 1, s, t]", [3, 1, 5, 5])),
                ..plain.clone()
            },
            Written {
                mask: Some(("[b, 1, 1, t]", [3, 1, 1, 5])),
                ..plain.clone()
            },
            Written {
                mask: Some(("[s, t]", [1, 1, 5, 5])),
                scale: None,
                ..plain.clone()
            },
        ];
        for variant in variants {
            variant.case().check("attention", 1, bound);
        }
    }
}

#[test]
fn what_is_nearly_attention_stays() {
    let variants = [
        // Over the keys of another axis, or all of them.
        Written {
            softmax_axis: 2,
            ..PLAIN
        },
        Written {
            opset: 11,
            softmax_axis: 1,
            ..PLAIN
        },
        Written {
            softmax_axis: 1,
            ..PLAIN
        },
        // A mask whose last dim is 1 or may be, or that has more heads or batch items.
        Written {
            mask: Some(("[b, 1, s, 1]", [3, 1, 5, 1])),
            ..PLAIN
        },
        Written {
            mask: Some(("[b, 1, s, u]", [3, 1, 5, 5])),
            ..PLAIN
        },
        Written {
            mask: Some(("[b, 1, ?, t]", [3, 1, 5, 5])),
            ..PLAIN
        },
        Written {
            mask: Some(("[c, 1, s, t]", [3, 1, 5, 5])),
            ..PLAIN
        },
        // Dims that may be 1 and broadcast.
        Written {
            key: "[c, 2, t, 4]",
            ..PLAIN
        },
        Written {
            key: "[b, h, t, 4]",
            ..PLAIN
        },
        Written {
            value: "[c, 2, t, 6]",
            ..PLAIN
        },
        Written {
            read: "product",
            ..PLAIN
        },
        Written {
            read: "scores",
            ..PLAIN
        },
        Written {
            read: "weights",
            ..PLAIN
        },
    ];
    for (index, variant) in variants.iter().enumerate() {
        assert_eq!(variant.case().fired("attention"), 0, "variant {index}");
        variant.case().refuses("attention");
    }
}

/// As PyTorch writes it for lengths that only a run tells: shapes are computed from those of x.
fn computed_shapes(mask: &str) -> Case {
    let ty = ElementType::Float32;
    let mut model = Model::new()
        .input("x", ty.code(), "[b, s, 8]")
        .input("mask", ty.code(), mask)
        .output("y", ty.code(), "[b, s, 8]")
        .initializer(constant(ty, "scale", &[], &[2.0]))
        .initializer(Tensor::ints("zero", &[], &[0]))
        .initializer(Tensor::ints("one", &[], &[1]))
        .initializer(Tensor::ints("axis", &[1], &[0]))
        .initializer(Tensor::ints("heads", &[1], &[2]))
        .initializer(Tensor::ints("size", &[1], &[4]))
        .initializer(Tensor::ints("width", &[1], &[8]))
        .node(node("Shape", &["x"], &["shape"]))
        .node(node("Gather", &["shape", "zero"], &["batch"]))
        .node(node("Gather", &["shape", "one"], &["length"]))
        .node(node("Unsqueeze", &["batch", "axis"], &["batch1"]))
        .node(node("Unsqueeze", &["length", "axis"], &["length1"]))
        .node(node("Concat", &["batch1", "length1", "heads", "size"], &["split"]).int("axis", 0))
        .node(node("Concat", &["batch1", "length1", "width"], &["joined"]).int("axis", 0));
    for (name, perm) in [("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])] {
        let [weights, product, split] = ["w", "p", "r"].map(|stage| format!("{stage}{name}"));
        model = model
            .initializer(weights_of(&weights))
            .node(node("MatMul", &["x", &weights], &[&product]))
            .node(node("Reshape", &[&product, "split"], &[&split]))
            .node(node("Transpose", &[&split], &[name]).ints("perm", &perm));
    }
    let model = model
        .node(node("MatMul", &["q", "k"], &["product"]))
        .node(node("Div", &["product", "scale"], &["scores"]))
        .node(node("Add", &["scores", "mask"], &["masked"]))
        .node(node("Softmax", &["masked"], &["weights"]).int("axis", -1))
        .node(node("MatMul", &["weights", "v"], &["heads_out"]))
        .node(node("Transpose", &["heads_out"], &["turned"]).ints("perm", &[0, 2, 1, 3]))
        .node(node("Reshape", &["turned", "joined"], &["y"]));
    Case::new(
        model,
        &[
            ("x", typed(ty, 1, &[3, 5, 8])),
            ("mask", typed(ty, 2, &[3, 1, 1, 5])),
        ],
        &["y"],
    )
}

fn weights_of(name: &str) -> Tensor {
    let values: Vec<f32> = crate::harness::numbers(name.len() as u64 + u64::from(name.as_bytes()[1]), 64);
    Tensor::floats(name, &[8, 8], &values)
}

#[test]
fn attention_of_shapes_that_are_computed() {
    computed_shapes("[b, 1, 1, s]").check("attention", 1, 1e-5);
    computed_shapes("[b, 1, 1, t]").refuses("attention");
}
