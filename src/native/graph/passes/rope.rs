//! Rotary embedding, as Hugging Face's rotate_half writes it out, becomes RotaryEmbedding:
//!
//!   x cos + Concat(Neg(x[..., size/2:]), x[..., :size/2]) sin
//!
//! x is [batch, heads, length, size], the size known and even; cos and sin are Unsqueeze at axis 1
//! of [batch, length, size], with the batch and length of x in every run (equal numbers or
//! symbols), and have two equal halves, since they are made from Concat(f, f) by operators that
//! work element by element; a Slice takes one half. Nothing else reads what is in between.
//!
//! The same function; for f32 and f64 the same bits, since every element is the same two
//! products and one sum. 16-bit types are rounded once instead of at every step: within 2^-8 of
//! the largest output for f16, 2^-5 for bf16.

use super::super::ValueId;
use super::super::draft::{Draft, NewNode, NodeId};
use super::pattern::{element_type, is_float, operand, operands};
use crate::native::infer::SymDim;
use crate::native::tensor::Tensor;

pub(super) fn rope(draft: &mut Draft, id: NodeId) -> bool {
    let Some(found) = find(draft, id) else {
        return false;
    };
    let bounds = [0, found.half as i64, -1, 1].map(|number| Tensor::from_slice(&[1], &[number]));
    let [Ok(start), Ok(end), Ok(axis), Ok(step)] = bounds else {
        return false;
    };
    let bounds = [start, end, axis, step].map(|bound| draft.add_constant(&bound));
    let mut new = Vec::new();
    let mut inputs = vec![Some(found.x)];
    for angles in [found.cos, found.sin] {
        let half = draft.new_value();
        new.push(NewNode {
            domain: "",
            op_type: "Slice",
            version: 13,
            attributes: Vec::new(),
            inputs: [angles].into_iter().chain(bounds).map(Some).collect(),
            outputs: [Some(half)].into_iter().collect(),
        });
        inputs.push(Some(half));
    }
    new.push(NewNode {
        domain: "",
        op_type: "RotaryEmbedding",
        version: 23,
        attributes: Vec::new(),
        inputs: inputs.into_iter().collect(),
        outputs: [Some(found.y)].into_iter().collect(),
    });
    let name = draft.name(id);
    draft.replace(&name, new)
}

struct Found {
    x: ValueId,
    /// [batch, length, size]
    cos: ValueId,
    sin: ValueId,
    half: usize,
    y: ValueId,
}

fn find(draft: &Draft, id: NodeId) -> Option<Found> {
    let y = draft.node(id)?.output(0)?;
    let [a, b] = operands(draft, y, "Add").filter(|_| is_float(draft, y))?;
    let once = draft.is_read_once(a) && draft.is_read_once(b);
    let (first, second) = (operands(draft, a, "Mul")?, operands(draft, b, "Mul")?);
    let orders = [(first, second), (second, first)];
    for (straight, turned) in orders {
        for (x, cos) in both_ways(straight) {
            for (rotated, sin) in both_ways(turned) {
                if once && let Some(half) = half_rotated(draft, rotated, x) {
                    let cos = angles(draft, cos, x, half)?;
                    let sin = angles(draft, sin, x, half)?;
                    return Some(Found { x, cos, sin, half, y });
                }
            }
        }
    }
    None
}

fn both_ways([a, b]: [ValueId; 2]) -> [(ValueId, ValueId); 2] {
    [(a, b), (b, a)]
}

/// Half the size of x, if a value is Concat(Neg(x[..., half:]), x[..., :half]) of its last axis.
fn half_rotated(draft: &Draft, value: ValueId, x: ValueId) -> Option<usize> {
    let node = draft.producer(value).filter(|node| node.is("Concat"))?;
    let [high, low] = operands(draft, value, "Concat")?;
    let &[_, _, _, SymDim::Fixed(size)] = draft.fact(x)?.dims.as_ref()?.as_slice() else {
        return None;
    };
    let half = size / 2;
    let high_source = operand(draft, high, "Neg").filter(|_| draft.is_read_once(high))?;
    let fits = is_last(node.definition.int("axis")?)
        && size == 2 * half
        && draft.is_read_once(value)
        && is_slice(draft, high_source, x, half, size)
        && is_slice(draft, low, x, 0, half);
    fits.then_some(half)
}

/// Whether an axis is the last of four.
fn is_last(axis: i64) -> bool {
    axis == -1 || axis == 3
}

/// Whether a value is x[..., from:to], which nothing else reads.
fn is_slice(draft: &Draft, value: ValueId, x: ValueId, from: usize, to: usize) -> bool {
    let Some(node) = draft
        .producer(value)
        .filter(|node| node.is("Slice") && node.definition.since >= 10)
    else {
        return false;
    };
    let number = |index: usize| {
        let numbers = draft.constant(node.input(index)?)?.view().to_ints().ok()?;
        match numbers.as_slice() {
            &[number] => Some(number),
            _ => None,
        }
    };
    let (Some(start), Some(end), Some(axis)) = (number(1), number(2), number(3)) else {
        return false;
    };
    let Some(&SymDim::Fixed(size)) = draft.fact(x).and_then(|fact| fact.dims.as_ref()?.last()) else {
        return false;
    };
    let position = |at: i64| {
        (if at < 0 {
            at.saturating_add(size as i64)
        } else {
            at
        })
        .clamp(0, size as i64)
    };
    let steps = node.input(4).is_none() || number(4) == Some(1);
    node.input(0) == Some(x)
        && draft.is_read_once(value)
        && is_last(axis)
        && steps
        && position(start) == from as i64
        && position(end) == to as i64
}

/// The [batch, length, size] that cosines or sines of the angles of x come from.
fn angles(draft: &Draft, value: ValueId, x: ValueId, half: usize) -> Option<ValueId> {
    let node = draft.producer(value).filter(|node| node.is("Unsqueeze"))?;
    let axes = match node.definition.since {
        13.. => draft.constant(node.input(1)?)?.view().to_ints().ok()?,
        _ => node.definition.ints("axes")?.into(),
    };
    let inner = node.input(0)?;
    let (x_dims, dims) = (draft.fact(x)?.dims.as_ref()?, draft.fact(inner)?.dims.as_ref()?);
    let (&[batch, _, length, size], &[b, l, s]) = (x_dims.as_slice(), dims.as_slice()) else {
        return None;
    };
    let is_same = |a: SymDim, b: SymDim| a == b && a != SymDim::Unknown;
    let fits = is_same(batch, b) && is_same(length, l) && is_same(size, s);
    let same_type = element_type(draft, inner) == element_type(draft, x);
    (axes.as_slice() == [1] && fits && same_type && has_equal_halves(draft, inner, half)).then_some(inner)
}

/// Whether both halves of the last of three axes are equal.
fn has_equal_halves(draft: &Draft, mut value: ValueId, half: usize) -> bool {
    // More operators than this in a row are no angles.
    for _ in 0..8 {
        let Some(node) = draft.producer(value) else {
            return false;
        };
        let next = match node.definition.op_type.as_str() {
            "Cos" | "Sin" | "Cast" | "Identity" => node.input(0),
            "Mul" => super::pattern::with_scalar(draft, value, "Mul").map(|(rest, _)| rest),
            "Concat" => {
                let is_last = matches!(node.definition.int("axis"), Some(-1 | 2));
                let same = operands(draft, value, "Concat").is_some_and(|[a, b]| a == b);
                let size = super::pattern::last_dim(draft, value);
                return is_last && same && size == Some(2 * half);
            }
            _ => return false,
        };
        let Some(next) = next.filter(|_| node.definition.domain.is_empty()) else {
            return false;
        };
        value = next;
    }
    false
}
