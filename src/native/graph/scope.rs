//! Names across the graphs of If, Loop and the like: a name inside one means what the
//! innermost graph around it defines, so that a graph may read values of those outside it.

use std::collections::HashSet;

use crate::native::model::onnx::{GraphProto, NodeProto};

/// The names that graphs define, the innermost first.
pub(super) struct Names<'a> {
    defined: HashSet<&'a str>,
    outside: Option<&'a Names<'a>>,
}

impl<'a> Names<'a> {
    pub(super) fn of(graph: &'a GraphProto, outside: Option<&'a Names<'a>>) -> Self {
        let inputs = graph.input.iter().map(|input| &input.name);
        let initializers = graph.initializer.iter().map(|tensor| &tensor.name);
        let sparse = graph.sparse_initializer.iter();
        let sparse = sparse.filter_map(|tensor| tensor.values.as_ref().map(|values| &values.name));
        let outputs = graph.node.iter().flat_map(|node| &node.output);
        let names = inputs.chain(initializers).chain(sparse).chain(outputs);
        Names {
            defined: names.map(String::as_str).collect(),
            outside,
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.defined.contains(name) || self.outside.is_some_and(|names| names.contains(name))
    }
}

/// The graphs among a node's attributes.
pub(super) fn graphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().filter_map(|attribute| attribute.g.as_ref())
}

/// The names that a node's graphs read from outside, each once, in order of appearance.
pub(super) fn captures(node: &NodeProto) -> Vec<String> {
    let mut captures = Captures::default();
    for graph in graphs(node) {
        captures.add(graph, None);
    }
    captures.names
}

/// Of one graph of a node.
pub(super) fn captures_of(graph: &GraphProto) -> Vec<String> {
    let mut captures = Captures::default();
    captures.add(graph, None);
    captures.names
}

#[derive(Default)]
struct Captures {
    names: Vec<String>,
    seen: HashSet<String>,
}

impl Captures {
    /// (How deep graphs lie in graphs is bounded by the protobuf decoder.)
    fn add(&mut self, graph: &GraphProto, outside: Option<&Names<'_>>) {
        let names = Names::of(graph, outside);
        let read = graph.node.iter().flat_map(|node| &node.input);
        for name in read.chain(graph.output.iter().map(|output| &output.name)) {
            if !name.is_empty() && !names.contains(name) && self.seen.insert(name.clone()) {
                self.names.push(name.clone());
            }
        }
        for inner in graph.node.iter().flat_map(graphs) {
            self.add(inner, Some(&names));
        }
    }
}
