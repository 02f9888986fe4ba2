use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokenizers::{Encoding, PostProcessor, PostProcessorWrapper, TruncationDirection, TruncationParams};

use crate::component::{TEXT_LIMIT, TOKENIZER_LIMIT, read_regular};
use crate::panics::contain;

use super::{DecodeStream, TextError, token_bytes, tokenizer_file};

/// Ids and texts of the tokens with a role, as far as the tokenizer's files name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    pub bos: Option<(i32, String)>,
    pub eos: Option<(i32, String)>,
    pub pad: Option<(i32, String)>,
    pub unk: Option<(i32, String)>,
    pub sep: Option<(i32, String)>,
}

impl SpecialTokens {
    /// Role, as `tokenizer_config.json` and chat templates write it, and token.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &(i32, String))> {
        [
            ("bos_token", &self.bos),
            ("eos_token", &self.eos),
            ("pad_token", &self.pad),
            ("unk_token", &self.unk),
            ("sep_token", &self.sep),
        ]
        .into_iter()
        .filter_map(|(role, token)| Some((role, token.as_ref()?)))
    }
}

/// A Hugging Face tokenizer (`tokenizer.json`). Shared: any thread may use it.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    special: SpecialTokens,
    /// Taken out of `inner`, so that texts can be cut off before it.
    post_processor: Option<PostProcessorWrapper>,
    /// What the file says of texts that are too long.
    truncation: Option<TruncationParams>,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, and `tokenizer_config.json` beside it for the roles of
    /// special tokens, if that is there.
    pub fn from_file(path: &Path) -> Result<Arc<Self>, TextError> {
        let read = |path: &Path, limit: u64| {
            read_regular(path, limit).map_err(|source| TextError::Io {
                path: path.to_owned(),
                source,
            })
        };
        let tokenizer = read(path, TOKENIZER_LIMIT)?;
        let config_path = path.with_file_name("tokenizer_config.json");
        let config = if config_path.exists() {
            Some(read(&config_path, TEXT_LIMIT)?)
        } else {
            None
        };
        Self::from_bytes(&path.display().to_string(), &tokenizer, config.as_deref())
    }

    /// From the bytes of `tokenizer.json` and, if there is one, `tokenizer_config.json`.
    /// `label` is what messages call it.
    pub fn from_bytes(label: &str, tokenizer: &[u8], config: Option<&[u8]>) -> Result<Arc<Self>, TextError> {
        let bad = |message: String| TextError::BadTokenizer {
            file: label.to_owned(),
            message,
        };
        tokenizer_file::check(tokenizer).map_err(bad)?;
        let mut inner = guarded(|| tokenizers::Tokenizer::from_bytes(tokenizer)).map_err(bad)?;
        // What a training script left in the file is for batches: here a text is encoded
        // as it is.
        inner.with_padding(None);
        let truncation = inner.get_truncation().cloned();
        inner
            .with_truncation(None)
            .map_err(|error| bad(error.to_string()))?;
        let post_processor = inner.get_post_processor().cloned();
        inner.with_post_processor(None::<PostProcessorWrapper>);
        let special = match config {
            Some(config) => {
                read_special_tokens(&inner, config).map_err(|message| TextError::BadTokenizer {
                    file: format!("tokenizer_config.json beside {label}"),
                    message,
                })?
            }
            None => SpecialTokens::default(),
        };
        Ok(Arc::new(Tokenizer {
            inner,
            post_processor,
            special,
            truncation,
        }))
    }

    /// Token ids of `text`. With `add_special` the tokenizer's template adds its tokens
    /// (a BOS, say); special tokens that stand in the text are found either way.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<i32>, TextError> {
        let encode_error = |message: String| TextError::Encode { message };
        let encoding = guarded(|| {
            let encoding = self.inner.encode_fast(text, false)?;
            self.post_process(encoding, add_special)
        });
        ids_of(&encoding.map_err(encode_error)?)
    }

    /// The most tokens that the file says a text has for the model.
    pub fn max_length(&self) -> Option<usize> {
        let truncation = self.truncation.as_ref();
        // No tokens at all would be no text.
        truncation
            .map(|truncation| truncation.max_length)
            .filter(|&most| most > 0)
    }

    /// The same with the template's special tokens, and of the text itself no more than there is
    /// room for beside them in `most` tokens: its first, unless the file says its last.
    pub fn encode_up_to(&self, text: &str, most: usize) -> Result<Vec<i32>, TextError> {
        let direction = self.truncation.as_ref().map(|truncation| truncation.direction);
        let encoding = guarded(|| {
            let mut encoding = self.inner.encode_fast(text, false)?;
            let added = self.post_processor.as_ref();
            let added = added.map_or(0, |processor| processor.added_tokens(false));
            let room = most.saturating_sub(added);
            encoding.truncate(room, 0, direction.unwrap_or(TruncationDirection::Right));
            // Nobody reads the rest, and a template would be put around each part of it.
            encoding.take_overflowing();
            self.post_process(encoding, true)
        });
        let encoding = encoding.map_err(|message| TextError::Encode { message })?;
        ids_of(&encoding)
    }

    /// What the file does to the tokens of a text: once, as a template may repeat them.
    fn post_process(&self, encoding: Encoding, add_special: bool) -> tokenizers::Result<Encoding> {
        match &self.post_processor {
            Some(processor) => processor.process(encoding, None, add_special),
            None => Ok(encoding),
        }
    }

    /// Text of `ids`; with `skip_special`, without the special tokens. An id outside of
    /// the vocabulary is an error.
    pub fn decode(&self, ids: &[i32], skip_special: bool) -> Result<String, TextError> {
        let ids = ids
            .iter()
            .map(|&id| self.known_id(id))
            .collect::<Result<Vec<_>, _>>()?;
        self.decode_known(&ids, skip_special)
    }

    /// A decoder that takes one token at a time and keeps this tokenizer alive.
    pub fn decode_stream(self: &Arc<Self>, skip_special: bool) -> DecodeStream {
        DecodeStream::new(self.clone(), skip_special)
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
        u32::try_from(id).is_ok_and(|id| self.skips(id))
    }

    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.special
    }

    pub(super) fn known_id(&self, id: i32) -> Result<u32, TextError> {
        u32::try_from(id)
            .ok()
            .filter(|&id| self.inner.id_to_token(id).is_some())
            .ok_or_else(|| TextError::UnknownToken {
                id,
                size: self.vocab_size(),
            })
    }

    /// Whether decoding with `skip_special` leaves this id out.
    pub(super) fn skips(&self, id: u32) -> bool {
        self.inner
            .id_to_token(id)
            .is_some_and(|token| self.inner.get_added_vocabulary().is_special_token(&token))
    }

    /// Whether the token stands for a byte: `<0x00>` to `<0xFF>`.
    pub(super) fn is_byte_token(&self, id: u32) -> bool {
        let token = self.inner.id_to_token(id);
        token.is_some_and(|token| token_bytes::byte_of(&token).is_some())
    }

    pub(super) fn inner(&self) -> &tokenizers::Tokenizer {
        &self.inner
    }

    pub(super) fn decode_known(&self, ids: &[u32], skip_special: bool) -> Result<String, TextError> {
        guarded(|| self.inner.decode(ids, skip_special)).map_err(|message| TextError::Decode { message })
    }
}

fn ids_of(encoding: &Encoding) -> Result<Vec<i32>, TextError> {
    let id = |&id: &u32| {
        i32::try_from(id).map_err(|_| TextError::Encode {
            message: format!("token id {id} is above 2^31 - 1"),
        })
    };
    encoding.get_ids().iter().map(id).collect()
}

/// Calls the `tokenizers` crate, which panics on some files that it has accepted (a `Strip`
/// decoder that takes more letters than a token has, a `Precompiled` normalizer whose trie
/// leads out of itself). It keeps no state between calls but caches behind locks of its own.
fn guarded<R>(call: impl FnOnce() -> tokenizers::Result<R>) -> Result<R, String> {
    match contain(call) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(format!(
            "the tokenizers library failed on what tokenizer.json says about its normalizer, pre_tokenizer, \
             model, post_processor or decoder ({panic})"
        )),
    }
}

/// The roles in `tokenizer_config.json`: a token's text, or an object with `content`. A
/// role whose token has no id is left out, as is one that says null.
fn read_special_tokens(tokenizer: &tokenizers::Tokenizer, config: &[u8]) -> Result<SpecialTokens, String> {
    let config: Map<String, Value> = serde_json::from_slice(config).map_err(|error| error.to_string())?;
    let role = |key: &str| {
        let token = config.get(key)?;
        let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
        let id = i32::try_from(tokenizer.token_to_id(text)?).ok()?;
        Some((id, text.to_owned()))
    };
    Ok(SpecialTokens {
        bos: role("bos_token"),
        eos: role("eos_token"),
        pad: role("pad_token"),
        unk: role("unk_token"),
        sep: role("sep_token"),
    })
}
