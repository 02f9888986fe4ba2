//! Runs that go on elsewhere: forks, and states in a host's memory.

use std::ffi::c_void;

use crate::pipeline::Run;

use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::guard::guard;
use super::handle::{self, Serial};
use super::options::{self, oxp_options};
use super::pipeline::{PipelineObject, oxp_pipeline};
use super::run::{RunObject, RunState, oxp_run};
use super::status::{OXP_ERR_BUFFER_TOO_SMALL, oxp_status};
use super::strings::{Out, bytes, in_address_space};

/// Makes a run that goes on from where `run` is, with its tokens, inputs, values, constraint and options; free
/// it with oxp_run_free. Both then go their own ways, each by the tokens that it would have had
/// alone: drawn ones too, unless one of them is given another seed (oxp_run_set_seed). It takes next to no time and memory: KV, states, inputs and outputs are shared until one
/// of the runs writes to them. The hook and the sampler of a host (oxp_run_set_logits_hook) stay with
/// `run` alone. The first step of whichever run steps first copies its KV; the other
/// keeps what there was.
///
/// Errors: OXP_ERR_OUT_OF_MEMORY, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_fork(
    run: *mut oxp_run,
    fork: *mut *mut oxp_run,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_fork", err, || {
            let out = Out::new(fork, std::ptr::null_mut(), "fork")?;
            let run = handle::get::<RunObject>(run, "run")?;
            let forked = run.0.enter()?.fork()?;
            out.set(handle::create(RunObject(Serial::new(forked))));
            Ok(())
        })
    }
}

/// Draws tokens from the numbers of another seed from now on, as a run made with the option "seed" does:
/// forks of one run give answers of their own that way. To load a saved state of the run, the options say
/// the new seed.
///
/// Errors: OXP_ERR_UNSUPPORTED (the package chooses no tokens), OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_set_seed(
    run: *mut oxp_run,
    seed: u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_set_seed", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            Ok(run.0.enter()?.run.set_seed(seed)?)
        })
    }
}

/// Has the model of another pipeline guess what this run chooses: a smaller one of the same
/// vocabulary. Its guesses, "speculation_tokens" a pass, are fed behind the run's last token, and kept
/// as far as they are what the run chooses: its tokens are the same, greedy or drawn, in fewer passes.
/// The run keeps the pipeline alive. A loaded run has no draft until it is set again. A KV cache that
/// is looked at between steps may have rows of guesses behind those of the tokens.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (another vocabulary, no token loop, caches that do not go back),
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_set_draft(
    run: *mut oxp_run,
    pipeline: *mut oxp_pipeline,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_set_draft", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let pipeline = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            Ok(state.run.set_draft(&pipeline.pipeline)?)
        })
    }
}

/// All that the run is, as bytes: tokens, KV, states, inputs, outputs, its constraint and what its
/// sampler remembers, into
/// `buffer` of `capacity` bytes; `needed` gets their number. Too small a buffer is left untouched;
/// NULL with capacity 0 asks. oxp_run_load makes a run of them. They are checked, but not
/// encrypted, and hold what the conversation was about.
///
/// Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_save_copy(
    run: *mut oxp_run,
    buffer: *mut c_void,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_save_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let len = state.run.saved_len()?;
            needed.set(len as u64);
            match room(buffer, capacity, len)? {
                Some(room) => Ok(state.run.save_into(room)?),
                None => Ok(()),
            }
        })
    }
}

/// The first `len` bytes of a caller's buffer; `None` if the caller only asks.
///
/// # Safety
/// The caller's promise: `buffer` is NULL or writable for `capacity` bytes during the call, and
/// nothing else has it.
unsafe fn room<'a>(buffer: *mut c_void, capacity: u64, len: usize) -> Result<Option<&'a mut [u8]>> {
    if buffer.is_null() {
        return match capacity {
            0 => Ok(None),
            _ => Err(Failure::null("the buffer (with a capacity above 0)")),
        };
    }
    if capacity < len as u64 {
        return Err(Failure::new(
            OXP_ERR_BUFFER_TOO_SMALL,
            format!("the buffer holds {capacity} bytes, the state takes {len}; nothing was written"),
        ));
    }
    in_address_space(buffer.addr(), capacity, "the buffer")?;
    // SAFETY: not NULL, writable for `capacity >= len` bytes, which do not wrap; they are set here,
    // so that they are initialised when a slice is made of them.
    unsafe {
        std::ptr::write_bytes(buffer.cast::<u8>(), 0, len);
        Ok(Some(std::slice::from_raw_parts_mut(buffer.cast(), len)))
    }
}

/// Makes a run of what oxp_run_save_copy gave, `state_size` bytes at
/// `state`; free it with oxp_run_free.
/// It goes on by the tokens that the run would have had. The pipeline is of the same package, with
/// caches of the same types; which backends run its components makes no difference. `options`, which
/// may be NULL, are of kind OXP_OPTIONS_RUN and the same as those of the run, but for "max_tokens" and
/// "timeout_ms". Images that were added are there as the inputs that they became; to add another
/// one, clear them and rewind before them.
///
/// The bytes may come from anywhere: what is cut off, damaged, or of another version, package or
/// setting is an error that says so.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (`state`), OXP_ERR_OUT_OF_MEMORY, and as oxp_run_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_load(
    pipeline: *mut oxp_pipeline,
    options: *const oxp_options,
    state: *const c_void,
    state_size: u64,
    run: *mut *mut oxp_run,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_load", err, || {
            let out = Out::new(run, std::ptr::null_mut(), "run")?;
            let pipeline = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let options = options::run(options)?;
            let data = bytes(state, state_size, "state")?;
            let loaded = Run::load(&pipeline.pipeline, &options.settings, data)?;
            let state = RunState::new(loaded, &options);
            out.set(handle::create(RunObject(Serial::new(state))));
            Ok(())
        })
    }
}
