//! Weights of 2 to 8 bits: packed into bytes, and a scale and a zero point for each block of
//! neighbours along a row.
//!
//!   w[row, k] = (q[row, k] - zero_point[row, block]) * scale[row, block]
//!
//! Element i of a packed row is the bits from i * bits on, counted from the lowest bit of the
//! first byte. A packed zero point is stored in the same way, row by row.

use std::ops::Range;

use super::number::{Number, Scalar};

/// Element `i` of packed bytes; beyond them, zeros.
#[inline(always)]
pub(super) fn unpack(bytes: &[u8], bits: usize, i: usize) -> u8 {
    let bit = i * bits;
    let byte = |at: usize| u16::from(bytes.get(at).copied().unwrap_or(0));
    let (at, shift) = (bit / 8, bit % 8);
    // An element of 3, 5, 6 or 7 bits may begin in one byte and end in the next.
    let pair = if shift + bits > 8 {
        byte(at) | byte(at + 1) << 8
    } else {
        byte(at)
    };
    ((pair >> shift) & ((1 << bits) - 1)) as u8
}

/// The first elements of packed bytes; behind the last, zeros.
pub(super) fn unpack_all(bytes: &[u8], bits: usize, to: &mut [u8]) {
    match bits {
        8 => {
            let (to, rest) = to.split_at_mut(to.len().min(bytes.len()));
            to.copy_from_slice(&bytes[..to.len()]);
            rest.fill(0);
        }
        4 => split::<2>(bytes, to),
        2 => split::<4>(bytes, to),
        bits => {
            for (i, to) in to.iter_mut().enumerate() {
                *to = unpack(bytes, bits, i);
            }
        }
    }
}

/// Bytes of `len` packed elements.
pub(super) fn packed_len(len: usize, bits: usize) -> Option<usize> {
    Some(len.checked_mul(bits)?.div_ceil(8))
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ZeroPoints<'a, T> {
    Zero,
    /// 2^(bits - 1), the middle of the range.
    Middle,
    /// Packed, each row in bytes of its own.
    Packed(&'a [u8]),
    Float(&'a [T]),
}

/// A matrix of rows that are quantised along their length.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockQuantized<'a, T> {
    pub bits: usize,
    pub block_size: usize,
    /// Blocks of a row.
    pub blocks: usize,
    pub row_bytes: usize,
    pub data: &'a [u8],
    /// [rows, blocks]
    pub scales: &'a [T],
    pub zero_points: ZeroPoints<'a, T>,
    /// The block of each element of a row, where it is not its position divided by the size.
    pub groups: Option<&'a [i32]>,
}

/// Codes of a row that are made values at a time.
const CHUNK: usize = 256;

impl<T: Number> BlockQuantized<'_, T> {
    /// A packed zero point.
    pub fn packed_point(&self, points: &[u8], row: usize, block: usize) -> u8 {
        let row_bytes = (self.blocks * self.bits).div_ceil(8);
        unpack(&points[row * row_bytes..][..row_bytes], self.bits, block)
    }

    /// Packed zero points of a row, from a block on.
    pub fn packed_points(&self, points: &[u8], row: usize, block: usize, to: &mut [u8]) {
        for (i, to) in to.iter_mut().enumerate() {
            *to = self.packed_point(points, row, block + i);
        }
    }

    /// Scales, or zero points that are floats, of a row from a block on.
    pub fn floats(&self, values: &[T], row: usize, block: usize, to: &mut [f32]) {
        for (to, value) in to.iter_mut().zip(&values[row * self.blocks + block..]) {
            *to = value.widen().to_f64() as f32;
        }
    }

    fn zero_point(&self, row: usize, block: usize) -> T::Wide {
        let whole = |q: u8| T::Wide::from_f64(f64::from(q));
        match self.zero_points {
            ZeroPoints::Zero => T::Wide::ZERO,
            ZeroPoints::Middle => whole(1 << (self.bits - 1)),
            ZeroPoints::Packed(points) => whole(self.packed_point(points, row, block)),
            ZeroPoints::Float(points) => points[row * self.blocks + block].widen(),
        }
    }

    /// The packed elements of rows.
    pub fn rows(&self, rows: Range<usize>) -> &[u8] {
        let bytes = rows.start * self.row_bytes..rows.end * self.row_bytes;
        self.data.get(bytes).unwrap_or_default()
    }

    /// The codes of a row from an element on, a whole number of bytes behind the first; zeros
    /// behind the last.
    pub fn codes(&self, row: usize, from: usize, to: &mut [u8]) {
        let bytes = &self.data[row * self.row_bytes..][..self.row_bytes];
        unpack_all(
            bytes.get(from * self.bits / 8..).unwrap_or_default(),
            self.bits,
            to,
        );
    }

    /// Writes a row's first elements, as many as there is room for.
    pub fn dequantize_row(&self, row: usize, to: &mut [T::Wide]) {
        let scale = |block: usize| self.scales[row * self.blocks + block].widen();
        let value = |code: u8| T::Wide::from_f64(f64::from(code));
        let mut codes = [0u8; CHUNK];
        if let Some(groups) = self.groups {
            for (chunk, to) in to.chunks_mut(CHUNK).enumerate() {
                let from = chunk * CHUNK;
                self.codes(row, from, &mut codes);
                for ((to, &code), &group) in to.iter_mut().zip(&codes).zip(&groups[from..]) {
                    let block = group as usize;
                    *to = value(code).sub(self.zero_point(row, block)).mul(scale(block));
                }
            }
            return;
        }
        for (block, to) in to.chunks_mut(self.block_size).enumerate() {
            let (zero_point, scale) = (self.zero_point(row, block), scale(block));
            // A block that begins inside of a byte: QMoE has blocks of any size.
            let first = block * self.block_size;
            let skipped = first * self.bits % 8 / self.bits;
            let mut from = first - skipped;
            let mut to = to;
            let mut skipped = skipped;
            while !to.is_empty() {
                let count = to.len().min(CHUNK - skipped);
                self.codes(row, from, &mut codes[..skipped + count]);
                let (now, rest) = to.split_at_mut(count);
                for (to, &code) in now.iter_mut().zip(&codes[skipped..]) {
                    *to = value(code).sub(zero_point).mul(scale);
                }
                (to, from, skipped) = (rest, from + CHUNK, 0);
            }
        }
    }
}

/// The codes of bytes that have `PER` each.
fn split<const PER: usize>(bytes: &[u8], to: &mut [u8]) {
    let bits = 8 / PER;
    let mask = ((1u16 << bits) - 1) as u8;
    let full = (to.len() / PER).min(bytes.len());
    let (whole, rest) = to.split_at_mut(full * PER);
    let (bytes, left) = bytes.split_at(full);
    for (to, byte) in whole.chunks_exact_mut(PER).zip(bytes) {
        for (i, to) in to.iter_mut().enumerate() {
            *to = (byte >> (i * bits)) & mask;
        }
    }
    for (i, to) in rest.iter_mut().enumerate() {
        *to = unpack(left, bits, i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_packed_from_the_lowest_bit() {
        let unpacked = |bits, n| {
            (0..n)
                .map(|i| unpack(&[0b1110_0100, 0x5a], bits, i))
                .collect::<Vec<_>>()
        };
        assert_eq!(unpacked(2, 8), [0, 1, 2, 3, 2, 2, 1, 1]);
        assert_eq!(unpacked(4, 4), [4, 14, 10, 5]);
        assert_eq!(unpacked(8, 3), [0xe4, 0x5a, 0]);
        // 0x5ae4 = 0 101 101 011 100 100
        assert_eq!(unpacked(3, 5), [4, 4, 3, 5, 5]);
    }

    #[test]
    fn codes_from_within_a_row() {
        for bits in 2..=8 {
            let data: Vec<u8> = (0..2 * bits * 8).map(|i| (i * 37 + 11) as u8).collect();
            let weights = BlockQuantized {
                bits,
                block_size: 64,
                blocks: 1,
                row_bytes: bits * 8,
                data: &data,
                scales: &[1.0f32; 2],
                zero_points: ZeroPoints::Zero,
                groups: None,
            };
            for (from, len) in [(0, 64), (0, 63), (8, 13), (56, 20), (64, 3)] {
                let mut codes = vec![255; len];
                weights.codes(1, from, &mut codes);
                let all = &data[bits * 8..];
                let expected: Vec<u8> = (from..from + len).map(|i| unpack(all, bits, i)).collect();
                assert_eq!(codes, expected, "{bits} bits from {from}");
            }
        }
    }

    #[test]
    fn a_row_of_a_block_and_a_half() {
        let weights = BlockQuantized {
            bits: 4,
            block_size: 4,
            blocks: 2,
            row_bytes: 4,
            data: &[0, 0, 0, 0, 0x10, 0x32, 0x54, 0x76],
            scales: &[9.0f32, 9.0, 2.0, 0.5],
            zero_points: ZeroPoints::Packed(&[0xff, 0x41]),
            groups: None,
        };
        let mut row = [0.0; 6];
        weights.dequantize_row(1, &mut row);
        assert_eq!(row, [-2.0, 0.0, 2.0, 4.0, 0.0, 0.5]);
        let mut row = [0.0; 4];
        let groups = Some(&[1, 0, 1, 0][..]);
        BlockQuantized { groups, ..weights }.dequantize_row(1, &mut row);
        assert_eq!(row, [-2.0, 0.0, -1.0, 4.0]);
    }
}
