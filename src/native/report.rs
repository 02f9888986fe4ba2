//! What a model is made of and what this runtime makes of it, for tools.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::graph::{Graph, MAX_DEPTH, Node, Plan, declared_io, domain_key};
use super::infer::Fact;
use super::model::onnx::{ModelProto, NodeProto, OperatorSetIdProto};
use super::model::{Model, ModelFiles};
use super::registry;
use super::tensor::byte_count;
use crate::component::{ComponentError, ComponentIo, ModelSource};

/// A model as its file says, whether this runtime can run it or not.
#[derive(Clone, Debug)]
pub struct ModelReport {
    pub ir_version: i64,
    /// `pytorch 2.9`, or empty.
    pub producer: String,
    pub io: ComponentIo,
    /// Sorted by domain and name. Nodes inside of graphs of other nodes count, and those of
    /// model-local functions count once, however often the function is called.
    pub operators: Vec<OperatorUse>,
}

/// An operator of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorUse {
    /// `""` is ONNX's own.
    pub domain: String,
    pub op_type: String,
    /// The version of the domain that the model imports; 0 if it imports none.
    pub version: i64,
    pub count: usize,
    /// The version in which the definition that the native runtime would use came into force,
    /// or why it has none. Types are not looked at: only loading tells.
    pub native: Result<i64, String>,
}

/// Reads what a model is made of. Works for models that the native runtime lacks operators
/// of, too.
///
/// # Errors
/// [`InvalidModel`](crate::component::ComponentErrorKind::InvalidModel) and
/// [`Io`](crate::component::ComponentErrorKind::Io), as loading has them.
pub fn report(source: &ModelSource) -> Result<ModelReport, ComponentError> {
    let model = Model::open(source, ModelFiles::default())?;
    let io = declared_io(&model.proto).map_err(|message| model.invalid(message))?;
    let proto = &model.proto;
    Ok(ModelReport {
        ir_version: proto.ir_version.unwrap_or(0),
        producer: format!("{} {}", proto.producer_name, proto.producer_version)
            .trim()
            .to_owned(),
        io,
        operators: operators(proto),
    })
}

fn operators(proto: &ModelProto) -> Vec<OperatorUse> {
    let mut counts = Counts::default();
    if let Some(graph) = &proto.graph {
        counts.add(&graph.node, &proto.opset_import, 0);
    }
    for function in &proto.functions {
        counts.add(&function.node, &function.opset_import, 0);
    }
    let functions: HashSet<(&str, &str)> = proto
        .functions
        .iter()
        .map(|function| (domain_key(&function.domain), &*function.name))
        .collect();
    let calls = |(domain, op_type, _): &(&str, &str, i64)| functions.contains(&(*domain, *op_type));
    counts
        .0
        .into_iter()
        .filter(|(operator, _)| !calls(operator))
        .map(|((domain, op_type, version), count)| OperatorUse {
            domain: domain.to_owned(),
            op_type: op_type.to_owned(),
            version,
            count,
            native: registry::find(domain, op_type, version)
                .map(|(_, since)| since)
                .map_err(|missing| missing.to_string()),
        })
        .collect()
}

/// How often each operator of each version is there.
#[derive(Default)]
struct Counts<'p>(BTreeMap<(&'p str, &'p str, i64), usize>);

impl<'p> Counts<'p> {
    fn add(&mut self, nodes: &'p [NodeProto], imports: &'p [OperatorSetIdProto], depth: usize) {
        for node in nodes {
            let of = domain_key(&node.domain);
            let import = imports.iter().find(|import| domain_key(&import.domain) == of);
            // As in loading: domains other than ONNX's have had one version.
            let default = i64::from(!of.is_empty());
            let version = import.map_or(default, |import| import.version);
            *self.0.entry((of, &node.op_type, version)).or_default() += 1;
            let graphs = node.attribute.iter().filter_map(|attribute| attribute.g.as_ref());
            for graph in graphs.filter(|_| depth < MAX_DEPTH) {
                self.add(&graph.node, imports, depth + 1);
            }
        }
    }
}

/// What a run takes, from shapes alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunEstimate {
    /// Nodes that run; those whose results follow from the shapes do not.
    pub nodes: usize,
    /// Nodes that have graphs of their own (If, Loop, ...), which are not looked into: what
    /// these take counts nowhere.
    pub with_graphs: usize,
    /// Bytes of the weights that these nodes read, each once.
    pub weight_bytes: u64,
    /// The most bytes that results of nodes take at one time, if each is let go of after its
    /// last use, and the graph's outputs are kept.
    pub peak_bytes: u64,
    /// Results whose size only a run tells; they count nowhere.
    pub unknown: usize,
    /// Multiplications (each with an addition) of MatMul, MatMulInteger, MatMulNBits, Gemm,
    /// Conv and ConvInteger, and of the fused forms of these.
    pub multiply_adds: u64,
}

/// Estimates a run by its plan. `facts` are those that the plan was made with.
pub(super) fn estimate(graph: &Graph, plan: &Plan, facts: &[Fact]) -> RunEstimate {
    let mut estimate = RunEstimate::default();
    let mut weights = HashSet::new();
    let mut live: HashMap<usize, u64> = HashMap::new();
    let mut bytes = 0u64;
    for step in &plan.steps {
        let Some(node) = graph.nodes.get(step.node) else {
            continue;
        };
        estimate.nodes += 1;
        estimate.with_graphs += usize::from(!node.action.bodies().is_empty());
        for value in node.inputs.iter().flatten() {
            let weight = graph.facts.get(value.index()).and_then(Fact::value);
            if let Some(weight) = weight
                && weights.insert(*value)
            {
                let size = byte_count(weight.element_type(), weight.dims()).unwrap_or(0);
                estimate.weight_bytes = estimate.weight_bytes.saturating_add(size as u64);
            }
        }
        for value in node
            .outputs
            .iter()
            .flatten()
            .filter(|value| plan.is_read(**value))
        {
            let fact = facts.get(value.index());
            let size = fact.and_then(|fact| byte_count(fact.ty?, &fact.fixed_dims()?).ok());
            match size {
                Some(size) => {
                    live.insert(value.index(), size as u64);
                    bytes = bytes.saturating_add(size as u64);
                }
                None => estimate.unknown += 1,
            }
        }
        estimate.peak_bytes = estimate.peak_bytes.max(bytes);
        let products = multiply_adds(node, facts).unwrap_or(0);
        estimate.multiply_adds = estimate.multiply_adds.saturating_add(products);
        for value in &step.last_uses {
            bytes -= live.remove(&value.index()).unwrap_or(0);
        }
    }
    estimate
}

/// The multiplications of a node that is a product of matrices or a convolution, as far as
/// its dims are known.
fn multiply_adds(node: &Node, facts: &[Fact]) -> Option<u64> {
    let dims = |value: Option<&Option<_>>| {
        let value: &super::graph::ValueId = value?.as_ref()?;
        facts.get(value.index())?.fixed_dims()
    };
    let count = |dims: &[usize]| {
        dims.iter()
            .try_fold(1u64, |count, &dim| count.checked_mul(dim as u64))
    };
    let y = dims(node.outputs.first())?;
    // How many products each element of the result is the sum of.
    let inner = match node.op.as_str() {
        "MatMul" | "MatMulInteger" | "com.microsoft.MatMulNBits" => {
            dims(node.inputs.first())?.last().copied()? as u64
        }
        // A ends in [m, k] or its transpose, y in [m, n].
        "Gemm" | "com.microsoft.FusedGemm" | "com.microsoft.FusedMatMul" => {
            let a = dims(node.inputs.first())?;
            let rows = *y.get(y.len().checked_sub(2)?)?;
            count(a.get(a.len().checked_sub(2)?..)?)?.checked_div(rows as u64)?
        }
        "Conv" | "ConvInteger" | "com.microsoft.FusedConv" => count(dims(node.inputs.get(1))?.get(1..)?)?,
        _ => return None,
    };
    count(&y)?.checked_mul(inner)
}
