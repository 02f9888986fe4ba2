//! Which elements along an axis are largest:
//!
//!   TopK(X, K)        the K largest (or smallest) elements of each lane and their positions.
//!                     K is an attribute in version 1            ai.onnx 1, 10, 11, 24
//!   ArgMax, ArgMin    the position of the extreme of each lane  ai.onnx 1, 11, 12, 13
//!   Hardmax           1 at the first largest element of each lane, else 0; before version 13 a
//!                     lane is everything from `axis` on         ai.onnx 1, 11, 13
//!
//! Any number (Hardmax: floats). Of equal elements the one at the lower position comes first
//! (the last with `select_last_index`). A NaN is above every number, and ArgMin, too, takes it
//! as the extreme, as NumPy does. TopK's result is in order also when `sorted` is 0.

use std::cmp::Ordering;

use super::Built;
use super::dims::{Lanes, axis, one_int};
use super::dispatch::{with_float, with_integer, with_number};
use super::infer::{input_dims, input_type, like_first_input};
use super::number::{Float, Number, Scalar};
use crate::native::element::ElementType;
use crate::native::ending::{Looks, counted, pieces};
use crate::native::infer::{InferContext, SymDim};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

/// The order of numbers, a NaN above all of them.
pub(super) fn by_value<W: Scalar>(a: W, b: W) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

#[derive(Debug)]
struct TopK {
    /// K, where it is an attribute.
    k: Option<i64>,
    axis: i64,
    largest: bool,
}

pub(in crate::native) fn top_k(node: &NodeInfo<'_>) -> Built {
    let k = match node.since {
        10.. => None,
        _ => Some(node.int("k")?.ok_or_else(|| OpError::Attribute {
            name: "k".into(),
            message: "is missing".into(),
        })?),
    };
    let mut largest = true;
    if node.since >= 11 {
        largest = node.flag_or("largest", true)?;
        node.flag_or("sorted", true)?;
    }
    Ok(Box::new(TopK {
        k,
        axis: node.int_or("axis", -1)?,
        largest,
    }))
}

/// K as the size of a dim.
fn size_of_k(k: i64) -> Result<usize, OpError> {
    usize::try_from(k).map_err(|_| OpError::Message(format!("k is {k}, which is negative")))
}

impl Operator for TopK {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let k = match (self.k, cx.known_ints(1)?.as_deref()) {
            (Some(k), _) => SymDim::Fixed(size_of_k(k)?),
            (None, Some(&[k])) => SymDim::Fixed(size_of_k(k)?),
            _ => SymDim::Unknown,
        };
        let dims = match input_dims(cx, 0) {
            Some(mut dims) => {
                let axis = axis(self.axis, dims.len())?;
                dims[axis] = k;
                Some(dims)
            }
            None => None,
        };
        cx.set_output(0, input_type(cx, 0), dims.clone());
        cx.set_output(1, Some(ElementType::Int64), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let k = size_of_k(match self.k {
            Some(k) => k,
            None => one_int(&cx.required(1)?, 1)?,
        })?;
        let axis = axis(self.axis, x.rank())?;
        if k > x.dims()[axis] {
            return Err(OpError::Message(format!(
                "k is {k}, but dim {axis} of shape {:?} is smaller",
                x.dims()
            )));
        }
        with_number!(x.element_type(), T => self.run_as::<T>(cx, &x, axis, k))
    }
}

impl TopK {
    fn run_as<T: Number>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        axis: usize,
        k: usize,
    ) -> Result<(), OpError> {
        let lanes = Lanes::along(x.dims(), axis);
        let mut dims: Dims = x.dims().into();
        dims[axis] = k;
        let mut values = match cx.output_used(0) {
            true => Some(cx.output::<T>(0, &dims)?.into_mut()),
            false => None,
        };
        let mut positions = match cx.output_used(1) {
            true => Some(cx.output::<i64>(1, &dims)?.into_mut()),
            false => None,
        };
        let order = cx.scratch::<u64>(lanes.len)?;
        let x = x.slice::<T>()?;
        let mut looks = Looks::default();
        for (lane, start) in lanes.starts().enumerate() {
            for (i, place) in counted(order.iter_mut()).enumerate() {
                *place = i as u64;
            }
            let value = |i: u64| x[start + i as usize * lanes.inner].widen();
            let mut before = |&a: &u64, &b: &u64| {
                looks.count(1);
                let ascending = by_value(value(a), value(b));
                let by_value = if self.largest {
                    ascending.reverse()
                } else {
                    ascending
                };
                by_value.then(a.cmp(&b))
            };
            if k > 0 && k < order.len() {
                order.select_nth_unstable_by(k - 1, &mut before);
            }
            order[..k].sort_unstable_by(&mut before);
            let to = lane / lanes.inner * k * lanes.inner + lane % lanes.inner;
            for (i, &from) in counted(order[..k].iter()).enumerate() {
                if let Some(values) = &mut values {
                    values[to + i * lanes.inner] = T::narrow(value(from));
                }
                if let Some(positions) = &mut positions {
                    positions[to + i * lanes.inner] = from as i64;
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct ArgExtreme {
    axis: i64,
    keep_dims: bool,
    last: bool,
    largest: bool,
}

fn arg_extreme(node: &NodeInfo<'_>, largest: bool) -> Built {
    Ok(Box::new(ArgExtreme {
        axis: node.int_or("axis", 0)?,
        keep_dims: node.flag_or("keepdims", true)?,
        last: node.since >= 12 && node.flag_or("select_last_index", false)?,
        largest,
    }))
}

pub(in crate::native) fn arg_max(node: &NodeInfo<'_>) -> Built {
    arg_extreme(node, true)
}

pub(in crate::native) fn arg_min(node: &NodeInfo<'_>) -> Built {
    arg_extreme(node, false)
}

impl Operator for ArgExtreme {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let dims = match input_dims(cx, 0) {
            Some(mut dims) => {
                let axis = axis(self.axis, dims.len())?;
                match self.keep_dims {
                    true => dims[axis] = SymDim::Fixed(1),
                    false => drop(dims.remove(axis)),
                }
                Some(dims)
            }
            None => None,
        };
        cx.set_output(0, Some(ElementType::Int64), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        let axis = axis(self.axis, x.rank())?;
        with_number!(x.element_type(), T => self.run_as::<T>(cx, &x, axis))
    }
}

impl ArgExtreme {
    fn run_as<T: Number>(
        &self,
        cx: &mut RunContext<'_>,
        x: &TensorRef<'_>,
        axis: usize,
    ) -> Result<(), OpError> {
        let lanes = Lanes::along(x.dims(), axis);
        let mut dims: Dims = x.dims().into();
        match self.keep_dims {
            true => dims[axis] = 1,
            false => drop(dims.remove(axis)),
        }
        if lanes.len == 0 && !dims.contains(&0) {
            return Err(OpError::Message(format!(
                "there is no extreme along axis {axis} of shape {:?}, which is empty",
                x.dims()
            )));
        }
        let y = cx.output::<i64>(0, &dims)?.into_mut();
        let x = x.slice::<T>()?;
        for (y, start) in y.iter_mut().zip(lanes.starts()) {
            let (mut best, mut best_at) = (x[start].widen(), 0);
            for i in pieces(lanes.len).flatten().skip(1) {
                let next = x[start + i * lanes.inner].widen();
                let better = match by_value(next, best) {
                    Ordering::Equal => self.last,
                    // A NaN stays, and wins, also where the smallest is looked for.
                    Ordering::Greater => self.largest || next.is_nan(),
                    Ordering::Less => !self.largest && !best.is_nan(),
                };
                if better {
                    (best, best_at) = (next, i);
                }
            }
            *y = best_at as i64;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Hardmax {
    axis: i64,
    /// All dims from the axis on are one lane.
    flatten: bool,
}

pub(in crate::native) fn hardmax(node: &NodeInfo<'_>) -> Built {
    let flatten = node.since < 13;
    Ok(Box::new(Hardmax {
        axis: node.int_or("axis", if flatten { 1 } else { -1 })?,
        flatten,
    }))
}

impl Operator for Hardmax {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let x = cx.required(0)?;
        with_float!(x.element_type(), T => self.run_as::<T>(cx, &x))
    }
}

impl Hardmax {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, x: &TensorRef<'_>) -> Result<(), OpError> {
        let dims = x.dims();
        let lanes = match (self.flatten, dims) {
            // A scalar is a lane of one, and so is each element with axis = rank before 13.
            (_, []) => Lanes::along(&[x.len(), 1], 1),
            (true, _) if self.axis == dims.len() as i64 => Lanes::along(&[x.len(), 1], 1),
            (true, _) => {
                let lane: usize = dims[axis(self.axis, dims.len())?..].iter().product();
                Lanes::along(&[x.len() / lane.max(1), lane], 1)
            }
            (false, _) => Lanes::along(dims, axis(self.axis, dims.len())?),
        };
        let y = cx.output::<T>(0, dims)?.zeroed();
        let x = x.slice::<T>()?;
        for start in lanes.starts() {
            let mut best = start;
            for i in pieces(lanes.len).flatten().skip(1) {
                let at = start + i * lanes.inner;
                if by_value(x[at].widen(), x[best].widen()) == Ordering::Greater {
                    best = at;
                }
            }
            y[best] = T::narrow(T::Wide::ONE);
        }
        Ok(())
    }
}
