//! The preprocessing program of a package for sound, checked as one for images is.

use crate::component::DataType;
use crate::media::dataflow::{self, Names, ProgramError, Transform, build};

pub type AudioTransform = Transform<AudioOp>;

#[derive(Clone, Debug, PartialEq)]
pub enum AudioOp {
    /// The sound that the host gives, mixed down to one channel.
    Decode,
    /// Nothing: it is one channel already.
    Downmix,
    /// See resample.rs.
    Resample {
        rate: u32,
    },
    Rescale {
        scale: f64,
    },
    /// Less the mean and divided by sqrt(variance + 1e-7), as transformers' Wav2Vec2FeatureExtractor.
    ZeroMeanUnitVariance,
    /// As many samples: `value` after those that there are, and the first of them where there are
    /// more, unless that is an error.
    Window {
        length: usize,
        value: f32,
        cut: bool,
        pad: bool,
    },
    /// See mel.rs.
    LogMel(LogMel),
    /// (max(x, largest - 8) + 4) / 4: Whisper's.
    WhisperScale,
    /// How many samples, or frames, are of the sound and not of a window around it.
    EmitValid,
    /// 1 for those.
    EmitValidityMask,
}

impl AudioOp {
    pub fn name(&self) -> &'static str {
        match self {
            AudioOp::Decode => "decode",
            AudioOp::Downmix => "downmix",
            AudioOp::Resample { .. } => "resample",
            AudioOp::Rescale { .. } => "rescale",
            AudioOp::ZeroMeanUnitVariance => "zero_mean_unit_variance",
            AudioOp::Window { pad: true, .. } => "pad",
            AudioOp::Window { .. } => "trim",
            AudioOp::LogMel(_) => "log_mel",
            AudioOp::WhisperScale => "normalize",
            AudioOp::EmitValid => "emit_valid_samples",
            AudioOp::EmitValidityMask => "emit_validity_mask",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogMel {
    /// Samples of a frame.
    pub size: usize,
    /// Samples from one frame to the next.
    pub hop: usize,
    pub bins: usize,
    /// Samples in a second.
    pub rate: u32,
    /// The end of the last bin, in Hz.
    pub highest: f64,
    pub scale: MelScale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MelScale {
    Slaney,
    Htk,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AudioOutput {
    /// The name of a value; `None` takes the last one that fits the content.
    pub source: Option<String>,
    /// `component.port`.
    pub name: String,
    pub content: AudioContent,
    pub dtype: DataType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AudioContent {
    /// `[1, samples]`
    Waveform,
    /// `[1, bins, frames]`
    Features,
    /// `[1]`
    Length,
    /// `[1, samples]` or `[1, frames]`
    ValidityMask,
}

impl AudioContent {
    pub const NAMES: [(&'static str, AudioContent); 8] = [
        ("waveform", AudioContent::Waveform),
        ("features", AudioContent::Features),
        ("audio_features", AudioContent::Features),
        ("valid_frames", AudioContent::Length),
        ("valid_samples", AudioContent::Length),
        ("sample_lengths", AudioContent::Length),
        ("frame_lengths", AudioContent::Length),
        ("validity_mask", AudioContent::ValidityMask),
    ];

    fn name(self) -> &'static str {
        match self {
            AudioContent::Waveform => "a waveform",
            AudioContent::Features => "features",
            AudioContent::Length => "a length",
            AudioContent::ValidityMask => "a validity mask",
        }
    }
}

/// A program that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioProgram {
    pub(super) steps: Vec<Step>,
    pub(super) outputs: Vec<(usize, AudioOutput)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub op: AudioOp,
    pub input: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// At this rate, where a transform says it.
    Samples(Option<u32>),
    Features,
    Length,
    Mask,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Samples(_) => "samples",
            Kind::Features => "features",
            Kind::Length => "a length",
            Kind::Mask => "a mask",
        }
    }
}

impl AudioProgram {
    pub fn new(transforms: Vec<AudioTransform>, outputs: Vec<AudioOutput>) -> Result<Self, ProgramError> {
        let (builder, outputs) = build::<Builder>(transforms, outputs)?;
        Ok(AudioProgram {
            steps: builder.steps,
            outputs,
        })
    }

    /// The outputs in the order in which the results come.
    pub fn outputs(&self) -> impl Iterator<Item = &AudioOutput> {
        self.outputs.iter().map(|(_, output)| output)
    }

    /// Leaves the outputs out that have `false`.
    pub fn keep_outputs(&mut self, keep: &[bool]) {
        let mut keep = keep.iter();
        self.outputs.retain(|_| keep.next().copied().unwrap_or(true));
    }

    /// The outputs, each with the step that makes its value.
    pub fn bound(&self) -> impl Iterator<Item = (usize, &AudioOutput)> {
        self.outputs.iter().map(|(source, output)| (*source, output))
    }

    /// What it does, step by step, and the earlier step whose value each but the first works on.
    pub fn steps(&self) -> impl Iterator<Item = (&AudioOp, Option<usize>)> {
        let input = |step: &Step| (step.op != AudioOp::Decode).then_some(step.input);
        self.steps.iter().map(move |step| (&step.op, input(step)))
    }

    /// Samples in a second of what the model is given, where the program says it.
    pub fn rate(&self) -> Option<u32> {
        let mut rates = self.steps.iter().filter_map(|step| match step.op {
            AudioOp::Resample { rate } => Some(rate),
            AudioOp::LogMel(mel) => Some(mel.rate),
            _ => None,
        });
        rates.next_back()
    }
}

#[derive(Default)]
struct Builder {
    steps: Vec<Step>,
    kinds: Vec<Kind>,
    names: Names,
}

impl dataflow::Builder for Builder {
    type Op = AudioOp;
    type Output = AudioOutput;

    fn add(&mut self, transform: AudioTransform) -> Result<(), String> {
        let AudioTransform {
            op, inputs, outputs, ..
        } = transform;
        let inputs = self.names.inputs(inputs, op == AudioOp::Decode)?;
        let made = match (&op, inputs.as_slice()) {
            (AudioOp::Decode, []) => self.push(op, 0, Kind::Samples(None)),
            (AudioOp::Decode, _) => {
                return Err("decode reads the sound that the host gives, and no value".to_owned());
            }
            (_, [input]) => self.add_one(op, *input)?,
            (_, []) => return Err(format!("{} needs a value; decode comes first", op.name())),
            (_, several) => {
                return Err(format!("{} takes one value, not {}", op.name(), several.len()));
            }
        };
        self.names.name(outputs, vec![made])
    }

    fn bind(&mut self, output: &AudioOutput) -> Result<usize, String> {
        let source = match &output.source {
            Some(name) => self.names.find(name)?,
            None => {
                let samples = matches!(output.content, AudioContent::Waveform);
                let last = self.kinds.iter().rposition(|kind| match kind {
                    Kind::Samples(_) => output.content != AudioContent::Features,
                    Kind::Features => !samples,
                    _ => false,
                });
                let last = last.ok_or_else(|| format!("nothing makes {}", output.content.name()))?;
                match output.content {
                    AudioContent::Waveform | AudioContent::Features => last,
                    AudioContent::Length => self.add_one(AudioOp::EmitValid, last)?,
                    AudioContent::ValidityMask => self.add_one(AudioOp::EmitValidityMask, last)?,
                }
            }
        };
        let kind = self.kinds.get(source).copied().unwrap_or(Kind::Length);
        let float = output.dtype.is_float32_or_smaller();
        let integer = output.dtype.is_index();
        let (fits, typed) = match output.content {
            AudioContent::Waveform => (matches!(kind, Kind::Samples(_)), float),
            AudioContent::Features => (kind == Kind::Features, float),
            AudioContent::Length => (kind == Kind::Length, integer),
            AudioContent::ValidityMask => (
                kind == Kind::Mask,
                float || integer || matches!(output.dtype, DataType::Bool | DataType::Uint8),
            ),
        };
        if !fits {
            return Err(format!("{} cannot be {}", kind.name(), output.content.name()));
        }
        match typed {
            true => Ok(source),
            false => Err(format!("{} cannot be {}", output.content.name(), output.dtype)),
        }
    }
}

impl Builder {
    fn push(&mut self, op: AudioOp, input: usize, kind: Kind) -> usize {
        self.steps.push(Step { op, input });
        self.kinds.push(kind);
        self.steps.len() - 1
    }

    fn add_one(&mut self, op: AudioOp, input: usize) -> Result<usize, String> {
        let kind = self.kinds.get(input).copied().unwrap_or(Kind::Length);
        let made = match (&op, kind) {
            (AudioOp::Downmix, Kind::Samples(_)) => return Ok(input),
            (AudioOp::Resample { rate }, Kind::Samples(_)) => Kind::Samples(Some(*rate)),
            (
                AudioOp::Rescale { .. } | AudioOp::ZeroMeanUnitVariance | AudioOp::Window { .. },
                Kind::Samples(_),
            ) => kind,
            (AudioOp::LogMel(mel), Kind::Samples(rate)) => match rate {
                Some(rate) if rate != mel.rate => {
                    return Err(format!(
                        "the features are of {} Hz, and the samples are at {rate} Hz",
                        mel.rate
                    ));
                }
                _ => Kind::Features,
            },
            (AudioOp::WhisperScale, Kind::Features) => kind,
            (AudioOp::EmitValid, Kind::Samples(_) | Kind::Features) => Kind::Length,
            (AudioOp::EmitValidityMask, Kind::Samples(_) | Kind::Features) => Kind::Mask,
            _ => return Err(format!("{} cannot be done with {}", op.name(), kind.name())),
        };
        Ok(self.push(op, input, made))
    }
}
