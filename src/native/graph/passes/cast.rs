//! Casts that change nothing are left out:
//!
//!   Cast(x) to the type of x
//!   Cast(Cast(x) to W) to the type of x, where W holds every value of that type: a wider
//!   float, a wider integer, or a float whose significand takes all of the integer's bits
//!
//! Exact: the inner cast loses nothing, so the outer one finds what x was. (A NaN stays one;
//! its payload is no part of ONNX.) CastLike likewise. Any other CastLike(x, like) is Cast(x)
//! to the type of `like`, if that is known, so that nothing waits for the elements of `like`.

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NewNode, NodeId};
use crate::native::element::ElementType;
use crate::native::infer::Kind;
use crate::native::node::Attribute;

pub(super) fn cast(draft: &mut Draft, id: NodeId) -> bool {
    let Some(y) = draft
        .node(id)
        .and_then(|node| cast_result(draft, node.output(0)?))
    else {
        return false;
    };
    let (x, y) = y;
    let Some(to) = element_type(draft, y) else {
        return false;
    };
    let Some(from) = element_type(draft, x) else {
        return false;
    };
    if from == to {
        return draft.alias(y, x);
    }
    match cast_result(draft, x) {
        Some((origin, _)) if element_type(draft, origin) == Some(to) && holds(from, to) => {
            draft.alias(y, origin)
        }
        _ => {
            let name = draft.name(id);
            let cast = draft.node(id).and_then(|node| cast_to(node, to));
            cast.is_some_and(|cast| draft.replace(&name, vec![cast]))
        }
    }
}

/// The Cast that a CastLike to this type is. The rules of both changed in the same versions.
fn cast_to(node: &DraftNode, to: ElementType) -> Option<NewNode> {
    if !node.is("CastLike") {
        return None;
    }
    let kept = ["round_mode", "saturate"].into_iter();
    let kept = kept.filter_map(|name| Some((name, node.definition.attribute(name)?.clone())));
    Some(NewNode {
        domain: "",
        op_type: "Cast",
        version: node.definition.since,
        attributes: kept.chain([("to", Attribute::Int(to.code().into()))]).collect(),
        inputs: [Some(node.input(0)?)].into_iter().collect(),
        outputs: node.node.outputs.clone(),
    })
}

/// What is cast, and the result, if a value is the result of a cast.
fn cast_result(draft: &Draft, y: ValueId) -> Option<(ValueId, ValueId)> {
    let node = draft.producer(y)?;
    (node.is("Cast") || node.is("CastLike")).then_some(())?;
    Some((node.input(0)?, y))
}

fn element_type(draft: &Draft, value: ValueId) -> Option<ElementType> {
    let fact = draft.fact(value)?;
    (fact.kind == Some(Kind::Tensor)).then_some(fact.ty).flatten()
}

/// Whether `wide` has every value of `narrow`.
pub(super) fn holds(wide: ElementType, narrow: ElementType) -> bool {
    use ElementType as T;
    // Of integers: the bits of the largest magnitude, and whether there are negative ones.
    let integer = |ty| match ty {
        T::Int8 => Some((7, true)),
        T::Int16 => Some((15, true)),
        T::Int32 => Some((31, true)),
        T::Int64 => Some((63, true)),
        T::Uint8 => Some((8, false)),
        T::Uint16 => Some((16, false)),
        T::Uint32 => Some((32, false)),
        T::Uint64 => Some((64, false)),
        _ => None,
    };
    match (integer(wide), integer(narrow)) {
        (Some((bits, signed)), Some((narrow, negative))) => bits >= narrow && (signed || !negative),
        (None, Some((narrow, _))) => match wide {
            T::Float64 => narrow <= 53,
            T::Float32 => narrow <= 24,
            T::Float16 => narrow <= 11,
            T::Bfloat16 => narrow <= 8,
            _ => false,
        },
        _ => matches!(
            (narrow, wide),
            (T::Float16 | T::Bfloat16, T::Float32 | T::Float64) | (T::Float32, T::Float64)
        ),
    }
}
