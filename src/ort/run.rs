//! One run: the caller's bytes become ONNX Runtime's values, and its values the caller's.
//!
//! No input is copied. An output is written into the caller's room by the library itself
//! when its shape is known before the run: promised by the caller, or resolved from the
//! names of dims. Else the library makes the memory, and the value goes out as it is, or is
//! copied into the room if it fits there after all. A cache in one buffer is one memory for both
//! its input and its output.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use ort::sys;

use super::api::{Failure, Owned, element_type, tensor_info};
use super::failure::{self, ShapeClash};
use super::interrupt::Watch;
use super::session::{OrtSession, port_dtype};
use crate::component::{
    CacheRoom, ComponentErrorKind, ComponentTensor, DataType, Input, Output, OutputResult, RunControl, Shape,
    byte_len, count_copy,
};

type Kind = ComponentErrorKind;

pub(super) fn run(
    session: &mut OrtSession,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    control: &RunControl,
) -> Result<(), Kind> {
    if let Some(reason) = control.stop_reason() {
        return Err(reason);
    }
    if outputs.is_empty() {
        return Ok(());
    }
    let mut plan = plan(session, inputs, outputs)?;
    let mut feeds = feeds(session, inputs)?;
    feeds.add_buffers(session, outputs, &mut plan)?;
    let values = match call(session, &feeds, outputs, &plan, control)? {
        Ok(values) => values,
        Err(clash) => {
            // An exporter wrote names that do not hold. They are not trusted again: this
            // second run happens once in a session's life for each such output.
            let wrong = forget_resolved(session, outputs, &mut plan);
            if !wrong {
                return Err(broken_promise(outputs, &plan, &clash));
            }
            match call(session, &feeds, outputs, &plan, control)? {
                Ok(values) => values,
                Err(clash) => return Err(broken_promise(outputs, &plan, &clash)),
            }
        }
    };
    let lent = lent_memory(inputs, outputs, &plan);
    for ((output, planned), value) in outputs.iter_mut().zip(&plan).zip(values) {
        output.result = match value {
            Returned::InRoom(shape) if planned.buffer.is_some() => OutputResult::InCache {
                dtype: planned.dtype,
                shape,
            },
            Returned::InRoom(shape) => OutputResult::InRoom {
                dtype: planned.dtype,
                shape,
            },
            Returned::Value(value) => deliver(session, &lent, output, planned, value)?,
        };
    }
    Ok(())
}

/// The memory that is only ours for this call: what the inputs, the buffers and the rooms are.
fn lent_memory(inputs: &[Input<'_>], outputs: &mut [Output<'_>], plan: &[Planned]) -> Vec<Range<*const u8>> {
    let mut lent: Vec<_> = inputs
        .iter()
        .map(|input| input.value.bytes().as_ptr_range())
        .collect();
    for (output, planned) in outputs.iter_mut().zip(plan) {
        if let Some(Buffer { data, bytes }) = planned.buffer {
            let start = data.cast_const().cast::<u8>();
            lent.push(start..start.wrapping_add(bytes));
        } else if let Ok(Some(room)) = room(output, planned) {
            let Range { start, end } = room.as_ptr_range();
            lent.push(start.cast()..end.cast());
        }
    }
    lent
}

/// What is known of an asked output before the run.
struct Planned {
    /// Index among the session's outputs.
    index: usize,
    dtype: DataType,
    shape: Option<Shape>,
    /// The shape is the caller's promise, not ours.
    promised: bool,
    /// The library would not write it into given memory; see `OutputPort::is_input`.
    is_input: bool,
    /// The buffer that is its past too.
    buffer: Option<Buffer>,
}

/// Memory of the caller's, for an input and an output.
#[derive(Clone, Copy)]
struct Buffer {
    data: *mut c_void,
    bytes: usize,
}

fn plan(session: &OrtSession, inputs: &[Input<'_>], outputs: &[Output<'_>]) -> Result<Vec<Planned>, Kind> {
    let pasts = outputs.iter().filter_map(|output| output.cache.as_ref());
    let pasts = pasts.map(|cache| (cache.past(), cache.shape()));
    let given = inputs.iter().map(|input| (input.name, input.value.shape()));
    let symbols = session.symbols(given.chain(pasts));
    outputs
        .iter()
        .map(|output| {
            let index = position(session.io.outputs.iter().map(|port| &port.name), output.name);
            let (index, port) = index
                .and_then(|index| Some((index, session.io.outputs.get(index)?)))
                .ok_or_else(|| unknown_port(output.name))?;
            let known = output.cache.as_ref().map(CacheRoom::shape).or(output.known_shape);
            let shape = match known {
                Some(shape) => Some(Shape::from(shape)),
                None => session.resolve(index, &symbols),
            };
            Ok(Planned {
                index,
                dtype: port_dtype(port)?,
                shape,
                promised: known.is_some(),
                is_input: session.outputs.get(index).is_some_and(|port| port.is_input),
                buffer: None,
            })
        })
        .collect()
}

fn position<'n>(mut names: impl Iterator<Item = &'n String>, name: &str) -> Option<usize> {
    names.position(|known| known == name)
}

/// The request was checked against the ports before it came here.
fn unknown_port(name: &str) -> Kind {
    failure::backend(format!("the session has no port \"{name}\""))
}

/// Inputs as the library takes them: names and values over the caller's bytes.
struct Feeds {
    names: Vec<*const c_char>,
    values: Vec<Owned<sys::OrtValue>>,
}

impl Feeds {
    /// Adds the pasts that are their outputs' buffers, which are noted in the plan.
    fn add_buffers(
        &mut self,
        session: &OrtSession,
        outputs: &mut [Output<'_>],
        plan: &mut [Planned],
    ) -> Result<(), Kind> {
        for (output, planned) in outputs.iter_mut().zip(plan) {
            let Some(cache) = &mut output.cache else {
                continue;
            };
            let name = position(session.io.inputs.iter().map(|port| &port.name), cache.past())
                .and_then(|index| session.inputs.get(index))
                .ok_or_else(|| unknown_port(cache.past()))?;
            let (dtype, shape) = (cache.dtype(), cache.shape());
            let memory = cache.memory();
            let buffer = Buffer {
                data: memory.as_mut_ptr().cast(),
                bytes: memory.len(),
            };
            let made = tensor_over(session, dtype, shape, buffer.data, buffer.bytes);
            self.names.push(name.as_ptr());
            self.values.push(made.map_err(failure::run_error)?);
            planned.buffer = Some(buffer);
        }
        Ok(())
    }
}

fn feeds(session: &OrtSession, inputs: &[Input<'_>]) -> Result<Feeds, Kind> {
    let mut feeds = Feeds {
        names: Vec::with_capacity(inputs.len()),
        values: Vec::with_capacity(inputs.len()),
    };
    for input in inputs {
        let name = position(session.io.inputs.iter().map(|port| &port.name), input.name)
            .and_then(|index| session.inputs.get(index))
            .ok_or_else(|| unknown_port(input.name))?;
        let value = &input.value;
        // The library has one type for values to read and to write; it only reads inputs.
        let data = value.bytes().as_ptr().cast_mut().cast();
        let made = tensor_over(session, value.dtype(), value.shape(), data, value.bytes().len())
            .map_err(failure::run_error)?;
        feeds.names.push(name.as_ptr());
        feeds.values.push(made);
    }
    Ok(feeds)
}

/// A value over memory that is not the library's. Its user keeps the memory alive for as
/// long as the value.
fn tensor_over(
    session: &OrtSession,
    dtype: DataType,
    shape: &[i64],
    data: *mut c_void,
    bytes: usize,
) -> Result<Owned<sys::OrtValue>, Failure> {
    let api = session.library.api();
    let cpu = session.library.cpu_memory();
    // SAFETY: making the value reads the shape and notes the pointer; it does not read the
    // memory. The place written to is the one that `make` gives.
    api.make(api.0.ReleaseValue, |api, place| unsafe {
        (api.CreateTensorWithDataAsOrtValue)(
            cpu,
            data,
            bytes,
            shape.as_ptr(),
            shape.len(),
            element_type(dtype),
            place,
        )
    })
}

/// Where a run left an output.
enum Returned {
    InRoom(Shape),
    Value(Owned<sys::OrtValue>),
}

/// Runs once. The inner error is an output whose value has another shape than the memory
/// that it was given.
fn call(
    session: &mut OrtSession,
    feeds: &Feeds,
    outputs: &mut [Output<'_>],
    plan: &[Planned],
    control: &RunControl,
) -> Result<Result<Vec<Returned>, ShapeClash>, Kind> {
    let api = session.library.api();
    // Values over the callers' rooms, for those outputs that go there.
    let mut rooms = Vec::with_capacity(outputs.len());
    for (output, planned) in outputs.iter_mut().zip(plan) {
        rooms.push(room_value(session, output, planned)?);
    }
    let names: Vec<*const c_char> = plan
        .iter()
        .map(|planned| session.outputs.get(planned.index))
        .map(|port| port.map_or(ptr::null(), |port| port.name.as_ptr()))
        .collect();
    let fed: Vec<*const sys::OrtValue> = feeds
        .values
        .iter()
        .map(|value| value.as_ptr().cast_const())
        .collect();
    let mut made: Vec<*mut sys::OrtValue> = rooms
        .iter()
        .map(|room| room.as_ref().map_or(ptr::null_mut(), Owned::as_ptr))
        .collect();

    session.terminator.reset().map_err(failure::run_error)?;
    let watch = Watch::start(control, &session.terminator, &mut session.deadline_thread)
        .map_err(failure::run_error)?;
    // SAFETY: names and values are arrays of the given lengths, and all that they point to
    // lives for the call: names belong to the session, inputs are borrowed by our caller, a
    // room or a buffer is borrowed mutably by `outputs`, which nobody touches until the call is
    // over. A buffer is both an input and an output: the library's own way to say that an operator
    // writes over what it reads, and nothing of ours looks at it meanwhile.
    // `&mut session` makes this the session's only run. Shape and element type of a room's
    // value are within the room's bytes, and the library writes a given value only if the
    // result has that very shape.
    let status = unsafe {
        (api.0.Run)(
            session.session.as_ptr(),
            session.terminator.options(),
            feeds.names.as_ptr(),
            fed.as_ptr(),
            fed.len(),
            names.as_ptr(),
            names.len(),
            made.as_mut_ptr(),
        )
    };
    drop(watch);
    let result = api.check(status);

    // Whatever the library made is ours from here on, also after an error.
    let values: Vec<Option<Owned<sys::OrtValue>>> = made
        .into_iter()
        .zip(rooms)
        .map(|(value, room)| match room {
            Some(room) => Some(room),
            // SAFETY: the place held NULL before the call, so that a value there is a new
            // one that the library made for us.
            None => NonNull::new(value).map(|value| unsafe { Owned::from_raw(value, api.0.ReleaseValue) }),
        })
        .collect();
    if let Err(failure) = result {
        if session.terminator.is_terminated() {
            let reason = control.stop_reason();
            return Err(reason.unwrap_or(Kind::Cancelled));
        }
        return match ShapeClash::parse(&failure.message) {
            Some(clash) => Ok(Err(clash)),
            None => Err(failure::run_error(failure)),
        };
    }
    values
        .into_iter()
        .zip(outputs)
        .zip(plan)
        .map(|((value, output), planned)| {
            let value =
                value.ok_or_else(|| failure::backend(format!("output \"{}\" has no value", output.name)))?;
            if planned.buffer.is_none() && !goes_to_room(output, planned) {
                return Ok(Returned::Value(value));
            }
            let shape = planned.shape.clone().unwrap_or_default();
            Ok(Returned::InRoom(shape))
        })
        .collect::<Result<Vec<_>, Kind>>()
        .map(Ok)
}

/// The part of the room that an output of known shape fills, if it fits.
fn room<'o>(
    output: &'o mut Output<'_>,
    planned: &Planned,
) -> Result<Option<&'o mut [MaybeUninit<u8>]>, Kind> {
    let Some(shape) = &planned.shape else {
        return Ok(None);
    };
    match byte_len(planned.dtype, shape) {
        Ok(_) if planned.is_input => Ok(None),
        Ok(bytes) => Ok(output.fitting_room(planned.dtype, bytes)),
        // What a model says of itself may be absurd; the run will tell.
        Err(_) if !planned.promised => Ok(None),
        Err(source) => Err(Kind::BadTensor {
            port: output.name.to_owned(),
            source,
        }),
    }
}

fn goes_to_room(output: &mut Output<'_>, planned: &Planned) -> bool {
    matches!(room(output, planned), Ok(Some(_)))
}

fn room_value(
    session: &OrtSession,
    output: &mut Output<'_>,
    planned: &Planned,
) -> Result<Option<Owned<sys::OrtValue>>, Kind> {
    let (data, bytes) = match (planned.buffer, room(output, planned)?) {
        (Some(buffer), _) => (buffer.data, buffer.bytes),
        (None, Some(room)) => (room.as_mut_ptr().cast(), room.len()),
        (None, None) => return Ok(None),
    };
    let shape = planned.shape.as_deref().unwrap_or_default();
    tensor_over(session, planned.dtype, shape, data, bytes)
        .map(Some)
        .map_err(failure::run_error)
}

/// Drops the shapes that we resolved for outputs with room; whether there were any.
fn forget_resolved(session: &mut OrtSession, outputs: &mut [Output<'_>], plan: &mut [Planned]) -> bool {
    let mut any = false;
    for (output, planned) in outputs.iter_mut().zip(plan) {
        if planned.promised || !goes_to_room(output, planned) {
            continue;
        }
        planned.shape = None;
        any = true;
        if let Some(port) = session.outputs.get_mut(planned.index) {
            port.dims_hold = false;
        }
    }
    any
}

fn broken_promise(outputs: &[Output<'_>], plan: &[Planned], clash: &ShapeClash) -> Kind {
    let output = outputs
        .iter()
        .zip(plan)
        .find(|(_, planned)| planned.promised && planned.shape.as_deref() == Some(&clash.given[..]))
        .map_or("?", |(output, _)| output.name);
    wrong_promise(output, &clash.given, &clash.actual)
}

fn wrong_promise(output: &str, promised: &[i64], actual: &[i64]) -> Kind {
    failure::backend(format!(
        "output \"{output}\" was promised to have shape {promised:?}, but it has {actual:?}"
    ))
}

/// Hands out a value that the library made.
fn deliver(
    session: &OrtSession,
    lent: &[Range<*const u8>],
    output: &mut Output<'_>,
    planned: &Planned,
    value: Owned<sys::OrtValue>,
) -> Result<OutputResult, Kind> {
    let tensor = MadeTensor::new(session, value).map_err(failure::run_error)?;
    let (dtype, shape) = (planned.dtype, tensor.shape.clone());
    let bad = |source| Kind::BadTensor {
        port: output.name.to_owned(),
        source,
    };
    if tensor.element_type != i64::from(dtype.code()) {
        return Err(failure::backend(format!(
            "output \"{}\" has element type {}, but its port is {dtype}",
            output.name, tensor.element_type
        )));
    }
    if let Some(promised) = planned.shape.as_deref().filter(|_| planned.promised)
        && promised != &shape[..]
    {
        return Err(wrong_promise(output.name, promised, &shape));
    }
    let bytes = byte_len(dtype, &shape).map_err(bad)?;
    if let Some(room) = output.fitting_room(dtype, bytes) {
        count_copy(bytes);
        room.write_copy_of_slice(tensor.bytes(bytes));
        return Ok(OutputResult::InRoom { dtype, shape });
    }
    let data = tensor.bytes(bytes).as_ptr_range();
    let is_lent = |lent: &Range<*const u8>| data.start < lent.end && lent.start < data.end;
    let made = if lent.iter().any(is_lent) {
        // An output that is an input, or that lies in what was given for another output.
        count_copy(bytes);
        ComponentTensor::from_raw(dtype, &shape, tensor.bytes(bytes))
    } else {
        let owner = Arc::new(OutputBytes { tensor, bytes });
        ComponentTensor::from_owner(dtype, &shape, owner)
    };
    made.map(OutputResult::Owned).map_err(|source| Kind::BadTensor {
        port: output.name.to_owned(),
        source,
    })
}

/// A tensor in the library's memory.
struct MadeTensor {
    element_type: i64,
    shape: Shape,
    data: *const u8,
    /// Released before the session, whose allocator and weights it may use.
    _value: Owned<sys::OrtValue>,
    _session: Arc<Owned<sys::OrtSession>>,
}

impl MadeTensor {
    fn new(session: &OrtSession, value: Owned<sys::OrtValue>) -> Result<Self, Failure> {
        let api = session.library.api();
        // SAFETY: the value lives, and the place written to is the one that `make` gives.
        let info = api.make(api.0.ReleaseTensorTypeAndShapeInfo, |api, place| unsafe {
            (api.GetTensorTypeAndShape)(value.as_ptr(), place)
        })?;
        // SAFETY: `info` lives.
        let (element_type, dims) = unsafe { tensor_info(api, info.as_ptr()) }?;
        let mut data = ptr::null_mut();
        // SAFETY: the value lives and is a tensor, or the call says that it is not.
        let status = unsafe { (api.0.GetTensorMutableData)(value.as_ptr(), &raw mut data) };
        api.check(status)?;
        Ok(MadeTensor {
            element_type,
            shape: Shape::from_vec(dims),
            data: data.cast_const().cast(),
            _value: value,
            _session: Arc::clone(&session.session),
        })
    }

    /// The first `bytes` bytes, which must be no more than type and shape need.
    fn bytes(&self, bytes: usize) -> &[u8] {
        if bytes == 0 || self.data.is_null() {
            return &[];
        }
        // SAFETY: the library's tensor is dense and has the element type and the shape that
        // `bytes` was computed from, is fully written after a run, and lives as long as
        // `self`; nobody writes it again.
        unsafe { slice::from_raw_parts(self.data, bytes) }
    }
}

/// A tensor of the library as the bytes of a [`ComponentTensor`].
struct OutputBytes {
    tensor: MadeTensor,
    bytes: usize,
}

impl AsRef<[u8]> for OutputBytes {
    fn as_ref(&self) -> &[u8] {
        self.tensor.bytes(self.bytes)
    }
}

// SAFETY: the pointer is to memory that the value in `tensor` owns, and values have no thread
// affinity.
unsafe impl Send for OutputBytes {}
// SAFETY: the bytes are only read.
unsafe impl Sync for OutputBytes {}
