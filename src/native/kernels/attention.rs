//! Attention: Y = softmax(scale Q K^T, capped, masked) V, for grouped heads and with a cache.
//!
//!   Q                    [batch, q_heads, queries, head_size], or [batch, queries, q_heads * head_size]
//!   K, V                 [batch, kv_heads, keys, size], or [batch, keys, kv_heads * size]
//!   attn_mask            broadcasts to [batch, q_heads, queries, total]; booleans keep, numbers are
//!                        added; a short last dim is filled up with -inf
//!   past_key, _value     [batch, kv_heads, past, size]
//!   nonpad_kv_seqlen     [batch]: keys that are not padding
//!   Y                    like Q, with the head size of V
//!   present_key, _value  [batch, kv_heads, total, size], total = past + keys
//!   qk_matmul_output     [batch, q_heads, queries, total], at the stage `qk_matmul_output_mode`
//!
//! q_heads is a multiple of kv_heads. Query i is at position offset + i, where offset is past, or
//! without a past nonpad_kv_seqlen - queries, if that is given. With `is_causal` it sees keys up to
//! its position; `left_window_size` and `right_window_size`, where not negative, are how many keys
//! before and after it it sees. A query that sees nothing gives zeros.
//!
//! ai.onnx 23, 24, 25. The equations are in `attend`.
//!
//! The softmax is computed in the wide type of Q (f32 for f16 and bf16), or in f64 if
//! `softmax_precision` asks for it; a lower precision than the wide one is not imitated.

use half::{bf16, f16};

use super::Built;
use super::attend::{Attend, Cache, CacheSizes, Heads, Inputs, Layout, ScoreOutput, ScoreStage, Values};
use super::dispatch::{with_float, with_integer, with_number};
use super::number::{Float, Number, Scalar};
use crate::native::element::{Bool, ElementType};
use crate::native::infer::{Fact, InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

const Q: usize = 0;
const K: usize = 1;
const VALUE: usize = 2;
const MASK: usize = 3;
const PAST_KEY: usize = 4;
const PAST_VALUE: usize = 5;
const NONPAD: usize = 6;

const Y: usize = 0;
const PRESENT_KEY: usize = 1;
const PRESENT_VALUE: usize = 2;
const SCORES: usize = 3;

#[derive(Debug)]
struct Attention {
    causal: bool,
    left: Option<usize>,
    right: Option<usize>,
    q_heads: Option<usize>,
    kv_heads: Option<usize>,
    scale: Option<f32>,
    softcap: f32,
    stage: ScoreStage,
    double_softmax: bool,
}

pub(in crate::native) fn attention(node: &NodeInfo<'_>) -> Built {
    let heads = |name: &str| match node.int(name)? {
        None => Ok(None),
        Some(heads) => match usize::try_from(heads) {
            Ok(heads @ 1..) => Ok(Some(heads)),
            _ => Err(OpError::Attribute {
                name: name.into(),
                message: format!("is {heads}, expected at least 1"),
            }),
        },
    };
    let stage = match node.int_or("qk_matmul_output_mode", 0)? {
        0 => ScoreStage::Product,
        1 => ScoreStage::Capped,
        2 => ScoreStage::Masked,
        3 => ScoreStage::Probability,
        other => {
            return Err(OpError::Attribute {
                name: "qk_matmul_output_mode".into(),
                message: format!("is {other}, expected 0 to 3"),
            });
        }
    };
    let precision = node.int("softmax_precision")?;
    let precision = precision.map(|code| i32::try_from(code).ok().and_then(ElementType::from_code));
    let double_softmax = match precision {
        None | Some(Some(ElementType::Float32 | ElementType::Float16 | ElementType::Bfloat16)) => false,
        Some(Some(ElementType::Float64)) => true,
        Some(other) => {
            return Err(OpError::Attribute {
                name: "softmax_precision".into(),
                message: format!("names {other:?}, expected a floating-point type"),
            });
        }
    };
    let window = |name: &str| match node.since {
        25.. => Ok(usize::try_from(node.int_or(name, -1)?).ok()),
        _ => Ok::<_, OpError>(None),
    };
    Ok(Box::new(Attention {
        left: window("left_window_size")?,
        right: window("right_window_size")?,
        causal: node.flag_or("is_causal", false)?,
        q_heads: heads("q_num_heads")?,
        kv_heads: heads("kv_num_heads")?,
        scale: node.float("scale")?,
        softcap: node.float_or("softcap", 0.0)?,
        stage,
        double_softmax,
    }))
}

/// Sizes of Q, K or V, whichever of the two layouts it has.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    heads: usize,
    positions: usize,
    width: usize,
    layout: Layout,
}

impl Sizes {
    fn of(dims: &[usize], heads: Option<usize>, index: usize) -> Result<Self, OpError> {
        let wrong = |expected: String| OpError::WrongDims {
            what: format!("input {index}"),
            found: dims.into(),
            expected,
        };
        match *dims {
            [batch, heads, positions, width] => Ok(Sizes {
                batch,
                heads,
                positions,
                width,
                layout: Layout::heads_first(heads, positions, width),
            }),
            [batch, positions, hidden] => {
                let name = if index == Q { "q_num_heads" } else { "kv_num_heads" };
                let heads =
                    heads.ok_or_else(|| wrong(format!("rank 4, or attribute {name} to split rank 3")))?;
                if !hidden.is_multiple_of(heads) {
                    return Err(wrong(format!("a last dim that {name} = {heads} divides")));
                }
                let width = hidden / heads;
                Ok(Sizes {
                    batch,
                    heads,
                    positions,
                    width,
                    layout: Layout::positions_first(heads, positions, width),
                })
            }
            _ => Err(wrong("rank 3 or 4".into())),
        }
    }

    fn heads_of<'a, T: Number>(&self, tensor: TensorRef<'a>) -> Result<Heads<'a, T>, OpError> {
        Ok(Heads {
            data: tensor.slice()?,
            layout: self.layout,
        })
    }
}

/// The sizes of one run, checked against each other.
struct Problem {
    q: Sizes,
    k: Sizes,
    v: Sizes,
    past: usize,
    total: usize,
}

impl Problem {
    /// The cache of K or V.
    fn cache(&self, new: &Sizes) -> CacheSizes {
        CacheSizes {
            batch: new.batch,
            heads: new.heads,
            past_rows: self.past,
            new: new.positions,
            rows: self.total,
        }
    }
}

impl Attention {
    fn problem(&self, cx: &RunContext<'_>) -> Result<Problem, OpError> {
        let (q, k, v) = (cx.required(Q)?, cx.required(K)?, cx.required(VALUE)?);
        let wrong = |what: &str, found: &[usize], expected: String| OpError::WrongDims {
            what: what.into(),
            found: found.into(),
            expected,
        };
        let ranks_match = q.rank() == k.rank() && q.rank() == v.rank();
        if !ranks_match {
            return Err(wrong(
                "input 1 or 2",
                k.dims(),
                format!("rank {}, like input 0", q.rank()),
            ));
        }
        let (qs, ks, vs) = (
            Sizes::of(q.dims(), self.q_heads, Q)?,
            Sizes::of(k.dims(), self.kv_heads, K)?,
            Sizes::of(v.dims(), self.kv_heads, VALUE)?,
        );
        if ks.batch != qs.batch || ks.width != qs.width {
            return Err(wrong(
                "input 1",
                k.dims(),
                format!("batch {} and head size {}, like input 0", qs.batch, qs.width),
            ));
        }
        if (vs.batch, vs.heads, vs.positions) != (ks.batch, ks.heads, ks.positions) {
            return Err(wrong(
                "input 2",
                v.dims(),
                format!(
                    "batch {}, {} heads and {} positions, like input 1",
                    ks.batch, ks.heads, ks.positions
                ),
            ));
        }
        if ks.heads == 0 || !qs.heads.is_multiple_of(ks.heads) {
            return Err(OpError::Message(format!(
                "{} query heads are not a multiple of {} key heads",
                qs.heads, ks.heads
            )));
        }
        let past = match (cx.input(PAST_KEY), cx.input(PAST_VALUE)) {
            (None, None) => 0,
            (Some(key), Some(value)) => {
                let past = key.dims().get(2).copied().unwrap_or(0);
                for (index, tensor, width) in [(PAST_KEY, key, ks.width), (PAST_VALUE, value, vs.width)] {
                    let expected = [ks.batch, ks.heads, past, width];
                    if tensor.dims() != expected {
                        return Err(wrong(
                            &format!("input {index}"),
                            tensor.dims(),
                            format!("{expected:?}"),
                        ));
                    }
                }
                past
            }
            _ => return Err(OpError::Message("past_key and past_value come together".into())),
        };
        let total = past.checked_add(ks.positions).ok_or_else(|| OpError::TooLarge {
            dims: k.dims().into(),
        })?;
        if let Some(valid) = cx.input(NONPAD) {
            let lengths = valid.slice::<i64>()?;
            let in_range = |&length: &i64| usize::try_from(length).is_ok_and(|length| length <= total);
            if valid.dims() != [qs.batch] || !lengths.iter().all(in_range) {
                return Err(OpError::Message(format!(
                    "nonpad_kv_seqlen {lengths:?} of dims {:?}: expected {} lengths from 0 to {total}",
                    valid.dims(),
                    qs.batch
                )));
            }
        }
        Ok(Problem {
            q: qs,
            k: ks,
            v: vs,
            past,
            total,
        })
    }

    /// Keys have the type of the queries.
    fn run_as<T: Float>(
        &self,
        cx: &mut RunContext<'_>,
        p: &Problem,
        v: &dyn Values<T::Wide>,
    ) -> Result<(), OpError> {
        let (q, k) = (cx.required(Q)?, cx.required(K)?);
        let queries = p.q.heads_of::<T>(q)?;
        let past_len = |_| p.past;
        let ports = (PAST_KEY, PRESENT_KEY);
        let keys = Cache::<T, T>::grow(cx, ports, p.cache(&p.k), &past_len, p.k.heads_of(k)?)?;
        let valid = cx.input(NONPAD).map(|valid| valid.slice::<i64>()).transpose()?;

        let shown = match cx.output_used(SCORES) {
            true => {
                let dims = [p.q.batch, p.q.heads, p.q.positions, p.total];
                Some(cx.output::<T>(SCORES, &dims)?.into_mut())
            }
            false => None,
        };
        if !cx.output_used(Y) && shown.is_none() {
            return Ok(());
        }
        let attend = Attend {
            batch: p.q.batch,
            query_heads: p.q.heads,
            kv_heads: p.k.heads,
            queries: p.q.positions,
            total: p.total,
            scale: match self.scale {
                Some(scale) => scale.into(),
                None => 1.0 / (p.q.width as f64).sqrt(),
            },
            width: p.q.width,
            softcap: self.softcap.into(),
            double_softmax: self.double_softmax,
        };
        let mask = match cx.input(MASK) {
            Some(mask) => Some(Mask::new(mask, p)?),
            None => None,
        };
        let add_mask = |b: usize, h: usize, i: usize, first: usize, scores: &mut [T::Wide]| {
            if let Some(mask) = &mask {
                mask.add_to(b, h, i, first, scores);
            }
        };
        let load_query = |b: usize, h: usize, i: usize, row: &mut [T::Wide]| {
            for (to, x) in row.iter_mut().zip(queries.row(b, h, i)) {
                *to = x.widen();
            }
        };
        let past_given = cx.input(PAST_KEY).is_some();
        let visible = |b: usize, i: usize| {
            // `problem` has checked that no length is negative.
            let valid = valid.and_then(|valid| valid.get(b)).map(|&valid| valid as usize);
            let offset = match valid {
                Some(valid) if !past_given => valid as i64 - p.q.positions as i64,
                _ => p.past as i64,
            };
            let position = offset.saturating_add(i as i64);
            let near = |distance: usize| i64::try_from(distance).unwrap_or(i64::MAX);
            let first = self
                .left
                .map_or(0, |left| Ord::max(position.saturating_sub(near(left)), 0));
            let mut last = self
                .right
                .map_or(i64::MAX, |right| position.saturating_add(near(right)));
            if self.causal {
                last = Ord::min(last, position);
            }
            let end = usize::try_from(last.saturating_add(1)).unwrap_or(0);
            let end = end.min(valid.unwrap_or(p.total));
            usize::try_from(first).unwrap_or(usize::MAX).min(end)..end
        };
        let inputs = Inputs {
            q: &load_query,
            k: &keys,
            v,
            visible: &visible,
            add_mask: &add_mask,
            sink: None,
        };
        let scratch_len = attend
            .scratch_len(p.v.width, cx.workers())
            .ok_or_else(|| OpError::TooLarge {
                dims: q.dims().into(),
            })?;
        let scratch = cx.scratch::<T::Wide>(scratch_len)?;
        let (dims, layout): (Dims, Layout) = match q.rank() {
            4 => (
                [p.q.batch, p.q.heads, p.q.positions, p.v.width]
                    .into_iter()
                    .collect(),
                Layout::heads_first(p.q.heads, p.q.positions, p.v.width),
            ),
            _ => (
                [p.q.batch, p.q.positions, element_count(&[p.q.heads, p.v.width])?]
                    .into_iter()
                    .collect(),
                Layout::positions_first(p.q.heads, p.q.positions, p.v.width),
            ),
        };
        let y = match cx.output_used(Y) {
            true => Some(cx.output::<T>(Y, &dims)?.into_mut()),
            false => None,
        };
        let nothing = |output: Option<&[T]>| output.is_none_or(|output| output.is_empty());
        if nothing(y.as_deref()) && nothing(shown.as_deref()) {
            return Ok(());
        }
        let shown = shown.map(|scores| ScoreOutput {
            stage: self.stage,
            scores,
            hidden: T::narrow(match self.stage {
                ScoreStage::Probability => T::Wide::ZERO,
                _ => T::Wide::LOWEST,
            }),
        });
        attend.run(cx.workers(), &inputs, scratch, y, layout, shown);
        Ok(())
    }
}

/// attn_mask, addressed as [batch, q_heads, queries] rows of `width` elements.
struct Mask<'a> {
    tensor: TensorRef<'a>,
    /// Elements from one batch item, head, query to the next; 0 where the mask repeats.
    strides: [usize; 3],
    width: usize,
}

impl<'a> Mask<'a> {
    fn new(tensor: TensorRef<'a>, p: &Problem) -> Result<Self, OpError> {
        let full = [p.q.batch, p.q.heads, p.q.positions, p.total];
        let wrong = || OpError::WrongDims {
            what: "input 3".into(),
            found: tensor.dims().into(),
            expected: format!(
                "dims that broadcast to {full:?}, the last one at most {}",
                p.total
            ),
        };
        if !(1..=4).contains(&tensor.rank()) {
            return Err(wrong());
        }
        let mut dims = [1; 4];
        for (to, &dim) in dims.iter_mut().rev().zip(tensor.dims().iter().rev()) {
            *to = dim;
        }
        let width = dims[3];
        let mut strides = [0; 3];
        let mut step = width;
        for axis in (0..3).rev() {
            if dims[axis] == full[axis] {
                strides[axis] = step;
            } else if dims[axis] != 1 {
                return Err(wrong());
            }
            step = step.wrapping_mul(dims[axis]);
        }
        if width > p.total {
            return Err(wrong());
        }
        let known = matches!(
            tensor.element_type(),
            ElementType::Bool
                | ElementType::Float16
                | ElementType::Bfloat16
                | ElementType::Float32
                | ElementType::Float64
                | ElementType::Int8
                | ElementType::Int16
                | ElementType::Int32
                | ElementType::Int64
                | ElementType::Uint8
                | ElementType::Uint16
                | ElementType::Uint32
                | ElementType::Uint64
        );
        if !known {
            return Err(OpError::WrongType {
                what: "input 3".into(),
                found: tensor.element_type(),
                expected: "bool or a number".into(),
            });
        }
        Ok(Mask {
            tensor,
            strides,
            width,
        })
    }

    /// Adds to the scores of a query and the keys from `first` on.
    fn add_to<W: Scalar>(&self, b: usize, h: usize, i: usize, first: usize, scores: &mut [W]) {
        let start = b * self.strides[0] + h * self.strides[1] + i * self.strides[2];
        let row = start + first.min(self.width)..start + self.width;
        let covered = row.len().min(scores.len());
        // `new` has refused every type for which this fails.
        let _: Result<(), OpError> = match self.tensor.element_type() {
            ElementType::Bool => self.tensor.slice::<Bool>().map(|mask| {
                for (score, keep) in scores.iter_mut().zip(&mask[row]) {
                    *score = if keep.get() { *score } else { W::LOWEST };
                }
            }),
            ty => with_number!(ty, T => self.tensor.slice::<T>().map(|mask| {
                for (score, added) in scores.iter_mut().zip(&mask[row.clone()]) {
                    *score = score.add(W::from_f64(added.widen().to_f64()));
                }
            })),
        };
        if let Some(rest) = scores.get_mut(covered..) {
            rest.fill(W::LOWEST);
        }
    }
}

impl Operator for Attention {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (q, k, v) = (cx.required(Q)?, cx.required(K)?, cx.required(VALUE)?);
        let q = SymSizes::of(q, self.q_heads);
        let (k_ty, v_ty) = (k.ty, v.ty);
        let (k, v) = (SymSizes::of(k, self.kv_heads), SymSizes::of(v, self.kv_heads));
        let past = match cx.input(PAST_KEY) {
            None => SymDim::Fixed(0),
            Some(past) => match past.dims.as_deref() {
                Some(&[_, _, past, _]) => past,
                _ => SymDim::Unknown,
            },
        };
        let total = match (past, k.positions) {
            (SymDim::Fixed(0), keys) => keys,
            (SymDim::Fixed(past), SymDim::Fixed(keys)) => {
                past.checked_add(keys).map_or(SymDim::Unknown, SymDim::Fixed)
            }
            _ => SymDim::Unknown,
        };
        let y = match q.rank {
            Some(4) => Some(SymDims::from_iter([q.batch, q.heads, q.positions, v.width])),
            Some(3) => {
                let hidden = match (q.heads, v.width) {
                    (SymDim::Fixed(heads), SymDim::Fixed(width)) => {
                        SymDim::Fixed(element_count(&[heads, width])?)
                    }
                    _ => SymDim::Unknown,
                };
                Some(SymDims::from_iter([q.batch, q.positions, hidden]))
            }
            _ => None,
        };
        let q_ty = cx.required(Q)?.ty;
        cx.set_output(Y, q_ty, y);
        cx.set_output(
            PRESENT_KEY,
            k_ty,
            Some(SymDims::from_iter([k.batch, k.heads, total, k.width])),
        );
        cx.set_output(
            PRESENT_VALUE,
            v_ty,
            Some(SymDims::from_iter([v.batch, v.heads, total, v.width])),
        );
        cx.set_output(
            SCORES,
            q_ty,
            Some(SymDims::from_iter([q.batch, q.heads, q.positions, total])),
        );
        Ok(())
    }

    fn past_of(&self, output: usize) -> Option<usize> {
        match output {
            PRESENT_KEY => Some(PAST_KEY),
            PRESENT_VALUE => Some(PAST_VALUE),
            _ => None,
        }
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let problem = self.problem(cx)?;
        let (q, v) = (cx.required(Q)?, cx.required(VALUE)?);
        with_float!(v.element_type(), V => {
            let past_len = |_| problem.past;
            let (ports, sizes) = ((PAST_VALUE, PRESENT_VALUE), problem.cache(&problem.v));
            let values = Cache::<V, V>::grow(cx, ports, sizes, &past_len, problem.v.heads_of(v)?)?;
            match q.element_type() {
                ElementType::Float64 => self.run_as::<f64>(cx, &problem, &values),
                ElementType::Float16 => self.run_as::<f16>(cx, &problem, &values),
                ElementType::Bfloat16 => self.run_as::<bf16>(cx, &problem, &values),
                ElementType::Float32 => self.run_as::<f32>(cx, &problem, &values),
                other => Err(super::unsupported(other, "float16, bfloat16, float or double")),
            }
        })
    }
}

/// What is known of the sizes of Q, K or V.
struct SymSizes {
    rank: Option<usize>,
    batch: SymDim,
    heads: SymDim,
    positions: SymDim,
    width: SymDim,
}

impl SymSizes {
    fn of(fact: &Fact, heads: Option<usize>) -> Self {
        let unknown = SymDim::Unknown;
        let mut sizes = SymSizes {
            rank: fact.rank(),
            batch: unknown,
            heads: heads.map_or(unknown, SymDim::Fixed),
            positions: unknown,
            width: unknown,
        };
        match (fact.dims.as_deref(), heads) {
            (Some(&[batch, heads, positions, width]), _) => {
                (sizes.batch, sizes.heads, sizes.positions, sizes.width) = (batch, heads, positions, width);
            }
            (Some(&[batch, positions, hidden]), Some(heads)) => {
                (sizes.batch, sizes.positions) = (batch, positions);
                if let SymDim::Fixed(hidden) = hidden {
                    sizes.width = SymDim::Fixed(hidden / heads);
                }
            }
            _ => {}
        }
        sizes
    }
}
