//! What the machine does without us: memory read and copied at the sizes of the other benches.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use oxpipe::native::workers::Workers;

use super::case::THREADS;

/// 1 MiB is in the second-level cache of many cores; 64 MiB is in none.
const SIZES: [(&str, usize); 3] = [("1MiB", 1 << 20), ("16MiB", 16 << 20), ("64MiB", 64 << 20)];

pub fn all(criterion: &mut Criterion) {
    for (name, bytes) in SIZES {
        let mut group = criterion.benchmark_group("floor");
        group.throughput(Throughput::Bytes(bytes as u64));
        let len = bytes / size_of::<u64>();
        for threads in THREADS {
            let workers = Workers::new(threads);
            let chunk = len / threads;
            let mut memory = Vec::new();
            group.bench_function(BenchmarkId::new(format!("read-{name}"), threads), |bencher| {
                memory.resize(len, 1u64);
                bencher.iter(|| {
                    workers.for_each(threads, |part| {
                        black_box(any_bit(&memory[part * chunk..][..chunk]));
                    });
                });
            });
            // Half is read, half is written.
            let (mut from, mut to) = (Vec::new(), Vec::new());
            group.bench_function(BenchmarkId::new(format!("copy-{name}"), threads), |bencher| {
                from.resize(len / 2, 1u64);
                to.resize(len / 2, 0u64);
                bencher.iter(|| {
                    workers.split_mut(&mut to, chunk / 2, |part, to| {
                        to.copy_from_slice(&from[part * (chunk / 2)..][..to.len()]);
                    });
                    black_box(&to);
                });
            });
        }
    }
}

/// All elements, in a loop that the compiler can make wide.
fn any_bit(elements: &[u64]) -> u64 {
    let mut lanes = [0; 32];
    for elements in elements.chunks_exact(32) {
        for (lane, element) in lanes.iter_mut().zip(elements) {
            *lane |= element;
        }
    }
    lanes.iter().fold(0, |all, lane| all | lane)
}
