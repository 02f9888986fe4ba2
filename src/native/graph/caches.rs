//! KV caches that a run can make longer where they lie, see
//! [`ComponentSession::in_place_caches`](crate::component::ComponentSession::in_place_caches).
//!
//! An input of the graph, the past, goes to a node that gives it as an output, the present, with
//! rows behind it, and the node is one that can write those rows alone ([`Operator::past_of`]).
//! Nothing else reads the elements of either: they are only to be had as they lie in the cache,
//! with gaps between the heads.
//!
//! [`Operator::past_of`]: crate::native::operator::Operator::past_of

use super::{Action, Graph, Node, ValueId};
use crate::component::InPlaceCache;

/// Of [batch, heads, rows, width].
const ROWS: usize = 2;

/// In the order of the graph's outputs.
pub(super) fn in_place(graph: &Graph) -> Vec<InPlaceCache> {
    let mut inputs = vec![None; graph.facts.len()];
    for (index, input) in graph.inputs.iter().enumerate() {
        if let Some(place) = inputs.get_mut(input.value.index()) {
            *place = Some(index).filter(|_| input.default.is_none());
        }
    }
    // How many look at the elements of each value.
    let mut uses = vec![0usize; graph.facts.len()];
    let mut count = |value: ValueId| {
        if let Some(uses) = uses.get_mut(value.index()) {
            *uses += 1;
        }
    };
    for node in graph.nodes.iter().filter(|node| !reads_only_dims(node)) {
        node.inputs.iter().flatten().for_each(|&value| count(value));
    }
    graph.outputs.iter().for_each(|&value| count(value));
    let used_once = |value: &ValueId| uses.get(value.index()) == Some(&1);

    let mut caches = Vec::new();
    for node in &graph.nodes {
        let Action::Kernel(operator) = &node.action else {
            continue;
        };
        for (output, present) in node.outputs.iter().enumerate() {
            let past = operator.past_of(output);
            let past = past.and_then(|input| node.inputs.get(input).copied().flatten());
            if let (Some(past), Some(present)) = (past.filter(used_once), present.filter(used_once))
                && let Some(past) = inputs.get(past.index()).copied().flatten()
                && let Some(present) = graph.outputs.iter().position(|&output| output == present)
            {
                caches.push(InPlaceCache {
                    past,
                    present,
                    axis: ROWS,
                });
            }
        }
    }
    caches.sort_by_key(|cache| cache.present);
    caches
}

/// Inputs of the graph that a node gives as an output with some elements overwritten, if the node
/// can do that where the input lies ([`Operator::overwrites`]) and nothing else reads what was
/// there before. What it then is may be read: it lies there as any tensor does.
///
/// [`Operator::overwrites`]: crate::native::operator::Operator::overwrites
pub(super) fn overwritten(graph: &Graph) -> Vec<Buffer> {
    let mut inputs = vec![None; graph.facts.len()];
    for (index, input) in graph.inputs.iter().enumerate() {
        if let Some(place) = inputs.get_mut(input.value.index()) {
            *place = Some(index).filter(|_| input.default.is_none());
        }
    }
    let uses = |value: ValueId| {
        let nodes = graph.nodes.iter().filter(|node| !reads_only_dims(node));
        let in_nodes = nodes.flat_map(|node| node.inputs.iter().flatten());
        in_nodes
            .chain(&graph.outputs)
            .filter(|&&used| used == value)
            .count()
    };
    let mut buffers = Vec::new();
    for node in &graph.nodes {
        let Action::Kernel(operator) = &node.action else {
            continue;
        };
        for (output, present) in node.outputs.iter().enumerate() {
            let past = operator.overwrites(output);
            let past = past.and_then(|input| node.inputs.get(input).copied().flatten());
            let (Some(past), Some(present)) = (past, *present) else {
                continue;
            };
            let input = inputs.get(past.index()).copied().flatten();
            let mut places = (0..graph.outputs.len()).filter(|&at| graph.outputs.get(at) == Some(&present));
            if let (Some(past), Some(present), None, 1) = (input, places.next(), places.next(), uses(past)) {
                buffers.push(Buffer { past, present });
            }
        }
    }
    buffers
}

/// An input and an output of a graph that may be one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub past: usize,
    pub present: usize,
}

fn reads_only_dims(node: &Node) -> bool {
    matches!(&node.action, Action::Kernel(operator) if operator.reads_only_dims())
}
