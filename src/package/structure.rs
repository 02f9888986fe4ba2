use std::collections::{BTreeSet, HashMap};

use crate::component::{listed, shown};

use super::declaration::{Declaration, EdgeDeclaration, IterativeDeclaration, Phase, Said, StrategyKind};
use super::nested::{self, NestedParts};
use super::scheduler::Scheduler;
use super::{PackageError, PackageErrorKind};

/// A declaration whose names of components are all known, without a double edge and
/// without a circle. Ports are checked later, when the graphs are known.
#[derive(Debug)]
pub(crate) struct Structure {
    pub declaration: Declaration,
    /// Component indices, each after those that feed it.
    pub order: Vec<usize>,
    /// The component that chooses tokens, if there is a token loop.
    pub decoder: Option<usize>,
    /// One for each of the strategy's iterative stages.
    pub loops: Vec<Loop>,
    /// The components inside of the decoder's steps.
    pub nested: Option<NestedParts>,
}

/// The loop of an iterative strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loop {
    /// The component that runs again and again.
    pub denoiser: usize,
    /// The place of the first of its states among those of all loops.
    pub first_state: usize,
}

/// Checks what can be checked without the graphs.
pub(crate) fn check(declaration: Declaration) -> Result<Structure, PackageError> {
    let mut fed = HashMap::new();
    for edge in &declaration.edges {
        for end in [&edge.from, &edge.to] {
            declaration.index_of(&end.value.component, end)?;
        }
        let to = (edge.to.value.component.as_str(), edge.to.value.port.as_str());
        if let Some(first) = fed.insert(to, &edge.to.at) {
            return Err(PackageError::new(
                edge.to.at.clone(),
                PackageErrorKind::DuplicateEdge {
                    port: format!("{}.{}", edge.to.value.component, edge.to.value.port),
                    first: first.clone(),
                },
            ));
        }
    }
    let strategy = &declaration.strategy;
    for named in strategy
        .model
        .iter()
        .chain(&strategy.decoder)
        .chain(&strategy.first_pass)
        .chain(
            strategy
                .iterative
                .iter()
                .filter_map(|iterative| iterative.denoiser.as_ref()),
        )
        .chain(&strategy.staged)
    {
        declaration.index_of(&named.value, named)?;
    }
    let loops = find_loops(&declaration)?;
    let order = topological_order(&declaration, &loops)?;
    let decoder = find_decoder(&declaration)?;
    let nested = nested::find_parts(&declaration, decoder)?;
    let inner = nested.map(|parts| parts.inner);
    let decoders = [(decoder, "decoder"), (inner, "inner decoder")];
    let denoisers = loops.iter().map(|one| (Some(one.denoiser), "denoiser"));
    for (index, role) in decoders.into_iter().chain(denoisers) {
        if let Some(component) = index.and_then(|index| declaration.components.get(index))
            && let Some(modality) = &component.when_present
        {
            return Err(PackageError::new(
                modality.at.clone(),
                PackageErrorKind::Invalid {
                    message: format!(
                        "component \"{}\" is the {role}, which runs in every step whatever the request brings",
                        shown(&component.name)
                    ),
                },
            ));
        }
    }
    if let Some(component) = decoder.and_then(|index| declaration.components.get(index))
        && loops.iter().any(|one| Some(one.denoiser) == decoder)
    {
        return Err(PackageError::new(
            declaration.strategy.at.clone(),
            PackageErrorKind::Invalid {
                message: format!(
                    "component \"{}\" is both the decoder and the denoiser",
                    shown(&component.name)
                ),
            },
        ));
    }
    Ok(Structure {
        declaration,
        order,
        decoder,
        loops,
        nested,
    })
}

impl Structure {
    /// The loop that a component is the denoiser of.
    pub fn loop_of(&self, component: usize) -> Option<usize> {
        self.loops.iter().position(|one| one.denoiser == component)
    }

    /// The loop whose steps are those of the run: in a package that chooses no tokens the last that
    /// the package does not put elsewhere. The others are components that run all of their steps
    /// at once.
    pub fn own_loop(&self) -> Option<usize> {
        if self.decoder.is_some() {
            return None;
        }
        let steps = |one: &Loop| {
            let component = self.declaration.components.get(one.denoiser);
            let phase = component.and_then(|component| component.phase.as_ref());
            phase.is_none_or(|said| said.value == Phase::EveryStep)
        };
        let last = self.loops.len().checked_sub(1);
        self.loops.iter().rposition(steps).or(last)
    }

    /// What the strategy says of a loop.
    pub fn iterative(&self, of: usize) -> Option<&IterativeDeclaration> {
        self.declaration.strategy.iterative.get(of)
    }

    /// The scheduler of a loop, if it has one.
    pub fn scheduler(&self, of: usize) -> Option<&Scheduler> {
        let scheduler = self.iterative(of)?.scheduler.as_ref();
        scheduler.map(|said| &said.value)
    }

    /// The name of a loop's denoiser; empty if there is none.
    pub fn denoiser_name(&self, of: usize) -> &str {
        let component = self
            .loops
            .get(of)
            .and_then(|one| self.declaration.components.get(one.denoiser));
        component.map_or("", |component| &component.name)
    }
}

impl Declaration {
    pub(super) fn index_of<T>(&self, name: &str, said: &Said<T>) -> Result<usize, PackageError> {
        self.component_index(name).ok_or_else(|| {
            PackageError::new(
                said.at.clone(),
                PackageErrorKind::UnknownComponent {
                    found: name.to_owned(),
                    known: self.component_names(),
                },
            )
        })
    }

    pub fn component_index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub fn component_names(&self) -> Vec<String> {
        self.components
            .iter()
            .map(|component| component.name.clone())
            .collect()
    }

    /// Indices of both ends of an edge between known components.
    pub fn ends(&self, edge: &EdgeDeclaration) -> Option<(usize, usize)> {
        Some((
            self.component_index(&edge.from.value.component)?,
            self.component_index(&edge.to.value.component)?,
        ))
    }
}

/// Components in an order in which each comes after its sources; among equals, the
/// package's order. A denoiser may feed itself: that is the loop.
fn topological_order(declaration: &Declaration, loops: &[Loop]) -> Result<Vec<usize>, PackageError> {
    let loops = |component: usize| loops.iter().any(|one| one.denoiser == component);
    let edges: Vec<(usize, usize, &EdgeDeclaration)> = declaration
        .edges
        .iter()
        .filter_map(|edge| declaration.ends(edge).map(|(from, to)| (from, to, edge)))
        .filter(|(from, to, _)| from != to || !loops(*to))
        .collect();
    let count = declaration.components.len();
    // How many edges each waits for, and whom it feeds.
    let mut waits = vec![0usize; count];
    let mut feeds: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (from, to, _) in &edges {
        if let (Some(waits), Some(feeds)) = (waits.get_mut(*to), feeds.get_mut(*from)) {
            *waits += 1;
            feeds.push(*to);
        }
    }
    let mut ready: BTreeSet<usize> = (0..count).filter(|&index| waits.get(index) == Some(&0)).collect();
    let mut order = Vec::with_capacity(count);
    let mut done = vec![false; count];
    while let Some(index) = ready.pop_first() {
        order.push(index);
        if let Some(done) = done.get_mut(index) {
            *done = true;
        }
        for &fed in feeds.get(index).into_iter().flatten() {
            if let Some(waits) = waits.get_mut(fed) {
                *waits -= 1;
                if *waits == 0 {
                    ready.insert(fed);
                }
            }
        }
    }
    match order.len() == count {
        true => Ok(order),
        false => Err(circle(declaration, &edges, &done)),
    }
}

/// Walks against the edges from a component that waits until one comes twice.
fn circle(
    declaration: &Declaration,
    edges: &[(usize, usize, &EdgeDeclaration)],
    done: &[bool],
) -> PackageError {
    let waiting = |index: usize| done.get(index) == Some(&false);
    // For each that waits, the first edge from another that does.
    let mut waits_for = HashMap::new();
    for &(from, to, edge) in edges {
        if waiting(from) {
            waits_for.entry(to).or_insert((from, edge));
        }
    }
    let mut path: Vec<usize> = (0..done.len())
        .find(|&index| waiting(index))
        .into_iter()
        .collect();
    let mut at = declaration.strategy.at.clone();
    let mut places = HashMap::new();
    while let Some(&last) = path.last() {
        places.insert(last, path.len() - 1);
        let Some(&(from, edge)) = waits_for.get(&last) else {
            break;
        };
        at = edge.to.at.clone();
        path.push(from);
        if let Some(&start) = places.get(&from) {
            path.drain(..start);
            break;
        }
    }
    let names = path
        .iter()
        .rev()
        .filter_map(|&index| declaration.components.get(index))
        .map(|component| component.name.clone())
        .collect();
    PackageError::new(at, PackageErrorKind::Cycle { path: names })
}

/// The loops of the strategy's iterative stages, each of another component.
fn find_loops(declaration: &Declaration) -> Result<Vec<Loop>, PackageError> {
    let mut loops: Vec<Loop> = Vec::new();
    let mut first_state = 0;
    for iterative in &declaration.strategy.iterative {
        let denoiser = find_denoiser(declaration, iterative)?;
        if loops.iter().any(|one| one.denoiser == denoiser) {
            let name = declaration.components.get(denoiser);
            let kind = PackageErrorKind::Invalid {
                message: format!(
                    "\"{}\" is the denoiser of two stages; each iterative stage names one of its own",
                    shown(name.map_or("", |component| &component.name))
                ),
            };
            return Err(PackageError::new(iterative.at.clone(), kind));
        }
        loops.push(Loop {
            denoiser,
            first_state,
        });
        first_state += state_edges(declaration, denoiser).count();
    }
    Ok(loops)
}

/// The edges of a denoiser to itself that carry a state from step to step, in their order. One from an
/// input that such an edge feeds hands the same state on to another input.
pub(super) fn state_edges(
    declaration: &Declaration,
    denoiser: usize,
) -> impl Iterator<Item = &EdgeDeclaration> {
    let own = move |edge: &&EdgeDeclaration| declaration.ends(edge) == Some((denoiser, denoiser));
    declaration.edges.iter().filter(own).filter(move |edge| {
        let mut others = declaration.edges.iter().filter(own);
        !others.any(|other| !std::ptr::eq(other, *edge) && other.to.value.port == edge.from.value.port)
    })
}

/// The component that an iterative strategy is about: named by it, or the only one that can
/// be. It feeds itself.
fn find_denoiser(declaration: &Declaration, iterative: &IterativeDeclaration) -> Result<usize, PackageError> {
    let components = &declaration.components;
    let found = match &iterative.denoiser {
        Some(named) => declaration.component_index(&named.value),
        None => {
            let typed = components
                .iter()
                .map(|component| component.component_type == "denoiser");
            only(typed).or((components.len() == 1).then_some(0))
        }
    };
    let Some((index, component)) = found.and_then(|index| Some((index, components.get(index)?))) else {
        return Err(PackageError::new(
            iterative.at.clone(),
            PackageErrorKind::Invalid {
                message: format!(
                    "the strategy does not name its denoiser, and not exactly one component is of type denoiser; \
                     the components are {}",
                    listed(&declaration.component_names())
                ),
            },
        ));
    };
    let loops = |edge: &EdgeDeclaration| declaration.ends(edge) == Some((index, index));
    if declaration.edges.iter().any(loops) {
        return Ok(index);
    }
    Err(PackageError::new(
        component.at.clone(),
        PackageErrorKind::Invalid {
            message: format!(
                "no edge of pipeline.dataflow leads from an output of the denoiser \"{}\" to an input of it; that \
                 is what goes from step to step",
                shown(&component.name)
            ),
        },
    ))
}

/// The component that chooses tokens: named by the strategy, or the only one that can be.
fn find_decoder(declaration: &Declaration) -> Result<Option<usize>, PackageError> {
    let strategy = &declaration.strategy;
    match strategy.kind {
        StrategyKind::SinglePass
        | StrategyKind::Iterative
        | StrategyKind::Composite { token_loop: false } => return Ok(None),
        StrategyKind::Autoregressive
        | StrategyKind::Nested
        | StrategyKind::Composite { token_loop: true } => {}
    }
    if let Some(named) = &strategy.decoder {
        return Ok(declaration.component_index(&named.value));
    }
    let components = &declaration.components;
    let typed = only(
        components
            .iter()
            .map(|component| component.component_type == "decoder"),
    );
    let with_logits = only(
        components
            .iter()
            .map(|component| component.io.logits_output.is_some()),
    );
    let alone = (components.len() == 1).then_some(0);
    match typed.or(with_logits).or(alone) {
        Some(index) => Ok(Some(index)),
        None => Err(PackageError::new(
            strategy.at.clone(),
            PackageErrorKind::Invalid {
                message: format!(
                    "the strategy does not name its decoder, and not exactly one component is of type decoder or \
                     has a logits_output; the components are {}",
                    listed(&declaration.component_names())
                ),
            },
        )),
    }
}

/// The index of the only `true`.
fn only(flags: impl Iterator<Item = bool>) -> Option<usize> {
    let mut set = flags
        .enumerate()
        .filter(|(_, flag)| *flag)
        .map(|(index, _)| index);
    let first = set.next()?;
    set.next().is_none().then_some(first)
}
