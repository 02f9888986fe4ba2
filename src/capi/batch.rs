//! Batches: runs of one pipeline that are stepped together.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::pipeline::{Event, PipelineError, Run};

use super::cancel::{self, oxp_cancel};
use super::error::{self, oxp_error};
use super::failure::Failure;
use super::guard::{guard, guard_free, outside};
use super::handle::{self, Object, Serial, Slot, State, Tag};
use super::pipeline::{PipelineObject, oxp_pipeline};
use super::run::{RunObject, RunState, oxp_event, oxp_run};
use super::status::{
    OXP_ERR_BUSY, OXP_ERR_CANCELLED, OXP_ERR_INVALID_ARGUMENT, OXP_ERR_INVALID_STATE, oxp_status,
};
use super::strings::Out;

/// Runs of one pipeline that are stepped together, so that weights are read once for all of them.
/// Each run has the tokens that it has alone, whoever else is in the batch. Runs join and leave
/// at any time. Shared: any thread, any calls at once, but one oxp_batch_step at a time.
pub struct oxp_batch {
    _private: [u8; 0],
}

/// Told what a step of a batch did with one of its runs, on the calling thread. `run` is the handle
/// that was added. `event` is what the step did, or NULL where it failed, for which `error` says why
/// (else NULL); both are borrowed until this returns. Returns 0 to go on; anything else ends the call
/// with OXP_ERR_CANCELLED when all runs have been told of. Calls on the run itself fail with
/// OXP_ERR_BUSY; to add and to remove is fine.
pub type oxp_batch_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        run: *mut oxp_run,
        event: *const oxp_event,
        error: *const oxp_error,
    ) -> i32,
>;

pub(super) struct BatchObject {
    pipeline: Arc<Slot<PipelineObject>>,
    members: Mutex<Vec<Member>>,
    /// One step at a time.
    stepping: Serial<Stepping>,
}

#[derive(Clone)]
struct Member {
    handle: usize,
    run: Arc<Slot<RunObject>>,
}

struct Stepping;

impl State for Stepping {
    /// The runs of a step that panicked put themselves right.
    fn roll_back(&mut self) {}
}

impl Object for BatchObject {
    type Opaque = oxp_batch;
    const TAG: Tag = Tag::Batch;
}

/// Makes a batch of runs of a pipeline, without any yet; free it with oxp_batch_free.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_batch_create(
    pipeline: *mut oxp_pipeline,
    batch: *mut *mut oxp_batch,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_batch_create", err, || {
            let out = Out::new(batch, std::ptr::null_mut(), "batch")?;
            let pipeline = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            out.set(handle::create(BatchObject {
                pipeline,
                members: Mutex::new(Vec::new()),
                stepping: Serial::new(Stepping),
            }));
            Ok(())
        })
    }
}

/// Frees a batch; its runs stay. NULL and what is no live batch are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_batch_free(batch: *mut oxp_batch) {
    guard_free::<BatchObject>(batch);
}

/// Adds a run of the batch's pipeline: the next step takes it along. It stays the caller's, who may
/// use it between steps as any other; a batch that holds it keeps it alive. From any thread, also while
/// a step is under way.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (a run of another pipeline), OXP_ERR_INVALID_STATE (it is in the
/// batch), OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY (another call uses the run).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_batch_add(
    batch: *mut oxp_batch,
    run: *mut oxp_run,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_batch_add", err, || {
            let batch = handle::get::<BatchObject>(batch, "batch")?;
            let handle = run.addr();
            let run = handle::get::<RunObject>(run, "run")?;
            if !run.0.enter()?.run.pipeline().is(&batch.pipeline.pipeline) {
                return Err(Failure::new(
                    OXP_ERR_INVALID_ARGUMENT,
                    "run is of another pipeline than the batch; make a batch for that one",
                ));
            }
            let mut members = batch.members.lock();
            if members.iter().any(|member| member.handle == handle) {
                return Err(Failure::new(
                    OXP_ERR_INVALID_STATE,
                    "the run is in the batch already",
                ));
            }
            members.push(Member { handle, run });
            Ok(())
        })
    }
}

/// Takes a run out of the batch, also one that was freed. A step that is under way goes on with it,
/// but is its last. From any thread.
///
/// Errors: OXP_ERR_INVALID_STATE (it is not in the batch), OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_batch_remove(
    batch: *mut oxp_batch,
    run: *mut oxp_run,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_batch_remove", err, || {
            let batch = handle::get::<BatchObject>(batch, "batch")?;
            let handle = run.addr();
            let mut members = batch.members.lock();
            let found = members.iter().position(|member| member.handle == handle);
            // One that was freed is still a member.
            let Some(found) = found else {
                drop(members);
                handle::get::<RunObject>(run, "run")?;
                return Err(Failure::new(
                    OXP_ERR_INVALID_STATE,
                    "the run is not in the batch; add it, or it has finished and left",
                ));
            };
            let gone = members.remove(found);
            drop(members);
            drop(gone);
            Ok(())
        })
    }
}

/// How many runs are in the batch.
///
/// Errors: OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_batch_get_count(
    batch: *mut oxp_batch,
    count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_batch_get_count", err, || {
            let count = Out::new(count, 0, "count")?;
            let batch = handle::get::<BatchObject>(batch, "batch")?;
            count.set(batch.members.lock().len() as u64);
            Ok(())
        })
    }
}

/// Takes a step (oxp_run_step) of every run in the batch, and tells of each; `on_step` may be NULL. A
/// run that finishes or fails leaves the batch; the others are not touched by that. One that was
/// cancelled, by "cancel" or by what its hook or sampler returned, stays, and so does one whose own
/// "timeout_ms" is over, which counts without what it waits for others: its prompt ends there and goes
/// on with the next step, while a pass that it takes with others does not end for one of them. Runs that
/// another call is using are left out of this step and stay. `stepped`, which may be NULL, gets how many
/// runs took a step; none in an empty batch. `cancel` may be NULL, and ends the step for all runs, as
/// each is. Steps of a batch are without guesses ("speculation"): one pass has a token of each run.
///
/// Runs that have one token to feed take the step together. A prompt, which is many, is its run's
/// alone: the others wait for it ("chunk_size" keeps what they wait for short, with a step a chunk
/// no more than with oxp_run_step).
///
/// Errors: OXP_ERR_BUSY (another step is under way), OXP_ERR_CANCELLED, OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_batch_step(
    batch: *mut oxp_batch,
    stepped: *mut u64,
    on_step: oxp_batch_fn,
    user_data: *mut c_void,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_batch_step", err, || {
            let stepped = Out::optional(stepped, 0);
            let batch = handle::get::<BatchObject>(batch, "batch")?;
            let _turn = batch.stepping.enter()?;
            let control = cancel::control(cancel, None)?;
            cancel::check(&control)?;
            let members: Vec<Member> = batch.members.lock().clone();
            let mut turns = Vec::with_capacity(members.len());
            let mut taking_part = Vec::with_capacity(members.len());
            for member in &members {
                match member.run.0.enter() {
                    Ok(turn) => {
                        turns.push(turn);
                        taking_part.push(member);
                    }
                    Err(failure) if failure.code() == OXP_ERR_BUSY => {}
                    Err(failure) => return Err(failure),
                }
            }
            let each: Vec<Option<Duration>> = turns.iter().map(|turn| turn.timeout()).collect();
            let mut runs: Vec<&mut Run> = turns.iter_mut().map(|turn| &mut turn.run).collect();
            let outcomes = Run::step_each_together(&mut runs, &each, &control);
            drop(runs);
            stepped.set(outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64);
            let stopped = outcomes
                .iter()
                .any(|outcome| outcome.as_ref().is_err_and(is_stop));
            let mut answer = 0;
            for ((member, turn), outcome) in taking_part.into_iter().zip(&mut turns).zip(outcomes) {
                let stays = outcome.as_ref().is_ok_and(|event| event.finish.is_none())
                    || outcome.as_ref().is_err_and(is_stop);
                if !stays {
                    batch.members.lock().retain(|other| other.handle != member.handle);
                }
                let Some(on_step) = on_step else { continue };
                let said = tell(turn, outcome, |event, error| {
                    let run = std::ptr::without_provenance_mut(member.handle);
                    outside(|| on_step(user_data, run, event, error))
                });
                if answer == 0 {
                    answer = said;
                }
            }
            drop(turns);
            // Where all runs took their step, a request to stop came too late for this one.
            if stopped {
                cancel::check(&control)?;
            }
            match answer {
                0 => Ok(()),
                answer => Err(Failure::new(
                    OXP_ERR_CANCELLED,
                    format!("the callback returned {answer}, which ends the call; 0 goes on"),
                )),
            }
        })
    }
}

fn is_stop(error: &PipelineError) -> bool {
    use crate::pipeline::ErrorKind::{Cancelled, DeadlineExceeded};
    matches!(error.kind(), Cancelled | DeadlineExceeded)
}

/// Calls with an event or an error object, which lives no longer than the call.
fn tell(
    state: &mut RunState,
    outcome: std::result::Result<Event, PipelineError>,
    call: impl FnOnce(*const oxp_event, *const oxp_error) -> i32,
) -> i32 {
    match outcome {
        Ok(event) => {
            let event = state.event(&event);
            call(&raw const event, std::ptr::null())
        }
        Err(error) => {
            let object = error::create("oxp_batch_step", state.late(error));
            let answer = call(std::ptr::null(), object);
            error::oxp_error_free(object);
            answer
        }
    }
}
