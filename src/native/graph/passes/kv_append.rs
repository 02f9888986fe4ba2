//! Keys and values that a step appends to those of the steps before go to Attention apart:
//!
//!   Attention(Q, Concat(past_key, K), Concat(past_value, V), mask)
//!
//! becomes Attention(Q, K, V, mask, past_key, past_value). Both Concats join two tensors of four
//! dims along the length; either what is past or what is new has the same length for keys and
//! values in every run (equal numbers or symbols). Where something else reads what a Concat
//! gives, or it is an output of the graph, Attention gives it as present_key or present_value.
//!
//! With a past, queries are at positions after it, which `is_causal` and the window sizes count
//! from, and nonpad_kv_seqlen must not be there: a node with any of these stays.
//!
//! The same bits: Attention walks keys and values in the same order, wherever they are.

use smallvec::SmallVec;

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NewNode, NodeId};
use super::attention::kept_attributes;
use super::pattern::{is_same, operands};

/// Of [batch, heads, length, size].
const LENGTH: usize = 2;

pub(super) fn kv_append(draft: &mut Draft, id: NodeId) -> bool {
    let Some(new) = draft.node(id).and_then(|node| appending(draft, node)) else {
        return false;
    };
    let name = draft.name(id);
    draft.replace(&name, vec![new])
}

fn appending(draft: &Draft, node: &DraftNode) -> Option<NewNode> {
    let has_past = (4..=6).any(|index| node.input(index).is_some());
    let has_present = (1..=2).any(|index| node.output(index).is_some());
    if !node.is("Attention") || has_past || has_present || depends_on_positions(node) {
        return None;
    }
    let (key, value) = (node.input(1)?, node.input(2)?);
    let [past_key, new_key] = joined(draft, key)?;
    let [past_value, new_value] = joined(draft, value)?;
    let length = |value| draft.fact(value)?.dims.as_ref()?.get(LENGTH).copied();
    let is_as_long = |a, b| length(a).zip(length(b)).is_some_and(|(a, b)| is_same(a, b));
    // Keys and values are as many in all, so that one of the parts is enough.
    if key == value || !is_as_long(past_key, past_value) && !is_as_long(new_key, new_value) {
        return None;
    }
    let present = |joined| (!draft.is_read_once(joined)).then_some(joined);
    let mut outputs: SmallVec<[_; 2]> =
        SmallVec::from_slice(&[node.output(0), present(key), present(value), node.output(3)]);
    while outputs.last() == Some(&None) {
        outputs.pop();
    }
    let inputs = [
        node.input(0),
        Some(new_key),
        Some(new_value),
        node.input(3),
        Some(past_key),
        Some(past_value),
    ];
    Some(NewNode {
        domain: "",
        op_type: "Attention",
        version: node.definition.since,
        attributes: kept_attributes(node),
        inputs: inputs.into_iter().collect(),
        outputs,
    })
}

/// Whether the position of the first query makes a difference.
fn depends_on_positions(node: &DraftNode) -> bool {
    let windows = ["left_window_size", "right_window_size"];
    let has_window = windows.iter().any(|name| node.definition.int_or(name, -1) >= 0);
    has_window || node.definition.int_or("is_causal", 0) != 0
}

/// What a value is the Concat of along the length.
fn joined(draft: &Draft, value: ValueId) -> Option<[ValueId; 2]> {
    let parts = operands(draft, value, "Concat")?;
    let axis = draft.producer(value)?.definition.int("axis")?;
    let has_four_dims = |value| draft.fact(value).and_then(|fact| fact.rank()) == Some(4);
    (matches!(axis, 2 | -2) && parts.iter().all(|&part| has_four_dims(part))).then_some(parts)
}
