//! Projections of one value, merged into one product: only where it pays, and the same bits but where
//! few rows of floats are cut into other parts.

use oxpipe::native::element::ElementType;
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node, Tensor, UINT8};

use crate::harness::{Case, floats, numbers, typed};
use crate::typed::{TYPES, constant, node, weights};

const PASS: &str = "merge_projections";
const F32: ElementType = ElementType::Float32;

/// A matrix of numbers whose sums are rounded.
fn matrix(ty: ElementType, seed: u64, name: &str, dims: &[i64]) -> Tensor {
    let count: i64 = dims.iter().product();
    let values: Vec<f64> = numbers(seed, count as usize).into_iter().map(f64::from).collect();
    constant(ty, name, dims, &values)
}

fn matmul(x: &str, weight: &str, y: &str) -> Node {
    node("MatMul", &[x, weight], &[y])
}

/// From `x` to `y` of any dims.
fn model(ty: ElementType, x: &str) -> Model {
    Model::new()
        .opset("com.microsoft", 1)
        .input("x", ty.code(), x)
        .output("y", ty.code(), "[...]")
}

fn case(ty: ElementType, model: Model, dims: &[usize], outputs: &[&str]) -> Case {
    Case::new(model, &[("x", typed(ty, 7, dims))], outputs)
}

/// Projections of x [n, depth] to so many columns each, joined.
fn pair(depth: i64, columns: [i64; 2]) -> Model {
    model(F32, "[n, ?]")
        .initializer(matrix(F32, 1, "wa", &[depth, columns[0]]))
        .initializer(matrix(F32, 2, "wb", &[depth, columns[1]]))
        .node(matmul("x", "wa", "a"))
        .node(matmul("x", "wb", "b"))
        .node(node("Concat", &["b", "a"], &["y"]).int("axis", -1))
}

fn pair_case(depth: i64, columns: [i64; 2], rows: usize) -> Case {
    case(F32, pair(depth, columns), &[rows, depth as usize], &["y"])
}

fn attention_like(ty: ElementType, biased: bool) -> Model {
    let mut model = model(ty, "[2, n, 64]");
    for (seed, (name, columns)) in [("q", 24), ("k", 8), ("v", 8)].into_iter().enumerate() {
        let (weight, bias, product) = (format!("w{name}"), format!("c{name}"), format!("p{name}"));
        model = model.initializer(matrix(ty, seed as u64 + 1, &weight, &[64, columns]));
        if biased {
            model = model
                .initializer(weights(ty, &bias, &[columns]))
                .node(matmul("x", &weight, &product))
                .node(node("Add", &[&product, &bias], &[name]));
        } else {
            model = model.node(matmul("x", &weight, name));
        }
    }
    model
        .initializer(Tensor::ints("three", &[3], &[1, 1, 3]))
        .node(node("Tile", &["k", "three"], &["keys"]))
        .node(node("Sub", &["q", "keys"], &["scores"]))
        .node(node("Concat", &["scores", "v"], &["y"]).int("axis", -1))
}

/// Of matrices that are read in parts, as many as there are columns to share them with.
#[test]
fn few_rows_of_large_matrices() {
    for rows in 1..=6 {
        pair_case(1024, [128, 128], rows).check(PASS, 1, 1e-6);
        pair_case(640, [256, 64], rows).check(PASS, 1, 1e-6);
    }
}

#[test]
fn queries_keys_and_values() {
    for ty in TYPES {
        // Few rows and many: two loops of the product.
        for rows in [1, 2, 5, 37] {
            let plain = case(ty, attention_like(ty, false), &[2, rows, 64], &["y"]);
            plain.check(PASS, 1, 0.0);
            assert_eq!((plain.nodes(""), plain.nodes(PASS)), (5, 6));
            let biased = case(ty, attention_like(ty, true), &[2, rows, 64], &["y"]);
            // Where nothing is fused, a bias of 16 bits is added to what was rounded.
            let bound = match ty {
                ElementType::Float16 => 1.0 / 256.0,
                ElementType::Bfloat16 => 1.0 / 32.0,
                _ => 0.0,
            };
            biased.check(PASS, 1, bound);
            assert_eq!((biased.nodes(""), biased.nodes(PASS)), (5, 6));
            biased.same_on_threads(&[1, 2, 4]);
        }
    }
    case(F32, attention_like(F32, false), &[2, 0, 64], &["y"]).check(PASS, 1, 0.0);
}

#[test]
fn biases_of_rank_two_are_part_of_gemm_instead() {
    let model = model(F32, "[n, 64]")
        .initializer(matrix(F32, 1, "wa", &[64, 8]))
        .initializer(matrix(F32, 2, "wb", &[64, 8]))
        .initializer(weights(F32, "c", &[8]))
        .node(matmul("x", "wa", "p"))
        .node(matmul("x", "wb", "q"))
        .node(node("Add", &["p", "c"], &["a"]))
        .node(node("Add", &["q", "c"], &["b"]))
        .node(node("Concat", &["b", "a"], &["y"]).int("axis", -1));
    let case = case(F32, model, &[3, 64], &["y"]);
    assert_eq!(case.fired("matmul_bias"), 2);
    case.refuses(PASS);
}

#[test]
fn gate_and_up_are_still_swiglu() {
    for ty in TYPES {
        let model = model(ty, "[2, ?, 64]")
            .initializer(matrix(ty, 1, "gate", &[64, 12]))
            .initializer(matrix(ty, 2, "up", &[64, 12]))
            .node(matmul("x", "gate", "g"))
            .node(matmul("x", "up", "u"))
            .node(node("Sigmoid", &["g"], &["s"]))
            .node(node("Mul", &["g", "s"], &["swish"]))
            .node(node("Mul", &["swish", "u"], &["y"]));
        let case = case(ty, model, &[2, 3, 64], &["y"]);
        assert_eq!(case.fired("swiglu"), 1);
        assert_eq!(case.fired(PASS), 1);
        // MatMul and the gate, which reads both halves of a row.
        assert_eq!(case.fired("gated_halves"), 1);
        assert_eq!(case.nodes(""), 2);
        // silu and swiglu round less often for 16 bits, so all is compared without those.
        let bound = match ty {
            ElementType::Float16 => 1.0 / 256.0,
            ElementType::Bfloat16 => 1.0 / 32.0,
            _ => 0.0,
        };
        case.check(PASS, 1, bound);
    }
}

/// Two MatMulNBits of x [2, n, depth], with zero points and biases if it says so.
struct Blocks {
    depth: usize,
    bits: usize,
    sizes: [usize; 2],
    zero_points: [bool; 2],
    biased: bool,
    groups: bool,
    accuracy: [i64; 2],
}

const BLOCKS: Blocks = Blocks {
    depth: 80,
    bits: 4,
    sizes: [32, 32],
    zero_points: [true, true],
    biased: false,
    groups: false,
    accuracy: [0, 0],
};

impl Blocks {
    fn case(&self) -> Case {
        let mut model = model(F32, "[2, n, ?]");
        for (at, (y, columns)) in [("a", 6usize), ("b", 5)].into_iter().enumerate() {
            let size = self.sizes[at];
            let blocks = self.depth.div_ceil(size);
            let bytes = |count: usize, seed: usize| -> Vec<u8> {
                let byte = |i: usize| (i * 89 + seed * 41 + i / 7) as u8;
                (0..count).map(byte).collect()
            };
            let raw = |name: &str, dims: &[usize], seed: usize| {
                let dims_of: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
                Tensor::raw(name, UINT8, &dims_of, &bytes(dims.iter().product(), seed))
            };
            let [weight, scales, points, groups, bias] =
                ["w", "s", "z", "g", "c"].map(|kind| format!("{kind}{y}"));
            model = model
                .initializer(raw(&weight, &[columns, blocks, size / 8 * self.bits], at))
                .initializer(matrix(
                    F32,
                    at as u64 + 5,
                    &scales,
                    &[columns as i64, blocks as i64],
                ));
            let mut inputs = vec!["x", &weight, &scales, "", "", ""];
            if self.zero_points[at] {
                let row = (blocks * self.bits).div_ceil(8);
                model = model.initializer(raw(&points, &[columns, row], at + 3));
                inputs[3] = &points;
            }
            if self.groups {
                let of: Vec<u8> = (0..self.depth)
                    .flat_map(|i| ((i / size) as i32).to_le_bytes())
                    .collect();
                model = model.initializer(Tensor::raw(&groups, 6, &[self.depth as i64], &of));
                inputs[4] = &groups;
            }
            if self.biased {
                model = model.initializer(matrix(F32, at as u64 + 9, &bias, &[columns as i64]));
                inputs[5] = &bias;
            }
            while inputs.last() == Some(&"") {
                inputs.pop();
            }
            model = model.node(
                node("MatMulNBits", &inputs, &[y])
                    .domain("com.microsoft")
                    .int("K", self.depth as i64)
                    .int("N", columns as i64)
                    .int("bits", self.bits as i64)
                    .int("block_size", size as i64)
                    .int("accuracy_level", self.accuracy[at]),
            );
        }
        let model = model.node(node("Concat", &["b", "a"], &["y"]).int("axis", -1));
        case(F32, model, &[2, 3, self.depth], &["y"])
    }
}

#[test]
fn quantised_projections() {
    for bits in [2, 4, 8] {
        for depth in [64, 80] {
            for zero_points in [true, false] {
                // Level 4 is products of integers.
                for (biased, level) in [(true, 0), (false, 0), (true, 4), (false, 4)] {
                    let case = Blocks {
                        depth,
                        bits,
                        zero_points: [zero_points; 2],
                        biased,
                        accuracy: [level; 2],
                        ..BLOCKS
                    }
                    .case();
                    case.check(PASS, 1, 0.0);
                    assert_eq!(case.nodes(""), 3);
                }
            }
        }
    }
}

#[test]
fn quantised_projections_that_differ_stay() {
    let refused = |blocks: Blocks| blocks.case().refuses(PASS);
    refused(Blocks {
        sizes: [32, 16],
        ..BLOCKS
    });
    refused(Blocks {
        zero_points: [true, false],
        ..BLOCKS
    });
    refused(Blocks {
        groups: true,
        ..BLOCKS
    });
    refused(Blocks {
        accuracy: [0, 4],
        ..BLOCKS
    });
    refused(Blocks { depth: 48, ..BLOCKS });
}

#[test]
fn what_cannot_share_a_product_stays() {
    // Another value on the left.
    let left = model(F32, "[n, 64]")
        .initializer(matrix(F32, 1, "wa", &[64, 4]))
        .initializer(matrix(F32, 2, "wb", &[64, 4]))
        .node(node("Abs", &["x"], &["other"]))
        .node(matmul("x", "wa", "a"))
        .node(matmul("other", "wb", "b"))
        .node(node("Concat", &["b", "a"], &["y"]).int("axis", -1));
    case(F32, left, &[3, 64], &["y"]).refuses(PASS);
    // x on the right of one, as large as it is.
    let right = model(F32, "[64, 64]")
        .initializer(matrix(F32, 1, "wa", &[64, 64]))
        .initializer(matrix(F32, 2, "wb", &[64, 64]))
        .node(matmul("x", "wa", "a"))
        .node(matmul("wb", "x", "b"))
        .node(node("Concat", &["b", "a"], &["y"]).int("axis", -1));
    case(F32, right, &[64, 64], &["y"]).refuses(PASS);
    // A weight that is an input.
    let given = model(F32, "[n, 64]")
        .input("wb", FLOAT, "[64, 4]")
        .initializer(matrix(F32, 1, "wa", &[64, 4]))
        .node(matmul("x", "wa", "a"))
        .node(matmul("x", "wb", "b"))
        .node(node("Concat", &["b", "a"], &["y"]).int("axis", -1));
    let inputs = [("x", floats(7, &[3, 64])), ("wb", floats(8, &[64, 4]))];
    Case::new(given, &inputs, &["y"]).refuses(PASS);
    // A weight of three dims: the batch is another.
    let batched = model(F32, "[2, n, 64]")
        .initializer(matrix(F32, 1, "wa", &[64, 4]))
        .initializer(matrix(F32, 2, "wb", &[2, 64, 4]))
        .node(matmul("x", "wa", "a"))
        .node(matmul("x", "wb", "b"))
        .node(node("Concat", &["b", "a"], &["y"]).int("axis", -1));
    case(F32, batched, &[2, 3, 64], &["y"]).refuses(PASS);
    // A weight that something else reads, or both do.
    let shared = pair(64, [4, 4])
        .output("z", FLOAT, "[64, 4]")
        .node(node("Mul", &["wb", "x_scale"], &["z"]))
        .input("x_scale", FLOAT, "[]");
    let inputs = [("x", floats(7, &[3, 64])), ("x_scale", floats(8, &[]))];
    Case::new(shared, &inputs, &["y", "z"]).refuses(PASS);
    let same = model(F32, "[n, 64]")
        .initializer(matrix(F32, 1, "wa", &[64, 4]))
        .node(matmul("x", "wa", "a"))
        .node(matmul("x", "wa", "b"))
        .node(node("Concat", &["b", "a"], &["y"]).int("axis", -1));
    case(F32, same, &[3, 64], &["y"]).refuses(PASS);
}

#[test]
fn those_that_fit_are_merged_around_those_that_do_not() {
    let model = model(F32, "[n, 64]")
        .initializer(matrix(F32, 1, "wa", &[64, 4]))
        .initializer(matrix(F32, 2, "wb", &[64, 5]))
        .initializer(matrix(F32, 3, "wc", &[64, 6]))
        .node(matmul("x", "wa", "a"))
        .node(node("Concat", &["a", "x"], &["ax"]).int("axis", -1))
        .node(node("ReduceSum", &["wb"], &["sum"]))
        .node(matmul("x", "wb", "b"))
        .node(matmul("x", "wc", "c"))
        .node(node("Mul", &["b", "sum"], &["scaled"]))
        .node(node("Concat", &["c", "scaled", "ax"], &["y"]).int("axis", -1));
    // The sum is a constant, so it no longer reads the weight.
    let merged = case(F32, model, &[3, 64], &["y"]);
    merged.check(PASS, 1, 0.0);
}

#[test]
fn a_value_that_very_many_read_is_left_alone() {
    let many = |count: usize| {
        let names: Vec<String> = (0..count).map(|i| format!("p{i}")).collect();
        let mut model = model(F32, "[n, 64]");
        for (i, name) in names.iter().enumerate() {
            let weight = format!("w{i}");
            model = model
                .initializer(matrix(F32, i as u64 + 1, &weight, &[64, 2]))
                .node(matmul("x", &weight, name));
        }
        let mut joined: Vec<&str> = names.iter().map(String::as_str).collect();
        joined.reverse();
        let model = model.node(node("Concat", &joined, &["y"]).int("axis", -1));
        case(F32, model, &[3, 64], &["y"])
    };
    many(64).check(PASS, 1, 0.0);
    many(65).refuses(PASS);
}

#[test]
fn only_small_projections_are_merged() {
    // Columns that the Split would copy: 1638 for the one product that is saved.
    pair_case(64, [819, 819], 1).check(PASS, 1, 0.0);
    pair_case(64, [819, 820], 1).refuses(PASS);
    // Bytes of weights: 1 MiB.
    pair_case(1024, [128, 128], 1).check(PASS, 1, 0.0);
    pair_case(1024, [128, 129], 1).refuses(PASS);
    // Products that cost little more than the copy.
    pair_case(63, [4, 4], 3).refuses(PASS);
    pair_case(64, [4, 4], 3).check(PASS, 1, 0.0);
}

#[test]
fn outputs_that_may_be_cut_to_their_last_row_stay_products() {
    let outputs = |dims: &str, after: &[(&str, &str)], read: bool| {
        let mut model = model(F32, dims)
            .output("z", FLOAT, "[...]")
            .initializer(matrix(F32, 1, "wa", &[64, 4]))
            .initializer(matrix(F32, 2, "wb", &[64, 4]));
        let names = if after.is_empty() { ["y", "z"] } else { ["a", "b"] };
        model = model
            .node(matmul("x", "wa", names[0]))
            .node(matmul("x", "wb", names[1]));
        for (from, to) in after {
            model = model.node(node("Neg", &[from], &[to]));
        }
        if read {
            model = model
                .output("sum", FLOAT, "[...]")
                .node(node("Mul", &["y", "z"], &["sum"]));
        }
        model
    };
    let negated = [("a", "y"), ("b", "z")];
    let names = &["y", "z"][..];
    for after in [&negated[..], &[]] {
        case(F32, outputs("[2, n, 64]", after, false), &[2, 3, 64], names).refuses(PASS);
        // Of one row there is nothing to cut.
        case(F32, outputs("[2, 1, 64]", after, false), &[2, 1, 64], names).check(PASS, 1, 0.0);
    }
    // An output that is read in whole.
    let read = outputs("[2, n, 64]", &[], true);
    case(F32, read, &[2, 3, 64], &["y", "z", "sum"]).check(PASS, 1, 0.0);
}
