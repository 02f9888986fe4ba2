//! The product with AVX-512 and VNNI: the sixteen columns of a panel are one vector, for up to
//! eight rows at a time.
//!
//! Bytes times bytes: `vpdpbusd` of unsigned codes and signed bytes of A; codes of 8 bits, which are
//! signed, are raised by 128 for it. Words times words: `vpdpwssd`. Both sum in 32 bits. Floats of
//! codes of at most 4 bits: a shift, and a permutation of the sixteen values that the low bits of a lane
//! choose among. Sums run as in the AVX2 variant, so that the two differ in nothing.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers, of several arrays at once"
)]

use std::arch::x86_64::*;

use super::dense::Dense;
use super::layout::{COLUMNS, Format};
use super::{Panel, PanelPoints, Tile};

/// Rows that share a pass over a panel.
pub(super) const TILE_ROWS: usize = 8;
/// The same where codes were made floats before.
const DENSE_TILE: usize = 12;

/// Up to this many rows, codes of 8 bits wait for memory: those that come next, of the next panel too,
/// are asked for so many bytes before. (With 4 bits it costs more than it gives.)
const FEW_ROWS: usize = 2;
const AHEAD: usize = 2048;

/// Calls a kernel for as many rows as `$sums` has.
macro_rules! by_rows {
    ($sums:expr, $panel:expr, $a:expr, $kernel:ident $(, $bits:literal)?) => {{
        const { assert!(TILE_ROWS == 8) };
        // SAFETY: `Instructions::Avx512` is made only where the CPU has the features.
        unsafe {
            match $sums.len() {
                0 => {}
                1 => $kernel::<1, $($bits)?>($panel, $a, $sums),
                2 => $kernel::<2, $($bits)?>($panel, $a, $sums),
                3 => $kernel::<3, $($bits)?>($panel, $a, $sums),
                4 => $kernel::<4, $($bits)?>($panel, $a, $sums),
                5 => $kernel::<5, $($bits)?>($panel, $a, $sums),
                6 => $kernel::<6, $($bits)?>($panel, $a, $sums),
                7 => $kernel::<7, $($bits)?>($panel, $a, $sums),
                _ => $kernel::<8, $($bits)?>($panel, $a, $sums),
            }
        }
    }};
}

pub(super) fn is_there() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni")
}

pub(super) fn bytes(format: Format, panel: &Panel<'_>, a: &Tile<'_, i8>, sums: &mut [[f32; COLUMNS]]) {
    match format {
        Format::Crumbs => by_rows!(sums, panel, a, bytes_tile, 2),
        Format::Quads => by_rows!(sums, panel, a, bytes_tile, 8),
        _ => by_rows!(sums, panel, a, bytes_tile, 4),
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

/// # Safety
/// There are 16 values from `at` on.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn load(values: &[f32], at: usize) -> __m512 {
    // SAFETY: the caller's word.
    unsafe { _mm512_loadu_ps(values.as_ptr().add(at)) }
}

/// An element of all lanes.
///
/// # Safety
/// There is such an element.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn splat(values: &[f32], at: usize) -> __m512 {
    // SAFETY: the caller's word.
    unsafe { _mm512_set1_ps(*values.get_unchecked(at)) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store<const R: usize>(totals: [__m512; R], sums: &mut [[f32; COLUMNS]]) {
    for (sums, total) in sums.iter_mut().zip(totals) {
        // SAFETY: a row of sums is 16 floats.
        unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), total) }
    }
}

/// The zero points of a block.
///
/// # Safety
/// Points that lie beside the scales have those of `block`.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn points(points: &PanelPoints<'_>, block: usize) -> __m512 {
    match points {
        PanelPoints::All(point) => _mm512_set1_ps(*point),
        PanelPoints::Whole(points) => {
            // SAFETY: the caller's word.
            let bytes = unsafe { _mm_loadu_si128(points.as_ptr().add(block * COLUMNS).cast()) };
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
        }
        // SAFETY: the caller's word.
        PanelPoints::Float(points) => unsafe { load(points, block * COLUMNS) },
    }
}

/// total + (inner - point * sum) * scale, for each row of a run of a block of integers. Codes of 8
/// bits were raised by 128, which is taken off first: whole numbers below 2^24, so exactly.
///
/// # Safety
/// The tile [fits](Tile::fits_with_scales) R rows, and there are such a block and such a run.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn finish_run<const R: usize, const BITS: u32>(
    totals: &mut [__m512; R],
    inner: &[__m512i; R],
    panel: &Panel<'_>,
    a: &Tile<'_, i8>,
    block: usize,
    run: usize,
) {
    // SAFETY: the caller's word, here and below.
    let scales = unsafe { load(panel.scales, block * COLUMNS) };
    let points = match panel.points {
        PanelPoints::All(0.0) => None,
        _ => Some(unsafe { points(&panel.points, block) }),
    };
    for r in 0..R {
        let at = r * a.beside + run;
        let mut inner = _mm512_cvtepi32_ps(inner[r]);
        if BITS == 8 {
            inner = _mm512_fnmadd_ps(_mm512_set1_ps(128.0), unsafe { splat(a.sums, at) }, inner);
        }
        if let Some(points) = points {
            inner = _mm512_fnmadd_ps(points, unsafe { splat(a.sums, at) }, inner);
        }
        let scale = _mm512_mul_ps(scales, unsafe { splat(a.scales, at) });
        totals[r] = _mm512_fmadd_ps(inner, scale, totals[r]);
    }
}

/// The format of codes of `bits`, 2, 4 or 8, in lanes of four bytes.
fn in_lanes(bits: u32) -> Format {
    match bits {
        2 => Format::Crumbs,
        4 => Format::Nibbles,
        _ => Format::Quads,
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn bytes_tile<const R: usize, const BITS: u32>(
    panel: &Panel<'_>,
    a: &Tile<'_, i8>,
    sums: &mut [[f32; COLUMNS]],
) {
    match a.run {
        16 => bytes_runs::<R, BITS, 16>(panel, a, sums),
        _ => bytes_runs::<R, BITS, 32>(panel, a, sums),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn bytes_runs<const R: usize, const BITS: u32, const RUN: usize>(
    panel: &Panel<'_>,
    a: &Tile<'_, i8>,
    sums: &mut [[f32; COLUMNS]],
) {
    let format = in_lanes(BITS);
    assert!(a.fits_with_scales(panel, R, format) && a.run == RUN);
    assert!(BITS < 8 || a.has_sums(R));
    let per_byte = 8 / BITS as usize;
    let mask = _mm512_set1_epi8(((1u32 << BITS) - 1) as i8);
    let sign = _mm512_set1_epi8(i8::MIN);
    let mut totals = [_mm512_setzero_ps(); R];
    let mut codes = panel.codes.as_ptr();
    let mut rows = a.codes.as_ptr();
    let mut run = 0;
    for block in 0..panel.scales.len() / COLUMNS {
        if R <= FEW_ROWS && BITS == 8 {
            let scales = panel.scales.as_ptr().wrapping_add(block * COLUMNS);
            _mm_prefetch::<_MM_HINT_T0>(scales.wrapping_byte_add(AHEAD / 4).cast());
        }
        for _ in 0..panel.block_len / RUN {
            let mut inner = [_mm512_setzero_si512(); R];
            for _ in 0..RUN / format.step() {
                // SAFETY: `fits`, there are as many steps of 64 bytes in the panel as there are in
                // `depth`, and so many elements in each row.
                unsafe {
                    if R <= FEW_ROWS && BITS == 8 {
                        _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(AHEAD).cast());
                    }
                    let mut v = _mm512_loadu_si512(codes.cast());
                    codes = codes.add(64);
                    for part in 0..per_byte {
                        let w = match BITS {
                            8 => _mm512_xor_si512(v, sign),
                            _ => _mm512_and_si512(v, mask),
                        };
                        v = _mm512_srli_epi16::<BITS>(v);
                        for r in 0..R {
                            let x = rows.add(r * a.stride + part * 4).cast::<i32>();
                            let x = _mm512_set1_epi32(x.read_unaligned());
                            inner[r] = _mm512_dpbusd_epi32(inner[r], w, x);
                        }
                    }
                    rows = rows.add(4 * per_byte);
                }
            }
            // SAFETY: `fits`, as many blocks, runs and rows.
            unsafe { finish_run::<R, BITS>(&mut totals, &inner, panel, a, block, run) };
            run += 1;
        }
    }
    store(totals, sums);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn exact_tile<const R: usize>(codes: &[u8], (a, stride): (&[i16], usize), sums: &mut [[i32; COLUMNS]]) {
    let pairs = codes.len() / (2 * COLUMNS);
    assert!(a.len() >= (R - 1) * stride + 2 * pairs);
    // SAFETY: 32 bytes of codes for each pair, and so many pairs in each row, as just checked.
    let totals = unsafe { words_sum::<R>(codes.as_ptr(), a.as_ptr(), stride, pairs) };
    for (sums, total) in sums.iter_mut().zip(totals) {
        // SAFETY: a row of sums is 16 integers.
        unsafe { _mm512_storeu_si512(sums.as_mut_ptr().cast(), total) };
    }
}

/// The sums over pairs of words of each of the rows times pairs of codes of a panel, wrapping.
///
/// # Safety
/// There are `pairs` of 32 bytes of codes, and of two elements of R rows that are `stride` apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
unsafe fn words_sum<const R: usize>(
    codes: *const u8,
    rows: *const i16,
    stride: usize,
    pairs: usize,
) -> [__m512i; R] {
    let mut inner = [_mm512_setzero_si512(); R];
    for pair in 0..pairs {
        // SAFETY: the caller's word.
        unsafe {
            let w = _mm512_cvtepi8_epi16(_mm256_loadu_si256(codes.add(pair * 32).cast()));
            for r in 0..R {
                let x = rows.add(r * stride + pair * 2).cast::<i32>();
                let x = _mm512_set1_epi32(x.read_unaligned());
                inner[r] = _mm512_dpwssd_epi32(inner[r], w, x);
            }
        }
    }
    inner
}

/// total + (inner - point * sum) * scale.
///
/// # Safety
/// The tile [fits](Tile::fits) R rows, and there is such a block.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn finish_block<const R: usize>(
    totals: &mut [__m512; R],
    mut inner: [__m512; R],
    panel: &Panel<'_>,
    a: &Tile<'_, f32>,
    block: usize,
) {
    // SAFETY: the caller's word, here and below.
    let scales = unsafe { load(panel.scales, block * COLUMNS) };
    if !matches!(panel.points, PanelPoints::All(0.0)) {
        let points = unsafe { points(&panel.points, block) };
        for r in 0..R {
            let sum = unsafe { splat(a.sums, r * a.beside + block) };
            inner[r] = _mm512_fnmadd_ps(points, sum, inner[r]);
        }
    }
    for r in 0..R {
        totals[r] = _mm512_fmadd_ps(inner[r], scales, totals[r]);
    }
}

/// The values of codes of `BITS`, signed, by the low four bits of what holds one.
#[target_feature(enable = "avx512f")]
#[inline]
fn values<const BITS: u32>() -> __m512 {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let top = _mm512_sllv_epi32(lanes, _mm512_set1_epi32(32 - BITS as i32));
    _mm512_cvtepi32_ps(_mm512_srav_epi32(top, _mm512_set1_epi32(32 - BITS as i32)))
}

/// The code from bit `at` of each lane on.
#[target_feature(enable = "avx512f")]
#[inline]
fn value_at(lanes: __m512i, at: usize, values: __m512) -> __m512 {
    // Constant where it is unrolled.
    let code = _mm512_srl_epi32(lanes, _mm_cvtsi32_si128(at as i32));
    _mm512_permutexvar_ps(code, values)
}

#[target_feature(enable = "avx512f")]
fn floats_tile<const R: usize, const BITS: u32>(
    panel: &Panel<'_>,
    a: &Tile<'_, f32>,
    sums: &mut [[f32; COLUMNS]],
) {
    let format = in_lanes(BITS);
    assert!(a.fits(panel, R, format) && a.run == panel.block_len);
    let per_byte = 8 / BITS as usize;
    let values = values::<BITS>();
    let mut totals = [_mm512_setzero_ps(); R];
    let mut codes = panel.codes.as_ptr();
    let mut rows = a.codes.as_ptr();
    for block in 0..panel.scales.len() / COLUMNS {
        let mut inner = [_mm512_setzero_ps(); R];
        for _ in 0..a.run / format.step() {
            // SAFETY: `fits`, there are as many steps of 64 bytes in the panel as there are in
            // `depth`, and so many elements in each row.
            unsafe {
                let v = _mm512_loadu_si512(codes.cast());
                codes = codes.add(64);
                for byte in 0..4 {
                    for part in 0..per_byte {
                        let w = value_at(v, 8 * byte + BITS as usize * part, values);
                        for r in 0..R {
                            let x = _mm512_set1_ps(*rows.add(r * a.stride + part * 4 + byte));
                            inner[r] = _mm512_fmadd_ps(w, x, inner[r]);
                        }
                    }
                }
                rows = rows.add(4 * per_byte);
            }
        }
        // SAFETY: `fits`, as many blocks and rows.
        unsafe { finish_block(&mut totals, inner, panel, a, block) };
    }
    store(totals, sums);
}

/// Sixteen signed bytes as floats.
///
/// # Safety
/// There are so many at `codes`.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn bytes_at(codes: *const u8) -> __m512 {
    // SAFETY: the caller's word.
    let codes = unsafe { _mm_loadu_si128(codes.cast()) };
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes))
}

#[target_feature(enable = "avx512f")]
fn float_bytes_tile<const R: usize>(panel: &Panel<'_>, a: &Tile<'_, f32>, sums: &mut [[f32; COLUMNS]]) {
    assert!(a.fits(panel, R, Format::Bytes) && a.run == panel.block_len);
    let mut totals = [_mm512_setzero_ps(); R];
    let mut codes = panel.codes.as_ptr();
    let mut rows = a.codes.as_ptr();
    for block in 0..panel.scales.len() / COLUMNS {
        let mut inner = [_mm512_setzero_ps(); R];
        for _ in 0..a.run {
            // SAFETY: `fits`, there are 16 bytes of codes for each element of `depth`, and so many
            // elements in each row.
            unsafe {
                let w = bytes_at(codes);
                codes = codes.add(COLUMNS);
                for r in 0..R {
                    let x = _mm512_set1_ps(*rows.add(r * a.stride));
                    inner[r] = _mm512_fmadd_ps(w, x, inner[r]);
                }
                rows = rows.add(1);
            }
        }
        // SAFETY: `fits`, as many blocks and rows.
        unsafe { finish_block(&mut totals, inner, panel, a, block) };
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
    // SAFETY: `Instructions::Avx512` is made only where the CPU has the features.
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
    const { assert!(DENSE_TILE == 12) };
    let (mut rows, mut sums) = (rows, sums);
    // SAFETY: `Instructions::Avx512` is made only where the CPU has the features.
    unsafe {
        while sums.len() > 6 && sums.len() < DENSE_TILE {
            let (now, rest) = sums.split_at_mut(6);
            dense_rows::<6>(weights, rows, stride, now);
            (rows, sums) = (&rows[6 * stride..], rest);
        }
        match sums.len() {
            0 => {}
            1 => dense_rows::<1>(weights, rows, stride, sums),
            2 => dense_rows::<2>(weights, rows, stride, sums),
            3 => dense_rows::<3>(weights, rows, stride, sums),
            4 => dense_rows::<4>(weights, rows, stride, sums),
            5 => dense_rows::<5>(weights, rows, stride, sums),
            6 => dense_rows::<6>(weights, rows, stride, sums),
            _ => dense_rows::<DENSE_TILE>(weights, rows, stride, sums),
        }
    }
}

/// The same for R rows.
#[target_feature(enable = "avx512f")]
fn dense_rows<const R: usize>(
    weights: &[[f32; COLUMNS]],
    rows: &[f32],
    stride: usize,
    sums: &mut [[f32; COLUMNS]],
) {
    assert!(sums.len() == R && rows.len() >= (R - 1) * stride + weights.len());
    let mut totals: [__m512; R] = std::array::from_fn(|r| {
        // SAFETY: a row of sums is 16 floats.
        unsafe { load(&sums[r], 0) }
    });
    let rows = rows.as_ptr();
    for (d, weights) in weights.iter().enumerate() {
        // SAFETY: 16 floats; and each of R rows, `stride` apart, has as many elements as there
        // are weights.
        unsafe {
            let w = load(weights, 0);
            for r in 0..R {
                let x = _mm512_set1_ps(*rows.add(r * stride + d));
                totals[r] = _mm512_fmadd_ps(w, x, totals[r]);
            }
        }
    }
    store(totals, sums);
}

#[target_feature(enable = "avx512f")]
fn unpack<const BITS: u32>(panel: &Panel<'_>, first: usize, to: &mut [[f32; COLUMNS]]) {
    let per_byte = 8 / BITS as usize;
    let step = 4 * per_byte;
    assert!(to.len().is_multiple_of(16) && first.is_multiple_of(16));
    let values = values::<BITS>();
    let codes = &panel.codes[first / step * 64..][..to.len() / step * 64];
    for (i, (to, codes)) in to.chunks_exact_mut(step).zip(codes.chunks_exact(64)).enumerate() {
        let block = (first + i * step) / panel.block_len;
        // SAFETY: 64 bytes of codes and as many elements as they have; the caller has seen that
        // the panel has a block for each of its elements.
        unsafe {
            let scales = load(panel.scales, block * COLUMNS);
            let points = points(&panel.points, block);
            let v = _mm512_loadu_si512(codes.as_ptr().cast());
            for byte in 0..4 {
                for part in 0..per_byte {
                    let w = value_at(v, 8 * byte + BITS as usize * part, values);
                    let w = _mm512_mul_ps(_mm512_sub_ps(w, points), scales);
                    _mm512_storeu_ps(to[part * 4 + byte].as_mut_ptr(), w);
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f")]
fn unpack_bytes(panel: &Panel<'_>, first: usize, to: &mut [[f32; COLUMNS]]) {
    let codes = &panel.codes[first * COLUMNS..][..to.len() * COLUMNS];
    for (i, (to, codes)) in to.iter_mut().zip(codes.chunks_exact(COLUMNS)).enumerate() {
        let block = (first + i) / panel.block_len;
        // SAFETY: 16 bytes of codes; the caller has seen that the panel has a block for each of
        // its elements.
        unsafe {
            let scales = load(panel.scales, block * COLUMNS);
            let points = points(&panel.points, block);
            let w = _mm512_mul_ps(_mm512_sub_ps(bytes_at(codes.as_ptr()), points), scales);
            _mm512_storeu_ps(to.as_mut_ptr(), w);
        }
    }
}
