//! The operators that carry a state from token to token, without a `state_window`.

use super::{Array, dot, sigmoid};
use crate::harness::Case;

pub fn linear_attention(case: &Case) -> Vec<Array> {
    let [query, key, value, past, decay, beta] = [0, 1, 2, 3, 4, 5].map(|i| case.array(i));
    let (query, key, value) = (query.unwrap(), key.unwrap(), value.unwrap());
    let q_heads = case.int_of("q_num_heads", 0) as usize;
    let kv_heads = case.int_of("kv_num_heads", 0) as usize;
    let [batch, steps, width] = query.dims[..] else {
        panic!()
    };
    let (d_k, d_v) = (width / q_heads, value.last() / kv_heads);
    let rule = case.string_of("update_rule");
    let scale = match case.float_of("scale", 0.0) {
        0.0 => 1.0 / (d_k as f64).sqrt(),
        scale => scale,
    };
    let state_dims = [batch, kv_heads, d_k, d_v];
    let mut state = past.unwrap_or_else(|| Array::of(&state_dims, |_| 0.0));
    let outputs = q_heads.max(kv_heads);
    let mut y = Array::of(&[batch, steps, outputs * d_v], |_| 0.0);
    for t in 0..steps {
        let k = |b: usize, h: usize, i: usize| key.at(&[b, t, h * d_k + i]);
        if rule.contains("gated") {
            let decay = decay.as_ref().unwrap();
            let per_key = decay.last() == kv_heads * d_k && d_k > 1;
            state = Array::of(&state_dims, |i| {
                let at = if per_key { i[1] * d_k + i[2] } else { i[1] };
                decay.at(&[i[0], t, at]).exp() * state.at(i)
            });
        }
        let added = Array::of(&[batch, kv_heads, d_v], |i| {
            let (b, h, j) = (i[0], i[1], i[2]);
            let v = value.at(&[b, t, h * d_v + j]);
            if !rule.contains("delta") {
                return v;
            }
            let beta = beta.as_ref().unwrap();
            let beta = beta.at(&[b, t, if beta.last() == 1 { 0 } else { h }]);
            beta * (v - dot(d_k, |i| state.at(&[b, h, i, j]) * k(b, h, i)))
        });
        state = Array::of(&state_dims, |i| {
            state.at(i) + k(i[0], i[1], i[2]) * added.at(&[i[0], i[1], i[3]])
        });
        for b in 0..batch {
            for h in 0..outputs {
                let (q, kv) = (h * q_heads / outputs, h * kv_heads / outputs);
                for j in 0..d_v {
                    let sum = dot(d_k, |i| query.at(&[b, t, q * d_k + i]) * state.at(&[b, kv, i, j]));
                    y.values[((b * steps + t) * outputs + h) * d_v + j] = scale * sum;
                }
            }
        }
    }
    vec![y, state]
}

pub fn causal_conv(case: &Case) -> Vec<Array> {
    let (x, weight) = (case.array(0).unwrap(), case.array(1).unwrap());
    let (bias, past) = (case.array(2), case.array(3));
    let dilation = case.int_of("dilation", 1) as usize;
    let kernel = weight.last();
    let size = (kernel - 1) * dilation;
    let last = case.int_of("channels_last", 0) != 0;
    let axis = if last { 1 } else { 2 };
    let channels = weight.dims[0];
    let len = x.dims[axis];
    let silu = case.string_of("activation") != "none";
    // As [batch, channels, positions], and back.
    let channels_first = |x: &Array, positions: usize| {
        Array::of(&[x.dims[0], channels, positions], |i| match last {
            true => x.values[(i[0] * positions + i[2]) * channels + i[1]],
            false => x.at(i),
        })
    };
    let as_given = |y: Array, positions: usize| {
        let mut dims = x.dims.clone();
        dims[axis] = positions;
        let flat = match last {
            true => Array::of(&[x.dims[0], positions, channels], |i| y.at(&[i[0], i[2], i[1]])),
            false => y,
        };
        flat.reshaped(&dims)
    };
    let input = channels_first(&x, len);
    let before = past.map(|past| channels_first(&past, size));
    let all = Array::of(&[x.dims[0], channels, size + len], |i| match i[2] {
        at if at < size => before.as_ref().map_or(0.0, |past| past.at(i)),
        at => input.at(&[i[0], i[1], at - size]),
    });
    let y = Array::of(&input.dims, |i| {
        let products = |j: usize| weight.at(&[i[1], 0, j]) * all.at(&[i[0], i[1], i[2] + j * dilation]);
        let sum = dot(kernel, products) + bias.as_ref().map_or(0.0, |bias| bias.at(&[i[1]]));
        if silu { sum * sigmoid(sum) } else { sum }
    });
    let state = Array::of(&[x.dims[0], channels, size], |i| {
        all.at(&[i[0], i[1], len + i[2]])
    });
    vec![as_given(y, len), as_given(state, size)]
}
