//! Another rate, by band-limited interpolation with a Hann-windowed sinc: what
//! `torchaudio.functional.resample` does with its defaults, after J. O. Smith, "Digital audio
//! resampling" (<https://ccrma.stanford.edu/~jos/resample/>).
//!
//! Of input x at rate r, output at rate R, both divided by their greatest common divisor:
//!
//! ```text
//! y[i] = sum over j of x[j] (b / r) sinc(t) cos^2(pi t / (2 L)),   |t| < L
//! t = (j / r - i / R) b,   b = 0.99 min(r, R),   L = 6 (crossings of zero on each side)
//! ```
//!
//! for i in 0 .. ceil(n R / r); x is 0 outside. Sums are in f64.

use super::decode::MAX_SAMPLES;
use crate::media::{MediaError, Work};

const CROSSINGS: f64 = 6.0;
const ROLLOFF: f64 = 0.99;
/// The most weights that are kept for use again.
const MOST_WEIGHTS: usize = 1 << 20;

pub(super) fn resample(samples: &[f32], from: u32, to: u32, work: &Work) -> Result<Vec<f32>, MediaError> {
    let divisor = gcd(from, to);
    let (from, to) = (u64::from(from / divisor), u64::from(to / divisor));
    let count = (samples.len() as u128 * u128::from(to)).div_ceil(u128::from(from));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > MAX_SAMPLES {
        return Err(MediaError::TooLarge {
            what: "a sound",
            found: format!("{count} samples after resampling"),
            most: MAX_SAMPLES.to_string(),
        });
    }
    let mut output = work.room(count)?;
    if from == to {
        output.extend_from_slice(samples);
        return Ok(output);
    }
    let kernel = Kernel {
        from: from as f64,
        to: to as f64,
        band: from.min(to) as f64 * ROLLOFF,
    };
    // The weights repeat after `to` outputs, which are `from` inputs.
    let taps = (2.0 * CROSSINGS * kernel.from / kernel.band) as usize + 2;
    let repeats = (to as usize).saturating_mul(taps) <= MOST_WEIGHTS;
    let mut phases: Vec<(i64, Vec<f64>)> = Vec::new();
    let mut own = Vec::new();
    for index in 0..count as u64 {
        let (turn, phase) = (index / to, index % to);
        let start = (turn * from) as i64;
        let (first, weights) = match repeats {
            true => {
                if phases.len() as u64 == phase {
                    let mut weights = Vec::with_capacity(taps);
                    let first = kernel.weights(phase, &mut weights, work)?;
                    phases.push((first, weights));
                }
                match phases.get(phase as usize) {
                    Some((first, weights)) => (*first, weights.as_slice()),
                    None => (0, &[][..]),
                }
            }
            false => {
                own.clear();
                let first = kernel.weights(phase, &mut own, work)?;
                (first, own.as_slice())
            }
        };
        let first = start + first;
        work.count(2 * taps)?;
        let skip = usize::try_from(-first).unwrap_or(0);
        let at = usize::try_from(first).unwrap_or(0);
        let inputs = samples.get(at..).unwrap_or_default();
        let mut sum = 0.0;
        for (weight, &sample) in weights.iter().skip(skip).zip(inputs) {
            sum += weight * f64::from(sample);
        }
        output.push(sum as f32);
    }
    Ok(output)
}

fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

struct Kernel {
    from: f64,
    to: f64,
    band: f64,
}

impl Kernel {
    /// The weights of the inputs around output `phase`, and where the first input is.
    fn weights(&self, phase: u64, weights: &mut Vec<f64>, work: &Work) -> Result<i64, MediaError> {
        let centre = phase as f64 / self.to;
        let reach = CROSSINGS / self.band;
        let first = ((centre - reach) * self.from).ceil() as i64;
        let last = ((centre + reach) * self.from).floor() as i64;
        let scale = self.band / self.from;
        let weight = |input: i64| {
            let t = (input as f64 / self.from - centre) * self.band;
            let t = t.clamp(-CROSSINGS, CROSSINGS);
            let window = libm::cos(t * std::f64::consts::PI / CROSSINGS / 2.0);
            let angle = t * std::f64::consts::PI;
            let sinc = match angle == 0.0 {
                true => 1.0,
                false => libm::sin(angle) / angle,
            };
            sinc * window * window * scale
        };
        for input in first..=last {
            // A sine and a cosine.
            work.count(64)?;
            weights.push(weight(input));
        }
        Ok(first)
    }
}
