//! Versions, and the sizes that wrappers compare at start-up.

use std::ffi::c_char;

use super::error::oxp_error;
use super::files::oxp_file;
use super::guard::guard;
use super::pipeline::{oxp_component_info, oxp_load_progress, oxp_pipeline_info};
use super::ports::oxp_port_info;
use super::run::oxp_event;
use super::run_values::oxp_run_stats;
use super::session::oxp_session_stats;
use super::status::oxp_status;
use super::strings::{Out, copy_text};
use super::tensor::{oxp_named_in, oxp_named_out, oxp_tensor_in, oxp_tensor_out};

/// The version of this interface, raised when functions are added. Wrappers ask for at
/// least the version that they were written for.
pub const OXP_ABI_VERSION: u32 = 1;

/// Ids of structs for oxp_struct_size.
pub const OXP_STRUCT_TENSOR_IN: u32 = 1;
pub const OXP_STRUCT_TENSOR_OUT: u32 = 2;
pub const OXP_STRUCT_NAMED_IN: u32 = 3;
pub const OXP_STRUCT_NAMED_OUT: u32 = 4;
pub const OXP_STRUCT_FILE: u32 = 5;
pub const OXP_STRUCT_PORT_INFO: u32 = 6;
pub const OXP_STRUCT_SESSION_STATS: u32 = 7;
pub const OXP_STRUCT_COMPONENT_INFO: u32 = 8;
pub const OXP_STRUCT_PIPELINE_INFO: u32 = 9;
pub const OXP_STRUCT_LOAD_PROGRESS: u32 = 10;
pub const OXP_STRUCT_EVENT: u32 = 11;
pub const OXP_STRUCT_RUN_STATS: u32 = 12;

/// The OXP_ABI_VERSION that the library was built with. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_abi_version() -> u32 {
    OXP_ABI_VERSION
}

/// The library's version, "0.1.0", into `buffer` of `capacity` bytes; `needed` gets its
/// length without the NUL. Any thread.
///
/// Errors: OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_NULL_POINTER (`needed`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn oxp_version_copy(
    buffer: *mut c_char,
    capacity: u64,
    needed: *mut u64,
    err: *mut *mut oxp_error,
) -> oxp_status {
    // SAFETY: the caller's promise (see mod.rs).
    unsafe {
        guard("oxp_version_copy", err, || {
            let needed = Out::new(needed, 0, "needed")?;
            copy_text(env!("CARGO_PKG_VERSION"), buffer, capacity, &needed)
        })
    }
}

/// The size in bytes that the library has for the struct with this OXP_STRUCT_ id; 0 for a
/// number that is none. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_struct_size(id: u32) -> u32 {
    let size = match id {
        OXP_STRUCT_TENSOR_IN => size_of::<oxp_tensor_in>(),
        OXP_STRUCT_TENSOR_OUT => size_of::<oxp_tensor_out>(),
        OXP_STRUCT_NAMED_IN => size_of::<oxp_named_in>(),
        OXP_STRUCT_NAMED_OUT => size_of::<oxp_named_out>(),
        OXP_STRUCT_FILE => size_of::<oxp_file>(),
        OXP_STRUCT_PORT_INFO => size_of::<oxp_port_info>(),
        OXP_STRUCT_SESSION_STATS => size_of::<oxp_session_stats>(),
        OXP_STRUCT_COMPONENT_INFO => size_of::<oxp_component_info>(),
        OXP_STRUCT_PIPELINE_INFO => size_of::<oxp_pipeline_info>(),
        OXP_STRUCT_LOAD_PROGRESS => size_of::<oxp_load_progress>(),
        OXP_STRUCT_EVENT => size_of::<oxp_event>(),
        OXP_STRUCT_RUN_STATS => size_of::<oxp_run_stats>(),
        _ => 0,
    };
    size as u32
}
