//! From logits to a token, and when to stop.
//!
//! Knows nothing of components: it takes `f32` logits and token ids.

/// Why a run stopped choosing tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// The chosen token ends the text; `index` is its place in the package's list of end
    /// tokens.
    EndOfText { index: usize },
    /// As many tokens were chosen as were allowed.
    MaxTokens,
    /// The sequence is as long as the model takes.
    ContextFull,
    /// A package without a token loop has run.
    Completed,
}
