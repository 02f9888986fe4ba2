//! Sessions made of a closure, and a small language model made of such.

use std::sync::{Arc, Mutex};

use oxpipe::component::{
    Backend, ComponentError, ComponentErrorKind, ComponentIo, ComponentSession, ComponentTensor, DataType,
    Dim, Input, Output, OutputResult, Port, PortType, RunControl, Shape, SharedBytes, TensorView,
};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineError};
use oxpipe::runtime::{Environment, LogLevel, Runtime, RuntimeSettings};

/// `name:dtype[dims]`, `past:float32[1,1,past,2]`; a trailing `?` makes it optional.
pub fn port(text: &str) -> Port {
    let (name, rest) = text.split_once(':').expect("name:dtype[dims]");
    let (rest, optional) = match rest.strip_suffix('?') {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let (dtype, dims) = rest.split_once('[').expect("dtype[dims]");
    let dims = dims.trim_end_matches(']');
    let dims = dims
        .split(',')
        .map(str::trim)
        .filter(|dim| !dim.is_empty())
        .map(|dim| {
            dim.parse()
                .map_or_else(|_| Dim::Symbol(Some(dim.to_owned())), Dim::Fixed)
        })
        .collect();
    let ty = DataType::ALL
        .into_iter()
        .find(|known| known.name() == dtype)
        .map_or_else(|| PortType::Other(dtype.to_owned()), PortType::Tensor);
    Port {
        name: name.to_owned(),
        ty,
        dims: Some(dims),
        optional,
    }
}

pub fn io(inputs: &[&str], outputs: &[&str]) -> ComponentIo {
    ComponentIo {
        inputs: inputs.iter().map(|text| port(text)).collect(),
        outputs: outputs.iter().map(|text| port(text)).collect(),
    }
}

/// The inputs of a call, copied.
pub struct Call(Vec<(String, ComponentTensor)>);

impl Call {
    pub fn get(&self, name: &str) -> Option<&ComponentTensor> {
        self.0
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, tensor)| tensor)
    }

    /// The same inputs, one of them under another name.
    pub fn renamed(&self, from: &str, to: &str) -> Call {
        let name = |name: &String| if name == from { to.to_owned() } else { name.clone() };
        let inputs = self.0.iter();
        Call(
            inputs
                .map(|(of, tensor)| (name(of), tensor.view().to_tensor().unwrap()))
                .collect(),
        )
    }

    pub fn tensor(&self, name: &str) -> &ComponentTensor {
        self.get(name)
            .unwrap_or_else(|| panic!("input {name} was not given"))
    }

    pub fn ints(&self, name: &str) -> Vec<i64> {
        let tensor = self.tensor(name);
        match tensor.dtype() {
            DataType::Int64 => {
                let chunks = tensor.bytes().chunks_exact(8);
                chunks
                    .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()))
                    .collect()
            }
            DataType::Int32 => {
                let chunks = tensor.bytes().chunks_exact(4);
                chunks
                    .map(|bytes| i64::from(i32::from_le_bytes(bytes.try_into().unwrap())))
                    .collect()
            }
            other => panic!("{name} is {other}"),
        }
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        floats(self.tensor(name).view())
    }
}

pub fn floats(view: TensorView<'_>) -> Vec<f32> {
    assert_eq!(view.dtype(), DataType::Float32);
    let chunks = view.bytes().chunks_exact(4);
    chunks
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

pub fn float_tensor(shape: &[i64], values: &[f32]) -> ComponentTensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    ComponentTensor::from_raw(DataType::Float32, shape, &bytes).expect("shape fits values")
}

pub type Outputs = Vec<(&'static str, ComponentTensor)>;
type Body = Box<dyn FnMut(&Call) -> Result<Outputs, ComponentErrorKind> + Send>;

/// What a test can see of a session, also after a pipeline owns it.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<Watched>>);

#[derive(Default)]
pub struct Watched {
    pub runs: usize,
    /// For each run, the outputs that were written into the caller's room.
    pub in_room: Vec<Vec<String>>,
    /// For each run, the outputs whose shape the caller knew.
    pub known: Vec<Vec<String>>,
    /// The run with this number fails, once.
    pub fail_at: Option<usize>,
    pub fail_with: Option<ComponentErrorKind>,
    /// Called at the end of each run with its number.
    pub on_run: Option<Box<dyn Fn(usize) + Send>>,
}

impl Watch {
    pub fn runs(&self) -> usize {
        self.0.lock().unwrap().runs
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Watched) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// Makes the next run fail.
    pub fn fail_next(&self, kind: ComponentErrorKind) {
        self.with(|watched| {
            watched.fail_at = Some(watched.runs);
            watched.fail_with = Some(kind);
        });
    }

    /// Makes the next run panic.
    pub fn panic_next(&self) {
        self.with(|watched| watched.fail_at = Some(watched.runs));
    }
}

pub struct Fake {
    io: ComponentIo,
    body: Body,
    watch: Watch,
    holds_to_promises: bool,
}

impl Fake {
    pub fn new(
        io: ComponentIo,
        body: impl FnMut(&Call) -> Result<Outputs, ComponentErrorKind> + Send + 'static,
    ) -> Self {
        Fake {
            io,
            body: Box::new(body),
            watch: Watch::default(),
            holds_to_promises: true,
        }
    }

    /// Answers with other shapes than the caller knows.
    pub fn breaking_promises(mut self) -> Self {
        self.holds_to_promises = false;
        self
    }

    /// What the closure makes of a call, outside of a pipeline.
    pub fn call(&mut self, call: &Call) -> Result<Outputs, ComponentErrorKind> {
        (self.body)(call)
    }

    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Ports only; it is never run.
    pub fn ports(inputs: &[&str], outputs: &[&str]) -> Self {
        Fake::new(io(inputs, outputs), |_| panic!("only its ports are of interest"))
    }
}

impl ComponentSession for Fake {
    fn name(&self) -> &str {
        ""
    }

    fn backend(&self) -> Backend {
        Backend::Native
    }

    fn io(&self) -> &ComponentIo {
        &self.io
    }

    fn metadata(&self) -> &[(String, String)] {
        &[]
    }

    fn output_shapes(
        &mut self,
        _: &[(&str, &[i64])],
        outputs: &[&str],
    ) -> Result<Vec<Option<Shape>>, ComponentError> {
        Ok(vec![None; outputs.len()])
    }

    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        _: &RunControl,
    ) -> Result<(), ComponentError> {
        let mut watched = self.watch.0.lock().unwrap();
        let run = watched.runs;
        watched.runs += 1;
        let call = Call(
            inputs
                .iter()
                .map(|input| (input.name.to_owned(), input.value.to_tensor().unwrap()))
                .collect(),
        );
        let fails = watched.fail_at == Some(run);
        let made = (self.body)(&call)?;
        let mut in_room = Vec::new();
        for output in outputs.iter_mut() {
            let (_, tensor) = made
                .iter()
                .find(|(name, _)| *name == output.name)
                .unwrap_or_else(|| panic!("the fake does not make {}", output.name));
            if let (Some(known), true) = (output.known_shape, self.holds_to_promises) {
                assert_eq!(known, tensor.shape(), "a promised shape of {}", output.name);
            }
            let bytes = tensor.bytes();
            match output.fitting_room(tensor.dtype(), bytes.len()) {
                Some(room) => {
                    for (slot, byte) in room.iter_mut().zip(bytes) {
                        slot.write(*byte);
                    }
                    in_room.push(output.name.to_owned());
                    output.result = OutputResult::InRoom {
                        dtype: tensor.dtype(),
                        shape: Shape::from_slice(tensor.shape()),
                    };
                }
                None => output.result = OutputResult::Owned(tensor.view().to_tensor().unwrap()),
            }
        }
        if let Some(on_run) = &watched.on_run {
            on_run(run);
        }
        // Fails late, when rooms have been written into.
        if fails {
            watched.fail_at = None;
            let Some(kind) = watched.fail_with.take() else {
                drop(watched);
                panic!("made to panic");
            };
            return Err(kind.into());
        }
        let known = outputs.iter().filter(|output| output.known_shape.is_some());
        let known = known.map(|output| output.name.to_owned()).collect();
        watched.known.push(known);
        watched.in_room.push(in_room);
        Ok(())
    }
}

/// A package in memory of metadata alone.
pub fn metadata(yaml: &str) -> PackageSource {
    files(&[("inference_metadata.yaml", yaml)])
}

pub fn files(files: &[(&str, &str)]) -> PackageSource {
    let shared = |text: &str| -> SharedBytes { Arc::new(text.as_bytes().to_vec()) };
    PackageSource::Files(
        files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), shared(text)))
            .collect(),
    )
}

/// Lines that a runtime logged.
pub type Log = Arc<Mutex<Vec<(LogLevel, String)>>>;

/// A runtime that sees no environment, and what it logs.
pub fn runtime() -> (Runtime, Log) {
    let log = Log::default();
    let lines = log.clone();
    let settings = RuntimeSettings {
        logger: Some(Arc::new(move |level, line: &str| {
            lines.lock().unwrap().push((level, line.to_owned()));
        })),
        ..RuntimeSettings::default()
    };
    (Runtime::with_environment(settings, Environment::default()), log)
}

pub fn open(yaml: &str, sessions: Vec<(&str, Fake)>) -> Result<Pipeline, PipelineError> {
    open_source(&metadata(yaml), sessions)
}

pub fn open_source(source: &PackageSource, sessions: Vec<(&str, Fake)>) -> Result<Pipeline, PipelineError> {
    let sessions = sessions
        .into_iter()
        .map(|(name, fake)| (name.to_owned(), Box::new(fake) as Box<dyn ComponentSession>))
        .collect();
    Pipeline::with_sessions(&runtime().0, source, sessions)
}

pub const VOCABULARY: i64 = 8;

/// What the fake language model chooses after `tokens`: the sum of place times id, and of
/// whatever else it was given, modulo the vocabulary.
pub fn next_token(tokens: &[i32], extra: i64) -> i32 {
    let weighted: i64 = tokens
        .iter()
        .zip(1..)
        .map(|(&id, place)| place * i64::from(id))
        .sum();
    i32::try_from((weighted + extra).rem_euclid(VOCABULARY)).unwrap()
}

/// The tokens that the fake language model adds to a prompt.
pub fn continuation(prompt: &[i32], count: usize, extra: i64) -> Vec<i32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        tokens.push(next_token(&tokens, extra));
    }
    tokens.split_off(prompt.len())
}

/// A decoder whose cache holds `place * id` of every token, twice over (two heads, the
/// second one negated), so that its next token is right only if the whole cache is.
/// `extra` adds what further inputs of a call bring.
pub fn decoder_body(
    extra: impl Fn(&Call) -> i64 + Send + 'static,
) -> impl FnMut(&Call) -> Result<Outputs, ComponentErrorKind> + Send {
    move |call| {
        let ids = call.ints("input_ids");
        let past = call.tensor("past");
        let past_len = usize::try_from(past.shape()[2]).unwrap();
        let total = past_len + ids.len();
        if let Some(mask) = call.get("attention_mask") {
            assert_eq!(mask.shape(), [1, total as i64]);
            assert!(call.ints("attention_mask").iter().all(|&one| one == 1));
        }
        if call.get("position_ids").is_some() {
            let expected: Vec<i64> = (past_len as i64..total as i64).collect();
            assert_eq!(call.ints("position_ids"), expected);
        }
        let old = call.floats("past");
        let mut present = Vec::new();
        for (head, sign) in [(0, 1.0), (1, -1.0)] {
            present.extend_from_slice(&old[head * past_len..(head + 1) * past_len]);
            let new = ids.iter().zip(past_len + 1..);
            present.extend(new.map(|(&id, place)| sign * place as f32 * id as f32));
        }
        let extra = extra(call);
        let mut logits = Vec::new();
        for position in past_len..total {
            let first: f32 = present[..=position].iter().sum();
            let second: f32 = present[total..=total + position].iter().sum();
            assert_eq!(first, -second, "the two heads of the cache disagree");
            let next = (first as i64 + extra).rem_euclid(VOCABULARY);
            logits.extend((0..VOCABULARY).map(|id| if id == next { 2.0 } else { 0.0 }));
        }
        Ok(vec![
            (
                "logits",
                float_tensor(&[1, ids.len() as i64, VOCABULARY], &logits),
            ),
            ("present", float_tensor(&[1, 2, total as i64, 1], &present)),
        ])
    }
}

pub const DECODER_OUTPUTS: [&str; 2] = [
    "logits:float32[batch,sequence,8]",
    "present:float32[batch,2,total,1]",
];

pub fn decoder() -> Fake {
    let inputs = [
        "input_ids:int64[batch,sequence]",
        "attention_mask:int64[batch,total]",
        "position_ids:int32[batch,sequence]",
        "past:float32[batch,2,past,1]",
    ];
    Fake::new(io(&inputs, &DECODER_OUTPUTS), decoder_body(|_| 0))
}

pub const DECODER_METADATA: &str = "
model:
  io:
    token_input: input_ids
    attention_mask_input: attention_mask
    position_ids_input: position_ids
    logits_output: logits
    kv_inputs: [past]
    kv_outputs: [present]
";

/// The fake language model as a package of one component.
pub fn language_model(more_metadata: &str) -> (Pipeline, Watch) {
    let decoder = decoder();
    let watch = decoder.watch();
    let yaml = format!("{DECODER_METADATA}{more_metadata}");
    (open(&yaml, vec![("model", decoder)]).unwrap(), watch)
}
