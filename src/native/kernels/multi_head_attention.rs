//! MultiHeadAttention and DecoderMaskedMultiHeadAttention.
//!
//!   query   [batch, queries, heads * size], or with key and value packed behind each head's
//!           query, [batch, queries, heads, 3, size]
//!   key     [batch, keys, heads * size], or with the values packed, [batch, keys, heads, 2, size],
//!           or all keys as a cache has them, [batch, heads, keys, size]
//!   value   [batch, keys, heads * v_size], or [batch, heads, keys, v_size] with such a key
//!   bias    [heads * size + heads * size + heads * v_size], added to what is not of a cache
//!   key_padding_mask    see `key_mask`
//!   attention_bias      [batch or 1, heads or 1, queries, total], added to the scores
//!   past_key, _value    [batch, heads, past, size]
//!   past_sequence_length  how many rows of the past are used: buffers are as long as they will
//!                       ever be, and rows after the new ones are zero
//!   Y                   [batch, queries, heads * v_size]
//!   present_key, _value [batch, heads, past + keys or the length of the buffer, size]
//!   qk                  [batch, heads, queries, total]: the scores, masked, before the softmax
//!
//! With `unidirectional` and more than one query, query i sees keys up to past + i.
//!
//! The Decoder form has its inputs in another order, one query, and all three projections packed
//! as [batch, 1, 3 * heads * size] when key and value are left out.
//!
//! com.microsoft 1: float, float16, bfloat16 (and double). The equations are in `attend`.

use super::Built;
use super::attend::{Attend, Cache, CacheSizes, Heads, Inputs, Layout, ScoreOutput, ScoreStage};
use super::beam_cache::{BeamCache, Inputs as BeamInputs};
use super::dispatch::with_float;
use super::group_query_attention::{head_count, scale, wrong_dims};
use super::infer::input_type;
use super::key_mask::{KeyMask, MaskSizes};
use super::number::{Float, Number, Scalar};
use super::score_bias::ScoreBias;
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::element_count;

const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;

const Y: usize = 0;
const PRESENT_KEY: usize = 1;
const PRESENT_VALUE: usize = 2;
const SCORES: usize = 3;

/// Where the inputs are, from the fourth on.
#[derive(Debug)]
struct Places {
    bias: usize,
    mask: usize,
    attention_bias: usize,
    past_key: usize,
    past_value: usize,
    past_length: usize,
    beams: usize,
}

const MULTI_HEAD: Places = Places {
    bias: 3,
    mask: 4,
    attention_bias: 5,
    past_key: 6,
    past_value: 7,
    past_length: 8,
    beams: 9,
};

/// Of DecoderMaskedMultiHeadAttention.
const BEAM_WIDTH: usize = 8;

const DECODER: Places = Places {
    bias: 10,
    mask: 3,
    attention_bias: 4,
    past_key: 5,
    past_value: 6,
    past_length: 7,
    beams: 9,
};

#[derive(Debug)]
struct MultiHeadAttention {
    heads: usize,
    scale: Option<f32>,
    filter: f32,
    unidirectional: bool,
    decoder: bool,
    places: &'static Places,
}

fn build(node: &NodeInfo<'_>, decoder: bool) -> Built {
    let places = if decoder { &DECODER } else { &MULTI_HEAD };
    if decoder {
        // Both say what the inputs and outputs in use say too.
        node.flag_or("past_present_share_buffer", false)?;
        node.flag_or("output_qk", false)?;
    }
    let attention = Box::new(MultiHeadAttention {
        heads: head_count(node, "num_heads")?,
        scale: scale(node)?,
        filter: node.float_or("mask_filter_value", -10000.0)?,
        unidirectional: !decoder && node.flag_or("unidirectional", false)?,
        decoder,
        places,
    });
    if !node.has_input(places.beams) {
        return Ok(attention);
    }
    Ok(Box::new(BeamCache {
        attention,
        inputs: BeamInputs {
            past: [places.past_key, places.past_value],
            past_length: places.past_length,
            beam_width: decoder.then_some(BEAM_WIDTH),
            indirection: places.beams,
        },
    }))
}

pub(in crate::native) fn multi_head_attention(node: &NodeInfo<'_>) -> Built {
    build(node, false)
}

pub(in crate::native) fn decoder_masked_multi_head_attention(node: &NodeInfo<'_>) -> Built {
    build(node, true)
}

impl Operator for MultiHeadAttention {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let query = cx.required(QUERY)?;
        let unknown = SymDim::Unknown;
        let rank = query.rank();
        let (batch, queries) = match query.dims.as_deref() {
            Some(&[batch, queries, ..]) => (batch, queries),
            _ => (unknown, unknown),
        };
        let times_heads = |width: SymDim| match width {
            SymDim::Fixed(width) => Ok::<_, OpError>(SymDim::Fixed(element_count(&[width, self.heads])?)),
            _ => Ok(unknown),
        };
        let hidden = match (
            rank,
            query.dims.as_deref(),
            cx.input(VALUE).and_then(|v| v.dims.as_deref()),
        ) {
            (Some(5), Some(&[_, _, _, _, size]), _) => times_heads(size)?,
            (_, _, Some(&[_, _, hidden])) => hidden,
            (_, _, Some(&[_, _, _, size])) => times_heads(size)?,
            (Some(3), Some(&[_, _, hidden]), None) if !self.decoder => hidden,
            _ => unknown,
        };
        let ty = query.ty;
        cx.set_output(Y, ty, Some(SymDims::from_iter([batch, queries, hidden])));
        let heads = SymDim::Fixed(self.heads);
        for (index, past) in [
            (PRESENT_KEY, self.places.past_key),
            (PRESENT_VALUE, self.places.past_value),
        ] {
            let ty = input_type(cx, past).or(ty);
            cx.set_output(
                index,
                ty,
                Some(SymDims::from_iter([batch, heads, unknown, unknown])),
            );
        }
        cx.set_output(
            SCORES,
            ty,
            Some(SymDims::from_iter([batch, heads, queries, unknown])),
        );
        Ok(())
    }

    fn past_of(&self, output: usize) -> Option<usize> {
        match output {
            PRESENT_KEY => Some(self.places.past_key),
            PRESENT_VALUE => Some(self.places.past_value),
            _ => None,
        }
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let query = cx.required(QUERY)?;
        with_float!(query.element_type(), T => self.run_as::<T>(cx))
    }
}

/// Queries, keys and values of this step, and their sizes.
struct Projected<'a, T> {
    batch: usize,
    queries: usize,
    keys: usize,
    size: usize,
    v_size: usize,
    q: Heads<'a, T>,
    k: Heads<'a, T>,
    v: Heads<'a, T>,
    /// Keys and values are those of a cache: no bias.
    cached: bool,
}

/// Part `part` of `parts` packed behind each other in each head.
pub(super) fn packed<T>(data: &[T], dims: [usize; 5], part: usize) -> Heads<'_, T> {
    let [_, positions, heads, parts, size] = dims;
    let layout = Layout::positions_first(heads, positions, parts.wrapping_mul(size));
    Heads {
        data: data.get(part * size..).unwrap_or_default(),
        layout: Layout {
            width: size,
            ..layout
        },
    }
}

impl MultiHeadAttention {
    fn projected<'a, T: Float>(&self, cx: &RunContext<'a>) -> Result<Projected<'a, T>, OpError> {
        let n = self.heads;
        let query = cx.required(QUERY)?;
        let q_data = query.slice::<T>()?;
        let split = |index: usize, width: usize, parts: usize| match n.checked_mul(parts) {
            Some(all) if width.is_multiple_of(all) => Ok(width / all),
            _ => Err(OpError::Message(format!(
                "{n} heads do not divide the {width} elements of a row of input {index}"
            ))),
        };
        let (batch, queries, hidden) = match *query.dims() {
            [b, s, heads, 3, size] if heads == n && cx.input(KEY).is_none() => {
                let dims = [b, s, heads, 3, size];
                return Ok(Projected {
                    batch: b,
                    queries: s,
                    keys: s,
                    size,
                    v_size: size,
                    q: packed(q_data, dims, 0),
                    k: packed(q_data, dims, 1),
                    v: packed(q_data, dims, 2),
                    cached: false,
                });
            }
            [b, s, hidden] => (b, s, hidden),
            _ => {
                return Err(wrong_dims(
                    QUERY,
                    &query,
                    format!("[batch, queries, hidden] or [batch, queries, {n}, 3, size]"),
                ));
            }
        };
        let Some(key) = cx.input(KEY) else {
            if !self.decoder {
                return Err(OpError::MissingInput { index: KEY });
            }
            let size = split(QUERY, hidden, 3)?;
            let layout = Layout::positions_first(n.wrapping_mul(3), queries, size);
            let part = |part: usize| Heads {
                data: q_data.get(part * n * size..).unwrap_or_default(),
                layout,
            };
            return Ok(Projected {
                batch,
                queries,
                keys: queries,
                size,
                v_size: size,
                q: part(0),
                k: part(1),
                v: part(2),
                cached: false,
            });
        };
        let size = split(QUERY, hidden, 1)?;
        let q = Heads {
            data: q_data,
            layout: Layout::positions_first(n, queries, size),
        };
        let k_data = key.slice::<T>()?;
        if let [b, keys, heads, 2, width] = *key.dims()
            && (b, heads, width) == (batch, n, size)
        {
            let dims = [b, keys, heads, 2, width];
            return Ok(Projected {
                batch,
                queries,
                keys,
                size,
                v_size: size,
                q,
                k: packed(k_data, dims, 0),
                v: packed(k_data, dims, 1),
                cached: false,
            });
        }
        let value = cx.required(VALUE)?;
        let v_data = value.slice::<T>()?;
        let (keys, v_size, cached) = match (key.dims(), value.dims()) {
            (&[b, keys, width], &[v_b, v_keys, v_width])
                if (b, width) == (batch, hidden) && (v_b, v_keys) == (batch, keys) =>
            {
                (keys, split(VALUE, v_width, 1)?, false)
            }
            (&[b, heads, keys, width], &[v_b, v_heads, v_keys, v_size])
                if (b, heads, width) == (batch, n, size) && (v_b, v_heads, v_keys) == (batch, n, keys) =>
            {
                (keys, v_size, true)
            }
            _ => {
                return Err(OpError::Message(format!(
                    "key {:?} and value {:?} do not go with query {:?} and {n} heads",
                    key.dims(),
                    value.dims(),
                    query.dims()
                )));
            }
        };
        let layout = match cached {
            true => Layout::heads_first,
            false => Layout::positions_first,
        };
        Ok(Projected {
            batch,
            queries,
            keys,
            size,
            v_size,
            q,
            k: Heads {
                data: k_data,
                layout: layout(n, keys, size),
            },
            v: Heads {
                data: v_data,
                layout: layout(n, keys, v_size),
            },
            cached,
        })
    }

    /// Rows of the past that are used, and rows that its buffers have.
    fn past<T>(&self, cx: &RunContext<'_>, p: &Projected<'_, T>) -> Result<(usize, usize), OpError> {
        let (key, value) = match (cx.input(self.places.past_key), cx.input(self.places.past_value)) {
            (None, None) => return Ok((0, 0)),
            (Some(key), Some(value)) => (key, value),
            _ => return Err(OpError::Message("past_key and past_value come together".into())),
        };
        if p.cached {
            return Err(OpError::Message("a past, and keys that are a cache".into()));
        }
        let rows = key.dims().get(2).copied().unwrap_or(0);
        for (index, tensor, size) in [
            (self.places.past_key, key, p.size),
            (self.places.past_value, value, p.v_size),
        ] {
            let expected = [p.batch, self.heads, rows, size];
            if tensor.dims() != expected {
                return Err(wrong_dims(index, &tensor, format!("{expected:?}")));
            }
        }
        let Some(given) = cx.input(self.places.past_length) else {
            return Ok((rows, rows));
        };
        let used = match given.to_ints()?[..] {
            [used] => usize::try_from(used).ok(),
            _ => None,
        };
        let fits = |&used: &usize| used.checked_add(p.keys).is_some_and(|end| end <= rows);
        used.filter(fits).map(|used| (used, rows)).ok_or_else(|| {
            OpError::Message(format!(
                "past_sequence_length {given:?} and {} new keys do not fit a buffer of {rows}",
                p.keys
            ))
        })
    }

    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let p = self.projected::<T>(cx)?;
        let (past, rows) = self.past(cx, &p)?;
        let total = past.checked_add(p.keys).ok_or_else(|| OpError::TooLarge {
            dims: [past, p.keys].into_iter().collect(),
        })?;
        let present_rows = rows.max(total);
        let n = self.heads;
        let (hidden, v_hidden) = (element_count(&[n, p.size])?, element_count(&[n, p.v_size])?);
        let bias = match cx.input(self.places.bias) {
            None => None,
            Some(bias) => {
                let given = bias.slice::<T>()?;
                if given.len() != 2 * hidden + v_hidden {
                    let expected = format!("[{}]", 2 * hidden + v_hidden);
                    return Err(wrong_dims(self.places.bias, &bias, expected));
                }
                Some(given)
            }
        };
        let attend = Attend {
            batch: p.batch,
            query_heads: n,
            kv_heads: n,
            queries: p.queries,
            total,
            width: p.size,
            scale: match self.scale {
                Some(scale) => scale.into(),
                None => 1.0 / (p.size as f64).sqrt(),
            },
            softcap: 0.0,
            double_softmax: false,
        };
        // Keys and values with their bias are kept.
        let biased = bias.filter(|_| !p.cached);
        let kept = |hidden: usize| match biased {
            Some(_) => element_count(&[p.batch, p.keys, hidden]),
            None => Ok(0),
        };
        let (k_kept, v_kept) = (kept(hidden)?, kept(v_hidden)?);
        let scratch_len = attend.scratch_len(p.v_size, cx.workers());
        let scratch_len = scratch_len.and_then(|len| len.checked_add(k_kept)?.checked_add(v_kept));
        let scratch_len = scratch_len.ok_or_else(|| OpError::TooLarge {
            dims: [p.batch, p.keys, n, p.size].into_iter().collect(),
        })?;
        let scratch = cx.scratch::<T::Wide>(scratch_len)?;
        let (k_kept, scratch) = scratch.split_at_mut(k_kept);
        let (v_kept, scratch) = scratch.split_at_mut(v_kept);
        let run = Run {
            op: self,
            p: &p,
            attend: &attend,
            past,
            rows,
            present_rows,
            q_bias: bias.map(|bias| &bias[..hidden]),
        };
        let Some(bias) = biased else {
            return run.attend::<T>(cx, p.k, p.v, scratch);
        };
        let k = add_bias(&p, p.k, &bias[hidden..2 * hidden], n, k_kept);
        let v = add_bias(&p, p.v, &bias[2 * hidden..], n, v_kept);
        run.attend::<T::Wide>(cx, k, v, scratch)
    }
}

/// [batch, keys, heads * width] with the bias added.
fn add_bias<'s, T: Float>(
    p: &Projected<'_, T>,
    from: Heads<'_, T>,
    bias: &[T],
    heads: usize,
    to: &'s mut [T::Wide],
) -> Heads<'s, T::Wide> {
    let width = from.layout.width;
    let layout = Layout::positions_first(heads, p.keys, width);
    if !to.is_empty() {
        for b in 0..p.batch {
            for h in 0..heads {
                for j in 0..p.keys {
                    let row = from.row(b, h, j).iter().zip(&bias[h * width..]);
                    for (to, (x, bias)) in to[layout.start(b, h, j)..].iter_mut().zip(row) {
                        *to = x.widen().add(bias.widen());
                    }
                }
            }
        }
    }
    Heads { data: to, layout }
}

/// What one run has found out.
struct Run<'r, 'a, T> {
    op: &'r MultiHeadAttention,
    p: &'r Projected<'a, T>,
    attend: &'r Attend,
    past: usize,
    rows: usize,
    present_rows: usize,
    q_bias: Option<&'a [T]>,
}

impl<T: Float> Run<'_, '_, T> {
    fn attend<N: Number<Wide = T::Wide>>(
        &self,
        cx: &mut RunContext<'_>,
        k: Heads<'_, N>,
        v: Heads<'_, N>,
        scratch: &mut [T::Wide],
    ) -> Result<(), OpError> {
        let (p, places, n) = (self.p, self.op.places, self.op.heads);
        let total = self.attend.total;
        let past_len = |_| self.past;
        let sizes = CacheSizes {
            batch: p.batch,
            heads: n,
            past_rows: self.rows,
            new: p.keys,
            rows: self.present_rows,
        };
        let keys = Cache::<T, N>::grow(cx, (places.past_key, PRESENT_KEY), sizes, &past_len, k)?;
        let values = Cache::<T, N>::grow(cx, (places.past_value, PRESENT_VALUE), sizes, &past_len, v)?;
        let full = [p.batch, n, p.queries, total];
        let shown = match cx.output_used(SCORES) {
            true => Some(ScoreOutput {
                stage: ScoreStage::Masked,
                scores: cx.output::<T>(SCORES, &full)?.into_mut(),
                hidden: T::narrow(T::Wide::from_f64(f64::from(f32::MIN))),
            }),
            false => None,
        };
        let mask = match cx.input(places.mask) {
            Some(mask) => {
                let sizes = MaskSizes {
                    batch: p.batch,
                    queries: p.queries,
                    past: self.past,
                    total,
                };
                Some(KeyMask::new(places.mask, mask, sizes, self.op.filter)?)
            }
            None => None,
        };
        let bias = match cx.input(places.attention_bias) {
            Some(bias) => Some(ScoreBias::<T>::new(places.attention_bias, bias, full)?),
            None => None,
        };
        let add_mask = |b: usize, h: usize, i: usize, first: usize, scores: &mut [T::Wide]| {
            if let Some(bias) = &bias {
                bias.add_to(b, h, i, first, scores);
            }
            if let Some(mask) = &mask {
                mask.add_to(b, i, first, scores);
            }
        };
        let load_query = |b: usize, h: usize, i: usize, row: &mut [T::Wide]| {
            for (to, x) in row.iter_mut().zip(p.q.row(b, h, i)) {
                *to = x.widen();
            }
            if let Some(bias) = self.q_bias {
                for (x, bias) in row.iter_mut().zip(&bias[h * p.size..]) {
                    *x = x.add(bias.widen());
                }
            }
        };
        let causal = self.op.unidirectional && p.queries > 1;
        let visible = |_b: usize, i: usize| 0..if causal { self.past + i + 1 } else { total };
        let y = match cx.output_used(Y) {
            true => {
                let hidden = element_count(&[n, p.v_size])?;
                Some(cx.output::<T>(Y, &[p.batch, p.queries, hidden])?.into_mut())
            }
            false => None,
        };
        let nothing = |output: Option<&[T]>| output.is_none_or(|output| output.is_empty());
        if nothing(y.as_deref()) && nothing(shown.as_ref().map(|shown| &*shown.scores)) {
            return Ok(());
        }
        let inputs = Inputs {
            q: &load_query,
            k: &keys,
            v: &values,
            visible: &visible,
            add_mask: &add_mask,
            sink: None,
        };
        let layout = Layout::positions_first(n, p.queries, p.v_size);
        self.attend.run(cx.workers(), &inputs, scratch, y, layout, shown);
        Ok(())
    }
}
