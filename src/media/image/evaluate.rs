//! A program over one image.

use std::sync::Arc;

use super::program::{FeatureOrder, Fit, ImageOp, ImageProgram, PatchOrder, Patchify, Step};
use super::rgb::RgbImage;
use super::{sizes, tiles};
use crate::media::{MediaError, Work};

/// What a program has made of one image: a value for each of its outputs.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(super) values: Vec<Arc<Value>>,
    pub summary: ImageSummary,
}

impl Prepared {
    /// An image of which only is known how many pieces it came to.
    pub fn of_summary(summary: ImageSummary) -> Self {
        Prepared {
            values: Vec::new(),
            summary,
        }
    }

    /// Whether there is more of it than a summary.
    pub fn is_whole(&self) -> bool {
        !self.values.is_empty()
    }
}

/// How many pieces an image came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageSummary {
    /// Rows and columns of tiles, where the program cuts it into tiles.
    pub tiles: Option<(usize, usize)>,
    /// Frames, rows and columns of patches, where it cuts it into patches, and how many on a side
    /// become one.
    pub patches: Option<([usize; 3], usize)>,
}

impl ImageSummary {
    /// Frames, rows and columns of what the patches become, of an image that is not cut into tiles.
    pub fn merged(&self) -> Option<[usize; 3]> {
        let ([frames, rows, columns], merge) = self.patches.filter(|_| self.tiles.is_none())?;
        let merge = merge.max(1);
        Some([frames, rows / merge, columns / merge])
    }
}

#[derive(Debug)]
pub(super) enum Value {
    Pixels(Pixels),
    Rows(Rows),
    Coordinates {
        pairs: Vec<[i64; 2]>,
        pad: Option<Padding>,
    },
    Grid([i64; 3]),
    /// Height and width.
    Size([i64; 2]),
    TileMask(Arc<TileMask>),
    RowMask {
        count: usize,
        pad: Option<Padding>,
    },
}

/// One image, or its tiles: all of one size.
#[derive(Debug)]
pub(super) struct Pixels {
    pub tiles: Vec<Frame>,
    pub width: usize,
    pub height: usize,
    /// Height and width of all tiles together.
    pub whole: [i64; 2],
    /// Rows and columns, where there are tiles.
    pub grid: Option<(usize, usize)>,
    pub mask: Option<Arc<TileMask>>,
    /// Whether the tiles of all images are one sample.
    pub one_sample: bool,
}

#[derive(Debug)]
pub(super) enum Frame {
    Bytes(RgbImage),
    /// `[3, height, width]`
    Floats(Vec<f32>),
}

/// 1 for cells that are of the image, `[tiles, height, width]`.
#[derive(Debug)]
pub(super) struct TileMask {
    pub cells: Vec<u8>,
    pub height: usize,
    pub width: usize,
    pub one_sample: bool,
}

/// Patches, one a row.
#[derive(Debug)]
pub(super) struct Rows {
    pub features: usize,
    pub numbers: Arc<Vec<f32>>,
    pub count: usize,
    grid: [usize; 3],
    patchify: Patchify,
    pub pad: Option<Padding>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Padding {
    pub length: Option<usize>,
    pub value: f64,
}

impl ImageProgram {
    /// Runs the program over one image.
    pub fn prepare(&self, image: &RgbImage, work: &Work) -> Result<Prepared, MediaError> {
        let mut values: Vec<Arc<Value>> = Vec::with_capacity(self.steps.len());
        let mut summary = ImageSummary::default();
        for step in &self.steps {
            let value = evaluate(step, &values, image, work)?;
            match &value {
                Value::Pixels(Pixels { grid: Some(grid), .. }) => summary.tiles = Some(*grid),
                Value::Rows(rows) => summary.patches = Some((rows.grid, rows.patchify.merge)),
                _ => {}
            }
            values.push(Arc::new(value));
        }
        let outputs = self
            .outputs
            .iter()
            .filter_map(|(source, _)| values.get(*source).cloned());
        Ok(Prepared {
            values: outputs.collect(),
            summary,
        })
    }
}

fn evaluate(step: &Step, values: &[Arc<Value>], image: &RgbImage, work: &Work) -> Result<Value, MediaError> {
    let input = step.input.and_then(|index| values.get(index)).map(Arc::as_ref);
    match (&step.op, input) {
        (ImageOp::Decode, _) => image.copied(work).map(single),
        (ImageOp::EmitOriginalSize, _) => Ok(Value::Size([image.height() as i64, image.width() as i64])),
        (op, Some(Value::Pixels(pixels))) => of_pixels(op, pixels, work),
        (op, Some(Value::Rows(rows))) => of_rows(op, rows, work),
        (ImageOp::Pad { length, value }, Some(Value::Coordinates { pairs, .. })) => Ok(Value::Coordinates {
            pairs: work.copied(pairs)?,
            pad: Some(Padding {
                length: *length,
                value: *value,
            }),
        }),
        (op, _) => Err(misfit(op)),
    }
}

/// A transform of what it is not for: the program was checked, so that there is none.
fn misfit(op: &ImageOp) -> MediaError {
    MediaError::unfit(format!("{} has nothing to work on", op.name()))
}

fn single(image: RgbImage) -> Value {
    Value::Pixels(Pixels {
        width: image.width(),
        height: image.height(),
        whole: [image.height() as i64, image.width() as i64],
        tiles: vec![Frame::Bytes(image)],
        grid: None,
        mask: None,
        one_sample: false,
    })
}

fn of_pixels(op: &ImageOp, pixels: &Pixels, work: &Work) -> Result<Value, MediaError> {
    let image = || match pixels.tiles.first() {
        Some(Frame::Bytes(image)) => Ok(image),
        _ => Err(misfit(op)),
    };
    match op {
        ImageOp::Resize { fit, filter } => {
            let image = image()?;
            resized(image, *fit, *filter, work).map(single)
        }
        ImageOp::CenterCrop { width, height } => cropped(image()?, *width, *height, work).map(single),
        ImageOp::Tile(tiling) => tiles::tile(image()?, tiling, work).map(Value::Pixels),
        ImageOp::Rescale { scale } => each(pixels, work, |_, x| (f64::from(x) * scale) as f32),
        ImageOp::Normalize { mean, std } => {
            let at = |of: &[f32; 3], channel: usize| of.get(channel).copied().unwrap_or(1.0);
            each(pixels, work, |channel, x| {
                (x - at(mean, channel)) / at(std, channel)
            })
        }
        ImageOp::Patchify(patchify) => patches(pixels, patchify, work).map(Value::Rows),
        ImageOp::EmitTransformedSize => Ok(Value::Size(pixels.whole)),
        ImageOp::EmitValidityMask => match &pixels.mask {
            Some(mask) => Ok(Value::TileMask(mask.clone())),
            None => Err(misfit(op)),
        },
        _ => Err(misfit(op)),
    }
}

fn of_rows(op: &ImageOp, rows: &Rows, work: &Work) -> Result<Value, MediaError> {
    match op {
        ImageOp::Pad { length, value } => Ok(Value::Rows(Rows {
            numbers: rows.numbers.clone(),
            pad: Some(Padding {
                length: *length,
                value: *value,
            }),
            ..*rows
        })),
        ImageOp::EmitValidityMask => Ok(Value::RowMask {
            count: rows.count,
            pad: rows.pad,
        }),
        ImageOp::EmitPatchCoordinates => {
            let mut pairs = work.room(rows.count)?;
            pairs.extend(
                in_order(rows.grid, &rows.patchify).map(|(y, x)| match rows.patchify.xy {
                    true => [x as i64, y as i64],
                    false => [y as i64, x as i64],
                }),
            );
            Ok(Value::Coordinates { pairs, pad: rows.pad })
        }
        ImageOp::EmitGridCoordinates => Ok(Value::Grid(rows.grid.map(|count| count as i64))),
        _ => Err(misfit(op)),
    }
}

fn resized(image: &RgbImage, fit: Fit, filter: super::Filter, work: &Work) -> Result<RgbImage, MediaError> {
    let size = (image.width(), image.height());
    match fit {
        Fit::Stretch { width, height } => image.resize(width, height, filter, work),
        Fit::ShortestEdge { edge } => {
            let (width, height) = sizes::shortest_edge(size.0, size.1, edge);
            image.resize(width, height, filter, work)
        }
        Fit::Crop { width, height } => {
            let (wide, high) = sizes::covering(size, (width, height));
            cropped(&image.resize(wide, high, filter, work)?, width, height, work)
        }
        Fit::Pad { width, height, value } => {
            let (wide, high) = sizes::contained(size, (width, height));
            let inner = image.resize(wide, high, filter, work)?;
            let mut outer = RgbImage::filled(width, height, value, work)?;
            outer.paste(
                &inner,
                (width.saturating_sub(wide) / 2) as i64,
                (height.saturating_sub(high) / 2) as i64,
            );
            Ok(outer)
        }
        Fit::PixelArea {
            least,
            most,
            multiple,
        } => {
            let (width, height) = sizes::pixel_area(size, least, most, multiple)?;
            image.resize(width, height, filter, work)
        }
        Fit::PatchBudget { patch, most, pooling } => {
            let (width, height) = sizes::patch_budget(size, patch, most, pooling)?;
            image.resize(width, height, filter, work)
        }
    }
}

/// The middle of an image, as transformers' `center_crop` has it.
fn cropped(image: &RgbImage, width: usize, height: usize, work: &Work) -> Result<RgbImage, MediaError> {
    let mut middle = RgbImage::filled(width, height, 0, work)?;
    middle.paste(
        image,
        crop_offset(image.width(), width),
        crop_offset(image.height(), height),
    );
    Ok(middle)
}

/// Where an image begins in its middle of `want` pixels: it is first put into `max(have, want)`
/// of zeros, the larger half of which is before it, and then cut.
fn crop_offset(have: usize, want: usize) -> i64 {
    let (have, want) = (have as i64, want as i64);
    let before = (have.max(want) - have + 1) / 2;
    let cut = ((have - want).div_euclid(2) + before).max(0);
    before - cut
}

/// Numbers made of each channel and sample.
fn each(pixels: &Pixels, work: &Work, make: impl Fn(usize, f32) -> f32) -> Result<Value, MediaError> {
    let mut tiles = work.room(pixels.tiles.len())?;
    let plane = pixels.width * pixels.height;
    for frame in &pixels.tiles {
        let mut numbers = work.room(plane * 3)?;
        match frame {
            Frame::Bytes(image) => {
                for channel in 0..3 {
                    let mut made = [0f32; 256];
                    for (sample, made) in (0u8..=255).zip(&mut made) {
                        *made = make(channel, sample.into());
                    }
                    for row in image.rows() {
                        work.count(row.len())?;
                        let samples = row.iter().skip(channel).step_by(3);
                        let number = |&sample: &u8| made.get(usize::from(sample)).copied();
                        numbers.extend(samples.map(|sample| number(sample).unwrap_or(0.0)));
                    }
                }
            }
            Frame::Floats(floats) => {
                for (channel, floats) in floats.chunks_exact(plane).enumerate() {
                    for row in floats.chunks_exact(pixels.width) {
                        work.count(row.len())?;
                        numbers.extend(row.iter().map(|&x| make(channel, x)));
                    }
                }
            }
        }
        tiles.push(Frame::Floats(numbers));
    }
    Ok(Value::Pixels(Pixels {
        tiles,
        width: pixels.width,
        height: pixels.height,
        whole: pixels.whole,
        grid: pixels.grid,
        mask: pixels.mask.clone(),
        one_sample: pixels.one_sample,
    }))
}

/// Rows and columns of patches in the order in which they come.
fn in_order([_, rows, columns]: [usize; 3], patchify: &Patchify) -> impl Iterator<Item = (usize, usize)> {
    let merge = match patchify.order {
        PatchOrder::Groups => patchify.merge,
        PatchOrder::Raster => 1,
    };
    (0..rows / merge).flat_map(move |group_row| {
        (0..columns / merge).flat_map(move |group_column| {
            (0..merge).flat_map(move |row| {
                (0..merge).map(move |column| (group_row * merge + row, group_column * merge + column))
            })
        })
    })
}

fn patches(pixels: &Pixels, patchify: &Patchify, work: &Work) -> Result<Rows, MediaError> {
    let size = patchify.size;
    let unit = size.saturating_mul(patchify.merge);
    if !pixels.width.is_multiple_of(unit) || !pixels.height.is_multiple_of(unit) {
        return Err(MediaError::unfit(format!(
            "an image of {} x {} is not cut into patches of {size} x {size}, {} on a side; resize it to multiples of {unit}",
            pixels.width, pixels.height, patchify.merge
        )));
    }
    let (rows, columns) = (pixels.height / size, pixels.width / size);
    let features = 3 * patchify.frames * size * size;
    let each = rows * columns;
    let count = each * pixels.tiles.len();
    // The frames say the same: the numbers are more than the pixels.
    let mut numbers = work.room(count.saturating_mul(features))?;
    let mut values = Vec::new();
    let plane = pixels.width * pixels.height;
    for frame in &pixels.tiles {
        let floats: &[f32] = match frame {
            Frame::Floats(floats) => floats,
            Frame::Bytes(image) => {
                values = work.room(plane * 3)?;
                for channel in 0..3 {
                    for row in image.rows() {
                        work.count(row.len())?;
                        let samples = row.iter().skip(channel).step_by(3);
                        values.extend(samples.map(|&sample| f32::from(sample)));
                    }
                }
                &values
            }
        };
        let line = |channel: usize, y: usize, x: usize| {
            let start = channel * plane + y * pixels.width + x;
            floats.get(start..start + size).unwrap_or_default()
        };
        for (row, column) in in_order([1, rows, columns], patchify) {
            work.count(features)?;
            let (top, left) = (row * size, column * size);
            match patchify.features {
                FeatureOrder::ChannelsFirst => {
                    for channel in 0..3 {
                        for _ in 0..patchify.frames {
                            for y in top..top + size {
                                numbers.extend(line(channel, y, left));
                            }
                        }
                    }
                }
                FeatureOrder::FramesFirst => {
                    for _ in 0..patchify.frames {
                        for channel in 0..3 {
                            for y in top..top + size {
                                numbers.extend(line(channel, y, left));
                            }
                        }
                    }
                }
                FeatureOrder::ChannelsLast => {
                    for _ in 0..patchify.frames {
                        for y in top..top + size {
                            let [red, green, blue] = [0, 1, 2].map(|channel| line(channel, y, left));
                            for ((red, green), blue) in red.iter().zip(green).zip(blue) {
                                numbers.extend([red, green, blue]);
                            }
                        }
                    }
                }
            }
        }
    }
    drop(values);
    Ok(Rows {
        features,
        numbers: Arc::new(numbers),
        count,
        grid: [pixels.tiles.len(), rows, columns],
        patchify: *patchify,
        pad: None,
    })
}
