//! A component that stands in for the decoder in the pass that begins a sequence, and features that
//! take the places of tokens' embeddings.

use crate::component::{ComponentIo, Dim, Port};

use super::declaration::{Declaration, KvUpdate, Phase};
use super::resolve::{mismatch, port_index};
use super::roles;
use super::spec::{ComponentSpec, FirstPass, InputSource, Merge, OutputRef, OutputRole, TokenLoop};
use super::structure::Structure;
use super::{Location, PackageError, PackageErrorKind};

/// The stand-in that the strategy names, and which of its outputs begin which caches: those that
/// both name at the same place of kv_outputs.
pub(super) fn resolve(
    structure: &Structure,
    components: &mut [ComponentSpec],
    token_loop: Option<TokenLoop>,
    ios: &[ComponentIo],
) -> Result<Option<FirstPass>, PackageError> {
    let declaration = &structure.declaration;
    let (Some(named), Some(token_loop)) = (&declaration.strategy.first_pass, token_loop) else {
        return Ok(None);
    };
    let invalid =
        |at: &Location, message: String| PackageError::new(at.clone(), PackageErrorKind::Invalid { message });
    let found = declaration
        .component_index(&named.value)
        .filter(|&index| index != token_loop.decoder);
    let Some(index) = found else {
        let message = "the component of the first pass is the decoder itself".to_owned();
        return Err(invalid(&named.at, message));
    };
    let parts = (
        declaration.components.get(index),
        ios.get(index),
        declaration.components.get(token_loop.decoder),
        ios.get(token_loop.decoder),
    );
    let (Some(first), Some(first_io), Some(decoder), Some(decoder_io)) = parts else {
        return Ok(None);
    };
    if decoder.io.kv_update == KvUpdate::SharedBuffer {
        let message = "a first pass of its own goes with kv_update: append".to_owned();
        return Err(invalid(&named.at, message));
    }
    if first.io.kv_outputs.len() != decoder.io.kv_outputs.len() {
        return Err(invalid(
            &first.at,
            format!(
                "\"{}\" has {} kv_outputs and the decoder {}; they are paired by position",
                first.name,
                first.io.kv_outputs.len(),
                decoder.io.kv_outputs.len()
            ),
        ));
    }
    let mut caches = Vec::new();
    for (from, to) in first.io.kv_outputs.iter().zip(&decoder.io.kv_outputs) {
        let output = port_index(&first.name, &first_io.outputs, "output", &from.value, &from.at)?;
        let cache = port_index(&decoder.name, &decoder_io.outputs, "output", &to.value, &to.at)?;
        if let (Some(made), Some(kept)) = (first_io.outputs.get(output), decoder_io.outputs.get(cache))
            && made.dtype() != kept.dtype()
        {
            let expected = format!("{}, as the decoder's \"{}\"", kept.ty, kept.name);
            return Err(mismatch(&first.name, made, &from.at, expected));
        }
        caches.push((output, cache));
    }
    let logits = first.io.logits_output.as_ref();
    let Some(logits) = logits else {
        return Err(invalid(
            &first.at,
            format!(
                "\"{}\" does not say which output is its logits_output",
                first.name
            ),
        ));
    };
    let logits = roles::declared_logits(first, first_io, logits)?;
    // What it makes is used as soon as there are caches.
    if let Some(component) = components.get_mut(index) {
        for output in &mut component.outputs {
            if output.role != OutputRole::Plain {
                return Err(invalid(
                    &first.at,
                    format!(
                        "\"{}\" is for the first pass and keeps a cache of its own",
                        first.name
                    ),
                ));
            }
        }
    }
    Ok(Some(FirstPass {
        component: index,
        logits,
        caches,
    }))
}

/// Whether a decoder takes one token at a time behind the pass that begins a sequence: because a
/// graph of its own does that pass and its own sequence is one long, or because it has a branch for
/// each. Exporters trace the branch with a cache over one token, and what the model does for
/// several alone, such as to mask what is ahead, is then not in it.
pub(super) fn one_at_a_time(components: &[ComponentSpec], decoder: usize, has_first_pass: bool) -> bool {
    let Some(component) = components.get(decoder) else {
        return false;
    };
    let steps = |from: &OutputRef| {
        let source = components.get(from.component);
        source.is_some_and(|source| source.phase == Phase::EveryStep)
    };
    let mut inputs = component.inputs.iter().zip(&component.io.inputs);
    inputs.any(|(input, port)| {
        let dims = port.dims.as_deref().unwrap_or_default();
        match &input.source {
            InputSource::CacheBranch { .. } => true,
            InputSource::Tokens => has_first_pass && dims.last() == Some(&Dim::Fixed(1)),
            InputSource::Edge(from) if steps(from) && dims.len() == 3 => {
                has_first_pass && dims.get(1) == Some(&Dim::Fixed(1))
            }
            _ => false,
        }
    })
}

/// Merges that components declare, at their input of embeddings.
pub(super) fn resolve_merges(
    declaration: &Declaration,
    components: &mut [ComponentSpec],
    ios: &[ComponentIo],
) -> Result<(), PackageError> {
    for (index, component) in declaration.components.iter().enumerate() {
        let Some(io) = ios.get(index) else { continue };
        for merge in &component.io.merges {
            let at = &merge.token.at;
            let Some(embeds) = &component.io.inputs_embeds_input else {
                let message = "there is no inputs_embeds_input that features could be merged into".to_owned();
                return Err(PackageError::new(
                    at.clone(),
                    PackageErrorKind::Invalid { message },
                ));
            };
            let input = port_index(&component.name, &io.inputs, "input", &embeds.value, &embeds.at)?;
            let from = declaration.component_index(&merge.features.component);
            let Some((from, source)) = from.and_then(|from| Some((from, ios.get(from)?))) else {
                return Err(PackageError::new(
                    at.clone(),
                    PackageErrorKind::UnknownComponent {
                        found: merge.features.component.clone(),
                        known: declaration.component_names(),
                    },
                ));
            };
            let (name, port) = (&merge.features.component, &merge.features.port);
            let output = port_index(name, &source.outputs, "output", port, at)?;
            if let (Some(features), Some(embeds)) = (source.outputs.get(output), io.inputs.get(input)) {
                check_features(name, features, embeds, at)?;
            }
            if let Some(input) = components
                .get_mut(index)
                .and_then(|one| one.inputs.get_mut(input))
            {
                input.merges.push(Merge {
                    token: merge.token.value,
                    features: OutputRef {
                        component: from,
                        output,
                    },
                });
            }
        }
    }
    Ok(())
}

/// Rows of features are as wide as embeddings, and numbers of the same type.
fn check_features(
    component: &str,
    features: &Port,
    embeds: &Port,
    at: &Location,
) -> Result<(), PackageError> {
    let width = |port: &Port| match port.dims.as_ref().and_then(|dims| dims.last()) {
        Some(Dim::Fixed(size)) => Some(*size),
        _ => None,
    };
    let same_width = match (width(features), width(embeds)) {
        (Some(given), Some(wanted)) => given == wanted,
        _ => true,
    };
    if roles::is_float(features) && features.dtype() == embeds.dtype() && same_width {
        return Ok(());
    }
    let expected = format!(
        "rows like those of \"{}\", {} {}",
        embeds.name,
        embeds.ty,
        embeds.display_dims()
    );
    Err(mismatch(component, features, at, expected))
}
