//! Outputs that the library holds.

use std::ffi::c_char;

use crate::component::ComponentTensor;

use super::error::oxp_error;
use super::failure::Failure;
use super::guard::{guard, guard_free};
use super::handle::{self, Object, Tag};
use super::memory::{Text, TextOut};
use super::ports::element;
use super::status::{OXP_ERR_UNKNOWN_PORT, oxp_status};
use super::strings::{Out, text};
use super::tensor::{borrow, oxp_tensor_in};

/// The outputs of one run, by name. Shared: any thread, any number of calls at once.
pub struct oxp_outputs {
    _private: [u8; 0],
}

pub(super) struct OutputsObject {
    tensors: Vec<(String, Text, ComponentTensor)>,
}

impl OutputsObject {
    pub fn new(tensors: Vec<(String, ComponentTensor)>) -> Self {
        let tensors = tensors.into_iter().map(|(name, tensor)| {
            let text = Text::new(&name);
            (name, text, tensor)
        });
        OutputsObject {
            tensors: tensors.collect(),
        }
    }
}

impl Object for OutputsObject {
    type Opaque = oxp_outputs;
    const TAG: Tag = Tag::Outputs;
}

/// How many outputs there are.
///
/// Errors: OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_outputs_get_count(
    outputs: *const oxp_outputs,
    count: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_outputs_get_count", err, || {
            let out = Out::new(count, 0, "count")?;
            out.set(handle::get::<OutputsObject>(outputs, "outputs")?.tensors.len() as u64);
            Ok(())
        })
    }
}

/// The output at `index`, in the order in which they were asked for. `name` gets text that
/// ends with a NUL, `name_len`, which may be NULL, its length in bytes; `tensor`, whose
/// content before the call does not matter, a view. All is borrowed until the outputs are
/// freed.
///
/// Errors: OXP_ERR_OUT_OF_RANGE, OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_outputs_get_at(
    outputs: *const oxp_outputs,
    index: u64,
    name: *mut *const c_char,
    name_len: *mut u64,
    tensor: *mut oxp_tensor_in,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_outputs_get_at", err, || {
            let name = TextOut::new(name, name_len, "name")?;
            let tensor = Out::new(tensor, oxp_tensor_in::EMPTY, "tensor")?;
            let outputs = handle::get::<OutputsObject>(outputs, "outputs")?;
            let (_, own_name, own_tensor) = element(&outputs.tensors, index, "outputs")?;
            name.set(own_name);
            tensor.set(borrow(own_tensor.view()));
            Ok(())
        })
    }
}

/// The output of that name; `tensor`, whose content before the call does not matter, gets a
/// view that is borrowed until the outputs are freed.
///
/// Errors: OXP_ERR_UNKNOWN_PORT, OXP_ERR_INVALID_HANDLE, OXP_ERR_NULL_POINTER,
/// OXP_ERR_INVALID_UTF8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_outputs_get(
    outputs: *const oxp_outputs,
    name: *const c_char,
    name_len: u64,
    tensor: *mut oxp_tensor_in,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_outputs_get", err, || {
            let tensor = Out::new(tensor, oxp_tensor_in::EMPTY, "tensor")?;
            let outputs = handle::get::<OutputsObject>(outputs, "outputs")?;
            let name = text(name, name_len, "name")?;
            let found = outputs.tensors.iter().find(|(own, ..)| own == name);
            let (.., own_tensor) = found.ok_or_else(|| {
                let known: Vec<String> = outputs
                    .tensors
                    .iter()
                    .map(|(own, ..)| format!("\"{own}\""))
                    .collect();
                Failure::new(
                    OXP_ERR_UNKNOWN_PORT,
                    format!(
                        "there is no output \"{name}\" among these; they are {}",
                        known.join(", ")
                    ),
                )
            })?;
            tensor.set(borrow(own_tensor.view()));
            Ok(())
        })
    }
}

/// Frees outputs, and what was borrowed from them. NULL and what are no live outputs are
/// ignored.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_outputs_free(outputs: *mut oxp_outputs) {
    guard_free::<OutputsObject>(outputs);
}
