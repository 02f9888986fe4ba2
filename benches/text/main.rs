//! The time of what is done with text beside the model: encoding and decoding 1 MB, and a
//! constraint's masks.
//!
//!     cargo bench --bench text
//!
//! The tokenizer is that of SmolLM2 (scripts/fetch-model.sh), of 49,152 tokens. Masks are also
//! taken over a vocabulary of 152,064, as large as that of Qwen, of which every token but the 256
//! bytes is a word of letters, half of them with a space before. `mask/*` is the mean over the
//! places of an answer, `floor` a pass over as many logits; `text/floor_1mb` copies the text and its ids.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use oxpipe::text::{Constraint, ConstraintKind, Guide, Tokenizer};
use serde_json::json;

const MEGABYTE: usize = 1_000_000;
const LARGE: usize = 152_064;

fn smollm2() -> Arc<Tokenizer> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/smollm2-135m-instruct/tokenizer.json");
    Tokenizer::from_file(&path).expect("SmolLM2's tokenizer; run scripts/fetch-model.sh")
}

/// Prose with code in it: this project's README, as often as it takes.
fn prose() -> String {
    let text = include_str!("../../README.md").repeat(1 + MEGABYTE / include_str!("../../README.md").len());
    let end = (0..=MEGABYTE).rev().find(|&end| text.is_char_boundary(end));
    text[..end.unwrap_or(0)].to_owned()
}

fn coding(criterion: &mut Criterion) {
    let tokenizer = smollm2();
    let text = prose();
    let ids = tokenizer.encode(&text, false).expect("text");
    let mut group = criterion.benchmark_group("text");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("encode_1mb", |bencher| {
        bencher.iter(|| tokenizer.encode(black_box(&text), false))
    });
    group.bench_function("decode_1mb", |bencher| {
        bencher.iter(|| tokenizer.decode(black_box(&ids), true))
    });
    // What either has to read and write, text and ids: no tokenizer can take less.
    group.bench_function("floor_1mb", |bencher| {
        bencher.iter(|| (black_box(&text).clone(), black_box(&ids).clone()))
    });
    group.bench_function("stream_1mb", |bencher| {
        bencher.iter(|| {
            let mut stream = tokenizer.decode_stream(true);
            let pieces: usize = ids
                .iter()
                .map(|&id| stream.push(id).expect("a known id").len())
                .sum();
            pieces + stream.flush().expect("text").len()
        });
    });
    group.finish();
}

/// A byte-level vocabulary of [`LARGE`] tokens.
fn large_vocabulary() -> Arc<Tokenizer> {
    let mut moved = 0;
    let mut tokens: Vec<String> = (0..=255u8)
        .map(|byte| {
            if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
                return char::from(byte).to_string();
            }
            moved += 1;
            char::from_u32(255 + moved).map(String::from).unwrap_or_default()
        })
        .collect();
    tokens.extend((0..(LARGE - 256) as u32).map(|at| {
        let mut word = String::from(if at % 2 == 0 { "\u{120}" } else { "" });
        let mut rest = at / 2 + 26;
        while rest > 0 {
            word.push(char::from(b'a' + (rest % 26) as u8));
            rest /= 26;
        }
        word
    }));
    let vocabulary: serde_json::Map<String, serde_json::Value> = tokens
        .into_iter()
        .enumerate()
        .map(|(id, token)| (token, json!(id)))
        .collect();
    let file = json!({
        "version": "1.0",
        "added_tokens": [{"id": LARGE, "content": "</s>", "special": true, "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}
    });
    Tokenizer::from_bytes("large", file.to_string().as_bytes(), None).expect("a tokenizer")
}

/// The masks along an answer, one after the other.
fn walk(constraint: &mut Constraint, ids: &[i32]) -> usize {
    let mut words = 0;
    for &id in ids {
        words += constraint.mask().expect("a mask").len();
        constraint.take(id).expect("it fits");
    }
    words
}

fn masks(criterion: &mut Criterion) {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
            "note": {"type": "string", "maxLength": 80}
        },
        "required": ["name", "age", "tags", "note"]
    })
    .to_string();
    let answer = r#"{"name": "Ada Lovelace", "age": 36, "tags": ["red", "blue"], "note": "She wrote the first program."}"#;
    let mut group = criterion.benchmark_group("mask");
    for (name, tokenizer, end) in [
        ("49152", smollm2(), 2),
        ("152064", large_vocabulary(), LARGE as i32),
    ] {
        group.bench_function(BenchmarkId::new("vocabulary", name), |bencher| {
            bencher.iter(|| Guide::new(&tokenizer, &[end]));
        });
        let guide = Guide::new(&tokenizer, &[end]).expect("a vocabulary");
        group.bench_function(BenchmarkId::new("compile_schema", name), |bencher| {
            bencher.iter(|| guide.compile(ConstraintKind::JsonSchema, &schema, 4));
        });
        let ids = tokenizer.encode(answer, false).expect("text");
        group.throughput(Throughput::Elements(ids.len() as u64));
        for (kind, label, text) in [
            (ConstraintKind::Json, "json", ""),
            (ConstraintKind::JsonSchema, "schema", schema.as_str()),
            (ConstraintKind::Regex, "regex", "(.|\\n){1,400}"),
        ] {
            let mut constraint = guide.compile(kind, text, 4).expect("a grammar");
            walk(&mut constraint, &ids);
            constraint.rewind(0);
            group.bench_function(BenchmarkId::new(label, name), |bencher| {
                bencher.iter_batched(
                    || constraint.clone(),
                    |mut constraint| walk(&mut constraint, &ids),
                    BatchSize::LargeInput,
                );
            });
        }
        let logits: Vec<f32> = (0..tokenizer.vocab_size()).map(|at| at as f32).collect();
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("floor", name), |bencher| {
            bencher.iter(|| black_box(&logits).iter().copied().fold(f32::MIN, f32::max));
        });
    }
    group.finish();
}

fn short() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(400))
        .measurement_time(Duration::from_millis(1500))
        .sample_size(10)
        .nresamples(10_000)
        .without_plots()
}

criterion_group! {
    name = text;
    config = short();
    targets = coding, masks
}
criterion_main!(text);
