//! Images and sound that a package takes: `preprocessing`, and `pipeline.vision`.

use crate::media::image::{
    Content, FeatureOrder, Filter, Fit, ImageOp, ImageOutput, ImageProgram, ImageTransform, PatchOrder,
    Patchify, Thumbnail, Tiling, TilingMode,
};
use crate::media::{ImagePlaceholders, ProgramError, ProgramPart, TileTokens, TokenCount, Transform};

use super::PackageError;
use super::audio::read_sound;
use super::declaration::{MediaDeclaration, OutputPort, ProgramDeclaration, Said};
use super::document::{Cursor, Fields};
use super::metadata::{address, read_dtype};

/// The longest side of an image or tile, in pixels.
const MOST_SIDE: u64 = 65_535;
/// The longest side of a patch.
const MOST_PATCH: u64 = 4096;
/// The most rows that patches are padded to.
const MOST_ROWS: u64 = 1 << 24;

/// `preprocessing`.
pub(super) fn read_preprocessing(at: &Cursor<'_>) -> Result<MediaDeclaration, PackageError> {
    let mut fields = at.fields()?;
    let image = fields
        .get("image")
        .map(|image| read_program(&image, read_transform, read_output, ImageProgram::new));
    let image = image.transpose()?;
    let audio = fields.get("audio").map(|audio| read_sound(&audio)).transpose()?;
    fields.finish();
    Ok(MediaDeclaration {
        image,
        audio,
        vision: None,
    })
}

/// A program: `transforms` and `outputs`, of which `make` makes it.
pub(super) fn read_program<Op, Output, Program>(
    at: &Cursor<'_>,
    read_transform: impl Fn(&Cursor<'_>) -> Result<Transform<Op>, PackageError>,
    read_output: impl Fn(&Cursor<'_>) -> Result<(Output, OutputPort), PackageError>,
    make: impl FnOnce(Vec<Transform<Op>>, Vec<Output>) -> Result<Program, ProgramError>,
) -> Result<ProgramDeclaration<Program>, PackageError> {
    let mut fields = at.fields()?;
    let transforms_at = fields.required("transforms", "a list of transforms")?;
    let outputs_at = fields.required("outputs", "a list of results and the inputs that they are for")?;
    fields.finish();
    let transforms: Vec<Cursor<'_>> = transforms_at.items()?.collect();
    let outputs: Vec<Cursor<'_>> = outputs_at.items()?.collect();
    let read = transforms.iter().map(read_transform).collect::<Result<_, _>>()?;
    let mut bound = Vec::new();
    let mut ports = Vec::new();
    for output in &outputs {
        let (output, port) = read_output(output)?;
        bound.push(output);
        ports.push(port);
    }
    let program = make(read, bound).map_err(|ProgramError { part, message }| {
        let place = match part {
            ProgramPart::Transform(index) => transforms.get(index),
            ProgramPart::Output(index) => outputs.get(index),
            ProgramPart::Whole => None,
        };
        place.unwrap_or(at).invalid(message)
    })?;
    Ok(ProgramDeclaration { program, ports })
}

#[derive(Clone, Copy)]
enum Op {
    Decode,
    ConvertRgb,
    Resize,
    CenterCrop,
    Rescale,
    Normalize,
    Tile,
    Flatten,
    Patchify,
    Pad,
    OriginalSize,
    TransformedSize,
    ValidityMask,
    PatchCoordinates,
    GridCoordinates,
}

const OPS: [(&str, Op); 16] = [
    ("decode", Op::Decode),
    ("decode_rgb", Op::Decode),
    ("convert_rgb", Op::ConvertRgb),
    ("resize", Op::Resize),
    ("center_crop", Op::CenterCrop),
    ("rescale", Op::Rescale),
    ("normalize", Op::Normalize),
    ("tile", Op::Tile),
    ("flatten", Op::Flatten),
    ("patchify", Op::Patchify),
    ("pad", Op::Pad),
    ("emit_original_size", Op::OriginalSize),
    ("emit_transformed_size", Op::TransformedSize),
    ("emit_validity_mask", Op::ValidityMask),
    ("emit_patch_coordinates", Op::PatchCoordinates),
    ("emit_grid_coordinates", Op::GridCoordinates),
];

fn read_transform(at: &Cursor<'_>) -> Result<ImageTransform, PackageError> {
    let mut fields = at.fields()?;
    let op = fields.required("op", "what to do")?.one_of(&OPS)?;
    let inputs = names(fields.get("inputs"))?;
    let outputs = names(fields.get("outputs"))?;
    let op = match op {
        Op::Decode => ImageOp::Decode,
        Op::ConvertRgb => ImageOp::ConvertRgb,
        Op::Resize => read_resize(&mut fields)?,
        Op::CenterCrop => {
            let (width, height) = read_size(&fields.required("size", "a size")?)?;
            ImageOp::CenterCrop { width, height }
        }
        Op::Rescale => ImageOp::Rescale {
            scale: fields.required("scale", "a number to multiply by")?.number()?,
        },
        Op::Normalize => ImageOp::Normalize {
            mean: channels(&fields.required("mean", "a number for each channel")?, |_| true)?,
            std: channels(&fields.required("std", "a number for each channel")?, |std| {
                std as f32 > 0.0
            })?,
        },
        Op::Tile => read_tile(&mut fields)?,
        Op::Flatten => ImageOp::Flatten,
        Op::Patchify => read_patchify(&mut fields)?,
        Op::Pad => ImageOp::Pad {
            length: optional_count(&mut fields, "target_length", MOST_ROWS)?,
            value: match fields.get("pad_value") {
                Some(value) => value.number()?,
                None => 0.0,
            },
        },
        Op::OriginalSize => ImageOp::EmitOriginalSize,
        Op::TransformedSize => ImageOp::EmitTransformedSize,
        Op::ValidityMask => ImageOp::EmitValidityMask,
        Op::PatchCoordinates => ImageOp::EmitPatchCoordinates,
        Op::GridCoordinates => ImageOp::EmitGridCoordinates,
    };
    fields.finish();
    Ok(ImageTransform { op, inputs, outputs })
}

/// Names of values.
pub(super) fn names(at: Option<Cursor<'_>>) -> Result<Option<Vec<String>>, PackageError> {
    let Some(at) = at else { return Ok(None) };
    let names = at.items()?.map(|name| Ok(name.text()?.to_owned()));
    names.collect::<Result<Vec<_>, PackageError>>().map(Some)
}

pub(super) fn count(at: &Cursor<'_>, most: u64) -> Result<usize, PackageError> {
    let count = at.count_up_to(1, most)?;
    usize::try_from(count).map_err(|_| at.invalid("is too large"))
}

pub(super) fn optional_count(
    fields: &mut Fields<'_>,
    name: &'static str,
    most: u64,
) -> Result<Option<usize>, PackageError> {
    fields.get(name).map(|at| count(&at, most)).transpose()
}

/// Width and height: one number for both, or each by its name.
fn read_size(at: &Cursor<'_>) -> Result<(usize, usize), PackageError> {
    let Ok(mut fields) = at.fields() else {
        let side = count(at, MOST_SIDE)?;
        return Ok((side, side));
    };
    let width = count(&fields.required("width", "pixels")?, MOST_SIDE)?;
    let height = count(&fields.required("height", "pixels")?, MOST_SIDE)?;
    fields.finish();
    Ok((width, height))
}

fn read_filter(fields: &mut Fields<'_>, name: &'static str) -> Result<Filter, PackageError> {
    match fields.get(name) {
        Some(at) => at.one_of(&Filter::NAMES),
        None => Ok(Filter::Bicubic),
    }
}

fn byte(at: &Cursor<'_>) -> Result<u8, PackageError> {
    let whole = |number: f64| (0.0..=255.0).contains(&number) && number.fract() == 0.0;
    Ok(at.number_where("an integer from 0 to 255", whole)? as u8)
}

fn read_resize(fields: &mut Fields<'_>) -> Result<ImageOp, PackageError> {
    #[derive(Clone, Copy)]
    enum Mode {
        Stretch,
        ShortestEdge,
        Crop,
        Pad,
        PixelArea,
        PatchBudget,
    }
    const MODES: [(&str, Mode); 11] = [
        ("stretch", Mode::Stretch),
        ("fixed", Mode::Stretch),
        ("fixed_size", Mode::Stretch),
        ("crop", Mode::Crop),
        ("shortest_edge", Mode::Crop),
        ("shortest_edge_center_crop", Mode::Crop),
        ("shortest_edge_only", Mode::ShortestEdge),
        ("pad", Mode::Pad),
        ("longest_edge_pad", Mode::Pad),
        ("pixel_area", Mode::PixelArea),
        ("aspect_ratio_patch_budget", Mode::PatchBudget),
    ];
    let mode_at = fields.get("mode");
    let mode = match &mode_at {
        Some(at) => at.one_of(&MODES)?,
        None => Mode::Stretch,
    };
    let filter = read_filter(fields, "interpolation")?;
    let size = fields.get("size");
    if let (Mode::PixelArea | Mode::PatchBudget, Some(size)) = (mode, &size) {
        return Err(size.invalid("this mode works the size out of the image's; leave it out"));
    }
    let needed = |fields: &Fields<'_>| fields.missing("size", "a number, or width and height");
    let sized = |fields: &Fields<'_>| match &size {
        Some(size) => read_size(size),
        None => Err(needed(fields)),
    };
    let fit = match mode {
        Mode::Stretch => {
            let (width, height) = sized(fields)?;
            Fit::Stretch { width, height }
        }
        Mode::ShortestEdge => match &size {
            Some(size) => Fit::ShortestEdge {
                edge: count(size, MOST_SIDE)?,
            },
            None => return Err(needed(fields)),
        },
        Mode::Crop => {
            let (width, height) = sized(fields)?;
            Fit::Crop { width, height }
        }
        Mode::Pad => {
            let (width, height) = sized(fields)?;
            let value = fields.get("pad_value").map(|at| byte(&at)).transpose()?;
            Fit::Pad {
                width,
                height,
                value: value.unwrap_or(0),
            }
        }
        Mode::PixelArea => {
            let least_at = fields.required("min_pixels", "the smallest area")?;
            let (least, most) = (
                least_at.count_up_to(1, 1 << 32)?,
                fields
                    .required("max_pixels", "the largest area")?
                    .count_up_to(1, 1 << 32)?,
            );
            if least > most {
                return Err(least_at.invalid(format!("{least} is above max_pixels, {most}")));
            }
            let multiple = fields.required("size_multiple", "what both sides are multiples of")?;
            Fit::PixelArea {
                least,
                most,
                multiple: count(&multiple, MOST_PATCH)?,
            }
        }
        Mode::PatchBudget => Fit::PatchBudget {
            patch: count(&fields.required("patch_size", "pixels")?, MOST_PATCH)?,
            most: count(&fields.required("max_patches", "a number of patches")?, MOST_ROWS)?,
            pooling: count(&fields.required("pooling_kernel_size", "patches on a side")?, 64)?,
        },
    };
    Ok(ImageOp::Resize { fit, filter })
}

fn channels(at: &Cursor<'_>, good: impl Fn(f64) -> bool) -> Result<[f32; 3], PackageError> {
    let mut values = Vec::new();
    for value in at.items()? {
        let good = |number: f64| (number as f32).is_finite() && good(number);
        values.push(value.number_where("a number that can be used here", good)? as f32);
    }
    match values.as_slice() {
        &[red, green, blue] => Ok([red, green, blue]),
        _ => Err(at.invalid(format!(
            "has {} numbers, expected one for each of 3 channels",
            values.len()
        ))),
    }
}

const THUMBNAILS: [(&str, Thumbnail); 3] = [
    ("none", Thumbnail::None),
    ("prepend", Thumbnail::Prepend),
    ("append", Thumbnail::Append),
];

fn read_tile(fields: &mut Fields<'_>) -> Result<ImageOp, PackageError> {
    let size_at = fields.required("tile_size", "pixels on a side")?;
    let size = count(&size_at, MOST_SIDE)?;
    let most = optional_count(fields, "max_tiles", 1024)?.unwrap_or(6);
    let mode_at = fields.get("mode");
    let mode = match &mode_at {
        Some(at) => at.one_of(&[
            ("dynamic_anyres", 0),
            ("fixed_grid", 1),
            ("dynamic_hd", 2),
            ("longest_edge", 3),
        ])?,
        None => 0,
    };
    let mode = match mode {
        0 => TilingMode::Anyres,
        1 => TilingMode::Grid {
            columns: count(&fields.required("columns", "tiles in a row")?, 64)?,
            rows: count(&fields.required("rows", "rows of tiles")?, 64)?,
        },
        3 => TilingMode::LongestEdge {
            longest: count(&fields.required("longest_edge", "pixels")?, MOST_SIDE)?,
        },
        _ => {
            let patch_at = fields.required("mask_patch_size", "pixels on a side of a cell of the mask")?;
            let mask_patch = count(&patch_at, MOST_SIDE)?;
            if size % mask_patch != 0 {
                return Err(patch_at.invalid(format!("{mask_patch} does not divide tile_size, {size}")));
            }
            TilingMode::DynamicHd {
                mask_patch,
                canvas: byte(&fields.required("canvas_pad_value", "what is around the image")?)?,
            }
        }
    };
    let thumbnail_at = fields.get("thumbnail_order");
    let thumbnail = match &thumbnail_at {
        Some(at) => at.one_of(&THUMBNAILS)?,
        None => Thumbnail::None,
    };
    if let Some(include) = fields.get("include_thumbnail")
        && include.bool()? != (thumbnail != Thumbnail::None)
    {
        return Err(include.invalid("does not go with thumbnail_order, which says where the thumbnail is"));
    }
    Ok(ImageOp::Tile(Tiling {
        size,
        most,
        mode,
        thumbnail,
        thumbnail_filter: read_filter(fields, "thumbnail_interpolation")?,
        filter: read_filter(fields, "interpolation")?,
    }))
}

fn read_patchify(fields: &mut Fields<'_>) -> Result<ImageOp, PackageError> {
    let size = count(&fields.required("patch_size", "pixels on a side")?, MOST_PATCH)?;
    let frames = optional_count(fields, "temporal_patch_size", 64)?.unwrap_or(1);
    let merge = optional_count(fields, "merge_size", 64)?.unwrap_or(1);
    let last = match fields.get("channel_order") {
        Some(at) => at.one_of(&[
            ("channels_first", false),
            ("chw", false),
            ("channels_last", true),
            ("hwc", true),
        ])?,
        None => false,
    };
    let frames_first = match fields.get("temporal_order") {
        Some(at) => at.one_of(&[
            ("channel_major", false),
            ("cthw", false),
            ("temporal_major", true),
            ("tchw", true),
        ])?,
        None => false,
    };
    let order = match fields.get("patch_order") {
        Some(at) => at.one_of(&[
            ("merge_groups", PatchOrder::Groups),
            ("merge_blocks", PatchOrder::Groups),
            ("raster", PatchOrder::Raster),
            ("row_major", PatchOrder::Raster),
        ])?,
        None => PatchOrder::Groups,
    };
    let xy = match fields.get("coordinate_order") {
        Some(at) => at.one_of(&[("yx", false), ("xy", true)])?,
        None => false,
    };
    let flatten = match fields.get("flatten") {
        Some(at) => at.bool()?,
        None => true,
    };
    Ok(ImageOp::Patchify(Patchify {
        size,
        frames,
        merge,
        features: match (last, frames_first) {
            (true, _) => FeatureOrder::ChannelsLast,
            (false, true) => FeatureOrder::FramesFirst,
            (false, false) => FeatureOrder::ChannelsFirst,
        },
        order,
        xy,
        flatten,
    }))
}

fn read_output(at: &Cursor<'_>) -> Result<(ImageOutput, OutputPort), PackageError> {
    let mut fields = at.fields()?;
    let source = fields.text("source")?.map(str::to_owned);
    let name = fields.required("name", "the input that it is for, component.input")?;
    let address = address(&name)?;
    let content = fields
        .required("content", "what it is")?
        .one_of(&Content::NAMES)?;
    let dtype = read_dtype(&fields.required("dtype", "the type of its elements")?)?;
    let pad_value = fields.get("pad_value").map(|value| value.number()).transpose()?;
    let optional = fields
        .get("optional")
        .map(|optional| optional.bool())
        .transpose()?;
    fields.finish();
    let port = OutputPort {
        address,
        optional: optional.unwrap_or(false),
    };
    let output = ImageOutput {
        source,
        name: name.text()?.to_owned(),
        content,
        dtype,
        pad_value,
    };
    Ok((output, port))
}

/// `pipeline.vision`.
pub(super) fn read_vision(at: &Cursor<'_>) -> Result<Option<Said<ImagePlaceholders>>, PackageError> {
    let mut fields = at.fields()?;
    let mut id = |name| fields.get(name).map(|id| id.token_id()).transpose();
    let placeholder = id("image_placeholder_token_id")?;
    let token = id("image_token_id")?;
    let row_separator = id("row_separator_token_id")?;
    let column_separator = id("column_separator_token_id")?;
    let per_tile = optional_count(&mut fields, "tokens_per_tile", MOST_ROWS)?;
    let per_patch = optional_count(&mut fields, "tokens_per_patch", MOST_ROWS)?;
    let source = match fields.get("token_count_source") {
        Some(source) => Some(source.one_of(&[("per_tile", 0), ("per_patch", 1), ("from_grid", 2)])?),
        None if per_tile.is_some() => Some(0),
        None if per_patch.is_some() => Some(1),
        None => None,
    };
    let thumbnail = match fields.get("thumbnail_order") {
        Some(order) => order.one_of(&THUMBNAILS)?,
        None => Thumbnail::None,
    };
    if let Some(each) = fields.get("placeholder_per_image")
        && !each.bool()?
    {
        return Err(each.unsupported("a prompt without a placeholder for each image"));
    }
    if let Some(order) = fields.get("image_correspondence") {
        order.one_of(&[("prompt_order", ())])?;
    }
    fields.skip(&["token_count_summary"]);
    let mut around = |name| fields.get(name).map(|at| token_ids(&at)).transpose();
    let before = around("tokens_before")?.unwrap_or_default();
    let after = around("tokens_after")?.unwrap_or_default();
    let tiles_at = fields.get("tile_tokens");
    let tiles = tiles_at.as_ref().map(read_tile_tokens).transpose()?;
    if let Some(tiles_at) = &tiles_at
        && source != Some(0)
    {
        return Err(tiles_at.invalid("goes with token_count_source: per_tile"));
    }
    let count = match source {
        Some(0) => {
            let each = per_tile.ok_or_else(|| fields.missing("tokens_per_tile", "a number of tokens"))?;
            Some(TokenCount::PerTile(each))
        }
        Some(1) => Some(TokenCount::PerPatch(per_patch.unwrap_or(1))),
        Some(_) => Some(TokenCount::FromGrid),
        None => None,
    };
    let Some(placeholder) = placeholder else {
        fields.finish();
        at.warn(
            "no image_placeholder_token_id: prompts are taken as they are, with the image tokens in them",
        );
        return Ok(None);
    };
    let count =
        count.ok_or_else(|| fields.missing("token_count_source", "per_tile, per_patch or from_grid"))?;
    fields.finish();
    Ok(Some(Said {
        value: ImagePlaceholders {
            placeholder,
            token: token.unwrap_or(placeholder),
            count,
            before,
            after,
            row_separator,
            column_separator,
            thumbnail,
            tiles,
        },
        at: at.location(),
    }))
}

fn token_ids(at: &Cursor<'_>) -> Result<Vec<i32>, PackageError> {
    at.items()?.map(|id| id.token_id()).collect()
}

/// `tile_tokens`: what is written around the tokens of tiles that have names.
fn read_tile_tokens(at: &Cursor<'_>) -> Result<TileTokens, PackageError> {
    let mut fields = at.fields()?;
    let names_at = fields.required("names", "a list of tokens for each row of tiles")?;
    let tiles = TileTokens {
        around: fields.required("around", "the token around tiles")?.token_id()?,
        names: names_at
            .items()?
            .map(|row| token_ids(&row))
            .collect::<Result<_, PackageError>>()?,
        row_end: token_ids(&fields.required("row_end", "tokens behind a row of tiles")?)?,
        last_row_end: token_ids(&fields.required("last_row_end", "tokens behind the last row")?)?,
        whole: fields
            .required("whole", "the token of the whole image")?
            .token_id()?,
    };
    fields.finish();
    Ok(tiles)
}
