//! Noise levels σ = √((1 - ᾱ) / ᾱ) of a run, from the largest to 0.
//!
//! Where timesteps are spaced, those between two of training have the σ between theirs. Karras
//! spacing (Karras, Aittala, Aila, Laine, "Elucidating the design space of diffusion-based
//! generative models", NeurIPS 2022, equation 5) and the exponential one are spaced in σ, with
//! i = 0 .. n - 1:
//!
//! ```text
//! karras:       σᵢ = (a + i / (n - 1) (b - a))⁷,  a = σ_max^(1/7), b = σ_min^(1/7)
//! exponential:  σᵢ = exp(a + i / (n - 1) (b - a)),  a = ln σ_max, b = ln σ_min
//! ```
//!
//! The model is then told the timestep of training whose ln σ is theirs, interpolated.

use super::{Betas, SchedulerConfig, Spacing};

/// The levels of a run and their timesteps, and one level more: 0, after the last step.
pub(super) struct Sigmas {
    pub sigmas: Vec<f64>,
    pub timesteps: Vec<f64>,
}

impl Sigmas {
    /// At these timesteps, or spaced as the configuration says.
    pub fn new(config: &SchedulerConfig, timesteps: Vec<f64>) -> Self {
        let trained = Betas::new(config).sigmas();
        let levels: Vec<f64> = timesteps
            .iter()
            .map(|&timestep| interpolated(&trained, timestep))
            .collect();
        let (most, least) = (
            trained.last().copied().unwrap_or_default(),
            trained.first().copied().unwrap_or_default(),
        );
        match spaced(config.spacing, most, least, timesteps.len()) {
            None => Sigmas {
                sigmas: ended(levels),
                timesteps,
            },
            Some(levels) => Sigmas {
                timesteps: levels.iter().map(|&sigma| timestep_of(&trained, sigma)).collect(),
                sigmas: ended(levels),
            },
        }
    }

    /// Each level with the next one, and its timestep.
    pub fn steps(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let next = self.sigmas.iter().skip(1);
        let levels = self.sigmas.iter().zip(next);
        levels
            .zip(&self.timesteps)
            .map(|((&now, &next), &timestep)| (now, next, timestep))
    }

    pub fn largest(&self) -> f64 {
        self.sigmas.iter().copied().fold(0.0, f64::max)
    }
}

/// Levels between two, where they are spaced by level.
pub(super) fn spaced(spacing: Spacing, most: f64, least: f64, count: usize) -> Option<Vec<f64>> {
    const RHO: f64 = 7.0;
    let between = |from: f64, to: f64| linspace(from, to, count).into_iter();
    match spacing {
        Spacing::Timesteps => None,
        Spacing::Karras => {
            let levels = between(most.powf(1.0 / RHO), least.powf(1.0 / RHO));
            Some(levels.map(|level| level.powf(RHO)).collect())
        }
        Spacing::Exponential => Some(between(most.ln(), least.ln()).map(f64::exp).collect()),
    }
}

/// `count` numbers from one to another, the first alone if there is only one.
pub(super) fn linspace(from: f64, to: f64, count: usize) -> Vec<f64> {
    let last = count.saturating_sub(1).max(1) as f64;
    (0..count)
        .map(|at| from + (to - from) * (at as f64 / last))
        .collect()
}

/// 0 comes after the last level.
pub(super) fn ended(mut levels: Vec<f64>) -> Vec<f64> {
    levels.push(0.0);
    levels
}

/// The value at a place between two of a list.
fn interpolated(list: &[f64], at: f64) -> f64 {
    let below = at.floor() as usize;
    let value = |index: usize| {
        list.get(index.min(list.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    };
    let part = at - at.floor();
    value(below) + part * (value(below + 1) - value(below))
}

/// The place of a level in the rising levels of training, by the logarithm.
fn timestep_of(trained: &[f64], sigma: f64) -> f64 {
    let above = trained.partition_point(|&level| level <= sigma);
    let below = above.saturating_sub(1).min(trained.len().saturating_sub(2));
    let (Some(low), Some(high)) = (trained.get(below), trained.get(below + 1)) else {
        return 0.0;
    };
    let part = (sigma.ln() - low.ln()) / (high.ln() - low.ln());
    below as f64 + part.clamp(0.0, 1.0)
}
