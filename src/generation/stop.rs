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
    /// The text has come to a stop string; `index` is its place in the host's list.
    StopString { index: usize },
    /// The last tokens are a stop sequence; `index` is its place in the host's list.
    StopTokens { index: usize },
    /// The sequence is as long as was allowed.
    MaxLength,
    /// The constraint is complete: nothing that may follow fits it.
    ConstraintEnd,
}

impl FinishReason {
    /// A phrase for messages.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::EndOfText { .. } => "end of text",
            FinishReason::MaxTokens => "max tokens",
            FinishReason::ContextFull => "context full",
            FinishReason::Completed => "completed",
            FinishReason::StopString { .. } => "stop string",
            FinishReason::StopTokens { .. } => "stop tokens",
            FinishReason::MaxLength => "max length",
            FinishReason::ConstraintEnd => "end of the constraint",
        }
    }
}

/// When a run is finished by its tokens. (What ends it by its text is
/// [`StopStrings`](crate::text::StopStrings).)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopConditions {
    /// Any of these ends the text; empty to never stop on a token.
    pub end_tokens: Vec<i32>,
    /// Any of these, none of which is empty, ends a turn that ends with it.
    pub sequences: Vec<Vec<i32>>,
    /// Tokens to choose in one turn.
    pub max_tokens: Option<u64>,
    /// Tokens of prompt and answer together.
    pub max_length: Option<u64>,
    /// The most tokens that the model takes.
    pub context_length: Option<u64>,
}

impl StopConditions {
    /// Whether a run is finished with `token`, after those of the `turn`, which were chosen since
    /// the host last appended some, as the `length`-th of the sequence. An end token comes before
    /// a stop sequence, and that before a limit; of several sequences the first in the list.
    pub fn check(&self, turn: &[i32], token: i32, length: u64) -> Option<FinishReason> {
        if let Some(index) = self.end_tokens.iter().position(|&end| end == token) {
            return Some(FinishReason::EndOfText { index });
        }
        let is_end = |stop: &Vec<i32>| {
            let split = stop.split_last();
            split.is_some_and(|(&last, rest)| last == token && turn.ends_with(rest))
        };
        if let Some(index) = self.sequences.iter().position(is_end) {
            return Some(FinishReason::StopTokens { index });
        }
        let reached = |limit: Option<u64>, value: u64| limit.is_some_and(|limit| value >= limit);
        if reached(self.max_tokens, turn.len() as u64 + 1) {
            return Some(FinishReason::MaxTokens);
        }
        if reached(self.max_length, length) {
            return Some(FinishReason::MaxLength);
        }
        reached(self.context_length, length).then_some(FinishReason::ContextFull)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_tokens_come_before_sequences_and_those_before_limits() {
        let stop = StopConditions {
            end_tokens: vec![9, 7],
            sequences: vec![vec![4, 4], vec![1, 2, 3], vec![3]],
            max_tokens: Some(3),
            max_length: Some(7),
            context_length: Some(8),
        };
        for (turn, token, length, expected) in [
            (&[] as &[i32], 1, 4, None),
            (&[1, 2], 7, 8, Some(FinishReason::EndOfText { index: 1 })),
            (&[1, 2], 3, 8, Some(FinishReason::StopTokens { index: 1 })),
            (&[], 3, 8, Some(FinishReason::StopTokens { index: 2 })),
            (&[], 4, 5, None),
            (&[5, 5], 5, 8, Some(FinishReason::MaxTokens)),
            (&[], 5, 7, Some(FinishReason::MaxLength)),
        ] {
            assert_eq!(stop.check(turn, token, length), expected, "{turn:?} {token}");
        }
        let model = StopConditions {
            context_length: Some(8),
            ..StopConditions::default()
        };
        assert_eq!(model.check(&[], 1, 7), None);
        assert_eq!(model.check(&[], 1, 8), Some(FinishReason::ContextFull));
        assert_eq!(StopConditions::default().check(&[], 7, 1 << 40), None);
    }
}
