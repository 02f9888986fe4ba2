//! The attentions: softmax(scale q k' + bias) v, over what each of them calls its keys.

use super::rotary::Rotation;
use super::{Array, dot, norm};
use crate::harness::Case;

struct Heads<'a> {
    /// [batch, heads, queries, size]
    q: Array,
    /// [batch, kv heads, total, size]
    k: Array,
    v: Array,
    scale: f64,
    softcap: f64,
    /// `(b, h, i, j)`: what is added to a score, or `None` for a key that is not visible.
    add: &'a dyn Fn(usize, usize, usize, usize) -> Option<f64>,
    sink: Option<&'a dyn Fn(usize) -> f64>,
    /// A row in which every key has at least this subtracted is not determined: it depends on
    /// how scores of that size are rounded.
    filter: f64,
}

struct Attended {
    /// [batch, queries, heads * size]
    y: Array,
    /// [batch, heads, queries, total], `hidden` where a key is not visible.
    scores: Array,
    shares: Array,
}

impl Heads<'_> {
    fn attend(&self, hidden: f64) -> Attended {
        let [b, n, s, d] = self.q.dims[..] else { panic!() };
        let [_, g, total, v_size] = self.v.dims[..] else {
            panic!()
        };
        let mut scores = Array::of(&[b, n, s, total], |_| hidden);
        let mut shares = Array::of(&[b, n, s, total], |_| 0.0);
        let mut y = Array::of(&[b, s, n * v_size], |_| 0.0);
        let mut row = 0;
        for b in 0..b {
            for h in 0..n {
                let group = h / (n / g);
                for i in 0..s {
                    let mut seen = Vec::new();
                    let mut judged = false;
                    for j in 0..total {
                        let Some(add) = (self.add)(b, h, i, j) else {
                            continue;
                        };
                        let product = dot(d, |e| self.q.at(&[b, h, i, e]) * self.k.at(&[b, group, j, e]));
                        let mut score = product * self.scale;
                        if self.softcap > 0.0 {
                            score = self.softcap * (score / self.softcap).tanh();
                        }
                        judged |= add > self.filter;
                        seen.push((j, score + add));
                        scores.values[row * total + j] = score + add;
                    }
                    let sink = self.sink.map(|sink| sink(h));
                    let all = || seen.iter().map(|seen| seen.1).chain(sink);
                    let max = all().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = all().map(|x| (x - max).exp()).sum();
                    for &(j, score) in &seen {
                        let share = (score - max).exp() / sum;
                        shares.values[row * total + j] = share;
                        for e in 0..v_size {
                            let at = ((b * s + i) * n + h) * v_size + e;
                            y.values[at] += share * self.v.at(&[b, group, j, e]);
                            if !judged {
                                y.values[at] = f64::NAN;
                            }
                        }
                    }
                    row += 1;
                }
            }
        }
        Attended { y, scores, shares }
    }
}

/// [batch, positions, heads * size] as [batch, heads, positions, size], from head `first` on.
fn split(x: &Array, first: usize, heads: usize, size: usize) -> Array {
    Array::of(&[x.dims[0], heads, x.dims[1], size], |i| {
        x.at(&[i[0], i[2], (first + i[1]) * size + i[3]])
    })
}

/// With a bias for each element of each head, from `first` on.
fn plus(x: Array, bias: Option<&Array>, first: usize) -> Array {
    let size = x.dims[3];
    match bias {
        Some(bias) => Array::of(&x.dims, |i| x.at(i) + bias.at(&[first + i[1] * size + i[3]])),
        None => x,
    }
}

pub fn group_query(case: &Case) -> Vec<Array> {
    let query = case.array(0).unwrap();
    let n = case.int_of("num_heads", 0) as usize;
    let g = case.int_of("kv_num_heads", 0) as usize;
    let [b, s, width] = query.dims[..] else { panic!() };
    let (q, k, v) = match (case.array(1), case.array(2)) {
        (Some(k), Some(v)) => {
            let size = width / n;
            (
                split(&query, 0, n, size),
                split(&k, 0, g, size),
                split(&v, 0, g, size),
            )
        }
        _ => {
            let size = width / (n + 2 * g);
            let part = |first, heads| split(&query, first, heads, size);
            (part(0, n), part(n, g), part(n + g, g))
        }
    };
    let (new, size) = (k.dims[2], q.dims[3]);
    let total = case.array(6).unwrap().values[0] as usize;
    let lengths = case.array(5).unwrap();
    let len = |b: usize| lengths.at(&[b]) as usize + 1;
    let first_step = total == s;
    let start = |b: usize| if first_step { 0 } else { len(b) - s };
    let past_len = |b: usize| if first_step { 0 } else { len(b) - new };

    let epsilon = case.float_of("qk_norm_epsilon", 1e-6);
    let normed = |x: Array, weight: Option<Array>| match weight {
        Some(weight) => norm::root_mean_square(&x, &weight, epsilon),
        None => x,
    };
    let (q, k) = (normed(q, case.array(14)), normed(k, case.array(15)));
    let positions = case.array(9);
    let position = |b: usize, i: usize| match &positions {
        Some(ids) if first_step => ids.values[0] as usize + i,
        Some(ids) => ids.at(&[b, i]) as usize,
        None => start(b) + i,
    };
    let rotated = |x: Array| match case.int_of("do_rotary", 0) {
        0 => x,
        _ => {
            let rotation = Rotation {
                cos: case.array(7).unwrap(),
                sin: case.array(8).unwrap(),
                interleaved: case.int_of("rotary_interleaved", 0) != 0,
            };
            Array::of(&x.dims, |i| {
                let at = |e: usize| x.at(&[i[0], i[1], i[2], e]);
                rotation.element(&at, position(i[0], i[2]), i[3])
            })
        }
    };
    let (q, k) = (rotated(q), rotated(k));
    let present = |past: Option<Array>, new_rows: &Array| {
        let rows = past.as_ref().map_or(0, |past| past.dims[2]).max(total);
        Array::of(&[b, g, rows, size], |i| {
            let before = past_len(i[0]);
            match i[2] {
                j if j < before => past.as_ref().unwrap().at(i),
                j if j < before + new => new_rows.at(&[i[0], i[1], j - before, i[3]]),
                _ => 0.0,
            }
        })
    };
    let (keys, values) = (present(case.array(3), &k), present(case.array(4), &v));
    let used = |x: &Array| Array::of(&[b, g, total, size], |i| x.at(i));
    let causal = case.int_of("causal", 1) != 0;
    let window = case.int_of("local_window_size", -1);
    let bias = case.array(10);
    let add = |b: usize, h: usize, i: usize, j: usize| {
        let own = start(b) + i;
        let seen = j < len(b) && (!causal || j <= own) && (window <= 0 || j as i64 > own as i64 - window);
        seen.then(|| bias.as_ref().map_or(0.0, |bias| bias.broadcast_at(&[b, h, i, j])))
    };
    let sinks = case.array(11);
    let sink = |h: usize| sinks.as_ref().map_or(0.0, |sinks| sinks.at(&[h]));
    let has_sink = sinks.is_some() || case.int_of("smooth_softmax", -1) == 1;
    let heads = Heads {
        q,
        k: used(&keys),
        v: used(&values),
        scale: scale(case, size),
        softcap: case.float_of("softcap", 0.0),
        add: &add,
        sink: if has_sink { Some(&sink) } else { None },
        filter: f64::NEG_INFINITY,
    };
    let attended = heads.attend(0.0);
    let shown = match case.int_of("qk_output", 0) {
        1 => attended.scores,
        _ => attended.shares,
    };
    vec![attended.y, keys, values, shown]
}

fn scale(case: &Case, size: usize) -> f64 {
    match case.float_of("scale", 0.0) {
        0.0 => 1.0 / (size as f64).sqrt(),
        scale => scale,
    }
}

/// Whether a key is masked.
fn masked(mask: &Array, batch: usize, total: usize) -> impl Fn(usize, usize, usize) -> bool {
    move |b, i, j| match mask.dims[..] {
        [len] if len == batch => j as f64 >= mask.at(&[b]),
        [_] => j as f64 >= mask.at(&[b]) || (j as f64) < mask.at(&[batch + b]),
        [_, keys] if keys == total => mask.at(&[b, j]) <= 0.0,
        // The same for all keys.
        [_, _] => false,
        [_, _, _] => mask.at(&[b, i, j]) <= 0.0,
        _ => panic!(),
    }
}

/// What both of the others do: their keys and values are the past ones and then the new ones.
struct Simple<'a> {
    case: &'a Case,
    q: Array,
    k: Array,
    v: Array,
    /// Rows of the past that are used, and buffers that they lie in.
    past: Option<(usize, Array, Array)>,
    mask: Option<Array>,
    bias: Option<Array>,
}

impl Simple<'_> {
    /// y, keys and values as present has them, and the scores.
    fn attend(self) -> [Array; 4] {
        let case = self.case;
        let [b, _, s, size] = self.q.dims[..] else {
            panic!()
        };
        let past_len = self.past.as_ref().map_or(0, |past| past.0);
        let total = past_len + self.k.dims[2];
        let join = |past: Option<&Array>, new: &Array| {
            let rows = past.map_or(0, |past| past.dims[2]).max(total);
            Array::of(&[b, new.dims[1], rows, new.dims[3]], |i| match i[2] {
                j if j < past_len => past.unwrap().at(i),
                j if j < total => new.at(&[i[0], i[1], j - past_len, i[3]]),
                _ => 0.0,
            })
        };
        let past = self.past.as_ref();
        let keys = join(past.map(|past| &past.1), &self.k);
        let values = join(past.map(|past| &past.2), &self.v);
        let used = |x: &Array| Array::of(&[b, x.dims[1], total, x.dims[3]], |i| x.at(i));
        let unidirectional = case.int_of("unidirectional", 0) != 0 && s > 1;
        let filter = case.float_of("mask_filter_value", -10000.0);
        let masked = self.mask.as_ref().map(|mask| masked(mask, b, total));
        let add = |b: usize, h: usize, i: usize, j: usize| {
            if unidirectional && j > past_len + i {
                return None;
            }
            let bias = self
                .bias
                .as_ref()
                .map_or(0.0, |bias| bias.broadcast_at(&[b, h, i, j]));
            let hides = masked.as_ref().is_some_and(|masked| masked(b, i, j));
            Some(bias + if hides { filter } else { 0.0 })
        };
        let heads = Heads {
            q: self.q,
            k: used(&keys),
            v: used(&values),
            scale: scale(case, size),
            softcap: 0.0,
            add: &add,
            sink: None,
            // Less the largest bias.
            filter: filter + 10.0,
        };
        let attended = heads.attend(f64::from(f32::MIN));
        [attended.y, keys, values, attended.scores]
    }
}

pub fn multi_head(case: &Case) -> Vec<Array> {
    let decoder = case.op_type == "DecoderMaskedMultiHeadAttention";
    let [bias, mask, score_bias, past_key, past_value, past_length] = if decoder {
        [10, 3, 4, 5, 6, 7]
    } else {
        [3, 4, 5, 6, 7, 8]
    };
    let n = case.int_of("num_heads", 0) as usize;
    let (query, key, value) = (
        case.array(0).unwrap(),
        case.array(1).unwrap(),
        case.array(2).unwrap(),
    );
    let size = query.last() / n;
    let bias = case.array(bias);
    let q = plus(split(&query, 0, n, size), bias.as_ref(), 0);
    let (k, v) = match key.dims.len() {
        // As a cache has them.
        4 => (key, value),
        _ => {
            let v_size = value.last() / n;
            let k = plus(split(&key, 0, n, size), bias.as_ref(), n * size);
            (k, plus(split(&value, 0, n, v_size), bias.as_ref(), 2 * n * size))
        }
    };
    let past = case.array(past_key).map(|past_key| {
        let used = case
            .array(past_length)
            .map_or(past_key.dims[2], |used| used.values[0] as usize);
        (used, past_key, case.array(past_value).unwrap())
    });
    let simple = Simple {
        case,
        q,
        k,
        v,
        past,
        mask: case.array(mask),
        bias: case.array(score_bias),
    };
    simple.attend().into()
}

/// Attention of com.microsoft.
pub fn projected(case: &Case) -> Vec<Array> {
    let (x, weights) = (case.array(0).unwrap(), case.array(1).unwrap());
    let bias = case.array(2);
    let n = case.int_of("num_heads", 0) as usize;
    let [width, columns] = weights.dims[..] else {
        panic!()
    };
    let (hidden, v_hidden) = match case.ints_of("qkv_hidden_sizes")[..] {
        [hidden, _, v_hidden] => (hidden as usize, v_hidden as usize),
        _ => (columns / 3, columns / 3),
    };
    let all = Array::of(&[x.dims[0], x.dims[1], columns], |i| {
        let product = dot(width, |j| x.at(&[i[0], i[1], j]) * weights.at(&[j, i[2]]));
        product + bias.as_ref().map_or(0.0, |bias| bias.at(&[i[2]]))
    });
    let part = |first: usize, hidden: usize| {
        let part = Array::of(&[x.dims[0], x.dims[1], hidden], |i| {
            all.at(&[i[0], i[1], first + i[2]])
        });
        split(&part, 0, n, hidden / n)
    };
    let past = case.array(4).map(|past| {
        let [_, b, n, rows, size] = past.dims[..] else {
            panic!()
        };
        let half =
            |which: usize| Array::of(&[b, n, rows, size], |i| past.at(&[which, i[0], i[1], i[2], i[3]]));
        (rows, half(0), half(1))
    });
    let simple = Simple {
        case,
        q: part(0, hidden),
        k: part(hidden, hidden),
        v: part(2 * hidden, v_hidden),
        past,
        mask: case.array(3),
        bias: case.array(5),
    };
    let [y, keys, values, _] = simple.attend();
    let dims = [&[2], &keys.dims[..]].concat();
    let both = [keys.values, values.values].concat();
    if hidden != v_hidden {
        return vec![y];
    }
    vec![y, Array { dims, values: both }]
}

/// PackedAttention and PackedMultiHeadAttention, each sequence in a batch item of its own.
pub fn packed(case: &Case) -> Vec<Array> {
    let n = case.int_of("num_heads", 0) as usize;
    let x = case.array(0).unwrap();
    let tokens = x.dims[0];
    // Of all heads: [tokens, hidden]. The offsets follow the bias.
    let (q, k, v, offsets) = match case.op_type {
        "PackedAttention" => {
            let (weights, bias) = (case.array(1).unwrap(), case.array(2).unwrap());
            let (hidden, v_hidden) = match case.ints_of("qkv_hidden_sizes")[..] {
                [hidden, _, v_hidden] => (hidden as usize, v_hidden as usize),
                _ => (weights.last() / 3, weights.last() / 3),
            };
            let part = |first: usize, hidden: usize| {
                Array::of(&[tokens, hidden], |i| {
                    let product = dot(x.last(), |e| x.at(&[i[0], e]) * weights.at(&[e, first + i[1]]));
                    product + bias.at(&[first + i[1]])
                })
            };
            (
                part(0, hidden),
                part(hidden, hidden),
                part(2 * hidden, v_hidden),
                3,
            )
        }
        _ => {
            let bias = case.array(3);
            let (q, k, v) = match (case.array(1), case.array(2)) {
                (Some(k), Some(v)) => (x, k, v),
                _ => {
                    let size = x.last();
                    let part = |part: usize| {
                        Array::of(&[tokens, n * size], |i| {
                            x.at(&[i[0], i[1] / size, part, i[1] % size])
                        })
                    };
                    (part(0), part(1), part(2))
                }
            };
            let hidden = q.last();
            let plus = |x: Array, first: usize| match &bias {
                Some(bias) => Array::of(&x.dims, |i| x.at(i) + bias.at(&[first + i[1]])),
                None => x,
            };
            (plus(q, 0), plus(k, hidden), plus(v, 2 * hidden), 4)
        }
    };
    let [batch, longest] = case.array(offsets).unwrap().dims[..] else {
        panic!()
    };
    let ends = case.array(offsets + 1).unwrap();
    let (start, end) = (
        |b: usize| ends.at(&[b]) as usize,
        |b: usize| ends.at(&[b + 1]) as usize,
    );
    let padded = |x: &Array| {
        let size = x.last() / n;
        Array::of(&[batch, n, longest, size], |i| {
            let token = start(i[0]) + i[2];
            if token < end(i[0]) {
                x.at(&[token, i[1] * size + i[3]])
            } else {
                0.0
            }
        })
    };
    let bias = case.array(offsets + 2);
    let add = |b: usize, h: usize, i: usize, j: usize| {
        let bias = || bias.as_ref().map_or(0.0, |bias| bias.broadcast_at(&[b, h, i, j]));
        (start(b) + j < end(b)).then(bias)
    };
    let heads = Heads {
        q: padded(&q),
        k: padded(&k),
        v: padded(&v),
        scale: scale(case, q.last() / n),
        softcap: 0.0,
        add: &add,
        sink: None,
        filter: f64::NEG_INFINITY,
    };
    let y = heads.attend(0.0).y;
    vec![Array::of(&[tokens, v.last()], |i| {
        let b = (0..batch).find(|&b| i[0] < end(b)).unwrap();
        y.at(&[b, i[0] - start(b), i[1]])
    })]
}
