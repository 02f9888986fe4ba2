//! From logits to a token, and when to stop.
//!
//! And from a model's output to the next sample of a diffusion, of floats or of tokens. Knows
//! nothing of components: it takes `f32` logits and token ids, `f32` samples and outputs.

mod beams;
mod distribution;
mod exponential;
mod greedy;
mod logprobs;
mod lookup;
mod mask;
mod masked;
mod noise;
mod nucleus;
mod options;
mod plan;
mod processors;
mod random;
mod sampler;
mod schedulers;
mod select;
mod state;
mod stop;
mod truncation;

pub use beams::BeamSequence;
pub(crate) use beams::{BeamSearch, BeamStep, Beams};
pub(crate) use greedy::log_probability;
pub use greedy::{Choice, greedy};
pub use logprobs::{Logprobs, TokenLogprob};
pub use lookup::prompt_lookup;
pub use mask::TokenMask;
pub(crate) use masked::{Draws, MaskedDiffusion, Remasking};
pub(crate) use noise::Noise;
pub use options::{EarlyStopping, OptionError, SamplingOptions};
pub(crate) use options::{Field, MOST_BIAS, SAMPLING_OPTIONS};
pub use random::{Purpose, uniform};
pub use sampler::{HostSampler, LogitsHook, SampleError, Sampler};
pub(crate) use schedulers::{Schedule, ScheduleError, Step};
pub use state::SamplerState;
pub use stop::{FinishReason, StopConditions};
