//! What the attention operators of com.microsoft add to scores: an input [batch or 1, heads or 1,
//! queries, keys].

use super::group_query_attention::wrong_dims;
use super::number::{Number, Scalar};
use crate::native::operator::OpError;
use crate::native::tensor::TensorRef;

/// attention_bias: [batch or 1, heads or 1, queries, keys].
pub(super) struct ScoreBias<'a, T> {
    data: &'a [T],
    batch: usize,
    head: usize,
    keys: usize,
}

impl<'a, T: Number> ScoreBias<'a, T> {
    pub fn new(index: usize, tensor: TensorRef<'a>, full: [usize; 4]) -> Result<Self, OpError> {
        let [batch, heads, queries, keys] = full;
        match *tensor.dims() {
            [b, h, q, k] if (b == 1 || b == batch) && (h == 1 || h == heads) && (q, k) == (queries, keys) => {
                let step = queries * keys;
                Ok(ScoreBias {
                    data: tensor.slice()?,
                    batch: if b == 1 { 0 } else { h * step },
                    head: if h == 1 { 0 } else { step },
                    keys,
                })
            }
            _ => Err(wrong_dims(
                index,
                &tensor,
                format!("[{batch} or 1, {heads} or 1, {queries}, {keys}]"),
            )),
        }
    }

    pub fn add_to(&self, b: usize, h: usize, i: usize, first: usize, scores: &mut [T::Wide]) {
        let row = b * self.batch + h * self.head + i * self.keys;
        for (score, bias) in scores.iter_mut().zip(&self.data[row + first..]) {
            *score = score.add(bias.widen());
        }
    }
}
