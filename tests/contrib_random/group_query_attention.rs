//! GroupQueryAttention: prompts, steps and chunks, over what a cache can be.

use oxpipe_test_support::onnx_writer::{FLOAT, FLOAT8E4M3FN, INT8, UINT8};
use proptest::prelude::*;

use crate::harness::{Case, Float, Found, Numbers, Value, check_all, compare};

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

/// ONNX Runtime's CPU refuses the norms of queries and keys.
#[test]
fn group_query_attention_with_norms() {
    check_all(24, 80, gqa(), |gqa| {
        let mut numbers = Numbers::new(gqa.seed ^ 1);
        let mut weight = || numbers.value(&[gqa.size], 1.0);
        let case = gqa.case().input(None).input(None).input(weight()).input(weight());
        let case = case.float("qk_norm_epsilon", 1e-3);
        case.check_exactly(Float::F32)?;
        case.check_exactly(gqa.half).map(drop)
    });
}

#[test]
fn group_query_attention() {
    check_all(4, 300, gqa(), |gqa| gqa.case().check(gqa.half));
}

/// A cache that is quantised, one that is as long as the window, or both.
#[derive(Clone, Debug)]
struct Resident {
    batch: usize,
    queries: usize,
    /// Keys of earlier steps, in all.
    past: usize,
    slack: usize,
    kv_heads: usize,
    group: usize,
    size: usize,
    /// 0 for floats.
    bits: usize,
    per_channel: bool,
    window: Option<usize>,
    rotary: bool,
    bias: bool,
    seed: u64,
}

fn resident() -> impl Strategy<Value = Resident> {
    let sizes = (
        1usize..4,
        1usize..5,
        // Some are long enough to be read in several spans.
        prop_oneof![12 => 0usize..12, 1 => 500usize..1100],
        0usize..3,
        1usize..3,
        1usize..3,
        1usize..3,
    );
    let kinds = (
        prop::sample::select(vec![0usize, 4, 8]),
        prop::option::of(1usize..6),
        any::<[bool; 3]>(),
        any::<u64>(),
    );
    (sizes, kinds).prop_map(|(sizes, (bits, window, [per_channel, rotary, bias], seed))| {
        let (batch, queries, past, slack, kv_heads, group, size) = sizes;
        Resident {
            // Several new keys behind others are of one batch item.
            batch: if past > 0 && queries > 1 { 1 } else { batch },
            queries,
            past,
            slack,
            kv_heads,
            group,
            // What ONNX Runtime asks for.
            size: if bits == 4 { 32 } else { 16 } * size,
            bits: if window.is_none() && bits == 0 { 8 } else { bits },
            per_channel,
            window,
            rotary,
            bias,
            seed,
        }
    })
}

impl Resident {
    fn rows(&self) -> usize {
        match self.window {
            Some(window) => window + self.slack,
            None => self.past + self.queries + self.slack,
        }
    }

    /// How many of `total` keys the cache holds, by the definition's formula.
    fn held(&self, total: usize) -> usize {
        let rows = self.rows();
        match self.window {
            Some(window) if total > rows => {
                let reclaimed = rows - window + 1;
                total - reclaimed * (total - rows).div_ceil(reclaimed)
            }
            _ => total,
        }
    }

    /// The node, and a function that leaves the rows that are specified of what it gives.
    fn case(&self, cache_type: i32) -> Case {
        let mut numbers = Numbers::new(self.seed);
        let (b, s, g, size) = (self.batch, self.queries, self.kv_heads, self.size);
        let n = g * self.group;
        let total = self.past + s;
        let row = if self.bits == 4 { size / 2 } else { size };
        let dims = [b, g, self.rows(), row];
        let mut cache = || match self.bits {
            0 => numbers.value(&dims, 1.5),
            _ => Value::raw(cache_type, &dims, numbers.bytes(dims.iter().product())),
        };
        let (past_key, past_value) = (cache(), cache());
        let scale_dims = if self.per_channel {
            vec![1, g, 1, size]
        } else {
            vec![1]
        };
        // Some elements are beyond what the codes reach.
        let largest = if self.bits == 4 { 7.0 } else { 127.0 };
        let mut scale = || {
            let scales = numbers.floats(scale_dims.iter().product(), 0.2);
            let bytes = scales
                .iter()
                .flat_map(|x| ((1.2 + x) / largest).to_le_bytes())
                .collect();
            (self.bits > 0).then(|| Value::raw(FLOAT, &scale_dims, bytes))
        };
        let (k_scale, v_scale) = (scale(), scale());
        let mut angles = || self.rotary.then(|| numbers.value(&[1200, 8], 1.0));
        let (cos, sin) = (angles(), angles());
        let mut case = Case::new("GroupQueryAttention")
            .input(numbers.value(&[b, s, n * size], 1.5))
            .input(numbers.value(&[b, s, g * size], 1.5))
            .input(numbers.value(&[b, s, g * size], 1.5))
            .input(past_key)
            .input(past_value)
            .input(Value::i32s(&[b], &vec![total as i32 - 1; b]))
            .input(Value::i32s(&[1], &[total as i32]))
            .input(cos)
            .input(sin)
            .input(None)
            .input(self.bias.then(|| numbers.value(&[1, n, s, total], 1.0)))
            .input(None)
            .int("num_heads", n as i64)
            .int("kv_num_heads", g as i64)
            .int("do_rotary", self.rotary)
            .output();
        let (ty, kind) = match self.bits {
            0 => (None, None),
            _ => (
                Some(cache_type),
                Some(if self.per_channel {
                    "PER_CHANNEL"
                } else {
                    "PER_TENSOR"
                }),
            ),
        };
        for _ in 0..2 {
            case = match ty {
                Some(ty) => case.output_of(ty),
                None => case.output(),
            };
        }
        if let Some(kind) = kind {
            case = case
                .input(k_scale)
                .input(v_scale)
                .string("k_quant_type", kind)
                .string("v_quant_type", kind)
                .int("kv_cache_bit_width", self.bits as i64);
        }
        if let Some(window) = self.window {
            case = case
                .int("local_window_size", window as i64)
                .int("sliding_window_cache", 1);
        }
        case
    }

    /// The rows of a cache that hold something.
    fn of_cache(&self, found: &Found) -> Found {
        let held = self.held(self.past + self.queries);
        let [.., rows, row] = found.dims[..] else {
            panic!("{:?}", found.dims)
        };
        let (rows, row) = (rows as usize, row as usize);
        Found {
            dims: vec![found.dims[0], found.dims[1], held as i64, row as i64],
            values: found
                .values
                .chunks(rows * row)
                .flat_map(|rows| rows[..held * row].to_vec())
                .collect(),
        }
    }
}

#[test]
fn caches_that_are_quantised_or_as_long_as_the_window() {
    check_all(5, 300, resident(), |resident| {
        let case = resident.case(if resident.bits == 4 { UINT8 } else { INT8 });
        let (ours, theirs) = (case.native(Float::F32)?, case.ort(Float::F32)?);
        compare(&case, &ours[..1], &theirs[..1], 2e-5)?;
        for (ours, theirs) in ours[1..].iter().zip(&theirs[1..]) {
            let (ours, theirs) = (resident.of_cache(ours), resident.of_cache(theirs));
            compare(
                &case,
                &[ours],
                &[theirs],
                if resident.bits == 0 { 2e-6 } else { 0.0 },
            )?;
        }
        Ok(())
    });
}

/// ONNX Runtime's CPU has no such cache: what an 8-bit float stands for is exact in f32, so that a
/// cache of them and one of what they stand for give the same to the bit.
#[test]
fn a_cache_of_float8() {
    let (heads, size, past) = (2usize, 16usize, 3usize);
    let mut numbers = Numbers::new(9);
    let codes: Vec<u8> = numbers
        .bytes(heads * past * size)
        .iter()
        .map(|x| x & 0xbf)
        .collect();
    let exact = |code: u8| {
        let (sign, exponent, mantissa) = (code >> 7, i32::from(code >> 3 & 15), f32::from(code & 7));
        let size = match exponent {
            0 => mantissa / 8.0 * 2f32.powi(-6),
            _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
        };
        if sign == 1 { -size } else { size }
    };
    let query = numbers.value(&[1, 1, heads * size], 1.0);
    // Halves have codes.
    let new: Vec<f32> = (0..heads * size)
        .map(|_| numbers.below(9) as f32 / 2.0 - 2.0)
        .collect();
    let case = |quantised: bool| {
        let dims = [1, heads, past, size];
        let cache = || match quantised {
            true => Value::raw(FLOAT8E4M3FN, &dims, codes.clone()),
            false => Value::floats(&dims, codes.iter().map(|&code| exact(code)).collect()),
        };
        let one = || quantised.then(|| Value::floats(&[1], vec![1.0]));
        let case = Case::new("GroupQueryAttention")
            .input(query.clone())
            .input(Value::floats(&[1, 1, heads * size], new.clone()))
            .input(Value::floats(&[1, 1, heads * size], new.clone()))
            .input(cache())
            .input(cache())
            .input(Value::i32s(&[1], &[past as i32]))
            .input(Value::i32s(&[1], &[past as i32 + 1]))
            .input(None)
            .input(None)
            .input(None)
            .input(None)
            .input(None)
            .input(one())
            .input(one())
            .int("num_heads", heads as i64)
            .int("kv_num_heads", heads as i64)
            .output();
        match quantised {
            true => case
                .string("k_quant_type", "PER_TENSOR")
                .string("v_quant_type", "PER_TENSOR")
                .int("kv_cache_bit_width", 8),
            false => case,
        }
    };
    let (float8, floats) = (case(true), case(false));
    let (found, expected) = (
        float8.native(Float::F32).unwrap(),
        floats.native(Float::F32).unwrap(),
    );
    compare(&float8, &found, &expected, 0.0).unwrap();
}

/// ONNX Runtime asks for caches that share their memory with the ones that come out: against the
/// definition in f64.
#[test]
fn sparse_attention() {
    let cases = (
        (1usize..3, 1usize..3, 1usize..3, 1usize..3),
        (1usize..20, 0usize..20),
        any::<bool>(),
        any::<u64>(),
    );
    check_all(
        6,
        60,
        cases,
        |((batch, kv_heads, group, layouts), (queries, past), prompt, seed)| {
            let mut numbers = Numbers::new(seed);
            let (block, blocks, size) = (16usize, 4usize, 8usize);
            let past = if prompt { 0 } else { past + 1 };
            let (heads, total, rows) = (kv_heads * group, past + queries, block * blocks);
            let seen: Vec<bool> = (0..layouts * blocks * blocks)
                .map(|i| {
                    let (q, k) = (i / blocks % blocks, i % blocks);
                    q == k || q > k && numbers.below(2) == 0
                })
                .collect();
            let sees = |layout: usize, q: usize, k: usize| seen[(layout * blocks + q) * blocks + k];
            let entries = blocks * blocks;
            let (mut ends, mut columns) = (Vec::new(), Vec::new());
            for layout in 0..layouts {
                let mut own: Vec<i32> = Vec::new();
                ends.push(0);
                for q in 0..blocks {
                    own.extend((0..blocks).filter(|&k| sees(layout, q, k)).map(|k| k as i32));
                    ends.push(own.len() as i32);
                }
                own.resize(entries, -1);
                columns.extend(own);
            }
            let q = numbers.floats(batch * queries * heads * size, 1.0);
            let mut new = || numbers.floats(batch * queries * kv_heads * size, 1.0);
            let (k, v) = (new(), new());
            let mut cache = || numbers.floats(batch * kv_heads * rows * size, 1.0);
            let (past_k, past_v) = (cache(), cache());
            let at = |new: &[f32], old: &[f32], b: usize, h: usize, j: usize, d: usize| match j
                .checked_sub(past)
            {
                None => f64::from(old[((b * kv_heads + h) * rows + j) * size + d]),
                Some(i) => f64::from(new[((b * queries + i) * kv_heads + h) * size + d]),
            };
            let mut values = Vec::new();
            for b in 0..batch {
                for i in 0..queries {
                    for h in 0..heads {
                        let query = &q[((b * queries + i) * heads + h) * size..][..size];
                        let weight = |j: usize| {
                            let visible = j <= past + i && sees(h % layouts, (past + i) / block, j / block);
                            let terms =
                                (0..size).map(|d| f64::from(query[d]) * at(&k, &past_k, b, h / group, j, d));
                            if visible {
                                (terms.sum::<f64>() / (size as f64).sqrt()).exp()
                            } else {
                                0.0
                            }
                        };
                        let weights: Vec<f64> = (0..total).map(weight).collect();
                        let sum: f64 = weights.iter().sum();
                        for d in 0..size {
                            let terms =
                                (0..total).map(|j| weights[j] / sum * at(&v, &past_v, b, h / group, j, d));
                            values.push(terms.sum());
                        }
                    }
                }
            }
            let expected = Found {
                dims: [batch, queries, heads * size].map(|dim| dim as i64).to_vec(),
                values,
            };
            let cache = [batch, kv_heads, rows, size];
            let case = Case::new("SparseAttention")
                .int("num_heads", heads as i64)
                .int("kv_num_heads", kv_heads as i64)
                .int("sparse_block_size", block as i64)
                .input(Value::floats(&[batch, queries, heads * size], q.clone()))
                .input(Value::floats(&[batch, queries, kv_heads * size], k.clone()))
                .input(Value::floats(&[batch, queries, kv_heads * size], v.clone()))
                .input(Value::floats(&cache, past_k.clone()))
                .input(Value::floats(&cache, past_v.clone()))
                .input(Value::i32s(&[layouts, blocks + 1], &ends))
                .input(Value::i32s(&[layouts, entries], &columns))
                .input(Value::i32s(&[1], &[total as i32]))
                .input(Value::i32s(&[batch], &vec![total as i32; batch]))
                .output()
                .output()
                .output();
            let found = case.native(Float::F32)?;
            compare(&case, &found[..1], &[expected], 2e-5)?;
            for (found, (new, old)) in found[1..].iter().zip([(&k, &past_k), (&v, &past_v)]) {
                for (i, &value) in found.values.iter().enumerate() {
                    let (row, d) = (i / size, i % size);
                    let (b, h, j) = (row / rows / kv_heads, row / rows % kv_heads, row % rows);
                    if j < total && value != at(new, old, b, h, j, d) {
                        return Err(format!("{case:?}: row {j} of a cache"));
                    }
                }
            }
            Ok(())
        },
    );
}
