//! Rotary embedding as Hugging Face writes it.

use oxpipe::native::element::ElementType;
use oxpipe_test_support::onnx_writer::{Model, Tensor};

use crate::harness::{Case, typed};
use crate::typed::{TYPES, constant, node};

/// What varies, and what does not fit.
#[derive(Clone)]
struct Written {
    ty: ElementType,
    /// Of the frequencies.
    angles: &'static str,
    /// What is put beside the frequencies to make the angles.
    other: &'static str,
    slices: [i64; 4],
    axis: i64,
    unsqueezed: i64,
    negated: &'static str,
    turned: [&'static str; 2],
    read: &'static str,
}

const PLAIN: Written = Written {
    ty: ElementType::Float32,
    angles: "[b, s, 4]",
    other: "f",
    slices: [0, 4, 4, i64::MAX],
    axis: -1,
    unsqueezed: 1,
    negated: "high",
    turned: ["minus", "low"],
    read: "y",
};

impl Written {
    fn case(&self) -> Case {
        let ty = self.ty;
        let mut model = Model::new()
            .opset("", 17)
            .input("x", ty.code(), "[b, 2, s, 8]")
            .input("f", ty.code(), self.angles)
            .output("y", ty.code(), "[b, 2, s, 8]")
            .output("z", ty.code(), "[...]")
            .initializer(Tensor::ints("last", &[1], &[self.axis]))
            .initializer(Tensor::ints("one", &[1], &[self.unsqueezed]))
            .initializer(constant(ty, "scale", &[], &[1.25]))
            .node(node("Neg", &["f"], &["g"]))
            .node(node("Concat", &["f", self.other], &["angles"]).int("axis", -1));
        for (index, bound) in self.slices.into_iter().enumerate() {
            model = model.initializer(Tensor::ints(&format!("bound{index}"), &[1], &[bound]));
        }
        for (function, op) in [("cos", "Cos"), ("sin", "Sin")] {
            let [raw, scaled] = ["raw", "scaled"].map(|stage| format!("{stage}_{function}"));
            model = model
                .node(node(op, &["angles"], &[&raw]))
                .node(node("Mul", &[&raw, "scale"], &[&scaled]))
                .node(node("Unsqueeze", &[&scaled, "one"], &[function]));
        }
        let model = model
            .node(node("Mul", &["x", "cos"], &["straight"]))
            .node(node("Slice", &["x", "bound0", "bound1", "last"], &["low"]))
            .node(node("Slice", &["x", "bound2", "bound3", "last"], &["high"]))
            .node(node("Neg", &[self.negated], &["minus"]))
            .node(node("Concat", &self.turned, &["turned"]).int("axis", self.axis))
            .node(node("Mul", &["turned", "sin"], &["across"]))
            .node(node("Add", &["straight", "across"], &["y"]))
            .node(node("Abs", &[self.read], &["z"]));
        let f = if self.angles.starts_with("[1") {
            [1, 5, 4]
        } else {
            [3, 5, 4]
        };
        Case::new(
            model,
            &[("x", typed(ty, 1, &[3, 2, 5, 8])), ("f", typed(ty, 2, &f))],
            &["y", "z"],
        )
    }
}

#[test]
fn rotary_embedding() {
    for ty in TYPES {
        let bound = match ty {
            ElementType::Float16 => 1.0 / 256.0,
            ElementType::Bfloat16 => 1.0 / 32.0,
            _ => 0.0,
        };
        let case = Written { ty, ..PLAIN }.case();
        case.check("rope", 1, bound);
        Written {
            ty,
            axis: 3,
            slices: [0, -4, -4, 9],
            ..PLAIN
        }
        .case()
        .check("rope", 1, bound);
    }
}

#[test]
fn what_is_nearly_rotary_embedding_stays() {
    let variants = [
        // Angles that are not the same for both halves, or of another batch or length.
        Written { other: "g", ..PLAIN },
        Written {
            angles: "[1, s, 4]",
            ..PLAIN
        },
        Written {
            angles: "[c, s, 4]",
            ..PLAIN
        },
        Written {
            angles: "[b, t, 4]",
            ..PLAIN
        },
        // The other half negated, or the halves in their places.
        Written {
            negated: "low",
            turned: ["minus", "high"],
            ..PLAIN
        },
        Written {
            turned: ["low", "minus"],
            ..PLAIN
        },
        Written {
            slices: [0, 3, 3, 8],
            ..PLAIN
        },
        Written {
            slices: [1, 5, 4, 8],
            ..PLAIN
        },
        Written {
            read: "turned",
            ..PLAIN
        },
        Written {
            read: "straight",
            ..PLAIN
        },
        Written {
            read: "minus",
            ..PLAIN
        },
    ];
    for (index, variant) in variants.iter().enumerate() {
        let case = variant.case();
        assert_eq!(case.fired("rope"), 0, "variant {index}");
        case.refuses("rope");
    }
}
