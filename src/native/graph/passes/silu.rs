//! Products with a sigmoid:
//!
//!   silu     x sigmoid(x), and x sigmoid(alpha x) for a constant alpha, becomes Swish, if
//!            nothing else reads the sigmoid
//!   swiglu   Swish(a) b becomes SwiGLU(a, b), if both have the same dims in every run and nothing
//!            else reads the Swish
//!
//! The same function in exact arithmetic. It is computed in f32 or f64 and rounded once: for f32
//! and f64 the same bits, within 2^-9 of the largest output for f16, 2^-6 for bf16.

use super::super::ValueId;
use super::super::draft::{Draft, NewNode, NodeId};
use super::pattern::{is_float, operand, operands, same_dims, with_scalar};
use crate::native::node::Attribute;

pub(super) fn silu(draft: &mut Draft, id: NodeId) -> bool {
    let Some((x, y, alpha)) = draft.node(id).and_then(|node| {
        let y = node.output(0)?;
        let [a, b] = operands(draft, y, "Mul").filter(|_| is_float(draft, y))?;
        let alpha = |x, sigmoid| Some((x, y, alpha_of(draft, x, sigmoid)?));
        alpha(a, b).or_else(|| alpha(b, a))
    }) else {
        return false;
    };
    let name = draft.name(id);
    let new = NewNode {
        domain: "",
        op_type: "Swish",
        version: 24,
        attributes: vec![("alpha", Attribute::Float(alpha))],
        inputs: [Some(x)].into_iter().collect(),
        outputs: [Some(y)].into_iter().collect(),
    };
    draft.replace(&name, vec![new])
}

/// The alpha of `sigmoid` = sigmoid(alpha x), if it has one that an attribute can hold.
fn alpha_of(draft: &Draft, x: ValueId, sigmoid: ValueId) -> Option<f32> {
    let argument = operand(draft, sigmoid, "Sigmoid").filter(|_| draft.is_read_once(sigmoid))?;
    if argument == x {
        return Some(1.0);
    }
    let (scaled, alpha) = with_scalar(draft, argument, "Mul").filter(|_| draft.is_read_once(argument))?;
    let short = alpha as f32;
    (scaled == x && f64::from(short) == alpha).then_some(short)
}

pub(super) fn swiglu(draft: &mut Draft, id: NodeId) -> bool {
    let Some((gate, value, y, alpha)) = draft.node(id).and_then(|node| {
        let y = node.output(0)?;
        let [a, b] = operands(draft, y, "Mul")?;
        let gated = |swish, value| {
            let node = draft.producer(swish).filter(|node| node.is("Swish"))?;
            let (gate, alpha) = (node.input(0)?, node.definition.attribute("alpha").cloned());
            let fits = draft.is_read_once(swish) && swish != value && same_dims(draft, gate, value);
            fits.then_some((gate, value, y, alpha))
        };
        gated(a, b).or_else(|| gated(b, a))
    }) else {
        return false;
    };
    let name = draft.name(id);
    let new = NewNode {
        domain: "",
        op_type: "SwiGLU",
        version: 28,
        attributes: alpha.map(|alpha| ("alpha", alpha)).into_iter().collect(),
        inputs: [Some(gate), Some(value)].into_iter().collect(),
        outputs: [Some(y)].into_iter().collect(),
    };
    draft.replace(&name, vec![new])
}
