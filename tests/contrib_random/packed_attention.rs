//! PackedAttention and PackedMultiHeadAttention, for which ONNX Runtime's CPU has no kernel: against the
//! evaluation in f64, and each sequence by itself.

use std::ops::Range;

use proptest::prelude::*;

use crate::harness::{Case, Float, Found, Numbers, SUMS, Value, check_all, compare};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// PackedAttention.
    Projected,
    /// PackedMultiHeadAttention of three inputs.
    Separate,
    /// PackedMultiHeadAttention of one.
    Together,
}

#[derive(Clone, Debug)]
struct Packed {
    form: Form,
    lengths: Vec<usize>,
    /// Places of padding that even the longest sequence has.
    padding: usize,
    heads: usize,
    size: usize,
    v_size: usize,
    /// Of the input of PackedAttention.
    width: usize,
    bias: bool,
    score_bias: Option<(bool, bool)>,
    scale: f32,
    half: Float,
    seed: u64,
}

fn packed() -> impl Strategy<Value = Packed> {
    let form = prop::sample::select(vec![Form::Projected, Form::Separate, Form::Together]);
    let lengths = prop::collection::vec(prop::sample::select(vec![0usize, 1, 1, 2, 3, 5, 9, 14]), 1..6);
    let sizes = (0usize..3, 1usize..4, 1usize..10, 1usize..10, 1usize..12);
    let half = prop::sample::select(vec![Float::F16, Float::F16, Float::Bf16]);
    let attributes = (
        any::<bool>(),
        any::<Option<(bool, bool)>>(),
        prop::sample::select(vec![0.0f32, 0.4]),
    );
    (form, lengths, sizes, attributes, half, any::<u64>()).prop_map(
        |(form, lengths, sizes, attributes, half, seed)| Packed {
            form,
            lengths,
            padding: sizes.0,
            heads: sizes.1,
            size: sizes.2,
            v_size: if form == Form::Together { sizes.2 } else { sizes.3 },
            width: sizes.4,
            bias: attributes.0,
            score_bias: attributes.1,
            scale: attributes.2,
            half,
            seed,
        },
    )
}

/// The places of the tokens, then those of the padding, and where sequences end.
fn places(lengths: &[usize], longest: usize) -> (Value, Value) {
    let (mut tokens, mut padding, mut ends) = (Vec::new(), Vec::new(), vec![0]);
    for (b, &length) in lengths.iter().enumerate() {
        for i in 0..longest {
            let list = if i < length { &mut tokens } else { &mut padding };
            list.push((b * longest + i) as i32);
        }
        ends.push(tokens.len() as i32);
    }
    (
        Value::i32s(&[lengths.len(), longest], &[tokens, padding].concat()),
        Value::i32s(&[lengths.len() + 1], &ends),
    )
}

impl Packed {
    fn tokens(&self, b: usize) -> Range<usize> {
        let start = self.lengths[..b].iter().sum();
        start..start + self.lengths[b]
    }

    /// Of all sequences, or of one.
    fn case(&self, only: Option<usize>) -> Case {
        let mut numbers = Numbers::new(self.seed);
        let (n, size, v_size) = (self.heads, self.size, self.v_size);
        let columns = n * (2 * size + v_size);
        let all: usize = self.lengths.iter().sum();
        let sequences = only.map_or(0..self.lengths.len(), |b| b..b + 1);
        let tokens = only.map_or(0..all, |b| self.tokens(b));
        let mut rows = |width: usize, scale: f32| {
            let values = numbers.floats(all * width, scale);
            values[tokens.start * width..tokens.end * width].to_vec()
        };
        let count = tokens.len();
        let mut case = match self.form {
            Form::Projected => {
                let x = Value::floats(&[count, self.width], rows(self.width, 2.0));
                let scale = 2.0 / (self.width as f32).sqrt();
                let mut case = Case::new("PackedAttention")
                    .input(x)
                    .input(numbers.value(&[self.width, columns], scale).constant())
                    .input(numbers.value(&[columns], 1.0).constant());
                if v_size != size || self.bias {
                    let sizes = [n * size, n * size, n * v_size].map(|size| size as i64);
                    case = case.ints("qkv_hidden_sizes", &sizes);
                }
                case
            }
            Form::Separate => Case::new("PackedMultiHeadAttention")
                .input(Value::floats(&[count, n * size], rows(n * size, 1.5)))
                .input(Value::floats(&[count, n * size], rows(n * size, 1.5)))
                .input(Value::floats(&[count, n * v_size], rows(n * v_size, 1.5))),
            Form::Together => Case::new("PackedMultiHeadAttention")
                .input(Value::floats(&[count, n, 3, size], rows(n * 3 * size, 1.5)))
                .input(None)
                .input(None),
        };
        if self.form != Form::Projected {
            case = case.input(self.bias.then(|| numbers.value(&[columns], 1.0).constant()));
        }
        let longest = self.lengths.iter().max().unwrap() + self.padding;
        let (offsets, ends) = places(&self.lengths[sequences.clone()], longest);
        let score_bias = self.score_bias.map(|(batch, heads)| {
            let (b, n) = (
                if batch { self.lengths.len() } else { 1 },
                if heads { n } else { 1 },
            );
            let each = n * longest * longest;
            let values = numbers.floats(b * each, 1.0);
            let kept = if batch { sequences } else { 0..1 };
            let dims = [kept.len(), n, longest, longest];
            Value::floats(&dims, values[kept.start * each..kept.end * each].to_vec())
        });
        case.input(offsets)
            .input(ends)
            .input(score_bias)
            .int("num_heads", n as i64)
            .float("scale", self.scale)
            .output()
    }

    fn check(&self) -> Result<(), String> {
        let case = self.case(None);
        case.check_exactly(Float::F32)?;
        case.check_exactly(self.half)?;
        let together = &case.native(Float::F32)?[0];
        let width = self.heads * self.v_size;
        for b in 0..self.lengths.len() {
            let alone = self.case(Some(b));
            let tokens = self.tokens(b);
            let expected = Found {
                dims: vec![tokens.len() as i64, width as i64],
                values: together.values[tokens.start * width..tokens.end * width].to_vec(),
            };
            // The same bits, where no product of matrices has other dims.
            let tolerance = if self.form == Form::Projected { SUMS } else { 0.0 };
            compare(&alone, &alone.native(Float::F32)?, &[expected], tolerance)?;
        }
        Ok(())
    }
}

#[test]
fn packed_sequences() {
    check_all(61, 200, packed(), |packed| packed.check());
}

/// So many tokens that the threads share them.
#[test]
fn packed_sequences_of_many_tokens() {
    for form in [Form::Projected, Form::Separate, Form::Together] {
        let packed = Packed {
            form,
            lengths: vec![40, 0, 1, 23],
            padding: 1,
            heads: 3,
            size: 20,
            v_size: 20,
            width: 30,
            bias: true,
            score_bias: Some((true, true)),
            scale: 0.0,
            half: Float::F16,
            seed: 7,
        };
        packed.check().unwrap();
    }
}

#[test]
fn packed_sequences_that_do_not_fit_are_refused() {
    let case = |offsets: &[i32], ends: &[i32], bias: Option<&[usize]>| {
        let mut numbers = Numbers::new(1);
        let case = Case::new("PackedMultiHeadAttention")
            .input(numbers.value(&[3, 4], 1.0))
            .input(numbers.value(&[3, 4], 1.0))
            .input(numbers.value(&[3, 2], 1.0))
            .input(None)
            .input(Value::i32s(&[2, offsets.len() / 2], offsets))
            .input(Value::i32s(&[ends.len()], ends))
            .input(bias.map(|dims| numbers.value(dims, 1.0)));
        case.int("num_heads", 2).output().native(Float::F32)
    };
    let sound = [0, 2, 3, 1];
    assert!(case(&sound, &[0, 1, 3], Some(&[2, 1, 2, 2])).is_ok());
    for (offsets, ends, bias, message) in [
        (
            &sound[..],
            &[0, 3][..],
            None,
            "input 5 has dims [2], expected [3]",
        ),
        (
            &sound,
            &[1, 1, 3],
            None,
            "cumulative_sequence_length[0] is 1, expected 0",
        ),
        (
            &sound,
            &[0, -1, 3],
            None,
            "cumulative_sequence_length[1] is -1, expected 0 and at most 2",
        ),
        (
            &sound,
            &[0, 3, 3],
            None,
            "cumulative_sequence_length[1] is 3, expected 0 and at most 2",
        ),
        (
            &sound,
            &[0, 2, 1],
            None,
            "cumulative_sequence_length[2] is 1, expected 2 and at most 2",
        ),
        (
            &sound,
            &[0, 1, 2],
            None,
            "cumulative_sequence_length[2] is 2, expected 3, the tokens",
        ),
        (
            &sound,
            &[0, 2, 3],
            None,
            "token_offset[1] is 2, expected 1: token 1 of sequence 0",
        ),
        (
            &[0, 2, 3, 4],
            &[0, 1, 3],
            None,
            "token_offset[3] is 4, expected one of the 4 places",
        ),
        (
            &[-1, 2, 3, 1],
            &[0, 1, 3],
            None,
            "token_offset[0] is -1, expected one of the 4 places",
        ),
        (
            &sound,
            &[0, 1, 3],
            Some(&[2, 1, 3, 2][..]),
            "input 6 has dims [2, 1, 3, 2], expected [2 or 1, 2 or 1, 2, 2]",
        ),
    ] {
        let error = case(offsets, ends, bias).unwrap_err();
        assert!(error.contains(message), "{error}\nexpected: {message}");
    }
}
