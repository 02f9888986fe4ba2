//! Sound: decoding, resampling, log-mel features, and the preprocessing program of a package.

mod decode;
mod fourier;
mod mel;
mod mp3;
mod processor;
mod program;
mod resample;
mod run;
mod wav;

pub use decode::Sound;
pub use program::{AudioContent, AudioOp, AudioOutput, AudioProgram, AudioTransform, LogMel, MelScale};
pub use run::PreparedSound;
