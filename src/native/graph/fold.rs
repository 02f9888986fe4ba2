//! Constant folding: a node whose inputs are all known and which is a function of them is
//! computed once, at load or when a plan is made, instead of in every run. The same kernel
//! computes it, so the result is the same bits.

use smallvec::SmallVec;

use super::Node;
use crate::native::infer::Fact;
use crate::native::operator::OpError;
use crate::native::tensor::{TensorRef, byte_count};
use crate::native::workspace::Workspace;

/// Results up to this size are folded at load, whatever they are made from.
const MAX_BYTES_AT_LOAD: usize = 64 << 20;

/// Facts of a node's outputs.
pub(super) enum Folded {
    /// All values are known; the node need not run.
    Known(SmallVec<[Fact; 2]>),
    Open(SmallVec<[Fact; 2]>),
}

/// Computes a node's outputs if they are constant and not larger than `MAX_BYTES_AT_LOAD`
/// or the inputs (a transposed weight replaces the weight). `outputs` is what inference
/// says of them.
pub(super) fn fold(
    node: &Node,
    facts: &[Fact],
    outputs: SmallVec<[Fact; 2]>,
    workspace: &mut Workspace,
) -> Result<Folded, OpError> {
    let inputs_size: usize = node
        .inputs
        .iter()
        .flatten()
        .filter_map(|value| facts.get(value.index())?.value.as_ref())
        .map(|tensor| tensor.byte_len())
        .sum();
    fold_up_to(
        node,
        facts,
        outputs,
        workspace,
        MAX_BYTES_AT_LOAD.max(inputs_size),
    )
}

/// As [`fold`], for results of at most `max_bytes`.
pub(super) fn fold_up_to(
    node: &Node,
    facts: &[Fact],
    mut outputs: SmallVec<[Fact; 2]>,
    workspace: &mut Workspace,
    max_bytes: usize,
) -> Result<Folded, OpError> {
    let is_known = |(output, fact): (&Option<_>, &Fact)| output.is_none() || fact.value.is_some();
    if node.outputs.iter().zip(&outputs).all(is_known) {
        return Ok(Folded::Known(outputs));
    }
    let mut inputs: SmallVec<[Option<TensorRef<'_>>; 8]> = SmallVec::new();
    for input in &node.inputs {
        let Some(value) = input else {
            inputs.push(None);
            continue;
        };
        match facts.get(value.index()).and_then(Fact::value) {
            Some(tensor) => inputs.push(Some(tensor)),
            None => return Ok(Folded::Open(outputs)),
        }
    }
    let fits = |(output, fact): (&Option<_>, &Fact)| match (fact.ty, fact.fixed_dims()) {
        _ if output.is_none() => true,
        (Some(ty), Some(dims)) => byte_count(ty, &dims).is_ok_and(|bytes| bytes <= max_bytes),
        _ => false,
    };
    if !node.operator.is_deterministic() || !node.outputs.iter().zip(&outputs).all(fits) {
        return Ok(Folded::Open(outputs));
    }
    let used = |index: usize| node.outputs.get(index).is_some_and(Option::is_some);
    let results = match workspace.compute(node, &inputs, used) {
        // A run may never need it, or may have more memory.
        Err(OpError::OutOfMemory { .. }) => return Ok(Folded::Open(outputs)),
        results => results?,
    };
    for (fact, result) in outputs.iter_mut().zip(results) {
        if let Some(tensor) = result {
            *fact = Fact::of_tensor(&tensor);
        }
    }
    Ok(Folded::Known(outputs))
}
