//! Euler's method on the probability flow (Karras, Aittala, Aila, Laine, "Elucidating the design
//! space of diffusion-based generative models", NeurIPS 2022, algorithm 1 without churn), over
//! x = x₀ + σ ε.
//!
//! ```text
//! x' = x + (σ' - σ) (x - x₀) / σ = σ'/σ x + (1 - σ'/σ) x₀
//! ```
//!
//! The model reads x / √(σ² + 1), which has the variance that it was trained on. Timesteps are
//! spaced evenly from the last of training to 0.

use super::spacing::linspace;
use super::{Clean, Schedule, ScheduleError, SchedulerConfig, Sigmas, Step, check_count, split};

pub(super) fn schedule(
    config: &SchedulerConfig,
    count: usize,
    timesteps: Option<&[f64]>,
) -> Result<Schedule, ScheduleError> {
    let sigmas = sigmas(config, count, timesteps)?;
    let steps = sigmas.steps().map(|(sigma, next, timestep)| Step {
        timestep,
        input_scale: split(sigma).0,
        signal: 1.0,
        level: sigma,
        clean: Clean::of_variance_exploding(config.prediction, sigma),
        sample: next / sigma,
        data: 1.0 - next / sigma,
        ..Step::default()
    });
    Ok(Schedule {
        steps: steps.collect(),
        initial_scale: sigmas.largest(),
    })
}

/// The noise levels of Euler's method, and of the ancestral one.
pub(super) fn sigmas(
    config: &SchedulerConfig,
    count: usize,
    timesteps: Option<&[f64]>,
) -> Result<Sigmas, ScheduleError> {
    check_count(config, count, config.num_train_timesteps)?;
    let listed = super::listed_timesteps(config, timesteps)?;
    let last = (config.num_train_timesteps - 1) as f64;
    let spaced = || linspace(0.0, last, count).into_iter().rev().collect();
    Ok(Sigmas::new(config, listed.unwrap_or_else(spaced)))
}
