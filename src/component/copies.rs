//! Counts the bytes that were copied at the seam, in debug builds.
//!
//! A copy at the seam is one that only serves to move a value across it: an unaligned
//! input made aligned, an output that did not fit the caller's room. What a kernel writes
//! as its own result is no copy. What is written to KV caches is counted apart: the rows of
//! a step, and those of all steps before it wherever a cache is copied to be longer.

#[cfg(debug_assertions)]
use std::cell::Cell;

#[cfg(debug_assertions)]
thread_local! {
    static COPIED: Cell<u64> = const { Cell::new(0) };
    static WRITTEN_TO_CACHES: Cell<u64> = const { Cell::new(0) };
}

/// Notes a copy of `bytes` bytes made by this thread at the seam.
pub fn count_copy(bytes: usize) {
    #[cfg(debug_assertions)]
    COPIED.with(|total| total.set(total.get() + bytes as u64));
    #[cfg(not(debug_assertions))]
    let _ = bytes;
}

/// Bytes that this thread has copied at the seam so far; `None` in release builds, which
/// do not count.
pub fn copied_bytes() -> Option<u64> {
    #[cfg(debug_assertions)]
    return Some(COPIED.with(Cell::get));
    #[cfg(not(debug_assertions))]
    None
}

/// Notes `bytes` bytes that this thread has written to KV caches.
pub(crate) fn count_cache_write(bytes: usize) {
    #[cfg(debug_assertions)]
    WRITTEN_TO_CACHES.with(|total| total.set(total.get() + bytes as u64));
    #[cfg(not(debug_assertions))]
    let _ = bytes;
}

/// Bytes that this thread has written to KV caches so far, in native kernels and where a cache
/// gets larger memory; `None` in release builds, which do not count.
pub fn written_cache_bytes() -> Option<u64> {
    #[cfg(debug_assertions)]
    return Some(WRITTEN_TO_CACHES.with(Cell::get));
    #[cfg(not(debug_assertions))]
    None
}
