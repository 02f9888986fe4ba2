//! ONNX models: the protobuf reader, the graph builder with its passes, and runs of what it makes. The
//! first byte says whether the rest is a model as it is, or what [`shape`] makes one of, so that most
//! inputs are models of real operators whose parts fit each other more or less.

use std::sync::Arc;

use oxpipe::component::{
    ComponentSession, ComponentTensor, DataType, Dim, Input, ModelSource, Output, Port, SharedBytes,
};
use oxpipe::native::registry::OPERATORS;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{FLOAT, Graph, INT64, Message, Model, Node, Tensor};

use crate::input::{Bytes, control};

const AS_IT_IS: u8 = 0;

pub fn run(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    let mut bytes = Bytes(rest);
    let model = if kind == AS_IT_IS {
        rest.to_vec()
    } else {
        let model = shape(&mut bytes).encode();
        spoiled(model, &mut bytes)
    };
    let weights: SharedBytes = Arc::new((0..=255).collect::<Vec<u8>>());
    let source = ModelSource::Memory {
        label: "fuzzed".into(),
        model: Arc::new(model),
        external: vec![("weights.bin".into(), weights)],
    };
    let Ok(session) = NativeSession::load("", &source, &NativeOptions::default()) else {
        return;
    };
    let mut session: Box<dyn ComponentSession> = Box::new(session);
    for size in [1, 3, 0] {
        call(&mut *session, size, &mut bytes);
    }
}

/// Runs it on inputs whose open dims are `size`, most of them.
fn call(session: &mut dyn ComponentSession, size: i64, bytes: &mut Bytes<'_>) {
    let io = session.io().clone();
    let mut values = Vec::new();
    for port in &io.inputs {
        if let Some(value) = value(port, size, bytes) {
            values.push((port.name.as_str(), value));
        }
    }
    let inputs: Vec<_> = values
        .iter()
        .map(|(name, value)| Input {
            name,
            value: value.view(),
        })
        .collect();
    let given: Vec<_> = inputs
        .iter()
        .map(|input| (input.name, input.value.dtype(), input.value.shape()))
        .collect();
    let names: Vec<_> = io.outputs.iter().map(|port| port.name.as_str()).collect();
    let bound = session.output_bound(&given, &names);
    let mut outputs: Vec<_> = names.iter().map(|name| Output::alloc(name)).collect();
    if session.run(&inputs, &mut outputs, &control()).is_err() {
        return;
    }
    // What was said before of their sizes is so.
    for (output, bound) in outputs.iter().zip(bound.into_iter().flatten()) {
        let found = output
            .result
            .dtype_and_shape()
            .expect("a call that succeeds sets it");
        if let Some((dtype, shape)) = &bound {
            assert_eq!((*dtype, &shape[..]), found, "{}", output.name);
        }
    }
}

fn value(port: &Port, size: i64, bytes: &mut Bytes<'_>) -> Option<ComponentTensor> {
    let dtype = port.dtype()?;
    let dims = port.dims.as_deref().unwrap_or(&[Dim::Symbol(None)]);
    let shape: Vec<i64> = dims
        .iter()
        .map(|dim| match dim {
            Dim::Fixed(fixed) => *fixed,
            Dim::Symbol(_) if bytes.one_in(8) => bytes.below(5) as i64,
            Dim::Symbol(_) => size,
        })
        .collect();
    let length = oxpipe::component::byte_len(dtype, &shape).ok()?;
    if length > 1 << 20 {
        return None;
    }
    let mut content = vec![0; length];
    let given = bytes.take(length.min(64));
    match (given.is_empty(), dtype) {
        (true, _) => {}
        // Small numbers, of whatever type.
        (_, DataType::Int64 | DataType::Int32) => {
            for (element, byte) in content.chunks_exact_mut(dtype.size()).zip(given.iter().cycle()) {
                let number = i64::from(*byte as i8).to_le_bytes();
                element.copy_from_slice(&number[..dtype.size()]);
            }
        }
        _ => content
            .iter_mut()
            .zip(given.iter().cycle())
            .for_each(|(to, from)| *to = *from),
    }
    ComponentTensor::from_raw(dtype, &shape, &content).ok()
}

/// Values that nodes may name: `v0`, `v1`, ... in the order in which they come to be.
struct Names(usize);

impl Names {
    fn known(&self, bytes: &mut Bytes<'_>) -> String {
        match bytes.byte() {
            255 => String::new(),
            254 => format!("v{}", self.0 + bytes.below(4)),
            // Most often a late one, so that graphs are deep.
            n if n >= 128 => format!("v{}", self.0.saturating_sub(1 + usize::from(n) % 4)),
            n => format!("v{}", usize::from(n) % self.0.max(1)),
        }
    }

    fn fresh(&mut self) -> String {
        self.0 += 1;
        format!("v{}", self.0 - 1)
    }
}

fn shape(bytes: &mut Bytes<'_>) -> Model {
    let mut model = Model::new().ir_version(10);
    model = model.opset("", bytes.pick(&[21, 17, 13, 11, 23, 24, 7, 18]));
    model = model.opset("com.microsoft", 1).opset("ai.onnx.ml", 3);
    model = model.opset("local", 1);
    let mut names = Names(0);
    for _ in 0..1 + bytes.below(3) {
        let ty = bytes.pick(&[FLOAT, FLOAT, INT64, 6, 9, 10, 2, 3, 16, 11, 8]);
        model = model.input(&names.fresh(), ty, bytes.pick(DIMS));
    }
    for _ in 0..bytes.below(5) {
        let tensor = tensor(&names.fresh(), bytes);
        model = model.initializer(tensor);
    }
    model = model.graph(|graph| nodes(graph, &mut names, bytes, 0));
    if bytes.one_in(8) {
        let body = vec![
            Node::new("Add", &["a", "b"], &["c"]),
            Node::new("Relu", &["c"], &["d"]),
        ];
        model = model.function("Two", &["a", "b"], &["d"], body);
    }
    model
}

const DIMS: &[&str] = &[
    "[n, 4]",
    "[n]",
    "[]",
    "[1, n, 8]",
    "[2, 3]",
    "[1, 2, n, 4]",
    "[...]",
    "[1, 3, 4, 4]",
    "[n, m]",
    "[0]",
    "[4, 4]",
    "[1, n, n]",
];

fn tensor(name: &str, bytes: &mut Bytes<'_>) -> Tensor {
    let dims: &[i64] = bytes.pick::<&[i64]>(&[
        &[],
        &[1],
        &[4],
        &[2, 4],
        &[4, 4],
        &[8, 8],
        &[3, 3, 1, 1],
        &[0],
        &[2],
        &[3],
        &[1, 1, 4],
        &[1 << 40],
        &[-1],
        &[4, 8, 16],
        &[8, 1, 16],
        &[16, 16],
    ]);
    let count = dims.iter().product::<i64>().clamp(0, 1024) as usize;
    match bytes.byte() % 16 {
        0 => {
            let range = (bytes.number(), bytes.number());
            Tensor::external(
                name,
                FLOAT,
                dims,
                bytes.pick(&["weights.bin", "../x", ""]),
                Some(range),
            )
        }
        1..=4 => {
            let values: Vec<i64> = (0..count).map(|_| i64::from(bytes.byte() as i8)).collect();
            Tensor::ints(name, dims, &values)
        }
        5..=9 => {
            let values: Vec<f32> = (0..count).map(|_| f32::from(bytes.byte() as i8) / 16.0).collect();
            Tensor::floats(name, dims, &values)
        }
        10 => {
            let strings = bytes.below(4);
            let message = dims.iter().fold(Message::new(), |all, &dim| all.int(1, dim));
            let message = message.int(2, 8).bytes(8, name);
            (0..strings)
                .fold(message, |all, _| all.bytes(6, bytes.take(3)))
                .into()
        }
        _ => {
            let ty = i32::from(bytes.byte() % 27);
            let length = bytes.below(256);
            let content: Vec<u8> = bytes
                .take(length)
                .iter()
                .copied()
                .chain([0; 256])
                .take(length)
                .collect();
            Tensor::raw(name, ty, dims, &content)
        }
    }
}

fn nodes(mut graph: Graph, names: &mut Names, bytes: &mut Bytes<'_>, depth: usize) -> Graph {
    let count = 1 + bytes.below(if depth == 0 { 10 } else { 3 });
    for _ in 0..count {
        graph = graph.node(node(names, bytes, depth));
    }
    for _ in 0..1 + bytes.below(2 + depth) {
        let name = names.known(bytes);
        graph = match bytes.byte() % 4 {
            0 => graph.output(&name, FLOAT, "[...]"),
            1 => graph.output(&name, bytes.pick(&[INT64, 9, 6, 10]), bytes.pick(DIMS)),
            _ => graph.untyped_output(&name),
        };
    }
    graph
}

fn node(names: &mut Names, bytes: &mut Bytes<'_>, depth: usize) -> Node {
    let entry = &OPERATORS[bytes.below(OPERATORS.len())];
    let inputs: Vec<String> = (0..bytes.below(7)).map(|_| names.known(bytes)).collect();
    let attributes = bytes.below(4);
    let mut parts: Vec<(&str, u8)> = Vec::new();
    for _ in 0..attributes {
        parts.push((bytes.pick(ATTRIBUTES), bytes.byte() % 8));
    }
    let own = matches!(entry.op_type, "If" | "Loop" | "Scan" | "SequenceMap");
    let graphs: &[&str] = match entry.op_type {
        "If" => &["then_branch", "else_branch"],
        _ if own => &["body"],
        _ => &[],
    };
    let mut bodies = Vec::new();
    if depth < 3 {
        for name in graphs {
            let mut body = Graph::new();
            for _ in 0..bytes.below(4) {
                body = body.input(&names.fresh(), bytes.pick(&[FLOAT, INT64, 9]), bytes.pick(DIMS));
            }
            bodies.push((*name, nodes(body, names, bytes, depth + 1)));
        }
    }
    let outputs: Vec<String> = (0..1 + bytes.below(3)).map(|_| names.fresh()).collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
    let (op_type, domain) = match bytes.one_in(64) {
        true => ("Two", "local"),
        false => (entry.op_type, entry.domain),
    };
    let mut node = Node::new(op_type, &inputs, &outputs).domain(domain);
    for (name, kind) in parts {
        node = attribute(node, name, kind, bytes);
    }
    for (name, body) in bodies {
        node = node.graph(name, body);
    }
    node
}

fn integer(bytes: &mut Bytes<'_>) -> i64 {
    match bytes.byte() {
        255 => i64::MAX,
        254 => i64::MIN,
        253 => 1 << 40,
        n => i64::from(n as i8) / 8,
    }
}

fn attribute(node: Node, name: &str, kind: u8, bytes: &mut Bytes<'_>) -> Node {
    let count = bytes.below(5);
    match kind {
        0..=2 => node.int(name, integer(bytes)),
        3 => node.float(name, f32::from(bytes.byte() as i8) / 8.0),
        4 | 5 => {
            let values: Vec<i64> = (0..count).map(|_| integer(bytes)).collect();
            node.ints(name, &values)
        }
        6 => node.string(name, bytes.pick(TEXTS)),
        _ => node.tensor(name, tensor("", bytes)),
    }
}

/// Changes some bytes of a model, most often none.
fn spoiled(mut model: Vec<u8>, bytes: &mut Bytes<'_>) -> Vec<u8> {
    for _ in 0..bytes.byte() / 64 {
        let at = bytes.below(model.len());
        if let Some(byte) = model.get_mut(at) {
            *byte ^= 1 << bytes.below(8);
        }
    }
    model
}

const ATTRIBUTES: &[&str] = &[
    "alpha",
    "axes",
    "axis",
    "allowzero",
    "auto_pad",
    "batch_dims",
    "beta",
    "bits",
    "block_size",
    "blocksize",
    "ceil_mode",
    "count_include_pad",
    "cubic_coeff_a",
    "detect_negative",
    "dilations",
    "direction",
    "do_rotary",
    "dtype",
    "end",
    "epsilon",
    "equation",
    "exclusive",
    "fmod",
    "gamma",
    "group",
    "hidden_size",
    "interleaved",
    "is_causal",
    "K",
    "k",
    "keepdims",
    "kernel_shape",
    "kv_num_heads",
    "largest",
    "layout",
    "local_window_size",
    "max",
    "min",
    "mode",
    "N",
    "nearest_mode",
    "noop_with_empty_axes",
    "num_groups",
    "num_heads",
    "num_outputs",
    "output_dtype",
    "output_padding",
    "output_shape",
    "pads",
    "perm",
    "p",
    "q_num_heads",
    "reduction",
    "reverse",
    "rotary_embedding_dim",
    "saturate",
    "scale",
    "seed",
    "select_last_index",
    "shape",
    "size",
    "softcap",
    "sorted",
    "split",
    "start",
    "stash_type",
    "storage_order",
    "strides",
    "to",
    "transA",
    "transB",
    "upper",
    "value",
    "value_float",
    "value_int",
    "value_ints",
    "value_string",
    "num_scan_inputs",
    "scan_input_axes",
    "new_axis",
    "top_k",
    "unidirectional",
    "use_smooth_softmax",
    "quantize_axis",
    "gather_axis",
    "weight_prepacked",
];

const TEXTS: &[&str] = &[
    "linear",
    "nearest",
    "cubic",
    "constant",
    "edge",
    "reflect",
    "wrap",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "NOTSET",
    "ij,jk->ik",
    "...i,...i",
    "forward",
    "reverse",
    "bidirectional",
    "none",
    "add",
    "mul",
    "tanh",
    "gelu",
    "silu",
    "",
    "DCR",
    "CRD",
    "floor",
    "a\u{0}b",
];
