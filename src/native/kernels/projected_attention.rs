//! Attention of com.microsoft: self-attention with its projection.
//!
//!   input           [batch, queries, in]
//!   weights         [in, hidden + hidden + v_hidden]: those of Q, K and V side by side
//!   bias            [hidden + hidden + v_hidden]
//!   mask_index      see `key_mask`
//!   past            [2, batch, heads, past, size]: keys, then values
//!   attention_bias  [batch or 1, heads or 1, queries, total], added to the scores
//!   past_sequence_length  with `past_present_share_buffer`, how many rows of the past are used;
//!                   rows of present after the new ones are zero
//!   Y               [batch, queries, v_hidden]
//!   present         [2, batch, heads, past + queries or the length of the buffer, size]
//!
//! `qkv_hidden_sizes` says hidden, hidden and v_hidden where they differ; with a past or a present
//! they do not. With `unidirectional` and more than one query, query i sees keys up to past + i.
//!
//! com.microsoft 1: float, float16, bfloat16 (and double). The equations are in `attend`.

use super::Built;
use super::attend::{Attend, Cache, Heads, Inputs, Layout};
use super::dispatch::with_float;
use super::gemm::{Matrix, gemm_to};
use super::group_query_attention::{head_count, scale, wrong_dims};
use super::key_mask::{KeyMask, MaskSizes};
use super::number::{Float, Scalar};
use super::score_bias::ScoreBias;
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::element_count;

const INPUT: usize = 0;
const WEIGHTS: usize = 1;
const BIAS: usize = 2;
const MASK: usize = 3;
const PAST: usize = 4;
const ATTENTION_BIAS: usize = 5;
const PAST_LENGTH: usize = 6;

const Y: usize = 0;
const PRESENT: usize = 1;

/// How the columns of the weights are those of Q, K and V.
#[derive(Debug)]
pub(super) struct Columns {
    pub heads: usize,
    /// hidden and v_hidden; thirds of the weights where left out.
    sizes: Option<(usize, usize)>,
}

#[derive(Debug)]
struct ProjectedAttention {
    columns: Columns,
    scale: Option<f32>,
    filter: f32,
    unidirectional: bool,
    shared_buffer: bool,
}

impl Columns {
    pub fn read(node: &NodeInfo<'_>) -> Result<Self, OpError> {
        let sizes = match node.ints("qkv_hidden_sizes")? {
            None | Some([]) => None,
            Some(given) => match given {
                &[q, k, v] if q == k && q > 0 && v > 0 => Some((q as usize, v as usize)),
                _ => {
                    return Err(OpError::Attribute {
                        name: "qkv_hidden_sizes".into(),
                        message: format!("is {given:?}, expected three sizes, the first two equal"),
                    });
                }
            },
        };
        Ok(Columns {
            heads: head_count(node, "num_heads")?,
            sizes,
        })
    }

    /// hidden and v_hidden of weights this wide.
    pub fn split(&self, columns: usize) -> Result<(usize, usize), OpError> {
        let (hidden, v_hidden) = match self.sizes {
            Some(sizes) => sizes,
            None => (columns / 3, columns / 3),
        };
        let all = hidden.checked_mul(2).and_then(|both| both.checked_add(v_hidden));
        let split = hidden.is_multiple_of(self.heads) && v_hidden.is_multiple_of(self.heads);
        if all == Some(columns) && split {
            return Ok((hidden, v_hidden));
        }
        Err(OpError::Message(format!(
            "weights of {columns} columns are not Q, K and V of {} heads{}",
            self.heads,
            match self.sizes {
                Some(sizes) => format!(" with hidden sizes {sizes:?}"),
                None => String::new(),
            }
        )))
    }
}

pub(in crate::native) fn projected_attention(node: &NodeInfo<'_>) -> Built {
    node.int("rotary_embedding_dim")?;
    if node.flag_or("do_rotary", false)? {
        return Err(OpError::Unsupported(
            "rotation inside Attention (do_rotary)".into(),
        ));
    }
    Ok(Box::new(ProjectedAttention {
        columns: Columns::read(node)?,
        scale: scale(node)?,
        filter: node.float_or("mask_filter_value", -10000.0)?,
        unidirectional: node.flag_or("unidirectional", false)?,
        shared_buffer: node.flag_or("past_present_share_buffer", false)?,
    }))
}

impl Operator for ProjectedAttention {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (input, weights) = (cx.required(INPUT)?, cx.required(WEIGHTS)?);
        let unknown = SymDim::Unknown;
        let (batch, queries) = match input.dims.as_deref() {
            Some(&[batch, queries, _]) => (batch, queries),
            _ => (unknown, unknown),
        };
        let sizes = match weights.dims.as_deref() {
            Some(&[_, SymDim::Fixed(columns)]) => Some(self.columns.split(columns)?),
            _ => self.columns.sizes,
        };
        let hidden = sizes.map_or(unknown, |(_, v_hidden)| SymDim::Fixed(v_hidden));
        let size = sizes.map_or(unknown, |(_, v_hidden)| {
            SymDim::Fixed(v_hidden / self.columns.heads)
        });
        let ty = input.ty;
        cx.set_output(Y, ty, Some(SymDims::from_iter([batch, queries, hidden])));
        let heads = SymDim::Fixed(self.columns.heads);
        let present = [SymDim::Fixed(2), batch, heads, unknown, size];
        cx.set_output(PRESENT, ty, Some(SymDims::from_iter(present)));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let input = cx.required(INPUT)?;
        with_float!(input.element_type(), T => self.run_as::<T>(cx))
    }
}

impl ProjectedAttention {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (input, weights) = (cx.required(INPUT)?, cx.required(WEIGHTS)?);
        let (&[batch, queries, width], &[rows, columns]) = (input.dims(), weights.dims()) else {
            return Err(wrong_dims(INPUT, &input, "rank 3, and weights of rank 2"));
        };
        if rows != width {
            return Err(wrong_dims(
                WEIGHTS,
                &weights,
                format!("{width} rows, the last dim of input 0"),
            ));
        }
        let (hidden, v_hidden) = self.columns.split(columns)?;
        let n = self.columns.heads;
        let (size, v_size) = (hidden / n, v_hidden / n);
        let bias = match cx.input(BIAS) {
            Some(bias) if bias.dims() == [columns] => Some(bias.slice::<T>()?),
            Some(bias) => return Err(wrong_dims(BIAS, &bias, format!("[{columns}]"))),
            None => None,
        };

        let past = cx.input(PAST);
        let past_rows = match past {
            None => 0,
            Some(past) => {
                let rows = past.dims().get(3).copied().unwrap_or(0);
                if size != v_size || past.dims() != [2, batch, n, rows, size] {
                    let expected =
                        format!("[2, {batch}, {n}, past, {size}], with keys and values of one size");
                    return Err(wrong_dims(PAST, &past, expected));
                }
                rows
            }
        };
        let past_len = match cx.input(PAST_LENGTH).filter(|_| self.shared_buffer) {
            None => past_rows,
            Some(given) => {
                let used = match given.to_ints()?[..] {
                    [used] => usize::try_from(used).ok(),
                    _ => None,
                };
                let fits = |&used: &usize| used.checked_add(queries).is_some_and(|end| end <= past_rows);
                used.filter(fits).ok_or_else(|| {
                    OpError::Message(format!(
                        "past_sequence_length {given:?} and {queries} new keys do not fit a buffer of {past_rows}"
                    ))
                })?
            }
        };
        let too_large = || OpError::TooLarge {
            dims: [batch, queries, columns, past_rows].into_iter().collect(),
        };
        let total = past_len.checked_add(queries).ok_or_else(too_large)?;
        let attend = Attend {
            batch,
            query_heads: n,
            kv_heads: n,
            queries,
            total,
            width: size,
            scale: match self.scale {
                Some(scale) => scale.into(),
                None => 1.0 / (size as f64).sqrt(),
            },
            softcap: 0.0,
            double_softmax: false,
        };
        let projected = element_count(&[batch, queries, columns])?;
        let scratch_len = attend
            .scratch_len(v_size, cx.workers())
            .and_then(|len| len.checked_add(projected));
        let scratch = cx.scratch::<T::Wide>(scratch_len.ok_or_else(too_large)?)?;
        let (projected, scratch) = scratch.split_at_mut(projected);
        if !projected.is_empty() {
            let sizes = (batch * queries, width, columns);
            let (a, b) = (Matrix::rows(input.slice::<T>()?), Matrix::rows(weights.slice()?));
            gemm_to(cx.workers(), sizes, a, b, projected, |_, _, sum| sum);
        }
        if let Some(bias) = bias {
            for row in projected.chunks_exact_mut(columns.max(1)) {
                ending::count(row.len());
                for (x, bias) in row.iter_mut().zip(bias) {
                    *x = x.add(bias.widen());
                }
            }
        }

        let part = |first: usize, width: usize| Heads {
            data: projected.get(first..).unwrap_or_default(),
            layout: Layout {
                batch: queries.wrapping_mul(columns),
                head: width,
                position: columns,
                width,
            },
        };
        let q = part(0, size);
        let past = past.map(|past| past.slice::<T>()).transpose()?;
        let past = |part: usize| {
            past.map(|data| Heads {
                data: &data[part * data.len() / 2..],
                layout: Layout::heads_first(n, past_rows, size),
            })
        };
        let past_len_of = |_| past_len;
        let keys = Cache {
            past: past(0),
            past_len: &past_len_of,
            new: part(hidden, size),
        };
        let values = Cache {
            past: past(1),
            past_len: &past_len_of,
            new: part(2 * hidden, v_size),
        };
        if cx.output_used(PRESENT) {
            if size != v_size {
                return Err(OpError::Message("present has keys and values of one size".into()));
            }
            let rows = past_rows.max(total);
            let mut present = cx.output::<T>(PRESENT, &[2, batch, n, rows, size])?;
            keys.write(&mut present, (batch, n, rows), queries)?;
            values.write(&mut present, (batch, n, rows), queries)?;
        }

        let mask = match cx.input(MASK) {
            Some(mask) => {
                let sizes = MaskSizes {
                    batch,
                    queries,
                    past: past_len,
                    total,
                };
                Some(KeyMask::new(MASK, mask, sizes, self.filter)?)
            }
            None => None,
        };
        let score_bias = match cx.input(ATTENTION_BIAS) {
            Some(bias) => Some(ScoreBias::<T>::new(
                ATTENTION_BIAS,
                bias,
                [batch, n, queries, total],
            )?),
            None => None,
        };
        if !cx.output_used(Y) {
            return Ok(());
        }
        let y = cx.output::<T>(Y, &[batch, queries, v_hidden])?.into_mut();
        if y.is_empty() {
            return Ok(());
        }
        let add_mask = |b: usize, h: usize, i: usize, first: usize, scores: &mut [T::Wide]| {
            if let Some(bias) = &score_bias {
                bias.add_to(b, h, i, first, scores);
            }
            if let Some(mask) = &mask {
                mask.add_to(b, i, first, scores);
            }
        };
        let load_query =
            |b: usize, h: usize, i: usize, row: &mut [T::Wide]| row.copy_from_slice(q.row(b, h, i));
        let causal = self.unidirectional && queries > 1;
        let visible = |_b: usize, i: usize| 0..if causal { past_len + i + 1 } else { total };
        let inputs = Inputs {
            q: &load_query,
            k: &keys,
            v: &values,
            visible: &visible,
            add_mask: &add_mask,
            sink: None,
        };
        let layout = Layout::positions_first(n, queries, v_size);
        attend.run(cx.workers(), &inputs, scratch, Some(y), layout, None);
        Ok(())
    }
}
