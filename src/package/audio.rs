//! `preprocessing.audio`: what becomes of the sound that a host gives.

use crate::media::audio::{
    AudioContent, AudioOp, AudioOutput, AudioProgram, AudioTransform, LogMel, MelScale,
};

use super::PackageError;
use super::declaration::{OutputPort, ProgramDeclaration};
use super::document::{Cursor, Fields};
use super::media::{count, names, optional_count, read_program};
use super::metadata::{address, read_dtype};

/// The most samples in a second, and of a window.
const MOST_RATE: u64 = 1_000_000;
const MOST_SAMPLES: u64 = 1 << 28;

pub(super) fn read_sound(at: &Cursor<'_>) -> Result<ProgramDeclaration<AudioProgram>, PackageError> {
    read_program(at, read_transform, read_output, AudioProgram::new)
}

#[derive(Clone, Copy)]
enum Op {
    Decode,
    Downmix,
    Resample,
    Rescale,
    Standardize,
    Normalize,
    Pad,
    Trim,
    LogMel,
    Valid,
    ValidityMask,
}

const OPS: [(&str, Op); 14] = [
    ("decode", Op::Decode),
    ("downmix", Op::Downmix),
    ("resample", Op::Resample),
    ("rescale", Op::Rescale),
    ("zero_mean_unit_variance", Op::Standardize),
    ("normalize", Op::Normalize),
    ("pad", Op::Pad),
    ("trim", Op::Trim),
    ("log_mel", Op::LogMel),
    ("log_mel_spectrogram", Op::LogMel),
    ("emit_valid_frames", Op::Valid),
    ("emit_valid_samples", Op::Valid),
    ("emit_sample_lengths", Op::Valid),
    ("emit_validity_mask", Op::ValidityMask),
];

fn read_transform(at: &Cursor<'_>) -> Result<AudioTransform, PackageError> {
    let mut fields = at.fields()?;
    let op = fields.required("op", "what to do")?.one_of(&OPS)?;
    let inputs = names(fields.get("inputs"))?;
    let outputs = names(fields.get("outputs"))?;
    let op = match op {
        Op::Decode => AudioOp::Decode,
        Op::Downmix => AudioOp::Downmix,
        Op::Resample => AudioOp::Resample {
            rate: rate(&mut fields)?,
        },
        Op::Rescale => AudioOp::Rescale {
            scale: fields.required("scale", "a number to multiply by")?.number()?,
        },
        Op::Standardize => AudioOp::ZeroMeanUnitVariance,
        Op::Normalize => {
            let modes = [
                ("whisper_log_mel", AudioOpName::Whisper),
                ("zero_mean_unit_variance", AudioOpName::Standardize),
            ];
            match fields.required("mode", "how")?.one_of(&modes)? {
                AudioOpName::Whisper => AudioOp::WhisperScale,
                AudioOpName::Standardize => AudioOp::ZeroMeanUnitVariance,
            }
        }
        Op::Pad => {
            let mode = fields.get("mode");
            let cut = match &mode {
                Some(mode) => mode.one_of(&[("fixed_window", true), ("pad", false)])?,
                None => false,
            };
            AudioOp::Window {
                length: length(&mut fields)?,
                value: match fields.get("pad_value") {
                    Some(value) => {
                        let whole = |number: f64| (number as f32).is_finite();
                        value.number_where("a number of float32", whole)? as f32
                    }
                    None => 0.0,
                },
                cut,
                pad: true,
            }
        }
        Op::Trim => AudioOp::Window {
            length: length(&mut fields)?,
            value: 0.0,
            cut: true,
            pad: false,
        },
        Op::LogMel => AudioOp::LogMel(read_mel(&mut fields)?),
        Op::Valid => AudioOp::EmitValid,
        Op::ValidityMask => AudioOp::EmitValidityMask,
    };
    fields.finish();
    Ok(AudioTransform { op, inputs, outputs })
}

#[derive(Clone, Copy)]
enum AudioOpName {
    Whisper,
    Standardize,
}

fn rate(fields: &mut Fields<'_>) -> Result<u32, PackageError> {
    let at = fields.required("sample_rate", "samples in a second")?;
    u32::try_from(at.count_up_to(1, MOST_RATE)?).map_err(|_| at.invalid("is too large"))
}

fn length(fields: &mut Fields<'_>) -> Result<usize, PackageError> {
    count(
        &fields.required("target_length", "a number of samples")?,
        MOST_SAMPLES,
    )
}

fn read_mel(fields: &mut Fields<'_>) -> Result<LogMel, PackageError> {
    let rate = rate(fields)?;
    let size = optional_count(fields, "n_fft", 1 << 16)?.unwrap_or(400);
    let hop = optional_count(fields, "hop_length", 1 << 16)?.unwrap_or(160.min(size));
    let bins = count(&fields.required("num_mel_bins", "a number of bins")?, 1024)?;
    if let Some(window) = fields.get("window") {
        window.one_of(&[("hann", ())])?;
    }
    let scale = match fields.get("mel_scale") {
        Some(scale) => scale.one_of(&[("slaney", MelScale::Slaney), ("htk", MelScale::Htk)])?,
        None => MelScale::Slaney,
    };
    let nyquist = f64::from(rate) / 2.0;
    let highest = match fields.get("f_max") {
        // Bins above half of the rate are empty; Whisper's extractor has them where the rate is low.
        Some(at) => at.number_where("a frequency in Hz", |f| f > 0.0)?,
        None => nyquist.min(8000.0),
    };
    Ok(LogMel {
        size,
        hop,
        bins,
        rate,
        highest,
        scale,
    })
}

fn read_output(at: &Cursor<'_>) -> Result<(AudioOutput, OutputPort), PackageError> {
    let mut fields = at.fields()?;
    let source = fields.text("source")?.map(str::to_owned);
    let name = fields.required("name", "the input that it is for, component.input")?;
    let address = address(&name)?;
    let content = fields
        .required("content", "what it is")?
        .one_of(&AudioContent::NAMES)?;
    let dtype = read_dtype(&fields.required("dtype", "the type of its elements")?)?;
    let optional = fields
        .get("optional")
        .map(|optional| optional.bool())
        .transpose()?;
    fields.finish();
    let port = OutputPort {
        address,
        optional: optional.unwrap_or(false),
    };
    let output = AudioOutput {
        source,
        name: name.text()?.to_owned(),
        content,
        dtype,
    };
    Ok((output, port))
}
