//! The atomics, locks and threads by which the threads of [`workers`](super::workers) meet: the
//! standard library's; or loom's in tests/loom, which runs the same code in all the orders in which
//! its threads can come.

#[cfg(not(loom))]
pub(super) use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize},
    sync::{Mutex, MutexGuard},
    thread::{Builder, JoinHandle, Thread, current, park},
};

#[cfg(loom)]
pub(super) use loom::{
    sync::{Mutex, MutexGuard},
    thread::{Builder, JoinHandle, Thread, current, park},
};
#[cfg(loom)]
pub(super) use modelled::{AtomicBool, AtomicU64, AtomicUsize};

/// A value that one thread at a time may write, or several read; who does so sees to it.
#[cfg(not(loom))]
pub(super) struct Slot<T>(std::cell::UnsafeCell<T>);
#[cfg(loom)]
pub(super) struct Slot<T>(loom::cell::UnsafeCell<T>);

impl<T: Copy> Slot<T> {
    pub fn new(value: T) -> Self {
        Slot(value.into())
    }

    /// # Safety
    /// No other thread writes.
    pub unsafe fn read(&self) -> T {
        #[cfg(not(loom))]
        // SAFETY: the pointer is to the value, which nobody writes by this function's contract.
        let value = unsafe { self.0.get().read() };
        #[cfg(loom)]
        // SAFETY: as above; loom ends the model if it is not so.
        let value = self.0.with(|pointer| unsafe { pointer.read() });
        value
    }

    /// # Safety
    /// No other thread reads or writes.
    pub unsafe fn write(&self, value: T) {
        #[cfg(not(loom))]
        // SAFETY: the pointer is to the value, which is this thread's by this function's contract.
        unsafe {
            self.0.get().write(value);
        }
        #[cfg(loom)]
        // SAFETY: as above; loom ends the model if it is not so.
        self.0.with_mut(|pointer| unsafe { pointer.write(value) });
    }
}

/// Looks at `ready` for as long as a thread waits awake; whether it was.
#[cfg(not(loom))]
pub(super) fn spin(ready: impl Fn() -> bool) -> bool {
    const LOOKS: usize = 64;
    let mut since = None;
    loop {
        for _ in 0..LOOKS {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        let since: &std::time::Instant = since.get_or_insert_with(std::time::Instant::now);
        if since.elapsed() >= super::workers::SPIN {
            return false;
        }
    }
}

/// Once is enough: loom has all orders of what may come before and after it.
#[cfg(loom)]
pub(super) fn spin(ready: impl Fn() -> bool) -> bool {
    ready()
}

/// loom takes `SeqCst` for `AcqRel`, which is weaker than what it says. A fence beside each such
/// operation is what makes the order of all of them one again. Processors without such operations get
/// them in one of two ways, and each is enough: a fence behind every store, or one before every load. With
/// both at once the one would hide that the other is missing, so a model is gone through with each.
#[cfg(loom)]
pub mod modelled {
    use std::cell::Cell;

    use loom::sync::atomic::{self, Ordering, fence};

    /// Where the fences are.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum Fences {
        BehindStores,
        BeforeLoads,
    }

    std::thread_local! {
        /// Of the model that this thread goes through, with all threads of the model.
        pub static FENCES: Cell<Fences> = const { Cell::new(Fences::BehindStores) };
    }

    macro_rules! atomic {
        ($name:ident, $ty:ty) => {
            #[derive(Default)]
            pub struct $name(atomic::$name);

            impl $name {
                pub fn new(value: $ty) -> Self {
                    $name(atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $ty {
                    fenced(order, Fences::BeforeLoads);
                    self.0.load(order)
                }

                pub fn store(&self, value: $ty, order: Ordering) {
                    self.0.store(value, order);
                    fenced(order, Fences::BehindStores);
                }

                pub fn swap(&self, value: $ty, order: Ordering) -> $ty {
                    fenced(order, Fences::BeforeLoads);
                    let old = self.0.swap(value, order);
                    fenced(order, Fences::BehindStores);
                    old
                }
            }
        };
    }

    atomic!(AtomicBool, bool);
    atomic!(AtomicU64, u64);
    atomic!(AtomicUsize, usize);

    impl AtomicU64 {
        pub fn compare_exchange_weak(
            &self,
            current: u64,
            new: u64,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u64, u64> {
            self.0.compare_exchange_weak(current, new, success, failure)
        }
    }

    impl AtomicUsize {
        pub fn fetch_add(&self, value: usize, order: Ordering) -> usize {
            self.0.fetch_add(value, order)
        }

        pub fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
            fenced(order, Fences::BeforeLoads);
            let old = self.0.fetch_sub(value, order);
            fenced(order, Fences::BehindStores);
            old
        }
    }

    fn fenced(order: Ordering, here: Fences) {
        if order == Ordering::SeqCst && FENCES.get() == here {
            fence(Ordering::SeqCst);
        }
    }
}
