use std::cell::Cell;

use super::ports;
use crate::component::ComponentErrorKind;
use crate::native::infer::Fact;
use crate::native::model::Model;
use crate::native::model::onnx::{AttributeProto, NodeProto, attribute_type};
use crate::native::node::{Attribute, NamedAttribute};

/// The attributes of a node, tensors read.
pub(super) fn read(
    node: &NodeProto,
    name: &str,
    model: &mut Model,
) -> Result<Vec<NamedAttribute>, ComponentErrorKind> {
    let mut attributes = Vec::with_capacity(node.attribute.len());
    for proto in &node.attribute {
        if attributes
            .iter()
            .any(|earlier: &NamedAttribute| earlier.name == proto.name)
        {
            return Err(model.invalid(format!(
                "node \"{name}\" ({}) has attribute \"{}\" twice",
                node.op_type, proto.name
            )));
        }
        attributes.push(NamedAttribute {
            name: proto.name.clone(),
            value: value(proto, node, name, model)?,
            asked: Cell::new(false),
        });
    }
    Ok(attributes)
}

fn value(
    proto: &AttributeProto,
    node: &NodeProto,
    name: &str,
    model: &mut Model,
) -> Result<Attribute, ComponentErrorKind> {
    use attribute_type as T;
    Ok(match kind(proto) {
        T::FLOAT => Attribute::Float(proto.f),
        T::INT => Attribute::Int(proto.i),
        T::STRING => Attribute::String(proto.s.to_vec()),
        T::FLOATS => Attribute::Floats(proto.floats.clone()),
        T::INTS => Attribute::Ints(proto.ints.clone()),
        T::STRINGS => Attribute::Strings(proto.strings.iter().map(|bytes| bytes.to_vec()).collect()),
        T::TENSOR => {
            let what = format!(
                "attribute \"{}\" of node \"{name}\" ({})",
                proto.name, node.op_type
            );
            match &proto.t {
                Some(tensor) => Attribute::Tensor(model.tensor(tensor, &what)?),
                None => return Err(model.invalid(format!("{what} has no tensor"))),
            }
        }
        T::GRAPH => Attribute::Other("a graph"),
        T::TENSORS => Attribute::Other("tensors"),
        T::GRAPHS => Attribute::Other("graphs"),
        T::SPARSE_TENSOR => Attribute::Other("a sparse tensor"),
        T::SPARSE_TENSORS => Attribute::Other("sparse tensors"),
        T::TYPE_PROTO => {
            let (kind, ty) = ports::kind_and_element(proto.tp.as_ref());
            Attribute::Type(Fact {
                kind,
                ty,
                ..Fact::default()
            })
        }
        T::TYPE_PROTOS => Attribute::Other("types"),
        _ => Attribute::Other("nothing"),
    })
}

/// The kind of an attribute. Files of IR version 1 and 2 need not say it.
fn kind(proto: &AttributeProto) -> i32 {
    use attribute_type as T;
    match proto.r#type {
        T::UNDEFINED if proto.t.is_some() => T::TENSOR,
        T::UNDEFINED if proto.g.is_some() => T::GRAPH,
        T::UNDEFINED if !proto.floats.is_empty() => T::FLOATS,
        T::UNDEFINED if !proto.ints.is_empty() => T::INTS,
        T::UNDEFINED if !proto.strings.is_empty() => T::STRINGS,
        T::UNDEFINED if !proto.s.is_empty() => T::STRING,
        T::UNDEFINED if proto.f != 0.0 => T::FLOAT,
        T::UNDEFINED if proto.i != 0 => T::INT,
        kind => kind,
    }
}
