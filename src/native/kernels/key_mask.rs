//! The key masks of Attention and MultiHeadAttention of com.microsoft: what is added to a score
//! where a key is masked, `mask_filter_value`, by the shape of the mask.
//!
//!   [batch]                        keys from this position on
//!   [2 batch]                      keys from the first half's position on, and before the second's
//!   [3 batch + 2]                  keys from this position on, in the first `batch`
//!   [batch, total]                 keys whose element is not above 0
//!   [batch, queries, total]        the same for each query
//!   [batch, 1, max, max]           the same, at the query's place among all positions
//!
//! A [batch, 1] or [1, 1] mask of more than one key says the same of all keys: nothing.

use super::number::Scalar;
use crate::native::operator::OpError;
use crate::native::tensor::TensorRef;

/// The sizes that a mask goes with.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaskSizes {
    pub batch: usize,
    pub queries: usize,
    /// Keys before those of this step.
    pub past: usize,
    pub total: usize,
}

#[derive(Debug)]
enum Kind {
    Nothing,
    Ends,
    EndsAndStarts,
    /// Elements from one batch item and query to the next, and the query that is first.
    Elements {
        batch: usize,
        query: usize,
        first: usize,
    },
}

#[derive(Debug)]
pub(super) struct KeyMask<'a> {
    data: &'a [i32],
    kind: Kind,
    batch: usize,
    filter: f32,
}

impl<'a> KeyMask<'a> {
    pub fn new(index: usize, tensor: TensorRef<'a>, sizes: MaskSizes, filter: f32) -> Result<Self, OpError> {
        let MaskSizes {
            batch,
            queries,
            past,
            total,
        } = sizes;
        let kind = match *tensor.dims() {
            [len] if len == batch => Kind::Ends,
            [len] if Some(len) == batch.checked_mul(2) => Kind::EndsAndStarts,
            [len] if Some(len) == batch.checked_mul(3).and_then(|len| len.checked_add(2)) => Kind::Ends,
            [b, keys] if b == batch && keys == total => Kind::Elements {
                batch: total,
                query: 0,
                first: 0,
            },
            [b, 1] if b == batch || b == 1 => Kind::Nothing,
            [b, q, keys] if (b, q, keys) == (batch, queries, total) => Kind::Elements {
                batch: queries * total,
                query: total,
                first: 0,
            },
            [b, 1, rows, keys]
                if b == batch
                    && past.checked_add(queries).is_some_and(|end| rows >= end)
                    && keys >= total =>
            {
                Kind::Elements {
                    batch: rows * keys,
                    query: keys,
                    first: past,
                }
            }
            _ => {
                return Err(OpError::WrongDims {
                    what: format!("input {index}"),
                    found: tensor.dims().into(),
                    expected: format!("a mask for {batch} batch items, {queries} queries and {total} keys"),
                });
            }
        };
        Ok(KeyMask {
            data: tensor.slice()?,
            kind,
            batch,
            filter,
        })
    }

    /// Adds to the scores of a query and the keys from `first` on.
    pub fn add_to<W: Scalar>(&self, b: usize, i: usize, first: usize, scores: &mut [W]) {
        let filter = W::from_f64(self.filter.into());
        let mut mask = |masked: &dyn Fn(usize) -> bool| {
            for (j, score) in (first..).zip(scores.iter_mut()) {
                if masked(j) {
                    *score = score.add(filter);
                }
            }
        };
        match self.kind {
            Kind::Nothing => {}
            Kind::Ends => {
                let end = i64::from(self.data[b]);
                mask(&|j| j as i64 >= end);
            }
            Kind::EndsAndStarts => {
                let (end, start) = (i64::from(self.data[b]), i64::from(self.data[self.batch + b]));
                mask(&|j| j as i64 >= end || (j as i64) < start);
            }
            Kind::Elements { batch, query, first } => {
                let row = &self.data[b * batch + (first + i) * query..];
                mask(&|j| row[j] <= 0);
            }
        }
    }
}
