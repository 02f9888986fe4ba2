use std::fmt;

use crate::component::{
    Backend, ComponentError, ComponentErrorKind, ComponentSession, LOAD, ModelSource, RunControl,
    TraceArgument, TracedSession,
};

#[cfg(any(feature = "native", feature = "ort"))]
use super::LogLevel;
#[cfg(feature = "ort")]
use super::OrtOptimization;
use super::{BackendChoice, OrtSettings, Runtime};
#[cfg(feature = "native")]
use crate::native::PackedCacheReport;

/// How one component is opened.
#[derive(Clone, Debug, Default)]
pub struct ComponentOptions {
    pub backend: BackendChoice,
    /// Threads it may use; `None` means the runtime's.
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
    /// For ONNX Runtime, if that runs it.
    pub ort: OrtSettings,
    /// What may end the loading: where files are read and weights packed by the native runtime. ONNX
    /// Runtime loads to its end.
    pub control: RunControl,
}

/// A graph that is ready to run, and why this backend runs it.
pub struct OpenedComponent {
    pub session: Box<dyn ComponentSession>,
    pub backend: Backend,
    /// A phrase for a person: "asked for", "has every operator of the graph", ...
    pub reason: String,
}

impl fmt::Debug for OpenedComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {}", self.session.name(), self.backend, self.reason)
    }
}

impl Runtime {
    /// Opens one graph on the backend that `options` ask for.
    ///
    /// `auto` takes the native runtime if it has every operator of the graph, else ONNX
    /// Runtime if its library can be loaded, else fails with the missing operators. Only a
    /// missing operator leads from native to ONNX Runtime: a file that is absent or broken
    /// is the same error whoever reads it.
    pub fn open_component(
        &self,
        name: &str,
        source: &ModelSource,
        options: &ComponentOptions,
    ) -> Result<OpenedComponent, ComponentError> {
        let threads = options.threads.filter(|&n| n > 0).unwrap_or(self.threads());
        let Some(trace) = self.trace() else {
            return self.open_untraced(name, source, threads, options);
        };
        let began = trace.now();
        let opened = self.open_untraced(name, source, threads, options);
        let backend = opened.as_ref().map_or("none", |opened| opened.backend.name());
        let what = if name.is_empty() { "session" } else { name };
        trace.complete(LOAD, what, began, &[("backend", TraceArgument::Text(backend))]);
        opened.map(|opened| OpenedComponent {
            session: Box::new(TracedSession::new(opened.session, trace.clone(), threads)),
            ..opened
        })
    }

    fn open_untraced(
        &self,
        name: &str,
        source: &ModelSource,
        threads: usize,
        options: &ComponentOptions,
    ) -> Result<OpenedComponent, ComponentError> {
        match options.backend {
            BackendChoice::Native => self.open_native(name, source, threads, options).map(asked_for),
            BackendChoice::Ort => self.open_ort(name, source, threads, options).map(asked_for),
            BackendChoice::Auto => self.open_auto(name, source, threads, options),
        }
    }
}

fn asked_for(session: Box<dyn ComponentSession>) -> OpenedComponent {
    OpenedComponent {
        backend: session.backend(),
        session,
        reason: "asked for".into(),
    }
}

impl Runtime {
    fn open_auto(
        &self,
        name: &str,
        source: &ModelSource,
        threads: usize,
        options: &ComponentOptions,
    ) -> Result<OpenedComponent, ComponentError> {
        let native = match self.open_native(name, source, threads, options) {
            Ok(session) => {
                return Ok(OpenedComponent {
                    backend: Backend::Native,
                    session,
                    reason: "auto: the native runtime has every operator of the graph".into(),
                });
            }
            Err(error) => error,
        };
        let why_not_native = match native.kind() {
            ComponentErrorKind::MissingOperators { missing } => {
                format!("the native runtime lacks {}", missing.join("; "))
            }
            ComponentErrorKind::BackendUnavailable { message } => message.clone(),
            _ => return Err(native),
        };
        if let Some(failure) = self.remembered_ort_failure() {
            return Err(neither(name, &why_not_native, &failure));
        }
        match self.open_ort(name, source, threads, options) {
            Ok(session) => Ok(OpenedComponent {
                backend: Backend::Ort,
                session,
                reason: format!("auto: {why_not_native}"),
            }),
            Err(error) => match error.kind() {
                ComponentErrorKind::BackendUnavailable { message } => {
                    Err(neither(name, &why_not_native, message))
                }
                _ => Err(error),
            },
        }
    }
}

fn neither(name: &str, native: &str, ort: &str) -> ComponentError {
    ComponentError::new(
        name,
        ComponentErrorKind::BackendUnavailable {
            message: format!("no backend can run it: {native}; ONNX Runtime: {ort}"),
        },
    )
}

#[cfg(feature = "native")]
impl Runtime {
    fn open_native(
        &self,
        name: &str,
        source: &ModelSource,
        threads: usize,
        options: &ComponentOptions,
    ) -> Result<Box<dyn ComponentSession>, ComponentError> {
        let options = crate::native::NativeOptions {
            workers: self.0.workers.of(threads),
            disabled_passes: options.disabled_passes,
            packed_cache: options.packed_cache.clone(),
            kv_cache_dtype: options.kv_cache_dtype,
            model_files: options.model_files,
            trace: self.trace().cloned(),
            control: options.control.clone(),
        };
        let session = crate::native::NativeSession::load(name, source, &options)?;
        self.log_packed_cache(session.packed_cache());
        Ok(Box::new(session))
    }

    fn log_packed_cache(&self, report: &PackedCacheReport) {
        let Some(file) = &report.file else {
            return;
        };
        let file = file.display();
        if let Some(why) = &report.refused {
            self.log(
                LogLevel::Info,
                &format!("{file} was not used, or not all of it: {why}"),
            );
        }
        if let Some(why) = &report.failure {
            let message = format!("packed weights cannot be kept in {file}: {why}");
            self.log(LogLevel::Warning, &message);
        }
        let PackedCacheReport {
            taken,
            packed,
            written,
            ..
        } = report;
        let kept = if *written {
            ", all of them written there"
        } else {
            ""
        };
        let message = format!("{taken} packed weights come from {file}; {packed} were packed{kept}");
        self.log(LogLevel::Info, &message);
    }
}

#[cfg(not(feature = "native"))]
impl Runtime {
    fn open_native(
        &self,
        name: &str,
        _source: &ModelSource,
        _threads: usize,
        _options: &ComponentOptions,
    ) -> Result<Box<dyn ComponentSession>, ComponentError> {
        Err(not_built_in(name, "the native runtime", "native"))
    }
}

/// The threads that native components share.
#[cfg(feature = "native")]
#[derive(Debug)]
pub(super) struct SharedWorkers(parking_lot::Mutex<crate::native::workers::Workers>);

#[cfg(feature = "native")]
impl SharedWorkers {
    pub(super) fn new(threads: usize) -> Self {
        SharedWorkers(parking_lot::Mutex::new(crate::native::workers::Workers::new(
            threads,
        )))
    }

    /// At most `threads` of them. A component that asks for more than there are gets a larger
    /// team, and so does who comes after it.
    fn of(&self, threads: usize) -> crate::native::workers::Workers {
        let mut workers = self.0.lock();
        if workers.threads() < threads {
            *workers = crate::native::workers::Workers::new(threads);
        }
        workers.limited_to(threads)
    }
}

/// ONNX Runtime once it is loaded, or why it could not be.
#[cfg(feature = "ort")]
#[derive(Debug, Default)]
pub(super) struct SharedOrt(parking_lot::Mutex<OrtState>);

#[cfg(feature = "ort")]
#[derive(Debug, Default)]
enum OrtState {
    #[default]
    NotTried,
    Loaded(crate::ort::OrtLibrary),
    Failed(String),
}

#[cfg(feature = "ort")]
impl Runtime {
    /// Why the last attempt to load the library failed. `auto` does not search again for
    /// each component; who asks for ONNX Runtime by name does.
    fn remembered_ort_failure(&self) -> Option<String> {
        match &*self.0.ort.0.lock() {
            OrtState::Failed(message) => Some(message.clone()),
            OrtState::NotTried | OrtState::Loaded(_) => None,
        }
    }

    fn ort_library(&self, name: &str) -> Result<crate::ort::OrtLibrary, ComponentError> {
        let mut state = self.0.ort.0.lock();
        if let OrtState::Loaded(library) = &*state {
            return Ok(*library);
        }
        let search = crate::ort::OrtSearch {
            option: self.0.settings.ort_library_path.clone(),
            environment: self.0.environment.ort_dylib_path.clone(),
        };
        match crate::ort::OrtLibrary::load(&search) {
            Ok(library) => {
                *state = OrtState::Loaded(library);
                Ok(library)
            }
            Err(mut error) => {
                *state = OrtState::Failed(error.kind().to_string());
                error.component = name.to_owned();
                Err(error)
            }
        }
    }

    fn open_ort(
        &self,
        name: &str,
        source: &ModelSource,
        threads: usize,
        options: &ComponentOptions,
    ) -> Result<Box<dyn ComponentSession>, ComponentError> {
        let library = self.ort_library(name)?;
        let settings = &options.ort;
        let threads = match options.threads {
            None | Some(0) => settings.threads.unwrap_or(threads),
            Some(_) => threads,
        };
        let options = crate::ort::OrtOptions {
            threads,
            inter_op_threads: settings.inter_op_threads,
            memory_arena: settings.memory_arena,
            memory_pattern: settings.memory_pattern,
            optimization: settings.optimization.map(|level| match level {
                OrtOptimization::None => crate::ort::OptimizationLevel::None,
                OrtOptimization::Basic => crate::ort::OptimizationLevel::Basic,
                OrtOptimization::Extended => crate::ort::OptimizationLevel::Extended,
                OrtOptimization::All => crate::ort::OptimizationLevel::All,
            }),
            entries: settings.entries.clone(),
            providers: settings
                .providers
                .iter()
                .map(|provider| (provider.name.clone(), provider.options.clone()))
                .collect(),
        };
        let session = crate::ort::OrtSession::load(&library, name, source, &options)?;
        for refused in session.refused_providers() {
            self.log(
                LogLevel::Warning,
                &format!("component \"{name}\" does without an execution provider that its package asks for: {refused}"),
            );
        }
        Ok(Box::new(session))
    }
}

#[cfg(not(feature = "ort"))]
impl Runtime {
    fn remembered_ort_failure(&self) -> Option<String> {
        None
    }

    fn open_ort(
        &self,
        name: &str,
        _source: &ModelSource,
        _threads: usize,
        _options: &ComponentOptions,
    ) -> Result<Box<dyn ComponentSession>, ComponentError> {
        Err(not_built_in(name, "ONNX Runtime", "ort"))
    }
}

#[cfg(not(all(feature = "native", feature = "ort")))]
fn not_built_in(name: &str, backend: &str, feature: &str) -> ComponentError {
    ComponentError::new(
        name,
        ComponentErrorKind::BackendUnavailable {
            message: format!(
                "{backend} is not in this build; build oxpipe with the Cargo feature \"{feature}\""
            ),
        },
    )
}
