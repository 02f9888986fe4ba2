//! What stands between the layers: gates, branches, fused biases, norms of groups.

use oxpipe_test_support::onnx_writer::{FLOAT, INT32};
use proptest::prelude::*;

use crate::harness::{Case, Float, Found, Numbers, Value, check_all, compare};

fn halves() -> impl Strategy<Value = Float> {
    prop::sample::select(vec![Float::F16, Float::Bf16])
}

fn rows() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..4, 1..3)
}

fn f32s(dims: &[usize], values: Vec<f32>) -> Value {
    Value::raw(FLOAT, dims, values.iter().flat_map(|x| x.to_le_bytes()).collect())
}

#[test]
fn gates() {
    let cases = (
        rows(),
        2usize..9,
        0usize..4,
        any::<[bool; 2]>(),
        halves(),
        any::<u64>(),
    );
    check_all(60, 160, cases, |(rows, width, which, [a, b], half, seed)| {
        let mut numbers = Numbers::new(seed);
        let dims = [&rows[..], &[width]].concat();
        let gate = [&rows[..], &[1]].concat();
        let case = match which {
            0 => Case::new("GatedAdd")
                .input(numbers.value(&dims, 1.0))
                .input(numbers.value(&dims, 1.0))
                .input(numbers.value(&gate, 1.0))
                .output(),
            1 => {
                // Two heads in a row.
                let scale = if a { width } else { 2 * width };
                let dims = [&rows[..], &[2 * width]].concat();
                Case::new("GatedRMSNorm")
                    .string("activation", if b { "silu" } else { "sigmoid" })
                    .float("epsilon", 1e-3)
                    .input(numbers.value(&dims, 1.0))
                    .input(numbers.value(&[scale], 1.0))
                    .input(numbers.value(&dims, 3.0))
                    .output()
            }
            2 => Case::new("ScaledSiLU")
                .float("alpha", 1.5)
                .input(numbers.value(&dims, 2.0))
                .input(a.then(|| f32s(&[], vec![0.75])))
                .output(),
            _ => {
                let dims = [&[2], &dims[..]].concat();
                let dims = &dims[dims.len() - 3..];
                let case = Case::new("LinearAttentionGate")
                    .input(numbers.value(dims, 2.0))
                    .input(f32s(&[width], numbers.floats(width, 1.0)))
                    .input(f32s(&[width], numbers.floats(width, 1.0)))
                    .input(a.then(|| numbers.value(dims, 2.0)))
                    .output();
                if a { case.output() } else { case }
            }
        };
        // In f16 z and its sigmoid are rounded, which the comparison with f32 does not know.
        let in_ort = half == Float::F16;
        if which == 2 {
            case.check(Float::F32)?;
            return match in_ort {
                true => compare(&case, &case.native(half)?, &case.ort(half)?, 1e-3),
                false => Ok(()),
            };
        }
        if which == 0 {
            case.check(Float::F32)?;
            return match in_ort {
                true => compare(&case, &case.native(half)?, &case.ort(half)?, 0.0),
                false => Ok(()),
            };
        }
        case.check(half)
    });
}

#[test]
fn branches() {
    let cases = (
        (rows(), 1usize..4, 1usize..6),
        0usize..3,
        any::<[bool; 3]>(),
        halves(),
        any::<u64>(),
    );
    check_all(
        61,
        160,
        cases,
        |((rows, c, h), which, [flat, full, other], half, seed)| {
            let mut numbers = Numbers::new(seed);
            let grouped = [&rows[..], &[c, h]].concat();
            let flattened = [&rows[..], &[c * h]].concat();
            let dims = if flat { &flattened } else { &grouped };
            let gates = match (full, other) {
                (true, _) => grouped.clone(),
                (false, true) => [&rows[..], &[c]].concat(),
                (false, false) => [&rows[..], &[c, 1]].concat(),
            };
            let case = match which {
                0 => {
                    let scale = match (full, other) {
                        (true, true) => vec![c * h],
                        (true, false) => vec![c, h],
                        _ => vec![h],
                    };
                    let scale = (full || other).then(|| numbers.value(&scale, 1.0));
                    Case::new("BranchwiseRMSNorm")
                        .input(numbers.value(dims, 1.0))
                        .input(scale)
                }
                1 => Case::new("HyperConnectionPreMix")
                    .float("reduction_scale", 0.5)
                    .input(numbers.value(dims, 1.0))
                    .input(numbers.value(&gates, 1.0)),
                _ => Case::new("HyperConnectionPostMix")
                    .input(numbers.value(dims, 1.0))
                    .input(numbers.value(&[&rows[..], &[h]].concat(), 1.0))
                    .input(numbers.value(&gates, 1.0))
                    .input(other.then(|| numbers.value(&[&rows[..], &[c, c]].concat(), 1.0))),
            };
            let case = if flat {
                case.int("num_branches", c as i64)
            } else {
                case
            };
            case.output().check(half)
        },
    );
}

#[test]
fn multimodal_rotary() {
    let cases = (
        (1usize..3, 1usize..4, 1usize..4),
        (0usize..4, 0usize..4, 1usize..4),
        any::<[bool; 4]>(),
        any::<u64>(),
    );
    check_all(
        62,
        120,
        cases,
        |((batch, heads, length), (w, h, t), flags, seed)| {
            let [interleaved, layout, four, partial] = flags;
            let mut numbers = Numbers::new(seed);
            // In the interleaved layout each third pair has to be there.
            let (t, h, w) = if layout { (h.max(w) + t, h, w) } else { (t, h, w) };
            let half = t + h + w;
            let size = 2 * half + if partial { 2 } else { 0 };
            let dims = if four {
                vec![batch, heads, length, size]
            } else {
                vec![batch, length, heads * size]
            };
            let positions: Vec<i64> = (0..3 * batch * length).map(|_| numbers.below(7) as i64).collect();
            let mut case = Case::new("MRotaryEmbedding")
                .input(numbers.value(&dims, 1.0))
                .input(Value::i64s(&[3, batch, length], &positions))
                .input(numbers.value(&[7, half], 1.0))
                .input(numbers.value(&[7, half], 1.0))
                .ints("mrope_section", &[t as i64, h as i64, w as i64])
                .int("mrope_layout", layout)
                .int("interleaved", interleaved)
                .output();
            case = case.int("num_heads", heads as i64);
            if partial {
                case = case.int("rotary_embedding_dim", 2 * half as i64);
            }
            case.check(Float::F16)
        },
    );
}

fn gelu(x: f64) -> f64 {
    // Abramowitz and Stegun's approximation has not the digits; a series of erf has.
    let z = x / std::f64::consts::SQRT_2;
    let mut term = z;
    let mut sum = z;
    for n in 1..200 {
        term *= -z * z / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    x / 2.0 * (1.0 + sum * 2.0 / std::f64::consts::PI.sqrt())
}

/// ONNX Runtime's CPU has none of these: against their definitions in f64.
#[test]
fn fused_biases() {
    let cases = (
        (1usize..4, 1usize..5, 1usize..5),
        0usize..5,
        any::<bool>(),
        any::<u64>(),
    );
    check_all(63, 120, cases, |((n, s, half), which, flag, seed)| {
        let mut numbers = Numbers::new(seed);
        let d = 2 * half;
        let (x, skip) = (numbers.floats(n * s * d, 2.0), numbers.floats(n * s * d, 2.0));
        let bias = numbers.floats(d, 1.0);
        let sum = |i: usize| f64::from(x[i]) + f64::from(bias[i % d]);
        let dims = [n, s, d];
        let (case, dims, values): (Case, Vec<usize>, Vec<f64>) = match which {
            0 => (
                Case::new("BiasAdd")
                    .input(Value::floats(&dims, x.clone()))
                    .input(Value::floats(&[d], bias.clone()))
                    .input(Value::floats(&dims, skip.clone())),
                dims.to_vec(),
                (0..n * s * d).map(|i| sum(i) + f64::from(skip[i])).collect(),
            ),
            1 => (
                Case::new("BiasSplitGelu")
                    .input(Value::floats(&dims, x.clone()))
                    .input(Value::floats(&[d], bias.clone())),
                vec![n, s, half],
                (0..n * s * half)
                    .map(|i| {
                        let at = i / half * d + i % half;
                        sum(at) * gelu(sum(at + half))
                    })
                    .collect(),
            ),
            2 => {
                let bias = numbers.floats(s * d, 2.0);
                let row = |i: usize| {
                    if flag { i % (s * d) } else { i % d }
                };
                let e = |i: usize| (f64::from(x[i]) + f64::from(bias[row(i)])).exp();
                let values = (0..n * s * d)
                    .map(|i| e(i) / (0..d).map(|j| e(i / d * d + j)).sum::<f64>())
                    .collect();
                let bias_dims = if flag { vec![1, s, d] } else { vec![1, 1, d] };
                let count = bias_dims.iter().product();
                (
                    Case::new("BiasSoftmax")
                        .int("axis", 2)
                        .int("is_inner_broadcast", 0)
                        .input(Value::floats(&dims, x.clone()))
                        .input(Value::floats(&bias_dims, bias[..count].to_vec())),
                    dims.to_vec(),
                    values,
                )
            }
            3 | 4 => {
                let weights = numbers.floats(d * 3, 1.0);
                let product = |i: usize| {
                    let terms =
                        (0..d).map(|k| f64::from(x[i / 3 * d + k]) * f64::from(weights[k * 3 + i % 3]));
                    terms.sum::<f64>()
                };
                let three = numbers.floats(3, 1.0);
                let tanh_gelu = |x: f64| {
                    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                    x / 2.0 * (1.0 + inner.tanh())
                };
                let case = Case::new(if which == 3 {
                    "GemmFastGelu"
                } else {
                    "FusedMatMulActivation"
                })
                .input(Value::floats(&dims, x.clone()))
                .input(Value::floats(&[d, 3], weights.clone()));
                let case = match which {
                    3 => case.input(flag.then(|| Value::floats(&[3], three.clone()))),
                    _ => case
                        .string("activation", "LeakyRelu")
                        .float("activation_alpha", 0.25)
                        .float("alpha", 0.5),
                };
                let value = |i: usize| {
                    let product = product(i);
                    match which {
                        3 => tanh_gelu(product + if flag { f64::from(three[i % 3]) } else { 0.0 }),
                        _ => 0.5 * product * if product < 0.0 { 0.25 } else { 1.0 },
                    }
                };
                (case, vec![n, s, 3], (0..n * s * 3).map(value).collect())
            }
            _ => unreachable!(),
        };
        let expected = Found {
            dims: dims.iter().map(|&dim| dim as i64).collect(),
            values,
        };
        let case = case.output();
        compare(&case, &case.native(Float::F32)?, &[expected], 1e-5)
    });
}

/// Likewise.
#[test]
fn group_norms() {
    let cases = (
        (1usize..3, 1usize..3, 1usize..4, 1usize..5),
        any::<[bool; 5]>(),
        any::<u64>(),
    );
    check_all(64, 120, cases, |((n, groups, per_group, image), flags, seed)| {
        let [last, silu, skipped, per_image, biased] = flags;
        let mut numbers = Numbers::new(seed);
        let c = groups * per_group;
        let dims = if last { [n, image, 2, c] } else { [n, c, image, 2] };
        let count: usize = dims.iter().product();
        let x = numbers.floats(count, 2.0);
        let (gamma, beta) = (numbers.floats(c, 1.0), numbers.floats(c, 1.0));
        let skip_dims = if per_image { vec![n, c] } else { dims.to_vec() };
        let skip = numbers.floats(skip_dims.iter().product(), 1.0);
        let bias = numbers.floats(c, 1.0);
        let image = 2 * image;
        let place = |i: usize| match last {
            true => (i / (image * c), i % c),
            false => (i / (image * c), i / image % c),
        };
        let sum = |i: usize| {
            let (n, channel) = place(i);
            let skip = match (skipped, per_image) {
                (false, _) => 0.0,
                (true, true) => skip[n * c + channel],
                (true, false) => skip[i],
            };
            let bias = if skipped && biased { bias[channel] } else { 0.0 };
            f64::from(x[i]) + f64::from(skip) + f64::from(bias)
        };
        let value = |i: usize| {
            let (of, channel) = place(i);
            let own: Vec<f64> = (0..count)
                .filter(|&j| place(j).0 == of && place(j).1 / per_group == channel / per_group)
                .map(sum)
                .collect();
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            let variance = own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / own.len() as f64;
            let z = (sum(i) - mean) / (variance + 1e-3).sqrt() * f64::from(gamma[channel])
                + f64::from(beta[channel]);
            if silu { z / (1.0 + (-z).exp()) } else { z }
        };
        let found = |value: &dyn Fn(usize) -> f64| Found {
            dims: dims.iter().map(|&dim| dim as i64).collect(),
            values: (0..count).map(value).collect(),
        };
        let mut case = Case::new(if skipped { "SkipGroupNorm" } else { "GroupNorm" })
            .int("groups", groups as i64)
            .int("activation", silu)
            .int("channels_last", last)
            .float("epsilon", 1e-3)
            .input(Value::floats(&dims, x.clone()))
            .input(Value::floats(&[c], gamma.clone()))
            .input(Value::floats(&[c], beta.clone()))
            .output();
        let mut expected = vec![found(&value)];
        if skipped {
            case = case
                .input(Value::floats(&skip_dims, skip.clone()))
                .input(biased.then(|| Value::floats(&[c], bias.clone())))
                .output();
            expected.push(found(&sum));
        }
        compare(&case, &case.native(Float::F32)?, &expected, 1e-5)
    });
}

#[test]
fn around_a_decoder() {
    let cases = (
        (1usize..7, 1usize..7),
        0usize..4,
        any::<[bool; 2]>(),
        any::<u64>(),
    );
    check_all(65, 160, cases, |((m, n), which, [a, b], seed)| {
        let mut numbers = Numbers::new(seed);
        let case = match which {
            0 => {
                let dims = if a { vec![1, m, n] } else { vec![m, n] };
                Case::new("DynamicTimeWarping")
                    .input(numbers.value(&dims, 1.0))
                    .output_of(INT32)
            }
            1 => {
                let dims = [2, m, 3];
                let dim = if a { 1 } else { -1 };
                let size = 1 + numbers.below(if a { m } else { 3 });
                Case::new("UnfoldTensor")
                    .int("dim", dim)
                    .int("size", size as i64)
                    .int("step", 1 + i64::from(b))
                    .input(numbers.value(&dims, 1.0))
                    .output()
            }
            2 => {
                let length = 4 + n;
                let ids: Vec<i64> = (0..2 * length).map(|_| numbers.below(3) as i64).collect();
                Case::new("NGramRepeatBlock")
                    .int("ngram_size", 1 + numbers.below(3) as i64)
                    .input(Value::i64s(&[2, length], &ids))
                    .input(numbers.value(&[2, 5], 1.0))
                    .output()
            }
            _ => Case::new("CDist")
                .string("metric", if a { "euclidean" } else { "sqeuclidean" })
                .input(numbers.value(&[m, 5], 1.0))
                .input(numbers.value(&[n, 5], 1.0))
                .output(),
        };
        case.check(Float::F32)
    });
}

#[test]
fn engram_gate() {
    let cases = (
        (1usize..3, 1usize..4, 1usize..4, 1usize..9),
        any::<bool>(),
        any::<u64>(),
    );
    check_all(
        66,
        80,
        cases,
        |((batch, length, streams, width), normed, seed)| {
            let mut numbers = Numbers::new(seed);
            let dims = [batch, length, streams, width];
            let case = Case::new("EngramGate")
                .input(numbers.value(&dims, 1.0))
                .input(numbers.value(&dims, 1.0))
                .input(numbers.value(&[batch, length, width], 1.0))
                .input(numbers.value(&[streams, width], 1.0))
                .input(numbers.value(&[streams, width], 1.0))
                .input(normed.then(|| numbers.value(&[streams, width], 1.0)))
                .output();
            let case = if normed { case.output() } else { case };
            case.check(Float::F16)
        },
    );
}
