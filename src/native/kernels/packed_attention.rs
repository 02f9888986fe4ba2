//! PackedAttention and PackedMultiHeadAttention: self-attention of sequences of different lengths that
//! lie behind each other, without padding between them.
//!
//!   token_offset                [batch, longest] of int32: for each token its place among the
//!                               batch * longest places of the padded sequences, then the places of the
//!                               padding. Sequences are padded at their end: token i of sequence b has
//!                               place b * longest + i
//!   cumulative_sequence_length  [batch + 1] of int32: 0, then where each sequence ends. Sequence b has
//!                               the tokens from cumulative[b] on, before cumulative[b + 1]
//!   attention_bias              [batch or 1, heads or 1, longest, longest], added to the scores
//!   Y                           [tokens, v_hidden]
//!
//! The tokens of a sequence attend to all tokens of it:
//!
//!   y[t] = sum over the u of t's sequence of softmax(scale * q[t] . k[u] + bias[b, h, t - start, u - start]) v[u]
//!
//! PackedAttention projects: [Q, K, V] = input * weights + bias, with
//!
//!   input    [tokens, in]
//!   weights  [in, hidden + hidden + v_hidden]: those of Q, K and V side by side
//!   bias     [hidden + hidden + v_hidden]
//!
//! where `qkv_hidden_sizes` says hidden, hidden and v_hidden if they differ. PackedMultiHeadAttention has
//!
//!   query, key  [tokens, hidden], value [tokens, v_hidden], or all in query,
//!               [tokens, heads, 3, size]
//!   bias        [hidden + hidden + v_hidden], added to them
//!
//! No key of a sequence is masked, so that `mask_filter_value` has nothing to fill.
//!
//! com.microsoft 1: float, float16 (and bfloat16 and double). The equations are in `attend`, for which all
//! sequences are one, in which a query sees the keys of its own.

use std::ops::Range;

use super::Built;
use super::attend::{Attend, Cache, Heads, Inputs, Layout};
use super::dispatch::with_float;
use super::gemm::{Matrix, gemm_to};
use super::group_query_attention::{head_count, scale, wrong_dims};
use super::multi_head_attention::packed;
use super::number::{Float, Number, Scalar};
use super::projected_attention::Columns;
use super::score_bias::ScoreBias;
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{TensorRef, element_count};

/// Where token_offset is; cumulative_sequence_length and attention_bias follow it.
const OFFSETS_AFTER_PROJECTION: usize = 3;
const OFFSETS_AFTER_HEADS: usize = 4;

const Y: usize = 0;

/// Which tokens are a sequence.
struct Sequences<'a> {
    /// Ascending, from 0 to the number of tokens.
    cumulative: &'a [i32],
    batch: usize,
    longest: usize,
}

impl<'a> Sequences<'a> {
    /// Of the inputs `first` and the one after it.
    fn new(cx: &RunContext<'a>, first: usize, tokens: usize) -> Result<Self, OpError> {
        let (offsets, cumulative) = (cx.required(first)?, cx.required(first + 1)?);
        let &[batch, longest] = offsets.dims() else {
            return Err(wrong_dims(first, &offsets, "[batch, longest]"));
        };
        let ends = batch.saturating_add(1);
        if cumulative.dims() != [ends] {
            return Err(wrong_dims(
                first + 1,
                &cumulative,
                format!("[{ends}], one more than the sequences of input {first}"),
            ));
        }
        let sequences = Sequences {
            cumulative: cumulative.slice()?,
            batch,
            longest,
        };
        sequences.check_lengths(tokens)?;
        sequences.check_offsets(offsets.slice()?)?;
        Ok(sequences)
    }

    fn check_lengths(&self, tokens: usize) -> Result<(), OpError> {
        let wrong = |at: usize, expected: String| {
            Err(OpError::Message(format!(
                "cumulative_sequence_length[{at}] is {}, expected {expected}",
                self.cumulative.get(at).copied().unwrap_or_default()
            )))
        };
        if self.cumulative.first() != Some(&0) {
            return wrong(0, "0".into());
        }
        for (b, ends) in self.cumulative.windows(2).enumerate() {
            let &[start, end] = ends else { continue };
            let length = usize::try_from(i64::from(end) - i64::from(start)).ok();
            if length.is_none_or(|length| length > self.longest) {
                let longest = self.longest;
                return wrong(b + 1, format!("{start} and at most {longest} tokens more"));
            }
        }
        match self.cumulative.last().copied().map(usize::try_from) {
            Some(Ok(end)) if end == tokens => Ok(()),
            _ => wrong(self.batch, format!("{tokens}, the tokens of input 0")),
        }
    }

    /// The lengths are right. What is said of padding is not used, but must be places too.
    fn check_offsets(&self, offsets: &[i32]) -> Result<(), OpError> {
        let wrong = |at: usize, expected: String| {
            Err(OpError::Message(format!(
                "token_offset[{at}] is {}, expected {expected}",
                offsets.get(at).copied().unwrap_or_default()
            )))
        };
        let places = offsets.len();
        let is_place = |&offset: &i32| usize::try_from(offset).is_ok_and(|offset| offset < places);
        if let Some(at) = offsets.iter().position(|offset| !is_place(offset)) {
            return wrong(at, format!("one of the {places} places"));
        }
        for b in 0..self.batch {
            for (i, at) in self.tokens(b).enumerate() {
                let place = b * self.longest + i;
                if offsets.get(at).copied().map(usize::try_from) != Some(Ok(place)) {
                    return wrong(
                        at,
                        format!("{place}: token {i} of sequence {b}, padded at its end"),
                    );
                }
            }
        }
        Ok(())
    }

    /// The tokens of a sequence.
    fn tokens(&self, b: usize) -> Range<usize> {
        let end = |at: usize| self.cumulative.get(at).map_or(0, |&end| end as usize);
        end(b)..end(b + 1)
    }

    /// The sequence of a token.
    fn of(&self, token: usize) -> usize {
        let started = self.cumulative.partition_point(|&start| start as usize <= token);
        started.saturating_sub(1)
    }
}

struct Scratch<'a, W> {
    rows: &'a mut [W],
    work: &'a mut [W],
}

/// What both operators know before they have queries, keys and values.
struct Packed<'a, T> {
    heads: usize,
    size: usize,
    v_size: usize,
    tokens: usize,
    attend: Attend,
    sequences: Sequences<'a>,
    score_bias: Option<ScoreBias<'a, T>>,
}

impl<'a, T: Float> Packed<'a, T> {
    fn new(
        cx: &RunContext<'a>,
        first: usize,
        (heads, tokens): (usize, usize),
        (size, v_size): (usize, usize),
        scale: Option<f32>,
    ) -> Result<Self, OpError> {
        let sequences = Sequences::new(cx, first, tokens)?;
        let score_bias = match cx.input(first + 2) {
            Some(bias) => {
                let full = [sequences.batch, heads, sequences.longest, sequences.longest];
                Some(ScoreBias::new(first + 2, bias, full)?)
            }
            None => None,
        };
        let attend = Attend {
            batch: 1,
            query_heads: heads,
            kv_heads: heads,
            queries: tokens,
            total: tokens,
            width: size,
            scale: match scale {
                Some(scale) => scale.into(),
                None => 1.0 / (size as f64).sqrt(),
            },
            softcap: 0.0,
            double_softmax: false,
        };
        Ok(Packed {
            heads,
            size,
            v_size,
            tokens,
            attend,
            sequences,
            score_bias,
        })
    }

    /// Elements of a row of Q, K and V side by side.
    fn columns(&self) -> usize {
        self.heads * (2 * self.size + self.v_size)
    }

    /// Memory for rows of Q, K and V side by side, where they are `kept`, and to work in.
    fn scratch(&self, cx: &mut RunContext<'a>, kept: bool) -> Result<Scratch<'a, T::Wide>, OpError> {
        let kept = match kept {
            true => element_count(&[self.tokens, self.columns()])?,
            false => 0,
        };
        let len = self.attend.scratch_len(self.v_size, cx.workers());
        let len = len.and_then(|len| len.checked_add(kept));
        let len = len.ok_or_else(|| OpError::TooLarge {
            dims: [self.tokens, self.heads, self.size, self.v_size]
                .into_iter()
                .collect(),
        })?;
        let (rows, work) = cx.scratch(len)?.split_at_mut(kept);
        Ok(Scratch { rows, work })
    }

    /// Q, K and V of rows of them side by side.
    fn parts<'s>(&self, rows: &'s [T::Wide]) -> [Heads<'s, T::Wide>; 3] {
        let hidden = self.heads * self.size;
        let (size, v_size) = (self.size, self.v_size);
        [(0, size), (hidden, size), (2 * hidden, v_size)].map(|(first, width)| Heads {
            data: rows.get(first..).unwrap_or_default(),
            layout: Layout {
                batch: rows.len(),
                head: width,
                position: self.columns(),
                width,
            },
        })
    }

    fn attend<N: Number<Wide = T::Wide>>(
        &self,
        cx: &RunContext<'_>,
        [q, k, v]: [Heads<'_, N>; 3],
        scratch: &mut [T::Wide],
        y: &mut [T],
    ) {
        let sequences = &self.sequences;
        let load_query = |b: usize, h: usize, i: usize, row: &mut [T::Wide]| {
            for (to, x) in row.iter_mut().zip(q.row(b, h, i)) {
                *to = x.widen();
            }
        };
        let no_past = |_| 0;
        let cache = |new| Cache::<'_, T, N> {
            past: None,
            past_len: &no_past,
            new,
        };
        let add_mask = |_b: usize, h: usize, i: usize, first: usize, scores: &mut [T::Wide]| {
            if let Some(bias) = &self.score_bias {
                let b = sequences.of(i);
                let start = sequences.tokens(b).start;
                bias.add_to(b, h, i - start, first - start, scores);
            }
        };
        let inputs = Inputs {
            q: &load_query,
            k: &cache(k),
            v: &cache(v),
            visible: &|_b: usize, i: usize| sequences.tokens(sequences.of(i)),
            add_mask: &add_mask,
            sink: None,
        };
        let layout = Layout::positions_first(self.heads, self.tokens, self.v_size);
        self.attend
            .run(cx.workers(), &inputs, scratch, Some(y), layout, None);
    }
}

#[derive(Debug)]
struct PackedAttention {
    columns: Columns,
    scale: Option<f32>,
}

pub(in crate::native) fn packed_attention(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(PackedAttention {
        columns: Columns::read(node)?,
        scale: scale(node)?,
    }))
}

impl Operator for PackedAttention {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (input, weights) = (cx.required(0)?, cx.required(1)?);
        let tokens = match input.dims.as_deref() {
            Some(&[tokens, _]) => tokens,
            _ => SymDim::Unknown,
        };
        let hidden = match weights.dims.as_deref() {
            Some(&[_, SymDim::Fixed(columns)]) => SymDim::Fixed(self.columns.split(columns)?.1),
            _ => SymDim::Unknown,
        };
        let ty = input.ty;
        cx.set_output(Y, ty, Some(SymDims::from_iter([tokens, hidden])));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let input = cx.required(0)?;
        with_float!(input.element_type(), T => self.run_as::<T>(cx))
    }
}

impl PackedAttention {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (input, weights, bias) = (cx.required(0)?, cx.required(1)?, cx.required(2)?);
        let &[tokens, width] = input.dims() else {
            return Err(wrong_dims(0, &input, "[tokens, in]"));
        };
        let columns = match *weights.dims() {
            [rows, columns] if rows == width => columns,
            _ => return Err(wrong_dims(1, &weights, format!("[{width}, columns]"))),
        };
        let (hidden, v_hidden) = self.columns.split(columns)?;
        if bias.dims() != [columns] {
            return Err(wrong_dims(2, &bias, format!("[{columns}]")));
        }
        let (x, weights, bias) = (input.slice::<T>()?, weights.slice::<T>()?, bias.slice::<T>()?);
        let heads = self.columns.heads;
        let sizes = (hidden / heads, v_hidden / heads);
        let packed = Packed::<T>::new(cx, OFFSETS_AFTER_PROJECTION, (heads, tokens), sizes, self.scale)?;
        let y = cx.output::<T>(Y, &[tokens, v_hidden])?.into_mut();
        if y.is_empty() {
            return Ok(());
        }
        let Scratch { rows, work } = packed.scratch(cx, true)?;
        let (a, b) = (Matrix::rows(x), Matrix::rows(weights));
        gemm_to(
            cx.workers(),
            (tokens, width, columns),
            a,
            b,
            rows,
            |_, column, sum| sum.add(bias[column].widen()),
        );
        packed.attend(cx, packed.parts(rows), work, y);
        Ok(())
    }
}

#[derive(Debug)]
struct PackedMultiHeadAttention {
    heads: usize,
    scale: Option<f32>,
}

pub(in crate::native) fn packed_multi_head_attention(node: &NodeInfo<'_>) -> Built {
    node.float("mask_filter_value")?;
    Ok(Box::new(PackedMultiHeadAttention {
        heads: head_count(node, "num_heads")?,
        scale: scale(node)?,
    }))
}

/// Queries, keys and values, and their sizes.
struct Projections<'a, T> {
    tokens: usize,
    size: usize,
    v_size: usize,
    parts: [Heads<'a, T>; 3],
}

impl Operator for PackedMultiHeadAttention {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let query = cx.required(0)?;
        let value = cx.input(2).and_then(|value| value.dims.as_deref());
        let (tokens, hidden) = match (query.dims.as_deref(), value) {
            (Some(&[tokens, _, _, SymDim::Fixed(size)]), _) => {
                (tokens, SymDim::Fixed(element_count(&[self.heads, size])?))
            }
            (Some(&[tokens, _]), Some(&[_, v_hidden])) => (tokens, v_hidden),
            (Some(&[tokens, ..]), _) => (tokens, SymDim::Unknown),
            _ => (SymDim::Unknown, SymDim::Unknown),
        };
        let ty = query.ty;
        cx.set_output(Y, ty, Some(SymDims::from_iter([tokens, hidden])));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let query = cx.required(0)?;
        with_float!(query.element_type(), T => self.run_as::<T>(cx))
    }
}

impl PackedMultiHeadAttention {
    fn projections<'a, T: Float>(&self, cx: &RunContext<'a>) -> Result<Projections<'a, T>, OpError> {
        let n = self.heads;
        let query = cx.required(0)?;
        let (tokens, hidden) = match *query.dims() {
            [tokens, heads, 3, size] if heads == n => {
                if let Some((index, given)) = (1..3).find_map(|i| Some((i, cx.input(i)?))) {
                    let expected = "to be left out: query has 4 dims, and keys and values in it";
                    return Err(wrong_dims(index, &given, expected));
                }
                let data = query.slice::<T>()?;
                return Ok(Projections {
                    tokens,
                    size,
                    v_size: size,
                    parts: [0, 1, 2].map(|part| packed(data, [1, tokens, n, 3, size], part)),
                });
            }
            [tokens, hidden] => (tokens, hidden),
            _ => {
                let expected = format!("[tokens, hidden] or [tokens, {n}, 3, size]");
                return Err(wrong_dims(0, &query, expected));
            }
        };
        let (key, value) = (cx.required(1)?, cx.required(2)?);
        if key.dims() != query.dims() {
            return Err(wrong_dims(1, &key, format!("{:?}, those of query", query.dims())));
        }
        let v_hidden = match *value.dims() {
            [rows, v_hidden] if rows == tokens => v_hidden,
            _ => return Err(wrong_dims(2, &value, format!("[{tokens}, v_hidden]"))),
        };
        let part = |tensor: TensorRef<'a>, index: usize, hidden: usize| {
            if !hidden.is_multiple_of(n) {
                return Err(wrong_dims(index, &tensor, format!("rows of {n} heads")));
            }
            Ok(Heads {
                data: tensor.slice::<T>()?,
                layout: Layout::positions_first(n, tokens, hidden / n),
            })
        };
        Ok(Projections {
            tokens,
            size: hidden / n,
            v_size: v_hidden / n,
            parts: [
                part(query, 0, hidden)?,
                part(key, 1, hidden)?,
                part(value, 2, v_hidden)?,
            ],
        })
    }

    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let given = self.projections::<T>(cx)?;
        let n = self.heads;
        let (hidden, v_hidden) = (
            element_count(&[n, given.size])?,
            element_count(&[n, given.v_size])?,
        );
        let columns = hidden.checked_mul(2).and_then(|both| both.checked_add(v_hidden));
        let bias = match cx.input(3) {
            Some(bias) if columns.is_some_and(|columns| bias.dims() == [columns]) => Some(bias.slice::<T>()?),
            Some(bias) => {
                let expected = format!("[{hidden} + {hidden} + {v_hidden}]");
                return Err(wrong_dims(3, &bias, expected));
            }
            None => None,
        };
        let (tokens, sizes) = (given.tokens, (given.size, given.v_size));
        let packed = Packed::<T>::new(cx, OFFSETS_AFTER_HEADS, (n, tokens), sizes, self.scale)?;
        let y = cx.output::<T>(Y, &[tokens, v_hidden])?.into_mut();
        if y.is_empty() {
            return Ok(());
        }
        let Scratch { rows, work } = packed.scratch(cx, bias.is_some())?;
        let Some(bias) = bias else {
            packed.attend(cx, given.parts, work, y);
            return Ok(());
        };
        for (token, row) in rows.chunks_exact_mut(packed.columns()).enumerate() {
            let heads = given.parts.iter().flat_map(|part| (0..n).map(move |h| (part, h)));
            let values = heads.flat_map(|(part, h)| part.row(0, h, token));
            ending::count(row.len());
            for (to, (x, bias)) in row.iter_mut().zip(values.zip(bias)) {
                *to = x.widen().add(bias.widen());
            }
        }
        packed.attend(cx, packed.parts(rows), work, y);
        Ok(())
    }
}
