//! Files that a host hands over in memory.

use std::collections::HashSet;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::component::{SharedBytes, shown};

use super::failure::{Failure, Result};
use super::memory::copy_bytes;
use super::strings::{array, bytes, text};

/// A file in memory, for functions that take an array of them. Frozen: its layout never
/// changes. The bytes are copied during the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_file {
    /// Its path in the package or beside the model, with `/` between parts.
    pub name: *const c_char,
    /// In bytes, or OXP_NUL_TERMINATED.
    pub name_len: u64,
    pub data: *const c_void,
    /// Bytes at `data`.
    pub byte_len: u64,
}

const _: () = assert!(size_of::<oxp_file>() == 32);

/// Copies of the files; a name that comes twice is an error.
///
/// # Safety
/// The caller's promise (see mod.rs) for the array and what it points to.
pub(super) unsafe fn read(
    files: *const oxp_file,
    count: u64,
    what: &str,
) -> Result<Vec<(String, SharedBytes)>> {
    // SAFETY: the caller's promise; an oxp_file is pointers and numbers, any bytes are one.
    let descriptors = unsafe { array(files, count, what)? };
    let mut copies: Vec<(String, SharedBytes)> = Vec::with_capacity(descriptors.len());
    let mut names = HashSet::new();
    for (index, file) in descriptors.iter().enumerate() {
        let label = format!("{what}[{index}]");
        // SAFETY: the caller's promise.
        let name = unsafe { text(file.name, file.name_len, &format!("{label}.name"))? };
        if !names.insert(name) {
            return Err(Failure::argument(format!(
                "{label}: the file \"{}\" was given before; give each once",
                shown(name)
            )));
        }
        // SAFETY: the caller's promise.
        copies.push((name.to_owned(), unsafe {
            read_one(file.data, file.byte_len, name)?
        }));
    }
    Ok(copies)
}

/// A copy of one file's bytes.
///
/// # Safety
/// The caller's promise for `data`.
pub(super) unsafe fn read_one(data: *const c_void, byte_len: u64, name: &str) -> Result<SharedBytes> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(data, byte_len, &format!("the data of \"{name}\""))? };
    Ok(Arc::new(copy_bytes(bytes, name)?))
}
