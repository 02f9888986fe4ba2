use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::component::{
    AlignedBytes, CacheRoom, DataType, OutputResult, Shape, TensorError, TensorView, byte_len, copy_rows,
    count_cache_write, display_shape, room_len, row_bytes,
};
use crate::package::Buffer;

/// A KV cache that its component makes longer where it lies, or that is a buffer of which past
/// and present are all.
///
/// A step writes behind the rows that there are, and only when the whole step is done does
/// [`commit`](Self::commit) count what it wrote: a step that fails leaves no trace, and to go
/// back is to count fewer rows.
///
/// A [`fork`](Self::fork) has the same memory, which is only read until one of both is to be
/// written: that one then takes a copy of its rows.
pub(super) struct Cache {
    dtype: DataType,
    /// Of the rows that there are, along `axis`.
    shape: Shape,
    axis: usize,
    /// Rows that there is memory for.
    capacity: usize,
    /// `shape`, but `capacity` rows. Forks have it too.
    memory: Arc<AlignedBytes>,
    /// Rows behind those that there are hold what is to be zeros.
    stale: bool,
    buffer: Option<Buffer>,
    /// `shape` with `capacity` rows: what a buffer is for its component.
    full_shape: Shape,
    /// Where the component writes the present of a buffer that it cannot overwrite.
    other: Arc<AlignedBytes>,
    /// What the step under way has left.
    next: Option<Next>,
    /// The step under way may have written rows behind those that there are.
    is_lent: bool,
    /// The rows without the gaps between the blocks, for whoever looks at them.
    dense: OnceLock<AlignedBytes>,
}

enum Next {
    /// Rows behind those that there are, which make it this shape.
    Longer(Shape),
    /// The same in the other buffer.
    Turned(Shape),
    Other(Box<Cache>),
}

/// A cache for a run of its component.
pub(super) enum Lent<'c> {
    /// To be made longer or overwritten where it lies.
    Room(CacheRoom<'c>),
    /// To be read in one buffer and written to the other, both of this shape.
    InTurn {
        past: TensorView<'c>,
        shape: &'c [i64],
        room: &'c mut [MaybeUninit<u8>],
    },
}

impl Cache {
    /// Without rows, and without memory for any.
    pub fn new(dtype: DataType, empty: &[i64], axis: usize, buffer: Option<Buffer>) -> Self {
        Cache {
            dtype,
            shape: empty.into(),
            axis,
            capacity: 0,
            memory: Arc::new(AlignedBytes::EMPTY),
            stale: false,
            buffer,
            full_shape: empty.into(),
            other: Arc::new(AlignedBytes::EMPTY),
            next: None,
            is_lent: false,
            dense: OnceLock::new(),
        }
    }

    /// A copy of a tensor, with room for `capacity` rows.
    fn of_tensor(tensor: TensorView<'_>, axis: usize, capacity: usize) -> Result<Self, TensorError> {
        let mut cache = Cache::new(tensor.dtype(), tensor.shape(), axis, None);
        cache.capacity = capacity;
        cache.note_capacity();
        let mut memory = AlignedBytes::try_zeroed(room_len(cache.dtype, &cache.shape, axis, capacity)?)?;
        let (row, rows) = (cache.row_bytes(), cache.rows());
        copy_rows(row, rows, (tensor.bytes(), rows), (&mut memory, capacity));
        cache.memory = Arc::new(memory);
        count_cache_write(tensor.bytes().len());
        Ok(cache)
    }

    /// A cache of the same rows, and for now in the same memory. Between steps only.
    pub fn fork(&self) -> Cache {
        Cache {
            dtype: self.dtype,
            shape: self.shape.clone(),
            axis: self.axis,
            capacity: self.capacity,
            memory: self.memory.clone(),
            stale: self.stale,
            buffer: self.buffer,
            full_shape: self.full_shape.clone(),
            other: Arc::new(AlignedBytes::EMPTY),
            next: None,
            is_lent: false,
            dense: OnceLock::new(),
        }
    }

    /// A copy of the rows without memory for more, unless it is a buffer of a fixed size.
    pub fn compact(&self) -> Result<Cache, TensorError> {
        let rows = self.rows();
        let mut compact = Cache::new(self.dtype, &self.shape, self.axis, self.buffer);
        compact.truncate(0);
        compact.reserve(rows, rows)?;
        let (row, capacity) = (compact.row_bytes(), compact.capacity);
        if let Some(memory) = Arc::get_mut(&mut compact.memory) {
            copy_rows(row, rows, (&self.memory, self.capacity), (memory, capacity));
        }
        compact.shape.clone_from(&self.shape);
        Ok(compact)
    }

    /// Makes sure that nobody else has the memory, and that a buffer is zeros behind its rows.
    fn own(&mut self) -> Result<(), TensorError> {
        if Arc::get_mut(&mut self.memory).is_some() {
            if std::mem::take(&mut self.stale) {
                self.clear_rows(self.rows()..self.capacity);
            }
            return Ok(());
        }
        let mut memory = AlignedBytes::try_zeroed(self.memory.len())?;
        let (row, rows) = (self.row_bytes(), self.rows());
        copy_rows(
            row,
            rows,
            (&self.memory, self.capacity),
            (&mut memory, self.capacity),
        );
        count_cache_write(memory.len() / self.capacity.max(1) * rows);
        self.memory = Arc::new(memory);
        self.stale = false;
        Ok(())
    }

    /// What its component sees of it: the rows that there are, or all of a buffer.
    pub fn shape(&self) -> &[i64] {
        match self.buffer {
            Some(_) => &self.full_shape,
            None => &self.shape,
        }
    }

    /// What its component makes of it with `more` rows.
    pub fn next_shape(&self, more: usize) -> Shape {
        match self.buffer {
            Some(_) => self.full_shape.clone(),
            None => self.longer(more),
        }
    }

    /// Rows, where their number cannot grow.
    pub fn most_rows(&self) -> Option<usize> {
        self.buffer?.capacity
    }

    fn note_capacity(&mut self) {
        self.full_shape = self.shape.clone();
        if let (Some(rows), Ok(capacity)) = (self.full_shape.get_mut(self.axis), i64::try_from(self.capacity))
        {
            *rows = capacity;
        }
    }

    /// The shape with `more` rows.
    fn longer(&self, more: usize) -> Shape {
        let mut shape = self.shape.clone();
        if let (Some(rows), Ok(more)) = (shape.get_mut(self.axis), i64::try_from(more)) {
            *rows = rows.saturating_add(more);
        }
        shape
    }

    pub fn rows(&self) -> usize {
        let rows = self.shape.get(self.axis).copied().unwrap_or(0);
        usize::try_from(rows).unwrap_or(0)
    }

    fn row_bytes(&self) -> usize {
        row_bytes(self.dtype, &self.shape, self.axis)
    }

    /// Makes sure that there is memory for `rows` rows; if there is not, it will be for `spare`.
    pub fn reserve(&mut self, rows: usize, spare: usize) -> Result<(), TensorError> {
        if rows <= self.capacity {
            return Ok(());
        }
        let spare = self.most_rows().unwrap_or(spare).max(rows);
        let mut memory = AlignedBytes::try_zeroed(room_len(self.dtype, &self.shape, self.axis, spare)?)?;
        let (row, used) = (self.row_bytes(), self.rows());
        copy_rows(row, used, (&self.memory, self.capacity), (&mut memory, spare));
        count_cache_write(memory.len() / spare.max(1) * used);
        self.memory = Arc::new(memory);
        self.stale = false;
        self.other = Arc::new(AlignedBytes::EMPTY);
        self.capacity = spare;
        self.note_capacity();
        Ok(())
    }

    /// Notes rows that another component has made, which take the place of all that there are; with
    /// memory for `spare` rows.
    pub fn begin(&mut self, rows: TensorView<'_>, spare: usize) -> Result<(), TensorError> {
        let mut begun = Cache::new(self.dtype, rows.shape(), self.axis, self.buffer);
        let count = begun.rows();
        begun.truncate(0);
        begun.reserve(count, spare)?;
        begun.own()?;
        begun.write_rows(rows.bytes(), count);
        begun.shape = rows.shape().into();
        self.next = Some(Next::Other(Box::new(begun)));
        Ok(())
    }

    /// Copies rows to memory that is [owned](Self::own) and has room for them.
    fn write_rows(&mut self, rows: &[u8], count: usize) {
        let (row, capacity) = (self.row_bytes(), self.capacity);
        if let Some(memory) = Arc::get_mut(&mut self.memory) {
            copy_rows(row, count, (rows, count), (memory, capacity));
            count_cache_write(rows.len());
        }
    }

    /// The memory, for a run of the component that reads it as its input `past`.
    pub fn lend<'c>(&'c mut self, past: &'c str) -> Result<Lent<'c>, TensorError> {
        let in_turn = matches!(self.buffer, Some(Buffer { shared: false, .. }));
        // What is only read may be others' too.
        if !in_turn || self.stale {
            self.own()?;
        }
        if in_turn {
            let len = self.memory.len();
            if self.other.len() != len || Arc::get_mut(&mut self.other).is_none() {
                self.other = Arc::new(AlignedBytes::try_zeroed(len)?);
            }
        }
        self.is_lent = true;
        let dtype = self.dtype;
        let taken = |memory: &'c mut Arc<AlignedBytes>| -> Result<&'c mut AlignedBytes, TensorError> {
            let bytes = memory.len() as u64;
            Arc::get_mut(memory).ok_or(TensorError::OutOfMemory { bytes })
        };
        let room = match self.buffer {
            None => {
                let memory = taken(&mut self.memory)?;
                CacheRoom::new(past, dtype, &self.shape, self.axis, self.capacity, memory)
            }
            Some(Buffer { shared: true, .. }) => {
                CacheRoom::whole(past, dtype, &self.full_shape, taken(&mut self.memory)?)
            }
            Some(Buffer { shared: false, .. }) => {
                return Ok(Lent::InTurn {
                    past: TensorView::new(dtype, &self.full_shape, &self.memory)?,
                    shape: &self.full_shape,
                    room: taken(&mut self.other)?.as_uninit(),
                });
            }
        };
        room.map(Lent::Room)
    }

    /// Notes what a run over `more` rows left.
    pub fn take_result(&mut self, result: OutputResult, more: usize) -> Result<(), TensorError> {
        self.next = match result {
            OutputResult::InCache { .. } => Some(Next::Longer(self.longer(more))),
            OutputResult::InRoom { .. } if self.buffer.is_some() => Some(Next::Turned(self.longer(more))),
            OutputResult::Owned(tensor) if self.buffer.is_some() => {
                match Arc::get_mut(&mut self.other) {
                    Some(other) if other.len() == tensor.bytes().len() => {
                        other.copy_from_slice(tensor.bytes());
                    }
                    _ => self.other = Arc::new(AlignedBytes::try_from_slice(tensor.bytes())?),
                }
                count_cache_write(tensor.bytes().len());
                Some(Next::Turned(self.longer(more)))
            }
            OutputResult::Owned(tensor) => {
                let other = Cache::of_tensor(tensor.view(), self.axis, self.capacity)?;
                Some(Next::Other(Box::new(other)))
            }
            // There was no other room.
            OutputResult::Pending | OutputResult::InRoom { .. } => None,
        };
        Ok(())
    }

    pub fn commit(&mut self) {
        self.is_lent = false;
        match self.next.take() {
            None => return,
            Some(Next::Longer(shape)) => self.shape = shape,
            Some(Next::Turned(shape)) => {
                std::mem::swap(&mut self.memory, &mut self.other);
                self.shape = shape;
            }
            Some(Next::Other(other)) => *self = *other,
        }
        self.dense.take();
    }

    pub fn roll_back(&mut self) {
        self.next = None;
        if std::mem::take(&mut self.is_lent) {
            self.clear_rows(self.rows()..self.capacity);
        }
    }

    /// Makes rows of a buffer zeros. A component reads all of a buffer and masks what is behind the
    /// tokens; a NaN there would get through the mask, being a NaN times 0 too.
    fn clear_rows(&mut self, rows: Range<usize>) {
        if self.buffer.is_none() || rows.is_empty() {
            return;
        }
        let row = self.row_bytes();
        let Some(memory) = Arc::get_mut(&mut self.memory) else {
            self.stale = true;
            return;
        };
        for block in memory.chunks_exact_mut((row * self.capacity).max(1)) {
            if let Some(rows) = block.get_mut(rows.start * row..rows.end * row) {
                rows.fill(0);
            }
        }
    }

    /// Type and shape of the rows that there are.
    pub fn rows_shape(&self) -> (DataType, &[i64]) {
        (self.dtype, &self.shape)
    }

    /// The rows that there are, block by block: together they are the dense tensor.
    pub fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        let (row, rows) = (self.row_bytes(), self.rows());
        let blocks = self.memory.chunks_exact((row * self.capacity).max(1));
        blocks.filter_map(move |block| block.get(..row * rows))
    }

    /// How many rows a tensor is of this cache, or why it is none of it.
    pub fn fits(&self, tensor: TensorView<'_>) -> Result<usize, String> {
        let mut expected = self.shape.clone();
        let rows = tensor.shape().get(self.axis).copied().unwrap_or(-1);
        if let Some(dim) = expected.get_mut(self.axis) {
            *dim = rows;
        }
        if tensor.dtype() != self.dtype || tensor.shape() != expected.as_slice() {
            return Err(format!(
                "is a cache of {} {}, and this pipeline's is of {} {}",
                tensor.dtype(),
                display_shape(tensor.shape()),
                self.dtype,
                display_shape(&self.shape)
            ));
        }
        let rows = usize::try_from(rows).unwrap_or(0);
        match self.most_rows() {
            Some(most) if rows > most => Err(format!("{rows} rows, for a buffer of {most}")),
            _ => Ok(rows),
        }
    }

    /// Takes rows that [fit](Self::fits), in the place of all that there are; with memory for `spare`.
    pub fn restore(&mut self, rows: TensorView<'_>, spare: usize) -> Result<(), TensorError> {
        let mut restored = Cache::new(self.dtype, rows.shape(), self.axis, self.buffer);
        let count = restored.rows();
        restored.truncate(0);
        if count > 0 {
            restored.reserve(count, spare)?;
            restored.write_rows(rows.bytes(), count);
        }
        restored.shape = rows.shape().into();
        *self = restored;
        Ok(())
    }

    /// Keeps the first `len` rows.
    pub fn truncate(&mut self, len: usize) {
        let rows = self.rows().min(len);
        self.clear_rows(rows..self.rows());
        if let (Some(dim), Ok(rows)) = (self.shape.get_mut(self.axis), i64::try_from(rows)) {
            *dim = rows;
        }
        self.dense.take();
    }

    /// The rows that there are, as a tensor.
    pub fn view(&self) -> Result<TensorView<'_>, TensorError> {
        let rows = self.rows();
        if rows == self.capacity {
            return TensorView::new(self.dtype, &self.shape, &self.memory);
        }
        let dense = match self.dense.get() {
            Some(dense) => dense,
            None => {
                let mut dense = AlignedBytes::try_zeroed(byte_len(self.dtype, &self.shape)?)?;
                copy_rows(
                    self.row_bytes(),
                    rows,
                    (&self.memory, self.capacity),
                    (&mut dense, rows),
                );
                self.dense.get_or_init(|| dense)
            }
        };
        TensorView::new(self.dtype, &self.shape, dense)
    }

    /// Bytes of memory held, in use or not, what forks have too included.
    pub fn held_bytes(&self) -> u64 {
        let dense = self.dense.get().map_or(0, |dense| dense.capacity());
        (self.memory.capacity() + self.other.capacity() + dense) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::ComponentTensor;

    /// A cache of two heads and rows of one byte.
    fn cache() -> Cache {
        Cache::new(DataType::Uint8, &[1, 2, 0, 1], 2, None)
    }

    /// Writes rows as a component does: those of head 1 are ten more.
    fn append(cache: &mut Cache, rows: &[u8]) {
        let shape = cache.longer(rows.len());
        let first = cache.rows();
        cache.reserve(first + rows.len(), 4).unwrap();
        let Lent::Room(mut room) = cache.lend("past").unwrap() else {
            panic!("it is no buffer");
        };
        let capacity = room.capacity();
        for (head, more) in [(0, 0), (1, 10)] {
            for (row, to) in rows.iter().zip(&mut room.memory()[head * capacity + first..]) {
                *to = row + more;
            }
        }
        let dtype = DataType::Uint8;
        cache
            .take_result(OutputResult::InCache { dtype, shape }, rows.len())
            .unwrap();
    }

    #[test]
    fn rows_count_once_they_are_committed() {
        let mut cache = cache();
        append(&mut cache, &[1, 2, 3]);
        assert_eq!(cache.view().unwrap().shape(), [1, 2, 0, 1]);
        cache.roll_back();
        append(&mut cache, &[4, 5]);
        cache.commit();
        assert_eq!(cache.view().unwrap().bytes(), [4, 5, 14, 15]);
        assert_eq!(cache.view().unwrap().shape(), [1, 2, 2, 1]);
        // Beyond the memory for four rows.
        append(&mut cache, &[6, 7, 8]);
        assert_eq!(cache.view().unwrap().bytes(), [4, 5, 14, 15]);
        cache.commit();
        assert_eq!(cache.view().unwrap().bytes(), [4, 5, 6, 7, 8, 14, 15, 16, 17, 18]);
        assert_eq!(cache.held_bytes(), 10);
        cache.truncate(1);
        assert_eq!(cache.view().unwrap().bytes(), [4, 14]);
        append(&mut cache, &[9]);
        cache.commit();
        assert_eq!(cache.view().unwrap().bytes(), [4, 9, 14, 19]);
        cache.truncate(7);
        cache.truncate(0);
        assert!(cache.view().unwrap().bytes().is_empty());
    }

    #[test]
    fn a_tensor_takes_the_place_of_what_there_was() {
        let mut cache = cache();
        append(&mut cache, &[1]);
        cache.commit();
        cache.reserve(2, 3).unwrap();
        let tensor = ComponentTensor::from_raw(DataType::Uint8, &[1, 2, 2, 1], &[7, 8, 17, 18]).unwrap();
        cache.take_result(OutputResult::Owned(tensor), 1).unwrap();
        assert_eq!(cache.view().unwrap().bytes(), [1, 11]);
        cache.commit();
        assert_eq!(cache.view().unwrap().bytes(), [7, 8, 17, 18]);
        append(&mut cache, &[9]);
        cache.commit();
        assert_eq!(cache.view().unwrap().bytes(), [7, 8, 9, 17, 18, 19]);
    }

    #[test]
    fn room_for_too_few_rows_is_refused() {
        let mut memory = [0; 2];
        let room = CacheRoom::new("past", DataType::Uint8, &[1, 2, 2, 1], 2, 1, &mut memory);
        assert!(matches!(room, Err(TensorError::CacheRoom { .. })));
    }
}
