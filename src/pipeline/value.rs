use crate::component::{
    AlignedBytes, ComponentTensor, DataType, OutputResult, Shape, TensorError, TensorView, byte_len,
};

use super::convert::convert_floats;

/// A tensor that the pool keeps, with memory that is used again and again.
///
/// Either its bytes are in `room`, or a backend made them and `made` holds them; `room`
/// then waits for the next time.
pub(super) struct Value {
    room: AlignedBytes,
    made: Option<ComponentTensor>,
    dtype: DataType,
    shape: Shape,
    set: bool,
}

impl Default for Value {
    fn default() -> Self {
        Value {
            room: AlignedBytes::EMPTY,
            made: None,
            dtype: DataType::Uint8,
            shape: Shape::new(),
            set: false,
        }
    }
}

impl Value {
    /// Nothing, until it is written.
    pub fn clear(&mut self) {
        self.made = None;
        self.set = false;
    }

    /// A copy of the value.
    pub fn copied(&self) -> Result<Value, TensorError> {
        let mut copy = Value::default();
        if let Some(view) = self.view() {
            copy.take_result(OutputResult::Owned(view.to_tensor()?))?;
        }
        Ok(copy)
    }

    pub fn view(&self) -> Option<TensorView<'_>> {
        if !self.set {
            return None;
        }
        match &self.made {
            Some(tensor) => Some(tensor.view()),
            // `set` is only true when the room's length was made to fit dtype and shape.
            None => TensorView::new(self.dtype, &self.shape, &self.room).ok(),
        }
    }

    /// A value of the same bytes, which both read until either is written anew.
    pub fn fork(&mut self) -> Value {
        if !std::mem::take(&mut self.set) {
            return Value::default();
        }
        let tensor = match self.made.take() {
            Some(tensor) => Some(tensor),
            None => {
                let room = std::mem::replace(&mut self.room, AlignedBytes::EMPTY);
                // While it was set, the room's length was made to fit dtype and shape.
                ComponentTensor::from_bytes(self.dtype, &self.shape, room).ok()
            }
        };
        let Some((own, other)) = tensor.map(ComponentTensor::share) else {
            return Value::default();
        };
        self.made = Some(own);
        self.set = true;
        Value {
            made: Some(other),
            set: true,
            ..Value::default()
        }
    }

    /// The bytes of a value that the loop has written.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        (self.set && self.made.is_none()).then_some(&mut self.room)
    }

    /// Bytes of memory held, in use or not.
    pub fn held_bytes(&self) -> u64 {
        let made = self.made.as_ref().map_or(0, |tensor| tensor.bytes().len());
        (self.room.capacity() + made) as u64
    }

    /// Room for at least `bytes`; `spare` is what to allocate if there is none, so that a
    /// value that grows does not allocate each time. What was there is lost.
    pub fn reserve(&mut self, bytes: usize, spare: usize) -> Result<(), TensorError> {
        if self.room.capacity() < bytes {
            self.clear();
            // The old room goes first: both at once may be too much.
            self.room = AlignedBytes::EMPTY;
            self.room = AlignedBytes::try_zeroed(spare.max(bytes))?;
        }
        Ok(())
    }

    /// The whole room, for an output.
    pub fn room(&mut self) -> &mut [std::mem::MaybeUninit<u8>] {
        self.room.as_uninit()
    }

    /// Takes what a run left: in the room, or in a tensor of its own.
    pub fn take_result(&mut self, result: OutputResult) -> Result<(), TensorError> {
        match result {
            // A value has no cache to give.
            OutputResult::Pending | OutputResult::InCache { .. } => self.clear(),
            OutputResult::Owned(tensor) => {
                self.made = Some(tensor);
                self.set = true;
            }
            OutputResult::InRoom { dtype, shape } => {
                let len = byte_len(dtype, &shape)?;
                self.made = None;
                self.set = self.room.set_len(len);
                self.dtype = dtype;
                self.shape = shape;
            }
        }
        Ok(())
    }

    /// Makes the value a tensor of this type and shape, and gives its bytes to be written.
    pub fn write(&mut self, dtype: DataType, shape: &[i64]) -> Result<&mut [u8], TensorError> {
        let len = byte_len(dtype, shape)?;
        // A value that the loop writes often grows by a token at a time.
        self.reserve(len, len.next_power_of_two())?;
        self.made = None;
        self.set = self.room.set_len(len);
        self.dtype = dtype;
        self.shape.clear();
        self.shape.extend_from_slice(shape);
        Ok(&mut self.room)
    }

    pub fn write_zeros(&mut self, dtype: DataType, shape: &[i64]) -> Result<(), TensorError> {
        self.write(dtype, shape)?.fill(0);
        Ok(())
    }

    pub fn copy_from(&mut self, view: TensorView<'_>) -> Result<(), TensorError> {
        self.write(view.dtype(), view.shape())?
            .copy_from_slice(view.bytes());
        Ok(())
    }

    /// Copies a value as `dtype`: its own, or another one of the float types.
    pub fn convert_from(&mut self, view: TensorView<'_>, dtype: DataType) -> Result<(), TensorError> {
        if view.dtype() == dtype {
            return self.copy_from(view);
        }
        let bytes = self.write(dtype, view.shape())?;
        if !convert_floats(view, dtype, bytes) {
            self.clear();
        }
        Ok(())
    }

    /// Makes sure that [`truncate`](Self::truncate) can not fail: bytes that a backend owns
    /// are copied into our room.
    pub fn own(&mut self) -> Result<(), TensorError> {
        let Some(tensor) = self.made.take() else {
            return Ok(());
        };
        let copied = self.copy_from(tensor.view());
        if copied.is_err() {
            self.made = Some(tensor);
            self.set = true;
        }
        copied
    }

    /// Forgets all but the last row, along the last dim; the other dims become 1.
    pub fn keep_last_row(&mut self) -> Result<(), TensorError> {
        let Some(view) = self.view() else { return Ok(()) };
        let mut shape = Shape::from_slice(view.shape());
        let leading = shape.len().saturating_sub(1);
        let leading = shape.get_mut(..leading).unwrap_or_default();
        if leading.contains(&0) || leading.iter().all(|&dim| dim == 1) {
            return Ok(());
        }
        leading.fill(1);
        let dtype = view.dtype();
        let start = view.bytes().len().saturating_sub(byte_len(dtype, &shape)?);
        match self.made.take() {
            Some(tensor) => {
                let row = TensorView::new(dtype, &shape, tensor.bytes().get(start..).unwrap_or_default())?;
                self.copy_from(row)
            }
            None => {
                self.room.copy_within(start.., 0);
                self.write(dtype, &shape).map(|_| ())
            }
        }
    }

    /// Keeps the first `len` entries along `axis`, closing the gaps in place.
    pub fn truncate(&mut self, axis: usize, len: i64) {
        let Some(&old) = self.shape.get(axis) else { return };
        if !self.set || self.made.is_some() || len >= old || len < 0 {
            return;
        }
        let product = |dims: Option<&[i64]>| -> usize {
            dims.unwrap_or_default()
                .iter()
                .map(|&dim| usize::try_from(dim).unwrap_or(0))
                .product()
        };
        let outer = product(self.shape.get(..axis));
        let inner = product(self.shape.get(axis + 1..)) * self.dtype.size();
        let (Ok(old_rows), Ok(rows)) = (usize::try_from(old), usize::try_from(len)) else {
            return;
        };
        for block in 1..outer {
            let from = block * old_rows * inner;
            self.room
                .copy_within(from..from + rows * inner, block * rows * inner);
        }
        if let Some(dim) = self.shape.get_mut(axis) {
            *dim = len;
        }
        self.set = self.room.set_len(outer * rows * inner);
    }
}

/// A value and the one that a step is making to take its place.
///
/// A step writes `back` and reads what it has written; only when the whole step is done
/// does `back` become `front`. So a step that fails leaves no trace.
#[derive(Default)]
pub(super) struct Slot {
    pub front: Value,
    pub back: Value,
    pub written: bool,
}

impl Slot {
    /// A slot with the same value, between steps.
    pub fn fork(&mut self) -> Slot {
        Slot {
            front: self.front.fork(),
            ..Slot::default()
        }
    }

    /// What a component of the step under way sees.
    pub fn current(&self) -> Option<TensorView<'_>> {
        if self.written {
            self.back.view()
        } else {
            self.front.view()
        }
    }

    pub fn commit(&mut self) {
        if std::mem::take(&mut self.written) {
            std::mem::swap(&mut self.front, &mut self.back);
            // A backend's own memory is given back; our room is kept for the next step.
            self.back.clear();
        }
    }

    pub fn roll_back(&mut self) {
        if std::mem::take(&mut self.written) {
            self.back.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncate_keeps_the_head_of_each_block() {
        let mut value = Value::default();
        // [2 heads, 3 positions, 2]: 0..12
        let bytes: Vec<u8> = (0..12).collect();
        value
            .copy_from(TensorView::new(DataType::Uint8, &[2, 3, 2], &bytes).unwrap())
            .unwrap();
        value.truncate(1, 2);
        let view = value.view().unwrap();
        assert_eq!(view.shape(), [2, 2, 2]);
        assert_eq!(view.bytes(), [0, 1, 2, 3, 6, 7, 8, 9]);
        value.truncate(1, 0);
        assert_eq!(value.view().unwrap().shape(), [2, 0, 2]);
        assert!(value.view().unwrap().bytes().is_empty());
    }

    #[test]
    fn a_slot_shows_the_step_and_forgets_a_failed_one() {
        let mut slot = Slot::default();
        assert!(slot.current().is_none());
        slot.front
            .copy_from(TensorView::new(DataType::Uint8, &[1], &[1]).unwrap())
            .unwrap();
        slot.back
            .copy_from(TensorView::new(DataType::Uint8, &[1], &[2]).unwrap())
            .unwrap();
        slot.written = true;
        assert_eq!(slot.current().unwrap().bytes(), [2]);
        slot.roll_back();
        assert_eq!(slot.current().unwrap().bytes(), [1]);
        slot.back
            .copy_from(TensorView::new(DataType::Uint8, &[1], &[3]).unwrap())
            .unwrap();
        slot.written = true;
        slot.commit();
        assert_eq!(slot.front.view().unwrap().bytes(), [3]);
    }
}
