//! BatchNormalization of what a Conv gives, both with constant weights, goes into those:
//!
//!   y = (conv(x, W) + c - mean) * s + b, s = scale / sqrt(var + epsilon)
//!     = conv(x, W') + c',    W'[m, ...] = W[m, ...] s[m],    c'[m] = (c[m] - mean[m]) s[m] + b[m]
//!
//! Inference only: not in training mode, without the outputs of training, nothing else reads
//! the Conv. The same function in exact arithmetic; the new weights are computed in f64 and
//! rounded once: within 1e-5 of the largest output for f32, 2^-7 for f16, 2^-4 for bf16.

use super::super::ValueId;
use super::super::draft::{Draft, NewNode, NodeId};
use super::pattern::{element_type, is_float, numbers, tensor_of};
use crate::native::node::Attribute;
use crate::native::tensor::Tensor;

/// The attributes of Conv.
const CONV: [&str; 6] = [
    "auto_pad",
    "dilations",
    "group",
    "kernel_shape",
    "pads",
    "strides",
];

pub(super) fn conv_bn(draft: &mut Draft, id: NodeId) -> bool {
    let Some(found) = find(draft, id) else {
        return false;
    };
    let name = draft.name(found.conv);
    let weights = draft.add_constant(&found.weights);
    let bias = draft.add_constant(&found.bias);
    let new = NewNode {
        domain: "",
        op_type: "Conv",
        version: found.version,
        attributes: found.attributes,
        inputs: [Some(found.x), Some(weights), Some(bias)].into_iter().collect(),
        outputs: [Some(found.y)].into_iter().collect(),
    };
    draft.replace(&name, vec![new])
}

struct Found {
    conv: NodeId,
    version: i64,
    attributes: Vec<(&'static str, Attribute)>,
    x: ValueId,
    y: ValueId,
    weights: Tensor,
    bias: Tensor,
}

fn find(draft: &Draft, id: NodeId) -> Option<Found> {
    let norm = draft.node(id).filter(|node| node.is("BatchNormalization"))?;
    let y = norm.output(0)?;
    let is_inference = norm.node.outputs.iter().flatten().count() == 1
        && norm.definition.int_or("training_mode", 0) == 0
        && norm.definition.int_or("spatial", 1) == 1;
    let middle = norm.input(0).filter(|&middle| draft.is_read_once(middle))?;
    let conv_id = draft.producer_id(middle)?;
    let conv = draft.node(conv_id).filter(|node| node.is("Conv"))?;
    if !is_inference || !is_float(draft, middle) {
        return None;
    }
    let weights = draft.constant(conv.input(1)?)?;
    let &[channels, ..] = weights.dims() else {
        return None;
    };
    let vector = |value: ValueId| {
        let tensor = draft.constant(value)?;
        (tensor.dims() == [channels]).then(|| numbers(tensor))?
    };
    let scale = vector(norm.input(1)?)?;
    let shift = vector(norm.input(2)?)?;
    let mean = vector(norm.input(3)?)?;
    let variance = vector(norm.input(4)?)?;
    let bias = match conv.input(2) {
        Some(bias) => vector(bias)?,
        None => vec![0.0; channels],
    };
    let epsilon = match norm.definition.attribute("epsilon") {
        None => f64::from(1e-5f32),
        Some(Attribute::Float(epsilon)) => (*epsilon).into(),
        Some(_) => return None,
    };
    let factors: Vec<f64> = scale
        .iter()
        .zip(&variance)
        .map(|(scale, variance)| scale / (variance + epsilon).sqrt())
        .collect();
    if factors.iter().any(|factor| !factor.is_finite()) {
        return None;
    }
    let ty = element_type(draft, middle)?;
    let mut elements = numbers(weights)?;
    let of_channel = elements.len().checked_div(channels).filter(|&size| size > 0)?;
    for (elements, factor) in elements.chunks_mut(of_channel).zip(&factors) {
        elements.iter_mut().for_each(|element| *element *= factor);
    }
    let new_bias: Vec<f64> = (bias.iter().zip(&mean))
        .zip(factors.iter().zip(&shift))
        .map(|((bias, mean), (factor, shift))| (bias - mean) * factor + shift)
        .collect();
    let attribute = |name| Some((name, conv.definition.attribute(name)?.clone()));
    Some(Found {
        conv: conv_id,
        version: conv.definition.since,
        attributes: CONV.into_iter().filter_map(attribute).collect(),
        x: conv.input(0)?,
        y,
        weights: tensor_of(ty, weights.dims(), &elements)?,
        bias: tensor_of(ty, &[channels], &new_bias)?,
    })
}
