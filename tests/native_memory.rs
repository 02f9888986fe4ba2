//! What of a model's files stays in memory once it is loaded.
#![cfg(all(feature = "native", target_os = "linux"))]

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use oxpipe::component::{
    ComponentSession, DataType, Input, ModelSource, Output, OutputResult, RunControl, TensorView,
};
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{FLOAT, INT64, Model, Node, Tensor, UINT8};

/// The memory is that of the process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

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
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Bytes of this process's own memory.
fn anonymous() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}

/// Runs a model of token ids and gives the result.
fn logits(session: &mut NativeSession, ids: &[i64]) -> Vec<f32> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let dims = [1, ids.len() as i64];
    let ids = TensorView::new(DataType::Int64, &dims, &bytes).unwrap();
    let mut outputs = [Output::alloc("y")];
    let session: &mut dyn ComponentSession = session;
    session
        .run(
            &[Input {
                name: "ids",
                value: ids,
            }],
            &mut outputs,
            &RunControl::default(),
        )
        .unwrap();
    let OutputResult::Owned(y) = &outputs[0].result else {
        panic!("y is not there");
    };
    let floats = y.bytes().chunks_exact(4);
    floats
        .map(|y| f32::from_le_bytes(y.try_into().unwrap()))
        .collect()
}

/// A table of embeddings that is the weight of the last product too.
#[test]
fn a_shared_weight_is_in_memory_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    const HIDDEN: usize = 128;
    const WORDS: usize = 65_536;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    // Element h of word w is w if h is w modulo the hidden size, else 0.
    for as_weight in [true, false] {
        let mut table = vec![0f32; WORDS * HIDDEN];
        for word in 0..WORDS {
            let hidden = word % HIDDEN;
            let at = if as_weight {
                hidden * WORDS + word
            } else {
                word * HIDDEN + hidden
            };
            table[at] = word as f32;
        }
        let bytes: Vec<u8> = table.iter().flat_map(|x| x.to_le_bytes()).collect();
        drop(table);
        fs::write(folder.path().join("weights"), &bytes).unwrap();
        let size = bytes.len();
        drop(bytes);
        let (dims, names) = match as_weight {
            true => ([HIDDEN, WORDS], ["t", "w"]),
            false => ([WORDS, HIDDEN], ["w", "t"]),
        };
        let model = Model::new()
            .input("ids", INT64, "[1, n]")
            .output("y", FLOAT, "[1, n, 65536]")
            .initializer(Tensor::external(
                "w",
                FLOAT,
                &dims.map(|dim| dim as i64),
                "weights",
                None,
            ))
            .node(Node::new("Transpose", &["w"], &["t"]).ints("perm", &[1, 0]))
            .node(Node::new("Gather", &[names[0], "ids"], &["e"]))
            .node(Node::new("MatMul", &["e", names[1]], &["y"]));
        fs::write(&path, model.encode()).unwrap();

        let before = anonymous();
        let source = ModelSource::file(&path);
        let mut session = NativeSession::load("part", &source, &NativeOptions::default()).unwrap();
        let y = logits(&mut session, &[1000]);
        // Word w gives w * 1000 for every w that is 1000 modulo the hidden size.
        for (word, &y) in y.iter().enumerate() {
            let expected = if word % HIDDEN == 1000 % HIDDEN {
                word as f32 * 1000.0
            } else {
                0.0
            };
            assert_eq!(y, expected, "word {word}");
        }
        let grown = anonymous().saturating_sub(before);
        assert!(
            grown < size / 2,
            "{grown} of {size} bytes were copied, as a weight: {as_weight}"
        );
    }
}

/// The same with 4 bits: the product has its own copy, and of the file there is no more in memory
/// than the rows that were gathered, and what the system maps around them.
#[test]
fn of_a_shared_packed_weight_the_file_is_not_in_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    write_model(folder.path());
    let weights = folder.path().canonicalize().unwrap().join("weights");
    let size = fs::metadata(&weights).unwrap().len() as usize;
    let (blocks, columns) = ((DEPTH / 32) as i64, COLUMNS as i64);
    let scales_at = (DEPTH / 2 * COLUMNS) as u64;
    let model = Model::new()
        .opset("com.microsoft", 1)
        .input("ids", INT64, "[1, n]")
        .output("y", FLOAT, "[1, n, 8192]")
        .initializer(Tensor::external(
            "q",
            UINT8,
            &[columns, blocks, 16],
            "weights",
            Some((0, scales_at)),
        ))
        .initializer(Tensor::external(
            "s",
            FLOAT,
            &[columns, blocks],
            "weights",
            Some((scales_at, size as u64 - scales_at)),
        ))
        .initializer(Tensor::ints("dims", &[2], &[columns, DEPTH as i64 / 2]))
        .node(Node::new("Reshape", &["q", "dims"], &["rows"]))
        .node(
            Node::new("GatherBlockQuantized", &["rows", "ids", "s"], &["e"])
                .domain("com.microsoft")
                .int("bits", 4)
                .int("block_size", 32)
                .int("gather_axis", 0)
                .int("quantize_axis", 1),
        )
        .node(
            Node::new("MatMulNBits", &["e", "q", "s"], &["y"])
                .domain("com.microsoft")
                .int("K", DEPTH as i64)
                .int("N", columns)
                .int("bits", 4)
                .int("block_size", 32),
        );
    fs::write(folder.path().join("tied.onnx"), model.encode()).unwrap();
    let source = ModelSource::file(folder.path().join("tied.onnx"));
    let mut session = NativeSession::load("part", &source, &NativeOptions::default()).unwrap();
    let left = resident(&weights);
    assert!(
        left <= size / 20,
        "{left} of {size} bytes are resident after loading"
    );
    let y = logits(&mut session, &[3]);
    for (column, &y) in y.iter().enumerate() {
        let expected = (column as f32 % 16.0 - 8.0) / 2.0 * (3.0 - 8.0) / 2.0 * DEPTH as f32;
        assert_eq!(y, expected, "column {column}");
    }
    let left = resident(&weights);
    assert!(
        left <= size / 2,
        "{left} of {size} bytes are resident after a run"
    );
}
