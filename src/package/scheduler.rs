//! `scheduler_config` of an iterative strategy.

use super::PackageError;
use super::declaration::Said;
use super::document::{Cursor, Fields};
use crate::generation::{MaskedDiffusion, Remasking};

/// How a step of an iterative strategy goes from the model's output to the next state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scheduler {
    /// Takes noise back.
    Noise(SchedulerConfig),
    /// Makes tokens of masks.
    Masked(MaskedDiffusion),
}

impl Scheduler {
    /// As package metadata writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Scheduler::Noise(config) => config.kind.name(),
            Scheduler::Masked(_) => MASKED_DIFFUSION,
        }
    }

    pub fn noise(&self) -> Option<&SchedulerConfig> {
        match self {
            Scheduler::Noise(config) => Some(config),
            Scheduler::Masked(_) => None,
        }
    }

    pub fn masked(&self) -> Option<&MaskedDiffusion> {
        match self {
            Scheduler::Noise(_) => None,
            Scheduler::Masked(masked) => Some(masked),
        }
    }
}

/// Which noise a step of training has, and how it is taken back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SchedulerConfig {
    pub kind: SchedulerKind,
    /// At least 2.
    pub num_train_timesteps: usize,
    /// Above 0 and below 1, as is `beta_end`. Where the package says neither they are 0.00085 and
    /// 0.012, linear: what the format's own project takes them to be (those of Stable Diffusion;
    /// diffusers' classes begin with 0.0001 to 0.02, which its pipelines hardly ever leave).
    pub beta_start: f64,
    pub beta_end: f64,
    pub beta_schedule: BetaSchedule,
    pub prediction: Prediction,
    /// Above 0; of schedules of flow.
    pub shift: f64,
    pub spacing: Spacing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchedulerKind {
    Ddpm,
    Ddim,
    Euler,
    EulerAncestral,
    Dpmpp2m,
    FlowMatching,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BetaSchedule {
    Linear,
    ScaledLinear,
}

/// What the model tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prediction {
    Epsilon,
    Velocity,
    Sample,
    Flow,
}

/// How the noise levels of a run are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// As the algorithm spaces its timesteps.
    Timesteps,
    Karras,
    Exponential,
}

const KINDS: &[(&str, Option<SchedulerKind>)] = &[
    ("ddpm", Some(SchedulerKind::Ddpm)),
    ("ddim", Some(SchedulerKind::Ddim)),
    ("euler", Some(SchedulerKind::Euler)),
    ("euler_ancestral", Some(SchedulerKind::EulerAncestral)),
    ("dpmpp_2m", Some(SchedulerKind::Dpmpp2m)),
    ("flow_matching", Some(SchedulerKind::FlowMatching)),
    (MASKED_DIFFUSION, None),
];

const MASKED_DIFFUSION: &str = "masked_diffusion";

/// The most that the temperature of a masked diffusion may be.
const MOST_TEMPERATURE: f64 = 1000.0;

impl SchedulerKind {
    /// As package metadata writes it.
    pub fn name(self) -> &'static str {
        let found = KINDS.iter().find(|(_, kind)| *kind == Some(self));
        found.map_or("", |(name, _)| name)
    }
}

const PREDICTIONS: &[(&str, Prediction)] = &[
    ("epsilon", Prediction::Epsilon),
    ("v_prediction", Prediction::Velocity),
    ("sample", Prediction::Sample),
    ("flow", Prediction::Flow),
];

/// The most timesteps of training: what a table of them may take.
const MOST_TIMESTEPS: u64 = 100_000;

/// Reads the section. What a schedule cannot be made of is an error here; whether it has as many
/// steps as the strategy says is seen when it is made.
pub(super) fn read_scheduler(at: &Cursor<'_>) -> Result<Said<Scheduler>, PackageError> {
    let mut fields = at.fields()?;
    let kind = fields.required("kind", "the algorithm")?.one_of(KINDS)?;
    let value = match kind {
        Some(kind) => Scheduler::Noise(read_noise(&mut fields, kind)?),
        None => Scheduler::Masked(read_masked(&mut fields)?),
    };
    fields.finish();
    Ok(Said {
        value,
        at: at.location(),
    })
}

fn read_masked(fields: &mut Fields<'_>) -> Result<MaskedDiffusion, PackageError> {
    let mask_token_id = fields
        .required("mask_token_id", "the token that stands for none yet")?
        .token_id()?;
    let temperature = match fields.get("temperature") {
        Some(at) => {
            let expected = format!("a number from 0 to {MOST_TEMPERATURE}");
            at.number_where(&expected, |value| (0.0..=MOST_TEMPERATURE).contains(&value))?
        }
        None => 0.0,
    };
    let block_length = match fields.get("block_length") {
        Some(at) => Some(at.count_up_to(1, u32::MAX.into())? as usize),
        None => None,
    };
    let remasking = match fields.get("remasking") {
        Some(at) => at.one_of(&[
            ("low_confidence", Remasking::LowConfidence),
            ("random", Remasking::Random),
        ])?,
        None => Remasking::LowConfidence,
    };
    Ok(MaskedDiffusion {
        mask_token_id,
        temperature,
        block_length,
        remasking,
    })
}

fn read_noise(fields: &mut Fields<'_>, kind: SchedulerKind) -> Result<SchedulerConfig, PackageError> {
    let num_train_timesteps = match fields.get("num_train_timesteps") {
        Some(count) => count.count_up_to(2, MOST_TIMESTEPS)? as usize,
        None => 1000,
    };
    let prediction = read_prediction(fields, kind)?;
    let flow = prediction == Prediction::Flow;
    let betas = [
        fields.get("beta_start"),
        fields.get("beta_end"),
        fields.get("beta_schedule"),
    ];
    if flow && let Some(unused) = betas.iter().flatten().next() {
        unused.warn("not used, because a flow has no betas");
    }
    let [beta_start, beta_end, beta_schedule] = betas;
    let beta = |at: Option<Cursor<'_>>, default: f64| match at {
        Some(at) => at.number_where("a number above 0 and below 1", |beta| beta > 0.0 && beta < 1.0),
        None => Ok(default),
    };
    let shift = match fields.get("shift") {
        Some(at) => {
            let shift = at.number_where("a number above 0 and up to 1000000", |shift| {
                shift > 0.0 && shift <= 1e6
            })?;
            if shift != 1.0 && !flow {
                return Err(at.invalid("only the noise levels of prediction_type flow are shifted"));
            }
            shift
        }
        None => 1.0,
    };
    let spacing = read_spacing(fields, kind, flow)?;
    Ok(SchedulerConfig {
        kind,
        num_train_timesteps,
        beta_start: beta(beta_start, 0.00085)?,
        beta_end: beta(beta_end, 0.012)?,
        beta_schedule: match beta_schedule {
            Some(at) => at.one_of(&[
                ("linear", BetaSchedule::Linear),
                ("scaled_linear", BetaSchedule::ScaledLinear),
            ])?,
            None => BetaSchedule::Linear,
        },
        prediction,
        shift,
        spacing,
    })
}

fn read_prediction(fields: &mut Fields<'_>, kind: SchedulerKind) -> Result<Prediction, PackageError> {
    let Some(at) = fields.get("prediction_type") else {
        return Ok(match kind {
            SchedulerKind::FlowMatching => Prediction::Flow,
            _ => Prediction::Epsilon,
        });
    };
    let prediction = at.one_of(PREDICTIONS)?;
    match (kind, prediction) {
        (SchedulerKind::FlowMatching, Prediction::Flow) => Ok(prediction),
        (SchedulerKind::FlowMatching, _) => {
            Err(at.invalid("flow_matching takes the prediction_type flow alone"))
        }
        (SchedulerKind::Dpmpp2m, _) => Ok(prediction),
        (_, Prediction::Flow) => Err(at.invalid(format!(
            "{} takes epsilon, v_prediction or sample; flow is for flow_matching and dpmpp_2m",
            kind.name()
        ))),
        _ => Ok(prediction),
    }
}

fn read_spacing(fields: &mut Fields<'_>, kind: SchedulerKind, flow: bool) -> Result<Spacing, PackageError> {
    let mut spacing = Spacing::Timesteps;
    for (name, asked) in [
        ("use_karras_sigmas", Spacing::Karras),
        ("use_exponential_sigmas", Spacing::Exponential),
    ] {
        let Some(at) = fields.get(name) else { continue };
        if !at.bool()? {
            continue;
        }
        let spaced = match kind {
            SchedulerKind::Euler | SchedulerKind::EulerAncestral | SchedulerKind::FlowMatching => true,
            SchedulerKind::Dpmpp2m => !flow,
            SchedulerKind::Ddpm | SchedulerKind::Ddim => false,
        };
        if !spaced {
            let of_flow = if flow { " of prediction_type flow" } else { "" };
            return Err(at.invalid(format!(
                "{}{of_flow} has timesteps of its own spacing; leave it out",
                kind.name()
            )));
        }
        if spacing != Spacing::Timesteps {
            return Err(at.invalid("use_karras_sigmas says another spacing; set one of the two"));
        }
        spacing = asked;
    }
    Ok(spacing)
}
