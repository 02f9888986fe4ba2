use std::sync::Arc;

use super::evaluate::{Frame, Pixels, TileMask};
use super::program::{Thumbnail, Tiling, TilingMode};
use super::rgb::RgbImage;
use super::sizes;
use crate::media::{MediaError, Work};

/// Columns and rows that [`TilingMode::Anyres`] chooses among beside one tile: those of LLaVA-NeXT
/// and a row and a column of two and three.
const GRIDS: [(usize, usize); 5] = [(1, 2), (2, 1), (1, 3), (3, 1), (2, 2)];

/// The most tiles that an image is cut into: each is an allocation of its own, however small.
const MOST_TILES: usize = 64 * 64;

/// The most that the narrow side of an image may be short of, in [`TilingMode::DynamicHd`].
const LEAST_SIDE: usize = 10;

/// An image as tiles.
pub(super) fn tile(image: &RgbImage, tiling: &Tiling, work: &Work) -> Result<Pixels, MediaError> {
    let size = tiling.size;
    match tiling.mode {
        TilingMode::Anyres => {
            let (columns, rows) = best_grid(image, tiling);
            let canvas = image.resize(columns * size, rows * size, tiling.filter, work)?;
            let thumbnail = image.resize(size, size, tiling.filter, work)?;
            cut(&canvas, tiling, (columns, rows), thumbnail, None, work)
        }
        TilingMode::Grid { columns, rows } => {
            let canvas = image.resize(
                columns.saturating_mul(size),
                rows.saturating_mul(size),
                tiling.filter,
                work,
            )?;
            let thumbnail = image.resize(size, size, tiling.filter, work)?;
            cut(&canvas, tiling, (columns, rows), thumbnail, None, work)
        }
        TilingMode::LongestEdge { longest } => longest_edge(image, tiling, longest, work),
        TilingMode::DynamicHd { mask_patch, canvas } => dynamic_hd(image, tiling, mask_patch, canvas, work),
    }
}

fn longest_edge(
    image: &RgbImage,
    tiling: &Tiling,
    longest: usize,
    work: &Work,
) -> Result<Pixels, MediaError> {
    let size = tiling.size;
    let (width, height) = sizes::longest_edge((image.width(), image.height()), longest);
    let scaled = image.resize(width, height, tiling.filter, work)?;
    let (wide, high) = sizes::multiples((width, height), size);
    let canvas = scaled.resize(wide, high, tiling.filter, work)?;
    let thumbnail = canvas.resize(size, size, tiling.thumbnail_filter, work)?;
    let grid = match (wide, high) == (size, size) && tiling.thumbnail != Thumbnail::None {
        true => (0, 0),
        false => (wide / size, high / size),
    };
    let mut pixels = cut(&canvas, tiling, grid, thumbnail, None, work)?;
    pixels.one_sample = true;
    pixels.mask = Some(Arc::new(TileMask {
        cells: work.filled((pixels.tiles.len() * size).saturating_mul(size), 1)?,
        height: size,
        width: size,
        one_sample: true,
    }));
    Ok(pixels)
}

fn best_grid(image: &RgbImage, tiling: &Tiling) -> (usize, usize) {
    let (width, height) = (image.width() as f64, image.height() as f64);
    let area = (image.width() * image.height()) as u64;
    let measured = |(columns, rows): (usize, usize)| {
        let (wide, high) = ((columns * tiling.size) as f64, (rows * tiling.size) as f64);
        let scale = (wide / width).min(high / height);
        let kept = (((width * scale) as u64) * ((height * scale) as u64)).min(area);
        (kept, ((wide * high) as u64).saturating_sub(kept))
    };
    let mut best = (1, 1);
    let (mut most, mut least) = measured(best);
    for (columns, rows) in GRIDS {
        if columns * rows > tiling.most {
            continue;
        }
        let (kept, wasted) = measured((columns, rows));
        if kept > most || (kept == most && wasted < least) {
            best = (columns, rows);
            (most, least) = (kept, wasted);
        }
    }
    best
}

/// Columns and rows of [`TilingMode::DynamicHd`].
fn nearest_grid(image: &RgbImage, tiling: &Tiling) -> (usize, usize) {
    let (columns, rows) = (
        image.width().div_ceil(tiling.size),
        image.height().div_ceil(tiling.size),
    );
    if columns.saturating_mul(rows) <= tiling.most {
        return (columns, rows);
    }
    let ratio = image.width() as f64 / image.height() as f64;
    let area = (image.width() * image.height()) as u128;
    let mut grids: Vec<(usize, usize)> = (1..=tiling.most)
        .flat_map(|columns| (1..=tiling.most / columns).map(move |rows| (columns, rows)))
        .collect();
    grids.sort_unstable_by_key(|&(columns, rows)| (columns * rows, columns, rows));
    let mut best = ((1, 1), f64::INFINITY);
    for (columns, rows) in grids {
        let off = (ratio - columns as f64 / rows as f64).abs();
        let tile = (tiling.size * tiling.size) as u128;
        let larger = area > tile * (columns * rows) as u128 / 2;
        if off < best.1 || (off == best.1 && larger) {
            best = ((columns, rows), off);
        }
    }
    best.0
}

fn dynamic_hd(
    image: &RgbImage,
    tiling: &Tiling,
    mask_patch: usize,
    canvas_value: u8,
    work: &Work,
) -> Result<Pixels, MediaError> {
    let size = tiling.size;
    let (columns, rows) = nearest_grid(image, tiling);
    let (wide, high) = (columns * size, rows * size);
    let by_width = wide as f64 / image.width() as f64;
    let by_height = high as f64 / image.height() as f64;
    let (width, height) = match by_width < by_height {
        true => (wide, (image.height() as f64 * by_width) as usize),
        false => ((image.width() as f64 * by_height) as usize, high),
    };
    if width < LEAST_SIDE || height < LEAST_SIDE {
        return Err(MediaError::unfit(format!(
            "an image of {} x {} is {width} x {height} on its tiles; its proportions are too extreme",
            image.width(),
            image.height()
        )));
    }
    let resized = image.resize(width, height, tiling.filter, work)?;
    let mut canvas = RgbImage::filled(wide, high, canvas_value, work)?;
    canvas.paste(&resized, 0, 0);
    let edge = size / mask_patch;
    let valid_columns = columns * edge - (wide - width) / mask_patch;
    let valid_rows = rows * edge - (high - height) / mask_patch;
    let mut cells = work.room((columns * rows + 1) * edge * edge)?;
    let whole = |cells: &mut Vec<u8>| cells.extend(std::iter::repeat_n(1, edge * edge));
    if tiling.thumbnail == Thumbnail::Prepend {
        whole(&mut cells);
    }
    for row in 0..rows {
        for column in 0..columns {
            for y in row * edge..(row + 1) * edge {
                let inside =
                    (column * edge..(column + 1) * edge).map(|x| x < valid_columns && y < valid_rows);
                cells.extend(inside.map(u8::from));
            }
        }
    }
    if tiling.thumbnail == Thumbnail::Append {
        whole(&mut cells);
    }
    let mask = TileMask {
        cells,
        height: edge,
        width: edge,
        one_sample: false,
    };
    let thumbnail = canvas.resize(size, size, tiling.thumbnail_filter, work)?;
    cut(&canvas, tiling, (columns, rows), thumbnail, Some(mask), work)
}

fn cut(
    canvas: &RgbImage,
    tiling: &Tiling,
    (columns, rows): (usize, usize),
    thumbnail: RgbImage,
    mask: Option<TileMask>,
    work: &Work,
) -> Result<Pixels, MediaError> {
    let size = tiling.size;
    if columns * rows > MOST_TILES {
        return Err(MediaError::TooLarge {
            what: "a grid of tiles",
            found: format!("{rows} rows of {columns}"),
            most: format!("{MOST_TILES} tiles"),
        });
    }
    let mut tiles = work.room(columns * rows + 1)?;
    for row in 0..rows {
        for column in 0..columns {
            let mut tile = RgbImage::filled(size, size, 0, work)?;
            tile.paste(canvas, -((column * size) as i64), -((row * size) as i64));
            tiles.push(Frame::Bytes(tile));
        }
    }
    match tiling.thumbnail {
        Thumbnail::None => {}
        Thumbnail::Prepend => tiles.insert(0, Frame::Bytes(thumbnail)),
        Thumbnail::Append => tiles.push(Frame::Bytes(thumbnail)),
    }
    let mask = match mask {
        Some(mask) => mask,
        None => TileMask {
            cells: work.filled(tiles.len(), 1)?,
            height: 1,
            width: 1,
            one_sample: false,
        },
    };
    Ok(Pixels {
        tiles,
        width: size,
        height: size,
        whole: [canvas.height() as i64, canvas.width() as i64],
        grid: Some((rows, columns)),
        mask: Some(Arc::new(mask)),
        one_sample: false,
    })
}
