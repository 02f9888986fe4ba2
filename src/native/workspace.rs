use std::sync::Arc;

use smallvec::SmallVec;

use super::operator::{OpError, Operator, RunContext};
use super::output::{Memory, NodeRoom, OutputState, OutputTarget, Pool};
use super::tensor::Tensor;
use super::value::{Sequence, Value, ValueRef};
use super::workers::Workers;
use crate::component::{AlignedBytes, Trace};

/// What runs of nodes share and reuse: threads, free buffers, scratch memory, output records.
pub(super) struct Workspace {
    workers: Workers,
    pub(super) pool: Pool,
    scratch: Arc<AlignedBytes>,
    states: Vec<OutputState>,
    /// Where each operator is written down, if anywhere.
    pub(super) trace: Option<Trace>,
}

impl Workspace {
    pub(super) fn new(workers: Workers, trace: Option<Trace>) -> Self {
        Workspace {
            workers,
            pool: Pool::default(),
            scratch: Arc::new(AlignedBytes::EMPTY),
            states: Vec::new(),
            trace,
        }
    }

    /// Runs an operator for those of its `count` outputs that are `used`. On success the
    /// state of each of them is complete, see [`outputs`](Self::outputs).
    pub(super) fn run(
        &mut self,
        operator: &dyn Operator,
        count: usize,
        inputs: &[Option<ValueRef<'_>>],
        used: impl Fn(usize) -> bool,
        rooms: &mut [NodeRoom<'_>],
    ) -> Result<(), OpError> {
        let is_other = |value: &Option<ValueRef<'_>>| {
            matches!(value, Some(ValueRef::Sequence(_) | ValueRef::Optional(_)))
        };
        if let Some(index) = inputs.iter().position(is_other)
            && !operator.takes_values()
        {
            return Err(OpError::Message(format!(
                "input {index} is {:?}, expected a tensor",
                inputs[index]
            )));
        }
        if self.states.len() < count {
            self.states.resize_with(count, OutputState::default);
        }
        let states = self.states.get_mut(..count).unwrap_or_default();
        for state in states.iter_mut() {
            state.memory = Memory::Pending;
        }
        let mut outputs = SmallVec::new();
        for (index, state) in states.iter_mut().enumerate() {
            let room = rooms.get_mut(index).map(std::mem::take).unwrap_or_default();
            outputs.push(used(index).then_some(OutputTarget { state, room }));
        }
        let lent = LentScratch(&mut self.scratch);
        operator.run(&mut RunContext {
            workers: &self.workers,
            inputs,
            outputs,
            pool: &mut self.pool,
            scratch: Some(&mut *lent.0),
        })?;
        drop(lent);
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

    /// Runs an operator on whole tensors and gives its outputs, `None` for those not `used`.
    /// An output that is an input under other dims shares its elements.
    pub(super) fn compute(
        &mut self,
        operator: &dyn Operator,
        count: usize,
        inputs: &[Option<&Tensor>],
        used: impl Fn(usize) -> bool,
    ) -> Result<SmallVec<[Option<Value>; 2]>, OpError> {
        let views: SmallVec<[Option<ValueRef<'_>>; 8]> = inputs
            .iter()
            .map(|input| input.map(|tensor| ValueRef::Tensor(tensor.view())))
            .collect();
        self.run(operator, count, &views, &used, &mut [])?;
        let states = self.states.iter_mut().take(count).enumerate();
        states
            .map(|(index, state)| match std::mem::take(&mut state.memory) {
                _ if !used(index) => Ok(None),
                Memory::SameAsInput(input) => {
                    let source = inputs.get(input).copied().flatten();
                    let source = source.ok_or(OpError::MissingInput { index: input })?;
                    Ok(Some(source.with_dims(&state.dims)?.into()))
                }
                memory => state.value(memory).map(Some),
            })
            .collect()
    }

    /// Lets go of a value; buffers that nobody else holds serve another.
    pub(super) fn recycle(&mut self, value: Value) {
        match value {
            Value::Tensor(tensor) => self.recycle_tensor(tensor),
            Value::Sequence(sequence) => {
                let tensors = Arc::into_inner(sequence).map(Sequence::into_tensors);
                for tensor in tensors.into_iter().flatten() {
                    self.recycle_tensor(tensor);
                }
            }
            Value::Optional(content) => {
                if let Some(content) = content.and_then(Arc::into_inner) {
                    self.recycle(content);
                }
            }
        }
    }

    pub(super) fn recycle_tensor(&mut self, tensor: Tensor) {
        if let Some(buffer) = tensor.into_heap() {
            self.pool.give(buffer);
        }
    }
}

/// Scratch memory that an operator may use. Afterwards, also if the run was ended in the middle of it,
/// it counts for nobody.
struct LentScratch<'a>(&'a mut Arc<AlignedBytes>);

impl Drop for LentScratch<'_> {
    fn drop(&mut self) {
        if let Some(memory) = Arc::get_mut(self.0) {
            memory.uncharge();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::MemoryAccount;
    use crate::native::infer::InferContext;

    /// Takes so many bytes of scratch memory, and then may panic.
    #[derive(Debug)]
    struct Scratch {
        bytes: usize,
        panics: bool,
    }

    impl Operator for Scratch {
        fn infer(&self, _: &mut InferContext<'_>) -> Result<(), OpError> {
            Ok(())
        }

        fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
            cx.scratch::<u8>(self.bytes)?.fill(1);
            assert!(!self.panics);
            Ok(())
        }
    }

    #[test]
    fn scratch_memory_counts_for_who_uses_it() {
        let mut workspace = Workspace::new(Workers::alone(), None);
        let mut run = |account: &MemoryAccount, bytes, panics| {
            let _entered = account.enter();
            let operator = Scratch { bytes, panics };
            workspace.run(&operator, 0, &[], |_| false, &mut [])
        };
        let first = MemoryAccount::new("the run", "memory_bytes", 4096);
        run(&first, 4096, false).unwrap();
        assert_eq!(first.used(), 0);
        // What is kept is too much for the second, but what it needs is not.
        let second = MemoryAccount::new("the run", "memory_bytes", 2048);
        for bytes in [2048, 4096, 2048, 100] {
            let ran = run(&second, bytes, false);
            match bytes {
                4096 => assert!(matches!(ran, Err(OpError::OutOfMemory { bytes: 4096 }))),
                _ => ran.unwrap(),
            }
            assert_eq!(second.used(), 0, "{bytes}");
        }
        run(&first, 4096, false).unwrap();
        let panic = std::panic::AssertUnwindSafe(|| run(&first, 4096, true));
        assert!(crate::panics::contain(panic).is_err());
        assert_eq!(first.used(), 0);
    }
}
