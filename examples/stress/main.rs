//! Long runs of what hosts do all at once, each checked against one thread that does it alone:
//!
//!     cargo run --release --example stress -- threads [SECONDS] [THREADS]
//!     cargo run --release --example stress -- soak [SECONDS]
//!
//! `threads` shares a pipeline among threads that generate, fork, save, batch, open and close, while
//! each cancels others at random: every answer must be the one that a single thread gives. `soak` does
//! the same things one after the other and watches the memory of the process, which must not grow.
//! Both end with an error at the first thing that is not as it should be.

mod answers;
mod package;
mod soak;
mod threads;

use std::process::ExitCode;
use std::time::Duration;

use oxpipe_test_support::counting_allocator::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| match arguments.get(at).map(|text| text.parse::<u64>()) {
        None => Some(default),
        Some(number) => number.ok(),
    };
    let (Some(seconds), Some(threads)) = (number(1, 60), number(2, 32)) else {
        eprintln!("stress: SECONDS and THREADS are numbers");
        return ExitCode::from(2);
    };
    let time = Duration::from_secs(seconds);
    let result = match arguments.first().map(String::as_str) {
        Some("threads") => threads::run(time, threads as usize),
        Some("soak") => soak::run(time),
        _ => {
            eprintln!("usage: stress threads [SECONDS] [THREADS] | stress soak [SECONDS]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stress: {error}");
            ExitCode::FAILURE
        }
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }
}
