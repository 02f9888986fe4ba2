//! Threads that share handles: what the table, objects of one call at a time and batches promise to hosts
//! of many threads. scripts/sanitizers.sh runs it under ThreadSanitizer.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::batch::{
    oxp_batch, oxp_batch_add, oxp_batch_create, oxp_batch_free, oxp_batch_get_count, oxp_batch_remove,
    oxp_batch_step,
};
use super::cancel::{oxp_cancel, oxp_cancel_create, oxp_cancel_free, oxp_cancel_request, oxp_cancel_reset};
use super::handle::{self, Object, Serial, State, Tag};
use super::options::{oxp_options, oxp_options_create, oxp_options_free, oxp_options_set};
use super::pipeline::{oxp_pipeline, oxp_pipeline_free, oxp_pipeline_open};
use super::run::{oxp_run, oxp_run_append_tokens, oxp_run_create, oxp_run_free, oxp_run_generate};
use super::run_values::oxp_run_tokens_copy;
use super::status::{
    OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_BUSY, OXP_ERR_CANCELLED, OXP_ERR_INVALID_HANDLE, OXP_OK, oxp_status,
};

#[path = "../../tests/pipeline/tiny_decoder.rs"]
mod tiny_decoder;

/// Runs `work` on so many threads, with their numbers.
fn on_threads(count: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || work(index))).collect();
        for thread in threads {
            thread.join().expect("no thread panics");
        }
    });
}

/// Something in the table that is told from others, and counted while it lives.
struct Counted {
    number: usize,
    alive: Arc<AtomicUsize>,
}

impl Counted {
    fn new(number: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Counted {
            number,
            alive: alive.clone(),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.number = usize::MAX;
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Object for Counted {
    type Opaque = oxp_cancel;
    const TAG: Tag = Tag::Cancel;
}

#[test]
fn a_handle_is_its_object_or_freed_whoever_frees_it() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 300;
    let alive = Arc::new(AtomicUsize::new(0));
    // The handle that each thread has made last, and its number.
    let shown: Vec<_> = (0..THREADS).map(|_| AtomicUsize::new(0)).collect();
    let taken_away = AtomicUsize::new(0);
    on_threads(THREADS, |thread| {
        for round in 0..ROUNDS {
            let number = thread * ROUNDS + round;
            let own = handle::create(Counted::new(number, &alive));
            let object = handle::get::<Counted>(own, "own").ok();
            assert!(object.is_some_and(|object| object.number == number));
            let before = shown[thread].swap(own.addr(), Ordering::Relaxed);
            let other = (thread + round) % THREADS;
            let found = without_provenance_mut::<oxp_cancel>(shown[other].load(Ordering::Relaxed));
            match handle::get::<Counted>(found, "found") {
                Ok(object) => {
                    assert_eq!(object.number / ROUNDS, other);
                    // Somebody else's, in the middle of a call of ours.
                    if round % 3 == 0 {
                        let removed = handle::remove::<Counted>(found);
                        taken_away.fetch_add(removed.is_some().into(), Ordering::Relaxed);
                    }
                    assert_eq!(object.number / ROUNDS, other);
                }
                Err(failure) => assert_eq!(failure.code(), OXP_ERR_INVALID_HANDLE),
            }
            drop(handle::remove::<Counted>(without_provenance_mut::<oxp_cancel>(
                before,
            )));
        }
    });
    for shown in shown {
        drop(handle::remove::<Counted>(without_provenance_mut::<oxp_cancel>(
            shown.into_inner(),
        )));
    }
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    assert!(taken_away.into_inner() > 0);
}

#[test]
fn an_object_of_one_call_at_a_time_has_one() {
    /// Numbers without a lock of their own.
    struct Sums([usize; 2]);
    impl State for Sums {
        fn roll_back(&mut self) {}
    }
    const ROUNDS: usize = 2000;
    let serial = Serial::new(Sums([0, 0]));
    on_threads(4, |_| {
        for _ in 0..ROUNDS {
            let mut turn = loop {
                match serial.enter() {
                    Ok(turn) => break turn,
                    Err(failure) => assert_eq!(failure.code(), OXP_ERR_BUSY),
                }
                thread::yield_now();
            };
            turn.0[0] += 1;
            turn.0[1] = turn.0[0];
        }
    });
    let turn = serial.enter().expect("nobody else is there");
    assert_eq!(turn.0, [4 * ROUNDS; 2]);
}

/// Handles as numbers, which threads may share.
#[derive(Clone, Copy)]
struct Shared {
    pipeline: usize,
    batch: usize,
    cancel: usize,
}

impl Shared {
    fn pipeline(self) -> *mut oxp_pipeline {
        without_provenance_mut::<oxp_pipeline>(self.pipeline)
    }

    fn batch(self) -> *mut oxp_batch {
        without_provenance_mut::<oxp_batch>(self.batch)
    }

    fn cancel(self) -> *mut oxp_cancel {
        without_provenance_mut::<oxp_cancel>(self.cancel)
    }
}

fn options(kind: u32, settings: &[(&str, &str)]) -> *mut oxp_options {
    let mut options = null_mut();
    // SAFETY: the arguments are as the header says; texts have their lengths.
    unsafe {
        assert_eq!(oxp_options_create(kind, &raw mut options, null_mut()), OXP_OK);
        for (key, value) in settings {
            let (key_len, value_len) = (key.len() as u64, value.len() as u64);
            let (key, value) = (key.as_ptr().cast(), value.as_ptr().cast());
            let set = oxp_options_set(options, key, key_len, value, value_len, null_mut());
            assert_eq!(set, OXP_OK);
        }
    }
    options
}

fn open() -> Shared {
    const PIPELINE: u32 = 3;
    let folder = tempfile::tempdir().expect("a temporary folder");
    tiny_decoder::write(folder.path());
    let path = folder.path().as_os_str().as_encoded_bytes();
    let (len, path) = (path.len() as u64, path.as_ptr().cast::<c_char>());
    let options = options(
        PIPELINE,
        &[("prefix_cache_bytes", "100000"), ("backend", "native")],
    );
    let (mut pipeline, mut batch, mut cancel) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the arguments are as the header says.
    unsafe {
        let out = &raw mut pipeline;
        let opened = oxp_pipeline_open(
            null(),
            path,
            len,
            options,
            out,
            None,
            null_mut(),
            null(),
            null_mut(),
        );
        assert_eq!(opened, OXP_OK);
        oxp_options_free(options);
        assert_eq!(oxp_batch_create(pipeline, &raw mut batch, null_mut()), OXP_OK);
        assert_eq!(oxp_cancel_create(&raw mut cancel, null_mut()), OXP_OK);
    }
    Shared {
        pipeline: pipeline.addr(),
        batch: batch.addr(),
        cancel: cancel.addr(),
    }
}

const CHOSEN: usize = 6;

/// A run of `CHOSEN` tokens behind a prompt.
fn run_of(shared: Shared, prompt: &[i32]) -> *mut oxp_run {
    const RUN: u32 = 4;
    let options = options(RUN, &[("max_tokens", "6")]);
    let mut run = null_mut();
    // SAFETY: the arguments are as the header says.
    unsafe {
        assert_eq!(
            oxp_run_create(shared.pipeline(), options, &raw mut run, null_mut()),
            OXP_OK
        );
        oxp_options_free(options);
        let count = prompt.len() as u64;
        assert_eq!(
            oxp_run_append_tokens(run, prompt.as_ptr(), count, null_mut()),
            OXP_OK
        );
    }
    run
}

/// The prompt and what follows it: each token is the sum of all before it, modulo eight.
fn expected(prompt: &[i32]) -> Vec<i32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..CHOSEN {
        tokens.push(tokens.iter().sum::<i32>() % 8);
    }
    tokens
}

/// Calls until the run is no other call's.
fn when_free(mut call: impl FnMut() -> oxp_status) -> oxp_status {
    loop {
        match call() {
            OXP_ERR_BUSY => thread::yield_now(),
            status => return status,
        }
    }
}

fn tokens_of(run: *mut oxp_run) -> Vec<i32> {
    let (mut tokens, mut needed) = ([0; 32], 0);
    let status = when_free(|| {
        // SAFETY: the buffer has as many ids.
        unsafe { oxp_run_tokens_copy(run, tokens.as_mut_ptr(), 32, &raw mut needed, null_mut()) }
    });
    assert!(status == OXP_OK || status == OXP_ERR_BUFFER_TOO_SMALL);
    tokens[..needed as usize].to_vec()
}

/// Steps the batch until it is over. `steps` counts.
fn step_batch(shared: Shared, over: &AtomicBool, steps: &AtomicUsize) {
    while !over.load(Ordering::Relaxed) {
        let mut stepped = 0;
        let (out, cancel) = (&raw mut stepped, shared.cancel());
        // SAFETY: the arguments are as the header says.
        match unsafe {
            oxp_batch_step(
                shared.batch(),
                out,
                None,
                null_mut::<c_void>(),
                cancel,
                null_mut(),
            )
        } {
            OXP_OK => steps.fetch_add(stepped as usize, Ordering::Relaxed),
            OXP_ERR_CANCELLED => {
                // SAFETY: as above.
                assert_eq!(unsafe { oxp_cancel_reset(cancel, null_mut()) }, OXP_OK);
                0
            }
            // The other that steps.
            status => {
                assert_eq!(status, OXP_ERR_BUSY);
                0
            }
        };
        thread::yield_now();
    }
}

/// One run, in the batch for some of its life.
fn use_batch(shared: Shared, thread: usize, round: usize) {
    let prompt: Vec<i32> = (0..=(thread + round) % 4)
        .map(|at| ((at * 3 + thread) % 8) as i32)
        .collect();
    let run = run_of(shared, &prompt);
    let batch = shared.batch();
    // SAFETY: here and below the arguments are as the header says.
    let added = unsafe { oxp_batch_add(batch, run, null_mut()) };
    assert_eq!(added, OXP_OK);
    match round % 4 {
        // What was freed is the batch's to the end.
        0 => return oxp_run_free(run),
        // SAFETY: as above.
        1 => unsafe {
            // It goes on alone, unless it has finished and left.
            oxp_batch_remove(batch, run, null_mut());
            let generate =
                || oxp_run_generate(run, null_mut(), None, null_mut::<c_void>(), null(), null_mut());
            when_free(generate);
        },
        // SAFETY: as above.
        2 => unsafe {
            assert_eq!(oxp_cancel_request(shared.cancel(), null_mut()), OXP_OK);
            let mut count = 0;
            assert_eq!(oxp_batch_get_count(batch, &raw mut count, null_mut()), OXP_OK);
        },
        _ => {}
    }
    let expected = expected(&prompt);
    while tokens_of(run).len() < expected.len() {
        thread::yield_now();
    }
    assert_eq!(tokens_of(run), expected);
    oxp_run_free(run);
}

#[test]
fn a_batch_takes_calls_from_all_sides() {
    const USERS: usize = 5;
    let shared = open();
    let (over, left, steps) = (
        AtomicBool::new(false),
        AtomicUsize::new(USERS),
        AtomicUsize::new(0),
    );
    on_threads(USERS + 2, |thread| {
        if thread >= USERS {
            return step_batch(shared, &over, &steps);
        }
        (0..40).for_each(|round| use_batch(shared, thread, round));
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            over.store(true, Ordering::Relaxed);
        }
    });
    assert!(steps.into_inner() > 0);
    // Freed by whom it comes to; the last of them takes the model along.
    let run = run_of(shared, &[1]).addr();
    on_threads(4, |thread| match thread {
        0 => oxp_pipeline_free(shared.pipeline()),
        1 => oxp_batch_free(shared.batch()),
        2 => oxp_cancel_free(shared.cancel()),
        _ => oxp_run_free(without_provenance_mut::<oxp_run>(run)),
    });
}
