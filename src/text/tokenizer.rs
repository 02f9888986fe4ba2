use std::path::Path;
use std::sync::Arc;

use super::{DecodeStream, TextError};

/// Ids and texts of the tokens with a role, as far as the tokenizer's files name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    pub bos: Option<(i32, String)>,
    pub eos: Option<(i32, String)>,
    pub pad: Option<(i32, String)>,
    pub unk: Option<(i32, String)>,
    pub sep: Option<(i32, String)>,
}

/// A Hugging Face tokenizer (`tokenizer.json`). Shared: any thread may use it.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    special: SpecialTokens,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, and `tokenizer_config.json` beside it for the roles of
    /// special tokens, if that is there.
    pub fn from_file(path: &Path) -> Result<Arc<Self>, TextError> {
        let _ = path;
        todo!()
    }

    /// From the bytes of `tokenizer.json` and, if there is one, `tokenizer_config.json`.
    /// `label` is what messages call it.
    pub fn from_bytes(label: &str, tokenizer: &[u8], config: Option<&[u8]>) -> Result<Arc<Self>, TextError> {
        let _ = (label, tokenizer, config);
        todo!()
    }

    /// Token ids of `text`. With `add_special` the tokenizer's template adds its tokens
    /// (a BOS, say); special tokens that stand in the text are found either way.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<i32>, TextError> {
        let _ = (text, add_special);
        todo!()
    }

    /// Text of `ids`; with `skip_special`, without the special tokens. An id outside of
    /// the vocabulary is an error.
    pub fn decode(&self, ids: &[i32], skip_special: bool) -> Result<String, TextError> {
        let _ = (ids, skip_special);
        todo!()
    }

    /// A decoder that takes one token at a time and keeps this tokenizer alive.
    pub fn decode_stream(self: &Arc<Self>, skip_special: bool) -> DecodeStream {
        let _ = skip_special;
        todo!()
    }

    /// Tokens that have an id, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The text of a token as the vocabulary writes it.
    pub fn id_to_token(&self, id: i32) -> Option<String> {
        self.inner.id_to_token(u32::try_from(id).ok()?)
    }

    /// The id of a token as the vocabulary writes it.
    pub fn token_to_id(&self, token: &str) -> Option<i32> {
        i32::try_from(self.inner.token_to_id(token)?).ok()
    }

    /// Whether decoding with `skip_special` leaves the token out.
    pub fn is_special(&self, id: i32) -> bool {
        let _ = id;
        todo!()
    }

    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }
}
