//! Sessions on ONNX Runtime.
//!
//! Needs the library: `ORT_DYLIB_PATH`, or what scripts/fetch-onnxruntime.sh fetched.
#![cfg(feature = "ort")]

mod control;
mod exit;
mod harness;
mod in_place;
mod models;
mod outputs;
mod values;
