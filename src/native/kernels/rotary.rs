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

use super::Built;
use super::attend::Layout;
use super::dispatch::with_float;
use super::infer::like_first_input;
use super::number::{Float, Scalar};
use crate::native::element::ElementType;
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

#[derive(Debug)]
struct RotaryEmbedding {
    interleaved: bool,
    /// 0 rotates whole heads.
    rotated: usize,
    heads: Option<usize>,
}

pub(in crate::native) fn rotary_embedding(node: &NodeInfo<'_>) -> Built {
    let size = |name: &str| match node.int(name)? {
        None => Ok(None),
        Some(value) => usize::try_from(value).map(Some).map_err(|_| OpError::Attribute {
            name: name.into(),
            message: format!("is {value}, expected 0 or more"),
        }),
    };
    Ok(Box::new(RotaryEmbedding {
        interleaved: node.flag_or("interleaved", false)?,
        rotated: size("rotary_embedding_dim")?.unwrap_or(0),
        heads: size("num_heads")?.filter(|&heads| heads > 0),
    }))
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
        let (batch, heads, positions, layout) = match (x.dims(), self.heads) {
            (&[batch, heads, positions, size], _) => (
                batch,
                heads,
                positions,
                Layout::heads_first(heads, positions, size),
            ),
            (&[batch, positions, hidden], Some(heads)) if hidden.is_multiple_of(heads) => {
                let layout = Layout::positions_first(heads, positions, hidden / heads);
                (batch, heads, positions, layout)
            }
            _ => {
                return Err(wrong(
                    "input 0",
                    x.dims(),
                    format!(
                        "rank 4, or rank 3 with a last dim that num_heads ({:?}) divides",
                        self.heads
                    ),
                ));
            }
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
        let (cos, sin) = (cx.required(1)?, cx.required(2)?);
        let ids = match cx.input(3) {
            Some(ids) => {
                if ids.dims() != [batch, positions] {
                    return Err(wrong("input 3", ids.dims(), format!("[{batch}, {positions}]")));
                }
                Some(ids.slice::<i64>()?)
            }
            None => None,
        };
        let rows = match (ids, cos.dims()) {
            (Some(_), &[rows, width]) if width == half => rows,
            (None, &[b, p, width]) if (b, p, width) == (batch, positions, half) => batch * positions,
            (Some(_), _) => return Err(wrong("input 1", cos.dims(), format!("[max position, {half}]"))),
            (None, _) => {
                return Err(wrong(
                    "input 1",
                    cos.dims(),
                    format!("[{batch}, {positions}, {half}]"),
                ));
            }
        };
        if sin.dims() != cos.dims() {
            return Err(wrong(
                "input 2",
                sin.dims(),
                format!("{:?}, like input 1", cos.dims()),
            ));
        }
        let (cos, sin) = (cos.slice::<T>()?, sin.slice::<T>()?);
        let y = cx.output::<T>(0, x.dims())?.into_mut();
        let x = x.slice::<T>()?;
        if x.is_empty() {
            return Ok(());
        }
        for b in 0..batch {
            for p in 0..positions {
                let token = b * positions + p;
                let row = match ids {
                    None => token,
                    Some(ids) => usize::try_from(ids[token]).ok().filter(|&row| row < rows).ok_or_else(|| {
                        OpError::Message(format!(
                            "position {} (batch item {b}, token {p}) is outside the {rows} rows of the caches",
                            ids[token]
                        ))
                    })?,
                };
                let (cos, sin) = (&cos[row * half..][..half], &sin[row * half..][..half]);
                for h in 0..heads {
                    let at = layout.start(b, h, p);
                    let (x, y) = (&x[at..][..layout.width], &mut y[at..][..layout.width]);
                    y[rotated..].copy_from_slice(&x[rotated..]);
                    self.rotate(&x[..rotated], cos, sin, &mut y[..rotated]);
                }
            }
        }
        Ok(())
    }

    fn rotate<T: Float>(&self, x: &[T], cos: &[T], sin: &[T], y: &mut [T]) {
        let turn = |a: T, b: T, cos: T, sin: T| {
            let (a, b, cos, sin) = (a.widen(), b.widen(), cos.widen(), sin.widen());
            (
                T::narrow(cos.mul(a).sub(sin.mul(b))),
                T::narrow(sin.mul(a).add(cos.mul(b))),
            )
        };
        if self.interleaved {
            let pairs = x.chunks_exact(2).zip(y.chunks_exact_mut(2));
            for ((x, y), (&cos, &sin)) in pairs.zip(cos.iter().zip(sin)) {
                (y[0], y[1]) = turn(x[0], x[1], cos, sin);
            }
            return;
        }
        let half = x.len() / 2;
        let (x_low, x_high) = x.split_at(half);
        let (y_low, y_high) = y.split_at_mut(half);
        for i in 0..half {
            (y_low[i], y_high[i]) = turn(x_low[i], x_high[i], cos[i], sin[i]);
        }
    }
}
