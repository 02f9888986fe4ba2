//! The picture that `inspect --svg` draws of a package: XML that a parser takes, with a box for each
//! component and an arrow for each edge, the same every time.
#![cfg(feature = "native")]

use std::fs;
use std::process::{Command, Stdio};

use oxpipe::component::RunControl;
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineOptions};
use oxpipe::runtime::Runtime;
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor};
use serde_json::{Value, json};

#[path = "../examples/inspect/svg.rs"]
mod svg;

/// What Python's XML parser says of a picture: the texts, and how many elements of each kind there are.
struct Parsed {
    texts: Vec<String>,
    counts: Value,
}

fn parse(picture: &str) -> Parsed {
    let program = "\
import collections, json, sys
import xml.etree.ElementTree as tree
elements = list(tree.fromstring(sys.stdin.buffer.read()).iter())
kind = lambda element: element.tag.split('}')[1]
texts = [element.text for element in elements if kind(element) in ('text', 'title')]
print(json.dumps([texts, collections.Counter(map(kind, elements))]))";
    let mut python = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("scripts/install-tools.sh python installs what this test needs");
    std::io::Write::write_all(&mut python.stdin.take().unwrap(), picture.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{picture}");
    let (texts, counts) = serde_json::from_slice(&output.stdout).unwrap();
    Parsed { texts, counts }
}

#[test]
fn a_package_is_drawn_with_its_edges_phases_backends_and_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let identity: Vec<f32> = (0..64).map(|at| f32::from(at % 9 == 0)).collect();
    let vision = Model::new()
        .input("pixels", FLOAT, "[1, 8]")
        .output("features", FLOAT, "[1, 8]")
        .node(Node::new("Identity", &["pixels"], &["features"]));
    let embedding = Model::new()
        .input("input_ids", INT64, "[1, s]")
        .input("features", FLOAT, "[1, 8]")
        .output("inputs_embeds", FLOAT, "[1, s, 8]")
        .initializer(Tensor::floats("table", &[8, 8], &identity))
        .node(Node::new("Gather", &["table", "input_ids"], &["rows"]))
        .node(Node::new("Add", &["rows", "features"], &["inputs_embeds"]));
    let decoder = Model::new()
        .input("inputs_embeds", FLOAT, "[1, s, 8]")
        .input("past", FLOAT, "[1, 1, past, 8]")
        .output("logits", FLOAT, "[1, s, 8]")
        .output("present", FLOAT, "[1, 1, total, 8]")
        .initializer(Tensor::ints("head", &[1], &[1]))
        .node(Node::new("Identity", &["inputs_embeds"], &["logits"]))
        .node(Node::new("Unsqueeze", &["inputs_embeds", "head"], &["new"]))
        .node(Node::new("Concat", &["past", "new"], &["present"]).int("axis", 2));
    let metadata = "\
pipeline:
  models:
    vision: {filename: vision.onnx, type: vision_encoder}
    embedding: {filename: embedding.onnx, type: embedding, io: {token_input: input_ids}}
    decoder:
      filename: decoder.onnx
      type: decoder
      io:
        sequence_source: inputs_embeds
        inputs_embeds_input: inputs_embeds
        logits_output: logits
        kv_inputs: [past]
        kv_outputs: [present]
  dataflow:
    - {from: vision.features, to: embedding.features}
    - {from: embedding.inputs_embeds, to: decoder.inputs_embeds}
  phases:
    vision: {run_on: prompt_only}
    embedding: {run_on: every_step}
    decoder: {run_on: every_step}
  strategy: {kind: autoregressive, decoder: decoder}
";
    for (name, bytes) in [
        ("vision.onnx", vision.encode()),
        ("embedding.onnx", embedding.encode()),
        ("decoder.onnx", decoder.encode()),
        ("inference_metadata.yaml", metadata.into()),
    ] {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let source = PackageSource::Directory(folder.path().to_owned());
    let (runtime, options) = (Runtime::default(), PipelineOptions::default());
    let pipeline = Pipeline::open(&runtime, &source, &options, None, &RunControl::default()).unwrap();
    let description = pipeline.describe();
    let bytes = [("decoder".to_owned(), 3 << 20)];
    let picture = svg::draw(&description, &bytes);
    assert_eq!(picture, svg::draw(&description, &bytes));

    let parsed = parse(&picture);
    let said = |text: &str| parsed.texts.iter().any(|line| line == text);
    for text in [
        "inference_metadata: autoregressive, 32 B of KV cache a token",
        "vision",
        "vision_encoder",
        "prompt only",
        "pixels ← request",
        "on native",
        "embedding",
        "every step",
        "input_ids ← tokens",
        "decoder.onnx, 3.0 MiB",
        "keeps 1 caches",
        "→ logits",
        "features",
        "inputs_embeds",
    ] {
        assert!(said(text), "{text}: {:?}", parsed.texts);
    }
    // The ground, three boxes and two of the legend; the arrow's head and two arrows.
    assert_eq!(
        (&parsed.counts["rect"], &parsed.counts["path"]),
        (&json!(6), &json!(3))
    );
    // From the left to the right, as the values go.
    let x = |name: &str| -> f64 {
        let at = picture.find(&format!("<g><title>{name}: ")).unwrap();
        let rest = picture[at..].split_once("x=\"").unwrap().1;
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    assert!(x("vision") < x("embedding") && x("embedding") < x("decoder"));
}

/// Whatever is in names, the picture is XML; what has too little room is cut.
#[test]
fn names_cannot_break_the_picture() {
    let name = "<a href=\"x\">&amp;</a>\u{1}\n";
    let long = "x".repeat(500);
    let component = |name: &str, edge: &str| {
        json!({
            "name": name, "type": "", "file": long, "backend": "ort", "reason": "]]>", "phase": "every_step",
            "when_present": null,
            "inputs": [{"name": "in", "source": {"edge": edge}, "merges": []}],
            "outputs": [{"name": long, "role": null}],
        })
    };
    // The two in a circle.
    let components = [
        component(name, "b.out"),
        component("b", &format!("{name}.{long}")),
    ];
    let parsed = parse(&svg::draw(&json!({"components": components, "format": "&"}), &[]));
    assert!(
        parsed.texts.contains(&"<a href=\"x\">&amp;</a> ".to_owned()),
        "{:?}",
        parsed.texts
    );
    assert!(
        parsed
            .texts
            .iter()
            .any(|text| text.len() < 60 && text.ends_with('…'))
    );
    // Nothing to draw is a picture, too.
    assert_eq!(parse(&svg::draw(&json!({}), &[])).counts["rect"], 3);
}
