//! Ports of a graph, as C reads them.

use std::ffi::c_char;
use std::ptr::null;

use crate::component::{ComponentIo, Dim, Port};

use super::failure::{Failure, Result};
use super::memory::Text;
use super::status::OXP_ERR_OUT_OF_RANGE;
use super::structs::{InfoOut, info_struct};

/// In oxp_port_info.flags: the input has a default and may be left out.
pub const OXP_PORT_OPTIONAL: u32 = 1;
/// In oxp_port_info.flags: the graph declares no rank; `rank` is 0 and says nothing.
pub const OXP_PORT_RANK_UNKNOWN: u32 = 2;

/// An input or output as its graph declares it. All pointers are borrowed until the session
/// or pipeline is freed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_port_info {
    /// Set by the caller: sizeof(oxp_port_info).
    pub struct_size: u32,
    /// An OXP_DTYPE_ code; 0 if the type does not cross this interface (see `type_name`).
    pub dtype: u32,
    /// Ends with a NUL.
    pub name: *const c_char,
    /// In bytes, without the NUL.
    pub name_len: u64,
    /// "float32", or what the type is in ONNX's notation, "tensor(string)". Ends with a NUL.
    pub type_name: *const c_char,
    /// In bytes, without the NUL.
    pub type_name_len: u64,
    /// `rank` dims, -1 where the size is not fixed.
    pub dims: *const i64,
    /// `rank` strings that end with a NUL: the names of dims that are not fixed, "" where
    /// there is none.
    pub dim_names: *const *const c_char,
    pub rank: u32,
    /// OXP_PORT_ bits.
    pub flags: u32,
}

info_struct!(oxp_port_info, 64);

/// The ports of one direction, with the memory that infos point into.
pub(super) struct Ports {
    direction: &'static str,
    ports: Vec<PortEntry>,
}

struct PortEntry {
    name: String,
    name_text: Text,
    type_name: Text,
    dtype: u32,
    dims: Vec<i64>,
    _dim_names: Vec<Text>,
    dim_name_pointers: Vec<*const c_char>,
    flags: u32,
}

// SAFETY: the pointers lead into `_dim_names`, which the entry owns and nobody changes.
unsafe impl Send for PortEntry {}
// SAFETY: as above; everything is read-only.
unsafe impl Sync for PortEntry {}

impl Ports {
    pub fn inputs(io: &ComponentIo) -> Self {
        Ports {
            direction: "inputs",
            ports: io.inputs.iter().map(PortEntry::new).collect(),
        }
    }

    pub fn outputs(io: &ComponentIo) -> Self {
        Ports {
            direction: "outputs",
            ports: io.outputs.iter().map(PortEntry::new).collect(),
        }
    }

    pub fn len(&self) -> u64 {
        self.ports.len() as u64
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().map(|port| port.name.as_str())
    }

    /// The graph's own copy of a name, if it has such a port.
    pub fn own_name(&self, name: &str) -> Option<&str> {
        self.names().find(|own| *own == name)
    }

    pub fn describe(&self, index: u64, info: &InfoOut<oxp_port_info>) -> Result<()> {
        let port = element(&self.ports, index, self.direction)?;
        info.set(oxp_port_info {
            struct_size: 0,
            dtype: port.dtype,
            name: port.name_text.as_ptr(),
            name_len: port.name_text.len(),
            type_name: port.type_name.as_ptr(),
            type_name_len: port.type_name.len(),
            dims: pointer(&port.dims),
            dim_names: pointer(&port.dim_name_pointers),
            rank: port.dims.len() as u32,
            flags: port.flags,
        });
        Ok(())
    }
}

impl PortEntry {
    fn new(port: &Port) -> Self {
        let dims = port.dims.as_deref().unwrap_or_default();
        let dim_names: Vec<Text> = dims
            .iter()
            .map(|dim| match dim {
                Dim::Symbol(Some(name)) => Text::new(name),
                Dim::Symbol(None) | Dim::Fixed(_) => Text::new(""),
            })
            .collect();
        let optional = if port.optional { OXP_PORT_OPTIONAL } else { 0 };
        let unknown = if port.dims.is_none() {
            OXP_PORT_RANK_UNKNOWN
        } else {
            0
        };
        PortEntry {
            name: port.name.clone(),
            name_text: Text::new(&port.name),
            type_name: Text::new(&port.ty.to_string()),
            dtype: port.dtype().map_or(0, |dtype| dtype.code()),
            dims: dims
                .iter()
                .map(|dim| match dim {
                    Dim::Fixed(size) => *size,
                    Dim::Symbol(_) => -1,
                })
                .collect(),
            dim_name_pointers: dim_names.iter().map(Text::as_ptr).collect(),
            _dim_names: dim_names,
            flags: optional | unknown,
        }
    }
}

/// NULL rather than a dangling pointer for no elements.
pub(super) fn pointer<T>(elements: &[T]) -> *const T {
    match elements.is_empty() {
        true => null(),
        false => elements.as_ptr(),
    }
}

/// The element at a caller's index.
pub(super) fn element<'a, T>(elements: &'a [T], index: u64, what: &str) -> Result<&'a T> {
    let found = usize::try_from(index).ok().and_then(|index| elements.get(index));
    found.ok_or_else(|| {
        Failure::new(
            OXP_ERR_OUT_OF_RANGE,
            format!(
                "index {index} is not below the number of {what}, {}",
                elements.len()
            ),
        )
    })
}
