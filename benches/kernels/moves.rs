//! Operators that move elements.

use criterion::Criterion;
use oxpipe::component::DataType::{Float16, Float32, Int64};

use super::case::case;
use super::values::{indices, integers, noise};

pub fn all(criterion: &mut Criterion) {
    for len in [4096, 32_768, 131_072] {
        case("Gather")
            .fed(noise(Float32, &[len]))
            .fed(indices(Int64, &[len], len as u64))
            .gives(Float32, &[len])
            .bench(criterion, "gather", &format!("f32-{len}"));
    }
    case("Gather")
        .constant(noise(Float32, &[32_000, 896]))
        .fed(indices(Int64, &[1, 512], 32_000))
        .gives(Float32, &[1, 512, 896])
        .bytes(2 * 512 * 896 * size_of::<f32>())
        .bench(criterion, "gather_rows", "f32-512x896");

    for (name, dtype, perm, from, to) in [
        (
            "f32-heads",
            Float32,
            &[0, 2, 1, 3][..],
            [1, 512, 14, 64],
            [1, 14, 512, 64],
        ),
        (
            "f32-last-two",
            Float32,
            &[0, 1, 3, 2][..],
            [1, 1, 1024, 1024],
            [1, 1, 1024, 1024],
        ),
        (
            "f16-last-two",
            Float16,
            &[0, 1, 3, 2][..],
            [1, 1, 1024, 1024],
            [1, 1, 1024, 1024],
        ),
        (
            "f32-channels-last",
            Float32,
            &[0, 2, 3, 1][..],
            [1, 64, 56, 56],
            [1, 56, 56, 64],
        ),
    ] {
        case("Transpose")
            .ints("perm", perm)
            .fed(noise(dtype, &from))
            .gives(dtype, &to)
            .bench(criterion, "transpose", name);
    }

    case("Concat")
        .int("axis", 1)
        .fed(noise(Float32, &[512, 896]))
        .fed(noise(Float32, &[512, 896]))
        .gives(Float32, &[512, 1792])
        .bench(criterion, "concat", "f32-512x1792");
    case("Concat")
        .int("axis", 2)
        .fed(noise(Float32, &[1, 2, 4095, 64]))
        .fed(noise(Float32, &[1, 2, 1, 64]))
        .gives(Float32, &[1, 2, 4096, 64])
        .bench(criterion, "concat", "f32-cache-4096");
    case("Split")
        .int("axis", 1)
        .int("num_outputs", 2)
        .fed(noise(Float32, &[512, 1792]))
        .gives(Float32, &[512, 896])
        .gives(Float32, &[512, 896])
        .bench(criterion, "split", "f32-512x1792");
    case("Slice")
        .fed(noise(Float32, &[512, 1792]))
        .constant(integers(Int64, &[1], &[0]))
        .constant(integers(Int64, &[1], &[896]))
        .constant(integers(Int64, &[1], &[1]))
        .gives(Float32, &[512, 896])
        .bench(criterion, "slice", "f32-512x896");
    case("Expand")
        .fed(noise(Float32, &[1, 2, 1, 512, 64]))
        .constant(integers(Int64, &[5], &[1, 2, 7, 512, 64]))
        .gives(Float32, &[1, 2, 7, 512, 64])
        .bench(criterion, "expand", "f32-repeat-kv");
}
