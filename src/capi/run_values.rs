//! What goes into a run and what can be read from it: inputs, values, logits, tokens,
//! statistics.

use std::ffi::c_char;

use super::error::oxp_error;
use super::failure::Failure;
use super::guard::guard;
use super::handle;
use super::overlap::{self, Part, Span};
use super::run::{OXP_FINISH_NONE, RunObject, finish_code, nanoseconds, oxp_run};
use super::status::oxp_status;
use super::strings::{Out, copy_out, text};
use super::structs::{InfoOut, info_struct};
use super::tensor::{Room, borrow, oxp_tensor_in, oxp_tensor_out, read_tensor, too_small};

/// What a run has done.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_run_stats {
    /// Set by the caller: sizeof(oxp_run_stats).
    pub struct_size: u32,
    /// An OXP_FINISH_ code: why the run is finished, if it is.
    pub finish_reason: u32,
    /// Tokens that the host appended.
    pub prompt_tokens: u64,
    /// Tokens that were chosen.
    pub generated_tokens: u64,
    /// Times that a component was run, all together.
    pub component_runs: u64,
    /// Nanoseconds in steps that fed more than one token.
    pub prefill_ns: u64,
    /// Nanoseconds in steps that fed one token.
    pub decode_ns: u64,
    /// Bytes that the KV buffers take, in use or reserved, those that forks share included.
    pub kv_bytes: u64,
    /// Tokens that did not run because another run of the pipeline had begun with them; see
    /// "prefix_cache_bytes".
    pub reused_tokens: u64,
    /// Tokens that speculation has proposed, and those of them that the run chose, so that they
    /// needed no pass of their own.
    pub proposed_tokens: u64,
    pub accepted_tokens: u64,
    /// Passes of the decoder.
    pub passes: u64,
}

info_struct!(oxp_run_stats, 88);

/// Sets an input that the request brings, "vision_encoder.pixel_values"; it is checked
/// against the port and copied at once. Another value than before makes the components that
/// depend on it run again. An input that the denoiser of an iterative package loops to is
/// what the loop starts from; with a scheduler that may be left to noise, where the port
/// declares its shape. "denoiser.PORT.uncond" sets what stands at the input PORT where
/// guidance leaves the conditioning out (a negative prompt); if it is not set, zeros do for
/// the conditioning. In a package whose positions are a processor's coordinates
/// (pipeline.positions, generation processor_coordinates) the decoder's input for them takes
/// those of the first tokens, "[1, n]" or on three axes "[3, 1, n]"; the others go on from them.
/// With continuation from_grid it may be left to the images that oxp_run_add_image adds.
///
/// Errors: OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_UNKNOWN_PORT, OXP_ERR_INVALID_ARGUMENT (no
/// "component.port", or an input that the pipeline feeds itself), OXP_ERR_STRUCT_SIZE,
/// OXP_ERR_INVALID_TENSOR, OXP_ERR_UNSUPPORTED_DTYPE, OXP_ERR_DTYPE_MISMATCH,
/// OXP_ERR_SHAPE_MISMATCH, OXP_ERR_OUT_OF_MEMORY, OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_set_input(
    run: *mut oxp_run,
    address: *const c_char,
    address_len: u64,
    tensor: *const oxp_tensor_in,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_set_input", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let address = text(address, address_len, "address")?;
            let label = format!("input \"{address}\"");
            let value = read_tensor(tensor, &label).map_err(|failure| at_address(failure, address))?;
            Ok(state.run.set_input(address, value.view(&label)?)?)
        })
    }
}

/// Takes an input back that oxp_run_set_input has set.
///
/// Errors: OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_UNKNOWN_PORT, OXP_ERR_INVALID_ARGUMENT,
/// OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_clear_input(
    run: *mut oxp_run,
    address: *const c_char,
    address_len: u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_clear_input", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let address = text(address, address_len, "address")?;
            Ok(state.run.clear_input(address)?)
        })
    }
}

/// A value of the run, "component.port": an output as it was last computed, or an input
/// that was set; at an input that the denoiser of an iterative package loops to, what the
/// last step has made for it. `tensor`, whose content before the call does not matter, gets a view
/// without a copy, borrowed until the next call on the run that changes it, or until the
/// run is freed.
///
/// Errors: OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_UNKNOWN_PORT, OXP_ERR_INVALID_ARGUMENT (no
/// "component.port"), OXP_ERR_INVALID_STATE (no value yet), OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_get_tensor(
    run: *mut oxp_run,
    address: *const c_char,
    address_len: u64,
    tensor: *mut oxp_tensor_in,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_get_tensor", err, || {
            let out = Out::new(tensor, oxp_tensor_in::EMPTY, "tensor")?;
            let run = handle::get::<RunObject>(run, "run")?;
            let state = run.0.enter()?;
            let address = text(address, address_len, "address")?;
            out.set(borrow(state.run.get_tensor(address)?));
            Ok(())
        })
    }
}

/// Copies a value of the run, "component.port", into the caller's memory.
///
/// Errors: OXP_ERR_BUFFER_TOO_SMALL (dtype, byte_len and rank are what the value needs),
/// OXP_ERR_OVERLAP (data and shape), OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_TENSOR, and as
/// oxp_run_get_tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_copy_tensor(
    run: *mut oxp_run,
    address: *const c_char,
    address_len: u64,
    tensor: *mut oxp_tensor_out,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_copy_tensor", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let state = run.0.enter()?;
            let address = text(address, address_len, "address")?;
            let room = Room::new(tensor, "tensor")?;
            let mut spans = vec![Span::write(
                tensor.addr(),
                size_of::<oxp_tensor_out>(),
                Part::Array,
                "tensor",
            )];
            spans.extend(room.spans("tensor"));
            overlap::check(spans)?;
            match room.store(state.run.get_tensor(address)?) {
                true => Ok(()),
                false => Err(at_address(
                    too_small(&[&format!("\"{address}\" {}", room.shortage().unwrap_or_default())]),
                    address,
                )),
            }
        })
    }
}

/// The logits of the last position that ran, float32, one for each token of the vocabulary:
/// what the last step chose from. `logits` is borrowed until the next call on the run that
/// changes it, or until the run is freed; `count` gets their number.
///
/// Errors: OXP_ERR_INVALID_STATE (nothing ran yet, or no token loop), OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_get_logits(
    run: *mut oxp_run,
    logits: *mut *const f32,
    count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_get_logits", err, || {
            let logits = Out::new(logits, std::ptr::null(), "logits")?;
            let count = Out::new(count, 0, "count")?;
            let run = handle::get::<RunObject>(run, "run")?;
            let state = run.0.enter()?;
            let found = state.run.logits()?;
            logits.set(found.as_ptr());
            count.set(found.len() as u64);
            Ok(())
        })
    }
}

/// All token ids of the run, appended and chosen, into `buffer` of `capacity` ids; `needed`
/// gets their number. Too small a buffer is left untouched; NULL with capacity 0 asks.
///
/// Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE,
/// OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_tokens_copy(
    run: *mut oxp_run,
    buffer: *mut i32,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_tokens_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let run = handle::get::<RunObject>(run, "run")?;
            let state = run.0.enter()?;
            copy_out(state.run.tokens(), None, buffer, capacity, &needed)
        })
    }
}

/// What the run has done so far, and whether it is finished.
///
/// Errors: OXP_ERR_STRUCT_SIZE, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE,
/// OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_get_stats(
    run: *mut oxp_run,
    stats: *mut oxp_run_stats,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_get_stats", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let state = run.0.enter()?;
            let out = InfoOut::new(stats, "stats")?;
            let found = state.run.stats();
            out.set(oxp_run_stats {
                struct_size: 0,
                finish_reason: state
                    .run
                    .finished()
                    .map_or(OXP_FINISH_NONE, |reason| finish_code(reason).0),
                prompt_tokens: found.prompt_tokens,
                generated_tokens: found.generated_tokens,
                component_runs: found.component_runs,
                prefill_ns: nanoseconds(found.prefill),
                decode_ns: nanoseconds(found.decode),
                kv_bytes: found.kv_bytes,
                reused_tokens: found.reused_tokens,
                proposed_tokens: found.proposed_tokens,
                accepted_tokens: found.accepted_tokens,
                passes: found.passes,
            });
            Ok(())
        })
    }
}

/// A failure about the port of an address, "component.port".
fn at_address(failure: Failure, address: &str) -> Failure {
    match address.split_once('.') {
        Some((component, port)) => failure.at_component(component).at_port(port),
        None => failure.at_port(address),
    }
}
