//! The steps of a loop: how many, at which timesteps, and what each does, by the package and by a
//! run's settings.

use crate::generation::{MaskedDiffusion, Schedule};
use crate::package::{Iteration, PipelineSpec, Scheduler};

use super::RequestError;
use super::settings::{RunSettings, refuse_steps};

/// The steps of a run's loop.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// The first one that runs.
    pub start: usize,
    /// One for each step, also of those before the first that runs.
    pub timesteps: Vec<f64>,
    pub schedule: Option<Schedule>,
    /// Of a loop that makes tokens.
    pub masked: Option<MaskedDiffusion>,
    /// Whether the host's values are to get the noise of the first step that runs.
    pub add_noise: bool,
    /// 1: none.
    pub guidance_scale: f64,
    pub seed: u64,
}

impl Steps {
    /// Those of each loop of a package. The settings are about one of them, the seed for all.
    pub fn of_all(spec: &PipelineSpec, settings: &RunSettings) -> Result<Vec<Self>, RequestError> {
        if spec.iterations.is_empty() {
            refuse_steps(settings, spec.strategy, spec.token_loop.is_some())?;
        }
        let mut schedulers = spec.iterations.iter().filter_map(|one| one.scheduler.as_ref());
        if settings.seed.is_some()
            && !spec.iterations.is_empty()
            && spec.token_loop.is_none()
            && schedulers.next().is_none()
        {
            return refuse(
                "seed",
                "the package has no scheduler that would draw noise".to_owned(),
            );
        }
        let others = RunSettings {
            seed: settings.seed,
            ..RunSettings::default()
        };
        let settings_loop = spec.settings_loop();
        let iterations = spec.iterations.iter().enumerate();
        iterations
            .map(|(of, iteration)| match settings_loop == Some(of) {
                true => Steps::new(iteration, settings),
                false => Steps::new(iteration, &others),
            })
            .collect()
    }

    /// Those of the package, with what the run's settings say instead.
    fn new(iteration: &Iteration, settings: &RunSettings) -> Result<Self, RequestError> {
        let count = match settings.num_steps {
            Some(count) => check_count(iteration, count)?,
            None => iteration.num_steps,
        };
        let start = match settings.start_step {
            Some(start) => start,
            // Of another number of steps the package's start is no longer a step of it.
            None if settings.num_steps.is_some() && iteration.start_step >= count => {
                return refuse(
                    "num_steps",
                    format!(
                        "{count} is not above the package's start_step of {}; give a start_step from 0 to {} too",
                        iteration.start_step,
                        count - 1
                    ),
                );
            }
            None => iteration.start_step as u64,
        };
        let found = usize::try_from(start).ok().filter(|&start| start < count);
        let Some(start) = found else {
            return refuse(
                "start_step",
                format!("{start} is no step of the loop; give one from 0 to {}", count - 1),
            );
        };
        let scheduler = iteration.scheduler.as_ref().map(|said| &said.value);
        if settings.add_noise && scheduler.and_then(Scheduler::noise).is_none() {
            return refuse(
                "add_noise",
                "the package has no scheduler that takes noise back".to_owned(),
            );
        }
        let listed = iteration.timesteps.as_ref().map(|said| said.value.as_slice());
        let schedule =
            match scheduler.and_then(Scheduler::noise) {
                Some(config) => Some(Schedule::new(config, count, listed).map_err(|error| {
                    RequestError::InvalidSetting {
                        what: "num_steps",
                        message: error.to_string(),
                    }
                })?),
                None => None,
            };
        let timesteps = match (listed, &schedule) {
            (Some(listed), _) => listed.to_vec(),
            (None, Some(schedule)) => schedule.steps.iter().map(|step| step.timestep).collect(),
            (None, None) => (0..count).map(|step| step as f64).collect(),
        };
        Ok(Steps {
            start,
            timesteps,
            schedule,
            add_noise: settings.add_noise,
            masked: scheduler.and_then(Scheduler::masked).copied(),
            guidance_scale: guidance_scale(iteration, settings)?,
            seed: settings.seed.unwrap_or(0),
        })
    }

    /// Whether a state that the host does not set starts as noise, or as masks.
    pub fn starts_as_noise(&self) -> bool {
        // What steps that are left out would have made of noise is not known.
        (self.schedule.is_some() || self.masked.is_some()) && self.start == 0
    }
}

/// How far guidance goes: as the run's settings say, or as the package does.
fn guidance_scale(iteration: &Iteration, settings: &RunSettings) -> Result<f64, RequestError> {
    let Some(scale) = settings.guidance_scale else {
        return Ok(iteration.guidance.map_or(1.0, |guidance| guidance.scale));
    };
    let most = Iteration::MAX_GUIDANCE;
    if !(0.0..=most).contains(&scale) {
        return refuse(
            "guidance_scale",
            format!("{scale} is out of range; give a number from 0 to {most}"),
        );
    }
    if iteration.guidance.is_none() && scale != 1.0 {
        let message =
            "the package names no cfg_conditioning_input, which guidance leaves out once in each step";
        return refuse("guidance_scale", message.to_owned());
    }
    Ok(scale)
}

/// A number of steps that the package can run.
fn check_count(iteration: &Iteration, count: u64) -> Result<usize, RequestError> {
    let found = usize::try_from(count)
        .ok()
        .filter(|count| (1..=Iteration::MAX_STEPS).contains(count));
    let Some(count) = found else {
        let most = Iteration::MAX_STEPS;
        return refuse(
            "num_steps",
            format!("{count} is out of range; give a number of steps from 1 to {most}"),
        );
    };
    match &iteration.timesteps {
        Some(timesteps) if timesteps.value.len() != count => refuse(
            "num_steps",
            format!(
                "{count} does not fit the package, which lists the timesteps of {} steps",
                timesteps.value.len()
            ),
        ),
        _ => Ok(count),
    }
}

fn refuse<T>(what: &'static str, message: String) -> Result<T, RequestError> {
    Err(RequestError::InvalidSetting { what, message })
}
