//! What several integration tests share.

pub mod onnx_writer;
pub mod onnxruntime;
