use std::collections::{HashMap, HashSet};

use crate::component::{ComponentIo, Dim, MAX_RANK, Port, PortType};
use crate::native::element::ElementType;
use crate::native::infer::{Fact, Kind, SymDim, SymDims, SymbolId};
use crate::native::model::onnx::{
    DimensionValue, ModelProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};

/// What a port of no declared type shows.
const UNTYPED: &str = "untyped";

/// What it says that several dims of a model have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::native) enum DimNames {
    /// They are one size, as ONNX has it.
    OneSize,
    /// Nothing: each may be of its own size.
    Apart,
}

/// The symbolic dims of a model.
pub(super) struct Symbols {
    names: DimNames,
    ids: HashMap<String, SymbolId>,
    /// How many ids there are.
    count: u32,
}

impl Symbols {
    pub(super) fn new(names: DimNames) -> Self {
        Symbols {
            names,
            ids: HashMap::new(),
            count: 0,
        }
    }

    /// The id of one more dim with this name.
    fn id(&mut self, name: &str) -> SymbolId {
        let known = self.ids.get(name).copied();
        if let (DimNames::OneSize, Some(id)) = (self.names, known) {
            return id;
        }
        let id = SymbolId(self.count);
        self.count += 1;
        self.ids.insert(name.to_owned(), id);
        id
    }
}

/// The port that a `ValueInfoProto` declares, or what is wrong with it.
pub(super) fn port(info: &ValueInfoProto, optional: bool) -> Result<Port, String> {
    let (ty, dims) = match info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => (tensor_port_type(tensor), tensor_dims(tensor)),
        Some(_) => (PortType::Other(type_name(info.r#type.as_ref())), None),
        None => (PortType::Other(UNTYPED.into()), None),
    };
    if let Some(rank) = dims.as_ref().map(Vec::len).filter(|&rank| rank > MAX_RANK) {
        return Err(format!(
            "\"{}\" has rank {rank}; the limit is {MAX_RANK}",
            info.name
        ));
    }
    Ok(Port {
        name: info.name.clone(),
        ty,
        dims,
        optional,
    })
}

/// The inputs and outputs that a model declares, without its initializers; types that are left
/// to inference are not known here.
pub(in crate::native) fn declared_io(model: &ModelProto) -> Result<ComponentIo, String> {
    let Some(graph) = &model.graph else {
        return Ok(ComponentIo::default());
    };
    let weights: HashSet<&str> = graph
        .initializer
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    let inputs = graph.input.iter().filter(|info| !weights.contains(&*info.name));
    Ok(ComponentIo {
        inputs: inputs.map(|info| port(info, false)).collect::<Result<_, _>>()?,
        outputs: graph
            .output
            .iter()
            .map(|info| port(info, false))
            .collect::<Result<_, _>>()?,
    })
}

/// What a `ValueInfoProto` says of its value.
pub(super) fn fact(info: &ValueInfoProto, symbols: &mut Symbols) -> Fact {
    let (kind, ty) = kind_and_element(info.r#type.as_ref());
    let tensor = match info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => Some(tensor),
        _ => None,
    };
    let dims = tensor.and_then(tensor_dims).map(|dims| {
        let dims = dims.into_iter().map(|dim| match dim {
            Dim::Fixed(size) => usize::try_from(size).map_or(SymDim::Unknown, SymDim::Fixed),
            Dim::Symbol(Some(name)) => SymDim::Symbol(symbols.id(&name)),
            Dim::Symbol(None) => SymDim::Unknown,
        });
        dims.collect::<SymDims>()
    });
    Fact {
        kind,
        ty,
        dims,
        value: None,
    }
}

/// What a value of this type is and the type of its elements, as far as this runtime has it.
pub(super) fn kind_and_element(ty: Option<&TypeProto>) -> (Option<Kind>, Option<ElementType>) {
    match ty.and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => (Some(Kind::Tensor), ElementType::from_code(tensor.elem_type)),
        Some(TypeValue::Sequence(inner)) => match kind_and_element(inner.elem_type.as_deref()) {
            (Some(Kind::Tensor), element) => (Some(Kind::Sequence), element),
            _ => (None, None),
        },
        Some(TypeValue::Optional(inner)) => {
            let (kind, element) = kind_and_element(inner.elem_type.as_deref());
            match kind.and_then(Kind::optional) {
                Some(kind) => (Some(kind), element),
                None => (None, None),
            }
        }
        Some(TypeValue::Map(_) | TypeValue::SparseTensor(_)) | None => (None, None),
    }
}

/// How the seam calls a tensor of this type.
pub(super) fn port_type(kind: Kind, ty: ElementType) -> PortType {
    match ty.seam() {
        Some(dtype) if kind == Kind::Tensor => PortType::Tensor(dtype),
        _ => PortType::Other(kind.with_element(ty)),
    }
}

fn tensor_port_type(tensor: &TensorTypeProto) -> PortType {
    match ElementType::from_code(tensor.elem_type) {
        Some(ty) => port_type(Kind::Tensor, ty),
        None if tensor.elem_type == 0 => PortType::Other(UNTYPED.into()),
        None => PortType::Other(format!("tensor({})", element_name(tensor.elem_type))),
    }
}

fn tensor_dims(tensor: &TensorTypeProto) -> Option<Vec<Dim>> {
    let dims = tensor.shape.as_ref()?.dim.iter().map(|dim| match &dim.value {
        // A negative size is how some exporters write "unknown".
        Some(DimensionValue::Size(size)) if *size >= 0 => Dim::Fixed(*size),
        // Without a letter it is no name: there are exporters that call every dim "?".
        Some(DimensionValue::Name(name)) if name.chars().any(char::is_alphabetic) => {
            Dim::Symbol(Some(name.clone()))
        }
        _ => Dim::Symbol(None),
    });
    Some(dims.collect())
}

fn element_name(code: i32) -> String {
    match ElementType::from_code(code) {
        Some(ty) => ty.name().to_owned(),
        None => format!("type {code}"),
    }
}

/// A type in ONNX's notation. (The depth is bounded by the protobuf decoder.)
fn type_name(ty: Option<&TypeProto>) -> String {
    match ty.and_then(|ty| ty.value.as_ref()) {
        None => UNTYPED.to_owned(),
        Some(TypeValue::Tensor(tensor)) => format!("tensor({})", element_name(tensor.elem_type)),
        Some(TypeValue::SparseTensor(tensor)) => {
            format!("sparse_tensor({})", element_name(tensor.elem_type))
        }
        Some(TypeValue::Sequence(inner)) => format!("seq({})", type_name(inner.elem_type.as_deref())),
        Some(TypeValue::Optional(inner)) => {
            format!("optional({})", type_name(inner.elem_type.as_deref()))
        }
        Some(TypeValue::Map(map)) => format!(
            "map({},{})",
            element_name(map.key_type),
            type_name(map.value_type.as_deref())
        ),
    }
}
