//! MoE, and QMoE whose weights are dequantised first.

use super::gelu::gelu_tanh;
use super::{Array, dot, sigmoid};
use crate::harness::Case;
use crate::quantized_weights::element;

/// Weights [experts, rows, depth] of which input `at` has the packed form.
fn dequantized(case: &Case, at: usize, zero_points: usize) -> Array {
    let packed = case.value(at).unwrap();
    let (_, bytes) = packed.raw_data();
    let scales = case.array(at + 1).unwrap();
    let bits = case.int_of("expert_weight_bits", 4) as usize;
    let [experts, rows, row_bytes] = packed.dims[..] else {
        panic!()
    };
    let depth = row_bytes * 8 / bits;
    let block_size = match case.int_of("block_size", 0) as usize {
        0 => depth,
        size => size,
    };
    let points = case.value(zero_points);
    Array::of(&[experts, rows, depth], |i| {
        let (row, block) = (i[0] * rows + i[1], i[2] / block_size);
        let point = match points {
            None => f64::from(1 << (bits - 1)),
            // Packed along the rows of an expert, or along the blocks of a row.
            Some(points) => {
                let line = points.dims[points.dims.len() - 1];
                let (line_at, in_line) = if points.dims.len() == 2 {
                    (i[0], i[1])
                } else {
                    (row, block)
                };
                f64::from(element(&points.raw_data().1[line_at * line..], bits, in_line))
            }
        };
        let q = f64::from(element(&bytes[row * row_bytes..], bits, i[2]));
        let blocks = depth / block_size;
        (q - point) * scales.values[row * blocks + block]
    })
}

pub fn experts(case: &Case) -> Vec<Array> {
    let quantized = case.op_type == "QMoE";
    let x = case.array(0).unwrap();
    let hidden = x.last();
    let tokens = x.values.len() / hidden;
    let dims = x.dims.clone();
    let x = x.reshaped(&[tokens, hidden]);
    let router = case.array(1).unwrap();
    // Weights and bias of each projection.
    let projection = |which: usize| match quantized {
        true => {
            let at = [2, 5, 8][which];
            let weights = case.value(at).map(|_| dequantized(case, at, 11 + which));
            weights.map(|weights| (weights, case.array(at + 2)))
        }
        false => {
            let at = [2, 4, 6][which];
            case.array(at).map(|weights| (weights, case.array(at + 1)))
        }
    };
    let (first, second) = (projection(0).unwrap(), projection(1).unwrap());
    let third = projection(2);
    let apply = |projection: &(Array, Option<Array>), e: usize, row: usize, input: &dyn Fn(usize) -> f64| {
        let (weights, bias) = projection;
        let sum = dot(weights.last(), |i| weights.at(&[e, row, i]) * input(i));
        sum + bias.as_ref().map_or(0.0, |bias| bias.at(&[e, row]))
    };
    let inter = second.0.last();
    let (alpha, beta) = (
        case.float_of("activation_alpha", 1.0),
        case.float_of("activation_beta", 0.0),
    );
    let limit = case.float_of("swiglu_limit", f64::INFINITY);
    let activation = case.string_of("activation_type");
    let fusion = case.int_of("swiglu_fusion", 0);
    let inner = |t: usize, e: usize, row: usize| {
        let input = |i: usize| x.at(&[t, i]);
        if activation == "swiglu" {
            let (gate, linear) = match fusion {
                1 => (
                    apply(&first, e, 2 * row, &input),
                    apply(&first, e, 2 * row + 1, &input),
                ),
                2 => (
                    apply(&first, e, row, &input),
                    apply(&first, e, inter + row, &input),
                ),
                _ => (
                    apply(&first, e, row, &input),
                    apply(third.as_ref().unwrap(), e, row, &input),
                ),
            };
            let gate = gate.min(limit);
            return gate * sigmoid(alpha * gate) * (linear.clamp(-limit, limit) + beta);
        }
        let x = apply(&first, e, row, &input);
        let activated = match activation.as_str() {
            "relu" => x.max(0.0),
            "gelu" => gelu_tanh(x),
            "silu" => x * sigmoid(x),
            _ => x,
        };
        match &third {
            Some(third) => activated * apply(third, e, row, &input),
            None => activated,
        }
    };
    let experts = router.last();
    let mut y = Array::of(&[tokens, hidden], |_| 0.0);
    for t in 0..tokens {
        let scores: Vec<f64> = (0..experts).map(|e| router.at(&[t, e])).collect();
        let sum: f64 = scores.iter().map(|x| x.exp()).sum();
        let shares: Vec<f64> = scores.iter().map(|x| x.exp() / sum).collect();
        // Of equal ones, the last.
        let mut order: Vec<usize> = (0..experts).rev().collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        order.truncate(case.int_of("k", 1) as usize);
        let total: f64 = match quantized || case.int_of("normalize_routing_weights", 0) != 0 {
            true => order.iter().map(|&e| shares[e]).sum(),
            false => 1.0,
        };
        for &e in &order {
            let inner: Vec<f64> = (0..inter).map(|row| inner(t, e, row)).collect();
            for row in 0..hidden {
                let out = apply(&second, e, row, &|i| inner[i]);
                y.values[t * hidden + row] += shares[e] / total * out;
            }
        }
    }
    vec![y.reshaped(&dims)]
}
