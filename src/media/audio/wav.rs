//! RIFF WAVE: chunks of a name, a length and bytes, of which "fmt " says how the samples in
//! "data" are written. Microsoft, "Multimedia Programming Interface and Data Specifications 1.0"
//! (1991), and the extensible format of "Multiple Channel Audio Data and WAVE Files".

use super::decode::{Mixer, Sound, malformed};
use crate::media::{MediaError, Work};

const PCM: u16 = 1;
const FLOAT: u16 = 3;
const EXTENSIBLE: u16 = 0xFFFE;
/// What a writer that cannot go back says instead of the length.
const UNKNOWN: u32 = u32::MAX;

pub(super) fn decode(encoded: &[u8], work: &Work) -> Result<Sound, MediaError> {
    let mut rest = encoded.get(12..).unwrap_or_default();
    let mut format = None;
    loop {
        let Some((header, tail)) = rest.split_first_chunk::<8>() else {
            return Err(malformed("the WAV file has no \"data\" chunk"));
        };
        let [a, b, c, d, length @ ..] = *header;
        let length = u32::from_le_bytes(length);
        let name = [a, b, c, d];
        let size = match length {
            UNKNOWN if name == *b"data" => tail.len(),
            length => length as usize,
        };
        let Some(chunk) = tail.get(..size) else {
            return Err(malformed(format!(
                "the chunk \"{}\" of {size} bytes is cut off after {}",
                name.escape_ascii(),
                tail.len()
            )));
        };
        match &name {
            b"fmt " => format = Some(Format::read(chunk)?),
            b"data" => {
                let format = format.ok_or_else(|| malformed("\"data\" comes before \"fmt \""))?;
                return format.samples(chunk, work);
            }
            _ => {}
        }
        // A chunk of an odd length is followed by a byte that fills it up.
        rest = tail.get(size + size % 2..).unwrap_or_default();
    }
}

struct Format {
    channels: u16,
    rate: u32,
    float: bool,
    /// Bytes of a sample.
    width: usize,
}

impl Format {
    fn read(chunk: &[u8]) -> Result<Self, MediaError> {
        let short = |at: usize| match chunk.get(at..at + 2) {
            Some([low, high]) => Ok(u16::from_le_bytes([*low, *high])),
            _ => Err(malformed("the chunk \"fmt \" is too short")),
        };
        let mut tag = short(0)?;
        let channels = short(2)?;
        let rate = u32::from(short(4)?) | u32::from(short(6)?) << 16;
        let bits = short(14)?;
        if tag == EXTENSIBLE {
            // The first two bytes of the format's GUID.
            tag = short(24)?;
        }
        let width = usize::from(bits.div_ceil(8));
        let float = match (tag, bits) {
            (PCM, 8 | 16 | 24 | 32) => false,
            (FLOAT, 32 | 64) => true,
            _ => {
                return Err(malformed(format!(
                    "WAV samples of format {tag} with {bits} bits are not read; PCM of 8, 16, 24 or 32 and floats \
                     of 32 or 64 are"
                )));
            }
        };
        if usize::from(short(12)?) != width * usize::from(channels) {
            return Err(malformed("the size of a frame is not that of its samples"));
        }
        Ok(Format {
            channels,
            rate,
            float,
            width,
        })
    }

    fn samples(&self, data: &[u8], work: &Work) -> Result<Sound, MediaError> {
        let mut mixer = Mixer::new(self.rate, self.channels.into(), work)?;
        let frame = self.width * usize::from(self.channels);
        mixer.room(data.len() / frame)?;
        for frame in data.chunks_exact(frame) {
            mixer.frame(frame.chunks_exact(self.width).map(|sample| self.sample(sample)))?;
        }
        Ok(mixer.done())
    }

    fn sample(&self, bytes: &[u8]) -> f64 {
        let whole = |value: i32, bits: u32| f64::from(value) / (1u64 << (bits - 1)) as f64;
        match *bytes {
            [a] => whole(i32::from(a) - 128, 8),
            [a, b] => whole(i16::from_le_bytes([a, b]).into(), 16),
            [a, b, c] => whole(i32::from_le_bytes([0, a, b, c]), 32),
            [a, b, c, d] if self.float => f32::from_le_bytes([a, b, c, d]).into(),
            [a, b, c, d] => whole(i32::from_le_bytes([a, b, c, d]), 32),
            [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => 0.0,
        }
    }
}
