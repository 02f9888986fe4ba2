//! GroupQueryAttention: causal attention of grouped heads over a cache, rotation included.
//!
//!   query                [batch, queries, num_heads * size], or with key and value left out
//!                        [batch, queries, (num_heads + 2 kv_num_heads) * size]
//!   key, value           [batch, new, kv_num_heads * size]; new is queries, or 0 if the cache
//!                        has all keys already
//!   past_key, _value     [batch, kv_num_heads, rows, size]
//!   seqlens_k            [batch]: keys of each batch item, new ones included, minus 1
//!   total_sequence_length  the largest of them, plus 1
//!   cos_cache, sin_cache [max position, half], with `do_rotary`
//!   position_ids         [batch, queries]
//!   attention_bias       [batch or 1, num_heads or 1, queries, total], added to the scores
//!   head_sink            [num_heads]; `smooth_softmax` is a sink of 0
//!   q_norm_, k_norm_weight  [size]: RMSNormalization of each head before it is rotated
//!   Y                    [batch, queries, num_heads * size]
//!   present_key, _value  [batch, kv_num_heads, max(rows, total), size]
//!   output_qk            [batch, num_heads, queries, total], with `qk_output` 1 the scores before
//!                        the softmax, with 2 after it, and 0 where a key is not visible
//!
//! With as many queries as keys in all it is the first step (a prompt): nothing of the cache is
//! read, queries count from 0, and keys from a batch item's length on are padding. Otherwise the
//! rows of the cache that a batch item uses are its length less the new ones, and the new ones
//! follow them, in front of what else the buffer holds; rows after them are zero. Query i sees
//! keys up to its own, and at most `local_window_size` of them.
//!
//! Caches that are quantised, or no longer than the window, are in `resident_cache`.
//!
//! In the first step position_ids say where the first query is, and the others follow it.
//!
//! com.microsoft 1: float, float16, bfloat16 (and double). The equations are in `attend`.

use super::Built;
use super::attend::{
    Attend, Cache, CacheSizes, Heads, Inputs, Keys, Layout, ScoreOutput, ScoreStage, Values,
};
use super::dispatch::with_float;
use super::infer::input_type;
use super::number::{Float, Number, Scalar};
use super::prepared_heads::Prepare;
use super::resident_cache::{Quantization, WindowCache, quantization};
use super::score_bias::ScoreBias;
use super::sparse_attention::{BlockMask, MASK_COLUMNS, MASK_ROWS};
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{TensorRef, element_count};

const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;
pub(super) const PAST_KEY: usize = 3;
pub(super) const PAST_VALUE: usize = 4;
const LENGTHS: usize = 5;
const TOTAL: usize = 6;
pub(super) const COS: usize = 7;
pub(super) const SIN: usize = 8;
pub(super) const POSITIONS: usize = 9;
const BIAS: usize = 10;
const SINK: usize = 11;
pub(super) const Q_NORM: usize = 14;
pub(super) const K_NORM: usize = 15;

const Y: usize = 0;
pub(super) const PRESENT_KEY: usize = 1;
pub(super) const PRESENT_VALUE: usize = 2;
const SCORES: usize = 3;

#[derive(Debug)]
pub(super) struct GroupQueryAttention {
    heads: usize,
    pub(super) kv_heads: usize,
    scale: Option<f32>,
    softcap: f32,
    causal: bool,
    window: Option<usize>,
    pub(super) rotary: bool,
    pub(super) interleaved: bool,
    smooth: bool,
    stage: Option<ScoreStage>,
    pub(super) norm_epsilon: f32,
    pub(super) quantization: Option<Quantization>,
    /// Whether the cache holds no more than the window needs.
    pub(super) window_cache: Option<WindowCache>,
    /// The positions of a block of SparseAttention.
    block_size: Option<usize>,
}

/// A number of heads, which the definition asks for.
pub(super) fn head_count(node: &NodeInfo<'_>, name: &str) -> Result<usize, OpError> {
    let found = node.int(name)?;
    match found.and_then(|heads| usize::try_from(heads).ok()) {
        Some(heads @ 1..) => Ok(heads),
        _ => Err(OpError::Attribute {
            name: name.into(),
            message: match found {
                Some(found) => format!("is {found}, expected at least 1"),
                None => "is missing".into(),
            },
        }),
    }
}

/// The attribute `scale`; 0 stands for the default.
pub(super) fn scale(node: &NodeInfo<'_>) -> Result<Option<f32>, OpError> {
    Ok(node.float("scale")?.filter(|&scale| scale != 0.0))
}

pub(in crate::native) fn group_query_attention(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GroupQueryAttention::read(node)?))
}

fn read(node: &NodeInfo<'_>) -> Result<GroupQueryAttention, OpError> {
    let (heads, kv_heads) = (head_count(node, "num_heads")?, head_count(node, "kv_num_heads")?);
    if !heads.is_multiple_of(kv_heads) {
        return Err(OpError::Attribute {
            name: "num_heads".into(),
            message: format!("is {heads}, expected a multiple of kv_num_heads, {kv_heads}"),
        });
    }
    let stage = match node.int_or("qk_output", 0)? {
        0 => None,
        1 => Some(ScoreStage::Masked),
        2 => Some(ScoreStage::Probability),
        other => {
            return Err(OpError::Attribute {
                name: "qk_output".into(),
                message: format!("is {other}, expected 0 to 2"),
            });
        }
    };
    let causal = node.flag_or("causal", true)?;
    let window = usize::try_from(node.int_or("local_window_size", -1)?).ok();
    let window = window.filter(|&window| window > 0);
    if window.is_some() && !causal {
        return Err(OpError::Attribute {
            name: "local_window_size".into(),
            message: "is given without causal".into(),
        });
    }
    let window_cache = match (node.flag_or("sliding_window_cache", false)?, window) {
        (false, _) => None,
        (true, Some(window)) => Some(WindowCache { window }),
        (true, None) => {
            return Err(OpError::Attribute {
                name: "sliding_window_cache".into(),
                message: "is given without local_window_size".into(),
            });
        }
    };
    if window_cache.is_some() && stage.is_some() {
        return Err(OpError::Unsupported(
            "qk_output of a cache of the size of the window (sliding_window_cache)".into(),
        ));
    }
    Ok(GroupQueryAttention {
        block_size: None,
        quantization: quantization(node)?,
        window_cache,
        heads,
        kv_heads,
        scale: scale(node)?,
        softcap: node.float_or("softcap", 0.0)?,
        causal,
        window,
        rotary: node.flag_or("do_rotary", false)?,
        interleaved: node.flag_or("rotary_interleaved", false)?,
        smooth: node.int_or("smooth_softmax", -1)? == 1,
        stage,
        norm_epsilon: node.float_or("qk_norm_epsilon", 1e-6)?,
    })
}

impl Operator for GroupQueryAttention {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let query = cx.required(QUERY)?;
        let unknown = SymDim::Unknown;
        let (mut batch, mut queries, mut hidden, mut size) = (unknown, unknown, unknown, unknown);
        if let Some(&[b, s, width]) = query.dims.as_deref() {
            (batch, queries) = (b, s);
            let heads = match cx.input(KEY) {
                Some(_) => self.heads,
                None => self.heads.saturating_add(self.kv_heads.saturating_mul(2)),
            };
            if let SymDim::Fixed(width) = width {
                size = SymDim::Fixed(width / heads);
                hidden = SymDim::Fixed(element_count(&[width / heads, self.heads])?);
            }
        }
        let ty = query.ty;
        cx.set_output(Y, ty, Some(SymDims::from_iter([batch, queries, hidden])));
        let kv_heads = SymDim::Fixed(self.kv_heads);
        for (index, past) in [(PRESENT_KEY, PAST_KEY), (PRESENT_VALUE, PAST_VALUE)] {
            let (ty, size) = match &self.quantization {
                None => (input_type(cx, past).or(ty), size),
                Some(quantization) => (
                    input_type(cx, past).or(Some(quantization.default_type())),
                    match size {
                        SymDim::Fixed(size) => SymDim::Fixed(quantization.row_bytes(size)),
                        other => other,
                    },
                ),
            };
            let dims = SymDims::from_iter([batch, kv_heads, unknown, size]);
            cx.set_output(index, ty, Some(dims));
        }
        let heads = SymDim::Fixed(self.heads);
        cx.set_output(
            SCORES,
            ty,
            Some(SymDims::from_iter([batch, heads, queries, unknown])),
        );
        Ok(())
    }

    fn past_of(&self, output: usize) -> Option<usize> {
        match output {
            _ if self.window_cache.is_some() => None,
            PRESENT_KEY => Some(PAST_KEY),
            PRESENT_VALUE => Some(PAST_VALUE),
            _ => None,
        }
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let query = cx.required(QUERY)?;
        with_float!(query.element_type(), T => self.run_as::<T>(cx))
    }
}

/// The three projections, and the sizes that go with them.
pub(super) struct Projected<'a, T> {
    pub batch: usize,
    pub queries: usize,
    /// Keys of this step.
    pub new: usize,
    pub size: usize,
    q: Heads<'a, T>,
    pub k: Heads<'a, T>,
    pub v: Heads<'a, T>,
}

pub(super) fn wrong_dims(index: usize, tensor: &TensorRef<'_>, expected: impl Into<String>) -> OpError {
    OpError::WrongDims {
        what: format!("input {index}"),
        found: tensor.dims().into(),
        expected: expected.into(),
    }
}

/// What is known of the cache in this run.
pub(super) struct Lengths<'a> {
    /// Keys of each batch item, minus 1.
    pub last: &'a [i32],
    pub total: usize,
    pub first_step: bool,
    /// Rows of the past buffers.
    pub past_rows: usize,
    new: usize,
    queries: usize,
}

impl Lengths<'_> {
    /// Keys of a batch item.
    pub fn of(&self, b: usize) -> usize {
        // `lengths` has checked that it is from 0 on.
        self.last.get(b).map_or(0, |&last| last as usize + 1)
    }

    /// Keys before those of this step.
    pub fn past(&self, b: usize) -> usize {
        if self.first_step { 0 } else { self.of(b) - self.new }
    }

    /// The position of query 0.
    fn start(&self, b: usize) -> usize {
        if self.first_step {
            0
        } else {
            self.of(b) - self.queries
        }
    }
}

impl GroupQueryAttention {
    /// From a node's attributes.
    pub(super) fn read(node: &NodeInfo<'_>) -> Result<Self, OpError> {
        read(node)
    }

    /// The same with the mask of blocks of SparseAttention, at inputs of its own.
    pub(super) fn with_blocks(self, block_size: usize) -> Self {
        GroupQueryAttention {
            block_size: Some(block_size),
            ..self
        }
    }

    fn projected<'a, T: Float>(&self, cx: &RunContext<'a>) -> Result<Projected<'a, T>, OpError> {
        let query = cx.required(QUERY)?;
        let &[batch, queries, hidden] = query.dims() else {
            return Err(wrong_dims(QUERY, &query, "rank 3"));
        };
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        let data = query.slice::<T>()?;
        let (key, value) = match (cx.input(KEY), cx.input(VALUE)) {
            (Some(key), Some(value)) => (key, value),
            (None, None) => {
                let all = heads.saturating_add(kv_heads.saturating_mul(2));
                if !hidden.is_multiple_of(all) {
                    return Err(wrong_dims(
                        QUERY,
                        &query,
                        format!("a last dim that {all} heads divide"),
                    ));
                }
                let size = hidden / all;
                let layout = Layout {
                    width: size,
                    ..Layout::positions_first(all, queries, size)
                };
                let part = |first: usize| Heads {
                    data: data.get(first * size..).unwrap_or_default(),
                    layout,
                };
                return Ok(Projected {
                    batch,
                    queries,
                    new: queries,
                    size,
                    q: part(0),
                    k: part(heads),
                    v: part(heads + kv_heads),
                });
            }
            _ => return Err(OpError::Message("key and value come together".into())),
        };
        if !hidden.is_multiple_of(heads) {
            return Err(wrong_dims(
                QUERY,
                &query,
                format!("a last dim that {heads} heads divide"),
            ));
        }
        let size = hidden / heads;
        let new = key.dims().get(1).copied().unwrap_or(0);
        let expected = [batch, new, element_count(&[kv_heads, size])?];
        for (index, tensor) in [(KEY, &key), (VALUE, &value)] {
            if tensor.dims() != expected || new != queries && new != 0 {
                return Err(wrong_dims(
                    index,
                    tensor,
                    format!("[{batch}, {queries} or 0, {}]", expected[2]),
                ));
            }
        }
        let layout = Layout::positions_first(kv_heads, new, size);
        Ok(Projected {
            batch,
            queries,
            new,
            size,
            q: Heads {
                data,
                layout: Layout::positions_first(heads, queries, size),
            },
            k: Heads {
                data: key.slice()?,
                layout,
            },
            v: Heads {
                data: value.slice()?,
                layout,
            },
        })
    }

    fn lengths<'a, T>(&self, cx: &RunContext<'a>, p: &Projected<'_, T>) -> Result<Lengths<'a>, OpError> {
        let past_rows = match (cx.input(PAST_KEY), cx.input(PAST_VALUE)) {
            (None, None) => 0,
            (Some(key), Some(value)) => {
                let rows = key.dims().get(2).copied().unwrap_or(0);
                let width = match &self.quantization {
                    None => p.size,
                    Some(quantization) => quantization.row_bytes(p.size),
                };
                let expected = [p.batch, self.kv_heads, rows, width];
                for (index, tensor) in [(PAST_KEY, key), (PAST_VALUE, value)] {
                    if tensor.dims() != expected {
                        return Err(wrong_dims(index, &tensor, format!("{expected:?}")));
                    }
                }
                rows
            }
            _ => return Err(OpError::Message("past_key and past_value come together".into())),
        };
        let total = cx.required(TOTAL)?;
        let total = match total.to_ints()?[..] {
            [total] => usize::try_from(total).unwrap_or(0),
            _ => return Err(wrong_dims(TOTAL, &total, "one element")),
        };
        let tensor = cx.required(LENGTHS)?;
        let lengths = Lengths {
            last: tensor.slice::<i32>()?,
            total,
            first_step: total == p.queries,
            past_rows,
            new: p.new,
            queries: p.queries,
        };
        if lengths.last.len() != p.batch {
            return Err(wrong_dims(LENGTHS, &tensor, format!("[{}]", p.batch)));
        }
        let (least, most) = match lengths.first_step {
            true => (1, total),
            // A cache of the size of the window is of keys that are not all there any more.
            false if self.window_cache.is_some() => (p.queries.max(1), total),
            false => (p.queries.max(1), total.min(past_rows.saturating_add(p.new))),
        };
        let in_range =
            |&last: &i32| usize::try_from(last).is_ok_and(|last| (least..=most).contains(&(last + 1)));
        if !lengths.last.iter().all(in_range) {
            return Err(OpError::Message(format!(
                "seqlens_k {:?}: expected {} to {} for {} queries, {} past rows and total_sequence_length {total}",
                lengths.last,
                least as i128 - 1,
                most as i128 - 1,
                p.queries,
                past_rows,
            )));
        }
        if lengths.first_step && p.new != p.queries {
            return Err(OpError::Message("the first step has queries but no keys".into()));
        }
        Ok(lengths)
    }

    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let p = self.projected::<T>(cx)?;
        let lengths = self.lengths(cx, &p)?;
        let prepare = Prepare::<T>::new(self, cx, &p, &lengths)?;
        let attend = Attend {
            batch: p.batch,
            query_heads: self.heads,
            kv_heads: self.kv_heads,
            queries: p.queries,
            total: lengths.total,
            width: p.size,
            scale: match self.scale {
                Some(scale) => scale.into(),
                None => 1.0 / (p.size as f64).sqrt(),
            },
            softcap: self.softcap.into(),
            double_softmax: false,
        };
        if self.quantization.is_some() || self.window_cache.is_some() {
            return self.run_resident::<T>(cx, &p, &lengths, &prepare, attend);
        }
        // New keys that are not what the caller gave have to be kept somewhere.
        let kept = match prepare.changes_keys() {
            true => element_count(&[p.batch, p.new, self.kv_heads, p.size])?,
            false => 0,
        };
        let scratch_len = attend
            .scratch_len(p.size, cx.workers())
            .and_then(|len| len.checked_add(kept));
        let scratch_len = scratch_len.ok_or_else(|| OpError::TooLarge {
            dims: [p.batch, p.new, self.kv_heads, p.size].into_iter().collect(),
        })?;
        let (kept, scratch) = cx.scratch::<T::Wide>(scratch_len)?.split_at_mut(kept);
        if kept.is_empty() {
            return self.attend::<T, T>(cx, &p, &lengths, &prepare, &attend, p.k, scratch);
        }
        let layout = Layout::positions_first(self.kv_heads, p.new, p.size);
        for b in 0..p.batch {
            for i in 0..p.new {
                for h in 0..self.kv_heads {
                    let row = &mut kept[layout.start(b, h, i)..][..p.size];
                    prepare.key(p.k.row(b, h, i), b, i, row);
                }
            }
        }
        let keys = Heads { data: &*kept, layout };
        self.attend::<T, T::Wide>(cx, &p, &lengths, &prepare, &attend, keys, scratch)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one run")]
    fn attend<T: Float, K: Number<Wide = T::Wide>>(
        &self,
        cx: &mut RunContext<'_>,
        p: &Projected<'_, T>,
        lengths: &Lengths<'_>,
        prepare: &Prepare<'_, T>,
        attend: &Attend,
        keys: Heads<'_, K>,
        scratch: &mut [T::Wide],
    ) -> Result<(), OpError> {
        let past_len = |b| lengths.past(b);
        let sizes = CacheSizes {
            batch: p.batch,
            heads: self.kv_heads,
            past_rows: lengths.past_rows,
            new: p.new,
            rows: lengths.past_rows.max(lengths.total),
        };
        let keys = Cache::<T, K>::grow(cx, (PAST_KEY, PRESENT_KEY), sizes, &past_len, keys)?;
        let values = Cache::<T, T>::grow(cx, (PAST_VALUE, PRESENT_VALUE), sizes, &past_len, p.v)?;
        self.finish::<T>(cx, p, lengths, prepare, attend, (&keys, &values), &|_| 0, scratch)
    }

    /// The outputs but for the cache, from all keys and values that are used; `first` is the position
    /// of the first of them.
    #[expect(clippy::too_many_arguments, reason = "the parts of one run")]
    pub(super) fn finish<T: Float>(
        &self,
        cx: &mut RunContext<'_>,
        p: &Projected<'_, T>,
        lengths: &Lengths<'_>,
        prepare: &Prepare<'_, T>,
        attend: &Attend,
        (keys, values): (&dyn Keys<T::Wide>, &dyn Values<T::Wide>),
        first_of: &(dyn Fn(usize) -> usize + Sync),
        scratch: &mut [T::Wide],
    ) -> Result<(), OpError> {
        let shown = match (self.stage, cx.output_used(SCORES)) {
            (_, false) => None,
            (None, true) => {
                return Err(OpError::Attribute {
                    name: "qk_output".into(),
                    message: "is 0, which gives no scores, but they are read".into(),
                });
            }
            (Some(stage), true) => Some(ScoreOutput {
                stage,
                scores: cx
                    .output::<T>(SCORES, &[p.batch, self.heads, p.queries, lengths.total])?
                    .into_mut(),
                hidden: T::narrow(T::Wide::ZERO),
            }),
        };
        let bias = match cx.input(BIAS) {
            Some(bias) => Some(ScoreBias::<T>::new(
                BIAS,
                bias,
                [p.batch, self.heads, p.queries, lengths.total],
            )?),
            None => None,
        };
        let blocks = match self.block_size {
            Some(size) => {
                let (rows, columns) = (cx.required(MASK_ROWS)?, cx.required(MASK_COLUMNS)?);
                Some(BlockMask::new(rows, columns, size, lengths.total)?)
            }
            None => None,
        };
        let sink = match cx.input(SINK) {
            Some(sink) if sink.dims() == [self.heads] => Some(sink.slice::<T>()?),
            Some(sink) => return Err(wrong_dims(SINK, &sink, format!("[{}]", self.heads))),
            None => None,
        };
        let sink = |h: usize| {
            sink.and_then(|sink| sink.get(h))
                .map_or(T::Wide::ZERO, |x| x.widen())
        };
        let has_sink = self.smooth || cx.input(SINK).is_some();
        let load_query = |b: usize, h: usize, i: usize, row: &mut [T::Wide]| {
            prepare.query(p.q.row(b, h, i), b, i, row);
        };
        let visible = |b: usize, i: usize| {
            let (all, base) = (lengths.of(b), first_of(b));
            if !self.causal {
                return 0..all - base;
            }
            let end = lengths.start(b) + i + 1;
            let first = self.window.map_or(0, |window| end.saturating_sub(window));
            first.saturating_sub(base)..end.min(all).saturating_sub(base)
        };
        let add_mask = |b: usize, h: usize, i: usize, first: usize, scores: &mut [T::Wide]| {
            if let Some(bias) = &bias {
                bias.add_to(b, h, i, first_of(b) + first, scores);
            }
            if let Some(blocks) = &blocks {
                blocks.hide(h, lengths.start(b) + i, first_of(b) + first, scores);
            }
        };
        let y = match cx.output_used(Y) {
            true => {
                let hidden = element_count(&[self.heads, p.size])?;
                Some(cx.output::<T>(Y, &[p.batch, p.queries, hidden])?.into_mut())
            }
            false => None,
        };
        let nothing = y.as_deref().is_none_or(|y| y.is_empty()) && shown.is_none();
        if nothing || p.batch == 0 || p.queries == 0 {
            return Ok(());
        }
        let inputs = Inputs {
            q: &load_query,
            k: keys,
            v: values,
            visible: &visible,
            add_mask: &add_mask,
            sink: if has_sink { Some(&sink) } else { None },
        };
        let layout = Layout::positions_first(self.heads, p.queries, p.size);
        attend.run(cx.workers(), &inputs, scratch, y, layout, shown);
        Ok(())
    }
}
