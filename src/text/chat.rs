use super::{SpecialTokens, TextError};

/// A chat template: Jinja, as Hugging Face's tokenizers use it. Shared.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
}

/// What a chat template is filled in with.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChatRequest<'a> {
    /// JSON array of `{"role": ..., "content": ...}`, with whatever else the template reads.
    pub messages: &'a str,
    /// JSON array of tools, or `None`.
    pub tools: Option<&'a str>,
    /// JSON object of further template variables, or `None`. They win over the others
    /// (`{"bos_token": ""}`).
    pub extra: Option<&'a str>,
    /// Whether to end with the opening of the assistant's answer.
    pub add_generation_prompt: bool,
}

impl ChatTemplate {
    /// Parses a template; `label` is the file it is from, for messages.
    pub fn new(label: &str, source: &str, special: &SpecialTokens) -> Result<Self, TextError> {
        let _ = (label, special);
        Ok(ChatTemplate {
            source: source.to_owned(),
        })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt's text. Encode it with `add_special = false`: the template wrote the
    /// special tokens.
    pub fn render(&self, request: &ChatRequest<'_>) -> Result<String, TextError> {
        let _ = request;
        todo!()
    }
}
