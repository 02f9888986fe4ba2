//! A graph while passes rewrite it.
//!
//! Passes look at nodes as the model wrote them (operator, attributes, constants, inferred
//! types and dims) and rewrite in two ways only: a value becomes another name for an equal
//! one ([`Draft::alias`]), or nodes are put in to produce values in place of those that did
//! ([`Draft::replace`]). What nothing reads any more is then dropped. A value that a graph
//! output, a body or any other node reads therefore never disappears, whatever a pass
//! matched.

use smallvec::SmallVec;

use super::{Action, Node, ValueId};
use crate::native::infer::{Fact, SymDim};
use crate::native::node::{Attribute, NamedAttribute, NodeInfo};
use crate::native::registry::{self, Build};
use crate::native::tensor::Tensor;

/// What the model says of a node.
#[derive(Debug)]
pub(super) struct Definition {
    /// `""` is ONNX's own.
    pub(super) domain: String,
    pub(super) op_type: String,
    /// The version in which the definition that applies came into force.
    pub(super) since: i64,
    pub(super) attributes: Vec<NamedAttribute>,
}

impl Definition {
    pub(super) fn attribute(&self, name: &str) -> Option<&Attribute> {
        let attribute = self.attributes.iter().find(|attribute| attribute.name == name)?;
        Some(&attribute.value)
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        match self.attribute(name)? {
            Attribute::Int(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn int_or(&self, name: &str, default: i64) -> i64 {
        self.int(name).unwrap_or(default)
    }

    pub(super) fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.attribute(name)? {
            Attribute::Ints(values) => Some(values),
            _ => None,
        }
    }
}

/// A node of a [`Draft`]. Ids are not in the order of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeId(u32);

impl NodeId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node with what the model says of it.
#[derive(Debug)]
pub(super) struct DraftNode {
    pub(super) node: Node,
    pub(super) definition: Definition,
    /// Its place in the graph: greater than those of the nodes it reads from.
    order: u64,
}

impl DraftNode {
    /// Whether it is this operator of ONNX's own.
    pub(super) fn is(&self, op_type: &str) -> bool {
        self.is_of("", op_type)
    }

    pub(super) fn is_of(&self, domain: &str, op_type: &str) -> bool {
        self.definition.op_type == op_type && self.definition.domain == domain
    }

    pub(super) fn input(&self, index: usize) -> Option<ValueId> {
        self.node.inputs.get(index).copied().flatten()
    }

    pub(super) fn output(&self, index: usize) -> Option<ValueId> {
        self.node.outputs.get(index).copied().flatten()
    }
}

/// Room between the places of two nodes for nodes that passes put in.
const STRIDE: u64 = 1 << 20;

/// A node that a pass puts in.
#[derive(Clone, Debug)]
pub(super) struct NewNode {
    pub(super) domain: &'static str,
    pub(super) op_type: &'static str,
    /// The version of the domain to take the definition of.
    pub(super) version: i64,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) inputs: SmallVec<[Option<ValueId>; 4]>,
    pub(super) outputs: SmallVec<[Option<ValueId>; 2]>,
}

/// A graph while passes rewrite it.
pub(super) struct Draft {
    nodes: Vec<Option<DraftNode>>,
    facts: Vec<Fact>,
    producers: Vec<Option<NodeId>>,
    /// For each value the nodes that read it, and some that no longer do.
    readers: Vec<Vec<NodeId>>,
    /// How many inputs of nodes each value is.
    reads: Vec<usize>,
    outputs: Vec<bool>,
}

impl Draft {
    /// `nodes` are in an order in which they can run.
    pub(super) fn new(nodes: Vec<(Node, Definition)>, facts: Vec<Fact>, outputs: &[ValueId]) -> Self {
        let count = facts.len();
        let mut draft = Draft {
            nodes: Vec::with_capacity(nodes.len()),
            facts,
            producers: vec![None; count],
            readers: vec![Vec::new(); count],
            reads: vec![0; count],
            outputs: vec![false; count],
        };
        for output in outputs {
            if let Some(is_output) = draft.outputs.get_mut(output.index()) {
                *is_output = true;
            }
        }
        for (index, (node, definition)) in nodes.into_iter().enumerate() {
            let order = (index as u64 + 1) * STRIDE;
            draft.insert(DraftNode {
                node,
                definition,
                order,
            });
        }
        draft
    }

    /// The nodes in their order, and what is known of each value.
    pub(super) fn finish(self) -> (Vec<Node>, Vec<Fact>) {
        let mut nodes: Vec<DraftNode> = self.nodes.into_iter().flatten().collect();
        nodes.sort_by_key(|node| node.order);
        (nodes.into_iter().map(|node| node.node).collect(), self.facts)
    }

    /// All nodes that there are now, in their order.
    pub(super) fn ids(&self) -> Vec<NodeId> {
        let ids = (0..self.nodes.len() as u32).map(NodeId);
        let mut ids: Vec<(u64, NodeId)> = ids.filter_map(|id| Some((self.node(id)?.order, id))).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    /// `None` for a node that is no longer there.
    pub(super) fn node(&self, id: NodeId) -> Option<&DraftNode> {
        self.nodes.get(id.index())?.as_ref()
    }

    /// What the model calls a node, for those that take its place.
    pub(super) fn name(&self, id: NodeId) -> String {
        self.node(id)
            .map(|node| node.node.name.clone())
            .unwrap_or_default()
    }

    /// The node that makes a value; `None` for inputs and constants.
    pub(super) fn producer(&self, value: ValueId) -> Option<&DraftNode> {
        self.node(self.producer_id(value)?)
    }

    pub(super) fn producer_id(&self, value: ValueId) -> Option<NodeId> {
        self.producers.get(value.index()).copied().flatten()
    }

    pub(super) fn fact(&self, value: ValueId) -> Option<&Fact> {
        self.facts.get(value.index())
    }

    /// The elements of a value that is known.
    pub(super) fn constant(&self, value: ValueId) -> Option<&Tensor> {
        self.fact(value)?.value.as_ref()
    }

    pub(super) fn is_output(&self, value: ValueId) -> bool {
        self.outputs.get(value.index()).copied().unwrap_or(false)
    }

    /// Whether anything reads a value, or it is an output of the graph.
    pub(super) fn is_used(&self, value: ValueId) -> bool {
        self.is_output(value) || self.reads.get(value.index()).is_some_and(|&reads| reads > 0)
    }

    /// The nodes that read a value, each once and in their order.
    pub(super) fn readers(&self, value: ValueId) -> SmallVec<[NodeId; 4]> {
        let noted = self.readers.get(value.index()).map_or(&[][..], Vec::as_slice);
        let mut readers: SmallVec<[(u64, NodeId); 4]> = noted
            .iter()
            .filter_map(|&id| {
                let node = self.node(id)?;
                let reads = node.node.inputs.contains(&Some(value));
                reads.then_some((node.order, id))
            })
            .collect();
        readers.sort_unstable();
        readers.dedup();
        readers.into_iter().map(|(_, id)| id).collect()
    }

    /// How many inputs of nodes a value is.
    pub(super) fn reads(&self, value: ValueId) -> usize {
        self.reads.get(value.index()).copied().unwrap_or(0)
    }

    /// Whether one input of one node is all that reads a value.
    pub(super) fn is_read_once(&self, value: ValueId) -> bool {
        !self.is_output(value) && self.reads(value) == 1
    }

    /// Makes `value` another name for `same`, which has the same elements: what reads it
    /// reads `same`, and its node is dropped. `false` if both must stay, which is when
    /// `value` is an output of the graph and `same` one too, or an input, or a constant.
    pub(super) fn alias(&mut self, value: ValueId, same: ValueId) -> bool {
        if value == same {
            return false;
        }
        if !self.is_output(value) {
            self.refine(same, value);
            self.redirect(value, same);
            self.drop_unread(value);
            return true;
        }
        // The node of `same` can make the output itself.
        let Some(maker) = self.producers.get(same.index()).copied().flatten() else {
            return false;
        };
        if self.is_output(same) {
            return false;
        }
        let Some(copy) = self.producer_id(value) else {
            return false;
        };
        self.refine(value, same);
        self.rename_output(copy, value, None);
        self.rename_output(maker, same, Some(value));
        set(&mut self.producers, same, None);
        set(&mut self.producers, value, Some(maker));
        self.redirect(same, value);
        self.drop_if_unread(copy);
        true
    }

    /// Makes an output of a node another value, or none.
    fn rename_output(&mut self, id: NodeId, from: ValueId, to: Option<ValueId>) {
        if let Some(node) = self.nodes.get_mut(id.index()).and_then(Option::as_mut) {
            for output in node
                .node
                .outputs
                .iter_mut()
                .filter(|output| **output == Some(from))
            {
                *output = to;
            }
        }
    }

    /// Infers what a node gives from what is known of its inputs by now.
    pub(super) fn infer_again(&mut self, id: NodeId) {
        let Some(node) = self.node(id) else { return };
        let Ok(facts) = node.node.infer(&self.facts) else {
            return;
        };
        let outputs = node.node.outputs.clone();
        for (value, fact) in outputs.into_iter().zip(facts) {
            if let Some(value) = value {
                self.refine_by(value, fact);
            }
        }
    }

    /// What is known of an equal value is known of this one.
    fn refine(&mut self, value: ValueId, equal: ValueId) {
        if let Some(other) = self.facts.get(equal.index()).cloned() {
            self.refine_by(value, other);
        }
    }

    fn refine_by(&mut self, value: ValueId, other: Fact) {
        let Some(fact) = self.facts.get_mut(value.index()) else {
            return;
        };
        fact.kind = fact.kind.or(other.kind);
        fact.ty = fact.ty.or(other.ty);
        match (&mut fact.dims, other.dims) {
            (Some(dims), Some(others)) => {
                for (dim, other) in dims.iter_mut().zip(others) {
                    if *dim == SymDim::Unknown || other.fixed().is_some() {
                        *dim = other;
                    }
                }
            }
            (dims @ None, others) => *dims = others,
            (Some(_), None) => {}
        }
    }

    /// Makes all that reads `from` read `to`.
    fn redirect(&mut self, from: ValueId, to: ValueId) {
        let readers = self.readers.get_mut(from.index()).map(std::mem::take);
        let mut moved = 0;
        for reader in readers.unwrap_or_default() {
            let Some(node) = self.nodes.get_mut(reader.index()).and_then(Option::as_mut) else {
                continue;
            };
            let before = moved;
            for input in node.node.inputs.iter_mut().filter(|input| **input == Some(from)) {
                *input = Some(to);
                moved += 1;
            }
            if moved > before
                && let Some(readers) = self.readers.get_mut(to.index())
            {
                readers.push(reader);
            }
        }
        if let Some(reads) = self.reads.get_mut(from.index()) {
            *reads -= moved;
        }
        if let Some(reads) = self.reads.get_mut(to.index()) {
            *reads += moved;
        }
    }

    /// A constant that nothing reads yet.
    pub(super) fn add_constant(&mut self, tensor: &Tensor) -> ValueId {
        self.add_value(Fact::of_tensor(tensor))
    }

    /// A value for [`NewNode`]s to make and read.
    pub(super) fn new_value(&mut self) -> ValueId {
        self.add_value(Fact::default())
    }

    fn add_value(&mut self, fact: Fact) -> ValueId {
        let value = ValueId::new(self.facts.len());
        self.facts.push(fact);
        self.producers.push(None);
        self.readers.push(Vec::new());
        self.reads.push(0);
        self.outputs.push(false);
        value
    }

    /// Puts `new` in, in this order, to make those of their outputs that something else makes
    /// now. They are called `name`. Does nothing and says `false` if they cannot be: an
    /// operator refuses, its results would be of another type or shape than those replaced,
    /// or an input is not there yet where the outputs must be.
    pub(super) fn replace(&mut self, name: &str, new: Vec<NewNode>) -> bool {
        self.try_replace(name, new).is_some()
    }

    fn try_replace(&mut self, name: &str, new: Vec<NewNode>) -> Option<()> {
        let mut built = Vec::with_capacity(new.len());
        for new in new {
            built.push(build_node(name, new)?);
        }
        let replaced: SmallVec<[ValueId; 4]> = built
            .iter()
            .flat_map(|(node, _)| node.outputs.iter().flatten().copied())
            .filter(|value| self.producer(*value).is_some())
            .collect();
        let first = self.place_of(&built, &replaced)?;
        for (node, _) in &built {
            let facts = node.infer(&self.facts).ok()?;
            for (&value, fact) in node.outputs.iter().zip(facts) {
                let Some(value) = value else { continue };
                if !replaced.contains(&value) {
                    set(&mut self.facts, value, fact);
                } else if !agree(self.fact(value)?, &fact) {
                    return None;
                }
            }
        }
        // In before the others go, so that what both read stays.
        let mut old: SmallVec<[NodeId; 4]> = SmallVec::new();
        for &value in &replaced {
            let maker = self.producers.get(value.index()).copied().flatten()?;
            let node = self.nodes.get_mut(maker.index())?.as_mut()?;
            for output in node
                .node
                .outputs
                .iter_mut()
                .filter(|output| **output == Some(value))
            {
                *output = None;
            }
            old.push(maker);
        }
        for (index, (node, definition)) in built.into_iter().enumerate() {
            let order = first + index as u64;
            self.insert(DraftNode {
                node,
                definition,
                order,
            });
        }
        for node in old {
            self.drop_if_unread(node);
        }
        Some(())
    }

    /// Where the first of some new nodes goes: after what they read, and before what reads the
    /// values that they are to make. That is where the first of those values is made now, or
    /// else the last, if nothing that stays reads them in between.
    fn place_of(&self, built: &[(Node, Definition)], replaced: &[ValueId]) -> Option<u64> {
        let before = (built.len() as u64).checked_sub(1)?;
        let makers = || replaced.iter().filter_map(|value| self.producer(*value));
        let inputs = built.iter().flat_map(|(node, _)| node.inputs.iter().flatten());
        let read = inputs
            .filter_map(|value| Some(self.producer(*value)?.order))
            .max();
        let fits = |place: u64| {
            let first = place.checked_sub(before)?;
            read.is_none_or(|read| read < first).then_some(first)
        };
        let (earliest, latest) = (
            makers().map(|node| node.order).min()?,
            makers().map(|node| node.order).max()?,
        );
        if let Some(first) = fits(earliest) {
            return Some(first);
        }
        let goes = |node: &DraftNode| {
            let mut outputs = node.node.outputs.iter().flatten();
            outputs.all(|value| replaced.contains(value) || !self.is_used(*value))
        };
        let reads = |node: &DraftNode| {
            let mut inputs = node.node.inputs.iter().flatten();
            inputs.any(|value| replaced.contains(value))
        };
        let mut readers = replaced
            .iter()
            .filter_map(|value| self.readers.get(value.index()))
            .flatten()
            .filter_map(|&reader| self.node(reader));
        let waits = readers.all(|node| node.order > latest || !reads(node) || goes(node));
        fits(latest).filter(|_| waits)
    }

    fn insert(&mut self, node: DraftNode) {
        let id = NodeId(self.nodes.len() as u32);
        for &value in node.node.inputs.iter().flatten() {
            if let (Some(readers), Some(reads)) = (
                self.readers.get_mut(value.index()),
                self.reads.get_mut(value.index()),
            ) {
                *reads += 1;
                if readers.last() != Some(&id) {
                    readers.push(id);
                }
            }
        }
        for &value in node.node.outputs.iter().flatten() {
            set(&mut self.producers, value, Some(id));
        }
        self.nodes.push(Some(node));
    }

    fn drop_unread(&mut self, value: ValueId) {
        if let Some(maker) = self.producers.get(value.index()).copied().flatten() {
            self.drop_if_unread(maker);
        }
    }

    /// Drops a node if nothing reads what it makes, then those that only it read. How many.
    pub(super) fn drop_if_unread(&mut self, id: NodeId) -> usize {
        let mut dropped = 0;
        let mut suspects = vec![id];
        while let Some(id) = suspects.pop() {
            let Some(node) = self.node(id) else { continue };
            if node
                .node
                .outputs
                .iter()
                .flatten()
                .any(|value| self.is_used(*value))
            {
                continue;
            }
            let Some(node) = self.nodes.get_mut(id.index()).and_then(Option::take) else {
                continue;
            };
            dropped += 1;
            for &value in node.node.outputs.iter().flatten() {
                if self.producers.get(value.index()) == Some(&Some(id)) {
                    set(&mut self.producers, value, None);
                }
            }
            for &value in node.node.inputs.iter().flatten() {
                if let Some(reads) = self.reads.get_mut(value.index()) {
                    *reads -= 1;
                }
                suspects.extend(self.producers.get(value.index()).copied().flatten());
            }
        }
        dropped
    }
}

/// A node that no model has: `None` if the operator refuses what is asked of it.
pub(super) fn build_node(name: &str, new: NewNode) -> Option<(Node, Definition)> {
    let (entry, since) = registry::find_for_pass(new.domain, new.op_type, new.version).ok()?;
    let Build::Kernel(build) = &entry.build else {
        return None;
    };
    let attributes: Vec<NamedAttribute> = new
        .attributes
        .into_iter()
        .map(|(name, value)| NamedAttribute {
            name: name.to_owned(),
            value,
            asked: false.into(),
        })
        .collect();
    let inputs: SmallVec<[bool; 8]> = new.inputs.iter().map(Option::is_some).collect();
    let outputs: SmallVec<[bool; 8]> = new.outputs.iter().map(Option::is_some).collect();
    let info = NodeInfo {
        name,
        op_type: new.op_type,
        domain: new.domain,
        opset: new.version,
        since,
        inputs: &inputs,
        outputs: &outputs,
        attributes: &attributes,
    };
    let operator = build(&info).ok()?;
    if info.unasked_attribute().is_some() {
        return None;
    }
    let node = Node {
        name: name.to_owned(),
        op: match new.domain {
            "" => new.op_type.to_owned(),
            domain => format!("{domain}.{}", new.op_type),
        },
        action: Action::Kernel(operator),
        inputs: new.inputs,
        outputs: new.outputs,
    };
    let definition = Definition {
        domain: new.domain.to_owned(),
        op_type: new.op_type.to_owned(),
        since,
        attributes,
    };
    Some((node, definition))
}

fn set<T>(places: &mut [T], value: ValueId, content: T) {
    if let Some(place) = places.get_mut(value.index()) {
        *place = content;
    }
}

/// Whether what a new node says of a value may be true of it, and its kind and type is known
/// if they were.
fn agree(old: &Fact, new: &Fact) -> bool {
    let dims = match (&old.dims, &new.dims) {
        (Some(old), Some(new)) => {
            let differ = |(a, b): (&SymDim, &SymDim)| a.fixed().zip(b.fixed()).is_some_and(|(a, b)| a != b);
            old.len() == new.len() && !old.iter().zip(new).any(differ)
        }
        _ => true,
    };
    let kind = old.kind.is_none() || old.kind == new.kind;
    kind && (old.ty.is_none() || old.ty == new.ty) && dims
}
