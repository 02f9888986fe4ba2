//! The operators of com.microsoft against ONNX Runtime, on random inputs over their attributes.
//!
//! Every case is a model of one node that both backends run in this process. Seeds are fixed, so
//! a run is the same everywhere; a failing case is shrunk by proptest and printed.
//!
//! Needs the library: `ORT_DYLIB_PATH`, or what scripts/fetch-onnxruntime.sh fetched.

mod exact;
mod experts;
mod fused;
mod group_query_attention;
#[allow(dead_code)] // standard_random uses more of it.
mod harness;
mod layers;
mod moved;
mod multi_head_attention;
mod norms;
mod packed_attention;
mod quantized;
mod quantized_weights;
mod rotary;
mod state;
