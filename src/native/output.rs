//! Memory for results: recycled buffers, or room of the caller, behind [`OutSlice`].

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use super::element::{Element, ElementType};
use super::ending;
use super::operator::OpError;
use super::strings::Strings;
use super::tensor::{Dims, Tensor, byte_count, element_count};
use super::value::Value;
use super::workers::Workers;
use crate::component::{AlignedBytes, MemoryAccount};

/// Buffers that no value uses, kept for the next one of about their size.
#[derive(Default)]
pub(super) struct Pool {
    /// Each is the only holder of its buffer.
    free: Vec<Arc<AlignedBytes>>,
}

impl Pool {
    /// A buffer of `bytes` bytes of unspecified content, which nobody else holds.
    ///
    /// Takes the smallest free one that is large enough and not far too large, so that a
    /// small value does not keep a large buffer from a large one. Where none is, a fresh one
    /// replaces the largest that is too small: values that grow from run to run (a KV
    /// cache) must not leave a trail of buffers behind. Each replacement is larger than what
    /// it replaces, so the same run repeated soon finds all it needs. A run whose memory counts takes
    /// none that is larger than a fresh one: what it may have does not depend on the runs before it.
    pub(super) fn take(&mut self, bytes: usize) -> Result<Arc<AlignedBytes>, OpError> {
        let fresh = with_slack(bytes);
        let at_most = match MemoryAccount::is_entered() {
            true => fresh,
            false => bytes.saturating_mul(4).max(64 << 10),
        };
        let mut best: Option<(usize, usize)> = None;
        let mut too_small: Option<(usize, usize)> = None;
        for (index, buffer) in self.free.iter().enumerate() {
            let capacity = buffer.capacity();
            if capacity == bytes {
                best = Some((index, capacity));
                break;
            }
            if (bytes..=at_most).contains(&capacity) {
                if best.is_none_or(|(_, best)| capacity < best) {
                    best = Some((index, capacity));
                }
            } else if capacity < bytes && too_small.is_none_or(|(_, largest)| capacity > largest) {
                too_small = Some((index, capacity));
            }
        }
        if let Some((index, _)) = best {
            let mut buffer = self.free.swap_remove(index);
            if let Some(memory) = Arc::get_mut(&mut buffer).filter(|memory| memory.capacity() >= bytes) {
                if memory.charge_entered().is_ok() {
                    memory.set_len(bytes);
                    return Ok(buffer);
                }
                self.free.push(buffer);
                return Err(OpError::OutOfMemory { bytes });
            }
        }
        if let Some((index, _)) = too_small.filter(|_| best.is_none()) {
            self.free.swap_remove(index);
        }
        let refused = OpError::OutOfMemory { bytes };
        let mut fresh = AlignedBytes::try_zeroed(fresh).map_err(|_| refused.clone())?;
        match fresh.set_len(bytes) {
            true => Ok(Arc::new(fresh)),
            false => Err(refused),
        }
    }

    /// A tensor in a buffer from here: `write` gets its bytes, of unspecified content, and
    /// writes them all.
    pub(super) fn tensor(
        &mut self,
        ty: ElementType,
        dims: &[usize],
        write: impl FnOnce(&mut [u8]),
    ) -> Result<Tensor, OpError> {
        let bytes = byte_count(ty, dims)?;
        let mut buffer = self.take(bytes)?;
        write(Arc::get_mut(&mut buffer).ok_or(OpError::OutOfMemory { bytes })?);
        Tensor::from_heap(ty, dims.into(), buffer)
    }

    /// Takes a buffer back if nobody else holds it.
    pub(super) fn give(&mut self, mut buffer: Arc<AlignedBytes>) {
        if let Some(memory) = Arc::get_mut(&mut buffer).filter(|memory| memory.capacity() > 0) {
            memory.uncharge();
            self.free.push(buffer);
        }
    }
}

/// A size rounded up by at most an eighth, so that a value that grows by a little each run
/// does not need a new buffer each time.
fn with_slack(bytes: usize) -> usize {
    let step = bytes
        .checked_ilog2()
        .map_or(1, |log| 1usize << log.saturating_sub(3));
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

/// Where the result of a node's output is.
#[derive(Default)]
pub(super) enum Memory {
    /// The kernel has not asked for it.
    #[default]
    Pending,
    /// The first bytes of the caller's room.
    Room,
    /// The node's past in the caller's cache, and the rows behind it.
    Cache,
    /// The node's past in the caller's buffer, overwritten in part.
    Buffer,
    Heap(Arc<AlignedBytes>),
    Strings(Strings),
    Value(Value),
    /// The elements of the node's input of this index.
    SameAsInput(usize),
}

/// What a kernel did about one output; read by the executor after the run.
#[derive(Default)]
pub(super) struct OutputState {
    pub(super) ty: Option<ElementType>,
    pub(super) dims: Dims,
    pub(super) memory: Memory,
    /// Elements the kernel must write, and those that it is known to have written.
    expected: usize,
    written: usize,
}

impl OutputState {
    pub(super) fn is_written(&self) -> bool {
        !matches!(self.memory, Memory::Pending) && self.written == self.expected
    }

    /// The output as a value of its own, when its memory is; leaves no dims.
    pub(super) fn value(&mut self, memory: Memory) -> Result<Value, OpError> {
        let dims = std::mem::take(&mut self.dims);
        let none = || OpError::Message("an output has no memory of its own".into());
        match memory {
            Memory::Heap(buffer) => {
                let ty = self.ty.ok_or_else(none)?;
                Ok(Tensor::from_heap(ty, dims, buffer)?.into())
            }
            Memory::Strings(strings) => Ok(Tensor::of_strings(&dims, strings)?.into()),
            Memory::Value(value) => Ok(value),
            Memory::Pending | Memory::Room | Memory::Cache | Memory::Buffer | Memory::SameAsInput(_) => {
                Err(none())
            }
        }
    }

    /// The bytes of a room that the kernel has filled for this output.
    pub(super) fn filled_room<'e>(&self, room: &'e mut [MaybeUninit<u8>]) -> Option<&'e [u8]> {
        let bytes = byte_count(self.ty?, &self.dims).ok()?;
        if !matches!(self.memory, Memory::Room) || !self.is_written() {
            return None;
        }
        let filled = room.get(..bytes)?;
        // SAFETY: the executor passes the room that it gave the kernel for this output. All
        // its elements have been written (`is_written`), and an `Element` has no padding,
        // so `bytes` bytes are initialised; they stay borrowed for 'e.
        Some(unsafe { &*(std::ptr::from_ref(filled) as *const [u8]) })
    }

    pub(super) fn set(&mut self, ty: ElementType, dims: &[usize], memory: Memory) {
        self.ty = Some(ty);
        self.dims.clear();
        self.dims.extend_from_slice(dims);
        self.memory = memory;
        self.expected = 0;
        self.written = 0;
    }

    pub(super) fn set_value(&mut self, value: Value) {
        self.ty = value.view().element_type();
        self.dims.clear();
        if let Value::Tensor(tensor) = &value {
            self.dims.extend_from_slice(tensor.dims());
        }
        self.memory = Memory::Value(value);
        self.expected = 0;
        self.written = 0;
    }
}

/// Room of the caller for an output of a node.
#[derive(Debug, Default)]
pub(super) enum NodeRoom<'a> {
    #[default]
    None,
    Free(&'a mut [MaybeUninit<u8>]),
    Cache(CacheMemory<'a>),
}

impl NodeRoom<'_> {
    pub(super) fn lend(&mut self) -> NodeRoom<'_> {
        match self {
            NodeRoom::None => NodeRoom::None,
            NodeRoom::Free(memory) => NodeRoom::Free(memory),
            NodeRoom::Cache(CacheMemory { bytes, rows }) => {
                NodeRoom::Cache(CacheMemory { bytes, rows: *rows })
            }
        }
    }
}

/// Memory that holds an input of a node, with room for rows behind it.
#[derive(Debug)]
pub(super) struct CacheMemory<'a> {
    /// Elements of [batch, heads, rows, width], dense.
    pub(super) bytes: &'a mut [u8],
    /// As many as there is memory for.
    pub(super) rows: usize,
}

/// An output that a kernel has not asked for yet.
pub(super) struct OutputTarget<'a> {
    pub(super) state: &'a mut OutputState,
    pub(super) room: NodeRoom<'a>,
}

impl<'a> OutputTarget<'a> {
    /// Memory for `dims` elements of `ty`, handed out as elements of `T`, which has its size.
    pub(super) fn open<T: Element>(
        self,
        ty: ElementType,
        dims: &[usize],
        pool: &mut Pool,
    ) -> Result<OutSlice<'a, T>, OpError> {
        let bytes = byte_count(ty, dims)?;
        let count = bytes / size_of::<T>();
        let OutputTarget { state, room } = self;
        let fitting = match room {
            NodeRoom::Free(room) if room.as_ptr().addr().is_multiple_of(ty.size().unwrap_or(1)) => {
                room.get_mut(..bytes)
            }
            _ => None,
        };
        let (memory, initialised) = match fitting {
            Some(room) => {
                state.set(ty, dims, Memory::Room);
                (room, false)
            }
            None => {
                state.set(ty, dims, Memory::Heap(pool.take(bytes)?));
                let heap = match &mut state.memory {
                    Memory::Heap(buffer) => Arc::get_mut(buffer),
                    _ => None,
                };
                match heap.and_then(|buffer| buffer.as_uninit().get_mut(..bytes)) {
                    Some(heap) => (heap, true),
                    None => return Err(OpError::OutOfMemory { bytes }),
                }
            }
        };
        state.expected = count;
        // SAFETY: `memory` is `bytes` bytes, borrowed exclusively for 'a; `count` elements
        // of `T` are no more. It is aligned for `T`: heap buffers to `AlignedBytes::ALIGN`,
        // room to the size of an element of `ty`, which is that of `T` or a multiple of it
        // (callers pass `T::TYPE`, or `u8`), and `Element` bounds the alignment of `T` by
        // its size. `MaybeUninit<T>` makes no claim about content.
        let elements = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), count) };
        Ok(OutSlice {
            elements,
            written: &mut state.written,
            initialised,
        })
    }
}

/// Bytes of room of the caller that are filled with zeros and then written, while they are in a
/// near cache.
const PIECE: usize = 64 << 10;

/// Bytes that are filled with zeros between two looks whether to go on.
const BETWEEN_LOOKS: usize = 8 << 20;

/// Room for the elements of an output, which may be uninitialised memory of the caller.
///
/// The methods keep count of what has been written; a run that leaves an output short is an
/// error. `T` is the element type, or `u8` for an output asked for as bytes.
#[derive(Debug)]
pub struct OutSlice<'a, T> {
    /// If `initialised`, all of them hold a `T`.
    elements: &'a mut [MaybeUninit<T>],
    /// The first `written` elements hold a `T` that the kernel stored.
    written: &'a mut usize,
    initialised: bool,
}

impl<'a, T: Element> OutSlice<'a, T> {
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// The elements, of unspecified content, for a kernel that overwrites them all.
    /// (Room of the caller is filled with zeros first; a recycled buffer costs nothing.)
    pub fn into_mut(self) -> &'a mut [T] {
        match self.initialised {
            true => self.into_initialised(),
            false => self.zeroed(),
        }
    }

    /// The elements, all bytes zero.
    pub fn zeroed(self) -> &'a mut [T] {
        let each = BETWEEN_LOOKS / size_of::<T>();
        for (index, piece) in self.elements.chunks_mut(each).enumerate() {
            if index > 0 {
                ending::look();
            }
            // SAFETY: the pointer is valid for writes of that many elements.
            unsafe { std::ptr::write_bytes(piece.as_mut_ptr(), 0, piece.len()) };
        }
        // All-zero bytes are an `Element`: every bit pattern is.
        self.into_initialised()
    }

    /// Elements for each part of [`fill`](Self::fill), where all that is done is to copy them:
    /// whole ones of `unit`, which may be as long as all of them.
    pub fn copy_chunk(&self, workers: &Workers, unit: usize) -> usize {
        let least = PIECE / size_of::<T>();
        let chunk = workers.chunk(self.len(), 1).max(least);
        chunk.checked_next_multiple_of(unit.max(1)).unwrap_or(usize::MAX)
    }

    /// Elements for each part of [`split`](Self::split), where each is worth `work` simple
    /// operations. At least 1.
    pub fn chunk(&self, workers: &Workers, work: usize) -> usize {
        let chunk = workers.chunk(self.len(), work);
        match self.initialised {
            true => chunk,
            false => chunk.min(PIECE / size_of::<T>()),
        }
    }

    /// Writes all elements on several threads: `part` gets pieces of `chunk` elements (the last
    /// may be shorter), of unspecified content, after the position of their first, and overwrites
    /// them. (Room of the caller is filled with zeros piece by piece, just before.)
    pub fn split(self, workers: &Workers, chunk: usize, part: impl Fn(usize, &mut [T]) + Sync) {
        let OutSlice {
            elements,
            written,
            initialised,
        } = self;
        let len = elements.len();
        workers.split_mut(elements, chunk, |index, piece| {
            if !initialised {
                // SAFETY: the pointer is valid for writes of that many elements.
                unsafe { std::ptr::write_bytes(piece.as_mut_ptr(), 0, piece.len()) };
            }
            // SAFETY: every element of the piece holds a `T`, as in `into_initialised`.
            part(index * chunk, unsafe {
                &mut *(std::ptr::from_mut(piece) as *mut [T])
            });
        });
        *written = len;
    }

    /// Writes all elements on several threads: `part` gets ranges of `chunk` elements (the last may
    /// be shorter), and writes them from the first on. What it leaves out is zeros.
    pub fn fill(
        self,
        workers: &Workers,
        chunk: usize,
        part: impl Fn(Range<usize>, &mut Filling<'_, T>) + Sync,
    ) {
        let OutSlice {
            elements, written, ..
        } = self;
        let len = elements.len();
        workers.split_mut(elements, chunk, |index, piece| {
            let first = index * chunk;
            let mut filling = Filling { rest: piece };
            part(first..first + filling.rest.len(), &mut filling);
            let rest = filling.rest;
            // SAFETY: the pointer is valid for writes of that many elements. All-zero bytes are an
            // `Element`.
            unsafe { std::ptr::write_bytes(rest.as_mut_ptr(), 0, rest.len()) };
        });
        *written = len;
    }

    /// Only when every element holds a `T`.
    fn into_initialised(self) -> &'a mut [T] {
        *self.written = self.elements.len();
        // SAFETY: every element holds a `T` (a recycled buffer always does, and `zeroed` has
        // just written them), and `MaybeUninit<T>` has the layout of `T`.
        unsafe { &mut *(std::ptr::from_mut(self.elements) as *mut [T]) }
    }

    /// Writes all elements; `source` has as many.
    pub fn copy_from(mut self, source: &[T]) -> Result<(), OpError> {
        self.extend_from_slice(source)
    }

    /// Writes element after element: what `value` gives for index 0, 1, ...
    pub fn fill_with(self, mut value: impl FnMut(usize) -> T) {
        let len = self.elements.len();
        for (piece, elements) in ending::pieces(len).zip(self.elements.chunks_mut(ending::PIECE)) {
            for (index, element) in piece.zip(elements) {
                element.write(value(index));
            }
        }
        *self.written = self.elements.len();
    }

    /// Writes the next elements from an iterator, which has no more than there is room for.
    pub fn extend(&mut self, values: impl IntoIterator<Item = T>) -> Result<(), OpError> {
        let mut rest = self.elements[*self.written..].iter_mut();
        for value in ending::counted(values) {
            let Some(element) = rest.next() else {
                return Err(too_many(self.len()));
            };
            element.write(value);
            *self.written += 1;
        }
        Ok(())
    }

    /// Writes the next elements: for kernels that gather pieces in order.
    pub fn extend_from_slice(&mut self, source: &[T]) -> Result<(), OpError> {
        let total = self.len();
        let from = *self.written;
        ending::count(source.len());
        let target = from
            .checked_add(source.len())
            .and_then(|end| self.elements.get_mut(from..end))
            .ok_or_else(|| too_many(total))?;
        // SAFETY: `MaybeUninit<T>` has the layout of `T` and makes no claim about content.
        let source = unsafe { &*(std::ptr::from_ref(source) as *const [MaybeUninit<T>]) };
        target.copy_from_slice(source);
        *self.written += source.len();
        Ok(())
    }

    /// The elements as they are, for a kernel that writes them in its own order without
    /// paying for zeros first. Follow with [`assume_written`](Self::assume_written).
    ///
    /// # Safety
    /// Only initialised elements are stored: a recycled buffer stays initialised.
    pub unsafe fn as_uninit(&mut self) -> &mut [MaybeUninit<T>] {
        self.elements
    }

    /// Declares the output complete.
    ///
    /// # Safety
    /// Every element has been written, through [`as_uninit`](Self::as_uninit) or otherwise.
    pub unsafe fn assume_written(self) {
        *self.written = self.elements.len();
    }
}

/// The elements of a part of [`OutSlice::fill`] that are not written yet.
#[derive(Debug)]
pub struct Filling<'a, T> {
    rest: &'a mut [MaybeUninit<T>],
}

impl<T: Element> Filling<'_, T> {
    /// Writes the next elements; those for which there is no room are left out.
    #[inline]
    pub fn extend_from_slice(&mut self, source: &[T]) {
        let len = source.len().min(self.rest.len());
        let (to, rest) = std::mem::take(&mut self.rest).split_at_mut(len);
        self.rest = rest;
        // SAFETY: `MaybeUninit<T>` has the layout of `T` and makes no claim about content.
        let source = unsafe { &*(std::ptr::from_ref(&source[..len]) as *const [MaybeUninit<T>]) };
        to.copy_from_slice(source);
    }
}

fn too_many(total: usize) -> OpError {
    OpError::Message(format!(
        "more than the {total} elements of the output were written"
    ))
}

/// Checks that strings are as many as dims say.
pub(super) fn check_strings(dims: &[usize], strings: &[String]) -> Result<(), OpError> {
    let expected = element_count(dims)?;
    if expected == strings.len() {
        return Ok(());
    }
    Err(OpError::Length {
        ty: ElementType::String,
        dims: dims.into(),
        found: strings.len(),
        expected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::EnteredAccount;

    #[test]
    fn what_a_limit_allows_does_not_depend_on_what_is_free() {
        let mut pool = Pool::default();
        let large = pool.take(4096).unwrap();
        pool.give(large);
        let account = MemoryAccount::new("the run", "memory_bytes", 2048);
        let _entered = account.enter();
        let small = pool.take(1024).unwrap();
        assert_eq!((small.len(), account.used()), (1024, 1024));
        // One of its size serves, where there is room.
        pool.give(small);
        let again = pool.take(1020).unwrap();
        assert_eq!(
            (again.len(), again.capacity(), account.used()),
            (1020, 1024, 1024)
        );
        for _ in 0..2 {
            let refused = pool.take(1025);
            assert!(matches!(refused, Err(OpError::OutOfMemory { bytes: 1025 })));
        }
        pool.give(again);
        let _outside = EnteredAccount::new(None);
        assert_eq!(pool.take(1024).unwrap().capacity(), 1024);
        assert_eq!(pool.take(1024).unwrap().capacity(), 4096);
    }
}
