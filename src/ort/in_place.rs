//! Which inputs of a graph ONNX Runtime may overwrite with an output: past and present of a cache in
//! one buffer.
//!
//! The library takes one memory for both, and nothing in it guards a reader of the past that
//! runs after the writer of the present. So the graph must have no other reader, the node that
//! reads must be one that is made for it, and the output must be that node's own.

use std::collections::HashMap;

use super::declared::{MAX_DEPTH, messages};
use super::wire::{Fields, Malformed};

/// Names of an input and of an output that may overwrite it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub past: String,
    pub present: String,
    /// Whether the node is told how much of the past there is, and nothing but the caller sees how
    /// long the present is: then both may be longer than that.
    pub told_length: bool,
}

/// An operator's input that its output may overwrite, by index.
struct Overwrites {
    op_type: &'static str,
    domain: &'static str,
    pairs: &'static [(usize, usize)],
    /// Only where the attribute `past_present_share_buffer` is 1.
    if_said: bool,
    /// Whether inputs always say how much of the past there is.
    told_length: bool,
}

const MICROSOFT: &str = "com.microsoft";

/// The operators whose kernels copy an input to an output and write some elements of it, where
/// they leave the copying out if both are one memory, and those that are defined to work on a shared
/// buffer (ContribOperators.md of ONNX Runtime).
const OPERATORS: [Overwrites; 8] = [
    on_onnx("ScatterElements", &[(0, 0)]),
    on_onnx("ScatterND", &[(0, 0)]),
    on_onnx("TensorScatter", &[(0, 0)]),
    Overwrites {
        told_length: true,
        ..on_microsoft("GroupQueryAttention", &[(3, 1), (4, 2)], false)
    },
    on_microsoft("SparseAttention", &[(3, 1), (4, 2)], false),
    on_microsoft("Attention", &[(4, 1)], true),
    on_microsoft("DecoderMaskedSelfAttention", &[(4, 1)], true),
    on_microsoft("DecoderMaskedMultiHeadAttention", &[(5, 1), (6, 2)], true),
];

const fn on_onnx(op_type: &'static str, pairs: &'static [(usize, usize)]) -> Overwrites {
    Overwrites {
        op_type,
        domain: "",
        pairs,
        if_said: false,
        told_length: false,
    }
}

const fn on_microsoft(op_type: &'static str, pairs: &'static [(usize, usize)], if_said: bool) -> Overwrites {
    Overwrites {
        op_type,
        domain: MICROSOFT,
        pairs,
        if_said,
        told_length: false,
    }
}

/// Input and output names of a ModelProto whose memory may be one.
pub(super) fn overwritten(model: &[u8]) -> Result<Vec<Pair>, Malformed> {
    let mut functions = Vec::new();
    for function in messages(model, 25) {
        functions.push(operator_name(function?, 1, 10)?);
    }
    let mut graphs = messages(model, 7);
    match (graphs.next().transpose()?, graphs.next()) {
        (Some(graph), None) => of_graph(graph, &functions),
        // A graph in several parts, which no exporter writes.
        _ => Ok(Vec::new()),
    }
}

/// Type and domain of an operator, as NodeProto and FunctionProto have them in these fields.
type OperatorName<'m> = (&'m [u8], &'m [u8]);

fn operator_name(message: &[u8], op_type: u64, domain: u64) -> Result<OperatorName<'_>, Malformed> {
    let mut found: OperatorName<'_> = (&[], &[]);
    for field in Fields::new(message) {
        match field? {
            (number, value) if number == op_type => found.0 = value.bytes()?,
            (number, value) if number == domain => found.1 = value.bytes()?,
            _ => {}
        }
    }
    if found.1 == b"ai.onnx" {
        found.1 = b"";
    }
    Ok(found)
}

/// The pairs of the main graph. `functions` are the model's own, which a node means before any
/// operator of that name.
fn of_graph(graph: &[u8], functions: &[OperatorName<'_>]) -> Result<Vec<Pair>, Malformed> {
    let mut reads = HashMap::new();
    count_reads(graph, 0, &mut reads)?;
    let reads = |name: &[u8]| reads.get(name).copied().unwrap_or_default();
    let names = |field: u64| -> Result<Vec<&[u8]>, Malformed> {
        messages(graph, field).map(|port| name(port?, 1)).collect()
    };
    let (inputs, outputs) = (names(11)?, names(12)?);
    let mut pairs = Vec::new();
    for node in messages(graph, 1) {
        let node = node?;
        let named = operator_name(node, 4, 7)?;
        let operator = OPERATORS
            .iter()
            .find(|known| (known.op_type.as_bytes(), known.domain.as_bytes()) == named);
        let Some(operator) = operator.filter(|_| !functions.contains(&named)) else {
            continue;
        };
        if operator.if_said && !shares_buffer(node)? {
            continue;
        }
        let read: Vec<&[u8]> = messages(node, 1).collect::<Result<_, _>>()?;
        let made: Vec<&[u8]> = messages(node, 2).collect::<Result<_, _>>()?;
        for &(input, output) in operator.pairs {
            let (Some(past), Some(present)) = (read.get(input), made.get(output)) else {
                continue;
            };
            let (of_past, of_present) = (reads(past), reads(present));
            if of_past.elements == 1 && inputs.contains(past) && outputs.contains(present) {
                let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                pairs.push(Pair {
                    past: text(past),
                    present: text(present),
                    told_length: operator.told_length
                        && of_present.elements == 1
                        && (of_past.dims, of_present.dims) == (0, 0),
                });
            }
        }
    }
    Ok(pairs)
}

/// How many look at the elements of a value, and how many at its dims alone.
#[derive(Clone, Copy, Default)]
struct Reads {
    elements: usize,
    dims: usize,
}

/// How often each name is read: by nodes, by those of inner graphs, which see the names around
/// them, and as an output of a graph.
fn count_reads<'m>(
    graph: &'m [u8],
    depth: usize,
    reads: &mut HashMap<&'m [u8], Reads>,
) -> Result<(), Malformed> {
    if depth > MAX_DEPTH {
        return Err(Malformed);
    }
    for output in messages(graph, 12) {
        reads.entry(name(output?, 1)?).or_default().elements += 1;
    }
    for node in messages(graph, 1) {
        let node = node?;
        let of_dims = matches!(operator_name(node, 4, 7)?, (b"Shape" | b"Size", b""));
        for read in messages(node, 1) {
            let read = reads.entry(read?).or_default();
            match of_dims {
                true => read.dims += 1,
                false => read.elements += 1,
            }
        }
        for attribute in messages(node, 5) {
            for field in Fields::new(attribute?) {
                if let (6 | 11, value) = field? {
                    count_reads(value.bytes()?, depth + 1, reads)?;
                }
            }
        }
    }
    Ok(())
}

/// The string in a field of a message.
fn name(message: &[u8], field: u64) -> Result<&[u8], Malformed> {
    messages(message, field).last().unwrap_or(Ok(&[]))
}

fn shares_buffer(node: &[u8]) -> Result<bool, Malformed> {
    for attribute in messages(node, 5) {
        let attribute = attribute?;
        if name(attribute, 1)? != b"past_present_share_buffer" {
            continue;
        }
        for field in Fields::new(attribute) {
            if let (3, value) = field? {
                return Ok(value.int()? == 1);
            }
        }
    }
    Ok(false)
}
