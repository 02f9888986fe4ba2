//! Vectors and classes of texts. A token's vector is its id and the sum of all ids of its text, so that
//! one that saw padding would be another.

use std::sync::Arc;

use oxpipe::component::RunControl;
use oxpipe::pipeline::{ErrorKind, Pipeline, PipelineOptions};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
use serde_json::json;

use super::mixes::{TestPackage, files, open_files, spec, written};

const TOKENIZER: &str = r#"{
  "version": "1.0",
  "added_tokens": [],
  "pre_tokenizer": {"type": "Whitespace"},
  "model": {"type": "WordLevel", "vocab": {"pad": 9, "one": 1, "two": 2, "three": 3, "four": 4}, "unk_token": "pad"}
}"#;

/// Padding is token 9, which the graph does not know to be none.
const CONFIG: &str = r#"{"pad_token": "pad"}"#;

fn model(masked: bool) -> Vec<u8> {
    let model = Model::new()
        .input("ids", INT64, "[batch, s]")
        .output("hidden", FLOAT, "[batch, s, 2]")
        .output("sums", FLOAT, "[batch, 1]")
        .initializer(Tensor::ints("last", &[1], &[-1]))
        .initializer(Tensor::ints("axis", &[1], &[1]))
        .initializer(Tensor::floats("zero", &[], &[0.0]));
    let model = match masked {
        true => model
            .input("mask", INT64, "[batch, s]")
            .node(Node::new("Mul", &["ids", "mask"], &["seen"])),
        false => model.node(Node::new("Identity", &["ids"], &["seen"])),
    };
    model
        .node(Node::new("Cast", &["seen"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("ReduceSum", &["numbers", "axis"], &["sums"]).int("keepdims", 1))
        .node(Node::new("Mul", &["numbers", "zero"], &["zeros"]))
        .node(Node::new("Add", &["zeros", "sums"], &["everywhere"]))
        .node(Node::new("Unsqueeze", &["numbers", "last"], &["own"]))
        .node(Node::new("Unsqueeze", &["everywhere", "last"], &["whole"]))
        .node(Node::new("Concat", &["own", "whole"], &["hidden"]).int("axis", -1))
        .encode()
}

fn package(section: &str, masked: bool) -> TestPackage {
    let mask = if masked {
        "        attention_mask_input: mask\n"
    } else {
        ""
    };
    let metadata = format!(
        "{section}\npipeline:\n  strategy: {{kind: single_pass, model: model}}\n  models:\n    model:\n      \
         filename: model.onnx\n      type: encoder\n      tokenizer: tokenizer.json\n      io:\n        \
         token_input: ids\n{mask}"
    );
    TestPackage::new(&metadata, vec![("model", model(masked))])
        .with_file("tokenizer.json", Arc::new(TOKENIZER.as_bytes().to_vec()))
        .with_file("tokenizer_config.json", Arc::new(CONFIG.as_bytes().to_vec()))
}

const TEXTS: [&str; 3] = ["one four", "three", "two two four four"];

fn rows(pipeline: &Pipeline) -> Vec<Vec<f32>> {
    let control = RunControl::default();
    let together = pipeline.embed(&TEXTS, &control).unwrap();
    let alone = TEXTS.map(|text| pipeline.embed(&[text], &control).unwrap().values);
    let together: Vec<Vec<f32>> = together.rows().map(<[f32]>::to_vec).collect();
    assert_eq!(together, alone);
    together
}

#[test]
fn vectors_are_pooled_as_the_package_says_and_see_no_padding() {
    let half = 0.5f32;
    for (pooling, expected) in [
        ("mean", [[2.5, 5.0], [3.0, 3.0], [3.0, 12.0]]),
        ("cls", [[1.0, 5.0], [3.0, 3.0], [2.0, 12.0]]),
        ("last_token", [[4.0, 5.0], [3.0, 3.0], [4.0, 12.0]]),
        ("max", [[4.0, 5.0], [3.0, 3.0], [4.0, 12.0]]),
        (
            "mean_sqrt_len",
            [[5.0 * half.sqrt(), 10.0 * half.sqrt()], [3.0, 3.0], [6.0, 24.0]],
        ),
    ] {
        for masked in [true, false] {
            let section = format!("embedding: {{pooling: {pooling}}}");
            package(&section, masked).for_each_mix(|pipeline| {
                for (found, expected) in rows(pipeline).iter().zip(expected) {
                    let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
                    assert!(near, "{pooling}: {found:?}, expected {expected:?}");
                }
            });
        }
    }
    let section = "embedding: {pooling: none, normalize: true}";
    package(section, true).for_each_mix(|pipeline| {
        assert_eq!(rows(pipeline), [[1.0], [1.0], [1.0]]);
    });
}

#[test]
fn classes_have_names_and_scores() {
    let control = RunControl::default();
    let section = "classifier: {labels: [sum], activation: none}";
    package(section, true).for_each_mix(|pipeline| {
        assert_eq!(pipeline.labels(), ["sum"]);
        assert_eq!(
            pipeline.classify(&TEXTS, &control).unwrap().values,
            [5.0, 3.0, 12.0]
        );
    });
    // Of one class by sigmoid, as transformers has it.
    package("classifier: {labels: [sum]}", true).for_each_mix(|pipeline| {
        let scores = pipeline.classify(&TEXTS, &control).unwrap().values;
        assert!((scores[1] - 1.0 / (1.0 + (-3f32).exp())).abs() < 1e-6);
        let description = pipeline.describe();
        assert_eq!(description["readout"]["classifier"]["activation"], "sigmoid");
    });
    let pipeline = package("classifier: {labels: [a, b]}", true)
        .open(&PipelineOptions::default())
        .unwrap();
    let error = pipeline.classify(&TEXTS, &control).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("gives 1 numbers a text, and the package names 2"),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn what_a_package_says_wrongly_is_refused() {
    for (section, fragment) in [
        ("embedding: {pooling: middle}", "middle"),
        ("embedding: {normalize: true}", "pooling"),
        ("classifier: {activation: tanh}", "tanh"),
        ("classifier: {labels: 3}", "labels"),
    ] {
        let error = package(section, true)
            .open(&PipelineOptions::default())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadPackage, "{section}");
        assert!(error.to_string().contains(fragment), "{error}");
    }
    let silent = package("", true).open(&PipelineOptions::default()).unwrap();
    let error = silent.embed(&TEXTS, &RunControl::default()).unwrap_err();
    assert!(error.to_string().contains("modules.json"), "{error}");
}

#[test]
fn a_text_that_cannot_be_read_is_named_by_its_place() {
    let control = RunControl::default();
    let refusing = PipelineOptions {
        refuse_long_texts: true,
        ..PipelineOptions::default()
    };
    let pipeline = package("embedding: {pooling: mean, max_seq_length: 3}", true)
        .open(&refusing)
        .unwrap();
    for (texts, expected, kind) in [
        (
            ["one", ""],
            "text 1 has no tokens; leave it out",
            ErrorKind::InvalidState,
        ),
        (
            ["one two three four", "two"],
            "text 0 has 4 tokens, and the package takes 3",
            ErrorKind::InvalidArgument,
        ),
    ] {
        let error = pipeline.embed(&texts, &control).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.kind(), kind);
    }
    assert_eq!(pipeline.embed(&["one"], &control).unwrap().values, [1.0, 1.0]);
}

/// A sentence-transformers folder and a classifier, as our own format has them.
#[test]
fn what_hugging_face_folders_say_is_written_as_metadata() {
    let graph = |output: &str, dims: &str, axes: &[i64]| {
        Model::new()
            .input("input_ids", INT64, "[batch, s]")
            .output(output, FLOAT, dims)
            .initializer(Tensor::ints("axes", &[1], axes))
            .node(Node::new("Cast", &["input_ids"], &["numbers"]).int("to", FLOAT.into()))
            .node(Node::new("Unsqueeze", &["numbers", "axes"], &["rows"]))
    };
    let vectors = graph("last_hidden_state", "[batch, s, 1]", &[2])
        .node(Node::new("Identity", &["rows"], &["last_hidden_state"]))
        .encode();
    let classes = graph("logits", "[batch, 2]", &[1])
        .initializer(Tensor::floats("both", &[2, 1], &[1.0, -1.0]))
        .node(Node::new("Mul", &["rows", "both"], &["pairs"]))
        .node(
            Node::new("ReduceMax", &["pairs"], &["logits"])
                .ints("axes", &[2])
                .int("keepdims", 0),
        )
        .opset("", 13)
        .encode();
    let modules = r#"[
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;
    let of_config = |config: &str, graph: &[u8]| {
        files([
            ("config.json", config.as_bytes().to_vec()),
            ("model.onnx", graph.to_vec()),
            ("tokenizer.json", TOKENIZER.as_bytes().to_vec()),
            ("tokenizer_config.json", CONFIG.as_bytes().to_vec()),
        ])
    };
    let mut sentences = of_config(
        r#"{"model_type": "bert", "architectures": ["BertModel"]}"#,
        &vectors,
    );
    sentences.extend(files([
        ("modules.json", modules.as_bytes().to_vec()),
        ("sentence_bert_config.json", br#"{"max_seq_length": 3}"#.to_vec()),
        ("1_Pooling/config.json", br#"{"pooling_mode": "max"}"#.to_vec()),
    ]));
    let config = r#"{"model_type": "bert", "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "high", "1": "low: not high"}, "problem_type": "multi_label_classification"}"#;
    for (package, expected) in [
        (
            sentences,
            json!({"embedding": {"pooling": "max", "normalize": true, "max_seq_length": 3}}),
        ),
        (
            of_config(config, &classes),
            json!({"classifier": {"labels": ["high", "low: not high"], "activation": "sigmoid"}}),
        ),
    ] {
        let (of_metadata, text) = written(&package);
        let (before, after) = (open_files(&package), open_files(&of_metadata));
        assert_eq!(before.describe()["readout"], expected);
        assert_eq!(spec(&before), spec(&after), "{text}");
    }
}
