//! What iterations give, put together along a new axis.

use super::describe;
use crate::component::Dim;
use crate::native::graph::Body;
use crate::native::infer::Fact;
use crate::native::kernels::dims;
use crate::native::kernels::join::join;
use crate::native::operator::OpError;
use crate::native::tensor::{Dims, Tensor, TensorRef};
use crate::native::working::Working;
use crate::native::workspace::Workspace;

/// Tensors of the same dims, stacked along a new axis at `axis`.
pub(super) fn stack(
    workspace: &mut Workspace,
    mut elements: Working<Tensor>,
    axis: usize,
) -> Result<Tensor, OpError> {
    for element in elements.iter_mut() {
        let mut dims: Dims = element.dims().into();
        dims.insert(axis.min(dims.len()), 1);
        *element = element.with_dims(&dims)?;
    }
    let mut parts: Working<TensorRef<'_>> = Working::with_room(elements.len())?;
    parts.extend(elements.iter().map(Tensor::view));
    let stacked = join(&mut workspace.pool, &parts, axis)?;
    drop(parts);
    for element in elements.into_items() {
        workspace.recycle_tensor(element);
    }
    Ok(stacked)
}

/// The stack of no iterations: sizes that neither inference nor the body's declaration tells
/// are zero.
pub(super) fn empty_stack(fact: &Fact, body: &Body, output: usize, axis: i64) -> Result<Tensor, OpError> {
    let declared = body
        .graph
        .io
        .outputs
        .get(output)
        .and_then(|port| port.dims.as_ref());
    let mut dims: Dims = match (&fact.dims, declared) {
        (Some(dims), _) => dims.iter().map(|dim| dim.fixed().unwrap_or(0)).collect(),
        (None, Some(declared)) => declared
            .iter()
            .map(|dim| match dim {
                Dim::Fixed(size) => usize::try_from(*size).unwrap_or(0),
                Dim::Symbol(_) => 0,
            })
            .collect(),
        (None, None) => Dims::new(),
    };
    let at = dims::axis(axis, dims.len() + 1)?;
    dims.insert(at, 0);
    empty(fact, &dims)
}

/// A tensor of no elements.
fn empty(fact: &Fact, dims: &[usize]) -> Result<Tensor, OpError> {
    match (fact.ty, fact.ty.and_then(|ty| ty.size())) {
        (Some(ty), Some(_)) => Tensor::from_raw(ty, dims, &[]),
        (Some(_), None) => Tensor::from_strings(dims, Vec::new()),
        (None, _) => Err(OpError::Message(format!(
            "there was no iteration, and the type of an output is not known ({})",
            describe(fact)
        ))),
    }
}
