//! Reductions, and the choice of the largest elements.

use criterion::Criterion;
use oxpipe::component::DataType::{Float32, Int64};

use super::case::case;
use super::values::{integers, noise};

const VOCABULARY: usize = 151_936;

pub fn all(criterion: &mut Criterion) {
    let row = 256;
    for len in [4096, 32_768, 262_144] {
        let rows = len / row;
        for (name, axes, dims) in [
            ("last", &[1][..], [rows, 1]),
            ("first", &[0][..], [1, row]),
            ("all", &[0, 1][..], [1, 1]),
        ] {
            case("ReduceMean")
                .fed(noise(Float32, &[rows, row]))
                .constant(integers(Int64, &[axes.len()], axes))
                .gives(Float32, &dims)
                .bench(criterion, "reduce_mean", &format!("f32-{len}-{name}"));
        }
    }
    case("ReduceMax")
        .fed(noise(Float32, &[1024, row]))
        .constant(integers(Int64, &[1], &[1]))
        .gives(Float32, &[1024, 1])
        .bench(criterion, "reduce_max", "f32-262144-last");

    case("ArgMax")
        .int("axis", -1)
        .fed(noise(Float32, &[1, VOCABULARY]))
        .gives(Int64, &[1, 1])
        .bench(criterion, "arg_max", "f32-151936");
    case("TopK")
        .fed(noise(Float32, &[1, VOCABULARY]))
        .constant(integers(Int64, &[1], &[50]))
        .gives(Float32, &[1, 50])
        .gives(Int64, &[1, 50])
        .bench(criterion, "top_k", "f32-50-of-151936");
}
