//! Model-local functions: a node that calls one is replaced by the function's nodes, with
//! its own names for what is inside.

use std::collections::HashMap;
use std::rc::Rc;

use prost::Message;

use super::order;
use super::scope::{self, Names};
use crate::native::model::onnx::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, TensorProto, TypeProto,
    ValueInfoProto,
};

/// A node of the graph after replacement.
pub(super) struct FlatNode {
    pub(super) proto: NodeProto,
    /// Where it stands, which is where its graphs stand too.
    pub(super) place: Place,
    /// Names that its graphs read from outside.
    pub(super) captures: Vec<String>,
}

impl FlatNode {
    /// The names that it reads: those of its inputs, and those that its graphs capture.
    pub(super) fn reads(&self) -> impl Iterator<Item = &str> {
        let inputs = self.proto.input.iter().filter(|name| !name.is_empty());
        inputs.chain(&self.captures).map(String::as_str)
    }
}

/// Where a node or a graph stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The function that it comes from, as an index into the model's; its opset imports
    /// apply instead of the model's.
    pub(super) function: Option<usize>,
    /// Calls of functions and graphs of nodes around it.
    pub(super) depth: usize,
}

impl Place {
    /// Inside a graph of a node that stands here.
    pub(super) fn inside(self) -> Place {
        Place {
            depth: self.depth + 1,
            ..self
        }
    }
}

/// Functions may not call themselves, and this runtime recurses into graphs in graphs; this
/// bounds a file that would go on and on.
pub(in crate::native) const MAX_DEPTH: usize = 64;
/// Bounds a file that doubles its size with every call.
const MAX_NODES: usize = 1 << 20;
/// Bytes of nodes that calls may copy: of many small ones, or of a few whose attributes are long lists.
const MAX_COPIED: usize = 256 << 20;

/// The model-local functions of a model.
pub(super) struct Functions {
    functions: Rc<[FunctionProto]>,
    /// By domain, name and overload.
    by_name: HashMap<(String, String, String), usize>,
    /// What a call of each comes to, once it was asked for.
    totals: Vec<Option<Total>>,
    nodes: usize,
    calls: usize,
    /// Bytes of the nodes that calls have made.
    copied: usize,
}

/// What a call of a function comes to, with the calls inside of it.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    nodes: usize,
    calls: usize,
}

impl Total {
    fn add(&mut self, other: Total) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.calls = self.calls.saturating_add(other.calls);
    }
}

impl Functions {
    pub(super) fn new(functions: Vec<FunctionProto>) -> Result<Self, String> {
        let mut by_name = HashMap::new();
        for (index, function) in functions.iter().enumerate() {
            let key = key(&function.domain, &function.name, &function.overload);
            if by_name.insert(key, index).is_some() {
                return Err(format!("function \"{}\" is defined twice", function.name));
            }
        }
        Ok(Functions {
            totals: vec![None; functions.len()],
            functions: functions.into(),
            by_name,
            nodes: 0,
            calls: 0,
            copied: 0,
        })
    }

    /// The function that a node calls.
    fn called(&self, node: &NodeProto) -> Option<usize> {
        match self.by_name.is_empty() {
            true => None,
            false => {
                let key = key(&node.domain, &node.op_type, &node.overload);
                self.by_name.get(&key).copied()
            }
        }
    }

    /// What a call of a function inside of `depth` others comes to, without making it.
    fn total(&mut self, functions: &[FunctionProto], index: usize, depth: usize) -> Result<Total, String> {
        if let Some(Some(total)) = self.totals.get(index) {
            return Ok(*total);
        }
        let Some(function) = functions.get(index) else {
            return Ok(Total::default());
        };
        if depth >= MAX_DEPTH {
            return Err(too_deep(function));
        }
        let mut total = self.total_of(functions, &function.node, depth + 1)?;
        total.calls = total.calls.saturating_add(1);
        if let Some(place) = self.totals.get_mut(index) {
            *place = Some(total);
        }
        Ok(total)
    }

    fn total_of(
        &mut self,
        functions: &[FunctionProto],
        nodes: &[NodeProto],
        depth: usize,
    ) -> Result<Total, String> {
        let mut total = Total::default();
        for node in nodes {
            if let Some(called) = self.called(node) {
                total.add(self.total(functions, called, depth)?);
                continue;
            }
            total.nodes = total.nodes.saturating_add(1);
            for graph in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
                total.add(self.total_of(functions, &graph.node, depth)?);
            }
        }
        Ok(total)
    }

    /// The nodes of a graph that stands in `place`, calls of functions replaced.
    pub(super) fn expand(&mut self, nodes: Vec<NodeProto>, place: Place) -> Result<Vec<FlatNode>, String> {
        let functions = Rc::clone(&self.functions);
        let mut flat = Vec::with_capacity(nodes.len());
        for node in nodes {
            self.add(&functions, node, place, &mut flat)?;
        }
        Ok(flat)
    }

    fn add(
        &mut self,
        functions: &[FunctionProto],
        node: NodeProto,
        place: Place,
        flat: &mut Vec<FlatNode>,
    ) -> Result<(), String> {
        let called = self.called(&node);
        let Some((index, function)) = called.and_then(|index| Some((index, functions.get(index)?))) else {
            self.nodes += 1;
            if self.nodes > MAX_NODES {
                return Err(too_many_nodes());
            }
            flat.push(FlatNode {
                captures: scope::captures(&node),
                proto: node,
                place,
            });
            return Ok(());
        };
        if place.depth >= MAX_DEPTH {
            return Err(too_deep(function));
        }
        // Before any of it is made.
        let total = self.total(functions, index, place.depth)?;
        if self.nodes.saturating_add(total.nodes) > MAX_NODES {
            return Err(too_many_nodes());
        }
        if self.calls.saturating_add(total.calls) > MAX_NODES {
            return Err(format!("more than {MAX_NODES} calls of functions"));
        }
        self.calls += 1;
        let call = Call {
            id: self.calls,
            name: order::name(&node),
            names: outer_names(&node, function)?,
            attributes: &node.attribute,
            defaults: &function.attribute_proto,
        };
        let place = Place {
            function: Some(index),
            depth: place.depth + 1,
        };
        for inner in &function.node {
            self.copied = self.copied.saturating_add(call.copied_bytes(inner));
            if self.copied > MAX_COPIED {
                return Err(format!(
                    "calls of functions make nodes of more than {MAX_COPIED} bytes; the last is node \"{}\", \
                     which calls \"{}\"",
                    call.name, function.name
                ));
            }
            self.add(functions, call.node(inner, None), place, flat)?;
        }
        Ok(())
    }
}

fn too_deep(function: &FunctionProto) -> String {
    format!(
        "function \"{}\" calls itself, or functions are nested more than {MAX_DEPTH} deep",
        function.name
    )
}

fn too_many_nodes() -> String {
    format!("it has more than {MAX_NODES} nodes, those of functions included")
}

fn key(domain: &str, name: &str, overload: &str) -> (String, String, String) {
    (
        domain_key(domain).to_owned(),
        name.to_owned(),
        overload.to_owned(),
    )
}

/// ONNX's own domain has two names.
pub(in crate::native) fn domain_key(domain: &str) -> &str {
    match domain {
        "ai.onnx" => "",
        domain => domain,
    }
}

/// The caller's names for the inputs and outputs of a function.
fn outer_names<'a>(
    node: &'a NodeProto,
    function: &'a FunctionProto,
) -> Result<HashMap<&'a str, &'a str>, String> {
    let too_many = |what: &str, found: usize, expected: usize| {
        Err(format!(
            "node \"{}\" gives function \"{}\" {found} {what}, it has {expected}",
            order::name(node),
            function.name
        ))
    };
    if node.input.len() > function.input.len() {
        return too_many("inputs", node.input.len(), function.input.len());
    }
    if node.output.len() > function.output.len() {
        return too_many("outputs", node.output.len(), function.output.len());
    }
    // What the caller leaves out has the empty name inside as well. An output it leaves out
    // keeps its inner name: the function may read it.
    let given = node.input.iter().map(String::as_str);
    let inputs = function
        .input
        .iter()
        .map(String::as_str)
        .zip(given.chain(std::iter::repeat("")));
    let outputs = function.output.iter().zip(&node.output);
    let outputs = outputs.filter(|(_, outer)| !outer.is_empty());
    let outputs = outputs.map(|(inner, outer)| (inner.as_str(), outer.as_str()));
    Ok(inputs.chain(outputs).collect())
}

struct Call<'a> {
    id: usize,
    /// The calling node's name.
    name: String,
    /// The caller's name for each input and output of the function.
    names: HashMap<&'a str, &'a str>,
    attributes: &'a [AttributeProto],
    defaults: &'a [AttributeProto],
}

impl Call<'_> {
    /// The caller's word for a name of the function's body; `inside` has the names of the
    /// graphs around it in the body.
    fn rename(&self, name: &str, inside: Option<&Names<'_>>) -> String {
        let outer = self.names.get(name);
        match outer.filter(|_| !inside.is_some_and(|names| names.contains(name))) {
            Some(&outer) => outer.to_owned(),
            None if name.is_empty() => String::new(),
            // No exporter writes a NUL; a name that is taken all the same is refused as one
            // that is defined twice.
            None => format!("{name}\0{}", self.id),
        }
    }

    /// Bytes that [`node`](Self::node) copies, or somewhat more. Bytes of tensors are shared.
    fn copied_bytes(&self, inner: &NodeProto) -> usize {
        let name = |name: &String| {
            let outer = self.names.get(name.as_str()).map_or(0, |outer| outer.len());
            // The number of the call, and what a string takes beside its text.
            name.len() + outer + 48
        };
        let names: usize = inner.input.iter().chain(&inner.output).map(name).sum();
        let attributes = inner.attribute.iter().map(|attribute| {
            let copied = self.value_of(attribute).unwrap_or(attribute);
            let graph = copied.g.as_ref().map_or(0, |graph| self.copied_bytes_of(graph));
            own_bytes(copied).saturating_add(graph)
        });
        let attributes = attributes.fold(0, usize::saturating_add);
        let texts = [&inner.name, &inner.op_type, &inner.domain, &inner.overload];
        let texts: usize = texts.iter().map(|text| text.len()).sum();
        let own = size_of::<FlatNode>() + self.name.len() + texts + names;
        own.saturating_add(attributes)
    }

    fn copied_bytes_of(&self, graph: &GraphProto) -> usize {
        let nodes = graph.node.iter().map(|node| self.copied_bytes(node));
        let tensors = graph.initializer.iter().map(tensor_bytes);
        let sparse = graph.sparse_initializer.iter();
        let sparse = sparse
            .filter_map(|sparse| sparse.values.as_ref())
            .map(tensor_bytes);
        let values = graph.input.iter().chain(&graph.output).chain(&graph.value_info);
        let values = values.map(|value| {
            let outer = self.names.get(value.name.as_str()).map_or(0, |outer| outer.len());
            value.encoded_len().saturating_mul(IN_MEMORY) + outer + size_of::<ValueInfoProto>()
        });
        let all = nodes.chain(tensors).chain(sparse).chain(values);
        all.fold(size_of::<GraphProto>(), usize::saturating_add)
    }

    /// The attribute that one of the body refers to: the caller's, or the default. `None` where it refers
    /// to none.
    fn value_of(&self, inner: &AttributeProto) -> Option<&AttributeProto> {
        let referred = |attribute: &&AttributeProto| attribute.name == inner.ref_attr_name;
        let given = self.attributes.iter().find(referred);
        let value = given.or_else(|| self.defaults.iter().find(referred));
        value.filter(|_| !inner.ref_attr_name.is_empty())
    }

    /// A node of the function's body as a node of the caller.
    fn node(&self, inner: &NodeProto, inside: Option<&Names<'_>>) -> NodeProto {
        let rename = |name: &String| self.rename(name, inside);
        NodeProto {
            input: inner.input.iter().map(rename).collect(),
            output: inner.output.iter().map(rename).collect(),
            name: format!("{}/{}", self.name, order::name(inner)),
            op_type: inner.op_type.clone(),
            attribute: inner
                .attribute
                .iter()
                .filter_map(|attribute| self.attribute(attribute, inside))
                .collect(),
            domain: inner.domain.clone(),
            overload: inner.overload.clone(),
        }
    }

    /// An attribute of the body: one that refers to an attribute of the function takes the
    /// caller's value, or the default, or is not there.
    fn attribute(&self, inner: &AttributeProto, inside: Option<&Names<'_>>) -> Option<AttributeProto> {
        if inner.ref_attr_name.is_empty() {
            let graph = inner.g.as_ref().map(|graph| self.graph(graph, inside));
            return Some(AttributeProto {
                g: graph,
                ..inner.clone()
            });
        }
        let value = self.value_of(inner)?;
        Some(AttributeProto {
            name: inner.name.clone(),
            ..value.clone()
        })
    }

    /// A graph of a node of the body.
    fn graph(&self, graph: &GraphProto, outside: Option<&Names<'_>>) -> GraphProto {
        let inside = Names::of(graph, outside);
        let rename = |name: &str| self.rename(name, Some(&inside));
        let rename_info = |info: &ValueInfoProto| ValueInfoProto {
            name: rename(&info.name),
            ..info.clone()
        };
        let rename_tensor = |tensor: &TensorProto| TensorProto {
            name: rename(&tensor.name),
            ..tensor.clone()
        };
        GraphProto {
            node: graph
                .node
                .iter()
                .map(|node| self.node(node, Some(&inside)))
                .collect(),
            name: graph.name.clone(),
            initializer: graph.initializer.iter().map(rename_tensor).collect(),
            input: graph.input.iter().map(rename_info).collect(),
            output: graph.output.iter().map(rename_info).collect(),
            value_info: graph.value_info.iter().map(rename_info).collect(),
            sparse_initializer: graph.sparse_initializer.clone(),
        }
    }
}

/// Bytes of memory that a byte of a type may come to: its parts are boxes and numbers of a byte or two.
const IN_MEMORY: usize = 16;

/// Bytes of an attribute, without those that its copies share and its graph.
fn own_bytes(attribute: &AttributeProto) -> usize {
    let lists = [
        size_of_val(attribute.floats.as_slice()),
        size_of_val(attribute.ints.as_slice()),
        size_of_val(attribute.strings.as_slice()),
        attribute
            .tp
            .as_ref()
            .map_or(0, TypeProto::encoded_len)
            .saturating_mul(IN_MEMORY),
        attribute.t.as_ref().map_or(0, tensor_bytes),
        attribute.name.len() + attribute.ref_attr_name.len() + size_of::<AttributeProto>(),
    ];
    lists.into_iter().fold(0, usize::saturating_add)
}

fn tensor_bytes(tensor: &TensorProto) -> usize {
    let external = tensor.external_data.iter();
    let external = external.map(|entry| entry.key.len() + entry.value.len() + size_of_val(entry));
    let lists = [
        size_of_val(tensor.dims.as_slice()),
        size_of_val(tensor.float_data.as_slice()),
        size_of_val(tensor.int32_data.as_slice()),
        size_of_val(tensor.string_data.as_slice()),
        size_of_val(tensor.int64_data.as_slice()),
        size_of_val(tensor.double_data.as_slice()),
        size_of_val(tensor.uint64_data.as_slice()),
        tensor.name.len() + size_of::<TensorProto>(),
    ];
    lists.into_iter().chain(external).fold(0, usize::saturating_add)
}

/// The versions of each domain, by the domain's one key.
pub(super) fn opsets(imports: &[OperatorSetIdProto]) -> HashMap<String, i64> {
    let imports = imports.iter();
    imports
        .map(|import| (domain_key(&import.domain).to_owned(), import.version))
        .collect()
}
