//! From logits to a token, and when to stop.
//!
//! Knows nothing of components: it takes `f32` logits and token ids.

mod greedy;
mod stop;

pub(crate) use greedy::log_probability;
pub use greedy::{Choice, NanLogit, greedy};
pub use stop::{FinishReason, StopConditions};
