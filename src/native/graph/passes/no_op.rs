//! Operators that give their first input as it is, if inference and constants prove it:
//!
//!   Reshape, Flatten, Squeeze, Expand, Tile    to the dims that the input has
//!   Slice        every step positive, to the dims that the input has
//!   Pad          by nothing
//!   Transpose    that leaves every axis in its place
//!   Concat, Sum  of one input
//!   Dropout      without training, its mask unused
//!
//! Exact. Dims are the same when they are equal numbers or the same symbol, and no dim is
//! unknown (but one where the number of elements stays: it follows): then Reshape and its like keep the order of the elements, Expand and Tile repeat
//! nothing, and a Slice that goes upwards takes every element of each axis.

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NodeId};
use crate::native::element::Bool;
use crate::native::infer::SymDim;

pub(super) fn no_op(draft: &mut Draft, id: NodeId) -> bool {
    // More is known of its inputs if one of those before it was found to do nothing.
    draft.infer_again(id);
    let Some(node) = draft.node(id) else { return false };
    let (Some(x), Some(y)) = (node.input(0), node.output(0)) else {
        return false;
    };
    does_nothing(draft, node, x, y) && draft.alias(y, x)
}

fn does_nothing(draft: &Draft, node: &DraftNode, x: ValueId, y: ValueId) -> bool {
    if !node.definition.domain.is_empty() {
        return false;
    }
    match node.definition.op_type.as_str() {
        "Reshape" | "Flatten" | "Squeeze" => same_but_one(draft, x, y),
        "Expand" | "Tile" => same_dims(draft, x, y),
        "Slice" => steps_are_positive(draft, node) && same_dims(draft, x, y),
        "Pad" => pads_nothing(draft, node),
        "Transpose" => match node.definition.ints("perm") {
            Some(perm) => perm.iter().enumerate().all(|(at, &axis)| axis == at as i64),
            None => draft
                .fact(x)
                .and_then(|fact| fact.rank())
                .is_some_and(|rank| rank < 2),
        },
        "Concat" | "Sum" => node.node.inputs.len() == 1,
        "Dropout" => {
            let is_masked = node.output(1).is_some_and(|mask| draft.is_used(mask));
            !is_masked && node.input(2).is_none_or(|training| is_false(draft, training))
        }
        _ => false,
    }
}

fn same_dims(draft: &Draft, x: ValueId, y: ValueId) -> bool {
    let dims = |value| draft.fact(value).and_then(|fact| fact.dims.as_ref());
    match (dims(x), dims(y)) {
        (Some(a), Some(b)) => a == b && !a.contains(&SymDim::Unknown),
        _ => false,
    }
}

/// Both have as many elements, so that one dim may be unknown: it follows from the others.
fn same_but_one(draft: &Draft, x: ValueId, y: ValueId) -> bool {
    let dims = |value| draft.fact(value).and_then(|fact| fact.dims.as_ref());
    let (Some(a), Some(b)) = (dims(x), dims(y)) else {
        return false;
    };
    let differ = a.iter().zip(b).filter(|(a, b)| a != b || **b == SymDim::Unknown);
    let open = differ.clone().all(|(_, b)| *b == SymDim::Unknown);
    let is_empty = a.contains(&SymDim::Fixed(0)) || b.contains(&SymDim::Fixed(0));
    same_dims(draft, x, y) || a.len() == b.len() && open && differ.count() <= 1 && !is_empty
}

/// Steps are an input from version 10 on; before, every step is 1.
fn steps_are_positive(draft: &Draft, node: &DraftNode) -> bool {
    let Some(steps) = node.input(4) else { return true };
    let steps = draft.constant(steps).map(|steps| steps.view().to_ints());
    steps.is_some_and(|steps| steps.is_ok_and(|steps| steps.iter().all(|&step| step > 0)))
}

/// Pads are an input from version 11 on.
fn pads_nothing(draft: &Draft, node: &DraftNode) -> bool {
    let are_zero = |pads: &[i64]| pads.iter().all(|&pad| pad == 0);
    if node.definition.since < 11 {
        return node.definition.ints("pads").is_some_and(are_zero);
    }
    let pads = node.input(1).and_then(|pads| draft.constant(pads));
    pads.is_some_and(|pads| pads.view().to_ints().is_ok_and(|pads| are_zero(&pads)))
}

fn is_false(draft: &Draft, value: ValueId) -> bool {
    let elements = draft.constant(value).map(|tensor| tensor.view().slice::<Bool>());
    matches!(elements, Some(Ok(&[element])) if !element.get())
}
