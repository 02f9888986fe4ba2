use std::collections::HashSet;

use crate::component::{ComponentIo, DataType, Dim, Port};

use super::declaration::{
    ComponentDeclaration, Continuation, Declaration, EdgeDeclaration, Phase, Said, StrategyKind, ZeroDim,
};
use super::first_pass;
use super::iteration;
use super::kept;
use super::media_inputs::resolve_media;
use super::nested::{self, OUTPUT_CODES};
use super::phases;
use super::roles::{self, Roles};
use super::spec::{
    Absent, ComponentSpec, InputDim, InputSource, InputSpec, LoopState, OutputDim, OutputRef, OutputRole,
    OutputSpec, PipelineSpec, TokenLoop,
};
use super::structure::Structure;
use super::{Location, PackageError, PackageErrorKind};

/// The port that the loop itself publishes on the decoder.
pub(super) const OUTPUT_IDS: &str = "output_ids";

/// Turns names into indices, given the ports of every component, in the same order.
pub(crate) fn resolve(structure: &Structure, ios: &[ComponentIo]) -> Result<PipelineSpec, PackageError> {
    let declaration = &structure.declaration;
    let mut states: Vec<Vec<LoopState>> = structure.loops.iter().map(|_| Vec::new()).collect();
    let mut edges = Vec::new();
    for edge in &declaration.edges {
        let edge = resolve_edge(structure, edge, ios, &mut states)?;
        edges.push(edge);
    }
    for (of, states) in states.iter().enumerate() {
        iteration::check_states(structure, of, states)?;
    }
    edges.extend(cross_kv_edges(declaration, ios, &edges)?);
    let mut leading_to: Vec<Vec<&Edge>> = declaration.components.iter().map(|_| Vec::new()).collect();
    for edge in &edges {
        if let Some(list) = leading_to.get_mut(edge.to) {
            list.push(edge);
        }
    }

    let phases = phases::phases(structure, &edges, ios);
    let mut components = Vec::new();
    let mut token_loop = None;
    let mut inner_logits = None;
    let mut guidance = vec![None; structure.loops.len()];
    for (index, (component, io)) in declaration.components.iter().zip(ios).enumerate() {
        let phase = phases.get(index).copied().unwrap_or(Phase::PromptOnly);
        let is_decoder = structure.decoder == Some(index);
        let its_loop = structure.loop_of(index);
        let is_inner = structure.nested.is_some_and(|parts| parts.inner == index);
        let is_pre_embedder = structure
            .nested
            .is_some_and(|parts| parts.pre_embedder == Some(index));
        // Tokens come by the step only where they are chosen.
        let tokens_are_steps = structure.decoder.is_some() || structure.loops.is_empty();
        let reads_steps = is_decoder || (phase == Phase::EveryStep && tokens_are_steps && !is_pre_embedder);
        let leading_here = leading_to.get(index).map_or(&[][..], Vec::as_slice);
        let fed: Vec<&str> = leading_here
            .iter()
            .filter_map(|edge| io.inputs.get(edge.input).map(|port| port.name.as_str()))
            .collect();
        let positions = declaration.positions_input.as_ref().filter(|_| is_decoder);
        let decodes = is_decoder || is_inner;
        let mut roles = roles::find(component, io, &fed, reads_steps, decodes, positions)?;
        nested::bind(structure, index, component, io, &mut roles)?;
        if let Some(of) = its_loop {
            iteration::check_denoiser(structure, of, component, phase)?;
            iteration::bind_timestep(structure, of, component, io, &mut roles)?;
        }
        if is_decoder && phase != Phase::EveryStep {
            return Err(said_invalid(
                &component.at,
                format!("the decoder is {}; it must be every_step", phase.name()),
            ));
        }
        if decodes {
            let logits = roles::logits(component, io, &roles, |output| {
                let routed = |edge: &Edge| edge.from_component == index && edge.output == Some(output);
                edges.iter().any(routed)
            })?;
            match is_inner {
                true => inner_logits = Some(logits),
                false => {
                    token_loop = Some(TokenLoop {
                        decoder: index,
                        logits,
                        one_at_a_time: false,
                    });
                }
            }
        }
        let resolved = resolve_component(
            declaration,
            component,
            io,
            phase,
            declaration.coordinates.filter(|_| is_decoder),
            &mut roles,
            leading_here.iter().copied(),
        )?;
        if let Some(of) = its_loop
            && let Some(guidance) = guidance.get_mut(of)
        {
            *guidance = iteration::find_guidance(structure, of, component, io, &resolved.inputs)?;
        }
        components.push(resolved);
    }
    let first_pass = first_pass::resolve(structure, &mut components, token_loop, ios)?;
    first_pass::resolve_merges(declaration, &mut components, ios)?;
    if let Some(token_loop) = &mut token_loop {
        token_loop.one_at_a_time =
            first_pass::one_at_a_time(&components, token_loop.decoder, first_pass.is_some());
    }
    phases::check(declaration, &edges, &phases)?;
    nested::check_phases(structure)?;
    let source = |component: usize, input: usize| {
        let component: &ComponentSpec = components.get(component)?;
        component.inputs.get(input).map(|input| input.source)
    };
    let nested = nested::resolve(structure, ios, inner_logits, source)?;
    if let Some(decoder) = structure.decoder
        && nested.is_some_and(|nested| nested.pre_embedder.is_some())
        && components
            .get(decoder)
            .is_some_and(|decoder| !decoder.has_cache())
        && let Some(declared) = declaration.components.get(decoder)
    {
        return Err(said_invalid(
            &declared.at,
            "the outer decoder keeps nothing from step to step (kv_inputs or state_pairs); with a pre_embedder it \
             reads one frame at a time and must"
                .to_owned(),
        ));
    }
    phases::check_embedders(structure, &components, &edges, ios)?;
    let context_length = kept::context_length(declaration.context_length, token_loop, &components);
    let media = resolve_media(declaration, ios, &components)?;
    Ok(PipelineSpec {
        components,
        media,
        order: structure.order.clone(),
        token_loop,
        first_pass,
        nested,
        iterations: iteration::resolve(structure, states, &guidance),
        strategy: match declaration.strategy.kind {
            StrategyKind::Autoregressive => "autoregressive",
            StrategyKind::Nested => "nested_autoregressive",
            StrategyKind::SinglePass => "single_pass",
            StrategyKind::Iterative => "iterative",
            StrategyKind::Composite { .. } => "composite",
        },
        max_tokens: declaration.strategy.max_tokens,
        generation: declaration.generation.clone(),
        token_roles: declaration.token_roles.clone(),
        context_length,
        eos_token_ids: declaration.eos_token_ids.iter().map(|said| said.value).collect(),
    })
}

pub(super) struct Edge {
    pub source: InputSource,
    pub from_component: usize,
    /// `None` for what the loop itself publishes.
    pub output: Option<usize>,
    pub to: usize,
    pub input: usize,
    pub at: Location,
}

pub(super) fn said_invalid(at: &Location, message: String) -> PackageError {
    PackageError::new(at.clone(), PackageErrorKind::Invalid { message })
}

/// The index of a port that a binding or an edge names.
pub(super) fn port_index(
    component: &str,
    ports: &[Port],
    direction: &'static str,
    name: &str,
    at: &Location,
) -> Result<usize, PackageError> {
    ports.iter().position(|port| port.name == name).ok_or_else(|| {
        PackageError::new(
            at.clone(),
            PackageErrorKind::UnknownPort {
                component: component.to_owned(),
                port: name.to_owned(),
                direction,
                known: ports.iter().map(|port| port.name.clone()).collect(),
            },
        )
    })
}

pub(super) fn mismatch(
    component: &str,
    port: &Port,
    at: &Location,
    expected: impl Into<String>,
) -> PackageError {
    PackageError::new(
        at.clone(),
        PackageErrorKind::PortMismatch {
            component: component.to_owned(),
            port: port.name.clone(),
            found: format!("{} {}", port.ty, port.display_dims()),
            expected: expected.into(),
        },
    )
}

/// `states` gets what denoisers' edges to themselves carry, loop by loop.
fn resolve_edge(
    structure: &Structure,
    edge: &EdgeDeclaration,
    ios: &[ComponentIo],
    states: &mut [Vec<LoopState>],
) -> Result<Edge, PackageError> {
    let declaration = &structure.declaration;
    let unknown = || said_invalid(&edge.from.at, "an end of the edge is no component".to_owned());
    let (from_component, to) = declaration.ends(edge).ok_or_else(unknown)?;
    let (Some(from_io), Some(to_io)) = (ios.get(from_component), ios.get(to)) else {
        return Err(unknown());
    };
    let input = port_index(
        &edge.to.value.component,
        &to_io.inputs,
        "input",
        &edge.to.value.port,
        &edge.to.at,
    )?;
    let no_output = from_io.output(&edge.from.value.port).is_none();
    let published = match edge.from.value.port.as_str() {
        _ if structure.decoder != Some(from_component) || !no_output => None,
        OUTPUT_IDS => Some(InputSource::OutputIds),
        OUTPUT_CODES if structure.nested.is_some() => Some(InputSource::OutputCodes),
        _ => None,
    };
    let its_loop = structure.loop_of(from_component);
    let looped = its_loop
        .filter(|_| no_output)
        .and_then(|of| iteration::looped_input(structure, of, &edge.from.value.port));
    let mut tokens = false;
    let mut from_output = None;
    let (source, carried) = if let Some(published) = published {
        (published, Some(DataType::Int64))
    } else if let Some(state) = looped {
        let port = from_io.input(&edge.from.value.port);
        (InputSource::LoopResult { state }, port.and_then(Port::dtype))
    } else {
        let output = port_index(
            &edge.from.value.component,
            &from_io.outputs,
            "output",
            &edge.from.value.port,
            &edge.from.at,
        )?;
        let reference = OutputRef {
            component: from_component,
            output,
        };
        from_output = Some(output);
        let port = from_io.outputs.get(output);
        let feed = nested::edge_feed(structure, from_component, to, &edge.to.value.port);
        if let Some(feed) = feed {
            (InputSource::Nested(feed), port.and_then(Port::dtype))
        } else if let (Some(of), true) = (its_loop, from_component == to) {
            let state = iteration::loop_state(structure, of, edge, from_io, input, output)?;
            tokens = state.tokens;
            let first = structure.loops.get(of).map_or(0, |one| one.first_state);
            let place = states.get_mut(of).map_or(0, |states| {
                states.push(state);
                states.len() - 1
            });
            let state = first + place;
            (InputSource::Loop { state }, port.and_then(Port::dtype))
        } else {
            (InputSource::Edge(reference), port.and_then(Port::dtype))
        }
    };
    let wanted = to_io.inputs.get(input).and_then(Port::dtype);
    let (Some(carried), Some(wanted)) = (carried, wanted) else {
        return Err(said_invalid(
            &edge.from.at,
            "the edge carries a type that does not cross between components".to_owned(),
        ));
    };
    let float = DataType::is_float32_or_smaller;
    if carried != wanted && !(float(carried) && float(wanted)) && !tokens {
        return Err(said_invalid(
            &edge.to.at,
            format!(
                "the edge gives {carried} and the input takes {wanted}; only float32, float16 and bfloat16 are \
                 converted into each other"
            ),
        ));
    }
    if let Some(said) = &edge.dtype
        && said.value != carried
        && said.value != wanted
    {
        return Err(said_invalid(
            &said.at,
            format!(
                "the edge says {}, but it gives {carried} and the input takes {wanted}",
                said.value
            ),
        ));
    }
    Ok(Edge {
        source,
        from_component,
        output: from_output,
        to,
        input,
        at: edge.to.at.clone(),
    })
}

/// Edges for `cross_kv_inputs` that have none: from the one component that declares as
/// many `cross_kv_outputs`, pair by pair.
fn cross_kv_edges(
    declaration: &Declaration,
    ios: &[ComponentIo],
    edges: &[Edge],
) -> Result<Vec<Edge>, PackageError> {
    let fed: HashSet<(usize, usize)> = edges.iter().map(|edge| (edge.to, edge.input)).collect();
    let mut made = Vec::new();
    for (to, (component, io)) in declaration.components.iter().zip(ios).enumerate() {
        // Such a component makes them itself.
        if component.io.cross_kv_inputs.len() == component.io.cross_kv_outputs.len() {
            continue;
        }
        for (position, said) in component.io.cross_kv_inputs.iter().enumerate() {
            let input = port_index(&component.name, &io.inputs, "input", &said.value, &said.at)?;
            if fed.contains(&(to, input)) {
                continue;
            }
            let count = component.io.cross_kv_inputs.len();
            let mut sources = declaration
                .components
                .iter()
                .enumerate()
                .filter(|(index, other)| *index != to && other.io.cross_kv_outputs.len() == count);
            let (Some((from_component, source)), None) = (sources.next(), sources.next()) else {
                return Err(said_invalid(
                    &said.at,
                    format!(
                        "no edge feeds it, and not exactly one other component declares {count} cross_kv_outputs"
                    ),
                ));
            };
            let Some(output_name) = source.io.cross_kv_outputs.get(position) else {
                continue;
            };
            let outputs = ios.get(from_component).map_or(&[][..], |io| &io.outputs);
            let output = port_index(
                &source.name,
                outputs,
                "output",
                &output_name.value,
                &output_name.at,
            )?;
            let (from_port, to_port) = (outputs.get(output), io.inputs.get(input));
            if from_port.and_then(Port::dtype) != to_port.and_then(Port::dtype)
                && let Some(to_port) = to_port
            {
                let expected = from_port.map_or(String::new(), |port| format!("{}", port.ty));
                return Err(mismatch(&component.name, to_port, &said.at, expected));
            }
            made.push(Edge {
                source: InputSource::Edge(OutputRef {
                    component: from_component,
                    output,
                }),
                from_component,
                output: Some(output),
                to,
                input,
                at: said.at.clone(),
            });
        }
    }
    Ok(made)
}

fn resolve_component<'e>(
    declaration: &Declaration,
    component: &ComponentDeclaration,
    io: &ComponentIo,
    phase: Phase,
    coordinates: Option<Continuation>,
    roles: &mut Roles,
    edges: impl Iterator<Item = &'e Edge>,
) -> Result<ComponentSpec, PackageError> {
    for edge in edges {
        roles.bind(component, io, edge.input, edge.source, &edge.at)?;
    }
    let mut inputs = Vec::new();
    for (index, port) in io.inputs.iter().enumerate() {
        let source = match roles.source(index) {
            Some(InputSource::Positions { rank, .. }) => InputSource::Positions { rank, coordinates },
            Some(source) => source,
            None => InputSource::Request {
                required: !port.optional,
            },
        };
        let Some(dtype) = port.dtype() else {
            if port.optional && matches!(source, InputSource::Request { .. }) {
                // Never fed; any dtype will do for a port that takes no value.
                inputs.push(InputSpec {
                    source,
                    dtype: DataType::Float32,
                    dims: Vec::new(),
                    absent: None,
                    merges: Vec::new(),
                });
                continue;
            }
            return Err(mismatch(
                &component.name,
                port,
                &component.at,
                "a tensor of one of the 14 types that cross between components",
            ));
        };
        if let InputSource::Positions { rank: 3, .. } = source
            && !declaration.linear_positions
        {
            return Err(mismatch(
                &component.name,
                port,
                &component.at,
                "rank 1 or 2, or pipeline.positions with generation: linear for three axes",
            ));
        }
        inputs.push(InputSpec {
            source,
            dtype,
            dims: match source {
                InputSource::Timestep => iteration::timestep_dims(io, index),
                InputSource::Ones => ones_dims(component, io, index)?,
                InputSource::AttentionMask => kept::mask_dims(component, io, port),
                InputSource::Held { .. } => held_dims(port),
                _ => Vec::new(),
            },
            absent: None,
            merges: Vec::new(),
        });
    }
    for optional in &component.io.optional_inputs {
        let index = port_index(
            &component.name,
            &io.inputs,
            "input",
            &optional.port.value,
            &optional.port.at,
        )?;
        let dims = optional
            .shape
            .iter()
            .map(|dim| absent_dim(component, io, index, dim, &optional.port))
            .collect::<Result<Vec<_>, _>>()?;
        let Some(input) = inputs.get_mut(index) else {
            continue;
        };
        if !matches!(input.source, InputSource::Request { .. } | InputSource::Edge(_)) {
            return Err(said_invalid(
                &optional.port.at,
                "the loop feeds this input in every step; it is never absent".to_owned(),
            ));
        }
        input.absent = Some(Absent {
            modality: optional.modality.clone(),
            dims,
            first_pass_only: optional.first_pass_only,
        });
    }
    let mut outputs: Vec<OutputSpec> = io
        .outputs
        .iter()
        .map(|port| OutputSpec {
            dtype: port.dtype(),
            role: OutputRole::Plain,
            dims: output_dims(io, port),
        })
        .collect();
    for (input, spec) in inputs.iter().enumerate() {
        let (output, role) = match spec.source {
            InputSource::Held { output } => (output, OutputRole::Held),
            InputSource::Past { output } => (output, kept::present_role(component, io, input, output)?),
            InputSource::State { output } => (output, kept::state_role(component, io, input, output)?),
            _ => continue,
        };
        if let Some(slot) = outputs.get_mut(output) {
            slot.role = role;
        }
    }
    Ok(ComponentSpec {
        name: component.name.clone(),
        component_type: component.component_type.clone(),
        file: component.file.value.clone(),
        phase,
        when_present: component.when_present.as_ref().map(|said| said.value.clone()),
        io: io.clone(),
        making: making_order(&inputs),
        inputs,
        outputs,
    })
}

/// The order in which inputs are made: sizes that are another input's come after it.
fn making_order(inputs: &[InputSpec]) -> Vec<usize> {
    let sizes_of = |input: &InputSpec| {
        let absent = input.absent.iter().flat_map(|absent| &absent.dims);
        let dims: Vec<InputDim> = input.dims.iter().chain(absent).copied().collect();
        dims.into_iter().filter_map(|dim| match dim {
            InputDim::SameAs { input, .. } => Some(input),
            InputDim::Fixed(_) => None,
        })
    };
    let mut waiting: Vec<usize> = (0..inputs.len()).collect();
    let mut order = Vec::with_capacity(inputs.len());
    while !waiting.is_empty() {
        let is_ready = |index: &usize| {
            let input = inputs.get(*index);
            !input
                .is_some_and(|input| sizes_of(input).any(|other| other != *index && waiting.contains(&other)))
        };
        let (ready, rest): (Vec<_>, Vec<_>) = waiting.iter().copied().partition(is_ready);
        if ready.is_empty() {
            // They take their sizes of each other; nobody can say them.
            order.extend(rest);
            break;
        }
        order.extend(ready);
        waiting = rest;
    }
    order
}

/// A dim's name is one size in the whole graph: an output dim that an input has too is
/// known before the graph runs.
fn output_dims(io: &ComponentIo, port: &Port) -> Option<Vec<OutputDim>> {
    port.dims
        .as_ref()?
        .iter()
        .map(|dim| match dim {
            Dim::Fixed(size) => Some(OutputDim::Fixed(*size)),
            Dim::Symbol(name) => {
                let (input, axis) = find_symbol(io, name.as_deref()?, None)?;
                Some(OutputDim::SameAs { input, axis })
            }
        })
        .collect()
}

pub(super) fn find_symbol(io: &ComponentIo, name: &str, except: Option<usize>) -> Option<(usize, usize)> {
    io.inputs.iter().enumerate().find_map(|(input, port)| {
        if except == Some(input) {
            return None;
        }
        let axis = port
            .dims
            .as_ref()?
            .iter()
            .position(|dim| matches!(dim, Dim::Symbol(Some(symbol)) if symbol == name))?;
        Some((input, axis))
    })
}

fn absent_dim(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    index: usize,
    dim: &ZeroDim,
    port: &Said<String>,
) -> Result<InputDim, PackageError> {
    match dim {
        ZeroDim::Fixed(size) => Ok(InputDim::Fixed(*size)),
        ZeroDim::Symbol(name) => match find_symbol(io, name, Some(index)) {
            Some((input, axis)) => Ok(InputDim::SameAs { input, axis }),
            None => Err(said_invalid(
                &port.at,
                format!(
                    "no other input of component \"{}\" has a dim named \"{name}\"; write its size",
                    component.name
                ),
            )),
        },
    }
}

/// The rows of an encoder's keys, for a mask of the encoder where exporters call the two lengths
/// differently: an input of a cache's rank that is no cache of the component.
fn encoder_rows(component: &ComponentDeclaration, io: &ComponentIo) -> Option<(usize, usize)> {
    let axis = component.io.kv_layout.sequence_axis(4);
    let input = io.inputs.iter().position(|port| {
        let own = component.io.kv_inputs.iter().any(|said| said.value == port.name);
        let open = |dims: &Vec<Dim>| dims.len() == 4 && matches!(dims.get(axis), Some(Dim::Symbol(_)));
        !own && port.dims.as_ref().is_some_and(open)
    })?;
    Some((input, axis))
}

/// Nothing, in the shape of a port: sizes that it leaves open are 0, a batch is 1.
fn held_dims(port: &Port) -> Vec<InputDim> {
    let dims = port.dims.as_deref().unwrap_or_default().iter().enumerate();
    let size = |(position, dim): (usize, &Dim)| match dim {
        Dim::Fixed(size) => *size,
        Dim::Symbol(_) => i64::from(position == 0),
    };
    dims.map(size).map(InputDim::Fixed).collect()
}

/// The shape of an input of ones: its dims have fixed sizes, names that another input has too, or
/// are a batch of 1 or as many as an encoder's keys.
fn ones_dims(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    index: usize,
) -> Result<Vec<InputDim>, PackageError> {
    let Some(port) = io.inputs.get(index) else {
        return Ok(Vec::new());
    };
    let dims = port.dims.as_deref().unwrap_or_default().iter().enumerate();
    let dims: Option<Vec<InputDim>> = dims
        .map(|(position, dim)| match dim {
            Dim::Fixed(size) => Some(InputDim::Fixed(*size)),
            Dim::Symbol(_) if position == 0 => Some(InputDim::Fixed(1)),
            Dim::Symbol(name) => {
                let named = name
                    .as_deref()
                    .and_then(|name| find_symbol(io, name, Some(index)));
                let (input, axis) = named.or_else(|| encoder_rows(component, io))?;
                Some(InputDim::SameAs { input, axis })
            }
        })
        .collect();
    dims.filter(|dims| !dims.is_empty()).ok_or_else(|| {
        let at = component
            .io
            .ones_inputs
            .iter()
            .find(|said| said.value == port.name);
        let at = at.map_or(&component.at, |said| &said.at);
        let expected = "ones, of dims that are fixed or that another input of the component has too";
        mismatch(&component.name, port, at, expected)
    })
}
