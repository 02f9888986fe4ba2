//! The pass `constant_if`: an If whose condition is a constant is its branch. The branch's
//! nodes take the If's place, with what they capture for what it captured and the If's
//! outputs for what it gives. Exact: it is what every run would do. The other branch is not
//! looked at, and what it lacks is no reason to refuse a model.
//!
//! It is done while the graph is built, so that what follows is inferred from the branch taken.

use super::build::{Loader, Scope, Surroundings};
use super::draft::{Definition, NewNode, build_node};
use super::functions::{FlatNode, domain_key};
use super::passes::CONSTANT_IF;
use super::{Node, ValueId, order};
use crate::component::ComponentErrorKind;
use crate::native::element::Bool;
use crate::native::infer::Fact;
use crate::native::model::onnx::GraphProto;

impl Loader<'_> {
    /// Puts the nodes of the branch that a node takes into `nodes`, if it is an If and that is
    /// known.
    pub(super) fn inline_branch(
        &mut self,
        scope: &mut Scope,
        flat: &mut FlatNode,
        nodes: &mut Vec<(Node, Definition)>,
    ) -> Result<bool, ComponentErrorKind> {
        if flat.proto.op_type != "If"
            || !domain_key(&flat.proto.domain).is_empty()
            || self.disabled.contains(CONSTANT_IF)
        {
            return Ok(false);
        }
        let Some(branch) = take_branch(scope, flat) else {
            return Ok(false);
        };
        let surroundings = Surroundings {
            formals: &[],
            outer: scope,
        };
        let branch = self.raw_graph(branch, flat.place.inside(), Some(surroundings))?;
        let mut names = Names {
            of: vec![None; branch.facts.len()],
            facts: &branch.facts,
        };
        for (input, captured) in branch.inputs.iter().zip(&branch.captured) {
            let outer = scope.ids.get(captured).copied();
            names.set(input.value, outer);
        }
        let mut copies = Vec::new();
        for (name, &inner) in flat.proto.output.iter().zip(&branch.outputs) {
            let Some(outer) = scope.id_if_named(name) else {
                continue;
            };
            let fact = branch.facts.get(inner.index()).cloned().unwrap_or_default();
            // What the branch computes it can compute as the output itself, once.
            match fact.value.is_none() && names.get(inner).is_none() {
                true => names.set(inner, Some(outer)),
                false => copies.push((inner, outer)),
            }
            scope.set_fact(outer, fact);
        }
        for (mut node, definition) in branch.nodes {
            for value in node.inputs.iter_mut().chain(&mut node.outputs).flatten() {
                *value = names.outer(*value, scope);
            }
            nodes.push((node, definition));
        }
        let name = order::name(&flat.proto);
        for (inner, outer) in copies {
            let new = NewNode {
                domain: "",
                op_type: "Identity",
                version: 16,
                attributes: Vec::new(),
                inputs: [Some(names.outer(inner, scope))].into_iter().collect(),
                outputs: [Some(outer)].into_iter().collect(),
            };
            nodes.extend(build_node(&name, new));
        }
        self.fired.add(CONSTANT_IF, 1);
        Ok(true)
    }
}

/// The branch that an If takes, if its condition is known and it is as it should be.
fn take_branch(scope: &Scope, flat: &mut FlatNode) -> Option<GraphProto> {
    let &condition = scope.ids.get(flat.proto.input.first()?)?;
    let condition = match scope.fact(condition)?.value()?.slice::<Bool>() {
        Ok(&[condition]) => condition.get(),
        _ => return None,
    };
    let taken = if condition { "then_branch" } else { "else_branch" };
    let outputs = flat.proto.output.len();
    let is_branch = |graph: &GraphProto| graph.input.is_empty() && graph.output.len() >= outputs;
    let attributes = &mut flat.proto.attribute;
    let are_branches = attributes.iter().all(|attribute| {
        matches!(attribute.name.as_str(), "then_branch" | "else_branch")
            && attribute.g.as_ref().is_some_and(is_branch)
    });
    if !are_branches || attributes.len() != 2 {
        return None;
    }
    let attribute = attributes.iter_mut().find(|attribute| attribute.name == taken)?;
    attribute.g.take()
}

/// What the values of a branch are in the graph around it.
struct Names<'b> {
    of: Vec<Option<ValueId>>,
    facts: &'b [Fact],
}

impl Names<'_> {
    fn get(&self, inner: ValueId) -> Option<ValueId> {
        self.of.get(inner.index()).copied().flatten()
    }

    fn set(&mut self, inner: ValueId, outer: Option<ValueId>) {
        if let Some(place) = self.of.get_mut(inner.index()) {
            *place = outer;
        }
    }

    /// The value outside, made when there is none yet.
    fn outer(&mut self, inner: ValueId, scope: &mut Scope) -> ValueId {
        if let Some(outer) = self.get(inner) {
            return outer;
        }
        let outer = ValueId::new(scope.facts.len());
        scope
            .facts
            .push(self.facts.get(inner.index()).cloned().unwrap_or_default());
        self.set(inner, Some(outer));
        outer
    }
}
