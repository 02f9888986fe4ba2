//! Products with weights of 4 and 8 bits.

use criterion::Criterion;
use oxpipe::component::DataType::{Float32, Int8, Int32, Uint8};

use super::case::{Case, case};
use super::matmul::SHAPES;
use super::values::noise;

/// Weights that share a scale.
const BLOCK: usize = 32;

pub fn all(criterion: &mut Criterion) {
    for bits in [4, 8] {
        for (m, n, k) in SHAPES {
            // Activations of 8 bits.
            let name = format!("{bits}bit-{m}x{n}x{k}");
            nbits(bits, 4, (m, n, k)).bench(criterion, "matmul_nbits", &name);
        }
        for (m, n, k) in [(1, 4096, 4096), (32, 1024, 1024)] {
            let name = format!("{bits}bit-f32-{m}x{n}x{k}");
            nbits(bits, 0, (m, n, k)).bench(criterion, "matmul_nbits", &name);
        }
    }
    for (m, n, k) in SHAPES {
        let product = case("MatMulInteger")
            .fed(noise(Uint8, &[m, k]))
            .constant(noise(Int8, &[k, n]))
            .gives(Int32, &[m, n]);
        counted(product, (m, n, k)).bench(criterion, "matmul_integer", &format!("u8s8-{m}x{n}x{k}"));
    }
}

fn nbits(bits: usize, accuracy_level: i64, (m, n, k): (usize, usize, usize)) -> Case {
    let blocks = k / BLOCK;
    let product = case("MatMulNBits")
        .contrib()
        .int("K", k as i64)
        .int("N", n as i64)
        .int("bits", bits as i64)
        .int("block_size", BLOCK as i64)
        .int("accuracy_level", accuracy_level)
        .fed(noise(Float32, &[m, k]))
        .constant(noise(Uint8, &[n, blocks, BLOCK * bits / 8]))
        .constant(noise(Float32, &[n, blocks]))
        .gives(Float32, &[m, n]);
    counted(product, (m, n, k))
}

/// A product of one row is bound by the bytes of the weights.
fn counted(product: Case, (m, n, k): (usize, usize, usize)) -> Case {
    match m {
        1 => product,
        _ => product.products(m * n * k),
    }
}
