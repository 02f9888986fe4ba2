use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Asks a call that is under way, on whatever thread, to stop. Clones are the same token.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    pub fn new() -> Self {
        Self::default()
    }

    /// From any thread; stays requested until [`reset`](Self::reset).
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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
        self.cancel.as_ref().is_some_and(CancelToken::is_requested)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether anything could ever end the call.
    pub fn is_bounded(&self) -> bool {
        self.cancel.is_some() || self.deadline.is_some()
    }
}
