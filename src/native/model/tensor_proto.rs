use std::path::PathBuf;

use bytes::Bytes;
use thiserror::Error;

use super::onnx::{StringStringEntryProto, TensorProto};
use crate::native::element::{Element, ElementType};
use crate::native::operator::OpError;
use crate::native::tensor::{Dims, Tensor, as_bytes, element_count};

#[cfg(target_endian = "big")]
compile_error!("ONNX stores little-endian elements, and this runtime uses them in place");

/// Why a `TensorProto` is no tensor.
#[derive(Debug, Error)]
pub(super) enum TensorProtoError {
    #[error("{0}")]
    Invalid(String),
    #[error("cannot allocate {bytes} bytes")]
    OutOfMemory { bytes: usize },
    #[error("cannot read {}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

impl From<OpError> for TensorProtoError {
    fn from(error: OpError) -> Self {
        match error {
            OpError::OutOfMemory { bytes } => TensorProtoError::OutOfMemory { bytes },
            error => TensorProtoError::Invalid(error.to_string()),
        }
    }
}

fn invalid(message: impl Into<String>) -> TensorProtoError {
    TensorProtoError::Invalid(message.into())
}

/// Finds the bytes of `external_data`: those from its offset to the end of the file, and
/// the declared length.
pub(super) type FindExternal<'a> =
    &'a mut dyn FnMut(&[StringStringEntryProto]) -> Result<(Bytes, Option<usize>), TensorProtoError>;

/// `TensorProto.DataLocation.EXTERNAL`.
const EXTERNAL: i32 = 1;

/// The tensor that a `TensorProto` holds. Sizes are checked before anything is allocated.
pub(super) fn read(proto: &TensorProto, external: FindExternal<'_>) -> Result<Tensor, TensorProtoError> {
    let ty = ElementType::from_code(proto.data_type).ok_or_else(|| {
        let code = proto.data_type;
        invalid(format!("data type {code} is none of ONNX's"))
    })?;
    let dims: Dims = proto
        .dims
        .iter()
        .map(|&dim| usize::try_from(dim))
        .collect::<Result<_, _>>()
        .map_err(|_| invalid(format!("dims {:?} have a negative size", proto.dims)))?;
    let count = element_count(&dims)?;
    let stored = stored_bytes(ty, &dims, count)?;
    if proto.data_location == EXTERNAL {
        let stored = stored.ok_or_else(|| invalid("strings cannot lie in external data"))?;
        let (rest, length) = external(&proto.external_data)?;
        if let Some(length) = length.filter(|&length| length != stored) {
            return Err(invalid(format!(
                "external data has length {length}, expected {stored} for {ty}{dims:?}"
            )));
        }
        if rest.len() < stored {
            return Err(invalid(format!(
                "external data ends after {} bytes, expected {stored} for {ty}{dims:?}",
                rest.len()
            )));
        }
        return from_stored(ty, &dims, count, rest.slice(..stored));
    }
    match (&proto.raw_data, stored) {
        (Some(raw), Some(stored)) => {
            if raw.len() != stored {
                return Err(invalid(format!(
                    "raw_data has {} bytes, expected {stored} for {ty}{dims:?}",
                    raw.len()
                )));
            }
            from_stored(ty, &dims, count, raw.clone())
        }
        (Some(_), None) => Err(invalid("strings cannot lie in raw_data")),
        (None, _) => from_typed(proto, ty, &dims, count),
    }
}

/// Bytes that the elements take in `raw_data` or external data; `None` for strings.
fn stored_bytes(ty: ElementType, dims: &[usize], count: usize) -> Result<Option<usize>, TensorProtoError> {
    let Some(bits) = ty.stored_bits() else {
        return Ok(None);
    };
    let bytes = match bits {
        8.. => count.checked_mul(bits / 8),
        _ => Some(count.div_ceil(8 / bits)),
    };
    bytes
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .map(Some)
        .ok_or_else(|| OpError::TooLarge { dims: dims.into() }.into())
}

fn from_stored(
    ty: ElementType,
    dims: &[usize],
    count: usize,
    stored: Bytes,
) -> Result<Tensor, TensorProtoError> {
    match ty.stored_bits() {
        Some(bits) if bits < 8 => {
            let unpacked = unpack(ty, bits, count, &stored)?;
            Ok(Tensor::from_raw(ty, dims, &unpacked)?)
        }
        _ => Ok(Tensor::from_model(ty, dims, stored)?),
    }
}

/// One byte for each element of a packed type, whose first element lies in the lowest bits.
fn unpack(ty: ElementType, bits: usize, count: usize, packed: &[u8]) -> Result<Vec<u8>, TensorProtoError> {
    let mut unpacked = reserve(count)?;
    let signed = matches!(ty, ElementType::Int4 | ElementType::Int2);
    let unused = 8 - bits;
    let pieces = packed
        .iter()
        .flat_map(|&byte| (0..8 / bits).map(move |piece| byte >> (piece * bits)));
    unpacked.extend(pieces.take(count).map(|piece| {
        let high = piece << unused;
        match signed {
            true => ((high as i8) >> unused) as u8,
            false => high >> unused,
        }
    }));
    Ok(unpacked)
}

fn reserve<T>(count: usize) -> Result<Vec<T>, TensorProtoError> {
    let mut room = Vec::new();
    room.try_reserve_exact(count)
        .map_err(|_| TensorProtoError::OutOfMemory {
            bytes: count.saturating_mul(size_of::<T>()),
        })?;
    Ok(room)
}

/// The elements from the typed field that onnx.proto assigns to the type.
fn from_typed(
    proto: &TensorProto,
    ty: ElementType,
    dims: &[usize],
    count: usize,
) -> Result<Tensor, TensorProtoError> {
    use ElementType as E;
    let int32 = &proto.int32_data;
    match ty {
        E::Float32 => whole(ty, dims, count, "float_data", &proto.float_data),
        E::Float64 => whole(ty, dims, count, "double_data", &proto.double_data),
        E::Int64 => whole(ty, dims, count, "int64_data", &proto.int64_data),
        E::Uint64 => whole(ty, dims, count, "uint64_data", &proto.uint64_data),
        E::Int32 => whole(ty, dims, count, "int32_data", int32),
        // Pairs of real and imaginary parts.
        E::Complex64 => whole(ty, dims, count.saturating_mul(2), "float_data", &proto.float_data),
        E::Complex128 => whole(
            ty,
            dims,
            count.saturating_mul(2),
            "double_data",
            &proto.double_data,
        ),
        E::Uint32 => narrowed::<u32, u64>(ty, dims, count, "uint64_data", &proto.uint64_data),
        E::Uint16 | E::Float16 | E::Bfloat16 => narrowed::<u16, i32>(ty, dims, count, "int32_data", int32),
        E::Int16 => narrowed::<i16, i32>(ty, dims, count, "int32_data", int32),
        E::Int8 => narrowed::<i8, i32>(ty, dims, count, "int32_data", int32),
        E::Uint8
        | E::Bool
        | E::Float8E4M3FN
        | E::Float8E4M3FNUZ
        | E::Float8E5M2
        | E::Float8E5M2FNUZ
        | E::Float8E8M0 => narrowed::<u8, i32>(ty, dims, count, "int32_data", int32),
        // Each entry is one byte of packed elements.
        E::Uint4 | E::Int4 | E::Float4E2M1 | E::Uint2 | E::Int2 => {
            let bits = ty.stored_bits().unwrap_or(8);
            let packed = narrow::<u8, i32>(ty, dims, count.div_ceil(8 / bits), "int32_data", int32)?;
            let unpacked = unpack(ty, bits, count, &packed)?;
            Ok(Tensor::from_raw(ty, dims, &unpacked)?)
        }
        E::String => {
            expect_count(ty, dims, count, "string_data", proto.string_data.len())?;
            let mut strings = reserve(count)?;
            for bytes in &proto.string_data {
                let string = std::str::from_utf8(bytes)
                    .map_err(|_| invalid("string_data holds bytes that are not UTF-8"))?;
                strings.push(string.to_owned());
            }
            Ok(Tensor::from_strings(dims, strings)?)
        }
    }
}

fn expect_count(
    ty: ElementType,
    dims: &[usize],
    expected: usize,
    field: &str,
    found: usize,
) -> Result<(), TensorProtoError> {
    match found == expected {
        true => Ok(()),
        false => Err(invalid(format!(
            "{field} has {found} values, expected {expected} for {ty}{dims:?}"
        ))),
    }
}

/// A tensor whose elements lie in memory as the field's values do.
fn whole<S: Element>(
    ty: ElementType,
    dims: &[usize],
    count: usize,
    field: &str,
    values: &[S],
) -> Result<Tensor, TensorProtoError> {
    expect_count(ty, dims, count, field, values.len())?;
    Ok(Tensor::from_raw(ty, dims, as_bytes(values))?)
}

/// A tensor whose elements (or their bits) are stored in a wider field.
fn narrowed<T: Element + TryFrom<S>, S: Copy>(
    ty: ElementType,
    dims: &[usize],
    count: usize,
    field: &str,
    values: &[S],
) -> Result<Tensor, TensorProtoError> {
    let narrow = narrow::<T, S>(ty, dims, count, field, values)?;
    Ok(Tensor::from_raw(ty, dims, as_bytes(&narrow))?)
}

fn narrow<T: TryFrom<S>, S: Copy>(
    ty: ElementType,
    dims: &[usize],
    count: usize,
    field: &str,
    values: &[S],
) -> Result<Vec<T>, TensorProtoError> {
    expect_count(ty, dims, count, field, values.len())?;
    let mut narrow = reserve(count)?;
    for &value in values {
        let value = T::try_from(value)
            .map_err(|_| invalid(format!("{field} holds a value that is none of type {ty}")))?;
        narrow.push(value);
    }
    Ok(narrow)
}
