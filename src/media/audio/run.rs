//! A program over one sound.

use std::borrow::Cow;

use super::decode::{MAX_SAMPLES, Sound};
use super::mel::Features;
use super::program::{AudioContent, AudioOp, AudioProgram, Step};
use super::resample::resample;
use crate::media::tensor::{PortLayout, Sink, Tensor, no_rank};
use crate::media::{MediaError, Work};

/// What a program has made of a sound: a tensor for each of its outputs.
pub type PreparedSound = Vec<Tensor>;

enum Value<'s> {
    Samples {
        rate: u32,
        samples: Cow<'s, [f32]>,
        valid: usize,
    },
    Features {
        features: Features,
        valid: usize,
    },
    /// How many of how many.
    Valid(usize, usize),
    /// One that nothing reads any more: a sound may take a gigabyte.
    Gone,
}

impl AudioProgram {
    /// Runs the program over a sound. `ports` says of each output what its port declares.
    pub fn run(&self, sound: &Sound, ports: &[PortLayout], work: &Work) -> Result<PreparedSound, MediaError> {
        let mut values: Vec<Value<'_>> = Vec::with_capacity(self.steps.len());
        for (at, step) in self.steps.iter().enumerate() {
            let value = evaluate(step, &values, sound, work)?;
            values.push(value);
            let mut later = self.steps.iter().skip(at + 1);
            let is_read = later.any(|later| later.op != AudioOp::Decode && later.input == step.input)
                || self.outputs.iter().any(|(source, _)| *source == step.input);
            if let Some(input) = values.get_mut(step.input)
                && step.op != AudioOp::Decode
                && !is_read
            {
                *input = Value::Gone;
            }
        }
        let unknown = PortLayout::default();
        let mut tensors = Vec::with_capacity(self.outputs.len());
        for (index, (source, output)) in self.outputs.iter().enumerate() {
            let port = ports.get(index).unwrap_or(&unknown);
            let value = values.get(*source).ok_or_else(misfit)?;
            let tensor = tensor(value, output.content, output.dtype, port, work);
            tensors.push(tensor.map_err(|error| error.of_output(&output.name))?);
        }
        Ok(tensors)
    }
}

/// A transform of what it is not for: the program was checked, so that there is none.
fn misfit() -> MediaError {
    MediaError::unfit("a transform has nothing to work on")
}

fn evaluate<'s>(
    step: &Step,
    values: &[Value<'s>],
    sound: &'s Sound,
    work: &Work,
) -> Result<Value<'s>, MediaError> {
    if step.op == AudioOp::Decode {
        return Ok(Value::Samples {
            rate: sound.rate(),
            valid: sound.samples().len(),
            samples: Cow::Borrowed(sound.samples()),
        });
    }
    match values.get(step.input).ok_or_else(misfit)? {
        Value::Samples { rate, samples, valid } => of_samples(&step.op, *rate, samples, *valid, work),
        Value::Features { features, valid } => match step.op {
            AudioOp::WhisperScale => Ok(Value::Features {
                features: whisper_scale(features, work)?,
                valid: *valid,
            }),
            AudioOp::EmitValid | AudioOp::EmitValidityMask => Ok(Value::Valid(*valid, features.frames)),
            _ => Err(misfit()),
        },
        Value::Valid(..) | Value::Gone => Err(misfit()),
    }
}

fn of_samples<'s>(
    op: &AudioOp,
    rate: u32,
    samples: &Cow<'s, [f32]>,
    valid: usize,
    work: &Work,
) -> Result<Value<'s>, MediaError> {
    let (rate, samples, valid) = match op {
        AudioOp::Resample { rate: to } => {
            let samples = match samples {
                Cow::Borrowed(samples) if *to == rate => Cow::Borrowed(*samples),
                _ => resample(samples, rate, *to, work)?.into(),
            };
            (*to, samples, None)
        }
        AudioOp::Rescale { scale } => {
            let mut scaled = work.copied(samples)?;
            for sample in &mut scaled {
                work.count(1)?;
                *sample = (f64::from(*sample) * scale) as f32;
            }
            (rate, scaled.into(), Some(valid))
        }
        AudioOp::ZeroMeanUnitVariance => (rate, standardized(samples, valid, work)?.into(), Some(valid)),
        AudioOp::Window {
            length,
            value,
            cut,
            pad,
        } => {
            let have = samples.len();
            if have > *length && !cut {
                return Err(MediaError::unfit(format!(
                    "the sound has {have} samples, and the model takes {length}"
                )));
            }
            let kept = have.min(*length);
            let length = if *pad { *length } else { kept };
            if length > MAX_SAMPLES {
                return Err(MediaError::TooLarge {
                    what: "a sound",
                    found: format!("{length} samples"),
                    most: MAX_SAMPLES.to_string(),
                });
            }
            let mut window = work.room(length)?;
            window.extend_from_slice(samples.get(..kept).unwrap_or_default());
            window.resize(length, *value);
            (rate, window.into(), Some(valid.min(kept)))
        }
        AudioOp::LogMel(mel) => {
            if rate != mel.rate {
                return Err(MediaError::unfit(format!(
                    "the sound has {rate} samples in a second, and the model takes {}; the package does not resample",
                    mel.rate
                )));
            }
            let features = mel.features(samples, work)?;
            return Ok(Value::Features {
                valid: valid.div_ceil(mel.hop).min(features.frames),
                features,
            });
        }
        AudioOp::EmitValid | AudioOp::EmitValidityMask => return Ok(Value::Valid(valid, samples.len())),
        _ => return Err(misfit()),
    };
    Ok(Value::Samples {
        rate,
        valid: valid.unwrap_or(samples.len()),
        samples,
    })
}

/// Mean and variance are those of the sound, without what a window adds; that becomes 0.
fn standardized(samples: &[f32], valid: usize, work: &Work) -> Result<Vec<f32>, MediaError> {
    let sound = samples.get(..valid).unwrap_or(samples);
    let count = sound.len().max(1) as f64;
    let mut mean = 0.0;
    for &sample in sound {
        work.count(1)?;
        mean += f64::from(sample);
    }
    mean /= count;
    let mut variance = 0.0;
    for &sample in sound {
        work.count(2)?;
        variance += (f64::from(sample) - mean) * (f64::from(sample) - mean);
    }
    let divisor = (variance / count + 1e-7).sqrt();
    let mut scaled = work.copied(samples)?;
    for (index, sample) in scaled.iter_mut().enumerate() {
        work.count(2)?;
        *sample = match index < sound.len() {
            true => ((f64::from(*sample) - mean) / divisor) as f32,
            false => 0.0,
        };
    }
    Ok(scaled)
}

fn whisper_scale(features: &Features, work: &Work) -> Result<Features, MediaError> {
    let mut numbers = work.copied(&features.numbers)?;
    let largest = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for number in &mut numbers {
        work.count(4)?;
        *number = (number.max(largest - 8.0) + 4.0) / 4.0;
    }
    Ok(Features { numbers, ..*features })
}

fn tensor(
    value: &Value<'_>,
    content: AudioContent,
    dtype: crate::component::DataType,
    port: &PortLayout,
    work: &Work,
) -> Result<Tensor, MediaError> {
    // A port may leave out the dim of 1 before the others.
    let shaped = |dims: &[usize]| match port.rank() {
        Some(rank) if rank + 1 == dims.len() => Ok(dims.get(1..).unwrap_or_default().to_vec()),
        Some(rank) if rank != dims.len() => Err(no_rank(port, &format!("this has {}", dims.len()))),
        _ => Ok(dims.to_vec()),
    };
    match (value, content) {
        (Value::Samples { samples, .. }, AudioContent::Waveform) => {
            let shape = shaped(&[1, samples.len()])?;
            let mut sink = Sink::new(dtype, &shape, work)?;
            sink.floats(samples.iter().copied())?;
            Ok(sink.done())
        }
        (Value::Features { features, .. }, AudioContent::Features) => {
            let shape = shaped(&[1, features.bins, features.frames])?;
            let mut sink = Sink::new(dtype, &shape, work)?;
            sink.floats(features.numbers.iter().copied())?;
            Ok(sink.done())
        }
        (Value::Valid(valid, _), AudioContent::Length) => {
            let shape = match port.rank() {
                Some(2) => vec![1, 1],
                _ => shaped(&[1])?,
            };
            let mut sink = Sink::new(dtype, &shape, work)?;
            sink.integers(std::iter::once(*valid as i64))?;
            Ok(sink.done())
        }
        (Value::Valid(valid, all), AudioContent::ValidityMask) => {
            let shape = shaped(&[1, *all])?;
            let mut sink = Sink::new(dtype, &shape, work)?;
            sink.integers((0..*all).map(|index| i64::from(index < *valid)))?;
            Ok(sink.done())
        }
        _ => Err(misfit()),
    }
}
