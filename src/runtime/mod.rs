//! What sessions and pipelines share: settings, the environment as it was when the runtime
//! was made, the logger, and the choice of a backend for a component.
//!
//! [`Runtime`] may be used from outside. Backends are reached only through
//! [`Runtime::open_component`], so that there is one place that decides who runs a graph.

mod environment;
mod open;
mod ort_settings;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::component::Trace;

pub use environment::{Environment, NATIVE_COMPONENTS_ALIAS, NATIVE_COMPONENTS_VARIABLE, StepComponents};
pub use open::{ComponentOptions, OpenedComponent};
pub use ort_settings::{OrtOptimization, OrtProvider, OrtSettings};

/// How loud a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    Debug,
    Info,
    Warning,
    Error,
}

/// Receives log lines, from any thread. It must not call back into the object that logs.
pub type Logger = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// What a runtime is made with.
#[derive(Clone, Default)]
pub struct RuntimeSettings {
    /// Threads a component may use, the caller's included; `None` means one for each core
    /// that this process may use.
    pub threads: Option<usize>,
    /// Where ONNX Runtime lies; without it `ORT_DYLIB_PATH`, the folder of liboxpipe and
    /// the system's search path are tried.
    pub ort_library_path: Option<PathBuf>,
    /// Without one, nothing is logged.
    pub logger: Option<Logger>,
    /// Where it is written down what components do, and when. Without one that costs nothing.
    pub trace: Option<Trace>,
}

impl fmt::Debug for RuntimeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeSettings")
            .field("threads", &self.threads)
            .field("ort_library_path", &self.ort_library_path)
            .field("logger", &self.logger.is_some())
            .field("trace", &self.trace.is_some())
            .finish()
    }
}

/// Settings and libraries that sessions and pipelines share. Clones are the same runtime;
/// any thread may use it.
#[derive(Clone, Debug)]
pub struct Runtime(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    settings: RuntimeSettings,
    environment: Environment,
    threads: usize,
    #[cfg(feature = "native")]
    workers: open::SharedWorkers,
    #[cfg(feature = "ort")]
    ort: open::SharedOrt,
}

impl Drop for Shared {
    /// Nothing of the library is at work behind its last runtime.
    fn drop(&mut self) {
        crate::media::finish();
    }
}

impl Runtime {
    /// A runtime with these settings and the process's environment variables as they are now.
    pub fn new(settings: RuntimeSettings) -> Self {
        Self::with_environment(settings, Environment::from_process())
    }

    /// A runtime that sees these variables instead of the process's.
    pub fn with_environment(settings: RuntimeSettings, environment: Environment) -> Self {
        let threads = settings
            .threads
            .filter(|&threads| threads > 0)
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        Runtime(Arc::new(Shared {
            settings,
            environment,
            threads,
            #[cfg(feature = "native")]
            workers: open::SharedWorkers::new(threads),
            #[cfg(feature = "ort")]
            ort: open::SharedOrt::default(),
        }))
    }

    /// Threads a component may use unless it is told otherwise.
    pub fn threads(&self) -> usize {
        self.0.threads
    }

    /// Where what is called is written down, if anywhere.
    pub fn trace(&self) -> Option<&Trace> {
        self.0.settings.trace.as_ref()
    }

    pub fn environment(&self) -> &Environment {
        &self.0.environment
    }

    /// Hands a line to the logger, if there is one.
    pub fn log(&self, level: LogLevel, message: &str) {
        if let Some(logger) = &self.0.settings.logger {
            logger(level, message);
        }
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Self::new(RuntimeSettings::default())
    }
}

/// Which backend a caller wants for a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BackendChoice {
    /// Native if it has every operator of the graph, else ONNX Runtime if that can be
    /// loaded, else an error that lists the missing operators.
    #[default]
    Auto,
    Native,
    Ort,
}

impl BackendChoice {
    pub fn name(self) -> &'static str {
        match self {
            BackendChoice::Auto => "auto",
            BackendChoice::Native => "native",
            BackendChoice::Ort => "ort",
        }
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A string that names no backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown backend \"{found}\"; it is one of \"auto\", \"native\", \"ort\"")]
pub struct UnknownBackend {
    pub found: String,
}

impl std::str::FromStr for BackendChoice {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Self, UnknownBackend> {
        match text {
            "auto" => Ok(BackendChoice::Auto),
            "native" => Ok(BackendChoice::Native),
            "ort" => Ok(BackendChoice::Ort),
            other => Err(UnknownBackend {
                found: other.to_owned(),
            }),
        }
    }
}
