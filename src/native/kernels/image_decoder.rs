//! ImageDecoder: the pixels of an encoded image. ai.onnx 20.
//!
//!   encoded uint8 [n] -> image uint8 [height, width, C], C = 3, or 1 for "Grayscale"
//!
//! BMP, JPEG, PNG, PNM, TIFF and WebP, known by their first bytes. "Grayscale" of a pixel of
//! colour is (19595 R + 38470 G + 7471 B + 2^15) / 2^16, rounded down: ITU-R 601 as Pillow, and
//! with it ONNX's reference, computes it. Transparency is left out. What cannot be decoded, also
//! because it is too large, gives [0, 0, C]: that is what the definition asks for.

use std::io::Cursor;

use image::{ColorType, ImageDecoder as _, ImageReader, Limits};

use super::Built;
use super::infer::input_dims;
use crate::native::element::ElementType;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};

/// The bytes that the pixels of an image, as it stores them, may take: a header of a few bytes can
/// ask for any number.
const LARGEST: u64 = 1 << 27;

#[derive(Clone, Copy, Debug)]
enum PixelFormat {
    Rgb,
    Bgr,
    Grayscale,
}

impl PixelFormat {
    fn channels(self) -> usize {
        match self {
            PixelFormat::Rgb | PixelFormat::Bgr => 3,
            PixelFormat::Grayscale => 1,
        }
    }
}

#[derive(Debug)]
struct ImageDecoder {
    format: PixelFormat,
}

pub(in crate::native) fn image_decoder(node: &NodeInfo<'_>) -> Built {
    let format = match node.string_or("pixel_format", "RGB")? {
        "RGB" => PixelFormat::Rgb,
        "BGR" => PixelFormat::Bgr,
        "Grayscale" => PixelFormat::Grayscale,
        other => {
            return Err(OpError::Attribute {
                name: "pixel_format".into(),
                message: format!("is \"{other}\", expected RGB, BGR or Grayscale"),
            });
        }
    };
    Ok(Box::new(ImageDecoder { format }))
}

impl Operator for ImageDecoder {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        if let Some(dims) = input_dims(cx, 0)
            && dims.len() != 1
        {
            return Err(OpError::Message(format!(
                "input 0 has dims {dims:?}, expected the bytes of one image"
            )));
        }
        let channels = SymDim::Fixed(self.format.channels());
        let dims = SymDims::from_slice(&[SymDim::Unknown, SymDim::Unknown, channels]);
        cx.set_output(0, Some(ElementType::Uint8), Some(dims));
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let encoded = cx.required(0)?;
        let channels = self.format.channels();
        let Some(pixels) = decode(cx, encoded.slice::<u8>()?)? else {
            return cx.output::<u8>(0, &[0, 0, channels])?.copy_from(&[]);
        };
        let to = cx
            .output::<u8>(0, &[pixels.height, pixels.width, channels])?
            .into_mut();
        let from = pixels.bytes.chunks_exact(pixels.color.bytes_per_pixel().into());
        for (to, from) in to.chunks_exact_mut(channels).zip(from) {
            let rgb = pixels.rgb(from);
            match self.format {
                PixelFormat::Rgb => to.copy_from_slice(&rgb),
                PixelFormat::Bgr => to.copy_from_slice(&[rgb[2], rgb[1], rgb[0]]),
                PixelFormat::Grayscale => to.copy_from_slice(&[luma(rgb)]),
            }
        }
        Ok(())
    }
}

struct Pixels<'a> {
    height: usize,
    width: usize,
    color: ColorType,
    bytes: &'a [u8],
}

/// `None` for what is no image that can be decoded.
fn decode<'a>(cx: &mut RunContext<'a>, encoded: &[u8]) -> Result<Option<Pixels<'a>>, OpError> {
    let mut limits = Limits::default();
    limits.max_alloc = Some(LARGEST);
    let mut reader = ImageReader::new(Cursor::new(encoded));
    reader.limits(limits);
    let decoder = match reader.with_guessed_format() {
        Ok(reader) => reader.into_decoder(),
        Err(_) => return Ok(None),
    };
    let Ok(decoder) = decoder else {
        return Ok(None);
    };
    // Not every decoder of the crate keeps to the limits.
    if decoder.total_bytes() > LARGEST {
        return Ok(None);
    }
    let (width, height) = decoder.dimensions();
    let color = decoder.color_type();
    let bytes = cx.scratch::<u8>(decoder.total_bytes() as usize)?;
    Ok(decoder.read_image(bytes).ok().map(|()| Pixels {
        height: height as usize,
        width: width as usize,
        color,
        bytes,
    }))
}

impl Pixels<'_> {
    fn rgb(&self, pixel: &[u8]) -> [u8; 3] {
        let channels = usize::from(self.color.channel_count());
        let size = pixel.len() / channels;
        let sample = |channel: usize| match pixel[channel * size..][..size] {
            [value] => value,
            // Of the largest value, as a part of 255.
            [a, b] => ((u32::from(u16::from_ne_bytes([a, b])) + 128) / 257) as u8,
            [a, b, c, d] => (f32::from_ne_bytes([a, b, c, d]).clamp(0.0, 1.0) * 255.0).round() as u8,
            _ => 0,
        };
        match channels {
            // Gray, and transparency.
            1 | 2 => [sample(0); 3],
            _ => [sample(0), sample(1), sample(2)],
        }
    }
}

/// A gray pixel's is its value: the weights sum to 2^16.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    let [red, green, blue] = [red, green, blue].map(u32::from);
    ((19595 * red + 38470 * green + 7471 * blue + (1 << 15)) >> 16) as u8
}
