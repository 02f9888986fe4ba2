//! Attention that appends to a cache, and that shares heads of keys and values.

use oxpipe::native::NativeSession;
use oxpipe::native::element::ElementType;
use oxpipe::native::tensor::Tensor as Value;
use oxpipe_test_support::onnx_writer::{Model, Node, Tensor};

use crate::harness::{Case, assert_close, typed};
use crate::typed::{constant, node};

const TYPES: [ElementType; 2] = [ElementType::Float32, ElementType::Float16];

fn bound(ty: ElementType) -> f64 {
    match ty {
        ElementType::Float16 => 1.0 / 128.0,
        _ => 1e-5,
    }
}

/// Attention that a node does, or one written out.
fn attend(mut model: Model, ty: ElementType, inputs: &[&str], written_out: bool, causal: i64) -> Model {
    if !written_out {
        let attention = node("Attention", inputs, &["y"]).float("scale", 0.5);
        return model.node(attention.int("is_causal", causal));
    }
    model = model
        .initializer(constant(ty, "scale", &[], &[0.5]))
        .node(node("Transpose", &[inputs[1]], &["turned"]).ints("perm", &[0, 1, 3, 2]))
        .node(node("MatMul", &[inputs[0], "turned"], &["product"]))
        .node(node("Mul", &["product", "scale"], &["scores"]));
    let mut scores = "scores";
    if let Some(mask) = inputs.get(3) {
        model = model.node(node("Add", &["scores", mask], &["masked"]));
        scores = "masked";
    }
    model
        .node(node("Softmax", &[scores], &["weights"]).int("axis", -1))
        .node(node("MatMul", &["weights", inputs[2]], &["y"]))
}

/// What varies in a step that appends to a cache, and what does not fit.
#[derive(Clone)]
struct Step {
    ty: ElementType,
    opset: i64,
    written_out: bool,
    /// Dims are numbers instead of symbols.
    fixed: bool,
    mask: bool,
    keys: [&'static str; 2],
    /// What is attended to.
    values: &'static str,
    axis: i64,
    causal: i64,
    nonpad: bool,
    past_value: &'static str,
    value: &'static str,
    /// What else is read.
    read: &'static str,
}

const STEP: Step = Step {
    ty: ElementType::Float32,
    opset: 23,
    written_out: true,
    fixed: false,
    mask: false,
    keys: ["past_k", "k"],
    values: "all_v",
    axis: 2,
    causal: 0,
    nonpad: false,
    past_value: "[b, 2, p, 6]",
    value: "[b, 2, s, 6]",
    read: "y",
};

impl Step {
    fn case(&self) -> Case {
        let code = self.ty.code();
        let dims = |dims: &str| match self.fixed {
            true => dims
                .replace('b', "3")
                .replace('p', "5")
                .replace('s', "2")
                .replace('t', "7"),
            false => dims.to_owned(),
        };
        let mut model = Model::new()
            .opset("", self.opset)
            .input("q", code, &dims("[b, 2, s, 4]"))
            .input("k", code, &dims("[b, 2, s, 4]"))
            .input("v", code, &dims(self.value))
            .input("past_k", code, &dims("[b, 2, p, 4]"))
            .input("past_v", code, &dims(self.past_value))
            .input("given_v", code, "[b, 2, t, 6]")
            .output("y", code, "[...]")
            .output("all_k", code, "[...]")
            .output("all_v", code, "[...]")
            .output("z", code, "[...]")
            .node(node("Concat", &self.keys, &["all_k"]).int("axis", self.axis))
            .node(node("Concat", &["past_v", "v"], &["all_v"]).int("axis", 2))
            .node(node("Neg", &["q"], &["minus"]));
        let mut inputs = vec![
            ("q", typed(self.ty, 1, &[3, 2, 2, 4])),
            ("k", typed(self.ty, 2, &[3, 2, 2, 4])),
            ("v", typed(self.ty, 3, &[3, 2, 2, 6])),
            ("past_k", typed(self.ty, 4, &[3, 2, 5, 4])),
            ("past_v", typed(self.ty, 5, &[3, 2, 5, 6])),
            ("given_v", typed(self.ty, 6, &[3, 2, 7, 6])),
        ];
        let mut attended = vec!["minus", "all_k", self.values];
        if self.mask {
            model = model.input("mask", code, &dims("[b, 1, s, t]"));
            inputs.push(("mask", typed(self.ty, 7, &[3, 1, 2, 7])));
            attended.push("mask");
        }
        if self.nonpad {
            model = model.input("nonpad", ElementType::Int64.code(), "[b]");
            inputs.push(("nonpad", Value::from_slice(&[3], &[7i64, 4, 1]).unwrap()));
            attended.extend(["", "", "", "nonpad"]);
        }
        model = attend(model, self.ty, &attended, self.written_out, self.causal);
        let model = model.node(Node::new("Abs", &[self.read], &["z"]));
        Case::new(model, &inputs, &["y", "all_k", "all_v", "z"])
    }
}

#[test]
fn steps_append_to_a_cache() {
    for ty in TYPES {
        let plain = Step { ty, ..STEP };
        let case = plain.case();
        case.check("kv_append", 1, bound(ty));
        // Neg, Attention and Abs.
        assert_eq!((case.nodes(""), case.nodes("kv_append")), (3, 5));
        let variants = [
            Step {
                fixed: true,
                mask: true,
                ..plain.clone()
            },
            Step {
                read: "all_k",
                axis: -2,
                ..plain.clone()
            },
            // One part of the same length is enough.
            Step {
                value: "[b, 2, r, 6]",
                ..plain.clone()
            },
            Step {
                past_value: "[b, 2, r, 6]",
                ..plain.clone()
            },
        ];
        for variant in variants {
            variant.case().check("kv_append", 1, bound(ty));
        }
        // The arithmetic is that of Attention before and after.
        for opset in [23, 24] {
            for mask in [false, true] {
                let exported = Step {
                    opset,
                    mask,
                    written_out: false,
                    ..plain.clone()
                };
                exported.case().check("kv_append", 1, 0.0);
            }
        }
    }
}

#[test]
fn what_is_nearly_appended_stays() {
    let exported = Step {
        written_out: false,
        opset: 24,
        ..STEP
    };
    let variants = [
        Step {
            keys: ["k", "past_k"],
            value: "[b, 2, r, 6]",
            past_value: "[b, 2, u, 6]",
            ..STEP
        },
        Step {
            values: "given_v",
            ..exported.clone()
        },
        Step {
            value: "[b, 2, r, 6]",
            past_value: "[b, 2, u, 6]",
            ..STEP
        },
        // New before past: the lengths of keys and values would not fit.
        Step {
            keys: ["k", "past_k"],
            ..exported.clone()
        },
        Step {
            causal: 1,
            ..exported.clone()
        },
        Step {
            nonpad: true,
            ..exported.clone()
        },
    ];
    for (index, variant) in variants.iter().enumerate() {
        let case = variant.case();
        assert_eq!(case.fired("kv_append"), 0, "variant {index}");
        case.refuses("kv_append");
    }
}

#[test]
fn only_lengths_are_appended() {
    let ty = ElementType::Float32;
    let mut model = Model::new()
        .opset("", 23)
        .input("q", ty.code(), "[b, 4, s, 4]")
        .output("y", ty.code(), "[...]");
    for name in ["k", "v", "past_k", "past_v"] {
        model = model.input(name, ty.code(), "[b, 2, s, 4]");
    }
    let model = model
        .node(node("Concat", &["past_k", "k"], &["all_k"]).int("axis", 1))
        .node(node("Concat", &["past_v", "v"], &["all_v"]).int("axis", 1));
    let model = attend(model, ty, &["q", "all_k", "all_v"], true, 0);
    let value = |seed| typed(ty, seed, &[3, 2, 5, 4]);
    let inputs = [
        ("q", typed(ty, 1, &[3, 4, 5, 4])),
        ("k", value(2)),
        ("v", value(3)),
        ("past_k", value(4)),
        ("past_v", value(5)),
    ];
    let case = Case::new(model, &inputs, &["y"]);
    assert_eq!(case.fired("attention"), 1);
    case.refuses("kv_append");
}

/// The query is computed from the keys that Attention would give.
#[test]
fn a_cache_that_is_needed_before_stays() {
    let ty = ElementType::Float32;
    let mut model = Model::new()
        .opset("", 23)
        .input("q", ty.code(), "[b, 2, s, 4]")
        .output("y", ty.code(), "[...]");
    for (name, dims) in [
        ("k", "[b, 2, s, 4]"),
        ("v", "[b, 2, s, 4]"),
        ("past_k", "[b, 2, p, 4]"),
        ("past_v", "[b, 2, p, 4]"),
    ] {
        model = model.input(name, ty.code(), dims);
    }
    let model = model
        .node(node("Concat", &["past_k", "k"], &["all_k"]).int("axis", 2))
        .node(node("Concat", &["past_v", "v"], &["all_v"]).int("axis", 2))
        .node(node("ReduceMax", &["all_k"], &["max"]))
        .node(node("Div", &["q", "max"], &["query"]));
    let model = attend(model, ty, &["query", "all_k", "all_v"], false, 0);
    let inputs = [
        ("q", typed(ty, 1, &[3, 2, 2, 4])),
        ("k", typed(ty, 2, &[3, 2, 2, 4])),
        ("v", typed(ty, 3, &[3, 2, 2, 4])),
        ("past_k", typed(ty, 4, &[3, 2, 5, 4])),
        ("past_v", typed(ty, 5, &[3, 2, 5, 4])),
    ];
    Case::new(model, &inputs, &["y"]).refuses("kv_append");
}

/// How heads of keys and values are repeated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Expand to a constant shape.
    Ones,
    /// Expand to sizes from Shape.
    Sizes,
    Tile,
    /// Heads one after the other, over and over.
    OtherAxis,
    /// A length that may be enlarged from 1.
    OtherSize,
}

/// What varies in attention with repeated heads, and what does not fit.
#[derive(Clone)]
struct Grouped {
    ty: ElementType,
    how: How,
    written_out: bool,
    cached: bool,
    /// Unsqueeze, or Reshape.
    by_reshape: bool,
    values: &'static str,
    read: &'static str,
}

const GROUPED: Grouped = Grouped {
    ty: ElementType::Float32,
    how: How::Sizes,
    written_out: true,
    cached: false,
    by_reshape: false,
    values: "v_heads",
    read: "y",
};

impl Grouped {
    fn model(&self) -> Model {
        let ty = self.ty;
        let (axis, counts) = match self.how {
            How::OtherAxis => (1, [1, 3, 1, 1, 1]),
            _ => (2, [1, 1, 3, 1, 1]),
        };
        let mut model = Model::new()
            .opset("", 23)
            .input("q", ty.code(), "[b, 6, s, 4]")
            .input("given_v", ty.code(), "[b, 6, t, 6]")
            .input("n", ElementType::Int64.code(), "[1]")
            .output("y", ty.code(), "[b, 6, s, 6]")
            .output("z", ty.code(), "[...]")
            .initializer(Tensor::ints("axis", &[1], &[axis]))
            .initializer(Tensor::ints("counts", &[5], &counts))
            .initializer(Tensor::ints("first", &[1], &[0]))
            .initializer(Tensor::ints("zero", &[], &[0]))
            .initializer(Tensor::ints("two", &[], &[2]))
            .initializer(Tensor::ints("heads", &[1], &[2]))
            .initializer(Tensor::ints("times", &[1], &[3]))
            .initializer(Tensor::ints("all", &[1], &[6]));
        for (x, size) in [("k", 4), ("v", 6)] {
            let name = |stage: &str| format!("{x}_{stage}");
            let (past, single, wide, heads) = (name("past"), name("single"), name("wide"), name("heads"));
            let (shape, sizes, joined, size_of) =
                (name("shape"), name("sizes"), name("joined"), name("size"));
            let [batch, length, batch1, length1] = ["batch", "length", "batch1", "length1"].map(name);
            let (with_one, present) = (name("with_one"), name("present"));
            model = model.input(x, ty.code(), &format!("[b, 2, t, {size}]"));
            let mut from = x;
            if self.cached {
                model = model
                    .input(&past, ty.code(), &format!("[b, 2, p, {size}]"))
                    .output(&present, ty.code(), "[...]")
                    .node(node("Concat", &[&past, x], &[&present]).int("axis", 2));
                from = &present;
            }
            let last = match self.how {
                How::OtherSize => "n",
                _ => &length1,
            };
            model = model
                .initializer(Tensor::ints(&size_of, &[1], &[size]))
                .initializer(Tensor::ints(&joined, &[4], &[0, 6, -1, size]))
                .initializer(Tensor::ints(&with_one, &[5], &[0, 2, 1, -1, size]))
                .node(node("Shape", &[from], &[&shape]))
                .node(node("Gather", &[&shape, "zero"], &[&batch]))
                .node(node("Gather", &[&shape, "two"], &[&length]))
                .node(node("Unsqueeze", &[&batch, "first"], &[&batch1]))
                .node(node("Unsqueeze", &[&length, "first"], &[&length1]))
                .node(node("Concat", &[&batch1, "heads", "times", last, &size_of], &[&sizes]).int("axis", 0))
                .node(match self.by_reshape {
                    true => node("Reshape", &[from, &with_one], &[&single]),
                    false => node("Unsqueeze", &[from, "axis"], &[&single]),
                })
                .node(match self.how {
                    How::Sizes | How::OtherSize => node("Expand", &[&single, &sizes], &[&wide]),
                    How::Tile => node("Tile", &[&single, "counts"], &[&wide]),
                    How::Ones | How::OtherAxis => node("Expand", &[&single, "counts"], &[&wide]),
                })
                .node(node("Reshape", &[&wide, &joined], &[&heads]));
        }
        attend(model, ty, &["q", "k_heads", self.values], self.written_out, 0).node(node(
            "Abs",
            &[self.read],
            &["z"],
        ))
    }

    fn case(&self) -> Case {
        let ty = self.ty;
        let inputs = [
            ("q", typed(ty, 1, &[3, 6, 2, 4])),
            ("k", typed(ty, 2, &[3, 2, 5, 4])),
            ("v", typed(ty, 3, &[3, 2, 5, 6])),
            ("given_v", typed(ty, 4, &[3, 6, 5, 6])),
            ("n", Value::from_slice(&[1], &[5i64]).unwrap()),
        ];
        Case::new(self.model(), &inputs, &["y", "z"])
    }
}

#[test]
fn repeated_heads_are_shared() {
    for ty in TYPES {
        for how in [How::Ones, How::Sizes, How::Tile] {
            for by_reshape in [false, true] {
                let plain = Grouped {
                    ty,
                    how,
                    by_reshape,
                    ..GROUPED
                };
                let case = plain.case();
                case.check("repeat_kv", 1, bound(ty));
                // Attention and Abs.
                assert_eq!(case.nodes(""), 2, "{how:?}");
                let exported = Grouped {
                    written_out: false,
                    ..plain
                };
                exported.case().check("repeat_kv", 1, 0.0);
            }
        }
    }
}

#[test]
fn what_is_nearly_repeated_heads_stays() {
    let variants = [
        Grouped {
            how: How::OtherAxis,
            ..GROUPED
        },
        Grouped {
            how: How::OtherSize,
            ..GROUPED
        },
        Grouped {
            values: "given_v",
            ..GROUPED
        },
        Grouped {
            read: "k_wide",
            ..GROUPED
        },
        Grouped {
            read: "k_heads",
            ..GROUPED
        },
        Grouped {
            read: "v_heads",
            ..GROUPED
        },
    ];
    for (index, variant) in variants.iter().enumerate() {
        for written_out in [false, true] {
            let variant = Grouped {
                written_out,
                ..variant.clone()
            };
            let case = variant.case();
            assert_eq!(case.fired("repeat_kv"), 0, "variant {index}, {written_out}");
            case.refuses("repeat_kv");
        }
    }
}

/// Runs steps of these lengths, each on the cache of the one before, and gives all outputs.
fn steps(session: &mut NativeSession, ty: ElementType, lengths: &[usize]) -> Vec<Value> {
    let mut past = [4, 6].map(|size| typed(ty, 0, &[1, 2, 0, size]));
    let mut all = Vec::new();
    for (seed, &length) in (1..).zip(lengths) {
        let q = typed(ty, seed, &[1, 6, length, 4]);
        let k = typed(ty, seed + 10, &[1, 2, length, 4]);
        let v = typed(ty, seed + 20, &[1, 2, length, 6]);
        let given = typed(ty, 0, &[1, 6, length, 6]);
        let n = Value::from_slice(&[1], &[1i64]).unwrap();
        let inputs = [
            ("q", q.view()),
            ("k", k.view()),
            ("v", v.view()),
            ("given_v", given.view()),
            ("n", n.view()),
            ("k_past", past[0].view()),
            ("v_past", past[1].view()),
        ];
        let outputs = session
            .run_tensors(&inputs, &["k_present", "v_present", "y"])
            .unwrap();
        past = [outputs[0].clone(), outputs[1].clone()];
        all.extend(outputs);
    }
    all
}

#[test]
fn caches_of_shared_heads_grow_step_by_step() {
    for ty in TYPES {
        for how in [How::Ones, How::Sizes, How::Tile] {
            let cached = Grouped {
                ty,
                how,
                cached: true,
                ..GROUPED
            };
            let case = Case::new(cached.model(), &[], &[]);
            for pass in ["attention", "repeat_kv", "kv_append"] {
                assert_eq!(case.fired(pass), 1, "{pass}, {how:?}");
            }
            let lengths = [3, 1, 0, 1, 4];
            let found = steps(&mut case.load(""), ty, &lengths);
            assert_eq!(found[12].dims(), [1, 2, 9, 4]);
            for (disabled, bound) in [
                ("kv_append", 0.0),
                ("repeat_kv,kv_append", 0.0),
                ("all", bound(ty)),
            ] {
                let expected = steps(&mut case.load(disabled), ty, &lengths);
                for (found, expected) in found.iter().zip(&expected) {
                    assert_close(disabled, found, expected, bound);
                }
            }
        }
    }
}
