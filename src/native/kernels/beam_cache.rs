//! MultiHeadAttention and DecoderMaskedMultiHeadAttention over a cache that the beams of a search
//! share: row k of the past of beam j of batch item i is that of beam cache_indirection[i, j, k].
//!
//!   cache_indirection  [batch, beams, at least the rows of the past that are used] of int32, where
//!                      queries, keys and caches have batch * beams items
//!   beam_width         their number, where the operator has it
//!
//! The caches that are given on are as they came, with the new rows at their ends: which beam goes on
//! with whose rows is the search's to say.

use super::elementwise::copy;
use super::group_query_attention::wrong_dims;
use super::inner;
use crate::native::ending;
use crate::native::infer::InferContext;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Tensor, TensorRef};
use smallvec::SmallVec;

/// Where the inputs are that this is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inputs {
    pub past: [usize; 2],
    pub past_length: usize,
    pub beam_width: Option<usize>,
    pub indirection: usize,
}

#[derive(Debug)]
pub(super) struct BeamCache {
    /// The same node without `cache_indirection`.
    pub attention: Box<dyn Operator>,
    pub inputs: Inputs,
}

/// The outputs that are caches; the others depend on whose rows are read.
const CACHES: [usize; 2] = [1, 2];

impl Operator for BeamCache {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        self.attention.infer(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let past = self.inputs.past.map(|index| cx.input(index));
        let (Some(indirection), [Some(key), Some(value)]) = (cx.input(self.inputs.indirection), past) else {
            // Nothing of earlier steps is read.
            return self.attention.run(cx);
        };
        let used = match cx.input(self.inputs.past_length) {
            Some(length) => match length.to_ints()?[..] {
                [used] => usize::try_from(used).unwrap_or(usize::MAX),
                _ => return Err(wrong_dims(self.inputs.past_length, &length, "one element")),
            },
            None => key.dims().get(2).copied().unwrap_or(0),
        };
        let beams = match *indirection.dims() {
            [_, beams, rows] if rows >= used && beams > 0 => beams,
            _ => {
                let expected = format!("[batch, beams, at least {used}]");
                return Err(wrong_dims(self.inputs.indirection, &indirection, expected));
            }
        };
        if let Some(width) = self.inputs.beam_width.and_then(|index| cx.input(index))
            && width.to_ints()?[..] != [beams as i64]
        {
            return Err(OpError::Message(format!(
                "beam_width is {width:?}, and cache_indirection is of {beams} beams"
            )));
        }
        let key = gathered(cx, &key, &indirection, used, self.inputs)?;
        let value = gathered(cx, &value, &indirection, used, self.inputs)?;
        let mut read: SmallVec<[Option<TensorRef<'_>>; 12]> =
            (0..cx.input_count()).map(|index| cx.input(index)).collect();
        inner::run_last(cx, &*self.attention, &read, |output| CACHES.contains(&output))?;
        read[self.inputs.past[0]] = Some(key.view());
        read[self.inputs.past[1]] = Some(value.view());
        inner::run_last(cx, &*self.attention, &read, |output| !CACHES.contains(&output))?;
        drop(read);
        inner::recycle(cx, [key, value]);
        Ok(())
    }
}

/// A cache [batch * beams, heads, rows, width] as each beam reads it.
fn gathered(
    cx: &mut RunContext<'_>,
    past: &TensorRef<'_>,
    indirection: &TensorRef<'_>,
    used: usize,
    inputs: Inputs,
) -> Result<Tensor, OpError> {
    let (&[items, heads, rows, width], &[batch, beams, length]) = (past.dims(), indirection.dims()) else {
        return Err(wrong_dims(inputs.past[0], past, "rank 4"));
    };
    if batch.checked_mul(beams) != Some(items) || used > rows {
        let expected = format!("[{batch} * {beams}, heads, at least {used}, size]");
        return Err(wrong_dims(inputs.past[0], past, expected));
    }
    if used == 0 || past.is_empty() {
        return past.to_tensor();
    }
    let sources = indirection.slice::<i32>()?;
    let read = |item: usize| &sources[item * length..][..used];
    let in_range = |&source: &i32| usize::try_from(source).is_ok_and(|source| source < beams);
    if !(0..items).all(|item| read(item).iter().all(in_range)) {
        return Err(OpError::Message(format!(
            "cache_indirection names a beam beyond {beams}"
        )));
    }
    let bytes = past.bytes()?;
    let row = width * past.element_type().size().unwrap_or(1);
    cx.pool.tensor(past.element_type(), past.dims(), |to| {
        copy(bytes, to);
        for item in 0..items {
            for (k, &source) in read(item).iter().enumerate() {
                let source = item / beams * beams + source as usize;
                ending::count(heads.saturating_mul(row));
                for head in 0..heads {
                    let at = |item: usize| ((item * heads + head) * rows + k) * row;
                    to[at(item)..][..row].copy_from_slice(&bytes[at(source)..][..row]);
                }
            }
        }
    })
}
