//! One dim of a value:
//!
//!   dim   Gather of one constant index from Shape(x) becomes Dim(x), and so does that with a Cast to
//!         int32 or int64 behind it, if nothing else reads what is in between
//!
//! Exact. Where all dims are known before a run, there is nothing left to run anyway; the pass is for
//! steps whose cache grows, which would run two or three nodes for the number of its rows. It comes
//! after the passes that look for these nodes.

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NewNode, NodeId};
use super::pattern::numbers;
use crate::native::element::ElementType;
use crate::native::node::Attribute;
use crate::native::registry::OWN;

pub(super) fn dim(draft: &mut Draft, id: NodeId) -> bool {
    let Some(new) = draft
        .node(id)
        .and_then(|node| gathered(draft, node).or_else(|| cast(draft, node)))
    else {
        return false;
    };
    let name = draft.name(id);
    draft.replace(&name, vec![new])
}

fn gathered(draft: &Draft, node: &DraftNode) -> Option<NewNode> {
    if !node.is("Gather") || node.definition.int_or("axis", 0) != 0 {
        return None;
    }
    let shape = draft.producer(node.input(0)?).filter(|node| node.is("Shape"))?;
    let x = shape.input(0)?;
    let index = draft
        .constant(node.input(1)?)
        .filter(|index| index.dims().len() <= 1)?;
    let &[at] = numbers(index)?.as_slice() else {
        return None;
    };
    // The axes that Shape gives.
    let rank = draft.fact(x)?.rank()? as i64;
    let clamp = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank);
    let start = clamp(shape.definition.int_or("start", 0));
    let end = clamp(shape.definition.int_or("end", rank));
    let at = at as i64;
    let axis = if at < 0 { at + end } else { at + start };
    if !(start..end).contains(&axis) {
        return None;
    }
    let attributes = vec![
        ("axis", Attribute::Int(axis)),
        ("rank", Attribute::Int(index.dims().len() as i64)),
        ("to", Attribute::Int(code(ElementType::Int64))),
    ];
    Some(made(node, x, attributes))
}

fn cast(draft: &Draft, node: &DraftNode) -> Option<NewNode> {
    let to = node.definition.int("to").filter(|_| node.is("Cast"))?;
    let from = node.input(0).filter(|&from| draft.is_read_once(from))?;
    let dim = draft.producer(from).filter(|node| node.is_of(OWN, "Dim"))?;
    let [int32, int64] = [ElementType::Int32, ElementType::Int64].map(code);
    let fits = (to == int32 || to == int64) && dim.definition.int("to") == Some(int64);
    let attributes = vec![
        ("axis", Attribute::Int(dim.definition.int("axis")?)),
        ("rank", Attribute::Int(dim.definition.int("rank")?)),
        ("to", Attribute::Int(to)),
    ];
    let x = dim.input(0)?;
    fits.then(|| made(node, x, attributes))
}

fn code(ty: ElementType) -> i64 {
    ty.code().into()
}

/// In place of a node.
fn made(node: &DraftNode, x: ValueId, attributes: Vec<(&'static str, Attribute)>) -> NewNode {
    NewNode {
        domain: OWN,
        op_type: "Dim",
        version: 1,
        attributes,
        inputs: [Some(x)].into_iter().collect(),
        outputs: [node.output(0)].into_iter().collect(),
    }
}
