//! Unique(X): the elements that are there, each once, or, with `axis`, the slices across that axis.
//!
//!   Y               in ascending order (`sorted`, the default), or as they first come
//!   indices         where in X each of them comes first
//!   inverse         for each element (or slice) of X, its position in Y
//!   counts          how often each is there
//!
//! Unique of com.microsoft is of a row, in the order in which elements first come, with the outputs Y,
//! inverse and counts.
//!
//! Slices are compared element by element, in row-major order. Numbers (NaNs are equal, and come
//! last), booleans, strings, complex numbers (by the real part, then the other). ai.onnx 11, 28.

use std::cmp::Ordering;

use super::Built;
use super::dims::{Lanes, axis};
use super::dispatch::{with_integer, with_number};
use super::infer::{input_dims, input_type};
use super::moves::gather_starts;
use super::number::Number;
use super::order::by_value;
use crate::native::element::{Bool, Complex64, Complex128, ElementType};
use crate::native::ending::{Looks, counted};
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

#[derive(Debug)]
struct Unique {
    /// `None` sees X as one row.
    axis: Option<i64>,
    sorted: bool,
    outputs: Outputs,
}

/// Where the outputs after Y are.
#[derive(Debug)]
struct Outputs {
    indices: Option<usize>,
    inverse: usize,
    counts: usize,
}

pub(in crate::native) fn unique(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Unique {
        axis: node.int("axis")?,
        sorted: node.flag_or("sorted", true)?,
        outputs: Outputs {
            indices: Some(1),
            inverse: 2,
            counts: 3,
        },
    }))
}

pub(in crate::native) fn contrib_unique(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(Unique {
        axis: None,
        sorted: false,
        outputs: Outputs {
            indices: None,
            inverse: 1,
            counts: 2,
        },
    }))
}

impl Operator for Unique {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let row = || Some(SymDims::from_elem(SymDim::Unknown, 1));
        let dims = match (self.axis, input_dims(cx, 0)) {
            (None, _) => row(),
            (Some(_), None) => None,
            (Some(at), Some(mut dims)) => {
                let axis = axis(at, dims.len())?;
                dims[axis] = SymDim::Unknown;
                Some(dims)
            }
        };
        cx.set_output(0, input_type(cx, 0), dims);
        for output in 1..4 {
            cx.set_output(output, Some(ElementType::Int64), row());
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        match x.element_type() {
            ElementType::Bool => {
                let x = x.slice::<Bool>()?;
                self.run_by(cx, &|a, b| x[a].get().cmp(&x[b].get()))
            }
            ElementType::String => {
                let x = x.strings()?;
                self.run_by(cx, &|a, b| x[a].cmp(&x[b]))
            }
            ElementType::Complex64 => {
                let x = x.slice::<Complex64>()?;
                self.run_by(cx, &|a, b| {
                    by_value(x[a].re, x[b].re).then(by_value(x[a].im, x[b].im))
                })
            }
            ElementType::Complex128 => {
                let x = x.slice::<Complex128>()?;
                self.run_by(cx, &|a, b| {
                    by_value(x[a].re, x[b].re).then(by_value(x[a].im, x[b].im))
                })
            }
            ty => with_number!(ty, T => self.run_numbers::<T>(cx, &x)),
        }
    }
}

impl Unique {
    fn run_numbers<T: Number>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let x = x.slice::<T>()?;
        self.run_by(cx, &|a, b| by_value(x[a].widen(), x[b].widen()))
    }

    /// By the order of the elements at two positions.
    fn run_by(
        &self,
        cx: &mut RunContext<'_>,
        compare: &dyn Fn(usize, usize) -> Ordering,
    ) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let row = [x.len()];
        let (from, axis) = match self.axis {
            Some(at) => (x.dims(), axis(at, x.rank())?),
            None => (&row[..], 0),
        };
        let lanes = Lanes::along(from, axis);
        let len = lanes.len;
        let mut looks = Looks::default();
        let mut slices = |a: usize, b: usize| {
            let pairs = (0..lanes.outer).flat_map(|block| {
                let start = block * lanes.len * lanes.inner;
                (0..lanes.inner).map(move |i| start + i)
            });
            let mut orders = pairs.map(|at| {
                looks.count(1);
                compare(at + a * lanes.inner, at + b * lanes.inner)
            });
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        };
        // Slices in order, equal ones by their position, then cut into groups of equals.
        let (order, rest) = cx.scratch::<u64>(len.saturating_mul(3))?.split_at_mut(len);
        let (group_of, firsts) = rest.split_at_mut(len);
        for (i, place) in counted(order.iter_mut()).enumerate() {
            *place = i as u64;
        }
        order.sort_unstable_by(|&a, &b| slices(a as usize, b as usize).then(a.cmp(&b)));
        let mut count = 0;
        for (i, &slice) in order.iter().enumerate() {
            let is_new = i == 0 || slices(order[i - 1] as usize, slice as usize).is_ne();
            if is_new {
                firsts[count] = slice;
                count += 1;
            }
            group_of[slice as usize] = firsts[count - 1];
        }
        // Groups go by their first slices from here on.
        let firsts = &mut firsts[..count];
        if !self.sorted {
            let mut looks = Looks::default();
            firsts.sort_unstable_by(|a, b| {
                looks.count(1);
                a.cmp(b)
            });
        }
        let mut dims: Dims = from.into();
        dims[axis] = count;
        if cx.output_used(0) {
            let starts = (0..lanes.outer).flat_map(|block| {
                let firsts = firsts.iter();
                firsts.map(move |&slice| (block * lanes.len + slice as usize) * lanes.inner)
            });
            gather_starts(cx, 0, &x, &dims, lanes.inner, starts)?;
        }
        let Outputs {
            indices,
            inverse,
            counts,
        } = self.outputs;
        if let Some(indices) = indices.filter(|&indices| cx.output_used(indices)) {
            cx.output::<i64>(indices, &[count])?
                .fill_with(|i| firsts[i] as i64);
        }
        // From a first slice to its group's position in Y, in the room of the order.
        for (position, &first) in counted(firsts.iter()).enumerate() {
            order[first as usize] = position as u64;
        }
        if cx.output_used(inverse) {
            let inverse = cx.output::<i64>(inverse, &[len])?;
            inverse.fill_with(|i| order[group_of[i] as usize] as i64);
        }
        if cx.output_used(counts) {
            let counts = cx.output::<i64>(counts, &[count])?.zeroed();
            for &first in counted(group_of.iter()) {
                counts[order[first as usize] as usize] += 1;
            }
        }
        Ok(())
    }
}
