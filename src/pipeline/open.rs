use std::collections::HashSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::component::{
    Charge, ComponentErrorKind, ComponentIo, ComponentSession, Dim, EnteredAccount, MemoryAccount,
    RunControl, Trace,
};
use crate::generation::{Schedule, ScheduleError};
use crate::package::{
    HeadPackage, InputSource, Iteration, ModelOutline, OutputRole, Package, PackageError, PackageErrorKind,
    PackageHead, PackageSource, PipelineSpec, Readout, Resolved, Said, Scheduler, outline_error,
};
use crate::runtime::{BackendChoice, ComponentOptions, LogLevel, OpenedComponent, Runtime};
use crate::text::{ChatTemplate, Guide, SpecialTokens, Tokenizer};

use super::execute::{SharedSession, check_control};
use super::head::HeadModel;
use super::identity::{self, Identity};
use super::info::{ComponentInfo, PackageInfo, package_info};
use super::placement::grow_all_in_place;
use super::prefixes::Prefixes;
use super::{PipelineError, RequestError, backend, describe};

/// How a pipeline is opened.
#[derive(Clone, Debug, Default)]
pub struct PipelineOptions {
    /// For every component without an option of its own; `None` leaves it to the
    /// environment variable, then to `auto`.
    pub backend: Option<BackendChoice>,
    /// Which of a model's files to take where a Hugging Face folder has several: `fp16`, `q4`,
    /// `quantized`, ... (the end of their names); `fp32` is those without. `None` takes these, or
    /// the only ones that there are.
    pub variant: Option<String>,
    /// By component name; a name that the package lacks is an error.
    pub component_backends: Vec<(String, BackendChoice)>,
    /// Threads that a component may use; `None` means the runtime's.
    pub threads: Option<usize>,
    /// Graph passes that the native runtime leaves out.
    #[cfg(feature = "native")]
    pub disabled_passes: crate::native::DisabledPasses,
    /// Where the native runtime keeps packed weights.
    #[cfg(feature = "native")]
    pub packed_cache: crate::native::PackedCache,
    /// How the native runtime keeps KV caches.
    #[cfg(feature = "native")]
    pub kv_cache_dtype: crate::native::KvCacheDtype,
    /// How the native runtime gets model files into memory.
    #[cfg(feature = "native")]
    pub model_files: crate::native::ModelFiles,
    /// Bytes that may be kept of what runs have computed, for other runs whose tokens begin alike;
    /// 0 keeps nothing.
    pub prefix_cache_bytes: u64,
    /// Bytes that the models may take: the sizes of their files, whether these are mapped or read, and
    /// of what the native runtime makes of them, packed weights and constants. `None` is no limit. What
    /// ONNX Runtime allocates on its own is not known to us and does not count.
    pub memory_bytes: Option<u64>,
    /// Whether a text that a vector or classes are made of is refused where it has more tokens than
    /// the package cuts texts off at.
    pub refuse_long_texts: bool,
}

/// How far loading is; given before each component and once at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress<'a> {
    /// Components that are loaded.
    pub done: usize,
    pub total: usize,
    /// The component that comes next; `None` at the end.
    pub component: Option<&'a str>,
}

/// Called as loading goes on; a break ends it.
pub type OnProgress<'a> = dyn FnMut(LoadProgress<'_>) -> ControlFlow<()> + 'a;

/// Memory that a package will take, from file sizes and declared shapes, without loading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    pub components: Vec<ComponentEstimate>,
    /// Bytes of weights, all components.
    pub weight_bytes: u64,
    /// Bytes of KV that each token of a run takes, where the declared dims tell, with that of
    /// the package's own head that guesses. (A run holds twice as much: what there is, and what
    /// a step makes of it.)
    pub kv_bytes_per_token: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentEstimate {
    pub name: String,
    pub file: String,
    /// Bytes of the model file and of the files that its external data lies in.
    pub weight_bytes: u64,
}

/// A package, loaded. Clones are the same pipeline; any thread may use it.
#[derive(Clone)]
pub struct Pipeline(Arc<PipelineShared>);

pub(super) struct PipelineShared {
    pub spec: PipelineSpec,
    /// What states that are saved belong to.
    pub identity: Identity,
    pub prefixes: Prefixes,
    pub readout: Option<Readout>,
    pub refuse_long_texts: bool,
    /// Of each component, whether its session runs several calls as one.
    pub joins_calls: Vec<bool>,
    pub sessions: Vec<SharedSession>,
    /// The package's own head that guesses tokens.
    pub head: Option<HeadModel>,
    /// Why there is none, where the package has one that this version does not run.
    pub no_head: Option<String>,
    pub components: Vec<ComponentInfo>,
    pub package: PackageInfo,
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub chat_template: Option<Arc<ChatTemplate>>,
    /// What constraints need, once one was asked for.
    pub guide: Mutex<Option<Arc<Guide>>>,
    pub trace: Option<Trace>,
    /// The files, in what the pipeline may take: a component may load more of its model later.
    #[expect(dead_code, reason = "kept until it is dropped")]
    pub charges: Vec<Charge>,
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("package", &self.0.package)
            .field("components", &self.0.components)
            .finish_non_exhaustive()
    }
}

impl Pipeline {
    /// Reads a package and loads its components.
    ///
    /// `progress` may break, which ends in [`ErrorKind::Cancelled`](super::ErrorKind); so
    /// may `control`.
    pub fn open(
        runtime: &Runtime,
        source: &PackageSource,
        options: &PipelineOptions,
        mut progress: Option<&mut OnProgress<'_>>,
        control: &RunControl,
    ) -> Result<Self, PipelineError> {
        check_control(control)?;
        let package = Package::open(source, options.variant.as_deref())?;
        check_control(control)?;
        package.check_files()?;
        warn_of(runtime, &package);
        let names = component_names(&package);
        let asked = backend::choose(runtime, options, &names)?;
        let mut report = |done: usize| {
            check_control(control)?;
            let Some(progress) = progress.as_mut() else {
                return Ok(());
            };
            let now = LoadProgress {
                done,
                total: names.len(),
                component: names.get(done).map(String::as_str),
            };
            match progress(now) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(ComponentErrorKind::Cancelled),
            }
        };
        let limit = options.memory_bytes;
        let account = limit.map(|limit| MemoryAccount::new("the pipeline", "memory_bytes", limit));
        let mut charges = Vec::new();
        let mut counted = HashSet::new();
        let count = package.declaration().components.len();
        let mut opened = Vec::with_capacity(names.len());
        let mut models = Vec::with_capacity(names.len());
        for (index, (name, asked)) in names.iter().zip(&asked).enumerate() {
            report(index)?;
            let component_options = ComponentOptions {
                backend: asked.choice,
                threads: options.threads,
                #[cfg(feature = "native")]
                disabled_passes: options.disabled_passes,
                #[cfg(feature = "native")]
                packed_cache: options.packed_cache.clone(),
                #[cfg(feature = "native")]
                kv_cache_dtype: options.kv_cache_dtype,
                #[cfg(feature = "native")]
                model_files: options.model_files,
                ort: match package.head().filter(|_| index == count) {
                    Some(head) => head.package.ort_settings(head.index()),
                    None => package.ort_settings(index),
                },
                control: control.clone(),
            };
            let model = match package.head().filter(|_| index == count) {
                Some(head) => head.package.model(head.index())?,
                None => package.model(index)?,
            };
            if let Some(account) = &account {
                // Each reads its own copy; what is mapped is there once.
                #[cfg(feature = "native")]
                if options.model_files == crate::native::ModelFiles::Read {
                    counted.clear();
                }
                charges.push(ModelOutline::charge(account, &mut counted, name, &model)?);
            }
            let mut component = {
                let _entered = EnteredAccount::of(account.as_ref());
                let opened = runtime.open_component(name, &model, &component_options);
                opened.map_err(|error| MemoryAccount::explain_of(account.as_ref(), error))?
            };
            models.push(identity::of_model(&model).map_err(|error| outline_error(name, &model, error))?);
            if asked.choice != BackendChoice::Auto {
                component.reason.clone_from(&asked.by);
            }
            opened.push(component);
        }
        let pipeline = Self::assemble(runtime, &package, opened, &models, charges, options, control)?;
        // The last report: nothing is left to do, and nothing has been given out.
        report(names.len())?;
        check_control(control)?;
        Ok(pipeline)
    }

    /// A pipeline of sessions that the caller made, one for each component by name. Of the
    /// package only the metadata and the tokenizer's files are read; its model files need
    /// not exist.
    pub fn with_sessions(
        runtime: &Runtime,
        source: &PackageSource,
        sessions: Vec<(String, Box<dyn ComponentSession>)>,
    ) -> Result<Self, PipelineError> {
        let package = Package::open(source, None)?;
        warn_of(runtime, &package);
        let names = component_names(&package);
        let mut sessions: Vec<_> = sessions
            .into_iter()
            .map(|(name, session)| (name, Some(session)))
            .collect();
        if let Some((unknown, _)) = sessions.iter().find(|(name, _)| !names.contains(name)) {
            return Err(RequestError::UnknownComponent {
                found: unknown.clone(),
                known: names,
            }
            .into());
        }
        let opened = names
            .iter()
            .map(|name| {
                let session = sessions
                    .iter_mut()
                    .find(|(given, _)| given == name)
                    .and_then(|(_, session)| session.take())
                    .ok_or_else(|| RequestError::InvalidSetting {
                        what: "sessions",
                        message: format!("there is none for component \"{name}\""),
                    })?;
                Ok(OpenedComponent {
                    backend: session.backend(),
                    session,
                    reason: "given by the caller".to_owned(),
                })
            })
            .collect::<Result<Vec<_>, PipelineError>>()?;
        let ports: Vec<u128> = opened
            .iter()
            .map(|component| identity::of_ports(component.session.io()))
            .collect();
        let options = PipelineOptions::default();
        Self::assemble(
            runtime,
            &package,
            opened,
            &ports,
            Vec::new(),
            &options,
            &RunControl::default(),
        )
    }

    /// Puts sessions and the package's texts together: those of its components, and that of its head.
    /// What reads a file may take long: `control` is asked around each.
    fn assemble(
        runtime: &Runtime,
        package: &Package,
        mut opened: Vec<OpenedComponent>,
        models: &[u128],
        mut charges: Vec<Charge>,
        options: &PipelineOptions,
        control: &RunControl,
    ) -> Result<Self, PipelineError> {
        check_control(control)?;
        let head = package.head().and_then(|head| Some((head, opened.pop()?)));
        let ios: Vec<ComponentIo> = opened
            .iter()
            .map(|component| component.session.io().clone())
            .collect();
        let Resolved { mut spec, warnings } = package.resolve(&ios)?;
        for warning in &warnings {
            runtime.log(LogLevel::Warning, warning);
        }
        grow_all_in_place(&mut spec, &opened)?;
        for iteration in &spec.iterations {
            check_schedule(runtime, &spec, iteration)?;
        }
        check_control(control)?;
        let tokenizer_files = package.tokenizer_files()?;
        let tokenizer = match &tokenizer_files {
            None => None,
            Some(files) => Some(Tokenizer::from_bytes(
                &files.label,
                (*files.tokenizer).as_ref(),
                files.config.as_ref().map(|config| (**config).as_ref()),
            )?),
        };
        check_control(control)?;
        if let Some(size) = vocabulary(&spec, tokenizer.as_deref()) {
            for said in &package.declaration().eos_token_ids {
                if !usize::try_from(said.value).is_ok_and(|id| id < size) {
                    let message = format!(
                        "{}: token id {} is outside of the vocabulary of {size} tokens and ends nothing",
                        said.at, said.value
                    );
                    runtime.log(LogLevel::Warning, &message);
                }
            }
        }
        let no_roles = SpecialTokens::default();
        let roles = tokenizer
            .as_ref()
            .map_or(&no_roles, |tokenizer| tokenizer.special_tokens());
        let chat_template = match package.chat_template()? {
            None => None,
            // A template that cannot be parsed spoils chat, not the pipeline.
            Some((label, text)) => match ChatTemplate::new(&label, &text, roles) {
                Ok(template) => Some(Arc::new(template)),
                Err(error) => {
                    runtime.log(
                        LogLevel::Warning,
                        &format!("{error}; the pipeline has no chat template"),
                    );
                    None
                }
            },
        };
        check_control(control)?;
        let mut components: Vec<ComponentInfo> = spec
            .components
            .iter()
            .zip(&opened)
            .map(|(component, opened)| {
                runtime.log(
                    LogLevel::Info,
                    &format!(
                        "component \"{}\" runs on {}: {}",
                        component.name, opened.backend, opened.reason
                    ),
                );
                ComponentInfo {
                    name: component.name.clone(),
                    component_type: component.component_type.clone(),
                    file: component.file.clone(),
                    backend: opened.backend,
                    reason: opened.reason.clone(),
                    phase: component.phase,
                    when_present: component.when_present.clone(),
                    io: component.io.clone(),
                }
            })
            .collect();
        let info = package_info(package, &spec);
        let names = spec.components.iter().map(|component| component.name.clone());
        let tokenizer_bytes = tokenizer_files.as_ref().map(|files| (*files.tokenizer).as_ref());
        let identity = Identity::new(&spec, tokenizer_bytes, names.zip(models.iter().copied()));
        let sessions = opened.iter().map(|component| &component.session);
        let joins_calls = sessions.map(|session| session.joins_calls()).collect();
        let sessions: Vec<SharedSession> = opened
            .into_iter()
            .map(|component| Arc::new(Mutex::new(component.session)))
            .collect();
        let mut no_head = match &package.head {
            PackageHead::Unused(why) => Some(why.clone()),
            PackageHead::None | PackageHead::Head(_) => None,
        };
        let head = match head {
            None => None,
            Some((head, opened)) => match HeadModel::new(runtime, head, opened, &spec, &sessions) {
                Ok(model) => Some(model),
                // As of a layout that is not known: guesses are spoilt, the package is not.
                Err(PipelineError::Package(error)) if head.is_beside(&spec) => {
                    let message = format!("{error}; the head that guesses is not used");
                    runtime.log(LogLevel::Warning, &message);
                    charges.pop();
                    no_head = Some(error.to_string());
                    None
                }
                Err(error) => return Err(error),
            },
        };
        components.extend(head.as_ref().and_then(HeadModel::info));
        Ok(Pipeline(Arc::new(PipelineShared {
            sessions,
            head,
            no_head,
            spec,
            identity,
            prefixes: Prefixes::new(options.prefix_cache_bytes),
            readout: package.readout.clone(),
            refuse_long_texts: options.refuse_long_texts,
            joins_calls,
            components,
            package: info,
            tokenizer,
            chat_template,
            guide: Mutex::new(None),
            trace: runtime.trace().cloned(),
            charges,
        })))
    }

    /// What opening would take, from file sizes and the graphs' declared ports, without
    /// loading a component. `variant` is that of [`PipelineOptions`].
    pub fn estimate(
        runtime: &Runtime,
        source: &PackageSource,
        variant: Option<&str>,
    ) -> Result<Estimate, PipelineError> {
        let package = Package::open(source, variant)?;
        package.check_files()?;
        warn_of(runtime, &package);
        let mut estimate = Estimate::default();
        let outlines = outlines(&package)?;
        for (component, outline) in package.declaration().components.iter().zip(&outlines) {
            estimate.weight_bytes = estimate.weight_bytes.saturating_add(outline.bytes);
            estimate.components.push(ComponentEstimate {
                name: component.name.clone(),
                file: component.file.value.clone(),
                weight_bytes: outline.bytes,
            });
        }
        let ios: Vec<_> = outlines.into_iter().map(|outline| outline.io).collect();
        let spec = package.resolve(&ios)?.spec;
        let mut of_head = None;
        if let Some((head, outline)) = head_outline(&package)? {
            // One that its graph contradicts is not kept.
            if let Ok(resolved) = head.resolve(&spec, &outline.io) {
                of_head = kv_bytes_per_token(&resolved.spec);
                estimate.weight_bytes = estimate.weight_bytes.saturating_add(outline.bytes);
                estimate.components.push(ComponentEstimate {
                    name: head.name().to_owned(),
                    file: head.file().to_owned(),
                    weight_bytes: outline.bytes,
                });
            }
        }
        estimate.kv_bytes_per_token = with_head(kv_bytes_per_token(&spec), of_head);
        Ok(estimate)
    }

    /// A package of another format as `inference_metadata.yaml`, which says the same in a folder
    /// with the same graphs. `variant` is that of [`PipelineOptions`]. No component is loaded.
    pub fn to_metadata(source: &PackageSource, variant: Option<&str>) -> Result<String, PipelineError> {
        let package = Package::open(source, variant)?;
        package.check_files()?;
        let outlines = outlines(&package)?.into_iter();
        let ios: Vec<_> = outlines.map(|outline| outline.io).collect();
        let head = head_outline(&package)?;
        Ok(package.to_metadata(&ios, head.as_ref().map(|(_, outline)| &outline.io))?)
    }

    /// Whether this is the same pipeline, not only one of the same package.
    pub fn is(&self, other: &Pipeline) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// In the package's order; the package's own head that guesses, if it is used, is the last.
    pub fn components(&self) -> &[ComponentInfo] {
        &self.0.components
    }

    pub fn component(&self, name: &str) -> Option<&ComponentInfo> {
        self.components().iter().find(|component| component.name == name)
    }

    pub fn package(&self) -> &PackageInfo {
        &self.0.package
    }

    /// Bytes of KV that one token takes, with that of the package's own head that guesses; `None`
    /// without a KV cache.
    pub fn kv_bytes_per_token(&self) -> Option<u64> {
        let head = self.0.head.as_ref();
        let of_head = head.and_then(|head| kv_bytes_per_token(&head.spec.spec));
        with_head(kv_bytes_per_token(&self.0.spec), of_head)
    }

    pub fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        self.0.tokenizer.as_ref()
    }

    pub fn chat_template(&self) -> Option<&Arc<ChatTemplate>> {
        self.0.chat_template.as_ref()
    }

    /// Everything above, as JSON.
    pub fn describe(&self) -> serde_json::Value {
        describe::describe(self)
    }

    pub(super) fn shared(&self) -> &PipelineShared {
        &self.0
    }
}

/// Names of all that is loaded: the components, and behind them the head.
fn component_names(package: &Package) -> Vec<String> {
    let mut names = package.declaration().component_names();
    names.extend(package.head().map(|head| head.name().to_owned()));
    names
}

/// That the scheduler has as many steps as the package asks for. Fractions of timesteps that an
/// integer input loses are a warning.
fn check_schedule(
    runtime: &Runtime,
    spec: &PipelineSpec,
    iteration: &Iteration,
) -> Result<(), PipelineError> {
    let Some(scheduler) = &iteration.scheduler else {
        return Ok(());
    };
    let Some(config) = scheduler.value.noise() else {
        return check_mask(spec, iteration, scheduler);
    };
    let listed = iteration.timesteps.as_ref();
    let timesteps = listed.map(|said| said.value.as_slice());
    let schedule = Schedule::new(config, iteration.num_steps, timesteps).map_err(|error| {
        let at = match (&error, listed) {
            (ScheduleError::TooManySteps { .. }, _) | (_, None) => &scheduler.at,
            (_, Some(listed)) => &listed.at,
        };
        let message = error.to_string();
        PackageError::new(at.clone(), PackageErrorKind::Invalid { message })
    })?;
    let component = spec.components.get(iteration.denoiser);
    let inputs = component.map_or(&[][..], |component| &component.inputs);
    let timestep = inputs.iter().find(|input| input.source == InputSource::Timestep);
    let integer = timestep.is_some_and(|input| input.dtype.is_index());
    let fraction = schedule.steps.iter().find(|step| step.timestep.fract() != 0.0);
    if let (true, Some(step)) = (integer, fraction) {
        let message = format!(
            "{}: timesteps such as {} lose their fractions at the denoiser's input for them, which takes integers",
            scheduler.at, step.timestep
        );
        runtime.log(LogLevel::Warning, &message);
    }
    Ok(())
}

/// That the mask is a token of the model, as far as its logits tell.
fn check_mask(
    spec: &PipelineSpec,
    iteration: &Iteration,
    scheduler: &Said<Scheduler>,
) -> Result<(), PipelineError> {
    let Some(masked) = scheduler.value.masked() else {
        return Ok(());
    };
    let component = spec.components.get(iteration.denoiser);
    let outputs = component.map_or(&[][..], |component| &component.io.outputs);
    for state in iteration.states.iter().filter(|state| state.tokens) {
        let dims = outputs.get(state.output).and_then(|port| port.dims.as_ref());
        let Some(Dim::Fixed(size)) = dims.and_then(|dims| dims.last()) else {
            continue;
        };
        if i64::from(masked.mask_token_id) >= *size {
            let message = format!(
                "mask_token_id {} is outside of the {size} tokens that the denoiser gives logits of",
                masked.mask_token_id
            );
            return Err(
                PackageError::new(scheduler.at.clone(), PackageErrorKind::Invalid { message }).into(),
            );
        }
    }
    Ok(())
}

/// How many token ids the model knows, as far as the decoder's logits and the tokenizer tell.
pub(super) fn vocabulary(spec: &PipelineSpec, tokenizer: Option<&Tokenizer>) -> Option<usize> {
    let token_loop = spec.token_loop?;
    let decoder = spec.components.get(token_loop.decoder)?;
    let logits = match decoder.io.outputs.get(token_loop.logits)?.dims.as_ref()?.last()? {
        Dim::Fixed(size) => usize::try_from(*size).ok()?,
        Dim::Symbol(_) => return None,
    };
    Some(logits.max(tokenizer.map_or(0, Tokenizer::vocab_size)))
}

/// What can be told of each component without loading it.
fn outlines(package: &Package) -> Result<Vec<ModelOutline>, PipelineError> {
    let components = package.declaration().components.iter().enumerate();
    components
        .map(|(index, component)| {
            let model = package.model(index)?;
            Ok(ModelOutline::of_component(&component.name, &model)?)
        })
        .collect()
}

fn warn_of(runtime: &Runtime, package: &Package) {
    for warning in &package.warnings {
        runtime.log(LogLevel::Warning, warning);
    }
}

/// What a token takes for the decoder and for the head that guesses.
fn with_head(own: Option<u64>, of_head: Option<u64>) -> Option<u64> {
    match (own, of_head) {
        (Some(own), Some(head)) => Some(own.saturating_add(head)),
        (own, head) => own.or(head),
    }
}

/// The head that guesses and what its graph declares, if the package has one.
fn head_outline(package: &Package) -> Result<Option<(&HeadPackage, ModelOutline)>, PipelineError> {
    let Some(head) = package.head() else {
        return Ok(None);
    };
    let model = head.package.model(head.index())?;
    let outline = ModelOutline::of_component(head.name(), &model)?;
    Ok(Some((head, outline)))
}

fn kv_bytes_per_token(spec: &PipelineSpec) -> Option<u64> {
    let mut total = None;
    // An inner decoder's cache does not grow with the tokens.
    let inner = spec.nested.map(|nested| nested.inner);
    let components = spec.components.iter().enumerate();
    let components = components.filter(|(index, _)| Some(*index) != inner);
    for output in components.flat_map(|(_, component)| &component.outputs) {
        let (OutputRole::Present { axis, empty, .. }, Some(dtype)) = (&output.role, output.dtype) else {
            continue;
        };
        let mut bytes = dtype.size() as u64;
        for (position, &dim) in empty.iter().enumerate() {
            if position != *axis {
                bytes = bytes.saturating_mul(u64::try_from(dim).unwrap_or(0));
            }
        }
        total = Some(total.unwrap_or(0u64).saturating_add(bytes));
    }
    total
}
