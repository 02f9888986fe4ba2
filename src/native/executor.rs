use std::mem::MaybeUninit;

use smallvec::SmallVec;

use super::element::ElementType;
use super::graph::{Graph, Node, Plan, Step, ValueId};
use super::operator::OpError;
use super::output::{Memory, OutputState};
use super::tensor::{Dims, Tensor, TensorRef};
use super::workspace::{NodeRoom, Workspace};
use crate::component::{ComponentErrorKind, RunControl};

/// Where a value is during a run. Constants of the graph are in its facts, not here.
#[derive(Debug, Default)]
enum Slot {
    #[default]
    Empty,
    Owned(Tensor),
    /// The elements of the graph's input of this index.
    Input {
        index: usize,
        dims: Dims,
    },
    /// The elements in the room of the graph's output of this index.
    Room {
        index: usize,
        dims: Dims,
    },
}

/// The index of a room, and its memory while a node writes it.
type TakenRoom<'r> = (usize, &'r mut [MaybeUninit<u8>]);

/// What a caller has for one output of the graph.
#[derive(Debug, Default)]
pub(super) enum Room<'e> {
    #[default]
    None,
    Free(&'e mut [MaybeUninit<u8>]),
    Filled {
        ty: ElementType,
        bytes: &'e [u8],
    },
}

/// Where an output of the graph has gone.
#[derive(Debug)]
pub(super) enum Produced {
    Room { ty: ElementType, dims: Dims },
    Owned(Tensor),
}

/// Runs plans of one graph, one at a time, and keeps the memory between runs.
#[derive(Default)]
pub(super) struct Executor {
    pub(super) workspace: Workspace,
    /// One for each value of the graph; all empty between runs.
    slots: Vec<Slot>,
    /// For each value, the index of the graph's output that it is.
    output_of: Vec<Option<usize>>,
}

/// What a run reads and where it may write: lent for the length of the run.
pub(super) struct Bindings<'b, 'e> {
    /// In the order of the graph's inputs; `None` for those not given.
    pub(super) inputs: &'b [Option<TensorRef<'e>>],
    /// In the order of the graph's outputs.
    pub(super) rooms: &'b mut [Room<'e>],
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
        Executor {
            workspace: Workspace::default(),
            slots,
            output_of,
        }
    }

    /// Runs a plan. Puts each asked output into its place in `produced`, which has one for
    /// each of the graph's.
    pub(super) fn run(
        &mut self,
        graph: &Graph,
        plan: &Plan,
        bindings: Bindings<'_, '_>,
        control: &RunControl,
        produced: &mut [Option<Produced>],
    ) -> Result<(), ComponentErrorKind> {
        // A run that failed, or whose kernel panicked, may have left values behind.
        self.clear();
        let Bindings { inputs, rooms } = bindings;
        let result = self
            .run_steps(graph, plan, inputs, rooms, control)
            .and_then(|()| {
                for (index, (&value, produced)) in graph.outputs.iter().zip(produced).enumerate() {
                    if plan.request.outputs.get(index).copied().unwrap_or(false) {
                        *produced = Some(self.finish(graph, value, index, inputs, rooms)?);
                    }
                }
                Ok(())
            });
        self.clear();
        result
    }

    fn run_steps(
        &mut self,
        graph: &Graph,
        plan: &Plan,
        inputs: &[Option<TensorRef<'_>>],
        rooms: &mut [Room<'_>],
        control: &RunControl,
    ) -> Result<(), ComponentErrorKind> {
        for (index, (input, given)) in graph.inputs.iter().zip(inputs).enumerate() {
            if let Some(given) = given {
                let dims = given.dims().into();
                self.put(input.value, Slot::Input { index, dims });
            }
        }
        for (value, tensor) in &plan.constants {
            self.put(*value, Slot::Owned(tensor.clone()));
        }
        let is_bounded = control.is_bounded();
        for step in &plan.steps {
            if is_bounded {
                check(control)?;
            }
            let Some(node) = graph.nodes.get(step.node) else {
                continue;
            };
            self.run_step(graph, plan, step, node, inputs, rooms)
                .map_err(|error| node.error(error))?;
        }
        Ok(())
    }

    fn run_step(
        &mut self,
        graph: &Graph,
        plan: &Plan,
        step: &Step,
        node: &Node,
        inputs: &[Option<TensorRef<'_>>],
        rooms: &mut [Room<'_>],
    ) -> Result<(), OpError> {
        let used = |index: usize| {
            let value = node.outputs.get(index).copied().flatten();
            value.is_some_and(|value| plan.is_read(value))
        };
        // Rooms that this node's outputs may go to, taken out so that the others can be read.
        let mut taken: SmallVec<[Option<TakenRoom<'_>>; 4]> = SmallVec::new();
        for value in &node.outputs {
            let output = value.and_then(|value| self.output_of.get(value.index()).copied().flatten());
            let room = output.and_then(|index| {
                let room = rooms.get_mut(index)?;
                match std::mem::take(room) {
                    Room::Free(memory) => Some((index, memory)),
                    other => {
                        *room = other;
                        None
                    }
                }
            });
            taken.push(room);
        }
        let result = {
            let slots = &self.slots;
            let mut values: SmallVec<[Option<TensorRef<'_>>; 12]> = SmallVec::new();
            for input in &node.inputs {
                values.push(match *input {
                    Some(value) => Some(read(graph, slots, value, inputs, rooms)?),
                    None => None,
                });
            }
            let lent: SmallVec<[NodeRoom<'_>; 4]> = taken
                .iter_mut()
                .map(|room| room.as_mut().map(|(_, memory)| &mut **memory))
                .collect();
            self.workspace.run(node, &values, used, lent)
        };
        for (position, room) in taken.into_iter().enumerate() {
            let Some((index, memory)) = room else { continue };
            let state = self.workspace.outputs().get(position);
            let filled = match (&result, state) {
                (Ok(()), Some(state)) if matches!(state.memory, Memory::Room) => {
                    state.ty.zip(state.filled_room(memory))
                }
                _ => {
                    put_room(rooms, index, Room::Free(memory));
                    continue;
                }
            };
            if let Some((ty, bytes)) = filled {
                put_room(rooms, index, Room::Filled { ty, bytes });
            }
        }
        result?;
        for position in 0..node.outputs.len() {
            let Some(value) = node.outputs.get(position).copied().flatten() else {
                continue;
            };
            if plan.is_read(value) {
                self.store(graph, plan, node, position, value)?;
            }
        }
        for &value in &step.last_uses {
            self.release(value);
        }
        Ok(())
    }

    /// Takes what a kernel made for one of its outputs.
    fn store(
        &mut self,
        graph: &Graph,
        plan: &Plan,
        node: &Node,
        position: usize,
        value: ValueId,
    ) -> Result<(), OpError> {
        let Some(state) = self.workspace.outputs().get_mut(position) else {
            return Err(OpError::NotWritten { index: position });
        };
        check_inferred(plan, value, position, state)?;
        let slot = match std::mem::take(&mut state.memory) {
            Memory::Room => Slot::Room {
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
                    Some(Slot::Owned(tensor)) => Slot::Owned(tensor.with_dims(&dims)?),
                    Some(&Slot::Input { index, .. }) => Slot::Input { index, dims },
                    Some(&Slot::Room { index, .. }) => Slot::Room { index, dims },
                    Some(Slot::Empty) | None => {
                        let fact = graph.facts.get(source.index());
                        let constant = fact.and_then(|fact| fact.value.as_ref());
                        let constant = constant.ok_or(OpError::MissingInput { index: input })?;
                        Slot::Owned(constant.with_dims(&dims)?)
                    }
                }
            }
            memory => Slot::Owned(state.tensor(memory)?),
        };
        self.put(value, slot);
        Ok(())
    }

    fn put(&mut self, value: ValueId, slot: Slot) {
        if let Some(place) = self.slots.get_mut(value.index()) {
            *place = slot;
        }
    }

    /// Lets go of a value; its buffer serves another.
    fn release(&mut self, value: ValueId) {
        if let Some(Slot::Owned(tensor)) = self.slots.get_mut(value.index()).map(std::mem::take)
            && let Some(buffer) = tensor.into_heap()
        {
            self.workspace.pool.give(buffer);
        }
    }

    fn clear(&mut self) {
        for index in 0..self.slots.len() {
            self.release(ValueId::new(index));
        }
    }

    /// Moves or copies an output of the graph to where the caller gets it.
    fn finish(
        &mut self,
        graph: &Graph,
        value: ValueId,
        output: usize,
        inputs: &[Option<TensorRef<'_>>],
        rooms: &mut [Room<'_>],
    ) -> Result<Produced, ComponentErrorKind> {
        if let (Some(Slot::Room { index, dims }), Some(Room::Filled { ty, .. })) =
            (self.slots.get(value.index()), rooms.get(output))
            && *index == output
        {
            let dims = dims.clone();
            return Ok(Produced::Room { ty: *ty, dims });
        }
        // An output that is an input, a constant, or another output under other dims: no
        // kernel has written it, so this does.
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
        let room = rooms.get_mut(output).map(std::mem::take);
        let source = read(graph, &self.slots, value, inputs, rooms).map_err(failed)?;
        if let (Some(Room::Free(room)), Ok(bytes), Some(size)) =
            (room, source.bytes(), source.element_type().size())
            && room.as_ptr().addr().is_multiple_of(size)
            && let Some(room) = room.get_mut(..bytes.len())
        {
            room.write_copy_of_slice(bytes);
            return Ok(Produced::Room {
                ty: source.element_type(),
                dims: source.dims().into(),
            });
        }
        let owned = match self.slots.get_mut(value.index()) {
            Some(slot @ Slot::Owned(_)) => std::mem::take(slot),
            _ => Slot::Empty,
        };
        match owned {
            Slot::Owned(tensor) => Ok(Produced::Owned(tensor)),
            _ => {
                let source = read(graph, &self.slots, value, inputs, rooms).map_err(failed)?;
                source.to_tensor().map(Produced::Owned).map_err(failed)
            }
        }
    }
}

fn check(control: &RunControl) -> Result<(), ComponentErrorKind> {
    match control.should_stop() {
        false => Ok(()),
        true if control.cancel.as_ref().is_some_and(|token| token.is_requested()) => {
            Err(ComponentErrorKind::Cancelled)
        }
        true => Err(ComponentErrorKind::DeadlineExceeded),
    }
}

fn put_room<'e>(rooms: &mut [Room<'e>], index: usize, room: Room<'e>) {
    if let Some(place) = rooms.get_mut(index) {
        *place = room;
    }
}

/// A value as a kernel sees it.
fn read<'v>(
    graph: &'v Graph,
    slots: &'v [Slot],
    value: ValueId,
    inputs: &[Option<TensorRef<'v>>],
    rooms: &[Room<'v>],
) -> Result<TensorRef<'v>, OpError> {
    let unset = || OpError::Message("a value is read before anything made it".into());
    match slots.get(value.index()) {
        Some(Slot::Owned(tensor)) => Ok(tensor.view()),
        Some(Slot::Input { index, dims }) => {
            let input = inputs.get(*index).copied().flatten().ok_or_else(unset)?;
            input.reshaped(dims)
        }
        Some(Slot::Room { index, dims }) => match rooms.get(*index) {
            Some(&Room::Filled { ty, bytes }) => TensorRef::new(ty, dims, bytes),
            _ => Err(unset()),
        },
        Some(Slot::Empty) | None => {
            let fact = graph.facts.get(value.index());
            fact.and_then(|fact| fact.value()).ok_or_else(unset)
        }
    }
}

/// Holds a kernel to what its inference said; debug builds only.
#[cfg(debug_assertions)]
fn check_inferred(plan: &Plan, value: ValueId, position: usize, state: &OutputState) -> Result<(), OpError> {
    let Some(fact) = plan.facts.get(value.index()) else {
        return Ok(());
    };
    let wrong_type = fact.ty.is_some() && fact.ty != state.ty;
    let wrong_dims = match &fact.dims {
        Some(dims) => {
            dims.len() != state.dims.len()
                || dims
                    .iter()
                    .zip(&state.dims)
                    .any(|(dim, &found)| dim.fixed().is_some_and(|inferred| inferred != found))
        }
        None => false,
    };
    match wrong_type || wrong_dims {
        false => Ok(()),
        true => Err(OpError::Message(format!(
            "output {position} was inferred as {:?} {:?}, but the kernel made {:?} {:?}",
            fact.ty, fact.dims, state.ty, state.dims
        ))),
    }
}

#[cfg(not(debug_assertions))]
fn check_inferred(
    _plan: &Plan,
    _value: ValueId,
    _position: usize,
    _state: &OutputState,
) -> Result<(), OpError> {
    Ok(())
}
