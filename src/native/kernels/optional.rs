//! Values that may be absent:
//!
//!   Optional(x)             x, or without an input nothing of the kind that `type` says
//!                                                                       ai.onnx 15, 28
//!   OptionalHasElement(x)   whether there is anything; from 18 on x may be left out, or be
//!                           no optional at all                      ai.onnx 15, 18, 28
//!   OptionalGetElement(x)   what is there; from 18 on x may be no optional
//!                                                               ai.onnx 15, 18, 28
//!
//! Tensors of every element type, and sequences of them.

use std::sync::Arc;

use super::Built;
use crate::native::element::{Bool, ElementType};
use crate::native::infer::{Fact, InferContext, Kind, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::value::{Value, ValueRef};

#[derive(Debug)]
struct Optional {
    /// What an empty one would hold.
    declared: Option<Fact>,
}

pub(in crate::native) fn optional(node: &NodeInfo<'_>) -> Built {
    let declared = node.value_type("type")?.cloned();
    if !node.has_input(0) && declared.is_none() {
        return Err(OpError::Attribute {
            name: "type".into(),
            message: "is missing, and so is the input".into(),
        });
    }
    Ok(Box::new(Optional { declared }))
}

impl Operator for Optional {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let content = cx.input(0).or(self.declared.as_ref());
        let (kind, ty) = content.map_or((None, None), |fact| (fact.kind, fact.ty));
        let nested = || OpError::Message("an optional cannot hold an optional".into());
        let kind = kind.map(|kind| kind.optional().ok_or_else(nested)).transpose()?;
        cx.set_kind(0, kind, ty);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let content = match cx.value(0) {
            Some(ValueRef::Optional(_)) => {
                return Err(OpError::Message("an optional cannot hold an optional".into()));
            }
            Some(value) => Some(Arc::new(value.to_value()?)),
            None => None,
        };
        cx.output_value(0, Value::Optional(content))
    }

    fn takes_values(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct HasElement;

pub(in crate::native) fn has_element(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(HasElement))
}

impl Operator for HasElement {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        cx.set_output(0, Some(ElementType::Bool), Some(SymDims::new()));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let has = !matches!(cx.value(0), None | Some(ValueRef::Optional(None)));
        cx.output::<Bool>(0, &[])?.copy_from(&[has.into()])
    }

    fn takes_values(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct GetElement;

pub(in crate::native) fn get_element(_: &NodeInfo<'_>) -> Built {
    Ok(Box::new(GetElement))
}

impl Operator for GetElement {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let fact = cx.required(0)?;
        match fact.kind {
            Some(Kind::Tensor) => cx.set_output(0, fact.ty, fact.dims.clone()),
            kind => cx.set_kind(0, kind.map(Kind::content), fact.ty),
        }
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        match cx.value(0).ok_or(OpError::MissingInput { index: 0 })? {
            ValueRef::Optional(None) => Err(OpError::Message("the optional is empty".into())),
            ValueRef::Optional(Some(content)) => cx.output_value(0, content.view().to_value()?),
            ValueRef::Tensor(tensor) => cx.output_same_as_input(0, 0, tensor.dims()),
            other => cx.output_value(0, other.to_value()?),
        }
    }

    fn takes_values(&self) -> bool {
        true
    }
}
