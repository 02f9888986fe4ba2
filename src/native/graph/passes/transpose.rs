//! Transposes that need not be written out:
//!
//!   transpose          Transpose(Transpose(x, p), q) is Transpose(x, r) with r[i] = p[q[i]], and x
//!                      when that leaves every axis in its place
//!   transpose_gather   Gather along axis 0 of the Transpose of a constant matrix, or of a matrix whose
//!                      transpose nothing else reads, is Gather along axis 1 of the matrix, and a
//!                      Transpose of what that gives
//!   transpose_matmul   MatMul of an operand that is a Transpose of its last two dims, which
//!                      nothing else reads, is FusedMatMul of what was transposed, with transA or
//!                      transB; likewise FusedMatMul without transBatch, and Gemm
//!
//! Elements only move. A product of few rows sums in another order with a transposed matrix.

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NewNode, NodeId};
use crate::native::element::ElementType;
use crate::native::node::Attribute;

pub(super) fn transpose(draft: &mut Draft, id: NodeId) -> bool {
    let Some(outer) = draft.node(id).filter(|node| node.is("Transpose")) else {
        return false;
    };
    let Some((y, middle)) = outer.output(0).zip(outer.input(0)) else {
        return false;
    };
    let Some((_, q)) = transposed(draft, y) else {
        return false;
    };
    let Some((x, p)) = transposed(draft, middle) else {
        return false;
    };
    let both: Option<Vec<usize>> = q.iter().map(|&at| p.get(at).copied()).collect();
    let Some(both) = both.filter(|both| both.len() == p.len()) else {
        return false;
    };
    if both.iter().enumerate().all(|(at, &axis)| at == axis) {
        return draft.alias(y, x);
    }
    let name = draft.name(id);
    let perm = both.into_iter().map(|axis| axis as i64).collect();
    let new = NewNode {
        domain: "",
        op_type: "Transpose",
        version: 13,
        attributes: vec![("perm", Attribute::Ints(perm))],
        inputs: [Some(x)].into_iter().collect(),
        outputs: [Some(y)].into_iter().collect(),
    };
    draft.replace(&name, vec![new])
}

pub(super) fn transpose_gather(draft: &mut Draft, id: NodeId) -> bool {
    let Some((matrix, indices, y, since)) = draft.node(id).and_then(|node| gathered_rows(draft, node)) else {
        return false;
    };
    let Some(rank) = draft.fact(indices).and_then(|fact| fact.rank()) else {
        return false;
    };
    let columns = if rank == 0 { y } else { draft.new_value() };
    let mut new = vec![NewNode {
        domain: "",
        op_type: "Gather",
        version: since,
        attributes: vec![("axis", Attribute::Int(1))],
        inputs: [Some(matrix), Some(indices)].into_iter().collect(),
        outputs: [Some(columns)].into_iter().collect(),
    }];
    if rank > 0 {
        let perm = (1..=rank as i64).chain([0]).collect();
        new.push(NewNode {
            domain: "",
            op_type: "Transpose",
            version: 13,
            attributes: vec![("perm", Attribute::Ints(perm))],
            inputs: [Some(columns)].into_iter().collect(),
            outputs: [Some(y)].into_iter().collect(),
        });
    }
    let name = draft.name(id);
    draft.replace(&name, new)
}

/// The matrix that a node gathers rows of the transpose of; then the indices, the output, and the
/// node's version.
fn gathered_rows(draft: &Draft, node: &DraftNode) -> Option<(ValueId, ValueId, ValueId, i64)> {
    let (x, indices, y) = (node.input(0)?, node.input(1)?, node.output(0)?);
    let is_first = matches!(node.definition.int_or("axis", 0), 0 | -2);
    let (matrix, perm) = transposed(draft, x).filter(|_| node.is("Gather") && is_first)?;
    let is_worth_it = draft.constant(matrix).is_some() || draft.is_read_once(x);
    (perm == [1, 0] && is_worth_it).then_some((matrix, indices, y, node.definition.since))
}

/// What a value is the transpose of, and which axis of that each of its axes is.
pub(super) fn transposed(draft: &Draft, value: ValueId) -> Option<(ValueId, Vec<usize>)> {
    let node = draft.producer(value).filter(|node| node.is("Transpose"))?;
    let x = node.input(0)?;
    let perm = match node.definition.ints("perm") {
        None => (0..draft.fact(x)?.rank()?).rev().collect(),
        Some(perm) => {
            let rank = perm.len() as i64;
            let axis = |&axis: &i64| usize::try_from(if axis < 0 { axis + rank } else { axis }).ok();
            perm.iter().map(axis).collect::<Option<Vec<usize>>>()?
        }
    };
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    let is_permutation = sorted.iter().enumerate().all(|(at, &axis)| at == axis);
    is_permutation.then_some((x, perm))
}

/// What a value is the transpose of, if only the last two dims change places.
pub(super) fn swapped_last(draft: &Draft, value: ValueId) -> Option<ValueId> {
    let (x, perm) = transposed(draft, value)?;
    let [kept @ .., rows, columns] = perm.as_slice() else {
        return None;
    };
    let swaps = *columns == kept.len() && *rows == kept.len() + 1;
    let keeps = kept.iter().enumerate().all(|(at, &axis)| at == axis);
    (swaps && keeps).then_some(x)
}

pub(super) fn transpose_matmul(draft: &mut Draft, id: NodeId) -> bool {
    let Some(new) = draft.node(id).and_then(|node| without_transposes(draft, node)) else {
        return false;
    };
    let name = draft.name(id);
    draft.replace(&name, vec![new])
}

fn without_transposes(draft: &Draft, node: &DraftNode) -> Option<NewNode> {
    let (domain, op_type, version) = if node.is("Gemm") {
        ("", "Gemm", node.definition.since)
    } else if node.is("MatMul") || node.is_of("com.microsoft", "FusedMatMul") {
        let is_batched = |name| node.definition.int_or(name, 0) != 0;
        if is_batched("transBatchA") || is_batched("transBatchB") {
            return None;
        }
        ("com.microsoft", "FusedMatMul", 1)
    } else {
        return None;
    };
    let mut inputs = node.node.inputs.clone();
    let mut attributes = Vec::new();
    for name in ["alpha", "beta"] {
        if let Some(value) = node.definition.attribute(name) {
            attributes.push((name, value.clone()));
        }
    }
    let mut found = false;
    for (index, name) in ["transA", "transB"].into_iter().enumerate() {
        let operand = node.input(index)?;
        let fact = draft.fact(operand)?;
        let is_float = matches!(
            fact.ty?,
            ElementType::Float32 | ElementType::Float64 | ElementType::Float16 | ElementType::Bfloat16
        );
        if !is_float || fact.rank()? < 2 {
            return None;
        }
        let mut transpose = node.definition.int_or(name, 0) != 0;
        if let Some(x) = swapped_last(draft, operand).filter(|_| draft.is_read_once(operand)) {
            inputs[index] = Some(x);
            transpose = !transpose;
            found = true;
        }
        attributes.push((name, Attribute::Int(transpose.into())));
    }
    found.then(|| NewNode {
        domain,
        op_type,
        version,
        attributes,
        inputs,
        outputs: node.node.outputs.clone(),
    })
}
