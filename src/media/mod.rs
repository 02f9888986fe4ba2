//! Images and sound on their way into a model: decoded, brought to the size and rate that it
//! wants, and packed into the tensors that its inputs take.
//!
//! [`image`] does what the image processors of Hugging Face's transformers do, with Pillow's
//! resizing, byte for byte. [`audio`] reads sound, brings it to a rate, and makes the log-mel features
//! of Whisper.

pub mod audio;
mod config;
mod dataflow;
mod error;
pub mod image;
mod prompt;
mod tensor;

pub use config::ConfigError;
pub use dataflow::{ProgramError, ProgramPart, Transform};
pub use error::MediaError;
pub use prompt::{ImagePlaceholders, TokenCount};
pub use tensor::{PortLayout, Tensor};

/// Room for `count` elements, or an error: a header of a few bytes can ask for any number.
fn room<T>(count: usize) -> Result<Vec<T>, MediaError> {
    let mut room = Vec::new();
    room.try_reserve_exact(count)
        .map_err(|_| MediaError::OutOfMemory {
            bytes: count.saturating_mul(size_of::<T>()) as u64,
        })?;
    Ok(room)
}

/// `count` elements of `value`, or an error.
fn filled<T: Clone>(count: usize, value: T) -> Result<Vec<T>, MediaError> {
    let mut room = room(count)?;
    room.resize(count, value);
    Ok(room)
}
