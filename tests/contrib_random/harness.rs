//! One node on both backends, and how close they must be.

use std::fmt;
use std::sync::{Arc, OnceLock};

use half::{bf16, f16};
use oxpipe::component::{
    AlignedBytes, ComponentSession, DataType, Input, ModelSource, Output, OutputResult, RunControl,
    TensorView,
};
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe::ort::{OrtLibrary, OrtOptions, OrtSearch, OrtSession};
use oxpipe_test_support::onnx_writer::{
    BFLOAT16, BOOL, FLOAT, FLOAT8E4M3FN, FLOAT8E5M2, FLOAT16, INT8, INT16, INT32, INT64, Model, Node, Tensor,
    UINT8, UINT16,
};
use oxpipe_test_support::onnxruntime::library_path;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// The type that stands for `T` in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Float {
    F32,
    F16,
    Bf16,
}

impl Float {
    fn code(self) -> i32 {
        match self {
            Float::F32 => FLOAT,
            Float::F16 => FLOAT16,
            Float::Bf16 => BFLOAT16,
        }
    }

    fn round(self, x: f32) -> f32 {
        match self {
            Float::F32 => x,
            Float::F16 => f16::from_f32(x).to_f32(),
            Float::Bf16 => bf16::from_f32(x).to_f32(),
        }
    }

    fn bytes(self, values: &[f32]) -> Vec<u8> {
        let each = |x: &f32| match self {
            Float::F32 => x.to_le_bytes().to_vec(),
            Float::F16 => f16::from_f32(*x).to_le_bytes().to_vec(),
            Float::Bf16 => bf16::from_f32(*x).to_le_bytes().to_vec(),
        };
        values.iter().flat_map(each).collect()
    }

    /// Of the largest element. Half a unit in the last place is up to 4.9e-4 and 3.9e-3.
    fn tolerance(self) -> f64 {
        match self {
            Float::F32 => 2e-5,
            Float::F16 => 5e-4,
            Float::Bf16 => 4e-3,
        }
    }
}

#[derive(Clone, Debug)]
enum Data {
    /// Of the type of the run.
    Floats(Vec<f32>),
    /// As stored in a file.
    Raw(i32, Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct Value {
    dims: Vec<usize>,
    data: Data,
    constant: bool,
}

impl Value {
    pub fn floats(dims: &[usize], values: Vec<f32>) -> Value {
        assert_eq!(dims.iter().product::<usize>(), values.len());
        Value {
            dims: dims.into(),
            data: Data::Floats(values),
            constant: false,
        }
    }

    pub fn raw(data_type: i32, dims: &[usize], bytes: Vec<u8>) -> Value {
        Value {
            dims: dims.into(),
            data: Data::Raw(data_type, bytes),
            constant: false,
        }
    }

    pub fn i32s(dims: &[usize], values: &[i32]) -> Value {
        Value::raw(INT32, dims, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    pub fn i64s(dims: &[usize], values: &[i64]) -> Value {
        Value::raw(INT64, dims, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// An initializer instead of an input: weights.
    pub fn constant(self) -> Value {
        Value {
            constant: true,
            ..self
        }
    }

    fn stored(&self, float: Float) -> (i32, Vec<u8>) {
        match &self.data {
            Data::Floats(values) => (float.code(), float.bytes(values)),
            Data::Raw(data_type, bytes) => (*data_type, bytes.clone()),
        }
    }
}

/// A node, its inputs, and the types of its outputs: `None` is the type of the run.
#[derive(Clone)]
pub struct Case {
    pub op_type: &'static str,
    attributes: Vec<(&'static str, Attribute)>,
    inputs: Vec<Option<Value>>,
    outputs: Vec<Option<i32>>,
    /// The outputs in use.
    used: Vec<bool>,
}

#[derive(Clone, Debug)]
enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    Floats(Vec<f32>),
    String(String),
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = |value: &Option<Value>| match value {
            Some(value) => format!("{:?}", value.dims),
            None => "-".into(),
        };
        let inputs: Vec<String> = self.inputs.iter().map(dims).collect();
        write!(f, "{} {:?} {}", self.op_type, self.attributes, inputs.join(" "))
    }
}

impl Case {
    pub fn new(op_type: &'static str) -> Case {
        Case {
            op_type,
            attributes: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            used: Vec::new(),
        }
    }

    pub fn input(mut self, value: impl Into<Option<Value>>) -> Case {
        self.inputs.push(value.into());
        self
    }

    /// An output of the type of the run.
    pub fn output(self) -> Case {
        self.output_if(true)
    }

    pub fn output_if(mut self, used: bool) -> Case {
        self.outputs.push(None);
        self.used.push(used);
        self
    }

    pub fn output_of(mut self, data_type: i32) -> Case {
        self.outputs.push(Some(data_type));
        self.used.push(true);
        self
    }

    pub fn int(mut self, name: &'static str, value: impl Into<i64>) -> Case {
        self.attributes.push((name, Attribute::Int(value.into())));
        self
    }

    pub fn ints(mut self, name: &'static str, values: &[i64]) -> Case {
        self.attributes.push((name, Attribute::Ints(values.into())));
        self
    }

    pub fn float(mut self, name: &'static str, value: f32) -> Case {
        self.attributes.push((name, Attribute::Float(value)));
        self
    }

    pub fn floats(mut self, name: &'static str, values: &[f32]) -> Case {
        self.attributes.push((name, Attribute::Floats(values.into())));
        self
    }

    pub fn string(mut self, name: &'static str, value: &str) -> Case {
        self.attributes.push((name, Attribute::String(value.into())));
        self
    }

    /// With every value rounded to a type.
    fn rounded(&self, float: Float) -> Case {
        let mut case = self.clone();
        for value in case.inputs.iter_mut().flatten() {
            if let Data::Floats(values) = &mut value.data {
                values.iter_mut().for_each(|x| *x = float.round(*x));
            }
        }
        case
    }

    fn model(&self, float: Float) -> Vec<u8> {
        let names: Vec<String> = (0..self.inputs.len()).map(|i| format!("in{i}")).collect();
        let given = |i: usize| {
            if self.inputs[i].is_some() {
                names[i].as_str()
            } else {
                ""
            }
        };
        let inputs: Vec<&str> = (0..names.len()).map(given).collect();
        let outputs: Vec<String> = (0..self.outputs.len()).map(|i| format!("out{i}")).collect();
        let shown = |i: usize| if self.used[i] { outputs[i].as_str() } else { "" };
        let shown: Vec<&str> = (0..outputs.len()).map(shown).collect();
        let mut node = Node::new(self.op_type, &inputs, &shown).domain("com.microsoft");
        for (name, attribute) in &self.attributes {
            node = match attribute {
                Attribute::Int(value) => node.int(name, *value),
                Attribute::Ints(values) => node.ints(name, values),
                Attribute::Float(value) => node.float(name, *value),
                Attribute::Floats(values) => node.floats(name, values),
                Attribute::String(value) => node.string(name, value),
            };
        }
        let mut model = Model::new()
            .ir_version(10)
            .opset("", 21)
            .opset("com.microsoft", 1)
            .node(node);
        for (name, value) in names.iter().zip(&self.inputs) {
            let Some(value) = value else { continue };
            let (data_type, bytes) = value.stored(float);
            let dims: Vec<i64> = value.dims.iter().map(|&dim| dim as i64).collect();
            model = match value.constant {
                true => model.initializer(Tensor::raw(name, data_type, &dims, &bytes)),
                false => model.input(name, data_type, &format!("{dims:?}")),
            };
        }
        for (i, name) in outputs.iter().enumerate().filter(|(i, _)| self.used[*i]) {
            model = model.output(name, self.outputs[i].unwrap_or(float.code()), "[...]");
        }
        model.encode()
    }

    fn run(&self, session: &mut dyn ComponentSession, float: Float) -> Result<Vec<Found>, String> {
        let mut names = Vec::new();
        for (i, value) in self.inputs.iter().enumerate() {
            let Some(value) = value.as_ref().filter(|value| !value.constant) else {
                continue;
            };
            let (data_type, bytes) = value.stored(float);
            let dims: Vec<i64> = value.dims.iter().map(|&dim| dim as i64).collect();
            let bytes = AlignedBytes::try_from_slice(&bytes).unwrap();
            names.push((format!("in{i}"), data_type, dims, bytes));
        }
        let inputs: Vec<Input<'_>> = names
            .iter()
            .map(|(name, data_type, dims, bytes)| Input {
                name,
                value: TensorView::new(DataType::from_code(*data_type as u32).unwrap(), dims, bytes).unwrap(),
            })
            .collect();
        let outputs: Vec<String> = (0..self.outputs.len())
            .filter(|&i| self.used[i])
            .map(|i| format!("out{i}"))
            .collect();
        let mut outputs: Vec<Output<'_>> = outputs.iter().map(|name| Output::alloc(name)).collect();
        session
            .run(&inputs, &mut outputs, &RunControl::default())
            .map_err(|error| error.to_string())?;
        Ok(outputs
            .into_iter()
            .map(|output| match output.result {
                OutputResult::Owned(tensor) => Found {
                    dims: tensor.shape().to_vec(),
                    values: decode(tensor.dtype(), tensor.bytes()),
                },
                other => panic!("no memory was offered: {other:?}"),
            })
            .collect())
    }

    pub fn native(&self, float: Float) -> Result<Vec<Found>, String> {
        let source = memory(self.model(float));
        let session = NativeSession::load("", &source, &NativeOptions::default());
        let mut session = session.map_err(|error| format!("native: {error}"))?;
        self.run(&mut session, float)
            .map_err(|error| format!("native: {error}"))
    }

    pub fn ort(&self, float: Float) -> Result<Vec<Found>, String> {
        static LIBRARY: OnceLock<OrtLibrary> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            let search = OrtSearch {
                option: Some(library_path()),
                environment: None,
            };
            OrtLibrary::load(&search).unwrap()
        });
        let source = memory(self.model(float));
        let session = OrtSession::load(library, "", &source, &OrtOptions { threads: 1 });
        let mut session = session.map_err(|error| format!("ONNX Runtime: {error}"))?;
        self.run(&mut session, float)
            .map_err(|error| format!("ONNX Runtime: {error}"))
    }

    /// Compares with ONNX Runtime in `f32`, and in `half` with what ONNX Runtime computes in f32
    /// from the same rounded inputs; where `half_in_ort` says that it has a kernel of that type,
    /// ours must be as close to those values as its is.
    pub fn check(&self, half: Float, half_in_ort: bool) -> Result<(), String> {
        compare(
            self,
            &self.native(Float::F32)?,
            &self.ort(Float::F32)?,
            Float::F32.tolerance(),
        )?;
        if half == Float::F32 {
            return Ok(());
        }
        let case = self.rounded(half);
        let exact = case.ort(Float::F32)?;
        let ours = case.native(half)?;
        compare(&case, &ours, &exact, half.tolerance())?;
        if half_in_ort {
            no_worse(&case, &ours, &case.ort(half)?, &exact)?;
        }
        Ok(())
    }
}

fn memory(model: Vec<u8>) -> ModelSource {
    ModelSource::Memory {
        label: "case".into(),
        model: Arc::new(model),
        external: Vec::new(),
    }
}

#[derive(Clone, Debug)]
pub struct Found {
    pub dims: Vec<i64>,
    pub values: Vec<f64>,
}

fn decode(dtype: DataType, bytes: &[u8]) -> Vec<f64> {
    macro_rules! numbers {
        ($t:ty, $to:expr) => {
            bytes
                .chunks_exact(size_of::<$t>())
                .map(|bytes| $to(<$t>::from_le_bytes(bytes.try_into().unwrap())))
                .collect()
        };
    }
    match dtype.code() as i32 {
        FLOAT => numbers!(f32, f64::from),
        FLOAT16 => numbers!(f16, f64::from),
        BFLOAT16 => numbers!(bf16, f64::from),
        INT32 => numbers!(i32, f64::from),
        INT64 => numbers!(i64, |x| x as f64),
        INT16 => numbers!(i16, f64::from),
        UINT16 => numbers!(u16, f64::from),
        INT8 => numbers!(i8, f64::from),
        UINT8 | BOOL | FLOAT8E4M3FN | FLOAT8E5M2 => numbers!(u8, f64::from),
        other => panic!("values of type {other}"),
    }
}

/// Every output of the same dims, and no element farther off than `tolerance` of the largest.
pub fn compare(
    case: &impl fmt::Debug,
    found: &[Found],
    expected: &[Found],
    tolerance: f64,
) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{case:?}: {} outputs", found.len()));
    }
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        if found.dims != expected.dims {
            return Err(format!(
                "{case:?}: output {i} has dims {:?}, expected {:?}",
                found.dims, expected.dims
            ));
        }
        let largest = expected.values.iter().fold(1e-6, |max: f64, x| max.max(x.abs()));
        for (at, (x, y)) in found.values.iter().zip(&expected.values).enumerate() {
            let close = x == y || (x - y).abs() <= tolerance * largest;
            if !close {
                return Err(format!(
                    "{case:?}: output {i}, dims {:?}, element {at} is {x}, expected {y} (the largest is {largest})",
                    found.dims
                ));
            }
        }
    }
    Ok(())
}

/// The root of the mean square of the error of each output is no larger than the other's, but
/// for what rounding of single elements makes of that.
pub fn no_worse(
    case: &impl fmt::Debug,
    ours: &[Found],
    other: &[Found],
    exact: &[Found],
) -> Result<(), String> {
    for (i, ((ours, other), exact)) in ours.iter().zip(other).zip(exact).enumerate() {
        let error = |found: &Found| {
            let squares = found
                .values
                .iter()
                .zip(&exact.values)
                .map(|(x, y)| (x - y).powi(2));
            (squares.sum::<f64>() / found.values.len().max(1) as f64).sqrt()
        };
        let largest = exact.values.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
        let (ours, other) = (error(ours), error(other));
        if ours > other * 1.05 + 1e-6 * largest {
            return Err(format!(
                "{case:?}: output {i}: our error is {ours}, ONNX Runtime's {other} (the largest is {largest})"
            ));
        }
    }
    Ok(())
}

/// Runs `check` on as many values of a strategy, the same ones every time.
pub fn check_all<S: Strategy>(
    seed: u8,
    count: u32,
    strategy: S,
    check: impl Fn(S::Value) -> Result<(), String>,
) {
    let config = Config {
        cases: count,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let run = |value| check(value).map_err(TestCaseError::fail);
    if let Err(error) = TestRunner::new_with_rng(config, rng).run(&strategy, run) {
        panic!("{error}");
    }
}

/// Numbers from a seed.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Numbers(seed)
    }

    pub fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// From 0 up to, not including, `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// From -scale to scale.
    pub fn floats(&mut self, count: usize, scale: f32) -> Vec<f32> {
        let unit = |bits: u64| (bits >> 40) as f32 / (1 << 23) as f32 - 1.0;
        (0..count).map(|_| unit(self.next()) * scale).collect()
    }

    /// A tensor of floats from -scale to scale.
    pub fn value(&mut self, dims: &[usize], scale: f32) -> Value {
        let count = dims.iter().product();
        Value::floats(dims, self.floats(count, scale))
    }
}
