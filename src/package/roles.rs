use crate::component::{ComponentIo, DataType, Dim, Port, shown};

use super::declaration::{ComponentDeclaration, Said, SequenceSource};
use super::resolve::{mismatch, port_index};
use super::spec::InputSource;
use super::{Location, PackageError, PackageErrorKind};

/// The sources of a component's inputs that its bindings give, or that shapes and dtypes
/// leave no doubt about.
pub(super) struct Roles {
    sources: Vec<Option<(InputSource, Location)>>,
    /// Outputs that are the other end of a cache or state.
    carried: Vec<usize>,
}

impl Roles {
    pub fn source(&self, input: usize) -> Option<InputSource> {
        self.sources.get(input)?.as_ref().map(|(source, _)| *source)
    }

    /// Gives an input its source; an error if it has one.
    pub fn bind(
        &mut self,
        component: &ComponentDeclaration,
        io: &ComponentIo,
        input: usize,
        source: InputSource,
        at: &Location,
    ) -> Result<(), PackageError> {
        let Some(slot) = self.sources.get_mut(input) else {
            return Ok(());
        };
        if let Some((_, earlier)) = slot {
            let port = io.inputs.get(input).map_or("", |port| port.name.as_str());
            return Err(PackageError::new(
                at.clone(),
                PackageErrorKind::Invalid {
                    message: format!(
                        "input \"{port}\" of component \"{}\" has a source already, at {earlier}",
                        component.name
                    ),
                },
            ));
        }
        *slot = Some((source, at.clone()));
        Ok(())
    }
}

/// Binds the roles of a component. `reads_steps` says whether its input of the sequence, tokens
/// of each step, is found where no binding names it. `fed` names the inputs that edges lead to,
/// `positions` the one that the package's section on positions is about.
pub(super) fn find(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    fed: &[&str],
    reads_steps: bool,
    is_decoder: bool,
    positions: Option<&Said<String>>,
) -> Result<Roles, PackageError> {
    let mut roles = Roles {
        sources: vec![None; io.inputs.len()],
        carried: Vec::new(),
    };
    bind_declared(component, io, fed, positions, &mut roles)?;
    let free = |roles: &Roles| -> Vec<usize> {
        (0..io.inputs.len())
            .filter(|&index| roles.source(index).is_none())
            .filter(|&index| {
                io.inputs
                    .get(index)
                    .is_some_and(|port| !fed.contains(&port.name.as_str()))
            })
            .collect()
    };
    if reads_steps {
        infer_sequence(component, io, fed, &free(&roles), is_decoder, &mut roles)?;
    }
    if is_decoder {
        infer_cache(component, io, &free(&roles), &mut roles)?;
        refuse_unfed(component, io, &free(&roles))?;
    }
    Ok(roles)
}

fn bind_declared(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    fed: &[&str],
    positions: Option<&Said<String>>,
    roles: &mut Roles,
) -> Result<(), PackageError> {
    let declared = &component.io;
    check_sequence_source(component)?;
    let input = |said: &Said<String>| -> Result<(usize, &Port), PackageError> {
        let index = port_index(&component.name, &io.inputs, "input", &said.value, &said.at)?;
        match io.inputs.get(index) {
            Some(port) => Ok((index, port)),
            None => Err(PackageError::new(
                said.at.clone(),
                PackageErrorKind::Invalid {
                    message: "no such input".to_owned(),
                },
            )),
        }
    };
    if let Some(said) = &declared.token_input {
        let (index, port) = input(said)?;
        if !is_integer(port) || !has_rank(port, &[2]) {
            return Err(mismatch(
                &component.name,
                port,
                &said.at,
                "token ids: int32 or int64, rank 2",
            ));
        }
        roles.bind(component, io, index, InputSource::Tokens, &said.at)?;
    }
    if let Some(said) = &declared.attention_mask_input {
        let (index, port) = input(said)?;
        let known = matches!(
            port.dtype(),
            Some(
                DataType::Int32
                    | DataType::Int64
                    | DataType::Float32
                    | DataType::Float16
                    | DataType::Bfloat16
                    | DataType::Bool
            )
        );
        if !known || !has_rank(port, &[2]) {
            let expected = "an attention mask [batch, sequence] of int32, int64, bool or a float type";
            return Err(mismatch(&component.name, port, &said.at, expected));
        }
        roles.bind(component, io, index, InputSource::AttentionMask, &said.at)?;
    }
    if let (Some(inner), Some(outer)) = (&declared.position_ids_input, positions)
        && inner.value != outer.value
    {
        return Err(PackageError::new(
            outer.at.clone(),
            PackageErrorKind::Invalid {
                message: format!(
                    "the positions are for \"{}\" here and for \"{}\" at {}",
                    shown(&outer.value),
                    shown(&inner.value),
                    inner.at
                ),
            },
        ));
    }
    if let Some(said) = declared.position_ids_input.as_ref().or(positions) {
        let (index, port) = input(said)?;
        if !is_integer(port) || !has_rank(port, &[1, 2, 3]) {
            return Err(mismatch(
                &component.name,
                port,
                &said.at,
                "positions: int32 or int64, rank 1 to 3",
            ));
        }
        let rank = port.dims.as_ref().map_or(2, Vec::len);
        let source = InputSource::Positions {
            rank,
            coordinates: None,
        };
        roles.bind(component, io, index, source, &said.at)?;
    }
    for length in &declared.lengths {
        let (index, port) = input(&length.port)?;
        let one = port.dims.as_ref().is_some_and(|dims| {
            dims.iter()
                .all(|dim| !matches!(dim, Dim::Fixed(size) if *size != 1))
        });
        if !is_integer(port) || !one {
            let expected = "a number of tokens: int32 or int64, one element";
            return Err(mismatch(&component.name, port, &length.port.at, expected));
        }
        let source = InputSource::Length {
            of: length.of,
            rank: port.dims.as_ref().map_or(0, Vec::len),
        };
        roles.bind(component, io, index, source, &length.port.at)?;
    }
    if let Some(said) = &declared.cache_branch_input {
        let (index, port) = input(said)?;
        let dims = port.dims.as_deref().unwrap_or_default();
        let one = dims
            .iter()
            .all(|dim| !matches!(dim, Dim::Fixed(size) if *size != 1));
        if port.dtype() != Some(DataType::Bool) || !one {
            return Err(mismatch(&component.name, port, &said.at, "a bool of one element"));
        }
        let source = InputSource::CacheBranch { rank: dims.len() };
        roles.bind(component, io, index, source, &said.at)?;
    }
    // An encoder's keys and values that the component makes itself, in the first pass.
    if !declared.cross_kv_inputs.is_empty()
        && declared.cross_kv_inputs.len() == declared.cross_kv_outputs.len()
    {
        for (input_said, output_said) in declared.cross_kv_inputs.iter().zip(&declared.cross_kv_outputs) {
            let (index, port) = input(input_said)?;
            let output = port_index(
                &component.name,
                &io.outputs,
                "output",
                &output_said.value,
                &output_said.at,
            )?;
            if io.outputs.get(output).and_then(Port::dtype) != port.dtype() {
                let expected = format!("{}, as the output \"{}\"", port.ty, output_said.value);
                return Err(mismatch(&component.name, port, &input_said.at, expected));
            }
            roles.bind(component, io, index, InputSource::Held { output }, &input_said.at)?;
            roles.carried.push(output);
        }
    }
    for said in &declared.given_inputs {
        let (index, _) = input(said)?;
        roles.bind(
            component,
            io,
            index,
            InputSource::Request { required: true },
            &said.at,
        )?;
    }
    for said in &declared.ones_inputs {
        let (index, port) = input(said)?;
        if !(is_integer(port) || is_float(port) || port.dtype() == Some(DataType::Bool)) {
            let expected = "ones: int32, int64, bool or a float type";
            return Err(mismatch(&component.name, port, &said.at, expected));
        }
        roles.bind(component, io, index, InputSource::Ones, &said.at)?;
    }
    for (input_said, output_said) in declared.kv_inputs.iter().zip(&declared.kv_outputs) {
        let (index, _) = input(input_said)?;
        let output = port_index(
            &component.name,
            &io.outputs,
            "output",
            &output_said.value,
            &output_said.at,
        )?;
        roles.bind(component, io, index, InputSource::Past { output }, &input_said.at)?;
        roles.carried.push(output);
    }
    for pair in &declared.state_pairs {
        let (index, _) = input(&pair.input)?;
        let output = port_index(
            &component.name,
            &io.outputs,
            "output",
            &pair.output.value,
            &pair.output.at,
        )?;
        roles.bind(
            component,
            io,
            index,
            InputSource::State { output },
            &pair.input.at,
        )?;
        roles.carried.push(output);
    }
    // An output that fed two inputs could not hold both of their values.
    for (position, output) in roles.carried.iter().enumerate() {
        if roles
            .carried
            .iter()
            .take(position)
            .any(|earlier| earlier == output)
        {
            let name = io.outputs.get(*output).map_or("", |port| port.name.as_str());
            return Err(PackageError::new(
                component.at.clone(),
                PackageErrorKind::Invalid {
                    message: format!(
                        "output \"{name}\" is paired with two inputs in kv_outputs or state_pairs"
                    ),
                },
            ));
        }
    }
    for said in [
        &declared.encoder_hidden_states_input,
        &declared.audio_features_input,
    ]
    .into_iter()
    .flatten()
    {
        input(said)?;
    }
    if let Some(said) = &declared.inputs_embeds_input {
        let (_, port) = input(said)?;
        if !fed.contains(&said.value.as_str()) {
            return Err(PackageError::new(
                said.at.clone(),
                PackageErrorKind::Unfed {
                    component: component.name.clone(),
                    port: port.name.clone(),
                    advice:
                        "embeddings of each step's tokens come through an edge from an embedding component"
                            .to_owned(),
                },
            ));
        }
    }
    for said in declared.hidden_output.iter().chain(&declared.cross_kv_outputs) {
        port_index(&component.name, &io.outputs, "output", &said.value, &said.at)?;
    }
    Ok(())
}

/// What is said to carry the sequence is what is bound.
fn check_sequence_source(component: &ComponentDeclaration) -> Result<(), PackageError> {
    let declared = &component.io;
    let Some(source) = &declared.sequence_source else {
        return Ok(());
    };
    let (said, bound, missing) = match source.value {
        SequenceSource::InputsEmbeds if declared.inputs_embeds_input.is_none() => {
            ("inputs_embeds", &declared.token_input, "inputs_embeds_input")
        }
        SequenceSource::TokenIds if declared.token_input.is_none() => {
            ("token_ids", &declared.inputs_embeds_input, "token_input")
        }
        _ => return Ok(()),
    };
    match bound {
        None => Ok(()),
        Some(bound) => Err(PackageError::new(
            source.at.clone(),
            PackageErrorKind::Invalid {
                message: format!(
                    "the sequence comes as {said}, but io binds \"{}\", at {}, and no {missing}",
                    shown(&bound.value),
                    bound.at
                ),
            },
        )),
    }
}

/// Finds the input that carries the sequence, when no binding names it.
fn infer_sequence(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    fed: &[&str],
    free: &[usize],
    is_decoder: bool,
    roles: &mut Roles,
) -> Result<(), PackageError> {
    let declared = &component.io;
    if declared.token_input.is_some() {
        return Ok(());
    }
    let embeds = declared.inputs_embeds_input.is_some()
        || declared
            .sequence_source
            .as_ref()
            .is_some_and(|source| source.value == SequenceSource::InputsEmbeds);
    if is_decoder && embeds {
        return if declared.inputs_embeds_input.is_some() {
            Ok(())
        } else {
            check_fed_embeddings(component, io, fed)
        };
    }
    let candidates: Vec<usize> = free
        .iter()
        .copied()
        .filter(|&index| {
            io.inputs
                .get(index)
                .is_some_and(|port| is_integer(port) && port.dims.is_some() && has_rank(port, &[2]))
        })
        .collect();
    match candidates.as_slice() {
        [index] => roles.bind(component, io, *index, InputSource::Tokens, &component.at),
        [] if !is_decoder => Ok(()),
        [] if fed.iter().any(|name| io.input(name).is_some_and(is_embedding)) => {
            check_fed_embeddings(component, io, fed)
        }
        several => Err(unresolved(
            component,
            "token_input",
            several.iter().filter_map(|&index| io.inputs.get(index)),
        )),
    }
}

fn is_embedding(port: &Port) -> bool {
    is_float(port) && port.dims.is_some() && has_rank(port, &[3])
}

/// A decoder that reads embeddings has exactly one input for them, at the end of an edge.
fn check_fed_embeddings(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    fed: &[&str],
) -> Result<(), PackageError> {
    let candidates: Vec<&Port> = fed
        .iter()
        .filter_map(|name| io.input(name))
        .filter(|port| is_embedding(port))
        .collect();
    if candidates.len() == 1 {
        return Ok(());
    }
    Err(unresolved(
        component,
        "inputs_embeds_input",
        candidates.into_iter(),
    ))
}

/// Pairs a single undeclared past with a single undeclared present. Keys and values look
/// alike, so that more than one pair is never guessed.
fn infer_cache(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    free: &[usize],
    roles: &mut Roles,
) -> Result<(), PackageError> {
    let looks_cached = |port: &Port| {
        is_float(port)
            && port.dims.as_ref().is_some_and(|dims| {
                dims.len() == 4 && dims.iter().skip(1).any(|dim| matches!(dim, Dim::Symbol(_)))
            })
    };
    let pasts: Vec<usize> = free
        .iter()
        .copied()
        .filter(|&index| io.inputs.get(index).is_some_and(looks_cached))
        .collect();
    let presents: Vec<usize> = (0..io.outputs.len())
        .filter(|index| !roles.carried.contains(index))
        .filter(|&index| io.outputs.get(index).is_some_and(looks_cached))
        .collect();
    match (pasts.as_slice(), presents.as_slice()) {
        ([], _) => Ok(()),
        ([past], [present]) => {
            roles.carried.push(*present);
            roles.bind(
                component,
                io,
                *past,
                InputSource::Past { output: *present },
                &component.at,
            )
        }
        (several, _) => Err(unresolved(
            component,
            "kv_inputs",
            several.iter().filter_map(|&index| io.inputs.get(index)),
        )),
    }
}

/// A decoder's integer input that runs along the sequence is the loop's to feed; which one
/// it is must be said.
fn refuse_unfed(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    free: &[usize],
) -> Result<(), PackageError> {
    let optional = |port: &Port| {
        component
            .io
            .optional_inputs
            .iter()
            .any(|optional| optional.port.value == port.name)
    };
    for port in free.iter().filter_map(|&index| io.inputs.get(index)) {
        let along = port.dims.as_ref().is_some_and(|dims| {
            dims.len() >= 2 && dims.iter().skip(1).any(|dim| matches!(dim, Dim::Symbol(_)))
        });
        if is_integer(port) && along && !port.optional && !optional(port) {
            return Err(PackageError::new(
                component.at.clone(),
                PackageErrorKind::Unfed {
                    component: component.name.clone(),
                    port: port.name.clone(),
                    advice:
                        "bind it in io as attention_mask_input or position_ids_input, or lead an edge to it"
                            .to_owned(),
                },
            ));
        }
    }
    Ok(())
}

/// The output that a binding says is the logits.
pub(super) fn declared_logits(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    said: &Said<String>,
) -> Result<usize, PackageError> {
    let index = port_index(&component.name, &io.outputs, "output", &said.value, &said.at)?;
    let port = io.outputs.get(index);
    if let Some(port) = port
        && !(is_float(port) && has_rank(port, &[2, 3]))
    {
        let expected = "logits: float32, float16 or bfloat16, rank 2 or 3";
        return Err(mismatch(&component.name, port, &said.at, expected));
    }
    Ok(index)
}

/// The decoder's logits: declared, or the only float output of rank 2 or 3 that is neither
/// carried nor routed.
pub(super) fn logits(
    component: &ComponentDeclaration,
    io: &ComponentIo,
    roles: &Roles,
    routed: impl Fn(usize) -> bool,
) -> Result<usize, PackageError> {
    if let Some(said) = &component.io.logits_output {
        return declared_logits(component, io, said);
    }
    let hidden = component.io.hidden_output.as_ref();
    let candidates: Vec<usize> = io
        .outputs
        .iter()
        .enumerate()
        .filter(|(index, port)| {
            is_float(port)
                && port.dims.is_some()
                && has_rank(port, &[2, 3])
                && !roles.carried.contains(index)
                && !routed(*index)
                && hidden.is_none_or(|hidden| hidden.value != port.name)
        })
        .map(|(index, _)| index)
        .collect();
    match candidates.as_slice() {
        [index] => Ok(*index),
        several => Err(unresolved(
            component,
            "logits_output",
            several.iter().filter_map(|&index| io.outputs.get(index)),
        )),
    }
}

fn unresolved<'p>(
    component: &ComponentDeclaration,
    role: &'static str,
    candidates: impl Iterator<Item = &'p Port>,
) -> PackageError {
    PackageError::new(
        component.at.clone(),
        PackageErrorKind::UnresolvedPort {
            component: component.name.clone(),
            role,
            candidates: candidates
                .map(|port| format!("{} ({} {})", port.name, port.ty, port.display_dims()))
                .collect(),
        },
    )
}

pub(super) fn is_integer(port: &Port) -> bool {
    port.dtype().is_some_and(DataType::is_index)
}

pub(super) fn is_float(port: &Port) -> bool {
    port.dtype().is_some_and(DataType::is_float32_or_smaller)
}

/// Whether the port's rank is one of these, or not declared.
pub(super) fn has_rank(port: &Port, ranks: &[usize]) -> bool {
    port.dims.as_ref().is_none_or(|dims| ranks.contains(&dims.len()))
}
