//! Answers that follow a grammar.

use std::ffi::c_char;

use crate::text::ConstraintKind;

use super::error::oxp_error;
use super::failure::Failure;
use super::guard::guard;
use super::handle;
use super::run::{RunObject, oxp_run};
use super::status::oxp_status;
use super::strings::optional_text;

/// What an answer is made to follow: nothing; a JSON object; a JSON Schema (drafts 4 to 2020-12, as
/// far as llguidance reads them); a regular expression (the syntax of Rust's regex crate), which
/// matches the answer as a whole; a context-free grammar in Lark's notation, with llguidance's
/// additions, whose rule `start` is the answer.
pub const OXP_CONSTRAINT_NONE: u32 = 0;
pub const OXP_CONSTRAINT_JSON: u32 = 1;
pub const OXP_CONSTRAINT_JSON_SCHEMA: u32 = 2;
pub const OXP_CONSTRAINT_REGEX: u32 = 3;
pub const OXP_CONSTRAINT_LARK: u32 = 4;

/// Makes the tokens that are chosen from now on follow a grammar from its beginning, an
/// OXP_CONSTRAINT_ kind with its text; OXP_CONSTRAINT_NONE lets the model go its own way again.
/// May be called at any time, in the middle of an answer too. `text` may be NULL for
/// OXP_CONSTRAINT_NONE and OXP_CONSTRAINT_JSON.
///
/// After another append the answer follows the grammar from the beginning again; a rewind takes the
/// grammar back too. Special and added tokens are never part of the answer, unless a Lark grammar
/// names them (`<|name|>`). An end token is allowed where the grammar may end, and is all that is
/// allowed where it must; in a run without one ("stop_on_eos" "false", or a package that has none)
/// OXP_FINISH_CONSTRAINT finishes it there. Where the grammar leaves one way to go on, its tokens
/// are chosen without the model, a step each (OXP_EVENT_FORCED), and fed together with the next that
/// asks it.
///
/// The text is at most 1 MiB, and what the grammar may cost is bounded. A call takes some
/// milliseconds, and the first of a pipeline some tenths of a second more.
///
/// Errors: OXP_ERR_CONSTRAINT (the grammar is wrong; the message says where), OXP_ERR_INVALID_STATE
/// (the package chooses no tokens), OXP_ERR_UNSUPPORTED (they have no text),
/// OXP_ERR_INVALID_ARGUMENT (`kind`), OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_set_constraint(
    run: *mut oxp_run,
    kind: u32,
    text: *const c_char,
    text_len: u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_set_constraint", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let text = optional_text(text, text_len, "text")?;
            let kind = match kind {
                OXP_CONSTRAINT_NONE => return Ok(state.run.set_constraint(None)?),
                OXP_CONSTRAINT_JSON => ConstraintKind::Json,
                OXP_CONSTRAINT_JSON_SCHEMA => ConstraintKind::JsonSchema,
                OXP_CONSTRAINT_REGEX => ConstraintKind::Regex,
                OXP_CONSTRAINT_LARK => ConstraintKind::Lark,
                other => {
                    return Err(Failure::argument(format!(
                        "there is no kind {other} of constraint; the kinds are OXP_CONSTRAINT_NONE (0), _JSON (1), \
                         _JSON_SCHEMA (2), _REGEX (3), _LARK (4)"
                    )));
                }
            };
            let text = match (text, kind) {
                (Some(text), _) => text,
                (None, ConstraintKind::Json) => "",
                (None, _) => return Err(Failure::null("text")),
            };
            Ok(state.run.set_constraint(Some((kind, text)))?)
        })
    }
}
