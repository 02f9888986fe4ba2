//! Text and arrays that come from C, and those that go into a caller's buffer.

use std::ffi::{c_char, c_void};

use super::failure::{Failure, Result};
use super::status::{OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_INVALID_UTF8, OXP_ERR_OUT_OF_MEMORY};

/// As a length: the string ends with a NUL.
pub(super) const NUL_TERMINATED: u64 = u64::MAX;

/// Text of a `pointer, length` pair.
///
/// # Safety
/// The caller's promise (see mod.rs); the result lives no longer than the call.
pub(super) unsafe fn text<'a>(pointer: *const c_char, len: u64, what: &str) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(Failure::null(what));
    }
    let len = match len {
        // SAFETY: not NULL, and by the length given it ends with a NUL.
        NUL_TERMINATED => unsafe { libc::strlen(pointer) as u64 },
        len => len,
    };
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(pointer.cast(), len, what)? };
    std::str::from_utf8(bytes).map_err(|error| {
        Failure::new(
            OXP_ERR_INVALID_UTF8,
            format!(
                "{what} is not UTF-8 from byte {} on; pass UTF-8",
                error.valid_up_to()
            ),
        )
    })
}

/// As [`text`], but NULL means that the argument is left out.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn optional_text<'a>(
    pointer: *const c_char,
    len: u64,
    what: &str,
) -> Result<Option<&'a str>> {
    match pointer.is_null() {
        true => Ok(None),
        // SAFETY: the caller's promise.
        false => unsafe { text(pointer, len, what) }.map(Some),
    }
}

/// `len` bytes; NULL is fine when there are none.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn bytes<'a>(pointer: *const c_void, len: u64, what: &str) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::null(what));
    }
    let len = in_address_space(pointer.addr(), len, what)?;
    // SAFETY: not NULL, does not wrap and is not above isize::MAX; readable and unchanged
    // during the call by the caller's promise. Bytes have no invalid values.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), len) })
}

/// A copy of `count` elements; NULL is fine when there are none.
///
/// # Safety
/// As [`text`]; any bytes are a valid `T`.
pub(super) unsafe fn array<T: Copy>(pointer: *const T, count: u64, what: &str) -> Result<Vec<T>> {
    let size = count.saturating_mul(size_of::<T>() as u64);
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(pointer.cast(), size, what)? };
    let mut elements = Vec::new();
    elements
        .try_reserve_exact(bytes.len() / size_of::<T>())
        .map_err(|_| Failure::new(OXP_ERR_OUT_OF_MEMORY, format!("no memory for a copy of {what}")))?;
    let copies = bytes
        .chunks_exact(size_of::<T>())
        // SAFETY: the chunk has the size of a `T`, and any bytes are one; no alignment needed.
        .map(|chunk| unsafe { chunk.as_ptr().cast::<T>().read_unaligned() });
    elements.extend(copies);
    Ok(elements)
}

/// The length as `usize`, if a range of that length at `address` can exist.
pub(super) fn in_address_space(address: usize, len: u64, what: &str) -> Result<usize> {
    usize::try_from(len)
        .ok()
        .filter(|&len| isize::try_from(len).is_ok() && address.checked_add(len).is_some())
        .ok_or_else(|| {
            Failure::argument(format!(
                "{what} would be {len} bytes long; that is more than an address space holds"
            ))
        })
}

/// A place of the caller's for a plain value, checked before any work is done.
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes `initial` at once, so that the place is never left unset.
    ///
    /// # Safety
    /// The caller's promise; the result is used only during the call.
    pub unsafe fn new(pointer: *mut T, initial: T, what: &str) -> Result<Self> {
        if pointer.is_null() {
            return Err(Failure::null(what));
        }
        let out = Out(pointer);
        out.set(initial);
        Ok(out)
    }

    /// As [`new`](Self::new), but NULL means that the caller does not want it.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    pub unsafe fn optional(pointer: *mut T, initial: T) -> Self {
        let out = Out(pointer);
        out.set(initial);
        out
    }

    pub fn set(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: whoever made `self` promised that a pointer other than NULL is
            // writable during the call.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

/// Copies a cheap answer into the caller's buffer by the rule of all `_copy` functions.
///
/// # Safety
/// The caller's promise: `buffer` is NULL or writable for `capacity` elements.
pub(super) unsafe fn copy_out<T: Copy>(
    values: &[T],
    terminator: Option<T>,
    buffer: *mut T,
    capacity: u64,
    needed: &Out<u64>,
) -> Result<()> {
    let count = values.len() as u64;
    needed.set(count);
    if buffer.is_null() {
        return match capacity {
            0 => Ok(()),
            _ => Err(Failure::null("the buffer (with a capacity above 0)")),
        };
    }
    if capacity < count {
        return Err(Failure::new(
            OXP_ERR_BUFFER_TOO_SMALL,
            format!("the buffer holds {capacity}, the answer takes {count}; nothing was written"),
        ));
    }
    // SAFETY: writable for `capacity >= count` elements; a value of ours cannot overlap the
    // caller's buffer. Bytewise, so that no alignment is needed.
    unsafe {
        std::ptr::copy_nonoverlapping(
            values.as_ptr().cast::<u8>(),
            buffer.cast::<u8>(),
            size_of_val(values),
        );
    }
    if let Some(terminator) = terminator.filter(|_| capacity > count) {
        // SAFETY: one element past the copied ones is still inside of the capacity.
        unsafe { buffer.add(values.len()).write_unaligned(terminator) };
    }
    Ok(())
}

/// [`copy_out`] for text, with a NUL after it if that fits.
///
/// # Safety
/// As [`copy_out`].
pub(super) unsafe fn copy_text(
    text: &str,
    buffer: *mut c_char,
    capacity: u64,
    needed: &Out<u64>,
) -> Result<()> {
    // SAFETY: the caller's promise, handed on.
    unsafe { copy_out(text.as_bytes(), Some(0), buffer.cast::<u8>(), capacity, needed) }
}
