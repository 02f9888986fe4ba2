//! Identity: what reads y = Identity(x) reads x. Exact, for any type, sequences and optionals
//! included. An Identity of an input, a constant or another output that is an output of the
//! graph stays: it is what gives the value its second name.

use super::super::draft::{Draft, NodeId};

pub(super) fn identity(draft: &mut Draft, id: NodeId) -> bool {
    let Some(node) = draft.node(id).filter(|node| node.is("Identity")) else {
        return false;
    };
    match (node.input(0), node.output(0)) {
        (Some(x), Some(y)) => draft.alias(y, x),
        _ => false,
    }
}
