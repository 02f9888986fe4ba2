//! An allocator that goes on for a while when the system has no memory left.
//!
//! Rust's standard library, and most crates, end the process when a small allocation fails: there is no
//! way back from the middle of a `String`. So that a library does not do that to its host, [`Reserve`]
//! keeps memory aside, from the start of the process on, and hands it out when the system's allocator
//! refuses: the call under way gets to where it looks whether to go on
//! ([`RunControl::stop_reason`](crate::component::RunControl::stop_reason)) and ends with an error for
//! want of memory. What large buffers are made of
//! ([`AlignedBytes`](crate::component::AlignedBytes)), and every request above [`MOST`], is refused
//! instead: this crate's own code takes that for an error at once.
//!
//! Memory goes back to the reserve when it is freed, so the reserve is whole again once what was made
//! without memory is gone. While more than half of it is out, functions of the C interface that may
//! fail do so at once.
//!
//! What this does not do: a crate that asks for more than [`MOST`] at once without looking (a tokenizer
//! of tens of megabytes), or that takes more than [`SIZE`] before the call looks, ends the process as it
//! would without a reserve. And where the system promises memory that it does not have (Linux with
//! overcommit, its default), there is no failed allocation to save: the system ends a process.
//!
//! A Rust program has one allocator, and it is the program's to choose: there the reserve is
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: oxpipe::reserve::Reserve = oxpipe::reserve::Reserve::new(std::alloc::System);
//! ```
//!
//! and [`begin_call`] begins each call. The libraries that C programs link have it with the Cargo
//! feature `reserve`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes of the reserve: 4 MiB, of which nothing is touched before it is needed.
pub const SIZE: usize = 4 << 20;
/// The most bytes that one request gets of it: 512 KiB.
pub const MOST: usize = SIZE / 8;
/// What it is handed out in.
const UNIT: usize = 64;
const WORDS: usize = SIZE / UNIT / 64;
/// The strictest alignment that it has.
const ALIGN: usize = 4096;

/// An allocator in front of another, with a reserve behind that. All of them have the same reserve.
#[derive(Debug, Default)]
pub struct Reserve<A = System>(A);

impl<A> Reserve<A> {
    pub const fn new(allocator: A) -> Self {
        Reserve(allocator)
    }
}

// SAFETY: memory comes from the inner allocator, or from the pool, whose ranges are handed out once
// until they are given back; where a pointer is from is told by its address, so each goes back to where
// it came from, with the layout that the caller must give. Nothing here unwinds: there is no indexing
// and no arithmetic that can overflow.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Reserve<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is handed on.
        let ptr = unsafe { self.0.alloc(layout) };
        match ptr.is_null() {
            false => ptr,
            true => rescue(layout),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is handed on.
        let ptr = unsafe { self.0.alloc_zeroed(layout) };
        if !ptr.is_null() {
            return ptr;
        }
        let ptr = rescue(layout);
        if !ptr.is_null() {
            // SAFETY: as many bytes were just handed out.
            unsafe { ptr.write_bytes(0, layout.size()) };
        }
        ptr
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        match POOL.offset(ptr) {
            // SAFETY: the caller's promise is handed on.
            None => unsafe { self.0.dealloc(ptr, layout) },
            Some(offset) => POOL.give_back(offset, layout.size()),
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let is_ours = POOL.offset(ptr).is_some();
        if !is_ours {
            // SAFETY: the caller's promise is handed on.
            let moved = unsafe { self.0.realloc(ptr, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(new) = Layout::from_size_align(size, layout.align()) else {
            return null_mut();
        };
        // SAFETY: the caller promises that the size is not zero. Once more for a block of the inner
        // allocator, that has none; a block of the pool leaves it if it can.
        let moved = match is_ours {
            true => unsafe { self.alloc(new) },
            false => rescue(new),
        };
        if !moved.is_null() {
            // SAFETY: both are ours for as many bytes, and apart.
            unsafe {
                ptr.copy_to_nonoverlapping(moved, layout.size().min(size));
                self.dealloc(ptr, layout);
            }
        }
        moved
    }
}

thread_local! {
    /// Bytes of the first request of this thread's call that the system refused; 0 for none. Without a
    /// destructor, so an allocator may use it.
    static REFUSED: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread takes a refusal for an error, and does not need the reserve.
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// Memory of the reserve in place of what the system refused.
#[cold]
fn rescue(layout: Layout) -> *mut u8 {
    if layout.size() > MOST || layout.align() > ALIGN || MAY_FAIL.try_with(Cell::get).unwrap_or(false) {
        return null_mut();
    }
    let _ = REFUSED.try_with(|refused| {
        if refused.get() == 0 {
            refused.set(layout.size().max(1));
        }
    });
    POOL.take(layout)
}

/// Makes an allocation of which a failure is an error, not the end: the reserve is not for it.
pub(crate) fn fallible<R>(allocate: impl FnOnce() -> R) -> R {
    let before = MAY_FAIL.replace(true);
    let result = allocate();
    MAY_FAIL.set(before);
    result
}

/// Bytes of the first request that this thread's call was refused by the system and got of the
/// reserve; the call is to end.
pub(crate) fn refused() -> Option<usize> {
    Some(REFUSED.get()).filter(|&bytes| bytes > 0)
}

/// Takes what was [refused](refused) away from this thread: what it does next is another's work.
#[cfg(feature = "native")]
pub(crate) fn take_refused() -> Option<usize> {
    Some(REFUSED.replace(0)).filter(|&bytes| bytes > 0)
}

/// Says of this thread's call that so many bytes were refused to it on another thread, which worked for
/// it.
#[cfg(feature = "native")]
pub(crate) fn note_refused(bytes: usize) {
    if REFUSED.get() == 0 {
        REFUSED.set(bytes);
    }
}

/// Begins a call on this thread, and says whether there is enough of the reserve for one. The functions
/// of the C interface do so; a Rust program that has the reserve does it before calls of its own, or
/// what it was refused before ends them.
pub fn begin_call() -> (bool, Call) {
    let outer = REFUSED.replace(0);
    (used() <= SIZE / 2, Call { outer })
}

/// A call on this thread, until it is dropped: then the one around it goes on, if there is one (this one
/// is from a callback), with what that was refused.
#[derive(Debug)]
pub struct Call {
    outer: usize,
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.outer > 0 {
            REFUSED.set(self.outer);
        }
    }
}

/// Bytes of the reserve that are out.
pub fn used() -> usize {
    POOL.used.load(Ordering::Relaxed).saturating_mul(UNIT)
}

static POOL: Pool = Pool {
    memory: Memory(UnsafeCell::new([0; SIZE])),
    lock: AtomicBool::new(false),
    taken: Taken(UnsafeCell::new([0; WORDS])),
    used: AtomicUsize::new(0),
};

/// Zeros, so that it is no part of the file.
#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; SIZE]>);

/// A bit for each unit that is out.
struct Taken(UnsafeCell<[u64; WORDS]>);

struct Pool {
    memory: Memory,
    lock: AtomicBool,
    taken: Taken,
    /// Units that are out.
    used: AtomicUsize,
}

// SAFETY: the bits are only looked at under the lock, and the memory only by those whom a range of it
// was handed out to.
unsafe impl Sync for Pool {}

impl Pool {
    /// Where in the pool a pointer leads.
    fn offset(&self, ptr: *mut u8) -> Option<usize> {
        let offset = ptr.addr().wrapping_sub(self.memory.0.get().addr());
        (offset < SIZE).then_some(offset)
    }

    fn take(&self, layout: Layout) -> *mut u8 {
        let units = layout.size().div_ceil(UNIT).max(1);
        let step = layout.align().div_ceil(UNIT).max(1);
        let found = self.with_bits(|bits| {
            let first = free_range(bits, units, step)?;
            mark(bits, first, units, true);
            Some(first)
        });
        match found {
            None => null_mut(),
            Some(first) => {
                self.used.fetch_add(units, Ordering::Relaxed);
                self.memory.0.get().cast::<u8>().wrapping_add(first * UNIT)
            }
        }
    }

    fn give_back(&self, offset: usize, size: usize) {
        let units = size.div_ceil(UNIT).max(1);
        self.with_bits(|bits| mark(bits, offset / UNIT, units, false));
        self.used.fetch_sub(units, Ordering::Relaxed);
    }

    fn with_bits<R>(&self, change: impl FnOnce(&mut [u64; WORDS]) -> R) -> R {
        while self
            .lock
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            std::thread::yield_now();
        }
        // SAFETY: whoever has the lock is alone with the bits; `change` does not come back here, for it
        // does not allocate.
        let result = change(unsafe { &mut *self.taken.0.get() });
        self.lock.store(false, Ordering::Release);
        result
    }
}

fn is_taken(bits: &[u64; WORDS], unit: usize) -> bool {
    bits.get(unit / 64)
        .is_none_or(|word| word >> (unit % 64) & 1 == 1)
}

fn mark(bits: &mut [u64; WORDS], first: usize, units: usize, taken: bool) {
    for unit in first..first.saturating_add(units) {
        if let Some(word) = bits.get_mut(unit / 64) {
            match taken {
                true => *word |= 1 << (unit % 64),
                false => *word &= !(1 << (unit % 64)),
            }
        }
    }
}

/// The first range of so many free units, at a multiple of `step`.
fn free_range(bits: &[u64; WORDS], units: usize, step: usize) -> Option<usize> {
    let mut first = 0usize;
    while first.saturating_add(units) <= WORDS * 64 {
        match (first..first + units).rev().find(|&unit| is_taken(bits, unit)) {
            None => return Some(first),
            Some(taken) => first = (taken + 1).next_multiple_of(step),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has nothing.
    struct Nothing;

    // SAFETY: a null pointer is how an allocator refuses, and there is nothing to give back.
    unsafe impl GlobalAlloc for Nothing {
        unsafe fn alloc(&self, _: Layout) -> *mut u8 {
            null_mut()
        }

        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
    }

    #[test]
    fn it_hands_out_memory_once_and_takes_it_back() {
        let allocator = Reserve::new(Nothing);
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        // SAFETY: layouts have a size, and each block is given back once, with the layout that it has.
        unsafe {
            let mut blocks = Vec::with_capacity(1000);
            for round in 0..3 {
                for index in 0..300usize {
                    let layout = layout(1 + index * 37 % 9000, 1 << (index % 13));
                    let block = allocator.alloc_zeroed(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
                    let bytes = std::slice::from_raw_parts_mut(block, layout.size());
                    assert!(bytes.iter().all(|&byte| byte == 0));
                    bytes.fill((index as u8).wrapping_add(1));
                    blocks.push((block, layout, (index as u8).wrapping_add(1)));
                }
                for (index, (block, layout, byte)) in blocks.iter_mut().enumerate() {
                    if index % 3 == round {
                        let size = layout.size() * 2;
                        *block = allocator.realloc(*block, *layout, size);
                        assert!(!block.is_null());
                        let bytes = std::slice::from_raw_parts_mut(*block, size);
                        assert!(bytes[..layout.size()].iter().all(|&found| found == *byte));
                        bytes.fill(*byte);
                        *layout = Layout::from_size_align(size, layout.align()).unwrap();
                    }
                }
                for (block, layout, byte) in blocks.drain(..) {
                    let bytes = std::slice::from_raw_parts(block, layout.size());
                    assert!(bytes.iter().all(|&found| found == byte));
                    allocator.dealloc(block, layout);
                }
                assert_eq!(used(), 0);
            }
            assert!(refused().is_some());
            assert!(allocator.alloc(layout(MOST + 1, 1)).is_null());
            assert!(fallible(|| allocator.alloc(layout(1, 1))).is_null());
            // All of it, and then nothing.
            let all: Vec<_> = (0..8).map(|_| allocator.alloc(layout(MOST, ALIGN))).collect();
            assert!(all.iter().all(|block| !block.is_null()) && used() == SIZE);
            assert!(allocator.alloc(layout(1, 1)).is_null());
            {
                let (enough, _call) = begin_call();
                assert!(!enough && refused().is_none());
            }
            // What the call around it was refused.
            assert!(refused().is_some());
            for block in all {
                allocator.dealloc(block, layout(MOST, ALIGN));
            }
            assert!(begin_call().0);
        }
    }
}
