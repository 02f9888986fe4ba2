//! MultiHeadAttention, DecoderMaskedMultiHeadAttention and Attention.

use proptest::prelude::*;

use crate::harness::{Case, Float, Found, Numbers, Value, check_all, compare};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mask {
    None,
    Ends,
    EndsAndStarts,
    Keys,
    QueriesAndKeys,
    /// One element for all keys.
    Same,
}

/// A mask that hides no whole row: what ONNX Runtime makes of one is not defined.
fn mask(kind: Mask, numbers: &mut Numbers, (b, s, t): (usize, usize, usize)) -> Option<Value> {
    let mut bits = |count: usize| -> Vec<i32> {
        let bits = (0..count).map(|_| i32::from(numbers.below(3) > 0));
        bits.collect()
    };
    match kind {
        Mask::None => None,
        Mask::Ends => {
            let ends: Vec<i32> = (0..b).map(|_| 1 + numbers.below(t) as i32).collect();
            Some(Value::i32s(&[b], &ends))
        }
        Mask::EndsAndStarts => {
            let starts: Vec<i32> = (0..b).map(|_| numbers.below(t) as i32).collect();
            let ends: Vec<i32> = starts
                .iter()
                .map(|&start| start + 1 + numbers.below(t - start as usize) as i32)
                .collect();
            Some(Value::i32s(&[2 * b], &[ends, starts].concat()))
        }
        Mask::Keys => Some(Value::i32s(&[b, t], &bits(b * t))),
        Mask::QueriesAndKeys => Some(Value::i32s(&[b, s, t], &bits(b * s * t))),
        Mask::Same => Some(Value::i32s(&[b, 1], &bits(b))),
    }
}

fn masks(kinds: &[Mask]) -> impl Strategy<Value = Mask> + use<> {
    prop::sample::select(kinds.to_vec())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Keys {
    /// Of the same step, with or without a past.
    Own,
    Past,
    /// Of an encoder.
    Cross,
    /// Of an encoder, as a cache has them.
    CrossCache,
}

#[derive(Clone, Debug)]
struct MultiHead {
    keys: Keys,
    batch: usize,
    queries: usize,
    other: usize,
    heads: usize,
    size: usize,
    v_size: usize,
    bias: bool,
    mask: Mask,
    score_bias: Option<(bool, bool)>,
    unidirectional: bool,
    filter: Option<f32>,
    scale: f32,
    present: bool,
    qk: bool,
    half: Float,
    seed: u64,
}

fn multi_head() -> impl Strategy<Value = MultiHead> {
    use Keys::*;
    let keys = prop::sample::select(vec![Own, Own, Past, Past, Cross, CrossCache]);
    let sizes = (1usize..4, 1usize..7, 1usize..7, 1usize..4, 1usize..10, 1usize..10);
    let kinds = [
        Mask::None,
        Mask::None,
        Mask::Ends,
        Mask::Keys,
        Mask::QueriesAndKeys,
    ];
    let attributes = (
        any::<bool>(),
        masks(&kinds),
        any::<Option<(bool, bool)>>(),
        any::<bool>(),
        prop::sample::select(vec![None, Some(-100.0f32), Some(f32::MIN)]),
        prop::sample::select(vec![0.0f32, 0.4]),
    );
    let half = prop::sample::select(vec![Float::F16, Float::Bf16]);
    let rest = (any::<bool>(), any::<bool>(), half, any::<u64>());
    (keys, sizes, attributes, rest).prop_map(|(keys, sizes, attributes, rest)| MultiHead {
        keys,
        batch: sizes.0,
        queries: sizes.1,
        other: sizes.2,
        heads: sizes.3,
        size: 4 * sizes.4,
        v_size: 4 * if matches!(keys, Past | CrossCache) {
            sizes.4
        } else {
            sizes.5
        },
        bias: attributes.0 && keys != CrossCache,
        mask: attributes.1,
        score_bias: attributes.2,
        unidirectional: attributes.3 && matches!(keys, Own | Past),
        filter: attributes.4.filter(|&filter| filter > f32::MIN || !attributes.3),
        scale: attributes.5,
        present: rest.0 || keys == Past,
        qk: rest.1,
        half: rest.2,
        seed: rest.3,
    })
}

impl MultiHead {
    fn case(&self) -> Case {
        let mut numbers = Numbers::new(self.seed);
        let (b, s, n, size, v_size) = (self.batch, self.queries, self.heads, self.size, self.v_size);
        let new = if matches!(self.keys, Keys::Own | Keys::Past) {
            s
        } else {
            self.other
        };
        let past = if self.keys == Keys::Past { self.other } else { 0 };
        let total = past + new;
        let query = numbers.value(&[b, s, n * size], 1.5);
        let (key, value) = match self.keys {
            Keys::CrossCache => (
                numbers.value(&[b, n, new, size], 1.5),
                numbers.value(&[b, n, new, v_size], 1.5),
            ),
            _ => (
                numbers.value(&[b, new, n * size], 1.5),
                numbers.value(&[b, new, n * v_size], 1.5),
            ),
        };
        let bias = self.bias.then(|| numbers.value(&[n * (2 * size + v_size)], 1.0));
        let mask = mask(self.mask, &mut numbers, (b, s, total));
        let score_bias = self.score_bias.map(|(batch, heads)| {
            let dims = [if batch { b } else { 1 }, if heads { n } else { 1 }, s, total];
            numbers.value(&dims, 1.0)
        });
        let has_past = self.keys == Keys::Past;
        let past_key = has_past.then(|| numbers.value(&[b, n, past, size], 1.5));
        let past_value = has_past.then(|| numbers.value(&[b, n, past, v_size], 1.5));
        let present = self.present && self.keys != Keys::CrossCache;
        let mut case = Case::new("MultiHeadAttention")
            .input(query)
            .input(key)
            .input(value)
            .input(bias)
            .input(mask)
            .input(score_bias)
            .input(past_key)
            .input(past_value)
            .int("num_heads", n as i64)
            .int("unidirectional", self.unidirectional)
            .float("scale", self.scale)
            .output()
            .output_if(present)
            .output_if(present);
        if let Some(filter) = self.filter {
            case = case.float("mask_filter_value", filter);
        }
        // What is shown of a masked score is as large as the filter: no measure for the others.
        let shown = self.mask == Mask::None && !self.unidirectional;
        if self.qk && shown { case.output() } else { case }
    }
}

#[test]
fn multi_head_attention() {
    check_all(5, 200, multi_head(), |mha| mha.case().check(mha.half));
}

/// ONNX Runtime's CPU has no kernel for packed projections: they are the same as the separate ones.
#[test]
fn multi_head_attention_of_packed_projections() {
    let sizes = (
        1usize..3,
        1usize..5,
        1usize..4,
        1usize..6,
        any::<bool>(),
        any::<u64>(),
    );
    check_all(6, 30, sizes, |(b, s, n, size, both, seed)| {
        let mut numbers = Numbers::new(seed);
        let parts: Vec<Vec<f32>> = (0..3).map(|_| numbers.floats(b * s * n * size, 1.5)).collect();
        let bias = numbers.value(&[3 * n * size], 1.0);
        let dims = [b, s, n * size];
        let separate = Case::new("MultiHeadAttention")
            .input(Value::floats(&dims, parts[0].clone()))
            .input(Value::floats(&dims, parts[1].clone()))
            .input(Value::floats(&dims, parts[2].clone()))
            .input(bias.clone())
            .int("num_heads", n as i64)
            .output();
        let pack = |parts: &[Vec<f32>]| {
            let mut values = Vec::new();
            for head in 0..b * s * n {
                for part in parts {
                    values.extend(&part[head * size..][..size]);
                }
            }
            Value::floats(&[b, s, n, parts.len(), size], values)
        };
        let packed = Case::new("MultiHeadAttention");
        let packed = match both {
            true => packed
                .input(Value::floats(&dims, parts[0].clone()))
                .input(pack(&parts[1..]))
                .input(None),
            false => packed.input(pack(&parts)).input(None).input(None),
        };
        let packed = packed.input(bias).int("num_heads", n as i64).output();
        let expected = separate.ort(Float::F32)?;
        compare(&packed, &packed.native(Float::F32)?, &expected, 2e-5)
    });
}

#[derive(Clone, Debug)]
struct Decoder {
    cross: bool,
    shared_buffer: bool,
    batch: usize,
    past: usize,
    slack: usize,
    heads: usize,
    size: usize,
    bias: bool,
    masked: bool,
    score_bias: bool,
    half: Float,
    seed: u64,
}

fn decoder() -> impl Strategy<Value = Decoder> {
    let sizes = (1usize..4, 1usize..7, 0usize..4, 1usize..4, 1usize..10);
    let half = prop::sample::select(vec![Float::F16, Float::Bf16]);
    (sizes, any::<[bool; 5]>(), half, any::<u64>()).prop_map(|(sizes, flags, half, seed)| Decoder {
        cross: flags[0],
        shared_buffer: flags[1],
        batch: sizes.0,
        past: sizes.1,
        slack: sizes.2,
        heads: sizes.3,
        size: 4 * sizes.4,
        bias: flags[2],
        masked: flags[3],
        score_bias: flags[4],
        half,
        seed,
    })
}

impl Decoder {
    /// The node, and MultiHeadAttention of the same inputs: ONNX Runtime runs the Decoder form of
    /// self-attention only where past and present are the same memory.
    fn cases(&self) -> (Case, Case) {
        let mut numbers = Numbers::new(self.seed);
        let (b, n, size, past) = (self.batch, self.heads, self.size, self.past);
        let hidden = n * size;
        let total = if self.cross { past } else { past + 1 };
        let query = numbers.value(&[b, 1, hidden], 1.5);
        let kv_dims: &[usize] = if self.cross {
            &[b, n, past, size]
        } else {
            &[b, 1, hidden]
        };
        let (key, value) = (numbers.value(kv_dims, 1.5), numbers.value(kv_dims, 1.5));
        let mask = self.masked.then(|| {
            let bits: Vec<i32> = (0..b * total).map(|_| i32::from(numbers.below(3) > 0)).collect();
            Value::i32s(&[b, total], &bits)
        });
        let score_bias = (self.score_bias && !self.cross).then(|| numbers.value(&[1, n, 1, total], 1.0));
        let shared = self.shared_buffer && !self.cross;
        let rows = if shared { past + 1 + self.slack } else { past };
        let mut past_of = || -> (Option<Value>, Option<Value>) {
            if self.cross {
                return (None, None);
            }
            let used = numbers.floats(b * n * past * size, 1.5);
            let mut buffer = vec![0.0; b * n * rows * size];
            if past > 0 {
                for (to, from) in buffer.chunks_mut(rows * size).zip(used.chunks(past * size)) {
                    to[..from.len()].copy_from_slice(from);
                }
            }
            (
                Some(Value::floats(&[b, n, past, size], used)),
                Some(Value::floats(&[b, n, rows, size], buffer)),
            )
        };
        let ((past_key, key_buffer), (past_value, value_buffer)) = (past_of(), past_of());
        let bias = (self.bias && !self.cross).then(|| numbers.value(&[3 * hidden], 1.0));
        let decoder = Case::new("DecoderMaskedMultiHeadAttention")
            .input(query.clone())
            .input(key.clone())
            .input(value.clone())
            .input(mask.clone())
            .input(score_bias.clone())
            .input(key_buffer)
            .input(value_buffer)
            .input(shared.then(|| Value::i32s(&[1], &[past as i32])))
            .input(None)
            .input(None)
            .input(bias.clone())
            .int("past_present_share_buffer", shared)
            .int("num_heads", n as i64)
            .output()
            .output_if(!self.cross)
            .output_if(!self.cross);
        let multi_head = Case::new("MultiHeadAttention")
            .input(query)
            .input(key)
            .input(value)
            .input(bias)
            .input(mask)
            .input(score_bias)
            .input(past_key)
            .input(past_value)
            .int("num_heads", n as i64)
            .output()
            .output_if(!self.cross)
            .output_if(!self.cross);
        (decoder, multi_head)
    }

    /// The rows of a cache that are used.
    fn used(&self, cache: &Found) -> Found {
        let [b, n, rows, size] = cache.dims[..] else {
            return cache.clone();
        };
        let used = self.past as i64 + 1;
        let heads = cache.values.chunks((rows * size).max(1) as usize);
        Found {
            dims: vec![b, n, used, size],
            values: heads
                .flat_map(|head| head[..(used * size) as usize].to_vec())
                .collect(),
        }
    }
}

#[test]
fn decoder_masked_multi_head_attention() {
    check_all(7, 100, decoder(), |decoder| {
        let (case, multi_head) = decoder.cases();
        if decoder.cross {
            return case.check(decoder.half);
        }
        let found = case.native(Float::F32)?;
        let mut found = found.into_iter();
        let y = found.next();
        let found: Vec<Found> = y
            .into_iter()
            .chain(found.map(|cache| decoder.used(&cache)))
            .collect();
        compare(&case, &found, &multi_head.ort(Float::F32)?, 2e-5)
    });
}

#[derive(Clone, Debug)]
struct Projected {
    batch: usize,
    queries: usize,
    past: Option<usize>,
    width: usize,
    heads: usize,
    size: usize,
    v_size: Option<usize>,
    mask: Mask,
    score_bias: Option<(bool, bool)>,
    unidirectional: bool,
    filter: Option<f32>,
    scale: f32,
    present: bool,
    half: Float,
    seed: u64,
}

fn projected() -> impl Strategy<Value = Projected> {
    let sizes = (1usize..4, 1usize..7, 1usize..20, 1usize..4, 1usize..6, 1usize..6);
    let kinds = [
        Mask::None,
        Mask::Ends,
        Mask::EndsAndStarts,
        Mask::Keys,
        Mask::QueriesAndKeys,
        Mask::Same,
    ];
    let attributes = (
        masks(&kinds),
        any::<Option<(bool, bool)>>(),
        any::<bool>(),
        prop::sample::select(vec![None, Some(-100.0f32), Some(f32::MIN)]),
        prop::sample::select(vec![0.0f32, 0.4]),
    );
    let half = prop::sample::select(vec![Float::F16, Float::Bf16]);
    let rest = (
        prop::option::of(0usize..6),
        any::<bool>(),
        any::<bool>(),
        half,
        any::<u64>(),
    );
    (sizes, attributes, rest).prop_map(|(sizes, attributes, rest)| {
        let v_size = (rest.2 && rest.0.is_none()).then_some(4 * sizes.5);
        Projected {
            batch: sizes.0,
            queries: sizes.1,
            past: rest.0,
            width: sizes.2,
            heads: sizes.3,
            size: 4 * sizes.4,
            v_size,
            mask: attributes.0,
            // ONNX Runtime does not take both.
            score_bias: attributes.1.filter(|_| rest.0.is_none()),
            unidirectional: attributes.2,
            // Added to a future key's score, this filter would not change it: a query whose past is
            // all masked would see its future.
            filter: attributes.3.filter(|&filter| filter > f32::MIN || !attributes.2),
            scale: attributes.4,
            present: rest.0.is_some() || rest.1 && v_size.is_none(),
            half: rest.3,
            seed: rest.4,
        }
    })
}

impl Projected {
    fn case(&self) -> Case {
        let mut numbers = Numbers::new(self.seed);
        let (b, s, n, size) = (self.batch, self.queries, self.heads, self.size);
        let v_size = self.v_size.unwrap_or(size);
        let columns = n * (2 * size + v_size);
        let total = self.past.unwrap_or(0) + s;
        let scale = 1.0 / (self.width as f32).sqrt();
        let mut case = Case::new("Attention")
            .input(numbers.value(&[b, s, self.width], 2.0))
            .input(numbers.value(&[self.width, columns], 2.0 * scale).constant())
            .input(numbers.value(&[columns], 1.0).constant())
            .input(mask(self.mask, &mut numbers, (b, s, total)))
            .input(self.past.map(|past| numbers.value(&[2, b, n, past, size], 1.5)))
            .input(self.score_bias.map(|(batch, heads)| {
                let dims = [if batch { b } else { 1 }, if heads { n } else { 1 }, s, total];
                numbers.value(&dims, 1.0)
            }))
            .int("num_heads", n as i64)
            .int("unidirectional", self.unidirectional)
            .float("scale", self.scale)
            .output()
            .output_if(self.present);
        if self.v_size.is_some() {
            let sizes = [n * size, n * size, n * v_size].map(|size| size as i64);
            case = case.ints("qkv_hidden_sizes", &sizes);
        }
        match self.filter {
            Some(filter) => case.float("mask_filter_value", filter),
            None => case,
        }
    }
}

#[test]
fn attention() {
    check_all(8, 200, projected(), |attention| {
        attention.case().check(attention.half)
    });
}

/// Beams that read each other's rows, with ONNX Runtime's decoder.
#[test]
fn a_cache_shared_by_beams() {
    let cases = (
        (1usize..3, 1usize..4, 1usize..3, 1usize..4),
        (0usize..6, 1usize..4),
        any::<bool>(),
        any::<u64>(),
    );
    check_all(
        38,
        80,
        cases,
        |((batch, beams, heads, size), (past, slack), mask, seed)| {
            let mut numbers = Numbers::new(seed);
            let (items, size, rows) = (batch * beams, 4 * size, past + slack);
            let hidden = heads * size;
            let indirection: Vec<i32> = (0..items * rows).map(|_| numbers.below(beams) as i32).collect();
            let visible: Vec<i32> = (0..items * (past + 1))
                .map(|i| i32::from(i % (past + 1) == past || numbers.below(4) > 0))
                .collect();
            let mut new = || numbers.value(&[items, 1, hidden], 1.0);
            let (query, key, value) = (new(), new(), new());
            let mut cache = || numbers.value(&[items, heads, rows, size], 1.0);
            let (past_key, past_value) = (cache(), cache());
            let case = Case::new("DecoderMaskedMultiHeadAttention")
                .int("num_heads", heads as i64)
                .int("past_present_share_buffer", 1)
                .input(query)
                .input(key)
                .input(value)
                .input(mask.then(|| Value::i32s(&[items, past + 1], &visible)))
                .input(None)
                .input(past_key)
                .input(past_value)
                .input(Value::i32s(&[1], &[past as i32]))
                .input(Value::i32s(&[1], &[beams as i32]))
                .input(Value::i32s(&[batch, beams, rows], &indirection))
                .output()
                .output()
                .output();
            let (ours, theirs) = (case.native(Float::F32)?, case.ort(Float::F32)?);
            compare(&case, &ours[..1], &theirs[..1], 2e-5)?;
            // What lies behind the new row is not said.
            for (ours, theirs) in ours[1..].iter().zip(&theirs[1..]) {
                for (ours, theirs) in ours
                    .values
                    .chunks(rows * size)
                    .zip(theirs.values.chunks(rows * size))
                {
                    if ours[..(past + 1) * size] != theirs[..(past + 1) * size] {
                        return Err(format!("{case:?}: a cache"));
                    }
                }
            }
            Ok(())
        },
    );
}
