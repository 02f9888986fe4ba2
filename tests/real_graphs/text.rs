//! File types (magika), sentences (all-MiniLM-L6-v2), pronunciation (hama).

use std::collections::HashMap;
use std::fs;

use oxpipe::component::{ComponentTensor, DataType};
use oxpipe::text::Tokenizer;
use serde_json::Value;

use super::harness::*;

/// The first and the last 1024 bytes without the space around them, 256 where there is none.
fn magika_input(content: &[u8]) -> ComponentTensor {
    const SIDE: usize = 1024;
    const BLOCK: usize = 4096;
    const PADDING: i32 = 256;
    let head = content[..content.len().min(BLOCK)].trim_ascii_start();
    let tail = content[content.len().saturating_sub(BLOCK)..].trim_ascii_end();
    let mut features = vec![PADDING; 2 * SIDE];
    for (feature, &byte) in features.iter_mut().zip(head.iter().take(SIDE)) {
        *feature = byte.into();
    }
    let last = &tail[tail.len().saturating_sub(SIDE)..];
    for (feature, &byte) in features.iter_mut().rev().zip(last.iter().rev()) {
        *feature = byte.into();
    }
    let bytes = features.iter().flat_map(|feature| feature.to_le_bytes());
    tensor(DataType::Int32, &[1, 2 * SIDE as i64], bytes)
}

#[test]
fn magika_tells_our_own_files() {
    let config: Value =
        serde_json::from_slice(&fs::read(fetched("magika/config.min.json")).unwrap()).unwrap();
    let labels = config["target_labels_space"].as_array().unwrap();
    let mut graph = Graph::open("magika/model.onnx");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, label) in [
        ("src/pipeline/run.rs", "rust"),
        ("Cargo.toml", "toml"),
        ("README.md", "markdown"),
        ("examples_c/chat.c", "c"),
        ("tools/gguf_to_package.py", "python"),
        ("scripts/fetch-model.sh", "shell"),
        ("CMakeLists.txt", "cmake"),
        ("third_party/real-graphs/hama/g2p_vocab.json", "json"),
    ] {
        let content = fs::read(root.join(file)).unwrap();
        let both = graph.run(&[("bytes", magika_input(&content))]);
        let scores = values(&both.native[0]);
        let best = (0..scores.len())
            .max_by(|&a, &b| scores[a].total_cmp(&scores[b]))
            .unwrap();
        assert_eq!(labels[best], label, "{file}");
    }
}

const SENTENCES: [&str; 20] = [
    "The capital of France is Paris.",
    "Paris is the largest city of France.",
    "A cat sleeps on the warm roof.",
    "The dog chases a red ball across the park.",
    "Rain is expected in the north tomorrow.",
    "Tomorrow it will be wet in the northern regions.",
    "She plays the violin in an orchestra.",
    "The stock market fell sharply today.",
    "Shares lost much of their value this afternoon.",
    "How do I reset my password?",
    "I can't log in to my account.",
    "Bake the bread for forty minutes at 220 degrees.",
    "The recipe needs flour, water, salt and yeast.",
    "Quantum computers use superposition and entanglement.",
    "The train to Berlin leaves from platform nine.",
    "Your parcel will arrive on Thursday.",
    "Rust prevents data races at compile time.",
    "Memory safety without a garbage collector.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "?",
];

/// The mean of the hidden states of the tokens that are no padding, of length 1.
fn embed(hidden: &ComponentTensor, lengths: &[usize]) -> Vec<Vec<f64>> {
    let [_, tokens, size] = hidden.shape() else {
        panic!("hidden states have rank 3")
    };
    let (tokens, size) = (*tokens as usize, *size as usize);
    let hidden = values(hidden);
    let rows = hidden.chunks(tokens * size).zip(lengths);
    rows.map(|(rows, &length)| {
        let mut mean = vec![0.0; size];
        for row in rows.chunks(size).take(length) {
            for (mean, &value) in mean.iter_mut().zip(row) {
                *mean += f64::from(value);
            }
        }
        let norm = mean.iter().map(|value| value * value).sum::<f64>().sqrt();
        mean.iter().map(|value| value / norm).collect()
    })
    .collect()
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn minilm_embeds_sentences() {
    let tokenizer = Tokenizer::from_file(&fetched("minilm/tokenizer.json")).unwrap();
    // The file pads to 128 itself; what is padding says the mask.
    let encoded: Vec<Vec<i64>> = SENTENCES
        .iter()
        .map(|sentence| {
            let ids = tokenizer.encode(sentence, true).unwrap();
            let ids = ids.into_iter().map(i64::from).collect::<Vec<_>>();
            let end = ids.iter().rposition(|&id| id != 0).unwrap();
            ids[..=end].to_vec()
        })
        .collect();
    let lengths: Vec<usize> = encoded.iter().map(Vec::len).collect();
    let longest = *lengths.iter().max().unwrap();
    let padded = |row: &Vec<i64>, fill: &dyn Fn(i64) -> i64| -> Vec<i64> {
        let mut row: Vec<i64> = row.iter().map(|&id| fill(id)).collect();
        row.resize(longest, 0);
        row
    };
    let shape = [SENTENCES.len() as i64, longest as i64];
    let rows = |fill: &dyn Fn(i64) -> i64| {
        let rows: Vec<i64> = encoded.iter().flat_map(|row| padded(row, fill)).collect();
        ints(&shape, &rows)
    };
    let mut graph = Graph::open("minilm/model.onnx");
    let both = graph.run(&[
        ("input_ids", rows(&|id| id)),
        ("attention_mask", rows(&|_| 1)),
        ("token_type_ids", rows(&|_| 0)),
    ]);
    let (native, ort) = (embed(&both.native[0], &lengths), embed(&both.ort[0], &lengths));
    for ((native, ort), sentence) in native.iter().zip(&ort).zip(SENTENCES) {
        let cosine = cosine(native, ort);
        assert!(cosine >= 0.99999, "{cosine} for {sentence:?}");
    }
    // That the weights are where they belong: what means the same is near.
    assert!(cosine(&native[0], &native[1]) > 0.7);
    assert!(cosine(&native[4], &native[5]) > 0.6);
    assert!(cosine(&native[0], &native[11]) < 0.3);
}

/// Encoder once, then the decoder step by step, its state carried.
#[test]
fn hama_spells_words() {
    let vocabulary: Value =
        serde_json::from_slice(&fs::read(fetched("hama/g2p_vocab.json")).unwrap()).unwrap();
    let ids: HashMap<&str, i64> = vocabulary["encoder"]
        .as_array()
        .unwrap()
        .iter()
        .zip(0..)
        .map(|(token, id)| (token.as_str().unwrap(), id))
        .collect();
    let sounds: Vec<&str> = vocabulary["decoder"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token.as_str().unwrap())
        .collect();
    let sound = |name: &str| sounds.iter().position(|&known| known == name).unwrap() as i64;
    let (start, end) = (sound("<sos>"), sound("<eos>"));
    const MOST_LETTERS: usize = 128;
    const MOST_SOUNDS: usize = 32;

    let mut encoder = Graph::open("hama/encoder.onnx").in_float16();
    let mut decoder = Graph::open("hama/decoder_step.onnx").in_float16();
    for word in ["paris", "computer", "strength", "through", "knowledge", "quick"] {
        let mut letters: Vec<i64> = word
            .chars()
            .map(|letter| ids[letter.to_string().as_str()])
            .collect();
        letters.resize(MOST_LETTERS, ids["<pad>"]);
        let encoded = encoder.run(&[
            ("input_ids", ints(&[1, MOST_LETTERS as i64], &letters)),
            ("input_lengths", ints(&[1], &[word.len() as i64])),
        ]);
        let length = encoded.ort[0].shape()[1];
        let positions: Vec<f32> = (0..length).map(|position| position as f32).collect();
        // Each backend goes on from what it gave itself.
        let mut states = [encoded.native, encoded.ort];
        let mut last = start;
        let mut spelled = String::new();
        for _ in 0..MOST_SOUNDS {
            let [native, ort] = [&states[0], &states[1]].map(|state| {
                vec![
                    ("decoder_input_ids", ints(&[1, 1], &[last])),
                    ("encoder_outputs", copy(&state[0])),
                    ("projected_keys", copy(&state[1])),
                    ("encoder_mask", copy(&state[3])),
                    ("prev_attn", copy(&state[4])),
                    ("hidden", copy(&state[2])),
                    ("positions", floats(&[1, length], &positions)),
                ]
            });
            let both = decoder.run_each(&native, &ort);
            last = int_values(&both.native[0])[0];
            for (state, outputs) in states.iter_mut().zip([both.native, both.ort]) {
                state[2] = copy(&outputs[1]);
                state[4] = copy(&outputs[2]);
            }
            if last == end {
                break;
            }
            spelled.push_str(sounds[last as usize]);
        }
        println!("{word}: {spelled}");
        assert_eq!(last, end, "{word}: {spelled} does not end");
        assert!(spelled.chars().count() >= 3, "{word}: {spelled}");
    }
}
