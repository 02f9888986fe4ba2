use std::mem::MaybeUninit;
use std::time::Duration;

use smallvec::SmallVec;

use super::control::{BodyState, Control, ControlContext, ControlError};
use super::element::ElementType;
use super::ending;
use super::graph::{Action, Graph, Node, Plan, Step, ValueId};
use super::operator::{OpError, Operator};
use super::output::{CacheMemory, Memory, NodeRoom};
use super::tensor::{Dims, Tensor, TensorRef, byte_count};
use super::value::{Value, ValueRef};
use super::workspace::Workspace;
use crate::component::{ComponentErrorKind, OPERATOR, RunControl, Trace, TraceArgument};

/// Where a value is during a run. Constants of the graph are in its facts, not here.
#[derive(Debug, Default)]
enum Slot {
    #[default]
    Empty,
    Owned(Value),
    /// The graph's input of this index; a tensor under these dims.
    Input {
        index: usize,
        dims: Dims,
    },
    /// The elements in the room of the graph's output of this index.
    Room {
        index: usize,
        dims: Dims,
    },
    /// An output of the graph that is in the caller's cache.
    InCache {
        ty: ElementType,
        dims: Dims,
    },
}

impl Slot {
    fn empty(&mut self, workspace: &mut Workspace) {
        // Most are empty already.
        if !matches!(self, Slot::Empty)
            && let Slot::Owned(value) = std::mem::take(self)
        {
            workspace.recycle(value);
        }
    }
}

/// What a caller has for one output of the graph.
#[derive(Debug, Default)]
pub(super) enum Room<'e> {
    #[default]
    None,
    Free(&'e mut [MaybeUninit<u8>]),
    /// The input that the output is, with rows of the run behind it.
    Cache(CacheMemory<'e>),
    Filled {
        ty: ElementType,
        bytes: &'e [u8],
    },
}

impl<'e> Room<'e> {
    /// What a node may write into; what is filled stays.
    fn take(&mut self) -> NodeRoom<'e> {
        match std::mem::take(self) {
            Room::Free(memory) => NodeRoom::Free(memory),
            Room::Cache(memory) => NodeRoom::Cache(memory),
            other => {
                *self = other;
                NodeRoom::None
            }
        }
    }
}

/// Where an output of the graph has gone.
#[derive(Debug)]
pub(super) enum Produced {
    Room { ty: ElementType, dims: Dims },
    InCache { ty: ElementType, dims: Dims },
    Owned(Value),
}

/// Runs plans of one graph, one at a time.
#[derive(Default)]
pub(super) struct Executor {
    /// One for each value of the graph; all empty between runs.
    slots: Vec<Slot>,
    /// For each value, the index of the graph's output that it is.
    output_of: Vec<Option<usize>>,
    /// What the graphs of its nodes keep, in the order of the nodes.
    bodies: Vec<BodyState>,
}

/// What a run works on, lent for its length.
pub(super) struct Run<'r, 'e> {
    pub(super) graph: &'r Graph,
    pub(super) plan: &'r Plan,
    /// In the order of the graph's inputs; `None` for those not given.
    pub(super) inputs: &'r [Option<ValueRef<'e>>],
    /// In the order of the graph's outputs.
    pub(super) rooms: &'r mut [Room<'e>],
    /// Shared with the runs of the graphs around this one and inside it.
    pub(super) workspace: &'r mut Workspace,
    pub(super) control: &'r RunControl,
}

impl Run<'_, '_> {
    /// Whether anything reads an output of a node.
    fn is_used(&self, node: &Node, output: usize) -> bool {
        let value = node.outputs.get(output).copied().flatten();
        value.is_some_and(|value| self.plan.is_read(value))
    }
}

impl Executor {
    pub(super) fn new(graph: &Graph) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(graph.facts.len(), Slot::default);
        let mut output_of = vec![None; graph.facts.len()];
        for (index, value) in graph.outputs.iter().enumerate() {
            if let Some(output) = output_of.get_mut(value.index()) {
                *output = Some(index);
            }
        }
        let bodies = graph.nodes.iter().flat_map(|node| node.action.bodies());
        Executor {
            slots,
            output_of,
            bodies: bodies.map(BodyState::new).collect(),
        }
    }

    /// Runs a plan. Puts each asked output into its place in `produced`, which has one for
    /// each of the graph's.
    pub(super) fn run(
        &mut self,
        mut run: Run<'_, '_>,
        produced: &mut [Option<Produced>],
    ) -> Result<(), ComponentErrorKind> {
        // A run that failed, or whose kernel panicked, may have left values behind.
        self.clear(run.workspace);
        let control = run.control;
        let result = ending::bounded(control, || {
            self.run_steps(&mut run)?;
            self.finish_all(&mut run, produced)
        });
        self.clear(run.workspace);
        result
    }

    pub(super) fn finish_all(
        &mut self,
        run: &mut Run<'_, '_>,
        produced: &mut [Option<Produced>],
    ) -> Result<(), ComponentErrorKind> {
        let graph = run.graph;
        for (index, (&value, produced)) in graph.outputs.iter().zip(produced).enumerate() {
            if run.plan.pattern.asks(index) {
                *produced = Some(self.finish(run, value, index)?);
            }
        }
        Ok(())
    }

    /// Puts inputs and constants of the plan where steps find them.
    pub(super) fn begin(&mut self, run: &Run<'_, '_>) {
        let (graph, plan) = (run.graph, run.plan);
        for (index, (input, given)) in graph.inputs.iter().zip(run.inputs).enumerate() {
            if let Some(given) = given {
                let dims = given.tensor().map(|tensor| tensor.dims().into());
                let dims = dims.unwrap_or_default();
                self.put(input.value, Slot::Input { index, dims });
            }
        }
        for (value, tensor) in &plan.constants {
            self.put(*value, Slot::Owned(tensor.clone().into()));
        }
    }

    fn run_steps(&mut self, run: &mut Run<'_, '_>) -> Result<(), ComponentErrorKind> {
        self.begin(run);
        let (graph, plan) = (run.graph, run.plan);
        for step in &plan.steps {
            if let Some(reason) = run.control.stop_reason() {
                return Err(reason);
            }
            let Some(node) = graph.nodes.get(step.node) else {
                continue;
            };
            self.run_node(run, node, step)?;
        }
        Ok(())
    }

    /// Runs a step of the plan.
    pub(super) fn run_node(
        &mut self,
        run: &mut Run<'_, '_>,
        node: &Node,
        step: &Step,
    ) -> Result<(), ComponentErrorKind> {
        let trace = run.workspace.trace.clone().map(|trace| (trace.now(), trace));
        let result = match &node.action {
            Action::Kernel(operator) => self
                .run_kernel(run, node, &**operator, step)
                .map_err(ControlError::Own),
            Action::Control { operator, first_body } => self.run_control(run, node, &**operator, *first_body),
        };
        result.map_err(|error| match error {
            ControlError::Own(error) => node.error(error),
            ControlError::Inside(error) => error,
        })?;
        if let Some((began, trace)) = trace {
            trace_operator(&trace, began, node, self.result_bytes(run, node));
        }
        for &value in &step.last_uses {
            self.release(value, run.workspace);
        }
        Ok(())
    }

    /// Bytes of what a node has made, for the trace; views of its inputs are none.
    pub(super) fn result_bytes(&self, run: &Run<'_, '_>, node: &Node) -> u64 {
        let bytes = node.outputs.iter().flatten().filter_map(|value| {
            let (ty, dims) = match self.slots.get(value.index())? {
                Slot::Owned(value) => match value.view() {
                    ValueRef::Tensor(tensor) => {
                        let bytes = byte_count(tensor.element_type(), tensor.dims()).ok()?;
                        return Some(bytes as u64);
                    }
                    _ => return None,
                },
                Slot::Room { index, dims } => match run.rooms.get(*index)? {
                    Room::Filled { ty, .. } => (*ty, dims),
                    _ => return None,
                },
                Slot::InCache { ty, dims } => (*ty, dims),
                Slot::Input { .. } | Slot::Empty => return None,
            };
            byte_count(ty, dims).ok().map(|bytes| bytes as u64)
        });
        bytes.sum()
    }

    /// Runs an operator that runs graphs of its own.
    fn run_control(
        &mut self,
        run: &mut Run<'_, '_>,
        node: &Node,
        operator: &dyn Control,
        first_body: usize,
    ) -> Result<(), ControlError> {
        let used: SmallVec<[bool; 8]> = (0..node.outputs.len())
            .map(|index| run.is_used(node, index))
            .collect();
        let mut outputs: SmallVec<[Option<Value>; 4]> = SmallVec::new();
        outputs.resize_with(node.outputs.len(), || None);
        let lookup = Lookup {
            graph: run.graph,
            slots: &self.slots,
            inputs: run.inputs,
            rooms: run.rooms,
        };
        let mut values = Inputs::new();
        lookup.read_inputs(node, &mut values)?;
        operator.run(&mut ControlContext {
            inputs: &values,
            used: &used,
            outputs: &mut outputs,
            bodies: self.bodies.get_mut(first_body..).unwrap_or_default(),
            workspace: run.workspace,
            control: run.control,
        })?;
        drop(values);
        for (index, output) in outputs.into_iter().enumerate() {
            let Some(value) = node.outputs.get(index).copied().flatten() else {
                continue;
            };
            if run.plan.is_read(value) {
                let output = output.ok_or(OpError::NotWritten { index })?;
                let view = output.view();
                let dims = view.tensor().map_or(&[][..], |tensor| tensor.dims());
                check_inferred(run.plan, value, index, view.element_type(), dims)?;
                self.put(value, Slot::Owned(output));
            }
        }
        Ok(())
    }

    /// Runs any other operator.
    fn run_kernel(
        &mut self,
        run: &mut Run<'_, '_>,
        node: &Node,
        operator: &dyn Operator,
        step: &Step,
    ) -> Result<(), OpError> {
        // Rooms that this node's outputs may go to, taken out so that the others can be read.
        let mut taken: SmallVec<[(usize, NodeRoom<'_>); 4]> = SmallVec::new();
        if step.makes_output {
            for value in &node.outputs {
                let output = value.and_then(|value| self.output_of.get(value.index()).copied().flatten());
                let index = output.unwrap_or_default();
                let room = output.and_then(|index| run.rooms.get_mut(index));
                taken.push((index, room.map_or(NodeRoom::None, Room::take)));
            }
        }
        let result = {
            let lookup = Lookup {
                graph: run.graph,
                slots: &self.slots,
                inputs: run.inputs,
                rooms: run.rooms,
            };
            let mut values = Inputs::new();
            lookup.read_inputs(node, &mut values)?;
            if let (Some(dims), Some(Some(ValueRef::Tensor(first)))) = (&step.last_row, values.first_mut()) {
                *first = first.tail(dims)?;
            }
            let mut lent: SmallVec<[NodeRoom<'_>; 4]> = SmallVec::new();
            for (_, room) in &mut taken {
                lent.push(room.lend());
            }
            let plan = run.plan;
            let used = |index: usize| {
                let value = node.outputs.get(index).copied().flatten();
                value.is_some_and(|value| plan.is_read(value))
            };
            run.workspace
                .run(operator, node.outputs.len(), &values, used, &mut lent)
        };
        for (position, (index, room)) in taken.iter_mut().enumerate() {
            let state = run.workspace.outputs().get(position);
            let memory = match std::mem::take(room) {
                NodeRoom::Free(memory) => memory,
                NodeRoom::Cache(buffer) => {
                    // Nothing else reads the elements of a cache that got longer.
                    if let (Ok(()), Some(state)) = (&result, state)
                        && let (Memory::Buffer, Some(ty)) = (&state.memory, state.ty)
                    {
                        let bytes = buffer.bytes;
                        put_room(run.rooms, *index, Room::Filled { ty, bytes });
                    }
                    continue;
                }
                NodeRoom::None => continue,
            };
            let filled = match (&result, state) {
                (Ok(()), Some(state)) if matches!(state.memory, Memory::Room) => {
                    state.ty.zip(state.filled_room(memory))
                }
                _ => {
                    put_room(run.rooms, *index, Room::Free(memory));
                    continue;
                }
            };
            if let Some((ty, bytes)) = filled {
                put_room(run.rooms, *index, Room::Filled { ty, bytes });
            }
        }
        result?;
        for position in 0..node.outputs.len() {
            let Some(value) = node.outputs.get(position).copied().flatten() else {
                continue;
            };
            if run.plan.is_read(value) {
                self.store(run, node, position, value)?;
            }
        }
        Ok(())
    }

    /// Takes what a kernel made for one of its outputs.
    fn store(
        &mut self,
        run: &mut Run<'_, '_>,
        node: &Node,
        position: usize,
        value: ValueId,
    ) -> Result<(), OpError> {
        let Some(state) = run.workspace.outputs().get_mut(position) else {
            return Err(OpError::NotWritten { index: position });
        };
        check_inferred(run.plan, value, position, state.ty, &state.dims)?;
        let slot = match std::mem::take(&mut state.memory) {
            Memory::Room | Memory::Buffer => Slot::Room {
                index: self
                    .output_of
                    .get(value.index())
                    .copied()
                    .flatten()
                    .unwrap_or_default(),
                dims: state.dims.clone(),
            },
            Memory::SameAsInput(input) => {
                let source = node.inputs.get(input).copied().flatten();
                let source = source.ok_or(OpError::MissingInput { index: input })?;
                let dims = state.dims.clone();
                match self.slots.get(source.index()) {
                    Some(Slot::Owned(Value::Tensor(tensor))) => Slot::Owned(tensor.with_dims(&dims)?.into()),
                    // Only tensors have dims to change.
                    Some(Slot::Owned(value)) => Slot::Owned(value.clone()),
                    Some(&Slot::Input { index, .. }) => Slot::Input { index, dims },
                    Some(&Slot::Room { index, .. }) => Slot::Room { index, dims },
                    Some(&Slot::InCache { ty, .. }) => Slot::InCache { ty, dims },
                    Some(Slot::Empty) | None => {
                        let fact = run.graph.facts.get(source.index());
                        let constant = fact.and_then(|fact| fact.value.as_ref());
                        let constant = constant.ok_or(OpError::MissingInput { index: input })?;
                        Slot::Owned(constant.with_dims(&dims)?.into())
                    }
                }
            }
            Memory::Cache => Slot::InCache {
                ty: state.ty.ok_or(OpError::NotWritten { index: position })?,
                dims: state.dims.clone(),
            },
            memory => Slot::Owned(state.value(memory)?),
        };
        self.put(value, slot);
        Ok(())
    }

    /// A value of a run as a kernel sees it.
    pub(super) fn read<'v>(
        &'v self,
        graph: &'v Graph,
        inputs: &'v [Option<ValueRef<'_>>],
        rooms: &'v [Room<'_>],
        value: ValueId,
    ) -> Result<ValueRef<'v>, OpError> {
        let slots = &self.slots;
        Lookup {
            graph,
            slots,
            inputs,
            rooms,
        }
        .read(value)
    }

    /// Puts a tensor where steps find it.
    pub(super) fn own(&mut self, value: ValueId, tensor: Tensor) {
        self.put(value, Slot::Owned(tensor.into()));
    }

    /// Lets go of values.
    pub(super) fn release_all(&mut self, values: &[ValueId], workspace: &mut Workspace) {
        for &value in values {
            self.release(value, workspace);
        }
    }

    fn put(&mut self, value: ValueId, slot: Slot) {
        if let Some(place) = self.slots.get_mut(value.index()) {
            *place = slot;
        }
    }

    /// Lets go of a value; its buffer serves another.
    fn release(&mut self, value: ValueId, workspace: &mut Workspace) {
        if let Some(slot) = self.slots.get_mut(value.index()) {
            slot.empty(workspace);
        }
    }

    pub(super) fn clear(&mut self, workspace: &mut Workspace) {
        for slot in &mut self.slots {
            slot.empty(workspace);
        }
    }

    /// Moves or copies an output of the graph to where the caller gets it.
    fn finish(
        &mut self,
        run: &mut Run<'_, '_>,
        value: ValueId,
        output: usize,
    ) -> Result<Produced, ComponentErrorKind> {
        if let Some(Slot::InCache { ty, dims }) = self.slots.get(value.index()) {
            let dims = dims.clone();
            return Ok(Produced::InCache { ty: *ty, dims });
        }
        if let (Some(Slot::Room { index, dims }), Some(Room::Filled { ty, .. })) =
            (self.slots.get(value.index()), run.rooms.get(output))
            && *index == output
        {
            let dims = dims.clone();
            return Ok(Produced::Room { ty: *ty, dims });
        }
        // An output that is an input, a constant, or another output under other dims: no
        // kernel has written it, so this does.
        let graph = run.graph;
        let failed = |error: OpError| ComponentErrorKind::Node {
            node: graph
                .io
                .outputs
                .get(output)
                .map(|port| port.name.clone())
                .unwrap_or_default(),
            op: "graph output".into(),
            message: error.to_string(),
        };
        let room = run.rooms.get_mut(output).map(std::mem::take);
        let lookup = Lookup {
            graph: run.graph,
            slots: &self.slots,
            inputs: run.inputs,
            rooms: run.rooms,
        };
        let source = lookup.read(value).map_err(failed)?;
        if let (Some(Room::Free(room)), Some(source)) = (room, source.tensor())
            && let (Ok(bytes), Some(size)) = (source.bytes(), source.element_type().size())
            && room.as_ptr().addr().is_multiple_of(size)
            && let Some(room) = room.get_mut(..bytes.len())
        {
            room.write_copy_of_slice(bytes);
            return Ok(Produced::Room {
                ty: source.element_type(),
                dims: source.dims().into(),
            });
        }
        // One value may be several outputs of a body, so it stays; what is owned is shared.
        source.to_value().map(Produced::Owned).map_err(failed)
    }
}

fn put_room<'e>(rooms: &mut [Room<'e>], index: usize, room: Room<'e>) {
    if let Some(place) = rooms.get_mut(index) {
        *place = room;
    }
}

/// The inputs of a node. It is written where it stays: to move it takes as long as to write it.
type Inputs<'v> = SmallVec<[Option<ValueRef<'v>>; 12]>;

/// Where the values of a run are found.
struct Lookup<'v, 'e> {
    graph: &'v Graph,
    slots: &'v [Slot],
    inputs: &'v [Option<ValueRef<'e>>],
    rooms: &'v [Room<'e>],
}

impl<'v> Lookup<'v, '_> {
    /// The inputs of a node, for a list that is empty.
    fn read_inputs(&self, node: &Node, values: &mut Inputs<'v>) -> Result<(), OpError> {
        for input in &node.inputs {
            values.push(match *input {
                Some(value) => Some(self.read(value)?),
                None => None,
            });
        }
        Ok(())
    }

    /// A value as a kernel sees it.
    #[inline]
    fn read(&self, value: ValueId) -> Result<ValueRef<'v>, OpError> {
        let unset = || OpError::Message("a value is read before anything made it".into());
        match self.slots.get(value.index()) {
            Some(Slot::Owned(value)) => Ok(value.view()),
            Some(Slot::Input { index, dims }) => {
                match self.inputs.get(*index).copied().flatten().ok_or_else(unset)? {
                    ValueRef::Tensor(tensor) => Ok(ValueRef::Tensor(tensor.reshaped(dims)?)),
                    other => Ok(other),
                }
            }
            Some(Slot::Room { index, dims }) => match self.rooms.get(*index) {
                Some(&Room::Filled { ty, bytes }) => Ok(ValueRef::Tensor(TensorRef::new(ty, dims, bytes)?)),
                _ => Err(unset()),
            },
            Some(Slot::InCache { ty, dims }) => Ok(ValueRef::Tensor(TensorRef::in_cache(*ty, dims)?)),
            Some(Slot::Empty) | None => {
                let fact = self.graph.facts.get(value.index());
                let value = fact.and_then(|fact| fact.value()).ok_or_else(unset)?;
                Ok(ValueRef::Tensor(value))
            }
        }
    }
}

/// Writes down a node that has run, and how many bytes its results have.
pub(super) fn trace_operator(trace: &Trace, began: Duration, node: &Node, bytes: u64) {
    let name = ("node", TraceArgument::Text(&node.name));
    let bytes = ("output_bytes", TraceArgument::Number(bytes));
    trace.complete(OPERATOR, &node.op, began, &[name, bytes]);
}

/// Holds a kernel to what its inference said; debug builds only.
#[cfg(debug_assertions)]
fn check_inferred(
    plan: &Plan,
    value: ValueId,
    position: usize,
    ty: Option<ElementType>,
    dims: &[usize],
) -> Result<(), OpError> {
    let Some(fact) = plan.facts.get(value.index()) else {
        return Ok(());
    };
    let wrong_type = fact.ty.is_some() && ty.is_some() && fact.ty != ty;
    let wrong_dims = match &fact.dims {
        Some(inferred) => {
            inferred.len() != dims.len()
                || inferred
                    .iter()
                    .zip(dims)
                    .any(|(dim, &found)| dim.fixed().is_some_and(|inferred| inferred != found))
        }
        None => false,
    };
    match wrong_type || wrong_dims {
        false => Ok(()),
        true => Err(OpError::Message(format!(
            "output {position} was inferred as {:?} {:?}, but the kernel made {:?} {:?}",
            fact.ty, fact.dims, ty, dims
        ))),
    }
}

#[cfg(not(debug_assertions))]
fn check_inferred(
    _plan: &Plan,
    _value: ValueId,
    _position: usize,
    _ty: Option<ElementType>,
    _dims: &[usize],
) -> Result<(), OpError> {
    Ok(())
}
