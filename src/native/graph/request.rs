//! What a plan is made for.

use super::Graph;
use crate::native::infer::{SymDim, SymDims};
use crate::native::tensor::Dims;
use crate::native::value::ValueRef;

/// What a caller gives and wants.
#[derive(Debug, Default)]
pub(in crate::native) struct Request {
    /// What is given, in the order of the graph's inputs.
    pub(in crate::native) inputs: Vec<Option<Given>>,
    /// Which outputs are asked for, in the order of the graph's.
    pub(in crate::native) outputs: Vec<Asked>,
}

/// How much of an output is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::native) enum Asked {
    #[default]
    Nothing,
    /// The last row is enough; rows before it may come too.
    LastRow,
    All,
}

/// What a plan depends on of an input that is given.
#[derive(Clone, Debug)]
pub(in crate::native) enum Given {
    /// A tensor of these dims.
    Tensor(Dims),
    /// A sequence or an optional, of which no dims are known.
    Other,
}

impl Given {
    pub(in crate::native) fn dims(&self) -> Option<&[usize]> {
        match self {
            Given::Tensor(dims) => Some(dims),
            Given::Other => None,
        }
    }
}

impl Request {
    /// Forgets what it was: no inputs, no outputs.
    pub(in crate::native) fn start(&mut self, graph: &Graph) {
        self.inputs.clear();
        self.inputs.resize(graph.inputs.len(), None);
        self.outputs.clear();
        self.outputs.resize(graph.outputs.len(), Asked::Nothing);
    }

    pub(in crate::native) fn give_tensor(&mut self, index: usize, dims: impl Iterator<Item = usize>) {
        if let Some(input) = self.inputs.get_mut(index) {
            *input = Some(Given::Tensor(dims.collect()));
        }
    }

    /// Elements of all tensors that are given.
    pub(in crate::native) fn elements(&self) -> usize {
        let dims = self.inputs.iter().flatten().filter_map(Given::dims);
        let elements = dims.map(|dims| dims.iter().fold(1usize, |count, &dim| count.saturating_mul(dim)));
        elements.fold(0, usize::saturating_add)
    }

    pub(in crate::native) fn give_value(&mut self, index: usize, value: ValueRef<'_>) {
        match value {
            ValueRef::Tensor(tensor) => self.give_tensor(index, tensor.dims().iter().copied()),
            ValueRef::Sequence(_) | ValueRef::Optional(_) => {
                if let Some(input) = self.inputs.get_mut(index) {
                    *input = Some(Given::Other);
                }
            }
        }
    }

    pub(in crate::native) fn ask_output(&mut self, index: usize) {
        self.ask(index, Asked::All);
    }

    pub(in crate::native) fn ask(&mut self, index: usize, asked: Asked) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = asked;
        }
    }
}

/// The requests that one plan serves: those that are the same but for dims that may be of any
/// size.
#[derive(Clone, Debug)]
pub(in crate::native) struct Pattern {
    pub(super) inputs: Vec<Option<Expected>>,
    pub(super) outputs: Vec<Asked>,
}

/// What a pattern says of an input that is given.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// A tensor of these dims; an unknown one may be of any size.
    Tensor(SymDims),
    /// A sequence or an optional.
    Other,
}

impl Expected {
    pub(super) fn dims(&self) -> Option<&SymDims> {
        match self {
            Expected::Tensor(dims) => Some(dims),
            Expected::Other => None,
        }
    }
}

impl Pattern {
    /// This request alone.
    pub(in crate::native) fn of(request: &Request) -> Self {
        let expected = |given: &Given| match given {
            Given::Tensor(dims) => Expected::Tensor(dims.iter().map(|&dim| SymDim::Fixed(dim)).collect()),
            Given::Other => Expected::Other,
        };
        Pattern {
            inputs: request
                .inputs
                .iter()
                .map(|given| given.as_ref().map(expected))
                .collect(),
            outputs: request.outputs.clone(),
        }
    }

    pub(in crate::native) fn serves(&self, request: &Request) -> bool {
        self.fits(request, |expected, _| expected == SymDim::Unknown)
    }

    /// Whether it is of one request.
    pub(in crate::native) fn is_single(&self) -> bool {
        let mut dims = self.inputs.iter().flatten().filter_map(Expected::dims).flatten();
        dims.all(|dim| *dim != SymDim::Unknown)
    }

    /// A pattern for what a request has in common with this one, when it is the next of a row: all
    /// dims that are not the same have grown by the same number, as when a past grows by what
    /// was fed. There is none where the last row is enough: to leave out the rows before it, a plan
    /// needs to know how many there are.
    pub(in crate::native) fn grown_to(&self, request: &Request) -> Option<Self> {
        let mut growth = None;
        let is_next = self.fits(request, |expected, given| match expected {
            SymDim::Fixed(before) => {
                given > before && *growth.get_or_insert(given - before) == given - before
            }
            _ => true,
        });
        if !is_next || self.outputs.contains(&Asked::LastRow) {
            return None;
        }
        let mut pattern = self.clone();
        for (expected, given) in pattern.inputs.iter_mut().zip(&request.inputs) {
            if let (Some(Expected::Tensor(expected)), Some(Given::Tensor(given))) = (expected, given) {
                for (expected, &given) in expected.iter_mut().zip(given) {
                    if *expected != SymDim::Fixed(given) {
                        *expected = SymDim::Unknown;
                    }
                }
            }
        }
        Some(pattern)
    }

    /// Whether a request gives and asks the same, and `allows` the dims that are not the same.
    fn fits(&self, request: &Request, mut allows: impl FnMut(SymDim, usize) -> bool) -> bool {
        self.outputs == request.outputs
            && self.inputs.len() == request.inputs.len()
            && self.inputs.iter().zip(&request.inputs).all(|pair| match pair {
                (Some(Expected::Tensor(expected)), Some(Given::Tensor(given))) => {
                    expected.len() == given.len()
                        && expected.iter().zip(given).all(|(&expected, &given)| {
                            expected == SymDim::Fixed(given) || allows(expected, given)
                        })
                }
                (Some(Expected::Other), Some(Given::Other)) | (None, None) => true,
                _ => false,
            })
    }

    /// Whether any of an output is asked for.
    pub(in crate::native) fn asks(&self, index: usize) -> bool {
        self.outputs
            .get(index)
            .is_some_and(|&asked| asked != Asked::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens, a mask over past and tokens, and a past.
    fn step(tokens: usize, past: usize, asked: Asked) -> Request {
        let tensor = |dims: &[usize]| Some(Given::Tensor(Dims::from_slice(dims)));
        Request {
            inputs: vec![
                tensor(&[1, tokens]),
                tensor(&[1, past + tokens]),
                tensor(&[1, 2, past, 4]),
                None,
            ],
            outputs: vec![asked, Asked::All],
        }
    }

    #[test]
    fn a_past_that_grows_gives_a_pattern_for_all_that_follow() {
        let first = Pattern::of(&step(1, 16, Asked::All));
        assert!(first.is_single() && first.serves(&step(1, 16, Asked::All)));
        assert!(!first.serves(&step(1, 17, Asked::All)));
        let row = first.grown_to(&step(1, 17, Asked::All)).expect("a row");
        for past in [0, 17, 18, 4000] {
            assert!(row.serves(&step(1, past, Asked::All)));
        }
        assert!(!row.is_single());
        assert!(!row.serves(&step(2, 18, Asked::All)));
        assert!(!row.serves(&step(1, 18, Asked::Nothing)));
    }

    #[test]
    fn other_requests_are_not_the_next_of_a_row() {
        let prompt = Pattern::of(&step(16, 0, Asked::All));
        // The tokens became fewer.
        assert!(prompt.grown_to(&step(1, 16, Asked::All)).is_none());
        assert!(prompt.grown_to(&step(16, 16, Asked::Nothing)).is_none());
        // Mask and past did not grow by the same number.
        let mut uneven = step(16, 3, Asked::All);
        uneven.inputs[2] = Some(Given::Tensor(Dims::from_slice(&[1, 2, 5, 4])));
        assert!(prompt.grown_to(&uneven).is_none());
        // Where the last row is enough, a plan should know which it is.
        let chunk = Pattern::of(&step(16, 0, Asked::LastRow));
        assert!(chunk.grown_to(&step(16, 16, Asked::LastRow)).is_none());
        // An input more.
        let mut more = step(16, 16, Asked::All);
        more.inputs[3] = Some(Given::Other);
        assert!(prompt.grown_to(&more).is_none());
    }
}
