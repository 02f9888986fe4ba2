//! Models of one element type, written the way exporters do.

use half::{bf16, f16};
use oxpipe::native::element::ElementType;
use oxpipe_test_support::onnx_writer::{Graph, Model, Node, Tensor};

use crate::harness::{Case, typed};

/// The element types that fused operators compute, and how close they must come to the nodes
/// that they replace, which round at every step.
pub const TYPES: [ElementType; 4] = [
    ElementType::Float32,
    ElementType::Float64,
    ElementType::Float16,
    ElementType::Bfloat16,
];

pub fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> Node {
    Node::new(op, inputs, outputs)
}

/// A tensor of a model.
pub fn constant(ty: ElementType, name: &str, dims: &[i64], values: &[f64]) -> Tensor {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|&value| match ty {
            ElementType::Float64 => value.to_le_bytes().to_vec(),
            ElementType::Float16 => f16::from_f64(value).to_le_bytes().to_vec(),
            ElementType::Bfloat16 => bf16::from_f64(value).to_le_bytes().to_vec(),
            _ => (value as f32).to_le_bytes().to_vec(),
        })
        .collect();
    Tensor::raw(name, ty.code(), dims, &bytes)
}

/// A vector of numbers around 1.
pub fn weights(ty: ElementType, name: &str, dims: &[i64]) -> Tensor {
    let count: i64 = dims.iter().product();
    let values: Vec<f64> = (0..count)
        .map(|i| 0.5 + ((i * 37 + 11) % 17) as f64 / 16.0)
        .collect();
    constant(ty, name, dims, &values)
}

/// Scalars of a model: a name and a number each.
pub fn scalars(mut graph: Graph, ty: ElementType, numbers: &[(&str, f64)]) -> Graph {
    for &(name, number) in numbers {
        graph = graph.initializer(constant(ty, name, &[], &[number]));
    }
    graph
}

/// Numbers as exporters of f16 and f32 models write them: with the digits of the type.
pub fn model(ty: ElementType, dims: &str) -> Model {
    Model::new()
        .opset("com.microsoft", 1)
        .input("x", ty.code(), dims)
        .output("y", ty.code(), dims)
}

pub fn case(ty: ElementType, model: Model, dims: &[usize]) -> Case {
    Case::new(model, &[("x", typed(ty, 7, dims))], &["y"])
}
