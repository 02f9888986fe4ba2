//! The operators of ai.onnx and ai.onnx.ml against ONNX Runtime, on random inputs over their attributes.
//!
//! As contrib_random, whose frame it shares: a model of one node, run by both. What ONNX Runtime
//! refuses is left out, and each test says how much it must not. Where it is known to deviate from
//! the definition, a rule leaves the case out and says why.

mod attention;
mod classical;
mod convolution;
mod ends;
#[allow(dead_code)] // contrib_random uses more of it.
#[path = "../contrib_random/harness.rs"]
mod harness;
mod indices;
mod normalization;
mod products;
mod quantization;
mod recurrent;
mod reduction;
mod shapes;

use std::cell::Cell;

use harness::{Case, Float, Numbers, check_all, compare};
use proptest::prelude::any;

/// Runs what `make` makes of as many numbers by both. At least two thirds of the cases must be
/// ones that ONNX Runtime runs.
fn same_as_ort(seed: u8, count: u32, tolerance: f64, make: impl Fn(&mut Numbers) -> Option<Case>) {
    let (made, compared) = (Cell::new(0), Cell::new(0));
    let refusal = Cell::new(String::new());
    check_all(seed, count, any::<u64>(), |seed| {
        let Some(case) = make(&mut Numbers::new(seed)) else {
            return Ok(());
        };
        made.set(made.get() + 1);
        let expected = match case.ort(Float::F32) {
            Ok(expected) => expected,
            Err(error) => {
                refusal.set(format!("{case:?}: {error}"));
                return Ok(());
            }
        };
        compared.set(compared.get() + 1);
        let found = case
            .native(Float::F32)
            .map_err(|error| format!("{case:?}: {error}"))?;
        compare(&case, &found, &expected, tolerance)
    });
    assert!(
        compared.get() * 3 >= made.get() * 2 && made.get() * 2 >= count,
        "{} of {} cases compared; the last that ONNX Runtime refused: {}",
        compared.get(),
        made.get(),
        refusal.take()
    );
}

/// Random choices.
trait Choices {
    fn flag(&mut self) -> bool;
    fn pick<T: Clone>(&mut self, choices: &[T]) -> T;
    /// From `least` to `most`.
    fn between(&mut self, least: usize, most: usize) -> usize;
    /// As many dims from `least` to `most`.
    fn dims(&mut self, rank: usize, least: usize, most: usize) -> Vec<usize>;
    /// One of the axes, half of the time counted from the end.
    fn axis(&mut self, rank: usize) -> i64;
    /// Some of the axes, each once, at random from the end.
    fn axes(&mut self, rank: usize) -> Vec<i64>;
    fn ints(&mut self, count: usize, least: i64, most: i64) -> Vec<i64>;
}

impl Choices for Numbers {
    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    fn between(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    fn dims(&mut self, rank: usize, least: usize, most: usize) -> Vec<usize> {
        (0..rank).map(|_| self.between(least, most)).collect()
    }

    fn axis(&mut self, rank: usize) -> i64 {
        self.below(2 * rank) as i64 - rank as i64
    }

    fn axes(&mut self, rank: usize) -> Vec<i64> {
        let mut axes: Vec<i64> = Vec::new();
        for axis in 0..rank as i64 {
            if self.flag() {
                let axis = if self.flag() { axis - rank as i64 } else { axis };
                axes.insert(self.below(axes.len() + 1), axis);
            }
        }
        axes
    }

    fn ints(&mut self, count: usize, least: i64, most: i64) -> Vec<i64> {
        (0..count)
            .map(|_| least + self.below((most - least + 1) as usize) as i64)
            .collect()
    }
}
