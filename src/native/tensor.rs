use std::fmt::{self, Debug};
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::element::{Element, ElementType};
use super::ending;
use super::operator::OpError;
use super::strings::Strings;
use crate::component::{AlignedBytes, MAX_RANK};

/// Concrete dims. Ranks up to 6 need no heap.
pub type Dims = SmallVec<[usize; 6]>;

/// The most that the dims of a tensor without elements may come to, but for those of zero: more than
/// those of any weights that a batch or a past of nothing meets, and few enough for a loop over what
/// is around nothing to end.
const MOST_AROUND_NOTHING: usize = u32::MAX as usize;

/// An error for a rank that no tensor has. What makes dims of as many as another tensor has elements asks
/// first.
pub(super) fn check_rank(rank: usize) -> Result<(), OpError> {
    match rank <= MAX_RANK {
        true => Ok(()),
        false => Err(OpError::Message(format!(
            "a result would have rank {rank}; the limit is {MAX_RANK}"
        ))),
    }
}

/// The number of elements of these dims, or an error when they cannot be counted.
///
/// The product of the dims that are not zero is checked too, so that a zero dim does not
/// excuse an absurd one.
pub fn element_count(dims: &[usize]) -> Result<usize, OpError> {
    check_rank(dims.len())?;
    let (mut count, mut is_empty): (usize, bool) = (1, false);
    for &dim in dims {
        is_empty |= dim == 0;
        count = match count.checked_mul(dim.max(1)) {
            Some(count) if count <= isize::MAX as usize => count,
            _ => return Err(OpError::TooLarge { dims: dims.into() }),
        };
    }
    match is_empty {
        true if count > MOST_AROUND_NOTHING => Err(OpError::Message(format!(
            "dims {dims:?} have no elements, and come to {count} but for those of 0; expected at most \
             {MOST_AROUND_NOTHING}"
        ))),
        true => Ok(0),
        false => Ok(count),
    }
}

/// Bytes that a tensor of these dims takes inside the runtime; at most `isize::MAX`.
pub(super) fn byte_count(ty: ElementType, dims: &[usize]) -> Result<usize, OpError> {
    let size = ty.size().unwrap_or(1);
    let count = element_count(dims)?;
    count
        .checked_mul(size)
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or_else(|| OpError::TooLarge { dims: dims.into() })
}

/// An owned tensor of any element type. Clones share the elements.
#[derive(Clone)]
pub struct Tensor {
    ty: ElementType,
    dims: Dims,
    data: Data,
}

/// Invariant: as many bytes or strings as type and dims say, bytes aligned to the element
/// size.
#[derive(Clone)]
enum Data {
    Heap(Arc<AlignedBytes>),
    /// A piece of a model file or of a caller's model bytes.
    Model(Bytes),
    Strings(Arc<Strings>),
}

impl Tensor {
    /// A tensor of a copy of these elements; fails when there are not as many as `dims` say.
    pub fn from_slice<T: Element>(dims: &[usize], elements: &[T]) -> Result<Self, OpError> {
        Self::from_raw(T::TYPE, dims, as_bytes(elements))
    }

    /// A tensor of a copy of these bytes, as they lie inside the runtime (4-bit and 2-bit
    /// elements one a byte).
    pub fn from_raw(ty: ElementType, dims: &[usize], bytes: &[u8]) -> Result<Self, OpError> {
        let heap =
            AlignedBytes::try_from_slice(bytes).map_err(|_| OpError::OutOfMemory { bytes: bytes.len() })?;
        Self::from_heap(ty, dims.into(), Arc::new(heap))
    }

    /// A tensor of these bytes, which are not copied.
    pub(super) fn from_heap(ty: ElementType, dims: Dims, bytes: Arc<AlignedBytes>) -> Result<Self, OpError> {
        check_length(ty, &dims, bytes.len())?;
        Ok(Tensor {
            ty,
            dims,
            data: Data::Heap(bytes),
        })
    }

    /// A tensor over a piece of a model, in place when it is aligned, else a copy.
    pub(super) fn from_model(ty: ElementType, dims: &[usize], bytes: Bytes) -> Result<Self, OpError> {
        let size = ty.size().unwrap_or(1);
        if !bytes.as_ptr().addr().is_multiple_of(size) {
            return Self::from_raw(ty, dims, &bytes);
        }
        check_length(ty, dims, bytes.len())?;
        Ok(Tensor {
            ty,
            dims: dims.into(),
            data: Data::Model(bytes),
        })
    }

    /// A tensor of strings; fails when there are not as many as `dims` say.
    pub fn from_strings(dims: &[usize], strings: Vec<String>) -> Result<Self, OpError> {
        Self::of_strings(dims, Strings::of(strings)?)
    }

    /// [`from_strings`](Self::from_strings) of strings that have been counted.
    pub(super) fn of_strings(dims: &[usize], strings: Strings) -> Result<Self, OpError> {
        check_length(ElementType::String, dims, strings.as_slice().len())?;
        Ok(Tensor {
            ty: ElementType::String,
            dims: dims.into(),
            data: Data::Strings(Arc::new(strings)),
        })
    }

    pub fn element_type(&self) -> ElementType {
        self.ty
    }

    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Bytes of all elements; for strings, their number.
    pub(super) fn byte_len(&self) -> usize {
        match &self.data {
            Data::Heap(bytes) => bytes.len(),
            Data::Model(bytes) => bytes.len(),
            Data::Strings(strings) => strings.as_slice().len(),
        }
    }

    /// Bytes that all elements take, strings with their text.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.data {
            Data::Strings(strings) => strings.bytes(),
            Data::Heap(_) | Data::Model(_) => self.byte_len(),
        }
    }

    /// The same elements under other dims of the same product.
    pub(super) fn with_dims(&self, dims: &[usize]) -> Result<Self, OpError> {
        check_length(self.ty, dims, self.byte_len())?;
        Ok(Tensor {
            dims: dims.into(),
            ..self.clone()
        })
    }

    /// The buffer behind it, if it is on the heap.
    pub(super) fn into_heap(self) -> Option<Arc<AlignedBytes>> {
        match self.data {
            Data::Heap(bytes) => Some(bytes),
            Data::Model(_) | Data::Strings(_) => None,
        }
    }

    /// Its bytes as a buffer that nobody else holds: its own when it is the only holder,
    /// else a copy. Fails for strings, and when the allocator does.
    pub(super) fn into_bytes(self) -> Result<AlignedBytes, OpError> {
        let bytes = match self.data {
            Data::Heap(bytes) => match Arc::try_unwrap(bytes) {
                Ok(bytes) => return Ok(bytes),
                Err(shared) => AlignedBytes::try_from_slice(&shared),
            },
            Data::Model(bytes) => AlignedBytes::try_from_slice(&bytes),
            Data::Strings(_) => return Err(OpError::Message("strings are not bytes".into())),
        };
        bytes.map_err(|_| OpError::OutOfMemory { bytes: 0 })
    }

    pub fn view(&self) -> TensorRef<'_> {
        TensorRef {
            ty: self.ty,
            dims: &self.dims,
            data: match &self.data {
                Data::Heap(bytes) => RefData::Bytes(bytes),
                Data::Model(bytes) => RefData::Bytes(bytes),
                Data::Strings(strings) => RefData::Strings(strings.as_slice()),
            },
            owner: Some(self),
        }
    }
}

impl Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

fn check_length(ty: ElementType, dims: &[usize], found: usize) -> Result<(), OpError> {
    let expected = byte_count(ty, dims)?;
    if found == expected {
        return Ok(());
    }
    Err(OpError::Length {
        ty,
        dims: dims.into(),
        found,
        expected,
    })
}

/// A borrowed tensor of any element type: what a kernel reads.
///
/// Invariant: as many bytes or strings as type and dims say; bytes are aligned to the
/// element size.
#[derive(Clone, Copy)]
pub struct TensorRef<'a> {
    ty: ElementType,
    dims: &'a [usize],
    data: RefData<'a>,
    /// What holds the elements, if it is a tensor (perhaps of other dims).
    owner: Option<&'a Tensor>,
}

#[derive(Clone, Copy)]
enum RefData<'a> {
    Bytes(&'a [u8]),
    Strings(&'a [String]),
    /// Not to be had here: in a cache that the same kernel makes longer.
    InCache,
}

impl<'a> TensorRef<'a> {
    /// A tensor over borrowed bytes: right in number and aligned, or an error.
    pub fn new(ty: ElementType, dims: &'a [usize], bytes: &'a [u8]) -> Result<Self, OpError> {
        check_length(ty, dims, bytes.len())?;
        match ty.size() {
            Some(size) if bytes.as_ptr().addr().is_multiple_of(size) => Ok(TensorRef {
                ty,
                dims,
                data: RefData::Bytes(bytes),
                owner: None,
            }),
            _ => Err(OpError::Message(format!(
                "bytes are not aligned for elements of {ty}"
            ))),
        }
    }

    /// A tensor over borrowed strings.
    pub fn from_strings(dims: &'a [usize], strings: &'a [String]) -> Result<Self, OpError> {
        check_length(ElementType::String, dims, strings.len())?;
        Ok(TensorRef {
            ty: ElementType::String,
            dims,
            data: RefData::Strings(strings),
            owner: None,
        })
    }

    /// The past or the present of a cache that is made longer where it lies: only its type and
    /// dims are known.
    pub(super) fn in_cache(ty: ElementType, dims: &'a [usize]) -> Result<Self, OpError> {
        byte_count(ty, dims)?;
        Ok(TensorRef {
            ty,
            dims,
            data: RefData::InCache,
            owner: None,
        })
    }

    pub fn element_type(&self) -> ElementType {
        self.ty
    }

    pub fn dims(&self) -> &'a [usize] {
        self.dims
    }

    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self.data {
            RefData::Bytes(bytes) => bytes.len() / self.ty.size().unwrap_or(1),
            RefData::Strings(strings) => strings.len(),
            // `in_cache` has counted them.
            RefData::InCache => self.dims.iter().product(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, when they are of type `T`.
    pub fn slice<T: Element>(&self) -> Result<&'a [T], OpError> {
        match self.data {
            // SAFETY: the type is `T::TYPE`, so by the invariant the bytes are aligned for
            // `size_of::<T>()`, which `Element` bounds the alignment of `T` by, and are a
            // whole number of elements; every bit pattern is a `T`. The lifetime is that of
            // the borrowed bytes.
            RefData::Bytes(bytes) if self.ty == T::TYPE => unsafe {
                Ok(std::slice::from_raw_parts(
                    bytes.as_ptr().cast(),
                    bytes.len() / size_of::<T>(),
                ))
            },
            RefData::InCache => Err(in_cache()),
            _ => Err(OpError::WrongType {
                what: "value".into(),
                found: self.ty,
                expected: T::TYPE.name().into(),
            }),
        }
    }

    /// The elements as they lie in memory; fails for strings.
    pub fn bytes(&self) -> Result<&'a [u8], OpError> {
        match self.data {
            RefData::Bytes(bytes) => Ok(bytes),
            RefData::InCache => Err(in_cache()),
            RefData::Strings(_) => Err(OpError::WrongType {
                what: "value".into(),
                found: self.ty,
                expected: "anything but strings".into(),
            }),
        }
    }

    /// The elements of a tensor of strings.
    pub fn strings(&self) -> Result<&'a [String], OpError> {
        match self.data {
            RefData::Strings(strings) => Ok(strings),
            RefData::InCache | RefData::Bytes(_) => Err(OpError::WrongType {
                what: "value".into(),
                found: self.ty,
                expected: "string".into(),
            }),
        }
    }

    /// The elements of an `int64` or `int32` tensor (shapes, axes, sizes), as `i64`.
    pub fn to_ints(&self) -> Result<SmallVec<[i64; 6]>, OpError> {
        // There may be as many as there are elements of a large tensor: indices.
        fn ints<T: Copy + Into<i64>>(values: &[T]) -> Result<SmallVec<[i64; 6]>, OpError> {
            let mut ints = SmallVec::new();
            ints.try_reserve_exact(values.len())
                .map_err(|_| OpError::OutOfMemory {
                    bytes: values.len().saturating_mul(size_of::<i64>()),
                })?;
            for piece in values.chunks(ending::PIECE) {
                ending::count(piece.len());
                ints.extend(piece.iter().map(|&value| value.into()));
            }
            Ok(ints)
        }
        match self.ty {
            ElementType::Int64 => ints(self.slice::<i64>()?),
            ElementType::Int32 => ints(self.slice::<i32>()?),
            found => Err(OpError::WrongType {
                what: "value".into(),
                found,
                expected: "int64 or int32".into(),
            }),
        }
    }

    /// The same elements under other dims of the same product.
    pub fn reshaped(self, dims: &'a [usize]) -> Result<Self, OpError> {
        if element_count(dims)? == self.len() {
            return Ok(TensorRef { dims, ..self });
        }
        Err(OpError::Message(format!(
            "cannot see {:?} as {dims:?}: not the same number of elements",
            self.dims
        )))
    }

    /// The last elements under `dims`, which count no more than there are.
    pub(super) fn tail(self, dims: &'a [usize]) -> Result<Self, OpError> {
        let bytes = self.bytes()?;
        let start = bytes.len().checked_sub(byte_count(self.ty, dims)?);
        match start.and_then(|start| bytes.get(start..)) {
            Some(bytes) => Ok(TensorRef {
                dims,
                data: RefData::Bytes(bytes),
                owner: None,
                ..self
            }),
            None => Err(OpError::Message(format!("{:?} has no tail {dims:?}", self.dims))),
        }
    }

    /// A tensor of these elements: one that shares them where they are a tensor's, else a
    /// copy.
    pub fn to_tensor(&self) -> Result<Tensor, OpError> {
        match (self.owner, self.data) {
            (Some(owner), _) => owner.with_dims(self.dims),
            (None, RefData::Bytes(bytes)) => Tensor::from_raw(self.ty, self.dims, bytes),
            (None, RefData::Strings(strings)) => {
                Tensor::of_strings(self.dims, Strings::copied(strings.iter())?)
            }
            (None, RefData::InCache) => Err(in_cache()),
        }
    }
}

fn in_cache() -> OpError {
    OpError::Message("the elements lie in a cache, which only one kernel sees".into())
}

impl Debug for TensorRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.ty, self.dims)
    }
}

/// The memory of these elements.
pub fn as_bytes<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: an `Element` has no padding, so all its bytes are initialised; the slice
    // covers exactly the memory of `elements` and borrows it.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The memory of these elements, to be written.
pub(super) fn as_bytes_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `as_bytes`; and every bit pattern that is written is an `Element`.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

/// Bytes as elements, if they are a whole number of them and aligned.
pub(super) fn as_elements<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    // SAFETY: every bit pattern is an `Element`.
    match unsafe { bytes.align_to::<T>() } {
        ([], elements, []) => Some(elements),
        _ => None,
    }
}

/// Bytes as elements, if they are a whole number of them and aligned.
pub(super) fn as_elements_mut<T: Element>(bytes: &mut [u8]) -> Option<&mut [T]> {
    // SAFETY: every bit pattern is an `Element`, and one has no padding, so that what is
    // written through the result leaves initialised bytes.
    match unsafe { bytes.align_to_mut::<T>() } {
        ([], elements, []) => Some(elements),
        _ => None,
    }
}
