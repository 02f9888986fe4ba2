//! What a model file says of itself and ONNX Runtime does not hand on: whether a port
//! declares a rank at all, the order of optional inputs among the others, metadata in
//! order, and where external data lies, before anything opens it.
//!
//! Reads ModelProto of onnx.proto; numbers in the matches are its field numbers. Weights are
//! stepped over, so that a mapped file of gigabytes costs a few pages.

use crate::component::{ComponentIo, DataType, Dim, Port, PortType};

use super::in_place::{self, Pair};
use super::wire::{Fields, Malformed, Value};

/// The parts of a model that matter here.
#[derive(Debug, Default)]
pub(super) struct Declared {
    pub io: ComponentIo,
    /// `metadata_props` in order, then what is set of `producer_name`, `producer_version`,
    /// `domain`, `model_version` and `doc_string`.
    pub metadata: Vec<(String, String)>,
    pub external: Vec<ExternalTensor>,
    pub has_graph: bool,
    /// Inputs and the outputs that may overwrite them.
    pub overwritten: Vec<Pair>,
}

/// A tensor whose bytes lie in another file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ExternalTensor {
    pub tensor: String,
    pub location: String,
    /// In bytes.
    pub offset: u64,
    /// In bytes; up to the end of the file if the model does not say.
    pub length: Option<u64>,
    /// An offset or a length that is no number, in words.
    pub fault: Option<String>,
}

/// How deep graphs and types may nest; protobuf's own readers stop at 100 messages.
pub(super) const MAX_DEPTH: usize = 32;

/// The first IR version in which an initializer that is also an input is a default that a
/// caller may replace. Before it every initializer had to be an input, and ONNX Runtime
/// takes them all as constants.
const IR_VERSION_WITH_DEFAULTS: i64 = 4;

pub(super) fn read_model(model: &[u8]) -> Result<Declared, Malformed> {
    let mut declared = Declared::default();
    let mut ir_version = 0;
    let mut about = [const { None::<String> }; 5];
    let mut initializers = Vec::new();
    for field in Fields::new(model) {
        match field? {
            (1, value) => ir_version = value.int()?,
            (2, value) => about[0] = Some(value.string()?),
            (3, value) => about[1] = Some(value.string()?),
            (4, value) => about[2] = Some(value.string()?),
            (5, value) => about[3] = Some(value.int()?.to_string()).filter(|version| version != "0"),
            (6, value) => about[4] = Some(value.string()?),
            (7, value) => {
                declared.has_graph = true;
                read_main_graph(value.bytes()?, &mut declared, &mut initializers)?;
            }
            (14, value) => declared.metadata.push(read_string_pair(value.bytes()?)?),
            // FunctionProto: its nodes may hold tensors too.
            (25, value) => read_nodes(value.bytes()?, 7, 0, &mut declared.external)?,
            _ => {}
        }
    }
    let names = [
        "producer_name",
        "producer_version",
        "domain",
        "model_version",
        "doc_string",
    ];
    for (name, value) in names.into_iter().zip(about) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            declared.metadata.push((name.into(), value));
        }
    }
    if ir_version < IR_VERSION_WITH_DEFAULTS {
        declared
            .io
            .inputs
            .retain(|input| !initializers.contains(&input.name));
    } else {
        for input in &mut declared.io.inputs {
            input.optional = initializers.contains(&input.name);
        }
    }
    declared.overwritten = in_place::overwritten(model)?;
    Ok(declared)
}

/// GraphProto of the model: its ports and initializers, and what lies deeper.
fn read_main_graph(
    graph: &[u8],
    declared: &mut Declared,
    initializers: &mut Vec<String>,
) -> Result<(), Malformed> {
    for field in Fields::new(graph) {
        match field? {
            (5, value) => initializers.push(read_tensor(value.bytes()?, &mut declared.external)?),
            (11, value) => declared.io.inputs.push(read_port(value.bytes()?)?),
            (12, value) => declared.io.outputs.push(read_port(value.bytes()?)?),
            (15, value) => initializers.push(read_sparse_tensor(value.bytes()?, &mut declared.external)?),
            _ => {}
        }
    }
    read_nodes(graph, 1, 0, &mut declared.external)
}

/// GraphProto inside an attribute.
fn read_inner_graph(graph: &[u8], depth: usize, external: &mut Vec<ExternalTensor>) -> Result<(), Malformed> {
    for field in Fields::new(graph) {
        match field? {
            (5, value) => drop(read_tensor(value.bytes()?, external)?),
            (15, value) => drop(read_sparse_tensor(value.bytes()?, external)?),
            _ => {}
        }
    }
    read_nodes(graph, 1, depth, external)
}

/// The NodeProtos of a graph or function, which are its field `nodes`.
fn read_nodes(
    holder: &[u8],
    nodes: u64,
    depth: usize,
    external: &mut Vec<ExternalTensor>,
) -> Result<(), Malformed> {
    if depth > MAX_DEPTH {
        return Err(Malformed);
    }
    for node in messages(holder, nodes) {
        for attribute in messages(node?, 5) {
            for field in Fields::new(attribute?) {
                match field? {
                    (5 | 10, value) => drop(read_tensor(value.bytes()?, external)?),
                    (6 | 11, value) => read_inner_graph(value.bytes()?, depth + 1, external)?,
                    (22 | 23, value) => drop(read_sparse_tensor(value.bytes()?, external)?),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// TensorProto; gives its name.
fn read_tensor(tensor: &[u8], external: &mut Vec<ExternalTensor>) -> Result<String, Malformed> {
    const EXTERNAL: i64 = 1;
    let mut name = String::new();
    let mut location = 0;
    let mut entries = Vec::new();
    for field in Fields::new(tensor) {
        match field? {
            (8, value) => name = value.string()?,
            (13, value) => entries.push(read_string_pair(value.bytes()?)?),
            (14, value) => location = value.int()?,
            _ => {}
        }
    }
    if location == EXTERNAL {
        let mut found = ExternalTensor {
            tensor: name.clone(),
            ..ExternalTensor::default()
        };
        for (key, value) in entries {
            let number = |fault: &mut Option<String>| {
                let number = value.trim().parse::<u64>();
                if number.is_err() {
                    *fault = Some(format!(
                        "has {key} \"{value}\", expected a number that is not negative"
                    ));
                }
                number.unwrap_or(0)
            };
            match key.as_str() {
                "offset" => found.offset = number(&mut found.fault),
                "length" => found.length = Some(number(&mut found.fault)),
                "location" => found.location = value,
                _ => {}
            }
        }
        external.push(found);
    }
    Ok(name)
}

/// SparseTensorProto; gives the name of its values, which is the initializer's.
fn read_sparse_tensor(sparse: &[u8], external: &mut Vec<ExternalTensor>) -> Result<String, Malformed> {
    let mut name = String::new();
    for field in Fields::new(sparse) {
        match field? {
            (1, value) => name = read_tensor(value.bytes()?, external)?,
            (2, value) => drop(read_tensor(value.bytes()?, external)?),
            _ => {}
        }
    }
    Ok(name)
}

/// ValueInfoProto.
fn read_port(value_info: &[u8]) -> Result<Port, Malformed> {
    let mut port = Port {
        name: String::new(),
        ty: PortType::Other(UNTYPED.into()),
        dims: None,
        optional: false,
    };
    for field in Fields::new(value_info) {
        match field? {
            (1, value) => port.name = value.string()?,
            (2, value) => (port.ty, port.dims) = read_type(value.bytes()?, 0)?,
            _ => {}
        }
    }
    Ok(port)
}

/// What an output without a declared type shows until its type is known.
pub(super) const UNTYPED: &str = "untyped";

/// TypeProto: a type and, for a tensor with a shape, its dims.
fn read_type(ty: &[u8], depth: usize) -> Result<(PortType, Option<Vec<Dim>>), Malformed> {
    if depth > MAX_DEPTH {
        return Err(Malformed);
    }
    let mut found = (PortType::Other(UNTYPED.into()), None);
    for field in Fields::new(ty) {
        let (kind, value) = field?;
        found = match kind {
            1 => read_tensor_type(value.bytes()?)?,
            4 => (read_wrapped_type("seq", value, depth)?, None),
            5 => (read_map_type(value.bytes()?, depth)?, None),
            8 => {
                let (element, _) = read_tensor_type(value.bytes()?)?;
                (
                    PortType::Other(format!("sparse_{}", onnx_notation(&element))),
                    None,
                )
            }
            9 => (read_wrapped_type("optional", value, depth)?, None),
            _ => continue,
        };
    }
    Ok(found)
}

/// TypeProto.Tensor, and TypeProto.SparseTensor, which has the same fields.
fn read_tensor_type(tensor: &[u8]) -> Result<(PortType, Option<Vec<Dim>>), Malformed> {
    let mut code = 0;
    let mut dims = None;
    for field in Fields::new(tensor) {
        match field? {
            (1, value) => code = value.int()?,
            (2, value) => {
                dims = Some(
                    messages(value.bytes()?, 1)
                        .map(|dim| read_dim(dim?))
                        .collect::<Result<_, _>>()?,
                )
            }
            _ => {}
        }
    }
    Ok((port_type(code), dims))
}

/// TensorShapeProto.Dimension.
fn read_dim(dim: &[u8]) -> Result<Dim, Malformed> {
    let mut found = Dim::Symbol(None);
    for field in Fields::new(dim) {
        found = match field? {
            // A negative size is how some exporters write "unknown".
            (1, value) => match value.int()? {
                size @ 0.. => Dim::Fixed(size),
                _ => Dim::Symbol(None),
            },
            (2, value) => Dim::Symbol(Some(value.string()?).filter(|name| !name.is_empty())),
            _ => continue,
        };
    }
    Ok(found)
}

/// TypeProto.Sequence or TypeProto.Optional: a type around another.
fn read_wrapped_type(wrapper: &str, value: Value<'_>, depth: usize) -> Result<PortType, Malformed> {
    let mut element = UNTYPED.to_owned();
    for inner in messages(value.bytes()?, 1) {
        element = onnx_notation(&read_type(inner?, depth + 1)?.0);
    }
    Ok(PortType::Other(format!("{wrapper}({element})")))
}

/// TypeProto.Map.
fn read_map_type(map: &[u8], depth: usize) -> Result<PortType, Malformed> {
    let mut key = 0;
    let mut element = UNTYPED.to_owned();
    for field in Fields::new(map) {
        match field? {
            (1, value) => key = value.int()?,
            (2, value) => element = onnx_notation(&read_type(value.bytes()?, depth + 1)?.0),
            _ => {}
        }
    }
    let key = element_name(key);
    Ok(PortType::Other(format!("map({key},{element})")))
}

/// StringStringEntryProto.
fn read_string_pair(entry: &[u8]) -> Result<(String, String), Malformed> {
    let (mut key, mut text) = (String::new(), String::new());
    for field in Fields::new(entry) {
        match field? {
            (1, value) => key = value.string()?,
            (2, value) => text = value.string()?,
            _ => {}
        }
    }
    Ok((key, text))
}

/// The messages that are field `number` of a message.
pub(super) fn messages(message: &[u8], number: u64) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    Fields::new(message).filter_map(move |field| match field {
        Ok((found, value)) if found == number => Some(value.bytes()),
        Ok(_) => None,
        Err(malformed) => Some(Err(malformed)),
    })
}

/// The type of a tensor port with this TensorProto.DataType code.
pub(super) fn port_type(code: i64) -> PortType {
    match u32::try_from(code).ok().and_then(DataType::from_code) {
        Some(dtype) => PortType::Tensor(dtype),
        None if code == 0 => PortType::Other(UNTYPED.into()),
        None => PortType::Other(format!("tensor({})", element_name(code))),
    }
}

fn onnx_notation(ty: &PortType) -> String {
    match ty {
        PortType::Tensor(dtype) => format!("tensor({})", element_name(dtype.code().into())),
        PortType::Other(name) => name.clone(),
    }
}

/// ONNX's name of an element type in type strings, where float32 is `float`.
fn element_name(code: i64) -> String {
    let name = match code {
        1 => "float",
        8 => "string",
        11 => "double",
        14 => "complex64",
        15 => "complex128",
        18 => "float8e4m3fnuz",
        20 => "float8e5m2fnuz",
        21 => "uint4",
        22 => "int4",
        23 => "float4e2m1",
        24 => "float8e8m0",
        25 => "uint2",
        26 => "int2",
        code => match u32::try_from(code).ok().and_then(DataType::from_code) {
            Some(dtype) => dtype.name(),
            None => return format!("type {code}"),
        },
    };
    name.to_owned()
}
