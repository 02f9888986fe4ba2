//! Readers of package formats, all giving one `PipelineSpec`.

mod error;
mod source;

pub use error::{Location, PackageError, PackageErrorKind};
pub use source::PackageSource;
