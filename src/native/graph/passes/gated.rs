//! Products of one projection with an activation of another:
//!
//!   geglu         Gelu(a) b becomes GatedLinearUnit(a, b), if both have the same dims in every run and
//!                 nothing else reads the Gelu
//!   gated_halves  SwiGLU or GatedLinearUnit of the two halves that Split makes of the rows of x reads
//!                 them in x, if nothing else reads the halves: gate and up as merge_projections
//!                 leaves them, and models that have one matrix for both
//!
//! The first rounds once instead of twice: the same bits for f32 and f64, within 2^-9 of the largest
//! output for f16, 2^-6 for bf16. The second is exact.

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NewNode, NodeId};
use super::pattern::{last_dim, operands, same_dims};
use crate::native::node::Attribute;
use crate::native::registry::{MS, OWN};

const UNIT: &str = "GatedLinearUnit";

/// A GatedLinearUnit.
fn unit(attributes: Vec<(&'static str, Attribute)>, inputs: &[ValueId], y: ValueId) -> NewNode {
    NewNode {
        domain: OWN,
        op_type: UNIT,
        version: 1,
        attributes,
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: [Some(y)].into_iter().collect(),
    }
}

pub(super) fn geglu(draft: &mut Draft, id: NodeId) -> bool {
    let Some(new) = draft.node(id).and_then(|node| {
        let y = node.output(0)?;
        let [a, b] = operands(draft, y, "Mul")?;
        with_gelu(draft, a, b, y).or_else(|| with_gelu(draft, b, a, y))
    }) else {
        return false;
    };
    let name = draft.name(id);
    draft.replace(&name, vec![new])
}

fn with_gelu(draft: &Draft, gelu: ValueId, value: ValueId, y: ValueId) -> Option<NewNode> {
    let node = draft.producer(gelu).filter(|_| draft.is_read_once(gelu))?;
    let activation = if node.is("Gelu") {
        match node.definition.attribute("approximate") {
            None => "gelu",
            Some(Attribute::String(way)) if way == b"none" => "gelu",
            Some(Attribute::String(way)) if way == b"tanh" => "gelu_tanh",
            Some(_) => return None,
        }
    } else if node.is_of(MS, "Gelu") {
        "gelu"
    } else {
        return None;
    };
    let gate = node.input(0).filter(|&gate| same_dims(draft, gate, value))?;
    let attributes = vec![("activation", Attribute::String(activation.into()))];
    Some(unit(attributes, &[gate, value], y))
}

pub(super) fn gated_halves(draft: &mut Draft, id: NodeId) -> bool {
    let Some(new) = draft.node(id).and_then(|node| of_halves(draft, node)) else {
        return false;
    };
    let name = draft.name(id);
    draft.replace(&name, vec![new])
}

fn of_halves(draft: &Draft, node: &DraftNode) -> Option<NewNode> {
    let attribute = |name: &'static str| Some((name, node.definition.attribute(name)?.clone()));
    let activation = if node.is("SwiGLU") {
        ("activation", Attribute::String("swish".into()))
    } else if node.is_of(OWN, UNIT) {
        attribute("activation")?
    } else {
        return None;
    };
    let (gate, value, y) = (node.input(0)?, node.input(1)?, node.output(0)?);
    let split = draft.producer(gate).filter(|node| node.is("Split"))?;
    let &[Some(first), Some(second)] = split.node.outputs.as_slice() else {
        return None;
    };
    let value_first = match [gate, value] == [first, second] {
        true => false,
        false if [value, gate] == [first, second] => true,
        false => return None,
    };
    let x = split.input(0)?;
    let axis = split.definition.int_or("axis", 0);
    let is_last = axis == -1 || draft.fact(x)?.rank()? as i64 == axis + 1;
    let is_half = last_dim(draft, gate)? == last_dim(draft, value)?;
    let no_other = draft.is_read_once(gate) && draft.is_read_once(value);
    if !is_last || !is_half || !no_other {
        return None;
    }
    let mut attributes = vec![activation, ("value_first", Attribute::Int(value_first.into()))];
    attributes.extend(attribute("alpha"));
    Some(unit(attributes, &[x], y))
}
