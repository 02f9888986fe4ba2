//! ONNX Runtime's C API with its two rules turned into types: a returned status is an error
//! and must be released; a created object must be released.
//!
//! The `ort` crate's own sessions and values are not used. They panic on what a file can
//! hold (`unreachable!` for a sparse input), do not take preallocated outputs of any type in
//! a plain run, and their environment asks for every verbose log line.

use std::ffi::{CStr, c_char};
use std::mem;
use std::ptr::{self, NonNull};

use ort::sys;
use ort::sys::{ONNXTensorElementDataType as ElementType, OrtApi, OrtErrorCode, OrtStatus, OrtStatusPtr};

use crate::component::DataType;

/// The C API of the loaded library.
#[derive(Clone, Copy)]
pub(super) struct Api(pub &'static OrtApi);

/// A call that the library answered with an error.
#[derive(Debug)]
pub(super) struct Failure {
    /// OrtErrorCode, as a number: a later version may have more of them.
    pub code: i32,
    pub message: String,
}

impl Failure {
    pub fn is_not_implemented(&self) -> bool {
        self.code == OrtErrorCode::ORT_NOT_IMPLEMENTED as i32
    }

    /// A failure of ours in a place where only the library fails otherwise.
    pub fn new(message: impl Into<String>) -> Self {
        Failure {
            code: OrtErrorCode::ORT_FAIL as i32,
            message: message.into(),
        }
    }
}

impl Api {
    /// Turns the status that a call returned into a result.
    pub fn check(self, status: OrtStatusPtr) -> Result<(), Failure> {
        let status = status.0;
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: both types are functions of the C ABI that return a 32-bit integer
        // (`OrtErrorCode` is `repr(i32)`); as an integer, a code that this version of the
        // bindings does not list is no invalid enum value.
        let get_code = unsafe {
            mem::transmute::<
                unsafe extern "system" fn(*const OrtStatus) -> OrtErrorCode,
                unsafe extern "system" fn(*const OrtStatus) -> i32,
            >(self.0.GetErrorCode)
        };
        // SAFETY: a non-null status is a live object of the library that now belongs to us;
        // its message lives as long as it does, and it is released once, last.
        unsafe {
            let failure = Failure {
                code: get_code(status),
                message: text((self.0.GetErrorMessage)(status)),
            };
            (self.0.ReleaseStatus)(status);
            Err(failure)
        }
    }

    /// Makes an object with `create`, which is handed the place for its pointer, and sees to
    /// it that `release` gets it in the end.
    pub fn make<T>(
        self,
        release: unsafe extern "system" fn(*mut T),
        create: impl FnOnce(&OrtApi, *mut *mut T) -> OrtStatusPtr,
    ) -> Result<Owned<T>, Failure> {
        let mut made = ptr::null_mut();
        self.check(create(self.0, &raw mut made))?;
        let ptr = NonNull::new(made).ok_or_else(|| Failure::new("the library made no object"))?;
        Ok(Owned { ptr, release })
    }
}

/// An object of the library that is released when this goes.
pub(super) struct Owned<T> {
    ptr: NonNull<T>,
    release: unsafe extern "system" fn(*mut T),
}

impl<T> Owned<T> {
    /// Takes over an object that the library made.
    ///
    /// # Safety
    /// `ptr` is a live object that nobody else releases and that `release` is for.
    pub unsafe fn from_raw(ptr: NonNull<T>, release: unsafe extern "system" fn(*mut T)) -> Self {
        Owned { ptr, release }
    }

    /// The object, for ever.
    pub fn keep(self) -> NonNull<T> {
        std::mem::ManuallyDrop::new(self).ptr
    }

    pub fn as_ptr(&self) -> *mut T {
        self.ptr.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `make` and `from_raw` gave us a live object and its release function; it
        // is released here only.
        unsafe { (self.release)(self.ptr.as_ptr()) }
    }
}

// SAFETY: the library's objects have no thread affinity: any thread may use and release
// them.
unsafe impl<T> Send for Owned<T> {}
// SAFETY: a shared `Owned` only hands out its pointer. Calls through it are unsafe and argue
// for themselves.
unsafe impl<T> Sync for Owned<T> {}

/// A C string of the library, which says that its texts are UTF-8.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string that lives for the call.
pub(super) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

pub(super) fn element_type(dtype: DataType) -> ElementType {
    match dtype {
        DataType::Float32 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        DataType::Uint8 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        DataType::Int8 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        DataType::Uint16 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        DataType::Int16 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        DataType::Int32 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        DataType::Int64 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        DataType::Bool => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        DataType::Float16 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        DataType::Uint32 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        DataType::Uint64 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        DataType::Bfloat16 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
        DataType::Float8E4M3FN => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN,
        DataType::Float8E5M2 => ElementType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2,
    }
}

/// Element type code (that of ONNX's TensorProto.DataType, in numbers that we know and not),
/// and dims with their names, of a declared type or a value.
///
/// # Safety
/// `info` is a live object.
pub(super) unsafe fn tensor_info(
    api: Api,
    info: *const sys::OrtTensorTypeAndShapeInfo,
) -> Result<(i64, Vec<i64>), Failure> {
    let mut code = 0_i32;
    let mut rank = 0;
    // SAFETY: `info` lives (the caller's promise) and the places written to are ours. The
    // element type is written as the 32-bit integer that it is in C.
    let dims = unsafe {
        api.check((api.0.GetTensorElementType)(info, (&raw mut code).cast()))?;
        api.check((api.0.GetDimensionsCount)(info, &raw mut rank))?;
        let mut dims = vec![0; rank];
        api.check((api.0.GetDimensions)(info, dims.as_mut_ptr(), rank))?;
        dims
    };
    Ok((code.into(), dims))
}
