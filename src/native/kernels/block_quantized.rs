//! Weights of 2 to 8 bits: packed into bytes, and a scale and a zero point for each block of
//! neighbours along a row.
//!
//!   w[row, k] = (q[row, k] - zero_point[row, block]) * scale[row, block]
//!
//! Element i of a packed row is the bits from i * bits on, counted from the lowest bit of the
//! first byte. A packed zero point is stored in the same way, row by row.

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

impl<T: Number> BlockQuantized<'_, T> {
    fn zero_point(&self, row: usize, block: usize) -> T::Wide {
        let whole = |q: u8| T::Wide::from_f64(f64::from(q));
        match self.zero_points {
            ZeroPoints::Zero => T::Wide::ZERO,
            ZeroPoints::Middle => whole(1 << (self.bits - 1)),
            ZeroPoints::Packed(bytes) => {
                let row_bytes = (self.blocks * self.bits).div_ceil(8);
                whole(unpack(&bytes[row * row_bytes..][..row_bytes], self.bits, block))
            }
            ZeroPoints::Float(points) => points[row * self.blocks + block].widen(),
        }
    }

    /// Writes a row's first elements, as many as there is room for.
    pub fn dequantize_row(&self, row: usize, to: &mut [T::Wide]) {
        let bytes = &self.data[row * self.row_bytes..][..self.row_bytes];
        let scale = |block: usize| self.scales[row * self.blocks + block].widen();
        let value = |i: usize| T::Wide::from_f64(f64::from(unpack(bytes, self.bits, i)));
        if let Some(groups) = self.groups {
            for (i, (to, &group)) in to.iter_mut().zip(groups).enumerate() {
                let block = group as usize;
                *to = value(i).sub(self.zero_point(row, block)).mul(scale(block));
            }
            return;
        }
        for (block, to) in to.chunks_mut(self.block_size).enumerate() {
            let (zero_point, scale) = (self.zero_point(row, block), scale(block));
            let first = block * self.block_size;
            for (i, to) in to.iter_mut().enumerate() {
                *to = value(first + i).sub(zero_point).mul(scale);
            }
        }
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
