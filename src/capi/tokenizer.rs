//! Tokenizers: text to token ids and back.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::Arc;

use crate::text::Tokenizer;

use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::guard::{guard, guard_free};
use super::handle::{self, Object, Tag};
use super::memory::{Text, TextOut};
use super::pipeline::{PipelineObject, oxp_pipeline};
use super::run::flag;
use super::status::{OXP_ERR_OUT_OF_RANGE, OXP_ERR_UNSUPPORTED, oxp_status};
use super::strings::{Out, array, bytes, copy_out, copy_text, text};

/// Roles of special tokens: begin of sequence, end of sequence, padding, unknown, separator.
pub const OXP_TOKEN_BOS: u32 = 1;
pub const OXP_TOKEN_EOS: u32 = 2;
pub const OXP_TOKEN_PAD: u32 = 3;
pub const OXP_TOKEN_UNK: u32 = 4;
pub const OXP_TOKEN_SEP: u32 = 5;

/// A Hugging Face tokenizer. Shared: any thread, any number of calls at once.
pub struct oxp_tokenizer {
    _private: [u8; 0],
}

pub(super) struct TokenizerObject {
    pub tokenizer: Arc<Tokenizer>,
    /// In the order of the OXP_TOKEN_ codes.
    special: [Option<(i32, Text)>; 5],
    /// What a missing one's text is.
    empty: Text,
}

impl Object for TokenizerObject {
    type Opaque = oxp_tokenizer;
    const TAG: Tag = Tag::Tokenizer;
}

impl TokenizerObject {
    fn new(tokenizer: Arc<Tokenizer>) -> Self {
        let tokens = tokenizer.special_tokens();
        let special = [&tokens.bos, &tokens.eos, &tokens.pad, &tokens.unk, &tokens.sep]
            .map(|token| token.as_ref().map(|(id, text)| (*id, Text::verbatim(text))));
        TokenizerObject {
            special,
            empty: Text::new(""),
            tokenizer,
        }
    }
}

/// Opens a `tokenizer.json` at `path` (UTF-8), and `tokenizer_config.json` beside it for the
/// roles of special tokens, if that is there. Free it with oxp_tokenizer_free.
///
/// Errors: OXP_ERR_IO, OXP_ERR_TOKENIZER, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tokenizer_open(
    path: *const c_char,
    path_len: u64,
    tokenizer: *mut *mut oxp_tokenizer,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tokenizer_open", err, || {
            let out = Out::new(tokenizer, std::ptr::null_mut(), "tokenizer")?;
            let path = text(path, path_len, "path")?;
            let tokenizer = Tokenizer::from_file(Path::new(path))?;
            out.set(handle::create(TokenizerObject::new(tokenizer)));
            Ok(())
        })
    }
}

/// As oxp_tokenizer_open, from the bytes of `tokenizer.json` and of `tokenizer_config.json`;
/// `config` may be NULL if there is none. They are not kept.
///
/// Errors: OXP_ERR_TOKENIZER, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tokenizer_open_memory(
    json: *const c_void,
    json_len: u64,
    config: *const c_void,
    config_len: u64,
    tokenizer: *mut *mut oxp_tokenizer,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tokenizer_open_memory", err, || {
            let out = Out::new(tokenizer, std::ptr::null_mut(), "tokenizer")?;
            if json.is_null() {
                return Err(Failure::null("json"));
            }
            let json = bytes(json, json_len, "json")?;
            let config = match config.is_null() {
                true => None,
                false => Some(bytes(config, config_len, "config")?),
            };
            let tokenizer = Tokenizer::from_bytes("tokenizer.json", json, config)?;
            out.set(handle::create(TokenizerObject::new(tokenizer)));
            Ok(())
        })
    }
}

/// The tokenizer of a pipeline's package, as a handle of its own: free it with
/// oxp_tokenizer_free, before or after the pipeline.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package has none), OXP_ERR_INVALID_HANDLE,
/// OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tokenizer_open_pipeline(
    pipeline: *const oxp_pipeline,
    tokenizer: *mut *mut oxp_tokenizer,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tokenizer_open_pipeline", err, || {
            let out = Out::new(tokenizer, std::ptr::null_mut(), "tokenizer")?;
            let pipeline = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let Some(tokenizer) = pipeline.pipeline.tokenizer() else {
                return Err(Failure::new(
                    OXP_ERR_UNSUPPORTED,
                    "the package has no tokenizer; put a tokenizer.json into it, or open one of your own",
                ));
            };
            out.set(handle::create(TokenizerObject::new(tokenizer.clone())));
            Ok(())
        })
    }
}

/// Frees a tokenizer; its decode streams live on. NULL and what is no live tokenizer are
/// ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_tokenizer_free(tokenizer: *mut oxp_tokenizer) {
    guard_free::<TokenizerObject>(tokenizer);
}

/// Token ids of UTF-8 text, into `ids` of `capacity` ids; `needed` gets their number. Too
/// small a buffer is left untouched; NULL with capacity 0 asks. With `add_special` 1 the
/// tokenizer adds its own special tokens, with 0 it does not.
///
/// Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_TOKENIZER, OXP_ERR_INVALID_ARGUMENT,
/// OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tokenizer_encode_copy(
    tokenizer: *const oxp_tokenizer,
    text: *const c_char,
    text_len: u64,
    add_special: i32,
    ids: *mut i32,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tokenizer_encode_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let tokenizer = handle::get::<TokenizerObject>(tokenizer, "tokenizer")?;
            let text = self::text(text, text_len, "text")?;
            let found = tokenizer
                .tokenizer
                .encode(text, flag(add_special, "add_special")?)?;
            copy_out(&found, None, ids, capacity, &needed)
        })
    }
}

/// Text of `count` token ids, by the rule of strings out. With `skip_special` 1 special
/// tokens are left out.
///
/// Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_TOKENIZER (an id outside of the vocabulary),
/// OXP_ERR_INVALID_ARGUMENT, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tokenizer_decode_copy(
    tokenizer: *const oxp_tokenizer,
    ids: *const i32,
    count: u64,
    skip_special: i32,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tokenizer_decode_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let tokenizer = handle::get::<TokenizerObject>(tokenizer, "tokenizer")?;
            let ids = array(ids, count, "ids")?;
            let found = tokenizer
                .tokenizer
                .decode(&ids, flag(skip_special, "skip_special")?)?;
            copy_text(&found, buffer, capacity, &needed)
        })
    }
}

/// How many tokens have an id, added ones included.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tokenizer_get_vocab_size(
    tokenizer: *const oxp_tokenizer,
    size: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tokenizer_get_vocab_size", err, || {
            let out = Out::new(size, 0, "size")?;
            let tokenizer = handle::get::<TokenizerObject>(tokenizer, "tokenizer")?;
            out.set(tokenizer.tokenizer.vocab_size() as u64);
            Ok(())
        })
    }
}

/// The token with a role, an OXP_TOKEN_ code: `id` gets its id, or -1 if there is none;
/// `text`, which may be NULL, its text that ends with a NUL, borrowed until the tokenizer is
/// freed, "" if there is none; `text_len`, which may be NULL, the length in bytes.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (`role`), OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tokenizer_get_special(
    tokenizer: *const oxp_tokenizer,
    role: u32,
    id: *mut i32,
    text: *mut *const c_char,
    text_len: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tokenizer_get_special", err, || {
            let id = Out::new(id, -1, "id")?;
            let text = TextOut::optional(text, text_len);
            let tokenizer = handle::get::<TokenizerObject>(tokenizer, "tokenizer")?;
            let [bos, eos, pad, unk, sep] = &tokenizer.special;
            let found = match role {
                OXP_TOKEN_BOS => bos,
                OXP_TOKEN_EOS => eos,
                OXP_TOKEN_PAD => pad,
                OXP_TOKEN_UNK => unk,
                OXP_TOKEN_SEP => sep,
                other => {
                    return Err(Failure::argument(format!(
                        "there is no role {other}; the roles are OXP_TOKEN_BOS (1), _EOS (2), _PAD (3), _UNK \
                         (4), _SEP (5)"
                    )));
                }
            };
            id.set(found.as_ref().map_or(-1, |(id, _)| *id));
            text.set(found.as_ref().map_or(&tokenizer.empty, |(_, text)| text));
            Ok(())
        })
    }
}

/// The text of one token as the vocabulary writes it, by the rule of strings out.
///
/// Errors: OXP_ERR_OUT_OF_RANGE (no such id), OXP_ERR_BUFFER_TOO_SMALL,
/// OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tokenizer_token_copy(
    tokenizer: *const oxp_tokenizer,
    id: i32,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tokenizer_token_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let tokenizer = handle::get::<TokenizerObject>(tokenizer, "tokenizer")?;
            let token = token_text(&tokenizer, id)?;
            copy_text(&token, buffer, capacity, &needed)
        })
    }
}

/// The id of a token as the vocabulary writes it: `id` gets it, or -1 if there is none.
///
/// Errors: OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tokenizer_find_token(
    tokenizer: *const oxp_tokenizer,
    token: *const c_char,
    token_len: u64,
    id: *mut i32,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tokenizer_find_token", err, || {
            let out = Out::new(id, -1, "id")?;
            let tokenizer = handle::get::<TokenizerObject>(tokenizer, "tokenizer")?;
            let token = text(token, token_len, "token")?;
            out.set(tokenizer.tokenizer.token_to_id(token).unwrap_or(-1));
            Ok(())
        })
    }
}

/// Sets `special` to 1 if decoding with `skip_special` leaves the token out, else to 0.
///
/// Errors: OXP_ERR_OUT_OF_RANGE (no such id), OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_tokenizer_is_special(
    tokenizer: *const oxp_tokenizer,
    id: i32,
    special: *mut i32,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_tokenizer_is_special", err, || {
            let out = Out::new(special, 0, "special")?;
            let tokenizer = handle::get::<TokenizerObject>(tokenizer, "tokenizer")?;
            token_text(&tokenizer, id)?;
            out.set(tokenizer.tokenizer.is_special(id).into());
            Ok(())
        })
    }
}

fn token_text(tokenizer: &TokenizerObject, id: i32) -> Result<String> {
    tokenizer.tokenizer.id_to_token(id).ok_or_else(|| {
        Failure::new(
            OXP_ERR_OUT_OF_RANGE,
            format!(
                "no token has the id {id}; the vocabulary has {} tokens",
                tokenizer.tokenizer.vocab_size()
            ),
        )
    })
}
