//! Attention, as exporters write it out, becomes Attention:
//!
//!   MatMul(Softmax(scale MatMul(Q, Transpose(K)) + mask), V)
//!
//! Q, K and V have the four dims [batch, heads, length, size], with the same batch and heads in
//! every run (equal numbers or symbols), which are as many heads as K has; Transpose swaps the
//! last two dims of K, or takes them from [batch, length, heads, size], where another Transpose
//! is left. The scale is one constant, as a factor or a divisor, or there is none: what Q and K
//! are multiplied with before stays outside. The mask is added, if there is one; its last dim is
//! that of the scores, which keeps Attention from filling it up, and the others are theirs or 1.
//! Softmax is over the last axis. Nothing else reads what is in between.
//!
//! The same function in exact arithmetic. It is computed in f32 or f64 and rounded once, where
//! the nodes round at every step: within 1e-5 of the largest output for f32, 2^-7 for f16 and
//! 2^-4 for bf16. A query whose keys are all masked by -inf gives zeros instead of NaN.

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NewNode, NodeId};
use super::pattern::{element_type, is_float, is_same, operands, scalar, with_scalar};
use super::transpose::transposed;
use crate::native::element::ElementType;
use crate::native::infer::SymDim;
use crate::native::node::Attribute;

const RANK: usize = 4;

pub(super) fn attention(draft: &mut Draft, id: NodeId) -> bool {
    let Some(found) = find(draft, id) else {
        return false;
    };
    let name = draft.name(id);
    let mut new = Vec::new();
    let key = match found.key_perm {
        None => found.key,
        Some(perm) => {
            let key = draft.new_value();
            new.push(NewNode {
                domain: "",
                op_type: "Transpose",
                version: 13,
                attributes: vec![("perm", Attribute::Ints(perm))],
                inputs: [Some(found.key)].into_iter().collect(),
                outputs: [Some(key)].into_iter().collect(),
            });
            key
        }
    };
    let mut inputs = vec![Some(found.query), Some(key), Some(found.value)];
    inputs.extend(found.mask.map(Some));
    new.push(NewNode {
        domain: "",
        op_type: "Attention",
        version: 23,
        attributes: vec![("scale", Attribute::Float(found.scale))],
        inputs: inputs.into_iter().collect(),
        outputs: [Some(found.y)].into_iter().collect(),
    });
    draft.replace(&name, new)
}

struct Found {
    query: ValueId,
    key: ValueId,
    /// How the key's axes come to be [batch, heads, length, size], if they are not.
    key_perm: Option<Vec<i64>>,
    value: ValueId,
    mask: Option<ValueId>,
    scale: f32,
    y: ValueId,
}

fn find(draft: &Draft, id: NodeId) -> Option<Found> {
    let node = draft.node(id).filter(|node| node.is("MatMul"))?;
    let y = node.output(0).filter(|&y| is_float(draft, y))?;
    let (weights, value) = (node.input(0)?, node.input(1)?);
    let softmax = draft.producer(weights).filter(|node| node.is("Softmax"))?;
    let axis = match softmax.definition.since {
        13.. => softmax.definition.int_or("axis", -1),
        _ => softmax.definition.int_or("axis", 1),
    };
    if !matches!(axis, -1 | 3) || !draft.is_read_once(weights) {
        return None;
    }
    let masked = softmax.input(0).filter(|&masked| draft.is_read_once(masked))?;
    let (scores, mask) = match operands(draft, masked, "Add") {
        None => (masked, None),
        Some([a, b]) => match (scores_of(draft, a), scores_of(draft, b)) {
            (Some(_), None) => (a, Some(b)),
            (None, Some(_)) => (b, Some(a)),
            _ => return None,
        },
    };
    let (product, scale) = scores_of(draft, scores)?;
    let short = scale as f32;
    let is_held = f64::from(short) == scale || element_type(draft, y) != Some(ElementType::Float64);
    if !is_held || !scale.is_finite() || !draft.is_read_once(scores) {
        return None;
    }
    let [query, turned] = operands(draft, product, "MatMul")?;
    let (key, perm) = transposed(draft, turned)?;
    let &[batch, heads, size, length] = perm.as_slice() else {
        return None;
    };
    let perm = [batch, heads, length, size];
    let source = draft.fact(key)?.dims.as_ref()?;
    let key_dims: Vec<SymDim> = perm
        .iter()
        .map(|&axis| source.get(axis).copied())
        .collect::<Option<_>>()?;
    let dims = |value| Some(draft.fact(value)?.dims.as_ref()?.as_slice()).filter(|dims| dims.len() == RANK);
    let (q, v) = (dims(query)?, dims(value)?);
    let same = |axis: usize| is_same(q[axis], key_dims[axis]) && is_same(q[axis], v[axis]);
    if !same(0) || !same(1) || q[1].fixed().is_none() || !is_same(q[3], key_dims[3]) {
        return None;
    }
    if let Some(mask) = mask {
        let of_scores = [q[0], q[1], q[2], key_dims[2]];
        let mask_dims = draft.fact(mask)?.dims.as_ref()?;
        let first = RANK.checked_sub(mask_dims.len())?;
        let fits = |(axis, &dim): (usize, &SymDim)| {
            is_same(dim, of_scores[first + axis]) || dim == SymDim::Fixed(1) && first + axis + 1 < RANK
        };
        if mask_dims.is_empty() || !mask_dims.iter().enumerate().all(fits) {
            return None;
        }
    }
    let is_in_place = perm == [0, 1, 2, 3];
    Some(Found {
        query,
        key,
        key_perm: (!is_in_place).then(|| perm.iter().map(|&axis| axis as i64).collect()),
        value,
        mask,
        scale: short,
        y,
    })
}

/// The attributes of an Attention whose inputs have four dims, which say themselves how many
/// heads there are.
pub(super) fn kept_attributes(node: &DraftNode) -> Vec<(&'static str, Attribute)> {
    let names = [
        "is_causal",
        "left_window_size",
        "qk_matmul_output_mode",
        "right_window_size",
        "scale",
        "softcap",
        "softmax_precision",
    ];
    let kept = names.into_iter();
    kept.filter_map(|name| Some((name, node.definition.attribute(name)?.clone())))
        .collect()
}

/// The MatMul that a value is, but for a scale, and the scale.
fn scores_of(draft: &Draft, value: ValueId) -> Option<(ValueId, f64)> {
    let is_product = |value| operands(draft, value, "MatMul").is_some() && draft.is_read_once(value);
    if is_product(value) {
        return Some((value, 1.0));
    }
    let (product, scale) = with_scalar(draft, value, "Mul").or_else(|| {
        let [product, divisor] = operands(draft, value, "Div")?;
        Some((product, 1.0 / scalar(draft, divisor, product)?))
    })?;
    is_product(product).then_some((product, scale))
}
