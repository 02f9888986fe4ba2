//! Runs a model with all passes, without one, and without any.

use std::sync::Arc;

use oxpipe::component::ModelSource;
use oxpipe::native::element::ElementType;
use oxpipe::native::tensor::Tensor as Value;
use oxpipe::native::workers::Workers;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::Model;

/// A model and what to run it on.
pub struct Case {
    model: Arc<Vec<u8>>,
    inputs: Vec<(String, Value)>,
    outputs: Vec<String>,
}

impl Case {
    pub fn new(model: Model, inputs: &[(&str, Value)], outputs: &[&str]) -> Self {
        Case {
            model: Arc::new(model.encode()),
            inputs: inputs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            outputs: outputs.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    pub fn load(&self, disabled: &str) -> NativeSession {
        self.load_on(disabled, NativeOptions::default())
    }

    fn load_on(&self, disabled: &str, options: NativeOptions) -> NativeSession {
        let source = ModelSource::Memory {
            label: "test".into(),
            model: self.model.clone(),
            external: Vec::new(),
        };
        let options = NativeOptions {
            disabled_passes: disabled.parse().unwrap(),
            ..options
        };
        NativeSession::load("part", &source, &options).unwrap()
    }

    fn run(&self, session: &mut NativeSession) -> Vec<Value> {
        let inputs: Vec<_> = self
            .inputs
            .iter()
            .map(|(name, value)| (name.as_str(), value.view()))
            .collect();
        let outputs: Vec<_> = self.outputs.iter().map(String::as_str).collect();
        session.run_tensors(&inputs, &outputs).unwrap()
    }

    /// Nodes that a run runs.
    pub fn nodes(&self, disabled: &str) -> usize {
        let dims: Vec<_> = self
            .inputs
            .iter()
            .map(|(name, value)| (name.as_str(), value.dims()))
            .collect();
        self.load(disabled).estimate(&dims).unwrap().nodes
    }

    /// How often a pass fires, all others being on.
    pub fn fired(&self, pass: &str) -> usize {
        let passes = self.load("").passes();
        passes
            .iter()
            .find(|(name, _)| *name == pass)
            .map_or(0, |(_, times)| *times)
    }

    /// The pass fires this often, is not run when it is disabled, and changes no output by more
    /// than `bound` of the largest element of that output; no bit if that is 0.
    #[track_caller]
    pub fn check(&self, pass: &str, times: usize, bound: f64) {
        assert_eq!(self.fired(pass), times, "{pass} fired");
        let without = self.load(pass).passes();
        assert!(
            without.iter().all(|(name, _)| *name != pass),
            "{pass} ran though disabled"
        );
        assert!(self.load("all").passes().is_empty());
        self.compare(&[pass, "all"], bound);
    }

    /// All passes being on, every bit is the same on so many threads.
    #[track_caller]
    pub fn same_on_threads(&self, counts: &[usize]) {
        let mut results = counts.iter().map(|&count| {
            let options = NativeOptions {
                workers: Workers::new(count),
                ..NativeOptions::default()
            };
            self.run(&mut self.load_on("", options))
        });
        let first = results.next().unwrap();
        for other in results {
            for (name, (a, b)) in self.outputs.iter().zip(first.iter().zip(&other)) {
                assert_close(name, a, b, 0.0);
            }
        }
    }

    /// What these leave out changes no output by more than `bound`.
    #[track_caller]
    fn compare(&self, disabled: &[&str], bound: f64) {
        let results = self.run(&mut self.load(""));
        for disabled in disabled {
            for (name, (a, b)) in self
                .outputs
                .iter()
                .zip(results.iter().zip(self.run(&mut self.load(disabled))))
            {
                assert_close(name, a, &b, bound);
            }
        }
    }

    /// The pass leaves the model alone.
    #[track_caller]
    pub fn refuses(&self, pass: &str) {
        assert_eq!(self.fired(pass), 0, "{pass} fired");
        self.compare(&[pass], 0.0);
    }
}

#[track_caller]
pub fn assert_close(name: &str, a: &Value, b: &Value, bound: f64) {
    assert_eq!(a.dims(), b.dims(), "dims of {name}");
    assert_eq!(a.element_type(), b.element_type(), "type of {name}");
    if bound == 0.0 {
        assert_eq!(a.view().bytes().unwrap(), b.view().bytes().unwrap(), "{name}");
        return;
    }
    let (a, b) = (to_f64(a), to_f64(b));
    let largest = b.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    for (a, b) in a.iter().zip(&b) {
        assert!(
            (a - b).abs() <= bound * largest,
            "{name}: {a} and {b}, the largest is {largest}"
        );
    }
}

fn to_f64(value: &Value) -> Vec<f64> {
    let view = value.view();
    match view.element_type() {
        ElementType::Float32 => view.slice::<f32>().unwrap().iter().map(|&x| x.into()).collect(),
        ElementType::Float64 => view.slice::<f64>().unwrap().to_vec(),
        ElementType::Float16 => view
            .slice::<half::f16>()
            .unwrap()
            .iter()
            .map(|x| x.to_f64())
            .collect(),
        ElementType::Bfloat16 => view
            .slice::<half::bf16>()
            .unwrap()
            .iter()
            .map(|x| x.to_f64())
            .collect(),
        other => panic!("no float: {other}"),
    }
}

/// Numbers from -2 to 2, always the same ones for a seed.
pub fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

pub fn floats(seed: u64, dims: &[usize]) -> Value {
    typed(ElementType::Float32, seed, dims)
}

pub fn typed(ty: ElementType, seed: u64, dims: &[usize]) -> Value {
    let values = numbers(seed, dims.iter().product());
    match ty {
        ElementType::Float64 => {
            Value::from_slice(dims, &values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>())
        }
        ElementType::Float16 => Value::from_slice(
            dims,
            &values.into_iter().map(half::f16::from_f32).collect::<Vec<_>>(),
        ),
        ElementType::Bfloat16 => Value::from_slice(
            dims,
            &values.into_iter().map(half::bf16::from_f32).collect::<Vec<_>>(),
        ),
        _ => Value::from_slice(dims, &values),
    }
    .unwrap()
}
