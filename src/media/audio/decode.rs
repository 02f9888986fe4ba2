use std::fmt;

use super::{mp3, wav};
use crate::media::work::Source;
use crate::media::{MediaError, Work};

/// The most samples that a sound may have, of each channel: 1 GiB.
pub(super) const MAX_SAMPLES: usize = 1 << 28;
/// The most samples in a second.
pub(super) const MAX_RATE: u32 = 1_000_000;
const MAX_CHANNELS: u32 = 255;

/// One channel of samples, about -1 to 1.
#[derive(Clone, PartialEq)]
pub struct Sound {
    rate: u32,
    samples: Vec<f32>,
}

impl fmt::Debug for Sound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Sound {{ {} samples at {} Hz }}",
            self.samples.len(),
            self.rate
        )
    }
}

impl Sound {
    /// Mixes raw samples down to one channel, their mean (as librosa's `to_mono`). `samples` are
    /// interleaved: the first of each channel, the second of each, ...
    pub fn from_raw(rate: u32, channels: u32, samples: &[f32], work: &Work) -> Result<Self, MediaError> {
        let mut mixer = Mixer::new(rate, channels, work)?;
        let width = mixer.channels;
        if !samples.len().is_multiple_of(width) {
            return Err(MediaError::Argument {
                message: format!(
                    "{} samples are not the same number for {channels} channels",
                    samples.len()
                ),
            });
        }
        mixer.room(samples.len() / width)?;
        for frame in samples.chunks_exact(width) {
            mixer.frame(frame.iter().map(|&sample| f64::from(sample)))?;
        }
        Ok(mixer.done())
    }

    /// Decodes a WAV (PCM of 8 to 32 bits, floats of 32 or 64), FLAC or MP3 file, known by its
    /// first bytes, and mixes it down to one channel. Whole numbers are divided by the largest
    /// power of two that they can have, so that they are in -1..1. Of an MP3 file that is cut off
    /// it is the sound of the whole frames, as every decoder of these has it.
    pub fn decode(encoded: &[u8], work: &Work) -> Result<Self, MediaError> {
        work.look()?;
        match encoded {
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => wav::decode(encoded, work),
            [b'f', b'L', b'a', b'C', ..] => flac(encoded, work),
            _ if nanomp3::detect(encoded) => mp3::decode(encoded, work),
            _ => Err(MediaError::UnknownFormat {
                kind: "sound",
                known: "WAV, FLAC and MP3",
            }),
        }
    }

    /// Samples of one channel in a second.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    pub fn samples(&self) -> &[f32] {
        &self.samples
    }
}

/// Takes frames of all channels and keeps their mean.
pub(super) struct Mixer<'w> {
    rate: u32,
    pub channels: usize,
    samples: Vec<f32>,
    work: &'w Work,
}

impl<'w> Mixer<'w> {
    pub fn new(rate: u32, channels: u32, work: &'w Work) -> Result<Self, MediaError> {
        let wrong = |what: &str, most: u32| MediaError::Argument {
            message: format!("{what}; from 1 to {most} is possible"),
        };
        if rate == 0 || rate > MAX_RATE {
            return Err(wrong(&format!("a rate of {rate} Hz"), MAX_RATE));
        }
        if channels == 0 || channels > MAX_CHANNELS {
            return Err(wrong(&format!("{channels} channels"), MAX_CHANNELS));
        }
        Ok(Mixer {
            rate,
            channels: channels as usize,
            samples: Vec::new(),
            work,
        })
    }

    /// Room for as many frames more.
    pub fn room(&mut self, frames: usize) -> Result<(), MediaError> {
        let all = self.samples.len().saturating_add(frames);
        if all > MAX_SAMPLES {
            return Err(MediaError::TooLarge {
                what: "a sound",
                found: format!("{all} samples"),
                most: MAX_SAMPLES.to_string(),
            });
        }
        self.samples
            .try_reserve(frames)
            .map_err(|_| MediaError::OutOfMemory {
                bytes: 4 * frames as u64,
            })
    }

    pub fn frame(&mut self, samples: impl Iterator<Item = f64>) -> Result<(), MediaError> {
        // Decoding a sample comes to some dozen operations.
        self.work.count(16 * self.channels)?;
        let mut sum = 0.0;
        for sample in samples {
            sum += sample;
        }
        self.samples.push((sum / self.channels as f64) as f32);
        Ok(())
    }

    pub fn done(self) -> Sound {
        Sound {
            rate: self.rate,
            samples: self.samples,
        }
    }
}

pub(super) fn malformed(message: impl Into<String>) -> MediaError {
    MediaError::Malformed {
        kind: "sound",
        message: message.into(),
    }
}

fn flac(encoded: &[u8], work: &Work) -> Result<Sound, MediaError> {
    // That the source had no more to give is no fault of the file.
    let wrong = |error: claxon::Error| match work.look() {
        Ok(()) => malformed(error.to_string()),
        Err(ended) => ended,
    };
    // Of the other blocks nothing is needed, and one could be large.
    let options = claxon::FlacReaderOptions {
        metadata_only: false,
        read_vorbis_comment: false,
    };
    let mut reader = claxon::FlacReader::new_ext(Source::new(encoded, work), options).map_err(wrong)?;
    let info = reader.streaminfo();
    let mut mixer = Mixer::new(info.sample_rate, info.channels, work)?;
    if info.bits_per_sample == 0 || info.bits_per_sample > 32 {
        return Err(malformed(format!(
            "it has {} bits in a sample",
            info.bits_per_sample
        )));
    }
    let scale = 1.0 / (1u64 << (info.bits_per_sample - 1)) as f64;
    let mut blocks = reader.blocks();
    let mut buffer = Vec::new();
    let mut count = 0u64;
    while let Some(block) = blocks.read_next_or_eof(buffer).map_err(wrong)? {
        if block.channels() != info.channels {
            return Err(malformed("the number of its channels changes"));
        }
        mixer.room(block.duration() as usize)?;
        for index in 0..block.duration() {
            mixer.frame(
                (0..block.channels()).map(|channel| f64::from(block.sample(channel, index)) * scale),
            )?;
        }
        count += u64::from(block.duration());
        buffer = block.into_buffer();
    }
    match info.samples {
        Some(said) if said != count => Err(malformed(format!(
            "it says that it has {said} samples, and has {count}"
        ))),
        _ => Ok(mixer.done()),
    }
}
