//! KV caches that the native runtime makes longer where they lie: the same bits as with a copy
//! of the cache in every step, and as many bytes written however long the context is.
#![cfg(feature = "native")]

use std::sync::Arc;

use half::{bf16, f16};
use oxpipe::component::{
    CacheRoom, ComponentErrorKind, ComponentSession, ComponentTensor, DataType, InPlaceCache, Input,
    ModelSource, Output, OutputResult, Port, RunControl, SharedBytes, TensorView, written_cache_bytes,
};
use oxpipe::native::{KvCacheDtype, NativeOptions, NativeSession};
use oxpipe::package::PackageSource;
use oxpipe::pipeline::{ErrorKind, Pipeline, Run, RunSettings};
use oxpipe::runtime::{Environment, Runtime, RuntimeSettings};
use oxpipe_test_support::onnx_writer::{FLOAT, INT32, INT64, Model, Node, Tensor};

const TYPES: [DataType; 3] = [DataType::Float32, DataType::Float16, DataType::Bfloat16];
const CONTRIB: &str = "com.microsoft";
const LAYERS: usize = 2;
const SIZE: usize = 4;
const WIDTH: i64 = 8;

/// The node that has the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    GroupQueryAttention,
    /// The same with a cache of codes of so many bits.
    Quantised(usize),
    /// The same, and floats that are kept as int8 by option.
    KeptAsInt8,
    MultiHeadAttention,
    Attention,
    /// Concat, and attention out of many nodes.
    WrittenOut,
}

const KINDS: [Kind; 7] = [
    Kind::GroupQueryAttention,
    Kind::KeptAsInt8,
    Kind::Quantised(8),
    Kind::Quantised(4),
    Kind::MultiHeadAttention,
    Kind::Attention,
    Kind::WrittenOut,
];

impl Kind {
    fn kv_heads(self) -> usize {
        match self {
            Kind::GroupQueryAttention | Kind::Quantised(_) | Kind::KeptAsInt8 | Kind::Attention => 1,
            Kind::MultiHeadAttention | Kind::WrittenOut => 2,
        }
    }

    fn is_group_query(self) -> bool {
        matches!(
            self,
            Kind::GroupQueryAttention | Kind::Quantised(_) | Kind::KeptAsInt8
        )
    }

    fn kept(self) -> KvCacheDtype {
        match self {
            Kind::KeptAsInt8 => KvCacheDtype::Int8,
            _ => KvCacheDtype::Model,
        }
    }

    /// The type of the cache, and the elements of a row.
    fn cache(self, dtype: DataType) -> (DataType, usize) {
        match self {
            Kind::KeptAsInt8 => (DataType::Int8, SIZE + 4),
            _ => self.declared_cache(dtype),
        }
    }

    /// As the model has it.
    fn declared_cache(self, dtype: DataType) -> (DataType, usize) {
        match self {
            Kind::Quantised(4) => (DataType::Uint8, SIZE / 2),
            Kind::Quantised(_) => (DataType::Int8, SIZE),
            _ => (dtype, SIZE),
        }
    }
}

/// Numbers from -1 to 1, always the same ones for a seed.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn bytes_of(dtype: DataType, values: &[f32]) -> Vec<u8> {
    let each = |&value: &f32| match dtype {
        DataType::Float16 => f16::from_f32(value).to_le_bytes().to_vec(),
        DataType::Bfloat16 => bf16::from_f32(value).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    };
    values.iter().flat_map(each).collect()
}

fn code(dtype: DataType) -> i32 {
    dtype.code() as i32
}

/// A decoder of two layers. Token 7 is never chosen, and a step that feeds it fails after the
/// caches have been written.
fn decoder(kind: Kind, dtype: DataType) -> Model {
    decoder_of(kind, dtype, false)
}

/// The same; its names may be `wrong`: a mask of all tokens whose length is called that of the new
/// ones. Its caches then go through an Expand to the batch of the tokens, which does nothing, as
/// the names say, but only they.
fn decoder_of(kind: Kind, dtype: DataType, wrong: bool) -> Model {
    let (batch, all) = if wrong { ("b", "s") } else { ("1", "t") };
    let ty = code(dtype);
    let weight = |name: &str, seed: u64, dims: [i64; 2]| {
        let values = numbers(seed, (dims[0] * dims[1]) as usize);
        Tensor::raw(name, ty, &dims, &bytes_of(dtype, &values))
    };
    let kv_heads = kind.kv_heads();
    let kv_width = (kv_heads * SIZE) as i64;
    let mut choice = numbers(99, 7 * 8);
    choice.chunks_mut(8).for_each(|row| row[7] = -100.0);
    let mut model = Model::new()
        .opset("", 23)
        .opset(CONTRIB, 1)
        .input("input_ids", INT64, &format!("[{batch}, s]"))
        .output("logits", ty, &format!("[{batch}, s, 8]"))
        .initializer(weight("table", 1, [8, WIDTH]))
        .initializer(weight("head", 2, [WIDTH, 8]))
        .initializer(Tensor::raw("choice", ty, &[7, 8], &bytes_of(dtype, &choice)))
        .initializer(Tensor::ints("one", &[1], &[1]))
        .initializer(Tensor::ints("heads", &[4], &[0, 0, 2, 4]))
        .initializer(Tensor::ints("flat", &[3], &[0, 0, -1]))
        .initializer(Tensor::raw("scale", ty, &[], &bytes_of(dtype, &[0.5])))
        .node(Node::new("Gather", &["table", "input_ids"], &["x0"]));
    if kind.is_group_query() || wrong {
        model = model.input("attention_mask", INT64, &format!("[{batch}, {all}]"));
    }
    if wrong {
        model = model
            .initializer(Tensor::ints("nought", &[1], &[0]))
            .initializer(Tensor::ints("ones", &[3], &[1, 1, 1]))
            .node(Node::new("Shape", &["input_ids"], &["tokens_shape"]))
            .node(Node::new("Gather", &["tokens_shape", "nought"], &["batch"]))
            .node(Node::new("Concat", &["batch", "ones"], &["expanded"]).int("axis", 0));
    }
    if kind.is_group_query() {
        model = model
            .initializer(weight("cos", 3, [256, 2]))
            .initializer(weight("sin", 4, [256, 2]))
            .initializer(Tensor::ints("second", &[], &[1]))
            .node(Node::new("ReduceSum", &["attention_mask", "one"], &["sum"]).int("keepdims", 0))
            .node(Node::new("Sub", &["sum", "one"], &["last"]))
            .node(Node::new("Cast", &["last"], &["lengths"]).int("to", INT32.into()))
            .node(Node::new("Shape", &["attention_mask"], &["shape"]))
            .node(Node::new("Gather", &["shape", "second"], &["all"]))
            .node(Node::new("Cast", &["all"], &["total"]).int("to", INT32.into()));
    }
    if let Kind::Quantised(bits) = kind {
        let step = 4.0 / 2f32.powi(bits as i32 - 1);
        let steps = [1.0, 0.75, 0.5, 1.25].map(|factor| factor * step);
        let scale = |name: &str, dims: &[i64], values: &[f32]| {
            let bytes = bytes_of(DataType::Float32, values);
            Tensor::raw(name, code(DataType::Float32), dims, &bytes)
        };
        model = model
            .initializer(scale("k_scale", &[1], &[step]))
            .initializer(scale("v_scale", &[1, 1, 1, SIZE as i64], &steps));
    }
    for layer in 0..LAYERS {
        let name = |what: &str| format!("{what}{layer}");
        let cache = |what: &str| format!("{what}.{layer}");
        let [x, q, k, v, y, o, next] = ["x", "q", "k", "v", "y", "o", "next"].map(name);
        let [past_k, past_v, k_out, v_out] = ["past_k", "past_v", "k", "v"].map(cache);
        let sum = format!("x{}", layer + 1);
        let seed = 10 * layer as u64;
        for (weight_name, from, seed, width) in [
            ("wq", &q, 11, WIDTH),
            ("wk", &k, 12, kv_width),
            ("wv", &v, 13, kv_width),
        ] {
            let weight_name = name(weight_name);
            model = model
                .initializer(weight(&weight_name, seed + 10 * layer as u64, [WIDTH, width]))
                .node(Node::new("MatMul", &[&x, &weight_name], &[from]));
        }
        for (past, present) in [(&past_k, &k_out), (&past_v, &v_out)] {
            let (ty, size) = kind.declared_cache(dtype);
            model = model
                .input(past, code(ty), &format!("[{batch}, {kv_heads}, p, {size}]"))
                .output(present, code(ty), &format!("[{batch}, {kv_heads}, t, {size}]"));
        }
        let [mut past_k, mut past_v] = [past_k, past_v];
        if wrong {
            for past in [&mut past_k, &mut past_v] {
                let expanded = format!("{past}.expanded");
                model = model.node(Node::new("Expand", &[past, "expanded"], &[&expanded]));
                *past = expanded;
            }
        }
        let outputs = [y.as_str(), &k_out, &v_out];
        model = match kind {
            Kind::GroupQueryAttention | Kind::KeptAsInt8 => model.node(
                Node::new(
                    "GroupQueryAttention",
                    &[&q, &k, &v, &past_k, &past_v, "lengths", "total", "cos", "sin"],
                    &outputs,
                )
                .domain(CONTRIB)
                .int("num_heads", 2)
                .int("kv_num_heads", 1)
                .int("do_rotary", 1),
            ),
            Kind::Quantised(bits) => model.node(
                Node::new(
                    "GroupQueryAttention",
                    &[
                        &q, &k, &v, &past_k, &past_v, "lengths", "total", "cos", "sin", "", "", "",
                        "k_scale", "v_scale",
                    ],
                    &outputs,
                )
                .domain(CONTRIB)
                .int("num_heads", 2)
                .int("kv_num_heads", 1)
                .int("do_rotary", 1)
                .string("k_quant_type", "PER_TENSOR")
                .string("v_quant_type", "PER_CHANNEL")
                .int("kv_cache_bit_width", bits as i64),
            ),
            Kind::MultiHeadAttention => model.node(
                Node::new(
                    "MultiHeadAttention",
                    &[&q, &k, &v, "", "", "", &past_k, &past_v],
                    &outputs,
                )
                .domain(CONTRIB)
                .int("num_heads", 2)
                .int("unidirectional", 1),
            ),
            Kind::Attention => model.node(
                Node::new("Attention", &[&q, &k, &v, "", &past_k, &past_v], &outputs)
                    .int("q_num_heads", 2)
                    .int("kv_num_heads", 1)
                    .int("is_causal", 1),
            ),
            Kind::WrittenOut => {
                for from in [&q, &k, &v] {
                    model = model
                        .node(Node::new(
                            "Reshape",
                            &[from, "heads"],
                            &[&format!("{from}_split")],
                        ))
                        .node(
                            Node::new(
                                "Transpose",
                                &[&format!("{from}_split")],
                                &[&format!("{from}_heads")],
                            )
                            .ints("perm", &[0, 2, 1, 3]),
                        );
                }
                let [turned, product, scores, weights, mixed, joined] =
                    ["turned", "product", "scores", "weights", "mixed", "joined"].map(name);
                model
                    .node(Node::new("Concat", &[&past_k, &format!("{k}_heads")], &[&k_out]).int("axis", 2))
                    .node(Node::new("Concat", &[&past_v, &format!("{v}_heads")], &[&v_out]).int("axis", 2))
                    .node(Node::new("Transpose", &[&k_out], &[&turned]).ints("perm", &[0, 1, 3, 2]))
                    .node(Node::new(
                        "MatMul",
                        &[&format!("{q}_heads"), &turned],
                        &[&product],
                    ))
                    .node(Node::new("Mul", &[&product, "scale"], &[&scores]))
                    .node(Node::new("Softmax", &[&scores], &[&weights]).int("axis", -1))
                    .node(Node::new("MatMul", &[&weights, &v_out], &[&mixed]))
                    .node(Node::new("Transpose", &[&mixed], &[&joined]).ints("perm", &[0, 2, 1, 3]))
                    .node(Node::new("Reshape", &[&joined, "flat"], &[&y]))
            }
        };
        let wo = name("wo");
        model = model
            .initializer(weight(&wo, 14 + seed, [WIDTH, WIDTH]))
            .node(Node::new("MatMul", &[&y, &wo], &[&o]))
            .node(Node::new("Tanh", &[&o], &[&next]))
            .node(Node::new("Add", &[&x, &next], &[&sum]));
    }
    let last = format!("x{LAYERS}");
    model
        .node(Node::new("MatMul", &[&last, "head"], &["chosen"]))
        .node(Node::new("Gather", &["choice", "input_ids"], &["bias"]))
        .node(Node::new("Add", &["chosen", "bias"], &["logits"]))
}

fn load(model: Model, disabled: &str) -> NativeSession {
    load_kept(KvCacheDtype::Model, model, disabled)
}

fn load_kept(kv_cache_dtype: KvCacheDtype, model: Model, disabled: &str) -> NativeSession {
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    load_from(&source, kv_cache_dtype, disabled)
}

fn load_from(source: &ModelSource, kv_cache_dtype: KvCacheDtype, disabled: &str) -> NativeSession {
    let options = NativeOptions {
        kv_cache_dtype,
        disabled_passes: disabled.parse().unwrap(),
        ..NativeOptions::default()
    };
    NativeSession::load("part", source, &options).unwrap()
}

fn names(what: &str) -> String {
    let of_layer = |layer| format!("{what}k.{layer}, {what}v.{layer}");
    (0..LAYERS).map(of_layer).collect::<Vec<_>>().join(", ")
}

fn pipeline(session: NativeSession) -> Pipeline {
    let mask = match session
        .io()
        .inputs
        .iter()
        .any(|port| port.name == "attention_mask")
    {
        true => "attention_mask_input: attention_mask",
        false => "",
    };
    let yaml = format!(
        "
model:
  io:
    token_input: input_ids
    logits_output: logits
    kv_inputs: [{}]
    kv_outputs: [{}]
    {mask}
",
        names("past_"),
        names("")
    );
    let metadata: SharedBytes = Arc::new(yaml.into_bytes());
    let source = PackageSource::Files(vec![("inference_metadata.yaml".into(), metadata)]);
    let runtime = Runtime::with_environment(RuntimeSettings::default(), Environment::default());
    let session: Box<dyn ComponentSession> = Box::new(session);
    Pipeline::with_sessions(&runtime, &source, vec![("model".into(), session)]).unwrap()
}

/// The decoder with caches in place, and with a copy in every step.
fn both(kind: Kind, dtype: DataType) -> [Pipeline; 2] {
    let in_place = load_kept(kind.kept(), decoder(kind, dtype), "");
    assert_eq!(in_place.in_place_caches().len(), 2 * LAYERS, "{kind:?} {dtype}");
    let copied = load_kept(kind.kept(), decoder(kind, dtype), "kv_in_place");
    assert!(copied.in_place_caches().is_empty());
    [pipeline(in_place), pipeline(copied)]
}

fn run(pipeline: &Pipeline, prompt: &[i32], chunk_size: Option<usize>) -> Run {
    let settings = RunSettings {
        chunk_size,
        ..RunSettings::default()
    };
    let mut run = Run::new(pipeline, &settings).unwrap();
    run.append_tokens(prompt).unwrap();
    run
}

fn step(run: &mut Run) -> i32 {
    run.step(&RunControl::default()).unwrap().token.unwrap()
}

fn assert_same_value(a: &Run, b: &Run, address: &str) {
    let (a, b) = (a.get_tensor(address).unwrap(), b.get_tensor(address).unwrap());
    assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{address}");
    assert!(a.bytes() == b.bytes(), "{address}");
}

fn assert_same_caches(a: &Run, b: &Run) {
    for name in names("").split(", ") {
        assert_same_value(a, b, &format!("model.{name}"));
    }
}

const PROMPT: [i32; 5] = [3, 1, 4, 1, 5];

#[test]
fn tokens_logits_and_caches_have_the_same_bits_as_with_copies() {
    for kind in KINDS {
        for dtype in TYPES {
            let [in_place, copied] = both(kind, dtype);
            for chunk_size in [None, Some(2)] {
                let mut a = run(&in_place, &PROMPT, chunk_size);
                let mut b = run(&copied, &PROMPT, chunk_size);
                // Far enough for memory that grows.
                for at in 0..70 {
                    assert_eq!(step(&mut a), step(&mut b), "{kind:?} {dtype} at {at}");
                    assert_same_value(&a, &b, "model.logits");
                    if at % 9 == 0 {
                        assert_same_caches(&a, &b);
                    }
                }
                // A second turn, of several tokens at once.
                for run in [&mut a, &mut b] {
                    run.append_tokens(&[6, 2, 0]).unwrap();
                }
                assert_eq!(step(&mut a), step(&mut b));
                assert_same_value(&a, &b, "model.logits");
                assert_same_caches(&a, &b);
                assert!(a.stats().kv_bytes < b.stats().kv_bytes);
            }
        }
    }
}

/// The names of the dims are wrong from the first step on, and without them there is no cache to
/// keep in place: each step copies it. In float32 the tokens are those of the graph without passes.
#[test]
fn names_that_are_wrong_cost_copies_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for kind in KINDS {
        for dtype in TYPES {
            let file = folder.path().join("model.onnx");
            std::fs::write(&file, decoder_of(kind, dtype, true).encode()).unwrap();
            let source = ModelSource::file(&file);
            let usual = load_from(&source, kind.kept(), "");
            assert_eq!(usual.in_place_caches().len(), 2 * LAYERS, "{kind:?} {dtype}");
            let usual = pipeline(usual);
            let copied = pipeline(load_from(&source, kind.kept(), "kv_in_place"));
            let plain = pipeline(load_from(&source, kind.kept(), "all"));
            let mut a = run(&usual, &PROMPT, Some(2));
            let mut b = run(&copied, &PROMPT, Some(2));
            let mut c = run(&plain, &PROMPT, Some(2));
            let mut next = |more: &[i32], steps| {
                for run in [&mut a, &mut b, &mut c] {
                    let len = run.tokens().len();
                    run.rewind(len - more.len()).unwrap();
                    run.append_tokens(more).unwrap();
                }
                for at in 0..steps {
                    let token = step(&mut a);
                    assert_eq!(token, step(&mut b), "{kind:?} {dtype} at {at}");
                    // In two bytes a pass that rounds less often may choose another one.
                    if dtype == DataType::Float32 {
                        assert_eq!(token, step(&mut c), "{kind:?} {dtype} at {at}");
                    }
                    assert_same_value(&a, &b, "model.logits");
                    assert_same_caches(&a, &b);
                }
            };
            next(&[], 70);
            next(&[6, 2, 0], 3);
        }
    }
}

#[test]
fn a_step_writes_its_own_rows_however_long_the_context_is() {
    if written_cache_bytes().is_none() {
        eprintln!("NOT CHECKED: this build does not count");
        return;
    }
    let written = |run: &mut Run| {
        let before = written_cache_bytes().unwrap();
        step(run);
        written_cache_bytes().unwrap() - before
    };
    for kind in KINDS {
        for dtype in TYPES {
            let [in_place, copied] = both(kind, dtype);
            let (ty, size) = kind.cache(dtype);
            let rows = (2 * LAYERS * kind.kv_heads() * size * ty.size()) as u64;
            let mut a = run(&in_place, &PROMPT, None);
            let mut b = run(&copied, &PROMPT, None);
            assert_eq!(written(&mut a), rows * PROMPT.len() as u64);
            assert_eq!(written(&mut b), rows * PROMPT.len() as u64);
            let mut grew = Vec::new();
            for context in PROMPT.len() as u64..135 {
                match written(&mut a) {
                    found if found == rows => {}
                    found => grew.push((context, found)),
                }
                assert_eq!(written(&mut b), rows * (context + 1));
            }
            // Twice as much memory each time: all that is ever copied is less than twice what
            // there is in the end.
            assert_eq!(grew, [(64, rows * 65), (128, rows * 129)], "{kind:?} {dtype}");
        }
    }
}

#[test]
fn rewinding_anywhere_is_as_if_the_rest_had_not_been() {
    for kind in KINDS {
        let [in_place, copied] = both(kind, DataType::Float16);
        let mut a = run(&in_place, &PROMPT, None);
        let mut b = run(&copied, &PROMPT, None);
        for _ in 0..20 {
            step(&mut a);
            step(&mut b);
        }
        for len in [25, 24, 18, 7, 5, 2, 1, 0] {
            for run in [&mut a, &mut b] {
                run.rewind(len).unwrap();
                run.append_tokens(&[2]).unwrap();
            }
            assert_eq!(a.tokens(), b.tokens());
            assert_same_caches(&a, &b);
            assert_eq!(step(&mut a), step(&mut b), "{kind:?} at {len}");
            assert_same_value(&a, &b, "model.logits");
            assert_same_caches(&a, &b);
        }
    }
}

#[test]
fn a_step_that_fails_leaves_no_trace() {
    for kind in KINDS {
        let [in_place, copied] = both(kind, DataType::Float32);
        let mut a = run(&in_place, &PROMPT, None);
        let mut b = run(&copied, &PROMPT, None);
        for at in 0..70 {
            if at % 3 == 0 {
                let caches: Vec<_> = names("")
                    .split(", ")
                    .filter_map(|name| a.get_tensor(&format!("model.{name}")).ok()?.to_tensor().ok())
                    .collect();
                for run in [&mut a, &mut b] {
                    let len = run.tokens().len();
                    run.append_tokens(&[1, 7]).unwrap();
                    let error = run.step(&RunControl::default()).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::RunFailed);
                    run.rewind(len).unwrap();
                }
                for (name, before) in names("").split(", ").zip(&caches) {
                    let after = a.get_tensor(&format!("model.{name}")).unwrap();
                    assert_eq!(after.shape(), before.shape());
                    assert!(after.bytes() == before.bytes(), "{name}");
                }
            }
            assert_eq!(step(&mut a), step(&mut b), "{kind:?} at {at}");
            assert_same_value(&a, &b, "model.logits");
            assert_same_caches(&a, &b);
        }
    }
}

/// What GroupQueryAttention of a batch is run on.
struct Batch {
    dtype: DataType,
    past: [ComponentTensor; 2],
    inputs: Vec<(&'static str, ComponentTensor)>,
}

const BATCH: usize = 3;
const PAST: usize = 5;

impl Batch {
    fn session(dtype: DataType) -> NativeSession {
        let ty = code(dtype);
        let mut model = Model::new()
            .opset(CONTRIB, 1)
            .input("q", ty, "[b, s, 16]")
            .input("lengths", INT32, "[b]")
            .input("total", INT32, "[]")
            .output("y", ty, "[b, s, 16]");
        for (x, past, present) in [("k", "past_k", "all_k"), ("v", "past_v", "all_v")] {
            model = model
                .input(x, ty, "[b, s, 8]")
                .input(past, ty, "[b, 2, p, 4]")
                .output(present, ty, "[b, 2, t, 4]");
        }
        let inputs = ["q", "k", "v", "past_k", "past_v", "lengths", "total"];
        let node = Node::new("GroupQueryAttention", &inputs, &["y", "all_k", "all_v"]);
        let node = node.domain(CONTRIB).int("num_heads", 4).int("kv_num_heads", 2);
        load(model.node(node), "")
    }

    /// `lengths` are those of the batch items with the `new` tokens.
    fn new(dtype: DataType, new: usize, lengths: [i32; BATCH]) -> Self {
        let tensor = |seed, dims: &[i64]| {
            let values = numbers(seed, dims.iter().product::<i64>() as usize);
            ComponentTensor::from_raw(dtype, dims, &bytes_of(dtype, &values)).unwrap()
        };
        let ints = |dims: &[i64], values: &[i32]| {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            ComponentTensor::from_raw(DataType::Int32, dims, &bytes).unwrap()
        };
        let (b, s) = (BATCH as i64, new as i64);
        let cache = [b, 2, PAST as i64, 4];
        Batch {
            dtype,
            past: [tensor(1, &cache), tensor(2, &cache)],
            inputs: vec![
                ("q", tensor(3, &[b, s, 16])),
                ("k", tensor(4, &[b, s, 8])),
                ("v", tensor(5, &[b, s, 8])),
                ("lengths", ints(&[b], &lengths.map(|length| length - 1))),
                ("total", ints(&[], &[*lengths.iter().max().unwrap()])),
            ],
        }
    }

    fn inputs(&self) -> Vec<Input<'_>> {
        views(&self.inputs)
    }

    /// The past with `capacity` rows a head; what is behind it must not be read.
    fn memory(&self, which: usize, capacity: usize) -> Vec<u64> {
        let row = 4 * self.dtype.size();
        let mut bytes = vec![0xff; BATCH * 2 * capacity * row];
        for (to, from) in bytes
            .chunks_exact_mut(capacity * row)
            .zip(self.past[which].bytes().chunks_exact(PAST * row))
        {
            to[..from.len()].copy_from_slice(from);
        }
        let words = bytes
            .chunks(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        words.collect()
    }
}

fn views<'t>(tensors: &'t [(&'static str, ComponentTensor)]) -> Vec<Input<'t>> {
    let views = tensors.iter().map(|(name, tensor)| Input {
        name,
        value: tensor.view(),
    });
    views.collect()
}

fn as_bytes(words: &mut [u64]) -> &mut [u8] {
    let len = words.len() * 8;
    // SAFETY: the same memory; every bit pattern is a u64 and eight u8.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
}

fn owned<'o>(output: &'o Output<'_>) -> TensorView<'o> {
    match &output.result {
        OutputResult::Owned(tensor) => tensor.view(),
        other => panic!("expected an owned tensor, found {other:?}"),
    }
}

/// Runs with the caches in memory for `capacity` rows and with a copy: whether both came to lie
/// in the cache, after a comparison of all there is.
fn same_in_batch(batch: &Batch, capacity: usize) -> bool {
    let mut memory = [0, 1].map(|which| batch.memory(which, capacity));
    let shape = batch.past[0].shape().to_vec();
    let control = RunControl::default();
    let mut copied = ["y", "all_k", "all_v"].map(Output::alloc);
    let mut session = Batch::session(batch.dtype);
    let session: &mut dyn ComponentSession = &mut session;
    let mut inputs = batch.inputs();
    let rest = inputs.clone();
    for (name, value) in ["past_k", "past_v"].into_iter().zip(&batch.past) {
        inputs.push(Input {
            name,
            value: value.view(),
        });
    }
    session.run(&inputs, &mut copied, &control).unwrap();
    let mut outputs = ["y", "all_k", "all_v"].map(Output::alloc);
    for ((output, memory), past) in outputs[1..].iter_mut().zip(&mut memory).zip(["past_k", "past_v"]) {
        let room = CacheRoom::new(past, batch.dtype, &shape, 2, capacity, as_bytes(memory)).unwrap();
        output.cache = Some(room);
    }
    session.run(&rest, &mut outputs, &control).unwrap();
    assert!(owned(&outputs[0]).bytes() == owned(&copied[0]).bytes());
    let results = outputs.map(|output| output.result);
    let mut in_cache = 0;
    for ((result, memory), copied) in results[1..].iter().zip(&mut memory).zip(&copied[1..]) {
        let expected = owned(copied);
        assert_eq!(
            result.dtype_and_shape(),
            Some((expected.dtype(), expected.shape()))
        );
        match result {
            OutputResult::Owned(tensor) => assert!(tensor.bytes() == expected.bytes()),
            OutputResult::InCache { shape, .. } => {
                in_cache += 1;
                let row = 4 * batch.dtype.size();
                let rows = shape[2] as usize;
                let heads = as_bytes(memory).chunks_exact(capacity * row);
                for (found, expected) in heads.zip(expected.bytes().chunks_exact(rows * row)) {
                    assert!(found[..rows * row] == *expected);
                    assert!(found[rows * row..].iter().all(|&byte| byte == 0xff));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(in_cache == 0 || in_cache == 2);
    in_cache == 2
}

#[test]
fn batches_lie_in_caches_too() {
    for dtype in TYPES {
        for (new, capacity) in [(1, 6), (1, 64), (2, 7), (2, 9)] {
            let length = (PAST + new) as i32;
            assert!(same_in_batch(&Batch::new(dtype, new, [length; BATCH]), capacity));
        }
    }
}

#[test]
fn what_cannot_be_appended_is_given_whole() {
    for dtype in TYPES {
        // A sequence that is shorter than the cache has its new rows in front of others.
        assert!(!same_in_batch(&Batch::new(dtype, 1, [6, 4, 6]), 8));
        // No room for the new row.
        assert!(!same_in_batch(&Batch::new(dtype, 1, [6; BATCH]), PAST));
    }
}

#[test]
fn caches_are_only_taken_where_a_session_says_so() {
    let mut session = Batch::session(DataType::Float32);
    let session: &mut dyn ComponentSession = &mut session;
    let io = session.io();
    let index = |ports: &[Port], name| ports.iter().position(|port| port.name == name).unwrap();
    let expected = [("past_k", "all_k"), ("past_v", "all_v")].map(|(past, present)| InPlaceCache {
        past: index(&io.inputs, past),
        present: index(&io.outputs, present),
        axis: 2,
    });
    assert_eq!(session.in_place_caches(), expected);
    let batch = Batch::new(DataType::Float32, 1, [6; BATCH]);
    let shape = batch.past[0].shape();
    for (past, present, axis) in [("past_v", "all_k", 2), ("past_k", "y", 2), ("past_k", "all_k", 1)] {
        // As many rows along the axis, and no more.
        let mut memory = vec![0; BATCH * 2 * PAST * 4 * 4 / 8];
        let capacity = shape[axis] as usize;
        let room = CacheRoom::new(past, batch.dtype, shape, axis, capacity, as_bytes(&mut memory)).unwrap();
        let mut outputs = [Output {
            cache: Some(room),
            ..Output::alloc(present)
        }];
        let mut inputs = batch.inputs();
        let other = if past == "past_k" { "past_v" } else { "past_k" };
        inputs.push(Input {
            name: other,
            value: batch.past[0].view(),
        });
        let error = session
            .run(&inputs, &mut outputs, &RunControl::default())
            .unwrap_err();
        assert!(
            matches!(error.kind(), ComponentErrorKind::NoSuchCache { .. }),
            "{error}"
        );
    }
}

/// Of two batch items, one cannot be written: nor is the other, where the cache lies.
#[test]
fn a_scatter_that_is_refused_leaves_its_cache_as_it_is() {
    let model = Model::new()
        .opset("", 24)
        .ir_version(13)
        .input("past", FLOAT, "[2, 4, 1]")
        .input("new", FLOAT, "[2, 2, 1]")
        .input("at", INT64, "[2]")
        .output("present", FLOAT, "[2, 4, 1]")
        .node(Node::new("TensorScatter", &["past", "new", "at"], &["present"]));
    let mut session = load(model, "");
    let mut cache: Vec<u64> = vec![0; 4];
    for (at, written) in [
        ([0i64, 3], false),
        ([-1, 0], false),
        ([0, i64::MAX], false),
        ([0, 2], true),
    ] {
        let new = [1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
        let at = at.map(i64::to_le_bytes).concat();
        let inputs = [
            (
                "new",
                ComponentTensor::from_raw(DataType::Float32, &[2, 2, 1], &new).unwrap(),
            ),
            (
                "at",
                ComponentTensor::from_raw(DataType::Int64, &[2], &at).unwrap(),
            ),
        ];
        let mut outputs = [Output::alloc("present")];
        let room = CacheRoom::whole("past", DataType::Float32, &[2, 4, 1], as_bytes(&mut cache)).unwrap();
        outputs[0].cache = Some(room);
        let ran = session.execute(&views(&inputs), &mut outputs, &RunControl::default());
        drop(outputs);
        assert_eq!(ran.is_ok(), written, "{ran:?}");
        let found: Vec<f32> = as_bytes(&mut cache)
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        let expected = match written {
            false => [0.0; 8],
            true => [1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0],
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn caches_that_something_else_reads_are_copied() {
    let ty = code(DataType::Float32);
    let model = |more: &dyn Fn(Model) -> Model| {
        let model = Model::new()
            .opset("", 23)
            .input("q", ty, "[1, 1, s, 4]")
            .input("past_k", ty, "[1, 1, p, 4]")
            .input("past_v", ty, "[1, 1, p, 4]")
            .output("y", ty, "[1, 1, s, 4]")
            .output("all_k", ty, "[1, 1, t, 4]")
            .output("all_v", ty, "[1, 1, t, 4]")
            .node(Node::new(
                "Attention",
                &["q", "q", "q", "", "past_k", "past_v"],
                &["y", "all_k", "all_v"],
            ));
        let session = load(more(model), "");
        session.in_place_caches().len()
    };
    assert_eq!(model(&|model| model), 2);
    let also = |op: &'static str, from: &'static str| {
        model(&move |model| {
            model
                .node(Node::new(op, &[from], &["z"]))
                .graph(|graph| graph.untyped_output("z"))
        })
    };
    for op in ["Shape", "Size"] {
        assert_eq!((also(op, "past_k"), also(op, "all_v")), (2, 2), "{op}");
    }
    for value in ["past_k", "all_v"] {
        assert_eq!(also("Neg", value), 1);
    }
    // The same output twice, by a node that a pass removes.
    assert_eq!(also("Identity", "all_k"), 1);
}

/// The sizes of caches that only Shape reads are there.
#[test]
fn shapes_of_caches_can_be_computed_with() {
    let ty = code(DataType::Float32);
    let model = Model::new()
        .opset("", 23)
        .opset(CONTRIB, 1)
        .input("q", ty, "[b, s, 4]")
        .input("past_k", ty, "[b, 1, p, 4]")
        .input("past_v", ty, "[b, 1, p, 4]")
        .input("lengths", INT32, "[b]")
        .input("total", INT32, "[]")
        .output("y", ty, "[b, s, 4]")
        .output("all_k", ty, "[b, 1, t, 4]")
        .output("all_v", ty, "[b, 1, t, 4]")
        .output("before", INT64, "[4]")
        .output("after", INT64, "[4]")
        .node(
            Node::new(
                "GroupQueryAttention",
                &["q", "q", "q", "past_k", "past_v", "lengths", "total"],
                &["y", "all_k", "all_v"],
            )
            .domain(CONTRIB)
            .int("num_heads", 1)
            .int("kv_num_heads", 1),
        )
        .node(Node::new("Shape", &["past_k"], &["before"]))
        .node(Node::new("Shape", &["all_k"], &["after"]));
    let mut session = load(model, "");
    let session: &mut dyn ComponentSession = &mut session;
    let floats = bytes_of(DataType::Float32, &numbers(1, 4));
    let (lengths, total) = (3i32.to_le_bytes(), 4i32.to_le_bytes());
    let input = |name, dtype, shape, bytes| Input {
        name,
        value: TensorView::new(dtype, shape, bytes).unwrap(),
    };
    let inputs = [
        input("q", DataType::Float32, &[1, 1, 4][..], &floats[..]),
        input("lengths", DataType::Int32, &[1], &lengths),
        input("total", DataType::Int32, &[], &total),
    ];
    let mut memory = [vec![0u64; 16], vec![0u64; 16]];
    let mut outputs = ["all_k", "all_v", "before", "after"].map(Output::alloc);
    for ((output, memory), past) in outputs.iter_mut().zip(&mut memory).zip(["past_k", "past_v"]) {
        let room = CacheRoom::new(past, DataType::Float32, &[1, 1, 3, 4], 2, 8, as_bytes(memory));
        output.cache = Some(room.unwrap());
    }
    session
        .run(&inputs, &mut outputs, &RunControl::default())
        .unwrap();
    let ints = |output: &Output<'_>| -> Vec<i64> {
        let bytes = owned(output).bytes().chunks_exact(8);
        bytes
            .map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    };
    assert_eq!(ints(&outputs[2]), [1, 1, 3, 4]);
    assert_eq!(ints(&outputs[3]), [1, 1, 4, 4]);
    assert!(matches!(outputs[0].result, OutputResult::InCache { .. }));
}

/// A step of two queries over a past of three rows, of which two heads of queries share one.
fn kept_as_int8() -> NativeSession {
    let ty = code(DataType::Float32);
    let model = Model::new()
        .opset(CONTRIB, 1)
        .input("q", ty, "[1, s, 8]")
        .input("k", ty, "[1, s, 4]")
        .input("v", ty, "[1, s, 4]")
        .input("past_k", ty, "[1, 1, p, 4]")
        .input("past_v", ty, "[1, 1, p, 4]")
        .input("lengths", INT32, "[1]")
        .input("total", INT32, "[]")
        .output("y", ty, "[1, s, 8]")
        .output("all_k", ty, "[1, 1, t, 4]")
        .output("all_v", ty, "[1, 1, t, 4]")
        .node(
            Node::new(
                "GroupQueryAttention",
                &["q", "k", "v", "past_k", "past_v", "lengths", "total"],
                &["y", "all_k", "all_v"],
            )
            .domain(CONTRIB)
            .int("num_heads", 2)
            .int("kv_num_heads", 1),
        );
    load_kept(KvCacheDtype::Int8, model, "")
}

/// A row as it is kept: codes of x / scale, and the scale, max |x| / 127.
fn int8_row(row: &[f32]) -> Vec<u8> {
    let scale = row.iter().fold(0.0f32, |largest, x| largest.max(x.abs())) / 127.0;
    let code = |&x: &f32| match scale {
        0.0 => 0,
        scale => (x / scale).round_ties_even() as i8 as u8,
    };
    row.iter().map(code).chain(scale.to_le_bytes()).collect()
}

/// What it stands for.
fn of_int8_row(row: &[u8]) -> Vec<f64> {
    let (codes, scale) = row.split_at(row.len() - 4);
    let scale = f32::from_le_bytes(scale.try_into().unwrap());
    codes
        .iter()
        .map(|&code| f64::from(code as i8) * f64::from(scale))
        .collect()
}

/// The rows are those worked out here, and attention uses what they stand for, new ones too.
#[test]
fn keys_and_values_are_kept_as_int8_if_asked_for() {
    const PAST: usize = 3;
    const NEW: usize = 2;
    let mut session = kept_as_int8();
    let session: &mut dyn ComponentSession = &mut session;
    for (ports, from) in [(&session.io().inputs, 3..5), (&session.io().outputs, 1..3)] {
        for port in &ports[from] {
            assert_eq!(port.dtype(), Some(DataType::Int8), "{}", port.name);
            assert!(port.accepts_shape(&[1, 1, 7, 8]), "{}", port.name);
        }
    }
    // A row of zeros, one of large numbers, one with a number that is large beside the others.
    let mut rows = [numbers(1, (PAST + NEW) * 4), numbers(2, (PAST + NEW) * 4)];
    rows[0][..4].fill(0.0);
    rows[0][4..8].iter_mut().for_each(|x| *x *= 1e30);
    rows[0][4..8].swap(0, 3);
    rows[1][9] = 40.0;
    let kept = rows
        .each_ref()
        .map(|rows| rows.chunks(4).flat_map(int8_row).collect::<Vec<u8>>());
    // Scores of the row of large numbers decide; give it a query that does not see it.
    let q = numbers(3, NEW * 8).iter().map(|x| x * 1e-30).collect::<Vec<_>>();
    let tensor = |dims: &[i64], values: &[f32]| {
        ComponentTensor::from_raw(DataType::Float32, dims, &bytes_of(DataType::Float32, values)).unwrap()
    };
    let int8 =
        |rows: &[u8]| ComponentTensor::from_raw(DataType::Int8, &[1, 1, PAST as i64, 8], rows).unwrap();
    let int = |dims: &[i64], value: usize| {
        ComponentTensor::from_raw(DataType::Int32, dims, &(value as i32).to_le_bytes()).unwrap()
    };
    let new = NEW as i64;
    let values = [
        ("q", tensor(&[1, new, 8], &q)),
        ("k", tensor(&[1, new, 4], &rows[0][PAST * 4..])),
        ("v", tensor(&[1, new, 4], &rows[1][PAST * 4..])),
        ("past_k", int8(&kept[0][..PAST * 8])),
        ("past_v", int8(&kept[1][..PAST * 8])),
        ("lengths", int(&[1], PAST + NEW - 1)),
        ("total", int(&[], PAST + NEW)),
    ];
    let inputs = views(&values);
    let mut outputs = ["y", "all_k", "all_v"].map(Output::alloc);
    session
        .run(&inputs, &mut outputs, &RunControl::default())
        .unwrap();
    for (output, kept) in outputs[1..].iter().zip(&kept) {
        assert_eq!(owned(output).shape(), [1, 1, (PAST + NEW) as i64, 8]);
        assert_eq!(owned(output).bytes(), kept);
    }
    let [k, v] = kept
        .each_ref()
        .map(|rows| rows.chunks(8).map(of_int8_row).collect::<Vec<_>>());
    let y = owned(&outputs[0]).bytes().as_chunks::<4>().0;
    for query in 0..NEW {
        for head in 0..2 {
            let at = query * 8 + head * 4;
            let score = |key: &Vec<f64>| {
                let terms = key.iter().zip(&q[at..at + 4]);
                terms.map(|(k, &q)| k * f64::from(q)).sum::<f64>() / 2.0
            };
            let visible = PAST + query + 1;
            let weights: Vec<f64> = k[..visible].iter().map(|key| score(key).exp()).collect();
            for i in 0..4 {
                let terms = weights.iter().zip(&v).map(|(weight, v)| weight * v[i]);
                let expected = terms.sum::<f64>() / weights.iter().sum::<f64>();
                let found = f64::from(f32::from_le_bytes(y[at + i]));
                assert!(
                    (found - expected).abs() < 1e-5 * expected.abs().max(1.0),
                    "{found}, {expected}"
                );
            }
        }
    }
}

/// NaN and infinity are not lost in a row.
#[test]
fn what_is_no_number_stays_so_in_int8() {
    for x in [f32::NAN, f32::INFINITY] {
        let mut session = kept_as_int8();
        let session: &mut dyn ComponentSession = &mut session;
        let floats = |dims: &[i64], value: f32| {
            let count = dims.iter().product::<i64>() as usize;
            let bytes = bytes_of(DataType::Float32, &vec![value; count]);
            ComponentTensor::from_raw(DataType::Float32, dims, &bytes).unwrap()
        };
        let int = |dims: &[i64], value: i32| {
            ComponentTensor::from_raw(DataType::Int32, dims, &value.to_le_bytes()).unwrap()
        };
        let none = ComponentTensor::from_raw(DataType::Int8, &[1, 1, 0, 8], &[]).unwrap();
        let values = [
            ("q", floats(&[1, 1, 8], 1.0)),
            ("k", floats(&[1, 1, 4], 1.0)),
            ("v", floats(&[1, 1, 4], x)),
            ("past_k", none.view().to_tensor().unwrap()),
            ("past_v", none),
            ("lengths", int(&[1], 0)),
            ("total", int(&[], 1)),
        ];
        let inputs = views(&values);
        let mut outputs = ["y", "all_k", "all_v"].map(Output::alloc);
        session
            .run(&inputs, &mut outputs, &RunControl::default())
            .unwrap();
        let y = owned(&outputs[0]).bytes().as_chunks::<4>().0;
        assert!(y.iter().all(|&y| !f32::from_le_bytes(y).is_finite()), "{x}");
    }
}

/// Those that something else reads, that are codes already, that have no static size, or that are
/// another operator's.
#[test]
fn caches_that_cannot_be_int8_stay_what_they_are() {
    let dtypes = |model: Model| {
        let session = load_kept(KvCacheDtype::Int8, model, "");
        let io = session.io();
        let names = ["past_k", "past_v", "all_k", "all_v", "past_k.0", "k.0"];
        let ports = io.inputs.iter().chain(&io.outputs);
        ports
            .filter(|port| names.contains(&port.name.as_str()))
            .filter_map(Port::dtype)
            .collect::<Vec<_>>()
    };
    let ty = code(DataType::Float32);
    let model = |size: &str, more: &dyn Fn(Model, Node) -> Model| {
        let node = Node::new(
            "GroupQueryAttention",
            &["q", "q", "q", "past_k", "past_v", "lengths", "total"],
            &["y", "all_k", "all_v"],
        );
        let node = node.domain(CONTRIB).int("num_heads", 1).int("kv_num_heads", 1);
        let model = Model::new()
            .opset("", 21)
            .opset(CONTRIB, 1)
            .input("q", ty, "[1, s, 4]")
            .input("past_k", ty, &format!("[1, 1, p, {size}]"))
            .input("past_v", ty, &format!("[1, 1, p, {size}]"))
            .input("lengths", INT32, "[1]")
            .input("total", INT32, "[]")
            .output("y", ty, "[1, s, 4]")
            .output("all_k", ty, &format!("[1, 1, t, {size}]"))
            .output("all_v", ty, &format!("[1, 1, t, {size}]"));
        dtypes(more(model, node))
    };
    let floats = vec![DataType::Float32; 4];
    assert_eq!(
        model("4", &|model, node| model.node(node)),
        vec![DataType::Int8; 4]
    );
    assert_eq!(model("d", &|model, node| model.node(node)), floats);
    // Larger heads than attention decodes.
    assert_eq!(model("2049", &|model, node| model.node(node)), floats);
    let read = |name: &'static str| {
        move |model: Model, node: Node| {
            let model = model.node(node).output("more", ty, "[1, 1, r, 4]");
            model.node(Node::new("Identity", &[name], &["more"]))
        }
    };
    assert_eq!(model("4", &read("past_v")), floats);
    assert_eq!(model("4", &read("all_k")), floats);
    let windowed = |model: Model, node: Node| {
        model.node(node.int("local_window_size", 2).int("sliding_window_cache", 1))
    };
    assert_eq!(model("4", &windowed), floats);
    for kind in [Kind::MultiHeadAttention, Kind::Attention, Kind::WrittenOut] {
        assert_eq!(dtypes(decoder(kind, DataType::Float32)), [DataType::Float32; 2]);
    }
    let codes = dtypes(decoder(Kind::Quantised(4), DataType::Float32));
    assert_eq!(codes, [DataType::Uint8; 2]);
}
