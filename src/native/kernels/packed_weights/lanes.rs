//! Codes that are stored as wide as they are packed go to their lanes many at once.
//!
//! The codes of a lane of four bytes are four bytes of a row as a model stores them (see
//! `block_quantized`), in another order: code i of the model is the i-th from the lowest bit on, and
//! in a lane byte j has codes j, j + 4, j + 8, ... So a panel is its rows, read four bytes at a time
//! and transposed. A line of a matrix that is stored transposed has a byte of every lane.

use super::layout::{COLUMNS, Format};

/// Bytes of a row that are transposed at a time.
const PART: usize = 64;
/// Bytes of a lane, but for `Pairs` and `Bytes`.
const LANE: usize = 4;

/// Packs rows of whole steps, all of one length, with the bits `flip` of every code flipped; `false`
/// where a format is not packed so.
pub fn of_rows(format: Format, rows: [&[u8]; COLUMNS], flip: u8, to: &mut [u8]) -> bool {
    match format {
        Format::Crumbs => by_lanes(rows, u32::from(flip) * 0x5555_5555, to, crumbs),
        Format::Nibbles => by_lanes(rows, u32::from(flip) * 0x1111_1111, to, nibbles),
        Format::Quads => by_lanes(rows, u32::from(flip) * 0x0101_0101, to, |lane| lane),
        Format::Bytes => {
            by_lanes(rows, u32::from(flip) * 0x0101_0101, to, |lane| lane);
            let used = rows[0].len() * COLUMNS;
            to.as_chunks_mut::<PART>().0[..used / PART]
                .iter_mut()
                .for_each(bytes_of_lanes);
            // K is any number here, and so the last part of it is not a lane.
            let rest = rows[0].len() / LANE * LANE..rows[0].len();
            for i in rest {
                for (to, row) in to[i * COLUMNS..].iter_mut().zip(rows) {
                    *to = row[i] ^ flip;
                }
            }
        }
        Format::Pairs => return false,
    }
    true
}

/// The same of lines of the transposed matrix: each has a byte for every column.
pub fn of_lines<'a>(
    format: Format,
    mut lines: impl Iterator<Item = &'a [u8]>,
    flip: u8,
    to: &mut [u8],
) -> bool {
    if format != Format::Pairs {
        return false;
    }
    for to in to.as_chunks_mut::<{ 2 * COLUMNS }>().0 {
        let (Some(even), Some(odd)) = (lines.next(), lines.next()) else {
            break;
        };
        for ((to, even), odd) in to.as_chunks_mut::<2>().0.iter_mut().zip(even).zip(odd) {
            *to = [even ^ flip, odd ^ flip];
        }
    }
    true
}

#[inline(always)]
fn by_lanes(rows: [&[u8]; COLUMNS], flip: u32, to: &mut [u8], order: impl Fn(u32) -> u32 + Copy) {
    let len = rows[0].len() / LANE * LANE;
    let (parts, last) = to.as_chunks_mut::<{ PART * COLUMNS }>();
    let whole = (len / PART).min(parts.len());
    for (part, to) in parts[..whole].iter_mut().enumerate() {
        let mut codes = [&[0; PART]; COLUMNS];
        for (codes, row) in codes.iter_mut().zip(rows) {
            *codes = &row.as_chunks().0[part];
        }
        transpose(codes, flip, to, order);
    }
    // What is behind stays as it is: zeros.
    let rest = len - whole * PART;
    let to = match parts.get_mut(whole) {
        Some(part) => &mut part[..],
        None => last,
    };
    if rest > 0 {
        let mut codes = [[0; PART]; COLUMNS];
        for (codes, row) in codes.iter_mut().zip(rows) {
            codes[..rest].copy_from_slice(&row[whole * PART..len]);
        }
        let mut all = [0; PART * COLUMNS];
        transpose(codes.each_ref(), flip, &mut all, order);
        to[..rest * COLUMNS].copy_from_slice(&all[..rest * COLUMNS]);
    }
}

#[inline(always)]
fn transpose(
    codes: [&[u8; PART]; COLUMNS],
    flip: u32,
    to: &mut [u8; PART * COLUMNS],
    order: impl Fn(u32) -> u32,
) {
    const STEPS: usize = PART / LANE;
    let mut lanes = [[0u32; STEPS]; COLUMNS];
    for (lanes, codes) in lanes.iter_mut().zip(codes) {
        for (lane, codes) in lanes.iter_mut().zip(codes.as_chunks::<LANE>().0) {
            *lane = order(u32::from_le_bytes(*codes)) ^ flip;
        }
    }
    let steps = to.as_chunks_mut::<LANE>().0.as_chunks_mut::<COLUMNS>().0;
    for (step, to) in steps.iter_mut().enumerate() {
        for (to, lanes) in to.iter_mut().zip(&lanes) {
            *to = lanes[step].to_le_bytes();
        }
    }
}

/// Exchanges those bits of `lane` that `low` has with those `distance` above.
#[inline(always)]
fn exchange(lane: u32, low: u32, distance: u32) -> u32 {
    let differing = (lane ^ lane >> distance) & low;
    lane ^ differing ^ differing << distance
}

/// Of eight codes, 0 4 1 5 2 6 3 7: by way of 0 1 4 5 2 3 6 7.
#[inline(always)]
fn nibbles(lane: u32) -> u32 {
    exchange(exchange(lane, 0x0000_ff00, 8), 0x00f0_00f0, 4)
}

/// Of sixteen codes, those of each byte go to four, as columns of a matrix go to rows: first in pairs
/// of bytes, then in pairs of pairs.
#[inline(always)]
fn crumbs(lane: u32) -> u32 {
    exchange(exchange(lane, 0x00cc_00cc, 6), 0x0000_f0f0, 12)
}

/// Lanes of four bytes become four of one.
#[inline(always)]
fn bytes_of_lanes(lanes: &mut [u8; PART]) {
    let from = *lanes;
    for (j, to) in lanes.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate() {
        for (to, lane) in to.iter_mut().zip(from.as_chunks::<LANE>().0) {
            *to = lane[j];
        }
    }
}
