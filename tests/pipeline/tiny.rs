//! Small language models as ONNX graphs, whose next token is known in closed form: the sum of place
//! times id of all tokens, and of what else a model reads, modulo the vocabulary. A cache holds
//! place times id of each token, so that a token is right only if all of the cache is.

use std::sync::Arc;

use oxpipe::component::{DataType, RunControl, SharedBytes, TensorView};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{Pipeline, PipelineError, PipelineOptions, Run, RunSettings};
use oxpipe::runtime::{BackendChoice, Environment, Runtime, RuntimeSettings};
use oxpipe_test_support::fixtures;
use oxpipe_test_support::onnx_writer::{FLOAT, Graph, INT32, INT64, Model, Node, Tensor};
use serde_json::Value;

use super::fake::VOCABULARY;

/// Files of a package in memory.
pub type Files = Vec<(String, Vec<u8>)>;

pub fn source(files: &Files) -> PackageSource {
    let shared = |bytes: &[u8]| -> SharedBytes { Arc::new(bytes.to_vec()) };
    let files = files.iter().map(|(name, bytes)| (name.clone(), shared(bytes)));
    PackageSource::Files(files.collect())
}

/// For tests/check_with_onnxruntime.py.
pub fn write(name: &str, files: &Files, cases: &Value) {
    let files = files.iter();
    let files = files.map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    fixtures::write(name, files, &cases.to_string());
}

/// A runtime with the library that scripts/fetch-onnxruntime.sh fetches.
pub fn runtime() -> Runtime {
    let fetched =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("third_party/onnxruntime/libonnxruntime.so");
    let settings = RuntimeSettings {
        ort_library_path: fetched.exists().then_some(fetched),
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

pub fn open(files: &Files) -> Result<Pipeline, PipelineError> {
    open_with(files, &PipelineOptions::default())
}

pub fn open_with(files: &Files, options: &PipelineOptions) -> Result<Pipeline, PipelineError> {
    Pipeline::open(&runtime(), &source(files), options, None, &RunControl::default())
}

/// Opens a package with each way of giving its components the backends of this build.
pub fn for_each_mix(files: &Files, components: &[&str], check: impl Fn(&Pipeline)) {
    let mut mixes: Vec<Vec<(String, BackendChoice)>> = vec![Vec::new()];
    for component in components {
        mixes = mixes
            .iter()
            .flat_map(|mix| {
                backends().into_iter().map(move |backend| {
                    let mut longer = mix.clone();
                    longer.push(((*component).to_owned(), backend));
                    longer
                })
            })
            .collect();
    }
    for mix in mixes {
        let options = PipelineOptions {
            component_backends: mix.clone(),
            ..PipelineOptions::default()
        };
        let pipeline = open_with(files, &options).unwrap_or_else(|error| panic!("{mix:?}: {error}"));
        for (name, choice) in &mix {
            assert_eq!(pipeline.component(name).unwrap().backend.name(), choice.name());
        }
        check(&pipeline);
    }
}

pub fn start(pipeline: &Pipeline) -> Run {
    let settings = RunSettings {
        stop_on_eos: false,
        ..RunSettings::default()
    };
    Run::new(pipeline, &settings).unwrap()
}

pub fn steps(run: &mut Run, count: usize) -> Vec<i32> {
    let mut step = || run.step(&RunControl::default()).unwrap().token.unwrap();
    (0..count).map(|_| step()).collect()
}

pub fn set_floats(run: &mut Run, address: &str, shape: &[i64], values: &[f32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let view = TensorView::new(DataType::Float32, shape, &bytes).unwrap();
    run.set_input(address, view).unwrap();
}

/// What a decoder's ports are called, and which it has.
#[derive(Clone)]
pub struct Decoder {
    /// `input_ids`, or embeddings of one number each.
    pub sequence: &'static str,
    pub embeds: bool,
    pub mask: Option<&'static str>,
    pub positions: Option<&'static str>,
    pub layers: usize,
    /// With `%d` for the layer: key and value of the past, then those of the present.
    pub caches: [&'static str; 4],
    /// Keys and values that an encoder has made, and how long its output is by name.
    pub cross: Option<[&'static str; 2]>,
    pub logits: &'static str,
    /// Scalars and tensors of one element that tell how many tokens there are: past, total.
    pub lengths: Option<[&'static str; 2]>,
    /// Heads and head size of the caches, both 1, as the ports have them.
    pub sizes: [&'static str; 2],
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder {
            sequence: "input_ids",
            embeds: false,
            mask: Some("attention_mask"),
            positions: Some("position_ids"),
            layers: 2,
            caches: [
                "past_key_values.%d.key",
                "past_key_values.%d.value",
                "present.%d.key",
                "present.%d.value",
            ],
            cross: None,
            logits: "logits",
            lengths: None,
            sizes: ["1", "1"],
        }
    }
}

pub fn of_layer(pattern: &str, layer: usize) -> String {
    pattern.replace("%d", &layer.to_string())
}

impl Decoder {
    pub fn encode(&self) -> Vec<u8> {
        Model::new().graph(|graph| self.graph(graph)).encode()
    }

    fn graph(&self, graph: Graph) -> Graph {
        let mut graph = graph
            .initializer(Tensor::ints("one", &[1], &[1]))
            .initializer(Tensor::ints("rows", &[4], &[1, 1, -1, 1]))
            .initializer(Tensor::ints("flat", &[1], &[-1]))
            .initializer(Tensor::ints("axis2", &[1], &[2]))
            .initializer(Tensor::ints("scalar2", &[], &[2]))
            .initializer(Tensor::ints("scalar1", &[], &[1]))
            .initializer(Tensor::floats("unit", &[], &[1.0]))
            .initializer(Tensor::floats("parts", &[], &[2.0 * self.layers as f32]))
            .initializer(Tensor::floats("size", &[], &[VOCABULARY as f32]))
            .initializer(Tensor::ints("column", &[3], &[1, -1, 1]));
        let choices: Vec<f32> = (0..VOCABULARY).map(|id| id as f32).collect();
        graph = graph.initializer(Tensor::floats("choices", &[VOCABULARY], &choices));
        // Ids as numbers, one below the other as in a cache.
        graph = match self.embeds {
            true => graph
                .input(self.sequence, FLOAT, "[batch, sequence, 1]")
                .node(Node::new("Reshape", &[self.sequence, "rows"], &["id_rows"])),
            false => graph
                .input(self.sequence, INT64, "[batch, sequence]")
                .node(Node::new("Cast", &[self.sequence], &["numbers"]).int("to", FLOAT.into()))
                .node(Node::new("Reshape", &["numbers", "rows"], &["id_rows"])),
        };
        graph = self.places(graph);
        graph = graph
            .node(Node::new("Mul", &["id_rows", "places"], &["new"]))
            .node(Node::new("Neg", &["new"], &["minus_new"]))
            .node(Node::new("CumSum", &["new", "scalar2"], &["sums"]));
        let mut total = "zero".to_owned();
        graph = graph.initializer(Tensor::floats("zero", &[], &[0.0]));
        for layer in 0..self.layers {
            for (kind, new, add) in [(0, "new", "Add"), (1, "minus_new", "Sub")] {
                let past = of_layer(self.caches[kind], layer);
                let present = of_layer(self.caches[kind + 2], layer);
                let sum = format!("sum_{layer}_{kind}");
                let next = format!("total_{layer}_{kind}");
                let [heads, size] = self.sizes;
                let dims = |rows: &str| format!("[batch, {heads}, {rows}, {size}]");
                graph = graph
                    .input(&past, FLOAT, &dims("past_sequence"))
                    .output(&present, FLOAT, &dims("total_sequence"))
                    .node(Node::new("Concat", &[&past, new], &[&present]).int("axis", 2))
                    .node(Node::new("ReduceSum", &[&past, "axis2"], &[&sum]).int("keepdims", 1))
                    .node(Node::new(add, &[&total, &sum], &[&next]));
                total = next;
            }
        }
        if let Some(cross) = self.cross {
            for layer in 0..self.layers {
                for (kind, pattern) in cross.into_iter().enumerate() {
                    let name = of_layer(pattern, layer);
                    let sum = format!("cross_{layer}_{kind}");
                    let next = format!("cross_total_{layer}_{kind}");
                    graph = graph
                        .input(&name, FLOAT, "[batch, 1, frames, 1]")
                        .node(Node::new("ReduceSum", &[&name, "axis2"], &[&sum]).int("keepdims", 1))
                        .node(Node::new("Add", &[&total, &sum], &[&next]));
                    total = next;
                }
            }
        }
        // The caches' share of each of their parts, and the tokens of this step.
        graph
            .node(Node::new("Div", &[&total, "parts"], &["share"]))
            .node(Node::new("Add", &["share", "sums"], &["whole"]))
            .node(Node::new("Mod", &["whole", "size"], &["next"]).int("fmod", 1))
            .node(Node::new("Reshape", &["next", "column"], &["next_column"]))
            .node(Node::new("Sub", &["next_column", "choices"], &["away"]))
            .node(Node::new("Abs", &["away"], &["distance"]))
            .node(Node::new("Neg", &["distance"], &[self.logits]))
            .output(self.logits, FLOAT, &format!("[batch, sequence, {VOCABULARY}]"))
    }

    /// Counted from 1: by the mask, by positions, or by lengths.
    fn places(&self, mut graph: Graph) -> Graph {
        let past = of_layer(self.caches[0], 0);
        if let Some(mask) = self.mask {
            graph = graph
                .input(mask, INT64, "[batch, total_sequence]")
                .node(Node::new("CumSum", &[mask, "scalar1"], &["counted"]))
                .node(Node::new("Shape", &[&past], &["past_shape"]))
                .node(Node::new("Gather", &["past_shape", "axis2"], &["past_length"]))
                .initializer(Tensor::ints("end", &[1], &[i64::MAX]))
                .node(Node::new(
                    "Slice",
                    &["counted", "past_length", "end", "one"],
                    &["by_mask"],
                ))
                .node(Node::new("Cast", &["by_mask"], &["mask_places"]).int("to", FLOAT.into()))
                .node(Node::new(
                    "Reshape",
                    &["mask_places", "rows"],
                    &["places_by_mask"],
                ));
        }
        if let Some(positions) = self.positions {
            graph = graph
                .input(positions, INT64, "[batch, sequence]")
                .node(Node::new("Cast", &[positions], &["position_numbers"]).int("to", FLOAT.into()))
                .node(Node::new(
                    "Reshape",
                    &["position_numbers", "rows"],
                    &["position_rows"],
                ))
                .node(Node::new(
                    "Add",
                    &["position_rows", "unit"],
                    &["places_by_position"],
                ));
        }
        if let Some([past, total]) = self.lengths {
            graph = graph
                .input(past, INT32, "[1]")
                .input(total, INT32, "[]")
                .node(Node::new("Reshape", &[past, "none"], &["from"]))
                .initializer(Tensor::ints("none", &[0], &[]))
                .initializer(Tensor::raw("step", INT32, &[], &1i32.to_le_bytes()))
                .node(Node::new("Range", &["from", total, "step"], &["range"]))
                .node(Node::new("Cast", &["range"], &["range_numbers"]).int("to", FLOAT.into()))
                .node(Node::new("Reshape", &["range_numbers", "rows"], &["range_rows"]))
                .node(Node::new("Add", &["range_rows", "unit"], &["places_by_length"]));
        }
        let sources: Vec<&str> = [
            self.mask.map(|_| "places_by_mask"),
            self.positions.map(|_| "places_by_position"),
            self.lengths.map(|_| "places_by_length"),
        ]
        .into_iter()
        .flatten()
        .collect();
        // All count alike, so that their mean is what each of them says.
        graph.node(Node::new("Mean", &sources, &["places"]))
    }
}

/// Ids as numbers, in which image tokens are the rows of the features, one for each: the graph
/// fails where their counts differ.
pub fn embedding(image_token: i64) -> Vec<u8> {
    Model::new()
        .input("input_ids", INT64, "[batch, sequence]")
        .input("image_features", FLOAT, "[image_tokens, 1]")
        .output("inputs_embeds", FLOAT, "[batch, sequence, 1]")
        .initializer(Tensor::ints("image", &[], &[image_token]))
        .initializer(Tensor::ints("flat", &[1], &[-1]))
        .initializer(Tensor::ints("pillar", &[2], &[-1, 1]))
        .initializer(Tensor::ints("batch_first", &[3], &[1, -1, 1]))
        .node(Node::new("Cast", &["input_ids"], &["numbers"]).int("to", FLOAT.into()))
        .node(Node::new("Reshape", &["numbers", "pillar"], &["rows"]))
        .node(Node::new("Equal", &["input_ids", "image"], &["is_image"]))
        .node(Node::new("Reshape", &["is_image", "flat"], &["flags"]))
        .node(Node::new("NonZero", &["flags"], &["found"]))
        .node(Node::new("Transpose", &["found"], &["places"]))
        .node(Node::new(
            "ScatterND",
            &["rows", "places", "image_features"],
            &["mixed"],
        ))
        .node(Node::new(
            "Reshape",
            &["mixed", "batch_first"],
            &["inputs_embeds"],
        ))
        .encode()
}

/// The pixels of a picture as features, one below the other.
pub fn vision() -> Vec<u8> {
    Model::new()
        .input("pixel_values", FLOAT, "[1, channels, height, width]")
        .output("image_features", FLOAT, "[image_tokens, 1]")
        .initializer(Tensor::ints("pillar", &[2], &[-1, 1]))
        .node(Node::new(
            "Reshape",
            &["pixel_values", "pillar"],
            &["image_features"],
        ))
        .encode()
}

/// An encoder whose features are what it is given, and the keys and values that a decoder of
/// `layers` layers reads: `cross` with `%d` for the layer.
pub fn encoder(input: &str, hidden: &str, cross: [&str; 2], layers: usize) -> Vec<u8> {
    let mut model = Model::new()
        .input(input, FLOAT, "[batch, frames, 1]")
        .output(hidden, FLOAT, "[batch, frames, 1]")
        .initializer(Tensor::ints("heads", &[4], &[1, 1, -1, 1]))
        .node(Node::new("Identity", &[input], &[hidden]));
    for layer in 0..layers {
        for pattern in cross {
            let name = of_layer(pattern, layer);
            model = model
                .output(&name, FLOAT, "[batch, 1, frames, 1]")
                .node(Node::new("Reshape", &[input, "heads"], &[&name]));
        }
    }
    model.encode()
}
