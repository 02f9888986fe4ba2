//! Opens a package in memory with each component on each backend of this build.

use std::sync::Arc;

use oxpipe::component::{DataType, RunControl, SharedBytes, TensorView};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Estimate, Pipeline, PipelineError, PipelineOptions, Run};
use oxpipe::runtime::{BackendChoice, Environment, Runtime, RuntimeSettings};
use oxpipe_test_support::fixtures;
use serde_json::Value;

pub struct TestPackage {
    files: Vec<(String, SharedBytes)>,
    components: Vec<String>,
}

impl TestPackage {
    /// `models` are components, each in a file of its name.
    pub fn new(metadata: &str, models: Vec<(&str, Vec<u8>)>) -> Self {
        let metadata: SharedBytes = Arc::new(metadata.as_bytes().to_vec());
        let mut files = vec![("inference_metadata.yaml".to_owned(), metadata)];
        let mut components = Vec::new();
        for (name, model) in models {
            let model: SharedBytes = Arc::new(model);
            files.push((format!("{name}.onnx"), model));
            components.push(name.to_owned());
        }
        TestPackage { files, components }
    }

    /// The same with a file more.
    pub fn with_file(mut self, name: &str, bytes: SharedBytes) -> Self {
        self.files.push((name.to_owned(), bytes));
        self
    }

    /// The same with another graph for a component.
    pub fn with_model(mut self, component: &str, model: Vec<u8>) -> Self {
        let file = format!("{component}.onnx");
        let model: SharedBytes = Arc::new(model);
        for (name, bytes) in &mut self.files {
            if *name == file {
                *bytes = Arc::clone(&model);
            }
        }
        self
    }

    pub fn open(&self, options: &PipelineOptions) -> Result<Pipeline, PipelineError> {
        let source = PackageSource::Files(self.files.clone());
        Pipeline::open(&runtime(), &source, options, None, &RunControl::default())
    }

    pub fn estimate(&self) -> Estimate {
        let source = PackageSource::Files(self.files.clone());
        Pipeline::estimate(&runtime(), &source, None).unwrap()
    }

    /// For tests/check_with_onnxruntime.py.
    pub fn write(&self, name: &str, cases: &Value) {
        let files = self.files.iter();
        let files = files.map(|(name, bytes)| (name.as_str(), (**bytes).as_ref()));
        fixtures::write(name, files, &cases.to_string());
    }

    /// Calls `check` with a pipeline for every assignment of backends to the components.
    pub fn for_each_mix(&self, check: impl Fn(&Pipeline)) {
        let mut mixes = vec![Vec::new()];
        for component in &self.components {
            let longer = |mix: &Vec<(String, BackendChoice)>| {
                let extended = |backend| [&mix[..], &[(component.clone(), backend)]].concat();
                backends().into_iter().map(extended).collect::<Vec<_>>()
            };
            mixes = mixes.iter().flat_map(longer).collect();
        }
        for mix in mixes {
            eprintln!("{mix:?}");
            let options = PipelineOptions {
                component_backends: mix.clone(),
                ..PipelineOptions::default()
            };
            let pipeline = self.open(&options).unwrap();
            for (name, choice) in &mix {
                let backend = pipeline.component(name).unwrap().backend;
                assert_eq!(backend.name(), choice.name(), "{name}");
            }
            check(&pipeline);
        }
    }
}

pub fn runtime() -> Runtime {
    let settings = RuntimeSettings {
        ort_library_path: cfg!(feature = "ort").then(oxpipe_test_support::onnxruntime::library_path),
        threads: Some(1),
        ..RuntimeSettings::default()
    };
    Runtime::with_environment(settings, Environment::default())
}

pub fn backends() -> Vec<BackendChoice> {
    let mut backends = Vec::new();
    if cfg!(feature = "native") {
        backends.push(BackendChoice::Native);
    }
    if cfg!(feature = "ort") {
        backends.push(BackendChoice::Ort);
    }
    backends
}

pub fn steps(run: &mut Run, count: usize) -> Vec<i32> {
    let control = RunControl::default();
    (0..count)
        .map(|_| run.step(&control).unwrap().token.unwrap())
        .collect()
}

pub fn floats(view: TensorView<'_>) -> Vec<f32> {
    assert_eq!(view.dtype(), DataType::Float32);
    let chunks = view.bytes().chunks_exact(4);
    chunks
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

pub fn integers(view: TensorView<'_>) -> Vec<i64> {
    assert_eq!(view.dtype(), DataType::Int64);
    let chunks = view.bytes().chunks_exact(8);
    chunks
        .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

/// Files of a package, by name.
pub type Files = Vec<(String, SharedBytes)>;

pub fn files<const N: usize>(files: [(&str, Vec<u8>); N]) -> Files {
    let named = files.map(|(name, bytes)| (name.to_owned(), Arc::new(bytes) as SharedBytes));
    named.to_vec()
}

pub fn open_files(files: &Files) -> Pipeline {
    let source = PackageSource::Files(files.clone());
    let control = RunControl::default();
    Pipeline::open(&runtime(), &source, &PipelineOptions::default(), None, &control).unwrap()
}

/// The package, written as `inference_metadata.yaml`, and that text.
pub fn written(files: &Files) -> (Files, String) {
    let metadata = Pipeline::to_metadata(&PackageSource::Files(files.clone()), None).unwrap();
    let mut written = files.clone();
    let bytes: SharedBytes = Arc::new(metadata.clone().into_bytes());
    written.push(("inference_metadata.yaml".to_owned(), bytes));
    (written, metadata)
}

/// What a pipeline is, without what tells where that was said.
pub fn spec(pipeline: &Pipeline) -> Value {
    let mut description = pipeline.describe();
    for named in ["format", "metadata_file"] {
        description[named] = Value::Null;
    }
    description
}
