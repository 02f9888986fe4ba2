//! The same elements in the same order under other dims:
//!
//!   Identity                                                    ai.onnx 1 to 25
//!   Reshape(data, shape)      0 keeps the dim (unless `allowzero`), one -1 takes what is
//!                             left                              ai.onnx 5, 13, 14, 19 to 25
//!   Squeeze(data, axes)       drops unit dims, all of them without axes; axes are an
//!                             attribute before 13               ai.onnx 1, 11, 13, 21 to 25
//!   Unsqueeze(data, axes)     inserts unit dims where the result has them; axes are an
//!                             attribute before 13               ai.onnx 1, 11, 13, 21 to 25
//!   Flatten(data)             [d0 * ... * d(axis-1), d(axis) * ...]    ai.onnx 1 to 25
//!
//! Every element type.

use super::Built;
use super::dims::{Integers, axis_flags};
use super::infer::{input_dims, input_type, like_first_input};
use crate::native::infer::{InferContext, Kind, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, check_rank, element_count};
use crate::native::value::ValueRef;

#[derive(Debug)]
struct Identity;

pub(in crate::native) fn identity(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Identity))
}

impl Operator for Identity {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        match cx.required(0)?.kind {
            None | Some(Kind::Tensor) => like_first_input(cx)?,
            kind => cx.set_kind(0, kind, input_type(cx, 0)),
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        match cx.value(0).ok_or(OpError::MissingInput { index: 0 })? {
            ValueRef::Tensor(tensor) => cx.output_same_as_input(0, 0, tensor.dims()),
            other => cx.output_value(0, other.to_value()?),
        }
    }

    fn takes_values(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Reshape {
    allow_zero: bool,
}

pub(in crate::native) fn reshape(node: &NodeInfo<'_>) -> Built {
    let allow_zero = node.since >= 14 && node.flag_or("allowzero", false)?;
    Ok(Box::new(Reshape { allow_zero }))
}

impl Reshape {
    /// The dims that `shape` asks for; `None` where a size depends on one that is not known.
    fn dims(&self, from: Option<&[SymDim]>, shape: &[i64]) -> Result<SymDims, OpError> {
        check_rank(shape.len())?;
        if self.allow_zero && shape.contains(&0) && shape.contains(&-1) {
            return Err(OpError::Message(format!(
                "shape {shape:?} has both 0 and -1 with allowzero"
            )));
        }
        let mut inferred = None;
        let mut dims = SymDims::new();
        for (i, &size) in shape.iter().enumerate() {
            dims.push(match size {
                -1 if inferred.is_none() => {
                    inferred = Some(i);
                    SymDim::Unknown
                }
                0 if !self.allow_zero => match from {
                    None => SymDim::Unknown,
                    Some(from) => from.get(i).copied().ok_or_else(|| {
                        OpError::Message(format!(
                            "shape {shape:?} keeps dim {i}, the data has rank {}",
                            from.len()
                        ))
                    })?,
                },
                _ => SymDim::Fixed(usize::try_from(size).map_err(|_| {
                    OpError::Message(format!(
                        "shape {shape:?} has a negative size other than a single -1"
                    ))
                })?),
            });
        }
        if let (Some(at), Some(from)) = (inferred, from) {
            let copied = |i: usize| !self.allow_zero && shape.get(i) == Some(&0);
            dims[at] = rest(from, &dims, at, copied, shape)?;
        }
        Ok(dims)
    }
}

/// The dim at `at`, so that both shapes have the same number of elements whatever the size of
/// the copied dims is: those cancel out, also where they are zero or not known.
fn rest(
    from: &[SymDim],
    to: &[SymDim],
    at: usize,
    copied: impl Fn(usize) -> bool,
    shape: &[i64],
) -> Result<SymDim, OpError> {
    let others = |dims: &'_ [SymDim], except: Option<usize>| -> SymDims {
        let others = dims.iter().enumerate();
        let others = others.filter(|&(i, _)| Some(i) != except && !copied(i));
        others.map(|(_, &dim)| dim).collect()
    };
    let (left, right) = (others(from, None), others(to, Some(at)));
    let fixed = |dims: &[SymDim]| dims.iter().map(|dim| dim.fixed()).collect::<Option<Dims>>();
    match (left.as_slice(), fixed(&left), fixed(&right)) {
        (&[symbol @ SymDim::Symbol(_)], _, Some(right)) if right.iter().all(|&size| size == 1) => Ok(symbol),
        (_, Some(left), Some(right)) => {
            let (elements, divisor) = (element_count(&left)?, element_count(&right)?);
            match (elements, divisor) {
                (0, 0) => Ok(SymDim::Fixed(0)),
                (_, 1..) if elements % divisor == 0 => Ok(SymDim::Fixed(elements / divisor)),
                _ => Err(OpError::Message(format!(
                    "cannot give {elements} elements the shape {shape:?}"
                ))),
            }
        }
        _ => Ok(SymDim::Unknown),
    }
}

/// Dims that are all known, as they are in a run.
fn known(dims: &[SymDim]) -> Result<Dims, OpError> {
    dims.iter()
        .map(|dim| match dim {
            SymDim::Fixed(size) => Ok(*size),
            other => Err(OpError::Message(format!("dim {other:?} is not known"))),
        })
        .collect()
}

fn fixed(dims: &[usize]) -> SymDims {
    dims.iter().map(|&dim| SymDim::Fixed(dim)).collect()
}

impl Operator for Reshape {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let from = input_dims(cx, 0);
        let dims = match cx.input(1) {
            Some(fact) => match (cx.known_ints(1)?, &fact.dims) {
                (Some(shape), _) => Some(self.dims(from.as_deref(), &shape)?),
                (None, Some(dims)) => match dims.as_slice() {
                    [SymDim::Fixed(rank)] => {
                        check_rank(*rank)?;
                        Some(SymDims::from_elem(SymDim::Unknown, *rank))
                    }
                    _ => None,
                },
                _ => None,
            },
            None => return Err(OpError::MissingInput { index: 1 }),
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, shape) = (cx.required(0)?, cx.required(1)?.to_ints()?);
        let dims = known(&self.dims(Some(&fixed(x.dims())), &shape)?)?;
        if element_count(&dims)? != x.len() {
            return Err(OpError::Message(format!(
                "cannot give data of shape {:?} the shape {shape:?}: {} elements",
                x.dims(),
                x.len()
            )));
        }
        cx.output_same_as_input(0, 0, &dims)
    }
}

/// Squeeze or Unsqueeze: what changes is which axes are one.
#[derive(Debug)]
struct UnitDims {
    insert: bool,
    /// The attribute, before version 13.
    axes: Option<Vec<i64>>,
}

fn unit_dims(node: &NodeInfo<'_>, insert: bool) -> Built {
    let axes = if node.since < 13 {
        node.ints("axes")?.map(Into::into)
    } else {
        None
    };
    Ok(Box::new(UnitDims { insert, axes }))
}

pub(in crate::native) fn squeeze(node: &NodeInfo<'_>) -> Built {
    unit_dims(node, false)
}

pub(in crate::native) fn unsqueeze(node: &NodeInfo<'_>) -> Built {
    unit_dims(node, true)
}

/// ExpandDims of com.microsoft 1: Unsqueeze of one axis, which is a scalar.
pub(in crate::native) fn expand_dims(node: &NodeInfo<'_>) -> Built {
    unsqueeze(&node.as_of(13))
}

impl UnitDims {
    fn dims(&self, from: &[SymDim], axes: Option<&[i64]>) -> Result<SymDims, OpError> {
        match (self.insert, axes) {
            (true, None) => Err(OpError::Message("axes are missing".into())),
            (true, Some(axes)) => {
                let rank = from.len() + axes.len();
                check_rank(rank)?;
                let inserted = axis_flags(axes, rank)?;
                let mut rest = from.iter();
                Ok(inserted
                    .iter()
                    .filter_map(|&inserted| {
                        if inserted {
                            Some(SymDim::Fixed(1))
                        } else {
                            rest.next().copied()
                        }
                    })
                    .collect())
            }
            (false, None) => Ok(from
                .iter()
                .filter(|&dim| *dim != SymDim::Fixed(1))
                .copied()
                .collect()),
            (false, Some(axes)) => {
                let dropped = axis_flags(axes, from.len())?;
                for (i, dim) in from.iter().enumerate().filter(|&(i, _)| dropped[i]) {
                    if matches!(dim, SymDim::Fixed(size) if *size != 1) {
                        return Err(OpError::Message(format!(
                            "cannot squeeze axis {i} of shape {from:?}: its size is not 1"
                        )));
                    }
                }
                let kept = from.iter().zip(&dropped).filter(|&(_, &dropped)| !dropped);
                Ok(kept.map(|(dim, _)| *dim).collect())
            }
        }
    }
}

impl Operator for UnitDims {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let axes: Option<Option<Integers>> = match (&self.axes, cx.input(1)) {
            (Some(axes), _) => Some(Some(axes.as_slice().into())),
            (None, None) => Some(None),
            (None, Some(_)) => cx.known_ints(1)?.map(Some),
        };
        let dims = match (input_dims(cx, 0), axes) {
            // Without axes, whether a dim is dropped depends on its size.
            (Some(from), Some(None))
                if !self.insert && from.iter().any(|dim| !matches!(dim, SymDim::Fixed(_))) =>
            {
                None
            }
            (Some(from), Some(axes)) => Some(self.dims(&from, axes.as_deref())?),
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let axes: Option<Integers> = match (&self.axes, cx.input(1)) {
            (Some(axes), _) => Some(axes.as_slice().into()),
            (None, Some(axes)) => Some(axes.to_ints()?),
            (None, None) => None,
        };
        let dims = known(&self.dims(&fixed(x.dims()), axes.as_deref())?)?;
        cx.output_same_as_input(0, 0, &dims)
    }
}

#[derive(Debug)]
struct Flatten {
    axis: i64,
}

pub(in crate::native) fn flatten(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Flatten {
        axis: node.int_or("axis", 1)?,
    }))
}

impl Flatten {
    fn dims(&self, from: &[SymDim]) -> Result<SymDims, OpError> {
        let rank = from.len() as i64;
        let axis = if self.axis < 0 {
            self.axis + rank
        } else {
            self.axis
        };
        let (outer, inner) = usize::try_from(axis)
            .ok()
            .and_then(|axis| from.split_at_checked(axis))
            .ok_or_else(|| OpError::Message(format!("axis {} is out of range for rank {rank}", self.axis)))?;
        let product = |dims: &[SymDim]| match (dims, known(dims)) {
            ([dim], _) => Ok(*dim),
            (_, Ok(dims)) => Ok(SymDim::Fixed(element_count(&dims)?)),
            (_, Err(_)) => Ok(SymDim::Unknown),
        };
        Ok(SymDims::from_iter([product(outer)?, product(inner)?]))
    }
}

impl Operator for Flatten {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match input_dims(cx, 0) {
            Some(from) => self.dims(&from)?,
            None => SymDims::from_elem(SymDim::Unknown, 2),
        };
        cx.set_output(0, input_type(cx, 0), Some(dims));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let dims = known(&self.dims(&fixed(x.dims()))?)?;
        cx.output_same_as_input(0, 0, &dims)
    }
}
