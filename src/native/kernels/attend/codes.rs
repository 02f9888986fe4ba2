//! Keys, or values, of a quantised cache, which are read as the codes they are stored as: a few rows
//! at a time are decoded, and all queries of a block go over these.
//!
//!   x = code * scale, code = round(x / scale), ties to even, saturated
//!
//! The scale is one of all, of a channel, or of a row, in which it then is: max |x| / 127.
//!
//! Floor: the bytes of the codes. Decoding is a conversion and a product for each element, beside
//! a multiply-add for each query.

use std::ops::Range;

use super::cache::for_visible;
use super::rows::{Rows, add_weighted, products};
use super::{Keys, Layout, Values, Weights};
use crate::native::element::{ElementType, F8E4M3FN};
use crate::native::kernels::group_query_attention::wrong_dims;
use crate::native::kernels::number::{Number, Scalar};
use crate::native::kernels::quantized::Quantized;
use crate::native::kernels::resident_cache::ROW_SCALE_BYTES;
use crate::native::kernels::simd::{self, Kernel, Lanes};
use crate::native::kernels::unsupported;
use crate::native::operator::{OpError, RunContext};
use crate::native::tensor::element_count;

/// Elements that are decoded at a time, and the longest row.
pub(in crate::native::kernels) const DECODED: usize = 2048;

/// The rows of a cache, [batch, heads, rows, width] bytes.
pub(in crate::native::kernels) struct CodeRows<'a> {
    pub bytes: &'a [u8],
    /// In bytes.
    pub layout: Layout,
    pub scales: Scales<'a>,
}

impl CodeRows<'_> {
    /// Rows of at most [`DECODED`] elements, a few at a time: the index of the first, and what
    /// they stand for.
    fn decoded<W: Number<Wide = W> + Scalar>(
        &self,
        b: usize,
        head: usize,
        range: Range<usize>,
        mut each: impl FnMut(usize, Rows<'_, W>),
    ) {
        let size = self.scales.size;
        let mut decoded = [W::ZERO; DECODED];
        let Some(at_a_time) = DECODED.checked_div(size).filter(|&rows| rows > 0) else {
            return;
        };
        for first in range.clone().step_by(at_a_time) {
            let count = at_a_time.min(range.end - first);
            let rows = &mut decoded[..count * size];
            let codes = &self.bytes[self.layout.start(b, head, first)..][..count * self.layout.width];
            self.scales.decode(head, codes, rows);
            let rows = Rows {
                data: &*rows,
                step: size,
                width: size,
                count,
            };
            each(first - range.start, rows);
        }
    }
}

impl<W: Number<Wide = W> + Scalar> Keys<W> for CodeRows<'_> {
    fn products(&self, b: usize, head: usize, keys: Range<usize>, queries: &[W], scores: &mut [W]) {
        let stride = keys.len();
        self.decoded(b, head, keys, |at, rows: Rows<'_, W>| {
            products(queries, rows, &mut scores[at..], stride);
        });
    }
}

impl<W: Number<Wide = W> + Scalar> Values<W> for CodeRows<'_> {
    fn weighted_sums(&self, b: usize, head: usize, weights: &Weights<'_, W>, sums: &mut [W]) {
        let stride = weights.keys.len();
        for_visible(weights, self.scales.size, sums, |first, range, sums| {
            let start = first * stride + range.start - weights.keys.start;
            self.decoded(b, head, range, |at, rows: Rows<'_, W>| {
                add_weighted(&weights.weights[start + at..], stride, rows, sums);
            });
        });
    }
}

/// How the elements of a cache lie in bytes.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::native::kernels) enum Code {
    Int8,
    /// Each row with its scale behind it, a float, little-endian.
    Int8WithScale,
    Float8,
    /// Two in a byte, the first in the low bits.
    Nibbles,
}

impl Code {
    pub fn of(ty: ElementType, bits: usize) -> Result<Self, OpError> {
        match (ty, bits) {
            (ElementType::Int8, 8) => Ok(Code::Int8),
            (ElementType::Float8E4M3FN, 8) => Ok(Code::Float8),
            (ElementType::Uint8, 4) => Ok(Code::Nibbles),
            (other, _) => Err(unsupported(
                other,
                "a cache of int8 or float8e4m3fn with 8 bits, or of uint8 with 4",
            )),
        }
    }

    fn decode(self, row: &[u8], i: usize) -> f32 {
        match self {
            Code::Int8 | Code::Int8WithScale => f32::from(row[i] as i8),
            Code::Float8 => F8E4M3FN(row[i]).to_f64() as f32,
            Code::Nibbles => f32::from(row[i / 2] >> (4 * (i % 2)) & 15) - 8.0,
        }
    }

    fn encode(self, value: f32) -> u8 {
        match self {
            Code::Int8 | Code::Int8WithScale => <i8 as Quantized>::nearest(value.into(), true) as u8,
            Code::Float8 => F8E4M3FN::nearest(value.into(), true).0,
            Code::Nibbles => (value.round_ties_even().clamp(-8.0, 7.0) + 8.0) as u8,
        }
    }
}

/// The scales of keys or values.
#[derive(Clone, Copy)]
pub(in crate::native::kernels) struct Scales<'a> {
    code: Code,
    /// One, or one for each channel of each head; none when they are in the rows.
    scales: &'a [f32],
    size: usize,
}

impl<'a> Scales<'a> {
    /// From an input of the node.
    pub fn new(
        cx: &RunContext<'a>,
        index: usize,
        per_channel: bool,
        code: Code,
        [heads, size]: [usize; 2],
    ) -> Result<Self, OpError> {
        let tensor = cx.required(index)?;
        let expected = if per_channel {
            element_count(&[heads, size])?
        } else {
            1
        };
        if tensor.len() != expected {
            return Err(wrong_dims(index, &tensor, format!("{expected} elements in all")));
        }
        Ok(Scales {
            code,
            scales: tensor.slice()?,
            size,
        })
    }

    /// Those of int8 rows that each have their own.
    pub fn in_rows(code: Code, size: usize) -> Result<Self, OpError> {
        match code {
            Code::Int8 => Ok(Scales {
                code: Code::Int8WithScale,
                scales: &[],
                size,
            }),
            _ => Err(OpError::Message(
                "a cache whose rows have a scale each is one of int8".into(),
            )),
        }
    }

    /// The scale of an element; `of_row` is that of a row that has one.
    fn scale(&self, head: usize, i: usize, of_row: f32) -> f32 {
        match self.scales {
            [] => of_row,
            &[scale] => scale,
            scales => scales[head * self.size + i],
        }
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        match self.code {
            Code::Nibbles => self.size.div_ceil(2),
            Code::Int8WithScale => self.size.saturating_add(ROW_SCALE_BYTES),
            Code::Int8 | Code::Float8 => self.size,
        }
    }

    /// The scale that a row ends in; 1 if it has none.
    #[inline(always)]
    fn stored_scale(&self, row: &[u8]) -> f32 {
        match (self.code, row.last_chunk()) {
            (Code::Int8WithScale, Some(&bytes)) => f32::from_le_bytes(bytes),
            _ => 1.0,
        }
    }

    /// The scale that a row is stored with; 1 if it has none of its own. A row that has a NaN is
    /// one of NaNs.
    fn scale_for<W: Scalar>(&self, row: &[W]) -> f32 {
        if self.code != Code::Int8WithScale {
            return 1.0;
        }
        let largest = row.iter().fold(0.0f32, |largest, x| {
            let x = (x.to_f64() as f32).abs();
            if x > largest || x.is_nan() { x } else { largest }
        });
        largest / 127.0
    }

    /// What the codes of rows that follow each other stand for.
    pub fn decode<W: Number<Wide = W> + Scalar>(&self, head: usize, codes: &[u8], to: &mut [W]) {
        if to.is_empty() {
            return;
        }
        if let Some(to) = W::as_f32_mut(to) {
            return simd::run(Decode(self, head, codes, to));
        }
        let rows = codes.chunks(self.row_bytes());
        for (to, row) in to.chunks_exact_mut(self.size).zip(rows) {
            let of_row = self.stored_scale(row);
            for (i, to) in to.iter_mut().enumerate() {
                *to = W::from_f64((self.code.decode(row, i) * self.scale(head, i, of_row)).into());
            }
        }
    }

    /// The code of an element.
    fn code_of<W: Scalar>(&self, head: usize, i: usize, x: W, of_row: f32) -> u8 {
        match self.scale(head, i, of_row) {
            // A row of nothing else.
            0.0 if self.scales.is_empty() => 0,
            scale => self.code.encode(x.to_f64() as f32 / scale),
        }
    }

    /// The codes of a row.
    pub fn encode<W: Scalar>(&self, head: usize, row: &[W], to: &mut [u8]) {
        let of_row = self.scale_for(row);
        match self.code {
            Code::Nibbles => {
                for (at, (to, pair)) in to.iter_mut().zip(row.chunks(2)).enumerate() {
                    let code = |i: usize| {
                        pair.get(i)
                            .map_or(8, |&x| self.code_of(head, 2 * at + i, x, of_row))
                    };
                    *to = code(0) | code(1) << 4;
                }
            }
            _ => {
                for (i, (to, &x)) in to.iter_mut().zip(row).enumerate() {
                    *to = self.code_of(head, i, x, of_row);
                }
            }
        }
        if let (Code::Int8WithScale, Some(bytes)) = (self.code, to.last_chunk_mut()) {
            *bytes = of_row.to_le_bytes();
        }
    }

    /// What is left of a row when it is stored.
    pub fn round<W: Scalar>(&self, head: usize, row: &mut [W]) {
        let of_row = self.scale_for(row);
        for (i, x) in row.iter_mut().enumerate() {
            // A nibble is decoded from the low bits.
            let code = [self.code_of(head, i, *x, of_row)];
            let decoded = self.code.decode(&code, 0);
            *x = W::from_f64((decoded * self.scale(head, i, of_row)).into());
        }
    }
}

/// Scales, the head, codes, and room for what they stand for.
struct Decode<'a>(&'a Scales<'a>, usize, &'a [u8], &'a mut [f32]);

impl Kernel for Decode<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self) {
        let Decode(scales, head, codes, to) = self;
        let rows = codes.chunks(scales.row_bytes());
        for (to, row) in to.chunks_exact_mut(scales.size).zip(rows) {
            match scales.code {
                Code::Int8 | Code::Int8WithScale => {
                    for (to, &code) in to.iter_mut().zip(row) {
                        *to = f32::from(code as i8);
                    }
                }
                Code::Float8 => {
                    for (i, to) in to.iter_mut().enumerate() {
                        *to = Code::Float8.decode(row, i);
                    }
                }
                Code::Nibbles => {
                    let (pairs, last) = to.as_chunks_mut::<2>();
                    for ([low, high], &code) in pairs.iter_mut().zip(row) {
                        *low = f32::from(code & 15) - 8.0;
                        *high = f32::from(code >> 4) - 8.0;
                    }
                    if let ([last], Some(&code)) = (last, row.last()) {
                        *last = f32::from(code & 15) - 8.0;
                    }
                }
            }
            match scales.scales {
                [] => {
                    let scale = scales.stored_scale(row);
                    to.iter_mut().for_each(|x| *x *= scale);
                }
                &[scale] => to.iter_mut().for_each(|x| *x *= scale),
                all => {
                    for (x, &scale) in to.iter_mut().zip(&all[head * scales.size..]) {
                        *x *= scale;
                    }
                }
            }
        }
    }
}
