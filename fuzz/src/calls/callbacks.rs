//! What a host's functions do: read what they are given, answer as the input says, call back into the
//! library with the same handle, free it.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{function, lent};

thread_local! {
    static SCRIPT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static RUN: Cell<u64> = const { Cell::new(0) };
}

const BUSY: i32 = -21;
/// After so many, a call is told to end.
const MOST: usize = 64;

/// Before a call: the run that it is on, if it is on one, and what its callbacks do.
pub fn begin(run: u64, script: &[u8]) {
    SCRIPT.set(script.iter().rev().copied().collect());
    CALLS.set(0);
    RUN.set(run);
}

fn next() -> u8 {
    SCRIPT.with_borrow_mut(|script| script.pop()).unwrap_or_default()
}

fn answer() -> i32 {
    CALLS.set(CALLS.get() + 1);
    let run = RUN.get();
    match next() {
        _ if CALLS.get() > MOST => 1,
        1 => 1,
        2 if run != 0 => {
            let status = (function("oxp_run_rewind").call)(&[run, 0, 0]) as i32;
            assert_eq!(status, BUSY, "a run takes a call from inside of its own");
            0
        }
        3 if run != 0 => {
            let mut fork = 0u64;
            let status = (function("oxp_run_fork").call)(&[run, (&raw mut fork) as u64, 0]) as i32;
            assert_eq!((status, fork), (BUSY, 0));
            0
        }
        4 if run != 0 => {
            (function("oxp_run_free").call)(&[run]);
            RUN.set(0);
            0
        }
        5 => -7,
        _ => 0,
    }
}

/// Counts how often a host's data is freed.
pub extern "C" fn free_data(user_data: u64) {
    // SAFETY: a counter that is never freed, see `World::counter`.
    let counter = unsafe { &*(user_data as *const AtomicUsize) };
    counter.fetch_add(1, Ordering::SeqCst);
}

pub extern "C" fn log(_user_data: u64, _level: u32, message: u64, len: u64) {
    lent::text(message, Some(len));
}

pub extern "C" fn progress(_user_data: u64, progress: u64) -> i32 {
    let progress = lent::bytes(progress, 40);
    lent::text(lent::word(&progress, 24), Some(lent::word(&progress, 32)));
    answer()
}

pub extern "C" fn event(_user_data: u64, event: u64) -> i32 {
    lent::event(&lent::bytes(event, 136));
    answer()
}

pub extern "C" fn batch(_user_data: u64, _run: u64, event: u64, error: u64) -> i32 {
    if event != 0 {
        lent::event(&lent::bytes(event, 136));
    }
    if error != 0 {
        let message = (function("oxp_error_get_message").call)(&[error, 0]);
        lent::text(message, None);
    }
    answer()
}

pub extern "C" fn logits(_user_data: u64, logits: u64, count: u64, tokens: u64, token_count: u64) -> i32 {
    lent::bytes(tokens, token_count * 4);
    for at in 0..count.min(8) {
        let value = match next() {
            0 => continue,
            1 => f32::NAN,
            2 => f32::INFINITY,
            3 => f32::NEG_INFINITY,
            n => f32::from(n) - 128.0,
        };
        // SAFETY: the library says that `count` floats are here.
        unsafe { (logits as *mut f32).add(at as usize).write(value) };
    }
    i32::from(next() == 255)
}

pub extern "C" fn sampler(
    _user_data: u64,
    logprobs: u64,
    count: u64,
    tokens: u64,
    token_count: u64,
    token: u64,
) -> i32 {
    lent::bytes(logprobs, count * 4);
    lent::bytes(tokens, token_count * 4);
    let chosen = match next() {
        255 => return 1,
        254 => i32::MAX,
        253 => -1,
        n => i32::from(n % 9),
    };
    // SAFETY: the library lends room for a token.
    unsafe { (token as *mut i32).write(chosen) };
    0
}
