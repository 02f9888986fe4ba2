//! Products of floats with constant weights.

use criterion::Criterion;
use oxpipe::component::DataType::{self, Bfloat16, Float16, Float32};

use super::case::case;
use super::values::noise;

/// Rows, columns and depth.
pub const SHAPES: [(usize, usize, usize); 4] =
    [(1, 256, 256), (32, 512, 512), (32, 1024, 1024), (1, 4096, 4096)];

const TYPES: [(&str, DataType); 3] = [("f32", Float32), ("f16", Float16), ("bf16", Bfloat16)];

pub fn all(criterion: &mut Criterion) {
    for (ty, dtype) in TYPES {
        for (m, n, k) in SHAPES {
            matmul(
                criterion,
                "matmul",
                &format!("{ty}-{m}x{n}x{k}"),
                dtype,
                (m, n, k),
            );
        }
        // A prompt through the widest matrix of a small model.
        matmul(
            criterion,
            "matmul",
            &format!("{ty}-128x4864x896"),
            dtype,
            (128, 4864, 896),
        );
    }
}

fn matmul(
    criterion: &mut Criterion,
    group: &str,
    name: &str,
    dtype: DataType,
    (m, n, k): (usize, usize, usize),
) {
    let mut product = case("MatMul")
        .fed(noise(dtype, &[m, k]))
        .constant(noise(dtype, &[k, n]))
        .gives(dtype, &[m, n]);
    if m > 1 {
        product = product.products(m * n * k);
    }
    product.bench(criterion, group, name);
}
