//! A sentence encoder as a sentence-transformers folder, text to vector, beside the vectors that
//! minilm.py has made with other software.

use std::fs;
use std::sync::Arc;

use oxpipe::component::{RunControl, SharedBytes};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineOptions, TextRows};
use oxpipe::runtime::{BackendChoice, Environment, Runtime, RuntimeSettings};
use oxpipe_test_support::onnxruntime::library_path;
use serde_json::Value;

use super::harness::fetched;

/// As the model's own folder has them, as far as vectors depend on it.
const FILES: [(&str, &str); 4] = [
    (
        "config.json",
        r#"{"architectures": ["BertModel"], "model_type": "bert", "hidden_size": 384, "max_position_embeddings": 512}"#,
    ),
    (
        "modules.json",
        r#"[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#,
    ),
    (
        "1_Pooling/config.json",
        r#"{"word_embedding_dimension": 384, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true,
            "pooling_mode_max_tokens": false, "pooling_mode_mean_sqrt_len_tokens": false}"#,
    ),
    (
        "sentence_bert_config.json",
        r#"{"max_seq_length": 256, "do_lower_case": false}"#,
    ),
];

/// `without` is a file of the folder that is not there.
fn open(backend: BackendChoice, without: &str, refuse_long_texts: bool) -> Pipeline {
    let shared = |bytes: Vec<u8>| -> SharedBytes { Arc::new(bytes) };
    let mut files: Vec<(String, SharedBytes)> = FILES
        .iter()
        .filter(|(name, _)| *name != without)
        .map(|(name, text)| ((*name).to_owned(), shared(text.as_bytes().to_vec())))
        .collect();
    for name in ["model.onnx", "tokenizer.json"] {
        let bytes = fs::read(fetched(&format!("minilm/{name}"))).unwrap();
        files.push((name.to_owned(), shared(bytes)));
    }
    let settings = RuntimeSettings {
        ort_library_path: Some(library_path()),
        threads: Some(1),
        ..RuntimeSettings::default()
    };
    let runtime = Runtime::with_environment(settings, Environment::default());
    let options = PipelineOptions {
        backend: Some(backend),
        refuse_long_texts,
        ..PipelineOptions::default()
    };
    let source = PackageSource::Files(files);
    Pipeline::open(&runtime, &source, &options, None, &RunControl::default()).unwrap()
}

fn embed(pipeline: &Pipeline, texts: &[&str]) -> TextRows {
    pipeline.embed(texts, &RunControl::default()).unwrap()
}

/// Of vectors of length 1.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let products = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b));
    products.sum()
}

fn furthest(a: &[f32], b: &[f32]) -> f32 {
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    apart.fold(0.0, f32::max)
}

#[test]
fn minilm_gives_the_vectors_of_other_software() {
    let rows: Value = serde_json::from_str(include_str!("minilm.json")).unwrap();
    let rows = rows.as_array().unwrap();
    let texts: Vec<&str> = rows.iter().map(|row| row["text"].as_str().unwrap()).collect();
    let expected: Vec<Vec<f32>> = rows
        .iter()
        .map(|row| {
            let vector = row["vector"].as_array().unwrap().iter();
            vector.map(|x| x.as_f64().unwrap() as f32).collect()
        })
        .collect();
    assert!(texts.len() >= 20);
    for backend in [BackendChoice::Native, BackendChoice::Ort] {
        let pipeline = open(backend, "", false);
        let together = embed(&pipeline, &texts);
        assert_eq!((together.width, together.rows().count()), (384, texts.len()));
        for ((text, expected), own) in texts.iter().zip(&expected).zip(together.rows()) {
            let apart = furthest(own, expected);
            assert!(apart < 2e-5, "{apart} apart, {} of {text:?}", backend.name());
            assert!(cosine(own, expected) > 0.999_999, "{text:?}");
            // The longest have no padding, and take most of the time.
            if text.len() > 100 {
                continue;
            }
            let alone = embed(&pipeline, &[text]);
            assert!(furthest(own, &alone.values) < 1e-5, "{text:?} alone");
        }
    }
}

#[test]
fn long_texts_are_cut_off_where_the_folder_says_or_refused() {
    let long = "word ".repeat(300);
    let tokens = |count: usize| "word ".repeat(count - 2);
    // The tokenizer's own file says 128 where the folder says nothing.
    for (without, most) in [("", 256), ("sentence_bert_config.json", 128)] {
        let pipeline = open(BackendChoice::Ort, without, false);
        let made = embed(&pipeline, &[&long, &tokens(most), &tokens(most - 1)]);
        let rows: Vec<&[f32]> = made.rows().collect();
        assert_eq!(rows[0], rows[1]);
        assert_ne!(rows[0], rows[2]);
        let pipeline = open(BackendChoice::Ort, without, true);
        let cut = embed(&pipeline, &[&tokens(most)]);
        assert!(furthest(&cut.values, rows[1]) < 2e-5);
        let error = pipeline.embed(&[&long], &RunControl::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(&most.to_string()), "{error}");
    }
}
