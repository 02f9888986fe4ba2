use crate::component::{Port, TensorView};
use crate::package::{ComponentSpec, InputSource, LoopState, NestedFeed, OutputRef, Phase, PipelineSpec};

use super::pool::Pool;
use super::{PipelineError, RequestError};

/// Which components a request brings to run, and which have a value that is still good.
#[derive(Clone)]
pub(super) struct Activity {
    /// Not left out for a modality that the request lacks.
    pub active: Vec<bool>,
    /// Ran, and nothing that it depends on has changed since.
    pub fresh: Vec<bool>,
    /// Whether `active` and the request's inputs have been checked.
    pub checked: bool,
}

impl Activity {
    pub fn new(spec: &PipelineSpec) -> Self {
        Activity {
            active: vec![true; spec.components.len()],
            fresh: vec![false; spec.components.len()],
            checked: false,
        }
    }

    /// Notes that something a component reads has changed: it and what it feeds must run
    /// again. Returns which those are.
    pub fn spoil(&mut self, spec: &PipelineSpec, component: usize) -> Vec<bool> {
        self.checked = false;
        let mut spoiled = vec![false; spec.components.len()];
        if let Some(flag) = spoiled.get_mut(component) {
            *flag = true;
        }
        // Twice, because what a prefill embedder makes goes to the decoder without an edge, so that
        // it may come later in the order.
        for &index in spec.order.iter().chain(&spec.order) {
            let Some(reader) = spec.components.get(index) else {
                continue;
            };
            let reads_spoiled = reader.inputs.iter().any(|input| match input.source {
                InputSource::Edge(OutputRef { component, .. }) => spoiled.get(component) == Some(&true),
                InputSource::LoopResult { state } => spec
                    .loop_state(state)
                    .is_some_and(|(iteration, _)| spoiled.get(iteration.denoiser) == Some(&true)),
                InputSource::Nested(feed) => spec.nested.is_some_and(|nested| {
                    let is_spoiled = |component: usize| spoiled.get(component) == Some(&true);
                    let prefill = nested.pre_embedder.and_then(|pre| pre.prefill);
                    let prefill = prefill.is_some_and(|prefill| is_spoiled(prefill.component));
                    match feed {
                        NestedFeed::OuterEmbeds => {
                            let pre = nested.pre_embedder;
                            prefill || pre.is_some_and(|pre| is_spoiled(pre.component))
                        }
                        NestedFeed::TextEmbed => prefill,
                        NestedFeed::InnerEmbeds | NestedFeed::FrameCodes => false,
                    }
                }),
                _ => false,
            });
            let merges = reader.inputs.iter().flat_map(|input| &input.merges);
            let reads_spoiled = reads_spoiled
                || merges
                    .into_iter()
                    .any(|merge| spoiled.get(merge.features.component) == Some(&true));
            if let Some(flag) = spoiled.get_mut(index) {
                *flag |= reads_spoiled;
            }
        }
        for (fresh, spoiled) in self.fresh.iter_mut().zip(&spoiled) {
            *fresh &= !spoiled;
        }
        spoiled
    }

    /// Finds out which components the request brings to run, and that each of those that
    /// are about to run has what it needs. Checks all before anything runs.
    pub fn check(
        &mut self,
        spec: &PipelineSpec,
        pool: &Pool,
        about_to_run: impl Fn(usize, &ComponentSpec) -> bool,
    ) -> Result<(), PipelineError> {
        for (index, component) in spec.components.iter().enumerate() {
            let active = component
                .when_present
                .as_deref()
                .is_none_or(|modality| is_present(spec, pool, modality));
            if let Some(flag) = self.active.get_mut(index) {
                *flag = active;
            }
        }
        for (index, component) in spec.components.iter().enumerate() {
            if !about_to_run(index, component) || self.active.get(index) != Some(&true) {
                continue;
            }
            for (input, (source, port)) in component.inputs.iter().zip(&component.io.inputs).enumerate() {
                let absent_is_fine = match &source.absent {
                    Some(absent) => !is_present(spec, pool, &absent.modality),
                    None => port.optional,
                };
                match source.source {
                    InputSource::Request { required } => {
                        let needed = required && !absent_is_fine;
                        if needed && pool.request(index, input).is_none() {
                            return Err(missing(component, port, "the request").into());
                        }
                    }
                    InputSource::Loop { state }
                        if pool.request(index, input).is_none()
                            && !pool.states.can_start(state, looped(spec, state)) =>
                    {
                        let from = "the request, for the loop to start from";
                        return Err(missing(component, port, from).into());
                    }
                    InputSource::Edge(from) if self.active.get(from.component) != Some(&true) => {
                        let left_out = spec.components.get(from.component);
                        if !absent_is_fine && source.absent.is_none() {
                            let from = left_out.map_or("", |component| component.name.as_str());
                            let why = format!("component \"{from}\", which this request leaves out");
                            return Err(missing(component, port, &why).into());
                        }
                    }
                    _ => {}
                }
            }
        }
        self.checked = true;
        Ok(())
    }
}

/// Of each component, whether one of those that are asked for reads what comes of it, itself or
/// through components of the prompt, which can be run again.
pub(super) fn feeding(spec: &PipelineSpec, asked: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut feeding = vec![false; spec.components.len()];
    // Readers before what they read.
    for &index in spec.order.iter().rev() {
        let Some(component) = spec.components.get(index) else {
            continue;
        };
        let goes_on = component.phase == Phase::PromptOnly && feeding.get(index) == Some(&true);
        if !asked(index) && !goes_on {
            continue;
        }
        let inputs = &component.inputs;
        for input in inputs {
            let from = match input.source {
                InputSource::Edge(from) => Some(from.component),
                InputSource::LoopResult { state } => {
                    spec.loop_state(state).map(|(iteration, _)| iteration.denoiser)
                }
                _ => None,
            };
            let merged = input.merges.iter().map(|merge| merge.features.component);
            for from in from.into_iter().chain(merged) {
                if let Some(feeds) = feeding.get_mut(from) {
                    *feeds = true;
                }
            }
        }
    }
    feeding
}

fn missing(component: &ComponentSpec, port: &Port, from: &str) -> RequestError {
    RequestError::MissingInput {
        component: component.name.clone(),
        port: port.name.clone(),
        expected: format!("{} {} from {from}", port.ty, port.display_dims()),
    }
}

/// Whether the request has a tensor of this modality: one for a component that runs only
/// with it, or for an input that is optional without it.
fn is_present(spec: &PipelineSpec, pool: &Pool, modality: &str) -> bool {
    spec.components.iter().enumerate().any(|(index, component)| {
        let whole = component.when_present.as_deref() == Some(modality);
        component.inputs.iter().enumerate().any(|(input, source)| {
            let of_modality = whole
                || source
                    .absent
                    .as_ref()
                    .is_some_and(|absent| absent.modality == modality);
            of_modality && pool.request(index, input).is_some()
        })
    })
}

/// An address split and found.
pub(super) struct Found<'s> {
    pub index: usize,
    pub component: &'s ComponentSpec,
    pub port: &'s str,
}

pub(super) fn find<'s>(spec: &'s PipelineSpec, address: &'s str) -> Result<Found<'s>, RequestError> {
    let Some((name, port)) = address.split_once('.') else {
        let example = spec
            .components
            .iter()
            .find_map(|component| {
                let port = component.io.inputs.first()?;
                Some(format!("{}.{}", component.name, port.name))
            })
            .unwrap_or_default();
        return Err(RequestError::BadAddress {
            found: address.to_owned(),
            example,
        });
    };
    let found = spec
        .components
        .iter()
        .position(|component| component.name == name);
    match found.and_then(|index| Some((index, spec.components.get(index)?))) {
        Some((index, component)) => Ok(Found {
            index,
            component,
            port,
        }),
        None => Err(unknown_component(spec, name)),
    }
}

pub(super) fn unknown_component(spec: &PipelineSpec, name: &str) -> RequestError {
    RequestError::UnknownComponent {
        found: name.to_owned(),
        known: spec
            .components
            .iter()
            .map(|component| component.name.clone())
            .collect(),
    }
}

/// A place for a value of the host's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Settable {
    pub component: usize,
    pub input: usize,
    /// Whether the value is for the passes that leave the conditioning out.
    pub uncond: bool,
}

/// What follows the name of a denoiser's input, for its value in the passes of guidance that
/// leave the conditioning out.
const UNCOND: &str = ".uncond";

/// The input of a denoiser with guidance that an address with `.uncond` is about.
pub(super) fn uncond_input(found: &Found<'_>, spec: &PipelineSpec) -> Option<usize> {
    let iteration = spec.iterations.get(spec.loop_of(found.index)?)?;
    iteration.guidance?;
    let name = found.port.strip_suffix(UNCOND)?;
    let inputs = &found.component.io.inputs;
    let input = inputs.iter().position(|port| port.name == name)?;
    let source = found.component.inputs.get(input)?.source;
    matches!(source, InputSource::Request { .. } | InputSource::Edge(_)).then_some(input)
}

/// The place of an input that the host may set.
pub(super) fn settable(found: &Found<'_>, spec: &PipelineSpec) -> Result<Settable, RequestError> {
    let component = found.component;
    let at = |input: usize, uncond: bool| Settable {
        component: found.index,
        input,
        uncond,
    };
    let index = component
        .io
        .inputs
        .iter()
        .position(|port| port.name == found.port);
    if let (None, Some(input)) = (index, uncond_input(found, spec)) {
        return Ok(at(input, true));
    }
    let Some((index, input)) = index.and_then(|index| Some((index, component.inputs.get(index)?))) else {
        return Err(RequestError::UnknownPort {
            component: component.name.clone(),
            port: found.port.to_owned(),
            known: component.io.inputs.iter().map(|port| port.name.clone()).collect(),
        });
    };
    let fed_by = match input.source {
        InputSource::Request { .. }
        | InputSource::Loop { .. }
        | InputSource::Positions {
            coordinates: Some(_), ..
        } => return Ok(at(index, false)),
        InputSource::Tokens => "the run's tokens".to_owned(),
        InputSource::AttentionMask
        | InputSource::Positions {
            coordinates: None, ..
        }
        | InputSource::Length { .. }
        | InputSource::Ones
        | InputSource::CacheBranch { .. }
        | InputSource::Timestep => "the step loop".to_owned(),
        InputSource::OutputIds => "the chosen tokens".to_owned(),
        InputSource::OutputCodes => "the codes of the frames".to_owned(),
        InputSource::Nested(_) => "the loop over frames".to_owned(),
        InputSource::Past { .. } | InputSource::State { .. } | InputSource::Held { .. } => {
            "the component's own output".to_owned()
        }
        InputSource::LoopResult { state } => looped_address(spec, state),
        InputSource::Edge(from) => {
            let source = spec.components.get(from.component);
            let port = source.and_then(|source| source.io.outputs.get(from.output));
            format!(
                "{}.{}",
                source.map_or("", |source| source.name.as_str()),
                port.map_or("", |port| port.name.as_str())
            )
        }
    };
    Err(RequestError::NotSettable {
        component: component.name.clone(),
        port: found.port.to_owned(),
        fed_by,
    })
}

fn looped(spec: &PipelineSpec, state: usize) -> Option<&LoopState> {
    spec.loop_state(state).map(|(_, state)| state)
}

/// The address of a state of the denoiser's loop: the input that it is fed to.
fn looped_address(spec: &PipelineSpec, state: usize) -> String {
    let found = spec.loop_state(state).and_then(|(iteration, state)| {
        let component = spec.components.get(iteration.denoiser)?;
        Some((component, component.io.inputs.get(state.input)?))
    });
    found.map_or(String::new(), |(component, port)| {
        format!("{}.{}", component.name, port.name)
    })
}

/// Whether two tensors are the same, byte for byte.
pub(super) fn same(a: TensorView<'_>, b: TensorView<'_>) -> bool {
    a.dtype() == b.dtype() && a.shape() == b.shape() && a.bytes() == b.bytes()
}
