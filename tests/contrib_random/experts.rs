//! MoE and QMoE.

use oxpipe_test_support::onnx_writer::UINT8;
use proptest::prelude::*;

use crate::harness::{Case, Float, Numbers, Value, check_all, compare};

#[derive(Clone, Debug)]
struct Experts {
    tokens: Vec<usize>,
    experts: usize,
    chosen: usize,
    hidden: usize,
    inter: usize,
    activation: &'static str,
    /// alpha, beta and limit
    swiglu: Option<(f32, f32, f32)>,
    normalize: bool,
    biases: [bool; 2],
    bits: usize,
    block_size: Option<usize>,
    zero_points: bool,
    /// Whether quantised weights are.
    constant: bool,
    half: Float,
    seed: u64,
}

fn experts() -> impl Strategy<Value = Experts> {
    let tokens = prop::sample::select(vec![vec![1], vec![7], vec![2, 3], vec![1, 1]]);
    let sizes = (1usize..7, 1usize..5, 1usize..4, 1usize..4);
    let activation = prop::sample::select(vec!["relu", "gelu", "silu", "identity", "swiglu", "swiglu"]);
    let swiglu = prop::option::of(Just((1.702f32, 1.0f32, 0.7f32)));
    let quantized = (
        prop::sample::select(vec![2usize, 4, 8]),
        prop::option::of(prop::sample::select(vec![16usize, 32])),
        any::<bool>(),
    );
    let half = prop::sample::select(vec![Float::F16, Float::Bf16]);
    let rest = (any::<[bool; 4]>(), quantized, half, any::<u64>());
    (tokens, sizes, activation, swiglu, rest).prop_map(|(tokens, sizes, activation, swiglu, rest)| Experts {
        tokens,
        experts: sizes.0,
        chosen: sizes.1.min(sizes.0),
        hidden: 32 * sizes.2,
        // Blocks are whole; rows need not fill a panel.
        inter: 32 * sizes.3 - if rest.1.1.is_some() { 0 } else { 8 },
        activation,
        swiglu: swiglu.filter(|_| activation == "swiglu"),
        normalize: rest.0[0],
        biases: [rest.0[1], rest.0[2]],
        bits: rest.1.0,
        block_size: rest.1.1,
        zero_points: rest.1.2,
        constant: rest.0[3],
        half: rest.2,
        seed: rest.3,
    })
}

/// Weights as QMoE has them, and what they stand for.
struct Weights {
    packed: Value,
    scales: Value,
    zero_points: Value,
    plain: Value,
}

impl Experts {
    fn fused(&self) -> usize {
        if self.activation == "swiglu" { 2 } else { 1 }
    }

    fn weights(&self, numbers: &mut Numbers, rows: usize, depth: usize) -> Weights {
        let (e, bits) = (self.experts, self.bits);
        let block_size = self.block_size.unwrap_or(depth);
        let blocks = depth / block_size;
        let row_bytes = depth * bits / 8;
        let data = numbers.bytes(e * rows * row_bytes);
        let middle = (1 << (bits - 1)) as f32;
        let largest = 0.2 / middle;
        let scales: Vec<f32> = numbers
            .floats(e * rows * blocks, largest)
            .iter()
            .map(|x| self.half_of(x.abs() + largest / 4.0))
            .collect();
        let per_row = self.block_size.is_none();
        let point_bytes = if per_row {
            (rows * bits).div_ceil(8)
        } else {
            (blocks * bits).div_ceil(8)
        };
        let point_rows = if per_row { e } else { e * rows };
        let points = numbers.bytes(point_rows * point_bytes);
        let element = |bytes: &[u8], i: usize| (bytes[i * bits / 8] >> (i * bits % 8)) & (255 >> (8 - bits));
        let mut plain = Vec::new();
        for row in 0..e * rows {
            for i in 0..depth {
                let block = i / block_size;
                let point = match (self.zero_points, per_row) {
                    (false, _) => middle,
                    (true, true) => element(&points[row / rows * point_bytes..], row % rows).into(),
                    (true, false) => element(&points[row * point_bytes..], block).into(),
                };
                let q = f32::from(element(&data[row * row_bytes..], i));
                plain.push((q - point) * scales[row * blocks + block]);
            }
        }
        let scale_dims: &[usize] = if per_row { &[e, rows] } else { &[e, rows, blocks] };
        let point_dims: &[usize] = if per_row {
            &[e, point_bytes]
        } else {
            &[e, rows, point_bytes]
        };
        let given = |value: Value| if self.constant { value.constant() } else { value };
        Weights {
            packed: given(Value::raw(UINT8, &[e, rows, row_bytes], data)),
            scales: given(Value::floats(scale_dims, scales)),
            zero_points: given(Value::raw(UINT8, point_dims, points)),
            plain: Value::floats(&[e, rows, depth], plain).constant(),
        }
    }

    /// Scales are exact in the 16-bit type, so that the plain weights are in f32.
    fn half_of(&self, x: f32) -> f32 {
        match self.half {
            Float::F16 => half::f16::from_f32(x).to_f32(),
            _ => half::bf16::from_f32(x).to_f32(),
        }
    }

    fn attributes(&self, case: Case, normalize: bool) -> Case {
        let case = case
            .int("k", self.chosen as i64)
            .int("normalize_routing_weights", normalize)
            .string("activation_type", self.activation)
            .output();
        match self.swiglu {
            Some((alpha, beta, limit)) => case
                .float("activation_alpha", alpha)
                .float("activation_beta", beta)
                .float("swiglu_limit", limit),
            None => case,
        }
    }

    /// MoE, and QMoE of the same weights, which divides the shares by their sum in any case.
    fn cases(&self, always_normalize: bool) -> (Case, Case) {
        let mut numbers = Numbers::new(self.seed);
        let (e, hidden, inter) = (self.experts, self.hidden, self.inter);
        let tokens: usize = self.tokens.iter().product();
        let dims: Vec<usize> = self.tokens.iter().copied().chain([hidden]).collect();
        let x: Vec<f32> = numbers
            .floats(tokens * hidden, 1.0)
            .iter()
            .map(|&x| self.half_of(x))
            .collect();
        let x = Value::floats(&dims, x);
        let router: Vec<f32> = numbers
            .floats(tokens * e, 2.0)
            .iter()
            .map(|&x| self.half_of(x))
            .collect();
        let router = Value::floats(&[tokens, e], router);
        let rows = self.fused() * inter;
        let first = self.weights(&mut numbers, rows, hidden);
        let second = self.weights(&mut numbers, hidden, inter);
        let mut bias = |used: bool, rows: usize| used.then(|| numbers.value(&[e, rows], 0.5).constant());
        let (first_bias, second_bias) = (bias(self.biases[0], rows), bias(self.biases[1], hidden));
        let plain = Case::new("MoE")
            .input(x.clone())
            .input(router.clone())
            .input(first.plain)
            .input(first_bias.clone())
            .input(second.plain)
            .input(second_bias.clone());
        let fused = i64::from(self.activation == "swiglu");
        let points = |points: Value| self.zero_points.then_some(points);
        let quantized = Case::new("QMoE")
            .input(x)
            .input(router)
            .input(first.packed)
            .input(first.scales)
            .input(first_bias)
            .input(second.packed)
            .input(second.scales)
            .input(second_bias)
            .input(None)
            .input(None)
            .input(None)
            .input(points(first.zero_points))
            .input(points(second.zero_points))
            .int("expert_weight_bits", self.bits as i64)
            .int("block_size", self.block_size.unwrap_or(0) as i64);
        (
            self.attributes(plain, self.normalize || always_normalize)
                .int("swiglu_fusion", fused),
            self.attributes(quantized, self.normalize)
                .int("swiglu_fusion", fused),
        )
    }
}

#[test]
fn moe() {
    check_all(15, 60, experts(), |experts| {
        experts.cases(false).0.check(experts.half)
    });
}

/// Held to ONNX Runtime's MoE of the dequantised weights: its own QMoE quantises activations.
#[test]
fn quantized_moe() {
    check_all(16, 60, experts(), |experts| {
        let (plain, quantized) = experts.cases(true);
        let expected = plain.ort(Float::F32)?;
        compare(&quantized, &quantized.native(Float::F32)?, &expected, 2e-5)?;
        compare(&quantized, &quantized.ort(Float::F32)?, &expected, 0.05)?;
        quantized.check_exactly(experts.half).map(drop)
    });
}

/// ONNX Runtime's CPU refuses a third projection.
#[test]
fn moe_with_a_third_projection() {
    check_all(17, 40, (experts(), any::<bool>()), |(experts, bias)| {
        let mut numbers = Numbers::new(experts.seed);
        let (e, hidden, inter) = (experts.experts, experts.hidden, experts.inter);
        let tokens: usize = experts.tokens.iter().product();
        let dims: Vec<usize> = experts.tokens.iter().copied().chain([hidden]).collect();
        let mut weights = |dims: &[usize], scale: f32| numbers.value(dims, scale);
        let case = Case::new("MoE")
            .input(weights(&dims, 1.0))
            .input(weights(&[tokens, e], 2.0))
            .input(weights(&[e, inter, hidden], 0.2).constant())
            .input(experts.biases[0].then(|| weights(&[e, inter], 0.5).constant()))
            .input(weights(&[e, hidden, inter], 0.2).constant())
            .input(experts.biases[1].then(|| weights(&[e, hidden], 0.5).constant()))
            .input(weights(&[e, inter, hidden], 0.2).constant())
            .input(bias.then(|| weights(&[e, inter], 0.5).constant()));
        let case = experts
            .attributes(case, experts.normalize)
            .int("swiglu_fusion", 0);
        case.check_exactly(Float::F32)?;
        case.check_exactly(experts.half).map(drop)
    });
}
