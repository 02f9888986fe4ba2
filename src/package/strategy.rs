use super::declaration::{IterativeDeclaration, Phase, Said, StrategyDeclaration, StrategyKind};
use super::document::{Cursor, Fields};
use super::metadata::{PHASES, StagePhase, said};
use super::nested::read_nested;
use super::scheduler::read_scheduler;
use super::spec::Iteration;
use super::{PackageError, PackageErrorKind};

/// Strategies as the metadata names them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Autoregressive,
    SinglePass,
    Composite,
    Iterative,
    Nested,
}

const KINDS: &[(&str, Kind)] = &[
    ("autoregressive", Kind::Autoregressive),
    ("single_pass", Kind::SinglePass),
    ("composite", Kind::Composite),
    ("iterative", Kind::Iterative),
    ("diffusion_steps", Kind::Iterative),
    ("nested_autoregressive", Kind::Nested),
];

/// Reads `pipeline.strategy` (absent: autoregressive), and the phases that its stages
/// give to components.
pub(super) fn read_strategy(
    at: Option<Cursor<'_>>,
    pipeline: &Cursor<'_>,
) -> Result<(StrategyDeclaration, Vec<StagePhase>), PackageError> {
    let Some(at) = at else {
        return Ok((empty(StrategyKind::Autoregressive, pipeline), Vec::new()));
    };
    let one = read_one(&at)?;
    if one.kind != Kind::Composite {
        let phases = one.phase(None).into_iter().collect();
        return Ok((one.declaration, phases));
    }
    let mut whole = one.declaration;
    let mut phases = Vec::new();
    let mut fields = at.fields()?;
    let stages = fields.required("stages", "a list of {name, strategy, run_on}")?;
    let mut count = 0;
    for stage in stages.items()? {
        count += 1;
        let mut fields = stage.fields()?;
        fields.text("name")?;
        let inner = fields.required("strategy", "what the stage does")?;
        let run_on = fields.get("run_on");
        fields.finish();
        let run_on = match run_on {
            Some(at) => Some(Said {
                value: at.one_of(PHASES)?,
                at: at.location(),
            }),
            None => None,
        };
        let one = read_one(&inner)?;
        if let (Some(said), Some(iterative)) = (&run_on, one.declaration.iterative.first())
            && iterative.denoiser.is_none()
        {
            return Err(PackageError::new(
                said.at.clone(),
                PackageErrorKind::Invalid {
                    message: "the stage's strategy does not name the denoiser that this is the phase of"
                        .to_owned(),
                },
            ));
        }
        phases.extend(one.phase(run_on));
        let named = one.declaration.model.iter().chain(&one.declaration.decoder);
        whole.staged.extend(named.cloned());
        match one.kind {
            Kind::Composite => return Err(inner.unsupported("a composite inside a composite")),
            Kind::Autoregressive | Kind::Nested => {
                if whole.kind == (StrategyKind::Composite { token_loop: true }) {
                    return Err(inner.unsupported("more than one autoregressive stage"));
                }
                whole.kind = StrategyKind::Composite { token_loop: true };
                whole.decoder = one.declaration.decoder;
                whole.first_pass = one.declaration.first_pass;
                whole.max_tokens = one.declaration.max_tokens;
                whole.nested = one.declaration.nested;
            }
            Kind::SinglePass => {}
            Kind::Iterative => {
                let after_tokens = whole.kind == StrategyKind::Composite { token_loop: true };
                let loops = one.declaration.iterative.into_iter();
                whole
                    .iterative
                    .extend(loops.map(|iterative| IterativeDeclaration {
                        after_tokens,
                        ..iterative
                    }));
            }
        }
    }
    if count == 0 {
        return Err(stages.invalid("a composite needs at least one stage"));
    }
    Ok((whole, phases))
}

struct OneStrategy {
    kind: Kind,
    declaration: StrategyDeclaration,
}

fn empty(kind: StrategyKind, at: &Cursor<'_>) -> StrategyDeclaration {
    StrategyDeclaration {
        kind,
        decoder: None,
        first_pass: None,
        model: None,
        staged: Vec::new(),
        iterative: Vec::new(),
        nested: None,
        max_tokens: None,
        at: at.location(),
    }
}

fn read_one(at: &Cursor<'_>) -> Result<OneStrategy, PackageError> {
    let mut fields = at.fields()?;
    let kind_at = fields.get("kind");
    let kind = kind_at
        .as_ref()
        .map_or(Ok(Kind::Autoregressive), |kind| kind.one_of(KINDS))?;
    let mut declaration = empty(StrategyKind::Autoregressive, at);
    match kind {
        Kind::Autoregressive => {
            declaration.decoder = fields.get("decoder").map(said).transpose()?;
            declaration.first_pass = fields.get("first_pass").map(said).transpose()?;
            declaration.max_tokens = fields.get("max_tokens").map(|value| value.count(1)).transpose()?;
        }
        Kind::SinglePass => {
            declaration.kind = StrategyKind::SinglePass;
            declaration.model = fields.get("model").map(said).transpose()?;
        }
        Kind::Composite => {
            declaration.kind = StrategyKind::Composite { token_loop: false };
            fields.skip(&["stages"]);
        }
        Kind::Iterative => {
            declaration.kind = StrategyKind::Iterative;
            declaration.iterative.push(read_iterative(&mut fields, at)?);
        }
        Kind::Nested => {
            declaration.kind = StrategyKind::Nested;
            declaration.decoder = Some(said(
                fields.required("outer", "the decoder whose steps are frames")?,
            )?);
            declaration.nested = Some(read_nested(&mut fields, at)?);
            declaration.max_tokens = fields.get("max_tokens").map(|value| value.count(1)).transpose()?;
        }
    }
    fields.finish();
    Ok(OneStrategy { kind, declaration })
}

/// The most steps that a loop may have.
const MAX_STEPS: u64 = Iteration::MAX_STEPS as u64;

fn read_iterative(fields: &mut Fields<'_>, at: &Cursor<'_>) -> Result<IterativeDeclaration, PackageError> {
    let denoiser = fields.get("denoiser").map(said).transpose()?;
    let timestep_input = fields.get("timestep_input").map(said).transpose()?;
    let timesteps = match fields.get("timesteps") {
        Some(list) => Some(Said {
            value: list
                .items()?
                .map(|timestep| timestep.number())
                .collect::<Result<Vec<f64>, _>>()?,
            at: list.location(),
        }),
        None => None,
    };
    let steps = match (fields.get("num_steps"), &timesteps) {
        (Some(steps), _) => {
            let count = steps.count_up_to(1, MAX_STEPS)?;
            if let Some(timesteps) = &timesteps
                && timesteps.value.len() as u64 != count
            {
                return Err(steps.invalid(format!(
                    "{count} steps and {} timesteps, at {}; give one timestep for each step",
                    timesteps.value.len(),
                    timesteps.at
                )));
            }
            count
        }
        (None, Some(timesteps)) if (1..=MAX_STEPS).contains(&(timesteps.value.len() as u64)) => {
            timesteps.value.len() as u64
        }
        (None, _) => {
            let expected = format!("how often the denoiser runs, an integer from 1 to {MAX_STEPS}");
            return Err(fields.missing("num_steps", &expected));
        }
    };
    let start_step = match fields.get("start_step") {
        Some(start) => start.count_up_to(0, steps - 1)?,
        None => 0,
    };
    let scheduler = fields
        .get("scheduler_config")
        .map(|scheduler| read_scheduler(&scheduler))
        .transpose()?;
    let conditioning_input = fields.get("cfg_conditioning_input").map(said).transpose()?;
    let guidance_scale = match fields.get("guidance_scale") {
        Some(scale) => {
            let expected = format!("a number from 0 to {}", Iteration::MAX_GUIDANCE);
            let range = 0.0..=Iteration::MAX_GUIDANCE;
            let value = scale.number_where(&expected, |value| range.contains(&value))?;
            let masks = scheduler
                .as_ref()
                .is_some_and(|said| said.value.masked().is_some());
            if value != 1.0 && conditioning_input.is_none() && !masks {
                return Err(scale.invalid(
                    "the strategy names no cfg_conditioning_input, which guidance leaves out once in each step",
                ));
            }
            value
        }
        None => 1.0,
    };
    Ok(IterativeDeclaration {
        denoiser,
        num_steps: steps as usize,
        start_step: start_step as usize,
        timestep_input,
        timesteps,
        scheduler,
        conditioning_input,
        guidance_scale,
        after_tokens: false,
        at: at.location(),
    })
}

impl OneStrategy {
    /// What the strategy says of the phase of the component that it names.
    fn phase(&self, run_on: Option<Said<Phase>>) -> Option<StagePhase> {
        let component = match self.kind {
            Kind::Autoregressive | Kind::Nested => self.declaration.decoder.as_ref()?,
            Kind::SinglePass => self.declaration.model.as_ref()?,
            Kind::Iterative => self.declaration.iterative.first()?.denoiser.as_ref()?,
            Kind::Composite => return None,
        };
        let phase = match (run_on, self.kind) {
            (Some(run_on), _) => run_on,
            (None, Kind::Autoregressive | Kind::Nested) => Said {
                value: Phase::EveryStep,
                at: component.at.clone(),
            },
            // A component that a single pass only names keeps the default of its type; when a
            // denoiser runs depends on the other stages.
            (None, _) => return None,
        };
        Some(StagePhase {
            component: component.value.clone(),
            phase,
        })
    }
}
