//! Log-mel features as transformers' WhisperFeatureExtractor has them (4.57, without torch):
//!
//! ```text
//! frames of N samples, every H-th sample in the middle of one, the sound mirrored at its ends
//! ("reflect"), times a Hann window 1/2 - 1/2 cos(2 pi n / N)
//! P[k] = |DFT(frame)[k]|^2,   k = 0 ..= N / 2
//! mel[m] = log10(max(1e-10, sum over k of w[m][k] P[k])),   the last frame left out
//! ```
//!
//! w are triangles over the mel scale from 0 Hz up to f_max, of equal area (Slaney, "Auditory
//! Toolbox", 1998): linear up to 1000 Hz (3/200 mel for each Hz), logarithmic above
//! (15 + 27 ln(f / 1000) / ln 6.4).

use super::fourier::Fourier;
use super::program::{LogMel, MelScale};
use crate::media::{MediaError, Work};

const FLOOR: f64 = 1e-10;

/// `[bins, frames]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Features {
    pub bins: usize,
    pub frames: usize,
    pub numbers: Vec<f32>,
}

impl LogMel {
    /// Frames that a sound of so many samples has.
    pub(super) fn frames(&self, samples: usize) -> usize {
        samples / self.hop
    }

    pub(super) fn features(&self, samples: &[f32], work: &Work) -> Result<Features, MediaError> {
        let frames = self.frames(samples.len());
        let size = self.size;
        let mut numbers = work.filled(frames.saturating_mul(self.bins), 0f32)?;
        let window = window(size, work)?;
        let filters = self.filters(work)?;
        let weights: usize = filters.iter().map(|filter| filter.weights.len()).sum();
        let mut fourier = Fourier::new(size, work)?;
        let mut input = work.filled(size, [0.0f64; 2])?;
        let mut output = work.filled(size, [0.0f64; 2])?;
        let mut power = work.filled(size / 2 + 1, 0.0f64)?;
        // Two frames at once, as the real and the imaginary part of one transform.
        for first in (0..frames).step_by(2) {
            for (n, (to, window)) in input.iter_mut().zip(&window).enumerate() {
                let at = |frame: usize| mirrored(samples, (frame * self.hop + n) as i64 - (size / 2) as i64);
                *to = [at(first) * window, at(first + 1) * window];
            }
            work.count(8 * size + 4 * weights)?;
            fourier.run(&input, &mut output, work)?;
            for (frame, part) in [(first, 1.0), (first + 1, -1.0)] {
                if frame >= frames {
                    continue;
                }
                for (k, power) in power.iter_mut().enumerate() {
                    let [re, im] = output.get(k).copied().unwrap_or_default();
                    let [re_, im_] = output.get((size - k) % size).copied().unwrap_or_default();
                    // X = (Y[k] + conj Y[-k]) / 2, or (Y[k] - conj Y[-k]) / 2i for the other.
                    let (a, b) = ((re + part * re_) / 2.0, (im - part * im_) / 2.0);
                    *power = a * a + b * b;
                }
                for (bin, filter) in filters.iter().enumerate() {
                    let powers = power.get(filter.first..).unwrap_or_default();
                    let mut sum = 0.0;
                    for (weight, power) in filter.weights.iter().zip(powers) {
                        sum += weight * power;
                    }
                    if let Some(to) = numbers.get_mut(bin * frames + frame) {
                        *to = libm::log10(sum.max(FLOOR)) as f32;
                    }
                }
            }
        }
        Ok(Features {
            bins: self.bins,
            frames,
            numbers,
        })
    }

    fn filters(&self, work: &Work) -> Result<Vec<Triangle>, MediaError> {
        let (low, high) = (self.scale.mel(0.0), self.scale.mel(self.highest));
        // The ends of the triangles: each begins and ends in the middle of its neighbours.
        let edge = |index: usize| {
            let step = (high - low) / (self.bins + 1) as f64;
            self.scale.hertz(low + step * index as f64)
        };
        let lines = self.size / 2 + 1;
        // numpy's linspace: the last is exact.
        let nyquist = f64::from(self.rate / 2);
        let hertz = |k: usize| nyquist * k as f64 / (lines - 1).max(1) as f64;
        let mut filters = work.room(self.bins)?;
        // Triangles begin one behind the other.
        let mut before = 0;
        for bin in 0..self.bins {
            let (from, middle, to) = (edge(bin), edge(bin + 1), edge(bin + 2));
            let area = 2.0 / (to - from);
            let weight = |k: usize| {
                let up = (hertz(k) - from) / (middle - from);
                let down = (to - hertz(k)) / (to - middle);
                up.min(down).max(0.0) * area
            };
            while before < lines && hertz(before) <= from {
                before += 1;
            }
            let within = |&k: &usize| weight(k) > 0.0;
            let first = Some(before).filter(|k| *k < lines && within(k)).unwrap_or(lines);
            let weights: Vec<f64> = (first..lines).take_while(within).map(weight).collect();
            work.count(16 * (1 + weights.len()))?;
            filters.push(Triangle { first, weights });
        }
        Ok(filters)
    }
}

struct Triangle {
    first: usize,
    weights: Vec<f64>,
}

impl MelScale {
    fn mel(self, hertz: f64) -> f64 {
        match self {
            MelScale::Slaney if hertz < 1000.0 => 3.0 * hertz / 200.0,
            MelScale::Slaney => 15.0 + libm::log(hertz / 1000.0) * 27.0 / libm::log(6.4),
            MelScale::Htk => 2595.0 * libm::log10(1.0 + hertz / 700.0),
        }
    }

    fn hertz(self, mel: f64) -> f64 {
        match self {
            MelScale::Slaney if mel < 15.0 => 200.0 * mel / 3.0,
            MelScale::Slaney => 1000.0 * libm::exp(libm::log(6.4) / 27.0 * (mel - 15.0)),
            MelScale::Htk => 700.0 * (libm::pow(10.0, mel / 2595.0) - 1.0),
        }
    }
}

fn window(size: usize, work: &Work) -> Result<Vec<f64>, MediaError> {
    let mut window = work.room(size)?;
    window.extend((0..size).map(|n| {
        let turn = std::f64::consts::TAU * n as f64 / size as f64;
        0.5 - 0.5 * libm::cos(turn)
    }));
    Ok(window)
}

/// A sample, mirrored about the first and the last one as often as is needed.
fn mirrored(samples: &[f32], at: i64) -> f64 {
    let last = samples.len() as i64 - 1;
    if last <= 0 {
        return samples.first().copied().unwrap_or(0.0).into();
    }
    let at = at.rem_euclid(2 * last);
    let at = at.min(2 * last - at);
    usize::try_from(at)
        .ok()
        .and_then(|at| samples.get(at))
        .copied()
        .unwrap_or(0.0)
        .into()
}
