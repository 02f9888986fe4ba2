//! X repeated, and X with parts reversed. Any type.
//!
//!   Tile(X, repeats)             y[i...] = x[i mod d...], each dim d `repeats` times    ai.onnx 6, 13
//!   ReverseSequence(X, lens)     along `time_axis` the first lens[b] elements of batch b (a position
//!                                on `batch_axis`) in reverse order, the others as they are; the
//!                                axes are 0 and 1, in either order                 ai.onnx 10, 28

use super::Built;
use super::dims::dims_from;
use super::infer::{input_dims, input_type, like_first_input};
use super::moves::{gather_runs, gather_starts};
use super::strided::{Strided, Strides, dense_strides};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::Dims;

#[derive(Debug)]
struct Tile;

pub(in crate::native) fn tile(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Tile))
}

fn check_repeats(count: usize, rank: usize) -> Result<(), OpError> {
    match count == rank {
        true => Ok(()),
        false => Err(OpError::Message(format!(
            "{count} repeats do not fit data of rank {rank}"
        ))),
    }
}

impl Operator for Tile {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match (input_dims(cx, 0), cx.known_ints(1)?) {
            (Some(dims), Some(repeats)) => {
                check_repeats(repeats.len(), dims.len())?;
                let repeats = dims_from(&repeats)?;
                let tiled = dims.iter().zip(&repeats).map(|(&dim, &times)| match dim {
                    SymDim::Fixed(size) => size.checked_mul(times).map_or(SymDim::Unknown, SymDim::Fixed),
                    dim if times == 1 => dim,
                    _ => SymDim::Unknown,
                });
                Some(tiled.collect())
            }
            (Some(dims), None) => Some(SymDims::from_elem(SymDim::Unknown, dims.len())),
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, repeats) = (cx.required(0)?, dims_from(&cx.required(1)?.to_ints()?)?);
        check_repeats(repeats.len(), x.rank())?;
        let mut dims = Dims::new();
        // Each dim is walked `repeats` times: as an outer dim of stride 0.
        let (mut walk_dims, mut strides) = (Dims::new(), Strides::new());
        for ((&dim, &times), stride) in x.dims().iter().zip(&repeats).zip(dense_strides(x.dims())) {
            dims.push(dim.checked_mul(times).ok_or_else(|| OpError::TooLarge {
                dims: repeats.clone(),
            })?);
            walk_dims.extend([times, dim]);
            strides.extend([0, stride]);
        }
        gather_runs(cx, &x, &dims, &Strided::new(&walk_dims, [&strides], [0]))
    }
}

#[derive(Debug)]
struct ReverseSequence {
    /// Time is dim 0 and batch dim 1, else the other way round.
    time_first: bool,
}

pub(in crate::native) fn reverse_sequence(node: &NodeInfo<'_>) -> Built {
    match (node.int_or("time_axis", 0)?, node.int_or("batch_axis", 1)?) {
        (0, 1) => Ok(Box::new(ReverseSequence { time_first: true })),
        (1, 0) => Ok(Box::new(ReverseSequence { time_first: false })),
        (time, batch) => Err(OpError::Message(format!(
            "time_axis is {time} and batch_axis is {batch}, expected 0 and 1 or 1 and 0"
        ))),
    }
}

impl Operator for ReverseSequence {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, lens) = (cx.required(0)?, cx.required(1)?);
        let &[first, second, ref rest @ ..] = x.dims() else {
            return Err(OpError::WrongDims {
                what: "input 0".into(),
                found: x.dims().into(),
                expected: "rank 2 or more".into(),
            });
        };
        let (time, batch) = match self.time_first {
            true => (first, second),
            false => (second, first),
        };
        let given = lens.to_ints()?;
        let lens: Dims = given
            .iter()
            .filter_map(|&len| usize::try_from(len).ok().filter(|&len| len <= time))
            .collect();
        if given.len() != batch || lens.len() != batch {
            return Err(OpError::Message(format!(
                "input 1 is {given:?}, expected {batch} lengths of at most {time}"
            )));
        }
        let reversed = |t: usize, b: usize| match lens[b] {
            len if t < len => len - 1 - t,
            _ => t,
        };
        let run = rest.iter().product();
        // An empty result has nothing to visit, however large its other dims are.
        let (outer, inner) = if x.is_empty() { (0, 0) } else { (first, second) };
        let starts = (0..outer).flat_map(|i| {
            (0..inner).map(move |j| match self.time_first {
                true => reversed(i, j) * second + j,
                false => i * second + reversed(j, i),
            })
        });
        gather_starts(cx, 0, &x, x.dims(), run, starts.map(|at| at * run))
    }
}
