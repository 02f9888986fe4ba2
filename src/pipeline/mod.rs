//! A loaded pipeline and its runs: the pool of values, phases, the step loop.
//!
//! [`Pipeline`] is shared by any number of [`Run`]s. Nothing here reads files or knows
//! which backends exist.

mod error;
mod event;
mod open;
mod run;

pub use error::{ErrorKind, PipelineError, RequestError};
pub use event::{Event, Timings, Usage};
pub use open::{
    ComponentEstimate, ComponentInfo, Estimate, LoadProgress, PackageInfo, Phase, Pipeline, PipelineOptions,
};
pub use run::{Run, RunSettings, RunStats};
