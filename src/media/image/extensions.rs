//! Programs for the image pipelines of onnxruntime-extensions, out of a processor_config.json as
//! onnxruntime-genai's packages have it (version 0.15).
//!
//! `color_space`, `ConvertRGB` and a flag of `Normalize` exchange red and blue there. Images are RGB
//! throughout here, and a pipeline that does not end with RGB is refused. A `smart_resize` takes its
//! own width and height and not those of the image, and `keep_aspect_ratio` changes nothing, as there.

use serde_json::Value;

use super::processor::ProcessorPorts;
use super::program::{FeatureOrder, Fit, ImageOp, ImageProgram, PatchOrder, Patchify};
use super::resize::Filter;
use super::rgb::MAX_SIDE;
use super::sizes;
use crate::media::config::{ConfigError, channels, count, count_or};

/// The key of all errors; which transform and attribute it is, their messages say.
const KEY: &str = "processor";

impl ImageProgram {
    /// The program that does what `processor.transforms` of the file says.
    pub fn from_extensions_config(config: &Value, ports: &ProcessorPorts) -> Result<Self, ConfigError> {
        let transforms = config.get(KEY).and_then(|processor| processor.get("transforms"));
        let transforms = transforms.and_then(Value::as_array);
        let transforms = transforms.ok_or_else(|| ConfigError::new(KEY, "it has no list of transforms"))?;
        let mut ops = Vec::new();
        let mut exchanged = false;
        for (index, transform) in transforms.iter().enumerate() {
            let in_place = |error: ConfigError| ConfigError {
                key: KEY.to_owned(),
                message: format!("transforms[{index}].{}: {}", error.key, error.message),
                ..error
            };
            let none = Value::Null;
            let operation = transform.get("operation").unwrap_or(&none);
            let kind = operation.get("type").and_then(Value::as_str);
            let kind = kind.ok_or_else(|| in_place(ConfigError::new("type", "it is missing")))?;
            let attributes = operation.get("attrs").unwrap_or(&none);
            ops.extend(transform_of(kind, attributes).map_err(in_place)?);
            exchanged ^= exchanges(kind, attributes);
        }
        if exchanged {
            return Err(ConfigError::unsupported(
                KEY,
                "the pipeline ends with blue, green and red, which is not done here",
            ));
        }
        ImageProgram::of_processor(ops, ports, KEY)
    }
}

fn is_set(attributes: &Value, key: &str) -> bool {
    attributes.get(key).and_then(Value::as_i64).unwrap_or(0) != 0
}

/// Whether a transform puts blue where red was.
fn exchanges(kind: &str, attributes: &Value) -> bool {
    match kind {
        "DecodeImage" => attributes.get("color_space").is_some_and(|space| space == "BGR"),
        "ConvertRGB" => true,
        "Normalize" => is_set(attributes, "qwen2_5_vl"),
        _ => false,
    }
}

/// What one transform is here, if it is something.
fn transform_of(kind: &str, attributes: &Value) -> Result<Option<ImageOp>, ConfigError> {
    Ok(Some(match kind {
        "DecodeImage" => ImageOp::Decode,
        "ConvertRGB" => ImageOp::ConvertRgb,
        "Resize" => resize(attributes)?,
        "CenterCrop" => ImageOp::CenterCrop {
            width: count_or(attributes, "width", 224, MAX_SIDE as u64)?,
            height: count_or(attributes, "height", 224, MAX_SIDE as u64)?,
        },
        "Rescale" => ImageOp::Rescale {
            scale: match attributes.get("rescale_factor") {
                None => 1.0 / 255.0,
                Some(factor) => factor
                    .as_f64()
                    .ok_or_else(|| ConfigError::new("rescale_factor", "it is no number"))?,
            },
        },
        "Normalize" => ImageOp::Normalize {
            mean: channels(attributes, "mean", super::processor::CLIP_MEAN)?,
            std: channels(attributes, "std", super::processor::CLIP_STD)?,
        },
        // The layout is that of the port.
        "Permute3D" => return Ok(None),
        "PatchImage" => ImageOp::Patchify(Patchify {
            size: count_or(attributes, "patch_size", 14, 64)?,
            frames: count_or(attributes, "temporal_patch_size", 2, 64)?,
            merge: count_or(attributes, "merge_size", 2, 64)?,
            features: FeatureOrder::ChannelsFirst,
            order: PatchOrder::Groups,
            xy: false,
            flatten: true,
        }),
        other => {
            let message = format!("\"{other}\" is not done here");
            return Err(ConfigError::unsupported("type", message));
        }
    }))
}

fn resize(attributes: &Value) -> Result<ImageOp, ConfigError> {
    let mut width = count_or(attributes, "width", 256, MAX_SIDE as u64)?;
    let mut height = count_or(attributes, "height", 256, MAX_SIDE as u64)?;
    let filter = match attributes.get("interpolation").map(|name| name.as_str()) {
        None | Some(Some("CUBIC")) => Filter::Bicubic,
        Some(Some("LINEAR")) => Filter::Bilinear,
        Some(Some("LANCZOS")) => Filter::Lanczos,
        Some(Some("NEAREST")) => Filter::Nearest,
        Some(_) => {
            let message = "it is none of NEAREST, LINEAR, CUBIC and LANCZOS";
            return Err(ConfigError::new("interpolation", message));
        }
    };
    if is_set(attributes, "smart_resize") {
        let area = |key: &str, default: usize| match attributes.get(key) {
            Some(value) => count(value, key, 1 << 32),
            None => Ok(default),
        };
        let least = area("min_pixels", 56 * 56)?;
        let most = area("max_pixels", 28 * 28 * 16_384)?;
        let patch = count_or(attributes, "patch_size", 14, 64)?;
        let merge = count_or(attributes, "merge_size", 2, 64)?;
        let (least, most) = (least as u64, most as u64);
        let sides = sizes::smart_resize((width, height), least, most, patch * merge);
        (width, height) = sides.map_err(|error| ConfigError::new("smart_resize", error.to_string()))?;
    }
    Ok(ImageOp::Resize {
        fit: Fit::Stretch { width, height },
        filter,
    })
}
