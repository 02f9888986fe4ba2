use image::codecs::{bmp::BmpDecoder, png::PngDecoder, webp::WebPDecoder};
use image::error::ImageError;
use image::{ColorType, ImageDecoder, ImageFormat, Limits};

use super::orientation::Orientation;
use super::rgb::{MAX_PIXELS, MAX_SIDE, RgbImage, check_size};
use super::{jpeg, orientation as notes};
use crate::media::apart::apart;
use crate::media::work::Source;
use crate::media::{MediaError, Work};

/// Pixels that are turned to RGB between two counts.
const PIECE: usize = 4096;

const KNOWN: &str = "JPEG, PNG, WebP and BMP";

impl RgbImage {
    /// Decodes a JPEG, PNG, WebP or BMP file, known by its first bytes, to what Pillow's
    /// `convert("RGB")` makes of it: gray is repeated, a palette looked up, transparency left
    /// out, 16 bits are cut to the upper 8, but those of gray are clipped at 255. A file's
    /// note of how the camera was held (Exif, or XMP; not in a BMP) is followed, as
    /// transformers' `load_image` does. Of an animation it is the first picture. Colour profiles
    /// are not applied.
    pub fn decode(encoded: &[u8], work: &Work) -> Result<Self, MediaError> {
        work.look()?;
        let format = image::guess_format(encoded).ok();
        let source = || Source::new(encoded, work);
        let (image, orientation) = match format {
            Some(ImageFormat::Jpeg) => {
                if !jpeg_is_whole(encoded, work)? {
                    return Err(malformed("the JPEG file ends before the image does"));
                }
                let image = decoded(encoded, work, jpeg::size, jpeg::decode)?;
                (image, notes::of_jpeg(encoded, work)?)
            }
            Some(ImageFormat::Png) => {
                let decoder = PngDecoder::with_limits(source(), around_pixels());
                (read(decoder, 0, work)?, notes::of_png(encoded, work)?)
            }
            Some(ImageFormat::WebP) => {
                let image = decoded(encoded, work, size_of_webp, decode_webp)?;
                (image, notes::of_webp(encoded, work)?)
            }
            Some(ImageFormat::Bmp) => (read(BmpDecoder::new(source()), 0, work)?, 1),
            _ => {
                return Err(MediaError::UnknownFormat {
                    kind: "image",
                    known: KNOWN,
                });
            }
        };
        oriented(image, orientation, work)
    }
}

/// Of more pixels than this, decoders that do not look whether the call is to end take longer than some
/// milliseconds: 30 ns for each in a WebP.
const AT_ONCE: usize = 1 << 18;

/// Reads something of a file.
type Reads<T> = fn(&[u8], &Work) -> Result<T, MediaError>;

/// An image by a decoder that may not look: on a thread of its own if the image is large.
fn decoded(
    encoded: &[u8],
    work: &Work,
    size: Reads<(usize, usize)>,
    decode: Reads<RgbImage>,
) -> Result<RgbImage, MediaError> {
    let (width, height) = size(encoded, work)?;
    if width * height <= AT_ONCE {
        return decode(encoded, work);
    }
    // The thread may be at work when the caller's bytes are gone.
    let encoded = work.copied(encoded)?;
    apart(work, move |work| decode(&encoded, work))
}

fn size_of_webp(encoded: &[u8], work: &Work) -> Result<(usize, usize), MediaError> {
    let decoder = WebPDecoder::new(Source::new(encoded, work)).map_err(|error| failed(error, work))?;
    let (width, height) = decoder.dimensions();
    check_size(width.into(), height.into())
}

fn decode_webp(encoded: &[u8], work: &Work) -> Result<RgbImage, MediaError> {
    // The pixels of the frame with their alpha, and those of the canvas.
    read(WebPDecoder::new(Source::new(encoded, work)), 8, work)
}

/// That the source had no more to give, as the call is to end, is no fault of the file.
fn failed(error: ImageError, work: &Work) -> MediaError {
    match work.look() {
        Ok(()) => undecodable(error),
        Err(ended) => ended,
    }
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE as u32);
    limits.max_image_height = Some(MAX_SIDE as u32);
    limits.max_alloc = Some(8 * MAX_PIXELS as u64);
    limits
}

/// For what a PNG has beside its pixels. A colour profile, which nothing here applies, is inflated
/// without a look at the end of the call, and 500 KB of a file could make 512 MB of it; one that is
/// longer than this is passed over.
fn around_pixels() -> Limits {
    let mut limits = limits();
    limits.max_alloc = Some(16 << 20);
    limits
}

/// What a decoder makes; `scratch` is how many bytes a pixel it takes beside that.
fn read<D: ImageDecoder>(
    decoder: Result<D, ImageError>,
    scratch: usize,
    work: &Work,
) -> Result<RgbImage, MediaError> {
    let failed = |error| failed(error, work);
    let mut decoder = decoder.map_err(failed)?;
    decoder.set_limits(limits()).map_err(failed)?;
    let (width, height) = decoder.dimensions();
    let (width, height) = check_size(width.into(), height.into())?;
    let color = decoder.color_type();
    let stored = width * height * usize::from(color.bytes_per_pixel());
    // What the decoder asks for is what its own colours take.
    if decoder.total_bytes() != stored as u64 {
        return Err(malformed("its decoder disagrees about the size"));
    }
    let mut pixels = work.filled(stored, 0u8)?;
    work.ask(width * height * scratch)?;
    decoder.read_image(&mut pixels).map_err(failed)?;
    RgbImage::from_checked(width, height, rgb(color, pixels, work)?)
}

/// Whether a JPEG file has the marker of its end: the decoder fills what is missing with gray.
/// ITU-T T.81, annex B.
fn jpeg_is_whole(encoded: &[u8], work: &Work) -> Result<bool, MediaError> {
    const SCAN: u8 = 0xDA;
    let mut rest = encoded.get(2..).unwrap_or_default();
    loop {
        work.count(1)?;
        match rest {
            [0xFF, 0xD9, ..] => return Ok(true),
            // Fill bytes, and markers without a length.
            [0xFF, 0xFF, ..] => rest = rest.get(1..).unwrap_or_default(),
            [0xFF, 0x01 | 0xD0..=0xD8, ..] => rest = rest.get(2..).unwrap_or_default(),
            [0xFF, marker, high, low, ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                rest = rest.get(2 + length..).unwrap_or_default();
                if *marker == SCAN {
                    let is_marker =
                        |pair: &[u8]| matches!(pair, [0xFF, marker] if !matches!(marker, 0 | 0xD0..=0xD7));
                    let end = work.position(rest, 2, is_marker)?;
                    rest = end.and_then(|end| rest.get(end..)).unwrap_or_default();
                }
            }
            // What lies between segments is skipped, as decoders do.
            [_, tail @ ..] => rest = tail,
            [] => return Ok(false),
        }
        if rest.len() < 2 {
            return Ok(false);
        }
    }
}

pub(super) fn malformed(message: impl Into<String>) -> MediaError {
    MediaError::Malformed {
        kind: "image",
        message: message.into(),
    }
}

fn undecodable(error: ImageError) -> MediaError {
    match error {
        ImageError::Limits(_) => MediaError::TooLarge {
            what: "an image",
            found: "more memory than is given to it".to_owned(),
            most: format!("{MAX_PIXELS} pixels, {MAX_SIDE} on a side"),
        },
        error => malformed(error.to_string()),
    }
}

/// Bytes of red, green and blue, of whatever colours.
pub(super) fn rgb(color: ColorType, pixels: Vec<u8>, work: &Work) -> Result<Vec<u8>, MediaError> {
    let mut bytes = match color {
        ColorType::Rgb8 => return Ok(pixels),
        _ => work.room(pixels.len() / usize::from(color.bytes_per_pixel()) * 3)?,
    };
    let upper = |sample: &[u8]| match sample {
        [a, b] => (u16::from_ne_bytes([*a, *b]) >> 8) as u8,
        _ => 0,
    };
    let each = usize::from(color.bytes_per_pixel());
    for piece in pixels.chunks(each * PIECE) {
        work.count(each * PIECE)?;
        match color {
            ColorType::L8 | ColorType::La8 => {
                for pixel in piece.chunks_exact(each) {
                    bytes.extend([pixel.first().copied().unwrap_or(0); 3]);
                }
            }
            ColorType::Rgba8 => {
                for pixel in piece.chunks_exact(each) {
                    bytes.extend(pixel.iter().take(3));
                }
            }
            ColorType::L16 => {
                for pixel in piece.as_chunks::<2>().0 {
                    bytes.extend([u16::from_ne_bytes(*pixel).min(255) as u8; 3]);
                }
            }
            ColorType::La16 => {
                for pixel in piece.chunks_exact(each) {
                    bytes.extend([upper(pixel.get(..2).unwrap_or_default()); 3]);
                }
            }
            ColorType::Rgb16 | ColorType::Rgba16 => {
                for pixel in piece.chunks_exact(each) {
                    bytes.extend(pixel.chunks_exact(2).take(3).map(upper));
                }
            }
            other => return Err(malformed(format!("pixels of {other:?} are not read"))),
        }
    }
    Ok(bytes)
}

/// Turns an image upright.
fn oriented(mut image: RgbImage, orientation: Orientation, work: &Work) -> Result<RgbImage, MediaError> {
    let (transpose, horizontally, vertically) = match orientation {
        2 => (false, true, false),
        3 => (false, true, true),
        4 => (false, false, true),
        // About the diagonal from the upper left; then it is turned by flipping.
        5 => (true, false, false),
        6 => (true, true, false),
        7 => (true, true, true),
        8 => (true, false, true),
        _ => return Ok(image),
    };
    if transpose {
        image = image.transposed(work)?;
    }
    if horizontally {
        image.flip_horizontally(work)?;
    }
    if vertically {
        image.flip_vertically(work)?;
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::{CancelToken, RunControl};

    /// Sizes of which the first is decoded here, and the second on another thread.
    #[test]
    fn large_images_are_decoded_as_small_ones() {
        use image::ExtendedColorType::Rgb8;
        use image::codecs::{jpeg::JpegEncoder, webp::WebPEncoder};

        let work = Work::default();
        for (width, height) in [(511, 512), (513, 512)] {
            let pixels: Vec<u8> = (0..width * height * 3u32)
                .map(|at| (at / 3 % width / 4) as u8)
                .collect();
            let mut webp = Vec::new();
            let encoder = WebPEncoder::new_lossless(&mut webp);
            encoder.encode(&pixels, width, height, Rgb8).unwrap();
            let image = RgbImage::decode(&webp, &work).unwrap();
            assert_eq!((image.width(), image.height()), (width as usize, height as usize));
            assert!(image.bytes() == pixels);

            let mut jpeg = Vec::new();
            let mut encoder = JpegEncoder::new_with_quality(&mut jpeg, 100);
            encoder.encode(&pixels, width, height, Rgb8).unwrap();
            let image = RgbImage::decode(&jpeg, &work).unwrap();
            assert_eq!((image.width(), image.height()), (width as usize, height as usize));
            let near = |(a, b): (&u8, &u8)| a.abs_diff(*b) <= 4;
            assert!(image.bytes().iter().zip(&pixels).all(near));
        }
    }

    /// Passes over all pixels take no memory on the way, so that nothing else looks.
    #[test]
    fn every_pass_over_the_pixels_ends_when_it_is_asked_to() {
        let side = 1024;
        let token = CancelToken::new();
        let work = Work::new(&RunControl {
            cancel: Some(token.clone()),
            deadline: None,
        });
        let mut image = RgbImage::filled(side, side, 7, &work).unwrap();
        let file = vec![0xFF; 1 << 24];
        token.request();
        assert_eq!(image.flip_horizontally(&work), Err(MediaError::Cancelled));
        assert_eq!(image.flip_vertically(&work), Err(MediaError::Cancelled));
        assert_eq!(jpeg_is_whole(&file, &work), Err(MediaError::Cancelled));
        let notes = [b"RIFF\0\0\0\0WEBPXMP \0\0\0\x01", &file[..]].concat();
        assert_eq!(notes::of_webp(&notes, &work), Err(MediaError::Cancelled));
    }
}
