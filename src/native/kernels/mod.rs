//! Portable kernels, one file per operator family.
//!
//! Each file opens with the operator's equation, shapes and the versions of its
//! specification. Only the constructors are used from outside, by the registry, and of
//! `resident_cache` what caches of int8 look like. What
//! several families share: `number` (arithmetic of an element type), `dispatch` (from an
//! element type to a Rust type), `strided`, `elementwise` and `sums` (loops), `exponential`
//! (functions of many elements at once), `gemm` and `attend`
//! (the arithmetic of MatMul and Attention), `epilogue` (what is added to a product), `minifloat` and `convert` (of Cast), `dims`
//! and `infer` (axes and shapes), `inner` (operators that are defined by others).

pub(super) mod activation;
pub(super) mod affine_grid;
pub(super) mod arithmetic;
mod attend;
pub(super) mod attention;
pub(super) mod axis_norm;
mod beam_cache;
pub(super) mod bias_fusions;
pub(super) mod bias_gelu;
pub(super) mod bitwise;
mod block_quantized;
pub(super) mod bnb4;
pub(super) mod cast;
pub(super) mod causal_conv;
pub(super) mod channel_norm;
pub(super) mod channels_last;
pub(super) mod clip;
pub(super) mod col2im;
mod columns;
pub(super) mod compare;
pub(super) mod constant;
pub(super) mod contrib_group_norm;
pub(super) mod conv;
pub(super) mod conv_transpose;
mod convert;
mod convolve;
pub(super) mod crop_pad;
pub(super) mod cumulate;
pub(super) mod deform_conv;
pub(super) mod depth_space;
pub(super) mod determinant;
pub(super) mod dims;
mod dispatch;
pub(super) mod distances;
pub(super) mod dropout;
pub(super) mod dynamic_lstm;
pub(super) mod einsum;
mod elementwise;
pub(super) mod embed_norm;
#[cfg(test)]
mod endings;
pub(super) mod engram_gate;
mod epilogue;
mod exponential;
pub(super) mod feature;
mod fft;
pub(super) mod float_tests;
pub(super) mod fourier;
pub(super) mod fused_matmul;
mod gate_function;
pub(super) mod gated;
pub(super) mod gated_linear_unit;
pub(super) mod gather;
pub(super) mod gather_block_quantized;
pub(super) mod gather_nd;
mod gemm;
pub(super) mod general_matmul;
pub(super) mod grid_sample;
pub(super) mod group_query_attention;
mod half_precision;
pub(super) mod hyper_connection;
pub(super) mod image_decoder;
pub(super) mod infer;
mod inner;
pub(super) mod integer_products;
pub(super) mod inverse;
pub(super) mod join;
mod key_mask;
pub(super) mod label_encoder;
mod legacy_broadcast;
pub(super) mod linear_attention;
pub(super) mod linear_model;
pub(super) mod loss;
pub(super) mod matmul;
pub(super) mod matmul_nbits;
mod minifloat;
mod model_input;
pub(super) mod moe;
mod moves;
pub(super) mod multi_head_attention;
pub(super) mod named_trees;
pub(super) mod ngrams;
pub(super) mod norm;
mod number;
pub(super) mod one_hot;
pub(super) mod optional;
pub(super) mod order;
pub(super) mod packed_attention;
pub(super) mod packed_weights;
pub(super) mod pad;
pub(super) mod pool;
mod post_transform;
mod prepared_heads;
pub(super) mod projected_attention;
pub(super) mod q_attention;
pub(super) mod q_embed_norm;
pub(super) mod quantize;
mod quantized;
pub(super) mod quantized_matmul;
pub(super) mod random;
pub(super) mod rearrange;
pub(super) mod recurrent;
pub(super) mod reduce;
pub(super) mod reshape;
pub(super) mod resident_cache;
pub(super) mod resize;
mod resize_axis;
pub(super) mod roi;
pub(super) mod rotary;
pub(super) mod scaling;
pub(super) mod scatter;
mod score_bias;
pub(super) mod select;
pub(super) mod sequence;
pub(super) mod sequences;
pub(super) mod shape;
pub(super) mod signal;
mod simd;
pub(super) mod softmax;
pub(super) mod sparse_attention;
mod strided;
pub(super) mod string;
mod sums;
pub(super) mod suppression;
pub(super) mod tensor_scatter;
pub(super) mod through_floats;
pub(super) mod tile;
pub(super) mod tree_ensemble;
pub(super) mod triangle;
pub(super) mod unary;
pub(super) mod unique;
pub(super) mod unpool;
pub(super) mod variadic;
mod window;

use super::element::ElementType;
use super::operator::{OpError, Operator, RunContext};
use super::tensor::{Dims, TensorRef};

/// What a constructor returns.
type Built = Result<Box<dyn Operator>, OpError>;

fn unsupported(found: ElementType, expected: &'static str) -> OpError {
    OpError::WrongType {
        what: "input".into(),
        found,
        expected: expected.into(),
    }
}

fn wrong_attribute(name: &str, message: impl Into<String>) -> OpError {
    OpError::Attribute {
        name: name.to_owned(),
        message: message.into(),
    }
}

/// An attribute that must be there.
fn required_attribute<T>(name: &str, value: Option<T>) -> Result<T, OpError> {
    value.ok_or_else(|| wrong_attribute(name, "is missing"))
}

/// Inputs 0 and 1, of one type, and the shape that they broadcast to.
fn pair<'a>(cx: &RunContext<'a>) -> Result<(TensorRef<'a>, TensorRef<'a>, Dims), OpError> {
    let (a, b) = (cx.required(0)?, cx.required(1)?);
    same_type(&a, &b, 1)?;
    let dims = broadcast(a.dims(), b.dims())?;
    Ok((a, b, dims))
}

fn same_type(first: &TensorRef<'_>, other: &TensorRef<'_>, index: usize) -> Result<(), OpError> {
    if first.element_type() == other.element_type() {
        return Ok(());
    }
    Err(OpError::WrongType {
        what: format!("input {index}"),
        found: other.element_type(),
        expected: format!("{}, like the inputs before it", first.element_type()),
    })
}

fn broadcast(a: &[usize], b: &[usize]) -> Result<Dims, OpError> {
    strided::broadcast_dims(a, b)
        .ok_or_else(|| OpError::Message(format!("shapes {a:?} and {b:?} do not broadcast")))
}
