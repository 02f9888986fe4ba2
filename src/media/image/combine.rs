//! Values of several images, put together for the ports.

use super::evaluate::{Frame, Padding, Pixels, Prepared, Rows, TileMask, Value};
use super::program::{Content, ImageProgram};
use crate::component::DataType;
use crate::media::tensor::{PortLayout, Sink, Tensor, no_rank};
use crate::media::{MediaError, Work};

impl ImageProgram {
    /// The tensors of the outputs, in their order, for all images together. `ports` says of each
    /// output what its port declares.
    pub fn combine(
        &self,
        images: &[&Prepared],
        ports: &[PortLayout],
        work: &Work,
    ) -> Result<Vec<Tensor>, MediaError> {
        let unknown = PortLayout::default();
        let mut tensors = Vec::with_capacity(self.outputs.len());
        for (index, (_, output)) in self.outputs.iter().enumerate() {
            let port = ports.get(index).unwrap_or(&unknown);
            let values: Vec<&Value> = images
                .iter()
                .filter_map(|image| image.values.get(index))
                .map(AsRef::as_ref)
                .collect();
            let target = Target {
                dtype: output.dtype,
                port,
                pad_value: output.pad_value,
                work,
            };
            let tensor = match output.content {
                Content::Pixels => target.pixels(&values),
                Content::PatchCoordinates => target.coordinates(&values),
                Content::GridDimensions => target.grids(&values),
                Content::OriginalSize | Content::TransformedSize => target.sizes(&values),
                Content::ValidityMask => target.masks(&values),
            };
            tensors.push(tensor.map_err(|error| error.of_output(&output.name))?);
        }
        Ok(tensors)
    }
}

fn misfit() -> MediaError {
    MediaError::unfit("the program makes something else of one of the images")
}

/// All values, each as what it has to be.
fn all<'v, T>(values: &[&'v Value], of: impl Fn(&'v Value) -> Option<T>) -> Result<Vec<T>, MediaError> {
    let values = values.iter().map(|value| of(value).ok_or_else(misfit));
    values.collect()
}

/// The rows of an image, one after the other.
struct Group<'v, T> {
    count: usize,
    elements: &'v [T],
    pad: Option<Padding>,
}

/// What a tensor is for.
struct Target<'t> {
    dtype: DataType,
    port: &'t PortLayout,
    pad_value: Option<f64>,
    work: &'t Work,
}

impl<'t> Target<'t> {
    fn sink(&self, shape: &[usize]) -> Result<Sink<'t>, MediaError> {
        Sink::new(self.dtype, shape, self.work)
    }

    fn pixels(&self, values: &[&Value]) -> Result<Tensor, MediaError> {
        if let Some(Value::Rows(_)) = values.first() {
            return self.patches(values);
        }
        let images: Vec<&Pixels> = all(values, |value| match value {
            Value::Pixels(pixels) => Some(pixels),
            _ => None,
        })?;
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
                "images 0 and {index} are {width} x {height} and {} x {} after preprocessing, and must be of one size; \
                 give images of the same sides, or a package that resizes them to one",
                other.width, other.height
            )));
        }
        let total: usize = images.iter().map(|image| image.tiles.len()).sum();
        let most = images.iter().map(|image| image.tiles.len()).max().unwrap_or(0);
        let last = self.port.channels_last();
        let mut shape = match last {
            true => vec![height, width, 3],
            false => vec![3, height, width],
        };
        // Tiles of an image that has fewer than another are followed by empty ones.
        let by_image = self.port.rank() == Some(5) && !first.one_sample;
        match self.port.rank() {
            Some(5) if first.one_sample => shape.splice(0..0, [1, total]).for_each(drop),
            Some(5) => shape.splice(0..0, [images.len(), most]).for_each(drop),
            None | Some(4) => shape.insert(0, total),
            Some(3) if total == 1 => {}
            _ => return Err(no_rank(self.port, &format!("{total} images or tiles need 4"))),
        }
        let mut sink = self.sink(&shape)?;
        let plane = width * height;
        for image in &images {
            for frame in &image.tiles {
                match (frame, last) {
                    (Frame::Bytes(image), true) => sink.floats(image.bytes().iter().map(|&x| x.into()))?,
                    (Frame::Bytes(image), false) => {
                        for channel in 0..3 {
                            let samples = image.bytes().iter().skip(channel).step_by(3);
                            sink.floats(samples.map(|&x| x.into()))?;
                        }
                    }
                    (Frame::Floats(floats), false) => sink.floats(floats.iter().copied())?,
                    (Frame::Floats(floats), true) => {
                        let channel = |index: usize| floats.iter().skip(index * plane);
                        let pixels = channel(0).zip(channel(1)).zip(channel(2)).take(plane);
                        sink.floats(pixels.flat_map(|((red, green), blue)| [*red, *green, *blue]))?;
                    }
                }
            }
            if by_image {
                let missing = (most - image.tiles.len()) * plane * 3;
                sink.floats(std::iter::repeat_n(0.0, missing))?;
            }
        }
        Ok(sink.done())
    }

    fn patches(&self, values: &[&Value]) -> Result<Tensor, MediaError> {
        let images: Vec<&Rows> = all(values, |value| match value {
            Value::Rows(rows) => Some(rows),
            _ => None,
        })?;
        let features = images.first().map_or(0, |rows| rows.features);
        let groups: Vec<Group<'_, f32>> = images
            .iter()
            .map(|rows| Group {
                count: rows.count,
                elements: &rows.numbers,
                pad: rows.pad,
            })
            .collect();
        self.rows(
            &groups,
            features,
            |fill| fill as f32,
            |sink, values| sink.floats(values),
        )
    }

    fn coordinates(&self, values: &[&Value]) -> Result<Tensor, MediaError> {
        let groups: Vec<Group<'_, i64>> = all(values, |value| match value {
            Value::Coordinates { pairs, pad } => Some(Group {
                count: pairs.len(),
                elements: pairs.as_flattened(),
                pad: *pad,
            }),
            _ => None,
        })?;
        self.rows(
            &groups,
            2,
            |fill| fill as i64,
            |sink, values| sink.integers(values),
        )
    }

    /// `[N, L, F]` or `[all, F]`: of each image its rows and, where it has fewer than there is room
    /// for, the fill.
    fn rows<T: Copy>(
        &self,
        groups: &[Group<'_, T>],
        features: usize,
        number: impl Fn(f64) -> T,
        put: impl Fn(&mut Sink<'t>, &mut dyn Iterator<Item = T>) -> Result<(), MediaError>,
    ) -> Result<Tensor, MediaError> {
        let counts: Vec<usize> = groups.iter().map(|group| group.count).collect();
        let pads: Vec<Option<Padding>> = groups.iter().map(|group| group.pad).collect();
        let length = self.padded_length(&counts, &pads, 3)?;
        let shape = self.rows_shape(&counts, length, &[features])?;
        let mut sink = self.sink(&shape)?;
        for group in groups {
            put(&mut sink, &mut group.elements.iter().copied())?;
            let missing = length.map_or(0, |length| length - group.count);
            let fill = self.pad_value.or(group.pad.map(|pad| pad.value)).unwrap_or(0.0);
            put(
                &mut sink,
                &mut std::iter::repeat_n(number(fill), missing * features),
            )?;
        }
        Ok(sink.done())
    }

    /// How many rows each image has room for; `None` when they follow each other without gaps.
    fn padded_length(
        &self,
        counts: &[usize],
        pads: &[Option<Padding>],
        rank: usize,
    ) -> Result<Option<usize>, MediaError> {
        let most = counts.iter().copied().max().unwrap_or(0);
        let padding = pads.iter().copied().find_map(|pad| pad);
        let by_image = self.port.rank() == Some(rank);
        let Some(padding) = padding else {
            if !by_image {
                return Ok(None);
            }
            return match counts.iter().all(|&count| count == most) {
                true => Ok(Some(most)),
                false => Err(MediaError::unfit(format!(
                    "images come to {counts:?} patches, and the input takes as many of each; pad them"
                ))),
            };
        };
        let declared = || match by_image {
            true => self.port.last_but(rank - 2),
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
        &self,
        counts: &[usize],
        length: Option<usize>,
        features: &[usize],
    ) -> Result<Vec<usize>, MediaError> {
        let by_image = 2 + features.len();
        let rank = self.port.rank();
        let mut shape = match length {
            Some(length) => match rank {
                None => vec![counts.len(), length],
                Some(rank) if rank == by_image => vec![counts.len(), length],
                Some(rank) if rank + 1 == by_image && counts.len() == 1 => vec![length],
                Some(_) => return Err(no_rank(self.port, &format!("padded patches have {by_image}"))),
            },
            None => match rank {
                None => vec![counts.iter().sum()],
                Some(rank) if rank + 1 == by_image => vec![counts.iter().sum()],
                Some(_) => return Err(no_rank(self.port, &format!("patches have {}", by_image - 1))),
            },
        };
        shape.extend(features);
        Ok(shape)
    }

    /// A few numbers for each image: `[N, count]`, or `[count]` for a single one.
    fn numbers(&self, rows: &[Vec<i64>], count: usize) -> Result<Tensor, MediaError> {
        let shape = match self.port.rank() {
            None | Some(2) => vec![rows.len(), count],
            Some(1) if rows.len() == 1 => vec![count],
            _ => return Err(no_rank(self.port, "this has 2")),
        };
        let mut sink = self.sink(&shape)?;
        sink.integers(rows.iter().flatten().copied())?;
        Ok(sink.done())
    }

    fn grids(&self, values: &[&Value]) -> Result<Tensor, MediaError> {
        // Some models leave the frames out.
        let skip = usize::from(self.port.last_but(0) == Some(2));
        let rows: Vec<Vec<i64>> = all(values, |value| match value {
            Value::Grid(grid) => Some(grid.iter().copied().skip(skip).collect()),
            _ => None,
        })?;
        self.numbers(&rows, 3 - skip)
    }

    fn sizes(&self, values: &[&Value]) -> Result<Tensor, MediaError> {
        let rows: Vec<Vec<i64>> = all(values, |value| match value {
            Value::Size(size) => Some(size.to_vec()),
            _ => None,
        })?;
        self.numbers(&rows, 2)
    }

    fn masks(&self, values: &[&Value]) -> Result<Tensor, MediaError> {
        if let Some(Value::TileMask(first)) = values.first() {
            return self.tile_masks(values, first);
        }
        let images: Vec<(usize, Option<Padding>)> = all(values, |value| match value {
            Value::RowMask { count, pad } => Some((*count, *pad)),
            _ => None,
        })?;
        let (counts, pads): (Vec<usize>, Vec<Option<Padding>>) = images.iter().copied().unzip();
        let length = self.padded_length(&counts, &pads, 2)?;
        let shape = self.rows_shape(&counts, length, &[])?;
        let mut sink = self.sink(&shape)?;
        for count in counts {
            let missing = length.map_or(0, |length| length - count);
            sink.integers(std::iter::repeat_n(1, count))?;
            sink.integers(std::iter::repeat_n(0, missing))?;
        }
        Ok(sink.done())
    }

    fn tile_masks(&self, values: &[&Value], first: &TileMask) -> Result<Tensor, MediaError> {
        let cells = first.height * first.width;
        let masks: Vec<&TileMask> = all(values, |value| match value {
            Value::TileMask(mask) if mask.height * mask.width == cells => Some(mask.as_ref()),
            _ => None,
        })?;
        let total: usize = masks.iter().map(|mask| mask.cells.len()).sum();
        let most = masks.iter().map(|mask| mask.cells.len()).max().unwrap_or(0);
        let by_image = self.port.rank() == Some(4) && !first.one_sample;
        let shape = match self.port.rank() {
            Some(4) if first.one_sample => vec![1, total / cells.max(1), first.height, first.width],
            None | Some(3) => vec![total / cells.max(1), first.height, first.width],
            Some(4) => vec![masks.len(), most / cells.max(1), first.height, first.width],
            _ => return Err(no_rank(self.port, "masks of tiles have 3")),
        };
        let mut sink = self.sink(&shape)?;
        for mask in masks {
            sink.integers(mask.cells.iter().map(|&cell| cell.into()))?;
            if by_image {
                sink.integers(std::iter::repeat_n(0, most - mask.cells.len()))?;
            }
        }
        Ok(sink.done())
    }
}
