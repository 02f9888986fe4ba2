use std::mem::MaybeUninit;
use std::sync::Arc;

use smallvec::SmallVec;

use super::graph::Node;
use super::operator::{OpError, RunContext};
use super::output::{Memory, OutputState, OutputTarget, Pool};
use super::tensor::{Tensor, TensorRef};
use crate::component::AlignedBytes;

/// Room of the caller for an output of a node, if there is any.
pub(super) type NodeRoom<'a> = Option<&'a mut [MaybeUninit<u8>]>;

/// What runs of nodes share and reuse: free buffers, scratch memory, output records.
pub(super) struct Workspace {
    pub(super) pool: Pool,
    scratch: Arc<AlignedBytes>,
    states: Vec<OutputState>,
}

impl Default for Workspace {
    fn default() -> Self {
        Workspace {
            pool: Pool::default(),
            scratch: Arc::new(AlignedBytes::EMPTY),
            states: Vec::new(),
        }
    }
}

impl Workspace {
    /// Runs a node for the outputs that are `used`. On success the state of each of them is
    /// complete, see [`outputs`](Self::outputs).
    pub(super) fn run(
        &mut self,
        node: &Node,
        inputs: &[Option<TensorRef<'_>>],
        used: impl Fn(usize) -> bool,
        rooms: SmallVec<[NodeRoom<'_>; 4]>,
    ) -> Result<(), OpError> {
        let count = node.outputs.len();
        if self.states.len() < count {
            self.states.resize_with(count, OutputState::default);
        }
        let states = self.states.get_mut(..count).unwrap_or_default();
        for state in states.iter_mut() {
            state.memory = Memory::Pending;
        }
        let mut rooms = rooms.into_iter();
        let outputs = states
            .iter_mut()
            .enumerate()
            .map(|(index, state)| {
                let room = rooms.next().flatten();
                used(index).then_some(OutputTarget { state, room })
            })
            .collect();
        node.operator.run(&mut RunContext {
            inputs,
            outputs,
            pool: &mut self.pool,
            scratch: Some(&mut self.scratch),
        })?;
        let written =
            |index: &usize| used(*index) && !self.states.get(*index).is_some_and(OutputState::is_written);
        match (0..count).find(written) {
            None => Ok(()),
            Some(index) => Err(OpError::NotWritten { index }),
        }
    }

    /// What the last node did about its outputs.
    pub(super) fn outputs(&mut self) -> &mut [OutputState] {
        &mut self.states
    }

    /// Runs a node on whole tensors and gives its outputs as such, `None` for those not
    /// `used`. An output that is an input under other dims shares its elements.
    pub(super) fn compute(
        &mut self,
        node: &Node,
        inputs: &[Option<&Tensor>],
        used: impl Fn(usize) -> bool,
    ) -> Result<SmallVec<[Option<Tensor>; 2]>, OpError> {
        let views: SmallVec<[Option<TensorRef<'_>>; 8]> =
            inputs.iter().map(|input| input.map(Tensor::view)).collect();
        self.run(node, &views, &used, SmallVec::new())?;
        let states = self.states.iter_mut().take(node.outputs.len()).enumerate();
        states
            .map(|(index, state)| match std::mem::take(&mut state.memory) {
                _ if !used(index) => Ok(None),
                Memory::SameAsInput(input) => {
                    let source = inputs.get(input).copied().flatten();
                    let source = source.ok_or(OpError::MissingInput { index: input })?;
                    source.with_dims(&state.dims).map(Some)
                }
                memory => state.tensor(memory).map(Some),
            })
            .collect()
    }
}
