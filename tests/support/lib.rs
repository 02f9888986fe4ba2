//! What several integration tests share.

pub mod bounded_allocator;
pub mod counting_allocator;
pub mod cpu_time;
pub mod fixtures;
pub mod onnx_writer;
pub mod onnxruntime;
pub mod wav;
