//! Constants that are read both as they are and transposed: an embedding that is the weight of the
//! last product too.
//!
//! Folding the transpose would hold the weight twice. So it stays a node at first: a Gather or a
//! product that reads it can read the constant instead (passes `transpose_gather` and
//! `transpose_matmul`). What a pass has left is folded after all.

use std::collections::{HashMap, HashSet};

use super::functions::{FlatNode, domain_key};
use crate::native::model::onnx::ValueInfoProto;

/// Constants of fewer bytes are not worth it.
pub(super) const MIN_BYTES: usize = 1 << 20;

/// The outputs of Transpose whose input something else reads too, and that themselves are only read
/// by nodes that may do without them.
pub(super) fn transposes(nodes: &[FlatNode], outputs: &[ValueInfoProto]) -> HashSet<String> {
    let is =
        |node: &FlatNode, op: &str| node.proto.op_type == op && domain_key(&node.proto.domain).is_empty();
    let mut transposes: HashMap<&str, &str> = nodes
        .iter()
        .filter(|node| is(node, "Transpose"))
        .filter_map(|node| {
            Some((
                node.proto.output.first()?.as_str(),
                node.proto.input.first()?.as_str(),
            ))
        })
        .collect();
    if transposes.is_empty() {
        return HashSet::new();
    }
    for output in outputs {
        transposes.remove(output.name.as_str());
    }
    let mut reads: HashMap<&str, usize> = HashMap::new();
    for node in nodes {
        for name in node.reads() {
            *reads.entry(name).or_default() += 1;
        }
        let left = node.proto.input.first().map(String::as_str);
        let may_do_without = match () {
            () if is(node, "Gather") => left.into_iter().collect::<Vec<_>>(),
            () if is(node, "MatMul") || is(node, "Gemm") => {
                node.proto.input.iter().take(2).map(String::as_str).collect()
            }
            () => Vec::new(),
        };
        for name in node.reads().filter(|name| !may_do_without.contains(name)) {
            transposes.remove(name);
        }
    }
    let is_shared = |(_, source): &(&str, &str)| reads.get(source).is_some_and(|&reads| reads > 1);
    let shared = transposes.into_iter().filter(is_shared);
    shared.map(|(output, _)| output.to_owned()).collect()
}
