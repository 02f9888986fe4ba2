//! What follows a product of matrices goes into it:
//!
//!   matmul_bias         MatMul(A, B) + c, A and B of rank 2 and c [n], [1, n] or one element, becomes
//!                       Gemm(A, B, c); MatMul with A of a higher rank, and MatMulNBits, + c [n] get
//!                       the bias
//!   matmul_residual     MatMul(A, B) + r, A of rank 2 or more and B of rank 2, and MatMulNBits + r, each
//!                       perhaps with a bias, get the residual r, which has the dims of the product
//!                       in every run
//!   fused_activation    Relu, Sigmoid, Tanh or LeakyRelu of a Gemm or a Conv becomes part of it, as
//!                       FusedGemm and FusedConv
//!
//! Nothing else reads what is in between. The same function in exact arithmetic; the sum is
//! rounded once instead of at every step: the same bits for f32 and f64, but for a sum that the
//! kernel starts with the bias: within 1e-6 of the largest output; 2^-9 for f16, 2^-6 for bf16.

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NewNode, NodeId};
use super::pattern::{element_type, is_float, is_vector_of, last_dim, operands, same_dims, scalar};
use crate::native::node::Attribute;
use crate::native::registry::MS;

pub(super) fn matmul_bias(draft: &mut Draft, id: NodeId) -> bool {
    let Some(new) = draft.node(id).and_then(|node| {
        let y = node.output(0)?;
        let [a, b] = operands(draft, y, "Add").filter(|_| is_float(draft, y))?;
        with_bias(draft, a, b, y).or_else(|| with_bias(draft, b, a, y))
    }) else {
        return false;
    };
    let name = draft.name(id);
    draft.replace(&name, vec![new])
}

fn with_bias(draft: &Draft, product: ValueId, bias: ValueId, y: ValueId) -> Option<NewNode> {
    let node = draft.producer(product).filter(|_| draft.is_read_once(product))?;
    let columns = last_dim(draft, product)?;
    let is_vector = is_vector_of(draft, bias, columns);
    if node.is("MatMul") {
        let (a, b) = (node.input(0)?, node.input(1)?);
        let rank = |value| draft.fact(value).and_then(|fact| fact.rank());
        if is_vector && rank(a)? > 2 && rank(b)? == 2 {
            return with_input(node, 2, bias, y);
        }
        let is_row = draft
            .fact(bias)?
            .fixed_dims()
            .is_some_and(|dims| dims.as_slice() == [1, columns]);
        let fits = is_vector || is_row || scalar(draft, bias, product).is_some();
        if !fits || rank(a) != Some(2) || rank(b) != Some(2) {
            return None;
        }
        return Some(NewNode {
            domain: "",
            op_type: "Gemm",
            version: 13,
            attributes: Vec::new(),
            inputs: [Some(a), Some(b), Some(bias)].into_iter().collect(),
            outputs: [Some(y)].into_iter().collect(),
        });
    }
    let fits = node.is_of(MS, "MatMulNBits") && is_vector;
    fits.then(|| with_input(node, 5, bias, y))?
}

pub(super) fn matmul_residual(draft: &mut Draft, id: NodeId) -> bool {
    let Some(new) = draft.node(id).and_then(|node| {
        let y = node.output(0)?;
        let [a, b] = operands(draft, y, "Add").filter(|_| is_float(draft, y))?;
        with_residual(draft, a, b, y).or_else(|| with_residual(draft, b, a, y))
    }) else {
        return false;
    };
    let name = draft.name(id);
    draft.replace(&name, vec![new])
}

fn with_residual(draft: &Draft, product: ValueId, residual: ValueId, y: ValueId) -> Option<NewNode> {
    let node = draft.producer(product).filter(|_| draft.is_read_once(product))?;
    if !same_dims(draft, product, residual) {
        return None;
    }
    let rank = |value| draft.fact(value).and_then(|fact| fact.rank());
    if node.is("MatMul") {
        let fits = rank(node.input(0)?)? >= 2 && rank(node.input(1)?)? == 2;
        return fits.then(|| with_input(node, 3, residual, y))?;
    }
    let fits = node.is_of(MS, "MatMulNBits");
    fits.then(|| with_input(node, 6, residual, y))?
}

/// A MatMul or MatMulNBits with one input more at this index, if it has none there.
fn with_input(node: &DraftNode, index: usize, value: ValueId, y: ValueId) -> Option<NewNode> {
    let mut inputs = node.node.inputs.clone();
    if inputs.len() <= index {
        inputs.resize(index + 1, None);
    }
    let place = inputs.get_mut(index).filter(|place| place.is_none())?;
    *place = Some(value);
    let names = [
        "K",
        "N",
        "bits",
        "block_size",
        "accuracy_level",
        "weight_prepacked",
    ];
    let (domain, op_type, version) = match node.is("MatMul") {
        true => ("", "MatMul", 13),
        false => (MS, "MatMulNBits", 1),
    };
    Some(NewNode {
        domain,
        op_type,
        version,
        attributes: copied(node, &names)?,
        inputs,
        outputs: [Some(y)].into_iter().collect(),
    })
}

/// All attributes of a node, if these are their names.
fn copied(node: &DraftNode, names: &[&'static str]) -> Option<Vec<(&'static str, Attribute)>> {
    let attributes = node.definition.attributes.iter();
    attributes
        .map(|attribute| {
            let name = names.iter().find(|name| **name == attribute.name)?;
            Some((*name, attribute.value.clone()))
        })
        .collect()
}

pub(super) fn fused_activation(draft: &mut Draft, id: NodeId) -> bool {
    let Some(new) = draft.node(id).and_then(|node| with_activation(draft, node)) else {
        return false;
    };
    let name = draft.name(id);
    draft.replace(&name, vec![new])
}

fn with_activation(draft: &Draft, node: &DraftNode) -> Option<NewNode> {
    let function = ["Relu", "Sigmoid", "Tanh", "LeakyRelu"]
        .into_iter()
        .find(|function| node.is(function))?;
    let (sum, y) = (node.input(0)?, node.output(0)?);
    let maker = draft
        .producer(sum)
        .filter(|_| draft.is_read_once(sum) && is_float(draft, sum))?;
    element_type(draft, y)?;
    let alpha = match (function, node.definition.attribute("alpha")) {
        ("LeakyRelu", None) => Some(0.01),
        ("LeakyRelu", Some(Attribute::Float(alpha))) => Some(*alpha),
        ("LeakyRelu", _) => return None,
        _ => None,
    };
    let (op_type, mut attributes) = if maker.is("Gemm") {
        let attributes = copied(maker, &["alpha", "beta", "transA", "transB"])?;
        ("FusedGemm", attributes)
    } else if maker.is("Conv") {
        let names = [
            "auto_pad",
            "dilations",
            "group",
            "kernel_shape",
            "pads",
            "strides",
        ];
        ("FusedConv", copied(maker, &names)?)
    } else {
        return None;
    };
    attributes.push(("activation", Attribute::String(function.into())));
    if let Some(alpha) = alpha {
        attributes.push(match op_type {
            "FusedGemm" => ("activation_alpha", Attribute::Float(alpha)),
            _ => ("activation_params", Attribute::Floats(vec![alpha])),
        });
    }
    Some(NewNode {
        domain: MS,
        op_type,
        version: 1,
        attributes,
        inputs: maker.node.inputs.clone(),
        outputs: [Some(y)].into_iter().collect(),
    })
}
