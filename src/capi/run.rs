//! Runs: one request's state, and the calls that move it on.

use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::time::Duration;

use crate::component::RunControl;
use crate::generation::FinishReason;
use crate::pipeline::{Event, Run};

use super::cancel::{self, Limit, oxp_cancel};
use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::guard::{guard, guard_free, outside};
use super::handle::{self, Object, Serial, State, Tag};
use super::memory::Text;
use super::options::{self, RunOptions, TestHook, oxp_options};
use super::pipeline::{PipelineObject, oxp_pipeline};
use super::sampling::oxp_token_logprob;
use super::status::{OXP_ERR_CANCELLED, OXP_ERR_DEADLINE_EXCEEDED, oxp_status};
use super::strings::{Out, array, copy_text, text};
use super::structs::{InfoOut, info_struct};
use super::tensor::{borrow, oxp_tensor_in};

/// Why a run is finished: not yet; an end token was chosen; as many tokens were chosen as
/// were allowed; the sequence is as long as the model takes; a package without a token
/// loop has run, an iterative one all of its steps; the text has come to a stop string; the
/// last tokens are a sequence of "stop_tokens"; the sequence is as long as "max_length" allows;
/// the constraint is complete, and the package has no end token to say so.
pub const OXP_FINISH_NONE: u32 = 0;
pub const OXP_FINISH_END_OF_TEXT: u32 = 1;
pub const OXP_FINISH_MAX_TOKENS: u32 = 2;
pub const OXP_FINISH_CONTEXT_FULL: u32 = 3;
pub const OXP_FINISH_COMPLETED: u32 = 4;
pub const OXP_FINISH_STOP_STRING: u32 = 5;
pub const OXP_FINISH_STOP_TOKENS: u32 = 6;
pub const OXP_FINISH_MAX_LENGTH: u32 = 7;
pub const OXP_FINISH_CONSTRAINT: u32 = 8;
/// What ended oxp_run_generate before the run was finished: a cancel object or the callback; the
/// time that "timeout_ms" allows. The run has the steps that came before, and can go on.
pub const OXP_FINISH_CANCELLED: u32 = 9;
pub const OXP_FINISH_DEADLINE: u32 = 10;

/// A flag of oxp_event.
pub const OXP_EVENT_FORCED: u32 = 1;

/// One request to a pipeline: its tokens, inputs, values and KV cache. Serial: one call at a
/// time, any thread; a call that overlaps another, or that comes from a callback of one,
/// fails with OXP_ERR_BUSY. A call that fails leaves the run as it was, and usable.
pub struct oxp_run {
    _private: [u8; 0],
}

/// What a step did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_event {
    /// Set by the caller: sizeof(oxp_event); OXP_EVENT_INIT sets it.
    pub struct_size: u32,
    /// The chosen token id; -1 if the package has no token loop.
    pub token: i32,
    /// An OXP_FINISH_ code; OXP_FINISH_NONE while there is more to come.
    pub finish_reason: u32,
    /// With OXP_FINISH_END_OF_TEXT, the token's place in the package's list of end tokens; with
    /// OXP_FINISH_STOP_STRING and OXP_FINISH_STOP_TOKENS, the place in the option's list; else -1.
    pub finish_index: i32,
    /// UTF-8 text that has become certain with this token, often ""; ends with a NUL. A
    /// token may stand for a NUL, so `text_len` says where the text ends.
    /// Borrowed until the next call on the run; in a callback, until that returns.
    pub text: *const c_char,
    /// In bytes, without the NUL.
    pub text_len: u64,
    /// Natural logarithm of the token's probability under softmax of the logits; 0 without
    /// a token.
    pub logprob: f32,
    /// OXP_EVENT_FORCED if a constraint left no choice, so that the model was not asked; else 0.
    pub flags: u32,
    /// Tokens that the host has appended to the run so far.
    pub prompt_tokens: u64,
    /// Tokens that were chosen in the run so far.
    pub generated_tokens: u64,
    /// Nanoseconds of this step in components that run once for a prompt.
    pub prompt_components_ns: u64,
    /// Nanoseconds of this step in every_step components other than the decoder or denoiser.
    pub step_components_ns: u64,
    /// Nanoseconds of this step in the decoder, or in the denoiser of an iterative package.
    pub decoder_ns: u64,
    /// Nanoseconds of the whole step.
    pub total_ns: u64,
    /// In an iterative package, the steps of its loop up to and with this one, those that
    /// "start_step" leaves out included; else 0.
    pub loop_step: u32,
    /// The steps of the loop in all; else 0.
    pub loop_step_count: u32,
    /// What goes from step to step of an iterative package (its "latents"), as this step has
    /// made it: `latent_count` tensors, one for each edge of the denoiser to itself, in the
    /// order of the package. Borrowed until the next call on the run that changes it; in a
    /// callback, until that returns. NULL if there are none.
    pub latents: *const oxp_tensor_in,
    pub latent_count: u64,
    /// The codes of this frame, in a package whose steps are frames of codes (strategy
    /// nested_autoregressive): `code_count` of them. NULL and 0 for others, and for the frame
    /// whose token ends the speech. Those of all frames are the value "OUTER.output_codes" of the
    /// run. Borrowed until the next call on the run; in a callback, until that returns.
    pub codes: *const i64,
    pub code_count: u64,
    /// Where `text` begins in the text of the turn, in bytes: the texts of a turn's events follow
    /// each other without a gap.
    pub text_offset: u64,
}

info_struct!(oxp_event, 136);

/// Told each step of oxp_run_generate, on the calling thread. Returns 0 to go on; anything
/// else ends the call with OXP_ERR_CANCELLED. The step that it was told about has happened.
/// `event` is borrowed until it returns. Calls on the run itself fail with OXP_ERR_BUSY.
pub type oxp_event_fn = Option<unsafe extern "C" fn(user_data: *mut c_void, event: *const oxp_event) -> i32>;

pub(super) struct RunObject(pub Serial<RunState>);

pub(super) struct RunState {
    pub run: Run,
    timeout: Option<Duration>,
    test_hook: TestHook,
    /// What the last event handed out points into.
    text: Text,
    latents: Latents,
    codes: Vec<i64>,
    /// What oxp_run_get_logprobs has handed out of each distribution.
    pub logprobs: [Vec<oxp_token_logprob>; 2],
}

/// Views of a run's values, for an event to point to.
#[derive(Default)]
struct Latents(Vec<oxp_tensor_in>);

// SAFETY: the pointers are never followed here; they are those of a run that is moved to
// another thread together with them.
unsafe impl Send for Latents {}

impl Latents {
    fn of(run: &Run) -> Self {
        Latents(run.latents().map(borrow).collect())
    }
}

impl Object for RunObject {
    type Opaque = oxp_run;
    const TAG: Tag = Tag::Run;
}

impl State for RunState {
    fn roll_back(&mut self) {
        self.run.roll_back();
    }
}

impl RunState {
    pub fn new(run: Run, options: &RunOptions) -> Self {
        RunState {
            run,
            timeout: options.timeout,
            test_hook: options.test_hook.clone(),
            text: Text::new(""),
            latents: Latents::default(),
            codes: Vec::new(),
            logprobs: Default::default(),
        }
    }

    /// A run that goes on from where this one is.
    pub fn fork(&mut self) -> Result<Self> {
        Ok(RunState {
            run: self.run.fork()?,
            timeout: self.timeout,
            test_hook: self.test_hook.clone(),
            text: Text::new(""),
            latents: Latents::default(),
            codes: Vec::new(),
            logprobs: Default::default(),
        })
    }

    /// The failure of a call that [`control`](Self::control) may end.
    pub fn late(&self, failure: impl Into<Failure>) -> Failure {
        let limit = Limit {
            key: "timeout_ms",
            time: self.timeout,
        };
        limit.name(failure)
    }

    /// The option "timeout_ms".
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub fn control(&self, cancel: *const oxp_cancel) -> Result<RunControl> {
        let control = cancel::control(cancel, self.timeout)?;
        cancel::check(&control).map_err(|failure| self.late(failure))?;
        self.test_hook.reached();
        Ok(control)
    }

    /// The event for C; its text lives until the next event.
    pub fn event(&mut self, event: &Event) -> oxp_event {
        self.text = Text::verbatim(&event.text);
        self.latents = match event.progress {
            Some(_) => Latents::of(&self.run),
            None => Latents::default(),
        };
        self.codes.clone_from(&event.codes);
        plain_event(event, &self.text, &self.latents, &self.codes)
    }
}

fn plain_event(event: &Event, text: &Text, latents: &Latents, codes: &[i64]) -> oxp_event {
    let (finish_reason, finish_index) = event.finish.map_or((OXP_FINISH_NONE, -1), finish_code);
    oxp_event {
        struct_size: size_of::<oxp_event>() as u32,
        token: event.token.unwrap_or(-1),
        finish_reason,
        finish_index,
        text: text.as_ptr(),
        text_len: text.len(),
        logprob: event.logprob,
        flags: if event.forced { OXP_EVENT_FORCED } else { 0 },
        prompt_tokens: event.usage.prompt_tokens,
        generated_tokens: event.usage.generated_tokens,
        prompt_components_ns: nanoseconds(event.timings.prompt_components),
        step_components_ns: nanoseconds(event.timings.step_components),
        decoder_ns: nanoseconds(event.timings.decoder),
        total_ns: nanoseconds(event.timings.total),
        loop_step: event.progress.map_or(0, |progress| count(progress.done)),
        loop_step_count: event.progress.map_or(0, |progress| count(progress.count)),
        latents: match latents.0.is_empty() {
            true => std::ptr::null(),
            false => latents.0.as_ptr(),
        },
        latent_count: latents.0.len() as u64,
        codes: match codes {
            [] => std::ptr::null(),
            codes => codes.as_ptr(),
        },
        code_count: codes.len() as u64,
        text_offset: event.text_offset,
    }
}

/// Steps of a loop, which are far fewer than a u32 can count.
fn count(steps: usize) -> u32 {
    u32::try_from(steps).unwrap_or(u32::MAX)
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The OXP_FINISH_ code, and the index for `finish_index`.
pub(super) fn finish_code(reason: FinishReason) -> (u32, i32) {
    let place = |index: usize| i32::try_from(index).unwrap_or(i32::MAX);
    match reason {
        FinishReason::EndOfText { index } => (OXP_FINISH_END_OF_TEXT, place(index)),
        FinishReason::MaxTokens => (OXP_FINISH_MAX_TOKENS, -1),
        FinishReason::ContextFull => (OXP_FINISH_CONTEXT_FULL, -1),
        FinishReason::Completed => (OXP_FINISH_COMPLETED, -1),
        FinishReason::StopString { index } => (OXP_FINISH_STOP_STRING, place(index)),
        FinishReason::StopTokens { index } => (OXP_FINISH_STOP_TOKENS, place(index)),
        FinishReason::MaxLength => (OXP_FINISH_MAX_LENGTH, -1),
        FinishReason::ConstraintEnd => (OXP_FINISH_CONSTRAINT, -1),
    }
}

/// Makes a run of a pipeline, without tokens or inputs; free it with oxp_run_free.
/// `options`, which may be NULL, are of kind OXP_OPTIONS_RUN.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_ARGUMENT and
/// OXP_ERR_BUSY (`options`), OXP_ERR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_create(
    pipeline: *mut oxp_pipeline,
    options: *const oxp_options,
    run: *mut *mut oxp_run,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_create", err, || {
            let out = Out::new(run, std::ptr::null_mut(), "run")?;
            let pipeline = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let options = options::run(options)?;
            let run = Run::new(&pipeline.pipeline, &options.settings)?;
            let state = RunState::new(run, &options);
            out.set(handle::create(RunObject(Serial::new(state))));
            Ok(())
        })
    }
}

/// Frees a run. NULL and what is no live run are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_run_free(run: *mut oxp_run) {
    guard_free::<RunObject>(run);
}

/// Appends `count` prompt tokens. After a finished answer this starts the next turn. Placeholders of
/// images become the tokens of these; see oxp_run_add_image.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (an id outside of the vocabulary, more tokens than the
/// model takes, in a run with images a placeholder without one), OXP_ERR_INVALID_STATE (nothing
/// reads tokens, or there are tokens of images that were taken back), OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_append_tokens(
    run: *mut oxp_run,
    tokens: *const i32,
    count: u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_append_tokens", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let tokens = array(tokens, count, "tokens")?;
            Ok(state.run.append_tokens(&tokens)?)
        })
    }
}

/// Encodes and appends text. With `add_special` 1 the tokenizer adds its own special tokens
/// (a rendered chat template has them already), with 0 it does not. `token_count`, which
/// may be NULL, gets how many tokens it became.
///
/// Errors: OXP_ERR_UNSUPPORTED (no tokenizer), OXP_ERR_TOKENIZER, OXP_ERR_INVALID_UTF8, and
/// as oxp_run_append_tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_append_text(
    run: *mut oxp_run,
    text: *const c_char,
    text_len: u64,
    add_special: i32,
    token_count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_append_text", err, || {
            let count = Out::optional(token_count, 0);
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let text = self::text(text, text_len, "text")?;
            let add_special = flag(add_special, "add_special")?;
            count.set(state.run.append_text(text, add_special)? as u64);
            Ok(())
        })
    }
}

/// Feeds what has not run yet, chooses a token and appends it; `event` says what happened.
/// An iterative package takes one step of its loop instead, and finishes with
/// OXP_FINISH_COMPLETED after the last; a package without a loop runs once and finishes so. In a
/// package of strategy nested_autoregressive a step is a frame: the outer decoder's token and the
/// codes that the inner one makes.
/// `cancel` may be NULL.
///
/// Errors: OXP_ERR_INVALID_STATE (finished, no tokens, or an image without a place among them),
/// OXP_ERR_MISSING_INPUT, OXP_ERR_INVALID_ARGUMENT, OXP_ERR_RUN_FAILED, OXP_ERR_CONSTRAINT (it cannot
/// be followed), OXP_ERR_OUT_OF_MEMORY, OXP_ERR_CANCELLED, OXP_ERR_DEADLINE_EXCEEDED, OXP_ERR_STRUCT_SIZE, OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_step(
    run: *mut oxp_run,
    event: *mut oxp_event,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_step", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let out = InfoOut::new(event, "event")?;
            let control = state.control(cancel)?;
            let event = state.run.step(&control);
            let event = event.map_err(|error| state.late(error))?;
            out.set(state.event(&event));
            Ok(())
        })
    }
}

/// Steps until the run is finished. `finish_reason`, which may be NULL, gets an OXP_FINISH_
/// code; when the call fails, OXP_FINISH_CANCELLED or OXP_FINISH_DEADLINE if that ended it, else
/// OXP_FINISH_NONE. `on_event`, which may be NULL, is told each step. `cancel` may be NULL; "timeout_ms"
/// counts over the whole call. With the option "num_beams" above 1 it searches as many beams
/// instead, and then tells the tokens of the best answer; see oxp_run_sequence_copy.
///
/// Errors: as oxp_run_step. Steps before the failing one have happened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_generate(
    run: *mut oxp_run,
    finish_reason: *mut u32,
    on_event: oxp_event_fn,
    user_data: *mut c_void,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_generate", err, || {
            let out = Out::optional(finish_reason, OXP_FINISH_NONE);
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let note_end = |failure: &Failure| {
                out.set(match failure.code() {
                    OXP_ERR_CANCELLED => OXP_FINISH_CANCELLED,
                    OXP_ERR_DEADLINE_EXCEEDED => OXP_FINISH_DEADLINE,
                    _ => OXP_FINISH_NONE,
                });
            };
            let control = state.control(cancel).inspect_err(note_end)?;
            let mut answer = 0;
            let mut tell = |run: &Run, event: &Event| {
                let Some(on_event) = on_event else {
                    return ControlFlow::Continue(());
                };
                let text = Text::verbatim(&event.text);
                let latents = match event.progress {
                    Some(_) => Latents::of(run),
                    None => Latents::default(),
                };
                let event = plain_event(event, &text, &latents, &event.codes);
                answer = outside(|| on_event(user_data, &raw const event));
                match answer {
                    0 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            };
            let outcome = state.run.generate(&control, &mut tell);
            let outcome = outcome.map_err(|error| state.late(error));
            match outcome.inspect_err(note_end)? {
                Some(reason) => out.set(finish_code(reason).0),
                None => {
                    out.set(OXP_FINISH_CANCELLED);
                    return Err(Failure::new(
                        OXP_ERR_CANCELLED,
                        format!("the callback returned {answer}, which ends the call; 0 goes on"),
                    ));
                }
            }
            Ok(())
        })
    }
}

/// Feeds what has not run yet and stops before a token is chosen: look at oxp_run_get_logits
/// and call oxp_run_force_token. `cancel` may be NULL.
///
/// Errors: as oxp_run_step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_forward(
    run: *mut oxp_run,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_forward", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let control = state.control(cancel)?;
            let outcome = state.run.forward(&control);
            outcome.map_err(|error| state.late(error))
        })
    }
}

/// Makes `token` the choice from the current logits: after oxp_run_forward it is appended,
/// after a step it takes the place of the token that the step chose. `event` says what
/// happened.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (outside of the vocabulary, or not what the constraint allows),
/// OXP_ERR_INVALID_STATE (no logits), OXP_ERR_CONSTRAINT, OXP_ERR_STRUCT_SIZE, OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_force_token(
    run: *mut oxp_run,
    token: i32,
    event: *mut oxp_event,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_force_token", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let out = InfoOut::new(event, "event")?;
            let event = state.run.force_token(token)?;
            out.set(state.event(&event));
            Ok(())
        })
    }
}

/// Keeps the first `length` tokens and forgets the others. 0 starts over; inputs stay set.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (more than there are), OXP_ERR_INVALID_STATE (nothing
/// reads tokens), OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_rewind(
    run: *mut oxp_run,
    length: u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_rewind", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            Ok(state.run.rewind(usize::try_from(length).unwrap_or(usize::MAX))?)
        })
    }
}

/// Text of the answer that no event has given yet, by the rule of strings out: a stop string may have begun
/// in it, or a character is incomplete, for which U+FFFD stands. It stays held back, and a later event has
/// it if the answer goes on; ask for it where the answer ends here: behind OXP_ERR_CANCELLED,
/// OXP_ERR_DEADLINE_EXCEEDED or a callback that ended the call. Empty once the run is finished, whose last
/// event had it, and in packages whose tokens are no text.
///
/// Errors: OXP_ERR_TOKENIZER, OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_HANDLE,
/// OXP_ERR_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_pending_text_copy(
    run: *mut oxp_run,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_pending_text_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let run = handle::get::<RunObject>(run, "run")?;
            let state = run.0.enter()?;
            copy_text(&state.run.pending_text()?, buffer, capacity, &needed)
        })
    }
}

/// Runs the final_only components; their outputs are then values of the run. In an iterative
/// package they may run after any step, over what that has made. `cancel` may be NULL.
///
/// Errors: as oxp_run_step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_finish(
    run: *mut oxp_run,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_finish", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let control = state.control(cancel)?;
            let outcome = state.run.finish(&control);
            outcome.map_err(|error| state.late(error))
        })
    }
}

/// Runs one on_demand component; its outputs are then values of the run. `cancel` may be
/// NULL.
///
/// Errors: OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_INVALID_STATE (another phase),
/// OXP_ERR_INVALID_UTF8, and as oxp_run_step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_run_execute(
    run: *mut oxp_run,
    component: *const c_char,
    component_len: u64,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_run_execute", err, || {
            let run = handle::get::<RunObject>(run, "run")?;
            let mut state = run.0.enter()?;
            let component = text(component, component_len, "component")?;
            let control = state.control(cancel)?;
            let outcome = state.run.run_component(component, &control);
            outcome.map_err(|error| state.late(error))
        })
    }
}

/// A 0 or 1 of the caller's.
pub(super) fn flag(value: i32, what: &str) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Failure::argument(format!("{what} is {other}; it is 0 or 1"))),
    }
}
