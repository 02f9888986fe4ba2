//! The loop of a denoiser: its edges to itself, its timestep, and when it runs.

use crate::component::{ComponentIo, DataType, Dim, Port, Shape, shown};

use super::declaration::{ComponentDeclaration, EdgeDeclaration, Phase, Said};
use super::resolve::{find_symbol, mismatch, port_index};
use super::roles::{Roles, is_float, is_integer};
use super::scheduler::Scheduler;
use super::spec::{Guidance, InputDim, InputSource, InputSpec, Iteration, LoopState};
use super::structure::{Loop, Structure, state_edges};
use super::{Location, PackageError, PackageErrorKind};

/// When a denoiser runs. Its steps are those of the run if no tokens are and it is the last; else
/// all of its steps are one run of it, before what the run is made of or after.
pub(super) fn phase(structure: &Structure, of: usize) -> Phase {
    let component = structure.loops.get(of).map(|one| one.denoiser);
    let component = component.and_then(|index| structure.declaration.components.get(index));
    let said = component.and_then(|component| component.phase.as_ref());
    let after_tokens = structure.iterative(of).is_some_and(|one| one.after_tokens);
    let earlier = structure.decoder.is_none() && structure.own_loop() != Some(of);
    match said.map(|said| said.value) {
        // A stage before the one whose steps are the run's.
        Some(Phase::EveryStep) if earlier => Phase::PromptOnly,
        Some(phase) => phase,
        None if structure.own_loop() == Some(of) => Phase::EveryStep,
        None if after_tokens => Phase::FinalOnly,
        None => Phase::PromptOnly,
    }
}

/// The state that a denoiser's edge to this input of its carries, among those of all loops.
pub(super) fn looped_input(structure: &Structure, of: usize, port: &str) -> Option<usize> {
    let Loop {
        denoiser,
        first_state,
    } = structure.loops.get(of)?;
    let mut loops = state_edges(&structure.declaration, *denoiser);
    let place = loops.position(|edge| edge.to.value.port == port)?;
    Some(first_state + place)
}

/// What an edge of the denoiser to itself carries. The output can take the input's place.
pub(super) fn loop_state(
    structure: &Structure,
    of: usize,
    edge: &EdgeDeclaration,
    io: &ComponentIo,
    input: usize,
    output: usize,
) -> Result<LoopState, PackageError> {
    let ports = (io.inputs.get(input), io.outputs.get(output));
    let masked = structure.scheduler(of).and_then(Scheduler::masked).is_some();
    let tokens = masked && ports.0.is_some_and(is_integer);
    if let (true, Some(port), Some(logits)) = (tokens, ports.0, ports.1) {
        check_logits(structure.denoiser_name(of), edge, port, logits)?;
    } else if let (Some(before), Some(after)) = ports
        && let (Some(wanted), Some(given)) = (&before.dims, &after.dims)
    {
        let fits = |(wanted, given): (&Dim, &Dim)| match (wanted, given) {
            (Dim::Fixed(wanted), Dim::Fixed(given)) => wanted == given,
            _ => true,
        };
        if wanted.len() != given.len() || !wanted.iter().zip(given).all(fits) {
            let component = structure.denoiser_name(of);
            let expected = format!(
                "{}, as its input \"{}\", whose place it takes in the next step",
                before.display_dims(),
                before.name
            );
            return Err(mismatch(component, after, &edge.to.at, expected));
        }
    }
    if let (Some(port), Some(scheduler), false) = (ports.0, structure.scheduler(of), masked)
        && !is_float(port)
    {
        let expected = format!(
            "float32, float16 or bfloat16, for the scheduler {}",
            scheduler.name()
        );
        return Err(mismatch(structure.denoiser_name(of), port, &edge.to.at, expected));
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
    denoiser: &str,
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
    Err(mismatch(denoiser, logits, &edge.to.at, expected))
}

/// That a masked diffusion has tokens to make.
pub(super) fn check_states(
    structure: &Structure,
    of: usize,
    states: &[LoopState],
) -> Result<(), PackageError> {
    let iterative = structure.iterative(of);
    let scheduler = iterative.and_then(|iterative| iterative.scheduler.as_ref());
    match scheduler {
        Some(said) if said.value.masked().is_some() && !states.iter().any(|state| state.tokens) => {
            Err(invalid(
                &said.at,
                format!(
                    "no edge of pipeline.dataflow leads from logits of \"{}\" to tokens of it, int32 or int64, which \
                 masked_diffusion makes of them",
                    shown(structure.denoiser_name(of))
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
    of: usize,
    component: &ComponentDeclaration,
    phase: Phase,
) -> Result<(), PackageError> {
    let own = structure.own_loop() == Some(of);
    let wrong = match (own, phase) {
        (true, Phase::EveryStep) => None,
        (true, _) => Some("it must be every_step, since its steps are those of the run"),
        (false, Phase::EveryStep) => Some(
            "it must be prompt_only, final_only or on_demand, since the steps of the run are tokens; it runs all \
             of its own each time",
        ),
        (false, _) => None,
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
    of: usize,
    component: &ComponentDeclaration,
    io: &ComponentIo,
    roles: &mut Roles,
) -> Result<(), PackageError> {
    let Some(iterative) = structure.iterative(of) else {
        return Ok(());
    };
    let Some(said) = &iterative.timestep_input else {
        return match &iterative.timesteps {
            None => Ok(()),
            // A scheduler has its noise levels from them.
            Some(_) if structure.scheduler(of).and_then(Scheduler::noise).is_some() => Ok(()),
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

/// What guidance leaves out: an input of floats that is the host's or at the end of an edge, if the
/// package names one, else the prompt of a loop that makes tokens.
pub(super) fn find_guidance(
    structure: &Structure,
    of: usize,
    component: &ComponentDeclaration,
    io: &ComponentIo,
    inputs: &[InputSpec],
) -> Result<Option<Guidance>, PackageError> {
    let Some(iterative) = structure.iterative(of) else {
        return Ok(None);
    };
    let Some(said) = &iterative.conditioning_input else {
        let masked = structure.scheduler(of).and_then(Scheduler::masked);
        return Ok(masked.map(|_| Guidance {
            input: None,
            scale: iterative.guidance_scale,
        }));
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
            input: Some(input),
            scale: iterative.guidance_scale,
        })),
    }
}

/// The loops, given what goes from step to step of each and what guidance leaves out.
pub(super) fn resolve(
    structure: &Structure,
    states: Vec<Vec<LoopState>>,
    guidance: &[Option<Guidance>],
) -> Vec<Iteration> {
    let declared = structure
        .loops
        .iter()
        .zip(&structure.declaration.strategy.iterative);
    let loops = declared.zip(states).enumerate();
    loops
        .map(|(of, ((one, iterative), states))| Iteration {
            denoiser: one.denoiser,
            first_state: one.first_state,
            states,
            num_steps: iterative.num_steps,
            start_step: iterative.start_step,
            timesteps: iterative.timesteps.clone(),
            scheduler: iterative.scheduler.clone(),
            guidance: guidance.get(of).copied().flatten(),
        })
        .collect()
}

fn invalid(at: &Location, message: String) -> PackageError {
    PackageError::new(at.clone(), PackageErrorKind::Invalid { message })
}
