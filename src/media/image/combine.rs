//! Values of several images, put together for the ports.

use super::evaluate::{Frame, Padding, Pixels, Prepared, Rows, TileMask, Value};
use super::program::{Content, ImageProgram};
use crate::component::DataType;
use crate::media::MediaError;
use crate::media::tensor::{PortLayout, Sink, Tensor, no_rank};

impl ImageProgram {
    /// The tensors of the outputs, in their order, for all images together. `ports` says of each
    /// output what its port declares.
    pub fn combine(&self, images: &[&Prepared], ports: &[PortLayout]) -> Result<Vec<Tensor>, MediaError> {
        let unknown = PortLayout::default();
        let mut tensors = Vec::with_capacity(self.outputs.len());
        for (index, (_, output)) in self.outputs.iter().enumerate() {
            let port = ports.get(index).unwrap_or(&unknown);
            let values: Vec<&Value> = images
                .iter()
                .filter_map(|image| image.values.get(index))
                .map(AsRef::as_ref)
                .collect();
            let tensor = match output.content {
                Content::Pixels => pixels(&values, output.dtype, port, output.pad_value),
                Content::PatchCoordinates => coordinates(&values, output.dtype, port, output.pad_value),
                Content::GridDimensions => grids(&values, output.dtype, port),
                Content::OriginalSize | Content::TransformedSize => sizes(&values, output.dtype, port),
                Content::ValidityMask => masks(&values, output.dtype, port),
            };
            tensors.push(tensor.map_err(|error| error.of_output(&output.name))?);
        }
        Ok(tensors)
    }
}

fn misfit() -> MediaError {
    MediaError::unfit("the program makes something else of one of the images")
}

fn pixels(
    values: &[&Value],
    dtype: DataType,
    port: &PortLayout,
    pad_value: Option<f64>,
) -> Result<Tensor, MediaError> {
    if let Some(Value::Rows(_)) = values.first() {
        return patches(values, dtype, port, pad_value);
    }
    let images = values
        .iter()
        .map(|value| match value {
            Value::Pixels(pixels) => Ok(pixels),
            _ => Err(misfit()),
        })
        .collect::<Result<Vec<&Pixels>, _>>()?;
    let Some(first) = images.first() else {
        return Err(misfit());
    };
    let (width, height) = (first.width, first.height);
    if let Some((index, other)) = images
        .iter()
        .enumerate()
        .find(|(_, image)| (image.width, image.height) != (width, height))
    {
        return Err(MediaError::unfit(format!(
            "images 0 and {index} are {width} x {height} and {} x {} after preprocessing, and must be of one size",
            other.width, other.height
        )));
    }
    let total: usize = images.iter().map(|image| image.tiles.len()).sum();
    let most = images.iter().map(|image| image.tiles.len()).max().unwrap_or(0);
    let last = port.channels_last();
    let mut shape = match last {
        true => vec![height, width, 3],
        false => vec![3, height, width],
    };
    // Tiles of an image that has fewer than another are followed by empty ones.
    let by_image = port.rank() == Some(5);
    match port.rank() {
        Some(5) => shape.splice(0..0, [images.len(), most]).for_each(drop),
        None | Some(4) => shape.insert(0, total),
        Some(3) if total == 1 => {}
        _ => return Err(no_rank(port, &format!("{total} images or tiles need 4"))),
    }
    let mut sink = Sink::new(dtype, shape.iter().product())?;
    let plane = width * height;
    for image in &images {
        for frame in &image.tiles {
            match (frame, last) {
                (Frame::Bytes(image), true) => sink.floats(image.bytes().iter().map(|&x| x.into())),
                (Frame::Bytes(image), false) => {
                    for channel in 0..3 {
                        let samples = image.bytes().iter().skip(channel).step_by(3);
                        sink.floats(samples.map(|&x| x.into()));
                    }
                }
                (Frame::Floats(floats), false) => sink.floats(floats.iter().copied()),
                (Frame::Floats(floats), true) => {
                    for pixel in 0..plane {
                        sink.floats(floats.iter().skip(pixel).step_by(plane.max(1)).copied());
                    }
                }
            }
        }
        if by_image {
            let missing = (most - image.tiles.len()) * plane * 3;
            sink.floats(std::iter::repeat_n(0.0, missing));
        }
    }
    Ok(sink.done(&shape))
}

/// How many rows each image has room for; `None` when they follow each other without gaps.
fn padded_length(
    counts: &[usize],
    pads: &[Option<Padding>],
    port: &PortLayout,
    rank: usize,
) -> Result<Option<usize>, MediaError> {
    let most = counts.iter().copied().max().unwrap_or(0);
    let padding = pads.iter().copied().find_map(|pad| pad);
    let Some(padding) = padding else {
        if port.rank() != Some(rank) {
            return Ok(None);
        }
        return match counts.iter().all(|&count| count == most) {
            true => Ok(Some(most)),
            false => Err(MediaError::unfit(format!(
                "images come to {counts:?} patches, and the input takes as many of each; pad them"
            ))),
        };
    };
    let declared = || match port.rank() == Some(rank) {
        true => port.last_but(rank - 2),
        false => None,
    };
    let length = padding.length.or_else(declared).unwrap_or(most);
    match most <= length {
        true => Ok(Some(length)),
        false => Err(MediaError::unfit(format!(
            "an image comes to {most} patches, and there is room for {length}"
        ))),
    }
}

/// The shape of rows of `features` elements: `[N, L, F]`, or `[all, F]`.
fn rows_shape(
    counts: &[usize],
    length: Option<usize>,
    features: &[usize],
    port: &PortLayout,
) -> Result<Vec<usize>, MediaError> {
    let by_image = 2 + features.len();
    let mut shape = match length {
        Some(length) => match port.rank() {
            None => vec![counts.len(), length],
            Some(rank) if rank == by_image => vec![counts.len(), length],
            Some(rank) if rank + 1 == by_image && counts.len() == 1 => vec![length],
            Some(_) => return Err(no_rank(port, &format!("padded patches have {by_image}"))),
        },
        None => match port.rank() {
            None => vec![counts.iter().sum()],
            Some(rank) if rank + 1 == by_image => vec![counts.iter().sum()],
            Some(_) => return Err(no_rank(port, &format!("patches have {}", by_image - 1))),
        },
    };
    shape.extend(features);
    Ok(shape)
}

fn patches(
    values: &[&Value],
    dtype: DataType,
    port: &PortLayout,
    pad_value: Option<f64>,
) -> Result<Tensor, MediaError> {
    let images = values
        .iter()
        .map(|value| match value {
            Value::Rows(rows) => Ok(rows),
            _ => Err(misfit()),
        })
        .collect::<Result<Vec<&Rows>, _>>()?;
    let counts: Vec<usize> = images.iter().map(|rows| rows.count).collect();
    let pads: Vec<Option<Padding>> = images.iter().map(|rows| rows.pad).collect();
    let features = images.first().map_or(0, |rows| rows.features);
    let length = padded_length(&counts, &pads, port, 3)?;
    let shape = rows_shape(&counts, length, &[features], port)?;
    let mut sink = Sink::new(dtype, shape.iter().product())?;
    for rows in &images {
        sink.floats(rows.numbers.iter().copied());
        let missing = length.map_or(0, |length| length - rows.count);
        let fill = pad_value.or(rows.pad.map(|pad| pad.value)).unwrap_or(0.0);
        sink.floats(std::iter::repeat_n(fill as f32, missing * features));
    }
    Ok(sink.done(&shape))
}

fn coordinates(
    values: &[&Value],
    dtype: DataType,
    port: &PortLayout,
    pad_value: Option<f64>,
) -> Result<Tensor, MediaError> {
    let images = values
        .iter()
        .map(|value| match value {
            Value::Coordinates { pairs, pad } => Ok((pairs, *pad)),
            _ => Err(misfit()),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let counts: Vec<usize> = images.iter().map(|(pairs, _)| pairs.len()).collect();
    let pads: Vec<Option<Padding>> = images.iter().map(|(_, pad)| *pad).collect();
    let length = padded_length(&counts, &pads, port, 3)?;
    let shape = rows_shape(&counts, length, &[2], port)?;
    let mut sink = Sink::new(dtype, shape.iter().product())?;
    for (pairs, pad) in &images {
        pairs.iter().flatten().for_each(|&at| sink.integer(at));
        let missing = length.map_or(0, |length| length - pairs.len());
        let fill = pad_value.or(pad.map(|pad| pad.value)).unwrap_or(0.0);
        for _ in 0..missing * 2 {
            sink.integer(fill as i64);
        }
    }
    Ok(sink.done(&shape))
}

/// A few numbers for each image: `[N, count]`, or `[count]` for a single one.
fn numbers(
    rows: &[Vec<i64>],
    count: usize,
    dtype: DataType,
    port: &PortLayout,
) -> Result<Tensor, MediaError> {
    let shape = match port.rank() {
        None | Some(2) => vec![rows.len(), count],
        Some(1) if rows.len() == 1 => vec![count],
        _ => return Err(no_rank(port, "this has 2")),
    };
    let mut sink = Sink::new(dtype, rows.len() * count)?;
    rows.iter().flatten().for_each(|&number| sink.integer(number));
    Ok(sink.done(&shape))
}

fn grids(values: &[&Value], dtype: DataType, port: &PortLayout) -> Result<Tensor, MediaError> {
    // Some models leave the frames out.
    let skip = usize::from(port.last_but(0) == Some(2));
    let rows = values
        .iter()
        .map(|value| match value {
            Value::Grid(grid) => Ok(grid.iter().copied().skip(skip).collect()),
            _ => Err(misfit()),
        })
        .collect::<Result<Vec<Vec<i64>>, _>>()?;
    numbers(&rows, 3 - skip, dtype, port)
}

fn sizes(values: &[&Value], dtype: DataType, port: &PortLayout) -> Result<Tensor, MediaError> {
    let rows = values
        .iter()
        .map(|value| match value {
            Value::Size(size) => Ok(size.to_vec()),
            _ => Err(misfit()),
        })
        .collect::<Result<Vec<Vec<i64>>, _>>()?;
    numbers(&rows, 2, dtype, port)
}

fn masks(values: &[&Value], dtype: DataType, port: &PortLayout) -> Result<Tensor, MediaError> {
    if let Some(Value::TileMask(first)) = values.first() {
        return tile_masks(values, first, dtype, port);
    }
    let images = values
        .iter()
        .map(|value| match value {
            Value::RowMask { count, pad } => Ok((*count, *pad)),
            _ => Err(misfit()),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let (counts, pads): (Vec<usize>, Vec<Option<Padding>>) = images.iter().copied().unzip();
    let length = padded_length(&counts, &pads, port, 2)?;
    let shape = rows_shape(&counts, length, &[], port)?;
    let mut sink = Sink::new(dtype, shape.iter().product())?;
    for count in counts {
        (0..count).for_each(|_| sink.integer(1));
        (count..length.unwrap_or(count)).for_each(|_| sink.integer(0));
    }
    Ok(sink.done(&shape))
}

fn tile_masks(
    values: &[&Value],
    first: &TileMask,
    dtype: DataType,
    port: &PortLayout,
) -> Result<Tensor, MediaError> {
    let cells = first.height * first.width;
    let masks = values
        .iter()
        .map(|value| match value {
            Value::TileMask(mask) if mask.height * mask.width == cells => Ok(mask),
            _ => Err(misfit()),
        })
        .collect::<Result<Vec<&TileMask>, _>>()?;
    let total: usize = masks.iter().map(|mask| mask.cells.len()).sum();
    let most = masks.iter().map(|mask| mask.cells.len()).max().unwrap_or(0);
    let by_image = port.rank() == Some(4);
    let shape = match port.rank() {
        None | Some(3) => vec![total / cells.max(1), first.height, first.width],
        Some(4) => vec![masks.len(), most / cells.max(1), first.height, first.width],
        _ => return Err(no_rank(port, "masks of tiles have 3")),
    };
    let mut sink = Sink::new(dtype, shape.iter().product())?;
    for mask in masks {
        mask.cells.iter().for_each(|&cell| sink.integer(cell.into()));
        if by_image {
            (mask.cells.len()..most).for_each(|_| sink.integer(0));
        }
    }
    Ok(sink.done(&shape))
}
