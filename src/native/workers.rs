//! Threads that share the loops of kernels.
//!
//! A *region* is a loop over parts that run at the same time: [`Workers::for_each`] and, for
//! loops that write, [`Workers::split_mut`] and its kin, which hand disjoint pieces of a slice to
//! the parts, so that kernels need no `unsafe` for it. The caller works too; it returns when all
//! parts are done.
//!
//! Results must not depend on the number of threads. What a part is must therefore be no
//! business of the threads where it could be seen: a *reduction* (sums of a dot product, a split
//! of keys) is cut by the shapes alone. Loops whose elements do not depend on each other may be
//! cut anyhow, [`Workers::chunk`] does it.
//!
//! A region costs about a microsecond while the threads are awake (they spin for
//! [`SPIN`] after a region), some ten when they must be woken. So a part must be worth
//! [`MIN_PART`] simple operations, and what is smaller stays on the caller.
//!
//! - One thread: none is made. More: they are made by the first region that wants them, and end
//!   when the last handle is dropped. If the system gives fewer, those do.
//! - One region at a time. A region that is asked for inside of a part, or while another thread
//!   of the host has one, runs on its caller alone; so there are never more threads at work than
//!   asked for, and those of the host.
//! - In a child process after fork, where the threads are not, nobody takes a part but the
//!   caller, which works alone then.
//! - A part that panics ends the region: parts that have not begun are left out, and the panic
//!   goes on in the caller once all others are done. So does a run that is to end (see `ending`).
//! - Each thread takes neighbouring parts as long as it has some of its own, and what is left of
//!   another's after that: what is read of one part leads on to the next, and so does the
//!   processor's looking ahead.
//! - Nothing is allocated for a region.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use crate::panics::{Panic, contain};

use super::ending;
use super::meeting::{
    AtomicBool, AtomicU64, AtomicUsize, Builder, JoinHandle, Mutex, MutexGuard, Slot, Thread, current, park,
    spin,
};

/// How long a thread looks for the next region before it sleeps, and a caller for the end of
/// its region.
pub const SPIN: Duration = Duration::from_micros(40);

/// Simple operations (an element read, changed and written; four multiply-adds) that a part
/// should be worth: about 10 microseconds of work.
pub const MIN_PART: usize = 16 << 10;

/// Simple operations that a part is worth at most where elements do not depend on each other: some
/// milliseconds, between which a run can end.
const MOST_PART: usize = MIN_PART << 8;

/// Parts that a loop of independent elements is cut into, for each thread: a thread that is
/// held up leaves its share to the others.
const PARTS_PER_THREAD: usize = 4;

/// A team of threads and how many of them may be used. Clones share the team.
#[derive(Clone)]
pub struct Workers {
    team: Option<Arc<Team>>,
    limit: usize,
}

impl Workers {
    /// The caller alone.
    pub const fn alone() -> Self {
        Workers { team: None, limit: 1 }
    }

    /// A team of `threads`, the caller included.
    pub fn new(threads: usize) -> Self {
        if threads <= 1 {
            return Self::alone();
        }
        Workers {
            team: Some(Arc::new(Team::new(threads))),
            limit: threads,
        }
    }

    /// The same team, of which at most `threads` are used.
    pub fn limited_to(&self, threads: usize) -> Self {
        let limit = threads.clamp(1, self.limit);
        Workers {
            team: self.team.clone().filter(|_| limit > 1),
            limit,
        }
    }

    /// Threads that a region may use, the caller included.
    pub fn threads(&self) -> usize {
        self.limit
    }

    /// Elements per part for a loop over `len` elements that do not depend on each other, each
    /// worth `work` simple operations. At least 1.
    pub fn chunk(&self, len: usize, work: usize) -> usize {
        let most = MOST_PART.div_ceil(work.max(1));
        if self.limit <= 1 {
            return len.clamp(1, most);
        }
        let least = MIN_PART.div_ceil(work.max(1));
        len.div_ceil(self.limit * PARTS_PER_THREAD).clamp(least, most)
    }

    /// Calls `part` with 0, 1, ... `parts` - 1, in no order and at the same time.
    pub fn for_each(&self, parts: usize, part: impl Fn(usize) + Sync) {
        self.run(parts, &|index, _| part(index));
    }

    /// Cuts `data` into pieces of `chunk` elements (the last may be shorter) and calls `part` with
    /// each piece and its index. `chunk` is at least 1.
    pub fn split_mut<T: Send>(&self, data: &mut [T], chunk: usize, part: impl Fn(usize, &mut [T]) + Sync) {
        let pieces = Pieces::new(data, chunk);
        self.run(pieces.count(), &|index, _| {
            // SAFETY: each index is given to one call of one region.
            part(index, unsafe { pieces.get(index) });
        });
    }

    /// [`split_mut`](Self::split_mut) of two slices at once: as many parts as the longer has
    /// pieces; the other's may be empty.
    pub fn split_mut_2<A: Send, B: Send>(
        &self,
        (a, a_chunk): (&mut [A], usize),
        (b, b_chunk): (&mut [B], usize),
        part: impl Fn(usize, &mut [A], &mut [B]) + Sync,
    ) {
        let (a, b) = (Pieces::new(a, a_chunk), Pieces::new(b, b_chunk));
        self.run(a.count().max(b.count()), &|index, _| {
            // SAFETY: each index is given to one call of one region.
            unsafe { part(index, a.get(index), b.get(index)) };
        });
    }

    /// [`for_each`](Self::for_each) with working memory: `rooms` is cut into one piece for each
    /// of [`threads`](Self::threads), of the same length, and a part gets the piece of the thread
    /// that runs it, as the last part on it left it.
    pub fn for_each_with<R: Send>(
        &self,
        parts: usize,
        rooms: &mut [R],
        part: impl Fn(usize, &mut [R]) + Sync,
    ) {
        let each = rooms.len() / self.limit.max(1);
        let rooms = Pieces::new(&mut rooms[..each * self.limit], each.max(1));
        self.run(parts, &|index, lane| {
            // SAFETY: a lane is one thread, which runs one part at a time.
            part(index, unsafe { rooms.get(lane) });
        });
    }

    /// [`split_mut`](Self::split_mut) with working memory as in
    /// [`for_each_with`](Self::for_each_with).
    pub fn split_mut_with<T: Send, R: Send>(
        &self,
        data: &mut [T],
        chunk: usize,
        rooms: &mut [R],
        part: impl Fn(usize, &mut [T], &mut [R]) + Sync,
    ) {
        let pieces = Pieces::new(data, chunk);
        self.for_each_with(pieces.count(), rooms, |index, room| {
            // SAFETY: each index is given to one call of one region.
            part(index, unsafe { pieces.get(index) }, room);
        });
    }

    /// [`split_mut_with`](Self::split_mut_with) of three slices at once: as many parts as the one of
    /// the most pieces has; others may be empty.
    pub fn split_mut_3_with<A: Send, B: Send, C: Send, R: Send>(
        &self,
        (a, a_chunk): (&mut [A], usize),
        (b, b_chunk): (&mut [B], usize),
        (c, c_chunk): (&mut [C], usize),
        rooms: &mut [R],
        part: impl Fn(usize, (&mut [A], &mut [B], &mut [C]), &mut [R]) + Sync,
    ) {
        let (a, b, c) = (
            Pieces::new(a, a_chunk),
            Pieces::new(b, b_chunk),
            Pieces::new(c, c_chunk),
        );
        let parts = a.count().max(b.count()).max(c.count());
        self.for_each_with(parts, rooms, |index, room| {
            // SAFETY: each index is given to one call of one region.
            let pieces = unsafe { (a.get(index), b.get(index), c.get(index)) };
            part(index, pieces, room);
        });
    }

    /// Calls `part` with the index of a part and the lane that runs it: a number below
    /// `threads` that no two calls have at the same time.
    fn run(&self, parts: usize, part: &Part<'_>) {
        if parts > 1 && ending::is_possible() {
            // The caller is lane 0. Other threads have nothing that could end them.
            return self.run_all(parts, &|index, lane| {
                if lane == 0 {
                    ending::look();
                }
                part(index, lane);
            });
        }
        self.run_all(parts, part);
    }

    fn run_all(&self, parts: usize, part: &Part<'_>) {
        let region = match &self.team {
            Some(team) if parts > 1 => team.enter(),
            _ => None,
        };
        match region {
            Some(region) => region.run(self.limit, parts, part),
            None => (0..parts).for_each(|index| part(index, 0)),
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workers({})", self.limit)
    }
}

/// `(index, lane)`
type Part<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Disjoint pieces of a slice, to be taken by index from any thread.
struct Pieces<T> {
    first: *mut T,
    len: usize,
    chunk: usize,
}

// SAFETY: shared, it only gives out exclusive pieces, to one thread each (`get`), and `T` may go
// to another thread.
unsafe impl<T: Send> Sync for Pieces<T> {}

impl<T> Pieces<T> {
    fn new(data: &mut [T], chunk: usize) -> Self {
        Pieces {
            first: data.as_mut_ptr(),
            len: data.len(),
            chunk: chunk.max(1),
        }
    }

    fn count(&self) -> usize {
        self.len.div_ceil(self.chunk)
    }

    /// The piece of this index; empty behind the last.
    ///
    /// # Safety
    /// The slice is still borrowed by the caller of `new`, and no two references to the piece of
    /// one index are alive at once.
    #[expect(clippy::mut_from_ref, reason = "the contract makes it exclusive")]
    unsafe fn get(&self, index: usize) -> &mut [T] {
        let start = index.saturating_mul(self.chunk).min(self.len);
        let len = self.chunk.min(self.len - start);
        // SAFETY: `start + len` is no more than the slice's length; pieces of different indices
        // do not overlap, and of one index the caller has only one.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(start), len) }
    }
}

/// The threads of a team, once they were needed.
struct Team {
    threads: usize,
    crew: OnceLock<Crew>,
}

struct Crew {
    /// Where the threads are: a child process has none of them, and must not join them.
    process: u32,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Team {
    const fn new(threads: usize) -> Self {
        Team {
            threads,
            crew: OnceLock::new(),
        }
    }

    /// The right to a region; `None` when the caller is to work alone.
    fn enter(&self) -> Option<Region<'_>> {
        let crew = self.crew.get_or_init(|| Crew::start(self.threads));
        if crew.threads.is_empty() {
            return None;
        }
        let taken = &crew.shared.taken;
        // Read first: most that find it taken do so for a while.
        let free = !taken.load(Ordering::Relaxed) && !taken.swap(true, Ordering::Acquire);
        free.then(|| Region { crew })
    }
}

impl Crew {
    fn start(threads: usize) -> Self {
        let shared = Arc::new(Shared::new(threads - 1));
        let start = |index: usize| {
            let shared = shared.clone();
            let name = format!("oxpipe-{}", index + 1);
            Builder::new().name(name).spawn(move || shared.work(index)).ok()
        };
        let threads = without_signals(|| (0..threads - 1).map_while(start).collect());
        Crew {
            process: std::process::id(),
            shared,
            threads,
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // There is nothing to end here, and nothing that could be joined.
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.shared.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It contains its panics.
            let _ = thread.join();
        }
    }
}

/// Runs `start` with all signals blocked that are sent to a process, so that threads made by it
/// never run a handler of the host.
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    use std::mem::MaybeUninit;
    use std::ptr::null_mut;
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` initialises the set that the calls after it read. Signals of a thread's
    // own faults stay as they are.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in [
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGTRAP,
        ] {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = start();
    if blocked {
        // SAFETY: the call that blocked the signals has set `before`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    }
    result
}

/// What the threads of a team and the caller of a region share.
struct Shared {
    /// Some caller has a region.
    taken: AtomicBool,
    /// The threads that may take part (high half) and the parts that nobody has taken (low half).
    tickets: AtomicU64,
    /// The parts that are not done.
    unfinished: AtomicUsize,
    /// For each lane the parts that are its own.
    shares: Vec<Share>,
    /// What to run. Written by the caller of a region while there are no tickets, read by who has
    /// taken one of its tickets: until that part is done the region goes on.
    part: Slot<*const Part<'static>>,
    /// A part has panicked: what is left need not be run.
    failed: AtomicBool,
    /// Bytes that a thread of the team was refused and got of the [reserve](crate::reserve), for the
    /// caller's call; 0 for none. Nobody waits for it: who reads it has waited for the parts.
    refused: std::sync::atomic::AtomicUsize,
    /// The first panic of a thread of the team.
    panic: Mutex<Option<Panic>>,
    /// The caller that sleeps until its region is done.
    sleeper: Mutex<Option<Thread>>,
    caller_sleeps: AtomicBool,
    /// For each thread whether it sleeps.
    asleep: Vec<AtomicBool>,
    /// The team is dropped.
    over: AtomicBool,
}

// SAFETY: `part` is the only field that is not so of itself. It is written by the holder of
// `taken` when `tickets` has none left and `unfinished` is zero, that is, when no thread may read
// it; a ticket is taken with an acquiring exchange that sees the releasing store which published
// it, after `part` was written. What it points to is `Sync`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Parts of a region that one lane runs before it helps the others. On a line of memory of its own, as
/// it is written for every part.
#[derive(Default)]
#[repr(align(64))]
struct Share {
    /// The part that comes next; past the end when there is none left.
    next: AtomicUsize,
    end: AtomicUsize,
}

impl Share {
    /// Only between regions.
    fn set(&self, parts: Range<usize>) {
        self.next.store(parts.start, Ordering::Relaxed);
        self.end.store(parts.end, Ordering::Relaxed);
    }

    fn take(&self) -> Option<usize> {
        let end = self.end.load(Ordering::Relaxed);
        // So that `next` does not grow with every look at what has been used up.
        if self.next.load(Ordering::Relaxed) >= end {
            return None;
        }
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|&part| part < end)
    }
}

fn ticket(limit: usize, parts: u32) -> u64 {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    u64::from(limit) << 32 | u64::from(parts)
}

impl Shared {
    fn new(threads: usize) -> Self {
        fn nothing(_: usize, _: usize) {}
        Shared {
            taken: AtomicBool::new(false),
            tickets: AtomicU64::new(0),
            unfinished: AtomicUsize::new(0),
            shares: (0..=threads).map(|_| Share::default()).collect(),
            part: Slot::new(std::ptr::from_ref::<Part<'static>>(&nothing)),
            failed: AtomicBool::new(false),
            refused: std::sync::atomic::AtomicUsize::new(0),
            panic: Mutex::new(None),
            sleeper: Mutex::new(None),
            caller_sleeps: AtomicBool::new(false),
            asleep: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            over: AtomicBool::new(false),
        }
    }

    /// Whether there is a part for the thread of this lane.
    fn is_wanted(&self, lane: usize) -> bool {
        let tickets = self.tickets.load(Ordering::SeqCst);
        tickets as u32 > 0 && lane < (tickets >> 32) as usize
    }

    /// The index of a part that is now the caller's to run.
    fn take(&self, lane: usize) -> Option<usize> {
        let mut tickets = self.tickets.load(Ordering::Relaxed);
        loop {
            // Should the region change before the exchange, the same number stands for a ticket of
            // the next one, which is as good.
            let left = tickets as u32;
            if left == 0 || lane >= (tickets >> 32) as usize {
                return None;
            }
            match self.tickets.compare_exchange_weak(
                tickets,
                tickets - 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return self.claim(lane),
                Err(now) => tickets = now,
            }
        }
    }

    /// The part for a ticket that the lane has taken: there is one, as there are as many tickets as
    /// parts in all shares, and nobody takes a part without one.
    fn claim(&self, lane: usize) -> Option<usize> {
        let (before, own) = self.shares.split_at(lane.min(self.shares.len()));
        let part = own.iter().chain(before).find_map(Share::take);
        debug_assert!(part.is_some(), "a ticket without a part");
        part
    }

    /// Shares the parts out among so many lanes. Only between regions.
    fn deal(&self, parts: usize, lanes: usize) {
        let (each, more) = (parts / lanes, parts % lanes);
        let mut first = 0;
        for (lane, share) in self.shares.iter().enumerate() {
            let count = if lane < lanes {
                each + usize::from(lane < more)
            } else {
                0
            };
            share.set(first..first + count);
            first += count;
        }
    }

    /// Runs parts while there are any.
    fn help(&self, lane: usize) {
        while let Some(index) = self.take(lane) {
            if !self.failed.load(Ordering::Relaxed) {
                // SAFETY: a ticket of the region is taken and its part is not done, so the caller
                // still waits in `Region::run`, which borrows what the pointer points to.
                let part = unsafe { &*self.part.read() };
                if let Err(panic) = contain(|| part(index, lane)) {
                    self.failed.store(true, Ordering::Relaxed);
                    lock(&self.panic).get_or_insert(panic);
                }
                if let Some(bytes) = ending::take_refused() {
                    self.refused.fetch_max(bytes, Ordering::Relaxed);
                }
            }
            self.done();
        }
    }

    /// A part is done, or left out.
    fn done(&self) {
        let last = self.unfinished.fetch_sub(1, Ordering::SeqCst) == 1;
        if last
            && self.caller_sleeps.load(Ordering::SeqCst)
            && let Some(caller) = &*lock(&self.sleeper)
        {
            caller.unpark();
        }
    }

    /// The life of a thread.
    fn work(&self, index: usize) {
        let lane = index + 1;
        while !self.over.load(Ordering::SeqCst) {
            if spin(|| self.is_wanted(lane) || self.over.load(Ordering::Relaxed)) {
                self.help(lane);
                continue;
            }
            let Some(asleep) = self.asleep.get(index) else {
                return;
            };
            asleep.store(true, Ordering::SeqCst);
            // Who publishes a region looks at `asleep` after it, so one of the two sees the other.
            while !self.is_wanted(lane) && !self.over.load(Ordering::SeqCst) {
                park();
            }
            asleep.store(false, Ordering::SeqCst);
        }
    }
}

/// Nothing panics under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to run a region, given back when dropped.
struct Region<'a> {
    crew: &'a Crew,
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        self.crew.shared.taken.store(false, Ordering::Release);
    }
}

impl Region<'_> {
    fn run(self, limit: usize, parts: usize, part: &Part<'_>) {
        // More tickets than fit do not occur; what does not fit is run here first.
        let shared_parts = u32::try_from(parts).unwrap_or(u32::MAX);
        (shared_parts as usize..parts).for_each(|index| part(index, 0));
        let own = self.share(limit, shared_parts, part);
        let panic = lock(&self.crew.shared.panic).take();
        let refused = self.crew.shared.refused.swap(0, Ordering::Relaxed);
        drop(self);
        if refused > 0 {
            ending::note_refused(refused);
        }
        if let Err(payload) = own {
            resume_unwind(payload);
        }
        if let Some(panic) = panic {
            panic.resume();
        }
    }

    /// Runs the parts on all threads; when it returns nobody uses `part` any more. The panic of
    /// a part that ran here is its error.
    fn share(&self, limit: usize, parts: u32, part: &Part<'_>) -> std::thread::Result<()> {
        let shared = &*self.crew.shared;
        // SAFETY: only the lifetime is made up. The pointer is read by holders of a ticket of
        // this region alone, all of whom are done before this function returns, and there is no
        // way out of it before.
        let lent: *const Part<'static> = unsafe { std::mem::transmute(std::ptr::from_ref(part)) };
        // SAFETY: this thread has the region, and those before it have no ticket left and no part
        // that is not done, so nobody reads.
        unsafe { shared.part.write(lent) };
        shared.failed.store(false, Ordering::Relaxed);
        let lanes = limit.min(parts as usize).clamp(1, shared.shares.len());
        shared.deal(parts as usize, lanes);
        shared.unfinished.store(parts as usize, Ordering::Relaxed);
        shared.tickets.store(ticket(limit, parts), Ordering::SeqCst);
        let others = limit.min(parts as usize).saturating_sub(1);
        for (asleep, thread) in shared.asleep.iter().zip(&self.crew.threads).take(others) {
            if asleep.load(Ordering::SeqCst) {
                thread.thread().unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| {
            while let Some(index) = shared.take(0) {
                let done = Done(shared);
                if !shared.failed.load(Ordering::Relaxed) {
                    part(index, 0);
                }
                drop(done);
            }
        }));
        if own.is_err() {
            shared.failed.store(true, Ordering::Relaxed);
            while shared.take(0).is_some() {
                shared.done();
            }
        }
        self.wait();
        own
    }

    /// Returns when all parts are done.
    fn wait(&self) {
        let shared = &*self.crew.shared;
        let is_done = || shared.unfinished.load(Ordering::SeqCst) == 0;
        if spin(is_done) {
            return;
        }
        *lock(&shared.sleeper) = Some(current());
        shared.caller_sleeps.store(true, Ordering::SeqCst);
        while !is_done() {
            park();
        }
        shared.caller_sleeps.store(false, Ordering::SeqCst);
        *lock(&shared.sleeper) = None;
    }
}

/// Counts a part as done, also when it panics.
struct Done<'a>(&'a Shared);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// How often each part of a region ran.
    fn count_parts(workers: &Workers, parts: usize) -> Vec<usize> {
        let counts: Vec<_> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
        workers.for_each(parts, |part| {
            counts[part].fetch_add(1, Ordering::Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_part_runs_once() {
        for threads in [0, 1, 2, 3, 8] {
            let workers = Workers::new(threads);
            for round in 0..2000 {
                let parts = round % 17;
                assert_eq!(count_parts(&workers, parts), vec![1; parts], "{threads} threads");
            }
        }
    }

    #[test]
    fn a_lane_takes_neighbouring_parts_and_then_those_of_others() {
        let shared = Shared::new(2);
        let takes =
            |lane: usize, count: usize| -> Vec<_> { (0..count).filter_map(|_| shared.claim(lane)).collect() };
        shared.deal(8, 2);
        assert_eq!(takes(1, 1), [4]);
        assert_eq!(takes(0, 7), [0, 1, 2, 3, 5, 6, 7]);
        shared.deal(5, 3);
        assert_eq!(takes(1, 1), [2]);
        assert_eq!(takes(2, 4), [4, 0, 1, 3]);
        shared.deal(2, 1);
        assert_eq!(takes(2, 2), [0, 1]);
    }

    #[test]
    fn sleeping_threads_wake_for_a_region() {
        let workers = Workers::new(3);
        for _ in 0..20 {
            assert_eq!(count_parts(&workers, 5), [1; 5]);
            std::thread::sleep(SPIN * 4);
        }
    }

    #[test]
    fn pieces_cover_a_slice_without_overlap() {
        let workers = Workers::new(4);
        for len in [0, 1, 7, 64, 1000] {
            for chunk in [1, 3, 64, 5000] {
                let mut data = vec![0; len];
                workers.split_mut(&mut data, chunk, |index, piece| {
                    for (i, x) in piece.iter_mut().enumerate() {
                        *x += index * chunk + i + 1;
                    }
                });
                assert!(
                    data.iter().enumerate().all(|(i, &x)| x == i + 1),
                    "{len} by {chunk}"
                );
            }
        }
        let (mut a, mut b) = (vec![0; 10], vec![0; 3]);
        workers.split_mut_2((&mut a, 2), (&mut b, 1), |index, a, b| {
            a.fill(index);
            b.fill(index);
        });
        assert_eq!((a, b), (vec![0, 0, 1, 1, 2, 2, 3, 3, 4, 4], vec![0, 1, 2]));
    }

    #[test]
    fn working_memory_belongs_to_one_thread_at_a_time() {
        let workers = Workers::new(4);
        let mut rooms = vec![0; 4 * 100];
        let mut sums = vec![0; 500];
        workers.split_mut_with(&mut sums, 1, &mut rooms, |index, sum, room| {
            assert_eq!(room.len(), 100);
            room.fill(index);
            std::thread::yield_now();
            sum[0] = room.iter().sum();
        });
        assert!(sums.iter().enumerate().all(|(i, &sum)| sum == i * 100));
    }

    #[test]
    fn a_region_inside_of_a_part_runs() {
        let workers = Workers::new(2);
        let total = AtomicUsize::new(0);
        workers.for_each(8, |_| {
            workers.for_each(8, |_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(total.into_inner(), 64);
    }

    #[test]
    fn no_more_threads_work_than_a_handle_allows() {
        let team = Workers::new(8);
        let workers = team.limited_to(2);
        assert_eq!((workers.threads(), team.limited_to(100).threads()), (2, 8));
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        for _ in 0..50 {
            // Wakes the others, who must not take part in what follows.
            count_parts(&team, 16);
            workers.for_each(16, |_| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
            });
        }
        assert!(most.into_inner() <= 2);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_goes_on() {
        let workers = Workers::new(3);
        for round in 0..200 {
            let ran = AtomicUsize::new(0);
            let panic = contain(|| {
                workers.for_each(20, |part| {
                    ran.fetch_add(1, Ordering::Relaxed);
                    assert!(part != round % 20, "part {part} fails");
                });
            })
            .expect_err("a part panics");
            let message = panic.to_string();
            assert!(
                message.contains("fails") && message.contains("workers.rs"),
                "{message}"
            );
            assert!((1..=20).contains(&ran.into_inner()));
            assert_eq!(count_parts(&workers, 9), [1; 9]);
        }
    }

    #[test]
    fn several_callers_share_a_team() {
        let workers = Workers::new(3);
        std::thread::scope(|scope| {
            for caller in 0..4 {
                let workers = workers.clone();
                scope.spawn(move || {
                    for round in 0..2000 {
                        let parts = (caller + round) % 9;
                        assert_eq!(count_parts(&workers, parts), vec![1; parts]);
                        if caller == 0 && round % 50 == 0 {
                            let fails = || workers.for_each(4, |part| assert!(part == 9, "always"));
                            assert!(contain(fails).is_err());
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_caller_sleeps_until_a_slow_part_is_done() {
        let workers = Workers::new(2);
        for _ in 0..10 {
            let slow = AtomicUsize::new(0);
            workers.for_each(2, |part| {
                // Whoever has part 1; the other waits for it.
                if part == 1 {
                    std::thread::sleep(SPIN * 10);
                    slow.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(slow.into_inner(), 1);
        }
    }

    #[test]
    fn a_team_ends_asleep_awake_and_unused() {
        for round in 0..50 {
            let workers = Workers::new(4);
            if round % 3 > 0 {
                count_parts(&workers, 8);
            }
            if round % 3 > 1 {
                std::thread::sleep(SPIN * 3);
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_child_process_works_alone() {
        let workers = Workers::new(3);
        count_parts(&workers, 8);
        // SAFETY: the child calls nothing but what is below, and ends without running anything of
        // its parent's.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let sum = AtomicUsize::new(0);
            workers.for_each(8, |part| {
                sum.fetch_add(part, Ordering::Relaxed);
            });
            drop(workers);
            let right = sum.into_inner() == 28;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = -1;
        // SAFETY: `status` is there.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(count_parts(&workers, 8), [1; 8]);
    }

    #[test]
    fn chunks_are_worth_a_region() {
        let workers = Workers::new(2);
        assert!(workers.chunk(1000, 1) >= 1000);
        assert_eq!(workers.chunk(1 << 20, 1), 1 << 17);
        assert_eq!(Workers::alone().chunk(1 << 20, 1), 1 << 20);
        // A run can end between two parts, on one thread too.
        assert_eq!(Workers::alone().chunk(1 << 30, 2), MOST_PART / 2);
        assert_eq!(workers.chunk(1 << 30, 2), MOST_PART / 2);
        assert_eq!(workers.chunk(0, 0), MIN_PART);
    }
}
