//! Several runs of one plan, node by node: where rows of an operator's input are independent, those of
//! all runs are multiplied together, so that weights are read once for all of them. Everything else,
//! attention to caches of different lengths above all, each run does by itself.
//!
//! What a run gets is what it would have got alone, bit by bit (see
//! [`joined_inputs`](Operator::joined_inputs)).

use smallvec::SmallVec;

use super::ending;
use super::executor::{Executor, Produced, Room, Run, trace_operator};
use super::graph::{Action, Graph, Node, Plan, Step};
use super::operator::{OpError, Operator, TOGETHER};
use super::tensor::{Dims, Tensor, TensorRef};
use super::value::{Value, ValueRef};
use super::workspace::Workspace;
use crate::component::{ComponentErrorKind, RunControl};

/// A run beside others: its inputs and rooms, and what comes of it.
pub(super) struct Lane<'e> {
    pub inputs: Vec<Option<ValueRef<'e>>>,
    pub rooms: Vec<Room<'e>>,
    pub produced: Vec<Option<Produced>>,
}

/// What all runs have in common.
pub(super) struct Shared<'r> {
    pub graph: &'r Graph,
    pub plan: &'r Plan,
    pub workspace: &'r mut Workspace,
    pub control: &'r RunControl,
}

impl<'r> Shared<'r> {
    fn run<'s, 'e>(&'s mut self, lane: &'s mut Lane<'e>) -> Run<'s, 'e> {
        Run {
            graph: self.graph,
            plan: self.plan,
            inputs: &lane.inputs,
            rooms: &mut lane.rooms,
            workspace: self.workspace,
            control: self.control,
        }
    }
}

/// Runs the plan for all lanes, of which each has an executor.
pub(super) fn run(
    executors: &mut [Executor],
    lanes: &mut [Lane<'_>],
    shared: &mut Shared<'_>,
) -> Result<(), ComponentErrorKind> {
    for executor in executors.iter_mut() {
        executor.clear(shared.workspace);
    }
    let control = shared.control;
    let result = ending::bounded(control, || run_lanes(executors, lanes, shared));
    for executor in executors.iter_mut() {
        executor.clear(shared.workspace);
    }
    result
}

fn run_lanes(
    executors: &mut [Executor],
    lanes: &mut [Lane<'_>],
    shared: &mut Shared<'_>,
) -> Result<(), ComponentErrorKind> {
    for (executor, lane) in executors.iter_mut().zip(lanes.iter_mut()) {
        executor.begin(&shared.run(lane));
    }
    let (graph, plan) = (shared.graph, shared.plan);
    for step in &plan.steps {
        if let Some(reason) = shared.control.stop_reason() {
            return Err(reason);
        }
        let Some(node) = graph.nodes.get(step.node) else {
            continue;
        };
        let trace = shared.workspace.trace.clone().map(|trace| (trace.now(), trace));
        let joined = match joining(graph, node, step) {
            Some((operator, inputs)) => run_joined(executors, lanes, shared, node, (operator, inputs))
                .map_err(|error| node.error(error))?,
            None => false,
        };
        // What is not joined writes each lane's own down.
        if joined && let Some((began, trace)) = trace {
            let lanes = executors.iter().zip(lanes.iter_mut());
            let bytes = lanes.map(|(executor, lane)| executor.result_bytes(&shared.run(lane), node));
            trace_operator(&trace, began, node, bytes.sum());
        }
        for (executor, lane) in executors.iter_mut().zip(lanes.iter_mut()) {
            let mut run = shared.run(lane);
            match joined {
                true => executor.release_all(&step.last_uses, run.workspace),
                false => executor.run_node(&mut run, node, step)?,
            }
        }
    }
    for (executor, lane) in executors.iter_mut().zip(lanes.iter_mut()) {
        let mut produced = std::mem::take(&mut lane.produced);
        let finished = executor.finish_all(&mut shared.run(lane), &mut produced);
        lane.produced = produced;
        finished?;
    }
    Ok(())
}

/// The operator of a node whose inputs of several runs can be joined, and which inputs these are.
fn joining<'g>(
    graph: &'g Graph,
    node: &'g Node,
    step: &Step,
) -> Option<(&'g dyn Operator, &'static [usize])> {
    let Action::Kernel(operator) = &node.action else {
        return None;
    };
    let fact = |value: &Option<super::graph::ValueId>| graph.facts.get((*value)?.index());
    let others = node.inputs.get(1..).unwrap_or_default().iter().map(fact);
    let inputs = operator.joined_inputs(&others.collect::<SmallVec<[_; 8]>>())?;
    let is_constant = |value: super::graph::ValueId| {
        let fact = graph.facts.get(value.index());
        fact.is_some_and(|fact| fact.value.is_some())
    };
    let mut given = node.inputs.iter().enumerate();
    let fits = given.all(|(index, value)| match *value {
        Some(value) => is_constant(value) != inputs.contains(&index),
        None => !inputs.starts_with(&[index]),
    });
    (fits && step.last_row.is_none()).then_some((&**operator, inputs))
}

/// Runs a node once for all lanes, if their inputs can be joined.
fn run_joined(
    executors: &mut [Executor],
    lanes: &mut [Lane<'_>],
    shared: &mut Shared<'_>,
    node: &Node,
    (operator, joined): (&dyn Operator, &[usize]),
) -> Result<bool, OpError> {
    let plan = shared.plan;
    let used = |index: usize| {
        let value = node.outputs.get(index).copied().flatten();
        value.is_some_and(|value| plan.is_read(value))
    };
    if node.outputs.len() != 1 || !used(0) || executors.len() > TOGETHER {
        return Ok(false);
    }
    let mut kept: SmallVec<[(usize, Tensor); 2]> = SmallVec::new();
    for &index in joined {
        let Some(value) = node.inputs.get(index).copied().flatten() else {
            continue;
        };
        let graph = shared.graph;
        let mut parts: SmallVec<[TensorRef<'_>; TOGETHER]> = SmallVec::new();
        for (executor, lane) in executors.iter().zip(lanes.iter()) {
            match executor.read(graph, &lane.inputs, &lane.rooms, value)? {
                ValueRef::Tensor(tensor) => parts.push(tensor),
                _ => return Ok(false),
            }
        }
        match join(&parts, shared.workspace)? {
            Some(tensor) => kept.push((index, tensor)),
            None => return Ok(false),
        }
    }
    let facts = &shared.graph.facts;
    let mut inputs: SmallVec<[Option<ValueRef<'_>>; 8]> = SmallVec::new();
    for (index, value) in node.inputs.iter().enumerate() {
        let own = kept.iter().find(|(at, _)| *at == index);
        inputs.push(match (own, *value) {
            (Some((_, tensor)), _) => Some(ValueRef::Tensor(tensor.view())),
            (None, Some(value)) => {
                let fact = facts.get(value.index()).and_then(|fact| fact.value());
                Some(ValueRef::Tensor(fact.ok_or(OpError::MissingInput { index })?))
            }
            (None, None) => None,
        });
    }
    shared.workspace.run(operator, 1, &inputs, used, &mut [])?;
    drop(inputs);
    for (_, tensor) in kept {
        shared.workspace.recycle_tensor(tensor);
    }
    let state = shared.workspace.outputs().first_mut();
    let state = state.ok_or(OpError::NotWritten { index: 0 })?;
    let memory = std::mem::take(&mut state.memory);
    let Value::Tensor(made) = state.value(memory)? else {
        return Err(OpError::NotWritten { index: 0 });
    };
    let count = executors.len();
    // The rows of each run are together, or it would not have said so.
    let Some(dims) = split_dims(made.dims(), count) else {
        shared.workspace.recycle_tensor(made);
        return Ok(false);
    };
    if let Some(value) = node.outputs.first().copied().flatten() {
        let bytes = made.view().bytes()?;
        let len = bytes.len() / count.max(1);
        for (executor, part) in executors.iter_mut().zip(bytes.chunks_exact(len.max(1))) {
            let own = shared
                .workspace
                .pool
                .tensor(made.element_type(), &dims, |to| to.copy_from_slice(part))?;
            executor.own(value, own);
        }
    }
    shared.workspace.recycle_tensor(made);
    Ok(true)
}

/// Rows of several tensors one after the other, if each is of as many rows and no more than that.
fn join(parts: &[TensorRef<'_>], workspace: &mut Workspace) -> Result<Option<Tensor>, OpError> {
    let Some(first) = parts.first() else {
        return Ok(None);
    };
    let (ty, dims) = (first.element_type(), first.dims());
    let alike = parts
        .iter()
        .all(|part| part.element_type() == ty && part.dims() == dims);
    let Some((_, before)) = dims.split_last() else {
        return Ok(None);
    };
    if !alike || before.is_empty() || first.is_empty() || before.iter().any(|&dim| dim != 1) {
        return Ok(None);
    }
    let mut joined = Dims::from_slice(dims);
    if let Some(rows) = joined.get_mut(before.len() - 1) {
        *rows = parts.len();
    }
    let mut bytes: SmallVec<[&[u8]; TOGETHER]> = SmallVec::new();
    for part in parts {
        bytes.push(part.bytes()?);
    }
    let tensor = workspace.pool.tensor(ty, &joined, |mut to| {
        for part in bytes {
            let (own, rest) = to.split_at_mut(part.len().min(to.len()));
            own.copy_from_slice(&part[..own.len()]);
            to = rest;
        }
    })?;
    Ok(Some(tensor))
}

/// The dims of one run's rows, of those of all of them; `None` where they do not lie one run's after
/// the other's.
fn split_dims(dims: &[usize], count: usize) -> Option<Dims> {
    let at = dims.len().checked_sub(2)?;
    if dims.get(..at)?.iter().any(|&dim| dim != 1) {
        return None;
    }
    let mut own = Dims::from_slice(dims);
    let rows = own.get_mut(at)?;
    if *rows != count {
        return None;
    }
    *rows = 1;
    Some(own)
}
