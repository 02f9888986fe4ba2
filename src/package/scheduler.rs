//! `scheduler_config` of an iterative strategy.

use super::PackageError;
use super::declaration::Said;
use super::document::{Cursor, Fields};

/// Which noise a step of training has, and how it is taken back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SchedulerConfig {
    pub kind: SchedulerKind,
    /// At least 2.
    pub num_train_timesteps: usize,
    /// Above 0 and below 1, as is `beta_end`.
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
    // Understood, not run by this version.
    ("masked_diffusion", None),
];

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
pub(super) fn read_scheduler(at: &Cursor<'_>) -> Result<Said<SchedulerConfig>, PackageError> {
    let mut fields = at.fields()?;
    let kind_at = fields.required("kind", "the algorithm")?;
    let Some(kind) = kind_at.one_of(KINDS)? else {
        return Err(kind_at.unsupported(format!("the scheduler \"{}\"", kind_at.text()?)));
    };
    let num_train_timesteps = match fields.get("num_train_timesteps") {
        Some(count) => count.count_up_to(2, MOST_TIMESTEPS)? as usize,
        None => 1000,
    };
    let prediction = read_prediction(&mut fields, kind)?;
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
    let spacing = read_spacing(&mut fields, kind, flow)?;
    let config = SchedulerConfig {
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
    };
    fields.finish();
    Ok(Said {
        value: config,
        at: at.location(),
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
