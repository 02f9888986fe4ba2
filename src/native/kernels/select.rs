//! Elements chosen by value:
//!
//!   NonZero(X)        the positions of the elements that are not 0, in row-major order, as the
//!                     columns of Y [rank, n]; numbers, booleans (true), strings (not
//!                     empty), complex numbers                        ai.onnx 9, 13
//!   Compress(X, C)    what of X lies at the positions along `axis` where the booleans C [m] are
//!                     true; without an axis, of X as one row. Positions from m on are left
//!                     out. Any type                                  ai.onnx 9, 11, 28

use super::Built;
use super::dims::{Lanes, axis};
use super::dispatch::{with_integer, with_number};
use super::infer::{input_dims, input_type};
use super::moves::gather_starts;
use super::number::{Number, Scalar};
use crate::native::element::{Bool, Complex64, Complex128, ElementType};
use crate::native::ending::counted;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

#[derive(Debug)]
struct NonZero;

pub(in crate::native) fn non_zero(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(NonZero))
}

impl Operator for NonZero {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = input_dims(cx, 0).map(|dims| {
            let dims: [SymDim; 2] = [SymDim::Fixed(dims.len()), SymDim::Unknown];
            SymDims::from_slice(&dims)
        });
        cx.set_output(0, Some(ElementType::Int64), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        match x.element_type() {
            ElementType::Bool => write_positions(cx, x.dims(), x.slice::<Bool>()?, |x| x.get()),
            ElementType::String => write_positions(cx, x.dims(), x.strings()?, |x| !x.is_empty()),
            ElementType::Complex64 => write_positions(cx, x.dims(), x.slice::<Complex64>()?, |x| {
                *x != Complex64::default()
            }),
            ElementType::Complex128 => write_positions(cx, x.dims(), x.slice::<Complex128>()?, |x| {
                *x != Complex128::default()
            }),
            ty => with_number!(ty, T => non_zero_numbers::<T>(cx, &x)),
        }
    }
}

fn non_zero_numbers<T: Number>(cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
    write_positions(cx, x.dims(), x.slice::<T>()?, |x| x.widen() != T::Wide::ZERO)
}

fn write_positions<T>(
    cx: &mut RunContext<'_>,
    dims: &[usize],
    x: &[T],
    chosen: impl Fn(&T) -> bool,
) -> Result<(), OpError> {
    let count = counted(x).filter(|x| chosen(x)).count();
    let mut y = cx.output::<i64>(0, &[dims.len(), count])?;
    for at in 0..dims.len() {
        let Lanes { len, inner, .. } = Lanes::along(dims, at);
        let positions = counted(x).enumerate().filter(|(_, x)| chosen(x));
        y.extend(positions.map(|(position, _)| (position / inner % len) as i64))?;
    }
    Ok(())
}

#[derive(Debug)]
struct Compress {
    axis: Option<i64>,
}

pub(in crate::native) fn compress(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Compress {
        axis: node.int("axis")?,
    }))
}

impl Operator for Compress {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match (self.axis, input_dims(cx, 0)) {
            (None, _) => Some(SymDims::from_elem(SymDim::Unknown, 1)),
            (Some(_), None) => None,
            (Some(at), Some(mut dims)) => {
                let axis = axis(at, dims.len())?;
                dims[axis] = SymDim::Unknown;
                Some(dims)
            }
        };
        cx.set_output(0, input_type(cx, 0), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, condition) = (cx.required(0)?, cx.required(1)?);
        let row = [x.len()];
        let (from, axis) = match self.axis {
            Some(at) => (x.dims(), axis(at, x.rank())?),
            None => (&row[..], 0),
        };
        let lanes = Lanes::along(from, axis);
        let condition = condition.slice::<Bool>()?;
        let chosen = || {
            let flags = counted(condition.iter().take(lanes.len)).enumerate();
            flags.filter(|(_, flag)| flag.get()).map(|(at, _)| at)
        };
        let mut dims: Dims = from.into();
        dims[axis] = chosen().count();
        let starts =
            (0..lanes.outer).flat_map(|block| chosen().map(move |at| (block * lanes.len + at) * lanes.inner));
        gather_starts(cx, 0, &x, &dims, lanes.inner, starts)
    }
}
