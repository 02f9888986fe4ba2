//! RotaryEmbedding: pairs of elements of each head rotated by an angle that depends on the
//! position; elements beyond the first `rotary_embedding_dim` (all, if 0) stay.
//!
//!   (a, b) -> (cos a - sin b, sin a + cos b)
//!
//! The pair i is (x[i], x[i + half]), or (x[2i], x[2i + 1]) if `interleaved`.
//!
//!   X                     [batch, heads, positions, size] or, with `num_heads`,
//!                         [batch, positions, heads * size]; Y is the same
//!   cos_cache, sin_cache  [max position, half] with position_ids [batch, positions],
//!                         else [batch, positions, half]
//!
//! ai.onnx 23: float, float16, bfloat16 (double is taken too), computed in f32 and rounded once.
//!
//! com.microsoft 1 has position_ids as its second input, always, which may be [1]: the position
//! of the first token of every batch item. Without `num_heads` the caches say how large a head is.
//! `scale` and `is_packed_batching` do not change the result.
//!
//! MRotaryEmbedding (com.microsoft 1) is the same with position_ids [3, batch, positions], of time,
//! height and width; the angle of a pair is that of one of the three positions. `mrope_section` says how
//! many pairs each has: one after the other, or with `mrope_layout` 1 every third pair from 1 on is one
//! of height and from 2 on one of width, as many as each has, and the others are of time.

use super::Built;
use super::attend::Layout;
use super::dispatch::with_float;
use super::infer::like_first_input;
use super::number::{Float, Scalar};
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

/// The angles of every position.
#[derive(Clone, Copy)]
pub(super) struct Rotation<'a, T> {
    /// [rows, half]
    cos: &'a [T],
    sin: &'a [T],
    pub rows: usize,
    pub half: usize,
    interleaved: bool,
}

impl<'a, T: Float> Rotation<'a, T> {
    /// Of caches of the same dims, whose last is half of what is rotated.
    pub fn new(cos: TensorRef<'a>, sin: TensorRef<'a>, interleaved: bool) -> Result<Self, OpError> {
        let (Some(&half), true) = (cos.dims().last(), sin.dims() == cos.dims()) else {
            return Err(OpError::Message(format!(
                "cos_cache has dims {:?} and sin_cache {:?}: expected the same",
                cos.dims(),
                sin.dims()
            )));
        };
        Ok(Rotation {
            rows: cos.len().checked_div(half).unwrap_or(0),
            cos: cos.slice()?,
            sin: sin.slice()?,
            half,
            interleaved,
        })
    }

    /// The row of a position that a caller gave.
    pub fn row(&self, position: i64) -> Result<usize, OpError> {
        let row = usize::try_from(position).ok();
        row.filter(|&row| row < self.rows).ok_or_else(|| {
            OpError::Message(format!(
                "position {position} is outside the {} rows of the caches",
                self.rows
            ))
        })
    }

    /// Rotates the first 2 * half elements of a head by the angles of a row.
    pub fn turn(&self, row: usize, x: &mut [T::Wide]) {
        let at = row * self.half;
        self.turn_pairs(x, |first, cos, sin| {
            T::widen_all(&self.cos[at + first..], cos);
            T::widen_all(&self.sin[at + first..], sin);
        });
    }

    /// The same, each pair by its angle of one of three rows.
    fn turn_by_stream(&self, rows: [usize; 3], streams: &[u8], x: &mut [T::Wide]) {
        self.turn_pairs(x, |first, cos, sin| {
            for (i, (cos, sin)) in cos.iter_mut().zip(sin).enumerate() {
                let at = rows[usize::from(streams[first + i])] * self.half + first + i;
                (*cos, *sin) = (self.cos[at].widen(), self.sin[at].widen());
            }
        });
    }

    /// `angles` gives the cosines and sines from a pair on.
    fn turn_pairs(&self, x: &mut [T::Wide], angles: impl Fn(usize, &mut [T::Wide], &mut [T::Wide])) {
        let turn = |a: &mut T::Wide, b: &mut T::Wide, cos: T::Wide, sin: T::Wide| {
            (*a, *b) = (cos.mul(*a).sub(sin.mul(*b)), sin.mul(*a).add(cos.mul(*b)));
        };
        let (mut cos, mut sin) = ([T::Wide::ZERO; 64], [T::Wide::ZERO; 64]);
        for first in (0..self.half).step_by(cos.len()) {
            let len = cos.len().min(self.half - first);
            let (cos, sin) = (&mut cos[..len], &mut sin[..len]);
            angles(first, cos, sin);
            let angles = cos.iter().zip(&*sin);
            if self.interleaved {
                for (pair, (&cos, &sin)) in x[2 * first..].chunks_exact_mut(2).zip(angles) {
                    if let [a, b] = pair {
                        turn(a, b, cos, sin);
                    }
                }
                continue;
            }
            let (low, high) = x.split_at_mut(self.half);
            let (low, high) = (&mut low[first..], &mut high[first..]);
            for ((a, b), (&cos, &sin)) in low.iter_mut().zip(high).zip(angles) {
                turn(a, b, cos, sin);
            }
        }
    }
}

#[derive(Debug)]
struct RotaryEmbedding {
    interleaved: bool,
    /// 0 rotates whole heads.
    rotated: usize,
    heads: Option<usize>,
    contrib: bool,
    /// Which of the three positions each pair is turned by, in MRotaryEmbedding.
    streams: Option<Vec<u8>>,
}

fn build(node: &NodeInfo<'_>, contrib: bool, streams: Option<Vec<u8>>) -> Built {
    let size = |name: &str| match node.int(name)? {
        None => Ok(None),
        Some(value) => usize::try_from(value).map(Some).map_err(|_| OpError::Attribute {
            name: name.into(),
            message: format!("is {value}, expected 0 or more"),
        }),
    };
    if contrib {
        node.flag_or("is_packed_batching", false)?;
        node.float("scale")?;
    }
    Ok(Box::new(RotaryEmbedding {
        interleaved: node.flag_or("interleaved", false)?,
        rotated: size("rotary_embedding_dim")?.unwrap_or(0),
        heads: size("num_heads")?.filter(|&heads| heads > 0),
        contrib,
        streams,
    }))
}

pub(in crate::native) fn rotary_embedding(node: &NodeInfo<'_>) -> Built {
    build(node, false, None)
}

pub(in crate::native) fn contrib_rotary_embedding(node: &NodeInfo<'_>) -> Built {
    build(node, true, None)
}

pub(in crate::native) fn m_rotary_embedding(node: &NodeInfo<'_>) -> Built {
    let given = super::required_attribute("mrope_section", node.ints("mrope_section")?)?;
    let wrong = || super::wrong_attribute("mrope_section", format!("is {given:?}, expected three sizes"));
    // An angle is of an element of a tensor that exists, so that there are not more than this.
    const MOST: usize = 1 << 20;
    let sizes: Vec<usize> = given
        .iter()
        .map(|&size| {
            usize::try_from(size)
                .ok()
                .filter(|&size| size < MOST)
                .ok_or_else(wrong)
        })
        .collect::<Result<_, _>>()?;
    let &[time, height, width] = &sizes[..] else {
        return Err(wrong());
    };
    let pairs = time + height + width;
    let streams = match node.int_or("mrope_layout", 0)? {
        0 => (0..pairs)
            .map(|i| u8::from(i >= time) + u8::from(i >= time + height))
            .collect(),
        1 => (0..pairs)
            .map(|i| match i % 3 {
                1 if i < 3 * height => 1,
                2 if i < 3 * width => 2,
                _ => 0,
            })
            .collect(),
        other => {
            let message = format!("is {other}, expected 0 or 1");
            return Err(super::wrong_attribute("mrope_layout", message));
        }
    };
    build(node, true, Some(streams))
}

impl Operator for RotaryEmbedding {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl RotaryEmbedding {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let wrong = |what: &str, found: &[usize], expected: String| OpError::WrongDims {
            what: what.into(),
            found: found.into(),
            expected,
        };
        let (cos, sin, ids) = match self.contrib {
            false => (cx.required(1)?, cx.required(2)?, cx.input(3)),
            true => (cx.required(2)?, cx.required(3)?, Some(cx.required(1)?)),
        };
        let rotation = Rotation::<T>::new(cos, sin, self.interleaved)?;
        let (batch, heads, positions, layout) = match *x.dims() {
            [batch, heads, positions, size] => (
                batch,
                heads,
                positions,
                Layout::heads_first(heads, positions, size),
            ),
            [batch, positions, hidden] => {
                let heads = match self.heads {
                    None if self.contrib && self.rotated == 0 => hidden / (2 * rotation.half).max(1),
                    heads => heads.unwrap_or(0),
                };
                if heads == 0 || !hidden.is_multiple_of(heads) {
                    return Err(wrong(
                        "input 0",
                        x.dims(),
                        format!("a last dim that num_heads ({:?}) divides", self.heads),
                    ));
                }
                let layout = Layout::positions_first(heads, positions, hidden / heads);
                (batch, heads, positions, layout)
            }
            _ => return Err(wrong("input 0", x.dims(), "rank 3 or 4".into())),
        };
        let rotated = if self.rotated == 0 {
            layout.width
        } else {
            self.rotated
        };
        if rotated > layout.width || !rotated.is_multiple_of(2) {
            return Err(OpError::Message(format!(
                "cannot rotate {rotated} elements of heads of {}: expected an even number, at most the head size",
                layout.width
            )));
        }
        let half = rotated / 2;
        if let Some(streams) = self.streams.as_ref().filter(|streams| streams.len() != half) {
            return Err(OpError::Message(format!(
                "mrope_section says {} pairs, {rotated} elements are rotated",
                streams.len()
            )));
        }
        let first_only = self.contrib && self.streams.is_none() && ids.is_some_and(|ids| ids.dims() == [1]);
        let ids = match ids {
            Some(ids) if self.streams.is_some() => match ids.dims() == [3, batch, positions] {
                true => Some(ids.slice::<i64>()?),
                false => {
                    let expected = format!("[3, {batch}, {positions}]");
                    return Err(wrong("position_ids", ids.dims(), expected));
                }
            },
            Some(ids) if !first_only && ids.dims() != [batch, positions] => {
                return Err(wrong(
                    "position_ids",
                    ids.dims(),
                    format!("[{batch}, {positions}]"),
                ));
            }
            Some(ids) => Some(ids.slice::<i64>()?),
            None => None,
        };
        let fits = match (ids, cos.dims()) {
            (Some(_), &[_, width]) => width == half,
            (None, &[b, p, width]) => (b, p, width) == (batch, positions, half),
            _ => false,
        };
        if !fits {
            let expected = match ids {
                Some(_) => format!("[max position, {half}]"),
                None => format!("[{batch}, {positions}, {half}]"),
            };
            return Err(wrong("cos_cache", cos.dims(), expected));
        }
        let y = cx.output::<T>(0, x.dims())?.into_mut();
        let (workers, width) = (cx.workers(), layout.width);
        let rooms = cx.scratch::<T::Wide>(width.saturating_mul(workers.threads()))?;
        let heads_first = x.rank() == 4;
        let x = x.slice::<T>()?;
        if x.is_empty() {
            return Ok(());
        }
        // The rows of the angles of a token, of one batch item after the other.
        let rows_of = |token: usize| -> Result<[usize; 3], OpError> {
            match (ids, &self.streams) {
                (None, _) => Ok([token; 3]),
                (Some(ids), _) if first_only => {
                    let position = ids[0].saturating_add((token % positions) as i64);
                    Ok([rotation.row(position)?; 3])
                }
                (Some(ids), None) => Ok([rotation.row(ids[token])?; 3]),
                (Some(ids), Some(_)) => {
                    let stream = |n: usize| rotation.row(ids[n * batch * positions + token]);
                    Ok([stream(0)?, stream(1)?, stream(2)?])
                }
            }
        };
        for token in counted(0..batch * positions) {
            rows_of(token)?;
        }
        let token_of = |head: usize| match heads_first {
            true => head / (heads * positions) * positions + head % positions,
            false => head / heads,
        };
        let several = workers.chunk(x.len() / width, width.saturating_mul(2));
        workers.split_mut_with(y, several * width, rooms, |part, y, room| {
            for (i, y) in y.chunks_exact_mut(width).enumerate() {
                let head = part * several + i;
                // Every token has been looked at.
                let rows = rows_of(token_of(head)).unwrap_or_default();
                T::widen_all(&x[head * width..], room);
                match &self.streams {
                    Some(streams) => rotation.turn_by_stream(rows, streams, room),
                    None => rotation.turn(rows[0], room),
                }
                T::narrow_all(room, y);
            }
        });
        Ok(())
    }
}
