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

impl FinishReason {
    /// A phrase for messages.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::EndOfText { .. } => "end of text",
            FinishReason::MaxTokens => "max tokens",
            FinishReason::ContextFull => "context full",
            FinishReason::Completed => "completed",
        }
    }
}

/// When a run is finished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopConditions {
    /// Any of these ends the text; empty to never stop on a token.
    pub end_tokens: Vec<i32>,
    /// Tokens to choose in one turn.
    pub max_tokens: Option<u64>,
    /// Tokens of prompt and answer together.
    pub max_length: Option<u64>,
    /// The most tokens that the model takes.
    pub context_length: Option<u64>,
}

impl StopConditions {
    /// Whether a run is finished after choosing `token` as the `in_turn`-th of its turn and
    /// the `length`-th of the sequence. An end token comes before a limit.
    pub fn check(&self, token: i32, in_turn: u64, length: u64) -> Option<FinishReason> {
        if let Some(index) = self.end_tokens.iter().position(|&end| end == token) {
            return Some(FinishReason::EndOfText { index });
        }
        let reached = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value >= limit);
        if reached(self.max_tokens, in_turn) || reached(self.max_length, length) {
            return Some(FinishReason::MaxTokens);
        }
        reached(self.context_length, length).then_some(FinishReason::ContextFull)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_tokens_come_before_limits() {
        let stop = StopConditions {
            end_tokens: vec![9, 7],
            max_tokens: Some(2),
            max_length: None,
            context_length: Some(5),
        };
        assert_eq!(stop.check(1, 1, 4), None);
        assert_eq!(stop.check(7, 2, 5), Some(FinishReason::EndOfText { index: 1 }));
        assert_eq!(stop.check(1, 2, 4), Some(FinishReason::MaxTokens));
        assert_eq!(stop.check(1, 1, 5), Some(FinishReason::ContextFull));
        assert_eq!(StopConditions::default().check(7, 1 << 40, 1 << 40), None);
    }
}
