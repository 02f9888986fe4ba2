use std::fmt;

/// Element type of a tensor at the seam and at the C boundary.
///
/// The discriminants are the codes of ONNX's `TensorProto.DataType`. ONNX has more types
/// (string, float64, complex, 4-bit, ...); a port of one of those exists as
/// [`PortType::Other`](super::PortType::Other), but no value of it crosses the seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum DataType {
    Float32 = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    Bool = 9,
    Float16 = 10,
    Uint32 = 12,
    Uint64 = 13,
    Bfloat16 = 16,
    Float8E4M3FN = 17,
    Float8E5M2 = 19,
}

impl DataType {
    /// float32, float16 or bfloat16: what values between components are converted among.
    pub(crate) fn is_float32_or_smaller(self) -> bool {
        matches!(self, DataType::Float32 | DataType::Float16 | DataType::Bfloat16)
    }

    /// int32 or int64: what token ids, positions and lengths are of.
    pub(crate) fn is_index(self) -> bool {
        matches!(self, DataType::Int32 | DataType::Int64)
    }

    /// All of them, in the order of their codes.
    pub const ALL: [DataType; 14] = [
        DataType::Float32,
        DataType::Uint8,
        DataType::Int8,
        DataType::Uint16,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Bool,
        DataType::Float16,
        DataType::Uint32,
        DataType::Uint64,
        DataType::Bfloat16,
        DataType::Float8E4M3FN,
        DataType::Float8E5M2,
    ];

    /// The type with this `TensorProto.DataType` code, if it is one of the fourteen.
    pub fn from_code(code: u32) -> Option<DataType> {
        Self::ALL.into_iter().find(|dtype| dtype.code() == code)
    }

    /// The `TensorProto.DataType` code.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// Bytes per element; also the alignment that an element needs.
    pub fn size(self) -> usize {
        match self {
            DataType::Uint8
            | DataType::Int8
            | DataType::Bool
            | DataType::Float8E4M3FN
            | DataType::Float8E5M2 => 1,
            DataType::Uint16 | DataType::Int16 | DataType::Float16 | DataType::Bfloat16 => 2,
            DataType::Float32 | DataType::Int32 | DataType::Uint32 => 4,
            DataType::Int64 | DataType::Uint64 => 8,
        }
    }

    /// ONNX's name in lower case: `float32`, `int64`, `float8e4m3fn`, ...
    pub fn name(self) -> &'static str {
        match self {
            DataType::Float32 => "float32",
            DataType::Uint8 => "uint8",
            DataType::Int8 => "int8",
            DataType::Uint16 => "uint16",
            DataType::Int16 => "int16",
            DataType::Int32 => "int32",
            DataType::Int64 => "int64",
            DataType::Bool => "bool",
            DataType::Float16 => "float16",
            DataType::Uint32 => "uint32",
            DataType::Uint64 => "uint64",
            DataType::Bfloat16 => "bfloat16",
            DataType::Float8E4M3FN => "float8e4m3fn",
            DataType::Float8E5M2 => "float8e5m2",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
