//! Loading and running in few words.

use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use oxpipe::component::{
    AlignedBytes, ComponentError, ComponentErrorKind, ComponentSession, DataType, Input, ModelSource, Output,
    OutputResult, RunControl, TensorView, copied_bytes,
};
use oxpipe::ort::{OrtLibrary, OrtOptions, OrtSearch, OrtSession};
use oxpipe_test_support::onnx_writer::Model;
use oxpipe_test_support::onnxruntime::library_path;

pub fn library() -> OrtLibrary {
    let search = OrtSearch {
        option: Some(library_path()),
        environment: None,
    };
    OrtLibrary::load(&search).unwrap()
}

pub fn memory(model: impl AsRef<[u8]> + Send + Sync + 'static) -> ModelSource {
    ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model),
        external: Vec::new(),
    }
}

pub fn try_load(source: &ModelSource) -> Result<Box<dyn ComponentSession>, ComponentError> {
    let session = OrtSession::load(
        &library(),
        "part",
        source,
        &OrtOptions {
            threads: 1,
            ..OrtOptions::default()
        },
    )?;
    Ok(Box::new(session))
}

pub fn load(model: Model) -> Box<dyn ComponentSession> {
    try_load(&memory(model.encode())).unwrap_or_else(|error| panic!("{error}"))
}

pub fn load_error(model: Model) -> ComponentError {
    try_load(&memory(model.encode())).map(|_| ()).unwrap_err()
}

/// Little-endian bytes of numbers, aligned for any of them.
pub fn bytes_of<T: Copy, const N: usize>(values: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> AlignedBytes {
    let bytes: Vec<u8> = values.iter().flat_map(|&value| to_bytes(value)).collect();
    AlignedBytes::try_from_slice(&bytes).unwrap()
}

pub fn floats(values: &[f32]) -> AlignedBytes {
    bytes_of(values, f32::to_le_bytes)
}

pub fn ints(values: &[i64]) -> AlignedBytes {
    bytes_of(values, i64::to_le_bytes)
}

pub fn input<'a>(name: &'a str, dtype: DataType, shape: &'a [i64], bytes: &'a [u8]) -> Input<'a> {
    let value = TensorView::new(dtype, shape, bytes).unwrap();
    Input { name, value }
}

/// What a test asks of an output.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub name: &'a str,
    pub room: Option<usize>,
    pub known_shape: Option<&'a [i64]>,
}

/// Memory from the library.
pub fn alloc(name: &str) -> Ask<'_> {
    Ask {
        name,
        room: None,
        known_shape: None,
    }
}

/// Room of so many bytes.
pub fn room(name: &str, bytes: usize) -> Ask<'_> {
    Ask {
        room: Some(bytes),
        ..alloc(name)
    }
}

/// Room of so many bytes, and the shape.
pub fn known<'a>(name: &'a str, bytes: usize, shape: &'a [i64]) -> Ask<'a> {
    Ask {
        known_shape: Some(shape),
        ..room(name, bytes)
    }
}

#[derive(Debug, PartialEq)]
pub struct Got {
    pub dtype: DataType,
    pub shape: Vec<i64>,
    pub bytes: Vec<u8>,
    pub in_room: bool,
}

impl Got {
    pub fn floats(&self) -> Vec<f32> {
        assert_eq!(self.dtype, DataType::Float32);
        self.bytes
            .chunks(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    }
}

/// The outputs of a run, and the bytes that were copied at the seam.
pub struct Ran {
    pub got: Vec<Got>,
    pub copied: u64,
}

impl fmt::Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, copied {}", self.got, self.copied)
    }
}

/// Filling of rooms; bytes beyond an output must keep it.
const UNTOUCHED: u8 = 0xA5;

pub fn try_run(
    session: &mut Box<dyn ComponentSession>,
    inputs: &[Input<'_>],
    asks: &[Ask<'_>],
    control: &RunControl,
) -> Result<Ran, ComponentError> {
    // Eights, so that rooms are aligned for every type.
    let mut rooms: Vec<Vec<u64>> = asks
        .iter()
        .map(|ask| vec![u64::from_ne_bytes([UNTOUCHED; 8]); ask.room.unwrap_or(0).div_ceil(8)])
        .collect();
    let mut outputs: Vec<Output<'_>> = Vec::new();
    for (ask, memory) in asks.iter().zip(&mut rooms) {
        // SAFETY: the memory is borrowed for the run and has at least that many bytes.
        let memory = ask.room.map(|bytes| unsafe {
            std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<MaybeUninit<u8>>(), bytes)
        });
        outputs.push(Output {
            room: memory,
            known_shape: ask.known_shape,
            ..Output::alloc(ask.name)
        });
    }
    let before = copied_bytes();
    session.run(inputs, &mut outputs, control)?;
    // Release builds do not count.
    let copied = copied_bytes().unwrap_or(0) - before.unwrap_or(0);
    let results: Vec<OutputResult> = outputs.into_iter().map(|output| output.result).collect();
    let mut got = Vec::new();
    for ((result, memory), ask) in results.into_iter().zip(&rooms).zip(asks) {
        let memory: Vec<u8> = memory.iter().flat_map(|eight| eight.to_ne_bytes()).collect();
        got.push(match result {
            OutputResult::InCache { .. } | OutputResult::Pending => {
                panic!("output {} has no value of its own", ask.name)
            }
            OutputResult::Owned(tensor) => Got {
                dtype: tensor.dtype(),
                shape: tensor.shape().to_vec(),
                bytes: tensor.bytes().to_vec(),
                in_room: false,
            },
            OutputResult::InRoom { dtype, shape } => {
                let length = oxpipe::component::byte_len(dtype, &shape).unwrap();
                assert!(memory[length..].iter().all(|&byte| byte == UNTOUCHED));
                Got {
                    dtype,
                    shape: shape.to_vec(),
                    bytes: memory[..length].to_vec(),
                    in_room: true,
                }
            }
        });
    }
    Ok(Ran { got, copied })
}

#[track_caller]
pub fn run(session: &mut Box<dyn ComponentSession>, inputs: &[Input<'_>], asks: &[Ask<'_>]) -> Ran {
    try_run(session, inputs, asks, &RunControl::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
pub fn run_error(
    session: &mut Box<dyn ComponentSession>,
    inputs: &[Input<'_>],
    asks: &[Ask<'_>],
) -> ComponentError {
    try_run(session, inputs, asks, &RunControl::default()).unwrap_err()
}

/// Asserts on the kind of an error, showing it when it is another.
#[macro_export]
macro_rules! assert_kind {
    ($error:expr, $pattern:pat $(if $guard:expr)?) => {{
        let error: &oxpipe::component::ComponentError = &$error;
        assert!(
            matches!(error.kind(), $pattern $(if $guard)?),
            "{error}\n{:?}",
            error.kind()
        );
    }};
}

/// No copies were counted, where they are.
#[track_caller]
pub fn assert_nothing_copied(ran: &Ran) {
    assert_eq!(ran.copied, 0, "{ran:?}");
}

pub type Kind = ComponentErrorKind;
