//! How weights lie in memory once they are packed.
//!
//! A panel is [`COLUMNS`] columns of Y, that is rows of W, and a vector is 8 of them. The codes
//! of a panel are a sequence of steps along K; a step is two groups, one for each vector, of 8
//! lanes of `lane` bytes. In the lane of a column, byte j holds the codes of elements j, j + lane,
//! j + 2 lane, ... from its lowest bits on:
//!
//!   format     lane   elements of a step   read by
//!   Nibbles    4      8                    bytes times bytes, and floats
//!   Crumbs     4      16                   (2 bits each)
//!   Pairs      2      2                    words times words
//!   Bytes      1      1                    floats
//!
//! so that one load has the same elements of 8 columns, and a broadcast of those of a row of A is
//! all that the product needs: no sum across lanes, ever. Scales lie beside, one for each block
//! and column in the order in which they are read, and so do zero points.
//!
//! Rows of W that the matrix does not have, elements beyond K and those that fill a block up have
//! code 0, and the row of A has 0 there.

use std::fmt;

use super::OutOfMemory;

/// Columns of a panel.
pub const COLUMNS: usize = 16;
/// Columns of a vector.
pub const LANES: usize = 8;

/// The longest block of 8 bits that is multiplied in integers: then A has 511 levels.
const MAX_WORD_BLOCK: usize = 1 << 15;

/// How A is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// In f32.
    Float,
    /// In integers: each block of A is quantised first.
    Integer,
}

/// Where codes are in a panel; see above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Crumbs,
    Nibbles,
    Pairs,
    Bytes,
}

impl Format {
    pub fn bits(self) -> usize {
        match self {
            Format::Crumbs => 2,
            Format::Nibbles => 4,
            Format::Pairs | Format::Bytes => 8,
        }
    }

    fn lane(self) -> usize {
        match self {
            Format::Crumbs | Format::Nibbles => 4,
            Format::Pairs => 2,
            Format::Bytes => 1,
        }
    }

    /// Elements along K of a step.
    pub fn step(self) -> usize {
        self.lane() * 8 / self.bits()
    }

    /// Bytes of a step of a panel.
    pub fn step_bytes(self) -> usize {
        self.lane() * COLUMNS
    }
}

/// What is multiplied by a scale is `code - point`.
#[derive(Clone, Debug)]
pub enum Points {
    /// The same for all.
    All(f32),
    /// Like the scales.
    Whole(Vec<i8>),
    Float(Vec<f32>),
}

/// 64 bytes, so that no load crosses a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Weights in the layout of the product.
#[derive(Clone)]
pub struct PackedWeights {
    pub format: Format,
    pub arithmetic: Arithmetic,
    /// Columns of Y.
    pub n: usize,
    /// Elements of a row of A, as it is given.
    pub k: usize,
    /// Blocks of a row of W, and elements of each, those that fill it up included.
    pub blocks: usize,
    pub block_len: usize,
    /// Elements of a block as it was given.
    pub block_size: usize,
    codes: Vec<Line>,
    pub scales: Vec<f32>,
    pub points: Points,
    /// Which element of A each place of the blocks takes; `u32::MAX` for none. In their order,
    /// one block after the other, when there is no list.
    pub order: Option<Vec<u32>>,
}

impl fmt::Debug for PackedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PackedWeights { n, k, block_size, .. } = self;
        write!(
            f,
            "PackedWeights({:?}, {n} by {k}, blocks of {block_size})",
            self.format
        )
    }
}

/// What is packed: codes of `bits` bits, unsigned.
pub struct Source<'a> {
    pub bits: usize,
    pub n: usize,
    pub k: usize,
    pub block_size: usize,
    pub codes: SourceCodes<'a>,
    /// The scale of a row and block.
    pub scale: &'a dyn Fn(usize, usize) -> f32,
    pub points: SourcePoints<'a>,
    /// The block of each element, where it is not its place divided by the size.
    pub groups: Option<&'a [i32]>,
}

/// Codes of W.
#[derive(Clone, Copy)]
pub enum SourceCodes<'a> {
    /// Writes those of a row, `k` of them.
    Rows(&'a dyn Fn(usize, &mut [u8])),
    /// [K, N]: a byte for each element, of which the bits of the second are flipped.
    Transposed(&'a [u8], u8),
}

/// Zero points of a row and block.
#[derive(Clone, Copy)]
pub enum SourcePoints<'a> {
    /// The middle of the range.
    Middle,
    Whole(&'a dyn Fn(usize, usize) -> u8),
    Float(&'a dyn Fn(usize, usize) -> f32),
}

/// Room for `len` elements, all of `value`.
pub(super) fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, OutOfMemory> {
    let mut vec = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    vec.try_reserve_exact(len).map_err(|_| OutOfMemory { bytes })?;
    vec.resize(len, value);
    Ok(vec)
}

fn product(sizes: &[usize]) -> Result<usize, OutOfMemory> {
    let count = sizes
        .iter()
        .try_fold(1usize, |count, &size| count.checked_mul(size));
    count.ok_or(OutOfMemory { bytes: usize::MAX })
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

impl PackedWeights {
    /// `source.bits` is 2 to 8, `block_size` at least 1, and groups are below the number of blocks.
    /// Transposed codes are of 8 bits, and of one block.
    pub fn pack(source: &Source<'_>, arithmetic: Arithmetic) -> Result<Self, OutOfMemory> {
        // Longer blocks leave words of A too few levels.
        let arithmetic = match source.bits > 4 && source.block_size.min(source.k) > MAX_WORD_BLOCK {
            true => Arithmetic::Float,
            false => arithmetic,
        };
        Self::pack_as(source, arithmetic)
    }

    /// [K, N] codes for exact sums, see [`multiply_words`](super::multiply_words): `bits` are
    /// flipped, and what is stored is the code less 128.
    pub fn pack_words(codes: &[u8], bits: u8, k: usize, n: usize) -> Result<Self, OutOfMemory> {
        let source = Source {
            bits: 8,
            n,
            k,
            block_size: k.max(1),
            codes: SourceCodes::Transposed(codes, bits),
            scale: &|_, _| 1.0,
            points: SourcePoints::Middle,
            groups: None,
        };
        Self::pack_as(&source, Arithmetic::Integer)
    }

    fn pack_as(source: &Source<'_>, arithmetic: Arithmetic) -> Result<Self, OutOfMemory> {
        let format = match (source.bits, arithmetic) {
            (..=2, _) => Format::Crumbs,
            (3 | 4, _) => Format::Nibbles,
            (_, Arithmetic::Float) => Format::Bytes,
            (_, Arithmetic::Integer) => Format::Pairs,
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
        let group_of = |block: usize| groups.as_ref().map_or(block, |groups| groups[block].0);

        // Bytes times bytes wants unsigned codes; all else signed ones, so that the usual zero
        // point is 0 and sums stay small.
        let signed = arithmetic == Arithmetic::Float || format == Format::Pairs;
        let middle = 1u8 << (source.bits - 1);
        let flip = if signed { middle } else { 0 };
        let mask = ((1u16 << format.bits()) - 1) as u8;
        let panels = n.div_ceil(COLUMNS);
        let panel_bytes = product(&[depth / format.step(), format.step_bytes()])?;
        let code_bytes = product(&[panels, panel_bytes])?;
        let mut codes = filled(code_bytes.div_ceil(size_of::<Line>()), Line([0; 64]))?;
        let per_block = product(&[panels, blocks, COLUMNS])?;
        let mut scales = filled(per_block, 0.0)?;
        let mut points = match source.points {
            SourcePoints::Middle => Points::All(if signed { 0.0 } else { f32::from(middle) }),
            SourcePoints::Whole(_) => Points::Whole(filled(per_block, 0)?),
            SourcePoints::Float(_) => Points::Float(filled(per_block, 0.0)?),
        };
        let mut row = filled(k, 0u8)?;
        let mut rows = filled(product(&[COLUMNS, depth])?, 0u8)?;
        for panel in 0..panels {
            let columns = COLUMNS.min(n - panel * COLUMNS);
            rows.fill(0);
            // Sign extension is of the format's width, not of the code's.
            let stored = |code: u8| code.wrapping_sub(flip) & mask;
            if let SourceCodes::Transposed(codes, bits) = source.codes {
                for (i, line) in codes.chunks_exact(n).enumerate().take(k) {
                    let line = &line[panel * COLUMNS..][..columns];
                    for (column, code) in line.iter().enumerate() {
                        rows[column * depth + i] = stored(code ^ bits);
                    }
                }
            }
            for (column, to) in rows.chunks_exact_mut(depth.max(1)).enumerate().take(columns) {
                let at = panel * COLUMNS + column;
                if let SourceCodes::Rows(codes) = source.codes {
                    codes(at, &mut row);
                    row.iter_mut().for_each(|code| *code = stored(*code));
                    place(&row, order.as_deref(), block_size, block_len, to);
                }
                for block in 0..blocks {
                    let beside = (panel * blocks + block) * COLUMNS + column;
                    let group = group_of(block);
                    scales[beside] = (source.scale)(at, group);
                    match (&mut points, source.points) {
                        (Points::Whole(points), SourcePoints::Whole(point)) => {
                            points[beside] = (i16::from(point(at, group)) - i16::from(flip)) as i8;
                        }
                        (Points::Float(points), SourcePoints::Float(point)) => {
                            points[beside] = point(at, group) - f32::from(flip);
                        }
                        _ => {}
                    }
                }
            }
            let to = &mut line_bytes_mut(&mut codes)[panel * panel_bytes..][..panel_bytes];
            match format {
                Format::Crumbs => interleave::<4, 4>(&rows, depth, to),
                Format::Nibbles => interleave::<4, 2>(&rows, depth, to),
                Format::Pairs => interleave::<2, 1>(&rows, depth, to),
                Format::Bytes => interleave::<1, 1>(&rows, depth, to),
            }
        }
        Ok(PackedWeights {
            format,
            arithmetic,
            n,
            k,
            blocks,
            block_len,
            block_size,
            codes,
            scales,
            points,
            order,
        })
    }

    /// Elements of a row of A as the product reads it.
    pub fn depth(&self) -> usize {
        self.blocks * self.block_len
    }

    pub fn panels(&self) -> usize {
        self.n.div_ceil(COLUMNS)
    }

    pub fn panel_bytes(&self) -> usize {
        self.depth() / self.format.step() * self.format.step_bytes()
    }

    /// The codes of a panel.
    pub fn panel(&self, panel: usize) -> &[u8] {
        let bytes = self.panel_bytes();
        &line_bytes(&self.codes)[panel * bytes..][..bytes]
    }
}

/// A row in the order of the blocks, zeros between.
fn place(row: &[u8], order: Option<&[u32]>, block_size: usize, block_len: usize, to: &mut [u8]) {
    match order {
        Some(order) => {
            for (to, &from) in to.iter_mut().zip(order) {
                *to = row.get(from as usize).copied().unwrap_or(0);
            }
        }
        None => {
            for (to, from) in to.chunks_exact_mut(block_len).zip(row.chunks(block_size.max(1))) {
                to[..from.len()].copy_from_slice(from);
            }
        }
    }
}

/// Lanes of `LANE` bytes, each of `PER` codes; `rows` has a byte for each code.
fn interleave<const LANE: usize, const PER: usize>(rows: &[u8], depth: usize, to: &mut [u8]) {
    let bits = 8 / PER;
    let rows: [&[u8]; COLUMNS] = std::array::from_fn(|column| &rows[column * depth..][..depth]);
    for (step, to) in to.chunks_exact_mut(COLUMNS * LANE).enumerate() {
        for (row, to) in rows.iter().zip(to.chunks_exact_mut(LANE)) {
            let codes = &row[step * LANE * PER..][..LANE * PER];
            let mut lane = [0u8; LANE];
            for (i, codes) in codes.chunks_exact(LANE).enumerate() {
                for (lane, code) in lane.iter_mut().zip(codes) {
                    *lane |= code << (i * bits);
                }
            }
            to.copy_from_slice(&lane);
        }
    }
}

fn line_bytes(lines: &[Line]) -> &[u8] {
    // SAFETY: a `Line` is 64 bytes without padding.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

fn line_bytes_mut(lines: &mut [Line]) -> &mut [u8] {
    // SAFETY: a `Line` is 64 bytes without padding, of which every value is one.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
}
