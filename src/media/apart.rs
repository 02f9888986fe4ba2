//! Work of other crates that does not look whether the call is to end, on a thread of its own: the
//! caller's thread looks in its place, and goes without what is not wanted any more.
//!
//! Such a thread ends by itself a little later. Until then its code is in use, so whoever frees the
//! last runtime waits for it ([`finish`]): after that a host may unload the library.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::{MediaError, Work};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Threads whose results nobody waits for.
static LEFT: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// What `make` makes. Its memory counts as if it was made here; it may still be at work when this has
/// ended by the caller's wish. Without a thread to be had it is done here.
pub(super) fn apart<T: Send + 'static>(
    work: &Work,
    make: impl Fn(&Work) -> Result<T, MediaError> + Send + Sync + 'static,
) -> Result<T, MediaError> {
    let make = Arc::new(make);
    let (sender, receiver) = channel();
    let begin = {
        let (make, shared) = (make.clone(), work.share());
        move || {
            let work = Work::of(shared);
            let made = make(&work);
            // Nobody may be there any more.
            let _ = sender.send((made, work.taken()));
        }
    };
    let Ok(thread) = Builder::new().name("oxpipe-media".to_owned()).spawn(begin) else {
        return make(work);
    };
    loop {
        match receiver.recv_timeout(PAUSE) {
            Ok((made, taken)) => {
                // It has nothing left to do.
                let _ = thread.join();
                work.set_taken(taken);
                return made;
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(ended) = work.look() {
                    leave(thread);
                    return Err(ended);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                // It has panicked; so does the call, which makes an error of that.
                match thread.join() {
                    Err(panic) => resume_unwind(panic),
                    Ok(()) => return Err(MediaError::Cancelled),
                }
            }
        }
    }
}

fn leave(thread: JoinHandle<()>) {
    let mut left = LEFT.lock();
    left.retain(|thread| !thread.is_finished());
    left.push(thread);
}

/// Waits until no thread is at work for nobody.
pub(crate) fn finish() {
    let left = std::mem::take(&mut *LEFT.lock());
    for thread in left {
        // A panic in it is nobody's any more.
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::component::{CancelToken, RunControl};

    #[test]
    fn what_it_makes_and_takes_is_as_if_it_was_made_here() {
        let work = Work::default();
        let made = apart(&work, |work| Ok(work.room::<u8>(1000)?.capacity()));
        assert!(made.unwrap() >= 1000);
        assert_eq!(work.taken(), 1000);
        let failed = apart(&work, |_| Err::<(), _>(MediaError::OutOfMemory { bytes: 7 }));
        assert_eq!(failed, Err(MediaError::OutOfMemory { bytes: 7 }));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            apart(&work, |_| -> Result<(), _> { panic!("so") })
        }));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"so"));
    }

    #[test]
    fn a_call_ends_while_it_is_at_work_and_it_is_waited_for_in_the_end() {
        static MAY_END: AtomicBool = AtomicBool::new(false);
        static HAS_ENDED: AtomicBool = AtomicBool::new(false);
        let token = CancelToken::new();
        let work = Work::new(&RunControl {
            cancel: Some(token.clone()),
            deadline: None,
        });
        let outcome = apart(&work, move |_| {
            token.request();
            while !MAY_END.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            HAS_ENDED.store(true, Ordering::SeqCst);
            Ok(())
        });
        assert_eq!(outcome, Err(MediaError::Cancelled));
        assert!(!HAS_ENDED.load(Ordering::SeqCst));
        MAY_END.store(true, Ordering::SeqCst);
        finish();
        assert!(HAS_ENDED.load(Ordering::SeqCst));
    }
}
