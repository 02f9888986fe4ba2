//! DDIM (Song, Meng, Ermon, "Denoising diffusion implicit models", ICLR 2021), equation 12 with
//! η = 0: no noise is added.
//!
//! ```text
//! α = √ᾱₜ, σ = √(1 - ᾱₜ), α' and σ' those of the next timestep; after the last ᾱ = 1
//! x' = α' x₀ + σ' ε,  ε = (x - α x₀) / σ
//! ```

use super::betas::leading_timesteps;
use super::{Betas, Clean, Schedule, ScheduleError, SchedulerConfig, Step, check_count, check_timesteps};

pub(super) fn schedule(
    config: &SchedulerConfig,
    count: usize,
    timesteps: Option<&[f64]>,
) -> Result<Schedule, ScheduleError> {
    check_count(config, count, config.num_train_timesteps)?;
    check_timesteps(config, timesteps.unwrap_or_default(), true)?;
    let betas = Betas::new(config);
    let step = |(now, next): (usize, Option<usize>)| {
        let (alpha_bar, next_alpha_bar) = (betas.alpha_bar(Some(now)), betas.alpha_bar(next));
        let (alpha, sigma) = (alpha_bar.sqrt(), (1.0 - alpha_bar).sqrt());
        let (next_alpha, next_sigma) = (next_alpha_bar.sqrt(), (1.0 - next_alpha_bar).sqrt());
        let ratio = next_sigma / sigma;
        Step {
            timestep: now as f64,
            input_scale: 1.0,
            signal: alpha,
            level: sigma,
            clean: Clean::of_variance_preserving(config.prediction, alpha, sigma),
            sample: ratio,
            data: next_alpha - alpha * ratio,
            ..Step::default()
        }
    };
    let steps = leading_timesteps(config, count, timesteps).into_iter().map(step);
    Ok(Schedule {
        steps: steps.collect(),
        initial_scale: 1.0,
    })
}
