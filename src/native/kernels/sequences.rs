//! What generation with Whisper and its like puts around a decoder:
//!
//!   DynamicTimeWarping(X)      [2, steps] of int32: the rows and columns of the cheapest path through
//!                              costs X [M, N] or [1, M, N] from the first to the last, by steps to the
//!                              next row, the next column, or both. Of equal ways in, the diagonal, then
//!                              from the row before, is kept when strictly cheaper in that order
//!   UnfoldTensor(X)            windows of `size` along `dim`, `step` apart, as a new last dim
//!   NGramRepeatBlock(ids, scores)   scores [batch, vocabulary], -inf where the token would repeat an
//!                              n-gram of `ngram_size` of ids [batch, length]
//!
//! com.microsoft 1: DynamicTimeWarping of float; UnfoldTensor any element type; scores float.

use super::dims::axis;
use super::elementwise::copy;
use super::group_query_attention::wrong_dims;
use super::infer::{input_dims, input_type};
use super::moves::gather_runs;
use super::strided::{Strided, Strides, dense_strides};
use super::{Built, required_attribute, wrong_attribute};
use crate::native::element::ElementType;
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, element_count};
use crate::native::working::Working;

#[derive(Debug)]
struct DynamicTimeWarping;

pub(in crate::native) fn dynamic_time_warping(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(DynamicTimeWarping))
}

impl Operator for DynamicTimeWarping {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = SymDims::from_slice(&[SymDim::Fixed(2), SymDim::Unknown]);
        cx.set_output(0, Some(ElementType::Int32), Some(dims));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let (rows, columns) = match *x.dims() {
            [rows, columns] | [1, rows, columns] => (rows, columns),
            _ => return Err(wrong_dims(0, &x, "[M, N] or [1, M, N]")),
        };
        let costs = x.slice::<f32>()?;
        if costs.is_empty() {
            return cx.output::<i32>(0, &[2, 0])?.copy_from(&[]);
        }
        // The cost of the cheapest path to each place, with a border of infinities.
        let width = columns.saturating_add(1);
        let best = cx.scratch::<f32>(element_count(&[rows.saturating_add(1), width])?)?;
        best.fill(f32::INFINITY);
        best[0] = 0.0;
        for row in 1..=rows {
            for column in counted(1..=columns) {
                let at = row * width + column;
                let before = cheapest(best, at, width).1;
                best[at] = costs[(row - 1) * columns + column - 1] + before;
            }
        }
        let mut path: Working<(i32, i32)> = Working::with_room(rows + columns)?;
        let mut at = rows * width + columns;
        while at >= width && at % width > 0 {
            path.push(((at / width - 1) as i32, (at % width - 1) as i32));
            let (back, _) = cheapest(best, at, width);
            at -= back;
        }
        let mut y = cx.output::<i32>(0, &[2, path.len()])?;
        y.extend(path.iter().rev().map(|place| place.0))?;
        y.extend(path.iter().rev().map(|place| place.1))
    }
}

/// How far back the cheapest way to a place comes from, and its cost.
fn cheapest(best: &[f32], at: usize, width: usize) -> (usize, f32) {
    let [diagonal, above, left] = [width + 1, width, 1].map(|back| (back, best[at - back]));
    if diagonal.1 < above.1 && diagonal.1 < left.1 {
        diagonal
    } else if above.1 < diagonal.1 && above.1 < left.1 {
        above
    } else {
        left
    }
}

#[derive(Debug)]
struct UnfoldTensor {
    dim: i64,
    size: usize,
    step: usize,
}

pub(in crate::native) fn unfold_tensor(node: &NodeInfo<'_>) -> Built {
    let positive = |name: &str, value: i64| match usize::try_from(value) {
        Ok(value @ 1..) => Ok(value),
        _ => Err(wrong_attribute(name, format!("is {value}, expected at least 1"))),
    };
    Ok(Box::new(UnfoldTensor {
        dim: node.int_or("dim", -1)?,
        size: positive("size", required_attribute("size", node.int("size")?)?)?,
        step: positive("step", node.int_or("step", 1)?)?,
    }))
}

impl UnfoldTensor {
    fn windows(&self, len: usize) -> Result<usize, OpError> {
        match len.checked_sub(self.size) {
            Some(rest) => Ok(rest / self.step + 1),
            None => Err(OpError::Message(format!(
                "windows of {} do not fit a dim of {len}",
                self.size
            ))),
        }
    }
}

impl Operator for UnfoldTensor {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match input_dims(cx, 0) {
            Some(mut dims) => {
                let at = axis(self.dim, dims.len())?;
                dims[at] = match dims[at] {
                    SymDim::Fixed(len) => SymDim::Fixed(self.windows(len)?),
                    _ => SymDim::Unknown,
                };
                dims.push(SymDim::Fixed(self.size));
                Some(dims)
            }
            None => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let at = axis(self.dim, x.rank())?;
        let mut dims: Dims = x.dims().into();
        let mut strides: Strides = dense_strides(&dims);
        let stride = strides[at];
        dims[at] = self.windows(dims[at])?;
        dims.push(self.size);
        strides[at] = stride.wrapping_mul(self.step as isize);
        strides.push(stride);
        gather_runs(cx, &x, &dims, &Strided::new(&dims, [&strides], [0]))
    }
}

#[derive(Debug)]
struct NGramRepeatBlock {
    size: usize,
}

pub(in crate::native) fn ngram_repeat_block(node: &NodeInfo<'_>) -> Built {
    let size = required_attribute("ngram_size", node.int("ngram_size")?)?;
    match usize::try_from(size) {
        Ok(size @ 1..) => Ok(Box::new(NGramRepeatBlock { size })),
        _ => Err(wrong_attribute(
            "ngram_size",
            format!("is {size}, expected at least 1"),
        )),
    }
}

impl Operator for NGramRepeatBlock {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (ty, dims) = (input_type(cx, 1), input_dims(cx, 1));
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (ids, scores) = (cx.required(0)?, cx.required(1)?);
        let (&[batch, length], &[rows, vocabulary]) = (ids.dims(), scores.dims()) else {
            return Err(wrong_dims(0, &ids, "rank 2, and scores of rank 2"));
        };
        if batch != rows {
            return Err(wrong_dims(1, &scores, format!("[{batch}, vocabulary]")));
        }
        let y = cx.output::<f32>(0, scores.dims())?.into_mut();
        copy(scores.slice::<f32>()?, y);
        if length < self.size || vocabulary == 0 {
            return Ok(());
        }
        let rows = ids.slice::<i64>()?.chunks_exact(length);
        for (ids, scores) in rows.zip(y.chunks_exact_mut(vocabulary)) {
            // The last tokens, one fewer than an n-gram has.
            let tail = &ids[length - (self.size - 1)..];
            for gram in counted(ids.windows(self.size)) {
                let Some((&next, start)) = gram.split_last() else {
                    continue;
                };
                if start != tail {
                    continue;
                }
                let score = usize::try_from(next).ok().and_then(|next| scores.get_mut(next));
                *score.ok_or_else(|| {
                    OpError::Message(format!("token {next} is outside a vocabulary of {vocabulary}"))
                })? = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }
}
