//! What inputs are read with, and what bounds what is done with them.

use std::time::{Duration, Instant};

use oxpipe::component::RunControl;
use oxpipe::runtime::{Environment, Runtime, RuntimeSettings};

/// What bounds every call.
pub fn control() -> RunControl {
    RunControl {
        cancel: None,
        deadline: Some(Instant::now() + Duration::from_secs(1)),
    }
}

/// A runtime without threads of its own.
pub fn runtime() -> Runtime {
    let settings = RuntimeSettings {
        threads: Some(1),
        ..RuntimeSettings::default()
    };
    Runtime::with_environment(settings, Environment::default())
}

/// Numbers out of an input, zeros behind its end.
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    pub fn below(&mut self, end: usize) -> usize {
        match end {
            0..=1 => 0,
            2..=256 => usize::from(self.byte()) % end,
            _ => self.number() as usize % end,
        }
    }

    /// A number of 16 bits.
    pub fn number(&mut self) -> u64 {
        u64::from(self.byte()) | u64::from(self.byte()) << 8
    }

    pub fn one_in(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}
