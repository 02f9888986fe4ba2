//! Packages that are wrong, for packages.c.

use std::fs;
use std::path::Path;

use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node};

use crate::compiler::{C, CPP};
use crate::models::{METADATA, write_package};
use crate::programs;

/// A package like the good one, with one thing changed in its metadata.
fn with_metadata(folder: &Path, name: &str, from: &str, to: &str) {
    assert!(METADATA.contains(from), "{name}: the metadata has no {from:?}");
    let package = copy(folder, name);
    fs::write(
        package.join("inference_metadata.yaml"),
        METADATA.replacen(from, to, 1),
    )
    .expect("a file is written");
}

fn copy(folder: &Path, name: &str) -> std::path::PathBuf {
    let package = folder.join(name);
    fs::create_dir(&package).expect("a folder is made");
    write_package(&package);
    package
}

fn write_wrong_packages(folder: &Path) {
    fs::write(folder.join("a file"), "not a folder").expect("a file is written");
    fs::create_dir(folder.join("empty")).expect("a folder is made");
    copy(folder, "good");

    with_metadata(folder, "malformed", "  models:\n", "  models: [\n");
    with_metadata(folder, "wrong type", "  models:\n", "  models: 7\n  ignored:\n");
    let edge = "    - from: decoder.output_ids\n";
    let two = format!("    - from: vision_encoder.features\n      to: embedding.features\n{edge}");
    with_metadata(folder, "two edges", edge, &two);
    with_metadata(
        folder,
        "missing file",
        "filename: decoder.onnx",
        "filename: nowhere.onnx",
    );
    with_metadata(
        folder,
        "escaping",
        "filename: decoder.onnx",
        "filename: ../good/decoder.onnx",
    );
    let absolute = format!("filename: {}", folder.join("good/decoder.onnx").display());
    with_metadata(folder, "absolute", "filename: decoder.onnx", &absolute);
    with_metadata(folder, "unknown strategy", "kind: autoregressive", "kind: magic");
    with_metadata(
        folder,
        "unknown component",
        "from: vision_encoder.features",
        "from: nobody.features",
    );
    with_metadata(
        folder,
        "unknown port",
        "from: vision_encoder.features",
        "from: vision_encoder.nothing",
    );
    let capability = "schema_version: v1\nrequired_capabilities: [telepathy]\n";
    with_metadata(folder, "unknown capability", "schema_version: v1\n", capability);

    let link = copy(folder, "link that leaves");
    fs::remove_file(link.join("decoder.onnx")).expect("a file is removed");
    std::os::unix::fs::symlink(folder.join("good/decoder.onnx"), link.join("decoder.onnx"))
        .expect("a link is made");

    let broken = copy(folder, "broken model");
    fs::write(broken.join("decoder.onnx"), b"\x08\x08\x3a\xff\xff\xff\x7f").expect("a file is written");
    let directory = copy(folder, "directory for a model");
    fs::remove_file(directory.join("decoder.onnx")).expect("a file is removed");
    fs::create_dir(directory.join("decoder.onnx")).expect("a folder is made");
    let tokenizer = copy(folder, "broken tokenizer");
    fs::write(tokenizer.join("tokenizer.json"), "{\"model\": 3}").expect("a file is written");

    // Two components that feed each other.
    let ring = copy(folder, "cyclic");
    let increment = Model::new()
        .input("x", FLOAT, "[n]")
        .output("y", FLOAT, "[n]")
        .node(Node::new("Add", &["x", "x"], &["y"]))
        .encode();
    fs::write(ring.join("ring.onnx"), increment).expect("a file is written");
    let components = "    probe:\n      filename: probe.onnx\n      type: vocoder\n";
    let members = "    first:\n      filename: ring.onnx\n      type: encoder\n    second:\n      filename: \
                   ring.onnx\n      type: encoder\n";
    let edges = "    - from: first.y\n      to: second.x\n    - from: second.y\n      to: first.x\n";
    let metadata = METADATA
        .replacen(components, &format!("{components}{members}"), 1)
        .replacen(edge, &format!("{edges}{edge}"), 1);
    assert!(metadata.contains("second.x") && metadata.contains("    second:\n"));
    fs::write(ring.join("inference_metadata.yaml"), metadata).expect("a file is written");
}

#[test]
fn that_are_wrong() {
    let folder = programs::scratch("packages");
    write_wrong_packages(&folder);
    for language in [C, CPP] {
        let program = programs::build("packages", language);
        for backend in programs::backends() {
            let good = folder.join("good");
            let said = program.run(&[programs::path(&folder), programs::path(&good), backend]);
            assert!(said.ends_with(" 0 failures\n"), "{said}");
        }
    }
}
