//! Element types: ONNX's `TensorProto.DataType` codes.

use std::ffi::{CStr, c_char};

use crate::component::DataType;

use super::failure::{Failure, Result};
use super::status::OXP_ERR_UNSUPPORTED_DTYPE;

/// Types of elements, with ONNX's numbers (TensorProto.DataType).
pub const OXP_DTYPE_FLOAT32: u32 = 1;
pub const OXP_DTYPE_UINT8: u32 = 2;
pub const OXP_DTYPE_INT8: u32 = 3;
pub const OXP_DTYPE_UINT16: u32 = 4;
pub const OXP_DTYPE_INT16: u32 = 5;
pub const OXP_DTYPE_INT32: u32 = 6;
pub const OXP_DTYPE_INT64: u32 = 7;
/// One byte an element.
pub const OXP_DTYPE_BOOL: u32 = 9;
pub const OXP_DTYPE_FLOAT16: u32 = 10;
pub const OXP_DTYPE_UINT32: u32 = 12;
pub const OXP_DTYPE_UINT64: u32 = 13;
pub const OXP_DTYPE_BFLOAT16: u32 = 16;
pub const OXP_DTYPE_FLOAT8E4M3FN: u32 = 17;
pub const OXP_DTYPE_FLOAT8E5M2: u32 = 19;

// The header's codes are the seam's.
const _: () = {
    assert!(OXP_DTYPE_FLOAT32 == DataType::Float32 as u32 && OXP_DTYPE_UINT8 == DataType::Uint8 as u32);
    assert!(OXP_DTYPE_INT8 == DataType::Int8 as u32 && OXP_DTYPE_UINT16 == DataType::Uint16 as u32);
    assert!(OXP_DTYPE_INT16 == DataType::Int16 as u32 && OXP_DTYPE_INT32 == DataType::Int32 as u32);
    assert!(OXP_DTYPE_INT64 == DataType::Int64 as u32 && OXP_DTYPE_BOOL == DataType::Bool as u32);
    assert!(OXP_DTYPE_FLOAT16 == DataType::Float16 as u32 && OXP_DTYPE_UINT32 == DataType::Uint32 as u32);
    assert!(OXP_DTYPE_UINT64 == DataType::Uint64 as u32 && OXP_DTYPE_BFLOAT16 == DataType::Bfloat16 as u32);
    assert!(OXP_DTYPE_FLOAT8E4M3FN == DataType::Float8E4M3FN as u32);
    assert!(OXP_DTYPE_FLOAT8E5M2 == DataType::Float8E5M2 as u32);
};

/// Bytes of one element of the type with this OXP_DTYPE_ code; 0 for a number that is none.
/// Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_dtype_size(dtype: u32) -> u64 {
    DataType::from_code(dtype).map_or(0, |dtype| dtype.size() as u64)
}

/// ONNX's name of the type with this OXP_DTYPE_ code in lower case, "float32"; "" for a
/// number that is none. A static string, never to be freed. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn oxp_dtype_name(dtype: u32) -> *const c_char {
    DataType::from_code(dtype).map_or(c"", name).as_ptr()
}

fn name(dtype: DataType) -> &'static CStr {
    match dtype {
        DataType::Float32 => c"float32",
        DataType::Uint8 => c"uint8",
        DataType::Int8 => c"int8",
        DataType::Uint16 => c"uint16",
        DataType::Int16 => c"int16",
        DataType::Int32 => c"int32",
        DataType::Int64 => c"int64",
        DataType::Bool => c"bool",
        DataType::Float16 => c"float16",
        DataType::Uint32 => c"uint32",
        DataType::Uint64 => c"uint64",
        DataType::Bfloat16 => c"bfloat16",
        DataType::Float8E4M3FN => c"float8e4m3fn",
        DataType::Float8E5M2 => c"float8e5m2",
    }
}

/// The type with this code, or an error that says what the code is, if ONNX has it.
pub(super) fn from_code(code: u32, what: &str) -> Result<DataType> {
    DataType::from_code(code).ok_or_else(|| {
        let known = match code {
            0 => " (undefined: was it set?)",
            8 => " (string)",
            11 => " (float64)",
            14 | 15 => " (complex)",
            18 | 20 => " (an 8-bit float without a code here)",
            21..=23 => " (a 4-bit type)",
            _ => "",
        };
        Failure::new(
            OXP_ERR_UNSUPPORTED_DTYPE,
            format!(
                "{what}: dtype {code}{known} does not cross this interface; use one of the OXP_DTYPE_ codes, \
                 values are never converted"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_the_seams_name() {
        for dtype in DataType::ALL {
            assert_eq!(name(dtype).to_str().unwrap(), dtype.name());
        }
    }
}
