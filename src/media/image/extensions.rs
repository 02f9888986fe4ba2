//! Programs for the image pipelines of onnxruntime-extensions, out of a processor_config.json as
//! onnxruntime-genai's packages have it (version 0.15).
//!
//! Images are RGB throughout, whatever `color_space` says and `ConvertRGB` and the flags of
//! `Normalize` exchange: pipelines end with RGB. A `smart_resize` rounds its own width and height
//! and not those of the image, halves upwards, as it does there.

use serde_json::Value;

use super::processor::ProcessorPorts;
use super::program::{FeatureOrder, Fit, ImageOp, ImageProgram, PatchOrder, Patchify};
use super::resize::Filter;
use super::rgb::MAX_SIDE;
use super::sizes;
use crate::media::config::{ConfigError, channels, count, count_or};

/// The key of all errors.
const KEY: &str = "processor";

impl ImageProgram {
    /// The program that does what `processor.transforms` of the file says.
    pub fn from_extensions_config(config: &Value, ports: &ProcessorPorts) -> Result<Self, ConfigError> {
        let transforms = config.get(KEY).and_then(|processor| processor.get("transforms"));
        let transforms = transforms.and_then(Value::as_array);
        let transforms = transforms.ok_or_else(|| ConfigError::new(KEY, "it has no list of transforms"))?;
        let none = Value::Null;
        let mut ops = Vec::new();
        for transform in transforms {
            let operation = transform.get("operation").unwrap_or(&none);
            let kind = operation.get("type").and_then(Value::as_str);
            let kind = kind.ok_or_else(|| ConfigError::new(KEY, "a transform has no type"))?;
            let attributes = operation.get("attrs").unwrap_or(&none);
            ops.push(match kind {
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
                            .ok_or_else(|| ConfigError::new(KEY, "rescale_factor is no number"))?,
                    },
                },
                "Normalize" => ImageOp::Normalize {
                    mean: channels(attributes, "mean", super::processor::CLIP_MEAN)?,
                    std: channels(attributes, "std", super::processor::CLIP_STD)?,
                },
                // The layout is that of the port.
                "Permute3D" => continue,
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
                    let message = format!("the transform \"{other}\" is not done here");
                    return Err(ConfigError::unsupported(KEY, message));
                }
            });
        }
        ImageProgram::of_processor(ops, ports, KEY)
    }
}

fn resize(attributes: &Value) -> Result<ImageOp, ConfigError> {
    let flag = |key: &str| attributes.get(key).and_then(Value::as_i64).unwrap_or(0) != 0;
    let mut width = count_or(attributes, "width", 256, MAX_SIDE as u64)?;
    let mut height = count_or(attributes, "height", 256, MAX_SIDE as u64)?;
    let filter = match attributes.get("interpolation").map(|name| name.as_str()) {
        None | Some(Some("CUBIC")) => Filter::Bicubic,
        Some(Some("LINEAR")) => Filter::Bilinear,
        Some(Some("LANCZOS")) => Filter::Lanczos,
        Some(Some("NEAREST")) => Filter::Nearest,
        Some(_) => {
            let message = "interpolation is none of NEAREST, LINEAR, CUBIC and LANCZOS";
            return Err(ConfigError::new(KEY, message));
        }
    };
    if flag("smart_resize") {
        let area = |key: &str, default: usize| match attributes.get(key) {
            Some(value) => count(value, key, 1 << 32),
            None => Ok(default),
        };
        let least = area("min_pixels", 56 * 56)?;
        let most = area("max_pixels", 28 * 28 * 1280)?;
        let patch = count_or(attributes, "patch_size", 14, 64)?;
        let merge = count_or(attributes, "merge_size", 2, 64)?;
        let (least, most) = (least as u64, most as u64);
        let sides = sizes::rounded_area((width, height), least, most, patch * merge, f64::round);
        (width, height) = sides.map_err(|error| ConfigError::new(KEY, error.to_string()))?;
    } else if flag("keep_aspect_ratio") {
        return Err(ConfigError::unsupported(
            KEY,
            "keep_aspect_ratio is not done here",
        ));
    }
    Ok(ImageOp::Resize {
        fit: Fit::Stretch { width, height },
        filter,
    })
}
