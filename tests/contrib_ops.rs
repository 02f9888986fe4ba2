//! Operators of ONNX Runtime that ONNX does not have (and so has no node tests for). The
//! expected values are what ONNX Runtime computed: contrib_ops.py prints them.
#![cfg(feature = "native")]

use std::sync::Arc;

use half::{bf16, f16};
use oxpipe::component::ModelSource;
use oxpipe::native::element::Element;
use oxpipe::native::tensor::Tensor;
use oxpipe::native::{NativeOptions, NativeSession};
use oxpipe_test_support::onnx_writer::{BFLOAT16, FLOAT, FLOAT16, Model, Node};

const X: [f32; 16] = [
    -1.25, 0.5, -0.5, 1.25, 0.25, -0.75, 1.0, 0.0, -1.0, 0.75, -0.25, -1.25, 0.5, -0.5, 1.25, 0.25,
];
const GAMMA: [f32; 4] = [0.75, 2.5, 1.5, 3.25];

/// The inputs of contrib_ops.py, by name.
fn input(name: &str) -> (Vec<usize>, Vec<f32>) {
    let scaled = |by: f32| X.iter().map(|x| x * by).collect::<Vec<_>>();
    match name {
        "x" => (vec![2, 2, 4], X.to_vec()),
        "skip" => {
            let half = scaled(0.5);
            (vec![2, 2, 4], [&half[8..], &half[..8]].concat())
        }
        "row" => (vec![1, 2, 4], scaled(0.5)[..8].to_vec()),
        "gamma" => (vec![4], GAMMA.to_vec()),
        "beta" => (vec![4], GAMMA.iter().map(|g| (g - 2.0) / 4.0).collect()),
        "bias" => (vec![4], GAMMA.iter().map(|g| (g - 2.0) / 8.0).collect()),
        "tiny" => (vec![2, 2, 4], scaled(1.0 / 65536.0)),
        other => panic!("no input {other}"),
    }
}

/// Outputs of a model of this one node, with elements of `T`, as (dims, values).
fn run<T: Element>(
    data_type: i32,
    node: Node,
    inputs: &[&str],
    outputs: &[(&str, i32)],
    from_f32: fn(f32) -> T,
) -> Vec<Tensor> {
    let mut model = Model::new().opset("", 20).opset("com.microsoft", 1).node(node);
    for name in inputs {
        model = model.input(name, data_type, "[...]");
    }
    for &(name, ty) in outputs {
        model = model.output(name, ty, "[...]");
    }
    let source = ModelSource::Memory {
        label: "test".into(),
        model: Arc::new(model.encode()),
        external: Vec::new(),
    };
    let mut session = NativeSession::load("", &source, &NativeOptions::default()).unwrap();
    let tensors: Vec<(&str, Tensor)> = inputs
        .iter()
        .map(|&name| {
            let (dims, values) = input(name);
            let values: Vec<T> = values.into_iter().map(from_f32).collect();
            (name, Tensor::from_slice(&dims, &values).unwrap())
        })
        .collect();
    let views: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| (*name, tensor.view()))
        .collect();
    let names: Vec<&str> = outputs.iter().map(|output| output.0).collect();
    session.run_tensors(&views, &names).unwrap()
}

fn assert_close<T: Element>(
    found: &Tensor,
    dims: &[usize],
    expected: &[f32],
    tolerance: f32,
    to_f32: fn(T) -> f32,
) {
    assert_eq!(found.dims(), dims);
    let found: Vec<f32> = found
        .view()
        .slice::<T>()
        .unwrap()
        .iter()
        .map(|&x| to_f32(x))
        .collect();
    assert_eq!(found.len(), expected.len());
    for (i, (found_at, expected_at)) in found.iter().zip(expected).enumerate() {
        let close = (found_at - expected_at).abs() <= tolerance * expected_at.abs().max(0.01);
        assert!(close, "element {i} of {found:?}, expected {expected:?}");
    }
}

const F32_TOLERANCE: f32 = 2e-6;
/// Half a unit in the last place, and a little for where ONNX Runtime's f32 value rounds.
const F16_TOLERANCE: f32 = 5.2e-4;
const BF16_TOLERANCE: f32 = 4.2e-3;

/// One f32 output.
fn check(node: Node, inputs: &[&str], expected: &[f32; 16]) {
    let found = run::<f32>(FLOAT, node, inputs, &[("y", FLOAT)], |x| x);
    assert_close::<f32>(&found[0], &[2, 2, 4], expected, F32_TOLERANCE, |x| x);
}

/// All four outputs, in f32 and in the half types; the statistics are f32 always.
fn check_skip_norm(
    node: Node,
    inputs: &[&str],
    y: &[f32; 16],
    mean: &[f32; 4],
    inverse: &[f32; 4],
    sum: &[f32; 16],
) {
    let outputs = |ty| [("y", ty), ("mean", FLOAT), ("inverse", FLOAT), ("sum", ty)];
    let row = [2, 2, 1];
    let whole = [2, 2, 4];
    let found = run::<f32>(FLOAT, node.clone(), inputs, &outputs(FLOAT), |x| x);
    assert_close::<f32>(&found[0], &whole, y, F32_TOLERANCE, |x| x);
    assert_close::<f32>(&found[1], &row, mean, F32_TOLERANCE, |x| x);
    assert_close::<f32>(&found[2], &row, inverse, F32_TOLERANCE, |x| x);
    assert_close::<f32>(&found[3], &whole, sum, F32_TOLERANCE, |x| x);

    let found = run::<f16>(FLOAT16, node.clone(), inputs, &outputs(FLOAT16), f16::from_f32);
    assert_close::<f16>(&found[0], &whole, y, F16_TOLERANCE, f16::to_f32);
    assert_close::<f32>(&found[2], &row, inverse, F32_TOLERANCE, |x| x);
    assert_close::<f16>(&found[3], &whole, sum, F16_TOLERANCE, f16::to_f32);

    let found = run::<bf16>(BFLOAT16, node, inputs, &outputs(BFLOAT16), bf16::from_f32);
    assert_close::<bf16>(&found[0], &whole, y, BF16_TOLERANCE, bf16::to_f32);
    assert_close::<f32>(&found[1], &row, mean, F32_TOLERANCE, |x| x);
    assert_close::<bf16>(&found[3], &whole, sum, BF16_TOLERANCE, bf16::to_f32);
}

const SUM: [f32; 16] = [
    -1.90625, 0.9375, -0.6875, 0.78125, 0.34375, -0.9375, 1.5625, 0.28125, -1.78125, 1.0625, -0.5625,
    -0.46875, 0.46875, -0.8125, 1.6875, 0.40625,
];

#[test]
fn skip_layer_normalization() {
    let inputs = ["x", "skip", "gamma", "beta", "bias"];
    let node = Node::new(
        "SkipLayerNormalization",
        &inputs,
        &["y", "mean", "inverse", "sum"],
    )
    .domain("com.microsoft")
    .float("epsilon", 1e-3);
    let y = [
        -1.4009407,
        2.6109447,
        -0.72968924,
        3.1075082,
        -0.28600872,
        -3.4071712,
        1.9943027,
        0.19770443,
        -1.31084,
        3.8397536,
        -0.31073767,
        0.2118921,
        -0.28600872,
        -3.4071712,
        1.9943027,
        0.19770443,
    ];
    let mean = [-0.21875, 0.3125, -0.4375, 0.4375];
    let inverse = [0.8600025, 1.1302948, 0.99060094, 1.1302948];
    check_skip_norm(node, &inputs, &y, &mean, &inverse, &SUM);
}

#[test]
fn skip_layer_normalization_with_one_skip_for_the_whole_batch() {
    let inputs = ["x", "row", "gamma"];
    let node = Node::new("SkipLayerNormalization", &inputs, &["y"]).domain("com.microsoft");
    let y = [
        -0.98479825,
        1.3130643,
        -0.78783864,
        4.267459,
        0.15,
        -3.5,
        2.1,
        -0.65,
        -0.95,
        3.8333333,
        -0.1,
        -0.65,
        0.15,
        -3.5,
        2.1,
        -0.65,
    ];
    check(node, &inputs, &y);
}

/// With inputs this small, 1e-5 in place of the default 1e-12 would be off by two digits.
#[test]
fn the_default_epsilon_of_the_skip_normalizations() {
    let inputs = ["tiny", "tiny", "gamma"];
    let model_inputs = ["tiny", "gamma"];
    let y = [
        -0.9842154,
        1.3122871,
        -0.7873723,
        4.2649336,
        0.14979427,
        -3.4951994,
        2.0971196,
        -0.6491084,
        -0.541693,
        3.8119135,
        0.36112863,
        -3.3905964,
        0.14979427,
        -3.4951994,
        2.0971196,
        -0.64910847,
    ];
    let node = Node::new("SkipLayerNormalization", &inputs, &["y"]).domain("com.microsoft");
    check(node, &model_inputs, &y);
    let y = [
        -0.9842154, 1.3122871, -0.7873723, 4.2649336, 0.29378623, -2.9378624, 2.3502898, 0.0, -0.8396026,
        2.0990064, -0.4198013, -4.5478473, 0.5139766, -1.7132554, 2.569883, 1.113616,
    ];
    let node = Node::new("SkipSimplifiedLayerNormalization", &inputs, &["y"]).domain("com.microsoft");
    check(node, &model_inputs, &y);
}

#[test]
fn skip_simplified_layer_normalization() {
    let inputs = ["x", "skip", "gamma", "bias"];
    let node = Node::new(
        "SkipSimplifiedLayerNormalization",
        &inputs,
        &["y", "mean", "inverse", "sum"],
    )
    .domain("com.microsoft")
    .float("epsilon", 1e-3);
    let y = [
        -1.2083385,
        1.9808828,
        -0.87158835,
        2.1459563,
        0.27476746,
        -2.4978862,
        2.497886,
        0.9741756,
        -1.2142515,
        2.4143012,
        -0.76689565,
        -1.3846728,
        0.35619748,
        -2.05803,
        2.564622,
        1.3377194,
    ];
    let inverse = [0.84517664, 1.0657647, 0.9089134, 1.013184];
    check_skip_norm(node, &inputs, &y, &[0.0; 4], &inverse, &SUM);
}

/// The optional inputs in the middle and the optional outputs can be left out.
#[test]
fn skip_layer_normalization_for_its_sum_alone() {
    let inputs = ["x", "skip", "gamma", "", "bias"];
    let node = Node::new("SkipLayerNormalization", &inputs, &["", "", "", "sum"]).domain("com.microsoft");
    let found = run::<f32>(
        FLOAT,
        node,
        &["x", "skip", "gamma", "bias"],
        &[("sum", FLOAT)],
        |x| x,
    );
    assert_close::<f32>(&found[0], &[2, 2, 4], &SUM, 0.0, |x| x);
}

#[test]
fn simplified_layer_normalization() {
    let inputs = ["x", "gamma"];
    let node = Node::new("SimplifiedLayerNormalization", &inputs, &["y", "inverse"])
        .int("axis", -1)
        .float("epsilon", 1e-3);
    let found = run::<f32>(FLOAT, node, &inputs, &[("y", FLOAT), ("inverse", FLOAT)], |x| x);
    let y = [
        -0.9842554, 1.3123405, -0.7874043, 4.2651067, 0.2938128, -2.938128, 2.3505025, 0.0, -0.8396414,
        2.0991035, -0.4198207, -4.5480576, 0.5140122, -1.7133741, 2.570061, 1.1136931,
    ];
    assert_close::<f32>(&found[0], &[2, 2, 4], &y, F32_TOLERANCE, |x| x);
    let inverse = [1.0498724, 1.5670017, 1.1195219, 1.3706993];
    assert_close::<f32>(&found[1], &[2, 2, 1], &inverse, F32_TOLERANCE, |x| x);
}

#[test]
fn gelu() {
    let y = [
        -0.13206221,
        0.34573123,
        -0.15426877,
        1.1179378,
        0.14967658,
        -0.16997051,
        0.8413447,
        0.0,
        -0.15865526,
        0.5800295,
        -0.10032342,
        -0.13206221,
        0.34573123,
        -0.15426877,
        1.1179378,
        0.14967658,
    ];
    let node = Node::new("Gelu", &["x"], &["y"]).domain("com.microsoft");
    check(node.clone(), &["x"], &y);
    let found = run::<f16>(FLOAT16, node, &["x"], &[("y", FLOAT16)], f16::from_f32);
    assert_close::<f16>(&found[0], &[2, 2, 4], &y, F16_TOLERANCE, f16::to_f32);
}

#[test]
fn quick_gelu() {
    let node = || Node::new("QuickGelu", &["x"], &["y"]).domain("com.microsoft");
    let y = [
        -0.13306566,
        0.3503884,
        -0.14961158,
        1.1169343,
        0.15119965,
        -0.16360995,
        0.84579575,
        0.0,
        -0.15420422,
        0.5863901,
        -0.09880035,
        -0.13306566,
        0.3503884,
        -0.14961158,
        1.1169343,
        0.15119965,
    ];
    check(node(), &["x"], &y);
    let y = [
        -0.16620529,
        0.33958936,
        -0.16041066,
        1.0837947,
        0.14816666,
        -0.18381375,
        0.81757444,
        0.0,
        -0.18242556,
        0.56618625,
        -0.10183335,
        -0.16620529,
        0.33958936,
        -0.16041066,
        1.0837947,
        0.14816666,
    ];
    check(node().float("alpha", 1.5), &["x"], &y);
}
