use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use crate::component::{Backend, ComponentIo, RunControl};
use crate::package::PackageSource;
use crate::runtime::{BackendChoice, Runtime};
use crate::text::{ChatTemplate, Tokenizer};

use super::PipelineError;

/// How a pipeline is opened.
#[derive(Clone, Debug, Default)]
pub struct PipelineOptions {
    /// For every component without an option of its own; `None` leaves it to the
    /// environment variable, then to `auto`.
    pub backend: Option<BackendChoice>,
    /// By component name; a name that the package lacks is an error.
    pub component_backends: Vec<(String, BackendChoice)>,
    /// Threads that a component may use; `None` means the runtime's.
    pub threads: Option<usize>,
}

/// When a component runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    PromptOnly,
    EveryStep,
    FinalOnly,
    OnDemand,
}

impl Phase {
    /// As package metadata writes it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::PromptOnly => "prompt_only",
            Phase::EveryStep => "every_step",
            Phase::FinalOnly => "final_only",
            Phase::OnDemand => "on_demand",
        }
    }
}

/// A component of an open pipeline.
#[derive(Clone, Debug)]
pub struct ComponentInfo {
    pub name: String,
    /// The package's word for what it is: `decoder`, `vision_encoder`, ...; may be empty.
    pub component_type: String,
    /// Relative to the package.
    pub file: String,
    pub backend: Backend,
    /// Why that backend.
    pub reason: String,
    pub phase: Phase,
    /// Set when it only runs if the request brings that modality.
    pub when_present: Option<String>,
    pub io: ComponentIo,
}

/// What the package is.
#[derive(Clone, Debug)]
pub struct PackageInfo {
    /// `inference_metadata`, later `genai_config` and `huggingface`.
    pub format: &'static str,
    /// The metadata file that was taken.
    pub metadata_file: PathBuf,
    /// `autoregressive`, `single_pass` or `composite`.
    pub strategy: &'static str,
    /// The component that chooses tokens, if there is a token loop.
    pub decoder: Option<String>,
    /// Any of these ends the text.
    pub eos_token_ids: Vec<i32>,
    /// The most tokens that a sequence may have, if the package says so.
    pub context_length: Option<u64>,
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

/// Memory that a package will take, from file sizes and declared shapes, without loading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    pub components: Vec<ComponentEstimate>,
    /// Bytes of weights, all components.
    pub weight_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentEstimate {
    pub name: String,
    pub file: String,
    /// Bytes of the model file and of its external data.
    pub weight_bytes: u64,
}

/// A package, loaded. Clones are the same pipeline; any thread may use it.
#[derive(Clone, Debug)]
pub struct Pipeline(Arc<PipelineShared>);

#[derive(Debug)]
pub(super) struct PipelineShared {
    components: Vec<ComponentInfo>,
    package: PackageInfo,
    tokenizer: Option<Arc<Tokenizer>>,
    chat_template: Option<Arc<ChatTemplate>>,
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
        progress: Option<&mut dyn FnMut(LoadProgress<'_>) -> ControlFlow<()>>,
        control: &RunControl,
    ) -> Result<Self, PipelineError> {
        let _ = (runtime, source, options, progress, control);
        todo!()
    }

    /// What opening would take, from file sizes, without loading a component.
    pub fn estimate(runtime: &Runtime, source: &PackageSource) -> Result<Estimate, PipelineError> {
        let _ = (runtime, source);
        todo!()
    }

    /// In the package's order.
    pub fn components(&self) -> &[ComponentInfo] {
        &self.0.components
    }

    pub fn component(&self, name: &str) -> Option<&ComponentInfo> {
        self.components().iter().find(|component| component.name == name)
    }

    pub fn package(&self) -> &PackageInfo {
        &self.0.package
    }

    /// Bytes of KV that one token takes, where the declared dims tell.
    pub fn kv_bytes_per_token(&self) -> Option<u64> {
        todo!()
    }

    pub fn tokenizer(&self) -> Option<&Arc<Tokenizer>> {
        self.0.tokenizer.as_ref()
    }

    pub fn chat_template(&self) -> Option<&Arc<ChatTemplate>> {
        self.0.chat_template.as_ref()
    }

    /// Everything above, as JSON.
    pub fn describe(&self) -> serde_json::Value {
        todo!()
    }
}
