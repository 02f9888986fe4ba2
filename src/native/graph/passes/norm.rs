//! Normalisation over the last axis, as exporters write it out:
//!
//!   rms_norm     x / sqrt(mean(x^2) + e) * scale                 becomes RMSNormalization
//!   layer_norm   d / sqrt(mean(d^2) + e) * scale, d = x - mean(x)   becomes LayerNormalization
//!                LayerNormalization without a bias, plus a bias     gets the bias
//!   skip_norm    either of those of a + b, both of the same dims in every run, becomes
//!                SkipSimplifiedLayerNormalization or SkipLayerNormalization, which also gives
//!                the sum
//!
//! The square may be Pow or Mul, the root may divide or be multiplied by as Reciprocal or 1 /
//! root, and d may be computed twice. Scale and bias are [hidden], the last dim of x, which is
//! known. Exporters of 16-bit models cast to f32 before and back before the scale: that is a
//! normalisation of the 16-bit x, since the fused operator computes in f32 anyway.
//! Nothing else reads what is in between (but d).
//!
//! The same function in exact arithmetic. It is computed in f32 or f64 and rounded once, where
//! the nodes round at every step: within 1e-5 of the largest output for f32, 2^-8 for f16 and
//! 2^-5 for bf16. f64 is left alone if an attribute cannot hold e.

use super::super::ValueId;
use super::super::draft::{Draft, NewNode, NodeId};
use super::pattern::{
    element_type, is_float, is_vector_of, last_dim, mean_of_last, operand, operands, same_dims, scalar,
    squared, with_scalar,
};
use crate::native::element::ElementType;
use crate::native::node::Attribute;

/// A value divided by its root mean square, and what is added to that.
struct Normalised {
    x: ValueId,
    epsilon: f32,
}

/// x / sqrt(mean(x^2) + e), for any x.
fn normalised(draft: &Draft, value: ValueId) -> Option<Normalised> {
    let (x, root) = match operands(draft, value, "Div") {
        Some(both) => (both[0], both[1]),
        None => {
            let [a, b] = operands(draft, value, "Mul")?;
            match (inverted(draft, a), inverted(draft, b)) {
                (None, Some(root)) => (a, root),
                (Some(root), None) => (b, root),
                _ => return None,
            }
        }
    };
    let sum = operand(draft, root, "Sqrt").filter(|_| draft.is_read_once(root))?;
    let (mean, epsilon) = with_scalar(draft, sum, "Add").filter(|_| draft.is_read_once(sum))?;
    let square = mean_of_last(draft, mean).filter(|_| draft.is_read_once(mean))?;
    let base = squared(draft, square).filter(|_| draft.is_read_once(square))?;
    let short = epsilon as f32;
    let is_held = f64::from(short) == epsilon || element_type(draft, x) != Some(ElementType::Float64);
    let same = base == x || is_same_difference(draft, base, x);
    (same && is_held && epsilon >= 0.0).then_some(Normalised { x, epsilon: short })
}

/// 1 / root, as Reciprocal or Div.
fn inverted(draft: &Draft, value: ValueId) -> Option<ValueId> {
    if !draft.is_read_once(value) {
        return None;
    }
    operand(draft, value, "Reciprocal").or_else(|| {
        let [one, root] = operands(draft, value, "Div")?;
        (scalar(draft, one, root)? == 1.0).then_some(root)
    })
}

/// Both are the same Sub.
fn is_same_difference(draft: &Draft, a: ValueId, b: ValueId) -> bool {
    match (operands(draft, a, "Sub"), operands(draft, b, "Sub")) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// x - mean(x): x.
fn centred(draft: &Draft, value: ValueId) -> Option<ValueId> {
    let [x, mean] = operands(draft, value, "Sub")?;
    (mean_of_last(draft, mean)? == x).then_some(x)
}

/// A 16-bit value cast to f32: what is cast.
fn widened(draft: &Draft, value: ValueId) -> Option<ValueId> {
    let x = operand(draft, value, "Cast")?;
    let is_short = matches!(
        element_type(draft, x),
        Some(ElementType::Float16 | ElementType::Bfloat16)
    );
    (is_short && element_type(draft, value) == Some(ElementType::Float32)).then_some(x)
}

pub(super) fn rms_norm(draft: &mut Draft, id: NodeId) -> bool {
    scaled(draft, id, false)
}

pub(super) fn layer_norm(draft: &mut Draft, id: NodeId) -> bool {
    scaled(draft, id, true) || biased(draft, id)
}

/// A normalised value times a scale.
fn scaled(draft: &mut Draft, id: NodeId, centre: bool) -> bool {
    let Some((x, scale, y, epsilon)) = draft.node(id).and_then(|node| {
        let y = node.output(0)?;
        let [a, b] = operands(draft, y, "Mul").filter(|_| is_float(draft, y))?;
        let of = |value, scale| {
            let (x, epsilon) = normalised_source(draft, value, centre)?;
            let is_scale = is_vector_of(draft, scale, last_dim(draft, x)?);
            let same_type = element_type(draft, x) == element_type(draft, scale);
            (is_scale && same_type).then_some((x, scale, y, epsilon))
        };
        of(a, b).or_else(|| of(b, a))
    }) else {
        return false;
    };
    let name = draft.name(id);
    let (op_type, version) = match centre {
        true => ("LayerNormalization", 17),
        false => ("RMSNormalization", 23),
    };
    let new = NewNode {
        domain: "",
        op_type,
        version,
        attributes: vec![
            ("axis", Attribute::Int(-1)),
            ("epsilon", Attribute::Float(epsilon)),
        ],
        inputs: [Some(x), Some(scale)].into_iter().collect(),
        outputs: [Some(y)].into_iter().collect(),
    };
    draft.replace(&name, vec![new])
}

/// What `value` is the normalised form of; casts of a 16-bit model around it included.
fn normalised_source(draft: &Draft, value: ValueId, centre: bool) -> Option<(ValueId, f32)> {
    if !draft.is_read_once(value) {
        return None;
    }
    let narrowed = match operand(draft, value, "Cast") {
        Some(wide) if draft.is_read_once(wide) => Some(wide),
        _ => None,
    };
    let found = normalised(draft, narrowed.unwrap_or(value))?;
    let x = match centre {
        true => centred(draft, found.x)?,
        // That is for the other pass.
        false if centred(draft, found.x).is_some() => return None,
        false => found.x,
    };
    match narrowed {
        None => Some((x, found.epsilon)),
        // What is cast back must be cast before.
        Some(_) => {
            let short = widened(draft, x)?;
            (element_type(draft, short) == element_type(draft, value)).then_some((short, found.epsilon))
        }
    }
}

/// A LayerNormalization plus its bias.
fn biased(draft: &mut Draft, id: NodeId) -> bool {
    let Some((inputs, attributes, y)) = draft.node(id).and_then(|node| {
        let y = node.output(0)?;
        let [a, b] = operands(draft, y, "Add")?;
        let of = |value, bias| {
            let node = draft
                .producer(value)
                .filter(|node| node.is("LayerNormalization"))?;
            let (x, scale) = (node.input(0)?, node.input(1)?);
            let only_y = draft.is_read_once(value) && node.node.outputs.iter().flatten().count() == 1;
            let is_last = node.definition.int_or("axis", -1) == -1;
            let is_bias = is_vector_of(draft, bias, last_dim(draft, x)?);
            if node.input(2).is_some() || !only_y || !is_last || !is_bias {
                return None;
            }
            let attributes = ["axis", "epsilon", "stash_type"].into_iter();
            let attributes =
                attributes.filter_map(|name| Some((name, node.definition.attribute(name)?.clone())));
            Some((
                [Some(x), Some(scale), Some(bias)],
                attributes.collect::<Vec<_>>(),
                y,
            ))
        };
        of(a, b).or_else(|| of(b, a))
    }) else {
        return false;
    };
    let name = draft.name(id);
    let new = NewNode {
        domain: "",
        op_type: "LayerNormalization",
        version: 17,
        attributes,
        inputs: inputs.into_iter().collect(),
        outputs: [Some(y)].into_iter().collect(),
    };
    draft.replace(&name, vec![new])
}

pub(super) fn skip_norm(draft: &mut Draft, id: NodeId) -> bool {
    let Some(new) = draft.node(id).and_then(|node| {
        let is_rms = node.is("RMSNormalization") || node.is("SimplifiedLayerNormalization");
        if !is_rms && !node.is("LayerNormalization") {
            return None;
        }
        let (sum, scale) = (node.input(0)?, node.input(1)?);
        let [a, b] = operands(draft, sum, "Add").filter(|_| is_float(draft, sum))?;
        let hidden = last_dim(draft, sum)?;
        let is_last = match node.definition.int_or("axis", -1) {
            -1 => true,
            axis => draft.fact(sum)?.rank()? as i64 == axis + 1,
        };
        let bias = node.input(2);
        let only_y = node.node.outputs.iter().flatten().count() == 1;
        let same_types = element_type(draft, scale) == element_type(draft, sum);
        if !is_last
            || !only_y
            || !same_types
            || !is_vector_of(draft, scale, hidden)
            || !bias.is_none_or(|bias| is_vector_of(draft, bias, hidden))
            || !same_dims(draft, a, b)
        {
            return None;
        }
        let epsilon = node.definition.attribute("epsilon").cloned();
        let mut inputs = vec![Some(a), Some(b), Some(scale)];
        inputs.extend(bias.map(Some));
        Some(NewNode {
            domain: "com.microsoft",
            op_type: match is_rms {
                true => "SkipSimplifiedLayerNormalization",
                false => "SkipLayerNormalization",
            },
            version: 1,
            attributes: vec![("epsilon", epsilon.unwrap_or(Attribute::Float(1e-5)))],
            inputs: inputs.into_iter().collect(),
            outputs: [node.output(0), None, None, Some(sum)].into_iter().collect(),
        })
    }) else {
        return false;
    };
    let name = draft.name(id);
    draft.replace(&name, vec![new])
}
