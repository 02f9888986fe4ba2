//! The global allocator of tests on input that lies about sizes: memory that is taken without a way
//! to refuse ends the process.

use std::alloc::{GlobalAlloc, Layout, System};

/// Refuses every allocation beyond what sound code needs for the small inputs of such tests.
pub struct Bounded;

const LARGEST_ALLOCATION: usize = 256 << 20;

// SAFETY: every call that is not refused goes to the system's allocator unchanged; a null
// pointer is how an allocator refuses.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match layout.size() <= LARGEST_ALLOCATION {
            // SAFETY: the caller's promise is handed on.
            true => unsafe { System.alloc(layout) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match layout.size() <= LARGEST_ALLOCATION {
            // SAFETY: the caller's promise is handed on.
            true => unsafe { System.alloc_zeroed(layout) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}
