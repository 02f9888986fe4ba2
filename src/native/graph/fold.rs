//! Constant folding: a node whose inputs are all known and which is a function of them is
//! computed once, at load or when a plan is made, instead of in every run. The same kernel
//! computes it, so the result is the same bits.

use smallvec::SmallVec;

use super::{Action, Node};
use crate::native::element::ElementType;
use crate::native::infer::Fact;
use crate::native::operator::OpError;
use crate::native::strings;
use crate::native::tensor::{Tensor, byte_count, element_count};
use crate::native::value::Value;
use crate::native::workspace::Workspace;

/// How many bytes constants may take beyond what they are made from. A small file can ask
/// for huge ones (ConstantOfShape, Expand); what is beyond the budget is left to the run,
/// which may not need it.
pub(super) struct Budget {
    left: usize,
}

impl Budget {
    /// For all constants of a model together.
    pub(super) fn of_load() -> Self {
        Budget { left: 64 << 20 }
    }

    /// For the results of one node when a plan is made: shapes and what is computed from
    /// them. A plan may serve a single step, so it does not pay to keep more.
    pub(super) fn of_plan() -> Self {
        Budget { left: 32 << 10 }
    }

    /// Takes what `outputs` need beyond `inputs` (a transposed weight replaces the weight).
    fn take(&mut self, outputs: usize, inputs: usize) -> bool {
        match self.left.checked_sub(outputs.saturating_sub(inputs)) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// Facts of a node's outputs.
pub(super) enum Folded {
    /// All values are known; the node need not run.
    Known(SmallVec<[Fact; 2]>),
    Open(SmallVec<[Fact; 2]>),
}

/// The outputs of a node as inference has them, which for Constant and Shape may be all there
/// is to know.
pub(super) fn known(node: &Node, outputs: SmallVec<[Fact; 2]>) -> Folded {
    let is_known = |(output, fact): (&Option<_>, &Fact)| output.is_none() || fact.value.is_some();
    match node.outputs.iter().zip(&outputs).all(is_known) {
        true => Folded::Known(outputs),
        false => Folded::Open(outputs),
    }
}

/// Computes a node's outputs if they are constant and within the budget. `outputs` is what
/// inference says of them.
pub(super) fn fold(
    node: &Node,
    facts: &[Fact],
    outputs: SmallVec<[Fact; 2]>,
    budget: &mut Budget,
    workspace: &mut Workspace,
) -> Result<Folded, OpError> {
    let mut outputs = match known(node, outputs) {
        Folded::Open(outputs) => outputs,
        known => return Ok(known),
    };
    let mut inputs: SmallVec<[Option<&Tensor>; 8]> = SmallVec::new();
    for input in &node.inputs {
        let Some(value) = input else {
            inputs.push(None);
            continue;
        };
        match facts.get(value.index()).and_then(|fact| fact.value.as_ref()) {
            Some(tensor) => inputs.push(Some(tensor)),
            None => return Ok(Folded::Open(outputs)),
        }
    }
    let Action::Kernel(operator) = &node.action else {
        return Ok(Folded::Open(outputs));
    };
    let used = |index: usize| node.outputs.get(index).is_some_and(Option::is_some);
    let mut size = 0usize;
    for (_, fact) in outputs.iter().enumerate().filter(|(index, _)| used(*index)) {
        let bytes = match (fact.ty, fact.fixed_dims()) {
            (Some(ElementType::String), Some(dims)) => {
                let count = element_count(&dims).unwrap_or(usize::MAX);
                count.saturating_mul(size_of::<String>())
            }
            (Some(ty), Some(dims)) => byte_count(ty, &dims).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        size = size.saturating_add(bytes);
    }
    let inputs_size = inputs.iter().flatten().map(|tensor| tensor.memory_bytes()).sum();
    let left = budget.left.saturating_add(inputs_size);
    if !operator.is_deterministic() || size == usize::MAX || !budget.take(size, inputs_size) {
        return Ok(Folded::Open(outputs));
    }
    // How long strings are shows only as they are made.
    let computed = strings::within(left, || {
        workspace.compute(&**operator, node.outputs.len(), &inputs, used)
    });
    let results = match computed {
        // A run may never need it, or may have more memory.
        Err(OpError::OutOfMemory { .. }) => return Ok(Folded::Open(outputs)),
        results => results?,
    };
    let tensors = results.iter().flatten().filter_map(|result| match result {
        Value::Tensor(tensor) => Some(tensor.memory_bytes()),
        Value::Sequence(_) | Value::Optional(_) => None,
    });
    let beyond = tensors
        .fold(0, usize::saturating_add)
        .saturating_sub(size.max(inputs_size));
    if !budget.take(beyond, 0) {
        return Ok(Folded::Open(outputs));
    }
    for (fact, result) in outputs.iter_mut().zip(results) {
        if let Some(Value::Tensor(tensor)) = result {
            *fact = Fact::of_tensor(&tensor);
        }
    }
    Ok(Folded::Known(outputs))
}
