//! DPM-Solver++(2M) (Lu, Zhou, Bao, Chen, Li, Zhu, "DPM-Solver++: fast solver for guided sampling
//! of diffusion probabilistic models", 2022), algorithm 2 with the midpoint's difference, over
//! x = α x₀ + σ ε and λ = ln(α / σ).
//!
//! ```text
//! h = λ' - λ, r = (λ - λ₋₁) / h, with λ₋₁ and x₀₋₁ of the step before
//! x' = σ'/σ x + α' (1 - e⁻ʰ) (x₀ + (x₀ - x₀₋₁) / 2r)
//! ```
//!
//! Without the difference in the first step that runs, and in the last, where σ' = 0 and so
//! x' = α' x₀. Timesteps are those of training nearest to an even spacing that ends at 0,
//! without the 0; of Karras spacing they are rounded, of exponential spacing and flow cut off.
//! Levels of flow, where α = 1 - σ, are shifted:
//!
//! ```text
//! s = 1 - i / T, i from 1 to T in n + 1 even steps, the last left out;  σ = shift s / (1 + (shift - 1) s)
//! ```

use super::spacing::{ended, linspace};
use super::{
    Clean, Prediction, Schedule, ScheduleError, SchedulerConfig, Sigmas, Spacing, Step, check_count, shifted,
    split,
};

pub(super) fn schedule(
    config: &SchedulerConfig,
    count: usize,
    timesteps: Option<&[f64]>,
) -> Result<Schedule, ScheduleError> {
    let flow = config.prediction == Prediction::Flow;
    let sigmas = match flow {
        true => flow_sigmas(config, count),
        false => noise_sigmas(config, count, timesteps)?,
    };
    let split = |sigma: f64| if flow { (1.0 - sigma, sigma) } else { split(sigma) };
    let lambda = |(alpha, sigma): (f64, f64)| (alpha / sigma).ln();
    let mut before = None;
    let steps = sigmas.steps().map(|(now, next, timestep)| {
        let ((alpha, sigma), (next_alpha, next_sigma)) = (split(now), split(next));
        let (from, to) = (lambda((alpha, sigma)), lambda((next_alpha, next_sigma)));
        // 1 - e⁻ʰ; to is infinite after the last step.
        let data = next_alpha * -f64::exp_m1(from - to);
        let change = match before {
            Some(before) if next > 0.0 => data * (to - from) / (2.0 * (from - before)),
            _ => 0.0,
        };
        before = Some(from);
        Step {
            timestep,
            input_scale: 1.0,
            signal: alpha,
            level: sigma,
            clean: Clean::of_variance_preserving(config.prediction, alpha, sigma),
            sample: next_sigma / sigma,
            data,
            change,
            ..Step::default()
        }
    });
    Ok(Schedule {
        steps: steps.collect(),
        initial_scale: 1.0,
    })
}

fn noise_sigmas(
    config: &SchedulerConfig,
    count: usize,
    timesteps: Option<&[f64]>,
) -> Result<Sigmas, ScheduleError> {
    // One timestep of training is the end.
    check_count(config, count, config.num_train_timesteps - 1)?;
    let listed = super::listed_timesteps(config, timesteps)?;
    let last = (config.num_train_timesteps - 1) as f64;
    let spaced = || {
        let all = linspace(0.0, last, count + 1).into_iter().skip(1).rev();
        all.map(f64::round_ties_even).collect()
    };
    let mut sigmas = Sigmas::new(config, listed.unwrap_or_else(spaced));
    for timestep in &mut sigmas.timesteps {
        match config.spacing {
            Spacing::Timesteps => {}
            Spacing::Karras => *timestep = timestep.round_ties_even(),
            Spacing::Exponential => *timestep = timestep.trunc(),
        }
    }
    Ok(sigmas)
}

fn flow_sigmas(config: &SchedulerConfig, count: usize) -> Sigmas {
    let trained = config.num_train_timesteps as f64;
    let alphas = linspace(1.0, 1.0 / trained, count + 1).into_iter().skip(1).rev();
    let sigmas: Vec<f64> = alphas.map(|alpha| shifted(config.shift, 1.0 - alpha)).collect();
    Sigmas {
        timesteps: sigmas.iter().map(|sigma| (sigma * trained).trunc()).collect(),
        sigmas: ended(sigmas),
    }
}
