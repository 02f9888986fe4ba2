//! Every operator of the registry, on inputs that make no sense: it may compute or refuse, but
//! never panic, hang, or take memory without bound.
//!
//! Models of one node are made from a fixed seed, out of nothing or by spoiling one that makes sense: shapes of rank 0 to 6 with dims of zero,
//! one and absurd sizes, types and ranks that do not match, inputs left out, attributes at
//! random. The allocator of this test refuses what is absurdly large, so that memory that is
//! taken without a way to refuse ends the process, and so does a case that does not end;
//! `OXP_ROBUSTNESS_TRACE=1` with `--nocapture` shows which it was.
#![cfg(feature = "native")]

#[path = "native_robustness/empty.rs"]
mod empty;
#[path = "native_robustness/hostile.rs"]
mod hostile;
#[path = "native_robustness/sound.rs"]
mod sound;
#[path = "native_robustness/types.rs"]
mod types;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oxpipe::component::{ComponentError, ModelSource};
use oxpipe::native::arity::{self, Arity};
use oxpipe::native::element::ElementType;
use oxpipe::native::registry::{NEWEST_ONNX_OPSET, OPERATORS, OperatorEntry};
use oxpipe::native::tensor::Tensor;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::bounded_allocator::Bounded;
use oxpipe_test_support::cpu_time::cpu_time;
use oxpipe_test_support::onnx_writer::{self, FLOAT, INT64, Message, Model, Node, STRING};

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    /// Mostly small; sometimes at the ends of what an i64 holds, or large.
    fn int(&mut self) -> i64 {
        match self.below(40) {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => 1 << 40,
            3 => -(1 << 40),
            _ => self.below(7) as i64 - 2,
        }
    }

    fn float(&mut self) -> f32 {
        match self.below(24) {
            0 => f32::NAN,
            1 => f32::INFINITY,
            2 => f32::NEG_INFINITY,
            3 => f32::MAX,
            4 => 1e-40,
            _ => self.below(41) as f32 / 8.0 - 2.5,
        }
    }

    fn dims(&mut self) -> Vec<usize> {
        let rank = self.below(7);
        let mut dims: Vec<usize> = (0..rank).map(|_| [0, 1, 1, 2, 2, 3, 4][self.below(7)]).collect();
        // Much larger ones are fine beside one of zero.
        if dims.contains(&0) && self.one_in(4) {
            let at = self.below(rank);
            dims[at] = if dims[at] == 0 { 0 } else { 1 << 22 };
        }
        dims
    }

    /// Dims that may go with `first`: the same, some of them 1, the last ones, more.
    fn related(&mut self, first: &[usize]) -> Vec<usize> {
        let mut dims = first.to_vec();
        match self.below(7) {
            0 | 1 => {}
            2 => dims.iter_mut().for_each(|dim| {
                if self.one_in(2) {
                    *dim = 1;
                }
            }),
            3 => drop(dims.drain(..self.below(first.len() + 1))),
            4 => dims.insert(0, 2),
            5 => dims.truncate(1),
            _ => dims.reverse(),
        }
        if !dims.contains(&0) {
            dims.iter_mut().for_each(|dim| *dim = (*dim).min(4));
        }
        dims
    }
}

/// The attributes of the operators, and values for them: what a kind of attribute it is, and
/// choices, or none for any value.
enum Kind {
    Int,
    Float,
    Ints,
    Text(&'static [&'static str]),
    Tensor,
}

const ATTRIBUTES: &[(&str, Kind)] = {
    use Kind::{Float, Int, Ints, Tensor, Text};
    &[
        ("activation_alpha", Float),
        ("allowzero", Int),
        ("alpha", Float),
        ("antialias", Int),
        ("approximate", Text(&["none", "tanh", "?"])),
        ("auto_pad", Text(&["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])),
        ("axes", Ints),
        ("axis", Int),
        ("batch_axis", Int),
        ("batch_dims", Int),
        ("beta", Float),
        ("bias", Float),
        ("block_size", Int),
        ("blocksize", Int),
        ("ceil_mode", Int),
        ("center_point_box", Int),
        (
            "coordinate_transformation_mode",
            Text(&["half_pixel", "asymmetric", "align_corners", "tf_crop_and_resize"]),
        ),
        ("count_include_pad", Int),
        ("cubic_coeff_a", Float),
        ("depth", Int),
        ("detect_negative", Int),
        ("detect_positive", Int),
        ("dilations", Ints),
        (
            "direction",
            Text(&["forward", "reverse", "bidirectional", "LEFT", "RIGHT"]),
        ),
        ("dtype", Int),
        ("end", Int),
        ("epsilon", Float),
        (
            "equation",
            Text(&["ij,jk->ik", "...i,...i", "ii->i", "ij->", "a,b,", "->", "i"]),
        ),
        ("exclude_outside", Int),
        ("exclusive", Int),
        ("fmod", Int),
        ("gamma", Float),
        ("group", Int),
        ("hidden_size", Int),
        ("interleaved", Int),
        ("inverse", Int),
        ("is_causal", Int),
        ("k", Int),
        ("keepdims", Int),
        ("kernel_shape", Ints),
        ("kv_num_heads", Int),
        ("lambd", Float),
        ("largest", Int),
        ("layout", Int),
        ("linear_before_reset", Int),
        ("max", Float),
        ("min", Float),
        (
            "mode",
            Text(&[
                "linear", "circular", "nearest", "cubic", "constant", "edge", "reflect", "wrap", "DCR", "CRD",
            ]),
        ),
        ("noop_with_empty_axes", Int),
        ("num_groups", Int),
        ("num_heads", Int),
        ("num_outputs", Int),
        ("onesided", Int),
        ("output_dtype", Int),
        ("output_padding", Ints),
        ("output_shape", Ints),
        ("p", Int),
        ("pads", Ints),
        ("padding_mode", Text(&["zeros", "border", "reflection"])),
        ("perm", Ints),
        ("precision", Int),
        ("q_num_heads", Int),
        ("qk_matmul_output_mode", Int),
        ("ratio", Float),
        (
            "reduction",
            Text(&["none", "add", "mul", "min", "max", "sum", "mean"]),
        ),
        ("reverse", Int),
        ("rotary_embedding_dim", Int),
        ("sample_size", Int),
        ("saturate", Int),
        ("scale", Float),
        ("seed", Float),
        ("select_last_index", Int),
        ("shape", Ints),
        ("size", Int),
        ("softcap", Float),
        ("sorted", Int),
        ("split", Ints),
        ("start", Int),
        ("starts", Ints),
        ("ends", Ints),
        ("stash_type", Int),
        ("storage_order", Int),
        ("strides", Ints),
        ("time_axis", Int),
        ("to", Int),
        ("transA", Int),
        ("transB", Int),
        ("upper", Int),
        ("value", Tensor),
        ("value_int", Int),
        ("value_ints", Ints),
    ]
};

fn with_attribute(node: Node, index: usize, random: &mut Random) -> Node {
    let (name, kind) = &ATTRIBUTES[index];
    match kind {
        // Half of them are element types.
        Kind::Int if matches!(*name, "to" | "dtype" | "output_dtype" | "precision") => {
            node.int(name, random.below(28) as i64)
        }
        Kind::Int => node.int(name, random.int()),
        Kind::Float => node.float(name, random.float()),
        Kind::Ints => {
            let values: Vec<i64> = (0..random.below(7)).map(|_| random.int()).collect();
            node.ints(name, &values)
        }
        Kind::Text(choices) => node.string(name, choices[random.below(choices.len())]),
        Kind::Tensor => {
            let (ty, dims) = (random_type(random), [1; 2]);
            node.tensor(name, initializer("", ty, &dims[..random.below(3)], random))
        }
    }
}

fn random_type(random: &mut Random) -> ElementType {
    ElementType::ALL[random.below(ElementType::ALL.len())]
}

fn bytes_of(ty: ElementType, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        match ty {
            ElementType::Float32 => bytes.extend(random.float().to_le_bytes()),
            ElementType::Float64 => bytes.extend(f64::from(random.float()).to_le_bytes()),
            ElementType::Float16 => bytes.extend(half::f16::from_f32(random.float()).to_le_bytes()),
            ElementType::Bfloat16 => bytes.extend(half::bf16::from_f32(random.float()).to_le_bytes()),
            ElementType::Int64 | ElementType::Uint64 => bytes.extend(random.int().to_le_bytes()),
            ElementType::Bool => bytes.push(random.below(2) as u8),
            ElementType::Int4 => bytes.push((random.below(16) as i8 - 8) as u8),
            ElementType::Int2 => bytes.push((random.below(4) as i8 - 2) as u8),
            ElementType::Uint2 => bytes.push(random.below(4) as u8),
            ElementType::Uint4 | ElementType::Float4E2M1 => bytes.push(random.below(16) as u8),
            // The low bytes of a small integer, for all others; complex ones get noise.
            _ => {
                let value = random.int().to_le_bytes();
                bytes.extend(value.iter().cycle().take(ty.size().unwrap_or(1)));
            }
        }
    }
    bytes
}

fn tensor(ty: ElementType, dims: &[usize], random: &mut Random) -> Tensor {
    let count = if dims.contains(&0) {
        0
    } else {
        dims.iter().product()
    };
    if ty == ElementType::String {
        let texts = (0..count).map(|_| random.pick(&["", "a", "ä b", "1.5", "-3"]).to_owned());
        return Tensor::from_strings(dims, texts.collect()).unwrap();
    }
    Tensor::from_raw(ty, dims, &bytes_of(ty, count, random)).unwrap()
}

/// As `raw_data`, where 4-bit and 2-bit elements are packed.
fn initializer(name: &str, ty: ElementType, dims: &[usize], random: &mut Random) -> onnx_writer::Tensor {
    let count: usize = if dims.contains(&0) {
        0
    } else {
        dims.iter().product()
    };
    let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
    let bytes = match ty.stored_bits() {
        Some(bits @ (2 | 4)) => bytes_of(ElementType::Uint8, (count * bits).div_ceil(8), random),
        _ => bytes_of(ty, count, random),
    };
    onnx_writer::Tensor::raw(name, ty.code(), &dims, &bytes)
}

fn load(model: Model) -> Result<NativeSession, ComponentError> {
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    NativeSession::load("", &source, &NativeOptions::default())
}

/// A version of the operator's domain in which the entry's `index`-th definition is in force.
fn opset(entry: &OperatorEntry, index: usize) -> i64 {
    let since = entry.since[index];
    match entry.domain {
        "" => since.clamp(7, NEWEST_ONNX_OPSET),
        _ => since,
    }
}

fn model_of(entry: &OperatorEntry, version: i64) -> Model {
    match entry.domain {
        "" => Model::new().ir_version(13).opset("", version),
        domain => Model::new()
            .ir_version(13)
            .opset("", NEWEST_ONNX_OPSET)
            .opset(domain, version),
    }
}

/// Names of inputs and of outputs of nodes.
const INPUTS: [&str; 18] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r",
];
const OUTPUTS: [&str; 5] = ["y", "z", "v", "w", "u"];

/// The attributes of the table that the operator has in this version.
fn known_attributes(entry: &OperatorEntry, version: i64, arity: &Arity) -> Vec<usize> {
    let mut random = Random(1);
    let [(least, most), (outputs, _)] = arity.counts();
    // One that makes sense, as far as that is known: for want of an input or an attribute that it
    // requires, an operator would not say which attributes it does not know.
    let (mut inputs, attributes) = sound::names_of(entry.op_type, "a")
        .unwrap_or_else(|| (vec!["a"; least.max(1).min(most.unwrap_or(1))], Vec::new()));
    // Older versions have fewer.
    inputs.truncate(most.unwrap_or(usize::MAX));
    let outputs = &OUTPUTS[..outputs.max(1)];
    let knows = |&index: &usize| {
        let node = Node::new(entry.op_type, &inputs, outputs).domain(entry.domain);
        let mut node = with_attribute(node, index, &mut random);
        for text in &attributes {
            if text.split('=').next() != Some(ATTRIBUTES[index].0) {
                node = sound::with_attribute(node, text);
            }
        }
        let model = model_of(entry, version)
            .graph(|graph| graph.untyped_output("y"))
            .node(node);
        match load(model.input("a", FLOAT, "[...]")) {
            Ok(_) => true,
            Err(error) => !error.to_string().contains("none of this operator's"),
        }
    };
    let mut knows = knows;
    (0..ATTRIBUTES.len()).filter(|index| knows(index)).collect()
}

/// An input of a node: its values are at random, or a list.
pub struct Input {
    ty: ElementType,
    dims: Vec<usize>,
    list: Option<Vec<i64>>,
}

impl Input {
    fn new(ty: ElementType, dims: &[usize]) -> Self {
        let (dims, list) = (dims.to_vec(), None);
        Input { ty, dims, list }
    }
}

fn wild_inputs(arity: &Arity, random: &mut Random) -> Vec<Option<Input>> {
    let common_type = match random.below(3) {
        0 => ElementType::Float32,
        _ => random_type(random),
    };
    let common_dims = random.dims();
    let [(least, most), _] = arity.counts();
    let count = least + random.below(most.unwrap_or(6).min(8).max(least) - least + 1);
    let input = |index| {
        if index >= least && random.one_in(8) {
            return None;
        }
        let ty = match random.below(8) {
            0 => random_type(random),
            1 | 2 if index > 0 => ElementType::Int64,
            3 if index > 0 => ElementType::Bool,
            _ => common_type,
        };
        let dims = match (index, ty) {
            (0, _) => common_dims.clone(),
            // Shapes, axes, counts: often a list, as long as the first input has dims.
            (_, ElementType::Int64) if random.one_in(2) => vec![common_dims.len()],
            _ if random.one_in(6) => random.dims(),
            _ => random.related(&common_dims),
        };
        let list = None;
        Some(Input { ty, dims, list })
    };
    (0..count).map(input).collect()
}

/// Sometimes another type, other dims, or nothing in place of one of the inputs.
fn spoil(inputs: &mut [Option<Input>], random: &mut Random) {
    if inputs.is_empty() || random.one_in(2) {
        return;
    }
    let at = random.below(inputs.len());
    let Some(input) = &mut inputs[at] else { return };
    match random.below(4) {
        0 => inputs[at] = None,
        1 => {
            input.ty = random_type(random);
            input.list = None;
        }
        2 => {
            input.dims = random.dims();
            input.list = None;
        }
        _ => {
            input.dims = random.related(&input.dims);
            input.list = None;
        }
    }
}

/// What an operator says when it breaks its contract with the executor.
const BROKEN_CONTRACTS: [&str; 5] = [
    "was inferred as",
    "was not written in full",
    "was asked for twice",
    "elements of the output were written",
    "anything made it",
];

/// One node at random, loaded and run: whether it computed anything.
///
/// # Panics
/// If the operator broke its contract; any other error is right.
fn try_one(
    entry: &OperatorEntry,
    version: i64,
    arity: &Arity,
    attributes: &[usize],
    random: &mut Random,
) -> bool {
    let sound = match random.one_in(3) {
        true => None,
        false => sound::node_of(entry.op_type, random),
    };
    let is_sound = sound.is_some();
    let (inputs, mut sound) = match sound {
        Some((mut inputs, attributes)) => {
            spoil(&mut inputs, random);
            (inputs, attributes)
        }
        None => (wild_inputs(arity, random), Vec::new()),
    };
    let mut model = model_of(entry, version);
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for (index, input) in inputs.iter().enumerate() {
        let Some(Input { ty, dims, list }) = input else {
            names.push("");
            continue;
        };
        let name = INPUTS[index];
        names.push(name);
        let bytes = list.as_ref().map(|list| {
            let spoil = random.one_in(20);
            let mut list = list.clone();
            if let Some(value) = list.first_mut().filter(|_| spoil) {
                *value = random.int();
            }
            let bytes = list.iter().flat_map(|value| match ty {
                ElementType::Int32 => (*value as i32).to_le_bytes().to_vec(),
                _ => value.to_le_bytes().to_vec(),
            });
            bytes.collect::<Vec<u8>>()
        });
        let huge = dims.iter().any(|&dim| dim > 1 << 20);
        if random.one_in(3) && *ty != ElementType::String && !huge {
            let tensor = match bytes {
                Some(bytes) => {
                    let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
                    onnx_writer::Tensor::raw(name, ty.code(), &dims, &bytes)
                }
                None => initializer(name, *ty, dims, random),
            };
            model = model.initializer(tensor);
        } else {
            let declared = match random.one_in(2) {
                true => "[...]".to_owned(),
                false => format!("{dims:?}"),
            };
            model = model.input(name, ty.code(), &declared);
            values.push((
                name,
                match bytes {
                    Some(bytes) => Tensor::from_raw(*ty, dims, &bytes).unwrap(),
                    None => tensor(*ty, dims, random),
                },
            ));
        }
    }
    let [_, (least, most)] = arity.counts();
    let most = most.unwrap_or(OUTPUTS.len());
    let listed = least.max(1) + random.below(most.max(least.max(1)) - least.max(1) + 1);
    let outputs = &OUTPUTS[..listed];
    let mut node = Node::new(entry.op_type, &names, outputs).domain(entry.domain);
    let rarely = if is_sound { 24 } else { 2 };
    for &attribute in attributes {
        if random.one_in(rarely) {
            node = with_attribute(node, attribute, random);
            let name = ATTRIBUTES[attribute].0;
            sound.retain(|text| text.split('=').next() != Some(name));
        }
    }
    for attribute in sound {
        node = sound::with_attribute(node, attribute);
    }
    for name in outputs {
        model = model.graph(|graph| graph.untyped_output(name));
    }
    let judge = |error: ComponentError| {
        let text = error.to_string();
        assert!(
            !BROKEN_CONTRACTS.iter().any(|broken| text.contains(broken)),
            "{text}"
        );
        false
    };
    let mut session = match load(model.node(node)) {
        Ok(session) => session,
        Err(error) => return judge(error),
    };
    let inputs: Vec<_> = values.iter().map(|(name, value)| (*name, value.view())).collect();
    // The second run finds buffers of the first.
    let mut run = |outputs: &[&str]| session.run_tensors(&inputs, outputs).map_or_else(judge, |_| true);
    run(outputs) && run(&["y"])
}

const CASES_EACH: u64 = 40;

/// How long a case may take, on a busy machine.
const TOO_LONG: Duration = Duration::from_secs(60);

/// What runs, and since when: a thread of its own ends the process when it is for too long.
static RUNNING: Mutex<Option<(String, Instant)>> = Mutex::new(None);

fn now_runs(label: Option<String>) {
    *RUNNING.lock().unwrap() = label.map(|label| (label, Instant::now()));
}

fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            if let Some((label, since)) = &*RUNNING.lock().unwrap()
                && since.elapsed() > TOO_LONG
            {
                // Past the capture of the test's output.
                let _ = writeln!(std::io::stderr(), "{label}: does not end");
                std::process::abort();
            }
        }
    });
}

#[test]
fn no_operator_panics_hangs_or_takes_memory_without_bound() {
    let trace = std::env::var_os("OXP_ROBUSTNESS_TRACE").is_some();
    // A caught panic of this thread is told at the end; other tests' as ever.
    let (this, tell) = (std::thread::current().id(), std::panic::take_hook());
    let quiet = Arc::new(AtomicBool::new(true));
    let is_quiet = Arc::clone(&quiet);
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() != this || !is_quiet.load(Ordering::Relaxed) {
            tell(panic);
        }
    }));
    watch();
    let mut failures = Vec::new();
    let mut computed = 0;
    let mut never = Vec::new();
    for (number, entry) in OPERATORS.iter().enumerate() {
        for (index, since) in entry.since.iter().enumerate() {
            let version = opset(entry, index);
            let label = format!("{} {} version {since}", entry.domain, entry.op_type);
            let arity = arity::find(entry.domain, entry.op_type, *since).unwrap();
            let attributes = catch_unwind(|| known_attributes(entry, version, arity)).unwrap_or_else(|_| {
                failures.push(format!("{label}: panicked at load"));
                Vec::new()
            });
            let before = computed;
            for case in 0..CASES_EACH {
                if trace {
                    eprintln!("{label} case {case}");
                }
                let mut random = Random((number as u64) << 32 | (index as u64) << 16 | case);
                now_runs(Some(format!("{label} case {case}")));
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    try_one(entry, version, arity, &attributes, &mut random)
                }));
                match outcome {
                    Ok(ran) => computed += u64::from(ran),
                    Err(panic) => {
                        let text = panic.downcast_ref::<String>().map(String::as_str);
                        let text = text.or(panic.downcast_ref::<&str>().copied());
                        failures.push(format!("{label} case {case}: panicked: {}", text.unwrap_or("?")));
                    }
                }
            }
            if computed == before {
                never.push(label);
            }
        }
    }
    now_runs(None);
    quiet.store(false, Ordering::Relaxed);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // The cases are wild, but not all of them may be refused.
    println!(
        "{computed} cases computed something; always refused: {}",
        never.join(", ")
    );
    assert!(computed > 1000, "only {computed} cases computed anything");
}

#[test]
fn the_registry_is_sorted_and_has_each_operator_once() {
    for pair in OPERATORS.windows(2) {
        let [a, b] = [&pair[0], &pair[1]].map(|entry| (entry.domain, entry.op_type));
        assert!(a < b, "{a:?} comes before {b:?}");
        assert!(pair[0].since.is_sorted_by(|a, b| a < b), "{a:?}");
    }
}

#[test]
fn the_inputs_and_outputs_of_each_operator_are_counted() {
    for entry in OPERATORS {
        for &since in entry.since {
            let found = arity::find(entry.domain, entry.op_type, since);
            assert!(found.is_some(), "{} {} {since}", entry.domain, entry.op_type);
        }
    }
}

/// The error of a node whose inputs `a`, `b`, ... are these lists of int64, but for `a`, of this
/// type; an empty list is an input left out.
fn run_huge(op_type: &str, ty: i32, lists: &[&[i64]], change: impl FnOnce(Node) -> Node) -> String {
    let names = ["a", "b", "c", "d"];
    let present = |index: usize| if lists[index].is_empty() { "" } else { names[index] };
    let inputs: Vec<&str> = (0..lists.len()).map(present).collect();
    let node = change(Node::new(op_type, &inputs, &["y"]));
    let mut model = Model::new()
        .opset("", 21)
        .ir_version(10)
        .graph(|graph| graph.untyped_output("y"))
        .node(node);
    let mut values = Vec::new();
    let listed = names.iter().zip(lists).enumerate();
    for (index, (name, list)) in listed.filter(|(_, (_, list))| !list.is_empty()) {
        let value = match (index, ty) {
            (0, STRING) => Tensor::from_strings(&[list.len()], vec!["text".to_owned(); list.len()]),
            (0, FLOAT) => Tensor::from_slice(&[list.len()], &vec![1f32; list.len()]),
            _ => Tensor::from_slice(&[list.len()], list),
        };
        let ty = if index == 0 { ty } else { INT64 };
        model = model.input(name, ty, "[...]");
        values.push((*name, value.unwrap()));
    }
    let inputs: Vec<_> = values.iter().map(|(name, value)| (*name, value.view())).collect();
    let start = cpu_time();
    let result = load(model).and_then(|mut session| session.run_tensors(&inputs, &["y"]).map(drop));
    let spent = cpu_time() - start;
    assert!(spent < Duration::from_secs(1), "{op_type} took {spent:?}");
    result.expect_err(op_type).to_string()
}

#[test]
fn results_that_do_not_fit_are_refused_at_once() {
    let string_value = |node: Node| {
        let text = Message::new().int(1, 1).int(2, STRING.into()).bytes(6, "text");
        node.tensor("value", onnx_writer::Tensor::from(text))
    };
    let same = |node: Node| node;
    // Two dims that are each fine, whose product cannot be counted, and one that can.
    for (large, reason) in [
        (&[1_i64 << 40, 1 << 40][..], "more than can be addressed"),
        (&[1 << 20, 1 << 20][..], "cannot allocate"),
    ] {
        for ty in [FLOAT, STRING] {
            assert!(run_huge("Expand", ty, &[&[1], large], same).contains(reason));
        }
        assert!(run_huge("ConstantOfShape", INT64, &[large], same).contains(reason));
        assert!(run_huge("ConstantOfShape", INT64, &[large], string_value).contains(reason));
    }
    for ty in [FLOAT, STRING] {
        assert!(run_huge("Tile", ty, &[&[1], &[1 << 40]], same).contains("cannot allocate"));
        assert!(run_huge("Tile", ty, &[&[1, 1], &[i64::MAX]], same).contains("addressed"));
    }
    assert!(run_huge("Pad", FLOAT, &[&[1], &[0, 1 << 40]], same).contains("cannot allocate"));
    for mode in ["nearest", "linear", "cubic"] {
        let lists: [&[i64]; 4] = [&[1], &[], &[], &[1 << 40]];
        let message = run_huge("Resize", FLOAT, &lists, |node| node.string("mode", mode));
        assert!(message.contains("cannot allocate"), "{mode}: {message}");
    }
    assert!(run_huge("OneHot", INT64, &[&[1], &[1 << 40], &[0, 1]], same).contains("cannot allocate"));
    assert!(run_huge("Range", INT64, &[&[0], &[1 << 40], &[1]], same).contains("cannot allocate"));
    assert!(run_huge("Range", INT64, &[&[0], &[i64::MAX], &[1]], same).contains("addressed"));
}

/// A chain of so many nodes, no two of which a pass could take for one.
fn chain(nodes: usize) -> Model {
    let mut model = Model::new().input("v0", FLOAT, "[n]");
    for node in 0..nodes {
        let (from, to) = (format!("v{node}"), format!("v{}", node + 1));
        model = model.node(Node::new(["Neg", "Abs"][node % 2], &[&from], &[&to]));
    }
    model.output(&format!("v{nodes}"), FLOAT, "[n]")
}

/// Time grows with the number of nodes, not with its square: 16 times for four times as many.
#[test]
fn graphs_of_many_nodes_take_time_in_proportion() {
    let spent = |nodes: usize| {
        let model = chain(nodes).encode();
        let source = ModelSource::Memory {
            label: "test".into(),
            model: Arc::new(model),
            external: Vec::new(),
        };
        let start = cpu_time();
        let mut session = NativeSession::load("part", &source, &NativeOptions::default()).unwrap();
        let loaded = cpu_time();
        let x = Tensor::from_slice(&[2], &[1f32, -2.0]).unwrap();
        let output = format!("v{nodes}");
        session.run_tensors(&[("v0", x.view())], &[&output]).unwrap();
        eprintln!(
            "{nodes} nodes: loaded in {:?}, ran in {:?}",
            loaded - start,
            cpu_time() - loaded
        );
        cpu_time() - start
    };
    let (few, many) = (spent(5_000), spent(20_000));
    assert!(many < few * 10, "{few:?} and {many:?}");
}

#[test]
fn graphs_of_too_many_nodes_are_refused() {
    // Two bytes each, which become some hundreds.
    let mut graph = Message::new();
    for _ in 0..=1 << 20 {
        graph = graph.bytes(1, "");
    }
    let model = Message::new().int(1, 8).message(7, graph).into_bytes();
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model),
        external: Vec::new(),
    };
    let start = cpu_time();
    let error = NativeSession::load("part", &source, &NativeOptions::default()).unwrap_err();
    assert!(error.to_string().contains("1048576 nodes"), "{error}");
    assert!(cpu_time() - start < Duration::from_secs(1));
}
