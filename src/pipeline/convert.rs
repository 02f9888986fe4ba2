use half::{bf16, f16};

use crate::component::{DataType, TensorError, TensorView};

/// Calls `each` with every element of a float32, float16 or bfloat16 tensor as f32 (exact
/// for all three); `false` for another type.
fn for_each_f32(dtype: DataType, bytes: &[u8], mut each: impl FnMut(f32)) -> bool {
    match dtype {
        DataType::Float32 => bytes
            .chunks_exact(4)
            .for_each(|chunk| each(f32::from_le_bytes(chunk.try_into().unwrap_or_default()))),
        DataType::Float16 => bytes
            .chunks_exact(2)
            .for_each(|chunk| each(f16::from_le_bytes(chunk.try_into().unwrap_or_default()).to_f32())),
        DataType::Bfloat16 => bytes
            .chunks_exact(2)
            .for_each(|chunk| each(bf16::from_le_bytes(chunk.try_into().unwrap_or_default()).to_f32())),
        _ => return false,
    }
    true
}

/// Converts among float32, float16 and bfloat16, rounding to nearest even; `false` for
/// other types. `to_bytes` is as long as the result.
pub(super) fn convert_floats(from: TensorView<'_>, to: DataType, to_bytes: &mut [u8]) -> bool {
    let mut chunks = to_bytes.chunks_exact_mut(to.size());
    for_each_f32(from.dtype(), from.bytes(), |value| {
        if let Some(chunk) = chunks.next() {
            write_float(to, chunk, value);
        }
    })
}

/// Floats in the bytes of a float32, float16 or bfloat16 tensor, rounded to nearest even.
pub(super) fn write_floats(dtype: DataType, bytes: &mut [u8], values: impl Iterator<Item = f32>) {
    for (chunk, value) in bytes.chunks_exact_mut(dtype.size()).zip(values) {
        write_float(dtype, chunk, value);
    }
}

fn write_float(dtype: DataType, chunk: &mut [u8], value: f32) {
    match dtype {
        DataType::Float32 => chunk.copy_from_slice(&value.to_le_bytes()),
        DataType::Float16 => chunk.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
        DataType::Bfloat16 => chunk.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
        _ => {}
    }
}

/// The elements of a float32, float16 or bfloat16 tensor, in memory that is used again; none of
/// another type.
pub(super) fn read_floats(tensor: TensorView<'_>, values: &mut Vec<f32>) -> Result<(), TensorError> {
    values.clear();
    let count = tensor.bytes().len() / tensor.dtype().size();
    let bytes = count.saturating_mul(size_of::<f32>());
    values
        .try_reserve(count)
        .map_err(|_| TensorError::OutOfMemory { bytes: bytes as u64 })?;
    for_each_f32(tensor.dtype(), tensor.bytes(), |value| values.push(value));
    Ok(())
}

/// The last row (along the last axis) of a float tensor, as f32. `None` when there is no
/// row or the type is another.
pub(super) fn last_row(tensor: TensorView<'_>, row: &mut Vec<f32>) -> Option<()> {
    let leading = tensor.shape().split_last()?.1.iter();
    let rows: usize = leading.map(|&dim| usize::try_from(dim).unwrap_or(0)).product();
    row_at(tensor, rows.checked_sub(1)?, row)
}

/// One row (along the last axis) of a float tensor, as f32. `None` when there is no such row or
/// the type is another.
pub(super) fn row_at(tensor: TensorView<'_>, index: usize, row: &mut Vec<f32>) -> Option<()> {
    let width = usize::try_from(*tensor.shape().last()?).ok()?;
    let len = width.checked_mul(tensor.dtype().size())?;
    let start = index.checked_mul(len)?;
    let bytes = tensor.bytes().get(start..start.checked_add(len)?)?;
    row.resize(width, 0.0);
    match tensor.dtype() {
        DataType::Float32 => widen(bytes, row, f32::from_le_bytes),
        DataType::Float16 => widen(bytes, row, |bytes| f16::from_le_bytes(bytes).to_f32()),
        DataType::Bfloat16 => widen(bytes, row, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        _ => return None,
    }
    Some(())
}

fn widen<const N: usize>(bytes: &[u8], to: &mut [f32], widen: impl Fn([u8; N]) -> f32) {
    for (to, &bytes) in to.iter_mut().zip(bytes.as_chunks().0) {
        *to = widen(bytes);
    }
}

/// One, in the bytes of any type that an attention mask may have.
pub(super) fn write_ones(dtype: DataType, bytes: &mut [u8]) {
    match dtype {
        DataType::Int64 => fill(bytes, 1i64.to_le_bytes()),
        DataType::Int32 => fill(bytes, 1i32.to_le_bytes()),
        DataType::Float32 => fill(bytes, 1f32.to_le_bytes()),
        DataType::Float16 => fill(bytes, f16::ONE.to_le_bytes()),
        DataType::Bfloat16 => fill(bytes, bf16::ONE.to_le_bytes()),
        _ => bytes.fill(1),
    }
}

fn fill<const N: usize>(bytes: &mut [u8], one: [u8; N]) {
    bytes
        .chunks_exact_mut(N)
        .for_each(|chunk| chunk.copy_from_slice(&one));
}

/// A number in every element of an int32, int64, float32, float16 or bfloat16 tensor; integers
/// lose what is behind the point.
pub(super) fn write_number(dtype: DataType, bytes: &mut [u8], number: f64) {
    match dtype {
        DataType::Int32 | DataType::Int64 => write_integers(dtype, bytes, std::iter::repeat(number as i64)),
        DataType::Float32 => fill(bytes, (number as f32).to_le_bytes()),
        DataType::Float16 => fill(bytes, f16::from_f64(number).to_le_bytes()),
        DataType::Bfloat16 => fill(bytes, bf16::from_f64(number).to_le_bytes()),
        _ => {}
    }
}

/// Integers in the bytes of an int32 or int64 tensor.
pub(super) fn write_integers(dtype: DataType, bytes: &mut [u8], values: impl Iterator<Item = i64>) {
    for (chunk, value) in bytes.chunks_exact_mut(dtype.size()).zip(values) {
        // Little-endian: an int32 is the low half of an int64, and ids and positions fit.
        let wide = value.to_le_bytes();
        if let Some(low) = wide.get(..chunk.len()) {
            chunk.copy_from_slice(low);
        }
    }
}

/// The elements of an int32 or int64 tensor, in memory that is used again; none of another type.
pub(super) fn read_integers(tensor: TensorView<'_>, values: &mut Vec<i64>) {
    values.clear();
    let bytes = tensor.bytes();
    match tensor.dtype() {
        DataType::Int32 => {
            let chunks = bytes.as_chunks().0;
            values.extend(chunks.iter().map(|&chunk| i64::from(i32::from_le_bytes(chunk))));
        }
        DataType::Int64 => values.extend(bytes.as_chunks().0.iter().map(|&chunk| i64::from_le_bytes(chunk))),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_convert_with_round_to_nearest_even() {
        // 1 + 2^-11 lies halfway between two float16: the even one is 1.
        let values = [1.0f32, 1.0 + 2f32.powi(-11), -65504.0, f32::INFINITY];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let view = TensorView::new(DataType::Float32, &[4], &bytes).unwrap();
        let mut halves = [0u8; 8];
        assert!(convert_floats(view, DataType::Float16, &mut halves));
        assert_eq!(halves, [0x00, 0x3c, 0x00, 0x3c, 0xff, 0xfb, 0x00, 0x7c]);
        let halves_view = TensorView::new(DataType::Float16, &[4], &halves).unwrap();
        let mut brain = [0u8; 8];
        assert!(convert_floats(halves_view, DataType::Bfloat16, &mut brain));
        // -65504 = -(2^16 - 32) rounds up to -2^16 in 8 bits of significand.
        assert_eq!(brain, [0x80, 0x3f, 0x80, 0x3f, 0x80, 0xc7, 0x80, 0x7f]);
        assert!(!convert_floats(
            TensorView::new(DataType::Uint8, &[1], &[0]).unwrap(),
            DataType::Float32,
            &mut [0; 4]
        ));
    }

    #[test]
    fn last_row_of_each_float_type() {
        let mut row = Vec::new();
        let bytes: Vec<u8> = [1f32, 2.0, 3.0, 4.0]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let view = TensorView::new(DataType::Float32, &[1, 2, 2], &bytes).unwrap();
        last_row(view, &mut row).unwrap();
        assert_eq!(row, [3.0, 4.0]);
        let view = TensorView::new(DataType::Bfloat16, &[1, 1, 1], &[0x80, 0x3f]).unwrap();
        last_row(view, &mut row).unwrap();
        assert_eq!(row, [1.0]);
        let empty = TensorView::new(DataType::Float32, &[1, 0, 2], &[]).unwrap();
        assert!(last_row(empty, &mut row).is_none());
    }

    #[test]
    fn integers_take_the_declared_width() {
        let mut wide = [0u8; 16];
        write_integers(DataType::Int64, &mut wide, [7, 70_000].into_iter());
        assert_eq!(i64::from_le_bytes(wide[8..].try_into().unwrap()), 70_000);
        let mut narrow = [0u8; 8];
        write_integers(DataType::Int32, &mut narrow, [7, 70_000].into_iter());
        assert_eq!(i32::from_le_bytes(narrow[4..].try_into().unwrap()), 70_000);
    }
}
