//! JPEG files, read so that the call can end.
//!
//! The decoder reads bytes while it makes coefficients of them, and looks at an error of its source.
//! Of a progressive file all pixels come in one pass behind that, so large files are decoded on a thread
//! of their own (see `decode`).

use std::cell::Cell;

use image::ColorType;
use zune_core::bytestream::{ZByteIoError, ZByteReaderTrait, ZSeekFrom};
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::decode::{malformed, rgb};
use super::rgb::{MAX_SIDE, RgbImage, check_size};
use crate::media::work::Source;
use crate::media::{MediaError, Work};

const COMPONENTS: usize = 4;

fn options() -> DecoderOptions {
    DecoderOptions::default()
        .set_strict_mode(false)
        .set_max_width(MAX_SIDE)
        .set_max_height(MAX_SIDE)
}

/// Width and height, by the file's header.
pub(super) fn size(encoded: &[u8], work: &Work) -> Result<(usize, usize), MediaError> {
    let source = Input {
        source: Source::new(encoded, work),
        ended: &Cell::new(false),
    };
    let mut header = JpegDecoder::new_with_options(source, options());
    header.decode_headers().map_err(|error| match work.look() {
        Ok(()) => malformed(error.to_string()),
        Err(ended) => ended,
    })?;
    let (width, height) = header.dimensions().ok_or_else(no_header)?;
    check_size(width as u64, height as u64)
}

fn no_header() -> MediaError {
    malformed("the JPEG file has no header of an image")
}

pub(super) fn decode(encoded: &[u8], work: &Work) -> Result<RgbImage, MediaError> {
    let options = options();
    let ended = Cell::new(false);
    let source = || Input {
        source: Source::new(encoded, work),
        ended: &ended,
    };
    let failed = |error: zune_jpeg::errors::DecodeErrors| match work.look() {
        Ok(()) => malformed(error.to_string()),
        Err(ended) => ended,
    };
    let mut header = JpegDecoder::new_with_options(source(), options);
    header.decode_headers().map_err(failed)?;
    let (width, height) = header.dimensions().ok_or_else(no_header)?;
    let (width, height) = check_size(width as u64, height as u64)?;
    let (space, color) = match header.input_colorspace().ok_or_else(no_header)? {
        ColorSpace::Luma => (ColorSpace::Luma, ColorType::L8),
        ColorSpace::LumaA => (ColorSpace::LumaA, ColorType::La8),
        ColorSpace::RGBA => (ColorSpace::RGBA, ColorType::Rgba8),
        _ => (ColorSpace::RGB, ColorType::Rgb8),
    };
    let mut pixels = work.filled(width * height * usize::from(color.bytes_per_pixel()), 0u8)?;
    // It keeps the coefficients of a progressive file, for each of at most four components.
    work.ask(width * height * COMPONENTS * size_of::<i16>())?;
    let mut decoder = JpegDecoder::new_with_options(source(), options.jpeg_set_out_colorspace(space));
    let outcome = decoder.decode_into(&mut pixels);
    if ended.get() {
        // It makes an image of what it has by then.
        work.look()?;
    }
    outcome.map_err(failed)?;
    RgbImage::from_checked(width, height, rgb(color, pixels, work)?)
}

struct Input<'a> {
    source: Source<'a>,
    /// Whether it has refused to go on.
    ended: &'a Cell<bool>,
}

impl Input<'_> {
    fn piece(&self, most: usize) -> Result<&[u8], ZByteIoError> {
        self.source.piece(most).map_err(|error| {
            self.ended.set(true);
            ZByteIoError::StdIoError(error)
        })
    }

    /// Headers of segments are read in bytes and pairs of them, before which the decoder may have been
    /// over the whole image: a scan of no bytes takes it as long as one that has some.
    fn look(&self) -> Result<(), ZByteIoError> {
        self.source.look().map_err(|error| {
            self.ended.set(true);
            ZByteIoError::StdIoError(error)
        })
    }

    fn exact(&self, buffer: &mut [u8]) -> Result<(), ZByteIoError> {
        let mut whole = Source::clone(&self.source);
        let wanted = buffer.len();
        let mut rest = buffer;
        while !rest.is_empty() {
            let piece = whole.piece(rest.len()).map_err(|error| {
                self.ended.set(true);
                ZByteIoError::StdIoError(error)
            })?;
            if piece.is_empty() {
                return Err(ZByteIoError::NotEnoughBytes(wanted - rest.len(), wanted));
            }
            let (to, tail) = rest.split_at_mut(piece.len());
            to.copy_from_slice(piece);
            whole.skip(piece.len());
            rest = tail;
        }
        Ok(())
    }
}

impl ZByteReaderTrait for Input<'_> {
    fn read_byte_no_error(&mut self) -> u8 {
        // Of a refusal `is_eof` tells, which is asked behind each byte.
        self.source.byte().unwrap_or_else(|_| {
            self.ended.set(true);
            0
        })
    }

    fn read_exact_bytes(&mut self, buffer: &mut [u8]) -> Result<(), ZByteIoError> {
        // What is longer is read with each few blocks, and counted.
        if buffer.len() < 4 {
            self.look()?;
        }
        self.exact(buffer)?;
        self.source.skip(buffer.len());
        Ok(())
    }

    fn read_bytes(&mut self, buffer: &mut [u8]) -> Result<usize, ZByteIoError> {
        let count = self.peek_bytes(buffer)?;
        self.source.skip(count);
        Ok(count)
    }

    fn peek_bytes(&mut self, buffer: &mut [u8]) -> Result<usize, ZByteIoError> {
        let piece = self.piece(buffer.len())?;
        let count = piece.len();
        if let Some(to) = buffer.get_mut(..count) {
            to.copy_from_slice(piece);
        }
        Ok(count)
    }

    fn peek_exact_bytes(&mut self, buffer: &mut [u8]) -> Result<(), ZByteIoError> {
        self.exact(buffer)
    }

    fn z_seek(&mut self, from: ZSeekFrom) -> Result<u64, ZByteIoError> {
        use std::io::{Seek, SeekFrom};
        let place = self.source.seek(match from {
            ZSeekFrom::Start(place) => SeekFrom::Start(place),
            ZSeekFrom::End(by) => SeekFrom::End(by),
            ZSeekFrom::Current(by) => SeekFrom::Current(by),
        });
        place.map_err(ZByteIoError::StdIoError)
    }

    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        match self.ended.get() {
            true => Err(ZByteIoError::Generic("the call is to end")),
            false => Ok(self.source.is_at_end()),
        }
    }

    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        Ok(self.source.at() as u64)
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        use std::io::Read;
        self.source.read_to_end(sink).map_err(ZByteIoError::StdIoError)
    }
}
