//! Decoding token by token.

use std::ffi::c_char;

use crate::text::DecodeStream;

use super::error::oxp_error;
use super::failure::Result;
use super::guard::{guard, guard_free};
use super::handle::{self, Object, Serial, State, Tag};
use super::memory::{Text, TextOut};
use super::run::flag;
use super::status::oxp_status;
use super::strings::Out;
use super::tokenizer::{TokenizerObject, oxp_tokenizer};

/// Decodes one token at a time into whole UTF-8 pieces. The pieces, and what a flush gives
/// at the end, put together are the text of all tokens decoded at once. Serial: one call at
/// a time, any thread.
pub struct oxp_decode_stream {
    _private: [u8; 0],
}

pub(super) struct StreamObject(Serial<Stream>);

struct Stream {
    stream: DecodeStream,
    /// What the last answer points into.
    text: Text,
}

impl State for Stream {
    /// A decode stream changes when a call succeeds, as a whole.
    fn roll_back(&mut self) {}
}

impl Object for StreamObject {
    type Opaque = oxp_decode_stream;
    const TAG: Tag = Tag::DecodeStream;
}

/// Makes a decode stream of a tokenizer; free it with oxp_decode_stream_free. With
/// `skip_special` 1 special tokens give no text.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT, OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_decode_stream_create(
    tokenizer: *const oxp_tokenizer,
    skip_special: i32,
    stream: *mut *mut oxp_decode_stream,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_decode_stream_create", err, || {
            let out = Out::new(stream, std::ptr::null_mut(), "stream")?;
            let tokenizer = handle::get::<TokenizerObject>(tokenizer, "tokenizer")?;
            let stream = Stream {
                stream: tokenizer
                    .tokenizer
                    .decode_stream(flag(skip_special, "skip_special")?),
                text: Text::new(""),
            };
            out.set(handle::create(StreamObject(Serial::new(stream))));
            Ok(())
        })
    }
}

/// Adds a token: `text` gets the text that has become certain with it, ending with a NUL,
/// "" while a character is incomplete, borrowed until the next call on the stream;
/// `text_len`, which may be NULL, its length in bytes. A token may stand for a NUL, so the
/// length says where the text ends.
///
/// Errors: OXP_ERR_TOKENIZER (an id outside of the vocabulary), OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_decode_stream_push(
    stream: *mut oxp_decode_stream,
    id: i32,
    text: *mut *const c_char,
    text_len: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_decode_stream_push", err, || {
            let out = TextOut::new(text, text_len, "text")?;
            let stream = handle::get::<StreamObject>(stream, "stream")?;
            let mut state = stream.0.enter()?;
            let piece = state.stream.push(id)?;
            state.answer(&piece, &out)
        })
    }
}

/// Ends the text: `text` gets what was held back, incomplete characters as U+FFFD. The
/// stream is then as new. As oxp_decode_stream_push.
///
/// Errors: OXP_ERR_TOKENIZER, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_decode_stream_flush(
    stream: *mut oxp_decode_stream,
    text: *mut *const c_char,
    text_len: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_decode_stream_flush", err, || {
            let out = TextOut::new(text, text_len, "text")?;
            let stream = handle::get::<StreamObject>(stream, "stream")?;
            let mut state = stream.0.enter()?;
            let rest = state.stream.flush()?;
            state.answer(&rest, &out)
        })
    }
}

/// Of which part of the whole text the last answer is, and of which tokens: `offset` gets the bytes
/// of text before it, `first` how many tokens were pushed before the first of those whose text it
/// is, `count` how many these are, special ones between them included, 0 if the answer was "". Of
/// several tokens that make one character, or of a run of SentencePiece's byte tokens, no one has a
/// part of the text to itself. After a flush it is about what that gave;
/// then the text and the tokens count from 0.
///
/// Errors: OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_decode_stream_get_span(
    stream: *mut oxp_decode_stream,
    offset: *mut u64,
    first: *mut u64,
    count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_decode_stream_get_span", err, || {
            let outs = [
                Out::new(offset, 0, "offset")?,
                Out::new(first, 0, "first")?,
                Out::new(count, 0, "count")?,
            ];
            let stream = handle::get::<StreamObject>(stream, "stream")?;
            let span = stream.0.enter()?.stream.span();
            for (out, value) in outs.iter().zip([span.offset, span.first, span.count]) {
                out.set(value);
            }
            Ok(())
        })
    }
}

/// Frees a decode stream. NULL and what is no live stream are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_decode_stream_free(stream: *mut oxp_decode_stream) {
    guard_free::<StreamObject>(stream);
}

impl Stream {
    fn answer(&mut self, text: &str, out: &TextOut) -> Result<()> {
        self.text = Text::verbatim(text);
        out.set(&self.text);
        Ok(())
    }
}
