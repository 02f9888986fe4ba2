//! Images and sound on their way into a model: decoded, brought to the size and rate that it
//! wants, and packed into the tensors that its inputs take.
//!
//! [`image`] does what the image processors of Hugging Face's transformers do, with Pillow's
//! resizing, byte for byte. [`audio`] reads sound, brings it to a rate, and makes the log-mel features
//! of Whisper.

mod apart;
pub mod audio;
mod config;
mod dataflow;
mod error;
pub mod image;
mod prompt;
mod tensor;
mod work;

pub(crate) use apart::finish;
pub use config::ConfigError;
pub use dataflow::{ProgramError, ProgramPart, Transform};
pub use error::MediaError;
pub use prompt::{ImagePlaceholders, TileTokens, TokenCount};
pub use tensor::{PortLayout, Tensor};
pub use work::{MOST_BYTES, Work};
