//! How a run ends in the middle of an operator.
//!
//! Between operators the executor looks whether it should go on. One operator over a long prompt may
//! take a second, and what takes long is cut into parts (see [`workers`](super::workers)): so the
//! thread that runs them looks before each of its own, and the long loops of kernels that are not cut
//! look themselves: where a step takes some time, each ([`look`]); else they count their elements, and
//! one look is for many ([`count`], and what is made of it). If the run should end, it unwinds out of
//! the kernel, as a kernel that panics does, but without a panic: the parts that have not begun are left
//! out, and the executor, where [`bounded`] was called, gives the reason as an error.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::component::{ComponentErrorKind, RunControl};

thread_local! {
    /// What may end the run that is under way on this thread.
    static CONTROL: RefCell<Option<RunControl>> = const { RefCell::new(None) };

    /// Elements that loops on this thread may go over before one of them looks. It is kept from loop
    /// to loop, so that many short ones look as one long one does.
    static LEFT: Cell<usize> = const { Cell::new(BETWEEN) };
}

/// Elements between two looks.
pub(super) const BETWEEN: usize = 1 << 16;

/// Elements of a loop that are counted at once, where it is too tight to count each.
pub(super) const PIECE: usize = 1 << 12;

/// What unwinds.
struct Ended(ComponentErrorKind);

/// Runs `body`, which parts of regions may end: it is dropped half-done then.
pub(super) fn bounded<R>(
    control: &RunControl,
    body: impl FnOnce() -> Result<R, ComponentErrorKind>,
) -> Result<R, ComponentErrorKind> {
    // Also where neither a deadline nor a token could end it: want of memory can.
    let before = CONTROL.replace(Some(control.clone()));
    LEFT.set(BETWEEN);
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

#[cfg(test)]
thread_local! {
    /// How often this thread has looked.
    static LOOKED: Cell<usize> = const { Cell::new(0) };
}

/// How often this thread has looked so far.
#[cfg(test)]
pub(super) fn looked() -> usize {
    LOOKED.get()
}

/// Does not return if the run should end.
pub(super) fn look() {
    #[cfg(test)]
    LOOKED.set(LOOKED.get() + 1);
    let reason = CONTROL.with_borrow(|control| control.as_ref()?.stop_reason());
    if let Some(reason) = reason {
        resume_unwind(Box::new(Ended(reason)));
    }
}

/// Takes from this thread, which has worked for another, that it was refused memory.
pub(super) fn take_refused() -> Option<usize> {
    crate::reserve::take_refused()
}

/// Lets this thread's run end as if it had been refused so many bytes itself.
pub(super) fn note_refused(bytes: usize) {
    crate::reserve::note_refused(bytes);
}

/// Counts elements that a loop goes over, which take next to no time each. Does not return if the run
/// should end.
#[inline]
pub(super) fn count(elements: usize) {
    match LEFT.get().saturating_sub(elements) {
        0 => {
            LEFT.set(BETWEEN);
            look();
        }
        left => LEFT.set(left),
    }
}

/// The positions of a loop over `len` elements in pieces, each of which is counted as it is given.
pub(super) fn pieces(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(PIECE).map(move |first| {
        let piece = first..len.min(first + PIECE);
        count(piece.len());
        piece
    })
}

/// The elements of a slice, counted piece by piece: for folds, which are as fast as without it.
pub(super) fn elements<T>(slice: &[T]) -> impl Iterator<Item = &T> {
    let pieces = slice.chunks(PIECE);
    pieces.inspect(|piece| count(piece.len())).flatten()
}

/// Items, each of which is counted as it is given.
pub(super) fn counted<I: IntoIterator>(items: I) -> impl Iterator<Item = I::Item> {
    let mut looks = Looks::default();
    items.into_iter().inspect(move |_| looks.count(1))
}

/// [`count`] for a loop that is too tight to call it for each element.
pub(super) struct Looks {
    /// Elements that are not counted yet.
    pending: usize,
}

impl Default for Looks {
    /// The loop itself counts for one element: it may be one of many without any. Does not return if
    /// it is time to look, and the run should end.
    fn default() -> Self {
        count(1);
        Looks { pending: 0 }
    }
}

impl Looks {
    #[inline]
    pub(super) fn count(&mut self, elements: usize) {
        self.pending = self.pending.saturating_add(elements);
        if self.pending >= PIECE {
            count(std::mem::take(&mut self.pending));
        }
    }
}

impl Drop for Looks {
    /// Counts the rest, without a look: this may be an unwinding.
    fn drop(&mut self) {
        LEFT.set(LEFT.get().saturating_sub(self.pending));
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
        for step in [1, 100, BETWEEN * 2] {
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
            let elements = steps.get() * step;
            // The last step is not among them.
            assert!(
                elements + step >= BETWEEN && elements <= 2 * BETWEEN,
                "{step}: {elements}"
            );
        }
    }

    /// Loops, of which none is long enough to look.
    #[test]
    fn short_loops_look_together() {
        let loops: [fn(); 5] = [
            || count(10),
            || pieces(10).for_each(drop),
            || elements(&[0; 10]).for_each(drop),
            // A loop counts for one itself.
            || counted(0..9).for_each(drop),
            || Looks::default().count(9),
        ];
        for short in loops {
            let cancel = CancelToken::new();
            cancel.request();
            let control = RunControl {
                cancel: Some(cancel),
                deadline: None,
            };
            let ran = Cell::new(0);
            let outcome: Result<(), _> = bounded(&control, || {
                loop {
                    short();
                    ran.set(ran.get() + 1);
                    assert!(ran.get() < BETWEEN);
                }
            });
            assert!(matches!(outcome, Err(ComponentErrorKind::Cancelled)));
            assert!((BETWEEN / 10..=BETWEEN / 10 + 1).contains(&ran.get()));
        }
    }

    /// What lives on the reserve ends, whether or not anything else could end it, and whichever thread
    /// was refused memory.
    #[test]
    fn want_of_memory_ends_runs_without_a_deadline() {
        let control = RunControl::default();
        let (_, call) = crate::reserve::begin_call();
        let refused = bounded(&control, || {
            note_refused(40);
            Looks::default().count(BETWEEN);
            Ok(())
        });
        assert!(matches!(
            refused,
            Err(ComponentErrorKind::OutOfMemory { bytes: 40, .. })
        ));
        drop(call);
        let (_, _call) = crate::reserve::begin_call();
        let workers = Workers::new(2);
        let here = std::thread::current().id();
        let both = std::sync::Barrier::new(2);
        let refused = bounded(&control, || {
            workers.for_each(2, |_| {
                // One part on each thread.
                both.wait();
                if std::thread::current().id() != here {
                    note_refused(50);
                }
            });
            look();
            Ok(())
        });
        assert!(matches!(
            refused,
            Err(ComponentErrorKind::OutOfMemory { bytes: 50, .. })
        ));
        // The thread's next region is another call's.
        let (_, _call) = crate::reserve::begin_call();
        let again = bounded(&control, || {
            workers.for_each(2, |_| {
                both.wait();
            });
            look();
            Ok(())
        });
        assert!(again.is_ok());
    }

    #[test]
    fn pieces_are_the_whole() {
        for len in [0, 1, PIECE, PIECE + 1, 3 * PIECE - 1] {
            let positions: Vec<usize> = pieces(len).flatten().collect();
            assert!(positions.into_iter().eq(0..len), "{len}");
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
