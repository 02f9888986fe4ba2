//! Operators that give one element for one of each operand.

use criterion::Criterion;
use oxpipe::component::DataType::{Bfloat16, Float16, Float32};

use super::case::{Case, case};
use super::values::noise;

const MANY: usize = 262_144;

pub fn all(criterion: &mut Criterion) {
    for len in [1024, MANY, 4_194_304] {
        let sum = case("Add")
            .fed(noise(Float32, &[len]))
            .fed(noise(Float32, &[len]))
            .gives(Float32, &[len]);
        sum.bench(criterion, "add", &format!("f32-{len}"));
    }
    for (ty, dtype) in [("f16", Float16), ("bf16", Bfloat16)] {
        case("Add")
            .fed(noise(dtype, &[MANY]))
            .fed(noise(dtype, &[MANY]))
            .gives(dtype, &[MANY])
            .bench(criterion, "add", &format!("{ty}-{MANY}"));
    }
    let rows = MANY / 1024;
    for (name, other) in [("row", [1, 1024]), ("column", [rows, 1])] {
        case("Mul")
            .fed(noise(Float32, &[rows, 1024]))
            .fed(noise(Float32, &other))
            .gives(Float32, &[rows, 1024])
            .bench(criterion, "mul", &format!("f32-{rows}x1024-{name}"));
    }

    for (group, function) in [
        ("silu", case("Swish")),
        ("gelu", case("Gelu")),
        ("gelu_tanh", case("Gelu").string("approximate", "tanh")),
        ("tanh", case("Tanh")),
        ("sigmoid", case("Sigmoid")),
        ("exp", case("Exp")),
        ("relu", case("Relu")),
    ] {
        let function = function.fed(noise(Float32, &[MANY])).gives(Float32, &[MANY]);
        function.bench(criterion, group, &format!("f32-{MANY}"));
    }
    case("Swish")
        .fed(noise(Float16, &[MANY]))
        .gives(Float16, &[MANY])
        .bench(criterion, "silu", &format!("f16-{MANY}"));

    for (name, from, to) in [
        ("f16-f32", Float16, Float32),
        ("f32-f16", Float32, Float16),
        ("bf16-f32", Bfloat16, Float32),
        ("f32-bf16", Float32, Bfloat16),
    ] {
        let cast: Case = case("Cast").int("to", to.code().into());
        cast.fed(noise(from, &[MANY]))
            .gives(to, &[MANY])
            .bench(criterion, "cast", &format!("{name}-{MANY}"));
    }
}
