use std::ffi::{CStr, CString};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use ort::sys;

use super::api::{Failure, Owned, tensor_info, text};
use super::declared;
use super::dims::Symbols;
use super::in_place::Pair;
use super::interrupt::{DeadlineThread, Terminator};
use super::library::OrtLibrary;
use super::model;
use crate::component::{
    Backend, ComponentError, ComponentErrorKind, ComponentIo, ComponentSession, DataType, Dim, Input,
    ModelSource, Output, Port, PortType, RunControl, Shape,
};

#[derive(Clone, Debug, Default)]
pub struct OrtOptions {
    /// Intra-op threads; 0 lets ONNX Runtime choose.
    pub threads: usize,
    pub inter_op_threads: Option<usize>,
    pub memory_arena: Option<bool>,
    pub memory_pattern: Option<bool>,
    pub optimization: Option<OptimizationLevel>,
    /// Entries of a session's configuration.
    pub entries: Vec<(String, String)>,
    /// Execution providers and their options; one that this library lacks is left out.
    pub providers: Vec<(String, Vec<(String, String)>)>,
}

/// How far ONNX Runtime rewrites a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizationLevel {
    None,
    Basic,
    Extended,
    All,
}

/// One graph on ONNX Runtime.
pub struct OrtSession {
    pub(super) library: OrtLibrary,
    pub(super) name: String,
    pub(super) io: ComponentIo,
    metadata: Vec<(String, String)>,
    refused: Vec<String>,
    /// Inputs and the outputs that may overwrite them, by index.
    overwritten: Vec<(usize, usize)>,
    /// Those of them that may be longer than what they hold.
    buffers: Vec<(usize, usize)>,
    pub(super) inputs: Vec<CString>,
    pub(super) outputs: Vec<OutputPort>,
    /// Before the session, because it must go first.
    pub(super) deadline_thread: Option<DeadlineThread>,
    pub(super) terminator: Arc<Terminator>,
    /// Shared with the values that it made, which may outlive this.
    pub(super) session: Arc<Owned<sys::OrtSession>>,
}

/// What is known of an output beside its [`Port`].
pub(super) struct OutputPort {
    pub name: CString,
    /// The declared dims, or what ONNX Runtime inferred where it knows more.
    pub dims: Option<Vec<Dim>>,
    /// The output is an input too. The library then hands the input's value on, and leaves
    /// memory that was given for the output as it was.
    pub is_input: bool,
    /// Cleared when a run gave another shape than these dims had promised.
    pub dims_hold: bool,
}

impl OrtSession {
    /// Loads a graph.
    ///
    /// # Errors
    /// [`Io`](ComponentErrorKind::Io) when a file cannot be read,
    /// [`InvalidModel`](ComponentErrorKind::InvalidModel) when it is no valid model,
    /// [`Backend`](ComponentErrorKind::Backend) when ONNX Runtime lacks what it needs.
    pub fn load(
        library: &OrtLibrary,
        name: &str,
        source: &ModelSource,
        options: &OrtOptions,
    ) -> Result<Self, ComponentError> {
        Self::load_kind(*library, name, source, options).map_err(|kind| ComponentError::new(name, kind))
    }

    fn load_kind(
        library: OrtLibrary,
        name: &str,
        source: &ModelSource,
        options: &OrtOptions,
    ) -> Result<Self, ComponentErrorKind> {
        let declared = model::read(source)?;
        let external = model::check_external(source, &declared.external)?;
        let failed = |failure| load_error(source, failure);
        let (options, refused) = session_options(library, options).map_err(failed)?;
        let session = model::create_session(library, source, &external, &options)?;
        let mut io = declared.io;
        let outputs = output_ports(library, &session, &mut io).map_err(failed)?;
        let inputs = io
            .inputs
            .iter()
            .map(|port| c_name(&port.name))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let by_index = |pair: &Pair| {
            let past = io.inputs.iter().position(|port| port.name == pair.past)?;
            let present = io.outputs.iter().position(|port| port.name == pair.present)?;
            Some((past, present))
        };
        let pairs = declared.overwritten.iter();
        let overwritten = pairs.clone().filter_map(by_index).collect();
        let buffers = pairs
            .filter(|pair| pair.told_length)
            .filter_map(by_index)
            .collect();
        let run_options = run_options(library).map_err(failed)?;
        Ok(OrtSession {
            library,
            name: name.to_owned(),
            io,
            metadata: declared.metadata,
            refused,
            overwritten,
            buffers,
            inputs,
            outputs,
            deadline_thread: None,
            terminator: Arc::new(Terminator::new(library.api(), run_options)),
            session: Arc::new(session),
        })
    }

    /// Execution providers that were asked for and that this session does without, and why.
    pub fn refused_providers(&self) -> &[String] {
        &self.refused
    }

    /// The sizes that the names of input dims have for inputs of these shapes.
    pub(super) fn symbols<'a>(&'a self, inputs: impl Iterator<Item = (&'a str, &'a [i64])>) -> Symbols<'a> {
        let mut symbols = Symbols::default();
        for (name, shape) in inputs {
            if let Some(dims) = self.io.input(name).and_then(|port| port.dims.as_deref()) {
                symbols.bind(dims, shape);
            }
        }
        symbols
    }

    /// The shape that an output's dims come to.
    pub(super) fn resolve(&self, index: usize, symbols: &Symbols<'_>) -> Option<Shape> {
        let port = self.outputs.get(index).filter(|port| port.dims_hold)?;
        symbols.resolve(port.dims.as_deref()?)
    }
}

impl ComponentSession for OrtSession {
    fn name(&self) -> &str {
        &self.name
    }

    fn backend(&self) -> Backend {
        Backend::Ort
    }

    fn io(&self) -> &ComponentIo {
        &self.io
    }

    fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// The kernel finds both in one memory, and writes what is new alone.
    fn overwrites(&self, past: usize, present: usize) -> bool {
        self.overwritten.contains(&(past, present))
            && self.io.inputs.get(past).map(Port::dtype) == self.io.outputs.get(present).map(Port::dtype)
    }

    fn takes_buffer(&self, past: usize, present: usize) -> bool {
        self.buffers.contains(&(past, present)) && self.overwrites(past, present)
    }

    fn output_shapes(
        &mut self,
        inputs: &[(&str, &[i64])],
        outputs: &[&str],
    ) -> Result<Vec<Option<Shape>>, ComponentError> {
        let symbols = self.symbols(inputs.iter().copied());
        Ok(outputs
            .iter()
            .map(|name| {
                let index = self.io.outputs.iter().position(|port| port.name == *name)?;
                self.resolve(index, &symbols)
            })
            .collect())
    }

    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        control: &RunControl,
    ) -> Result<(), ComponentError> {
        super::run::run(self, inputs, outputs, control)
            .map_err(|kind| ComponentError::new(self.name.as_str(), kind))
    }
}

impl fmt::Debug for OrtSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrtSession")
            .field("name", &self.name)
            .field("library", &self.library)
            .field("io", &self.io)
            .finish_non_exhaustive()
    }
}

/// An error of a call that loads a model.
pub(super) fn load_error(source: &ModelSource, failure: Failure) -> ComponentErrorKind {
    if failure.is_not_implemented() {
        return ComponentErrorKind::Backend {
            backend: "ONNX Runtime",
            message: failure.message,
        };
    }
    ComponentErrorKind::InvalidModel {
        path: source.path().map(ToOwned::to_owned),
        message: format!("ONNX Runtime: {}", failure.message),
    }
}

fn c_name(name: &str) -> Result<CString, Failure> {
    CString::new(name).map_err(|_| Failure::new(format!("the name of port {name:?} holds a NUL")))
}

fn session_options(
    library: OrtLibrary,
    options: &OrtOptions,
) -> Result<(Owned<sys::OrtSessionOptions>, Vec<String>), Failure> {
    let api = library.api();
    // SAFETY: the place written to is the one that `make` gives.
    let made = api.make(api.0.ReleaseSessionOptions, |api, place| unsafe {
        (api.CreateSessionOptions)(place)
    })?;
    let threads = i32::try_from(options.threads).unwrap_or(i32::MAX);
    let raw = made.as_ptr();
    // SAFETY: the options live and nobody else uses them yet.
    unsafe {
        api.check((api.0.SetIntraOpNumThreads)(raw, threads))?;
        // One operator after the other, each on all threads: a decoder's graph is a chain.
        api.check((api.0.SetSessionExecutionMode)(
            raw,
            sys::ExecutionMode::ORT_SEQUENTIAL,
        ))?;
        // The same tokens on every run, at the price of a few atomic-add kernels.
        api.check((api.0.SetDeterministicCompute)(raw, true))?;
        // For an environment that somebody else made with another level; see library.rs.
        api.check((api.0.SetSessionLogSeverityLevel)(raw, LOG_FATAL))?;
    }
    set_choices(&made, library, options)?;
    let entries: [(&CStr, &CStr); 2] = [
        // Threads of the pool spin for new work while a run is under way, which saves tens
        // of microseconds an operator, but not after it: they would take the cores from the
        // component that runs next, natively or in another session.
        (c"session.force_spinning_stop", c"1"),
        // Otherwise bytes that look like ONNX Runtime's own format are taken as such.
        (c"session.load_model_format", c"ONNX"),
    ];
    for (key, value) in entries {
        // SAFETY: as above; the strings are constants.
        api.check(unsafe { (api.0.AddSessionConfigEntry)(raw, key.as_ptr(), value.as_ptr()) })?;
    }
    let mut refused = Vec::new();
    for (name, provider) in &options.providers {
        if let Err(failure) = append_provider(&made, library, name, provider) {
            refused.push(format!("{name}: {}", failure.message));
        }
    }
    Ok((made, refused))
}

/// What a package may choose.
fn set_choices(
    made: &Owned<sys::OrtSessionOptions>,
    library: OrtLibrary,
    options: &OrtOptions,
) -> Result<(), Failure> {
    let api = library.api();
    let raw = made.as_ptr();
    if let Some(threads) = options.inter_op_threads {
        let threads = i32::try_from(threads).unwrap_or(i32::MAX);
        // SAFETY: the options live and nobody else uses them yet; so below.
        api.check(unsafe { (api.0.SetInterOpNumThreads)(raw, threads) })?;
    }
    if let Some(kept) = options.memory_arena {
        // SAFETY: as above.
        api.check(unsafe {
            match kept {
                true => (api.0.EnableCpuMemArena)(raw),
                false => (api.0.DisableCpuMemArena)(raw),
            }
        })?;
    }
    if let Some(planned) = options.memory_pattern {
        // SAFETY: as above.
        api.check(unsafe {
            match planned {
                true => (api.0.EnableMemPattern)(raw),
                false => (api.0.DisableMemPattern)(raw),
            }
        })?;
    }
    if let Some(level) = options.optimization {
        let level = match level {
            OptimizationLevel::None => sys::GraphOptimizationLevel::ORT_DISABLE_ALL,
            OptimizationLevel::Basic => sys::GraphOptimizationLevel::ORT_ENABLE_BASIC,
            OptimizationLevel::Extended => sys::GraphOptimizationLevel::ORT_ENABLE_EXTENDED,
            OptimizationLevel::All => sys::GraphOptimizationLevel::ORT_ENABLE_ALL,
        };
        // SAFETY: as above.
        api.check(unsafe { (api.0.SetSessionGraphOptimizationLevel)(raw, level) })?;
    }
    for (key, value) in &options.entries {
        let (key, value) = (c_text(key)?, c_text(value)?);
        // SAFETY: as above; the strings live for the call.
        api.check(unsafe { (api.0.AddSessionConfigEntry)(raw, key.as_ptr(), value.as_ptr()) })?;
    }
    Ok(())
}

fn append_provider(
    made: &Owned<sys::OrtSessionOptions>,
    library: OrtLibrary,
    name: &str,
    provider: &[(String, String)],
) -> Result<(), Failure> {
    let api = library.api();
    let name = c_text(name)?;
    let texts = provider
        .iter()
        .map(|(key, value)| Ok((c_text(key)?, c_text(value)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let keys: Vec<_> = texts.iter().map(|(key, _)| key.as_ptr()).collect();
    let values: Vec<_> = texts.iter().map(|(_, value)| value.as_ptr()).collect();
    // SAFETY: the options live and nobody else uses them yet; the strings and the lists of them, of
    // one length, live for the call.
    api.check(unsafe {
        (api.0.SessionOptionsAppendExecutionProvider)(
            made.as_ptr(),
            name.as_ptr(),
            keys.as_ptr(),
            values.as_ptr(),
            texts.len(),
        )
    })
}

fn c_text(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure::new(format!("{text:?} holds a NUL")))
}

/// OrtLoggingLevel as the functions for options take it.
const LOG_FATAL: i32 = sys::OrtLoggingLevel::ORT_LOGGING_LEVEL_FATAL as i32;

fn run_options(library: OrtLibrary) -> Result<Owned<sys::OrtRunOptions>, Failure> {
    let api = library.api();
    // SAFETY: the place written to is the one that `make` gives.
    let made = api.make(api.0.ReleaseRunOptions, |api, place| unsafe {
        (api.CreateRunOptions)(place)
    })?;
    // SAFETY: the options live and nobody else uses them yet.
    api.check(unsafe { (api.0.RunOptionsSetRunLogSeverityLevel)(made.as_ptr(), LOG_FATAL) })?;
    Ok(made)
}

/// Names and dims of the outputs; also gives the ports that declare no type the one that
/// ONNX Runtime inferred.
fn output_ports(
    library: OrtLibrary,
    session: &Owned<sys::OrtSession>,
    io: &mut ComponentIo,
) -> Result<Vec<OutputPort>, Failure> {
    let ComponentIo { inputs, outputs } = io;
    outputs
        .iter_mut()
        .enumerate()
        .map(|(index, port)| {
            let inferred = inferred_type(library, session, index)?;
            if let (PortType::Other(found), Some((code, _))) = (&port.ty, &inferred)
                && found == declared::UNTYPED
            {
                port.ty = declared::port_type(*code);
            }
            Ok(OutputPort {
                name: c_name(&port.name)?,
                dims: known_dims(port, inferred.map(|(_, dims)| dims)),
                is_input: inputs.iter().any(|input| input.name == port.name),
                dims_hold: true,
            })
        })
        .collect()
}

/// The dims that say most. ONNX Runtime shows no dims both for a scalar and for a value of
/// unknown rank, so that an empty list counts only where the model declares one.
fn known_dims(port: &Port, inferred: Option<Vec<Dim>>) -> Option<Vec<Dim>> {
    let inferred = inferred.filter(|dims| !dims.is_empty());
    match (&port.dims, inferred) {
        (Some(declared), Some(inferred)) if declared.len() == inferred.len() => Some(
            declared
                .iter()
                .zip(inferred)
                .map(|(declared, inferred)| match (declared, inferred) {
                    (Dim::Symbol(_), Dim::Fixed(size)) => Dim::Fixed(size),
                    (Dim::Symbol(None), inferred) => inferred,
                    (declared, _) => declared.clone(),
                })
                .collect(),
        ),
        (Some(declared), _) => Some(declared.clone()),
        (None, inferred) => inferred,
    }
}

/// Element type code and dims of an output after ONNX Runtime's shape inference; `None` for
/// what is no tensor.
fn inferred_type(
    library: OrtLibrary,
    session: &Owned<sys::OrtSession>,
    index: usize,
) -> Result<Option<(i64, Vec<Dim>)>, Failure> {
    let api = library.api();
    // SAFETY: the session lives, and the place written to is the one that `make` gives.
    let type_info = api.make(api.0.ReleaseTypeInfo, |api, place| unsafe {
        (api.SessionGetOutputTypeInfo)(session.as_ptr(), index, place)
    })?;
    let mut info = ptr::null();
    // SAFETY: `type_info` lives to the end; what is borrowed from it here is read before.
    unsafe {
        api.check((api.0.CastTypeInfoToTensorInfo)(
            type_info.as_ptr(),
            &raw mut info,
        ))?;
        if info.is_null() {
            return Ok(None);
        }
        let (code, sizes) = tensor_info(api, info)?;
        let mut names = vec![ptr::null(); sizes.len()];
        api.check((api.0.GetSymbolicDimensions)(
            info,
            names.as_mut_ptr(),
            names.len(),
        ))?;
        let dims = sizes.into_iter().zip(names).map(|(size, name)| {
            if size >= 0 {
                return Dim::Fixed(size);
            }
            Dim::Symbol(Some(text(name)).filter(|name| !name.is_empty()))
        });
        Ok(Some((code, dims.collect())))
    }
}

/// The element type that a port carries.
pub(super) fn port_dtype(port: &Port) -> Result<DataType, ComponentErrorKind> {
    match &port.ty {
        PortType::Tensor(dtype) => Ok(*dtype),
        PortType::Other(found) => Err(ComponentErrorKind::UnsupportedPortType {
            port: port.name.clone(),
            found: found.clone(),
        }),
    }
}
