use smallvec::SmallVec;

use super::element::ElementType;
use super::operator::OpError;
use super::tensor::{Dims, Tensor, TensorRef};

/// A dim during shape inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymDim {
    Fixed(usize),
    /// A named size of the model. Equal ids are equal sizes.
    Symbol(SymbolId),
    Unknown,
}

impl SymDim {
    pub fn fixed(self) -> Option<usize> {
        match self {
            SymDim::Fixed(size) => Some(size),
            _ => None,
        }
    }
}

/// A named size: the index of its name in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SymbolId(pub(super) u32);

pub type SymDims = SmallVec<[SymDim; 6]>;

/// What a value is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Tensor,
    Sequence,
    OptionalTensor,
    OptionalSequence,
}

impl Kind {
    /// The same inside an optional; `None` for one that is optional already.
    pub fn optional(self) -> Option<Kind> {
        match self {
            Kind::Tensor => Some(Kind::OptionalTensor),
            Kind::Sequence => Some(Kind::OptionalSequence),
            Kind::OptionalTensor | Kind::OptionalSequence => None,
        }
    }

    /// What an optional holds; anything else is itself.
    pub fn content(self) -> Kind {
        match self {
            Kind::Tensor | Kind::OptionalTensor => Kind::Tensor,
            Kind::Sequence | Kind::OptionalSequence => Kind::Sequence,
        }
    }

    /// As ONNX writes a type of this kind.
    pub fn with_element(self, ty: impl std::fmt::Display) -> String {
        match self {
            Kind::Tensor => format!("tensor({ty})"),
            Kind::Sequence => format!("seq(tensor({ty}))"),
            Kind::OptionalTensor => format!("optional(tensor({ty}))"),
            Kind::OptionalSequence => format!("optional(seq(tensor({ty})))"),
        }
    }
}

/// What is known of a value before a run.
#[derive(Clone, Debug, Default)]
pub struct Fact {
    pub kind: Option<Kind>,
    /// The type of the elements: of the tensor, or of those inside.
    pub ty: Option<ElementType>,
    /// Of a tensor; `None` when not even the rank is known, and for what is no tensor.
    pub dims: Option<SymDims>,
    pub(super) value: Option<Tensor>,
}

impl Fact {
    /// The elements, when they are known (constants, sizes).
    pub fn value(&self) -> Option<TensorRef<'_>> {
        self.value.as_ref().map(Tensor::view)
    }

    /// The dims, when all are known.
    pub fn fixed_dims(&self) -> Option<Dims> {
        self.dims.as_ref()?.iter().map(|dim| dim.fixed()).collect()
    }

    pub fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(|dims| dims.len())
    }

    pub(super) fn of_tensor(tensor: &Tensor) -> Self {
        Fact {
            kind: Some(Kind::Tensor),
            ty: Some(tensor.element_type()),
            dims: Some(tensor.dims().iter().map(|&dim| SymDim::Fixed(dim)).collect()),
            value: Some(tensor.clone()),
        }
    }
}

/// What an operator sees of its node during shape inference.
pub struct InferContext<'a> {
    /// `None` where an input is left out.
    pub(super) inputs: &'a [Option<&'a Fact>],
    pub(super) outputs: &'a mut [Fact],
    pub(super) used: &'a [bool],
}

impl<'a> InferContext<'a> {
    /// Inputs that the node lists, the left-out ones in between included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// Outputs that the node lists.
    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// Whether the node lists this output and gives it a name.
    pub fn output_used(&self, index: usize) -> bool {
        self.used.get(index).copied().unwrap_or(false)
    }

    /// What is known of an input, or `None` when it is left out.
    pub fn input(&self, index: usize) -> Option<&'a Fact> {
        self.inputs.get(index).copied().flatten()
    }

    /// What is known of an input that must be there.
    pub fn required(&self, index: usize) -> Result<&'a Fact, OpError> {
        self.input(index).ok_or(OpError::MissingInput { index })
    }

    /// The values of an `int64` or `int32` input (shape, axes, ...), when they are known.
    pub fn known_ints(&self, index: usize) -> Result<Option<SmallVec<[i64; 6]>>, OpError> {
        match self.input(index).and_then(Fact::value) {
            Some(value) => value.to_ints().map(Some),
            None => Ok(None),
        }
    }

    /// Sets type and dims of an output that is a tensor; does nothing for one that the node does not list.
    /// `None` for what is not known.
    pub fn set_output(&mut self, index: usize, ty: Option<ElementType>, dims: Option<SymDims>) {
        if let Some(output) = self.outputs.get_mut(index) {
            output.kind = Some(Kind::Tensor);
            output.ty = ty;
            output.dims = dims;
        }
    }

    /// Sets what an output is when it may be something else than a tensor.
    pub fn set_kind(&mut self, index: usize, kind: Option<Kind>, ty: Option<ElementType>) {
        if let Some(output) = self.outputs.get_mut(index) {
            output.kind = kind;
            output.ty = ty;
            output.dims = None;
        }
    }

    /// Sets all that is known of an output.
    pub(super) fn set_fact(&mut self, index: usize, fact: Fact) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = fact;
        }
    }

    /// Sets an output to a known value, with its type and dims.
    pub fn set_value(&mut self, index: usize, value: Tensor) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = Fact::of_tensor(&value);
        }
    }
}
