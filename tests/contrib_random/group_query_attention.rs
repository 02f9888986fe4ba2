//! GroupQueryAttention: prompts, steps and chunks, over what a cache can be.

use proptest::prelude::*;

use crate::harness::{Case, Float, Numbers, Value, check_all};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// No cache.
    Prompt,
    /// A buffer that is larger than what is read of it.
    PromptIntoBuffer,
    /// One token.
    Decode,
    /// Several tokens, one batch item.
    Chunk,
    /// One token whose key is in the cache already.
    NoNewKeys,
}

#[derive(Clone, Debug)]
struct Gqa {
    step: Step,
    batch: usize,
    queries: usize,
    past: usize,
    slack: usize,
    kv_heads: usize,
    group: usize,
    size: usize,
    packed: bool,
    rotary: Option<bool>,
    rotated: usize,
    positions: bool,
    causal: bool,
    window: i64,
    softcap: f32,
    scale: f32,
    bias: Option<(bool, bool)>,
    /// 0: none, 1: smooth softmax, 2: head_sink
    sink: u8,
    qk_output: i64,
    present: bool,
    half: Float,
    seed: u64,
}

fn gqa() -> impl Strategy<Value = Gqa> {
    use Step::*;
    let step = prop::sample::select(vec![Prompt, PromptIntoBuffer, Decode, Decode, Chunk, NoNewKeys]);
    let sizes = (
        1usize..4,
        1usize..7,
        1usize..9,
        0usize..4,
        1usize..4,
        1usize..4,
        1usize..4,
    );
    let rotary = (any::<Option<bool>>(), 1usize..4, any::<bool>());
    let attributes = (
        prop::sample::select(vec![true, true, true, false]),
        prop::sample::select(vec![-1i64, -1, 1, 3, 5]),
        prop::sample::select(vec![0.0f32, 0.8]),
        prop::sample::select(vec![0.0f32, 0.3]),
        any::<Option<(bool, bool)>>(),
        0u8..3,
        0i64..3,
    );
    let half = prop::sample::select(vec![Float::F16, Float::Bf16]);
    let rest = (any::<bool>(), prop::bool::weighted(0.9), half, any::<u64>());
    (step, sizes, rotary, attributes, rest).prop_map(|(step, sizes, rotary, attributes, rest)| {
        let (batch, queries, past, slack, kv_heads, group, size) = sizes;
        let (causal, window, softcap, scale, bias, sink, qk_output) = attributes;
        let one = matches!(step, Decode | NoNewKeys);
        Gqa {
            step,
            batch: if step == Chunk { 1 } else { batch },
            queries: if one {
                1
            } else if step == Chunk {
                queries + 1
            } else {
                queries
            },
            past: match step {
                Prompt | PromptIntoBuffer => 0,
                // The key of the query itself is among them.
                NoNewKeys => past + 1,
                _ => past,
            },
            slack,
            kv_heads,
            group,
            size: size * 16,
            packed: rest.0 && step != NoNewKeys,
            rotary: rotary.0,
            rotated: rotary.1.min(size) * 16,
            positions: rotary.2,
            causal,
            window: if causal { window } else { -1 },
            softcap,
            scale,
            bias,
            sink,
            qk_output,
            present: rest.1,
            half: rest.2,
            seed: rest.3,
        }
    })
}

impl Gqa {
    fn case(&self) -> Case {
        let mut numbers = Numbers::new(self.seed);
        let (b, s, size) = (self.batch, self.queries, self.size);
        let (g, n) = (self.kv_heads, self.kv_heads * self.group);
        let new = if self.step == Step::NoNewKeys { 0 } else { s };
        let total = self.past + new;
        // Batch item 0 is the longest; the others are shorter by up to two. What ONNX Runtime leaves
        // in output_qk behind a shorter one is not defined, nor what it makes of a padded query whose
        // window holds no key.
        let defined = self.qk_output == 0 && (self.window < 0 || self.past > 0);
        let shorter = if defined { 3 } else { 1 };
        let shortest = if self.past == 0 { 1 } else { s.max(new + 1) };
        let lengths: Vec<i32> = (0..b)
            .map(|b| {
                if b == 0 {
                    total
                } else {
                    total.saturating_sub(numbers.below(shorter)).max(shortest)
                }
            })
            .map(|length| length as i32 - 1)
            .collect();
        let (query, key, value) = match self.packed {
            true => (numbers.value(&[b, s, (n + 2 * g) * size], 1.5), None, None),
            false => (
                numbers.value(&[b, s, n * size], 1.5),
                Some(numbers.value(&[b, new, g * size], 1.5)),
                Some(numbers.value(&[b, new, g * size], 1.5)),
            ),
        };
        let has_past = self.step != Step::Prompt;
        // A buffer that grows by the new rows, or one that is large enough for them.
        let grows = self.slack == 0 && self.step != Step::PromptIntoBuffer;
        let rows = if grows {
            self.past
        } else {
            self.past + new + self.slack
        };
        let mut past = || has_past.then(|| numbers.value(&[b, g, rows, size], 1.5));
        let (past_key, past_value) = (past(), past());
        let max_position = 40;
        let half = self.rotated / 2;
        let rotary = self.rotary.is_some();
        let mut cache = || rotary.then(|| numbers.value(&[max_position, half], 1.0));
        let (cos, sin) = (cache(), cache());
        let positions = (rotary && self.positions).then(|| {
            let ids: Vec<i64> = (0..b * s)
                .map(|_| numbers.below(max_position - s) as i64)
                .collect();
            Value::i64s(&[b, s], &ids)
        });
        let bias = self.bias.map(|(batch, heads)| {
            let dims = [if batch { b } else { 1 }, if heads { n } else { 1 }, s, total];
            numbers.value(&dims, 1.0)
        });
        let sink = (self.sink == 2).then(|| numbers.value(&[n], 2.0));
        let mut case = Case::new("GroupQueryAttention")
            .input(query)
            .input(key)
            .input(value)
            .input(past_key)
            .input(past_value)
            .input(Value::i32s(&[b], &lengths))
            .input(Value::i32s(&[1], &[total as i32]))
            .input(cos)
            .input(sin)
            .input(positions)
            .input(bias)
            .input(sink)
            .int("num_heads", n as i64)
            .int("kv_num_heads", g as i64)
            .int("do_rotary", rotary)
            .int("rotary_interleaved", self.rotary.unwrap_or(false))
            .int("causal", self.causal)
            .int("local_window_size", self.window)
            .int("smooth_softmax", if self.sink == 1 { 1 } else { 0 })
            .float("softcap", self.softcap)
            .float("scale", self.scale)
            .output()
            .output_if(self.present || has_past)
            .output_if(self.present || has_past);
        if self.qk_output > 0 {
            case = case.int("qk_output", self.qk_output).output();
        }
        case
    }
}

#[test]
fn group_query_attention() {
    check_all(4, 300, gqa(), |gqa| {
        gqa.case().check(gqa.half, gqa.half == Float::F16)
    });
}
