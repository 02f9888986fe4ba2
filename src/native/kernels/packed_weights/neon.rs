//! The product with NEON: four vectors of four columns, and up to four rows at a time.
//!
//! Bytes times bytes, with the dot product instructions of ARMv8.2 (`sdot`: four products of bytes
//! are added to a sum of 32 bits, which is what a lane of the layout holds); without them, products
//! of 16 bits, of which a run of 32 elements adds eight of at most 15 * 127 up, and codes of 8 bits two
//! before they go to 32 bits. Words times words:
//! `smlal`. Floats: codes become floats by two shifts and a conversion.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers, of several arrays at once"
)]

use std::arch::aarch64::*;
use std::arch::asm;

use super::dense::Dense;
use super::layout::{COLUMNS, Format};
use super::{Panel, PanelPoints, Tile};

/// A panel's columns, four to a vector.
type Quads<T> = [T; 4];

/// Rows that share a pass over a panel.
pub(super) const TILE_ROWS: usize = 4;
/// The same where codes were made floats before.
const DENSE_TILE: usize = 6;

/// Calls a kernel for as many rows as `$sums` has.
macro_rules! by_rows {
    ($sums:expr, $panel:expr, $a:expr, $kernel:ident $(, $bits:literal)?) => {{
        const { assert!(TILE_ROWS == 4) };
        // SAFETY: every CPU that this is compiled for has NEON; dot products are asked for only
        // where `Instructions::NeonDot` is made, which is where the CPU has them.
        unsafe {
            match $sums.len() {
                0 => {}
                1 => $kernel::<1, $($bits)?>($panel, $a, $sums),
                2 => $kernel::<2, $($bits)?>($panel, $a, $sums),
                3 => $kernel::<3, $($bits)?>($panel, $a, $sums),
                _ => $kernel::<4, $($bits)?>($panel, $a, $sums),
            }
        }
    }};
}

pub(super) fn bytes(format: Format, panel: &Panel<'_>, a: &Tile<'_, i8>, sums: &mut [[f32; COLUMNS]]) {
    match format {
        Format::Crumbs => by_rows!(sums, panel, a, bytes_tile, 2),
        Format::Quads => by_rows!(sums, panel, a, quads_tile),
        _ => by_rows!(sums, panel, a, bytes_tile, 4),
    }
}

/// The same with dot products.
pub(super) fn bytes_dot(format: Format, panel: &Panel<'_>, a: &Tile<'_, i8>, sums: &mut [[f32; COLUMNS]]) {
    match format {
        Format::Crumbs => by_rows!(sums, panel, a, bytes_dot_tile, 2),
        Format::Quads => by_rows!(sums, panel, a, bytes_dot_tile, 8),
        _ => by_rows!(sums, panel, a, bytes_dot_tile, 4),
    }
}

pub(super) fn floats(format: Format, panel: &Panel<'_>, a: &Tile<'_, f32>, sums: &mut [[f32; COLUMNS]]) {
    match format {
        Format::Crumbs => by_rows!(sums, panel, a, floats_tile, 2),
        Format::Nibbles => by_rows!(sums, panel, a, floats_tile, 4),
        _ => by_rows!(sums, panel, a, float_bytes_tile),
    }
}

pub(super) fn exact(codes: &[u8], a: (&[i16], usize), sums: &mut [[i32; COLUMNS]]) {
    by_rows!(sums, codes, a, exact_tile);
}

/// The format of codes of `bits`, 2, 4 or 8, in lanes of four bytes.
fn in_lanes(bits: i32) -> Format {
    match bits {
        2 => Format::Crumbs,
        4 => Format::Nibbles,
        _ => Format::Quads,
    }
}

/// # Safety
/// There are 16 values from `at` on.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load_quads(values: &[f32], at: usize) -> Quads<float32x4_t> {
    // SAFETY: the caller's word.
    unsafe {
        let at = values.as_ptr().add(at);
        [
            vld1q_f32(at),
            vld1q_f32(at.add(4)),
            vld1q_f32(at.add(8)),
            vld1q_f32(at.add(12)),
        ]
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn store_quads(quads: Quads<float32x4_t>, to: &mut [f32; COLUMNS]) {
    for (to, quad) in to.chunks_exact_mut(4).zip(quads) {
        // SAFETY: four floats.
        unsafe { vst1q_f32(to.as_mut_ptr(), quad) }
    }
}

#[target_feature(enable = "neon")]
#[inline]
fn store<const R: usize>(totals: [Quads<float32x4_t>; R], sums: &mut [[f32; COLUMNS]]) {
    for (sums, total) in sums.iter_mut().zip(totals) {
        store_quads(total, sums);
    }
}

/// Sixteen bytes with a sign as floats, in their order.
#[target_feature(enable = "neon")]
#[inline]
fn floats_of(bytes: int8x16_t) -> Quads<float32x4_t> {
    let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes)));
    [
        vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
        vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
        vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
        vcvtq_f32_s32(vmovl_s16(vget_high_s16(high))),
    ]
}

/// The zero points of a block.
///
/// # Safety
/// Points that lie beside the scales have those of `block`.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn points(points: &PanelPoints<'_>, block: usize) -> Quads<float32x4_t> {
    match points {
        PanelPoints::All(point) => [vdupq_n_f32(*point); 4],
        // SAFETY: the caller's word.
        PanelPoints::Whole(points) => floats_of(unsafe { vld1q_s8(points.as_ptr().add(block * COLUMNS)) }),
        // SAFETY: the caller's word.
        PanelPoints::Float(points) => unsafe { load_quads(points, block * COLUMNS) },
    }
}

/// What goes along with a run of integers: its block, and where its scales and sums are.
struct Run<'a> {
    panel: &'a Panel<'a>,
    scales: &'a [f32],
    sums: &'a [f32],
    beside: usize,
    block: usize,
    run: usize,
}

/// total + (inner - point * sum) * scale, for each row and vector of a run.
///
/// # Safety
/// There are such a block and such a run, of R rows.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn finish_run<const R: usize>(
    totals: &mut [Quads<float32x4_t>; R],
    inner: &[Quads<int32x4_t>; R],
    at: &Run<'_>,
) {
    // SAFETY: the caller's word, here and below.
    let scales = unsafe { load_quads(at.panel.scales, at.block * COLUMNS) };
    let points = match at.panel.points {
        PanelPoints::All(0.0) => None,
        _ => Some(unsafe { points(&at.panel.points, at.block) }),
    };
    for r in 0..R {
        let a_scale = unsafe { *at.scales.get_unchecked(r * at.beside + at.run) };
        for g in 0..4 {
            let mut inner = vcvtq_f32_s32(inner[r][g]);
            if let Some(points) = &points {
                let sum = unsafe { *at.sums.get_unchecked(r * at.beside + at.run) };
                inner = vfmsq_n_f32(inner, points[g], sum);
            }
            totals[r][g] = vfmaq_f32(totals[r][g], inner, vmulq_n_f32(scales[g], a_scale));
        }
    }
}

/// The sums over a run of 32 elements or fewer of four columns, for each of R rows.
type RunSums<const R: usize> =
    unsafe fn(codes: *const u8, steps: usize, rows: *const i8, stride: usize) -> [int32x4_t; R];

#[target_feature(enable = "neon")]
fn bytes_tile<const R: usize, const BITS: i32>(
    panel: &Panel<'_>,
    a: &Tile<'_, i8>,
    sums: &mut [[f32; COLUMNS]],
) {
    bytes_runs::<R, BITS>(panel, a, sums, run_sums::<R, BITS>);
}

#[target_feature(enable = "neon")]
fn quads_tile<const R: usize>(panel: &Panel<'_>, a: &Tile<'_, i8>, sums: &mut [[f32; COLUMNS]]) {
    bytes_runs::<R, 8>(panel, a, sums, quads_sums::<R>);
}

#[target_feature(enable = "neon,dotprod")]
fn bytes_dot_tile<const R: usize, const BITS: i32>(
    panel: &Panel<'_>,
    a: &Tile<'_, i8>,
    sums: &mut [[f32; COLUMNS]],
) {
    bytes_runs::<R, BITS>(panel, a, sums, run_sums_dot::<R, BITS>);
}

#[target_feature(enable = "neon")]
#[inline]
fn bytes_runs<const R: usize, const BITS: i32>(
    panel: &Panel<'_>,
    a: &Tile<'_, i8>,
    sums: &mut [[f32; COLUMNS]],
    run_sums: RunSums<R>,
) {
    let format = in_lanes(BITS);
    assert!(a.fits_with_scales(panel, R, format) && a.run <= 32);
    let mut totals = [[vdupq_n_f32(0.0); 4]; R];
    let mut codes = panel.codes.as_ptr();
    let mut rows = a.codes.as_ptr();
    let steps = a.run / format.step();
    let mut at = Run {
        panel,
        scales: a.scales,
        sums: a.sums,
        beside: a.beside,
        block: 0,
        run: 0,
    };
    for block in 0..panel.scales.len() / COLUMNS {
        at.block = block;
        for _ in 0..panel.block_len / a.run {
            let mut inner = [[vdupq_n_s32(0); 4]; R];
            for g in 0..4 {
                // SAFETY: `fits`, there are as many steps of 64 bytes in the panel as there are in
                // `depth`, and so many elements in each row.
                let sums = unsafe { run_sums(codes.add(16 * g), steps, rows, a.stride) };
                for r in 0..R {
                    inner[r][g] = sums[r];
                }
            }
            // SAFETY: as above; as many blocks, runs and rows.
            unsafe {
                codes = codes.add(steps * format.step_bytes());
                rows = rows.add(a.run);
                finish_run(&mut totals, &inner, &at);
            }
            at.run += 1;
        }
    }
    store(totals, sums);
}

/// The codes of a part of 16 bytes.
#[target_feature(enable = "neon")]
#[inline]
fn part_of<const BITS: i32>(bytes: uint8x16_t, part: usize) -> int8x16_t {
    let right = vdupq_n_s8(-(BITS as i8) * part as i8);
    let codes = vandq_u8(vshlq_u8(bytes, right), vdupq_n_u8(((1u32 << BITS) - 1) as u8));
    vreinterpretq_s8_u8(codes)
}

/// Four bytes of a row, four times.
///
/// # Safety
/// They are there.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn four_bytes(at: *const i8) -> int8x16_t {
    // SAFETY: the caller's word.
    vreinterpretq_s8_s32(vdupq_n_s32(unsafe { at.cast::<i32>().read_unaligned() }))
}

/// # Safety
/// There are `steps`, 64 bytes apart, of 16 bytes of codes, at most 32 elements, and as many in each
/// of R rows that are `stride` apart.
#[target_feature(enable = "neon")]
unsafe fn run_sums<const R: usize, const BITS: i32>(
    codes: *const u8,
    steps: usize,
    rows: *const i8,
    stride: usize,
) -> [int32x4_t; R] {
    let per_byte = 8 / BITS as usize;
    let mut inner = [[vdupq_n_s16(0); 2]; R];
    for step in 0..steps {
        // SAFETY: the caller's word.
        let bytes = unsafe { vld1q_u8(codes.add(64 * step)) };
        for part in 0..per_byte {
            let w = part_of::<BITS>(bytes, part);
            for r in 0..R {
                // SAFETY: the caller's word.
                let x = unsafe { four_bytes(rows.add(r * stride + (step * per_byte + part) * 4)) };
                inner[r][0] = vmlal_s8(inner[r][0], vget_low_s8(w), vget_low_s8(x));
                inner[r][1] = vmlal_s8(inner[r][1], vget_high_s8(w), vget_high_s8(x));
            }
        }
    }
    inner.map(|[low, high]| vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))
}

/// As [`run_sums`] for signed codes of 8 bits, whose products have room for no more than two in 16
/// bits.
///
/// # Safety
/// As [`run_sums`].
#[target_feature(enable = "neon")]
unsafe fn quads_sums<const R: usize>(
    codes: *const u8,
    steps: usize,
    rows: *const i8,
    stride: usize,
) -> [int32x4_t; R] {
    let mut inner = [[vdupq_n_s32(0); 2]; R];
    for step in 0..steps {
        // SAFETY: the caller's word.
        let w = unsafe { vld1q_s8(codes.add(64 * step).cast()) };
        for r in 0..R {
            // SAFETY: the caller's word.
            let x = unsafe { four_bytes(rows.add(r * stride + step * 4)) };
            inner[r][0] = vpadalq_s16(inner[r][0], vmull_s8(vget_low_s8(w), vget_low_s8(x)));
            inner[r][1] = vpadalq_s16(inner[r][1], vmull_s8(vget_high_s8(w), vget_high_s8(x)));
        }
    }
    inner.map(|[low, high]| vpaddq_s32(low, high))
}

/// # Safety
/// As [`run_sums`], and the CPU has dot products.
#[target_feature(enable = "neon,dotprod")]
unsafe fn run_sums_dot<const R: usize, const BITS: i32>(
    codes: *const u8,
    steps: usize,
    rows: *const i8,
    stride: usize,
) -> [int32x4_t; R] {
    let per_byte = 8 / BITS as usize;
    let mut inner = [vdupq_n_s32(0); R];
    for step in 0..steps {
        // SAFETY: the caller's word.
        let bytes = unsafe { vld1q_u8(codes.add(64 * step)) };
        for part in 0..per_byte {
            let w = part_of::<BITS>(bytes, part);
            for r in 0..R {
                // SAFETY: the caller's word.
                let x = unsafe { four_bytes(rows.add(r * stride + (step * per_byte + part) * 4)) };
                inner[r] = dot(inner[r], w, x);
            }
        }
    }
    inner
}

/// The sum and four products in each of four lanes. (The intrinsic is not stable yet.)
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn dot(mut sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: an operation on registers, which the CPU has: it is a feature of this function.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {w:v}.16b, {x:v}.16b",
            sum = inout(vreg) sum,
            w = in(vreg) w,
            x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

#[target_feature(enable = "neon")]
fn exact_tile<const R: usize>(codes: &[u8], (a, stride): (&[i16], usize), sums: &mut [[i32; COLUMNS]]) {
    let pairs = codes.len() / (2 * COLUMNS);
    assert!(a.len() >= (R - 1) * stride + 2 * pairs);
    // SAFETY: 32 bytes of codes for each pair, and so many pairs in each row, as just checked.
    let totals = unsafe { words_sum::<R>(codes.as_ptr(), a.as_ptr(), stride, pairs) };
    for (sums, total) in sums.iter_mut().zip(totals) {
        for (to, quad) in sums.chunks_exact_mut(4).zip(total) {
            // SAFETY: four integers.
            unsafe { vst1q_s32(to.as_mut_ptr(), quad) }
        }
    }
}

/// The sums over pairs of words of each of the rows times pairs of codes of a panel, wrapping.
///
/// # Safety
/// There are `pairs` of 32 bytes of codes, and of two elements of R rows that are `stride` apart.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn words_sum<const R: usize>(
    codes: *const u8,
    rows: *const i16,
    stride: usize,
    pairs: usize,
) -> [Quads<int32x4_t>; R] {
    let mut inner = [[vdupq_n_s32(0); 4]; R];
    // Half a panel at a time: what there are registers for.
    for half in 0..2 {
        let mut parts = [[vdupq_n_s32(0); 4]; R];
        for pair in 0..pairs {
            // SAFETY: the caller's word.
            unsafe {
                let bytes = vld1q_s8(codes.add(pair * 32 + half * 16).cast());
                let w = [vmovl_s8(vget_low_s8(bytes)), vmovl_s8(vget_high_s8(bytes))];
                for r in 0..R {
                    let x = rows.add(r * stride + pair * 2).cast::<i32>();
                    let x = vreinterpret_s16_s32(vdup_n_s32(x.read_unaligned()));
                    for g in 0..2 {
                        parts[r][2 * g] = vmlal_s16(parts[r][2 * g], vget_low_s16(w[g]), x);
                        parts[r][2 * g + 1] = vmlal_s16(parts[r][2 * g + 1], vget_high_s16(w[g]), x);
                    }
                }
            }
        }
        for r in 0..R {
            for g in 0..2 {
                inner[r][2 * half + g] = vpaddq_s32(parts[r][2 * g], parts[r][2 * g + 1]);
            }
        }
    }
    inner
}

/// total + (inner - point * sum) * scale.
///
/// # Safety
/// There is such a block, of R rows.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn finish_block<const R: usize>(
    totals: &mut [Quads<float32x4_t>; R],
    inner: &mut [Quads<float32x4_t>; R],
    panel: &Panel<'_>,
    a: &Tile<'_, f32>,
    block: usize,
) {
    // SAFETY: the caller's word, here and below.
    let scales = unsafe { load_quads(panel.scales, block * COLUMNS) };
    match panel.points {
        PanelPoints::All(0.0) => {}
        _ => {
            let points = unsafe { points(&panel.points, block) };
            for r in 0..R {
                let sum = unsafe { *a.sums.get_unchecked(r * a.beside + block) };
                for g in 0..4 {
                    inner[r][g] = vfmsq_n_f32(inner[r][g], points[g], sum);
                }
            }
        }
    }
    for r in 0..R {
        for g in 0..4 {
            totals[r][g] = vfmaq_f32(totals[r][g], inner[r][g], scales[g]);
        }
    }
}

/// The codes of `BITS` bits that are part `part` of byte `byte` of each lane, with their sign.
#[target_feature(enable = "neon")]
#[inline]
fn signed_codes<const BITS: i32>(lanes: int32x4_t, byte: usize, part: usize) -> float32x4_t {
    let left = 32 - BITS * (part as i32 + 1) - 8 * byte as i32;
    let top = vshlq_s32(lanes, vdupq_n_s32(left));
    vcvtq_f32_s32(vshlq_s32(top, vdupq_n_s32(BITS - 32)))
}

#[target_feature(enable = "neon")]
fn floats_tile<const R: usize, const BITS: i32>(
    panel: &Panel<'_>,
    a: &Tile<'_, f32>,
    sums: &mut [[f32; COLUMNS]],
) {
    let format = in_lanes(BITS);
    assert!(a.fits(panel, R, format) && a.run == panel.block_len);
    let per_byte = 8 / BITS as usize;
    let mut totals = [[vdupq_n_f32(0.0); 4]; R];
    let mut codes = panel.codes.as_ptr();
    let mut rows = a.codes.as_ptr();
    let steps = a.run / format.step();
    let blocks = panel.scales.len() / COLUMNS;
    for block in 0..blocks {
        let mut inner = [[vdupq_n_f32(0.0); 4]; R];
        for _ in 0..steps {
            // SAFETY: `fits`, there are as many steps of 64 bytes in the panel as there are in
            // `depth`, and so many elements in each row.
            unsafe {
                for g in 0..4 {
                    let v = vreinterpretq_s32_u8(vld1q_u8(codes.add(16 * g)));
                    for byte in 0..4 {
                        for part in 0..per_byte {
                            let w = signed_codes::<BITS>(v, byte, part);
                            for r in 0..R {
                                let x = *rows.add(r * a.stride + part * 4 + byte);
                                inner[r][g] = vfmaq_n_f32(inner[r][g], w, x);
                            }
                        }
                    }
                }
                codes = codes.add(format.step_bytes());
                rows = rows.add(format.step());
            }
        }
        // SAFETY: `fits`, as many blocks and rows.
        unsafe { finish_block(&mut totals, &mut inner, panel, a, block) };
    }
    store(totals, sums);
}

#[target_feature(enable = "neon")]
fn float_bytes_tile<const R: usize>(panel: &Panel<'_>, a: &Tile<'_, f32>, sums: &mut [[f32; COLUMNS]]) {
    assert!(a.fits(panel, R, Format::Bytes) && a.run == panel.block_len);
    let mut totals = [[vdupq_n_f32(0.0); 4]; R];
    let mut codes = panel.codes.as_ptr();
    let mut rows = a.codes.as_ptr();
    let blocks = panel.scales.len() / COLUMNS;
    for block in 0..blocks {
        let mut inner = [[vdupq_n_f32(0.0); 4]; R];
        for _ in 0..a.run {
            // SAFETY: `fits`, there are 16 bytes of codes for each element of `depth`, and so many
            // elements in each row.
            unsafe {
                let w = floats_of(vld1q_s8(codes.cast()));
                codes = codes.add(COLUMNS);
                for r in 0..R {
                    let x = *rows.add(r * a.stride);
                    for g in 0..4 {
                        inner[r][g] = vfmaq_n_f32(inner[r][g], w[g], x);
                    }
                }
                rows = rows.add(1);
            }
        }
        // SAFETY: `fits`, as many blocks and rows.
        unsafe { finish_block(&mut totals, &mut inner, panel, a, block) };
    }
    store(totals, sums);
}

/// What many rows of floats are multiplied with.
pub(super) const DENSE: Dense = Dense {
    unpack: unpack_some,
    tile_rows: DENSE_TILE,
    tile: dense_tile,
};

/// (code - point) * scale for the elements from `first` on.
fn unpack_some(format: Format, panel: &Panel<'_>, first: usize, to: &mut [[f32; COLUMNS]]) {
    // SAFETY: every CPU that this is compiled for has NEON.
    unsafe {
        match format {
            Format::Crumbs => unpack::<2>(panel, first, to),
            Format::Nibbles => unpack::<4>(panel, first, to),
            _ => unpack_bytes(panel, first, to),
        }
    }
}

/// sums[r] += sum over d of rows[r][d] * weights[d], for up to [`DENSE_TILE`] rows.
fn dense_tile(weights: &[[f32; COLUMNS]], rows: &[f32], stride: usize, sums: &mut [[f32; COLUMNS]]) {
    const { assert!(DENSE_TILE == 6) };
    // SAFETY: every CPU that this is compiled for has NEON.
    unsafe {
        match sums.len() {
            0 => {}
            1 => dense_rows::<1>(weights, rows, stride, sums),
            2 => dense_rows::<2>(weights, rows, stride, sums),
            3 => dense_rows::<3>(weights, rows, stride, sums),
            4 => dense_rows::<4>(weights, rows, stride, sums),
            5 => dense_rows::<5>(weights, rows, stride, sums),
            _ => dense_rows::<6>(weights, rows, stride, sums),
        }
    }
}

/// The same for R rows.
#[target_feature(enable = "neon")]
fn dense_rows<const R: usize>(
    weights: &[[f32; COLUMNS]],
    rows: &[f32],
    stride: usize,
    sums: &mut [[f32; COLUMNS]],
) {
    assert!(sums.len() == R && rows.len() >= (R - 1) * stride + weights.len());
    let mut totals = [[vdupq_n_f32(0.0); 4]; R];
    for r in 0..R {
        // SAFETY: a row of sums is 16 floats.
        totals[r] = unsafe { load_quads(&sums[r], 0) };
    }
    for (d, weights) in weights.iter().enumerate() {
        // SAFETY: 16 floats; and each of R rows, `stride` apart, has as many elements as there
        // are weights.
        unsafe {
            let w = load_quads(weights, 0);
            for r in 0..R {
                let x = *rows.as_ptr().add(r * stride + d);
                for g in 0..4 {
                    totals[r][g] = vfmaq_n_f32(totals[r][g], w[g], x);
                }
            }
        }
    }
    store(totals, sums);
}

/// (code - point) * scale
#[target_feature(enable = "neon")]
#[inline]
fn scaled(codes: float32x4_t, point: float32x4_t, scale: float32x4_t) -> float32x4_t {
    vmulq_f32(vsubq_f32(codes, point), scale)
}

#[target_feature(enable = "neon")]
fn unpack<const BITS: i32>(panel: &Panel<'_>, first: usize, to: &mut [[f32; COLUMNS]]) {
    let per_byte = 8 / BITS as usize;
    let step = 4 * per_byte;
    assert!(to.len().is_multiple_of(16) && first.is_multiple_of(16));
    let codes = &panel.codes[first / step * 64..][..to.len() / step * 64];
    for (i, (to, codes)) in to.chunks_exact_mut(step).zip(codes.chunks_exact(64)).enumerate() {
        let block = (first + i * step) / panel.block_len;
        // SAFETY: 64 bytes of codes and as many elements as they have; the caller has seen that
        // the panel has a block for each of its elements.
        unsafe {
            let scales = load_quads(panel.scales, block * COLUMNS);
            let points = points(&panel.points, block);
            for g in 0..4 {
                let v = vreinterpretq_s32_u8(vld1q_u8(codes.as_ptr().add(16 * g)));
                for byte in 0..4 {
                    for part in 0..per_byte {
                        let w = scaled(signed_codes::<BITS>(v, byte, part), points[g], scales[g]);
                        vst1q_f32(to[part * 4 + byte].as_mut_ptr().add(4 * g), w);
                    }
                }
            }
        }
    }
}

#[target_feature(enable = "neon")]
fn unpack_bytes(panel: &Panel<'_>, first: usize, to: &mut [[f32; COLUMNS]]) {
    let codes = &panel.codes[first * COLUMNS..][..to.len() * COLUMNS];
    for (i, (to, codes)) in to.iter_mut().zip(codes.chunks_exact(COLUMNS)).enumerate() {
        let block = (first + i) / panel.block_len;
        // SAFETY: 16 bytes of codes; the caller has seen that the panel has a block for each of
        // its elements.
        let (w, scales, points) = unsafe {
            (
                floats_of(vld1q_s8(codes.as_ptr().cast())),
                load_quads(panel.scales, block * COLUMNS),
                points(&panel.points, block),
            )
        };
        let mut row = w;
        for g in 0..4 {
            row[g] = scaled(w[g], points[g], scales[g]);
        }
        store_quads(row, to);
    }
}
