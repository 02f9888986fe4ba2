use std::fmt::Debug;
use std::sync::Arc;

use smallvec::SmallVec;
use thiserror::Error;

use super::element::{Element, ElementType};
use super::infer::{Fact, InferContext};
use super::output::{Memory, NodeRoom, OutSlice, OutputTarget, Pool, check_strings};
use super::packed_cache::Store;
use super::strings::Strings;
use super::tensor::{Dims, TensorRef, as_elements_mut, byte_count};
use super::value::{Value, ValueRef};
use super::workers::Workers;
use crate::component::AlignedBytes;

/// The most rows of several runs that an operator is given [together](Operator::joined_inputs).
pub const TOGETHER: usize = 8;

/// What runs read of the constants that [`Operator::prepare`] was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// The constants.
    AsGiven,
    /// The operator's own copy, mostly.
    Packed,
}

impl Prepared {
    pub fn of<T>(packed: &Option<T>) -> Self {
        match packed {
            Some(_) => Prepared::Packed,
            None => Prepared::AsGiven,
        }
    }
}

/// What [`Operator::prepare`] may use.
pub struct PrepareContext<'a> {
    pub(super) workers: &'a Workers,
    pub(super) packed_cache: Option<&'a mut Store>,
    pub(super) give_back: &'a (dyn Fn(&[u8]) + Sync),
}

impl<'a> PrepareContext<'a> {
    /// The threads for loops that are worth it.
    pub fn workers(&self) -> &'a Workers {
        self.workers
    }

    /// To be called with bytes of constants that are not read again where they lie, so that a large
    /// constant is not in memory as a whole beside what is made of it. They stay what they are.
    pub fn give_back(&self) -> &'a (dyn Fn(&[u8]) + Sync) {
        self.give_back
    }

    /// The weights that were packed before, and those to keep.
    pub(super) fn packed_cache(&mut self) -> Option<&mut Store> {
        self.packed_cache.as_deref_mut()
    }
}

/// An operator of a node: attributes read, ready to run any number of times.
///
/// It keeps no state between runs that could change a result, and its results depend on
/// nothing but inputs and attributes: not on the number of threads.
pub trait Operator: Debug + Send + Sync {
    /// Types and dims of the outputs, from those of the inputs and, where they are known,
    /// from values. Called at load, when dims may be symbols or unknown, and again for
    /// concrete input shapes. What is not known stays unset. An error here is one that
    /// every run would meet; a type that the spec allows and this code does not is
    /// [`OpError::Unsupported`].
    ///
    /// Operators whose result is a value of the *dims* (Shape, Size) also set it with
    /// [`InferContext::set_value`]. All others need not: when every input of a node is a
    /// known value, the framework runs the node.
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError>;

    /// Called at load, when the graph is as it will run, with the inputs that are constants: to
    /// keep them in the layout of the kernel. Runs are given the inputs all the same, and constants
    /// that do not fit are an error of theirs.
    fn prepare(
        &mut self,
        _constants: &[Option<TensorRef<'_>>],
        _cx: &mut PrepareContext<'_>,
    ) -> Result<Prepared, OpError> {
        Ok(Prepared::AsGiven)
    }

    /// Computes the outputs that are [used](RunContext::output_used).
    ///
    /// Result memory comes from the context: the caller's own buffer when the value is an
    /// output of the graph and fits, else a recycled one. Every used output must be asked
    /// for and written in full.
    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError>;

    /// Whether equal inputs give equal outputs. Random generators say no, and are then not
    /// folded into constants.
    fn is_deterministic(&self) -> bool {
        true
    }

    /// Whether row r of output 0 follows from row r of input 0 alone, where rows are what lies
    /// along the last dim of an input of rank 2 or more. `others` is what is known of the
    /// inputs after it: all are constants, or left out.
    fn is_row_wise(&self, others: &[Option<&Fact>]) -> bool {
        let _ = others;
        false
    }

    /// The inputs whose rows belong to those of output 0, if row r of it follows from row r of each of
    /// them and from the other inputs as a whole, in the same way bit by bit however many rows up to
    /// [`TOGETHER`] there are: so that rows of several runs may be joined where the others are the same
    /// constants. Rows are what lies along the last dim. `None` for what would not be worth it.
    /// `others` is what is known of the inputs after the first.
    fn joined_inputs(&self, others: &[Option<&Fact>]) -> Option<&'static [usize]> {
        let _ = others;
        None
    }

    /// The input that an output is, with rows of the run behind it, if the operator can write
    /// those where the input lies ([`RunContext::cache`]): past and present of a cache,
    /// [batch, heads, rows, width].
    fn past_of(&self, output: usize) -> Option<usize> {
        let _ = output;
        None
    }

    /// The input that an output is, with some elements overwritten, if the operator can do that
    /// where the input lies ([`RunContext::buffer`]).
    fn overwrites(&self, output: usize) -> Option<usize> {
        let _ = output;
        None
    }

    /// Whether nothing of the inputs makes a difference but their dims.
    fn reads_only_dims(&self) -> bool {
        false
    }

    /// Whether inputs may be sequences and optionals, read with [`RunContext::value`]. All
    /// other operators are run on tensors only.
    fn takes_values(&self) -> bool {
        false
    }
}

/// Why an operator cannot be built, inferred or run. The executor adds node and operator.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum OpError {
    #[error("input {index} is missing")]
    MissingInput { index: usize },
    #[error("{what} is {found}, expected {expected}")]
    WrongType {
        /// `input 1`, `value`, ...
        what: String,
        found: ElementType,
        expected: String,
    },
    #[error("{what} has dims {found:?}, expected {expected}")]
    WrongDims {
        what: String,
        found: Dims,
        expected: String,
    },
    #[error("attribute \"{name}\": {message}")]
    Attribute { name: String, message: String },
    /// Valid ONNX that this runtime does not do.
    #[error("not supported: {0}")]
    Unsupported(String),
    #[error("{ty}{dims:?} needs {expected} bytes (or strings), found {found}")]
    Length {
        ty: ElementType,
        dims: Dims,
        found: usize,
        expected: usize,
    },
    #[error("dims {dims:?} are more than can be addressed")]
    TooLarge { dims: Dims },
    #[error("cannot allocate {bytes} bytes")]
    OutOfMemory { bytes: usize },
    /// The operator broke its contract.
    #[error("output {index} was not written in full")]
    NotWritten { index: usize },
    /// Anything else that is wrong with the inputs: what was found, what was expected.
    #[error("{0}")]
    Message(String),
}

/// The memory of a cache: [batch, heads, `rows`, width], the first rows of each block those of
/// the past.
#[derive(Debug)]
pub struct CacheRows<'a, T> {
    pub elements: &'a mut [T],
    pub rows: usize,
}

/// What a kernel sees of a run: its inputs, the memory for its outputs, and the threads that it
/// may use.
pub struct RunContext<'a> {
    pub(super) workers: &'a Workers,
    pub(super) inputs: &'a [Option<ValueRef<'a>>],
    /// `None` for an output that nobody uses, or that has been asked for.
    pub(super) outputs: SmallVec<[Option<OutputTarget<'a>>; 4]>,
    pub(super) pool: &'a mut Pool,
    pub(super) scratch: Option<&'a mut Arc<AlignedBytes>>,
}

impl<'a> RunContext<'a> {
    /// The threads for loops that are worth it. Results must not depend on how many there are.
    pub fn workers(&self) -> &'a Workers {
        self.workers
    }

    /// Inputs that the node lists, the left-out ones in between included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// An input, or `None` when it is left out.
    pub fn input(&self, index: usize) -> Option<TensorRef<'a>> {
        self.value(index).and_then(ValueRef::tensor)
    }

    /// An input that may be a sequence or an optional, or `None` when it is left out.
    pub fn value(&self, index: usize) -> Option<ValueRef<'a>> {
        self.inputs.get(index).copied().flatten()
    }

    /// An input that must be there.
    pub fn required(&self, index: usize) -> Result<TensorRef<'a>, OpError> {
        // Not `ok_or`, which makes the error each time, and drops it.
        match self.input(index) {
            Some(input) => Ok(input),
            None => Err(OpError::MissingInput { index }),
        }
    }

    /// Whether an output is used and has not been asked for yet.
    pub fn output_used(&self, index: usize) -> bool {
        self.outputs.get(index).is_some_and(Option::is_some)
    }

    fn take(&mut self, index: usize) -> Result<OutputTarget<'a>, OpError> {
        self.outputs
            .get_mut(index)
            .and_then(Option::take)
            .ok_or_else(|| OpError::Message(format!("output {index} is not used, or was asked for twice")))
    }

    /// Room for an output of elements of `T`. Ask once for an output that is used.
    pub fn output<T: Element>(&mut self, index: usize, dims: &[usize]) -> Result<OutSlice<'a, T>, OpError> {
        self.take(index)?.open(T::TYPE, dims, self.pool)
    }

    /// Room for an output of any type but strings, as bytes: for kernels that only move
    /// elements.
    pub fn output_bytes(
        &mut self,
        index: usize,
        ty: ElementType,
        dims: &[usize],
    ) -> Result<OutSlice<'a, u8>, OpError> {
        self.take(index)?.open(ty, dims, self.pool)
    }

    /// An output of strings.
    pub(super) fn output_strings(
        &mut self,
        index: usize,
        dims: &[usize],
        strings: Strings,
    ) -> Result<(), OpError> {
        check_strings(dims, strings.as_slice())?;
        let target = self.take(index)?;
        target
            .state
            .set(ElementType::String, dims, Memory::Strings(strings));
        Ok(())
    }

    /// An output that exists already: a sequence, an optional, or a tensor that shares its
    /// elements.
    pub fn output_value(&mut self, index: usize, value: Value) -> Result<(), OpError> {
        self.take(index)?.state.set_value(value);
        Ok(())
    }

    /// Makes an output the elements of an input under other dims of the same product:
    /// Reshape, Squeeze, Identity. Nothing is copied unless the graph needs the value
    /// elsewhere.
    pub fn output_same_as_input(
        &mut self,
        index: usize,
        input: usize,
        dims: &[usize],
    ) -> Result<(), OpError> {
        let source = self.required(input)?.reshaped(dims)?;
        let target = self.take(index)?;
        target
            .state
            .set(source.element_type(), dims, Memory::SameAsInput(input));
        Ok(())
    }

    /// The memory of the cache that an output may be made in, if there is one: the elements of
    /// the input that it [is of](Operator::past_of), which cannot be read in another way. The
    /// output is still to be asked for: [in the cache](Self::output_in_cache), when it is what
    /// the cache then holds, or as any other.
    pub fn cache<T: Element>(&mut self, output: usize) -> Result<Option<CacheRows<'a, T>>, OpError> {
        let room = self.outputs.get_mut(output).and_then(Option::as_mut);
        let Some(room) = room.map(|target| &mut target.room) else {
            return Ok(None);
        };
        match std::mem::take(room) {
            NodeRoom::Cache(memory) => {
                let elements = as_elements_mut(memory.bytes).ok_or_else(|| {
                    OpError::Message(format!("the cache is not aligned for elements of {}", T::TYPE))
                })?;
                let rows = memory.rows;
                Ok(Some(CacheRows { elements, rows }))
            }
            other => {
                *room = other;
                Ok(None)
            }
        }
    }

    /// Makes an output what lies in its cache: the input that it is of, and behind each block of
    /// that the rows that make it `dims`, which have been written.
    pub fn output_in_cache(&mut self, index: usize, ty: ElementType, dims: &[usize]) -> Result<(), OpError> {
        self.take(index)?.state.set(ty, dims, Memory::Cache);
        Ok(())
    }

    /// Makes an output the buffer that holds the input that it [overwrites](Operator::overwrites),
    /// if there is one, and gives it, of that input's elements, which cannot be read in another
    /// way. Without one the output is still to be asked for.
    pub fn buffer(
        &mut self,
        index: usize,
        ty: ElementType,
        dims: &[usize],
    ) -> Result<Option<&'a mut [u8]>, OpError> {
        let target = self.outputs.get(index).and_then(Option::as_ref);
        if !target.is_some_and(|target| matches!(target.room, NodeRoom::Cache(_))) {
            return Ok(None);
        }
        let OutputTarget { state, room } = self.take(index)?;
        let (bytes, expected) = match room {
            NodeRoom::Cache(memory) => (memory.bytes, byte_count(ty, dims)?),
            NodeRoom::None | NodeRoom::Free(_) => return Ok(None),
        };
        if bytes.len() != expected {
            return Err(OpError::Length {
                ty,
                dims: dims.into(),
                found: bytes.len(),
                expected,
            });
        }
        state.set(ty, dims, Memory::Buffer);
        Ok(Some(bytes))
    }

    /// Memory for intermediate results, of unspecified content, gone when the run ends.
    /// There is one per run: ask once, for the sum of what is needed.
    pub fn scratch<T: Element>(&mut self, len: usize) -> Result<&'a mut [T], OpError> {
        let bytes = byte_count(T::TYPE, &[len])?;
        let buffer = self
            .scratch
            .take()
            .ok_or_else(|| OpError::Message("scratch memory was asked for twice".into()))?;
        // What is kept counts for whoever uses it, or serves another where that is too much.
        let kept = Arc::get_mut(buffer).filter(|kept| kept.capacity() >= bytes);
        if kept.is_none_or(|kept| kept.charge_entered().is_err()) {
            let fresh = self.pool.take(bytes)?;
            self.pool.give(std::mem::replace(buffer, fresh));
        }
        let memory = Arc::get_mut(buffer).and_then(|buffer| buffer.as_uninit().get_mut(..bytes));
        let Some(memory) = memory else {
            return Err(OpError::OutOfMemory { bytes });
        };
        // SAFETY: `bytes` bytes of an `AlignedBytes`, which is aligned for every element
        // and always initialised; every bit pattern is a `T`; borrowed exclusively for 'a.
        Ok(unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), len) })
    }
}
