//! Which node to start from when only the last row of an output is asked for.
//!
//! A decoder's logits are a product with the largest matrix of the model, one row for each
//! position, and all but the last row is thrown away. From the output backwards, as long as
//! a row of a node's result follows from the same row of its first input and nothing else
//! reads what is in between, the rows before the last need not be computed.

use super::{Action, Graph, Node, ValueId};
use crate::native::infer::Fact;

/// For each output of the graph, the node whose first input may be cut to its last row.
pub(in crate::native) fn cuts(graph: &Graph) -> Vec<Option<usize>> {
    let mut producers = vec![None; graph.facts.len()];
    let mut uses = vec![0usize; graph.facts.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        for value in node.outputs.iter().flatten() {
            if let Some(producer) = producers.get_mut(value.index()) {
                *producer = Some(index);
            }
        }
        count(&mut uses, node.inputs.iter().flatten());
    }
    count(&mut uses, graph.outputs.iter());
    let cut = |&output: &ValueId| {
        let mut cut = None;
        let mut value = output;
        while uses.get(value.index()) == Some(&1)
            && let Some(index) = producers.get(value.index()).copied().flatten()
            && let Some(node) = graph.nodes.get(index)
            && let Some(source) = row_source(|value| graph.facts.get(value.index()), node, value)
        {
            cut = Some(index);
            value = source;
        }
        cut
    };
    graph.outputs.iter().map(cut).collect()
}

fn count<'v>(uses: &mut [usize], values: impl Iterator<Item = &'v ValueId>) {
    for value in values {
        if let Some(uses) = uses.get_mut(value.index()) {
            *uses += 1;
        }
    }
}

/// The first input of a node whose only result, `value`, follows from it row by row. `fact` is
/// what is known of a value.
pub(super) fn row_source<'f>(
    fact: impl Fn(ValueId) -> Option<&'f Fact>,
    node: &Node,
    value: ValueId,
) -> Option<ValueId> {
    let Action::Kernel(operator) = &node.action else {
        return None;
    };
    let others: Option<Vec<Option<&Fact>>> = node
        .inputs
        .iter()
        .skip(1)
        .map(|input| match input {
            None => Some(None),
            Some(input) => fact(*input).filter(|fact| fact.value.is_some()).map(Some),
        })
        .collect();
    let single = node.outputs.iter().flatten().eq([&value]) && node.outputs.first() == Some(&Some(value));
    let source = node.inputs.first().copied().flatten()?;
    let rank = fact(source)?.dims.as_ref()?.len();
    (single && rank >= 2 && operator.is_row_wise(&others?)).then_some(source)
}
