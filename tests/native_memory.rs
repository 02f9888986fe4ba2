//! What of a model's files stays in memory once it is loaded.
#![cfg(all(feature = "native", target_os = "linux"))]

use std::fs;
use std::path::Path;

use oxpipe::component::{
    ComponentSession, DataType, Input, ModelSource, Output, OutputResult, RunControl, TensorView,
};
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node, Tensor, UINT8};

const DEPTH: usize = 1024;
const COLUMNS: usize = 8192;

/// Bytes of the file that are in this process's memory.
fn resident(path: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let name = path.to_str().unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(name));
    assert!(lines.next().is_some(), "{name} is not mapped");
    let line = lines.find(|line| line.starts_with("Rss:")).unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}

/// y = x W with 4-bit weights: column c of W is (c mod 16 - 8) / 2 throughout.
fn write_model(folder: &Path) {
    let row = |column: usize| vec![(column % 16 * 17) as u8; DEPTH / 2];
    let mut weights: Vec<u8> = (0..COLUMNS).flat_map(row).collect();
    let scales_at = weights.len() as u64;
    weights.extend(
        [0.5f32; DEPTH / 32 * COLUMNS]
            .iter()
            .flat_map(|scale| scale.to_le_bytes()),
    );
    fs::write(folder.join("weights"), &weights).unwrap();

    let (blocks, columns) = ((DEPTH / 32) as i64, COLUMNS as i64);
    let (q, scales) = ([columns, blocks, 16], [columns * blocks]);
    let scales_len = weights.len() as u64 - scales_at;
    let model = Model::new()
        .opset("com.microsoft", 1)
        .input("x", FLOAT, "[1, 1024]")
        .output("y", FLOAT, "[1, 8192]")
        .initializer(Tensor::external("q", UINT8, &q, "weights", Some((0, scales_at))))
        .initializer(Tensor::external(
            "s",
            FLOAT,
            &scales,
            "weights",
            Some((scales_at, scales_len)),
        ))
        .node(
            Node::new("MatMulNBits", &["x", "q", "s"], &["y"])
                .domain("com.microsoft")
                .int("K", DEPTH as i64)
                .int("N", columns)
                .int("bits", 4)
                .int("block_size", 32),
        );
    fs::write(folder.join("model.onnx"), model.encode()).unwrap();
}

#[test]
fn weights_that_were_packed_leave_it() {
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let weights = folder.path().canonicalize().unwrap().join("weights");
    let size = fs::metadata(&weights).unwrap().len() as usize;
    assert_eq!(size, 5 << 20);

    let source = ModelSource::file(folder.path().join("model.onnx"));
    let mut session = NativeSession::load("part", &source, &NativeOptions::default()).unwrap();
    let session: &mut dyn ComponentSession = &mut session;
    let left = resident(&weights);
    assert!(
        left <= size / 20,
        "{left} of {size} bytes are resident after loading"
    );

    let x: Vec<u8> = [1.0f32; DEPTH].iter().flat_map(|x| x.to_le_bytes()).collect();
    let x = TensorView::new(DataType::Float32, &[1, DEPTH as i64], &x).unwrap();
    for _ in 0..2 {
        let mut outputs = [Output::alloc("y")];
        session
            .run(
                &[Input { name: "x", value: x }],
                &mut outputs,
                &RunControl::default(),
            )
            .unwrap();
        let OutputResult::Owned(y) = &outputs[0].result else {
            panic!("y is not there");
        };
        for (column, y) in y.bytes().chunks_exact(4).enumerate() {
            let y = f32::from_le_bytes(y.try_into().unwrap());
            assert_eq!(
                y,
                (column as f32 % 16.0 - 8.0) / 2.0 * DEPTH as f32,
                "column {column}"
            );
        }
        let left = resident(&weights);
        assert!(
            left <= size / 20,
            "{left} of {size} bytes are resident after a run"
        );
    }
}
