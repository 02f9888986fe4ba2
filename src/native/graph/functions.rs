//! Model-local functions: a node that calls one is replaced by the function's nodes, with
//! its own names for what is inside.

use std::collections::HashMap;

use super::order;
use crate::native::model::onnx::{AttributeProto, FunctionProto, ModelProto, NodeProto, OperatorSetIdProto};

/// A node of the graph after replacement.
pub(super) struct FlatNode {
    pub(super) proto: NodeProto,
    /// The function that it comes from, as an index into the model's; its opset imports
    /// apply instead of the model's.
    pub(super) function: Option<usize>,
}

/// Functions may not call themselves; this bounds a file that does, or that doubles its
/// size with every level.
const MAX_DEPTH: usize = 64;
const MAX_NODES: usize = 1 << 20;

/// The nodes of the graph, calls of model-local functions replaced.
pub(super) fn expand(model: &ModelProto, nodes: Vec<NodeProto>) -> Result<Vec<FlatNode>, String> {
    let mut functions = HashMap::new();
    for (index, function) in model.functions.iter().enumerate() {
        let key = (domain_key(&function.domain), &*function.name, &*function.overload);
        if functions.insert(key, index).is_some() {
            return Err(format!("function \"{}\" is defined twice", function.name));
        }
    }
    let mut expansion = Expansion {
        model,
        functions,
        flat: Vec::with_capacity(nodes.len()),
        calls: 0,
    };
    for node in nodes {
        expansion.add(node, None, 0)?;
    }
    Ok(expansion.flat)
}

/// ONNX's own domain has two names.
pub(super) fn domain_key(domain: &str) -> &str {
    match domain {
        "ai.onnx" => "",
        domain => domain,
    }
}

struct Expansion<'m> {
    model: &'m ModelProto,
    /// By domain, name and overload.
    functions: HashMap<(&'m str, &'m str, &'m str), usize>,
    flat: Vec<FlatNode>,
    calls: usize,
}

impl<'m> Expansion<'m> {
    fn add(&mut self, node: NodeProto, from: Option<usize>, depth: usize) -> Result<(), String> {
        let key = (domain_key(&node.domain), &*node.op_type, &*node.overload);
        let called = self.functions.get(&key).copied();
        let Some((index, function)) =
            called.and_then(|index| Some((index, self.model.functions.get(index)?)))
        else {
            if self.flat.len() >= MAX_NODES {
                return Err(format!("its functions expand to more than {MAX_NODES} nodes"));
            }
            self.flat.push(FlatNode {
                proto: node,
                function: from,
            });
            return Ok(());
        };
        if depth >= MAX_DEPTH {
            return Err(format!(
                "function \"{}\" calls itself, or functions are nested more than {MAX_DEPTH} deep",
                function.name
            ));
        }
        self.calls += 1;
        if self.calls > MAX_NODES {
            return Err(format!("more than {MAX_NODES} calls of functions"));
        }
        let call = Call {
            id: self.calls,
            name: order::name(&node),
            names: outer_names(&node, function)?,
            attributes: &node.attribute,
            defaults: &function.attribute_proto,
        };
        for inner in &function.node {
            self.add(call.node(inner), Some(index), depth + 1)?;
        }
        Ok(())
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
    /// A node of the function's body as a node of the caller.
    fn node(&self, inner: &NodeProto) -> NodeProto {
        let rename = |name: &String| match self.names.get(name.as_str()) {
            Some(&outer) => outer.to_owned(),
            None if name.is_empty() => String::new(),
            // No exporter writes a NUL; a name that is taken all the same is refused as one
            // that is defined twice.
            None => format!("{name}\0{}", self.id),
        };
        NodeProto {
            input: inner.input.iter().map(rename).collect(),
            output: inner.output.iter().map(rename).collect(),
            name: format!("{}/{}", self.name, order::name(inner)),
            op_type: inner.op_type.clone(),
            attribute: inner
                .attribute
                .iter()
                .filter_map(|attribute| self.attribute(attribute))
                .collect(),
            domain: inner.domain.clone(),
            overload: inner.overload.clone(),
        }
    }

    /// An attribute of the body: one that refers to an attribute of the function takes the
    /// caller's value, or the default, or is not there.
    fn attribute(&self, inner: &AttributeProto) -> Option<AttributeProto> {
        if inner.ref_attr_name.is_empty() {
            return Some(inner.clone());
        }
        let referred = |attribute: &&AttributeProto| attribute.name == inner.ref_attr_name;
        let given = self.attributes.iter().find(referred);
        let value = given.or_else(|| self.defaults.iter().find(referred))?;
        Some(AttributeProto {
            name: inner.name.clone(),
            ..value.clone()
        })
    }
}

/// The versions of each domain, by the domain's one key.
pub(super) fn opsets(imports: &[OperatorSetIdProto]) -> HashMap<String, i64> {
    let imports = imports.iter();
    imports
        .map(|import| (domain_key(&import.domain).to_owned(), import.version))
        .collect()
}
