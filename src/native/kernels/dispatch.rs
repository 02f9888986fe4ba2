//! From an element type known at run time to a Rust type.
//!
//! Each macro binds a type name in an expression of type `Result<_, OpError>` and gives
//! [`OpError`](crate::native::operator::OpError) for an element type outside its group.

/// The four floating-point types that ONNX computes with.
macro_rules! with_float {
    ($ty:expr, $T:ident => $body:expr) => {
        match $ty {
            ElementType::Float32 => {
                type $T = f32;
                $body
            }
            ElementType::Float64 => {
                type $T = f64;
                $body
            }
            ElementType::Float16 => {
                type $T = half::f16;
                $body
            }
            ElementType::Bfloat16 => {
                type $T = half::bf16;
                $body
            }
            other => Err($crate::native::kernels::unsupported(
                other,
                "float16, bfloat16, float32 or float64",
            )),
        }
    };
}

/// The eight integer types of 8 to 64 bits.
macro_rules! with_integer {
    ($ty:expr, $T:ident => $body:expr) => {
        match $ty {
            ElementType::Int8 => {
                type $T = i8;
                $body
            }
            ElementType::Int16 => {
                type $T = i16;
                $body
            }
            ElementType::Int32 => {
                type $T = i32;
                $body
            }
            ElementType::Int64 => {
                type $T = i64;
                $body
            }
            ElementType::Uint8 => {
                type $T = u8;
                $body
            }
            ElementType::Uint16 => {
                type $T = u16;
                $body
            }
            ElementType::Uint32 => {
                type $T = u32;
                $body
            }
            ElementType::Uint64 => {
                type $T = u64;
                $body
            }
            other => Err($crate::native::kernels::unsupported(
                other,
                "an integer of 8 to 64 bits",
            )),
        }
    };
}

/// Floats and integers.
macro_rules! with_number {
    ($ty:expr, $T:ident => $body:expr) => {
        match $ty {
            ElementType::Float32 => {
                type $T = f32;
                $body
            }
            ElementType::Float64 => {
                type $T = f64;
                $body
            }
            ElementType::Float16 => {
                type $T = half::f16;
                $body
            }
            ElementType::Bfloat16 => {
                type $T = half::bf16;
                $body
            }
            other => with_integer!(other, $T => $body),
        }
    };
}

pub(super) use {with_float, with_integer, with_number};
