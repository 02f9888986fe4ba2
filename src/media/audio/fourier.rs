//! The discrete Fourier transform of any length, in f64:
//!
//!   X[k] = sum over n of x[n] e^(-2 pi i k n / N)
//!
//! A length is split by its smallest prime factor p into p transforms of N / p.

use crate::media::{MediaError, filled};

type Complex = [f64; 2];

pub(super) struct Fourier {
    /// e^(-2 pi i j / N)
    roots: Vec<Complex>,
    /// Prime factors of N, ascending.
    factors: Vec<usize>,
    parts: Vec<Complex>,
}

fn times([a, b]: Complex, [c, d]: Complex) -> Complex {
    [a * c - b * d, a * d + b * c]
}

impl Fourier {
    pub fn new(len: usize) -> Result<Self, MediaError> {
        let mut roots = filled(len, [0.0; 2])?;
        for (j, root) in roots.iter_mut().enumerate() {
            let turn = -std::f64::consts::TAU * (j as f64 / len as f64);
            *root = [libm::cos(turn), libm::sin(turn)];
        }
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
        let parts = filled(factors.last().copied().unwrap_or(1), [0.0; 2])?;
        Ok(Fourier {
            roots,
            factors,
            parts,
        })
    }

    /// `output` is as long as `input`, which is as long as was said.
    pub fn run(&mut self, input: &[Complex], output: &mut [Complex]) {
        part(&self.roots, &self.factors, &mut self.parts, input, 1, output);
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
