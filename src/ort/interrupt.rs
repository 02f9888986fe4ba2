//! Ends a run from another thread: a cancel token or a deadline sets ONNX Runtime's
//! terminate flag, which it looks at between nodes.
//!
//! A run that nothing can end costs nothing. A cancel token sets the flag on the thread that
//! requests it. A deadline needs a thread that waits for it: one per session, made for the
//! first run with a deadline. Steps of one call share their deadline, so that the thread
//! need not be woken for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use ort::sys;
use parking_lot::{Condvar, Mutex};

use super::api::{Api, Failure, Owned};
use crate::component::{CancelWatch, Interrupt, RunControl};

/// The terminate flag of a session's runs.
pub(super) struct Terminator {
    api: Api,
    options: Owned<sys::OrtRunOptions>,
    terminated: AtomicBool,
}

impl Terminator {
    pub fn new(api: Api, options: Owned<sys::OrtRunOptions>) -> Self {
        Terminator {
            api,
            options,
            terminated: AtomicBool::new(false),
        }
    }

    pub fn options(&self) -> *const sys::OrtRunOptions {
        self.options.as_ptr()
    }

    /// Whether the flag was set since the last [`reset`](Self::reset).
    pub fn is_terminated(&self) -> bool {
        self.terminated.load(Ordering::Acquire)
    }

    /// Makes ready for another run. Only while nobody may interrupt.
    pub fn reset(&self) -> Result<(), Failure> {
        if !self.terminated.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: the options live as long as `self`.
        let status = unsafe { (self.api.0.RunOptionsUnsetTerminate)(self.options.as_ptr()) };
        self.api.check(status)
    }
}

impl Interrupt for Terminator {
    fn interrupt(&self) {
        self.terminated.store(true, Ordering::Release);
        // SAFETY: the options live as long as `self`, and setting the flag from another
        // thread while a run is under way is what the function is for. It only sets it.
        let status = unsafe { (self.api.0.RunOptionsSetTerminate)(self.options.as_ptr()) };
        // The function cannot fail; a status would still have to be released.
        let _ = self.api.check(status);
    }
}

/// Whatever may end one run; ends no more once this is dropped.
pub(super) struct Watch<'a> {
    _cancel: Option<CancelWatch>,
    deadline: Option<&'a DeadlineThread>,
}

impl<'a> Watch<'a> {
    /// Lets `control` interrupt `terminator`. The deadline thread is made if there is none.
    pub fn start(
        control: &RunControl,
        terminator: &Arc<Terminator>,
        thread: &'a mut Option<DeadlineThread>,
    ) -> Result<Self, Failure> {
        let deadline = match control.deadline {
            None => None,
            Some(deadline) => {
                let thread = match thread {
                    Some(thread) => thread,
                    None => thread.insert(DeadlineThread::spawn().map_err(|error| {
                        Failure::new(format!("cannot start the thread for the deadline: {error}"))
                    })?),
                };
                thread.arm(deadline, terminator);
                Some(&*thread)
            }
        };
        let cancel = control
            .cancel
            .as_ref()
            .map(|token| token.watch(Arc::clone(terminator) as Arc<dyn Interrupt>));
        Ok(Watch {
            _cancel: cancel,
            deadline,
        })
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(thread) = self.deadline {
            thread.disarm();
        }
    }
}

/// Waits for the deadline of the run that is under way.
pub(super) struct DeadlineThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    armed: Option<(Instant, Arc<Terminator>)>,
    /// When the thread wakes without being told; `None` is never.
    wakes_at: Option<Instant>,
    stop: bool,
}

impl DeadlineThread {
    fn spawn() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = thread::Builder::new().name("oxp-deadline".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.wait()
        })?;
        Ok(DeadlineThread {
            shared,
            thread: Some(thread),
        })
    }

    fn arm(&self, deadline: Instant, terminator: &Arc<Terminator>) {
        let mut state = self.shared.state.lock();
        state.armed = Some((deadline, Arc::clone(terminator)));
        if state.wakes_at.is_none_or(|wakes_at| wakes_at > deadline) {
            self.shared.changed.notify_one();
        }
    }

    fn disarm(&self) {
        self.shared.state.lock().armed = None;
    }
}

impl Shared {
    fn wait(&self) {
        let mut state = self.state.lock();
        while !state.stop {
            // After a run the thread sleeps on to that run's deadline: the next one is
            // likely to have the same.
            match &state.armed {
                Some((deadline, terminator)) if Instant::now() >= *deadline => {
                    terminator.interrupt();
                    state.armed = None;
                }
                Some((deadline, _)) => {
                    let deadline = *deadline;
                    state.wakes_at = Some(deadline);
                    self.changed.wait_until(&mut state, deadline);
                }
                None => {
                    state.wakes_at = None;
                    self.changed.wait(&mut state);
                }
            }
        }
    }
}

impl Drop for DeadlineThread {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if it did, nothing would be left to do.
            let _ = thread.join();
        }
    }
}
