//! What a step of the loops over tiles multiplies: an element of each operand or, for bf16 on CPUs
//! that multiply them so ([`avx512::has_pairs`](super::avx512)), a pair of elements that follow each
//! other in depth.
//!
//! Both are kept in words of 32 bits: an element as the f32 that it is, a [`Pair`] as its bits.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
#[cfg(target_arch = "x86_64")]
use std::mem::transmute;

#[cfg(target_arch = "x86_64")]
use half::bf16;

use super::super::simd::{Lanes, Stored};

pub(super) trait Unit: Copy + Send + Sync {
    /// Elements of a unit: as many rows of a matrix that is stored by rows make a row of units, which
    /// is a slice of as many units as the matrix has columns.
    #[cfg(target_arch = "x86_64")]
    const DEPTHS: usize;

    fn word(self) -> f32;

    /// Eight that follow each other in memory.
    fn words<S: Lanes>(units: &[Self; 8]) -> S::V;

    /// That of a column of a row of units.
    fn in_row(row: &[Self], column: usize) -> f32;

    /// Those of eight columns of a row of units, from one on; all of them exist.
    fn words_in_row<S: Lanes>(row: &[Self], column: usize) -> S::V;

    /// Those of sixteen columns of a row of units, from one on.
    ///
    /// # Safety
    /// The row has `columns` units, the sixteen columns are among them, and the CPU has AVX-512.
    #[cfg(target_arch = "x86_64")]
    unsafe fn wide_words(row: *const Self, columns: usize, column: usize) -> __m512;

    /// The product, or the products, of two words, added to a sum.
    ///
    /// # Safety
    /// The CPU has AVX-512, for pairs with what multiplies bf16.
    #[cfg(target_arch = "x86_64")]
    unsafe fn multiply_add(a: __m512, b: __m512, sum: __m512) -> __m512;
}

impl<T: Stored> Unit for T {
    #[cfg(target_arch = "x86_64")]
    const DEPTHS: usize = 1;

    #[inline(always)]
    fn word(self) -> f32 {
        self.widen()
    }

    #[inline(always)]
    fn words<S: Lanes>(units: &[Self; 8]) -> S::V {
        T::load::<S>(units)
    }

    #[inline(always)]
    fn in_row(row: &[Self], column: usize) -> f32 {
        row[column].widen()
    }

    #[inline(always)]
    fn words_in_row<S: Lanes>(row: &[Self], column: usize) -> S::V {
        match row[column..].first_chunk() {
            Some(units) => T::load::<S>(units),
            None => S::splat(0.0),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn wide_words(row: *const Self, _: usize, column: usize) -> __m512 {
        // SAFETY: the caller's word.
        unsafe { T::load_wide(row.add(column)) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, sum: __m512) -> __m512 {
        // SAFETY: the caller's word.
        unsafe { _mm512_fmadd_ps(a, b, sum) }
    }
}

/// Two elements that follow each other in depth: neighbours in memory where a matrix is stored by
/// what is its depth.
///
/// Their products are added to a sum of f32 one after the other; numbers below the smallest normal
/// one are taken for 0, as are such sums.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pair([bf16; 2]);

#[cfg(target_arch = "x86_64")]
impl Pair {
    /// The elements in pairs, as they lie. An odd one at the end is left out.
    pub fn of(elements: &[bf16]) -> &[Pair] {
        let (pairs, _) = elements.as_chunks::<2>();
        // SAFETY: a pair has the layout of the array that it is.
        unsafe { std::slice::from_raw_parts(pairs.as_ptr().cast(), pairs.len()) }
    }

    fn elements(row: &[Pair]) -> &[bf16] {
        // SAFETY: as in `of`.
        let pairs: &[[bf16; 2]] = unsafe { std::slice::from_raw_parts(row.as_ptr().cast(), row.len()) };
        pairs.as_flattened()
    }
}

#[cfg(target_arch = "x86_64")]
impl Unit for Pair {
    const DEPTHS: usize = 2;

    #[inline(always)]
    fn word(self) -> f32 {
        f32::from_bits(u32::from(self.0[0].to_bits()) | u32::from(self.0[1].to_bits()) << 16)
    }

    #[inline(always)]
    fn words<S: Lanes>(units: &[Self; 8]) -> S::V {
        S::load(&units.map(Pair::word))
    }

    #[inline(always)]
    fn in_row(row: &[Self], column: usize) -> f32 {
        let (first, second) = Pair::elements(row).split_at(row.len());
        Pair([first[column], second[column]]).word()
    }

    #[inline(always)]
    fn words_in_row<S: Lanes>(row: &[Self], column: usize) -> S::V {
        S::load(&std::array::from_fn(|c| Pair::in_row(row, column + c)))
    }

    #[inline(always)]
    unsafe fn wide_words(row: *const Self, columns: usize, column: usize) -> __m512 {
        // SAFETY: the caller's word; a row of units is two rows of as many elements as it has units.
        unsafe {
            let first = row.cast::<bf16>().add(column);
            let second = first.add(columns);
            let first = _mm512_cvtepu16_epi32(_mm256_loadu_si256(first.cast()));
            let second = _mm512_cvtepu16_epi32(_mm256_loadu_si256(second.cast()));
            _mm512_castsi512_ps(_mm512_or_si512(first, _mm512_slli_epi32::<16>(second)))
        }
    }

    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, sum: __m512) -> __m512 {
        // SAFETY: the caller's word; vectors of the same size, of any bits.
        unsafe {
            let a = transmute::<__m512, __m512bh>(a);
            _mm512_dpbf16_ps(sum, a, transmute::<__m512, __m512bh>(b))
        }
    }
}
