//! The discrete Fourier transform of any length, in f64:
//!
//!   y[k] = sum over n of x[n] e^(-2 pi i k n / N), or with +, without a factor
//!
//! A length is split by its smallest prime factor p into p transforms of N / p; a transform of a
//! prime length is the sum itself.

use crate::native::element::Complex128;
use crate::native::ending::{self, counted};
use crate::native::operator::OpError;
use crate::native::working::Working;

/// Transforms of one length and direction.
pub(super) struct Fft {
    /// e^(-+2 pi i j / N)
    roots: Working<Complex128>,
    /// Prime factors of N, ascending.
    factors: Vec<usize>,
    /// Room for one element per part of a split.
    parts: Working<Complex128>,
}

fn product(a: Complex128, b: Complex128) -> Complex128 {
    Complex128 {
        re: a.re * b.re - a.im * b.im,
        im: a.re * b.im + a.im * b.re,
    }
}

fn sum(a: Complex128, b: Complex128) -> Complex128 {
    Complex128 {
        re: a.re + b.re,
        im: a.im + b.im,
    }
}

impl Fft {
    pub fn new(len: usize, inverse: bool) -> Result<Self, OpError> {
        let mut roots = Working::with_room(len)?;
        let turn = if inverse {
            std::f64::consts::TAU
        } else {
            -std::f64::consts::TAU
        };
        roots.extend(counted(0..len).map(|j| {
            let (im, re) = (turn * (j as f64 / len as f64)).sin_cos();
            Complex128 { re, im }
        }));
        let (mut factors, mut rest, mut factor) = (Vec::new(), len, 2);
        while rest > 1 {
            if factor * factor > rest {
                factor = rest;
            }
            if rest % factor == 0 {
                factors.push(factor);
                rest /= factor;
            } else {
                factor += 1;
            }
        }
        let largest = factors.last().copied().unwrap_or(0);
        let mut parts = Working::with_room(largest)?;
        parts.resize(largest, Complex128::default());
        Ok(Fft {
            roots,
            factors,
            parts,
        })
    }

    /// Both have as many elements as the transform is long.
    pub fn run(&mut self, x: &[Complex128], y: &mut [Complex128]) {
        transform(&self.roots, &self.factors, &mut self.parts, x, 1, y);
    }
}

/// Transforms x[0], x[stride], ... into `y`, whose length is the product of the factors.
fn transform(
    roots: &[Complex128],
    factors: &[usize],
    parts: &mut [Complex128],
    x: &[Complex128],
    stride: usize,
    y: &mut [Complex128],
) {
    let Some((&factor, factors)) = factors.split_first() else {
        if let (Some(y), Some(&x)) = (y.first_mut(), x.first()) {
            *y = x;
        }
        return;
    };
    let part = y.len() / factor;
    ending::count(y.len());
    for (i, y) in y.chunks_exact_mut(part).enumerate() {
        transform(roots, factors, parts, &x[i * stride..], stride * factor, y);
    }
    // Roots of this length are `stride` apart.
    let root = |j: usize| roots[j % (part * factor) * stride];
    for k in 0..part {
        if k % ending::PIECE == ending::PIECE - 1 {
            ending::count(ending::PIECE);
        }
        for (i, to) in parts[..factor].iter_mut().enumerate() {
            *to = product(y[i * part + k], root(i * k));
        }
        if factor == 2 {
            let (a, b) = (parts[0], parts[1]);
            y[k] = sum(a, b);
            y[part + k] = Complex128 {
                re: a.re - b.re,
                im: a.im - b.im,
            };
            continue;
        }
        // A length that is prime is all of it.
        for q in 0..factor {
            let add = |total, i: usize| sum(total, product(parts[i], root(i * q % factor * part)));
            let none = Complex128::default();
            y[q * part + k] = match factor < ending::PIECE {
                true => {
                    ending::count(factor);
                    (0..factor).fold(none, add)
                }
                false => ending::pieces(factor).flatten().fold(none, add),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_definition() {
        for len in [1, 2, 3, 4, 5, 6, 8, 12, 15, 16, 30, 49, 97] {
            let x: Vec<Complex128> = (0..len)
                .map(|i| Complex128 {
                    re: ((i * 7) % 5) as f64 - 2.0,
                    im: ((i * 3) % 4) as f64,
                })
                .collect();
            for inverse in [false, true] {
                let mut y = vec![Complex128::default(); len];
                Fft::new(len, inverse).expect("small").run(&x, &mut y);
                for (k, found) in y.iter().enumerate() {
                    let sign = if inverse { 1.0 } else { -1.0 };
                    let expected = x
                        .iter()
                        .enumerate()
                        .fold(Complex128::default(), |total, (n, &x)| {
                            let angle = sign * std::f64::consts::TAU * ((k * n) % len) as f64 / len as f64;
                            let root = Complex128 {
                                re: angle.cos(),
                                im: angle.sin(),
                            };
                            sum(total, product(x, root))
                        });
                    let distance = (found.re - expected.re).hypot(found.im - expected.im);
                    assert!(distance < 1e-10, "{len} {k}: {found:?}, expected {expected:?}");
                }
            }
        }
    }
}
