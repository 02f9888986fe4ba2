//! From weights as a model stores them to the layout of the product.

use std::ops::Range;

use bytes::Bytes;

use super::super::block_quantized::unpack_all;
use super::OutOfMemory;
use super::array::Array;
use super::lanes;
use super::layout::{Arithmetic, COLUMNS, Format, PackedWeights, Points};
use crate::component::AlignedBytes;
use crate::native::element::Element;
use crate::native::tensor::as_elements_mut;
use crate::native::workers::Workers;

/// Codes that are packed before what they were made of is let go.
const STRIPE_BYTES: usize = 8 << 20;

/// What is packed: codes of `bits` bits, unsigned.
pub struct Source<'a> {
    pub bits: usize,
    pub n: usize,
    pub k: usize,
    pub block_size: usize,
    pub codes: SourceCodes<'a>,
    /// Writes the scales of a row from a block on.
    pub scales: &'a (dyn Fn(usize, usize, &mut [f32]) + Sync),
    pub points: SourcePoints<'a>,
    /// The block of each element, where it is not its place divided by the size.
    pub groups: Option<&'a [i32]>,
    /// Called with rows of W whose codes are not read again.
    pub done: &'a (dyn Fn(Range<usize>) + Sync),
}

/// Codes of W.
#[derive(Clone, Copy)]
pub enum SourceCodes<'a> {
    /// Packed into bytes as in `block_quantized`, so many for each row.
    Stored(&'a [u8], usize),
    /// Writes those of a row, `k` of them.
    Rows(&'a (dyn Fn(usize, &mut [u8]) + Sync)),
    /// [K, N]: a byte for each element, of which the bits of the second are flipped. Of one block.
    Transposed(&'a [u8], u8),
}

/// Zero points: writes those of a row from a block on.
#[derive(Clone, Copy)]
pub enum SourcePoints<'a> {
    /// The middle of the range.
    Middle,
    Whole(&'a (dyn Fn(usize, usize, &mut [u8]) + Sync)),
    Float(&'a (dyn Fn(usize, usize, &mut [f32]) + Sync)),
}

impl<'a> Source<'a> {
    /// [K, N] codes for exact sums, see [`multiply_words`](super::multiply_words): `bits` are
    /// flipped, and what is stored is the code less 128.
    pub fn of_words(codes: &'a [u8], bits: u8, k: usize, n: usize) -> Self {
        Source {
            bits: 8,
            n,
            k,
            block_size: k.max(1),
            codes: SourceCodes::Transposed(codes, bits),
            scales: &|_, _, to| to.fill(1.0),
            points: SourcePoints::Middle,
            groups: None,
            done: &|_| {},
        }
    }
}

fn product(sizes: &[usize]) -> Result<usize, OutOfMemory> {
    let count = sizes
        .iter()
        .try_fold(1usize, |count, &size| count.checked_mul(size));
    count.ok_or(OutOfMemory { bytes: usize::MAX })
}

/// Room for `len` elements, all of `value`.
fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, OutOfMemory> {
    let mut vec = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    vec.try_reserve_exact(len).map_err(|_| OutOfMemory { bytes })?;
    vec.resize(len, value);
    Ok(vec)
}

/// Room for an array, all zeros.
fn zeroed(bytes: usize) -> Result<AlignedBytes, OutOfMemory> {
    let mut room = AlignedBytes::try_zeroed(bytes).map_err(|_| OutOfMemory { bytes })?;
    room.expect_writes();
    Ok(room)
}

/// The elements of each block, in the order of K, and the group that each block belongs to.
fn by_groups(groups: &[i32], blocks: usize, block_size: usize) -> Vec<(usize, Vec<u32>)> {
    let mut members = vec![Vec::new(); blocks];
    for (i, &group) in groups.iter().enumerate() {
        let place = usize::try_from(group)
            .ok()
            .and_then(|group| members.get_mut(group));
        if let (Some(place), Ok(i)) = (place, u32::try_from(i)) {
            place.push(i);
        }
    }
    let members = members.into_iter().enumerate();
    members
        .flat_map(|(group, members)| {
            let parts = members.chunks(block_size).map(<[u32]>::to_vec);
            parts.map(move |part| (group, part)).collect::<Vec<_>>()
        })
        .collect()
}

/// What the arrays of packed weights are filled by.
struct Filling<'a> {
    source: &'a Source<'a>,
    /// The group that each block belongs to, where they are not in order.
    groups: Option<Vec<usize>>,
    /// What is taken off codes and points: bytes times fewer bits want unsigned codes; all else signed
    /// ones, so that the usual zero point is 0 and sums stay small.
    flip: u8,
    code_bytes: usize,
    per_block: usize,
    point_size: usize,
}

impl PackedWeights {
    /// `source.bits` is 2 to 8, `block_size` at least 1, and groups are below the number of blocks.
    /// The same for any number of threads.
    pub fn pack(source: &Source<'_>, arithmetic: Arithmetic, workers: &Workers) -> Result<Self, OutOfMemory> {
        let (mut packed, filling) = Self::unfilled(source, arithmetic)?;
        let mut codes = zeroed(filling.code_bytes)?;
        let mut scales = zeroed(product(&[filling.per_block, size_of::<f32>()])?)?;
        let mut points = zeroed(product(&[filling.per_block, filling.point_size])?)?;
        let (k, depth) = (packed.k, packed.depth());
        let room = k.checked_add(product(&[COLUMNS, depth])?);
        let room = room.ok_or(OutOfMemory { bytes: usize::MAX })?;
        // Room for each thread that has a panel to pack, so that it is in proportion to the weights.
        let lanes = workers.threads().min(packed.panels());
        let workers = &workers.limited_to(lanes);
        let mut rooms = zeroed(product(&[lanes, room])?)?;
        let (panel_bytes, beside) = (packed.panel_bytes(), packed.blocks * COLUMNS);
        let panel_points = beside * filling.point_size;
        let (mut left_codes, mut left_scales) = (&mut codes[..], elements_mut::<f32>(&mut scales));
        let mut left_points = &mut points[..];
        let stripe = (STRIPE_BYTES / panel_bytes.max(1)).max(1);
        for first in (0..packed.panels()).step_by(stripe) {
            let panels = stripe.min(packed.panels() - first);
            let (codes, scales, points);
            (codes, left_codes) = left_codes.split_at_mut(panels * panel_bytes);
            (scales, left_scales) = left_scales.split_at_mut(panels * beside);
            (points, left_points) = left_points.split_at_mut(panels * panel_points);
            workers.split_mut_3_with(
                (codes, panel_bytes.max(1)),
                (scales, beside.max(1)),
                (points, panel_points.max(1)),
                &mut rooms[..],
                |panel, (codes, scales, points), room| {
                    let (row, rows) = room.split_at_mut(k);
                    filling.codes(&packed, first + panel, row, rows, codes);
                    filling.scales(&packed, first + panel, scales);
                    filling.points(&packed, first + panel, points);
                },
            );
            (source.done)(first * COLUMNS..packed.n.min((first + panels) * COLUMNS));
        }
        let arrays = [codes, scales, points].map(Bytes::from_owner);
        let fit = filling.fill(&mut packed, arrays);
        debug_assert!(fit);
        Ok(packed)
    }

    /// The same from the [arrays](Self::arrays) that it once had; `None` when they are of other
    /// lengths.
    pub fn of_arrays(
        source: &Source<'_>,
        arithmetic: Arithmetic,
        arrays: [Bytes; 3],
    ) -> Result<Option<Self>, OutOfMemory> {
        let (mut packed, filling) = Self::unfilled(source, arithmetic)?;
        Ok(filling.fill(&mut packed, arrays).then_some(packed))
    }

    /// Codes, scales and points: all that does not follow from bits and sizes of the weights, and
    /// the groups.
    pub fn arrays(&self) -> [Bytes; 3] {
        let points = match &self.points {
            Points::All(_) => Bytes::new(),
            Points::Whole(points) => points.bytes(),
            Points::Float(points) => points.bytes(),
        };
        [self.codes.bytes(), self.scales.bytes(), points]
    }

    /// All but the arrays.
    fn unfilled<'a>(
        source: &'a Source<'a>,
        arithmetic: Arithmetic,
    ) -> Result<(Self, Filling<'a>), OutOfMemory> {
        let format = match (source.bits, arithmetic) {
            (..=2, _) => Format::Crumbs,
            (3 | 4, _) => Format::Nibbles,
            (_, Arithmetic::Float) => Format::Bytes,
            (_, Arithmetic::Integer) => Format::Quads,
            (_, Arithmetic::Words) => Format::Pairs,
        };
        let (n, k) = (source.n, source.k);
        let block_size = source.block_size.min(k.max(1));
        // A block of 16 is a whole number of steps in every format; larger ones are summed in
        // runs of 32.
        let block_len = match block_size {
            ..=16 => 16,
            size => size.checked_next_multiple_of(32).unwrap_or(size),
        };
        let source_blocks = k.div_ceil(block_size);
        // Padding apart, groups in ascending order are what there is without them.
        let groups = source.groups.filter(|groups| {
            let ascending = |(i, &group): (usize, &i32)| group as usize == i / block_size;
            !groups.iter().take(k).enumerate().all(ascending)
        });
        let groups =
            groups.map(|groups| by_groups(groups.get(..k).unwrap_or(groups), source_blocks, block_size));
        let blocks = groups.as_ref().map_or(source_blocks, Vec::len);
        let depth = product(&[blocks, block_len])?;
        let order = match &groups {
            None => None,
            Some(groups) => {
                let mut order = filled(depth, u32::MAX)?;
                for (order, (_, members)) in order.chunks_exact_mut(block_len).zip(groups) {
                    for (order, &member) in order.iter_mut().zip(members) {
                        *order = member;
                    }
                }
                Some(order)
            }
        };
        let signed = arithmetic == Arithmetic::Float || format.bits() == 8;
        let middle = 1u8 << (source.bits - 1);
        let panels = n.div_ceil(COLUMNS);
        let filling = Filling {
            source,
            groups: groups.map(|groups| groups.into_iter().map(|(group, _)| group).collect()),
            flip: if signed { middle } else { 0 },
            code_bytes: product(&[panels, depth / format.step(), format.step_bytes()])?,
            per_block: product(&[panels, blocks, COLUMNS])?,
            point_size: match source.points {
                SourcePoints::Middle => 0,
                SourcePoints::Whole(_) => size_of::<i8>(),
                SourcePoints::Float(_) => size_of::<f32>(),
            },
        };
        let packed = PackedWeights {
            format,
            arithmetic,
            n,
            k,
            blocks,
            block_len,
            block_size,
            codes: Array::default(),
            scales: Array::default(),
            points: Points::All(if signed { 0.0 } else { f32::from(middle) }),
            order,
        };
        Ok((packed, filling))
    }
}

impl Filling<'_> {
    /// Gives the weights their arrays, if they are as long as they must be.
    fn fill(&self, packed: &mut PackedWeights, [codes, scales, points]: [Bytes; 3]) -> bool {
        fn array<T: Element>(bytes: Bytes, len: usize) -> Option<Array<T>> {
            Array::new(bytes).filter(|array| array.len() == len)
        }
        let points = match self.source.points {
            SourcePoints::Middle => points.is_empty().then(|| packed.points.clone()),
            SourcePoints::Whole(_) => array(points, self.per_block).map(Points::Whole),
            SourcePoints::Float(_) => array(points, self.per_block).map(Points::Float),
        };
        let (codes, scales) = (array(codes, self.code_bytes), array(scales, self.per_block));
        let (Some(codes), Some(scales), Some(points)) = (codes, scales, points) else {
            return false;
        };
        (packed.codes, packed.scales, packed.points) = (codes, scales, points);
        true
    }

    /// The codes of a panel. `rows` has a byte for each, and `row` is working memory.
    fn codes(&self, packed: &PackedWeights, panel: usize, row: &mut [u8], rows: &mut [u8], to: &mut [u8]) {
        let (format, depth) = (packed.format, packed.depth());
        let first = panel * COLUMNS;
        let columns = COLUMNS.min(packed.n - first);
        if self.codes_at_once(packed, first..first + columns, to) {
            return;
        }
        // Sign extension is of the format's width, not of the code's.
        let mask = ((1u16 << format.bits()) - 1) as u8;
        let stored = |code: u8| code.wrapping_sub(self.flip) & mask;
        let mut place_row = |column: usize, codes: &dyn Fn(usize, &mut [u8])| {
            codes(first + column, row);
            row.iter_mut().for_each(|code| *code = stored(*code));
            place(row, packed, &mut rows[column * depth..][..depth]);
        };
        match self.source.codes {
            SourceCodes::Stored(codes, row_bytes) => {
                for column in 0..columns {
                    place_row(column, &|row, to| {
                        unpack_all(&codes[row * row_bytes..][..row_bytes], self.source.bits, to);
                    });
                }
            }
            SourceCodes::Rows(codes) => {
                for column in 0..columns {
                    place_row(column, codes);
                }
            }
            SourceCodes::Transposed(codes, bits) => {
                for (i, line) in codes.chunks_exact(packed.n).enumerate().take(packed.k) {
                    for (column, code) in line[first..][..columns].iter().enumerate() {
                        rows[column * depth + i] = stored(code ^ bits);
                    }
                }
            }
        }
        rows[columns * depth..].fill(0);
        match format {
            Format::Crumbs => interleave::<4, 4>(rows, depth, to),
            Format::Nibbles => interleave::<4, 2>(rows, depth, to),
            Format::Quads => interleave::<4, 1>(rows, depth, to),
            Format::Pairs => interleave::<2, 1>(rows, depth, to),
            Format::Bytes => interleave::<1, 1>(rows, depth, to),
        }
    }

    /// The same without a byte for each code on the way, where codes are stored as wide as they are
    /// packed, in their order, and fill whole steps; whether they are.
    fn codes_at_once(&self, packed: &PackedWeights, rows: Range<usize>, to: &mut [u8]) -> bool {
        let format = packed.format;
        let in_order = packed.order.is_none() && packed.block_size == packed.block_len;
        let fits = rows.len() == COLUMNS && packed.k.is_multiple_of(format.step());
        if !in_order || !fits || self.source.bits != format.bits() {
            return false;
        }
        match self.source.codes {
            SourceCodes::Stored(codes, row_bytes) => {
                let used = packed.k * format.bits() / 8;
                let rows = std::array::from_fn(|row| &codes[(rows.start + row) * row_bytes..][..used]);
                lanes::of_rows(format, rows, self.flip, to)
            }
            SourceCodes::Transposed(codes, bits) => {
                let lines = codes.chunks_exact(packed.n).take(packed.k);
                lanes::of_lines(
                    format,
                    lines.map(|line| &line[rows.clone()]),
                    bits ^ self.flip,
                    to,
                )
            }
            SourceCodes::Rows(_) => false,
        }
    }

    fn scales(&self, packed: &PackedWeights, panel: usize, to: &mut [f32]) {
        self.of_blocks(packed, panel, to, self.source.scales);
    }

    fn points(&self, packed: &PackedWeights, panel: usize, to: &mut [u8]) {
        match self.source.points {
            SourcePoints::Middle => {}
            SourcePoints::Whole(points) => self.of_blocks(packed, panel, to, &|row, block, to| {
                points(row, block, to);
                to.iter_mut()
                    .for_each(|point| *point = point.wrapping_sub(self.flip));
            }),
            SourcePoints::Float(points) => {
                let to = elements_mut::<f32>(to);
                self.of_blocks(packed, panel, to, &|row, block, to| {
                    points(row, block, to);
                    to.iter_mut().for_each(|point| *point -= f32::from(self.flip));
                });
            }
        }
    }

    /// Writes what there is of every column and block of a panel; `values` writes that of a row from
    /// a block on.
    fn of_blocks<T: Copy + Default>(
        &self,
        packed: &PackedWeights,
        panel: usize,
        to: &mut [T],
        values: &dyn Fn(usize, usize, &mut [T]),
    ) {
        const AT_ONCE: usize = 32;
        let first = panel * COLUMNS;
        let columns = COLUMNS.min(packed.n - first);
        let at_once = if self.groups.is_some() { 1 } else { AT_ONCE };
        let mut rows = [[T::default(); AT_ONCE]; COLUMNS];
        for (part, to) in to.chunks_mut(COLUMNS * at_once).enumerate() {
            let (block, count) = (part * at_once, to.len() / COLUMNS);
            let group = self.groups.as_ref().map_or(block, |groups| groups[block]);
            for (column, row) in rows.iter_mut().enumerate().take(columns) {
                values(first + column, group, &mut row[..count]);
            }
            for (block, to) in to.chunks_exact_mut(COLUMNS).enumerate() {
                for (to, row) in to.iter_mut().zip(&rows).take(columns) {
                    *to = row[block];
                }
            }
        }
    }
}

/// Memory of [`zeroed`], or a part of it that begins at an element.
fn elements_mut<T: Element>(bytes: &mut [u8]) -> &mut [T] {
    let elements = as_elements_mut(bytes);
    debug_assert!(elements.is_some());
    elements.unwrap_or_default()
}

/// A row in the order of the blocks, zeros between.
fn place(row: &[u8], packed: &PackedWeights, to: &mut [u8]) {
    match &packed.order {
        Some(order) => {
            for (to, &from) in to.iter_mut().zip(order) {
                *to = row.get(from as usize).copied().unwrap_or(0);
            }
        }
        None if packed.block_size == packed.block_len => to[..row.len()].copy_from_slice(row),
        None => {
            let blocks = row.chunks(packed.block_size.max(1));
            for (to, from) in to.chunks_exact_mut(packed.block_len).zip(blocks) {
                to[..from.len()].copy_from_slice(from);
            }
        }
    }
}

/// Lanes of `LANE` bytes, each of `PER` codes; `rows` has a byte for each code.
fn interleave<const LANE: usize, const PER: usize>(rows: &[u8], depth: usize, to: &mut [u8]) {
    let rows: [&[u8]; COLUMNS] = std::array::from_fn(|column| &rows[column * depth..][..depth]);
    for (step, to) in to.chunks_exact_mut(COLUMNS * LANE).enumerate() {
        for (row, to) in rows.iter().zip(to.chunks_exact_mut(LANE)) {
            let codes = &row[step * LANE * PER..][..LANE * PER];
            // The bytes of a lane at once: a code has no more bits than it is shifted by.
            let mut lane = 0;
            for (i, codes) in codes.chunks_exact(LANE).enumerate() {
                let mut bytes = [0; 4];
                bytes[..LANE].copy_from_slice(codes);
                lane |= u32::from_le_bytes(bytes) << (i * 8 / PER);
            }
            to.copy_from_slice(&lane.to_le_bytes()[..LANE]);
        }
    }
}
