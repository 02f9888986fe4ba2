//! What several integration tests share.

pub mod bounded_allocator;
pub mod onnx_writer;
pub mod onnxruntime;
