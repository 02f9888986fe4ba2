//! DDPM (Ho, Jain, Abbeel, "Denoising diffusion probabilistic models", NeurIPS 2020), equations 6
//! and 7, with the smaller of the two variances; steps may leave timesteps of training out.
//!
//! ```text
//! ᾱ' of the next timestep; after the last ᾱ' = 1.  α = ᾱ / ᾱ', β = 1 - α
//! x' = √ᾱ' β / (1 - ᾱ) x₀ + √α (1 - ᾱ') / (1 - ᾱ) x + √(β (1 - ᾱ') / (1 - ᾱ)) z
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
        let noise = 1.0 - alpha_bar;
        let next_noise = 1.0 - next_alpha_bar;
        let alpha = alpha_bar / next_alpha_bar;
        let beta = 1.0 - alpha;
        Step {
            timestep: now as f64,
            input_scale: 1.0,
            signal: alpha_bar.sqrt(),
            level: noise.sqrt(),
            clean: Clean::of_variance_preserving(config.prediction, alpha_bar.sqrt(), noise.sqrt()),
            sample: alpha.sqrt() * next_noise / noise,
            data: next_alpha_bar.sqrt() * beta / noise,
            noise: (beta * next_noise / noise).sqrt(),
            ..Step::default()
        }
    };
    let steps = leading_timesteps(config, count, timesteps).into_iter().map(step);
    Ok(Schedule {
        steps: steps.collect(),
        initial_scale: 1.0,
    })
}
