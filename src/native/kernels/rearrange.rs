//! Strided views written out:
//!
//!   Transpose      y[i0, ..., in] = x at the positions permuted by `perm`   ai.onnx 1, 13, 21 to 25
//!   Slice          y[i, ...] = x[start + i * step, ...] per axis           ai.onnx 1, 10, 11, 13
//!   Expand         x repeated to the shape that it and `shape` broadcast to      ai.onnx 8, 13
//!
//! Every element type.

use super::Built;
use super::dims::{axis, axis_flags, dims_from};
use super::infer::{broadcast as broadcast_facts, input_dims, input_type};
use super::moves::gather_runs;
use super::strided::{Strided, Strides, broadcast_strides, dense_strides};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, check_rank};

#[derive(Debug)]
pub(super) struct Transpose {
    /// `None` reverses the dims.
    perm: Option<Vec<i64>>,
}

pub(in crate::native) fn transpose(node: &NodeInfo<'_>) -> Built {
    let perm = node.ints("perm")?.map(Into::into);
    Ok(Box::new(Transpose { perm }))
}

impl Transpose {
    pub fn by(perm: Vec<i64>) -> Self {
        Transpose { perm: Some(perm) }
    }

    /// Which input axis each output axis is.
    fn order(&self, rank: usize) -> Result<Dims, OpError> {
        let Some(perm) = &self.perm else {
            return Ok((0..rank).rev().collect());
        };
        if perm.len() != rank {
            return Err(OpError::Message(format!(
                "perm {perm:?} does not fit data of rank {rank}"
            )));
        }
        // That no axis comes twice makes it a permutation.
        axis_flags(perm, rank)?;
        perm.iter().map(|&at| axis(at, rank)).collect()
    }
}

impl Operator for Transpose {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match input_dims(cx, 0) {
            Some(from) => Some(self.order(from.len())?.iter().map(|&at| from[at]).collect()),
            None => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let order = self.order(x.rank())?;
        let from = dense_strides(x.dims());
        let dims: Dims = order.iter().map(|&at| x.dims()[at]).collect();
        let strides: Strides = order.iter().map(|&at| from[at]).collect();
        gather_runs(cx, &x, &dims, &Strided::new(&dims, [&strides], [0]))
    }
}

#[derive(Debug)]
struct Expand;

pub(in crate::native) fn expand(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Expand))
}

impl Operator for Expand {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let shape: Option<SymDims> = match cx.known_ints(1)? {
            Some(shape) => {
                check_rank(shape.len())?;
                let dims = dims_from(&shape)?;
                Some(dims.iter().map(|&dim| SymDim::Fixed(dim)).collect())
            }
            None => None,
        };
        let dims = match (input_dims(cx, 0), shape) {
            (Some(from), Some(shape)) => Some(broadcast_facts(&from, &shape)?),
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, shape) = (cx.required(0)?, cx.required(1)?);
        check_rank(shape.len())?;
        let shape = dims_from(&shape.to_ints()?)?;
        let dims = super::broadcast(x.dims(), &shape)?;
        let strides = broadcast_strides(x.dims(), &dims);
        gather_runs(cx, &x, &dims, &Strided::new(&dims, [&strides], [0]))
    }
}

/// Where a slice starts, how far it steps, and how many elements it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: usize,
    step: isize,
    len: usize,
}

/// The elements of a dim that `start`, `end` and `step` choose, by the clamping rules of the
/// specification.
fn range(dim: usize, start: i64, end: i64, step: i64) -> Result<Range, OpError> {
    if step == 0 {
        return Err(OpError::Message("a step of a slice is 0".into()));
    }
    // i128 holds any sum and product of what a file can say.
    let (size, step) = (dim as i128, i128::from(step));
    let from_end = |position: i64| {
        let position = i128::from(position);
        if position < 0 { position + size } else { position }
    };
    let (start, end) = (from_end(start), from_end(end));
    let (start, end) = match step > 0 {
        true => (start.clamp(0, size), end.clamp(0, size)),
        false => (
            start.clamp(0, (size - 1).max(0)),
            end.clamp(-1, (size - 1).max(-1)),
        ),
    };
    let distance = if step > 0 { end - start } else { start - end };
    let len = if size == 0 || distance <= 0 {
        0
    } else {
        (distance - 1) / step.abs() + 1
    };
    Ok(Range {
        start: if len == 0 { 0 } else { start as usize },
        // Beyond the dim's size a step only matters for a slice of one element.
        step: step.clamp(-size - 1, size + 1) as isize,
        len: len as usize,
    })
}

#[derive(Debug)]
struct Slice {
    /// Starts, ends and axes, which are attributes before version 10.
    attributes: Option<[Vec<i64>; 3]>,
}

pub(in crate::native) fn slice(node: &NodeInfo<'_>) -> Built {
    if node.since >= 10 {
        return Ok(Box::new(Slice { attributes: None }));
    }
    let list = |name: &str| -> Result<Vec<i64>, OpError> {
        node.ints(name)?
            .map(Into::into)
            .ok_or_else(|| OpError::Attribute {
                name: name.into(),
                message: "is missing".into(),
            })
    };
    let (starts, ends) = (list("starts")?, list("ends")?);
    let axes = match node.ints("axes")? {
        Some(axes) => axes.into(),
        None => (0..starts.len() as i64).collect(),
    };
    Ok(Box::new(Slice {
        attributes: Some([starts, ends, axes]),
    }))
}

/// What a slice takes of each axis that it names.
struct Bounds {
    starts: Vec<i64>,
    ends: Vec<i64>,
    axes: Option<Vec<i64>>,
    steps: Option<Vec<i64>>,
}

impl Bounds {
    /// (axis, start, end, step) of each axis that is named; every axis at most once.
    fn by_axis(&self, rank: usize) -> Result<Vec<(usize, i64, i64, i64)>, OpError> {
        let n = self.starts.len();
        let lengths = [
            self.ends.len(),
            self.axes.as_ref().map_or(n, Vec::len),
            self.steps.as_ref().map_or(n, Vec::len),
        ];
        if lengths != [n; 3] || n > rank {
            return Err(OpError::Message(format!(
                "{n} starts, {} ends, {} axes and {} steps do not slice data of rank {rank}",
                lengths[0], lengths[1], lengths[2]
            )));
        }
        if let Some(axes) = &self.axes {
            axis_flags(axes, rank)?;
        }
        (0..n)
            .map(|i| {
                let at = self.axes.as_ref().map_or(i as i64, |axes| axes[i]);
                let step = self.steps.as_ref().map_or(1, |steps| steps[i]);
                Ok((axis(at, rank)?, self.starts[i], self.ends[i], step))
            })
            .collect()
    }
}

impl Operator for Slice {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let Some(from) = input_dims(cx, 0) else {
            cx.set_output(0, input_type(cx, 0), None);
            return Ok(());
        };
        let unknown = SymDims::from_elem(SymDim::Unknown, from.len());
        let list = |i: usize| -> Result<Option<Option<Vec<i64>>>, OpError> {
            match cx.input(i) {
                None => Ok(Some(None)),
                Some(_) => Ok(cx.known_ints(i)?.map(|list| Some(list.to_vec()))),
            }
        };
        let bounds = match &self.attributes {
            Some([starts, ends, axes]) => Some(Bounds {
                starts: starts.clone(),
                ends: ends.clone(),
                axes: Some(axes.clone()),
                steps: None,
            }),
            None => match (list(1)?, list(2)?, list(3)?, list(4)?) {
                (Some(Some(starts)), Some(Some(ends)), Some(axes), Some(steps)) => Some(Bounds {
                    starts,
                    ends,
                    axes,
                    steps,
                }),
                _ => None,
            },
        };
        let dims = match bounds {
            None => unknown,
            Some(bounds) => {
                let mut dims = from.clone();
                for (axis, start, end, step) in bounds.by_axis(from.len())? {
                    dims[axis] = match &from[axis] {
                        SymDim::Fixed(size) => SymDim::Fixed(range(*size, start, end, step)?.len),
                        _ if (start, step) == (0, 1) && end >= i64::from(i32::MAX) => from[axis],
                        _ => SymDim::Unknown,
                    };
                }
                dims
            }
        };
        cx.set_output(0, input_type(cx, 0), Some(dims));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let list = |i: usize| cx.input(i).map(|list| Ok(list.to_ints()?.to_vec())).transpose();
        let bounds = match &self.attributes {
            Some([starts, ends, axes]) => Bounds {
                starts: starts.clone(),
                ends: ends.clone(),
                axes: Some(axes.clone()),
                steps: None,
            },
            None => Bounds {
                starts: list(1)?.ok_or(OpError::MissingInput { index: 1 })?,
                ends: list(2)?.ok_or(OpError::MissingInput { index: 2 })?,
                axes: list(3)?,
                steps: list(4)?,
            },
        };
        let mut dims: Dims = x.dims().into();
        let mut strides = dense_strides(x.dims());
        let mut first = 0usize;
        for (axis, start, end, step) in bounds.by_axis(x.rank())? {
            let range = range(x.dims()[axis], start, end, step)?;
            first += range.start * strides[axis] as usize;
            dims[axis] = range.len;
            strides[axis] = strides[axis].wrapping_mul(range.step);
        }
        gather_runs(cx, &x, &dims, &Strided::new(&dims, [&strides], [first]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_clamp_like_the_specification() {
        let of = |dim, start, end, step| range(dim, start, end, step).expect("a step");
        let all_reversed = of(5, i64::MAX, i64::MIN, -1);
        assert_eq!(
            all_reversed,
            Range {
                start: 4,
                step: -1,
                len: 5
            }
        );
        assert_eq!(
            of(4, 0, i64::MAX, 1),
            Range {
                start: 0,
                step: 1,
                len: 4
            }
        );
        assert_eq!(
            of(4, -3, -1, 2),
            Range {
                start: 1,
                step: 2,
                len: 1
            }
        );
        assert_eq!(of(4, 1, 1000, 2).len, 2);
        assert_eq!(of(0, 5, -7, -1).len, 0);
        assert_eq!(of(3, 2, 0, 1).len, 0);
        assert_eq!(of(3, 0, 3, i64::MAX).len, 1);
        assert_eq!(
            of(3, 2, -4, i64::MIN),
            Range {
                start: 2,
                step: -4,
                len: 1
            }
        );
        assert!(range(3, 0, 1, 0).is_err());
    }
}
