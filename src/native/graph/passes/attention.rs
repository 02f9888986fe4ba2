//! Attention, as exporters write it out, becomes Attention:
//!
//!   MatMul(Softmax(scale MatMul(Q, Transpose(K)) + mask), V)
//!
//! Q, K and V have the four dims [batch, heads, length, size], with the same batch and heads in
//! every run (equal numbers or symbols), which are as many heads as K has; Transpose swaps the
//! last two dims of K, or takes them from [batch, length, heads, size], where another Transpose
//! is left. The scale is one constant, as a factor or a divisor, or there is none. The mask is
//! added, if there is one; its last dim is that of the scores, which keeps Attention from filling
//! it up, and the others are theirs or 1. Softmax is over the last axis. Nothing else reads what
//! is in between.
//!
//! So does the body of the function Attention of ai.onnx, and what exporters write like it:
//!
//!   MatMul(Where(Equal(ReduceMax(mask), -inf), 0,
//!                Softmax(MatMul(s Q, t Transpose(K)) + mask)), V)
//!
//! Q and the transposed K may each have a constant factor, equal or not, both or none of them:
//! the scale is then their product and that of the scale above. What only Q is multiplied with,
//! or K before it is transposed, stays outside; a factor of the transposed K alone is not looked
//! for. Softmax may be in a wider type, between a Cast from that of Q and one back.
//! Where may give 0 to the queries whose keys are all masked by -inf, and to no others: its
//! condition is computed from the mask as above, or both are constants of which that is true.
//!
//! The same function in exact arithmetic. It is computed in f32 or f64 and rounded once, where
//! the nodes round at every step: within 1e-5 of the largest output for f32, 2^-7 for f16 and
//! 2^-4 for bf16. The scale is the product of the constants as the model has them, rounded once
//! to f32, by at most 2^-24 of itself, and not at all if it is that of two factors of 16 bits; in
//! f64 it must be exact.
//! A query whose keys are all masked by -inf gives zeros, also where the nodes give NaN.

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NewNode, NodeId};
use super::cast::holds;
use super::pattern::{
    element_type, is_float, is_number, is_same, max_of_last, numbers, operand, operands, scalar, with_scalar,
};
use super::transpose::transposed;
use crate::native::element::{Bool, ElementType};
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
    let value = node.input(1)?;
    let Weights { masked, hidden } = weights(draft, node.input(0)?, element_type(draft, y)?)?;
    let (scores, mask) = match operands(draft, masked, "Add") {
        None => (masked, None),
        Some([a, b]) => match (scores_of(draft, a), scores_of(draft, b)) {
            (Some(_), None) => (a, Some(b)),
            (None, Some(_)) => (b, Some(a)),
            _ => return None,
        },
    };
    let (product, scale) = scores_of(draft, scores)?;
    let (query, turned, factor) = factors_of(draft, product)?;
    let scale = attribute(scale * factor, element_type(draft, y)?)?;
    if !draft.is_read_once(scores) {
        return None;
    }
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
    if let Some(hidden) = hidden
        && !mask.is_some_and(|mask| is_hidden_by(draft, hidden, mask))
    {
        return None;
    }
    let is_in_place = perm == [0, 1, 2, 3];
    Some(Found {
        query,
        key,
        key_perm: (!is_in_place).then(|| perm.iter().map(|&axis| axis as i64).collect()),
        value,
        mask,
        scale,
        y,
    })
}

/// What the values are summed with.
struct Weights {
    /// What Softmax is of, in the type of the values.
    masked: ValueId,
    /// The condition by which a query has only zeros.
    hidden: Option<ValueId>,
}

fn weights(draft: &Draft, mut weights: ValueId, ty: ElementType) -> Option<Weights> {
    let once = |value: &ValueId| draft.is_read_once(*value);
    let mut hidden = None;
    if let Some(node) = draft.producer(weights).filter(|node| node.is("Where")) {
        once(&weights).then_some(())?;
        let (zero, shown) = (node.input(1)?, node.input(2)?);
        is_number(draft, zero, shown, 0.0).then_some(())?;
        hidden = Some(node.input(0)?);
        weights = shown;
    }
    let wide = operand(draft, weights, "Cast");
    if let Some(wide) = wide {
        let is_wider = is_float(draft, wide) && holds(element_type(draft, wide)?, ty);
        (is_wider && once(&weights)).then_some(())?;
        weights = wide;
    }
    let softmax = draft.producer(weights).filter(|node| node.is("Softmax"))?;
    let axis = match softmax.definition.since {
        13.. => softmax.definition.int_or("axis", -1),
        _ => softmax.definition.int_or("axis", 1),
    };
    if !matches!(axis, -1 | 3) || !once(&weights) {
        return None;
    }
    let mut masked = softmax.input(0).filter(once)?;
    if wide.is_some() {
        masked = operand(draft, masked, "Cast").filter(once)?;
        (element_type(draft, masked) == Some(ty)).then_some(())?;
    }
    Some(Weights { masked, hidden })
}

/// Whether a condition is true of the rows of the mask that are -inf throughout, and of no others.
fn is_hidden_by(draft: &Draft, condition: ValueId, mask: ValueId) -> bool {
    if let Some([a, b]) = operands(draft, condition, "Equal") {
        let is = |max, lowest| {
            max_of_last(draft, max) == Some(mask) && is_number(draft, lowest, max, f64::NEG_INFINITY)
        };
        return is(a, b) || is(b, a);
    }
    hides_constant_rows(draft, condition, mask) == Some(true)
}

fn hides_constant_rows(draft: &Draft, condition: ValueId, mask: ValueId) -> Option<bool> {
    let (condition, mask) = (draft.constant(condition)?, draft.constant(mask)?);
    let ([rows @ .., keys], [of_condition @ .., 1]) = (mask.dims(), condition.dims()) else {
        return None;
    };
    if *keys == 0 || rows != of_condition {
        return None;
    }
    let numbers = numbers(mask)?;
    let hidden = condition.view().slice::<Bool>().ok()?;
    let is_right = |(hidden, row): (&Bool, &[f64])| {
        hidden.get() == row.iter().all(|&number| number == f64::NEG_INFINITY)
    };
    Some(hidden.iter().zip(numbers.chunks(*keys)).all(is_right))
}

/// Q and the transposed K that a MatMul is of, but for a factor of each, and the product of
/// these two factors.
fn factors_of(draft: &Draft, product: ValueId) -> Option<(ValueId, ValueId, f64)> {
    let [left, right] = operands(draft, product, "MatMul")?;
    let scaled = |value| with_scalar(draft, value, "Mul").filter(|_| draft.is_read_once(value));
    Some(match (scaled(left), scaled(right)) {
        (Some((query, s)), Some((turned, t))) => (query, turned, s * t),
        _ => (left, right, 1.0),
    })
}

/// A scale as the attribute of Attention, an f32, can give it.
fn attribute(scale: f64, ty: ElementType) -> Option<f32> {
    let short = scale as f32;
    let is_near = short.is_normal() && ty != ElementType::Float64;
    (short.is_finite() && (is_near || f64::from(short) == scale)).then_some(short)
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
