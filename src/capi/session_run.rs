//! Running a session: how large the outputs will be, into the caller's memory, and into
//! memory of the library's.

use std::borrow::Cow;
use std::ffi::c_char;
use std::sync::atomic::Ordering;

use crate::component::{
    ComponentSession, DataType, Input, Output, OutputResult, RunControl, Shape, byte_len,
};

use super::cancel::{self, oxp_cancel};
use super::error::oxp_error;
use super::failure::{Failure, Result};
use super::guard::guard;
use super::handle;
use super::outputs::{OutputsObject, oxp_outputs};
use super::overlap::{self, Part, Span};
use super::ports::Ports;
use super::session::{SessionObject, oxp_session};
use super::status::oxp_status;
use super::strings::{NUL_TERMINATED, Out, array, in_address_space, text};
use super::tensor::{
    Room, TensorArg, oxp_named_in, oxp_named_out, read_descriptor, read_named, read_type, too_small,
};

/// In oxp_tensor_out.byte_len, from oxp_session_output_bound alone: only a run can tell.
const UNKNOWN_SIZE: u64 = u64::MAX;

/// How large the outputs will be for inputs of these dtypes and shapes, without running.
///
/// Of each input the name, dtype and shape are read, the data is not (it may be NULL). Of
/// each output `tensor.dtype`, `byte_len`, `rank` and, if it fits, `shape` are set;
/// `byte_len` is OXP_UNKNOWN_SIZE and `rank` 0 where only a run can tell. `data` is not
/// touched.
///
/// Errors: those of the inputs and outputs of oxp_session_run. The shape of an output that
/// does not fit is not an error: `rank` says how many dims it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_output_bound(
    session: *mut oxp_session,
    inputs: *const oxp_named_in,
    input_count: u64,
    outputs: *mut oxp_named_out,
    output_count: u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_output_bound", err, || {
            let session = handle::get::<SessionObject>(session, "session")?;
            let mut types = Vec::with_capacity(input_count.min(1024) as usize);
            for (name, tensor) in read_named(inputs, input_count)? {
                types.push((name, read_type(&tensor, &format!("input \"{name}\""))?));
            }
            let rooms = Rooms::read(&session.outputs, outputs, output_count)?;
            let types: Vec<_> = types
                .iter()
                .map(|(name, (dtype, shape))| (*name, *dtype, shape.as_slice()))
                .collect();
            let bound = session
                .turn(&RunControl::default())?
                .output_bound(&types, &rooms.name_list())?;
            for (room, known) in rooms.rooms.iter().zip(bound) {
                match known {
                    Some((dtype, shape)) => {
                        let bytes =
                            byte_len(dtype, &shape).map_err(|error| Failure::tensor("output", &error))?;
                        room.describe(dtype, &shape, bytes);
                    }
                    None => room.describe_unknown(0, UNKNOWN_SIZE),
                }
            }
            Ok(())
        })
    }
}

/// Runs the graph on named inputs, in any order, for any subset of its outputs, into the
/// caller's memory.
///
/// Inputs are read where they lie, unless they are unaligned. An output is written where it
/// shall be, by the kernel itself where the backend can. On success each output's dtype,
/// byte_len, rank and shape are set. If any output's room or shape room is too small, the
/// call fails with OXP_ERR_BUFFER_TOO_SMALL and *every* output's dtype, byte_len and rank
/// are what it needs; where shapes tell that beforehand, nothing was run. After an error the
/// bytes of the outputs are unspecified. `cancel` may be NULL; "run_timeout_ms" counts from
/// the start of the call.
///
/// Inputs and outputs must not overlap in memory, nor outputs one another.
///
/// Errors: OXP_ERR_BUFFER_TOO_SMALL; OXP_ERR_STRUCT_SIZE, OXP_ERR_INVALID_TENSOR,
/// OXP_ERR_UNSUPPORTED_DTYPE for a descriptor; OXP_ERR_UNKNOWN_PORT, OXP_ERR_MISSING_INPUT,
/// OXP_ERR_INVALID_ARGUMENT (a port given twice), OXP_ERR_DTYPE_MISMATCH,
/// OXP_ERR_SHAPE_MISMATCH for what the graph declares; OXP_ERR_OVERLAP;
/// OXP_ERR_RUN_FAILED; OXP_ERR_OUT_OF_MEMORY; OXP_ERR_CANCELLED,
/// OXP_ERR_DEADLINE_EXCEEDED; OXP_ERR_NULL_POINTER; OXP_ERR_INVALID_UTF8;
/// OXP_ERR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_run(
    session: *mut oxp_session,
    inputs: *const oxp_named_in,
    input_count: u64,
    outputs: *mut oxp_named_out,
    output_count: u64,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_run", err, || {
            let session = handle::get::<SessionObject>(session, "session")?;
            let control = cancel::control(cancel, session.run_timeout)?;
            let inputs = Inputs::read(&session.inputs, inputs, input_count)?;
            let rooms = Rooms::read(&session.outputs, outputs, output_count)?;
            let mut spans = inputs.spans();
            rooms.add_spans(&mut spans);
            overlap::check(spans)?;
            let views = inputs.views()?;
            let mut component = session.turn(&control)?;
            let entered = session.enter();
            session.test_hook.reached();
            if rooms.known_to_be_short(&mut **component, &views)? {
                return Err(rooms.too_small());
            }
            let results = {
                let mut outputs: Vec<Output<'_>> = rooms
                    .names
                    .iter()
                    .zip(&rooms.rooms)
                    .map(|(name, room)| Output {
                        // The spans were found apart, so nothing else touches the room.
                        room: room.bytes(),
                        ..Output::alloc(name)
                    })
                    .collect();
                session.runs.fetch_add(1, Ordering::Relaxed);
                component
                    .run(&views, &mut outputs, &control)
                    .map_err(|error| session.failed(error))?;
                outputs
                    .into_iter()
                    .map(|output| output.result)
                    .collect::<Vec<_>>()
            };
            drop(entered);
            drop(component);
            match rooms.store(results)? {
                true => Ok(()),
                false => Err(rooms.too_small()),
            }
        })
    }
}

/// Runs the graph as oxp_session_run does, into memory of the library: `result` gets an
/// object that holds the outputs; free it with oxp_outputs_free.
///
/// `output_names` holds `output_count` strings, `output_name_lens` their lengths in bytes;
/// it may be NULL if all of them end with a NUL. NULL names with a count of 0 ask for every
/// output, in the graph's order.
///
/// Errors: as oxp_session_run, without OXP_ERR_BUFFER_TOO_SMALL and OXP_ERR_OVERLAP.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_session_run_alloc(
    session: *mut oxp_session,
    inputs: *const oxp_named_in,
    input_count: u64,
    output_names: *const *const c_char,
    output_name_lens: *const u64,
    output_count: u64,
    result: *mut *mut oxp_outputs,
    cancel: *const oxp_cancel,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_session_run_alloc", err, || {
            let out = Out::new(result, std::ptr::null_mut(), "result")?;
            let session = handle::get::<SessionObject>(session, "session")?;
            let control = cancel::control(cancel, session.run_timeout)?;
            let inputs = Inputs::read(&session.inputs, inputs, input_count)?;
            let names = asked_names(&session, output_names, output_name_lens, output_count)?;
            let views = inputs.views()?;
            let mut outputs: Vec<Output<'_>> = names.iter().map(|name| Output::alloc(name)).collect();
            let mut component = session.turn(&control)?;
            let entered = session.enter();
            session.test_hook.reached();
            session.runs.fetch_add(1, Ordering::Relaxed);
            component
                .run(&views, &mut outputs, &control)
                .map_err(|error| session.failed(error))?;
            drop(entered);
            drop(component);
            let results = outputs.into_iter().map(|output| output.result);
            let mut tensors = Vec::with_capacity(names.len());
            for (name, result) in names.iter().zip(results) {
                match result {
                    OutputResult::Owned(tensor) => tensors.push((name.to_string(), tensor)),
                    OutputResult::InRoom { .. } | OutputResult::InCache { .. } | OutputResult::Pending => {
                        return Err(no_result(name));
                    }
                }
            }
            out.set(handle::create(OutputsObject::new(tensors)));
            Ok(())
        })
    }
}

/// # Safety
/// The caller's promise (see mod.rs).
unsafe fn asked_names<'a>(
    session: &'a SessionObject,
    names: *const *const c_char,
    lens: *const u64,
    count: u64,
) -> Result<Vec<Cow<'a, str>>> {
    if count == 0 && names.is_null() {
        return Ok(session.outputs.names().map(Cow::Borrowed).collect());
    }
    // SAFETY: the caller's promise for both arrays and the strings.
    unsafe {
        let pointers = array(names, count, "output_names")?;
        let lens = match lens.is_null() {
            true => vec![NUL_TERMINATED; pointers.len()],
            false => array(lens, count, "output_name_lens")?,
        };
        let pairs = pointers.iter().zip(&lens).enumerate();
        pairs
            .map(|(index, (&pointer, &len))| {
                let name = text(pointer, len, &format!("output_names[{index}]"))?;
                Ok(own(&session.outputs, name))
            })
            .collect()
    }
}

/// The graph's own copy of a name: the caller's may lie in memory that the call writes. One
/// that the graph does not have is copied, for the message.
fn own<'a>(ports: &'a Ports, name: &str) -> Cow<'a, str> {
    match ports.own_name(name) {
        Some(own) => Cow::Borrowed(own),
        None => Cow::Owned(name.to_owned()),
    }
}

/// A backend that says it ran, but did not set an output: a defect, told as one.
fn no_result(name: &str) -> Failure {
    Failure::new(
        super::status::OXP_ERR_INTERNAL,
        format!("output \"{name}\" was not computed although the run succeeded; please report it"),
    )
}

/// The inputs of a call, checked.
struct Inputs<'a> {
    labels: Vec<String>,
    inputs: Vec<(Cow<'a, str>, TensorArg<'a>)>,
}

impl<'a> Inputs<'a> {
    /// # Safety
    /// The caller's promise (see mod.rs); the result lives no longer than the call.
    unsafe fn read(ports: &'a Ports, inputs: *const oxp_named_in, count: u64) -> Result<Self> {
        let mut read = Inputs {
            labels: Vec::new(),
            inputs: Vec::new(),
        };
        // SAFETY: the caller's promise, handed on.
        unsafe {
            for (name, tensor) in read_named(inputs, count)? {
                let label = format!("input \"{name}\"");
                let value = read_descriptor(&tensor, &label).map_err(|failure| failure.at_port(name))?;
                read.labels.push(label);
                read.inputs.push((own(ports, name), value));
            }
        }
        Ok(read)
    }

    fn spans(&self) -> Vec<Span<'_>> {
        let pairs = self.inputs.iter().zip(&self.labels);
        pairs.flat_map(|((_, value), label)| value.spans(label)).collect()
    }

    fn views(&self) -> Result<Vec<Input<'_>>> {
        let pairs = self.inputs.iter().zip(&self.labels);
        pairs
            .map(|((name, value), label)| {
                Ok(Input {
                    name,
                    value: value.view(label)?,
                })
            })
            .collect()
    }
}

/// The outputs of a call: names, and the caller's room for each.
struct Rooms<'a> {
    names: Vec<Cow<'a, str>>,
    labels: Vec<String>,
    rooms: Vec<Room>,
    /// Address and length of the array of descriptors, which the call writes into.
    array: (usize, usize),
}

impl<'a> Rooms<'a> {
    /// # Safety
    /// The caller's promise (see mod.rs); the result lives no longer than the call.
    unsafe fn read(ports: &'a Ports, outputs: *mut oxp_named_out, count: u64) -> Result<Self> {
        if outputs.is_null() && count > 0 {
            return Err(Failure::null("outputs"));
        }
        let bytes = count.saturating_mul(size_of::<oxp_named_out>() as u64);
        let len = in_address_space(outputs.addr(), bytes, "outputs")?;
        let mut read = Rooms {
            names: Vec::new(),
            labels: Vec::new(),
            rooms: Vec::new(),
            array: (outputs.addr(), len),
        };
        for index in 0..len / size_of::<oxp_named_out>() {
            // SAFETY: the caller has `count` of them here; fields are read one by one,
            // because those that only the library sets may be uninitialised.
            unsafe {
                let output = outputs.add(index);
                let name_pointer = (&raw const (*output).name).read_unaligned();
                let name_len = (&raw const (*output).name_len).read_unaligned();
                let name = text(name_pointer, name_len, &format!("outputs[{index}].name"))?;
                let label = format!("output \"{name}\"");
                let room = Room::new(&raw mut (*output).tensor, &label);
                read.rooms.push(room.map_err(|failure| failure.at_port(name))?);
                read.labels.push(label);
                read.names.push(own(ports, name));
            }
        }
        Ok(read)
    }

    fn name_list(&self) -> Vec<&str> {
        self.names.iter().map(|name| &**name).collect()
    }

    fn add_spans<'s>(&'s self, spans: &mut Vec<Span<'s>>) {
        spans.push(Span::write(self.array.0, self.array.1, Part::Array, "outputs"));
        for (room, label) in self.rooms.iter().zip(&self.labels) {
            spans.extend(room.spans(label));
        }
    }

    /// Whether shapes alone tell that a room is too small, and the size of every output. If
    /// so, all of them have been described.
    ///
    /// # Safety
    /// As [`Room::describe`].
    unsafe fn known_to_be_short(
        &self,
        component: &mut dyn ComponentSession,
        views: &[Input<'_>],
    ) -> Result<bool> {
        let types: Vec<(&str, DataType, &[i64])> = views
            .iter()
            .map(|input| (input.name, input.value.dtype(), input.value.shape()))
            .collect();
        let bound = component.output_bound(&types, &self.name_list())?;
        // With an output whose size only a run tells, the run goes ahead: the error must
        // give the true size of each.
        let Some(known) = bound.into_iter().collect::<Option<Vec<(DataType, Shape)>>>() else {
            return Ok(false);
        };
        let mut fits = true;
        for ((dtype, shape), room) in known.iter().zip(&self.rooms) {
            let bytes = byte_len(*dtype, shape).map_err(|error| Failure::tensor("output", &error))?;
            // SAFETY: handed on.
            fits &= unsafe { room.describe(*dtype, shape, bytes) };
        }
        Ok(!fits)
    }

    /// Describes all outputs, and copies those that are not in their rooms already; returns
    /// whether all of them fit.
    ///
    /// # Safety
    /// As [`Room::describe`].
    unsafe fn store(&self, results: Vec<OutputResult>) -> Result<bool> {
        let mut fits = true;
        for ((name, room), result) in self.names.iter().zip(&self.rooms).zip(results) {
            // SAFETY: handed on.
            unsafe {
                fits &= match result {
                    OutputResult::InRoom { dtype, shape } => {
                        let bytes = byte_len(dtype, &shape).map_err(|error| Failure::tensor(name, &error))?;
                        room.describe(dtype, &shape, bytes)
                    }
                    OutputResult::Owned(tensor) => room.store(tensor.view()),
                    OutputResult::InCache { .. } | OutputResult::Pending => return Err(no_result(name)),
                };
            }
        }
        Ok(fits)
    }

    /// The error of rooms that are too small, about the first of them.
    fn too_small(&self) -> Failure {
        let pairs = self.rooms.iter().zip(&self.names).zip(&self.labels);
        let short: Vec<(&str, String)> = pairs
            .filter_map(|((room, name), label)| Some((&**name, format!("{label} {}", room.shortage()?))))
            .collect();
        let port = short.first().map_or("", |(name, _)| name);
        let shortages: Vec<&str> = short.iter().map(|(_, shortage)| &**shortage).collect();
        too_small(&shortages).at_port(port)
    }
}
