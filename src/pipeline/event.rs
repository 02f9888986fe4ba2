use std::time::Duration;

use crate::generation::FinishReason;

/// What a step did.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The chosen token; `None` for a package without a token loop.
    pub token: Option<i32>,
    /// Text that has become certain with this token, without special tokens unless
    /// [`RunSettings`](super::RunSettings) keep them; often empty, always so without a tokenizer.
    /// What may become a stop string is held back, and the event that finishes brings what is
    /// left.
    pub text: String,
    /// Bytes of the turn's text in the events before: the turn's text is that of its chosen
    /// tokens.
    pub text_offset: u64,
    /// Whether a constraint left no choice: the model was not asked, and `logprob` is 0.
    pub forced: bool,
    /// Natural logarithm of the chosen token's probability under softmax of the logits;
    /// 0 when there is no token.
    pub logprob: f32,
    /// Where the loop of an iterative package is; `None` for others.
    pub progress: Option<Progress>,
    /// The codes of this frame, in a package whose steps are frames of codes; empty for others,
    /// and for the frame whose token ends the text.
    pub codes: Vec<i64>,
    /// Set when the run is finished with this event.
    pub finish: Option<FinishReason>,
    pub usage: Usage,
    pub timings: Timings,
}

/// How far a loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Steps up to and with the one that was taken, those left out by `start_step` included.
    pub done: usize,
    /// Steps in all.
    pub count: usize,
}

/// Tokens counted over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens that the host appended.
    pub prompt_tokens: u64,
    /// Tokens that were chosen.
    pub generated_tokens: u64,
}

/// Where the time of one step went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// prompt_only components; zero unless they ran in this step.
    pub prompt_components: Duration,
    /// every_step components other than the decoder or the denoiser.
    pub step_components: Duration,
    /// The decoder, or the denoiser.
    pub decoder: Duration,
    /// The whole step.
    pub total: Duration,
}
