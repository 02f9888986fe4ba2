//! A loaded pipeline and its runs: the pool of values, phases, the step loop.
//!
//! [`Pipeline`] is shared by any number of [`Run`]s. `open` puts a pipeline together, `run`
//! is what a caller does with one request, `step` the loop, `pool` the values and
//! `execute` the one place that calls a component. Nothing here reads files or knows which backends exist.

mod backend;
mod cache;
mod convert;
mod describe;
mod error;
mod event;
mod execute;
mod open;
mod pool;
mod request;
mod run;
mod step;
mod transcript;
mod value;

pub use crate::package::Phase;
pub use error::{ErrorKind, PipelineError, RequestError};
pub use event::{Event, Timings, Usage};
pub use open::{
    ComponentEstimate, ComponentInfo, Estimate, LoadProgress, OnProgress, PackageInfo, Pipeline,
    PipelineOptions,
};
pub use run::{Run, RunSettings, RunStats};
