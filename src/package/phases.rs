//! When each component runs: as the package says, or by its part in the strategy and by what it
//! reads.

use std::collections::HashSet;

use crate::component::ComponentIo;

use super::PackageError;
use super::declaration::{ComponentDeclaration, Declaration, Phase, StrategyKind};
use super::resolve::{Edge, said_invalid};
use super::spec::ComponentSpec;
use super::structure::Structure;
use super::{iteration, nested};

/// Phases as declared; else a decoder, and who makes the embeddings that it reads, in
/// every step, and others for the prompt. What a single pass does not need does not run by
/// itself. A denoiser has its own default, and what reads its results, or a decoder's, runs at the
/// end.
pub(super) fn phases(structure: &Structure, edges: &[Edge], ios: &[ComponentIo]) -> Vec<Phase> {
    let declaration = &structure.declaration;
    let embedders: HashSet<usize> = edges
        .iter()
        .filter(|edge| edge.from_component != edge.to && embeds_decoder(structure, edge, ios))
        .map(|edge| edge.from_component)
        .collect();
    let needed = needed(structure, edges);
    // Of the loops: when each runs, and what comes after it.
    let loops: Vec<(Phase, Vec<bool>)> = structure
        .loops
        .iter()
        .enumerate()
        .map(|(of, one)| {
            let after = after(structure, edges, Some(one.denoiser));
            (iteration::phase(structure, of), after)
        })
        .collect();
    let after_loops = |index: usize| {
        let before = loops.iter().filter(|(_, after)| after.get(index) == Some(&true));
        let phases = before.map(|(phase, _)| match phase {
            Phase::EveryStep => Phase::FinalOnly,
            phase => *phase,
        });
        phases.max_by_key(rank)
    };
    let after_decoder = after(structure, edges, structure.decoder);
    let default = |index: usize, component: &ComponentDeclaration| {
        let in_loop = structure.decoder == Some(index)
            || (structure.decoder.is_some() && component.component_type == "decoder")
            || embedders.contains(&index);
        match needed.get(index) {
            Some(false) => Phase::OnDemand,
            _ if in_loop => Phase::EveryStep,
            _ => {
                let after_tokens = after_decoder.get(index) == Some(&true);
                let after_tokens = after_tokens.then_some(Phase::FinalOnly);
                let after = after_loops(index).into_iter().chain(after_tokens);
                after.max_by_key(rank).unwrap_or(Phase::PromptOnly)
            }
        }
    };
    declaration
        .components
        .iter()
        .enumerate()
        .map(|(index, component)| {
            let said = component.phase.as_ref().map(|said| said.value);
            let its_loop = structure.loop_of(index).map(|of| iteration::phase(structure, of));
            let by_part = nested::phase(structure, index).or(its_loop);
            by_part.or(said).unwrap_or_else(|| default(index, component))
        })
        .collect()
}

/// Of each component, whether it runs: those of a single pass that names its model are the
/// model, others with a phase of their own, and what feeds these.
fn needed(structure: &Structure, edges: &[Edge]) -> Vec<bool> {
    let declaration = &structure.declaration;
    let strategy = &declaration.strategy;
    let model = match strategy.kind {
        StrategyKind::SinglePass => strategy.model.as_ref(),
        _ => None,
    };
    let Some(model) = model else {
        return vec![true; declaration.components.len()];
    };
    let sources = sources(structure, edges);
    let mut needed: Vec<bool> = declaration
        .components
        .iter()
        .map(|component| component.name == model.value || component.phase.is_some())
        .collect();
    // Sinks first.
    for &index in structure.order.iter().rev() {
        if needed.get(index) != Some(&true) {
            continue;
        }
        for &source in sources.get(index).into_iter().flatten() {
            if let Some(flag) = needed.get_mut(source) {
                *flag = true;
            }
        }
    }
    needed
}

/// Of each component, those that feed it.
fn sources(structure: &Structure, edges: &[Edge]) -> Vec<Vec<usize>> {
    let components = &structure.declaration.components;
    let mut sources: Vec<Vec<usize>> = components.iter().map(|_| Vec::new()).collect();
    for edge in edges {
        if let Some(sources) = sources.get_mut(edge.to) {
            sources.push(edge.from_component);
        }
    }
    sources
}

/// Of each component, whether it reads what comes of this one.
fn after(structure: &Structure, edges: &[Edge], first: Option<usize>) -> Vec<bool> {
    let mut after = vec![false; structure.declaration.components.len()];
    let Some(first) = first else {
        return after;
    };
    let sources = sources(structure, edges);
    // Sources first.
    for &index in &structure.order {
        let mut sources = sources.get(index).into_iter().flatten();
        let reads = sources.any(|&from| from != index && (from == first || after.get(from) == Some(&true)));
        if let Some(flag) = after.get_mut(index) {
            *flag = reads;
        }
    }
    after
}

/// Whether an edge carries the embeddings of the sequence that the decoder reads.
fn embeds_decoder(structure: &Structure, edge: &Edge, ios: &[ComponentIo]) -> bool {
    let declared = structure
        .decoder
        .filter(|&decoder| decoder == edge.to)
        .and_then(|index| structure.declaration.components.get(index))
        .and_then(|component| component.io.inputs_embeds_input.as_ref());
    let port = ios.get(edge.to).and_then(|io| io.inputs.get(edge.input));
    matches!((declared, port), (Some(said), Some(port)) if said.value == port.name)
}

/// Embeddings are those of each step's tokens: who makes them runs in every step.
pub(super) fn check_embedders(
    structure: &Structure,
    components: &[ComponentSpec],
    edges: &[Edge],
    ios: &[ComponentIo],
) -> Result<(), PackageError> {
    for edge in edges {
        let Some(source) = components.get(edge.from_component) else {
            continue;
        };
        if source.phase != Phase::PromptOnly || !embeds_decoder(structure, edge, ios) {
            continue;
        }
        let declared = structure.declaration.components.get(edge.from_component);
        let at = declared
            .and_then(|component| component.phase.as_ref())
            .map_or(&edge.at, |phase| &phase.at);
        return Err(said_invalid(
            at,
            format!(
                "component \"{}\" is prompt_only and makes the embeddings of the tokens that the decoder reads \
                 in every step; it must be every_step",
                source.name
            ),
        ));
    }
    Ok(())
}

/// A value must be there before it is used: sources run no later than what they feed.
pub(super) fn check(declaration: &Declaration, edges: &[Edge], phases: &[Phase]) -> Result<(), PackageError> {
    for edge in edges {
        let (Some(from), Some(to)) = (phases.get(edge.from_component), phases.get(edge.to)) else {
            continue;
        };
        if rank(from) > rank(to) {
            let name = |index: usize| {
                declaration
                    .components
                    .get(index)
                    .map_or("", |component| component.name.as_str())
            };
            return Err(said_invalid(
                &edge.at,
                format!(
                    "\"{}\" is {} and feeds \"{}\", which is {} and runs before it",
                    name(edge.from_component),
                    from.name(),
                    name(edge.to),
                    to.name()
                ),
            ));
        }
    }
    Ok(())
}

/// Later phases are more.
fn rank(phase: &Phase) -> usize {
    match phase {
        Phase::PromptOnly => 0,
        Phase::EveryStep => 1,
        Phase::FinalOnly => 2,
        Phase::OnDemand => 3,
    }
}
