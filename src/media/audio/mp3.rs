//! MP3 files, frame by frame (ISO/IEC 11172-3 and 13818-3).
//!
//! The first frame may hold a tag (Xing, Info) and not sound: how many frames there are, and, where
//! LAME or Lavc wrote it, how many samples encoding has put before and behind the sound. These
//! are left out, as minimp3 and mpg123 do it.

use nanomp3::{DecodeError, Decoder, MAX_SAMPLES_PER_FRAME, VbrTag};

use super::decode::{Mixer, Sound, malformed};
use crate::media::{MediaError, Work};

/// Bytes that are searched for a frame at once: a frame counts where others follow it.
const WINDOW: usize = 1 << 16;
/// No frame and the header behind it are longer.
const MOST_OF_FRAME: usize = 1 << 13;
/// What the decoder itself puts before the sound.
const DECODER_DELAY: u64 = 529;
/// Operations for each byte that is searched.
const SEARCH: usize = 16;

pub(super) fn decode(encoded: &[u8], work: &Work) -> Result<Sound, MediaError> {
    let mut rest = nanomp3::strip_tags(encoded);
    let first = loop {
        let window = rest.get(..WINDOW).unwrap_or(rest);
        work.count(SEARCH * window.len())?;
        if let Some(found) = nanomp3::frames(window).next() {
            rest = rest.get(found.offset..).unwrap_or_default();
            break found;
        }
        if window.len() == rest.len() {
            return Err(malformed("it has no whole frame"));
        }
        rest = rest.get(WINDOW - MOST_OF_FRAME..).unwrap_or_default();
    };
    let mut mixer = Mixer::new(first.sample_rate, first.channels.num().into(), work)?;
    let mut span = Span::default();
    if let Some(tag) = VbrTag::parse(first.data) {
        span = Span::of(tag, first.samples as u64);
        rest = rest.get(first.data.len()..).unwrap_or_default();
    }
    let mut decoder = Decoder::new();
    let mut pcm = work.filled(MAX_SAMPLES_PER_FRAME, 0f32)?;
    while !rest.is_empty() && !span.is_done() {
        let (consumed, outcome) = next(&mut decoder, rest, &mut pcm, work)?;
        rest = rest.get(consumed..).unwrap_or_default();
        let frame = match outcome {
            Ok(frame) => frame,
            // What it depends on is not there, or it is spoilt: it has its place in the count of those
            // that are skipped.
            Err(DecodeError::ReservoirUnavailable(_) | DecodeError::Corrupt(_)) => {
                span.skip(first.samples as u64);
                continue;
            }
            Err(_) => continue,
        };
        let same = frame.sample_rate == first.sample_rate
            && frame.layer == first.layer
            && frame.channels == first.channels;
        if !same {
            return Err(malformed("its rate, layer or number of channels changes"));
        }
        let taken = span.take(frame.samples_produced as u64);
        mixer.room(taken.len())?;
        let channels = mixer.channels;
        let frames = pcm.chunks_exact(channels).skip(taken.start).take(taken.len());
        for frame in frames {
            mixer.frame(frame.iter().map(|&sample| f64::from(sample)))?;
        }
    }
    Ok(mixer.done())
}

type Outcome = Result<nanomp3::FrameInfo, DecodeError>;

/// Decodes the next frame; also how many bytes go with it.
fn next(
    decoder: &mut Decoder,
    rest: &[u8],
    pcm: &mut [f32],
    work: &Work,
) -> Result<(usize, Outcome), MediaError> {
    let window = rest.get(..WINDOW).unwrap_or(rest);
    if window.len() < MOST_OF_FRAME {
        // Perhaps the last frame: a decoder knows a frame by the header behind it, or by the end.
        // Of a file that is cut off, up to three bytes of the next header may be in the way.
        for cut in 0..window.len().min(4) {
            let whole = window.get(..window.len() - cut).unwrap_or_default();
            let mut attempt = decoder.clone();
            let (consumed, outcome) = attempt.decode(whole, pcm);
            if !matches!(outcome, Err(DecodeError::NoFrame)) {
                *decoder = attempt;
                return Ok((consumed, outcome));
            }
        }
        return Ok((rest.len(), Err(DecodeError::NoFrame)));
    }
    let (consumed, outcome) = decoder.decode(window, pcm);
    if !matches!(outcome, Err(DecodeError::NoFrame)) {
        work.count(SEARCH * consumed)?;
        return Ok((consumed, outcome));
    }
    work.count(SEARCH * window.len())?;
    let passed = match window.len() == rest.len() {
        true => window.len(),
        // A frame may begin in it and end behind it.
        false => WINDOW - MOST_OF_FRAME,
    };
    Ok((passed, outcome))
}

/// Which of the decoded samples, of each channel, are of the sound.
#[derive(Default)]
struct Span {
    /// Before it.
    skipped: u64,
    /// Of it; `None` goes to the end.
    left: Option<u64>,
}

impl Span {
    fn of(tag: VbrTag, frame: u64) -> Self {
        let Some(frames) = tag.frames else {
            return Span::default();
        };
        let (delay, padding) = match tag.encoder_delay_padding {
            Some((delay, padding)) => (
                u64::from(delay) + DECODER_DELAY,
                u64::from(padding).saturating_sub(DECODER_DELAY),
            ),
            None => (0, 0),
        };
        let all = frame * u64::from(frames);
        let all = all.checked_sub(delay).unwrap_or(all);
        let all = all.checked_sub(padding).unwrap_or(all);
        Span {
            skipped: delay,
            left: (all > 0).then_some(all),
        }
    }

    fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    fn skip(&mut self, count: u64) {
        self.skipped = self.skipped.saturating_sub(count);
    }

    /// What there is to take of the next samples.
    fn take(&mut self, count: u64) -> std::ops::Range<usize> {
        let start = self.skipped.min(count);
        self.skipped -= start;
        let end = match &mut self.left {
            Some(left) => {
                let taken = (count - start).min(*left);
                *left -= taken;
                start + taken
            }
            None => count,
        };
        start as usize..end as usize
    }
}
