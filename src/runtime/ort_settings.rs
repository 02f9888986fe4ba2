/// What a package asks of the ONNX Runtime sessions that run its components. The native runtime
/// has no use for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrtSettings {
    /// Threads inside of an operator; the pipeline's option `threads` wins.
    pub threads: Option<usize>,
    /// Threads for operators at a time.
    pub inter_op_threads: Option<usize>,
    /// Whether memory is kept for later runs.
    pub memory_arena: Option<bool>,
    /// Whether the memory of a run is laid out by that of the run before.
    pub memory_pattern: Option<bool>,
    pub optimization: Option<OrtOptimization>,
    /// Keys and values of ONNX Runtime's own.
    pub entries: Vec<(String, String)>,
    /// Execution providers other than the CPU's, the first one first asked.
    pub providers: Vec<OrtProvider>,
}

/// How far ONNX Runtime rewrites a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrtOptimization {
    None,
    Basic,
    Extended,
    All,
}

/// An execution provider by ONNX Runtime's name for it, and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrtProvider {
    pub name: String,
    pub options: Vec<(String, String)>,
}
