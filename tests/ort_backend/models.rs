//! What a model declares, external data, and models that are none.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use oxpipe::component::{Backend, ComponentSession, DataType, Dim, ModelSource, Port, PortType, SharedBytes};
use oxpipe_test_support::onnx_writer::{DOUBLE, FLOAT, INT64, Model, Node, STRING, Tensor};
use oxpipe_test_support::onnxruntime::library_path;
use tempfile::TempDir;

use super::harness::*;
use crate::assert_kind;

const F32: DataType = DataType::Float32;

fn symbol(name: &str) -> Dim {
    Dim::Symbol(Some(name.into()))
}

fn port(name: &str, ty: PortType, dims: Option<Vec<Dim>>) -> Port {
    Port {
        name: name.into(),
        ty,
        dims,
        optional: false,
    }
}

#[test]
fn ports_and_metadata_are_as_the_model_declares_them() {
    let session = load(
        Model::new()
            .producer("a tool", "2.1")
            .metadata("zebra", "1")
            .metadata("ape", "2")
            .input("x", FLOAT, "[1, sequence, ?]")
            .input("scalar", INT64, "[]")
            .input("any", INT64, "[...]")
            .output("y", FLOAT, "[1, past + sequence, ?]")
            .graph(|graph| graph.untyped_output("inferred"))
            .node(Node::new("Neg", &["x"], &["y"]))
            .node(Node::new("Shape", &["x"], &["inferred"])),
    );
    assert_eq!(session.backend(), Backend::Ort);
    assert_eq!(session.name(), "part");
    let f32 = PortType::Tensor(F32);
    let i64 = PortType::Tensor(DataType::Int64);
    assert_eq!(
        session.io().inputs,
        [
            port(
                "x",
                f32.clone(),
                Some(vec![Dim::Fixed(1), symbol("sequence"), Dim::Symbol(None)])
            ),
            port("scalar", i64.clone(), Some(vec![])),
            port("any", i64.clone(), None),
        ]
    );
    assert_eq!(
        session.io().outputs,
        [
            port(
                "y",
                f32,
                Some(vec![Dim::Fixed(1), symbol("past + sequence"), Dim::Symbol(None)])
            ),
            port("inferred", i64, None),
        ]
    );
    let pairs: Vec<(&str, &str)> = session
        .metadata()
        .iter()
        .map(|(key, value)| (&key[..], &value[..]))
        .collect();
    assert_eq!(
        pairs,
        [
            ("zebra", "1"),
            ("ape", "2"),
            ("producer_name", "a tool"),
            ("producer_version", "2.1")
        ]
    );
}

#[test]
fn types_that_do_not_cross_the_seam_are_shown_and_refused() {
    let mut session = load(
        Model::new()
            .input("text", STRING, "[n]")
            .input("wide", DOUBLE, "[n]")
            .output("text_again", STRING, "[n]")
            .output("narrow", FLOAT, "[n]")
            .graph(|graph| graph.sequence_output("parts", FLOAT))
            .node(Node::new("Identity", &["text"], &["text_again"]))
            .node(Node::new("Cast", &["wide"], &["narrow"]).int("to", FLOAT.into()))
            .node(Node::new("SequenceConstruct", &["narrow"], &["parts"])),
    );
    let shown: Vec<String> = [&session.io().inputs, &session.io().outputs]
        .into_iter()
        .flatten()
        .map(|port| port.ty.to_string())
        .collect();
    assert_eq!(
        shown,
        [
            "tensor(string)",
            "tensor(double)",
            "tensor(string)",
            "float32",
            "seq(tensor(float))"
        ]
    );
    let bytes = floats(&[1.0]);
    let error = run_error(
        &mut session,
        &[input("wide", F32, &[1], &bytes)],
        &[alloc("narrow")],
    );
    assert_kind!(error, Kind::UnsupportedPortType { port, found } if port == "wide" && found == "tensor(double)");
}

fn with_default(ir_version: i64) -> Box<dyn ComponentSession> {
    load(
        Model::new()
            .ir_version(ir_version)
            .input("w", FLOAT, "[1]")
            .input("x", FLOAT, "[n]")
            .output("y", FLOAT, "[n]")
            .node(Node::new("Mul", &["x", "w"], &["y"]))
            .initializer(Tensor::floats("w", &[1], &[10.0])),
    )
}

#[test]
fn an_input_with_a_default_is_optional() {
    let mut session = with_default(8);
    let optional: Vec<(&str, bool)> = session
        .io()
        .inputs
        .iter()
        .map(|port| (&port.name[..], port.optional))
        .collect();
    assert_eq!(optional, [("w", true), ("x", false)]);
    let (x, w) = (floats(&[1.0, 2.0]), floats(&[3.0]));
    let ran = run(&mut session, &[input("x", F32, &[2], &x)], &[room("y", 8)]);
    assert_eq!(ran.got[0].floats(), [10.0, 20.0]);
    let both = [input("x", F32, &[2], &x), input("w", F32, &[1], &w)];
    let ran = run(&mut session, &both, &[room("y", 8)]);
    assert_eq!(ran.got[0].floats(), [3.0, 6.0]);
}

#[test]
fn before_ir_version_4_weights_are_no_inputs() {
    let mut session = with_default(3);
    assert_eq!(session.io().inputs.len(), 1);
    let x = floats(&[1.0, 2.0]);
    let ran = run(&mut session, &[input("x", F32, &[2], &x)], &[room("y", 8)]);
    assert_eq!(ran.got[0].floats(), [10.0, 20.0]);
}

/// `x + w` where `w`, two floats, lies elsewhere.
fn external(location: &str, range: Option<(u64, u64)>) -> Vec<u8> {
    Model::new()
        .input("x", FLOAT, "[2]")
        .output("y", FLOAT, "[2]")
        .node(Node::new("Add", &["x", "w"], &["y"]))
        .initializer(Tensor::external("w", FLOAT, &[2], location, range))
        .encode()
}

/// Bytes of floats 0, 1, 2, ...
fn weights(count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|index| (index as f32).to_le_bytes())
        .collect()
}

fn add_to_zero(mut session: Box<dyn ComponentSession>) -> Vec<f32> {
    let x = floats(&[0.0, 0.0]);
    run(&mut session, &[input("x", F32, &[2], &x)], &[alloc("y")]).got[0].floats()
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn external_data_in_files() {
    let folder = TempDir::new().unwrap();
    let model = folder.path().join("model.onnx");
    write(folder.path(), "data/weights.bin", &weights(6));
    for (range, expected) in [
        (Some((0, 8)), [0.0, 1.0]),
        (Some((16, 8)), [4.0, 5.0]),
        (Some((4, 8)), [1.0, 2.0]),
    ] {
        fs::write(&model, external("data/weights.bin", range)).unwrap();
        assert_eq!(
            add_to_zero(try_load(&ModelSource::file(&model)).unwrap()),
            expected
        );
    }
}

#[test]
fn external_data_beside_the_model_but_in_the_package() {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "weights.bin", &weights(2));
    write(
        folder.path(),
        "onnx/model.onnx",
        &external("../weights.bin", Some((0, 8))),
    );
    let path = folder.path().join("onnx/model.onnx");
    let in_package = ModelSource::File {
        path: path.clone(),
        root: folder.path().to_owned(),
    };
    assert_eq!(add_to_zero(try_load(&in_package).unwrap()), [0.0, 1.0]);
    let alone = try_load(&ModelSource::file(&path)).map(|_| ()).unwrap_err();
    assert_kind!(alone, Kind::InvalidModel { message, .. } if message.contains("outside"));
}

#[test]
fn external_data_does_not_leave_the_folder() {
    let outside = TempDir::new().unwrap();
    write(outside.path(), "weights.bin", &weights(2));
    let folder = TempDir::new_in(outside.path()).unwrap();
    std::os::unix::fs::symlink(outside.path().join("weights.bin"), folder.path().join("link.bin")).unwrap();
    let absolute = outside.path().join("weights.bin");
    let model = folder.path().join("model.onnx");
    for location in [
        "../weights.bin",
        "./../weights.bin",
        absolute.to_str().unwrap(),
        "link.bin",
    ] {
        fs::write(&model, external(location, Some((0, 8)))).unwrap();
        let error = try_load(&ModelSource::file(&model)).map(|_| ()).unwrap_err();
        assert_kind!(error, Kind::InvalidModel { message, .. } if message.contains("outside") && message.contains(location));
        assert_eq!(error.file(), Some(&*model));
    }
}

#[test]
fn external_data_that_is_missing_or_short() {
    let folder = TempDir::new().unwrap();
    let model = folder.path().join("model.onnx");
    fs::write(&model, external("weights.bin", Some((4, 8)))).unwrap();
    let error = try_load(&ModelSource::file(&model)).map(|_| ()).unwrap_err();
    assert_kind!(error, Kind::Io { path, .. } if path.ends_with("weights.bin"));
    write(folder.path(), "weights.bin", &weights(2));
    let error = try_load(&ModelSource::file(&model)).map(|_| ()).unwrap_err();
    assert_kind!(error, Kind::InvalidModel { message, .. } if message.contains("\"w\"") && message.contains("8 bytes"));
}

#[test]
fn external_data_with_a_bad_number_is_not_called_bad_protobuf() {
    let folder = TempDir::new().unwrap();
    let model = folder.path().join("model.onnx");
    write(folder.path(), "w", &weights(2));
    for bad in ["-7777", "7x777", "     "] {
        let mut bytes = external("w", Some((77777, 8)));
        let at = bytes.windows(5).position(|window| window == b"77777").unwrap();
        bytes[at..at + 5].copy_from_slice(bad.as_bytes());
        fs::write(&model, bytes).unwrap();
        let error = try_load(&ModelSource::file(&model)).map(|_| ()).unwrap_err();
        let words = format!("offset \"{bad}\", expected a number");
        assert_kind!(error, Kind::InvalidModel { message, .. } if message.contains(&words));
    }
}

#[test]
fn what_is_no_regular_file_is_refused_unopened() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let error = try_load(&ModelSource::file(&pipe)).map(|_| ()).unwrap_err();
    assert_kind!(error, Kind::Io { source, .. } if source.to_string().contains("a pipe"));
    let error = try_load(&ModelSource::file("/dev/zero")).map(|_| ()).unwrap_err();
    assert_kind!(error, Kind::Io { source, .. } if source.to_string().contains("a device"));
    let model = folder.path().join("model.onnx");
    fs::write(&model, external("pipe", Some((0, 8)))).unwrap();
    let error = try_load(&ModelSource::file(&model)).map(|_| ()).unwrap_err();
    assert_kind!(error, Kind::Io { path, .. } if path.ends_with("pipe"));
}

fn in_memory(model: Vec<u8>, external: &[(&str, Vec<u8>)]) -> ModelSource {
    let external = external.iter().map(|(location, bytes)| {
        let bytes: SharedBytes = Arc::new(bytes.clone());
        (location.to_string(), bytes)
    });
    ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model),
        external: external.collect(),
    }
}

/// Bytes that are overwritten when they are freed.
struct Scribbled(Vec<u8>);

impl AsRef<[u8]> for Scribbled {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Scribbled {
    fn drop(&mut self) {
        self.0.fill(0xEE);
    }
}

#[test]
fn external_data_in_memory_is_not_needed_after_the_load() {
    let shared: SharedBytes = Arc::new(Scribbled(weights(6)));
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(Scribbled(external("data/weights.bin", Some((8, 8))))),
        external: vec![("data/weights.bin".into(), shared)],
    };
    let session = try_load(&source).unwrap();
    drop(source);
    assert_eq!(add_to_zero(session), [2.0, 3.0]);
}

#[test]
fn external_data_in_memory_must_be_given_and_long_enough() {
    // There is such a file in the current folder, which is not looked at.
    assert!(Path::new("Cargo.toml").exists());
    let model = external("Cargo.toml", Some((0, 8)));
    let error = try_load(&in_memory(model, &[("other", weights(2))]))
        .map(|_| ())
        .unwrap_err();
    assert_kind!(error, Kind::InvalidModel { message, .. } if message.contains("\"Cargo.toml\"") && message.contains("not given"));
    let error = try_load(&in_memory(external("w", Some((8, 8))), &[("w", weights(3))]))
        .map(|_| ())
        .unwrap_err();
    assert_kind!(error, Kind::InvalidModel { message, .. } if message.contains("12 bytes"));
}

#[test]
fn files_that_are_no_models() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| ModelSource::file(folder.path().join(name));
    let good = external("w", Some((0, 8)));
    write(folder.path(), "w", &weights(2));
    write(folder.path(), "empty.onnx", b"");
    write(folder.path(), "truncated.onnx", &good[..good.len() - 7]);
    let random: Vec<u8> = (0..5000_u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    write(folder.path(), "random.onnx", &random);
    write(folder.path(), "text.onnx", b"this is not a model\n");
    // Valid protobuf without a graph.
    write(folder.path(), "hollow.onnx", &[0x08, 8]);
    let error = |name: &str| try_load(&at(name)).map(|_| ()).unwrap_err();
    assert_kind!(error("missing.onnx"), Kind::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
    fs::create_dir(folder.path().join("folder.onnx")).unwrap();
    assert_kind!(error("folder.onnx"), Kind::Io { source, .. } if source.kind() == std::io::ErrorKind::IsADirectory);
    for (name, said) in [
        ("empty.onnx", "is empty"),
        ("truncated.onnx", "not an ONNX model"),
        ("random.onnx", "not an ONNX model"),
        ("text.onnx", "not an ONNX model"),
        ("hollow.onnx", "no graph"),
    ] {
        let error = error(name);
        assert_kind!(error, Kind::InvalidModel { message, .. } if message.contains(said));
        assert_eq!(error.component, "part");
        assert_eq!(error.file(), Some(&*folder.path().join(name)));
        let bytes = fs::read(folder.path().join(name)).unwrap();
        let in_memory = try_load(&memory(bytes)).map(|_| ()).unwrap_err();
        assert_kind!(in_memory, Kind::InvalidModel { path: None, message } if message.contains(said));
    }
}

/// Every prefix of a model, which no prefix but the whole may pass for.
#[test]
fn no_beginning_of_a_model_loads_or_crashes() {
    let model = Model::new()
        .input("x", FLOAT, "[n]")
        .output("y", FLOAT, "[n]")
        .node(Node::new("Relu", &["x"], &["y"]))
        .encode();
    for length in 0..model.len() {
        // The opset comes last, and a model may end before its metadata.
        if let Ok(session) = try_load(&memory(model[..length].to_vec())) {
            panic!("{length} of {} bytes: {:?}", model.len(), session.io());
        }
    }
    try_load(&memory(model)).unwrap();
}

#[test]
fn models_that_the_library_refuses_say_why() {
    let relu = |op: &str, input: &str| {
        Model::new()
            .input("x", FLOAT, "[n]")
            .output("y", FLOAT, "[n]")
            .node(Node::new(op, &[input], &["y"]))
    };
    let error = load_error(relu("Nope", "x"));
    assert_kind!(error, Kind::InvalidModel { message, .. } if message.contains("Nope"));
    let error = load_error(relu("Relu", "nothing"));
    assert_kind!(error, Kind::InvalidModel { message, .. } if message.contains("'nothing'"));
    let error = load_error(relu("Relu", "x").opset("", 99));
    assert_kind!(error, Kind::InvalidModel { message, .. } if message.contains("99"));
    assert!(error.to_string().contains("\"part\""), "{error}");
}

#[test]
fn threads_that_load_at_once_get_the_same_library() {
    let path = library_path();
    let paths: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| library().path().to_owned()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for found in paths {
        assert_eq!(found.canonicalize().unwrap(), path.canonicalize().unwrap());
    }
}
