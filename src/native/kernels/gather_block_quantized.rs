//! GatherBlockQuantized: rows of a quantised table, dequantised.
//!
//!   y[..., i..., ...] = (data[..., indices[i...], ...] - zero_point) * scale along `gather_axis`
//!
//!   data         integers of 4 bits, floats of 8 or 4 bits, or uint8: then 8 / bits elements a
//!                byte along the last axis, the first in the lowest bits
//!   indices      int32 or int64, any rank; negative ones count from the end, and one outside
//!                gives zeros
//!   scales       the dims of data (elements counted), ceil(size / block_size) along
//!                `quantize_axis`; for floats a dim of 1 repeats
//!   zero_points  like scales, packed like data; when left out 0, or 2^(bits - 1) for uint8
//!   y            of the type of scales
//!
//! com.microsoft 1. Scales of float, float16, bfloat16 (and double).

use smallvec::SmallVec;

use super::Built;
use super::block_quantized::{BlockQuantized, ZeroPoints, packed_len, unpack};
use super::dims::axis;
use super::dispatch::with_float;
use super::infer::input_type;
use super::minifloat;
use super::number::{Float, Scalar};
use crate::native::element::{ElementType, F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, I4, U4};
use crate::native::ending;
use crate::native::infer::{InferContext, SymDim, SymDims};
use crate::native::node::NodeInfo;
use crate::native::operator::{OpError, Operator, RunContext};
use crate::native::tensor::{Dims, TensorRef, element_count};

const DATA: usize = 0;
const INDICES: usize = 1;
const SCALES: usize = 2;
const ZERO_POINTS: usize = 3;

#[derive(Debug)]
struct GatherBlockQuantized {
    bits: usize,
    /// 0 for one block along the whole axis.
    block_size: usize,
    quantize_axis: i64,
    gather_axis: i64,
}

pub(in crate::native) fn gather_block_quantized(node: &NodeInfo<'_>) -> Built {
    let block_size = node.int_or("block_size", 128)?;
    let known = usize::try_from(block_size).ok();
    let Some(block_size) = known.filter(|&size| size == 0 || size >= 16 && size.is_power_of_two()) else {
        return Err(OpError::Attribute {
            name: "block_size".into(),
            message: format!("is {block_size}, expected a power of two, 16 or more"),
        });
    };
    let bits = node.int_or("bits", 4)?;
    if ![2, 4, 8].contains(&bits) {
        return Err(OpError::Attribute {
            name: "bits".into(),
            message: format!("is {bits}, expected 2, 4 or 8"),
        });
    }
    Ok(Box::new(GatherBlockQuantized {
        bits: bits as usize,
        block_size,
        quantize_axis: node.int_or("quantize_axis", 1)?,
        gather_axis: node.int_or("gather_axis", 0)?,
    }))
}

/// How elements are stored: as many bits of a byte, or a byte each.
fn packed_bits(ty: ElementType, bits: usize) -> usize {
    if ty == ElementType::Uint8 { bits } else { 8 }
}

type Read<'a> = Box<dyn Fn(usize) -> f32 + 'a>;

/// Element i of data, or of zero points, whose rows of `row` elements each begin a byte.
fn reader<'a>(tensor: &TensorRef<'a>, bits: usize, row: usize) -> Result<Read<'a>, OpError> {
    use ElementType as E;
    Ok(match tensor.element_type() {
        E::Uint8 => {
            let bytes = tensor.slice::<u8>()?;
            let row_bytes = packed_len(row, bits).unwrap_or(0);
            Box::new(move |i| {
                let bytes = &bytes[i / row * row_bytes..][..row_bytes];
                f32::from(unpack(bytes, bits, i % row))
            })
        }
        E::Uint4 => {
            let x = tensor.slice::<U4>()?;
            Box::new(move |i| f32::from(x[i].0))
        }
        E::Int4 => {
            let x = tensor.slice::<I4>()?;
            Box::new(move |i| f32::from(x[i].0))
        }
        E::Float8E4M3FN => {
            let x = tensor.slice::<F8E4M3FN>()?;
            Box::new(move |i| minifloat::E4M3FN.decode(x[i].0))
        }
        E::Float8E4M3FNUZ => {
            let x = tensor.slice::<F8E4M3FNUZ>()?;
            Box::new(move |i| minifloat::E4M3FNUZ.decode(x[i].0))
        }
        E::Float8E5M2 => {
            let x = tensor.slice::<F8E5M2>()?;
            Box::new(move |i| minifloat::E5M2.decode(x[i].0))
        }
        E::Float8E5M2FNUZ => {
            let x = tensor.slice::<F8E5M2FNUZ>()?;
            Box::new(move |i| minifloat::E5M2FNUZ.decode(x[i].0))
        }
        E::Float4E2M1 => {
            let x = tensor.slice::<F4E2M1>()?;
            Box::new(move |i| minifloat::E2M1.decode(x[i].0))
        }
        other => {
            return Err(super::unsupported(
                other,
                "uint8, int4, uint4 or a float of 8 or 4 bits",
            ));
        }
    })
}

impl Operator for GatherBlockQuantized {
    fn infer(&self, cx: &mut InferContext<'_>) -> Result<(), OpError> {
        let (data, indices) = (cx.required(DATA)?, cx.required(INDICES)?);
        let dims = match (&data.dims, &indices.dims, data.ty) {
            (Some(from), Some(indices), Some(ty)) => {
                let at = axis(self.gather_axis, from.len())?;
                let mut dims: SymDims = from[..at]
                    .iter()
                    .chain(indices)
                    .chain(&from[at + 1..])
                    .copied()
                    .collect();
                let per_byte = 8 / packed_bits(ty, self.bits);
                if let Some(last) = dims.last_mut().filter(|_| per_byte > 1) {
                    *last = match *last {
                        SymDim::Fixed(size) => SymDim::Fixed(element_count(&[size, per_byte])?),
                        _ => SymDim::Unknown,
                    };
                }
                Some(dims)
            }
            _ => None,
        };
        cx.set_output(0, input_type(cx, SCALES), dims);
        Ok(())
    }

    fn run(&self, cx: &mut RunContext<'_>) -> Result<(), OpError> {
        let scales = cx.required(SCALES)?;
        with_float!(scales.element_type(), T => self.run_as::<T>(cx, &scales))
    }
}

impl GatherBlockQuantized {
    fn run_as<T: Float>(&self, cx: &mut RunContext<'_>, scales: &TensorRef<'_>) -> Result<(), OpError> {
        let (data, indices) = (cx.required(DATA)?, cx.required(INDICES)?);
        let bits = packed_bits(data.element_type(), self.bits);
        let rank = data.rank();
        let (gather, quantize) = (axis(self.gather_axis, rank)?, axis(self.quantize_axis, rank)?);
        let mut dims: Dims = data.dims().into();
        if let Some(last) = dims.last_mut() {
            *last = element_count(&[*last, 8 / bits])?;
        }
        if bits < 8 && gather + 1 == rank {
            return Err(OpError::Message(
                "cannot gather along the axis that elements are packed along".into(),
            ));
        }
        let block_size = if self.block_size == 0 {
            dims[quantize].max(1)
        } else {
            self.block_size
        };
        // Strides of scales and the divisor of an index along each axis.
        let mut strides: SmallVec<[usize; 6]> = SmallVec::from_elem(0, rank);
        let mut step = 1usize;
        for at in (0..rank).rev() {
            let expected = if at == quantize {
                dims[at].div_ceil(block_size)
            } else {
                dims[at]
            };
            match scales.dims().get(at) {
                Some(&size) if scales.rank() == rank && size == expected => strides[at] = step,
                Some(&1) if scales.rank() == rank && at != quantize => {}
                _ => {
                    return Err(OpError::WrongDims {
                        what: format!("input {SCALES}"),
                        found: scales.dims().into(),
                        expected: format!(
                            "those of input 0, in blocks of {block_size} along axis {quantize}"
                        ),
                    });
                }
            }
            step = step.wrapping_mul(scales.dims()[at]);
        }
        let scale_row = scales.dims()[rank - 1];
        let zero_point: Read<'_> = match cx.input(ZERO_POINTS) {
            Some(points) => {
                super::same_type(&data, &points, ZERO_POINTS)?;
                let rows = scales.len().checked_div(scale_row).unwrap_or(0);
                let expected = packed_len(scale_row, bits).and_then(|row| row.checked_mul(rows));
                if Some(points.len()) != expected {
                    return Err(OpError::WrongDims {
                        what: format!("input {ZERO_POINTS}"),
                        found: points.dims().into(),
                        expected: format!("those of the scales, {:?}, packed like the data", scales.dims()),
                    });
                }
                reader(&points, bits, scale_row)?
            }
            None if data.element_type() == ElementType::Uint8 => {
                let middle = f32::from(1u8 << (bits - 1));
                Box::new(move |_| middle)
            }
            None => Box::new(|_| 0.0),
        };
        let by_rows = data.element_type() == ElementType::Uint8
            && (gather, quantize + 1) == (0, rank)
            && rank > 1
            && scales.dims()[..rank - 1] == dims[..rank - 1];
        if by_rows {
            return self.run_rows::<T>(cx, &dims, bits, block_size);
        }
        let value = reader(&data, bits, dims[rank - 1])?;
        let size = dims[gather];
        let (before, after) = (&dims[..gather], &dims[gather + 1..]);
        let result: Dims = before
            .iter()
            .chain(indices.dims())
            .chain(after)
            .copied()
            .collect();
        let indices = indices.to_ints()?;
        let mut y = cx.output::<T>(0, &result)?;
        if y.is_empty() {
            return Ok(());
        }
        let scales = scales.slice::<T>()?;
        let (outer, inner): (usize, usize) = (before.iter().product(), after.iter().product());
        for o in 0..outer {
            for &index in &indices {
                let from_start = if index < 0 {
                    index.checked_add(size as i64)
                } else {
                    Some(index)
                };
                let at = from_start
                    .and_then(|at| usize::try_from(at).ok())
                    .filter(|&at| at < size);
                let Some(at) = at else {
                    y.extend(std::iter::repeat_n(T::narrow(T::Wide::ZERO), inner))?;
                    continue;
                };
                let first = (o * size + at) * inner;
                y.extend((first..first + inner).map(|i| {
                    let mut rest = i;
                    let mut block = 0;
                    for axis in (0..rank).rev() {
                        let along = rest % dims[axis];
                        rest /= dims[axis];
                        block += strides[axis]
                            * if axis == quantize {
                                along / block_size
                            } else {
                                along
                            };
                    }
                    let scale = scales[block].widen();
                    T::narrow(T::Wide::from_f64((value(i) - zero_point(block)).into()).mul(scale))
                }))?;
            }
        }
        Ok(())
    }

    /// Whole rows of packed elements, blocks along them: the table of an embedding. Dims have been
    /// checked.
    fn run_rows<T: Float>(
        &self,
        cx: &mut RunContext<'_>,
        dims: &[usize],
        bits: usize,
        block_size: usize,
    ) -> Result<(), OpError> {
        let (data, indices, scales) = (cx.required(DATA)?, cx.required(INDICES)?, cx.required(SCALES)?);
        let &[size, ref after @ ..] = dims else {
            return Ok(());
        };
        let row = after.last().copied().unwrap_or(0);
        let table = BlockQuantized {
            bits,
            block_size,
            blocks: row.div_ceil(block_size),
            row_bytes: packed_len(row, bits).unwrap_or(0),
            data: data.slice::<u8>()?,
            scales: scales.slice::<T>()?,
            zero_points: match cx.input(ZERO_POINTS) {
                Some(points) => ZeroPoints::Packed(points.slice::<u8>()?),
                None => ZeroPoints::Middle,
            },
            groups: None,
        };
        let result: Dims = indices.dims().iter().chain(after).copied().collect();
        let wide = cx.scratch::<T::Wide>(row)?;
        let y = cx.output::<T>(0, &result)?.into_mut();
        let inner: usize = after.iter().product();
        if y.is_empty() {
            return Ok(());
        }
        for (y, &index) in y.chunks_exact_mut(inner).zip(&indices.to_ints()?) {
            let from_start = if index < 0 {
                index.checked_add(size as i64)
            } else {
                Some(index)
            };
            let at = from_start.and_then(|at| usize::try_from(at).ok());
            let Some(at) = at.filter(|&at| at < size) else {
                y.fill(T::narrow(T::Wide::ZERO));
                continue;
            };
            for (i, y) in y.chunks_exact_mut(row).enumerate() {
                ending::count(row);
                table.dequantize_row(at * (inner / row) + i, wide);
                for (y, &x) in y.iter_mut().zip(wide.iter()) {
                    *y = T::narrow(x);
                }
            }
        }
        Ok(())
    }
}
