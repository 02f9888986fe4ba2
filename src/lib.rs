//! oxpipe runs generative ONNX models made of several components, each on a native Rust
//! runtime or on ONNX Runtime, behind a C ABI.

pub mod component;
#[cfg(feature = "native")]
pub mod native;
#[cfg(feature = "ort")]
pub mod ort;
