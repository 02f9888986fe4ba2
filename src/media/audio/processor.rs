//! Programs for the feature extractors of Hugging Face's transformers, out of a
//! preprocessor_config.json: Whisper's, and Wav2Vec2's, which is that of HuBERT, WavLM and others too.

use serde_json::Value;

use super::decode::{MAX_RATE, MAX_SAMPLES};
use super::program::{AudioContent, AudioOp, AudioOutput, AudioProgram, AudioTransform, LogMel, MelScale};
use crate::component::DataType;
use crate::media::config::{ConfigError, count_or, flag, float};

const KIND: &str = "feature_extractor_type";

const WHISPER: &str = "WhisperFeatureExtractor";
const WAV2VEC2: &str = "Wav2Vec2FeatureExtractor";

impl AudioProgram {
    /// Whether this is the name of a feature extractor that is done here.
    pub fn knows(kind: &str) -> bool {
        [WHISPER, WAV2VEC2].contains(&kind)
    }

    /// The program that does what the feature extractor of a preprocessor_config.json does, whose
    /// input_features or input_values are for `port`, `component.port`, of this type.
    pub fn from_preprocessor_config(config: &Value, port: (String, DataType)) -> Result<Self, ConfigError> {
        let found = config.get(KIND).and_then(Value::as_str);
        let found = found.ok_or_else(|| ConfigError::new(KIND, "it names no feature extractor"))?;
        let rate = count_or(config, "sampling_rate", 16_000, MAX_RATE.into())?;
        let rate = u32::try_from(rate).unwrap_or(MAX_RATE);
        let mut ops = vec![AudioOp::Decode, AudioOp::Resample { rate }];
        let content = match found {
            WHISPER => {
                ops.extend(whisper(config, rate)?);
                AudioContent::Features
            }
            WAV2VEC2 => {
                if flag(config, "do_normalize", true)? {
                    ops.push(AudioOp::ZeroMeanUnitVariance);
                }
                AudioContent::Waveform
            }
            _ => {
                let message = format!("\"{found}\" is not done here; {WHISPER} and {WAV2VEC2} are");
                return Err(ConfigError::unsupported(KIND, message));
            }
        };
        let transforms = ops.into_iter().map(|op| AudioTransform {
            op,
            inputs: None,
            outputs: None,
        });
        let output = AudioOutput {
            source: None,
            name: port.0,
            content,
            dtype: port.1,
        };
        AudioProgram::new(transforms.collect(), vec![output])
            .map_err(|error| ConfigError::new(KIND, error.to_string()))
    }
}

fn whisper(config: &Value, rate: u32) -> Result<[AudioOp; 3], ConfigError> {
    let seconds = count_or(config, "chunk_length", 30, 3600)?;
    let length = seconds.saturating_mul(rate as usize);
    if length > MAX_SAMPLES {
        return Err(ConfigError::new("chunk_length", "it comes to too many samples"));
    }
    let size = count_or(config, "n_fft", 400, 1 << 16)?;
    let mel = LogMel {
        size,
        hop: count_or(config, "hop_length", 160, 1 << 16)?,
        bins: count_or(config, "feature_size", 80, 1024)?,
        rate,
        // What WhisperFeatureExtractor has, whatever the rate is.
        highest: 8000.0,
        scale: MelScale::Slaney,
    };
    let window = AudioOp::Window {
        length,
        value: match config.get("padding_value").filter(|value| !value.is_null()) {
            Some(value) => float(value, "padding_value")?,
            None => 0.0,
        },
        cut: true,
        pad: true,
    };
    Ok([window, AudioOp::LogMel(mel), AudioOp::WhisperScale])
}
