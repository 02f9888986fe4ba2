use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;

use super::fold::{Budget, Folded, fold};
use super::functions::{FlatNode, domain_key};
use super::missing::MissingList;
use super::ports::{Symbols, port_type};
use super::{Graph, GraphInput, Node, ValueId, attributes, functions, order, ports};
use crate::component::{ComponentErrorKind, ComponentIo, PortType};
use crate::native::infer::Fact;
use crate::native::model::Model;
use crate::native::model::onnx::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator};
use crate::native::registry;
use crate::native::tensor::Tensor;
use crate::native::workspace::Workspace;

/// The first IR version in which an initializer that is also an input is a default that a
/// caller may replace. Before it every initializer had to be an input; they are constants.
const IR_VERSION_WITH_DEFAULTS: i64 = 4;

impl Graph {
    /// Builds the graph of a model.
    ///
    /// Nodes that no output needs are left out before anything else, so that they are no
    /// reason to refuse a model.
    pub(in crate::native) fn load(model: &mut Model) -> Result<Graph, ComponentErrorKind> {
        let mut graph = model.proto.graph.take().unwrap_or_default();
        let nodes = functions::expand(&model.proto, std::mem::take(&mut graph.node))
            .map_err(|message| model.invalid(message))?;
        let mut builder = Builder::new(model);
        let (mut io, inputs) = builder.inputs(&graph)?;
        let order = {
            let ids = &builder.ids;
            order::sort(&nodes, |name| ids.contains_key(name))
        }
        .map_err(|message| builder.model.invalid(message))?;
        let order = live(&graph, &nodes, order);
        builder.declare_values(&graph);
        let nodes = builder.nodes(&graph, &nodes, &order)?;
        let outputs = builder.outputs(&graph, &mut io)?;
        let mut graph = Graph {
            io,
            inputs,
            outputs,
            nodes,
            facts: builder.facts,
            metadata: metadata(&model.proto),
        };
        graph.forget_unused_constants();
        Ok(graph)
    }

    /// Lets go of constants that only served to fold others.
    fn forget_unused_constants(&mut self) {
        let mut used = vec![false; self.facts.len()];
        let read = self.nodes.iter().flat_map(|node| node.inputs.iter().flatten());
        for value in read.chain(&self.outputs) {
            used[value.index()] = true;
        }
        for (fact, used) in self.facts.iter_mut().zip(used) {
            if !used {
                fact.value = None;
            }
        }
    }
}

/// An operator, or why there is none: `None` when the table simply lacks it.
type Built = Result<Box<dyn Operator>, Option<String>>;

struct Builder<'m> {
    model: &'m mut Model,
    ids: HashMap<String, ValueId>,
    facts: Vec<Fact>,
    symbols: Symbols,
    budget: Budget,
    /// Types that the model declares for inner values, for messages about operators whose
    /// inputs come from a missing one.
    declared: HashMap<String, Fact>,
    /// What the model imports, then what each of its functions does.
    opsets: Vec<HashMap<String, i64>>,
}

impl<'m> Builder<'m> {
    fn new(model: &'m mut Model) -> Self {
        let functions = model.proto.functions.iter();
        let opsets = std::iter::once(&model.proto.opset_import)
            .chain(functions.map(|function| &function.opset_import))
            .map(|imports| functions::opsets(imports))
            .collect();
        Builder {
            model,
            ids: HashMap::new(),
            facts: Vec::new(),
            symbols: Symbols::default(),
            budget: Budget::of_load(),
            declared: HashMap::new(),
            opsets,
        }
    }

    /// The id of a name, made when it is new.
    fn id(&mut self, name: &str) -> ValueId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = ValueId::new(self.facts.len());
        self.facts.push(Fact::default());
        self.ids.insert(name.to_owned(), id);
        id
    }

    /// Initializers and inputs.
    fn inputs(&mut self, graph: &GraphProto) -> Result<(ComponentIo, Vec<GraphInput>), ComponentErrorKind> {
        let mut initializers: HashMap<&str, Tensor> = HashMap::new();
        for proto in &graph.initializer {
            let what = format!("initializer \"{}\"", proto.name);
            let tensor = self.model.tensor(proto, &what)?;
            if initializers.insert(&proto.name, tensor).is_some() {
                return Err(self.model.invalid(format!("{what} is there twice")));
            }
        }
        let replaceable = self.model.proto.ir_version.unwrap_or(0) >= IR_VERSION_WITH_DEFAULTS;
        let mut io = ComponentIo::default();
        let mut inputs = Vec::new();
        for info in &graph.input {
            if info.name.is_empty() {
                return Err(self.model.invalid("an input has no name"));
            }
            let default = initializers.get(info.name.as_str());
            if default.is_some() && !replaceable {
                continue;
            }
            let default = initializers.remove(info.name.as_str());
            if self.ids.contains_key(&info.name) {
                return Err(self
                    .model
                    .invalid(format!("input \"{}\" is there twice", info.name)));
            }
            let port = ports::port(info, default.is_some()).map_err(|message| self.model.invalid(message))?;
            io.inputs.push(port);
            let fact = ports::fact(info, &mut self.symbols);
            let value = self.id(&info.name);
            self.set_fact(value, fact.clone());
            inputs.push(GraphInput { value, fact, default });
        }
        for proto in &graph.initializer {
            if let Some(tensor) = initializers.get(proto.name.as_str()) {
                let value = self.id(&proto.name);
                self.set_fact(value, Fact::of_tensor(tensor));
            }
        }
        Ok((io, inputs))
    }

    fn set_fact(&mut self, value: ValueId, fact: Fact) {
        if let Some(slot) = self.facts.get_mut(value.index()) {
            *slot = fact;
        }
    }

    fn declare_values(&mut self, graph: &GraphProto) {
        for info in graph.value_info.iter().chain(&graph.output) {
            let fact = ports::fact(info, &mut self.symbols);
            self.declared.insert(info.name.clone(), fact);
        }
    }

    /// Operators for the nodes of `order`, types and shapes, and constants.
    fn nodes(
        &mut self,
        graph: &GraphProto,
        flat: &[FlatNode],
        order: &[usize],
    ) -> Result<Vec<Node>, ComponentErrorKind> {
        let mut nodes = Vec::with_capacity(order.len());
        let mut missing = MissingList::default();
        for sparse in &graph.sparse_initializer {
            let name = sparse.values.as_ref().map_or("", |values| values.name.as_str());
            missing.add(format!("sparse initializer \"{name}\""));
        }
        let mut first_error = None;
        let mut workspace = Workspace::default();
        for flat in order.iter().filter_map(|&index| flat.get(index)) {
            let proto = &flat.proto;
            let name = order::name(proto);
            let outputs: SmallVec<[_; 2]> =
                proto.output.iter().map(|output| self.output_id(output)).collect();
            let inputs: SmallVec<[_; 4]> = proto
                .input
                .iter()
                .map(|input| (!input.is_empty()).then(|| self.id(input)))
                .collect();
            let op = match domain_key(&proto.domain) {
                "" => proto.op_type.clone(),
                domain => format!("{domain}.{}", proto.op_type),
            };
            let operator = match self.build(flat, &name)? {
                Ok(operator) => operator,
                Err(reason) => {
                    missing.add_node(&name, self.describe(flat, &inputs), reason);
                    self.take_declared(proto, &outputs);
                    continue;
                }
            };
            let node = Node {
                name,
                op,
                operator,
                inputs,
                outputs,
            };
            match self.infer_and_fold(&node, &mut workspace) {
                Ok(true) => {}
                Ok(false) => nodes.push(node),
                Err(OpError::Unsupported(reason)) => {
                    missing.add_node(&node.name, self.describe(flat, &node.inputs), Some(reason));
                    self.take_declared(proto, &node.outputs);
                }
                // A wrong type may only follow from what an operator that is missing left
                // open, so the missing ones are reported first.
                Err(error) => {
                    first_error.get_or_insert(node.error(error));
                }
            }
        }
        match (missing.finish(), first_error) {
            (Some(missing), _) => Err(missing),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(nodes),
        }
    }

    fn output_id(&mut self, name: &str) -> Option<ValueId> {
        (!name.is_empty()).then(|| self.id(name))
    }

    /// The operator of a node, or why the runtime has none for it.
    fn build(&mut self, flat: &FlatNode, name: &str) -> Result<Built, ComponentErrorKind> {
        let proto = &flat.proto;
        let domain = domain_key(&proto.domain);
        let Some(opset) = self.opset(flat) else {
            return Err(self.model.invalid(format!(
                "node \"{name}\" ({}) is of domain \"{}\", of which the model imports no version",
                proto.op_type, proto.domain
            )));
        };
        let (entry, since) = match registry::find(domain, &proto.op_type, opset) {
            Ok(found) => found,
            Err(registry::Missing::Operator) => return Ok(Err(None)),
            Err(reason) => return Ok(Err(Some(reason.to_string()))),
        };
        let attributes = attributes::read(proto, name, self.model)?;
        let present = |names: &[String]| names.iter().map(|name| !name.is_empty()).collect::<Vec<_>>();
        let info = NodeInfo {
            name,
            op_type: &proto.op_type,
            domain,
            opset,
            since,
            inputs: &present(&proto.input),
            outputs: &present(&proto.output),
            attributes: &attributes,
        };
        let built = (entry.build)(&info);
        let unknown = info.unasked_attribute().map(|name| OpError::Attribute {
            name: name.to_owned(),
            message: "is none of this operator's".into(),
        });
        match (built, unknown) {
            (Ok(operator), None) => Ok(Ok(operator)),
            (Err(OpError::Unsupported(reason)), _) => Ok(Err(Some(reason))),
            (Err(error), _) | (Ok(_), Some(error)) => Err(ComponentErrorKind::Node {
                node: name.to_owned(),
                op: proto.op_type.clone(),
                message: error.to_string(),
            }),
        }
    }

    /// The version of a node's domain that its model or function imports.
    fn opset(&self, flat: &FlatNode) -> Option<i64> {
        let domain = domain_key(&flat.proto.domain);
        let imports = self.opsets.get(flat.function.map_or(0, |index| index + 1))?;
        // Only ONNX's own domain has had more than one version; some exporters leave the
        // import of the others out.
        let default = (!domain.is_empty()).then_some(1);
        imports.get(domain).copied().or(default)
    }

    /// Infers a node's outputs, and computes them when they are constant (`true`).
    fn infer_and_fold(&mut self, node: &Node, workspace: &mut Workspace) -> Result<bool, OpError> {
        let outputs = node.infer(&self.facts)?;
        let outputs = fold(node, &self.facts, outputs, &mut self.budget, workspace)?;
        let (facts, done) = match outputs {
            Folded::Known(facts) => (facts, true),
            Folded::Open(facts) => (facts, false),
        };
        for (&value, fact) in node.outputs.iter().zip(facts) {
            if let Some(value) = value {
                self.set_fact(value, fact);
            }
        }
        Ok(done)
    }

    fn take_declared(&mut self, proto: &NodeProto, outputs: &[Option<ValueId>]) {
        for (name, &value) in proto.output.iter().zip(outputs) {
            if let (Some(value), Some(fact)) = (value, self.declared.get(name)) {
                let fact = fact.clone();
                self.set_fact(value, fact);
            }
        }
    }

    /// `com.microsoft.Gelu version 1 (float)`: operator, version, known input types.
    fn describe(&self, flat: &FlatNode, inputs: &[Option<ValueId>]) -> String {
        let proto = &flat.proto;
        let domain = match domain_key(&proto.domain) {
            "" => "ai.onnx",
            domain => domain,
        };
        let version = self.opset(flat).unwrap_or(0);
        let types: Vec<&str> = inputs
            .iter()
            .map(|input| match input {
                None => "none",
                Some(value) => {
                    let fact = self.facts.get(value.index());
                    fact.and_then(|fact| fact.ty).map_or("unknown", |ty| ty.name())
                }
            })
            .collect();
        format!(
            "{domain}.{} version {version} ({})",
            proto.op_type,
            types.join(", ")
        )
    }

    /// Output ports and their values.
    fn outputs(
        &mut self,
        graph: &GraphProto,
        io: &mut ComponentIo,
    ) -> Result<Vec<ValueId>, ComponentErrorKind> {
        let mut outputs = Vec::with_capacity(graph.output.len());
        for info in &graph.output {
            let Some(&value) = self.ids.get(&info.name) else {
                return Err(self
                    .model
                    .invalid(format!("output \"{}\" is defined nowhere", info.name)));
            };
            if outputs.contains(&value) {
                return Err(self
                    .model
                    .invalid(format!("output \"{}\" is there twice", info.name)));
            }
            let ty = self.output_type(info, value)?;
            let mut port = ports::port(info, false).map_err(|message| self.model.invalid(message))?;
            port.ty = ty.unwrap_or(port.ty);
            io.outputs.push(port);
            outputs.push(value);
        }
        Ok(outputs)
    }

    /// The type of an output by inference, which must be the declared one, if there is one.
    fn output_type(
        &mut self,
        info: &ValueInfoProto,
        value: ValueId,
    ) -> Result<Option<PortType>, ComponentErrorKind> {
        let declared = ports::fact(info, &mut self.symbols).ty;
        let Some(found) = self.facts.get(value.index()).and_then(|fact| fact.ty) else {
            return Ok(declared.map(port_type));
        };
        match declared.filter(|&declared| declared != found) {
            None => Ok(Some(port_type(found))),
            Some(declared) => Err(self.model.invalid(format!(
                "output \"{}\" is declared as {declared}, but its node gives {found}",
                info.name
            ))),
        }
    }
}

/// The nodes of `order` that an output of the graph needs.
fn live(graph: &GraphProto, nodes: &[FlatNode], order: Vec<usize>) -> Vec<usize> {
    let mut needed: HashSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    let mut live: Vec<usize> = order
        .into_iter()
        .rev()
        .filter(|&index| {
            let Some(FlatNode { proto: node, .. }) = nodes.get(index) else {
                return false;
            };
            let is_needed = node.output.iter().any(|output| needed.contains(output.as_str()));
            if is_needed {
                needed.extend(node.input.iter().map(String::as_str));
            }
            is_needed
        })
        .collect();
    live.reverse();
    live
}

/// `metadata_props`, then what is set of the model's own description.
fn metadata(proto: &ModelProto) -> Vec<(String, String)> {
    let version = proto.model_version.filter(|&version| version != 0);
    let about = [
        ("producer_name", proto.producer_name.clone()),
        ("producer_version", proto.producer_version.clone()),
        ("domain", proto.domain.clone()),
        (
            "model_version",
            version.map(|version| version.to_string()).unwrap_or_default(),
        ),
        ("doc_string", proto.doc_string.clone()),
    ];
    let props = proto
        .metadata_props
        .iter()
        .map(|entry| (entry.key.clone(), entry.value.clone()));
    let about = about
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value));
    props.chain(about).collect()
}
