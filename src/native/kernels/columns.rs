//! Y while threads write it, each its own columns.

use std::marker::PhantomData;

/// [rows, columns] of Y.
pub struct Columns<'a, T> {
    first: *mut T,
    rows: usize,
    columns: usize,
    y: PhantomData<&'a mut [T]>,
}

// SAFETY: shared, it only gives out exclusive pieces (see `piece`), which may go to any thread.
unsafe impl<T: Send> Sync for Columns<'_, T> {}

impl<'a, T> Columns<'a, T> {
    /// As many whole rows as `y` has.
    pub fn new(y: &'a mut [T], columns: usize) -> Self {
        Columns {
            first: y.as_mut_ptr(),
            rows: y.len().checked_div(columns).unwrap_or(0),
            columns,
            y: PhantomData,
        }
    }

    /// Sets the elements of a row from a column on to what `value` makes of the sums, each with
    /// its column.
    ///
    /// # Safety
    /// No other thread writes these columns at the same time.
    #[inline]
    pub unsafe fn write<S: Copy>(
        &self,
        row: usize,
        column: usize,
        sums: &[S],
        value: impl Fn(usize, S) -> T,
    ) {
        // SAFETY: the caller's word.
        let to = unsafe { self.piece(row, column, sums.len()) };
        for (i, (to, sum)) in to.iter_mut().zip(sums).enumerate() {
            *to = value(column + i, *sum);
        }
    }

    /// Some elements of a row from a column on.
    ///
    /// # Safety
    /// No other thread has these columns at the same time, and the caller has no other piece.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the contract makes it exclusive")]
    pub unsafe fn piece(&self, row: usize, column: usize, len: usize) -> &mut [T] {
        assert!(row < self.rows && column + len <= self.columns);
        // SAFETY: inside of the slice that is borrowed for 'a, as just checked, and exclusive by
        // the caller's word.
        unsafe {
            let first = self.first.add(row * self.columns + column);
            std::slice::from_raw_parts_mut(first, len)
        }
    }
}
