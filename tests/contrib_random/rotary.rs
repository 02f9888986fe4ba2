//! RotaryEmbedding.

use proptest::prelude::*;

use crate::harness::{Case, Float, Numbers, Value, check_all};

#[derive(Clone, Debug)]
struct Rotary {
    batch: usize,
    positions: usize,
    heads: usize,
    size: usize,
    rotated: usize,
    four_dims: bool,
    first_only: bool,
    interleaved: bool,
    packed: bool,
    half: bool,
    seed: u64,
}

fn rotary() -> impl Strategy<Value = Rotary> {
    let sizes = (0usize..4, 0usize..6, 1usize..5, 1usize..5, 0usize..5);
    (sizes, any::<[bool; 5]>(), any::<u64>()).prop_map(|(sizes, flags, seed)| {
        let (batch, positions, heads, size, rotated) = sizes;
        let [four_dims, first_only, interleaved, packed, half] = flags;
        Rotary {
            batch: batch.max(1),
            positions: positions.max(1),
            heads,
            size: size * 16,
            rotated: if rotated < size { rotated * 16 } else { 0 },
            four_dims,
            first_only,
            interleaved,
            packed,
            half,
            seed,
        }
    })
}

impl Rotary {
    fn case(&self) -> Case {
        let mut numbers = Numbers::new(self.seed);
        let (b, s, n, size) = (self.batch, self.positions, self.heads, self.size);
        let rows = 20;
        let half = if self.rotated == 0 {
            size / 2
        } else {
            self.rotated / 2
        };
        let x = match self.four_dims {
            true => numbers.value(&[b, n, s, size], 2.0),
            false => numbers.value(&[b, s, n * size], 2.0),
        };
        let ids = match self.first_only {
            true => Value::i64s(&[1], &[numbers.below(rows - s) as i64]),
            false => {
                let ids: Vec<i64> = (0..b * s).map(|_| numbers.below(rows) as i64).collect();
                Value::i64s(&[b, s], &ids)
            }
        };
        let mut case = Case::new("RotaryEmbedding")
            .input(x)
            .input(ids)
            .input(numbers.value(&[rows, half], 1.0))
            .input(numbers.value(&[rows, half], 1.0))
            .int("interleaved", self.interleaved)
            .int("is_packed_batching", self.packed)
            .output();
        if self.rotated > 0 {
            case = case
                .int("rotary_embedding_dim", self.rotated as i64)
                .int("num_heads", n as i64);
        }
        case
    }
}

#[test]
fn rotary_embedding() {
    check_all(3, 100, rotary(), |rotary| {
        let half = if rotary.half { Float::F16 } else { Float::Bf16 };
        rotary.case().check(half)
    });
}
