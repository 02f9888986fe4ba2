//! Programs for the image processors of Hugging Face's transformers, out of a
//! preprocessor_config.json.
//!
//! CLIP, BiT, SigLIP, ViT, DeiT, BEiT, ConvNeXT, MobileNet, BLIP, Gemma 3, Qwen2-VL (also Qwen2.5-VL),
//! Idefics3 and SmolVLM, with
//! their defaults as of transformers 4.57, and Gemma 4 as of 5.24, with and without "Fast" or "Pil"
//! in the name.

use serde_json::Value;

use super::program::{
    Content, FeatureOrder, Fit, ImageOp, ImageOutput, ImageProgram, ImageTransform, PatchOrder, Patchify,
    Thumbnail, Tiling, TilingMode,
};
use super::resize::Filter;
use super::rgb::MAX_SIDE;
use crate::component::DataType;
use crate::media::config::{ConfigError, channels, count, count_or, flag};

pub(super) const CLIP_MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
pub(super) const CLIP_STD: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];
const HALF: [f32; 3] = [0.5; 3];

/// The inputs that a processor's results are for, `component.port`.
#[derive(Clone, Debug)]
pub struct ProcessorPorts {
    /// `pixel_values`, and the type that the port has.
    pub pixels: (String, DataType),
    /// `image_grid_thw`, where the model has it.
    pub grid: Option<(String, DataType)>,
    /// `image_position_ids`.
    pub coordinates: Option<(String, DataType)>,
    /// `pixel_attention_mask`.
    pub mask: Option<(String, DataType)>,
}

/// What a processor does beside resizing, cutting and scaling.
enum Special {
    None,
    /// Patches of any grid, and the grid.
    Qwen(Patchify),
    /// Patches and their places, as many for each image.
    Gemma4 {
        patchify: Patchify,
        most: usize,
    },
    /// Tiles and the whole image.
    Idefics(Tiling),
}

/// What a kind of processor does where its configuration does not say.
struct Defaults {
    size: [usize; 2],
    /// A size that is one number is that of the shorter side.
    shortest: bool,
    filter: Filter,
    crop: Option<usize>,
    mean: [f32; 3],
    std: [f32; 3],
}

fn defaults(kind: &str) -> Option<Defaults> {
    let square = |size: usize, filter, mean, std| Defaults {
        size: [size; 2],
        shortest: false,
        filter,
        crop: None,
        mean,
        std,
    };
    Some(match kind {
        "CLIPImageProcessor" | "CLIPFeatureExtractor" | "BitImageProcessor" => Defaults {
            shortest: true,
            crop: Some(224),
            ..square(224, Filter::Bicubic, CLIP_MEAN, CLIP_STD)
        },
        "SiglipImageProcessor" => square(224, Filter::Bicubic, HALF, HALF),
        "Gemma3ImageProcessor" => square(224, Filter::Bilinear, HALF, HALF),
        "Gemma4ImageProcessor" => square(0, Filter::Bicubic, [0.0; 3], [1.0; 3]),
        "Idefics3ImageProcessor" | "SmolVLMImageProcessor" => square(0, Filter::Lanczos, HALF, HALF),
        "ViTImageProcessor" | "ViTFeatureExtractor" => square(224, Filter::Bilinear, HALF, HALF),
        "DeiTImageProcessor" | "DeiTFeatureExtractor" => Defaults {
            crop: Some(224),
            ..square(256, Filter::Bicubic, HALF, HALF)
        },
        "BeitImageProcessor" | "BeitFeatureExtractor" => Defaults {
            crop: Some(224),
            ..square(256, Filter::Bicubic, HALF, HALF)
        },
        "ConvNextImageProcessor" | "ConvNextFeatureExtractor" => Defaults {
            shortest: true,
            ..square(384, Filter::Bilinear, HALF, HALF)
        },
        "MobileNetV1ImageProcessor" | "MobileNetV2ImageProcessor" | "MobileNetV2FeatureExtractor" => {
            Defaults {
                shortest: true,
                crop: Some(224),
                ..square(256, Filter::Bilinear, HALF, HALF)
            }
        }
        "BlipImageProcessor" => square(384, Filter::Bicubic, CLIP_MEAN, CLIP_STD),
        "Qwen2VLImageProcessor" => square(0, Filter::Bicubic, CLIP_MEAN, CLIP_STD),
        _ => return None,
    })
}

/// The name without the library that the processor is done with.
fn kind_of(found: &str) -> &str {
    let kind = found.strip_suffix("Fast").or(found.strip_suffix("Pil"));
    kind.unwrap_or(found)
}

impl ImageProgram {
    /// Whether this is the name of a processor that is done here, also one that it had before.
    pub fn knows(kind: &str) -> bool {
        defaults(kind_of(kind)).is_some()
    }

    /// The program that does what the processor of a preprocessor_config.json does.
    pub fn from_preprocessor_config(config: &Value, ports: &ProcessorPorts) -> Result<Self, ConfigError> {
        let key = match config.get("image_processor_type") {
            Some(_) => "image_processor_type",
            None => "feature_extractor_type",
        };
        let found = config.get(key).and_then(Value::as_str);
        let found =
            found.ok_or_else(|| ConfigError::unsupported("image_processor_type", "it names no processor"))?;
        let kind = kind_of(found);
        let defaults = defaults(kind).ok_or_else(|| {
            ConfigError::unsupported(
                key,
                format!(
                    "\"{found}\" is not done here; CLIP, Bit, Siglip, ViT, DeiT, Beit, ConvNext, MobileNetV1, MobileNetV2, \
                     Blip, Gemma3, Gemma4, Idefics3, SmolVLM and Qwen2VLImageProcessor are"
                ),
            )
        })?;
        let filter = match config.get("resample").filter(|value| !value.is_null()) {
            None => defaults.filter,
            Some(number) => number
                .as_u64()
                .and_then(Filter::from_pillow)
                .ok_or_else(|| ConfigError::new("resample", "it is none of Pillow's filters, 0 to 5"))?,
        };
        let special = match kind {
            "Qwen2VLImageProcessor" => Special::Qwen(qwen_patches(config)?),
            "Gemma4ImageProcessor" => gemma4(config)?,
            "Idefics3ImageProcessor" | "SmolVLMImageProcessor" => Special::Idefics(idefics(config, filter)?),
            _ => Special::None,
        };
        if flag(config, "do_pan_and_scan", false)? {
            return Err(ConfigError::unsupported(
                "do_pan_and_scan",
                "crops of long images are not done here",
            ));
        }
        let mut ops = vec![ImageOp::Decode];
        if let Special::Idefics(tiling) = special {
            ops.push(ImageOp::Tile(tiling));
        } else if flag(config, "do_resize", true)? {
            let fit = match &special {
                Special::Qwen(patchify) => pixel_area(config, patchify)?,
                Special::Gemma4 { patchify, most } => Fit::PatchBudget {
                    patch: patchify.size,
                    most: *most,
                    pooling: patchify.merge,
                },
                _ => fit(config, &defaults)?,
            };
            match fit {
                Fit::ShortestEdge { edge } if kind.starts_with("ConvNext") => {
                    ops.extend(convnext(config, edge, filter)?);
                }
                fit => ops.push(ImageOp::Resize { fit, filter }),
            }
        }
        if flag(config, "do_center_crop", defaults.crop.is_some())? {
            let [height, width] = match config.get("crop_size").filter(|value| !value.is_null()) {
                Some(size) => sides(size, "crop_size")?,
                None => [defaults.crop.unwrap_or(224); 2],
            };
            ops.push(ImageOp::CenterCrop { width, height });
        }
        if flag(config, "do_rescale", true)? {
            let scale = match config.get("rescale_factor") {
                Some(factor) => factor
                    .as_f64()
                    .filter(|factor| factor.is_finite())
                    .ok_or_else(|| ConfigError::new("rescale_factor", "it is no number"))?,
                None => 1.0 / 255.0,
            };
            ops.push(ImageOp::Rescale { scale });
        }
        let normalizes = !matches!(special, Special::Gemma4 { .. });
        if flag(config, "do_normalize", normalizes)? {
            let mean = channels(config, "image_mean", defaults.mean)?;
            let std = channels(config, "image_std", defaults.std)?;
            ops.push(ImageOp::Normalize { mean, std });
        }
        match special {
            Special::Qwen(patchify) => ops.push(ImageOp::Patchify(patchify)),
            Special::Gemma4 { patchify, most } => {
                ops.push(ImageOp::Patchify(patchify));
                ops.push(ImageOp::Pad {
                    length: Some(most),
                    value: 0.0,
                });
            }
            Special::None | Special::Idefics(_) => {}
        }
        ImageProgram::of_processor(ops, ports, key)
    }

    /// A program of transforms that follow each other, for the inputs that a processor has.
    pub(super) fn of_processor(
        ops: Vec<ImageOp>,
        ports: &ProcessorPorts,
        key: &str,
    ) -> Result<Self, ConfigError> {
        let output = |(name, dtype): &(String, DataType), content, pad_value| ImageOutput {
            source: None,
            name: name.clone(),
            content,
            dtype: *dtype,
            pad_value,
        };
        let mut outputs = vec![output(&ports.pixels, Content::Pixels, None)];
        let others = [
            (&ports.grid, Content::GridDimensions, None),
            // What lies outside of the image is nowhere.
            (&ports.coordinates, Content::PatchCoordinates, Some(-1.0)),
            (&ports.mask, Content::ValidityMask, None),
        ];
        for (port, content, pad_value) in others {
            outputs.extend(port.iter().map(|port| output(port, content, pad_value)));
        }
        let transforms = ops.into_iter().map(|op| ImageTransform {
            op,
            inputs: None,
            outputs: None,
        });
        ImageProgram::new(transforms.collect(), outputs)
            .map_err(|error| ConfigError::new(key, error.to_string()))
    }
}

/// Height and width: a number for both, or each by its name.
fn sides(size: &Value, key: &str) -> Result<[usize; 2], ConfigError> {
    let side = |value: &Value| count(value, key, MAX_SIDE as u64);
    match (size.get("height"), size.get("width")) {
        (Some(height), Some(width)) => Ok([side(height)?, side(width)?]),
        _ => Ok([side(size)?; 2]),
    }
}

fn fit(config: &Value, defaults: &Defaults) -> Result<Fit, ConfigError> {
    let stretch = |[height, width]: [usize; 2]| Fit::Stretch { width, height };
    let Some(size) = config.get("size").filter(|value| !value.is_null()) else {
        return Ok(match defaults.shortest {
            true => Fit::ShortestEdge {
                edge: defaults.size[0],
            },
            false => stretch(defaults.size),
        });
    };
    let edge = match size.get("shortest_edge") {
        Some(edge) => Some(edge),
        None => Some(size).filter(|size| defaults.shortest && size.is_number()),
    };
    if size.get("longest_edge").is_some() {
        return Err(ConfigError::unsupported(
            "size",
            "a longest_edge is not done here",
        ));
    }
    match edge {
        Some(edge) => Ok(Fit::ShortestEdge {
            edge: count(edge, "size", MAX_SIDE as u64)?,
        }),
        None => Ok(stretch(sides(size, "size")?)),
    }
}

/// Small images are the middle of larger ones; from 384 on they are stretched.
fn convnext(config: &Value, edge: usize, filter: Filter) -> Result<Vec<ImageOp>, ConfigError> {
    let (width, height) = (edge, edge);
    if edge >= 384 {
        let fit = Fit::Stretch { width, height };
        return Ok(vec![ImageOp::Resize { fit, filter }]);
    }
    let share = match config.get("crop_pct").filter(|value| !value.is_null()) {
        None => 224.0 / 256.0,
        Some(share) => share
            .as_f64()
            .filter(|share| *share > 0.0 && *share <= 1.0)
            .ok_or_else(|| ConfigError::new("crop_pct", "it is no number up to 1"))?,
    };
    let fit = Fit::ShortestEdge {
        edge: (edge as f64 / share) as usize,
    };
    Ok(vec![
        ImageOp::Resize { fit, filter },
        ImageOp::CenterCrop { width, height },
    ])
}

fn qwen_patches(config: &Value) -> Result<Patchify, ConfigError> {
    Ok(Patchify {
        // A square of patches is at most as large as package metadata may say.
        size: count_or(config, "patch_size", 14, 64)?,
        frames: count_or(config, "temporal_patch_size", 2, 64)?,
        merge: count_or(config, "merge_size", 2, 64)?,
        features: FeatureOrder::ChannelsFirst,
        order: PatchOrder::Groups,
        xy: false,
        flatten: true,
    })
}

fn gemma4(config: &Value) -> Result<Special, ConfigError> {
    let pooling = count_or(config, "pooling_kernel_size", 3, 64)?;
    let tokens = count_or(config, "max_soft_tokens", 280, 1 << 16)?;
    let patchify = Patchify {
        size: count_or(config, "patch_size", 16, 64)?,
        frames: 1,
        merge: pooling,
        features: FeatureOrder::ChannelsLast,
        order: PatchOrder::Raster,
        xy: true,
        flatten: true,
    };
    let most = tokens * pooling * pooling;
    if most > 1 << 24 {
        return Err(ConfigError::new(
            "max_soft_tokens",
            "it comes to too many patches",
        ));
    }
    Ok(Special::Gemma4 { patchify, most })
}

fn idefics(config: &Value, filter: Filter) -> Result<Tiling, ConfigError> {
    for key in ["do_resize", "do_image_splitting", "do_pad"] {
        if !flag(config, key, true)? {
            return Err(ConfigError::unsupported(
                key,
                "images that are not cut into tiles are not done here",
            ));
        }
    }
    let edge = |key: &str, default: usize| match config.get(key).filter(|value| !value.is_null()) {
        None => Ok(default),
        Some(size) => {
            let edge = size.get("longest_edge");
            let edge = edge.ok_or_else(|| ConfigError::new(key, "it has no longest_edge"))?;
            count(edge, key, MAX_SIDE as u64)
        }
    };
    Ok(Tiling {
        size: edge("max_image_size", 364)?,
        most: 1024,
        mode: TilingMode::LongestEdge {
            longest: edge("size", 4 * 364)?,
        },
        thumbnail: Thumbnail::Append,
        thumbnail_filter: filter,
        filter,
    })
}

fn pixel_area(config: &Value, patchify: &Patchify) -> Result<Fit, ConfigError> {
    // The edges of the size are areas; the older names win, as they do in transformers.
    let area = |key: &str, edge: &str, default: usize| {
        let named = config.get(key).filter(|value| !value.is_null());
        let by_size = config.get("size").and_then(|size| size.get(edge));
        match named.or(by_size) {
            Some(value) => count(value, key, 1 << 32),
            None => Ok(default),
        }
    };
    let least = area("min_pixels", "shortest_edge", 56 * 56)?;
    let most = area("max_pixels", "longest_edge", 28 * 28 * 1280)?;
    if least > most {
        return Err(ConfigError::new("min_pixels", "it is above max_pixels"));
    }
    Ok(Fit::PixelArea {
        least: least as u64,
        most: most as u64,
        multiple: patchify.size * patchify.merge,
    })
}
