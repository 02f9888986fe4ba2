//! Operators that are defined by others: a step runs one of them on tensors at hand, within the
//! run of the node.

use smallvec::{SmallVec, smallvec};

use crate::native::infer::{Fact, InferContext};
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::output::{Memory, NodeRoom, OutputState, OutputTarget};
use crate::native::tensor::{Tensor, TensorRef};
use crate::native::value::{Value, ValueRef};

/// The first `count` outputs of an operator. It may use the scratch memory of the node, which must
/// not be in use.
pub(super) fn run_for<const N: usize>(
    cx: &mut RunContext<'_>,
    operator: &dyn Operator,
    inputs: &[Option<TensorRef<'_>>],
) -> Result<[Tensor; N], OpError> {
    let values: SmallVec<[Option<ValueRef<'_>>; 12]> =
        inputs.iter().map(|input| input.map(ValueRef::Tensor)).collect();
    let mut states: [OutputState; N] = std::array::from_fn(|_| OutputState::default());
    operator.run(&mut RunContext {
        workers: cx.workers,
        inputs: &values,
        outputs: states
            .iter_mut()
            .map(|state| {
                Some(OutputTarget {
                    state,
                    room: NodeRoom::None,
                })
            })
            .collect(),
        pool: &mut *cx.pool,
        scratch: cx.scratch.as_deref_mut(),
    })?;
    let mut tensors: SmallVec<[Tensor; N]> = SmallVec::new();
    for (index, state) in states.iter_mut().enumerate() {
        if !state.is_written() {
            return Err(OpError::NotWritten { index });
        }
        let value = match std::mem::take(&mut state.memory) {
            Memory::SameAsInput(input) => {
                let source = inputs.get(input).copied().flatten();
                let source = source.ok_or(OpError::MissingInput { index: input })?;
                source.reshaped(&state.dims)?.to_tensor()?.into()
            }
            memory => state.value(memory)?,
        };
        match value {
            Value::Tensor(tensor) => tensors.push(tensor),
            other => return Err(OpError::Message(format!("{other:?} where a tensor is expected"))),
        }
    }
    let found = tensors.len();
    tensors
        .into_inner()
        .map_err(|_| OpError::Message(format!("{found} outputs, expected {N}")))
}

/// The first output of an operator, as [`run_for`].
pub(super) fn run(
    cx: &mut RunContext<'_>,
    operator: &dyn Operator,
    inputs: &[Option<TensorRef<'_>>],
) -> Result<Tensor, OpError> {
    run_for(cx, operator, inputs).map(|[output]| output)
}

/// Runs an operator for those outputs of the node itself that are `wanted`; it must not give an input
/// for one.
pub(super) fn run_last(
    cx: &mut RunContext<'_>,
    operator: &dyn Operator,
    inputs: &[Option<TensorRef<'_>>],
    wanted: impl Fn(usize) -> bool,
) -> Result<(), OpError> {
    let values: SmallVec<[Option<ValueRef<'_>>; 12]> =
        inputs.iter().map(|input| input.map(ValueRef::Tensor)).collect();
    operator.run(&mut RunContext {
        workers: cx.workers,
        inputs: &values,
        outputs: cx
            .outputs
            .iter_mut()
            .enumerate()
            .map(|(index, target)| if wanted(index) { target.take() } else { None })
            .collect(),
        pool: &mut *cx.pool,
        scratch: cx.scratch.as_deref_mut(),
    })
}

/// What an operator says of its outputs.
pub(super) fn infer(
    operator: &dyn Operator,
    inputs: &[Option<&Fact>],
    count: usize,
) -> Result<SmallVec<[Fact; 4]>, OpError> {
    let mut outputs: SmallVec<[Fact; 4]> = smallvec![Fact::default(); count];
    let used: SmallVec<[bool; 4]> = smallvec![true; count];
    operator.infer(&mut InferContext {
        inputs,
        outputs: &mut outputs,
        used: &used,
    })?;
    Ok(outputs)
}

/// Gives tensors that a step has made back to the pool.
pub(super) fn recycle(cx: &mut RunContext<'_>, tensors: impl IntoIterator<Item = Tensor>) {
    for buffer in tensors.into_iter().filter_map(Tensor::into_heap) {
        cx.pool.give(buffer);
    }
}

/// A tensor of f32 in memory of the pool, written from an iterator of as many elements.
pub(super) fn floats(
    cx: &mut RunContext<'_>,
    dims: &[usize],
    values: impl Iterator<Item = f32>,
) -> Result<Tensor, OpError> {
    let ty = crate::native::element::ElementType::Float32;
    cx.pool.tensor(ty, dims, |bytes| {
        for (to, value) in bytes.chunks_exact_mut(size_of::<f32>()).zip(values) {
            to.copy_from_slice(&value.to_ne_bytes());
        }
    })
}
