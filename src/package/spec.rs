use crate::component::{ComponentIo, DataType, Shape};
use crate::media::audio::AudioProgram;
use crate::media::image::ImageProgram;
use crate::media::{ImagePlaceholders, PortLayout};

use super::declaration::{Continuation, GenerationDefaults, LengthOf, Phase, Said};
use super::scheduler::Scheduler;

/// A pipeline that can be run: every name has become an index, and every input of every
/// component has exactly one source. Made by `resolve` only, so an index cannot be wrong.
#[derive(Debug)]
pub(crate) struct PipelineSpec {
    /// In the package's order.
    pub components: Vec<ComponentSpec>,
    /// Component indices, each after those that feed it.
    pub order: Vec<usize>,
    pub token_loop: Option<TokenLoop>,
    pub first_pass: Option<FirstPass>,
    /// What a step of the token loop has inside, if it is a frame of codes.
    pub nested: Option<Nested>,
    /// The loops of denoisers, in the order of the strategy's stages.
    pub iterations: Vec<Iteration>,
    pub strategy: &'static str,
    /// Tokens to choose, by the package's strategy.
    pub max_tokens: Option<u64>,
    /// The author's defaults for generation, of which a greedy run reads `max_length`.
    pub generation: GenerationDefaults,
    /// Token ids of a role, by the name that package metadata has for it.
    pub token_roles: Vec<(&'static str, i32)>,
    /// The most tokens that the model takes.
    pub context_length: Option<u64>,
    pub eos_token_ids: Vec<i32>,
    pub media: MediaSpec,
}

/// What becomes of the images and the sound that a host gives.
#[derive(Debug, Default)]
pub(crate) struct MediaSpec {
    /// The program and the input of each of its outputs.
    pub image: Option<(ImageProgram, Vec<MediaInput>)>,
    pub audio: Option<(AudioProgram, Vec<MediaInput>)>,
    pub placeholders: Option<ImagePlaceholders>,
}

/// An input that a preprocessing program feeds.
#[derive(Clone, Debug)]
pub(crate) struct MediaInput {
    pub component: usize,
    pub input: usize,
    pub layout: PortLayout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenLoop {
    pub decoder: usize,
    /// Index among the decoder's outputs.
    pub logits: usize,
    /// Whether the decoder takes one token at a time once there is something in its caches.
    pub one_at_a_time: bool,
}

/// A step of the token loop is a frame: the decoder's hidden state begins a loop of the inner
/// decoder that makes its codes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nested {
    pub inner: usize,
    /// The decoder's output whose last row the inner one reads first.
    pub seed: usize,
    /// The inner decoder's outputs.
    pub logits: usize,
    pub embedding: usize,
    /// Codes of a frame; at least 1.
    pub groups: usize,
    pub pre_embedder: Option<PreEmbedder>,
}

/// The decoder reads what this component makes of the frame before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreEmbedder {
    pub component: usize,
    pub output: usize,
    /// The last dim of the text that it reads beside the codes, if it reads any.
    pub text_width: Option<i64>,
    pub prefill: Option<Prefill>,
}

/// A component's outputs: what the decoder reads first, and the text for later frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prefill {
    pub component: usize,
    pub prefill: usize,
    pub trailing: usize,
}

impl Nested {
    /// Whether the frames' loop runs this component, rather than the step.
    pub fn runs(&self, component: usize) -> bool {
        let pre = self.pre_embedder.map(|pre| pre.component);
        component == self.inner || pre == Some(component)
    }
}

/// A component that stands in for the decoder while the caches are empty.
#[derive(Clone, Debug)]
pub(crate) struct FirstPass {
    pub component: usize,
    /// Index among its outputs.
    pub logits: usize,
    /// Its outputs, and the decoder's caches that they begin.
    pub caches: Vec<(usize, usize)>,
}

/// A component that runs again and again over what it made.
#[derive(Clone, Debug)]
pub(crate) struct Iteration {
    pub denoiser: usize,
    /// The place of the first of `states` among the states of all loops.
    pub first_state: usize,
    /// What goes from step to step, in the order of the package's edges; never empty.
    pub states: Vec<LoopState>,
    /// At least 1.
    pub num_steps: usize,
    /// Less than `num_steps`.
    pub start_step: usize,
    /// One for each step, as the package says them.
    pub timesteps: Option<Said<Vec<f64>>>,
    /// How the output becomes the next state; without one it takes the state's place.
    pub scheduler: Option<Said<Scheduler>>,
    pub guidance: Option<Guidance>,
}

/// Classifier-free guidance: in each step the denoiser runs once without its conditioning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Guidance {
    /// The input that is zeros then, or what the host has set for it; `None` of a loop that makes
    /// tokens, where those that it starts with are masks then.
    pub input: Option<usize>,
    /// 1: none, unless the host says another.
    pub scale: f64,
}

impl PipelineSpec {
    /// The loop whose steps are those of a run. Others run all of their steps as one run of
    /// their component.
    pub fn own_loop(&self) -> Option<usize> {
        let steps = |iteration: &Iteration| {
            let denoiser = self.components.get(iteration.denoiser);
            denoiser.is_some_and(|denoiser| denoiser.phase == Phase::EveryStep)
        };
        self.iterations.iter().position(steps)
    }

    /// The loop that a run's settings are about: its own, else the last.
    pub fn settings_loop(&self) -> Option<usize> {
        self.own_loop().or(self.iterations.len().checked_sub(1))
    }

    /// The loop that a component is the denoiser of.
    pub fn loop_of(&self, component: usize) -> Option<usize> {
        let mut iterations = self.iterations.iter();
        iterations.position(|iteration| iteration.denoiser == component)
    }

    /// A state among those of all loops, and whose it is.
    pub fn loop_state(&self, state: usize) -> Option<(&Iteration, &LoopState)> {
        self.iterations.iter().find_map(|iteration| {
            let place = state.checked_sub(iteration.first_state)?;
            Some((iteration, iteration.states.get(place)?))
        })
    }
}

impl Iteration {
    /// The most steps that a loop may have.
    pub const MAX_STEPS: usize = 100_000;
    /// The most that guidance may be scaled by.
    pub const MAX_GUIDANCE: f64 = 1000.0;

    /// The states, with their places among those of all loops.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &LoopState)> {
        (self.first_state..).zip(&self.states)
    }
}

/// A self-edge: the input's next value is made of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoopState {
    pub input: usize,
    pub output: usize,
    /// The input's shape, where it declares one; a batch that it leaves open is 1.
    pub shape: Option<Shape>,
    /// Whether it is tokens, of which the output is the logits.
    pub tokens: bool,
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
    /// The inputs in an order in which each comes after those whose sizes it takes.
    pub making: Vec<usize>,
    /// One for each of `io.outputs`.
    pub outputs: Vec<OutputSpec>,
}

#[derive(Clone, Debug)]
pub(crate) struct InputSpec {
    pub source: InputSource,
    pub dtype: DataType,
    /// The shape of a value that the loop makes, where that is not the source's own.
    pub dims: Vec<InputDim>,
    /// What stands in when the source has no value.
    pub absent: Option<Absent>,
    /// Rows of other outputs that take the places of tokens' rows.
    pub merges: Vec<Merge>,
}

/// Where the value of an input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputSource {
    /// Ids of the span, int32 or int64, `[1, S]`.
    Tokens,
    /// Ones `[1, past + S]`; with dims, zeros behind them up to that length.
    AttentionMask,
    /// Absolute positions of the span: `[S]`, `[1, S]`, or `[3, 1, S]` by rank.
    /// With coordinates the host may give those of the first tokens, `[1, n]` or `[3, 1, n]`.
    Positions {
        rank: usize,
        coordinates: Option<Continuation>,
    },
    /// An output of a component, converted if the dtypes differ.
    Edge(OutputRef),
    /// The chosen tokens, int64 `[1, n]`.
    OutputIds,
    /// The codes of all frames, int64 `[1, frames, groups]`.
    OutputCodes,
    /// What the loop over frames makes.
    Nested(NestedFeed),
    /// What this component's output left: past and present of a KV cache.
    Past { output: usize },
    /// What this component's output left: recurrent state.
    State { output: usize },
    /// What goes from step to step of a denoiser, for the denoiser: at first the host's value. Its
    /// place is among the states of all loops.
    Loop { state: usize },
    /// The same as the denoiser's last step left it, for other components.
    LoopResult { state: usize },
    /// What this component's output was in the pass that began the sequence; in that pass nothing,
    /// of the shape that `dims` give.
    Held { output: usize },
    /// Whether there is anything in the caches: bool, in every element.
    CacheBranch { rank: usize },
    /// A number of tokens, int32 or int64, in a tensor of one element.
    Length { of: LengthOf, rank: usize },
    /// Ones of the shape that `dims` give.
    Ones,
    /// The timestep of the denoiser's step, in every element.
    Timestep,
    /// The host's value. Not required: the graph has a default.
    Request { required: bool },
}

/// What the loop over frames feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NestedFeed {
    /// To the decoder, with a pre-embedder: what that made of the frame before, `[1, S, H]`.
    OuterEmbeds,
    /// To the inner decoder: the decoder's hidden state, then its own embeddings, `[1, 1, H]`.
    InnerEmbeds,
    /// To the pre-embedder: the frame before, `[1, groups]`.
    FrameCodes,
    /// To the pre-embedder: a row of text, `[1, 1, H]`.
    TextEmbed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OutputRef {
    pub component: usize,
    pub output: usize,
}

/// Where this token stands, there is the next row of the features instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    pub token: i32,
    pub features: OutputRef,
}

/// Zeros for an input whose modality the request does not bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absent {
    pub modality: String,
    pub dims: Vec<InputDim>,
    /// Whether they stand in too where the caches hold tokens already.
    pub first_pass_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputDim {
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
        /// The input that it is read from, if the component makes it longer where it lies, or if
        /// it is a buffer; then nothing else reads it in a step.
        in_place: Option<usize>,
        /// Past and present are all of a buffer's memory; else they are the rows that there are.
        buffer: Option<Buffer>,
    },
    /// What the pass that begins a sequence makes is held for the passes after it.
    Held,
    /// The next step's recurrent state, of this shape.
    State {
        shape: Shape,
    },
}

/// A cache of which past and present have the shape of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// Rows, where the graph fixes them; else there are as many as are needed.
    pub capacity: Option<usize>,
    /// Whether the component writes the present where the past lies; else two buffers take turns.
    pub shared: bool,
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
