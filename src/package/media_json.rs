//! Programs of images and of sound as package metadata writes them: each value has a name of its own,
//! so that what is read back is the same program.

use serde_json::{Map, Value, json};

use crate::component::DataType;
use crate::media::audio::{AudioContent, AudioOp, AudioProgram, MelScale};
use crate::media::image::{
    FeatureOrder, Filter, Fit, ImageOp, ImageProgram, PatchOrder, Thumbnail, TilingMode,
};
use crate::media::{ImagePlaceholders, TokenCount};

/// `preprocessing.image`
pub(crate) fn image_program(program: &ImageProgram) -> Value {
    let steps = program.steps().enumerate();
    let transforms = steps.map(|(index, (op, input))| transform(op.name(), input, index, image_op(op)));
    let outputs = program.bound().map(|(source, output)| {
        let mut fields = self::output(source, &output.name, output.content.name(), output.dtype);
        if let Some(value) = output.pad_value {
            fields.insert("pad_value".into(), json!(value));
        }
        Value::Object(fields)
    });
    json!({ "transforms": transforms.collect::<Vec<_>>(), "outputs": outputs.collect::<Vec<_>>() })
}

/// `preprocessing.audio`
pub(crate) fn audio_program(program: &AudioProgram) -> Value {
    let steps = program.steps().enumerate();
    let transforms = steps.map(|(index, (op, input))| transform(op.name(), input, index, audio_op(op)));
    let outputs = program.bound().map(|(source, output)| {
        let content = match output.content {
            AudioContent::Waveform => "waveform",
            AudioContent::Features => "features",
            AudioContent::Length => "valid_samples",
            AudioContent::ValidityMask => "validity_mask",
        };
        Value::Object(self::output(source, &output.name, content, output.dtype))
    });
    json!({ "transforms": transforms.collect::<Vec<_>>(), "outputs": outputs.collect::<Vec<_>>() })
}

/// `pipeline.vision`
pub(crate) fn placeholders(placeholders: &ImagePlaceholders) -> Value {
    let mut fields = Map::new();
    fields.insert(
        "image_placeholder_token_id".into(),
        json!(placeholders.placeholder),
    );
    fields.insert("image_token_id".into(), json!(placeholders.token));
    let source = match placeholders.count {
        TokenCount::PerTile(count) => {
            fields.insert("tokens_per_tile".into(), json!(count));
            "per_tile"
        }
        TokenCount::PerPatch(count) => {
            fields.insert("tokens_per_patch".into(), json!(count));
            "per_patch"
        }
        TokenCount::FromGrid => "from_grid",
    };
    fields.insert("token_count_source".into(), json!(source));
    for (name, separator) in [
        ("row_separator_token_id", placeholders.row_separator),
        ("column_separator_token_id", placeholders.column_separator),
    ] {
        if let Some(token) = separator {
            fields.insert(name.into(), json!(token));
        }
    }
    for (name, tokens) in [
        ("tokens_before", &placeholders.before),
        ("tokens_after", &placeholders.after),
    ] {
        if !tokens.is_empty() {
            fields.insert(name.into(), json!(tokens));
        }
    }
    fields.insert("thumbnail_order".into(), json!(thumbnail(placeholders.thumbnail)));
    if let Some(tiles) = &placeholders.tiles {
        let tiles = json!({
            "around": tiles.around,
            "names": tiles.names,
            "row_end": tiles.row_end,
            "last_row_end": tiles.last_row_end,
            "whole": tiles.whole,
        });
        fields.insert("tile_tokens".into(), tiles);
    }
    Value::Object(fields)
}

fn value(index: usize) -> String {
    format!("value_{index}")
}

fn transform(op: &str, input: Option<usize>, index: usize, parameters: Value) -> Value {
    let mut fields = Map::new();
    fields.insert("op".into(), json!(op));
    if let Some(input) = input {
        fields.insert("inputs".into(), json!([value(input)]));
    }
    fields.insert("outputs".into(), json!([value(index)]));
    if let Value::Object(parameters) = parameters {
        fields.extend(parameters);
    }
    Value::Object(fields)
}

fn output(source: usize, name: &str, content: &str, dtype: DataType) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("source".into(), json!(value(source)));
    fields.insert("name".into(), json!(name));
    fields.insert("content".into(), json!(content));
    fields.insert("dtype".into(), json!(dtype.to_string()));
    fields
}

fn thumbnail(thumbnail: Thumbnail) -> &'static str {
    match thumbnail {
        Thumbnail::None => "none",
        Thumbnail::Prepend => "prepend",
        Thumbnail::Append => "append",
    }
}

fn size(width: usize, height: usize) -> Value {
    json!({ "width": width, "height": height })
}

/// What a transform has beside its name and values.
fn image_op(op: &ImageOp) -> Value {
    match *op {
        ImageOp::Resize { fit, filter } => resize(fit, filter),
        ImageOp::CenterCrop { width, height } => json!({ "size": size(width, height) }),
        ImageOp::Rescale { scale } => json!({ "scale": scale }),
        ImageOp::Normalize { mean, std } => {
            json!({ "mean": mean.map(f64::from), "std": std.map(f64::from) })
        }
        ImageOp::Tile(tiling) => {
            let mut fields = match tiling.mode {
                TilingMode::Anyres => json!({ "mode": "dynamic_anyres" }),
                TilingMode::Grid { columns, rows } => {
                    json!({ "mode": "fixed_grid", "columns": columns, "rows": rows })
                }
                TilingMode::LongestEdge { longest } => {
                    json!({ "mode": "longest_edge", "longest_edge": longest })
                }
                TilingMode::DynamicHd { mask_patch, canvas } => json!({
                    "mode": "dynamic_hd",
                    "mask_patch_size": mask_patch,
                    "canvas_pad_value": canvas,
                }),
            };
            fields["tile_size"] = json!(tiling.size);
            fields["max_tiles"] = json!(tiling.most);
            fields["interpolation"] = json!(tiling.filter.name());
            fields["thumbnail_order"] = json!(thumbnail(tiling.thumbnail));
            fields["thumbnail_interpolation"] = json!(tiling.thumbnail_filter.name());
            fields
        }
        ImageOp::Patchify(patchify) => {
            let (channels, frames) = match patchify.features {
                FeatureOrder::ChannelsFirst => ("channels_first", "channel_major"),
                FeatureOrder::FramesFirst => ("channels_first", "temporal_major"),
                FeatureOrder::ChannelsLast => ("channels_last", "temporal_major"),
            };
            json!({
                "patch_size": patchify.size,
                "temporal_patch_size": patchify.frames,
                "merge_size": patchify.merge,
                "channel_order": channels,
                "temporal_order": frames,
                "patch_order": match patchify.order {
                    PatchOrder::Groups => "merge_groups",
                    PatchOrder::Raster => "raster",
                },
                "coordinate_order": if patchify.xy { "xy" } else { "yx" },
            })
        }
        ImageOp::Pad { length, value } => match length {
            Some(length) => json!({ "target_length": length, "pad_value": value }),
            None => json!({ "pad_value": value }),
        },
        ImageOp::Decode
        | ImageOp::ConvertRgb
        | ImageOp::Flatten
        | ImageOp::EmitOriginalSize
        | ImageOp::EmitTransformedSize
        | ImageOp::EmitValidityMask
        | ImageOp::EmitPatchCoordinates
        | ImageOp::EmitGridCoordinates => Value::Null,
    }
}

fn resize(fit: Fit, filter: Filter) -> Value {
    let mut fields = match fit {
        Fit::Stretch { width, height } => json!({ "mode": "stretch", "size": size(width, height) }),
        Fit::ShortestEdge { edge } => json!({ "mode": "shortest_edge_only", "size": edge }),
        Fit::Crop { width, height } => json!({ "mode": "crop", "size": size(width, height) }),
        Fit::Pad { width, height, value } => {
            json!({ "mode": "pad", "size": size(width, height), "pad_value": value })
        }
        Fit::PixelArea {
            least,
            most,
            multiple,
        } => json!({
            "mode": "pixel_area",
            "min_pixels": least,
            "max_pixels": most,
            "size_multiple": multiple,
        }),
        Fit::PatchBudget { patch, most, pooling } => json!({
            "mode": "aspect_ratio_patch_budget",
            "patch_size": patch,
            "max_patches": most,
            "pooling_kernel_size": pooling,
        }),
    };
    fields["interpolation"] = json!(filter.name());
    fields
}

fn audio_op(op: &AudioOp) -> Value {
    match *op {
        AudioOp::Resample { rate } => json!({ "sample_rate": rate }),
        AudioOp::Rescale { scale } => json!({ "scale": scale }),
        AudioOp::Window {
            length,
            value,
            cut,
            pad,
        } => match pad {
            true => json!({
                "mode": if cut { "fixed_window" } else { "pad" },
                "target_length": length,
                "pad_value": f64::from(value),
            }),
            false => json!({ "target_length": length }),
        },
        AudioOp::LogMel(mel) => json!({
            "n_fft": mel.size,
            "hop_length": mel.hop,
            "num_mel_bins": mel.bins,
            "sample_rate": mel.rate,
            "f_max": mel.highest,
            "mel_scale": match mel.scale {
                MelScale::Slaney => "slaney",
                MelScale::Htk => "htk",
            },
        }),
        AudioOp::WhisperScale => json!({ "mode": "whisper_log_mel" }),
        AudioOp::Decode
        | AudioOp::Downmix
        | AudioOp::ZeroMeanUnitVariance
        | AudioOp::EmitValid
        | AudioOp::EmitValidityMask => Value::Null,
    }
}
