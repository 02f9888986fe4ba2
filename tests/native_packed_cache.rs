//! Packed weights that are kept in a file: a second start takes them, and nothing that is wrong with
//! the file, the model or the folder changes a result.
#![cfg(feature = "native")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use oxpipe::component::ModelSource;
use oxpipe::native::tensor::{Tensor as Value, TensorRef};
use oxpipe::native::workers::Workers;
use oxpipe::native::{NativeOptions, NativeSession, PackedCache, PackedCacheReport};
use oxpipe::runtime::{BackendChoice, ComponentOptions, LogLevel, Runtime, RuntimeSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT32, Model, Node, Tensor, UINT8};

const K: usize = 96;
const N: usize = 40;
const BLOCK: usize = 32;
/// Weights that are packed.
const PACKED: usize = 5;

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn small_floats(len: usize, seed: u64) -> Vec<f32> {
    let bytes = noise(len, seed);
    bytes.iter().map(|&byte| f32::from(byte) / 256.0 + 0.01).collect()
}

/// The weights of the 4-bit product that lie in another file.
fn external() -> Vec<u8> {
    noise(N * K / 2, 1)
}

/// Products of x with weights of 4, 8 and 2 bits, zero points of both kinds and groups, and one of
/// integers.
fn model(accuracy: i64) -> Model {
    let blocks = K / BLOCK;
    let dims = |per: usize| [N as i64, blocks as i64, per as i64];
    let scales = [(N * blocks) as i64];
    let groups: Vec<u8> = (0..K).flat_map(|i| ((i % blocks) as i32).to_le_bytes()).collect();
    let product = |y: &str, inputs: &[&str], bits: i64, accuracy: i64| {
        Node::new("MatMulNBits", inputs, &[y])
            .domain("com.microsoft")
            .int("K", K as i64)
            .int("N", N as i64)
            .int("bits", bits)
            .int("block_size", BLOCK as i64)
            .int("accuracy_level", accuracy)
    };
    let raw = |name: &str, dims: &[i64], seed: u64| {
        let len = dims.iter().product::<i64>() as usize;
        Tensor::raw(name, UINT8, dims, &noise(len, seed))
    };
    let mut model = Model::new().opset("com.microsoft", 1);
    model = model
        .input("x", FLOAT, "[3, 96]")
        .input("a", UINT8, "[3, 96]")
        .initializer(Tensor::external("q4", UINT8, &dims(BLOCK / 2), "weights", None))
        .initializer(raw("q8", &dims(BLOCK), 2))
        .initializer(raw("q2", &dims(BLOCK / 4), 3))
        .initializer(raw("b", &[K as i64, N as i64], 4))
        .initializer(raw("z4", &[(N * blocks.div_ceil(2)) as i64], 5))
        .initializer(Tensor::floats("zf", &scales, &small_floats(N * blocks, 6)))
        .initializer(Tensor::floats("s", &scales, &small_floats(N * blocks, 7)))
        .initializer(Tensor::raw("g", INT32, &[K as i64], &groups))
        .node(product("y4", &["x", "q4", "s", "z4"], 4, accuracy))
        .node(product("y8", &["x", "q8", "s"], 8, 4))
        .node(product("y8f", &["x", "q8", "s"], 8, 0))
        .node(product("y2", &["x", "q2", "s", "zf", "g"], 2, 0))
        .node(Node::new("MatMulInteger", &["a", "b"], &["yi"]));
    for y in ["y4", "y8", "y8f", "y2"] {
        model = model.output(y, FLOAT, "[3, 40]");
    }
    model.output("yi", INT32, "[3, 40]")
}

fn write_model(folder: &Path) -> PathBuf {
    fs::write(folder.join("weights"), external()).unwrap();
    let path = folder.join("model.onnx");
    fs::write(&path, model(4).encode()).unwrap();
    path
}

/// The file beside a model.
fn beside(model: &Path) -> PathBuf {
    PathBuf::from(format!("{}.oxpacked", model.display()))
}

fn load_with(source: &ModelSource, packed_cache: PackedCache, threads: usize) -> NativeSession {
    let options = NativeOptions {
        packed_cache,
        workers: Workers::new(threads),
        ..NativeOptions::default()
    };
    NativeSession::load("part", source, &options).unwrap()
}

fn load(path: &Path) -> NativeSession {
    load_with(&ModelSource::file(path), PackedCache::Beside, 2)
}

/// The bytes of every output.
fn outputs(session: &mut NativeSession) -> Vec<u8> {
    let floats: Vec<f32> = small_floats(3 * K, 8).iter().map(|x| x - 0.5).collect();
    let x = Value::from_slice(&[3, K], &floats).unwrap();
    let bytes = noise(3 * K, 9);
    let inputs = [
        ("x", x.view()),
        (
            "a",
            TensorRef::new(oxpipe::native::element::ElementType::Uint8, &[3, K], &bytes).unwrap(),
        ),
    ];
    let values = session
        .run_tensors(&inputs, &["y4", "y8", "y8f", "y2", "yi"])
        .unwrap();
    let bytes = values.iter().map(|value| value.view().bytes().unwrap().to_vec());
    bytes.flatten().collect()
}

/// What the model gives without a file.
fn expected(path: &Path) -> Vec<u8> {
    outputs(&mut load_with(&ModelSource::file(path), PackedCache::Off, 1))
}

/// How many weights were taken, how many packed, and whether the file was written.
fn summary(session: &NativeSession) -> (usize, usize, bool) {
    let report = session.packed_cache();
    assert_eq!(report.failure, None);
    (report.taken, report.packed, report.written)
}

#[test]
fn nothing_is_kept_unless_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_model(folder.path());
    let session = NativeSession::load("part", &ModelSource::file(&path), &NativeOptions::default()).unwrap();
    assert_eq!(*session.packed_cache(), PackedCacheReport::default());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_second_start_takes_them_with_the_same_results() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_model(folder.path());
    let expected = expected(&path);

    let mut first = load(&path);
    assert_eq!(summary(&first), (0, PACKED, true));
    assert_eq!(first.packed_cache().file, Some(beside(&path)));
    assert_eq!(first.packed_cache().refused, None);
    assert_eq!(outputs(&mut first), expected);
    let written = fs::read(beside(&path)).unwrap();

    for threads in [1, 3] {
        let mut second = load_with(&ModelSource::file(&path), PackedCache::Beside, threads);
        assert_eq!(summary(&second), (PACKED, 0, false));
        assert_eq!(outputs(&mut second), expected);
        if cfg!(target_os = "linux") {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            let file = beside(&path.canonicalize().unwrap());
            assert!(
                maps.contains(file.to_str().unwrap()),
                "it is not used where it lies"
            );
        }
    }
    assert_eq!(fs::read(beside(&path)).unwrap(), written);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn changed_weights_are_packed_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_model(folder.path());
    load(&path);
    let weights = folder.path().join("weights");
    let modified = fs::metadata(&weights).unwrap().modified().unwrap();
    let mut bytes = external();
    bytes[777] ^= 0x10;
    fs::write(&weights, &bytes).unwrap();
    // Nothing but the content tells.
    fs::File::options()
        .write(true)
        .open(&weights)
        .unwrap()
        .set_modified(modified)
        .unwrap();

    let mut session = load(&path);
    assert_eq!(summary(&session), (PACKED - 1, 1, true));
    assert_eq!(outputs(&mut session), expected(&path));
    assert_eq!(summary(&load(&path)), (PACKED, 0, false));

    // The same weights for another product.
    fs::write(&path, model(0).encode()).unwrap();
    let mut session = load(&path);
    assert_eq!(summary(&session), (PACKED - 1, 1, true));
    assert_eq!(outputs(&mut session), expected(&path));
}

#[test]
fn a_file_that_is_not_whole_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_model(folder.path());
    let expected = expected(&path);
    load(&path);
    let whole = fs::read(beside(&path)).unwrap();
    let check = |bytes: &[u8], what: &str| {
        fs::write(beside(&path), bytes).unwrap();
        let mut session = load(&path);
        assert_eq!(outputs(&mut session), expected, "{what}");
        let report = session.packed_cache().clone();
        assert_eq!(
            (report.taken + report.packed, &report.failure),
            (PACKED, &None),
            "{what}"
        );
        assert_eq!(report.refused.is_some(), report.written, "{what}");
        assert_eq!(
            fs::read(beside(&path)).unwrap() == whole,
            report.written,
            "{what}"
        );
        report
    };
    // In order of places, not of time; sorted by their hashes, so any stride meets every part.
    let mut unnoticed = 0;
    for at in (0..whole.len()).step_by(13).chain(0..64) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        unnoticed += usize::from(!check(&bytes, &format!("byte {at}")).written);
    }
    assert!(
        unnoticed <= 16 * 64 / 13,
        "{unnoticed} changes were not noticed, some not in padding"
    );
    for len in [0, 1, 15, 16, 47, 63, 64, 100, whole.len() / 2, whole.len() - 1] {
        assert!(check(&whole[..len], &format!("the first {len} bytes")).written);
    }
    let longer = [&whole[..], b"\0"].concat();
    assert_eq!(check(&longer, "a byte too many").packed, PACKED);
    let foreign = check(b"# Notes on this model\n", "another file");
    assert!(foreign.refused.unwrap().contains("not a file of packed weights"));
    assert_eq!(check(&noise(50_000, 10), "noise").packed, PACKED);
    assert_eq!(check(&vec![0; 50_000], "zeros").packed, PACKED);
    let mut version = whole.clone();
    version[16] ^= 1;
    let other = check(&version, "another version");
    assert!(other.refused.unwrap().contains("another version"));
    let mut huge = whole.clone();
    huge[32..40].fill(0xff);
    assert_eq!(check(&huge, "too many entries").packed, PACKED);
}

#[test]
fn a_folder_that_cannot_be_written_is_no_reason_to_fail() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_model(folder.path());
    let expected = expected(&path);
    let source = ModelSource::file(&path);

    let missing = PackedCache::Folder(folder.path().join("missing"));
    let mut session = load_with(&source, missing.clone(), 1);
    let report = session.packed_cache().clone();
    assert_eq!((report.packed, report.written), (PACKED, false));
    assert!(report.failure.is_some());
    assert_eq!(outputs(&mut session), expected);

    // The host is told.
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let runtime = Runtime::new(RuntimeSettings {
        logger: Some(Arc::new(move |level, line| {
            log.lock().unwrap().push((level, line.to_owned()))
        })),
        ..RuntimeSettings::default()
    });
    let options = ComponentOptions {
        backend: BackendChoice::Native,
        packed_cache: missing,
        ..ComponentOptions::default()
    };
    runtime.open_component("part", &source, &options).unwrap();
    let warned = |(level, line): &(LogLevel, String)| *level == LogLevel::Warning && line.contains("missing");
    assert_eq!(
        lines.lock().unwrap().iter().filter(|line| warned(line)).count(),
        1
    );

    // Something else has the name, or the one that it is written under.
    for name in ["", ".tmp"] {
        let taken = PathBuf::from(format!("{}{name}", beside(&path).display()));
        fs::create_dir(&taken).unwrap();
        let mut session = load(&path);
        assert!(session.packed_cache().failure.is_some(), "{name}");
        assert_eq!(outputs(&mut session), expected);
        fs::remove_dir(&taken).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
    // Not through a link.
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, "as it was").unwrap();
    let link = format!("{}.tmp", beside(&path).display());
    for is_hard in [false, true] {
        match is_hard {
            false => std::os::unix::fs::symlink(&elsewhere, &link).unwrap(),
            true => fs::hard_link(&elsewhere, &link).unwrap(),
        }
        assert!(load(&path).packed_cache().failure.is_some());
        assert_eq!(fs::read(&elsewhere).unwrap(), b"as it was");
        fs::remove_file(&link).unwrap();
    }

    // What a process has left that was killed.
    fs::write(&link, noise(100_000, 11)).unwrap();
    assert_eq!(summary(&load(&path)), (0, PACKED, true));
    assert!(!Path::new(&link).exists());

    // What is there is taken from a folder that is read-only, too.
    let mut permissions = fs::metadata(folder.path()).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(folder.path(), permissions.clone()).unwrap();
    assert_eq!(summary(&load(&path)), (PACKED, 0, false));
    #[expect(
        clippy::permissions_set_readonly_false,
        reason = "it is a folder of this test"
    )]
    permissions.set_readonly(false);
    fs::set_permissions(folder.path(), permissions).unwrap();
}

#[test]
fn a_folder_has_a_file_for_each_model() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    fs::create_dir(&cache).unwrap();
    let place = PackedCache::Folder(cache.clone());
    let models = ["one", "other"].map(|name| {
        let folder = folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        ModelSource::file(write_model(&folder))
    });
    for taken in [0, PACKED] {
        for model in &models {
            let session = load_with(model, place.clone(), 1);
            assert_eq!(summary(&session), (taken, PACKED - taken, taken == 0));
        }
    }
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 2);
}

#[test]
fn a_model_in_memory_is_known_by_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let source = |accuracy| ModelSource::Memory {
        label: "model".into(),
        model: Arc::new(model(accuracy).encode()),
        external: vec![("weights".into(), Arc::new(external()))],
    };
    let session = load_with(&source(4), PackedCache::Beside, 1);
    assert_eq!(*session.packed_cache(), PackedCacheReport::default());

    let place = PackedCache::Folder(folder.path().to_owned());
    let first = outputs(&mut load_with(&source(4), place.clone(), 1));
    let mut second = load_with(&source(4), place.clone(), 1);
    assert_eq!(summary(&second), (PACKED, 0, false));
    assert_eq!(outputs(&mut second), first);
    assert_eq!(summary(&load_with(&source(0), place, 1)), (0, PACKED, true));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// What a process of [`processes_that_start_at_once`] does.
#[test]
fn one_of_many_processes() {
    if let Some(path) = std::env::var_os("OXPIPE_TEST_MODEL") {
        let path = PathBuf::from(path);
        let expected = expected(&path);
        for _ in 0..10 {
            let mut session = load(&path);
            assert_eq!(session.packed_cache().failure, None);
            assert_eq!(outputs(&mut session), expected);
            // So that there is always somebody who writes.
            drop(fs::remove_file(beside(&path)));
        }
        load(&path);
    }
}

#[test]
fn processes_that_start_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_model(folder.path());
    let processes: Vec<_> = (0..4)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "one_of_many_processes"])
                .env("OXPIPE_TEST_MODEL", &path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    load(&path);
    assert_eq!(summary(&load(&path)), (PACKED, 0, false));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}
