//! Operators that run as one part on one thread end in the middle when they are asked to.

use std::cell::Cell;

use crate::component::{CancelToken, ComponentErrorKind, RunControl};
use crate::native::element::{Bool, ElementType};
use crate::native::ending;
use crate::native::node::{Attribute, NamedAttribute, NodeInfo};
use crate::native::operator::Operator;
use crate::native::registry::{self, Build, ML, MS};
use crate::native::tensor::{Tensor, element_count};
use crate::native::value::ValueRef;
use crate::native::workers::Workers;
use crate::native::workspace::Workspace;

/// A node of one output that is used, and what it is run on.
struct Case {
    domain: &'static str,
    op_type: &'static str,
    attributes: Vec<NamedAttribute>,
    inputs: Vec<Option<Tensor>>,
    outputs: usize,
}

fn case(op_type: &'static str, inputs: impl IntoIterator<Item = Tensor>) -> Case {
    Case {
        domain: "",
        op_type,
        attributes: Vec::new(),
        inputs: inputs.into_iter().map(Some).collect(),
        outputs: 1,
    }
}

impl Case {
    fn of(self, domain: &'static str) -> Self {
        Case { domain, ..self }
    }

    fn outputs(self, outputs: usize) -> Self {
        Case { outputs, ..self }
    }

    fn attribute(mut self, name: &str, value: Attribute) -> Self {
        self.attributes.push(NamedAttribute {
            name: name.into(),
            value,
            asked: Cell::new(false),
        });
        self
    }

    fn int(self, name: &str, value: i64) -> Self {
        self.attribute(name, Attribute::Int(value))
    }

    fn ints(self, name: &str, values: &[i64]) -> Self {
        self.attribute(name, Attribute::Ints(values.to_vec()))
    }

    fn floats(self, name: &str, values: &[f32]) -> Self {
        self.attribute(name, Attribute::Floats(values.to_vec()))
    }

    fn string(self, name: &str, value: &str) -> Self {
        self.attribute(name, Attribute::String(value.into()))
    }

    fn strings(self, name: &str, values: &[&str]) -> Self {
        let values = values.iter().map(|&value| value.into()).collect();
        self.attribute(name, Attribute::Strings(values))
    }

    fn build(&self) -> Result<Box<dyn Operator>, String> {
        let opset = match self.domain {
            "" => registry::NEWEST_ONNX_OPSET,
            ML => 4,
            _ => 1,
        };
        let found = registry::find(self.domain, self.op_type, opset);
        let (entry, since) = found.map_err(|missing| missing.to_string())?;
        let Build::Kernel(build) = entry.build else {
            return Err("it runs graphs".into());
        };
        let inputs: Vec<bool> = self.inputs.iter().map(Option::is_some).collect();
        let info = NodeInfo {
            name: "node",
            op_type: self.op_type,
            domain: self.domain,
            opset,
            since,
            inputs: &inputs,
            outputs: &vec![true; self.outputs],
            attributes: &self.attributes,
        };
        build(&info).map_err(|error| error.to_string())
    }
}

/// Pairwise different, so that sorting has something to do.
fn float(i: usize) -> f32 {
    (i.wrapping_mul(40_503) % (1 << 20)) as f32 + 0.5
}

fn floats(dims: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..element_count(dims).unwrap()).map(float).collect();
    Tensor::from_slice(dims, &values).unwrap()
}

fn ints(dims: &[usize], value: impl Fn(usize) -> i64) -> Tensor {
    let values: Vec<i64> = (0..element_count(dims).unwrap()).map(value).collect();
    Tensor::from_slice(dims, &values).unwrap()
}

fn bools(dims: &[usize]) -> Tensor {
    let values: Vec<Bool> = (0..element_count(dims).unwrap())
        .map(|i| Bool::from(i % 3 == 0))
        .collect();
    Tensor::from_slice(dims, &values).unwrap()
}

fn strings(count: usize) -> Tensor {
    Tensor::from_strings(&[count], (0..count).map(|i| i.to_string()).collect()).unwrap()
}

fn scalar(value: f32) -> Tensor {
    Tensor::from_slice(&[], &[value]).unwrap()
}

/// More than are gone over between two looks.
const N: usize = 3 << 15;

/// Strings cost more.
const STRINGS: usize = 1 << 13;

fn elementwise() -> Vec<Case> {
    let float_type = i64::from(ElementType::Float32.code());
    let string_type = i64::from(ElementType::String.code());
    vec![
        case("Pow", [floats(&[N]), floats(&[N])]),
        case("Pow", [floats(&[N]), scalar(1.5)]),
        case("Where", [bools(&[N]), floats(&[N]), scalar(0.0)]),
        case("Equal", [floats(&[N]), floats(&[N])]),
        case(
            "Less",
            [floats(&[N]), floats(&[N / 64, 64]).with_dims(&[N]).unwrap()],
        ),
        case("Less", [floats(&[N / 64, 64]), floats(&[64])]),
        case("And", [bools(&[N]), bools(&[N])]),
        case("Not", [bools(&[N])]),
        case("BitwiseNot", [ints(&[N], |i| i as i64)]),
        case("BitwiseXor", [ints(&[N], |i| i as i64), ints(&[N], |i| i as i64)]),
        case("BitCast", [floats(&[N])]).int("to", i64::from(ElementType::Uint32.code())),
        case("Clip", [floats(&[N]), scalar(1.0)]),
        case("IsNaN", [floats(&[N])]),
        case("Max", [floats(&[N]), scalar(1.0)]),
        case("Mean", [floats(&[N]), scalar(1.0)]),
        case("Dropout", [floats(&[N]), scalar(0.5), bools(&[])]),
        case("QuantizeLinear", [floats(&[N]), scalar(0.5)]),
        case(
            "DequantizeLinear",
            [Tensor::from_slice(&[N], &vec![3u8; N]).unwrap(), scalar(0.5)],
        ),
        case("DynamicQuantizeLinear", [floats(&[N])]).outputs(3),
        case("Cast", [floats(&[STRINGS])]).int("to", string_type),
        case("Cast", [strings(STRINGS)]).int("to", float_type),
        case("RandomNormalLike", [floats(&[N])]),
        case("RandomUniform", []).ints("shape", &[N as i64]),
        case("Bernoulli", [floats(&[N])]),
        case("Binarizer", [floats(&[N])]).of(ML),
        case("Scaler", [floats(&[N / 2, 2])])
            .of(ML)
            .floats("offset", &[1.0])
            .floats("scale", &[2.0]),
        case("BiasGelu", [floats(&[N / 2, 2]), floats(&[2])]).of(MS),
    ]
}

fn chosen_and_moved() -> Vec<Case> {
    let row = || ints(&[N], |i| i as i64);
    vec![
        case("TopK", [floats(&[N]), ints(&[1], |_| 10)]).outputs(2),
        case("TopK", [floats(&[N]), ints(&[1], |_| N as i64)]).outputs(2),
        case("TopK", [floats(&[N / 4, 4]), ints(&[1], |_| 2)]).outputs(2),
        case("ArgMax", [floats(&[N])]),
        case("ArgMin", [floats(&[N / 4, 4])]),
        case("Hardmax", [floats(&[1, N])]),
        case("Unique", [floats(&[N])]).outputs(4),
        case("Unique", [floats(&[N])]).outputs(4).int("sorted", 0),
        case("Unique", [floats(&[N / 64, 64])]).int("axis", 1),
        case("Unique", [strings(N)]),
        case("Unique", [floats(&[N])]).of(MS).outputs(3),
        case("NonZero", [floats(&[N])]),
        case("Compress", [floats(&[N]), bools(&[N])]),
        case("OneHot", [row(), ints(&[], |_| 2), floats(&[2])]),
        case("Gather", [floats(&[N]), row()]),
        case("GatherElements", [floats(&[N]), row()]).int("axis", 0),
        case("GatherND", [floats(&[N]), ints(&[N, 1], |i| i as i64)]),
        case("ScatterElements", [floats(&[N]), row(), floats(&[N])]),
        case("ScatterElements", [floats(&[N]), ints(&[1], |_| 5), floats(&[1])]),
        case(
            "ScatterND",
            [floats(&[N]), ints(&[N, 1], |i| i as i64), floats(&[N])],
        )
        .string("reduction", "add"),
        case("Trilu", [floats(&[N / 64, 64])]),
        case(
            "ConstantOfShape",
            [Tensor::from_slice(&[1], &[N as i64]).unwrap()],
        )
        .attribute("value", Attribute::Tensor(floats(&[1]))),
        case("Range", [scalar(0.0), scalar(N as f32), scalar(1.0)]),
        case("Pad", [floats(&[N]), ints(&[2], |_| 3)]).string("mode", "reflect"),
        case("MaxUnpool", [floats(&[1, 1, N]), ints(&[1, 1, N], |i| i as i64)]).ints("kernel_shape", &[1]),
        case("CumSum", [floats(&[N]), ints(&[], |_| 0)]),
        case(
            "TensorScatter",
            [floats(&[1, N, 1]), floats(&[1, 1, 1]), ints(&[1], |_| 3)],
        )
        .int("axis", 1),
        case(
            "NGramRepeatBlock",
            [row().with_dims(&[1, N]).unwrap(), floats(&[1, N])],
        )
        .of(MS)
        .int("ngram_size", 3),
    ]
}

fn sums() -> Vec<Case> {
    let none = ints(&[0], |_| 0);
    vec![
        case("ReduceLogSumExp", [floats(&[N]), none]),
        case("ReduceSum", [floats(&[1, N, 1])]),
        case("LpNormalization", [floats(&[1, N])]),
        case("MeanVarianceNormalization", [floats(&[1, 1, 1, N])]),
        case("GlobalAveragePool", [floats(&[1, 4, N / 4])]),
        case("Einsum", [floats(&[N / 64, 64])]).string("equation", "ij->j"),
        case("Einsum", [floats(&[N])]).string("equation", "i->"),
        case("NegativeLogLikelihoodLoss", [floats(&[N, 1]), ints(&[N], |_| 0)]),
        case(
            "SoftmaxCrossEntropyLoss",
            [floats(&[N / 64, 64]), ints(&[N / 64], |_| 0)],
        ),
        case("Multinomial", [floats(&[1, N])]),
        case("Normalizer", [floats(&[1, N])]).of(ML),
        case("CDist", [floats(&[8, N / 8]), floats(&[8, N / 8])])
            .of(MS)
            .string("metric", "euclidean"),
    ]
}

fn transforms() -> Vec<Case> {
    vec![
        case("DFT", [floats(&[1, N, 1])]),
        // A prime.
        case("DFT", [floats(&[1, 521, 1])]),
        case("STFT", [floats(&[1, N]), ints(&[], |_| 64), floats(&[128])]),
        case("Det", [floats(&[80, 80])]),
        case("Inverse", [floats(&[80, 80])]).of(MS),
        case(
            "AffineGrid",
            [floats(&[1, 2, 3]), ints(&[4], |i| [1, 1, N as i64 / 2, 2][i])],
        ),
        case(
            "Resize",
            [
                floats(&[N]),
                floats(&[0]),
                floats(&[0]),
                ints(&[1], |_| N as i64 / 2),
            ],
        )
        .string("mode", "linear"),
        case(
            "Col2Im",
            [
                floats(&[1, 1, N]),
                ints(&[2], |i| [1, N as i64][i]),
                ints(&[2], |_| 1),
            ],
        ),
        case("LinearAttention", [0, 1, 2].map(|_| floats(&[1, 256, 64])))
            .of(MS)
            .outputs(2)
            .int("q_num_heads", 2)
            .int("kv_num_heads", 2)
            .string("update_rule", "linear"),
    ]
}

fn texts() -> Vec<Case> {
    vec![
        case("StringConcat", [strings(STRINGS), strings(STRINGS)]),
        case("StringSplit", [strings(STRINGS)])
            .outputs(2)
            .string("delimiter", "1"),
        case("StringNormalizer", [strings(STRINGS)]),
        case("RegexFullMatch", [strings(STRINGS)]).string("pattern", "[0-9]*7"),
        case("Equal", [strings(N), strings(N)]),
        case("LabelEncoder", [strings(N)])
            .of(ML)
            .strings("keys_strings", &["7"])
            .ints("values_int64s", &[1]),
        case("TfIdfVectorizer", [strings(N)])
            .string("mode", "TF")
            .strings("pool_strings", &["7"])
            .ints("ngram_counts", &[0])
            .ints("ngram_indexes", &[0])
            .int("min_gram_length", 1)
            .int("max_gram_length", 1)
            .int("max_skip_count", 0),
    ]
}

/// What takes long for few elements, and how many it goes over.
fn long() -> Vec<(usize, Case)> {
    let pool = |op_type| {
        let taps = 64 * 64 * 33 * 33;
        (
            taps,
            case(op_type, [floats(&[1, 1, 96, 96])]).ints("kernel_shape", &[33, 33]),
        )
    };
    let bytes = |dims: &[usize]| {
        let codes = vec![7u8; element_count(dims).unwrap()];
        Tensor::from_slice(dims, &codes).unwrap()
    };
    const DEPTH: usize = 1000;
    let nodes = |last: i64, value: &dyn Fn(i64) -> i64| -> Vec<i64> {
        (0..=DEPTH as i64)
            .map(|node| if node < DEPTH as i64 { value(node) } else { last })
            .collect()
    };
    let modes: Vec<&str> = (0..DEPTH).map(|_| "BRANCH_LEQ").chain(["LEAF"]).collect();
    vec![
        pool("MaxPool"),
        pool("AveragePool"),
        pool("LpPool"),
        // Indices are read, and then looked at.
        (3 << 20, case("Gather", [floats(&[16]), ints(&[1 << 20], |_| 3)])),
        (
            2 * 3 * 512 * 512,
            case(
                "GRU",
                [
                    floats(&[1, 1, 512]),
                    floats(&[1, 3 * 512, 512]),
                    floats(&[1, 3 * 512, 512]),
                ],
            )
            .int("hidden_size", 512),
        ),
        // One window.
        (
            400 * 400,
            case("MaxPool", [floats(&[1, 1, 400, 400])]).ints("kernel_shape", &[400, 400]),
        ),
        (1 << 20, case("GlobalAveragePool", [floats(&[1, 1, 1 << 20])])),
        (1 << 20, case("GlobalMaxPool", [floats(&[1, 1, 1 << 20])])),
        (
            256 * 32 * 128,
            case("LRN", [floats(&[1, 256, 32])]).int("size", 256),
        ),
        (
            4096 * 1024,
            case(
                "CausalConvWithState",
                [floats(&[1, 1, 4096]), floats(&[1, 1, 1024])],
            ),
        ),
        (
            64 * 4 * 64 * 64 * 2,
            case(
                "MoE",
                [
                    floats(&[64, 64]),
                    floats(&[64, 4]),
                    floats(&[4, 64, 64]),
                    floats(&[4, 64]),
                    floats(&[4, 64, 64]),
                ],
            )
            .of(MS)
            .int("k", 4),
        ),
        (
            64 * 64 * 1024,
            case(
                "MatMulNBits",
                [floats(&[64, 1024]), bytes(&[64, 32, 16]), floats(&[64 * 32])],
            )
            .of(MS)
            .int("K", 1024)
            .int("N", 64)
            .int("block_size", 32),
        ),
        (
            20_000 * 64,
            case("TfIdfVectorizer", [ints(&[20_000], |_| 1)])
                .string("mode", "TF")
                .ints("pool_int64s", &[1; 64])
                .ints("ngram_counts", &[0; 64])
                .ints("ngram_indexes", &[0])
                .int("min_gram_length", 64)
                .int("max_gram_length", 64)
                .int("max_skip_count", 0),
        ),
        (
            1000 * DEPTH,
            case("TreeEnsembleRegressor", [floats(&[1000, 1])])
                .of(ML)
                .ints("nodes_treeids", &nodes(0, &|_| 0))
                .ints("nodes_nodeids", &nodes(DEPTH as i64, &|node| node))
                .ints("nodes_featureids", &nodes(0, &|_| 0))
                .floats("nodes_values", &vec![1.0; DEPTH + 1])
                .strings("nodes_modes", &modes)
                .ints("nodes_truenodeids", &nodes(0, &|node| node + 1))
                .ints("nodes_falsenodeids", &nodes(0, &|node| node + 1))
                .ints("target_treeids", &[0])
                .ints("target_nodeids", &[DEPTH as i64])
                .ints("target_ids", &[0])
                .floats("target_weights", &[1.0])
                .int("n_targets", 1),
        ),
        (
            1 << 20,
            case(
                "SoftmaxCrossEntropyLoss",
                [floats(&[1, 1 << 20]), ints(&[1], |_| 0)],
            ),
        ),
        (
            1 << 18,
            case("DynamicTimeWarping", [floats(&[1, 1 << 18])]).of(MS),
        ),
        (
            1 << 18,
            case("GridSample", [floats(&[1, 1 << 16, 1, 1]), floats(&[1, 1, 1, 2])]),
        ),
    ]
}

/// How a run of it ends under this control.
fn run(case: &Case, control: &RunControl) -> Result<(), String> {
    let operator = case.build()?;
    let inputs: Vec<Option<ValueRef<'_>>> = case
        .inputs
        .iter()
        .map(|input| input.as_ref().map(|tensor| ValueRef::Tensor(tensor.view())))
        .collect();
    let mut workspace = Workspace::new(Workers::alone(), None);
    let ran = ending::bounded(control, || {
        Ok(workspace.run(&*operator, case.outputs, &inputs, |_| true, &mut []))
    });
    match ran {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(ComponentErrorKind::Cancelled) => Err("cancelled".into()),
        Err(ComponentErrorKind::DeadlineExceeded) => Err("late".into()),
        Err(other) => Err(other.to_string()),
    }
}

#[test]
fn one_operator_ends_where_it_is() {
    let cancel = CancelToken::new();
    cancel.request();
    let cancelled = RunControl {
        cancel: Some(cancel),
        deadline: None,
    };
    let late = RunControl {
        cancel: None,
        deadline: Some(std::time::Instant::now()),
    };
    let all = [elementwise(), chosen_and_moved(), sums(), transforms(), texts()];
    let mut wrong = Vec::new();
    for (at, case) in all.iter().flatten().enumerate() {
        // It is one that runs where nothing ends it.
        let ended = [&RunControl::default(), &cancelled, &late].map(|control| run(case, control));
        if ended != [Ok(()), Err("cancelled".into()), Err("late".into())] {
            wrong.push(format!("{at} {}: {ended:?}", case.op_type));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// One look is not enough: it may be long after.
#[test]
fn operators_look_as_they_go_on() {
    let control = RunControl {
        cancel: Some(CancelToken::new()),
        deadline: None,
    };
    let mut wrong = Vec::new();
    for (elements, case) in long() {
        let before = ending::looked();
        let ran = run(&case, &control);
        let (looks, expected) = (ending::looked() - before, elements / ending::BETWEEN);
        // Some elements cost more than others.
        if ran.is_err() || looks < expected / 2 + 1 {
            wrong.push(format!("{}: {ran:?}, {looks} looks of {expected}", case.op_type));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
