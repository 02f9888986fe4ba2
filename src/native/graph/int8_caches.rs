//! Caches of float keys and values that are kept as int8, if the caller wants that: the model is
//! changed before anything looks at it, so that its ports, too, are of the new type.
//!
//! A cache is two inputs, the past, that nothing but one GroupQueryAttention reads, and that node's
//! two outputs, which are the graph's and nothing else's. It becomes one whose rows are the codes
//! of a row and a scale behind them (PER_ROW, see `kernels::resident_cache`).

use std::collections::HashMap;
use std::str::FromStr;

use super::scope;
use crate::native::element::ElementType;
use crate::native::kernels::resident_cache::{MAX_SIZE, PER_ROW, ROW_SCALE_BYTES};
use crate::native::model::onnx::{
    AttributeProto, DimensionProto, DimensionValue, GraphProto, NodeProto, TensorTypeProto, TypeValue,
    ValueInfoProto, attribute_type,
};
use crate::native::registry::MS;

/// How a decoder's KV cache is kept. As an option: `model` or `int8`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvCacheDtype {
    /// As the model has it.
    #[default]
    Model,
    /// Float caches of GroupQueryAttention as int8, a scale for each row; others as the model has
    /// them.
    Int8,
}

/// The value of an option that says nothing that [`KvCacheDtype`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownKvCacheDtype;

impl FromStr for KvCacheDtype {
    type Err = UnknownKvCacheDtype;

    fn from_str(value: &str) -> Result<Self, UnknownKvCacheDtype> {
        match value {
            "model" => Ok(KvCacheDtype::Model),
            "int8" => Ok(KvCacheDtype::Int8),
            _ => Err(UnknownKvCacheDtype),
        }
    }
}

/// The past is these inputs of the node, the present these outputs.
const PAST: [usize; 2] = [3, 4];
const PRESENT: [usize; 2] = [1, 2];

/// Changes the caches that can be.
pub(super) fn store_as_int8(graph: &mut GraphProto) {
    let reads = reads(graph);
    let once = |name: &String| reads.get(name) == Some(&1);
    let mut nodes = std::mem::take(&mut graph.node);
    for node in &mut nodes {
        if !keeps_floats(node) {
            continue;
        }
        let name = |names: &[String], at: usize| names.get(at).filter(|name| !name.is_empty()).cloned();
        let pasts = PAST.map(|at| name(&node.input, at));
        let presents = PRESENT.map(|at| name(&node.output, at));
        let ([Some(key), Some(value)], [Some(next_key), Some(next_value)]) = (pasts, presents) else {
            continue;
        };
        // An output of the graph counts as read once.
        let names = [&key, &value, &next_key, &next_value];
        let weights = graph.initializer.iter();
        if !names.into_iter().all(once) || weights.into_iter().any(|weight| names.contains(&&weight.name)) {
            continue;
        }
        let mut size = |name: &String| row_size(declared(&mut graph.input, name)?);
        let (Some(k), Some(v)) = (size(&key), size(&value)) else {
            continue;
        };
        let is_output = |name: &&String| graph.output.iter().any(|output| output.name == **name);
        if k != v || k > MAX_SIZE as i64 || ![&next_key, &next_value].iter().all(is_output) {
            continue;
        }
        let Some(width) = k.checked_add(ROW_SCALE_BYTES as i64) else {
            continue;
        };
        for (ports, names) in [
            (&mut graph.input, [&key, &value]),
            (&mut graph.output, [&next_key, &next_value]),
        ] {
            for name in names {
                if let Some(tensor) = declared(ports, name) {
                    set_rows(tensor, width);
                }
            }
        }
        set_attributes(node);
    }
    graph.node = nodes;
}

/// How often each name is read: by nodes, by graphs in them, and as an output.
fn reads(graph: &GraphProto) -> HashMap<String, usize> {
    let mut reads = HashMap::new();
    let outputs = graph.output.iter().map(|output| output.name.clone());
    let inputs = graph
        .node
        .iter()
        .flat_map(|node| node.input.iter().cloned().chain(scope::captures(node)));
    for name in outputs.chain(inputs) {
        *reads.entry(name).or_default() += 1;
    }
    reads
}

/// Whether a node is attention over a cache that is neither quantised nor as short as its window.
fn keeps_floats(node: &NodeProto) -> bool {
    let is_set = |attribute: &AttributeProto| match attribute.name.as_str() {
        "k_quant_type" | "v_quant_type" => attribute.s != "NONE",
        "sliding_window_cache" => attribute.i != 0,
        _ => false,
    };
    node.op_type == "GroupQueryAttention" && node.domain == MS && !node.attribute.iter().any(is_set)
}

fn declared<'p>(ports: &'p mut [ValueInfoProto], name: &str) -> Option<&'p mut TensorTypeProto> {
    let port = ports.iter_mut().find(|port| port.name == name)?;
    match port.r#type.as_mut()?.value.as_mut()? {
        TypeValue::Tensor(tensor) => Some(tensor),
        _ => None,
    }
}

/// The elements of a row of a cache [batch, heads, rows, size] of floats.
fn row_size(tensor: &mut TensorTypeProto) -> Option<i64> {
    let floats = [ElementType::Float32, ElementType::Float16, ElementType::Bfloat16];
    if !floats.iter().any(|ty| ty.code() == tensor.elem_type) {
        return None;
    }
    match &tensor.shape.as_ref()?.dim[..] {
        [
            _,
            _,
            _,
            DimensionProto {
                value: Some(DimensionValue::Size(size)),
            },
        ] if *size > 0 => Some(*size),
        _ => None,
    }
}

fn set_rows(tensor: &mut TensorTypeProto, width: i64) {
    tensor.elem_type = ElementType::Int8.code();
    if let Some(last) = tensor.shape.as_mut().and_then(|shape| shape.dim.get_mut(3)) {
        last.value = Some(DimensionValue::Size(width));
    }
}

fn set_attributes(node: &mut NodeProto) {
    let quantization = ["k_quant_type", "v_quant_type", "kv_cache_bit_width"];
    node.attribute
        .retain(|attribute| !quantization.contains(&attribute.name.as_str()));
    for name in quantization {
        let mut attribute = AttributeProto {
            name: name.to_owned(),
            ..AttributeProto::default()
        };
        if name == "kv_cache_bit_width" {
            (attribute.r#type, attribute.i) = (attribute_type::INT, 8);
        } else {
            (attribute.r#type, attribute.s) = (attribute_type::STRING, PER_ROW.into());
        }
        node.attribute.push(attribute);
    }
}
