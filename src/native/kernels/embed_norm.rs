//! EmbedLayerNormalization: the sum of the embeddings of a token, normalised.
//!
//!   sum = word[input_ids[b, s]] + position[position_ids[b, s] or s] + segment[segment_ids[b, s]]
//!   Y   = gamma (sum - mean) / sqrt(variance + epsilon) + beta
//!
//!   input_ids, segment_ids  [batch, positions] of int32, segments optional
//!   word, position, segment embeddings  [rows, hidden]; gamma, beta [hidden]
//!   mask           [batch, positions] of int32; mask_index [batch] counts its ones, 0 without it
//!   position_ids   [batch or 1, positions]
//!   Y, embedding_sum  [batch, positions, hidden]
//!
//! com.microsoft 1: float, float16 (bfloat16 and double are taken too). Computed in the wide type.

use super::Built;
use super::dispatch::with_float;
use super::group_query_attention::wrong_dims;
use super::infer::{input_dims, input_type};
use super::norm::{Kind, statistics};
use super::number::{Float, Scalar};
use crate::native::element::ElementType;
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::TensorRef;

const IDS: usize = 0;
const SEGMENT_IDS: usize = 1;
const WORD: usize = 2;
const POSITION: usize = 3;
const SEGMENT: usize = 4;
const GAMMA: usize = 5;
const BETA: usize = 6;
const MASK: usize = 7;
const POSITION_IDS: usize = 8;

#[derive(Debug)]
struct EmbedNorm {
    epsilon: f32,
}

pub(in crate::native) fn embed_layer_normalization(node: &NodeInfo<'_>) -> Built {
    // For shape inference by tools alone.
    node.int("mask_index_type")?;
    Ok(Box::new(EmbedNorm {
        epsilon: node.float_or("epsilon", 1e-12)?,
    }))
}

impl Operator for EmbedNorm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let ids = input_dims(cx, IDS);
        let hidden = match input_dims(cx, WORD).as_deref() {
            Some(&[_, hidden]) => hidden,
            _ => SymDim::Unknown,
        };
        let dims = match ids.as_deref() {
            Some(&[batch, positions]) => Some(SymDims::from_slice(&[batch, positions, hidden])),
            _ => None,
        };
        let batch = ids.and_then(|ids| Some(SymDims::from_slice(&[*ids.first()?])));
        let ty = input_type(cx, WORD);
        cx.set_output(0, ty, dims.clone());
        cx.set_output(1, Some(ElementType::Int32), batch);
        cx.set_output(2, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let word = cx.required(WORD)?;
        with_float!(word.element_type(), T => self.run_as::<T>(cx))
    }
}

/// A table of embeddings.
struct Table<'a, T> {
    data: &'a [T],
    rows: usize,
    index: usize,
}

impl<'a, T: Float> Table<'a, T> {
    fn new(index: usize, tensor: TensorRef<'a>, hidden: usize) -> Result<Self, OpError> {
        match *tensor.dims() {
            [rows, width] if width == hidden => Ok(Table {
                data: tensor.slice()?,
                rows,
                index,
            }),
            _ => Err(wrong_dims(index, &tensor, format!("[rows, {hidden}]"))),
        }
    }

    fn add_row(&self, id: i64, sum: &mut [T::Wide]) -> Result<(), OpError> {
        let row = usize::try_from(id)
            .ok()
            .filter(|&row| row < self.rows)
            .ok_or_else(|| {
                OpError::Message(format!(
                    "id {id} is outside the {} rows of input {}",
                    self.rows, self.index
                ))
            })?;
        for (sum, x) in sum
            .iter_mut()
            .zip(&self.data[row * (self.data.len() / self.rows)..])
        {
            *sum = sum.add(x.widen());
        }
        Ok(())
    }
}

impl EmbedNorm {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (ids, word) = (cx.required(IDS)?, cx.required(WORD)?);
        let (&[batch, positions], &[_, hidden]) = (ids.dims(), word.dims()) else {
            return Err(wrong_dims(IDS, &ids, "rank 2, and embeddings of rank 2"));
        };
        let dims = [batch, positions];
        let of_tokens = |index: usize| match cx.input(index) {
            Some(tensor) if tensor.dims() == dims => Ok(Some(tensor.slice::<i32>()?)),
            Some(tensor) => Err(wrong_dims(index, &tensor, format!("{dims:?}"))),
            None => Ok(None),
        };
        let (segment_ids, mask) = (of_tokens(SEGMENT_IDS)?, of_tokens(MASK)?);
        let position_ids = match cx.input(POSITION_IDS) {
            Some(given) if given.dims() == dims || given.dims() == [1, positions] => {
                Some(given.slice::<i32>()?)
            }
            Some(given) => {
                return Err(wrong_dims(
                    POSITION_IDS,
                    &given,
                    format!("[{batch} or 1, {positions}]"),
                ));
            }
            None => None,
        };
        let words = Table::<T>::new(WORD, word, hidden)?;
        let places = Table::<T>::new(POSITION, cx.required(POSITION)?, hidden)?;
        let segments = match segment_ids {
            Some(ids) => Some((ids, Table::<T>::new(SEGMENT, cx.required(SEGMENT)?, hidden)?)),
            None => None,
        };
        let affine = |index: usize| match cx.required(index)? {
            tensor if tensor.dims() == [hidden] => tensor.slice::<T>(),
            tensor => Err(wrong_dims(index, &tensor, format!("[{hidden}]"))),
        };
        let (gamma, beta) = (affine(GAMMA)?, affine(BETA)?);
        if cx.output_used(1) {
            cx.output::<i32>(1, &[batch])?.fill_with(|b| match mask {
                Some(mask) => ending::elements(&mask[b * positions..][..positions])
                    .filter(|&&bit| bit == 1)
                    .count() as i32,
                None => 0,
            });
        }
        let ids = ids.slice::<i32>()?;
        let sum = cx.scratch::<T::Wide>(hidden)?;
        let full = [batch, positions, hidden];
        let mut room = |index: usize| match cx.output_used(index) {
            true => Ok::<_, OpError>(Some(cx.output::<T>(index, &full)?.into_mut())),
            false => Ok(None),
        };
        let (mut y, mut sums) = (room(0)?, room(2)?);
        for (token, &id) in ids.iter().enumerate() {
            ending::count(hidden);
            let place = match position_ids {
                Some(ids) => ids[token % ids.len()].into(),
                None => (token % positions) as i64,
            };
            sum.fill(T::Wide::ZERO);
            words.add_row(id.into(), sum)?;
            places.add_row(place, sum)?;
            if let Some((ids, segments)) = &segments {
                segments.add_row(ids[token].into(), sum)?;
            }
            let at = token * hidden..(token + 1) * hidden;
            if let Some(sums) = &mut sums {
                for (to, &sum) in sums[at.clone()].iter_mut().zip(sum.iter()) {
                    *to = T::narrow(sum);
                }
            }
            if let Some(y) = &mut y {
                let (mean, inverse) = statistics(sum, Kind::Standard, self.epsilon);
                for (i, (y, x)) in y[at].iter_mut().zip(sum.iter()).enumerate() {
                    let scaled = x.sub(mean).mul(inverse).mul(gamma[i].widen());
                    *y = T::narrow(scaled.add(beta[i].widen()));
                }
            }
        }
        Ok(())
    }
}
