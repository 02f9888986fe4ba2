//! The fused forms of MatMul, Gemm, Conv, Gelu and of embeddings.

use oxpipe_test_support::onnx_writer::INT32;
use proptest::prelude::*;

use crate::harness::{Case, Float, Numbers, Value, check_all};

fn halves() -> impl Strategy<Value = Float> {
    prop::sample::select(vec![Float::F16, Float::Bf16])
}

#[derive(Clone, Debug)]
struct MatMul {
    batch: Vec<usize>,
    /// Whether an operand has the batch dims, all of them or none.
    a_batch: bool,
    b_batch: bool,
    sizes: (usize, usize, usize),
    trans: [bool; 4],
    alpha: f32,
    half: Float,
    seed: u64,
}

fn matmul() -> impl Strategy<Value = MatMul> {
    (
        prop::collection::vec(1usize..4, 0..3),
        any::<(bool, bool)>(),
        (1usize..9, 1usize..20, 1usize..12),
        any::<[bool; 4]>(),
        prop::sample::select(vec![1.0f32, 0.125, -0.7]),
        halves(),
        any::<u64>(),
    )
        .prop_map(
            |(batch, (a_batch, b_batch), sizes, trans, alpha, half, seed)| MatMul {
                batch,
                a_batch,
                b_batch,
                sizes,
                trans,
                alpha,
                half,
                seed,
            },
        )
}

impl MatMul {
    /// Dims of an operand as the node has it, before it is transposed.
    fn stored(&self, batch: bool, rows: usize, columns: usize, last: bool, first: bool) -> Vec<usize> {
        let batch = if batch { self.batch.as_slice() } else { &[] };
        let (rows, columns) = if last { (columns, rows) } else { (rows, columns) };
        match first && !batch.is_empty() {
            true => [&[rows], batch, &[columns]].concat(),
            false => [batch, &[rows, columns]].concat(),
        }
    }

    fn case(&self) -> Case {
        let mut numbers = Numbers::new(self.seed);
        let (m, k, n) = self.sizes;
        let [a_last, b_last, mut a_first, mut b_first] = self.trans;
        if self.batch.is_empty() || !self.a_batch || !self.b_batch {
            // ONNX Runtime asks for operands of one rank, 3 or more.
            (a_first, b_first) = (false, false);
        }
        let a = self.stored(self.a_batch, m, k, a_last, a_first);
        let b = self.stored(self.b_batch, k, n, b_last, b_first);
        Case::new("FusedMatMul")
            .input(numbers.value(&a, 1.0))
            .input(numbers.value(&b, 1.0))
            .int("transA", a_last)
            .int("transB", b_last)
            .int("transBatchA", a_first)
            .int("transBatchB", b_first)
            .float("alpha", self.alpha)
            .output()
    }
}

#[test]
fn fused_matmul() {
    check_all(10, 150, matmul(), |matmul| matmul.case().check(matmul.half));
}

const ACTIVATIONS: [&str; 6] = ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", ""];

#[test]
fn fused_gemm() {
    let gemm = (
        (1usize..6, 1usize..12, 1usize..9),
        any::<[bool; 2]>(),
        prop::option::of(0usize..4),
        prop::sample::select(ACTIVATIONS[..5].to_vec()),
        halves(),
        any::<u64>(),
    );
    check_all(11, 80, gemm, |((m, k, n), [a, b], c, activation, half, seed)| {
        let mut numbers = Numbers::new(seed);
        let dims = [vec![m, n], vec![n], vec![m, 1], vec![1]];
        let mut case = Case::new("FusedGemm")
            .input(numbers.value(&if a { [k, m] } else { [m, k] }, 1.0))
            .input(numbers.value(&if b { [n, k] } else { [k, n] }, 1.0))
            .input(c.map(|c| numbers.value(&dims[c], 1.0)))
            .int("transA", a)
            .int("transB", b)
            .float("alpha", 0.75)
            .float("beta", -0.5)
            .string("activation", activation)
            .output();
        // ONNX Runtime has no defaults for these.
        if ["LeakyRelu", "HardSigmoid"].contains(&activation) {
            case = case.float("activation_alpha", 0.3);
        }
        if activation == "HardSigmoid" {
            case = case.float("activation_beta", 0.4);
        }
        case.check(half)
    });
}

/// One element of a 16-bit type is as far off as the sum it comes from.
#[test]
fn fused_conv() {
    let conv = (
        (1usize..3, 1usize..4, 1usize..4, 3usize..8, 1usize..4),
        any::<[bool; 2]>(),
        prop::sample::select(ACTIVATIONS.to_vec()),
        any::<bool>(),
        halves(),
        any::<u64>(),
    );
    check_all(
        12,
        80,
        conv,
        |(sizes, [bias, addend], activation, clip, half, seed)| {
            let (batch, channels, outputs, size, kernel) = sizes;
            let mut numbers = Numbers::new(seed);
            let out = size + 2 - kernel + 1;
            let activation = if clip && activation.is_empty() {
                "Clip"
            } else {
                activation
            };
            let params: &[f32] = match activation {
                "LeakyRelu" => &[0.3],
                "HardSigmoid" => &[0.3, 0.4],
                "Clip" => &[-0.4, 0.6],
                _ => &[],
            };
            let mut case = Case::new("FusedConv")
                .input(numbers.value(&[batch, channels, size, size], 1.0))
                .input(
                    numbers
                        .value(&[outputs, channels, kernel, kernel], 0.5)
                        .constant(),
                )
                .input(bias.then(|| numbers.value(&[outputs], 1.0).constant()))
                .input(addend.then(|| numbers.value(&[batch, outputs, out, out], 1.0)))
                .ints("kernel_shape", &[kernel as i64; 2])
                .ints("pads", &[1; 4])
                .output();
            if !activation.is_empty() {
                case = case.string("activation", activation);
            }
            if !params.is_empty() {
                case = case.floats("activation_params", params);
            }
            case.check(half)
        },
    );
}

#[test]
fn gelu_in_its_forms() {
    let gelu = (
        prop::sample::select(vec!["BiasGelu", "FastGelu", "Gelu", "QuickGelu"]),
        prop::collection::vec(1usize..4, 0..3),
        // Enough that the largest is not where 1 + tanh cancels.
        8usize..20,
        any::<bool>(),
        halves(),
        any::<u64>(),
    );
    check_all(13, 120, gelu, |(op_type, mut dims, last, flag, half, seed)| {
        let mut numbers = Numbers::new(seed);
        dims.push(last);
        let mut case = Case::new(op_type).input(numbers.value(&dims, 4.0));
        if op_type == "BiasGelu" || op_type == "FastGelu" && flag {
            case = case.input(numbers.value(&[last], 1.0));
        }
        if op_type == "QuickGelu" && flag {
            case = case.float("alpha", 1.25);
        }
        case.output().check(half)
    });
}

#[test]
fn embed_layer_normalization() {
    let embed = (
        (1usize..4, 1usize..6, 2usize..9),
        any::<[bool; 4]>(),
        prop::option::of(any::<bool>()),
        halves(),
        any::<u64>(),
    );
    check_all(14, 60, embed, |((b, s, hidden), flags, positions, half, seed)| {
        let [segments, mask, sum, epsilon] = flags;
        let mut numbers = Numbers::new(seed);
        let mut ids = |dims: [usize; 2], rows: usize| {
            let ids: Vec<i32> = (0..dims[0] * dims[1])
                .map(|_| numbers.below(rows) as i32)
                .collect();
            Value::i32s(&dims, &ids)
        };
        let input_ids = ids([b, s], 11);
        let segment_ids = segments.then(|| ids([b, s], 2));
        let mask = mask.then(|| ids([b, s], 2));
        let position_ids = positions.map(|one| ids([if one { 1 } else { b }, s], 7));
        let mut case = Case::new("EmbedLayerNormalization")
            .input(input_ids)
            .input(segment_ids)
            .input(numbers.value(&[11, hidden], 1.0))
            .input(numbers.value(&[7, hidden], 1.0))
            .input(segments.then(|| numbers.value(&[2, hidden], 1.0)))
            .input(numbers.value(&[hidden], 1.0))
            .input(numbers.value(&[hidden], 1.0))
            .input(mask)
            .input(position_ids)
            .output()
            .output_of(INT32)
            .output_if(sum);
        if epsilon {
            case = case.float("epsilon", 1e-3);
        }
        case.check(half)
    });
}
