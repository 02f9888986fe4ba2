//! Pipelines: a package of several graphs, loaded.

use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::path::PathBuf;

use serde_json::json;

use crate::component::RunControl;
use crate::component::{listed, shown};
use crate::package::PackageSource;
use crate::pipeline::{ComponentInfo, LoadProgress, Phase, Pipeline};
use crate::runtime::Runtime;

use super::cancel::{self, oxp_cancel};
use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::files::{self, oxp_file};
use super::guard::{guard, guard_free, outside};
use super::handle::{self, Object, Tag};
use super::memory::Text;
use super::options::{self, PipelineSettings, oxp_options};
use super::ports::{Ports, element, oxp_port_info, pointer};
use super::runtime::{self, oxp_runtime};
use super::session::{backend_code, load_limit};
use super::status::{OXP_ERR_UNKNOWN_COMPONENT, oxp_status};
use super::strings::{Out, copy_text, text};
use super::structs::{InfoOut, info_struct};

/// When a component runs: once for a prompt, at every step, when the final outputs are
/// asked for, or only when the host asks for it.
pub const OXP_PHASE_PROMPT_ONLY: u32 = 1;
pub const OXP_PHASE_EVERY_STEP: u32 = 2;
pub const OXP_PHASE_FINAL_ONLY: u32 = 3;
pub const OXP_PHASE_ON_DEMAND: u32 = 4;

/// In oxp_pipeline_info.flags: the package has a tokenizer.
pub const OXP_PIPELINE_HAS_TOKENIZER: u32 = 1;
/// In oxp_pipeline_info.flags: the package has a chat template.
pub const OXP_PIPELINE_HAS_CHAT_TEMPLATE: u32 = 2;

/// A package of ONNX graphs, loaded, each on a backend. Shared: any thread, any number of
/// calls at once. Runs of it keep what they need of it.
pub struct oxp_pipeline {
    _private: [u8; 0],
}

/// A component of a pipeline. All pointers are borrowed until the pipeline is freed; text
/// ends with a NUL, lengths are in bytes without it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_component_info {
    /// Set by the caller: sizeof(oxp_component_info).
    pub struct_size: u32,
    /// An OXP_BACKEND_ code: who runs it.
    pub backend: u32,
    pub name: *const c_char,
    pub name_len: u64,
    /// The package's word for what it is, "decoder", "vision_encoder"; may be "".
    pub component_type: *const c_char,
    pub component_type_len: u64,
    /// Its model, relative to the package.
    pub file: *const c_char,
    pub file_len: u64,
    /// Why that backend runs it.
    pub reason: *const c_char,
    pub reason_len: u64,
    /// The modality without which it does not run, "image"; "" if there is none.
    pub when_present: *const c_char,
    pub when_present_len: u64,
    pub input_count: u64,
    pub output_count: u64,
    /// An OXP_PHASE_ code.
    pub phase: u32,
    /// 0.
    pub reserved: u32,
}

info_struct!(oxp_component_info, 112);

/// What a package is. All pointers are borrowed until the pipeline is freed; text ends with
/// a NUL, lengths are in bytes without it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_pipeline_info {
    /// Set by the caller: sizeof(oxp_pipeline_info).
    pub struct_size: u32,
    /// OXP_PIPELINE_ bits.
    pub flags: u32,
    /// "inference_metadata", "genai_config" or "huggingface": what oxp_pipeline_open found.
    pub format: *const c_char,
    pub format_len: u64,
    /// The metadata file that was taken.
    pub metadata_file: *const c_char,
    pub metadata_file_len: u64,
    /// "autoregressive", "nested_autoregressive", "iterative", "single_pass" or "composite".
    pub strategy: *const c_char,
    pub strategy_len: u64,
    /// The component that chooses tokens; "" if there is no token loop.
    pub decoder: *const c_char,
    pub decoder_len: u64,
    /// Any of these token ids ends the text.
    pub eos_token_ids: *const i32,
    pub eos_token_id_count: u64,
    /// The most tokens that a sequence may have; 0 if the package does not say.
    pub context_length: u64,
    /// Bytes of KV cache that one token takes, with that of the package's own head that guesses; 0 if
    /// the graphs do not tell.
    pub kv_bytes_per_token: u64,
    pub component_count: u64,
}

info_struct!(oxp_pipeline_info, 112);

/// How far loading is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_load_progress {
    /// sizeof(oxp_load_progress) in the library.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Components that are loaded.
    pub done: u64,
    pub total: u64,
    /// The component that comes next, text that ends with a NUL, borrowed until the callback
    /// returns; "" at the end.
    pub component: *const c_char,
    pub component_len: u64,
}

info_struct!(oxp_load_progress, 40);

/// Told before each component is loaded, and once at the end, on the calling thread.
/// Returns 0 to go on; anything else ends opening with OXP_ERR_CANCELLED.
pub type oxp_progress_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, progress: *const oxp_load_progress) -> i32>;

pub(super) struct PipelineObject {
    pub pipeline: Pipeline,
    components: Vec<Component>,
    format: Text,
    metadata_file: Text,
    strategy: Text,
    decoder: Text,
    /// Kept alive: its logger may be called by backends.
    _runtime: Runtime,
}

struct Component {
    name: String,
    name_text: Text,
    component_type: Text,
    file: Text,
    reason: Text,
    when_present: Text,
    backend: u32,
    phase: u32,
    inputs: Ports,
    outputs: Ports,
}

impl Object for PipelineObject {
    type Opaque = oxp_pipeline;
    const TAG: Tag = Tag::Pipeline;
}

type Progress<'a> = &'a mut dyn FnMut(LoadProgress<'_>) -> ControlFlow<()>;

impl PipelineObject {
    fn open(
        runtime: Runtime,
        source: &PackageSource,
        settings: &PipelineSettings,
        progress: Option<Progress<'_>>,
        control: &RunControl,
    ) -> Result<Self> {
        cancel::check(control)?;
        let pipeline = Pipeline::open(&runtime, source, &settings.options, progress, control)?;
        let package = pipeline.package();
        Ok(PipelineObject {
            components: pipeline.components().iter().map(Component::new).collect(),
            format: Text::new(package.format),
            metadata_file: Text::new(&package.metadata_file.to_string_lossy()),
            strategy: Text::new(package.strategy),
            decoder: Text::new(package.decoder.as_deref().unwrap_or_default()),
            pipeline,
            _runtime: runtime,
        })
    }

    fn component(&self, name: &str) -> Result<&Component> {
        let found = self.components.iter().find(|component| component.name == name);
        found.ok_or_else(|| {
            let known: Vec<String> = self
                .components
                .iter()
                .map(|component| component.name.clone())
                .collect();
            Failure::new(
                OXP_ERR_UNKNOWN_COMPONENT,
                format!(
                    "there is no component \"{}\"; the components are {}",
                    shown(name),
                    listed(&known)
                ),
            )
        })
    }
}

impl Component {
    fn new(info: &ComponentInfo) -> Self {
        Component {
            name: info.name.clone(),
            name_text: Text::new(&info.name),
            component_type: Text::new(&info.component_type),
            file: Text::new(&info.file),
            reason: Text::new(&info.reason),
            when_present: Text::new(info.when_present.as_deref().unwrap_or_default()),
            backend: backend_code(info.backend),
            phase: match info.phase {
                Phase::PromptOnly => OXP_PHASE_PROMPT_ONLY,
                Phase::EveryStep => OXP_PHASE_EVERY_STEP,
                Phase::FinalOnly => OXP_PHASE_FINAL_ONLY,
                Phase::OnDemand => OXP_PHASE_ON_DEMAND,
            },
            inputs: Ports::inputs(&info.io),
            outputs: Ports::outputs(&info.io),
        }
    }
}

/// Opens the package in the folder at `path` (UTF-8) and loads its components. The first of
/// these files says what the package is: inference_metadata.yaml, .yml or .json;
/// genai_config.json, onnxruntime-genai's; config.json beside .onnx files, or with them in
/// onnx/, a Hugging Face export. A file that is there and wrong is an error, not passed over.
/// Free the pipeline with oxp_pipeline_free. `runtime` may be NULL. `options`, which may be NULL, are
/// of kind OXP_OPTIONS_PIPELINE. `progress` may be NULL; it is called on this thread, with
/// `user_data`, only during this call. `cancel` may be NULL.
///
/// Errors: OXP_ERR_IO, OXP_ERR_INVALID_PACKAGE, OXP_ERR_INVALID_MODEL,
/// OXP_ERR_UNKNOWN_COMPONENT (an option or variable names one that the package lacks),
/// OXP_ERR_MISSING_OPERATOR, OXP_ERR_BACKEND_UNAVAILABLE, OXP_ERR_UNSUPPORTED,
/// OXP_ERR_TOKENIZER, OXP_ERR_CHAT_TEMPLATE, OXP_ERR_CANCELLED,
/// OXP_ERR_DEADLINE_EXCEEDED, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8,
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_INVALID_ARGUMENT and OXP_ERR_BUSY (`options`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_open(
    runtime: *const oxp_runtime,
    path: *const c_char,
    path_len: u64,
    options: *const oxp_options,
    pipeline: *mut *mut oxp_pipeline,
    progress: oxp_progress_fn,
    user_data: *mut c_void,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_open", err, || {
            let out = Out::new(pipeline, std::ptr::null_mut(), "pipeline")?;
            let source = PackageSource::Directory(PathBuf::from(text(path, path_len, "path")?));
            out.set(open(runtime, &source, options, progress, user_data, cancel)?);
            Ok(())
        })
    }
}

/// Opens a package of `file_count` files in memory, of any format; nothing is read from disk. The bytes
/// are copied. Names are relative: "..", an absolute path and a backslash are refused as
/// OXP_ERR_INVALID_PACKAGE, and so are two names of one file. As oxp_pipeline_open otherwise.
///
/// Errors: as oxp_pipeline_open, OXP_ERR_OUT_OF_MEMORY, and OXP_ERR_INVALID_ARGUMENT for a
/// file given twice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_open_memory(
    runtime: *const oxp_runtime,
    files: *const oxp_file,
    file_count: u64,
    options: *const oxp_options,
    pipeline: *mut *mut oxp_pipeline,
    progress: oxp_progress_fn,
    user_data: *mut c_void,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_open_memory", err, || {
            let out = Out::new(pipeline, std::ptr::null_mut(), "pipeline")?;
            let source = PackageSource::Files(files::read(files, file_count, "files")?);
            out.set(open(runtime, &source, options, progress, user_data, cancel)?);
            Ok(())
        })
    }
}

fn open(
    runtime: *const oxp_runtime,
    source: &PackageSource,
    options: *const oxp_options,
    progress: oxp_progress_fn,
    user_data: *mut c_void,
    cancel: *const oxp_cancel,
) -> Result<*mut oxp_pipeline> {
    let settings = options::pipeline(options)?;
    #[cfg(feature = "native")]
    if let PackageSource::Files(_) = source {
        options::refuse_beside(&settings.options.packed_cache)?;
    }
    let control = cancel::control(cancel, settings.load_timeout)?;
    let runtime = runtime::or_default(runtime)?;
    let pipeline = match progress {
        None => PipelineObject::open(runtime, source, &settings, None, &control),
        Some(progress) => {
            let mut report = |state: LoadProgress<'_>| {
                let component = Text::new(state.component.unwrap_or_default());
                let state = oxp_load_progress {
                    struct_size: size_of::<oxp_load_progress>() as u32,
                    reserved: 0,
                    done: state.done as u64,
                    total: state.total as u64,
                    component: component.as_ptr(),
                    component_len: component.len(),
                };
                // SAFETY: the host gave the function and its data for this call; the struct
                // lives until the callback returns.
                match outside(|| unsafe { progress(user_data, &raw const state) }) {
                    0 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            };
            PipelineObject::open(runtime, source, &settings, Some(&mut report), &control)
        }
    };
    let limit = load_limit(settings.load_timeout);
    Ok(handle::create(pipeline.map_err(|failure| limit.name(failure))?))
}

/// What opening the package in the folder at `path` with `options`, which may be NULL, would take, from
/// file sizes, without loading it. Of the options "variant" counts. `weight_bytes`, which may be NULL,
/// gets the bytes of all weights; `buffer` gets JSON, {"weight_bytes": N, "components": [{"name", "file", "weight_bytes"}, ...]}, by
/// the rule of strings out. `runtime` may be NULL.
///
/// Errors: OXP_ERR_IO, OXP_ERR_INVALID_PACKAGE, OXP_ERR_UNSUPPORTED,
/// OXP_ERR_INVALID_ARGUMENT (options of another kind), OXP_ERR_BUFFER_TOO_SMALL,
/// OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8, OXP_ERR_INVALID_HANDLE, OXP_ERR_BUSY (the options).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_estimate_copy(
    runtime: *const oxp_runtime,
    path: *const c_char,
    path_len: u64,
    options: *const oxp_options,
    weight_bytes: *mut u64,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_estimate_copy", err, || {
            let total = Out::optional(weight_bytes, 0);
            let needed = Out::new(needed, 0, "needed")?;
            let source = PackageSource::Directory(PathBuf::from(text(path, path_len, "path")?));
            let settings = options::pipeline(options)?;
            let variant = settings.options.variant.as_deref();
            let estimate = Pipeline::estimate(&runtime::or_default(runtime)?, &source, variant)?;
            let components: Vec<_> = estimate
                .components
                .iter()
                .map(|part| json!({"name": part.name, "file": part.file, "weight_bytes": part.weight_bytes}))
                .collect();
            let answer = json!({"weight_bytes": estimate.weight_bytes, "components": components});
            total.set(estimate.weight_bytes);
            copy_text(&answer.to_string(), buffer, capacity, &needed)
        })
    }
}

/// Frees a pipeline; its runs, tokenizers and chat templates live on. NULL and what is no
/// live pipeline are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_pipeline_free(pipeline: *mut oxp_pipeline) {
    guard_free::<PipelineObject>(pipeline);
}

/// What the package is.
///
/// Errors: OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_get_info(
    pipeline: *const oxp_pipeline,
    info: *mut oxp_pipeline_info,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_get_info", err, || {
            let object = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let info = InfoOut::new(info, "info")?;
            let package = object.pipeline.package();
            let tokenizer = object
                .pipeline
                .tokenizer()
                .map_or(0, |_| OXP_PIPELINE_HAS_TOKENIZER);
            let chat = object
                .pipeline
                .chat_template()
                .map_or(0, |_| OXP_PIPELINE_HAS_CHAT_TEMPLATE);
            info.set(oxp_pipeline_info {
                struct_size: 0,
                flags: tokenizer | chat,
                format: object.format.as_ptr(),
                format_len: object.format.len(),
                metadata_file: object.metadata_file.as_ptr(),
                metadata_file_len: object.metadata_file.len(),
                strategy: object.strategy.as_ptr(),
                strategy_len: object.strategy.len(),
                decoder: object.decoder.as_ptr(),
                decoder_len: object.decoder.len(),
                eos_token_ids: pointer(&package.eos_token_ids),
                eos_token_id_count: package.eos_token_ids.len() as u64,
                context_length: package.context_length.unwrap_or(0),
                kv_bytes_per_token: object.pipeline.kv_bytes_per_token().unwrap_or(0),
                component_count: object.components.len() as u64,
            });
            Ok(())
        })
    }
}

/// The component at `index`, counted from 0 in the package's order. The package's own head that guesses
/// tokens, if it is used, is the last.
///
/// Errors: OXP_ERR_OUT_OF_RANGE, OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_HANDLE,
/// OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_get_component(
    pipeline: *const oxp_pipeline,
    index: u64,
    info: *mut oxp_component_info,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_get_component", err, || {
            let object = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let info = InfoOut::new(info, "info")?;
            let component = element(&object.components, index, "components")?;
            info.set(oxp_component_info {
                struct_size: 0,
                backend: component.backend,
                name: component.name_text.as_ptr(),
                name_len: component.name_text.len(),
                component_type: component.component_type.as_ptr(),
                component_type_len: component.component_type.len(),
                file: component.file.as_ptr(),
                file_len: component.file.len(),
                reason: component.reason.as_ptr(),
                reason_len: component.reason.len(),
                when_present: component.when_present.as_ptr(),
                when_present_len: component.when_present.len(),
                input_count: component.inputs.len(),
                output_count: component.outputs.len(),
                phase: component.phase,
                reserved: 0,
            });
            Ok(())
        })
    }
}

/// The input at `index` of the component with that name. What `info` points to is borrowed
/// until the pipeline is freed.
///
/// Errors: OXP_ERR_UNKNOWN_COMPONENT, OXP_ERR_OUT_OF_RANGE, OXP_ERR_STRUCT_SIZE,
/// OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER, OXP_ERR_INVALID_UTF8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_get_input(
    pipeline: *const oxp_pipeline,
    component: *const c_char,
    component_len: u64,
    index: u64,
    info: *mut oxp_port_info,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_get_input", err, || {
            let object = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let info = InfoOut::new(info, "info")?;
            let component = text(component, component_len, "component")?;
            object.component(component)?.inputs.describe(index, &info)
        })
    }
}

/// The output at `index` of the component with that name. As oxp_pipeline_get_input.
///
/// Errors: as oxp_pipeline_get_input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_get_output(
    pipeline: *const oxp_pipeline,
    component: *const c_char,
    component_len: u64,
    index: u64,
    info: *mut oxp_port_info,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_get_output", err, || {
            let object = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            let info = InfoOut::new(info, "info")?;
            let component = text(component, component_len, "component")?;
            object.component(component)?.outputs.describe(index, &info)
        })
    }
}

/// Everything that is known about the pipeline (package, components, ports and where their
/// values come from, phases, backends and reasons, defaults of generation) as JSON, by the rule of strings out.
///
/// Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_pipeline_describe_copy(
    pipeline: *const oxp_pipeline,
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_pipeline_describe_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            let object = handle::get::<PipelineObject>(pipeline, "pipeline")?;
            copy_text(&object.pipeline.describe().to_string(), buffer, capacity, &needed)
        })
    }
}
