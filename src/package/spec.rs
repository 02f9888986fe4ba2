use crate::component::{ComponentIo, DataType, Shape};

use super::declaration::Phase;

/// A pipeline that can be run: every name has become an index, and every input of every
/// component has exactly one source. Made by `resolve` only, so an index cannot be wrong.
#[derive(Debug)]
pub(crate) struct PipelineSpec {
    /// In the package's order.
    pub components: Vec<ComponentSpec>,
    /// Component indices, each after those that feed it.
    pub order: Vec<usize>,
    pub token_loop: Option<TokenLoop>,
    pub strategy: &'static str,
    /// Tokens to choose, by the package's strategy.
    pub max_tokens: Option<u64>,
    /// Tokens of prompt and answer together, by the author's generation defaults.
    pub max_length: Option<u64>,
    /// The most tokens that the model takes.
    pub context_length: Option<u64>,
    pub eos_token_ids: Vec<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenLoop {
    pub decoder: usize,
    /// Index among the decoder's outputs.
    pub logits: usize,
}

#[derive(Debug)]
pub(crate) struct ComponentSpec {
    pub name: String,
    pub component_type: String,
    pub file: String,
    pub phase: Phase,
    pub when_present: Option<String>,
    pub io: ComponentIo,
    /// One for each of `io.inputs`.
    pub inputs: Vec<InputSpec>,
    /// One for each of `io.outputs`.
    pub outputs: Vec<OutputSpec>,
}

#[derive(Clone, Debug)]
pub(crate) struct InputSpec {
    pub source: InputSource,
    pub dtype: DataType,
    /// What stands in when the source has no value.
    pub absent: Option<Absent>,
}

/// Where the value of an input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputSource {
    /// Ids of the span, int32 or int64, `[1, S]`.
    Tokens,
    /// Ones `[1, past + S]`.
    AttentionMask,
    /// Absolute positions of the span: `[S]`, `[1, S]`, or `[3, 1, S]` by rank.
    Positions { rank: usize },
    /// An output of a component, converted if the dtypes differ.
    Edge(OutputRef),
    /// The chosen tokens, int64 `[1, n]`.
    OutputIds,
    /// What this component's output left: past and present of a KV cache.
    Past { output: usize },
    /// What this component's output left: recurrent state.
    State { output: usize },
    /// The host's value. Not required: the graph has a default.
    Request { required: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OutputRef {
    pub component: usize,
    pub output: usize,
}

/// Zeros for an input whose modality the request does not bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absent {
    pub modality: String,
    pub dims: Vec<AbsentDim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbsentDim {
    Fixed(i64),
    /// As long as this axis of another input of the component.
    SameAs {
        input: usize,
        axis: usize,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct OutputSpec {
    /// `None`: a type that does not cross the seam; never asked for.
    pub dtype: Option<DataType>,
    pub role: OutputRole,
    /// The output's dims in terms of the inputs', where the graph's own names say so.
    pub dims: Option<Vec<OutputDim>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutputRole {
    Plain,
    /// The next step's past: grows along `axis` by the tokens fed.
    Present {
        axis: usize,
        empty: Shape,
        /// The input that it is read from, if the component makes it longer where it lies; then
        /// nothing else reads it in a step.
        in_place: Option<usize>,
    },
    /// The next step's recurrent state, of this shape.
    State {
        shape: Shape,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputDim {
    Fixed(i64),
    SameAs { input: usize, axis: usize },
}

impl ComponentSpec {
    /// Whether the component keeps something from step to step, so that a step needs only
    /// the new tokens.
    pub fn has_cache(&self) -> bool {
        self.outputs.iter().any(|output| output.role != OutputRole::Plain)
    }

    pub fn has_recurrent_state(&self) -> bool {
        self.outputs
            .iter()
            .any(|output| matches!(output.role, OutputRole::State { .. }))
    }
}
