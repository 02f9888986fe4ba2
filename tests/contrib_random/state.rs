//! LinearAttention and CausalConvWithState.

use proptest::prelude::*;

use crate::harness::{Case, Float, Found, Numbers, Value, check_all, compare};

fn halves() -> impl Strategy<Value = Float> {
    prop::sample::select(vec![Float::F16, Float::Bf16])
}

/// The last of the states that a `state_window` holds.
fn last_state(states: &Found, window: usize) -> Found {
    let len = states.values.len() / window;
    Found {
        dims: states.dims[1..].to_vec(),
        values: states.values[(window - 1) * len..].to_vec(),
    }
}

/// ONNX Runtime's CPU has no `state_window`: each state is the one after a shorter input, and zeros
/// where there is none so short.
fn check_window(
    steps: usize,
    window: usize,
    case: impl Fn(usize, Option<usize>) -> Case,
) -> Result<(), String> {
    let windowed = case(steps, Some(window));
    let found = windowed.native(Float::F32)?;
    let [output, states] = &found[..] else {
        return Err("two outputs".into());
    };
    let whole = case(steps, None).ort(Float::F32)?;
    let last = [output.clone(), last_state(states, window)];
    compare(&windowed, &last, &whole, 2e-5)?;
    let len = states.values.len() / window;
    for slot in 0..window {
        let state = Found {
            dims: states.dims[1..].to_vec(),
            values: states.values[slot * len..][..len].to_vec(),
        };
        let expected = match (steps + slot + 1).checked_sub(window) {
            Some(steps @ 1..) => case(steps, None).ort(Float::F32)?[1].clone(),
            _ => Found {
                values: vec![0.0; len],
                ..state.clone()
            },
        };
        compare(&windowed, &[state], &[expected], 2e-5)?;
    }
    Ok(())
}

#[derive(Clone, Debug)]
struct Linear {
    rule: &'static str,
    batch: usize,
    steps: usize,
    q_heads: usize,
    kv_heads: usize,
    d_k: usize,
    d_v: usize,
    past: bool,
    decay_per_key: bool,
    one_beta: bool,
    scale: f32,
    half: Float,
    seed: u64,
}

fn linear() -> impl Strategy<Value = Linear> {
    let rules = prop::sample::select(vec!["linear", "gated", "delta", "gated_delta"]);
    let sizes = (1usize..3, 1usize..6, 1usize..4, 1usize..4, any::<bool>());
    let dims = (1usize..9, 1usize..9);
    let scale = prop::sample::select(vec![0.0f32, 0.4]);
    let rest = (any::<[bool; 3]>(), scale, halves(), any::<u64>());
    (rules, sizes, dims, rest).prop_map(|(rule, sizes, (d_k, d_v), rest)| {
        let (batch, steps, heads, share, inverse) = sizes;
        let [past, decay_per_key, one_beta] = rest.0;
        Linear {
            rule,
            batch,
            steps,
            q_heads: if inverse { heads } else { heads * share },
            kv_heads: if inverse { heads * share } else { heads },
            d_k,
            d_v,
            past,
            decay_per_key,
            one_beta,
            scale: rest.1,
            half: rest.2,
            seed: rest.3,
        }
    })
}

impl Linear {
    /// The first `steps` tokens of each batch item, which for fewer than all must be one.
    fn case(&self, steps: usize, window: Option<usize>) -> Case {
        let mut numbers = Numbers::new(self.seed);
        let (b, q, kv, d_k, d_v) = (self.batch, self.q_heads, self.kv_heads, self.d_k, self.d_v);
        let mut tokens = |width: usize, scale: f32, offset: f32| {
            let values = numbers.floats(b * self.steps * width, scale);
            let used = values[..b * steps * width].iter().map(|x| x + offset);
            Value::floats(&[b, steps, width], used.collect())
        };
        let query = tokens(q * d_k, 1.0, 0.0);
        let key = tokens(kv * d_k, 1.0 / (d_k as f32).sqrt(), 0.0);
        let value = tokens(kv * d_v, 1.0, 0.0);
        let decay = tokens(kv * if self.decay_per_key { d_k } else { 1 }, 0.5, -0.5);
        let beta = tokens(if self.one_beta { 1 } else { kv }, 1.0, 0.0);
        let past = numbers.floats(b * kv * d_k * d_v, 0.5);
        Case::new("LinearAttention")
            .input(query)
            .input(key)
            .input(value)
            .input(self.past.then(|| past_states(&[b, kv, d_k, d_v], &past, window)))
            .input(self.rule.contains("gated").then_some(decay))
            .input(self.rule.contains("delta").then_some(beta))
            .int("q_num_heads", q as i64)
            .int("kv_num_heads", kv as i64)
            .int("state_window", window.unwrap_or(0) as i64)
            .string("update_rule", self.rule)
            .float("scale", self.scale)
            .output()
            .output()
    }
}

/// A state as an input: the last of a window, the others of it something else.
fn past_states(dims: &[usize], state: &[f32], window: Option<usize>) -> Value {
    match window {
        None => Value::floats(dims, state.to_vec()),
        Some(window) => {
            let mut values = vec![7.0; (window - 1) * state.len()];
            values.extend(state);
            Value::floats(&[&[window], dims].concat(), values)
        }
    }
}

#[test]
fn linear_attention() {
    check_all(20, 150, linear(), |linear| {
        linear.case(linear.steps, None).check(linear.half)
    });
}

#[test]
fn linear_attention_with_a_window_of_states() {
    check_all(22, 30, (linear(), 1usize..4), |(linear, window)| {
        let linear = Linear { batch: 1, ..linear };
        check_window(linear.steps, window, |steps, window| linear.case(steps, window))
    });
}

#[derive(Clone, Debug)]
struct Conv {
    batch: usize,
    channels: Vec<usize>,
    channels_last: bool,
    len: usize,
    kernel: usize,
    dilation: usize,
    bias: bool,
    past: bool,
    activation: &'static str,
    half: Float,
    seed: u64,
}

fn conv() -> impl Strategy<Value = Conv> {
    let sizes = (1usize..3, 1usize..6, 1usize..7, 1usize..5, 1usize..4);
    let activation = prop::sample::select(vec!["none", "silu", "swish"]);
    let layout = prop::sample::select(vec![0usize, 0, 1, 2]);
    (
        sizes,
        any::<[bool; 2]>(),
        activation,
        layout,
        halves(),
        any::<u64>(),
    )
        .prop_map(|(sizes, [bias, past], activation, layout, half, seed)| Conv {
            batch: sizes.0,
            channels: if layout == 2 {
                vec![2, sizes.1]
            } else {
                vec![sizes.1]
            },
            channels_last: layout > 0,
            len: sizes.2,
            kernel: sizes.3,
            dilation: sizes.4,
            bias,
            past,
            activation,
            half,
            seed,
        })
}

impl Conv {
    /// The first `len` positions of each batch item, which for fewer than all must be one, with one
    /// channel or the channels last.
    fn case(&self, len: usize, window: Option<usize>) -> Case {
        let mut numbers = Numbers::new(self.seed);
        let channels: usize = self.channels.iter().product();
        let with = |positions: usize| match self.channels_last {
            false => [&[self.batch], &self.channels[..], &[positions]].concat(),
            true => [&[self.batch, positions], &self.channels[..]].concat(),
        };
        let mut x = numbers.floats(self.batch * channels * self.len, 1.0);
        x.truncate(self.batch * channels * len);
        let weight = numbers.value(&[channels, 1, self.kernel], 1.0);
        let bias = self.bias.then(|| numbers.value(&[channels], 1.0));
        let size = (self.kernel - 1) * self.dilation;
        let past = numbers.floats(self.batch * channels * size, 1.0);
        Case::new("CausalConvWithState")
            .input(Value::floats(&with(len), x))
            .input(weight)
            .input(bias)
            .input(self.past.then(|| past_states(&with(size), &past, window)))
            .int("dilation", self.dilation as i64)
            .int("channels_last", self.channels_last)
            .int("state_window", window.unwrap_or(0) as i64)
            .string("activation", self.activation)
            .output()
            .output()
    }
}

#[test]
fn causal_conv_with_state() {
    check_all(21, 150, conv(), |conv| conv.case(conv.len, None).check(conv.half));
}

#[test]
fn causal_conv_with_a_window_of_states() {
    check_all(23, 30, (conv(), 1usize..4), |(conv, window)| {
        let channels = if conv.channels_last {
            conv.channels.clone()
        } else {
            vec![1]
        };
        let conv = Conv {
            batch: 1,
            channels,
            ..conv
        };
        check_window(conv.len, window, |len, window| conv.case(len, window))
    });
}
