//! See Cargo.toml.
#![cfg(all(loom, test))]
// Only what the models need is called.
#![allow(dead_code, unused_imports)]

#[path = "../../../src/panics.rs"]
mod panics;

#[path = "../../../src/native"]
mod native {
    /// Nothing ends a region here.
    pub mod ending {
        pub fn is_possible() -> bool {
            false
        }

        pub fn look() {}

        /// There is no reserve.
        pub fn take_refused() -> Option<usize> {
            None
        }

        pub fn note_refused(_: usize) {}
    }

    pub mod meeting;
    pub mod workers;
}

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::Arc;

use native::meeting::modelled::{FENCES, Fences};
use native::workers::Workers;

/// A model of at most so many switches between threads where a thread could go on: what more of
/// them find is next to nothing, and the time grows with each. Once for each place of the fences that stand
/// for `SeqCst`. What no model sees is a thread that sleeps through a region (a weaker store or load of
/// `asleep`): the caller then runs all parts itself, and nothing but time is lost.
fn model(switches: usize, check: impl Fn() + Sync + Send + 'static) {
    let check = std::sync::Arc::new(check);
    for fences in [Fences::BehindStores, Fences::BeforeLoads] {
        FENCES.set(fences);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(switches);
        let check = check.clone();
        builder.check(move || check());
    }
}

/// Runs a region of `parts`, each of which must run once and be done when it returns.
fn region(workers: &Workers, parts: usize) {
    let mut seen = vec![0; parts];
    workers.split_mut(&mut seen, 1, |index, piece| piece[0] += index + 1);
    assert!(seen.iter().enumerate().all(|(index, &seen)| seen == index + 1), "{seen:?}");
}

#[test]
fn a_region_is_done_when_it_returns() {
    model(5, || {
        let workers = Workers::new(2);
        region(&workers, 2);
    });
}

#[test]
fn regions_follow_each_other() {
    model(3, || {
        let workers = Workers::new(2);
        region(&workers, 2);
        region(&workers, 3);
    });
}

#[test]
fn three_threads_share_a_region() {
    model(3, || {
        let workers = Workers::new(3);
        region(&workers, 3);
    });
}

#[test]
fn two_callers_share_a_team() {
    model(3, || {
        let workers = Workers::new(2);
        // So that the team is there: who makes it is the standard library's to see to.
        region(&workers, 2);
        let other = workers.clone();
        let caller = loom::thread::spawn(move || region(&other, 2));
        region(&workers, 2);
        caller.join().expect("no part panics");
    });
}

#[test]
fn parts_write_what_the_caller_lent() {
    model(5, || {
        let workers = Workers::new(2);
        // Counts with no order of its own: the end of the region is what makes it seen.
        let count = Arc::new(AtomicUsize::new(0));
        workers.for_each(2, |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 2);
    });
}
