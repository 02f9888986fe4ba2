//! Every call of ONNX Runtime's C API fails once: what was asked for ends with an error or does without,
//! sessions go on as if nothing had been, and no object of the library is left behind.
//!
//! The library that fails is `library.c`, made by the platform's compiler in front of the real one. A
//! test binary of its own, because a process has one ONNX Runtime.
#![cfg(all(feature = "ort", target_os = "linux"))]

use std::ffi::c_long;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ort::sys::OrtApi;
use oxpipe::component::{
    AlignedBytes, ComponentError, ComponentErrorKind, ComponentSession, DataType, Input, ModelSource, Output,
    OutputResult, RunControl, TensorView,
};
use oxpipe::ort::{OrtLibrary, OrtOptions, OrtSearch, OrtSession};
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node, Tensor};
use oxpipe_test_support::onnxruntime::library_path;

/// The place of a function in the table.
macro_rules! places {
    ($($name:ident),* $(,)?) => {
        [$(offset_of!(OrtApi, $name) / size_of::<usize>()),*]
    };
}

/// What is made at the end of a call, by functions that return a status.
const MAKING: [usize; 10] = places![
    CreateEnvWithCustomLogger,
    CreateCpuMemoryInfo,
    CreateSessionOptions,
    CreateRunOptions,
    CreateSession,
    CreateSessionFromArray,
    CreateTensorWithDataAsOrtValue,
    GetTensorTypeAndShape,
    SessionGetInputTypeInfo,
    SessionGetOutputTypeInfo,
];

const OTHERS: [usize; 22] = places![
    DisableTelemetryEvents,
    AddSessionConfigEntry,
    CastTypeInfoToTensorInfo,
    DisableCpuMemArena,
    DisableMemPattern,
    EnableCpuMemArena,
    EnableMemPattern,
    GetDimensions,
    GetDimensionsCount,
    GetSymbolicDimensions,
    GetTensorElementType,
    GetTensorMutableData,
    Run,
    RunOptionsSetRunLogSeverityLevel,
    RunOptionsSetTerminate,
    RunOptionsUnsetTerminate,
    SetDeterministicCompute,
    SetInterOpNumThreads,
    SetIntraOpNumThreads,
    SetSessionExecutionMode,
    SetSessionGraphOptimizationLevel,
    SetSessionLogSeverityLevel,
];

const RELEASING: [usize; 8] = places![
    ReleaseEnv,
    ReleaseMemoryInfo,
    ReleaseSessionOptions,
    ReleaseRunOptions,
    ReleaseSession,
    ReleaseTypeInfo,
    ReleaseTensorTypeAndShapeInfo,
    ReleaseValue,
];

fn listed(name: &str, places: impl IntoIterator<Item = usize>) -> String {
    places
        .into_iter()
        .map(|place| format!("{name}({place}) "))
        .collect()
}

fn build(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ort_faults/library.c");
    let made = folder.join("libonnxruntime.so");
    let failing = || MAKING.into_iter().chain(OTHERS);
    let pairs: String = MAKING.iter().map(|place| format!("{{{place}, 0}}, ")).collect();
    // Of the last version whose table we know, and what of the next is asked for.
    let table = size_of::<OrtApi>() / size_of::<usize>() + 8;
    let [run] = places![Run];
    let status = Command::new("cc")
        .args(["-std=c11", "-O1", "-w", "-shared", "-fPIC"])
        .arg(format!("-DREAL=\"{}\"", library_path().display()))
        .arg(format!("-DTABLE={table}"))
        .arg(format!("-DRUN={run}"))
        .arg(format!("-DMAKING={pairs}"))
        .arg(format!("-DFUNCTIONS={}", listed("FUNCTION", failing())))
        .arg(format!("-DRELEASES={}", listed("RELEASE", RELEASING)))
        .arg(format!(
            "-DREPLACED={}{}",
            listed("FAILING", failing()),
            listed("RELEASING", RELEASING)
        ))
        .arg(source)
        .arg("-o")
        .arg(&made)
        .arg("-ldl")
        .status()
        .expect("a C compiler");
    assert!(status.success());
    made
}

/// The counters of the library, which is in this process once.
struct Faults(libloading::Library);

impl Faults {
    fn counter(&self, name: &str) -> *mut c_long {
        // SAFETY: the library has variables of these names and this type, and is never unloaded.
        unsafe { *self.0.get::<*mut c_long>(name).expect("a counter") }
    }

    /// Lets the call of this number fail, counted from now on.
    fn fail_at(&self, call: c_long) {
        // SAFETY: as above; only this thread uses the library.
        unsafe {
            *self.counter("faults_calls") = 0;
            *self.counter("faults_fail_at") = call;
        }
    }

    /// Whether there were as many calls.
    fn failed(&self) -> bool {
        // SAFETY: as above.
        unsafe { *self.counter("faults_calls") > *self.counter("faults_fail_at") }
    }

    fn live(&self) -> c_long {
        // SAFETY: as above.
        unsafe { *self.counter("faults_live") }
    }
}

/// y = x * w, and the sum of y, whose shape nothing says.
fn model() -> ModelSource {
    let model = Model::new()
        .input("x", FLOAT, "[n, 2]")
        .output("y", FLOAT, "[n, 2]")
        .output("found", 7, "[rank, count]")
        .initializer(Tensor::floats("w", &[2], &[2.0, 3.0]))
        .node(Node::new("Mul", &["x", "w"], &["y"]))
        .node(Node::new("NonZero", &["x"], &["found"]))
        .encode();
    ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model),
        external: Vec::new(),
    }
}

fn open(library: &OrtLibrary) -> Result<OrtSession, ComponentError> {
    let options = OrtOptions {
        threads: 1,
        ..OrtOptions::default()
    };
    OrtSession::load(library, "part", &model(), &options)
}

fn run(session: &mut OrtSession) -> Result<Vec<f32>, ComponentError> {
    let bytes: Vec<u8> = [1f32, 2.0, 0.0, 4.0]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let bytes = AlignedBytes::try_from_slice(&bytes).unwrap();
    let value = TensorView::new(DataType::Float32, &[2, 2], &bytes).unwrap();
    let inputs = [Input { name: "x", value }];
    let mut outputs = [Output::alloc("y"), Output::alloc("found")];
    let session: &mut dyn ComponentSession = session;
    session.run(&inputs, &mut outputs, &RunControl::default())?;
    let [OutputResult::Owned(y), OutputResult::Owned(found)] = outputs.map(|output| output.result) else {
        panic!("both are owned");
    };
    assert_eq!(found.shape(), [2, 3]);
    let floats = y.bytes().chunks_exact(4);
    Ok(floats
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect())
}

const EXPECTED: [f32; 4] = [2.0, 6.0, 0.0, 12.0];

fn is_told(error: &ComponentError) {
    let text = error.to_string();
    assert!(text.contains("a fault that a test asked for"), "{text}");
    assert!(
        matches!(
            error.kind(),
            ComponentErrorKind::Backend { .. }
                | ComponentErrorKind::InvalidModel { .. }
                | ComponentErrorKind::BackendUnavailable { .. }
        ),
        "{error:?}"
    );
}

#[test]
fn every_call_that_fails_is_an_error_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = build(folder.path());
    // SAFETY: the library is the one above; it has no initialisers.
    let faults = Faults(unsafe { libloading::Library::new(&path) }.unwrap());
    let search = OrtSearch {
        option: Some(path),
        environment: None,
    };

    // Of the start, which a process has once: every failure, and then success.
    let mut call = 0;
    let library = loop {
        faults.fail_at(call);
        match OrtLibrary::load(&search) {
            Ok(library) => break library,
            Err(error) => {
                is_told(&error);
                assert_eq!(faults.live(), 0, "call {call}");
            }
        }
        call += 1;
    };
    assert!(call >= 3, "{call} calls failed");
    let kept = faults.live();

    // Of opening: an error, or a session that does without.
    let mut refused = 0;
    for call in 0.. {
        faults.fail_at(call);
        let opened = open(&library);
        let failed = faults.failed();
        faults.fail_at(-1);
        match opened {
            Ok(mut session) => assert_eq!(run(&mut session).unwrap(), EXPECTED),
            Err(error) => {
                is_told(&error);
                refused += 1;
            }
        }
        assert_eq!(faults.live(), kept, "call {call} of opening");
        if !failed {
            break;
        }
    }
    assert!(refused > 10, "{refused}");

    // Of a run: an error, and the same session goes on.
    let mut session = open(&library).unwrap();
    let mut refused = 0;
    for call in 0.. {
        let before = faults.live();
        faults.fail_at(call);
        let ran = run(&mut session);
        let failed = faults.failed();
        faults.fail_at(-1);
        match ran {
            Ok(values) => assert_eq!(values, EXPECTED),
            Err(error) => {
                is_told(&error);
                refused += 1;
            }
        }
        assert_eq!(faults.live(), before, "call {call} of a run");
        assert_eq!(run(&mut session).unwrap(), EXPECTED);
        if !failed {
            break;
        }
    }
    assert!(refused > 3, "{refused}");
    drop(session);
    assert_eq!(faults.live(), kept);
}
