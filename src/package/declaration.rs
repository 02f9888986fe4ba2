//! What a package says, before its graphs are known: names are still names.

use std::collections::HashMap;

use crate::generation::SamplingOptions;
use crate::media::ImagePlaceholders;
use crate::media::audio::AudioProgram;
use crate::media::image::ImageProgram;
use crate::runtime::OrtSettings;

use super::Location;
use super::scheduler::Scheduler;

/// A value and where it was said.
#[derive(Clone, Debug)]
pub(crate) struct Said<T> {
    pub value: T,
    pub at: Location,
}

/// When a component runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Once for the prompt; its outputs are held.
    PromptOnly,
    /// In every step, over the step's tokens.
    EveryStep,
    /// When the caller asks for the final outputs.
    FinalOnly,
    /// When the caller asks for this component.
    OnDemand,
}

impl Phase {
    /// As package metadata writes it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::PromptOnly => "prompt_only",
            Phase::EveryStep => "every_step",
            Phase::FinalOnly => "final_only",
            Phase::OnDemand => "on_demand",
        }
    }
}

/// A whole package as declared.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    /// In the file's order; never empty.
    pub components: Vec<ComponentDeclaration>,
    /// Indices of the components.
    pub by_name: HashMap<String, usize>,
    pub edges: Vec<EdgeDeclaration>,
    pub strategy: StrategyDeclaration,
    /// Whether `position_ids` of three axes may be fed the same linear positions on each.
    pub linear_positions: bool,
    /// How positions that the host's processor gives go on behind the last of them.
    pub coordinates: Option<Continuation>,
    /// The decoder's input that the positions are for, if `pipeline.positions` names it.
    pub positions_input: Option<Said<String>>,
    /// The most tokens that a sequence may have.
    pub context_length: Option<u64>,
    pub generation: GenerationDefaults,
    pub eos_token_ids: Vec<Said<i32>>,
    /// Token ids of a role, by the names of [`TOKEN_ROLES`].
    pub token_roles: Vec<(&'static str, i32)>,
    pub media: MediaDeclaration,
}

/// What becomes of the images and the sound that a host gives.
#[derive(Clone, Debug, Default)]
pub(crate) struct MediaDeclaration {
    pub image: Option<ProgramDeclaration<ImageProgram>>,
    pub audio: Option<ProgramDeclaration<AudioProgram>>,
    pub vision: Option<Said<ImagePlaceholders>>,
}

/// A program, of images or of sound.
#[derive(Clone, Debug)]
pub(crate) struct ProgramDeclaration<Program> {
    pub program: Program,
    /// The input of each of the program's outputs.
    pub ports: Vec<OutputPort>,
}

/// The input that an output of a program is for.
#[derive(Clone, Debug)]
pub(crate) struct OutputPort {
    pub address: Said<Address>,
    /// Whether the output is left out where the graph has no such input.
    pub optional: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ComponentDeclaration {
    pub name: String,
    pub at: Location,
    pub file: Said<String>,
    /// The package's word for it; may be empty.
    pub component_type: String,
    pub tokenizer: Option<Said<String>>,
    /// `None` leaves it to the defaults.
    pub phase: Option<Said<Phase>>,
    pub when_present: Option<Said<String>>,
    pub io: IoDeclaration,
    /// For ONNX Runtime, where that runs it.
    pub ort: OrtSettings,
}

impl ComponentDeclaration {
    /// With nothing said of it but what every component has.
    pub fn new(name: &str, component_type: &str, at: Location, file: Said<String>) -> Self {
        ComponentDeclaration {
            name: name.to_owned(),
            at,
            file,
            component_type: component_type.to_owned(),
            tokenizer: None,
            phase: None,
            when_present: None,
            io: IoDeclaration::default(),
            ort: OrtSettings::default(),
        }
    }
}

/// Port bindings of a component.
#[derive(Clone, Debug, Default)]
pub(crate) struct IoDeclaration {
    pub sequence_source: Option<Said<SequenceSource>>,
    pub token_input: Option<Said<String>>,
    pub inputs_embeds_input: Option<Said<String>>,
    pub attention_mask_input: Option<Said<String>>,
    pub position_ids_input: Option<Said<String>>,
    pub logits_output: Option<Said<String>>,
    pub hidden_output: Option<Said<String>>,
    pub encoder_hidden_states_input: Option<Said<String>>,
    pub audio_features_input: Option<Said<String>>,
    pub kv_inputs: Vec<Said<String>>,
    pub kv_outputs: Vec<Said<String>>,
    pub kv_layout: KvLayout,
    pub kv_update: KvUpdate,
    /// Sizes of caches, for ports that leave them open.
    pub kv_heads: Option<i64>,
    pub kv_head_size: Option<i64>,
    pub cross_kv_inputs: Vec<Said<String>>,
    pub cross_kv_outputs: Vec<Said<String>>,
    pub state_pairs: Vec<StatePair>,
    pub optional_inputs: Vec<OptionalInput>,
    /// Inputs that are told how many tokens there are.
    pub lengths: Vec<LengthInput>,
    /// Inputs of values that come from outside of the package.
    pub given_inputs: Vec<Said<String>>,
    /// Inputs that are ones, as long as what their dims' names say.
    pub ones_inputs: Vec<Said<String>>,
    /// The input that tells whether there is anything in the caches.
    pub cache_branch_input: Option<Said<String>>,
    /// Rows that take the places of tokens' embeddings in `inputs_embeds_input`.
    pub merges: Vec<MergeDeclaration>,
}

/// Where this token stands, there is the next row of the features instead.
#[derive(Clone, Debug)]
pub(crate) struct MergeDeclaration {
    pub token: Said<i32>,
    pub features: Address,
}

/// An integer input of one element: a number of tokens.
#[derive(Clone, Debug)]
pub(crate) struct LengthInput {
    pub port: Said<String>,
    pub of: LengthOf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LengthOf {
    /// Those in the caches.
    Past,
    /// Those that this step feeds.
    Current,
    /// Both together.
    Total,
    /// One less than both together: the last token's position.
    Last,
}

impl LengthOf {
    /// As package metadata writes it.
    pub fn name(self) -> &'static str {
        match self {
            LengthOf::Past => "past",
            LengthOf::Current => "current",
            LengthOf::Total => "total",
            LengthOf::Last => "last",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequenceSource {
    TokenIds,
    InputsEmbeds,
}

/// The position behind one, where positions lie on several axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Continuation {
    /// One more on each axis.
    LinearIncrement,
    /// One more than the largest position on any axis so far, on all of them: also what comes
    /// behind a grid.
    CarryMax,
    /// As `CarryMax`; and where the host gives no positions, they are those of the images among the
    /// tokens.
    FromGrid,
}

impl Continuation {
    pub const NAMES: [(&'static str, Continuation); 3] = [
        ("linear_increment", Continuation::LinearIncrement),
        ("carry_max", Continuation::CarryMax),
        ("from_grid", Continuation::FromGrid),
    ];

    /// As package metadata writes it.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, one)| *one == self);
        found.map_or("", |(name, _)| name)
    }
}

/// How present comes of past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KvUpdate {
    /// It is the past and the new rows behind it.
    #[default]
    Append,
    /// Both are one buffer of full capacity, in which the new rows are written.
    SharedBuffer,
}

/// How a rank-4 cache lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KvLayout {
    /// `[batch, heads, sequence, head size]`
    #[default]
    HeadMajor,
    /// `[batch, sequence, heads, head size]`
    SequenceMajor,
    /// Elements from one batch, head, position and element of a head to the next.
    Strides([i64; 4]),
}

impl KvLayout {
    /// The axis of the sequence in a cache of this rank.
    pub fn sequence_axis(self, rank: usize) -> usize {
        const SEQUENCE: usize = 2;
        match self {
            // Heads and their size in one dim.
            _ if rank == 3 => 1,
            KvLayout::HeadMajor => 2,
            KvLayout::SequenceMajor => 1,
            KvLayout::Strides(strides) => {
                let own = strides.get(SEQUENCE).copied().unwrap_or(0);
                strides.iter().filter(|&&stride| stride > own).count()
            }
        }
    }

    /// The strides that a tensor of this layout has, by axis.
    pub fn strides_by_axis(self) -> Option<[i64; 4]> {
        let KvLayout::Strides(mut strides) = self else {
            return None;
        };
        strides.sort_unstable_by(|a, b| b.cmp(a));
        Some(strides)
    }
}

/// Recurrent state of a fixed size: zeros at first, then the output takes its place.
#[derive(Clone, Debug)]
pub(crate) struct StatePair {
    pub input: Said<String>,
    pub output: Said<String>,
}

/// An input that is zeros when the request does not bring its modality.
#[derive(Clone, Debug)]
pub(crate) struct OptionalInput {
    pub port: Said<String>,
    pub modality: String,
    pub shape: Vec<ZeroDim>,
    /// Whether only the pass that begins a sequence gets the value, and later ones the zeros.
    pub first_pass_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ZeroDim {
    Fixed(i64),
    /// A dim that another input of the component has under this name.
    Symbol(String),
}

/// `component.port`, split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub component: String,
    pub port: String,
}

#[derive(Clone, Debug)]
pub(crate) struct EdgeDeclaration {
    pub from: Said<Address>,
    pub to: Said<Address>,
    /// The type that the edge says it carries.
    pub dtype: Option<Said<crate::component::DataType>>,
}

#[derive(Clone, Debug)]
pub(crate) struct StrategyDeclaration {
    pub kind: StrategyKind,
    /// The component that chooses tokens, where the strategy names it.
    pub decoder: Option<Said<String>>,
    /// The component that stands in for the decoder while the caches are empty.
    pub first_pass: Option<Said<String>>,
    /// The component of a `single_pass`.
    pub model: Option<Said<String>>,
    /// Components that the stages of a composite name.
    pub staged: Vec<Said<String>>,
    /// The loops of `iterative` strategies, one alone or those of a composite's stages, in order.
    pub iterative: Vec<IterativeDeclaration>,
    /// What the decoder's steps have inside, if they are frames of codes.
    pub nested: Option<NestedDeclaration>,
    /// Tokens to choose.
    pub max_tokens: Option<u64>,
    pub at: Location,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrategyKind {
    Autoregressive,
    /// A token loop whose every step has an inner one.
    Nested,
    SinglePass,
    Iterative,
    /// With a token loop among its stages, or without.
    Composite {
        token_loop: bool,
    },
}

/// A denoiser that runs again and again over what it made.
#[derive(Clone, Debug)]
pub(crate) struct IterativeDeclaration {
    /// The component, where the strategy names it.
    pub denoiser: Option<Said<String>>,
    pub num_steps: usize,
    pub start_step: usize,
    pub timestep_input: Option<Said<String>>,
    /// One for each of the steps.
    pub timesteps: Option<Said<Vec<f64>>>,
    pub scheduler: Option<Said<Scheduler>>,
    /// The input that tells what to make, and what guidance leaves out once.
    pub conditioning_input: Option<Said<String>>,
    /// 1: no guidance.
    pub guidance_scale: f64,
    /// Whether it is a stage that comes after the one that chooses tokens.
    pub after_tokens: bool,
    pub at: Location,
}

/// Frames of codes: each token of the decoder, the outer one, begins a short loop of another,
/// the inner one, over its own embeddings.
#[derive(Clone, Debug)]
pub(crate) struct NestedDeclaration {
    pub inner: Said<String>,
    /// The inner decoder's output that is its next step's input.
    pub embedding_output: Said<String>,
    /// Codes of a frame, at least 1.
    pub groups: usize,
    pub pre_embedder: Option<PreEmbedderDeclaration>,
    pub prefill_embedder: Option<PrefillEmbedderDeclaration>,
    pub at: Location,
}

/// Who makes the outer decoder's input of the frame before.
#[derive(Clone, Debug)]
pub(crate) struct PreEmbedderDeclaration {
    pub component: Said<String>,
    pub frame_codes_input: Said<String>,
    pub text_embed_input: Option<Said<String>>,
}

/// Who makes the outer decoder's first input of the prompt, and a row of text for each frame.
#[derive(Clone, Debug)]
pub(crate) struct PrefillEmbedderDeclaration {
    pub component: Said<String>,
    pub prompt_input: Said<String>,
    pub prefill_output: Said<String>,
    pub trailing_output: Said<String>,
}

/// Roles of tokens that a package may name, those that end the text apart.
pub(crate) const TOKEN_ROLES: [&str; 7] = [
    "pad_token_id",
    "bos_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
];

/// The author's defaults for generation, as far as the package says any.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GenerationDefaults {
    pub sampling: SamplingOptions,
    /// What tokens are drawn from.
    pub seed: Option<u64>,
    /// Tokens of prompt and answer together.
    pub max_length: Option<u64>,
}
