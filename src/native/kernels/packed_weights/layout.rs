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
//!   Quads      4      4                    bytes times bytes
//!   Pairs      2      2                    words times words, exactly
//!   Bytes      1      1                    floats
//!
//! so that one load has the same elements of 8 columns, and a broadcast of those of a row of A is
//! all that the product needs: no sum across lanes, ever. Scales lie beside, one for each block
//! and column in the order in which they are read, and so do zero points.
//!
//! Rows of W that the matrix does not have, elements beyond K and those that fill a block up have
//! code 0, and the row of A has 0 there.

use std::fmt;

use super::array::Array;

/// Columns of a panel.
pub const COLUMNS: usize = 16;
/// Columns of a group.
#[cfg(target_arch = "x86_64")]
pub const LANES: usize = 8;

/// To be raised with every change of what is packed or how: files keep packed weights, see
/// `packed_cache`.
pub const LAYOUT_VERSION: u32 = 2;

/// How A is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// In f32.
    Float,
    /// In integers: A is quantised to bytes first.
    Integer,
    /// In integers that A is given as, exactly: see [`multiply_words`](super::multiply_words).
    Words,
}

/// Where codes are in a panel; see above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Crumbs,
    Nibbles,
    Quads,
    Pairs,
    Bytes,
}

impl Format {
    pub fn bits(self) -> usize {
        match self {
            Format::Crumbs => 2,
            Format::Nibbles => 4,
            Format::Quads | Format::Pairs | Format::Bytes => 8,
        }
    }

    fn lane(self) -> usize {
        match self {
            Format::Crumbs | Format::Nibbles | Format::Quads => 4,
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
    Whole(Array<i8>),
    Float(Array<f32>),
}

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
    pub(super) codes: Array<u8>,
    pub scales: Array<f32>,
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

impl PackedWeights {
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
        &self.codes[panel * bytes..][..bytes]
    }
}
