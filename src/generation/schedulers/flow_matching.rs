//! Euler's method on a learnt flow (Lipman, Chen, Ben-Hamu, Nickel, Le, "Flow matching for
//! generative modeling", ICLR 2023; Liu, Gong, Liu, "Flow straight and fast", ICLR 2023), over
//! x = (1 - σ) x₀ + σ ε, of which the model tells the direction m = ε - x₀.
//!
//! ```text
//! x' = x + (σ' - σ) m
//! ```
//!
//! Levels are spaced evenly and then shifted towards noise (Esser et al., "Scaling rectified flow
//! transformers for high-resolution image synthesis", ICML 2024, equation 23), from 1 to
//! S(1 / T), both of which the shift applies to once more; the model is told T σ.
//!
//! ```text
//! S(σ) = shift σ / (1 + (shift - 1) σ)
//! ```

use super::spacing::{ended, linspace, spaced};
use super::{Clean, Prediction, Schedule, SchedulerConfig, Sigmas, Step, shifted};

pub(super) fn schedule(config: &SchedulerConfig, count: usize) -> Schedule {
    let trained = config.num_train_timesteps as f64;
    let shift = |sigma: f64| shifted(config.shift, sigma);
    let even: Vec<f64> = linspace(shift(1.0), shift(1.0 / trained), count)
        .into_iter()
        .map(shift)
        .collect();
    let (most, least) = (
        even.first().copied().unwrap_or_default(),
        even.last().copied().unwrap_or_default(),
    );
    let levels = spaced(config.spacing, most, least, count).unwrap_or(even);
    let sigmas = Sigmas {
        timesteps: levels.iter().map(|sigma| sigma * trained).collect(),
        sigmas: ended(levels),
    };
    let steps = sigmas.steps().map(|(sigma, next, timestep)| {
        // x' = σ'/σ x + (1 - σ'/σ) x₀ with x₀ = x - σ m.
        Step {
            timestep,
            input_scale: 1.0,
            signal: 1.0 - sigma,
            level: sigma,
            clean: Clean::of_variance_preserving(Prediction::Flow, 1.0 - sigma, sigma),
            sample: next / sigma,
            data: 1.0 - next / sigma,
            ..Step::default()
        }
    });
    Schedule {
        steps: steps.collect(),
        initial_scale: 1.0,
    }
}
