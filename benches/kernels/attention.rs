//! Attention and rotation of a small model: 14 heads of 64 and 2 of keys and values.

use criterion::Criterion;
use oxpipe::component::DataType::{self, Float16, Float32, Int8, Int32, Int64, Uint8};

use super::case::{Case, case};
use super::values::{integers, noise};

const HEADS: usize = 14;
const KV_HEADS: usize = 2;
const SIZE: usize = 64;

pub fn all(criterion: &mut Criterion) {
    for bits in [8, 4] {
        quantised(bits, 4095).bench(criterion, "attention", &format!("decode-{bits}bit-4095"));
    }
    for (ty, dtype) in [("f32", Float32), ("f16", Float16)] {
        for past in [127, 4095] {
            let name = format!("decode-{ty}-{past}");
            attention(dtype, 1, past, true).bench(criterion, "attention", &name);
        }
        // Without the copy of the whole cache.
        attention(dtype, 1, 4095, false).bench(criterion, "attention", &format!("decode-{ty}-4095-y"));
        for queries in [128, 512] {
            let products = 2 * HEADS * SIZE * queries * (queries + 1) / 2;
            attention(dtype, queries, 0, true).products(products).bench(
                criterion,
                "attention",
                &format!("prefill-{ty}-{queries}"),
            );
        }
        for positions in [1, 512] {
            let name = format!("{ty}-{positions}");
            rotary(dtype, positions).bench(criterion, "rotary_embedding", &name);
        }
    }
}

/// A token after `past` others, whose keys and values are codes of so many bits.
fn quantised(bits: usize, past: usize) -> Case {
    let (dtype, width) = match bits {
        4 => (Uint8, SIZE / 2),
        _ => (Int8, SIZE),
    };
    let cache = |rows: usize| noise(dtype, &[1, KV_HEADS, rows, width]);
    case("GroupQueryAttention")
        .contrib()
        .int("num_heads", HEADS as i64)
        .int("kv_num_heads", KV_HEADS as i64)
        .int("kv_cache_bit_width", bits as i64)
        .string("k_quant_type", "PER_TENSOR")
        .string("v_quant_type", "PER_TENSOR")
        .fed(noise(Float32, &[1, 1, HEADS * SIZE]))
        .fed(noise(Float32, &[1, 1, KV_HEADS * SIZE]))
        .fed(noise(Float32, &[1, 1, KV_HEADS * SIZE]))
        .fed(cache(past))
        .fed(cache(past))
        .fed(integers(Int32, &[1], &[past as i64]))
        .fed(integers(Int32, &[], &[past as i64 + 1]))
        .left_out(5)
        .constant(noise(Float32, &[1]))
        .constant(noise(Float32, &[1]))
        .gives(Float32, &[1, 1, HEADS * SIZE])
        .gives(dtype, &[1, KV_HEADS, past + 1, width])
        .gives(dtype, &[1, KV_HEADS, past + 1, width])
}

/// Tokens of one sequence after `past` others.
fn attention(dtype: DataType, queries: usize, past: usize, presents: bool) -> Case {
    let total = past + queries;
    let cache = |rows: usize| noise(dtype, &[1, KV_HEADS, rows, SIZE]);
    let attention = case("GroupQueryAttention")
        .contrib()
        .int("num_heads", HEADS as i64)
        .int("kv_num_heads", KV_HEADS as i64)
        .int("do_rotary", 1)
        .fed(noise(dtype, &[1, queries, HEADS * SIZE]))
        .fed(noise(dtype, &[1, queries, KV_HEADS * SIZE]))
        .fed(noise(dtype, &[1, queries, KV_HEADS * SIZE]))
        .fed(cache(past))
        .fed(cache(past))
        .fed(integers(Int32, &[1], &[total as i64 - 1]))
        .fed(integers(Int32, &[], &[total as i64]))
        .constant(noise(dtype, &[4096, SIZE / 2]))
        .constant(noise(dtype, &[4096, SIZE / 2]))
        .gives(dtype, &[1, queries, HEADS * SIZE]);
    match presents {
        false => attention,
        true => attention
            .gives(dtype, &[1, KV_HEADS, total, SIZE])
            .gives(dtype, &[1, KV_HEADS, total, SIZE]),
    }
}

fn rotary(dtype: DataType, positions: usize) -> Case {
    let ids: Vec<i64> = (0..positions as i64).collect();
    let dims = [1, positions, HEADS * SIZE];
    case("RotaryEmbedding")
        .int("num_heads", HEADS as i64)
        .fed(noise(dtype, &dims))
        .constant(noise(dtype, &[positions, SIZE / 2]))
        .constant(noise(dtype, &[positions, SIZE / 2]))
        .fed(integers(Int64, &[1, positions], &ids))
        .gives(dtype, &dims)
}
