//! Tensors that cross the boundary: views of the caller's memory, read and checked, and
//! the caller's room for results, written through raw pointers only.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use crate::component::{
    DataType, MAX_RANK, Shape, TensorError, TensorView, byte_len, count_copy, display_shape,
};

use super::dtype;
use super::failure::{Failure, Result};
use super::overlap::{Part, Span};
use super::ports::pointer;
use super::status::{OXP_ERR_BUFFER_TOO_SMALL, OXP_ERR_INVALID_TENSOR, OXP_ERR_STRUCT_SIZE};
use super::strings::{array, in_address_space, text};

/// A tensor to read, 40 bytes: dense, row-major, little-endian elements. As an argument it
/// is borrowed for the call and never kept. As an answer it points into memory of the
/// library, for as long as the function says, and may be handed on as an argument.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_tensor_in {
    /// sizeof(oxp_tensor_in); OXP_TENSOR_IN_INIT sets it.
    pub struct_size: u32,
    /// An OXP_DTYPE_ code.
    pub dtype: u32,
    /// The first element; may be NULL if there are none. Need not be aligned (at the price
    /// of a copy).
    pub data: *const c_void,
    /// Exactly the product of the dims times the size of an element.
    pub byte_len: u64,
    /// `rank` dims, none negative; may be NULL if rank is 0.
    pub shape: *const i64,
    /// 0 (a scalar) to 64.
    pub rank: u32,
    /// 0.
    pub flags: u32,
}

/// Room of the caller's for a tensor, 48 bytes. The memory may be uninitialised.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_tensor_out {
    /// Set by the caller: sizeof(oxp_tensor_out); OXP_TENSOR_OUT_INIT sets it.
    pub struct_size: u32,
    /// Set by the library: an OXP_DTYPE_ code.
    pub dtype: u32,
    /// Where the elements go; NULL if capacity is 0.
    pub data: *mut c_void,
    /// Bytes at `data`.
    pub capacity: u64,
    /// Set by the library: bytes that the tensor has, written or needed.
    pub byte_len: u64,
    /// Where the dims go; NULL if shape_capacity is 0.
    pub shape: *mut i64,
    /// Dims that fit at `shape`.
    pub shape_capacity: u32,
    /// Set by the library: dims that the tensor has, written or needed.
    pub rank: u32,
}

/// A named tensor to read, for functions that take an array of them. Frozen.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_named_in {
    pub name: *const c_char,
    /// In bytes, or OXP_NUL_TERMINATED.
    pub name_len: u64,
    pub tensor: oxp_tensor_in,
}

/// Room for a named tensor, for functions that take an array of them. Frozen.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct oxp_named_out {
    pub name: *const c_char,
    /// In bytes, or OXP_NUL_TERMINATED.
    pub name_len: u64,
    pub tensor: oxp_tensor_out,
}

// The layouts are part of the ABI and frozen.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<oxp_tensor_in>() == 40 && align_of::<oxp_tensor_in>() == 8);
    assert!(offset_of!(oxp_tensor_in, dtype) == 4 && offset_of!(oxp_tensor_in, data) == 8);
    assert!(offset_of!(oxp_tensor_in, byte_len) == 16 && offset_of!(oxp_tensor_in, shape) == 24);
    assert!(offset_of!(oxp_tensor_in, rank) == 32 && offset_of!(oxp_tensor_in, flags) == 36);
    assert!(size_of::<oxp_tensor_out>() == 48 && align_of::<oxp_tensor_out>() == 8);
    assert!(offset_of!(oxp_tensor_out, dtype) == 4 && offset_of!(oxp_tensor_out, data) == 8);
    assert!(offset_of!(oxp_tensor_out, capacity) == 16 && offset_of!(oxp_tensor_out, byte_len) == 24);
    assert!(offset_of!(oxp_tensor_out, shape) == 32 && offset_of!(oxp_tensor_out, shape_capacity) == 40);
    assert!(offset_of!(oxp_tensor_out, rank) == 44);
    assert!(size_of::<oxp_named_in>() == 56 && offset_of!(oxp_named_in, tensor) == 16);
    assert!(size_of::<oxp_named_out>() == 64 && offset_of!(oxp_named_out, tensor) == 16);
};

impl oxp_tensor_in {
    /// What an answer holds until it is known.
    pub(super) const EMPTY: oxp_tensor_in = oxp_tensor_in {
        struct_size: size_of::<oxp_tensor_in>() as u32,
        dtype: 0,
        data: std::ptr::null(),
        byte_len: 0,
        shape: std::ptr::null(),
        rank: 0,
        flags: 0,
    };
}

/// A caller's tensor, checked: the bytes are as many as dtype and shape need.
pub(super) struct TensorArg<'a> {
    pub dtype: DataType,
    /// A copy: the caller's dims need not be aligned.
    pub shape: Shape,
    /// Where the caller's dims are.
    dims_address: usize,
    pub bytes: &'a [u8],
}

impl TensorArg<'_> {
    pub fn view(&self, what: &str) -> Result<TensorView<'_>> {
        TensorView::new(self.dtype, &self.shape, self.bytes).map_err(|error| Failure::tensor(what, &error))
    }

    /// The caller's memory that a call reads through this.
    pub fn spans<'w>(&self, what: &'w str) -> [Span<'w>; 2] {
        [
            Span::read(self.bytes.as_ptr().addr(), self.bytes.len(), Part::Data, what),
            Span::read(self.dims_address, size_of_val(&*self.shape), Part::Shape, what),
        ]
    }
}

/// The tensor at `pointer`.
///
/// # Safety
/// The caller's promise (see mod.rs); the result lives no longer than the call.
pub(super) unsafe fn read_tensor<'a>(pointer: *const oxp_tensor_in, what: &str) -> Result<TensorArg<'a>> {
    if pointer.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: not NULL, so readable by the caller's promise.
    unsafe {
        check_in_size(pointer.cast::<u32>().read_unaligned(), what)?;
        read_descriptor(&pointer.read_unaligned(), what)
    }
}

/// The tensor of a descriptor that has been read already.
///
/// # Safety
/// As [`read_tensor`].
pub(super) unsafe fn read_descriptor<'a>(tensor: &oxp_tensor_in, what: &str) -> Result<TensorArg<'a>> {
    // SAFETY: the caller's promise.
    let (dtype, shape) = unsafe { read_type(tensor, what)? };
    let dims_address = tensor.shape.addr();
    let expected = byte_len(dtype, &shape).map_err(|error| Failure::tensor(what, &error))?;
    if tensor.byte_len != expected as u64 {
        let error = TensorError::ByteLength {
            dtype,
            shape,
            found: tensor.byte_len,
            expected: expected as u64,
        };
        return Err(Failure::tensor(what, &error));
    }
    if expected == 0 {
        return Ok(TensorArg {
            dtype,
            shape,
            dims_address,
            bytes: &[],
        });
    }
    if tensor.data.is_null() {
        return Err(Failure::new(
            OXP_ERR_INVALID_TENSOR,
            format!(
                "{what}: data is NULL, but shape {} of {dtype} has {expected} bytes",
                display_shape(&shape)
            ),
        ));
    }
    // SAFETY: the caller's promise for `byte_len` bytes at `data`.
    let bytes = unsafe { super::strings::bytes(tensor.data, tensor.byte_len, what)? };
    Ok(TensorArg {
        dtype,
        shape,
        dims_address,
        bytes,
    })
}

/// Dtype and dims of a descriptor, without its data.
///
/// # Safety
/// As [`read_tensor`], for `shape`.
pub(super) unsafe fn read_type(tensor: &oxp_tensor_in, what: &str) -> Result<(DataType, Shape)> {
    check_in_size(tensor.struct_size, what)?;
    if tensor.flags != 0 {
        return Err(Failure::new(
            OXP_ERR_INVALID_TENSOR,
            format!(
                "{what}: flags is {:#x}; no flag exists, set it to 0",
                tensor.flags
            ),
        ));
    }
    let dtype = dtype::from_code(tensor.dtype, what)?;
    let rank = tensor.rank as usize;
    if rank > MAX_RANK {
        return Err(Failure::tensor(what, &TensorError::RankTooHigh { rank }));
    }
    if rank > 0 && tensor.shape.is_null() {
        return Err(Failure::new(
            OXP_ERR_INVALID_TENSOR,
            format!("{what}: shape is NULL, but rank is {rank}"),
        ));
    }
    // SAFETY: the caller's promise for `rank` dims at `shape`; any bytes are an i64.
    let dims = unsafe { array(tensor.shape, rank as u64, what)? };
    // Checks signs and overflow.
    byte_len(dtype, &dims).map_err(|error| Failure::tensor(what, &error))?;
    Ok((dtype, Shape::from_vec(dims)))
}

fn check_in_size(found: u32, what: &str) -> Result<()> {
    check_size(found, size_of::<oxp_tensor_in>(), "oxp_tensor_in", what)
}

fn check_size(found: u32, expected: usize, name: &str, what: &str) -> Result<()> {
    match found as usize == expected {
        true => Ok(()),
        false => Err(Failure::new(
            OXP_ERR_STRUCT_SIZE,
            format!("{what}: struct_size is {found}; set it to sizeof({name}), {expected}"),
        )),
    }
}

/// The inputs array of a call.
///
/// # Safety
/// The caller's promise, for the array and the names in it.
pub(super) unsafe fn read_named<'a>(
    inputs: *const oxp_named_in,
    count: u64,
) -> Result<Vec<(&'a str, oxp_tensor_in)>> {
    // SAFETY: the caller's promise; the struct is pointers and numbers, any bytes are one.
    let descriptors = unsafe { array(inputs, count, "inputs")? };
    let named = descriptors.iter().enumerate().map(|(index, input)| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(input.name, input.name_len, &format!("inputs[{index}].name"))? };
        Ok((name, input.tensor))
    });
    named.collect()
}

/// Fills `out` with a view of a tensor of the library's.
pub(super) fn borrow(view: TensorView<'_>) -> oxp_tensor_in {
    oxp_tensor_in {
        struct_size: size_of::<oxp_tensor_in>() as u32,
        dtype: view.dtype().code(),
        data: pointer(view.bytes()).cast(),
        byte_len: view.bytes().len() as u64,
        shape: pointer(view.shape()),
        rank: view.shape().len() as u32,
        flags: 0,
    }
}

/// A caller's [`oxp_tensor_out`], checked. Only raw pointers: nothing is assumed about what
/// the memory holds.
pub(super) struct Room {
    descriptor: *mut oxp_tensor_out,
    data: *mut u8,
    capacity: usize,
    shape: *mut i64,
    shape_capacity: usize,
    /// Bytes and rank of the value, once described.
    needs: Cell<(usize, usize)>,
}

impl Room {
    /// # Safety
    /// The caller's promise; used only during the call.
    pub unsafe fn new(descriptor: *mut oxp_tensor_out, what: &str) -> Result<Self> {
        if descriptor.is_null() {
            return Err(Failure::null(what));
        }
        // SAFETY: not NULL; the first field is there whatever the caller's struct is.
        let size = unsafe { descriptor.cast::<u32>().read_unaligned() };
        check_size(size, size_of::<oxp_tensor_out>(), "oxp_tensor_out", what)?;
        // SAFETY: the caller's promise. The struct is pointers and numbers; fields that only
        // the library sets may be uninitialised in the caller's struct, so they are not read.
        let (data, capacity, shape, shape_capacity) = unsafe {
            (
                (&raw const (*descriptor).data).read_unaligned(),
                (&raw const (*descriptor).capacity).read_unaligned(),
                (&raw const (*descriptor).shape).read_unaligned(),
                (&raw const (*descriptor).shape_capacity).read_unaligned() as usize,
            )
        };
        if data.is_null() && capacity > 0 {
            return Err(Failure::new(
                OXP_ERR_INVALID_TENSOR,
                format!(
                    "{what}: data is NULL, but capacity is {capacity}; to ask for sizes, set capacity to 0"
                ),
            ));
        }
        if shape.is_null() && shape_capacity > 0 {
            return Err(Failure::new(
                OXP_ERR_INVALID_TENSOR,
                format!("{what}: shape is NULL, but shape_capacity is {shape_capacity}"),
            ));
        }
        let room = Room {
            descriptor,
            data: data.cast(),
            capacity: in_address_space(data.addr(), capacity, what)?,
            shape,
            shape_capacity,
            needs: Cell::new((0, 0)),
        };
        in_address_space(shape.addr(), shape_capacity as u64 * 8, what)?;
        Ok(room)
    }

    /// What the call writes through this.
    pub fn spans<'w>(&self, what: &'w str) -> [Span<'w>; 2] {
        [
            Span::write(self.data.addr(), self.capacity, Part::Data, what),
            Span::write(self.shape.addr(), self.shape_capacity * 8, Part::Shape, what),
        ]
    }

    /// The caller's bytes as a place to write, `None` when there are none.
    ///
    /// # Safety
    /// Until the result is gone, nothing else touches the memory: the spans of the call must
    /// have been found apart, and this is called once.
    pub unsafe fn bytes<'a>(&self) -> Option<&'a mut [MaybeUninit<u8>]> {
        if self.capacity == 0 {
            return None;
        }
        // SAFETY: not NULL (a capacity above 0 was checked for that), writable for
        // `capacity` bytes by the caller's promise, which does not wrap and is not above
        // isize::MAX. `MaybeUninit` asks nothing of what the memory holds. Exclusive by
        // this function's contract.
        Some(unsafe { std::slice::from_raw_parts_mut(self.data.cast(), self.capacity) })
    }

    /// Sets dtype, size and rank, and the dims if they fit; returns whether the dims fit
    /// and the bytes would.
    ///
    /// # Safety
    /// The caller's promise still holds (the call is under way), no borrow from
    /// [`bytes`](Self::bytes) is alive.
    pub unsafe fn describe(&self, dtype: DataType, shape: &[i64], byte_len: usize) -> bool {
        self.needs.set((byte_len, shape.len()));
        // SAFETY: the descriptor is writable; fields are written one by one, so that
        // struct_size, pointers and capacities stay the caller's.
        unsafe {
            (&raw mut (*self.descriptor).dtype).write_unaligned(dtype.code());
            (&raw mut (*self.descriptor).byte_len).write_unaligned(byte_len as u64);
            (&raw mut (*self.descriptor).rank).write_unaligned(shape.len() as u32);
        }
        if shape.len() > self.shape_capacity {
            return false;
        }
        if shape.is_empty() {
            return byte_len <= self.capacity;
        }
        // SAFETY: `shape_capacity >= shape.len()` dims are writable, and not NULL then; our
        // dims cannot overlap them. Bytewise, so that no alignment is needed.
        unsafe {
            let to = self.shape.cast::<u8>();
            std::ptr::copy_nonoverlapping(shape.as_ptr().cast::<u8>(), to, size_of_val(shape));
        }
        byte_len <= self.capacity
    }

    /// Sets `byte_len` alone, to what stands for "only a run can tell".
    ///
    /// # Safety
    /// As [`describe`](Self::describe).
    pub unsafe fn describe_unknown(&self, dtype: u32, byte_len: u64) {
        // SAFETY: as in `describe`.
        unsafe {
            (&raw mut (*self.descriptor).dtype).write_unaligned(dtype);
            (&raw mut (*self.descriptor).byte_len).write_unaligned(byte_len);
            (&raw mut (*self.descriptor).rank).write_unaligned(0);
        }
    }

    /// Describes and copies a tensor; returns whether it fits. What does not fit is not
    /// written.
    ///
    /// # Safety
    /// As [`describe`](Self::describe).
    pub unsafe fn store(&self, view: TensorView<'_>) -> bool {
        let bytes = view.bytes();
        // SAFETY: handed on.
        let fits = unsafe { self.describe(view.dtype(), view.shape(), bytes.len()) };
        if fits && !bytes.is_empty() {
            // SAFETY: `capacity >= len > 0` bytes are writable; a tensor of ours cannot
            // overlap the caller's room.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data, bytes.len()) };
            count_copy(bytes.len());
        }
        fits
    }
}

impl Room {
    /// What is too small about the room, if anything is; after it was described.
    pub fn shortage(&self) -> Option<String> {
        let (byte_len, rank) = self.needs.get();
        if rank > self.shape_capacity {
            Some(format!(
                "has rank {rank}, shape_capacity is {}",
                self.shape_capacity
            ))
        } else if byte_len > self.capacity {
            Some(format!("has {byte_len} bytes, capacity is {}", self.capacity))
        } else {
            None
        }
    }
}

/// The error of rooms that are too small; all sizes have been set.
pub(super) fn too_small(shortages: &[&str]) -> Failure {
    Failure::new(
        OXP_ERR_BUFFER_TOO_SMALL,
        format!(
            "{}; byte_len and rank say what each output needs, give it that and call again",
            shortages.join("; ")
        ),
    )
}
