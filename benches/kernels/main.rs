//! The time of every kernel that a language model's step spends time in, and of others at the
//! shapes of the reference table, on 1 and 2 threads:
//!
//!     cargo bench                       all of them, about 10 minutes
//!     cargo bench -- matmul/f16         those whose name has this
//!     scripts/bench-compare BASE HEAD   two commits, one after the other
//!
//! Each is a model of one node, run by way of the crate's public interface into memory of the
//! caller, as a host would. What is fed changes from run to run in a model and is an input here;
//! weights are constants. Throughput counts the bytes of inputs, constants and outputs, or the
//! multiply-adds where these bound the time; `floor` is what the machine reads and copies.

mod attention;
mod case;
mod convolution;
mod elementwise;
mod floor;
mod matmul;
mod moves;
mod norm;
mod quantized;
mod reduce;
mod sampling;
mod values;

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};

/// Enough to see 5 %; `cargo bench -- --measurement-time 5` and the like change it.
fn short() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(400))
        .measurement_time(Duration::from_millis(1200))
        .sample_size(30)
        .nresamples(10_000)
        .without_plots()
}

criterion_group! {
    name = kernels;
    config = short();
    targets =
        floor::all,
        matmul::all,
        quantized::all,
        attention::all,
        norm::all,
        elementwise::all,
        reduce::all,
        moves::all,
        convolution::all,
        sampling::all,
}
criterion_main!(kernels);
