//! Resizing as Pillow does it (Pillow 13, `src/libImaging/Resample.c` and `Geometry.c`).
//!
//! One output pixel at `i` along an axis of `n` pixels that becomes `m` is the sum of inputs
//! weighted by a filter `f` of support `s`, stretched by `a = max(n / m, 1)` ("antialias"):
//!
//!   c = (i + 0.5) n / m,   first = floor(c - s a + 0.5),   last = floor(c + s a + 0.5),
//!   w(x) = f((x - c + 0.5) / a) / sum of all,   out = (2^21 + sum of in(x) round(2^22 w(x))) >> 22
//!
//! clipped to 0..=255. It is done along the rows first and then, of the bytes that this gives,
//! along the columns; the other way round if the image becomes lower by more than twice of what
//! it becomes narrower (so Pillow 13; the results of versions that always begin with the rows
//! differ by 1 here and there). The filters:
//!
//!   box       1 for -1/2 < x <= 1/2                                         s = 1/2
//!   bilinear  1 - |x|                                                       s = 1
//!   hamming   sin(pi x) / (pi x) (0.54 + 0.46 cos(pi x))                    s = 1
//!   bicubic   (a+2)|x|^3 - (a+3)|x|^2 + 1; a|x|^3 - 5a|x|^2 + 8a|x| - 4a    s = 2, a = -1/2
//!             (Keys, "Cubic convolution interpolation for digital image processing", 1981)
//!   lanczos   sinc(x) sinc(x / 3)                                           s = 3

use super::rgb::{RgbImage, check_size};
use crate::media::{MediaError, Work};

const PRECISION: u32 = 22;

/// How the pixels of a resized image come of the pixels of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    Nearest,
    Box,
    Bilinear,
    Hamming,
    Bicubic,
    Lanczos,
}

impl Filter {
    pub const NAMES: [(&'static str, Filter); 7] = [
        ("nearest", Filter::Nearest),
        ("box", Filter::Box),
        ("bilinear", Filter::Bilinear),
        ("hamming", Filter::Hamming),
        ("bicubic", Filter::Bicubic),
        ("lanczos", Filter::Lanczos),
        ("lanczos3", Filter::Lanczos),
    ];

    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, filter)| *filter == self);
        found.map_or("", |(name, _)| name)
    }

    /// The filter that Pillow gives this number, as preprocessor_config.json writes it.
    pub fn from_pillow(number: u64) -> Option<Self> {
        Some(match number {
            0 => Filter::Nearest,
            1 => Filter::Lanczos,
            2 => Filter::Bilinear,
            3 => Filter::Bicubic,
            4 => Filter::Box,
            5 => Filter::Hamming,
            _ => return None,
        })
    }

    fn support(self) -> f64 {
        match self {
            Filter::Nearest => 0.0,
            Filter::Box => 0.5,
            Filter::Bilinear | Filter::Hamming => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let sinc = |x: f64| match x == 0.0 {
            true => 1.0,
            false => libm::sin(x * std::f64::consts::PI) / (x * std::f64::consts::PI),
        };
        match self {
            Filter::Nearest => 0.0,
            Filter::Box => f64::from(x > -0.5 && x <= 0.5),
            Filter::Bilinear => (1.0 - x.abs()).max(0.0),
            Filter::Hamming => {
                let x = x.abs();
                if x == 0.0 {
                    1.0
                } else if x >= 1.0 {
                    0.0
                } else {
                    let x = x * std::f64::consts::PI;
                    libm::sin(x) / x * (0.54 + 0.46 * libm::cos(x))
                }
            }
            Filter::Bicubic => {
                const A: f64 = -0.5;
                let x = x.abs();
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * A
                } else {
                    0.0
                }
            }
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Filter::Lanczos => 0.0,
        }
    }
}

impl RgbImage {
    /// The whole image at another size; a copy if it has it already.
    pub fn resize(
        &self,
        width: usize,
        height: usize,
        filter: Filter,
        work: &Work,
    ) -> Result<Self, MediaError> {
        let (width, height) = check_size(width as u64, height as u64)?;
        if (width, height) == (self.width(), self.height()) {
            return self.copied(work);
        }
        if filter == Filter::Nearest {
            return nearest(self, width, height, work);
        }
        let (less_wide, less_high) = (
            self.width() as i64 - width as i64,
            self.height() as i64 - height as i64,
        );
        if less_wide == 0 {
            return vertical(self, height, filter, work);
        }
        if less_high == 0 {
            return horizontal(self, width, filter, work);
        }
        // The first pass rounds, so that the order shows.
        match less_high > 0 && less_high > 2 * less_wide {
            true => horizontal(&vertical(self, height, filter, work)?, width, filter, work),
            false => vertical(&horizontal(self, width, filter, work)?, height, filter, work),
        }
    }
}

/// The inputs of one output, and what they are multiplied by.
struct Taps {
    first: usize,
    weights: std::ops::Range<usize>,
}

struct Weights {
    taps: Vec<Taps>,
    all: Vec<i32>,
}

impl Weights {
    fn new(input: usize, output: usize, filter: Filter, work: &Work) -> Result<Self, MediaError> {
        let scale = input as f64 / output as f64;
        let stretch = scale.max(1.0);
        let support = filter.support() * stretch;
        let mut taps = work.room(output)?;
        let mut all = Vec::new();
        let mut exact = Vec::new();
        for index in 0..output {
            let centre = (index as f64 + 0.5) * scale;
            let first = ((centre - support + 0.5) as i64).max(0) as usize;
            let end = ((centre + support + 0.5) as i64).min(input as i64).max(0) as usize;
            exact.clear();
            exact.extend(
                (first..end.max(first)).map(|x| filter.weight((x as f64 - centre + 0.5) * (1.0 / stretch))),
            );
            work.count(16 * exact.len().max(1))?;
            // In this order: that of the additions matters.
            let mut sum = 0.0;
            for &weight in &exact {
                sum += weight;
            }
            let start = all.len();
            all.try_reserve(exact.len())
                .map_err(|_| MediaError::OutOfMemory {
                    bytes: 4 * exact.len() as u64,
                })?;
            for &weight in &exact {
                let weight = if sum != 0.0 { weight / sum } else { weight };
                let scaled = weight * f64::from(1u32 << PRECISION);
                let rounded = if weight < 0.0 { scaled - 0.5 } else { scaled + 0.5 };
                all.push(rounded as i32);
            }
            taps.push(Taps {
                first,
                weights: start..all.len(),
            });
        }
        Ok(Weights { taps, all })
    }

    fn of(&self, taps: &Taps) -> &[i32] {
        self.all.get(taps.weights.clone()).unwrap_or_default()
    }
}

fn clip(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

fn horizontal(image: &RgbImage, width: usize, filter: Filter, work: &Work) -> Result<RgbImage, MediaError> {
    let weights = Weights::new(image.width(), width, filter, work)?;
    let mut output = RgbImage::filled(width, image.height(), 0, work)?;
    for (to, from) in output.rows_mut().zip(image.rows()) {
        work.count(3 * weights.all.len())?;
        for (to, taps) in to.as_chunks_mut::<3>().0.iter_mut().zip(&weights.taps) {
            let inputs = from.get(taps.first * 3..).unwrap_or_default().as_chunks::<3>().0;
            let mut sums = [1i32 << (PRECISION - 1); 3];
            for (&weight, pixel) in weights.of(taps).iter().zip(inputs) {
                for (sum, &sample) in sums.iter_mut().zip(pixel) {
                    *sum = sum.wrapping_add(weight.wrapping_mul(i32::from(sample)));
                }
            }
            *to = sums.map(clip);
        }
    }
    Ok(output)
}

fn vertical(image: &RgbImage, height: usize, filter: Filter, work: &Work) -> Result<RgbImage, MediaError> {
    let weights = Weights::new(image.height(), height, filter, work)?;
    let mut output = RgbImage::filled(image.width(), height, 0, work)?;
    let mut sums = work.filled(image.width() * 3, 0i32)?;
    for (to, taps) in output.rows_mut().zip(&weights.taps) {
        sums.fill(1i32 << (PRECISION - 1));
        for (&weight, row) in weights.of(taps).iter().zip(image.rows().skip(taps.first)) {
            work.count(sums.len())?;
            for (sum, &sample) in sums.iter_mut().zip(row) {
                *sum = sum.wrapping_add(weight.wrapping_mul(i32::from(sample)));
            }
        }
        for (to, &sum) in to.iter_mut().zip(&sums) {
            *to = clip(sum);
        }
    }
    Ok(output)
}

/// The pixel that the middle of the output's falls on. The step is added up, as Pillow does:
/// a product would fall on another pixel now and then.
fn nearest(image: &RgbImage, width: usize, height: usize, work: &Work) -> Result<RgbImage, MediaError> {
    let places = |input: usize, output: usize| -> Result<Vec<usize>, MediaError> {
        let step = input as f64 / output as f64;
        let mut at = step * 0.5;
        let mut places = work.room(output)?;
        for _ in 0..output {
            places.push((at as usize).min(input - 1));
            at += step;
        }
        Ok(places)
    };
    let columns = places(image.width(), width)?;
    let rows = places(image.height(), height)?;
    let mut output = RgbImage::filled(width, height, 0, work)?;
    for (to, &row) in output.rows_mut().zip(&rows) {
        work.count(3 * width)?;
        let from = image.rows().nth(row).unwrap_or_default();
        for (to, &column) in to.chunks_exact_mut(3).zip(&columns) {
            if let Some(pixel) = from.get(column * 3..column * 3 + 3) {
                to.copy_from_slice(pixel);
            }
        }
    }
    Ok(output)
}
