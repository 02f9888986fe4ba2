use std::fmt::{self, Debug};

use half::{bf16, f16};

use crate::component::DataType;

/// The element types of ONNX; the discriminants are the codes of `TensorProto.DataType`.
///
/// A superset of [`DataType`], the types that cross the seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ElementType {
    Float32 = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Float64 = 11,
    Uint32 = 12,
    Uint64 = 13,
    Complex64 = 14,
    Complex128 = 15,
    Bfloat16 = 16,
    Float8E4M3FN = 17,
    Float8E4M3FNUZ = 18,
    Float8E5M2 = 19,
    Float8E5M2FNUZ = 20,
    Uint4 = 21,
    Int4 = 22,
    Float4E2M1 = 23,
    Float8E8M0 = 24,
    Uint2 = 25,
    Int2 = 26,
}

impl ElementType {
    /// All of them, in the order of their codes.
    pub const ALL: [ElementType; 26] = {
        use ElementType::*;
        [
            Float32,
            Uint8,
            Int8,
            Uint16,
            Int16,
            Int32,
            Int64,
            String,
            Bool,
            Float16,
            Float64,
            Uint32,
            Uint64,
            Complex64,
            Complex128,
            Bfloat16,
            Float8E4M3FN,
            Float8E4M3FNUZ,
            Float8E5M2,
            Float8E5M2FNUZ,
            Uint4,
            Int4,
            Float4E2M1,
            Float8E8M0,
            Uint2,
            Int2,
        ]
    };

    /// The type with this `TensorProto.DataType` code.
    pub fn from_code(code: i32) -> Option<ElementType> {
        let index = usize::try_from(code).ok()?.checked_sub(1)?;
        Self::ALL.get(index).copied()
    }

    /// The `TensorProto.DataType` code.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Bytes that an element takes inside the runtime; `None` for strings, which are no
    /// bytes. 4-bit and 2-bit elements are held one a byte.
    pub const fn size(self) -> Option<usize> {
        use ElementType::*;
        match self {
            String => None,
            Uint8 | Int8 | Bool | Float8E4M3FN | Float8E4M3FNUZ | Float8E5M2 | Float8E5M2FNUZ | Uint4
            | Int4 | Float4E2M1 | Float8E8M0 | Uint2 | Int2 => Some(1),
            Uint16 | Int16 | Float16 | Bfloat16 => Some(2),
            Float32 | Int32 | Uint32 => Some(4),
            Int64 | Uint64 | Float64 | Complex64 => Some(8),
            Complex128 => Some(16),
        }
    }

    /// Bits that an element takes in a model file (`raw_data` and external data); `None`
    /// for strings.
    pub fn stored_bits(self) -> Option<usize> {
        use ElementType::*;
        match self {
            Uint4 | Int4 | Float4E2M1 => Some(4),
            Uint2 | Int2 => Some(2),
            _ => Some(self.size()? * 8),
        }
    }

    /// The same type at the seam, if it crosses it.
    pub fn seam(self) -> Option<DataType> {
        DataType::from_code(self as u32)
    }

    /// The name that ONNX uses inside `tensor(...)`: `float`, `double`, `int64`, ...
    pub fn name(self) -> &'static str {
        use ElementType::*;
        match self {
            Float32 => "float",
            Uint8 => "uint8",
            Int8 => "int8",
            Uint16 => "uint16",
            Int16 => "int16",
            Int32 => "int32",
            Int64 => "int64",
            String => "string",
            Bool => "bool",
            Float16 => "float16",
            Float64 => "double",
            Uint32 => "uint32",
            Uint64 => "uint64",
            Complex64 => "complex64",
            Complex128 => "complex128",
            Bfloat16 => "bfloat16",
            Float8E4M3FN => "float8e4m3fn",
            Float8E4M3FNUZ => "float8e4m3fnuz",
            Float8E5M2 => "float8e5m2",
            Float8E5M2FNUZ => "float8e5m2fnuz",
            Uint4 => "uint4",
            Int4 => "int4",
            Float4E2M1 => "float4e2m1",
            Float8E8M0 => "float8e8m0",
            Uint2 => "uint2",
            Int2 => "int2",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<DataType> for ElementType {
    fn from(dtype: DataType) -> Self {
        match dtype {
            DataType::Float32 => ElementType::Float32,
            DataType::Uint8 => ElementType::Uint8,
            DataType::Int8 => ElementType::Int8,
            DataType::Uint16 => ElementType::Uint16,
            DataType::Int16 => ElementType::Int16,
            DataType::Int32 => ElementType::Int32,
            DataType::Int64 => ElementType::Int64,
            DataType::Bool => ElementType::Bool,
            DataType::Float16 => ElementType::Float16,
            DataType::Uint32 => ElementType::Uint32,
            DataType::Uint64 => ElementType::Uint64,
            DataType::Bfloat16 => ElementType::Bfloat16,
            DataType::Float8E4M3FN => ElementType::Float8E4M3FN,
            DataType::Float8E5M2 => ElementType::Float8E5M2,
        }
    }
}

/// A Rust type that holds elements of one [`ElementType`].
///
/// # Safety
/// The type has no padding and no pointers, every bit pattern of its size is a value of
/// it, its size is `TYPE.size()` and its alignment at most its size.
pub unsafe trait Element: Copy + Debug + PartialEq + Send + Sync + 'static {
    const TYPE: ElementType;
}

macro_rules! elements {
    ($($rust:ty => $variant:ident),* $(,)?) => {
        $(
            // SAFETY: a number, an array of numbers, or a transparent wrapper of one: no
            // padding, every bit pattern a value. The assertion checks size and alignment.
            unsafe impl Element for $rust {
                const TYPE: ElementType = ElementType::$variant;
            }
            const _: () = assert!(
                matches!(ElementType::$variant.size(), Some(size) if size == size_of::<$rust>())
                    && align_of::<$rust>() <= size_of::<$rust>()
            );
        )*
    };
}

elements! {
    f32 => Float32,
    u8 => Uint8,
    i8 => Int8,
    u16 => Uint16,
    i16 => Int16,
    i32 => Int32,
    i64 => Int64,
    Bool => Bool,
    f16 => Float16,
    f64 => Float64,
    u32 => Uint32,
    u64 => Uint64,
    Complex64 => Complex64,
    Complex128 => Complex128,
    bf16 => Bfloat16,
    F8E4M3FN => Float8E4M3FN,
    F8E4M3FNUZ => Float8E4M3FNUZ,
    F8E5M2 => Float8E5M2,
    F8E5M2FNUZ => Float8E5M2FNUZ,
    U4 => Uint4,
    I4 => Int4,
    F4E2M1 => Float4E2M1,
    F8E8M0 => Float8E8M0,
    U2 => Uint2,
    I2 => Int2,
}

/// A boolean as ONNX stores it. Any byte but 0 is true; a byte that a kernel only copies
/// stays what it was.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bool(pub u8);

impl Bool {
    pub fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Bool(value.into())
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Debug for Bool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.get(), f)
    }
}

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident($rust:ty)),* $(,)?) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[repr(transparent)]
            pub struct $name(pub $rust);
        )*
    };
}

bits! {
    /// The bits of an 8-bit float with 4 exponent and 3 mantissa bits, NaN but no infinity.
    F8E4M3FN(u8),
    /// As [`F8E4M3FN`], with one more exponent bias and no negative zero.
    F8E4M3FNUZ(u8),
    /// The bits of an 8-bit float with 5 exponent and 2 mantissa bits.
    F8E5M2(u8),
    /// As [`F8E5M2`], with one more exponent bias, no infinity and no negative zero.
    F8E5M2FNUZ(u8),
    /// The bits of a power of two, 2^(bits - 127); 255 is NaN.
    F8E8M0(u8),
    /// The bits of a 4-bit float with 2 exponent and 1 mantissa bits, in the low half.
    F4E2M1(u8),
    /// 0 to 15.
    U4(u8),
    /// -8 to 7.
    I4(i8),
    /// 0 to 3.
    U2(u8),
    /// -2 to 1.
    I2(i8),
}

/// A complex number of two `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex64 {
    pub re: f32,
    pub im: f32,
}

/// A complex number of two `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex128 {
    pub re: f64,
    pub im: f64,
}
