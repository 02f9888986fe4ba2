use std::fmt::{self, Display};

use super::DataType;

/// A dim as the graph declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// A static size.
    Fixed(i64),
    /// A named size (`batch`, `past_sequence + sequence`), or one without a name.
    Symbol(Option<String>),
}

impl Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => write!(f, "{size}"),
            Dim::Symbol(Some(name)) => f.write_str(name),
            Dim::Symbol(None) => f.write_str("?"),
        }
    }
}

/// What a port carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortType {
    Tensor(DataType),
    /// Something that does not cross the seam: `tensor(string)`, `tensor(double)`,
    /// `seq(tensor(float))`, in ONNX's notation.
    Other(String),
}

impl Display for PortType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortType::Tensor(dtype) => dtype.fmt(f),
            PortType::Other(name) => f.write_str(name),
        }
    }
}

/// An input or output of a component, as its graph declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    pub ty: PortType,
    /// `None` when the graph does not even declare a rank.
    pub dims: Option<Vec<Dim>>,
    /// An input that has a default (an initializer of the same name) may be left out.
    pub optional: bool,
}

impl Port {
    pub fn dtype(&self) -> Option<DataType> {
        match self.ty {
            PortType::Tensor(dtype) => Some(dtype),
            PortType::Other(_) => None,
        }
    }

    /// Whether a value of this shape may stand here: same rank, static dims equal.
    pub fn accepts_shape(&self, shape: &[i64]) -> bool {
        match &self.dims {
            None => true,
            Some(dims) => {
                dims.len() == shape.len()
                    && dims.iter().zip(shape).all(|(dim, &size)| match dim {
                        Dim::Fixed(fixed) => *fixed == size,
                        Dim::Symbol(_) => true,
                    })
            }
        }
    }

    /// `[1, sequence, 4]`, for messages; `[...]` without a declared rank.
    pub fn display_dims(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| match &self.dims {
            None => f.write_str("[...]"),
            Some(dims) => {
                f.write_str("[")?;
                for (index, dim) in dims.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    dim.fmt(f)?;
                }
                f.write_str("]")
            }
        })
    }
}

/// All ports of a component, in the graph's order. Port names are unique per direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentIo {
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
}

impl ComponentIo {
    pub fn input(&self, name: &str) -> Option<&Port> {
        self.inputs.iter().find(|port| port.name == name)
    }

    pub fn output(&self, name: &str) -> Option<&Port> {
        self.outputs.iter().find(|port| port.name == name)
    }
}
