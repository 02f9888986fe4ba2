//! What a value of a graph can be: a tensor, a sequence of tensors, or an optional one of
//! these. Nearly all are tensors, which the executor lends to kernels without a wrapper of
//! their own; the others share what they hold, so that a clone costs no copy.

use std::fmt::{self, Debug};
use std::sync::Arc;

use super::element::ElementType;
use super::infer::Kind;
use super::operator::OpError;
use super::tensor::{Tensor, TensorRef};
use super::working::Working;

/// An owned value. Clones share the elements.
#[derive(Clone)]
pub enum Value {
    Tensor(Tensor),
    Sequence(Arc<Sequence>),
    Optional(Option<Arc<Value>>),
}

/// A sequence of tensors of one element type, each of its own dims.
pub struct Sequence {
    ty: ElementType,
    /// All are of type `ty`.
    tensors: Working<Tensor>,
}

impl Sequence {
    /// Fails when a tensor is of another type.
    pub(super) fn new(ty: ElementType, tensors: Working<Tensor>) -> Result<Self, OpError> {
        match tensors.iter().position(|tensor| tensor.element_type() != ty) {
            None => Ok(Sequence { ty, tensors }),
            Some(at) => Err(OpError::Message(format!(
                "tensor {at} of a sequence of {ty} is {:?}",
                tensors[at]
            ))),
        }
    }

    pub fn element_type(&self) -> ElementType {
        self.ty
    }

    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    pub(super) fn into_tensors(self) -> Vec<Tensor> {
        self.tensors.into_items()
    }
}

impl Value {
    pub fn view(&self) -> ValueRef<'_> {
        match self {
            Value::Tensor(tensor) => ValueRef::Tensor(tensor.view()),
            Value::Sequence(sequence) => ValueRef::Sequence(sequence),
            Value::Optional(content) => ValueRef::Optional(content.as_ref()),
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Self {
        Value::Tensor(tensor)
    }
}

impl From<Sequence> for Value {
    fn from(sequence: Sequence) -> Self {
        Value::Sequence(Arc::new(sequence))
    }
}

/// A borrowed value.
#[derive(Clone, Copy)]
pub enum ValueRef<'a> {
    Tensor(TensorRef<'a>),
    Sequence(&'a Arc<Sequence>),
    Optional(Option<&'a Arc<Value>>),
}

impl<'a> ValueRef<'a> {
    /// `None` when it is no tensor.
    pub fn tensor(self) -> Option<TensorRef<'a>> {
        match self {
            ValueRef::Tensor(tensor) => Some(tensor),
            ValueRef::Sequence(_) | ValueRef::Optional(_) => None,
        }
    }

    /// The same value, owned: shared where its memory can be, else a copy.
    pub fn to_value(self) -> Result<Value, OpError> {
        match self {
            ValueRef::Tensor(tensor) => tensor.to_tensor().map(Value::Tensor),
            ValueRef::Sequence(sequence) => Ok(Value::Sequence(Arc::clone(sequence))),
            ValueRef::Optional(content) => Ok(Value::Optional(content.cloned())),
        }
    }

    /// What it is; `None` for an empty optional, which does not say of what it is one.
    pub fn kind(self) -> Option<Kind> {
        match self {
            ValueRef::Tensor(_) => Some(Kind::Tensor),
            ValueRef::Sequence(_) => Some(Kind::Sequence),
            ValueRef::Optional(content) => match content?.view() {
                ValueRef::Sequence(_) => Some(Kind::OptionalSequence),
                _ => Some(Kind::OptionalTensor),
            },
        }
    }

    /// The type of the elements, `None` for an empty optional.
    pub fn element_type(self) -> Option<ElementType> {
        match self {
            ValueRef::Tensor(tensor) => Some(tensor.element_type()),
            ValueRef::Sequence(sequence) => Some(sequence.element_type()),
            ValueRef::Optional(content) => content?.view().element_type(),
        }
    }
}

impl Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq({}) of {}", self.ty, self.tensors.len())
    }
}

impl Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

impl Debug for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueRef::Tensor(tensor) => tensor.fmt(f),
            ValueRef::Sequence(sequence) => sequence.fmt(f),
            ValueRef::Optional(Some(content)) => write!(f, "optional({content:?})"),
            ValueRef::Optional(None) => f.write_str("an empty optional"),
        }
    }
}
