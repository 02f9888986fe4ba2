//! A loaded pipeline and its runs: the pool of values, phases, the step loop.
//!
//! [`Pipeline`] is shared by any number of [`Run`]s. `open` puts a pipeline together and `placement`
//! says where its caches lie; `run`, with `inputs` and `finish`, is what a caller does with one request, `step` the loop over tokens, `nested` the one inside
//! of a step that is a frame of codes, `denoise` the one of an iterative package, `pool` the
//! values and `execute` the one place that calls a component.
//! Nothing here reads files or knows which backends exist.

mod backend;
mod batch;
mod beams;
mod cache;
mod constrain;
mod convert;
mod denoise;
mod describe;
mod error;
mod event;
mod execute;
mod finish;
mod fork;
mod head;
mod identity;
mod info;
mod inputs;
mod loop_steps;
mod media;
mod merge;
mod nested;
mod open;
mod pictures;
mod placement;
mod pool;
mod prefixes;
mod readout;
mod request;
mod run;
mod saved;
mod settings;
mod speculate;
mod states;
mod step;
mod transcript;
mod unmask;
mod value;

pub use crate::package::Phase;
pub use error::{ErrorKind, PipelineError, RequestError};
pub use event::{Event, Progress, Timings, Usage};
pub use info::{ComponentInfo, IterationInfo, NestedInfo, PackageInfo};
pub use open::{ComponentEstimate, Estimate, LoadProgress, OnProgress, Pipeline, PipelineOptions};
pub use readout::TextRows;
pub use run::{Run, RunStats};
pub use settings::{RunSettings, Speculation};
pub use speculate::MAX_SPECULATION;

/// The most steps that the loop of an iterative package may have.
pub const MAX_STEPS: usize = crate::package::Iteration::MAX_STEPS;

/// The most that guidance may be scaled by.
pub const MAX_GUIDANCE: f64 = crate::package::Iteration::MAX_GUIDANCE;
