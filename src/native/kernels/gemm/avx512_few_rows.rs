//! The inner loops of [`few_rows`](super::few_rows) in vectors of sixteen, for CPUs that have
//! AVX-512. Each sum is the one that the narrower loops make.

use std::arch::x86_64::*;

use super::super::simd::Stored;

/// sums[j] += x[0] * rows[0][j], then x[1] * rows[1][j], and so on, for all rows as long as there are
/// sums; all but the last of them, fewer than sixteen, whose number is returned. What lies `ahead`
/// elements behind is asked for, if that is not 0.
///
/// # Safety
/// [`is_there`](super::avx512::is_there).
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn add_rows<B: Stored, const D: usize>(
    sums: &mut [f32],
    x: &[f32; D],
    rows: &[&[B]; D],
    ahead: usize,
) -> usize {
    assert!(rows.iter().all(|row| row.len() >= sums.len()));
    let whole = sums.len() / 16 * 16;
    let wide = x.map(|x| _mm512_set1_ps(x));
    let lines = if size_of::<B>() == 4 { 16 } else { 32 };
    // SAFETY: sums and rows have sixteen elements from each `at` on; a prefetch of any address is
    // allowed.
    unsafe {
        for line in (0..whole).step_by(lines) {
            if ahead > 0 {
                for row in rows {
                    _mm_prefetch::<_MM_HINT_T1>(row.as_ptr().wrapping_add(line + ahead).cast());
                }
            }
            for at in (line..whole.min(line + lines)).step_by(16) {
                let mut sum = _mm512_loadu_ps(sums.as_ptr().add(at));
                for i in 0..D {
                    sum = _mm512_fmadd_ps(wide[i], B::load_wide(rows[i].as_ptr().add(at)), sum);
                }
                _mm512_storeu_ps(sums.as_mut_ptr().add(at), sum);
            }
        }
    }
    sums.len() - whole
}

/// Sums in sixteen lanes of the products of x with each of `rows`, sixteen elements at a time and but
/// for those that are left; all are as long as x. What lies `ahead` elements behind is asked for.
///
/// # Safety
/// [`is_there`](super::avx512::is_there).
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn dots<A: Stored, B: Stored, const R: usize>(
    x: &[A],
    rows: &[&[B]; R],
    ahead: usize,
) -> [[f32; 16]; R] {
    assert!(rows.iter().all(|row| row.len() >= x.len()));
    let whole = x.len() / 16 * 16;
    let lines = if size_of::<B>() == 4 { 16 } else { 32 };
    let mut lanes = [_mm512_setzero_ps(); R];
    let mut sums = [[0.0; 16]; R];
    // SAFETY: x and the rows have sixteen elements from each `at` on, and so has each of the sums; a
    // prefetch of any address is allowed.
    unsafe {
        for line in (0..whole).step_by(lines) {
            for row in rows {
                _mm_prefetch::<_MM_HINT_T1>(row.as_ptr().wrapping_add(line + ahead).cast());
            }
            for at in (line..whole.min(line + lines)).step_by(16) {
                let x = A::load_wide(x.as_ptr().add(at));
                for r in 0..R {
                    lanes[r] = _mm512_fmadd_ps(x, B::load_wide(rows[r].as_ptr().add(at)), lanes[r]);
                }
            }
        }
        for r in 0..R {
            _mm512_storeu_ps(sums[r].as_mut_ptr(), lanes[r]);
        }
    }
    sums
}
