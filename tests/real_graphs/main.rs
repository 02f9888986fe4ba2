//! Graphs that other projects ship, with real inputs: the native runtime's outputs are ONNX
//! Runtime's, to 1e-4 of the largest. scripts/fetch-real-graphs.sh fetches them.

mod audio;
mod embeddings;
mod harness;
mod image;
mod text;
