//! Attention as the function body of the operator has it, and as exporters write it like that:
//! Q and K each with a factor, Softmax perhaps in a wider type, hidden queries set to 0.

use half::{bf16, f16};
use oxpipe::native::element::ElementType;
use oxpipe::native::tensor::Tensor as Value;
use oxpipe_test_support::onnx_writer::{Model, Tensor};

use crate::harness::{Case, numbers, typed};
use crate::typed::{TYPES, constant, node};

fn bound(ty: ElementType) -> f64 {
    match ty {
        ElementType::Float64 => 1e-13,
        ElementType::Float16 => 1.0 / 128.0,
        ElementType::Bfloat16 => 1.0 / 16.0,
        _ => 1e-5,
    }
}

/// How the condition of Where comes about.
#[derive(Clone, Copy, PartialEq)]
enum Condition {
    /// From the maxima of this.
    Of(&'static str),
    /// A constant of a row each.
    Rows([bool; 5]),
}

#[derive(Clone, Copy)]
struct Body {
    ty: ElementType,
    /// Of Q and of the transposed K.
    factors: [Option<f64>; 2],
    is_mask_constant: bool,
    softmax_type: Option<ElementType>,
    condition: Option<Condition>,
    axis: i64,
    keepdims: i64,
    lowest: f64,
    zero: f64,
    /// Where shows the weights where the condition is true.
    swapped: bool,
    /// Something in between that is an output too, or that a node reads which makes one.
    output: Option<&'static str>,
    read: &'static str,
}

const BODY: Body = Body {
    ty: ElementType::Float32,
    factors: [Some(0.594_726_562_5); 2],
    is_mask_constant: false,
    softmax_type: None,
    condition: Some(Condition::Of("mask")),
    axis: -1,
    keepdims: 1,
    lowest: f64::NEG_INFINITY,
    zero: 0.0,
    swapped: false,
    output: None,
    read: "y",
};

/// Row 1 is hidden, row 3 in part.
fn mask() -> Vec<f64> {
    let mut mask: Vec<f64> = numbers(4, 25).into_iter().map(f64::from).collect();
    for at in [5, 6, 7, 8, 9, 15, 17] {
        mask[at] = f64::NEG_INFINITY;
    }
    mask
}

fn value(ty: ElementType, dims: &[usize], elements: &[f64]) -> Value {
    let elements = elements.iter();
    match ty {
        ElementType::Float64 => Value::from_slice(dims, &elements.copied().collect::<Vec<_>>()),
        ElementType::Float16 => {
            Value::from_slice(dims, &elements.map(|&x| f16::from_f64(x)).collect::<Vec<_>>())
        }
        ElementType::Bfloat16 => {
            Value::from_slice(dims, &elements.map(|&x| bf16::from_f64(x)).collect::<Vec<_>>())
        }
        _ => Value::from_slice(dims, &elements.map(|&x| x as f32).collect::<Vec<_>>()),
    }
    .unwrap()
}

impl Body {
    fn case(&self) -> Case {
        let (ty, code) = (self.ty, self.ty.code());
        let mut model = Model::new()
            .opset("", 23)
            .input("q", code, "[b, 2, 5, 4]")
            .input("k", code, "[b, 2, 5, 4]")
            .input("v", code, "[b, 2, 5, 6]")
            .input("other", code, "[5, 5]")
            .output("y", code, "[b, 2, 5, 6]")
            .output("z", code, "[...]")
            .initializer(constant(ElementType::Float32, "lowest", &[1], &[self.lowest]))
            .initializer(constant(ElementType::Float32, "zero", &[1], &[self.zero]))
            .node(node("Transpose", &["k"], &["kt"]).ints("perm", &[0, 1, 3, 2]));
        let mut operands = ["q", "kt"];
        for ((operand, scaled), factor) in operands.iter_mut().zip(["qs", "ks"]).zip(self.factors) {
            if let Some(factor) = factor {
                let name = format!("factor_{scaled}");
                model = model.initializer(constant(ty, &name, &[], &[factor])).node(node(
                    "Mul",
                    &[operand, &name],
                    &[scaled],
                ));
                *operand = scaled;
            }
        }
        let mut inputs = vec![
            ("q", typed(ty, 1, &[3, 2, 5, 4])),
            ("k", typed(ty, 2, &[3, 2, 5, 4])),
            ("v", typed(ty, 3, &[3, 2, 5, 6])),
            ("other", value(ty, &[5, 5], &mask())),
        ];
        if self.is_mask_constant {
            model = model.initializer(constant(ty, "mask", &[5, 5], &mask()));
        } else {
            model = model.input("mask", code, "[5, 5]");
            inputs.push(("mask", value(ty, &[5, 5], &mask())));
        }
        let softmax_type = i64::from(self.softmax_type.unwrap_or(ty).code());
        model = model
            .node(node("MatMul", &operands, &["product"]))
            .node(node("Cast", &["product"], &["scores"]).int("to", code.into()))
            .node(node("Add", &["scores", "mask"], &["masked"]))
            .node(node("Cast", &["masked"], &["masked_wide"]).int("to", softmax_type))
            .node(node("Softmax", &["masked_wide"], &["weights_wide"]))
            .node(node("Cast", &["weights_wide"], &["weights"]).int("to", code.into()));
        let mut weights = "weights";
        if let Some(condition) = self.condition {
            model = match condition {
                Condition::Of(name) => model
                    .initializer(Tensor::ints("axes", &[1], &[self.axis]))
                    .node(node("ReduceMax", &[name, "axes"], &["max"]).int("keepdims", self.keepdims))
                    .node(node("CastLike", &["lowest", name], &["lowest_like"]))
                    .node(node("Equal", &["max", "lowest_like"], &["hidden"])),
                Condition::Rows(rows) => {
                    model.initializer(Tensor::raw("hidden", 9, &[5, 1], &rows.map(u8::from)))
                }
            };
            let branches = match self.swapped {
                false => ["hidden", "zero_like", "weights"],
                true => ["hidden", "weights", "zero_like"],
            };
            model = model
                .node(node("CastLike", &["zero", "weights"], &["zero_like"]))
                .node(node("Where", &branches, &["shown"]));
            weights = "shown";
        }
        model = model
            .node(node("MatMul", &[weights, "v"], &["y"]))
            .node(node("Neg", &[self.read], &["z"]));
        let mut outputs = vec!["y", "z"];
        if let Some(output) = self.output {
            model = model.output(output, code, "[...]");
            outputs.push(output);
        }
        Case::new(model, &inputs, &outputs)
    }
}

#[test]
fn the_body_of_the_function_is_attention() {
    for ty in TYPES {
        let body = Body { ty, ..BODY };
        body.case().check("attention", 1, bound(ty));
        assert_eq!(body.case().nodes(""), 2, "{ty}");
        let variants = [
            Body {
                factors: [Some(0.75), Some(0.5)],
                ..body
            },
            Body { axis: 1, ..body },
            Body {
                is_mask_constant: true,
                ..body
            },
            Body {
                is_mask_constant: true,
                condition: Some(Condition::Rows([false, true, false, false, false])),
                ..body
            },
            // What only Q is multiplied with stays.
            Body {
                factors: [Some(0.375), None],
                ..body
            },
            Body {
                factors: [None, None],
                ..body
            },
            Body {
                softmax_type: Some(ElementType::Float64),
                ..body
            },
        ];
        for variant in variants {
            variant.case().check("attention", 1, bound(ty));
        }
    }
    // 16-bit floats are often summed up in f32; and any product of two f32 is near enough.
    for ty in [ElementType::Float16, ElementType::Bfloat16] {
        let wide = Body {
            ty,
            softmax_type: Some(ElementType::Float32),
            ..BODY
        };
        wide.case().check("attention", 1, bound(ty));
    }
    let inexact = Body {
        factors: [Some(0.6), Some(0.7)],
        ..BODY
    };
    inexact.case().check("attention", 1, 1e-5);
}

#[test]
fn what_is_nearly_the_body_stays() {
    let half = ElementType::Float16;
    let variants = [
        // Other queries than those that are hidden.
        Body {
            lowest: -1e30,
            ..BODY
        },
        // In f16 this is -inf as well; which numbers are is left to those who know.
        Body {
            ty: half,
            lowest: -1e30,
            ..BODY
        },
        Body {
            condition: Some(Condition::Of("other")),
            ..BODY
        },
        Body { axis: 0, ..BODY },
        Body { keepdims: 0, ..BODY },
        Body {
            condition: Some(Condition::Rows([false, true, false, false, false])),
            ..BODY
        },
        Body {
            is_mask_constant: true,
            condition: Some(Condition::Rows([false, true, false, true, false])),
            ..BODY
        },
        Body {
            is_mask_constant: true,
            condition: Some(Condition::Rows([false; 5])),
            ..BODY
        },
        // Something else than 0, or elsewhere.
        Body { zero: 1.0, ..BODY },
        Body {
            ty: half,
            zero: 1.0,
            ..BODY
        },
        Body {
            swapped: true,
            ..BODY
        },
        // A factor of K alone; products that the attribute cannot give.
        Body {
            factors: [None, Some(0.375)],
            ..BODY
        },
        Body {
            ty: ElementType::Float64,
            factors: [Some(0.1); 2],
            ..BODY
        },
        Body {
            factors: [Some(1e30); 2],
            ..BODY
        },
        Body {
            factors: [Some(1e-20); 2],
            ..BODY
        },
        // Softmax in a type that loses something.
        Body {
            softmax_type: Some(half),
            ..BODY
        },
        Body {
            ty: ElementType::Bfloat16,
            softmax_type: Some(half),
            ..BODY
        },
    ];
    for (index, variant) in variants.iter().enumerate() {
        assert_eq!(variant.case().fired("attention"), 0, "variant {index}");
        variant.case().refuses("attention");
    }
    for name in ["qs", "ks", "product", "masked", "weights", "shown"] {
        for body in [
            Body {
                output: Some(name),
                ..BODY
            },
            Body { read: name, ..BODY },
        ] {
            assert_eq!(body.case().fired("attention"), 0, "{name}");
            body.case().refuses("attention");
        }
    }
}

#[test]
fn the_body_repeats_heads_for_attention() {
    let ty = ElementType::Float16;
    let code = ty.code();
    let ints = |name: &str, values: &[i64]| Tensor::ints(name, &[values.len() as i64], values);
    let mut model = Model::new()
        .opset("", 23)
        .input("q", code, "[3, 4, 5, 4]")
        .input("k", code, "[3, 2, 5, 4]")
        .input("v", code, "[3, 2, 5, 6]")
        .input("mask", code, "[5, 5]")
        .output("y", code, "[3, 4, 5, 6]")
        .initializer(ints("two", &[2]))
        .initializer(constant(ty, "s", &[1], &[0.594_726_562_5]));
    for (name, size) in [("k", 4), ("v", 6)] {
        let [single, wide, shape, joined, all] =
            ["single", "wide", "shape", "joined", "all"].map(|stage| format!("{name}_{stage}"));
        model = model
            .initializer(ints(&shape, &[3, 2, 2, 5, size]))
            .initializer(ints(&joined, &[3, 4, 5, size]))
            .node(node("Unsqueeze", &[name, "two"], &[&single]))
            .node(node("Expand", &[&single, &shape], &[&wide]))
            .node(node("Reshape", &[&wide, &joined], &[&all]));
    }
    let model = model
        .node(node("Transpose", &["k_all"], &["kt"]).ints("perm", &[0, 1, 3, 2]))
        .node(node("Mul", &["q", "s"], &["qs"]))
        .node(node("Mul", &["kt", "s"], &["ks"]))
        .node(node("MatMul", &["qs", "ks"], &["scores"]))
        .node(node("Add", &["scores", "mask"], &["masked"]))
        .node(node("Softmax", &["masked"], &["weights"]))
        .node(node("MatMul", &["weights", "v_all"], &["y"]));
    let case = Case::new(
        model,
        &[
            ("q", typed(ty, 1, &[3, 4, 5, 4])),
            ("k", typed(ty, 2, &[3, 2, 5, 4])),
            ("v", typed(ty, 3, &[3, 2, 5, 6])),
            ("mask", typed(ty, 4, &[5, 5])),
        ],
        &["y"],
    );
    case.check("attention", 1, bound(ty));
    case.check("repeat_kv", 1, bound(ty));
    assert_eq!(case.nodes(""), 1);
}
