use std::fmt;

use crate::media::{MediaError, Work};

/// The most pixels that an image may have, before and after resizing.
pub(super) const MAX_PIXELS: usize = 1 << 26;
/// The most pixels on a side.
pub(super) const MAX_SIDE: usize = 65_535;

/// Pixels of 8 bits for each of red, green and blue, row by row. Never empty.
#[derive(Clone, PartialEq, Eq)]
pub struct RgbImage {
    width: usize,
    height: usize,
    /// `height * width * 3` bytes.
    bytes: Vec<u8>,
}

impl fmt::Debug for RgbImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RgbImage {{ {} x {} }}", self.width, self.height)
    }
}

impl RgbImage {
    /// Copies raw pixels: `width * height * 3` bytes, rows from the top, without gaps.
    pub fn from_raw(width: u64, height: u64, bytes: &[u8]) -> Result<Self, MediaError> {
        let (width, height) = check_size(width, height)?;
        let expected = width * height * 3;
        if bytes.len() != expected {
            return Err(MediaError::Argument {
                message: format!(
                    "{} bytes do not match an RGB image of {width} x {height} ({expected} bytes)",
                    bytes.len()
                ),
            });
        }
        Ok(RgbImage {
            width,
            height,
            bytes: Work::default().copied(bytes)?,
        })
    }

    /// An image of one colour. The sides have been checked.
    pub(super) fn filled(width: usize, height: usize, value: u8, work: &Work) -> Result<Self, MediaError> {
        let (width, height) = check_size(width as u64, height as u64)?;
        Ok(RgbImage {
            width,
            height,
            bytes: work.filled(width * height * 3, value)?,
        })
    }

    pub(super) fn copied(&self, work: &Work) -> Result<Self, MediaError> {
        Ok(RgbImage {
            width: self.width,
            height: self.height,
            bytes: work.copied(&self.bytes)?,
        })
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn height(&self) -> usize {
        self.height
    }

    /// Rows from the top, red, green and blue of each pixel.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn rows(&self) -> std::slice::ChunksExact<'_, u8> {
        self.bytes.chunks_exact(self.width * 3)
    }

    pub(super) fn rows_mut(&mut self) -> std::slice::ChunksExactMut<'_, u8> {
        self.bytes.chunks_exact_mut(self.width * 3)
    }

    /// Copies the pixels of `from` that lie under this image to where it has its upper left
    /// corner at (`left`, `top`); either may be negative.
    pub(super) fn paste(&mut self, from: &RgbImage, left: i64, top: i64) {
        let columns = overlap(self.width, from.width, left);
        let rows = overlap(self.height, from.height, top);
        let (Some((x, from_x, width)), Some((y, from_y, height))) = (columns, rows) else {
            return;
        };
        for (to, from) in self.rows_mut().skip(y).zip(from.rows().skip(from_y)).take(height) {
            let from = from.get(from_x * 3..(from_x + width) * 3);
            if let (Some(to), Some(from)) = (to.get_mut(x * 3..(x + width) * 3), from) {
                to.copy_from_slice(from);
            }
        }
    }

    /// The image with its rows and columns exchanged.
    pub(super) fn transposed(&self, work: &Work) -> Result<Self, MediaError> {
        let mut turned = RgbImage::filled(self.height, self.width, 0, work)?;
        for (x, row) in turned.rows_mut().enumerate() {
            // Steps from row to row, each in another place of memory.
            work.count(16 * self.height)?;
            for (to, from) in row.chunks_exact_mut(3).zip(self.rows()) {
                if let Some(pixel) = from.get(x * 3..x * 3 + 3) {
                    to.copy_from_slice(pixel);
                }
            }
        }
        Ok(turned)
    }

    pub(super) fn flip_horizontally(&mut self, work: &Work) -> Result<(), MediaError> {
        for row in self.rows_mut() {
            work.count(row.len())?;
            let (mut left, mut right) = (0, row.len() / 3);
            while left + 1 < right {
                right -= 1;
                for channel in 0..3 {
                    row.swap(left * 3 + channel, right * 3 + channel);
                }
                left += 1;
            }
        }
        Ok(())
    }

    pub(super) fn flip_vertically(&mut self, work: &Work) -> Result<(), MediaError> {
        let row = self.width * 3;
        let mut rest = self.bytes.as_mut_slice();
        while rest.len() >= 2 * row {
            work.count(row)?;
            let (first, tail) = rest.split_at_mut(row);
            let (middle, last) = tail.split_at_mut(tail.len() - row);
            first.swap_with_slice(last);
            rest = middle;
        }
        Ok(())
    }

    /// Takes pixels that have the size that is said.
    pub(super) fn from_checked(width: usize, height: usize, bytes: Vec<u8>) -> Result<Self, MediaError> {
        debug_assert_eq!(bytes.len(), width * height * 3);
        Ok(RgbImage { width, height, bytes })
    }
}

/// Where two ranges overlap, one of `to` elements and one of `from` that begins `at` in it:
/// the first in each, and how many.
fn overlap(to: usize, from: usize, at: i64) -> Option<(usize, usize, usize)> {
    let skipped = usize::try_from(at.min(0).unsigned_abs()).ok()?;
    let start = usize::try_from(at.max(0)).ok()?;
    let count = to.checked_sub(start)?.min(from.checked_sub(skipped)?);
    (count > 0).then_some((start, skipped, count))
}

/// The sides of an image, if it may be so large.
pub(super) fn check_size(width: u64, height: u64) -> Result<(usize, usize), MediaError> {
    if width == 0 || height == 0 {
        return Err(MediaError::Argument {
            message: format!("an image of {width} x {height} has no pixels"),
        });
    }
    let fits = width <= MAX_SIDE as u64
        && height <= MAX_SIDE as u64
        && width.saturating_mul(height) <= MAX_PIXELS as u64;
    match (fits, usize::try_from(width), usize::try_from(height)) {
        (true, Ok(width), Ok(height)) => Ok((width, height)),
        _ => Err(MediaError::TooLarge {
            what: "an image",
            found: format!("{width} x {height} pixels"),
            most: format!("{MAX_PIXELS} pixels, {MAX_SIDE} on a side"),
        }),
    }
}
