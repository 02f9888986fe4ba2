//! Normalisations, at the width of a small model and over images, and Softmax.

use criterion::Criterion;
use oxpipe::component::DataType::{self, Float16, Float32};

use super::case::case;
use super::values::noise;

const WIDTH: usize = 896;

pub fn all(criterion: &mut Criterion) {
    for rows in [1, 128] {
        rows_of(criterion, "f32", Float32, rows);
    }
    rows_of(criterion, "f16", Float16, 128);

    let image = [1, 64, 56, 56];
    case("InstanceNormalization")
        .fed(noise(Float32, &image))
        .constant(noise(Float32, &[64]))
        .constant(noise(Float32, &[64]))
        .gives(Float32, &image)
        .bench(criterion, "instance_norm", "f32-64x56x56");
    case("GroupNormalization")
        .int("num_groups", 8)
        .fed(noise(Float32, &image))
        .constant(noise(Float32, &[64]))
        .constant(noise(Float32, &[64]))
        .gives(Float32, &image)
        .bench(criterion, "group_norm", "f32-64x56x56");
    case("BatchNormalization")
        .fed(noise(Float32, &image))
        .constant(noise(Float32, &[64]))
        .constant(noise(Float32, &[64]))
        .constant(noise(Float32, &[64]))
        .constant(noise(Float32, &[64]))
        .gives(Float32, &image)
        .bench(criterion, "batch_norm", "f32-64x56x56");

    for (name, dtype, rows, columns) in [
        ("f32-1x151936", Float32, 1, 151_936),
        ("f32-1792x128", Float32, 1792, 128),
        ("f16-1792x128", Float16, 1792, 128),
    ] {
        case("Softmax")
            .fed(noise(dtype, &[rows, columns]))
            .gives(dtype, &[rows, columns])
            .bench(criterion, "softmax", name);
    }
}

/// Rows of hidden states.
fn rows_of(criterion: &mut Criterion, ty: &str, dtype: DataType, rows: usize) {
    let dims = [1, rows, WIDTH];
    let name = format!("{ty}-{rows}x{WIDTH}");
    let weights = || noise(dtype, &[WIDTH]);
    case("LayerNormalization")
        .fed(noise(dtype, &dims))
        .constant(weights())
        .constant(weights())
        .gives(dtype, &dims)
        .bench(criterion, "layer_norm", &name);
    case("RMSNormalization")
        .fed(noise(dtype, &dims))
        .constant(weights())
        .gives(dtype, &dims)
        .bench(criterion, "rms_norm", &name);
    case("SkipSimplifiedLayerNormalization")
        .contrib()
        .fed(noise(dtype, &dims))
        .fed(noise(dtype, &dims))
        .constant(weights())
        .gives(dtype, &dims)
        .bench(criterion, "skip_rms_norm", &name);
    case("SkipLayerNormalization")
        .contrib()
        .fed(noise(dtype, &dims))
        .fed(noise(dtype, &dims))
        .constant(weights())
        .constant(weights())
        .gives(dtype, &dims)
        .bench(criterion, "skip_layer_norm", &name);
}
