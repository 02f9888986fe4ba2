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

    /// Half a unit in the last place of a number: what one rounding may change.
    pub fn rounding(self, x: f64) -> f64 {
        let (digits, lowest) = match self {
            Float::F32 => (24, -126),
            Float::F16 => (11, -14),
            Float::Bf16 => (8, -126),
        };
        // Of zero and of what is smaller than any normal number, that of the smallest.
        let exponent = x.abs().log2().floor().max(f64::from(lowest));
        2f64.powf(exponent - f64::from(digits))
    }
}

#[derive(Clone, Debug)]
enum Data {
    /// Of the type of the run.
    Floats(Vec<f32>),
    /// As stored in a file.
    Raw(i32, Vec<u8>),
}

/// Of sums in f32, relative to the largest element.
pub const SUMS: f64 = 2e-5;

#[derive(Clone, Debug)]
pub struct Value {
    pub dims: Vec<usize>,
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

    /// Changes the floats of one that is of the type of the run.
    pub fn map(&mut self, f: impl Fn(f32) -> f32) {
        if let Data::Floats(values) = &mut self.data {
            values.iter_mut().for_each(|x| *x = f(*x));
        }
    }

    /// An initializer instead of an input: weights.
    pub fn constant(self) -> Value {
        Value {
            constant: true,
            ..self
        }
    }

    /// The type and the bytes of one that is not of the type of the run.
    pub fn raw_data(&self) -> (i32, &[u8]) {
        match &self.data {
            Data::Raw(data_type, bytes) => (*data_type, bytes),
            Data::Floats(_) => panic!("floats"),
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
    domain: &'static str,
    /// Of ONNX's own domain, or of ai.onnx.ml.
    opset: i64,
    attributes: Vec<(&'static str, Attribute)>,
    inputs: Vec<Option<Value>>,
    outputs: Vec<Option<i32>>,
    /// The outputs in use.
    pub used: Vec<bool>,
}

#[derive(Clone, Debug)]
enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    Floats(Vec<f32>),
    String(String),
    Strings(Vec<String>),
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = |value: &Option<Value>| match value {
            // Axes, shapes, lengths.
            Some(Value {
                dims,
                data: Data::Raw(data_type @ (INT32 | INT64), bytes),
                ..
            }) if bytes.len() <= 64 => {
                let dtype = DataType::from_code(*data_type as u32).unwrap();
                format!("{dims:?}={:?}", decode(dtype, bytes))
            }
            Some(Value {
                dims,
                data: Data::Floats(values),
                ..
            }) if values.len() <= 8 => {
                format!("{dims:?}={values:?}")
            }
            Some(value) => format!("{:?}", value.dims),
            None => "-".into(),
        };
        let inputs: Vec<String> = self.inputs.iter().map(dims).collect();
        let version = if self.domain == "com.microsoft" {
            1
        } else {
            self.opset
        };
        write!(
            f,
            "{} {version} {:?} {}",
            self.op_type,
            self.attributes,
            inputs.join(" ")
        )
    }
}

impl Case {
    /// Of com.microsoft.
    pub fn new(op_type: &'static str) -> Case {
        Case {
            op_type,
            domain: "com.microsoft",
            opset: 21,
            attributes: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            used: Vec::new(),
        }
    }

    /// Of ONNX's own domain.
    pub fn standard(op_type: &'static str, opset: i64) -> Case {
        Case {
            domain: "",
            opset,
            ..Case::new(op_type)
        }
    }

    /// Of ai.onnx.ml.
    pub fn classical(op_type: &'static str, version: i64) -> Case {
        Case {
            domain: "ai.onnx.ml",
            opset: version,
            ..Case::new(op_type)
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

    pub fn strings(mut self, name: &'static str, values: &[&str]) -> Case {
        let values = values.iter().map(|&value| value.into()).collect();
        self.attributes.push((name, Attribute::Strings(values)));
        self
    }

    fn attribute(&self, name: &str) -> Option<&Attribute> {
        let named = self.attributes.iter().find(|attribute| attribute.0 == name);
        named.map(|attribute| &attribute.1)
    }

    pub fn int_of(&self, name: &str, default: i64) -> i64 {
        match self.attribute(name) {
            Some(Attribute::Int(value)) => *value,
            _ => default,
        }
    }

    pub fn ints_of(&self, name: &str) -> Vec<i64> {
        match self.attribute(name) {
            Some(Attribute::Ints(values)) => values.clone(),
            _ => Vec::new(),
        }
    }

    pub fn float_of(&self, name: &str, default: f64) -> f64 {
        match self.attribute(name) {
            Some(Attribute::Float(value)) => f64::from(*value),
            _ => default,
        }
    }

    pub fn floats_of(&self, name: &str) -> Vec<f64> {
        match self.attribute(name) {
            Some(Attribute::Floats(values)) => values.iter().map(|&x| x.into()).collect(),
            _ => Vec::new(),
        }
    }

    pub fn string_of(&self, name: &str) -> String {
        match self.attribute(name) {
            Some(Attribute::String(value)) => value.clone(),
            _ => String::new(),
        }
    }

    pub fn value(&self, input: usize) -> Option<&Value> {
        self.inputs.get(input)?.as_ref()
    }

    /// The dims and the numbers of an input.
    pub fn numbers(&self, input: usize) -> Option<(&[usize], Vec<f64>)> {
        let value = self.value(input)?;
        let numbers = match &value.data {
            Data::Floats(values) => values.iter().map(|&x| x.into()).collect(),
            Data::Raw(data_type, bytes) => decode(DataType::from_code(*data_type as u32).unwrap(), bytes),
        };
        Some((&value.dims, numbers))
    }

    /// With every value rounded to a type.
    pub fn rounded(&self, float: Float) -> Case {
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
        // Older versions do not know inputs that newer ones leave out at the end.
        let listed = self
            .inputs
            .iter()
            .rposition(Option::is_some)
            .map_or(0, |last| last + 1);
        let inputs: Vec<&str> = (0..listed).map(given).collect();
        let outputs: Vec<String> = (0..self.outputs.len()).map(|i| format!("out{i}")).collect();
        let shown = |i: usize| if self.used[i] { outputs[i].as_str() } else { "" };
        let shown: Vec<&str> = (0..outputs.len()).map(shown).collect();
        let mut node = Node::new(self.op_type, &inputs, &shown).domain(self.domain);
        for (name, attribute) in &self.attributes {
            node = match attribute {
                Attribute::Int(value) => node.int(name, *value),
                Attribute::Ints(values) => node.ints(name, values),
                Attribute::Float(value) => node.float(name, *value),
                Attribute::Floats(values) => node.floats(name, values),
                Attribute::String(value) => node.string(name, value),
                Attribute::Strings(values) => {
                    node.strings(name, &values.iter().map(String::as_str).collect::<Vec<_>>())
                }
            };
        }
        let mut model = Model::new()
            .ir_version(10)
            .opset(
                "",
                if self.domain == "ai.onnx.ml" {
                    21
                } else {
                    self.opset
                },
            )
            .opset(
                self.domain,
                if self.domain == "com.microsoft" {
                    1
                } else {
                    self.opset
                },
            )
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
        let session = OrtSession::load(
            library,
            "",
            &source,
            &OrtOptions {
                threads: 1,
                ..OrtOptions::default()
            },
        );
        let mut session = session.map_err(|error| format!("ONNX Runtime: {error}"))?;
        self.run(&mut session, float)
            .map_err(|error| format!("ONNX Runtime: {error}"))
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
    compare_with(case, found, expected, |_, largest| tolerance * largest)
}

/// Every output of the same dims, and no element farther off than what is `allowed` for it and the
/// largest. What is expected to be NaN may be anything.
pub fn compare_with(
    case: &impl fmt::Debug,
    found: &[Found],
    expected: &[Found],
    allowed: impl Fn(f64, f64) -> f64,
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
        for (at, (&x, &y)) in found.values.iter().zip(&expected.values).enumerate() {
            if !(x == y || y.is_nan() || (x - y).abs() <= allowed(y, largest)) {
                return Err(format!(
                    "{case:?}: output {i}, dims {:?}, element {at} is {x}, expected {y} (the largest is {largest})",
                    found.dims
                ));
            }
        }
    }
    Ok(())
}

/// The mean and the largest error of each output are no larger than the other's. (Two results that
/// both round sums in f32 once differ where a sum is half-way between two numbers.)
pub fn no_worse(
    case: &impl fmt::Debug,
    ours: &[Found],
    other: &[Found],
    exact: &[Found],
) -> Result<(), String> {
    for (i, ((ours, other), exact)) in ours.iter().zip(other).zip(exact).enumerate() {
        let errors = |found: &Found| {
            let pairs = found.values.iter().zip(&exact.values);
            let errors: Vec<f64> = pairs
                .filter(|(_, y)| !y.is_nan())
                .map(|(x, y)| (x - y).abs())
                .collect();
            let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
            (mean, errors.into_iter().fold(0.0, f64::max))
        };
        let largest = exact.values.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
        let slack = 1e-6 * largest;
        let (ours, other) = (errors(ours), errors(other));
        if ours.0 > other.0 + slack || ours.1 > other.1 + slack {
            return Err(format!(
                "{case:?}: output {i}: our mean and largest error are {ours:?}, ONNX Runtime's {other:?} (the largest is {largest})"
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
