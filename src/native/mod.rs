//! The embedded runtime: a graph executor for one ONNX model on CPU.
//!
//! From the outside: [`NativeSession::load`] gives a
//! [`ComponentSession`](crate::component::ComponentSession). What lives here, bottom-up:
//!
//! - [`element`], [`tensor`], [`value`]: ONNX's element types, tensors inside the runtime, and
//!   sequences and optionals of them
//! - [`operator`], [`infer`], [`output`], [`node`]: what a kernel is and what it sees
//! - `kernels`, [`registry`], [`arity`]: the operators, the one table that lists them, and how
//!   many inputs and outputs each may have
//! - `model`: files, protobuf, external data
//! - `packed_cache`: packed weights that are kept in a file for the next start
//! - `graph`: from a model to a plan for given input shapes
//! - `executor`, `workspace`, `plans`: a run of a plan; memory and plans that are kept from
//!   run to run
//! - [`workers`]: the threads that kernels share their loops with
//! - `control`: operators that run graphs of their own
//! - `loaded`, `session`: the above together, and behind the seam
//!
//! `unsafe` is in [`tensor`] (bytes seen as elements), [`output`] (memory that may be
//! uninitialised), [`operator`] (scratch memory), [`workers`] (loops lent to other threads) and
//! `model` (mapped files), and nowhere else.

pub mod arity;
mod control;
pub mod element;
mod ending;
mod executor;
mod graph;
pub mod infer;
mod joined;
mod kernels;
mod loaded;
mod meeting;
mod model;
pub mod node;
pub mod operator;
pub mod output;
mod packed_cache;
mod plans;
pub mod registry;
mod report;
mod session;
mod strings;
pub mod tensor;
pub mod value;
pub mod workers;
mod working;
mod workspace;

pub use self::graph::{DisabledPasses, KvCacheDtype, UnknownKvCacheDtype, UnknownPass};
pub use self::model::{ModelFiles, UnknownModelFiles, read_tensor_proto, read_value_proto};
pub use self::packed_cache::{PackedCache, PackedCacheReport, UnknownPlace};
pub use self::report::{ModelReport, OperatorUse, RunEstimate, report};
pub use self::session::NativeSession;

use self::workers::Workers;
use crate::component::{RunControl, Trace};

/// Settings of a native session.
#[derive(Clone, Debug)]
pub struct NativeOptions {
    /// Threads that runs may use, the caller's included; results do not depend on it. Sessions
    /// may share them.
    pub workers: Workers,
    /// Graph passes that are left out.
    pub disabled_passes: DisabledPasses,
    /// Where packed weights are kept for the next start.
    pub packed_cache: PackedCache,
    /// How KV caches are kept.
    pub kv_cache_dtype: KvCacheDtype,
    /// How the model's files get into memory.
    pub model_files: ModelFiles,
    /// Where each operator that runs is written down; without one that costs nothing.
    pub trace: Option<Trace>,
    /// What may end the loading before it is done; runs are given what may end them.
    pub control: RunControl,
}

impl Default for NativeOptions {
    /// The caller's thread alone.
    fn default() -> Self {
        NativeOptions {
            workers: Workers::alone(),
            disabled_passes: DisabledPasses::default(),
            packed_cache: PackedCache::default(),
            kv_cache_dtype: KvCacheDtype::default(),
            model_files: ModelFiles::default(),
            trace: None,
            control: RunControl::default(),
        }
    }
}
