use super::declaration::{Phase, Said, StrategyDeclaration, StrategyKind};
use super::document::Cursor;
use super::metadata::{PHASES, StagePhase, said};
use super::{PackageError, PackageErrorKind};

/// Strategies as the metadata names them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Autoregressive,
    SinglePass,
    Composite,
    /// Understood, not run by this version.
    Later,
}

const KINDS: &[(&str, Kind)] = &[
    ("autoregressive", Kind::Autoregressive),
    ("single_pass", Kind::SinglePass),
    ("composite", Kind::Composite),
    ("iterative", Kind::Later),
    ("diffusion_steps", Kind::Later),
    ("nested_autoregressive", Kind::Later),
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
        phases.extend(one.phase(run_on));
        let named = one.declaration.model.iter().chain(&one.declaration.decoder);
        whole.staged.extend(named.cloned());
        match one.kind {
            Kind::Composite => return Err(inner.unsupported("a composite inside a composite")),
            Kind::Autoregressive => {
                if whole.kind == (StrategyKind::Composite { token_loop: true }) {
                    return Err(inner.unsupported("more than one autoregressive stage"));
                }
                whole.kind = StrategyKind::Composite { token_loop: true };
                whole.decoder = one.declaration.decoder;
                whole.max_tokens = one.declaration.max_tokens;
            }
            Kind::SinglePass => {}
            Kind::Later => {
                whole.unsupported = whole.unsupported.or(one.declaration.unsupported);
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
        model: None,
        staged: Vec::new(),
        max_tokens: None,
        unsupported: None,
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
        Kind::Later => {
            if let Some(kind_at) = kind_at {
                declaration.unsupported = Some(Said {
                    value: format!("strategy \"{}\"", kind_at.text()?),
                    at: kind_at.location(),
                });
            }
            return Ok(OneStrategy { kind, declaration });
        }
    }
    fields.finish();
    Ok(OneStrategy { kind, declaration })
}

impl OneStrategy {
    /// What the strategy says of the phase of the component that it names.
    fn phase(&self, run_on: Option<Said<Phase>>) -> Option<StagePhase> {
        let component = match self.kind {
            Kind::Autoregressive => self.declaration.decoder.as_ref()?,
            Kind::SinglePass => self.declaration.model.as_ref()?,
            Kind::Composite | Kind::Later => return None,
        };
        let phase = match (run_on, self.kind) {
            (Some(run_on), _) => run_on,
            (None, Kind::Autoregressive) => Said {
                value: Phase::EveryStep,
                at: component.at.clone(),
            },
            // A component that a single pass only names keeps the default of its type.
            (None, _) => return None,
        };
        Some(StagePhase {
            component: component.value.clone(),
            phase,
        })
    }
}

impl StrategyDeclaration {
    /// The error of a strategy that this version does not run, if it is one.
    pub fn refuse_unsupported(&self) -> Result<(), PackageError> {
        match &self.unsupported {
            None => Ok(()),
            Some(said) => Err(PackageError::new(
                said.at.clone(),
                PackageErrorKind::Unsupported {
                    what: said.value.clone(),
                },
            )),
        }
    }
}
