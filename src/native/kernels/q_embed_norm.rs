//! QEmbedLayerNormalization: EmbedLayerNormalization (see `embed_norm`) of tables, gamma and beta of
//! int8 or uint8, each with a scale and a zero point of one element.
//!
//!   input_ids, segment_ids, word, position, segment, gamma, beta, mask, then the five scales in the order
//!   of the tables, then the five zero points
//!
//! com.microsoft 1: scales and Y of float. Only the rows of the word and position tables that are used
//! are dequantised.

use super::group_query_attention::wrong_dims;
use super::quantized::{Quantized, with_quantized};
use super::through_floats::{one_scale, one_zero};
use super::{Built, embed_norm, inner};
use crate::native::element::ElementType;
use crate::native::infer::{Fact, InferContext};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Tensor, element_count};

const IDS: usize = 0;
const SEGMENT_IDS: usize = 1;
const WORD: usize = 2;
const POSITION: usize = 3;
const SEGMENT: usize = 4;
const GAMMA: usize = 5;
const BETA: usize = 6;
const MASK: usize = 7;

/// From a table to its scale, and to its zero point.
const TO_SCALE: usize = 6;
const TO_ZERO: usize = 11;

#[derive(Debug)]
struct QEmbedNorm(Box<dyn Operator>);

pub(in crate::native) fn q_embed_layer_normalization(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(QEmbedNorm(embed_norm::embed_layer_normalization(node)?)))
}

impl Operator for QEmbedNorm {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let word = Fact {
            ty: Some(ElementType::Float32),
            value: None,
            ..cx.required(WORD)?.clone()
        };
        let count = cx.output_count();
        let outputs = inner::infer(&*self.0, &[cx.input(IDS), None, Some(&word)], count)?;
        for (index, output) in outputs.into_iter().enumerate() {
            cx.set_fact(index, output);
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let ids = cx.required(IDS)?;
        let &[_, positions] = ids.dims() else {
            return Err(wrong_dims(IDS, &ids, "rank 2"));
        };
        let words = ids.slice::<i32>()?;
        // The rows that the tokens name, one after the other, and so their numbers.
        let word = rows(cx, WORD, words.iter().map(|&id| i64::from(id)), words.len())?;
        let numbers = cx.pool.tensor(ElementType::Int32, ids.dims(), |bytes| {
            for (number, to) in (0i32..).zip(bytes.chunks_exact_mut(size_of::<i32>())) {
                to.copy_from_slice(&number.to_ne_bytes());
            }
        })?;
        let position = rows(cx, POSITION, 0..positions as i64, positions)?;
        let segment = match cx.input(SEGMENT) {
            Some(table) => {
                let count = table.dims().first().copied().unwrap_or(0);
                Some(rows(cx, SEGMENT, 0..count as i64, count)?)
            }
            None => None,
        };
        let (gamma, beta) = (whole(cx, GAMMA)?, whole(cx, BETA)?);
        let inputs = [
            Some(numbers.view()),
            cx.input(SEGMENT_IDS),
            Some(word.view()),
            Some(position.view()),
            segment.as_ref().map(Tensor::view),
            Some(gamma.view()),
            Some(beta.view()),
            cx.input(MASK),
        ];
        inner::run_last(cx, &*self.0, &inputs, |_| true)?;
        let made = [word, numbers, position, gamma, beta];
        inner::recycle(cx, made.into_iter().chain(segment));
        Ok(())
    }
}

/// Rows of a table in f32.
fn rows(
    cx: &mut RunContext<'_>,
    index: usize,
    ids: impl Iterator<Item = i64> + Clone,
    count: usize,
) -> Result<Tensor, OpError> {
    let table = cx.required(index)?;
    let &[rows, width] = table.dims() else {
        return Err(wrong_dims(index, &table, "rank 2"));
    };
    if element_count(&[count, width])? == 0 {
        return inner::floats(cx, &[count, width], std::iter::empty());
    }
    if let Some(id) = ids
        .clone()
        .find(|&id| !usize::try_from(id).is_ok_and(|id| id < rows))
    {
        return Err(OpError::Message(format!(
            "id {id} is outside the {rows} rows of input {index}"
        )));
    }
    let elements = ids.flat_map(|id| {
        let start = id as usize * width;
        start..start + width
    });
    dequantized(cx, index, &[count, width], elements)
}

fn whole(cx: &mut RunContext<'_>, index: usize) -> Result<Tensor, OpError> {
    let tensor = cx.required(index)?;
    dequantized(cx, index, tensor.dims(), 0..tensor.len())
}

/// These elements of an input, in f32.
fn dequantized(
    cx: &mut RunContext<'_>,
    index: usize,
    dims: &[usize],
    elements: impl Iterator<Item = usize>,
) -> Result<Tensor, OpError> {
    let tensor = cx.required(index)?;
    let scale = one_scale(cx, index + TO_SCALE)?;
    let zero = one_zero(cx, index + TO_ZERO, tensor.element_type())?;
    match tensor.element_type() {
        ty @ (ElementType::Int8 | ElementType::Uint8) => with_quantized!(ty, Q => {
            let codes = tensor.slice::<Q>()?;
            let values = elements.map(|at| (Quantized::to_f64(codes[at]) - zero) as f32 * scale);
            inner::floats(cx, dims, values)
        }),
        other => Err(super::unsupported(other, "int8 or uint8")),
    }
}
