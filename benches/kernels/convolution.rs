//! Convolutions of images and of signals.

use criterion::Criterion;
use oxpipe::component::DataType::Float32;

use super::case::case;
use super::values::noise;

pub fn all(criterion: &mut Criterion) {
    for (name, channels, out, kernel, pads, group) in [
        ("3x3-64-64-56x56", 64, 64, 3, &[1, 1, 1, 1], 1),
        ("1x1-64-256-56x56", 64, 256, 1, &[0, 0, 0, 0], 1),
        ("depthwise-3x3-64-56x56", 64, 64, 3, &[1, 1, 1, 1], 64),
    ] {
        let depth = channels / group;
        case("Conv")
            .ints("pads", pads)
            .int("group", group as i64)
            .fed(noise(Float32, &[1, channels, 56, 56]))
            .constant(noise(Float32, &[out, depth, kernel, kernel]))
            .constant(noise(Float32, &[out]))
            .gives(Float32, &[1, out, 56, 56])
            .products(out * 56 * 56 * depth * kernel * kernel)
            .bench(criterion, "conv", name);
    }
    // The second of a speech encoder.
    case("Conv")
        .ints("pads", &[1, 1])
        .ints("strides", &[2])
        .fed(noise(Float32, &[1, 384, 1000]))
        .constant(noise(Float32, &[384, 384, 3]))
        .constant(noise(Float32, &[384]))
        .gives(Float32, &[1, 384, 500])
        .products(384 * 500 * 384 * 3)
        .bench(criterion, "conv", "1d-3-384-384-1000");
}
