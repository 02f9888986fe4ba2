use std::alloc::Layout;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::SmallVec;
use thiserror::Error;

#[cfg(feature = "native")]
use super::Refused;
use super::{Charge, DataType};

/// Dims of a tensor. Ranks up to 6 need no heap.
pub type Shape = SmallVec<[i64; 6]>;

/// The highest rank that is accepted anywhere.
pub const MAX_RANK: usize = 64;

/// Why bytes and a shape do not make a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TensorError {
    #[error("rank {rank} is above the limit of {MAX_RANK}")]
    RankTooHigh { rank: usize },
    #[error("dim {axis} of shape {} is negative", display_shape(.shape))]
    NegativeDim { axis: usize, shape: Shape },
    #[error("shape {} of {dtype} needs more than 2^63 - 1 bytes", display_shape(.shape))]
    Overflow { dtype: DataType, shape: Shape },
    #[error("byte_len {found} does not match shape {} of {dtype} ({expected} bytes)", display_shape(.shape))]
    ByteLength {
        dtype: DataType,
        shape: Shape,
        found: u64,
        expected: u64,
    },
    #[error("a cache of shape {} with room for {capacity} rows along dim {axis}", display_shape(.shape))]
    CacheRoom {
        shape: Shape,
        axis: usize,
        capacity: usize,
    },
    #[error("cannot allocate {bytes} bytes")]
    OutOfMemory { bytes: u64 },
}

/// `[1, 16]`, as messages show a shape.
pub fn display_shape(shape: &[i64]) -> impl fmt::Display + '_ {
    fmt::from_fn(move |f| f.debug_list().entries(shape).finish())
}

/// Bytes that a dense tensor of this type and shape takes.
///
/// Checks rank, signs and overflow (the product of the non-zero dims must fit too, so that
/// a zero dim does not excuse an absurd one). The result fits `isize`.
pub fn byte_len(dtype: DataType, shape: &[i64]) -> Result<usize, TensorError> {
    if shape.len() > MAX_RANK {
        return Err(TensorError::RankTooHigh { rank: shape.len() });
    }
    if let Some(axis) = shape.iter().position(|&dim| dim < 0) {
        return Err(TensorError::NegativeDim {
            axis,
            shape: shape.into(),
        });
    }
    let overflow = || TensorError::Overflow {
        dtype,
        shape: shape.into(),
    };
    let mut bytes = dtype.size() as i64;
    for &dim in shape.iter().filter(|&&dim| dim != 0) {
        bytes = bytes.checked_mul(dim).ok_or_else(overflow)?;
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    usize::try_from(bytes).map_err(|_| overflow())
}

/// That memory for a tensor, or for one with more rows than that, is exactly as long as it must be.
pub(super) fn check_byte_len(
    dtype: DataType,
    shape: &[i64],
    found: usize,
    expected: usize,
) -> Result<(), TensorError> {
    match found == expected {
        true => Ok(()),
        false => Err(TensorError::ByteLength {
            dtype,
            shape: shape.into(),
            found: found as u64,
            expected: expected as u64,
        }),
    }
}

/// A borrowed tensor: dense, row-major, little-endian elements.
///
/// Invariant: `bytes().len()` is exactly what dtype and shape need. The bytes may be
/// unaligned and are never interpreted here.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    dtype: DataType,
    shape: &'a [i64],
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    pub fn new(dtype: DataType, shape: &'a [i64], bytes: &'a [u8]) -> Result<Self, TensorError> {
        check_byte_len(dtype, shape, bytes.len(), byte_len(dtype, shape)?)?;
        Ok(TensorView { dtype, shape, bytes })
    }

    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    pub fn shape(&self) -> &'a [i64] {
        self.shape
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether the first element lies at a multiple of the element size.
    pub fn is_aligned(&self) -> bool {
        self.bytes.as_ptr().addr().is_multiple_of(self.dtype.size())
    }

    /// A copy that owns its bytes; fails only when the allocator does.
    pub fn to_tensor(&self) -> Result<ComponentTensor, TensorError> {
        Ok(ComponentTensor {
            dtype: self.dtype,
            shape: self.shape.into(),
            storage: Storage::Heap(AlignedBytes::try_from_slice(self.bytes)?),
        })
    }
}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// An owned tensor: dtype, shape, bytes.
///
/// Invariant: as [`TensorView`]. The bytes are on the heap, aligned to
/// [`AlignedBytes::ALIGN`], or belong to a backend's own value, which this keeps alive.
/// Copying is explicit and can fail: `tensor.view().to_tensor()`.
pub struct ComponentTensor {
    dtype: DataType,
    shape: Shape,
    storage: Storage,
}

enum Storage {
    Heap(AlignedBytes),
    Foreign(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl ComponentTensor {
    /// A tensor of a copy of these bytes.
    pub fn from_raw(dtype: DataType, shape: &[i64], bytes: &[u8]) -> Result<Self, TensorError> {
        TensorView::new(dtype, shape, bytes)?.to_tensor()
    }

    /// A tensor of these bytes, which are not copied.
    pub fn from_bytes(dtype: DataType, shape: &[i64], bytes: AlignedBytes) -> Result<Self, TensorError> {
        TensorView::new(dtype, shape, &bytes)?;
        Ok(ComponentTensor {
            dtype,
            shape: shape.into(),
            storage: Storage::Heap(bytes),
        })
    }

    /// A tensor over memory that `owner` keeps alive and unchanged.
    pub fn from_owner(
        dtype: DataType,
        shape: &[i64],
        owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    ) -> Result<Self, TensorError> {
        TensorView::new(dtype, shape, (*owner).as_ref())?;
        Ok(ComponentTensor {
            dtype,
            shape: shape.into(),
            storage: Storage::Foreign(owner),
        })
    }

    /// A tensor of zeros (all fourteen types write zero as zero bytes).
    pub fn zeros(dtype: DataType, shape: &[i64]) -> Result<Self, TensorError> {
        Ok(ComponentTensor {
            dtype,
            shape: shape.into(),
            storage: Storage::Heap(AlignedBytes::try_zeroed(byte_len(dtype, shape)?)?),
        })
    }

    /// Two tensors of the same bytes, which neither copies.
    pub fn share(self) -> (Self, Self) {
        let ComponentTensor {
            dtype,
            shape,
            storage,
        } = self;
        let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = match storage {
            Storage::Heap(bytes) => Arc::new(bytes),
            Storage::Foreign(owner) => owner,
        };
        let other = ComponentTensor {
            dtype,
            shape: shape.clone(),
            storage: Storage::Foreign(owner.clone()),
        };
        let storage = Storage::Foreign(owner);
        let tensor = ComponentTensor {
            dtype,
            shape,
            storage,
        };
        (tensor, other)
    }

    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Heap(bytes) => bytes,
            Storage::Foreign(owner) => (**owner).as_ref(),
        }
    }

    pub fn view(&self) -> TensorView<'_> {
        // The owner of foreign bytes promised not to change them; a view re-checks nothing.
        TensorView {
            dtype: self.dtype,
            shape: &self.shape,
            bytes: self.bytes(),
        }
    }
}

impl fmt::Debug for ComponentTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// Heap bytes aligned for any element type and for vector loads, always initialised.
pub struct AlignedBytes {
    ptr: NonNull<u8>,
    len: usize,
    capacity: usize,
    /// Where the allocation begins, see [`Self::layout`].
    allocated: NonNull<u8>,
    /// What it counts for, see [`MemoryAccount`](super::MemoryAccount).
    #[cfg_attr(
        not(feature = "native"),
        expect(dead_code, reason = "kept until it is dropped")
    )]
    charge: Option<Charge>,
}

impl AlignedBytes {
    pub const ALIGN: usize = 64;

    /// No bytes, without an allocation.
    pub const EMPTY: AlignedBytes = AlignedBytes {
        ptr: NonNull::new(std::ptr::without_provenance_mut(Self::ALIGN)).unwrap(),
        len: 0,
        capacity: 0,
        allocated: NonNull::dangling(),
        charge: None,
    };

    /// From this many bytes on the system has zeros at hand.
    const LARGE: usize = 128 << 10;

    /// What is allocated. An allocator writes the zeros itself where it must align them; a large block
    /// that is not aligned is taken from pages that the system gives as zeros once they are touched,
    /// and so has room to begin later.
    fn layout(capacity: usize) -> Option<Layout> {
        let layout = match capacity < Self::LARGE {
            true => Layout::from_size_align(capacity, Self::ALIGN),
            false => Layout::from_size_align(capacity.checked_add(Self::ALIGN)?, align_of::<usize>()),
        };
        layout.ok()
    }

    /// `len` zero bytes, or an error if the allocator has no such room.
    pub fn try_zeroed(len: usize) -> Result<Self, TensorError> {
        if len == 0 {
            return Ok(Self::EMPTY);
        }
        let refused = TensorError::OutOfMemory { bytes: len as u64 };
        let Some(layout) = Self::layout(len) else {
            return Err(refused);
        };
        let Ok(charge) = Charge::of_entered(len) else {
            return Err(refused);
        };
        // SAFETY: the layout has a non-zero size.
        let allocated = crate::reserve::fallible(|| unsafe { std::alloc::alloc_zeroed(layout) });
        let allocated = NonNull::new(allocated).ok_or(refused)?;
        let before = allocated.addr().get().next_multiple_of(Self::ALIGN) - allocated.addr().get();
        // SAFETY: nothing where the allocation is aligned, and less than the room beyond `len` that it
        // has where it is not.
        let ptr = unsafe { allocated.add(before) };
        Ok(AlignedBytes {
            ptr,
            len,
            capacity: len,
            allocated,
            charge,
        })
    }

    /// Says that all of it will be written at once: the system may give large pages, which takes a
    /// small part of the time that as much in small ones takes.
    #[cfg(feature = "native")]
    pub(crate) fn expect_writes(&mut self) {
        // A multiple of every size of a page; what is at the ends may share pages with other blocks.
        #[cfg(target_os = "linux")]
        {
            const PAGE: usize = 64 << 10;
            let start = self.ptr.addr().get().next_multiple_of(PAGE);
            let end = (self.ptr.addr().get() + self.capacity) / PAGE * PAGE;
            if start < end {
                let first = self.ptr.as_ptr().with_addr(start).cast();
                // SAFETY: the range is of this allocation, and what is in it stays. Only advice: a
                // system that does not take it goes on with small pages.
                let _ = unsafe { libc::madvise(first, end - start, libc::MADV_HUGEPAGE) };
            }
        }
    }

    /// A copy of `bytes`, or an error if the allocator has no such room.
    pub fn try_from_slice(bytes: &[u8]) -> Result<Self, TensorError> {
        let mut copy = Self::try_zeroed(bytes.len())?;
        copy.copy_from_slice(bytes);
        Ok(copy)
    }

    /// Makes it count for the account that this thread is in, and no other; an error if that has
    /// too little left. For buffers that serve one after the other.
    #[cfg(feature = "native")]
    pub(crate) fn charge_entered(&mut self) -> Result<(), Refused> {
        self.charge = None;
        self.charge = Charge::of_entered(self.capacity)?;
        Ok(())
    }

    /// Makes it count for nobody: it is kept for whoever needs it next.
    #[cfg(feature = "native")]
    pub(crate) fn uncharge(&mut self) {
        self.charge = None;
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the length within the capacity; `false` (and no change) beyond it.
    /// Bytes that come back into view hold what they last held.
    pub fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= self.capacity;
        if fits {
            self.len = len;
        }
        fits
    }

    /// The bytes as room for an output.
    pub(crate) fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the memory is ours for `capacity` bytes and borrowed mutably. A writer
        // may store only initialised bytes through the seam (`Output::room` says so), so
        // the buffer stays initialised.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr().cast(), self.capacity) }
    }
}

// SAFETY: the pointer is owned exclusively and the bytes have no thread affinity.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBytes {}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.capacity != 0 {
            // `try_zeroed` has had it.
            if let Some(layout) = Self::layout(self.capacity) {
                // SAFETY: `try_zeroed` allocated with exactly this layout, and nobody else frees it.
                unsafe { std::alloc::dealloc(self.allocated.as_ptr(), layout) };
            }
        }
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::ops::Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` bytes from `ptr` are ours and initialised (zeroed at
        // allocation, only initialised bytes are stored later); `ptr` dangles, aligned,
        // only when the length is 0.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}
