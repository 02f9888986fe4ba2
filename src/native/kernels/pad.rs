//! Pad: X with elements added before and after each dim (or, with negative pads, taken away).
//!
//!   constant    the value of input 2 (zero, false or "" without it; attribute `value` before 11)
//!   edge        the nearest element of X
//!   reflect     X mirrored at its first and last element, which are not repeated
//!   wrap        X repeated
//!
//! pads is [begin of each axis..., end of each axis...], of all axes or of those in `axes`
//! (input 3, from version 18 on). ai.onnx 2 (pads is an attribute), 11, 13, 18, 19, 21, 23, 24, 25.
//! Any element type.

use smallvec::SmallVec;

use super::Built;
use super::dims::{Integers, axis, axis_flags};
use super::infer::{input_dims, input_type};
use super::moves::Sources;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, Tensor, TensorRef};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Constant,
    Edge,
    Reflect,
    Wrap,
}

#[derive(Debug)]
struct Pad {
    mode: Mode,
    /// Pads and value, which are attributes before version 11.
    attributes: Option<(Vec<i64>, f32)>,
}

pub(in crate::native) fn pad(node: &NodeInfo<'_>) -> Built {
    let mode = match node.string_or("mode", "constant")? {
        "constant" => Mode::Constant,
        "edge" => Mode::Edge,
        "reflect" => Mode::Reflect,
        "wrap" if node.since >= 19 => Mode::Wrap,
        other => {
            return Err(OpError::Attribute {
                name: "mode".into(),
                message: format!(
                    "is \"{other}\", expected \"constant\", \"edge\", \"reflect\" or (from 19) \"wrap\""
                ),
            });
        }
    };
    let attributes = match node.since {
        11.. => None,
        _ => {
            let pads = node.ints("pads")?.ok_or_else(|| OpError::Attribute {
                name: "pads".into(),
                message: "is missing".into(),
            })?;
            Some((pads.to_vec(), node.float_or("value", 0.0)?))
        }
    };
    Ok(Box::new(Pad { mode, attributes }))
}

/// That of com.microsoft 1: as version 11, and the pads may be a row of a matrix.
pub(in crate::native) fn contrib_pad(node: &NodeInfo<'_>) -> Built {
    pad(&node.as_of(11))
}

/// Elements added (or, negative, taken away) before and after each axis.
type PadsByAxis = SmallVec<[(i64, i64); 6]>;

fn by_axis(pads: &[i64], axes: Option<&[i64]>, rank: usize) -> Result<PadsByAxis, OpError> {
    let named = axes.map_or(rank, <[i64]>::len);
    if pads.len() != 2 * named {
        return Err(OpError::Message(format!(
            "{} pads for {named} axes: expected a begin and an end of each",
            pads.len()
        )));
    }
    let (begins, ends) = pads.split_at(named);
    let mut result = PadsByAxis::from_elem((0, 0), rank);
    if let Some(axes) = axes {
        axis_flags(axes, rank)?;
    }
    for (i, (&begin, &end)) in begins.iter().zip(ends).enumerate() {
        let at = match axes {
            Some(axes) => axis(axes[i], rank)?,
            None => i,
        };
        result[at] = (begin, end);
    }
    Ok(result)
}

/// The size of a padded dim.
fn padded(size: usize, (begin, end): (i64, i64)) -> Result<usize, OpError> {
    let sum = size as i128 + i128::from(begin) + i128::from(end);
    usize::try_from(sum).map_err(|_| {
        OpError::Message(format!(
            "pads {begin} and {end} do not leave a size for a dim of {size}"
        ))
    })
}

impl Mode {
    /// Which element of a dim of `size` a position is, `None` for the constant.
    fn source(self, position: i128, size: usize) -> Option<usize> {
        let size = size as i128;
        let at = match self {
            _ if (0..size).contains(&position) => position,
            Mode::Constant => return None,
            Mode::Edge => position.clamp(0, size - 1),
            Mode::Wrap => position.rem_euclid(size),
            // A mirrored image repeats after both ways: there without and back without the ends.
            Mode::Reflect if size == 1 => 0,
            Mode::Reflect => {
                let there = position.rem_euclid(2 * (size - 1));
                there.min(2 * (size - 1) - there)
            }
        };
        Some(at as usize)
    }
}

impl Operator for Pad {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let pads: Option<Integers> = match &self.attributes {
            Some((pads, _)) => Some(pads.as_slice().into()),
            None => cx.known_ints(1)?,
        };
        let axes = match (self.attributes.is_some(), cx.input(3)) {
            (false, Some(_)) => cx.known_ints(3)?.map(Some),
            _ => Some(None),
        };
        let dims = match (input_dims(cx, 0), pads, axes) {
            (Some(from), Some(pads), Some(axes)) => {
                let pads = by_axis(&pads, axes.as_deref(), from.len())?;
                let mut dims = from.clone();
                for (dim, &pads) in dims.iter_mut().zip(&pads) {
                    *dim = match *dim {
                        SymDim::Fixed(size) => SymDim::Fixed(padded(size, pads)?),
                        same if pads == (0, 0) => same,
                        _ => SymDim::Unknown,
                    };
                }
                Some(dims)
            }
            (Some(from), _, _) => Some(SymDims::from_elem(SymDim::Unknown, from.len())),
            _ => None,
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let (pads, axes): (Integers, Option<Integers>) = match &self.attributes {
            Some((pads, _)) => (pads.as_slice().into(), None),
            None => (
                cx.required(1)?.to_ints()?,
                cx.input(3).map(|axes| axes.to_ints()).transpose()?,
            ),
        };
        let pads = by_axis(&pads, axes.as_deref(), x.rank())?;
        let dims: Dims = x
            .dims()
            .iter()
            .zip(&pads)
            .map(|(&size, &pads)| padded(size, pads))
            .collect::<Result<_, _>>()?;
        let grows_from_nothing = x.dims().iter().zip(&dims).any(|(&from, &to)| from == 0 && to > 0);
        if self.mode != Mode::Constant && grows_from_nothing {
            return Err(OpError::Message(format!(
                "no element of shape {:?} to pad with, expected mode constant",
                x.dims()
            )));
        }
        let value = self.value(cx, &x)?;
        let sources = Sources::new(x.dims(), &dims, |axis, at| {
            let position = at as i128 - i128::from(pads[axis].0);
            self.mode.source(position, x.dims()[axis])
        })?;
        sources.copy(cx, &x, &dims, &value)
    }
}

impl Pad {
    /// One element of the type of `x`: what constant padding adds.
    fn value(&self, cx: &RunContext<'_>, x: &TensorRef<'_>) -> Result<Tensor, OpError> {
        let given = match self.attributes {
            Some(_) => None,
            None => cx.input(2).filter(|value| !value.is_empty()),
        };
        if let Some(value) = given {
            super::same_type(x, &value, 2)?;
            if value.len() != 1 {
                return Err(OpError::WrongDims {
                    what: "input 2".into(),
                    found: value.dims().into(),
                    expected: "one element".into(),
                });
            }
            return value.to_tensor();
        }
        match (&self.attributes, x.element_type().size()) {
            // Versions with an attribute have float, double and float16 only.
            (Some((_, value)), _) if *value != 0.0 => one_float(x, *value),
            (_, Some(size)) => Tensor::from_raw(x.element_type(), &[], &vec![0; size]),
            (_, None) => Tensor::from_strings(&[], vec![String::new()]),
        }
    }
}

fn one_float(x: &TensorRef<'_>, value: f32) -> Result<Tensor, OpError> {
    use super::dispatch::with_float;
    use super::number::{Number, Scalar};
    use crate::native::element::ElementType;
    with_float!(x.element_type(), T => {
        Tensor::from_slice(&[], &[T::narrow(Scalar::from_f64(value.into()))])
    })
}
