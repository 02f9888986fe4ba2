use std::cell::Cell;

use super::element::ElementType;
use super::infer::Fact;
use super::operator::OpError;
use super::tensor::Tensor;

/// An attribute of a node.
#[derive(Clone, Debug)]
pub enum Attribute {
    Float(f32),
    Int(i64),
    String(Vec<u8>),
    Tensor(Tensor),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Strings(Vec<Vec<u8>>),
    /// A type: what is known of a value of it.
    Type(Fact),
    /// A kind that no constructor of this runtime reads (graphs, sparse tensors): its name
    /// in ONNX.
    Other(&'static str),
}

impl Attribute {
    fn kind(&self) -> &'static str {
        match self {
            Attribute::Float(_) => "a float",
            Attribute::Int(_) => "an int",
            Attribute::String(_) => "a string",
            Attribute::Tensor(_) => "a tensor",
            Attribute::Floats(_) => "floats",
            Attribute::Ints(_) => "ints",
            Attribute::Strings(_) => "strings",
            Attribute::Type(_) => "a type",
            Attribute::Other(kind) => kind,
        }
    }
}

/// A node as an operator's constructor sees it.
#[derive(Debug)]
pub struct NodeInfo<'a> {
    /// The node's name, or one made up from its first output.
    pub name: &'a str,
    pub op_type: &'a str,
    /// `""` is ONNX's own.
    pub domain: &'a str,
    /// The version of `domain` that the model imports.
    pub opset: i64,
    /// The version in which the definition that applies came into force.
    pub since: i64,
    pub(super) inputs: &'a [bool],
    pub(super) outputs: &'a [bool],
    pub(super) attributes: &'a [NamedAttribute],
}

/// An attribute, and whether the constructor has asked for it.
#[derive(Debug)]
pub(super) struct NamedAttribute {
    pub(super) name: String,
    pub(super) value: Attribute,
    pub(super) asked: Cell<bool>,
}

impl NodeInfo<'_> {
    /// The same node as of another version of a definition: for an operator that is another one
    /// under a name of its own.
    pub(super) fn as_of(&self, since: i64) -> NodeInfo<'_> {
        NodeInfo { since, ..*self }
    }

    /// Inputs that the node lists, the left-out ones in between included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    pub fn has_input(&self, index: usize) -> bool {
        self.inputs.get(index).copied().unwrap_or(false)
    }

    /// Outputs that the node lists, the left-out ones in between included.
    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }

    pub fn has_output(&self, index: usize) -> bool {
        self.outputs.get(index).copied().unwrap_or(false)
    }

    /// Any attribute. A constructor must ask for every attribute that the definition has,
    /// also for those that have no effect here: one that nobody asked for is an error.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        let attribute = self.attributes.iter().find(|attribute| attribute.name == name)?;
        attribute.asked.set(true);
        Some(&attribute.value)
    }

    fn typed<'s, T>(
        &'s self,
        name: &str,
        expected: &str,
        get: impl FnOnce(&'s Attribute) -> Option<T>,
    ) -> Result<Option<T>, OpError> {
        let Some(attribute) = self.attribute(name) else {
            return Ok(None);
        };
        match get(attribute) {
            Some(value) => Ok(Some(value)),
            None => Err(OpError::Attribute {
                name: name.to_owned(),
                message: format!("is {}, expected {expected}", attribute.kind()),
            }),
        }
    }

    pub fn int(&self, name: &str) -> Result<Option<i64>, OpError> {
        self.typed(name, "an int", |attribute| match attribute {
            Attribute::Int(value) => Some(*value),
            _ => None,
        })
    }

    pub fn int_or(&self, name: &str, default: i64) -> Result<i64, OpError> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// An int that means no or yes, as 0 or anything else.
    pub fn flag_or(&self, name: &str, default: bool) -> Result<bool, OpError> {
        Ok(self.int(name)?.map_or(default, |value| value != 0))
    }

    pub fn float(&self, name: &str) -> Result<Option<f32>, OpError> {
        self.typed(name, "a float", |attribute| match attribute {
            Attribute::Float(value) => Some(*value),
            _ => None,
        })
    }

    pub fn float_or(&self, name: &str, default: f32) -> Result<f32, OpError> {
        Ok(self.float(name)?.unwrap_or(default))
    }

    pub fn ints(&self, name: &str) -> Result<Option<&[i64]>, OpError> {
        self.typed(name, "ints", |attribute| match attribute {
            Attribute::Ints(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    pub fn floats(&self, name: &str) -> Result<Option<&[f32]>, OpError> {
        self.typed(name, "floats", |attribute| match attribute {
            Attribute::Floats(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    /// A string that must be UTF-8.
    pub fn string(&self, name: &str) -> Result<Option<&str>, OpError> {
        self.typed(name, "a UTF-8 string", |attribute| match attribute {
            Attribute::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        })
    }

    pub fn string_or<'s>(&'s self, name: &str, default: &'s str) -> Result<&'s str, OpError> {
        Ok(self.string(name)?.unwrap_or(default))
    }

    /// Strings that must be UTF-8.
    pub fn strings(&self, name: &str) -> Result<Option<Vec<&str>>, OpError> {
        self.typed(name, "UTF-8 strings", |attribute| match attribute {
            Attribute::Strings(values) => values
                .iter()
                .map(|bytes| std::str::from_utf8(bytes).ok())
                .collect(),
            _ => None,
        })
    }

    /// An int that is the code of an element type; 0, which is undefined, is as good as none.
    pub fn element_type(&self, name: &str) -> Result<Option<ElementType>, OpError> {
        match self.int_or(name, 0)? {
            0 => Ok(None),
            code => i32::try_from(code)
                .ok()
                .and_then(ElementType::from_code)
                .map(Some)
                .ok_or_else(|| OpError::Attribute {
                    name: name.to_owned(),
                    message: format!("is {code}, which is no element type"),
                }),
        }
    }

    pub fn tensor(&self, name: &str) -> Result<Option<&Tensor>, OpError> {
        self.typed(name, "a tensor", |attribute| match attribute {
            Attribute::Tensor(tensor) => Some(tensor),
            _ => None,
        })
    }

    /// A type: what is known of a value of it.
    pub fn value_type(&self, name: &str) -> Result<Option<&Fact>, OpError> {
        self.typed(name, "a type", |attribute| match attribute {
            Attribute::Type(fact) => Some(fact),
            _ => None,
        })
    }

    /// The first attribute that no getter has been called for.
    pub(super) fn unasked_attribute(&self) -> Option<&str> {
        self.attributes
            .iter()
            .find(|attribute| !attribute.asked.get())
            .map(|attribute| attribute.name.as_str())
    }
}
