//! oxpipe runs generative ONNX models made of several components, each on a native Rust
//! runtime or on ONNX Runtime, behind a C ABI.
//!
//! From Rust, start with [`runtime::Runtime`], open a [`pipeline::Pipeline`] and drive a
//! [`pipeline::Run`].

// C's names are the interface's.
#[allow(non_camel_case_types)]
mod capi;
pub mod component;
pub mod generation;
pub mod media;
#[cfg(feature = "native")]
pub mod native;
#[cfg(feature = "ort")]
pub mod ort;
pub mod package;
mod panics;
pub mod pipeline;
pub mod reserve;
pub mod runtime;
pub mod text;

/// Of the libraries that programs in other languages link; a Rust program has its own.
#[cfg(feature = "reserve")]
#[global_allocator]
static ALLOCATOR: reserve::Reserve = reserve::Reserve::new(std::alloc::System);
