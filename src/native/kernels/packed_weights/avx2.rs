//! The product with AVX2 and FMA: two vectors of columns, and up to four rows at a time.
//!
//! Bytes times bytes: `vpmaddubsw` of unsigned codes of at most 4 bits and signed bytes of A, whose
//! sums of pairs stay below 2 * 15 * 127 = 3,810, so that a run of 32 elements, eight of them, fits
//! 16 bits; then `vpmaddwd` with ones. Signed codes of 8 bits lend their sign to A first, and their
//! pairs, below 2 * 128 * 127 = 32,512, are added in 32 bits at once. Words times words: `vpmaddwd`.
//! Floats: codes become floats by two shifts and a conversion.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers, of several arrays at once"
)]

use std::arch::x86_64::*;

use super::dense::Dense;
use super::layout::{COLUMNS, Format, LANES};
use super::{Panel, PanelPoints, Tile};

type Pair<T> = [T; 2];

/// Rows that share a pass over a panel.
pub(super) const TILE_ROWS: usize = 4;
/// The same where codes were made floats before.
const DENSE_TILE: usize = 6;

/// Calls a kernel for as many rows as `$sums` has.
macro_rules! by_rows {
    ($sums:expr, $panel:expr, $a:expr, $kernel:ident $(, $bits:literal)?) => {{
        const { assert!(TILE_ROWS == 4) };
        // SAFETY: `Instructions::Avx2` is made only where the CPU has AVX2 and FMA.
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

/// The zero points of a block.
///
/// # Safety
/// Points that lie beside the scales have those of `block`.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn points(points: &PanelPoints<'_>, block: usize) -> Pair<__m256> {
    match points {
        PanelPoints::All(point) => [_mm256_set1_ps(*point); 2],
        PanelPoints::Whole(points) => {
            // SAFETY: the caller's word.
            let bytes = unsafe { _mm_loadu_si128(points.as_ptr().add(block * COLUMNS).cast()) };
            [
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes))),
            ]
        }
        // SAFETY: the caller's word.
        PanelPoints::Float(points) => unsafe { load_pair(points, block * COLUMNS) },
    }
}

/// # Safety
/// There are 16 values from `at` on.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn load_pair(values: &[f32], at: usize) -> Pair<__m256> {
    // SAFETY: the caller's word.
    unsafe {
        let at = values.as_ptr().add(at);
        [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(LANES))]
    }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn store<const R: usize>(totals: [Pair<__m256>; R], sums: &mut [[f32; COLUMNS]]) {
    for (sums, total) in sums.iter_mut().zip(totals) {
        // SAFETY: a row of sums is 16 floats.
        unsafe {
            _mm256_storeu_ps(sums.as_mut_ptr(), total[0]);
            _mm256_storeu_ps(sums.as_mut_ptr().add(LANES), total[1]);
        }
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
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn finish_run<const R: usize>(
    totals: &mut [Pair<__m256>; R],
    inner: &[Pair<__m256i>; R],
    at: &Run<'_>,
) {
    // SAFETY: the caller's word, here and below.
    let scales = unsafe { load_pair(at.panel.scales, at.block * COLUMNS) };
    if let PanelPoints::All(0.0) = at.panel.points {
        for r in 0..R {
            let a_scale = unsafe { _mm256_broadcast_ss(at.scales.get_unchecked(r * at.beside + at.run)) };
            for g in 0..2 {
                let scale = _mm256_mul_ps(scales[g], a_scale);
                totals[r][g] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(inner[r][g]), scale, totals[r][g]);
            }
        }
        return;
    }
    let points = unsafe { points(&at.panel.points, at.block) };
    for r in 0..R {
        let (a_scale, sum) = unsafe {
            (
                _mm256_broadcast_ss(at.scales.get_unchecked(r * at.beside + at.run)),
                _mm256_broadcast_ss(at.sums.get_unchecked(r * at.beside + at.run)),
            )
        };
        for g in 0..2 {
            let inner = _mm256_fnmadd_ps(points[g], sum, _mm256_cvtepi32_ps(inner[r][g]));
            let scale = _mm256_mul_ps(scales[g], a_scale);
            totals[r][g] = _mm256_fmadd_ps(inner, scale, totals[r][g]);
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn bytes_tile<const R: usize, const BITS: i32>(
    panel: &Panel<'_>,
    a: &Tile<'_, i8>,
    sums: &mut [[f32; COLUMNS]],
) {
    match a.run {
        16 => bytes_runs::<R, BITS, 16>(panel, a, sums),
        _ => bytes_runs::<R, BITS, 32>(panel, a, sums),
    }
}

/// The format of codes of `bits`, 2, 4 or 8, in lanes of four bytes.
fn in_lanes(bits: i32) -> Format {
    match bits {
        2 => Format::Crumbs,
        4 => Format::Nibbles,
        _ => Format::Quads,
    }
}

#[target_feature(enable = "avx2,fma")]
fn bytes_runs<const R: usize, const BITS: i32, const RUN: usize>(
    panel: &Panel<'_>,
    a: &Tile<'_, i8>,
    sums: &mut [[f32; COLUMNS]],
) {
    let format = in_lanes(BITS);
    assert!(a.fits_with_scales(panel, R, format) && a.run == RUN);
    let per_byte = 8 / BITS as usize;
    let mask = _mm256_set1_epi8(((1u32 << BITS) - 1) as i8);
    let ones = _mm256_set1_epi16(1);
    let mut totals = [[_mm256_setzero_ps(); 2]; R];
    let mut codes = panel.codes.as_ptr();
    let mut rows = a.codes.as_ptr();
    let stride = a.stride;
    let steps = RUN / format.step();
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
        for _ in 0..panel.block_len / RUN {
            let mut inner = [[_mm256_setzero_si256(); 2]; R];
            for _ in 0..steps {
                // SAFETY: `fits`, there are as many steps of 64 bytes in the panel as there are in
                // `depth`, and so many elements in each row.
                unsafe {
                    let mut v = [
                        _mm256_loadu_si256(codes.cast()),
                        _mm256_loadu_si256(codes.add(32).cast()),
                    ];
                    codes = codes.add(64);
                    for part in 0..per_byte {
                        let w = v.map(|v| _mm256_and_si256(v, mask));
                        v = v.map(|v| _mm256_srli_epi16::<BITS>(v));
                        for r in 0..R {
                            let x = rows.add(r * stride + part * 4).cast::<i32>();
                            let x = _mm256_set1_epi32(x.read_unaligned());
                            for g in 0..2 {
                                inner[r][g] = match BITS {
                                    8 => {
                                        let x = _mm256_sign_epi8(x, w[g]);
                                        let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w[g]), x);
                                        _mm256_add_epi32(inner[r][g], _mm256_madd_epi16(pairs, ones))
                                    }
                                    _ => _mm256_add_epi16(inner[r][g], _mm256_maddubs_epi16(w[g], x)),
                                };
                            }
                        }
                    }
                    rows = rows.add(4 * per_byte);
                }
            }
            let inner = match BITS {
                8 => inner,
                _ => inner.map(|row| row.map(|sum| _mm256_madd_epi16(sum, ones))),
            };
            // SAFETY: `fits`, as many blocks, runs and rows.
            unsafe { finish_run(&mut totals, &inner, &at) };
            at.run += 1;
        }
    }
    store(totals, sums);
}

#[target_feature(enable = "avx2,fma")]
fn exact_tile<const R: usize>(codes: &[u8], (a, stride): (&[i16], usize), sums: &mut [[i32; COLUMNS]]) {
    let pairs = codes.len() / (2 * COLUMNS);
    assert!(a.len() >= (R - 1) * stride + 2 * pairs);
    // SAFETY: 32 bytes of codes for each pair, and so many pairs in each row, as just checked.
    let totals = unsafe { words_sum::<R>(codes.as_ptr(), a.as_ptr(), stride, pairs) };
    for (sums, total) in sums.iter_mut().zip(totals) {
        // SAFETY: a row of sums is 16 integers.
        unsafe {
            _mm256_storeu_si256(sums.as_mut_ptr().cast(), total[0]);
            _mm256_storeu_si256(sums.as_mut_ptr().add(LANES).cast(), total[1]);
        }
    }
}

/// The sums over pairs of words of each of the rows times pairs of codes of a panel, wrapping.
///
/// # Safety
/// There are `pairs` of 32 bytes of codes, and of two elements of R rows that are `stride` apart.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn words_sum<const R: usize>(
    codes: *const u8,
    rows: *const i16,
    stride: usize,
    pairs: usize,
) -> [Pair<__m256i>; R] {
    let mut inner = [[_mm256_setzero_si256(); 2]; R];
    for pair in 0..pairs {
        // SAFETY: the caller's word.
        unsafe {
            let at = codes.add(pair * 32);
            let w = [
                _mm256_cvtepi8_epi16(_mm_loadu_si128(at.cast())),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(at.add(16).cast())),
            ];
            for r in 0..R {
                let x = rows.add(r * stride + pair * 2).cast::<i32>();
                let x = _mm256_set1_epi32(x.read_unaligned());
                for g in 0..2 {
                    inner[r][g] = _mm256_add_epi32(inner[r][g], _mm256_madd_epi16(w[g], x));
                }
            }
        }
    }
    inner
}

/// total + (inner - point * sum) * scale.
///
/// # Safety
/// There is such a block, of R rows.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn finish_block<const R: usize>(
    totals: &mut [Pair<__m256>; R],
    inner: &mut [Pair<__m256>; R],
    panel: &Panel<'_>,
    a: &Tile<'_, f32>,
    block: usize,
) {
    // SAFETY: the caller's word, here and below.
    let scales = unsafe { load_pair(panel.scales, block * COLUMNS) };
    match panel.points {
        PanelPoints::All(0.0) => {}
        _ => {
            let points = unsafe { points(&panel.points, block) };
            for r in 0..R {
                let sum = unsafe { _mm256_broadcast_ss(a.sums.get_unchecked(r * a.beside + block)) };
                for g in 0..2 {
                    inner[r][g] = _mm256_fnmadd_ps(points[g], sum, inner[r][g]);
                }
            }
        }
    }
    for r in 0..R {
        for g in 0..2 {
            totals[r][g] = _mm256_fmadd_ps(inner[r][g], scales[g], totals[r][g]);
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn floats_tile<const R: usize, const BITS: i32>(
    panel: &Panel<'_>,
    a: &Tile<'_, f32>,
    sums: &mut [[f32; COLUMNS]],
) {
    let format = in_lanes(BITS);
    assert!(a.fits(panel, R, format) && a.run == panel.block_len);
    let per_byte = 8 / BITS as usize;
    let mut totals = [[_mm256_setzero_ps(); 2]; R];
    let mut codes = panel.codes.as_ptr();
    let mut rows = a.codes.as_ptr();
    let stride = a.stride;
    let steps = a.run / format.step();
    let blocks = panel.scales.len() / COLUMNS;
    for block in 0..blocks {
        let mut inner = [[_mm256_setzero_ps(); 2]; R];
        for _ in 0..steps {
            // SAFETY: `fits`, there are as many steps of 64 bytes in the panel as there are in
            // `depth`, and so many elements in each row.
            unsafe {
                let v = [
                    _mm256_loadu_si256(codes.cast()),
                    _mm256_loadu_si256(codes.add(32).cast()),
                ];
                codes = codes.add(64);
                for byte in 0..4 {
                    for part in 0..per_byte {
                        let left = _mm_cvtsi32_si128(32 - BITS * (part as i32 + 1) - 8 * byte as i32);
                        let w = v.map(|v| {
                            let top = _mm256_sll_epi32(v, left);
                            _mm256_cvtepi32_ps(match BITS {
                                2 => _mm256_srai_epi32::<30>(top),
                                _ => _mm256_srai_epi32::<28>(top),
                            })
                        });
                        for r in 0..R {
                            let x = _mm256_broadcast_ss(&*rows.add(r * stride + part * 4 + byte));
                            for g in 0..2 {
                                inner[r][g] = _mm256_fmadd_ps(w[g], x, inner[r][g]);
                            }
                        }
                    }
                }
                rows = rows.add(4 * per_byte);
            }
        }
        // SAFETY: `fits`, as many blocks and rows.
        unsafe { finish_block(&mut totals, &mut inner, panel, a, block) };
    }
    store(totals, sums);
}

#[target_feature(enable = "avx2,fma")]
fn float_bytes_tile<const R: usize>(panel: &Panel<'_>, a: &Tile<'_, f32>, sums: &mut [[f32; COLUMNS]]) {
    assert!(a.fits(panel, R, Format::Bytes) && a.run == panel.block_len);
    let mut totals = [[_mm256_setzero_ps(); 2]; R];
    let mut codes = panel.codes.as_ptr();
    let mut rows = a.codes.as_ptr();
    let blocks = panel.scales.len() / COLUMNS;
    for block in 0..blocks {
        let mut inner = [[_mm256_setzero_ps(); 2]; R];
        for _ in 0..a.run {
            // SAFETY: `fits`, there are 16 bytes of codes for each element of `depth`, and so many
            // elements in each row.
            unsafe {
                let w: Pair<__m256> = std::array::from_fn(|g| {
                    let codes = _mm_loadl_epi64(codes.add(LANES * g).cast());
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes))
                });
                codes = codes.add(COLUMNS);
                for r in 0..R {
                    let x = _mm256_broadcast_ss(&*rows.add(r * a.stride));
                    for g in 0..2 {
                        inner[r][g] = _mm256_fmadd_ps(w[g], x, inner[r][g]);
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
    // SAFETY: `Instructions::Avx2` is made only where the CPU has AVX2 and FMA.
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
    // SAFETY: `Instructions::Avx2` is made only where the CPU has AVX2 and FMA.
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
#[target_feature(enable = "avx2,fma")]
fn dense_rows<const R: usize>(
    weights: &[[f32; COLUMNS]],
    rows: &[f32],
    stride: usize,
    sums: &mut [[f32; COLUMNS]],
) {
    assert!(sums.len() == R && rows.len() >= (R - 1) * stride + weights.len());
    let mut totals: [Pair<__m256>; R] = std::array::from_fn(|r| {
        // SAFETY: a row of sums is 16 floats.
        unsafe { load_pair(&sums[r], 0) }
    });
    let rows = rows.as_ptr();
    for (d, weights) in weights.iter().enumerate() {
        // SAFETY: 16 floats; and each of R rows, `stride` apart, has as many elements as there
        // are weights.
        unsafe {
            let w = load_pair(weights, 0);
            for r in 0..R {
                let x = _mm256_broadcast_ss(&*rows.add(r * stride + d));
                for g in 0..2 {
                    totals[r][g] = _mm256_fmadd_ps(w[g], x, totals[r][g]);
                }
            }
        }
    }
    store(totals, sums);
}

#[target_feature(enable = "avx2,fma")]
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
            let scales = load_pair(panel.scales, block * COLUMNS);
            let points = points(&panel.points, block);
            for g in 0..2 {
                let v = _mm256_loadu_si256(codes.as_ptr().add(32 * g).cast());
                for byte in 0..4 {
                    for part in 0..per_byte {
                        let left = _mm_cvtsi32_si128(32 - BITS * (part as i32 + 1) - 8 * byte as i32);
                        let top = _mm256_sll_epi32(v, left);
                        let w = _mm256_cvtepi32_ps(match BITS {
                            2 => _mm256_srai_epi32::<30>(top),
                            _ => _mm256_srai_epi32::<28>(top),
                        });
                        let w = _mm256_mul_ps(_mm256_sub_ps(w, points[g]), scales[g]);
                        _mm256_storeu_ps(to[part * 4 + byte].as_mut_ptr().add(LANES * g), w);
                    }
                }
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn unpack_bytes(panel: &Panel<'_>, first: usize, to: &mut [[f32; COLUMNS]]) {
    let codes = &panel.codes[first * COLUMNS..][..to.len() * COLUMNS];
    for (i, (to, codes)) in to.iter_mut().zip(codes.chunks_exact(COLUMNS)).enumerate() {
        let block = (first + i) / panel.block_len;
        // SAFETY: 16 bytes of codes; the caller has seen that the panel has a block for each of
        // its elements.
        unsafe {
            let scales = load_pair(panel.scales, block * COLUMNS);
            let points = points(&panel.points, block);
            for g in 0..2 {
                let codes = _mm_loadl_epi64(codes.as_ptr().add(LANES * g).cast());
                let w = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
                let w = _mm256_mul_ps(_mm256_sub_ps(w, points[g]), scales[g]);
                _mm256_storeu_ps(to.as_mut_ptr().add(LANES * g), w);
            }
        }
    }
}
