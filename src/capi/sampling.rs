//! How a run chooses tokens, beyond its options: the host's own hook and sampler, and the
//! probabilities of what was chosen.

use std::ffi::c_void;
use std::ops::ControlFlow;

use crate::generation::TokenLogprob;

use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::guard::{guard, outside};
use super::handle;
use super::memory::{UserData, oxp_free_fn};
use super::run::{RunObject, oxp_run};
use super::status::{OXP_ERR_INVALID_STATE, oxp_status};
use super::strings::{Out, copy_out};

/// A host's own processor of logits: it may change the `count` logits, one for each token of the
/// vocabulary, before all processors of the library. `tokens` are the run's so far, `token_count` of
/// them. All are borrowed until it returns. Called on the thread of the call that chooses a token.
/// Returns 0 to go on; anything else ends that call with OXP_ERR_CANCELLED, and the run is as it was
/// before the choice. Calls on the run itself fail with OXP_ERR_BUSY.
pub type oxp_logits_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        logits: *mut f32,
        count: u64,
        tokens: *const i32,
        token_count: u64,
    ) -> i32,
>;

/// A host's own choice of a token, in the place of the library's: `logprobs` are the natural logarithms
/// of the `count` tokens' probabilities after all processors and samplers, -inf for those that are
/// ruled out; `token` gets the token's id. Otherwise as oxp_logits_fn.
pub type oxp_sampler_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        logprobs: *const f32,
        count: u64,
        tokens: *const i32,
        token_count: u64,
        token: *mut i32,
    ) -> i32,
>;

/// Which probabilities: those of the model's logits under softmax, or those that a token is drawn by,
/// after all processors and samplers (greedy, after all processors).
pub const OXP_LOGPROBS_RAW: u32 = 0;
pub const OXP_LOGPROBS_PROCESSED: u32 = 1;

/// A token id, and the natural logarithm of its probability.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub struct oxp_token_logprob {
    pub token: i32,
    pub logprob: f32,
}

const _: () = assert!(size_of::<oxp_token_logprob>() == 8);

/// Sets the host's processor of logits, which acts on each choice of a token from now on; NULL takes
/// the one away that there is. `free_user_data`, which may be NULL, is called once with `user_data`
/// when another is set, when the run is freed, or when this call fails.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_set_logits_hook(
    run: *mut oxp_run,
    hook: oxp_logits_fn,
    user_data: *mut c_void,
    free_user_data: oxp_free_fn,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_set_logits_hook", err, || {
            // First of all, so that it is freed whatever fails.
            let user_data = UserData::new(user_data, free_user_data);
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let Some(hook) = hook else {
                state.run.set_logits_hook(None);
                return Ok(());
            };
            state
                .run
                .set_logits_hook(Some(Box::new(move |logits: &mut [f32], tokens: &[i32]| {
                    let (count, token_count) = (logits.len() as u64, tokens.len() as u64);
                    let logits = logits.as_mut_ptr();
                    let tokens = tokens.as_ptr();
                    let pointer = user_data.pointer();
                    // SAFETY: the host gave the function and its data for such calls; what it gets is
                    // there until it returns.
                    match outside(|| hook(pointer, logits, count, tokens, token_count)) {
                        0 => ControlFlow::Continue(()),
                        _ => ControlFlow::Break(()),
                    }
                })));
            Ok(())
        })
    }
}

/// Sets the host's sampler, which makes each choice of a token from now on; NULL takes the one away
/// that there is. `free_user_data` as in oxp_run_set_logits_hook. A token that it gives outside of the
/// vocabulary is OXP_ERR_INVALID_ARGUMENT of the call that chooses.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_set_sampler(
    run: *mut oxp_run,
    sampler: oxp_sampler_fn,
    user_data: *mut c_void,
    free_user_data: oxp_free_fn,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_set_sampler", err, || {
            // First of all, so that it is freed whatever fails.
            let user_data = UserData::new(user_data, free_user_data);
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let Some(sampler) = sampler else {
                state.run.set_host_sampler(None);
                return Ok(());
            };
            state
                .run
                .set_host_sampler(Some(Box::new(move |logprobs: &[f32], tokens: &[i32]| {
                    let mut token = -1;
                    let chosen = &raw mut token;
                    let (count, token_count) = (logprobs.len() as u64, tokens.len() as u64);
                    let (logprobs, tokens) = (logprobs.as_ptr(), tokens.as_ptr());
                    let pointer = user_data.pointer();
                    // SAFETY: as in oxp_run_set_logits_hook.
                    match outside(|| sampler(pointer, logprobs, count, tokens, token_count, chosen)) {
                        0 => ControlFlow::Continue(token),
                        _ => ControlFlow::Break(()),
                    }
                })));
            Ok(())
        })
    }
}

/// The probabilities of the last token that was chosen, of an OXP_LOGPROBS_ kind, in a run with the
/// option "logprobs". `logprob`, which may be NULL, gets the chosen token's. `top` gets as many of the
/// most probable tokens as the option says, or as are left, descending, among equals the lowest id
/// first; `count` gets their number. Borrowed until the next call on the run that changes it, or until
/// the run is freed.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (`distribution`), OXP_ERR_INVALID_STATE (the option is not set, or the
/// last token is none that the run has just chosen: it was appended, forced, or uncovered by a rewind), OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_get_logprobs(
    run: *mut oxp_run,
    distribution: u32,
    logprob: *mut f32,
    top: *mut *const oxp_token_logprob,
    count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_get_logprobs", err, || {
            let logprob = Out::optional(logprob, 0.0);
            let out = Out::new(top, std::ptr::null(), "top")?;
            let count = Out::new(count, 0, "count")?;
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let Some(found) = state.run.logprobs() else {
                return Err(Failure::new(
                    OXP_ERR_INVALID_STATE,
                    "the last token is none that was chosen with the option \"logprobs\": it was appended, forced, or \
                     uncovered by a rewind; make the run with that option, and step",
                ));
            };
            let (chosen, tokens) = match distribution {
                OXP_LOGPROBS_RAW => (found.raw, &found.raw_top),
                OXP_LOGPROBS_PROCESSED => (found.processed, &found.processed_top),
                other => {
                    return Err(Failure::argument(format!(
                        "there is no distribution {other}; they are OXP_LOGPROBS_RAW (0) and \
                         OXP_LOGPROBS_PROCESSED (1)"
                    )));
                }
            };
            let plain: Vec<oxp_token_logprob> = tokens.iter().map(plain).collect::<Result<_>>()?;
            logprob.set(chosen);
            // Those that have been handed out stay where they are.
            if state.logprobs[distribution as usize % 2] != plain {
                state.logprobs[distribution as usize % 2] = plain;
            }
            let kept = &state.logprobs[distribution as usize % 2];
            out.set(match kept.is_empty() {
                true => std::ptr::null(),
                false => kept.as_ptr(),
            });
            count.set(kept.len() as u64);
            Ok(())
        })
    }
}

/// How many sequences the last beam search of the run found: of "num_beams" above 1, which
/// oxp_run_generate searches. 0 before one.
///
/// Errors: OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_get_sequence_count(
    run: *mut oxp_run,
    count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_get_sequence_count", err, || {
            let count = Out::new(count, 0, "count")?;
            let run = handle::get::<RunObject>(run, "run")?;
            let state = run.0.enter()?;
            count.set(state.run.sequences().len() as u64);
            Ok(())
        })
    }
}

/// One of the sequences that the last beam search of the run found, the best being number 0, which is
/// the run's answer: the ids of the answer, an end token included, into `buffer` of `capacity` ids;
/// `needed` gets their number. Too small a buffer is left untouched; NULL with capacity 0 asks.
/// `score`, which may be NULL, gets the sum of the logarithms of its tokens' probabilities, divided by
/// its length to the power of "length_penalty".
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (`index`), OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_sequence_copy(
    run: *mut oxp_run,
    index: u64,
    buffer: *mut i32,
    capacity: u64,
    needed: *mut u64,
    score: *mut f64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_sequence_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let score = Out::optional(score, 0.0);
            let run = handle::get::<RunObject>(run, "run")?;
            let state = run.0.enter()?;
            let sequences = state.run.sequences();
            let found = usize::try_from(index).ok().and_then(|index| sequences.get(index));
            let found = found.ok_or_else(|| {
                Failure::argument(format!(
                    "there is no sequence {index}; the last search found {}",
                    sequences.len()
                ))
            })?;
            score.set(found.score);
            copy_out(&found.tokens, None, buffer, capacity, &needed)
        })
    }
}

fn plain(of: &TokenLogprob) -> Result<oxp_token_logprob> {
    let token = i32::try_from(of.token);
    let token = token.map_err(|_| Failure::argument(format!("token {} is out of range", of.token)))?;
    Ok(oxp_token_logprob {
        token,
        logprob: of.logprob,
    })
}
