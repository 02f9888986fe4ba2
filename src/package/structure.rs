use super::declaration::{Declaration, EdgeDeclaration, Said, StrategyKind};
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
}

/// Checks what can be checked without the graphs.
pub(crate) fn check(declaration: Declaration) -> Result<Structure, PackageError> {
    for (index, edge) in declaration.edges.iter().enumerate() {
        for end in [&edge.from, &edge.to] {
            declaration.index_of(&end.value.component, end)?;
        }
        let earlier = declaration.edges.iter().take(index);
        if let Some(first) = earlier.clone().find(|earlier| earlier.to.value == edge.to.value) {
            return Err(PackageError::new(
                edge.to.at.clone(),
                PackageErrorKind::DuplicateEdge {
                    port: format!("{}.{}", edge.to.value.component, edge.to.value.port),
                    first: first.to.at.clone(),
                },
            ));
        }
    }
    if let Some(model) = &declaration.strategy.model {
        declaration.index_of(&model.value, model)?;
    }
    if let Some(decoder) = &declaration.strategy.decoder {
        declaration.index_of(&decoder.value, decoder)?;
    }
    let order = topological_order(&declaration)?;
    let decoder = find_decoder(&declaration)?;
    Ok(Structure {
        declaration,
        order,
        decoder,
    })
}

impl Declaration {
    fn index_of<T>(&self, name: &str, said: &Said<T>) -> Result<usize, PackageError> {
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
        self.components
            .iter()
            .position(|component| component.name == name)
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
/// package's order. A component that feeds itself is the loop of an iterative strategy.
fn topological_order(declaration: &Declaration) -> Result<Vec<usize>, PackageError> {
    let iterative = declaration.strategy.unsupported.is_some();
    let edges: Vec<(usize, usize, &EdgeDeclaration)> = declaration
        .edges
        .iter()
        .filter_map(|edge| declaration.ends(edge).map(|(from, to)| (from, to, edge)))
        .filter(|(from, to, _)| from != to || !iterative)
        .collect();
    let mut order = Vec::with_capacity(declaration.components.len());
    while order.len() < declaration.components.len() {
        let waits = |index: usize| {
            edges
                .iter()
                .any(|(from, to, _)| *to == index && !order.contains(from))
        };
        let next = (0..declaration.components.len()).find(|&index| !order.contains(&index) && !waits(index));
        match next {
            Some(index) => order.push(index),
            None => return Err(circle(declaration, &edges, &order)),
        }
    }
    Ok(order)
}

/// Walks against the edges from a component that waits until one comes twice.
fn circle(
    declaration: &Declaration,
    edges: &[(usize, usize, &EdgeDeclaration)],
    done: &[usize],
) -> PackageError {
    let mut path: Vec<usize> = (0..declaration.components.len())
        .find(|index| !done.contains(index))
        .into_iter()
        .collect();
    let mut at = declaration.strategy.at.clone();
    while let Some(&last) = path.last() {
        let Some((from, _, edge)) = edges
            .iter()
            .find(|(from, to, _)| *to == last && !done.contains(from))
        else {
            break;
        };
        at = edge.to.at.clone();
        let seen = path.iter().position(|index| index == from);
        path.push(*from);
        if let Some(start) = seen {
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

/// The component that chooses tokens: named by the strategy, or the only one that can be.
fn find_decoder(declaration: &Declaration) -> Result<Option<usize>, PackageError> {
    let strategy = &declaration.strategy;
    if strategy.unsupported.is_some() {
        return Ok(None);
    }
    match strategy.kind {
        StrategyKind::SinglePass | StrategyKind::Composite { token_loop: false } => return Ok(None),
        StrategyKind::Autoregressive | StrategyKind::Composite { token_loop: true } => {}
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
                    declaration.component_names().join(", ")
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
