//! Elements and slices picked by position:
//!
//!   GatherElements(X, I)    y[i, j, ...] = x[I[i, j, ...], j, ...] along `axis`; Y has the shape of
//!                           I, whose other dims are at most those of X     ai.onnx 11, 13
//!   GatherND(X, I)          y[b..., i...] = x[b..., I[b..., i...]...], where the last dim of I holds
//!                           positions in X and the first `batch_dims` dims go along with X
//!                           ai.onnx 11, 12, 13
//!
//! Any type. Negative positions count from the end; one outside its dim is an error.

use super::Built;
use super::dims::{Lanes, axis, position};
use super::infer::{input_dims, input_type};
use super::moves::gather_starts;
use super::strided::{Strided, dense_strides};
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

#[derive(Debug)]
struct GatherElements {
    axis: i64,
}

pub(in crate::native) fn gather_elements(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GatherElements {
        axis: node.int_or("axis", 0)?,
    }))
}

impl Operator for GatherElements {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (ty, dims) = (input_type(cx, 0), input_dims(cx, 1));
        cx.set_output(0, ty, dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, indices) = (cx.required(0)?, cx.required(1)?);
        let axis = axis(self.axis, x.rank())?;
        let positions = cx.scratch::<u64>(indices.len())?;
        element_positions(x.dims(), &indices, axis, positions)?;
        let starts = positions.iter().map(|&at| at as usize);
        gather_starts(cx, 0, &x, indices.dims(), 1, starts)
    }
}

/// For each element of `indices`, the position in a tensor of `dims` that it names: its own,
/// with its value in place of the coordinate of `axis`.
pub(super) fn element_positions(
    dims: &[usize],
    indices: &TensorRef<'_>,
    axis: usize,
    positions: &mut [u64],
) -> Result<(), OpError> {
    let fits = indices.rank() == dims.len()
        && (indices.dims().iter().zip(dims).enumerate()).all(|(at, (i, dim))| at == axis || i <= dim);
    if !fits {
        return Err(OpError::WrongDims {
            what: "input 1".into(),
            found: indices.dims().into(),
            expected: format!("at most those of input 0, {dims:?}, but for axis {axis}"),
        });
    }
    let mut strides = dense_strides(dims);
    let stride = std::mem::replace(&mut strides[axis], 0) as usize;
    let mut targets = positions.iter_mut().zip(indices.to_ints()?);
    let mut outside = None;
    Strided::new(indices.dims(), [&strides], [0]).for_each(&mut |[base]| {
        let Some((target, index)) = targets.next() else {
            return;
        };
        match position(index, dims[axis]) {
            Some(at) => *target = (base + at * stride) as u64,
            None => outside = outside.or(Some(index)),
        }
    });
    match outside {
        None => Ok(()),
        Some(index) => Err(OpError::Message(format!(
            "index {index} of input 1 is out of range for axis {axis} of shape {dims:?}"
        ))),
    }
}

/// Reads positions of slices: rows of `indices` that hold a coordinate for each of the first
/// dims of a tensor.
pub(super) struct Tuples {
    /// Elements of the slice that a row names.
    pub run: usize,
    dims: Dims,
}

impl Tuples {
    /// For rows of `depth` coordinates, 1 or more, into a tensor of `dims`.
    pub fn new(depth: usize, dims: &[usize]) -> Result<Self, OpError> {
        match (depth, dims.get(depth..)) {
            (1.., Some(slice)) => Ok(Tuples {
                run: slice.iter().product(),
                dims: dims.into(),
            }),
            _ => Err(OpError::Message(format!(
                "rows of {depth} positions do not name parts of shape {dims:?}"
            ))),
        }
    }

    /// Where the slice that a row names begins.
    pub fn start(&self, row: &[i64]) -> Result<usize, OpError> {
        let mut block = 0;
        for (&index, &dim) in row.iter().zip(&self.dims) {
            let at = position(index, dim).ok_or_else(|| {
                OpError::Message(format!(
                    "position {row:?} of input 1 is outside shape {:?}",
                    self.dims
                ))
            })?;
            block = block * dim + at;
        }
        Ok(block * self.run)
    }
}

#[derive(Debug)]
struct GatherNd {
    batch_dims: i64,
}

pub(in crate::native) fn gather_nd(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GatherNd {
        batch_dims: match node.since {
            12.. => node.int_or("batch_dims", 0)?,
            _ => 0,
        },
    }))
}

impl GatherNd {
    /// The number of batch dims, which both inputs must have besides others.
    fn batch(&self, x_rank: usize, indices_rank: usize) -> Result<usize, OpError> {
        usize::try_from(self.batch_dims)
            .ok()
            .filter(|&batch| batch < x_rank && batch < indices_rank)
            .ok_or_else(|| {
                OpError::Message(format!(
                    "batch_dims is {}, inputs have rank {x_rank} and {indices_rank}",
                    self.batch_dims
                ))
            })
    }
}

impl Operator for GatherNd {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match (input_dims(cx, 0), input_dims(cx, 1)) {
            (Some(from), Some(indices)) => {
                let batch = self.batch(from.len(), indices.len())?;
                match indices.last() {
                    Some(SymDim::Fixed(depth)) if *depth <= from.len() - batch => {
                        let slice = &from[batch + depth..];
                        let dims: SymDims = indices[..indices.len() - 1]
                            .iter()
                            .chain(slice)
                            .copied()
                            .collect();
                        Some(dims)
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, indices) = (cx.required(0)?, cx.required(1)?);
        let batch = self.batch(x.rank(), indices.rank())?;
        if x.dims()[..batch] != indices.dims()[..batch] {
            return Err(OpError::Message(format!(
                "the first {batch} dims of shapes {:?} and {:?} differ",
                x.dims(),
                indices.dims()
            )));
        }
        let (&depth, prefix) = indices.dims().split_last().unwrap_or((&0, &[]));
        let tuples = Tuples::new(depth, &x.dims()[batch..])?;
        let dims: Dims = prefix.iter().chain(&x.dims()[batch + depth..]).copied().collect();
        let rows = indices.to_ints()?;
        let starts = cx.scratch::<u64>(rows.len() / depth)?;
        // What one batch has of rows of positions, and of elements of x. (The lanes of x along
        // its last batch dim are what is inside of it.)
        let (rows_each, block) = match batch.checked_sub(1) {
            None => (starts.len(), 0),
            Some(last) => (
                Lanes::along(prefix, last).inner,
                Lanes::along(x.dims(), last).inner,
            ),
        };
        for (i, (start, row)) in counted(starts.iter_mut())
            .zip(rows.chunks_exact(depth))
            .enumerate()
        {
            *start = (tuples.start(row)? + i / rows_each.max(1) * block) as u64;
        }
        let starts = starts.iter().map(|&at| at as usize);
        gather_starts(cx, 0, &x, &dims, tuples.run, starts)
    }
}
