use smallvec::SmallVec;

use super::fold::{Budget, Folded, fold};
use super::request::{Asked, Pattern};
use super::{Graph, Node, ValueId};
use crate::component::ComponentErrorKind;
use crate::native::infer::{Fact, SymDim};
use crate::native::tensor::{Dims, Tensor};
use crate::native::workspace::Workspace;

/// One node of a plan.
#[derive(Debug)]
pub(in crate::native) struct Step {
    /// Index into the graph's nodes.
    pub(in crate::native) node: usize,
    /// The node reads only the last row of its first input, under these dims.
    pub(in crate::native) last_row: Option<Dims>,
    /// An output of the node is one of the graph's.
    pub(in crate::native) makes_output: bool,
    /// Values of the run that nothing reads after this step.
    pub(in crate::native) last_uses: SmallVec<[ValueId; 4]>,
}

/// How to run a graph for requests of one pattern: which nodes, in which order, which values
/// are known without running any, and how long each lives.
#[derive(Debug)]
pub(in crate::native) struct Plan {
    pub(in crate::native) pattern: Pattern,
    pub(in crate::native) steps: Vec<Step>,
    /// Values that follow from the shapes and that a step reads or an output is, and the
    /// defaults of inputs that are not given.
    pub(in crate::native) constants: Vec<(ValueId, Tensor)>,
    /// For each value, whether the run must produce it.
    produced: Vec<bool>,
    /// Dims of the asked outputs that are known before the run, in the order of the graph's.
    pub(in crate::native) output_dims: Vec<Option<Dims>>,
    /// What inference says of each value; runs of a debug build are held to it.
    #[cfg(debug_assertions)]
    pub(in crate::native) facts: Vec<Fact>,
}

impl Plan {
    /// Makes a plan. `cuts` are the graph's, see [`cuts`](super::last_row::cuts). `facts` is
    /// room for what is known of each value, kept from plan to plan; it starts as a copy of
    /// the graph's.
    pub(in crate::native) fn new(
        graph: &Graph,
        pattern: Pattern,
        cuts: &[Option<usize>],
        facts: &mut [Fact],
        workspace: &mut Workspace,
    ) -> Result<Plan, ComponentErrorKind> {
        let mut constants = Vec::new();
        for (input, given) in graph.inputs.iter().zip(&pattern.inputs) {
            let fact = match (given, &input.default) {
                (Some(given), _) => Fact {
                    kind: input.fact.kind,
                    ty: input.fact.ty,
                    dims: given.dims().cloned(),
                    value: None,
                },
                (None, Some(default)) => Fact::of_tensor(default),
                (None, None) => Fact::default(),
            };
            set(facts, input.value, fact);
        }
        let asked = |index: usize| pattern.asks(index);
        let mut needed = vec![false; facts.len()];
        for (_, value) in graph
            .outputs
            .iter()
            .enumerate()
            .filter(|(index, _)| asked(*index))
        {
            mark(&mut needed, *value);
        }
        let mut runs = vec![false; graph.nodes.len()];
        for (node, runs) in graph.nodes.iter().zip(&mut runs).rev() {
            *runs = node
                .outputs
                .iter()
                .flatten()
                .any(|value| is_marked(&needed, *value));
            if *runs {
                node.inputs
                    .iter()
                    .flatten()
                    .for_each(|value| mark(&mut needed, *value));
            }
        }
        let to_cut: SmallVec<[usize; 1]> = cuts
            .iter()
            .zip(&pattern.outputs)
            .filter_map(|(cut, asked)| cut.filter(|_| *asked == Asked::LastRow))
            .collect();
        let mut last_rows: SmallVec<[(usize, Dims); 1]> = SmallVec::new();
        for (index, node) in graph.nodes.iter().enumerate() {
            let Some(runs) = runs.get_mut(index).filter(|runs| **runs) else {
                continue;
            };
            let whole = match to_cut.contains(&index) {
                true => cut_input(node, facts),
                false => None,
            };
            let inferred = node
                .infer(facts)
                .and_then(|outputs| fold(node, facts, outputs, &mut Budget::of_plan(), workspace))
                .map_err(|error| node.error(error));
            if let Some((source, whole, dims)) = whole {
                set(facts, source, whole);
                last_rows.push((index, dims));
            }
            let inferred = inferred?;
            let outputs = match inferred {
                Folded::Known(outputs) => {
                    *runs = false;
                    outputs
                }
                Folded::Open(outputs) => outputs,
            };
            for (value, fact) in node.outputs.iter().zip(outputs) {
                if let Some(value) = *value {
                    set(facts, value, fact);
                }
            }
        }
        // Backwards again, over what is left: the first use met is the last one.
        let mut read = vec![false; facts.len()];
        for (_, value) in graph
            .outputs
            .iter()
            .enumerate()
            .filter(|(index, _)| asked(*index))
        {
            mark(&mut read, *value);
        }
        let is_constant = |value: ValueId| {
            let fact = graph.facts.get(value.index());
            fact.is_some_and(|fact| fact.value.is_some())
        };
        let mut steps = Vec::new();
        for (index, node) in graph.nodes.iter().enumerate().rev() {
            let runs = runs.get(index).copied().unwrap_or(false);
            if !runs
                || !node
                    .outputs
                    .iter()
                    .flatten()
                    .any(|value| is_marked(&read, *value))
            {
                continue;
            }
            let mut last_uses = SmallVec::new();
            for &value in node.inputs.iter().flatten() {
                if !is_marked(&read, value) {
                    mark(&mut read, value);
                    if !is_constant(value) {
                        last_uses.push(value);
                    }
                }
            }
            let last_row = last_rows.iter().find(|(cut, _)| *cut == index);
            let mut outputs = node.outputs.iter().flatten();
            steps.push(Step {
                node: index,
                makes_output: outputs.any(|value| graph.outputs.contains(value)),
                last_row: last_row.map(|(_, dims)| dims.clone()),
                last_uses,
            });
        }
        steps.reverse();
        for (index, fact) in facts.iter().enumerate() {
            let value = ValueId::new(index);
            if let (true, false, Some(tensor)) = (read[index], is_constant(value), &fact.value) {
                constants.push((value, tensor.clone()));
            }
        }
        let output_dims = graph
            .outputs
            .iter()
            .enumerate()
            .map(|(index, value)| {
                let fact = facts.get(value.index()).filter(|_| asked(index))?;
                fact.fixed_dims()
            })
            .collect();
        Ok(Plan {
            pattern,
            steps,
            constants,
            produced: read,
            output_dims,
            #[cfg(debug_assertions)]
            facts: facts.to_vec(),
        })
    }

    /// Whether a step or the caller reads this value.
    pub(in crate::native) fn is_read(&self, value: ValueId) -> bool {
        is_marked(&self.produced, value)
    }
}

/// Makes the first input of a node its last row, if its dims are known and it has more than
/// one: the input, what was known of it, and the dims that it has now.
fn cut_input(node: &Node, facts: &mut [Fact]) -> Option<(ValueId, Fact, Dims)> {
    let source = node.inputs.first().copied().flatten()?;
    let fact = facts
        .get_mut(source.index())
        .filter(|fact| fact.value.is_none())?;
    let mut dims = fact.fixed_dims()?;
    let (&mut row, leading) = dims.split_last_mut()?;
    if leading.contains(&0) || leading.iter().all(|&dim| dim == 1) || row == 0 {
        return None;
    }
    leading.fill(1);
    let cut = dims.iter().map(|&dim| SymDim::Fixed(dim)).collect();
    let whole = fact.clone();
    fact.dims = Some(cut);
    Some((source, whole, dims))
}

fn set(facts: &mut [Fact], value: ValueId, fact: Fact) {
    if let Some(slot) = facts.get_mut(value.index()) {
        *slot = fact;
    }
}

fn mark(marks: &mut [bool], value: ValueId) {
    if let Some(mark) = marks.get_mut(value.index()) {
        *mark = true;
    }
}

fn is_marked(marks: &[bool], value: ValueId) -> bool {
    marks.get(value.index()).copied().unwrap_or(false)
}
