//! Info structs that the library fills and that may grow: they open with `struct_size`,
//! which the caller sets to the size that it was compiled with.

use super::failure::{Failure, Result};
use super::status::OXP_ERR_STRUCT_SIZE;

/// A struct that opens with `uint32_t struct_size` and is plain data without padding bytes.
///
/// # Safety
/// `repr(C)`, the first field is `struct_size: u32`, every byte belongs to a field.
pub(super) unsafe trait InfoStruct: Copy {
    const NAME: &'static str;
    fn set_struct_size(&mut self, size: u32);
}

/// A caller's info struct whose `struct_size` has been checked.
pub(super) struct InfoOut<T> {
    pointer: *mut T,
    size: u32,
    marker: std::marker::PhantomData<T>,
}

impl<T: InfoStruct> InfoOut<T> {
    /// # Safety
    /// The caller's promise: NULL, or `struct_size` bytes that can be read and written; used
    /// only during the call.
    pub unsafe fn new(pointer: *mut T, what: &str) -> Result<Self> {
        if pointer.is_null() {
            return Err(Failure::null(what));
        }
        let ours = size_of::<T>();
        // SAFETY: not NULL; at least the first field is there.
        let size = unsafe { pointer.cast::<u32>().read_unaligned() };
        // No struct of this header comes near the upper limit: what is above it was not set.
        if !(8..=4096).contains(&size) {
            return Err(Failure::new(
                OXP_ERR_STRUCT_SIZE,
                format!(
                    "{what}: struct_size is {size}; set it to sizeof({}), {ours} bytes in this library",
                    T::NAME
                ),
            ));
        }
        for offset in ours..size as usize {
            // SAFETY: inside of the `struct_size` bytes that the caller says it has.
            if unsafe { pointer.cast::<u8>().add(offset).read() } != 0 {
                return Err(Failure::new(
                    OXP_ERR_STRUCT_SIZE,
                    format!(
                        "{what}: struct_size is {size}, this library knows {ours} bytes of {}, and byte \
                         {offset} is not 0; zero the struct or use a newer library",
                        T::NAME
                    ),
                ));
            }
        }
        Ok(InfoOut {
            pointer,
            size,
            marker: std::marker::PhantomData,
        })
    }

    /// Writes the part that the caller's struct has room for.
    pub fn set(&self, mut value: T) {
        value.set_struct_size(self.size);
        let len = size_of::<T>().min(self.size as usize);
        // SAFETY: the caller has `struct_size >= len` writable bytes here, promised to
        // `new`; `value` is ours and cannot overlap it, and all of its bytes are
        // initialised, because an InfoStruct has no padding.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), self.pointer.cast::<u8>(), len);
        }
    }
}

/// Implements [`InfoStruct`]; the layout is asserted beside each use.
macro_rules! info_struct {
    ($name:ident, $size:literal) => {
        // SAFETY: repr(C) and `struct_size: u32` first (the assertions and the method below
        // do not compile otherwise); the size is the sum of the fields, so no padding.
        unsafe impl $crate::capi::structs::InfoStruct for $name {
            const NAME: &'static str = stringify!($name);

            fn set_struct_size(&mut self, size: u32) {
                self.struct_size = size;
            }
        }

        const _: () = assert!(size_of::<$name>() == $size && std::mem::offset_of!($name, struct_size) == 0);
    };
}
pub(super) use info_struct;
