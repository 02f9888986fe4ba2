//! The global allocator of tests that count what a thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The system's allocator, which counts for each thread.
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// Bytes that the thread has allocated, less those that it has freed, whoever made them.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Bytes of all threads.
static OF_ALL: AtomicIsize = AtomicIsize::new(0);

/// How often this thread has allocated.
pub fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// Bytes that all threads have allocated, less those that they have freed.
pub fn live_bytes() -> isize {
    OF_ALL.load(Ordering::Relaxed)
}

/// The most bytes that this thread had during a call, beyond those it had before.
pub fn most_bytes<R>(call: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE.get();
    MOST.set(before);
    let result = call();
    (result, usize::try_from(MOST.get() - before).unwrap_or(0))
}

fn count(layout: Layout) {
    OF_ALL.fetch_add(layout.size() as isize, Ordering::Relaxed);
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    LIVE.set(LIVE.get() + layout.size() as isize);
    MOST.set(MOST.get().max(LIVE.get()));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as isize);
        OF_ALL.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}
