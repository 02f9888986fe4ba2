//! Options: string keys and values, checked when they are set.

use std::ffi::c_char;
use std::path::PathBuf;
use std::time::Duration;

use crate::component::shown;
use crate::generation::{OptionError, SamplingOptions};
use crate::pipeline::{PipelineOptions, RunSettings, Speculation};
use crate::runtime::{BackendChoice, RuntimeSettings};

use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::guard::{guard, guard_free};
use super::handle::{self, Object, Serial, State, Tag};
use super::lists;
use super::status::{OXP_ERR_INVALID_ARGUMENT, OXP_ERR_INVALID_OPTION, OXP_ERR_UNKNOWN_OPTION, oxp_status};
use super::strings::{Out, text};

/// Options for oxp_runtime_create:
///   "threads"       the most threads that a component may use, 1 to 1024; default: one a
///                   core. Native components share them: one that runs while another does
///                   has the calling thread alone
///   "ort_library"   path of ONNX Runtime's shared library; default: ORT_DYLIB_PATH, then
///                   beside liboxpipe, then the system's search path
///   "trace"         path of a file, made anew, that tells what ran when: calls on runs,
///                   components with their bytes and threads, and of native ones each
///                   operator, as Chrome's trace events (open it at ui.perfetto.dev). It is
///                   closed when nothing uses the runtime any more; one that was not, because
///                   the process ended before, can be read all the same, without the operators
///                   of a component that was running. What cannot be written is a warning to
///                   the logger.
///                   Default: none
pub const OXP_OPTIONS_RUNTIME: u32 = 1;
/// Options for oxp_session_open and oxp_session_open_memory:
///   "backend"         "auto", "native" or "ort"; default "auto"
///   "threads"         1 to 1024; default: the runtime's
///   "name"            what messages call the graph; default: nothing
///   "load_timeout_ms" milliseconds after which opening fails
///   "run_timeout_ms"  milliseconds after which each run fails
///   "native.disable_passes"
///                     graph passes that the native runtime leaves out: names with commas
///                     between them, or "all"; default: none. README.md lists them
///   "native.packed_cache"
///                     where the native runtime keeps the weights that it packs when it
///                     loads a model, so that the next start takes them as they are: "off"
///                     (the default), "beside" (in MODEL.oxpacked, beside the file MODEL;
///                     an error for what is opened from memory), or the path of a folder,
///                     with a slash in it. Files that do not fit are written anew; one that
///                     cannot be written is a warning to the logger
///   "native.kv_cache_dtype"
///                     how the native runtime keeps the KV cache: "model" (the default), or
///                     "int8": float caches [batch, heads, rows, size] of GroupQueryAttention
///                     become int8 [batch, heads, rows, size + 4], a row its codes and then
///                     a float32 scale, max |x| / 127; about a quarter of float32's bytes.
///                     Inputs and outputs are then of that type; other caches stay
///   "native.model_files"
///                     "map" (the default): the native runtime uses model files where they lie, and
///                     a call fails with OXP_ERR_IO once one was written to or cut off; or "read":
///                     they are read when the model is opened, and may change afterwards
///   "memory_bytes"    bytes of memory that the session may take, 1 to 2^64 - 1: the sizes of the
///                     model's files, mapped or not, what the native runtime makes of them (packed
///                     weights, constants), and in a run what native operators compute on the way and
///                     outputs in memory of the library, until these are freed. What would go beyond
///                     fails with OXP_ERR_OUT_OF_MEMORY before the memory is taken. Default: no limit.
///                     What ONNX Runtime allocates on its own does not count, nor copies of inputs
///                     that are not aligned
pub const OXP_OPTIONS_SESSION: u32 = 2;
/// Options for oxp_pipeline_open and oxp_pipeline_open_memory:
///   "backend"         for components without an option of their own: "auto", "native" or
///                     "ort"; default: OXP_NATIVE_STEP_COMPONENTS, then "auto"
///   "backend.NAME"    for the component NAME
///   "threads"         1 to 1024; default: the runtime's
///   "variant"         which graphs of a Hugging Face folder to take: the end of their names,
///                     "fp16", "q4", "q4f16", "quantized", "int8", "uint8", "bnb4", or "fp32"
///                     for those without; default: these, or the only ones that there are.
///                     An error for packages of other formats
///   "load_timeout_ms" milliseconds after which opening fails
///   "native.disable_passes"
///                     as for sessions, for every component
///   "native.packed_cache"
///                     as for sessions, for every component
///   "native.kv_cache_dtype"
///                     as for sessions, for every component
///   "native.model_files"
///                     as for sessions, for every component
///   "prefix_cache_bytes"
///                     bytes that may be kept of the KV that runs have computed, 0 to 2^64 - 1: a
///                     run whose tokens begin as those of another did, with the same inputs, takes
///                     it instead of running them. The least recently used goes first. Default 0:
///                     nothing is kept
///   "memory_bytes"    bytes of memory that the models may take, 1 to 2^64 - 1: the sizes of their
///                     files, mapped or not, with external data (a file of several components once,
///                     where it is mapped), and of what the native runtime makes of them (packed
///                     weights, constants). Opening that would go beyond fails with
///                     OXP_ERR_OUT_OF_MEMORY before the memory is taken. Default: no limit. What ONNX
///                     Runtime allocates on its own does not count
///   "long_texts"      what oxp_pipeline_embed and oxp_pipeline_classify do with a text of more tokens
///                     than the package reads of one (max_seq_length, the truncation of
///                     tokenizer.json): "truncate", the default, reads the first of them; "refuse" is
///                     an error
pub const OXP_OPTIONS_PIPELINE: u32 = 3;
/// Options for oxp_run_create:
///   "max_tokens"      tokens to choose after each append; default: the package's limit. In a
///                     package of frames of codes, frames
///   "stop_on_eos"     "true" or "false": whether an end token finishes; default "true"
///   "chunk_size"      the most prompt tokens that one pass feeds; default: all
///   "logits"          "last" or "all": the positions of which a pass over several tokens
///                     keeps the logits, for oxp_run_get_tensor; default "last", the only
///                     ones that choosing a token needs
///   "num_steps"       steps of an iterative package's loop, 1 to 100000; default: the
///                     package's. Not where the package lists the timesteps of its own. Where a
///                     package has several loops, this and the options below are about the
///                     last, but "seed" about all
///   "start_step"      the first step of the loop that runs, 0 to num_steps - 1; default: the
///                     package's. The loop's input is then what the steps before would have
///                     made of it, unless "add_noise" makes it so
///   "add_noise"       "true" or "false": whether what is set at the loop's input is clean, an
///                     image to be made into another, and gets as much noise as the first step
///                     that runs begins with; default "false". For packages with a scheduler
///                     that takes noise back
///   "guidance_scale"  how far an iterative package's guidance goes, 0 to 1000; 1 is none;
///                     default: the package's
///   "seed"            what tokens are drawn from, or the noise of an iterative package with a
///                     scheduler, 0 to 2^64 - 1; default: the package's, or 0. The same seed
///                     gives the same tokens and noise, on every system and with any number of
///                     threads
///   "timeout_ms"      milliseconds after which a step, generate, forward, finish or
///                     execute call fails
///   "max_length"      tokens of prompt and answers together, 1 or more; default: the package's
///                     limit, if neither it nor "max_tokens" says how many to choose
///   "stop_strings"    a JSON array of at most 64 strings of 1 to 1024 bytes. A turn is finished
///                     once its text has come to one of them, wherever tokens begin and end: the
///                     one that is complete first, of several that end with the same byte the
///                     longest. Text that may become one is held back until that is certain
///   "keep_stop_string"
///                     "true" or "false": whether the stop string is part of the events' text;
///                     default "false". What the last token says behind it never is
///   "stop_tokens"     a JSON array of at most 64 arrays of 1 to 64 token ids. A turn is finished
///                     once its chosen tokens end with one of them, the first such in the list
///   "skip_special_tokens"
///                     "true" or "false": whether the text of events is without that of special
///                     tokens; default "true". Some models write tool calls with special tokens
///   "json_whitespace" white-space characters that a constraint allows in a row between the parts
///                     of JSON, 0 to 1000; default 32. Without a bound some models go on with
///                     white space for ever
///   "speculation"     "off" (the default), or who guesses tokens, which are fed behind the last one
///                     and kept as far as they are what the run chooses. The tokens are the same, in
///                     fewer passes where guesses are right. "prompt_lookup": what followed the last
///                     tokens when they were there before. "head": the package's own head, an error
///                     for packages without one. See also oxp_run_set_draft. An error for packages
///                     whose caches do not go back
///   "speculation_tokens"
///                     the most tokens that are guessed for a pass, 1 to 7; default: what the package
///                     says of its head, where that guesses, else 4
///   "memory_bytes"    bytes of memory that the run may take, 1 to 2^64 - 1: KV caches, inputs that
///                     were set, outputs, and what native components compute on the way. A call that
///                     would go beyond fails with OXP_ERR_OUT_OF_MEMORY before the memory is taken, and
///                     the run stays as it was. A fork has a limit of its own, and what it shares counts
///                     for the run that made it. Not counted: what ONNX Runtime allocates on its own,
///                     tokens and logits on their way, and in oxp_batch_step what joined passes compute
///                     on the way. Default: no limit
///   "media_bytes"     bytes of memory that decoding and preprocessing one image or sound may take, 1
///                     to 4294967296 (4 GiB), the default
///
/// How tokens are chosen is said by the options below, in packages that choose tokens; what is not
/// set is as the package says, and neutral where it says nothing. Logits go through, in this order:
/// the hook of oxp_run_set_logits_hook, then
///   "min_length"      no end token before prompt and answer have so many tokens; default 0
///   "min_new_tokens"  no end token before the answer has so many tokens; default 0
///   "repetition_penalty"
///                     0.01 to 100, default 1: once for each token of prompt and answer, x / p
///                     where the logit x is positive, else x p
///   "frequency_penalty"
///                     -100 to 100, default 0: less p times as often as the token is in the
///                     answer
///   "presence_penalty"
///                     -100 to 100, default 0: less p if the token is in the answer
///   "dry_multiplier"  0 to 100, default 0: a token that would go on with a repetition of n
///                     tokens, at least "dry_allowed_length" (1 to 50, default 2), less
///                     multiplier * "dry_base" (1 to 10, default 1.75) ^ (n - allowed length);
///                     "dry_range": of the last so many tokens, 0 for all, the default;
///                     "dry_breakers": token ids with commas that end a repetition; default none
///   "no_repeat_ngram_size"
///                     0 to 1000, default 0: no sequence of so many tokens twice
///   "logit_bias"      "id:value,id:value": added to the logits, -10000 to 10000 or -inf
///   "bad_words"       "5 6,7": sequences of token ids that are never completed
///   "suppress_tokens" "5,6": token ids that are never chosen
///   "begin_suppress_tokens"
///                     the same, as the first of an answer
/// (where what rules tokens out leaves none that a constraint allows, the constraint wins for that
/// token, so that its answers always end) and then the largest is taken, of equals the one with the lowest id. With
///   "do_sample"       "true" a token is drawn instead. Default: the package's, but "true" if an
///                     option below is set, which with "false" is an error
/// logits then go through
///   "temperature"     0 to 100, default 1; 0 takes the largest
///   "top_k"           0 to 2^32 - 1, default 0, all: the k largest, and what equals the last
///   "top_p"           0 to 1, default 1: the most probable that together reach it, with the one
///                     that crosses it
///   "min_p"           0 to 1, default 0: those of at least p times the largest probability
///   "typical_p"       0 to 1, default 1: those nearest to the expected surprise that reach it
///   "top_a"           0 to 1, default 0: those of at least a times the largest probability's
///                     square
///   "xtc_probability" 0 to 1, default 0: how often all tokens of at least "xtc_threshold" (0 to
///                     1, default 0.1) but the least probable of them are left out
///   "mirostat"        1 or 2, default 0, none; with "mirostat_tau", 0 to 100, default 5, and
///                     "mirostat_eta", 0 to 1, default 0.1
/// and one is drawn: the first, by ids, at which the probabilities add up to more than a number from
/// 0 to 1 that depends on "seed" and on how many tokens there are before it, and on nothing else
/// (Philox4x32-10; src/generation/random.rs has the counter).
///   "num_beams"       1 to 64, default 1. Above, oxp_run_generate searches for the most probable
///                     sequences, greedily, with so many beams; oxp_run_step does not step then.
///                     "num_return_sequences" (1 to num_beams, default 1) are kept, for
///                     oxp_run_sequence_copy; a finished one's sum of log p is divided by its
///                     length ^ "length_penalty" (-100 to 100, default 1); "early_stopping" is
///                     "true" (as soon as there are as many as beams), "false" (when the best
///                     beam is no better, the default) or "never" (when none can be better).
///                     Not together with a constraint, a host's sampler, "logprobs",
///                     "speculation", "stop_strings" or "stop_tokens": a package's own
///                     num_beams gives way to the last four, and to drawn tokens.
///                     "num_beam_groups" 1 and "diversity_penalty" 0 alone: no groups
///   "logprobs"        0 to 1000: how many of the most probable tokens oxp_run_get_logprobs
///                     gives for each step; default: none, and not the chosen one's
pub const OXP_OPTIONS_RUN: u32 = 4;

/// Settings for one kind of object, by key. May be used for any number of objects and
/// freed at once after. Serial: one call at a time, any thread.
pub struct oxp_options {
    _private: [u8; 0],
}

pub(super) struct OptionsObject(Serial<Options>);

impl State for Options {
    /// An option is set as a whole or not at all.
    fn roll_back(&mut self) {}
}

impl Object for OptionsObject {
    type Opaque = oxp_options;
    const TAG: Tag = Tag::Options;
}

enum Options {
    Runtime(RuntimeOptions),
    Session(SessionOptions),
    Pipeline(PipelineSettings),
    Run(Box<RunOptions>),
}

#[derive(Clone, Default)]
pub(super) struct RuntimeOptions {
    pub settings: RuntimeSettings,
    /// Where a trace goes; the file is made with the runtime.
    pub trace: Option<PathBuf>,
}

#[derive(Clone, Default)]
pub(super) struct SessionOptions {
    pub backend: BackendChoice,
    pub threads: Option<usize>,
    #[cfg(feature = "native")]
    pub disabled_passes: crate::native::DisabledPasses,
    #[cfg(feature = "native")]
    pub packed_cache: crate::native::PackedCache,
    #[cfg(feature = "native")]
    pub kv_cache_dtype: crate::native::KvCacheDtype,
    #[cfg(feature = "native")]
    pub model_files: crate::native::ModelFiles,
    pub name: String,
    pub load_timeout: Option<Duration>,
    pub run_timeout: Option<Duration>,
    pub memory_bytes: Option<u64>,
    pub test_hook: TestHook,
}

#[derive(Clone, Default)]
pub(super) struct PipelineSettings {
    pub options: PipelineOptions,
    pub load_timeout: Option<Duration>,
}

#[derive(Clone, Default)]
pub(super) struct RunOptions {
    pub settings: RunSettings,
    pub timeout: Option<Duration>,
    pub test_hook: TestHook,
}

/// A panic on purpose, for the tests of the panic boundary; nothing in a released library.
#[derive(Clone, Default)]
pub(super) struct TestHook {
    /// Calls up to and with the one that panics, of all handles made with these options; 0 when
    /// none is to.
    #[cfg(feature = "test-hooks")]
    calls: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl TestHook {
    /// Where the hooks of the header's calls are.
    pub fn reached(&self) {
        #[cfg(feature = "test-hooks")]
        {
            use std::sync::atomic::Ordering::Relaxed;
            let left = self.calls.load(Relaxed);
            self.calls.store(left.saturating_sub(1), Relaxed);
            assert!(left != 1, "a panic that a test asked for");
        }
    }

    #[cfg(feature = "test-hooks")]
    fn set(&self, key: &str, value: &str) -> Result<()> {
        let calls = number(key, value, 0, u64::MAX)?;
        self.calls.store(calls, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}

/// Makes options of one kind, an OXP_OPTIONS_ code, all at their defaults; free them with
/// oxp_options_free.
///
/// Errors: OXP_ERR_INVALID_ARGUMENT (`kind`), OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_options_create(
    kind: u32,
    options: *mut *mut oxp_options,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_options_create", err, || {
            let out = Out::new(options, std::ptr::null_mut(), "options")?;
            let options = match kind {
                OXP_OPTIONS_RUNTIME => Options::Runtime(RuntimeOptions::default()),
                OXP_OPTIONS_SESSION => Options::Session(SessionOptions::default()),
                OXP_OPTIONS_PIPELINE => Options::Pipeline(PipelineSettings::default()),
                OXP_OPTIONS_RUN => Options::Run(Box::default()),
                other => {
                    return Err(Failure::argument(format!(
                        "there is no kind {other} of options; the kinds are OXP_OPTIONS_RUNTIME (1), _SESSION \
                         (2), _PIPELINE (3), _RUN (4)"
                    )));
                }
            };
            out.set(handle::create(OptionsObject(Serial::new(options))));
            Ok(())
        })
    }
}

/// Sets one option; the last value of a key counts. The value is checked at once, except
/// that only opening a pipeline knows whether it has the component of "backend.NAME".
///
/// Errors: OXP_ERR_UNKNOWN_OPTION and OXP_ERR_INVALID_OPTION, whose messages list what is
/// known, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_options_set(
    options: *mut oxp_options,
    key: *const c_char,
    key_len: u64,
    value: *const c_char,
    value_len: u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_options_set", err, || {
            let options = handle::get::<OptionsObject>(options, "options")?;
            let mut options = options.0.enter()?;
            let key = text(key, key_len, "key")?;
            let value = text(value, value_len, "value")?;
            match &mut *options {
                Options::Runtime(settings) => set_runtime(settings, key, value),
                Options::Session(settings) => set_session(settings, key, value),
                Options::Pipeline(settings) => set_pipeline(settings, key, value),
                Options::Run(settings) => set_run(settings, key, value),
            }
        })
    }
}

/// Frees options; what was made with them stays. NULL and what is no live options object
/// are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_options_free(options: *mut oxp_options) {
    guard_free::<OptionsObject>(options);
}

fn set_runtime(options: &mut RuntimeOptions, key: &str, value: &str) -> Result<()> {
    let settings = &mut options.settings;
    match key {
        "threads" => settings.threads = Some(threads(key, value)?),
        "ort_library" | "trace" if value.is_empty() => {
            return Err(invalid(key, value, "the path of a file"));
        }
        "ort_library" => settings.ort_library_path = Some(PathBuf::from(value)),
        "trace" => options.trace = Some(PathBuf::from(value)),
        _ => return Err(unknown(key, "a runtime", &["threads", "ort_library", "trace"])),
    }
    Ok(())
}

fn set_session(settings: &mut SessionOptions, key: &str, value: &str) -> Result<()> {
    match key {
        "backend" => settings.backend = backend(key, value)?,
        "threads" => settings.threads = Some(threads(key, value)?),
        "name" => settings.name = value.to_owned(),
        "load_timeout_ms" => settings.load_timeout = Some(milliseconds(key, value)?),
        "run_timeout_ms" => settings.run_timeout = Some(milliseconds(key, value)?),
        "memory_bytes" => settings.memory_bytes = Some(number(key, value, 1, u64::MAX)?),
        #[cfg(feature = "native")]
        DISABLE_PASSES => settings.disabled_passes = disabled_passes(key, value)?,
        #[cfg(feature = "native")]
        PACKED_CACHE => settings.packed_cache = packed_cache(key, value)?,
        #[cfg(feature = "native")]
        KV_CACHE_DTYPE => settings.kv_cache_dtype = kv_cache_dtype(key, value)?,
        #[cfg(feature = "native")]
        MODEL_FILES => settings.model_files = model_files(key, value)?,
        #[cfg(feature = "test-hooks")]
        "test_panic" => settings.test_hook.set(key, value)?,
        _ => {
            let known = [
                "backend",
                "threads",
                "name",
                "load_timeout_ms",
                "run_timeout_ms",
                "memory_bytes",
                #[cfg(feature = "native")]
                DISABLE_PASSES,
                #[cfg(feature = "native")]
                PACKED_CACHE,
                #[cfg(feature = "native")]
                KV_CACHE_DTYPE,
                #[cfg(feature = "native")]
                MODEL_FILES,
            ];
            return Err(unknown(key, "a session", &known));
        }
    }
    Ok(())
}

fn set_pipeline(settings: &mut PipelineSettings, key: &str, value: &str) -> Result<()> {
    let options = &mut settings.options;
    match key {
        "backend" => options.backend = Some(backend(key, value)?),
        "threads" => options.threads = Some(threads(key, value)?),
        "variant" => options.variant = Some(value.to_owned()),
        "load_timeout_ms" => settings.load_timeout = Some(milliseconds(key, value)?),
        "prefix_cache_bytes" => options.prefix_cache_bytes = number(key, value, 0, u64::MAX)?,
        "memory_bytes" => options.memory_bytes = Some(number(key, value, 1, u64::MAX)?),
        "long_texts" => {
            options.refuse_long_texts = match value {
                "truncate" => false,
                "refuse" => true,
                _ => return Err(invalid(key, value, "\"truncate\" or \"refuse\"")),
            };
        }
        #[cfg(feature = "native")]
        DISABLE_PASSES => options.disabled_passes = disabled_passes(key, value)?,
        #[cfg(feature = "native")]
        PACKED_CACHE => options.packed_cache = packed_cache(key, value)?,
        #[cfg(feature = "native")]
        KV_CACHE_DTYPE => options.kv_cache_dtype = kv_cache_dtype(key, value)?,
        #[cfg(feature = "native")]
        MODEL_FILES => options.model_files = model_files(key, value)?,
        _ => match key.strip_prefix("backend.") {
            Some(component) if !component.is_empty() => {
                let choice = backend(key, value)?;
                options.component_backends.retain(|(name, _)| name != component);
                options.component_backends.push((component.to_owned(), choice));
            }
            _ => {
                let known = [
                    "backend",
                    "backend.NAME",
                    "threads",
                    "variant",
                    "load_timeout_ms",
                    "prefix_cache_bytes",
                    "memory_bytes",
                    "long_texts",
                    #[cfg(feature = "native")]
                    DISABLE_PASSES,
                    #[cfg(feature = "native")]
                    PACKED_CACHE,
                    #[cfg(feature = "native")]
                    KV_CACHE_DTYPE,
                    #[cfg(feature = "native")]
                    MODEL_FILES,
                ];
                return Err(unknown(key, "a pipeline", &known));
            }
        },
    }
    Ok(())
}

fn set_run(options: &mut RunOptions, key: &str, value: &str) -> Result<()> {
    let settings = &mut options.settings;
    match key {
        "max_tokens" => settings.max_tokens = Some(number(key, value, 1, u64::MAX)?),
        "stop_on_eos" => settings.stop_on_eos = flag(key, value)?,
        "chunk_size" => {
            settings.chunk_size = Some(number(key, value, 1, u32::MAX.into())? as usize);
        }
        "logits" => settings.all_logits = all_logits(key, value)?,
        "num_steps" => settings.num_steps = Some(number(key, value, 1, MOST_STEPS)?),
        "start_step" => settings.start_step = Some(number(key, value, 0, MOST_STEPS - 1)?),
        "add_noise" => settings.add_noise = flag(key, value)?,
        "guidance_scale" => settings.guidance_scale = Some(guidance_scale(key, value)?),
        "seed" => settings.seed = Some(number(key, value, 0, u64::MAX)?),
        "timeout_ms" => options.timeout = Some(milliseconds(key, value)?),
        "max_length" => settings.max_length = Some(number(key, value, 1, u64::MAX)?),
        "stop_strings" => settings.stop_strings = lists::strings(key, value)?,
        "keep_stop_string" => settings.keep_stop_string = flag(key, value)?,
        "stop_tokens" => settings.stop_tokens = lists::sequences(key, value)?,
        "skip_special_tokens" => settings.skip_special_tokens = flag(key, value)?,
        "json_whitespace" => settings.json_whitespace = number(key, value, 0, 1000)? as u32,
        "speculation" => settings.speculation = speculation(key, value)?,
        "speculation_tokens" => {
            let most = crate::pipeline::MAX_SPECULATION as u64;
            settings.speculation_tokens = Some(number(key, value, 1, most)? as usize);
        }
        "memory_bytes" => settings.memory_bytes = Some(number(key, value, 1, u64::MAX)?),
        "media_bytes" => settings.media_bytes = Some(number(key, value, 1, crate::media::MOST_BYTES)?),
        #[cfg(feature = "test-hooks")]
        "test_panic" => options.test_hook.set(key, value)?,
        _ if SamplingOptions::names().any(|name| name == key) => {
            settings.sampling.set(key, value).map_err(|error| match error {
                OptionError::Invalid { expected, .. } => invalid(key, value, &expected),
                error => Failure::argument(error.to_string()),
            })?;
        }
        _ => {
            let mut known = vec![
                "max_tokens",
                "stop_on_eos",
                "chunk_size",
                "logits",
                "num_steps",
                "start_step",
                "add_noise",
                "guidance_scale",
                "seed",
                "timeout_ms",
                "max_length",
                "stop_strings",
                "keep_stop_string",
                "stop_tokens",
                "skip_special_tokens",
                "json_whitespace",
                "speculation",
                "speculation_tokens",
                "memory_bytes",
                "media_bytes",
            ];
            known.extend(SamplingOptions::names());
            return Err(unknown(key, "a run", &known));
        }
    }
    Ok(())
}

const MOST_STEPS: u64 = crate::pipeline::MAX_STEPS as u64;

#[cfg(feature = "native")]
const DISABLE_PASSES: &str = "native.disable_passes";

#[cfg(feature = "native")]
fn disabled_passes(key: &str, value: &str) -> Result<crate::native::DisabledPasses> {
    value.parse().map_err(|_| {
        let known: Vec<&str> = crate::native::DisabledPasses::known().collect();
        let expected = format!(
            "\"all\", or of these, with commas between them: {}",
            known.join(", ")
        );
        invalid(key, value, &expected)
    })
}

#[cfg(feature = "native")]
const PACKED_CACHE: &str = "native.packed_cache";

#[cfg(feature = "native")]
fn packed_cache(key: &str, value: &str) -> Result<crate::native::PackedCache> {
    let expected = "\"off\", \"beside\" or the path of a folder, with a slash in it";
    value.parse().map_err(|_| invalid(key, value, expected))
}

#[cfg(feature = "native")]
const KV_CACHE_DTYPE: &str = "native.kv_cache_dtype";

#[cfg(feature = "native")]
fn kv_cache_dtype(key: &str, value: &str) -> Result<crate::native::KvCacheDtype> {
    value
        .parse()
        .map_err(|_| invalid(key, value, "\"model\" or \"int8\""))
}

#[cfg(feature = "native")]
const MODEL_FILES: &str = "native.model_files";

#[cfg(feature = "native")]
fn model_files(key: &str, value: &str) -> Result<crate::native::ModelFiles> {
    value
        .parse()
        .map_err(|_| invalid(key, value, "\"map\" or \"read\""))
}

/// What is in memory is beside no file.
#[cfg(feature = "native")]
pub(super) fn refuse_beside(cache: &crate::native::PackedCache) -> Result<()> {
    match cache {
        crate::native::PackedCache::Beside => Err(invalid(
            PACKED_CACHE,
            "beside",
            "\"off\" or the path of a folder for a model in memory",
        )),
        _ => Ok(()),
    }
}

fn unknown(key: &str, what: &str, known: &[&str]) -> Failure {
    Failure::new(
        OXP_ERR_UNKNOWN_OPTION,
        format!(
            "{what} has no option \"{}\"; its options are {}",
            shown(key),
            known.join(", ")
        ),
    )
}

pub(super) fn invalid(key: &str, value: &str, expected: &str) -> Failure {
    Failure::new(
        OXP_ERR_INVALID_OPTION,
        format!(
            "option \"{}\" cannot be \"{}\"; it is {expected}",
            shown(key),
            shown(value)
        ),
    )
}

fn number(key: &str, value: &str, least: u64, most: u64) -> Result<u64> {
    // `parse` takes a sign as well.
    let digits = Some(value).filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse::<u64>().ok());
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| invalid(key, value, &format!("a whole number from {least} to {most}")))
}

fn guidance_scale(key: &str, value: &str) -> Result<f64> {
    let most = crate::pipeline::MAX_GUIDANCE;
    let scale = value.parse::<f64>().ok();
    let scale = scale.filter(|scale| (0.0..=most).contains(scale));
    scale.ok_or_else(|| invalid(key, value, &format!("a number from 0 to {most}")))
}

fn threads(key: &str, value: &str) -> Result<usize> {
    number(key, value, 1, 1024).map(|n| n as usize)
}

fn milliseconds(key: &str, value: &str) -> Result<Duration> {
    number(key, value, 1, u64::MAX).map(Duration::from_millis)
}

fn flag(key: &str, value: &str) -> Result<bool> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(invalid(key, value, "\"true\" or \"false\"")),
    }
}

fn speculation(key: &str, value: &str) -> Result<Speculation> {
    match value {
        "off" => Ok(Speculation::Off),
        "prompt_lookup" => Ok(Speculation::PromptLookup),
        "head" => Ok(Speculation::Head),
        _ => Err(invalid(key, value, "\"off\", \"prompt_lookup\" or \"head\"")),
    }
}

fn all_logits(key: &str, value: &str) -> Result<bool> {
    match value {
        "last" => Ok(false),
        "all" => Ok(true),
        _ => Err(invalid(key, value, "\"last\" or \"all\"")),
    }
}

fn backend(key: &str, value: &str) -> Result<BackendChoice> {
    value
        .parse()
        .map_err(|_| invalid(key, value, "\"auto\", \"native\" or \"ort\""))
}

/// The settings in an options handle; NULL means the defaults.
fn read<T: Default>(
    options: *const oxp_options,
    take: impl FnOnce(&Options) -> Option<T>,
    kind: &str,
) -> Result<T> {
    let Some(options) = handle::get_optional::<OptionsObject>(options, "options")? else {
        return Ok(T::default());
    };
    let options = options.0.enter()?;
    take(&options).ok_or_else(|| {
        let found = match &*options {
            Options::Runtime(_) => "OXP_OPTIONS_RUNTIME",
            Options::Session(_) => "OXP_OPTIONS_SESSION",
            Options::Pipeline(_) => "OXP_OPTIONS_PIPELINE",
            Options::Run(_) => "OXP_OPTIONS_RUN",
        };
        Failure::new(
            OXP_ERR_INVALID_ARGUMENT,
            format!("options were made with {found}; this call takes {kind}"),
        )
    })
}

pub(super) fn runtime(options: *const oxp_options) -> Result<RuntimeOptions> {
    let take = |options: &Options| match options {
        Options::Runtime(settings) => Some(settings.clone()),
        _ => None,
    };
    read(options, take, "OXP_OPTIONS_RUNTIME")
}

pub(super) fn session(options: *const oxp_options) -> Result<SessionOptions> {
    let take = |options: &Options| match options {
        Options::Session(settings) => Some(settings.clone()),
        _ => None,
    };
    read(options, take, "OXP_OPTIONS_SESSION")
}

pub(super) fn pipeline(options: *const oxp_options) -> Result<PipelineSettings> {
    let take = |options: &Options| match options {
        Options::Pipeline(settings) => Some(settings.clone()),
        _ => None,
    };
    read(options, take, "OXP_OPTIONS_PIPELINE")
}

pub(super) fn run(options: *const oxp_options) -> Result<RunOptions> {
    let take = |options: &Options| match options {
        Options::Run(settings) => Some(RunOptions::clone(settings)),
        _ => None,
    };
    read(options, take, "OXP_OPTIONS_RUN")
}
