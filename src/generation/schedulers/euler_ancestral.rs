//! Euler's method with fresh noise in each step: the ancestral sampling of k-diffusion (Crowson,
//! after Song et al., "Score-based generative modeling through stochastic differential
//! equations", ICLR 2021, appendix F), over x = x₀ + σ ε.
//!
//! ```text
//! σ_up² = σ'² (σ² - σ'²) / σ²,  σ_down² = σ'² - σ_up²
//! x' = σ_down/σ x + (1 - σ_down/σ) x₀ + σ_up z
//! ```
//!
//! The levels, and what the model reads, are those of Euler's method.

use super::{Clean, Schedule, ScheduleError, SchedulerConfig, Step, euler, split};

pub(super) fn schedule(
    config: &SchedulerConfig,
    count: usize,
    timesteps: Option<&[f64]>,
) -> Result<Schedule, ScheduleError> {
    let sigmas = euler::sigmas(config, count, timesteps)?;
    let steps = sigmas.steps().map(|(sigma, next, timestep)| {
        let up = (next * next * (sigma * sigma - next * next) / (sigma * sigma)).sqrt();
        // σ'² - σ_up² = (σ'² / σ)², in a form that does not lose digits.
        let down = next * next / sigma;
        Step {
            timestep,
            input_scale: split(sigma).0,
            signal: 1.0,
            level: sigma,
            clean: Clean::of_variance_exploding(config.prediction, sigma),
            sample: down / sigma,
            data: 1.0 - down / sigma,
            noise: up,
            ..Step::default()
        }
    });
    Ok(Schedule {
        steps: steps.collect(),
        initial_scale: sigmas.largest(),
    })
}
