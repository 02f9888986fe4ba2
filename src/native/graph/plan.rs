use smallvec::SmallVec;

use super::fold::{Budget, Folded, fold};
use super::{Graph, Node, ValueId};
use crate::component::ComponentErrorKind;
use crate::native::infer::{Fact, SymDim};
use crate::native::tensor::{Dims, Tensor};
use crate::native::value::ValueRef;
use crate::native::workspace::Workspace;

/// What a plan is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::native) struct Request {
    /// What is given, in the order of the graph's inputs.
    pub(in crate::native) inputs: Vec<Option<Given>>,
    /// Which outputs are asked for, in the order of the graph's.
    pub(in crate::native) outputs: Vec<Asked>,
}

/// How much of an output is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::native) enum Asked {
    #[default]
    Nothing,
    /// The last row is enough; rows before it may come too.
    LastRow,
    All,
}

/// What a plan depends on of an input that is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::native) enum Given {
    /// A tensor of these dims.
    Tensor(Dims),
    /// A sequence or an optional, of which no dims are known.
    Other,
}

impl Given {
    pub(in crate::native) fn dims(&self) -> Option<&[usize]> {
        match self {
            Given::Tensor(dims) => Some(dims),
            Given::Other => None,
        }
    }
}

impl Request {
    /// Forgets what it was: no inputs, no outputs.
    pub(in crate::native) fn start(&mut self, graph: &Graph) {
        self.inputs.clear();
        self.inputs.resize(graph.inputs.len(), None);
        self.outputs.clear();
        self.outputs.resize(graph.outputs.len(), Asked::Nothing);
    }

    pub(in crate::native) fn give_tensor(&mut self, index: usize, dims: impl Iterator<Item = usize>) {
        if let Some(input) = self.inputs.get_mut(index) {
            *input = Some(Given::Tensor(dims.collect()));
        }
    }

    pub(in crate::native) fn give_value(&mut self, index: usize, value: ValueRef<'_>) {
        match value {
            ValueRef::Tensor(tensor) => self.give_tensor(index, tensor.dims().iter().copied()),
            ValueRef::Sequence(_) | ValueRef::Optional(_) => {
                if let Some(input) = self.inputs.get_mut(index) {
                    *input = Some(Given::Other);
                }
            }
        }
    }

    pub(in crate::native) fn ask_output(&mut self, index: usize) {
        self.ask(index, Asked::All);
    }

    pub(in crate::native) fn ask(&mut self, index: usize, asked: Asked) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = asked;
        }
    }

    /// Whether any of an output is asked for.
    pub(in crate::native) fn asks(&self, index: usize) -> bool {
        self.outputs
            .get(index)
            .is_some_and(|&asked| asked != Asked::Nothing)
    }
}

/// One node of a plan.
#[derive(Debug)]
pub(in crate::native) struct Step {
    /// Index into the graph's nodes.
    pub(in crate::native) node: usize,
    /// The node reads only the last row of its first input, under these dims.
    pub(in crate::native) last_row: Option<Dims>,
    /// Values that nothing reads after this step.
    pub(in crate::native) last_uses: SmallVec<[ValueId; 4]>,
}

/// How to run a graph for inputs of one set of shapes: which nodes, in which order, which
/// values are known without running any, and how long each lives.
#[derive(Debug)]
pub(in crate::native) struct Plan {
    pub(in crate::native) request: Request,
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
        request: Request,
        cuts: &[Option<usize>],
        facts: &mut [Fact],
        workspace: &mut Workspace,
    ) -> Result<Plan, ComponentErrorKind> {
        let mut constants = Vec::new();
        for (input, given) in graph.inputs.iter().zip(&request.inputs) {
            let fact = match (given, &input.default) {
                (Some(given), _) => Fact {
                    kind: input.fact.kind,
                    ty: input.fact.ty,
                    dims: given
                        .dims()
                        .map(|dims| dims.iter().map(|&dim| SymDim::Fixed(dim)).collect()),
                    value: None,
                },
                (None, Some(default)) => Fact::of_tensor(default),
                (None, None) => Fact::default(),
            };
            set(facts, input.value, fact);
        }
        let asked = |index: usize| request.asks(index);
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
            .zip(&request.outputs)
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
                    last_uses.push(value);
                }
            }
            let last_row = last_rows.iter().find(|(cut, _)| *cut == index);
            steps.push(Step {
                node: index,
                last_row: last_row.map(|(_, dims)| dims.clone()),
                last_uses,
            });
        }
        steps.reverse();
        for (index, fact) in facts.iter().enumerate() {
            let of_graph = graph.facts.get(index).is_some_and(|fact| fact.value.is_some());
            if let (true, false, Some(tensor)) = (read[index], of_graph, &fact.value) {
                constants.push((ValueId::new(index), tensor.clone()));
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
            request,
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
