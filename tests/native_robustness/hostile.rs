//! Small models that were made to harm: nodes that divide by sizes which may be zero, multiply sizes that
//! are as large as an attribute may be, or go over far more than they are given.

use std::time::Duration;

use oxpipe::component::ComponentError;
use oxpipe::native::tensor::Tensor;
use oxpipe_test_support::cpu_time::cpu_time;
use oxpipe_test_support::onnx_writer::{FLOAT, Model, Node, STRING};

use crate::{INPUTS, load};

/// What work in proportion to the model may take, on a busy machine and not optimised.
const AT_MOST: Duration = Duration::from_secs(1);

fn floats(dims: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..dims.iter().product()).map(|i: usize| i as f32).collect();
    Tensor::from_slice(dims, &values).unwrap()
}

/// The outputs of a node on these inputs, which are named as in [`INPUTS`].
fn run(node: Node, outputs: &[&str], inputs: &[(i32, Tensor)]) -> Result<Vec<Tensor>, ComponentError> {
    let mut model = Model::new()
        .ir_version(13)
        .opset("", 24)
        .opset("ai.onnx.ml", 3)
        .opset("com.microsoft", 1)
        .node(node);
    for output in outputs {
        model = model.graph(|graph| graph.untyped_output(output));
    }
    let mut given = Vec::new();
    for ((ty, tensor), name) in inputs.iter().zip(INPUTS) {
        model = model.input(name, *ty, "[...]");
        given.push((name, tensor.view()));
    }
    let mut session = load(model)?;
    let ran = session.run_tensors(&given, outputs);
    // It is good for more, whatever came of it.
    let again = session.run_tensors(&given, outputs);
    assert_eq!(ran.is_ok(), again.is_ok());
    ran
}

fn in_proportion<R>(what: &str, work: impl FnOnce() -> R) -> R {
    let start = cpu_time();
    let result = work();
    let spent = cpu_time() - start;
    assert!(spent < AT_MOST, "{what} took {spent:?}");
    result
}

/// Windows that are all padding, over an image without elements: there is no position to count in
/// column-major order.
#[test]
fn the_largest_of_padding_is_nowhere() {
    let node = Node::new("MaxPool", &["a"], &["y", "z"])
        .ints("kernel_shape", &[1, 1])
        .ints("pads", &[1, 1, 1, 1])
        .int("storage_order", 1);
    let found = run(node, &["y", "z"], &[(FLOAT, floats(&[1, 1, 0, 2]))]).unwrap();
    assert_eq!(found[1].dims(), [1, 1, 2, 4]);
    assert_eq!(found[1].view().slice::<i64>().unwrap(), [0; 8]);
}

/// Heads whose number times their size is more than can be counted.
#[test]
fn heads_that_cannot_be_counted_are_refused() {
    let heads = |q: i64, kv: i64| {
        Node::new("LinearAttention", &["a", "b", "c"], &["y", "z"])
            .domain("com.microsoft")
            .int("q_num_heads", q)
            .int("kv_num_heads", kv)
            .string("update_rule", "linear")
    };
    let shapes = [
        // d_k is 4, d_v is 0 or 16, and their products wrap to 0.
        (heads(1, 1 << 62), [4, 0, 0]),
        (heads(1 << 62, 1), [0, 0, 16]),
        (heads(1 << 62, 1 << 62), [0, 0, 0]),
    ];
    for (node, widths) in shapes {
        let inputs = widths.map(|width| (FLOAT, floats(&[1, 1, width])));
        let error = in_proportion("LinearAttention", || run(node, &["y"], &inputs)).unwrap_err();
        // 2^62 heads of 4 or 16 elements, or of none.
        assert!(
            error.to_string().contains("dims [4611686018427387904, "),
            "{error}"
        );
    }
}

/// X of 2^24 elements whose strides reach beyond 2^63.
#[test]
fn a_transposed_convolution_that_reaches_too_far_is_refused() {
    let node = Node::new("ConvTranspose", &["a", "b"], &["y"])
        .ints("strides", &[(1 << 40) - 1])
        .ints("output_shape", &[4]);
    let inputs = [(FLOAT, floats(&[1, 1, 1 << 24])), (FLOAT, floats(&[1, 1, 1]))];
    let error = run(node, &["y"], &inputs).unwrap_err();
    assert!(error.to_string().contains("more than is supported"), "{error}");
}

/// Each of many words is looked for among as many others.
#[test]
fn stop_words_are_found_in_proportion() {
    const COUNT: usize = 20_000;
    let words: Vec<String> = (0..COUNT).map(|i| format!("word {i:>6}")).collect();
    let stop_words: Vec<&str> = words.iter().map(String::as_str).collect();
    let node = Node::new("StringNormalizer", &["a"], &["y"])
        .int("is_case_sensitive", 1)
        .strings("stopwords", &stop_words);
    let others = (0..COUNT).map(|i| format!("more {i:>6}")).collect();
    let x = Tensor::from_strings(&[COUNT], others).unwrap();
    let found = in_proportion("StringNormalizer", || run(node, &["y"], &[(STRING, x)])).unwrap();
    assert_eq!(found[0].dims(), [COUNT]);
}

/// Half of many experts are chosen.
#[test]
fn experts_are_chosen_in_proportion() {
    const EXPERTS: usize = 1 << 14;
    let node = Node::new("MoE", &["a", "b", "c", "", "d"], &["y"])
        .domain("com.microsoft")
        .int("k", EXPERTS as i64 / 2)
        .string("activation_type", "identity");
    let router: Vec<f32> = (0..EXPERTS).map(|e| (e % 2) as f32 * 100.0).collect();
    let ones = |dims: &[usize]| Tensor::from_slice(dims, &vec![1f32; dims.iter().product()]).unwrap();
    let inputs = [
        (FLOAT, ones(&[1, 1])),
        (FLOAT, Tensor::from_slice(&[1, EXPERTS], &router).unwrap()),
        (FLOAT, ones(&[EXPERTS, 1, 1])),
        (FLOAT, ones(&[EXPERTS, 1, 1])),
    ];
    let found = in_proportion("MoE", || run(node, &["y"], &inputs)).unwrap();
    // All that are chosen have the same share, and together 1.
    let sum = found[0].view().slice::<f32>().unwrap()[0];
    assert!((sum - 1.0).abs() < 1e-3, "{sum}");
}

/// One column, and many inputs without any.
#[test]
fn columns_that_are_not_there_are_joined_in_proportion() {
    const ROWS: usize = 1 << 16;
    let names: Vec<&str> = std::iter::once("a")
        .chain(std::iter::repeat_n("b", 2000))
        .collect();
    let node = Node::new("Concat", &names, &["y"]).int("axis", 1);
    let inputs = [(FLOAT, floats(&[ROWS, 1])), (FLOAT, floats(&[ROWS, 0]))];
    let found = in_proportion("Concat", || run(node, &["y"], &inputs)).unwrap();
    assert_eq!(
        found[0].view().slice::<f32>().unwrap(),
        inputs[0].1.view().slice::<f32>().unwrap()
    );
}
