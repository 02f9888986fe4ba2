//! The nodes of a graph while it is built: operators, their types and shapes, and constants.

use std::collections::HashSet;

use smallvec::SmallVec;

use super::build::{Loader, Scope, Surroundings};
use super::draft::Definition;
use super::fold::Folded;
use super::functions::{FlatNode, domain_key};
use super::passes;
use super::{Action, Body, Node, ValueId, attributes, fold, order, shared};
use crate::component::ComponentErrorKind;
use crate::native::arity;
use crate::native::control::ControlEntry;
use crate::native::infer::{Fact, Kind};
use crate::native::node::{NamedAttribute, NodeInfo};
use crate::native::operator::OpError;
use crate::native::registry::{self, Build};

/// What a node does, or why nothing here does it: `None` when the table simply lacks it.
type Built = Result<(Action, Definition), Option<String>>;

impl Loader<'_> {
    /// Operators for the nodes of `order`, types and shapes, and constants. Those of a body may never
    /// run: what only a run of them would say of constants is no reason to refuse a model.
    pub(super) fn nodes(
        &mut self,
        scope: &mut Scope,
        flat: &mut [FlatNode],
        (order, is_body): (&[usize], bool),
        kept: &HashSet<String>,
    ) -> Result<Vec<(Node, Definition)>, ComponentErrorKind> {
        let mut nodes = Vec::with_capacity(order.len());
        for &index in order {
            let Some(flat) = flat.get_mut(index) else { continue };
            if self.inline_branch(scope, flat, &mut nodes)? {
                continue;
            }
            let name = order::name(&flat.proto);
            let outputs: SmallVec<[_; 2]> = flat
                .proto
                .output
                .iter()
                .map(|output| scope.id_if_named(output))
                .collect();
            let mut inputs: SmallVec<[_; 4]> = flat
                .proto
                .input
                .iter()
                .map(|input| scope.id_if_named(input))
                .collect();
            let op = match domain_key(&flat.proto.domain) {
                "" => flat.proto.op_type.clone(),
                domain => format!("{domain}.{}", flat.proto.op_type),
            };
            let (action, definition) = match self.build(scope, flat, &name, &mut inputs)? {
                Ok(built) => built,
                Err(reason) => {
                    self.missing
                        .add_node(&name, self.describe(scope, flat, &inputs), reason);
                    scope.take_declared(&flat.proto, &outputs);
                    continue;
                }
            };
            let node = Node {
                name,
                op,
                action,
                inputs,
                outputs,
            };
            let is_kept = flat.proto.output.first().is_some_and(|name| kept.contains(name));
            match self.infer_and_fold(scope, &node, is_kept, is_body) {
                Ok(true) => {}
                Ok(false) => {
                    scope.sizes.follow(&node, &definition, &mut scope.facts);
                    nodes.push((node, definition));
                }
                Err(OpError::Unsupported(reason)) => {
                    let what = self.describe(scope, flat, &node.inputs);
                    self.missing.add_node(&node.name, what, Some(reason));
                    scope.take_declared(&flat.proto, &node.outputs);
                }
                Err(error) => {
                    self.first_error.get_or_insert(node.error(error));
                    scope.take_declared(&flat.proto, &node.outputs);
                }
            }
        }
        Ok(nodes)
    }

    /// What a node does, or why the runtime has nothing that does it. Adds what its bodies
    /// capture to its inputs.
    fn build(
        &mut self,
        scope: &mut Scope,
        flat: &mut FlatNode,
        name: &str,
        inputs: &mut SmallVec<[Option<ValueId>; 4]>,
    ) -> Result<Built, ComponentErrorKind> {
        let Some(opset) = self.opset(flat) else {
            return Err(self.model.invalid(format!(
                "node \"{name}\" ({}) is of domain \"{}\", of which the model imports no version",
                flat.proto.op_type, flat.proto.domain
            )));
        };
        let domain = domain_key(&flat.proto.domain).to_owned();
        let (entry, since) = match registry::find(&domain, &flat.proto.op_type, opset) {
            Ok(found) => found,
            Err(missing) => {
                self.look_into_bodies(scope, flat)?;
                return Ok(Err(match missing {
                    registry::Missing::Operator => None,
                    reason => Some(reason.to_string()),
                }));
            }
        };
        let attributes = attributes::read(&flat.proto, name, self.model)?;
        let op_type = flat.proto.op_type.clone();
        let present = |names: &[String]| names.iter().map(|name| !name.is_empty()).collect::<Vec<_>>();
        let info = NodeInfo {
            name,
            op_type: &op_type,
            domain: &domain,
            opset,
            since,
            inputs: &present(&flat.proto.input),
            outputs: &present(&flat.proto.output),
            attributes: &attributes,
        };
        let arity = arity::find(&domain, &op_type, since);
        let arity = arity.map_or(Ok(()), |arity| arity.check(info.inputs, info.outputs));
        let built = match (arity, &entry.build) {
            (Err(error), _) => Err(error),
            (Ok(()), Build::Kernel(build)) => build(&info).map(Action::Kernel),
            (Ok(()), Build::Control(entry)) => {
                self.control(scope, flat, entry, &info, &attributes, inputs)?
            }
        };
        let unknown = info.unasked_attribute().map(|name| OpError::Attribute {
            name: name.to_owned(),
            message: "is none of this operator's".into(),
        });
        match (built, unknown) {
            (Ok(action), None) => Ok(Ok((
                action,
                Definition {
                    domain,
                    op_type,
                    since,
                    attributes,
                },
            ))),
            (Err(OpError::Unsupported(reason)), _) => Ok(Err(Some(reason))),
            (Err(error), _) | (Ok(_), Some(error)) => Err(ComponentErrorKind::Node {
                node: name.to_owned(),
                op: op_type.clone(),
                message: error.to_string(),
            }),
        }
    }

    /// A control operator with its bodies.
    fn control(
        &mut self,
        scope: &mut Scope,
        flat: &mut FlatNode,
        entry: &ControlEntry,
        info: &NodeInfo<'_>,
        attributes: &[NamedAttribute],
        inputs: &mut SmallVec<[Option<ValueId>; 4]>,
    ) -> Result<Result<Action, OpError>, ComponentErrorKind> {
        let facts: SmallVec<[Option<&Fact>; 8]> = inputs
            .iter()
            .map(|input| input.and_then(|value| scope.fact(value)))
            .collect();
        let formals = (entry.formals)(info, &facts);
        let mut bodies = Vec::with_capacity(entry.bodies.len());
        for &wanted in entry.bodies {
            // Asked for, so that the check of unknown attributes passes over it.
            let asked = attributes.iter().find(|attribute| attribute.name == wanted);
            asked.inspect(|attribute| attribute.asked.set(true));
            let found = flat
                .proto
                .attribute
                .iter_mut()
                .find(|attribute| attribute.name == wanted);
            let Some(proto) = found.and_then(|attribute| attribute.g.take()) else {
                return Ok(Err(OpError::Attribute {
                    name: wanted.to_owned(),
                    message: "is missing, or is no graph".into(),
                }));
            };
            let declared = proto.input.len();
            let surroundings = Surroundings {
                formals: &formals,
                outer: scope,
            };
            let built = self.graph(proto, flat.place.inside(), Some(surroundings))?;
            let first = inputs.len();
            inputs.extend(built.captured.iter().map(|name| scope.ids.get(name).copied()));
            bodies.push(Body {
                graph: built.graph,
                formals: declared,
                captures: first..inputs.len(),
            });
        }
        // The number of its first body is known when all nodes are.
        Ok((entry.build)(info, bodies).map(|operator| Action::Control {
            operator,
            first_body: 0,
        }))
    }

    /// Finds what is missing inside the graphs of a node that is itself missing.
    fn look_into_bodies(&mut self, scope: &Scope, flat: &mut FlatNode) -> Result<(), ComponentErrorKind> {
        for attribute in &mut flat.proto.attribute {
            if let Some(proto) = attribute.g.take() {
                let surroundings = Surroundings {
                    formals: &[],
                    outer: scope,
                };
                self.graph(proto, flat.place.inside(), Some(surroundings))?;
            }
        }
        Ok(())
    }

    /// The version of a node's domain that its model or function imports.
    fn opset(&self, flat: &FlatNode) -> Option<i64> {
        let domain = domain_key(&flat.proto.domain);
        let imports = self
            .opsets
            .get(flat.place.function.map_or(0, |index| index + 1))?;
        // Only ONNX's own domain has had more than one version; some exporters leave the
        // import of the others out.
        let default = (!domain.is_empty()).then_some(1);
        imports.get(domain).copied().or(default)
    }

    /// Infers a node's outputs, and computes them when they are constant (`true`).
    fn infer_and_fold(
        &mut self,
        scope: &mut Scope,
        node: &Node,
        is_kept: bool,
        is_body: bool,
    ) -> Result<bool, OpError> {
        let outputs = node.infer(&scope.facts)?;
        let constant = |value: ValueId| scope.fact(value)?.value.as_ref();
        let mut inputs = node.inputs.iter().flatten();
        let is_large = |&value: &ValueId| constant(value).is_some_and(|x| x.byte_len() >= shared::MIN_BYTES);
        let is_kept = is_kept && inputs.any(is_large);
        let outputs = match is_kept || self.disabled.contains(passes::CONSTANT_FOLDING) {
            false => {
                let inferred = is_body.then(|| outputs.clone());
                let folded = fold::fold(node, &scope.facts, outputs, &mut self.budget, &mut self.workspace);
                match (folded, inferred) {
                    (Err(_), Some(inferred)) => fold::known(node, inferred),
                    (folded, _) => folded?,
                }
            }
            true => fold::known(node, outputs),
        };
        let (facts, done) = match outputs {
            Folded::Known(facts) => (facts, true),
            Folded::Open(facts) => (facts, false),
        };
        if !node.inputs.is_empty() {
            self.fired.add(passes::CONSTANT_FOLDING, done.into());
        }
        for (&value, fact) in node.outputs.iter().zip(facts) {
            if let Some(value) = value {
                scope.set_fact(value, fact);
            }
        }
        Ok(done)
    }

    /// Folds the transposes that were kept, see `shared`, and that the passes have left.
    pub(super) fn fold_kept(
        &mut self,
        nodes: &mut Vec<Node>,
        facts: &mut [Fact],
    ) -> Result<(), ComponentErrorKind> {
        if self.disabled.contains(passes::CONSTANT_FOLDING) {
            return Ok(());
        }
        let mut result = Ok(());
        nodes.retain(|node| {
            if node.op != "Transpose" || result.is_err() {
                return true;
            }
            let folded = node
                .infer(facts)
                .and_then(|outputs| fold::fold(node, facts, outputs, &mut self.budget, &mut self.workspace));
            match folded {
                Ok(Folded::Known(folded)) => {
                    for (value, fact) in node.outputs.iter().zip(folded) {
                        if let Some(place) = value.and_then(|value| facts.get_mut(value.index())) {
                            *place = fact;
                        }
                    }
                    false
                }
                Ok(Folded::Open(_)) => true,
                Err(error) => {
                    result = Err(node.error(error));
                    true
                }
            }
        });
        result
    }

    /// `com.microsoft.Gelu version 1 (float)`: operator, version, known input types.
    fn describe(&self, scope: &Scope, flat: &FlatNode, inputs: &[Option<ValueId>]) -> String {
        let proto = &flat.proto;
        let domain = match domain_key(&proto.domain) {
            "" => "ai.onnx",
            domain => domain,
        };
        let version = self.opset(flat).unwrap_or(0);
        let types: Vec<String> = inputs
            .iter()
            .take(proto.input.len())
            .map(|input| {
                let fact = input.map(|value| scope.fact(value).cloned().unwrap_or_default());
                match fact {
                    None => "none".to_owned(),
                    Some(Fact { ty: None, .. }) => "unknown".to_owned(),
                    Some(Fact {
                        kind: None | Some(Kind::Tensor),
                        ty: Some(ty),
                        ..
                    }) => ty.to_string(),
                    Some(Fact {
                        kind: Some(kind),
                        ty: Some(ty),
                        ..
                    }) => kind.with_element(ty),
                }
            })
            .collect();
        format!(
            "{domain}.{} version {version} ({})",
            proto.op_type,
            types.join(", ")
        )
    }
}
