//! Sizes that a graph computes with: the elements of small integer tensors that come from
//! Shape, as far as they are numbers or symbols.
//!
//! Exporters write Reshape(x, Concat(batch, length, heads, size)) with batch and length taken
//! from a Shape. Constant folding cannot compute that before a run, so that all dims of the
//! result would be unknown, and passes that need them would find nothing. Followed are Shape,
//! Gather, Slice, Concat, Unsqueeze, Squeeze, Cast and Identity; a Reshape, an Expand and a
//! ConstantOfShape to such sizes have known dims.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::draft::Definition;
use super::{Node, ValueId};
use crate::native::element::ElementType;
use crate::native::infer::{Fact, SymDim, SymDims};
use crate::native::kernels::infer::broadcast;

/// Longer tensors are no shapes.
const MAX_ELEMENTS: usize = 16;

/// An element of a tensor of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Number(i64),
    /// A dim that is no number yet.
    Dim(SymDim),
}

type Sizes = SmallVec<[Size; 6]>;

/// What is known of the elements of values of one graph, beyond constants.
#[derive(Default)]
pub(super) struct SizeTable(HashMap<ValueId, Sizes>);

impl SizeTable {
    /// Follows a node whose outputs have been inferred: notes the sizes that it gives, or
    /// fills in dims that it gives.
    pub(super) fn follow(&mut self, node: &Node, definition: &Definition, facts: &mut [Fact]) {
        if !definition.domain.is_empty() {
            return;
        }
        let Some(output) = node.outputs.first().copied().flatten() else {
            return;
        };
        match definition.op_type.as_str() {
            "Reshape" => self.reshape(node, definition, output, facts),
            "Expand" => {
                let shape = self.input(node, 1, facts).and_then(|sizes| dims_of(&sizes, None));
                let from = fact(node, 0, facts).and_then(|fact| fact.dims.as_deref());
                let dims = from
                    .zip(shape)
                    .and_then(|(from, shape)| broadcast(from, &shape).ok());
                fill(facts, output, dims);
            }
            "ConstantOfShape" => {
                let dims = self.input(node, 0, facts).and_then(|sizes| dims_of(&sizes, None));
                fill(facts, output, dims);
            }
            _ => {
                let sizes = self.sizes(node, definition, facts);
                if let Some(sizes) = sizes.filter(|sizes| sizes.len() <= MAX_ELEMENTS) {
                    self.0.insert(output, sizes);
                }
            }
        }
    }

    fn reshape(&self, node: &Node, definition: &Definition, output: ValueId, facts: &mut [Fact]) {
        if definition.int_or("allowzero", 0) != 0 {
            return;
        }
        let Some(sizes) = self.input(node, 1, facts) else {
            return;
        };
        let from = fact(node, 0, facts).and_then(|fact| fact.dims.clone());
        let dims = dims_of(&sizes, Some(from.as_deref().unwrap_or_default()));
        fill(facts, output, dims);
    }

    /// The elements of a node's first output, if it is one of those that are followed.
    fn sizes(&self, node: &Node, definition: &Definition, facts: &[Fact]) -> Option<Sizes> {
        match definition.op_type.as_str() {
            "Shape" => {
                let dims = fact(node, 0, facts)?.dims.as_ref()?;
                let rank = dims.len() as i64;
                let bound = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize;
                let start = bound(definition.int_or("start", 0));
                let end = bound(definition.int_or("end", rank));
                Some(dims.get(start..end)?.iter().map(|&dim| of_dim(dim)).collect())
            }
            "Gather" => {
                let data = self.vector(node, 0, facts)?;
                let indices = fact(node, 1, facts)?.value()?.to_ints().ok()?;
                let of = |&at: &i64| {
                    let at = if at < 0 { at + data.len() as i64 } else { at };
                    data.get(usize::try_from(at).ok()?).copied()
                };
                indices.iter().map(of).collect()
            }
            "Slice" if definition.since >= 10 => {
                let data = self.vector(node, 0, facts)?;
                let only =
                    |index: usize, default: Option<i64>| match node.inputs.get(index).copied().flatten() {
                        None => default,
                        Some(_) => match fact(node, index, facts)?.value()?.to_ints().ok()?.as_slice() {
                            &[number] => Some(number),
                            _ => None,
                        },
                    };
                let (start, end) = (only(1, None)?, only(2, None)?);
                if only(4, Some(1))? != 1 {
                    return None;
                }
                let len = data.len() as i64;
                let bound =
                    |at: i64| (if at < 0 { at.saturating_add(len) } else { at }).clamp(0, len) as usize;
                Some(data.get(bound(start)..bound(end)).unwrap_or_default().into())
            }
            "Concat" => {
                let parts = (0..node.inputs.len()).map(|index| self.vector(node, index, facts));
                let parts: Option<Vec<Sizes>> = parts.collect();
                Some(parts?.into_iter().flatten().collect())
            }
            "Unsqueeze" | "Squeeze" | "Identity" => self.input(node, 0, facts),
            "Cast" => {
                let to = node.outputs.first().copied().flatten()?;
                let ty = facts.get(to.index())?.ty?;
                // A size that does not fit into fewer bits would be another number.
                (ty == ElementType::Int64).then(|| self.input(node, 0, facts))?
            }
            _ => None,
        }
    }

    /// The elements of an input, in their order.
    fn input(&self, node: &Node, index: usize, facts: &[Fact]) -> Option<Sizes> {
        let value = node.inputs.get(index).copied().flatten()?;
        if let Some(sizes) = self.0.get(&value) {
            return Some(sizes.clone());
        }
        let tensor = facts.get(value.index())?.value()?;
        let is_size = matches!(tensor.element_type(), ElementType::Int64 | ElementType::Int32);
        if !is_size || tensor.len() > MAX_ELEMENTS {
            return None;
        }
        let elements = tensor.to_ints().ok()?;
        Some(elements.iter().map(|&number| Size::Number(number)).collect())
    }

    /// Those of an input of rank 1.
    fn vector(&self, node: &Node, index: usize, facts: &[Fact]) -> Option<Sizes> {
        let rank = fact(node, index, facts)?.rank();
        self.input(node, index, facts).filter(|_| rank == Some(1))
    }
}

fn fact<'f>(node: &Node, index: usize, facts: &'f [Fact]) -> Option<&'f Fact> {
    facts.get(node.inputs.get(index).copied().flatten()?.index())
}

fn of_dim(dim: SymDim) -> Size {
    match dim.fixed().map(i64::try_from) {
        Some(Ok(size)) => Size::Number(size),
        _ => Size::Dim(dim),
    }
}

/// The dims that sizes ask for. With `from`, as in Reshape: 0 is the dim there, and -1 one that
/// follows from the others. A size that only a run tells may be any of these.
fn dims_of(sizes: &[Size], from: Option<&[SymDim]>) -> Option<SymDims> {
    let dim = |(axis, size): (usize, &Size)| match *size {
        Size::Number(0) if from.is_some() => from.and_then(|from| from.get(axis)).copied(),
        Size::Number(-1) if from.is_some() => Some(SymDim::Unknown),
        Size::Number(size) => usize::try_from(size).ok().map(SymDim::Fixed),
        // A dim of 0 in a Reshape means another one.
        Size::Dim(dim) if from.is_none() || from.is_some_and(|from| from.get(axis) == Some(&dim)) => {
            Some(dim)
        }
        Size::Dim(_) => Some(SymDim::Unknown),
    };
    sizes.iter().enumerate().map(dim).collect()
}

/// Sets dims of a value where they are not known.
fn fill(facts: &mut [Fact], value: ValueId, dims: Option<SymDims>) {
    let (Some(fact), Some(dims)) = (facts.get_mut(value.index()), dims) else {
        return;
    };
    match &mut fact.dims {
        None => fact.dims = Some(dims),
        Some(known) if known.len() == dims.len() => {
            for (known, dim) in known.iter_mut().zip(dims) {
                if *known == SymDim::Unknown {
                    *known = dim;
                }
            }
        }
        Some(_) => {}
    }
}
