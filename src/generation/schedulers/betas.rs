//! The variance schedule of training (Ho, Jain, Abbeel, "Denoising diffusion probabilistic
//! models", NeurIPS 2020), for t = 0 .. T - 1:
//!
//! ```text
//! linear:         βₜ = β₀ + (β₁ - β₀) t / (T - 1)
//! scaled_linear:  βₜ = (√β₀ + (√β₁ - √β₀) t / (T - 1))²
//! ᾱₜ = ∏ (1 - βₛ), s = 0 .. t
//! ```
//!
//! scaled_linear is that of latent diffusion (Rombach et al., "High-resolution image synthesis
//! with latent diffusion models", CVPR 2022).

use super::{BetaSchedule, SchedulerConfig};

/// ᾱ for each timestep of training.
pub(super) struct Betas(Vec<f64>);

impl Betas {
    pub fn new(config: &SchedulerConfig) -> Self {
        let count = config.num_train_timesteps;
        let last = count.saturating_sub(1).max(1) as f64;
        let between = |from: f64, to: f64, at: usize| from + (to - from) * (at as f64 / last);
        let beta = |at: usize| match config.beta_schedule {
            BetaSchedule::Linear => between(config.beta_start, config.beta_end, at),
            BetaSchedule::ScaledLinear => {
                between(config.beta_start.sqrt(), config.beta_end.sqrt(), at).powi(2)
            }
        };
        let mut product = 1.0;
        Betas(
            (0..count)
                .map(|at| {
                    product *= 1.0 - beta(at);
                    product
                })
                .collect(),
        )
    }

    /// ᾱ at a timestep; 1, no noise, where there is none.
    pub fn alpha_bar(&self, timestep: Option<usize>) -> f64 {
        timestep.and_then(|at| self.0.get(at).copied()).unwrap_or(1.0)
    }

    /// √((1 - ᾱ) / ᾱ) for each timestep of training.
    pub fn sigmas(&self) -> Vec<f64> {
        self.0
            .iter()
            .map(|alpha_bar| ((1.0 - alpha_bar) / alpha_bar).sqrt())
            .collect()
    }
}

/// Timesteps that are integers, in falling order, each with the one after it: those of the
/// package, or multiples of ⌊T / count⌋ ("leading" spacing), the last of which is 0.
pub(super) fn leading_timesteps(
    config: &SchedulerConfig,
    count: usize,
    timesteps: Option<&[f64]>,
) -> Vec<(usize, Option<usize>)> {
    let stride = config.num_train_timesteps / count.max(1);
    let list: Vec<usize> = match timesteps {
        Some(timesteps) => timesteps.iter().map(|&timestep| timestep as usize).collect(),
        None => (0..count).rev().map(|step| step * stride).collect(),
    };
    let next = list.iter().skip(1).map(|&next| Some(next)).chain([None]);
    list.iter().copied().zip(next).collect()
}
