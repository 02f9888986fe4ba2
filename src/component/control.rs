use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::ComponentErrorKind;

/// Asks a call that is under way, on whatever thread, to stop. Clones are the same token.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<TokenState>);

#[derive(Default)]
struct TokenState {
    requested: AtomicBool,
    /// The standard mutex, not parking_lot's: letting go of it never takes another lock, so
    /// `request` may run in a signal handler.
    watchers: Mutex<Vec<Arc<dyn Interrupt>>>,
}

/// A call that can be told to stop from another thread, such as one inside a library that
/// has a stop flag of its own.
pub trait Interrupt: Send + Sync {
    /// Must not block, and may come more than once.
    fn interrupt(&self);
}

impl CancelToken {
    pub fn new() -> Self {
        Self::default()
    }

    /// From any thread, also from a signal handler: it neither blocks nor allocates. Stays
    /// requested until [`reset`](Self::reset).
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::SeqCst);
        self.interrupt_watchers();
    }

    pub fn reset(&self) {
        self.0.requested.store(false, Ordering::SeqCst);
    }

    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::Relaxed)
    }

    /// Has `target` interrupted when the token is requested (at once, if it is already),
    /// until the returned guard is dropped.
    pub fn watch(&self, target: Arc<dyn Interrupt>) -> CancelWatch {
        self.change_watchers(|watchers| watchers.push(Arc::clone(&target)));
        CancelWatch {
            token: self.clone(),
            target,
        }
    }

    fn change_watchers(&self, change: impl FnOnce(&mut Vec<Arc<dyn Interrupt>>)) {
        change(&mut self.0.watchers.lock().unwrap_or_else(PoisonError::into_inner));
        // A request that came while the lock was held could not interrupt anybody, and
        // left that to us.
        self.interrupt_watchers();
    }

    fn interrupt_watchers(&self) {
        // Either a requester sees the lock free and does the work, or the holder of the lock
        // sees the request after letting go. The fence stands on both sides between "my
        // store" (the flag, the unlocking) and "my load" (the lock, the flag), so that they
        // cannot both miss.
        fence(Ordering::SeqCst);
        if !self.0.requested.load(Ordering::SeqCst) {
            return;
        }
        if let Ok(watchers) = self.0.watchers.try_lock() {
            watchers.iter().for_each(|watcher| watcher.interrupt());
        }
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelToken").field(&self.is_requested()).finish()
    }
}

/// Keeps an [`Interrupt`] registered with a token. Once this is dropped, the token
/// interrupts it no more.
#[must_use]
pub struct CancelWatch {
    token: CancelToken,
    target: Arc<dyn Interrupt>,
}

impl Drop for CancelWatch {
    fn drop(&mut self) {
        self.token.change_watchers(|watchers| {
            // One registration: the same target may be watched twice.
            if let Some(index) = watchers
                .iter()
                .position(|watcher| Arc::ptr_eq(watcher, &self.target))
            {
                watchers.swap_remove(index);
            }
        });
    }
}

/// What may end a call early: a cancel token, a deadline, both or neither.
#[derive(Clone, Debug, Default)]
pub struct RunControl {
    pub cancel: Option<CancelToken>,
    pub deadline: Option<Instant>,
}

impl RunControl {
    /// Whether the call should end now. Cheap enough to ask between operators.
    pub fn should_stop(&self) -> bool {
        self.stop_reason().is_some()
    }

    /// [`Cancelled`](ComponentErrorKind::Cancelled) or
    /// [`DeadlineExceeded`](ComponentErrorKind::DeadlineExceeded) if the call should end now, and
    /// [`OutOfMemory`](ComponentErrorKind::OutOfMemory) if it lives on the
    /// [reserve](crate::reserve).
    pub fn stop_reason(&self) -> Option<ComponentErrorKind> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_requested) {
            return Some(ComponentErrorKind::Cancelled);
        }
        if let Some(bytes) = crate::reserve::refused() {
            return Some(ComponentErrorKind::OutOfMemory {
                bytes: bytes as u64,
                what: "the call".to_owned(),
            });
        }
        self.deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
            .then_some(ComponentErrorKind::DeadlineExceeded)
    }

    /// Whether anything could ever end the call.
    pub fn is_bounded(&self) -> bool {
        self.cancel.is_some() || self.deadline.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Interrupt for Count {
        fn interrupt(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_watcher_hears_of_a_request_before_and_after_it_registers() {
        let token = CancelToken::new();
        let (early, late) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let watch = token.watch(early.clone());
        assert_eq!(early.0.load(Ordering::Relaxed), 0);
        token.request();
        assert!(early.0.load(Ordering::Relaxed) > 0);
        let _late = token.watch(late.clone());
        assert!(late.0.load(Ordering::Relaxed) > 0);
        drop(watch);
        let before = early.0.load(Ordering::Relaxed);
        token.request();
        assert_eq!(early.0.load(Ordering::Relaxed), before);
    }

    #[test]
    fn a_request_that_races_with_a_registration_is_not_lost() {
        for _ in 0..2_000 {
            let token = CancelToken::new();
            let count = Arc::new(Count::default());
            thread::scope(|scope| {
                let requester = scope.spawn(|| token.request());
                drop(token.watch(Arc::new(Count::default())));
                let _watch = token.watch(count.clone());
                while !token.is_requested() {
                    std::hint::spin_loop();
                }
                // The requester may still be between the flag and the watchers.
                while count.0.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                requester.join().expect("a request does not panic");
            });
        }
    }
}
