//! One graph on both backends.

use std::path::{Path, PathBuf};

use oxpipe::component::{
    AlignedBytes, ComponentSession, ComponentTensor, DataType, Input, ModelSource, Output, OutputResult,
    RunControl,
};
use oxpipe::native::workers::Workers;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe::ort::{OrtLibrary, OrtOptions, OrtSearch, OrtSession};
use oxpipe_test_support::onnxruntime::library_path;

/// A file that the script has fetched.
pub fn fetched(path: &str) -> PathBuf {
    let full = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("third_party/real-graphs")
        .join(path);
    assert!(
        full.is_file(),
        "{} is missing; run scripts/fetch-real-graphs.sh",
        full.display()
    );
    full
}

pub type Named = (&'static str, ComponentTensor);

pub fn tensor(dtype: DataType, shape: &[i64], bytes: impl IntoIterator<Item = u8>) -> ComponentTensor {
    let bytes: Vec<u8> = bytes.into_iter().collect();
    let bytes = AlignedBytes::try_from_slice(&bytes).unwrap();
    ComponentTensor::from_bytes(dtype, shape, bytes).unwrap()
}

pub fn floats(shape: &[i64], values: &[f32]) -> ComponentTensor {
    tensor(
        DataType::Float32,
        shape,
        values.iter().flat_map(|value| value.to_le_bytes()),
    )
}

pub fn ints(shape: &[i64], values: &[i64]) -> ComponentTensor {
    tensor(
        DataType::Int64,
        shape,
        values.iter().flat_map(|value| value.to_le_bytes()),
    )
}

pub fn copy(tensor: &ComponentTensor) -> ComponentTensor {
    tensor.view().to_tensor().unwrap()
}

/// The elements of a float32 tensor.
pub fn values(tensor: &ComponentTensor) -> Vec<f32> {
    assert_eq!(tensor.dtype(), DataType::Float32);
    let chunks = tensor.bytes().chunks_exact(4);
    chunks
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

/// The elements of an int64 tensor.
pub fn int_values(tensor: &ComponentTensor) -> Vec<i64> {
    assert_eq!(tensor.dtype(), DataType::Int64);
    let chunks = tensor.bytes().chunks_exact(8);
    chunks
        .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

/// A graph, loaded by both backends.
pub struct Graph {
    name: String,
    /// How far outputs may be apart, of the largest.
    tolerance: f32,
    native: Box<dyn ComponentSession>,
    /// The same on several threads, whose outputs must be the same bytes.
    threaded: Box<dyn ComponentSession>,
    ort: Box<dyn ComponentSession>,
}

/// What both backends gave, in the graph's order of outputs.
pub struct Both {
    pub native: Vec<ComponentTensor>,
    pub ort: Vec<ComponentTensor>,
}

impl Graph {
    pub fn open(path: &str) -> Graph {
        let source = ModelSource::file(fetched(path));
        let search = OrtSearch {
            option: Some(library_path()),
            environment: None,
        };
        let library = OrtLibrary::load(&search).unwrap();
        let native = |workers: Workers| {
            NativeSession::load(
                "native",
                &source,
                &NativeOptions {
                    workers,
                    ..NativeOptions::default()
                },
            )
            .unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        let ort = OrtSession::load(
            &library,
            "ort",
            &source,
            &OrtOptions {
                threads: 1,
                ..OrtOptions::default()
            },
        )
        .unwrap_or_else(|error| panic!("{path}: {error}"));
        Graph {
            name: path.to_owned(),
            tolerance: 1e-4,
            native: Box::new(native(Workers::alone())),
            threaded: Box::new(native(Workers::new(3))),
            ort: Box::new(ort),
        }
    }

    /// For a graph that computes in float16 inside: two units in the last place of it.
    pub fn in_float16(self) -> Graph {
        Graph {
            tolerance: 1.0 / 512.0,
            ..self
        }
    }

    /// Runs both on the same inputs and holds their outputs together.
    pub fn run(&mut self, inputs: &[Named]) -> Both {
        let both = Both {
            native: self.run_native(inputs),
            ort: run(&mut *self.ort, inputs),
        };
        self.compare(&both);
        both
    }

    /// Runs each on its own inputs, such as the state that it gave in the step before.
    pub fn run_each(&mut self, native: &[Named], ort: &[Named]) -> Both {
        let both = Both {
            native: self.run_native(native),
            ort: run(&mut *self.ort, ort),
        };
        self.compare(&both);
        both
    }

    fn run_native(&mut self, inputs: &[Named]) -> Vec<ComponentTensor> {
        let alone = run(&mut *self.native, inputs);
        let threaded = run(&mut *self.threaded, inputs);
        for (index, (alone, threaded)) in alone.iter().zip(&threaded).enumerate() {
            let same = alone.bytes() == threaded.bytes();
            assert!(same, "{}: output {index} depends on the threads", self.name);
        }
        alone
    }

    fn compare(&self, both: &Both) {
        let ports = &self.ort.io().outputs;
        assert_eq!(both.native.len(), both.ort.len());
        for ((native, ort), port) in both.native.iter().zip(&both.ort).zip(ports) {
            let at = format!("{}: output {}", self.name, port.name);
            assert_eq!(native.dtype(), ort.dtype(), "{at}");
            assert_eq!(native.shape(), ort.shape(), "{at}");
            match ort.dtype() {
                DataType::Float32 => self.close(&values(native), &values(ort), &at),
                _ => assert_eq!(native.bytes(), ort.bytes(), "{at}"),
            }
        }
    }

    fn close(&self, native: &[f32], ort: &[f32], at: &str) {
        let largest = ort.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        assert!(largest.is_finite(), "{at}: not finite");
        let off = native
            .iter()
            .zip(ort)
            .map(|(native, ort)| (native - ort).abs())
            .fold(
                0.0f32,
                |most, off| if off > most || off.is_nan() { off } else { most },
            );
        assert!(
            off <= self.tolerance * largest,
            "{at}: off by {off}, the largest is {largest}"
        );
    }
}

fn run(session: &mut dyn ComponentSession, inputs: &[Named]) -> Vec<ComponentTensor> {
    let names: Vec<String> = session
        .io()
        .outputs
        .iter()
        .map(|port| port.name.clone())
        .collect();
    let inputs: Vec<Input<'_>> = inputs
        .iter()
        .map(|(name, value)| Input {
            name,
            value: value.view(),
        })
        .collect();
    let mut outputs: Vec<Output<'_>> = names.iter().map(|name| Output::alloc(name)).collect();
    session
        .run(&inputs, &mut outputs, &RunControl::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let owned = outputs.into_iter().map(|output| match output.result {
        OutputResult::Owned(tensor) => copy(&tensor),
        _ => panic!("{} was not computed", output.name),
    });
    owned.collect()
}
