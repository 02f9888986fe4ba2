//! Readers of package formats.
//!
//! A reader turns metadata into a `Declaration` (names, each with the place where it was
//! said); `structure` checks what needs no graph; `resolve` takes the ports of the loaded
//! graphs and gives the `PipelineSpec` that the loop runs. Nothing here knows a session:
//! ports come in as `ComponentIo`.
//!
//! From outside: [`PackageSource`], [`PackageError`] and [`Phase`].

mod audio;
mod declaration;
mod document;
mod error;
mod files;
mod first_pass;
mod genai;
mod genai_names;
mod genai_ports;
mod generation_defaults;
mod hugging_face;
mod hugging_face_ports;
mod io_bindings;
mod iteration;
mod json;
mod kept;
mod media;
mod media_inputs;
mod media_json;
mod metadata;
mod nested;
mod open;
mod outline;
mod phases;
mod processor;
mod readout;
mod resolve;
mod roles;
mod scheduler;
mod session_options;
mod source;
mod spec;
mod speculator;
mod strategy;
mod structure;
mod write;

pub use declaration::Phase;
pub(crate) use declaration::Said;
pub use error::{Location, PackageError, PackageErrorKind};
pub use source::PackageSource;

pub(crate) use declaration::{Continuation, GenerationDefaults, LengthOf};
pub(crate) use media_json::{audio_program, image_program, placeholders};
pub(crate) use open::{Package, Resolved};
pub(crate) use outline::{ModelOutline, outline_error};
pub(crate) use readout::Readout;
pub use readout::{Activation, Pooling};
pub(crate) use scheduler::{BetaSchedule, Prediction, Scheduler, SchedulerConfig, SchedulerKind, Spacing};
pub(crate) use spec::{
    Buffer, ComponentSpec, FirstPass, InputDim, InputSource, InputSpec, Iteration, LoopState, MediaInput,
    Merge, Nested, NestedFeed, OutputDim, OutputRef, OutputRole, OutputSpec, PipelineSpec, PreEmbedder,
    TokenLoop,
};
pub(crate) use speculator::{HeadPackage, HeadSpec, PackageHead};
