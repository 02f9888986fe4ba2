//! Rows of A as the product reads them: padded to whole blocks of W, in the order of its elements,
//! and quantised where the product is in integers.
//!
//!   scale[m, run] = max |a| / 127      q[m, i] = round(a[m, i] / scale[m, run]), ties to even
//!
//! A run is a block, but where A is quantised no more than 32 elements: fewer share a scale than a
//! block of W has, which costs the product nothing and is closer. A run that has an infinity or a NaN gives
//! NaN. The sum of each run goes along for zero points.

use super::Instructions;
use super::layout::{Arithmetic, Format, PackedWeights, Points};

/// The longest run of bytes: what 16-bit sums of products of 4-bit codes have room for.
pub const BYTE_RUN: usize = 32;

/// Some rows of A, ready to be multiplied.
#[derive(Clone, Copy, Debug)]
pub struct Activations<'a> {
    pub codes: Codes<'a>,
    /// Elements from one row of codes to the next.
    pub stride: usize,
    /// A scale for each run of the first row; none where codes are floats.
    pub scales: &'a [f32],
    /// The sum of each run of the first row; none where no zero point needs it.
    pub sums: &'a [f32],
    /// Elements from the scales, and the sums, of one row to those of the next.
    pub beside: usize,
    pub rows: usize,
    pub depth: usize,
    /// Elements of a run.
    pub run: usize,
}

/// Codes of the first row, and all behind it.
#[derive(Clone, Copy, Debug)]
pub enum Codes<'a> {
    Floats(&'a [f32]),
    Bytes(&'a [i8]),
}

/// Where the elements of A come from.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    /// [rows, K]
    Floats(&'a [f32]),
    /// Writes the elements of a row.
    Converted(&'a (dyn Fn(usize, &mut [f32]) + Sync)),
}

/// How rows of A are stored for some weights: in a record for each, of
///
///   codes | scales of the runs | sums of the runs | the row as given | the row with its padding
///
/// the last two only where they are needed on the way.
#[derive(Clone, Copy, Debug)]
pub struct Records<'w> {
    weights: &'w PackedWeights,
    run: usize,
    /// Codes are the elements of A where they lie.
    in_place: bool,
    kind: Kind,
    /// f32s of each part.
    codes: usize,
    scales: usize,
    sums: usize,
    given: usize,
    padded: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Floats,
    Bytes,
}

impl<'w> Records<'w> {
    pub fn weights(&self) -> &'w PackedWeights {
        self.weights
    }

    /// `are_floats`: whether A will be [`Rows::Floats`].
    pub fn new(weights: &'w PackedWeights, are_floats: bool) -> Self {
        let (depth, block) = (weights.depth(), weights.block_len);
        let (kind, run, codes) = match weights.arithmetic {
            Arithmetic::Float => (Kind::Floats, block, depth),
            _ => (Kind::Bytes, block.min(BYTE_RUN), depth.div_ceil(4)),
        };
        let runs = depth / run.max(1);
        // Whether a row is what is stored, or read, without padding.
        let whole = weights.order.is_none() && depth == weights.k;
        let in_place = kind == Kind::Floats && whole && are_floats;
        // Of signed codes too there are CPUs that want the sums.
        let no_points = matches!(weights.points, Points::All(0.0)) && weights.format != Format::Quads;
        Records {
            weights,
            run,
            in_place,
            kind,
            codes: if in_place { 0 } else { codes },
            scales: if kind == Kind::Floats { 0 } else { runs },
            sums: if no_points { 0 } else { runs },
            given: if are_floats { 0 } else { weights.k },
            padded: if whole { 0 } else { depth },
        }
    }

    /// f32s of room for a row; zero when there is nothing to [`fill`](Self::fill).
    pub fn room(&self) -> usize {
        let parts = [self.codes, self.scales, self.sums, self.given, self.padded];
        parts.into_iter().fold(0, usize::saturating_add)
    }

    /// Writes the record of a row.
    pub fn fill(&self, instructions: Instructions, a: Rows<'_>, row: usize, record: &mut [f32]) {
        let weights = self.weights;
        let (codes, record) = record.split_at_mut(self.codes);
        let (scales, record) = record.split_at_mut(self.scales);
        let (sums, record) = record.split_at_mut(self.sums);
        let (given, record) = record.split_at_mut(self.given);
        let padded = &mut record[..self.padded];
        let given = match a {
            Rows::Floats(a) => &a[row * weights.k..][..weights.k],
            Rows::Converted(convert) => {
                convert(row, given);
                &*given
            }
        };
        let whole = if self.padded > 0 {
            spread(weights, given, padded);
            &*padded
        } else {
            given
        };
        match self.kind {
            Kind::Floats => {
                if !codes.is_empty() {
                    codes.copy_from_slice(whole);
                }
                sum_runs(whole, self.run, sums);
            }
            Kind::Bytes => {
                quantize_runs(instructions, whole, self.run, (as_bytes(codes), scales, sums));
            }
        }
    }

    /// The rows of `a` whose records are in `room`, one after the other.
    pub fn view<'a>(&self, a: Rows<'a>, rows: usize, room: &'a [f32]) -> Activations<'a> {
        let record = self.room();
        let (codes, stride) = match (self.kind, a) {
            (Kind::Floats, Rows::Floats(a)) if self.in_place => (Codes::Floats(a), self.weights.k),
            (Kind::Floats, _) => (Codes::Floats(room), record),
            (Kind::Bytes, _) => (Codes::Bytes(bytes(room)), 4 * record),
        };
        let scales = room.get(self.codes..).unwrap_or_default();
        let sums = scales.get(self.scales..).unwrap_or_default();
        Activations {
            codes,
            stride,
            scales: if self.scales > 0 { scales } else { &[] },
            sums: if self.sums > 0 { sums } else { &[] },
            beside: record,
            rows,
            depth: self.weights.depth(),
            run: self.run,
        }
    }
}

/// A row in the order of the weights, zeros between.
fn spread(weights: &PackedWeights, row: &[f32], to: &mut [f32]) {
    match &weights.order {
        Some(order) => {
            for (to, &from) in to.iter_mut().zip(order) {
                *to = row.get(from as usize).copied().unwrap_or(0.0);
            }
        }
        None => {
            let blocks = to.chunks_exact_mut(weights.block_len.max(1));
            for (to, from) in blocks.zip(row.chunks(weights.block_size.max(1))) {
                let (to, rest) = to.split_at_mut(from.len());
                to.copy_from_slice(from);
                rest.fill(0.0);
            }
        }
    }
}

/// In eight sums by turns, whatever the CPU.
fn sum_runs(row: &[f32], run: usize, sums: &mut [f32]) {
    for (run, to) in row.chunks_exact(run.max(1)).zip(sums) {
        let mut sum = [0.0f32; 8];
        for x in run.chunks_exact(8) {
            for (sum, x) in sum.iter_mut().zip(x) {
                *sum += x;
            }
        }
        *to = sum.iter().sum();
    }
}

/// The largest code, as many as fit 8 bits on both sides of zero.
const LEVELS: f32 = 127.0;

/// Codes, scales and sums of runs; none of the last where no one needs them.
type Quantized<'a> = (&'a mut [i8], &'a mut [f32], &'a mut [f32]);

fn quantize_runs(instructions: Instructions, row: &[f32], run: usize, to: Quantized<'_>) {
    match instructions {
        Instructions::Portable => quantize_each(row, run, to),
        // Which every CPU that this is compiled for has, so that the loops are vectors already.
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Instructions::Neon | Instructions::NeonDot => quantize_each(row, run, to),
        // SAFETY: made only where the CPU has AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 | Instructions::Avx512 => unsafe { quantize_each_avx2(row, run, to) },
    }
}

/// The same loops, which the compiler makes vectors of.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn quantize_each_avx2(row: &[f32], run: usize, to: Quantized<'_>) {
    quantize_each(row, run, to);
}

#[inline(always)]
fn quantize_each(row: &[f32], run: usize, (codes, scales, sums): Quantized<'_>) {
    let run = run.max(1);
    let runs = row.chunks_exact(run).zip(codes.chunks_exact_mut(run));
    for (i, ((run, codes), to)) in runs.zip(scales).enumerate() {
        let (scale, sum) = quantize(run, codes);
        *to = scale;
        if let Some(to) = sums.get_mut(i) {
            *to = sum;
        }
    }
}

/// The scale, and the sum of the codes.
#[inline(always)]
fn quantize(run: &[f32], codes: &mut [i8]) -> (f32, f32) {
    // As integers, infinities are larger than all else, and NaNs than those.
    let mut most = [0i32; 8];
    for run in run.chunks_exact(8) {
        for (most, x) in most.iter_mut().zip(run) {
            *most = (*most).max(x.to_bits() as i32 & i32::MAX);
        }
    }
    let max = f32::from_bits(most.into_iter().fold(0, i32::max) as u32);
    let scale = if max.is_finite() { max / LEVELS } else { f32::NAN };
    let inverse = LEVELS / max;
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    // Adding 1.5 * 2^23 rounds to a whole number, ties to even, which then is in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let mut sums = [0i32; 8];
    for (run, codes) in run.chunks_exact(8).zip(codes.chunks_exact_mut(8)) {
        for ((sum, x), to) in sums.iter_mut().zip(run).zip(codes) {
            let code = ((x * inverse + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
            *sum = sum.wrapping_add(code);
            *to = code as i8;
        }
    }
    (scale, sums.into_iter().fold(0, i32::wrapping_add) as f32)
}

fn bytes(room: &[f32]) -> &[i8] {
    // SAFETY: the same memory, of which every byte is an i8.
    unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), size_of_val(room)) }
}

fn as_bytes(room: &mut [f32]) -> &mut [i8] {
    // SAFETY: as `bytes`, borrowed exclusively; every value is an f32.
    unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), size_of_val(room)) }
}
