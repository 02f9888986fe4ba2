//! Copies of X with some elements replaced, or combined with updates:
//!
//!   ScatterElements(X, I, U)    y[I[i, j, ...], j, ...] = u[i, j, ...] along `axis`; I has the shape of
//!                               U, its other dims at most those of X    ai.onnx 11, 13, 16, 18
//!   Scatter                     its older name                          ai.onnx 9, 11
//!   ScatterND(X, I, U)          y[I[i...]...] = u[i...], slices at the positions that the last dim
//!                               of I holds                              ai.onnx 11, 13, 16, 18
//!
//! Any type. `reduction` combines what is there with the update instead: add, mul (16), max, min
//! (18), for numbers and booleans. Updates apply in row-major order, so that the last one wins.
//! Negative positions count from the end; one outside its dim is an error.

use super::Built;
use super::dims::axis;
use super::dispatch::{with_integer, with_number};
use super::elementwise::copy;
use super::gather_nd::{Tuples, element_positions};
use super::infer::like_first_input;
use super::moves::string_room;
use super::number::{Number, Scalar};
use crate::native::element::{Bool, Element, ElementType};
use crate::native::ending::{self, counted};
use crate::native::infer::InferContext;
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduction {
    None,
    Add,
    Mul,
    Max,
    Min,
}

fn reduction(node: &NodeInfo<'_>) -> Result<Reduction, OpError> {
    if node.since < 16 {
        return Ok(Reduction::None);
    }
    match node.string_or("reduction", "none")? {
        "none" => Ok(Reduction::None),
        "add" => Ok(Reduction::Add),
        "mul" => Ok(Reduction::Mul),
        "max" if node.since >= 18 => Ok(Reduction::Max),
        "min" if node.since >= 18 => Ok(Reduction::Min),
        other => Err(OpError::Attribute {
            name: "reduction".into(),
            message: format!("is \"{other}\", which version {} does not have", node.since),
        }),
    }
}

#[derive(Debug)]
struct ScatterElements {
    axis: i64,
    reduction: Reduction,
}

pub(in crate::native) fn scatter_elements(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(ScatterElements {
        axis: node.int_or("axis", 0)?,
        reduction: reduction(node)?,
    }))
}

#[derive(Debug)]
struct ScatterNd(Reduction);

pub(in crate::native) fn scatter_nd(node: &NodeInfo<'_>) -> Built {
    Ok(Box::new(ScatterNd(reduction(node)?)))
}

impl Operator for ScatterElements {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, indices, updates) = (cx.required(0)?, cx.required(1)?, cx.required(2)?);
        let axis = axis(self.axis, x.rank())?;
        check_updates(&updates, indices.dims())?;
        let targets = cx.scratch::<u64>(indices.len())?;
        element_positions(x.dims(), &indices, axis, targets)?;
        scatter(cx, self.reduction, &x, &updates, 1, targets)
    }
}

impl Operator for ScatterNd {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        like_first_input(cx)
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let (x, indices, updates) = (cx.required(0)?, cx.required(1)?, cx.required(2)?);
        let (&depth, prefix) = indices.dims().split_last().unwrap_or((&0, &[]));
        let tuples = Tuples::new(depth, x.dims())?;
        let expected: Dims = prefix.iter().chain(&x.dims()[depth..]).copied().collect();
        check_updates(&updates, &expected)?;
        let rows = indices.to_ints()?;
        let targets = cx.scratch::<u64>(rows.len() / depth)?;
        for (target, row) in counted(targets.iter_mut()).zip(rows.chunks_exact(depth)) {
            *target = tuples.start(row)? as u64;
        }
        scatter(cx, self.0, &x, &updates, tuples.run, targets)
    }
}

fn check_updates(updates: &TensorRef<'_>, expected: &[usize]) -> Result<(), OpError> {
    if updates.dims() == expected {
        return Ok(());
    }
    Err(OpError::WrongDims {
        what: "input 2".into(),
        found: updates.dims().into(),
        expected: format!("{expected:?}"),
    })
}

/// Output 0 is `x` after run after run of `run` elements of `updates` has gone to its target.
fn scatter(
    cx: &mut RunContext<'_>,
    reduction: Reduction,
    x: &TensorRef<'_>,
    updates: &TensorRef<'_>,
    run: usize,
    targets: &[u64],
) -> Result<(), OpError> {
    super::same_type(x, updates, 2)?;
    let ty = x.element_type();
    match (reduction, ty) {
        (Reduction::None, ElementType::String) => {
            let mut y = string_room(x.dims())?;
            y.extend(counted(x.strings()?))?;
            let runs = updates.strings()?.chunks_exact(run.max(1));
            for (&target, update) in targets.iter().zip(runs) {
                ending::count(run);
                y.overwrite(target as usize, update)?;
            }
            cx.output_strings(0, x.dims(), y)
        }
        (Reduction::None, _) => {
            let size = ty.size().unwrap_or(1);
            let y = cx.output_bytes(0, ty, x.dims())?.into_mut();
            copy(x.bytes()?, y);
            let runs = updates.bytes()?.chunks_exact((run * size).max(1));
            for (&target, update) in targets.iter().zip(runs) {
                ending::count(run);
                y[target as usize * size..][..run * size].copy_from_slice(update);
            }
            Ok(())
        }
        // Of booleans, a sum is "or" and a product is "and", and so are max and min.
        (Reduction::Add | Reduction::Max, ElementType::Bool) => {
            combine(cx, x, updates, run, targets, |x: Bool, u| {
                Bool::from(x.get() | u.get())
            })
        }
        (_, ElementType::Bool) => combine(cx, x, updates, run, targets, |x: Bool, u| {
            Bool::from(x.get() & u.get())
        }),
        _ => with_number!(ty, T => combine(cx, x, updates, run, targets, step_of::<T>(reduction))),
    }
}

/// What a reduction does to what is there and an update, computed in their wide type.
fn step_of<T: Number>(reduction: Reduction) -> impl Fn(T, T) -> T {
    let step: fn(T::Wide, T::Wide) -> T::Wide = match reduction {
        Reduction::Mul => Scalar::mul,
        Reduction::Max => Scalar::max,
        Reduction::Min => Scalar::min,
        Reduction::Add | Reduction::None => Scalar::add,
    };
    move |x, update| T::narrow(step(x.widen(), update.widen()))
}

fn combine<T: Element>(
    cx: &mut RunContext<'_>,
    x: &TensorRef<'_>,
    updates: &TensorRef<'_>,
    run: usize,
    targets: &[u64],
    step: impl Fn(T, T) -> T,
) -> Result<(), OpError> {
    let y = cx.output::<T>(0, x.dims())?.into_mut();
    copy(x.slice::<T>()?, y);
    let runs = updates.slice::<T>()?.chunks_exact(run.max(1));
    for (&target, update) in targets.iter().zip(runs) {
        ending::count(run);
        for (y, &update) in y[target as usize..][..run].iter_mut().zip(update) {
            *y = step(*y, update);
        }
    }
    Ok(())
}
