//! The discrete Fourier transform of any length, in f64:
//!
//! ```text
//! X[k] = sum over n of x[n] w^(k n),   w = e^(-2 pi i / N)
//! ```
//!
//! A length is split by its smallest prime factor p into p transforms of N / p, which comes to
//! N p operations. Where a factor is large it is Bluestein's ("A linear filtering approach to the
//! computation of discrete Fourier transform", 1970) instead: as k n = (k^2 + n^2 - (k - n)^2) / 2,
//!
//! ```text
//! X[k] = c[k] sum over n of (x[n] c[n]) / c[k - n],   c[n] = e^(-pi i n^2 / N)
//! ```
//!
//! which is a convolution, done by transforms of a power of two.

use crate::media::{MediaError, Work};

type Complex = [f64; 2];

/// The largest prime factor that is split by.
const MOST_FACTOR: usize = 61;

pub(super) struct Fourier(Kind);

enum Kind {
    Split(Split),
    Chirp(Box<Chirp>),
}

fn times([a, b]: Complex, [c, d]: Complex) -> Complex {
    [a * c - b * d, a * d + b * c]
}

fn conjugate([re, im]: Complex) -> Complex {
    [re, -im]
}

/// e^(-2 pi i turns)
fn root(turns: f64) -> Complex {
    let angle = -std::f64::consts::TAU * turns;
    [libm::cos(angle), libm::sin(angle)]
}

impl Fourier {
    pub fn new(len: usize, work: &Work) -> Result<Self, MediaError> {
        let factors = factors(len);
        Ok(Fourier(match factors.last() {
            Some(&most) if most > MOST_FACTOR => Kind::Chirp(Box::new(Chirp::new(len, work)?)),
            _ => Kind::Split(Split::new(len, factors, work)?),
        }))
    }

    /// `output` is as long as `input`, which is as long as was said.
    pub fn run(&mut self, input: &[Complex], output: &mut [Complex], work: &Work) -> Result<(), MediaError> {
        match &mut self.0 {
            Kind::Split(split) => split.run(input, output, work),
            Kind::Chirp(chirp) => chirp.run(input, output, work),
        }
    }
}

/// Prime factors, ascending.
fn factors(len: usize) -> Vec<usize> {
    let (mut factors, mut rest, mut factor) = (Vec::new(), len, 2);
    while rest > 1 {
        if factor * factor > rest {
            factor = rest;
        }
        match rest % factor {
            0 => {
                factors.push(factor);
                rest /= factor;
            }
            _ => factor += 1,
        }
    }
    factors
}

struct Split {
    /// w^j
    roots: Vec<Complex>,
    factors: Vec<usize>,
    parts: Vec<Complex>,
}

impl Split {
    fn new(len: usize, factors: Vec<usize>, work: &Work) -> Result<Self, MediaError> {
        let mut roots = work.room(len)?;
        for j in 0..len {
            work.count(64)?;
            roots.push(root(j as f64 / len as f64));
        }
        Ok(Split {
            roots,
            parts: work.filled(factors.last().copied().unwrap_or(1), [0.0; 2])?,
            factors,
        })
    }

    fn run(&mut self, input: &[Complex], output: &mut [Complex], work: &Work) -> Result<(), MediaError> {
        let sum: usize = self.factors.iter().sum();
        work.count(output.len().saturating_mul(8 * sum))?;
        part(&self.roots, &self.factors, &mut self.parts, input, 1, output);
        Ok(())
    }
}

/// The transform of every `stride`th input.
fn part(
    roots: &[Complex],
    factors: &[usize],
    parts: &mut [Complex],
    input: &[Complex],
    stride: usize,
    output: &mut [Complex],
) {
    let Some((&factor, factors)) = factors.split_first() else {
        if let (Some(to), Some(from)) = (output.first_mut(), input.first()) {
            *to = *from;
        }
        return;
    };
    let size = output.len() / factor;
    for (index, output) in output.chunks_exact_mut(size.max(1)).enumerate() {
        let input = input.get(index * stride..).unwrap_or_default();
        part(roots, factors, parts, input, stride * factor, output);
    }
    for k in 0..size {
        for (part, from) in parts.iter_mut().zip(output.iter().skip(k).step_by(size)) {
            *part = *from;
        }
        for block in 0..factor {
            let place = k + block * size;
            let mut sum = [0.0; 2];
            for (index, part) in parts.iter().take(factor).enumerate() {
                let root = roots.get(index * place * stride % roots.len()).copied();
                let [re, im] = times(*part, root.unwrap_or_default());
                sum = [sum[0] + re, sum[1] + im];
            }
            if let Some(to) = output.get_mut(place) {
                *to = sum;
            }
        }
    }
}

struct Chirp {
    /// c
    chirp: Vec<Complex>,
    /// The transform of 1 / c, which is the same before 0 as behind it, divided by the length.
    kernel: Vec<Complex>,
    /// Of a power of two, at least 2 N - 1.
    split: Split,
    values: Vec<Complex>,
    transformed: Vec<Complex>,
}

impl Chirp {
    fn new(len: usize, work: &Work) -> Result<Self, MediaError> {
        let size = (2 * len).next_power_of_two();
        let mut split = Split::new(size, factors(size), work)?;
        let mut chirp = work.room(len)?;
        for n in 0..len {
            work.count(64)?;
            // It repeats after 2 N, of which a whole number is exact.
            let turns = (n as u128 * n as u128 % (2 * len as u128)) as f64;
            chirp.push(root(turns / (2.0 * len as f64)));
        }
        let mut values = work.filled(size, [0.0; 2])?;
        for (n, &c) in chirp.iter().enumerate() {
            for place in [n, (size - n) % size] {
                if let Some(value) = values.get_mut(place) {
                    *value = conjugate(c).map(|part| part / size as f64);
                }
            }
        }
        let mut kernel = work.filled(size, [0.0; 2])?;
        split.run(&values, &mut kernel, work)?;
        Ok(Chirp {
            chirp,
            kernel,
            split,
            values,
            transformed: work.filled(size, [0.0; 2])?,
        })
    }

    fn run(&mut self, input: &[Complex], output: &mut [Complex], work: &Work) -> Result<(), MediaError> {
        self.values.fill([0.0; 2]);
        for ((value, &x), &c) in self.values.iter_mut().zip(input).zip(&self.chirp) {
            *value = times(x, c);
        }
        self.split.run(&self.values, &mut self.transformed, work)?;
        // Back by the same transform: the inverse of x is the conjugate of that of its conjugate.
        for (product, &kernel) in self.transformed.iter_mut().zip(&self.kernel) {
            *product = conjugate(times(*product, kernel));
        }
        self.split.run(&self.transformed, &mut self.values, work)?;
        for ((to, &value), &c) in output.iter_mut().zip(&self.values).zip(&self.chirp) {
            *to = times(conjugate(value), c);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_transform_of_its_definition() {
        let work = Work::default();
        for len in [1, 2, 3, 12, 61, 67, 97, 134, 400, 401, 509] {
            let input: Vec<Complex> = (0..len)
                .map(|n| [((n * 37) % 11) as f64 - 5.0, ((n * 53) % 7) as f64 - 3.0])
                .collect();
            let mut output = vec![[0.0; 2]; len];
            let mut fourier = Fourier::new(len, &work).unwrap();
            for _ in 0..2 {
                fourier.run(&input, &mut output, &work).unwrap();
            }
            for (k, &[re, im]) in output.iter().enumerate() {
                let mut sum = [0.0; 2];
                for (n, &x) in input.iter().enumerate() {
                    let [a, b] = times(x, root((k * n % len) as f64 / len as f64));
                    sum = [sum[0] + a, sum[1] + b];
                }
                let off = (re - sum[0]).abs().max((im - sum[1]).abs());
                assert!(off < 1e-9, "X[{k}] of {len}: off by {off}");
            }
        }
    }
}
