//! Heads of keys and values that are repeated for Attention need not be, since it has fewer of
//! them than of queries as well:
//!
//!   [b, kv, s, d] -Unsqueeze or Reshape-> [b, kv, 1, s, d] -Expand or Tile-> [b, kv, n, s, d]
//!                 -Reshape-> [b, kv n, s, d]
//!
//! is left out of both the keys and the values of an Attention without a past. kv, n and d are
//! known. That Expand enlarges no other dim is known from equal numbers or symbols, from a
//! constant shape of 1 there, or from a shape that is made from the Shape of what is repeated.
//! s follows from the number of elements; in a run without any (b is 0), Y has none either.
//! Nothing else reads what is in between.
//!
//! The same bits: query head h reads head h / (heads / kv) of the keys, which is what was
//! repeated to where it read before.

use super::super::ValueId;
use super::super::draft::{Draft, DraftNode, NewNode, NodeId};
use super::attention::kept_attributes;
use super::pattern::is_same;
use crate::native::infer::SymDim;

pub(super) fn repeat_kv(draft: &mut Draft, id: NodeId) -> bool {
    let Some(new) = draft.node(id).and_then(|node| grouped(draft, node)) else {
        return false;
    };
    let name = draft.name(id);
    draft.replace(&name, vec![new])
}

fn grouped(draft: &Draft, node: &DraftNode) -> Option<NewNode> {
    let has_past = (4..=5).any(|index| node.input(index).is_some());
    let shows_more = (1..=3).any(|index| node.output(index).is_some());
    if !node.is("Attention") || has_past || shows_more {
        return None;
    }
    let (key, key_heads) = repeated(draft, node.input(1)?)?;
    let (value, value_heads) = repeated(draft, node.input(2)?)?;
    let mut inputs = node.node.inputs.clone();
    *inputs.get_mut(1)? = Some(key);
    *inputs.get_mut(2)? = Some(value);
    (key_heads == value_heads).then(|| NewNode {
        domain: "",
        op_type: "Attention",
        version: node.definition.since,
        attributes: kept_attributes(node),
        inputs,
        outputs: node.node.outputs.clone(),
    })
}

/// What a value repeats each head of, and how many heads that has.
fn repeated(draft: &Draft, value: ValueId) -> Option<(ValueId, usize)> {
    let reshape = draft.producer(value).filter(|node| node.is("Reshape"))?;
    let wide = reshape.input(0)?;
    let repeat = draft.producer(wide)?;
    let (single, counts) = (repeat.input(0)?, repeat.input(1)?);
    let x = with_one_more(draft, single)?;
    let dims = |value| Some(draft.fact(value)?.dims.as_ref()?.as_slice());
    let &[batch, SymDim::Fixed(heads @ 1..), _, SymDim::Fixed(size @ 1..)] = dims(x)? else {
        return None;
    };
    let times = if repeat.is("Tile") {
        match draft.constant(counts)?.view().to_ints().ok()?.as_slice() {
            &[1, 1, times, 1, 1] => usize::try_from(times).ok()?,
            _ => return None,
        }
    } else if repeat.is("Expand") {
        let &[_, _, SymDim::Fixed(times), _, _] = dims(wide)? else {
            return None;
        };
        let kept = [(0, 0), (1, 1), (3, 2), (4, 3)];
        let keeps = |&(axis, of_x): &(usize, usize)| {
            let before = dims(x).and_then(|dims| dims.get(of_x));
            let after = dims(wide).and_then(|dims| dims.get(axis));
            before
                .zip(after)
                .is_some_and(|(&before, &after)| is_same(before, after))
                || is_one(draft, counts, axis)
                || is_size_of(draft, counts, axis, (x, of_x))
        };
        if !kept.iter().all(keeps) {
            return None;
        }
        times
    } else {
        return None;
    };
    let &[b, SymDim::Fixed(all), _, SymDim::Fixed(d)] = dims(value)? else {
        return None;
    };
    let fits = times > 0 && heads.checked_mul(times) == Some(all) && is_same(b, batch) && d == size;
    let once = draft.is_read_once(value) && draft.is_read_once(wide);
    (fits && once).then_some((x, heads))
}

/// The [b, kv, s, d] that a value is with a dim of 1 between the heads and the length.
fn with_one_more(draft: &Draft, value: ValueId) -> Option<ValueId> {
    let node = draft.producer(value)?;
    let x = node.input(0)?;
    let (from, to) = (draft.fact(x)?.dims.as_ref()?, draft.fact(value)?.dims.as_ref()?);
    let &[batch, heads, _, size] = from.as_slice() else {
        return None;
    };
    let &[b, h, SymDim::Fixed(1), _, d] = to.as_slice() else {
        return None;
    };
    let is_there = if node.is("Unsqueeze") {
        let axes = match node.definition.since {
            13.. => draft.constant(node.input(1)?)?.view().to_ints().ok()?,
            _ => node.definition.ints("axes")?.into(),
        };
        matches!(axes.as_slice(), [2 | -3])
    } else {
        node.is("Reshape") && is_same(batch, b) && is_same(heads, h) && is_same(size, d)
    };
    is_there.then_some(x)
}

/// Whether a shape of five dims is a constant that has 1 there.
fn is_one(draft: &Draft, shape: ValueId, at: usize) -> bool {
    let shape = draft
        .constant(shape)
        .and_then(|shape| shape.view().to_ints().ok());
    shape.is_some_and(|shape| shape.len() == 5 && shape.get(at) == Some(&1))
}

/// Whether an element of a vector of sizes is the size of this axis of a value.
fn is_size_of(draft: &Draft, sizes: ValueId, at: usize, of: (ValueId, usize)) -> bool {
    size_at(draft, sizes, at) == Some(of)
}

/// The value and its axis whose size an element of a tensor of integers is.
fn size_at(draft: &Draft, mut sizes: ValueId, mut at: usize) -> Option<(ValueId, usize)> {
    // More operators than this in a row are no shape.
    for _ in 0..8 {
        let node = draft
            .producer(sizes)
            .filter(|node| node.definition.domain.is_empty())?;
        match node.definition.op_type.as_str() {
            "Concat" => {
                let mut parts = node.node.inputs.iter();
                sizes = loop {
                    let part = (*parts.next()?)?;
                    let &[len] = draft.fact(part)?.fixed_dims()?.as_slice() else {
                        return None;
                    };
                    match at.checked_sub(len) {
                        None => break part,
                        Some(rest) => at = rest,
                    }
                };
            }
            "Unsqueeze" | "Identity" => sizes = node.input(0)?,
            "Gather" => {
                let indices = draft.constant(node.input(1)?)?.view().to_ints().ok()?;
                let index = *indices.get(at)?;
                sizes = node.input(0)?;
                let &[len] = draft.fact(sizes)?.fixed_dims()?.as_slice() else {
                    return None;
                };
                let index = if index < 0 {
                    index.checked_add(i64::try_from(len).ok()?)?
                } else {
                    index
                };
                at = usize::try_from(index).ok()?;
            }
            "Shape" => {
                let start = usize::try_from(node.definition.int_or("start", 0)).ok()?;
                return Some((node.input(0)?, start.checked_add(at)?));
            }
            _ => return None,
        }
    }
    None
}
