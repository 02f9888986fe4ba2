//! The loop of a denoiser: its edges to itself, its timestep, and when it runs.

use crate::component::{ComponentIo, DataType, Dim, Port, Shape, shown};

use super::declaration::{ComponentDeclaration, EdgeDeclaration, IterativeDeclaration, Phase, Said};
use super::resolve::{find_symbol, mismatch, port_index};
use super::roles::{Roles, is_float, is_integer};
use super::scheduler::Scheduler;
use super::spec::{Guidance, InputDim, InputSource, InputSpec, Iteration, LoopState};
use super::structure::Structure;
use super::{Location, PackageError, PackageErrorKind};

/// When a denoiser runs that the package gives no phase: its steps are those of the run, unless
/// those are tokens. Then all of its steps are one run of it, before the tokens or after.
pub(super) fn default_phase(structure: &Structure) -> Phase {
    let declared = &structure.declaration.strategy.iterative;
    match (structure.decoder, declared) {
        (Some(_), Some(iterative)) if iterative.after_tokens => Phase::FinalOnly,
        (Some(_), _) => Phase::PromptOnly,
        (None, _) => Phase::EveryStep,
    }
}

/// The place of the self-edge that leads to this input, among those of the denoiser.
pub(super) fn looped_input(structure: &Structure, port: &str) -> Option<usize> {
    let denoiser = structure.denoiser?;
    let declaration = &structure.declaration;
    let mut loops = declaration
        .edges
        .iter()
        .filter(|edge| declaration.ends(edge) == Some((denoiser, denoiser)));
    loops.position(|edge| edge.to.value.port == port)
}

/// What an edge of the denoiser to itself carries. The output can take the input's place.
pub(super) fn loop_state(
    structure: &Structure,
    edge: &EdgeDeclaration,
    io: &ComponentIo,
    input: usize,
    output: usize,
) -> Result<LoopState, PackageError> {
    let ports = (io.inputs.get(input), io.outputs.get(output));
    let masked = structure.scheduler().and_then(Scheduler::masked).is_some();
    let tokens = masked && ports.0.is_some_and(is_integer);
    if let (true, Some(port), Some(logits)) = (tokens, ports.0, ports.1) {
        check_logits(structure, edge, port, logits)?;
    } else if let (Some(before), Some(after)) = ports
        && let (Some(wanted), Some(given)) = (&before.dims, &after.dims)
    {
        let fits = |(wanted, given): (&Dim, &Dim)| match (wanted, given) {
            (Dim::Fixed(wanted), Dim::Fixed(given)) => wanted == given,
            _ => true,
        };
        if wanted.len() != given.len() || !wanted.iter().zip(given).all(fits) {
            let component = structure.denoiser_name();
            let expected = format!(
                "{}, as its input \"{}\", whose place it takes in the next step",
                before.display_dims(),
                before.name
            );
            return Err(mismatch(component, after, &edge.to.at, expected));
        }
    }
    if let (Some(port), Some(scheduler), false) = (ports.0, structure.scheduler(), masked)
        && !is_float(port)
    {
        let expected = format!(
            "float32, float16 or bfloat16, for the scheduler {}",
            scheduler.name()
        );
        return Err(mismatch(structure.denoiser_name(), port, &edge.to.at, expected));
    }
    Ok(LoopState {
        input,
        output,
        shape: ports.0.and_then(declared_shape),
        tokens,
    })
}

/// That an edge carries logits to the tokens that a masked diffusion makes of them: one dim more.
fn check_logits(
    structure: &Structure,
    edge: &EdgeDeclaration,
    tokens: &Port,
    logits: &Port,
) -> Result<(), PackageError> {
    let rank = |port: &Port| port.dims.as_ref().map(Vec::len);
    let fits = match (&tokens.dims, &logits.dims) {
        (Some(tokens), Some(logits)) => logits.len() == tokens.len() + 1,
        _ => true,
    };
    if is_float(logits) && fits && rank(tokens) != Some(0) {
        return Ok(());
    }
    let expected = format!(
        "logits for each of the tokens of its input \"{}\", {}: float32, float16 or bfloat16, one dim more",
        tokens.name,
        tokens.display_dims()
    );
    Err(mismatch(structure.denoiser_name(), logits, &edge.to.at, expected))
}

/// That a masked diffusion has tokens to make.
pub(super) fn check_states(structure: &Structure, states: &[LoopState]) -> Result<(), PackageError> {
    let iterative = structure.declaration.strategy.iterative.as_ref();
    let scheduler = iterative.and_then(|iterative| iterative.scheduler.as_ref());
    match scheduler {
        Some(said) if said.value.masked().is_some() && !states.iter().any(|state| state.tokens) => {
            Err(invalid(
                &said.at,
                format!(
                    "no edge of pipeline.dataflow leads from logits of \"{}\" to tokens of it, int32 or int64, which \
                 masked_diffusion makes of them",
                    shown(structure.denoiser_name())
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// The shape that a port declares, with a batch of 1 where that is open.
fn declared_shape(port: &Port) -> Option<Shape> {
    let dims = port.dims.as_ref()?.iter().enumerate();
    dims.map(|(axis, dim)| match dim {
        Dim::Fixed(size) => Some(*size),
        Dim::Symbol(_) if axis == 0 => Some(1),
        Dim::Symbol(_) => None,
    })
    .collect()
}

/// That the denoiser runs when it can, and keeps nothing but what its edges to itself carry.
pub(super) fn check_denoiser(
    structure: &Structure,
    component: &ComponentDeclaration,
    phase: Phase,
) -> Result<(), PackageError> {
    let wrong = match (structure.decoder, phase) {
        (None, Phase::EveryStep) => None,
        (None, _) => Some("it must be every_step, since its steps are those of the run"),
        (Some(_), Phase::EveryStep) => Some(
            "it must be prompt_only, final_only or on_demand, since the steps of the run are tokens; it runs all \
             of its own each time",
        ),
        (Some(_), _) => None,
    };
    if let Some(wrong) = wrong {
        let at = component.phase.as_ref().map_or(&component.at, |said| &said.at);
        return Err(invalid(at, format!("the denoiser is {}; {wrong}", phase.name())));
    }
    let pairs = component.io.state_pairs.iter().map(|pair| &pair.input);
    match component.io.kv_inputs.iter().chain(pairs).next() {
        None => Ok(()),
        Some(said) => Err(invalid(
            &said.at,
            format!(
                "\"{}\" is an input of the denoiser; what goes from step to step of it comes through an edge of \
                 pipeline.dataflow to itself",
                shown(&said.value)
            ),
        )),
    }
}

/// Binds the denoiser's input that takes the timestep.
pub(super) fn bind_timestep(
    structure: &Structure,
    component: &ComponentDeclaration,
    io: &ComponentIo,
    roles: &mut Roles,
) -> Result<(), PackageError> {
    let Some(iterative) = &structure.declaration.strategy.iterative else {
        return Ok(());
    };
    let Some(said) = &iterative.timestep_input else {
        return match &iterative.timesteps {
            None => Ok(()),
            // A scheduler has its noise levels from them.
            Some(_) if structure.scheduler().and_then(Scheduler::noise).is_some() => Ok(()),
            Some(timesteps) => Err(invalid(
                &timesteps.at,
                "the strategy names no timestep_input that would take them".to_owned(),
            )),
        };
    };
    let index = port_index(&component.name, &io.inputs, "input", &said.value, &said.at)?;
    let Some(port) = io.inputs.get(index) else {
        return Ok(());
    };
    let of_number = is_integer(port) || is_float(port);
    let of_rank = port.dims.as_ref().is_none_or(|dims| dims.len() <= 2);
    if !of_number || !of_rank {
        let expected = "a timestep: int32, int64 or a float type, rank 0 to 2";
        return Err(mismatch(&component.name, port, &said.at, expected));
    }
    if let Some(timesteps) = &iterative.timesteps {
        check_timesteps(timesteps, port)?;
    }
    roles.bind(component, io, index, InputSource::Timestep, &said.at)
}

/// An integer input takes no fractions.
fn check_timesteps(timesteps: &Said<Vec<f64>>, port: &Port) -> Result<(), PackageError> {
    let limit = match port.dtype() {
        Some(DataType::Int32) => 2f64.powi(31),
        Some(DataType::Int64) => 2f64.powi(63),
        _ => return Ok(()),
    };
    let fits = |timestep: f64| timestep.fract() == 0.0 && (-limit..limit).contains(&timestep);
    match timesteps.value.iter().find(|&&timestep| !fits(timestep)) {
        None => Ok(()),
        Some(timestep) => Err(invalid(
            &timesteps.at,
            format!(
                "{timestep} is no {}, and the timestep_input \"{}\" takes nothing else",
                port.ty, port.name
            ),
        )),
    }
}

/// The shape of the timestep: dims without a size are those of another input with the same
/// name (a batch), else 1.
pub(super) fn timestep_dims(io: &ComponentIo, input: usize) -> Vec<InputDim> {
    let dims = io.inputs.get(input).and_then(|port| port.dims.as_ref());
    let Some(dims) = dims else {
        return vec![InputDim::Fixed(1)];
    };
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => InputDim::Fixed(*size),
        Dim::Symbol(name) => {
            let found = name
                .as_deref()
                .and_then(|name| find_symbol(io, name, Some(input)));
            found.map_or(InputDim::Fixed(1), |(input, axis)| InputDim::SameAs {
                input,
                axis,
            })
        }
    };
    dims.iter().map(size).collect()
}

/// The input that guidance leaves out: the host's, or at the end of an edge, of floats.
pub(super) fn find_guidance(
    structure: &Structure,
    component: &ComponentDeclaration,
    io: &ComponentIo,
    inputs: &[InputSpec],
) -> Result<Option<Guidance>, PackageError> {
    let Some(iterative) = &structure.declaration.strategy.iterative else {
        return Ok(None);
    };
    let Some(said) = &iterative.conditioning_input else {
        return Ok(None);
    };
    let input = port_index(&component.name, &io.inputs, "input", &said.value, &said.at)?;
    let given = inputs
        .get(input)
        .is_some_and(|input| matches!(input.source, InputSource::Request { .. } | InputSource::Edge(_)));
    if !given {
        return Err(invalid(
            &said.at,
            format!(
                "the loop itself feeds \"{}\"; guidance leaves out what the denoiser is conditioned on",
                shown(&said.value)
            ),
        ));
    }
    match io.inputs.get(input) {
        Some(port) if !is_float(port) => {
            let expected = "float32, float16 or bfloat16, of which guidance makes zeros";
            Err(mismatch(&component.name, port, &said.at, expected))
        }
        _ => Ok(Some(Guidance {
            input,
            scale: iterative.guidance_scale,
        })),
    }
}

pub(super) fn resolve(
    structure: &Structure,
    states: Vec<LoopState>,
    guidance: Option<Guidance>,
) -> Option<Iteration> {
    let IterativeDeclaration {
        num_steps,
        start_step,
        timesteps,
        scheduler,
        ..
    } = structure.declaration.strategy.iterative.as_ref()?;
    Some(Iteration {
        denoiser: structure.denoiser?,
        states,
        num_steps: *num_steps,
        start_step: *start_step,
        timesteps: timesteps.clone(),
        scheduler: scheduler.clone(),
        guidance,
    })
}

fn invalid(at: &Location, message: String) -> PackageError {
    PackageError::new(at.clone(), PackageErrorKind::Invalid { message })
}
