//! ONNX Runtime as a backend: finding the library, and sessions on it.
//!
//! What lives here: the search for the library and its checks (`search`, `process`,
//! `elf`, `library`), reading what a model declares (`model`, `declared`, `in_place`, `wire`), a session's
//! load (`session`), a run (`run`, with `dims` for shapes known beforehand and `interrupt`
//! for cancelling), and the C API with errors and ownership as types (`api`, `failure`).
//!
//! [`OrtLibrary`], [`OrtSession`], [`OrtSearch`] and [`OrtOptions`] may be used from outside;
//! sessions run through [`ComponentSession`](crate::component::ComponentSession). Nothing
//! of ONNX Runtime is called, nor any function of the `ort` crate, which would panic, before
//! a library was found and checked; an `OrtLibrary` is the proof.
//!
//! The library is loaded when first asked for, stays for the life of the process, prints
//! nothing and sends nothing. Its environment is never released: destructors of a library at
//! the exit of a process come in no order that one could rely on.

mod api;
mod declared;
mod dims;
mod elf;
mod failure;
mod in_place;
mod interrupt;
mod library;
mod model;
mod process;
mod run;
mod search;
mod session;
mod wire;

pub use library::OrtLibrary;
pub use search::OrtSearch;
pub use session::{OptimizationLevel, OrtOptions, OrtSession};
