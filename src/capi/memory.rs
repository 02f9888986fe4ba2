//! Memory that outlives a call: text that C may look at, bytes copied from C, and plain
//! data of the host's that is called back.

use std::ffi::{c_char, c_void};

use super::failure::{Failure, Result};
use super::guard::outside;
use super::status::OXP_ERR_OUT_OF_MEMORY;
use super::strings::Out;

/// Text with a NUL after it, at an address that moving the value does not change.
#[derive(Debug)]
pub(super) struct Text(Box<[u8]>);

impl Text {
    /// For messages and names, which are read up to the NUL: one inside of the text would
    /// end it early, and becomes U+FFFD.
    pub fn new(text: &str) -> Self {
        match text.contains('\0') {
            true => Self::verbatim(&text.replace('\0', "\u{FFFD}")),
            false => Self::verbatim(text),
        }
    }

    /// For the text of tokens, whose length counts: a NUL inside of it stays.
    pub fn verbatim(text: &str) -> Self {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
        Text(bytes.into_boxed_slice())
    }

    pub fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }

    /// Bytes without the NUL.
    pub fn len(&self) -> u64 {
        self.0.len() as u64 - 1
    }
}

/// A caller's two places for borrowed text.
pub(super) struct TextOut {
    pointer: Out<*const c_char>,
    len: Out<u64>,
}

impl TextOut {
    /// # Safety
    /// The caller's promise (see mod.rs); used only during the call.
    pub unsafe fn new(pointer: *mut *const c_char, len: *mut u64, what: &str) -> Result<Self> {
        // SAFETY: handed on.
        unsafe {
            Ok(TextOut {
                pointer: Out::new(pointer, std::ptr::null(), what)?,
                len: Out::optional(len, 0),
            })
        }
    }

    /// As [`new`](Self::new), but NULL means that the caller does not want the text.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    pub unsafe fn optional(pointer: *mut *const c_char, len: *mut u64) -> Self {
        // SAFETY: handed on.
        unsafe {
            TextOut {
                pointer: Out::optional(pointer, std::ptr::null()),
                len: Out::optional(len, 0),
            }
        }
    }

    /// The text must live as long as the header says.
    pub fn set(&self, text: &Text) {
        self.pointer.set(text.as_ptr());
        self.len.set(text.len());
    }
}

/// A copy of bytes of the host's, or an error if the allocator has no such room.
pub(super) fn copy_bytes(bytes: &[u8], what: &str) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| {
        Failure::new(
            OXP_ERR_OUT_OF_MEMORY,
            format!("cannot allocate {} bytes for {what}", bytes.len()),
        )
    })?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

/// Frees what a host gave with a callback that the library keeps: called exactly once, when
/// the library lets go of it, also when the call that should have kept it fails. NULL if
/// there is nothing to free.
pub type oxp_free_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// A host's pointer that the library keeps, and how to give it back.
pub(super) struct UserData {
    pointer: *mut c_void,
    free: oxp_free_fn,
}

impl UserData {
    pub fn new(pointer: *mut c_void, free: oxp_free_fn) -> Self {
        UserData { pointer, free }
    }

    pub fn pointer(&self) -> *mut c_void {
        self.pointer
    }
}

// SAFETY: the library never looks behind the pointer; the header says that a callback that
// is kept, and its free function, may be called on any thread.
unsafe impl Send for UserData {}
// SAFETY: as above, and at once from several.
unsafe impl Sync for UserData {}

impl Drop for UserData {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the host gave this function for this pointer and expects one call;
            // the value is neither cloned nor dropped twice.
            outside(|| unsafe { free(self.pointer) });
        }
    }
}
