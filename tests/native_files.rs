//! What the native runtime makes of model files: good ones, odd ones, and bytes that are no
//! model at all.
#![cfg(feature = "native")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oxpipe::component::{
    CancelToken, ComponentError, ComponentErrorKind, ComponentSession, DataType, Dim, ModelSource, Output,
    OutputResult, PortType, RunControl, SharedBytes,
};
use oxpipe::native::{NativeOptions, NativeSession, read_tensor_proto};
use oxpipe_test_support::cpu_time::cpu_time;
use oxpipe_test_support::onnx_writer::{DOUBLE, FLOAT, INT64, Message, Model, Node, Tensor, UINT8};

fn load(source: &ModelSource) -> Result<NativeSession, ComponentError> {
    NativeSession::load("part", source, &NativeOptions::default())
}

fn load_bytes(model: Vec<u8>) -> Result<NativeSession, ComponentError> {
    load(&ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model),
        external: Vec::new(),
    })
}

fn load_file(path: &Path) -> Result<NativeSession, ComponentError> {
    load(&ModelSource::file(path))
}

/// The error of something that must fail, within the time of a careless allocation.
fn refused<T: std::fmt::Debug>(attempt: impl FnOnce() -> Result<T, ComponentError>) -> ComponentError {
    let start = cpu_time();
    let error = attempt().expect_err("this should be refused");
    let spent = cpu_time() - start;
    assert!(spent < Duration::from_secs(2), "took {spent:?} to say {error}");
    error
}

fn assert_says(error: &ComponentError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
}

/// A model whose only output is this initializer.
fn of_initializer(tensor: Tensor, data_type: i32, dims: &str) -> Model {
    Model::new().output("w", data_type, dims).initializer(tensor)
}

fn output(session: &mut NativeSession, name: &str) -> (DataType, Vec<i64>, Vec<u8>) {
    let mut outputs = [Output::alloc(name)];
    let session: &mut dyn ComponentSession = session;
    session.run(&[], &mut outputs, &RunControl::default()).unwrap();
    match &outputs[0].result {
        OutputResult::Owned(tensor) => (tensor.dtype(), tensor.shape().to_vec(), tensor.bytes().to_vec()),
        other => panic!("expected an owned tensor, found {other:?}"),
    }
}

fn le_floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn is_invalid(error: &ComponentError) -> bool {
    matches!(error.kind(), ComponentErrorKind::InvalidModel { .. })
}

fn is_io(error: &ComponentError) -> bool {
    matches!(error.kind(), ComponentErrorKind::Io { .. })
}

fn small_model() -> Vec<u8> {
    Model::new()
        .input("x", FLOAT, "[batch, 2]")
        .output("y", FLOAT, "[batch, 2]")
        .output("w", FLOAT, "[2]")
        .node(Node::new("Identity", &["x"], &["y"]).name("copy"))
        .initializer(Tensor::floats("w", &[2], &[0.5, 2.0]))
        .encode()
}

mod no_model {
    use super::*;

    #[test]
    fn missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none.onnx");
        let error = refused(|| load_file(&path));
        assert!(is_io(&error), "{error:?}");
        assert_eq!(error.file(), Some(&*path));
        assert_says(&error, &["component \"part\"", "none.onnx"]);
    }

    #[test]
    fn directory() {
        let folder = tempfile::tempdir().unwrap();
        let error = refused(|| load_file(folder.path()));
        assert!(is_io(&error), "{error:?}");
        assert_says(&error, &["directory"]);
    }

    #[test]
    fn empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty.onnx");
        fs::write(&path, b"").unwrap();
        let error = refused(|| load_file(&path));
        assert!(is_invalid(&error), "{error:?}");
        assert_says(&error, &["empty"]);
        assert_eq!(error.file(), Some(&*path));
        assert!(is_invalid(&refused(|| load_bytes(Vec::new()))));
    }

    #[test]
    fn random_bytes() {
        // xorshift, so that the bytes are the same on every run.
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        for length in [1, 2, 3, 10, 100, 1000, 100_000] {
            let bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
            let error = refused(|| load_bytes(bytes));
            assert!(is_invalid(&error), "{error:?}");
            assert_says(&error, &["not an ONNX model"]);
        }
    }

    /// Text is what one gets for a file that Git LFS has not fetched.
    #[test]
    fn text() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        let error = refused(|| load_bytes(pointer.to_vec()));
        assert!(is_invalid(&error), "{error:?}");
    }

    #[test]
    fn every_truncation_is_an_error_or_a_smaller_model() {
        let whole = small_model();
        let mut refused_count = 0;
        for length in 0..whole.len() {
            // A cut between two fields of the model can leave a valid one.
            match load_bytes(whole[..length].to_vec()) {
                Ok(session) => assert!(session.io().outputs.len() <= 2),
                Err(error) => {
                    refused_count += 1;
                    let kind = error.kind();
                    assert!(
                        matches!(
                            kind,
                            ComponentErrorKind::InvalidModel { .. } | ComponentErrorKind::Node { .. }
                        ),
                        "{error:?}"
                    );
                }
            }
        }
        assert!(
            refused_count > whole.len() * 9 / 10,
            "{refused_count} of {}",
            whole.len()
        );
    }

    #[test]
    fn no_flipped_bit_makes_it_panic() {
        let whole = small_model();
        for index in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[index] ^= 1 << bit;
                let _ = load_bytes(flipped);
            }
        }
    }

    #[test]
    fn types_nested_beyond_reason() {
        let mut ty = Message::new();
        for _ in 0..5000 {
            ty = Message::new().message(4, Message::new().message(1, ty));
        }
        let input = Message::new().bytes(1, "x").message(2, ty);
        let model = Message::new()
            .int(1, 8)
            .message(7, Message::new().message(11, input));
        assert!(is_invalid(&refused(|| load_bytes(model.into_bytes()))));
    }

    #[test]
    fn versions() {
        let error = refused(|| load_bytes(Model::new().ir_version(99).encode()));
        assert!(is_invalid(&error), "{error:?}");
        assert_says(&error, &["99", "14"]);
        let newer = Model::new()
            .opset("", 1000)
            .input("x", FLOAT, "[]")
            .output("y", FLOAT, "[]")
            .node(Node::new("Identity", &["x"], &["y"]));
        let error = refused(|| load_bytes(newer.encode()));
        assert!(
            matches!(error.kind(), ComponentErrorKind::MissingOperators { .. }),
            "{error:?}"
        );
        assert_says(&error, &["1000"]);
    }
}

mod external_data {
    use super::*;

    fn write(folder: &Path, tensor: Tensor) -> std::path::PathBuf {
        let path = folder.join("model.onnx");
        fs::write(&path, of_initializer(tensor, FLOAT, "[2]").encode()).unwrap();
        path
    }

    fn external(location: &str, range: Option<(u64, u64)>) -> Tensor {
        Tensor::external("w", FLOAT, &[2], location, range)
    }

    #[test]
    fn at_an_offset_aligned_or_not() {
        let folder = tempfile::tempdir().unwrap();
        for offset in [0, 64, 3] {
            let mut bytes = vec![0xee; offset];
            bytes.extend(le_floats(&[1.5, -2.0]));
            bytes.extend([0xee; 5]);
            fs::write(folder.path().join("weights"), bytes).unwrap();
            let path = write(folder.path(), external("weights", Some((offset as u64, 8))));
            let mut session = load_file(&path).unwrap();
            assert_eq!(
                output(&mut session, "w"),
                (DataType::Float32, vec![2], le_floats(&[1.5, -2.0]))
            );
        }
    }

    #[test]
    fn without_offset_and_length() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        fs::write(folder.path().join("data/w.bin"), le_floats(&[3.0, 4.0])).unwrap();
        let path = write(folder.path(), external("data/w.bin", None));
        let mut session = load_file(&path).unwrap();
        assert_eq!(output(&mut session, "w").2, le_floats(&[3.0, 4.0]));
    }

    #[test]
    fn beyond_the_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weights"), [0; 16]).unwrap();
        for (range, words) in [
            (Some((12, 8)), ["ends after 4 bytes", "initializer \"w\""]),
            (Some((17, 8)), ["starts at byte 17", "16 bytes"]),
            (Some((u64::MAX, 8)), ["starts at byte", "weights"]),
            (Some((0, 12)), ["length 12", "expected 8"]),
            (Some((0, u64::MAX)), ["length", "expected 8"]),
        ] {
            let path = write(folder.path(), external("weights", range));
            let error = refused(|| load_file(&path));
            assert!(is_invalid(&error), "{error:?}");
            assert_says(&error, &words);
        }
    }

    #[test]
    fn missing_or_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), external("weights", None));
        let error = refused(|| load_file(&path));
        assert!(is_io(&error), "{error:?}");
        assert_says(&error, &["weights"]);
        fs::create_dir(folder.path().join("weights")).unwrap();
        let error = refused(|| load_file(&path));
        assert!(is_io(&error), "{error:?}");
        assert_says(&error, &["directory"]);
    }

    #[test]
    fn outside_its_folder() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("package");
        fs::create_dir(&folder).unwrap();
        let secret = outer.path().join("secret");
        fs::write(&secret, le_floats(&[1.0, 2.0])).unwrap();
        let absolute = secret.to_str().unwrap();
        for location in [
            "../secret",
            "a/../../secret",
            "../package/../secret",
            "../none",
            absolute,
        ] {
            let path = write(&folder, external(location, None));
            let error = refused(|| load_file(&path));
            assert!(is_invalid(&error), "{location}: {error:?}");
            assert_says(&error, &["outside", location]);
        }
        // The same file is fine for a package whose root holds it.
        let path = write(&folder, external("../secret", None));
        let source = ModelSource::File {
            path,
            root: outer.path().to_owned(),
        };
        let mut session = load(&source).unwrap();
        assert_eq!(output(&mut session, "w").2, le_floats(&[1.0, 2.0]));
    }

    #[cfg(unix)]
    #[test]
    fn links() {
        use std::os::unix::fs::symlink;
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("package");
        fs::create_dir(&folder).unwrap();
        let data = le_floats(&[1.0, 2.0]);
        fs::write(outer.path().join("secret"), &data).unwrap();
        fs::write(folder.join("real"), &data).unwrap();
        symlink("../secret", folder.join("out")).unwrap();
        symlink("real", folder.join("in")).unwrap();
        symlink("..", folder.join("up")).unwrap();
        for location in ["out", "up/secret"] {
            let path = write(&folder, external(location, None));
            let error = refused(|| load_file(&path));
            assert!(is_invalid(&error), "{error:?}");
            assert_says(&error, &["outside"]);
        }
        let path = write(&folder, external("in", None));
        assert_eq!(output(&mut load_file(&path).unwrap(), "w").2, data);
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_does_not_hang() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        assert!(is_io(&refused(|| load_file(&pipe))));
        let path = write(folder.path(), external("pipe", None));
        assert!(is_io(&refused(|| load_file(&path))));
    }

    #[test]
    fn given_with_a_model_in_memory() {
        let data: SharedBytes = Arc::new(le_floats(&[0.0, 5.0, 6.0]));
        let source = |external: Vec<(String, SharedBytes)>| ModelSource::Memory {
            label: "test".into(),
            model: Arc::new(of_initializer(self::external("w.bin", Some((4, 8))), FLOAT, "[2]").encode()),
            external,
        };
        let mut session = load(&source(vec![("w.bin".into(), data)])).unwrap();
        assert_eq!(output(&mut session, "w").2, le_floats(&[5.0, 6.0]));
        let error = refused(|| load(&source(Vec::new())));
        assert_says(&error, &["w.bin", "in memory"]);
    }

    /// A sparse file: it takes no room on disk.
    #[test]
    fn over_two_gibibytes() {
        use std::io::{Seek, SeekFrom, Write};
        let folder = tempfile::tempdir().unwrap();
        let big = (1i64 << 31) + 16;
        let tail = (big as u64).next_multiple_of(8);
        let mut file = fs::File::create(folder.path().join("weights")).unwrap();
        file.seek(SeekFrom::Start(tail)).unwrap();
        file.write_all(&le_floats(&[7.0, 8.0])).unwrap();
        drop(file);
        let path = folder.path().join("model.onnx");
        let model = Model::new()
            .output("w", FLOAT, "[2]")
            .output("big", UINT8, &format!("[{big}]"))
            .initializer(external("weights", Some((tail, 8))))
            .initializer(Tensor::external(
                "big",
                UINT8,
                &[big],
                "weights",
                Some((0, big as u64)),
            ));
        fs::write(&path, model.encode()).unwrap();
        let mut session = load_file(&path).unwrap();
        assert_eq!(output(&mut session, "w").2, le_floats(&[7.0, 8.0]));
        let shapes = session.output_shapes(&[], &["big"]).unwrap();
        assert_eq!(shapes[0].as_deref(), Some(&[big][..]));
    }
}

mod tensors {
    use super::*;

    fn proto(data_type: i32, dims: &[i64]) -> Message {
        let proto = dims.iter().fold(Message::new(), |proto, &dim| proto.int(1, dim));
        proto.int(2, data_type.into()).bytes(8, "t")
    }

    fn read(message: Message) -> Result<Vec<u8>, String> {
        let (name, tensor) = read_tensor_proto(&message.into_bytes())?;
        assert_eq!(name, "t");
        Ok(tensor.view().bytes().unwrap().to_vec())
    }

    /// A field of 32-bit or 64-bit integers as onnx.proto declares them, packed.
    fn packed(values: &[i64]) -> Vec<u8> {
        let one = |&value: &i64| Message::new().int(1, value).into_bytes()[1..].to_vec();
        values.iter().flat_map(one).collect()
    }

    #[test]
    fn typed_fields_hold_every_type() {
        let int32 = 5;
        let int64 = 7;
        let uint64 = 11;
        for (data_type, field, values, expected) in [
            (2, int32, vec![0, 200, 255], vec![0u8, 200, 255]),
            (3, int32, vec![-128, 0, 127], vec![128, 0, 127]),
            (9, int32, vec![0, 1, 1], vec![0, 1, 1]),
            (4, int32, vec![1, 65535], vec![1, 0, 255, 255]),
            (5, int32, vec![-2, 258], vec![254, 255, 2, 1]),
            // The bits of 1.0 as f16, bf16.
            (10, int32, vec![0x3c00], vec![0x00, 0x3c]),
            (16, int32, vec![0x3f80], vec![0x80, 0x3f]),
            (17, int32, vec![0x38], vec![0x38]),
            (18, int32, vec![0x40], vec![0x40]),
            (19, int32, vec![0x3c], vec![0x3c]),
            (20, int32, vec![0x40], vec![0x40]),
            (24, int32, vec![0x7f], vec![0x7f]),
            (6, int32, vec![-1, 2], vec![255, 255, 255, 255, 2, 0, 0, 0]),
            (7, int64, vec![-1], vec![255; 8]),
            (12, uint64, vec![0xffff_ffff], vec![255; 4]),
            (13, uint64, vec![-1], vec![255; 8]),
        ] {
            let message = || proto(data_type, &[values.len() as i64]);
            assert_eq!(
                read(message().bytes(field, packed(&values))),
                Ok(expected.clone()),
                "type {data_type}, packed"
            );
            let unpacked = values
                .iter()
                .fold(message(), |message, &value| message.int(field, value));
            assert_eq!(read(unpacked), Ok(expected.clone()), "type {data_type}, unpacked");
            assert_eq!(
                read(message().bytes(9, &expected)),
                Ok(expected),
                "type {data_type}, raw"
            );
        }
        let floats = le_floats(&[1.0, -2.5]);
        assert_eq!(read(proto(1, &[2]).bytes(4, &floats)), Ok(floats.clone()));
        assert_eq!(read(proto(14, &[1]).bytes(4, &floats)), Ok(floats));
        let doubles: Vec<u8> = [1.0f64, -2.5]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        assert_eq!(read(proto(11, &[2]).bytes(10, &doubles)), Ok(doubles.clone()));
        assert_eq!(read(proto(15, &[1]).bytes(10, &doubles)), Ok(doubles));
    }

    #[test]
    fn small_types_are_unpacked_lowest_bits_first() {
        for (data_type, count, stored, expected) in [
            // uint4, int4, float4e2m1: two a byte.
            (21, 3, vec![0x21u8, 0x0f], vec![1u8, 2, 15]),
            (22, 3, vec![0x8f, 0x07], vec![255, 248, 7]),
            (23, 2, vec![0xf1], vec![1, 15]),
            // uint2, int2: four a byte.
            (25, 5, vec![0b1110_0100, 0b10], vec![0, 1, 2, 3, 2]),
            (26, 4, vec![0b1110_0100], vec![0, 1, 254, 255]),
        ] {
            let message = || proto(data_type, &[count]);
            assert_eq!(
                read(message().bytes(9, &stored)),
                Ok(expected.clone()),
                "raw {data_type}"
            );
            let values: Vec<i64> = stored.iter().map(|&byte| byte.into()).collect();
            assert_eq!(
                read(message().bytes(5, packed(&values))),
                Ok(expected),
                "int32_data {data_type}"
            );
        }
    }

    #[test]
    fn strings() {
        let message = proto(8, &[2]).bytes(6, "no").bytes(6, "zäh");
        let (_, tensor) = read_tensor_proto(&message.into_bytes()).unwrap();
        assert_eq!(tensor.view().strings().unwrap(), ["no", "zäh"]);
        let error = read(proto(8, &[1]).bytes(6, [0xff])).unwrap_err();
        assert!(error.contains("UTF-8"), "{error}");
    }

    #[test]
    fn sizes_that_do_not_match() {
        for message in [
            proto(1, &[2]).bytes(9, [0; 7]),
            proto(1, &[2]).bytes(9, [0; 9]),
            proto(1, &[2]).bytes(4, le_floats(&[1.0])),
            proto(1, &[2]),
            proto(7, &[1]).bytes(5, packed(&[1])),
            proto(22, &[3]).bytes(9, [0]),
            proto(8, &[2]).bytes(6, "one"),
            proto(8, &[1]).bytes(9, "one"),
            // 300 is no uint8, -1 no uint32.
            proto(2, &[1]).bytes(5, packed(&[300])),
            proto(12, &[1]).bytes(11, packed(&[-1])),
            proto(99, &[1]).bytes(9, [0]),
            proto(0, &[1]).bytes(9, [0]),
            proto(1, &[-1]).bytes(9, [0; 4]),
        ] {
            let text = format!("{message:?}");
            assert!(read(message).is_err(), "{text}");
        }
        assert_eq!(read(proto(1, &[0, 7])), Ok(vec![]));
        assert_eq!(read(proto(1, &[3, 0]).bytes(9, [])), Ok(vec![]));
    }

    #[test]
    fn absurd_sizes_are_refused_before_anything_is_allocated() {
        let huge = 1i64 << 60;
        for dims in [
            &[huge][..],
            &[1 << 30, 1 << 30],
            &[i64::MAX, i64::MAX],
            // A zero does not excuse the others.
            &[0, i64::MAX, i64::MAX],
        ] {
            for data_type in [FLOAT, DOUBLE, UINT8, 8, 21] {
                let raw = Tensor::raw("w", data_type, dims, &[0; 16]);
                let error = refused(|| load_bytes(of_initializer(raw, data_type, "[...]").encode()));
                assert!(is_invalid(&error), "{error:?}");
                let typed = proto(data_type, dims).into_bytes();
                assert!(read_tensor_proto(&typed).is_err());
            }
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weights"), [0; 64]).unwrap();
        let path = folder.path().join("model.onnx");
        let tensor = Tensor::external("w", FLOAT, &[huge], "weights", None);
        fs::write(&path, of_initializer(tensor, FLOAT, "[...]").encode()).unwrap();
        assert!(is_invalid(&refused(|| load_file(&path))));
    }

    #[test]
    fn a_type_outside_the_seam_is_an_output_of_another_kind() {
        let tensor = Tensor::raw("w", DOUBLE, &[1], &2.0f64.to_le_bytes());
        let mut session = load_bytes(of_initializer(tensor, DOUBLE, "[1]").encode()).unwrap();
        assert_eq!(
            session.io().outputs[0].ty,
            PortType::Other("tensor(double)".into())
        );
        let result = session.run_tensors(&[], &["w"]).unwrap();
        assert_eq!(result[0].view().slice::<f64>().unwrap(), [2.0]);
    }
}

mod graphs {
    use super::*;

    fn identity(from: &str, to: &str) -> Node {
        Node::new("Identity", &[from], &[to])
    }

    fn base() -> Model {
        Model::new().input("x", FLOAT, "[n]").output("y", FLOAT, "[n]")
    }

    #[test]
    fn wrong_graphs() {
        for (model, words) in [
            (base().node(identity("z", "y")), &["\"z\"", "nothing defines"][..]),
            (
                base()
                    .node(identity("b", "a"))
                    .node(identity("a", "b"))
                    .node(identity("x", "y")),
                &["cycle"],
            ),
            (
                base().node(identity("x", "y")).node(identity("x", "y")),
                &["\"y\"", "twice"],
            ),
            (base().node(identity("x", "x")), &["\"x\"", "twice"]),
            (
                base()
                    .initializer(Tensor::floats("y", &[1], &[1.0]))
                    .node(identity("x", "y")),
                &["\"y\"", "twice"],
            ),
            (
                base()
                    .initializer(Tensor::floats("w", &[1], &[1.0]))
                    .initializer(Tensor::floats("w", &[1], &[1.0]))
                    .node(identity("x", "y")),
                &["initializer \"w\"", "twice"],
            ),
            (base(), &["output \"y\"", "nowhere"]),
            (
                base().node(identity("x", "y")).output("y", FLOAT, "[n]"),
                &["output \"y\"", "twice"],
            ),
            (
                base().node(identity("x", "y")).input("x", FLOAT, "[n]"),
                &["input \"x\"", "twice"],
            ),
            (
                Model::new()
                    .input("x", FLOAT, "[n]")
                    .output("y", INT64, "[n]")
                    .node(identity("x", "y")),
                &["output \"y\"", "int64", "float"],
            ),
        ] {
            let error = refused(|| load_bytes(model.encode()));
            assert!(is_invalid(&error), "{error:?}");
            assert_says(&error, words);
        }
    }

    #[test]
    fn wrong_nodes() {
        let unnamed = base().node(identity("x", "y").int("axis", 1));
        let error = refused(|| load_bytes(unnamed.encode()));
        // A node without a name goes by its first output.
        assert_eq!(error.node(), Some("y"));
        assert_says(&error, &["Identity", "attribute \"axis\""]);
        let named = base().node(Node::new("MatMul", &["x"], &["y"]).name("product"));
        let error = refused(|| load_bytes(named.encode()));
        assert_eq!(error.node(), Some("product"));
        assert_says(&error, &["MatMul", "has 1 input, expected 2"]);
        let mut model = Message::new().int(1, 8);
        let node = Message::new().bytes(1, "x").bytes(2, "y").bytes(4, "Identity");
        let value = |name: &str| Message::new().bytes(1, name);
        let graph = Message::new()
            .message(1, node)
            .message(11, value("x"))
            .message(12, value("y"));
        model = model.message(7, graph);
        let error = refused(|| load_bytes(model.into_bytes()));
        assert_says(&error, &["imports no version"]);
    }

    #[test]
    fn all_missing_operators_are_named_at_once() {
        let model = base()
            .node(Node::new("Frobnicate", &["x"], &["a"]).name("first"))
            .node(Node::new("Identity", &["a"], &["b"]))
            .node(
                Node::new("Gizmo", &["b", "", "x"], &["c"])
                    .name("second")
                    .domain("com.example"),
            )
            .node(
                Node::new("Gizmo", &["b", "", "x"], &["d"])
                    .name("third")
                    .domain("com.example"),
            )
            .node(identity("c", "y"))
            .output("d", FLOAT, "[n]");
        let error = refused(|| load_bytes(model.encode()));
        let ComponentErrorKind::MissingOperators { missing } = error.kind() else {
            panic!("{error:?}");
        };
        assert_eq!(
            missing[..],
            [
                "ai.onnx.Frobnicate version 17 (float), node \"first\"",
                "com.example.Gizmo version 1 (unknown, none, float), node \"second\" and 1 more",
            ]
        );
    }

    #[test]
    fn what_no_output_needs_is_no_reason_to_refuse() {
        let model = base()
            .node(identity("x", "y"))
            .node(Node::new("Frobnicate", &["x"], &["unused"]));
        load_bytes(model.encode()).unwrap();
    }

    #[test]
    fn nodes_in_any_order() {
        let model = base()
            .node(identity("b", "y"))
            .node(identity("a", "b"))
            .node(identity("w", "a"))
            .initializer(Tensor::floats("w", &[1], &[2.0]));
        let mut session = load_bytes(model.encode()).unwrap();
        let x = le_floats(&[9.0]);
        let x =
            oxpipe::native::tensor::TensorRef::new(oxpipe::native::element::ElementType::Float32, &[1], &x);
        let y = session.run_tensors(&[("x", x.unwrap())], &["y"]).unwrap();
        assert_eq!(y[0].view().slice::<f32>().unwrap(), [2.0]);
    }

    #[test]
    fn ports_as_declared() {
        let model = Model::new()
            .input("x", FLOAT, "[1, batch, ?]")
            .input("any", INT64, "[...]")
            .input("scale", FLOAT, "[]")
            .initializer(Tensor::floats("scale", &[], &[2.0]))
            .output("y", FLOAT, "[1, batch, ?]")
            .node(identity("x", "y"))
            .metadata("b", "2")
            .metadata("a", "1")
            .producer("maker", "0.1")
            .encode();
        let session = load_bytes(model).unwrap();
        let io = session.io();
        let [x, any, scale] = &io.inputs[..] else {
            panic!("{io:?}");
        };
        let symbol = |name: Option<&str>| Dim::Symbol(name.map(str::to_owned));
        assert_eq!(
            x.dims.as_deref(),
            Some(&[Dim::Fixed(1), symbol(Some("batch")), symbol(None)][..])
        );
        assert_eq!((any.dims.as_ref(), any.dtype()), (None, Some(DataType::Int64)));
        assert_eq!((x.optional, any.optional, scale.optional), (false, false, true));
        let pairs = [
            ("b", "2"),
            ("a", "1"),
            ("producer_name", "maker"),
            ("producer_version", "0.1"),
        ];
        let pairs: Vec<_> = pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        assert_eq!(session.metadata(), pairs);
    }

    /// Before IR version 4 every initializer had to be listed as an input.
    #[test]
    fn old_models_have_no_defaults() {
        let model = base()
            .ir_version(3)
            .input("w", FLOAT, "[1]")
            .initializer(Tensor::floats("w", &[1], &[2.0]))
            .node(identity("w", "y"));
        let mut session = load_bytes(model.encode()).unwrap();
        assert_eq!(session.io().inputs.len(), 1);
        let shapes = session.output_shapes(&[("x", &[5])], &["y"]).unwrap();
        assert_eq!(shapes[0].as_deref(), Some(&[1][..]));
    }

    /// FunctionProto: `Twice(a) = Copy(Copy(a))`, `Copy(a) = Identity(a)`; opset 1 only inside.
    #[test]
    fn model_local_functions() {
        let node = |op: &str, domain: &str, from: &str, to: &str| {
            let node = Message::new().bytes(1, from).bytes(2, to);
            node.bytes(4, op).bytes(7, domain)
        };
        let import = |domain: &str| Message::new().bytes(1, domain).int(2, 1);
        let function = |name: &str, nodes: Vec<Message>| {
            Message::new()
                .bytes(1, name)
                .bytes(4, "a")
                .bytes(5, "b")
                .messages(7, nodes)
                .messages(9, [import(""), import("local")])
                .bytes(10, "local")
        };
        let mut model = base()
            .opset("local", 1)
            .node(Node::new("Twice", &["x"], &["a"]).domain("local"))
            .node(Node::new("Twice", &["a"], &["y"]).domain("local"))
            .encode();
        let twice = vec![node("Copy", "local", "a", "t"), node("Copy", "local", "t", "b")];
        let functions = [
            function("Twice", twice),
            function("Copy", vec![node("Identity", "", "a", "b")]),
        ];
        model.extend(Message::new().messages(25, functions).into_bytes());
        let mut session = load_bytes(model).unwrap();
        let x = le_floats(&[1.0, 2.0]);
        let x =
            oxpipe::native::tensor::TensorRef::new(oxpipe::native::element::ElementType::Float32, &[2], &x);
        let y = session.run_tensors(&[("x", x.unwrap())], &["y"]).unwrap();
        assert_eq!(y[0].view().slice::<f32>().unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn functions_that_never_end() {
        let call = Message::new()
            .bytes(1, "a")
            .bytes(2, "b")
            .bytes(4, "F")
            .bytes(7, "local");
        let function = |nodes: Vec<Message>| {
            let function = Message::new().bytes(1, "F").bytes(4, "a").bytes(5, "b");
            function.messages(7, nodes).bytes(10, "local")
        };
        for nodes in [vec![call.clone()], vec![call.clone(), call]] {
            let mut model = base()
                .node(Node::new("F", &["x"], &["y"]).domain("local"))
                .encode();
            model.extend(Message::new().message(25, function(nodes)).into_bytes());
            let error = refused(|| load_bytes(model));
            assert!(is_invalid(&error), "{error:?}");
            assert_says(&error, &["function \"F\""]);
        }
    }
}

/// Files of a model that is loaded.
mod that_change {
    use super::*;
    use oxpipe::native::ModelFiles;
    use std::fs::{File, OpenOptions};
    use std::io::Write;

    /// Some pages of weights, which a run reads where they lie.
    const WEIGHTS: i64 = 4 * 4096;

    fn write(folder: &Path, external: bool) -> (std::path::PathBuf, std::path::PathBuf) {
        let path = folder.join("model.onnx");
        let values: Vec<f32> = (0..WEIGHTS).map(|index| index as f32).collect();
        let data = folder.join("weights.bin");
        fs::write(&data, le_floats(&values)).unwrap();
        let tensor = match external {
            true => Tensor::external("w", FLOAT, &[WEIGHTS], "weights.bin", None),
            false => Tensor::floats("w", &[WEIGHTS], &values),
        };
        let model = of_initializer(tensor, FLOAT, "[n]");
        fs::write(&path, model.encode()).unwrap();
        let changes = if external { data } else { path.clone() };
        (path, changes)
    }

    fn load_as(path: &Path, model_files: ModelFiles) -> NativeSession {
        let options = NativeOptions {
            model_files,
            ..NativeOptions::default()
        };
        NativeSession::load("part", &ModelSource::file(path), &options).unwrap()
    }

    fn last(session: &mut NativeSession) -> Result<f32, ComponentError> {
        let mut outputs = [Output::alloc("w")];
        let session: &mut dyn ComponentSession = session;
        session.run(&[], &mut outputs, &RunControl::default())?;
        match &outputs[0].result {
            OutputResult::Owned(tensor) => {
                let bytes = tensor.bytes().last_chunk().unwrap();
                Ok(f32::from_le_bytes(*bytes))
            }
            other => panic!("expected an owned tensor, found {other:?}"),
        }
    }

    type Change = fn(&Path);

    fn cut(path: &Path) {
        OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(1)
            .unwrap();
    }

    fn append(path: &Path) {
        OpenOptions::new()
            .append(true)
            .open(path)
            .unwrap()
            .write_all(b"more")
            .unwrap();
    }

    /// Written as it was, long before: the date alone says so.
    fn touch(path: &Path) {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }

    fn replace(path: &Path) {
        let other = path.with_extension("new");
        fs::write(&other, b"something else").unwrap();
        fs::rename(&other, path).unwrap();
    }

    fn remove(path: &Path) {
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn are_noticed_before_they_are_read() {
        for external in [false, true] {
            for (change, word) in [
                (cut as Change, "cut off"),
                (append, "written to"),
                (touch, "written to"),
            ] {
                let folder = tempfile::tempdir().unwrap();
                let (path, changes) = write(folder.path(), external);
                let mut session = load_as(&path, ModelFiles::Map);
                assert_eq!(last(&mut session).unwrap(), (WEIGHTS - 1) as f32);
                change(&changes);
                for _ in 0..2 {
                    let error = last(&mut session).unwrap_err();
                    assert!(is_io(&error), "{error:?}");
                    assert_eq!(error.file(), Some(&*changes));
                    assert_says(
                        &error,
                        &["component \"part\"", word, "again", "native.model_files"],
                    );
                }
            }
        }
    }

    #[test]
    fn are_of_no_account_once_they_are_replaced_or_read() {
        for external in [false, true] {
            for (change, how) in [
                (replace as Change, ModelFiles::Map),
                (remove, ModelFiles::Map),
                (cut, ModelFiles::Read),
                (append, ModelFiles::Read),
                (replace, ModelFiles::Read),
            ] {
                let folder = tempfile::tempdir().unwrap();
                let (path, changes) = write(folder.path(), external);
                let mut session = load_as(&path, how);
                change(&changes);
                assert_eq!(last(&mut session).unwrap(), (WEIGHTS - 1) as f32);
            }
        }
    }

    /// Reading ends between two pieces, and so does what is made of weights afterwards.
    #[test]
    fn are_not_read_to_the_end_when_loading_is_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = write(folder.path(), true);
        let cancelled = CancelToken::new();
        cancelled.request();
        let late = RunControl {
            cancel: None,
            deadline: Some(std::time::Instant::now()),
        };
        let cancelled = RunControl {
            cancel: Some(cancelled),
            deadline: None,
        };
        let load = |control| {
            let options = NativeOptions {
                model_files: ModelFiles::Read,
                control,
                ..NativeOptions::default()
            };
            NativeSession::load("part", &ModelSource::file(&path), &options)
        };
        let error = load(late).unwrap_err();
        assert!(
            matches!(error.kind(), ComponentErrorKind::DeadlineExceeded),
            "{error}"
        );
        let error = load(cancelled).unwrap_err();
        assert!(matches!(error.kind(), ComponentErrorKind::Cancelled), "{error}");
        let mut session = load(RunControl::default()).unwrap();
        assert_eq!(last(&mut session).unwrap(), (WEIGHTS - 1) as f32);
    }

    /// A process has few descriptors, and a model may have many files.
    #[cfg(target_os = "linux")]
    #[test]
    fn are_not_kept_open() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let mut model = Model::new().output("s0", FLOAT, "[1]");
        // Each sum is of the next one.
        for index in (0..40).rev() {
            let (weight, file) = (format!("w{index}"), format!("{index}.bin"));
            fs::write(root.join(&file), le_floats(&[index as f32])).unwrap();
            let (sum, next) = (format!("s{index}"), format!("s{}", index + 1));
            model = model
                .initializer(Tensor::external(&weight, FLOAT, &[1], &file, None))
                .node(match index {
                    39 => Node::new("Identity", &[&weight], &[&sum]),
                    _ => Node::new("Add", &[&weight, &next], &[&sum]),
                });
        }
        let path = root.join("model.onnx");
        fs::write(&path, model.encode()).unwrap();
        for how in [ModelFiles::Map, ModelFiles::Read] {
            let _session = load_as(&path, how);
            let open = fs::read_dir("/proc/self/fd").unwrap();
            let open = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
            let open: Vec<_> = open.filter(|path| path.starts_with(&root)).collect();
            assert!(open.is_empty(), "{how:?}: {open:?}");
        }
    }

    /// What a package may name and reading refuses: no regular file, and one that no read ends well of.
    #[test]
    fn or_cannot_be_read() {
        for how in [ModelFiles::Map, ModelFiles::Read] {
            let options = NativeOptions {
                model_files: how,
                ..NativeOptions::default()
            };
            for path in [
                "/proc/self/mem",
                "/proc/self/cmdline",
                "/dev/zero",
                "/dev/null",
                "/proc/self",
            ] {
                let error = refused(|| NativeSession::load("part", &ModelSource::file(path), &options));
                assert!(is_io(&error) || is_invalid(&error), "{path}: {error:?}");
                assert_says(&error, &["component \"part\"", path]);
            }
        }
    }
}
