//! Noise schedules: how a diffusion model's output takes its sample to the next step.
//!
//! Names, as papers have them: x is the sample, x₀ the clean one, ε noise, m what the model puts
//! out, z fresh noise. A model is trained to tell one of
//!
//! ```text
//! x = α x₀ + σ ε          epsilon: m = ε     sample: m = x₀     v_prediction: m = α ε - σ x₀
//! x = (1 - σ) x₀ + σ ε    flow: m = ε - x₀
//! ```
//!
//! ("v" is of Salimans, Ho, "Progressive distillation for fast sampling of diffusion models",
//! ICLR 2022.) Each algorithm here is linear in x and m, so that a schedule is a table with a
//! row of numbers for each step, computed in float64 from the equations at the head of its
//! file. The discretisations (which timesteps, in which spacing, and what comes after the last
//! one) are those that the diffusers library made the convention: its defaults, without
//! clipping of x₀. (diffusers clips x₀ to [-1, 1] in ddpm and ddim unless clip_sample is false, as
//! it is for Stable Diffusion and whatever else works on latents, which have no such range. A
//! package of a model of pixels clips in its graph.)

mod betas;
mod ddim;
mod ddpm;
mod dpmpp_2m;
mod euler;
mod euler_ancestral;
mod flow_matching;
mod spacing;

use thiserror::Error;

use crate::package::{BetaSchedule, Prediction, SchedulerConfig, SchedulerKind, Spacing};

use betas::Betas;
use spacing::Sigmas;

/// A schedule that cannot be had.
#[derive(Clone, Debug, PartialEq, Error)]
pub(crate) enum ScheduleError {
    #[error("{kind} takes from 1 to {most} steps with {trained} num_train_timesteps, not {found}")]
    TooManySteps {
        kind: &'static str,
        found: usize,
        most: usize,
        trained: usize,
    },
    #[error("timestep {found} is out of range; {kind} takes timesteps from 0 to {most}")]
    TimestepRange {
        kind: &'static str,
        found: f64,
        most: usize,
    },
    #[error("timestep {found} does not fall below {before}, the one before it")]
    TimestepOrder { found: f64, before: f64 },
    #[error(
        "the numbers of step {step} of {kind} are not finite: its betas, shift or timesteps leave nothing of the \
         sample, or nothing else"
    )]
    NotFinite { kind: &'static str, step: usize },
    #[error("timestep {found} is no integer, and {kind} takes nothing else")]
    TimestepFraction { kind: &'static str, found: f64 },
}

/// A schedule for a number of steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// One for each step.
    pub steps: Vec<Step>,
    /// What noise of variance 1 is multiplied by to be the first sample.
    pub initial_scale: f64,
}

/// What one step does. Its next sample is
/// `sample · x + data · x₀ + change · (x₀ - the step before's x₀) + noise · z`,
/// without the third of these where no step came before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Step {
    /// What the model is told.
    pub timestep: f64,
    /// What the model reads is x times this.
    pub input_scale: f64,
    /// x = `signal` · x₀ + `level` · ε when the step begins.
    pub signal: f64,
    pub level: f64,
    /// How x₀ comes of x and m.
    pub clean: Clean,
    pub sample: f64,
    pub data: f64,
    pub change: f64,
    pub noise: f64,
}

/// x₀ = `sample` · x + `output` · m.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Clean {
    pub sample: f64,
    pub output: f64,
}

impl Clean {
    /// For x = α x₀ + σ ε with α² + σ² = 1.
    fn of_variance_preserving(prediction: Prediction, alpha: f64, sigma: f64) -> Self {
        let (sample, output) = match prediction {
            Prediction::Epsilon => (1.0 / alpha, -sigma / alpha),
            Prediction::Velocity => (alpha, -sigma),
            Prediction::Sample => (0.0, 1.0),
            Prediction::Flow => (1.0, -sigma),
        };
        Clean { sample, output }
    }

    /// For x = x₀ + σ ε, the same divided by α, of which the model reads x / √(σ² + 1).
    fn of_variance_exploding(prediction: Prediction, sigma: f64) -> Self {
        let (alpha, vp_sigma) = split(sigma);
        let preserving = Clean::of_variance_preserving(prediction, alpha, vp_sigma);
        Clean {
            sample: preserving.sample * alpha,
            ..preserving
        }
    }
}

/// α and σ with α² + σ² = 1 and this ratio of σ to α.
fn split(sigma: f64) -> (f64, f64) {
    let alpha = 1.0 / (sigma * sigma + 1.0).sqrt();
    (alpha, sigma * alpha)
}

impl Schedule {
    /// The schedule of `count` steps, at these timesteps if the package lists them.
    pub fn new(
        config: &SchedulerConfig,
        count: usize,
        timesteps: Option<&[f64]>,
    ) -> Result<Self, ScheduleError> {
        let mut schedule = match config.kind {
            SchedulerKind::Ddpm => ddpm::schedule(config, count, timesteps),
            SchedulerKind::Ddim => ddim::schedule(config, count, timesteps),
            SchedulerKind::Euler => euler::schedule(config, count, timesteps),
            SchedulerKind::EulerAncestral => euler_ancestral::schedule(config, count, timesteps),
            SchedulerKind::Dpmpp2m => dpmpp_2m::schedule(config, count, timesteps),
            SchedulerKind::FlowMatching => Ok(flow_matching::schedule(config, count)),
        }?;
        for (step, &timestep) in schedule.steps.iter_mut().zip(timesteps.unwrap_or_default()) {
            step.timestep = timestep;
        }
        match schedule.steps.iter().position(|step| !step.is_finite()) {
            None if is_finite(schedule.initial_scale) => Ok(schedule),
            found => Err(ScheduleError::NotFinite {
                kind: config.kind.name(),
                step: found.unwrap_or(0),
            }),
        }
    }

    /// Whether a step needs the x₀ of the one before it.
    pub fn looks_back(&self) -> bool {
        self.steps.iter().any(|step| step.change != 0.0)
    }
}

/// Samples are float32, and what does not fit there makes them infinite.
fn is_finite(number: f64) -> bool {
    (number as f32).is_finite()
}

impl Step {
    fn is_finite(&self) -> bool {
        let numbers = [
            self.timestep,
            self.input_scale,
            self.signal,
            self.level,
            self.clean.sample,
            self.clean.output,
            self.sample,
            self.data,
            self.change,
            self.noise,
        ];
        numbers.into_iter().all(is_finite)
    }

    /// The sample's element that this clean one is under this noise, when the step begins.
    pub fn noised(&self, clean: f32, noise: f32) -> f32 {
        (term(self.signal, f64::from(clean)) + term(self.level, f64::from(noise))) as f32
    }

    /// The next sample's element, and its x₀. `before` is the x₀ of the step before.
    pub fn next(&self, x: f32, m: f32, before: Option<f32>, z: f32) -> (f32, f32) {
        let (x, m) = (f64::from(x), f64::from(m));
        // A factor of 0 means that the term is not there, also where the value is infinite.
        let clean = term(self.clean.sample, x) + term(self.clean.output, m);
        let change = before.map_or(0.0, |before| term(self.change, clean - f64::from(before)));
        let next = term(self.sample, x) + term(self.data, clean) + change + term(self.noise, f64::from(z));
        (next as f32, clean as f32)
    }
}

fn term(factor: f64, value: f64) -> f64 {
    if factor == 0.0 { 0.0 } else { factor * value }
}

/// A level of flow moved towards noise.
fn shifted(shift: f64, sigma: f64) -> f64 {
    shift * sigma / (1.0 + (shift - 1.0) * sigma)
}

/// The timesteps that a package lists, where they say the noise levels.
fn listed_timesteps(
    config: &SchedulerConfig,
    timesteps: Option<&[f64]>,
) -> Result<Option<Vec<f64>>, ScheduleError> {
    match (timesteps, config.spacing) {
        (Some(timesteps), Spacing::Timesteps) => {
            check_timesteps(config, timesteps, false)?;
            Ok(Some(timesteps.to_vec()))
        }
        _ => Ok(None),
    }
}

/// No more steps than the noise of training has.
fn check_count(config: &SchedulerConfig, count: usize, most: usize) -> Result<(), ScheduleError> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(ScheduleError::TooManySteps {
        kind: config.kind.name(),
        found: count,
        most,
        trained: config.num_train_timesteps,
    })
}

/// That timesteps of a package's list fall, within those of training.
fn check_timesteps(config: &SchedulerConfig, timesteps: &[f64], integers: bool) -> Result<(), ScheduleError> {
    let kind = config.kind.name();
    let most = config.num_train_timesteps - 1;
    for &found in timesteps {
        if !(0.0..=most as f64).contains(&found) {
            return Err(ScheduleError::TimestepRange { kind, found, most });
        }
        if integers && found.fract() != 0.0 {
            return Err(ScheduleError::TimestepFraction { kind, found });
        }
    }
    match timesteps
        .iter()
        .zip(timesteps.iter().skip(1))
        .find(|(before, found)| found >= before)
    {
        None => Ok(()),
        Some((&before, &found)) => Err(ScheduleError::TimestepOrder { found, before }),
    }
}
