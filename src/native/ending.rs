//! How a run ends in the middle of an operator.
//!
//! Between operators the executor looks whether it should go on. One operator over a long prompt may
//! take a second, and what takes long is cut into parts (see [`workers`](super::workers)): so the
//! thread that runs them looks before each of its own, and the long loops of kernels that are not cut
//! look themselves. If the run should end, it unwinds out of the
//! kernel, as a kernel that panics does, but without a panic: the parts that have not begun are left
//! out, and the executor, where [`bounded`] was called, gives the reason as an error.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::component::{ComponentErrorKind, RunControl};

thread_local! {
    /// What may end the run that is under way on this thread.
    static CONTROL: RefCell<Option<RunControl>> = const { RefCell::new(None) };
}

/// What unwinds.
struct Ended(ComponentErrorKind);

/// Runs `body`, which parts of regions may end: it is dropped half-done then.
pub(super) fn bounded<R>(
    control: &RunControl,
    body: impl FnOnce() -> Result<R, ComponentErrorKind>,
) -> Result<R, ComponentErrorKind> {
    if !control.is_bounded() {
        return body();
    }
    let before = CONTROL.replace(Some(control.clone()));
    let outcome = catch_unwind(AssertUnwindSafe(body));
    CONTROL.replace(before);
    outcome.unwrap_or_else(|payload| match payload.downcast::<Ended>() {
        Ok(ended) => Err(ended.0),
        Err(panic) => resume_unwind(panic),
    })
}

/// Whether anything may end what this thread does.
pub(super) fn is_possible() -> bool {
    CONTROL.with_borrow(Option::is_some)
}

/// Does not return if the run should end.
pub(super) fn look() {
    let reason = CONTROL.with_borrow(|control| control.as_ref()?.stop_reason());
    if let Some(reason) = reason {
        resume_unwind(Box::new(Ended(reason)));
    }
}

/// Looks whether to go on from time to time, in a loop over elements that take next to no time each.
#[derive(Default)]
pub(super) struct Looks {
    /// Elements until the next one.
    left: usize,
}

impl Looks {
    /// Elements between two looks.
    pub(super) const BETWEEN: usize = 1 << 16;

    /// Counts elements. Does not return if the run should end.
    #[inline]
    pub(super) fn count(&mut self, elements: usize) {
        match self.left.checked_sub(elements) {
            Some(left) => self.left = left,
            None => {
                self.left = Self::BETWEEN;
                look();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::component::CancelToken;
    use crate::native::workers::Workers;

    #[test]
    fn a_region_ends_between_two_parts() {
        for threads in [1, 3] {
            let workers = Workers::new(threads);
            let cancel = CancelToken::new();
            let control = RunControl {
                cancel: Some(cancel.clone()),
                deadline: None,
            };
            let ran = AtomicUsize::new(0);
            let outcome = bounded(&control, || {
                workers.for_each(100_000, |_| {
                    if ran.fetch_add(1, Ordering::Relaxed) == 10 {
                        cancel.request();
                    }
                    // Long enough for every thread to take its turns.
                    std::thread::sleep(std::time::Duration::from_micros(20));
                });
                Ok(())
            });
            assert!(matches!(outcome, Err(ComponentErrorKind::Cancelled)));
            assert!(ran.load(Ordering::Relaxed) < 50_000, "{threads} threads");
            // Nothing is left of it.
            assert!(!is_possible());
            let again = AtomicUsize::new(0);
            workers.for_each(100, |_| {
                again.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(again.load(Ordering::Relaxed), 100);
        }
    }

    #[test]
    fn a_loop_ends_at_a_look_and_looks_seldom() {
        for step in [1, 100, Looks::BETWEEN * 2] {
            let cancel = CancelToken::new();
            let control = RunControl {
                cancel: Some(cancel.clone()),
                deadline: None,
            };
            let steps = Cell::new(0);
            let outcome: Result<(), _> = bounded(&control, || {
                let mut looks = Looks::default();
                loop {
                    looks.count(step);
                    cancel.request();
                    steps.set(steps.get() + 1);
                }
            });
            assert!(matches!(outcome, Err(ComponentErrorKind::Cancelled)));
            // The first step is before it is cancelled; the look is the first one that is due.
            assert_eq!(steps.get(), Looks::BETWEEN / step + 1, "{step}");
        }
    }

    #[test]
    fn panics_go_on_and_runs_inside_of_others_end_alone() {
        let control = RunControl {
            cancel: Some(CancelToken::new()),
            deadline: None,
        };
        let late = RunControl {
            cancel: None,
            deadline: Some(std::time::Instant::now()),
        };
        let outcome = bounded(&control, || {
            let inner = bounded(&late, || {
                Workers::alone().for_each(2, |_| {});
                Ok(())
            });
            assert!(matches!(inner, Err(ComponentErrorKind::DeadlineExceeded)));
            Workers::alone().for_each(2, |_| {});
            Ok(7)
        });
        assert!(matches!(outcome, Ok(7)));
        let panic =
            crate::panics::contain(|| bounded(&control, || -> Result<(), _> { panic!("on purpose") }));
        assert!(panic.is_err_and(|panic| panic.to_string().ends_with("on purpose")));
        assert!(!is_possible());
    }
}
