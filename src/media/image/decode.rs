use std::io::Cursor;

use image::error::ImageError;
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder as _, ImageFormat, ImageReader, Limits};

use super::rgb::{MAX_PIXELS, MAX_SIDE, RgbImage, check_size};
use crate::media::{MediaError, filled, room};

const KNOWN: &str = "JPEG, PNG, WebP and BMP";

impl RgbImage {
    /// Decodes a JPEG, PNG, WebP or BMP file, known by its first bytes, to what Pillow's
    /// `convert("RGB")` makes of it: gray is repeated, a palette looked up, transparency left
    /// out, 16 bits are cut to the upper 8, but those of gray are clipped at 255. A file's
    /// note of how the camera was held (Exif) is followed, as transformers' `load_image` does.
    /// Of an animation it is the first picture. Colour profiles are not applied.
    pub fn decode(encoded: &[u8]) -> Result<Self, MediaError> {
        let unknown = MediaError::UnknownFormat {
            kind: "image",
            known: KNOWN,
        };
        let format = image::guess_format(encoded).map_err(|_| unknown.clone())?;
        if !matches!(
            format,
            ImageFormat::Jpeg | ImageFormat::Png | ImageFormat::WebP | ImageFormat::Bmp
        ) {
            return Err(unknown);
        }
        if format == ImageFormat::Jpeg && !jpeg_is_whole(encoded) {
            return Err(MediaError::Malformed {
                kind: "image",
                message: "the JPEG file ends before the image does".to_owned(),
            });
        }
        let mut limits = Limits::default();
        limits.max_image_width = Some(MAX_SIDE as u32);
        limits.max_image_height = Some(MAX_SIDE as u32);
        limits.max_alloc = Some(8 * MAX_PIXELS as u64);
        let mut reader = ImageReader::with_format(Cursor::new(encoded), format);
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(malformed)?;
        let (width, height) = decoder.dimensions();
        let (width, height) = check_size(width.into(), height.into())?;
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        let color = decoder.color_type();
        let stored = width * height * usize::from(color.bytes_per_pixel());
        // What the decoder asks for is what its own colours take.
        if decoder.total_bytes() != stored as u64 {
            return Err(MediaError::Malformed {
                kind: "image",
                message: "its decoder disagrees about the size".to_owned(),
            });
        }
        let mut pixels = filled(stored, 0u8)?;
        decoder.read_image(&mut pixels).map_err(malformed)?;
        let image = RgbImage::from_checked(width, height, rgb(color, pixels)?)?;
        oriented(image, orientation)
    }
}

/// Whether a JPEG file has the marker of its end: the decoder fills what is missing with gray.
/// ITU-T T.81, annex B.
fn jpeg_is_whole(encoded: &[u8]) -> bool {
    const SCAN: u8 = 0xDA;
    let mut rest = encoded.get(2..).unwrap_or_default();
    loop {
        match rest {
            [0xFF, 0xD9, ..] => return true,
            // Fill bytes, and markers without a length.
            [0xFF, 0xFF, ..] => rest = rest.get(1..).unwrap_or_default(),
            [0xFF, 0x01 | 0xD0..=0xD8, ..] => rest = rest.get(2..).unwrap_or_default(),
            [0xFF, marker, high, low, ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                rest = rest.get(2 + length..).unwrap_or_default();
                if *marker == SCAN {
                    let end = rest.windows(2).position(
                        |pair| matches!(pair, [0xFF, marker] if !matches!(marker, 0 | 0xD0..=0xD7)),
                    );
                    rest = end.and_then(|end| rest.get(end..)).unwrap_or_default();
                }
            }
            // What lies between segments is skipped, as decoders do.
            [_, tail @ ..] => rest = tail,
            [] => return false,
        }
        if rest.len() < 2 {
            return false;
        }
    }
}

fn malformed(error: ImageError) -> MediaError {
    match error {
        ImageError::Limits(_) => MediaError::TooLarge {
            what: "an image",
            found: "more memory than is given to it".to_owned(),
            most: format!("{MAX_PIXELS} pixels, {MAX_SIDE} on a side"),
        },
        error => MediaError::Malformed {
            kind: "image",
            message: error.to_string(),
        },
    }
}

fn rgb(color: ColorType, pixels: Vec<u8>) -> Result<Vec<u8>, MediaError> {
    let mut bytes = match color {
        ColorType::Rgb8 => return Ok(pixels),
        _ => room(pixels.len() / usize::from(color.bytes_per_pixel()) * 3)?,
    };
    let upper = |sample: &[u8]| match sample {
        [a, b] => (u16::from_ne_bytes([*a, *b]) >> 8) as u8,
        _ => 0,
    };
    match color {
        ColorType::L8 | ColorType::La8 => {
            for pixel in pixels.chunks_exact(color.bytes_per_pixel().into()) {
                bytes.extend([pixel.first().copied().unwrap_or(0); 3]);
            }
        }
        ColorType::Rgba8 => {
            for pixel in pixels.chunks_exact(4) {
                bytes.extend(pixel.iter().take(3));
            }
        }
        ColorType::L16 => {
            for pixel in pixels.as_chunks::<2>().0 {
                bytes.extend([u16::from_ne_bytes(*pixel).min(255) as u8; 3]);
            }
        }
        ColorType::La16 => {
            for pixel in pixels.chunks_exact(4) {
                bytes.extend([upper(pixel.get(..2).unwrap_or_default()); 3]);
            }
        }
        ColorType::Rgb16 | ColorType::Rgba16 => {
            for pixel in pixels.chunks_exact(color.bytes_per_pixel().into()) {
                bytes.extend(pixel.chunks_exact(2).take(3).map(upper));
            }
        }
        other => {
            return Err(MediaError::Malformed {
                kind: "image",
                message: format!("pixels of {other:?} are not read"),
            });
        }
    }
    Ok(bytes)
}

/// Turns an image upright.
fn oriented(mut image: RgbImage, orientation: Orientation) -> Result<RgbImage, MediaError> {
    let (transpose, horizontally, vertically) = match orientation {
        Orientation::NoTransforms => (false, false, false),
        Orientation::FlipHorizontal => (false, true, false),
        Orientation::Rotate180 => (false, true, true),
        Orientation::FlipVertical => (false, false, true),
        // About the diagonal from the upper left; then it is turned by flipping.
        Orientation::Rotate90FlipH => (true, false, false),
        Orientation::Rotate90 => (true, true, false),
        Orientation::Rotate270FlipH => (true, true, true),
        Orientation::Rotate270 => (true, false, true),
    };
    if transpose {
        image = image.transposed()?;
    }
    if horizontally {
        image.flip_horizontally();
    }
    if vertically {
        image.flip_vertically();
    }
    Ok(image)
}
