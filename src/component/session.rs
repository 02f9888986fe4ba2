use std::fmt;
use std::mem::MaybeUninit;

use smallvec::SmallVec;

use super::cache::{CacheRoom, InPlaceCache, check_caches};
use super::tensor::{AlignedBytes, ComponentTensor, Shape, TensorView, byte_len};
use super::{
    ComponentError, ComponentErrorKind, ComponentIo, DataType, Port, PortType, RunControl, count_copy,
};

/// Who runs a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    Native,
    Ort,
}

impl Backend {
    pub fn name(self) -> &'static str {
        match self {
            Backend::Native => "native",
            Backend::Ort => "ort",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A named input of a call, borrowed until the call returns.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub name: &'a str,
    pub value: TensorView<'a>,
}

/// A named output of a call, and the room that the caller has for it.
pub struct Output<'a> {
    pub name: &'a str,
    /// Where the backend should write the value, if it fits; whatever it stores there are
    /// initialised bytes. After an error the content is unspecified.
    pub room: Option<&'a mut [MaybeUninit<u8>]>,
    /// The exact shape that the caller knows the value will have (a KV cache grows by the
    /// tokens fed). Only a promise that holds may be given: a backend may use it to hand
    /// the room to its library before it runs.
    pub known_shape: Option<&'a [i64]>,
    /// Only the last row, along the last dim, is of use: a backend may leave out those before
    /// it, and each dim but the last is then 1. One that does not gives all of them.
    pub last_row: bool,
    /// The value is the past that lies here, and rows behind it, or the past with some
    /// overwritten: only for outputs that
    /// [`in_place_caches`](ComponentSession::in_place_caches) lists, or
    /// [`overwrites`](ComponentSession::overwrites) says it of.
    pub cache: Option<CacheRoom<'a>>,
    /// Set by a call that succeeds.
    pub result: OutputResult,
}

impl<'a> Output<'a> {
    /// An output for which the backend makes the memory.
    pub fn alloc(name: &'a str) -> Self {
        Output {
            name,
            room: None,
            known_shape: None,
            last_row: false,
            cache: None,
            result: OutputResult::Pending,
        }
    }

    /// An output to be written into `room` if it fits.
    pub fn into_room(name: &'a str, room: &'a mut [MaybeUninit<u8>]) -> Self {
        Output {
            room: Some(room),
            ..Output::alloc(name)
        }
    }

    /// Room for `bytes` bytes of elements of `dtype`, or `None` when it is too small, not
    /// given, or not aligned for the elements. What backends call to choose.
    pub fn fitting_room(&mut self, dtype: DataType, bytes: usize) -> Option<&mut [MaybeUninit<u8>]> {
        let room = self.room.as_deref_mut()?;
        let aligned = room.as_ptr().addr().is_multiple_of(dtype.size());
        (aligned && room.len() >= bytes).then(|| &mut room[..bytes])
    }
}

/// Where an output went.
#[derive(Debug)]
pub enum OutputResult {
    /// The call did not get so far.
    Pending,
    /// It fills the first `byte_len(dtype, shape)` bytes of the room.
    InRoom { dtype: DataType, shape: Shape },
    /// It is in the memory of its cache: the past, and behind that the rows that make it this
    /// shape, or one buffer of this shape.
    InCache { dtype: DataType, shape: Shape },
    /// There was no room, or it was too small.
    Owned(ComponentTensor),
}

impl OutputResult {
    pub fn dtype_and_shape(&self) -> Option<(DataType, &[i64])> {
        match self {
            OutputResult::Pending => None,
            OutputResult::InRoom { dtype, shape } | OutputResult::InCache { dtype, shape } => {
                Some((*dtype, shape))
            }
            OutputResult::Owned(tensor) => Some((tensor.dtype(), tensor.shape())),
        }
    }
}

/// The inputs and outputs of one of several calls that are made together.
pub struct Call<'c, 'a> {
    pub inputs: &'c [Input<'a>],
    pub outputs: &'c mut [Output<'a>],
}

/// One graph, loaded and ready to run, on whatever runs it.
///
/// Callers use [`run`](#method.run), which is defined on `dyn ComponentSession`: it checks
/// the request against [`io`](Self::io) and then calls [`execute`](Self::execute).
/// Between calls a session keeps nothing that a caller could observe.
pub trait ComponentSession: Send {
    /// The component's name, for messages; empty when it has none.
    fn name(&self) -> &str;

    fn backend(&self) -> Backend;

    fn io(&self) -> &ComponentIo;

    /// The model's metadata (`ModelProto.metadata_props`, then producer and so on), in order.
    fn metadata(&self) -> &[(String, String)];

    /// The caches that a run makes longer in place when it is given their memory. None, if the
    /// backend does not say.
    fn in_place_caches(&self) -> &[InPlaceCache] {
        &[]
    }

    /// Whether a run takes this input and this output as [one buffer](CacheRoom::whole), which it
    /// overwrites in part.
    fn overwrites(&self, past: usize, present: usize) -> bool {
        let _ = (past, present);
        false
    }

    /// Whether a cache that the package says grows by each step's tokens may be given as
    /// [one buffer](CacheRoom::whole) instead, longer than the tokens are: the component goes by
    /// lengths that it is told, and not by how long the past is.
    fn takes_buffer(&self, past: usize, present: usize) -> bool {
        let _ = (past, present);
        false
    }

    /// Shapes that these inputs will give, without running: one per entry of `outputs`,
    /// `None` where only a run can tell. The request has been checked.
    fn output_shapes(
        &mut self,
        inputs: &[(&str, &[i64])],
        outputs: &[&str],
    ) -> Result<Vec<Option<Shape>>, ComponentError>;

    /// Runs a request that [`run`](#method.run) has checked: every name is a port's, each
    /// at most once, dtypes, ranks and static dims are right, required inputs are there,
    /// input bytes are aligned for their element type.
    ///
    /// Computes only what the asked outputs need. Writes each output into its room when it
    /// fits ([`Output::fitting_room`]) and sets its `result`. On an error the session is
    /// as good as before.
    fn execute(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        control: &RunControl,
    ) -> Result<(), ComponentError>;

    /// Whether [`execute_together`](Self::execute_together) does better than one call after the other.
    fn joins_calls(&self) -> bool {
        false
    }

    /// Runs several requests, each as [`execute`](Self::execute) would, with the same results bit by
    /// bit, and says of each how it went. `None` if these cannot be run together: then nothing has been
    /// done, and they are to be run one after the other.
    fn execute_together(
        &mut self,
        calls: &mut [Call<'_, '_>],
        control: &RunControl,
    ) -> Option<Result<(), ComponentError>> {
        let _ = (calls, control);
        None
    }
}

impl dyn ComponentSession + '_ {
    /// Runs the graph on named inputs for any subset of its outputs.
    ///
    /// Unaligned inputs are copied once (and counted, see
    /// [`copied_bytes`](super::copied_bytes)); aligned ones are not copied.
    pub fn run(
        &mut self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        control: &RunControl,
    ) -> Result<(), ComponentError> {
        let name = self.name();
        let caches = outputs.iter().filter_map(|output| output.cache.as_ref());
        let pasts = caches.map(|cache| (cache.past(), cache.dtype(), cache.shape()));
        check_inputs(
            self.io(),
            inputs
                .iter()
                .map(|input| (input.name, input.value.dtype(), input.value.shape()))
                .chain(pasts),
        )
        .and_then(|()| check_outputs(self.io(), outputs.iter().map(|output| output.name)))
        .map_err(|kind| ComponentError::new(name, kind))?;
        check_caches(self, outputs)?;
        if inputs.iter().all(|input| input.value.is_aligned()) {
            return self.execute(inputs, outputs, control);
        }
        let bad_tensor = |input: &Input<'_>, source| {
            let port = input.name.to_owned();
            ComponentError::new(name, ComponentErrorKind::BadTensor { port, source })
        };
        let mut copies = Vec::with_capacity(inputs.len());
        for input in inputs {
            let bytes = input.value.bytes();
            copies.push(match input.value.is_aligned() {
                true => None,
                false => {
                    count_copy(bytes.len());
                    Some(AlignedBytes::try_from_slice(bytes).map_err(|source| bad_tensor(input, source))?)
                }
            });
        }
        let mut aligned = Vec::with_capacity(inputs.len());
        for (input, copy) in inputs.iter().zip(&copies) {
            let bytes = copy.as_deref().unwrap_or(input.value.bytes());
            let value = TensorView::new(input.value.dtype(), input.value.shape(), bytes)
                .map_err(|source| bad_tensor(input, source))?;
            aligned.push(Input { value, ..*input });
        }
        self.execute(&aligned, outputs, control)
    }

    /// Runs several calls, together where the backend can. Each has the result that it has
    /// [alone](#method.run), bit by bit.
    pub fn run_together(
        &mut self,
        calls: &mut [Call<'_, '_>],
        control: &RunControl,
    ) -> Vec<Result<(), ComponentError>> {
        if calls.len() > 1 && self.joins_calls() && calls.iter().all(|call| self.is_ready(call)) {
            match self.execute_together(calls, control) {
                None => {}
                Some(Ok(())) => return calls.iter().map(|_| Ok(())).collect(),
                // Which of them it was is found out below, and the others are run.
                Some(Err(error))
                    if matches!(
                        error.kind(),
                        ComponentErrorKind::Cancelled | ComponentErrorKind::DeadlineExceeded
                    ) =>
                {
                    let failed = |_| {
                        Err(ComponentError::new(
                            error.component.as_str(),
                            stopped(error.kind()),
                        ))
                    };
                    return (0..calls.len()).map(failed).collect();
                }
                Some(Err(_)) => {}
            }
        }
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            results.push(self.run(call.inputs, call.outputs, control));
        }
        results
    }

    /// Whether a call needs no copies and passes the checks.
    fn is_ready(&self, call: &Call<'_, '_>) -> bool {
        let caches = call.outputs.iter().filter_map(|output| output.cache.as_ref());
        let pasts = caches.map(|cache| (cache.past(), cache.dtype(), cache.shape()));
        let inputs = call.inputs.iter();
        let given = inputs.map(|input| (input.name, input.value.dtype(), input.value.shape()));
        check_inputs(self.io(), given.chain(pasts)).is_ok()
            && check_outputs(self.io(), call.outputs.iter().map(|output| output.name)).is_ok()
            && check_caches(self, call.outputs).is_ok()
            && call.inputs.iter().all(|input| input.value.is_aligned())
    }

    /// Bytes that each asked output will take for inputs of these types and shapes, `None`
    /// where only a run can tell. Checks the request as [`run`](#method.run) does.
    pub fn output_bound(
        &mut self,
        inputs: &[(&str, DataType, &[i64])],
        outputs: &[&str],
    ) -> Result<Vec<Option<(DataType, Shape)>>, ComponentError> {
        let name = self.name().to_owned();
        let fail = |kind| ComponentError::new(name.as_str(), kind);
        check_inputs(self.io(), inputs.iter().copied()).map_err(fail)?;
        check_outputs(self.io(), outputs.iter().copied()).map_err(fail)?;
        let shapes: Vec<_> = inputs.iter().map(|(name, _, shape)| (*name, *shape)).collect();
        let found = self.output_shapes(&shapes, outputs)?;
        Ok(outputs
            .iter()
            .zip(found)
            .map(|(name, shape)| {
                let dtype = self.io().output(name).and_then(Port::dtype)?;
                let shape = shape?;
                byte_len(dtype, &shape).ok()?;
                Some((dtype, shape))
            })
            .collect())
    }
}

fn stopped(kind: &ComponentErrorKind) -> ComponentErrorKind {
    match kind {
        ComponentErrorKind::DeadlineExceeded => ComponentErrorKind::DeadlineExceeded,
        _ => ComponentErrorKind::Cancelled,
    }
}

fn check_inputs<'a>(
    io: &ComponentIo,
    inputs: impl Iterator<Item = (&'a str, DataType, &'a [i64])>,
) -> Result<(), ComponentErrorKind> {
    let mut ports = Named::new(&io.inputs);
    for (name, dtype, shape) in inputs {
        match ports.find(name) {
            Some((port, Times::First)) => check_value(port, dtype, shape)?,
            Some((_, Times::Again)) => {
                return Err(ComponentErrorKind::DuplicateInput {
                    port: name.to_owned(),
                });
            }
            None => {
                return Err(ComponentErrorKind::UnknownInput {
                    port: name.to_owned(),
                    known: names(&io.inputs),
                });
            }
        }
    }
    match ports.unnamed().find(|port| !port.optional) {
        None => Ok(()),
        Some(port) => Err(ComponentErrorKind::MissingInput {
            port: port.name.clone(),
            expected: format!("{} {}", port.ty, port.display_dims()),
        }),
    }
}

fn check_outputs<'a>(
    io: &ComponentIo,
    outputs: impl Iterator<Item = &'a str>,
) -> Result<(), ComponentErrorKind> {
    let mut ports = Named::new(&io.outputs);
    for name in outputs {
        match ports.find(name) {
            Some((port, Times::First)) => {
                if let PortType::Other(found) = &port.ty {
                    return Err(ComponentErrorKind::UnsupportedPortType {
                        port: name.to_owned(),
                        found: found.clone(),
                    });
                }
            }
            Some((_, Times::Again)) => {
                return Err(ComponentErrorKind::DuplicateOutput {
                    port: name.to_owned(),
                });
            }
            None => {
                return Err(ComponentErrorKind::UnknownOutput {
                    port: name.to_owned(),
                    known: names(&io.outputs),
                });
            }
        }
    }
    Ok(())
}

/// Ports that a request names one after the other, mostly in their order: a decoder has 50.
struct Named<'p> {
    ports: &'p [Port],
    is_named: SmallVec<[bool; 64]>,
    next: usize,
}

enum Times {
    First,
    Again,
}

impl<'p> Named<'p> {
    fn new(ports: &'p [Port]) -> Self {
        Named {
            ports,
            is_named: SmallVec::from_elem(false, ports.len()),
            next: 0,
        }
    }

    /// The port of this name, and whether it has been named before.
    fn find(&mut self, name: &str) -> Option<(&'p Port, Times)> {
        let is_it = |port: &Port| port.name == name;
        let index = match self.ports.get(self.next).is_some_and(is_it) {
            true => self.next,
            false => self.ports.iter().position(is_it)?,
        };
        self.next = index + 1;
        let before = std::mem::replace(self.is_named.get_mut(index)?, true);
        let times = if before { Times::Again } else { Times::First };
        Some((self.ports.get(index)?, times))
    }

    fn unnamed(&self) -> impl Iterator<Item = &'p Port> {
        let ports = self.ports.iter().zip(&self.is_named);
        ports.filter(|(_, named)| !**named).map(|(port, _)| port)
    }
}

/// Whether a value of this type and shape may stand at an input: what [`run`] checks of each.
///
/// [`run`]: trait.ComponentSession.html#method.run
pub(crate) fn check_value(port: &Port, dtype: DataType, shape: &[i64]) -> Result<(), ComponentErrorKind> {
    match &port.ty {
        PortType::Other(found) => {
            return Err(ComponentErrorKind::UnsupportedPortType {
                port: port.name.clone(),
                found: found.clone(),
            });
        }
        PortType::Tensor(expected) if *expected != dtype => {
            return Err(ComponentErrorKind::WrongDtype {
                port: port.name.clone(),
                found: dtype,
                expected: *expected,
            });
        }
        PortType::Tensor(_) => {}
    }
    let Some(dims) = &port.dims else { return Ok(()) };
    if dims.len() != shape.len() {
        return Err(ComponentErrorKind::WrongRank {
            port: port.name.clone(),
            found: shape.into(),
            expected: port.display_dims().to_string(),
            expected_rank: dims.len(),
        });
    }
    for (axis, (dim, &size)) in dims.iter().zip(shape).enumerate() {
        if let super::Dim::Fixed(fixed) = *dim
            && fixed != size
        {
            return Err(ComponentErrorKind::WrongDim {
                port: port.name.clone(),
                found: shape.into(),
                expected: port.display_dims().to_string(),
                axis,
                expected_dim: fixed,
            });
        }
    }
    Ok(())
}

fn names(ports: &[Port]) -> Vec<String> {
    ports.iter().map(|port| port.name.clone()).collect()
}
