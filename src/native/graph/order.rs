use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::functions::FlatNode;
use crate::native::model::onnx::NodeProto;

/// The nodes in an order in which each comes after those whose outputs it reads: the given
/// order where that holds (ONNX asks for it), else the closest to it.
///
/// `defined` says whether a name is an input or initializer. Fails on a name that is
/// defined twice or nowhere, and on a cycle.
pub(super) fn sort(nodes: &[FlatNode], defined: impl Fn(&str) -> bool) -> Result<Vec<usize>, String> {
    let mut producer: HashMap<&str, usize> = HashMap::new();
    for (index, FlatNode { proto: node, .. }) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|output| !output.is_empty()) {
            if defined(output) || producer.insert(output, index).is_some() {
                return Err(format!(
                    "\"{output}\" is defined twice, the second time by {}",
                    describe(node)
                ));
            }
        }
    }
    let mut waits_for = vec![0usize; nodes.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        for input in node.reads() {
            match producer.get(input) {
                Some(&from) => {
                    waits_for[index] += 1;
                    readers[from].push(index);
                }
                None if defined(input) => {}
                None => {
                    return Err(format!(
                        "{} reads \"{input}\", which nothing defines",
                        describe(&node.proto)
                    ));
                }
            }
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..nodes.len())
        .filter(|&index| waits_for[index] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &reader in &readers[index] {
            waits_for[reader] -= 1;
            if waits_for[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    match waits_for.iter().position(|&waits| waits > 0) {
        None => Ok(order),
        Some(stuck) => Err(format!(
            "the nodes form a cycle; one of them is {}",
            describe(&nodes[stuck].proto)
        )),
    }
}

/// A node as messages show it.
fn describe(node: &NodeProto) -> String {
    format!("node \"{}\" ({})", name(node), node.op_type)
}

/// A node's name, or that of its first output when it has none.
pub(super) fn name(node: &NodeProto) -> String {
    match node.name.is_empty() {
        false => node.name.clone(),
        true => {
            let output = node.output.iter().find(|output| !output.is_empty());
            output.cloned().unwrap_or_default()
        }
    }
}
