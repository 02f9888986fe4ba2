//! From logits to a token, and when to stop.
//!
//! And from a model's output to the next sample of a diffusion, of floats or of tokens. Knows
//! nothing of components: it takes `f32` logits and token ids, `f32` samples and outputs.

mod greedy;
mod masked;
mod noise;
mod schedulers;
mod stop;

pub(crate) use greedy::log_probability;
pub use greedy::{Choice, NanLogit, greedy};
pub(crate) use masked::{Draws, MaskedDiffusion, Remasking};
pub(crate) use noise::Noise;
pub(crate) use schedulers::{Schedule, ScheduleError, Step};
pub use stop::{FinishReason, StopConditions};
